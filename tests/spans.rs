//! With the feature `tracing`: the spans and events of tasks that a subscriber gets, with the names
//! that tokio-console knows; a subscriber may do in its callbacks what foreign code may do: spawn,
//! wake, inspect the runtime, panic.
//!
//! There is one subscriber for the process. A test finds its tasks by their ids.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex, Once};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use polder::event::{Event, Latch};
use polder::future::{poll_once, yield_now, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Listener, TcpListener, TcpStream, serve};
use polder::task::{self, Id};
use polder::time::sleep;
use polder::{Backend, Handle, Runtime, Task};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Record};
use tracing::{Level, Metadata, Subscriber, span};

#[path = "conformance/support.rs"]
#[allow(dead_code, reason = "made for the conformance suite")]
mod support;
use support::{LIMIT, eventually, message, within};

/// Runs `rule` on every backend, with one worker and with two.
fn on_each(rule: impl Fn(&Runtime) + Clone + Send + 'static) {
    listen();
    for backend in Backend::available() {
        for workers in [1, 2] {
            let rule = rule.clone();
            within(LIMIT, &format!("{backend}, {workers} workers"), move || {
                let builder = Runtime::builder().backend(backend).workers(workers);
                rule(&builder.build().unwrap());
            });
        }
    }
}

// The records.

type Fields = BTreeMap<String, String>;

#[derive(Clone, Debug)]
struct TaskRecord {
    name: &'static str,
    level: Level,
    target: String,
    fields: Fields,
    is_root: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Enter,
    Exit,
    /// Woken; `by_itself` if within the span on the same thread.
    Wake {
        by_itself: bool,
    },
    Clone,
    Drop,
    Close,
    /// A callback that must not happen.
    Fault(&'static str),
}

#[derive(Clone, Debug)]
struct EventRecord {
    level: Level,
    target: String,
    fields: Fields,
}

#[derive(Default)]
struct Records {
    spans: HashMap<u64, TaskRecord>,
    events: Vec<EventRecord>,
}

static RECORDS: Mutex<Option<Records>> = Mutex::new(None);

fn records<T>(f: impl FnOnce(&mut Records) -> T) -> T {
    f(RECORDS.lock().unwrap().get_or_insert_default())
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct FieldVisitor(Fields);

impl Visit for FieldVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

/// An action for callbacks about a task with this name prefix. Its arguments are the task's name
/// and the callback.
type Deed = Box<dyn Fn(&str, &str) + Send + Sync>;
static DEEDS: Mutex<Vec<(&str, Arc<Deed>)>> = Mutex::new(Vec::new());

struct Recorder;

impl Recorder {
    /// Performs the action for this callback, without holding a lock.
    fn act(span: u64, what: &str) {
        let name = records(|it| it.spans.get(&span)?.fields.get("task.name").cloned());
        let Some(name) = name else { return };
        let deeds = DEEDS.lock().unwrap();
        let deed = deeds.iter().find(|(of, _)| name.starts_with(of));
        let deed = deed.map(|(_, deed)| deed.clone());
        drop(deeds);
        if let Some(deed) = deed {
            deed(&name, what);
        }
    }

    fn step(span: u64, step: Step) {
        records(|it| it.spans.get_mut(&span).map(|it| it.steps.push(step)));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> span::Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, SeqCst);
        let mut visitor = FieldVisitor(Fields::new());
        span.record(&mut visitor);
        let meta = span.metadata();
        let record = TaskRecord {
            name: meta.name(),
            level: *meta.level(),
            target: meta.target().into(),
            fields: visitor.0,
            is_root: span.is_root(),
            steps: Vec::new(),
        };
        records(|it| it.spans.insert(id, record));
        Recorder::act(id, "new_span");
        span::Id::from_u64(id)
    }

    fn record(&self, _: &span::Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut visitor = FieldVisitor(Fields::new());
        event.record(&mut visitor);
        let (meta, fields) = (event.metadata(), visitor.0);
        if meta.target() == "tokio::task::waker" {
            let span = fields["task.id"].parse().unwrap();
            let by_itself = ENTERED.with_borrow(|entered| entered.contains(&span));
            let step = match &*fields["op"] {
                "waker.wake_by_ref" => Step::Wake { by_itself },
                "waker.clone" => Step::Clone,
                "waker.drop" => Step::Drop,
                _ => Step::Fault("the console does not know such an event"),
            };
            Recorder::step(span, step);
            return Recorder::act(span, "event");
        }
        let (level, target) = (*meta.level(), meta.target().into());
        let event = EventRecord {
            level,
            target,
            fields,
        };
        records(|it| it.events.push(event));
    }

    fn enter(&self, span: &span::Id) {
        Recorder::step(span.into_u64(), Step::Enter);
        Recorder::act(span.into_u64(), "enter");
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, span: &span::Id) {
        Recorder::step(span.into_u64(), Step::Exit);
        if ENTERED.with_borrow_mut(Vec::pop) != Some(span.into_u64()) {
            Recorder::step(
                span.into_u64(),
                Step::Fault("not the innermost span is left"),
            );
        }
        Recorder::act(span.into_u64(), "exit");
    }

    fn try_close(&self, span: span::Id) -> bool {
        Recorder::step(span.into_u64(), Step::Close);
        Recorder::act(span.into_u64(), "close");
        true
    }
}

fn listen() {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
}

/// Returns the record of a task.
fn record_of(id: Id) -> TaskRecord {
    let id = id.to_string();
    let of_task = |it: &&TaskRecord| it.fields["task.id"] == id;
    let found = records(|it| it.spans.values().find(of_task).cloned());
    found.unwrap_or_else(|| panic!("task {id} has no span"))
}

/// Its wakers live on, so a wake may be reported after that: the end of a runtime wakes tasks that
/// another thread is dropping.
fn is_closed(id: Id) -> bool {
    record_of(id).steps.contains(&Step::Close)
}

/// Checks the properties of an ended task, and returns how often it was entered. (Sets and scopes
/// return a task's output just before its future is dropped, possibly elsewhere.)
fn check_ended(id: Id) -> usize {
    eventually("its span is closed", || is_closed(id));
    let record = record_of(id);
    let steps = &record.steps;
    let mut after = steps.iter().skip_while(|it| **it != Step::Close).skip(1);
    assert!(
        after.all(|it| matches!(it, Step::Wake { .. })),
        "{record:?}"
    );
    let mut is_inside = false;
    for step in steps {
        match step {
            Step::Enter => assert!(!std::mem::replace(&mut is_inside, true), "{record:?}"),
            Step::Exit => assert!(std::mem::replace(&mut is_inside, false), "{record:?}"),
            Step::Close => assert!(!is_inside, "{record:?}"),
            Step::Fault(what) => panic!("{what}: {record:?}"),
            Step::Wake { .. } | Step::Clone | Step::Drop => {}
        }
    }
    steps.iter().filter(|it| **it == Step::Enter).count()
}

/// Returns the number of a task's wakers, according to the subscriber.
fn wakers_of(id: Id) -> usize {
    (record_of(id).steps.iter()).fold(0, |count: usize, step| match step {
        Step::Clone => count + 1,
        Step::Drop => count.checked_sub(1).expect("more dropped than cloned"),
        _ => count,
    })
}

fn deed(of: &'static str, deed: impl Fn(&str, &str) + Send + Sync + 'static) {
    DEEDS.lock().unwrap().push((of, Arc::new(Box::new(deed))));
}

// The schema.

#[test]
fn a_task_has_a_span_that_tokio_console_knows() {
    on_each(|runtime| {
        runtime.block_on(async {
            let line = line!() + 1;
            let task = task::Builder::new().name("indexer").spawn(async {});
            let id = task.id();
            task.await;
            let record = record_of(id);
            assert_eq!(record.name, "runtime.spawn");
            assert_eq!(
                (record.level, &*record.target),
                (Level::TRACE, "tokio::task")
            );
            assert!(record.is_root);
            let fields = record.fields;
            assert_eq!(fields["kind"], "task");
            assert_eq!(fields["task.name"], "indexer");
            assert_eq!(fields["loc.file"], file!());
            assert_eq!(fields["loc.line"], line.to_string());
            assert!(fields["loc.col"].parse::<u32>().is_ok());
            assert_eq!(fields["size.bytes"], "1");
        });
    });
}

/// Every way to spawn gives the task a span with its kind and place.
#[test]
fn every_spawn_has_span_kind_and_place() {
    /// Checks a task's kind, name and spawn location, which is the caller of this function.
    #[track_caller]
    fn check(kind: &str, name: Option<&str>, id: Id) {
        let record = record_of(id);
        assert_eq!(record.fields["kind"], kind);
        assert_eq!(record.fields.get("task.name").map(String::as_str), name);
        assert_eq!(record.fields["loc.file"], file!());
        let (line, called) = (record.fields["loc.line"].parse(), Location::caller().line());
        assert!((called..called + 5).contains(&line.unwrap()), "{record:?}");
        check_ended(id);
    }
    let id = async || polder::task::id().unwrap();
    on_each(move |runtime| {
        let ended = async |task: Task<Id>| task.await;
        runtime.block_on(async {
            check("task", None, ended(polder::spawn(id())).await);
            check("local", None, ended(polder::spawn_local(id())).await);
            check(
                "task",
                Some("one"),
                ended(task::Builder::new().name("one").spawn(id())).await,
            );
            check(
                "local",
                Some("two"),
                ended(task::Builder::new().name("two").spawn_local(id())).await,
            );
            check("task", None, ended(Handle::current().spawn(id())).await);
            check(
                "local",
                None,
                ended(Handle::current().spawn_on_worker(0, id)).await,
            );
            let mut tasks = polder::TaskSet::new();
            check("task", None, {
                tasks.spawn(id());
                tasks.join_next().await.unwrap()
            });
        });
        check("task", None, runtime.block_on(runtime.spawn(id())));
        check("local", None, runtime.block_on(runtime.spawn_local(id())));
        runtime.scope(async |scope| {
            check("task", None, scope.spawn(id()).await);
            check("local", None, scope.spawn_local(id()).await);
        });
    });
}

/// A task that is spawned within another one's span is a root too.
#[test]
fn task_spawned_in_span_is_root() {
    on_each(|runtime| {
        let outer = runtime.spawn(async {
            let inner = polder::spawn(async {});
            let id = inner.id();
            inner.await;
            id
        });
        assert!(record_of(runtime.block_on(outer)).is_root);
    });
}

// Polls.

/// Each poll and the drop of the future are within the span.
#[test]
fn polls_and_drop_within_span() {
    on_each(|runtime| {
        let polls = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                let polls = polls.clone();
                runtime.spawn(async move {
                    for m in 0..n {
                        match m % 3 {
                            0 => sleep(Duration::from_micros(100)).await,
                            1 => yield_now().await,
                            _ => polder::spawn(async {}).await,
                        }
                    }
                    polls.fetch_add(1, SeqCst);
                    // Only this task's span is entered.
                    ENTERED.with_borrow(|entered| entered.len())
                })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            let id = task.id();
            let entered = runtime.block_on(task);
            // (Without a clock the first kind may complete at its first poll.)
            assert_eq!(entered, 1);
            assert!(
                (2..=n + 2).contains(&check_ended(id)),
                "{:?}",
                record_of(id)
            );
        }
        assert_eq!(polls.load(SeqCst), 20);
    });
}

#[test]
fn polls_are_counted_exactly() {
    on_each(|runtime| {
        for polls in [1, 2, 5] {
            let mut left = polls;
            let task = runtime.spawn(poll_fn(move |cx| {
                left -= 1;
                if left == 0 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }));
            let id = task.id();
            runtime.block_on(task);
            // Plus one for the drop of the future.
            assert_eq!(check_ended(id), polls + 1);
        }
    });
}

// Ends.

/// A span is closed when the future is dropped however its task ends.
#[test]
fn span_closed_with_future() {
    on_each(|runtime| {
        let done = runtime.spawn(async {});
        let panics = runtime.spawn(async { resume_unwind(Box::new("bad luck")) });
        let cancelled = runtime.spawn(pending::<()>());
        let dropped = runtime.spawn_local(pending::<()>());
        let never_polled = runtime.spawn_local(pending::<()>());
        let aborted = runtime.spawn(pending::<()>());
        let abort = aborted.abort_handle();
        let tasks = [&cancelled, &dropped, &never_polled, &aborted, &done];
        let ids = [panics.id()].into_iter().chain(tasks.map(Task::id));
        let ids: Vec<Id> = ids.collect();

        drop(never_polled);
        runtime.block_on(done);
        let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(panics)));
        assert!(result.is_err());
        runtime.block_on(async {
            yield_now().await;
            cancelled.cancel().await;
            abort.abort();
            drop(dropped);
            assert!(aborted.fallible().await.is_none());
            // The worker drops an aborted task's future soon.
            for id in &ids {
                while !is_closed(*id) {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
        for id in ids {
            check_ended(id);
        }
    });
}

#[test]
fn what_a_runtime_s_end_cancels_is_closed() {
    listen();
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        let polled = [
            runtime.spawn(pending::<()>()),
            runtime.spawn_local(pending::<()>()),
        ];
        runtime.block_on(sleep(Duration::from_millis(1)));
        let never_polled = runtime.spawn(pending::<()>());
        let mut ids = vec![never_polled.id()];
        for task in polled {
            ids.push(task.id());
            task.detach();
        }
        drop(runtime);
        for id in ids {
            check_ended(id);
        }
    }
}

#[cfg(feature = "blocking")]
#[test]
fn a_function_on_the_pool_has_a_span_too() {
    listen();
    let task = polder::unblock(|| ENTERED.with_borrow(Vec::len));
    let id = task.id();
    assert_eq!(polder::block_on(task), 1);
    assert_eq!(record_of(id).fields["kind"], "blocking");
    assert_eq!(check_ended(id), 1);

    // A call that panics.
    let task = polder::unblock(|| resume_unwind(Box::new("bad luck")));
    let id = task.id();
    assert!(catch_unwind(AssertUnwindSafe(|| polder::block_on(task))).is_err());
    check_ended(id);
}

// Wakes.

#[test]
fn who_wakes_itself_is_told_from_who_is_woken() {
    let woken = Step::Wake { by_itself: false };
    let by_itself = Step::Wake { by_itself: true };
    on_each(move |runtime| {
        let wakes = |id: Id| {
            let mut steps = record_of(id).steps;
            steps.retain(|step| matches!(step, Step::Wake { .. }));
            steps
        };
        let task = runtime.spawn(async {
            yield_now().await;
            yield_now().await;
        });
        let id = task.id();
        runtime.block_on(task);
        assert_eq!(wakes(id), [by_itself; 2]);

        // By another task, by a thread, by a timer, by the end of a task.
        let event = Arc::new(Event::new());
        let waits = {
            let event = event.clone();
            runtime.spawn(async move { event.wait().await })
        };
        let id = waits.id();
        let wakes_it = async {
            while record_of(id).steps.last() != Some(&Step::Exit) {
                sleep(Duration::from_millis(1)).await;
            }
            event.set();
        };
        runtime.block_on(zip(waits, wakes_it));
        assert_eq!(wakes(id), [woken]);

        let (sender, receiver) = async_channel::bounded(1);
        let waits = runtime.spawn(async move { receiver.recv().await.unwrap() });
        let id = waits.id();
        let sends = thread::spawn(move || {
            eventually("it waits", || {
                record_of(id).steps.last() == Some(&Step::Exit)
            });
            sender.send_blocking(()).unwrap();
        });
        runtime.block_on(waits);
        sends.join().unwrap();
        assert_eq!(wakes(id), [woken]);

        // (On a busy machine it may be due before its task waits, and then wakes no task.)
        let mut attempts = (0..5).map(|_| {
            let waits = runtime.spawn(async { sleep(Duration::from_millis(10)).await });
            let id = waits.id();
            runtime.block_on(waits);
            wakes(id)
        });
        let told = attempts.find(|told| !told.is_empty());
        assert_eq!(told, Some(vec![woken]));
    });
}

/// The number of wakers is told at the end of each poll.
#[test]
fn waker_count_told_after_each_poll() {
    on_each(|runtime| {
        let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let task = {
            let wakers = wakers.clone();
            let mut polls = 0;
            runtime.spawn_local(poll_fn(move |cx| {
                polls += 1;
                let mut wakers = wakers.lock().unwrap();
                match polls {
                    1 => wakers.extend([cx.waker().clone(), cx.waker().clone()]),
                    2 => wakers.truncate(1),
                    3 => wakers.clear(),
                    _ => return Poll::Ready(()),
                }
                Poll::<()>::Pending
            }))
        };
        let id = task.id();
        let turn = || runtime.run_once(Duration::ZERO);
        turn();
        assert_eq!(wakers_of(id), 2);
        let wake = || wakers.lock().unwrap()[0].wake_by_ref();
        wake();
        turn();
        assert_eq!(wakers_of(id), 1);
        wake();
        turn();
        // It has lost its waker now, as the console reports.
        assert_eq!(wakers_of(id), 0);
        drop(task);
        turn();
        check_ended(id);
    });
}

// Other behaviour.

#[test]
fn a_dump_tells_what_a_task_with_a_span_waits_for() {
    on_each(|runtime| {
        let dump = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let accepts = task::Builder::new()
                .name("accepts")
                .spawn(async move { listener.accept().await });
            let sleeps = task::Builder::new()
                .name("sleeps")
                .spawn_local(sleep(Duration::from_secs(3600)));
            let (accepts_id, sleeps_id) = (accepts.id(), sleeps.id());
            // A poll may have begun, and not cloned its waker yet.
            let has_cloned = |id| record_of(id).steps.contains(&Step::Clone);
            while ![accepts_id, sleeps_id].into_iter().all(has_cloned) {
                sleep(Duration::from_millis(1)).await;
            }
            let wakers = [accepts_id, sleeps_id].map(wakers_of);
            assert_eq!(wakers, [1, 1]);
            let dump = Handle::current().dump().to_string();
            drop((accepts, sleeps));
            dump
        });
        assert!(dump.contains("reads TCP 127.0.0.1:"), "{dump}");
        assert!(
            dump.contains("timer due in 59 min") || dump.contains("timer due in 60 min"),
            "{dump}"
        );
    });
}

/// A dump tells what a task with a span leaves unread.
///
/// The future that would read is neither polled nor dropped. (With one worker: if a task has moved
/// since it last waited, its waker is not kept.)
#[test]
fn dump_shows_unread_of_spanned_task() {
    on_each(|runtime| {
        if runtime.workers() > 1 {
            return;
        }
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut near = TcpStream::connect(address).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let has_read = Arc::new(AtomicBool::new(false));
            let told = has_read.clone();
            let stuck = polder::spawn(async move {
                let mut byte = [0];
                far.read_exact(&mut byte).await.unwrap();
                let mut read = far.read(&mut byte);
                assert!(poll_once(&mut read).await.is_none());
                told.store(true, SeqCst);
                pending::<()>().await;
            });
            // A task's first wait for a socket is not attributed to it.
            while !record_of(stuck.id()).steps.contains(&Step::Exit) {
                yield_now().await;
            }
            near.write_all(&[1]).await.unwrap();
            while !has_read.load(SeqCst) {
                yield_now().await;
            }
            let words = "does not read TCP, which is readable";
            let dump = Handle::current().dump().to_string();
            assert!(!dump.contains(words), "{dump}");
            let woken = wakes_of(stuck.id());
            near.write_all(&[1]).await.unwrap();
            while !Handle::current().dump().to_string().contains(words) {
                yield_now().await;
            }
            // One wake, as for any waker.
            assert_eq!(wakes_of(stuck.id()), woken + 1);
            stuck.cancel().await;
        });
    });
}

fn wakes_of(id: Id) -> usize {
    let steps = record_of(id).steps;
    let is_wake = |step: &&Step| matches!(step, Step::Wake { .. });
    steps.iter().filter(is_wake).count()
}

// Foreign code.

/// A subscriber may spawn, wake and inspect the runtime in any callback.
#[test]
fn subscriber_may_spawn_wake_and_inspect() {
    static LATCH: LazyLock<Latch> = LazyLock::new(Latch::new);
    static DONE: AtomicUsize = AtomicUsize::new(0);
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    deed("reenters", |_, what| {
        SEEN.lock().unwrap().push(what.into());
        BEGUN.fetch_add(1, SeqCst);
        task::Builder::new()
            .name("within")
            .spawn(async {
                yield_now().await;
                DONE.fetch_add(1, SeqCst);
            })
            .detach();
        LATCH.set();
        // Takes the locks that must not be held during a wake: sources, timers, lists of tasks.
        if let Some(handle) = Handle::try_current() {
            assert!(!handle.dump().to_string().is_empty());
        }
    });
    on_each(|runtime| {
        let echo = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = task::Builder::new()
                .name("reenters: server")
                .spawn(async move {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    for _ in 0..3 {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).await.unwrap();
                        sleep(Duration::from_micros(200)).await;
                        stream.write_all(&byte).await.unwrap();
                    }
                });
            let client = task::Builder::new()
                .name("reenters: client")
                .spawn_local(async move {
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    for _ in 0..3 {
                        stream.write_all(&[1]).await.unwrap();
                        stream.read_exact(&mut [0]).await.unwrap();
                    }
                    LATCH.wait().await;
                });
            zip(server, client).await;
            task::Builder::new()
                .name("reenters: cancelled")
                .spawn(pending::<()>())
                .cancel()
                .await;
        };
        runtime.block_on(async {
            echo.await;
            // (Tasks spawned on another thread, or while the task was dropped, count too.)
            while DONE.load(SeqCst) < BEGUN.load(SeqCst) {
                sleep(Duration::from_millis(1)).await;
            }
        });
    });
    let mut seen = SEEN.lock().unwrap().clone();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["close", "enter", "event", "exit", "new_span"]);
}

#[test]
fn a_subscriber_that_panics_costs_nobody_anything() {
    const PLACES: [&str; 5] = ["new_span", "enter", "exit", "event", "close"];
    static PANICKED: AtomicUsize = AtomicUsize::new(0);
    deed("panics", |name, what| {
        if name.ends_with(what) || name.ends_with("everywhere") {
            PANICKED.fetch_add(1, SeqCst);
            resume_unwind(Box::new("a subscriber's"));
        }
    });
    on_each(|runtime| {
        for place in PLACES.into_iter().chain(["everywhere"]) {
            let name = format!("panics in {place}");
            let task = task::Builder::new().name(name.clone()).spawn_on(
                async move {
                    yield_now().await;
                    // Its waker is in async-task now, where a panic would abort the process.
                    let inner = task::Builder::new().name(name).spawn(async {
                        sleep(Duration::from_micros(100)).await;
                        6
                    });
                    inner.await * 7
                },
                &runtime.handle(),
            );
            assert_eq!(runtime.block_on(task), 42);
            let cancelled = task::Builder::new()
                .name("panics everywhere")
                .spawn_local_on(pending::<()>(), runtime);
            assert_eq!(runtime.block_on(cancelled.cancel()), None);
            let panics = task::Builder::new().name("panics everywhere").spawn_on(
                async { resume_unwind(Box::new("its own")) },
                &runtime.handle(),
            );
            let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(panics)));
            assert_eq!(message(&*result.unwrap_err()), "its own");
        }
        assert_ne!(PANICKED.swap(0, SeqCst), 0);
    });
}

// Events.

fn events(says: &str) -> Vec<EventRecord> {
    let is_it = |it: &&EventRecord| it.fields["message"].contains(says);
    records(|it| it.events.iter().filter(is_it).cloned().collect())
}

#[test]
fn a_panic_that_nobody_awaits_is_an_event() {
    listen();
    let runtime = Runtime::new().unwrap();
    let says = "nobody hears it";
    let line = line!() + 1;
    let task = runtime.spawn(async move { resume_unwind(Box::new(says)) });
    task.detach();
    runtime.run();
    let told: Vec<_> = events("nobody awaits it");
    let of_task = |it: &&EventRecord| it.fields["panic"] == says;
    let told: Vec<_> = told.iter().filter(of_task).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].level, &*told[0].target), (Level::ERROR, "polder"));
    assert!(told[0].fields["spawned_at"].starts_with(&format!("{}:{line}:", file!())));
}

/// A poll that takes too long is an event if it is watched.
#[test]
fn slow_poll_is_an_event_if_watched() {
    listen();
    let told = Arc::new(AtomicBool::new(false));
    let runtime = {
        let told = told.clone();
        let over = Duration::from_millis(50);
        // (The future of `block_on` may have been interrupted for long.)
        let builder = Runtime::builder().on_stall(over, move |stall| {
            told.fetch_or(stall.task.id.is_some(), SeqCst);
        });
        builder.build().unwrap()
    };
    let task = runtime.spawn(async move { eventually("it is told", || told.load(SeqCst)) });
    let id = task.id();
    runtime.block_on(task);
    let of_task = format!("poll of task {id},");
    eventually("both are told", || events(&of_task).len() == 2);
    let told = events(&of_task);
    assert!(told.iter().all(|it| it.level == Level::WARN), "{told:?}");
    let ended: Vec<_> = told.iter().map(|it| &*it.fields["has_ended"]).collect();
    assert_eq!(ended, ["false", "true"]);
}

/// An error of accept that a server survives is an event.
#[test]
fn accept_error_survived_is_an_event() {
    /// Reports that no descriptor is left, for three attempts.
    struct Broken(AtomicUsize);
    impl Listener for Broken {
        type Stream = ();
        type Address = SocketAddr;

        async fn accept(&self) -> io::Result<((), SocketAddr)> {
            match self.0.fetch_add(1, SeqCst) {
                0..3 => Err(io::Error::from_raw_os_error(24)),
                _ => pending().await,
            }
        }
    }
    listen();
    let stop = Latch::new();
    let server = serve(Broken(AtomicUsize::new(0)), |(), _| async {})
        .on_error(|_| stop.set())
        .until(async {
            stop.wait().await;
            sleep(Duration::from_millis(20)).await;
        });
    let summary = polder::block_on(async { server.await }).unwrap();
    assert_ne!(summary.errors, 0);
    let told = events("could not be accepted");
    // One event, like one call of `on_error`.
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].level, Level::WARN);
    assert!(told[0].fields["error"].contains("os error 24"), "{told:?}");
}

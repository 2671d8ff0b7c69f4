//! `TaskSet`: tasks that end together.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use polder::event::Event;
use polder::event::Latch;
use polder::future::{poll_once, yield_now};
use polder::stream::StreamExt;
use polder::{TaskSet, Timer};

use crate::child::in_children_and_judge;
use crate::probe::hold;
use crate::support::{
    LIMIT, eventually, in_every_kernel_runtime_alone, in_every_runtime, in_every_runtime_alone,
    on_every_backend, runtime, runtime_of, sized, until, with_every_runtime, within,
};

/// Counts drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn outputs_come_as_tasks_end_and_then_none() {
    in_every_runtime(|_| async {
        let mut set = TaskSet::new();
        assert!(set.is_empty());
        assert_eq!(set.join_next().await, None);
        let events: Vec<_> = (0..3).map(|_| Arc::new(Event::new())).collect();
        for (n, event) in events.iter().cloned().enumerate() {
            set.spawn(async move {
                event.wait().await;
                n
            });
        }
        assert_eq!(set.len(), 3);
        for n in [2, 0, 1] {
            assert!(poll_once(set.join_next()).await.is_none());
            events[n].set();
            assert_eq!(set.join_next().await, Some(n));
        }
        assert_eq!(set.join_next().await, None);
        // The same set again, as a stream.
        for n in 0..5 {
            set.spawn(async move { n });
        }
        let mut all: Vec<usize> = (&mut set).collect().await;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        assert!(set.is_empty());
    });
}

#[test]
fn a_panic_is_passed_on_and_the_others_go_on() {
    in_every_runtime_alone(|_| async {
        let mut set = TaskSet::new();
        set.spawn(async { resume_unwind(Box::new("bad luck")) });
        set.spawn(async { 5 });
        // The tasks may end in either order.
        let mut results = Vec::new();
        while let Some(result) = set.join_next_result().await {
            results.push(result);
        }
        results.sort_by_key(Result::is_ok);
        let [Err(panic), Ok(5)] = &results[..] else {
            panic!("two have ended: {results:?}");
        };
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"bad luck"));

        set.spawn(async { resume_unwind(Box::new("again")) });
        let task = polder::spawn(async move { set.join_next().await });
        let waiting = std::panic::AssertUnwindSafe(task);
        let panic = polder::future::FutureExt::catch_unwind(waiting).await;
        let panic = panic.expect_err("it reaches whoever joins");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"again"));
    });
}

#[test]
fn what_has_ended_can_be_joined_without_waiting() {
    in_every_runtime(|_| async {
        let mut set = TaskSet::new();
        assert_eq!(set.try_join_next(), None, "there is no task");
        let events: Vec<_> = (0..3).map(|_| Arc::new(Event::new())).collect();
        for (n, event) in events.iter().cloned().enumerate() {
            set.spawn(async move {
                event.wait().await;
                match n {
                    2 => resume_unwind(Box::new("bad luck")),
                    n => n,
                }
            });
        }
        for _ in 0..10 {
            yield_now().await;
            assert_eq!(set.try_join_next(), None, "they wait");
        }
        for n in [1, 0] {
            events[n].set();
            let mut joined = None;
            until("one has ended", || {
                joined = set.try_join_next();
                joined.is_some()
            })
            .await;
            assert_eq!(joined, Some(n));
            assert_eq!(set.try_join_next(), None, "the others wait");
        }
        assert_eq!(set.len(), 1);
        events[2].set();
        let mut joined = None;
        until("it has panicked", || {
            joined = set.try_join_next_result();
            joined.is_some()
        })
        .await;
        joined.unwrap().expect_err("it panicked");
        assert!(set.is_empty() && set.try_join_next_result().is_none());
    });
}

/// Joining without waiting passes over the cancelled and passes panics on.
///
/// `try_join_next` passes on a panic, as awaiting does.
#[test]
fn try_join_skips_cancelled_passes_panics() {
    in_every_runtime_alone(|backend| async move {
        let mut set = TaskSet::new();
        let ended = runtime(backend);
        ended.block_on(async { set.spawn(pending::<u8>()) });
        drop(ended);
        set.spawn(async { resume_unwind(Box::new("bad luck")) });
        set.spawn(async { 5 });
        yield_now().await;
        assert_eq!(set.len(), 3);
        let join = std::panic::AssertUnwindSafe(|| set.try_join_next());
        let panic = std::panic::catch_unwind(join).expect_err("it reaches whoever joins");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"bad luck"));
        assert_eq!(set.try_join_next(), Some(5));
        assert_eq!(set.try_join_next(), None);
        assert!(set.is_empty());
    });
}

/// A join that is cancelled, followed by joins that do not wait, loses no output and returns none
/// twice.
#[test]
fn waiting_and_not_waiting_to_join_can_be_mixed() {
    in_every_runtime(|backend| async move {
        let count = sized(backend, 5_000);
        let mut set: TaskSet<usize> = (0..count)
            .map(|n| async move {
                for _ in 0..n % 3 {
                    yield_now().await;
                }
                n
            })
            .collect();
        let mut told = vec![false; count];
        let mut tell = |n: usize| assert!(!std::mem::replace(&mut told[n], true), "{n} again");
        loop {
            if let Some(n) = set.try_join_next() {
                tell(n);
            }
            match poll_once(set.join_next()).await {
                Some(Some(n)) => tell(n),
                Some(None) => break,
                None => yield_now().await,
            }
        }
        assert!(told.iter().all(|told| *told));
    });
}

/// A set is made of futures and takes more of them.
#[test]
fn set_from_futures_and_extended() {
    in_every_runtime(|_| async {
        async fn twice(n: u32) -> u32 {
            yield_now().await;
            2 * n
        }
        let mut set: TaskSet<_> = (0..5).map(twice).collect();
        assert_eq!(set.len(), 5);
        set.extend((5..8).map(twice));
        set.extend(None::<std::future::Ready<u32>>);
        assert_eq!(set.len(), 8);
        let mut all: Vec<_> = (&mut set).collect().await;
        all.sort_unstable();
        assert_eq!(all, [0, 2, 4, 6, 8, 10, 12, 14]);
    });
}

/// A report of a panic is captured with the output of its test.
///
/// In a child process, since the harness's other output would be mixed with it.
#[test]
fn panic_report_captured_with_test_output() {
    const ME: &str = "taskset::panic_report_captured_with_test_output";
    const VARIABLE: &str = "POLDER_CAPTURED";
    if std::env::var_os(VARIABLE).is_some() {
        return polder::block_on(async {
            polder::spawn(async { resume_unwind(Box::new("unread")) }).detach();
            yield_now().await;
            yield_now().await;
        });
    }
    let output = within(LIMIT, "the child", || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", ME]).env(VARIABLE, "1").output()
    });
    let output = output.unwrap();
    let (told, leaked) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(told.contains("1 passed"), "{told}");
    assert_eq!(leaked, "");
}

#[test]
fn a_panic_that_nobody_takes_is_reported() {
    let judge = |_, output: &Output| {
        let words = String::from_utf8_lossy(&output.stderr);
        let told = words.matches("nobody awaits it: unread").count();
        assert_eq!(told, 2, "{words}");
    };
    let rule = |backend| {
        runtime(backend).block_on(async {
            let mut set = TaskSet::<()>::new();
            set.spawn(async { resume_unwind(Box::new("unread")) });
            yield_now().await;
            drop(set);
            let mut set = TaskSet::<()>::new();
            set.spawn(async { resume_unwind(Box::new("unread")) });
            set.detach_all();
            yield_now().await;
            yield_now().await;
        });
    };
    in_children_and_judge(rule, judge);
}

#[test]
fn dropping_a_set_cancels_its_tasks() {
    with_every_runtime(|runtime, _| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let (mut set, mut aborts) = (TaskSet::new(), Vec::new());
        runtime.block_on(async {
            for _ in 0..10 {
                aborts.push(set.spawn(hold(Dropped(dropped.clone()))));
            }
            yield_now().await;
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop(set);
        runtime.run(); // Until no task is left.
        assert_eq!(dropped.load(Ordering::SeqCst), 10);
        let are_finished = || aborts.iter().all(|abort| abort.is_finished());
        eventually("they are finished", are_finished);
        aborts[0].abort();
    });
}

/// `cancel_all` waits until the futures are dropped and keeps what was done.
#[test]
fn cancel_all_waits_for_drops_keeps_done() {
    in_every_runtime_alone(|_| async {
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut set = TaskSet::new();
        for n in 0..10 {
            let guard = Dropped(dropped.clone());
            set.spawn(async move {
                let _guard = guard;
                match n {
                    3 | 7 => n,
                    _ => pending().await,
                }
            });
        }
        while dropped.load(Ordering::SeqCst) < 2 {
            yield_now().await;
        }
        assert_eq!(set.cancel_all().await, 8);
        assert_eq!(dropped.load(Ordering::SeqCst), 10);
        assert_eq!(set.len(), 2);
        let mut done = [set.join_next().await, set.join_next().await];
        done.sort_unstable();
        assert_eq!(done, [Some(3), Some(7)]);
        assert_eq!(set.join_next().await, None);
        assert_eq!(set.cancel_all().await, 0);
        set.spawn(async { 1 });
        assert_eq!(set.join_next().await, Some(1));
        // Dropped after its first poll, `cancel_all` has still cancelled all tasks.
        set.spawn(pending());
        let _ = poll_once(set.cancel_all()).await;
        assert_eq!(set.join_next().await, None);
    });
}

/// Calls that block are joined with their output or panic and cancelled.
#[test]
fn calls_that_block_joined_or_cancelled() {
    in_every_kernel_runtime_alone(|_| async {
        let mut set = TaskSet::new();
        let (began, ended) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let (go, goes) = std::sync::mpsc::channel::<()>();
        let abort = set.unblock({
            let (began, ended) = (began.clone(), ended.clone());
            move || {
                began.set();
                let _ = goes.recv();
                ended.set();
                5
            }
        });
        began.wait().await;
        assert_eq!(poll_once(set.join_next()).await, None, "it has not ended");
        abort.abort();
        assert_eq!(set.join_next().await, None, "nothing waits for it");
        drop(go);
        ended.wait().await;

        set.unblock(|| 6);
        assert_eq!(set.join_next().await, Some(6));
        set.unblock(|| panic!("on purpose"));
        let panic = set.join_next_result().await.unwrap().unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    });
}

#[test]
fn detached_tasks_run_on() {
    with_every_runtime(|runtime, _| {
        let done = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            let mut set = TaskSet::new();
            for n in 0..3 {
                let done = Dropped(done.clone());
                set.spawn(async move {
                    Timer::after(Duration::from_millis(n)).await;
                    done // Dropped with the output.
                });
            }
            set.detach_all();
        });
        runtime.run();
        assert_eq!(done.load(Ordering::SeqCst), 3);
    });
}

/// A task's future is dropped before the end of the task is reported.
#[test]
fn a_task_is_joined_after_its_future_was_dropped() {
    in_every_runtime(|_| async {
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut set = TaskSet::new();
        for round in 1..=100 {
            let guard = Dropped(dropped.clone());
            set.spawn(async move {
                if round % 3 == 0 {
                    resume_unwind(Box::new(round));
                }
                yield_now().await;
                let _ = &guard; // It is held until here.
            });
            let joined = set.join_next_result().await.expect("there is one");
            assert_eq!(joined.is_err(), round % 3 == 0);
            assert_eq!(dropped.load(Ordering::SeqCst), round);
        }
    });
}

/// A future is dropped before its result is reported.
///
/// Also where the code that waits runs on another thread: it is woken by the report.
#[test]
fn future_dropped_before_result_reported() {
    with_every_runtime(|runtime, _| {
        for is_in_scope in [false, true] {
            let dropped = Arc::new(AtomicUsize::new(0));
            let (guard, go) = (Dropped(dropped.clone()), Arc::new(Latch::new()));
            // (An async block drops what it holds as it returns.)
            let holds = {
                let go = go.clone();
                let mut waits = Box::pin(async move { go.wait().await });
                poll_fn(move |cx| {
                    let _ = &guard;
                    waits.as_mut().poll(cx)
                })
            };
            let seen = Arc::new(Mutex::new(None));
            let waker = Waker::from(Arc::new(Looks(dropped, seen.clone())));
            let cx = &mut Context::from_waker(&waker);
            let is_reported = || seen.lock().unwrap().is_some();
            if is_in_scope {
                runtime.scope(async |scope| {
                    let mut task = scope.spawn(holds);
                    assert!(pin!(&mut task).poll(cx).is_pending());
                    go.set();
                    until("it is reported", is_reported).await;
                });
            } else {
                runtime.block_on(async {
                    let mut set = TaskSet::new();
                    set.spawn(holds);
                    assert!(set.poll_join_next(cx).is_pending());
                    go.set();
                    until("it is reported", is_reported).await;
                });
            }
            assert_eq!(*seen.lock().unwrap(), Some(1), "in a scope: {is_in_scope}");
        }
    });
}

/// Looks how many guards are dropped when it is first woken.
struct Looks(Arc<AtomicUsize>, Arc<Mutex<Option<usize>>>);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        let dropped = self.0.load(Ordering::SeqCst);
        self.1.lock().unwrap().get_or_insert(dropped);
    }
}

#[test]
fn local_tasks_need_not_be_send() {
    in_every_runtime(|_| async {
        let sum = Rc::new(Cell::new(0));
        let mut set = TaskSet::new();
        for n in 1..=4 {
            let sum = sum.clone();
            set.spawn_local(async move {
                sum.set(sum.get() + n);
                sum
            });
        }
        while let Some(same) = set.join_next().await {
            assert!(Rc::ptr_eq(&same, &sum));
        }
        assert_eq!(sum.get(), 10);
    });
}

/// A set is joined on another thread than its tasks run.
#[test]
fn set_joined_on_another_thread() {
    on_every_backend(|backend| {
        let mut set = TaskSet::new();
        let go = Arc::new(Latch::new());
        // Spawned in the background runtime, since this thread drives none.
        for n in 0..200_u64 {
            let go = go.clone();
            set.spawn(async move {
                go.wait().await;
                n
            });
        }
        let sum = runtime(backend).block_on(async {
            assert!(poll_once(set.join_next()).await.is_none());
            go.set();
            let mut sum = 0;
            while let Some(n) = set.join_next().await {
                sum += n;
            }
            sum
        });
        assert_eq!(sum, 199 * 200 / 2);
    });
}

/// Each end takes the same time, regardless of the number of tasks that still run.
#[test]
fn tens_of_thousands_end_one_by_one() {
    in_every_runtime(|backend| async move {
        let count = sized(backend, 50_000);
        let mut set = TaskSet::new();
        let (sender, receiver) = async_channel::unbounded::<usize>();
        for _ in 0..count {
            let receiver = receiver.clone();
            set.spawn(async move { receiver.recv().await.expect("there is one for each") });
        }
        for n in 0..count {
            sender.try_send(n).expect("they wait");
            assert_eq!(set.join_next().await, Some(n));
        }
        assert_eq!(set.join_next().await, None);
    });
}

/// Every task's end is reported once, from whichever worker.
///
/// With several workers, tasks end on all of them at the same time.
#[test]
fn every_end_reported_once_across_workers() {
    on_every_backend(|backend| {
        let runtime = runtime_of(backend, 3);
        let count = sized(backend, 20_000);
        runtime.block_on(async {
            let mut set = TaskSet::new();
            for n in 0..count {
                set.spawn(async move {
                    if n % 2 == 0 {
                        yield_now().await;
                    }
                    n
                });
            }
            let mut told = vec![false; count];
            for _ in 0..count / 2 {
                let n = set.join_next().await.expect("half of them are left");
                assert!(!std::mem::replace(&mut told[n], true), "{n} is told twice");
            }
            let cancelled = set.cancel_all().await;
            while let Some(n) = set.join_next().await {
                assert!(!std::mem::replace(&mut told[n], true), "{n} is told twice");
            }
            let told = told.into_iter().filter(|told| *told).count();
            assert_eq!(told + cancelled, count);
        });
    });
}

/// Each task of a set can be aborted alone and a handle never means another task.
#[test]
fn task_aborted_alone_handle_never_reused() {
    in_every_runtime(|_| async {
        let mut set = TaskSet::new();
        let dropped = Arc::new(AtomicUsize::new(0));
        let aborts: Vec<_> = (0..3)
            .map(|n| {
                let guard = Dropped(dropped.clone());
                set.spawn(async move {
                    let _guard = guard;
                    pending::<()>().await;
                    n
                })
            })
            .collect();
        yield_now().await;
        aborts[1].abort();
        until("one is dropped", || dropped.load(Ordering::SeqCst) == 1).await;
        until("it is finished", || aborts[1].is_finished()).await;
        assert!(!aborts[0].is_finished());
        // The set learns of it a moment after the handle.
        while set.len() > 2 {
            assert!(poll_once(set.join_next()).await.is_none());
            yield_now().await;
        }
        assert_eq!(set.len(), 2);
        // Another task takes its place in the set now.
        let event = Arc::new(Event::new());
        let other = event.clone();
        let later = set.spawn(async move {
            other.wait().await;
            7
        });
        aborts[1].abort();
        assert!(!later.is_finished());
        event.set();
        assert_eq!(set.join_next().await, Some(7));
        assert!(later.is_finished());
        set.abort_all();
        assert_eq!(set.join_next().await, None);
        assert!(aborts.iter().all(|abort| abort.is_finished()));
        until("all are dropped", || dropped.load(Ordering::SeqCst) == 3).await;
    });
}

#[test]
fn a_set_has_tasks_of_several_runtimes() {
    on_every_backend(|backend| {
        let (here, other) = (runtime(backend), runtime(backend));
        let mut set = TaskSet::new();
        let event = Arc::new(Event::new());
        let ran = event.clone();
        let one = async move {
            ran.set();
            1
        };
        set.spawn_on(one, &other.handle());
        set.spawn_on(pending(), &other.handle());
        set.spawn_on(async { 2 }, &here.handle());
        other.block_on(event.wait());
        let mut outputs = [0; 2].map(|_| here.block_on(set.join_next()).unwrap());
        outputs.sort_unstable();
        assert_eq!(outputs, [1, 2]);
        // The end of the runtime cancels the rest.
        drop(other);
        assert_eq!(here.block_on(set.join_next()), None);
    });
}

//! Whole programs that Miri can run: tasks, channels, events, local tasks, distant timers,
//! cancellation and panics, on runtimes with one to three workers. `ci/sanitizers.sh miri` runs
//! them under many schedules, with both aliasing models; `cargo test` runs them as they are.
//!
//! Miri has epoll, eventfd and files, but neither timerfd nor the sockets needed here. So no timer
//! comes due while a worker sleeps, and no socket is read. Miri lets a load return an old value if
//! the memory model allows that: a wake-up that relies on more than the model is lost here, and the
//! program hangs, which Miri reports as a deadlock.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::event::{Event, Latch};
use polder::future::{self, yield_now};
use polder::{Backend, Handle, Runtime, TaskSet, Timer, time};

/// The time limit of a program outside Miri; Miri detects hangs by itself.
const LIMIT: Duration = Duration::from_secs(60);

/// A number of repetitions: few under Miri, where each takes a thousand times as long.
const MANY: usize = if cfg!(miri) { 2 } else { 50 };

/// Longer than any program here runs.
const HOUR: Duration = Duration::from_secs(3_600);

/// Runs `program` on runtimes of one to three workers.
fn on_workers(program: fn(&Runtime)) {
    let backends = if cfg!(miri) {
        vec![Backend::Epoll]
    } else {
        Backend::available()
    };
    for backend in backends {
        for workers in 1..=3 {
            let run = move || program(&runtime(backend, workers));
            if cfg!(miri) {
                run();
            } else {
                within(&format!("on {backend} with {workers} workers"), run);
            }
        }
    }
}

fn runtime(backend: Backend, workers: usize) -> Runtime {
    (Runtime::builder().backend(backend).workers(workers))
        .build()
        .expect("an available backend can be opened")
}

/// Runs `f` on a new thread, with a deadline.
fn within(what: &str, f: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        f();
        let _ = sender.send(());
    });
    if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = receiver.recv_timeout(LIMIT) {
        panic!("{what}: not done after {LIMIT:?}: a wake-up was lost");
    }
    if thread.join().is_err() {
        panic!("it failed {what}");
    }
}

/// Panics without calling the hook, which would only print noise.
fn quietly_panic() {
    std::panic::resume_unwind(Box::new("meant to be"));
}

/// A slot in which one task stores its waker for others.
#[derive(Clone, Default)]
struct Meeting(Arc<Mutex<(bool, Option<Waker>)>>);

impl Meeting {
    fn come(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                Poll::Ready(())
            } else {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }
}

#[test]
fn tasks_spawn_yield_and_are_joined() {
    on_workers(|runtime| {
        let sum = runtime.block_on(async {
            let mut set = TaskSet::new();
            for n in 0..MANY {
                set.spawn(async move {
                    yield_now().await;
                    polder::spawn(async move { n }).await
                });
            }
            let mut sum = 0;
            while let Some(n) = set.join_next().await {
                sum += n;
            }
            sum
        });
        assert_eq!(sum, MANY * (MANY - 1) / 2);
    });
}

/// A wake from another thread reaches a worker that goes to sleep.
#[test]
fn wake_elsewhere_reaches_worker_going_to_sleep() {
    on_workers(|runtime| {
        for _ in 0..MANY {
            let (here, there) = (Meeting::default(), Meeting::default());
            let task = runtime.spawn({
                let (here, there) = (here.clone(), there.clone());
                async move {
                    there.come();
                    here.wait().await;
                }
            });
            let other = thread::spawn(move || {
                // The plain thread's `block_on` sleeps in a separate runtime.
                let waits = async {
                    there.wait().await;
                    here.come();
                };
                Runtime::builder()
                    .backend(Backend::default())
                    .build()
                    .unwrap()
                    .block_on(waits);
            });
            runtime.block_on(task);
            other.join().unwrap();
        }
    });
}

/// Channels pass between tasks of all workers and a thread.
#[test]
fn channels_between_workers_and_thread() {
    on_workers(|runtime| {
        let (to_task, from_thread) = async_channel::bounded::<usize>(1);
        let (to_main, from_task) = async_channel::unbounded::<usize>();
        let doubling = runtime.spawn(async move {
            while let Ok(n) = from_thread.recv().await {
                to_main.send(2 * n).await.unwrap();
            }
        });
        let thread = thread::spawn(move || {
            for n in 0..MANY {
                to_task.send_blocking(n).unwrap();
            }
        });
        let sum = runtime.block_on(async {
            let mut sum = 0;
            while let Ok(n) = from_task.recv().await {
                sum += n;
            }
            doubling.await;
            sum
        });
        assert_eq!(sum, MANY * (MANY - 1));
        thread.join().unwrap();
    });
}

#[test]
fn events_and_latches_let_every_waiter_go() {
    on_workers(|runtime| {
        let event = Arc::new(Event::new());
        let latch = Arc::new(Latch::new());
        let waiters: Vec<_> = (0..MANY)
            .map(|_| {
                let (event, latch) = (event.clone(), latch.clone());
                runtime.spawn(async move {
                    event.wait().await;
                    event.set(); // For the next.
                    latch.wait().await;
                })
            })
            .collect();
        let thread = thread::spawn({
            let (event, latch) = (event.clone(), latch.clone());
            move || {
                event.set();
                latch.set();
            }
        });
        runtime.block_on(async {
            for waiter in waiters {
                waiter.await;
            }
            // Cancel safe: a dropped wait has no effect.
            event.reset();
            assert!(future::poll_once(event.wait()).await.is_none());
        });
        thread.join().unwrap();
    });
}

#[test]
fn local_tasks_share_what_cannot_be_sent() {
    on_workers(|runtime| {
        let log = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..MANY)
            .map(|n| {
                let log = log.clone();
                runtime.spawn_local(async move {
                    log.borrow_mut().push(n);
                    yield_now().await;
                    // A task on another worker wakes this one.
                    polder::spawn(async {}).await;
                    log
                })
            })
            .collect();
        for task in tasks {
            assert!(Rc::ptr_eq(&runtime.block_on(task), &log));
        }
        assert_eq!(*log.borrow(), (0..MANY).collect::<Vec<_>>());
    });
}

/// Tasks are cancelled while they run and are woken.
#[test]
fn tasks_cancelled_while_running_and_woken() {
    on_workers(|runtime| {
        for round in 0..MANY {
            let count = Arc::new(AtomicUsize::new(0));
            let meeting = Meeting::default();
            let task = runtime.spawn({
                let (count, meeting) = (count.clone(), meeting.clone());
                async move {
                    let _count = count;
                    loop {
                        meeting.wait().await;
                        yield_now().await;
                    }
                }
            });
            let waking = thread::spawn({
                let meeting = meeting.clone();
                move || meeting.come()
            });
            match round % 3 {
                0 => assert!(runtime.block_on(task.cancel()).is_none()),
                1 => drop(task),
                // From another thread.
                _ => thread::spawn(move || drop(task)).join().unwrap(),
            }
            waking.join().unwrap();
            let gone = || Arc::strong_count(&count) == 1;
            runtime.block_on(async {
                while !gone() {
                    yield_now().await;
                }
            });
        }
    });
}

#[test]
fn panics_reach_awaiter_only() {
    on_workers(|runtime| {
        let other = runtime.spawn(async {
            for _ in 0..MANY {
                yield_now().await;
            }
            7
        });
        for _ in 0..MANY {
            let task = runtime.spawn(async {
                yield_now().await;
                quietly_panic();
            });
            let panic = catch_unwind(AssertUnwindSafe(|| runtime.block_on(task)));
            assert_eq!(
                panic.unwrap_err().downcast_ref::<&str>(),
                Some(&"meant to be")
            );
        }
        let thrown = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async { quietly_panic() });
        }));
        assert!(thrown.is_err());
        assert_eq!(runtime.block_on(other), 7);
    });
}

/// A runtime ends in the middle of wakes spawns and cancels.
#[test]
fn runtime_ends_during_wakes_spawns_cancels() {
    /// Spawns and wakes in its destructor.
    struct Parting(Meeting);
    impl Drop for Parting {
        fn drop(&mut self) {
            self.0.come();
            polder::spawn(async {}).detach();
        }
    }
    for workers in 1..=3 {
        for _ in 0..MANY {
            let runtime = runtime(Backend::default(), workers);
            let meeting = Meeting::default();
            for _ in 0..3 {
                let parting = Parting(meeting.clone());
                let waits = meeting.clone();
                runtime
                    .spawn(async move {
                        let _parting = parting;
                        waits.wait().await;
                        pending::<()>().await;
                    })
                    .detach();
            }
            let handle = runtime.handle();
            let foreign = thread::spawn(move || {
                meeting.come();
                let late = handle.spawn(async {});
                handle.spawn(pending::<()>()).detach();
                late.fallible()
            });
            runtime.run_once(Duration::ZERO);
            drop(runtime);
            // A task that was spawned too late is cancelled, and its handle completes.
            let late = foreign.join().unwrap();
            while !late.is_finished() {
                thread::yield_now();
            }
        }
    }
}

/// Handles spawn from other threads into a runtime that runs.
#[test]
fn handles_spawn_from_other_threads() {
    on_workers(|runtime| {
        let done = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (handle, done): (Handle, _) = (runtime.handle(), done.clone());
                thread::spawn(move || {
                    for _ in 0..MANY {
                        let done = done.clone();
                        handle
                            .spawn(async move {
                                yield_now().await;
                                done.fetch_add(1, SeqCst);
                            })
                            .detach();
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            while done.load(SeqCst) < 2 * MANY {
                yield_now().await;
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        runtime.run();
        assert_eq!(done.load(SeqCst), 2 * MANY);
    });
}

/// Run sees the end of the last task of all workers.
#[test]
fn run_sees_last_task_of_all_workers() {
    on_workers(|runtime| {
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..MANY {
            let ended = ended.clone();
            runtime
                .spawn(async move {
                    let inner = ended.clone();
                    polder::spawn(async move {
                        yield_now().await;
                        inner.fetch_add(1, SeqCst);
                    })
                    .detach();
                    ended.fetch_add(1, SeqCst);
                })
                .detach();
        }
        runtime.run();
        assert_eq!(ended.load(SeqCst), 2 * MANY);
    });
}

/// Timers are pushed back moved and dropped on other threads.
///
/// Distant timers are in the heap, and are set by threads other than their worker.
#[test]
fn timers_reset_moved_dropped_elsewhere() {
    on_workers(|runtime| {
        let timers = runtime.block_on(async {
            let mut timers = Vec::new();
            for n in 0..MANY as u32 {
                let mut timer = Box::pin(time::sleep(HOUR * (n + 1)));
                assert!(future::poll_once(&mut timer).await.is_none());
                timers.push(timer);
            }
            timers
        });
        let due = thread::spawn(move || {
            let mut due = timers;
            due.reverse();
            due.truncate(2);
            for timer in &mut due {
                timer.as_mut().reset(Instant::now() + 2 * HOUR);
            }
            due
        })
        .join()
        .unwrap();
        let tasks: Vec<_> = (due.into_iter())
            .map(|mut timer| {
                runtime.spawn(async move {
                    assert!(future::poll_once(&mut timer).await.is_none());
                    // It is already due: no worker sleeps for it.
                    timer.as_mut().reset(Instant::now());
                    timer.await;
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task);
        }
        assert!(runtime.block_on(async { future::poll_once(Timer::never()).await.is_none() }));
    });
}

#[test]
fn runtimes_are_driven_within_tasks_and_wakers() {
    /// Drives a new runtime on each wake.
    struct Driving(AtomicUsize);
    impl std::task::Wake for Driving {
        fn wake(self: Arc<Self>) {
            let inner = runtime(Backend::default(), 1);
            let task = inner.spawn(async { 1 });
            self.0.fetch_add(inner.block_on(task), SeqCst);
        }
    }
    on_workers(|runtime| {
        let driving = Arc::new(Driving(AtomicUsize::new(0)));
        let task = runtime.spawn({
            let driving = driving.clone();
            async move {
                let mut inner = pin!(polder::spawn(yield_now()));
                // The task wakes this waker, unless it has ended before.
                let waker = Waker::from(driving);
                let first = inner.as_mut().poll(&mut Context::from_waker(&waker));
                self::runtime(Backend::default(), 1).block_on(yield_now());
                // Another worker may have completed it before the first poll.
                if first.is_pending() {
                    inner.await;
                }
            }
        });
        runtime.block_on(task);
        let late = Cell::new(0);
        runtime.block_on(async { late.set(1) });
        assert_eq!(late.get(), 1);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async { panic_any(5_u8) });
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&5_u8));
    });
}

/// Tasks that borrow, on each worker, until the scope has ended; one is cancelled, one panics.
#[test]
fn a_scopes_tasks_borrow_from_its_caller() {
    on_workers(|runtime| {
        let mut numbers = vec![0; MANY + 1];
        let text = String::from("text");
        let count = Cell::new(0);
        let length = runtime.scope(async |scope| {
            for (n, number) in numbers.iter_mut().enumerate() {
                scope.spawn(async move {
                    yield_now().await;
                    *number = n;
                });
            }
            scope.spawn_local(async { count.set(count.get() + 1) });
            let aborted = scope.spawn(async {
                let _text = &text;
                pending::<()>().await;
            });
            yield_now().await;
            aborted.abort_handle().abort();
            scope.spawn(async { &text }).await.len()
        });
        assert_eq!((length, count.get()), (4, 1));
        assert!(numbers.into_iter().eq(0..=MANY));

        let panicked = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(async |scope| {
                scope.spawn(async {
                    let _text = &text;
                    pending::<()>().await;
                });
                yield_now().await;
                quietly_panic();
            })
        }));
        assert!(panicked.is_err());
        drop(text);
    });
}

/// A task that is awaited is aborted by another thread.
///
/// A task that is awaited on one thread and aborted by another.
#[test]
fn awaited_task_aborted_by_thread() {
    on_workers(|runtime| {
        for _ in 0..MANY {
            let task = runtime.spawn(pending::<Box<u8>>());
            let abort = task.abort_handle();
            let thread = thread::spawn(move || abort.abort());
            assert_eq!(runtime.block_on(task.fallible()), None);
            thread.join().unwrap();
        }
    });
}

/// A future that is not `Send`, on a worker of the caller's choice, while the runtime ends.
#[test]
fn what_is_spawned_on_a_worker_stays_there() {
    on_workers(|runtime| {
        let handle = runtime.handle();
        let spawn = move |n: usize| {
            handle.spawn_on_worker(n % handle.workers(), move || {
                let here = Rc::new(Cell::new(n));
                async move {
                    yield_now().await;
                    here.get()
                }
            })
        };
        for n in 0..MANY {
            assert_eq!(runtime.block_on(spawn(n)), n);
        }
        thread::spawn(move || (0..MANY).for_each(|n| spawn(n).detach()))
            .join()
            .unwrap();
    });
}

/// Threads make all calls, since Miri knows none of those that do not wait. Some futures are
/// dropped while a thread is in the call.
#[cfg(feature = "fs")]
#[test]
fn files_are_read_and_written_by_threads() {
    use polder::fs::{self, OpenOptions};
    use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};

    on_workers(|runtime| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let path = path.clone();
                runtime.spawn(async move { fs::read(path).await.map_err(|error| error.kind()) })
            })
            .collect();
        runtime.block_on(async {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true);
            let mut file = options.open(&path).await.unwrap();
            for n in 0..MANY as u64 {
                let mut seen = n;
                file.seek(SeekFrom::Start(n)).await.unwrap();
                let written = match future::poll_once(file.write(b"text")).await {
                    Some(written) => written,
                    // The same bytes: it is the same write.
                    None => file.write(b"text").await,
                };
                // Miri writes fewer bytes than it could.
                file.write_all(&b"text"[written.unwrap()..]).await.unwrap();
                file.seek(SeekFrom::Start(n)).await.unwrap();
                let mut byte = [0];
                let read = future::poll_once(file.read(&mut byte)).await;
                seen += read.map_or(0, |read| read.unwrap() as u64);
                // The next operation is a read, or not.
                if n % 2 == 1 {
                    seen += file.read(&mut byte).await.unwrap() as u64;
                }
                assert_eq!(file.seek(SeekFrom::Current(0)).await.unwrap(), seen);
            }
            // It is closed while a thread reads it.
            assert!(
                future::poll_once(file.read(&mut [0]))
                    .await
                    .is_none_or(|it| it.is_ok())
            );
        });
        for (n, task) in tasks.into_iter().enumerate() {
            match n {
                0 => drop(runtime.block_on(task)),
                1 => drop(runtime.block_on(task.cancel())),
                _ => drop(task),
            }
        }
        let text = runtime.block_on(fs::read_to_string(&path)).unwrap();
        assert_eq!(text.len(), MANY + 3);
    });
    if cfg!(miri) {
        // Which wants all threads to have ended before the main thread: those of the pool do so
        // half a second after their last call.
        thread::sleep(Duration::from_secs(2));
    }
}

//! Rule 50: `run` and `run_once`.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::io::AsyncReadExt;
use polder::time::{sleep, timeout};
use polder::{Runtime, Timer, future};

use super::{blocking, one_byte, send_byte};
use crate::probe::{Alive, Count, OnDrop, Signal, hold, poll_with, tcp_pair};
use crate::support::{
    LIMIT, eventually, on_every_backend, runtime, with_every_runtime, with_every_runtime_alone,
    within,
};

#[test]
fn run_returns_exactly_when_no_task_is_left() {
    with_every_runtime(|runtime, _| {
        runtime.run();
        let done = Arc::new(AtomicUsize::new(0));
        fn generation(left: usize, done: Arc<AtomicUsize>) -> future::Boxed<()> {
            Box::pin(async move {
                if left > 0 {
                    future::yield_now().await;
                    polder::spawn(generation(left - 1, done.clone())).detach();
                }
                done.fetch_add(1, SeqCst);
            })
        }
        runtime.spawn(generation(100, done.clone())).detach();
        let count = done.clone();
        runtime
            .spawn_local(async move {
                sleep(Duration::from_millis(2)).await;
                count.fetch_add(1, SeqCst);
            })
            .detach();
        // The last task comes from another thread, while a task waits for that thread.
        let signal = Signal::default();
        let thread = thread::spawn({
            let (handle, signal, done) = (runtime.handle(), signal.clone(), done.clone());
            move || {
                thread::sleep(Duration::from_millis(4));
                handle
                    .spawn(async move {
                        future::yield_now().await;
                        done.fetch_add(1, SeqCst);
                    })
                    .detach();
                signal.send(());
            }
        });
        runtime
            .spawn(async move { signal.receive().await })
            .detach();
        runtime.run();
        assert_eq!(done.load(SeqCst), 103, "tasks were left");
        thread.join().unwrap();
        // `run` does not wait for other pending operations.
        let mut timer = Timer::after(Duration::from_secs(3_600));
        let (mut stream, _peer) = runtime.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            assert!(future::poll_once(&mut timer).await.is_none());
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            (stream, peer)
        });
        runtime.run();
        // Nor for cancelled tasks, or tasks that have panicked.
        drop(runtime.spawn(hold(())));
        runtime.spawn(async { panic!("on purpose") }).detach();
        runtime.run();
        runtime.block_on(async {
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
        });
    });
}

#[test]
fn a_turn_of_no_time_never_blocks() {
    with_every_runtime(|runtime, _| {
        assert!(!runtime.run_once(Duration::ZERO), "there was nothing to do");
        let (mut stream, mut peer) = runtime.block_on(tcp_pair());
        runtime.spawn(sleep(Duration::from_secs(3_600))).detach();
        runtime.spawn(hold(())).detach();
        let task = runtime.spawn(async move {
            stream.read_exact(&mut [0]).await.unwrap();
        });
        runtime.run_once(Duration::ZERO);
        // If a turn blocked, it would block for an hour.
        for _ in 0..1_000 {
            runtime.run_once(Duration::ZERO);
        }
        assert!(!task.is_finished());
        // Each turn still polls the kernel.
        io::Write::write_all(&mut blocking(&mut peer), b"x").unwrap();
        eventually("the byte is read", || {
            runtime.run_once(Duration::ZERO);
            task.is_finished()
        });
        // And the clock.
        let task = runtime.spawn(sleep(Duration::from_millis(1)));
        eventually("the timer fires", || {
            runtime.run_once(Duration::ZERO);
            task.is_finished()
        });
    });
}

/// A turn of no time fires a timer that became due between two turns.
#[test]
fn zero_turn_fires_timer_due_between_turns() {
    with_every_runtime_alone(|runtime, _| {
        // It waits until a deadline, which is the last time that it knows.
        runtime.run_once(Duration::from_millis(2));
        let task = runtime.spawn_local(sleep(Duration::from_millis(5)));
        runtime.run_once(Duration::ZERO);
        thread::sleep(Duration::from_millis(20));
        assert!(runtime.run_once(Duration::ZERO), "a timer is due");
        assert!(task.is_finished());
    });
}

/// A turn without a limit sleeps until there is something to do.
#[test]
fn turn_unlimited_sleeps_until_work() {
    with_every_runtime_alone(|runtime, _| {
        let happened = Arc::new(AtomicBool::new(false));
        let (mut stream, mut peer) = runtime.block_on(tcp_pair());
        let signal = Signal::default();
        let waiting = signal.clone();
        runtime
            .spawn(async move { waiting.receive().await })
            .detach();
        let reader = runtime.spawn(async move {
            stream.read_exact(&mut [0]).await.unwrap();
        });
        while runtime.run_once(Duration::ZERO) {}
        let handle = runtime.handle();
        let ends: [Box<dyn FnMut() + Send>; 3] = [
            Box::new(move || handle.spawn(async {}).detach()),
            Box::new(move || signal.send(())),
            Box::new(move || {
                io::Write::write_all(&mut blocking(&mut peer), b"x").unwrap();
            }),
        ];
        for mut end in ends {
            happened.store(false, SeqCst);
            let thread = thread::spawn({
                let happened = happened.clone();
                move || {
                    thread::sleep(Duration::from_millis(5));
                    happened.store(true, SeqCst);
                    end();
                }
            });
            let mut for_nothing = 0;
            while !runtime.run_once(None) {
                for_nothing += 1;
                assert!(for_nothing < 10, "it does not sleep");
            }
            assert!(
                happened.load(SeqCst),
                "it found something before there was any"
            );
            thread.join().unwrap();
            while runtime.run_once(Duration::ZERO) {}
        }
        runtime.block_on(reader);
        // A timer ends a turn too, and so does the limit, neither early.
        let start = Instant::now();
        let task = runtime.spawn(sleep(Duration::from_millis(3)));
        while !task.is_finished() {
            runtime.run_once(None);
        }
        assert!(start.elapsed() >= Duration::from_millis(3));
        let start = Instant::now();
        let limit = Duration::from_millis(3);
        assert!(!runtime.run_once(limit), "there was nothing to do");
        assert!(start.elapsed() >= limit, "early: {:?}", start.elapsed());
    });
}

/// A turn without a limit is not ended by a signal.
///
/// The kernel ends a wait after a signal handler has run.
#[test]
#[cfg(unix)]
fn turn_unlimited_survives_signal() {
    with_every_runtime_alone(|runtime, _| {
        let handled = polder::signal::Signals::new([polder::signal::Signal::Winch]).unwrap();
        // SAFETY: always allowed.
        let thread = unsafe { libc::pthread_self() } as usize;
        let all_sent = Arc::new(AtomicBool::new(false));
        let sender = thread::spawn({
            let (handle, all_sent) = (runtime.handle(), all_sent.clone());
            move || {
                for _ in 0..10 {
                    thread::sleep(Duration::from_millis(1));
                    // SAFETY: the thread joins this one before it ends.
                    unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGWINCH) };
                }
                all_sent.store(true, SeqCst);
                handle.spawn(async {}).detach();
            }
        });
        assert!(runtime.run_once(None), "there is a task");
        assert!(all_sent.load(SeqCst), "there was nothing to do yet");
        sender.join().unwrap();
        drop(handled);
    });
}

/// A turn that finds an event and a timer reports that it did work.
///
/// The result of a turn is true if the kernel or the clock had something, even if both had.
#[test]
fn turn_with_event_and_timer_did_work() {
    with_every_runtime_alone(|runtime, _| {
        let (mut stream, mut peer) = runtime.block_on(tcp_pair());
        for _ in 0..3 {
            // No task is woken, so a task cannot be the reason for the turn's result.
            let woken = Count::new();
            let waker = woken.waker();
            let mut timer = Timer::after(Duration::from_millis(1));
            runtime.block_on(async {
                assert!(poll_with(&mut timer, &waker).is_pending());
                assert!(poll_with(&mut stream.read(&mut [0]), &waker).is_pending());
            });
            io::Write::write_all(&mut blocking(&mut peer), b"x").unwrap();
            thread::sleep(Duration::from_millis(5));
            let before = woken.woken();
            let any = runtime.run_once(Duration::ZERO);
            let now = woken.woken();
            assert_eq!(any, now > before, "{before} wakes, and then {now}");
            eventually("both are woken", || {
                runtime.run_once(Duration::ZERO);
                woken.woken() == 2
            });
            runtime.block_on(stream.read_exact(&mut [0])).unwrap();
        }
    });
}

/// A waker may drive the runtime that calls it.
#[test]
fn a_turn_within_a_waker_is_a_turn() {
    on_every_backend(|backend| {
        thread_local! {
            static DRIVEN: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
        }
        #[derive(Default)]
        struct Turns(AtomicUsize);
        impl Wake for Turns {
            fn wake(self: Arc<Self>) {
                let runtime = DRIVEN.with_borrow(Clone::clone);
                runtime.expect("it is kept there").run_once(Duration::ZERO);
                self.0.fetch_add(1, SeqCst);
            }
        }
        let runtime = Rc::new(runtime(backend));
        DRIVEN.set(Some(runtime.clone()));
        let turns = Arc::new(Turns::default());
        let waker = Waker::from(turns.clone());
        let (mut stream, peer) = runtime.block_on(tcp_pair());
        runtime.block_on(async {
            let far = Duration::from_secs(3_600);
            let mut timers: Vec<_> = (0..3).map(|_| Timer::after(far)).collect();
            for timer in &mut timers {
                assert!(poll_with(timer, &waker).is_pending());
            }
            let due = Instant::now() + Duration::from_millis(20);
            timers.iter_mut().for_each(|timer| timer.set_at(due));
            assert!(poll_with(&mut stream.read(&mut [0]), &waker).is_pending());
            send_byte(peer).await;
            while turns.0.load(SeqCst) < 4 {
                sleep(Duration::from_millis(1)).await;
            }
        });
        DRIVEN.take();
    });
}

/// A runtime kept in a thread local is dropped at the thread's end.
#[test]
fn runtime_in_thread_local_dropped_at_exit() {
    thread_local! {
        static KEPT: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    }
    on_every_backend(|backend| {
        let alive = Alive::default();
        // The order in which thread-locals are destroyed depends on their first use.
        for drives_before in [false, true] {
            let alive = alive.clone();
            let thread = thread::spawn(move || {
                if drives_before {
                    runtime(backend).block_on(async {});
                }
                KEPT.set(Some(runtime(backend)));
                KEPT.with_borrow(|runtime| {
                    let runtime = runtime.as_ref().unwrap();
                    let handle = runtime.handle();
                    let guard = alive.guard();
                    runtime
                        .spawn(async move {
                            let _guard = guard;
                            let (a, _b) = tcp_pair().await;
                            let _ = timeout(Duration::from_secs(3_600), one_byte(a)).await;
                        })
                        .detach();
                    let inner = alive.clone();
                    let spawns = OnDrop(move || {
                        handle.spawn(hold(inner.guard())).detach();
                    });
                    runtime.spawn(hold((alive.guard(), spawns))).detach();
                    runtime.block_on(async {
                        for _ in 0..5 {
                            future::yield_now().await;
                        }
                    });
                    runtime.spawn(hold(alive.guard())).detach();
                });
                assert_eq!(alive.count(), 3);
            });
            within(LIMIT, "the end of the thread", || thread.join().unwrap());
        }
        assert_eq!(alive.count(), 0);
    });
}

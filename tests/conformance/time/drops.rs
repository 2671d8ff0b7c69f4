//! Rule 39: dropped timers, and the wakers that they kept.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use polder::Timer;
use polder::time::interval;
use polder::time::{sleep, timeout};

use super::{Count, FAR, Random, ms, past, poll_future, poll_now};
use crate::support::{eventually, in_every_runtime, runtime, until, with_every_runtime};

/// A waker that drops all of its timers, including the one that wakes it.
#[derive(Default)]
struct Dropper {
    timers: Mutex<Vec<Timer>>,
    dropped: AtomicBool,
}

impl Wake for Dropper {
    fn wake(self: Arc<Self>) {
        let timers = std::mem::take(&mut *self.timers.lock().unwrap());
        drop(timers);
        self.dropped.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_timer_may_be_dropped_inside_a_waker() {
    in_every_runtime(|_| async {
        let dropper = Arc::new(Dropper::default());
        let waker = Waker::from(dropper.clone());
        let deadline = polder::time::now() + ms(5);
        // Several are due together: those behind the first are dropped while they fire.
        let mut timers: Vec<_> = (0..10).map(|_| Timer::at(deadline)).collect();
        timers.extend((0..10).map(|_| Timer::after(FAR)));
        let mut cx = Context::from_waker(&waker);
        for timer in &mut timers {
            // On a slow machine they may be due already.
            let _ = Pin::new(timer).poll(&mut cx);
        }
        timers.push(Timer::after(ms(5)));
        let _ = Pin::new(&mut timers[20]).poll(&mut cx);
        dropper.timers.lock().unwrap().append(&mut timers);
        while !dropper.dropped.load(Ordering::SeqCst) {
            sleep(ms(1)).await;
        }
        drop(waker);
        until("no waker is left", || Arc::strong_count(&dropper) == 1).await;
    });
}

/// A timer may be dropped on another thread while it fires.
#[test]
fn timer_dropped_elsewhere_while_firing() {
    with_every_runtime(|runtime, _| {
        let mut random = Random(39);
        for _ in 0..20 {
            let count = Count::new();
            let mut timers: Vec<_> = (0..200)
                .map(|_| Timer::after(Duration::from_micros(random.below(2_000))))
                .collect();
            runtime.block_on(async {
                for timer in &mut timers {
                    let _ = poll_future(timer, &count);
                }
            });
            random.shuffle(&mut timers);
            let thread = thread::spawn(move || drop(timers));
            runtime.block_on(sleep(Duration::from_micros(random.below(2_500))));
            thread.join().expect("dropping is safe");
            runtime.run_once(Duration::ZERO);
            // (Another worker that has called one drops it afterwards.)
            eventually("no waker is left", || Arc::strong_count(&count) == 1);
        }
    });
}

#[test]
fn a_dropped_timer_leaves_no_waker_behind() {
    with_every_runtime(|first, backend| {
        let second = runtime(backend);
        let case = |what: &str, f: &dyn Fn(&mut Timer, &Arc<Count>)| {
            let count = Count::new();
            let mut timer = Timer::never();
            f(&mut timer, &count);
            drop(timer);
            first.run_once(Duration::ZERO);
            second.run_once(Duration::ZERO);
            let what = format!("{what}: no waker is left");
            eventually(&what, || Arc::strong_count(&count) == 1);
        };
        let poll = |timer: &mut Timer, count: &Arc<Count>| {
            first.block_on(async {
                let _ = poll_future(timer, count);
            });
        };
        case("never", &|timer, count| poll(timer, count));
        case("pending", &|timer, count| {
            timer.set_after(FAR);
            poll(timer, count);
        });
        case("fired and not polled", &|timer, count| {
            timer.set_after(ms(1));
            poll(timer, count);
            first.block_on(sleep(ms(2)));
        });
        case("done", &|timer, _| {
            timer.set_after(ms(1));
            first.block_on(timer);
        });
        case("an interval between ticks", &|timer, count| {
            timer.set_interval_at(past(), FAR);
            poll(timer, count);
            poll(timer, count);
        });
        case("cleared while pending", &|timer, count| {
            timer.set_after(FAR);
            poll(timer, count);
            timer.clear();
        });
        case("cleared and set again", &|timer, count| {
            timer.set_after(FAR);
            poll(timer, count);
            timer.clear();
            timer.set_after(FAR);
            poll(timer, count);
        });
        case("pushed back", &|timer, count| {
            timer.set_after(FAR);
            poll(timer, count);
            timer.set_after(FAR * 2);
        });
        case("polled with another waker", &|timer, count| {
            timer.set_after(FAR);
            poll(timer, count);
            first.block_on(async { assert!(poll_now(timer).is_pending()) });
            assert_eq!(Arc::strong_count(count), 1, "the old waker is kept");
        });
        case("moved to another runtime", &|timer, count| {
            timer.set_after(FAR);
            poll(timer, count);
            second.block_on(async {
                let _ = poll_future(timer, count);
            });
        });
        case("its runtime has gone", &|timer, count| {
            timer.set_after(FAR);
            let third = runtime(backend);
            third.block_on(async {
                let _ = poll_future(timer, count);
            });
            drop(third);
            assert_eq!(count.woken(), 1, "it is sent elsewhere");
            assert_eq!(Arc::strong_count(count), 1, "an abandoned waker is kept");
        });
        case("polled on a plain thread", &|timer, count| {
            timer.set_after(FAR);
            assert!(poll_future(timer, count).is_pending());
        });
    });
}

/// A sleep a timeout and an interval that are dropped leave no waker behind.
#[test]
fn dropped_timers_leave_no_waker() {
    in_every_runtime(|_| async {
        let count = Count::new();
        let mut asleep = sleep(FAR);
        assert!(poll_future(&mut asleep, &count).is_pending());
        let mut limited = timeout(FAR, std::future::pending::<()>());
        assert!(poll_future(&mut limited, &count).is_pending());
        let mut ticks = interval(FAR);
        ticks.tick().await;
        assert!(poll_future(&mut pin!(ticks.tick()), &count).is_pending());
        assert_eq!(Arc::strong_count(&count), 4);
        drop((asleep, limited, ticks));
        assert_eq!(Arc::strong_count(&count), 1);
    });
}

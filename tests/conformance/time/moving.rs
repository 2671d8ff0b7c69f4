//! Timers that outlive their runtime, or are polled in one and set in another.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polder::Timer;
use polder::future::poll_once;
use polder::stream::StreamExt;
use polder::time::sleep;

use super::{Asleep, Count, FAR, Random, Shared, ms, poll_future, poll_now, spin, wait_for};
#[cfg(target_os = "linux")]
use crate::child::{in_children, resident};
use crate::support::{
    eventually, in_every_runtime, message, on_every_backend, on_every_backend_alone, runtime, sized,
};

#[test]
fn a_timer_goes_on_in_the_next_runtime() {
    on_every_backend(|backend| {
        let pending = |timer: &mut Timer, count: &Arc<Count>| {
            let runtime = runtime(backend);
            runtime.block_on(async { poll_future(timer, count).is_pending() })
        };
        let count = Count::new();
        let deadline = Instant::now() + ms(10);
        let mut timer = Timer::at(deadline);
        for _ in 0..3 {
            if !pending(&mut timer, &count) {
                return; // A slow machine.
            }
        }
        assert!(
            count.woken() >= 3,
            "who waits is told that the runtime went"
        );
        assert_eq!(runtime(backend).block_on(&mut timer), deadline);
        assert!(Instant::now() >= deadline);

        // The timer does not count as fired, and it can still be set.
        let mut timer = Timer::after(FAR);
        assert!(pending(&mut timer, &count));
        assert!(pending(&mut timer, &count));
        assert!(timer.will_fire());
        timer.set_after(ms(1));
        runtime(backend).block_on(&mut timer);
        timer.set_interval(ms(1));
        runtime(backend).block_on(async { timer.next().await });
        assert!(timer.will_fire());
        timer.set_after(FAR);
        assert!(pending(&mut timer, &count));
        timer.clear();
        assert!(pending(&mut timer, &count));
        timer.set_after(ms(1));
        wait_for(&mut timer);
        assert!(!timer.will_fire());
    });
}

/// A timer that is set while its runtime goes is not lost.
///
/// Another thread sets a timer at the moment at which its runtime is dropped.
#[test]
fn timer_set_while_runtime_goes_not_lost() {
    on_every_backend(|backend| {
        let mut random = Random(49);
        for round in 0..60 {
            let shared = Shared::new(Timer::after(FAR));
            let count = Count::new();
            let runtime = runtime(backend);
            runtime.block_on(async {
                assert!(poll_future(&mut shared.clone(), &count).is_pending());
            });
            let setter = {
                let shared = shared.clone();
                let mut random = Random(round);
                thread::spawn(move || {
                    spin(&mut random);
                    shared.set(|timer| timer.set_after(ms(1)));
                })
            };
            spin(&mut random);
            drop(runtime);
            eventually("who waits is woken", || count.woken() > 0);
            setter.join().expect("setting is safe");
            wait_for(shared);
        }
    });
}

/// Timers work in nested runtimes and move between them.
#[test]
fn timers_move_between_nested_runtimes() {
    in_every_runtime(|backend| async move {
        let outer_due = polder::time::now() + ms(4);
        let mut outer = Timer::at(outer_due);
        let mut shared = Timer::after(FAR);
        assert!(poll_once(&mut shared).await.is_none());
        let _ = poll_once(&mut outer).await;
        let inner = runtime(backend);
        inner.block_on(async {
            // A timer of the inner runtime, one of the outer runtime that completes here, and one
            // that is only polled.
            sleep(ms(1)).await;
            shared.set_after(ms(1));
            (&mut shared).await;
            shared.set_after(FAR);
            assert!(poll_once(&mut shared).await.is_none());
        });
        // Due long ago, or not yet: it fires out here.
        if outer.will_fire() {
            assert_eq!((&mut outer).await, outer_due);
        }
        shared.set_after(ms(1));
        (&mut shared).await;
        // And back, while the inner runtime still exists; and once more after it was dropped.
        shared.set_after(FAR);
        assert!(poll_once(&mut shared).await.is_none());
        inner.block_on(async { assert!(poll_once(&mut shared).await.is_none()) });
        drop(inner);
        shared.set_after(ms(1));
        shared.await;
    });
}

/// Timers that wander between runtimes are neither early nor lost.
#[test]
fn timers_wandering_not_early_not_lost() {
    on_every_backend(|backend| {
        let asleep = [Asleep::new(backend), Asleep::new(backend)];
        let mut random = Random(53);
        let tasks: Vec<_> = (0..200)
            .map(|i| {
                let mut deadline = Instant::now() + Duration::from_micros(random.below(5_000));
                let mut timer = Timer::at(deadline);
                for _ in 0..random.below(4) {
                    let count = Count::new();
                    match random.below(3) {
                        0 => {
                            let _ = poll_future(&mut timer, &count);
                        }
                        place => {
                            let handle = &asleep[place as usize - 1].handle;
                            (timer,) = wait_for(handle.spawn(async move {
                                let _ = poll_future(&mut timer, &count);
                                (timer,)
                            }));
                        }
                    }
                    if !timer.will_fire() || random.below(2) == 0 {
                        deadline = Instant::now() + Duration::from_micros(random.below(5_000));
                        timer.set_at(deadline);
                    }
                }
                let task = asleep[i % 2].handle.spawn(async move {
                    let due = timer.await;
                    (due, Instant::now())
                });
                (deadline, task)
            })
            .collect();
        for (deadline, task) in tasks {
            let (due, now) = wait_for(task);
            assert_eq!(due, deadline);
            assert!(now >= due, "early by {:?}", due - now);
        }
    });
}

/// A timer may be polled and dropped while its thread ends.
///
/// Timers are used while thread-locals are destroyed.
#[test]
fn timer_polled_and_dropped_at_thread_end() {
    struct Last(Timer, mpsc::Sender<thread::Result<()>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let Last(timer, done) = self;
            // A panic here would end the process.
            let result = catch_unwind(AssertUnwindSafe(|| {
                let count = Count::new();
                timer.set_after(FAR);
                assert!(poll_future(timer, &count).is_pending());
                timer.set_after(ms(1));
                eventually("it fires", || count.woken() > 0);
                assert!(poll_future(timer, &count).is_ready());
                timer.set_after(FAR);
                assert!(poll_future(timer, &count).is_pending());
            }));
            let _ = done.send(result);
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    on_every_backend(|backend| {
        // The order of destruction depends on the first use: we test both.
        for ours_first in [false, true] {
            let (sender, receiver) = mpsc::channel();
            let thread = thread::spawn(move || {
                let mut timer = Timer::after(FAR);
                if ours_first {
                    let early = Last(Timer::never(), sender.clone());
                    LAST.set(Some(early));
                }
                runtime(backend).block_on(async { assert!(poll_now(&mut timer).is_pending()) });
                if ours_first {
                    LAST.with_borrow_mut(|last| last.as_mut().expect("it is set").0 = timer);
                } else {
                    LAST.set(Some(Last(timer, sender)));
                }
            });
            thread.join().expect("the thread ends well");
            let result = receiver.recv().expect("it was dropped");
            if let Err(panic) = result {
                panic!("{}", message(&*panic));
            }
        }
    });
}

/// A timer that is set elsewhere fires where it was polled last.
///
/// In each round the timer is polled, set or cleared at random places; then it is set to a near
/// deadline, and wakes its last poller.
#[test]
fn timer_set_elsewhere_fires_where_polled() {
    #[derive(Clone, Copy)]
    enum Place {
        Runtime(usize),
        Thread,
    }
    on_every_backend_alone(|backend| {
        let runtimes = [runtime(backend), runtime(backend)];
        let mut random = Random(54);
        for _ in 0..sized(backend, 1_000) {
            let mut timer = Timer::after(FAR);
            let mut last = None;
            for _ in 0..random.below(8) {
                let count = Count::new();
                match random.below(7) {
                    place @ 0..=1 => {
                        let place = place as usize;
                        let _ = runtimes[place].block_on(async { poll_future(&mut timer, &count) });
                        last = Some((Place::Runtime(place), count));
                    }
                    2 => {
                        let _ = poll_future(&mut timer, &count);
                        last = Some((Place::Thread, count));
                    }
                    3 => {
                        let [outer, inner] = &runtimes;
                        let _ = outer.block_on(async {
                            inner.block_on(async { poll_future(&mut timer, &count) })
                        });
                        last = Some((Place::Runtime(1), count));
                    }
                    4 => timer.set_after(FAR),
                    5 => timer.clear(),
                    _ => {
                        timer = on_a_thread(timer, |timer| {
                            timer.set_after(FAR);
                            timer.clear();
                        });
                    }
                }
            }
            let Some((place, count)) = last else {
                continue;
            };
            let due = Instant::now() + Duration::from_micros(300);
            match random.below(3) {
                0 => timer.set_at(due),
                1 => runtimes[0].block_on(async { timer.set_at(due) }),
                _ => timer = on_a_thread(timer, move |timer| timer.set_at(due)),
            }
            while count.woken() == 0 {
                match place {
                    Place::Runtime(index) => drop(runtimes[index].run_once(ms(50))),
                    Place::Thread => thread::yield_now(),
                }
            }
            // A wake may be spurious, as when a timer moves; the timer's output may not.
            assert_eq!(runtimes[0].block_on(timer), due);
            assert!(Instant::now() >= due, "early");
        }
    });
}

/// Calls `f` with the timer on a thread that has no runtime.
fn on_a_thread(mut timer: Timer, f: impl FnOnce(&mut Timer) + Send + 'static) -> Timer {
    let thread = thread::spawn(move || {
        f(&mut timer);
        timer
    });
    thread.join().expect("setting is safe")
}

/// A timer that is set a million times while its runtime stands still takes no memory.
#[cfg(target_os = "linux")]
#[test]
fn timer_set_million_times_idle_no_memory() {
    let rule = |backend| {
        let runtime = runtime(backend);
        let mut timer = Timer::after(FAR);
        runtime.block_on(async { assert!(poll_once(&mut timer).await.is_none()) });
        (0..1_000).for_each(|_| timer.set_after(FAR));
        let before = resident();
        (0..sized(backend, 1_000_000)).for_each(|_| timer.set_after(FAR));
        let more = resident().saturating_sub(before);
        assert!(more < 5_000_000, "{more} bytes more memory");
    };
    in_children(rule);
}

//! Rule 42: changes of a timer by another thread take effect immediately, even while the worker
//! sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polder::Timer;
use polder::future::yield_now;
use polder::time::sleep;

use super::{Asleep, Count, FAR, Random, Shared, ms, past, poll_future, poll_now, spin, wait_for};
#[cfg(target_os = "linux")]
use crate::child::{all_descriptors, in_children};
use crate::descriptor::wait_until_readable;
use crate::support::{
    LIMIT, eventually, on_every_backend, runtime, with_every_runtime, with_every_runtime_alone,
    within,
};

/// A timer spawned from another thread shortens a sleep.
#[test]
fn timer_spawned_elsewhere_shortens_sleep() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let mut random = Random(42);
        for _ in 0..100 {
            let duration = Duration::from_micros(random.below(300));
            let before = Instant::now();
            wait_for(asleep.handle.spawn(async move { sleep(duration).await }));
            assert!(before.elapsed() >= duration);
            spin(&mut random);
        }
    });
}

/// A timer that is set nearer from another thread shortens a sleep.
#[test]
fn timer_set_nearer_elsewhere_shortens_sleep() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let mut random = Random(43);
        for round in 0..200 {
            let shared = Shared::new(match round % 3 {
                0 => Timer::never(),
                1 => Timer::after(FAR / 2),
                _ => Timer::after(FAR * 2),
            });
            let task = asleep.handle.spawn(shared.clone());
            shared.wait_until_polled();
            spin(&mut random);
            let near = Instant::now() + Duration::from_micros(random.below(500));
            match round % 5 {
                0 => shared.set(|timer| timer.set_at(near)),
                1 => shared.set(|timer| timer.set_interval_at(near, FAR)),
                2 => {
                    // Cleared and set again.
                    shared.set(|timer| timer.clear());
                    shared.set(|timer| timer.set_at(near));
                }
                3 => {
                    // Pushed back, and then to an instant between the two.
                    shared.set(|timer| timer.set_at(near));
                    shared.set(|timer| timer.set_after(FAR));
                    shared.set(|timer| timer.set_at(near + Duration::from_micros(100)));
                }
                _ => {
                    // While another timer becomes the earliest, and is dropped.
                    let other = Shared::new(Timer::after(ms(1)));
                    let task = asleep.handle.spawn(other.clone());
                    other.wait_until_polled();
                    shared.set(|timer| timer.set_at(near + ms(1)));
                    drop(task);
                }
            }
            let due = wait_for(task);
            assert!(Instant::now() >= due, "round {round}: early");
            assert!(due >= near, "round {round}: it fired for an old deadline");
        }
    });
}

/// A timer that moves to a sleeping runtime shortens its sleep.
#[test]
fn timer_moved_to_sleeper_shortens_sleep() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let runtime = runtime(backend);
        for round in 0..50 {
            let deadline = Instant::now() + ms(1);
            let mut timer = Timer::at(deadline);
            let count = Count::new();
            // Pending in a runtime that is no longer driven, or in the background runtime.
            let result = match round % 2 {
                0 => runtime.block_on(async { poll_future(&mut timer, &count) }),
                _ => poll_future(&mut timer, &count),
            };
            if result.is_ready() {
                continue; // A slow machine.
            }
            assert_eq!(wait_for(asleep.handle.spawn(timer)), deadline);
            assert!(Instant::now() >= deadline);
        }
    });
}

/// A timer of a plain thread shortens the sleep of the background.
#[test]
fn timer_of_plain_thread_shortens_background() {
    within(LIMIT, "on the background runtime", || {
        let count = Count::new();
        let mut far = Timer::after(FAR);
        assert!(poll_future(&mut far, &count).is_pending());
        let threads: Vec<_> = (0..3)
            .map(|seed| {
                thread::spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..60 {
                        let duration = Duration::from_micros(random.below(400));
                        let before = Instant::now();
                        let due = wait_for(Timer::after(duration));
                        assert!(Instant::now() >= due && due >= before + duration);
                        spin(&mut random);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("timers work on a plain thread");
        }
        // The timer with the far deadline is itself set nearer, by another thread than its own.
        far.set_after(ms(1));
        eventually("its waker is called", || count.woken() > 0);
        assert!(poll_future(&mut far, &count).is_ready());
    });
}

/// A runtime sleeps until the earliest of its timers.
///
/// The deadline that the worker sleeps for, compared with a search of a list.
#[test]
fn runtime_sleeps_until_earliest_timer() {
    with_every_runtime(|runtime, backend| {
        let other = crate::support::runtime(backend);
        let mut random = Random(142);
        // Each timer with its deadline, if it belongs to the runtime, and whether it does: a
        // cleared timer still does.
        let mut timers: Vec<(Timer, Option<Instant>, bool)> = Vec::new();
        let start = Instant::now();
        for step in 0..4_000 {
            // Few different deadlines, so that many are equal.
            let when = start + FAR + Duration::from_secs(random.below(200));
            let place = random.below(timers.len() as u64 + 1) as usize;
            match (random.below(12), timers.get_mut(place)) {
                (0..3, _) | (_, None) => {
                    let mut timer = Timer::at(when);
                    runtime.block_on(async { assert!(poll_now(&mut timer).is_pending()) });
                    timers.push((timer, Some(when), true));
                }
                (3..7, Some((timer, deadline, ours))) => {
                    // Set outside its runtime.
                    timer.set_at(when);
                    *deadline = ours.then_some(when);
                }
                (7, Some((timer, deadline, _))) => {
                    timer.clear();
                    *deadline = None;
                }
                (8, Some((timer, deadline, ours))) => {
                    timer.set_at(when);
                    runtime.block_on(async { assert!(poll_now(timer).is_pending()) });
                    (*deadline, *ours) = (Some(when), true);
                }
                (9, Some((timer, deadline, ours))) => {
                    other.block_on(async { assert!(poll_now(timer).is_pending()) });
                    (*deadline, *ours) = (None, false);
                    timer.clear();
                }
                _ => drop(timers.swap_remove(place)),
            }
            if random.below(3) == 0 {
                let earliest = timers.iter().filter_map(|(_, deadline, _)| *deadline).min();
                let before = Instant::now();
                let timeout = runtime.next_timeout();
                let after = Instant::now();
                match (earliest, timeout) {
                    (None, None) => {}
                    (Some(earliest), Some(timeout)) => assert!(
                        timeout <= earliest - before && timeout >= earliest - after,
                        "step {step}: it sleeps for {timeout:?}, not {:?}",
                        earliest - before
                    ),
                    (earliest, timeout) => panic!("step {step}: {earliest:?}, {timeout:?}"),
                }
            }
        }
        drop(timers);
        assert_eq!(runtime.next_timeout(), None, "a deadline is left");
    });
}

/// Timers that many threads set at the same time fire for the last setting.
#[test]
fn timers_set_by_many_threads_fire_for_last() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let shared: Vec<_> = (0..60)
            .map(|_| (Shared::new(Timer::never()), Arc::new(Mutex::new(None))))
            .collect();
        let tasks: Vec<_> = shared
            .iter()
            .cloned()
            .map(|(mut shared, last)| {
                // Until it fires for the last deadline it was set to.
                asleep.handle.spawn(async move {
                    loop {
                        let due = (&mut shared).await;
                        assert!(Instant::now() >= due, "early");
                        if *last.lock().unwrap() == Some(due) {
                            break;
                        }
                    }
                })
            })
            .collect();
        let setters: Vec<_> = (0..3)
            .map(|seed| {
                // Each thread sets only its own timers, so that the last deadline is known.
                let mine: Vec<_> = shared.iter().skip(seed).step_by(3).cloned().collect();
                thread::spawn(move || {
                    let mut random = Random(seed as u64);
                    for _ in 0..2_000 {
                        let (one, _) = &mine[random.below(mine.len() as u64) as usize];
                        let far = FAR * (random.below(4) as u32 + 1);
                        one.set(|timer| match random.below(6) {
                            0 => timer.clear(),
                            1 => timer.set_at(past()),
                            2 => timer.set_interval(far),
                            3 => timer.set_interval_at(past(), far),
                            _ => timer.set_after(far),
                        });
                    }
                    for (one, last) in &mine {
                        let due = Instant::now() + ms(1);
                        *last.lock().unwrap() = Some(due);
                        one.set(|timer| timer.set_at(due));
                    }
                })
            })
            .collect();
        for setter in setters {
            setter.join().expect("setting is safe");
        }
        for task in tasks {
            wait_for(task);
        }
    });
}

/// A timer that is set nearer between turns makes the descriptor readable.
///
/// A sleeping foreign loop is woken too.
#[test]
fn timer_set_nearer_between_turns_readable() {
    with_every_runtime_alone(|runtime, backend| {
        let mut random = Random(51);
        let Ok(descriptor) = runtime.backend_fd() else {
            let poller = polder::poller::Poller::new(backend).expect("it is available");
            assert!(!poller.capabilities().descriptor);
            return;
        };
        for round in 0..100 {
            let shared = Shared::new(Timer::after(FAR));
            let task = runtime.spawn(shared.clone());
            while !shared.polled.load(Ordering::SeqCst) {
                runtime.run_once(Duration::ZERO);
            }
            let near = Instant::now() + Duration::from_micros(random.below(600));
            // By the thread that owns the runtime, or by another.
            let setter = match round % 2 {
                0 => {
                    shared.set(|timer| timer.set_at(near));
                    None
                }
                _ => Some(thread::spawn(move || {
                    shared.set(|timer| timer.set_at(near))
                })),
            };
            while !task.is_finished() {
                wait_until_readable(descriptor);
                runtime.run_once(Duration::ZERO);
            }
            assert!(Instant::now() >= near, "early");
            if let Some(setter) = setter {
                setter.join().expect("setting is safe");
            }
        }
    });
}

/// A timeout that is pushed back again and again ends after the last time.
///
/// A timer that others reset all the time, like an idle timeout.
#[test]
fn timeout_pushed_back_ends_after_last() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let shared = Shared::new(Timer::after(FAR));
        let task = asleep.handle.spawn(shared.clone());
        shared.wait_until_polled();
        let mut last = Instant::now();
        for _ in 0..2_000 {
            last = Instant::now() + ms(5);
            let mut open = true;
            shared.set(|timer| {
                if timer.will_fire() {
                    timer.set_at(last);
                } else {
                    open = false;
                }
            });
            if !open {
                return; // This thread was away for so long that it fired.
            }
        }
        assert_eq!(wait_for(task), last);
        assert!(Instant::now() >= last);
    });
}

/// Printing a timer reads data that its runtime is using at that moment.
#[test]
fn printing_a_timer_does_not_disturb_its_runtime() {
    use std::fmt::Write;

    /// A writer as slow as a terminal.
    #[derive(Default)]
    struct Slow(String);
    impl Write for Slow {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            thread::sleep(Duration::from_micros(50));
            self.0.push_str(text);
            Ok(())
        }
    }
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let shared = Shared::new(Timer::after(FAR));
        let _task = asleep.handle.spawn(shared.clone());
        shared.wait_until_polled();
        // Meanwhile a worker goes to sleep again and again.
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let busy = asleep.handle.spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    yield_now().await;
                }
                sleep(Duration::from_micros(1)).await;
            }
        });
        for _ in 0..8 {
            let mut printed = Slow::default();
            shared.set(|timer| write!(printed, "{timer:?}").expect("it can be printed"));
            assert!(printed.0.contains("Timer"), "{}", printed.0);
        }
        stop.store(true, Ordering::Relaxed);
        wait_for(busy);
        // The runtime can still be woken.
        wait_for(asleep.handle.spawn(async {}));
    });
}

/// A deadline may need a descriptor (timerfd): without one it is still met.
#[cfg(target_os = "linux")]
#[test]
fn timers_fire_though_no_descriptor_is_left() {
    let rule = |backend| {
        let runtime = runtime(backend);
        let all = all_descriptors();
        runtime.block_on(async {
            for micros in [1, 700, 2_500] {
                let (start, time) = (Instant::now(), Duration::from_micros(micros));
                sleep(time).await;
                assert!(start.elapsed() >= time, "it was early");
            }
        });
        drop(all);
    };
    in_children(rule);
}

/// An embedded runtime keeps its deadlines though no descriptor is left.
///
/// A foreign loop gets a deadline from the kernel, which needs a descriptor: it is opened when
/// embedding begins, or embedding returns an error.
#[cfg(target_os = "linux")]
#[test]
fn embedded_deadlines_without_descriptors() {
    let rule = |backend| {
        let (embedded, late) = (runtime(backend), runtime(backend));
        if embedded.backend_fd().is_err() {
            return; // This backend has none.
        }
        late.spawn(sleep(FAR)).detach();
        late.run_once(Duration::ZERO);
        late.run_once(Duration::ZERO);
        let all = all_descriptors();
        let task = embedded.spawn(sleep(Duration::from_millis(2)));
        while !task.is_finished() {
            embedded.run_once(FAR);
        }
        let error = late.backend_fd().expect_err("no descriptor is left");
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        drop(all);
        late.backend_fd().expect("now there is one");
    };
    in_children(rule);
}

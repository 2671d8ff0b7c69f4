//! Rules 37 to 43: time.
//!
//! A deadline that has to be pending is [`FAR`] away, one that has to be past is well past, and one
//! that has to come is milliseconds away and only ever awaited. So no test depends on how fast this
//! machine is; a wake-up that is lost is a wait for [`FAR`], which ends as a failure.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::future::{or, poll_once, yield_now};
use polder::stream::{Stream, StreamExt};
use polder::time::{MissedTickBehavior, Sleep, interval, interval_at};
use polder::time::{sleep, sleep_until, timeout, timeout_at};
use polder::{Backend, Handle, Runtime, Timer};

#[cfg(target_os = "linux")]
use super::child::{all_descriptors, in_children, resident};
use super::descriptor::wait_until_readable;
use super::support::*;

const FAR: Duration = Duration::from_secs(3600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An instant that is well past.
fn past() -> Instant {
    Instant::now()
        .checked_sub(ms(1_000))
        .expect("the machine runs for more than a second")
}

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn new() -> Arc<Count> {
        Arc::default()
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls once, with a waker of the test's own.
fn poll_with<F: Future + Unpin>(future: &mut F, count: &Arc<Count>) -> Poll<F::Output> {
    let waker = Waker::from(count.clone());
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// Polls once where it stands, in the runtime that is current.
fn poll_now<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A small generator, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Drives `runtime` until `condition` holds.
fn drive_until(runtime: &Runtime, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what}: not so after {LIMIT:?}");
        runtime.turn(ms(5));
    }
}

/// The last instant that can be represented.
fn last_instant() -> Instant {
    let mut last = Instant::now();
    for shift in (0..64).rev() {
        if let Some(later) = last.checked_add(Duration::from_secs(1 << shift)) {
            last = later;
        }
    }
    last
}

// 37

#[test]
fn timers_are_never_early() {
    in_every_runtime(|_| async {
        let mut random = Random(37);
        let tasks: Vec<_> = (0..600)
            .map(|i| {
                let duration = Duration::from_micros(random.below(15_000));
                polder::spawn(async move {
                    let before = Instant::now();
                    let due = match i % 4 {
                        0 => Timer::after(duration).await,
                        1 => Timer::at(before + duration).await,
                        2 => {
                            sleep(duration).await;
                            before + duration
                        }
                        _ => {
                            let pending = std::future::pending::<()>();
                            assert!(timeout(duration, pending).await.is_err());
                            before + duration
                        }
                    };
                    let now = Instant::now();
                    assert!(now >= due, "fired {:?} before its deadline", due - now);
                    assert!(due >= before + duration, "the deadline itself was early");
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
}

/// One after the other, so that the worker sleeps for each of them: what it rounds, it rounds up.
#[test]
fn a_timer_that_the_worker_sleeps_for_is_never_early() {
    in_every_runtime(|_| async {
        let mut random = Random(38);
        for _ in 0..150 {
            let duration = Duration::from_nanos(random.below(1_500_000));
            let before = Instant::now();
            sleep(duration).await;
            let took = before.elapsed();
            assert!(took >= duration, "{took:?} is less than {duration:?}");
        }
    });
}

#[test]
fn zero_and_past_deadlines_are_ready_at_the_first_poll() {
    in_every_runtime(|_| async {
        let now = Instant::now();
        assert!(poll_now(&mut Timer::after(Duration::ZERO)).is_ready());
        assert_eq!(poll_now(&mut Timer::at(now)), Poll::Ready(now));
        assert!(poll_now(&mut Timer::at(past())).is_ready());
        assert!(poll_now(&mut Timer::interval(Duration::ZERO)).is_ready());
        assert_eq!(
            poll_now(&mut Timer::interval_at(now, FAR)),
            Poll::Ready(now)
        );
        assert!(poll_now(&mut sleep(Duration::ZERO)).is_ready());
        assert!(poll_now(&mut sleep_until(past())).is_ready());
        let pending = std::future::pending::<()>;
        assert!(poll_now(&mut timeout(Duration::ZERO, pending())).is_ready());
        assert!(poll_now(&mut timeout_at(past(), pending())).is_ready());
        assert!(poll_now(&mut pin!(interval(FAR).tick())).is_ready());
        let start = past();
        assert_eq!(
            poll_now(&mut pin!(interval_at(start, FAR).tick())),
            Poll::Ready(start)
        );
    });
}

/// As `async-io`'s is, whether or not somebody waits for it already.
#[test]
fn a_pending_timer_that_is_set_to_the_past_is_ready_at_the_next_poll() {
    in_every_runtime(|_| async {
        let count = Count::new();

        let mut timer = Timer::after(FAR);
        assert!(poll_with(&mut timer, &count).is_pending());
        let due = past();
        timer.set_at(due);
        assert_eq!(poll_with(&mut timer, &count), Poll::Ready(due), "set_at");

        let mut timer = Timer::after(FAR);
        assert!(poll_with(&mut timer, &count).is_pending());
        timer.set_after(Duration::ZERO);
        assert!(poll_with(&mut timer, &count).is_ready(), "set_after");

        let mut idle = sleep(FAR);
        assert!(poll_with(&mut idle, &count).is_pending());
        idle.reset(past());
        assert!(poll_with(&mut idle, &count).is_ready(), "Sleep::reset");

        // The second and third ticks of these have been missed.
        let mut timer = Timer::after(FAR);
        assert!(poll_with(&mut timer, &count).is_pending());
        let start = past();
        timer.set_interval_at(start, ms(400));
        for tick in 0..3 {
            let due = start + ms(400) * tick;
            assert_eq!(
                poll_with(&mut timer, &count),
                Poll::Ready(due),
                "tick {tick}"
            );
        }
    });
}

/// Whoever waits for it is told, without having to poll in between.
#[test]
fn a_pending_timer_that_is_set_to_the_past_wakes_whoever_waits() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let count = Count::new();
        let mut timer = Timer::after(FAR);
        runtime.block_on(async { assert!(poll_with(&mut timer, &count).is_pending()) });
        timer.set_at(past());
        drive_until(&runtime, "the waker is called", || count.get() > 0);
        runtime.block_on(async { assert!(poll_with(&mut timer, &count).is_ready()) });
    });
}

/// Runs `rule` with a deadline that is further and further away, until it says that the machine was
/// quick enough to set everything before it.
async fn in_time(rule: impl AsyncFn(Instant) -> bool) {
    for lead in [20, 100, 500, 2_500, 12_500] {
        if rule(Instant::now() + ms(lead)).await {
            return;
        }
    }
    panic!("this machine is too slow: setting a few hundred timers took seconds");
}

#[test]
fn equal_deadlines_fire_in_the_order_they_were_set() {
    in_every_runtime_alone(|_| {
        in_time(async |deadline| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let late = Arc::new(AtomicBool::new(false));
            let tasks: Vec<_> = (0..300)
                .map(|i| {
                    let (log, late) = (log.clone(), late.clone());
                    polder::spawn(async move {
                        // Others come and go between them.
                        let mut gone = Timer::at(deadline);
                        let _ = poll_once(&mut gone).await;
                        let mut timer = Timer::at(deadline);
                        if i % 2 == 0 {
                            timer.set_after(FAR);
                            assert!(poll_once(&mut timer).await.is_none());
                            timer.set_at(deadline);
                        }
                        let first = poll_once(&mut timer).await;
                        if Instant::now() >= deadline {
                            late.store(true, Ordering::Relaxed);
                        }
                        if first.is_none() {
                            timer.await;
                        }
                        log.lock().unwrap().push(i);
                        drop(gone);
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            let log = log.lock().unwrap();
            assert_eq!(log.len(), 300);
            let late = late.load(Ordering::Relaxed);
            assert!(late || log.is_sorted(), "out of order: {log:?}");
            !late
        })
    });
}

#[test]
fn a_timer_that_is_set_anew_to_the_same_deadline_is_the_last_of_its_equals() {
    struct Named(usize, Arc<Mutex<Vec<usize>>>);
    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    in_every_runtime(|_| {
        in_time(async |deadline| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let mut timers: Vec<_> = (0..100).map(|_| Timer::at(deadline)).collect();
            for (i, timer) in timers.iter_mut().enumerate() {
                let waker = Waker::from(Arc::new(Named(i, log.clone())));
                let _ = Pin::new(timer).poll(&mut Context::from_waker(&waker));
            }
            // Later and back, earlier and back, and straight to the same.
            timers[0].set_at(deadline + FAR);
            timers[0].set_at(deadline);
            timers[50].set_at(deadline - ms(5));
            timers[50].set_at(deadline);
            timers[20].set_at(deadline);
            if Instant::now() >= deadline - ms(5) {
                return false;
            }
            sleep_until(deadline + ms(1)).await;
            let mut expected: Vec<_> = (0..100).filter(|i| ![0, 50, 20].contains(i)).collect();
            expected.extend([0, 50, 20]);
            assert_eq!(*log.lock().unwrap(), expected);
            true
        })
    });
}

// 38

#[test]
fn deadlines_too_far_away_never_panic() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let far = [
            Duration::MAX,
            Duration::MAX - Duration::from_nanos(1),
            Duration::from_secs(u64::MAX),
            Duration::from_secs(i64::MAX as u64),
            Duration::from_secs(i64::MAX as u64 / 2),
            Duration::from_millis(i64::MAX as u64),
            Duration::from_nanos(u64::MAX),
            Duration::from_secs(1 << 33),
            Duration::from_millis(1 << 32),
            Duration::from_millis(1 << 31),
            Duration::from_millis((1 << 31) - 1),
        ];
        for duration in far {
            runtime.block_on(async {
                let mut timers = vec![Timer::after(duration), Timer::interval(duration)];
                for _ in 0..8 {
                    timers.push(Timer::after(FAR));
                }
                let at = Instant::now().checked_add(duration);
                timers.extend(at.map(Timer::at));
                timers.extend(at.map(|at| Timer::interval_at(at, duration)));
                // Some while somebody waits for them, some while nobody does.
                for timer in &mut timers[2..6] {
                    assert!(poll_now(timer).is_pending());
                }
                for timer in [2, 6] {
                    timers[timer].set_after(duration);
                    timers[timer + 1].set_interval(duration);
                    if let Some(at) = at {
                        timers[timer + 2].set_at(at);
                        timers[timer + 3].set_interval_at(at, duration);
                    }
                }
                for timer in &mut timers {
                    assert!(poll_now(timer).is_pending(), "{duration:?}");
                }
                // The first tick is now; there is no second.
                let mut once = Timer::interval_at(Instant::now(), duration);
                assert!(poll_now(&mut once).is_ready());
                assert!(poll_now(&mut once).is_pending());

                let mut long = sleep(duration);
                assert_eq!(long.deadline().is_some(), at.is_some());
                assert!(poll_now(&mut long).is_pending());
                assert_eq!(timeout(duration, async { 1 }).await, Ok(1));
                let mut never = timeout(duration, std::future::pending::<()>());
                assert!(poll_now(&mut never).is_pending());
                let mut until = at.map(sleep_until);
                assert!(until.as_mut().is_none_or(|s| poll_now(s).is_pending()));
                let mut until = at.map(|at| timeout_at(at, std::future::pending::<()>()));
                assert!(until.as_mut().is_none_or(|s| poll_now(s).is_pending()));

                for missed in [
                    MissedTickBehavior::Burst,
                    MissedTickBehavior::Delay,
                    MissedTickBehavior::Skip,
                ] {
                    let mut ticks = interval(duration).missed_ticks(missed);
                    ticks.tick().await;
                    assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
                    ticks.reset();
                    assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
                    let start = past();
                    let mut ticks = interval_at(start, duration).missed_ticks(missed);
                    assert_eq!(ticks.tick().await, start);
                    assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
                }
                // The worker goes to sleep with all of them pending.
                polder::unblock(|| thread::sleep(ms(1))).await;
            });
            // And with a limit of its own.
            runtime.spawn_local(async {}).detach();
            assert!(runtime.turn(duration));
        }
    });
}

#[test]
fn the_last_instant_of_all_is_a_deadline_like_others() {
    in_every_runtime(|_| async {
        let last = last_instant();
        let tiny = Duration::from_nanos(1);
        let mut timers = [
            Timer::at(last),
            Timer::interval_at(last, tiny),
            Timer::interval_at(last, Duration::MAX),
        ];
        for timer in &mut timers {
            assert!(timer.will_fire());
            assert!(poll_now(timer).is_pending());
        }
        let mut asleep = sleep_until(last);
        assert!(poll_now(&mut asleep).is_pending());
        for missed in [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ] {
            let mut ticks = interval_at(last, tiny).missed_ticks(missed);
            assert!(poll_now(&mut pin!(ticks.tick())).is_pending());
        }
        // The worker sleeps for nothing else.
        polder::unblock(|| thread::sleep(ms(1))).await;
        asleep.reset(Instant::now() + ms(1));
        asleep.await;
    });
}

// 39

/// When woken, drops all the timers that it is given, the one that wakes it included.
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
        let deadline = Instant::now() + ms(5);
        // Several are due at once: those behind the first are dropped while they fire.
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
        sleep(ms(1)).await;
        drop(waker);
        assert_eq!(Arc::strong_count(&dropper), 1, "a waker was left behind");
    });
}

#[test]
fn a_timer_may_be_dropped_on_another_thread_while_it_fires() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let mut random = Random(39);
        for _ in 0..20 {
            let count = Count::new();
            let mut timers: Vec<_> = (0..200)
                .map(|_| Timer::after(Duration::from_micros(random.below(2_000))))
                .collect();
            runtime.block_on(async {
                for timer in &mut timers {
                    let _ = poll_with(timer, &count);
                }
            });
            random.shuffle(&mut timers);
            let thread = thread::spawn(move || drop(timers));
            runtime.block_on(sleep(Duration::from_micros(random.below(2_500))));
            thread.join().expect("dropping is safe");
            runtime.turn(Duration::ZERO);
            assert_eq!(Arc::strong_count(&count), 1, "a waker was left behind");
        }
    });
}

#[test]
fn a_dropped_timer_leaves_no_waker_behind() {
    on_every_backend(|backend| {
        let first = runtime(backend);
        let second = runtime(backend);
        let case = |what: &str, f: &dyn Fn(&mut Timer, &Arc<Count>)| {
            let count = Count::new();
            let mut timer = Timer::never();
            f(&mut timer, &count);
            drop(timer);
            first.turn(Duration::ZERO);
            second.turn(Duration::ZERO);
            assert_eq!(Arc::strong_count(&count), 1, "{what}: a waker is left");
        };
        let poll = |timer: &mut Timer, count: &Arc<Count>| {
            first.block_on(async {
                let _ = poll_with(timer, count);
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
                let _ = poll_with(timer, count);
            });
        });
        case("its runtime has gone", &|timer, count| {
            timer.set_after(FAR);
            let third = runtime(backend);
            third.block_on(async {
                let _ = poll_with(timer, count);
            });
            drop(third);
            assert_eq!(count.get(), 1, "it is sent elsewhere");
            assert_eq!(Arc::strong_count(count), 1, "an abandoned waker is kept");
        });
        case("polled on a plain thread", &|timer, count| {
            timer.set_after(FAR);
            assert!(poll_with(timer, count).is_pending());
        });
    });
}

#[test]
fn a_sleep_a_timeout_and_an_interval_that_are_dropped_leave_no_waker_behind() {
    in_every_runtime(|_| async {
        let count = Count::new();
        let mut asleep = sleep(FAR);
        assert!(poll_with(&mut asleep, &count).is_pending());
        let mut limited = timeout(FAR, std::future::pending::<()>());
        assert!(poll_with(&mut limited, &count).is_pending());
        let mut ticks = interval(FAR);
        ticks.tick().await;
        assert!(poll_with(&mut pin!(ticks.tick()), &count).is_pending());
        assert_eq!(Arc::strong_count(&count), 4);
        drop((asleep, limited, ticks));
        assert_eq!(Arc::strong_count(&count), 1);
    });
}

// 40

#[test]
fn timeout_prefers_a_ready_future_over_an_elapsed_deadline() {
    in_every_runtime(|_| async {
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        assert_eq!(timeout_at(past(), async { 2 }).await, Ok(2));

        // Both have come, long after both were waited for.
        let ready = AtomicBool::new(false);
        let deadline = Instant::now() + ms(5);
        let mut limited = timeout_at(
            deadline,
            poll_fn(|_| match ready.load(Ordering::Relaxed) {
                true => Poll::Ready(3),
                false => Poll::Pending,
            }),
        );
        if poll_once(&mut limited).await.is_none() {
            sleep_until(deadline + ms(1)).await;
            ready.store(true, Ordering::Relaxed);
            assert_eq!(limited.await, Ok(3));
        }
    });
}

#[test]
fn an_elapsed_timeout_drops_nothing_early_and_turns_into_an_io_error() {
    in_every_runtime(|_| async {
        let count = Arc::new(());
        let held = count.clone();
        let start = Instant::now();
        let elapsed = timeout(ms(3), async move {
            let _held = held;
            std::future::pending::<()>().await
        })
        .await
        .expect_err("a pending future is never done");
        assert!(start.elapsed() >= ms(3));
        assert_eq!(Arc::strong_count(&count), 1, "the future is dropped");
        let error = std::io::Error::from(elapsed);
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    });
}

/// A future that yields only because it has had its share of the loop must not cost the deadline
/// its own.
#[test]
fn a_timeout_ends_a_future_that_is_always_ready() {
    in_every_runtime(|_| async {
        let busy = async {
            let mut ticks = interval(Duration::ZERO);
            loop {
                ticks.tick().await;
            }
        };
        assert!(
            timeout(ms(5), give_up_after(LIMIT / 10, busy))
                .await
                .is_err()
        );
    });
}

/// The same, written as users of smol write it.
#[test]
fn a_timer_behind_a_future_that_is_always_ready_fires() {
    in_every_runtime(|_| async {
        let busy = async {
            let mut ticks = interval(Duration::ZERO);
            loop {
                ticks.tick().await;
            }
        };
        or(give_up_after(LIMIT / 10, busy), async {
            Timer::after(ms(5)).await;
        })
        .await;
    });
}

/// Panics if `future` is still polled after `limit`: for what would else go on for ever, busily.
async fn give_up_after<F: Future>(limit: Duration, future: F) -> F::Output {
    let start = Instant::now();
    let mut future = pin!(future);
    poll_fn(|cx| {
        assert!(start.elapsed() < limit, "it was not ended within {limit:?}");
        future.as_mut().poll(cx)
    })
    .await
}

// 41

#[test]
fn under_burst_every_tick_comes_and_stays_on_the_grid() {
    in_every_runtime(|_| async {
        let period = ms(2);
        let start = Instant::now();
        let mut ticks = interval_at(start, period);
        assert_eq!(ticks.period(), period);
        for i in 0..20 {
            if i == 5 {
                thread::sleep(period * 5); // The user comes late.
            }
            let tick = ticks.tick().await;
            assert!(Instant::now() >= tick, "tick {i} is early");
            assert_eq!(tick, start + period * i, "tick {i}");
        }
        // Missed ticks come at once, all of them.
        thread::sleep(period * 3);
        for i in 20..23 {
            let tick = poll_now(&mut pin!(ticks.tick()));
            assert_eq!(tick, Poll::Ready(start + period * i), "tick {i}");
        }
    });
}

#[test]
fn under_skip_missed_ticks_are_left_out_and_the_others_stay_on_the_grid() {
    in_every_runtime(|_| async {
        let period = ms(2);
        let start = Instant::now();
        let mut ticks = interval_at(start, period).missed_ticks(MissedTickBehavior::Skip);
        let mut taken = None;
        for i in 0..15 {
            if i % 4 == 3 {
                thread::sleep(period * 3 + period / 3);
            }
            let before = Instant::now();
            let tick = ticks.tick().await;
            assert!(Instant::now() >= tick, "tick {i} is early");
            let off = (tick - start).as_nanos() % period.as_nanos();
            assert_eq!(off, 0, "tick {i} is off the grid");
            if let Some(taken) = taken {
                assert!(tick >= taken, "tick {i} had been missed when it was set");
            }
            taken = Some(before);
        }
    });
}

#[test]
fn under_delay_the_tick_after_a_missed_one_comes_a_period_after_it_was_taken() {
    in_every_runtime(|_| async {
        let period = ms(3);
        let start = Instant::now();
        let mut ticks = interval_at(start, period).missed_ticks(MissedTickBehavior::Delay);
        assert_eq!(ticks.tick().await, start);
        for _ in 0..4 {
            let next = ticks.tick().await;
            thread::sleep(period * 3);
            let late = Instant::now();
            let tick = ticks.tick().await;
            assert!(tick <= late, "it was due while the user was away");
            assert!(tick > next);
            let after = ticks.tick().await;
            assert!(after >= late + period, "the one after it came too soon");
            assert!(Instant::now() >= after, "it is early");
        }
    });
}

#[test]
fn the_intervals_of_a_timer_stay_on_the_grid() {
    in_every_runtime(|_| async {
        let period = ms(1);
        let start = Instant::now();
        let mut timer = Timer::interval_at(start, period);
        for i in 0..20 {
            if i == 10 {
                thread::sleep(period * 5);
            }
            assert_eq!(timer.next().await, Some(start + period * i));
            assert!(Instant::now() >= start + period * i, "tick {i} is early");
        }
        timer.set_interval(ms(2));
        let first = timer.next().await.expect("it never ends");
        let second = timer.next().await.expect("it never ends");
        assert_eq!(second - first, ms(2));
    });
}

#[test]
fn a_period_of_zero_does_not_hold_the_loop() {
    in_every_runtime(|_| async {
        let busy = [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ]
        .map(|missed| {
            polder::spawn(async move {
                let mut ticks = interval(Duration::ZERO).missed_ticks(missed);
                loop {
                    ticks.tick().await;
                }
            })
        });
        let timer = polder::spawn(async {
            let mut timer = Timer::interval(Duration::ZERO);
            while timer.next().await.is_some() {}
        });
        let zero = polder::spawn(async {
            loop {
                sleep(Duration::ZERO).await;
            }
        });
        let limits = polder::spawn(async {
            loop {
                let pending = std::future::pending::<()>();
                assert!(timeout(Duration::ZERO, pending).await.is_err());
            }
        });
        sleep(ms(5)).await;
        drop((busy, timer, zero, limits));
    });
}

#[test]
fn an_interval_that_is_reset_while_somebody_waits_ticks_a_period_later() {
    in_every_runtime(|_| async {
        let mut ticks = interval_at(Instant::now() + FAR, ms(3));
        let count = Count::new();
        assert!(poll_with(&mut pin!(ticks.tick()), &count).is_pending());
        let before = Instant::now();
        ticks.reset();
        while count.get() == 0 {
            sleep(ms(1)).await;
        }
        let tick = ticks.tick().await;
        assert!(tick >= before + ms(3));
        assert!(Instant::now() >= tick);
        assert_eq!(ticks.next().await, Some(tick + ms(3)));
    });
}

// 42

/// A runtime on a thread of its own, which sleeps until `FAR`; it ends with this.
struct Asleep {
    handle: Handle,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Asleep {
    fn new(backend: Backend) -> Asleep {
        let (started, start) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = runtime(backend);
            runtime.block_on(async {
                let mut far = Timer::after(FAR);
                assert!(poll_once(&mut far).await.is_none());
                started.send(runtime.handle()).expect("the test waits");
                polder::unblock(move || stopped.recv()).await.unwrap_err();
            });
        });
        Asleep {
            handle: start.recv().expect("the runtime starts"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Not while this thread panics: the runtime may be what hangs.
            if !thread::panicking() {
                thread.join().expect("the runtime ends");
            }
        }
    }
}

/// Blocks a plain thread until `future` is done.
fn wait_for<F: Future>(future: F) -> F::Output {
    futures_lite::future::block_on(future)
}

/// Busily, so that a thread comes at a random moment of another one's going to sleep.
fn spin(random: &mut Random) {
    let until = Instant::now() + Duration::from_nanos(random.below(30_000));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// A timer that is polled by one task and set by others.
#[derive(Clone)]
struct Shared {
    timer: Arc<Mutex<Timer>>,
    polled: Arc<AtomicBool>,
}

impl Shared {
    fn new(timer: Timer) -> Shared {
        Shared {
            timer: Arc::new(Mutex::new(timer)),
            polled: Arc::default(),
        }
    }

    fn set(&self, f: impl FnOnce(&mut Timer)) {
        f(&mut self.timer.lock().unwrap());
    }

    fn wait_until_polled(&self) {
        while !self.polled.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

impl Future for Shared {
    type Output = Instant;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        let mut timer = self.timer.lock().unwrap();
        let result = Pin::new(&mut *timer).poll(cx);
        self.polled.store(true, Ordering::SeqCst);
        result
    }
}

#[test]
fn a_timer_spawned_from_another_thread_shortens_a_sleep() {
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

#[test]
fn a_timer_that_is_set_nearer_from_another_thread_shortens_a_sleep() {
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
                    // Away and back.
                    shared.set(|timer| timer.clear());
                    shared.set(|timer| timer.set_at(near));
                }
                3 => {
                    // Pushed back, and then to between the two.
                    shared.set(|timer| timer.set_at(near));
                    shared.set(|timer| timer.set_after(FAR));
                    shared.set(|timer| timer.set_at(near + Duration::from_micros(100)));
                }
                _ => {
                    // While another one becomes the earliest, and goes.
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

#[test]
fn a_timer_that_moves_to_a_sleeping_runtime_shortens_its_sleep() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let runtime = runtime(backend);
        for round in 0..50 {
            let deadline = Instant::now() + ms(1);
            let mut timer = Timer::at(deadline);
            let count = Count::new();
            // It is pending here, in a runtime that nobody drives any more, or on the background.
            let result = match round % 2 {
                0 => runtime.block_on(async { poll_with(&mut timer, &count) }),
                _ => poll_with(&mut timer, &count),
            };
            if result.is_ready() {
                continue; // A slow machine.
            }
            assert_eq!(wait_for(asleep.handle.spawn(timer)), deadline);
            assert!(Instant::now() >= deadline);
        }
    });
}

#[test]
fn a_timer_of_a_plain_thread_shortens_the_sleep_of_the_background() {
    within(LIMIT, "on the background runtime", || {
        let count = Count::new();
        let mut far = Timer::after(FAR);
        assert!(poll_with(&mut far, &count).is_pending());
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
        // The one that made it sleep so long is itself set nearer, by a thread that is not its.
        far.set_after(ms(1));
        eventually("its waker is called", || count.get() > 0);
        assert!(poll_with(&mut far, &count).is_ready());
    });
}

/// What the worker would sleep for, against a list that is searched.
#[test]
fn a_runtime_sleeps_until_the_earliest_of_its_timers() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let other = super::support::runtime(backend);
        let mut random = Random(142);
        // Each with what it is set to, if it is the runtime's: that it is, it stays while it is cleared.
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
                    // Set away from its runtime.
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

#[test]
fn timers_that_many_threads_set_at_once_fire_for_the_last_of_it() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let shared: Vec<_> = (0..60)
            .map(|_| (Shared::new(Timer::never()), Arc::new(Mutex::new(None))))
            .collect();
        let tasks: Vec<_> = shared
            .iter()
            .cloned()
            .map(|(mut shared, last)| {
                // Until it fires for what it was set to last.
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
                // Each sets those that are its own, so that what came last is known.
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

/// A foreign loop that has gone to sleep learns of it, too.
#[test]
fn a_timer_that_is_set_nearer_between_turns_makes_the_descriptor_readable() {
    on_every_backend_alone(|backend| {
        let runtime = runtime(backend);
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
                runtime.turn(Duration::ZERO);
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
                runtime.turn(Duration::ZERO);
            }
            assert!(Instant::now() >= near, "early");
            if let Some(setter) = setter {
                setter.join().expect("setting is safe");
            }
        }
    });
}

// 43

/// The deadline by which a timer of the crowd is judged, and what came of it.
struct Member {
    deadline: Mutex<Instant>,
    wakes: AtomicUsize,
    log: Arc<Mutex<Vec<u32>>>,
    name: u32,
}

impl Wake for Member {
    fn wake(self: Arc<Self>) {
        assert!(
            Instant::now() >= *self.deadline.lock().unwrap(),
            "timer {} woke early",
            self.name
        );
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.log.lock().unwrap().push(self.name);
    }
}

#[test]
fn a_million_timers_set_and_cancelled_in_random_order_fire_right_and_leave_nothing() {
    on_every_backend(|backend| {
        let count = sized(backend, CROWD);
        let runtime = runtime(backend);
        let mut random = Random(43);
        let log = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();

        // All of them pending at once, none of them soon.
        let mut crowd: Vec<_> = (0..count)
            .map(|name| {
                let deadline = start + FAR + Duration::from_micros(random.below(FAR.as_secs()));
                let member = Arc::new(Member {
                    deadline: Mutex::new(deadline),
                    wakes: AtomicUsize::new(0),
                    log: log.clone(),
                    name: name as u32,
                });
                (Some(Timer::at(deadline)), member)
            })
            .collect();
        let mut order: Vec<_> = (0..count).collect();
        random.shuffle(&mut order);
        let poll = |timer: &mut Option<Timer>, member: &Arc<Member>| {
            let waker = Waker::from(member.clone());
            let timer = timer.as_mut().expect("it is not cancelled");
            Pin::new(timer).poll(&mut Context::from_waker(&waker))
        };
        runtime.block_on(async {
            for name in &order {
                let (timer, member) = &mut crowd[*name];
                assert!(poll(timer, member).is_pending());
            }
        });

        // In another order: a third is cancelled, a third comes soon, a third later.
        random.shuffle(&mut order);
        let soon = Instant::now();
        for name in &order {
            let (timer, member) = &mut crowd[*name];
            match name % 3 {
                0 => drop(timer.take()),
                1 => {
                    let deadline = soon + Duration::from_micros(random.below(300_000));
                    *member.deadline.lock().unwrap() = deadline;
                    timer.as_mut().expect("it is there").set_at(deadline);
                }
                _ => {
                    let later = start + FAR * 3;
                    *member.deadline.lock().unwrap() = later;
                    timer.as_mut().expect("it is there").set_at(later);
                }
            }
        }
        let sorted_from = log.lock().unwrap().len();
        let expected = (0..count).filter(|name| name % 3 == 1).count();
        drive_until(&runtime, "those that are due have fired", || {
            log.lock().unwrap().len() >= expected
        });
        {
            let log = log.lock().unwrap();
            assert_eq!(log.len(), expected, "one fired twice, or should not have");
            let deadlines = log[sorted_from..]
                .iter()
                .map(|name| *crowd[*name as usize].1.deadline.lock().unwrap());
            assert!(deadlines.is_sorted(), "they fired out of order");
        }

        // The last third is cancelled by turns with what has fired being taken.
        runtime.block_on(async {
            for (i, name) in order.iter().enumerate() {
                let (timer, member) = &mut crowd[*name];
                let wakes = member.wakes.load(Ordering::Relaxed);
                assert_eq!(wakes, usize::from(name % 3 == 1), "timer {name}");
                if name % 3 == 1 {
                    let due = *member.deadline.lock().unwrap();
                    assert_eq!(poll(timer, member), Poll::Ready(due));
                }
                drop(timer.take());
                if i % 100 == 0 {
                    yield_now().await; // The runtime limits what one poll may take.
                }
            }
        });
        for (_, member) in &crowd {
            assert_eq!(Arc::strong_count(member), 1, "a waker is left");
        }
        assert_eq!(runtime.next_timeout(), None, "a deadline is left");
        assert_eq!(log.lock().unwrap().len(), expected);
    });
}

/// Built without optimisation, a million would take too long for a suite that runs all the time.
const CROWD: usize = match cfg!(debug_assertions) {
    true => 250_000,
    false => 1_000_000,
};

// The interface of async-io's timer

/// What both timers have.
trait AnyTimer: Future<Output = Instant> + Stream<Item = Instant> + Unpin {
    /// Whether one that has fired once, and for good, is ready again when it is polled. (async-io's is
    /// never ready again; the scenarios call both the same.)
    const STAYS_DONE: bool;
    fn never() -> Self;
    fn after(duration: Duration) -> Self;
    fn at(instant: Instant) -> Self;
    fn interval(period: Duration) -> Self;
    fn interval_at(start: Instant, period: Duration) -> Self;
    fn will_fire(&self) -> bool;
    fn set_after(&mut self, duration: Duration);
    fn set_at(&mut self, instant: Instant);
    fn set_interval(&mut self, period: Duration);
    fn set_interval_at(&mut self, start: Instant, period: Duration);
    fn clear(&mut self);
}

macro_rules! any_timer {
    ($timer:ty, $stays_done:literal) => {
        impl AnyTimer for $timer {
            const STAYS_DONE: bool = $stays_done;
            fn never() -> Self {
                <$timer>::never()
            }
            fn after(duration: Duration) -> Self {
                <$timer>::after(duration)
            }
            fn at(instant: Instant) -> Self {
                <$timer>::at(instant)
            }
            fn interval(period: Duration) -> Self {
                <$timer>::interval(period)
            }
            fn interval_at(start: Instant, period: Duration) -> Self {
                <$timer>::interval_at(start, period)
            }
            fn will_fire(&self) -> bool {
                self.will_fire()
            }
            fn set_after(&mut self, duration: Duration) {
                self.set_after(duration)
            }
            fn set_at(&mut self, instant: Instant) {
                self.set_at(instant)
            }
            fn set_interval(&mut self, period: Duration) {
                self.set_interval(period)
            }
            fn set_interval_at(&mut self, start: Instant, period: Duration) {
                self.set_interval_at(start, period)
            }
            fn clear(&mut self) {
                self.clear()
            }
        }
    };
}

any_timer!(polder::Timer, true);
any_timer!(async_io::Timer, false);

/// One thing that is done to a timer. Instants are milliseconds from the start of the scenario.
#[derive(Clone, Copy, Debug)]
enum Do {
    Never,
    After(Duration),
    At(i64),
    Interval(Duration),
    IntervalAt(i64, Duration),
    SetAfter(Duration),
    SetAt(i64),
    SetInterval(Duration),
    SetIntervalAt(i64, Duration),
    Clear,
    /// Looks once, as a future.
    Poll,
    /// Looks once, as a stream.
    PollNext,
    /// Waits for the waker that polled last to be woken, without polling.
    Woken,
    /// Waits as a future does.
    Await,
    /// Waits as a stream does.
    Next,
    /// Another one waits, and gives up.
    GiveUp,
}

#[derive(PartialEq, Debug)]
enum Saw {
    Pending,
    /// When it was due. Exact: it is what it was told, not what a clock says.
    Due(i64),
    /// For a deadline that it has worked out by its own clock.
    SomeTime,
    Woken,
    WillFire(bool),
}

fn run<T: AnyTimer>(scenario: &[Do]) -> Vec<Saw> {
    let start = Instant::now();
    let at = |millis: i64| match u64::try_from(millis) {
        Ok(millis) => start + ms(millis),
        Err(_) => start.checked_sub(ms(millis.unsigned_abs())).unwrap(),
    };
    let mut by_clock = false;
    let due = |instant: Instant, by_clock: bool| match by_clock {
        true => Saw::SomeTime,
        false if instant >= start => Saw::Due((instant - start).as_millis() as i64),
        false => Saw::Due(-((start - instant).as_millis() as i64)),
    };
    let mut timer = T::never();
    let mut count = Count::new();
    let mut saw = Vec::new();
    // Whether it was set to fire once; and then what it gave.
    let (mut once, mut done) = (false, None);
    for step in scenario {
        match *step {
            Do::Poll | Do::PollNext | Do::Await | Do::Next | Do::Woken | Do::GiveUp => {}
            _ => {
                done = None;
                once = matches!(
                    step,
                    Do::After(_) | Do::At(_) | Do::SetAfter(_) | Do::SetAt(_)
                );
            }
        }
        match *step {
            Do::Never => timer = T::never(),
            Do::After(duration) => timer = T::after(duration),
            Do::At(instant) => timer = T::at(at(instant)),
            Do::Interval(period) => timer = T::interval(period),
            Do::IntervalAt(start, period) => timer = T::interval_at(at(start), period),
            Do::SetAfter(duration) => timer.set_after(duration),
            Do::SetAt(instant) => timer.set_at(at(instant)),
            Do::SetInterval(period) => timer.set_interval(period),
            Do::SetIntervalAt(start, period) => timer.set_interval_at(at(start), period),
            Do::Clear => timer.clear(),
            Do::GiveUp => assert!(poll_with(&mut timer, &Count::new()).is_pending()),
            Do::Poll | Do::PollNext | Do::Woken | Do::Await | Do::Next => {}
        }
        match *step {
            Do::After(_) | Do::Interval(_) | Do::SetAfter(_) | Do::SetInterval(_) => {
                by_clock = true;
            }
            Do::At(_) | Do::IntervalAt(..) | Do::SetAt(_) | Do::SetIntervalAt(..) => {
                by_clock = false;
            }
            _ => {}
        }
        let now = match *step {
            Do::Poll | Do::PollNext => {
                count = Count::new();
                let waker = Waker::from(count.clone());
                let mut cx = Context::from_waker(&waker);
                let result = match *step {
                    Do::Poll => Pin::new(&mut timer).poll(&mut cx).map(Some),
                    _ => Pin::new(&mut timer).poll_next(&mut cx),
                };
                Some(match (done, T::STAYS_DONE) {
                    (Some(_), true) => {
                        let given = done.filter(|_| matches!(step, Do::Poll));
                        assert_eq!(result, Poll::Ready(given), "{step:?} of {scenario:?}");
                        Poll::Pending
                    }
                    _ => result.map(|due| due.expect("it never ends")),
                })
            }
            Do::Await => Some(Poll::Ready(wait_for(&mut timer))),
            Do::Next => Some(Poll::Ready(wait_for(timer.next()).expect("it never ends"))),
            _ => None,
        };
        match now {
            Some(Poll::Pending) => saw.push(Saw::Pending),
            Some(Poll::Ready(instant)) => {
                assert!(
                    Instant::now() >= instant,
                    "early in {step:?} of {scenario:?}"
                );
                saw.push(due(instant, by_clock));
                done = once.then_some(instant);
            }
            None => {}
        }
        if let Do::Woken = step {
            eventually(&format!("{scenario:?}: its waker is called"), || {
                count.get() > 0
            });
            saw.push(Saw::Woken);
        }
        saw.push(Saw::WillFire(timer.will_fire()));
    }
    drop(timer);
    saw
}

/// Each scenario is run with our timer and with async-io's, on a plain thread, where both are
/// driven by a thread of their own. No deadline is both polled for and near.
#[test]
fn a_timer_does_what_that_of_async_io_does() {
    within(LIMIT, "on a plain thread", compare_with_async_io);
}

fn compare_with_async_io() {
    use Do::*;
    let (max, zero) = (Duration::MAX, Duration::ZERO);
    let s = Duration::from_secs;
    let scenarios: &[(&str, &[Do])] = &[
        ("never", &[Never, Poll, PollNext, Clear, Poll]),
        ("after", &[After(ms(2)), Await, Poll, Poll]),
        ("after, as a stream", &[After(ms(2)), Next, PollNext]),
        ("zero", &[After(zero), Poll, Poll]),
        ("too far", &[After(max), Poll, SetAfter(max), Poll]),
        ("past", &[At(-5_000), Poll, Poll]),
        ("at", &[At(3), Await, Poll]),
        ("far", &[After(FAR), Poll, Poll, PollNext]),
        ("interval", &[Interval(ms(1)), Await, Next, Await]),
        ("interval too long", &[Interval(max), Poll, PollNext]),
        (
            "interval at",
            &[IntervalAt(1, ms(2)), Await, Next, Next, Await],
        ),
        (
            "missed ticks",
            &[IntervalAt(-50_000, s(20)), Poll, PollNext, Poll, Poll, Poll],
        ),
        ("a single tick", &[IntervalAt(-5, max), Next, Poll, Poll]),
        ("never, then set", &[Never, SetAfter(ms(2)), Await, Poll]),
        ("polled never, then set", &[Never, Poll, SetAt(2), Await]),
        (
            "far to near",
            &[After(FAR), Poll, SetAt(2), Woken, Await, Poll],
        ),
        (
            "far to near, an interval",
            &[
                After(FAR),
                Poll,
                SetIntervalAt(2, ms(3)),
                Woken,
                Await,
                Next,
            ],
        ),
        (
            "far to near by clock",
            &[At(1 << 30), Poll, SetAfter(ms(2)), Woken, Poll],
        ),
        (
            "far to near, an interval by clock",
            &[At(1 << 30), Poll, SetInterval(ms(2)), Woken, Next, Next],
        ),
        (
            "near to far",
            &[At(20_000), Poll, SetAfter(FAR), Poll, Poll],
        ),
        (
            "near to far to near",
            &[At(20_000), Poll, SetAfter(FAR), SetAt(4), Woken, Await],
        ),
        (
            "pushed back again and again",
            &[
                At(20_000),
                Poll,
                SetAt(30_000),
                SetAt(40_000),
                SetAt(25_000),
                SetAt(3),
                Woken,
                Poll,
            ],
        ),
        (
            "after it fired",
            &[At(1), Await, Poll, SetAt(3), Await, Poll],
        ),
        (
            "after it fired, an interval",
            &[At(1), Await, SetIntervalAt(3, ms(1)), Await, Await, Next],
        ),
        (
            "set while it has fired",
            &[After(FAR), Poll, SetAt(1), Woken, SetAfter(FAR), Poll],
        ),
        (
            "set to near while it has fired",
            &[After(FAR), Poll, SetAt(1), Woken, SetAt(4), Await],
        ),
        ("cleared", &[After(FAR), Clear, Poll, SetAt(1), Await]),
        ("cleared while pending", &[After(FAR), Poll, Clear, Poll]),
        (
            "cleared while pending, then set",
            &[After(FAR), Poll, Clear, SetAt(2), Woken, Await, Poll],
        ),
        (
            "cleared after it fired",
            &[After(FAR), Poll, SetAt(1), Woken, Clear, Poll],
        ),
        (
            "an interval is cleared",
            &[IntervalAt(-5, s(50)), Poll, Clear, Poll],
        ),
        (
            "given up far, then near",
            &[After(FAR), GiveUp, SetAt(2), Await],
        ),
        (
            "taken over",
            &[After(FAR), GiveUp, Poll, SetAt(2), Woken, Poll],
        ),
        (
            "pending, then past",
            &[After(FAR), Poll, SetAt(-5_000), Poll, Poll],
        ),
        (
            "pending, then at once",
            &[At(1 << 30), Poll, SetAfter(zero), Poll, Poll],
        ),
        (
            "pending, then with missed ticks",
            &[
                After(FAR),
                Poll,
                SetIntervalAt(-50_000, s(20)),
                Poll,
                Poll,
                Poll,
                Poll,
            ],
        ),
        (
            "an interval of no length",
            &[IntervalAt(-5_000, zero), Poll, PollNext, Poll],
        ),
    ];
    let mut different = Vec::new();
    for (name, scenario) in scenarios {
        let ours = run::<polder::Timer>(scenario);
        let theirs = run::<async_io::Timer>(scenario);
        if ours != theirs {
            different.push(format!("{name}: {scenario:?}\n  {ours:?}\n  {theirs:?}"));
        }
    }
    assert!(
        different.is_empty(),
        "not as async-io's (ours first):\n{}",
        different.join("\n")
    );
}

/// Two things that async-io's timer does otherwise than its documentation lets one hope.
#[test]
fn a_timer_keeps_its_word_where_that_of_async_io_does_not() {
    in_every_runtime(|_| async {
        // Whoever polled it while it was never to fire is woken when it is set.
        let count = Count::new();
        let mut timer = Timer::never();
        assert!(poll_with(&mut timer, &count).is_pending());
        timer.set_after(ms(1));
        while count.get() == 0 {
            yield_now().await;
        }
        timer.await;

        // One that is set to fire once fires once, also if it was an interval before.
        let mut timer = Timer::interval(FAR);
        let deadline = Instant::now() + ms(1);
        timer.set_at(deadline);
        assert_eq!((&mut timer).await, deadline);
        assert!(!timer.will_fire());
    });
}

// Where a timer is polled

#[test]
fn a_timer_goes_on_in_the_next_runtime() {
    on_every_backend(|backend| {
        let pending = |timer: &mut Timer, count: &Arc<Count>| {
            let runtime = runtime(backend);
            runtime.block_on(async { poll_with(timer, count).is_pending() })
        };
        let count = Count::new();
        let deadline = Instant::now() + ms(10);
        let mut timer = Timer::at(deadline);
        for _ in 0..3 {
            if !pending(&mut timer, &count) {
                return; // A slow machine.
            }
        }
        assert!(count.get() >= 3, "who waits is told that the runtime went");
        assert_eq!(runtime(backend).block_on(&mut timer), deadline);
        assert!(Instant::now() >= deadline);

        // It is not taken for one that has come, and not for one that cannot be set.
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

/// A thread that sets a timer at the very moment at which its runtime goes.
#[test]
fn a_timer_that_is_set_while_its_runtime_goes_is_not_lost() {
    on_every_backend(|backend| {
        let mut random = Random(49);
        for round in 0..60 {
            let shared = Shared::new(Timer::after(FAR));
            let count = Count::new();
            let runtime = runtime(backend);
            runtime.block_on(async {
                assert!(poll_with(&mut shared.clone(), &count).is_pending());
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
            eventually("who waits is woken", || count.get() > 0);
            setter.join().expect("setting is safe");
            wait_for(shared);
        }
    });
}

#[test]
fn timers_work_in_nested_runtimes_and_move_between_them() {
    in_every_runtime(|backend| async move {
        let outer_due = Instant::now() + ms(4);
        let mut outer = Timer::at(outer_due);
        let mut shared = Timer::after(FAR);
        assert!(poll_once(&mut shared).await.is_none());
        let _ = poll_once(&mut outer).await;
        let inner = runtime(backend);
        inner.block_on(async {
            // One of its own, one of the outer's that completes here, one that is only looked at.
            sleep(ms(1)).await;
            shared.set_after(ms(1));
            (&mut shared).await;
            shared.set_after(FAR);
            assert!(poll_once(&mut shared).await.is_none());
        });
        // Due long before, or not yet: in any case it fires out here.
        if outer.will_fire() {
            assert_eq!((&mut outer).await, outer_due);
        }
        shared.set_after(ms(1));
        (&mut shared).await;
        // And back, while the inner runtime is still there; and once more when it is not.
        shared.set_after(FAR);
        assert!(poll_once(&mut shared).await.is_none());
        inner.block_on(async { assert!(poll_once(&mut shared).await.is_none()) });
        drop(inner);
        shared.set_after(ms(1));
        shared.await;
    });
}

#[test]
fn timers_that_wander_between_runtimes_are_neither_early_nor_lost() {
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
                            let _ = poll_with(&mut timer, &count);
                        }
                        place => {
                            let handle = &asleep[place as usize - 1].handle;
                            (timer,) = wait_for(handle.spawn(async move {
                                let _ = poll_with(&mut timer, &count);
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

#[test]
fn a_sleep_that_is_reset_ends_at_its_new_deadline() {
    in_every_runtime(|_| async {
        let deadline = Instant::now() + ms(2);
        let mut asleep = sleep(FAR);
        assert!(asleep.deadline().is_some_and(|d| d > deadline));
        assert!(poll_once(&mut asleep).await.is_none());
        asleep.reset(deadline);
        assert_eq!(asleep.deadline(), Some(deadline));
        (&mut asleep).await;
        assert!(Instant::now() >= deadline);

        // After its end it can be used again; pushed back, it does not end at the old deadline.
        let near = Instant::now() + ms(1);
        asleep.reset(near);
        let first = poll_once(&mut asleep).await;
        let later = near + ms(4);
        asleep.reset(later);
        if first.is_none() {
            (&mut asleep).await;
            assert!(Instant::now() >= later, "it ended at the old deadline");
        }

        // One that was to last for ever, too.
        let mut asleep: Sleep = sleep(Duration::MAX);
        assert_eq!(asleep.deadline(), None);
        let count = Count::new();
        assert!(poll_with(&mut asleep, &count).is_pending());
        asleep.reset(Instant::now() + ms(1));
        while count.get() == 0 {
            yield_now().await;
        }
        asleep.await;
    });
}

/// A task that is pushed back by others all the time, as an idle timeout is.
#[test]
fn a_timeout_that_is_pushed_back_again_and_again_ends_after_the_last_time() {
    on_every_backend(|backend| {
        let asleep = Asleep::new(backend);
        let shared = Shared::new(Timer::after(FAR));
        let task = asleep.handle.spawn(shared.clone());
        shared.wait_until_polled();
        let mut last = Instant::now();
        for _ in 0..2_000 {
            last = Instant::now() + ms(5);
            let mut open = true;
            shared.set(|timer| match timer.will_fire() {
                true => timer.set_at(last),
                false => open = false,
            });
            if !open {
                return; // This thread was away for so long that it fired.
            }
        }
        assert_eq!(wait_for(task), last);
        assert!(Instant::now() >= last);
    });
}

/// When the thread-locals go, by which a thread knows its runtime.
#[test]
fn a_timer_may_be_polled_and_dropped_while_its_thread_ends() {
    struct Last(Timer, mpsc::Sender<thread::Result<()>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let Last(timer, done) = self;
            // A panic in such a place would end the process.
            let result = catch_unwind(AssertUnwindSafe(|| {
                let count = Count::new();
                timer.set_after(FAR);
                assert!(poll_with(timer, &count).is_pending());
                timer.set_after(ms(1));
                eventually("it fires", || count.get() > 0);
                assert!(poll_with(timer, &count).is_ready());
                timer.set_after(FAR);
                assert!(poll_with(timer, &count).is_pending());
            }));
            let _ = done.send(result);
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    on_every_backend(|backend| {
        // What was used first may go first or last: both ways round.
        for ours_first in [false, true] {
            let (sender, receiver) = mpsc::channel();
            let thread = thread::spawn(move || {
                let mut timer = Timer::after(FAR);
                if ours_first {
                    let early = Last(Timer::never(), sender.clone());
                    LAST.set(Some(early));
                }
                runtime(backend).block_on(async { assert!(poll_now(&mut timer).is_pending()) });
                match ours_first {
                    true => {
                        LAST.with_borrow_mut(|last| last.as_mut().expect("it is set").0 = timer)
                    }
                    false => LAST.set(Some(Last(timer, sender))),
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

/// Whoever prints a timer looks at what its runtime is using at that moment.
#[test]
fn printing_a_timer_does_not_disturb_its_runtime() {
    use std::fmt::Write;

    /// Takes its time, as a terminal does.
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
        // A worker that goes to sleep again and again, meanwhile.
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
        // It is still there to be woken.
        wait_for(asleep.handle.spawn(async {}));
    });
}

/// Each time it is polled, set or cleared where chance has it; then it is near, and fires for whoever
/// polled it last.
#[test]
fn a_timer_that_is_set_elsewhere_fires_where_it_was_polled_last() {
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
                        let _ = runtimes[place].block_on(async { poll_with(&mut timer, &count) });
                        last = Some((Place::Runtime(place), count));
                    }
                    2 => {
                        let _ = poll_with(&mut timer, &count);
                        last = Some((Place::Thread, count));
                    }
                    3 => {
                        let [outer, inner] = &runtimes;
                        let _ = outer.block_on(async {
                            inner.block_on(async { poll_with(&mut timer, &count) })
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
            while count.get() == 0 {
                match place {
                    Place::Runtime(index) => drop(runtimes[index].turn(ms(50))),
                    Place::Thread => thread::yield_now(),
                }
            }
            // A wake may be for nothing, as where a timer moves; what the timer says is not.
            assert_eq!(runtimes[0].block_on(timer), due);
            assert!(Instant::now() >= due, "early");
        }
    });
}

/// Does something to a timer on a thread that has no runtime.
fn on_a_thread(mut timer: Timer, f: impl FnOnce(&mut Timer) + Send + 'static) -> Timer {
    let thread = thread::spawn(move || {
        f(&mut timer);
        timer
    });
    thread.join().expect("setting is safe")
}

#[cfg(target_os = "linux")]
#[test]
fn a_timer_that_is_set_a_million_times_while_its_runtime_stands_still_takes_no_memory() {
    const ME: &str =
        "time::a_timer_that_is_set_a_million_times_while_its_runtime_stands_still_takes_no_memory";
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
    in_children(ME, rule, |_, _| {});
}

/// A deadline may want a descriptor of its own: without one it is met all the same.
#[cfg(target_os = "linux")]
#[test]
fn timers_fire_though_no_descriptor_is_left() {
    const ME: &str = "time::timers_fire_though_no_descriptor_is_left";
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
    in_children(ME, rule, |_, _| {});
}

/// A foreign loop that the runtime is embedded in has to be told of a deadline by the kernel, which wants
/// a descriptor: it is there from the start, or embedding is an error.
#[cfg(target_os = "linux")]
#[test]
fn an_embedded_runtime_keeps_its_deadlines_though_no_descriptor_is_left() {
    const ME: &str = "time::an_embedded_runtime_keeps_its_deadlines_though_no_descriptor_is_left";
    let rule = |backend| {
        let (embedded, late) = (runtime(backend), runtime(backend));
        if embedded.backend_fd().is_err() {
            return; // This backend has none.
        }
        late.spawn(sleep(FAR)).detach();
        late.turn(Duration::ZERO);
        late.turn(Duration::ZERO);
        let all = all_descriptors();
        let task = embedded.spawn(sleep(Duration::from_millis(2)));
        while !task.is_finished() {
            embedded.turn(FAR);
        }
        let error = late.backend_fd().expect_err("no descriptor is left");
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        drop(all);
        late.backend_fd().expect("now there is one");
    };
    in_children(ME, rule, |_, _| {});
}

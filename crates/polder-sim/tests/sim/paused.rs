//! `polder_sim::test!`: tests of timers, with the virtual clock of a world.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use polder::event::Event;
use polder::future::{poll_once, yield_now};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{MissedTickBehavior, interval, now, sleep, timeout};

use super::failing::{assert_contains, in_a_process, is_inner};
use super::{ms, secs};

const YEAR: Duration = Duration::from_secs(31_536_000);

/// The example of docs/SIMULATION.md: asks again after 1, 2 and 4 seconds, and gives up then.
async fn with_retries<F: Future<Output = bool>>(ask: impl Fn() -> F) -> bool {
    for wait in [1, 2, 4] {
        if ask().await {
            return true;
        }
        sleep(secs(wait)).await;
    }
    ask().await
}

/// Asserts that this moment is `after` the start, to the nanosecond.
#[track_caller]
fn assert_passed(start: Instant, after: Duration) {
    assert_eq!(now() - start, after);
}

polder_sim::test! {
    async fn requests_are_repeated_after_1_2_and_4_seconds() {
        let (start, times) = (now(), RefCell::new(Vec::new()));
        let ask = || async {
            times.borrow_mut().push((now() - start).as_secs());
            false
        };
        assert!(!with_retries(ask).await);
        assert_eq!(times.into_inner(), [0, 1, 3, 7]);
    }

    async fn a_year_passes_at_once_and_to_the_nanosecond() {
        let start = now();
        sleep(YEAR).await;
        assert_passed(start, YEAR);
        sleep(Duration::from_nanos(1)).await;
        assert_passed(start, YEAR + Duration::from_nanos(1));
    }

    async fn no_time_passes_while_a_task_is_ready() {
        let start = now();
        let hour = polder::spawn(sleep(secs(3_600)));
        for _ in 0..1_000 {
            yield_now().await;
        }
        std::thread::sleep(ms(2));
        assert_passed(start, Duration::ZERO);
        hour.await;
        assert_passed(start, secs(3_600));
    }

    async fn timers_fire_by_deadline_and_equal_ones_in_the_order_they_were_set() {
        let (start, fired) = (now(), Rc::new(RefCell::new(Vec::new())));
        let tasks = [5, 3, 5, 1, 3, 5].map(|seconds| {
            let fired = fired.clone();
            polder::spawn_local(async move {
                sleep(secs(seconds)).await;
                assert_passed(start, secs(seconds));
                fired.borrow_mut().push((seconds, polder::task::id()));
            })
        });
        let ids = tasks.each_ref().map(|task| Some(task.id()));
        for task in tasks {
            task.await;
        }
        let expected = [(1, 3), (3, 1), (3, 4), (5, 0), (5, 2), (5, 5)];
        assert_eq!(*fired.borrow(), expected.map(|(seconds, nth)| (seconds, ids[nth])));
    }

    async fn ten_thousand_sleeps_of_any_length_end_exactly() {
        let (mut length, mut end) = (1, now());
        for _ in 0..10_000 {
            length = length * 48_271 % 0x7fff_ffff; // Park and Miller's generator.
            let length = Duration::from_nanos(length);
            end += length;
            sleep(length).await;
            assert_eq!(now(), end);
        }
    }

    async fn a_deadline_is_fixed_when_the_sleep_is_made() {
        let start = now();
        let (unpolled, mut polled) = (sleep(secs(2)), pin!(sleep(secs(5))));
        assert!(poll_once(polled.as_mut()).await.is_none());
        sleep(secs(3)).await;
        unpolled.await; // It is late.
        assert_passed(start, secs(3));
        assert!(poll_once(polled.as_mut()).await.is_none());
        polled.await;
        assert_passed(start, secs(5));
    }

    async fn a_timeout_ends_a_future_at_its_limit_and_not_before() {
        let start = now();
        assert!(timeout(secs(30), pending::<()>()).await.is_err());
        assert_passed(start, secs(30));
        let almost = secs(30) - Duration::from_nanos(1);
        assert!(timeout(secs(30), sleep(almost)).await.is_ok());
        assert_passed(start, secs(30) + almost);
    }

    async fn intervals_tick_exactly_and_treat_missed_ticks_as_they_say() {
        use MissedTickBehavior::{Burst, Delay, Skip};

        for (missed, late, times) in [
            (Burst, 250, [0, 100, 350, 350, 400, 500]),
            (Delay, 250, [0, 100, 350, 450, 550, 650]),
            (Skip, 250, [0, 100, 350, 400, 500, 600]),
            // A tick that is due at that moment was not missed.
            (Burst, 300, [0, 100, 400, 400, 400, 500]),
            (Delay, 300, [0, 100, 400, 500, 600, 700]),
            (Skip, 300, [0, 100, 400, 400, 500, 600]),
        ] {
            let start = now();
            let mut ticks = interval(ms(100)).missed_ticks(missed);
            for (nth, at) in times.into_iter().enumerate() {
                ticks.tick().await;
                assert_passed(start, ms(at));
                if nth == 1 {
                    sleep(ms(late)).await;
                }
            }
        }
    }

    async fn tasks_that_answer_each_other_over_channels_take_the_time_that_they_sleep() {
        let (ask, asked) = async_channel::bounded(1);
        let (answer, answers) = async_channel::bounded(1);
        let start = now();
        polder::spawn(async move {
            while let Ok(n) = asked.recv().await {
                sleep(ms(3)).await;
                answer.send(n + 1).await.unwrap();
            }
        })
        .detach();
        let mut n = 0;
        for _ in 0..100 {
            sleep(ms(4)).await;
            ask.send(n).await.unwrap();
            n = answers.recv().await.unwrap();
        }
        assert_eq!(n, 100);
        assert_passed(start, ms(700));
    }

    /// A clock that jumps to the next timer while data is under way would end the timeout.
    async fn a_timeout_waits_for_what_is_under_way_on_loopback() -> io::Result<()> {
        let listener = TcpListener::bind("localhost:0").await?;
        let address = listener.local_addr()?;
        polder::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await?;
            sleep(secs(60)).await;
            stream.write_all(&bytes).await
        })
        .detach();
        let ask = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"ping").await?;
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await?;
            io::Result::Ok(bytes)
        };
        assert_eq!(&timeout(secs(60) + ms(1), ask).await??, b"ping");
        Ok(())
    }

    async fn the_functions_of_unblock_take_microseconds_and_see_the_system() {
        let start = now();
        let took = polder::unblock(|| {
            let start = Instant::now();
            std::thread::sleep(ms(20));
            start.elapsed()
        });
        assert!(timeout(ms(1), took).await.unwrap() >= ms(20));
        assert!(now() - start < ms(1));
    }

    async fn files_are_on_a_disk_of_the_test() -> io::Result<()> {
        let path = "/a-file-of-a-paused-test";
        polder::fs::write(path, b"here").await?;
        assert_eq!(polder::fs::read(path).await?, b"here");
        assert!(!std::path::Path::new(path).exists());
        Ok(())
    }

    async fn ready_tasks_run_in_turn() {
        let list = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..50).map(|n| {
            let list = list.clone();
            polder::spawn_local(async move {
                list.borrow_mut().push(n);
                yield_now().await;
                list.borrow_mut().push(50 + n);
            })
        }).collect();
        for task in tasks {
            task.await;
        }
        assert!(list.borrow().iter().copied().eq(0..100));
    }

    /// Conditions that some seed should meet are for `polder_sim::check`.
    async fn what_the_program_states_is_checked_and_need_not_come_true() {
        polder::always!(true, "holds");
        polder::sometimes!(false, "it is rare");
    }

    #[should_panic = "always \"none is left\": it does not hold on test"]
    async fn what_the_program_states_fails_the_test() {
        polder::always!(false, "none is left");
        pending().await
    }

    #[should_panic = "the test returned an error: \"on purpose\""]
    async fn an_error_fails_the_test() -> Result<(), &'static str> {
        sleep(secs(1)).await;
        Err("on purpose")
    }

    #[should_panic = "in a task"]
    async fn a_panic_of_a_task_fails_the_test() {
        polder::spawn(async { panic!("in a task") }).detach();
        sleep(secs(1)).await;
    }

    #[should_panic = "deadlock: no task is ready, no timer is set"]
    async fn a_test_that_waits_for_nothing_fails() {
        let far = polder::spawn(sleep(Duration::MAX));
        Event::new().wait().await;
        far.await;
    }

    #[should_panic = "livelock: 100000 steps"]
    async fn a_test_that_is_always_ready_fails() {
        loop {
            yield_now().await;
        }
    }

    #[should_panic = "the test has not ended within "]
    async fn a_test_that_sleeps_without_end_fails() {
        loop {
            sleep(YEAR).await;
        }
    }
}

mod child {
    use super::*;

    polder_sim::test! {
        async fn fails_after_a_minute() {
            let count = Cell::new(1);
            if is_inner() {
                println!("it runs");
                sleep(secs(60)).await;
                count.set(2);
            }
            assert_eq!(count.get(), 1, "on purpose");
        }
    }
}

/// A failure has its time and place and is replayed with its events.
#[test]
fn failure_has_time_place_and_replay() {
    let name = "paused::child::fails_after_a_minute";
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes, "{text}");
    assert_contains(
        &text,
        &[
            "panicked at crates/polder-sim/tests/sim/paused.rs:",
            "seed 0x0 failed at 60.000000 s: the test panicked: assertion ",
            "failed: on purpose",
            "\n  it panicked at crates/polder-sim/tests/sim/paused.rs:",
            "the last events:",
            "use polder::time::now",
            "POLDER_SIM_LOG=1 cargo test paused::child::fails_after_a_minute",
        ],
    );
    assert_eq!(text.matches("it runs").count(), 1, "once: {text}");
    let (passes, logged) = in_a_process(name, &[("POLDER_SIM_LOG", "1")]);
    assert!(!passes && logged.len() > text.len(), "{logged}");
}

//! Threads of worlds: who looks after them.

use std::panic::catch_unwind;
use std::time::Instant;

use polder::sim;
use polder::time::sleep;

use super::failing::{in_a_process, is_inner};
use super::{ms, secs};

#[test]
fn a_check_ends_at_once_though_its_worlds_were_watched() {
    let start = Instant::now();
    for seed in 0..20 {
        sim::check([seed], |sim| async move { sim.sleep(secs(1)).await });
        assert_eq!(sim::run(seed, |_| async {}).failure, None);
        // By a panic too. (The first seeds are not shrunk: there is nothing to leave out.)
        let failing = || {
            sim::check(
                [seed],
                move |_| async move { assert!(seed > 99, "on purpose") },
            )
        };
        assert!(catch_unwind(failing).is_err());
    }
    // It would be half a second for each if one waited for the watchdog's next look.
    let took = start.elapsed();
    assert!(took < secs(15), "{took:?}");
}

#[test]
fn a_run_whose_poll_never_returns_ends_the_program_too() {
    let name = "threads::a_run_whose_poll_never_returns_ends_the_program_too";
    if is_inner() {
        sim::run(0x1f, |_| async {
            sleep(ms(7)).await;
            std::thread::sleep(secs(60));
        });
        return;
    }
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_STUCK", "1")]);
    assert!(!passes, "{text}");
    let words = "seed 0x1f is stuck at 0.007";
    assert!(text.contains(words), "{text}");
}

#[test]
fn the_watchdog_names_the_world_that_is_stuck_and_none_of_the_others() {
    let name = "threads::the_watchdog_names_the_world_that_is_stuck_and_none_of_the_others";
    if is_inner() {
        // Three threads at once: one world never ends, and others go on beside it.
        return sim::check(0..1_000_000, |sim| async move {
            if sim.seed() == 0x21 {
                std::thread::sleep(secs(60));
            }
            std::thread::sleep(ms(1));
        });
    }
    let variables = [("POLDER_SIM_STUCK", "1"), ("POLDER_SIM_JOBS", "3")];
    let (passes, text) = in_a_process(name, &variables);
    assert!(!passes, "{text}");
    assert!(text.contains("seed 0x21 is stuck at 0.0"), "{text}");
    assert_eq!(text.matches("is stuck").count(), 1, "{text}");
    assert!(text.contains("POLDER_SEED=0x21"), "{text}");
}

#[test]
fn a_world_in_a_world_is_watched_as_a_part_of_the_outer_one() {
    let name = "threads::a_world_in_a_world_is_watched_as_a_part_of_the_outer_one";
    let worlds = |count: u64, millis: u64| {
        sim::check([0x22], move |_| async move {
            sim::check(0..count, move |_| async move {
                std::thread::sleep(ms(millis));
            });
        });
    };
    if is_inner() {
        return match std::env::var_os("POLDER_TEST_STUCK") {
            // The inner one is stuck: it is the outer one's poll that does not return.
            Some(_) => worlds(1, 60_000),
            // The outer one's poll takes longer than the limit, and gets on.
            None => worlds(15, 200),
        };
    }
    let limit = ("POLDER_SIM_STUCK", "2");
    let (passes, text) = in_a_process(name, &[limit, ("POLDER_SIM_JOBS", "1")]);
    assert!(passes, "{text}");
    let (passes, text) = in_a_process(name, &[limit, ("POLDER_TEST_STUCK", "1")]);
    assert!(!passes, "{text}");
    assert!(text.contains("seed 0x22 is stuck"), "{text}");
    assert!(!text.contains("seed 0x0 is stuck"), "{text}");
}

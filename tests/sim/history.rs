//! Histories of worlds: what is recorded when, and what a run says of it.

use polder::sim::{self, Model, Operation, Sim, Verdict};
use polder::time::{now, sleep};

use super::ms;

/// A register: `Some` writes, `None` reads.
struct Register;

impl Model for Register {
    type State = u32;
    type Input = Option<u32>;
    type Output = u32;

    fn begin(&self) -> u32 {
        0
    }

    fn step(&self, state: &u32, input: &Option<u32>, output: Option<&u32>) -> Option<u32> {
        let state = input.unwrap_or(*state);
        output.is_none_or(|it| *it == state).then_some(state)
    }
}

#[test]
fn what_a_client_that_dies_has_asked_for_stays_open() {
    for read in [0, 7] {
        sim::check(0..3, |sim| async move {
            let history = sim.history();
            let asked = history.clone();
            let client = sim.host("client").start(move || {
                let write = asked.invoke("client", Some(7));
                async move {
                    sleep(ms(100)).await;
                    write.answer(7);
                }
            });
            sleep(ms(50)).await;
            client.power_off();
            sleep(ms(100)).await;
            history.invoke("test", None).answer(read);
            assert_eq!(history.len(), 2);
            history.linearizable(Register);
        });
    }
}

#[test]
fn what_is_recorded_within_one_moment_has_an_order_and_what_is_absorbed_has_none() {
    sim::check(0..3, |sim| async move {
        let history = sim.history();
        history.invoke("a", Some(1)).answer(1);
        history.invoke("b", None).answer(0);
        let verdict = history.verdict(&Register);
        assert!(matches!(verdict, Verdict::Violation(_)), "{verdict:?}");
    });
    sim::check(0..3, |sim| async move {
        let at = now();
        let history = sim.history();
        history.absorb([
            Operation::new("a", Some(1), at).answered(1, at),
            Operation::new("b", None, at).answered(0, at),
        ]);
        history.linearizable(Register);
    });
}

#[test]
fn a_violation_fails_the_run_at_once_and_says_when() {
    let report = sim::run(3, |sim: Sim| async move {
        let history = sim.history();
        history.invoke("a", Some(1)).answer(1);
        sleep(ms(5)).await;
        history.invoke("b", None).answer(0);
        sleep(ms(5)).await;
        history.linearizable(Register);
        assert!(history.is_empty(), "the run has failed, and goes on");
    });
    let failure = report.failure.unwrap();
    assert!(
        failure.contains("the history is not linearizable: no order"),
        "{failure}"
    );
    assert!(
        failure.contains("0.005000 s None → 0  <== not explained"),
        "{failure}"
    );
    assert!(!failure.contains("panicked"), "{failure}");
}

#[test]
fn what_was_not_decided_is_not_called_fine() {
    let report = sim::run(3, |sim: Sim| async move {
        // Any of thirty writes at once may come first, and none explains what is read.
        let history = sim.history();
        let writes: Vec<_> = (1..=30).map(|it| history.invoke("a", Some(it))).collect();
        let read = history.invoke("b", None);
        read.answer(1_000);
        (1..).zip(writes).for_each(|(it, write)| write.answer(it));
        history.linearizable(Register);
    });
    let failure = report.failure.unwrap();
    assert!(
        failure.contains("was not decided: after 200000 states"),
        "{failure}"
    );
}

#[test]
fn a_history_that_nobody_checks_beside_one_that_is_checked_fails_the_run_by_its_types() {
    let run = |what: &'static str| {
        let report = sim::run(1, move |sim| async move {
            let history = sim.history();
            history.invoke("writer", Some(7)).answer(7);
            // The literals are of another type, unless somebody says which.
            match what {
                "another" => {
                    sim.history().invoke("reader", None::<i32>).answer(8);
                    sim.history().invoke("reader", Some(1)).answer(8);
                }
                "empty" => drop(sim.history::<i32, i32>()),
                "looked at" => {
                    let other = sim.history();
                    other.invoke("reader", None::<u32>).answer(7_u64);
                    assert_eq!(other.verdict(&Wide), Verdict::Linearizable);
                }
                _ => history.invoke("reader", None).answer(7),
            }
            if what != "unchecked" {
                history.linearizable(Register);
            }
        });
        report.failure
    };
    let failure = run("another").unwrap();
    let words = "a history was not checked: \
                 sim.history::<core::option::Option<i32>, i32>() has 2 operations, and \
                 sim.history::<core::option::Option<u32>, u32>() was checked.";
    assert!(failure.contains(words), "{failure}");
    for what in ["empty", "looked at", "the same", "unchecked"] {
        assert_eq!(run(what), None, "{what}");
    }
}

/// A register that nobody writes, read as a wider number.
struct Wide;

impl Model for Wide {
    type State = ();
    type Input = Option<u32>;
    type Output = u64;

    fn begin(&self) {}

    fn step(&self, _: &(), _: &Option<u32>, output: Option<&u64>) -> Option<()> {
        output.is_none_or(|it| *it == 7).then_some(())
    }
}

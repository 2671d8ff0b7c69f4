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
        sim.history().absorb([
            Operation::new("a", Some(1), at).answered(1, at),
            Operation::new("b", None, at).answered(0, at),
        ]);
        sim.history().linearizable(Register);
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

//! Histories of worlds: when operations are recorded, and what a run reports.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use polder::time::{now, sleep};
use polder_sim::{Model, Operation, Sim, Verdict};

use super::{ms, secs};

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

/// The operation of a client that died stays open.
#[test]
fn dead_clients_operation_stays_open() {
    for read in [0, 7] {
        polder_sim::check(0..3, |sim| async move {
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

/// Operations recorded at one moment are ordered; absorbed ones are not.
#[test]
fn moment_has_order_absorbed_has_none() {
    polder_sim::check(0..3, |sim| async move {
        let history = sim.history();
        history.invoke("a", Some(1)).answer(1);
        history.invoke("b", None).answer(0);
        let verdict = history.verdict(&Register);
        assert!(matches!(verdict, Verdict::Violation(_)), "{verdict:?}");
    });
    polder_sim::check(0..3, |sim| async move {
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
fn violation_fails_at_once_with_time() {
    let report = polder_sim::run(3, |sim: Sim| async move {
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
    let report = polder_sim::run(3, |sim: Sim| async move {
        // Any of thirty concurrent writes may come first, and none explains the value that is read.
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

/// Alternately writes and reads a register, each operation at one moment between its ends; one with
/// the bug reads the value from before its last write began.
async fn client(name: &'static str, first: u32, cell: Rc<Cell<u32>>, has_bug: bool) -> Account {
    let mut account = Vec::new();
    for number in first..first + 12 {
        let operation = Operation::new(name, Some(number), now());
        let cached = cell.get();
        sleep(ms(u64::from(number * 7 % 20))).await;
        cell.set(number);
        sleep(ms(u64::from(number * 3 % 20))).await;
        account.push(operation.answered(number, now()));
        let operation = Operation::new(name, None, now());
        sleep(ms(5)).await;
        let read = if has_bug { cached } else { cell.get() };
        sleep(ms(5)).await;
        account.push(operation.answered(read, now()));
    }
    account
}

type Account = Vec<Operation<Option<u32>, u32>>;

/// Clients with clocks that drift and jump, set by the test and by chaos.
async fn by_other_clocks(sim: Sim, has_bug: bool) {
    let cell = Rc::new(Cell::new(0));
    let clients = [("one", 100), ("two", 200), ("three", 300)].map(|(name, first)| {
        let cell = cell.clone();
        sim.host(name)
            .start(move || client(name, first, cell.clone(), has_bug))
    });
    sim.host("one").clock().drift(400_000);
    sim.chaos(secs(2)).clocks();
    for jump in [70, 3, 500] {
        sleep(ms(sim.choose(100))).await;
        sim.host("two").clock().offset(ms(jump)).drift(-500_000);
        sleep(ms(sim.choose(100))).await;
        sim.host("one").clock().offset(ms(jump / 2)).drift(90);
    }
    for client in clients {
        sim.history()
            .absorb(client.finished().within(secs(60)).await);
    }
    assert_eq!(sim.history::<Option<u32>, u32>().len(), 72);
    sim.history().linearizable(Register);
}

/// Operations are ordered by the world's time, and not by a drifting host clock.
#[test]
fn operations_timed_by_world_not_host_clock() {
    polder_sim::check(0..100, |sim| by_other_clocks(sim, false));
}

/// A violation is found although clocks drift and jump.
#[test]
fn violation_found_despite_clock_drift() {
    for seed in 0..100 {
        let report = polder_sim::run(seed, |sim| by_other_clocks(sim, true));
        let failure = report.failure.unwrap_or_default();
        assert!(failure.contains("not linearizable"), "{seed}: {failure}");
    }
}

/// A note that a host adds later is placed by its clock's reading at that time.
#[test]
fn later_note_placed_by_its_clock() {
    // The last nanosecond at which the register may still have its old value, and the next one.
    for (nanos, is_possible) in [(10_000_000, true), (10_000_001, false)] {
        polder_sim::check(0..3, move |sim| async move {
            let start = now();
            let writer = sim.host("writer");
            writer.clock().offset(secs(3));
            let write = writer.start(|| async {
                let begun = now();
                sleep(secs(100)).await;
                Operation::new("writer", Some(7), begun).answered(7, begun + ms(10))
            });
            sleep(ms(20)).await;
            writer.clock().offset(secs(50)).drift(-1_000);
            let at = start + Duration::from_nanos(nanos);
            let read = Operation::new("test", None, at).answered(0, at);
            let write = write.finished().within(secs(100)).await;
            let history = sim.history();
            history.absorb([write, read]);
            let verdict = history.verdict(&Register);
            assert_eq!(verdict == Verdict::Linearizable, is_possible, "{verdict:?}");
        });
    }
}

/// A history that is never checked fails the run, which names it by its types.
#[test]
fn unchecked_history_fails_by_its_types() {
    let run = |what: &'static str| {
        let report = polder_sim::run(1, move |sim| async move {
            let history = sim.history();
            history.invoke("writer", Some(7)).answer(7);
            // The literals would have another type without an annotation.
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

/// A register that is never written, read as a wider number.
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

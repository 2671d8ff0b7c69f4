//! Histories that are linearizable, and some that are not.

use super::*;

#[derive(Clone, Debug)]
enum Input {
    Write(&'static str, u32),
    Read(&'static str),
}

/// Registers by name.
struct Registers {
    is_parted: bool,
}

impl Model for Registers {
    type State = BTreeMap<&'static str, u32>;
    type Input = Input;
    type Output = u32;

    fn begin(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(
        &self,
        state: &Self::State,
        input: &Input,
        output: Option<&u32>,
    ) -> Option<Self::State> {
        let mut state = state.clone();
        let value = match input {
            Input::Write(key, value) => {
                state.insert(key, *value);
                *value
            }
            Input::Read(key) => state.get(key).copied().unwrap_or(0),
        };
        output.is_none_or(|it| *it == value).then_some(state)
    }

    fn partition(&self, _: &str, input: &Input) -> String {
        match input {
            Input::Write(key, _) | Input::Read(key) if self.is_parted => (*key).to_owned(),
            _ => String::new(),
        }
    }
}

const REGISTERS: Registers = Registers { is_parted: true };

type Op = Record<Input, u32>;

fn op(client: &str, input: Input, from: u64, to: u64, output: u32) -> Op {
    Record {
        client: client.into(),
        input,
        invoked: (from, 0),
        answered: Some(((to, u64::MAX), output)),
    }
}

fn open(client: &str, input: Input, from: u64) -> Op {
    let mut op = op(client, input, from, from, 0);
    op.answered = None;
    op
}

use Input::{Read, Write};

fn is_fine(operations: &[Op]) -> bool {
    let verdict = check(operations, &REGISTERS).0;
    let whole = check(operations, &Registers { is_parted: false }).0;
    let is_fine = verdict == Verdict::Linearizable;
    assert_eq!(is_fine, whole == Verdict::Linearizable, "parted or not");
    assert!(
        is_fine || matches!(verdict, Verdict::Violation(_)),
        "{verdict:?}"
    );
    is_fine
}

#[test]
fn histories_that_are_linearizable_are_found_so() {
    assert!(is_fine(&[]));
    assert!(is_fine(&[
        op("a", Write("x", 1), 0, 1, 1),
        op("a", Read("x"), 2, 3, 1)
    ]));
    // While it is written, old and new are read, in that order.
    assert!(is_fine(&[
        op("a", Write("x", 1), 0, 10, 1),
        op("b", Read("x"), 1, 2, 0),
        op("b", Read("x"), 3, 4, 1),
        op("c", Read("x"), 3, 9, 0),
    ]));
    // The writes of two clients overlap, in either order.
    for last in [1, 2] {
        assert!(is_fine(&[
            op("a", Write("x", 1), 0, 10, 1),
            op("b", Write("x", 2), 0, 10, 2),
            op("c", Read("x"), 11, 12, last),
        ]));
    }
}

#[test]
fn histories_that_are_not_are_found_so() {
    // A stale read; one that goes back; one of a value that was never written.
    assert!(!is_fine(&[
        op("a", Write("x", 1), 0, 1, 1),
        op("b", Read("x"), 2, 3, 0)
    ]));
    assert!(!is_fine(&[
        op("a", Write("x", 1), 0, 10, 1),
        op("b", Read("x"), 1, 2, 1),
        op("c", Read("x"), 3, 4, 0),
    ]));
    assert!(!is_fine(&[op("a", Read("x"), 0, 1, 7)]));
    // Two readers see two writes in two orders.
    assert!(!is_fine(&[
        op("a", Write("x", 1), 0, 100, 1),
        op("b", Write("x", 2), 0, 100, 2),
        op("c", Read("x"), 1, 2, 1),
        op("c", Read("x"), 3, 4, 2),
        op("d", Read("x"), 1, 2, 2),
        op("d", Read("x"), 3, 4, 1),
    ]));
}

/// An operation without an answer takes effect at any time or never.
#[test]
fn pending_operation_any_time_or_never() {
    let write = || open("a", Write("x", 1), 5);
    let read = |at, value| op("b", Read("x"), at, at + 1, value);
    assert!(is_fine(&[write(), read(10, 0), read(20, 0)]));
    assert!(is_fine(&[write(), read(10, 0), read(20, 1)]));
    assert!(!is_fine(&[write(), read(10, 1), read(20, 0)]));
    assert!(!is_fine(&[write(), read(1, 1)]), "before it was asked for");
    assert!(is_fine(&[write()]));
}

#[test]
fn what_is_of_one_moment_is_concurrent() {
    let write = op("a", Write("x", 1), 0, 5, 1);
    assert!(is_fine(&[write, op("b", Read("x"), 5, 6, 0)]));
}

/// Generates the history of a register of several keys: each operation takes effect somewhere
/// within.
fn random(seed: u64, clients: u64, count: u64) -> Vec<Op> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut state = BTreeMap::new();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut operations = Vec::new();
    // Each time has one effect. The ends lie around it, between those of the client's other
    // operations.
    let mut free = vec![0; clients as usize];
    for at in 1..=count {
        let client = random.u64(..clients) as usize;
        let time = at * 100;
        if time <= free[client] {
            continue;
        }
        let from = time - random.u64(..(time - free[client]).min(300));
        let to = time + 1 + random.u64(..300);
        free[client] = to;
        let key = ["x", "y", "z"][random.u64(..3) as usize];
        let input = match random.u64(..2) {
            0 => Write(key, at as u32),
            _ => Read(key),
        };
        let output = match input {
            Write(key, value) => {
                state.insert(key, value);
                value
            }
            Read(key) => state.get(key).copied().unwrap_or(0),
        };
        operations.push(op(names[client], input, from, to, output));
        // The answers of some operations are lost.
        if random.u64(..2_000) == 0 {
            operations.last_mut().expect("one was added").answered = None;
        }
    }
    operations
}

#[test]
fn large_histories_are_decided() {
    for seed in 0..5 {
        let mut operations = random(seed, 8, 10_000);
        assert!(operations.len() > 4_000, "{}", operations.len());
        assert_eq!(check(&operations, &REGISTERS).0, Verdict::Linearizable);
        // A read long after returns a value that was never written.
        let end = operations.iter().filter_map(|it| it.answered.as_ref());
        let end = end.map(|it| it.0.0).max().unwrap();
        operations.push(op("a", Read("x"), end + 1, end + 2, 1_000_000));
        let Verdict::Violation(text) = check(&operations, &REGISTERS).0 else {
            panic!("it is not linearizable");
        };
        assert!(text.contains("of x"), "{text}");
    }
}

#[test]
fn what_takes_too_long_is_not_called_fine() {
    // Twenty concurrent writes, and a read of a value that was never written.
    let mut operations: Vec<Op> = (1..=20)
        .map(|value| op("a", Write("x", value), 0, 100, value))
        .collect();
    operations.push(op("b", Read("x"), 0, 100, 77));
    let verdict = check_within(&operations, &REGISTERS, 10_000).0;
    assert_eq!(verdict, Verdict::Undecided { states: 10_000 });
}

#[test]
fn a_violation_is_drawn_with_what_is_around_it() {
    let mut operations: Vec<Op> = (0..30)
        .map(|n| {
            op(
                "writer",
                Write("x", n + 1),
                u64::from(n) * 10,
                u64::from(n) * 10 + 5,
                n + 1,
            )
        })
        .collect();
    operations.push(op("reader", Read("x"), 293, 294, 29));
    operations.push(op("reader", Read("x"), 296, 299, 29));
    let Verdict::Violation(text) = check(&operations, &REGISTERS).0 else {
        panic!("it is not linearizable");
    };
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= MAX_DRAWN + 2, "{text}");
    let marked = lines
        .iter()
        .find(|it| it.contains("<== not explained"))
        .unwrap();
    assert!(marked.contains("Read(\"x\") → 29"), "{text}");
    assert!(marked.contains("|-|"), "{text}");
    assert!(text.contains("ends so: … "), "{text}");
}

/// A violation without duration or with one below zero is drawn too.
#[test]
fn violation_with_zero_or_negative_duration() {
    for answered in [5, 0] {
        let operations = [op("reader", Read("x"), 5, answered, 7)];
        let verdict = check(&operations, &REGISTERS).0;
        assert!(matches!(verdict, Verdict::Violation(_)), "{verdict:?}");
    }
}

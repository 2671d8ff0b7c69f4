//! Whether a history is linearizable: a search for an order that a [`Model`] allows.
//!
//! The search is that of Wing and Gong, with Lowe's memory of what was tried ("Testing for
//! linearizability", 2017). Invocations and answers form a list, ordered by time. Each operation
//! that is invoked before the first answer of the list may be next. The search takes one that the
//! model allows, and removes its two entries. At an answer of an operation that was not taken, it
//! goes back to its last decision. It does not try the same set of operations taken with the same
//! state again.
//!
//! An operation without an answer has only an invocation in the list. It may be taken at any later
//! time, or never. The history is linearizable when all operations with an answer are taken.
//!
//! Partitions (Herlihy and Wing: linearizability is local) are searched separately.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{Debug, Write};
use std::hash::Hash;

use crate::world::trace::Seconds;

/// Maximum number of states remembered for a partition: tens of megabytes if they are small. The
/// problem is NP-complete: beyond this limit the verdict is undecided.
const MAX_STATES: usize = 200_000;

/// Maximum number of operations in a drawing.
const MAX_DRAWN: usize = 12;

/// Maximum number of characters of an operation's text in a drawing.
const LONGEST_TEXT: usize = 60;

/// The specification of a system, as a state machine that executes one operation after the other;
/// used by [`History::linearizable`](super::History::linearizable).
///
/// ```
/// use polder::sim::Model;
///
/// /// A lock, of which operations say whether they have got or released it.
/// struct Lock;
///
/// enum Operation {
///     TryLock,
///     Unlock,
/// }
/// # impl std::fmt::Debug for Operation {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
/// #         f.write_str(if matches!(self, Operation::Unlock) { "unlock" } else { "try_lock" })
/// #     }
/// # }
///
/// impl Model for Lock {
///     type State = bool; // Whether it is locked.
///     type Input = Operation;
///     type Output = bool;
///
///     fn begin(&self) -> bool {
///         false
///     }
///
///     fn step(&self, locked: &bool, input: &Operation, output: Option<&bool>) -> Option<bool> {
///         let (succeeds, then) = match input {
///             Operation::TryLock => (!locked, true),
///             Operation::Unlock => (*locked, false),
///         };
///         output.is_none_or(|it| *it == succeeds).then_some(then)
///     }
/// }
///
/// polder::sim::check(0..1, |sim| async move {
///     let history = sim.history();
///     history.invoke("a", Operation::TryLock).answer(true);
///     history.invoke("b", Operation::TryLock).answer(false);
///     history.invoke("a", Operation::Unlock).answer(true);
///     history.linearizable(Lock);
/// });
/// ```
pub trait Model {
    /// The state of the machine.
    type State: Clone + Eq + Hash;
    /// The input of an operation.
    type Input: Debug;
    /// The output of an operation.
    type Output: Debug;

    /// Returns the initial state.
    ///
    /// ```
    /// # use polder::sim::Model;
    /// # struct Counter;
    /// # impl Model for Counter {
    /// #     type State = u64;
    /// #     type Input = ();
    /// #     type Output = u64;
    /// fn begin(&self) -> u64 {
    ///     0
    /// }
    /// #     fn step(&self, state: &u64, _: &(), _: Option<&u64>) -> Option<u64> {
    /// #         Some(state + 1)
    /// #     }
    /// # }
    /// # assert_eq!(Counter.begin(), 0);
    /// ```
    fn begin(&self) -> Self::State;

    /// Returns the state after an operation, or `None` if the system would not give this answer. If
    /// `output` is `None`, the answer is not known: the client has died, or given up.
    ///
    /// ```
    /// # use polder::sim::Model;
    /// # struct Counter;
    /// # impl Model for Counter {
    /// #     type State = u64;
    /// #     type Input = ();
    /// #     type Output = u64;
    /// #     fn begin(&self) -> u64 {
    /// #         0
    /// #     }
    /// /// Each operation returns the number of those before it.
    /// fn step(&self, state: &u64, _: &(), output: Option<&u64>) -> Option<u64> {
    ///     match output {
    ///         Some(other) if other != state => None,
    ///         _ => Some(state + 1),
    ///     }
    /// }
    /// # }
    /// # assert_eq!(Counter.step(&3, &(), Some(&4)), None);
    /// # assert_eq!(Counter.step(&3, &(), None), Some(4));
    /// ```
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        output: Option<&Self::Output>,
    ) -> Option<Self::State>;

    /// Returns the name of the part of the system that an operation is about, such as a key.
    /// Independent parts are searched separately, which is much faster. The default is one part.
    ///
    /// A partition for each client requires less than linearizability: only that each client sees
    /// its own operations in order.
    ///
    /// ```
    /// # use polder::sim::Model;
    /// # struct Store;
    /// # impl Model for Store {
    /// #     type State = String;
    /// #     type Input = (String, String);
    /// #     type Output = ();
    /// #     fn begin(&self) -> String {
    /// #         String::new()
    /// #     }
    /// #     fn step(&self, _: &String, input: &Self::Input, _: Option<&()>) -> Option<String> {
    /// #         Some(input.1.clone())
    /// #     }
    /// fn partition(&self, _client: &str, (key, _value): &(String, String)) -> String {
    ///     key.clone()
    /// }
    /// # }
    /// # assert_eq!(Store.partition("client", &("a".into(), "1".into())), "a");
    /// ```
    fn partition(&self, client: &str, input: &Self::Input) -> String {
        let _ = (client, input);
        String::new()
    }
}

/// Whether a history is linearizable, as far as the search could decide: returned by
/// [`History::verdict`](super::History::verdict).
///
/// ```
/// use polder::sim::{Model, Verdict};
///
/// /// Answers with what it is asked.
/// struct Echo;
///
/// impl Model for Echo {
///     type State = ();
///     type Input = u32;
///     type Output = u32;
///
///     fn begin(&self) {}
///
///     fn step(&self, _: &(), input: &u32, output: Option<&u32>) -> Option<()> {
///         output.is_none_or(|it| it == input).then_some(())
///     }
/// }
///
/// polder::sim::check(0..1, |sim| async move {
///     let history = sim.history();
///     history.invoke("client", 1).answer(2);
///     match history.verdict(&Echo) {
///         Verdict::Violation(drawing) => assert!(drawing.contains("client"), "{drawing}"),
///         other => panic!("{other:?}"),
///     }
/// });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The model allows an order of the operations.
    Linearizable,
    /// The model allows no order. The text draws the operations around the one that cannot be
    /// explained.
    Violation(String),
    /// The search was given up.
    Undecided {
        /// The number of states that were tried.
        states: usize,
    },
}

/// An operation, with the position of its ends in the order: the time, and a number.
pub(super) struct Record<I, O> {
    pub(super) client: String,
    pub(super) input: I,
    pub(super) invoked: (u64, u64),
    pub(super) answered: Option<((u64, u64), O)>,
}

/// Some records of a history.
type Records<'a, M> = Vec<&'a Record<<M as Model>::Input, <M as Model>::Output>>;

/// Returns the verdict, and the time of the answer that cannot be explained.
pub(super) fn check<M: Model>(
    records: &[Record<M::Input, M::Output>],
    model: &M,
) -> (Verdict, Option<u64>) {
    check_within(records, model, MAX_STATES)
}

fn check_within<M: Model>(
    records: &[Record<M::Input, M::Output>],
    model: &M,
    most: usize,
) -> (Verdict, Option<u64>) {
    let mut partitions: BTreeMap<String, Records<'_, M>> = BTreeMap::new();
    for record in records {
        let key = model.partition(&record.client, &record.input);
        partitions.entry(key).or_default().push(record);
    }
    let mut undecided = None;
    for (key, mut partition) in partitions {
        partition.sort_by_key(|it| it.invoked);
        match Search::new(&partition, model).run(most) {
            Found::Order => {}
            // A violation in another partition is worth more.
            Found::TooMany(states) => undecided = Some(states),
            Found::None { longest, stuck } => {
                let at = partition[stuck].answered.as_ref().map(|it| it.0.0);
                let drawing = draw(&key, &partition, &longest, stuck);
                return (Verdict::Violation(drawing), at);
            }
        }
    }
    let verdict = match undecided {
        Some(states) => Verdict::Undecided { states },
        None => Verdict::Linearizable,
    };
    (verdict, None)
}

/// The operations that were taken: those with an answer, by the order of their invocations, all
/// below a number and some beyond it; and those without an answer.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Taken {
    below: u32,
    beyond: Vec<u32>,
    open: Vec<u32>,
}

impl Taken {
    fn insert(&mut self, number: u32, is_open: bool) {
        let list = if is_open {
            &mut self.open
        } else {
            &mut self.beyond
        };
        let place = list.partition_point(|it| *it < number);
        list.insert(place, number);
        let known = (self.beyond.iter())
            .zip(self.below..)
            .take_while(|(it, next)| **it == *next)
            .count();
        self.beyond.drain(..known);
        self.below += known as u32;
    }
}

enum Found {
    Order,
    /// The longest order, and the operation with the answer that it does not explain.
    None {
        longest: Vec<usize>,
        stuck: usize,
    },
    TooMany(usize),
}

/// The end of the list, and its beginning: entries are counted from one.
const EDGE: usize = 0;

struct Search<'a, M: Model> {
    operations: &'a [&'a Record<M::Input, M::Output>],
    model: &'a M,
    /// The operation of each entry, and whether the entry is its answer.
    entries: Vec<(usize, bool)>,
    /// The entries of each operation.
    places: Vec<(usize, Option<usize>)>,
    next: Vec<usize>,
    before: Vec<usize>,
    /// The number of each operation among those with an answer, or among the others.
    numbers: Vec<u32>,
    /// The number of operations with an answer that are not taken.
    left: usize,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(operations: &'a [&'a Record<M::Input, M::Output>], model: &'a M) -> Search<'a, M> {
        let mut events = Vec::new();
        let (mut numbers, mut open) = (Vec::new(), 0);
        for (index, operation) in operations.iter().enumerate() {
            events.push((operation.invoked, false, index));
            match &operation.answered {
                Some((at, _)) => {
                    events.push((*at, true, index));
                    numbers.push(index as u32 - open);
                }
                None => {
                    numbers.push(open);
                    open += 1;
                }
            }
        }
        events.sort_unstable();
        let mut places = vec![(EDGE, None); operations.len()];
        let mut entries = vec![(EDGE, false)];
        for (_, is_answer, index) in events {
            if is_answer {
                places[index].1 = Some(entries.len());
            } else {
                places[index].0 = entries.len();
            }
            entries.push((index, is_answer));
        }
        let count = entries.len();
        Search {
            operations,
            model,
            places,
            next: (0..count).map(|it| (it + 1) % count).collect(),
            before: (0..count).map(|it| (it + count - 1) % count).collect(),
            numbers,
            left: operations.len() - open as usize,
            entries,
        }
    }

    fn run(mut self, most: usize) -> Found {
        let mut state = self.model.begin();
        let mut taken = Taken::default();
        let mut known = HashSet::new();
        let mut stack: Vec<(usize, M::State, Taken)> = Vec::new();
        let (mut longest, mut stuck) = (Vec::new(), None);
        let mut entry = self.next[EDGE];
        while self.left > 0 {
            // This is never the end of the list, as an answer is left in it.
            let (index, is_answer) = self.entries[entry];
            if is_answer {
                if stuck.is_none() || stack.len() > longest.len() {
                    longest = stack.iter().map(|it| self.entries[it.0].0).collect();
                    stuck = Some(index);
                }
                let Some((last, old_state, old_taken)) = stack.pop() else {
                    let stuck = stuck.expect("it was set above");
                    return Found::None { longest, stuck };
                };
                (state, taken) = (old_state, old_taken);
                self.put_back(self.entries[last].0);
                entry = self.next[last];
                continue;
            }
            let operation = self.operations[index];
            let output = operation.answered.as_ref().map(|it| &it.1);
            let new = self.model.step(&state, &operation.input, output);
            let new = new.and_then(|new| {
                let mut more = taken.clone();
                more.insert(self.numbers[index], output.is_none());
                known
                    .insert((more.clone(), new.clone()))
                    .then_some((new, more))
            });
            match new {
                Some((new, more)) => {
                    let old = std::mem::replace(&mut state, new);
                    stack.push((entry, old, std::mem::replace(&mut taken, more)));
                    self.take(index);
                    entry = self.next[EDGE];
                }
                None => entry = self.next[entry],
            }
            if known.len() > most {
                return Found::TooMany(most);
            }
        }
        Found::Order
    }

    fn take(&mut self, index: usize) {
        let (invoked, answered) = self.places[index];
        self.left -= usize::from(answered.is_some());
        for entry in answered.into_iter().chain([invoked]) {
            let (before, next) = (self.before[entry], self.next[entry]);
            (self.next[before], self.before[next]) = (next, before);
        }
    }

    /// Undoes [`take`](Self::take) of the operation that was taken last.
    fn put_back(&mut self, index: usize) {
        let (invoked, answered) = self.places[index];
        self.left += usize::from(answered.is_some());
        for entry in [invoked].into_iter().chain(answered) {
            let (before, next) = (self.before[entry], self.next[entry]);
            (self.next[before], self.before[next]) = (entry, entry);
        }
    }
}

fn text_of<I: Debug, O: Debug>(record: &Record<I, O>) -> String {
    let text = match &record.answered {
        Some((_, output)) => format!("{:?} → {output:?}", record.input),
        None => format!("{:?} → ?", record.input),
    };
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Draws the operation that cannot be explained, those concurrent with it, and those before it.
fn draw<I: Debug, O: Debug>(
    key: &str,
    operations: &[&Record<I, O>],
    longest: &[usize],
    stuck: usize,
) -> String {
    let end = operations[stuck].answered.as_ref().map(|it| it.0);
    let end = end.unwrap_or((u64::MAX, 0));
    // Sorted by their ends; operations without an answer come last.
    let over = |it: usize| match &operations[it].answered {
        Some((at, _)) => *at,
        None => (u64::MAX, operations[it].invoked.0),
    };
    let mut drawn: Vec<usize> = (0..operations.len())
        .filter(|it| *it != stuck && operations[*it].invoked < end)
        .collect();
    drawn.sort_by_key(|it| over(*it));
    let mut drawn = drawn.split_off(drawn.len().saturating_sub(MAX_DRAWN - 1));
    drawn.push(stuck);
    drawn.sort_by_key(|it| operations[*it].invoked);
    let mut moments: Vec<(u64, u64)> = (drawn.iter())
        .flat_map(|it| {
            let answered = operations[*it].answered.as_ref().map(|it| it.0);
            [Some(operations[*it].invoked), answered]
        })
        .flatten()
        .collect();
    moments.sort_unstable();
    moments.dedup();
    let column = |at: (u64, u64)| 2 * moments.partition_point(|it| *it < at);
    let width = 2 * moments.len();
    let names = drawn
        .iter()
        .map(|it| operations[*it].client.chars().count());
    let longest_name = names.max().unwrap_or(0);
    let mut text = String::new();
    let of = if key.is_empty() { "" } else { " of " };
    let _ = writeln!(
        text,
        "no order of the operations{of}{key} explains the marked one ({} in all)",
        operations.len()
    );
    for it in drawn {
        let operation = operations[it];
        let start = column(operation.invoked);
        let bar = match &operation.answered {
            Some((at, _)) => format!("|{}|", "-".repeat(column(*at) - start - 1)),
            None => format!("|{}", "-".repeat(width - start)),
        };
        let bar = format!("{}{bar}", " ".repeat(start));
        let mark = if it == stuck {
            "  <== not explained"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "    {:longest_name$}  {bar:width$}  {} {}{mark}",
            operation.client,
            Seconds(operation.invoked.0),
            text_of(operation)
        );
    }
    let tail = &longest[longest.len().saturating_sub(5)..];
    let tail: Vec<String> = tail.iter().map(|it| text_of(operations[*it])).collect();
    let dots = if longest.len() > tail.len() {
        "… "
    } else {
        ""
    };
    let _ = if tail.is_empty() {
        writeln!(text, "    It can be no first one.")
    } else {
        writeln!(
            text,
            "    The longest order that was found ends so: {dots}{}",
            tail.join("; ")
        )
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::choice::Stream;

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

    #[test]
    fn an_operation_without_an_answer_takes_effect_at_any_time_or_never() {
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
        let mut stream = Stream::new(seed, "test", 0, 0);
        let mut state = BTreeMap::new();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut operations = Vec::new();
        // Each time has one effect. The ends lie around it, between those of the client's other
        // operations.
        let mut free = vec![0; clients as usize];
        for at in 1..=count {
            let client = stream.below(clients) as usize;
            let time = at * 100;
            if time <= free[client] {
                continue;
            }
            let from = time - stream.below((time - free[client]).min(300));
            let to = time + 1 + stream.below(300);
            free[client] = to;
            let key = ["x", "y", "z"][stream.below(3) as usize];
            let input = match stream.below(2) {
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
            if stream.below(2_000) == 0 {
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
}

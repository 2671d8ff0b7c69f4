//! Whether a history is linearizable: a search for an order that a [`Model`] allows.
//!
//! [`check`] takes the operations that clients have invoked on a system, their answers, and when
//! both happened. A [`History`](crate::History) records them in a simulated world; nothing here
//! depends on it.
//!
//! ```
//! use polder_sim::linearizable::{Model, Record, Verdict, check};
//!
//! /// A register: `Some` writes, `None` reads.
//! struct Register;
//!
//! impl Model for Register {
//!     type State = u32;
//!     type Input = Option<u32>;
//!     type Output = u32;
//!
//!     fn begin(&self) -> u32 {
//!         0
//!     }
//!
//!     fn step(&self, state: &u32, input: &Option<u32>, output: Option<&u32>) -> Option<u32> {
//!         let state = input.unwrap_or(*state);
//!         output.is_none_or(|output| *output == state).then_some(state)
//!     }
//! }
//!
//! let operation = |input, from, to, output| Record {
//!     client: "client".into(),
//!     input,
//!     invoked: (from, 0),
//!     answered: Some(((to, 0), output)),
//! };
//! let write = || operation(Some(7), 0, 10, 7);
//! // A read that is concurrent with the write may return the old value; a later one may not.
//! assert_eq!(check(&[write(), operation(None, 5, 6, 0)], &Register).0, Verdict::Linearizable);
//! let (verdict, at) = check(&[write(), operation(None, 11, 12, 0)], &Register);
//! assert!(matches!(verdict, Verdict::Violation(_)));
//! assert_eq!(at, Some(12));
//! ```
//!
//! # The search
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

#![deny(missing_docs)]
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Debug, Write};
use std::hash::Hash;
use std::time::Duration;

/// Maximum number of states remembered for a partition: tens of megabytes if they are small. The
/// problem is NP-complete: beyond this limit the verdict is undecided.
const MAX_STATES: usize = 200_000;

/// Maximum number of operations in a drawing.
const MAX_DRAWN: usize = 12;

/// Maximum number of characters of an operation's text in a drawing.
const LONGEST_TEXT: usize = 60;

/// The specification of a system, as a state machine that executes one operation after the other;
/// used by [`check`].
///
/// ```
/// use polder_sim::linearizable::{Model, Record, Verdict, check};
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
/// let operation = |client: &str, input, at, output| Record {
///     client: client.into(),
///     input,
///     invoked: (at, 0),
///     answered: Some(((at, 1), output)),
/// };
/// let history = [
///     operation("a", Operation::TryLock, 1, true),
///     operation("b", Operation::TryLock, 2, false),
///     operation("a", Operation::Unlock, 3, true),
/// ];
/// assert_eq!(check(&history, &Lock).0, Verdict::Linearizable);
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
    /// # use polder_sim::linearizable::Model;
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
    /// # use polder_sim::linearizable::Model;
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
    /// # use polder_sim::linearizable::Model;
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
/// [`check`].
///
/// ```
/// use polder_sim::linearizable::Verdict;
///
/// let verdict = Verdict::Undecided { states: 200_000 };
/// assert_ne!(verdict, Verdict::Linearizable);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
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

/// The time in nanoseconds, and a number that orders what happens at the same time.
///
/// ```
/// let asked: polder_sim::linearizable::Moment = (1_500, 0);
/// assert!(asked < (1_500, 1));
/// ```
pub type Moment = (u64, u64);

/// An operation of a client.
///
/// ```
/// use polder_sim::linearizable::Record;
///
/// // A write, the answer of which was lost.
/// let write = Record { client: "c1".into(), input: 7, invoked: (10, 0), answered: None };
/// # let _: &Record<i32, ()> = &write;
/// assert_eq!(write.invoked.0, 10);
/// ```
#[derive(Clone, Debug)]
pub struct Record<I, O> {
    /// The name of the client.
    pub client: String,
    /// What was asked.
    pub input: I,
    /// When it was asked.
    pub invoked: Moment,
    /// When the answer came, and the answer; `None` if none is known.
    pub answered: Option<(Moment, O)>,
}

/// Some records of a history.
type Records<'a, M> = Vec<&'a Record<<M as Model>::Input, <M as Model>::Output>>;

/// Returns the verdict, and for a violation the time of the answer that cannot be explained. An
/// example is in the documentation of the [module](self).
///
/// ```
/// # use polder_sim::linearizable::{Model, Record, Verdict, check};
/// # struct Any;
/// # impl Model for Any {
/// #     type State = ();
/// #     type Input = ();
/// #     type Output = ();
/// #     fn begin(&self) {}
/// #     fn step(&self, _: &(), _: &(), _: Option<&()>) -> Option<()> { Some(()) }
/// # }
/// let nothing: [Record<(), ()>; 0] = [];
/// assert_eq!(check(&nothing, &Any), (Verdict::Linearizable, None));
/// ```
pub fn check<M: Model>(
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
            // An answer may have the moment of its invocation, or even an earlier one.
            Some((at, _)) => format!("|{}|", "-".repeat(column(*at).saturating_sub(start + 1))),
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

/// A time in seconds, with microseconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Duration::from_nanos(self.0);
        write!(f, "{}.{:06} s", time.as_secs(), time.subsec_micros())
    }
}

#[cfg(test)]
mod tests;

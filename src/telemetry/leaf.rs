//! The leaf future that a task waits for, if that leaf records itself.
//!
//! Sockets and timers are known from the wakers that they keep. Leaves that keep their wakers
//! elsewhere record themselves when they return `Pending`, with [`waits_for`]: in a word of the
//! task's metadata, which is reset when a poll begins and when the task is woken. If a poll has
//! several leaves, the last one counts. A dump reads the word: see `diagnostics::dump`.

/// The kind of a leaf, and its identity: its address, or a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Leaf {
    Event(usize),
    Latch(usize),
    /// A task with this id.
    Task(u64),
    TaskSet(usize),
    /// Work on a thread of the pool.
    Blocking,
    Lookup,
    /// A set of signal numbers, each below 60.
    Signal(u64),
}

impl Leaf {
    /// The position of the kind. Addresses and numbers have fewer bits on all machines.
    pub(crate) const KIND: u32 = 60;

    pub(crate) const NOTHING: u64 = 0;
    pub(crate) const UNKNOWN: u64 = 1 << Leaf::KIND;
    pub(crate) const WOKEN_WHILE_RUNNING: u64 = 15 << Leaf::KIND;

    /// The number of the task, if the word is of a task.
    pub(crate) fn task_of(word: u64) -> Option<u64> {
        let is_task = word >> Leaf::KIND == Leaf::Task(0).encode() >> Leaf::KIND;
        is_task.then_some(word & ((1 << Leaf::KIND) - 1))
    }

    /// Encodes the leaf as a word, which a dump reads.
    pub(crate) fn encode(self) -> u64 {
        let (kind, which) = match self {
            Leaf::Event(address) => (2, address as u64),
            Leaf::Latch(address) => (3, address as u64),
            Leaf::Task(id) => (4, id),
            Leaf::TaskSet(address) => (5, address as u64),
            Leaf::Blocking => (6, 0),
            Leaf::Lookup => (7, 0),
            Leaf::Signal(numbers) => (8, numbers),
        };
        kind << Leaf::KIND | which & ((1 << Leaf::KIND) - 1)
    }
}

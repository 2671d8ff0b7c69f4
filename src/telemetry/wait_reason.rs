//! The wait reason of a task, recorded by the leaf future that it polled last.
//!
//! Sockets and timers are found by the wakers that they keep. Other leaves record themselves with
//! [`record_wait`](crate::scheduler::record_wait) when they return `Pending`, in a word of the
//! task's metadata, which is reset when a poll begins and when the task is woken. Of several leaves
//! in a poll, the last one counts.

/// The kind of thing that the task waits for, and its identity: an address or number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum WaitReason {
    Event(usize),
    Latch(usize),
    Task(u64),
    TaskSet(usize),
    /// Work on a thread of the blocking pool.
    Blocking,
    Lookup,
    /// A set of signal numbers, each below 60.
    Signal(u64),
}

impl WaitReason {
    /// The position of the kind. Numbers have fewer bits on all machines. An address may have more
    /// (a tag of Android's allocator on arm64): the lower ones identify it.
    pub(crate) const KIND: u32 = 60;

    pub(crate) const NOTHING: u64 = 0;
    pub(crate) const UNKNOWN: u64 = 1 << WaitReason::KIND;
    pub(crate) const WOKEN_WHILE_RUNNING: u64 = 15 << WaitReason::KIND;

    pub(crate) fn task_of(word: u64) -> Option<u64> {
        let is_task = word >> WaitReason::KIND == WaitReason::Task(0).encode() >> WaitReason::KIND;
        is_task.then_some(word & ((1 << WaitReason::KIND) - 1))
    }

    pub(crate) fn encode(self) -> u64 {
        let (kind, which) = match self {
            WaitReason::Event(address) => (2, address as u64),
            WaitReason::Latch(address) => (3, address as u64),
            WaitReason::Task(id) => (4, id),
            WaitReason::TaskSet(address) => (5, address as u64),
            WaitReason::Blocking => (6, 0),
            WaitReason::Lookup => (7, 0),
            WaitReason::Signal(numbers) => (8, numbers),
        };
        kind << WaitReason::KIND | which & ((1 << WaitReason::KIND) - 1)
    }
}

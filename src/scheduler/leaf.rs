//! What a task waits for, as far as it says so itself.
//!
//! Sockets and timers are known from the wakers that they keep. What keeps its wakers elsewhere
//! says so when it returns `Pending`, by [`waits_for`]: a word of the task's metadata, which is
//! reset when a poll begins and when the task is woken. Of several leaves in one poll the last
//! counts.

use std::cell::Cell;

use super::{Meta, TaskRecord, with_running};
use crate::sync::atomic::Ordering;

/// The kind of a leaf, and which one it is: its address, or a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Leaf {
    Event(usize),
    Latch(usize),
    /// A task with that id.
    Task(u64),
    TaskSet(usize),
    /// Something that a thread of the pool does.
    #[cfg(feature = "blocking")]
    Blocking,
    #[cfg(feature = "net")]
    Lookup,
    /// A set of signal numbers, of those below 60.
    #[cfg(feature = "signal")]
    Signal(u64),
}

/// What a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// It is ready, or running, or new.
    Nothing,
    /// It is ready, since it was woken while it ran: mostly by itself.
    WokenByItself,
    /// No leaf has said anything.
    Unknown,
    For(Leaf),
}

/// The kind is above this bit. An address or a number has fewer on all machines.
const KIND: u32 = 60;

impl Leaf {
    pub(super) const NOTHING: u64 = 0;
    pub(super) const UNKNOWN: u64 = 1 << KIND;
    pub(super) const WOKEN_BY_ITSELF: u64 = 15 << KIND;

    fn encode(self) -> u64 {
        let (kind, which) = match self {
            Leaf::Event(address) => (2, address as u64),
            Leaf::Latch(address) => (3, address as u64),
            Leaf::Task(id) => (4, id),
            Leaf::TaskSet(address) => (5, address as u64),
            #[cfg(feature = "blocking")]
            Leaf::Blocking => (6, 0),
            #[cfg(feature = "net")]
            Leaf::Lookup => (7, 0),
            #[cfg(feature = "signal")]
            Leaf::Signal(numbers) => (8, numbers),
        };
        kind << KIND | which & ((1 << KIND) - 1)
    }
}

impl Waits {
    pub(super) fn decode(word: u64) -> Waits {
        let which = word & ((1 << KIND) - 1);
        Waits::For(match word >> KIND {
            0 => return Waits::Nothing,
            2 => Leaf::Event(which as usize),
            3 => Leaf::Latch(which as usize),
            4 => Leaf::Task(which),
            5 => Leaf::TaskSet(which as usize),
            #[cfg(feature = "blocking")]
            6 => Leaf::Blocking,
            #[cfg(feature = "net")]
            7 => Leaf::Lookup,
            #[cfg(feature = "signal")]
            8 => Leaf::Signal(which),
            15 => return Waits::WokenByItself,
            _ => return Waits::Unknown,
        })
    }
}

/// A leaf returns `Pending`: notes it for the running task, or the future of `block_on`.
#[inline]
pub(crate) fn waits_for(leaf: Leaf) {
    let word = leaf.encode();
    if with_running(|meta: &Meta| meta.set_waits_for(word)).is_none() {
        set_main(word);
    }
}

thread_local! {
    /// What the future of `block_on` that was polled last on this thread waits for.
    static MAIN: Cell<u64> = const { Cell::new(Leaf::NOTHING) };
}

#[inline]
pub(super) fn set_main(word: u64) {
    (MAIN.try_with(|main| main.set(word))).expect("it has no destructor");
}

/// A future of `block_on` is about to be polled.
#[inline]
pub(super) fn begin_main_poll() {
    set_main(Leaf::UNKNOWN);
}

/// What a future of `block_on`, whose poll has just returned, waits for.
#[inline]
pub(super) fn of_main() -> u64 {
    MAIN.try_with(Cell::get).expect("it has no destructor")
}

impl TaskRecord {
    pub(super) fn waits(meta: &Meta) -> Waits {
        Waits::decode(meta.waits_for.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_what_it_was_when_it_is_read() {
        let address = usize::MAX >> 8;
        let leaves = [
            Leaf::Event(address),
            Leaf::Latch(8),
            Leaf::Task(1 << 50),
            Leaf::TaskSet(16),
            #[cfg(feature = "blocking")]
            Leaf::Blocking,
            #[cfg(feature = "net")]
            Leaf::Lookup,
            #[cfg(feature = "signal")]
            Leaf::Signal(1 << 2 | 1 << 15),
        ];
        for leaf in leaves {
            assert_eq!(Waits::decode(leaf.encode()), Waits::For(leaf));
        }
        assert_eq!(Waits::decode(Leaf::NOTHING), Waits::Nothing);
        assert_eq!(Waits::decode(Leaf::UNKNOWN), Waits::Unknown);
        let woken = Waits::decode(Leaf::WOKEN_BY_ITSELF);
        assert_eq!(woken, Waits::WokenByItself);
    }
}

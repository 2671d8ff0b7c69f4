//! The wait of a task, decoded from the word that its leaf futures write: see `scheduler::leaf`.

use crate::scheduler::Leaf;

/// The state of a task's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// It is ready, or running, or new.
    Nothing,
    /// It is ready, since it was woken while it ran, usually by itself.
    WokenByItself,
    /// No leaf future has recorded anything.
    Unknown,
    For(Leaf),
}

impl Waits {
    /// Decodes what `Leaf::encode` has written.
    pub(super) fn decode(word: u64) -> Waits {
        let which = word & ((1 << Leaf::KIND) - 1);
        Waits::For(match word >> Leaf::KIND {
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
        let woken = Waits::decode(Leaf::WOKEN_WHILE_RUNNING);
        assert_eq!(woken, Waits::WokenByItself);
    }
}

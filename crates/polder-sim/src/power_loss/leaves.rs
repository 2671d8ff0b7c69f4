//! [`Leaves`]: the extent to which a power failure leaves unsynced changes.

/// The extent to which a power failure leaves the unsynced changes of a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaves {
    Nothing,
    Everything,
    Some,
}

impl Leaves {
    /// Draws all or nothing as often as a part. Otherwise a hundred sectors would almost never
    /// survive, or be lost, together.
    pub(crate) fn draw(draw: &mut dyn FnMut(u64) -> u64) -> Leaves {
        match draw(4) {
            0 => Leaves::Nothing,
            1 => Leaves::Everything,
            _ => Leaves::Some,
        }
    }

    /// Returns how many of `count` changes survive, where each needs those before it.
    pub(crate) fn of(self, count: usize, draw: &mut dyn FnMut(u64) -> u64) -> usize {
        match self {
            Leaves::Nothing => 0,
            Leaves::Everything => count,
            Leaves::Some => draw(count as u64 + 1) as usize,
        }
    }
}

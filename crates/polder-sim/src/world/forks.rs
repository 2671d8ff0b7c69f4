//! [`Forks`]: the times from which on a run draws other numbers than those of its seed.
//!
//! Up to the time of its first fork a run is that of its seed. A fork changes everything that is
//! random after it: latencies, orders, faults. So a run that has come to something new can be
//! continued in many ways from there.

use std::collections::BTreeMap;

use super::choice::set_salt;

/// The forks of a run: the salt of all streams from each of these times on, in nanoseconds since
/// the world began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Forks(BTreeMap<u64, u64>);

impl Forks {
    /// Returns these forks up to a time, and another one there.
    pub(crate) fn fork_at(&self, at: u64, salt: u64) -> Forks {
        let mut forks = Forks(self.0.range(..at).map(|(at, salt)| (*at, *salt)).collect());
        forks.0.insert(at, salt);
        forks
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.0.iter().map(|(at, salt)| (*at, *salt))
    }
}

/// The forks of this thread's world that are still to come.
pub(super) struct Pending {
    /// The latest one first.
    left: Vec<(u64, u64)>,
}

impl Pending {
    /// Begins a run with these forks on this thread.
    pub(super) fn begin(forks: &Forks) -> Pending {
        set_salt(0);
        let left = forks.iter().rev().collect();
        let mut pending = Pending { left };
        pending.pass(0);
        pending
    }

    /// Applies the forks up to `now`.
    #[inline]
    pub(super) fn pass(&mut self, now: u64) {
        while let Some((at, salt)) = self.left.last().copied() {
            if at > now {
                break;
            }
            self.left.pop();
            set_salt(salt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::choice::Stream;

    #[test]
    fn a_run_is_that_of_its_seed_until_it_forks() {
        let forks = Forks::default().fork_at(50, 7).fork_at(90, 8);
        assert_eq!(
            forks.fork_at(60, 9).iter().collect::<Vec<_>>(),
            [(50, 7), (60, 9)]
        );
        let draw = |forks: &Forks| {
            let (mut pending, mut stream) = (Pending::begin(forks), Stream::new(1, "test", 0, 0));
            let drawn = [0, 49, 50, 89, 90].map(|now| {
                pending.pass(now);
                stream.next()
            });
            set_salt(0);
            drawn
        };
        let (plain, forked) = (draw(&Forks::default()), draw(&forks));
        assert_eq!(plain[..2], forked[..2]);
        assert!((2..5).all(|nth| plain[nth] != forked[nth]));
        let other = draw(&forks.fork_at(90, 9));
        assert_eq!(
            (other[..4] == forked[..4], other[4] == forked[4]),
            (true, false)
        );
        assert_ne!(draw(&Forks::default().fork_at(0, 1))[0], plain[0]);
    }
}

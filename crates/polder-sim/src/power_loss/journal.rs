//! [`Journal`]: the changes of names that are not on the disk yet, in their order.
//!
//! A sync takes out the changes of a directory and those that they depend on. A power failure keeps
//! a prefix of each directory's changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use super::leaves::Leaves;

/// A change of names.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) number: u64,
    /// The name that is removed, and its directory.
    pub(crate) from: Option<(u32, OsString)>,
    /// The name that is added, with its directory and its node.
    pub(crate) to: Option<(u32, OsString, u32)>,
    /// Whether something is moved between directories, or a directory is removed: such a change
    /// survives only with all changes before it. Otherwise two directories could end up in each
    /// other; and a node that was moved into a directory that did not survive, or out of one that
    /// is gone, would be nowhere.
    pub(crate) is_barrier: bool,
}

impl Change {
    /// Returns the directories of which it changes names.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = u32> {
        let from = self.from.as_ref().map(|(dir, _)| *dir);
        let to = self.to.as_ref().map(|(dir, ..)| *dir);
        from.into_iter().chain(to.filter(|dir| from != Some(*dir)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Journal(pub(crate) Vec<Change>);

impl Journal {
    /// Takes out the changes of a directory's names until `last`, and the earlier changes that they
    /// depend on: those of the same directory, and of the other one where something was moved.
    pub(crate) fn sync(&mut self, dir: u32, last: u64) -> Vec<Change> {
        let (mut dirs, mut needs_all) = (BTreeSet::from([dir]), false);
        let mut synced: BTreeSet<u64> = BTreeSet::new();
        let before = self.0.iter().rev();
        for change in before.filter(|change| change.number <= last) {
            if needs_all || change.dirs().any(|dir| dirs.contains(&dir)) {
                dirs.extend(change.dirs());
                needs_all |= change.is_barrier;
                synced.insert(change.number);
            }
        }
        let is_synced = |change: &Change| synced.contains(&change.number);
        let all = std::mem::take(&mut self.0).into_iter();
        let (synced, left) = all.partition(is_synced);
        self.0 = left;
        synced
    }

    /// Takes out a prefix of each directory's changes, and forgets the others. Returns also the
    /// number of these. Calls `allow` for each directory that would lose some of its changes, with
    /// their number; if it returns `false`, none of them is lost.
    pub(crate) fn lose(
        &mut self,
        draw: &mut dyn FnMut(u64) -> u64,
        mut allow: impl FnMut(u32, usize) -> bool,
    ) -> (Vec<Change>, u64) {
        let mut left: BTreeMap<u32, usize> = BTreeMap::new();
        for dir in self.0.iter().flat_map(Change::dirs) {
            *left.entry(dir).or_default() += 1;
        }
        for (dir, left) in &mut left {
            let count = *left;
            *left = Leaves::draw(draw).of(count, draw);
            let lost = count - *left;
            if lost > 0 && !allow(*dir, lost) {
                *left = count;
            }
        }
        let (mut kept, mut lost, mut ended) = (Vec::new(), 0, BTreeSet::new());
        for change in std::mem::take(&mut self.0) {
            let mut is_left = !change.is_barrier || ended.is_empty();
            for dir in change.dirs() {
                let left = left.get_mut(&dir).expect("all were counted");
                is_left &= *left > 0 && !ended.contains(&dir);
                *left = left.saturating_sub(1);
            }
            if is_left {
                kept.push(change);
            } else {
                lost += 1;
                ended.extend(change.dirs());
            }
        }
        (kept, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a journal of files made in the directories of these numbers; of two, a move.
    fn journal(changes: &[&[u32]]) -> Journal {
        let change = |(number, dirs): (usize, &&[u32])| Change {
            number: number as u64,
            from: dirs.get(1).map(|dir| (*dir, "a".into())),
            to: Some((dirs[0], "a".into(), 9)),
            is_barrier: dirs.len() > 1,
        };
        Journal(changes.iter().enumerate().map(change).collect())
    }

    fn numbers(changes: &[Change]) -> Vec<u64> {
        changes.iter().map(|change| change.number).collect()
    }

    /// A sync takes the changes of its directory and all before a move.
    #[test]
    fn sync_covers_directory_and_earlier_moves() {
        let mut all = journal(&[&[1], &[2], &[3], &[2]]);
        assert_eq!(numbers(&all.sync(2, 2)), [1]);
        assert_eq!(numbers(&all.0), [0, 2, 3]);
        let mut all = journal(&[&[1], &[2, 3], &[1], &[3]]);
        assert_eq!(numbers(&all.sync(3, 9)), [0, 1, 3]);
        assert_eq!(numbers(&all.0), [2]);
    }

    /// A directory keeps a prefix and all if it may lose nothing.
    #[test]
    fn directory_keeps_prefix_or_all() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut seen = BTreeSet::new();
        for _ in 0..200 {
            let mut all = journal(&[&[1], &[2], &[1], &[2]]);
            let (kept, lost) = all.lose(&mut |end| random.u64(..end), |dir, _| dir == 1);
            assert_eq!(kept.len() as u64 + lost, 4);
            assert!(all.0.is_empty());
            seen.insert(numbers(&kept));
        }
        let expected = [vec![0, 1, 2, 3], vec![0, 1, 3], vec![1, 3]];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }
}

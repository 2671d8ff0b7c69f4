//! A small ordered map, for keys that mostly come in ascending order: the waiters of a source.
//!
//! It is a sorted vector. A key beyond the last one is appended. A removed key leaves a gap, which
//! the next key that belongs there takes; when more than half of the entries are gaps, all are
//! removed. So these operations cost O(log n) on average. An out-of-order key moves all later ones:
//! some microseconds for ten thousand.
//!
//! A `BTreeMap` costs 10 KB of code per instance, in every program.

pub(super) struct SortedVecMap<V> {
    /// Ordered by key; keys are unique. `None` is a gap.
    entries: Vec<(u64, Option<V>)>,
    len: usize,
}

impl<V> Default for SortedVecMap<V> {
    fn default() -> SortedVecMap<V> {
        SortedVecMap {
            entries: Vec::new(),
            len: 0,
        }
    }
}

impl<V> SortedVecMap<V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn place(&self, key: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |entry| entry.0)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.entries[place].1.as_mut()
    }

    /// Adds a key, which must not be present.
    pub(super) fn insert(&mut self, key: u64, value: V) {
        let entry = (key, Some(value));
        match self.place(key) {
            Ok(gap) => self.entries[gap] = entry,
            Err(next) => match self.entries.get_mut(next) {
                Some(gap) if gap.1.is_none() => *gap = entry,
                _ => self.entries.insert(next, entry),
            },
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<V> {
        let place = self.place(key).ok()?;
        let value = self.entries[place].1.take()?;
        self.len -= 1;
        if self.len < self.entries.len() / 2 {
            self.entries.retain(|entry| entry.1.is_some());
        }
        Some(value)
    }

    /// Keeps the allocation.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, V)> {
        self.len = 0;
        let entries = self.entries.drain(..);
        entries.filter_map(|(key, value)| Some((key, value?)))
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.entries.clear();
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().filter_map(|entry| entry.1.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::SortedVecMap;

    fn next(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    // Miri takes a thousand times as long.
    const STEPS: u64 = if cfg!(miri) { 200 } else { 20_000 };
    const WAITERS: u64 = if cfg!(miri) { 100 } else { 10_000 };

    #[test]
    fn it_holds_what_an_ordered_map_holds() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for range in [2, 8, 64, 1_000] {
            let mut sorted = SortedVecMap::default();
            let mut model = BTreeMap::new();
            for step in 0..STEPS {
                let key = next(&mut state) % range;
                match next(&mut state) % 64 {
                    0 if step % 8 == 0 => {
                        let drained: Vec<(u64, u64)> = sorted.drain().collect();
                        assert_eq!(drained, Vec::from_iter(std::mem::take(&mut model)));
                    }
                    1 if step % 8 == 0 => {
                        sorted.clear();
                        model.clear();
                    }
                    0..32 if !model.contains_key(&key) => {
                        sorted.insert(key, step);
                        model.insert(key, step);
                    }
                    _ => assert_eq!(sorted.remove(key), model.remove(&key)),
                }
                assert_eq!(sorted.get_mut(key), model.get_mut(&key));
                assert_eq!(sorted.len(), model.len());
                assert!(sorted.values().eq(model.values()));
                assert!(sorted.entries.len() <= 2 * sorted.len() + 1);
            }
        }
    }

    #[test]
    fn those_who_come_and_go_in_order_move_nobody() {
        // For each waiter that leaves another arrives: the memory stays within twice the waiters.
        let mut sorted = SortedVecMap::default();
        for key in 0..10 * WAITERS {
            sorted.insert(key, ());
            if key >= WAITERS {
                assert_eq!(sorted.remove(key - WAITERS), Some(()));
            }
            assert!(sorted.entries.len() as u64 <= 2 * WAITERS + 2);
        }
        assert!(sorted.entries.capacity() as u64 <= 4 * WAITERS);
    }
}

//! Sorted pairs of numbers: the lookup table of dumps, from an address or id to, usually, an index
//! into a list of values. One type, compiled once, where hash tables and sorted lists would each
//! add code.

#[derive(Clone, Debug)]
pub(super) struct SortedIndex(Vec<(u64, u64)>);

impl SortedIndex {
    pub(super) fn new(mut pairs: Vec<(u64, u64)>) -> SortedIndex {
        pairs.sort_unstable();
        SortedIndex(pairs)
    }

    /// Returns the index of each number, sorted by number.
    pub(super) fn places(numbers: impl Iterator<Item = u64>) -> SortedIndex {
        SortedIndex::new(numbers.zip(0..).collect())
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, (u64, u64)> {
        self.0.iter()
    }

    pub(super) fn of(&self, first: u64) -> &[(u64, u64)] {
        let from = &self.0[self.0.partition_point(|pair| pair.0 < first)..];
        &from[..from.partition_point(|pair| pair.0 == first)]
    }

    pub(super) fn get(&self, first: u64) -> Option<u64> {
        self.of(first).first().map(|pair| pair.1)
    }
}

#[cfg(test)]
mod tests {
    use super::SortedIndex;

    #[test]
    fn pairs_are_found_by_their_first_number() {
        let pairs = SortedIndex::new(vec![(7, 1), (3, 9), (7, 0), (5, 5), (3, 9)]);
        assert_eq!(pairs.of(7), [(7, 0), (7, 1)]);
        assert_eq!(pairs.of(3), [(3, 9), (3, 9)]);
        assert_eq!(pairs.get(7), Some(0));
        assert_eq!(pairs.get(5), Some(5));
        for absent in [0, 4, 6, 8, u64::MAX] {
            assert_eq!(pairs.of(absent), []);
            assert_eq!(pairs.get(absent), None);
        }
        let places = SortedIndex::places([7, 3, 7].into_iter());
        assert!(places.iter().eq(&[(3, 1), (7, 0), (7, 2)]));
    }
}

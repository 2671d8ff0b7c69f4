//! Sorted pairs of numbers: the lookup table of dumps, keyed by an address or an id.
//!
//! It is one type, compiled once, where hash tables and sorted lists of the values would each add
//! code. The second number is usually an index into a list of the values.

/// See the head of the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Pairs(Vec<(u64, u64)>);

impl Pairs {
    pub(super) fn new(mut pairs: Vec<(u64, u64)>) -> Pairs {
        pairs.sort_unstable();
        Pairs(pairs)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, (u64, u64)> {
        self.0.iter()
    }

    pub(super) fn at(&self, place: u64) -> (u64, u64) {
        self.0[place as usize]
    }

    /// Returns all pairs with this first number.
    pub(super) fn of(&self, first: u64) -> &[(u64, u64)] {
        let from = &self.0[self.0.partition_point(|pair| pair.0 < first)..];
        &from[..from.partition_point(|pair| pair.0 == first)]
    }

    /// Returns the second number of the first pair with this first number.
    pub(super) fn get(&self, first: u64) -> Option<u64> {
        self.of(first).first().map(|pair| pair.1)
    }

    /// Returns the pairs in groups with the same first number, sorted by that number.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[(u64, u64)]> {
        self.0.chunk_by(|one, next| one.0 == next.0)
    }

    /// Adds a pair, and returns whether it was new. (It shifts the pairs behind it: use it for few
    /// pairs.)
    pub(super) fn insert(&mut self, pair: (u64, u64)) -> bool {
        let place = self.0.binary_search(&pair);
        if let Err(place) = place {
            self.0.insert(place, pair);
        }
        place.is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::Pairs;

    #[test]
    fn pairs_are_found_by_their_first_number() {
        let pairs = Pairs::new(vec![(7, 1), (3, 9), (7, 0), (5, 5), (3, 9)]);
        assert_eq!(pairs.of(7), [(7, 0), (7, 1)]);
        assert_eq!(pairs.of(3), [(3, 9), (3, 9)]);
        assert_eq!(pairs.get(7), Some(0));
        assert_eq!(pairs.get(5), Some(5));
        for absent in [0, 4, 6, 8, u64::MAX] {
            assert_eq!(pairs.of(absent), []);
            assert_eq!(pairs.get(absent), None);
        }
        let lengths: Vec<usize> = pairs.groups().map(<[_]>::len).collect();
        assert_eq!(lengths, [2, 1, 2]);
    }

    #[test]
    fn a_pair_is_new_once() {
        let mut pairs = Pairs::default();
        let added = [(2, 0), (1, 5), (2, 0), (2, 1), (1, 5)].map(|pair| pairs.insert(pair));
        assert_eq!(added, [true, true, false, true, false]);
        assert!(pairs.iter().eq(&[(1, 5), (2, 0), (2, 1)]));
    }
}

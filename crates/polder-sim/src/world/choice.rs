//! The source of a world's randomness: one seed, and a stream of numbers for each label.
//!
//! Each decision (which host is next, what happens to the segments from one host to another) has
//! its own [`Stream`], derived from the seed and the decision's label. So a draw that is left out
//! shifts no other stream. Nothing here depends on the platform: integers only.
//!
//! A [fork](super::forks) sets a salt for all streams of its world: from then on each draws other
//! numbers, and none has to be found and changed.

use std::cell::Cell;

thread_local! {
    /// Changes all numbers that are drawn in this thread's world, unless it is zero.
    static SALT: Cell<u64> = const { Cell::new(0) };
}

/// Sets the salt of this thread's world; zero for none.
pub(super) fn set_salt(salt: u64) {
    SALT.set(salt);
}

/// xoshiro256** by Blackman and Vigna (<https://prng.di.unimi.it>), seeded by splitmix64, as its
/// authors recommend.
#[derive(Clone, Debug)]
pub(crate) struct Stream([u64; 4]);

/// Certainty. Probabilities are compared with the upper 53 bits of a number, the precision of an
/// `f64`.
const CERTAIN: u64 = 1 << 53;

/// A probability, in parts of 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Probability(u64);

impl Probability {
    /// Creates a probability. `None` unless `value` is from 0 to 1.
    pub(crate) fn new(value: f64) -> Option<Probability> {
        // Exact: a multiplication by a power of two. The conversion rounds toward zero everywhere.
        ((0.0..=1.0).contains(&value)).then_some(Probability((value * CERTAIN as f64) as u64))
    }

    /// Creates a probability of `parts` in ten thousand.
    pub(crate) fn of_ten_thousand(parts: u16) -> Probability {
        Probability(CERTAIN / 10_000 * u64::from(parts.min(10_000)))
    }

    /// Creates a probability of one in `times`, which must not be zero.
    pub(crate) fn one_in(times: u32) -> Probability {
        Probability(CERTAIN / u64::from(times))
    }

    pub(crate) fn is_certain(self) -> bool {
        self.0 == CERTAIN
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a hash of a number, which is unique to it.
pub(super) fn mix(number: u64) -> u64 {
    splitmix(&mut { number })
}

impl Stream {
    /// Creates the stream of a label, which is a word and two numbers.
    pub(crate) fn new(seed: u64, word: &str, a: usize, b: usize) -> Stream {
        let mut state = seed;
        let numbers = [a as u64, b as u64, word.len() as u64];
        for part in word.bytes().map(u64::from).chain(numbers) {
            state = splitmix(&mut state) ^ part;
        }
        Stream([(); 4].map(|()| splitmix(&mut state)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        match SALT.get() {
            0 => result,
            salt => mix(result ^ salt),
        }
    }

    /// Returns a number below `end`, which must not be zero. Takes one number of the stream. The
    /// bias is negligible: below 2^-32 for the ranges in use.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn happens(&mut self, probability: Probability) -> bool {
        self.next() >> 11 < probability.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the authors' C program for the state 1, 2, 3, 4.
    #[test]
    fn the_generator_is_xoshiro256_starstar() {
        let mut stream = Stream([1, 2, 3, 4]);
        let numbers = [(); 4].map(|()| stream.next());
        assert_eq!(
            numbers,
            [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]
        );
    }

    #[test]
    fn streams_of_other_labels_and_seeds_are_others() {
        let first = |seed, word, a, b| Stream::new(seed, word, a, b).next();
        let mut all = vec![
            first(1, "link", 1, 2),
            first(1, "link", 2, 1),
            first(1, "task", 1, 2),
            first(2, "link", 1, 2),
            first(0, "", 0, 0),
        ];
        assert_eq!(first(1, "link", 1, 2), all[0]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
    }

    /// Numbers stay below their end and probabilities hold at both ends.
    #[test]
    fn numbers_in_range_and_probability_bounds() {
        let mut stream = Stream::new(7, "test", 0, 0);
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            seen[stream.below(5) as usize] = true;
            assert_eq!(stream.below(1), 0);
            assert!(stream.happens(Probability::new(1.0).unwrap()));
            assert!(!stream.happens(Probability::new(0.0).unwrap()));
        }
        assert_eq!(seen, [true; 5]);
        let half = Probability::new(0.5).unwrap();
        let count = (0..10_000).filter(|_| stream.happens(half)).count();
        assert!((4_500..5_500).contains(&count), "{count}");
        assert!(Probability::new(1.1).is_none() && Probability::new(f64::NAN).is_none());
    }
}

//! [`Sites`]: the faults of a program's own, `buggify!`: which are on for a seed, and which strike.

use std::collections::BTreeMap;

use super::choice::Stream;
use super::faults::FIRST_WILD;

/// One fault of a program's own.
struct Site {
    /// Whether it is on for this seed.
    is_on: bool,
    /// For each host the stream, and how often it was asked for.
    hosts: BTreeMap<usize, (Stream, u64)>,
}

/// The faults of a program's own.
#[derive(Default)]
pub(crate) struct Sites {
    /// By name.
    list: BTreeMap<String, Site>,
    /// Whether none strikes any more.
    pub(crate) are_off: bool,
}

/// The inverse of two probabilities, that a site is on and that it strikes then: those of
/// FoundationDB's `BUGGIFY`.
const ONE_IN: u64 = 4;

impl Sites {
    /// Returns the number of this call for the fault of this name on a host, if the fault strikes.
    pub(super) fn strike(&mut self, name: &str, host: usize, seed: u64) -> Option<u64> {
        if seed < FIRST_WILD || self.are_off {
            return None;
        }
        if !self.list.contains_key(name) {
            let is_on = Stream::new(seed, name, 0, 0).below(ONE_IN) == 0;
            let hosts = BTreeMap::new();
            self.list.insert(name.to_owned(), Site { is_on, hosts });
        }
        let site = self.list.get_mut(name)?;
        let stream = || (Stream::new(seed, name, host, 1), 0);
        let (stream, nth) = site.hosts.entry(host).or_insert_with(stream);
        *nth += 1;
        (site.is_on && stream.below(ONE_IN) == 0).then_some(*nth)
    }
}

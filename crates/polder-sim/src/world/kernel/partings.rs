//! The beginning of a parting.

use super::Kernel;
use crate::world::parting::{How, Parting, PartingId};

/// The limit of pairs of hosts that are noted in traces: a picture of more is not readable.
const MAX_NOTED: usize = 64;

impl Kernel {
    /// Separates two sets of hosts from now on, in both directions, or delays what they send.
    pub(crate) fn part(&mut self, these: &[usize], others: &[usize], how: How) -> PartingId {
        self.network().settle_all();
        let core = &mut self.core;
        let pairs = these.iter().flat_map(|a| others.iter().map(|b| (*a, *b)));
        let pairs = pairs.filter(|(a, b)| a != b);
        let noted: Vec<(usize, usize)> = pairs.take(MAX_NOTED).collect();
        let [begins, _] = how.told();
        for (a, b) in &noted {
            core.note(*a, begins(*b));
        }
        let partings = &mut core.links.partings;
        partings.count += 1;
        let number = partings.count;
        let parting = Parting {
            these: these.iter().copied().collect(),
            others: others.iter().copied().collect(),
            is_one_way: false,
            how,
            is_told: false,
            noted,
        };
        partings.list.insert(number, parting);
        PartingId(number)
    }
}

//! Cuts and holds: which hosts do not reach each other now, or reach each other late.
//!
//! Each is kept as it was asked for, two sets of hosts, and whoever sends looks whether one of them
//! lies between: there are a few at a time, and may be a million pairs of hosts. They may overlap:
//! a way is open again when the last one has ended that parts it.

use super::event::What;
use super::link::Link;
use super::{Event, Kernel};

/// So many pairs of hosts that are cut off are told in traces: a picture of more shows nothing.
const MOST_NOTED: usize = 64;

/// A set of hosts, by their numbers.
#[derive(Debug, Default)]
struct Hosts(Vec<u64>);

impl Hosts {
    fn of(hosts: &[usize]) -> Hosts {
        let mut words = Vec::new();
        for host in hosts {
            words.resize(words.len().max(host / 64 + 1), 0);
            words[host / 64] |= 1 << (host % 64);
        }
        Hosts(words)
    }

    fn has(&self, host: usize) -> bool {
        let word = self.0.get(host / 64);
        word.is_some_and(|it| it >> (host % 64) & 1 != 0)
    }
}

/// A cut, or a hold, between two sets of hosts.
#[derive(Debug)]
struct Parting {
    number: u32,
    these: Hosts,
    others: Hosts,
    is_one_way: bool,
    /// What is sent is kept, and not lost.
    is_hold: bool,
    /// What the trace was told of, of a cut.
    noted: Vec<(usize, usize)>,
}

impl Parting {
    fn lies_between(&self, from: usize, to: usize) -> bool {
        let goes = self.these.has(from) && self.others.has(to);
        goes || !self.is_one_way && self.others.has(from) && self.these.has(to)
    }
}

/// Names a cut or a hold of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartingId(u32);

/// Those of a world.
#[derive(Debug, Default)]
pub(super) struct Partings {
    list: Vec<Parting>,
    /// How many there have been.
    count: u32,
}

impl Partings {
    pub(super) fn are_none(&self) -> bool {
        self.list.is_empty()
    }

    fn any(&self, from: usize, to: usize, is_hold: bool) -> bool {
        let mut of_kind = self.list.iter().filter(|it| it.is_hold == is_hold);
        of_kind.any(|it| it.lies_between(from, to))
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.any(from, to, false)
    }

    pub(super) fn is_held(&self, from: usize, to: usize) -> bool {
        self.any(from, to, true)
    }
}

impl Kernel {
    /// From now on these hosts do not reach the others, nor these them, or late.
    pub(crate) fn part(&mut self, these: &[usize], others: &[usize], is_hold: bool) -> PartingId {
        self.settle_all();
        let partings = &mut self.links.partings;
        partings.count += 1;
        let number = partings.count;
        let pairs = these.iter().flat_map(|a| others.iter().map(|b| (*a, *b)));
        let pairs = pairs.filter(|(a, b)| a != b && !is_hold);
        let noted: Vec<(usize, usize)> = pairs.take(MOST_NOTED).collect();
        partings.list.push(Parting {
            number,
            these: Hosts::of(these),
            others: Hosts::of(others),
            is_one_way: false,
            is_hold,
            noted: noted.clone(),
        });
        for (a, b) in noted {
            self.note(a, What::Cut(b));
        }
        PartingId(number)
    }

    /// What the others send to these arrives, unless something else is between them.
    pub(crate) fn make_one_way(&mut self, id: PartingId) {
        let mut list = self.links.partings.list.iter_mut();
        if let Some(parting) = list.find(|it| it.number == id.0) {
            parting.is_one_way = true;
            self.deliver_held();
        }
    }

    /// Nothing is between them any more. (It may have ended before, by [`heal_all`].)
    ///
    /// [`heal_all`]: Kernel::heal_all
    pub(crate) fn rejoin(&mut self, id: PartingId) {
        let list = &mut self.links.partings.list;
        let Some(place) = list.iter().position(|it| it.number == id.0) else {
            return;
        };
        let parting = list.remove(place);
        if parting.is_hold {
            self.deliver_held();
        }
        for (a, b) in parting.noted {
            self.note(a, What::Healed(b));
        }
    }

    pub(super) fn end_partings(&mut self) {
        self.links.partings.list.clear();
        self.deliver_held();
    }

    /// Delivers what was held where nothing holds it any more.
    fn deliver_held(&mut self) {
        let links = &mut self.links;
        let mut held: Vec<(u64, Event)> = Vec::new();
        for ((from, to), number) in &links.numbers {
            let link: &mut Link = &mut links.links[*number as usize - 1];
            if !link.held.is_empty() && !links.partings.is_held(*from, *to) {
                held.append(&mut link.held);
            }
        }
        // As it came, also over several links.
        held.sort_unstable_by_key(|it| it.0);
        for (_, event) in held {
            self.push(self.now, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parting_lies_between_its_hosts_and_no_others() {
        let mut parting = Parting {
            number: 1,
            these: Hosts::of(&[0, 63, 64]),
            others: Hosts::of(&[1, 200]),
            is_one_way: false,
            is_hold: false,
            noted: Vec::new(),
        };
        for is_one_way in [false, true] {
            parting.is_one_way = is_one_way;
            for (from, to) in [(0, 1), (63, 200), (64, 1)] {
                assert!(parting.lies_between(from, to));
                assert_eq!(parting.lies_between(to, from), !is_one_way);
            }
            for (from, to) in [(0, 63), (1, 200), (2, 1), (0, 2), (0, 500), (65, 200)] {
                assert!(!parting.lies_between(from, to));
                assert!(!parting.lies_between(to, from));
            }
        }
    }
}

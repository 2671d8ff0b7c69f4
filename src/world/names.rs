//! Names and their addresses: those of the hosts, and those that a test sets instead; and the
//! faults of the name server.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::Kernel;
use super::choice::{Probability, Stream};
use super::faults::{Fault, Kind};
use super::latency::Latency;
use super::link::DEFAULT_NAME_LATENCY;
use super::trace::What;

/// The address families of a host's own name, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Families {
    V4,
    V4AndV6,
    V6AndV4,
}

#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) latency: Latency,
    /// The families for names that the test has not set.
    pub(crate) families: Families,
    /// The probability that the name server does not answer.
    pub(crate) failure: Probability,
    /// The probability that it answers that there is no such name.
    pub(crate) missing: Probability,
    /// The probability that it answers with the addresses before the last change.
    pub(crate) stale: Probability,
    /// The probability that it gives the addresses in another order.
    pub(crate) reordered: Probability,
    /// The probability of any of the first three faults, by chaos.
    pub(super) by_chaos: Probability,
    /// The names that a test has set: the addresses now, and those before.
    records: BTreeMap<String, [Vec<IpAddr>; 2]>,
}

impl Names {
    pub(super) fn new() -> Names {
        Names {
            latency: DEFAULT_NAME_LATENCY,
            families: Families::V4,
            failure: Probability::default(),
            missing: Probability::default(),
            stale: Probability::default(),
            reordered: Probability::default(),
            by_chaos: Probability::default(),
            records: BTreeMap::new(),
        }
    }

    pub(crate) fn heal(&mut self) {
        (self.failure, self.missing) = Default::default();
        (self.stale, self.reordered) = Default::default();
    }
}

/// A host's choices for its name queries: how long they take, and which fail.
#[derive(Debug)]
pub(super) struct Questions {
    latency: Stream,
    faults: Stream,
    /// The choices by chaos.
    harm: Stream,
    asked: u64,
}

impl Questions {
    pub(super) fn new(seed: u64, host: usize) -> Questions {
        Questions {
            latency: Stream::new(seed, "names", host, 0),
            faults: Stream::new(seed, "faults of names", host, 0),
            harm: Stream::new(seed, "faults of names", host, 1),
            asked: 0,
        }
    }
}

/// The result of a query, and how long it takes.
pub(crate) struct Answer {
    pub(crate) addresses: io::Result<Vec<IpAddr>>,
    pub(crate) delay: Duration,
}

/// Looks up the addresses of a name. `None` outside of a world.
pub(crate) fn look_up(name: &str) -> Option<io::Result<Answer>> {
    super::with(|kernel| kernel.look_up(name))
}

impl Kernel {
    pub(crate) fn set_name(&mut self, name: &str, addresses: Vec<IpAddr>) {
        let name = name.to_ascii_lowercase();
        let before = self.addresses_of(&name);
        self.dns.records.insert(name, [addresses, before]);
        self.note(0, What::Renamed);
    }

    pub(crate) fn change_names(&mut self, f: impl FnOnce(&mut Names)) {
        f(&mut self.dns);
    }

    fn addresses_of(&self, name: &str) -> Vec<IpAddr> {
        let (v4, v6) = match (self.dns.records.get(name), self.names.get(name)) {
            (Some([now, _]), _) => return now.clone(),
            (None, Some(host)) => {
                let host = &self.hosts[*host];
                (host.address(false), host.address(true))
            }
            (None, None) if name == "localhost" => {
                (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into())
            }
            (None, None) => return Vec::new(),
        };
        match self.dns.families {
            Families::V4 => vec![v4],
            Families::V4AndV6 => vec![v4, v6],
            Families::V6AndV4 => vec![v6, v4],
        }
    }

    /// Rotates the addresses of a host's last query, if that fault happens, so that another address
    /// is the first. The numbers come from a stream that nothing else uses.
    fn reorder(&mut self, host: usize, addresses: &mut [IpAddr]) {
        let (probability, count) = (self.dns.reordered, addresses.len() as u64);
        if count < 2 || probability == Probability::default() {
            return;
        }
        let nth = self.hosts[host].questions.asked;
        let mut stream = Stream::new(self.seed, "order of addresses", host, nth as usize);
        let (happens, from) = (stream.happens(probability), 1 + stream.below(count - 1));
        let id = (Kind::Name, host as u32, 3, nth);
        let fault = || Fault {
            detail: "is answered in another order".to_owned(),
            ..Fault::new(id, self.now, vec![host], Vec::new())
        };
        if happens && (probability.is_certain() || self.faults.allow(id, fault)) {
            addresses.rotate_left(from as usize);
        }
    }

    /// Decides which of the three faults a host's query has: by the test's own probabilities, or by
    /// chaos, which adds one of them. A number is drawn for each fault, whether or not it happens.
    fn harm(&mut self, host: usize, name: &str) -> [bool; 3] {
        let has_record = self.dns.records.contains_key(name);
        let questions = &mut self.hosts[host].questions;
        questions.asked += 1;
        let nth = questions.asked;
        let own = [self.dns.failure, self.dns.missing, self.dns.stale];
        let mut happens = own.map(|it| questions.faults.happens(it));
        if self.dns.by_chaos != Probability::default() {
            let (is_harmed, which) = (
                questions.harm.happens(self.dns.by_chaos),
                questions.harm.below(3),
            );
            // The system's own hosts file answers for this name.
            happens[which as usize] |= is_harmed && name != "localhost";
        }
        // A name that was never set has no earlier addresses.
        happens[2] &= has_record;
        let words = ["is not answered", "finds none", "is answered as before"];
        for (which, happens) in happens.iter_mut().enumerate() {
            let id = (Kind::Name, host as u32, which as u32, nth);
            let fault = || Fault {
                detail: words[which].to_owned(),
                ..Fault::new(id, self.now, vec![host], Vec::new())
            };
            *happens = *happens && (own[which].is_certain() || self.faults.allow(id, fault));
        }
        happens
    }

    fn look_up(&mut self, name: &str) -> io::Result<Answer> {
        let (host, _) = self.here()?;
        // Names are compared without regard to case (RFC 4343).
        let (asked, name) = (name, &*name.to_ascii_lowercase());
        let questions = &mut self.hosts[host].questions;
        let latency = self.dns.latency;
        let drawn = latency.draw(&mut questions.latency);
        let delay = self.drawn_or_mean(drawn, latency);
        let [has_failed, is_missing, is_stale] = self.harm(host, name);
        self.note(host, What::Name(delay));
        let mut addresses = match self.dns.records.get(name) {
            _ if is_missing => Vec::new(),
            Some([_, before]) if is_stale => before.clone(),
            _ => self.addresses_of(name),
        };
        self.reorder(host, &mut addresses);
        let addresses = if has_failed {
            Err(io::Error::other(format!(
                "cannot resolve {asked:?}: the server of names does not answer"
            )))
        } else if addresses.is_empty() {
            Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("cannot resolve {asked:?}: no host has this name"),
            ))
        } else {
            Ok(addresses)
        };
        Ok(Answer {
            addresses,
            delay: Duration::from_nanos(delay),
        })
    }
}

//! Names and their addresses: those of the hosts, and what a test says instead; and the faults of
//! whoever serves them.

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

/// Which addresses of a host its own name has, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Families {
    V4,
    V4AndV6,
    V6AndV4,
}

#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) latency: Latency,
    /// Of names that the test has not set.
    pub(crate) families: Families,
    /// The server of names does not answer.
    pub(crate) failure: Probability,
    /// It says that there is no such name.
    pub(crate) missing: Probability,
    /// It answers what was so before the last change.
    pub(crate) stale: Probability,
    /// It gives the addresses in another order.
    pub(crate) reordered: Probability,
    /// Any of the first three, by chaos.
    pub(super) by_chaos: Probability,
    /// What a test has set: the addresses now, and those before.
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

/// Of a host: how long its questions take, and which fail.
#[derive(Debug)]
pub(super) struct Questions {
    latency: Stream,
    faults: Stream,
    /// What chaos does.
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

/// What a question comes to, and how long that takes.
pub(crate) struct Answer {
    pub(crate) addresses: io::Result<Vec<IpAddr>>,
    pub(crate) delay: Duration,
}

/// The addresses of a name. `None` outside of a world.
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

    /// Gives the addresses of a host's last question in another order, where that fault comes: from
    /// another one on, so that another one is the first. Its numbers are of a stream that nothing
    /// else has.
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

    /// Which of the three faults a question of this host's has: by the test's own probabilities, or
    /// by chaos, which has one of them. A number is drawn for each, whether or not it comes up.
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
            // The system's own file of hosts answers for this one.
            happens[which as usize] |= is_harmed && name != "localhost";
        }
        // What was never set was never otherwise.
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
        let addresses = match addresses.is_empty() {
            _ if has_failed => Err(io::Error::other(format!(
                "cannot resolve {asked:?}: the server of names does not answer"
            ))),
            true => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("cannot resolve {asked:?}: no host has this name"),
            )),
            false => Ok(addresses),
        };
        Ok(Answer {
            addresses,
            delay: Duration::from_nanos(delay),
        })
    }
}

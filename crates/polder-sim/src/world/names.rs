//! Names and their addresses: those of the hosts, and those that a test sets instead; and the
//! faults of the name server.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::choice::{Probability, Stream};
use super::core::Core;
use super::faults::Kind;
use super::hosts::{Hosts, loopback};
use super::latency::Latency;
use super::link::DEFAULT_NAME_LATENCY;
use super::trace_event::TraceEvent;

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
    /// The names that a test has set: the addresses now, and those before.
    records: BTreeMap<String, [Vec<IpAddr>; 2]>,
    seed: u64,
    /// By host; those that have made a query.
    questions: BTreeMap<usize, Questions>,
}

impl Names {
    pub(super) fn new(seed: u64) -> Names {
        Names {
            latency: DEFAULT_NAME_LATENCY,
            families: Families::V4,
            failure: Probability::default(),
            missing: Probability::default(),
            stale: Probability::default(),
            reordered: Probability::default(),
            records: BTreeMap::new(),
            seed,
            questions: BTreeMap::new(),
        }
    }

    pub(super) fn heal(&mut self) {
        (self.failure, self.missing) = Default::default();
        (self.stale, self.reordered) = Default::default();
    }

    /// Sets the addresses of a name, from now on.
    pub(crate) fn set(&mut self, name: &str, addresses: Vec<IpAddr>, core: &mut Core) {
        let name = name.to_ascii_lowercase();
        let before = self.addresses_of(&name, &core.hosts);
        self.records.insert(name, [addresses, before]);
        core.note(0, TraceEvent::Renamed);
    }

    fn addresses_of(&self, name: &str, hosts: &Hosts) -> Vec<IpAddr> {
        let [v4, v6] = match (self.records.get(name), hosts.find(name)) {
            (Some([now, _]), _) => return now.clone(),
            (None, Some(host)) => [false, true].map(|is_v6| hosts.address(host, is_v6)),
            (None, None) if name == "localhost" => [false, true].map(loopback),
            (None, None) => return parse_number(name).into_iter().map(IpAddr::from).collect(),
        };
        match self.families {
            Families::V4 => vec![v4],
            Families::V4AndV6 => vec![v4, v6],
            Families::V6AndV4 => vec![v6, v4],
        }
    }

    fn questions_of(&mut self, host: usize) -> &mut Questions {
        let stream = |word, nth| Stream::new(self.seed, word, host, nth);
        self.questions.entry(host).or_insert_with(|| Questions {
            latency: stream("names", 0),
            faults: stream("faults of names", 0),
            by_chaos: stream("faults of names", 1),
            asked: 0,
        })
    }

    /// Rotates the addresses of a host's last query, if that fault happens, so that another address
    /// is the first. The numbers come from a stream that nothing else uses.
    fn reorder(&mut self, host: usize, addresses: &mut [IpAddr], core: &mut Core) {
        let (probability, count) = (self.reordered, addresses.len() as u64);
        if count < 2 || probability == Probability::default() {
            return;
        }
        let nth = self.questions_of(host).asked;
        let mut stream = Stream::new(self.seed, "order of addresses", host, nth as usize);
        let (happens, from) = (stream.happens(probability), 1 + stream.below(count - 1));
        let id = (Kind::Name, host as u32, 3, nth);
        let now = core.time.now();
        let words = || "is answered in another order".to_owned();
        if happens && (probability.is_certain() || core.faults.allow_one(id, now, words)) {
            addresses.rotate_left(from as usize);
        }
    }

    /// Decides which of the three faults a host's query has: by the test's own probabilities, or by
    /// chaos, which adds one of them. A number is drawn for each fault, whether or not it happens.
    fn draw_faults(&mut self, host: usize, name: &str, core: &mut Core) -> [bool; 3] {
        let has_record = self.records.contains_key(name);
        let own = [self.failure, self.missing, self.stale];
        // Chaos has one probability for the three of them.
        let by_chaos = core.faults.rate(Kind::Name, Probability::default());
        let questions = self.questions_of(host);
        questions.asked += 1;
        let nth = questions.asked;
        let mut happens = own.map(|probability| questions.faults.happens(probability));
        if by_chaos != Probability::default() {
            let stream = &mut questions.by_chaos;
            let (has_fault, which) = (stream.happens(by_chaos), stream.below(3));
            // The system's own hosts file answers for this name.
            happens[which as usize] |= has_fault && name != "localhost";
        }
        // A name that was never set has no earlier addresses.
        happens[2] &= has_record;
        let words = ["is not answered", "finds none", "is answered as before"];
        for (which, happens) in happens.iter_mut().enumerate() {
            let id = (Kind::Name, host as u32, which as u32, nth);
            let (now, detail) = (core.time.now(), || words[which].to_owned());
            *happens =
                *happens && (own[which].is_certain() || core.faults.allow_one(id, now, detail));
        }
        happens
    }

    /// Looks up the addresses of a name, for the running process.
    pub(crate) fn look_up(&mut self, name: &str, core: &mut Core) -> io::Result<Answer> {
        let (host, _) = core.processes.here()?;
        // Names are compared without regard to case (RFC 4343).
        let (asked, name) = (name, &*name.to_ascii_lowercase());
        let latency = self.latency;
        let stream = &mut self.questions_of(host).latency;
        let delay = latency.draw(stream, core.is_calm);
        let [has_failed, is_missing, is_stale] = self.draw_faults(host, name, core);
        core.note(host, TraceEvent::Name(delay));
        let mut addresses = match self.records.get(name) {
            _ if is_missing => Vec::new(),
            Some([_, before]) if is_stale => before.clone(),
            _ => self.addresses_of(name, &core.hosts),
        };
        self.reorder(host, &mut addresses, core);
        let addresses = if has_failed {
            Err(io::Error::other(format!(
                "cannot resolve {asked:?}: the server of names does not answer"
            )))
        } else if addresses.is_empty() {
            // As std's lookup, its kind is not `NotFound`.
            Err(io::Error::other(format!(
                "cannot resolve {asked:?}: no host has this name"
            )))
        } else {
            Ok(addresses)
        };
        Ok(Answer {
            addresses,
            delay: Duration::from_nanos(delay),
        })
    }
}

/// A host's choices for its name queries: how long they take, and which fail.
#[derive(Debug)]
struct Questions {
    latency: Stream,
    faults: Stream,
    /// The choices by chaos.
    by_chaos: Stream,
    asked: u64,
}

/// The result of a query, and how long it takes.
pub(crate) struct Answer {
    pub(crate) addresses: io::Result<Vec<IpAddr>>,
    pub(crate) delay: Duration,
}

/// Parses a number in the way of inet_aton(3): one to four parts, in decimal, octal or hexadecimal,
/// the last of which stands for all bytes that are left.
fn parse_number(text: &str) -> Option<Ipv4Addr> {
    let part = |part: &str| match part.strip_prefix("0x").or(part.strip_prefix("0X")) {
        _ if part.contains('+') => None,
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    };
    let parts: Vec<u32> = text.split('.').map(part).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    let is_in_range = first.len() < 4
        && first.iter().all(|part| *part < 256)
        && u64::from(*last) < 1 << (32 - 8 * first.len());
    let shifted = first.iter().zip([24, 16, 8]);
    let sum = shifted.fold(*last, |sum, (part, by)| sum | part << by);
    is_in_range.then(|| sum.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name has the addresses that were set or those of its host.
    #[test]
    fn name_has_set_addresses_or_its_hosts() {
        let (mut names, mut core) = (Names::new(1), Core::of_test(1));
        core.add_host("Web");
        let web = |names: &Names, core: &Core| names.addresses_of("web", &core.hosts);
        let [v4, v6] = [false, true].map(|is_v6| core.hosts.address(0, is_v6));
        assert_eq!(web(&names, &core), [v4]);
        names.families = Families::V6AndV4;
        assert_eq!(web(&names, &core), [v6, v4]);
        let other = IpAddr::from([10, 0, 0, 9]);
        names.set("WEB", vec![other], &mut core);
        assert_eq!(web(&names, &core), [other]);
        assert_eq!(names.records["web"], [vec![other], vec![v6, v4]]);
        assert!(names.addresses_of("none", &core.hosts).is_empty());
        assert_eq!(names.addresses_of("localhost", &core.hosts).len(), 2);
    }

    /// A query has the faults that are certain and others only if they can be.
    #[test]
    fn query_faults_certain_or_possible() {
        let (mut names, mut core) = (Names::new(1), Core::of_test(1));
        names.stale = Probability::new(1.0).unwrap();
        let drawn = names.draw_faults(4, "web", &mut core);
        assert_eq!(drawn, [false; 3], "it has no earlier addresses");
        names.set("web", Vec::new(), &mut core);
        names.failure = names.stale;
        assert_eq!(names.draw_faults(4, "web", &mut core), [true, false, true]);
        names.heal();
        assert_eq!(names.draw_faults(4, "web", &mut core), [false; 3]);
        assert_eq!(names.questions[&4].asked, 3);
    }
}

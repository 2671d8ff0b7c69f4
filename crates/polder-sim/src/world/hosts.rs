//! [`Hosts`]: the hosts of a world, by number: their names, addresses and ports, and the limits of
//! what a host may send.
//!
//! A host's clock, faults, disk and sockets are in the parts that have their rules.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::errno::Errno;

/// The ephemeral ports, assigned to sockets that ask for none: Linux's `ip_local_port_range`.
pub(super) const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// The limit of what a host may send at one moment, in datagrams counted by KiB: beyond it the host
/// is in a livelock. It equals the default limit of a world's steps at one moment, and amounts to
/// at most 100 MB.
const MAX_SENT: usize = 100_000;

/// A host that does not exist: segments to it are lost. The number is the same on every platform,
/// because it is part of fingerprints.
pub(super) const NOBODY: usize = u32::MAX as usize;

/// The number of the test's own host, which is the first one.
pub(crate) const TEST: usize = 0;

#[derive(Default)]
pub(crate) struct Hosts {
    list: Vec<Host>,
    /// By name, in lower case.
    numbers: BTreeMap<String, usize>,
    /// The addresses that a test has added, with their hosts.
    added: BTreeMap<IpAddr, usize>,
    /// The gateways of the hosts that are behind one.
    gateways: BTreeMap<usize, usize>,
    /// The limits per second of a host's connects and datagrams, if there are any.
    pub(crate) max_connects: Option<u32>,
    pub(crate) max_datagrams: Option<u32>,
}

struct Host {
    name: String,
    is_up: bool,
    /// Those of a second.
    connects: Count,
    datagrams: Count,
    /// The datagrams and connects of a moment, by KiB.
    sent: Count,
    next_port: u16,
}

/// A count of something at one time: in a second, or at a moment.
#[derive(Default)]
struct Count {
    at: u64,
    count: usize,
}

impl Count {
    /// Counts `more` at that time. Returns the count since that time has begun.
    fn add(&mut self, at: u64, more: usize) -> usize {
        if std::mem::replace(&mut self.at, at) != at {
            self.count = 0;
        }
        self.count += more;
        self.count
    }
}

/// Returns the address by which each host reaches itself.
pub(super) fn loopback(is_v6: bool) -> IpAddr {
    if is_v6 {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    }
}

/// Returns whether an address has a meaning of its own, or is one that hosts get by their numbers.
fn is_reserved(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let is_given = ip.octets()[..2] == [10, 0] || ip == Ipv4Addr::new(10, 255, 255, 255);
            let is_special = ip.is_unspecified() || ip.is_loopback() || ip.is_broadcast();
            is_given || is_special || ip.is_multicast()
        }
        IpAddr::V6(v6) => {
            let is_given = v6.segments()[..7] == [0xfd00, 0, 0, 0, 0, 0, 0];
            let is_special = v6.is_unspecified() || v6.is_loopback() || ip.to_canonical() != ip;
            is_given || is_special || v6.is_multicast()
        }
    }
}

/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

impl Hosts {
    /// Adds a host, which has another name than those before. Returns its number.
    pub(super) fn add(&mut self, name: &str) -> usize {
        let index = self.list.len();
        assert!(
            index < usize::from(u16::MAX),
            "polder_sim: a world has 65,535 hosts at most"
        );
        self.list.push(Host {
            name: name.to_owned(),
            is_up: true,
            connects: Count::default(),
            datagrams: Count::default(),
            sent: Count::default(),
            next_port: *PORTS.start(),
        });
        self.numbers.insert(name.to_ascii_lowercase(), index);
        index
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.numbers.get(&name.to_ascii_lowercase()).copied()
    }

    pub(crate) fn name(&self, host: usize) -> &str {
        self.list.get(host).map_or("nobody", |host| &host.name)
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn address(&self, host: usize, is_v6: bool) -> IpAddr {
        assert!(host < self.list.len());
        let number = host as u16 + 1;
        let [high, low] = number.to_be_bytes();
        if is_v6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number).into()
        } else {
            Ipv4Addr::new(10, 0, high, low).into()
        }
    }

    /// Adds an address to a host. Returns why that is not possible, if it is not.
    pub(crate) fn add_address(&mut self, host: usize, ip: IpAddr) -> Result<(), String> {
        if is_reserved(ip) {
            return Err(format!("{ip} cannot be added to a host"));
        }
        match *self.added.entry(ip).or_insert(host) {
            owner if owner == host => Ok(()),
            owner => Err(format!("{:?} has the address {ip}", self.name(owner))),
        }
    }

    /// Puts a host into the private network of a gateway, or moves it there. Returns why that is
    /// not possible, if it is not.
    pub(crate) fn set_gateway(&mut self, host: usize, gateway: usize) -> Result<(), String> {
        let above = |at: &usize| self.gateways.get(at).copied();
        let is_its_own = std::iter::successors(Some(gateway), above).any(|at| at == host);
        if gateway == TEST || is_its_own {
            let [name, gateway] = [host, gateway].map(|host| self.name(host));
            let cause = "it runs the test, or is behind that host itself";
            return Err(format!(
                "{gateway:?} cannot be the gateway of {name:?}: {cause}"
            ));
        }
        self.gateways.insert(host, gateway);
        Ok(())
    }

    /// Returns whether messages may be for another host than the one at which they arrive.
    #[inline]
    pub(super) fn have_gateways(&self) -> bool {
        !self.gateways.is_empty()
    }

    /// Returns whether a host is directly behind this gateway.
    pub(super) fn is_behind(&self, host: usize, gateway: usize) -> bool {
        self.gateways.get(&host) == Some(&gateway)
    }

    /// Returns the next hop of a message between two hosts: the second one, if they are neighbors;
    /// the gateway of the first one, if it has one. No host reaches a private network from outside.
    pub(super) fn next_hop(&self, from: usize, to: usize) -> usize {
        if !self.have_gateways() || from == to {
            return to; // The common case.
        }
        let [above, below] = [from, to].map(|host| self.gateways.get(&host).copied());
        if above == below || below == Some(from) {
            to
        } else {
            above.unwrap_or(NOBODY)
        }
    }

    /// Returns the address from which a socket sends that is bound to none, as Linux's routes say:
    /// a host reaches itself from the address that it is reached at, loopback from the first
    /// address there, and other hosts from its own first address.
    pub(super) fn source(&self, host: usize, (to, ip): (usize, IpAddr)) -> IpAddr {
        if ip.is_loopback() {
            loopback(ip.is_ipv6())
        } else if to == host {
            ip
        } else {
            self.address(host, ip.is_ipv6())
        }
    }

    pub(crate) fn is_up(&self, host: usize) -> bool {
        self.list.get(host).is_some_and(|host| host.is_up)
    }

    pub(crate) fn set_up(&mut self, host: usize, is_up: bool) {
        self.list[host].is_up = is_up;
    }

    /// Returns the next hop on the way from a host to an address, and the address: see
    /// [`owner`](Self::owner).
    pub(super) fn locate(&self, host: usize, address: SocketAddr) -> (usize, SocketAddr) {
        let (owner, address) = self.owner(host, address);
        (self.next_hop(host, owner), address)
    }

    /// Returns the host that has an address, seen from `host`; and the address. One of IPv4 that is
    /// mapped to IPv6 is that of IPv4.
    pub(super) fn owner(&self, host: usize, mut address: SocketAddr) -> (usize, SocketAddr) {
        let ip = address.ip().to_canonical();
        if ip.is_unspecified() {
            return (
                host,
                SocketAddr::new(loopback(ip.is_ipv6()), address.port()),
            );
        }
        address.set_ip(ip);
        if ip.is_loopback() {
            return (host, address);
        }
        let number = match ip {
            IpAddr::V4(ip) => u16::from_be_bytes([ip.octets()[2], ip.octets()[3]]),
            IpAddr::V6(ip) => ip.segments()[7],
        };
        let index = usize::from(number).wrapping_sub(1);
        let is_that = index < self.list.len() && self.address(index, ip.is_ipv6()) == ip;
        if is_that {
            return (index, address);
        }
        (self.added.get(&ip).copied().unwrap_or(NOBODY), address)
    }

    /// Returns whether a socket of a host may be bound to an address.
    pub(super) fn may_bind(&self, host: usize, local: SocketAddr) -> bool {
        local.ip().is_unspecified() || self.locate(host, local).0 == host
    }

    /// Returns a host's next ephemeral port that is free.
    pub(super) fn free_port(
        &mut self,
        host: usize,
        is_free: impl Fn(u16) -> bool,
    ) -> io::Result<u16> {
        let next = &mut self.list[host].next_port;
        for _ in PORTS {
            let port = *next;
            *next = if port == *PORTS.end() {
                *PORTS.start()
            } else {
                port + 1
            };
            if is_free(port) {
                return Ok(port);
            }
        }
        Err(Errno::ADDRNOTAVAIL.into())
    }
}

/// A limit that a host has exceeded, which fails the run.
pub(super) struct Excess {
    pub(super) cause: String,
    pub(super) reason: String,
}

/// The limits of what a host sends.
impl Hosts {
    /// Counts a datagram of `bytes` bytes, or a connect, among those of this moment.
    pub(super) fn count_sent(&mut self, host: usize, bytes: usize, now: u64) -> Option<Excess> {
        let Host { sent, name, .. } = &mut self.list[host];
        (sent.add(now, 1 + bytes / 1_024) > MAX_SENT).then(|| {
            let cause = format!("livelock: {name:?} sends without any time passing");
            let reason = format!("{cause}: a loop that neither sleeps nor waits for an answer");
            Excess { cause, reason }
        })
    }

    /// Counts a connect among those of this second.
    pub(super) fn count_connect(&mut self, host: usize, now: u64) -> Option<Excess> {
        let Host { connects, name, .. } = &mut self.list[host];
        let count = connects.add(now / SECOND, 1);
        let max = self.max_connects.filter(|max| count > *max as usize)?;
        let cause = format!("retry storm: {name:?} connects too often");
        let reason = format!("{cause}: more than {max} times within a second");
        Some(Excess { cause, reason })
    }

    /// Counts a datagram among those of this second.
    pub(super) fn count_datagram(&mut self, host: usize, now: u64) -> Option<Excess> {
        let Host {
            datagrams, name, ..
        } = &mut self.list[host];
        let count = datagrams.add(now / SECOND, 1);
        let max = self.max_datagrams.filter(|max| count > *max as usize)?;
        let cause = format!("storm: {name:?} sends too many datagrams");
        let reason = format!("{cause}: more than {max} within a second");
        Some(Excess { cause, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::Core;
    use super::*;

    impl Hosts {
        pub(in crate::world) fn set_next_port(&mut self, host: usize, port: u16) {
            self.list[host].next_port = port;
        }
    }

    fn two() -> Hosts {
        let mut hosts = Hosts::default();
        assert_eq!(["Near", "far"].map(|name| hosts.add(name)), [0, 1]);
        hosts
    }

    /// A host is found by its name and by its addresses.
    #[test]
    fn host_found_by_name_and_addresses() {
        let hosts = two();
        assert_eq!((hosts.find("nEAR"), hosts.find("none")), (Some(0), None));
        assert_eq!((hosts.name(1), hosts.name(NOBODY)), ("far", "nobody"));
        assert!(hosts.is_up(1) && !hosts.is_up(NOBODY));
        for is_v6 in [false, true] {
            let far = SocketAddr::new(hosts.address(1, is_v6), 80);
            assert_eq!(hosts.locate(0, far), (1, far));
            assert!(hosts.may_bind(1, far) && !hosts.may_bind(0, far));
        }
        let nowhere = SocketAddr::from(([10, 0, 0, 3], 80));
        assert_eq!(hosts.locate(0, nowhere), (NOBODY, nowhere));
        let any = SocketAddr::from(([0, 0, 0, 0], 80));
        assert_eq!(hosts.locate(1, any), (1, ([127, 0, 0, 1], 80).into()));
        assert!(hosts.may_bind(0, any));
    }

    #[test]
    fn an_address_is_added_to_one_host() {
        let mut hosts = two();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for added in ["10.1.0.1", "192.0.2.1", "fd01::1"].map(ip) {
            for _ in 0..2 {
                assert_eq!(hosts.add_address(1, added), Ok(()));
            }
            assert!(hosts.add_address(0, added).is_err());
            let at = SocketAddr::new(added, 80);
            assert_eq!(hosts.locate(0, at), (1, at));
            assert!(hosts.may_bind(1, at) && !hosts.may_bind(0, at));
            assert_eq!(hosts.source(1, (1, added)), added);
            assert_eq!(
                hosts.source(0, (1, added)),
                hosts.address(0, added.is_ipv6())
            );
        }
        let near = ip("127.0.0.2");
        assert_eq!(hosts.source(0, (0, near)), ip("127.0.0.1"));
        for reserved in [
            "10.0.0.9",
            "10.255.255.255",
            "0.0.0.0",
            "127.0.0.2",
            "224.0.0.1",
            "::1",
        ] {
            assert!(hosts.add_address(1, ip(reserved)).is_err(), "{reserved}");
        }
        for reserved in [
            "fd00::9",
            "::ffff:192.0.2.9",
            "255.255.255.255",
            "ff02::1",
            "::",
        ] {
            assert!(hosts.add_address(1, ip(reserved)).is_err(), "{reserved}");
        }
    }

    /// A host reaches its neighbors and others by its gateway.
    #[test]
    fn host_reaches_neighbors_others_by_gateway() {
        let mut hosts = two();
        let [inside, beside, within, gate] =
            ["in", "beside", "within", "gate"].map(|name| hosts.add(name));
        let far = 1;
        for (host, gateway) in [(inside, gate), (beside, gate), (within, inside)] {
            assert_eq!(hosts.set_gateway(host, gateway), Ok(()));
        }
        for (host, gateway) in [(gate, gate), (gate, inside), (gate, within), (far, TEST)] {
            assert!(hosts.set_gateway(host, gateway).is_err());
        }
        for (from, to, next) in [
            (TEST, far, far),
            (far, gate, gate),
            (far, inside, NOBODY),
            (far, within, NOBODY),
            (gate, far, far),
            (gate, beside, beside),
            (gate, within, NOBODY),
            (inside, beside, beside),
            (inside, gate, gate),
            (inside, far, gate),
            (inside, NOBODY, gate),
            (inside, within, within),
            (beside, within, gate),
            (within, inside, inside),
            (within, far, inside),
            (within, within, within),
        ] {
            assert_eq!(hosts.next_hop(from, to), next, "{from} {to}");
        }
        let to = SocketAddr::new(hosts.address(far, false), 80);
        assert_eq!(hosts.locate(within, to), (inside, to));
        assert!(!hosts.may_bind(within, to));
    }

    #[test]
    fn ports_come_in_a_circle() {
        let mut hosts = two();
        let any = |hosts: &mut Hosts, host| hosts.free_port(host, |_| true).ok();
        assert_eq!(
            [(); 2].map(|()| any(&mut hosts, 0)),
            [Some(32_768), Some(32_769)]
        );
        hosts.set_next_port(0, *PORTS.end());
        assert_eq!(
            [(); 2].map(|()| any(&mut hosts, 0)),
            [Some(60_999), Some(32_768)]
        );
        let free = |hosts: &mut Hosts, free| hosts.free_port(1, |port| port == free).ok();
        assert_eq!(free(&mut hosts, 40_000), Some(40_000));
        assert_eq!(free(&mut hosts, 1), None);
        assert_eq!(any(&mut hosts, 1), Some(40_001));
    }

    #[test]
    fn a_storm_fails_the_run_at_the_limit_of_a_second() {
        let mut core = Core::of_test(1);
        core.hosts = two();
        (core.hosts.max_connects, core.hosts.max_datagrams) = (Some(2), Some(2));
        for now in [0, 1, 1_000_000_000, 1_000_000_001] {
            core.set_now(now);
            core.count_connect(0);
            core.count_datagram(0);
        }
        assert!(core.report.failure.is_none());
        core.set_now(1_999_999_999);
        core.count_connect(0);
        let failure = core.report.failure.as_ref();
        let failure = failure.expect("three within a second");
        assert_eq!(failure.cause, "retry storm: \"Near\" connects too often");
        assert!(core.count_sent(1, 1_024 * (MAX_SENT - 1)));
        assert!(!core.count_sent(1, 0));
        core.set_now(2_000_000_000);
        assert!(core.count_sent(1, 0));
    }
}

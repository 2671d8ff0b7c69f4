//! [`Nat`]: network address translation at the gateways of private networks, as Linux's
//! masquerading does it.
//!
//! A host behind a gateway reaches the outside through it. There a message gets the gateway's own
//! address as its source, with a port that stands for the inside address of its sender. A *flow* is
//! the messages from one inside address to one remote address, and back: only messages from there
//! are translated back and passed on. All flows of an inside address have the same port, while any
//! of them exists. (In the terms of RFC 4787: endpoint-independent mapping, address and
//! port-dependent filtering.) A flow that is idle ends. That is noticed when a message looks for
//! it: there is no event for it.
//!
//! [`Hosts::locate`](super::hosts::Hosts::locate) finds the next hop to an address. A message that
//! arrives at a host without its destination address is forwarded, if it comes from a host directly
//! behind this one. A message that is translated back goes to such a host, or is lost. So messages
//! go up, and then only down: none circles.
//!
//! Differences from Linux: a port of the gateway stands for one inside address at a time, even if
//! the remote addresses differ; if a socket of the gateway is bound to such a port, the flows lose
//! it, and not the socket; a message from outside without a flow begins none, as it is for the
//! gateway's own sockets; and a flow of TCP ends 60 s after a FIN or RST in all cases.

use std::net::SocketAddr;

use super::address::End;
use super::core::Core;
use super::ports::{Ports, Protocol};

const SECOND: u64 = 1_000_000_000;

/// The idle times after which a flow ends, by Linux's names: `nf_conntrack_udp_timeout`,
/// `udp_timeout_stream`, `tcp_timeout_syn_sent`, `tcp_timeout_established`, and
/// `tcp_timeout_close_wait`, here after the first FIN or RST.
const UDP: u64 = 30 * SECOND;
const UDP_STREAM: u64 = 120 * SECOND;
const TCP_UNANSWERED: u64 = 120 * SECOND;
const TCP_ESTABLISHED: u64 = 5 * 24 * 3_600 * SECOND;
const TCP_CLOSING: u64 = 60 * SECOND;

/// The age at which a flow of UDP with answers becomes a stream: Linux's nf_conntrack_udp_packet().
const STREAM_AGE: u64 = 2 * SECOND;

/// The effect of a message on its flow, by the kind of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Syn,
    /// Begins a flow, too: Linux picks up connections that it does not know
    /// (`nf_conntrack_tcp_loose`).
    Other,
    /// Begins none.
    FinOrRst,
    /// An error message: begins none, and does not keep one.
    Icmp,
}

/// The route of a message from the host at which it has arrived.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Route<'a> {
    /// It is for the host itself.
    Here,
    /// It goes on, with this source and destination, not to arrive before the last number: the
    /// arrival time of the message before it.
    On(End, End, &'a mut u64),
    /// It goes nowhere from there.
    Lost,
}

/// The flows through all gateways, in the order in which they have begun.
#[derive(Debug, Default)]
pub(super) struct Nat(Vec<Flow>);

#[derive(Debug)]
struct Flow {
    protocol: Protocol,
    inside: SocketAddr,
    /// The gateway, and its address that stands for the inside one.
    outside: End,
    remote: SocketAddr,
    begun: u64,
    /// The time at which it ends, unless there is another message before.
    until: u64,
    is_answered: bool,
    is_closing: bool,
    /// The arrival times of the last messages to the outside and to the inside.
    arrivals: [u64; 2],
}

impl Flow {
    fn has(&self, protocol: Protocol, (host, port): (usize, u16)) -> bool {
        (self.protocol, self.outside.0, self.outside.1.port()) == (protocol, host, port)
    }

    fn note(&mut self, effect: Effect, is_answer: bool, now: u64) {
        match effect {
            // A new connection of the same addresses.
            Effect::Syn if self.is_closing => (self.is_closing, self.is_answered) = (false, false),
            Effect::Syn | Effect::Other => {}
            Effect::FinOrRst => self.is_closing = true,
            Effect::Icmp => return,
        }
        self.is_answered |= is_answer;
        let is_stream = self.is_answered && now - self.begun >= STREAM_AGE;
        self.until = now
            + match self.protocol {
                Protocol::Udp if is_stream => UDP_STREAM,
                Protocol::Udp => UDP,
                Protocol::Tcp if self.is_closing => TCP_CLOSING,
                Protocol::Tcp if self.is_answered => TCP_ESTABLISHED,
                Protocol::Tcp => TCP_UNANSWERED,
            };
    }
}

impl Nat {
    /// Returns the route of a message that has arrived at `to`, and notes it in its flow. `ports`
    /// are those of the gateway's own sockets.
    pub(super) fn route(
        &mut self,
        (protocol, effect): (Protocol, Effect),
        from: End,
        to: End,
        core: &mut Core,
        ports: &Ports,
    ) -> Route<'_> {
        let (now, gateway) = (core.time.now(), to.0);
        let next = core.hosts.locate(gateway, to.1);
        if next.0 == gateway {
            let Some(place) = self.find(protocol, true, from.1, to, now) else {
                return Route::Here;
            };
            let flow = &mut self.0[place];
            let next = core.hosts.locate(gateway, flow.inside);
            if !core.hosts.is_behind(next.0, gateway) {
                return Route::Lost; // The host has moved.
            }
            flow.note(effect, true, now);
            return Route::On((gateway, from.1), next, &mut flow.arrivals[1]);
        }
        let begins = !matches!(effect, Effect::FinOrRst | Effect::Icmp);
        let place = match self.find(protocol, false, from.1, to, now) {
            _ if !core.hosts.is_behind(from.0, gateway) => None,
            None if begins => self.begin(protocol, from.1, to, core, ports),
            place => place,
        };
        let Some(place) = place else {
            return Route::Lost;
        };
        let flow = &mut self.0[place];
        flow.note(effect, false, now);
        Route::On(flow.outside, next, &mut flow.arrivals[0])
    }

    /// Returns the source and the destination of a message after the gateway that `to` names has
    /// translated one of them. They are the same if it has no flow for the message.
    pub(super) fn translated(
        &self,
        protocol: Protocol,
        from: SocketAddr,
        to: End,
        now: u64,
    ) -> (SocketAddr, SocketAddr) {
        let [out, back] = [false, true].map(|is_answer| {
            let place = self.find(protocol, is_answer, from, to, now)?;
            Some(&self.0[place])
        });
        (
            out.map_or(from, |flow| flow.outside.1),
            back.map_or(to.1, |flow| flow.inside),
        )
    }

    /// Returns the place of the flow of a message that has arrived at the gateway that `to` names:
    /// of an answer, or of a message from inside.
    fn find(
        &self,
        protocol: Protocol,
        is_answer: bool,
        from: SocketAddr,
        to: End,
        now: u64,
    ) -> Option<usize> {
        self.0.iter().position(|flow| {
            let is_between = if is_answer {
                (flow.remote, flow.outside) == (from, to)
            } else {
                (flow.inside, flow.outside.0, flow.remote) == (from, to.0, to.1)
            };
            is_between && flow.protocol == protocol && now < flow.until
        })
    }

    /// Begins a flow, and forgets those that have ended. Returns its place; `None` if no port is
    /// left.
    fn begin(
        &mut self,
        protocol: Protocol,
        inside: SocketAddr,
        (gateway, remote): End,
        core: &mut Core,
        ports: &Ports,
    ) -> Option<usize> {
        let now = core.time.now();
        self.0.retain(|flow| now < flow.until);
        let ip = core.hosts.address(gateway, inside.is_ipv6());
        let mut others = self.0.iter().filter(|flow| flow.outside.0 == gateway);
        let other = others.find(|flow| (flow.protocol, flow.inside) == (protocol, inside));
        let is_free = |port| {
            let outside = (gateway, SocketAddr::new(ip, port));
            let mut others = self.0.iter().map(|flow| (flow.protocol, flow.outside));
            others.all(|other| other != (protocol, outside))
                && ports.is_free(protocol, (gateway, port))
        };
        let port = match other {
            Some(other) => other.outside.1.port(),
            None if is_free(inside.port()) => inside.port(),
            None => core.hosts.free_port(gateway, is_free).ok()?,
        };
        self.0.push(Flow {
            protocol,
            inside,
            outside: (gateway, SocketAddr::new(ip, port)),
            remote,
            begun: now,
            until: now,
            is_answered: false,
            is_closing: false,
            arrivals: [0; 2],
        });
        Some(self.0.len() - 1)
    }

    /// Returns whether no flow has this port of a host, so that a socket of the host may have it.
    pub(super) fn is_free(&self, protocol: Protocol, port: (usize, u16), now: u64) -> bool {
        let mut flows = self.0.iter();
        !flows.any(|flow| flow.has(protocol, port) && now < flow.until)
    }

    /// Ends the flows that have this port of a host, to which a socket of the host is bound.
    pub(super) fn leave(&mut self, protocol: Protocol, port: (usize, u16)) {
        self.0.retain(|flow| !flow.has(protocol, port));
    }

    /// Forgets the flows through a host that has lost its power.
    pub(super) fn forget(&mut self, host: usize) {
        self.0.retain(|flow| flow.outside.0 != host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: (Protocol, Effect) = (Protocol::Udp, Effect::Other);

    // Two hosts inside, their gateway, and two outside.
    const ONE: usize = 1;
    const TWO: usize = 2;
    const GATEWAY: usize = 3;
    const NEAR: usize = 4;
    const FAR: usize = 5;

    fn hosts() -> Core {
        let mut core = Core::of_test(1);
        for name in ["test", "one", "two", "gateway", "near", "far"] {
            core.add_host(name);
        }
        for inside in [ONE, TWO] {
            core.hosts.set_gateway(inside, GATEWAY).unwrap();
        }
        core
    }

    fn at(host: usize, port: u16) -> End {
        (host, SocketAddr::from(([10, 0, 0, host as u8 + 1], port)))
    }

    /// Sends a message to an address by the gateway, of which the ports below 10 are taken. Returns
    /// where it comes from, and where to; `None` if it is for the gateway itself; `Err` if it is
    /// lost.
    fn send(
        nat: &mut Nat,
        core: &mut Core,
        message: (Protocol, Effect),
        from: End,
        to: End,
    ) -> Result<Option<(End, End)>, ()> {
        let mut ports = Ports::default();
        for port in 0..10 {
            ports.add(message.0, (GATEWAY, port), 1);
        }
        match nat.route(message, from, (GATEWAY, to.1), core, &ports) {
            Route::Here => Ok(None),
            Route::On(from, to, _) => Ok(Some((from, to))),
            Route::Lost => Err(()),
        }
    }

    /// An inside address keeps its port and two have two.
    #[test]
    fn inside_address_keeps_port_two_get_two() {
        let (mut nat, mut core) = (Nat::default(), hosts());
        let mut port = |from, to, protocol| {
            let message = (protocol, Effect::Other);
            let sent = send(&mut nat, &mut core, message, from, to);
            let (from, next) = sent.unwrap().expect("it goes on");
            assert_eq!((from.0, next), (GATEWAY, to));
            from.1.port()
        };
        for to in [at(NEAR, 80), at(FAR, 80), at(FAR, 81)] {
            assert_eq!(port(at(ONE, 50), to, Protocol::Udp), 50);
            assert_eq!(port(at(TWO, 50), to, Protocol::Udp), 32_768);
            assert_eq!(port(at(TWO, 50), to, Protocol::Tcp), 50, "another protocol");
            assert_eq!(
                port(at(ONE, 9), to, Protocol::Udp),
                32_769,
                "it is the gateway's own"
            );
        }
        assert_eq!(port(at(TWO, 32_770), at(FAR, 80), Protocol::Udp), 32_770);
        assert_eq!(
            port(at(ONE, 8), at(FAR, 80), Protocol::Udp),
            32_771,
            "the next is taken"
        );
        for (port, is_free) in [(50, false), (51, true)] {
            assert_eq!(nat.is_free(Protocol::Udp, (GATEWAY, port), 0), is_free);
            assert!(nat.is_free(Protocol::Udp, (FAR, port), 0));
            assert!(
                nat.is_free(Protocol::Udp, (GATEWAY, port), UDP),
                "they have ended"
            );
        }
        nat.leave(Protocol::Udp, (GATEWAY, 50));
        assert!(nat.is_free(Protocol::Udp, (GATEWAY, 50), 0));
        assert!(!nat.is_free(Protocol::Tcp, (GATEWAY, 50), 0));
    }

    #[test]
    fn only_answers_come_in() {
        let (mut nat, mut core) = (Nat::default(), hosts());
        let outside = at(GATEWAY, 50);
        let sent = send(&mut nat, &mut core, DATAGRAM, at(ONE, 50), at(FAR, 80));
        assert_eq!(sent, Ok(Some((outside, at(FAR, 80)))));
        for (from, to, comes) in [
            (at(FAR, 80), outside, true),
            (at(FAR, 81), outside, false),
            (at(NEAR, 80), outside, false),
            (at(FAR, 80), at(GATEWAY, 51), false),
        ] {
            let passes = ((GATEWAY, from.1), at(ONE, 50));
            let sent = send(&mut nat, &mut core, DATAGRAM, from, to);
            assert_eq!(sent, Ok(comes.then_some(passes)), "{from:?} {to:?}");
            let by_tcp = send(&mut nat, &mut core, (Protocol::Tcp, Effect::Syn), from, to);
            assert_eq!(by_tcp, Ok(None));
        }
        let passing = send(&mut nat, &mut core, DATAGRAM, at(FAR, 80), at(NEAR, 80));
        assert_eq!(passing, Err(()), "it comes from no host inside");
        core.hosts.set_gateway(ONE, NEAR).unwrap();
        let late = send(&mut nat, &mut core, DATAGRAM, at(FAR, 80), outside);
        assert_eq!(late, Err(()), "the host has moved");
        nat.forget(NEAR);
        assert!(!nat.0.is_empty());
        nat.forget(GATEWAY);
        let late = send(&mut nat, &mut core, DATAGRAM, at(FAR, 80), outside);
        assert_eq!(late, Ok(None));
    }

    #[test]
    fn a_flow_ends_after_its_idle_time() {
        use Effect::{FinOrRst, Icmp, Other, Syn};
        use Protocol::{Tcp, Udp};
        // The messages, each with its time in seconds and whether it comes from inside.
        type Sent = (u64, bool, Effect);
        let cases: [(Protocol, &[Sent], u64); 12] = [
            (Udp, &[(0, true, Other)], 30),
            (Udp, &[(0, true, Other), (20, true, Other)], 50),
            (Udp, &[(0, true, Other), (1, false, Other)], 31),
            (Udp, &[(0, true, Other), (2, false, Other)], 122),
            (
                Udp,
                &[(0, true, Other), (1, false, Other), (2, true, Other)],
                122,
            ),
            (Udp, &[(0, true, Other), (20, false, Icmp)], 30),
            (Tcp, &[(0, true, Syn)], 120),
            (Tcp, &[(0, true, Other), (1, true, Other)], 121),
            (Tcp, &[(0, true, Syn), (1, false, Other)], 432_001),
            (
                Tcp,
                &[
                    (0, true, Syn),
                    (1, false, Other),
                    (2, true, FinOrRst),
                    (3, false, Other),
                ],
                63,
            ),
            (Tcp, &[(0, true, Syn), (1, false, FinOrRst)], 61),
            (
                Tcp,
                &[(0, true, Syn), (1, false, FinOrRst), (2, true, Syn)],
                122,
            ),
        ];
        for (protocol, messages, end) in cases {
            for is_late in [false, true] {
                let (mut nat, mut core) = (Nat::default(), hosts());
                let mut send = |time, is_out, effect| {
                    core.set_now(time);
                    let (from, to) = if is_out {
                        (at(ONE, 50), at(FAR, 80))
                    } else {
                        (at(FAR, 80), at(GATEWAY, 50))
                    };
                    send(&mut nat, &mut core, (protocol, effect), from, to)
                };
                for (time, is_out, effect) in messages {
                    let sent = send(time * SECOND, *is_out, *effect);
                    assert!(sent.is_ok_and(|sent| sent.is_some()));
                }
                let time = end * SECOND - u64::from(!is_late);
                let answer = send(time, false, Other).expect("it is not lost");
                assert_eq!(answer.is_none(), is_late, "{protocol:?} {messages:?}");
            }
        }
    }

    #[test]
    fn an_end_and_an_error_begin_no_flow() {
        let (mut nat, mut core) = (Nat::default(), hosts());
        for effect in [Effect::FinOrRst, Effect::Icmp] {
            let message = (Protocol::Tcp, effect);
            let sent = send(&mut nat, &mut core, message, at(ONE, 50), at(FAR, 80));
            assert_eq!(sent, Err(()));
        }
        assert!(nat.0.is_empty());
    }

    /// Flows that have ended are forgotten when another begins.
    #[test]
    fn ended_flows_forgotten_when_next_begins() {
        let (mut nat, mut core) = (Nat::default(), hosts());
        for nth in 0..100 {
            core.set_now(u64::from(nth) * 10 * SECOND);
            let from = at(ONE, 50 + nth);
            assert!(send(&mut nat, &mut core, DATAGRAM, from, at(FAR, 80)).is_ok());
        }
        assert_eq!(nat.0.len(), 3);
    }
}

//! Sending: segments and their retransmission, and acknowledgements.

use super::segment::{NEVER, NO_TIMER, PlainAck, Segment};
use super::socket::{LONGEST_RTO, State};
use crate::world::errno::Errno;
use crate::world::event_queue::{Event, Timer};
use crate::world::hosts::NOBODY;
use crate::world::nat::{Effect, Route};
use crate::world::ports::Protocol;
use crate::world::sockets::Network;
use crate::world::trace_event::{Flags, TraceEvent};

/// The overhead of each segment: the headers of TCP and IPv4.
const HEADERS: usize = 40;

/// The number of retransmissions before a connection times out: Linux's `tcp_retries2`,
/// `tcp_syn_retries` and `tcp_synack_retries`.
const RETRIES: u32 = 15;
const SYN_RETRIES: u32 = 6;
const SYN_ACK_RETRIES: u32 = 5;

/// The time until a router near a host reports to it that another host is unreachable.
const ROUTER: u64 = 200_000;

impl Network<'_> {
    pub(super) fn send_flags(&mut self, id: u32, flags: Flags) {
        if let Some(segment) = self.segment(id, flags) {
            self.send_segment(Some(id), segment);
        }
    }

    /// Sends the bytes at `seq`, or the FIN if it is there.
    pub(super) fn send_at(&mut self, id: u32, seq: u64) {
        let Some(mut segment) = self.segment(id, Flags::Data) else {
            return;
        };
        let socket = self.table.tcp_at(id);
        socket.fill(&mut segment, seq, self.core.time.now());
        self.send_segment(Some(id), segment);
    }

    /// Sends all that may be sent.
    pub(super) fn transmit(&mut self, id: u32) {
        if self.table.tcp_at(id).has_sent_all() {
            return; // The common case: no timer is needed either.
        }
        loop {
            let socket = self.table.tcp_at(id);
            if socket.state != State::Connected || socket.fin_acked() {
                return;
            }
            let (next, end) = (socket.next, socket.end);
            let may_send = next < end && next < socket.limit || next == end && socket.wants_fin;
            if !may_send {
                break;
            }
            if socket.acked == next && socket.timer.deadline.is_none() {
                self.defer_timer(id);
            }
            self.send_at(id, next);
        }
        self.start_timer(id);
    }

    /// Retransmits what was not acknowledged in time.
    pub(crate) fn retransmit(&mut self, id: u32) {
        let now = self.core.time.now();
        let Some(socket) = self.table.tcp_mut(id) else {
            return;
        };
        socket.timer = Timer::default();
        let may_probe = socket.state == State::Connected && socket.acked == socket.next;
        let must_probe = !may_probe || self.must_probe(id);
        let socket = self.table.tcp_at(id);
        if !must_probe {
            socket.retries = 0; // Its peer is there, and would answer a probe.
            return;
        }
        let (host, state) = (socket.base.host, socket.state);
        let is_over = match state {
            State::Connecting => socket.retries == SYN_RETRIES,
            State::Accepting(_) => socket.retries == SYN_ACK_RETRIES,
            State::Connected => {
                let stalled = now - *socket.stalled.get_or_insert(now);
                let is_over = socket.user_timeout().map(|limit| stalled >= limit);
                is_over.unwrap_or(socket.retries == RETRIES)
            }
            State::Listening | State::Closed => return,
        };
        if is_over {
            return self.give_up(id);
        }
        socket.retries += 1;
        socket.rto = (socket.rto * 2).min(LONGEST_RTO);
        // All that is under way counts as lost: each acknowledgement retransmits the next part of
        // it.
        (socket.recover, socket.timed) = (socket.next, None);
        let (acked, retries) = (socket.acked, socket.retries);
        let is_probe = acked == socket.next;
        self.core.note(host, TraceEvent::Retransmit(acked, retries));
        match state {
            State::Connecting => self.send_flags(id, Flags::Syn),
            State::Accepting(_) => self.send_flags(id, Flags::SynAck),
            _ if is_probe => self.send_flags(id, Flags::Probe),
            _ => self.send_at(id, acked),
        }
        self.start_timer(id);
    }

    /// Ends a connection with a silent peer.
    pub(super) fn give_up(&mut self, id: u32) {
        let socket = self.table.tcp_at(id);
        let host = socket.base.host;
        let peer = socket.peer.map_or(host, |(peer, _)| peer);
        self.core.note(host, TraceEvent::TimedOut);
        // A router's message did not end the connection, but it is the error that is reported:
        // Linux's `sk_err_soft`.
        let error = if self.core.links.partings.is_unreachable(host, peer) {
            Errno::HOSTUNREACH
        } else {
            Errno::TIMEDOUT
        };
        self.fail(id, error);
    }

    /// Sends a segment, which is then under way or lost. `id` is its sender, if that is a socket.
    ///
    /// The timers that it carries are deferred: code that loses, holds or forwards it calls
    /// [`arm_all`](Self::arm_all).
    pub(super) fn send_segment(&mut self, id: Option<u32>, mut segment: Box<Segment>) {
        let now = self.core.time.now();
        segment.sent = now;
        let (mut link, mut peer_timer) = (0, NO_TIMER);
        if let Some(socket) = id.and_then(|id| self.table.tcp_mut(id)) {
            link = socket.link;
            peer_timer = std::mem::replace(&mut socket.peer_timer, NO_TIMER);
            segment.cancels = peer_timer.1;
            if socket.plain_until >= now {
                let peer = socket.peer_id;
                self.settle(peer); // The acknowledgement under way arrives before this segment.
            }
        }
        let (way, len) = (segment.way(), HEADERS + segment.bytes.len());
        let Some(latency) = self.core.send(way, &mut link, len) else {
            return self.lose_segment(segment);
        };
        let mut at = now.saturating_add(latency);
        if let Some(socket) = id.and_then(|id| self.table.tcp_mut(id)) {
            at = at.max(socket.arrival);
            (socket.arrival, socket.link) = (at, link);
            if at >= segment.timer || at >= peer_timer.0 {
                self.arm_all(&segment);
            }
        }
        self.core.events.push(at, Event::Segment(segment));
    }

    /// Forwards a segment, if it has arrived at a gateway. Returns it if it is for the host itself.
    ///
    /// Its sender's timer is armed: the whole way may take longer than to the deadline.
    pub(super) fn forward(&mut self, mut segment: Box<Segment>) -> Option<Box<Segment>> {
        let effect = match segment.flags {
            Flags::Syn => Effect::Syn,
            flags if segment.fin || flags == Flags::Reset => Effect::FinOrRst,
            _ => Effect::Other,
        };
        let (from, to, now) = (segment.from, segment.to, self.core.time.now());
        let message = (Protocol::Tcp, effect);
        let arrival = match self.nat.route(message, from, to, self.core, self.ports) {
            Route::Here => return Some(segment),
            Route::Lost => None,
            Route::On(from, to, arrival) => {
                (segment.from, segment.to) = (from, to);
                let len = HEADERS + segment.bytes.len();
                let latency = self.core.send(segment.way(), &mut 0, len);
                latency.map(|latency| {
                    *arrival = now.saturating_add(latency).max(*arrival);
                    *arrival
                })
            }
        };
        self.arm_all(&segment);
        (segment.timer, segment.cancels) = (NEVER, 0);
        segment.sent = now;
        match arrival {
            Some(at) => self.core.events.push(at, Event::Segment(segment)),
            None => self.lose_segment(segment),
        }
        None
    }

    /// Acknowledges what has arrived by a segment that carries nothing else. Differs from
    /// [`send_flags`](Self::send_flags) in that a plain acknowledgement is no event.
    fn acknowledge(&mut self, id: u32) {
        if !self.is_plain(id) {
            return self.send_flags(id, Flags::Ack);
        }
        let now = self.core.time.now();
        let socket = self.table.tcp_at(id);
        let (to, _) = socket.peer.expect("it has a peer");
        let (way, link) = ((socket.base.host, to), &mut socket.link);
        let latency = self.core.send(way, link, HEADERS);
        socket.announce();
        let peer_timer = std::mem::replace(&mut socket.peer_timer, NO_TIMER);
        let Some(latency) = latency else {
            if let Some(mut segment) = self.segment(id, Flags::Ack) {
                (segment.sent, segment.cancels) = (now, peer_timer.1);
                self.lose_segment(segment);
            }
            return;
        };
        // The same as in `send_segment`.
        let at = now.saturating_add(latency).max(socket.arrival);
        (socket.arrival, socket.plain_until) = (at, at);
        let ack = PlainAck {
            sent: now,
            at,
            seq: socket.next,
            limit: socket.announced,
        };
        let peer = socket.peer_id;
        if at >= peer_timer.0 {
            self.arm(peer);
        }
        if let Some(peer) = self.table.tcp_mut(peer) {
            peer.ack_under_way = Some(ack);
        }
    }

    /// Handles the loss of a segment. If it carried a window update, the other side has to probe
    /// for it.
    pub(crate) fn lose_segment(&mut self, segment: Box<Segment>) {
        let now = self.core.time.now();
        self.core
            .note(segment.to.0, segment.event(TraceEvent::Lost));
        self.core.message(|| segment.message(now, true));
        self.warn_peer(segment.from.1, segment.to);
        self.arm_all(&segment);
        let (from, to) = segment.way();
        if segment.flags == Flags::Syn && self.core.links.partings.is_unreachable(from, to) {
            let event = Event::Unreachable(segment.from_id);
            self.core.events.push(now + ROUTER, event);
        }
        self.tcp.spare.push(segment);
    }

    /// Reports a router's message to a socket that its peer is unreachable. Linux's tcp_v4_err():
    /// this ends a socket that is connecting, and no other. (The message does not reach a machine
    /// that is suspended.)
    pub(crate) fn hear_of_router(&mut self, id: u32) {
        let Some(socket) = self.table.tcp(id) else {
            return;
        };
        let is_suspended = (self.core.links.partings).is_suspended(socket.base.host);
        if socket.state == State::Connecting && !is_suspended {
            let (host, peer) = (socket.base.host, socket.peer);
            let peer = peer.map_or(NOBODY, |peer| self.far_end(socket.local, peer));
            self.core.note(host, TraceEvent::Unreachable(peer));
            self.fail(id, Errno::HOSTUNREACH);
        }
    }

    /// Sends the acknowledgements that are owed.
    pub(crate) fn acknowledge_all(&mut self) {
        let mut owing = std::mem::take(&mut self.tcp.owing);
        for id in owing.drain(..) {
            if self.table.tcp(id).is_some_and(|socket| socket.owes_ack) {
                self.acknowledge(id);
            }
        }
        self.tcp.owing = owing; // Empty, kept for its capacity: sending owes nothing.
    }
}

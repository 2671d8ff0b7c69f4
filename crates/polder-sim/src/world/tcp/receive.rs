//! Receiving: segments that arrive, and the end of connections.

use polder::kernel::{CLOSED, READABLE, WRITABLE};

use super::segment::{NEVER, Segment};
use super::socket::{BUFFER, Socket, State};
use crate::world::base::Base;
use crate::world::errno::Errno;
use crate::world::registrations::when;
use crate::world::sockets::Network;
use crate::world::trace_event::{Flags, TraceEvent};

/// The time for which a connection that has ended on both sides still answers late segments, and
/// for which one that its user has closed waits for the peer's end: Linux's `tcp_fin_timeout`.
const TIME_WAIT: u64 = 60_000_000_000;

impl Network<'_> {
    pub(in crate::world) fn segment_arrives(&mut self, mut segment: Box<Segment>) {
        let now = self.core.time.now();
        self.core
            .note(segment.to.0, segment.event(TraceEvent::Segment));
        self.core.message(|| segment.message(now, false));
        if self.core.hosts.have_gateways() {
            match self.forward(segment) {
                Some(own) => segment = own,
                None => return,
            }
        }
        match (self.recipient(&segment), segment.flags) {
            (Some(id), _) => self.arrives_at(id, &mut segment),
            (None, Flags::Reset) => {}
            (None, Flags::Syn) => self.syn_arrives(&segment),
            (None, _) => self.refuse(&segment),
        }
        self.tcp.spare.push(segment);
    }

    /// Refuses a segment for which there is no socket, by a RST.
    fn refuse(&mut self, segment: &Segment) {
        let (ends, ids) = ([segment.to, segment.from], [0, segment.from_id]);
        let mut reset = self.tcp.spare.make(ends, ids, Flags::Reset);
        (reset.seq, reset.ack) = (segment.ack, segment.seq);
        self.send_segment(None, reset);
        self.arm(segment.from_id);
    }

    fn syn_arrives(&mut self, segment: &Segment) {
        let (host, local) = segment.to;
        let Some(id) = self.listener_at(host, local) else {
            return self.refuse(segment);
        };
        let listener = self.table.tcp_at(id);
        // One more than was asked for, by Linux's sk_acceptq_is_full().
        if listener.base.queue.len() + listener.opening > listener.base.backlog {
            return; // The peer sends it again.
        }
        listener.opening += 1;
        let options = listener.base.options.clone();
        let mut socket = Socket::new(Base::new(host, None), State::Accepting(id), local);
        (socket.limit, socket.base.options) = (segment.limit, options);
        (socket.peer, socket.peer_id) = (Some(segment.from), segment.from_id);
        socket.timed = Some((0, self.core.time.now()));
        let id = self.insert(socket);
        self.send_flags(id, Flags::SynAck);
        self.start_timer(id);
    }

    fn arrives_at(&mut self, id: u32, segment: &mut Segment) {
        let now = self.core.time.now();
        let Some(socket) = self.settle_before(id) else {
            return;
        };
        // The segment was sent to an earlier socket of these addresses, and its numbers mean
        // nothing here. A socket that is opening answers an acknowledgement of something it has not
        // sent by a reset: RFC 9293, 3.10.7.3 and 3.10.7.4.
        if ![0, id].contains(&segment.to_id) {
            return if socket.is_opening() && segment.flags != Flags::Reset {
                self.refuse(segment)
            } else {
                self.arm(segment.from_id)
            };
        }
        (socket.heard, socket.probes) = (now, 0);
        match (segment.flags, socket.state) {
            (Flags::Reset, State::Connecting) => {
                return self.fail(id, Errno::CONNREFUSED);
            }
            (Flags::Reset, _) => return self.fail(id, Errno::CONNRESET),
            (Flags::SynAck, State::Connecting) => {
                (socket.limit, socket.peer_id) = (segment.limit, segment.from_id);
                socket.open(now);
                self.raise(id, WRITABLE);
                return self.send_flags(id, Flags::Ack);
            }
            // The acknowledgement of the first SYN+ACK was lost.
            (Flags::SynAck, State::Connected) => return self.send_flags(id, Flags::Ack),
            (Flags::Syn, State::Accepting(_)) => {
                socket.timed = None;
                return self.send_flags(id, Flags::SynAck);
            }
            // A new connection of the same addresses: Linux's tcp_timewait_state_process().
            (Flags::Syn, _) if socket.has_ended => {
                self.remove(id);
                return self.syn_arrives(segment);
            }
            // The sender does not know this connection, and resets it when it is challenged: RFC
            // 5961, 4.2.
            (Flags::Syn, State::Connected) if segment.from_id != socket.peer_id => {
                self.arm(segment.from_id);
                return self.send_flags(id, Flags::Ack);
            }
            (Flags::Syn | Flags::SynAck, _) | (_, State::Connecting | State::Closed) => {
                return self.arm(segment.from_id);
            }
            (_, State::Accepting(listener)) => {
                socket.open(now);
                socket.is_queued = true;
                if let Some(listener) = self.table.tcp_mut(listener) {
                    listener.opening -= 1;
                    listener.base.queue.push_back(id);
                }
                self.raise(listener, READABLE);
            }
            _ => {}
        }
        self.acknowledged(id, segment);
        if segment.flags == Flags::Probe {
            self.send_flags(id, Flags::Ack);
        } else if !segment.bytes.is_empty() || segment.fin {
            self.received(id, segment);
        }
        self.end_if_done(id);
    }

    fn acknowledged(&mut self, id: u32, segment: &Segment) {
        let socket = self.table.tcp_at(id);
        let opens = segment.limit > socket.limit;
        socket.limit = socket.limit.max(segment.limit);
        if socket.acked == socket.next {
            // Nothing is under way, except perhaps a probe. The peer is alive.
            (socket.retries, socket.timer.deadline) = (0, None);
            if opens {
                socket.forget_backoff();
            }
        }
        let is_new_ack = segment.ack > socket.acked && segment.ack <= socket.next;
        if is_new_ack {
            let was_full = socket.out.len() == BUFFER;
            let bytes = (segment.ack - socket.acked).min(socket.out.len() as u64) as usize;
            socket.out.consume(bytes);
            socket.acked = segment.ack;
            socket.restart_timing();
            if let Some((_, sent)) = socket.timed.take_if(|(behind, _)| *behind <= segment.ack) {
                socket.measure(self.core.time.now() - sent);
            }
            let (goes_on, acked) = (socket.acked < socket.recover, socket.acked);
            if was_full {
                self.raise(id, WRITABLE);
            }
            // More of the bytes that were under way is missing.
            if goes_on {
                self.send_at(id, acked);
            }
        } else if segment.ack == socket.acked
            && socket.acked < socket.next
            && segment.bytes.is_empty()
            && !opens
            && !segment.fin
        {
            socket.duplicate_acks += 1;
            if socket.duplicate_acks == 3 && socket.acked >= socket.recover {
                socket.recover = socket.next;
                let acked = socket.acked;
                self.send_at(id, acked);
            }
        }
        if !is_new_ack {
            self.arm(id); // It should have cancelled the timer, and has not.
        }
        self.transmit(id);
    }

    fn received(&mut self, id: u32, segment: &mut Segment) {
        let socket = self.table.tcp_at(id);
        let before = (socket.received, socket.has_peer_fin());
        let end = segment.seq + segment.bytes.len() as u64;
        if segment.timer != NEVER {
            let timer = (segment.timer, segment.from_id);
            let before = std::mem::replace(&mut socket.peer_timer, timer);
            if before.1 != segment.from_id {
                self.arm(before.1); // Of a socket that is gone, or soon will be.
            }
        }
        let socket = self.table.tcp_at(id);
        let is_held = socket.base.process.is_some() || socket.is_queued;
        if socket.wants_fin && (socket.read_shut || !is_held) && end > before.0 {
            // The bytes will never be read: Linux's tcp_rcv_state_process(), in FIN_WAIT1 and
            // FIN_WAIT2.
            self.send_flags(id, Flags::Reset);
            return self.fail(id, Errno::CONNRESET);
        }
        if segment.fin {
            socket.fin_at = Some(end);
        }
        socket.take_bytes(segment);
        let has_ended = socket.has_peer_fin() && !before.1;
        if !has_ended && socket.received == before.0 {
            return self.send_flags(id, Flags::Ack); // The third of these reports the loss.
        }
        // The arrival must be acknowledged: by a segment that the process sends at this
        // moment, or else before anything else happens. (A real kernel waits up to 40 ms for an
        // answer to carry it.)
        if !std::mem::replace(&mut socket.owes_ack, true) {
            self.tcp.owing.push(id);
        }
        let ready = READABLE | when(CLOSED, has_ended);
        self.core.raise(id, &mut socket.base, ready);
    }

    /// Ends a connection that its user has closed, once everything is acknowledged. The side that
    /// has ended first stays to wait for the peer's end (FIN_WAIT_2), and then to answer late
    /// segments (TIME_WAIT), each for a limited time, in which it keeps its addresses.
    pub(super) fn end_if_done(&mut self, id: u32) {
        let Some(socket) = self.table.tcp_mut(id) else {
            return;
        };
        let is_connected = socket.state == State::Connected;
        let is_done = is_connected && socket.fin_acked() && socket.base.process.is_none();
        let has_peer_ended = socket.has_peer_fin();
        if is_done && has_peer_ended && socket.ends_last {
            return self.remove(id);
        }
        if is_done && (socket.ends_at == 0 || has_peer_ended && !socket.has_ended) {
            socket.has_ended = has_peer_ended;
            socket.ends_at = self.core.time.now() + TIME_WAIT;
            self.tcp.ended.push_back((socket.ends_at, id));
        }
    }

    /// Forgets connections after the end of TIME_WAIT, or of FIN_WAIT_2.
    pub(crate) fn forget_ended(&mut self) {
        while let Some((until, id)) = self.tcp.ended.front().copied() {
            if until > self.core.time.now() {
                break;
            }
            self.tcp.ended.pop_front();
            let socket = self.table.tcp(id);
            if socket.is_some_and(|socket| socket.ends_at == until) {
                self.remove(id);
            }
        }
    }
}

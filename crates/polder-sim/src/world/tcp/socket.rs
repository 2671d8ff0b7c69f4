//! [`Socket`]: one end of a connection, or a listener: its buffers, offsets and timers.
//!
//! Its methods know neither other sockets nor the network: they return what is to be sent.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use polder::kernel::{CLOSED, ERROR, READABLE, WRITABLE};

use super::segment::{NEVER, NO_TIMER, PlainAck, Segment, SpareSegments};
use crate::world::base::Base;
use crate::world::bytes::ByteQueue;
use crate::world::core::Core;
use crate::world::errno::Errno;
use crate::world::event_queue::Timer;
use crate::world::hosts::Hosts;
use crate::world::inbox::unread;
use crate::world::registrations::when;
use crate::world::trace_event::{Flags, TraceEvent};

/// The first retransmission timeout of a handshake: RFC 6298.
const FIRST_RTO: u64 = 1_000_000_000;

/// That of a connection without a measured handshake: RFC 6298, 5.7, and Linux's
/// `TCP_TIMEOUT_FALLBACK`.
const UNMEASURED_RTO: u64 = 3_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Listening,
    /// A SYN was sent.
    Connecting,
    /// A SYN to the listener of this number was answered.
    Accepting(u32),
    Connected,
    /// Both directions have ended, or the connection was reset.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) base: Base,
    pub(super) state: State,
    pub(crate) local: SocketAddr,
    pub(super) peer: Option<(usize, SocketAddr)>,
    /// The number of the peer's socket, once a segment of it has arrived; zero before.
    pub(super) peer_id: u32,
    /// The number of the link to the peer, once something was sent; zero before.
    pub(super) link: u32,
    /// Whether arriving segments find it: it is in `Ports::connections`.
    pub(super) is_listed: bool,
    /// Whether an acknowledgement is due before the next event, unless a segment is sent before.
    pub(super) owes_ack: bool,
    // Sending: bytes that are not acknowledged yet, or not sent yet.
    pub(super) out: ByteQueue,
    /// SND.UNA of RFC 9293, as an offset in the stream; so are the next ones.
    pub(super) acked: u64,
    /// SND.NXT.
    pub(super) next: u64,
    /// The offset behind the last byte that was written, which is that of the FIN.
    pub(super) end: u64,
    pub(super) wants_fin: bool,
    /// The right edge of the peer's window: SND.UNA + SND.WND.
    pub(super) limit: u64,
    /// The number of duplicate acknowledgements in a row.
    pub(super) duplicate_acks: u32,
    /// Whether both directions have ended, and it is about to be forgotten.
    pub(super) has_ended: bool,
    /// The time at which it is forgotten, once nothing but that is left to do; zero before.
    pub(super) ends_at: u64,
    /// Whether it has connected, rather than been accepted.
    pub(super) has_connected: bool,
    /// Whether the peer had ended before this side did: LAST_ACK, after which nothing is kept.
    pub(super) ends_last: bool,
    /// Whether it waits in a listener's queue to be accepted.
    pub(super) is_queued: bool,
    /// The end of what was under way when a loss was noticed: RFC 6582.
    pub(super) recover: u64,
    // Retransmission.
    pub(super) retries: u32,
    pub(super) rto: u64,
    /// SRTT and RTTVAR of RFC 6298.
    smoothed: Option<(u64, u64)>,
    /// The segment of which the round trip is measured: the offset behind it, and the time at which
    /// it was sent. In a handshake that is the first SYN or SYN+ACK, unless another was sent.
    pub(super) timed: Option<(u64, u64)>,
    pub(super) timer: Timer,
    /// The time of the first retransmission or probe since the peer has last acknowledged anything
    /// new, or opened its window.
    pub(super) stalled: Option<u64>,
    // Keepalive: the time of the last sign of life, the unanswered probes, the timer's deadline.
    pub(super) heard: u64,
    pub(super) probes: u32,
    pub(super) keepalive_at: Option<u64>,
    /// The time at which the last segment that it has sent arrives: none overtakes another.
    pub(super) arrival: u64,
    /// An acknowledgement that is under way to it, and is no event; and the arrival time of the
    /// last such acknowledgement that it has sent.
    pub(super) ack_under_way: Option<PlainAck>,
    pub(super) plain_until: u64,
    /// The deadline of the peer's timer for what has arrived and was not acknowledged, if that
    /// timer is deferred; and the peer's number, which may differ from the known one.
    pub(super) peer_timer: (u64, u32),
    // Receiving.
    pub(super) input: ByteQueue,
    /// RCV.NXT.
    pub(super) received: u64,
    /// What has arrived behind a hole, by its offset.
    pub(super) beyond: BTreeMap<u64, Vec<u8>>,
    /// The offset of the peer's FIN, once that has arrived.
    pub(super) fin_at: Option<u64>,
    pub(super) read_shut: bool,
    /// The offset up to which the peer may send, as it was announced.
    pub(super) announced: u64,
    /// The number of connections that are being opened for a listener.
    pub(super) opening: usize,
}

impl Socket {
    pub(super) fn new(base: Base, state: State, local: SocketAddr) -> Socket {
        Socket {
            base,
            state,
            local,
            peer: None,
            peer_id: 0,
            link: 0,
            is_listed: false,
            owes_ack: false,
            out: ByteQueue::default(),
            acked: 0,
            next: 0,
            end: 0,
            wants_fin: false,
            limit: 0,
            duplicate_acks: 0,
            has_ended: false,
            ends_at: 0,
            has_connected: false,
            ends_last: false,
            is_queued: false,
            recover: 0,
            retries: 0,
            rto: FIRST_RTO,
            smoothed: None,
            timed: None,
            timer: Timer::default(),
            stalled: None,
            heard: 0,
            probes: 0,
            keepalive_at: None,
            arrival: 0,
            ack_under_way: None,
            plain_until: 0,
            peer_timer: NO_TIMER,
            input: ByteQueue::default(),
            received: 0,
            beyond: BTreeMap::new(),
            fin_at: None,
            read_shut: false,
            announced: 0,
            opening: 0,
        }
    }

    /// Returns whether the peer has acknowledged the FIN too.
    pub(super) fn fin_acked(&self) -> bool {
        self.acked > self.end
    }

    /// Returns whether it is connected, and everything was sent and acknowledged.
    pub(super) fn has_sent_all(&self) -> bool {
        self.state == State::Connected && self.out.is_empty() && !self.wants_fin
    }

    /// Returns whether its handshake is under way.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state, State::Connecting | State::Accepting(_))
    }

    /// Returns the offset up to which the peer may send.
    fn room(&self) -> u64 {
        self.received - self.input.len() as u64 + BUFFER as u64
    }

    pub(super) fn has_peer_fin(&self) -> bool {
        self.fin_at.is_some_and(|at| self.received >= at)
    }

    /// Returns whether both sides have ended, and know it: for the user it is no longer connected.
    /// (Linux keeps the rest, TIME_WAIT, apart from the socket, which is closed.)
    pub(super) fn is_over(&self) -> bool {
        self.fin_acked() && self.has_peer_fin()
    }

    pub(super) fn acknowledgement(&self) -> u64 {
        self.received + u64::from(self.has_peer_fin())
    }

    /// Notes that it is accepted. Returns the peer's address.
    pub(crate) fn accept(&mut self, core: &mut Core) -> SocketAddr {
        let (from, peer) = self.peer.expect("it has a peer");
        self.is_queued = false;
        core.note(
            self.base.host,
            TraceEvent::Accepted(from, self.local.port()),
        );
        peer
    }

    /// Returns the peer's address, while it is connected.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        let is_connected = self.state == State::Connected && !self.is_over();
        let (_, peer) = self.peer.filter(|_| is_connected)?;
        Some(peer)
    }

    /// Returns whether a read would not block.
    fn is_readable(&self) -> bool {
        !self.base.queue.is_empty()
            || !self.input.is_empty()
            || self.read_shut
            || self.has_peer_fin()
            || self.state == State::Closed
            || self.base.error.is_some()
    }

    /// Returns its current readiness.
    pub(crate) fn ready(&self) -> u8 {
        // (After the end of writing a write fails immediately.)
        let has_room = self.out.len() < BUFFER || self.wants_fin;
        when(READABLE, self.is_readable())
            | when(CLOSED, self.has_peer_fin())
            | when(WRITABLE, self.state == State::Connected && has_room)
            | when(WRITABLE | CLOSED, self.state == State::Closed)
            | when(WRITABLE | CLOSED, self.is_over())
            | when(WRITABLE | ERROR | CLOSED, self.base.error.is_some())
    }

    /// Describes the socket, for reports.
    pub(crate) fn describe(&self, hosts: &Hosts, now: u64) -> String {
        let state = match self.state {
            State::Listening => return format!("listens at {}", self.local),
            State::Connecting | State::Accepting(_) => "connecting to",
            State::Connected => "connected to",
            State::Closed => "was connected to",
        };
        let (host, peer) = self.peer.unwrap_or((self.base.host, self.local));
        let (name, port) = (hosts.name(hosts.owner(host, peer).0), peer.port());
        let waits = self.base.waits();
        let mut text = format!("{}, {state} {name}:{port}{waits}", self.local);
        if self.has_peer_fin() {
            text += ", the peer has ended";
        }
        // Not counting the FIN, behind the last byte.
        let sent = self.next.min(self.end);
        let has_ack = self.ack_under_way.is_some_and(|ack| ack.at <= now);
        let acked = if has_ack { sent } else { self.acked };
        let (under_way, unsent) = (sent.saturating_sub(acked), self.end - sent);
        for (count, what) in [(under_way, "not acknowledged"), (unsent, "not sent yet")] {
            if count > 0 {
                text += &format!(", {count} bytes {what}");
            }
        }
        text + &unread(self.input.len())
    }

    /// Reads bytes, or peeks at them if `peeks` is set. Returns their number, and whether the peer
    /// has to know that there is room again.
    pub(super) fn read(
        &mut self,
        buffers: &mut [io::IoSliceMut<'_>],
        peeks: bool,
    ) -> io::Result<(usize, bool)> {
        let read = self.input.read(buffers, peeks);
        if read == 0 {
            // The end comes before an error, which is left for the writer.
            if !self.has_peer_fin() {
                self.base.take_error()?;
            }
            let ended = self.has_peer_fin() || self.read_shut || self.state == State::Closed;
            return match self.state {
                _ if ended => Ok((0, false)),
                State::Connected => Err(Errno::AGAIN.into()),
                _ => Err(Errno::NOTCONN.into()),
            };
        }
        let opened = self.room() - self.announced;
        let was_shut = self.announced < self.received + MSS as u64;
        let announces = opened >= BUFFER as u64 / 2 || was_shut && opened >= MSS as u64;
        let is_open = self.state == State::Connected && !self.has_peer_fin();
        Ok((read, !peeks && announces && is_open))
    }

    /// Takes bytes from a writer, to be sent.
    pub(super) fn write(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.base.take_error()?;
        match self.state {
            State::Connected if !self.wants_fin => {}
            State::Connected | State::Closed => return Err(Errno::PIPE.into()),
            _ => return Err(Errno::NOTCONN.into()),
        }
        let written = self.out.write(buffers, BUFFER, |_| ())?;
        self.end += written as u64;
        Ok(written)
    }

    /// Ends writing: the FIN is to be sent behind the last byte.
    pub(super) fn end_writing(&mut self) {
        (self.wants_fin, self.ends_last) = (true, self.has_peer_fin());
    }

    /// Notes that the handshake is done, for this side. Its round trip is the first sample.
    pub(super) fn open(&mut self, now: u64) {
        self.state = State::Connected;
        (self.timer.deadline, self.retries, self.rto) = (None, 0, UNMEASURED_RTO);
        if let Some((_, sent)) = self.timed.take() {
            self.measure(now - sent);
        }
    }

    /// Notes that a segment is sent: it announces the room, and carries an acknowledgement.
    pub(super) fn announce(&mut self) {
        // Not by a few bytes at a time, which would then be sent singly: RFC 9293, 3.8.6.2.2.
        if self.room() >= self.announced + MSS as u64 {
            self.announced = self.room();
        }
        self.owes_ack = false;
    }

    /// Creates a segment without bytes. `id` is the socket's number.
    pub(super) fn segment(
        &mut self,
        id: u32,
        flags: Flags,
        spare: &mut SpareSegments,
    ) -> Option<Box<Segment>> {
        let ends = [(self.base.host, self.local), self.peer?];
        self.announce();
        let mut segment = spare.make(ends, [id, self.peer_id], flags);
        (segment.seq, segment.ack) = (self.next, self.acknowledgement());
        segment.limit = self.announced;
        Some(segment)
    }

    /// Returns a plain acknowledgement that is under way to it as a segment.
    pub(super) fn segment_of(
        &self,
        id: u32,
        ack: PlainAck,
        spare: &mut SpareSegments,
    ) -> Option<Box<Segment>> {
        let ends = [self.peer?, (self.base.host, self.local)];
        let mut segment = spare.make(ends, [self.peer_id, id], Flags::Ack);
        (segment.sent, segment.cancels) = (ack.sent, id);
        (segment.seq, segment.ack, segment.limit) = (ack.seq, self.next, ack.limit);
        Some(segment)
    }

    /// Fills a segment with the bytes at `seq`, or the FIN if it is there.
    pub(super) fn fill(&mut self, segment: &mut Segment, seq: u64, now: u64) {
        let end = self.end;
        let start = (seq - self.acked) as usize;
        let fits = end.min(self.limit).saturating_sub(seq);
        let len = fits.min(MSS as u64) as usize;
        segment.seq = seq;
        segment.timer = self.timer.deferred().unwrap_or(NEVER);
        let bytes = &self.out.as_slice()[start..start + len];
        segment.bytes.extend_from_slice(bytes);
        segment.fin = self.wants_fin && seq + len as u64 == end;
        if segment.bytes.is_empty() {
            segment.flags = Flags::Fin;
        }
        let behind = seq + len as u64 + u64::from(segment.fin);
        if behind > self.next {
            self.next = behind;
            if self.timed.is_none() {
                self.timed = Some((behind, now));
            }
        } else {
            self.timed = None; // Retransmitted: its time is no sample (Karn).
        }
    }

    /// Moves all times of it that its host has not lived through, as it was suspended for that long
    /// until now. (A timer that was set meanwhile has no more than its whole timeout left.)
    pub(super) fn postpone(&mut self, asleep: u64, now: u64) {
        let deadline = self.timer.deadline;
        self.timer.deadline = deadline.map(|at| (at + asleep).min(now + self.rto));
        self.keepalive_at = self.keepalive_at.map(|at| at + asleep);
        let moved = |at: u64| (at + asleep).min(now);
        self.heard = moved(self.heard);
        self.stalled = self.stalled.map(moved);
        self.timed = self.timed.map(|(behind, sent)| (behind, moved(sent)));
    }

    /// Notes that a part of what was sent is acknowledged.
    pub(super) fn restart_timing(&mut self) {
        (self.retries, self.duplicate_acks, self.timer.deadline) = (0, 0, None);
        self.forget_backoff();
    }

    /// Ends the backoff, as bytes were acknowledged or the window has opened: after the next loss
    /// the timeout is the usual one again. If no round trip was measured yet, the timeout stays
    /// until one is: Karn's algorithm.
    pub(super) fn forget_backoff(&mut self) {
        self.stalled = None;
        if let Some((mean, deviation)) = self.smoothed {
            self.rto = (mean + 4 * deviation).clamp(SHORTEST_RTO, LONGEST_RTO);
        }
    }

    /// Notes the duration of a round trip: RFC 6298, in integers.
    pub(super) fn measure(&mut self, took: u64) {
        let took = took.min(u64::MAX / 16); // Nothing below overflows.
        let (mean, deviation) = match self.smoothed {
            None => (took, took / 2),
            Some((mean, deviation)) => (
                (mean * 7 + took) / 8,
                (deviation * 3 + mean.abs_diff(took)) / 4,
            ),
        };
        self.smoothed = Some((mean, deviation));
        self.forget_backoff();
    }

    /// Takes the bytes of a segment: as far as they are expected, and what was kept behind them; or
    /// keeps them until those before them have come.
    pub(super) fn take_bytes(&mut self, segment: &mut Segment) {
        if segment.seq > self.received {
            let bytes = std::mem::take(&mut segment.bytes);
            let other = self.beyond.entry(segment.seq).or_default();
            if bytes.len() > other.len() {
                *other = bytes;
            }
            return;
        }
        self.take(segment.seq, &segment.bytes);
        while let Some(entry) = self.beyond.first_entry() {
            if *entry.key() > self.received {
                break;
            }
            let (seq, bytes) = entry.remove_entry();
            self.take(seq, &bytes);
        }
    }

    /// Takes the new part of bytes that begin at or before the next expected offset.
    fn take(&mut self, seq: u64, bytes: &[u8]) {
        let known = (self.received - seq).min(bytes.len() as u64) as usize;
        self.received += (bytes.len() - known) as u64;
        self.input.push(&bytes[known..]);
    }
}

/// The bytes that a socket takes from a writer before the peer has acknowledged them, and those
/// that it keeps for a reader. (Real systems' buffers grow, up to some megabytes: a program that
/// needs more than this to make progress depends on that.)
pub(super) const BUFFER: usize = 64 * 1024;

/// The maximum of bytes in a segment: the payload of an Ethernet frame.
pub(super) const MSS: usize = 1_460;

/// The bounds of the retransmission timeout: that of RFC 6298, and Linux's lower one.
pub(super) const SHORTEST_RTO: u64 = 200_000_000;
pub(super) const LONGEST_RTO: u64 = 120_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> Socket {
        let local = SocketAddr::from(([10, 0, 0, 1], 80));
        let mut socket = Socket::new(Base::new(0, Some(0)), State::Connected, local);
        socket.peer = Some((1, SocketAddr::from(([10, 0, 0, 2], 81))));
        socket
    }

    fn segment(socket: &mut Socket, flags: Flags) -> Box<Segment> {
        let segment = socket.segment(1, flags, &mut SpareSegments::default());
        segment.expect("it has a peer")
    }

    fn read(socket: &mut Socket, len: usize) -> io::Result<(usize, bool)> {
        let bytes = &mut vec![0; len];
        socket.read(&mut [io::IoSliceMut::new(bytes)], false)
    }

    /// Bytes are read in their order however they come.
    #[test]
    fn bytes_read_in_order_from_any_segments() {
        let (mut sender, mut receiver) = (connected(), connected());
        let bytes: Vec<u8> = (0..100).collect();
        for (seq, end) in [(40, 60), (50, 100), (0, 30), (40, 45), (20, 45)] {
            let mut part = segment(&mut sender, Flags::Data);
            (part.seq, part.bytes) = (seq as u64, bytes[seq..end].to_vec());
            receiver.take_bytes(&mut part);
        }
        assert_eq!(
            (receiver.received, receiver.input.as_slice()),
            (100, &bytes[..])
        );
        assert!(receiver.beyond.is_empty());
    }

    /// A writer waits when the buffer is full and the FIN follows the last byte.
    #[test]
    fn writer_waits_when_full_fin_is_last() {
        let mut socket = connected();
        socket.limit = u64::MAX;
        let bytes = vec![7; BUFFER + 1];
        let written = socket.write(&[io::IoSlice::new(&bytes)]);
        assert_eq!(written.unwrap(), BUFFER);
        assert!(socket.write(&[io::IoSlice::new(&bytes)]).is_err());
        assert_eq!(socket.ready() & WRITABLE, 0);
        socket.end_writing();
        let (mut sent, mut fins) = (0, 0);
        while socket.next < socket.end {
            let mut part = segment(&mut socket, Flags::Data);
            socket.fill(&mut part, socket.next, 0);
            (sent, fins) = (sent + part.bytes.len(), fins + usize::from(part.fin));
        }
        assert_eq!((sent, fins), (BUFFER, 1));
        assert!(
            socket.write(&[io::IoSlice::new(&bytes)]).is_err(),
            "it has ended"
        );
    }

    /// A reader announces room when half of the buffer is free.
    #[test]
    fn reader_announces_window_at_half_free() {
        let (mut sender, mut receiver) = (connected(), connected());
        receiver.announce();
        assert_eq!(receiver.announced, BUFFER as u64);
        let mut all = segment(&mut sender, Flags::Data);
        all.bytes = vec![0; BUFFER];
        receiver.take_bytes(&mut all);
        receiver.announce();
        assert_eq!(receiver.announced, BUFFER as u64, "the window is shut");
        assert_eq!(read(&mut receiver, MSS - 1).unwrap(), (MSS - 1, false));
        assert_eq!(read(&mut receiver, 1).unwrap(), (1, true));
        receiver.announce();
        assert_eq!(receiver.announced, (BUFFER + MSS) as u64);
    }

    /// The timeout follows round trips within its bounds.
    #[test]
    fn rto_follows_round_trips_within_bounds() {
        let mut socket = connected();
        socket.measure(1_000);
        assert_eq!(socket.rto, SHORTEST_RTO);
        (0..100).for_each(|_| socket.measure(500_000_000));
        assert!(
            (500_000_000..510_000_000).contains(&socket.rto),
            "{}",
            socket.rto
        );
        (0..100).for_each(|_| socket.measure(u64::MAX));
        assert_eq!(socket.rto, LONGEST_RTO);
    }

    /// The times of a socket move by a suspension and none of the past into the future.
    #[test]
    fn suspension_shifts_times_not_past_ones() {
        let mut socket = connected();
        (socket.timer.deadline, socket.keepalive_at, socket.rto) = (Some(110), Some(120), 20);
        (socket.heard, socket.stalled, socket.timed) = (90, Some(80), Some((5, 95)));
        socket.postpone(50, 150);
        let timers = (socket.timer.deadline, socket.keepalive_at);
        assert_eq!(timers, (Some(160), Some(170)));
        assert_eq!((socket.heard, socket.stalled), (140, Some(130)));
        assert_eq!(socket.timed, Some((5, 145)));
        // Its process was killed during the suspension, and the FIN was sent then.
        (socket.timer.deadline, socket.timed) = (Some(190), Some((6, 170)));
        socket.postpone(50, 200);
        assert_eq!(socket.timer.deadline, Some(220));
        assert_eq!((socket.heard, socket.timed), (190, Some((6, 200))));
    }
}

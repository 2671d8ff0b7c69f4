//! [`Segment`]: what TCP sends; and [`SpareSegments`], the memory of segments that are done.

use std::net::SocketAddr;

use crate::world::address::End;
use crate::world::trace::Message;
use crate::world::trace_event::{Flags, TraceEvent, digest};

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(super) from: End,
    pub(super) to: End,
    /// The numbers of the sockets at both ends, as far as they are known; zero otherwise. They save
    /// a search, and identify the same sockets as the addresses: numbers are not reused, and a
    /// socket keeps its addresses. (With gateways the addresses decide.)
    pub(super) from_id: u32,
    pub(super) to_id: u32,
    /// The time at which it was sent.
    pub(super) sent: u64,
    pub(super) flags: Flags,
    pub(super) seq: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) fin: bool,
    pub(super) ack: u64,
    /// The offset up to which the sender takes bytes.
    pub(super) limit: u64,
    /// The deadline of the sender's timer, if that is deferred: see "What is no event" in `tcp`.
    pub(super) timer: u64,
    /// The socket whose deferred timer this segment cancels when it arrives, or zero. That timer
    /// has to be armed if this segment does not arrive in time.
    pub(super) cancels: u32,
}

impl Segment {
    /// Returns the hosts that it goes from and to.
    pub(crate) fn way(&self) -> (usize, usize) {
        (self.from.0, self.to.0)
    }

    /// Returns the addresses that it goes from and to.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.from.1, self.to.1)
    }

    /// Returns the event that it arrives, or is lost.
    #[inline]
    pub(super) fn event(
        &self,
        kind: impl FnOnce(Flags, usize, u64, u64, usize) -> TraceEvent,
    ) -> TraceEvent {
        let digest = digest(self.ack, &self.bytes);
        kind(self.flags, self.from.0, self.seq, digest, self.bytes.len())
    }

    pub(super) fn message(&self, at: u64, is_lost: bool) -> Message {
        Message {
            sent: self.sent,
            at,
            from: self.from.0,
            to: self.to.0,
            name: self.flags.name(),
            seq: self.seq,
            len: self.bytes.len(),
            is_lost,
        }
    }
}

/// A segment that acknowledges all that is under way, and changes nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainAck {
    pub(super) sent: u64,
    /// The time of arrival.
    pub(super) at: u64,
    pub(super) seq: u64,
    pub(super) limit: u64,
}

/// Segments that are done, kept to reuse their memory: the boxes, and the bytes in them.
#[derive(Debug, Default)]
pub(super) struct SpareSegments(#[allow(clippy::vec_box)] Vec<Box<Segment>>);

impl SpareSegments {
    pub(super) fn push(&mut self, segment: Box<Segment>) {
        self.0.push(segment);
    }

    /// Creates a segment from one socket to another, with the numbers `ids`, in the memory of one
    /// that is done. It has no bytes, and its offsets are zero.
    #[inline(always)]
    pub(super) fn make(
        &mut self,
        [from, to]: [End; 2],
        ids: [u32; 2],
        flags: Flags,
    ) -> Box<Segment> {
        let segment = |bytes| Segment {
            from,
            to,
            from_id: ids[0],
            to_id: ids[1],
            sent: 0,
            flags,
            seq: 0,
            bytes,
            fin: false,
            ack: 0,
            limit: 0,
            timer: NEVER,
            cancels: 0,
        };
        let Some(mut place) = self.0.pop() else {
            return Box::new(segment(Vec::new()));
        };
        let mut bytes = std::mem::take(&mut place.bytes);
        bytes.clear();
        *place = segment(bytes);
        place
    }
}

/// The deadline of a timer that is not set.
pub(super) const NEVER: u64 = u64::MAX;
pub(super) const NO_TIMER: (u64, u32) = (NEVER, 0);

//! [`Segment`]: what TCP sends; and [`Spare`], the memory of segments that are done.

use std::net::SocketAddr;

use super::NEVER;
use crate::world::trace::{Flags, Message, What, digest};

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(super) from: (usize, SocketAddr),
    pub(super) to: (usize, SocketAddr),
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
    /// The deadline of the sender's timer, if the timer is only set.
    pub(super) timer: u64,
    /// The socket with the timer that this segment cancels, if the timer is only set; or zero.
    pub(super) calls_off: u32,
}

impl Segment {
    /// Returns the sockets that need their timers armed, if these are only set and this segment
    /// does not arrive now.
    pub(crate) fn timers(&self) -> [u32; 2] {
        [self.from_id, self.calls_off]
    }

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
    pub(super) fn event(&self, kind: impl FnOnce(Flags, usize, u64, u64, usize) -> What) -> What {
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

    /// Returns the segment that refuses this one, for which there is no socket: a RST.
    pub(super) fn refusal(&self, bytes: Vec<u8>) -> Segment {
        Segment {
            from: self.to,
            to: self.from,
            from_id: 0,
            to_id: self.from_id,
            sent: 0,
            flags: Flags::Reset,
            seq: self.ack,
            bytes,
            fin: false,
            ack: self.seq,
            limit: 0,
            timer: NEVER,
            calls_off: 0,
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
pub(super) struct Spare(#[allow(clippy::vec_box)] Vec<Box<Segment>>);

impl Spare {
    pub(super) fn push(&mut self, segment: Box<Segment>) {
        self.0.push(segment);
    }

    /// Creates a segment, in the memory of one that is done. It is made with an empty vector.
    #[inline(always)]
    pub(super) fn make(&mut self, segment: impl FnOnce(Vec<u8>) -> Segment) -> Box<Segment> {
        let Some(mut place) = self.0.pop() else {
            return Box::new(segment(Vec::new()));
        };
        let mut bytes = std::mem::take(&mut place.bytes);
        bytes.clear();
        *place = segment(bytes);
        place
    }
}

//! [`Datagram`]: what one host sends to another, or to all.

use std::net::SocketAddr;

use crate::world::trace::Message;
use crate::world::trace_event::{TraceEvent, digest};

#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: (usize, SocketAddr),
    pub(crate) to: (usize, SocketAddr),
    /// The time at which it was sent.
    pub(super) sent: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Data,
    Broadcast,
    /// No socket receives at `from` (ICMP's "port unreachable").
    Unreachable,
}

impl Datagram {
    /// Returns the hosts that it goes from and to.
    pub(crate) fn way(&self) -> (usize, usize) {
        (self.from.0, self.to.0)
    }

    /// Returns the event that it arrives, or is lost.
    pub(super) fn event(
        &self,
        kind: impl FnOnce(usize, u16, u64, usize) -> TraceEvent,
    ) -> TraceEvent {
        let digest = digest(self.kind as u64, &self.bytes);
        kind(self.from.0, self.to.1.port(), digest, self.bytes.len())
    }

    pub(super) fn message(&self, at: u64, is_lost: bool) -> Message {
        Message {
            sent: self.sent,
            at,
            from: self.from.0,
            to: self.to.0,
            name: match self.kind {
                Kind::Data => "datagram",
                Kind::Broadcast => "broadcast",
                Kind::Unreachable => "unreachable",
            },
            seq: 0,
            len: self.bytes.len(),
            is_lost,
        }
    }
}

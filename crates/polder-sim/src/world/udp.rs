//! UDP: independent datagrams.
//!
//! A datagram arrives, or it is lost: on its way ([`link`](super::link)), because its host does not
//! exist and so cannot refuse it, or because the receiver's buffer is full. If no socket of a host
//! receives at the port, the host reports that to the sender: its next call fails if it is
//! connected to that peer. Sending never waits, as the buffer of a real network card is not
//! simulated.
//!
//! There is no multicast, and no fragmentation.

pub(super) mod datagram;
pub(super) mod socket;

use std::io;
use std::net::SocketAddr;

use polder::kernel::{ERROR, READABLE, WRITABLE};

use super::errno::Errno;
use super::hosts::NOBODY;
use super::inbox::{Inbox, OVERHEAD};
use super::nat::{Effect, Route};
use super::ports::Protocol;
use super::sockets::Network;
use super::table::Socket as Any;
use super::trace_event::TraceEvent;
use datagram::{Datagram, Kind};
use socket::{Socket, lose, transmit};

/// The size of a receiver's buffer: Linux's `rmem_default`.
const BUFFER: usize = 212_992;

/// Sockets by their ports, and datagrams that have come.
impl Network<'_> {
    pub(crate) fn bind_udp(&mut self, local: SocketAddr) -> io::Result<u32> {
        self.bind(Protocol::Udp, local, |base, local| {
            Any::Udp(Box::new(Socket {
                base,
                local,
                peer: None,
                inbox: Inbox::default(),
            }))
        })
    }

    pub(super) fn close_udp(&mut self, id: u32) {
        if let Some(Any::Udp(socket)) = self.table.remove(id) {
            // The port is the one that it was bound to, even after it was connected.
            let port = (socket.base.host, socket.local.port());
            self.ports.remove(Protocol::Udp, port, id);
        }
    }

    pub(super) fn datagram_arrives(&mut self, mut datagram: Datagram) {
        if datagram.to.0 == NOBODY {
            return lose(&datagram, self.core);
        }
        let now = self.core.time.now();
        self.core.message(|| datagram.message(now, false));
        let (host, local) = datagram.to;
        self.core.note(host, datagram.event(TraceEvent::Datagram));
        if self.core.hosts.have_gateways() && datagram.kind != Kind::Broadcast {
            match self.forward_datagram(datagram) {
                Some(own) => datagram = own,
                None => return,
            }
        }
        let id = self.recipient_of_datagram(host, datagram.from.1, local);
        let recipient = id.and_then(|id| Some((id, self.table.udp(id).ok()?)));
        match (recipient, datagram.kind) {
            (None, Kind::Data) => {
                let unreachable = Datagram {
                    from: datagram.to,
                    to: datagram.from,
                    sent: now,
                    bytes: Vec::new(),
                    kind: Kind::Unreachable,
                };
                transmit(unreachable, self.core);
            }
            (None, _) => {}
            (Some((id, socket)), Kind::Unreachable) => {
                // An unconnected socket is not notified.
                if socket.peer.is_some() {
                    socket.base.error = Some(Errno::CONNREFUSED);
                    let ready = READABLE | WRITABLE | ERROR;
                    self.core.raise(id, &mut socket.base, ready);
                }
            }
            // The buffer is full when it exceeds its size: one datagram always fits.
            (Some((_, socket)), _) if socket.inbox.size > BUFFER.saturating_sub(OVERHEAD) => {
                lose(&datagram, self.core);
            }
            (Some((id, socket)), _) => {
                socket.inbox.push(datagram.from.1, datagram.bytes);
                self.core.raise(id, &mut socket.base, READABLE);
            }
        }
    }

    /// Forwards a datagram, if it has arrived at a gateway. Returns it if it is for the host
    /// itself.
    fn forward_datagram(&mut self, mut datagram: Datagram) -> Option<Datagram> {
        let effect = match datagram.kind {
            Kind::Unreachable => Effect::Icmp,
            Kind::Data | Kind::Broadcast => Effect::Other,
        };
        let (from, to) = (datagram.from, datagram.to);
        let message = (Protocol::Udp, effect);
        match self.nat.route(message, from, to, self.core, self.ports) {
            Route::Here => return Some(datagram),
            Route::Lost => lose(&datagram, self.core),
            Route::On(from, to, _) => {
                (datagram.from, datagram.to) = (from, to);
                datagram.sent = self.core.time.now();
                transmit(datagram, self.core);
            }
        }
        None
    }

    /// Returns the socket that receives a datagram from `from` to `to`.
    fn recipient_of_datagram(
        &mut self,
        host: usize,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Option<u32> {
        let all = self.ports.at(Protocol::Udp, (host, to.port())).iter();
        let mut suits = |id: u32| self.table.udp(id).ok()?.suits(from, to);
        let suiting = all.filter_map(|id| Some((suits(*id)?, *id)));
        suiting.max_by_key(|(how, _)| *how).map(|(_, id)| id)
    }
}

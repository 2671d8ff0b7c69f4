//! Counts of open sockets, as they are shown.

use std::fmt;
use std::sync::atomic::Ordering;

use super::dump::Count;
use super::json::Json;
use crate::scheduler::Shared;
use crate::telemetry::{SocketType, open_sockets};

/// The number of open sockets of each kind, of [`net`](crate::net) and in an
/// [`Async`](crate::Async). From [`Metrics::open_sockets`] and [`Dump::open_sockets`].
///
/// Sockets belong to no runtime, so these numbers are of the whole process, and include sockets
/// that no task waits for: a number of streams that only grows is a leak. A socket counts once,
/// regardless of clones and halves. In a simulated world the numbers are zero.
///
/// [`Metrics::open_sockets`]: super::Metrics::open_sockets
/// [`Dump::open_sockets`]: super::Dump::open_sockets
///
/// ```
/// # #[cfg(feature = "net")]
/// polder::block_on(async {
///     let socket = polder::net::UdpSocket::bind("127.0.0.1:0").await?;
///     let open = polder::Handle::current().metrics().open_sockets;
///     assert!(open.udp_sockets >= 1);
///     println!("{open}"); // 1 UDP socket
/// # drop(socket);
/// # std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct OpenSockets {
    /// TCP streams.
    pub tcp_streams: usize,
    /// TCP listeners.
    pub tcp_listeners: usize,
    /// UDP sockets.
    pub udp_sockets: usize,
    /// Unix streams.
    pub unix_streams: usize,
    /// Unix listeners.
    pub unix_listeners: usize,
    /// Unix datagram sockets.
    pub unix_datagrams: usize,
    /// Descriptors in an [`Async`](crate::Async).
    pub asyncs: usize,
}

impl OpenSockets {
    pub(super) fn of(shared: &Shared) -> OpenSockets {
        if shared.is_on_one_thread {
            return OpenSockets::default();
        }
        let open = |socket_type| open_sockets(Some(socket_type)).load(Ordering::Relaxed);
        OpenSockets {
            tcp_streams: open(SocketType::TcpStream),
            tcp_listeners: open(SocketType::TcpListener),
            udp_sockets: open(SocketType::UdpSocket),
            unix_streams: open(SocketType::UnixStream),
            unix_listeners: open(SocketType::UnixListener),
            unix_datagrams: open(SocketType::UnixDatagram),
            asyncs: open_sockets(None).load(Ordering::Relaxed),
        }
    }

    /// Returns each number, with its name for tools and its noun.
    pub(super) fn rows(&self) -> [(&'static str, &'static str, usize); 7] {
        [
            ("tcp_stream", "TCP stream", self.tcp_streams),
            ("tcp_listener", "TCP listener", self.tcp_listeners),
            ("udp_socket", "UDP socket", self.udp_sockets),
            ("unix_stream", "Unix stream", self.unix_streams),
            ("unix_listener", "Unix listener", self.unix_listeners),
            ("unix_datagram", "Unix datagram socket", self.unix_datagrams),
            ("async", "`Async` descriptor", self.asyncs),
        ]
    }

    pub(super) fn write_json(&self, out: &mut String) {
        let mut json = Json::object(out);
        for (name, _, count) in self.rows() {
            json.value(name, count);
        }
    }
}

/// Writes the kinds with open sockets.
impl fmt::Display for OpenSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut link = "";
        for (_, noun, count) in self.rows().into_iter().filter(|row| row.2 > 0) {
            write!(f, "{link}{}", Count(count, noun))?;
            link = ", ";
        }
        if link.is_empty() {
            f.write_str("none")?;
        }
        Ok(())
    }
}

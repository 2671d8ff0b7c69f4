//! Sockets: TCP, UDP, [Unix sockets], and name lookups.
//!
//! Names and behaviour are `async-net`'s. Streams implement the futures-io traits
//! ([`AsyncRead`](crate::io::AsyncRead) and [`AsyncWrite`](crate::io::AsyncWrite)), so the
//! combinators of [`crate::io`] and the ecosystem's TLS, WebSocket and HTTP crates work with them.
//!
//! A socket can be made, used and dropped on any thread, inside a runtime or not. It is registered
//! with the worker that waits for it, not with a runtime.
//!
//! # Readiness and non-blocking attempts
//!
//! A task can also wait for a socket without reading ([`readable`](TcpStream::readable),
//! [`ready`](TcpStream::ready)), so that an idle connection needs no buffer, read and write without
//! waiting ([`try_read`](TcpStream::try_read)), and make system calls that polder does not know
//! ([`try_io`](UdpSocket::try_io)). The names are tokio's.
//!
//! # Options
//!
//! Common options are methods, such as [`set_nodelay`](TcpStream::set_nodelay) and
//! [`set_keepalive`](TcpStream::set_keepalive). For others use `socket2::SockRef::from` with a
//! reference to a socket, which does not work in a simulated world.
//!
//! Options that must precede binding or connecting are set on a socket made elsewhere, for instance
//! with the crate [socket2](https://docs.rs/socket2) (any version: none of its types is part of
//! this interface). Pass it to `bind_with` or `connect_with`; or, once bound or connected, convert
//! it with `try_from`, as an `OwnedFd` (Windows: `OwnedSocket`) or as the standard library's
//! socket.
//!
//! ```
//! use polder::net::{SocketAddr, TcpListener, TcpStream};
//! use socket2::{Domain, Socket, Type};
//!
//! polder::block_on(async {
//!     let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
//!
//!     // Two listeners on one port: the system distributes connections among them.
//!     let listener = |address| {
//!         let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
//!         # #[cfg(not(any(windows, target_os = "illumos", target_os = "solaris")))]
//!         socket.set_reuse_port(true)?;
//!         TcpListener::bind_with(socket, address)
//!     };
//!     let first = listener(any)?;
//!     let address = first.local_addr()?;
//!     # #[cfg(not(any(windows, target_os = "illumos", target_os = "solaris")))]
//!     let second = listener(address)?;
//!
//!     // A connection from a chosen address, with a small receive buffer.
//!     let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
//!     socket.set_recv_buffer_size(16 * 1024)?;
//!     socket.bind(&any.into())?;
//!     let stream = TcpStream::connect_with(socket, address).await?;
//!     assert_eq!(stream.peer_addr()?, address);
//!     std::io::Result::Ok(())
//! })?;
//! # std::io::Result::Ok(())
//! ```
//!
#![cfg_attr(unix, doc = "[Unix sockets]: unix")]
#![cfg_attr(
    not(unix),
    doc = "[Unix sockets]: https://docs.rs/polder/latest/polder/net/unix/"
)]

mod addresses;
#[cfg(feature = "async-io-compat")]
mod compat;
mod happy_eyeballs;
mod listener;
mod macros;
mod resolver;
mod serve;
mod serve_on_workers;
mod socket;
mod split;
mod tcp;
mod udp;
#[cfg(unix)]
pub mod unix;

pub use crate::sys::{Datagram, Received};
pub use addresses::{AsyncToSocketAddrs, resolve};
pub use listener::Listener;
pub use serve::{Serve, Summary, serve};
pub use serve_on_workers::{ServeOnWorkers, serve_on_workers};
#[cfg(all(feature = "kernel", unix))]
pub use socket::SystemSockets;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
};
pub use tcp::{Incoming, Keepalive, TcpListener, TcpStream};
pub use udp::UdpSocket;

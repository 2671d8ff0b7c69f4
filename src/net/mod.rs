//! Sockets: TCP, and the resolving of names.
//!
//! Names and behaviour are those of `async-net`. Streams speak the futures-io traits
//! ([`AsyncRead`](crate::io::AsyncRead) and [`AsyncWrite`](crate::io::AsyncWrite)), so the
//! combinators of [`crate::io`] and the ecosystem's TLS, WebSocket and HTTP crates work on them.
//!
//! A socket can be made, used and dropped on any thread, inside a runtime or not. It belongs to
//! none: whichever worker waits for it watches it.

mod addresses;
mod listener;
mod socket;
mod split;
mod stream;
mod traits;
#[cfg(unix)]
pub mod unix;

pub use addresses::{AsyncToSocketAddrs, resolve};
pub use listener::{Incoming, TcpListener};
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6};
pub use stream::TcpStream;

//! Unix sockets: between processes of one machine, by path, by abstract name (Linux), or as pairs.
//!
//! Names and behaviour are those of the standard library and `async-net`. The addresses are
//! the standard library's, so `std::os::linux::net::SocketAddrExt` makes abstract ones.

mod address;
mod datagram;
mod listener;
mod stream;

pub use address::UCred;
pub use datagram::UnixDatagram;
pub use listener::UnixListener;
pub use std::os::unix::net::SocketAddr;
pub use stream::UnixStream;

/// The reading direction of a [`UnixStream`], borrowed: see [`UnixStream::split`].
pub type ReadHalf<'a> = super::ReadHalf<'a, UnixStream>;

/// The writing direction of a [`UnixStream`], borrowed: see [`UnixStream::split`].
pub type WriteHalf<'a> = super::WriteHalf<'a, UnixStream>;

/// The reading direction of a [`UnixStream`], owned: see [`UnixStream::into_split`].
pub type OwnedReadHalf = super::OwnedReadHalf<UnixStream>;

/// The writing direction of a [`UnixStream`], owned: see [`UnixStream::into_split`]. Dropping it ends
/// writing.
pub type OwnedWriteHalf = super::OwnedWriteHalf<UnixStream>;

/// Two halves, given back: they belong to different streams.
pub type ReuniteError = super::ReuniteError<UnixStream>;

/// The connections of a [`UnixListener`] as they come: see [`UnixListener::incoming`].
pub type Incoming<'a> = super::Incoming<'a, UnixStream>;

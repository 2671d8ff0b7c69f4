//! [`Sockets`] and [`Socket`]: what the sockets of `net` ask of a kernel.
//!
//! A socket is its kernel's from its creation to its end, whichever kernel a thread has meanwhile.
//! A call on it may come from any thread. One that would block fails with `WouldBlock`; the
//! kernel's [`Poller`](super::Poller)s report when it is worth another attempt.

use std::fmt::{self, Debug, Display};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
#[cfg(unix)]
use std::os::fd::BorrowedFd as Lent;
#[cfg(windows)]
use std::os::windows::io::BorrowedSocket as Lent;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use super::Boxed;

/// Makes the sockets of a kernel.
pub trait Sockets {
    /// Creates a socket that is bound to an address. A listener also listens, with a queue of
    /// `backlog`. `None`: a Unix datagram socket without an address.
    fn bind(
        &self,
        socket_type: SocketType,
        address: Option<&Address>,
        backlog: usize,
    ) -> io::Result<Boxed<dyn Socket>>;

    /// Creates two connected Unix sockets.
    fn pair(&self, socket_type: SocketType) -> io::Result<[Boxed<dyn Socket>; 2]>;

    /// Connects a Unix stream, or begins to connect a TCP stream
    /// ([`finish_connect`](Socket::finish_connect)). If the queue of a Unix listener is full, it
    /// fails with `WouldBlock`, and is called again later.
    fn connect(&self, socket_type: SocketType, address: &Address) -> io::Result<Boxed<dyn Socket>>;
}

/// A socket of a kernel. Dropping it closes it, also in a child of `fork`, which has a copy.
///
/// `id`, `ready`, `kind`, `local_addr` and `peer_addr` may be called under locks of the runtime:
/// they do not block, and drop no socket.
pub trait Socket: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Returns the number by which pollers of the kernel know it. No socket of another kernel of
    /// the process has it. The lower half is shown in dumps and traces.
    fn id(&self) -> u64;

    /// Returns its readiness, as [flags](super::READABLE).
    fn ready(&self) -> io::Result<u8>;

    /// Returns its kind, as a dump shows it.
    fn kind(&self) -> &'static str;

    /// Returns the descriptor that is lent to code outside polder by `AsFd` and the like, which
    /// cannot fail.
    fn lend(&self) -> Lent<'_>;

    /// Returns the result of connecting a TCP stream.
    fn finish_connect(&self) -> io::Result<()>;

    /// Returns its own address.
    fn local_addr(&self) -> io::Result<Address>;

    /// Returns the address of its peer.
    fn peer_addr(&self) -> io::Result<Address>;

    /// Sets the peer of a datagram socket.
    fn set_peer(&self, address: &Address) -> io::Result<()>;

    /// Shuts down directions that were not shut down before.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;

    /// Accepts a connection.
    fn accept(&self) -> io::Result<(Boxed<dyn Socket>, Address)>;

    /// Reads from a stream, or receives a datagram. Returns the number of bytes, and whether the
    /// read shows that nothing is left: neither bytes, nor an end, nor an error. `peeks`: the bytes
    /// stay.
    fn read(&self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> io::Result<(usize, bool)>;

    /// Writes to a stream.
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Receives a datagram. Returns its length, the sender's address, and whether its end was lost.
    /// `peeks`: it stays.
    fn receive(&self, bytes: &mut [u8], peeks: bool) -> io::Result<(usize, Address, bool)>;

    /// Sends a datagram, to the peer unless an address is given.
    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize>;

    /// Returns an option that is on or off.
    fn flag(&self, flag: Flag) -> io::Result<bool>;

    /// Returns how long closing it lingers.
    fn linger(&self) -> io::Result<Option<Duration>>;

    /// Returns an option with a number.
    fn number(&self, number: Number) -> io::Result<u32>;

    /// Returns an option of TCP. `None`: the kernel does not have it.
    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>>;

    /// Sets an option.
    fn set(&self, option: Opt) -> io::Result<()>;
}

/// The public type that a socket belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketType {
    TcpStream,
    TcpListener,
    UdpSocket,
    UnixStream,
    UnixListener,
    UnixDatagram,
}

/// The address of a socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Address {
    /// Of a TCP or UDP socket.
    Internet(SocketAddr),
    /// Of a Unix socket.
    Unix(Name),
}

/// The name of a Unix socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Name {
    /// It has none.
    Unnamed,
    /// A path, as the program has written it.
    Path(Vec<u8>),
    /// A name of Linux's abstract namespace.
    Abstract(Vec<u8>),
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Internet(address) => Display::fmt(address, f),
            Address::Unix(name) => Display::fmt(name, f),
        }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Unnamed => f.write_str("without a name"),
            Name::Path(path) => f.write_str(&String::from_utf8_lossy(path)),
            Name::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
        }
    }
}

/// An option that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    Broadcast,
    Keepalive,
    MulticastLoopV4,
    MulticastLoopV6,
    Nodelay,
    /// Whether a Unix socket accepts descriptors that its peer sends.
    Passrights,
}

/// An option with a number, which every system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    MulticastTtlV4,
    Ttl,
}

/// An option of TCP that has a number for its value, and that not every system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// Seconds from the last sign of life to keepalive's first probe.
    KeepIdle,
    /// Seconds between probes.
    KeepInterval,
    /// Probes without an answer after which the connection ends.
    KeepCount,
    /// Milliseconds for which data may stay unacknowledged; zero means the system's default.
    UserTimeout,
}

/// A multicast group, and the interface on which it is joined, by address or by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, u32),
}

/// An option and its new value. One of TCP is at most what Linux takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opt {
    Flag(Flag, bool),
    Join(Group),
    Leave(Group),
    Linger(Option<Duration>),
    Number(Number, u32),
    Tcp(TcpOption, u32),
}

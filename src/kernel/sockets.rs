//! [`Sockets`] and [`Socket`]: the sockets of a kernel, for `polder::net`.
//!
//! A socket belongs to its kernel from creation to end, regardless of the calling thread's kernel.
//! Any thread may call it. A call that would block fails with `WouldBlock`; the kernel's
//! [`Poller`](super::Poller)s report when to try again.

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
    /// Creates a socket bound to an address. A listener also listens, with a queue of `backlog`.
    /// Without an address: a Unix datagram socket.
    fn bind(
        &self,
        socket_type: SocketType,
        address: Option<&Address>,
        backlog: usize,
    ) -> io::Result<Boxed<dyn Socket>>;

    /// Creates two connected Unix sockets.
    fn pair(&self, socket_type: SocketType) -> io::Result<[Boxed<dyn Socket>; 2]>;

    /// Connects a Unix stream, or begins to connect a TCP stream
    /// ([`finish_connect`](Socket::finish_connect)). Fails with `WouldBlock` if the queue of a Unix
    /// listener is full, and is called again later.
    fn connect(&self, socket_type: SocketType, address: &Address) -> io::Result<Boxed<dyn Socket>>;
}

/// A socket of a kernel. Dropping it closes it, also in a child of `fork`, which has a copy.
///
/// `id`, `ready`, `kind`, `local_addr` and `peer_addr` may be called under locks of the runtime:
/// they do not block, and drop no socket.
pub trait Socket: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Returns its number for the kernel's pollers, which is unique among the kernels of the
    /// process. Dumps and traces show the lower half.
    fn id(&self) -> u64;

    /// Returns its readiness, as [flags](super::READABLE).
    fn ready(&self) -> io::Result<u8>;

    /// Returns its kind, for a dump.
    fn kind(&self) -> &'static str;

    /// Returns the descriptor that is lent to code outside polder by `AsFd` and the like, which
    /// cannot fail.
    fn lend(&self) -> Lent<'_>;

    /// Returns the descriptor for a kernel that waits for the socket, and changes nothing.
    fn descriptor(&self) -> Lent<'_> {
        self.lend()
    }

    /// Returns the result of connecting a TCP stream.
    fn finish_connect(&self) -> io::Result<()>;

    /// Returns its own address.
    fn local_addr(&self) -> io::Result<Address>;

    /// Returns its peer's address.
    fn peer_addr(&self) -> io::Result<Address>;

    /// Returns the user, the group and the process of a Unix stream's peer. `None`: they are those
    /// of this process.
    fn peer_cred(&self) -> Option<io::Result<(u32, u32, Option<i32>)>> {
        None
    }

    /// Sets the peer of a datagram socket.
    fn set_peer(&self, address: &Address) -> io::Result<()>;

    /// Shuts down the directions `left`: those of `how`, which was asked for, that were not shut
    /// down before.
    fn shutdown(&self, how: Shutdown, left: Shutdown) -> io::Result<()>;

    /// Accepts a connection.
    fn accept(&self) -> io::Result<(Boxed<dyn Socket>, Address)>;

    /// Reads from a stream, or receives a datagram. Returns the number of bytes, and whether
    /// nothing is left: neither bytes, nor an end, nor an error. If it `peeks`, the bytes stay.
    fn read(&self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> io::Result<(usize, bool)>;

    /// Writes to a stream.
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Receives a datagram. Returns its length, the sender's address, and whether it was truncated.
    /// If it `peeks`, the datagram stays.
    fn receive(&self, bytes: &mut [u8], peeks: bool) -> io::Result<(usize, Address, bool)>;

    /// Sends a datagram, to the peer unless an address is given.
    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize>;

    /// Returns a boolean option.
    fn flag(&self, flag: Flag) -> io::Result<bool>;

    /// Returns `SO_LINGER`.
    fn linger(&self) -> io::Result<Option<Duration>>;

    /// Returns a numeric option.
    fn number(&self, number: Number) -> io::Result<u32>;

    /// Returns a TCP option, or `None` if the kernel lacks it.
    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>>;

    /// Sets an option.
    fn set(&self, option: Opt) -> io::Result<()>;
}

/// The public type of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketType {
    TcpStream,
    TcpListener,
    UdpSocket,
    UnixStream,
    UnixListener,
    UnixDatagram,
}

impl SocketType {
    /// Returns the kind of such a socket, for a dump.
    pub fn kind(self) -> &'static str {
        match self {
            SocketType::TcpStream => "tcp",
            SocketType::TcpListener => "tcp listener",
            SocketType::UdpSocket => "udp",
            SocketType::UnixStream => "unix",
            SocketType::UnixListener => "unix listener",
            SocketType::UnixDatagram => "unix datagram",
        }
    }
}

/// The address of a socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Address {
    /// Of TCP and UDP.
    Internet(SocketAddr),
    /// Of Unix sockets.
    Unix(Name),
}

/// The name of a Unix socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Name {
    Unnamed,
    /// A path, as the program wrote it.
    Path(Vec<u8>),
    /// A name in Linux's abstract namespace.
    Abstract(Vec<u8>),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Internet(address)
    }
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

/// A boolean option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    Broadcast,
    Keepalive,
    MulticastLoopV4,
    MulticastLoopV6,
    Nodelay,
    /// Whether a Unix socket accepts descriptors from its peer.
    Passrights,
}

/// A numeric option that every system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    MulticastTtlV4,
    Ttl,
}

/// A numeric option of TCP that not every system has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// Seconds without traffic before keepalive's first probe.
    KeepIdle,
    /// Seconds between probes.
    KeepInterval,
    /// The number of unanswered probes that ends the connection.
    KeepCount,
    /// Milliseconds for which data may stay unacknowledged; zero means the system's default.
    UserTimeout,
}

/// A multicast group and its interface, by address or index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, u32),
}

/// An option and its new value. TCP's are at most Linux's maxima.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opt {
    Flag(Flag, bool),
    Join(Group),
    Leave(Group),
    Linger(Option<Duration>),
    Number(Number, u32),
    Tcp(TcpOption, u32),
}

//! [`SimSocket`]: what the sockets of `net` hold of a socket of the simulated kernel.
//!
//! A socket here is plain data that names one of the kernel's. Each call looks for the kernel of
//! this thread, and fails on a thread that is not in the socket's world.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd as BorrowedDescriptor, OwnedFd as OwnedDescriptor};
#[cfg(windows)]
use std::os::windows::io::{
    AsSocket, BorrowedSocket as BorrowedDescriptor, OwnedSocket as OwnedDescriptor,
};
use std::sync::OnceLock;
use std::time::Duration;

use polder::kernel::READABLE;
use polder::kernel::sockets::{Flag, Number, Opt, Socket, SocketType, Sockets, TcpOption};

use super::address::{self, Address, Name};
use super::errno::{Errno, refused, unsupported};
use super::kernel::Kernel;
use super::options::Options;
use super::sockets::Network;
use super::thread::{with, with_world};

/// Makes the sockets of the world that this thread is in.
pub(crate) struct MakesSockets;

/// Names a socket of a world, and closes it on drop.
#[derive(Debug)]
struct SimSocket {
    id: SimSocketId,
    lent: BorrowedDescriptor<'static>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SimSocketId {
    world: u32,
    number: u32,
}

/// The number by which pollers know it.
impl From<SimSocketId> for u64 {
    fn from(id: SimSocketId) -> u64 {
        u64::from(id.world) << 32 | u64::from(id.number)
    }
}

impl From<u64> for SimSocketId {
    fn from(id: u64) -> SimSocketId {
        SimSocketId {
            world: (id >> 32) as u32,
            number: id as u32,
        }
    }
}

/// The remark on what the world does not see.
const LENT: &str = "a descriptor of a simulated socket was asked for: what is done with it, the \
                    world does not see";

impl Drop for SimSocket {
    fn drop(&mut self) {
        let SimSocketId { world, number } = self.id;
        with_world(world, |kernel| {
            kernel.network().close(number);
        });
    }
}

/// The error of a call on a thread that is not the world's.
fn not_here() -> io::Error {
    refused("simulated socket used outside its world (on another thread, or after the world ended)")
}

/// Returns the descriptor that is lent for every simulated socket, because some signatures cannot
/// fail and need one. It is opened on first use and shared by all worlds, so operations on it must
/// leave no trace that another world could see.
fn placeholder() -> io::Result<BorrowedDescriptor<'static>> {
    static PLACEHOLDER: OnceLock<OwnedDescriptor> = OnceLock::new();
    if PLACEHOLDER.get().is_none() {
        // Another thread may have set it first.
        let _ = PLACEHOLDER.set(open_placeholder()?);
    }
    let placeholder = PLACEHOLDER.get().expect("it was set above");
    #[cfg(unix)]
    return Ok(placeholder.as_fd());
    #[cfg(windows)]
    return Ok(placeholder.as_socket());
}

/// Returns the file that is lent for every simulated file: as [`placeholder`], it is shared by all
/// worlds.
pub(crate) fn file_placeholder() -> io::Result<&'static File> {
    static PLACEHOLDER: OnceLock<File> = OnceLock::new();
    if PLACEHOLDER.get().is_none() {
        let _ = PLACEHOLDER.set(open_file_placeholder()?);
    }
    Ok(PLACEHOLDER.get().expect("it was set above"))
}

/// Opens a directory, as [`open_placeholder`] does: it can be neither read nor written.
#[cfg(unix)]
fn open_file_placeholder() -> io::Result<File> {
    open_placeholder().map(File::from)
}

/// Opens the null device without the right to read or write it.
#[cfg(windows)]
fn open_file_placeholder() -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;

    File::options().access_mode(0).open("NUL")
}

/// Opens a descriptor that is no socket, so that all socket calls on it fail. On Linux it names a
/// directory without opening it (`O_PATH`), and has neither flags nor a position; elsewhere it is
/// the directory, opened for reading.
#[cfg(unix)]
fn open_placeholder() -> io::Result<OwnedDescriptor> {
    use rustix::fs::{Mode, OFlags, open};

    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = flags | OFlags::PATH;
    Ok(open("/", flags, Mode::empty())?)
}

/// Opens an unconnected socket: only a socket can be lent as one.
#[cfg(windows)]
fn open_placeholder() -> io::Result<OwnedDescriptor> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    Ok(socket.into())
}

/// Creates the socket of the network that `make` makes.
fn create(make: impl FnOnce(&mut Network<'_>) -> io::Result<u32>) -> io::Result<Box<dyn Socket>> {
    create_all(|network| Ok([make(network)?])).map(|[socket]| socket)
}

/// Creates `N` sockets by one call.
fn create_all<const N: usize>(
    make: impl FnOnce(&mut Network<'_>) -> io::Result<[u32; N]>,
) -> io::Result<[Box<dyn Socket>; N]> {
    let lent = placeholder()?;
    let made = with(|kernel| {
        kernel.take_descriptors(N)?;
        let made = make(&mut kernel.network())?;
        Ok((kernel.core.world, made))
    });
    let (world, numbers) = made.unwrap_or_else(|| Err(not_here()))?;
    Ok(numbers.map(|number| boxed(SimSocketId { world, number }, lent)))
}

fn boxed(id: SimSocketId, lent: BorrowedDescriptor<'static>) -> Box<dyn Socket> {
    Box::new(SimSocket { id, lent })
}

impl Sockets for MakesSockets {
    fn bind(
        &self,
        socket_type: SocketType,
        address: Option<&Address>,
        backlog: usize,
    ) -> io::Result<Box<dyn Socket>> {
        let address = address.unwrap_or(&Address::Unix(Name::Unnamed));
        create(|network| match socket_type {
            SocketType::TcpListener => network.listen(address::internet(address)?, backlog),
            SocketType::UdpSocket => network.bind_udp(address::internet(address)?),
            SocketType::UnixListener => network.listen_unix(address::unix(address)?, backlog),
            SocketType::UnixDatagram => network.bind_unix(address::unix(address)?),
            other => Err(unsupported(&format!("binding a {other:?}"))),
        })
    }

    fn pair(&self, socket_type: SocketType) -> io::Result<[Box<dyn Socket>; 2]> {
        let is_stream = socket_type == SocketType::UnixStream;
        create_all(|network| network.pair(is_stream))
    }

    fn connect(&self, socket_type: SocketType, address: &Address) -> io::Result<Box<dyn Socket>> {
        create(|network| match socket_type {
            SocketType::UnixStream => network.connect_unix(address::unix(address)?),
            _ => network.connect(address::internet(address)?),
        })
    }
}

impl SimSocketId {
    /// Makes a call on the socket: calls `f` with the network that has it, and its number there.
    pub(super) fn with<R>(
        self,
        f: impl FnOnce(&mut Network<'_>, u32) -> io::Result<R>,
    ) -> io::Result<R> {
        let call = |kernel: &mut Kernel| f(&mut kernel.network(), self.number);
        with_world(self.world, call).unwrap_or_else(|| Err(not_here()))
    }
}

impl SimSocket {
    /// [`with`](SimSocketId::with) of this socket.
    fn with<R>(&self, f: impl FnOnce(&mut Network<'_>, u32) -> io::Result<R>) -> io::Result<R> {
        self.id.with(f)
    }

    fn options<R>(&self, f: impl FnOnce(&mut Options) -> R) -> io::Result<R> {
        self.with(|network, id| Ok(f(&mut network.table.base(id)?.options)))
    }
}

impl Socket for SimSocket {
    fn id(&self) -> u64 {
        self.id.into()
    }

    fn ready(&self) -> io::Result<u8> {
        self.with(|network, id| network.ready(id))
    }

    fn kind(&self) -> &'static str {
        let kind = self.with(|network, id| network.kind(id));
        kind.unwrap_or("socket")
    }

    fn lend(&self) -> BorrowedDescriptor<'_> {
        with(|kernel| kernel.core.report.remarks.insert(LENT));
        self.lent
    }

    fn finish_connect(&self) -> io::Result<()> {
        self.with(|network, id| network.finish_connect(id))
    }

    fn local_addr(&self) -> io::Result<Address> {
        self.with(|network, id| Ok(network.addresses(id)?.0))
    }

    fn peer_addr(&self) -> io::Result<Address> {
        self.with(|network, id| {
            let (_, peer) = network.addresses(id)?;
            peer.ok_or_else(|| Errno::NOTCONN.into())
        })
    }

    fn set_peer(&self, address: &Address) -> io::Result<()> {
        self.with(|network, id| network.set_peer(id, address))
    }

    fn shutdown(&self, _: Shutdown, left: Shutdown) -> io::Result<()> {
        self.with(|network, id| network.shut_down(id, left))
    }

    fn accept(&self) -> io::Result<(Box<dyn Socket>, Address)> {
        // A real kernel does this first.
        let taken = with_world(self.id.world, |kernel| kernel.take_descriptors(1));
        taken.unwrap_or_else(|| Err(not_here()))?;
        let (number, peer) = self.with(|network, id| network.accept(id))?;
        let id = SimSocketId { number, ..self.id };
        Ok((boxed(id, self.lent), peer))
    }

    fn read(&self, buffers: &mut [IoSliceMut<'_>], peeks: bool) -> io::Result<(usize, bool)> {
        self.with(|network, id| {
            let read = network.read(id, buffers, peeks)?;
            let is_drained = network.ready(id)? & READABLE == 0;
            Ok((read, is_drained))
        })
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.with(|network, id| network.write(id, buffers))
    }

    fn receive(&self, bytes: &mut [u8], peeks: bool) -> io::Result<(usize, Address, bool)> {
        self.with(|network, id| network.receive(id, bytes, peeks))
    }

    fn send(&self, bytes: &[u8], to: Option<&Address>) -> io::Result<usize> {
        self.with(|network, id| network.send(id, bytes, to))
    }

    fn flag(&self, flag: Flag) -> io::Result<bool> {
        self.options(|options| match flag {
            Flag::Broadcast => Ok(options.broadcast),
            Flag::Keepalive => Ok(options.keepalive),
            Flag::MulticastLoopV4 | Flag::MulticastLoopV6 => Err(unsupported("multicast")),
            Flag::Nodelay => Ok(options.nodelay),
            Flag::Passrights => Ok(false),
        })?
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        self.options(|options| options.linger)
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        match number {
            Number::MulticastTtlV4 => Err(unsupported("multicast")),
            Number::Ttl => self.options(|options| options.ttl),
        }
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        self.options(|options| Some(*options.tcp(option)))
    }

    /// Without a wildcard: a new option is simulated, or refused here.
    fn set(&self, option: Opt) -> io::Result<()> {
        match option {
            Opt::Flag(Flag::Broadcast, on) => self.options(|options| options.broadcast = on),
            Opt::Flag(Flag::Keepalive, on) => {
                self.with(|network, id| network.set_keepalive(id, on))
            }
            Opt::Flag(Flag::Nodelay, on) => self.options(|options| options.nodelay = on),
            Opt::Flag(Flag::Passrights, false) => Ok(()),
            Opt::Flag(Flag::Passrights, true) => Err(unsupported("passing descriptors")),
            Opt::Linger(linger) => self.options(|options| options.set_linger(linger)),
            Opt::Number(Number::Ttl, ttl) => self.options(|options| options.set_ttl(ttl))?,
            Opt::Tcp(option, value) => self.with(|network, id| network.set_tcp(id, option, value)),
            Opt::Flag(Flag::MulticastLoopV4 | Flag::MulticastLoopV6, _)
            | Opt::Number(Number::MulticastTtlV4, _)
            | Opt::Join(_)
            | Opt::Leave(_) => Err(unsupported("multicast")),
        }
    }
}

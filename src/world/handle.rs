//! [`SimSocket`]: what the sockets of `net` hold of a socket of the simulated kernel.
//!
//! A socket here is plain data that names one of the kernel's. Each call looks for the kernel of
//! this thread, and fails on a thread that is not in the socket's world.

use std::fs::File;
use std::io;
use std::sync::OnceLock;

use super::address::Address;
use super::errno::Errno;
use super::options::Options;
use super::sockets::Network;
use super::{Kernel, refused, with, with_world};
use crate::sys::{AsDescriptor, BorrowedDescriptor, OwnedDescriptor};

/// Names a socket of a world, and closes it on drop.
#[derive(Debug)]
pub(crate) struct SimSocket(SimSocketId);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SimSocketId {
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

impl Drop for SimSocket {
    fn drop(&mut self) {
        let SimSocketId { world, number } = self.0;
        with_world(world, |kernel| {
            kernel.network().close(number);
        });
    }
}

/// The error of a call on a thread that is not the world's.
fn not_here() -> io::Error {
    refused("a simulated socket is used outside of its world: on another thread, or after its end")
}

/// Returns the descriptor that is lent for every simulated socket, because some signatures cannot
/// fail and need one. It is opened on first use and shared by all worlds, so operations on it must
/// leave no trace that another world could see.
pub(crate) fn placeholder() -> io::Result<BorrowedDescriptor<'static>> {
    static PLACEHOLDER: OnceLock<OwnedDescriptor> = OnceLock::new();
    if PLACEHOLDER.get().is_none() {
        // Another thread may have set it first.
        let _ = PLACEHOLDER.set(open_placeholder()?);
    }
    Ok(PLACEHOLDER.get().expect("it was set above").as_descriptor())
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

impl SimSocket {
    /// Creates the socket of the network that `make` makes.
    pub(crate) fn new(
        make: impl FnOnce(&mut Network<'_>) -> io::Result<u32>,
    ) -> io::Result<SimSocket> {
        SimSocket::new_ones(|network| Ok([make(network)?])).map(|[socket]| socket)
    }

    /// Creates `N` sockets by one call.
    pub(crate) fn new_ones<const N: usize>(
        make: impl FnOnce(&mut Network<'_>) -> io::Result<[u32; N]>,
    ) -> io::Result<[SimSocket; N]> {
        let made = with(|kernel| {
            kernel.take_descriptors(N)?;
            let made = make(&mut kernel.network())?;
            Ok((kernel.core.world, made))
        });
        let (world, numbers) = made.unwrap_or_else(|| Err(not_here()))?;
        Ok(numbers.map(|number| SimSocket(SimSocketId { world, number })))
    }

    #[inline]
    pub(crate) fn id(&self) -> SimSocketId {
        self.0
    }
}

impl SimSocketId {
    /// Makes a call on the socket: calls `f` with the network that has it, and its number there.
    pub(crate) fn with<R>(
        self,
        f: impl FnOnce(&mut Network<'_>, u32) -> io::Result<R>,
    ) -> io::Result<R> {
        let call = |kernel: &mut Kernel| f(&mut kernel.network(), self.number);
        with_world(self.world, call).unwrap_or_else(|| Err(not_here()))
    }

    pub(crate) fn accept(self) -> io::Result<(SimSocket, Address)> {
        // A real kernel does this first.
        let taken = with_world(self.world, |kernel| kernel.take_descriptors(1));
        taken.unwrap_or_else(|| Err(not_here()))?;
        let (number, peer) = self.with(|network, id| network.accept(id))?;
        Ok((SimSocket(SimSocketId { number, ..self }), peer))
    }

    /// Returns whether the socket has any of this readiness.
    pub(crate) fn is_ready(self, for_what: u8) -> bool {
        let ready = self.with(|network, id| network.ready(id));
        ready.is_ok_and(|ready| ready & for_what != 0)
    }

    pub(crate) fn local_addr(self) -> io::Result<Address> {
        self.with(|network, id| Ok(network.addresses(id)?.0))
    }

    pub(crate) fn peer_addr(self) -> io::Result<Address> {
        self.with(|network, id| {
            let (_, peer) = network.addresses(id)?;
            peer.ok_or_else(|| Errno::NOTCONN.into())
        })
    }

    /// Returns the kind of socket, as a dump shows it.
    pub(crate) fn kind(self) -> &'static str {
        let kind = self.with(|network, id| network.kind(id));
        kind.unwrap_or("socket")
    }

    pub(crate) fn options<R>(self, f: impl FnOnce(&mut Options) -> R) -> io::Result<R> {
        self.with(|network, id| Ok(f(&mut network.table.base(id)?.options)))
    }
}

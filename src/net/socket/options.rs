//! Socket options as values: one call of each kernel reads them, and one sets them.
//!
//! A new option that every system has is a variant in `kernel/sockets.rs`, with an arm below and in
//! the simulator (`world/handle.rs` of `polder-sim`), neither of which compiles without it. A TCP
//! option that not every system has is a [`TcpOption`]: see "Adding a socket option" in
//! docs/EXTENDING.md.

use std::io;
use std::time::Duration;

use socket2::SockRef;

use super::system::SystemSocket;
pub(in crate::net) use crate::kernel::sockets::{Flag, Group, Number, Opt};
use crate::sys::{self, TcpOption};

pub(in crate::net) trait Options {
    fn flag(&self, flag: Flag) -> io::Result<bool>;
    fn linger(&self) -> io::Result<Option<Duration>>;
    fn number(&self, number: Number) -> io::Result<u32>;
    /// `None` if the system does not have the option.
    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>>;
    fn max_of(&self, option: TcpOption) -> u32;
    fn set(&self, option: Opt) -> io::Result<()>;
    /// A Unix socket's peer: user, group, and process if the system reports it.
    #[cfg(unix)]
    fn peer_cred(&self) -> io::Result<(u32, u32, Option<i32>)>;
}

impl Options for SystemSocket<'_> {
    fn flag(&self, flag: Flag) -> io::Result<bool> {
        let socket = SockRef::from(self);
        match flag {
            Flag::Broadcast => socket.broadcast(),
            Flag::Keepalive => socket.keepalive(),
            Flag::MulticastLoopV4 => socket.multicast_loop_v4(),
            Flag::MulticastLoopV6 => socket.multicast_loop_v6(),
            Flag::Nodelay => socket.tcp_nodelay(),
            Flag::Passrights => sys::passrights(self),
        }
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }

    fn number(&self, number: Number) -> io::Result<u32> {
        let socket = SockRef::from(self);
        match number {
            Number::MulticastTtlV4 => socket.multicast_ttl_v4(),
            Number::Ttl => socket.ttl_v4(),
        }
    }

    fn tcp_option(&self, option: TcpOption) -> io::Result<Option<u32>> {
        sys::tcp_option(self, option)
    }

    fn max_of(&self, option: TcpOption) -> u32 {
        sys::max_of(option)
    }

    fn set(&self, option: Opt) -> io::Result<()> {
        let socket = SockRef::from(self);
        match option {
            Opt::Flag(Flag::Broadcast, on) => socket.set_broadcast(on),
            Opt::Flag(Flag::Keepalive, on) => sys::unless_ended(socket.set_keepalive(on)),
            Opt::Flag(Flag::MulticastLoopV4, on) => socket.set_multicast_loop_v4(on),
            Opt::Flag(Flag::MulticastLoopV6, on) => socket.set_multicast_loop_v6(on),
            Opt::Flag(Flag::Nodelay, on) => sys::unless_ended(socket.set_tcp_nodelay(on)),
            Opt::Flag(Flag::Passrights, on) => {
                // Before the kernel lets any in. Refusing them again does not undo this: some may
                // be queued.
                self.socket.io.source().set_has_bytes_only(false);
                sys::set_passrights(self, on)
            }
            Opt::Join(Group::V4(group, interface)) => socket.join_multicast_v4(&group, &interface),
            Opt::Join(Group::V6(group, interface)) => socket.join_multicast_v6(&group, interface),
            Opt::Leave(Group::V4(group, interface)) => {
                socket.leave_multicast_v4(&group, &interface)
            }
            Opt::Leave(Group::V6(group, interface)) => socket.leave_multicast_v6(&group, interface),
            Opt::Linger(duration) => socket.set_linger(duration),
            // Some kernels store the lowest byte of larger values, and -1 is Linux's default.
            Opt::Number(Number::MulticastTtlV4 | Number::Ttl, ttl @ 256..) => {
                Err(sys::invalid(format!("TTL must be at most 255, got {ttl}")))
            }
            Opt::Number(Number::MulticastTtlV4, hops) => socket.set_multicast_ttl_v4(hops),
            Opt::Number(Number::Ttl, hops) => socket.set_ttl_v4(hops),
            Opt::Tcp(option, value) => sys::set_tcp_option(self, option, value),
        }
    }

    #[cfg(unix)]
    fn peer_cred(&self) -> io::Result<(u32, u32, Option<i32>)> {
        sys::peer_cred(self)
    }
}

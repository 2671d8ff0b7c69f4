//! The auto traits of public types, in one table, checked at compile time: a field added inside
//! must not remove one unnoticed.
//!
//! A panic leaves nothing here broken: locks are not poisoned, and no foreign code runs during an
//! update. So everything is `UnwindSafe` and `RefUnwindSafe`, as far as the user values that it
//! holds are. Exceptions are below the table, with the missing traits and the reason.

use std::panic::{RefUnwindSafe, UnwindSafe};

macro_rules! table {
    ($($(#[$cfg:meta])* $type:ty;)*) => {
        $($(#[$cfg])* const _: () = {
            const fn has<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
            has::<$type>();
        };)*
    };
}

/// `has!(type: traits)`: the type has all of these.
macro_rules! has {
    ($type:ty: $($trait:ident)*) => {
        const _: () = {
            const fn has<T: $($trait +)*>() {}
            has::<$type>();
        };
    };
}

/// `lacks!(type: traits)`: the type has none of these. (If it had one, `wants` would be ambiguous,
/// a compile error.)
macro_rules! lacks {
    ($type:ty: $($trait:ident)*) => {
        $(const _: fn() = || {
            trait Wants<Meaning> {
                fn wants() {}
            }
            struct HasIt;
            impl<T: ?Sized> Wants<()> for T {}
            impl<T: ?Sized + $trait> Wants<HasIt> for T {}
            <$type as Wants<_>>::wants();
        };)*
    };
}

table! {
    polder::Async<std::net::UdpSocket>;
    polder::Backend;
    polder::FallibleTask<u8>;
    polder::Handle;
    polder::Task<u8>;
    polder::TaskSet<u8>;
    polder::Timer;
    polder::event::Event;
    polder::event::EventWait<'static>;
    polder::event::Latch;
    polder::event::LatchWait<'static>;
    polder::fs::DirBuilder;
    polder::fs::DirEntry;
    polder::fs::FileType;
    polder::fs::Metadata;
    polder::fs::OpenOptions;
    polder::fs::Permissions;
    polder::io::Readable<'static, std::net::UdpSocket>;
    polder::io::ReadableOwned<std::net::UdpSocket>;
    polder::io::Writable<'static, std::net::UdpSocket>;
    polder::io::WritableOwned<std::net::UdpSocket>;
    polder::poller::Capabilities;
    polder::poller::Event;
    polder::poller::Events;
    polder::poller::Interest;
    polder::poller::Mode;
    polder::poller::Poller;
    polder::poller::Token;
    #[cfg(unix)]
    polder::process::Child;
    #[cfg(unix)]
    polder::process::ChildStderr;
    #[cfg(unix)]
    polder::process::ChildStdin;
    #[cfg(unix)]
    polder::process::ChildStdout;
    polder::runtime::Builder;
    polder::runtime::Scope<'static, 'static>;
    polder::runtime::ScopedTask<'static, u8>;
    polder::task::AbortHandle;
    polder::time::Elapsed;
    polder::time::Interval;
    polder::time::MissedTickBehavior;
    polder::time::Sleep;
    polder::time::Timeout<std::future::Ready<u8>>;
    polder::net::Summary;
    polder::net::TcpListener;
    polder::net::TcpStream;
    polder::net::UdpSocket;
    polder::net::OwnedReadHalf;
    polder::net::OwnedWriteHalf;
    polder::net::ReadHalf<'static>;
    polder::net::WriteHalf<'static>;
    polder::net::ReuniteError;
    #[cfg(unix)]
    polder::net::unix::OwnedReadHalf;
    #[cfg(unix)]
    polder::net::unix::OwnedWriteHalf;
    #[cfg(unix)]
    polder::net::unix::ReadHalf<'static>;
    #[cfg(unix)]
    polder::net::unix::ReuniteError;
    #[cfg(unix)]
    polder::net::unix::UCred;
    #[cfg(unix)]
    polder::net::unix::UnixDatagram;
    #[cfg(unix)]
    polder::net::unix::UnixListener;
    #[cfg(unix)]
    polder::net::unix::UnixStream;
    #[cfg(unix)]
    polder::net::unix::WriteHalf<'static>;
    polder::signal::Signal;
    polder::signal::Signals;
}

// A runtime belongs to one thread.
has!(polder::Runtime: Unpin);
lacks!(polder::Runtime: Send Sync UnwindSafe RefUnwindSafe);

// A type that holds an `io::Error`, or a future or function of hidden type, cannot promise unwind
// safety.
has!(polder::io::Unblock<std::fs::File>: Send Sync Unpin);
has!(polder::process::Command: Send Sync Unpin);
has!(polder::io::Unblock<std::marker::PhantomPinned>: Send Sync Unpin);
has!(polder::fs::File: Send Sync Unpin);
has!(polder::fs::ReadDir: Send Sync Unpin);
has!(polder::signal::CtrlC: Send Sync Unpin);
has!(polder::net::Incoming<'static>: Send Sync Unpin);
#[cfg(unix)]
has!(polder::net::unix::Incoming<'static>: Send Sync Unpin);

// A server holds the handler, and an error callback, which need not be `Sync`.
#[allow(dead_code, reason = "older compilers do not count its uses below")]
type Handler = fn(polder::net::TcpStream, std::net::SocketAddr) -> std::future::Ready<()>;
has!(polder::net::Serve<'static, polder::net::TcpListener, Handler>: Send Unpin);
has!(polder::net::ServeOnWorkers<'static, polder::net::TcpListener, Handler>: Send Unpin);

//! Which auto traits the public types have, in one table, checked at compile time: a field that is
//! added inside must not take one away unseen.
//!
//! Nothing here is broken by a panic: locks are not poisoned, and no foreign code runs while
//! something is half done. So everything is `UnwindSafe` and `RefUnwindSafe`, as far as what it
//! holds for the user is. What is an exception stands below the table, with what it lacks and why.

use std::panic::{RefUnwindSafe, UnwindSafe};

macro_rules! table {
    ($($(#[$cfg:meta])* $type:ty;)*) => {
        $($(#[$cfg])* const _: () = {
            const fn has<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
            has::<$type>();
        };)*
    };
}

/// `has!(type: traits)`: it has all of them.
macro_rules! has {
    ($type:ty: $($trait:ident)*) => {
        const _: () = {
            const fn has<T: $($trait +)*>() {}
            has::<$type>();
        };
    };
}

/// `lacks!(type: traits)`: it has none of them. (Where it has one, `wants` has two meanings, and
/// the compiler asks which.)
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
    polder::runtime::Builder;
    polder::runtime::Scope<'static, 'static>;
    polder::runtime::ScopedTask<'static, u8>;
    polder::task::AbortHandle;
    polder::time::Elapsed;
    polder::time::Interval;
    polder::time::MissedTickBehavior;
    polder::time::Sleep;
    polder::time::Timeout<std::future::Ready<u8>>;
    #[cfg(feature = "net")]
    polder::net::Summary;
    #[cfg(feature = "net")]
    polder::net::TcpListener;
    #[cfg(feature = "net")]
    polder::net::TcpStream;
    #[cfg(feature = "net")]
    polder::net::UdpSocket;
    #[cfg(feature = "net")]
    polder::net::OwnedReadHalf;
    #[cfg(feature = "net")]
    polder::net::OwnedWriteHalf;
    #[cfg(feature = "net")]
    polder::net::ReadHalf<'static>;
    #[cfg(feature = "net")]
    polder::net::WriteHalf<'static>;
    #[cfg(feature = "net")]
    polder::net::ReuniteError;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::OwnedReadHalf;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::OwnedWriteHalf;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::ReadHalf<'static>;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::ReuniteError;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::UCred;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::UnixDatagram;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::UnixListener;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::UnixStream;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::WriteHalf<'static>;
    #[cfg(feature = "signal")]
    polder::signal::Signal;
    #[cfg(feature = "signal")]
    polder::signal::Signals;
}

// It belongs to one thread.
has!(polder::Runtime: Unpin);
lacks!(polder::Runtime: Send Sync UnwindSafe RefUnwindSafe);

// What holds an `io::Error`, or a future or function whose type it does not tell, cannot promise
// how that takes a panic.
#[cfg(feature = "blocking")]
has!(polder::io::Unblock<std::fs::File>: Send Sync Unpin);
#[cfg(feature = "signal")]
has!(polder::signal::CtrlC: Send Sync Unpin);
#[cfg(feature = "net")]
has!(polder::net::Incoming<'static>: Send Sync Unpin);
#[cfg(all(unix, feature = "net"))]
has!(polder::net::unix::Incoming<'static>: Send Sync Unpin);

// It has the handler, and a function that hears of errors, which need not be `Sync`.
#[cfg(feature = "net")]
#[allow(dead_code, reason = "older compilers do not count its uses below")]
type Handler = fn(polder::net::TcpStream, std::net::SocketAddr) -> std::future::Ready<()>;
#[cfg(feature = "net")]
has!(polder::net::Serve<'static, polder::net::TcpListener, Handler>: Send Unpin);
#[cfg(feature = "net")]
has!(polder::net::ServeOnWorkers<'static, polder::net::TcpListener, Handler>: Send Unpin);

//! Which auto traits the public types have, in one table, checked at compile time: a field that is added
//! inside must not take one away unseen.
//!
//! Nothing here is broken by a panic: locks are not poisoned, and no foreign code runs while something is
//! half done. So everything is `UnwindSafe` and `RefUnwindSafe`, as far as what it holds for the user is.
//! (`Runtime` is not among them: it belongs to one thread.)

use std::panic::{RefUnwindSafe, UnwindSafe};

macro_rules! table {
    ($($(#[$cfg:meta])* $type:ty;)*) => {
        $($(#[$cfg])* const _: () = {
            const fn has<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe>() {}
            has::<$type>();
        };)*
    };
}

table! {
    polder::Async<std::net::UdpSocket>;
    polder::Backend;
    polder::Event;
    polder::FallibleTask<u8>;
    polder::Handle;
    polder::Task<u8>;
    polder::TaskSet<u8>;
    polder::Timer;
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
    polder::time::Elapsed;
    polder::time::Interval;
    polder::time::MissedTickBehavior;
    polder::time::Sleep;
    polder::time::Timeout<std::future::Ready<u8>>;
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
    polder::net::unix::UCred;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::UnixDatagram;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::UnixListener;
    #[cfg(all(unix, feature = "net"))]
    polder::net::unix::UnixStream;
    #[cfg(feature = "signal")]
    polder::signal::Signal;
    #[cfg(feature = "signal")]
    polder::signal::Signals;
}

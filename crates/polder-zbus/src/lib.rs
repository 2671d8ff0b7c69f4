//! zbus on [polder]: its connections run in tasks of a polder runtime, without a thread of their
//! own.
//!
//! ```
//! use polder::future::try_zip;
//! use polder_zbus::Runtime;
//! use zbus::connection::Builder;
//!
//! struct Squares;
//!
//! #[zbus::interface(name = "org.example.Squares")]
//! impl Squares {
//!     async fn square(&self, number: u32) -> u32 {
//!         number * number
//!     }
//! }
//!
//! # #[cfg(unix)]
//! polder::block_on(async {
//!     // Of two peers; on a bus, `Builder::session()` is in the place of `unix_stream`.
//!     let (near, far) = std::os::unix::net::UnixStream::pair()?;
//!     let server = Builder::unix_stream(near)
//!         .runtime(Runtime::current())
//!         .server(zbus::Guid::generate())
//!         .p2p()
//!         .serve_at("/squares", Squares);
//!     let client = Builder::unix_stream(far).runtime(Runtime::current()).p2p();
//!     let (_server, client) = try_zip(server.build(), client.build()).await?;
//!
//!     let interface = Some("org.example.Squares");
//!     let reply = client.call_method(None::<&str>, "/squares", interface, "Square", &7_u32);
//!     let reply = reply.await?;
//!     assert_eq!(reply.body().deserialize::<u32>()?, 49);
//!     zbus::Result::Ok(())
//! })?;
//! # zbus::Result::Ok(())
//! ```
//!
//! zbus is without its default feature `default-rt`, the runtime that it has otherwise.

#![deny(missing_docs)]
#![warn(missing_debug_implementations, unreachable_pub)]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::OwnedFd as Owned;
#[cfg(windows)]
use std::os::windows::io::OwnedSocket as Owned;
use std::path::Path;
use std::pin::Pin;
#[cfg(unix)]
use std::process::{Command, ExitStatus, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;

use polder::net::TcpStream;
use polder::time::{Sleep, sleep};
use polder::{Async, FallibleTask, Handle, unblock};
use zbus::runtime::traits::{self, PollIo, TaskHandle};
use zbus::runtime::{Interest, IoSource};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// polder as a runtime for zbus: see [`zbus::connection::Builder::runtime`].
///
/// ```
/// polder::block_on(async {
///     let address = "unix:path=/nonexistent";
///     let builder = zbus::connection::Builder::address(address);
///     let connection = builder.runtime(polder_zbus::Runtime::current()).build().await;
///     assert!(connection.is_err()); // There is no bus.
/// });
/// ```
///
/// A bus that is a child process (`unixexec:`) takes a thread of polder's pool for as long as it
/// runs. On Windows there are no Unix sockets: connecting to one is `Unsupported`.
#[derive(Clone, Debug)]
pub struct Runtime(Handle);

impl Runtime {
    /// Returns the runtime that this thread drives: its tasks drive the connection. On a plain
    /// thread it is polder's background runtime.
    ///
    /// # Panics
    ///
    /// As [`Handle::current`].
    pub fn current() -> Runtime {
        Runtime(Handle::current())
    }
}

impl traits::Runtime for Runtime {
    type RegisteredIoSource = Source;
    type Sleep = Sleep;
    type Task<T: Send + 'static> = Task<T>;

    fn register_io_source(&self, source: IoSource) -> io::Result<Source> {
        Async::new(source).map(Source)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        sleep(duration)
    }

    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let builder = polder::task::Builder::new().name(name.to_owned());
        Task(builder.spawn_on(future, &self.0).fallible())
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<IoSource> {
        Owned::try_from(TcpStream::connect(address).await?).map(IoSource::from)
    }

    #[cfg(unix)]
    async fn connect_unix(&self, path: &Path) -> io::Result<IoSource> {
        use polder::net::unix::{SocketAddr, UnixStream};

        #[cfg(any(target_os = "linux", target_os = "android"))]
        let address = {
            #[cfg(target_os = "android")]
            use std::os::android::net::SocketAddrExt;
            #[cfg(target_os = "linux")]
            use std::os::linux::net::SocketAddrExt;
            use std::os::unix::ffi::OsStrExt;

            match path.as_os_str().as_bytes().strip_prefix(b"\0") {
                Some(name) => SocketAddr::from_abstract_name(name)?,
                None => SocketAddr::from_pathname(path)?,
            }
        };
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let address = SocketAddr::from_pathname(path)?;
        let stream = UnixStream::connect_addr(&address).await?;
        Owned::try_from(stream).map(IoSource::from)
    }

    #[cfg(windows)]
    async fn connect_unix(&self, _path: &Path) -> io::Result<IoSource> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Its end is waited for by a thread of the pool.
    #[cfg(unix)]
    fn spawn_process(
        &self,
        mut command: Command,
        stdin: Stdio,
        stdout: Stdio,
        stderr: Stdio,
    ) -> io::Result<BoxFuture<io::Result<ExitStatus>>> {
        let mut child = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn()?;
        Ok(traits::Runtime::spawn_blocking(self, move || child.wait()))
    }

    fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> BoxFuture<T> {
        Box::pin(Blocking(Some(unblock(work))))
    }
}

/// Work that is done even if this is dropped before it has begun.
struct Blocking<T>(Option<polder::Task<T>>);

impl<T> Future for Blocking<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let task = self.0.as_mut().expect("it is taken by the destructor only");
        Pin::new(task).poll(cx)
    }
}

impl<T> Drop for Blocking<T> {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}

/// A socket or pipe of a connection.
#[derive(Debug)]
pub struct Source(Async<IoSource>);

impl PollIo for Source {
    fn poll_io<T>(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut operation: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        match interest {
            Interest::Readable => self.0.poll_read_with(cx, |_| operation()),
            _ => self.0.poll_write_with(cx, |_| operation()),
        }
    }
}

/// A task of a connection.
#[derive(Debug)]
pub struct Task<T>(FallibleTask<T>);

impl<T: Send + 'static> TaskHandle<T> for Task<T> {
    fn detach(self) {
        self.0.detach();
    }
}

impl<T> Future for Task<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let ended = || io::Error::other("the runtime has ended");
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|result| result.ok_or_else(ended))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    fn source(stream: &UnixStream) -> Source {
        let source = IoSource::from(Owned::from(stream.try_clone().unwrap()));
        traits::Runtime::register_io_source(&Runtime::current(), source).unwrap()
    }

    /// A source that always has bytes lets other tasks run.
    #[test]
    fn ready_source_lets_other_tasks_run() {
        polder::block_on(async {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(&[7; 10_000]).unwrap();
            let source = source(&far);
            let has_run = Arc::new(AtomicBool::new(false));
            let flag = has_run.clone();
            let reader = polder::spawn(async move {
                for _ in 0..10_000 {
                    let read = || (&far).read_exact(&mut [0]);
                    let read = poll_fn(|cx| source.poll_io(cx, Interest::Readable, read));
                    read.await.unwrap();
                }
                flag.load(Ordering::Relaxed)
            });
            polder::spawn(async move { has_run.store(true, Ordering::Relaxed) }).detach();
            assert!(reader.await, "the other task had to wait for the reader");
        });
    }

    /// An operation that blocks on a ready source ends the poll.
    #[test]
    fn would_block_on_ready_source_ends_poll() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"!").unwrap();
        let source = source(&far);
        let mut cx = Context::from_waker(Waker::noop());
        for interest in [Interest::Readable, Interest::Writable] {
            let blocked = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
            assert!(source.poll_io(&mut cx, interest, blocked).is_pending());
        }
    }
}

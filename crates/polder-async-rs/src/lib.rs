//! [async-rs](async_rs), by which lapin (AMQP) has its runtime, on [polder].
//!
//! ```no_run
//! use lapin::options::BasicPublishOptions;
//! use lapin::{BasicProperties, Connection, ConnectionProperties};
//!
//! polder::block_on(async {
//!     let (uri, options) = ("amqp://localhost", ConnectionProperties::default());
//!     let runtime = polder_async_rs::runtime();
//!     let connection = Connection::connect_with_runtime(uri, options, runtime).await?;
//!     let channel = connection.create_channel().await?;
//!     let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
//!     let sent = channel.basic_publish("".into(), "queue".into(), options, b"hello", properties);
//!     sent.await?;
//!     connection.close(200, "bye".into()).await
//! })?;
//! # lapin::Result::Ok(())
//! ```
//!
//! lapin and async-rs are without their default features, which have a tokio.
//!
//! **lapin's thread.** lapin reads and writes on a thread that it starts for each connection. The
//! connection's socket thus waits in polder's background runtime, and is not part of a simulated
//! world. lapin's tasks, such as heartbeats, run on the runtime that [`runtime`] was called on.
//! Close the connection before that runtime ends.
//!
//! **Names** are looked up by the standard library, on a thread of polder's pool.

#![deny(missing_docs)]
#![warn(missing_debug_implementations, unreachable_pub)]

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsFd as AsSocket, OwnedFd as Owned};
#[cfg(windows)]
use std::os::windows::io::{AsSocket, OwnedSocket as Owned};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_rs::Runtime;
use async_rs::traits::{Executor, Reactor, RuntimeKit};
use async_rs::util::{Task, TaskImpl};
use polder::future::FutureExt;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::TcpStream;
use polder::stream::Stream;
use polder::time::{Sleep, now, sleep};
use polder::{Async, Handle, Timer, unblock};

/// Returns polder as a runtime of async-rs. Its tasks run on the runtime that this thread drives;
/// on a plain thread, on polder's background runtime.
///
/// ```
/// use async_rs::traits::{Executor, Reactor};
/// use polder::io::AsyncReadExt;
/// use std::net::TcpListener;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let runtime = polder_async_rs::runtime();
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut stream = runtime.tcp_connect(listener.local_addr()?).await?;
///     let task = runtime.spawn(async move {
///         let mut byte = [0];
///         stream.read_exact(&mut byte).await.map(|()| byte)
///     });
///     runtime.sleep(Duration::from_millis(1)).await;
///     std::io::Write::write_all(&mut listener.accept()?.0, b"!")?;
///     assert_eq!(&task.await?, b"!");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Panics
///
/// As [`Handle::current`].
pub fn runtime() -> Runtime<Polder> {
    Polder(Handle::current()).into()
}

/// The parts of [`runtime`].
#[derive(Clone, Debug)]
pub struct Polder(Handle);

impl RuntimeKit for Polder {}

impl Executor for Polder {
    type Task<T: Send + 'static> = PolderTask<T>;

    fn block_on<T, F: Future<Output = T>>(&self, future: F) -> T {
        polder::block_on(future)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> Task<PolderTask<T>> {
        PolderTask(Some(self.0.spawn(future))).into()
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        work: F,
    ) -> Task<PolderTask<T>> {
        PolderTask(Some(unblock(work))).into()
    }
}

/// A task of [`Polder`].
#[derive(Debug)]
pub struct PolderTask<T>(Option<polder::Task<T>>);

#[async_trait::async_trait]
impl<T: Send + 'static> TaskImpl for PolderTask<T> {
    /// `None` also if the task has panicked, as async-rs has it.
    async fn cancel(&mut self) -> Option<T> {
        let cancelled = AssertUnwindSafe(self.0.take()?.cancel());
        cancelled.catch_unwind().await.ok().flatten()
    }

    fn detach(&mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}

impl<T> Future for PolderTask<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let task = self.0.as_mut().expect("a cancelled task is not awaited");
        Pin::new(task).poll(cx)
    }
}

impl Reactor for Polder {
    type TcpStream = TcpStream;
    type Sleep = Sleep;

    fn register<H: Read + Write + AsSocket + Send + 'static>(
        &self,
        handle: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        #[cfg(unix)]
        let duplicate = handle.as_fd().try_clone_to_owned()?;
        #[cfg(windows)]
        let duplicate = handle.as_socket().try_clone_to_owned()?;
        Ok(Registered {
            handle,
            readiness: Async::new(duplicate)?,
        })
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        sleep(duration)
    }

    fn interval(&self, period: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        Timer::interval_at(now(), period)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<TcpStream>> + Send + 'static {
        connect(address)
    }
}

/// Connects, without Nagle's delays: async-rs' other runtimes do so too.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A handle of the caller's, which reads and writes, and a duplicate of its descriptor, which waits
/// and shares the handle's non-blocking mode.
///
/// The handle itself cannot wait: its methods take `&mut`, so that it may replace its descriptor
/// while that is registered. [`Async`] would need a promise that it does not, by unsafe code.
struct Registered<H> {
    handle: H,
    readiness: Async<Owned>,
}

/// The handle is never pinned.
impl<H> Unpin for Registered<H> {}

impl<H: Read> AsyncRead for Registered<H> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Registered { handle, readiness } = &mut *self;
        readiness.poll_read_with(cx, |_| handle.read(bytes))
    }
}

impl<H: Write> AsyncWrite for Registered<H> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Registered { handle, readiness } = &mut *self;
        readiness.poll_write_with(cx, |_| handle.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Registered { handle, readiness } = &mut *self;
        readiness.poll_write_with(cx, |_| handle.flush())
    }

    /// Flushes only, as [`Async`] does: the handle is closed when it is dropped.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use polder::io::AsyncReadExt;
    use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    /// A handle that always has bytes lets other tasks run.
    #[test]
    fn ready_handle_lets_other_tasks_run() {
        polder::block_on(async {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(&[7; 10_000]).unwrap();
            let mut far = Polder(Handle::current()).register(far).unwrap();
            let has_run = Arc::new(AtomicBool::new(false));
            let flag = has_run.clone();
            let reader = polder::spawn(async move {
                for _ in 0..10_000 {
                    far.read_exact(&mut [0]).await.unwrap();
                }
                flag.load(Ordering::Relaxed)
            });
            polder::spawn(async move { has_run.store(true, Ordering::Relaxed) }).detach();
            assert!(reader.await, "the other task had to wait for the reader");
        });
    }

    /// Waits for a write, as that of TLS may.
    struct Blocked(UnixStream);

    impl Read for Blocked {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    impl Write for Blocked {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsSocket for Blocked {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl AsRawFd for Blocked {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }

    /// An operation that blocks on a ready handle ends the poll.
    #[test]
    fn would_block_on_ready_handle_ends_poll() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"!").unwrap();
        let mut far = Polder(Handle::current()).register(Blocked(far)).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let (read, written) = (
            Pin::new(&mut far).poll_read(&mut cx, &mut [0]).is_pending(),
            Pin::new(&mut far).poll_write(&mut cx, &[0]).is_pending(),
        );
        assert!(read && written);
    }
}

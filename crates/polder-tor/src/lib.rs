//! arti, the implementation of Tor in Rust, on [polder]: the traits of [tor_rtcompat] for sockets,
//! timers, tasks and blocking calls.
//!
//! ```
//! use futures_rustls::rustls::crypto::ring;
//! use polder::io::{AsyncReadExt, AsyncWriteExt};
//! use polder::stream::StreamExt;
//! use std::net::SocketAddr;
//! use tor_rtcompat::tls::RustlsProvider;
//! use tor_rtcompat::{NetStreamListener, NetStreamProvider, SpawnExt};
//!
//! let _ = ring::default_provider().install_default(); // An error: there is one already.
//! polder::block_on(async {
//!     let runtime = polder_tor::runtime(RustlsProvider::default());
//!     // A client is `TorClient::with_runtime(runtime).create_bootstrapped().await?`. It uses
//!     // the runtime like this:
//!     let here = SocketAddr::from(([127, 0, 0, 1], 0));
//!     let listener = runtime.listen(&here, &Default::default()).await?;
//!     let there: SocketAddr = listener.local_addr()?;
//!     let client = runtime.clone();
//!     let client = runtime.spawn_with_handle(async move {
//!         client.connect(&there, &Default::default()).await?.write_all(b"hello").await
//!     });
//!
//!     let mut text = String::new();
//!     let (mut stream, _peer) = listener.incoming().next().await.expect("it never ends")?;
//!     stream.read_to_string(&mut text).await?;
//!     assert_eq!(text, "hello");
//!     client.expect("polder takes every task").await
//! })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! **TLS** is tor-rtcompat's: its providers wrap the streams of any runtime. They are there if one
//! of tor-rtcompat's own runtimes is, which then is linked and never started:
//! `tor-rtcompat = { version = "0.47", features = ["rustls", "tokio"] }`, or `native-tls` in the
//! place of `rustls`. The program chooses rustls' cryptography, as above. A relay's acceptor needs
//! the feature `tls-server`.
//!
//! **Clocks** are polder's [`now`], and tor-rtcompat's for coarse and for calendar time. In a
//! simulated world the latter two are the world's if it answers for libc. A world has no buffer
//! sizes, no listeners with IPv6 addresses, and no calls that enter the runtime again.

#![deny(missing_docs)]
#![warn(missing_debug_implementations, unreachable_pub)]

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_task::{FutureObj, Spawn, SpawnError};
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::stream::Stream;
use polder::time::{Sleep, now, sleep};
use polder::{Handle, Task, unblock};
use tor_general_addr::unix;
use tor_rtcompat::{
    Blocking, CompoundRuntime, NetStreamListener, NetStreamProvider, RealCoarseTimeProvider,
    SleepProvider, StreamOps, TcpConnectOptions, TcpListenOptions, ToplevelBlockOn, UdpProvider,
    UnixConnectOptions, UnixListenOptions,
};

/// polder as a runtime for arti, with TLS by `T`: see [`runtime`].
pub type Runtime<T> =
    CompoundRuntime<Polder, Polder, RealCoarseTimeProvider, Polder, Polder, T, Polder>;

/// Returns polder as a runtime for arti, with TLS by `tls`. Its tasks run on the runtime that this
/// thread drives; on a plain thread, on polder's background runtime.
///
/// ```
/// use std::time::Duration;
/// use tor_rtcompat::tls::RustlsProvider;
/// use tor_rtcompat::{SleepProviderExt, ToplevelBlockOn};
///
/// # let _ = futures_rustls::rustls::crypto::ring::default_provider().install_default();
/// let runtime = polder_tor::runtime(RustlsProvider::default());
/// let never = runtime.timeout(Duration::from_millis(1), std::future::pending::<()>());
/// assert!(runtime.block_on(never).is_err());
/// ```
///
/// # Panics
///
/// As [`Handle::current`].
pub fn runtime<T>(tls: T) -> Runtime<T> {
    let polder = Polder(Handle::current());
    let part = || polder.clone();
    let coarse = RealCoarseTimeProvider::new();
    CompoundRuntime::new(part(), part(), coarse, part(), part(), tls, part())
}

/// The parts of [`runtime`] that are polder's.
#[derive(Clone, Debug)]
pub struct Polder(Handle);

impl Spawn for Polder {
    #[track_caller]
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        self.0.spawn(future).detach();
        Ok(())
    }
}

impl SleepProvider for Polder {
    type SleepFuture = Sleep;

    fn sleep(&self, duration: Duration) -> Sleep {
        sleep(duration)
    }

    fn now(&self) -> Instant {
        now()
    }
}

/// The future itself runs on this thread. Its tasks run where [`runtime`] says, and continue after
/// it: that runtime must be driven by another thread, as the background runtime is.
impl ToplevelBlockOn for Polder {
    #[track_caller]
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        polder::block_on(future)
    }
}

impl Blocking for Polder {
    type ThreadHandle<T: Send + 'static> = Call<T>;

    #[track_caller]
    fn spawn_blocking<F, T>(&self, work: F) -> Call<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Call(Some(unblock(work)))
    }

    #[track_caller]
    fn reenter_block_on<F: Future>(&self, future: F) -> F::Output {
        polder::block_on(future)
    }
}

/// A call on polder's pool of threads. It is made even if this is dropped before.
#[derive(Debug)]
pub struct Call<T>(Option<Task<T>>);

impl<T> Future for Call<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let task = self.0.as_mut().expect("only the destructor takes it");
        Pin::new(task).poll(cx)
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.detach();
        }
    }
}

/// A stream, a listener or a UDP socket of polder's, for the traits of tor-rtcompat.
#[derive(Debug)]
pub struct Socket<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, bytes)
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read_vectored(cx, slices)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

impl StreamOps for Socket<TcpStream> {
    fn set_tcp_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        #[cfg(any(target_os = "android", target_os = "linux"))]
        return socket2::SockRef::from(&self.0).set_tcp_notsent_lowat(bytes);
        #[cfg(not(any(target_os = "android", target_os = "linux")))]
        {
            let (option, reason) = ("set_tcp_notsent_lowat", "it is of Linux and Android");
            let _ = bytes;
            Err(tor_rtcompat::UnsupportedStreamOp::new(option, reason).into())
        }
    }

    /// The connection is open for as long as this handle is.
    fn new_handle(&self) -> Box<dyn StreamOps + Send + Unpin> {
        Box::new(Socket(self.0.clone()))
    }
}

#[async_trait]
impl NetStreamProvider<SocketAddr> for Polder {
    type Stream = Socket<TcpStream>;
    type Listener = Socket<TcpListener>;
    type ConnectOptions = TcpConnectOptions;
    type ListenOptions = TcpListenOptions;

    async fn connect(
        &self,
        address: &SocketAddr,
        options: &TcpConnectOptions,
    ) -> io::Result<Socket<TcpStream>> {
        let common = options.common();
        let sizes = [*common.send_buffer_size(), *common.recv_buffer_size()];
        let connected = match sizes {
            [None, None] => TcpStream::connect(*address).await,
            _ => TcpStream::connect_with(with_buffers(address, sizes)?, *address).await,
        };
        connected.map(Socket)
    }

    /// An IPv6 address is not one for IPv4, too: arti listens on both.
    async fn listen(
        &self,
        address: &SocketAddr,
        options: &TcpListenOptions,
    ) -> io::Result<Socket<TcpListener>> {
        let common = options.common();
        let sizes = [*common.send_buffer_size(), *common.recv_buffer_size()];
        if address.is_ipv4() && sizes == [None, None] {
            return TcpListener::bind(*address).await.map(Socket);
        }
        let socket = with_buffers(address, sizes)?;
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        TcpListener::bind_with(socket, *address).map(Socket)
    }
}

/// Makes a socket with buffers of these sizes: that of sending comes first.
fn with_buffers(address: &SocketAddr, sizes: [Option<usize>; 2]) -> io::Result<socket2::Socket> {
    let domain = socket2::Domain::for_address(*address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    let [send, receive] = sizes;
    send.map_or(Ok(()), |size| socket.set_send_buffer_size(size))?;
    receive.map_or(Ok(()), |size| socket.set_recv_buffer_size(size))?;
    Ok(socket)
}

impl NetStreamListener<SocketAddr> for Socket<TcpListener> {
    type Stream = Socket<TcpStream>;
    type Incoming = Self;

    fn incoming(self) -> Self {
        self
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Stream for Socket<TcpListener> {
    type Item = io::Result<(Socket<TcpStream>, SocketAddr)>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = self.0.poll_accept(cx);
        accepted.map(|result| Some(result.map(|(stream, peer)| (Socket(stream), peer))))
    }
}

#[async_trait]
impl UdpProvider for Polder {
    type UdpSocket = Socket<UdpSocket>;

    async fn bind(&self, address: &SocketAddr) -> io::Result<Socket<UdpSocket>> {
        UdpSocket::bind(*address).await.map(Socket)
    }
}

#[async_trait]
impl tor_rtcompat::UdpSocket for Socket<UdpSocket> {
    async fn recv(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.recv_from(bytes).await
    }

    async fn send(&self, bytes: &[u8], target: &SocketAddr) -> io::Result<usize> {
        self.0.send_to(bytes, *target).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[cfg(unix)]
mod unix_sockets {
    use super::*;
    use polder::net::unix::{UnixListener, UnixStream};

    /// It has no options.
    impl StreamOps for Socket<UnixStream> {}

    #[async_trait]
    impl NetStreamProvider<unix::SocketAddr> for Polder {
        type Stream = Socket<UnixStream>;
        type Listener = Socket<UnixListener>;
        type ConnectOptions = UnixConnectOptions;
        type ListenOptions = UnixListenOptions;

        async fn connect(
            &self,
            address: &unix::SocketAddr,
            _options: &UnixConnectOptions,
        ) -> io::Result<Socket<UnixStream>> {
            UnixStream::connect_addr(address).await.map(Socket)
        }

        async fn listen(
            &self,
            address: &unix::SocketAddr,
            _options: &UnixListenOptions,
        ) -> io::Result<Socket<UnixListener>> {
            UnixListener::bind_addr(address).map(Socket)
        }
    }

    impl NetStreamListener<unix::SocketAddr> for Socket<UnixListener> {
        type Stream = Socket<UnixStream>;
        type Incoming = Self;

        fn incoming(self) -> Self {
            self
        }

        fn local_addr(&self) -> io::Result<unix::SocketAddr> {
            self.0.local_addr()
        }
    }

    impl Stream for Socket<UnixListener> {
        type Item = io::Result<(Socket<UnixStream>, unix::SocketAddr)>;

        fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            let accepted = self.0.poll_accept(cx);
            accepted.map(|result| Some(result.map(|(stream, peer)| (Socket(stream), peer))))
        }
    }
}

/// arti has no Unix sockets on Windows.
#[cfg(not(unix))]
#[async_trait]
impl NetStreamProvider<unix::SocketAddr> for Polder {
    type Stream = tor_rtcompat::unimpl::FakeStream;
    type Listener = tor_rtcompat::unimpl::FakeListener<unix::SocketAddr>;
    type ConnectOptions = UnixConnectOptions;
    type ListenOptions = UnixListenOptions;

    async fn connect(
        &self,
        _address: &unix::SocketAddr,
        _options: &UnixConnectOptions,
    ) -> io::Result<Self::Stream> {
        Err(unix::NoAfUnixSocketSupport::default().into())
    }

    async fn listen(
        &self,
        _address: &unix::SocketAddr,
        _options: &UnixListenOptions,
    ) -> io::Result<Self::Listener> {
        Err(unix::NoAfUnixSocketSupport::default().into())
    }
}

//! quinn on [polder]: a UDP socket, timers and tasks. quinn-udp makes the system calls on polder's
//! socket: many datagrams per call (GSO, GRO), and congestion marks (ECN).
//!
//! ```
//! use quinn::EndpointConfig;
//!
//! polder::block_on(async {
//!     let config = EndpointConfig::default();
//!     let endpoint = polder_quinn::endpoint(config, None, "127.0.0.1:0").await?;
//!     endpoint.close(0_u32.into(), b"done");
//!     endpoint.wait_idle().await;
//!     std::io::Result::Ok(())
//! })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! quinn needs a feature for its cryptography, such as `rustls-ring`.

#![deny(missing_docs)]
#![warn(missing_debug_implementations, unreachable_pub)]

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use polder::net::{AsyncToSocketAddrs, UdpSocket};
use polder::poller::Interest;
use polder::time::{self, Sleep};
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncTimer, AsyncUdpSocket, Endpoint, EndpointConfig, ServerConfig, UdpPoller};
use socket2::{SockRef, Type};

/// Returns an endpoint at this address, of the system or of a simulated world: there polder's own
/// calls send and receive one datagram each.
///
/// ```
/// use quinn::EndpointConfig;
///
/// polder::block_on(async {
///     let config = EndpointConfig::default();
///     let client = polder_quinn::endpoint(config, None, "127.0.0.1:0").await?;
///     assert_eq!(client.open_connections(), 0);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// That of [`UdpSocket::bind`].
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn endpoint(
    config: EndpointConfig,
    server: Option<ServerConfig>,
    address: impl AsyncToSocketAddrs,
) -> io::Result<Endpoint> {
    let socket = UdpSocket::bind(address).await?;
    // A simulated socket's descriptor is not that of a datagram socket, or there is none.
    let is_simulated = !matches!(SockRef::from(&socket).r#type(), Ok(Type::DGRAM));
    let socket: Arc<dyn AsyncUdpSocket> = if is_simulated {
        Arc::new(Simulated(socket))
    } else {
        Arc::new(Socket::new(socket)?)
    };
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(Runtime))
}

/// polder as a runtime for quinn, for an endpoint with a socket that exists. Its tasks run in the
/// runtime in which an endpoint is made or connects.
///
/// ```
/// use polder_quinn::Runtime;
/// use std::net::UdpSocket;
/// use std::sync::Arc;
///
/// polder::block_on(async {
///     let socket = UdpSocket::bind("127.0.0.1:0")?;
///     quinn::Endpoint::new(Default::default(), None, socket, Arc::new(Runtime))?;
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Runtime;

impl quinn::Runtime for Runtime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(time::sleep_until(at)))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        polder::spawn(future).detach();
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(socket.try_into()?)?))
    }

    fn now(&self) -> Instant {
        time::now()
    }
}

#[derive(Debug)]
struct Timer(Sleep);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.0.reset(at);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

#[derive(Debug)]
struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    fn new(socket: UdpSocket) -> io::Result<Socket> {
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Socket { socket, state })
    }
}

/// Whether the next datagram may be received: nothing has come, or the error is about one datagram
/// (an ICMP message to a connected socket). quinn would end the endpoint.
fn is_passing(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::*;
    matches!(
        kind,
        WouldBlock | ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable
    )
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        // Each connection waits on a separate handle.
        Box::pin(Writable(self.socket.clone()))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let send = || self.state.send((&self.socket).into(), transmit);
        self.socket.try_io(Interest::WRITABLE, send)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_recv_ready(cx))?;
            let receive = || self.state.recv((&self.socket).into(), buffers, metas);
            match self.socket.try_io(Interest::READABLE, receive) {
                Err(error) if is_passing(error.kind()) => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// A socket of a simulated world: one datagram per call, no congestion marks.
#[derive(Debug)]
struct Simulated(UdpSocket);

impl AsyncUdpSocket for Simulated {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable(self.0.clone()))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.0.try_send_to(transmit.contents, transmit.destination) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // As in quinn-udp: a datagram that cannot be sent is lost.
            _ => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (len, addr) = ready!(self.0.poll_recv_from(cx, &mut buffers[0]))?;
        metas[0] = RecvMeta::default();
        (metas[0].addr, metas[0].len, metas[0].stride) = (addr, len, len);
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[derive(Debug)]
struct Writable(UdpSocket);

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_send_ready(cx)
    }
}

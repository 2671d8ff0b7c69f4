//! hickory-resolver on polder: looks up names by DNS, without a thread of the pool. Copy this file.
//! It needs hickory-resolver without its feature `tokio`, async-trait and futures-io.
//!
//! ```no_run
//! use hickory_resolver::Resolver;
//! use interop::{PolderProvider, addresses};
//!
//! // As /etc/resolv.conf says.
//! let dns = Resolver::builder(PolderProvider).and_then(|builder| builder.build());
//! let dns = dns.map_err(std::io::Error::other)?;
//! let runtime = polder::Runtime::builder()
//!     .resolver(move |host| {
//!         let dns = dns.clone();
//!         async move { addresses(&dns, host).await }
//!     })
//!     .build()?;
//! # std::io::Result::Ok(())
//! ```

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::Resolver;
use hickory_resolver::net::runtime::{DnsTcpStream, DnsUdpSocket, RuntimeProvider, Spawn, Time};
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::{TcpStream, UdpSocket};
use polder::time::{sleep, timeout};

/// How long a connection to a name server may take, unless hickory specifies it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks up a name, for [`Builder::resolver`](polder::runtime::Builder::resolver).
pub async fn addresses(dns: &Resolver<PolderProvider>, host: String) -> io::Result<Vec<IpAddr>> {
    match dns.lookup_ip(host).await {
        Ok(found) => Ok(found.iter().collect()),
        Err(error) if error.is_no_records_found() || error.is_nx_domain() => {
            Err(io::Error::new(io::ErrorKind::NotFound, error))
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

/// hickory's runtime interface.
#[derive(Clone, Copy, Default, Debug)]
pub struct PolderProvider;

impl RuntimeProvider for PolderProvider {
    type Handle = PolderProvider;
    type Timer = PolderProvider;
    type Udp = Udp;
    type Tcp = Tcp;

    fn create_handle(&self) -> PolderProvider {
        PolderProvider
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        own: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Tcp>>>> {
        Box::pin(async move {
            let limit = limit.unwrap_or(PATIENCE);
            let stream = match own {
                None => TcpStream::connect_timeout(server, limit).await?,
                Some(own) => {
                    let domain = socket2::Domain::for_address(server);
                    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
                    socket.bind(&own.into())?;
                    timeout(limit, TcpStream::connect_with(socket, server)).await??
                }
            };
            stream.set_nodelay(true)?;
            Ok(Tcp(stream))
        })
    }

    fn bind_udp(
        &self,
        own: SocketAddr,
        _server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Udp>>>> {
        Box::pin(async move { UdpSocket::bind(own).await.map(Udp) })
    }
}

impl Spawn for PolderProvider {
    fn spawn_bg(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        polder::spawn(future).detach();
    }
}

#[async_trait]
impl Time for PolderProvider {
    async fn delay_for(duration: Duration) {
        sleep(duration).await;
    }

    async fn timeout<F: 'static + Future + Send>(
        duration: Duration,
        future: F,
    ) -> io::Result<F::Output> {
        Ok(timeout(duration, future).await?)
    }
}

/// A socket for single queries.
pub struct Udp(UdpSocket);

impl DnsUdpSocket for Udp {
    type Time = PolderProvider;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_recv_from(cx, bytes)
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        address: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send_to(cx, bytes, address)
    }
}

/// A connection for long answers.
pub struct Tcp(TcpStream);

impl DnsTcpStream for Tcp {
    type Time = PolderProvider;
}

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, bytes)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

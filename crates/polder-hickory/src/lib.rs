//! hickory-resolver on [polder]: a runtime's names are looked up by DNS, without a thread of the
//! pool.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use hickory_resolver::Resolver;
//! use polder_hickory::{Provider, lookup};
//!
//! // As /etc/resolv.conf says.
//! let dns = Resolver::builder(Provider).and_then(|builder| builder.build());
//! let dns = dns.map_err(std::io::Error::other)?;
//! let runtime = polder::Runtime::builder().resolver(lookup(dns)).build()?;
//! let found = runtime.block_on(polder::net::resolve("localhost:80"))?;
//! assert!(found.iter().all(|address| address.ip().is_loopback()));
//! # Ok(())
//! # }
//! ```
//!
//! hickory-resolver is without its feature `tokio`, which is a default one.

#![deny(missing_docs)]
#![warn(missing_debug_implementations, unreachable_pub)]

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::Resolver;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::{DnsTcpStream, DnsUdpSocket, RuntimeProvider, Spawn, Time};
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::{TcpStream, UdpSocket};
use polder::time::{sleep, timeout};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How long a connection to a name server may take, unless hickory specifies it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks up names, for [`Builder::resolver`](polder::runtime::Builder::resolver). A name that is
/// unknown, or has no address, is an error of the kind [`NotFound`](io::ErrorKind::NotFound), and a
/// question that no server answers in time one of the kind [`TimedOut`](io::ErrorKind::TimedOut).
///
/// ```
/// use hickory_resolver::Resolver;
/// use polder_hickory::{Provider, lookup};
///
/// // A real one names its servers.
/// let dns = Resolver::builder_with_config(Default::default(), Provider).build();
/// let lookup = lookup(dns.map_err(std::io::Error::other)?);
/// let found = polder::block_on(lookup("localhost".to_owned()))?;
/// assert!(found.iter().all(|address| address.is_loopback()));
/// # std::io::Result::Ok(())
/// ```
pub fn lookup(
    dns: Resolver<Provider>,
) -> impl Fn(String) -> BoxFuture<io::Result<Vec<IpAddr>>> + Send + Sync + 'static {
    move |host| {
        let dns = dns.clone();
        Box::pin(async move {
            let found = dns.lookup_ip(host).await;
            let found = found.map_err(|error| io::Error::new(kind_of(&error), error))?;
            Ok(found.iter().collect())
        })
    }
}

fn kind_of(error: &NetError) -> io::ErrorKind {
    match error {
        _ if error.is_no_records_found() || error.is_nx_domain() => io::ErrorKind::NotFound,
        NetError::Timeout => io::ErrorKind::TimedOut,
        NetError::Io(error) => error.kind(),
        _ => io::ErrorKind::Other,
    }
}

/// hickory's trait for runtimes.
///
/// ```
/// let builder = hickory_resolver::Resolver::builder_with_config(
///     hickory_resolver::config::ResolverConfig::default(),
///     polder_hickory::Provider,
/// );
/// assert!(builder.build().is_ok());
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Provider;

impl RuntimeProvider for Provider {
    type Handle = Provider;
    type Timer = Provider;
    type Udp = Udp;
    type Tcp = Tcp;

    fn create_handle(&self) -> Provider {
        Provider
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        own: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> BoxFuture<io::Result<Tcp>> {
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

    fn bind_udp(&self, own: SocketAddr, _server: SocketAddr) -> BoxFuture<io::Result<Udp>> {
        Box::pin(async move { UdpSocket::bind(own).await.map(Udp) })
    }
}

impl Spawn for Provider {
    fn spawn_bg(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        polder::spawn(future).detach();
    }
}

#[async_trait]
impl Time for Provider {
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
#[derive(Debug)]
pub struct Udp(UdpSocket);

impl DnsUdpSocket for Udp {
    type Time = Provider;

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
#[derive(Debug)]
pub struct Tcp(TcpStream);

impl DnsTcpStream for Tcp {
    type Time = Provider;
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

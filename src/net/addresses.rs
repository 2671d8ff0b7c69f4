//! [`AsyncToSocketAddrs`], the trait of socket addresses as users write them, and the loops over
//! several addresses.

use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

use super::happy_eyeballs::race;
use super::resolver::look_up;
use super::socket::{Socket, SocketType, kernel};
use crate::clock::now;
use crate::sys::invalid;
use crate::time::timeout;

/// Types that convert to socket addresses: addresses, pairs of host and port, and text of the form
/// `"host:port"`.
///
/// Only names are looked up, on threads of the pool, so the worker is not blocked.
///
/// Sealed. Implemented for the types that implement `std::net::ToSocketAddrs`.
///
/// ```
/// use polder::net::{AsyncToSocketAddrs, Ipv4Addr, TcpListener, resolve};
/// use std::io;
///
/// polder::block_on(async {
///     async fn listen(address: impl AsyncToSocketAddrs) -> io::Result<TcpListener> {
///         TcpListener::bind(address).await
///     }
///
///     listen("127.0.0.1:0").await?;
///     listen((Ipv4Addr::LOCALHOST, 0)).await?;
///     listen(&resolve(("localhost", 0)).await?[..]).await?; // The first address that is free.
///     let error = listen("127.0.0.1").await.unwrap_err(); // There is no port.
///     assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a socket address",
    label = "not an address",
    note = "an address is text such as \"127.0.0.1:80\", a pair of host and port, a `SocketAddr`, or a slice of these last",
    note = "for bytes of an address: `SocketAddr::from(([127, 0, 0, 1], 80))`"
)]
#[doc(alias = "ToSocketAddrs")]
pub trait AsyncToSocketAddrs: sealed::Sealed {}

pub(super) mod sealed {
    use super::*;

    pub trait Sealed {
        /// Whether it can be a name. A constant, so that a program without names is linked without
        /// the resolver.
        #[doc(hidden)]
        const NAMES: bool = false;

        /// Whether there may be several addresses. If not, a program is linked without the race of
        /// several.
        #[doc(hidden)]
        const MANY: bool = false;

        /// Returns the addresses, or a host and a port to look up.
        #[doc(hidden)]
        fn parse(&self) -> io::Result<Parsed>;
    }

    #[doc(hidden)]
    #[derive(Debug)]
    pub enum Parsed {
        One(SocketAddr),
        Many(Vec<SocketAddr>),
        Name(String, u16),
    }
}

use sealed::{Parsed, Sealed};

/// Looks up the addresses of `host`, by the system's resolver or [the runtime's
/// own](crate::runtime::Builder::resolver). Addresses are returned as they are.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let addresses = polder::net::resolve("127.0.0.1:80").await?;
///     assert_eq!(addresses, ["127.0.0.1:80".parse().unwrap()]);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for text that is not `host:port`; the resolver's
/// error, with the name.
///
/// # Cancel safety
///
/// Cancel safe. A lookup that has begun occupies its thread until the resolver answers.
#[doc(alias("lookup_host", "to_socket_addrs"))]
pub async fn resolve(host: impl AsyncToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    Ok(match lookup(&host).await? {
        Addresses::One(address) => vec![address],
        Addresses::Many(addresses) => addresses,
    })
}

/// One address needs no allocation.
pub(super) enum Addresses {
    One(SocketAddr),
    Many(Vec<SocketAddr>),
}

/// The longest host name (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 255;

async fn lookup<A: AsyncToSocketAddrs>(host: &A) -> io::Result<Addresses> {
    Ok(match host.parse()? {
        Parsed::One(address) => Addresses::One(address),
        Parsed::Many(addresses) => Addresses::Many(addresses),
        // Windows' resolver takes the empty name to mean this machine.
        Parsed::Name(host, _) if host.is_empty() => {
            return Err(invalid("cannot resolve \"\": the host name is empty"));
        }
        Parsed::Name(host, _) if host.len() > LONGEST_NAME => {
            return Err(invalid("cannot resolve a host name of more than 255 bytes"));
        }
        Parsed::Name(..) if !A::NAMES => unreachable!("an address is no name"),
        Parsed::Name(host, port) => Addresses::Many(look_up(host, port).await?),
    })
}

/// Tries the addresses in turn until one succeeds; if none does, returns the last error.
pub(super) async fn first_that_works<T, F>(
    host: impl AsyncToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let addresses = match lookup(&host).await? {
        Addresses::One(address) => return attempt(address).await,
        Addresses::Many(addresses) => addresses,
    };
    let mut last = None;
    for address in addresses {
        match attempt(address).await {
            Ok(it) => return Ok(it),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(no_addresses))
}

/// [`first_that_works`] for `bind`: its error names the address, and what helps.
pub(super) async fn first_to_bind<T>(
    action: &str,
    host: impl AsyncToSocketAddrs,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let attempt = |address| ready(bind(address).map_err(|error| not_bound(action, address, error)));
    first_that_works(host, attempt).await
}

/// Adds the address, and what helps, to an error that is likely for it. Other errors keep their
/// number: callers may recognise them by it.
#[cold]
fn not_bound(action: &str, address: SocketAddr, error: io::Error) -> io::Error {
    let help = match error.kind() {
        io::ErrorKind::AddrInUse if address.port() != 0 => ": port 0 stands for a free one",
        io::ErrorKind::AddrNotAvailable => ": it is not an address of this machine",
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => "",
        _ => return error,
    };
    let words = format!("cannot {action} {address}: {error}{help}");
    io::Error::new(error.kind(), words)
}

pub(super) async fn first_to_connect<A: AsyncToSocketAddrs>(host: A) -> io::Result<Socket> {
    match lookup(&host).await? {
        Addresses::One(address) => connect_to(address).await,
        Addresses::Many(_) if !A::MANY => unreachable!("it is one address"),
        Addresses::Many(addresses) => {
            let result = race(addresses, connect_to).await;
            result.unwrap_or_else(|| Err(no_addresses()))
        }
    }
}

async fn connect_to(address: SocketAddr) -> io::Result<Socket> {
    kernel::connect(SocketType::TcpStream, &address.into()).await
}

/// Tries the addresses in turn, each for an equal share of the time that is left of `limit`.
pub(super) async fn first_to_connect_within(
    limit: Duration,
    host: impl AsyncToSocketAddrs,
) -> io::Result<Socket> {
    let start = now();
    let left = || limit.saturating_sub(now().duration_since(start));
    let late = |what: std::fmt::Arguments<'_>, time: Duration| {
        io::Error::new(io::ErrorKind::TimedOut, format!("{what} within {time:?}"))
    };
    let addresses = match timeout(limit, resolve(host)).await {
        Ok(addresses) => addresses?,
        Err(_) => return Err(late(format_args!("the name was not resolved"), limit)),
    };
    let mut result = Err(no_addresses());
    for (tried, address) in addresses.iter().enumerate() {
        let share = left() / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        result = match timeout(share, connect_to(*address)).await {
            Ok(Ok(it)) => return Ok(it),
            Ok(error) => error,
            Err(_) => Err(late(format_args!("{address} did not answer"), share)),
        };
    }
    result
}

fn no_addresses() -> io::Error {
    invalid("the list of addresses is empty")
}

impl AsyncToSocketAddrs for SocketAddr {}
impl Sealed for SocketAddr {
    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::One(*self))
    }
}

impl AsyncToSocketAddrs for SocketAddrV4 {}
impl Sealed for SocketAddrV4 {
    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::One((*self).into()))
    }
}

impl AsyncToSocketAddrs for SocketAddrV6 {}
impl Sealed for SocketAddrV6 {
    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::One((*self).into()))
    }
}

impl AsyncToSocketAddrs for (IpAddr, u16) {}
impl Sealed for (IpAddr, u16) {
    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::One((*self).into()))
    }
}

impl AsyncToSocketAddrs for (Ipv4Addr, u16) {}
impl Sealed for (Ipv4Addr, u16) {
    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::One((*self).into()))
    }
}

impl AsyncToSocketAddrs for (Ipv6Addr, u16) {}
impl Sealed for (Ipv6Addr, u16) {
    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::One((*self).into()))
    }
}

impl AsyncToSocketAddrs for [SocketAddr] {}
impl Sealed for [SocketAddr] {
    const MANY: bool = true;

    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::Many(self.to_vec()))
    }
}

impl AsyncToSocketAddrs for Vec<SocketAddr> {}
impl Sealed for Vec<SocketAddr> {
    const MANY: bool = true;

    fn parse(&self) -> io::Result<Parsed> {
        Ok(Parsed::Many(self.clone()))
    }
}

impl AsyncToSocketAddrs for (&str, u16) {}
impl Sealed for (&str, u16) {
    const NAMES: bool = true;
    const MANY: bool = true;

    fn parse(&self) -> io::Result<Parsed> {
        Ok(host_and_port(self.0, self.1))
    }
}

impl AsyncToSocketAddrs for (String, u16) {}
impl Sealed for (String, u16) {
    const NAMES: bool = true;
    const MANY: bool = true;

    fn parse(&self) -> io::Result<Parsed> {
        Ok(host_and_port(&self.0, self.1))
    }
}

impl AsyncToSocketAddrs for String {}
impl Sealed for String {
    const NAMES: bool = true;
    const MANY: bool = true;

    fn parse(&self) -> io::Result<Parsed> {
        parse(self)
    }
}

impl AsyncToSocketAddrs for str {}
impl Sealed for str {
    const NAMES: bool = true;
    const MANY: bool = true;

    fn parse(&self) -> io::Result<Parsed> {
        parse(self)
    }
}

impl<T: AsyncToSocketAddrs + ?Sized> AsyncToSocketAddrs for &T {}
impl<T: Sealed + ?Sized> Sealed for &T {
    const NAMES: bool = T::NAMES;
    const MANY: bool = T::MANY;

    fn parse(&self) -> io::Result<Parsed> {
        (**self).parse()
    }
}

impl<const N: usize> AsyncToSocketAddrs for [SocketAddr; N] {}
impl<const N: usize> Sealed for [SocketAddr; N] {
    const MANY: bool = true;

    fn parse(&self) -> io::Result<Parsed> {
        self[..].parse()
    }
}

fn host_and_port(host: &str, port: u16) -> Parsed {
    match host.parse::<IpAddr>() {
        Ok(ip) => Parsed::One((ip, port).into()),
        Err(_) => Parsed::Name(host.to_owned(), port),
    }
}

fn parse(text: &str) -> io::Result<Parsed> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Parsed::One(address));
    }
    let parts = text
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() => Ok(host_and_port(host, port)),
        _ => Err(invalid(format!(
            "{text:?} is not an address: expected HOST:PORT"
        ))),
    }
}

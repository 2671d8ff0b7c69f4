//! Keepalive and the user timeout of TCP: when a connection ends because its peer is silent.
//!
//! Values are checked against the limits of the socket's kernel before any is set. If the kernel
//! refuses one nevertheless, the previous values are restored. The methods of [`TcpStream`] are in
//! this file.

use std::fmt;
use std::io;
use std::time::Duration;

use super::stream::TcpStream;
use crate::net::socket::{Flag, Opt, Socket};
use crate::sys::{TcpOption, invalid};

/// When the system probes an idle TCP connection, and when it gives up: for
/// [`TcpStream::set_keepalive`].
///
/// The system sends a probe when nothing has come from the peer for [`idle`](Self::idle), and
/// another one after each [`interval`](Self::interval). A living peer answers. After
/// [`retries`](Self::retries) unanswered probes the connection ends with
/// [`TimedOut`](io::ErrorKind::TimedOut): idle + interval × retries after the peer's last packet.
///
/// `None` leaves a value of the socket as it is: the system's default, unless it was set before.
///
/// ```
/// use polder::net::Keepalive;
/// use std::time::Duration;
///
/// // A peer that has vanished is noticed after 60 + 5 × 10 seconds.
/// let keepalive = Keepalive::new()
///     .with_idle(Duration::from_secs(60))
///     .with_interval(Duration::from_secs(10))
///     .with_retries(5);
/// assert_eq!(keepalive.idle, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[non_exhaustive]
#[doc(alias("TcpKeepalive", "SO_KEEPALIVE"))]
pub struct Keepalive {
    /// The time without a packet of the peer until the first probe, in whole seconds:
    /// `TCP_KEEPIDLE` (Apple's systems: `TCP_KEEPALIVE`). The default is two hours on most systems.
    pub idle: Option<Duration>,
    /// The time between probes, in whole seconds: `TCP_KEEPINTVL`. The default of Linux is 75 s.
    pub interval: Option<Duration>,
    /// The number of unanswered probes after which the connection ends: `TCP_KEEPCNT`. The default
    /// of Linux is 9.
    pub retries: Option<u32>,
}

impl Keepalive {
    /// Returns a `Keepalive` that changes no value.
    ///
    /// ```
    /// use polder::net::{Keepalive, TcpListener, TcpStream};
    ///
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// stream.set_keepalive(Some(Keepalive::new()))?; // Elsewhere `set_keepalive(true)`.
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    pub const fn new() -> Keepalive {
        Keepalive {
            idle: None,
            interval: None,
            retries: None,
        }
    }

    /// Sets [`idle`](Self::idle).
    ///
    /// ```
    /// use polder::net::Keepalive;
    /// use std::time::Duration;
    ///
    /// let keepalive = Keepalive::new().with_idle(Duration::from_secs(60));
    /// assert_eq!(keepalive.idle, Some(Duration::from_secs(60)));
    /// assert_eq!(keepalive.interval, None);
    /// ```
    #[must_use]
    pub const fn with_idle(mut self, idle: Duration) -> Keepalive {
        self.idle = Some(idle);
        self
    }

    /// Sets [`interval`](Self::interval).
    ///
    /// ```
    /// use polder::net::Keepalive;
    /// use std::time::Duration;
    ///
    /// let keepalive = Keepalive::new().with_interval(Duration::from_secs(10));
    /// assert_eq!(keepalive.interval, Some(Duration::from_secs(10)));
    /// ```
    #[must_use]
    pub const fn with_interval(mut self, interval: Duration) -> Keepalive {
        self.interval = Some(interval);
        self
    }

    /// Sets [`retries`](Self::retries).
    ///
    /// ```
    /// use polder::net::Keepalive;
    ///
    /// assert_eq!(Keepalive::new().with_retries(5).retries, Some(5));
    /// ```
    #[must_use]
    pub const fn with_retries(mut self, retries: u32) -> Keepalive {
        self.retries = Some(retries);
        self
    }

    fn options(self, socket: &Socket) -> io::Result<Vec<(TcpOption, u32)>> {
        let seconds = |option, name, time: Duration| {
            let value = time.as_secs().into();
            checked(socket, option, name, value, " seconds", time)
        };
        let count = |retries: u32| {
            let (option, name) = (TcpOption::KeepCount, "keepalive retries");
            checked(socket, option, name, retries.into(), "", retries)
        };
        let idle =
            (self.idle).map(|time| seconds(TcpOption::KeepIdle, "keepalive idle time", time));
        let interval = (self.interval)
            .map(|time| seconds(TcpOption::KeepInterval, "keepalive interval", time));
        let retries = self.retries.map(count);
        [idle, interval, retries].into_iter().flatten().collect()
    }
}

/// Returns an option with its value, or an error unless the value is between one and the kernel's
/// maximum.
fn checked(
    socket: &Socket,
    option: TcpOption,
    name: &str,
    value: u128,
    unit: &str,
    got: impl fmt::Debug,
) -> io::Result<(TcpOption, u32)> {
    let max = socket.max_of(option);
    match u32::try_from(value) {
        Ok(value) if (1..=max).contains(&value) => Ok((option, value)),
        _ => {
            let words = format!("{name} must be between 1 and {max}{unit}, got {got:?}");
            Err(invalid(words))
        }
    }
}

impl TcpStream {
    /// Returns when the system probes the idle connection (`SO_KEEPALIVE`), or `None`, the default,
    /// if it does not. A value is `None` if the system has it for all sockets only (OpenBSD).
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(stream.keepalive()?, None);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn keepalive(&self) -> io::Result<Option<Keepalive>> {
        if !self.0.kernel_socket().flag(Flag::Keepalive)? {
            return Ok(None);
        }
        let seconds = |option| {
            let value = self.0.kernel_socket().tcp_option(option)?;
            io::Result::Ok(value.map(|seconds| Duration::from_secs(seconds.into())))
        };
        Ok(Some(Keepalive {
            idle: seconds(TcpOption::KeepIdle)?,
            interval: seconds(TcpOption::KeepInterval)?,
            retries: self.0.kernel_socket().tcp_option(TcpOption::KeepCount)?,
        }))
    }

    /// Sets [`keepalive`](Self::keepalive), or turns it off.
    ///
    /// Without keepalive, a peer that has vanished (a power loss, a broken link, a router that has
    /// forgotten the connection) looks idle, and a read waits forever; with it, the read fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut) in the end. Probes are sent only while no written data
    /// is unacknowledged: for that see [`set_user_timeout`](Self::set_user_timeout). Times are
    /// truncated to whole seconds.
    ///
    /// ```
    /// use polder::net::Keepalive;
    /// use std::time::Duration;
    ///
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # #[cfg(not(target_os = "openbsd"))] {
    /// let minute = Duration::from_secs(60);
    /// let keepalive = Keepalive::new()
    ///     .with_idle(minute)
    ///     .with_interval(Duration::from_secs(10))
    ///     .with_retries(5);
    /// stream.set_keepalive(Some(keepalive))?;
    /// assert_eq!(stream.keepalive()?, Some(keepalive));
    /// # }
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Platforms
    ///
    /// * OpenBSD has these values for the whole system only: `Keepalive::new()` turns keepalive on,
    ///   other values are `Unsupported`.
    /// * Windows has them since Windows 10, release 1709; before, they are `Unsupported`.
    /// * With a [user timeout](Self::set_user_timeout), Linux sends probes until that has passed,
    ///   and ignores `retries`.
    ///
    /// # Errors
    ///
    /// An error leaves the settings as they were:
    ///
    /// * [`InvalidInput`](io::ErrorKind::InvalidInput): less than a second, no retries, or more
    ///   than the system takes (Linux: 32,767 s, 127 retries; Windows: 255 retries);
    /// * [`Unsupported`](io::ErrorKind::Unsupported): the system has no such value for single
    ///   sockets;
    /// * any error of the system call.
    #[doc(alias("SO_KEEPALIVE", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"))]
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        let Some(keepalive) = keepalive else {
            return self.0.set(Opt::Flag(Flag::Keepalive, false));
        };
        let options = keepalive.options(&self.0)?;
        let now = |&(option, _): &(TcpOption, u32)| {
            let value = self.0.kernel_socket().tcp_option(option).ok().flatten()?;
            Some((option, value))
        };
        let before: Vec<_> = options.iter().filter_map(now).collect();
        let set = |options: Vec<(TcpOption, u32)>| {
            let mut options = options.into_iter();
            options.try_for_each(|(option, value)| self.0.set(Opt::Tcp(option, value)))
        };
        let result = set(options).and_then(|()| self.0.set(Opt::Flag(Flag::Keepalive, true)));
        if result.is_err() {
            let _ = set(before);
        }
        result
    }

    /// Returns how long written data may stay unacknowledged before the connection ends
    /// (`TCP_USER_TIMEOUT`). `None`, the default, leaves it to the system (Linux: about a quarter
    /// of an hour); it is always returned by systems without this option.
    ///
    /// ```
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(stream.user_timeout()?, None);
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of the system call.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        let value = self.0.kernel_socket().tcp_option(TcpOption::UserTimeout)?;
        let value = value.filter(|millis| *millis != 0);
        Ok(value.map(|millis| Duration::from_millis(millis.into())))
    }

    /// Sets [`user_timeout`](Self::user_timeout), in whole milliseconds; `None` restores the
    /// system's default.
    ///
    /// If data stays unacknowledged for that time, or unsent because the peer has no room, the
    /// connection ends: reads and writes fail with [`TimedOut`](io::ErrorKind::TimedOut). Linux
    /// counts from the first retransmission, some hundred milliseconds after the data. For an idle
    /// connection set [keepalive](Self::set_keepalive) too.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use polder::net::{TcpListener, TcpStream};
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # #[cfg(any(target_os = "linux", target_os = "android"))] {
    /// stream.set_user_timeout(Some(Duration::from_secs(30)))?;
    /// assert_eq!(stream.user_timeout()?, Some(Duration::from_secs(30)));
    /// # }
    /// # std::io::Result::Ok(()) })?; std::io::Result::Ok(())
    /// ```
    ///
    /// # Platforms
    ///
    /// Linux and Android only. Elsewhere a time is `Unsupported`, `None` has no effect, and a
    /// [`timeout`](crate::time::timeout) around a write ends the wait, though not the connection.
    ///
    /// # Errors
    ///
    /// An error leaves the timeout as it was:
    ///
    /// * [`InvalidInput`](io::ErrorKind::InvalidInput): less than a millisecond, or more than
    ///   2<sup>31</sup> − 1 (24.8 days);
    /// * [`Unsupported`](io::ErrorKind::Unsupported): the system has no such option;
    /// * any error of the system call.
    #[doc(alias = "TCP_USER_TIMEOUT")]
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let option = TcpOption::UserTimeout;
        let Some(timeout) = timeout else {
            // A system without the option has no timeout.
            return match self.0.kernel_socket().tcp_option(option)? {
                Some(_) => self.0.set(Opt::Tcp(option, 0)),
                None => Ok(()),
            };
        };
        let (name, millis, unit) = ("user timeout", timeout.as_millis(), " milliseconds");
        let (option, value) = checked(&self.0, option, name, millis, unit, timeout)?;
        self.0.set(Opt::Tcp(option, value))
    }
}

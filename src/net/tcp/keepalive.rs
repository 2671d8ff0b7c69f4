//! Keepalive and the user timeout: when a TCP connection ends because its peer is silent.
//!
//! Numbers are checked here, against the limits of the kernel that has the socket, before any is
//! set. If the kernel refuses one nevertheless, those that were set before it are set back.

use std::io;
use std::time::Duration;

use crate::net::socket::{Flag, Opt, Socket};
use crate::sys::{TcpOption, invalid};

/// When the system probes an idle TCP connection, and when it gives the connection up: for
/// [`TcpStream::set_keepalive`](super::TcpStream::set_keepalive).
///
/// If nothing has come from the peer for [`idle`](Self::idle), the system sends it a probe, and
/// another one after each [`interval`](Self::interval). A living peer answers. When
/// [`retries`](Self::retries) probes were not answered, the connection ends with
/// [`TimedOut`](io::ErrorKind::TimedOut): idle + interval × retries after the last sign of life.
///
/// A value of `None` stays what it was for this socket: the system's default, unless it was set
/// before.
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
    /// The time without a sign of life until the first probe, in whole seconds: `TCP_KEEPIDLE`
    /// (Apple's systems: `TCP_KEEPALIVE`). The default is two hours on most systems.
    pub idle: Option<Duration>,
    /// The time between probes, in whole seconds: `TCP_KEEPINTVL`. The default of Linux is 75 s.
    pub interval: Option<Duration>,
    /// The number of unanswered probes after which the connection ends: `TCP_KEEPCNT`. The default
    /// of Linux is 9.
    pub retries: Option<u32>,
}

impl Keepalive {
    /// Keepalive with all values as the system has them.
    ///
    /// ```
    /// use polder::net::{Keepalive, TcpListener, TcpStream};
    ///
    /// # polder::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// stream.set_keepalive(Some(Keepalive::new()))?; // Elsewhere `set_keepalive(true)`.
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
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

    /// Returns the options with their values, or an error if one is out of range.
    fn options(self, socket: &Socket) -> io::Result<[Option<(TcpOption, u32)>; 3]> {
        let seconds = |option, name, time: Option<Duration>| {
            let checked = |time: Duration| {
                let given = || format!("the {name} of keepalive is {time:?}");
                checked(socket, option, time.as_secs().into(), "seconds", given)
            };
            time.map(checked).transpose()
        };
        let retries = |retries: u32| {
            let given = || format!("keepalive has {retries} retries");
            checked(
                socket,
                TcpOption::KeepCount,
                retries.into(),
                "retries",
                given,
            )
        };
        Ok([
            seconds(TcpOption::KeepIdle, "idle time", self.idle)?,
            seconds(TcpOption::KeepInterval, "interval", self.interval)?,
            self.retries.map(retries).transpose()?,
        ])
    }
}

/// Returns an option with its value, or an error if that is not from one to the greatest value of
/// the kernel that has the socket.
fn checked(
    socket: &Socket,
    option: TcpOption,
    value: u128,
    unit: &str,
    given: impl Fn() -> String,
) -> io::Result<(TcpOption, u32)> {
    let max = socket.kernel().max_of(option);
    match u32::try_from(value) {
        Ok(value) if (1..=max).contains(&value) => Ok((option, value)),
        _ => {
            let given = given();
            Err(invalid(format!(
                "{given}: it must be from 1 to {max} {unit}"
            )))
        }
    }
}

pub(super) fn keepalive(socket: &Socket) -> io::Result<Option<Keepalive>> {
    if !socket.kernel().flag(Flag::Keepalive)? {
        return Ok(None);
    }
    let seconds = |option| {
        let value = socket.kernel().tcp_option(option)?;
        io::Result::Ok(value.map(|seconds| Duration::from_secs(seconds.into())))
    };
    Ok(Some(Keepalive {
        idle: seconds(TcpOption::KeepIdle)?,
        interval: seconds(TcpOption::KeepInterval)?,
        retries: socket.kernel().tcp_option(TcpOption::KeepCount)?,
    }))
}

pub(super) fn set_keepalive(socket: &Socket, keepalive: Option<Keepalive>) -> io::Result<()> {
    let Some(keepalive) = keepalive else {
        return socket.set(Opt::Flag(Flag::Keepalive, false));
    };
    let options = keepalive.options(socket)?;
    let before = options.map(|set| {
        let (option, _) = set?;
        let value = socket.kernel().tcp_option(option).ok().flatten()?;
        Some((option, value))
    });
    let set = |options: [Option<(TcpOption, u32)>; 3]| {
        let mut options = options.into_iter().flatten();
        options.try_for_each(|(option, value)| socket.set(Opt::Tcp(option, value)))
    };
    let result = set(options).and_then(|()| socket.set(Opt::Flag(Flag::Keepalive, true)));
    if result.is_err() {
        let _ = set(before);
    }
    result
}

pub(super) fn user_timeout(socket: &Socket) -> io::Result<Option<Duration>> {
    let value = socket.kernel().tcp_option(TcpOption::UserTimeout)?;
    let value = value.filter(|millis| *millis != 0);
    Ok(value.map(|millis| Duration::from_millis(millis.into())))
}

pub(super) fn set_user_timeout(socket: &Socket, timeout: Option<Duration>) -> io::Result<()> {
    let option = TcpOption::UserTimeout;
    let Some(timeout) = timeout else {
        // A system that does not have the option has no timeout.
        return match socket.kernel().tcp_option(option)? {
            Some(_) => socket.set(Opt::Tcp(option, 0)),
            None => Ok(()),
        };
    };
    let given = || format!("the user timeout is {timeout:?}");
    let (option, value) = checked(socket, option, timeout.as_millis(), "milliseconds", given)?;
    socket.set(Opt::Tcp(option, value))
}

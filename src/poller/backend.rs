//! Which backends there are by name, which of them this machine has, and which one is chosen.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::AnySelector;
use super::backends;

/// A kernel interface that waits. A value, chosen at run time.
///
/// Every backend has a name on every platform; [`available`](Self::available) lists those that can
/// be opened here. One that belongs to a feature which is off is not available, and no list names
/// it.
///
/// # Examples
///
/// ```
/// use polder::Backend;
///
/// for backend in Backend::available() {
///     assert_eq!(backend.name().parse::<Backend>()?, backend);
/// }
/// assert!("fax".parse::<Backend>().is_err());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Backend {
    /// `epoll(7)`: Linux and Android. The default there.
    Epoll,
    /// `kqueue(2)`: macOS and the other systems of Apple's, and the BSDs. The default there.
    Kqueue,
    /// Event ports, `port_create(3C)`: illumos and Solaris. The default there.
    EventPorts,
    /// I/O completion ports: Windows. The default there.
    Iocp,
    /// `poll(2)`: every Unix.
    Poll,
    /// `select(2)`: every Unix but illumos and Solaris.
    Select,
    /// What the `polling` crate makes of epoll: Linux and Android, where polder's feature `polling`
    /// is on. Slower than [`Epoll`](Self::Epoll); it is there so that the adapter that serves
    /// kqueue, event ports and completion ports is tested on Linux too.
    Polling,
    /// The reactor of the `async-io` crate: every platform, where polder's feature `async-io` is
    /// on. For processes that use async-process, zbus, async-net or others of that family as well,
    /// so that they have one reactor and not two.
    ///
    /// Slower than the platform's own, since async-io asks the kernel for one event at a time, and
    /// has a helper thread that drives its reactor when nobody else does; often that is the one
    /// that hears of an event. [`Capabilities`](super::Capabilities) say what else is missing:
    /// there are no edges, no hints and no descriptor.
    AsyncIo,
}

/// The environment variable that says which backend to use where a program does not.
const VARIABLE: &str = "POLDER_BACKEND";

impl Backend {
    /// All backends, each platform's default before what it has besides.
    const ALL: [Backend; 8] = [
        Backend::Epoll,
        Backend::Kqueue,
        Backend::EventPorts,
        Backend::Iocp,
        Backend::Poll,
        Backend::Select,
        Backend::Polling,
        Backend::AsyncIo,
    ];

    /// The backends that can be opened on this machine, the default first.
    ///
    /// ```
    /// use polder::Backend;
    ///
    /// let backends = Backend::available();
    /// assert_eq!(backends[0], Backend::default());
    /// # #[cfg(target_os = "linux")]
    /// assert!(backends.contains(&Backend::Epoll));
    /// ```
    pub fn available() -> Vec<Backend> {
        let mut all = Backend::ALL.to_vec();
        all.retain(|backend| backend.is_available());
        all
    }

    /// Whether this backend can be opened on this platform.
    ///
    /// ```
    /// use polder::Backend;
    ///
    /// assert_eq!(Backend::Poll.is_available(), cfg!(unix));
    /// assert_eq!(Backend::Iocp.is_available(), cfg!(windows));
    /// ```
    pub fn is_available(self) -> bool {
        match self {
            Backend::Epoll => cfg!(any(target_os = "linux", target_os = "android")),
            Backend::Polling => cfg!(feature = "polling") && Backend::Epoll.is_available(),
            Backend::Kqueue => cfg!(any(
                target_vendor = "apple",
                target_os = "freebsd",
                target_os = "dragonfly",
                target_os = "netbsd",
                target_os = "openbsd",
            )),
            Backend::EventPorts => cfg!(any(target_os = "illumos", target_os = "solaris")),
            Backend::Iocp => cfg!(windows),
            Backend::Poll => cfg!(unix),
            Backend::Select => cfg!(all(
                unix,
                not(any(target_os = "illumos", target_os = "solaris"))
            )),
            Backend::AsyncIo => cfg!(all(feature = "async-io", not(loom))),
        }
    }

    /// The name, as [`FromStr`] takes it: lower case, without spaces.
    ///
    /// ```
    /// use polder::Backend;
    ///
    /// assert_eq!(Backend::EventPorts.name(), "event-ports");
    /// let here = Backend::default();
    /// assert_eq!(here.name().parse::<Backend>()?, here);
    /// # std::io::Result::Ok(())
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Epoll => "epoll",
            Backend::Kqueue => "kqueue",
            Backend::EventPorts => "event-ports",
            Backend::Iocp => "iocp",
            Backend::Poll => "poll",
            Backend::Select => "select",
            Backend::Polling => "polling",
            Backend::AsyncIo => "async-io",
        }
    }

    /// What a runtime uses if none was chosen: the backend that the environment variable
    /// `POLDER_BACKEND` names, else the [default](Self::default). A variable that is empty counts
    /// as none, as scripts leave one that they have nothing to say with.
    ///
    /// ```
    /// use polder::{Backend, Runtime};
    ///
    /// let runtime = Runtime::new()?; // None was chosen.
    /// assert_eq!(runtime.backend(), Backend::from_env()?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Where the variable names no backend, or one that is not available here; the error lists
    /// those that are.
    pub fn from_env() -> io::Result<Backend> {
        match std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
            None => Ok(Backend::default()),
            Some(name) => name.to_string_lossy().parse().map_err(|error: io::Error| {
                io::Error::new(error.kind(), format!("{VARIABLE}: {error}"))
            }),
        }
    }

    /// Opens the backend.
    pub(super) fn open(self) -> io::Result<AnySelector> {
        if !self.is_available() {
            return Err(self.unavailable());
        }
        self.open_it().map_err(|error| self.with_name(error))
    }

    /// The one switch from a value to a kernel's interface.
    fn open_it(self) -> io::Result<AnySelector> {
        let selector = match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Backend::Epoll => return Ok(AnySelector::Epoll(backends::epoll::open()?)),
            #[cfg(unix)]
            Backend::Poll => backends::poll::open(),
            #[cfg(all(unix, not(any(target_os = "illumos", target_os = "solaris"))))]
            Backend::Select => backends::select::open(),
            #[cfg(all(feature = "async-io", not(loom)))]
            Backend::AsyncIo => backends::async_io::open(),
            // What is left and available is this platform's own.
            _ => backends::polling::open(),
        };
        Ok(AnySelector::Other(selector?))
    }

    fn unavailable(self) -> io::Error {
        let why = match self {
            Backend::AsyncIo => "without polder's feature async-io".into(),
            Backend::Polling if Backend::Epoll.is_available() => {
                "without polder's feature polling".into()
            }
            _ => format!("on {}", std::env::consts::OS),
        };
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("backend {self} is not available {why}; {}", list()),
        )
    }
}

/// The platform's best: epoll, kqueue, event ports or completion ports. The environment is not
/// asked; see [`Backend::from_env`].
impl Default for Backend {
    fn default() -> Backend {
        let mut all = Backend::ALL.into_iter();
        all.find(|backend| backend.is_available())
            .expect("every platform has a backend")
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name, in any case. A name that means nothing is
/// [`InvalidInput`](io::ErrorKind::InvalidInput), a backend that this platform lacks
/// [`Unsupported`](io::ErrorKind::Unsupported); both errors list what is available.
impl FromStr for Backend {
    type Err = io::Error;

    fn from_str(name: &str) -> io::Result<Backend> {
        let backend = Backend::ALL
            .into_iter()
            .find(|backend| backend.name().eq_ignore_ascii_case(name.trim_ascii()))
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("there is no backend {name:?}; {}", list()),
                )
            })?;
        match backend.is_available() {
            true => Ok(backend),
            false => Err(backend.unavailable()),
        }
    }
}

fn list() -> String {
    let mut list = String::from("available: ");
    for (place, backend) in Backend::available().iter().enumerate() {
        if place > 0 {
            list.push_str(", ");
        }
        list.push_str(backend.name());
    }
    list
}

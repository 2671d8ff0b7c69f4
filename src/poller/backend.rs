//! Backends: their names, which of them this machine has, and which one is chosen.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::backends::{self, AnySelector};
use super::error::{guess_meaning, with_backend};
use crate::sys::{invalid, is_out_of_descriptors, unsupported};

/// A kernel interface for polling, chosen at run time.
///
/// Every backend has a name on every platform; [`available`](Self::available) lists those that can
/// be opened here. A backend of a disabled feature is never listed.
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
    /// `kqueue(2)`: macOS and the other Apple systems, and the BSDs. The default there.
    Kqueue,
    /// Event ports, `port_create(3C)`: illumos and Solaris. The default there.
    EventPorts,
    /// I/O completion ports: Windows. The default there.
    Iocp,
    /// `io_uring(7)`: Linux from 6.1 on, with polder's feature `io-uring`, if the kernel lets this
    /// process make a ring, which is checked at run time: many containers forbid it. The ring only
    /// polls. Never the default.
    ///
    /// No system call to check for events, and one for a wait and all changes since the last one.
    /// That holds for a single thread: the workers of a pool share an epoll set, so that closing a
    /// socket waits for none of them. See `docs/PLATFORM.md`.
    IoUring,
    /// `poll(2)`: every Unix.
    Poll,
    /// `select(2)`: every Unix but illumos and Solaris.
    Select,
    /// The platform's own interface through the `polling` crate, with polder's feature `polling`:
    /// the adapter for event ports and completion ports, and elsewhere a slower cross-check.
    Polling,
    /// The reactor of the `async-io` crate, with polder's feature `async-io`, so that a process
    /// that also uses async-process or async-net has one reactor.
    ///
    /// Slower than the platform's own: async-io asks the kernel for one event at a time, and often
    /// its helper thread receives the event. No edges, no hints and no descriptor.
    AsyncIo,
}

const VARIABLE: &str = "POLDER_BACKEND";

impl Backend {
    /// Each platform's default comes before its other backends.
    const ALL: [Backend; 9] = [
        Backend::Epoll,
        Backend::Kqueue,
        Backend::EventPorts,
        Backend::Iocp,
        Backend::IoUring,
        Backend::Poll,
        Backend::Select,
        Backend::Polling,
        Backend::AsyncIo,
    ];

    /// Lists the backends that this platform has, the default first; io_uring only if this process
    /// may open it. A sandbox may still refuse one of the others when it is opened.
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
            Backend::Polling => cfg!(feature = "polling"),
            Backend::Kqueue => backends::kqueue::IS_BUILT,
            Backend::EventPorts => cfg!(any(target_os = "illumos", target_os = "solaris")),
            Backend::Iocp => cfg!(windows),
            Backend::IoUring => backends::io_uring::is_available(),
            Backend::Poll => cfg!(unix),
            Backend::Select => cfg!(all(
                unix,
                not(any(target_os = "illumos", target_os = "solaris"))
            )),
            Backend::AsyncIo => cfg!(feature = "async-io"),
        }
    }

    /// Returns the name, as [`FromStr`] accepts it.
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
            Backend::IoUring => "io-uring",
            Backend::Poll => "poll",
            Backend::Select => "select",
            Backend::Polling => "polling",
            Backend::AsyncIo => "async-io",
        }
    }

    /// Parses a comma-separated list of names in order of preference. At least one must be
    /// available.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::Poller;
    ///
    /// let wishes = Backend::parse_list("io-uring, epoll, poll, iocp")?;
    /// assert_eq!(wishes[0], Backend::IoUring);
    /// println!("{} it is", Poller::first_of(wishes)?.backend());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an unknown or missing name. If none is
    /// available: the reason for each, and a list of the available backends.
    pub fn parse_list(names: &str) -> io::Result<Vec<Backend>> {
        let mut list = Vec::new();
        for name in names.split(',') {
            list.push(Backend::named(name)?);
        }
        if list.iter().any(|backend| backend.is_available()) {
            Ok(list)
        } else {
            let why = |backend: &Backend| (*backend, backend.unavailable());
            Err(none_of(list.iter().map(why).collect()))
        }
    }

    /// Returns the backend that a runtime uses if none was chosen: the first available one that the
    /// environment variable `POLDER_BACKEND` names (as for [`parse_list`](Self::parse_list)), else
    /// the [default](Self::default). An empty variable counts as unset.
    ///
    /// ```
    /// use polder::{Backend, Runtime};
    ///
    /// let runtime = Runtime::new()?; // No backend was chosen.
    /// assert_eq!(runtime.backend(), Backend::from_env()?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the variable contains an unknown name, or no available backend.
    pub fn from_env() -> io::Result<Backend> {
        Backend::list_from_env().map(|list| list[0])
    }

    /// Returns all available backends of `POLDER_BACKEND`: that of [`from_env`](Self::from_env),
    /// then the fallbacks if it cannot be opened.
    ///
    /// ```
    /// use polder::Backend;
    /// use polder::poller::Poller;
    ///
    /// let poller = Poller::first_of(Backend::list_from_env()?)?;
    /// assert_eq!(poller.backend(), Backend::from_env()?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`from_env`](Self::from_env).
    pub fn list_from_env() -> io::Result<Vec<Backend>> {
        Ok(Backend::named_by_env()?.unwrap_or_else(|| vec![Backend::default()]))
    }

    /// Returns the available backends of `POLDER_BACKEND`; `None` if it is unset or empty.
    pub(crate) fn named_by_env() -> io::Result<Option<Vec<Backend>>> {
        let Some(names) = std::env::var_os(VARIABLE).filter(|names| !names.is_empty()) else {
            return Ok(None);
        };
        let mut list = Backend::parse_list(&names.to_string_lossy())
            .map_err(|error| io::Error::new(error.kind(), format!("{VARIABLE}: {error}")))?;
        list.retain(|backend| backend.is_available());
        Ok(Some(list))
    }

    /// Returns the backend of that name, available or not.
    fn named(name: &str) -> io::Result<Backend> {
        let mut all = Backend::ALL.into_iter();
        all.find(|backend| backend.name().eq_ignore_ascii_case(name.trim_ascii()))
            .ok_or_else(|| invalid(format!("there is no backend {name:?}; {}", list())))
    }

    pub(crate) fn first_that<T>(
        backends: impl IntoIterator<Item = Backend>,
        open: impl Fn(Backend) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut errors = Vec::new();
        for backend in backends {
            match open(backend) {
                Ok(opened) => return Ok(opened),
                Err(error) => errors.push((backend, error)),
            }
        }
        Err(none_of(errors))
    }

    /// Opens the backend; `is_shared`: for several threads that wait, one at a time.
    pub(super) fn open(self, is_shared: bool) -> io::Result<AnySelector> {
        let interface = match self {
            // "Why no ring is shared", in `backends/io_uring.rs`.
            Backend::IoUring if is_shared => Backend::Epoll,
            other => other,
        };
        // If a ring is refused, trying to make one gives the reason.
        let may_be_available = interface == Backend::IoUring && backends::io_uring::IS_BUILT;
        if !may_be_available && !self.is_available() {
            return Err(self.unavailable());
        }
        let opened = interface.open_it();
        opened.map_err(|error| self.with_name(guess_meaning(error)))
    }

    /// The single switch from a value to a kernel interface.
    fn open_it(self) -> io::Result<AnySelector> {
        let selector = match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Backend::Epoll => return Ok(AnySelector::Epoll(backends::epoll::Epoll::new()?)),
            Backend::IoUring => {
                let ring = backends::io_uring::Uring::new()?;
                return Ok(AnySelector::IoUring(Box::new(ring)));
            }
            Backend::Kqueue => backends::kqueue::open(),
            #[cfg(unix)]
            Backend::Poll => backends::poll::open(),
            #[cfg(all(unix, not(any(target_os = "illumos", target_os = "solaris"))))]
            Backend::Select => backends::select::open(),
            #[cfg(feature = "async-io")]
            Backend::AsyncIo => backends::async_io::open(),
            // The platform's own interface where polder has no backend for it, and `polling` by
            // name.
            _ => backends::polling::open(),
        };
        Ok(AnySelector::Other(selector?))
    }

    /// Notes in a poller's error that it is this backend's.
    #[cold]
    pub(super) fn with_name(self, error: io::Error) -> io::Error {
        with_backend(error, self.name())
    }

    fn unavailable(self) -> io::Error {
        let why = match self {
            Backend::IoUring if backends::io_uring::IS_BUILT => match self.open(false) {
                Err(error) => return error,
                Ok(_) => "at this moment".into(),
            },
            Backend::IoUring if cfg!(target_os = "linux") && !cfg!(feature = "io-uring") => {
                "without polder's feature io-uring".into()
            }
            Backend::IoUring if cfg!(target_os = "linux") => {
                format!("on Linux for {}", std::env::consts::ARCH)
            }
            Backend::AsyncIo => "without polder's feature async-io".into(),
            Backend::Polling => "without polder's feature polling".into(),
            _ => format!("on {}", std::env::consts::OS),
        };
        unsupported(format!("backend {self} is not available {why}; {}", list()))
    }
}

/// The platform's best: epoll, kqueue, event ports or completion ports. Ignores the environment;
/// see [`Backend::from_env`].
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

/// Parses the name, case-insensitively. An unknown name is
/// [`InvalidInput`](io::ErrorKind::InvalidInput), an unavailable backend
/// [`Unsupported`](io::ErrorKind::Unsupported), a refused ring the kernel's error.
impl FromStr for Backend {
    type Err = io::Error;

    fn from_str(name: &str) -> io::Result<Backend> {
        let backend = Backend::named(name)?;
        if backend.is_available() {
            Ok(backend)
        } else {
            Err(backend.unavailable())
        }
    }
}

pub(super) fn list() -> String {
    let mut words = String::from("available");
    for (place, backend) in Backend::available().iter().enumerate() {
        words += if place == 0 { ": " } else { ", " };
        words += backend.name();
    }
    words
}

struct NoneOf(Vec<(Backend, io::Error)>);

impl fmt::Display for NoneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none of the backends can be opened")?;
        for (place, (backend, error)) in self.0.iter().enumerate() {
            f.write_str(if place == 0 { ": " } else { "; " })?;
            let words = error.to_string();
            if !words.starts_with("backend ") {
                write!(f, "backend {backend}: ")?;
            }
            f.write_str(&words)?;
            if is_out_of_descriptors(error) {
                f.write_str(": the limit of descriptors (ulimit -n)")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for NoneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NoneOf {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.first().map(|(_, error)| error as _)
    }
}

/// Returns a single error unchanged, or all of them, with the kind of the first.
#[cold]
fn none_of(mut errors: Vec<(Backend, io::Error)>) -> io::Error {
    match errors.len() {
        0 => invalid("the list of backends is empty"),
        1 => errors.remove(0).1,
        _ => io::Error::new(errors[0].1.kind(), NoneOf(errors)),
    }
}

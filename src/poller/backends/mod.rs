//! The backends, side by side: one file for each kernel interface, with one struct that implements
//! [`Selector`](super::Selector), its functions in the order of the trait.
//!
//! `poll` and `select` share the [interest table](table); what ends a wait from another thread is
//! the [`notifier`].

#[cfg(all(feature = "async-io", not(loom)))]
pub(super) mod async_io;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod epoll;
#[cfg(unix)]
mod long_timeout;
#[cfg(unix)]
mod notifier;
#[cfg(unix)]
pub(super) mod poll;
#[cfg(all(
    not(loom),
    any(
        feature = "polling",
        not(any(target_os = "linux", target_os = "android"))
    )
))]
pub(super) mod polling;
/// On Linux the adapter is there to be tested, and only where it is asked for.
#[cfg(any(
    loom,
    all(
        not(feature = "polling"),
        any(target_os = "linux", target_os = "android")
    )
))]
pub(super) mod polling {
    pub(in crate::poller) fn open() -> std::io::Result<Box<dyn crate::poller::Selector>> {
        Err(crate::poller::error::unsupported("what the platform has"))
    }
}
#[cfg(all(unix, not(any(target_os = "illumos", target_os = "solaris"))))]
pub(super) mod select;
#[cfg(unix)]
pub(super) mod table;

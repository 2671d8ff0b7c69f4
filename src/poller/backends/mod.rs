//! One module per backend: each defines one type that implements [`Selector`], its functions in the
//! order of the trait. [`AnySelector`] is one of them.
//!
//! `poll` and `select` share the [interest table](table). Its [`fd_table`] is also used by kqueue
//! and io_uring, the flags of [`poll`] also by epoll and io_uring. The [`notifier`] ends a wait
//! from another thread. `missing` has placeholders for backends that are not built.

#[cfg(feature = "async-io")]
pub(super) mod async_io;
pub(super) mod custom;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod epoll;
#[cfg(unix)]
mod fd_table;
// On the architectures that the crate `io-uring` supports.
#[cfg_attr(
    not(all(
        feature = "io-uring",
        target_os = "linux",
        any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            target_arch = "riscv64",
            target_arch = "loongarch64",
            target_arch = "powerpc64"
        )
    )),
    path = "missing/io_uring.rs"
)]
pub(super) mod io_uring;
#[cfg_attr(
    not(any(
        polder_kqueue_model,
        target_vendor = "apple",
        target_os = "freebsd",
        target_os = "dragonfly",
        target_os = "netbsd",
        target_os = "openbsd",
    )),
    path = "missing/kqueue.rs"
)]
pub(super) mod kqueue;
#[cfg(unix)]
mod long_timeout;
#[cfg(unix)]
pub(super) mod notifier;
#[cfg(unix)]
pub(super) mod poll;
#[cfg_attr(
    all(
        not(feature = "polling"),
        unix,
        not(any(target_os = "illumos", target_os = "solaris"))
    ),
    path = "missing/polling.rs"
)]
pub(super) mod polling;
#[cfg(all(unix, not(any(target_os = "illumos", target_os = "solaris"))))]
pub(super) mod select;
#[cfg(unix)]
pub(super) mod table;

use std::ops::Deref;

use crate::poller::selector::Selector;
use custom::CustomSelector;
#[cfg(any(target_os = "linux", target_os = "android"))]
use epoll::Epoll;
use io_uring::Uring;

pub(in crate::poller) enum AnySelector {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Epoll(Epoll),
    IoUring(Box<Uring>),
    Custom(CustomSelector),
    Other(Box<dyn Selector>),
}

impl Deref for AnySelector {
    type Target = dyn Selector;

    #[inline]
    fn deref(&self) -> &(dyn Selector + 'static) {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            AnySelector::Epoll(epoll) => epoll,
            AnySelector::IoUring(ring) => &**ring,
            AnySelector::Custom(custom) => custom,
            AnySelector::Other(selector) => &**selector,
        }
    }
}

impl AnySelector {
    /// See [`Poller::has_submissions`](crate::poller::Poller::has_submissions). Called in each turn
    /// without sources.
    #[inline]
    pub(in crate::poller) fn has_submissions(&self) -> bool {
        matches!(self, AnySelector::IoUring(ring) if ring.has_submissions())
    }
}

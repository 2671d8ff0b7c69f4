//! One module per backend: each defines one type that implements [`Selector`](super::Selector), its
//! functions in the order of the trait.
//!
//! `poll` and `select` share the [interest table](table). Its [`fd_table`] is also used by kqueue
//! and io_uring, the [`flags`] of `poll` also by epoll and io_uring. The [`notifier`] ends a wait
//! from another thread. `missing` has placeholders for backends that are not built.

#[cfg(feature = "async-io")]
pub(super) mod async_io;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod epoll;
#[cfg(unix)]
mod fd_table;
#[cfg(unix)]
mod flags;
/// On the architectures that the crate `io-uring` supports.
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
pub(super) mod of_kernel;
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

//! The atomics and locks of code that loom models: the standard library's, and in tests with
//! `--cfg loom` (`ci/loom.sh`) loom's.
//!
//! Loom's work only within a model, and those of one run are gone in the next. So a static takes
//! the standard library's: `sync::StaticMutex`.

#[cfg(all(test, loom))]
mod mocked;
#[cfg_attr(all(test, loom), allow(dead_code, reason = "only for statics"))]
pub(crate) mod std;

#[cfg(all(test, loom))]
pub(crate) use self::mocked::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(all(test, loom)))]
pub(crate) use self::std::{Condvar, Mutex, MutexGuard};
#[cfg(not(all(test, loom)))]
pub(crate) use ::std::sync::atomic;

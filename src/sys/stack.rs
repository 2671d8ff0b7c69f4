//! Captures the stack of another thread of this process, for the watchdog: the functions that the
//! thread is in. With the feature `backtrace`.
//!
//! `linux` implements it, on the architectures with known registers; elsewhere `none` returns
//! nothing. A thread that may be sampled registers itself first: [`note`].

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod linux;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub(crate) use linux::{functions, note, object, of_thread};

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod none;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
pub(crate) use none::{functions, note, object, of_thread};

use std::path::PathBuf;

/// The result of unwinding a stack.
pub(crate) struct Trace {
    /// The code address of each frame, the innermost first. For a caller it lies within the call
    /// instruction.
    pub(crate) addresses: Vec<usize>,
    /// Why frames are missing.
    pub(crate) problem: Option<&'static str>,
}

/// A function at an address. There are several if one was inlined into the other.
pub(crate) struct Function {
    pub(crate) name: String,
    /// File, line and column, as far as they are known.
    pub(crate) place: Option<(PathBuf, Option<u32>, Option<u32>)>,
}

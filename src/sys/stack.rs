//! The stack of another thread of this process, for whoever looks after it: which functions it is
//! in. With the feature `backtrace`.
//!
//! `linux` has it, on the architectures whose registers it knows; elsewhere (`none`) nobody is
//! asked. A thread that may be asked says so first: [`note`].

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

/// What a stack shows.
pub(crate) struct Trace {
    /// Where in the code each frame is, the innermost first: for a caller, within the instruction
    /// that calls.
    pub(crate) addresses: Vec<usize>,
    /// Why frames are missing.
    pub(crate) problem: Option<&'static str>,
}

/// A function at an address. Several are there if one was inlined into the other.
pub(crate) struct Function {
    pub(crate) name: String,
    /// File, line and column, as far as they are known.
    pub(crate) place: Option<(PathBuf, Option<u32>, Option<u32>)>,
}

//! Captures the stack of another thread of this process: the functions that the thread is in.
//!
//! A thread that may be sampled registers itself first: [`note`]. Any thread may then ask for its
//! stack, with [`of_thread`]: a signal (SIGURG) makes the thread copy its registers and its stack,
//! which are unwound by the thread that asked. Names are looked up only when they are asked for:
//! [`functions`].
//!
//! On Linux, x86-64 and aarch64. On other systems nothing is captured.
//!
//! ```
//! use std::sync::{Arc, Barrier};
//!
//! let barrier = Arc::new(Barrier::new(2));
//! let (sender, receiver) = std::sync::mpsc::channel();
//! let other = std::thread::spawn({
//!     let barrier = barrier.clone();
//!     move || {
//!         sender.send(polder_stack::note()).unwrap();
//!         barrier.wait();
//!     }
//! });
//! if let Some(trace) = polder_stack::of_thread(receiver.recv().unwrap()) {
//!     for address in trace.addresses {
//!         for function in polder_stack::functions(address) {
//!             println!("{}", function.name);
//!         }
//!     }
//! }
//! barrier.wait();
//! other.join().unwrap();
//! ```

#![deny(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod linux;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
use linux as imp;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod none;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
use none as imp;

use std::path::PathBuf;

/// The result of unwinding a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The code address of each frame, the innermost first. For a caller it lies within the call
    /// instruction.
    pub addresses: Vec<usize>,
    /// Why frames are missing.
    pub problem: Option<&'static str>,
}

/// A function at an address.
#[derive(Debug)]
pub struct Function {
    /// The demangled name.
    pub name: String,
    /// File, line and column, as far as they are known.
    pub place: Option<(PathBuf, Option<u32>, Option<u32>)>,
}

/// Registers the calling thread, which may be asked from now on, and returns its number: that of
/// gettid(2), or 0 on systems where no stack can be captured.
pub fn note() -> u32 {
    imp::note()
}

/// Returns the stack of a thread that called [`note`] with this number, or why it is not available.
/// Returns `None` for the number 0, and on systems where no stack can be captured.
///
/// The thread is interrupted by SIGURG: some of its system calls return `EINTR`, see signal(7). If
/// the program handles SIGURG itself or the thread blocks it, the signal is not sent. The call
/// waits for at most a fraction of a second.
pub fn of_thread(thread: u32) -> Option<Trace> {
    imp::of_thread(thread)
}

/// Returns the functions at an address, the innermost first: there are several if one was inlined
/// into the other, and none if the program has no symbol for it. Reads the program's debug
/// information, which takes a while the first time.
pub fn functions(address: usize) -> Vec<Function> {
    imp::functions(address)
}

/// Returns the program or library that has code at an address, and the offset of the address in it.
pub fn object(address: usize) -> Option<(PathBuf, usize)> {
    imp::object(address)
}

//! The rules that every backend must keep. Each test is named after the rule that it shows, and
//! runs on every backend of this machine.
//!
//! A lost wake-up must be a failed test with a message, never a hang: every test has a deadline.
//! Tests wait for conditions instead of sleeping; ports come from the kernel; no test depends on
//! another.

mod again;
mod async_closures;
mod async_io;
mod auto_traits;
mod child;
mod combinators;
#[cfg(feature = "async-io-compat")]
mod compat;
mod connecting;
mod descriptor;
mod diagnostics;
#[cfg(target_os = "linux")]
mod elsewhere;
mod endings;
mod events;
mod files;
#[cfg(unix)]
mod fork;
#[cfg(unix)]
mod kernel;
mod memory;
mod names;
#[cfg(unix)]
mod numbers;
#[cfg(all(unix, feature = "kernel"))]
mod other_kernel;
mod peer;
mod pollers;
mod probe;
#[cfg(unix)]
mod process;
mod rules;
mod runtime;
mod scope;
mod serve;
mod serve_on_workers;
mod streams;
mod support;
mod tasks;
mod taskset;
mod time;
mod together;
mod two_runtimes;
mod udp;
mod unblock;
#[cfg(unix)]
mod unix;
mod waiters;
mod workers;

//! The rules of polder's suite (tests/conformance), in simulated worlds: the column `simulated`.
//!
//! The files are the suite's. A rule that is given as a future runs here in worlds alone, and there
//! on the backends alone: [`support`] is this crate's.

#![allow(unexpected_cfgs, reason = "the features are polder's")]

#[path = "../../../../tests/conformance/again.rs"]
mod again;
#[path = "../../../../tests/conformance/async_closures.rs"]
mod async_closures;
#[path = "../../../../tests/conformance/async_io.rs"]
mod async_io;
#[path = "../../../../tests/conformance/child.rs"]
mod child;
#[path = "../../../../tests/conformance/combinators.rs"]
mod combinators;
#[path = "../../../../tests/conformance/compat.rs"]
mod compat;
#[path = "../../../../tests/conformance/connecting.rs"]
mod connecting;
#[path = "../../../../tests/conformance/descriptor.rs"]
mod descriptor;
#[path = "../../../../tests/conformance/diagnostics/mod.rs"]
mod diagnostics;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/conformance/elsewhere.rs"]
mod elsewhere;
#[path = "../../../../tests/conformance/endings.rs"]
mod endings;
#[path = "../../../../tests/conformance/events.rs"]
mod events;
#[path = "../../../../tests/conformance/files.rs"]
mod files;
#[cfg(unix)]
#[path = "../../../../tests/conformance/fork.rs"]
mod fork;
#[cfg(unix)]
#[path = "../../../../tests/conformance/kernel.rs"]
mod kernel;
#[path = "../../../../tests/conformance/memory.rs"]
mod memory;
#[path = "../../../../tests/conformance/names.rs"]
mod names;
#[path = "../../../../tests/conformance/peer.rs"]
mod peer;
#[path = "../../../../tests/conformance/pollers/mod.rs"]
mod pollers;
#[path = "../../../../tests/conformance/probe.rs"]
mod probe;
#[path = "../../../../tests/conformance/runtime/mod.rs"]
mod runtime;
#[path = "../../../../tests/conformance/scope.rs"]
mod scope;
#[path = "../../../../tests/conformance/serve.rs"]
mod serve;
#[path = "../../../../tests/conformance/serve_on_workers.rs"]
mod serve_on_workers;
#[allow(dead_code, reason = "support.rs has some of it in another way")]
#[path = "../../../../tests/conformance/support.rs"]
mod shared;
#[path = "../../../../tests/conformance/streams/mod.rs"]
mod streams;
mod support;
#[path = "../../../../tests/conformance/tasks.rs"]
mod tasks;
#[path = "../../../../tests/conformance/taskset.rs"]
mod taskset;
#[path = "../../../../tests/conformance/time/mod.rs"]
mod time;
#[path = "../../../../tests/conformance/together.rs"]
mod together;
#[path = "../../../../tests/conformance/two_runtimes.rs"]
mod two_runtimes;
#[path = "../../../../tests/conformance/udp.rs"]
mod udp;
#[path = "../../../../tests/conformance/unblock.rs"]
mod unblock;
#[cfg(unix)]
#[path = "../../../../tests/conformance/unix.rs"]
mod unix;
#[path = "../../../../tests/conformance/waiters.rs"]
mod waiters;
#[path = "../../../../tests/conformance/workers.rs"]
mod workers;
mod world;

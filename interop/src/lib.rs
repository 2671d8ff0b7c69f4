//! Shared by the programs in `src/bin/`: the command line, a time limit for stalled peers, lines
//! shared by servers, and the adapters for hyper, quinn and hickory.

pub mod broker;
pub mod embedded;
pub mod http;
mod hyper_io;
mod limited;
mod program;
mod quinn_runtime;
pub mod raft;
mod resolver;

pub use hyper_io::{HyperExecutor, HyperStream, HyperTimer};
pub use limited::Limited;
pub use program::{Arguments, main, say, served, stopped, told};
pub use quinn_runtime::QuinnRuntime;
pub use resolver::{PolderProvider, addresses};

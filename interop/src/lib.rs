//! What the programs in `src/bin/` share: the command line, a time limit for stalled peers, and the
//! adapters for hyper and quinn.

pub mod http;
mod hyper_io;
mod limited;
mod program;
mod quinn_runtime;

pub use hyper_io::{HyperStream, HyperTimer};
pub use limited::Limited;
pub use program::{Arguments, main, say, stopped, told};
pub use quinn_runtime::QuinnRuntime;

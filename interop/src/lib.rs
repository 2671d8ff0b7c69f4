//! What the programs in `src/bin/` share: the command line, a time limit for stalled peers, and the
//! adapters for hyper.

pub mod http;
mod hyper_io;
mod limited;
mod program;

pub use hyper_io::{HyperStream, HyperTimer};
pub use limited::Limited;
pub use program::{Arguments, main, say, stopped, told};

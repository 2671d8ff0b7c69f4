//! What the programs in `src/bin/` share: the command line, a limit for peers that stall, and what
//! hyper asks of a runtime.

pub mod http;
mod hyper_io;
mod limited;
mod program;

pub use hyper_io::{HyperStream, HyperTimer};
pub use limited::Limited;
pub use program::{Arguments, main, say, stopped, told};

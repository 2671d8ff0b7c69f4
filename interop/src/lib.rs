//! What the programs in `src/bin/` share: the command line, a limit for peers that stall, and what
//! hyper asks of a runtime.

pub mod http;
mod limited;
mod program;
mod timer;

pub use limited::Limited;
pub use program::{Arguments, main, say, told};
pub use timer::PolderTimer;

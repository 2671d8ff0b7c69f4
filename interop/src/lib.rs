//! Shared by the programs in `src/bin/`: the command line, a time limit for stalled peers, and
//! lines shared by servers.

pub mod broker;
pub mod embedded;
pub mod http;
mod limited;
mod program;
pub mod raft;

pub use limited::Limited;
pub use program::{Arguments, main, say, served, served_by_hyper, stopped, told};

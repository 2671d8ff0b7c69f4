//! The core's records about itself, read by `diagnostics`. Nothing here affects scheduling or calls
//! foreign code.
//!
//! * [`counters`]: a worker's activity, written by its own thread;
//! * [`identity`]: a task's id, name and spawn site;
//! * [`wait_reason`]: what a task waits for, as a word in its metadata;
//! * [`open`]: the number of open sockets of the process;
//! * [`trace`]: events of a traced runtime, and the rings that keep them;
//! * [`requests`]: questions that only the worker's own thread can answer.

mod counters;
mod identity;
mod open;
pub(crate) mod requests;
mod trace;
mod wait_reason;

pub(crate) use counters::{BUCKETS, Counter, Counters, Histogram, MAIN_FUTURE, SAMPLE};
pub use identity::{Id, Name};
pub(crate) use identity::{Ids, SpawnMeta};
pub(crate) use open::{SocketType, open_sockets};
pub(crate) use trace::{Event, MAX_EVENTS, Mark, Ring, TraceLog, Traced};
pub(crate) use wait_reason::WaitReason;

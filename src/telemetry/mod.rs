//! The core's records about itself, which `diagnostics` reads. Nothing here decides what runs, and
//! nothing runs foreign code:
//!
//! * [`counters`]: a worker's activity, written by its own thread only;
//! * [`identity`]: a task's id, its name, and the place of its spawn;
//! * [`wait_reason`]: what a task waits for, as a word in its metadata;
//! * [`open`]: the number of open sockets of the process;
//! * [`trace`]: single events, if the runtime is traced, kept in [`trace_log`] and [`trace_ring`];
//! * [`requests`]: questions that only the worker's own thread can answer.

mod counters;
mod identity;
mod open;
pub(crate) mod requests;
mod trace;
mod trace_log;
mod trace_ring;
mod wait_reason;

pub(crate) use counters::{BUCKETS, Counter, Counters, Histogram, MAIN_FUTURE, SAMPLE};
pub use identity::{Id, Name};
pub(crate) use identity::{Ids, Label};
pub(crate) use open::{Open, SocketType};
pub(crate) use trace::{Mark, Traced};
pub(crate) use trace_log::TraceLog;
pub(crate) use trace_ring::{Event, MAX_EVENTS, Ring};
pub(crate) use wait_reason::WaitReason;

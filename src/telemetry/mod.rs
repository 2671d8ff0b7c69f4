//! What the core records about itself, and for whom.
//!
//! The reactor and the scheduler write here as they work; `diagnostics` reads. Nothing here decides
//! what runs, and nothing runs foreign code:
//!
//! * [`counters`]: what a worker has done so far, written by its own thread only;
//! * [`identity`]: a task's id, its name, and the place of its spawn;
//! * [`leaf`]: what a task waits for, as a word in its metadata;
//! * [`trace`]: single events, if the runtime is traced;
//! * [`requests`]: questions that only the worker's own thread can answer.

mod counters;
mod identity;
mod leaf;
pub(crate) mod requests;
mod trace;

pub(crate) use counters::{BUCKETS, Counter, Counters, Histogram, MAIN_FUTURE, SAMPLE};
pub use identity::{Id, Name};
pub(crate) use identity::{Ids, Label};
pub(crate) use leaf::Leaf;
pub(crate) use trace::{Recorder, Traced, Tracer, What};

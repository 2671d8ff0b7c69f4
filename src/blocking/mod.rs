//! Blocking calls: the [`pool`] of threads that make them, [`unblock()`], which runs a function
//! there, and [`Unblock`], which makes blocking I/O types asynchronous. Files (`fs`) and name
//! lookups use the pool, too.
//!
//! The public paths are `polder::unblock` and `polder::io::Unblock`.

#[cfg(feature = "blocking")]
mod io;
mod pool;
#[cfg(feature = "blocking")]
mod unblock;

#[cfg(feature = "blocking")]
pub use io::Unblock;
pub(crate) use pool::{Awaiter, Call, Class, Job, Load, POOL};
#[cfg(feature = "blocking")]
pub use unblock::unblock;
#[cfg(feature = "blocking")]
pub(crate) use unblock::unblock_at;

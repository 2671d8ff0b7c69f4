//! The programs, one file per runtime: the same work, each as that runtime's users would write it.

pub mod compio;
pub mod futures_io;
pub mod glommio;
pub mod monoio;
pub mod polder;
pub mod raw;
pub mod smol;
pub mod tokio;

use std::io;

use crate::group::Skip;

/// Returns the reason to leave out what this machine does not support.
fn unavailable(what: &str) -> impl FnOnce(io::Error) -> Skip {
    move |error| Skip(format!("{what}: {error}"))
}

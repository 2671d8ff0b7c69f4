//! Systems where no stack can be captured.

use std::path::PathBuf;

use super::{Function, Trace};

pub(super) fn note() -> u32 {
    0
}

pub(super) fn of_thread(_thread: u32) -> Option<Trace> {
    None
}

pub(super) fn functions(_address: usize) -> Vec<Function> {
    Vec::new()
}

pub(super) fn object(_address: usize) -> Option<(PathBuf, usize)> {
    None
}

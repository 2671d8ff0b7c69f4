//! Systems where no stack can be captured.

use std::path::PathBuf;

use super::{Function, Trace};

pub(crate) fn note(_thread: u32) {}

pub(crate) fn of_thread(_thread: u32) -> Option<Trace> {
    None
}

pub(crate) fn functions(_address: usize) -> Vec<Function> {
    Vec::new()
}

pub(crate) fn object(_address: usize) -> Option<(PathBuf, usize)> {
    None
}

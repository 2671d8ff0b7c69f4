//! A placeholder for `cached.rs` where the kernel cannot be asked not to block: threads make all
//! calls.

use std::fs;
use std::io::IoSlice;
use std::path::Path;

pub(super) fn is_possible() -> bool {
    false
}

pub(super) fn open(_: &Path) -> Option<(fs::File, Access)> {
    None
}

pub(super) fn read(_: &Path) -> Option<Vec<u8>> {
    None
}

pub(super) fn metadata(_: &Path) -> Option<fs::Metadata> {
    None
}

/// No operation is possible without a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access;

impl Access {
    pub(super) fn none() -> Access {
        Access
    }

    pub(super) fn of_unknown(_: &fs::File) -> Access {
        Access
    }

    pub(super) fn of(_: &fs::File) -> Access {
        Access
    }

    pub(super) fn reads(&self) -> bool {
        false
    }

    pub(super) fn writes(&self) -> bool {
        false
    }

    pub(super) fn seeks(&self) -> bool {
        false
    }

    pub(super) fn read(&mut self, _: &fs::File, _: &mut [u8]) -> Option<usize> {
        None
    }

    pub(super) fn write(&self, _: &fs::File, _: &[IoSlice<'_>]) -> Option<usize> {
        None
    }
}

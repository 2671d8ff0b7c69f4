//! What a descriptor is called on this platform: the one switch between Unix and Windows for
//! everything above the pollers.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) use unix::*;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub(crate) use windows::*;

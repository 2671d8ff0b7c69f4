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

/// What an error of `accept` says of the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterAcceptError {
    /// It was about one connection.
    Again,
    /// Something has run out: it will not do at once.
    Rest,
    /// It is not a listening socket, and never will be.
    End,
}

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

fn no_address() -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::InvalidData,
        "the connection has no internet address",
    )
}

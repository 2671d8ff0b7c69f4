//! Extensions for Windows: symbolic links of two kinds, attributes and handles.
//!
//! ```
//! use polder::fs::windows::{symlink_dir, symlink_file};
//! # let _ = (symlink_dir::<&str, &str>, symlink_file::<&str, &str>);
//! ```

use std::io;
use std::os::windows::fs::MetadataExt;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle, RawHandle};
use std::path::Path;
use std::time::SystemTime;

use super::{File, Metadata, Permissions};
use crate::kernel::files::{self, Stat};

/// Creates a symbolic link to a directory.
///
/// ```no_run
/// # polder::block_on(async {
/// polder::fs::symlink_dir("C:\\data", "link").await?;
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), and [others](super#errors).
///
/// # Cancel safety
///
/// [As others](super#cancel-safety).
pub async fn symlink_dir<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    super::link(original, link, std::os::windows::fs::symlink_dir).await
}

/// Creates a symbolic link to a file.
///
/// ```no_run
/// # polder::block_on(async {
/// polder::fs::symlink_file("C:\\data\\file", "link").await?;
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), and [others](super#errors).
///
/// # Cancel safety
///
/// [As others](super#cancel-safety).
pub async fn symlink_file<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    super::link(original, link, std::os::windows::fs::symlink_file).await
}

pub(super) fn stat(metadata: &std::fs::Metadata) -> Stat {
    Stat {
        attributes: metadata.file_attributes(),
        ..Stat::default()
    }
}

/// Returns the type of a file that is neither regular, directory nor link.
pub(super) fn special(_: std::fs::FileType) -> files::FileType {
    files::FileType::Other
}

pub(super) fn mode(permissions: &std::fs::Permissions) -> u32 {
    if permissions.readonly() { 0o555 } else { 0o777 }
}

/// Converts `new` to the standard library's permissions. `current` returns those of the file.
pub(super) fn permissions(
    new: &Permissions,
    current: impl FnOnce() -> io::Result<std::fs::Permissions>,
) -> io::Result<std::fs::Permissions> {
    let mut permissions = current()?;
    permissions.set_readonly(new.readonly());
    Ok(permissions)
}

/// The start of 1970 as a `FILETIME`, in units of 100 ns since 1601.
const UNIX_EPOCH: i128 = 116_444_736_000_000_000;

/// Returns a time as a `FILETIME`, or zero if it is unknown.
fn file_time(time: Option<SystemTime>) -> u64 {
    let since = |time: SystemTime| match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => UNIX_EPOCH + after.as_nanos() as i128 / 100,
        Err(before) => UNIX_EPOCH - before.duration().as_nanos() as i128 / 100,
    };
    time.map_or(0, |time| since(time) as u64)
}

/// The methods of `std::os::windows::fs::MetadataExt`.
impl Metadata {
    /// Returns the attributes, such as `FILE_ATTRIBUTE_HIDDEN`.
    ///
    /// ```no_run
    /// # polder::block_on(async {
    /// let hidden = 0x2;
    /// assert_eq!(polder::fs::metadata("file").await?.file_attributes() & hidden, 0);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn file_attributes(&self) -> u32 {
        self.0.stat.attributes
    }

    /// Returns the time of creation in units of 100 ns since 1601, or zero if it is unknown.
    ///
    /// ```no_run
    /// # polder::block_on(async {
    /// println!("{}", polder::fs::metadata("file").await?.creation_time());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn creation_time(&self) -> u64 {
        file_time(self.0.created)
    }

    /// Returns the time of the last read, in the format of [`creation_time`](Self::creation_time).
    ///
    /// ```no_run
    /// # polder::block_on(async {
    /// println!("{}", polder::fs::metadata("file").await?.last_access_time());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn last_access_time(&self) -> u64 {
        file_time(self.0.accessed)
    }

    /// Returns the time of the last write, in the format of [`creation_time`](Self::creation_time).
    ///
    /// ```no_run
    /// # polder::block_on(async {
    /// println!("{}", polder::fs::metadata("file").await?.last_write_time());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn last_write_time(&self) -> u64 {
        file_time(self.0.modified)
    }

    /// Returns the length in bytes: [`len`](Self::len).
    ///
    /// ```no_run
    /// # polder::block_on(async {
    /// println!("{}", polder::fs::metadata("file").await?.file_size());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn file_size(&self) -> u64 {
        self.0.length
    }
}

/// Lends the handle, for calls that polder does not have. It shares the file's position, and a
/// dropped read or write may still be in progress: flush first.
///
/// A simulated file lends a placeholder that cannot be read or written (the null device); a failure
/// report mentions it.
///
/// ```no_run
/// use std::os::windows::io::AsHandle;
///
/// # polder::block_on(async {
/// let file = polder::fs::File::open("file").await?;
/// let copy = std::fs::File::from(file.as_handle().try_clone_to_owned()?);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
impl AsHandle for File {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.lend().as_handle()
    }
}

/// See [`as_handle`](AsHandle::as_handle).
impl AsRawHandle for File {
    fn as_raw_handle(&self) -> RawHandle {
        self.lend().as_raw_handle()
    }
}

/// Takes over a handle.
///
/// ```no_run
/// let file = std::fs::File::open("file")?;
/// let file = polder::fs::File::from(std::os::windows::io::OwnedHandle::from(file));
/// # std::io::Result::Ok(())
/// ```
impl From<OwnedHandle> for File {
    fn from(handle: OwnedHandle) -> File {
        std::fs::File::from(handle).into()
    }
}

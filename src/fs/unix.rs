//! Extensions for Unix: symbolic links, and the standard library's traits for polder's types.
//!
//! ```
//! use polder::fs;
//! use polder::fs::unix::{FileTypeExt, MetadataExt};
//!
//! # polder::block_on(async {
//! let metadata = fs::metadata("Cargo.toml").await?;
//! println!("{} of device {}, owned by {}", metadata.ino(), metadata.dev(), metadata.uid());
//! assert!(metadata.nlink() > 0 && metadata.size() == metadata.len());
//! assert!(fs::metadata("/dev/null").await?.file_type().is_char_device());
//! # std::io::Result::Ok(()) }).unwrap();
//! ```
//!
//! `OpenOptions`, `DirBuilder` and `Permissions` also have these methods without the traits.
//!
//! # In a simulated world
//!
//! `ino` is never reused on the host, and survives power failures. `dev` is a number of the host.
//! `nlink` is one, also of directories (as on Btrfs), and zero of a removed file that is open.
//! `blocks` counts the written sectors of 512 bytes; `blksize` is 4,096. `uid`, `gid`, `rdev` and
//! all times are zero.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

#[doc(no_inline)]
pub use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};

use super::{DirBuilder, DirEntry, File, FileType, Metadata, OpenOptions, Permissions};
use crate::kernel::files::{self, Stat};

/// Creates a symbolic link.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let link = folder.path().join("link");
/// fs::symlink("somewhere", &link).await?;
/// assert_eq!(fs::read_link(&link).await?.to_str(), Some("somewhere"));
/// assert!(fs::symlink_metadata(&link).await?.is_symlink());
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
///
/// # Platforms
///
/// Unix. Windows has `symlink_file` and `symlink_dir`.
pub async fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    super::link(original, link, std::os::unix::fs::symlink).await
}

pub(super) fn stat(metadata: &std::fs::Metadata) -> Stat {
    Stat {
        dev: metadata.dev(),
        ino: metadata.ino(),
        nlink: metadata.nlink(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: metadata.rdev(),
        atime: (metadata.atime(), metadata.atime_nsec()),
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        ctime: (metadata.ctime(), metadata.ctime_nsec()),
        blksize: metadata.blksize(),
        blocks: metadata.blocks(),
        attributes: 0,
    }
}

/// Returns the type of a file that is neither regular, directory nor link.
pub(super) fn special(file_type: std::fs::FileType) -> files::FileType {
    if file_type.is_socket() {
        files::FileType::Socket
    } else if file_type.is_fifo() {
        files::FileType::Fifo
    } else if file_type.is_block_device() {
        files::FileType::BlockDevice
    } else if file_type.is_char_device() {
        files::FileType::CharDevice
    } else {
        files::FileType::Other
    }
}

pub(super) fn mode(permissions: &std::fs::Permissions) -> u32 {
    permissions.mode()
}

/// Converts `new` to the standard library's permissions. `current` returns those of the file.
pub(super) fn permissions(
    new: &Permissions,
    _current: impl FnOnce() -> io::Result<std::fs::Permissions>,
) -> io::Result<std::fs::Permissions> {
    Ok(std::fs::Permissions::from_mode(new.mode))
}

/// The fields of stat(2).
///
/// ```
/// use polder::fs::unix::MetadataExt;
///
/// # polder::block_on(async {
/// let file = polder::fs::File::open("Cargo.toml").await?;
/// let (open, named) = (file.metadata().await?, polder::fs::metadata("Cargo.toml").await?);
/// assert_eq!((open.dev(), open.ino()), (named.dev(), named.ino())); // It was not replaced.
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
impl MetadataExt for Metadata {
    fn dev(&self) -> u64 {
        self.0.stat.dev
    }

    fn ino(&self) -> u64 {
        self.0.stat.ino
    }

    fn mode(&self) -> u32 {
        self.0.mode
    }

    fn nlink(&self) -> u64 {
        self.0.stat.nlink
    }

    fn uid(&self) -> u32 {
        self.0.stat.uid
    }

    fn gid(&self) -> u32 {
        self.0.stat.gid
    }

    fn rdev(&self) -> u64 {
        self.0.stat.rdev
    }

    fn size(&self) -> u64 {
        self.0.length
    }

    fn atime(&self) -> i64 {
        self.0.stat.atime.0
    }

    fn atime_nsec(&self) -> i64 {
        self.0.stat.atime.1
    }

    fn mtime(&self) -> i64 {
        self.0.stat.mtime.0
    }

    fn mtime_nsec(&self) -> i64 {
        self.0.stat.mtime.1
    }

    fn ctime(&self) -> i64 {
        self.0.stat.ctime.0
    }

    fn ctime_nsec(&self) -> i64 {
        self.0.stat.ctime.1
    }

    fn blksize(&self) -> u64 {
        self.0.stat.blksize
    }

    fn blocks(&self) -> u64 {
        self.0.stat.blocks
    }
}

impl FileTypeExt for FileType {
    fn is_block_device(&self) -> bool {
        self.0 == files::FileType::BlockDevice
    }

    fn is_char_device(&self) -> bool {
        self.0 == files::FileType::CharDevice
    }

    fn is_fifo(&self) -> bool {
        self.0 == files::FileType::Fifo
    }

    fn is_socket(&self) -> bool {
        self.0 == files::FileType::Socket
    }
}

impl PermissionsExt for Permissions {
    fn mode(&self) -> u32 {
        self.mode
    }

    fn set_mode(&mut self, mode: u32) {
        self.mode = mode;
    }

    fn from_mode(mode: u32) -> Permissions {
        Permissions { mode }
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        OpenOptions::mode(self, mode)
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        OpenOptions::custom_flags(self, flags)
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        DirBuilder::mode(self, mode)
    }
}

/// The inode number of the entry; links are not followed.
///
/// ```
/// use polder::fs::unix::DirEntryExt;
/// use polder::stream::StreamExt;
///
/// # polder::block_on(async {
/// let entry = polder::fs::read_dir("src").await?.next().await.unwrap()?;
/// println!("{}", entry.ino());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.ino
    }
}

/// Lends the descriptor, for calls that polder does not have. It shares the file's position, and a
/// dropped read or write may still be in progress: flush first.
///
/// A simulated file lends a placeholder that cannot be read or written (on Linux the root
/// directory, by `O_PATH`); a failure report mentions it.
///
/// ```
/// use polder::fs::File;
/// use std::os::fd::AsFd;
///
/// # polder::block_on(async {
/// let file = File::open("Cargo.toml").await?;
/// let copy = std::fs::File::from(file.as_fd().try_clone_to_owned()?);
/// assert_eq!(copy.metadata()?.len(), file.metadata().await?.len());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lend().as_fd()
    }
}

/// See [`as_fd`](AsFd::as_fd).
impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.lend().as_raw_fd()
    }
}

/// Takes over a descriptor.
///
/// ```
/// let file = std::fs::File::open("Cargo.toml")?;
/// let file = polder::fs::File::from(std::os::fd::OwnedFd::from(file));
/// # std::io::Result::Ok(())
/// ```
impl From<OwnedFd> for File {
    fn from(descriptor: OwnedFd) -> File {
        std::fs::File::from(descriptor).into()
    }
}

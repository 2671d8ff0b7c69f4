//! [`Files`]: the files of a kernel, for `polder::fs`.
//!
//! A call is a future of owned values, which does nothing before it is polled. The kernel defines
//! the effect of dropping it. Paths are as the program wrote them, possibly relative. Links and the
//! setting of permissions are the system's; [`permit`](super::Kernel::permit) is called for them.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::SystemTime;

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};

/// A call.
pub type Call<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// The files of a kernel. Calls correspond to the functions of the same names in `std::fs`.
pub trait Files {
    /// Opens a file.
    fn open(&self, path: PathBuf, options: OpenOptions) -> Call<Box<dyn OpenFile>>;

    /// Returns the contents of a file.
    fn read(&self, path: PathBuf) -> Call<Vec<u8>>;

    /// Creates a file, or replaces its contents.
    fn write(&self, path: PathBuf, contents: Vec<u8>) -> Call<()>;

    /// Copies a file. Returns the number of bytes.
    fn copy(&self, from: PathBuf, to: PathBuf) -> Call<u64>;

    /// Renames a file or directory.
    fn rename(&self, from: PathBuf, to: PathBuf) -> Call<()>;

    /// Removes a file.
    fn remove_file(&self, path: PathBuf) -> Call<()>;

    /// Returns the metadata of a path; if it `follows` links, of their target.
    fn metadata(&self, path: PathBuf, follows: bool) -> Call<Metadata>;

    /// Returns the absolute path, with links, `.` and `..` resolved.
    fn canonicalize(&self, path: PathBuf) -> Call<PathBuf>;

    /// Creates a directory; if `recursive`, its parents, too, and it may exist.
    fn create_dir(&self, path: PathBuf, recursive: bool) -> Call<()>;

    /// Lists a directory.
    fn read_dir(&self, path: PathBuf) -> Call<Vec<DirEntry>>;

    /// Removes a directory; if `recursive`, with its content.
    fn remove_dir(&self, path: PathBuf, recursive: bool) -> Call<()>;
}

/// An open file of a kernel. It reads and writes at its position. A completed write needs no flush.
/// Dropping it closes it.
pub trait OpenFile: AsyncRead + AsyncWrite + AsyncSeek + Debug + Unpin + Send + Sync {
    /// Waits until what was written is on disk.
    fn sync(&self) -> Call<()>;

    /// Truncates or extends the file.
    fn set_len(&self, length: u64) -> Call<()>;

    /// Returns the metadata of the file.
    fn metadata(&self) -> Call<Metadata>;

    /// Returns another handle of the open file, with the same position.
    fn try_clone(&self) -> io::Result<Box<dyn OpenFile>>;

    /// Returns the file of the system whose descriptor is lent.
    fn lend(&self) -> &std::fs::File;
}

/// The options of `std::fs::OpenOptions`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Those of the standard library.
pub struct OpenOptions {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
    pub create: bool,
    pub create_new: bool,
}

/// A directory entry.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: OsString,
    /// `None` if the directory does not report it.
    pub file_type: Option<FileType>,
    /// See [`Stat::ino`].
    pub ino: u64,
}

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum FileType {
    Directory,
    File,
    Symlink,
    Socket,
    Fifo,
    BlockDevice,
    CharDevice,
    /// On Windows.
    Other,
}

/// The metadata of a file or directory.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// Its type.
    pub file_type: FileType,
    /// The length in bytes.
    pub length: u64,
    /// The Unix mode, with the bits of the type. On other systems only the bits 0o222 count:
    /// whether it may be written.
    pub mode: u32,
    /// The time of the last write, if known.
    pub modified: Option<SystemTime>,
    /// The time of the last read, if known.
    pub accessed: Option<SystemTime>,
    /// The time of creation, if known.
    pub created: Option<SystemTime>,
    /// The parts that only one platform has.
    pub stat: Stat,
}

/// The other fields of Unix's stat(2), and the attributes of Windows. A missing value is zero.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Those of `std::os::unix::fs::MetadataExt`.
pub struct Stat {
    pub dev: u64,
    /// The number of the file on its device.
    pub ino: u64,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    /// Seconds since 1970 and nanoseconds, like the next two.
    pub atime: (i64, i64),
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
    pub blksize: u64,
    pub blocks: u64,
    /// `FILE_ATTRIBUTE_…` of Windows.
    pub attributes: u32,
}

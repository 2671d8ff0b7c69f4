//! [`Files`]: what `polder::fs` asks of a kernel that has files of its own.
//!
//! A call is a future of owned values. It does nothing before it is polled, and what is left of it
//! when it is dropped is for the kernel to say. Paths are the program's, relative ones too. Links,
//! and permissions that are set, are the system's: [`permit`](super::Kernel::permit) is asked for
//! them.

use std::ffi::OsString;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::SystemTime;

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};

/// A call.
pub type Call<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// The files of a kernel. The calls are those of the functions of the same names in `std::fs`.
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

    /// Returns the metadata of a path; of a link itself, unless it `follows` links.
    fn metadata(&self, path: PathBuf, follows: bool) -> Call<Metadata>;

    /// Returns the absolute path without links, `.` and `..`.
    fn canonicalize(&self, path: PathBuf) -> Call<PathBuf>;

    /// Creates a directory. `recursive`: with its parents, and it may exist.
    fn create_dir(&self, path: PathBuf, recursive: bool) -> Call<()>;

    /// Lists a directory.
    fn read_dir(&self, path: PathBuf) -> Call<Vec<DirEntry>>;

    /// Removes a directory. `recursive`: with everything in it.
    fn remove_dir(&self, path: PathBuf, recursive: bool) -> Call<()>;
}

/// An open file of a kernel. Its reads and writes are at its position, and a write that has
/// completed needs no flush. Dropping it closes it.
pub trait OpenFile: AsyncRead + AsyncWrite + AsyncSeek + Debug + Unpin + Send + Sync {
    /// Waits until what was written is on the disk.
    fn sync(&self) -> Call<()>;

    /// Truncates or extends the file.
    fn set_len(&self, length: u64) -> Call<()>;

    /// Returns the metadata of the file.
    fn metadata(&self) -> Call<Metadata>;

    /// Returns another handle of the open file, with the same position.
    fn try_clone(&self) -> io::Result<Box<dyn OpenFile>>;

    /// Returns the file of the system that is lent in its place to code that asks for a descriptor.
    fn lend(&self) -> &std::fs::File;
}

/// How a file is opened: as `std::fs::OpenOptions` says.
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

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: OsString,
    /// `None` if the directory does not say.
    pub file_type: Option<FileType>,
    /// The number of the file: see [`Stat::ino`].
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
    /// Of Windows.
    Other,
}

/// A kernel's knowledge of a file or directory.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// Its type.
    pub file_type: FileType,
    /// The length in bytes.
    pub length: u64,
    /// The mode of Unix, with the bits of the type. Elsewhere only the bits 0o222 count: whether it
    /// may be written.
    pub mode: u32,
    /// When it was last written to, where that is known.
    pub modified: Option<SystemTime>,
    /// When it was last read, where that is known.
    pub accessed: Option<SystemTime>,
    /// When it was created, where that is known.
    pub created: Option<SystemTime>,
    /// The parts that one platform has.
    pub stat: Stat,
}

/// The fields of stat(2) by which Unix tells more, and the attributes of Windows. Zero is what a
/// file system says that has none.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Those of `std::os::unix::fs::MetadataExt`.
pub struct Stat {
    pub dev: u64,
    /// The number by which a file is known on its device.
    pub ino: u64,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    /// Seconds since 1970, and nanoseconds. So are the next two.
    pub atime: (i64, i64),
    pub mtime: (i64, i64),
    pub ctime: (i64, i64),
    pub blksize: u64,
    pub blocks: u64,
    /// `FILE_ATTRIBUTE_…`, of Windows.
    pub attributes: u32,
}

//! Files of a simulated disk: the part of `async_fs` that a store needs.
//!
//! Each host has a disk. The host's processes share it, and it outlives them. A program selects one
//! of the two implementations with its imports:
//!
//! ```
//! # #[cfg(any())]
//! #[cfg(not(test))]
//! use async_fs as fs;
//! #[cfg(test)]
//! use polder::sim::fs;
//! # fn main() {}
//! ```
//!
//! # What survives
//!
//! * **[`Host::kill`](super::Host::kill) and every other end of a process:** everything that was
//!   written.
//! * **[`Host::power_off`](super::Host::power_off):** everything that was synced. The rest is
//!   random, and drawn for each power-off:
//!   * a file's bytes, by sectors of 512: each sector is as it was at the last sync or after any
//!     write since, independently of the others. So one write may be there in part (torn), and a
//!     later one without an earlier one;
//!   * the length: that of any moment since the last sync. If it has grown and the bytes are
//!     missing, they read as zeroes. A truncation may be lost like any change; if it is there, the
//!     bytes that it has cut off do not come back;
//!   * the names in a directory (created, removed, renamed): a prefix, in order, of the changes
//!     since the directory was synced. A rename is there as a whole or not at all.
//!
//! As fsync(2) says, syncing a file does not sync its name: that takes
//! `File::open(directory).await?.sync_all().await?`. A sync covers everything that was written
//! before it began.
//!
//! A loss at a power-off is a fault, one for each file and each directory. The report of a failure
//! names those that the failure needs.
//!
//! ```
//! use polder::io::AsyncWriteExt;
//! use polder::sim::{self, Exit, Sim, fs};
//! use std::io::{ErrorKind, Result};
//! use std::time::Duration;
//!
//! /// Replaces what is stored, so that it is there, old or new, whatever happens.
//! async fn store(value: &str) -> Result<()> {
//!     let mut file = fs::File::create("/data/new").await?;
//!     file.write_all(value.as_bytes()).await?;
//!     file.sync_all().await?; // Or the name may come without the bytes.
//!     fs::rename("/data/new", "/data/value").await?;
//!     fs::File::open("/data").await?.sync_all().await // Or the name may not come.
//! }
//!
//! sim::check(0..100, |sim: Sim| async move {
//!     let limit = Duration::from_secs(1);
//!     let host = sim.host("store").start(|| async {
//!         fs::create_dir_all("/data").await?;
//!         fs::File::open("/").await?.sync_all().await?;
//!         store("old").await?;
//!         store("new").await
//!     });
//!     sim.sleep(Duration::from_micros(sim.choose(7_000))).await;
//!     host.power_off();
//!     let host = sim.host("store").start(|| fs::read_to_string("/data/value"));
//!     match host.finished().within(limit).await {
//!         Ok(value) => assert!(value == "old" || value == "new"),
//!         Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
//!     }
//! });
//! ```
//!
//! # What it is like
//!
//! Calls take time, and fail as the test configures: see [`Disk`](super::Disk). A call takes effect
//! as a whole, at the end of its time: if the process is killed before that, nothing has changed.
//! **Cancel safety:** the same holds for a future that is dropped. A `read` or `write` of a
//! [`File`] that is dropped has read or written nothing. (`write_all`, [`write()`] and
//! [`create_dir_all`] make several calls.)
//!
//! Errors are those of Linux. Paths begin at `/`, even if they are written without it. There are no
//! links, no permissions, no times, and no limits other than
//! [`Host::descriptors`](super::Host::descriptors) and [`Disk::capacity`](super::Disk::capacity). A
//! `/` or `.` at the end of a path is ignored. Prefixes of Windows paths are
//! [`InvalidInput`](io::ErrorKind::InvalidInput).
//!
//! Unlike with `async_fs`, a write has reached the kernel when it completes. Flushing does nothing,
//! and a program that forgets to flush loses nothing here.
//!
//! # Errors
//!
//! Every call fails with [`Unsupported`](io::ErrorKind::Unsupported) on a thread outside a world,
//! and so does a call on a [`File`] that belongs to another host. The test itself uses the disk of
//! its own host. Calls of a process that has ended fail with [`Other`](io::ErrorKind::Other).
//!
//! Changes that are not synced are kept in memory, and so is each change of a directory's names: a
//! world that creates and removes a million temporary files uses memory for all of them.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::vec;

use futures_lite::Stream;
use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};

use crate::time::{Sleep, sleep};
use crate::world::disk::{Disk, How, Meta};
use crate::world::disk_calls::{Begun, Call, FileOfProcess, begin};

/// Waits until a call's delay is over.
async fn wait(begun: io::Result<Begun>) -> io::Result<Begun> {
    let begun = begun?;
    if !begun.delay.is_zero() {
        sleep(begun.delay).await;
    }
    Ok(begun)
}

/// Executes a call when its delay is over.
async fn call<R>(
    begun: io::Result<Begun>,
    f: impl FnOnce(&mut Disk) -> io::Result<R>,
) -> io::Result<R> {
    wait(begun).await?.finish(f)
}

/// Reads a whole file.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/a", b"bytes").await?;
///     assert_eq!(fs::read("/a").await?, b"bytes");
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`IsADirectory`](io::ErrorKind::IsADirectory),
/// [`OutOfMemory`](io::ErrorKind::OutOfMemory) if the file is longer than a GiB (a hole may be),
/// and [others](self).
///
/// # Cancel safety
///
/// Cancel safe: dropping the future closes the file again, and has no other effect.
pub async fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let file = File::open(path).await?.file;
    call(file.begin(Call::Read), |disk| disk.read_all(file.number())).await
}

/// Reads a whole file as text.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/a", "text").await?;
///     assert_eq!(fs::read_to_string("/a").await?, "text");
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// Those of [`read`], and [`InvalidData`](io::ErrorKind::InvalidData) if it is not valid UTF-8.
///
/// # Cancel safety
///
/// Cancel safe, as [`read`].
pub async fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let bytes = read(path).await?;
    let words = "stream did not contain valid UTF-8";
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, words))
}

/// Creates or truncates a file, and writes `contents` to it. Neither is synced: a power-off in
/// between may leave the file empty.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/a", "longer").await?;
///     fs::write("/a", "short").await?;
///     assert_eq!(fs::read("/a").await?, b"short");
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// Those of [`File::create`], and [`StorageFull`](io::ErrorKind::StorageFull).
///
/// # Cancel safety
///
/// Not cancel safe: if the future is dropped, the file may have been created or truncated, and any
/// number of the first bytes of `contents` may have been written.
pub async fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let file = File::create(path).await?.file;
    let (mut bytes, mut at) = (contents.as_ref(), 0);
    while !bytes.is_empty() {
        let write = |disk: &mut Disk| disk.write(file.number(), at, bytes);
        let (len, end) = call(file.begin(Call::Write), write).await?;
        (bytes, at) = (&bytes[len..], end);
    }
    Ok(())
}

/// Renames a file or directory, atomically. An existing file with the new name is replaced, and so
/// is an empty directory if the renamed one is a directory too. The rename is durable once the
/// directories of both names are [synced](self).
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/new", "2").await?;
///     fs::write("/value", "1").await?;
///     fs::rename("/new", "/value").await?;
///     assert_eq!(fs::read("/value").await?, b"2");
///     assert!(fs::metadata("/new").await.is_err());
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// Those of rename(2).
///
/// # Cancel safety
///
/// Cancel safe: if the future is dropped, the names stay as they are.
pub async fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let rename = |disk: &mut Disk| disk.rename(from.as_ref(), to.as_ref());
    call(begin(Call::Write), rename).await
}

/// Removes a file. Processes that have it open can still read and write it.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/a", "").await?;
///     fs::remove_file("/a").await?;
///     assert!(fs::remove_file("/a").await.is_err());
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`IsADirectory`](io::ErrorKind::IsADirectory), and
/// [others](self).
///
/// # Cancel safety
///
/// Cancel safe: if the future is dropped, the file stays.
pub async fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(begin(Call::Write), |disk| disk.remove_file(path.as_ref())).await
}

/// Creates a directory.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::create_dir("/a").await?;
///     assert!(fs::metadata("/a").await?.is_dir());
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), [`NotFound`](io::ErrorKind::NotFound), and
/// [others](self).
///
/// # Cancel safety
///
/// Cancel safe: if the future is dropped, no directory is created.
pub async fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(begin(Call::Write), |disk| disk.create_dir(path.as_ref())).await
}

/// Creates a directory, and any missing parents.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::create_dir_all("/a/b/c").await?;
///     fs::create_dir_all("/a/b").await?;
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists) or
/// [`NotADirectory`](io::ErrorKind::NotADirectory) if a file is in the way, and [others](self).
///
/// # Cancel safety
///
/// Each directory is created by a separate call: if the future is dropped, some of the parents may
/// have been created. Calling it again creates the others.
pub async fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    let mut missing = Vec::new();
    // As the standard library does: up to the nearest existing ancestor, and back down.
    for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        match make_dir(dir).await {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(dir),
            Err(error) => return Err(error),
        }
    }
    for dir in missing.into_iter().rev() {
        make_dir(dir).await?;
    }
    Ok(())
}

/// Creates a directory, unless it exists.
async fn make_dir(path: &Path) -> io::Result<()> {
    let make = |disk: &mut Disk| match disk.create_dir(path) {
        Err(_) if disk.meta(path).is_ok_and(|meta| meta.is_dir) => Ok(()),
        result => result,
    };
    call(begin(Call::Write), make).await
}

/// Removes an empty directory.
///
/// ```
/// use polder::sim::fs;
/// use std::io::ErrorKind;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::create_dir_all("/a/b").await?;
///     let error = fs::remove_dir("/a").await.unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
///     fs::remove_dir("/a/b").await
/// });
/// ```
///
/// # Errors
///
/// [`DirectoryNotEmpty`](io::ErrorKind::DirectoryNotEmpty),
/// [`NotADirectory`](io::ErrorKind::NotADirectory), [`NotFound`](io::ErrorKind::NotFound), and
/// [others](self).
///
/// # Cancel safety
///
/// Cancel safe: if the future is dropped, the directory stays.
pub async fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(begin(Call::Write), |disk| disk.remove_dir(path.as_ref())).await
}

/// Lists a directory, sorted by name, as it is at the end of the call.
///
/// ```
/// use polder::sim::fs;
/// use polder::stream::StreamExt;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::create_dir("/b").await?;
///     fs::write("/a", "").await?;
///     let entries: Vec<_> = fs::read_dir("/").await?.try_collect().await?;
///     let names: Vec<_> = entries.iter().map(|entry| entry.file_name()).collect();
///     assert_eq!(names, ["a", "b"]);
///     assert!(entries[1].file_type().await?.is_dir());
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// [`NotADirectory`](io::ErrorKind::NotADirectory), [`NotFound`](io::ErrorKind::NotFound), and
/// [others](self).
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let names = call(begin(Call::Read), |disk| disk.read_dir(path)).await?;
    let entry = |(name, is_dir)| DirEntry {
        path: path.join(name),
        is_dir,
    };
    let entries: Vec<DirEntry> = names.into_iter().map(entry).collect();
    Ok(ReadDir(entries.into_iter()))
}

/// Returns the type and the length of a file or directory.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/a", "four").await?;
///     let metadata = fs::metadata("/a").await?;
///     assert!(metadata.is_file() && metadata.len() == 4);
///     std::io::Result::Ok(())
/// });
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`NotADirectory`](io::ErrorKind::NotADirectory), and
/// [others](self).
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let meta = call(begin(Call::Read), |disk| disk.meta(path.as_ref())).await?;
    Ok(Metadata(meta))
}

/// The type and the length of a file or directory, returned by [`metadata`], [`File::metadata`] and
/// [`DirEntry::metadata`].
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/a", "1").await?;
///     let before = fs::metadata("/a").await?;
///     fs::write("/a", "22").await?;
///     assert_ne!(fs::metadata("/a").await?, before);
///     std::io::Result::Ok(())
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata(Meta);

impl Metadata {
    /// Returns the length of a file in bytes; zero for a directory.
    ///
    /// ```
    /// use polder::sim::fs;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     assert_eq!(fs::metadata("/").await?.len(), 0);
    ///     fs::write("/a", [7; 100]).await?;
    ///     assert_eq!(fs::metadata("/a").await?.len(), 100);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    #[allow(clippy::len_without_is_empty)] // As the standard library's.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Returns whether this is a file.
    ///
    /// ```
    /// use polder::sim::fs;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "").await?;
    ///     assert!(fs::metadata("/a").await?.is_file());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn is_file(&self) -> bool {
        !self.0.is_dir
    }

    /// Returns whether this is a directory.
    ///
    /// ```
    /// polder::sim::check(0..1, |sim| async move {
    ///     assert!(polder::sim::fs::metadata("/").await.unwrap().is_dir());
    /// });
    /// ```
    pub fn is_dir(&self) -> bool {
        self.0.is_dir
    }

    /// Returns the type as a separate value, as [`DirEntry::file_type`] does.
    ///
    /// ```
    /// polder::sim::check(0..1, |sim| async move {
    ///     let metadata = polder::sim::fs::metadata("/").await.unwrap();
    ///     assert!(metadata.file_type().is_dir());
    /// });
    /// ```
    pub fn file_type(&self) -> FileType {
        FileType {
            is_dir: self.0.is_dir,
        }
    }
}

/// The type of a directory entry: file or directory.
///
/// ```
/// use polder::sim::fs;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::create_dir("/a").await?;
///     fs::write("/b", "").await?;
///     let (a, b) = (fs::metadata("/a").await?, fs::metadata("/b").await?);
///     assert_ne!(a.file_type(), b.file_type());
///     std::io::Result::Ok(())
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileType {
    is_dir: bool,
}

impl FileType {
    /// Returns whether this is a file.
    ///
    /// ```
    /// polder::sim::check(0..1, |sim| async move {
    ///     let file = polder::sim::fs::File::create("/a").await?;
    ///     assert!(file.metadata().await?.file_type().is_file());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn is_file(&self) -> bool {
        !self.is_dir
    }

    /// Returns whether this is a directory.
    ///
    /// ```
    /// polder::sim::check(0..1, |sim| async move {
    ///     let root = polder::sim::fs::File::open("/").await?;
    ///     assert!(root.metadata().await?.file_type().is_dir());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn is_dir(&self) -> bool {
        self.is_dir
    }

    /// Returns `false`: a simulated disk has no symbolic links.
    ///
    /// ```
    /// polder::sim::check(0..1, |sim| async move {
    ///     let root = polder::sim::fs::metadata("/").await.unwrap();
    ///     assert!(!root.file_type().is_symlink());
    /// });
    /// ```
    pub fn is_symlink(&self) -> bool {
        false
    }
}

/// A stream of the entries of a directory, sorted by name; returned by [`read_dir`]. Items are
/// never errors, and are always ready.
///
/// ```
/// use polder::sim::fs;
/// use polder::stream::StreamExt;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::write("/b", "").await?;
///     fs::write("/a", "").await?;
///     let mut entries = fs::read_dir("/").await?;
///     while let Some(entry) = entries.next().await {
///         fs::remove_file(entry?.path()).await?;
///     }
///     assert_eq!(fs::read_dir("/").await?.count().await, 0);
///     std::io::Result::Ok(())
/// });
/// ```
#[derive(Debug)]
pub struct ReadDir(vec::IntoIter<DirEntry>);

impl Stream for ReadDir {
    type Item = io::Result<DirEntry>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<DirEntry>>> {
        Poll::Ready(self.0.next().map(Ok))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// An entry of a directory, an item of [`ReadDir`].
///
/// ```
/// use polder::sim::fs;
/// use polder::stream::StreamExt;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::create_dir_all("/data/wal").await?;
///     let entry = fs::read_dir("/data").await?.next().await.unwrap()?;
///     assert!(entry.file_name() == "wal" && entry.file_type().await?.is_dir());
///     std::io::Result::Ok(())
/// });
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    path: PathBuf,
    is_dir: bool,
}

impl DirEntry {
    /// Returns the path: the one passed to [`read_dir`], joined with the entry's name.
    ///
    /// ```
    /// use polder::sim::fs;
    /// use polder::stream::StreamExt;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::create_dir_all("/data/wal").await?;
    ///     let entry = fs::read_dir("/data").await?.next().await.unwrap()?;
    ///     assert_eq!(entry.path().to_str(), Some("/data/wal"));
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Returns the name, without the directory.
    ///
    /// ```
    /// use polder::sim::fs;
    /// use polder::stream::StreamExt;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/log.1", "").await?;
    ///     let entry = fs::read_dir("/").await?.next().await.unwrap()?;
    ///     assert_eq!(entry.file_name(), "log.1");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn file_name(&self) -> OsString {
        let name = self.path.file_name().expect("a name was joined");
        name.to_owned()
    }

    /// Returns the type that the entry had when the directory was read. Takes no time, and never
    /// fails.
    ///
    /// ```
    /// use polder::sim::fs;
    /// use polder::stream::StreamExt;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "").await?;
    ///     let entry = fs::read_dir("/").await?.next().await.unwrap()?;
    ///     fs::remove_file("/a").await?;
    ///     assert!(entry.file_type().await?.is_file());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the future is ready at its first poll.
    pub async fn file_type(&self) -> io::Result<FileType> {
        let is_dir = self.is_dir;
        Ok(FileType { is_dir })
    }

    /// Returns the metadata of the entry's path at the time of this call.
    ///
    /// ```
    /// use polder::sim::fs;
    /// use polder::stream::StreamExt;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "four").await?;
    ///     let entry = fs::read_dir("/").await?.next().await.unwrap()?;
    ///     fs::write("/a", "longer").await?;
    ///     assert_eq!(entry.metadata().await?.len(), 6);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`metadata`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        metadata(&self.path).await
    }
}

/// Options for opening a file, like `std::fs::OpenOptions`.
///
/// ```
/// use polder::io::AsyncWriteExt;
/// use polder::sim::fs::{self, OpenOptions};
///
/// polder::sim::check(0..1, |sim| async move {
///     let mut log = OpenOptions::new().append(true).create(true).open("/log").await?;
///     log.write_all(b"one ").await?;
///     log.write_all(b"two").await?;
///     assert_eq!(fs::read("/log").await?, b"one two");
///     std::io::Result::Ok(())
/// });
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions(How);

impl OpenOptions {
    /// Returns options with none of them set.
    ///
    /// ```
    /// use polder::sim::fs::OpenOptions;
    /// use std::io::ErrorKind;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     // Neither to be read nor to be written.
    ///     let error = OpenOptions::new().open("/a").await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// });
    /// ```
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets whether the file is opened for reading.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::sim::fs::{self, OpenOptions};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "text").await?;
    ///     let mut file = OpenOptions::new().read(true).open("/a").await?;
    ///     let mut text = String::new();
    ///     assert_eq!(file.read_to_string(&mut text).await?, 4);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read = read;
        self
    }

    /// Sets whether the file is opened for writing. Its content is kept, and overwritten from the
    /// beginning.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::sim::fs::{self, OpenOptions};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "hello").await?;
    ///     let mut file = OpenOptions::new().write(true).open("/a").await?;
    ///     file.write_all(b"J").await?;
    ///     assert_eq!(fs::read("/a").await?, b"Jello");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write = write;
        self
    }

    /// Sets whether each write goes to the end of the file. Implies [`write`](Self::write).
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::sim::fs::{self, OpenOptions};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/log", "one").await?;
    ///     let mut log = OpenOptions::new().append(true).open("/log").await?;
    ///     log.write_all(b", two").await?;
    ///     assert_eq!(fs::read("/log").await?, b"one, two");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append = append;
        self
    }

    /// Sets whether an existing file is truncated to length zero.
    ///
    /// ```
    /// use polder::sim::fs::{self, OpenOptions};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "old").await?;
    ///     OpenOptions::new().write(true).truncate(true).open("/a").await?;
    ///     assert_eq!(fs::metadata("/a").await?.len(), 0);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate = truncate;
        self
    }

    /// Sets whether the file is created if it does not exist.
    ///
    /// ```
    /// use polder::sim::fs::OpenOptions;
    /// use std::io::ErrorKind;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     let error = OpenOptions::new().write(true).open("/a").await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::NotFound);
    ///     OpenOptions::new().write(true).create(true).open("/a").await?;
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create = create;
        self
    }

    /// Sets whether the file is created, and opening fails if the name exists. Both happen in one
    /// step, so only one of several processes succeeds.
    ///
    /// ```
    /// use polder::sim::fs::OpenOptions;
    /// use std::io::ErrorKind;
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     let mut lock = OpenOptions::new();
    ///     lock.write(true).create_new(true);
    ///     let _mine = lock.open("/lock").await?;
    ///     assert_eq!(lock.open("/lock").await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new = create_new;
        self
    }

    /// Opens a file with these options.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::sim::fs::{self, OpenOptions};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "hello").await?;
    ///     let mut file = OpenOptions::new().read(true).write(true).open("/a").await?;
    ///     let mut bytes = [0; 2];
    ///     file.read_exact(&mut bytes).await?;
    ///     assert_eq!(&bytes, b"he");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound), [`AlreadyExists`](io::ErrorKind::AlreadyExists),
    /// [`IsADirectory`](io::ErrorKind::IsADirectory) (a directory can be opened for reading only),
    /// those of [`Host::descriptors`](super::Host::descriptors), and [others](self);
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for combinations of options that `std::fs`
    /// refuses.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the file is neither created nor truncated, and no
    /// descriptor is used.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> impl Future<Output = io::Result<File>> + use<P> {
        let how = self.0;
        async move {
            how.check()?;
            let call = if how.changes() {
                Call::Write
            } else {
                Call::Read
            };
            let begun = wait(begin(call)).await?;
            Ok(File {
                file: begun.open(path.as_ref(), how)?,
                at: 0,
                under_way: None,
            })
        }
    }
}

/// An open file, or a directory, which can be synced.
///
/// It is read and written through the traits [`AsyncRead`], [`AsyncWrite`] and [`AsyncSeek`], at
/// its own position. These fail as read(2) and write(2) do: if it was not opened for that
/// (`EBADF`), with [`IsADirectory`](io::ErrorKind::IsADirectory),
/// [`StorageFull`](io::ErrorKind::StorageFull) and [`FileTooLarge`](io::ErrorKind::FileTooLarge),
/// at random, and with [others](self). It is closed when it is dropped, which syncs nothing.
/// [`Sim::forbid_leaks`](super::Sim::forbid_leaks) reports a file that is still open when its
/// process returns.
///
/// ```
/// use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
/// use polder::sim::fs::OpenOptions;
///
/// polder::sim::check(0..1, |sim| async move {
///     let mut options = OpenOptions::new();
///     let options = options.read(true).write(true).create(true);
///     let mut file = options.open("/a").await?;
///     file.write_all(b"hello").await?;
///     file.seek(SeekFrom::Start(1)).await?;
///     let mut rest = String::new();
///     file.read_to_string(&mut rest).await?;
///     assert_eq!(rest, "ello");
///     std::io::Result::Ok(())
/// });
/// ```
pub struct File {
    file: FileOfProcess,
    /// Position of the next read or write.
    at: u64,
    /// Read or write in progress. If its future is dropped, the next call of the same kind waits
    /// for the rest of its time.
    under_way: Option<(Begun, Sleep)>,
}

impl File {
    /// Opens a file for reading, or a directory, which can then be synced.
    ///
    /// ```
    /// use polder::io::AsyncReadExt;
    /// use polder::sim::fs::{self, File};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "text").await?;
    ///     let mut text = String::new();
    ///     File::open("/a").await?.read_to_string(&mut text).await?;
    ///     assert_eq!(text, "text");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`OpenOptions::open`].
    pub async fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Creates a file, or truncates an existing one, and opens it for writing.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::sim::fs::{self, File};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "something longer").await?;
    ///     File::create("/a").await?.write_all(b"new").await?;
    ///     assert_eq!(fs::read("/a").await?, b"new");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`OpenOptions::open`].
    pub async fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(path).await
    }

    /// Syncs everything written to the file so far, through any handle: its bytes and its length,
    /// but not its name. Syncs the names if it is a directory.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::sim::fs::{self, File};
    ///
    /// polder::sim::check(0..10, |sim| async move {
    ///     let store = sim.host("store").start(|| async {
    ///         let mut file = File::create("/log").await?;
    ///         file.write_all(b"entry").await?;
    ///         file.sync_all().await?;
    ///         File::open("/").await?.sync_all().await
    ///     });
    ///     store.finished().await;
    ///     store.power_off();
    ///     let store = sim.host("store").start(|| fs::read("/log"));
    ///     let log = store.finished().within(std::time::Duration::from_secs(1)).await;
    ///     assert_eq!(log.unwrap(), b"entry");
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// At random: see [`Disk::sync_errors`](super::Disk::sync_errors), which describes what is lost
    /// then and which handles report it; and [others](self).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it has synced nothing, and an error that an earlier sync has left
    /// is still to be reported.
    pub async fn sync_all(&self) -> io::Result<()> {
        let begun = self.file.begin(Call::Sync);
        let last = self.file.look(|disk| disk.begin_sync(self.file.number()))?;
        wait(begun).await?.finish_sync(&self.file, last)
    }

    /// The same as [`sync_all`](Self::sync_all): a simulated file has only bytes and a length, and
    /// fdatasync(2) syncs both.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::sim::fs::{self, File};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     let store = sim.host("store").start(|| async {
    ///         let mut file = File::create("/log").await?;
    ///         File::open("/").await?.sync_all().await?; // The name.
    ///         file.write_all(b"entry").await?;
    ///         file.sync_data().await
    ///     });
    ///     store.finished().await;
    ///     store.power_off();
    ///     let store = sim.host("store").start(|| fs::read("/log"));
    ///     let log = store.finished().within(std::time::Duration::from_secs(1)).await;
    ///     assert_eq!(log.unwrap(), b"entry");
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    ///
    /// That of [`sync_all`](Self::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync_all().await
    }

    /// Truncates the file to `len` bytes, or extends it with zeroes. The position for reads and
    /// writes does not change.
    ///
    /// ```
    /// use polder::sim::fs::{self, File};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     let file = File::create("/a").await?;
    ///     file.set_len(3).await?;
    ///     assert_eq!(fs::read("/a").await?, [0; 3]);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the file is not open for writing, or if
    /// `len` exceeds `i64::MAX`; and [others](self).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the length does not change.
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        let set = |disk: &mut Disk| disk.set_len(self.file.number(), len);
        call(self.file.begin(Call::Write), set).await
    }

    /// Returns the type and the length of the file, even after it was renamed or removed.
    ///
    /// ```
    /// use polder::sim::fs::{self, File};
    ///
    /// polder::sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "four").await?;
    ///     let file = File::open("/a").await?;
    ///     fs::remove_file("/a").await?;
    ///     assert_eq!(file.metadata().await?.len(), 4);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// At random: [`Disk::read_errors`](super::Disk::read_errors); and [others](self).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let meta = |disk: &mut Disk| disk.meta_of_open(self.file.number());
        call(self.file.begin(Call::Read), meta).await.map(Metadata)
    }

    /// Begins a call of an I/O trait, or continues it. Ready when the call is to be performed.
    fn poll_call(&mut self, call: Call, cx: &mut Context<'_>) -> Poll<io::Result<Begun>> {
        let (begun, mut sleep) = match self.under_way.take() {
            Some(it) if it.0.call == call => it,
            _ => {
                let begun = self.file.begin(call)?;
                (begun, sleep(begun.delay))
            }
        };
        if !begun.delay.is_zero() && Pin::new(&mut sleep).poll(cx).is_pending() {
            self.under_way = Some((begun, sleep));
            return Poll::Pending;
        }
        Poll::Ready(Ok(begun))
    }
}

impl AsyncRead for File {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let begun = ready!(self.poll_call(Call::Read, cx))?;
        let (number, at) = (self.file.number(), self.at);
        let len = begun.finish(|disk| disk.read(number, at, buffer))?;
        self.at += len as u64;
        Poll::Ready(Ok(len))
    }
}

impl AsyncWrite for File {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let begun = ready!(self.poll_call(Call::Write, cx))?;
        let (number, at) = (self.file.number(), self.at);
        let (len, end) = begun.finish(|disk| disk.write(number, at, bytes))?;
        self.at = end;
        Poll::Ready(Ok(len))
    }

    /// Does nothing: everything written is with the kernel.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: a file is closed when it is dropped.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for File {
    /// Takes no time. Seeking beyond the end is permitted: a write there leaves a hole.
    fn poll_seek(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        let number = self.file.number();
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.at, by),
            SeekFrom::End(by) => (self.file.look(|disk| disk.meta_of_open(number))?.len, by),
        };
        let at = base.checked_add_signed(by);
        let Some(at) = at.filter(|at| i64::try_from(*at).is_ok()) else {
            let words = "a file has no such place";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, words)));
        };
        self.at = at;
        Poll::Ready(Ok(at))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("at", &self.at).finish()
    }
}

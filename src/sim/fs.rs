//! Files of a simulated disk: what `async_fs` has, as far as a store needs it.
//!
//! Each host has a disk, which its processes share, and which outlives them. A program has either
//! one by a line:
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
//! * **[`Host::kill`](super::Host::kill) and every other end of a process:** all that was written.
//! * **[`Host::power_off`](super::Host::power_off):** what was synced. Of everything else chance
//!   decides, each time anew:
//!   * of a file's bytes, by sectors of 512: each as it was at the last sync or after any write
//!     since, whatever became of the others. So one write may be there in part (torn), and a later
//!     one without an earlier one;
//!   * the length: that of any moment since. Where it has grown and the bytes have not come, there
//!     are zeroes. A truncation may be lost like any change; where it is there, what it has cut off
//!     does not come back;
//!   * the names in a directory (made, removed, renamed): a prefix of what has changed since the
//!     directory was synced, in order. A rename is there as a whole or not at all.
//!
//! As fsync(2) says, to sync a file does not sync its name: that takes
//! `File::open(directory).await?.sync_all().await?`. A sync covers what was written before it
//! began.
//!
//! A loss at a power-off is a fault, by file and by directory: the report of a failure names those
//! that it needs.
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
//! Calls take a time, and fail if the test says so: [`Disk`](super::Disk). A call happens at the
//! end of its time, as a whole: who is killed before has changed nothing. **Cancel safety:** so it
//! is with a future that is dropped, and a `read` or `write` of a [`File`] that is dropped has read
//! or written nothing. (`write_all`, [`write()`] and [`create_dir_all`] make several calls.)
//!
//! Errors are those of Linux. Paths begin at `/`, also those that do not say so. There are no
//! links, no permissions, no times, and no limit but
//! [`Host::descriptors`](super::Host::descriptors) and [`Disk::capacity`](super::Disk::capacity);
//! a `/` or `.` at the end of a path means nothing; prefixes of Windows' paths are
//! [`InvalidInput`](io::ErrorKind::InvalidInput).
//!
//! Other than with `async_fs`, a write is with the kernel when it is done: flushing does nothing,
//! and a program that forgets it loses nothing here.
//!
//! # Errors
//!
//! Everything here gives [`Unsupported`](io::ErrorKind::Unsupported) on a thread that is in no
//! world, and of a [`File`] on another host than its own. The test itself has the disk of its own
//! host. Of a process that has ended it gives [`Other`](io::ErrorKind::Other).
//!
//! What is not synced is kept in memory until it is, each change of a directory's names by itself:
//! a world in which a million temporary files come and go takes as much as all of them.

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

use super::kernel::disk::{Disk, How, Meta};
use super::kernel::disk_calls::{Begun, Call, FileOfProcess, begin};
use crate::time::{Sleep, sleep};

/// Waits until a call is to be done.
async fn wait(begun: io::Result<Begun>) -> io::Result<Begun> {
    let begun = begun?;
    if !begun.delay.is_zero() {
        sleep(begun.delay).await;
    }
    Ok(begun)
}

async fn call<R>(call: Call, f: impl FnOnce(&mut Disk) -> io::Result<R>) -> io::Result<R> {
    wait(begin(call)).await?.finish(f)
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
/// [`OutOfMemory`](io::ErrorKind::OutOfMemory) if it is longer than a GiB (a hole may be), and
/// [others](self).
pub async fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let file = File::open(path).await?.file;
    let begun = wait(file.begin(Call::Read)).await?;
    begun.finish(|disk| disk.read_all(file.number()))
}

/// Reads a whole file of text.
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
/// Those of [`read`], and [`InvalidData`](io::ErrorKind::InvalidData) if it is no UTF-8.
pub async fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let bytes = read(path).await?;
    let invalid = |_| {
        let words = "stream did not contain valid UTF-8";
        io::Error::new(io::ErrorKind::InvalidData, words)
    };
    String::from_utf8(bytes).map_err(invalid)
}

/// Makes a file, or empties it, and writes this to it. Neither is synced; a crash in between leaves
/// the file empty.
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
pub async fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let file = File::create(path).await?.file;
    let (mut bytes, mut at) = (contents.as_ref(), 0);
    while !bytes.is_empty() {
        let begun = wait(file.begin(Call::Write)).await?;
        let (len, end) = begun.finish(|disk| disk.write(file.number(), at, bytes))?;
        (bytes, at) = (&bytes[len..], end);
    }
    Ok(())
}

/// Gives a file or directory another name, atomically: what had that name is replaced. A directory
/// replaces an empty one only. Durable when the directories of both names are [synced](self).
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
pub async fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let rename = |disk: &mut Disk| disk.rename(from.as_ref(), to.as_ref());
    call(Call::Write, rename).await
}

/// Removes a file. Who has it open reads and writes on.
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
pub async fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(Call::Write, |disk| disk.remove_file(path.as_ref())).await
}

/// Makes a directory.
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
pub async fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(Call::Write, |disk| disk.create_dir(path.as_ref())).await
}

/// Makes a directory, and those above it that are missing.
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
pub async fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    let mut missing = Vec::new();
    // As the standard library does: from below to the first that there is, and back.
    for dir in path.ancestors().filter(|it| !it.as_os_str().is_empty()) {
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

/// Makes a directory, unless there is one.
async fn make_dir(path: &Path) -> io::Result<()> {
    let make = |disk: &mut Disk| match disk.create_dir(path) {
        Err(_) if disk.meta(path).is_ok_and(|it| it.is_dir) => Ok(()),
        result => result,
    };
    call(Call::Write, make).await
}

/// Removes a directory, which is to be empty.
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
pub async fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(Call::Write, |disk| disk.remove_dir(path.as_ref())).await
}

/// Lists a directory, as it is at the end of the call, by name.
///
/// ```
/// use polder::sim::fs;
/// use polder::stream::StreamExt;
///
/// polder::sim::check(0..1, |sim| async move {
///     fs::create_dir("/b").await?;
///     fs::write("/a", "").await?;
///     let entries: Vec<_> = fs::read_dir("/").await?.try_collect().await?;
///     let names: Vec<_> = entries.iter().map(|it| it.file_name()).collect();
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
pub async fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let names = call(Call::Read, |disk| disk.read_dir(path)).await?;
    let entry = |(name, is_dir)| DirEntry {
        path: path.join(name),
        is_dir,
    };
    let entries: Vec<DirEntry> = names.into_iter().map(entry).collect();
    Ok(ReadDir(entries.into_iter()))
}

/// What a file or directory is, and how long.
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
pub async fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let meta = call(Call::Read, |disk| disk.meta(path.as_ref())).await?;
    Ok(Metadata(meta))
}

/// What is said of a file or directory: of [`metadata`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata(Meta);

impl Metadata {
    /// The length of a file, in bytes. Of a directory, zero.
    #[allow(clippy::len_without_is_empty)] // As the standard library's.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        !self.0.is_dir
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.is_dir
    }

    /// Which of these it is.
    pub fn file_type(&self) -> FileType {
        FileType {
            is_dir: self.0.is_dir,
        }
    }
}

/// A file or a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileType {
    is_dir: bool,
}

impl FileType {
    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        !self.is_dir
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.is_dir
    }

    /// Whether it is a link, of which there are none.
    pub fn is_symlink(&self) -> bool {
        false
    }
}

/// A stream of what a directory has, by name: of [`read_dir`].
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

/// What a directory has: of [`read_dir`].
#[derive(Clone, Debug)]
pub struct DirEntry {
    path: PathBuf,
    is_dir: bool,
}

impl DirEntry {
    /// Its path: that which [`read_dir`] was given, and its name.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Its name.
    pub fn file_name(&self) -> OsString {
        let name = self.path.file_name().expect("a name was joined");
        name.to_owned()
    }

    /// What it was when the directory was read. Takes no time, and does not fail.
    pub async fn file_type(&self) -> io::Result<FileType> {
        let is_dir = self.is_dir;
        Ok(FileType { is_dir })
    }

    /// What is there now.
    ///
    /// # Errors
    ///
    /// Those of [`metadata`].
    pub async fn metadata(&self) -> io::Result<Metadata> {
        metadata(&self.path).await
    }
}

/// How a file is to be opened, as `std::fs::OpenOptions`.
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
    /// Nothing is set.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// It can be read.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read = read;
        self
    }

    /// It can be written.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write = write;
        self
    }

    /// It can be written, at its end.
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append = append;
        self
    }

    /// What it holds is cut off.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate = truncate;
        self
    }

    /// It is made if there is none.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create = create;
        self
    }

    /// It is made, and there is to be none: that is decided at one moment.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new = create_new;
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound), [`AlreadyExists`](io::ErrorKind::AlreadyExists),
    /// [`IsADirectory`](io::ErrorKind::IsADirectory) (to read, a directory can be opened), those of
    /// [`Host::descriptors`](super::Host::descriptors), and [others](self);
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) where `std::fs` refuses what was set.
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

/// A file that is open, or a directory, which can be synced.
///
/// It reads and writes by the traits [`AsyncRead`], [`AsyncWrite`] and [`AsyncSeek`], at its own
/// place. That fails as read(2) and write(2) do: where it was not opened so (`EBADF`), with
/// [`IsADirectory`](io::ErrorKind::IsADirectory), [`StorageFull`](io::ErrorKind::StorageFull) and
/// [`FileTooLarge`](io::ErrorKind::FileTooLarge), by chance, and with [others](self). Closed when
/// it is dropped, which syncs nothing. One that is still open when its process returns is a leak
/// for [`Sim::forbid_leaks`](super::Sim::forbid_leaks).
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
    /// Where it reads and writes next.
    at: u64,
    /// A read or write that has begun. Who drops its future and calls again waits for what is left
    /// of its time.
    under_way: Option<(Begun, Sleep)>,
}

impl File {
    /// Opens a file to be read; or a directory, to be synced.
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`].
    pub async fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file to be written, which is made, or emptied.
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`].
    pub async fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(path).await
    }

    /// Syncs what was written to the file until now, by whomever, with its length, but not its
    /// name; or the names in a directory.
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
    /// By chance: [`Disk::sync_errors`](super::Disk::sync_errors), which says what is lost then,
    /// and who is told; and [others](self).
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, nothing is known to be synced.
    pub async fn sync_all(&self) -> io::Result<()> {
        let begun = self.file.begin(Call::Sync);
        let last = self.file.look(|disk| disk.begin_sync(self.file.number()))?;
        wait(begun).await?.finish_sync(&self.file, last)
    }

    /// The same as [`sync_all`](Self::sync_all): a file has nothing here but bytes and a length,
    /// which fdatasync(2) syncs too.
    ///
    /// # Errors
    ///
    /// Those of [`sync_all`](Self::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync_all().await
    }

    /// Cuts the file off there, or has it end with zeroes. The place where it reads and writes
    /// stays.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if it was not opened to be written, or if that
    /// is more than `i64::MAX`; and [others](self).
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        let begun = wait(self.file.begin(Call::Write)).await?;
        begun.finish(|disk| disk.set_len(self.file.number(), len))
    }

    /// What it is, and how long.
    ///
    /// # Errors
    ///
    /// By chance: [`Disk::read_errors`](super::Disk::read_errors); and [others](self).
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let begun = wait(self.file.begin(Call::Read)).await?;
        let meta = begun.finish(|disk| disk.meta_of_open(self.file.number()))?;
        Ok(Metadata(meta))
    }

    /// A call of the traits for I/O, which is to be done when this is ready.
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

    /// Does nothing: what was written is with the kernel.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: a file is closed when it is dropped.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for File {
    /// Takes no time. Beyond the end is permitted: a write there leaves a hole.
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
        let Some(at) = at.filter(|it| i64::try_from(*it).is_ok()) else {
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

//! Files and directories, with the names of async-fs, on polder's thread pool or on the disk of a
//! [simulated](https://docs.rs/polder-sim) host.
//!
//! ```
//! use polder::fs;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # polder::block_on(async {
//! let path = folder.path().join("greeting");
//! fs::write(&path, "hello").await?;
//! assert_eq!(fs::read_to_string(&path).await?, "hello");
//! # std::io::Result::Ok(()) }).unwrap();
//! ```
//!
//! # Threads
//!
//! A kernel reports files as always ready, so a poller cannot wait for them. Linux 5.12 and later
//! can be asked not to block, and then serves what is in memory: [`read`] of a file of less than
//! 256 KiB, [`metadata()`], opening a file for reading, reads and seeks of an open [`File`], and
//! writes on tmpfs. The task's own thread makes these calls, at nearly the cost of `std::fs`. The
//! first open on each file system is made by a pool thread, which finds out its type; until then
//! `metadata` uses the pool, too. A program that answers permission events of fanotify(7) in a task
//! has to set `POLDER_FS=pool`.
//!
//! All other calls run on the thread pool of [`unblock`](crate::unblock), which costs more than
//! most of the calls themselves. A task that makes several calls in a row is faster with one
//! `unblock` around `std::fs`. [`read`], [`write()`], [`copy`] and [`remove_dir_all`] are one job
//! each. Wrap a [`File`] that is written in small pieces in a [`BufWriter`](crate::io::BufWriter),
//! and, except on Linux, one that is read in small pieces in a [`BufReader`](crate::io::BufReader).
//!
//! The environment variable `POLDER_FS` is `cached` (the default, as above) or `pool` (threads make
//! all calls).
//!
//! The future of a call owns the caller's path, and the contents for [`write()`], so it is `Send`
//! if these are.
//!
//! # Platforms
//!
//! Linux serves calls from memory on ext4, XFS, Btrfs, F2FS, bcachefs, ZFS, EROFS, SquashFS, JFS,
//! FAT, tmpfs and ramfs; some of these refuse some calls. Threads make all calls on other file
//! systems (overlayfs, which most containers use, refuses; FUSE, NFS and 9P ask another process or
//! machine), open devices and FIFOs, and make the calls in a sandbox that refuses openat2(2) or
//! preadv2(2), and on other systems.
//!
//! # Errors
//!
//! The errors of the function of the same name in `std::fs`; an error if there is no thread and
//! none can be started; and [`InvalidInput`](io::ErrorKind::InvalidInput) if `POLDER_FS` has an
//! unknown value.
//!
//! # Cancel safety
//!
//! A call is not made if its future is dropped before a thread has begun it. Otherwise it runs to
//! its end, and its result is lost. Functions that make several calls document the consequences,
//! and [`File`] those of a dropped read or write.
//!
//! # In a simulated world
//!
//! The program uses the disk of its simulated host; `polder_sim::Disk` describes what survives a
//! crash, and which faults there are. Calls take time and are atomic: a future that is dropped, or
//! a process that is killed, before that time is over has changed nothing. Paths are relative to
//! `/`. There are no links, times or permissions: calls that need them fail with
//! [`Unsupported`](io::ErrorKind::Unsupported), and modes and flags of options are ignored. Other
//! errors are those of Linux. The descriptor that a file lends is a placeholder. The module `unix`
//! describes `MetadataExt`.

// Miri supports none of these calls.
#[cfg(all(target_os = "linux", not(miri)))]
mod cached;
#[cfg(not(all(target_os = "linux", not(miri))))]
#[path = "not_cached.rs"]
mod cached;
mod dir;
mod file;
mod metadata;
mod system;
#[cfg(unix)]
pub mod unix;
#[cfg(windows)]
pub mod windows;

use std::io;
use std::path::{Path, PathBuf};

pub use self::dir::{DirBuilder, DirEntry, ReadDir};
pub use self::file::{File, OpenOptions};
pub use self::metadata::{FileType, Metadata, Permissions};
#[cfg(unix)]
use self::unix as platform;
#[cfg(unix)]
pub use self::unix::symlink;
#[cfg(windows)]
use self::windows as platform;
#[cfg(windows)]
pub use self::windows::{symlink_dir, symlink_file};
use crate::kernel;
use crate::kernel::files::Files;

/// Returns the files of an installed kernel, or `None` for the system's.
#[inline]
fn files() -> Option<&'static dyn Files> {
    kernel::current()?.files()
}

/// Calls `f`, which only the system has, on a thread. Fails in a simulated world.
async fn call_system<R: Send + 'static>(
    what: &str,
    f: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    kernel::permit(what)?;
    system::on_thread(f).await
}

/// Calls `f` with two paths on a thread. Fails in a simulated world.
async fn link<P: AsRef<Path>, Q: AsRef<Path>>(
    original: P,
    link: Q,
    f: fn(PathBuf, PathBuf) -> io::Result<()>,
) -> io::Result<()> {
    let (original, link) = (original.as_ref().to_owned(), link.as_ref().to_owned());
    call_system("a link", move || f(original, link)).await
}

/// Returns the absolute path, with links, `.` and `..` resolved.
///
/// ```
/// # polder::block_on(async {
/// let path = polder::fs::canonicalize("src/../Cargo.toml").await?;
/// assert!(path.is_absolute() && path.ends_with("Cargo.toml"));
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), and [others](self#errors).
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.canonicalize(path).await;
    }
    system::on_thread(|| std::fs::canonicalize(path)).await
}

/// Copies the bytes and the permissions of a file to another one, which is created or replaced.
/// Returns the number of bytes. Nothing is synced.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
/// fs::write(&from, "four").await?;
/// assert_eq!(fs::copy(&from, &to).await?, 4);
/// assert_eq!(fs::read(&to).await?, b"four");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), and [others](self#errors).
///
/// # Cancel safety
///
/// Not cancel safe: if the future is dropped, any part may have been copied.
pub async fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    if let Some(files) = files() {
        return files.copy(from, to).await;
    }
    system::on_thread(|| std::fs::copy(from, to)).await
}

/// Creates a directory.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("data");
/// fs::create_dir(&path).await?;
/// assert!(fs::metadata(&path).await?.is_dir());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), [`NotFound`](io::ErrorKind::NotFound) if its
/// parent is missing, and [others](self#errors).
///
/// # Cancel safety
///
/// [As others](self#cancel-safety).
pub async fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path).await
}

/// Creates a directory and its missing parents.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("a/b/c");
/// fs::create_dir_all(&path).await?;
/// fs::create_dir_all(&path).await?; // It may exist.
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists) or
/// [`NotADirectory`](io::ErrorKind::NotADirectory) if a file is in the way, and
/// [others](self#errors).
///
/// # Cancel safety
///
/// If the future is dropped, some of the directories may have been created. A repeated call creates
/// the others.
pub async fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path).await
}

/// Creates `link` as another name of a file.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
/// fs::write(&one, "text").await?;
/// fs::hard_link(&one, &other).await?;
/// assert_eq!(fs::read(&other).await?, b"text");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), and [others](self#errors).
///
/// # Cancel safety
///
/// [As others](self#cancel-safety).
pub async fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    self::link(original, link, std::fs::hard_link).await
}

/// Returns the metadata of a file or directory, following symbolic links.
///
/// ```
/// # polder::block_on(async {
/// let metadata = polder::fs::metadata("Cargo.toml").await?;
/// assert!(metadata.is_file() && metadata.len() > 0);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), and [others](self#errors).
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.metadata(path, true).await.map(Metadata);
    }
    if let Some(found) = system::without_thread(|| cached::metadata(&path)).await? {
        return Ok(Metadata::of_system(found));
    }
    system::on_thread(|| std::fs::metadata(path).map(Metadata::of_system)).await
}

/// Reads a whole file.
///
/// ```
/// # polder::block_on(async {
/// let bytes = polder::fs::read("Cargo.toml").await?;
/// assert!(bytes.starts_with(b"[package]"));
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`IsADirectory`](io::ErrorKind::IsADirectory) (Windows:
/// [`PermissionDenied`](io::ErrorKind::PermissionDenied)), and [others](self#errors). In a
/// simulated world [`OutOfMemory`](io::ErrorKind::OutOfMemory) if the file is longer than 1 GiB, as
/// a sparse one may be.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.read(path).await;
    }
    if let Some(bytes) = system::without_thread(|| cached::read(&path)).await? {
        return Ok(bytes);
    }
    system::on_thread(|| system::read(path)).await
}

/// Lists a directory; a simulated one is sorted by name.
///
/// ```
/// use polder::fs;
/// use polder::stream::StreamExt;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// fs::write(folder.path().join("only"), "").await?;
/// let mut entries = fs::read_dir(&folder).await?;
/// let entry = entries.next().await.unwrap()?;
/// assert_eq!(entry.file_name(), "only");
/// assert!(entries.next().await.is_none());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotADirectory`](io::ErrorKind::NotADirectory), [`NotFound`](io::ErrorKind::NotFound), and
/// [others](self#errors). Items of the stream may be errors, too.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        let entries = files.read_dir(path.clone()).await?;
        return Ok(ReadDir::from_entries(&path, entries));
    }
    system::on_thread(|| std::fs::read_dir(path).map(ReadDir::of_system)).await
}

/// Returns the target of a symbolic link.
///
/// ```
/// # polder::block_on(async {
/// assert!(polder::fs::read_link("Cargo.toml").await.is_err()); // It is a file.
/// # })
/// ```
///
/// # Errors
///
/// [`InvalidInput`](io::ErrorKind::InvalidInput) (Unix) if it is no link, and
/// [others](self#errors).
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    call_system("a link", || std::fs::read_link(path)).await
}

/// Reads a whole file as text.
///
/// ```
/// # polder::block_on(async {
/// let text = polder::fs::read_to_string("Cargo.toml").await?;
/// assert_eq!(text.lines().next(), Some("[package]"));
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of [`read`], and [`InvalidData`](io::ErrorKind::InvalidData) if it is not valid UTF-8.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let words = "stream did not contain valid UTF-8";
    let text = String::from_utf8(read(path).await?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, words))
}

/// Removes an empty directory.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("data");
/// fs::create_dir(&path).await?;
/// fs::remove_dir(&path).await?;
/// assert!(fs::metadata(&path).await.is_err());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`DirectoryNotEmpty`](io::ErrorKind::DirectoryNotEmpty),
/// [`NotADirectory`](io::ErrorKind::NotADirectory), [`NotFound`](io::ErrorKind::NotFound), and
/// [others](self#errors).
///
/// # Cancel safety
///
/// [As others](self#cancel-safety).
pub async fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.remove_dir(path, false).await;
    }
    system::on_thread(|| std::fs::remove_dir(path)).await
}

/// Removes a directory with its content. Symbolic links are removed, not followed.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("data");
/// fs::create_dir_all(path.join("a/b")).await?;
/// fs::write(path.join("file"), "text").await?;
/// fs::remove_dir_all(&path).await?;
/// assert!(fs::metadata(&path).await.is_err());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of [`remove_dir`] and [`remove_file`]. A part may have been removed.
///
/// # Cancel safety
///
/// Not cancel safe: if the future is dropped, any part may have been removed.
pub async fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.remove_dir(path, true).await;
    }
    system::on_thread(|| std::fs::remove_dir_all(path)).await
}

/// Removes a file. On Unix, open handles can still read and write it.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("file");
/// fs::write(&path, "text").await?;
/// fs::remove_file(&path).await?;
/// assert!(fs::remove_file(&path).await.is_err());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`IsADirectory`](io::ErrorKind::IsADirectory) (Linux),
/// and [others](self#errors).
///
/// # Cancel safety
///
/// [As others](self#cancel-safety).
pub async fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.remove_file(path).await;
    }
    system::on_thread(|| std::fs::remove_file(path)).await
}

/// Renames a file or directory, atomically within one file system. A file of the new name is
/// replaced; on Unix an empty directory is, too, by a directory. The rename survives a power
/// failure once the directories of both names are synced: see [`File::sync_all`].
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let [new, value] = ["new", "value"].map(|name| folder.path().join(name));
/// fs::write(&value, "1").await?;
/// fs::write(&new, "2").await?;
/// fs::rename(&new, &value).await?;
/// assert_eq!(fs::read(&value).await?, b"2");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`CrossesDevices`](io::ErrorKind::CrossesDevices), and
/// [others](self#errors).
///
/// # Cancel safety
///
/// [As others](self#cancel-safety).
pub async fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    if let Some(files) = files() {
        return files.rename(from, to).await;
    }
    system::on_thread(|| std::fs::rename(from, to)).await
}

/// Sets the permissions of a file or directory.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("file");
/// fs::write(&path, "text").await?;
/// let mut permissions = fs::metadata(&path).await?.permissions();
/// permissions.set_readonly(true);
/// fs::set_permissions(&path, permissions).await?;
/// assert!(fs::metadata(&path).await?.permissions().readonly());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound),
/// [`PermissionDenied`](io::ErrorKind::PermissionDenied), and [others](self#errors).
///
/// # Cancel safety
///
/// [As others](self#cancel-safety).
pub async fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    call_system("a file's permissions", move || {
        let current = || Ok(std::fs::metadata(&path)?.permissions());
        std::fs::set_permissions(&path, platform::permissions(&permissions, current)?)
    })
    .await
}

/// [`metadata()`] that does not follow a symbolic link.
///
/// ```
/// # polder::block_on(async {
/// let metadata = polder::fs::symlink_metadata("Cargo.toml").await?;
/// assert!(!metadata.is_symlink());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of [`metadata()`].
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.metadata(path, false).await.map(Metadata);
    }
    system::on_thread(|| std::fs::symlink_metadata(path).map(Metadata::of_system)).await
}

/// Returns whether a path exists.
///
/// ```
/// # polder::block_on(async {
/// assert!(polder::fs::try_exists("Cargo.toml").await?);
/// assert!(!polder::fs::try_exists("Cargo.tom").await?);
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of [`metadata()`] other than [`NotFound`](io::ErrorKind::NotFound).
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn try_exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    match metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates or truncates a file, and writes `contents` to it. Nothing is synced: after a power
/// failure the file may be empty.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("file");
/// fs::write(&path, "longer").await?;
/// fs::write(&path, b"short").await?;
/// assert_eq!(fs::read(&path).await?, b"short");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of [`File::create`], [`StorageFull`](io::ErrorKind::StorageFull), and
/// [others](self#errors).
///
/// # Cancel safety
///
/// Not cancel safe: if the future is dropped, the file may have been created or truncated, and any
/// prefix may have been written.
pub async fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref().to_owned(), contents.as_ref().to_owned());
    if let Some(files) = files() {
        return files.write(path, contents).await;
    }
    system::on_thread(|| std::fs::write(path, contents)).await
}

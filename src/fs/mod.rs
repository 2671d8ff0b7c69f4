//! Files and directories, with the names of the crate async-fs, on polder's own pool of threads, or
//! on the disk of a [simulated](https://docs.rs/polder-sim) host.
//!
//! ```
//! use polder::fs;
//!
//! # let folder = tempfile::tempdir()?;
//! # polder::block_on(async {
//! let path = folder.path().join("greeting");
//! fs::write(&path, "hello").await?;
//! assert_eq!(fs::read_to_string(&path).await?, "hello");
//! # std::io::Result::Ok(())
//! # })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # Threads
//!
//! A kernel reports files as always ready, so they cannot be waited for. But Linux, from 5.12 on,
//! can be asked not to wait, and then serves what it has in memory: [`read`] of a file of less than
//! 256 KiB, [`metadata`], opening a file for reading, reads of an open [`File`], its seeks, and on
//! tmpfs its writes. The task's own thread makes these calls, which takes little longer than with
//! `std::fs`. (The first file of each file system is opened by a thread, to learn its kind; until
//! then `metadata` is asked for by threads, too. A program that answers permission events of
//! fanotify(7) in a task sets `POLDER_FS=pool`.)
//!
//! Each other call is made by a thread of the pool of [`unblock`](crate::unblock), which costs more
//! than most calls themselves: where a task makes several calls in a row and does not wait for
//! anything else between them, one `unblock` with `std::fs` in it is faster. [`read`], [`write()`],
//! [`copy`] and [`remove_dir_all`] do a whole job on one thread. A [`File`] that is written in
//! small pieces belongs in a [`BufWriter`](crate::io::BufWriter), and elsewhere than on Linux one
//! that is read in small pieces in a [`BufReader`](crate::io::BufReader).
//!
//! With the environment variable `POLDER_FS=pool` threads make all calls; the default is `cached`,
//! which means as above.
//!
//! The future of a call has the caller's path, and the caller's contents for [`write()`], until it
//! ends. So it is `Send` if their types are.
//!
//! # Platforms
//!
//! Linux is asked on ext4, XFS, Btrfs, F2FS, bcachefs, ZFS, EROFS, SquashFS, JFS, FAT, tmpfs and
//! ramfs. Some of them refuse, as would overlayfs, which most directories of a container are on.
//! Others get their files from another process or machine (FUSE, NFS, 9P, …), and a device or a
//! FIFO may wait for long when it is opened. There, and in a sandbox that refuses openat2(2) or
//! preadv2(2), threads make the calls, as on other systems.
//!
//! # Errors
//!
//! Those of the function of the same name in `std::fs`; if there is no thread and none can be
//! started; and [`InvalidInput`](io::ErrorKind::InvalidInput) if `POLDER_FS` has an unknown value.
//!
//! # Cancel safety
//!
//! If the future of a call is dropped before a thread has begun it, the call is not made. After
//! that it runs to its end, and its result is lost. A function says so where it makes several
//! calls, and [`File`] says what a dropped read or write leaves behind.
//!
//! # In a simulated world
//!
//! The same program uses the disk of its host: see `polder_sim::Disk` for what
//! survives a crash and which faults there are. Calls take time there, and happen as a whole or not
//! at all: if the future is dropped, or the process is killed, before that time is over, nothing
//! has changed. Paths begin at `/`, even where they are written without it. There are no links, no
//! times and no permissions: the calls that make or read links or set permissions, and those that
//! return times, fail with [`Unsupported`](io::ErrorKind::Unsupported); modes and flags of options
//! are ignored. Other errors are those of Linux. A file lends a placeholder of a descriptor. What
//! `MetadataExt` tells there is described in the module `unix`.

// Miri knows none of these calls.
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

/// Returns the files of this thread's kernel. `None`: the system's.
#[inline]
fn files() -> Option<&'static dyn Files> {
    kernel::current()?.files()
}

/// Has a thread call `f`, for what only the system has. In a simulated world it fails.
async fn call_system<R: Send + 'static>(
    what: &str,
    f: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    kernel::permit(what)?;
    system::on_thread(f).await
}

/// Has a thread call `f` with two paths of the system. In a simulated world it fails.
async fn link<P: AsRef<Path>, Q: AsRef<Path>>(
    original: P,
    link: Q,
    f: fn(PathBuf, PathBuf) -> io::Result<()>,
) -> io::Result<()> {
    let (original, link) = (original.as_ref().to_owned(), link.as_ref().to_owned());
    call_system("a link", move || f(original, link)).await
}

/// Returns the absolute path without links, `.` and `..`.
///
/// ```
/// # polder::block_on(async {
/// let path = polder::fs::canonicalize("src/../Cargo.toml").await?;
/// assert!(path.is_absolute() && path.ends_with("Cargo.toml"));
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
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

/// Copies the bytes of a file, and its permissions, to another one, which is created or replaced.
/// Returns how many bytes were copied. Nothing is synced.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
/// fs::write(&from, "four").await?;
/// assert_eq!(fs::copy(&from, &to).await?, 4);
/// assert_eq!(fs::read(&to).await?, b"four");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
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
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let path = folder.path().join("data");
/// fs::create_dir(&path).await?;
/// assert!(fs::metadata(&path).await?.is_dir());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), [`NotFound`](io::ErrorKind::NotFound) if its
/// parent is missing, and [others](self#errors).
///
/// # Cancel safety
///
/// [As the others](self#cancel-safety).
pub async fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path).await
}

/// Creates a directory, and any missing parents.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let path = folder.path().join("a/b/c");
/// fs::create_dir_all(&path).await?;
/// fs::create_dir_all(&path).await?; // It may exist.
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
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
/// If the future is dropped, some of the directories may have been created. Calling it again
/// creates the others.
pub async fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path).await
}

/// Gives a file another name, `link`.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
/// fs::write(&one, "text").await?;
/// fs::hard_link(&one, &other).await?;
/// assert_eq!(fs::read(&other).await?, b"text");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), and [others](self#errors).
///
/// # Cancel safety
///
/// [As the others](self#cancel-safety).
pub async fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    self::link(original, link, std::fs::hard_link).await
}

/// Returns the type, the length and more of a file or directory, or of what a symbolic link leads
/// to.
///
/// ```
/// # polder::block_on(async {
/// let metadata = polder::fs::metadata("Cargo.toml").await?;
/// assert!(metadata.is_file() && metadata.len() > 0);
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
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
    if let Some(found) = system::here(|| cached::metadata(&path)).await? {
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
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`IsADirectory`](io::ErrorKind::IsADirectory) (Windows:
/// [`PermissionDenied`](io::ErrorKind::PermissionDenied)), and [others](self#errors). In a
/// simulated world [`OutOfMemory`](io::ErrorKind::OutOfMemory) if the file is longer than a GiB,
/// which a hole may be.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.read(path).await;
    }
    if let Some(bytes) = system::here(|| cached::read(&path)).await? {
        return Ok(bytes);
    }
    system::on_thread(|| system::read(path)).await
}

/// Lists a directory. (A simulated one is sorted by name.)
///
/// ```
/// use polder::fs;
/// use polder::stream::StreamExt;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// fs::write(folder.path().join("only"), "").await?;
/// let mut entries = fs::read_dir(&folder).await?;
/// let entry = entries.next().await.unwrap()?;
/// assert_eq!(entry.file_name(), "only");
/// assert!(entries.next().await.is_none());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`NotADirectory`](io::ErrorKind::NotADirectory), [`NotFound`](io::ErrorKind::NotFound), and
/// [others](self#errors). The stream may fail later, too.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future has no effect.
pub async fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        let entries = files.read_dir(path.clone()).await?;
        return Ok(ReadDir::of_kernel(&path, entries));
    }
    system::on_thread(|| std::fs::read_dir(path).map(ReadDir::of_system)).await
}

/// Returns where a symbolic link leads to.
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
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
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
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let path = folder.path().join("data");
/// fs::create_dir(&path).await?;
/// fs::remove_dir(&path).await?;
/// assert!(fs::metadata(&path).await.is_err());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
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
/// [As the others](self#cancel-safety).
pub async fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.remove_dir(path, false).await;
    }
    system::on_thread(|| std::fs::remove_dir(path)).await
}

/// Removes a directory with everything in it. Symbolic links are removed, and not followed.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let path = folder.path().join("data");
/// fs::create_dir_all(path.join("a/b")).await?;
/// fs::write(path.join("file"), "text").await?;
/// fs::remove_dir_all(&path).await?;
/// assert!(fs::metadata(&path).await.is_err());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// Those of [`remove_dir`] and [`remove_file`]. Then a part may have been removed.
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

/// Removes a file. Open handles can still read and write it (on Unix).
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let path = folder.path().join("file");
/// fs::write(&path, "text").await?;
/// fs::remove_file(&path).await?;
/// assert!(fs::remove_file(&path).await.is_err());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`IsADirectory`](io::ErrorKind::IsADirectory) (Linux),
/// and [others](self#errors).
///
/// # Cancel safety
///
/// [As the others](self#cancel-safety).
pub async fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    if let Some(files) = files() {
        return files.remove_file(path).await;
    }
    system::on_thread(|| std::fs::remove_file(path)).await
}

/// Renames a file or directory, atomically where both names are on one file system. A file with the
/// new name is replaced; on Unix so is an empty directory by a directory. After a power-off the
/// rename is there if the directories of both names were synced: [`File::sync_all`] has an example.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let [new, value] = ["new", "value"].map(|name| folder.path().join(name));
/// fs::write(&value, "1").await?;
/// fs::write(&new, "2").await?;
/// fs::rename(&new, &value).await?;
/// assert_eq!(fs::read(&value).await?, b"2");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound), [`CrossesDevices`](io::ErrorKind::CrossesDevices), and
/// [others](self#errors).
///
/// # Cancel safety
///
/// [As the others](self#cancel-safety).
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
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let path = folder.path().join("file");
/// fs::write(&path, "text").await?;
/// let mut permissions = fs::metadata(&path).await?.permissions();
/// permissions.set_readonly(true);
/// fs::set_permissions(&path, permissions).await?;
/// assert!(fs::metadata(&path).await?.permissions().readonly());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// [`NotFound`](io::ErrorKind::NotFound),
/// [`PermissionDenied`](io::ErrorKind::PermissionDenied), and [others](self#errors).
///
/// # Cancel safety
///
/// [As the others](self#cancel-safety).
pub async fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    call_system("a file's permissions", move || {
        let current = || Ok(std::fs::metadata(&path)?.permissions());
        std::fs::set_permissions(&path, platform::permissions(&permissions, current)?)
    })
    .await
}

/// [`metadata`], but of a symbolic link itself.
///
/// ```
/// # polder::block_on(async {
/// let metadata = polder::fs::symlink_metadata("Cargo.toml").await?;
/// assert!(!metadata.is_symlink());
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// Those of [`metadata`].
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
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// Those of [`metadata`] other than [`NotFound`](io::ErrorKind::NotFound).
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

/// Creates or truncates a file, and writes `contents` to it. Nothing is synced: a power-off may
/// leave the file empty.
///
/// ```
/// use polder::fs;
///
/// # let folder = tempfile::tempdir()?;
/// # polder::block_on(async {
/// let path = folder.path().join("file");
/// fs::write(&path, "longer").await?;
/// fs::write(&path, b"short").await?;
/// assert_eq!(fs::read(&path).await?, b"short");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
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
/// number of the first bytes may have been written.
pub async fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref().to_owned(), contents.as_ref().to_owned());
    if let Some(files) = files() {
        return files.write(path, contents).await;
    }
    system::on_thread(|| std::fs::write(path, contents)).await
}

//! Directories: [`DirBuilder`], and the stream [`ReadDir`] of their entries.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::vec;

use futures_lite::Stream;

use super::system::{Batches, on_thread};
use super::{FileType, Metadata, symlink_metadata};
use crate::blocking::Unblock;
use crate::kernel::files;

/// Options for creating a directory.
///
/// ```
/// use polder::fs::DirBuilder;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// DirBuilder::new().recursive(true).create(folder.path().join("a/b")).await?;
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct DirBuilder {
    pub(super) recursive: bool,
    #[cfg(unix)]
    pub(super) mode: Option<u32>,
}

impl DirBuilder {
    /// Returns the options of [`create_dir`](super::create_dir).
    ///
    /// ```
    /// let builder = polder::fs::DirBuilder::new();
    /// ```
    pub fn new() -> DirBuilder {
        DirBuilder::default()
    }

    /// Sets whether missing parents are created, and the directory may exist.
    ///
    /// ```
    /// use polder::fs::DirBuilder;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// DirBuilder::new().recursive(true).create(&folder).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.recursive = recursive;
        self
    }

    /// Sets the mode, before the umask is applied. The default is 0o777.
    ///
    /// ```
    /// use polder::fs::{self, DirBuilder};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("private");
    /// DirBuilder::new().mode(0o700).create(&path).await?;
    /// assert_eq!(fs::metadata(&path).await?.permissions().mode() & 0o777, 0o700);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[cfg(unix)]
    pub fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.mode = Some(mode);
        self
    }

    /// Creates a directory.
    ///
    /// ```
    /// use polder::fs::DirBuilder;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// DirBuilder::new().create(folder.path().join("a")).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create_dir`](super::create_dir) and [`create_dir_all`](super::create_dir_all).
    ///
    /// # Cancel safety
    ///
    /// As those functions.
    pub fn create<P: AsRef<Path>>(&self, path: P) -> impl Future<Output = io::Result<()>> + use<P> {
        let builder = self.clone();
        async move {
            // Keeps the caller's path: see `OpenOptions::open`.
            let copy = path.as_ref().to_owned();
            if let Some(files) = super::files() {
                return files.create_dir(copy, builder.recursive).await;
            }
            on_thread(move || builder.to_system().create(copy)).await
        }
    }
}

/// A stream of the entries of a directory, returned by [`read_dir`](super::read_dir).
///
/// ```
/// use polder::fs;
/// use polder::stream::StreamExt;
///
/// # polder::block_on(async {
/// let mut entries = fs::read_dir("src").await?;
/// while let Some(entry) = entries.next().await {
///     println!("{}", entry?.path().display());
/// }
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// An item is an error if the system fails to read entries, or if there is no thread and none can
/// be started.
///
/// # Cancel safety
///
/// Cancel safe: if `next()` is dropped, no entry is lost.
#[must_use = "it reads only while it is polled"]
pub struct ReadDir {
    /// Entries that were read; of a kernel's directory all of them.
    pub(super) entries: vec::IntoIter<io::Result<DirEntry>>,
    /// The rest of a directory of the system, until its end or an error.
    pub(super) rest: Option<Unblock<Batches>>,
}

impl ReadDir {
    /// Creates the stream from the entries that a kernel has found.
    pub(super) fn from_entries(path: &Path, entries: Vec<files::DirEntry>) -> ReadDir {
        let entry = |entry: files::DirEntry| {
            Ok(DirEntry {
                path: path.join(entry.name),
                file_type: entry.file_type.map(FileType),
                #[cfg(unix)]
                ino: entry.ino,
            })
        };
        let entries: Vec<_> = entries.into_iter().map(entry).collect();
        ReadDir {
            entries: entries.into_iter(),
            rest: None,
        }
    }
}

impl Stream for ReadDir {
    type Item = io::Result<DirEntry>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<DirEntry>>> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Poll::Ready(Some(entry));
            }
            let Some(rest) = &mut self.rest else {
                return Poll::Ready(None);
            };
            match ready!(rest.poll_item(cx)) {
                Ok(Some(batch)) => self.entries = batch.into_iter(),
                Ok(None) => self.rest = None,
                Err(error) => {
                    self.rest = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").finish_non_exhaustive()
    }
}

/// A directory entry, an item of [`ReadDir`].
///
/// ```
/// use polder::fs;
/// use polder::stream::StreamExt;
///
/// # polder::block_on(async {
/// let entries: Vec<_> = fs::read_dir(".").await?.try_collect().await?;
/// let is_source = |entry: &&fs::DirEntry| entry.file_name() == "src";
/// let source = entries.iter().find(is_source).unwrap();
/// assert!(source.file_type().await?.is_dir());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    pub(super) path: PathBuf,
    /// `None` if the directory does not report it.
    pub(super) file_type: Option<FileType>,
    #[cfg(unix)]
    pub(super) ino: u64,
}

impl DirEntry {
    /// Returns the path: the directory's, joined with the entry's name.
    ///
    /// ```
    /// use polder::stream::StreamExt;
    ///
    /// # polder::block_on(async {
    /// let entry = polder::fs::read_dir("src").await?.next().await.unwrap()?;
    /// assert!(entry.path().starts_with("src"));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Returns the file name.
    ///
    /// ```
    /// use polder::stream::StreamExt;
    ///
    /// # polder::block_on(async {
    /// let entry = polder::fs::read_dir("src").await?.next().await.unwrap()?;
    /// assert_eq!(entry.path().file_name(), Some(&*entry.file_name()));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[allow(clippy::missing_panics_doc)] // Never: a name was joined.
    pub fn file_name(&self) -> OsString {
        let name = self.path.file_name();
        name.expect("a name was joined").to_owned()
    }

    /// Returns the type of the entry when the directory was read. Symbolic links are not followed.
    /// Nearly all file systems report it with the name, so this does not wait.
    ///
    /// ```
    /// use polder::stream::StreamExt;
    ///
    /// # polder::block_on(async {
    /// let entry = polder::fs::read_dir("src").await?.next().await.unwrap()?;
    /// assert!(!entry.file_type().await?.is_symlink());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`symlink_metadata`] where the file system did not report it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn file_type(&self) -> io::Result<FileType> {
        match self.file_type {
            Some(file_type) => Ok(file_type),
            None => Ok(self.metadata().await?.file_type()),
        }
    }

    /// Returns the current metadata of the entry's path. Symbolic links are not followed.
    ///
    /// ```
    /// use polder::stream::StreamExt;
    ///
    /// # polder::block_on(async {
    /// let entry = polder::fs::read_dir("src").await?.next().await.unwrap()?;
    /// println!("{} bytes", entry.metadata().await?.len());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`symlink_metadata`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        symlink_metadata(&self.path).await
    }
}

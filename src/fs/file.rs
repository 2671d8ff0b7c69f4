//! [`File`] and [`OpenOptions`]: an open file, and the options for opening one.

use std::fmt;
use std::io::{self, IoSlice, SeekFrom};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};

use super::system::{SystemFile, on_thread, without_thread};
use super::{Metadata, Permissions, platform};
use crate::kernel::files::{self, OpenFile};
use crate::sys::unsupported;

/// Options for opening a file, as in the standard library.
///
/// ```
/// use polder::fs::{self, OpenOptions};
/// use polder::io::AsyncWriteExt;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let path = folder.path().join("log");
/// let mut log = OpenOptions::new().append(true).create(true).open(&path).await?;
/// log.write_all(b"one ").await?;
/// log.write_all(b"two").await?;
/// assert_eq!(fs::read(&path).await?, b"one two");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(super) flags: files::OpenOptions,
    pub(super) has_custom_flags: bool,
    /// The options that only the system has.
    pub(super) system: std::fs::OpenOptions,
}

impl OpenOptions {
    /// Returns options with none set, which cannot open a file.
    ///
    /// ```
    /// use polder::fs::OpenOptions;
    /// use std::io::ErrorKind;
    ///
    /// # polder::block_on(async {
    /// let error = OpenOptions::new().open("Cargo.toml").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # })
    /// ```
    pub fn new() -> OpenOptions {
        OpenOptions {
            flags: files::OpenOptions::default(),
            has_custom_flags: false,
            system: std::fs::OpenOptions::new(),
        }
    }

    /// Sets whether the file is opened for reading.
    ///
    /// ```
    /// use polder::fs::OpenOptions;
    ///
    /// # polder::block_on(async {
    /// OpenOptions::new().read(true).open("Cargo.toml").await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.flags.read = read;
        self
    }

    /// Sets whether the file is opened for writing. Its content is kept, and overwritten from the
    /// start.
    ///
    /// ```
    /// use polder::fs::{self, OpenOptions};
    /// use polder::io::AsyncWriteExt;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("file");
    /// fs::write(&path, "hello").await?;
    /// let mut file = OpenOptions::new().write(true).open(&path).await?;
    /// file.write_all(b"J").await?;
    /// assert_eq!(fs::read(&path).await?, b"Jello");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.flags.write = write;
        self
    }

    /// Sets whether each write goes to the end of the file. Implies [`write`](Self::write).
    ///
    /// ```
    /// use polder::fs::{self, OpenOptions};
    /// use polder::io::AsyncWriteExt;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("file");
    /// fs::write(&path, "one").await?;
    /// let mut file = OpenOptions::new().append(true).open(&path).await?;
    /// file.write_all(b", two").await?;
    /// assert_eq!(fs::read(&path).await?, b"one, two");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.flags.append = append;
        self
    }

    /// Sets whether an existing file is truncated.
    ///
    /// ```
    /// use polder::fs::{self, OpenOptions};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("file");
    /// fs::write(&path, "old").await?;
    /// OpenOptions::new().write(true).truncate(true).open(&path).await?;
    /// assert_eq!(fs::metadata(&path).await?.len(), 0);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.flags.truncate = truncate;
        self
    }

    /// Sets whether the file is created if it does not exist.
    ///
    /// ```
    /// use polder::fs::OpenOptions;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("file");
    /// assert!(OpenOptions::new().write(true).open(&path).await.is_err());
    /// OpenOptions::new().write(true).create(true).open(&path).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.flags.create = create;
        self
    }

    /// Sets whether the file is created, and opening fails if it exists. This is atomic: only one
    /// of several processes succeeds.
    ///
    /// ```
    /// use polder::fs::OpenOptions;
    /// use std::io::ErrorKind;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("lock");
    /// let mut options = OpenOptions::new();
    /// options.write(true).create_new(true);
    /// let lock = options.open(&path).await?;
    /// let error = options.open(&path).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.flags.create_new = create_new;
        self
    }

    /// Sets the mode of a new file, before the umask is applied. The default is 0o666.
    ///
    /// ```
    /// use polder::fs::OpenOptions;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let mut options = OpenOptions::new();
    /// options.write(true).create(true).mode(0o600);
    /// let file = options.open(folder.path().join("secret")).await?;
    /// assert_eq!(file.metadata().await?.permissions().mode() & 0o777, 0o600);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[cfg(unix)]
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        std::os::unix::fs::OpenOptionsExt::mode(&mut self.system, mode);
        self
    }

    /// Sets further flags for open(2), such as `O_NOFOLLOW`. A simulated disk ignores them.
    ///
    /// ```
    /// use polder::fs::{self, OpenOptions};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let link = folder.path().join("link");
    /// fs::unix::symlink("somewhere", &link).await?;
    /// let mut options = OpenOptions::new();
    /// options.read(true).custom_flags(libc::O_NOFOLLOW);
    /// assert!(options.open(&link).await.is_err());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[cfg(unix)]
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.has_custom_flags = flags != 0;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut self.system, flags);
        self
    }

    /// Sets how others may open the file meanwhile: the flags `FILE_SHARE_*` of `CreateFile`.
    ///
    /// ```no_run
    /// # polder::block_on(async {
    /// polder::fs::OpenOptions::new().read(true).share_mode(0).open("exclusive").await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[cfg(windows)]
    pub fn share_mode(&mut self, mode: u32) -> &mut OpenOptions {
        std::os::windows::fs::OpenOptionsExt::share_mode(&mut self.system, mode);
        self
    }

    /// Sets further flags for `CreateFile`, such as `FILE_FLAG_BACKUP_SEMANTICS`. A simulated disk
    /// ignores them.
    ///
    /// ```no_run
    /// # polder::block_on(async {
    /// let backup = 0x0200_0000;
    /// polder::fs::OpenOptions::new().read(true).custom_flags(backup).open("folder").await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[cfg(windows)]
    pub fn custom_flags(&mut self, flags: u32) -> &mut OpenOptions {
        std::os::windows::fs::OpenOptionsExt::custom_flags(&mut self.system, flags);
        self
    }

    /// Opens a file with these options.
    ///
    /// ```
    /// use polder::fs::OpenOptions;
    /// use polder::io::AsyncReadExt;
    ///
    /// # polder::block_on(async {
    /// let mut file = OpenOptions::new().read(true).open("Cargo.toml").await?;
    /// let mut bytes = [0; 9];
    /// file.read_exact(&mut bytes).await?;
    /// assert_eq!(&bytes, b"[package]");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound), [`AlreadyExists`](io::ErrorKind::AlreadyExists),
    /// [`IsADirectory`](io::ErrorKind::IsADirectory) (Unix, unless for reading only; Windows:
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied)),
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for invalid combinations of options, and
    /// [others](super#errors).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file may be created or truncated; no descriptor stays open.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> impl Future<Output = io::Result<File>> + use<P> {
        let options = self.clone();
        async move {
            // Keeps the caller's path until the call ends: dropping a `TempPath` deletes the file.
            let copy = path.as_ref().to_owned();
            if let Some(files) = super::files() {
                let file = files.open(copy, options.flags).await?;
                return Ok(File(Inner::Kernel(file)));
            }
            if let Some(file) = without_thread(|| options.open_cached(&copy)).await? {
                return Ok(file);
            }
            on_thread(move || options.open_on_thread(copy)).await
        }
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

/// An open file, or on Unix an open directory, which can be synced.
///
/// It implements [`AsyncRead`], [`AsyncWrite`] and [`AsyncSeek`]. **Writes are not buffered**:
/// unlike with async-fs and tokio, a completed write is with the system, and returns its own error;
/// no flush is needed. Dropping the file closes it. Only what was [synced](Self::sync_all) survives
/// a power failure.
///
/// ```
/// use polder::fs::OpenOptions;
/// use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// let mut options = OpenOptions::new();
/// options.read(true).write(true).create(true);
/// let mut file = options.open(folder.path().join("file")).await?;
/// file.write_all(b"hello").await?;
/// file.seek(SeekFrom::Start(1)).await?;
/// let mut rest = String::new();
/// file.read_to_string(&mut rest).await?;
/// assert_eq!(rest, "ello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// # Errors
///
/// Those of read(2), write(2) and lseek(2); an error if there is no thread and none can be started;
/// and [`Unsupported`](io::ErrorKind::Unsupported) for a file of the system on a thread that runs a
/// simulated world. A simulated file fails outside its world and host.
///
/// # Cancel safety
///
/// Cancel safe: dropping a read loses no bytes. The position, as the program sees it, does not
/// change, and the next read returns those bytes. A dropped write or seek may still be made, while
/// the program goes on. If the next operation writes the same bytes, or makes the same seek, it
/// gets the result of the dropped one, so that is made once. Any other read, write, seek or flush
/// waits for the dropped one, and returns its error. A write is not made if the file is dropped
/// before a thread has begun it: flush first.
///
/// A pipe or a device in non-blocking mode is waited for: see [`Unblock`](crate::io::Unblock).
/// Operations are made one at a time: after a dropped read of a pipe or a terminal, all but a flush
/// wait until that read returns. [`set_len`](Self::set_len), the syncs and the metadata need no
/// position and do not wait: flush first if a write may have been dropped. In a simulated world a
/// dropped operation is never made.
pub struct File(pub(super) Inner);

pub(super) enum Inner {
    System(Box<SystemFile>),
    Kernel(Box<dyn OpenFile>),
}

impl File {
    /// Opens a file for reading, or on Unix a directory, which can then be synced.
    ///
    /// ```
    /// use polder::fs::File;
    /// use polder::io::AsyncReadExt;
    ///
    /// # polder::block_on(async {
    /// let mut text = String::new();
    /// File::open("Cargo.toml").await?.read_to_string(&mut text).await?;
    /// assert!(text.starts_with("[package]"));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing, which is created or truncated.
    ///
    /// ```
    /// use polder::fs::{self, File};
    /// use polder::io::AsyncWriteExt;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("file");
    /// File::create(&path).await?.write_all(b"new").await?;
    /// assert_eq!(fs::read(&path).await?, b"new");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`OpenOptions::open`].
    pub async fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(path).await
    }

    /// Creates a new file, and opens it for reading and writing.
    ///
    /// ```
    /// use polder::fs::File;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("file");
    /// let file = File::create_new(&path).await?;
    /// assert!(File::create_new(&path).await.is_err());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`OpenOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`OpenOptions::open`].
    pub async fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(path).await
    }

    /// Returns [`OpenOptions::new`].
    ///
    /// ```
    /// # polder::block_on(async {
    /// let file = polder::fs::File::options().read(true).open("Cargo.toml").await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until everything that was written to the file, through any handle, and its metadata
    /// are on disk. The file's name is not included: on Unix sync its directory, too (fsync(2)).
    /// Windows has no such call for an ordinary handle of a directory.
    ///
    /// ```
    /// use polder::fs::{self, File};
    /// use polder::io::AsyncWriteExt;
    /// use std::path::Path;
    ///
    /// /// Replaces what is stored, so that it is there, old or new, whatever happens.
    /// async fn store(folder: &Path, value: &str) -> std::io::Result<()> {
    ///     let mut file = File::create(folder.join("new")).await?;
    ///     file.write_all(value.as_bytes()).await?;
    ///     file.sync_all().await?; // Or the name may come without the bytes.
    ///     fs::rename(folder.join("new"), folder.join("value")).await?;
    ///     if cfg!(unix) {
    ///         File::open(folder).await?.sync_all().await?; // Or the name may not come.
    ///     }
    ///     Ok(())
    /// }
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// store(folder.path(), "1").await?;
    /// assert_eq!(fs::read(folder.path().join("value")).await?, b"1");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of fsync(2), after which earlier writes may be lost, and the next sync may succeed
    /// without them. On Windows [`PermissionDenied`](io::ErrorKind::PermissionDenied) if the file
    /// is not open for writing. And [others](super#errors).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the sync may go on.
    pub async fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            Inner::System(file) => file.call(std::fs::File::sync_all).await,
            Inner::Kernel(file) => file.sync().await,
        }
    }

    /// [`sync_all`](Self::sync_all) without metadata that are not needed to read the bytes, such as
    /// the time of the last write (fdatasync(2)).
    ///
    /// ```
    /// use polder::fs::File;
    /// use polder::io::AsyncWriteExt;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let mut log = File::create(folder.path().join("log")).await?;
    /// log.write_all(b"entry").await?;
    /// log.sync_data().await?;
    /// # std::io::Result::Ok(()) }).unwrap();
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
        match &self.0 {
            Inner::System(file) => file.call(std::fs::File::sync_data).await,
            Inner::Kernel(file) => file.sync().await,
        }
    }

    /// Truncates the file, or extends it with zeroes. The position does not change.
    ///
    /// ```
    /// use polder::fs::{self, File};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("file");
    /// File::create(&path).await?.set_len(3).await?;
    /// assert_eq!(fs::read(&path).await?, [0; 3]);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the file is not open for writing (Unix),
    /// and [others](super#errors).
    ///
    /// # Cancel safety
    ///
    /// [As others](super#cancel-safety).
    pub async fn set_len(&self, length: u64) -> io::Result<()> {
        match &self.0 {
            Inner::System(file) => file.call(move |file| file.set_len(length)).await,
            Inner::Kernel(file) => file.set_len(length).await,
        }
    }

    /// Returns the metadata, even after the file was renamed or removed.
    ///
    /// ```
    /// # polder::block_on(async {
    /// let file = polder::fs::File::open("Cargo.toml").await?;
    /// assert!(file.metadata().await?.is_file());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [As others](super#errors).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        match &self.0 {
            Inner::System(file) => {
                let found = file.call(std::fs::File::metadata).await?;
                Ok(Metadata::of_system(found))
            }
            Inner::Kernel(file) => file.metadata().await.map(Metadata),
        }
    }

    /// Sets the permissions of the file.
    ///
    /// ```
    /// use polder::fs::File;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let file = File::create(folder.path().join("file")).await?;
    /// let mut permissions = file.metadata().await?.permissions();
    /// permissions.set_readonly(true);
    /// file.set_permissions(permissions).await?;
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied), and [others](super#errors).
    ///
    /// # Cancel safety
    ///
    /// [As others](super#cancel-safety).
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let Inner::System(file) = &self.0 else {
            return Err(unsupported("set_permissions: a simulated file has none"));
        };
        file.call(move |file| {
            let current = || Ok(file.metadata()?.permissions());
            file.set_permissions(platform::permissions(&permissions, current)?)
        })
        .await
    }

    /// Converts into the standard library's file, at the position that the program has seen, once
    /// no dropped read, write or seek is in progress. While a dropped sync or metadata call is
    /// running, the result is a duplicate handle.
    ///
    /// ```
    /// # polder::block_on(async {
    /// let file = polder::fs::File::open("Cargo.toml").await?.into_std().await?;
    /// assert!(file.metadata()?.is_file());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// The error of a dropped write or seek. It also fails if a dropped read of a pipe or a
    /// terminal has brought bytes, if there is no thread and none can be started, if the descriptor
    /// cannot be duplicated, or if the file is simulated. The file is then closed.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the file is closed.
    pub async fn into_std(self) -> io::Result<std::fs::File> {
        match self.0 {
            Inner::System(file) => file.into_std().await,
            Inner::Kernel(_) => Err(unsupported(
                "into_std: a simulated file is none of the system",
            )),
        }
    }

    /// Duplicates the handle (`dup`). Both share one position: operations of either move it, and so
    /// do bytes of a dropped read that are not taken. Open the file again for an independent
    /// position.
    ///
    /// ```
    /// use polder::fs::{self, File};
    /// use polder::io::AsyncWriteExt;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # polder::block_on(async {
    /// let path = folder.path().join("log");
    /// let mut log = File::create(&path).await?;
    /// let mut other = log.try_clone().await?;
    /// log.write_all(b"one ").await?;
    /// other.write_all(b"two").await?;
    /// assert_eq!(fs::read(&path).await?, b"one two");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the process has reached its limit of descriptors.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it never waits, and is `async` as tokio's is.
    pub async fn try_clone(&self) -> io::Result<File> {
        Ok(File(match &self.0 {
            Inner::System(file) => Inner::System(Box::new(file.try_clone()?)),
            Inner::Kernel(file) => Inner::Kernel(file.try_clone()?),
        }))
    }

    /// Returns the file that lends its descriptor to code outside polder.
    pub(super) fn lend(&self) -> &std::fs::File {
        match &self.0 {
            Inner::System(file) => &file.file,
            Inner::Kernel(file) => file.lend(),
        }
    }
}

impl AsyncRead for File {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match &mut self.0 {
            Inner::System(file) => Pin::new(file).poll_read(cx, bytes),
            Inner::Kernel(file) => Pin::new(file).poll_read(cx, bytes),
        }
    }
}

impl AsyncWrite for File {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match &mut self.0 {
            Inner::System(file) => Pin::new(file).poll_write(cx, bytes),
            Inner::Kernel(file) => Pin::new(file).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if slices.iter().all(|slice| slice.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        match &mut self.0 {
            Inner::System(file) => Pin::new(file).poll_write_vectored(cx, slices),
            Inner::Kernel(file) => Pin::new(file).poll_write_vectored(cx, slices),
        }
    }

    /// Waits until a dropped write or seek has ended.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::System(file) => Pin::new(file).poll_flush(cx),
            Inner::Kernel(file) => Pin::new(file).poll_flush(cx),
        }
    }

    /// Flushes. Dropping the file closes it.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncSeek for File {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        position: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        match &mut self.0 {
            Inner::System(file) => Pin::new(file).poll_seek(cx, position),
            Inner::Kernel(file) => Pin::new(file).poll_seek(cx, position),
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::System(file) => file.file.fmt(f),
            Inner::Kernel(file) => file.fmt(f),
        }
    }
}

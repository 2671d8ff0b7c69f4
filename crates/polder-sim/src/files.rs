//! [`HostDisk`]: the [`Files`] of a simulated process. Each call is one of its host's [`Disk`],
//! after the time that it takes.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};
use polder::kernel::files::{
    self, DirEntry, FileType, Files, Metadata, OpenFile, OpenOptions, Stat,
};
use polder::time::{Sleep, sleep};

use super::power_loss::{Disk, Error, Meta, OpenFlags};
use crate::world::disk_calls::{Begun, Call, io_error};
use crate::world::handle::file_placeholder;
use crate::world::open_files::{FileOfProcess, begin};
use crate::world::thread::with;

/// The remark on what the world does not see.
const LENT: &str = "a descriptor of a simulated file was asked for: what is done with it, the world \
                    does not see";

/// The disk of the host whose process runs.
pub(super) struct HostDisk;

/// Waits until a call's time is over.
async fn wait(begun: io::Result<Begun>) -> io::Result<Begun> {
    let begun = begun?;
    if !begun.delay.is_zero() {
        sleep(begun.delay).await;
    }
    Ok(begun)
}

/// Makes a call when its time is over.
async fn finish<R>(
    begun: io::Result<Begun>,
    f: impl FnOnce(&mut Disk) -> Result<R, Error>,
) -> io::Result<R> {
    wait(begun).await?.finish(f)
}

impl Files for HostDisk {
    fn open(&self, path: PathBuf, options: OpenOptions) -> files::Call<Box<dyn OpenFile>> {
        Box::pin(async move {
            let opened = Opened {
                file: open(&path, flags(options)).await?,
                at: AtomicU64::new(0),
                lent: file_placeholder()?,
            };
            Ok(Box::new(HostFile::new(Arc::new(opened))) as Box<dyn OpenFile>)
        })
    }

    fn read(&self, path: PathBuf) -> files::Call<Vec<u8>> {
        Box::pin(async move { read_all(&open(&path, TO_READ).await?).await })
    }

    fn write(&self, path: PathBuf, contents: Vec<u8>) -> files::Call<()> {
        Box::pin(async move { write_all(&open(&path, TO_REPLACE).await?, &contents).await })
    }

    fn copy(&self, from: PathBuf, to: PathBuf) -> files::Call<u64> {
        Box::pin(async move {
            let from = open(&from, TO_READ).await?;
            if from.look(|disk| disk.meta_of_open(from.number()))?.is_dir {
                return Err(invalid("the source path is not a regular file"));
            }
            // As the standard library does, before it reads: a file that is copied to itself is
            // empty.
            let to = open(&to, TO_REPLACE).await?;
            let bytes = read_all(&from).await?;
            write_all(&to, &bytes).await?;
            Ok(bytes.len() as u64)
        })
    }

    fn rename(&self, from: PathBuf, to: PathBuf) -> files::Call<()> {
        Box::pin(async move { finish(begin(Call::Write), |disk| disk.rename(&from, &to)).await })
    }

    fn remove_file(&self, path: PathBuf) -> files::Call<()> {
        Box::pin(async move { finish(begin(Call::Write), |disk| disk.remove_file(&path)).await })
    }

    /// There are no links.
    fn metadata(&self, path: PathBuf, _follows: bool) -> files::Call<Metadata> {
        Box::pin(async move {
            let begun = wait(begin(Call::Look)).await?;
            Ok(metadata(begun, begun.finish(|disk| disk.meta(&path))?))
        })
    }

    fn canonicalize(&self, path: PathBuf) -> files::Call<PathBuf> {
        Box::pin(async move { finish(begin(Call::Look), |disk| disk.canonicalize(&path)).await })
    }

    fn create_dir(&self, path: PathBuf, recursive: bool) -> files::Call<()> {
        Box::pin(async move {
            if recursive {
                create_dir_all(&path).await
            } else {
                finish(begin(Call::Write), |disk| disk.create_dir(&path)).await
            }
        })
    }

    fn read_dir(&self, path: PathBuf) -> files::Call<Vec<DirEntry>> {
        Box::pin(async move {
            let names = finish(begin(Call::Look), |disk| disk.read_dir(&path)).await?;
            let entry = |(name, meta): (_, Meta)| DirEntry {
                name,
                file_type: Some(file_type(meta)),
                ino: ino(meta),
            };
            Ok(names.into_iter().map(entry).collect())
        })
    }

    fn remove_dir(&self, path: PathBuf, recursive: bool) -> files::Call<()> {
        Box::pin(async move {
            if recursive {
                remove_dir_all(path).await
            } else {
                finish(begin(Call::Write), |disk| disk.remove_dir(&path)).await
            }
        })
    }
}

const TO_READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    truncate: false,
    create: false,
    create_new: false,
};

/// Creates a file, or removes its contents.
const TO_REPLACE: OpenFlags = OpenFlags {
    read: false,
    write: true,
    truncate: true,
    create: true,
    ..TO_READ
};

fn flags(options: OpenOptions) -> OpenFlags {
    OpenFlags {
        read: options.read,
        write: options.write,
        append: options.append,
        truncate: options.truncate,
        create: options.create,
        create_new: options.create_new,
    }
}

async fn open(path: &Path, flags: OpenFlags) -> io::Result<FileOfProcess> {
    flags.check().map_err(io_error)?;
    let call = if flags.changes() {
        Call::Write
    } else {
        Call::Look
    };
    wait(begin(call)).await?.open(path, flags)
}

async fn read_all(file: &FileOfProcess) -> io::Result<Vec<u8>> {
    finish(file.begin(Call::Read), |disk| disk.read_all(file.number())).await
}

async fn write_all(file: &FileOfProcess, contents: &[u8]) -> io::Result<()> {
    let (mut bytes, mut at) = (contents, 0);
    while !bytes.is_empty() {
        let write = |disk: &mut Disk| disk.write(file.number(), at, bytes);
        let (length, end) = finish(file.begin(Call::Write), write).await?;
        (bytes, at) = (&bytes[length..], end);
    }
    Ok(())
}

/// As the standard library does: up to the nearest existing ancestor, and back down.
async fn create_dir_all(path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
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
    finish(begin(Call::Write), make).await
}

async fn remove_dir_all(path: PathBuf) -> io::Result<()> {
    let mut dirs = vec![path];
    while let Some(dir) = dirs.last() {
        let names = finish(begin(Call::Look), |disk| disk.read_dir(dir)).await?;
        let inner = names.iter().find(|(_, meta)| meta.is_dir);
        if let Some((name, _)) = inner {
            dirs.push(dir.join(name));
            continue;
        }
        for (name, _) in names {
            let remove = |disk: &mut Disk| disk.remove_file(&dir.join(name));
            finish(begin(Call::Write), remove).await?;
        }
        finish(begin(Call::Write), |disk| disk.remove_dir(dir)).await?;
        dirs.pop();
    }
    Ok(())
}

fn invalid(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, words)
}

fn file_type(meta: Meta) -> FileType {
    if meta.is_dir {
        FileType::Directory
    } else {
        FileType::File
    }
}

/// From 1 on, since 0 is no file on Linux.
fn ino(meta: Meta) -> u64 {
    u64::from(meta.number) + 1
}

/// Returns the metadata for a call. There are no times, owners and permissions.
fn metadata(begun: Begun, meta: Meta) -> Metadata {
    Metadata {
        file_type: file_type(meta),
        length: meta.len,
        // `S_IFDIR` and `S_IFREG`.
        mode: 0o777 | if meta.is_dir { 0o040_000 } else { 0o100_000 },
        modified: None,
        accessed: None,
        created: None,
        stat: Stat {
            dev: begun.host as u64 + 1,
            ino: ino(meta),
            nlink: meta.links.into(),
            blksize: 4_096,
            blocks: meta.sectors,
            // `FILE_ATTRIBUTE_DIRECTORY` and `FILE_ATTRIBUTE_NORMAL`.
            attributes: if meta.is_dir { 0x10 } else { 0x80 },
            ..Stat::default()
        },
    }
}

/// The handles of an open file share it.
struct Opened {
    file: FileOfProcess,
    /// Position of the next read or write. Only the thread of the world uses it.
    at: AtomicU64,
    /// It is lent in the place of a descriptor.
    lent: &'static std::fs::File,
}

impl Opened {
    fn at(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    fn set_at(&self, at: u64) {
        self.at.store(at, Ordering::Relaxed);
    }
}

/// A file that a simulated process has open.
struct HostFile {
    opened: Arc<Opened>,
    /// Read or write in progress. If its future is dropped, the next call of the same kind waits
    /// for the rest of its time.
    under_way: Option<(Begun, Sleep)>,
}

impl HostFile {
    fn new(opened: Arc<Opened>) -> HostFile {
        HostFile {
            opened,
            under_way: None,
        }
    }

    /// Begins a read or a write, or continues it. Ready when it is to be performed.
    fn poll_call(&mut self, call: Call, cx: &mut Context<'_>) -> Poll<io::Result<Begun>> {
        let (begun, mut sleep) = match self.under_way.take() {
            Some(under_way) if under_way.0.call == call => under_way,
            _ => {
                let begun = self.opened.file.begin(call)?;
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

impl OpenFile for HostFile {
    fn sync(&self) -> files::Call<()> {
        let opened = self.opened.clone();
        Box::pin(async move {
            let file = &opened.file;
            let begun = file.begin(Call::Sync);
            let last = file.look(|disk| disk.begin_sync(file.number()))?;
            wait(begun).await?.finish_sync(file, last)
        })
    }

    fn set_len(&self, length: u64) -> files::Call<()> {
        let opened = self.opened.clone();
        Box::pin(async move {
            let number = opened.file.number();
            let set = |disk: &mut Disk| disk.set_len(number, length);
            finish(opened.file.begin(Call::Write), set).await
        })
    }

    fn metadata(&self) -> files::Call<Metadata> {
        let opened = self.opened.clone();
        Box::pin(async move {
            let begun = wait(opened.file.begin(Call::Look)).await?;
            let meta = begun.finish(|disk| disk.meta_of_open(opened.file.number()))?;
            Ok(metadata(begun, meta))
        })
    }

    /// The handles count as one descriptor; but there has to be one for it.
    fn try_clone(&self) -> io::Result<Box<dyn OpenFile>> {
        self.opened.file.take_descriptor()?;
        Ok(Box::new(HostFile::new(self.opened.clone())))
    }

    fn lend(&self) -> &std::fs::File {
        with(|kernel| kernel.core.report.remarks.insert(LENT));
        self.opened.lent
    }
}

impl fmt::Debug for HostFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.opened.file.fmt(f)
    }
}

impl AsyncRead for HostFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let begun = ready!(self.poll_call(Call::Read, cx))?;
        let (number, at) = (self.opened.file.number(), self.opened.at());
        let len = begun.finish(|disk| disk.read(number, at, buffer))?;
        self.opened.set_at(at + len as u64);
        Poll::Ready(Ok(len))
    }
}

impl AsyncWrite for HostFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let begun = ready!(self.poll_call(Call::Write, cx))?;
        let (number, at) = (self.opened.file.number(), self.opened.at());
        let (len, end) = begun.finish(|disk| disk.write(number, at, bytes))?;
        self.opened.set_at(end);
        Poll::Ready(Ok(len))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let slices: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
        self.poll_write(cx, &slices.concat())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for HostFile {
    /// Takes no time. Seeking beyond the end is permitted: a write there leaves a hole.
    fn poll_seek(self: Pin<&mut Self>, _: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        let opened = &self.opened;
        let length = |disk: &mut Disk| disk.meta_of_open(opened.file.number());
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (opened.at(), by),
            SeekFrom::End(by) => (opened.file.look(length)?.len, by),
        };
        let at = base.checked_add_signed(by);
        let Some(at) = at.filter(|at| i64::try_from(*at).is_ok()) else {
            return Poll::Ready(Err(invalid("the position is negative or too large")));
        };
        opened.set_at(at);
        Poll::Ready(Ok(at))
    }
}

//! Files of a simulated world: each call is a [`Disk`]'s, after the time that it takes.
//!
//! The functions with a path are called on threads that run a world.

use std::future::Future;
use std::io::{self, IoSlice, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};
use power_loss::{Disk, Error, Meta, OpenFlags};

use super::file::{FileStream, Handle, OpenOptions};
use super::{DirEntry, File, FileType, Metadata, Permissions, ReadDir};
use crate::sys::invalid;
use crate::time::{Sleep, sleep};
use crate::world::disk_calls::{Begun, Call, FileOfProcess, begin, io_error};
use crate::world::unsupported;

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

pub(super) async fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    finish(begin(Call::Look), |disk| disk.canonicalize(path)).await
}

pub(super) async fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let from = open_to_read(from).await?;
    if from.look(|disk| disk.meta_of_open(from.number()))?.is_dir {
        return Err(invalid("the source path is not a regular file"));
    }
    // As the standard library does, before it reads: a file that is copied to itself is empty.
    let to = create(to).await?;
    let bytes = read_all(&from).await?;
    write_all(&to, &bytes).await?;
    Ok(bytes.len() as u64)
}

pub(super) async fn create_dir(path: &Path, recursive: bool) -> io::Result<()> {
    if !recursive {
        return finish(begin(Call::Write), |disk| disk.create_dir(path)).await;
    }
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
    finish(begin(Call::Write), make).await
}

/// Also for a link itself, since there are none.
pub(super) async fn metadata_at(path: &Path) -> io::Result<Metadata> {
    let meta = finish(begin(Call::Look), |disk| disk.meta(path)).await?;
    Ok(Metadata::of_world(meta))
}

pub(super) async fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_all(&open_to_read(path).await?).await
}

async fn open_to_read(path: &Path) -> io::Result<FileOfProcess> {
    let flags = OpenOptions::new().read(true).to_world();
    open_here(path, flags).await
}

async fn read_all(file: &FileOfProcess) -> io::Result<Vec<u8>> {
    finish(file.begin(Call::Read), |disk| disk.read_all(file.number())).await
}

pub(super) async fn remove_dir(path: &Path) -> io::Result<()> {
    finish(begin(Call::Write), |disk| disk.remove_dir(path)).await
}

pub(super) async fn remove_dir_all(path: &Path) -> io::Result<()> {
    let mut dirs = vec![path.to_owned()];
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

pub(super) async fn remove_file(path: &Path) -> io::Result<()> {
    finish(begin(Call::Write), |disk| disk.remove_file(path)).await
}

pub(super) async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    finish(begin(Call::Write), |disk| disk.rename(from, to)).await
}

pub(super) async fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_all(&create(path).await?, contents).await
}

/// Opens a file for writing, and creates it or removes its contents.
async fn create(path: &Path) -> io::Result<FileOfProcess> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    open_here(path, options.to_world()).await
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

pub(super) async fn read_dir(path: &Path) -> io::Result<ReadDir> {
    let names = finish(begin(Call::Look), |disk| disk.read_dir(path)).await?;
    let entry = |(name, meta): (_, Meta)| {
        Ok(DirEntry {
            path: path.join(name),
            file_type: Some(file_type(meta.is_dir)),
        })
    };
    let entries: Vec<_> = names.into_iter().map(entry).collect();
    Ok(ReadDir {
        entries: entries.into_iter(),
        rest: None,
    })
}

fn file_type(is_dir: bool) -> FileType {
    if is_dir {
        FileType::DIRECTORY
    } else {
        FileType::FILE
    }
}

impl Metadata {
    fn of_world(meta: Meta) -> Metadata {
        Metadata {
            file_type: file_type(meta.is_dir),
            length: meta.len,
            permissions: Permissions::all(),
            times: [None; 3],
        }
    }
}

impl OpenOptions {
    pub(super) fn to_world(&self) -> OpenFlags {
        OpenFlags {
            read: self.read,
            write: self.write,
            append: self.append,
            truncate: self.truncate,
            create: self.create,
            create_new: self.create_new,
        }
    }
}

pub(super) async fn open(path: &Path, flags: OpenFlags) -> io::Result<File> {
    let file = Arc::new(open_here(path, flags).await?);
    Ok(File {
        handle: Handle::World(file.clone()),
        stream: Box::new(WorldStream {
            file,
            at: 0,
            under_way: None,
        }),
    })
}

async fn open_here(path: &Path, flags: OpenFlags) -> io::Result<FileOfProcess> {
    flags.check().map_err(io_error)?;
    let call = if flags.changes() {
        Call::Write
    } else {
        Call::Look
    };
    wait(begin(call)).await?.open(path, flags)
}

pub(super) async fn sync(file: &FileOfProcess) -> io::Result<()> {
    let begun = file.begin(Call::Sync);
    let last = file.look(|disk| disk.begin_sync(file.number()))?;
    wait(begun).await?.finish_sync(file, last)
}

pub(super) async fn set_len(file: &FileOfProcess, length: u64) -> io::Result<()> {
    let set = |disk: &mut Disk| disk.set_len(file.number(), length);
    finish(file.begin(Call::Write), set).await
}

pub(super) async fn metadata(file: &FileOfProcess) -> io::Result<Metadata> {
    let meta = |disk: &mut Disk| disk.meta_of_open(file.number());
    let meta = finish(file.begin(Call::Look), meta).await?;
    Ok(Metadata::of_world(meta))
}

pub(super) async fn set_permissions(_: &FileOfProcess) -> io::Result<()> {
    Err(unsupported("a file's permissions"))
}

/// The reads and writes of a file that a simulated process has open.
struct WorldStream {
    file: Arc<FileOfProcess>,
    /// Position of the next read or write.
    at: u64,
    /// Read or write in progress. If its future is dropped, the next call of the same kind waits
    /// for the rest of its time.
    under_way: Option<(Begun, Sleep)>,
}

impl WorldStream {
    /// Begins a read or a write, or continues it. Ready when it is to be performed.
    fn poll_call(&mut self, call: Call, cx: &mut Context<'_>) -> Poll<io::Result<Begun>> {
        let (begun, mut sleep) = match self.under_way.take() {
            Some(under_way) if under_way.0.call == call => under_way,
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

/// A dropped call has done nothing.
impl FileStream for WorldStream {}

impl AsyncRead for WorldStream {
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

impl AsyncWrite for WorldStream {
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

impl AsyncSeek for WorldStream {
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
            return Poll::Ready(Err(invalid("the position is negative or too large")));
        };
        self.at = at;
        Poll::Ready(Ok(at))
    }
}

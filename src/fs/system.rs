//! Files of the system: each call blocks, and is made by a thread of the pool. An open file is
//! read, written and sought in by [`Unblock`]; what needs no position does not wait for that.

use std::fs::{self, DirBuilder};
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_lite::io::AsyncSeek;

use super::file::{FileStream, OpenOptions};
use super::{DirEntry, File, FileType, Metadata, Permissions, ReadDir};
use crate::blocking::{Class, POOL, Unblock};

/// Has a thread of the pool call `f`. Dropping the future cancels the call if it has not begun.
pub(super) async fn on_thread<R: Send + 'static>(
    f: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let call = POOL.get().call(Class::Call, f)?;
    poll_fn(|cx| call.poll_output(cx)).await?
}

pub(super) async fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    let path = path.to_owned();
    on_thread(|| fs::canonicalize(path)).await
}

pub(super) async fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let (from, to) = (from.to_owned(), to.to_owned());
    on_thread(|| fs::copy(from, to)).await
}

/// Creates a directory. The mode is for Unix.
pub(super) async fn create_dir(
    path: PathBuf,
    recursive: bool,
    mode: Option<u32>,
) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(recursive);
    #[cfg(unix)]
    if let Some(mode) = mode {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode);
    }
    #[cfg(not(unix))]
    let _ = mode;
    on_thread(move || builder.create(path)).await
}

/// Returns the metadata of what a symbolic link leads to, or of the link itself.
pub(super) async fn metadata_at(path: &Path, follows: bool) -> io::Result<Metadata> {
    let path = path.to_owned();
    let metadata = move || {
        if follows {
            fs::metadata(path)
        } else {
            fs::symlink_metadata(path)
        }
    };
    on_thread(|| metadata().map(Metadata::of_system)).await
}

pub(super) async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    on_thread(|| fs::read(path)).await
}

pub(super) async fn remove_dir(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    on_thread(|| fs::remove_dir(path)).await
}

pub(super) async fn remove_dir_all(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    on_thread(|| fs::remove_dir_all(path)).await
}

pub(super) async fn remove_file(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    on_thread(|| fs::remove_file(path)).await
}

pub(super) async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (from.to_owned(), to.to_owned());
    on_thread(|| fs::rename(from, to)).await
}

pub(super) async fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let (path, contents) = (path.to_owned(), contents.to_owned());
    on_thread(|| fs::write(path, contents)).await
}

/// The number of entries of a directory that a thread reads at a time. Larger batches do not reduce
/// the cost per entry.
const BATCH: usize = 256;

/// The entries of a directory, in batches.
pub(super) struct Batches(fs::ReadDir);

impl Iterator for Batches {
    type Item = Vec<io::Result<DirEntry>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok(DirEntry {
                path: entry.path(),
                file_type: entry.file_type().ok().map(FileType::of_system),
            })
        };
        let batch: Vec<_> = self.0.by_ref().take(BATCH).map(entry).collect();
        (!batch.is_empty()).then_some(batch)
    }
}

pub(super) async fn read_dir(path: &Path) -> io::Result<ReadDir> {
    let path = path.to_owned();
    let entries = on_thread(|| fs::read_dir(path)).await?;
    Ok(ReadDir {
        entries: Vec::new().into_iter(),
        rest: Some(Unblock::new(Batches(entries))),
    })
}

impl OpenOptions {
    fn to_system(&self) -> fs::OpenOptions {
        let mut system = fs::OpenOptions::new();
        system.read(self.read).write(self.write).append(self.append);
        system
            .truncate(self.truncate)
            .create(self.create)
            .create_new(self.create_new);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;

            system.custom_flags(self.custom_flags);
            if let Some(mode) = self.mode {
                system.mode(mode);
            }
        }
        #[cfg(windows)]
        {
            use std::os::windows::fs::OpenOptionsExt;

            system.custom_flags(self.custom_flags);
            if let Some(mode) = self.share_mode {
                system.share_mode(mode);
            }
        }
        system
    }
}

/// An open file.
pub(super) type Handle = Arc<fs::File>;

#[cfg(not(feature = "sim"))]
pub(super) fn handle(file: Handle) -> Handle {
    file
}

pub(super) async fn open(path: PathBuf, options: OpenOptions) -> io::Result<File> {
    let open = move || options.to_system().open(path);
    on_thread(open).await.map(File::from)
}

/// Calls `f` with an open file. It uses no position, so it does not wait for the operation in
/// progress.
async fn call_open<R: Send + 'static>(
    file: &Handle,
    f: impl FnOnce(&fs::File) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let file = file.clone();
    on_thread(move || f(&file)).await
}

pub(super) async fn sync(file: &Handle, with_metadata: bool) -> io::Result<()> {
    call_open(file, move |file| {
        if with_metadata {
            file.sync_all()
        } else {
            file.sync_data()
        }
    })
    .await
}

pub(super) async fn set_len(file: &Handle, length: u64) -> io::Result<()> {
    call_open(file, move |file| file.set_len(length)).await
}

pub(super) async fn metadata(file: &Handle) -> io::Result<Metadata> {
    call_open(file, |file| file.metadata().map(Metadata::of_system)).await
}

pub(super) async fn set_permissions(file: &Handle, permissions: Permissions) -> io::Result<()> {
    call_open(file, move |file| {
        let current = || Ok(file.metadata()?.permissions());
        file.set_permissions(permissions.to_system(current)?)
    })
    .await
}

pub(super) fn into_std(file: Handle) -> io::Result<fs::File> {
    // A dropped call may go on.
    Arc::try_unwrap(file).or_else(|file| file.try_clone())
}

impl FileStream for Unblock<Handle> {
    fn poll_position(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_ahead() {
            return Poll::Ready(Ok(()));
        }
        match ready!(Pin::new(self).poll_seek(cx, SeekFrom::Current(0))) {
            // A pipe or a terminal has no position: what was read stays to be taken.
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => Poll::Ready(Ok(())),
            sought => Poll::Ready(sought.map(drop)),
        }
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Unblock::poll_written(self, cx)
    }

    fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Unblock::poll_settled(self, cx)
    }
}

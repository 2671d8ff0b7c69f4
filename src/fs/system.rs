//! Files of the system: each call blocks, and is made by a thread of the pool. An open file is
//! read, written and sought in by [`Unblock`]; what needs no position does not wait for that.

use std::fs;
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_lite::io::AsyncSeek;

use super::file::{FileStream, OpenOptions};
use super::{DirBuilder, DirEntry, FileType, ReadDir, call_system};
use crate::blocking::{Class, POOL, Unblock};

/// Has a thread of the pool call `f`. Dropping the future cancels the call if it has not begun.
pub(super) async fn on_thread<R: Send + 'static>(
    f: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let call = POOL.get().call(Class::Call, f)?;
    poll_fn(|cx| call.poll_output(cx)).await?
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

impl ReadDir {
    pub(super) fn of_system(entries: fs::ReadDir) -> ReadDir {
        ReadDir {
            entries: Vec::new().into_iter(),
            rest: Some(Unblock::new(Batches(entries))),
        }
    }
}

impl DirBuilder {
    pub(super) fn to_system(&self) -> fs::DirBuilder {
        let mut system = fs::DirBuilder::new();
        system.recursive(self.recursive);
        #[cfg(unix)]
        if let Some(mode) = self.mode {
            std::os::unix::fs::DirBuilderExt::mode(&mut system, mode);
        }
        system
    }
}

impl OpenOptions {
    pub(super) fn to_system(&self) -> fs::OpenOptions {
        let mut system = self.system.clone();
        system.read(self.read).write(self.write).append(self.append);
        system.truncate(self.truncate).create(self.create);
        system.create_new(self.create_new);
        system
    }
}

/// Calls `f` with an open file. It uses no position, so it does not wait for the operation in
/// progress. Fails if this thread runs a world, in which the call would end at a time that no seed
/// determines.
pub(super) async fn call_open<R: Send + 'static>(
    file: &Arc<fs::File>,
    f: impl FnOnce(&fs::File) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let file = file.clone();
    call_system("a file of the system", move || f(&file)).await
}

impl FileStream for Unblock<Arc<fs::File>> {
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

//! Files of the system. Calls that block run on the thread pool, unless the kernel can serve them
//! from memory ([`cached`]). An open file is read, written and sought by [`Unblock`]; calls that
//! need no position do not wait for it.

use std::ffi::OsStr;
use std::fs;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};

use super::cached::{self, Access};
use super::file::Inner;
use super::{DirBuilder, DirEntry, File, FileType, OpenOptions, ReadDir, call_system};
use crate::blocking::{Class, POOL, Unblock};
use crate::io::operation::charged;
use crate::scheduler::budget::{consume, restore};
use crate::sys::{Race, invalid};

/// The variable that chooses between `cached` and `pool`.
const VARIABLE: &str = "POLDER_FS";

/// Whether calls are served from memory without a thread.
///
/// # Errors
///
/// The variable is neither `cached`, the default, nor `pool`.
pub(super) fn uses_cache() -> io::Result<bool> {
    static ANSWER: Race<Result<bool, String>> = Race::new();
    let answer = ANSWER.get_or_init(|| {
        let value = std::env::var_os(VARIABLE).unwrap_or_default();
        Ok(is_cached(&value)? && cached::is_possible())
    });
    answer.clone().map_err(invalid)
}

fn is_cached(value: &OsStr) -> Result<bool, String> {
    match value.to_str() {
        Some("" | "cached") => Ok(true),
        Some("pool") => Ok(false),
        _ => Err(format!(
            "{VARIABLE}: there is no way {value:?} to files; there are cached and pool"
        )),
    }
}

/// Returns `of(file)`, or that threads make all calls if `POLDER_FS` is `pool`.
fn access(file: &fs::File, of: fn(&fs::File) -> Access) -> Access {
    match uses_cache() {
        Ok(true) => of(file),
        _ => Access::none(),
    }
}

/// Calls `f` on the pool. Dropping the future cancels the call if it has not begun.
pub(super) async fn on_thread<R: Send + 'static>(
    f: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    uses_cache()?;
    let call = POOL.get().call(Class::Call, f)?;
    poll_fn(|cx| call.poll_output(cx)).await?
}

/// Calls `f`, which does not block and returns `None` where it would have to.
pub(super) async fn without_thread<R>(f: impl FnOnce() -> Option<R>) -> io::Result<Option<R>> {
    if !uses_cache()? {
        return Ok(None);
    }
    poll_fn(|cx| consume(cx)).await;
    let result = f();
    if result.is_none() {
        restore();
    }
    Ok(result)
}

pub(super) fn read(path: PathBuf) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    access(&file, Access::of); // So that the next call may find its disk known.
    let mut bytes = Vec::new();
    // Reserves the memory for the whole file.
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The number of directory entries that a thread reads at a time. Larger batches do not reduce the
/// cost per entry.
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
                #[cfg(unix)]
                ino: std::os::unix::fs::DirEntryExt::ino(&entry),
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
        let (mut system, flags) = (self.system.clone(), self.flags);
        system.read(flags.read).write(flags.write);
        system.append(flags.append).truncate(flags.truncate);
        system.create(flags.create).create_new(flags.create_new);
        system
    }

    /// Opens a file if its name and content are in memory.
    pub(super) fn open_cached(&self, path: &Path) -> Option<File> {
        let flags = self.flags;
        let writes = flags.write || flags.append;
        let changes = flags.truncate || flags.create || flags.create_new;
        if !flags.read || writes || changes || self.has_custom_flags {
            return None;
        }
        let (file, access) = cached::open(path)?;
        Some(File::of_system(file, access))
    }

    pub(super) fn open_on_thread(&self, path: PathBuf) -> io::Result<File> {
        let file = self.to_system().open(path)?;
        let access = access(&file, Access::of);
        Ok(File::of_system(file, access))
    }
}

/// ```
/// let file = polder::fs::File::from(std::fs::File::open("Cargo.toml")?);
/// # std::io::Result::Ok(())
/// ```
impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        let access = access(&file, Access::of_unknown);
        File::of_system(file, access)
    }
}

impl File {
    fn of_system(file: fs::File, access: Access) -> File {
        File(Inner::System(Box::new(SystemFile::new(file, access))))
    }
}

/// An open file of the system. Operations bypass the [`Unblock`] only while it is at rest: no call
/// is in progress, and no bytes or error wait to be taken. So dropped operations keep the
/// guarantees of `Unblock`.
pub(super) struct SystemFile {
    pool: Unblock<Arc<fs::File>>,
    pub(super) file: Arc<fs::File>,
    access: Access,
}

impl SystemFile {
    fn new(file: fs::File, access: Access) -> SystemFile {
        let file = Arc::new(file);
        SystemFile {
            pool: Unblock::new(file.clone()),
            file,
            access,
        }
    }

    /// Calls `f` with the file. `f` uses no position, so it does not wait for an operation in
    /// progress. Fails on a thread that runs a world: there the call would end at a time that the
    /// seed does not determine.
    pub(super) async fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&fs::File) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let file = self.file.clone();
        call_system("a file of the system", move || f(&file)).await
    }

    pub(super) fn try_clone(&self) -> io::Result<SystemFile> {
        Ok(SystemFile::new(self.file.try_clone()?, self.access))
    }

    /// Returns the file, at the position that the program has seen.
    pub(super) async fn into_std(mut self) -> io::Result<fs::File> {
        poll_fn(|cx| self.poll_position(cx)).await?;
        poll_fn(|cx| self.pool.poll_settled(cx)).await?;
        drop(self.pool);
        // A dropped call may still be running.
        Arc::try_unwrap(self.file).or_else(|file| file.try_clone())
    }

    /// Restores the position that the program sees, if a read was dropped.
    fn poll_position(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.pool.is_ahead() {
            return Poll::Ready(Ok(()));
        }
        match ready!(Pin::new(&mut self.pool).poll_seek(cx, SeekFrom::Current(0))) {
            // A pipe or a terminal has no position: the bytes remain to be taken.
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => Poll::Ready(Ok(())),
            sought => Poll::Ready(sought.map(drop)),
        }
    }

    /// Makes one operation without a thread. The result is `None` if that is not possible.
    fn poll_without_thread<R>(
        &mut self,
        cx: &Context<'_>,
        operation: impl FnOnce(&mut Access, &fs::File) -> Option<io::Result<R>>,
    ) -> Poll<Option<io::Result<R>>> {
        if !self.pool.is_at_rest() {
            return Poll::Ready(None);
        }
        if let Err(error) = crate::kernel::permit("a file of the system") {
            return Poll::Ready(Some(Err(error)));
        }
        ready!(consume(cx));
        let result = operation(&mut self.access, &self.file);
        if result.is_none() {
            restore();
        }
        Poll::Ready(result)
    }
}

impl AsyncRead for SystemFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.access.reads() {
            let read = |access: &mut Access, file: &fs::File| access.read(file, bytes).map(Ok);
            if let Some(read) = ready!(self.poll_without_thread(cx, read)) {
                return Poll::Ready(charged(read));
            }
        }
        Pin::new(&mut self.pool).poll_read(cx, bytes)
    }
}

impl AsyncWrite for SystemFile {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_position(cx))?;
        if self.access.writes() {
            let write = |access: &mut Access, file: &fs::File| access.write(file, slices).map(Ok);
            if let Some(written) = ready!(self.poll_without_thread(cx, write)) {
                return Poll::Ready(charged(written));
            }
        }
        Pin::new(&mut self.pool).poll_write_vectored(cx, slices)
    }

    /// Waits until a dropped write or seek has ended.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pool.poll_written(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl AsyncSeek for SystemFile {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        position: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        if self.access.seeks() {
            let seek = |_: &mut Access, mut file: &fs::File| Some(file.seek(position));
            if let Some(sought) = ready!(self.poll_without_thread(cx, seek)) {
                return Poll::Ready(sought);
            }
        }
        Pin::new(&mut self.pool).poll_seek(cx, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_way_is_an_error_that_names_it() {
        assert_eq!(is_cached("".as_ref()), Ok(true));
        assert_eq!(is_cached("cached".as_ref()), Ok(true));
        assert_eq!(is_cached("pool".as_ref()), Ok(false));
        let error = is_cached("ring".as_ref()).unwrap_err();
        assert!(
            error.contains("POLDER_FS") && error.contains("\"ring\""),
            "{error}"
        );
    }
}

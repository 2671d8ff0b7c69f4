//! [`Recorder`]: writes a tape. The worker appends entries to the body of a block, under a lock. A
//! thread takes the body when it has [`BLOCK`] bytes, or each [`AGE`], and writes it to the file.
//! So a process that is killed loses at most the last [`AGE`], and a slow disk does not stop the
//! worker before it has [`QUEUED`] bytes.
//!
//! A child of `fork` has no such thread: its copy of the recording is off.
//!
//! If the file cannot be written, or the limit is reached, the tape ends there: the run goes on
//! unrecorded, and the user is told.

use std::fs::File;
use std::hint;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::shared::{lock, say};
use crate::tape::{self, End, Kept, MAX_ENTRY, Program, Tag, put_head};

const BLOCK: usize = 64 << 10;
const QUEUED: usize = 1 << 20;
const SPINS: usize = 100;
pub(crate) const AGE: Duration = Duration::from_millis(100);

pub(crate) struct Recorder {
    /// Ends when the tape does, before the run.
    is_on: bool,
    /// The socket of the last entry that had one.
    pub(crate) last: Option<u32>,
    limit: u64,
    common: Arc<Common>,
    writer: Option<JoinHandle<()>>,
    /// The process that has the writer.
    process: u32,
}

/// The state that the worker and the writing thread share.
#[derive(Default)]
struct Common {
    body: Mutex<Body>,
    /// That the body is full, was taken, or is the last one.
    changed: Condvar,
}

#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    /// The length of the file with what was taken.
    written: u64,
    is_last: bool,
}

/// Creates the file, which only its owner can read: the tape has what crossed the sockets. A file
/// that is there, such as an older tape, is kept as `path.old`.
fn create(path: &Path) -> io::Result<File> {
    match path.symlink_metadata() {
        Ok(found) if found.is_file() => {
            let mut old = path.as_os_str().to_owned();
            old.push(".old");
            std::fs::rename(path, old)?;
        }
        Ok(_) => {
            let words = "it exists, and is no regular file";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn write_block(file: &mut File, body: &[u8], checksum: &mut u64) -> io::Result<()> {
    file.write_all(&tape::block_head(body, checksum))?;
    file.write_all(body)
}

impl Common {
    /// Writes blocks until the last one, or an error.
    fn write(&self, mut file: File, mut checksum: u64, path: &Path) {
        let ends = Ends(self);
        let (mut taken, mut is_last) = (Vec::new(), false);
        while !is_last {
            let body = lock(&self.body);
            let waits = |body: &mut Body| body.bytes.len() < BLOCK && !body.is_last;
            let waited = self.changed.wait_timeout_while(body, AGE, waits);
            let mut body = waited.unwrap_or_else(PoisonError::into_inner).0;
            is_last = body.is_last;
            if body.bytes.is_empty() {
                continue;
            }
            std::mem::swap(&mut body.bytes, &mut taken);
            body.written += taken.len() as u64 + 12;
            drop(body);
            self.changed.notify_all();
            if let Err(error) = write_block(&mut file, &taken, &mut checksum) {
                drop(ends);
                let words = "ends here, and the run goes on unrecorded";
                say(format_args!("the tape {} {words}: {error}", path.display()));
                return;
            }
            taken.clear();
            taken.shrink_to(2 * BLOCK);
        }
    }

    /// Locks the body, which the writer has for a moment only; `None` in a child of `fork`, which
    /// may have been made in this moment.
    #[inline]
    fn lock(&self, process: u32) -> Option<MutexGuard<'_, Body>> {
        for _ in 0..SPINS {
            match self.body.try_lock() {
                Ok(body) => return Some(body),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => hint::spin_loop(),
            }
        }
        (process::id() == process).then(|| lock(&self.body))
    }
}

/// Ends the recording when the writer ends, also by a panic: the worker does not wait for it.
struct Ends<'a>(&'a Common);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        lock(&self.0.body).is_last = true;
        self.0.changed.notify_all();
    }
}

impl Recorder {
    pub(crate) fn create(path: PathBuf, limit: u64) -> io::Result<Recorder> {
        let mut file = create(&path).map_err(|error| tape::named(&path, &error))?;
        let (mut header, mut checksum) = (Vec::new(), 0);
        Program::current().put(&mut header);
        file.write_all(&tape::beginning())?;
        write_block(&mut file, &header, &mut checksum)?;
        let common = Arc::<Common>::default();
        let of_writer = common.clone();
        lock(&of_writer.body).written = header.len() as u64 + 24;
        let writer = thread::Builder::new().name("polder-replay".to_owned());
        let writer = writer.spawn(move || of_writer.write(file, checksum, &path))?;
        Ok(Recorder {
            is_on: true,
            last: None,
            limit,
            common,
            writer: Some(writer),
            process: process::id(),
        })
    }

    /// Appends an entry, which `put` does.
    #[inline]
    pub(crate) fn entry(&mut self, put: impl FnOnce(&mut Vec<u8>, &mut Option<u32>)) {
        if !self.is_on {
            return;
        }
        let Some(mut body) = self.common.lock(self.process) else {
            self.is_on = false;
            return;
        };
        let begin = body.bytes.len();
        put(&mut body.bytes, &mut self.last);
        let length = body.bytes.len();
        // Only the first entry that fills the block tells the writer, which is a system call.
        let is_full = length >= BLOCK && begin < BLOCK || length > QUEUED;
        if is_full || body.written + length as u64 > self.limit || body.is_last {
            self.is_on = self.end_entry(body, begin);
        }
    }

    /// Returns whether there is to be another entry.
    #[cold]
    fn end_entry(&self, mut body: MutexGuard<'_, Body>, begin: usize) -> bool {
        let length = body.bytes.len();
        let end = if body.is_last || process::id() != self.process {
            return false;
        } else if body.written + length as u64 > self.limit {
            End::Limit
        } else if length - begin > MAX_ENTRY {
            End::TooLarge
        } else {
            self.common.changed.notify_all();
            let waits = |body: &mut Body| body.bytes.len() > QUEUED && !body.is_last;
            drop(self.common.changed.wait_while(body, waits));
            return true;
        };
        body.bytes.truncate(begin);
        put_head(&mut body.bytes, Tag::End, None, &mut None);
        end.put(&mut body.bytes);
        drop(body);
        say(format_args!("the tape ends here: {}", end.words()));
        false
    }
}

/// Has the rest written.
impl Drop for Recorder {
    fn drop(&mut self) {
        if process::id() != self.process {
            return;
        }
        if let Some(mut body) = self.common.lock(self.process) {
            body.is_last = true;
        }
        self.common.changed.notify_all();
        self.writer.take().map(JoinHandle::join);
    }
}

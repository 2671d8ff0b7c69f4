//! [`Recorder`]: the side of a deck that asks the system. It writes entries to the end of a block.
//! A thread writes whole blocks to the file, so that a slow disk does not stop the worker before
//! [`QUEUED`] blocks wait.
//!
//! A block is handed over when it has [`BLOCK`] bytes, after a turn when the last one was handed
//! over [`AGE`] ago, and at the end, which may be a call of `exit`. While the worker sleeps, the
//! thread has access to what was not handed over: a lock for each sleep, and no timer. A process
//! that is killed loses at most the last [`AGE`]; if its worker has not slept since, the last
//! [`AGE`] before it blocked or began to loop.
//!
//! A child of `fork` has no such thread: its copy of the recording is off.
//!
//! If the file cannot be written, or the limit is reached, the tape ends there: the run goes on
//! unrecorded, and the user is told.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polder::kernel::{CLOSED, ERROR, READABLE, WRITABLE};
use polder::poller::{Events, Interest, Mode, Token};
use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};

use crate::deck::{Ask, Given, Shared, lock};
use crate::tape::{self, End, MAX_BLOCK, Program, Tag, Told};

const BLOCK: usize = 64 << 10;
const QUEUED: usize = 16;
const AGE: Duration = Duration::from_millis(100);
/// Tokens of signals, by their numbers; those of sockets are their numbers.
const SIGNALS: u64 = 1 << 40;

pub(crate) struct Recorder {
    /// Ends when the tape does, before the run.
    is_on: bool,
    body: Vec<u8>,
    last: Option<u32>,
    /// The bytes that were handed over, and their limit.
    written: u64,
    limit: u64,
    /// The length from which the body is looked at.
    full: usize,
    to: Option<SyncSender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    common: Arc<Common>,
    shared: Arc<Shared>,
    /// The process that has the writer.
    process: u32,
    handed_over: Instant,
    /// Reported by the poller, and not taken by the worker yet.
    queue: VecDeque<(u32, u8)>,
    taken: Vec<(u32, u8)>,
    events: Events,
    /// One pipe for each signal, a byte of which is one arrival.
    signals: BTreeMap<usize, (UnixStream, SigId)>,
    /// Arrived, and not delivered yet.
    arrived: VecDeque<(usize, u64)>,
    /// Done, and not delivered yet.
    done: VecDeque<(u64, Vec<u8>)>,
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
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it exists, and is no regular file",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// What the worker and the thread that writes have in common.
#[derive(Default)]
struct Common {
    has_failed: AtomicBool,
    /// What a worker that sleeps has not handed over.
    left: Mutex<Vec<u8>>,
}

impl Common {
    /// Returns the next block; `None` at the end of the recording.
    fn next(&self, blocks: &Receiver<Vec<u8>>) -> Option<Vec<u8>> {
        match blocks.recv_timeout(AGE) {
            Ok(body) => Some(body),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let mut left = lock(&self.left);
                // Blocks that were handed over before this sleep come first.
                Some((blocks.try_recv()).unwrap_or_else(|_| std::mem::take(&mut *left)))
            }
        }
    }

    /// Writes blocks until the channel is closed, or the disk fails.
    fn write(&self, mut file: File, path: &Path, blocks: &Receiver<Vec<u8>>) {
        let mut checksum = 0;
        while let Some(body) = self.next(blocks) {
            if body.is_empty() {
                continue;
            }
            let head = tape::block_head(&body, &mut checksum);
            if let Err(error) = file.write_all(&head).and_then(|()| file.write_all(&body)) {
                self.has_failed.store(true, Ordering::Relaxed);
                eprintln!(
                    "polder-replay: the tape {} ends here, and the run goes on unrecorded: {error}",
                    path.display()
                );
                return;
            }
        }
    }
}

impl Recorder {
    pub(crate) fn create(path: PathBuf, limit: u64, shared: Arc<Shared>) -> io::Result<Recorder> {
        let mut file = create(&path).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the tape {}: {error}", path.display()),
            )
        })?;
        file.write_all(&tape::beginning())?;
        let (to, blocks) = sync_channel(QUEUED);
        let common = Arc::<Common>::default();
        let of_writer = common.clone();
        let writer = thread::Builder::new().name("polder-replay".to_owned());
        let writer = writer.spawn(move || of_writer.write(file, &path, &blocks))?;
        let mut recorder = Recorder {
            is_on: true,
            body: Vec::with_capacity(BLOCK + 4_096),
            last: None,
            written: 0,
            limit,
            full: 0,
            to: Some(to),
            writer: Some(writer),
            common,
            shared,
            process: std::process::id(),
            handed_over: Instant::now(),
            queue: VecDeque::new(),
            taken: Vec::new(),
            events: Events::new(),
            signals: BTreeMap::new(),
            arrived: VecDeque::new(),
            done: VecDeque::new(),
        };
        tape::put_value(&mut recorder.body, &Program::current());
        recorder.hand_over();
        Ok(recorder)
    }

    /// Appends an entry, to which `put` adds the result.
    #[inline]
    pub(crate) fn entry(&mut self, ask: &Ask, put: impl FnOnce(&mut Vec<u8>)) {
        if !self.is_on {
            return;
        }
        let begin = self.body.len();
        tape::put_head(&mut self.body, ask.tag, ask.socket, &mut self.last);
        ask.argument.put(&mut self.body);
        put(&mut self.body);
        self.end_entry(begin);
    }

    #[inline]
    pub(crate) fn clock(&mut self, since_last: Duration) {
        if self.is_on {
            let begin = self.body.len();
            let nanos = u64::try_from(since_last.as_nanos()).unwrap_or(u64::MAX) & (u64::MAX >> 1);
            tape::put_number(&mut self.body, nanos << 1 | 1);
            self.end_entry(begin);
        }
    }

    fn plain(&mut self, tag: Tag, put: impl FnOnce(&mut Vec<u8>, &mut Option<u32>)) {
        if self.is_on {
            let begin = self.body.len();
            tape::put_head(&mut self.body, tag, None, &mut self.last);
            put(&mut self.body, &mut self.last);
            self.end_entry(begin);
        }
    }

    pub(crate) fn task(&mut self, told: &Told) {
        self.plain(Tag::Task, |to, _| tape::put_task(to, told));
    }

    pub(crate) fn remark(&mut self, words: &str) {
        self.plain(Tag::Notice, |to, _| tape::put_bytes(to, words.as_bytes()));
    }

    pub(crate) fn end(&mut self, end: End) {
        if self.is_on {
            tape::put_head(&mut self.body, Tag::End, None, &mut self.last);
            tape::put_value(&mut self.body, &end);
            self.hand_over();
            self.is_on = false;
        }
    }

    #[inline]
    fn end_entry(&mut self, begin: usize) {
        if self.body.len() >= self.full {
            self.end_block(begin);
        }
    }

    #[cold]
    fn end_block(&mut self, begin: usize) {
        let is_over = self.written + self.body.len() as u64 > self.limit;
        let end = if is_over {
            End::Limit
        } else if self.body.len() > MAX_BLOCK {
            End::TooLarge
        } else {
            return self.hand_over();
        };
        self.body.truncate(begin);
        eprintln!("polder-replay: the tape ends here: {}", end.words());
        self.end(end);
    }

    fn hand_over(&mut self) {
        let body = std::mem::replace(&mut self.body, Vec::with_capacity(BLOCK + 4_096));
        self.count(body.len());
        let sent = (self.to.as_ref()).is_some_and(|to| self.has_writer() && to.send(body).is_ok());
        self.is_on &= sent && !self.common.has_failed.load(Ordering::Relaxed);
    }

    fn has_writer(&self) -> bool {
        std::process::id() == self.process
    }

    /// A block of this length is handed over.
    fn count(&mut self, length: usize) {
        self.handed_over = Instant::now();
        self.written += length as u64 + 12;
        let left = self.limit.saturating_sub(self.written);
        self.full = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
    }

    /// Ends the registration of a socket, and drops its events: another may get the number before
    /// they are taken.
    pub(crate) fn deregister(&mut self, id: u32, socket: &socket2::Socket) {
        self.queue.retain(|(socket, _)| *socket != id);
        if let Some(poller) = &self.shared.poller {
            // It fails only for what is not registered.
            let _ = poller.deregister(socket);
        }
    }

    /// Waits until `deadline`, an event or a notification. Only asks for events if the worker has
    /// more to do.
    pub(crate) fn sleep(&mut self, deadline: Option<Instant>, now: Instant) {
        let has_left = self.is_on && !self.body.is_empty();
        if has_left && now.saturating_duration_since(self.handed_over) > AGE {
            self.hand_over();
        }
        let waits = !self.shared.take_woken() && self.queue.is_empty();
        let Some(poller) = &self.shared.poller else {
            return;
        };
        let waited = if waits {
            let until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
            let length = self.body.len();
            *lock(&self.common.left) = std::mem::take(&mut self.body);
            let waited = poller.wait(&mut self.events, deadline.map(until));
            self.body = std::mem::take(&mut *lock(&self.common.left));
            if self.body.is_empty() && length > 0 {
                self.count(length);
            }
            waited
        } else {
            poller.wait(&mut self.events, Some(Duration::ZERO))
        };
        if let Err(error) = waited {
            eprintln!("polder-replay: waiting for events failed: {error}");
            thread::sleep(Duration::from_millis(1));
        }
        for event in &self.events {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let flags = flag(event.is_readable(), READABLE)
                | flag(event.is_writable(), WRITABLE)
                | flag(event.is_closed(), CLOSED)
                | flag(event.is_error(), ERROR);
            match event.token().0.checked_sub(SIGNALS) {
                None => self.queue.push_back((event.token().0 as u32, flags)),
                Some(number) => {
                    let Some((pipe, _)) = self.signals.get_mut(&(number as usize)) else {
                        continue;
                    };
                    let (mut bytes, mut count) = ([0; 64], 0);
                    while let Ok(length @ 1..) = pipe.read(&mut bytes) {
                        count += length as u64;
                    }
                    if count > 0 {
                        self.arrived.push_back((number as usize, count));
                    }
                }
            }
        }
    }

    /// Moves at most `limit` events to `events`, of sockets that the program has registered, which
    /// then have a token.
    pub(crate) fn events(
        &mut self,
        limit: usize,
        events: &mut Vec<(u64, u8)>,
        token: impl Fn(u32) -> Option<u64>,
    ) {
        self.taken.clear();
        while self.taken.len() < limit {
            let Some((socket, flags)) = self.queue.pop_front() else {
                break;
            };
            if let Some(token) = token(socket) {
                self.taken.push((socket, flags));
                events.push((token, flags));
            }
        }
        if !self.taken.is_empty() {
            let taken = std::mem::take(&mut self.taken);
            self.plain(Tag::Wait, |to, last| tape::put_events(to, &taken, last));
            self.taken = taken;
        }
    }

    /// Whether signals or results wait to be delivered.
    pub(crate) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty() || !self.done.is_empty()
    }

    /// Returns the next thing that has come from elsewhere.
    pub(crate) fn delivery(&mut self) -> Option<Given> {
        self.done.extend(self.shared.take_done());
        if let Some((id, result)) = self.done.pop_front() {
            self.plain(Tag::JobDone, |to, _| {
                tape::put_number(to, id);
                tape::put_bytes(to, &result);
            });
            return Some(Given::Job(id, result));
        }
        let (number, count) = self.arrived.pop_front()?;
        self.plain(Tag::Signals, |to, _| {
            tape::put_number(to, number as u64);
            tape::put_number(to, count);
        });
        Some(Given::Signals(number, count))
    }

    /// Begins to count a signal.
    pub(crate) fn listen(&mut self, number: usize) -> io::Result<()> {
        let (Some(poller), false) = (&self.shared.poller, self.signals.contains_key(&number))
        else {
            return Ok(());
        };
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let id = pipe::register(number as i32, far)?;
        // SAFETY: `drop` deregisters the pipe before it closes it; one that cannot be registered
        // is closed at once.
        let registered = unsafe {
            poller.register(
                &near,
                Token(SIGNALS + number as u64),
                Interest::READABLE,
                Mode::Edge,
            )
        };
        if let Err(error) = registered {
            unregister(id);
            return Err(error);
        }
        self.signals.insert(number, (near, id));
        Ok(())
    }
}

/// Hands the rest over, waits for the thread that writes, and closes the pipes of signals.
impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.body.is_empty() {
            self.hand_over();
        }
        drop(self.to.take());
        for (pipe, id) in self.signals.values() {
            unregister(*id);
            if let Some(poller) = &self.shared.poller {
                // It fails only for what is not registered.
                let _ = poller.deregister(pipe);
            }
        }
        if let (Some(writer), true) = (self.writer.take(), self.has_writer()) {
            let _ = writer.join();
        }
    }
}

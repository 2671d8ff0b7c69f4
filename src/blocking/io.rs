//! [`Unblock`]: reading, writing, seeking and iterating on threads of the [pool](super::pool).
//!
//! Each operation is one [`Call`] of the pool, which locks the value. There is at most one, so the
//! lock is never waited for: without a call in progress the task has the value to itself
//! ([`Unblock::get_mut`]). Foreign code runs under that lock, so its poisoning is ignored.
//!
//! **If an operation's future is dropped**, its call continues, and stays here until the next
//! operation has awaited its end ([`Unblock::poll_idle`]). Bytes that were read, an end of the file
//! and an item are kept for the next read. The result of a write is kept until another operation
//! begins or a flush ends: if the next operation writes the same bytes, it gets that result, so a
//! write that is dropped and repeated is made once. So is a seek, if it is repeated next. Errors
//! are kept until an operation can return them, or a seek makes a read's error obsolete.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, LockResult, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};
use futures_lite::stream::Stream;

use super::pool::{Call, Class, POOL};
use crate::scheduler::budget::{consume, restore};
use crate::sync::contain;
use crate::sys;

/// The default maximum number of bytes of a call. tokio's for files; larger calls are not cheaper
/// per byte.
const MAX_BYTES: usize = 2 << 20;

/// The maximum number of bytes kept between operations. A program may have thousands of files open,
/// each after one large read, whose allocation costs far less than the read.
const MAX_KEPT: usize = 64 << 10;

/// The pauses between attempts of an operation that would block, if nothing reports readiness. They
/// double from the first to the second: a value that is soon ready is not delayed, and one that
/// waits for hours costs fifty calls a second.
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// How long `poll` waits for a descriptor at a time, after which a dropped value is noticed.
const MAX_WAIT: Duration = Duration::from_secs(1);

const CLOSED: &str = "this Unblock has been closed";

/// An adapter that makes a blocking value asynchronous: its operations run on the pool of
/// [`unblock`](crate::unblock).
///
/// It implements [`AsyncRead`], [`AsyncWrite`], [`AsyncSeek`] or [`Stream`] if the value implements
/// [`Read`], [`Write`], [`Seek`] or [`Iterator`]. For standard input and output:
///
/// ```
/// use polder::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Unblock};
/// use polder::stream::StreamExt;
///
/// polder::block_on(async {
///     let mut lines = BufReader::new(Unblock::new(std::io::stdin())).lines();
///     let mut output = Unblock::new(std::io::stdout());
///     while let Some(line) = lines.next().await {
///         output.write_all(format!("{}\n", line?.to_uppercase()).as_bytes()).await?;
///     }
///     output.flush().await // The standard library buffers, too.
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// For files use [`fs::File`](../fs/struct.File.html).
///
/// # Notes
///
/// * **A pending read of standard input occupies a thread** until a line or the end is read: it
///   cannot be cancelled, even by dropping the `Unblock`. Make only one `Unblock` of it, and keep
///   it. The thread does not keep the process from exiting.
/// * Each read, write and item is a call on a thread, which costs some ten microseconds. For small
///   pieces use [`BufReader`](crate::io::BufReader) and [`BufWriter`](crate::io::BufWriter); for an
///   iterator with many items, one [`unblock`](crate::unblock) that takes them in batches.
/// * **One operation at a time.** Each waits for the previous one, so the halves of
///   [`split`](crate::io::split) are for one task. If a value has two directions (a pipe), wrap a
///   clone for each.
/// * A completed write was passed to the value; `flush` also empties the value's own buffer.
/// * **A value that would block is waited for**, such as standard output that another program has
///   made non-blocking: futures-io forbids [`WouldBlock`](io::ErrorKind::WouldBlock). On Unix this
///   uses poll(2) for the standard library's files, standard streams, pipes of children and
///   sockets; otherwise attempts with pauses of up to 20 ms. The wait occupies a thread, until a
///   second after the `Unblock` is dropped. So a socket's read timeout is not reported (use
///   [`time::timeout`](crate::time::timeout)). Results of [`with_mut`](Unblock::with_mut) and items
///   are returned unchanged.
/// * In a simulated world operations return [`Unsupported`](io::ErrorKind::Unsupported);
///   [`unblock`](crate::unblock) is simulated.
///
/// # Errors
///
/// The value's own errors; an error if there is no thread and none can be started, if it was
/// closed, or in a simulated world.
///
/// # Panics
///
/// The awaiting task, or the next operation, resumes a panic of the value, which is kept.
///
/// # Cancel safety
///
/// Cancel safe: dropping a read loses no bytes, and dropping the future of an item no item; the
/// next one returns them, or the end. A dropped write or seek may still be made. If the next
/// operation writes the same bytes, or makes the same seek, it takes the result of the dropped one,
/// so that is made once. Any other operation waits for the dropped one, and returns its error. A
/// write is not made if the `Unblock` is dropped before a thread has begun it: flush first. A seek,
/// and the function of [`with_mut`](Unblock::with_mut), runs to its end once a thread has begun it,
/// and is cancelled if the `Unblock` is dropped before. A seek accounts for bytes of a dropped
/// read; a write to a value with one position for both (a file) does not.
#[doc(alias("AllowStdIo", "stderr", "stdin", "stdout"))]
pub struct Unblock<T> {
    /// `None` if it was closed.
    value: Option<Arc<Mutex<T>>>,
    call: Option<(Kind, Call<Returned>)>,
    capacity: usize,
    /// Bytes that were read and not taken, at `range`. The buffer is reused.
    buffer: Vec<u8>,
    range: Range<usize>,
    /// The end or the error that a dropped read has found.
    read_end: Option<Moved>,
    /// An `Option<T::Item>` that was not taken. An item need not be `Sync`.
    item: Mutex<Option<Output>>,
    /// The bytes of a completed write, and the number written.
    written: Option<(Vec<u8>, usize)>,
    /// The error of a completed write or flush.
    failure: Option<io::Error>,
    /// Whether something may have been written since the last flush.
    must_flush: bool,
    /// Whether a seek failed since the value has no position: a pipe, a terminal.
    has_no_position: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Read,
    Write,
    Flush,
    Seek(SeekFrom),
    Next,
    Function,
}

/// The output of [`Unblock::with_mut`]'s function, or an iterator's item.
type Output = Box<dyn Any + Send>;

type Moved = io::Result<u64>;

type Done = (Moved, Option<Output>);

/// The bytes that were read or written, the result and the output; or a panic of the value.
type Returned = (Vec<u8>, thread::Result<Done>);

struct Ended {
    kind: Kind,
    result: Moved,
    buffer: Vec<u8>,
    output: Option<Output>,
}

fn unpoisoned<R>(locked: LockResult<R>) -> R {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// Fails in a simulated world: the seed does not determine when another thread finishes.
fn check() -> io::Result<()> {
    crate::kernel::permit("a file of the system, or io::Unblock")
}

/// Repeats `operation` while it is interrupted or, if it `is_wanted`, would block: futures-io
/// forbids both errors. Such a call has moved no bytes, by the contracts of [`Read`] and [`Write`].
fn repeat<T: 'static>(
    value: &mut T,
    kind: Kind,
    is_wanted: impl Fn() -> bool,
    mut operation: impl FnMut(&mut T) -> Done,
) -> Done {
    let mut pause = Duration::ZERO;
    loop {
        let done = operation(value);
        match done.0.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::Interrupted) => {}
            Err(io::ErrorKind::WouldBlock) if is_wanted() => {
                let waited = sys::wait_for_value(value, kind != Kind::Read, MAX_WAIT);
                // Pauses if the descriptor is unknown, or if `poll` and the operation disagree.
                if waited.unwrap_or(true) {
                    thread::sleep(pause);
                    pause = (2 * pause).clamp(MIN_PAUSE, MAX_PAUSE);
                }
            }
            _ => return done,
        }
    }
}

fn begin_with(slices: &[IoSlice<'_>], mut start: &[u8]) -> bool {
    for slice in slices {
        let (part, rest) = start.split_at(start.len().min(slice.len()));
        if !slice.starts_with(part) {
            return false;
        }
        start = rest;
    }
    start.is_empty()
}

impl<T> Unblock<T> {
    /// Wraps a value.
    ///
    /// ```
    /// use polder::io::Unblock;
    ///
    /// let input = Unblock::new(std::io::stdin());
    /// ```
    pub fn new(value: T) -> Unblock<T> {
        Unblock::with_capacity(MAX_BYTES, value)
    }

    /// Wraps a value; one call reads or writes at most `capacity` bytes (0 counts as 1). The
    /// default is 2 MiB. At most 64 KiB of memory are kept between operations.
    ///
    /// ```
    /// use polder::io::Unblock;
    ///
    /// let output = Unblock::with_capacity(64 * 1024, std::io::stdout());
    /// ```
    pub fn with_capacity(capacity: usize, value: T) -> Unblock<T> {
        Unblock {
            value: Some(Arc::new(Mutex::new(value))),
            call: None,
            capacity: capacity.max(1),
            buffer: Vec::new(),
            range: 0..0,
            read_end: None,
            item: Mutex::new(None),
            written: None,
            failure: None,
            must_flush: true,
            has_no_position: false,
        }
    }

    /// Returns the value, once no thread uses it.
    ///
    /// ```
    /// use polder::io::Unblock;
    ///
    /// polder::block_on(async {
    ///     let mut file = Unblock::new(std::fs::File::open("Cargo.toml")?);
    ///     assert!(file.get_mut().await.metadata()?.is_file());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// The next operation reports the error of a dropped write. Bytes of a dropped read are kept
    /// for the next read.
    ///
    /// # Panics
    ///
    /// If it was closed, or if a call was in progress when the process forked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn get_mut(&mut self) -> &mut T {
        let settled = poll_fn(|cx| self.poll_idle(cx)).await;
        settled.unwrap_or_else(|error| panic!("{error}"));
        (self.written, self.must_flush) = (None, true);
        let value = self.value.as_mut().expect(CLOSED);
        let value = Arc::get_mut(value).expect("no call is in progress");
        unpoisoned(value.get_mut())
    }

    /// Calls `operation` with the value, on the blocking pool. Otherwise like
    /// [`get_mut`](Self::get_mut).
    ///
    /// ```
    /// use polder::io::Unblock;
    ///
    /// polder::block_on(async {
    ///     let mut file = Unblock::new(std::fs::File::open("Cargo.toml")?);
    ///     let metadata = file.with_mut(|file| file.metadata()).await?;
    ///     assert!(metadata.is_file());
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `operation` does, if it was closed, if there is no thread and none can be started, or in
    /// a simulated world.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before `operation` was passed to the pool, it is not called.
    /// Afterwards it runs to its end (unless the `Unblock` is dropped before it begins), its result
    /// is lost, and the next use of the `Unblock` waits for it.
    pub async fn with_mut<R, F>(&mut self, operation: F) -> R
    where
        F: FnOnce(&mut T) -> R + Send + 'static,
        R: Send + 'static,
        T: Send + 'static,
    {
        self.get_mut().await;
        let mut operation = Some(operation);
        let begun = self.begin(Kind::Function, Vec::new(), move |value, _| {
            let operation = operation.take().expect("it is called once");
            (Ok(0), Some(Box::new(operation(value))))
        });
        let called = match begun {
            Ok(()) => poll_fn(|cx| self.poll_end(cx)).await,
            Err(error) => Err(error),
        };
        let ended = called.unwrap_or_else(|error| panic!("{error}"));
        let output = ended.output.and_then(|output| output.downcast().ok());
        *output.expect("the function has returned")
    }

    /// Returns the value, once no thread uses it. The bytes of a dropped read, and the error of a
    /// dropped write, are lost: flush before.
    ///
    /// ```
    /// use polder::io::{AsyncWriteExt, Unblock};
    ///
    /// polder::block_on(async {
    ///     let mut output = Unblock::new(Vec::new());
    ///     output.write_all(b"bytes").await?;
    ///     assert_eq!(output.into_inner().await, b"bytes");
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`get_mut`](Self::get_mut).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future drops the value.
    pub async fn into_inner(mut self) -> T {
        self.get_mut().await;
        let value = self.value.take().expect(CLOSED);
        let value = Arc::into_inner(value).expect("no call is in progress");
        unpoisoned(value.into_inner())
    }

    /// Whether a dropped read has moved, or may still move, the value's position past the task's.
    pub(crate) fn is_ahead(&self) -> bool {
        let is_ahead = !self.range.is_empty() || self.is_in(Kind::Read);
        is_ahead && !self.has_no_position
    }

    /// Whether nothing is in progress, nor kept for the next operation.
    #[cfg(feature = "fs")]
    pub(crate) fn is_at_rest(&self) -> bool {
        let has_read = !self.range.is_empty() || self.read_end.is_some();
        let has_written = self.written.is_some() || self.failure.is_some();
        self.call.is_none() && !has_read && !has_written
    }

    fn poll_end(&mut self, cx: &Context<'_>) -> Poll<io::Result<Ended>> {
        check()?;
        let (kind, call) = self.call.as_ref().expect("an operation is in progress");
        let kind = *kind;
        ready!(consume(cx));
        let Poll::Ready(ended) = call.poll_output(cx) else {
            restore();
            return Poll::Pending;
        };
        // If it fails the call stays, so that later operations fail, too.
        let (mut buffer, outcome) = ended?;
        self.call = None;
        let (result, mut output) = outcome.unwrap_or_else(|panic| resume_unwind(panic));
        match (kind, &result) {
            (Kind::Read, Ok(length)) => {
                self.range = 0..buffer.len().min(*length as usize);
                self.buffer = std::mem::take(&mut buffer);
                self.trim();
            }
            (Kind::Seek(_), Ok(_)) => {
                (self.range, self.read_end) = (0..0, None);
                self.trim();
            }
            (Kind::Seek(_), Err(error)) if error.kind() == io::ErrorKind::NotSeekable => {
                self.has_no_position = true;
            }
            (Kind::Next, _) => *unpoisoned(self.item.get_mut()) = output.take(),
            (Kind::Flush, Ok(_)) => self.must_flush = false,
            _ => {}
        }
        Poll::Ready(Ok(Ended {
            kind,
            result,
            buffer,
            output,
        }))
    }

    /// Waits until no operation is in progress. Keeps the result of a write, and an error.
    fn poll_idle(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if self.call.is_none() {
            return Poll::Ready(Ok(()));
        }
        let ended = ready!(self.poll_end(cx))?;
        // A function's output has a foreign destructor.
        contain(|| drop(ended.output));
        match (ended.kind, ended.result) {
            (Kind::Write, Ok(length)) => {
                let length = ended.buffer.len().min(length as usize);
                self.written = Some((ended.buffer, length));
            }
            (Kind::Read, end @ (Ok(0) | Err(_))) => self.read_end = Some(end),
            (Kind::Write | Kind::Flush, Err(error)) => self.failure = Some(error),
            (Kind::Seek(_), Err(error)) if !self.has_no_position => self.failure = Some(error),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }

    /// [`poll_idle`](Self::poll_idle), and returns the error of the last operation.
    fn poll_enter(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_idle(cx))?;
        Poll::Ready(self.report())
    }

    fn report(&mut self) -> io::Result<()> {
        match self.failure.take() {
            Some(error) => {
                self.written = None;
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Waits for a dropped operation other than a read, which may never end. Discards the result of
    /// a write.
    pub(crate) fn poll_written(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if self.call.is_some() && !self.is_in(Kind::Read) && !self.is_in(Kind::Next) {
            ready!(self.poll_idle(cx))?;
        }
        self.written = None;
        Poll::Ready(self.report())
    }

    /// [`poll_enter`](Self::poll_enter), and fails if a dropped read has left bytes.
    pub(crate) fn poll_settled(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_enter(cx))?;
        if self.range.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let words = "bytes that a dropped read has brought would be lost: read them first";
        Poll::Ready(Err(io::Error::other(words)))
    }

    fn is_in(&self, kind: Kind) -> bool {
        matches!(&self.call, Some((current, _)) if *current == kind)
    }

    /// Returns the result of the last operation, if that was a write of these bytes.
    fn take_written(&mut self, slices: &[IoSlice<'_>]) -> Option<usize> {
        let (buffer, length) = self.written.take()?;
        // Zero counts only for a repetition of the whole write.
        let is_same = match length {
            0 => begin_with(slices, &buffer),
            _ => begin_with(slices, &buffer[..length]),
        };
        if self.range.is_empty() {
            self.buffer = buffer;
            self.trim();
        }
        is_same.then_some(length)
    }

    fn trim(&mut self) {
        if self.range.is_empty() && self.buffer.capacity() > MAX_KEPT {
            self.buffer = Vec::new();
        }
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        if self.range.is_empty() {
            std::mem::take(&mut self.buffer)
        } else {
            Vec::new()
        }
    }
}

impl<T: Send + 'static> Unblock<T> {
    /// An error changes nothing.
    fn begin<F>(&mut self, kind: Kind, mut buffer: Vec<u8>, mut operation: F) -> io::Result<()>
    where
        F: FnMut(&mut T, &mut Vec<u8>) -> Done + Send + 'static,
    {
        check()?;
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, CLOSED);
        let value = self.value.clone().ok_or_else(closed)?;
        let call = POOL.get().call(Class::Call, move || {
            // Once the `Unblock` is dropped or closed, this is the only owner.
            let is_wanted = || Arc::strong_count(&value) > 1;
            let repeated = || {
                let mut locked = unpoisoned(value.lock());
                repeat(&mut *locked, kind, is_wanted, |value| {
                    operation(value, &mut buffer)
                })
            };
            let outcome = catch_unwind(AssertUnwindSafe(repeated));
            (buffer, outcome)
        })?;
        self.call = Some((kind, call));
        if kind != Kind::Flush {
            self.written = None;
        }
        Ok(())
    }
}

/// Does not wait for a thread that uses the value.
impl<T: fmt::Debug> fmt::Debug for Unblock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, &self.call) {
            (None, _) => f.write_str("Unblock { io: <closed> }"),
            (_, Some(_)) => f.write_str("Unblock { io: <blocked> }"),
            (Some(value), None) => {
                let value = unpoisoned(value.lock());
                f.debug_struct("Unblock").field("io", &*value).finish()
            }
        }
    }
}

impl<T: Iterator + Send + 'static> Unblock<T>
where
    T::Item: Send + 'static,
{
    pub(crate) fn poll_item(&mut self, cx: &Context<'_>) -> Poll<io::Result<Option<T::Item>>> {
        loop {
            if let Some(item) = unpoisoned(self.item.get_mut()).take() {
                let item = item.downcast().ok();
                return Poll::Ready(Ok(*item.expect("it is the iterator's")));
            }
            if self.value.is_none() {
                return Poll::Ready(Ok(None));
            }
            if self.call.is_none() {
                self.begin(Kind::Next, Vec::new(), |value, _| {
                    (Ok(0), Some(Box::new(value.next())))
                })?;
            }
            ready!(self.poll_idle(cx))?;
        }
    }
}

/// # Panics
///
/// The iterator's own; if there is no thread and none can be started; in a simulated world.
impl<T: Iterator + Send + 'static> Stream for Unblock<T>
where
    T::Item: Send + 'static,
{
    type Item = T::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T::Item>> {
        let item = ready!(self.poll_item(cx));
        Poll::Ready(item.unwrap_or_else(|error| panic!("{error}")))
    }
}

impl<T: Read + Send + 'static> AsyncRead for Unblock<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut has_consumed = false;
        while !bytes.is_empty() {
            if !this.is_in(Kind::Read) {
                ready!(this.poll_enter(cx))?;
                this.written = None;
                if !this.range.is_empty() {
                    if !has_consumed {
                        ready!(consume(cx));
                    }
                    let length = (&this.buffer[this.range.clone()]).read(bytes)?;
                    this.range.start += length;
                    this.trim();
                    return Poll::Ready(Ok(length));
                }
                if let Some(end) = this.read_end.take() {
                    return Poll::Ready(end.map(|_| 0));
                }
                let length = bytes.len().min(this.capacity);
                let mut buffer = this.take_buffer();
                if buffer.capacity() < length {
                    buffer = vec![0; length]; // By `calloc`, which need not write zeroes.
                }
                buffer.resize(length, 0);
                this.begin(Kind::Read, buffer, |value, buffer| {
                    (value.read(buffer).map(|length| length as u64), None)
                })?;
            }
            if ready!(this.poll_end(cx))?.result? == 0 {
                break;
            }
            has_consumed = true;
        }
        Poll::Ready(Ok(0))
    }
}

impl<T: Write + Send + 'static> AsyncWrite for Unblock<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        while slices.iter().any(|slice| !slice.is_empty()) {
            ready!(this.poll_enter(cx))?;
            if let Some(length) = this.take_written(slices) {
                return Poll::Ready(Ok(length));
            }
            let mut buffer = this.take_buffer();
            buffer.clear();
            for slice in slices {
                let room = this.capacity - buffer.len();
                buffer.extend_from_slice(&slice[..slice.len().min(room)]);
            }
            this.begin(Kind::Write, buffer, |value, buffer| {
                (value.write(buffer).map(|length| length as u64), None)
            })?;
            this.must_flush = true;
        }
        Poll::Ready(Ok(0))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        check()?;
        let this = self.get_mut();
        while this.must_flush {
            ready!(this.poll_enter(cx))?;
            if this.must_flush {
                this.begin(Kind::Flush, Vec::new(), |value, _| {
                    (value.flush().map(|()| 0), None)
                })?;
            }
        }
        this.poll_written(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        // The call of a dropped read may be left.
        (self.value, self.call) = (None, None);
        Poll::Ready(Ok(()))
    }
}

/// Seeks relative to the value's position. A value whose position does not change has none,
/// although seeking succeeds: Linux's `noop_llseek`, of an eventfd, `/dev/random` and others.
fn seek_by(value: &mut impl Seek, by: i64) -> io::Result<u64> {
    let before = value.stream_position()?;
    let after = value.seek(SeekFrom::Current(by))?;
    if by != 0 && after == before {
        return Err(io::ErrorKind::NotSeekable.into());
    }
    Ok(after)
}

impl<T: Seek + Send + 'static> AsyncSeek for Unblock<T> {
    fn poll_seek(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        position: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        let this = self.get_mut();
        if !this.is_in(Kind::Seek(position)) {
            ready!(this.poll_enter(cx))?;
            // The value's position is ahead by the bytes that were not taken.
            let ahead = this.range.len() as i64;
            let seek = move |value: &mut T, _: &mut Vec<u8>| {
                let sought = match position {
                    SeekFrom::Current(by) if ahead > 0 => seek_by(value, by.saturating_sub(ahead)),
                    other => value.seek(other),
                };
                (sought, None)
            };
            this.begin(Kind::Seek(position), Vec::new(), seek)?;
        }
        Poll::Ready(ready!(this.poll_end(cx))?.result)
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

    use super::*;
    use crate::block_on;

    #[test]
    fn memory_of_a_large_operation_is_not_kept() {
        block_on(async {
            let large = vec![7; 4 * MAX_KEPT];
            let mut file = Unblock::new(io::Cursor::new(large.clone()));
            let mut bytes = large.clone();
            let kept = |file: &Unblock<_>| file.buffer.capacity();
            assert_eq!(file.read(&mut bytes[..100]).await.unwrap(), 100);
            assert!((100..=MAX_KEPT).contains(&kept(&file)), "small");
            file.seek(SeekFrom::Start(0)).await.unwrap();
            file.read_exact(&mut bytes).await.unwrap();
            assert_eq!(kept(&file), 0, "after a read");
            assert_eq!(file.read(&mut bytes).await.unwrap(), 0);
            assert_eq!(kept(&file), 0, "after the end");
            file.seek(SeekFrom::Start(0)).await.unwrap();
            file.write_all(&large).await.unwrap();
            assert_eq!(kept(&file), 0, "after a write");
            file.write_all(&large[..MAX_KEPT]).await.unwrap();
            assert_eq!(kept(&file), MAX_KEPT, "it is used again");
            file.seek(SeekFrom::Start(0)).await.unwrap();
            let _ = futures_lite::future::poll_once(file.read(&mut bytes)).await;
            file.seek(SeekFrom::Start(0)).await.unwrap();
            assert_eq!(kept(&file), 0, "after a seek that makes bytes obsolete");
        });
    }
}

//! [`Unblock`]: reading, writing, seeking and iterating on threads of the [pool](super::pool).
//!
//! While it is idle, the value is in the `Unblock`. An operation moves it into a [`Pipe`], which
//! the task shares with a thread. The thread repeats one step with the value: it fills the pipe's
//! bounded queue (reading ahead, iterating), empties it (writing behind), or calls a function once
//! and leaves its output there ([`Unblock::with_mut`], a seek). When there is nothing left to do,
//! the thread leaves the value in the pipe, **under the same lock under which it has seen that**,
//! and returns. When the task makes work for a thread again, by taking from a full queue or putting
//! into an empty one, it sees under the lock that there is no thread, and asks the pool for one. So
//! no thread ever waits for a task.
//!
//! To get the value back, the task sets a flag. A thread that reads or iterates then returns at the
//! next opportunity; a thread that writes returns when everything is written and flushed; and a
//! function is called to its end.
//!
//! **Lock order:** a pipe's, then the pool's, since a thread is requested under the first.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};
use futures_lite::stream::Stream;

use super::pool::{Class, POOL};
use crate::scheduler::budget::{consume, restore};
use crate::scheduler::waits_for;
use crate::sync::{Handoff, Job, Mutex, contain};
use crate::sys::{Process, unsupported};
use crate::telemetry::Leaf;

/// The maximum number of bytes that are read ahead or written behind: as much as a disk delivers in
/// some milliseconds, so that neither side waits for each step of the other. Memory is allocated as
/// needed.
const MAX_BYTES: usize = 8 << 20;

/// The same limit for the items of an iterator.
const MAX_ITEMS: usize = 8 << 10;

/// The maximum number of bytes in one call. Larger calls are not much cheaper per byte.
const MAX_CHUNK: usize = 64 << 10;

const CLOSED: &str = "this Unblock has been closed";

/// An adapter that makes a blocking value asynchronous: its operations run on the blocking pool,
/// like those of [`unblock`](crate::unblock), through a buffer.
///
/// It is an [`AsyncRead`], [`AsyncWrite`], [`AsyncSeek`] or [`Stream`] if the inner value is a
/// [`Read`], [`Write`], [`Seek`] or [`Iterator`]. Standard input and output:
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
///     output.flush().await // Or the last lines may not be written when the process ends.
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// A file:
///
/// ```
/// use polder::io::{AsyncReadExt, Unblock};
///
/// # fn main() -> std::io::Result<()> {
/// polder::block_on(async {
///     let mut file = Unblock::new(std::fs::File::open("Cargo.toml")?);
///     let mut text = String::new();
///     file.read_to_string(&mut text).await?;
///     assert!(text.contains("[package]"));
///     std::io::Result::Ok(())
/// })
/// # }
/// ```
///
/// # What to know
///
/// * **A pending read of standard input keeps a thread** until a line or the end comes, even if the
///   `Unblock` is dropped: it cannot be cancelled. Make only one `Unblock` of it, and keep it; data
///   that a dropped one has read ahead is lost. The thread does not keep the process from exiting.
/// * It reads ahead and writes behind, by default at most 8 MiB: see
///   [`with_capacity`](Unblock::with_capacity).
/// * Only `flush` guarantees that everything is written, or the error reported. When an `Unblock`
///   is dropped, a thread writes the rest, but errors are lost, and the process may exit before.
/// * Any operation except reading and seeking loses the data that was read ahead. So between
///   reading and writing a value (a file), seek to the desired position. A seek accounts for data
///   that was read ahead.
/// * In a simulated world (`polder::sim`) reading, writing, flushing, closing and seeking return
///   [`Unsupported`](io::ErrorKind::Unsupported): [`unblock`](crate::unblock) is simulated.
/// * For directories and most other file operations there is the crate `async-fs`, which has a
///   separate pool.
///
/// # Errors
///
/// The value's own errors; if there is no thread and none can be started; if the value has been
/// closed; in a simulated world.
///
/// # Panics
///
/// A panic of the value is resumed in the task that awaits the operation, or by the next operation.
/// The value is kept.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future of a read or a write loses no bytes. A seek, and the function
/// of [`with_mut`](Unblock::with_mut), runs to its end after a thread has been requested for it.
/// That happens only after the operation before it is done, and not if the `Unblock` is dropped
/// first. Seeking a value that cannot seek (a pipe) is an error, and loses the data that was read
/// ahead.
#[doc(alias("AllowStdIo", "File", "stderr", "stdin", "stdout"))]
pub struct Unblock<T> {
    /// The value, while it is idle. It is neither here nor in a pipe if it was closed.
    value: Option<Box<T>>,
    /// The operation in progress.
    pipe: Option<Arc<Pipe<T>>>,
    capacity: Option<usize>,
    /// The error of writing behind, if it could not be reported immediately.
    failure: Option<io::Error>,
}

/// The purpose of a pipe.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Iterate,
    Write,
    Call,
    Seek(SeekFrom),
}

struct Pipe<T> {
    flow: Handoff<Flow<T>>,
    kind: Kind,
    capacity: usize,
    step: Box<Step<T>>,
    /// The process that made it. In a child of `fork` another thread of the parent may have held
    /// the lock.
    process: Process,
    /// Requests a thread. Set where the value is known to be `Send`.
    submit: fn(&Arc<Pipe<T>>) -> io::Result<()>,
}

/// One step of a thread's work with the value, repeated until it returns that there is no more to
/// do. The bytes are the thread's buffer.
type Step<T> = dyn Fn(&mut T, &Pipe<T>, &mut Vec<u8>) -> io::Result<bool> + Send + Sync;

struct Flow<T> {
    /// `None` while a thread has it.
    value: Option<Box<T>>,
    /// A `VecDeque` of bytes or items that were read, of bytes that are not written yet, or of the
    /// function's output. Its type can be named only where the value's traits are known.
    queue: Box<dyn Any + Send>,
    /// The queue's length.
    length: usize,
    /// Whether a thread has been requested and has not returned.
    is_started: bool,
    /// Whether the task wants the value back.
    is_stopping: bool,
    /// The outcome, after which there is no more to do.
    end: Option<End>,
}

/// An outcome: the end of the file or of the iterator, or everything is written and flushed, or the
/// function has returned; an error; or a panic.
type End = thread::Result<io::Result<()>>;

impl<T> Flow<T> {
    /// Changes the queue.
    fn with_queue<I: 'static, R>(&mut self, change: impl FnOnce(&mut VecDeque<I>) -> R) -> R {
        let queue = self.queue.downcast_mut();
        let queue = queue.expect("it is of what this operation moves");
        let result = change(queue);
        self.length = queue.len();
        result
    }
}

impl<T> Pipe<T> {
    fn has_work(&self, flow: &Flow<T>) -> bool {
        flow.end.is_none()
            && match self.kind {
                Kind::Read | Kind::Iterate => !flow.is_stopping && flow.length < self.capacity,
                Kind::Write => flow.is_stopping || flow.length > 0,
                Kind::Call | Kind::Seek(_) => true,
            }
    }

    /// Requests a thread, if there is work and none has been requested.
    fn begin(self: &Arc<Self>, flow: &mut Flow<T>) -> io::Result<()> {
        if !flow.is_started && self.has_work(flow) {
            (self.submit)(self)?;
            flow.is_started = true;
        }
        Ok(())
    }

    /// Returns the value to a thread, if there is work. Otherwise the thread must return.
    fn next(&self, flow: &mut Flow<T>) -> Option<Box<T>> {
        flow.is_started = self.has_work(flow);
        if flow.is_started {
            flow.value.take()
        } else {
            None
        }
    }

    /// Returns the value to the task, if no thread has it or is needed for it any more.
    fn stop(self: &Arc<Self>, flow: &mut Flow<T>) -> io::Result<Option<Box<T>>> {
        flow.is_stopping = true;
        self.begin(flow)?;
        Ok(if self.has_work(flow) {
            None
        } else {
            flow.value.take()
        })
    }

    fn with_queue<I: 'static, R>(&self, change: impl FnOnce(&mut VecDeque<I>) -> R) -> R {
        self.flow.update(|flow| flow.with_queue(change))
    }

    /// [`Handoff::poll`], for the task. It counts against the task's budget, like operations of
    /// sockets: data that was read ahead may always be ready.
    fn poll<R>(&self, cx: &Context<'_>, check: impl FnMut(&mut Flow<T>) -> Option<R>) -> Poll<R> {
        ready!(consume(cx));
        let result = self.flow.poll(cx, check);
        if result.is_pending() {
            restore();
            waits_for(Leaf::Blocking);
        }
        result
    }
}

impl<T: Send> Job for Pipe<T> {
    fn run(&self) {
        let mut bytes = Vec::new();
        let mut next = self.flow.update(|flow| self.next(flow));
        while let Some(mut value) = next {
            let step = || (self.step)(&mut value, self, &mut bytes);
            let end = match catch_unwind(AssertUnwindSafe(step)) {
                Ok(Ok(true)) => None,
                ended => Some(ended.map(|result| result.map(drop))),
            };
            next = self.flow.update_and_wake(|flow| {
                (flow.value, flow.end) = (Some(value), end);
                self.next(flow)
            });
        }
    }
}

fn read_ahead<T: Read>(value: &mut T, pipe: &Pipe<T>, chunk: &mut Vec<u8>) -> io::Result<bool> {
    let room = pipe.with_queue::<u8, _>(|queue| pipe.capacity - queue.len());
    chunk.resize(MAX_CHUNK.min(pipe.capacity), 0);
    let most = room.min(chunk.len());
    match value.read(&mut chunk[..most]) {
        Ok(read) => {
            pipe.with_queue::<u8, _>(|queue| queue.extend(&chunk[..read.min(most)]));
            Ok(read > 0)
        }
        // Check whether it is still wanted, then try again.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}

fn iterate<T: Iterator>(value: &mut T, pipe: &Pipe<T>, _: &mut Vec<u8>) -> io::Result<bool>
where
    T::Item: 'static,
{
    let item = value.next();
    let goes_on = item.is_some();
    pipe.with_queue::<T::Item, _>(|queue| queue.extend(item));
    Ok(goes_on)
}

/// Bytes leave the queue when they are written, so they count as written behind until then.
fn write_behind<T: Write>(value: &mut T, pipe: &Pipe<T>, chunk: &mut Vec<u8>) -> io::Result<bool> {
    chunk.resize(MAX_CHUNK.min(pipe.capacity), 0);
    // From the queue's memory, which cannot fail.
    let length = pipe.with_queue::<u8, _>(|queue| queue.as_slices().0.read(chunk).unwrap_or(0));
    if length == 0 {
        value.flush()?;
        return Ok(false);
    }
    value.write_all(&chunk[..length])?;
    pipe.with_queue::<u8, _>(|queue| queue.consume(length));
    Ok(true)
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
        Unblock {
            value: Some(Box::new(value)),
            pipe: None,
            capacity: None,
            failure: None,
        }
    }

    /// Wraps a value, with a buffer of `capacity` bytes, or for an iterator, items. The defaults
    /// are 8 MiB and 8,192. A capacity of 0 counts as 1.
    ///
    /// ```
    /// use polder::io::Unblock;
    ///
    /// let output = Unblock::with_capacity(64 * 1024, std::io::stdout());
    /// ```
    pub fn with_capacity(capacity: usize, value: T) -> Unblock<T> {
        let mut this = Unblock::new(value);
        this.capacity = Some(capacity.max(1));
        this
    }

    /// Returns the value, once no thread has it. Written data is flushed before; data that was read
    /// ahead is lost.
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
    /// A write error is reported by the next write, flush, close, read or seek.
    ///
    /// # Panics
    ///
    /// If it has been closed, or if a thread is needed and none can be started.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future loses nothing. Work in progress on a thread continues, and
    /// data that was read ahead is kept.
    pub async fn get_mut(&mut self) -> &mut T {
        let stopped = poll_fn(|cx| self.poll_idle(cx)).await;
        stopped.unwrap_or_else(|error| panic!("{error}"));
        self.value.as_mut().expect(CLOSED)
    }

    /// Calls `operation` with the value, on the blocking pool. Apart from that, like
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
    /// If `operation` does, if the `Unblock` has been closed, if no thread can be started, or in a
    /// simulated world.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before `operation` was passed to the pool, it is not called.
    /// Afterwards it runs to its end, its result is lost, and the next use of the `Unblock` waits
    /// for it.
    pub async fn with_mut<R, F>(&mut self, operation: F) -> R
    where
        F: FnOnce(&mut T) -> R + Send + 'static,
        R: Send + 'static,
        T: Send + 'static,
    {
        self.get_mut().await;
        let called = self.call(Kind::Call, operation);
        called.unwrap_or_else(|error| panic!("{error}"));
        let output = poll_fn(|cx| self.poll_output(cx)).await;
        output.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the value, as [`get_mut`](Self::get_mut) does. A write error is lost: flush before.
    ///
    /// ```
    /// use polder::io::{AsyncWriteExt, Unblock};
    ///
    /// polder::block_on(async {
    ///     let mut bytes = Unblock::new(Vec::new());
    ///     bytes.write_all(b"hello").await?;
    ///     assert_eq!(bytes.into_inner().await, b"hello");
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
    /// Not cancel safe: dropping the future drops the `Unblock`, and so the value. Data that was
    /// written before still reaches the value.
    pub async fn into_inner(mut self) -> T {
        self.get_mut().await;
        *self.value.take().expect(CLOSED)
    }

    /// Fails in a simulated world, since the work of another thread would finish at a time that no
    /// seed determines; and if an operation was in progress when this process was forked.
    fn check(&self) -> io::Result<()> {
        #[cfg(feature = "sim")]
        if crate::world::is_here() {
            return Err(crate::world::unsupported("io::Unblock"));
        }
        match &self.pipe {
            Some(pipe) if !pipe.process.is_current() => Err(unsupported(
                "this Unblock was in use when its process forked: it is the parent's",
            )),
            _ => Ok(()),
        }
    }

    /// Returns an error of writing behind, before an operation that can report it.
    fn report(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn is_in(&self, kind: Kind) -> bool {
        (self.pipe.as_ref()).is_some_and(|pipe| pipe.kind == kind)
    }

    /// Stops any operation in progress, so that the value is idle. Returns the pipe, with what is
    /// left in its queue. Keeps an error of writing; other errors are ignored. Fails if a thread is
    /// needed and none can be started.
    fn poll_stop(&mut self, cx: &Context<'_>) -> Poll<io::Result<Option<Arc<Pipe<T>>>>> {
        let Some(pipe) = &self.pipe else {
            return Poll::Ready(Ok(None));
        };
        self.check()?;
        self.value = Some(ready!(pipe.poll(cx, |flow| pipe.stop(flow).transpose()))?);
        match pipe.flow.update(|flow| flow.end.take()) {
            Some(Err(panic)) => {
                contain(|| self.pipe = None);
                resume_unwind(panic)
            }
            Some(Ok(Err(error))) if pipe.kind == Kind::Write => self.failure = Some(error),
            _ => {}
        }
        Poll::Ready(Ok(self.pipe.take()))
    }

    /// [`poll_stop`](Self::poll_stop), if nothing that is left is needed.
    fn poll_idle(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let stopped = ready!(self.poll_stop(cx))?;
        // Foreign destructors, of items.
        contain(|| drop(stopped));
        Poll::Ready(Ok(()))
    }

    /// Begins an operation that reports errors of writing behind. Stops one in progress, unless it
    /// is of these kinds.
    fn poll_enter(&mut self, cx: &Context<'_>, stay: &[Kind]) -> Poll<io::Result<()>> {
        self.check()?;
        if !stay.iter().any(|kind| self.is_in(*kind)) {
            ready!(self.poll_idle(cx))?;
        }
        Poll::Ready(self.report())
    }

    /// Takes the output of a [`call`](Self::call), after its end.
    fn poll_output<R: 'static>(&mut self, cx: &Context<'_>) -> Poll<io::Result<R>> {
        let pipe = ready!(self.poll_stop(cx))?;
        let output = pipe.and_then(|pipe| pipe.with_queue(VecDeque::pop_front));
        Poll::Ready(Ok(output.expect("the function has returned")))
    }
}

impl<T: Send + 'static> Unblock<T> {
    /// Returns the pipe of this kind. If there is none, moves the idle value into one, and requests
    /// a thread if there is work; if that fails, the value is idle again.
    fn pipe_of<I: Send + 'static>(
        &mut self,
        kind: Kind,
        step: Box<Step<T>>,
    ) -> io::Result<&Arc<Pipe<T>>> {
        self.check()?;
        if !self.is_in(kind) {
            let closed = || io::Error::new(io::ErrorKind::BrokenPipe, CLOSED);
            let value = self.value.take().ok_or_else(closed)?;
            let most = match kind {
                Kind::Iterate => MAX_ITEMS,
                _ => MAX_BYTES,
            };
            let flow = Flow {
                value: Some(value),
                queue: Box::new(VecDeque::<I>::new()),
                length: 0,
                is_started: false,
                is_stopping: false,
                end: None,
            };
            let pipe = Arc::new(Pipe {
                flow: Handoff::new(flow),
                kind,
                capacity: self.capacity.unwrap_or(most),
                step,
                process: Process::current(),
                submit: |pipe| POOL.get().submit(Class::Call, pipe.clone()),
            });
            if let Err(error) = pipe.flow.update(|flow| pipe.begin(flow)) {
                self.value = pipe.flow.update(|flow| flow.value.take());
                return Err(error);
            }
            self.pipe = Some(pipe);
        }
        Ok(self.pipe.as_ref().expect("it is there"))
    }

    /// Takes something from the queue that a thread fills by `step`. At the end of that, returns
    /// `None`, and the value is idle.
    fn poll_take<I: Send + 'static, R>(
        &mut self,
        cx: &Context<'_>,
        kind: Kind,
        step: Box<Step<T>>,
        mut take: impl FnMut(&mut VecDeque<I>) -> R,
    ) -> Poll<io::Result<Option<R>>> {
        let pipe = self.pipe_of::<I>(kind, step)?;
        let taken = ready!(pipe.poll(cx, |flow| {
            // The future that wanted the value back was dropped.
            flow.is_stopping = false;
            if flow.length > 0 {
                let taken = flow.with_queue(&mut take);
                // With hysteresis, so as not to start a thread for every byte.
                if flow.length <= pipe.capacity / 2 {
                    // An error is reported when the queue is empty.
                    let _ = pipe.begin(flow);
                }
                return Some(Ok(taken));
            }
            let end = flow.end.take();
            let refused = || pipe.begin(flow).err().map(|error| Ok(Err(error)));
            end.or_else(refused).map(Err)
        }));
        Poll::Ready(match taken {
            Ok(taken) => Ok(Some(taken)),
            Err(end) => {
                // There is no thread, so the value is in the pipe.
                self.value = pipe.flow.update(|flow| flow.value.take());
                self.pipe = None;
                let end = end.unwrap_or_else(|panic| resume_unwind(panic));
                end.map(|()| None)
            }
        })
    }

    /// Begins a call of `function` with the idle value.
    fn call<R: Send + 'static>(
        &mut self,
        kind: Kind,
        function: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> io::Result<()> {
        let function = Mutex::new(Some(function));
        let step = move |value: &mut T, pipe: &Pipe<T>, _: &mut Vec<u8>| {
            let function = function.lock().take().expect("it is called once");
            let output = function(value);
            pipe.with_queue(|queue| queue.push_back(output));
            Ok(false)
        };
        self.pipe_of::<R>(kind, Box::new(step)).map(drop)
    }
}

impl<T> Drop for Unblock<T> {
    fn drop(&mut self) {
        let Some(pipe) = &self.pipe else {
            return;
        };
        if !pipe.process.is_current() {
            // The rest is the parent's job. One of its threads may have held the lock.
            std::mem::forget(pipe.clone());
            return;
        }
        pipe.flow.clear_waker();
        // The value is dropped here if no thread needs it. On an error only a flush is lost: a
        // thread has written the rest before it returned.
        drop(pipe.flow.update(|flow| pipe.stop(flow)));
    }
}

/// Does not show the value while a thread has it.
impl<T: fmt::Debug> fmt::Debug for Unblock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, &self.pipe) {
            (Some(value), _) => f.debug_struct("Unblock").field("io", value).finish(),
            (None, None) => f.write_str("Unblock { io: <closed> }"),
            (None, Some(_)) => f.write_str("Unblock { io: <blocked> }"),
        }
    }
}

impl<T: Iterator + Send + 'static> Unblock<T>
where
    T::Item: Send + 'static,
{
    fn poll_item(&mut self, cx: &Context<'_>) -> Poll<io::Result<Option<T::Item>>> {
        if !self.is_in(Kind::Iterate) {
            ready!(self.poll_idle(cx))?;
            if self.value.is_none() {
                return Poll::Ready(Ok(None));
            }
        }
        let take = VecDeque::<T::Item>::pop_front;
        let item = ready!(self.poll_take(cx, Kind::Iterate, Box::new(iterate), take))?;
        Poll::Ready(Ok(item.flatten()))
    }
}

/// # Panics
///
/// The iterator's own panics; if there is no thread and none can be started; in a simulated world.
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
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_enter(cx, &[Kind::Read]))?;
        let take = |queue: &mut VecDeque<u8>| queue.read(buf);
        let read = ready!(self.poll_take(cx, Kind::Read, Box::new(read_ahead), take))?;
        Poll::Ready(read.unwrap_or(Ok(0)))
    }
}

impl<T: Write + Send + 'static> AsyncWrite for Unblock<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let this = self.get_mut();
        loop {
            ready!(this.poll_enter(cx, &[Kind::Write]))?;
            let pipe = this.pipe_of::<u8>(Kind::Write, Box::new(write_behind))?;
            let put = ready!(pipe.poll(cx, |flow| {
                if flow.end.is_some() || flow.is_stopping {
                    return Some(Ok(0));
                }
                let length = buf.len().min(pipe.capacity - flow.length);
                flow.with_queue::<u8, _>(|queue| queue.extend(&buf[..length]));
                let begun = pipe.begin(flow);
                if begun.is_err() {
                    // Without a thread the bytes have not been seen.
                    flow.with_queue::<u8, _>(VecDeque::clear);
                }
                (length > 0).then_some(begun.map(|()| length))
            }))?;
            if put > 0 {
                return Poll::Ready(Ok(put));
            }
            // It has failed, or the future of a flush was dropped.
            ready!(this.poll_idle(cx))?;
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is left to flush after a read, and data that was read ahead stays.
        self.poll_enter(cx, &[Kind::Read, Kind::Iterate])
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_enter(cx, &[]))?;
        self.value = None;
        Poll::Ready(Ok(()))
    }
}

impl<T: Seek + Send + 'static> AsyncSeek for Unblock<T> {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        position: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        // If another seek is in progress, its future was dropped.
        if !self.is_in(Kind::Seek(position)) {
            let stopped = ready!(self.poll_stop(cx))?;
            let read = match stopped {
                Some(pipe) if pipe.kind == Kind::Read => Some(pipe),
                other => {
                    // It may have items, or the output of a call.
                    contain(|| drop(other));
                    None
                }
            };
            let length = |pipe: &Arc<Pipe<T>>| pipe.flow.update(|flow| flow.length as i64);
            // The value's position is ahead of the task's by the data that was read and not taken.
            let ahead = read.as_ref().map_or(0, length);
            let seek = move |value: &mut T| {
                if ahead > 0 {
                    value.seek(SeekFrom::Current(-ahead))?;
                }
                value.seek(position)
            };
            let reported = self.report();
            let called = reported.and_then(|()| self.call(Kind::Seek(position), seek));
            if let Err(error) = called {
                if let Some(pipe) = read {
                    // Restores the previous state.
                    let value = self.value.take();
                    (pipe.flow).update(|flow| (flow.value, flow.is_started) = (value, false));
                    self.pipe = Some(pipe);
                }
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(ready!(self.poll_output(cx))?)
    }
}

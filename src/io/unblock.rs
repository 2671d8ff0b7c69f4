//! [`Unblock`]: reading, writing, seeking and iterating on threads of the [pool](crate::pool).
//!
//! The blocking value is in one of three places: in the `Unblock`, while it is idle; with a
//! function that a thread calls ([`Unblock::with_mut`], a seek); or in a [`Pipe`] between the task
//! and a thread. A pipe has a bounded queue. A thread fills it (reading ahead, iterating) or
//! empties it (writing behind). When there is nothing left to do, the thread leaves the value in
//! the pipe, **under the same lock under which it has seen that**, and returns. When the task makes
//! work for a thread again, by taking from a full queue or putting into an empty one, it sees under
//! the lock that there is no thread, and asks the pool for one. So no thread ever waits for a task.
//!
//! To get the value back, the task sets a flag. A thread that reads or iterates then returns at the
//! next opportunity; a thread that writes returns when everything is written and flushed.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};
use futures_lite::stream::Stream;

use crate::pool::{Call, Class, Handoff, Job, POOL};
use crate::scheduler::budget::{consume, restore};
use crate::scheduler::{Leaf, waits_for};
use crate::sync::{Mutex, contain};
use crate::sys::Process;

/// The maximum number of bytes that are read ahead or written behind: as much as a disk delivers in
/// some milliseconds, so that neither side waits for each step of the other. Memory is allocated as
/// needed.
const BYTES: usize = 8 << 20;

/// The same limit for the items of an iterator.
const ITEMS: usize = 8 << 10;

/// The maximum number of bytes in one call. Larger calls are not much cheaper per byte.
const CHUNK: usize = 64 << 10;

type Panic = Box<dyn Any + Send>;

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
    state: State<T>,
    capacity: Option<usize>,
    /// The error of writing behind, if it could not be reported immediately.
    failure: Option<io::Error>,
    /// The process in which the last operation began. In a child of that process no thread
    /// continues it.
    process: Process,
}

enum State<T> {
    /// Idle; `None` if it was closed.
    Idle(Option<Box<T>>),
    /// Passed to a function.
    Calling(Place<T>, Call<Result<(), Panic>>),
    Seeking(Place<T>, Call<Result<io::Result<u64>, Panic>>, SeekFrom),
    Reading(Arc<Pipe<T, u8>>),
    Writing(Arc<Pipe<T, u8>>),
    /// A [`Pipe`] of the iterator's items; their type cannot be named here.
    Streaming(Arc<dyn Stop<T>>),
}

/// The slot in which a function finds the value, and leaves it.
type Place<T> = Arc<Mutex<Option<Box<T>>>>;

/// The slot, and the call of the function.
type Called<T, R> = (Place<T>, Call<Result<R, Panic>>);

struct Pipe<T, I> {
    flow: Handoff<Flow<T, I>>,
    capacity: usize,
    /// The work of a thread, and the function that requests a thread. Set where the value's traits
    /// are known.
    work: fn(&Pipe<T, I>),
    start: fn(&Arc<Pipe<T, I>>) -> io::Result<()>,
}

struct Flow<T, I> {
    /// `None` while a thread has it.
    value: Option<Box<T>>,
    /// Items that were read, or wait to be written.
    queue: VecDeque<I>,
    /// The number of items that a thread has taken from the queue and not written yet.
    in_flight: usize,
    /// Whether a thread has been requested and has not returned.
    is_started: bool,
    /// Whether the task wants the value back.
    is_stopping: bool,
    /// The outcome, after which no more items will come or go.
    end: Option<End>,
}

enum End {
    /// The end of the file or of the iterator; or everything is written and flushed.
    Done,
    Failed(io::Error),
    Panicked(Panic),
}

impl End {
    fn of(result: Result<io::Result<()>, Panic>) -> End {
        match result {
            Ok(Ok(())) => End::Done,
            Ok(Err(error)) => End::Failed(error),
            Err(panic) => End::Panicked(panic),
        }
    }

    fn result(self) -> io::Result<()> {
        match self {
            End::Done => Ok(()),
            End::Failed(error) => Err(error),
            End::Panicked(panic) => resume_unwind(panic),
        }
    }
}

impl<T: Send + 'static, I: Send + 'static> Pipe<T, I> {
    fn new(value: Box<T>, capacity: usize, work: fn(&Pipe<T, I>)) -> Arc<Pipe<T, I>> {
        let flow = Flow {
            value: Some(value),
            queue: VecDeque::new(),
            in_flight: 0,
            is_started: false,
            is_stopping: false,
            end: None,
        };
        Arc::new(Pipe {
            flow: Handoff::new(flow),
            capacity,
            work,
            start: |pipe| submit(pipe.clone()),
        })
    }
}

/// A simulated world has one thread: the work of another thread would finish at a time that no seed
/// determines.
#[cfg(all(feature = "sim", not(loom)))]
fn refuse_in_a_world() -> io::Result<()> {
    if crate::world::is_here() {
        Err(crate::world::unsupported("io::Unblock"))
    } else {
        Ok(())
    }
}

#[cfg(not(all(feature = "sim", not(loom))))]
fn refuse_in_a_world() -> io::Result<()> {
    Ok(())
}

fn submit(job: Arc<dyn Job>) -> io::Result<()> {
    POOL.get().submit(Class::Call, job)
}

impl<T: Send, I: Send> Job for Pipe<T, I> {
    fn run(&self) {
        (self.work)(self);
    }
}

impl<T, I> Flow<T, I> {
    /// Returns whether the caller must request a thread.
    fn begin(&mut self) -> bool {
        let begins = !self.is_started && self.end.is_none();
        self.is_started |= begins;
        begins
    }

    /// Restores a pipe that was stopped.
    fn put_back(&mut self, value: Option<Box<T>>, queue: VecDeque<I>) {
        self.value = value;
        self.queue = queue;
        self.is_started = false;
    }

    /// Returns the value from a thread.
    fn rest(&mut self, value: &mut Option<Box<T>>, end: Option<End>) {
        self.value = value.take();
        self.in_flight = 0;
        self.is_started = false;
        self.end = end;
    }
}

/// Records that the task waits for a thread of the pool, if the result is pending.
fn noted<R>(result: Poll<R>) -> Poll<R> {
    if result.is_pending() {
        waits_for(Leaf::Blocking);
    }
    result
}

impl<T, I> Pipe<T, I> {
    /// [`Handoff::poll`], for the task.
    fn poll_flow<R>(
        &self,
        cx: &Context<'_>,
        check: impl FnMut(&mut Flow<T, I>) -> Option<R>,
    ) -> Poll<R> {
        noted(self.flow.poll(cx, check))
    }

    /// Requests a thread.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        (self.start)(self).inspect_err(|_| self.flow.update(|flow| flow.is_started = false))
    }

    /// The work of a thread that fills the queue: `make` produces data, or reports the end; `put`
    /// moves the data into the queue, under the lock.
    fn fill<S>(
        &self,
        mut state: S,
        mut make: impl FnMut(&mut T, &mut S, usize) -> io::Result<Made>,
        mut put: impl FnMut(&mut VecDeque<I>, &mut S),
    ) {
        let mut value = self.flow.update(|flow| flow.value.take());
        if value.is_none() {
            return; // It was taken back before a thread came.
        }
        loop {
            let room = self.flow.update_and_wake(|flow| {
                let room = self.capacity.saturating_sub(flow.queue.len());
                if flow.is_stopping || room == 0 {
                    flow.rest(&mut value, None);
                }
                room
            });
            let Some(inner) = &mut value else {
                return;
            };
            let made = catch_unwind(AssertUnwindSafe(|| make(inner, &mut state, room)));
            match made {
                Ok(Ok(Made::Something)) => {
                    self.flow.update(|flow| put(&mut flow.queue, &mut state))
                }
                Ok(Ok(Made::Nothing)) => {}
                ended => {
                    let end = End::of(ended.map(|result| result.map(drop)));
                    return self
                        .flow
                        .update_and_wake(|flow| flow.rest(&mut value, Some(end)));
                }
            }
        }
    }

    /// Takes something from the queue; at the end, returns the final error, if any.
    fn poll_take<R>(
        self: &Arc<Self>,
        cx: &Context<'_>,
        mut take: impl FnMut(&mut VecDeque<I>) -> R,
    ) -> Poll<Result<R, Option<io::Error>>> {
        loop {
            // The taken data, and whether there is work for a thread again.
            let (taken, begins) = ready!(self.poll_flow(cx, |flow| {
                // The future that wanted the value back was dropped.
                flow.is_stopping = false;
                if flow.queue.is_empty() {
                    let begins = flow.begin();
                    return (begins || flow.end.is_some()).then_some((None, begins));
                }
                let taken = take(&mut flow.queue);
                // With hysteresis, so as not to start a thread for every byte.
                let begins = flow.queue.len() <= self.capacity / 2 && flow.begin();
                Some((Some(taken), begins))
            }));
            let started = if begins { self.start() } else { Ok(()) };
            match (taken, started) {
                // If no thread can be started, that is reported when the queue is empty.
                (Some(taken), _) => return Poll::Ready(Ok(taken)),
                (None, Err(error)) => return Poll::Ready(Err(Some(error))),
                (None, Ok(())) if begins => {}
                (None, Ok(())) => return Poll::Ready(Err(None)),
            }
        }
    }

    /// Stops a thread that fills the queue. Returns the value, the items that were not taken, and
    /// the outcome.
    fn poll_stop_filling(&self, cx: &Context<'_>) -> Poll<(Box<T>, VecDeque<I>, Option<End>)> {
        self.poll_flow(cx, |flow| {
            flow.is_stopping = true;
            let value = flow.value.take()?;
            Some((value, std::mem::take(&mut flow.queue), flow.end.take()))
        })
    }

    /// Waits until everything is written and flushed. Returns the value and the result.
    fn poll_stop_writing(self: &Arc<Self>, cx: &Context<'_>) -> Poll<io::Result<(Box<T>, End)>> {
        loop {
            let stopped = ready!(self.poll_flow(cx, |flow| {
                flow.is_stopping = true;
                if flow.begin() {
                    return Some(None);
                }
                let value = flow.end.is_some().then(|| flow.value.take())??;
                Some(Some((value, flow.end.take()?)))
            }));
            match stopped {
                Some(stopped) => return Poll::Ready(Ok(stopped)),
                None => {
                    if let Err(error) = self.start() {
                        self.flow.update(|flow| flow.is_stopping = false);
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
    }

    /// Called when the `Unblock` is dropped.
    fn abandon_filling(&self) {
        self.flow.clear_waker();
        // Dropped here if no thread has it, instead of when a thread comes.
        drop(self.flow.update(|flow| {
            flow.is_stopping = true;
            flow.value.take()
        }));
    }

    /// Called when the `Unblock` is dropped: the queue is still written and flushed.
    fn abandon_writing(self: &Arc<Self>) {
        self.flow.clear_waker();
        let begins = self.flow.update(|flow| {
            flow.is_stopping = true;
            flow.begin()
        });
        if begins {
            // On an error only a flush is lost: a thread has written the rest before it returned.
            let _ = self.start();
        }
    }
}

/// The outcome of one step of a thread.
enum Made {
    Something,
    /// Nothing yet, but there will be more.
    Nothing,
    End,
}

fn read_ahead<T: Read>(pipe: &Pipe<T, u8>) {
    let chunk = vec![0; CHUNK.min(pipe.capacity)];
    pipe.fill(
        (chunk, 0),
        |value, (chunk, length), room| {
            let most = room.min(chunk.len());
            match value.read(&mut chunk[..most]) {
                Ok(0) => Ok(Made::End),
                Ok(read) => {
                    *length = read.min(most);
                    Ok(Made::Something)
                }
                // Check whether it is still wanted, then try again.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Made::Nothing),
                Err(error) => Err(error),
            }
        },
        |queue, (chunk, length)| queue.extend(&chunk[..*length]),
    );
}

fn iterate<T: Iterator>(pipe: &Pipe<T, T::Item>) {
    pipe.fill(
        None,
        |value, item, _| {
            *item = value.next();
            Ok(match item {
                Some(_) => Made::Something,
                None => Made::End,
            })
        },
        |queue, item| queue.extend(item.take()),
    );
}

fn write_behind<T: Write>(pipe: &Pipe<T, u8>) {
    let mut value = pipe.flow.update(|flow| flow.value.take());
    let mut chunk = vec![0; CHUNK.min(pipe.capacity)];
    loop {
        let (length, flushes) = pipe.flow.update_and_wake(|flow| {
            // From the queue's memory, which cannot fail.
            flow.in_flight = flow.queue.read(&mut chunk).unwrap_or(0);
            if flow.in_flight == 0 && !flow.is_stopping {
                flow.rest(&mut value, None);
            }
            (flow.in_flight, flow.is_stopping)
        });
        let Some(inner) = &mut value else {
            return;
        };
        let done = catch_unwind(AssertUnwindSafe(|| match length {
            0 => inner.flush(),
            _ => inner.write_all(&chunk[..length]),
        }));
        if matches!(done, Ok(Ok(()))) && !(length == 0 && flushes) {
            continue;
        }
        return pipe.flow.update_and_wake(|flow| {
            flow.queue.clear();
            flow.rest(&mut value, Some(End::of(done)));
        });
    }
}

/// A pipe filled by an iterator.
trait Stop<T>: Send + Sync {
    fn poll_stop(&self, cx: &Context<'_>) -> Poll<(Box<T>, Option<End>)>;
    fn abandon(&self);
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Send + 'static, I: Send + 'static> Stop<T> for Pipe<T, I> {
    fn poll_stop(&self, cx: &Context<'_>) -> Poll<(Box<T>, Option<End>)> {
        let stopped = self.poll_stop_filling(cx);
        stopped.map(|(value, items, end)| {
            // Foreign destructors, which must not lose the value.
            contain(|| drop(items));
            (value, end)
        })
    }

    fn abandon(&self) {
        self.abandon_filling();
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
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
            state: State::Idle(Some(Box::new(value))),
            capacity: None,
            failure: None,
            process: Process::current(),
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
        self.stop_and_keep_error().await;
        self.idle().as_mut().expect(CLOSED)
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
        self.stop_and_keep_error().await;
        let value = self.idle().take().expect(CLOSED);
        let output = Arc::new(Mutex::new(None));
        let result = output.clone();
        let called = self.call(value, move |value| {
            let output = operation(value);
            *result.lock() = Some(output);
        });
        match called {
            Ok((place, call)) => self.state = State::Calling(place, call),
            Err(error) => panic!("{error}"),
        }
        // This resumes a panic.
        self.stop_and_keep_error().await;
        let output = output.lock().take();
        output.expect("the operation has returned")
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
        self.stop_and_keep_error().await;
        *self.idle().take().expect(CLOSED)
    }

    /// Called before each operation: fails in a simulated world, and if another operation was in
    /// progress when this process was forked.
    fn check(&mut self) -> io::Result<()> {
        refuse_in_a_world()?;
        if !self.process.is_current() {
            if !matches!(self.state, State::Idle(_)) {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this Unblock was in use when its process forked: it is the parent's",
                ));
            }
            self.process = Process::current();
        }
        Ok(())
    }

    /// The value's slot, if no operation is in progress.
    fn idle(&mut self) -> &mut Option<Box<T>> {
        match &mut self.state {
            State::Idle(value) => value,
            _ => unreachable!("what was under way has been stopped"),
        }
    }

    /// Stops any operation in progress, and keeps an error for the next write.
    async fn stop_and_keep_error(&mut self) {
        let stopped = poll_fn(|cx| self.poll_stop(cx)).await;
        self.keep_failure(stopped);
    }

    /// For operations that return no error.
    fn keep_failure(&mut self, stopped: io::Result<()>) {
        match stopped {
            Err(error) if !matches!(self.state, State::Idle(_)) => panic!("{error}"),
            Err(error) => self.failure = Some(error),
            Ok(()) => {}
        }
    }

    /// Calls `f` with the value on a thread. If there is no thread, the value is idle again.
    fn call<R, F>(&mut self, value: Box<T>, f: F) -> io::Result<Called<T, R>>
    where
        F: FnOnce(&mut T) -> R + Send + 'static,
        R: Send + 'static,
        T: Send + 'static,
    {
        if let Err(error) = self.check() {
            self.state = State::Idle(Some(value));
            return Err(error);
        }
        let place = Arc::new(Mutex::new(Some(value)));
        let there = place.clone();
        let called = POOL.get().call(Class::Call, move || {
            let mut value = there.lock().take().expect("it was left for this");
            let result = catch_unwind(AssertUnwindSafe(|| f(&mut value)));
            *there.lock() = Some(value);
            result
        });
        match called {
            Ok(call) => Ok((place, call)),
            Err(error) => {
                self.state = State::Idle(place.lock().take());
                Err(error)
            }
        }
    }

    /// Stops any operation in progress, so that the value is idle. Returns a write error; a
    /// read-ahead error is ignored. If the value is not idle after an error, no thread could be
    /// started.
    fn poll_stop(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if !matches!(self.state, State::Idle(_)) {
            self.check()?;
        }
        let (value, result) = match &self.state {
            State::Idle(_) => return Poll::Ready(Ok(())),
            State::Calling(place, call) => {
                let result = ready!(noted(call.poll(cx))).expect("it catches panics");
                let end = result.map_or_else(End::Panicked, |()| End::Done);
                (place.lock().take(), end)
            }
            State::Seeking(place, call, _) => {
                let result = ready!(noted(call.poll(cx))).expect("it catches panics");
                let end = result.map_or_else(End::Panicked, |_| End::Done);
                (place.lock().take(), end)
            }
            State::Reading(pipe) => {
                let (value, _bytes, end) = ready!(pipe.poll_stop_filling(cx));
                (Some(value), without_error(end))
            }
            State::Streaming(pipe) => {
                let (value, end) = ready!(pipe.poll_stop(cx));
                (Some(value), without_error(end))
            }
            State::Writing(pipe) => {
                let (value, end) = ready!(pipe.poll_stop_writing(cx))?;
                (Some(value), end)
            }
        };
        self.state = State::Idle(value);
        Poll::Ready(result.result())
    }

    /// Takes the idle value, for another kind of operation.
    fn poll_value(&mut self, cx: &Context<'_>) -> Poll<io::Result<Box<T>>> {
        ready!(self.poll_stop(cx))?;
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, CLOSED);
        Poll::Ready(self.idle().take().ok_or_else(closed))
    }
}

const CLOSED: &str = "this Unblock has been closed";

/// If a result was not requested, only a panic in it is reported.
fn without_error(end: Option<End>) -> End {
    match end {
        Some(End::Panicked(panic)) => End::Panicked(panic),
        _ => End::Done,
    }
}

impl<T> Drop for Unblock<T> {
    fn drop(&mut self) {
        if !self.process.is_current() && !matches!(self.state, State::Idle(_)) {
            // The rest is the parent's job. One of its threads may have held the lock.
            std::mem::forget(std::mem::replace(&mut self.state, State::Idle(None)));
            return;
        }
        match &self.state {
            State::Reading(pipe) => pipe.abandon_filling(),
            State::Writing(pipe) => pipe.abandon_writing(),
            State::Streaming(pipe) => pipe.abandon(),
            State::Idle(_) | State::Calling(..) | State::Seeking(..) => {}
        }
    }
}

/// Does not show the value while a thread has it.
impl<T: fmt::Debug> fmt::Debug for Unblock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Idle(Some(value)) => f.debug_struct("Unblock").field("io", value).finish(),
            State::Idle(None) => f.write_str("Unblock { io: <closed> }"),
            _ => f.write_str("Unblock { io: <blocked> }"),
        }
    }
}

/// Counts an operation against the task's budget, like those of sockets: data that was read ahead
/// may always be ready.
fn poll_within_budget<R>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
) -> Poll<R> {
    ready!(consume(cx));
    let result = poll(cx);
    if result.is_pending() {
        restore();
    }
    result
}

impl<T: Iterator + Send + 'static> Unblock<T>
where
    T::Item: Send + 'static,
{
    fn poll_item(&mut self, cx: &Context<'_>) -> Poll<Option<T::Item>> {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
        loop {
            if let State::Streaming(pipe) = &self.state {
                let Ok(pipe) = pipe.clone().as_any().downcast::<Pipe<T, T::Item>>() else {
                    unreachable!("it is of what this iterator gives");
                };
                match ready!(pipe.poll_take(cx, VecDeque::pop_front)) {
                    Ok(item) => return Poll::Ready(item),
                    Err(Some(error)) => panic!("{error}"),
                    Err(None) => {
                        // This does not wait, since the thread has returned.
                        let stopped = ready!(self.poll_stop(cx));
                        return Poll::Ready(stopped.ok().and(None));
                    }
                }
            }
            let stopped = ready!(self.poll_stop(cx));
            self.keep_failure(stopped);
            let Some(value) = self.idle().take() else {
                return Poll::Ready(None);
            };
            let capacity = self.capacity.unwrap_or(ITEMS);
            self.state = State::Streaming(Pipe::new(value, capacity, iterate));
        }
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
        poll_within_budget(cx, |cx| self.poll_item(cx))
    }
}

impl<T: Read + Send + 'static> Unblock<T> {
    fn poll_bytes(&mut self, cx: &Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        loop {
            if let State::Reading(pipe) = &self.state {
                return Poll::Ready(match ready!(pipe.poll_take(cx, |queue| queue.read(buf))) {
                    Ok(read) => read,
                    Err(Some(error)) => Err(error),
                    Err(None) => {
                        // This does not wait, since the thread has returned.
                        let (value, _, end) = ready!(pipe.poll_stop_filling(cx));
                        self.state = State::Idle(Some(value));
                        end.map_or(Ok(()), End::result).map(|()| 0)
                    }
                });
            }
            let value = ready!(self.poll_value(cx))?;
            let capacity = self.capacity.unwrap_or(BYTES);
            self.state = State::Reading(Pipe::new(value, capacity, read_ahead));
        }
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
        poll_within_budget(cx, |cx| self.poll_bytes(cx, buf))
    }
}

impl<T: Write + Send + 'static> Unblock<T> {
    fn poll_put(&mut self, cx: &Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Err(failure));
        }
        loop {
            if let State::Writing(pipe) = &self.state {
                let put = ready!(pipe.poll_flow(cx, |flow| {
                    if flow.end.is_some() || flow.is_stopping {
                        return Some(None);
                    }
                    let used = flow.queue.len() + flow.in_flight;
                    let length = buf.len().min(pipe.capacity.saturating_sub(used));
                    flow.queue.extend(&buf[..length]);
                    (length > 0).then(|| Some((length, flow.begin())))
                }));
                match put {
                    Some((length, begins)) => {
                        let started = if begins { pipe.start() } else { Ok(()) };
                        // Without a thread the bytes have not been seen.
                        let undone = |_: &_| pipe.flow.update(|flow| flow.queue.clear());
                        return Poll::Ready(started.inspect_err(undone).map(|()| length));
                    }
                    // It has failed, or the future of a flush was dropped.
                    None => ready!(self.poll_stop(cx))?,
                }
            }
            let value = ready!(self.poll_value(cx))?;
            let capacity = self.capacity.unwrap_or(BYTES);
            self.state = State::Writing(Pipe::new(value, capacity, write_behind));
        }
    }
}

impl<T: Write + Send + 'static> AsyncWrite for Unblock<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        poll_within_budget(cx, |cx| self.poll_put(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Err(failure));
        }
        match self.state {
            // Nothing is left to flush, and data that was read ahead stays.
            State::Reading(_) | State::Streaming(_) => Poll::Ready(Ok(())),
            _ => self.poll_stop(cx),
        }
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        ready!(self.poll_stop(cx))?;
        self.state = State::Idle(None);
        Poll::Ready(Ok(()))
    }
}

impl<T: Seek + Send + 'static> AsyncSeek for Unblock<T> {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        position: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        self.check()?;
        loop {
            if let State::Seeking(place, call, sought) = &self.state {
                // If it was another seek, its future was dropped.
                let is_this = *sought == position;
                let result = ready!(noted(call.poll(cx))).expect("it catches panics");
                let value = place.lock().take();
                self.state = State::Idle(value);
                let result = result.unwrap_or_else(|panic| resume_unwind(panic));
                if is_this {
                    return Poll::Ready(result);
                }
            }
            // The value's position is ahead of the task's by the data that was read and not taken.
            let (value, bytes) = match &self.state {
                State::Reading(pipe) => {
                    let (value, bytes, end) = ready!(pipe.poll_stop_filling(cx));
                    if let Some(End::Panicked(panic)) = end {
                        self.state = State::Idle(Some(value));
                        resume_unwind(panic);
                    }
                    (value, bytes)
                }
                _ => (ready!(self.poll_value(cx))?, VecDeque::new()),
            };
            let ahead = bytes.len() as i64;
            let state = std::mem::replace(&mut self.state, State::Idle(None));
            let called = self.call(value, move |value| {
                if ahead > 0 {
                    value.seek(SeekFrom::Current(-ahead))?;
                }
                value.seek(position)
            });
            let (place, call) = match called {
                Ok(called) => called,
                Err(error) => {
                    if let (State::Reading(pipe), State::Idle(value)) = (&state, &mut self.state) {
                        // Restores the previous state.
                        pipe.flow.update(|flow| flow.put_back(value.take(), bytes));
                        self.state = state;
                    }
                    return Poll::Ready(Err(error));
                }
            };
            self.state = State::Seeking(place, call, position);
        }
    }
}

/// Auto traits, checked at compile time.
const _: () = {
    const fn send<T: Send>() {}
    const fn sync<T: Sync>() {}
    const fn unpin<T: Unpin>() {}
    send::<Unblock<u8>>();
    sync::<Unblock<u8>>();
    unpin::<Unblock<std::marker::PhantomPinned>>();
};

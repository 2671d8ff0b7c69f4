//! [`serve`]: a loop that accepts connections, and survives the errors that accepting brings.
//!
//! Each round checks, in this order, whether the loop is to stop, whether a connection has ended,
//! and whether another one can be accepted. A listener's `accept` may take several steps, with a
//! connection half accepted between them. So its future is kept across rounds, and is dropped
//! unfinished only when the loop ends. It is started only below the limit of connections, and
//! cannot exceed it, since nothing else adds connections.
//!
//! An error of `accept` is of one of three kinds (`sys::after_accept_error`):
//!
//! * It concerns one connection (accept(2) lists these for Linux): the next attempt follows at
//!   once, unless there were too many of these in a row.
//! * A resource is exhausted, mostly descriptors: the loop pauses, a little longer each time. A
//!   timer ends the pause, since readiness was never used up and there may be no event. So does the
//!   end of one of its connections, which most likely frees what was missing.
//! * The socket does not listen: the loop ends.
//!
//! The connections are tasks of a [`TaskSet`], so none is left when the loop ends or is dropped,
//! and a connection counts as ended when its descriptor is closed.

use std::fmt;
use std::future::{Future, IntoFuture, Pending, pending, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::thread;
use std::time::Duration;

use super::listener::Listener;
use crate::runtime::TaskSet;
use crate::sys::{AfterAcceptError, after_accept_error};
use crate::time::{Timer, timeout};

/// The first and the longest pause when a resource is exhausted. It is also how late the loop may
/// notice that there is some again; 20 attempts a second cost nothing.
const SHORTEST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(50);

/// After this many errors in a row, each about one connection, the loop pauses too.
const AT_ONCE: u32 = 16;

/// Accepts connections for as long as it is awaited, and runs `handler`'s future for each in a task
/// of its own.
///
/// It goes on when no descriptor is left, when a connection was aborted before it was accepted, and
/// when a handler panics. A [`limit`](Serve::limit), an [end](Serve::until) and a [grace
/// period](Serve::grace) can be set before it is awaited.
///
/// # Examples
///
/// An echo server that can be stopped:
///
/// ```
/// use polder::event::Latch;
/// use polder::io::{AsyncReadExt, AsyncWriteExt, copy};
/// use polder::net::{TcpListener, TcpStream, serve};
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let stop = Latch::new();
///
///     let server = serve(listener, |mut stream, peer| async move {
///         let (reader, writer) = stream.split();
///         if let Err(error) = copy(reader, writer).await {
///             eprintln!("{peer}: {error}");
///         }
///     })
///     .limit(1_000)
///     .until(stop.wait())
///     .grace(Duration::from_secs(5));
///
///     let client = async {
///         let mut stream = TcpStream::connect(address).await?;
///         stream.write_all(b"hello").await?;
///         let mut bytes = [0; 5];
///         stream.read_exact(&mut bytes).await?;
///         stop.set();
///         std::io::Result::Ok(())
///     };
///     let (summary, result) = polder::future::zip(server.into_future(), client).await;
///     result?;
///     assert_eq!(summary?.accepted, 1);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// When awaited: the error of `accept` if the listener cannot accept connections. Connections that
/// were accepted before have had their grace period by then.
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for a limit of 0.
///
/// # Panics
///
/// As [`polder::spawn`](crate::spawn). A panic of the handler, or of its future, ends that
/// connection only.
///
/// # Cancel safety
///
/// Dropping it cancels its connections and closes the listener.
pub fn serve<'a, L, H, F>(listener: L, handler: H) -> Serve<'a, L, H>
where
    L: Listener + 'a,
    H: FnMut(L::Stream, L::Address) -> F + Send + 'a,
    F: Future<Output = ()> + Send + 'static,
{
    Serve {
        listener,
        handler,
        until: pending(),
        limit: usize::MAX,
        grace: Duration::ZERO,
        on_error: Box::new(|_| {}),
    }
}

/// A server to be configured and awaited: see [`serve`].
///
/// It is a builder, which `.await` turns into a future. For functions that take a future, such as
/// [`zip`](crate::future::zip), [`spawn`](crate::spawn), [`timeout`](crate::time::timeout) and
/// those of [`TaskSet`], call [`into_future`](IntoFuture::into_future).
///
/// ```
/// use polder::event::Latch;
/// use polder::net::{TcpListener, serve};
/// use std::sync::Arc;
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let stop = Arc::new(Latch::new());
///     let stopped = stop.clone();
///     let server = serve(listener, |_stream, _peer| async {})
///         .until(async move { stopped.wait().await });
///     let server = polder::spawn(server.into_future());
///     stop.set();
///     assert_eq!(server.await?.accepted, 0);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Dropping it, or its future, cancels its connections and closes the listener.
#[must_use = "nothing is served unless this is awaited"]
pub struct Serve<'a, L, H, U = Pending<()>> {
    listener: L,
    handler: H,
    until: U,
    limit: usize,
    grace: Duration,
    on_error: Box<dyn FnMut(&io::Error) + Send + 'a>,
}

impl<'a, L, H, U> Serve<'a, L, H, U> {
    /// Limits the connections that are served at once. Further ones wait in the listener's queue;
    /// none is lost.
    ///
    /// ```
    /// use polder::net::{TcpListener, serve};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let error = serve(listener, |_stream, _peer| async {}).limit(0).await.unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Stops when `end` completes: closes the listener, gives the connections their
    /// [grace period](Self::grace), and completes.
    ///
    /// Connections that nobody has accepted by then are reset by the system. A clone of the
    /// listener keeps them waiting.
    ///
    /// ```
    /// use polder::net::{TcpListener, serve};
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let summary = serve(listener, |_stream, _peer| async {})
    ///         .until(sleep(Duration::from_millis(2)))
    ///         .await?;
    ///     assert_eq!(summary.accepted, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn until<V>(self, end: V) -> Serve<'a, L, H, V>
    where
        V: Future<Output = ()> + Send + 'a,
    {
        Serve {
            listener: self.listener,
            handler: self.handler,
            until: end,
            limit: self.limit,
            grace: self.grace,
            on_error: self.on_error,
        }
    }

    /// Sets how long connections may go on after the server has stopped. Those that are left after
    /// that are cancelled. The default is zero; [`Duration::MAX`] means without limit.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::net::{TcpListener, TcpStream, serve};
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let _client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let summary = serve(listener, |mut stream, _peer| async move {
    ///         sleep(Duration::from_millis(20)).await; // It is at work yet when the server stops.
    ///         let _ = stream.write_all(b"goodbye").await;
    ///     })
    ///     .until(sleep(Duration::from_millis(10)))
    ///     .grace(Duration::from_secs(5))
    ///     .await?;
    ///     assert_eq!(summary.cancelled, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Calls `on_error` when a connection cannot be accepted: once and not for each attempt, as
    /// long as the error is the same and no connection was accepted in between.
    ///
    /// ```
    /// use polder::net::{TcpListener, serve};
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let summary = serve(listener, |_stream, _peer| async {})
    ///         .on_error(|error| eprintln!("no more connections for now: {error}"))
    ///         .until(async {})
    ///         .await?;
    ///     assert_eq!(summary.errors, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_error(mut self, report: impl FnMut(&io::Error) + Send + 'a) -> Self {
        self.on_error = Box::new(report);
        self
    }
}

impl<L, H, U> fmt::Debug for Serve<'_, L, H, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("limit", &self.limit)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

impl<'a, L, H, U, F> IntoFuture for Serve<'a, L, H, U>
where
    L: Listener + 'a,
    H: FnMut(L::Stream, L::Address) -> F + Send + 'a,
    F: Future<Output = ()> + Send + 'static,
    U: Future<Output = ()> + Send + 'a,
{
    type Output = io::Result<Summary>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<Summary>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// What a server has done: the output of [`serve`].
///
/// ```
/// use polder::net::{TcpListener, TcpStream, serve};
/// use polder::time::sleep;
/// use std::future::pending;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let _client = TcpStream::connect(listener.local_addr()?).await?;
///     let summary = serve(listener, |_stream, _peer| pending())
///         .until(sleep(Duration::from_millis(10)))
///         .await?;
///     // Its handler would never have ended, and there was no grace.
///     assert_eq!(summary.cancelled, summary.accepted);
///     assert_eq!((summary.finished, summary.panicked, summary.errors), (0, 0, 0));
///     assert!(summary.most_at_once <= 1);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Connections accepted: the sum of `finished`, `panicked` and `cancelled`.
    pub accepted: u64,
    /// Connections whose handler completed.
    pub finished: u64,
    /// Connections whose handler panicked.
    pub panicked: u64,
    /// Connections that were cancelled at the end of the grace period.
    pub cancelled: u64,
    /// The largest number of connections at once.
    pub most_at_once: usize,
    /// How often accepting failed.
    pub errors: u64,
}

impl Summary {
    fn count(&mut self, result: thread::Result<()>) {
        match result {
            Ok(()) => self.finished += 1,
            Err(panic) => {
                self.panicked += 1;
                // The panic hook has reported it. Its destructor may panic too.
                if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                    std::mem::forget(again);
                }
            }
        }
    }
}

/// The live connections, and the counts of those that have ended.
#[derive(Default)]
struct Connections {
    tasks: TaskSet<()>,
    summary: Summary,
}

impl Connections {
    fn add<F>(&mut self, handler: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.summary.accepted += 1;
        // A handler may panic before there is a future.
        match catch_unwind(AssertUnwindSafe(handler)) {
            Ok(connection) => self.tasks.spawn(connection),
            Err(panic) => self.summary.count(Err(panic)),
        }
        self.summary.most_at_once = self.summary.most_at_once.max(self.tasks.len());
    }

    async fn join_all(&mut self) {
        while let Some(result) = self.tasks.join_next_result().await {
            self.summary.count(result);
        }
    }

    /// Waits out the grace period, then cancels what is left.
    async fn end(mut self, grace: Duration) -> Summary {
        // Also where there is no grace, for the sake of those that are done.
        if timeout(grace, self.join_all()).await.is_err() {
            self.summary.cancelled = self.tasks.cancel_all().await as u64;
            self.join_all().await;
        }
        self.summary
    }
}

/// The outcome of one round of the loop.
enum Turn<C> {
    Stop,
    Ended(thread::Result<()>),
    Accepted(io::Result<C>),
    Rested,
}

impl<L, H, U> Serve<'_, L, H, U>
where
    L: Listener,
    U: Future<Output = ()>,
{
    async fn run<F>(mut self) -> io::Result<Summary>
    where
        H: FnMut(L::Stream, L::Address) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        if self.limit == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "serve: the limit of connections must be at least 1",
            ));
        }
        let mut connections = Connections::default();
        let error = {
            let mut trouble = Trouble::default();
            let mut until = pin!(self.until);
            // For as many rounds as it takes; dropped before the listener that it borrows.
            let mut accept = pin!(None);
            loop {
                let turn = poll_fn(|cx| {
                    if until.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Turn::Stop);
                    }
                    if let Poll::Ready(Some(result)) = connections.tasks.poll_join_next_result(cx) {
                        return Poll::Ready(Turn::Ended(result));
                    }
                    if let Some(rest) = &mut trouble.rest {
                        return Pin::new(rest).poll(cx).map(|_| Turn::Rested);
                    }
                    if accept.is_none() && connections.tasks.len() < self.limit {
                        accept.set(Some(self.listener.accept()));
                    }
                    let Some(begun) = accept.as_mut().as_pin_mut() else {
                        return Poll::Pending;
                    };
                    let result = ready!(begun.poll(cx));
                    accept.set(None);
                    Poll::Ready(Turn::Accepted(result))
                });
                let turn = turn.await;
                // Time has ended it, or a connection's end has.
                trouble.rest = None;
                match turn {
                    Turn::Stop => break None,
                    Turn::Rested => {}
                    Turn::Ended(result) => connections.summary.count(result),
                    Turn::Accepted(Ok((stream, address))) => {
                        trouble = Trouble::default();
                        connections.add(|| (self.handler)(stream, address));
                    }
                    Turn::Accepted(Err(error)) => {
                        connections.summary.errors += 1;
                        if trouble.is_new(&error) {
                            (self.on_error)(&error);
                        }
                        match after_accept_error(&error) {
                            AfterAcceptError::End => break Some(error),
                            what => trouble.add(what, &error),
                        }
                    }
                }
            }
        };
        drop(self.listener);
        let summary = connections.end(self.grace).await;
        match error {
            None => Ok(summary),
            Some(error) => Err(error),
        }
    }
}

/// Errors of `accept` in a row, without a connection in between.
#[derive(Default)]
struct Trouble {
    count: u32,
    /// The code of the last one.
    last: Option<(io::ErrorKind, Option<i32>)>,
    /// A pause before the next attempt.
    rest: Option<Timer>,
    next_rest: Duration,
}

impl Trouble {
    fn is_new(&self, error: &io::Error) -> bool {
        self.last != Some((error.kind(), error.raw_os_error()))
    }

    fn add(&mut self, what: AfterAcceptError, error: &io::Error) {
        self.last = Some((error.kind(), error.raw_os_error()));
        self.count = self.count.saturating_add(1);
        if what == AfterAcceptError::Rest || self.count > AT_ONCE {
            let rest = self.next_rest.clamp(SHORTEST_REST, LONGEST_REST);
            self.rest = Some(Timer::after(rest));
            self.next_rest = rest * 2;
        }
    }
}

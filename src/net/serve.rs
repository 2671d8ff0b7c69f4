//! [`serve`]: a loop that accepts connections, and survives errors of `accept`.
//! [`serve_on_workers`](super::serve_on_workers()) runs one on each worker.
//!
//! Each round checks, in this order, whether to stop, whether a connection has ended, and whether
//! another one can be accepted. `accept` may take several steps, so its future is kept across
//! rounds, and dropped unfinished only when the loop ends. It is started only below the limit,
//! which it cannot exceed, since nothing else adds connections.
//!
//! `sys::after_accept_error` distinguishes three kinds of errors:
//!
//! * An error of one connection (accept(2) lists these for Linux): the next attempt follows
//!   immediately, unless there were many in a row.
//! * An exhausted resource, usually descriptors: the loop pauses, longer each time. A timer ends
//!   the pause, since the readiness is not used up and there may be no event; so does the end of
//!   one of the loop's connections, which most likely frees the resource. If there is no reactor
//!   for the timer (in another executor, while the background runtime cannot be started, which
//!   needs descriptors, too), the loop ends.
//! * The socket does not listen: the loop ends.
//!
//! When the loop stops and there is a grace period, it first accepts the connections in the
//! listener's queue, since for their clients they are established. The queue counts as empty when
//! an attempt would wait, and again after a yield: at first the task's budget may have been used
//! up. An attempt that waits for a peer in a later step looks the same, and is not waited for:
//! otherwise a server with an empty queue would take its whole grace period to stop.
//!
//! The loop cannot know whether the queue is shared with a program that continues (by inheritance,
//! or by sending the descriptor), so this can be switched off.
//!
//! The connections are tasks of a [`TaskSet`], so none outlives the loop, and a connection counts
//! as ended when its descriptor is closed.

use std::fmt;
use std::future::{Pending, pending, poll_fn};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Once;
use std::task::{Poll, ready};
use std::thread;
use std::time::Duration;

use futures_lite::future::{poll_once, yield_now};

use super::listener::Listener;
use super::socket::BACKLOG;
use crate::kernel;
use crate::runtime::{TaskSet, background};
use crate::scheduler;
use crate::spans;
use crate::sync::{contain, note_contained};
use crate::sys::{self, AfterAcceptError, after_accept_error, invalid};
use crate::time::{Timer, timeout};

/// The first and the longest pause when a resource is exhausted, and so the delay until its return
/// is noticed; 20 attempts a second cost nothing.
const SHORTEST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(50);

/// The number of consecutive errors of single connections after which the loop pauses too.
const AT_ONCE: u32 = 16;

/// The maximum number of connections accepted when the loop stops: our listeners' queue length.
/// Newer ones could keep it from ever ending.
const MAX_QUEUED: usize = BACKLOG as usize;

/// Accepts connections as long as it is awaited, and runs `handler`'s future for each in a separate
/// task.
///
/// It continues when descriptors run out, when a connection was aborted before it was accepted, and
/// when a handler panics. [`Serve`] has a [`limit`](Serve::limit), an [end](Serve::until) and a
/// [grace period](Serve::grace).
///
/// The handler's future is a task, so it owns its data. Clone shared state into an `async move`
/// block, as below; without captures an `async` closure is enough.
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
/// When awaited: the error of `accept` if the listener cannot accept connections, after the grace
/// period of those accepted before; or if descriptors have run out on a thread that drives no
/// runtime, and the [background runtime](crate::spawn), which would end the pause, cannot be
/// started. [`InvalidInput`](io::ErrorKind::InvalidInput) for a limit of 0.
///
/// # Panics
///
/// As [`polder::spawn`](crate::spawn). A panic of the handler or its future ends only that
/// connection. A panic of the function given to [`on_error`](Serve::on_error), or of the
/// [end](Serve::until), ends the server and cancels its connections.
///
/// # Cancel safety
///
/// Dropping it cancels its connections and closes the listener.
#[track_caller]
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
        on_error: Box::new(report_limits),
        settings: Settings::new(),
    }
}

/// The default of [`Serve::on_error`]: reports that the process has run out of descriptors, once.
#[cold]
pub(super) fn report_limits(error: &io::Error) {
    static REPORTED: Once = Once::new();
    if kernel::current().is_none() && sys::is_out_of_descriptors(error) {
        REPORTED.call_once(|| {
            let _ = writeln!(
                io::stderr(),
                "polder: no connection is accepted for now: {error}: raise the limit \
                 (`ulimit -n`), or set a lower one (`Serve::limit`)"
            );
        });
    }
}

/// A server to be configured and awaited: see [`serve`].
///
/// `.await` turns it into a future. Functions that take a future, such as [`spawn`](crate::spawn),
/// [`timeout`], [`zip`](crate::future::zip) and those of [`TaskSet`], need
/// [`into_future`](IntoFuture::into_future).
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
/// # Errors
///
/// When awaited: as [`serve`].
///
/// # Cancel safety
///
/// As [`serve`].
#[must_use = "nothing is served unless this is awaited"]
pub struct Serve<'a, L, H, U = Pending<()>> {
    pub(super) listener: L,
    pub(super) handler: H,
    pub(super) until: U,
    pub(super) on_error: Box<dyn FnMut(&io::Error) + Send + 'a>,
    pub(super) settings: Settings,
}

impl<'a, L, H, U> Serve<'a, L, H, U> {
    /// Limits the number of concurrent connections. Others wait in the listener's queue, while that
    /// has room and the server runs.
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
        self.settings.limit = limit;
        self
    }

    /// Stops when `end` completes: closes the listener, gives the connections their [grace
    /// period](Self::grace), and completes.
    ///
    /// With a grace period, the connections in the listener's queue are accepted first, up to the
    /// [limit](Self::limit), unless that is [switched off](Self::drain). Those that are left, or
    /// come before the listener is closed, are reset by the system, or wait for other users of a
    /// shared listener (a clone, or another process).
    ///
    /// ```
    /// # #[cfg(feature = "signal")] {
    /// use polder::net::{TcpListener, serve};
    /// use polder::signal::ctrl_c;
    ///
    /// polder::block_on(async {
    ///     let stop = ctrl_c(); // Ctrl-C is caught from now on.
    ///     # signal_hook::low_level::raise(signal_hook::consts::SIGINT)?;
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let summary = serve(listener, |_stream, _peer| async {})
    ///         .until(async { stop.await.expect("Ctrl-C can be caught") })
    ///         .await?;
    ///     assert_eq!(summary.accepted, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// A second Ctrl-C does nothing: it neither ends the process nor shortens the grace period. For
    /// that, race the server with a second [`ctrl_c`](crate::signal::ctrl_c) made after the first
    /// has completed: dropping the server cancels its connections.
    ///
    /// # Panics
    ///
    /// A panic of `end` is the server's, and cancels its connections.
    pub fn until<V>(self, end: V) -> Serve<'a, L, H, V>
    where
        V: Future<Output = ()> + Send + 'a,
    {
        Serve {
            listener: self.listener,
            handler: self.handler,
            until: end,
            on_error: self.on_error,
            settings: self.settings,
        }
    }

    /// Sets how long connections may continue after the server has stopped, before they are
    /// cancelled. The default is zero; [`Duration::MAX`] means without limit.
    ///
    /// Connections in the listener's queue are accepted first: see [`drain`](Self::drain). One in
    /// the middle of a multi-step [`accept`](Listener::accept) is dropped.
    ///
    /// Handlers are not notified. One that waits for its client's next request, which may never
    /// come, needs a [`Latch`](crate::event::Latch) that the end sets:
    ///
    /// ```
    /// use polder::event::Latch;
    /// use polder::future::or;
    /// use polder::io::{AsyncReadExt, AsyncWriteExt};
    /// use polder::net::{TcpListener, TcpStream, serve};
    /// use polder::time::sleep;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let _client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let stop = Arc::new(Latch::new());
    ///     let summary = serve(listener, |mut stream, _peer| {
    ///         let stop = stop.clone();
    ///         async move {
    ///             let mut request = [0; 16];
    ///             loop {
    ///                 let read = async { stream.read(&mut request).await.unwrap_or(0) };
    ///                 let stopped = async { stop.wait().await; 0 };
    ///                 if or(read, stopped).await == 0 {
    ///                     break; // The client's end, an error, or the server's end.
    ///                 }
    ///                 let _ = stream.write_all(b"an answer").await; // Not interrupted.
    ///             }
    ///         }
    ///     })
    ///     .until(async {
    ///         sleep(Duration::from_millis(10)).await; // Or Ctrl-C.
    ///         stop.set();
    ///     })
    ///     .grace(Duration::from_secs(5))
    ///     .await?;
    ///     assert_eq!(summary.cancelled, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Sets whether a server that stops first accepts the connections in the listener's queue. The
    /// default is `true`, which has an effect only with a [grace period](Self::grace).
    ///
    /// Switch it off if the queue has other users that continue, such as a clone of the listener in
    /// another server, or the program's next version. The connections are left to them. (Without
    /// other users the system resets them.)
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream, serve};
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let heir = listener.clone();
    ///     let client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let summary = serve(listener, |_stream, _peer| async {})
    ///         .until(async {})
    ///         .grace(Duration::from_secs(5))
    ///         .drain(false)
    ///         .await?;
    ///     assert_eq!(summary.accepted, 0);
    ///     let (_stream, peer) = heir.accept().await?;
    ///     assert_eq!(peer, client.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain(mut self, drain: bool) -> Self {
        self.settings.drains = drain;
        self
    }

    /// Calls `on_error` when a connection cannot be accepted, once until the error changes or a
    /// connection is accepted. By default the first time that the process runs out of descriptors
    /// is reported on standard error.
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
    ///
    /// # Panics
    ///
    /// A panic of `on_error` is the server's, and cancels its connections.
    pub fn on_error(mut self, report: impl FnMut(&io::Error) + Send + 'a) -> Self {
        self.on_error = Box::new(report);
        self
    }
}

impl<L, H, U> fmt::Debug for Serve<'_, L, H, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("limit", &self.settings.limit)
            .field("grace", &self.settings.grace)
            .field("drain", &self.settings.drains)
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
        Box::pin(async move {
            self.settings.check()?;
            let (connections, error) = self
                .run(|tasks, connection, site| drop(tasks.spawn_at(connection, site)))
                .await;
            connections.end(error).await
        })
    }
}

/// The settings of a server that do not depend on its types.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) limit: usize,
    pub(super) grace: Duration,
    /// Whether the queued connections are accepted when it stops, if there is a grace period.
    pub(super) drains: bool,
    /// The caller of `serve` or `serve_on_workers`, which diagnostics report for the connections'
    /// tasks.
    pub(super) site: &'static Location<'static>,
}

impl Settings {
    #[track_caller]
    pub(super) fn new() -> Settings {
        Settings {
            limit: usize::MAX,
            grace: Duration::ZERO,
            drains: true,
            site: Location::caller(),
        }
    }

    pub(super) fn check(&self) -> io::Result<()> {
        if self.limit == 0 {
            return Err(invalid(
                "serve: the limit of connections must be at least 1",
            ));
        }
        Ok(())
    }
}

/// The statistics of a server: the output of [`serve`].
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
///     // Its handler never ends, and there was no grace period.
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
    /// The number of accepted connections: `finished`, `panicked` and `cancelled` together.
    pub accepted: u64,
    /// The number of completed handlers.
    pub finished: u64,
    /// The number of handlers that panicked.
    pub panicked: u64,
    /// The number of connections cancelled at the end of the grace period.
    pub cancelled: u64,
    /// The largest number of concurrent connections.
    pub most_at_once: usize,
    /// The number of failed accepts.
    pub errors: u64,
}

impl Summary {
    fn count(&mut self, result: thread::Result<()>) {
        match result {
            Ok(()) => self.finished += 1,
            Err(panic) => {
                self.panicked += 1;
                note_contained(&*panic);
                contain(|| drop(panic)); // Its destructor may panic too.
            }
        }
    }
}

/// The live connections, the counts of those that have ended, and the errors since the last accept.
pub(super) struct Connections {
    tasks: TaskSet<()>,
    summary: Summary,
    settings: Settings,
    trouble: Trouble,
}

impl Connections {
    fn add<F>(&mut self, handler: impl FnOnce() -> F, spawn: Spawn<F>) {
        self.trouble = Trouble::default();
        self.summary.accepted += 1;
        // The handler may panic before it returns a future.
        match catch_unwind(AssertUnwindSafe(handler)) {
            Ok(connection) => spawn(&mut self.tasks, connection, self.settings.site),
            Err(panic) => self.summary.count(Err(panic)),
        }
        self.summary.most_at_once = self.summary.most_at_once.max(self.tasks.len());
    }

    /// Counts an error of `accept`, and reports it unless it is the last one again. Returns its
    /// consequence.
    fn note_error(
        &mut self,
        error: &io::Error,
        report: &mut dyn FnMut(&io::Error),
    ) -> AfterAcceptError {
        self.summary.errors += 1;
        let code = Some((error.kind(), error.raw_os_error()));
        if std::mem::replace(&mut self.trouble.last, code) != code {
            spans::accept_failed(error);
            report(error);
        }
        after_accept_error(error)
    }

    async fn join_all(&mut self) {
        while let Some(result) = self.tasks.join_next_result().await {
            self.summary.count(result);
        }
    }

    /// Waits out the grace period, then cancels the remaining connections. Returns the fatal error,
    /// if any.
    pub(super) async fn end(mut self, error: Option<io::Error>) -> io::Result<Summary> {
        // Also for a grace period of zero: it counts the finished connections.
        let joined = timeout(self.settings.grace, self.join_all()).await;
        if joined.is_err() {
            self.summary.cancelled = self.tasks.cancel_all().await as u64;
            self.join_all().await;
        }
        error.map_or(Ok(self.summary), Err)
    }
}

/// The outcome of a round.
enum Turn<C> {
    Stop,
    /// A connection or a pause has ended.
    Again,
    Accepted(io::Result<C>),
}

/// Makes a task of a handler's future.
type Spawn<F> = fn(&mut TaskSet<()>, F, &'static Location<'static>);

impl<L, H, U> Serve<'_, L, H, U> {
    /// Accepts connections until it is stopped or cannot continue, and closes the listener. Returns
    /// the connections, and the fatal error, if any.
    pub(super) async fn run<F>(mut self, spawn: Spawn<F>) -> (Connections, Option<io::Error>)
    where
        L: Listener,
        H: FnMut(L::Stream, L::Address) -> F,
        U: Future<Output = ()>,
    {
        let mut connections = Connections {
            tasks: TaskSet::new(),
            summary: Summary::default(),
            settings: self.settings,
            trouble: Trouble::default(),
        };
        let error = {
            let mut until = pin!(self.until);
            // Kept across rounds; dropped before the listener that it borrows.
            let mut accept = pin!(None);
            loop {
                let turn = poll_fn(|cx| {
                    if until.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Turn::Stop);
                    }
                    if let Poll::Ready(Some(result)) = connections.tasks.poll_join_next_result(cx) {
                        connections.summary.count(result);
                        return Poll::Ready(Turn::Again);
                    }
                    if let Some(rest) = &mut connections.trouble.rest {
                        return Pin::new(rest).poll(cx).map(|_| Turn::Again);
                    }
                    if accept.is_none() && connections.tasks.len() < self.settings.limit {
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
                // Ended by the timer, or by the end of a connection.
                connections.trouble.rest = None;
                match turn {
                    Turn::Stop => break None,
                    Turn::Again => {}
                    Turn::Accepted(Ok((stream, address))) => {
                        connections.add(|| (self.handler)(stream, address), spawn);
                    }
                    Turn::Accepted(Err(error)) => {
                        let what = connections.note_error(&error, &mut *self.on_error);
                        if what == AfterAcceptError::End || !connections.trouble.count(what) {
                            break Some(error);
                        }
                    }
                }
            }
        };
        let Settings { grace, drains, .. } = self.settings;
        if error.is_none() && drains && !grace.is_zero() {
            let (listener, on_error) = (&self.listener, &mut *self.on_error);
            drain(listener, &mut connections, self.handler, spawn, on_error).await;
        }
        drop(self.listener);
        (connections, error)
    }
}

/// Accepts the connections in the listener's queue: see the head of this file. Stops at an error
/// that the next attempt would most likely meet again.
async fn drain<L: Listener, F>(
    listener: &L,
    connections: &mut Connections,
    mut handler: impl FnMut(L::Stream, L::Address) -> F,
    spawn: Spawn<F>,
    on_error: &mut (dyn FnMut(&io::Error) + Send),
) {
    for _ in 0..MAX_QUEUED {
        while let Some(result) = connections.tasks.try_join_next_result() {
            connections.summary.count(result);
        }
        if connections.tasks.len() >= connections.settings.limit {
            break;
        }
        let mut accept = pin!(listener.accept());
        let mut accepted = poll_once(accept.as_mut()).await;
        if accepted.is_none() {
            yield_now().await;
            accepted = poll_once(accept).await;
        }
        match accepted {
            Some(Ok((stream, address))) => connections.add(|| handler(stream, address), spawn),
            Some(Err(error)) => match connections.note_error(&error, on_error) {
                AfterAcceptError::Again => {}
                _ => break,
            },
            None => break,
        }
    }
}

/// Consecutive errors of `accept`, without a connection in between.
#[derive(Default)]
struct Trouble {
    count: u32,
    last: Option<(io::ErrorKind, Option<i32>)>,
    rest: Option<Timer>,
    next_rest: Duration,
}

impl Trouble {
    /// Begins a pause, if it is time for one. Returns `false` if nothing would end it.
    fn count(&mut self, what: AfterAcceptError) -> bool {
        self.count = self.count.saturating_add(1);
        if what == AfterAcceptError::Rest || self.count > AT_ONCE {
            // The timer would panic.
            if scheduler::with_reactor(background::shared, |_, _| ()).is_err() {
                return false;
            }
            let rest = self.next_rest.clamp(SHORTEST_REST, LONGEST_REST);
            self.rest = Some(Timer::after(rest));
            self.next_rest = rest * 2;
        }
        true
    }
}

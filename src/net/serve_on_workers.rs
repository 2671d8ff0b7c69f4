//! [`serve_on_workers`]: a loop of [`serve`](super::serve()) on each worker, with its own listener
//! and handler.
//!
//! The server's future spawns the loops, waits for the end, and collects their results. They share
//! a [`Latch`]: the future sets it to stop them, and so does each loop that stops accepting for any
//! reason (an error, a panic, the end of its runtime). So the listeners close together, and all
//! grace periods begin at the same time.

use std::fmt;
use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::FutureExt;
use futures_lite::future::or;

use super::listener::Listener;
use super::serve::{Serve, Settings, Summary, report_limits};
use crate::event::Latch;
use crate::runtime::Handle;
use crate::sync::{OnDrop, contain};
use crate::sys::invalid;
use crate::task::Task;

/// Accepts connections on the workers of this runtime as long as it is awaited: each listener is
/// served by one worker, and its connections stay there.
///
/// It is [`serve`](super::serve()) for programs with a thread for each core that share nothing.
/// `create` is called on the thread of each worker, with the worker's number, and returns its
/// handler. Neither the handler nor its futures need be `Send`, so the connections of a worker can
/// share state in an `Rc`. The listeners come from
/// [`TcpListener::bind_balanced`](super::TcpListener::bind_balanced), or are clones of one. They
/// are assigned to the workers in order, starting over at the first.
///
/// A connection stays with its worker, even while that computes for a long time and others are
/// idle. If the costs of connections differ widely, [`serve`] in a runtime of several workers is
/// the better choice: its tasks move.
///
/// [`serve`]: super::serve()
///
/// # Examples
///
/// ```
/// use polder::Runtime;
/// use polder::event::Latch;
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::{TcpListener, TcpStream, serve_on_workers};
/// use std::cell::Cell;
/// use std::future::IntoFuture;
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// runtime.block_on(async {
///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", runtime.workers()).await?;
///     let address = listeners[0].local_addr()?;
///     let stop = Latch::new();
///
///     let server = serve_on_workers(listeners, |worker| {
///         let count = Rc::new(Cell::new(0)); // The number of this worker's connections.
///         move |mut stream: TcpStream, _peer| {
///             count.set(count.get() + 1);
///             let count = count.clone();
///             async move {
///                 let text = format!("connection {} of worker {worker}", count.get());
///                 let _ = stream.write_all(text.as_bytes()).await; // It may have gone.
///             }
///         }
///     })
///     .until(stop.wait())
///     .grace(Duration::from_secs(5));
///
///     let client = async {
///         let mut text = String::new();
///         TcpStream::connect(address).await?.read_to_string(&mut text).await?;
///         assert!(text.starts_with("connection 1 of worker "));
///         stop.set();
///         std::io::Result::Ok(())
///     };
///     let (summaries, result) = polder::future::zip(server.into_future(), client).await;
///     result?;
///     let accepted: u64 = summaries?.iter().map(|summary| summary.accepted).sum();
///     assert_eq!(accepted, 1);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// When awaited: the error of `accept` if a listener cannot accept connections, after all others
/// have stopped and all connections have had their grace period. [`InvalidInput`] for a limit of 0,
/// and without a listener.
///
/// [`InvalidInput`]: io::ErrorKind::InvalidInput
///
/// # Panics
///
/// If `create` or the function given to [`on_error`](ServeOnWorkers::on_error) panics, after all
/// others have stopped; if the [end](ServeOnWorkers::until) does, immediately, and all connections
/// are cancelled. A panic of a handler or its future ends only that connection.
///
/// # Cancel safety
///
/// Dropping it cancels its connections and closes the listeners, each on its worker **when that
/// next runs**, perhaps after the drop: until then the kernel connects clients, and a new listener
/// may find the address in use. To return only after they are closed, [stop](ServeOnWorkers::until)
/// the server and await it.
#[track_caller]
pub fn serve_on_workers<'a, L, C, H, F>(
    listeners: impl IntoIterator<Item = L>,
    create: C,
) -> ServeOnWorkers<'a, L, C>
where
    L: Listener + 'static,
    C: Fn(usize) -> H + Send + Sync + 'static,
    H: FnMut(L::Stream, L::Address) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    ServeOnWorkers {
        listeners: listeners.into_iter().collect(),
        create,
        until: Box::pin(pending()),
        on_error: Arc::new(report_limits),
        settings: Settings::new(),
    }
}

/// A server on several workers, to be configured and awaited: see [`serve_on_workers`].
///
/// `.await` turns it into a future; functions that take a future need
/// [`into_future`](IntoFuture::into_future). The output is a summary for each listener, in their
/// order.
///
/// ```
/// use polder::net::{ServeOnWorkers, TcpListener, TcpStream, serve_on_workers};
///
/// polder::block_on(async {
///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", 3).await?;
///     let server: ServeOnWorkers<'_, TcpListener, _> =
///         serve_on_workers(listeners, |_worker| |_stream: TcpStream, _peer| async {});
///     let summaries = server.until(async {}).await?;
///     assert_eq!(summaries.len(), 3); // All on the only worker.
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// When awaited: as [`serve_on_workers`].
///
/// # Cancel safety
///
/// As [`serve_on_workers`].
#[must_use = "nothing is served unless this is awaited"]
pub struct ServeOnWorkers<'a, L, C> {
    listeners: Vec<L>,
    create: C,
    until: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    on_error: OnError,
    settings: Settings,
}

type OnError = Arc<dyn Fn(&io::Error) + Send + Sync>;

impl<'a, L, C> ServeOnWorkers<'a, L, C> {
    /// Limits the number of concurrent connections of each listener. Others wait in its queue.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream, serve_on_workers};
    ///
    /// polder::block_on(async {
    ///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", 2).await?;
    ///     let server = serve_on_workers(listeners, |_| |_: TcpStream, _| async {});
    ///     let error = server.limit(0).await.unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn limit(mut self, limit: usize) -> Self {
        self.settings.limit = limit;
        self
    }

    /// Stops when `end` completes: see [`Serve::until`](super::Serve::until).
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream, serve_on_workers};
    /// use polder::time::sleep;
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", 2).await?;
    ///     let server = serve_on_workers(listeners, |_| |_: TcpStream, _| async {});
    ///     let summaries = server.until(sleep(Duration::from_millis(2))).await?;
    ///     assert_eq!(summaries[0].accepted + summaries[1].accepted, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn until(mut self, end: impl Future<Output = ()> + Send + 'a) -> Self {
        self.until = Box::pin(end);
        self
    }

    /// Sets how long connections may continue after the server has stopped: see
    /// [`Serve::grace`](super::Serve::grace).
    ///
    /// A connection that is made after a queue was emptied and before its listener is closed is
    /// reset by the kernel; no program can prevent this.
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream, serve_on_workers};
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", 2).await?;
    ///     let _client = TcpStream::connect(listeners[0].local_addr()?).await?;
    ///     let server = serve_on_workers(listeners, |_| |_: TcpStream, _| async {})
    ///         .until(async {}) // Immediately. The client is in one of the queues.
    ///         .grace(Duration::from_secs(5));
    ///     let finished: u64 = server.await?.iter().map(|summary| summary.finished).sum();
    ///     assert_eq!(finished, 1);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Sets whether a server that stops first accepts the connections in its listeners' queues: see
    /// [`Serve::drain`](super::Serve::drain).
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream, serve_on_workers};
    /// use std::time::Duration;
    ///
    /// polder::block_on(async {
    ///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", 1).await?;
    ///     let heir = listeners[0].clone();
    ///     let client = TcpStream::connect(heir.local_addr()?).await?;
    ///     let summaries = serve_on_workers(listeners, |_| |_: TcpStream, _| async {})
    ///         .until(async {})
    ///         .grace(Duration::from_secs(5))
    ///         .drain(false)
    ///         .await?;
    ///     assert_eq!(summaries[0].accepted, 0);
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

    /// Calls `on_error` when a connection cannot be accepted, on the listener's worker: see
    /// [`Serve::on_error`](super::Serve::on_error).
    ///
    /// ```
    /// use polder::net::{TcpListener, TcpStream, serve_on_workers};
    ///
    /// polder::block_on(async {
    ///     let listeners = TcpListener::bind_balanced("127.0.0.1:0", 2).await?;
    ///     let summaries = serve_on_workers(listeners, |_| |_: TcpStream, _| async {})
    ///         .on_error(|error| eprintln!("no more connections for now: {error}"))
    ///         .until(async {})
    ///         .await?;
    ///     assert_eq!(summaries[0].errors, 0);
    ///     std::io::Result::Ok(())
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_error(mut self, report: impl Fn(&io::Error) + Send + Sync + 'static) -> Self {
        self.on_error = Arc::new(report);
        self
    }
}

impl<L, C> fmt::Debug for ServeOnWorkers<'_, L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeOnWorkers")
            .field("listeners", &self.listeners.len())
            .field("limit", &self.settings.limit)
            .field("grace", &self.settings.grace)
            .field("drain", &self.settings.drains)
            .finish_non_exhaustive()
    }
}

impl<'a, L, C, H, F> IntoFuture for ServeOnWorkers<'a, L, C>
where
    L: Listener + 'static,
    C: Fn(usize) -> H + Send + Sync + 'static,
    H: FnMut(L::Stream, L::Address) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    type Output = io::Result<Vec<Summary>>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<Vec<Summary>>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.settings.check()?;
            if self.listeners.is_empty() {
                return Err(invalid("serve_on_workers: there is no listener"));
            }
            let stop = Arc::new(Latch::new());
            let create = Arc::new(self.create);
            let handle = Handle::current();
            let spawn = |(index, listener)| {
                let (create, on_error) = (create.clone(), self.on_error.clone());
                let (stop, all, settings) = (stop.clone(), stop.clone(), self.settings);
                // It goes to the worker with the rest, which a runtime that ends may drop before it
                // is polled.
                let stop_all = OnDrop(move || all.set());
                let worker = index % handle.workers();
                handle.spawn_on_worker_at(worker, settings.site, move || async move {
                    let serve = Serve {
                        listener,
                        handler: create(worker),
                        until: stop.wait(),
                        on_error: Box::new(move |error| on_error(error)),
                        settings,
                    };
                    let (connections, error) = serve
                        .run(|tasks, connection, site| drop(tasks.spawn_local_at(connection, site)))
                        .await;
                    drop(stop_all);
                    connections.end(error).await
                })
            };
            let loops = self.listeners.into_iter().enumerate().map(spawn).collect();
            or(self.until, stop.wait()).await;
            stop.set();
            join(loops).await
        })
    }
}

/// Waits until all loops have ended, then reports the first failure.
async fn join(loops: Vec<Task<io::Result<Summary>>>) -> io::Result<Vec<Summary>> {
    let (mut summaries, mut failure, mut panic) = (Vec::new(), None, None);
    for each in loops {
        match AssertUnwindSafe(each.fallible()).catch_unwind().await {
            Ok(Some(Ok(summary))) => summaries.push(summary),
            Ok(Some(Err(error))) => failure = failure.or(Some(error)),
            Ok(None) => {
                let ended = || io::Error::other("serve_on_workers: the runtime has shut down");
                failure = failure.or_else(|| Some(ended()));
            }
            Err(payload) if panic.is_none() => panic = Some(payload),
            // The payload's destructor may panic too.
            Err(payload) => contain(|| drop(payload)),
        }
    }
    match (panic, failure) {
        (Some(payload), _) => resume_unwind(payload),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(summaries),
    }
}

//! [`serve`]: polder's own loop of that name, with hyper for its connections.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture, pending};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use polder::event::Latch;
use polder::future::or;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::{self, Listener, Summary};

use crate::{Body, HttpService, Stream, Timer};

/// The default of [`Serve::timeout`].
const TIMEOUT: Duration = Duration::from_secs(30);

/// hyper adds the timeout to the time, which must not overflow. No connection lives for a century.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The default of [`Serve::grace`].
const GRACE: Duration = Duration::from_secs(10);

/// The size of a connection's buffers: for requests, and for responses that cannot be sent yet.
const BUFFER: usize = 64 * 1024;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Serves a connection until it ends, or after the latch is set.
type Connection<S> =
    Box<dyn FnMut(S, Duration, Arc<Latch>) -> BoxFuture<'static, hyper::Result<()>> + Send>;

type Report<A> = Arc<dyn Fn(Option<&A>, &dyn Error) + Send + Sync>;

/// Serves HTTP/1.1 by a service of hyper or of tower, such as axum's `Router`, for as long as it is
/// awaited.
///
/// The loop is that of [`polder::net::serve`], which survives errors and panics. A client that
/// stalls is disconnected: see [`Serve::timeout`].
///
/// ```
/// use hyper::service::service_fn;
/// use hyper::{Request, Response};
/// use polder::event::Latch;
/// use polder::future::zip;
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder::net::{TcpListener, TcpStream};
/// use polder_hyper::Body;
/// use std::convert::Infallible;
/// use std::future::IntoFuture;
///
/// async fn hello(_request: Request<Body>) -> Result<Response<String>, Infallible> {
///     Ok(Response::new("hello".into()))
/// }
///
/// polder::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let stop = Latch::new();
///     let server = polder_hyper::serve(listener, service_fn(hello)).until(stop.wait());
///
///     let client = async {
///         let mut stream = TcpStream::connect(address).await?;
///         stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
///         let mut answer = String::new();
///         stream.read_to_string(&mut answer).await?;
///         assert!(answer.ends_with("\r\n\r\nhello"));
///         stop.set();
///         std::io::Result::Ok(())
///     };
///     let (summary, result) = zip(server.into_future(), client).await;
///     result?;
///     assert_eq!(summary?.finished, 1);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// When awaited: those of [`polder::net::serve`].
///
/// # Cancel safety
///
/// Dropping it cancels its connections and closes the listener.
pub fn serve<'a, L, Kind>(listener: L, service: impl HttpService<Kind>) -> Serve<'a, L>
where
    L: Listener<Stream: AsyncRead + AsyncWrite + Unpin>,
{
    let connection = move |stream, timeout, stop: Arc<Latch>| -> BoxFuture<'static, _> {
        let service = service.clone();
        Box::pin(async move { serve_connection(stream, service, timeout, stop.wait()).await })
    };
    Serve {
        listener,
        connection: Box::new(connection),
        until: Box::pin(pending()),
        report: None,
        timeout: TIMEOUT,
        limit: usize::MAX,
        grace: GRACE,
    }
}

/// A server to be configured and awaited: see [`serve`].
///
/// ```
/// # #[cfg(unix)] {
/// use axum::Router;
/// use polder::net::TcpListener;
/// use polder::signal::ctrl_c;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let stop = ctrl_c(); // Ctrl-C is caught from now on.
///     # std::process::Command::new("kill")
///     #     .args(["-INT", &std::process::id().to_string()]).status()?;
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     polder_hyper::serve(listener, Router::new())
///         .timeout(Duration::from_secs(10))
///         .limit(10_000)
///         .on_error(|peer, error| eprintln!("{peer:?}: {error}"))
///         .until(async { stop.await.expect("Ctrl-C can be caught") })
///         .grace(Duration::from_secs(5))
///         .await
/// })?;
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Dropping it, or its future, cancels its connections and closes the listener.
#[must_use = "nothing is served unless this is awaited"]
pub struct Serve<'a, L: Listener> {
    listener: L,
    connection: Connection<L::Stream>,
    until: BoxFuture<'a, ()>,
    report: Option<Report<L::Address>>,
    timeout: Duration,
    limit: usize,
    grace: Duration,
}

impl<'a, L: Listener> Serve<'a, L> {
    /// Limits how long a client may stall: until the head of its next request is complete, while a
    /// service waits for more of a body, or while it takes nothing of a response. The connection
    /// then ends. The default is 30 seconds. (Over a stream that is not one of polder's sockets,
    /// such as TLS, it takes nothing until a third of the system's buffer for sending is free.)
    ///
    /// The time that a service takes is not limited. If the client closes its connection meanwhile,
    /// the service's future is dropped, unless a part of the request's body is unread, or the next
    /// request has come: then nothing reads the connection.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits the number of concurrent connections, as [`polder::net::Serve::limit`].
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Stops when `end` completes: closes the listener, and each connection after its current
    /// response, for which it has its [grace period](Self::grace).
    pub fn until(mut self, end: impl Future<Output = ()> + Send + 'a) -> Self {
        self.until = Box::pin(end);
        self
    }

    /// Sets how long responses may take after the [end](Self::until). After that the remaining
    /// connections are cancelled. The default is 10 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Calls `report` with the error that has ended a connection, and its peer; and without a peer
    /// when a connection cannot be accepted, as [`polder::net::Serve::on_error`], whose default
    /// applies without this call.
    pub fn on_error<F>(mut self, report: F) -> Self
    where
        F: Fn(Option<&L::Address>, &dyn Error) + Send + Sync + 'static,
    {
        self.report = Some(Arc::new(report));
        self
    }
}

impl<L: Listener> fmt::Debug for Serve<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("timeout", &self.timeout)
            .field("limit", &self.limit)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

impl<'a, L: Listener + 'a> IntoFuture for Serve<'a, L> {
    type Output = io::Result<Summary>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<Summary>> + Send + 'a>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let stop = Arc::new(Latch::new());
            let listener = Telling(self.listener, stop.clone());
            let server = net::serve(listener, |stream, peer| {
                let connection = (self.connection)(stream, self.timeout, stop.clone());
                let report = self.report.clone();
                async move {
                    if let (Err(error), Some(report)) = (connection.await, report) {
                        report(Some(&peer), &error);
                    }
                }
            })
            .limit(self.limit)
            .grace(self.grace)
            .until(async {
                self.until.await;
                stop.set(); // Before the connections in the listener's queue are accepted.
            });
            match &self.report {
                Some(report) => server.on_error(|error| report(None, error)).await,
                None => server.await,
            }
        })
    }
}

/// A listener that sets the latch when it is closed: also if accepting has failed for good. The
/// connections have their grace period after that.
struct Telling<L>(L, Arc<Latch>);

impl<L: Listener> Listener for Telling<L> {
    type Stream = L::Stream;
    type Address = L::Address;

    fn accept(&self) -> impl Future<Output = io::Result<(L::Stream, L::Address)>> + Send {
        self.0.accept()
    }
}

impl<L> Drop for Telling<L> {
    fn drop(&mut self) {
        self.1.set();
    }
}

/// Serves one connection until it ends, or until `stop`: then it ends after the current response.
/// It is what [`serve`] does, for streams that are connected otherwise, such as those of TLS.
///
/// ```
/// use axum::Router;
/// use polder::io::{AsyncReadExt, AsyncWriteExt};
/// use polder_hyper::serve_connection;
/// use std::future::pending;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let (near, mut far) = polder::io::duplex(1024);
///     far.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
///     let timeout = Duration::from_secs(10);
///     let served = serve_connection(near, Router::new(), timeout, pending()).await;
///     served.map_err(std::io::Error::other)?;
///     let mut answer = String::new();
///     far.read_to_string(&mut answer).await?;
///     assert!(answer.starts_with("HTTP/1.0 404 "));
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// hyper's, and those of the stream. A client that stalls for `timeout` is one, as in
/// [`Serve::timeout`].
///
/// # Cancel safety
///
/// Dropping the future closes the connection.
pub async fn serve_connection<S, Kind>(
    stream: S,
    service: impl HttpService<Kind>,
    timeout: Duration,
    stop: impl Future<Output = ()>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let request = request.map(|incoming| Body::new(incoming, timeout));
        service.clone().answer(request)
    });
    let connection = http1::Builder::new()
        .timer(Timer)
        .header_read_timeout(timeout.min(LONGEST_TIMEOUT))
        .max_buf_size(BUFFER)
        .serve_connection(Stream::limited(stream, timeout), service);
    let mut connection = pin!(connection);
    let ended = async { Some(connection.as_mut().await) };
    let stopped = async {
        stop.await;
        None
    };
    match or(ended, stopped).await {
        Some(result) => result,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use hyper::Response;
    use polder::future::zip;
    use polder::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use polder::time::timeout;
    use std::convert::Infallible;
    use std::sync::Mutex;

    const EINVAL: i32 = 22; // Of accept(2), for a socket that does not listen.

    /// It has one connection. Accepting another one fails for good.
    struct Failing(Mutex<Option<DuplexStream>>);

    impl Listener for Failing {
        type Stream = DuplexStream;
        type Address = ();

        async fn accept(&self) -> io::Result<(DuplexStream, ())> {
            let near = self.0.lock().unwrap().take();
            near.map(|near| (near, ()))
                .ok_or_else(|| io::Error::from_raw_os_error(EINVAL))
        }
    }

    /// An idle connection ends when its listener fails.
    #[test]
    fn idle_connection_ends_when_listener_fails() {
        polder::block_on(async {
            let (near, mut far) = duplex(1024);
            let answer = async |_| Ok::<_, Infallible>(Response::new("hello".to_owned()));
            let server = serve(Failing(Mutex::new(Some(near))), service_fn(answer))
                .timeout(Duration::from_secs(60))
                .grace(Duration::from_secs(60));
            let client = async {
                far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
                let mut answer = String::new();
                far.read_to_string(&mut answer).await.unwrap();
                assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
            };
            let both = timeout(Duration::from_secs(5), zip(server.into_future(), client));
            let (result, ()) = both.await.expect("the connection ends");
            assert_eq!(result.unwrap_err().raw_os_error(), Some(EINVAL));
        });
    }
}

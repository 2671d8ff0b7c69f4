//! [`serve`]: polder's own loop of that name, with hyper for its connections.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use polder::event::Latch;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::{self, Listener, Summary};

use crate::connection::{self, Introduce, Settings, TIMEOUT, Version};
use crate::{ConnectInfo, HttpService};

/// The default of [`Serve::grace`].
const GRACE: Duration = Duration::from_secs(10);

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Serves a connection until it ends, or after the latch is set.
type Connection<S> =
    Box<dyn FnMut(S, How, Arc<Latch>) -> BoxFuture<'static, io::Result<()>> + Send>;

/// How a connection is served.
struct How {
    settings: Arc<Settings>,
    introduce: Option<Introduce>,
    #[cfg(feature = "rustls-no-provider")]
    tls: Option<crate::RustlsConfig>,
}

impl How {
    /// Greets the client, and serves it.
    async fn serve<S, Kind: 'static>(
        self,
        stream: S,
        service: impl HttpService<Kind>,
        stop: Arc<Latch>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (settings, introduce) = (&*self.settings, self.introduce);
        #[cfg(feature = "rustls-no-provider")]
        if let Some(tls) = self.tls {
            let greeting = polder::time::timeout(settings.timeout, tls.acceptor().accept(stream));
            // A connection that is there when the server stops is greeted, in the grace period.
            let greeted = greeting.await.unwrap_or_else(|late| Err(late.into()));
            let named = |error: io::Error| io::Error::new(error.kind(), format!("TLS: {error}"));
            let stream = greeted.map_err(named)?;
            let version = match stream.get_ref().1.alpn_protocol() {
                Some(b"http/1.1") => Version::Http1,
                _ => Version::ByFirstBytes,
            };
            return connection::serve(stream, version, service, settings, introduce, stop.wait())
                .await;
        }
        let version = Version::ByFirstBytes;
        connection::serve(stream, version, service, settings, introduce, stop.wait()).await
    }
}

#[cfg(feature = "http2")]
type Http2Builder = hyper::server::conn::http2::Builder<crate::Executor>;

type Report<A> = Arc<dyn Fn(Option<&A>, &dyn Error) + Send + Sync>;

/// Serves HTTP by a service of hyper or of tower, such as axum's `Router`, for as long as it is
/// awaited: HTTP/1, and with the feature `http2` also HTTP/2, on the same port.
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
pub fn serve<'a, L, Kind: 'static>(listener: L, service: impl HttpService<Kind>) -> Serve<'a, L>
where
    L: Listener<Stream: AsyncRead + AsyncWrite + Unpin>,
{
    let connection = move |stream, how: How, stop| -> BoxFuture<'static, _> {
        Box::pin(how.serve(stream, service.clone(), stop))
    };
    Serve {
        listener,
        connection: Box::new(connection),
        until: Box::pin(pending()),
        report: None,
        settings: Settings::new(TIMEOUT),
        introduce: None,
        #[cfg(feature = "rustls-no-provider")]
        tls: None,
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
    settings: Settings,
    introduce: Option<fn(&L::Address) -> Introduce>,
    #[cfg(feature = "rustls-no-provider")]
    tls: Option<crate::RustlsConfig>,
    limit: usize,
    grace: Duration,
}

impl<'a, L: Listener> Serve<'a, L> {
    /// Limits how long a client may stall: until the head of its next request is complete, while a
    /// service waits for more of a body, or while it takes nothing of a response. The connection
    /// then ends. The default is 30 seconds. (Over a stream that is not one of polder's sockets,
    /// such as TLS, it takes nothing until a third of the system's buffer for sending is free.)
    ///
    /// Each step has this limit: the handshake of TLS, the first bytes, the head.
    ///
    /// A connection of HTTP/2 ends when nothing was read or written for that time, or a quarter
    /// longer, and all of its requests wait for the client. If it has none, the client is told
    /// (GOAWAY), and has as long again to go.
    ///
    /// The time that a service takes is not limited. If the client closes its connection meanwhile,
    /// the service's future is dropped, unless a part of the request's body is unread, or the next
    /// request has come: then nothing reads the connection.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.set_timeout(timeout);
        self
    }

    /// Limits the time that a service may take until it returns a response. The service's future is
    /// then dropped, and the client gets `503 Service Unavailable` (tower-http's `TimeoutLayer`
    /// answers 408). There is no limit by default.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.settings.request_timeout = Some(limit);
        self
    }

    /// Limits the size of a request's body, in bytes. A larger one is refused with `413 Content Too
    /// Large`; if its length is not known beforehand, reading it fails. There is no limit by
    /// default. (axum's extractors have their own, of 2 MB.)
    pub fn body_limit(mut self, limit: u64) -> Self {
        self.settings.body_limit = limit;
        self
    }

    /// Tells services the address of their client, as an extension of each request: see
    /// [`ConnectInfo`].
    pub fn connect_info(mut self) -> Self
    where
        L::Address: Clone + Send + Sync,
    {
        self.introduce = Some(|peer| {
            let peer = ConnectInfo(peer.clone());
            Arc::new(move |extensions| drop(extensions.insert(peer.clone())))
        });
        self
    }

    /// Serves HTTPS: each connection begins with a handshake of TLS, which has the time limit of
    /// [`timeout`](Self::timeout). See [`RustlsConfig`](crate::RustlsConfig). The text of its
    /// errors begins with `TLS: `.
    #[cfg(feature = "rustls-no-provider")]
    pub fn tls(mut self, config: crate::RustlsConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Changes what hyper lets change for HTTP/1, such as the number and the size of headers. Call
    /// it after [`timeout`](Self::timeout), which sets hyper's `header_read_timeout`.
    ///
    /// ```
    /// # async fn run(listener: polder::net::TcpListener) -> std::io::Result<()> {
    /// polder_hyper::serve(listener, axum::Router::new())
    ///     .http1(|http1| http1.max_headers(50).keep_alive(false))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn http1(
        mut self,
        change: impl FnOnce(&mut http1::Builder) -> &mut http1::Builder,
    ) -> Self {
        change(&mut self.settings.http1);
        self
    }

    /// Changes what hyper lets change for HTTP/2, such as the number of concurrent requests of a
    /// connection, which is 200.
    ///
    /// ```
    /// # async fn run(listener: polder::net::TcpListener) -> std::io::Result<()> {
    /// polder_hyper::serve(listener, axum::Router::new())
    ///     .http2(|http2| http2.max_concurrent_streams(20))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "http2")]
    pub fn http2(mut self, change: impl FnOnce(&mut Http2Builder) -> &mut Http2Builder) -> Self {
        change(&mut self.settings.http2);
        self
    }

    /// Limits the number of concurrent connections, as [`polder::net::Serve::limit`]. One that was
    /// [upgraded](crate::upgrade) counts until its stream is dropped.
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

    /// Sets how long responses, and [upgraded](crate::upgrade) connections, may take after the
    /// [end](Self::until). After that the remaining connections are cancelled, but for upgraded
    /// ones, which are the program's. The default is 10 seconds.
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
            .field("settings", &self.settings)
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
            let settings = Arc::new(self.settings);
            let server = net::serve(listener, |stream, peer| {
                let how = How {
                    settings: settings.clone(),
                    introduce: self.introduce.map(|introduce| introduce(&peer)),
                    #[cfg(feature = "rustls-no-provider")]
                    tls: self.tls.clone(),
                };
                let connection = (self.connection)(stream, how, stop.clone());
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use hyper::Response;
    use hyper::service::service_fn;
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

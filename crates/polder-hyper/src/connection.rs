//! [`serve_connection`]: hyper on one stream, by the version of HTTP that its client speaks.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::http::Extensions;
use hyper::server::conn::http1;
#[cfg(feature = "http2")]
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use polder::event::Latch;
use polder::future::or;
use polder::io::{AsyncRead, AsyncWrite};
use polder::time;

use crate::activity::{Activity, InFlight, Reply, Tunnel};
use crate::{Body, HttpService, Stream, Timer};

/// The default of [`Serve::timeout`](crate::Serve::timeout).
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// hyper adds the timeout to the time, which must not overflow. No connection lives for a century.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The size of a connection's buffers: for requests, and for responses that cannot be sent yet.
const BUFFER: usize = 64 * 1024;

/// The first bytes of an HTTP/2 connection (RFC 9113, 3.4). No request of HTTP/1 does: PRI is no
/// method of it.
#[cfg(feature = "http2")]
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How connections are served.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) body_limit: u64,
    pub(crate) http1: http1::Builder,
    #[cfg(feature = "http2")]
    pub(crate) http2: http2::Builder<crate::Executor>,
}

impl Settings {
    pub(crate) fn new(timeout: Duration) -> Settings {
        let mut http1 = http1::Builder::new();
        http1.timer(Timer).max_buf_size(BUFFER);
        let mut settings = Settings {
            timeout,
            request_timeout: None,
            body_limit: u64::MAX,
            http1,
            #[cfg(feature = "http2")]
            http2: {
                let mut http2 = http2::Builder::new(crate::Executor);
                http2.timer(Timer).max_send_buf_size(BUFFER);
                http2
            },
        };
        settings.set_timeout(timeout);
        settings
    }

    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout.min(LONGEST_TIMEOUT);
        self.http1.header_read_timeout(self.timeout);
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("timeout", &self.timeout)
            .field("request_timeout", &self.request_timeout)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}

/// What is known of a connection's version of HTTP before its first bytes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Version {
    ByFirstBytes,
    /// TLS has agreed on it (ALPN).
    #[cfg_attr(not(feature = "rustls-no-provider"), allow(dead_code))]
    Http1,
}

/// Adds to the extensions of each request of a connection.
pub(crate) type Introduce = Arc<dyn Fn(&mut Extensions) + Send + Sync>;

/// Serves one connection until it ends, or until `stop`: then it ends after the current responses.
/// It is what [`serve`](crate::serve()) does, for streams that are connected otherwise.
///
/// With the feature `http2` it serves both versions: the client's first bytes tell which. A
/// connection that is [upgraded](crate::upgrade) is served until the upgraded stream is dropped.
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
///     serve_connection(near, Router::new(), timeout, pending()).await?;
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
/// hyper's ([`Other`](io::ErrorKind::Other), with a [`hyper::Error`] in it), and those of the
/// stream. A client that stalls for `timeout` is one, as in
/// [`Serve::timeout`](crate::Serve::timeout).
///
/// # Cancel safety
///
/// Dropping the future closes the connection.
pub async fn serve_connection<S, Kind: 'static>(
    stream: S,
    service: impl HttpService<Kind>,
    timeout: Duration,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let settings = Settings::new(timeout);
    serve(
        stream,
        Version::ByFirstBytes,
        service,
        &settings,
        None,
        stop,
    )
    .await
}

pub(crate) async fn serve<S, Kind: 'static>(
    stream: S,
    #[cfg_attr(not(feature = "http2"), allow(unused_variables))] version: Version,
    service: impl HttpService<Kind>,
    settings: &Settings,
    introduce: Option<Introduce>,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    #[cfg_attr(not(feature = "http2"), allow(unused_mut))]
    let mut stop = pin!(stop);
    let mut stream = Stream::limited(stream, settings.timeout);
    let closed = Arc::new(Latch::new());
    stream.set_on_drop(closed.clone());
    #[cfg(feature = "http2")]
    if version == Version::ByFirstBytes {
        // The stop comes second: a request that is there is answered.
        let begun = async { time::timeout(settings.timeout, speaks_http2(&mut stream)).await };
        let stopped = async {
            stop.as_mut().await;
            Ok(Ok(None))
        };
        let begun = or(begun, stopped).await;
        let begun = begun.map_err(|_| stalled("no request came", settings.timeout))?;
        match begun? {
            None => return Ok(()),
            Some(true) => return serve_http2(stream, service, settings, introduce, stop).await,
            Some(false) => {}
        }
    }
    serve_http1(stream, service, settings, introduce, stop).await?;
    closed.wait().await; // An upgraded stream may outlive HTTP.
    Ok(())
}

#[cfg(feature = "http2")]
fn stalled(what: &str, limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} for {limit:?}"))
}

/// Reads until it is clear whether this is HTTP/2; not at all without need.
#[cfg(feature = "http2")]
async fn speaks_http2<S: AsyncRead + Unpin>(stream: &mut Stream<S>) -> io::Result<Option<bool>> {
    loop {
        let read = std::future::poll_fn(|cx| stream.poll_read_ahead(cx)).await?;
        let ahead = stream.ahead();
        let seen = ahead.len().min(PREFACE.len());
        let is_preface = ahead[..seen] == PREFACE[..seen];
        if read == 0 || !is_preface || seen == PREFACE.len() {
            return Ok(Some(is_preface && seen == PREFACE.len()));
        }
    }
}

async fn serve_http1<S, Kind: 'static>(
    stream: Stream<S>,
    service: impl HttpService<Kind>,
    settings: &Settings,
    introduce: Option<Introduce>,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = Limits::of(settings, introduce, None);
    let service = service_fn(move |request| limits.clone().answer(service.clone(), request));
    let connection = settings.http1.serve_connection(stream, service);
    let mut connection = pin!(connection.with_upgrades());
    let ended = async { Some(connection.as_mut().await) };
    let stopped = async {
        stop.await;
        None
    };
    let result = match or(ended, stopped).await {
        Some(result) => result,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    result.map_err(io::Error::other)
}

#[cfg(feature = "http2")]
async fn serve_http2<S, Kind: 'static>(
    mut stream: Stream<S>,
    service: impl HttpService<Kind>,
    settings: &Settings,
    introduce: Option<Introduce>,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    enum Next {
        Ended(hyper::Result<()>),
        Stopped,
        Stalled,
    }
    let activity = Arc::new(Activity::default());
    stream.set_activity(activity.clone());
    let limits = Limits::of(settings, introduce, Some(activity.clone()));
    let service = service_fn(move |request| limits.clone().answer(service.clone(), request));
    let mut connection = pin!(settings.http2.serve_connection(stream, service));
    let mut stop = Some(stop);
    let mut is_stopping = false;
    loop {
        let ended = async { Next::Ended(connection.as_mut().await) };
        let stopped = async {
            match &mut stop {
                Some(stop) => stop.as_mut().await,
                None => std::future::pending().await,
            }
            Next::Stopped
        };
        let stalled = async {
            activity.stalled(settings.timeout).await;
            Next::Stalled
        };
        match or(ended, or(stopped, stalled)).await {
            Next::Ended(result) => return result.map_err(io::Error::other),
            Next::Stopped => stop = None,
            // An idle client is told, so that it sends no request into a connection that ends.
            Next::Stalled if !is_stopping && !activity.has_requests() => {}
            Next::Stalled => return Err(self::stalled("nothing moved", settings.timeout)),
        }
        is_stopping = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// The limits of each request of a connection.
#[derive(Clone)]
struct Limits {
    timeout: Duration,
    request_timeout: Option<Duration>,
    body_limit: u64,
    introduce: Option<Introduce>,
    activity: Option<Arc<Activity>>,
}

impl Limits {
    fn of(
        settings: &Settings,
        introduce: Option<Introduce>,
        activity: Option<Arc<Activity>>,
    ) -> Limits {
        Limits {
            timeout: settings.timeout,
            request_timeout: settings.request_timeout,
            body_limit: settings.body_limit,
            introduce,
            activity,
        }
    }

    async fn answer<S: HttpService<Kind>, Kind: 'static>(
        self,
        service: S,
        request: Request<Incoming>,
    ) -> Result<Response<Reply<S::Body>>, S::Error> {
        let in_flight = self.activity.clone().map(InFlight::new);
        let refused = |status: StatusCode, in_flight| {
            let mut response = Response::new(Reply::new(None, in_flight));
            *response.status_mut() = status;
            Ok(response)
        };
        // The lower bound is exact if there is a `Content-Length`.
        if request.body().size_hint().lower() > self.body_limit {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, in_flight);
        }
        let mut request =
            request.map(|incoming| Body::new(incoming, self.timeout).limited(self.body_limit));
        if let Some(introduce) = self.introduce {
            introduce(request.extensions_mut());
        }
        if let (Some(activity), &Method::CONNECT) = (self.activity, request.method()) {
            request.extensions_mut().insert(Tunnel::new(activity));
        }
        let answer = service.answer(request);
        let response = match self.request_timeout {
            None => answer.await,
            Some(limit) => match time::timeout(limit, answer).await {
                Ok(response) => response,
                Err(_) => return refused(StatusCode::SERVICE_UNAVAILABLE, in_flight),
            },
        };
        response.map(|response| response.map(|body| Reply::new(Some(body), in_flight)))
    }
}

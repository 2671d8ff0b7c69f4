//! [`HttpService`]: services of hyper and of tower; and the [`Body`] of their requests.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::{Request, Response};

use crate::stall::Stall;

type BoxError = Box<dyn Error + Send + Sync>;

/// A service that [`serve`](crate::serve()) can serve: it answers a request with this crate's
/// [`Body`]. Each connection has a clone of it.
///
/// Implemented for the services of hyper ([`service_fn`](hyper::service::service_fn)) and of tower
/// (axum's `Router`). `Kind` is [`Hyper`] or [`Tower`], which the compiler infers.
///
/// ```
/// use hyper::service::service_fn;
/// use hyper::{Request, Response};
/// use polder_hyper::{Body, HttpService};
///
/// fn check<Kind>(_service: impl HttpService<Kind>) {}
///
/// check(service_fn(async |request: Request<Body>| {
///     Ok::<_, std::io::Error>(Response::new(request.uri().path().to_owned()))
/// }));
/// check(axum::Router::new());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service for `Request<polder_hyper::Body>`",
    note = "it has to be hyper's or tower's, `Clone`, `Send`, and have futures that are `Send`"
)]
pub trait HttpService<Kind>: Clone + Send + 'static {
    /// The body of its responses.
    type Body: hyper::body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
    /// Its error, which ends the connection.
    type Error: Into<BoxError>;

    /// Answers a request.
    fn answer(
        self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

/// The kind of hyper's services: see [`HttpService`].
#[derive(Debug)]
pub enum Hyper {}

/// The kind of tower's services: see [`HttpService`].
#[derive(Debug)]
pub enum Tower {}

impl<S, B> HttpService<Hyper> for S
where
    S: hyper::service::Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: hyper::body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
    type Error = S::Error;

    fn answer(
        self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<B>, S::Error>> + Send {
        self.call(request)
    }
}

impl<S, B> HttpService<Tower> for S
where
    S: tower_service::Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: hyper::body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
    type Error = S::Error;

    async fn answer(mut self, request: Request<Body>) -> Result<Response<B>, S::Error> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.call(request).await
    }
}

/// The body of a request: hyper's [`Incoming`], with a time limit. It fails with
/// [`TimedOut`](io::ErrorKind::TimedOut) if nothing of it has arrived for the server's
/// [`timeout`](crate::Serve::timeout), and with [`InvalidData`](io::ErrorKind::InvalidData) if it
/// is larger than its [`body_limit`](crate::Serve::body_limit).
///
/// ```
/// use http_body_util::BodyExt;
/// use hyper::{Request, Response, StatusCode};
/// use polder_hyper::Body;
///
/// /// Returns the length of a body.
/// async fn length(request: Request<Body>) -> hyper::http::Result<Response<String>> {
///     match request.into_body().collect().await {
///         Ok(body) => Ok(Response::new(format!("{}\n", body.to_bytes().len()))),
///         Err(error) => Response::builder()
///             .status(StatusCode::REQUEST_TIMEOUT)
///             .body(error.to_string()),
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    stall: Stall,
    /// The number of bytes that may still come.
    left: u64,
}

impl Body {
    /// Limits how long a body may send nothing. [`serve`](crate::serve()) does so itself; hyper's
    /// own builders need it.
    pub fn new(incoming: Incoming, timeout: Duration) -> Body {
        Body {
            incoming,
            stall: Stall::new("nothing came", timeout),
            left: u64::MAX,
        }
    }

    /// Limits the size, in bytes.
    pub(crate) fn limited(mut self, limit: u64) -> Body {
        self.left = limit;
        self
    }

    fn check_size(&mut self, frame: &Frame<Bytes>) -> io::Result<()> {
        let size = frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
        let Some(left) = self.left.checked_sub(size) else {
            self.left = 0; // No later and smaller part follows the one that is missing.
            let text = "the body is larger than the server allows";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        self.left = left;
        Ok(())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        match ready!(self.stall.check(cx, frame, || None)) {
            Ok(Some(Ok(frame))) => Poll::Ready(Some(self.check_size(&frame).map(|()| frame))),
            Ok(Some(Err(error))) => Poll::Ready(Some(Err(io::Error::other(error)))),
            Ok(None) => Poll::Ready(None),
            Err(stalled) => Poll::Ready(Some(Err(stalled))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

//! The site that `http` and `https` serve, and how a connection is served.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | a greeting |
//! | `GET /bytes/N` | N bytes, made as they are sent |
//! | `POST /echo` | what was sent, while it still comes |
//! | `POST /count` | how many bytes were sent |

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper::{Method, Request, Response, StatusCode};
use polder::io::{AsyncRead, AsyncWrite};
use polder::time::timeout;
use polder::{future, stream};

use crate::{HyperStream, HyperTimer};

/// Any error of a service or of a body.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Any body.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The size of a connection's buffers: for requests, and for responses that cannot be sent yet.
const BUFFER: usize = 64 * 1024;

/// Serves the site on one connection, as [`serve`] does.
pub async fn connection<S>(
    stream: S,
    limit: Duration,
    stop: impl Future<Output = ()>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service =
        service_fn(|request| async move { Ok::<_, Infallible>(answer(request, limit).await) });
    serve(stream, service, limit, stop).await
}

/// Serves one connection until it ends, or until `stop`: then it ends after the current response. A
/// client that sends no request for `limit` is disconnected; for bodies, use [`limited`].
pub async fn serve<S, H, B>(
    stream: S,
    service: H,
    limit: Duration,
    stop: impl Future<Output = ()>,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    H: HttpService<Incoming, ResBody = B>,
    H::Error: Into<BoxError>,
    B: hyper::body::Body + 'static,
    B::Error: Into<BoxError>,
{
    let connection = http1::Builder::new()
        .timer(HyperTimer)
        .header_read_timeout(limit)
        .max_buf_size(BUFFER)
        // A client that has shut down its write half still gets its response.
        .half_close(true)
        .serve_connection(HyperStream::new(stream), service);
    let mut connection = pin!(connection);
    let ended = async { Some(connection.as_mut().await) };
    let stopped = async {
        stop.await;
        None
    };
    match future::or(ended, stopped).await {
        Some(result) => result,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

/// Answers a request for the site, for both versions of HTTP.
pub async fn answer(request: Request<Incoming>, limit: Duration) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if let Some(count) = path.strip_prefix("/bytes/") {
        return match count.parse() {
            Ok(count) if parts.method == Method::GET => bytes(count),
            _ => text(StatusCode::BAD_REQUEST, format!("{count:?} is no number\n")),
        };
    }
    match (&parts.method, path) {
        (&Method::GET, "/") => text(StatusCode::OK, "hello from polder\n"),
        (&Method::POST, "/echo") => Response::new(limited(body, limit)),
        (&Method::POST, "/count") => match count(limited(body, limit)).await {
            Ok(count) => text(StatusCode::OK, format!("{count}\n")),
            Err(error) => text(StatusCode::REQUEST_TIMEOUT, format!("{error}\n")),
        },
        _ => text(StatusCode::NOT_FOUND, "there is no such thing here\n"),
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(text.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}

/// The pattern of `/bytes`: a prime number of bytes, so that swapped or lost data is detected.
pub static PATTERN: [u8; 65_521] = {
    let mut bytes = [0; 65_521];
    let mut state = 1_u32;
    let mut at = 0;
    while at < bytes.len() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes[at] = (state >> 24) as u8;
        at += 1;
    }
    bytes
};

fn bytes(count: u64) -> Response<Body> {
    let frames = stream::unfold(count, |left| async move {
        let size = left.min(PATTERN.len() as u64);
        let frame = Frame::data(Bytes::from_static(&PATTERN[..size as usize]));
        (size > 0).then(|| (Ok(frame), left - size))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_LENGTH, count.into());
    response
}

/// Makes a body that fails if none of it arrives for `limit`.
pub fn limited(body: Incoming, limit: Duration) -> Body {
    let frames = stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        let frame: Result<_, BoxError> = match timeout(limit, body.frame()).await {
            Ok(None) => return None,
            Ok(Some(frame)) => frame.map_err(Into::into),
            Err(_) => Err(format!("nothing came for {limit:?}").into()),
        };
        let rest = frame.is_ok().then_some(body);
        Some((frame, rest))
    });
    StreamBody::new(frames).boxed_unsync()
}

async fn count(mut body: Body) -> Result<u64, BoxError> {
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        count += frame?.data_ref().map_or(0, |bytes| bytes.len() as u64);
    }
    Ok(count)
}

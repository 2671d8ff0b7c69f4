//! The site that `http` and `https` serve.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | a greeting |
//! | `GET /bytes/N` | N bytes, made as they are sent |
//! | `POST /echo` | what was sent, while it still comes |
//! | `POST /count` | how many bytes were sent |

use std::convert::Infallible;
use std::error::Error;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::CONTENT_LENGTH;
use hyper::{Method, Request, Response, StatusCode};
use polder::stream;

/// Any error of a body.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Answers a request for the site, for both versions of HTTP.
pub async fn answer(request: Request<polder_hyper::Body>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    Ok(match (&parts.method, path, path.strip_prefix("/bytes/")) {
        (method, _, Some(count)) => match count.parse() {
            Ok(count) if method == Method::GET => bytes(count),
            _ => text(StatusCode::BAD_REQUEST, format!("{count:?} is no number\n")),
        },
        (&Method::GET, "/", _) => text(StatusCode::OK, "hello from polder\n"),
        (&Method::POST, "/echo", _) => Response::new(body.map_err(Into::into).boxed_unsync()),
        (&Method::POST, "/count", _) => match count(body).await {
            Ok(count) => text(StatusCode::OK, format!("{count}\n")),
            Err(error) => text(StatusCode::REQUEST_TIMEOUT, format!("{error}\n")),
        },
        _ => text(StatusCode::NOT_FOUND, "there is no such thing here\n"),
    })
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

async fn count(mut body: polder_hyper::Body) -> std::io::Result<u64> {
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        count += frame?.data_ref().map_or(0, |bytes| bytes.len() as u64);
    }
    Ok(count)
}

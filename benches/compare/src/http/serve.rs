//! The servers: `compare serve-http PROGRAM WORKERS`, and `compare serve-https PROGRAM WORKERS`.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_lite::{AsyncRead, AsyncWrite};
use futures_rustls::TlsAcceptor;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use polder_hyper::Stream;

use super::tls;
use crate::accept;
use crate::echo::serve::{Never, unknown};

/// polder with the TLS of tokio's program: what differs then is the runtime.
pub const POLDER_TOKIO_RUSTLS: &str = "polder-tokio-rustls";

pub fn plain(program: &str, workers: usize) -> io::Result<Never> {
    match program {
        "polder" => accept::polder(workers, |stream| connection(Stream::new(stream))),
        "tokio" => accept::tokio(workers, |stream| connection(TokioIo::new(stream))),
        "smol" => accept::smol(workers, |stream| connection(Stream::new(stream))),
        _ => unknown(),
    }
}

/// An error of TLS ends this connection, and the generator reports it.
pub fn encrypted(program: &str, workers: usize) -> io::Result<Never> {
    let config = tls::server()?;
    let acceptor = TlsAcceptor::from(config.clone());
    match program {
        "polder" => accept::polder(workers, |stream| {
            let greeting = acceptor.accept(stream);
            async {
                if let Ok(stream) = greeting.await {
                    connection(Stream::new(stream)).await;
                }
            }
        }),
        POLDER_TOKIO_RUSTLS => accept::polder(workers, |stream| {
            let stream = OfTokio(stream);
            let greeting = tokio_rustls::TlsAcceptor::from(config.clone()).accept(stream);
            async {
                if let Ok(stream) = greeting.await {
                    connection(TokioIo::new(stream)).await;
                }
            }
        }),
        "tokio" => accept::tokio(workers, |stream| {
            let greeting = tokio_rustls::TlsAcceptor::from(config.clone()).accept(stream);
            async {
                if let Ok(stream) = greeting.await {
                    connection(TokioIo::new(stream)).await;
                }
            }
        }),
        "smol" => accept::smol(workers, |stream| {
            let greeting = acceptor.accept(stream);
            async {
                if let Ok(stream) = greeting.await {
                    connection(Stream::new(stream)).await;
                }
            }
        }),
        _ => unknown(),
    }
}

/// Serves one connection, until it ends.
async fn connection(stream: impl Read + Write + Unpin) {
    let service = service_fn(async |_: Request<Incoming>| {
        let body = Full::new(Bytes::from_static(b"Hello, World!\n"));
        Ok::<_, Infallible>(Response::new(body))
    });
    // An error ends this connection, and the generator reports it.
    let _ = (http1::Builder::new().serve_connection(stream, service)).await;
}

/// A stream of polder's with tokio's traits.
struct OfTokio(polder::net::TcpStream);

impl tokio::io::AsyncRead for OfTokio {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let length = ready!(Pin::new(&mut self.0).poll_read(cx, room))?;
        buffer.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for OfTokio {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

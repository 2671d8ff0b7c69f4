//! The servers: `compare serve-http PROGRAM WORKERS`, and `compare serve-https PROGRAM WORKERS`.

use std::convert::Infallible;
use std::io;

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

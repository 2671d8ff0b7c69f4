//! hyper on [polder]: [`serve()`] serves axum's `Router`, and any other service of tower or hyper,
//! except for upgrades (such as WebSocket), for which there is hyper's own builder.
//!
//! No tokio runs: hyper and axum use some of its types only.
//!
//! ```
//! use axum::Router;
//! use axum::routing::get;
//! use polder::net::TcpListener;
//!
//! # async fn run() -> std::io::Result<()> {
//! let app = Router::new().route("/", get(async || "hello from polder\n"));
//! let listener = TcpListener::bind("127.0.0.1:8080").await?;
//! polder_hyper::serve(listener, app).await?;
//! # Ok(())
//! # }
//! ```
//!
//! axum is without its default features, of which `tokio` is one: `axum = { version = "0.8",
//! default-features = false, features = ["json", "matched-path", "query"] }`.
//!
//! For everything else there are hyper's traits for runtimes: [`Stream`], [`Timer`], [`Executor`].
//! HTTP/2, which browsers speak over TLS alone, is hyper's own builder with these three:
//!
//! ```
//! use hyper::body::Incoming;
//! use hyper::server::conn::http2;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use polder::net::TcpStream;
//! use polder_hyper::{Executor, Stream, Timer};
//!
//! async fn connection(stream: TcpStream) -> hyper::Result<()> {
//!     let service = service_fn(async |request: Request<Incoming>| {
//!         Ok::<_, hyper::Error>(Response::new(format!("{:?}", request.version())))
//!     });
//!     let mut builder = http2::Builder::new(Executor);
//!     builder.timer(Timer).serve_connection(Stream::new(stream), service).await
//! }
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations, unreachable_pub)]

mod runtime;
mod serve;
mod service;
mod stall;

pub use runtime::{Executor, Stream, Timer};
pub use serve::{Serve, serve, serve_connection};
pub use service::{Body, HttpService, Hyper, Tower};

//! HTTP servers on [polder]: [`serve()`] serves axum's `Router`, and any other service of tower or
//! hyper. No tokio runs: hyper and axum use some of its types only.
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
//! # A service
//!
//! [`Serve`] has what a service that is reached from outside needs; [`upgrade`] is for WebSocket.
//!
//! ```no_run
//! use axum::Router;
//! use axum::routing::get;
//! use polder::net::{SocketAddr, TcpListener};
//! use polder_hyper::{ConnectInfo, RustlsConfig, serve};
//! use std::time::Duration;
//!
//! async fn hello(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
//!     format!("hello, {peer}\n")
//! }
//!
//! fn main() -> std::io::Result<()> {
//!     polder::block_on(async {
//!         let stop = polder::signal::ctrl_c();
//!         let tls = RustlsConfig::from_pem_file("certificate.pem", "key.pem").await?;
//!         let listener = TcpListener::bind("0.0.0.0:8443").await?;
//!         serve(listener, Router::new().route("/", get(hello)))
//!             .tls(tls)                                 // HTTP/1 and HTTP/2, by ALPN
//!             .connect_info()
//!             .timeout(Duration::from_secs(10))         // of a client that stalls
//!             .request_timeout(Duration::from_secs(30)) // of a handler
//!             .body_limit(1_000_000)
//!             .limit(10_000)                            // connections
//!             .on_error(|peer, error| eprintln!("{peer:?}: {error}"))
//!             .until(async { stop.await.expect("Ctrl-C can be caught") })
//!             .await?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! | feature | |
//! |---|---|
//! | `http2` | HTTP/2 beside HTTP/1, on the same port |
//! | `rustls` | [`Serve::tls`], with rustls's provider ring; `rustls-no-provider`: with one that the program installs |
//! | `axum` | [`ConnectInfo`] is an extractor |
//!
//! For everything else, such as clients, there are hyper's traits for runtimes: [`Stream`],
//! [`Timer`], [`Executor`].

#![cfg_attr(
    not(all(feature = "axum", feature = "http2", feature = "rustls")),
    allow(rustdoc::broken_intra_doc_links)
)]
#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations, unreachable_pub)]

#[cfg_attr(not(feature = "http2"), allow(dead_code))]
mod activity;
mod connection;
mod peer;
mod runtime;
mod serve;
mod service;
mod stall;
#[cfg(feature = "rustls-no-provider")]
mod tls;
mod upgrade;

pub use connection::serve_connection;
pub use peer::ConnectInfo;
pub use runtime::{Executor, Stream, Timer};
pub use serve::{Serve, serve};
pub use service::{Body, HttpService, Hyper, Tower};
#[cfg(feature = "rustls-no-provider")]
pub use tls::RustlsConfig;
pub use upgrade::upgrade;

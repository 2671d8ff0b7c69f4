//! An HTTP server: axum, without its feature `tokio`, over hyper, on polder's sockets and timers.
//! The router is axum's own. hyper serves it, with the adapters of `src/hyper_io.rs` and one line,
//! `service_fn(|request| app.clone().call(request))`: a `Router` is a `tower_service::Service`.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | how many requests there were |
//! | `GET /hello/NAME` | a greeting |
//! | `GET /sleep?ms=N` | after N milliseconds, at most [`LONGEST`] |
//! | `POST /echo` | what was sent, while it still comes |
//! | `POST /length` | the length of a body of at most 2 MB, axum's default |
//!
//! After Ctrl-C or SIGTERM it finishes the current responses.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use interop::http::{self, limited};
use interop::{Arguments, Limited, served, told};
use polder::event::Latch;
use polder::net::serve;
use polder::time::sleep;
use serde::Deserialize;
use tower_service::Service;

const USAGE: &str = "axum [ADDR] [--timeout-ms N] [--backend NAME]";

/// How long responses may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

/// The longest that `/sleep` takes.
const LONGEST: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    let limit = arguments.limit();
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let stop = Arc::new(Latch::new());
        let app = app();
        let listener = arguments.listen().await?;
        let server = serve(listener, |stream, peer| {
            let (app, stop) = (app.clone(), stop.clone());
            async move {
                let service = service_fn(|request: Request<Incoming>| {
                    // A request's body, too, must not stall.
                    let request = request.map(|body| limited(body, limit));
                    app.clone().call(request)
                });
                let stream = Limited::new(stream, limit);
                told(peer, http::serve(stream, service, limit, stop.wait()).await);
            }
        })
        .limit(10_000)
        .until(async {
            stopped.await;
            stop.set();
        })
        .grace(GRACE);
        served(server).await
    })
}

fn app() -> Router {
    Router::new()
        .route("/", get(visited))
        .route("/hello/{name}", get(hello))
        .route("/sleep", get(slept))
        .route("/echo", post(async |body: Body| body))
        .route("/length", post(length))
        .with_state(Arc::default())
}

async fn visited(State(visits): State<Arc<AtomicU64>>) -> String {
    let visit = 1 + visits.fetch_add(1, Ordering::Relaxed);
    format!("hello from axum on polder: visit {visit}\n")
}

async fn hello(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

#[derive(Deserialize)]
struct Nap {
    ms: u64,
}

async fn slept(Query(nap): Query<Nap>) -> Result<String, StatusCode> {
    let nap = Duration::from_millis(nap.ms);
    if nap > LONGEST {
        return Err(StatusCode::BAD_REQUEST);
    }
    sleep(nap).await;
    Ok(format!("slept for {nap:?}\n"))
}

async fn length(body: Bytes) -> String {
    format!("{}\n", body.len())
}

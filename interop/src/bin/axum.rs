//! An HTTP server: axum, without its feature `tokio`, over hyper, on polder's sockets and timers.
//! The router is axum's own, and `polder_hyper::serve` serves it.
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
use interop::{Arguments, served_by_hyper};
use polder::time::sleep;
use polder_hyper::serve;
use serde::Deserialize;

const USAGE: &str = "axum [ADDR] [--timeout-ms N] [--backend NAME]";

/// How long responses may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

/// The longest that `/sleep` takes.
const LONGEST: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> std::io::Result<()> {
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let server = serve(arguments.listen().await?, app())
            .timeout(arguments.limit())
            .limit(10_000)
            .until(stopped)
            .grace(GRACE);
        served_by_hyper(server).await
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

//! An HTTPS service that answers in JSON, with limits and a graceful end. The README of
//! `crates/polder-hyper` lists the crates that it needs.
//!
//! ```text
//! cd interop; cargo run --release --bin hello -- 127.0.0.1:8443 cert.pem key.pem
//! curl --insecure https://127.0.0.1:8443/hello/polder
//! ```
//! A certificate for trying it: `openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out
//! cert.pem -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1`.

use std::error::Error;
use std::time::Duration;

use axum::{Json, Router, extract::Path, routing::get};
use polder::net::{SocketAddr, TcpListener};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder_hyper::{ConnectInfo, RustlsConfig, serve};
use serde::Serialize;

type AnyError = Box<dyn Error + Send + Sync>;
/// How long a client may take for the handshake and for a request, and a handler for its response.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Greeting {
    hello: String,
    from: SocketAddr,
}

async fn hello(
    Path(hello): Path<String>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
) -> Json<Greeting> {
    Json(Greeting { hello, from })
}

fn main() -> Result<(), AnyError> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, certificate, key] = &arguments[..] else {
        eprintln!("usage: hello ADDR CERTIFICATE KEY");
        std::process::exit(2);
    };
    polder::block_on(run(address, certificate, key))
}

async fn run(address: &str, certificate: &str, key: &str) -> Result<(), AnyError> {
    let tls = RustlsConfig::from_pem_file(certificate, key).await?;
    let app = Router::new().route("/hello/{name}", get(hello));
    let mut signals = Signals::new([Signal::Int, Signal::Term])?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on https://{}", listener.local_addr()?);
    serve(listener, app)
        .tls(tls)
        .connect_info()
        .timeout(LIMIT)
        .request_timeout(LIMIT)
        .limit(1_000)
        .on_error(|peer, error| eprintln!("{peer:?}: {error}"))
        .until(async { _ = signals.next().await })
        .grace(LIMIT)
        .await?;
    Ok(())
}

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
use std::sync::Arc;
use std::time::Duration;

use axum::{Json, Router, extract::Path, routing::get};
use futures_rustls::TlsAcceptor;
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use futures_rustls::rustls::ServerConfig;
use polder::event::Latch;
use polder::net::{TcpListener, TcpStream, serve};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::time::timeout;
use polder_hyper::serve_connection;
use serde::Serialize;

type AnyError = Box<dyn Error + Send + Sync>;
/// How long a client may take for the handshake, and for a request.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Greeting {
    hello: String,
}

async fn hello(Path(hello): Path<String>) -> Json<Greeting> {
    Json(Greeting { hello })
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
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let app = Router::new().route("/hello/{name}", get(hello));

    let mut signals = Signals::new([Signal::Int, Signal::Term])?;
    let stop = Arc::new(Latch::new());
    let listener = TcpListener::bind(address).await?;
    println!("listening on https://{}", listener.local_addr()?);
    let connection = |stream: TcpStream, peer| {
        let (acceptor, app, stop) = (acceptor.clone(), app.clone(), stop.clone());
        async move {
            let served = async {
                let stream = timeout(LIMIT, acceptor.accept(stream)).await??;
                serve_connection(stream, app, LIMIT, stop.wait()).await?;
                Ok::<_, AnyError>(())
            };
            if let Err(error) = served.await {
                eprintln!("{peer}: {error}");
            }
        }
    };
    let end = async {
        signals.next().await;
        stop.set();
    };
    let server = serve(listener, connection).limit(1_000).until(end);
    server.grace(LIMIT).await?;
    Ok(())
}

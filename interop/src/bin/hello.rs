//! The smallest HTTPS server: one page, a time limit for clients that stall, and a graceful
//! shutdown.
//!
//! Copy it into a package with
//!
//! ```toml
//! [dependencies]
//! polder = { path = "../polder" }
//! polder-hyper = { path = "../polder/crates/polder-hyper" }
//! hyper = "1"
//! futures-rustls = { version = "0.26", default-features = false, features = ["ring", "tls12"] }
//! ```
//!
//! A certificate for trying it:
//!
//! ```sh
//! openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem \
//!     -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::TlsAcceptor;
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::ServerConfig;
use hyper::service::service_fn;
use hyper::{Request, Response};
use polder::event::Latch;
use polder::net::{TcpListener, TcpStream, serve};
use polder::signal::ctrl_c;
use polder::time::timeout;
use polder_hyper::{Body, serve_connection};

type AnyError = Box<dyn Error + Send + Sync>;

/// How long a client may take for the handshake, and for a request.
const LIMIT: Duration = Duration::from_secs(10);

/// How long responses may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, certificate, key] = &arguments[..] else {
        eprintln!("usage: hello ADDR CERTIFICATE KEY");
        return ExitCode::from(2);
    };
    match polder::block_on(run(address, certificate, key)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(address: &str, certificate: &str, key: &str) -> Result<(), AnyError> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key)?));

    let listener = TcpListener::bind(address).await?;
    let stop = Arc::new(Latch::new());
    println!("listening on https://{}", listener.local_addr()?);
    serve(listener, |stream, peer| {
        let (acceptor, stop) = (acceptor.clone(), stop.clone());
        async move {
            if let Err(error) = connection(stream, &acceptor, &stop).await {
                eprintln!("{peer}: {error}");
            }
        }
    })
    .limit(1_000)
    .until(async {
        if ctrl_c().await.is_err() {
            pending::<()>().await; // It cannot be told to stop.
        }
        stop.set();
    })
    .grace(GRACE)
    .await?;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    stop: &Latch,
) -> Result<(), AnyError> {
    let stream = timeout(LIMIT, acceptor.accept(stream)).await??;
    Ok(serve_connection(stream, service_fn(hello), LIMIT, stop.wait()).await?)
}

async fn hello(_request: Request<Body>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello from polder\n".into()))
}

//! An HTTPS server: hyper, over rustls, on polder's sockets and timers. With `--key` it reads its
//! certificates and their key from files (PEM). Without, it makes a certificate for `localhost` and
//! writes it to the given file, so that clients can trust it. On SIGHUP it does so again. New
//! connections get the new certificate, while existing ones are unaffected; if it cannot be used,
//! the old one stays. The site is in `src/http.rs`.

use std::fmt;
use std::future::pending;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_rustls::TlsAcceptor;
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::ServerConfig;
use hyper::service::service_fn;
use interop::{Arguments, Limited, http, say, served, told};
use polder::event::Latch;
use polder::future;
use polder::net::{TcpStream, serve};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::time::timeout;
use polder_hyper::serve_connection;

const USAGE: &str =
    "https [ADDR] --certificate FILE [--key FILE] [--timeout-ms N] [--backend NAME]";

/// How long responses may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit();
    let file = (arguments.option("certificate"))
        .ok_or_else(|| arguments.wrong("where should the certificate be written?"))?;
    let key = arguments.option("key");
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let stop = Arc::new(Latch::new());
        let acceptor = Mutex::new(acceptor(file, key)?);
        let mut hangups = Signals::new([Signal::Hup])?;
        let listener = arguments.listen().await?;
        let reloading = async {
            while hangups.next().await.is_some() {
                // The files are small, and rarely read.
                match self::acceptor(file, key) {
                    Ok(new) => {
                        *acceptor.lock().unwrap() = new;
                        say(format_args!("the certificate is another one"));
                    }
                    Err(error) => say(format_args!("the certificate stays: {error}")),
                }
            }
        };
        let serving = serve(listener, |stream, peer| {
            let (acceptor, stop) = (acceptor.lock().unwrap().clone(), stop.clone());
            async move { told(peer, client(stream, &acceptor, limit, &stop).await) }
        })
        .limit(10_000)
        .until(async {
            stopped.await;
            stop.set();
        })
        .grace(GRACE);
        let never = async {
            reloading.await;
            pending().await
        };
        future::or(served(serving), never).await
    })
}

async fn client(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    limit: Duration,
    stop: &Latch,
) -> io::Result<()> {
    let greeting = acceptor.accept(Limited::new(stream, limit));
    let stream = timeout(limit, greeting).await??;
    serve_connection(stream, service_fn(http::answer), limit, stop.wait()).await
}

/// Makes a TLS acceptor: from the files, or with a new certificate, which it writes.
fn acceptor(certificate: &str, key: Option<&str>) -> io::Result<TlsAcceptor> {
    let (chain, key) = match key {
        Some(key) => {
            let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
            let chain: Vec<_> = chain.map_err(|error| unusable(certificate, error))?;
            if chain.is_empty() {
                return Err(unusable(certificate, "there is no certificate in it"));
            }
            let file = PrivateKeyDer::from_pem_file(key);
            (chain, file.map_err(|error| unusable(key, error))?)
        }
        None => {
            let names = ["localhost".into(), "127.0.0.1".into(), "::1".into()];
            let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
            let key = made.signing_key.serialize_der().try_into();
            let key = key.map_err(io::Error::other)?;
            std::fs::write(certificate, made.cert.pem())
                .map_err(|error| io::Error::new(error.kind(), format!("{certificate}: {error}")))?;
            (vec![made.cert.der().clone()], key)
        }
    };
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(chain, key);
    let mut config = config.map_err(|error| unusable(certificate, error))?;
    config.alpn_protocols = vec![b"http/1.1".into(), b"http/1.0".into()];
    Ok(Arc::new(config).into())
}

fn unusable(file: &str, error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file}: {error}"))
}

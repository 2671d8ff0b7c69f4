//! An HTTPS server: hyper, over rustls, on polder's sockets and timers.
//! It makes a certificate for `localhost` and writes it to the given file, so that clients can
//! trust it. What it serves is in `src/http.rs`.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::TlsAcceptor;
use futures_rustls::rustls::ServerConfig;
use interop::{Arguments, Limited, http, say, told};
use polder::event::Latch;
use polder::net::{TcpStream, serve};
use polder::time::timeout;

const USAGE: &str = "https [ADDR] --certificate FILE [--timeout-ms N] [--backend NAME]";

/// How long responses may take after Ctrl-C.
const GRACE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit();
    let file = (arguments.option("certificate"))
        .ok_or_else(|| arguments.wrong("where should the certificate be written?"))?;
    let (acceptor, certificate) = certified().map_err(io::Error::other)?;
    arguments.runtime()?.block_on(async {
        let stopped = interop::stopped()?;
        let stop = Arc::new(Latch::new());
        std::fs::write(file, certificate)
            .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))?;
        let listener = arguments.listen().await?;
        let summary = serve(listener, |stream, peer| {
            let (acceptor, stop) = (acceptor.clone(), stop.clone());
            async move { told(peer, client(stream, &acceptor, limit, &stop).await) }
        })
        .limit(10_000)
        .until(async {
            stopped.await;
            stop.set();
        })
        .grace(GRACE)
        .on_error(|error| say(format_args!("cannot accept: {error}")))
        .await?;
        say(format_args!(
            "stopped after {} connections",
            summary.accepted
        ));
        Ok(())
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
    let served = http::connection(stream, limit, stop.wait()).await;
    served.map_err(io::Error::other)
}

/// Makes a TLS acceptor with a new certificate. Returns both, the certificate as PEM.
fn certified() -> Result<(TlsAcceptor, String), Box<dyn std::error::Error + Send + Sync>> {
    let names = ["localhost".into(), "127.0.0.1".into(), "::1".into()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = made.signing_key.serialize_der();
    let key = key.try_into().map_err(String::from)?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".into(), b"http/1.0".into()];
    Ok((Arc::new(config).into(), made.cert.pem()))
}

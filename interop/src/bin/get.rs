//! Gets what is at a URL and writes it to standard output: resolve, connect, TLS, HTTP.
//!
//! `https` trusts what the system trusts, or else the certificates in the file that `--cacert` names.
//! Each step has the time that `--timeout-ms` gives.

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::TlsConnector;
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Uri};
use interop::{Arguments, Limited};
use polder::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Unblock};
use polder::net::TcpStream;
use polder::time::timeout;
use smol_hyper::rt::FuturesIo;

const USAGE: &str = "get URL [--cacert FILE] [--timeout-ms N] [--backend NAME]";

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit()?;
    let url = arguments.plain().ok_or_else(|| arguments.wrong("what?"))?;
    let wrong = || arguments.wrong(format_args!("{url:?} is no URL"));
    let url: Uri = url.parse().map_err(|_| wrong())?;
    let host = url.host().ok_or_else(wrong)?.trim_matches(['[', ']']);
    let port = match url.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err(wrong()),
    };
    let port = url.port_u16().unwrap_or(port);
    arguments.runtime()?.block_on(async {
        let stream = TcpStream::connect_timeout((host, port), limit).await;
        let stream =
            stream.map_err(|error| io::Error::new(error.kind(), format!("connecting: {error}")))?;
        let stream = Limited::new(stream, limit);
        if url.scheme_str() == Some("http") {
            return get(stream, &url, limit).await;
        }
        let connector = connector(arguments.option("cacert"))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
        let stream = within(limit, "TLS", connector.connect(name, stream)).await?;
        get(stream, &url, limit).await
    })
}

/// What fails, or takes longer than `limit`, is an error that tells which step it was.
async fn within<T, E>(
    limit: Duration,
    step: &str,
    future: impl Future<Output = Result<T, E>>,
) -> io::Result<T>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let wrong = |kind, text: String| io::Error::new(kind, format!("{step}: {text}"));
    match timeout(limit, future).await {
        Ok(result) => result.map_err(|error| wrong(io::ErrorKind::Other, error.into().to_string())),
        Err(_) => Err(wrong(
            io::ErrorKind::TimedOut,
            format!("nothing for {limit:?}"),
        )),
    }
}

async fn get<S>(stream: S, url: &Uri, limit: Duration) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut requests, connection) = http1::handshake(FuturesIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Dropped, and so ended, when this function is done.
    let _connection = polder::spawn(connection);
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let authority = url.authority().expect("there is a host").as_str();
    let request = Request::get(path).header(HOST, authority);
    let request = request.body(Empty::<Bytes>::new());
    let request = request.map_err(io::Error::other)?;
    let answer = within(limit, "asking", requests.send_request(request)).await?;
    if !answer.status().is_success() {
        return Err(io::Error::other(format!("{url}: {}", answer.status())));
    }
    let mut body = answer.into_body();
    let mut output = Unblock::new(io::stdout());
    loop {
        let frame = async { body.frame().await.transpose() };
        let Some(frame) = within(limit, "reading", frame).await? else {
            break;
        };
        if let Some(bytes) = frame.data_ref() {
            output.write_all(bytes).await?;
        }
    }
    output.flush().await
}

fn connector(certificates: Option<&str>) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match certificates {
        Some(file) => {
            let unreadable = |error| io::Error::other(format!("{file}: {error}"));
            for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
                let certificate = certificate.map_err(unreadable)?;
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        None => {
            let native = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(native.certs);
        }
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

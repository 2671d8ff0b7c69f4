//! Gets a URL and writes the body to standard output: resolve, connect, TLS, HTTP. `https` trusts
//! the system's certificates, or those in the file given by `--cacert`. Each step is limited by
//! `--timeout-ms`. A user and a password in the URL are sent as Basic authorization (RFC 7617), and
//! never as part of the host; over `http` they travel in clear text.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use futures_rustls::TlsConnector;
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Uri};
use interop::{Arguments, Limited};
use percent_encoding::percent_decode_str;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::TcpStream;
use polder::time::timeout;
use polder::unblock;
use polder_hyper::Stream;

const USAGE: &str = "get URL [--cacert FILE] [--timeout-ms N] [--backend NAME]";

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit();
    let url = arguments.plain().ok_or_else(|| arguments.wrong("what?"))?;
    let target = Target::parse(url).map_err(|what| arguments.wrong(what))?;
    let connector = connector(arguments.option("cacert"))?;
    arguments.runtime()?.block_on(async {
        let stream = TcpStream::connect_timeout((&*target.host, target.port), limit).await;
        let stream =
            stream.map_err(|error| io::Error::new(error.kind(), format!("connecting: {error}")))?;
        let stream = Limited::new(stream, limit);
        if !target.tls {
            return get(stream, &target, limit).await;
        }
        let name = ServerName::try_from(target.host.clone()).map_err(io::Error::other)?;
        let stream = within(limit, "TLS", connector.connect(name, stream)).await?;
        get(stream, &target, limit).await
    })
}

/// A parsed URL.
struct Target {
    tls: bool,
    host: String,
    port: u16,
    /// The host header: as in the URL, without user and password.
    authority: String,
    /// The authorization header, if the URL has a user and a password.
    authorization: Option<HeaderValue>,
    path: String,
}

impl Target {
    fn parse(url: &str) -> Result<Target, String> {
        let wrong = || format!("{url:?} is no URL");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (tls, default) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?.as_str();
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        let host = uri.host().filter(|host| !matches!(*host, "" | "[]"));
        let host = host.ok_or_else(wrong)?;
        // Not `port_u16`, which ignores an invalid port.
        let port = match authority.strip_prefix(host).ok_or_else(wrong)? {
            "" | ":" => default,
            port => {
                let port = port.strip_prefix(':').ok_or_else(wrong)?;
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                let number = port.parse().ok().filter(|port| digits && *port > 0);
                number.ok_or_else(|| format!("{port:?} is no port from 1 to 65535"))?
            }
        };
        Ok(Target {
            tls,
            host: host.trim_matches(['[', ']']).into(),
            port,
            authority: authority.into(),
            authorization: user.map(basic),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .into(),
        })
    }
}

/// Encodes the user and the password of a URL as in RFC 7617.
fn basic(user: &str) -> HeaderValue {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |part| percent_decode_str(part).collect::<Vec<u8>>();
    let pair = [decoded(name), decoded(password)].join(&b':');
    let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut value = HeaderValue::try_from(value).expect("base64 is ASCII");
    value.set_sensitive(true);
    value
}

/// Runs one step with the time limit. Its error names the step.
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

async fn get<S>(stream: S, target: &Target, limit: Duration) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut requests, connection) = http1::handshake(Stream::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Dropped, and so cancelled, when this function returns.
    let _connection = polder::spawn(connection);
    let mut request = Request::get(&target.path).header(HOST, &target.authority);
    if let Some(value) = &target.authorization {
        request = request.header(AUTHORIZATION, value);
    }
    let request = request.body(Empty::<Bytes>::new());
    let request = request.map_err(io::Error::other)?;
    let answer = within(limit, "asking", requests.send_request(request)).await?;
    if !answer.status().is_success() {
        let text = format!("{}{}: {}", target.authority, target.path, answer.status());
        return Err(io::Error::other(text));
    }
    let mut body = answer.into_body();
    loop {
        let frame = async { body.frame().await.transpose() };
        let Some(frame) = within(limit, "reading", frame).await? else {
            break;
        };
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        // The reader of standard output may be slow.
        match unblock(move || io::stdout().write_all(&bytes)).await {
            // It may also be gone: `get URL | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(unwritable)?,
        }
    }
    unblock(|| io::stdout().flush()).await.map_err(unwritable)
}

fn unwritable(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

fn connector(certificates: Option<&str>) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match certificates {
        Some(file) => {
            let unreadable = |error| io::Error::other(format!("{file}: {error}"));
            for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
                let certificate = certificate.map_err(unreadable)?;
                let unusable = |error| io::Error::other(format!("{file}: {error}"));
                roots.add(certificate).map_err(unusable)?;
            }
            if roots.is_empty() {
                let text = format!("{file}: there is no certificate in it");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
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

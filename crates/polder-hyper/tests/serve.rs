//! `serve`, with the features of a service: who the client is, both versions of HTTP, TLS,
//! upgrades, limits, and a graceful end.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, IntoFuture, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_tungstenite::WebSocketStream;
use async_tungstenite::client_async;
use async_tungstenite::tungstenite::handshake::server::create_response_with_body;
use async_tungstenite::tungstenite::protocol::Role;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, get, post};
use futures_rustls::TlsConnector;
use futures_rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use polder::event::Latch;
use polder::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder::{Backend, Runtime, Task};
use polder_hyper::{ConnectInfo, Executor, RustlsConfig, Serve, Stream, Timer, serve, upgrade};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn everywhere<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for backend in Backend::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let ended = runtime.block_on(timeout(LIMIT, test()));
        ended.unwrap_or_else(|_| panic!("on {backend}: not done after {LIMIT:?}"));
    }
}

/// A server that was told to run until the latch is set.
struct Server {
    address: SocketAddr,
    stop: Arc<Latch>,
    task: Task<io::Result<polder::net::Summary>>,
}

impl Server {
    async fn start(
        service: Router,
        configure: impl FnOnce(Serve<'static, TcpListener>) -> Serve<'static, TcpListener>,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(Latch::new());
        let stopped = stop.clone();
        let server = configure(serve(listener, service)).until(async move { stopped.wait().await });
        let task = polder::spawn(server.into_future());
        Server {
            address,
            stop,
            task,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection by HTTP/2, known beforehand.
    async fn connect_2(&self) -> Http2 {
        Http2::over(self.connect().await).await
    }

    async fn stop(self) {
        self.stop.set();
        self.task.await.unwrap();
    }
}

/// A client's connection by HTTP/2.
struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    driver: Task<hyper::Result<()>>,
}

impl Http2 {
    async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Http2 {
        let mut builder = http2::Builder::new(Executor);
        builder.timer(Timer).initial_stream_window_size(1_000);
        let (sender, connection) = builder.handshake(Stream::new(stream)).await.unwrap();
        let driver = polder::spawn(connection);
        Http2 { sender, driver }
    }

    async fn ask(&mut self, path: &str, body: &'static [u8]) -> hyper::Response<Incoming> {
        let uri = format!("http://localhost{path}");
        let request = hyper::Request::post(uri).body(Full::from(body)).unwrap();
        self.sender.ready().await.unwrap();
        self.sender.send_request(request).await.unwrap()
    }
}

async fn text(response: hyper::Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Sends bytes, and returns everything that comes until the end.
async fn raw(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await; // A reset ends it, too.
    String::from_utf8_lossy(&answer).into_owned()
}

async fn version(request: Request) -> String {
    format!("{:?}", request.version())
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[test]
fn connect_info_is_the_clients_address() {
    async fn peer(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
        peer.to_string()
    }
    everywhere(|| async {
        let app = || Router::new().route("/", any(peer));
        let server = Server::start(app(), |server| server.connect_info()).await;
        let stream = server.connect().await;
        let here = stream.local_addr().unwrap().to_string();
        let answer = raw(stream, GET).await;
        assert!(answer.ends_with(&here), "{answer}");
        let stream = server.connect().await;
        let here = stream.local_addr().unwrap().to_string();
        assert_eq!(
            text(Http2::over(stream).await.ask("/", b"").await).await,
            here
        );
        server.stop().await;
        // The mistake is told.
        let server = Server::start(app(), |server| server).await;
        let answer = raw(server.connect().await, GET).await;
        assert!(answer.contains("500 Internal") && answer.contains(".connect_info()"));
        server.stop().await;
    });
}

/// Both versions are answered on one port, however the first bytes are cut.
#[test]
fn both_versions_on_one_port() {
    everywhere(|| async {
        let app = Router::new().route("/", any(version));
        let server = Server::start(app, |server| server).await;
        assert!(raw(server.connect().await, GET).await.ends_with("HTTP/1.1"));
        assert_eq!(
            text(server.connect_2().await.ask("/", b"").await).await,
            "HTTP/2.0"
        );
        // A method that begins as the preface does, byte by byte.
        let mut stream = server.connect().await;
        stream.set_nodelay(true).unwrap();
        for byte in b"PRI / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r" {
            stream.write_all(&[*byte]).await.unwrap();
            sleep(MS / 10).await;
        }
        let answer = raw(stream, b"\n").await;
        assert!(answer.ends_with("HTTP/1.1"), "{answer}");
        // A client that says nothing, or half of a preface, and goes.
        drop(server.connect().await);
        server.connect().await.write_all(b"PRI * HT").await.unwrap();
        let summary = {
            server.stop.set();
            server.task.await.unwrap()
        };
        assert!(summary.accepted >= 4, "{summary:?}");
    });
}

/// A certificate for `localhost`, its key, and a client that trusts it and offers `protocols`.
fn certificate(protocols: &[&str]) -> (String, String, TlsConnector) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(made.cert.der().to_vec()))
        .unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    (
        made.cert.pem(),
        made.signing_key.serialize_pem(),
        Arc::new(config).into(),
    )
}

fn localhost() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

#[test]
fn tls_chooses_the_version_by_alpn() {
    everywhere(|| async {
        let (pem, key, connector) = certificate(&["h2", "http/1.1"]);
        let tls = RustlsConfig::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
        let app = Router::new().route("/", any(version));
        let server = Server::start(app, |server| server.tls(tls.clone())).await;
        let stream = connector
            .connect(localhost(), server.connect().await)
            .await
            .unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(
            text(Http2::over(stream).await.ask("/", b"").await).await,
            "HTTP/2.0"
        );
        // Another certificate from now on, and a client that knows no HTTP/2.
        let (pem, key, connector_1) = certificate(&["http/1.1"]);
        let folder = std::env::temp_dir();
        let file = |name| folder.join(format!("polder-hyper-{}-{name}", std::process::id()));
        polder::fs::write(file("pem"), pem).await.unwrap();
        polder::fs::write(file("key"), key).await.unwrap();
        tls.reload_from_pem_file(file("pem"), file("key"))
            .await
            .unwrap();
        let stream = connector_1
            .connect(localhost(), server.connect().await)
            .await
            .unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert!(raw(stream, GET).await.ends_with("HTTP/1.1"));
        connector
            .connect(localhost(), server.connect().await)
            .await
            .unwrap_err();
        let error = tls
            .reload_from_pem_file(file("key"), file("key"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(
            error.to_string().ends_with("-key: there is no certificate"),
            "{error}"
        );
        // Each error has its file's name; and both, if they do not belong together.
        polder::fs::write(file("none"), "no key").await.unwrap();
        let error = RustlsConfig::from_pem_file(file("pem"), file("none"));
        let error = error.await.unwrap_err().to_string();
        assert!(error.contains("-none: key: "), "{error}");
        assert!(!error.contains("-pem"), "{error}");
        polder::fs::write(file("none"), certificate(&[]).1)
            .await
            .unwrap();
        let error = RustlsConfig::from_pem_file(file("pem"), file("none"));
        let error = error.await.unwrap_err().to_string();
        assert!(
            error.contains("-pem and ") && error.contains("-none: "),
            "{error}"
        );
        for name in ["pem", "key", "none"] {
            std::fs::remove_file(file(name)).unwrap();
        }
        server.stop().await;
    });
}

/// What ALPN has agreed on is heeded: HTTP/2's first bytes are none of HTTP/1.
#[test]
fn http1_by_alpn_has_no_http2() {
    everywhere(|| async {
        let (pem, key, connector) = certificate(&["http/1.1"]);
        let tls = RustlsConfig::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
        let app = Router::new().route("/", any(version));
        let server = Server::start(app, |server| server.tls(tls).timeout(50 * MS)).await;
        let connect = async || {
            let stream = server.connect().await;
            connector.connect(localhost(), stream).await.unwrap()
        };
        assert!(raw(connect().await, GET).await.ends_with("HTTP/1.1"));
        let answer = raw(connect().await, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
            "{answer:?}"
        );
        let start = Instant::now();
        assert_eq!(raw(connect().await, b"").await, "");
        assert!(start.elapsed() >= 50 * MS);
        server.stop().await;
    });
}

/// An error of the handshake says that it is one of TLS.
#[test]
fn errors_of_the_handshake_are_those_of_tls() {
    everywhere(|| async {
        let (pem, key, _) = certificate(&[]);
        let tls = RustlsConfig::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
        let errors = Arc::new(Mutex::new(Vec::new()));
        let report = errors.clone();
        let configure = move |server: Serve<'static, TcpListener>| {
            let report = move |_: Option<&_>, error: &dyn Error| {
                report.lock().unwrap().push(error.to_string());
            };
            server.tls(tls).timeout(50 * MS).on_error(report)
        };
        let server = Server::start(Router::new(), configure).await;
        raw(server.connect().await, GET).await; // Not TLS.
        assert_eq!(raw(server.connect().await, b"").await, "");
        server.stop().await;
        let errors = errors.lock().unwrap();
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(
            errors.iter().all(|error| error.starts_with("TLS: ")),
            "{errors:?}"
        );
    });
}

/// Clients that say nothing, or too little, are disconnected: before a handshake, a request, the
/// end of a preface, and in an HTTP/2 connection without requests.
#[test]
fn silent_clients_are_disconnected() {
    everywhere(|| async {
        let (pem, key, connector) = certificate(&["h2", "http/1.1"]);
        let tls = RustlsConfig::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
        let app = Router::new().route("/", any(version));
        let server = Server::start(app.clone(), |server| server.tls(tls).timeout(50 * MS)).await;
        let start = Instant::now();
        assert_eq!(raw(server.connect().await, b"").await, "");
        assert!(start.elapsed() >= 50 * MS);
        let stream = connector
            .connect(localhost(), server.connect().await)
            .await
            .unwrap();
        assert_eq!(raw(stream, b"").await, "");
        server.stop().await;

        let server = Server::start(app, |server| server.timeout(50 * MS)).await;
        for bytes in [&b""[..], b"PRI * HTTP/2.0\r\n\r\n", b"GET / HT"] {
            let start = Instant::now();
            raw(server.connect().await, bytes).await;
            assert!(start.elapsed() >= 50 * MS);
        }
        // It is told that the connection ends.
        let mut client = server.connect_2().await;
        assert_eq!(text(client.ask("/", b"").await).await, "HTTP/2.0");
        let start = Instant::now();
        client.driver.await.expect("it ends well");
        assert!(start.elapsed() >= 45 * MS, "{:?}", start.elapsed());
        server.stop().await;
    });
}

/// A response of which its client takes nothing more ends its HTTP/2 connection; one that the
/// service takes its time for does not.
#[test]
fn stalled_response_ends_http2_connection() {
    let slow = || async {
        let words = stream::unfold(0, |word| async move {
            sleep(150 * MS).await;
            (word < 2).then(|| {
                (
                    Ok::<_, Infallible>(Frame::data(Bytes::from("word "))),
                    word + 1,
                )
            })
        });
        Response::new(Body::new(StreamBody::new(words)))
    };
    everywhere(move || async move {
        let large = || async { vec![b'x'; 1_000_000] };
        let app = Router::new()
            .route("/large", any(large))
            .route("/slow", any(slow));
        let server = Server::start(app, |server| server.timeout(50 * MS)).await;
        let mut client = server.connect_2().await;
        assert_eq!(text(client.ask("/slow", b"").await).await, "word word ");
        let mut client = server.connect_2().await;
        let stuck = client.ask("/large", b"").await; // It reads no body.
        let start = Instant::now();
        let _ = client.driver.await;
        assert!(start.elapsed() >= 40 * MS, "{:?}", start.elapsed());
        stuck.into_body().collect().await.unwrap_err();
        server.stop().await;
    });
}

#[test]
fn websocket_upgrade_is_a_connection() {
    async fn echo(mut request: Request) -> Result<Response, StatusCode> {
        let response = create_response_with_body(&request, Body::empty);
        let response = response.map_err(|_| StatusCode::BAD_REQUEST)?;
        let upgraded = upgrade(&mut request);
        polder::spawn(async move {
            let stream = upgraded.await.expect("the client is there");
            let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
            let (to, from) = socket.split();
            let _ = from.forward(to).await;
        })
        .detach();
        Ok(response)
    }
    everywhere(|| async {
        let app = Router::new()
            .route("/", any(version))
            .route("/echo", any(echo));
        let server = Server::start(app, |server| server.limit(1)).await;
        let url = format!("ws://{}/echo", server.address);
        let (mut socket, _) = client_async(url, server.connect().await).await.unwrap();
        for text in ["one", "two"] {
            socket.send(text.into()).await.unwrap();
            let answer = socket.next().await.unwrap().unwrap();
            assert_eq!(answer.into_text().unwrap(), text);
        }
        // It counts as the one connection until it ends.
        let other = polder::spawn(raw(server.connect().await, GET));
        sleep(20 * MS).await;
        assert!(!other.is_finished());
        socket.close(None).await.unwrap();
        while socket.next().await.is_some() {}
        drop(socket);
        assert!(other.await.ends_with("HTTP/1.1"));
        let answer = raw(server.connect().await, b"GET /echo HTTP/1.0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.0 400"), "{answer}");
        server.stop().await;
    });
}

/// An idle tunnel (CONNECT) keeps its HTTP/2 connection, which ends after it.
#[test]
fn idle_http2_tunnel_stays_until_it_is_dropped() {
    async fn echo(
        mut request: hyper::Request<polder_hyper::Body>,
    ) -> hyper::Response<Empty<Bytes>> {
        let upgraded = upgrade(&mut request);
        polder::spawn(async move {
            let mut stream = upgraded.await.expect("the client is there");
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).await.is_ok() {
                stream.write_all(&bytes).await.unwrap();
                stream.flush().await.unwrap();
            }
        })
        .detach();
        hyper::Response::new(Empty::new())
    }
    everywhere(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = service_fn(async |request| Ok::<_, Infallible>(echo(request).await));
        let server = serve(listener, service).timeout(50 * MS);
        let _server = polder::spawn(server.into_future());
        let mut client = Http2::over(TcpStream::connect(address).await.unwrap()).await;
        let request = hyper::Request::connect("localhost:80");
        let request = request.body(Full::default()).unwrap();
        client.sender.ready().await.unwrap();
        let response = client.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut stream = Stream::new(hyper::upgrade::on(response).await.unwrap());
        for bytes in [b"ping", b"pong"] {
            sleep(200 * MS).await;
            stream.write_all(bytes).await.unwrap();
            stream.flush().await.unwrap();
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, bytes);
        }
        drop(stream);
        client.driver.await.expect("it ends well");
    });
}

#[test]
fn request_timeout_ends_the_service() {
    struct Ended(Arc<AtomicUsize>);
    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    everywhere(|| async {
        let ended = Arc::new(AtomicUsize::new(0));
        let count = ended.clone();
        let never = async move || {
            let _ended = Ended(count.clone());
            pending::<()>().await
        };
        let app = Router::new()
            .route("/", any(never))
            .route("/quick", any(version));
        let server = Server::start(app, |server| server.request_timeout(20 * MS)).await;
        let answer = raw(server.connect().await, GET).await;
        assert!(
            answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
            "{answer}"
        );
        let mut client = server.connect_2().await;
        assert_eq!(
            client.ask("/", b"").await.status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(text(client.ask("/quick", b"").await).await, "HTTP/2.0");
        assert_eq!(ended.load(SeqCst), 2);
        server.stop().await;
    });
}

#[test]
fn body_limit_refuses_larger_bodies() {
    async fn length(request: Request) -> Result<String, (StatusCode, String)> {
        let body = request.into_body().collect().await;
        let body = body.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        Ok(format!("{} bytes", body.to_bytes().len()))
    }
    everywhere(|| async {
        let app = Router::new().route("/", post(length));
        let server = Server::start(app, |server| server.body_limit(10)).await;
        let with = async |head: &str, body: &str| {
            let request =
                format!("POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}\r\n\r\n{body}");
            raw(server.connect().await, request.as_bytes()).await
        };
        let answer = with("content-length: 10", "1234567890").await;
        assert!(answer.ends_with("10 bytes"), "{answer}");
        let answer = with("content-length: 11", "").await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        let answer = with(
            "transfer-encoding: chunked",
            "b\r\n12345678901\r\n0\r\n\r\n",
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("larger than the server allows"), "{answer}");
        let mut client = server.connect_2().await;
        let answer = client.ask("/", b"12345678901").await;
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text(client.ask("/", b"123").await).await, "3 bytes");
        // More than the windows let through before the answer.
        let answer = client.ask("/", &[b'x'; 1_000_000]).await;
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text(client.ask("/", b"123").await).await, "3 bytes");
        server.stop().await;
    });
}

/// Nothing comes after the part that was too large, of which the service takes no heed.
#[test]
fn nothing_follows_a_part_beyond_the_body_limit() {
    everywhere(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = service_fn(async |request: hyper::Request<polder_hyper::Body>| {
            let mut body = request.into_body();
            let mut parts = Vec::new();
            for _ in 0..3 {
                parts.push(body.frame().await.is_some_and(|frame| frame.is_ok()));
            }
            Ok::<_, Infallible>(hyper::Response::new(format!("{parts:?}")))
        });
        let server = serve(listener, service).body_limit(10);
        let _server = polder::spawn(server.into_future());
        let request = b"POST / HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
            1\r\nx\r\nb\r\n12345678901\r\n1\r\nx\r\n0\r\n\r\n";
        let answer = raw(TcpStream::connect(address).await.unwrap(), request).await;
        assert!(answer.ends_with("[true, false, false]"), "{answer}");
    });
}

/// A response in progress is finished; idle connections, and those that have said nothing, end.
#[test]
fn graceful_end_finishes_http2_responses() {
    everywhere(|| async {
        let begun = Arc::new(Latch::new());
        let is_begun = begun.clone();
        let slow = async move || {
            is_begun.set();
            sleep(100 * MS).await;
            "done"
        };
        let app = Router::new().route("/", any(slow));
        let server = Server::start(app, |server| server.grace(LIMIT)).await;
        let mut client = server.connect_2().await;
        let asked = polder::spawn(async move { (text(client.ask("/", b"").await).await, client) });
        begun.wait().await;
        let idle = server.connect_2().await;
        let silent = server.connect().await;
        let start = Instant::now();
        server.stop().await;
        assert!(start.elapsed() < LIMIT / 2);
        let (answer, client) = asked.await;
        assert_eq!(answer, "done");
        client.driver.await.unwrap();
        idle.driver.await.unwrap();
        assert_eq!(raw(silent, b"").await, "");
    });
}

/// Settings of hyper's are reached, and a service of hyper's is told its client.
#[test]
fn settings_of_hyper_for_its_services() {
    everywhere(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = service_fn(async |request: hyper::Request<polder_hyper::Body>| {
            let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
            let size = request.body().size_hint().exact();
            Ok::<_, Infallible>(hyper::Response::new(format!(
                "{} {size:?}",
                peer.unwrap().0
            )))
        });
        let server = serve(listener, service).connect_info();
        let server = server.http1(|http1| http1.max_headers(2));
        let server = server.http2(|http2| http2.max_concurrent_streams(1));
        let _server = polder::spawn(server.into_future());
        let stream = TcpStream::connect(address).await.unwrap();
        let here = stream.local_addr().unwrap();
        let (mut sender, connection) = http1::handshake(Stream::new(stream)).await.unwrap();
        let driver = polder::spawn(connection);
        let mut ask = async |headers: &[&str]| {
            let mut request = hyper::Request::get("/");
            for header in headers {
                request = request.header(*header, "x");
            }
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            sender.ready().await.unwrap();
            sender.send_request(request).await.unwrap()
        };
        assert_eq!(text(ask(&["host"]).await).await, format!("{here} Some(0)"));
        let answer = ask(&["host", "a", "b"]).await;
        assert_eq!(answer.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        drop(driver);
    });
}

#[allow(dead_code)]
fn futures_are_send(listener: TcpListener) -> impl Send {
    serve(listener, Router::new().route("/", get(async || "")))
        .connect_info()
        .into_future()
}

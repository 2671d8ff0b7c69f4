//! tower-http's layers around axum's router, on polder-hyper: none of these needs a running tokio.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::trace::TraceLayer;

use crate::everywhere;

/// Sends a request with these headers, and returns the answer in small letters.
pub async fn ask(address: SocketAddr, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let length = body.len();
    let request = format!(
        "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let written = stream.write_all(request.as_bytes()).await;
    written.expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    String::from_utf8_lossy(&answer).to_lowercase()
}

async fn hello() -> String {
    "hello ".repeat(1_000)
}

async fn panics() -> &'static str {
    panic!("a handler's panic")
}

async fn echo(body: Bytes) -> Bytes {
    body
}

#[test]
fn tower_http_layers_need_no_tokio() {
    everywhere(|_| async {
        let app = Router::new()
            .route("/", get(hello))
            .route("/panics", get(panics))
            .route("/echo", post(echo))
            .layer(CatchPanicLayer::new())
            .layer(RequestBodyLimitLayer::new(100))
            .layer(CompressionLayer::new())
            .layer(CorsLayer::permissive())
            .layer(TraceLayer::new_for_http());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = polder::spawn(async { polder_hyper::serve(listener, app).await });

        let plain = ask(address, "GET /", "", "").await;
        assert!(plain.starts_with("http/1.1 200"), "{plain}");
        assert!(plain.contains("access-control-allow-origin: *"), "{plain}");
        assert!(plain.ends_with("hello hello "), "{plain}");
        let packed = ask(address, "GET /", "Accept-Encoding: gzip\r\n", "").await;
        assert!(packed.contains("content-encoding: gzip"), "{packed}");
        assert!(packed.len() < plain.len() / 2, "{}", packed.len());
        let panicked = ask(address, "GET /panics", "", "").await;
        assert!(panicked.starts_with("http/1.1 500"), "{panicked}");
        let echoed = ask(address, "POST /echo", "", &"x".repeat(100)).await;
        assert!(echoed.ends_with(&"x".repeat(100)), "{echoed}");
        let refused = ask(address, "POST /echo", "", &"x".repeat(101)).await;
        assert!(refused.starts_with("http/1.1 413"), "{refused}");
        let _ = server.cancel().await;
    });
}

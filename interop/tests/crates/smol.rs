//! smol's companions smol-macros and smol-hyper, with polder's sockets.

use std::convert::Infallible;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, client};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::unix::UnixStream;
use polder::net::{TcpListener, TcpStream};
use smol_hyper::rt::FuturesIo;
use smol_macros::Executor;

use crate::everywhere;

// Its threads run the executor, and polder's background runtime the sockets.
smol_macros::test! {
    async fn polder_sockets_work_in_smol_macros(executor: &Executor<'_>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = executor.spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.expect("it is sent");
            stream.write_all(&bytes).await.expect("it is read");
        });
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"ping").await.expect("it reads");
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.expect("an answer");
        assert_eq!(&bytes, b"ping");
        server.await;
    }
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

#[test]
fn smol_hyper_takes_polder_streams() {
    everywhere(|_| async {
        let (near, far) = UnixStream::pair().expect("a pair");
        let server = polder::spawn(
            http1::Builder::new().serve_connection(FuturesIo::new(far), service_fn(hello)),
        );
        let made = client::conn::http1::handshake(FuturesIo::new(near)).await;
        let (mut sender, connection) = made.expect("the server greets");
        let connection = polder::spawn(connection);
        let request = Request::builder().header("host", "here");
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        let body = answer.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "hello");
        drop(sender);
        connection.await.expect("it ends");
        server.await.expect("it ends");
    });
}

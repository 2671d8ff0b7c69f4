//! gRPC by tonic on polder's streams, over hyper's HTTP/2: no tokio runs.

use std::convert::Infallible;
use std::time::Duration;

use futures_concurrency::prelude::*;
use hyper::body::Incoming;
use hyper::client::conn::http2::handshake;
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use polder_hyper::{Executor, Stream, Timer};
use tonic::client::Grpc;
use tonic::{Code, Request, Response, Status, body::Body};

use crate::{everywhere, pair};

/// For messages with a number: protobuf's `UInt64Value`.
type Codec = tonic_prost::ProstCodec<u64, u64>;

/// What tonic's generated code does with a request to a service.
async fn squares(request: hyper::Request<Incoming>) -> Result<hyper::Response<Body>, Infallible> {
    let square = tower::service_fn(async |number: Request<u64>| {
        polder::time::sleep(Duration::from_micros(100)).await;
        let number = number.into_inner();
        let square = number.checked_mul(number).map(Response::new);
        square.ok_or(Status::out_of_range("it is large"))
    });
    let mut server = tonic::server::Grpc::new(Codec::default());
    Ok(server.unary(square, request).await)
}

#[test]
fn tonic_serves_its_clients_without_a_tokio() {
    everywhere(|_| async {
        let (there, here) = pair().await.expect("a connection");
        let server = http2::Builder::new(Executor)
            .timer(Timer)
            .serve_connection(Stream::new(there), service_fn(squares));
        let server = polder::spawn(server);
        let made = handshake(Executor, Stream::new(here)).await;
        let (sender, connection) = made.expect("the server greets");
        let connection = polder::spawn(connection);
        let channel = tower::service_fn(move |request| sender.clone().send_request(request));
        let client = Grpc::with_origin(channel, Uri::from_static("http://localhost"));
        let calls = [1, 2, 3, u64::MAX].map(|number| {
            let mut client = client.clone();
            polder::spawn(async move {
                client.ready().await.expect("it is connected");
                let path = PathAndQuery::from_static("/example.Squares/Square");
                let call = client.unary(Request::new(number), path, Codec::default());
                let square = call.await.map(Response::into_inner);
                let square = square.map_err(|status| status.code());
                assert_eq!(square, number.checked_mul(number).ok_or(Code::OutOfRange));
            })
        });
        calls.join().await;
        drop(client);
        connection.await.expect("the client ends well");
        server.await.expect("the server ends well");
    });
}

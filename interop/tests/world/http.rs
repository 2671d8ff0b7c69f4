//! hyper: HTTP/1.1 and HTTP/2, and a server for a port.

use std::future::{Future, pending};
use std::rc::Rc;

use futures_concurrency::prelude::*;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use interop::http::PATTERN;
use polder::Task;
use polder::io::{AsyncRead, AsyncWrite};
use polder::net::{TcpListener, TcpStream};
use polder_hyper::{Body, Executor, Stream, Timer, serve_connection};

use crate::{Account, PATIENCE, Result, expect_same, payload, persist};

/// Serves a port, each connection in a separate task.
pub async fn serve<F>(port: u16, connection: impl Fn(TcpStream) -> F + Send) -> Result
where
    F: Future<Output = Result> + Send + 'static,
{
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    let _ = polder::net::serve(listener, move |stream, _| {
        let connection = connection(stream);
        // An early end is for its client to notice.
        async move { drop(connection.await) }
    })
    .await;
    Ok(())
}

pub async fn connection<S>(stream: S) -> Result
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(interop::http::answer);
    Ok(serve_connection(stream, service, PATIENCE, pending()).await?)
}

pub async fn connection_2(stream: TcpStream) -> Result {
    let service = service_fn(|request: Request<Incoming>| {
        interop::http::answer(request.map(|body| Body::new(body, PATIENCE)))
    });
    let mut builder = hyper::server::conn::http2::Builder::new(Executor);
    let builder = builder.timer(Timer).keep_alive_interval(PATIENCE);
    Ok(builder
        .serve_connection(Stream::new(stream), service)
        .await?)
}

/// Returns a request by its number, and the body of its answer.
fn request(host: &str, number: u64) -> (Request<Full<Bytes>>, Vec<u8>) {
    let echoes = number.is_multiple_of(2);
    let (method, path, body) = if echoes {
        ("POST", "/echo".into(), payload(number))
    } else {
        ("GET", format!("/bytes/{}", number * 20_000), &[][..])
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{host}{path}"))
        .header("host", host)
        .body(Full::from(body))
        .expect("a request");
    let pattern = PATTERN.iter().copied().cycle();
    let expected = if echoes {
        body.to_vec()
    } else {
        pattern.take(number as usize * 20_000).collect()
    };
    (request, expected)
}

async fn check(answer: Response<Incoming>, expected: &[u8]) -> Result {
    let body = answer.into_body().collect().await?.to_bytes();
    expect_same(&body, expected);
    Ok(())
}

/// A connection, driven by a task for as long as it exists.
pub struct Client<S> {
    sender: S,
    _driver: Task<()>,
}

impl<S> Client<S> {
    fn new(
        sender: S,
        connection: impl Future<Output = hyper::Result<()>> + Send + 'static,
    ) -> Self {
        // The sender reports its error too.
        let driven = async move { drop(connection.await) };
        let _driver = polder::spawn(driven);
        Client { sender, _driver }
    }
}

pub async fn connect_1<S>(stream: S) -> Result<Client<http1::SendRequest<Full<Bytes>>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(Stream::new(stream)).await?;
    Ok(Client::new(sender, connection))
}

pub async fn exchange_1(
    client: &mut Client<http1::SendRequest<Full<Bytes>>>,
    host: &str,
    number: u64,
) -> Result {
    let (request, expected) = request(host, number);
    client.sender.ready().await?;
    check(client.sender.send_request(request).await?, &expected).await
}

pub async fn ask_1(address: &'static str, account: Rc<Account>) -> Result {
    let connect = async || connect_1(TcpStream::connect(address).await?).await;
    persist(account, connect, async |client, number| {
        exchange_1(client, address, number).await
    })
    .await
}

async fn connect_2(address: &str) -> Result<Client<http2::SendRequest<Full<Bytes>>>> {
    let stream = Stream::new(TcpStream::connect(address).await?);
    let mut builder = http2::Builder::new(Executor);
    let builder = builder.timer(Timer).keep_alive_interval(PATIENCE);
    let (sender, connection) = builder.handshake(stream).await?;
    Ok(Client::new(sender, connection))
}

/// Sends several requests concurrently.
pub async fn ask_2(address: &'static str, account: Rc<Account>) -> Result {
    let connect = async || connect_2(address).await;
    persist(account, connect, async |client, number| {
        let ask = async |number| {
            let mut sender = client.sender.clone();
            let (request, expected) = request(address, number);
            sender.ready().await?;
            check(sender.send_request(request).await?, &expected).await
        };
        let all = [ask(number), ask(number + 1), ask(number + 2)];
        all.try_join().await.map(drop)
    })
    .await
}

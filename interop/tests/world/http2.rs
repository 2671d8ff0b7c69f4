//! h2 itself, on polder's streams with tokio's traits (tokio-util's adapters, which need no tokio
//! running).

use std::rc::Rc;

use futures_concurrency::prelude::*;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use hyper::body::Bytes;
use hyper::{Request, Response};
use polder::Task;
use polder::net::TcpStream;
use tokio_util::compat::FuturesAsyncReadCompatExt;

use crate::{Account, Result, expect_same, payload, persist};

pub async fn connection(stream: TcpStream) -> Result {
    let mut connection = h2::server::handshake(stream.compat()).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        polder::spawn(async move {
            if echo(request, &mut respond).await.is_err() {
                respond.send_reset(Reason::INTERNAL_ERROR);
            }
        })
        .detach();
    }
    Ok(())
}

async fn echo(request: Request<RecvStream>, respond: &mut SendResponse<Bytes>) -> Result {
    let mut to = respond.send_response(Response::new(()), false)?;
    let mut from = request.into_body();
    while let Some(bytes) = from.data().await {
        let bytes = bytes?;
        from.flow_control().release_capacity(bytes.len())?;
        to.send_data(bytes, false)?;
    }
    Ok(to.send_data(Bytes::new(), true)?)
}

struct Client {
    sender: SendRequest<Bytes>,
    _driver: Task<()>,
}

async fn connect(address: &str) -> Result<Client> {
    let stream = TcpStream::connect(address).await?;
    let (sender, connection) = h2::client::handshake(stream.compat()).await?;
    let driven = async move { drop(connection.await) };
    Ok(Client {
        sender,
        _driver: polder::spawn(driven),
    })
}

async fn exchange(sender: SendRequest<Bytes>, number: u64) -> Result {
    let request = Request::post("http://h2/").body(()).expect("a request");
    let (answer, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(payload(number).into(), true)?;
    let mut body = answer.await?.into_body();
    let mut received = Vec::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        body.flow_control().release_capacity(bytes.len())?;
        received.extend_from_slice(&bytes);
    }
    expect_same(&received, payload(number));
    Ok(())
}

/// Sends several requests concurrently.
pub async fn ask(address: &'static str, account: Rc<Account>) -> Result {
    let connect = async || connect(address).await;
    persist(account, connect, async |client, number| {
        let all = [0, 1, 2, 3].map(|more| exchange(client.sender.clone(), number + more));
        all.try_join().await.map(drop)
    })
    .await
}

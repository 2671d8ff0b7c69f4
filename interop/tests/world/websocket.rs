//! async-tungstenite: messages, pings, and close frames.

use std::rc::Rc;

use async_tungstenite::tungstenite::Message;
use async_tungstenite::{accept_async, client_async};
use futures_util::SinkExt;
use polder::net::TcpStream;
use polder::stream::StreamExt;
use polder::time::timeout;

use crate::{Account, PATIENCE, Result, expect_same, payload, persist};

pub async fn connection(stream: TcpStream) -> Result {
    let mut socket = timeout(PATIENCE, accept_async(stream)).await??;
    while let Some(message) = timeout(PATIENCE, socket.try_next()).await?? {
        match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await?,
            // The answers to pings and to a close frame.
            _ => socket.flush().await?,
        }
    }
    Ok(())
}

pub async fn ask(address: &'static str, account: Rc<Account>) -> Result {
    let connect = async || {
        let stream = TcpStream::connect(address).await?;
        let (socket, _) = client_async(format!("ws://{address}/"), stream).await?;
        Ok(socket)
    };
    persist(account, &connect, async |socket, number| {
        socket.send(Message::Ping("?".into())).await?;
        socket.send(Message::Binary(payload(number).into())).await?;
        let mut is_there = false;
        loop {
            match socket.try_next().await?.ok_or("it has ended")? {
                Message::Pong(bytes) => is_there = bytes == "?",
                Message::Binary(bytes) => {
                    assert!(is_there, "a message before the pong that is owed");
                    expect_same(&bytes, payload(number));
                    break;
                }
                other => panic!("nobody has sent {other:?}"),
            }
        }
        // A connection is used for four exchanges, and then closed.
        if number % 4 == 3 {
            socket.close(None).await?;
            while socket.try_next().await?.is_some() {}
            *socket = connect().await?;
        }
        Ok(())
    })
    .await
}

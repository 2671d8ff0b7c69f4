//! A client without a timeout; its server loses power.

use std::io::{ErrorKind, Result};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder_sim::Exit;

use super::plant;
use crate::{ms, secs};

async fn server() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    let (mut stream, _) = listener.accept().await?;
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).await?;
    // A slow answer.
    sleep(secs(10)).await;
    stream.write_all(&bytes).await
}

async fn client(has_bug: bool) -> Result<()> {
    sleep(ms(1)).await;
    let mut stream = TcpStream::connect("server:1").await?;
    stream.write_all(b"work").await?;
    let mut bytes = [0; 4];
    let answer = stream.read_exact(&mut bytes);
    if has_bug {
        answer.await
    } else {
        timeout(secs(30), answer).await?
    }
}

#[test]
fn a_wait_without_a_timeout_is_found() {
    plant("no timeout", 5, "deadlock", |sim, has_bug| async move {
        let server = sim.host("server").start(server);
        let client = sim.host("client").start(move || client(has_bug));
        sim.sleep(secs(5)).await;
        server.power_off();
        let Exit::Returned(Err(error)) = client.finished().await else {
            panic!("the client has its answer");
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

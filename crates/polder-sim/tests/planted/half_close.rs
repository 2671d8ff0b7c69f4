//! A client that reads the answer to its end, and forgets to shut down its own direction.

use std::io::Result;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Shutdown, TcpListener, TcpStream};

use super::plant;
use crate::{ms, secs};

async fn server() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    let (mut stream, _) = listener.accept().await?;
    let mut question = Vec::new();
    stream.read_to_end(&mut question).await?;
    question.reverse();
    stream.write_all(&question).await
}

async fn client(has_bug: bool) -> Result<Vec<u8>> {
    polder::time::sleep(ms(1)).await;
    let mut stream = TcpStream::connect("server:1").await?;
    stream.write_all(b"abc").await?;
    if !has_bug {
        stream.shutdown(Shutdown::Write)?;
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

#[test]
fn a_forgotten_half_close_is_found() {
    plant(
        "half-close",
        5,
        "waits to read",
        |sim, has_bug| async move {
            sim.host("server").start(server);
            let client = sim.host("client").start(move || client(has_bug));
            if has_bug {
                drop(client.finished().await);
            } else {
                let answer = client.finished().within(secs(60)).await;
                assert_eq!(answer.unwrap(), b"cba");
            }
        },
    );
}

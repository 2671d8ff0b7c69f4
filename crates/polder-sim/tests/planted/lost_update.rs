//! Two clients increment a counter on a server by reading it, and then writing it.

use std::cell::Cell;
use std::io::{ErrorKind, Result};
use std::rc::Rc;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};

use super::plant;
use crate::secs;

const ROUNDS: u64 = 5;

/// A request is a number: zero reads, `u64::MAX` increments, others are written.
async fn server(value: Rc<Cell<u64>>) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let value = value.clone();
        polder::spawn_local(async move {
            let mut bytes = [0; 8];
            while stream.read_exact(&mut bytes).await.is_ok() {
                match u64::from_le_bytes(bytes) {
                    0 => {}
                    u64::MAX => value.set(value.get() + 1),
                    other => value.set(other),
                }
                stream.write_all(&value.get().to_le_bytes()).await?;
            }
            Result::Ok(())
        })
        .detach();
    }
}

async fn request(stream: &mut TcpStream, number: u64) -> Result<u64> {
    stream.write_all(&number.to_le_bytes()).await?;
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).await?;
    Ok(u64::from_le_bytes(bytes))
}

async fn connect() -> TcpStream {
    loop {
        match TcpStream::connect("server:1").await {
            Ok(stream) => return stream,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        }
    }
}

async fn client(has_bug: bool) -> Result<()> {
    let mut stream = connect().await;
    for _ in 0..ROUNDS {
        if has_bug {
            let value = request(&mut stream, 0).await?;
            request(&mut stream, value + 1).await?;
        } else {
            request(&mut stream, u64::MAX).await?;
        }
    }
    Ok(())
}

#[test]
fn a_lost_update_is_found() {
    plant(
        "lost update",
        20,
        "an update is lost",
        |sim, has_bug| async move {
            let value = Rc::new(Cell::new(0));
            let stored = value.clone();
            sim.host("server").start(move || server(stored.clone()));
            let clients = ["one", "two"].map(|name| sim.host(name).start(move || client(has_bug)));
            for client in clients {
                client.finished().within(secs(60)).await.unwrap();
            }
            assert_eq!(value.get(), 2 * ROUNDS, "an update is lost");
        },
    );
}

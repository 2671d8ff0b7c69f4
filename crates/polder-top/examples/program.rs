//! A program to look at, and the one in the picture: `POLDER_TOP=/tmp/program cargo run --example
//! program`, with `polder-top /tmp/program` at the same time. With an argument it ends after that
//! number of seconds.
//!
//! It has a server and its clients, some of which talk all the time and most of which rarely do,
//! timers, blocking calls; and a reader that has a message and does not read it.

use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;

const IDLE: usize = 200;
const BUSY: usize = 4;

fn main() -> std::io::Result<()> {
    let end = std::env::args().nth(1);
    let end = end.map(|text| text.parse().expect("an argument is a number of seconds"));
    let runtime = polder::Runtime::builder().workers(2).build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        polder::task::Builder::new()
            .name("acceptor")
            .spawn(serve(listener))
            .detach();
        for _ in 0..IDLE {
            polder::spawn(client(address, Duration::from_secs(30))).detach();
        }
        for _ in 0..BUSY {
            polder::spawn(client(address, Duration::ZERO)).detach();
        }
        polder::task::Builder::new()
            .name("reloader")
            .spawn(reload())
            .detach();
        polder::task::Builder::new()
            .name("forgetful")
            .spawn(forget(address))
            .detach();
        match end {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
        Ok(())
    })
}

async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        polder::spawn(async move {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                if stream.write_all(&bytes[..count]).await.is_err() {
                    break;
                }
            }
        })
        .detach();
    }
}

async fn client(address: std::net::SocketAddr, pause: Duration) {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return;
    };
    let mut bytes = [0; 64];
    while stream.write_all(&bytes).await.is_ok() && stream.read_exact(&mut bytes).await.is_ok() {
        sleep(pause.max(Duration::from_micros(100))).await;
    }
}

/// Blocks in the pool, as it should, and in the task, as it should not.
async fn reload() {
    loop {
        polder::unblock(|| std::thread::sleep(Duration::from_millis(300))).await;
        std::thread::sleep(Duration::from_millis(2));
        sleep(Duration::from_millis(200)).await;
    }
}

/// It reads twice, starts another read, and then waits for something that takes long.
async fn forget(address: std::net::SocketAddr) {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return;
    };
    let mut bytes = [0; 64];
    for _ in 0..2 {
        if stream.write_all(&bytes).await.is_err() || stream.read_exact(&mut bytes).await.is_err() {
            return;
        }
    }
    if stream.write_all(&bytes).await.is_err() {
        return;
    }
    let mut reads = std::pin::pin!(stream.read_exact(&mut bytes));
    futures_lite::future::poll_once(&mut reads).await;
    sleep(Duration::from_secs(3_600)).await;
}

//! Clients that retry immediately when an answer is late. After the server pauses, the queue stays
//! full of requests that no client waits for any more.

use std::cell::Cell;
use std::io::Result;
use std::rc::Rc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};

use super::plant;
use crate::{ms, secs};

/// The number of clients, and the work for a request: the server is idle for a quarter of the time.
const CLIENTS: u64 = 16;
const WORK: Duration = Duration::from_millis(10);
const BETWEEN: Duration = Duration::from_millis(200);

/// The client's timeout for an answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// Serves one request after the other.
async fn server() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        sleep(WORK).await;
        let _ = stream.write_all(b"done").await;
    }
}

async fn request() -> Result<()> {
    let mut stream = TcpStream::connect("server:1").await?;
    stream.read_exact(&mut [0; 4]).await
}

async fn client(served: Rc<Cell<u32>>, has_bug: bool) {
    loop {
        let mut pause = BETWEEN;
        while !matches!(timeout(PATIENCE, request()).await, Ok(Ok(()))) {
            if !has_bug {
                sleep(pause).await;
                pause = (pause * 2).min(secs(2));
            }
        }
        served.set(served.get() + 1);
        sleep(BETWEEN).await;
    }
}

#[test]
fn a_storm_of_retries_is_found() {
    plant("retry storm", 5, "were served", |sim, has_bug| async move {
        let served = Rc::new(Cell::new(0));
        let server = sim.host("server").start(server);
        for n in 0..CLIENTS {
            sim.sleep(BETWEEN / CLIENTS as u32).await;
            let served = served.clone();
            sim.host(&format!("client-{n}"))
                .start(move || client(served.clone(), has_bug));
        }
        sim.sleep(ms(sim.choose(1_000))).await;
        let pause = server.pause();
        sim.sleep(ms(500 + sim.choose(1_000))).await;
        drop(pause);
        sim.quiesce();
        sim.sleep(secs(15)).await;
        served.set(0);
        sim.sleep(secs(5)).await;
        let (count, least) = (served.get(), 5 * CLIENTS as u32);
        assert!(count >= least, "only {count} requests were served");
    });
}

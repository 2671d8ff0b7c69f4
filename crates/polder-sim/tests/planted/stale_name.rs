//! A client that looks a name up once, and keeps the address when the service moves.

use std::cell::Cell;
use std::io::Result;
use std::net::SocketAddr;
use std::rc::Rc;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, resolve};
use polder::time::{sleep, timeout};

use super::plant;
use crate::{ms, secs};

async fn server() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        polder::spawn(async move { stream.write_all(b"done").await }).detach();
    }
}

async fn request(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.read_exact(&mut [0; 4]).await
}

async fn client(count: Rc<Cell<u32>>, has_bug: bool) {
    let mut known = None;
    loop {
        if known.is_none() {
            known = resolve("service:1").await.ok().map(|it| it[0]);
        }
        let is_done = match known {
            Some(address) => matches!(timeout(ms(500), request(address)).await, Ok(Ok(()))),
            None => false,
        };
        if is_done {
            count.set(count.get() + 1);
        } else if !has_bug {
            known = None;
        }
        sleep(ms(100)).await;
    }
}

#[test]
fn an_address_that_is_kept_for_ever_is_found() {
    plant(
        "stale name",
        5,
        "served after it has moved",
        |sim, has_bug| async move {
            let [old, new] = ["old", "new"].map(|name| sim.host(name).start(server));
            sim.names()
                .set("service", [old.address()])
                .stale(0.2)
                .failure(0.1);
            let count = Rc::new(Cell::new(0));
            let counted = count.clone();
            sim.host("client")
                .start(move || client(counted.clone(), has_bug));
            sim.sleep(secs(1) + ms(sim.choose(3_000))).await;
            sim.names().set("service", [new.address()]);
            // The old host runs another service by now.
            old.kill();
            sim.host("old").start(std::future::pending::<()>);
            let before = count.get();
            let served = count.clone();
            sim.eventually("it is served after it has moved", secs(10), move || {
                served.get() > before
            });
            sim.quiesce();
            sim.sleep(secs(20)).await;
        },
    );
}

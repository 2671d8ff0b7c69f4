//! A client that repeats a request after a timeout, and a server that does not recognise the
//! repetition.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::Result;
use std::rc::Rc;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};

use super::plant;
use crate::{ms, secs};

const ROUNDS: u64 = 10;

#[derive(Default)]
struct Store {
    count: Cell<u64>,
    known: RefCell<BTreeSet<u64>>,
}

async fn server(store: Rc<Store>, has_bug: bool) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let store = store.clone();
        polder::spawn_local(async move {
            let mut id = [0; 8];
            while stream.read_exact(&mut id).await.is_ok() {
                let is_new = store.known.borrow_mut().insert(u64::from_le_bytes(id));
                if is_new || has_bug {
                    store.count.set(store.count.get() + 1);
                }
                if stream.write_all(&id).await.is_err() {
                    break;
                }
            }
        })
        .detach();
    }
}

async fn increment(id: u64) -> Result<()> {
    let mut stream = TcpStream::connect("server:1").await?;
    stream.write_all(&id.to_le_bytes()).await?;
    stream.read_exact(&mut [0; 8]).await
}

async fn client() {
    for id in 0..ROUNDS {
        while !matches!(timeout(ms(150), increment(id)).await, Ok(Ok(()))) {
            sleep(ms(10)).await;
        }
    }
}

#[test]
fn a_request_that_is_applied_twice_is_found() {
    plant(
        "applied twice",
        100,
        "acknowledged",
        |sim, has_bug| async move {
            let store = Rc::new(Store::default());
            let stored = store.clone();
            sim.host("server")
                .start(move || server(stored.clone(), has_bug));
            sim.links().loss(0.01);
            sim.host("client")
                .start(client)
                .finished()
                .within(secs(600))
                .await;
            let count = store.count.get();
            assert_eq!(
                count, ROUNDS,
                "{ROUNDS} were acknowledged, and {count} applied"
            );
        },
    );
}

//! A test in simulated worlds that finds a planted bug, which none over loopback would: a server
//! counts, and clients repeat each request until it is answered. It must count once.
//! `cargo run -p polder-sim --example simulated` runs a hundred seeds; with `-- --bug` the server
//! has the bug, and the report says which seed shows it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder_sim::check;

const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Counts the requests, each once, and answers with their number. A request is the number of its
/// client, and a number of the client's own.
async fn server(has_bug: bool) -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:7000").await?;
    let counted = Rc::new(RefCell::new(Vec::new()));
    loop {
        let (mut stream, _) = listener.accept().await?;
        let counted = counted.clone();
        polder::spawn_local(async move {
            let mut request = [0; 2];
            stream.read_exact(&mut request).await?;
            if has_bug || !counted.borrow().contains(&request) {
                counted.borrow_mut().push(request);
            }
            let count = counted.borrow().len();
            stream.write_all(&[count as u8]).await
        })
        .detach();
    }
}

/// Sends requests, each until it is answered. Returns the last answer.
async fn client(address: &str, number: u8, requests: u8) -> u8 {
    let (limit, mut last) = (Duration::from_millis(200), 0);
    for request in 0..requests {
        last = loop {
            match timeout(limit, ask(address, [number, request])).await {
                Ok(Ok(answer)) => break answer,
                _ => sleep(limit).await, // It may have been counted, or not.
            }
        }
    }
    last
}

async fn ask(address: &str, request: [u8; 2]) -> io::Result<u8> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&request).await?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await?;
    Ok(answer[0])
}

pub fn each_request_counts_once(has_bug: bool) {
    check(0..100, move |sim| async move {
        sim.host("counter").start(move || server(has_bug));
        let one = sim.host("client-1").start(|| client("counter:7000", 1, 20));
        let two = sim.host("client-2").start(|| client("counter:7000", 2, 20));
        sim.chaos(TEN_SECONDS).loss().cuts(); // Each seed in its own way.
        sim.sleep(TEN_SECONDS).await;
        sim.quiesce(); // No more faults: now they have to finish.
        let one = one.finished().within(6 * TEN_SECONDS).await;
        let two = two.finished().within(6 * TEN_SECONDS).await;
        assert_eq!(one.max(two), 40);
    });
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let has_bug = given == ["--bug"];
    assert!(has_bug || given.is_empty(), "usage: simulated [--bug]");
    each_request_counts_once(has_bug);
}

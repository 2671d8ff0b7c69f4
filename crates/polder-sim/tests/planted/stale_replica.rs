//! A client that reads from a replica when the primary does not answer, and so may miss its own
//! writes.

use std::cell::{Cell, RefCell};
use std::io::Result;
use std::rc::Rc;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder_sim::{History, Model, Sim};

use super::plant;
use crate::{ms, secs};

const ROUNDS: u64 = 20;

/// A value, and the number of writes up to it.
type Version = (u64, u64);

async fn send(stream: &mut TcpStream, (a, b): (u64, u64)) -> Result<()> {
    let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
    stream.write_all(&bytes).await
}

async fn receive(stream: &mut TcpStream) -> Result<(u64, u64)> {
    let mut bytes = [[0; 8]; 2];
    stream.read_exact(bytes.as_flattened_mut()).await?;
    let [a, b] = bytes.map(u64::from_le_bytes);
    Ok((a, b))
}

/// Answers requests: a value to be written, or zero to read, and the version that the client has
/// seen. `log` is on a disk.
async fn primary(log: Rc<RefCell<Vec<u64>>>) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    polder::spawn_local(replicate(log.clone())).detach();
    loop {
        let (mut stream, _) = listener.accept().await?;
        let log = log.clone();
        polder::spawn_local(async move {
            while let Ok((value, _)) = receive(&mut stream).await {
                // (A request that was given up may arrive late.)
                if value > log.borrow().last().copied().unwrap_or(0) {
                    log.borrow_mut().push(value);
                }
                let now = last(&log);
                send(&mut stream, now).await?;
            }
            Result::Ok(())
        })
        .detach();
    }
}

fn last(log: &RefCell<Vec<u64>>) -> Version {
    let log = log.borrow();
    (log.last().copied().unwrap_or(0), log.len() as u64)
}

/// Sends each new version to the replica, with a delay.
async fn replicate(log: Rc<RefCell<Vec<u64>>>) {
    loop {
        let Ok(Ok(mut stream)) = timeout(secs(1), TcpStream::connect("replica:2")).await else {
            sleep(ms(20)).await;
            continue;
        };
        let mut known = 0;
        loop {
            sleep(ms(30)).await;
            let now = last(&log);
            if now.1 == known {
                continue;
            }
            let told = async {
                send(&mut stream, now).await?;
                receive(&mut stream).await
            };
            match timeout(ms(500), told).await {
                Ok(Ok(_)) => known = now.1,
                _ => break,
            }
        }
    }
}

async fn replica(has_bug: bool) -> Result<()> {
    let version = Rc::new(Cell::new((0, 0)));
    let clients = TcpListener::bind("0.0.0.0:1").await?;
    let primary = TcpListener::bind("0.0.0.0:2").await?;
    let told = version.clone();
    polder::spawn_local(async move {
        while let Ok((mut stream, _)) = primary.accept().await {
            let told = told.clone();
            polder::spawn_local(async move {
                while let Ok(news) = receive(&mut stream).await {
                    if news.1 > told.get().1 {
                        told.set(news);
                    }
                    send(&mut stream, news).await?;
                }
                Result::Ok(())
            })
            .detach();
        }
    })
    .detach();
    loop {
        let (mut stream, _) = clients.accept().await?;
        let version = version.clone();
        polder::spawn_local(async move {
            while let Ok((_, seen)) = receive(&mut stream).await {
                // A client that has seen a later version waits until it arrives here.
                while !has_bug && version.get().1 < seen {
                    sleep(ms(10)).await;
                }
                send(&mut stream, version.get()).await?;
            }
            Result::Ok(())
        })
        .detach();
    }
}

async fn ask(address: &str, request: (u64, u64)) -> Option<Version> {
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        send(&mut stream, request).await?;
        receive(&mut stream).await
    };
    timeout(ms(200), answer).await.ok()?.ok()
}

/// Returns the answer of the first of these that answers, trying repeatedly.
async fn ask_any(addresses: &[&str], request: (u64, u64)) -> Version {
    loop {
        for address in addresses {
            if let Some(answer) = ask(address, request).await {
                return answer;
            }
        }
        sleep(ms(10)).await;
    }
}

/// The request of a client: to write a value, or to read (`None`).
type Input = Option<u64>;

async fn client(history: History<Input, u64>) {
    let mut seen = 0;
    for value in 1..=ROUNDS {
        let write = history.invoke("client", Some(value));
        let (written, version) = ask_any(&["primary:1"], (value, seen)).await;
        seen = version;
        write.answer(written);
        let read = history.invoke("client", None);
        let (value, version) = ask_any(&["primary:1", "replica:1"], (0, seen)).await;
        seen = version.max(seen);
        read.answer(value);
    }
}

/// A client sees its own writes.
struct ReadYourWrites;

impl Model for ReadYourWrites {
    type State = u64;
    type Input = Input;
    type Output = u64;

    fn begin(&self) -> u64 {
        0
    }

    fn step(&self, state: &u64, input: &Input, output: Option<&u64>) -> Option<u64> {
        let state = input.unwrap_or(*state);
        output.is_none_or(|it| *it == state).then_some(state)
    }

    fn partition(&self, client: &str, _: &Input) -> String {
        client.to_owned()
    }
}

async fn test(sim: Sim, has_bug: bool) {
    let log = Rc::new(RefCell::new(Vec::new()));
    let primary = sim.host("primary").start(move || primary(log.clone()));
    sim.host("replica").start(move || replica(has_bug));
    let history = sim.history();
    let recorded = history.clone();
    let client = sim.host("client").start(move || client(recorded.clone()));
    sim.chaos(secs(10)).cuts().pauses().crashes(&[&primary]);
    sleep(secs(10)).await;
    sim.quiesce();
    client.finished().within(secs(60)).await;
    history.linearizable(ReadYourWrites);
}

#[test]
fn a_stale_read_after_a_fail_over_is_found() {
    let words = "not linearizable: no order of the operations of client";
    plant("stale replica", 60, words, test);
}

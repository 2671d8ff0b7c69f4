//! async-channel, async-lock and futures-concurrency: a server with connections that share workers,
//! a table and a limit; both ends have requests and answers in flight at the same time.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use async_lock::{Barrier, RwLock, Semaphore};
use futures_concurrency::prelude::*;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::stream::StreamExt;
use polder::time::sleep;

use crate::{Account, PATIENCE, Result, expect_same, persist};

/// The number of numbers in a request.
const NUMBERS: u64 = 16;

/// The number of workers, and of those that work concurrently.
const WORKERS: usize = 4;
const AT_ONCE: usize = 3;

struct Job {
    number: u64,
    answer: Sender<u64>,
}

/// The workers' shared state.
struct Shared {
    jobs: Receiver<Job>,
    known: RwLock<BTreeMap<u64, u64>>,
    permits: Semaphore,
    all: Barrier,
}

async fn work(shared: Arc<Shared>) {
    shared.all.wait().await;
    while let Ok(Job { number, answer }) = shared.jobs.recv().await {
        let permit = shared.permits.acquire().await;
        let known = shared.known.read().await.get(&number).copied();
        let square = match known {
            Some(square) => square,
            None => {
                sleep(Duration::from_millis(1 + number % 5)).await;
                *shared
                    .known
                    .write()
                    .await
                    .entry(number)
                    .or_insert(number * number)
            }
        };
        drop(permit);
        let _ = answer.send(square).await; // Its connection may have gone.
    }
}

/// Serves two ports, with one list of jobs.
pub async fn serve() -> Result {
    let (sender, jobs) = async_channel::bounded(2);
    let shared = Arc::new(Shared {
        jobs,
        known: RwLock::default(),
        permits: Semaphore::new(AT_ONCE),
        all: Barrier::new(WORKERS),
    });
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| polder::spawn(work(shared.clone())))
        .collect();
    let bound = ["0.0.0.0:1", "0.0.0.0:2"].map(TcpListener::bind);
    let [one, other] = bound.try_join().await?;
    let mut streams = (one.incoming(), other.incoming()).merge();
    while let Some(stream) = streams.next().await {
        let (Ok(stream), jobs) = (stream, sender.clone()) else {
            continue; // The connection had gone before it was accepted.
        };
        polder::spawn(async move { drop(connection(stream, jobs).await) }).detach();
    }
    drop(workers);
    Ok(())
}

async fn connection(mut stream: TcpStream, jobs: Sender<Job>) -> Result {
    loop {
        let mut request = [0; 8 * NUMBERS as usize];
        stream.read_exact(&mut request).await?;
        let jobs = &jobs;
        let squares = request.chunks(8).map(|bytes| async move {
            let number = u64::from_le_bytes(bytes.try_into()?);
            let (answer, answers) = async_channel::bounded(1);
            jobs.send(Job { number, answer }).await?;
            Result::Ok(answers.recv().await?)
        });
        let squares = squares.collect::<Vec<_>>().try_join().await?;
        let bytes: Vec<u8> = squares.into_iter().flat_map(u64::to_le_bytes).collect();
        stream.write_all(&bytes).await?;
    }
}

async fn exchange(stream: &mut TcpStream, number: u64) -> Result {
    let numbers = || number..number + NUMBERS;
    let request: Vec<u8> = numbers().flat_map(u64::to_le_bytes).collect();
    let mut answer = [0; 8 * NUMBERS as usize];
    let (mut reader, mut writer) = (stream.clone(), stream.clone());
    let both = async {
        let reading = reader.read_exact(&mut answer);
        let writing = writer.write_all(&request);
        (reading, writing).try_join().await.map(drop)
    };
    let limit = async {
        sleep(PATIENCE / 2).await;
        Err(std::io::ErrorKind::TimedOut.into())
    };
    (both, limit).race().await?;
    let expected: Vec<u8> = numbers().flat_map(|it| (it * it).to_le_bytes()).collect();
    expect_same(&answer, &expected);
    Ok(())
}

pub async fn ask(account: Rc<Account>) -> Result {
    let counted = account.clone();
    let connect = async || {
        let port = 1 + counted.again.get() as u16 % 2;
        Ok(TcpStream::connect(("queue", port)).await?)
    };
    persist(account, connect, async |stream, number| {
        exchange(stream, number).await
    })
    .await
}

//! A store that answers a write when it is in its log, and syncs the log periodically: acknowledged
//! writes are lost in a power failure.

use std::io::{ErrorKind, Result};

use polder::fs::{self, File, OpenOptions};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder_sim::{History, Model, Sim};

use super::plant;
use crate::{ms, secs};

const LOG: &str = "/data/log";

/// A key, a value, and a check of both.
const RECORD: usize = 24;

fn record(key: u64, value: u64) -> [u8; RECORD] {
    let check = (key ^ value.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1;
    let mut record = [0; RECORD];
    let parts = record.chunks_exact_mut(8).zip([key, value, check]);
    parts.for_each(|(bytes, number)| bytes.copy_from_slice(&number.to_le_bytes()));
    record
}

struct Store {
    log: File,
    values: [u64; 2],
}

impl Store {
    /// Reads the log up to the first incomplete record.
    async fn open() -> Result<Store> {
        fs::create_dir_all("/data").await?;
        let mut options = OpenOptions::new();
        let log = options.append(true).create(true).open(LOG).await?;
        let (mut values, mut len) = ([0; 2], 0);
        let bytes = fs::read(LOG).await?;
        for bytes in bytes.chunks_exact(RECORD) {
            let number = |nth: usize| bytes[8 * nth..][..8].try_into().map(u64::from_le_bytes);
            let (key, value) = (
                number(0).expect("eight bytes"),
                number(1).expect("eight bytes"),
            );
            if bytes != record(key, value) {
                break;
            }
            values[key as usize] = value;
            len += RECORD as u64;
        }
        log.set_len(len).await?;
        log.sync_all().await?;
        File::open("/data").await?.sync_all().await?;
        File::open("/").await?.sync_all().await?;
        Ok(Store { log, values })
    }

    async fn write(&mut self, key: u64, value: u64, has_bug: bool) -> Result<()> {
        self.log.write_all(&record(key, value)).await?;
        if !has_bug {
            self.log.sync_data().await?;
        }
        self.values[key as usize] = value;
        Ok(())
    }
}

/// Answers requests one after the other: a key, and a value to be written, or zero to read.
async fn store(has_bug: bool) -> Result<()> {
    let mut store = Store::open().await?;
    if has_bug {
        polder::spawn_local(sync_now_and_then()).detach();
    }
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let Ok(Ok((key, value))) = timeout(ms(100), receive(&mut stream)).await else {
            continue;
        };
        if value != 0 {
            store.write(key, value, has_bug).await?;
        }
        let _ = send(&mut stream, (key, store.values[key as usize])).await;
    }
}

async fn sync_now_and_then() -> Result<()> {
    let log = File::open(LOG).await?;
    loop {
        sleep(ms(20)).await;
        log.sync_data().await?;
    }
}

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

/// A key, and the value to be written to it, or zero to read.
type Input = (u64, u64);

async fn ask(request: Input) -> Result<u64> {
    let answer = async {
        let mut stream = TcpStream::connect("store:1").await?;
        send(&mut stream, request).await?;
        Ok(receive(&mut stream).await?.1)
    };
    timeout(ms(200), answer)
        .await
        .unwrap_or(Err(ErrorKind::TimedOut.into()))
}

async fn client(name: &'static str, first: u64, history: History<Input, u64>) {
    for round in 0..12 {
        for input in [(round % 2, first + round), (round % 2, 0)] {
            let asked = history.invoke(name, input);
            match ask(input).await {
                Ok(value) => asked.answer(value),
                // The write may have happened, or may happen later. Others do not rely on it.
                Err(_) => sleep(ms(20)).await,
            }
        }
        sleep(ms(5)).await;
    }
}

/// A read returns the last written value.
struct Registers;

impl Model for Registers {
    type State = u64;
    type Input = Input;
    type Output = u64;

    fn begin(&self) -> u64 {
        0
    }

    fn step(&self, state: &u64, input: &Input, output: Option<&u64>) -> Option<u64> {
        let state = if input.1 == 0 { *state } else { input.1 };
        output.is_none_or(|it| *it == state).then_some(state)
    }

    fn partition(&self, _: &str, input: &Input) -> String {
        format!("key {}", input.0)
    }
}

async fn test(sim: Sim, has_bug: bool) {
    let store = sim.host("store").start(move || store(has_bug));
    let history = sim.history();
    let clients = [("client-1", 100), ("client-2", 200)].map(|(name, first)| {
        let history = history.clone();
        sim.host(name)
            .start(move || client(name, first, history.clone()))
    });
    for _ in 0..3 {
        sim.sleep(ms(20 + sim.choose(150))).await;
        store.power_off();
        sim.sleep(ms(10)).await;
        store.restart();
    }
    sim.quiesce();
    for client in clients {
        client.finished().within(secs(60)).await;
    }
    history.linearizable(Registers);
}

/// A write that is acknowledged before it is synced is found.
#[test]
fn acknowledged_before_sync_is_found() {
    let words = "not linearizable: no order of the operations of key";
    plant("early answer", 60, words, test);
}

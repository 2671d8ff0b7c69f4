//! Tapes that somebody has changed: each is an error in words, or another run; none hangs, panics
//! or takes much memory.

use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::{sleep, timeout};
use polder_replay::{record, replay};

use crate::support::Tape;

/// Asks for many kinds of entries, and does not expect any answer.
async fn program() {
    let run = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = polder::spawn_local(async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            stream.write_all(b"some bytes").await?;
            stream.nodelay()
        });
        let (mut stream, _) = listener.accept().await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        let _ = task.await;
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        socket.send_to(b"datagram", socket.local_addr()?).await?;
        socket.recv_from(&mut [0; 16]).await?;
        polder::net::resolve("localhost:1").await?;
        polder::fs::metadata("/").await?;
        let _ = polder::fs::read_dir("/").await?;
        sleep(Duration::from_millis(1)).await;
        std::io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(3_600), run).await;
}

/// The checksum of a block, as `tape.rs` has it: so that a changed tape is read.
fn checked(bytes: &[u8], before: u64) -> u64 {
    let mix = |sum: u64, word: u64| {
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23)
    };
    let mut words = bytes.chunks_exact(8);
    let mut sum = mix(before ^ 0xcbf2_9ce4_8422_2325, bytes.len() as u64);
    for word in &mut words {
        sum = mix(sum, u64::from_le_bytes(word.try_into().unwrap()));
    }
    words
        .remainder()
        .iter()
        .fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

/// Puts blocks together with checksums that fit.
fn assemble(beginning: &[u8], bodies: &[Vec<u8>]) -> Vec<u8> {
    let (mut tape, mut sum) = (beginning.to_vec(), 0);
    for body in bodies {
        sum = checked(body, sum);
        tape.extend_from_slice(&(body.len() as u32).to_le_bytes());
        tape.extend_from_slice(&sum.to_le_bytes());
        tape.extend_from_slice(body);
    }
    tape
}

fn take_apart(tape: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (beginning, mut rest) = tape.split_at(12);
    let mut bodies = Vec::new();
    while let Some((head, blocks)) = rest.split_at_checked(12) {
        let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let (body, others) = blocks.split_at(length);
        bodies.push(body.to_vec());
        rest = others;
    }
    (beginning.to_vec(), bodies)
}

/// xorshift64*, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

/// Changes some bytes: values that lengths and tags are sensitive to, copies and cuts.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            _ if bytes.is_empty() => {}
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.below(256) as u8),
            4 => {
                let length = random.below(bytes.len() - at);
                let copy = bytes[at..at + length].to_vec();
                bytes.extend_from_slice(&copy);
            }
            _ => {
                let end = (at + 9).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
        }
    }
}

#[test]
fn reader_survives_hostile_tapes() {
    let tape = Tape::new();
    record(&tape.path, program()).unwrap();
    let (beginning, bodies) = take_apart(&tape.bytes());
    assert_eq!(assemble(&beginning, &bodies), tape.bytes());
    replay(&tape.path, program()).unwrap();
    let runs: u64 = std::env::var("POLDER_REPLAY_FUZZ").map_or(400, |text| text.parse().unwrap());
    let start = Instant::now();
    for seed in 1..=runs {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut changed = bodies.clone();
        let which = random.below(bodies.len());
        mutate(&mut changed[which], &mut random);
        let mut bytes = assemble(&beginning, &changed);
        if random.below(4) == 0 {
            mutate(&mut bytes, &mut random); // The frames too.
        }
        std::fs::write(&tape.path, &bytes).unwrap();
        println!("seed {seed}"); // Shown if it fails.
        let _ = polder_replay::show(&tape.path, None, &mut Vec::new());
        if let Err(error) = replay(&tape.path, program()) {
            assert!(!error.to_string().is_empty());
        }
    }
    let time = start.elapsed();
    println!("{runs} tapes in {time:?}");
}

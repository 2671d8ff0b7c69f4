//! Rule 23a: short reads with edges lose nothing, with or without urgent data in between.
//!
//! A read stops at the urgent mark: it is short although more data is available. The urgent byte
//! itself is part of the stream only with `SO_OOBINLINE`.

use std::io::Write;
use std::net;
use std::task::Poll;
use std::thread;

use polder::io::AsyncReadExt;
use polder::net::TcpStream;
use socket2::SockRef;

use super::{Count, Random, pair, poll_read, some_turns};
use crate::support::{in_every_runtime, on_every_backend, runtime, sized};

fn send_urgent(stream: &net::TcpStream) {
    let sent = SockRef::from(stream).send_out_of_band(b"!").unwrap();
    assert_eq!(sent, 1);
}

/// Sends by a script: `!` is urgent; a space lets the receiver's reactor poll.
async fn send(far: &mut net::TcpStream, script: &str) {
    for part in script.split_inclusive(['!', ' ']) {
        let text = part.trim_end_matches(['!', ' ']);
        if !text.is_empty() {
            far.write_all(text.as_bytes()).unwrap();
        }
        match part.as_bytes().last() {
            Some(b'!') => send_urgent(far),
            Some(b' ') => some_turns().await,
            _ => {}
        }
    }
}

/// Reads as a user does, with more room than needed, until `expected` has arrived.
async fn expect(near: &mut TcpStream, expected: &str) {
    let mut got = String::new();
    let mut bytes = [0; 256];
    while got.len() < expected.len() {
        let count = Count::new();
        let read = match poll_read(near, &count, &mut bytes) {
            Poll::Ready(read) => read.unwrap(),
            Poll::Pending => {
                count.until_woken().await;
                continue;
            }
        };
        assert_ne!(read, 0, "the end came after {got:?} of {expected:?}");
        got.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    assert_eq!(got, expected);
}

#[test]
fn urgent_data_between_two_writes_loses_nothing() {
    in_every_runtime(|_| async {
        for inline in [false, true] {
            for registered in [false, true] {
                let (mut near, mut far) = pair();
                SockRef::from(&near).set_out_of_band_inline(inline).unwrap();
                let count = Count::new();
                if registered {
                    assert!(poll_read(&mut near, &count, &mut [0; 8]).is_pending());
                }
                // In this order on one stream: earlier reports have an effect.
                for script in [
                    "before",
                    "before!after",
                    "before !after",
                    "before! after",
                    "before ! after",
                    "!after",
                    "! after",
                    "a!b",
                    "plain again",
                ] {
                    send(&mut far, script).await;
                    let mut expected = script.replace(' ', "");
                    if !inline {
                        expected = expected.replace('!', "");
                    }
                    expect(&mut near, &expected).await;
                }
                // A mark at the very end, and the end of file behind it.
                send(&mut far, "last!").await;
                expect(&mut near, if inline { "last!" } else { "last" }).await;
                drop(far);
                assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0);
            }
        }
    });
}

/// The reader has cleared readability by a short read just before the mark comes.
#[test]
fn urgent_data_after_a_short_read_loses_nothing() {
    in_every_runtime(|_| async {
        for inline in [false, true] {
            for turns in [false, true] {
                let (mut near, mut far) = pair();
                SockRef::from(&near).set_out_of_band_inline(inline).unwrap();
                let count = Count::new();
                assert!(poll_read(&mut near, &count, &mut [0; 8]).is_pending());
                far.write_all(b"abc").unwrap();
                count.until_woken().await;
                // The mark and the data after it arrive before the read, and are reported after it.
                send_urgent(&far);
                far.write_all(b"def").unwrap();
                if turns {
                    some_turns().await;
                }
                expect(&mut near, if inline { "abc!def" } else { "abcdef" }).await;
            }
        }
    });
}

/// Random urgent data among random pieces loses nothing.
///
/// Urgent bytes at random among plain ones, read by another thread in random pieces. Urgent bytes
/// that overtake each other may end up in the stream or not; all others must arrive, in order.
#[test]
fn urgent_among_random_pieces_loses_nothing() {
    on_every_backend(|backend| {
        for inline in [false, true] {
            let total = sized(backend, 1 << 20);
            let (mut near, mut far) = pair();
            SockRef::from(&near).set_out_of_band_inline(inline).unwrap();
            let plain = |i: usize| (i % 32) as u8 + b'@';
            let sender = thread::spawn(move || {
                let mut random = Random::new(20);
                let bytes: Vec<u8> = (0..total).map(plain).collect();
                let mut at = 0;
                while at < total {
                    let end = total.min(at + random.size(3_000));
                    far.write_all(&bytes[at..end]).unwrap();
                    at = end;
                    match random.below(4) {
                        0 => send_urgent(&far),
                        1 => thread::yield_now(),
                        _ => {}
                    }
                }
            });
            runtime(backend).block_on(async {
                let mut random = Random::new(21);
                let mut got: Vec<u8> = Vec::with_capacity(total);
                let mut buffer = [0; 8_192];
                loop {
                    let room = random.size(buffer.len());
                    match near.read(&mut buffer[..room]).await.unwrap() {
                        0 => break,
                        read => got.extend(buffer[..read].iter().filter(|&&byte| byte != b'!')),
                    }
                }
                assert_eq!(got.len(), total, "with SO_OOBINLINE {inline}");
                assert!(got.iter().enumerate().all(|(i, &byte)| byte == plain(i)));
            });
            sender.join().unwrap();
        }
    });
}

/// No urgent data, but random timing: bursts and pauses against reads that are mostly short.
#[test]
fn random_bursts_against_short_reads_lose_nothing() {
    on_every_backend(|backend| {
        let rounds = sized(backend, 2_000);
        let (mut near, mut far) = pair();
        let sender = thread::spawn(move || {
            let mut random = Random::new(22);
            let mut sent = 0u64;
            for _ in 0..rounds {
                for _ in 0..random.size(8) {
                    let size = random.size(64);
                    far.write_all(&[b'x'; 64][..size]).unwrap();
                    sent += size as u64;
                }
                if random.below(3) == 0 {
                    thread::yield_now();
                }
            }
            sent
        });
        let got = runtime(backend).block_on(async {
            let mut random = Random::new(23);
            let mut buffer = [0; 256];
            let mut got = 0;
            loop {
                let room = random.size(buffer.len());
                match near.read(&mut buffer[..room]).await.unwrap() {
                    0 => return got,
                    read => got += read as u64,
                }
            }
        });
        assert_eq!(got, sender.join().unwrap());
    });
}

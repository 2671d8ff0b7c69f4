//! `websocket`: Python's `websockets`, and an unresponsive client.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use polder::Backend;

use crate::support::*;

fn start(backend: Backend, arguments: &[&str]) -> Server {
    Server::start(env!("CARGO_BIN_EXE_websocket"), backend, arguments)
}

/// Returns `tests/clients/websocket.py`, in one of its modes.
fn python(server: &Server, way: &str) -> Option<Command> {
    let mut python = python_with_websockets()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/websocket.py");
    python.args([script, &format!("ws://{}/", server.address), way]);
    Some(python)
}

#[test]
fn python_echo_on_50_connections() {
    for backend in backends() {
        let websocket = start(backend, &[]);
        let Some(python) = python(&websocket, "echo") else {
            return;
        };
        assert_eq!(run(python, "").well(), "well\n");
        websocket.stops();
    }
}

/// Python is asked for signs of life while it is silent and stays.
#[test]
fn python_pinged_while_silent() {
    for backend in backends() {
        let websocket = start(backend, &["--timeout-ms", "500"]);
        let Some(python) = python(&websocket, "silent") else {
            return;
        };
        assert_eq!(run(python, "").well(), "well\n");
        websocket.stops();
    }
}

#[test]
fn python_is_told_that_the_server_goes_away() {
    for backend in backends() {
        let mut websocket = start(backend, &[]);
        let Some(python) = python(&websocket, "stop") else {
            return;
        };
        std::thread::scope(|scope| {
            let client = scope.spawn(|| run(python, "").well());
            websocket.says("connected");
            websocket.interrupt();
            assert_eq!(client.join().expect("it ends well"), "1001\n");
        });
        websocket.ended();
    }
}

#[test]
fn who_gives_no_sign_of_life_is_cut_off() {
    const TIMEOUT: Duration = Duration::from_millis(500);
    for backend in backends() {
        let websocket = start(backend, &["--timeout-ms", "500"]);
        let start = Instant::now();
        let silent = websocket.connect();
        let after = cut_off(silent, start);
        assert!(after >= TIMEOUT, "on {backend}: {after:?}");

        let mut client = websocket.connect();
        let start = Instant::now();
        client.write_all(REQUEST.as_bytes()).expect("it takes this");
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let after = start.elapsed();
        assert!(after >= 2 * TIMEOUT, "on {backend}: {after:?}");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{text:?}");
        // A ping of one byte.
        assert!(answer.ends_with(b"\x89\x01?"), "{text:?}");
        websocket.stops();
    }
}

/// The head of a client's request; key and answer are those of RFC 6455, section 1.3.
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Returns a client's frame of less than 126 bytes, masked with zeros, so unchanged.
fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | kind, 0x80 | bytes.len() as u8, 0, 0, 0, 0];
    frame.extend(bytes);
    frame
}

/// A client that pings and never reads uses bounded memory, and is disconnected.
///
/// RFC 6455, section 5.5.3: only the most recent ping has to be answered. Answers that the client
/// does not take must not be kept, however many pings it sends.
#[cfg(target_os = "linux")]
#[test]
fn pinging_non_reader_is_cut_off() {
    for backend in backends() {
        let websocket = start(backend, &["--timeout-ms", "2000"]);
        let mut deaf = websocket.connect();
        deaf.write_all(REQUEST.as_bytes()).expect("it takes this");
        websocket.says("connected");
        let pings = frame(9, &[b'p'; 125]).repeat(1_000);
        let mut sent = 0_u64;
        while deaf.write_all(&pings).is_ok() {
            sent += pings.len() as u64;
            // It should have been cut off long before that.
            assert!(sent < 100 << 30, "it was never cut off");
            websocket.stayed_small();
        }
        println!(
            "{backend}: {sent} bytes of pings, {} of memory",
            websocket.memory()
        );
        websocket.says("it has taken nothing for 2s");
        assert!(sent > 1 << 20, "{sent} bytes of pings show nothing");
        websocket.stayed_small();
        websocket.stops();
    }
}

/// A client that pings often and reads late still gets every message.
#[test]
fn slow_reader_pinging_gets_all_messages() {
    for backend in backends() {
        let websocket = start(backend, &[]);
        let mut client = websocket.connect();
        client.write_all(REQUEST.as_bytes()).expect("it takes this");
        let mut late = client.try_clone().expect("a descriptor");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            late.read_exact(&mut byte).expect("an answer");
            head.extend(byte);
        }
        let writer = std::thread::spawn(move || {
            // More pongs than fit into all buffers in between, and a message now and then.
            for number in 0..200_u8 {
                let mut some = frame(9, &[b'p'; 125]).repeat(500);
                some.extend(frame(2, &[number; 100]));
                client.write_all(&some).expect("it takes all of it");
            }
            client
        });
        std::thread::sleep(Duration::from_millis(100));
        let mut messages = 0;
        let mut late = std::io::BufReader::new(late);
        while messages < 200 {
            let mut head = [0; 2];
            late.read_exact(&mut head).expect("a frame");
            let mut bytes = vec![0; head[1].into()];
            late.read_exact(&mut bytes).expect("the rest of it");
            match head[0] {
                0x8a => assert_eq!(bytes, [b'p'; 125], "a pong"),
                0x82 => {
                    assert_eq!(bytes, [messages; 100], "the next message");
                    messages += 1;
                }
                other => panic!("a frame of the kind {other:x}"),
            }
        }
        drop(writer.join().expect("a thread"));
        websocket.stops();
    }
}

//! `websocket`: Python's `websockets`, and a client that gives no sign of life.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use polder::Backend;

use crate::support::*;

fn start(backend: Backend, arguments: &[&str]) -> Server {
    Server::start(env!("CARGO_BIN_EXE_websocket"), backend, arguments)
}

/// `tests/clients/websocket.py`, in one of its ways.
fn python(server: &Server, way: &str) -> Option<Command> {
    let mut python = python_with_websockets()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/websocket.py");
    python.args([script, &format!("ws://{}/", server.address), way]);
    Some(python)
}

#[test]
fn python_gets_back_what_it_sends_from_50_connections_at_once() {
    for backend in backends() {
        let websocket = start(backend, &[]);
        let Some(python) = python(&websocket, "echo") else {
            return;
        };
        assert_eq!(run(python, "").well(), "well\n");
        websocket.stops();
    }
}

#[test]
fn python_is_asked_for_signs_of_life_while_it_is_silent_and_stays() {
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
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
            Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let start = Instant::now();
        client.write_all(request.as_bytes()).expect("it takes this");
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let after = start.elapsed();
        assert!(after >= 2 * TIMEOUT, "on {backend}: {after:?}");
        let text = String::from_utf8_lossy(&answer);
        // The key and its answer are those of RFC 6455, section 1.3.
        assert!(text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{text:?}");
        // A ping of one byte.
        assert!(answer.ends_with(b"\x89\x01?"), "{text:?}");
        websocket.stops();
    }
}

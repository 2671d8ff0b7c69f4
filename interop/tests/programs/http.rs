//! `http`: curl, wrk, and clients that stall.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use polder::Backend;

use crate::support::*;

fn start(backend: Backend, arguments: &[&str]) -> Server {
    Server::start(env!("CARGO_BIN_EXE_http"), backend, arguments)
}

#[test]
fn curl_asks_three_times_over_one_connection() {
    for backend in backends() {
        let Some(mut curl) = curl() else { return };
        let http = start(backend, &[]);
        for _ in 0..3 {
            curl.arg(http.url("/"));
        }
        curl.args(["--write-out", "%{num_connects}\n"]);
        let expected = "hello from polder\n1\nhello from polder\n0\nhello from polder\n0\n";
        assert_eq!(run(curl, "").well(), expected);
        http.stops();
    }
}

/// Curl gets a streamed body of 100 MB byte for byte.
#[test]
fn curl_streamed_body_of_100_mb() {
    for backend in backends() {
        let Some(mut curl) = curl() else { return };
        let http = start(backend, &[]);
        curl.arg(http.url("/bytes/100000000"));
        let (end, err, length) = piped(curl, drop, pattern_length);
        assert!(end.success(), "{end}: {err}");
        assert_eq!(length, 100_000_000);
        http.stayed_small();
        http.stops();
    }
}

#[test]
fn curl_gets_upload_back_while_sending() {
    const SIZE: u64 = 20_000_000;
    for backend in backends() {
        let Some(mut curl) = curl() else { return };
        let http = start(backend, &[]);
        curl.args(["--upload-file", "-", "--request", "POST"]);
        curl.arg(http.url("/echo"));
        let write = |stdin| write_pattern(stdin, SIZE).expect("curl takes it");
        let (end, err, length) = piped(curl, write, pattern_length);
        assert!(end.success(), "{end}: {err}");
        assert_eq!(length, SIZE);
        http.stayed_small();
        http.stops();
    }
}

#[test]
fn wrk_finds_no_errors() {
    for backend in backends() {
        let Some(mut wrk) = client("wrk") else { return };
        let http = start(backend, &[]);
        wrk.args(["--threads", "1", "--connections", "64", "--duration", "2s"]);
        wrk.arg(http.url("/"));
        let said = run(wrk, "").well();
        for bad in ["Socket errors", "Non-2xx"] {
            assert!(!said.contains(bad), "{said}");
        }
        let rate = said
            .lines()
            .find_map(|line| line.strip_prefix("Requests/sec:"));
        let rate: f64 = rate.and_then(|rate| rate.trim().parse().ok()).expect(&said);
        assert!(rate > 100.0, "{said}");
        println!("{backend}: {rate} requests/s");
        http.stops();
    }
}

/// A client that stalls is cut off and others are served meanwhile.
///
/// Each stalls in a different way: nothing sent, half a head, half a body, nothing read, nothing
/// after an answer.
#[test]
fn stalled_client_cut_off_others_served() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let stalls = [
        "",
        "GET / HTTP/1.1\r\nHost: lo",
        "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf",
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    for backend in backends() {
        let http = start(backend, &["--timeout-ms", "1000"]);
        let stalled = stalls.map(|head| {
            let start = Instant::now();
            let mut client = http.connect();
            client.write_all(head.as_bytes()).expect("it takes this");
            (head, client, start)
        });
        let mut deaf = http.connect();
        deaf.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("it takes this");

        let mut other = http.connect();
        other
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("it takes this");
        let mut answer = String::new();
        other
            .read_to_string(&mut answer)
            .expect("an answer, and an end");
        assert!(answer.ends_with("hello from polder\n"), "{answer:?}");

        for (head, client, start) in stalled {
            let after = cut_off(client, start);
            assert!(after >= TIMEOUT, "on {backend}: {after:?} after {head:?}");
        }
        http.says("it has taken nothing for 1s");
        let mut rest = Vec::new();
        // Usually a reset.
        let _ = deaf.read_to_end(&mut rest);
        assert!(rest.len() < 1_000_000_000, "it was all sent");
        http.stops();
    }
}

/// Linux reports room when a third of the buffer for sending is free, here after two seconds.
#[test]
fn a_client_that_reads_slowly_is_not_cut_off() {
    const LENGTH: usize = 20_000_000;
    for backend in backends() {
        let http = start(backend, &["--timeout-ms", "1000"]);
        let mut slow = http.connect();
        write!(slow, "GET /bytes/{LENGTH} HTTP/1.0\r\n\r\n").expect("it takes this");
        let (start, mut read) = (Instant::now(), 0);
        let mut room = [0; 16 * 1024];
        loop {
            match slow.read(&mut room).expect("the answer goes on") {
                0 => break,
                n => read += n,
            }
            if start.elapsed() < Duration::from_secs(4) {
                thread::sleep(Duration::from_millis(20));
            }
        }
        assert!(read > LENGTH, "on {backend}: {read} bytes of {LENGTH}");
        http.stops();
    }
}

/// After Ctrl-C an answer that is on its way is finished and idle connections are closed.
#[test]
fn ctrl_c_finishes_response_closes_idle() {
    for backend in backends() {
        let mut http = start(backend, &[]);
        let mut idle = http.connect();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("it takes this");
        let mut answer = [0; 8];
        idle.read_exact(&mut answer).expect("an answer");
        let mut busy = http.connect();
        busy.write_all(b"GET /bytes/50000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("it takes this");
        let mut head = [0; 8];
        busy.read_exact(&mut head).expect("an answer");

        http.interrupt();
        cut_off(idle, Instant::now());
        let mut rest = Vec::new();
        busy.read_to_end(&mut rest).expect("an end");
        let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let body = &rest[end.expect("a head") + 4..];
        assert_eq!(pattern_length(body), 50_000_000);
        http.ended();
    }
}

/// A stalled download costs the kernel's buffers, and not the data that hyper would like to keep
/// ready.
#[cfg(target_os = "linux")]
#[test]
fn deaf_downloads_cost_little_memory() {
    const CLIENTS: usize = 100;
    for backend in backends() {
        let http = start(backend, &["--timeout-ms", "60000"]);
        let before = http.memory();
        let deaf: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut deaf = http.connect();
                deaf.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    .expect("it takes this");
                // It is being served.
                deaf.read_exact(&mut [0; 8]).expect("an answer");
                deaf
            })
            .collect();
        // Clients served after them are served when nothing more could be sent to them.
        for _ in 0..3 {
            let mut other = http.connect();
            other
                .write_all(b"GET /bytes/10000000 HTTP/1.0\r\n\r\n")
                .expect("it takes this");
            let mut answer = Vec::new();
            other.read_to_end(&mut answer).expect("an answer");
        }
        let each = (http.memory() - before) / CLIENTS;
        println!("{backend}: {each} bytes for each deaf client");
        assert!(each < 64 * 1024, "{each} bytes for each on {backend}");
        drop(deaf);
        http.stops();
    }
}

//! `axum`: curl, a client that stalls, and a stop in the middle of a response.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::support::*;

fn start(backend: polder::Backend, arguments: &[&str]) -> Server {
    Server::start(env!("CARGO_BIN_EXE_axum"), backend, arguments)
}

/// Curl is answered by axum's routes on one connection.
#[test]
fn curl_axum_routes_on_one_connection() {
    for backend in backends() {
        let Some(mut curl) = curl() else { return };
        let axum = start(backend, &[]);
        curl.args(["--write-out", "%{http_code} %{num_connects}\n"]);
        curl.args([axum.url("/"), axum.url("/")]);
        curl.args([axum.url("/hello/W%C3%B6rld"), axum.url("/nothing")]);
        curl.args([axum.url("/sleep?ms=20"), axum.url("/sleep?ms=99999999")]);
        curl.arg(axum.url("/sleep"));
        let expected = "hello from axum on polder: visit 1\n200 1\n\
            hello from axum on polder: visit 2\n200 0\n\
            hello, Wörld\n200 0\n404 0\nslept for 20ms\n200 0\n400 0\n\
            Failed to deserialize query string: missing field `ms`400 0\n";
        assert_eq!(run(curl, "").well(), expected);
        axum.stops();
    }
}

/// Curl gets back what it uploads through an extractor and as a stream.
#[test]
fn curl_upload_by_extractor_and_stream() {
    for backend in backends() {
        let axum = start(backend, &[]);
        let Some(mut curl) = curl() else { return };
        curl.args(["--data-binary", "@-", "-H", "Expect:", &axum.url("/echo")]);
        let write = |stdin| write_pattern(stdin, 20_000_000).expect("curl reads it");
        let (end, err, length) = piped(curl, write, pattern_length);
        assert!(end.success(), "{end}: {err}");
        assert_eq!(length, 20_000_000);

        let mut curl = crate::support::curl().expect("it was there");
        curl.args(["--data-binary", "@-", &axum.url("/length")]);
        assert_eq!(run(curl, &"x".repeat(1_000_000)).well(), "1000000\n");
        axum.stops();
    }
}

/// A client that stalls in the middle of an upload is disconnected.
#[test]
fn stalled_upload_is_cut_off() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    for backend in backends() {
        let axum = start(backend, &["--timeout-ms", "1000"]);
        for head in [
            "GET / HTTP/1.1\r\n",
            "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhello",
        ] {
            let start = Instant::now();
            let mut client = axum.connect();
            client.write_all(head.as_bytes()).expect("it takes this");
            let after = cut_off(client, start);
            assert!(after >= TIMEOUT, "on {backend}: {after:?}");
        }
        axum.stops();
    }
}

#[test]
fn a_response_under_way_is_finished_after_ctrl_c() {
    for backend in backends() {
        let mut axum = start(backend, &[]);
        let mut client = axum.connect();
        let request = "GET /sleep?ms=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        client.write_all(request.as_bytes()).expect("it takes this");
        // The handler runs once the connection has been accepted and the request read; a second
        // connection that is answered came later.
        let mut second = axum.connect();
        second
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("it takes this");
        second.read_to_end(&mut Vec::new()).expect("it is answered");
        axum.interrupt();
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("slept for 1s\n"), "{answer:?}");
        axum.ended();
    }
}

//! `get`: from our own servers and Python's, and from peers that are no HTTP servers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use polder::Backend;

use crate::support::*;

fn get(backend: Backend, url: &str) -> Command {
    let mut get = program(env!("CARGO_BIN_EXE_get"), backend);
    get.arg(url);
    get
}

/// Asserts that it fails, with one line that contains `expected`.
fn fails(command: Command, expected: &str) {
    fails_with(1, command, expected);
}

/// The same, for a usage error.
fn refuses(command: Command, expected: &str) {
    fails_with(2, command, expected);
}

fn fails_with(code: i32, command: Command, expected: &str) {
    let said = run(command, "");
    assert_eq!(said.end.code(), Some(code), "{said:#?}");
    assert_eq!(said.err.lines().count(), 1, "{said:#?}");
    assert!(said.err.contains(expected), "no {expected:?} in {said:#?}");
}

#[test]
fn it_gets_100_mb_byte_for_byte_by_a_name() {
    for backend in backends() {
        let http = Server::start(env!("CARGO_BIN_EXE_http"), backend, &[]);
        let port = http.address.port();
        let get = get(backend, &format!("http://localhost:{port}/bytes/100000000"));
        let (end, err, length) = piped(get, drop, pattern_length);
        assert!(end.success(), "{end}: {err}");
        assert_eq!(length, 100_000_000);
        http.stops();
    }
}

#[test]
fn tls_trusts_only_given_roots() {
    for backend in backends() {
        let (https, certificate) = super::https::start("get", backend, &[]);
        let url = format!("https://localhost:{}/", https.address.port());
        let mut known = get(backend, &url);
        known.args(["--cacert", &certificate]);
        assert_eq!(run(known, "").well(), "hello from polder\n");
        fails(get(backend, &url), "UnknownIssuer");
        https.stops();
    }
}

#[test]
fn it_gets_a_page_of_pythons_server() {
    for backend in backends() {
        let Some(mut python) = client("python3") else {
            return;
        };
        python.args(["-c", include_str!("../clients/serve_once.py")]);
        let (end, err, ()) = piped(python, drop, move |stdout| {
            let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
            let port = lines.next().expect("a port").expect("a line");
            let url = format!("http://127.0.0.1:{port}/some/page?a=b");
            let page = run(get(backend, &url), "").well();
            assert_eq!(page, "this is /some/page?a=b\n");
        });
        assert!(end.success(), "{end}: {err}");
    }
}

#[test]
fn what_cannot_be_had_is_one_line_that_says_why() {
    for backend in backends() {
        let http = Server::start(env!("CARGO_BIN_EXE_http"), backend, &[]);
        fails(get(backend, &http.url("/nothing")), "404 Not Found");
        http.stops();
        for url in [
            "ftp://localhost/",
            "localhost",
            "http://",
            "http://:80/",
            "http:///x",
        ] {
            refuses(get(backend, url), "is no URL");
        }
        for port in ["99999", "65536", "0", "http", "+80", "8O"] {
            let url = format!("http://127.0.0.1:{port}/");
            refuses(get(backend, &url), &format!("{port:?} is no port"));
        }

        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut command = get(backend, &format!("http://{address}/"));
        command.args(["--timeout-ms", "1000"]);
        fails(command, "asking: nothing for 1s");
        let mut command = get(backend, &format!("https://{address}/"));
        command.args(["--timeout-ms", "1000"]);
        fails(command, "TLS: nothing for 1s");

        let (_port, address) = nobody();
        fails(get(backend, &format!("http://{address}/")), "connecting: ");
    }
}

/// When a listener's queue is full, Linux does not answer new connection attempts.
#[cfg(target_os = "linux")]
#[test]
fn it_does_not_wait_for_ever_to_connect() {
    use std::net::TcpStream;
    use std::time::Duration;

    let (listener, address) = nobody();
    listener.listen(0).expect("a short queue");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
    }
    for backend in backends() {
        let mut command = get(backend, &format!("http://{address}/"));
        command.args(["--timeout-ms", "1000"]);
        fails(command, "connecting: ");
    }
}

/// Serves one request with `answer`; returns its head.
fn asked(url: impl Fn(u16) -> String, answer: &str) -> (String, Said) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answer = answer.to_owned();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            head.extend(byte);
        }
        stream.write_all(answer.as_bytes()).expect("it takes this");
        String::from_utf8(head).expect("a head of letters")
    });
    let said = run(get(Backend::default(), &url(port)), "");
    (server.join().expect("a thread"), said)
}

/// User and password are sent as authorization and never in host.
#[test]
fn credentials_in_authorization_not_host() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell";
    // "user:pass word", "user:" and ":x@y:z", in base64.
    let cases = [
        ("user:pass%20word@", "dXNlcjpwYXNzIHdvcmQ="),
        ("user@", "dXNlcjo="),
        (":x%40y:z@", "OnhAeTp6"),
    ];
    for (user, expected) in cases {
        let url = |port| format!("http://{user}127.0.0.1:{port}/page");
        let (head, said) = asked(url, answer);
        assert_eq!(said.well(), "well");
        let head = head.to_ascii_lowercase();
        let expected = format!("authorization: basic {}\r\n", expected.to_ascii_lowercase());
        assert!(head.contains(&expected), "{head}");
        let host = head.lines().find(|line| line.starts_with("host:"));
        let host = host.expect("a host");
        assert!(host.starts_with("host: 127.0.0.1:"), "{host}");
        assert!(head.starts_with("get /page http/1.1\r\n"), "{head}");
    }
    let (head, said) = asked(|port| format!("http://127.0.0.1:{port}/"), answer);
    assert_eq!(said.well(), "well");
    assert!(
        !head.to_ascii_lowercase().contains("authorization"),
        "{head}"
    );

    let refused = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    let (_, said) = asked(
        |port| format!("http://me:secret@127.0.0.1:{port}/"),
        refused,
    );
    assert_eq!(said.end.code(), Some(1), "{said:#?}");
    assert!(said.err.contains("401 Unauthorized"), "{said:#?}");
    assert!(!said.err.contains("secret"), "{said:#?}");
}

/// `get URL | head -c 10`, as with other programs that SIGPIPE ends.
#[test]
fn when_nobody_reads_on_it_ends_quietly() {
    for backend in backends() {
        let http = Server::start(env!("CARGO_BIN_EXE_http"), backend, &[]);
        let get = get(backend, &http.url("/bytes/1000000000"));
        let few = |mut stdout: std::process::ChildStdout| {
            stdout.read_exact(&mut [0; 10]).expect("some bytes");
        };
        let (end, err, ()) = piped(get, drop, few);
        assert!(end.success() && err.is_empty(), "{end}: {err}");
        http.stops();
    }
}

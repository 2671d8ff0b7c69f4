//! `get`: from our own servers and from Python's, and from servers that are none.

use std::net::TcpListener;
use std::process::Command;

use polder::Backend;

use crate::support::*;

fn get(backend: Backend, url: &str) -> Command {
    let mut get = program(env!("CARGO_BIN_EXE_get"), backend);
    get.arg(url);
    get
}

/// It fails, with one line that holds `expected`.
fn fails(command: Command, expected: &str) {
    let said = run(command, "");
    assert_eq!(said.end.code(), Some(1), "{said:#?}");
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
fn over_tls_it_trusts_whom_it_is_told_to_and_nobody_else() {
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
        fails(get(backend, "ftp://localhost/"), "is no URL");

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

/// Where a listener's queue is full, Linux answers nothing to who would connect.
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

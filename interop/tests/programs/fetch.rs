//! `fetch`: a hundred URLs, from a server that answers only when it has as many requests as may be
//! made at once.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use polder::Backend;

use crate::support::*;

fn fetch(backend: Backend) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fetch"));
    command.env("POLDER_BACKEND", backend.name());
    command
}

/// Reads a request; returns its path.
fn request(client: &TcpStream) -> String {
    let mut lines = BufReader::new(client).lines();
    let first = lines.next().expect("a request").expect("a line");
    while !lines.next().expect("its end").expect("a line").is_empty() {}
    first.split(' ').nth(1).expect("a path").to_owned()
}

#[test]
fn it_gets_a_hundred_urls_ten_at_a_time() {
    for backend in Backend::available() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            for _ in 0..10 {
                let ten: Vec<_> = (0..10)
                    .map(|_| listener.accept().expect("a client").0)
                    .collect();
                let paths: Vec<_> = ten.iter().map(request).collect();
                // None is answered yet, so an eleventh would be too many.
                listener.set_nonblocking(true).expect("an option is set");
                assert!(listener.accept().is_err(), "more than ten at once");
                listener.set_nonblocking(false).expect("an option is set");
                for (mut client, path) in ten.into_iter().zip(paths) {
                    let length = path.len();
                    write!(
                        client,
                        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{path}"
                    )
                    .expect("it takes the answer");
                }
            }
        });
        let urls: String = (0..100)
            .map(|n| format!("http://{address}/?{n:02}\n"))
            .collect();
        let said = run(fetch(backend), &urls).well();
        server.join().expect("the server saw ten at a time");
        let lines: BTreeSet<_> = said.lines().collect();
        let expected: Vec<_> = urls.lines().map(|url| format!("4 bytes: {url}")).collect();
        assert!(lines.iter().eq(&expected), "{said}");
    }
}

/// A URL that cannot be fetched is reported with its address; the others are fetched.
#[test]
fn failed_url_named_others_fetched() {
    for backend in Backend::available() {
        let http = Server::start(env!("CARGO_BIN_EXE_http"), backend, &[]);
        let (_kept, nobody) = nobody();
        let good = http.url("/bytes/100000");
        let urls = [
            http.url("/missing"),
            format!("http://{nobody}/"),
            "nonsense of a URL".into(),
            good.clone(),
        ];
        let said = run(fetch(backend), &urls.join("\n")).well();
        assert!(said.contains(&format!("100000 bytes: {good}\n")), "{said}");
        for url in &urls[..3] {
            let line = said
                .lines()
                .find(|line| line.ends_with(&format!(": {url}")));
            let line = line.unwrap_or_else(|| panic!("nothing of {url}: {said}"));
            assert!(!line.contains(" bytes: "), "{line}");
        }
        http.stops();
    }
}

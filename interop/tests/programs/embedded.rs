//! `in_glib` and `in_libuv`: a runtime inside the loop of another library.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use polder::Backend;

use crate::support::*;

/// Returns the number of ticks of the other loop's timer.
fn ticks(client: &mut BufReader<TcpStream>) -> u64 {
    client.get_mut().write_all(b"?\n").expect("it takes a line");
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer in time");
    line.trim_end().parse().expect("a number")
}

fn embeds(binary: &str) {
    for backend in Backend::available() {
        let server = Server::start(binary, backend, &[]);
        let mut clients: Vec<_> = (0..20).map(|_| BufReader::new(server.connect())).collect();
        let first = ticks(&mut clients[0]);
        // Both continue: the other loop's timer ticks, and all clients are answered meanwhile.
        while ticks(&mut clients[0]) < first + 5 {
            for client in &mut clients {
                assert!(ticks(client) >= first, "on {backend}");
            }
        }
        drop(clients);
        server.stops();
    }
}

/// Glibs main loop drives a runtime on every backend.
#[test]
#[cfg(feature = "glib")]
fn glib_drives_runtime_on_every_backend() {
    embeds(env!("CARGO_BIN_EXE_in_glib"));
}

#[test]
#[cfg(feature = "libuv")]
fn libuvs_loop_drives_a_runtime_on_every_backend() {
    embeds(env!("CARGO_BIN_EXE_in_libuv"));
}

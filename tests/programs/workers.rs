//! `workers`: a listener and a store for each worker.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use polder::Backend;

use crate::support::*;

/// Sends a word, and returns the answer.
fn count(client: &mut BufReader<TcpStream>, word: &str) -> u64 {
    let text = format!("{word}\n");
    (client.get_mut().write_all(text.as_bytes())).expect("the server reads");
    let mut line = String::new();
    client.read_line(&mut line).expect("the server answers");
    let number = line.trim_end().parse();
    number.unwrap_or_else(|_| panic!("no number: {line:?}"))
}

/// Sends a word after Ctrl-C. Returns whether it was answered before the grace period ended.
fn goodbye(client: &mut BufReader<TcpStream>) -> bool {
    let mut line = String::new();
    match client.get_mut().write_all(b"goodbye\n") {
        Ok(()) => match client.read_line(&mut line) {
            Ok(0) | Err(_) => false,
            Ok(_) => {
                assert!(
                    line.ends_with('\n') && line.trim_end().parse::<u64>().is_ok_and(|it| it > 0)
                );
                true
            }
        },
        Err(_) => false,
    }
}

/// Clients of one worker share its words and no others.
#[test]
fn worker_clients_share_its_words() {
    const CLIENTS: usize = 40;
    for backend in Backend::available() {
        for workers in [1, 2, 4] {
            let number = workers.to_string();
            let arguments = ["127.0.0.1:0", "--workers", &number];
            let mut command = with_arguments("workers", arguments);
            command.env("POLDER_BACKEND", backend.name());
            let mut program = Program::start(command);
            let with = format!("backend {backend}, workers: {workers}");
            let address = address(&program.line(), &with);
            let mut clients: Vec<_> = (0..CLIENTS)
                .map(|_| BufReader::new(connect(address)))
                .collect();
            // The number of clients that sent the word to the same worker before.
            let counts = clients.iter_mut().map(|client| count(client, "hello"));
            let mut times: HashMap<u64, usize> = HashMap::new();
            for count in counts {
                *times.entry(count).or_default() += 1;
            }
            let reached = times[&1];
            assert!((1..=workers).contains(&reached), "{times:?}");
            // Counts increase by one for each worker, so no count is more frequent than its
            // predecessor.
            for count in 2..=CLIENTS as u64 {
                let before = times[&(count - 1)];
                assert!(
                    times.get(&count).copied().unwrap_or(0) <= before,
                    "{times:?}"
                );
                if !times.contains_key(&count) {
                    break;
                }
            }
            program.interrupt();
            // The clients have a grace period to finish, in which a loaded machine may not reach
            // all.
            for client in &mut clients {
                if !goodbye(client) {
                    break;
                }
            }
            drop(clients);
            let mut accepted = 0;
            for worker in 0..workers {
                let line = program.line();
                let clients = line.strip_prefix(&format!("worker {worker}: "));
                let clients = clients.and_then(|rest| rest.strip_suffix(" clients"));
                let clients = clients.and_then(|clients| clients.parse::<usize>().ok());
                accepted += clients.unwrap_or_else(|| panic!("{line:?}"));
            }
            assert_eq!(accepted, CLIENTS);
            assert_eq!(program.line(), "stopped");
            program.ended_well();
        }
    }
}

/// A line without an end is refused and the server goes on.
#[test]
fn endless_line_refused_server_continues() {
    let mut program = Program::start(with_arguments("workers", ["127.0.0.1:0", "--workers", "1"]));
    let with = format!("backend {}, workers: 1", Backend::default());
    let address = address(&program.line(), &with);
    let mut client = connect(address);
    client.write_all(&[b'x'; 256]).expect("the server reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an end");
    assert_eq!(answer, "that is no word\n");
    assert_eq!(count(&mut BufReader::new(connect(address)), "x"), 1);
    program.stops_on_ctrl_c();
}

/// A wrong argument of workers gets one line that says what it should have been.
#[test]
fn wrong_argument_of_workers_says_format() {
    const USAGE: &str = "usage: workers [ADDR] [--workers N] [--backend NAMES]";
    wrong(
        "workers",
        ["--workers"],
        &["--workers needs a value", USAGE],
    );
    wrong("workers", ["--workers", "0"], &["not \"0\"", USAGE]);
    wrong("workers", ["--workers", "x"], &["not \"x\"", USAGE]);
    wrong(
        "workers",
        ["127.0.0.1:0", "127.0.0.1:1"],
        &["\"127.0.0.1:1\"", USAGE],
    );
    wrong("workers", ["--backend", "fax"], &["\"fax\"", "available: "]);
    fails("workers", ["nowhere"], &["\"nowhere\" is not an address"]);
}

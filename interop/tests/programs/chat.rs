//! `chat`: 200 clients, and one that does not listen.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polder::Backend;

use crate::support::*;

fn start(backend: Backend, arguments: &[&str]) -> Server {
    Server::start(env!("CARGO_BIN_EXE_chat"), backend, arguments)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn enter(chat: &Server, name: &str) -> Client {
        let mut client = Client(BufReader::new(chat.connect()));
        client.say(name);
        client
    }

    fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        let stream = self.0.get_mut();
        stream.write_all(line.as_bytes()).expect("it takes a line");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        assert_eq!(line.pop(), Some('\n'), "the end came after {line:?}");
        line
    }
}

#[test]
fn each_of_200_clients_hears_each_other_one_once_and_in_order() {
    const CLIENTS: usize = 200;
    const ROUNDS: usize = 3;
    for backend in backends() {
        let chat = start(backend, &[]);
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let mut client = Client::enter(&chat, &format!("c{number}"));
            assert_eq!(client.hear(), format!("* {number} others are here"));
            clients.push(client);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            for later in number + 1..CLIENTS {
                assert_eq!(client.hear(), format!("* c{later} is here"));
            }
        }
        for round in 0..ROUNDS {
            for (number, client) in clients.iter_mut().enumerate() {
                match number % 3 {
                    // Two things at once.
                    0 => client.say(&format!("{round}\n{round} again")),
                    _ => client.say(&round.to_string()),
                }
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let mut heard = HashSet::new();
                let others = (0..CLIENTS).filter(|other| *other != number);
                let expected = others.map(|other| 1 + usize::from(other % 3 == 0)).sum();
                for _ in 0..expected {
                    let line = client.hear();
                    if let Some(before) = line.strip_suffix(" again") {
                        assert!(heard.contains(before), "{line:?} came first");
                    }
                    assert!(heard.insert(line.clone()), "{line:?} came twice");
                }
                let now = format!(": {round}");
                assert!(heard.iter().all(|line| line.contains(&now)), "{heard:?}");
            }
        }
        chat.stops();
    }
}

#[test]
fn who_does_not_listen_is_shown_out_and_keeps_nobody_waiting() {
    for backend in backends() {
        let chat = start(backend, &["--timeout-ms", "1000"]);
        let mut deaf = Client::enter(&chat, "deaf");
        deaf.hear();
        let mut speaker = Client::enter(&chat, "speaker");
        let mut listener = Client::enter(&chat, "listener");
        assert_eq!(speaker.hear(), "* 1 others are here");
        assert_eq!(speaker.hear(), "* listener is here");
        assert_eq!(listener.hear(), "* 2 others are here");
        // A line at a time, so that the listener keeps up, and the other takes nothing for too
        // long.
        let long = "x".repeat(4_000);
        let mut lines = 0;
        let left = loop {
            speaker.say(&long);
            match listener.hear() {
                line if line.starts_with("speaker: ") => lines += 1,
                line => break line,
            }
            assert!(lines < 1_000_000, "nobody was shown out");
        };
        assert_eq!(left, "* deaf has left");
        assert_eq!(speaker.hear(), "* deaf has left");
        chat.stops();
    }
}

#[test]
fn many_lines_in_one_packet_reach_everyone_who_reads() {
    const LINES: usize = 1_500;
    for backend in backends() {
        let chat = start(backend, &[]);
        let mut speaker = Client::enter(&chat, "speaker");
        assert_eq!(speaker.hear(), "* 0 others are here");
        let mut readers: Vec<_> = (0..5)
            .map(|number| {
                let mut reader = Client::enter(&chat, &format!("r{number}"));
                reader.hear();
                assert_eq!(speaker.hear(), format!("* r{number} is here"));
                reader
            })
            .collect();
        for (number, reader) in readers.iter_mut().enumerate() {
            for later in number + 1..5 {
                assert_eq!(reader.hear(), format!("* r{later} is here"));
            }
        }
        let lines: Vec<_> = (0..LINES).map(|line| line.to_string()).collect();
        speaker.say(&lines.join("\n"));
        for reader in &mut readers {
            for line in &lines {
                assert_eq!(reader.hear(), format!("speaker: {line}"), "on {backend}");
            }
        }
        chat.stops();
    }
}

/// One that takes a little now and then is not stalled, and still must not hold up the others for
/// good.
#[test]
fn who_reads_too_slowly_does_not_hold_up_the_others() {
    const LINES: usize = 20_000;
    for backend in backends() {
        let chat = start(backend, &["--timeout-ms", "60000"]);
        let mut slow = Client::enter(&chat, "slow");
        slow.hear();
        let mut speaker = Client::enter(&chat, "speaker");
        let mut listener = Client::enter(&chat, "listener");
        assert_eq!(speaker.hear(), "* 1 others are here");
        assert_eq!(speaker.hear(), "* listener is here");
        assert_eq!(listener.hear(), "* 2 others are here");
        // More than what the buffers between and the slow one's queue hold together.
        let long = "x".repeat(4_000);
        let speaking = thread::spawn(move || {
            for _ in 0..LINES {
                speaker.say(&long);
            }
            speaker
        });
        // Some ten lines a second.
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let slow = thread::spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                let _ = slow.0.get_mut().read(&mut [0; 4_000]);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let start = Instant::now();
        let mut lines = 0;
        while lines < LINES {
            match listener.hear() {
                line if line.starts_with("speaker: ") => lines += 1,
                line if line == "* slow has left" => {}
                line => panic!("{line:?} after {lines} lines"),
            }
            assert!(start.elapsed() < LIMIT, "{lines} lines on {backend}");
        }
        drop(speaking.join().expect("a thread"));
        done.store(true, Ordering::Relaxed);
        slow.join().expect("a thread");
        chat.stops();
    }
}

//! `chat`: 200 clients, and one that does not read.

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

    /// Returns the lines before `last`.
    fn hear_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.hear() {
                line if line == last => return lines,
                line => lines.push(line),
            }
        }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        assert_eq!(line.pop(), Some('\n'), "the end came after {line:?}");
        line
    }
}

/// Each of 200 clients hears each other one once and in order.
#[test]
fn each_of_200_clients_hears_all_in_order() {
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
                    // Two lines in one write.
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

/// A client that does not read is disconnected, and delays no other.
#[test]
fn stalled_listener_removed_delays_nobody() {
    for backend in backends() {
        let chat = start(backend, &["--timeout-ms", "1000"]);
        let mut deaf = Client::enter(&chat, "deaf");
        deaf.hear();
        let mut speaker = Client::enter(&chat, "speaker");
        let mut listener = Client::enter(&chat, "listener");
        assert_eq!(speaker.hear(), "* 1 others are here");
        assert_eq!(speaker.hear(), "* listener is here");
        assert_eq!(listener.hear(), "* 2 others are here");
        // A line at a time, so that the listener keeps up, and the other client takes nothing for
        // too long.
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

/// Many lines in one packet reach everyone who reads.
#[test]
fn many_lines_in_one_packet_reach_all() {
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

/// A client that takes a little now and then is not stalled, but must not hold up the others
/// forever.
#[test]
fn slow_reader_delays_nobody() {
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
        // More than the buffers in between and the slow client's queue hold together.
        let long = "x".repeat(4_000);
        let speaking = thread::spawn(move || {
            for _ in 0..LINES {
                speaker.say(&long);
            }
            speaker
        });
        // About ten lines a second.
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

/// Waits until each hears the other, and nothing is in flight between them.
fn acquainted(ann: &mut Client, bob: &mut Client) {
    ann.say("hello");
    bob.hear_until("ann: hello");
    bob.say("hello");
    ann.hear_until("bob: hello");
}

const AWAY: &str = "* the other servers are out of reach";
const BACK: &str = "* the other servers are within reach";

/// Starts a server that shares its room, and has reached the broker.
fn sharing(backend: Backend, broker: &str, arguments: &[&str]) -> Server {
    let mut all = vec!["--broker", broker];
    all.extend(arguments);
    let chat = start(backend, &all);
    chat.says("the broker is reached");
    chat
}

/// Two servers share a room over Redis, and a third has its own.
#[test]
fn two_servers_share_room_over_redis() {
    const LINES: usize = 2_000;
    for backend in backends() {
        let Some(redis) = Redis::start(&format!("chat-{backend}")) else {
            return;
        };
        let (port, path) = (
            redis.address.to_string(),
            redis.socket.display().to_string(),
        );
        let here = sharing(backend, &port, &["--room", "blue"]);
        let there = sharing(backend, &path, &["--room", "blue"]);
        let elsewhere = sharing(backend, &port, &["--room", "red"]);
        let mut ann = Client::enter(&here, "ann");
        assert_eq!(ann.hear(), "* 0 others are here");
        let mut bob = Client::enter(&there, "bob");
        assert_eq!(bob.hear(), "* 0 others are here");
        acquainted(&mut ann, &mut bob);
        let mut eve = Client::enter(&elsewhere, "eve");
        assert_eq!(eve.hear(), "* 0 others are here");
        // A line of no server, which is no reason to end.
        let mut foreign = TcpStream::connect(redis.address).expect("it listens");
        foreign
            .write_all(b"PUBLISH blue nonsense\r\nPUBLISH blue \xff\r\n")
            .expect("it takes this");

        // A repeated line is heard once, and missing lines are reported.
        for number in [7, 7, 6, 9, 9] {
            let command = format!("PUBLISH blue \"f {number} eve: {number}\"\r\n");
            foreign.write_all(command.as_bytes()).expect("it takes it");
        }
        for client in [&mut ann, &mut bob] {
            let lines = [
                "eve: 7",
                "* 1 lines of another server are missing",
                "eve: 9",
            ];
            assert_eq!(lines.map(|_| client.hear()), lines, "on {backend}");
        }

        let speaks = |speaker: &mut Client, name: &str, listener: &mut Client| {
            let lines: Vec<_> = (0..LINES).map(|line| line.to_string()).collect();
            speaker.say(&lines.join("\n"));
            for line in lines {
                assert_eq!(listener.hear(), format!("{name}: {line}"), "on {backend}");
            }
        };
        speaks(&mut ann, "ann", &mut bob);
        speaks(&mut bob, "bob", &mut ann);
        // Lines sent on a server that stops are delivered first.
        here.stops();
        assert_eq!(bob.hear(), "* ann has left");
        elsewhere.stops();
        // Eve, in another room, heard nothing of all that, nor did the others hear her.
        eve.0.read_line(&mut String::new()).expect("an end");
        there.stops();
    }
}

/// A broker that goes away and comes back loses no user.
#[test]
fn broker_restart_loses_no_user() {
    for backend in backends() {
        let Some(mut redis) = Redis::start(&format!("away-{backend}")) else {
            return;
        };
        let path = redis.socket.display().to_string();
        let (here, there) = (sharing(backend, &path, &[]), sharing(backend, &path, &[]));
        let mut ann = Client::enter(&here, "ann");
        assert_eq!(ann.hear(), "* 0 others are here");
        let mut amy = Client::enter(&here, "amy");
        assert_eq!(amy.hear(), "* 1 others are here");
        assert_eq!(ann.hear(), "* amy is here");
        let mut bob = Client::enter(&there, "bob");
        assert_eq!(bob.hear(), "* 0 others are here");
        acquainted(&mut ann, &mut bob);
        amy.hear_until("bob: hello");
        for round in 0..3 {
            redis.kill();
            for client in [&mut ann, &mut amy, &mut bob] {
                assert_eq!(client.hear(), AWAY);
            }
            // Clients of one server still hear each other; the others get the lines later, or are
            // notified.
            ann.say(&format!("{round}: meanwhile"));
            assert_eq!(amy.hear(), format!("ann: {round}: meanwhile"));
            redis.again();
            for client in [&mut ann, &mut amy] {
                assert_eq!(client.hear(), BACK);
            }
            there.says("the broker is reached");
            ann.say(&format!("{round}: again"));
            assert_eq!(amy.hear(), format!("ann: {round}: again"));
            let heard = bob.hear_until(&format!("ann: {round}: again"));
            let late = format!("ann: {round}: meanwhile");
            let missing = "* 1 lines of another server are missing";
            assert_eq!(heard.len(), 2, "{heard:?}");
            assert_eq!(heard[0], BACK);
            assert!([&*late, missing].contains(&&*heard[1]), "{heard:?}");
            bob.say(&format!("{round}: yes"));
            for client in [&mut ann, &mut amy] {
                assert_eq!(client.hear(), format!("bob: {round}: yes"));
            }
        }
        here.stops();
        there.stops();
    }
}

/// A broker that refuses lines stays connected and is told once.
///
/// Redis allows or denies a user to publish (ACL): its refusal is no reason to reconnect
/// repeatedly.
#[test]
fn broker_refusing_lines_told_once() {
    const DEAF: &str = "* the other servers do not hear this one";
    for backend in backends() {
        let Some(redis) = Redis::start(&format!("refusing-{backend}")) else {
            return;
        };
        let address = redis.address.to_string();
        let (here, there) = (
            sharing(backend, &address, &[]),
            sharing(backend, &address, &[]),
        );
        let mut ann = Client::enter(&here, "ann");
        assert_eq!(ann.hear(), "* 0 others are here");
        let mut bob = Client::enter(&there, "bob");
        assert_eq!(bob.hear(), "* 0 others are here");
        acquainted(&mut ann, &mut bob);
        let mut admin = BufReader::new(TcpStream::connect(redis.address).expect("it listens"));
        let mut allow = |what: &str| {
            let command = format!("ACL SETUSER default {what}\r\n");
            (admin.get_mut().write_all(command.as_bytes())).expect("it takes this");
            let mut answer = String::new();
            admin.read_line(&mut answer).expect("an answer");
            assert_eq!(answer, "+OK\r\n");
        };
        allow("-publish");
        ann.say("one");
        assert_eq!(ann.hear(), DEAF);
        here.says("the broker takes no lines: NOPERM");
        ann.say("two");
        // Long enough for it to be asked several times.
        thread::sleep(Duration::from_millis(300));
        allow("+publish");
        // Nothing was lost, and nothing was reported in between.
        assert_eq!(ann.hear(), "* the other servers hear this one again");
        assert_eq!(here.says("the broker"), "the broker takes lines again");
        for line in ["ann: one", "ann: two"] {
            assert_eq!(bob.hear(), line, "on {backend}");
        }
        bob.say("yes");
        assert_eq!(ann.hear(), "bob: yes");
        // A server that stops meanwhile does not wait forever.
        allow("-publish");
        ann.say("three");
        assert_eq!(ann.hear(), DEAF);
        here.stops();
        there.stops();
    }
}

/// A broker that stalls is away and no line comes twice.
///
/// The broker does not end its connections: only its silence shows that it is unreachable. It
/// relays what it was sent when it resumes, and the servers send it again: no client hears a line
/// twice.
#[test]
fn broker_stall_repeats_no_line() {
    for backend in backends() {
        let Some(redis) = Redis::start(&format!("stalled-{backend}")) else {
            return;
        };
        let address = redis.address.to_string();
        let limit = &["--timeout-ms", "1000"][..];
        let (here, there) = (
            sharing(backend, &address, limit),
            sharing(backend, &address, limit),
        );
        let mut ann = Client::enter(&here, "ann");
        assert_eq!(ann.hear(), "* 0 others are here");
        let mut bob = Client::enter(&there, "bob");
        assert_eq!(bob.hear(), "* 0 others are here");
        acquainted(&mut ann, &mut bob);
        redis.signal(libc::SIGSTOP);
        let lines: Vec<_> = (0..50).map(|line| line.to_string()).collect();
        ann.say(&lines.join("\n"));
        assert_eq!(ann.hear(), AWAY);
        assert_eq!(bob.hear(), AWAY);
        redis.signal(libc::SIGCONT);
        assert_eq!(ann.hear(), BACK);
        there.says("the broker is reached");
        ann.say("last");
        let heard = bob.hear_until("ann: last");
        let mut said: Vec<_> = heard
            .iter()
            .filter(|line| line.starts_with("ann: "))
            .collect();
        let before = said.len();
        said.dedup();
        assert_eq!(said.len(), before, "{heard:?}");
        let missing = heard.iter().find_map(|line| {
            let count = line.strip_suffix(" lines of another server are missing")?;
            count.strip_prefix("* ")?.parse::<usize>().ok()
        });
        assert_eq!(before + missing.unwrap_or(0), lines.len(), "{heard:?}");
        here.stops();
        there.stops();
    }
}

/// Without its broker a server serves and goes on trying.
#[test]
fn server_without_broker_keeps_trying() {
    for backend in backends() {
        let (_socket, nobody) = nobody();
        let chat = start(backend, &["--broker", &nobody.to_string()]);
        chat.says("the broker is not reached: ");
        let mut ann = Client::enter(&chat, "ann");
        assert_eq!(ann.hear(), "* 0 others are here");
        let mut amy = Client::enter(&chat, "amy");
        assert_eq!(amy.hear(), "* 1 others are here");
        assert_eq!(ann.hear(), "* amy is here");
        // More than the queue for the broker holds: no client waits for it.
        let lines: Vec<_> = (0..3_000).map(|line| line.to_string()).collect();
        ann.say(&lines.join("\n"));
        for line in &lines {
            assert_eq!(amy.hear(), format!("ann: {line}"));
        }
        chat.stops();
    }
}

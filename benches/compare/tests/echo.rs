//! Every server on every load, and every reader of files, for a moment each: checks that what is
//! measured works.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const COMPARE: &str = env!("CARGO_BIN_EXE_compare");

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the workloads of a group, each with its programs.
fn list(group: &str) -> Vec<(String, Vec<String>)> {
    let output = Command::new(COMPARE).arg("list").output();
    let said = String::from_utf8(output.expect("it starts").stdout).expect("it is text");
    (said.lines())
        .filter_map(|line| line.strip_prefix(group)?.split_once(": "))
        .map(|(name, programs)| {
            let programs = programs.split(' ').map(String::from).collect();
            (name.to_string(), programs)
        })
        .collect()
}

#[test]
fn every_server_answers_every_load_right() {
    for group in ["echo", "http", "light", "redis", "proxy", "udp", "files"] {
        for (workload, programs) in list(&format!("{group} ")) {
            for program in programs {
                measured(group, &workload, &program);
            }
        }
    }
}

fn measured(group: &str, workload: &str, program: &str) {
    let output = Command::new(COMPARE)
        .args(["measure", group, workload, program, "--millis", "20"])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("measured ") && !last.contains("NaN") || last.starts_with("skipped "),
        "{group} {workload} {program}: {}: {last} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{group} {workload} {program}: {last}");
}

/// A reader that starts late gets all bytes, and the server ends when its input does.
///
/// Sends more than all buffers hold before anything is read; then the end of the stream.
#[test]
fn late_reader_gets_all_and_server_ends_at_eof() {
    let message: Vec<u8> = (0..16 << 20)
        .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for program in &list("echo ")[0].1 {
        let mut server = Command::new(COMPARE)
            .args(["serve", program, "4096"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdin = server.stdin.take();
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("it was asked for"))
            .read_line(&mut line)
            .expect("it says something");
        match line.trim_end().strip_prefix("port ") {
            Some(port) => {
                let port: u16 = port.parse().expect("a port is a number");
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("it has one");
                let mut other = stream.try_clone().expect("there are descriptors left");
                let answer = thread::scope(|scope| {
                    scope.spawn(|| {
                        other.write_all(&message).expect("the server reads");
                        other.shutdown(Shutdown::Write).expect("it is connected");
                    });
                    // Until everything is full; a shorter wait only makes the test easier.
                    thread::sleep(Duration::from_millis(100));
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).expect("the server writes");
                    answer
                });
                assert!(answer == message, "{program} sent something else back");
            }
            None => assert!(line.starts_with("skipped "), "{program}: {line}"),
        }
        drop(stdin);
        let status = server.wait().expect("nobody else waits for it");
        assert!(status.success(), "{program}: {status}");
    }
}

//! polder-top and a running program: the example `program`, which is built with the tests.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use polder_top::feed::Feed;
use polder_top::line::Line;

const LIMIT: Duration = Duration::from_secs(60);

/// A program with a socket, which is killed at the end of the test.
struct Watched {
    child: Child,
    socket: PathBuf,
}

impl Watched {
    fn new(name: &str) -> Watched {
        // Next to the folder of the tests.
        let mut folder = std::env::current_exe().unwrap();
        folder.pop();
        folder.pop();
        let socket = format!("polder-top-{name}-{}", std::process::id());
        let socket = std::env::temp_dir().join(socket);
        let child = Command::new(folder.join("examples/program"))
            .env("POLDER_TOP", &socket)
            .stdin(Stdio::null())
            .spawn()
            .expect("cargo test has built it");
        let start = Instant::now();
        while Feed::connect(&socket).is_err() {
            assert!(start.elapsed() < LIMIT, "nobody listens");
            std::thread::sleep(Duration::from_millis(1));
        }
        Watched { child, socket }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn polder_top(arguments: &[&str], path: Option<&Path>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_polder-top"))
        .args(arguments)
        .args(path)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn once_prints_what_a_program_does_and_ends() {
    let watched = Watched::new("once");
    let process = format!("program  process {}, up ", watched.child.id());
    let parts = [
        &process,
        "polls ",
        "worker 2",
        "\"acceptor\" crates/polder-top/examples/program.rs:",
        "reads TCP",
    ];
    let start = Instant::now();
    let text = loop {
        let output = polder_top(&["--once", "--width", "150"], Some(&watched.socket));
        let (text, error) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert!(output.status.success(), "{error}");
        // It may only have begun, and a worker that is held up is not told of.
        let Some(part) = parts.iter().find(|part| !text.contains(**part)) else {
            break text;
        };
        assert!(start.elapsed() < LIMIT, "there is no {part}:\n{text}");
    };
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 150),
        "{text}"
    );
}

/// Lines of a program are read and those after the first have differences.
#[test]
fn lines_read_later_ones_have_differences() {
    let watched = Watched::new("lines");
    let start = Instant::now();
    let (mut feed, first) = loop {
        let mut feed = Feed::connect(&watched.socket).unwrap();
        let mut first = feed.next_line().unwrap();
        // The socket is there a moment before the runtime.
        while first.runtimes.is_empty() {
            first = feed.next_line().unwrap();
        }
        if first.runtimes[0].within.is_none() {
            break (feed, first);
        }
        // There was a line for the connection by which the socket was found.
        assert!(start.elapsed() < LIMIT, "it forgets nothing");
        drop(feed);
        std::thread::sleep(Duration::from_secs(3));
    };
    let mut second = feed.next_line().unwrap();
    assert_eq!(first.process, u64::from(watched.child.id()));
    assert!(second.uptime > first.uptime);
    assert!(second.runtimes[0].within.unwrap() > 0.0);
    // It may only have begun, and a worker that is held up is not told of.
    let has_all = |line: &Line| {
        let (groups, workers) = (&line.runtimes[0].groups, &line.runtimes[0].workers);
        let place = "crates/polder-top/examples/program.rs:";
        groups
            .iter()
            .any(|it| it.spawned_at.as_str().starts_with(place))
            && groups.iter().any(|it| it.block_on)
            && groups.iter().any(|it| it.recent_polls > Some(0))
            && (workers.iter()).all(|it| it.metrics.poll_seconds.counts.len() == 22)
    };
    while !has_all(&second) {
        assert!(start.elapsed() < LIMIT, "a part is missing: {second:?}");
        second = feed.next_line().unwrap();
    }
}

/// Each failure has a message and its own exit status.
#[test]
fn failures_have_message_and_status() {
    let nothing = std::env::temp_dir().join("polder-top-nothing");
    for (arguments, path, status, words) in [
        (&[][..], None, 2, "which program"),
        (&["--fast"], Some(&*nothing), 2, "--fast"),
        (&["--once"], Some(&*nothing), 1, "POLDER_TOP"),
        (&[], Some(&*nothing), 1, "--once prints text"),
    ] {
        let output = polder_top(arguments, path);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(
            said.starts_with("polder-top: ") && said.contains(words),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
    let help = polder_top(&["--help"], None);
    assert!(help.status.success());
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("Usage: polder-top")
    );
}

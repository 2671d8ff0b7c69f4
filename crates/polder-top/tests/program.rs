//! polder-top and a running program: the example `program`, which is built with the tests.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use polder_top::feed::Feed;

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
    let output = polder_top(&["--once", "--width", "150"], Some(&watched.socket));
    let (text, error) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success(), "{error}");
    let process = format!("program  process {}, up ", watched.child.id());
    for part in [
        &process,
        "polls ",
        "worker 2",
        "\"acceptor\" crates/polder-top/examples/program.rs:",
        "reads TCP",
    ] {
        assert!(text.contains(part), "there is no {part}:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 150),
        "{text}"
    );
}

#[test]
fn lines_of_a_program_are_read_and_those_after_the_first_have_differences() {
    let watched = Watched::new("lines");
    let mut feed = Feed::connect(&watched.socket).unwrap();
    let mut first = feed.next_line().unwrap();
    // The socket is there a moment before the runtime.
    while first.runtimes.is_empty() {
        first = feed.next_line().unwrap();
    }
    let second = feed.next_line().unwrap();
    assert_eq!(first.process, u64::from(watched.child.id()));
    assert!(second.uptime > first.uptime);
    assert!(first.runtimes[0].within.is_none());
    assert!(second.runtimes[0].within.unwrap() > 0.0);
    let runtime = &second.runtimes[0];
    let places = runtime.groups.iter().map(|it| it.spawned_at.as_str());
    assert!(
        places
            .clone()
            .any(|it| it.starts_with("crates/polder-top/examples/program.rs:"))
    );
    assert!(runtime.groups.iter().any(|it| it.block_on));
    let polls: u64 = runtime.groups.iter().filter_map(|it| it.recent_polls).sum();
    assert!(polls > 0);
    assert!(
        runtime
            .workers
            .iter()
            .all(|it| it.metrics.poll_seconds.counts.len() == 22)
    );
}

#[test]
fn what_cannot_be_done_is_said_with_a_status_of_its_own() {
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

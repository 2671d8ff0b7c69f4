//! Tapes in a temporary directory, and clients.

use std::fmt::Debug;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// How often a recorded run is replayed.
pub const REPLAYS: usize = 20;

pub struct Tape {
    _dir: TempDir,
    pub path: PathBuf,
}

impl Tape {
    pub fn new() -> Tape {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("tape");
        Tape { _dir: dir, path }
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// The listing.
    pub fn listed(&self) -> String {
        let mut text = Vec::new();
        polder_replay::show(&self.path, None, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// The page.
    pub fn page(&self) -> String {
        let mut html = Vec::new();
        polder_replay::page(&self.path, None, &mut html).unwrap();
        String::from_utf8(html).unwrap()
    }
}

/// Records `program`, and asserts that each replay returns the same.
pub fn record_and_replay<T, F>(program: impl Fn(bool) -> F) -> (Tape, T)
where
    T: Debug + PartialEq,
    F: Future<Output = T> + 'static,
{
    let tape = Tape::new();
    let recorded = polder_replay::record(&tape.path, program(true)).unwrap();
    for _ in 0..REPLAYS {
        let replayed = polder_replay::replay(&tape.path, program(false)).unwrap();
        assert_eq!(replayed, recorded);
    }
    (tape, recorded)
}

/// Threads that send and expect an echo: `count` clients with so many messages each. They end.
pub fn start_clients(address: SocketAddr, count: usize, messages: usize) {
    for client in 0..count {
        thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            for message in 0..messages {
                let sent =
                    vec![(client * 31 + message) as u8; 1 + (client * 7 + message * 13) % 300];
                stream.write_all(&sent).unwrap();
                let mut got = vec![0; sent.len()];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, sent);
                if message % 50 == client {
                    thread::sleep(Duration::from_millis(3));
                }
            }
        });
    }
}

/// Runs this test program again, with only the test `name`, which finds the tape's path in the
/// environment. Returns what it has printed between two lines.
pub fn in_another_process(name: &str, tape: &Path) -> String {
    with_variable(name, "REPLAYED_TAPE", tape)
}

/// The same, with the path in a variable of this name.
pub fn with_variable(name: &str, variable: &str, tape: &Path) -> String {
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(variable, tape)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let between = text
        .split("<<<")
        .nth(1)
        .and_then(|rest| rest.split(">>>").next());
    between
        .unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        .to_owned()
}

//! `polder_replay::test!`, in a child process: the tape of a failure is kept, and its command
//! replays the failure.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the test in the child does; without the variable it does nothing.
const VARIABLE: &str = "RECORDED_TEST";

mod child {
    use std::time::Duration;

    polder_replay::test! {
        limit = Duration::from_millis(700);

        async fn passes_or_not() -> Result<(), Duration> {
            let start = polder::time::now();
            polder::time::sleep(Duration::from_millis(2)).await;
            let took = polder::time::now() - start;
            let what = std::env::var(super::VARIABLE).unwrap_or_default();
            match &*what {
                "fails" => return Err(took),
                "panics" => panic!("it took {took:?}"),
                "hangs" => polder::event::Event::new().wait().await,
                // In the tenth of a second before its limit, without a turn.
                "blocks" => loop {
                    let _ = polder::time::now();
                    std::thread::sleep(Duration::from_millis(5));
                },
                _ => {}
            }
            Ok(())
        }
    }
}

fn run(command: &mut Command, what: &str) -> (Output, String) {
    let output = command.env(VARIABLE, what).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

/// Runs the test in a child. Its output has the command, and this returns the tape in it too.
fn fails(what: &str) -> (String, Command, PathBuf) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child::passes_or_not", "--nocapture"]);
    let (output, said) = run(&mut child, what);
    assert!(!output.status.success(), "{said}");
    let found = said.lines().find(|line| line.contains("POLDER_REPLAY="));
    let command = found
        .unwrap_or_else(|| panic!("no command in {said}"))
        .trim();
    let tape = PathBuf::from(command.split('"').nth(1).unwrap());
    assert!(
        tape.is_file() && tape.ends_with("polder/recorded_test-child-passes_or_not.tape"),
        "{tape:?}"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    (said, shell, tape)
}

fn recordings(tape: &Path) -> usize {
    let names = std::fs::read_dir(tape.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("recorded_test-child-passes_or_not."))
        .count()
}

/// The nanoseconds of the failure are those of the recording.
fn failure_of<'a>(said: &'a str, words: &str) -> &'a str {
    let found = said.lines().find(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("no {words:?} in {said}"))
}

/// All in one test, since there is one tape.
#[test]
fn tape_of_a_failure_is_kept_and_replayed() {
    let mut tape = PathBuf::new();
    for (what, words) in [
        ("fails", "the test returned an error: "),
        ("panics", "it took "),
    ] {
        let (said, mut command, path) = fails(what);
        for _ in 0..5 {
            let (output, again) = run(&mut command, what);
            assert!(!output.status.success(), "{again}");
            assert_eq!(failure_of(&again, words), failure_of(&said, words));
            assert!(!again.contains("POLDER_REPLAY="), "{again}");
        }
        tape = path;
    }

    // A replay of a test that hung ends where the tape does, and says what is waited for.
    let (said, mut command, _) = fails("hangs");
    failure_of(&said, "child::passes_or_not: not done after 700ms");
    let (output, again) = run(&mut command, "hangs");
    assert!(!output.status.success(), "{again}");
    failure_of(&again, "the tape ends here: the recording was cut off");
    failure_of(&again, "waits: event");

    // One that blocks its thread leaves what it did until its limit.
    let (_, _, path) = fails("blocks");
    let mut listed = Vec::new();
    polder_replay::show(&path, None, &mut listed).unwrap();
    let listed = String::from_utf8(listed).unwrap();
    let last = listed
        .lines()
        .rfind(|line| line.contains("reading the clock: "));
    let seconds: f64 = last
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(seconds > 0.65, "{listed}");

    // A backend that is unknown is not taken for the default.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child::passes_or_not", "--nocapture"]);
    let (output, said) = run(child.env("POLDER_BACKEND", "epol"), "passes");
    assert!(!output.status.success(), "{said}");
    failure_of(&said, "child::passes_or_not: POLDER_BACKEND: ");

    // One that passes leaves nothing, and the last failure's tape.
    assert_eq!(recordings(&tape), 1);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child::passes_or_not", "--nocapture"]);
    std::fs::remove_file(&tape).unwrap();
    let (output, said) = run(&mut child, "passes");
    assert!(output.status.success(), "{said}");
    assert_eq!(recordings(&tape), 0);
}

//! The command, and a program that is recorded and replayed by variables of the environment.

#![cfg(unix)]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Not a test of its own: the program that the test below starts, with its path in a variable.
#[test]
fn program() {
    if std::env::var_os("IS_PROGRAM").is_none() {
        return;
    }
    let elapsed = polder_replay::run(async {
        let start = polder::time::now();
        polder::time::sleep(Duration::from_millis(2)).await;
        polder::time::now() - start
    });
    println!("<<<{elapsed:?}>>>");
}

/// Not a test of its own: the program that hangs soon after its start.
#[test]
fn hanging_program() {
    if std::env::var_os("HANGS").is_none() {
        return;
    }
    let _ = polder_replay::run(async {
        polder::time::sleep(Duration::from_millis(5)).await;
        println!("<<<it hangs>>>");
        std::future::pending::<()>().await;
    });
}

/// A process that hangs, and is killed later, has left the entries from before.
#[test]
fn run_that_hangs_is_on_the_tape() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::TempDir::new().unwrap();
    let tape = dir.path().join("tape");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hanging_program", "--nocapture"])
        .env("HANGS", "1")
        .env("POLDER_RECORD", &tape)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let hangs = output.lines().any(|line| line.unwrap().contains("<<<"));
    assert!(hangs);
    // The recorder hands over after a tenth of a second.
    let mut text = String::new();
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(100));
        let mut listed = Vec::new();
        polder_replay::show(&tape, None, &mut listed).unwrap();
        text = String::from_utf8(listed).unwrap();
        if text.contains("reading the clock") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(text.contains("reading the clock"), "{text}");
}

fn start(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "program", "--nocapture"]);
    let output = command
        .env("IS_PROGRAM", "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let between = text
        .split("<<<")
        .nth(1)
        .and_then(|rest| rest.split(">>>").next());
    between.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn environment_records_and_replays_and_command_lists() {
    let dir = tempfile::TempDir::new().unwrap();
    let tape = dir.path().join("tape");
    let path = tape.to_str().unwrap();
    assert!(start(&[]).starts_with("Ok("));
    let recorded = start(&[("POLDER_RECORD", path)]);
    assert!(recorded.starts_with("Ok("), "{recorded}");
    for _ in 0..5 {
        assert_eq!(start(&[("POLDER_REPLAY", path)]), recorded);
    }
    let stopped = start(&[("POLDER_REPLAY", path), ("POLDER_REPLAY_UNTIL", "2")]);
    assert!(stopped.contains("the replay was to stop here"), "{stopped}");
    let both = start(&[("POLDER_REPLAY", path), ("POLDER_RECORD", path)]);
    assert!(both.contains("exclude each other"), "{both}");

    let show = |arguments: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polder-replay"));
        command.args(arguments).output().unwrap()
    };
    let listed = show(&["show", path]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.status.success() && text.contains("the future returned"),
        "{text}"
    );
    let listed = show(&["show", path, "--until", "1"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("the list was to stop here"), "{text}");
    let page = show(&["show", "--page", path]);
    let html = String::from_utf8(page.stdout).unwrap();
    assert!(
        html.contains("the future returned") && html.contains("type=\"range\""),
        "{html}"
    );
    assert_eq!(show(&["show"]).status.code(), Some(2));
    let missing = show(&["show", "/nowhere"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        String::from_utf8(missing.stderr)
            .unwrap()
            .contains("/nowhere")
    );
}

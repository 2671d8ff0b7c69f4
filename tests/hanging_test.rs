//! A test of `polder::test!` that hangs, in a child process: it fails, and reports what it waits
//! for.

use std::process::Command;
use std::time::{Duration, Instant};

/// Enables the test that hangs, in the child; without the variable that test does nothing.
const VARIABLE: &str = "POLDER_TEST_HANGS";

const LIMIT: Duration = Duration::from_secs(60);

mod child {
    use std::time::Duration;

    polder::test! {
        limit = Duration::from_secs(1);

        async fn hangs() {
            if std::env::var_os(super::VARIABLE).is_some() {
                let event = polder::event::Event::new();
                polder::task::Builder::new().name("sleeps").spawn(polder::time::sleep(Duration::MAX / 2)).detach();
                event.wait().await;
            }
        }
    }
}

/// On a busy machine a single dump may find the worker unresponsive, so the child gets several
/// chances.
#[test]
fn a_test_that_hangs_says_what_it_waits_for() {
    let start = Instant::now();
    loop {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child::hangs", "--nocapture"]);
        let output = child.env(VARIABLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("not done after 1s"), "{said}");
        let whats = [
            "block_on, called at tests/hanging_test.rs",
            "event 0x",
            "\"sleeps\"",
        ];
        match whats.into_iter().find(|what| !said.contains(what)) {
            None => return,
            Some(what) => assert!(start.elapsed() < LIMIT, "no {what:?} in {said}"),
        }
    }
}

//! What is said of a run that fails: its faults, by number, and how it is run again without some.

use std::process::Command;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::sim::{self, Sim};
use polder::time::sleep;

use super::{ms, secs};

/// The variable that makes this program run the check of a test below, which fails.
const INNER: &str = "POLDER_TEST_INNER";

/// Runs one test of this program in another process, with these variables, and returns whether it
/// passes, with all that it prints.
pub(super) fn in_a_process(name: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INNER, "1")
        .env("CARGO_TARGET_TMPDIR", env!("CARGO_TARGET_TMPDIR"))
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

pub(super) fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

async fn answer() {
    let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        polder::spawn(async move {
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                if stream.write_all(&byte).await.is_err() {
                    break;
                }
            }
        })
        .detach();
    }
}

/// Fails if a loss delays an answer.
async fn no_delay(sim: Sim) {
    sim.host("server").start(answer);
    sleep(ms(1)).await;
    let mut stream = TcpStream::connect("server:1").await.unwrap();
    sim.links().loss(0.05);
    for _ in 0..20 {
        let start = sim.now();
        stream.write_all(b"x").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        assert!(sim.now() - start < ms(100), "an answer is late");
    }
}

#[test]
fn faults_have_numbers_and_are_left_out_by_them() {
    let name = "failing::faults_have_numbers_and_are_left_out_by_them";
    if is_inner() {
        return sim::check(0..10, no_delay);
    }
    let first = (0..10).find(|seed| sim::run(*seed, no_delay).failure.is_some());
    let seed = first.expect("a seed loses a segment");
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes, "{text}");
    assert!(text.contains(&format!("seed {seed:#x} failed")), "{text}");
    assert!(text.contains("loss of "), "{text}");
    // The full run ends where it fails, and has so many faults until then.
    let failure = sim::run(seed, no_delay).failure.unwrap();
    let line = failure.lines().nth(1).unwrap();
    let count: usize = line.split_whitespace().next().unwrap().parse().unwrap();
    let all = format!("{seed:#x}:-1..{count}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM", &all)]);
    assert!(passes, "without any fault it passes: {text}");
    // Without those before the last one it fails still, and says how.
    let but_one = format!("{seed:#x}:");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM", &but_one)]);
    assert!(!passes, "{text}");
    let replay = format!("replay: POLDER_SIM={but_one} cargo test {name}");
    assert!(text.contains(&replay), "{text}");
}

#[test]
fn what_is_left_out_must_be_there_and_be_said_clearly() {
    let name = "failing::what_is_left_out_must_be_there_and_be_said_clearly";
    if is_inner() {
        return sim::check(0..10, no_delay);
    }
    let (passes, text) = in_a_process(name, &[("POLDER_SIM", "0x1:-1..9999")]);
    assert!(!passes && text.contains("leaves out fault 9999"), "{text}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM", "what")]);
    assert!(!passes && text.contains("not \"what\""), "{text}");
}

#[test]
fn a_loss_that_is_certain_and_a_cut_by_hand_are_no_faults_by_chance() {
    let report = sim::run(5, |sim| async move {
        sim.host("server").start(answer);
        sleep(ms(1)).await;
        sim.link("test", "server").loss(1.0);
        let cut = sim.cut(&["test"], &["server"]);
        let limit = secs(20);
        let late = TcpStream::connect_timeout("server:1", limit).await;
        drop(cut);
        assert!(late.is_ok(), "nothing came through");
    });
    let failure = report.failure.unwrap();
    assert!(failure.contains("nothing came through"), "{failure}");
    assert!(!failure.contains("fault"), "{failure}");
}

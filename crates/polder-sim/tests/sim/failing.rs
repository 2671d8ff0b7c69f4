//! The report of a failing run: its faults, by number, and how to run it again without some.

use std::ffi::OsStr;
use std::panic::{UnwindSafe, catch_unwind};
use std::process::Command;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;
use polder_sim::Sim;

use super::{ms, secs};

/// The variable that makes this program run the check of a test below, which fails.
const INNER: &str = "POLDER_TEST_INNER";

/// Runs one test of this program in another process, with these variables. Returns whether it
/// passes, and all its output.
pub(super) fn in_a_process(name: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| (*name, OsStr::new(*value)));
    in_a_process_with(name, &variables.collect::<Vec<_>>())
}

fn in_a_process_with(name: &str, variables: &[(&str, &OsStr)]) -> (bool, String) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    for variable in [
        "SEED",
        "SEEDS",
        "SEED_FROM",
        "SIM",
        "SIM_CHECK",
        "SIM_CORPUS",
        "SIM_DIFF",
        "SIM_EXPLORE",
        "SIM_JOBS",
        "SIM_LOG",
        "SIM_STUCK",
        "SIM_UNTIL",
    ] {
        program.env_remove(format!("POLDER_{variable}"));
    }
    let output = program
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

/// Returns the message of a failing check.
pub(super) fn failure(check: impl Fn() + UnwindSafe) -> String {
    let panic = catch_unwind(check).expect_err("it fails");
    *panic.downcast::<String>().expect("words")
}

/// Asserts that a text contains all of these parts.
pub(super) fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Returns the value of `POLDER_SIM_REPLAY` in the line of a report that begins with `replay:`, or
/// with `shrunk:`.
pub(super) fn variable<'a>(report: &'a str, which: &str) -> &'a str {
    let begin = format!("  {which}: POLDER_SIM_REPLAY=");
    let line = report.lines().find_map(|line| line.strip_prefix(&begin));
    let line = line.unwrap_or_else(|| panic!("there is no {which}: {report}"));
    line.split_once(' ').expect("a command follows").0
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
        return polder_sim::check(0..10, no_delay);
    }
    let first = (0..10).find(|seed| polder_sim::run(*seed, no_delay).failure.is_some());
    let seed = first.expect("a seed loses a segment");
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes, "{text}");
    assert!(text.contains(&format!("seed {seed:#x} failed")), "{text}");
    assert!(text.contains("loss of "), "{text}");
    // The full run ends at the failure; its report counts the faults until then.
    let failure = polder_sim::run(seed, no_delay).failure.unwrap();
    let line = failure.lines().nth(1).unwrap();
    let count: usize = line.split_whitespace().next().unwrap().parse().unwrap();
    let all = format!("{seed:#x}:-1..{count}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", &all)]);
    assert!(passes, "without any fault it passes: {text}");
    // With no fault left out it still fails, and reports how to replay that.
    let but_one = format!("{seed:#x}:");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", &but_one)]);
    assert!(!passes, "{text}");
    let replay = format!("replay: POLDER_SIM_REPLAY={but_one} cargo test {name}");
    assert!(text.contains(&replay), "{text}");
}

/// A fault that is excluded must exist; the error says which one does not.
#[test]
fn excluded_faults_must_exist() {
    let name = "failing::excluded_faults_must_exist";
    if is_inner() {
        return polder_sim::check(0..10, no_delay);
    }
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", "0x1:-1..9999")]);
    assert!(!passes && text.contains("leaves out fault 9999"), "{text}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", "what")]);
    assert!(!passes && text.contains("not \"what\""), "{text}");
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf_8_is_malformed() {
    use std::os::unix::ffi::OsStrExt;

    let name = "failing::a_variable_that_is_not_utf_8_is_malformed";
    if is_inner() {
        return polder_sim::check(0..1, |_| async {});
    }
    let value = OsStr::from_bytes(b"7\xff");
    let (passes, text) = in_a_process_with(name, &[("POLDER_SIM_SEED", value)]);
    assert!(!passes, "{text}");
    assert_contains(&text, &["POLDER_SIM_SEED is a number: not \"7\\xFF\""]);
}

/// A check in a world takes no seeds from variables.
#[test]
fn nested_check_ignores_seed_variables() {
    let name = "failing::nested_check_ignores_seed_variables";
    if is_inner() {
        return polder_sim::check(0..1, |_| async {
            polder_sim::check(3..5, |sim| async move { println!("inner {}", sim.seed()) });
        });
    }
    for variables in [
        &[("POLDER_SIM_SEED", "7")][..],
        &[("POLDER_SIM_REPLAY", "7:")],
        &[("POLDER_SIM_RUNS", "1"), ("POLDER_SIM_FIRST_SEED", "7")],
    ] {
        let (passes, text) = in_a_process(name, variables);
        assert!(passes && !text.contains("inner 7"), "{text}");
        assert_contains(&text, &["inner 3", "inner 4"]);
    }
}

/// A loss that is certain and a cut by hand are no faults by chance.
#[test]
fn certain_loss_and_manual_cut_are_no_chance() {
    let report = polder_sim::run(5, |sim| async move {
        sim.host("server").start(answer);
        sleep(ms(1)).await;
        sim.link("test", "server").loss(1.0);
        let limit = secs(20);
        let lost = TcpStream::connect_timeout("server:1", limit).await;
        sim.link("test", "server").loss(0.0);
        let cut = sim.cut(&["test"], &["server"]);
        let late = TcpStream::connect_timeout("server:1", limit).await;
        drop(cut);
        assert!(lost.is_ok() || late.is_ok(), "nothing came through");
    });
    let failure = report.failure.unwrap();
    assert!(failure.contains("nothing came through"), "{failure}");
    assert!(!failure.contains("fault"), "{failure}");
}

/// Fails after two simultaneous cuts, of which neither suffices, in a world with many other faults.
async fn fails_by_two_cuts(sim: Sim) {
    sim.host("a").start(answer);
    sim.host("b").start(answer);
    sim.chaos(secs(15)).cuts().pauses().loss();
    let mut late = 0;
    while sim.now() < secs(15) {
        let mut is_late = true;
        for address in ["a:1", "b:1"] {
            let there = TcpStream::connect_timeout(address, ms(900)).await;
            is_late &= there.is_err();
        }
        late += u32::from(is_late);
        assert!(late < 2, "neither of them was there, twice");
        sleep(ms(300)).await;
    }
}

/// A failure is shrunk to the faults that it needs.
#[test]
fn failure_shrunk_to_needed_faults() {
    let name = "failing::failure_shrunk_to_needed_faults";
    if is_inner() {
        return polder_sim::check(10..60, fails_by_two_cuts);
    }
    let (passes, text) = in_a_process(name, &[]);
    assert!(
        !passes && text.contains("neither of them was there"),
        "{text}"
    );
    let line = text.lines().find(|it| it.contains(" of them needed: "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let (all, needed): (u32, u32) = (words[0].parse().unwrap(), words[2].parse().unwrap());
    // (On a slow machine the time may run out before the minimum is reached.)
    assert!(1 <= needed && needed < all, "{line}");
    // The shrunk run fails with these faults alone.
    let again = variable(&text, "shrunk").to_owned();
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", &again)]);
    assert!(
        !passes && text.contains("neither of them was there"),
        "{text}"
    );
    assert!(text.contains(&format!("  {needed} fault")), "{text}");
    // No further fault can be left out.
    assert!(
        text.contains(&format!("replay: POLDER_SIM_REPLAY={again}")),
        "{text}"
    );
}

#[test]
fn a_failure_that_needs_no_fault_says_so() {
    let name = "failing::a_failure_that_needs_no_fault_says_so";
    if is_inner() {
        return polder_sim::check(3..4, |sim| async move {
            no_delay_by_chance(sim).await;
            panic_on_purpose();
        });
    }
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes && text.contains("none of them needed"), "{text}");
    // The panic is printed by the first two runs, and not by those that shrink.
    let printed = text.matches("on purpose once more").count();
    assert!(printed <= 5, "{printed} times: {text}");
}

fn panic_on_purpose() {
    panic!("on purpose once more");
}

async fn no_delay_by_chance(sim: Sim) {
    sim.host("server").start(answer);
    sim.links().loss(0.3);
    for _ in 0..20 {
        let _ = TcpStream::connect_timeout("server:1", secs(1)).await;
    }
}

#[test]
fn seeds_begin_where_they_are_told_to() {
    let name = "failing::seeds_begin_where_they_are_told_to";
    if is_inner() {
        return polder_sim::check(0..3, |sim| async move {
            println!("the seed {:#x}", sim.seed());
        });
    }
    let seeds = |variables: &[(&str, &str)]| -> Vec<String> {
        let (passes, text) = in_a_process(name, variables);
        assert!(passes, "{text}");
        let lines = text.lines().filter_map(|it| it.split_once("the seed "));
        let mut seeds: Vec<String> = lines.map(|it| it.1.to_owned()).collect();
        seeds.sort();
        seeds.dedup();
        seeds
    };
    assert_eq!(seeds(&[]), ["0x0", "0x1", "0x2"]);
    assert_eq!(
        seeds(&[("POLDER_SIM_FIRST_SEED", "17"), ("POLDER_SIM_RUNS", "2")]),
        ["0x11", "0x12"]
    );
    let random = || seeds(&[("POLDER_SIM_FIRST_SEED", "random")]);
    let first = random();
    assert_eq!(first.len(), 3);
    assert_ne!(first, random());
}

#[test]
fn every_seed_runs_twice_where_that_is_asked_for() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static RUNS: AtomicU64 = AtomicU64::new(0);

    let name = "failing::every_seed_runs_twice_where_that_is_asked_for";
    if is_inner() {
        // A static has an influence, on the last seed only.
        return polder_sim::check(0..3, |sim| async move {
            let runs = RUNS.fetch_add(1, Relaxed);
            let more = if sim.seed() == 2 { runs } else { 0 };
            sleep(ms(1 + more)).await;
        });
    }
    let (passes, text) = in_a_process(name, &[]);
    assert!(passes, "{text}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_VERIFY", "1")]);
    assert!(
        !passes && text.contains("seed 0x2: two runs of it differ"),
        "{text}"
    );
}

#[test]
fn a_failure_for_another_reason_is_not_the_same() {
    let name = "failing::a_failure_for_another_reason_is_not_the_same";
    let test = |sim: Sim| async move {
        no_delay(sim).await;
        // Without a loss it also fails, here.
        panic_on_purpose();
    };
    if is_inner() {
        return polder_sim::check(0..1, test);
    }
    let is_late = |seed: &u64| {
        let failure = polder_sim::run(*seed, test).failure.unwrap();
        failure.contains("an answer is late")
    };
    let seed = (0..50).find(is_late).expect("a seed loses a segment");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_SEED", &seed.to_string())]);
    assert!(!passes && text.contains("an answer is late"), "{text}");
    assert!(text.contains(" of them needed: loss of "), "{text}");
}

/// Fails for the seed, and again with the `shrunk` address, which must end with these words.
/// Returns both reports.
fn becomes_simpler(name: &str, seed: u64, words: &str) -> String {
    let seed = format!("{seed:#x}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_SEED", &seed)]);
    assert!(!passes, "{text}");
    let again = variable(&text, "shrunk").to_owned();
    assert!(again.ends_with(words), "{words}: {text}");
    let (passes, smaller) = in_a_process(name, &[("POLDER_SIM_REPLAY", &again)]);
    assert!(!passes, "{smaller}");
    assert!(
        smaller.contains(&format!("replay: POLDER_SIM_REPLAY={again} ")),
        "{smaller}"
    );
    smaller + &text
}

/// Values that the test chooses shrink to the smallest with which it still fails.
#[test]
fn chosen_values_shrink() {
    let name = "failing::chosen_values_shrink";
    let fails = |sim: Sim| async move {
        let (unused, count) = (sim.choose(50), sim.choose(1_000));
        let host = sim.host("host").start(move || async move {
            for _ in 0..count {
                sleep(ms(1 + unused)).await;
            }
            count
        });
        let count = host.finished().within(secs(100)).await;
        assert!(count < 100, "it was {count} times");
    };
    if is_inner() {
        return polder_sim::check(0..100, fails);
    }
    let fails = |seed: &u64| polder_sim::run(*seed, fails).failure.is_some();
    let seed = (0..100).find(fails).expect("most numbers are greater");
    let text = becomes_simpler(name, seed, ":mean,fifo,choose1=0,choose2=100");
    assert!(text.contains("it was 100 times"), "{text}");
    assert!(text.contains("with 100 instead of "), "{text}");
}

/// A failure that needs its order is not said to occur in turn, too.
#[test]
fn order_failure_not_claimed_in_turn() {
    let name = "failing::order_failure_not_claimed_in_turn";
    let fails = |sim: Sim| async move {
        // The simplifications take effect before this call.
        sim.order(polder_sim::Order::Pct(1));
        let list = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let tasks = [1, 2, 3].map(|n| {
            let list = list.clone();
            polder::spawn_local(async move { list.borrow_mut().push(n) })
        });
        for task in tasks {
            task.await;
        }
        assert_eq!(*list.borrow(), [1, 2, 3], "another order");
    };
    if is_inner() {
        return polder_sim::check(0..100, fails);
    }
    let fails = |seed: &u64| polder_sim::run(*seed, fails).failure.is_some();
    let seed = (0..100).find(fails).expect("most orders are others");
    let text = becomes_simpler(name, seed, ":mean");
    assert!(
        text.contains("  it fails too where each segment takes the mean latency\n"),
        "{text}"
    );
}

/// Faults that only the longer run needs are not called needed.
#[test]
fn faults_of_longer_run_not_called_needed() {
    let name = "failing::faults_of_longer_run_not_called_needed";
    let test = |sim: Sim| async move {
        let number = sim.choose(1_000);
        sim.host("server").start(answer);
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("server:1").await.unwrap();
        sim.links().loss(0.05);
        let mut is_late = false;
        for _ in 0..20 {
            let start = sim.now();
            stream.write_all(b"x").await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            is_late |= sim.now() - start >= ms(100);
        }
        assert!(number > 0 && !is_late, "zero, or late");
    };
    if is_inner() {
        return polder_sim::check(0..1, test);
    }
    let seed = (0..50).find(|seed| polder_sim::run(*seed, test).failure.is_some());
    let seed = seed.expect("a seed loses a segment").to_string();
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_SEED", &seed)]);
    assert!(!passes, "{text}");
    assert_contains(&text, &["choose1=0", "none of them needed"]);
}

/// A process that was killed does not become one that is late.
#[test]
fn killed_process_does_not_become_late() {
    let name = "failing::killed_process_does_not_become_late";
    if is_inner() {
        return polder_sim::check(0..1, |sim| async move {
            let process = sim.host("host").start(std::future::pending::<()>);
            if sim.choose(1_000) > 0 {
                process.kill();
            }
            process.finished().within(secs(1)).await;
        });
    }
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_SEED", "1")]);
    assert!(!passes && !text.contains("has not returned"), "{text}");
    assert_contains(&text, &["was killed", "choose1=1"]);
}

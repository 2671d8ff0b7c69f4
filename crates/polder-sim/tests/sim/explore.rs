//! Explorations: what they find, and that they can be repeated.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use polder::net::UdpSocket;
use polder_sim::Sim;

use super::failing::{assert_contains, in_a_process, is_inner, variable};
use super::{ms, secs};

/// A lock of six dials, each of which is right in one of eight positions: one seed in 262,144 opens
/// it. A seed that opens some dials tells so.
async fn open(sim: Sim) {
    for dial in 0..6 {
        sim.sleep(ms(1)).await;
        if sim.choose(8) != 5 {
            return;
        }
        sim.state("open", dial);
    }
    panic!("it is open");
}

#[test]
fn the_lock() {
    if is_inner() {
        polder_sim::check(0..1, open);
    }
}

/// A lock of four dials of sixteen positions, among messages of all lengths: nearly each run has a
/// pair of lengths that none has had before.
async fn open_in_noise(sim: Sim) -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:1").await?;
    for dial in 0..4 {
        for _ in 0..30 {
            let message = vec![0; sim.choose(128) as usize];
            socket.send_to(&message, "127.0.0.1:1").await?;
        }
        sim.sleep(ms(1)).await;
        if sim.choose(16) != 5 {
            return Ok(());
        }
        sim.state("open", dial);
    }
    panic!("it is open");
}

#[test]
fn the_lock_in_noise() {
    if is_inner() {
        polder_sim::check(0..1, open_in_noise);
    }
}

/// An exploration follows states among events that are always new.
#[test]
fn exploration_follows_states_among_new_events() {
    let path = corpus("noise");
    let (passes, text) = explore_test("explore::the_lock_in_noise", "2000", &path, &[]);
    assert!(!passes, "{text}");
    assert_contains(&text, &["it is open"]);
}

/// A lock of eight dials that has to be opened in 40 attempts, each of which has a chance of 1 in
/// 64: a run that opens some of them with its last attempts has no time for the others.
async fn open_in_time(sim: Sim) {
    let mut open = 0;
    for _ in 0..40 {
        sim.sleep(ms(1)).await;
        if sim.choose(64) == 5 {
            open += 1;
            sim.state("open", open);
        }
    }
    assert!(open < 8, "it is open");
}

#[test]
fn the_lock_in_time() {
    if is_inner() {
        // If only the first run in each state is kept, 15,000 runs from here on do not open it.
        polder_sim::check(3_000_000..3_000_001, open_in_time);
    }
}

/// An exploration follows runs that come to a state sooner.
#[test]
fn exploration_follows_sooner_states() {
    let path = corpus("sooner");
    let (passes, text) = explore_test("explore::the_lock_in_time", "2000", &path, &[]);
    assert!(!passes, "{text}");
    assert_contains(&text, &["it is open"]);
}

/// A corpus that is not there yet.
fn corpus(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("corpus-{name}"));
    let _ = std::fs::remove_file(&path);
    path
}

/// Explores one of the tests here. Returns whether it passes, and what was said.
fn explore_test(name: &str, limit: &str, corpus: &Path, more: &[(&str, &str)]) -> (bool, String) {
    let explored = [
        ("POLDER_SIM_EXPLORE", limit),
        ("POLDER_SIM_CORPUS", corpus.to_str().unwrap()),
    ];
    in_a_process(name, &[&explored, more].concat())
}

/// Explores the lock. Returns whether it stays shut, what was said, and the number of runs.
fn explore(limit: &str, corpus: &Path, more: &[(&str, &str)]) -> (bool, String, usize) {
    let (passes, text) = explore_test("explore::the_lock", limit, corpus, more);
    let runs = text.split_once("explored ").expect(&text).1;
    let runs = runs.split(' ').next().unwrap().parse().unwrap();
    (passes, text, runs)
}

/// An exploration opens a lock that seeds do not and its report replays that.
#[test]
fn exploration_opens_lock_and_replays() {
    let name = "explore::the_lock";
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_RUNS", "2000")]);
    assert!(passes, "{text}");
    let path = corpus("lock");
    let (passes, text, runs) = explore("2000", &path, &[]);
    assert!(!passes && runs < 1_000, "{text}");
    assert_contains(&text, &["it is open", "came to something new: "]);
    // Every choice is needed.
    let replay = variable(&text, "replay");
    assert!(replay.contains("fork"), "{replay}");
    let (passes, again) = in_a_process(name, &[("POLDER_SIM_REPLAY", replay)]);
    assert!(!passes);
    assert_contains(
        &again,
        &[
            "it is open",
            &format!("replay: POLDER_SIM_REPLAY={replay} cargo test"),
        ],
    );
    let seed = replay.split(':').next().unwrap();
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", seed)]);
    assert!(passes, "it is the forks that open it: {text}");
}

/// An exploration begins with the runs that the last one has kept.
#[test]
fn exploration_begins_with_kept_runs() {
    let path = corpus("again");
    let (passes, text, runs) = explore("2000", &path, &[]);
    assert!(!passes, "{text}");
    let kept = std::fs::read_to_string(&path).unwrap().lines().count();
    let (passes, text, again) = explore("2000", &path, &[]);
    assert!(
        !passes && again <= kept && kept < runs,
        "{kept} were kept: {text}"
    );
    // What is no run, or leaves something out, is passed over.
    std::fs::write(&path, "what\n0x7:-1\n\n0x7:fifo\n").unwrap();
    let (_, text, other) = explore("2000", &path, &[]);
    assert_eq!(other, runs, "{text}");
}

/// An exploration that ends early keeps the rest of the corpus.
#[test]
fn exploration_ended_early_keeps_corpus() {
    let path = corpus("rest");
    let lines: String = (0..200)
        .map(|nth| format!("{:#x}:\n", nth + 5_000))
        .collect();
    std::fs::write(&path, &lines).unwrap();
    let (_, text, runs) = explore("0", &path, &[]);
    assert_eq!(runs, 200, "what is there does not count: {text}");
    std::fs::write(&path, &lines).unwrap();
    // The test's own run comes behind those.
    let (passes, text, runs) = explore("1", &path, &[("POLDER_SIM_FIRST_SEED", "9000")]);
    assert!(passes && runs == 201, "{text}");
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        kept.contains("0x1388:\n") && kept.lines().count() < 200,
        "{kept}"
    );
}

/// A corpus is written beside files that differ in their extension only.
#[test]
fn corpus_file_names_by_extension() {
    let path = corpus("beside.a");
    let other = path.with_extension("new");
    std::fs::write(&other, "of another").unwrap();
    let (_, text, _) = explore("1", &path, &[]);
    assert!(path.exists(), "{text}");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "of another");
}

/// A host crashes twice within a moment: a matter of the faults alone.
async fn crash(sim: Sim) {
    let times = Rc::new(RefCell::new(Vec::new()));
    let seen = times.clone();
    let host = sim.host("host").start(move || {
        seen.borrow_mut().push(polder::time::now());
        std::future::pending::<()>()
    });
    sim.chaos(secs(20)).crashes(&[&host]).pauses().clocks();
    sim.always("it has time", move || {
        let times = times.borrow();
        times
            .windows(4)
            .all(|all| all[3].saturating_duration_since(all[0]) > ms(60))
    });
    sim.sleep(secs(20)).await;
}

#[test]
fn crashes() {
    if is_inner() {
        polder_sim::check(10..11, crash);
    }
}

/// A failure that an exploration finds is shrunk, and both printed lines replay it.
#[test]
fn exploration_failure_shrunk_and_replayed() {
    let (passes, text) = explore_test("explore::crashes", "3000", &corpus("crashes"), &[]);
    assert!(!passes, "{text}");
    let (replay, shrunk) = (variable(&text, "replay"), variable(&text, "shrunk"));
    assert!(shrunk.starts_with(replay), "{replay}, {shrunk}");
    for line in [replay, shrunk] {
        let (passes, again) = in_a_process("explore::crashes", &[("POLDER_SIM_REPLAY", line)]);
        assert!(!passes);
        assert_contains(&again, &["always \"it has time\": it does not hold"]);
    }
}

/// Two steps that nothing fails at.
async fn two(sim: Sim) {
    sim.state("first", sim.choose(2));
    sim.state("second", sim.choose(2));
}

#[test]
fn two_steps() {
    if is_inner() {
        polder_sim::check(0..1, two);
    }
}

/// The same exploration makes the same runs on any number of threads.
#[test]
fn exploration_same_on_any_thread_count() {
    let all = ["1", "2", "5"].map(|jobs| {
        let path = corpus(&format!("jobs-{jobs}"));
        let (passes, text, runs) = explore("150", &path, &[("POLDER_SIM_JOBS", jobs)]);
        assert!(passes && runs == 150, "{text}");
        std::fs::read_to_string(&path).unwrap()
    });
    assert!(all[0].lines().count() > 1);
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
    // Another seed, other runs.
    let path = corpus("other");
    explore("150", &path, &[("POLDER_SIM_FIRST_SEED", "1000")]);
    assert_ne!(std::fs::read_to_string(&path).unwrap(), all[0]);
}

/// An exploration ends in time and says what is wrong with its limit.
#[test]
fn exploration_ends_in_time_and_checks_limit() {
    let path = corpus("time");
    let start = std::time::Instant::now();
    let (passes, text) = explore_test("explore::two_steps", "1s", &path, &[]);
    assert!(passes && start.elapsed() >= ms(1_000), "{text}");
    assert!(!text.contains("explored 0 runs"), "{text}");
    for limit in ["an hour", "1.5s", "-1", "10h"] {
        let (passes, text) = in_a_process("explore::the_lock", &[("POLDER_SIM_EXPLORE", limit)]);
        assert!(!passes);
        assert_contains(
            &text,
            &[&format!("or a time such as 60s or 10m: not {limit:?}")],
        );
    }
    // One seed is what the user wants to see, not a search.
    let variables = [("POLDER_SIM_EXPLORE", "10m"), ("POLDER_SIM_SEED", "7")];
    let (passes, text) = in_a_process("explore::the_lock", &variables);
    assert!(passes && !text.contains("explored"), "{text}");
}

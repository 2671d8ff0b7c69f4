//! One seed, one run: twice in a process, in two processes, optimised or not.

use std::process::Command;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::sim::{self, Latency, Sim};
use polder::time::sleep;

use super::failing::{assert_contains, failure};
use super::{ms, secs};

/// Names, connections, losses, a crash.
async fn busy(sim: Sim) {
    sim.links()
        .latency(Latency::uniform(ms(1)..ms(20)))
        .loss(0.05);
    let server = sim.host("server").start(|| async {
        let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            polder::spawn(async move {
                let mut bytes = [0; 64];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
            })
            .detach();
        }
    });
    for n in 0..3 {
        sim.host(&format!("client-{n}")).start(|| async {
            loop {
                let Ok(mut stream) = TcpStream::connect("server:1").await else {
                    sleep(ms(10)).await;
                    continue;
                };
                let mut bytes = [7; 64];
                while stream.write_all(&bytes).await.is_ok()
                    && stream.read_exact(&mut bytes).await.is_ok()
                {
                    sleep(ms(3)).await;
                }
            }
        });
    }
    sleep(ms(sim.choose(500))).await;
    server.kill();
    sleep(ms(50)).await;
    server.restart();
    sleep(secs(1)).await;
}

fn fingerprints(seeds: std::ops::Range<u64>) -> Vec<u64> {
    seeds
        .map(|seed| {
            let report = sim::run(seed, busy);
            assert_eq!(report.failure, None);
            report.fingerprint
        })
        .collect()
}

#[test]
fn a_seed_with_chaos_has_the_same_fingerprint_each_time() {
    let chaotic = |sim: Sim| async move {
        let hosts = ["server", "client-0", "client-1", "client-2"].map(|name| sim.host(name));
        let [server, one, two, three] = &hosts;
        sim.chaos(secs(2))
            .cuts()
            .holds()
            .resets()
            .pauses()
            .loss()
            .crashes(&[server, one, two, three]);
        busy(sim.clone()).await;
        sim.quiesce();
        sleep(secs(1)).await;
    };
    let all = |seeds: std::ops::Range<u64>| -> Vec<u64> {
        let reports = seeds.map(|seed| sim::run(seed, chaotic));
        let fingerprint = |it: sim::Report| {
            assert_eq!(it.failure, None);
            it.fingerprint
        };
        reports.map(fingerprint).collect()
    };
    assert_eq!(all(0..40), all(0..40));
}

/// The `fingerprints` recorded when this was written: other builds and platforms must produce the
/// same. A change to the world, or to the order in which the runtime acts, requires new values.
const KNOWN: [u64; 3] = [
    0xe3a4_7df0_63cb_f619,
    0x3c76_fd77_f35a_81e8,
    0x27ad_57bd_c3ed_8b94,
];

#[test]
fn a_seed_has_the_same_fingerprint_each_time_and_others_have_others() {
    let mut first = fingerprints(0..30);
    assert_eq!(fingerprints(0..30), first);
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 30);
}

#[test]
fn fingerprints_are_those_that_are_written_down() {
    let now = fingerprints(0..3);
    assert_eq!(
        now, KNOWN,
        "debug and release, this platform and others: {now:#x?}"
    );
}

/// The variable that makes this program print its fingerprints.
const PRINT: &str = "POLDER_TEST_PRINT_FINGERPRINTS";

#[test]
fn two_processes_have_the_same_fingerprints() {
    let name = "determinism::two_processes_have_the_same_fingerprints";
    if std::env::var_os(PRINT).is_some() {
        println!("fingerprints: {:?}", fingerprints(0..5));
        return;
    }
    let print = || {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(PRINT, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|it| it.contains("fingerprints: "));
        line.unwrap_or_else(|| panic!("nothing was printed: {text}"))
            .to_owned()
    };
    assert_eq!(print(), print());
    assert!(print().ends_with(&format!("{:?}", fingerprints(0..5))));
}

#[test]
#[should_panic = "two runs of it differ"]
fn what_the_seed_does_not_decide_is_found() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    sim::check(0..1, |_| async {
        let run = RUNS.fetch_add(1, Relaxed);
        sleep(ms(1 + run)).await;
    });
}

/// The report of two runs that send different bytes.
fn runs_that_differ(lends: bool) -> String {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let runs = AtomicU64::new(0);
    failure(|| {
        sim::check(0..1, |sim| {
            let run = runs.fetch_add(1, Relaxed);
            async move {
                let server = sim.host("server").start(|| async {
                    let listener = TcpListener::bind("0.0.0.0:1").await?;
                    listener.accept().await?.0.read_exact(&mut [0]).await
                });
                sleep(ms(10)).await;
                let (sender, receiver) = async_channel::unbounded();
                sim.host("client-2").start(move || {
                    let receiver = receiver.clone();
                    async move { receiver.recv().await }
                });
                sim.host("client-1").start(move || {
                    let sender = sender.clone();
                    async move {
                        sleep(ms(10)).await;
                        sender.send(1).await.unwrap();
                        let mut stream = TcpStream::connect("server:1").await.unwrap();
                        if lends {
                            lend(&stream);
                        }
                        // The world detects the difference by this byte.
                        stream.write_all(&[run as u8]).await.unwrap();
                    }
                });
                server.finished().within(secs(1)).await.unwrap();
            }
        });
    })
}

#[cfg(unix)]
fn lend(stream: &TcpStream) {
    let _ = std::os::fd::AsFd::as_fd(stream);
}

#[cfg(windows)]
fn lend(stream: &TcpStream) {
    let _ = std::os::windows::io::AsSocket::as_socket(stream);
}

#[test]
fn where_runs_differ_what_came_before_is_told_and_what_was_seen() {
    let words = runs_that_differ(false);
    let lines: Vec<&str> = words.lines().collect();
    let place = |part: &str| lines.iter().position(|it| it.contains(part));
    let before = place("  Both had before:").unwrap_or_else(|| panic!("{words}"));
    let first = place("  The first run had: ").unwrap_or_else(|| panic!("{words}"));
    assert_eq!(first - before, 11, "ten events: {words}");
    assert!(lines[before + 1].starts_with("    0.0"), "{words}");
    assert_contains(
        &words,
        &[
            " s server: data 0+1 came from client-1\n  The second has:    0.0",
            " s server: data 0+1 came from client-1, with other bytes\n",
            "  Seen until there: client-1 woke a task of client-2 directly (first at 0.020000 s)",
        ],
    );
    let lent = "  Or: a descriptor of a simulated socket was asked for";
    assert!(!words.contains(lent), "{words}");
    assert!(runs_that_differ(true).contains(lent));
}

#[test]
fn where_runs_differ_within_a_poll_its_task_is_told() {
    use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
    let runs = AtomicU16::new(1);
    let words = failure(|| {
        sim::check(0..1, |sim| {
            let run = runs.fetch_add(1, Relaxed);
            async move {
                sim.host("server");
                let address = (sim.host("server").address(), run);
                let client = sim.host("client").start(move || async move {
                    sleep(ms(10)).await;
                    TcpStream::connect(address).await.map(drop)
                });
                client.finished().within(secs(1)).await.unwrap_err();
            }
        });
    });
    assert_contains(
        &words,
        &[
            "  The first run had: 0.010000 s client: connects to server:1\n",
            "  The second has:    0.010000 s client: connects to server:2\n",
            "  That was in a poll of task 2 of client, spawned at ",
        ],
    );
}

/// In this program worlds do not answer for the C library: see `tests/answers.rs`.
#[test]
fn where_the_order_of_a_map_has_an_influence_the_first_difference_and_its_cause_are_told() {
    let words = failure(|| {
        sim::check(0..1, |_| async {
            // With this number of keys, two runs are unlikely to have the same order.
            let map: std::collections::HashSet<u64> = (0..50).collect();
            for key in map {
                sleep(ms(key)).await;
            }
        });
    });
    assert_contains(
        &words,
        &[
            "The first run had: ",
            "The second has:    ",
            "The likely cause: the order of a HashMap",
        ],
    );
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    assert!(
        words.contains("`polder::sim::answer_for_libc!();`"),
        "{words}"
    );
}

#[test]
fn checks_of_the_tests_do_not_change_the_run() {
    let plain = sim::run(5, busy);
    let checked = sim::run(5, |sim| {
        sim.always("it is fine", || true);
        sim.sometimes("it is not", || false);
        busy(sim)
    });
    assert_eq!(plain.fingerprint, checked.fingerprint);
    assert_eq!(plain.events, checked.events);
}

#[test]
#[should_panic = "only the first time"]
fn a_failure_that_does_not_repeat_is_reported() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let words = failure(|| {
        sim::check(0..8, |sim| async move {
            let is_first = sim.seed() == 3 && RUNS.fetch_add(1, Relaxed) == 0;
            assert!(!is_first, "only the first time");
        });
    });
    assert!(words.contains("two runs of it differ"), "{words}");
    assert!(words.contains("POLDER_SEED=0x3"), "{words}");
    panic!("{words}");
}

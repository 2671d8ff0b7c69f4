//! What differs between two runs of a seed is found, and the report names the difference.

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;

use super::failing::{assert_contains, failure};
use super::{ms, secs};

#[test]
#[should_panic = "two runs of it differ"]
fn what_the_seed_does_not_decide_is_found() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    polder_sim::check(0..1, |_| async {
        let run = RUNS.fetch_add(1, Relaxed);
        sleep(ms(1 + run)).await;
    });
}

/// The first seeds are calm, so that the first one says nothing of what faults bring about.
#[test]
#[should_panic = "seed 0xa: two runs of it differ"]
fn first_seed_with_faults_runs_twice() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    polder_sim::check(0..11, |sim| async move {
        let run = if sim.seed() < 10 {
            0
        } else {
            RUNS.fetch_add(1, Relaxed)
        };
        sleep(ms(1 + run)).await;
    });
}

/// The report of two runs that send different bytes.
fn runs_that_differ(lends: bool) -> String {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let runs = AtomicU64::new(0);
    failure(|| {
        polder_sim::check(0..1, |sim| {
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

/// Where two runs differ, the report shows the events before and the difference.
#[test]
fn divergence_shows_what_came_before() {
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

/// Where two runs differ within a poll, the report names its task.
#[test]
fn divergence_within_poll_names_task() {
    use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
    let runs = AtomicU16::new(1);
    let words = failure(|| {
        polder_sim::check(0..1, |sim| {
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

/// Where the order of a map matters, the report shows the first difference and its cause.
///
/// In this program worlds do not answer for the C library: see `tests/libc_interpose.rs`.
#[test]
fn divergence_by_map_order_names_cause() {
    let words = failure(|| {
        polder_sim::check(0..1, |_| async {
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
            "the first branch of a `select!`",
        ],
    );
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    assert!(
        words.contains("`polder_sim::answer_for_libc!();`"),
        "{words}"
    );
}

#[test]
#[should_panic = "only the first time"]
fn a_failure_that_does_not_repeat_is_reported() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let words = failure(|| {
        polder_sim::check(0..8, |sim| async move {
            let is_first = sim.seed() == 3 && RUNS.fetch_add(1, Relaxed) == 0;
            assert!(!is_first, "only the first time");
        });
    });
    assert!(words.contains("two runs of it differ"), "{words}");
    assert!(words.contains("POLDER_SIM_SEED=0x3"), "{words}");
    panic!("{words}");
}

//! Threads of worlds: the watchdog, and worlds that share a thread.

use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, ThreadId};
use std::time::Instant;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::{sleep, timeout};
use polder_sim::{Latency, Sim};

use super::failing::{assert_contains, failure, in_a_process, is_inner};
use super::{ms, secs};

thread_local! {
    /// The number of worlds that this thread has run before.
    static WORLDS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a new world. Returns the number of worlds that this thread has run before.
fn count_worlds() -> u64 {
    WORLDS.replace(WORLDS.get() + 1)
}

#[test]
fn check_ends_at_once_when_watched() {
    let start = Instant::now();
    for seed in 0..40 {
        polder_sim::check([seed], |sim| async move { sim.sleep(secs(1)).await });
        assert_eq!(polder_sim::run(seed, |_| async {}).failure, None);
        // Also after a panic. (The first seeds are not shrunk: there is nothing to leave out.)
        let failing = || {
            polder_sim::check(
                [seed],
                move |_| async move { assert!(seed > 99, "on purpose") },
            )
        };
        assert!(catch_unwind(failing).is_err());
    }
    // Each world would take half a second if it waited for the watchdog's next check.
    let took = start.elapsed();
    assert!(took < secs(40), "{took:?}");
}

#[test]
fn endless_poll_of_run_ends_program() {
    let name = "threads::endless_poll_of_run_ends_program";
    if is_inner() {
        polder_sim::run(0x1f, |_| async {
            sleep(ms(7)).await;
            thread::sleep(secs(60));
        });
        return;
    }
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_STEP_TIMEOUT", "4")]);
    assert!(!passes, "{text}");
    let words = "seed 0x1f is stuck at 0.007";
    assert!(text.contains(words), "{text}");
}

/// The watchdog names the world that is stuck and none of the others.
#[test]
fn watchdog_names_stuck_world_only() {
    let name = "threads::watchdog_names_stuck_world_only";
    if is_inner() {
        // Three threads in parallel: one world never ends, and the others continue.
        return polder_sim::check(0..10_000, |sim| async move {
            if sim.seed() == 0x21 {
                thread::sleep(secs(60));
            }
            thread::sleep(ms(1));
        });
    }
    let variables = [("POLDER_SIM_STEP_TIMEOUT", "4"), ("POLDER_SIM_JOBS", "3")];
    let (passes, text) = in_a_process(name, &variables);
    assert!(!passes, "{text}");
    assert!(text.contains("seed 0x21 is stuck at 0.0"), "{text}");
    assert_eq!(text.matches("is stuck").count(), 1, "{text}");
    assert!(text.contains("POLDER_SIM_SEED=0x21"), "{text}");
}

/// A world in a world is watched as a part of the outer one.
#[test]
fn nested_world_watched_as_part_of_outer() {
    let name = "threads::nested_world_watched_as_part_of_outer";
    let worlds = |count: u64, millis: u64| {
        polder_sim::check([0x22], move |_| async move {
            polder_sim::check(0..count, move |sim| async move {
                // Has no effect here: the outer world makes progress with each thread that ends.
                sim.share_thread();
                thread::sleep(ms(millis));
            });
        });
    };
    if is_inner() {
        return match std::env::var_os("POLDER_TEST_STUCK") {
            // The inner world is stuck: the poll of the outer one does not return.
            Some(_) => worlds(1, 60_000),
            // The poll of the outer world takes longer than the limit, but makes progress.
            None => worlds(15, 700),
        };
    }
    let limit = ("POLDER_SIM_STEP_TIMEOUT", "8");
    let (passes, text) = in_a_process(name, &[limit, ("POLDER_SIM_JOBS", "1")]);
    assert!(passes, "{text}");
    let (passes, text) = in_a_process(name, &[limit, ("POLDER_TEST_STUCK", "1")]);
    assert!(!passes, "{text}");
    assert!(text.contains("seed 0x22 is stuck"), "{text}");
    assert!(!text.contains("seed 0x0 is stuck"), "{text}");
}

/// Names, TCP and UDP, timers, tasks, `unblock`, panics that are contained, and chaos.
async fn busy(sim: Sim) {
    sim.permit_panics();
    sim.links().latency(Latency::uniform(ms(1)..ms(20)));
    let server = sim.host("server").start(|| async {
        let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
        let datagrams = UdpSocket::bind("0.0.0.0:2").await.unwrap();
        polder::spawn(async move {
            let mut bytes = [0; 64];
            while let Ok((len, from)) = datagrams.recv_from(&mut bytes).await {
                let _ = datagrams.send_to(&bytes[..len], from).await;
            }
        })
        .detach();
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                continue;
            };
            polder::spawn(async move {
                let mut bytes = [0; 64];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                resume_unwind(Box::new("contained"));
            })
            .detach();
        }
    });
    let clients = ["client-0", "client-1"].map(|name| {
        sim.host(name).start(|| async {
            let datagrams = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            let mut bytes = [7; 64];
            loop {
                sleep(ms(5)).await;
                polder::unblock(|| ()).await;
                let _ = datagrams.send_to(b"ask", "server:2").await;
                let _ = timeout(ms(9), datagrams.recv(&mut bytes)).await;
                let limit = ms(300);
                let Ok(mut stream) = TcpStream::connect_timeout("server:1", limit).await else {
                    continue;
                };
                for _ in 0..9 {
                    let echo = async {
                        stream.write_all(&bytes).await?;
                        stream.read_exact(&mut bytes).await.map(drop)
                    };
                    if !timeout(ms(100), echo).await.is_ok_and(|it| it.is_ok()) {
                        break;
                    }
                }
            }
        })
    });
    let [one, two] = &clients;
    sim.chaos(secs(1)).usual(&[&server, one, two]);
    sleep(ms(1_000 + sim.choose(500))).await;
}

/// A world on a shared thread does what it does on a new one.
#[test]
fn shared_thread_world_behaves_as_on_new() {
    let name = "threads::shared_thread_world_behaves_as_on_new";
    if is_inner() {
        // Each world is compared with one that has a new thread.
        static THREADS: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());
        let shared = AtomicU64::new(0);
        polder_sim::check(0..300, |sim| {
            THREADS.lock().unwrap().push(thread::current().id());
            shared.fetch_add((count_worlds() > 0).into(), Relaxed);
            sim.share_thread();
            busy(sim)
        });
        let mut threads = THREADS.lock().unwrap();
        assert_eq!(threads.len(), 600);
        threads.sort_by_key(|it| format!("{it:?}"));
        threads.dedup();
        // The first world has its own thread, the others share one, and each comparison run has a
        // new one.
        assert_eq!((threads.len(), shared.into_inner()), (302, 298));
        return;
    }
    let variables = [("POLDER_SIM_VERIFY", "1"), ("POLDER_SIM_JOBS", "1")];
    let (passes, text) = in_a_process(name, &variables);
    assert!(passes, "{text}");
}

/// Thread locals are new unless the world before has shared its thread.
#[test]
fn thread_locals_new_unless_thread_shared() {
    thread_local! {
        static HAS_SHARED: Cell<bool> = const { Cell::new(false) };
    }
    let most = AtomicU64::new(0);
    let check = |shares: fn(&Sim) -> bool| {
        most.store(0, Relaxed);
        polder_sim::check(0..1_000, |sim| {
            let before = count_worlds();
            most.fetch_max(before, Relaxed);
            assert!(before == 0 || HAS_SHARED.get(), "nobody has shared it");
            // The thread's name is not that of another seed.
            let name = thread::current().name().map(str::to_owned);
            let name = name.expect("all of them have names");
            let own = format!("polder-sim {:#x}", sim.seed());
            assert!(name == own || name == "polder-sim", "{name}");
            assert!(before == 0 || name == "polder-sim", "{name}");
            let shares = shares(&sim);
            HAS_SHARED.set(shares);
            if shares {
                sim.share_thread();
            }
            async {}
        });
        most.load(Relaxed)
    };
    assert_eq!(check(|_| false), 0);
    assert!(check(|_| true) > 2);
    assert!(check(|sim| sim.choose(4) > 0) > 2);
}

/// A failure that an earlier world has caused is reported as that.
#[test]
fn failure_caused_by_earlier_world_says_so() {
    let text = failure(|| {
        polder_sim::check(0..1_000, |sim| async move {
            sim.share_thread();
            assert_eq!(count_worlds(), 0, "what another world has left");
        });
    });
    assert_contains(
        &text,
        &[
            "two runs of it differ",
            "a thread-local that an earlier world on its thread has left (Sim::share_thread)",
            "what another world has left",
            "The second run did not fail.",
        ],
    );
}

#[test]
fn a_thread_local_that_has_an_influence_is_found() {
    let name = "threads::a_thread_local_that_has_an_influence_is_found";
    let check = |from: u64| {
        polder_sim::check(0..100, |sim| async move {
            sim.share_thread();
            sleep(ms(count_worlds() / from)).await;
        });
    };
    if is_inner() {
        return check(50);
    }
    let cause = "(Sim::share_thread)";
    // Found in the first world that reuses a thread, which runs twice.
    let text = failure(|| check(1));
    assert!(text.contains(cause), "{text}");
    // A difference that shows later is found if all seeds run twice.
    let jobs = ("POLDER_SIM_JOBS", "1");
    let (passes, text) = in_a_process(name, &[jobs]);
    assert!(passes, "{text}");
    let (passes, text) = in_a_process(name, &[jobs, ("POLDER_SIM_VERIFY", "1")]);
    assert!(!passes && text.contains(cause), "{text}");
    assert!(text.contains("seed 0x33: two runs of it differ"), "{text}");
}

/// A failure on a shared thread is reported as ever and replays.
#[test]
fn shared_thread_failure_reported_and_replays() {
    let name = "threads::shared_thread_failure_reported_and_replays";
    if is_inner() {
        return polder_sim::check(10..1_000, |sim| async move {
            sim.share_thread();
            sim.sleep(ms(5)).await;
            assert!(sim.seed() != 0x20, "the failure");
        });
    }
    let words = "seed 0x20 failed at 0.005000 s: the test panicked: the failure";
    let jobs = ("POLDER_SIM_JOBS", "1");
    let (passes, text) = in_a_process(name, &[jobs]);
    assert!(!passes, "{text}");
    assert_contains(
        &text,
        &[
            words,
            "thread 'polder-sim'",
            "thread 'polder-sim 0x20'",
            "replay: POLDER_SIM_SEED=0x20",
            "timeline: ",
        ],
    );
    assert!(!text.contains("differ"), "{text}");
    let (passes, text) = in_a_process(name, &[jobs, ("POLDER_SIM_SEED", "0x20")]);
    assert!(!passes && text.contains(words), "{text}");
    assert!(!text.contains("thread 'polder-sim'"), "{text}");
}

/// A panic of an earlier world is not taken for one of this.
#[test]
fn earlier_worlds_panic_not_taken_for_ours() {
    let text = failure(|| {
        polder_sim::check(0..300, |sim| async move {
            sim.share_thread();
            if sim.seed() < 250 {
                // The hook sees this panic, but no report contains it.
                let caught = catch_unwind(|| panic!("the same words"));
                assert!(caught.is_err());
            } else {
                // The hook does not see this one: it has no location.
                struct Resumes;
                impl Drop for Resumes {
                    fn drop(&mut self) {
                        resume_unwind(Box::new("the same words"));
                    }
                }
                let resumes = Resumes;
                drop(polder::spawn(async { drop(resumes) }));
                sleep(ms(1)).await;
            }
        });
    });
    let words = ": a panic, which was contained: the same words";
    assert!(text.contains(words) && !text.contains("differ"), "{text}");
}

/// The watchdog names the seed that is stuck of those that share a thread.
#[test]
fn watchdog_names_stuck_seed_on_a_shared_thread() {
    let name = "threads::watchdog_names_stuck_seed_on_a_shared_thread";
    if is_inner() {
        return polder_sim::check(10..1_000, |sim| async move {
            sim.share_thread();
            if sim.seed() == 0x23 {
                thread::sleep(secs(60));
            }
        });
    }
    let variables = [("POLDER_SIM_STEP_TIMEOUT", "4"), ("POLDER_SIM_JOBS", "1")];
    let (passes, text) = in_a_process(name, &variables);
    assert!(!passes, "{text}");
    assert!(text.contains("seed 0x23 is stuck at 0.0"), "{text}");
    assert!(text.contains("POLDER_SIM_SEED=0x23"), "{text}");
}

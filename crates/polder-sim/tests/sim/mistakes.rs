//! Mistakes of programs and tests: each is detected, and reported with its seed and location.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use polder::event::Event;
use polder::future::pending;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket, serve};
use polder::time::{now, sleep};
use polder_sim::{Exit, Order, Sim};

use super::failing::{assert_contains, in_a_process, is_inner};
use super::{ms, secs};

/// Calls a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn fails<F: Future<Output = ()> + 'static>(test: impl Fn(Sim) -> F + Sync, words: &str) {
    let failure = polder_sim::run(1, test).failure;
    let failure = failure.unwrap_or_else(|| panic!("passes, without {words:?}"));
    assert!(failure.contains(words), "{failure}");
}

fn passes<F: Future<Output = ()> + 'static>(test: impl Fn(Sim) -> F + Sync) {
    assert_eq!(polder_sim::run(1, test).failure, None);
}

async fn panics_in_serve(sim: Sim) {
    sim.host("server").start(|| async {
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let handle = |_: TcpStream, _| async move { panic!("in a handler") };
        serve(&listener, handle).await.map(drop)
    });
    sim.sleep(ms(5)).await;
    let mut stream = TcpStream::connect("server:1").await.unwrap();
    let _ = stream.read(&mut [0]).await;
}

#[test]
fn a_panic_in_a_handler_of_serve_fails_the_run() {
    fails(panics_in_serve, "in a handler");
    passes(|sim| async move {
        sim.permit_panics();
        panics_in_serve(sim).await;
    });
}

/// A task panics; its handle is kept but never awaited.
async fn keeps_a_panic() {
    let task = polder::spawn(async { panic!("in a task") });
    pending::<()>().await;
    task.await
}

/// A panic of a task that is held until the end fails the run.
#[test]
fn panic_of_held_task_fails_run() {
    fails(
        |sim| async move {
            sim.host("keeper").start(keeps_a_panic);
            sim.sleep(secs(1)).await;
        },
        "in a task",
    );
    // Also if the process was killed since.
    fails(
        |sim| async move {
            let keeper = sim.host("keeper").start(keeps_a_panic);
            sim.sleep(secs(1)).await;
            keeper.kill();
            sim.sleep(secs(1)).await;
        },
        "in a task",
    );
    // The report names the panic of the task, not the latest panic.
    let report = polder_sim::run(1, |sim| async move {
        sim.host("keeper").start(keeps_a_panic);
        sim.sleep(ms(1)).await;
        let _ = std::panic::catch_unwind(|| panic!("another"));
        sim.sleep(ms(1)).await;
    });
    let failure = report.failure.unwrap();
    assert!(
        failure.contains("keeper: its process ran when the test ended"),
        "{failure}"
    );
    // A panic taken from its task is the program's concern.
    passes(|_| async {
        use futures_lite::FutureExt;
        let task = polder::spawn(async { panic!("in a task") });
        let result: Result<(), _> = std::panic::AssertUnwindSafe(task).catch_unwind().await;
        assert!(result.is_err());
    });
}

async fn panics_when_dropped() {
    let _guard = OnDrop(|| panic!("in a destructor"));
    pending().await
}

/// A panic in a destructor fails the run unless it would not have run.
#[test]
fn panic_in_destructor_fails_run() {
    fails(
        |_| async {
            let task = polder::spawn(panics_when_dropped());
            sleep(ms(1)).await;
            drop(task);
            sleep(ms(1)).await;
        },
        "in a destructor",
    );
    // A process that returns drops its tasks.
    fails(
        |sim| async move {
            let host = sim.host("host").start(|| async {
                polder::spawn(panics_when_dropped()).detach();
                sleep(ms(1)).await;
            });
            host.finished().await;
            sim.sleep(ms(1)).await;
        },
        "in a destructor",
    );
    passes(|sim| async move {
        sim.permit_panics();
        drop(polder::spawn(panics_when_dropped()));
        let task = polder::spawn(panics_when_dropped());
        sleep(ms(1)).await;
        drop(task);
        sleep(ms(1)).await;
    });
    // A killed process runs no destructors, nor do the processes that exist at the end.
    passes(|sim| async move {
        let killed = sim.host("killed").start(panics_when_dropped);
        sim.host("left").start(panics_when_dropped);
        sim.sleep(ms(1)).await;
        killed.kill();
        sim.sleep(ms(1)).await;
    });
}

/// A loop that waits for the clock in one poll is found.
#[test]
fn busy_wait_for_clock_is_found() {
    fails(
        |sim| async move {
            let host = sim.host("host").start(|| async {
                let end = now() + ms(1);
                while now() < end {}
            });
            host.finished().await;
        },
        "the clock was read 1000000 times in one step",
    );
    fails(
        |sim| async move { while sim.now() < ms(1) {} },
        "the clock was read 1000000 times in one step",
    );
    // Many readings, in many polls.
    passes(|_| async {
        for _ in 0..30 {
            for _ in 0..50_000 {
                let _ = now();
            }
            sleep(ms(1)).await;
        }
    });
}

/// A poll that never returns ends the program and says where.
#[test]
fn endless_poll_ends_program_with_place() {
    let name = "mistakes::endless_poll_ends_program_with_place";
    if is_inner() {
        return polder_sim::check([7], |sim| async move {
            sim.host("spinning").start(|| async {
                sleep(ms(3)).await;
                let start = Instant::now();
                while start.elapsed() < secs(60) {
                    std::thread::sleep(ms(100));
                }
            });
            sim.sleep(secs(1)).await;
        });
    }
    let start = Instant::now();
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_STEP_TIMEOUT", "4")]);
    assert!(!passes, "{text}");
    assert!(start.elapsed() < secs(50), "the limit holds");
    assert_contains(
        &text,
        &[
            "seed 0x7 is stuck at 0.003",
            "crates/polder-sim/tests/sim/mistakes.rs:",
            "on the host \"spinning\"",
            "POLDER_SIM_SEED=0x7",
        ],
    );
}

/// A smaller run that never ends does not hide the failure.
#[test]
fn endless_smaller_run_keeps_failure() {
    let name = "mistakes::endless_smaller_run_keeps_failure";
    if is_inner() {
        return polder_sim::check([7], |sim| async move {
            // Shrinking tries zero instead.
            if sim.choose(1_000_000) == 0 {
                loop {
                    std::thread::sleep(ms(100));
                }
            }
            assert!(sim.now() > ms(1), "the failure");
        });
    }
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_STEP_TIMEOUT", "4")]);
    assert!(!passes, "{text}");
    assert_contains(
        &text,
        &[
            "seed 0x7 failed at 0.000000 s: the test panicked: the failure",
            "A smaller run of it, POLDER_SIM_REPLAY=0x7:choose1=0, never ends",
            "seed 0x7 is stuck at 0.000000 s: a poll of the task spawned at",
        ],
    );
}

/// A timer in a report is due by the clock of its host.
#[test]
fn report_timer_due_by_host_clock() {
    let failure = polder_sim::run(1, |sim| async move {
        let host = sim.host("ahead").start(|| async {
            sleep(ms(1)).await;
            sleep(secs(5)).await;
        });
        host.clock().offset(secs(60));
        sim.sleep(ms(100)).await;
        assert!(sim.now().is_zero(), "to see it");
    });
    let failure = failure.failure.unwrap();
    assert!(failure.contains("waits: timer due in 4.9"), "{failure}");
}

/// A process that restarts its own host and returns has a successor.
#[test]
fn process_restarting_own_host_has_successor() {
    let starts = |returns_late: bool| {
        let starts = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = starts.clone();
        let report = polder_sim::run(1, move |sim| {
            let count = count.clone();
            async move {
                let of_host = sim.clone();
                let host = sim.host("phoenix").start(move || {
                    let (sim, count) = (of_host.clone(), count.clone());
                    async move {
                        let nth = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if nth < 3 {
                            sim.host("phoenix").restart();
                        }
                        if returns_late {
                            sleep(ms(1)).await;
                        }
                        nth
                    }
                });
                sim.sleep(secs(1)).await;
                // The three processes before were killed; a waiter now gets the exit of the last
                // one.
                assert_eq!(host.finished().await, Exit::Returned(3));
            }
        });
        assert_eq!(report.failure, None);
        starts.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!(starts(false), 4);
    assert_eq!(starts(true), 4);
}

#[test]
fn the_report_says_what_each_task_waits_for() {
    let failure = polder_sim::run(1, |sim| async move {
        sim.host("server").start(|| async {
            let listener = TcpListener::bind("0.0.0.0:80").await?;
            let (mut stream, _) = listener.accept().await?;
            stream.read_exact(&mut [0; 8]).await
        });
        sim.host("waits").start(|| async {
            for _ in 0..3 {
                polder::spawn(async { Event::new().wait().await }).detach();
            }
            sleep(secs(5)).await;
        });
        sim.sleep(ms(5)).await;
        let mut stream = TcpStream::connect("server:80").await.unwrap();
        stream.write_all(b"half").await.unwrap();
        sim.sleep(ms(5)).await;
        assert!(sim.now().is_zero(), "to see it");
    });
    let failure = failure.failure.unwrap();
    assert_contains(
        &failure,
        &[
            "waits: reads TCP 10.0.0.2:80 <-> 10.0.0.1:",
            "waits: timer due in ",
        ],
    );
    let tasks = failure
        .lines()
        .find(|it| it.contains("3 tasks, spawned at"));
    assert!(
        tasks.is_some_and(|it| it.ends_with("waits: event")),
        "{failure}"
    );
}

#[test]
#[should_panic = "there is no seed to run"]
fn a_check_without_seeds_is_an_error() {
    polder_sim::check(0..0, |_| async {});
}

#[test]
#[should_panic = "invalid host name \"a host\""]
fn names_of_hosts_can_be_looked_up() {
    polder_sim::check(0..1, |sim| async move {
        for name in ["localhost", "10.0.0.9", "-a", "", "a:1", "h\u{f4}te"] {
            let sim = sim.clone();
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                sim.host(name);
            }));
            assert!(refused.is_err(), "{name:?} is taken");
        }
        sim.host("with-a_dot.and.9");
        sim.host("a host");
    });
}

#[test]
fn an_error_of_the_test_is_not_called_a_panic() {
    let report = polder_sim::run(1, |_| async { Err::<(), &str>("an error") });
    let failure = report.failure.unwrap();
    let line = failure.lines().next().unwrap();
    assert!(
        line.ends_with(": the test returned an error: \"an error\""),
        "{line}"
    );
}

#[test]
fn an_empty_variable_is_none() {
    let name = "mistakes::an_empty_variable_is_none";
    if is_inner() {
        return polder_sim::check(0..2, |_| async {});
    }
    let empty = [
        ("POLDER_SIM_SEED", ""),
        ("POLDER_SIM_RUNS", ""),
        ("POLDER_SIM_REPLAY", ""),
    ];
    let (passes, text) = in_a_process(name, &empty);
    assert!(passes, "{text}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_RUNS", "0")]);
    assert!(!passes && text.contains("there is no seed"), "{text}");
}

/// A panic fails the run although the task's handle is forgotten, or the task keeps itself alive.
///
/// Like a server that keeps a task's handle in state that the task holds as well.
#[test]
fn panic_of_forgotten_task_fails_run() {
    /// A value that refers to itself, and so is never dropped.
    struct Cycle(
        #[allow(dead_code)] polder::Task<()>,
        RefCell<Option<Rc<Cycle>>>,
    );
    fails(
        |_| async {
            let task = polder::spawn_local(async { panic!("in a cycle") });
            let cycle = Rc::new(Cycle(task, RefCell::default()));
            *cycle.1.borrow_mut() = Some(cycle.clone());
            polder::future::yield_now().await;
        },
        "its handle was forgotten, or keeps itself alive: in a cycle",
    );
    fails(
        |_| async {
            std::mem::forget(polder::spawn(async { panic!("forgotten") }));
            polder::future::yield_now().await;
        },
        "its handle was forgotten, or keeps itself alive: forgotten",
    );
    fails(
        |_| async {
            let mut set = polder::TaskSet::new();
            set.spawn(async { panic!("of a set") });
            std::mem::forget(set);
            polder::future::yield_now().await;
        },
        "its handle was forgotten, or keeps itself alive: of a set",
    );
    fails(
        |_| async {
            std::mem::forget(polder::unblock(|| panic!("of a call")));
            polder::time::sleep(ms(1)).await;
        },
        "its handle was forgotten, or keeps itself alive: of a call",
    );
}

/// Endless sends and connects at one moment are stopped before they exhaust memory.
#[test]
fn endless_sends_stopped_before_memory_full() {
    fails(
        |sim: Sim| async move {
            let to = (sim.host("other").address(), 1);
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            loop {
                let _ = socket.send_to(&[0; 60_000], to).await;
            }
        },
        "\"test\" sends without any time passing",
    );
    // Many datagrams, but time advances.
    passes(|sim: Sim| async move {
        let to = (sim.host("other").address(), 1);
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        for _ in 0..3 {
            for _ in 0..900 {
                let _ = socket.send_to(&[0; 60_000], to).await;
            }
            sim.sleep(ms(1)).await;
        }
    });
}

/// Too many seeds and changes of priorities take no memory.
#[test]
fn many_seeds_and_priorities_use_no_memory() {
    let all = std::panic::catch_unwind(|| polder_sim::check(0.., |_| async {}));
    let words = *all
        .expect_err("nobody waits for that")
        .downcast::<String>()
        .expect("in words");
    assert!(words.contains("more than 100000000 seeds"), "{words}");
    passes(|sim: Sim| async move { sim.order(Order::Pct(u32::MAX)) });
}

#[test]
fn names_are_the_same_in_upper_and_lower_case() {
    polder_sim::check(0..1, |sim: Sim| async move {
        let store = sim.host("Store");
        assert_eq!(sim.host("sTORE").address(), store.address());
        assert_eq!(store.name(), "Store");
        let found = polder::net::resolve("STORE:1").await.expect("it is found");
        assert_eq!(found[0].ip(), store.address());
    });
}

/// As large as that of a program's main thread.
#[test]
fn worlds_have_the_stack_of_a_main_thread() {
    fn deep(depth: usize) -> usize {
        let here = std::hint::black_box([depth as u8; 4_096]);
        match depth {
            0 => 0,
            _ => 1 + deep(depth - 1) + usize::from(here[17]) / 256,
        }
    }
    polder_sim::check(0..1, |_| async { assert_eq!(deep(1_000), 1_000) });
}

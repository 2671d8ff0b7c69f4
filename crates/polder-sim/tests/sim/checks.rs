//! Checks that a test enables: retry storms, and resources that processes leak.

use std::io::Result;

use polder::future::pending;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::sleep;
use polder_sim::Sim;

use super::failing::assert_contains;
use super::{ms, secs};

/// Connects `times` times to a port without a listener, with `pause` between attempts.
async fn retries(sim: Sim, pause: u64, times: u32) {
    sim.max_connects(100);
    sim.host("server");
    let client = sim.host("client").start(move || async move {
        for _ in 0..times {
            let refused = TcpStream::connect("server:1").await;
            assert!(refused.is_err());
            sleep(ms(pause)).await;
        }
    });
    client.finished().within(secs(600)).await;
}

#[test]
fn clients_without_a_back_off_are_a_retry_storm() {
    for seed in 0..5 {
        let failure = polder_sim::run(seed, |sim| retries(sim, 0, 1_000))
            .failure
            .unwrap();
        assert!(
            failure.contains("retry storm: \"client\" connects too often"),
            "{failure}"
        );
        assert_eq!(
            polder_sim::run(seed, |sim| retries(sim, 20, 1_000)).failure,
            None
        );
        assert_eq!(
            polder_sim::run(seed, |sim| retries(sim, 0, 40)).failure,
            None
        );
    }
}

/// A host that sends too many datagrams within a second is a storm.
#[test]
fn datagram_storm_within_a_second() {
    let run = |pause: u64, hosts: u32| {
        polder_sim::run(1, move |sim| async move {
            sim.max_datagrams(50);
            let address = (sim.host("server").address(), 1);
            let send = move || async move {
                let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
                for _ in 0..60 {
                    // Alternates between success and refusal.
                    let _ = socket.send_to(b"?", address).await;
                    sleep(ms(pause)).await;
                }
            };
            for n in 0..hosts {
                sim.host(&format!("client-{n}")).start(send);
            }
            sleep(secs(10)).await;
        })
    };
    let failure = run(1, 1).failure.unwrap();
    let words = "\"client-0\" sends too many datagrams: more than 50 within a second";
    assert!(failure.contains(words), "{failure}");
    assert_eq!(run(25, 2).failure, None, "each host has its own count");
}

/// A client that returns, either with everything closed or leaking something.
async fn leaves(sim: Sim, what: &'static str) {
    sim.forbid_leaks();
    sim.host("server").start(|| async {
        let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
        loop {
            drop(listener.accept().await);
        }
    });
    sleep(ms(1)).await;
    let client = sim.host("client").start(move || async move {
        let mut stream = TcpStream::connect("server:1").await?;
        stream.read_to_end(&mut Vec::new()).await?;
        match what {
            "a task" => polder::spawn(pending::<()>()).detach(),
            "a socket" => std::mem::forget(stream),
            _ => {
                drop(stream);
                polder::spawn(sleep(ms(1))).await;
            }
        }
        Result::Ok(())
    });
    client.finished().within(secs(10)).await.unwrap();
}

/// The report says how many bytes were unread in a socket that was left behind.
#[test]
fn unread_bytes_left_behind_are_reported() {
    let run = |read: usize| {
        let report = polder_sim::run(1, move |sim| async move {
            sim.forbid_leaks();
            sim.host("server").start(|| async {
                let listener = TcpListener::bind("0.0.0.0:1").await?;
                let (mut stream, _) = listener.accept().await?;
                stream.write_all(&[7; 100]).await?;
                pending::<Result<()>>().await
            });
            sleep(ms(1)).await;
            let client = sim.host("client").start(move || async move {
                let mut stream = TcpStream::connect("server:1").await?;
                let socket = UdpSocket::bind("0.0.0.0:0").await?;
                socket.send_to(b"abc", socket.local_addr()?).await?;
                sleep(ms(100)).await;
                stream.read_exact(&mut vec![0; read]).await?;
                std::mem::forget((stream, socket));
                Result::Ok(())
            });
            client.finished().within(secs(10)).await.unwrap();
        });
        report.failure.unwrap()
    };
    assert_contains(
        &run(40),
        &[
            "connected to server:1, 60 bytes are unread\n",
            ", UDP, 1 datagrams wait, 3 bytes are unread\n",
        ],
    );
    assert!(run(99).contains("connected to server:1, 1 byte is unread\n"));
    assert!(run(100).contains("connected to server:1\n"));
}

#[test]
fn what_a_process_leaves_behind_is_found_and_told() {
    for what in ["a task", "a socket"] {
        let failure = polder_sim::run(1, |sim| leaves(sim, what)).failure.unwrap();
        let words = "the process of \"client\" has returned, and leaves behind";
        assert!(failure.contains(words), "{failure}");
        assert!(failure.contains(&format!("\n    {what}")), "{failure}");
    }
    assert_eq!(
        polder_sim::run(1, |sim| leaves(sim, "nothing")).failure,
        None
    );
}

#[test]
fn a_condition_may_say_why_it_does_not_hold() {
    let report = polder_sim::run(1, |sim: Sim| async move {
        sim.always("few", || Err::<(), _>(format!("{} are many", 7)));
        sim.sleep(ms(1)).await;
    });
    let failure = report.failure.unwrap();
    assert!(failure.contains("always \"few\": 7 are many"), "{failure}");
    let report = polder_sim::run(1, |sim: Sim| async move {
        sim.eventually("all", secs(1), || Err::<(), _>("3 of 5"));
        sim.quiesce();
        sim.sleep(secs(5)).await;
    });
    let failure = report.failure.unwrap();
    let words = "eventually \"all\": it was not true within 1.000000 s of quiet: 3 of 5";
    assert!(failure.contains(words), "{failure}");
}

/// The report of a wait in vain says whether any other event was still due.
#[test]
fn wait_in_vain_says_if_anything_else_due() {
    let words = "has not returned within 1000.000000 s, and never would";
    let wait = |is_idle: bool| {
        let report = polder_sim::run(1, move |sim: Sim| async move {
            sim.host("other").start(move || async move {
                if is_idle {
                    std::future::pending().await
                } else {
                    sleep(secs(2_000)).await
                }
            });
            let stuck = sim.host("stuck").start(std::future::pending::<()>);
            stuck.finished().within(secs(1_000)).await;
        });
        report.failure.unwrap()
    };
    assert!(wait(true).contains(words), "{}", wait(true));
    assert!(!wait(false).contains("never would"), "{}", wait(false));
}

/// A check of which all seeds are calm and one of an empty history show nothing and fail.
#[test]
fn check_all_calm_or_empty_history_fails() {
    let words = |f: &dyn Fn()| {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        let panic = result
            .err()
            .map(|it| *it.downcast::<String>().expect("in words"));
        panic.unwrap_or_default()
    };
    let chaos = |seeds: std::ops::Range<u64>| {
        polder_sim::check(seeds, |sim: Sim| async move {
            sim.chaos(secs(1)).cuts();
        });
    };
    let calm = words(&|| chaos(0..10));
    assert!(calm.contains("the seeds 0 to 9 are calm"), "{calm}");
    assert_eq!(words(&|| chaos(0..11)), "");
    assert_eq!(
        words(&|| chaos(0..1)),
        "",
        "of one seed that is not expected"
    );
    let history = |operations: u64| {
        polder_sim::check(0..3, move |sim: Sim| async move {
            if sim.seed() < operations {
                sim.history().invoke("a", 1_u32).answer(2_u32);
            }
            sim.history().linearizable(Doubles);
        });
    };
    let empty = words(&|| history(0));
    assert!(
        empty.contains("the history of u32 and u32 has operations"),
        "{empty}"
    );
    assert_eq!(words(&|| history(1)), "", "it has some, for one seed");
}

struct Doubles;

impl polder_sim::Model for Doubles {
    type State = ();
    type Input = u32;
    type Output = u32;

    fn begin(&self) {}

    fn step(&self, _: &(), input: &u32, output: Option<&u32>) -> Option<()> {
        output.is_none_or(|it| *it == 2 * input).then_some(())
    }
}

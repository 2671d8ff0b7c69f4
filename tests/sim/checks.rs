//! Checks that a test asks for: retry storms, and what processes leave behind.

use std::io::Result;

use polder::future::pending;
use polder::io::AsyncReadExt;
use polder::net::{TcpListener, TcpStream};
use polder::sim::{self, Sim};
use polder::time::sleep;

use super::{ms, secs};

/// Connects to nobody, so often with so long in between.
async fn retries(sim: Sim, pause: u64, times: u32) {
    sim.most_connects(100);
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
        let failure = sim::run(seed, |sim| retries(sim, 0, 1_000))
            .failure
            .unwrap();
        assert!(
            failure.contains("retry storm: \"client\" connects too often"),
            "{failure}"
        );
        assert_eq!(sim::run(seed, |sim| retries(sim, 20, 1_000)).failure, None);
        assert_eq!(sim::run(seed, |sim| retries(sim, 0, 40)).failure, None);
    }
}

/// A client that returns: with everything, or leaving something.
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

#[test]
fn what_a_process_leaves_behind_is_found_and_told() {
    for what in ["a task", "a socket"] {
        let failure = sim::run(1, |sim| leaves(sim, what)).failure.unwrap();
        let words = "the process of \"client\" has returned, and leaves behind";
        assert!(failure.contains(words), "{failure}");
        assert!(failure.contains(&format!("\n    {what}")), "{failure}");
    }
    assert_eq!(sim::run(1, |sim| leaves(sim, "nothing")).failure, None);
}

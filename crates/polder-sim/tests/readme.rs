//! What is written first: the examples that README.md lists by task, some of them in simulated
//! worlds, where a minute takes no time; and the tests with which docs/SIMULATION.md begins.

use std::io::Result;
use std::sync::Arc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, serve};
use polder::time::sleep;
use polder_sim::check;

#[allow(dead_code, reason = "it has a `main`")]
#[path = "../../../examples/chat.rs"]
mod chat;
#[allow(dead_code, reason = "it has a `main`")]
#[path = "../../../examples/echo.rs"]
mod echo;
#[allow(dead_code, reason = "it has a `main`")]
#[path = "../examples/simulated.rs"]
mod simulated;

/// The first test of docs/SIMULATION.md.
mod first {
    include!("pages/first.rs");
}
/// Its library without polder, and the test of that.
#[path = "pages/frames.rs"]
mod frames;
mod library {
    use super::frames;
    include!("pages/library.rs");
}

const README: &str = include_str!("../../../README.md");

const MINUTE: Duration = Duration::from_secs(60);

async fn bind() -> Result<TcpListener> {
    TcpListener::bind("0.0.0.0:7000").await
}

#[test]
fn each_task_has_an_example_of_at_most_80_lines() {
    let (_, list) = README.split_once("\n## Examples\n").expect("the list");
    let (list, _) = list.split_once("\n## ").expect("its end");
    let links = list.split("](").skip(1);
    let paths: Vec<_> = links.filter_map(|link| link.split(')').next()).collect();
    let programs: Vec<_> = paths.iter().filter(|path| path.ends_with(".rs")).collect();
    assert!(!programs.is_empty(), "{paths:?}");
    for path in programs {
        let file = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        let lines = std::fs::read_to_string(file).expect(path).lines().count();
        assert!(lines <= 80, "{path} has {lines} lines");
    }
}

/// The page has them as they run here.
#[test]
fn simulation_page_has_its_tests_verbatim() {
    let page = include_str!("../../../docs/SIMULATION.md");
    for program in [
        include_str!("pages/first.rs"),
        include_str!("pages/frames.rs"),
        include_str!("pages/library.rs"),
    ] {
        assert!(page.contains(program), "it lacks:\n{program}");
    }
}

/// Echo closes the connection of a client that is silent for a minute.
#[test]
fn echo_closes_client_silent_for_a_minute() {
    check(0..4, |sim| async move {
        let server = || async { serve(bind().await?, echo::client).await };
        sim.host("server").start(server);
        let client = sim.host("client").start(|| async {
            let mut silent = TcpStream::connect("server:7000").await?;
            let mut other = TcpStream::connect("server:7000").await?;
            for round in 0..4 {
                sleep(MINUTE / 2).await;
                other.write_all(&[round]).await?;
                other.read_exact(&mut [0]).await?;
            }
            assert_eq!(silent.read(&mut [0]).await?, 0);
            Result::Ok(())
        });
        client.finished().within(10 * MINUTE).await.unwrap();
    });
}

/// Chat disconnects a client that reads nothing and delays no other.
#[test]
fn chat_drops_stalled_reader_delays_no_other() {
    const LINES: usize = 2_000;

    check(0..4, |sim| async move {
        sim.host("server").start(|| async {
            let room = Arc::new(chat::Room::default());
            let client = |stream, peer| {
                let room = room.clone();
                async move { _ = chat::client(stream, peer, &room).await }
            };
            serve(bind().await?, client).await
        });
        let clients = sim.host("client").start(|| async {
            let mut stuck = TcpStream::connect("server:7000").await?;
            let mut other = TcpStream::connect("server:7000").await?;
            let mut talker = TcpStream::connect("server:7000").await?;
            let line = "x".repeat(999) + "\n";
            let talk = async {
                for _ in 0..LINES {
                    talker.write_all(line.as_bytes()).await?;
                }
                Result::Ok(())
            };
            let listen = async { other.read_exact(&mut vec![0; LINES * line.len()]).await };
            let (talked, listened) = polder::future::zip(talk, listen).await;
            talked.and(listened)?;
            sleep(MINUTE).await;
            let mut bytes = Vec::new();
            stuck.read_to_end(&mut bytes).await?;
            assert!(bytes.len() < LINES * line.len(), "{}", bytes.len());
            Result::Ok(())
        });
        clients.finished().within(10 * MINUTE).await.unwrap();
    });
}

/// The planted bug is found with what it takes and without it no seed fails.
#[test]
fn planted_bug_found_and_fixed_program_passes() {
    simulated::each_request_counts_once(false);
    let panic = std::panic::catch_unwind(|| simulated::each_request_counts_once(true));
    let report = panic.expect_err("the bug is not found");
    let report = report.downcast::<String>().expect("a report");
    assert!(report.contains(" needed: loss of "), "{report}");
}

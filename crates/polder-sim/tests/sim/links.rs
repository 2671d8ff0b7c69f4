//! Runs of losses, slow links, unreachable hosts, and the reports about links.

use std::io::{ErrorKind, Result};
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_sim::{Latency, Sim};

use super::{ask, echo, ms, secs};

/// Sends numbered datagrams from a host to the test, and returns those that arrived.
async fn numbers(sim: &Sim, count: u32) -> Vec<u32> {
    let near = UdpSocket::bind("0.0.0.0:7").await.unwrap();
    let far = sim.host("far").start(move || async move {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        for number in 0..count {
            socket
                .send_to(&number.to_be_bytes(), "test:7")
                .await
                .unwrap();
        }
    });
    let (mut all, mut bytes) = (Vec::new(), [0; 4]);
    while let Ok(received) = timeout(ms(100), near.recv(&mut bytes)).await {
        received.unwrap();
        all.push(u32::from_be_bytes(bytes));
    }
    far.finished().within(ms(1)).await;
    all
}

/// Returns the lengths of the runs of missing numbers.
fn rows(all: &[u32]) -> Vec<u32> {
    let gaps = all.windows(2).map(|it| it[1] - it[0] - 1);
    gaps.filter(|it| *it > 0).collect()
}

/// Losses come in rows that are as long as was said.
#[test]
fn losses_come_in_rows_as_set() {
    let sum = |begin: f64, mean: u32| {
        let report = polder_sim::run(77, move |sim| async move {
            sim.links()
                .latency(Latency::fixed(ms(1)))
                .bursts(begin, mean);
            let rows = rows(&numbers(&sim, 2_000).await);
            let lost: u32 = rows.iter().sum();
            Err::<(), String>(format!("rows: {}, lost: {lost};", rows.len()))
        });
        let failure = report.failure.unwrap();
        let number = |word: &str| -> u32 {
            let rest = failure.split_once(word).unwrap().1;
            rest.split([',', ';'])
                .next()
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        (number("rows: "), number("lost: "), failure)
    };
    let (rows, lost, failure) = sum(0.01, 10);
    // About 18 runs of 10.
    assert!(
        (8..32).contains(&rows) && (5..20).contains(&(lost / rows)),
        "{rows} {lost}"
    );
    assert!(failure.contains("loss of far→test datagram "), "{failure}");
    let (rows, lost, _) = sum(0.01, 1);
    assert!((8..40).contains(&rows) && lost < 2 * rows, "{rows} {lost}");
    let (rows, _, failure) = sum(0.0, 10);
    assert!(
        rows == 0 && failure.contains("  the last events"),
        "{failure}"
    );
}

#[test]
fn bursts_delay_tcp_and_end_with_quiet() {
    polder_sim::check(0..10, |sim| async move {
        sim.host("echo").start(echo);
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("echo:1").await?;
        sim.links().bursts(0.1, 4);
        for _ in 0..20 {
            ask(&mut stream).await?;
        }
        sim.links().bursts(1.0, 1_000_000);
        sim.quiesce();
        timeout(secs(1), ask(&mut stream)).await?
    });
}

/// Sends `length` bytes to a new host, and returns how long that took.
async fn takes(sim: &Sim, name: &str, length: usize) -> Duration {
    let far = sim.host(name).start(move || async move {
        let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes.len(), length);
        now()
    });
    sleep(ms(1)).await;
    let start = now();
    let mut stream = TcpStream::connect((name, 1)).await.unwrap();
    stream.write_all(&vec![7; length]).await.unwrap();
    drop(stream);
    far.finished().within(secs(600)).await - start
}

#[test]
fn a_bandwidth_can_be_taken_back() {
    polder_sim::check(0..5, |sim| async move {
        sim.links().bandwidth(10_000);
        let slow = takes(&sim, "slow", 50_000).await;
        assert!(slow > secs(5), "{slow:?}");
        sim.host("fast");
        sim.link("test", "fast").unlimited();
        let fast = takes(&sim, "fast", 50_000).await;
        assert!(fast < ms(500), "{fast:?}");
        // The other links are unaffected.
        let slow = takes(&sim, "other", 50_000).await;
        assert!(slow > secs(5), "{slow:?}");
    });
}

/// Reads each connection to its end, one after the other, and then closes it.
async fn sink() {
    let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}

/// Returns the time until a host has read `length` bytes.
async fn upload(length: usize) -> Duration {
    let start = now();
    let mut stream = TcpStream::connect("sink:1").await.unwrap();
    stream.write_all(&vec![7; length]).await.unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    now() - start
}

/// Sends to a host while chaos makes its link slow, and fails; returns the report.
fn slow_by_chance(seed: u64) -> String {
    let report = polder_sim::run(seed, |sim| async move {
        sim.host("sink").start(sink);
        sleep(ms(1)).await;
        sim.chaos(secs(30)).slow();
        let mut most = secs(0);
        while sim.now() < secs(30) {
            most = most.max(upload(60_000).await);
            sleep(ms(500)).await;
        }
        sim.quiesce();
        let after = upload(60_000).await;
        assert!(after < secs(3), "{after:?} after quiet");
        Err::<(), String>(format!("most: {} ms;", most.as_millis()))
    });
    report.failure.unwrap()
}

#[test]
fn chaos_makes_links_slow_for_a_while() {
    let mut slow = 0;
    for seed in 10..18 {
        let words = slow_by_chance(seed);
        let most = words.split_once("most: ").unwrap().1;
        let most: u64 = most.split(' ').next().unwrap().parse().unwrap();
        let is_drawn = !words.contains("slow links: none");
        assert!(is_drawn || most < 1_000, "{words}");
        if is_drawn && words.contains(" B/s (") && most > 1_000 {
            slow += 1;
        }
    }
    assert!(slow > 1, "{slow} of 8 seeds");
}

#[test]
fn router_error_fails_connect_at_once() {
    polder_sim::check(0..10, |sim| async move {
        sim.host("echo").start(echo);
        sleep(ms(1)).await;
        let mut before = TcpStream::connect("echo:1").await?;
        let silent = sim.cut(&["test"], &["echo"]);
        assert!(
            timeout(secs(20), TcpStream::connect("echo:1"))
                .await
                .is_err()
        );
        // The error is reported on the next SYN.
        let waits = polder::spawn(TcpStream::connect((sim.host("echo").address(), 1)));
        sleep(ms(10)).await;
        let cut = silent.unreachable();
        let error = timeout(secs(2), waits).await?.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostUnreachable);
        #[cfg(unix)]
        assert_eq!(error.raw_os_error(), Some(libc::EHOSTUNREACH));
        for _ in 0..3 {
            let begun = now();
            let error = TcpStream::connect("echo:1").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostUnreachable);
            assert!(now() - begun < ms(5));
        }
        // The fault does not end an established connection.
        before.write_all(b"ping").await?;
        assert!(timeout(secs(20), before.read(&mut [0; 4])).await.is_err());
        drop(cut);
        let mut bytes = [0; 4];
        timeout(secs(60), before.read_exact(&mut bytes)).await??;
        ask(&mut TcpStream::connect("echo:1").await?).await
    });
}

/// A connection that times out says what a router has said.
#[test]
fn connect_timeout_carries_router_error() {
    polder_sim::check(0..2, |sim| async move {
        sim.host("echo").start(echo);
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("echo:1").await?;
        let _cut = sim.cut(&["test"], &["echo"]).unreachable();
        let start = now();
        let error = ask(&mut stream).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostUnreachable);
        assert!(now() - start > secs(13 * 60));
        Result::Ok(())
    });
}

/// A cut that says so in one direction is silent in the other.
#[test]
fn cut_reported_in_one_direction_only() {
    polder_sim::check(0..3, |sim| async move {
        sim.host("echo").start(echo);
        sleep(ms(1)).await;
        let _cut = sim.cut(&["echo"], &["test"]).one_way().unreachable();
        let late = TcpStream::connect_timeout("echo:1", secs(20)).await;
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        Result::Ok(())
    });
}

fn report_of<F: Future<Output = ()> + 'static>(test: fn(Sim) -> F) -> String {
    let report = polder_sim::run(1, move |sim| async move {
        test(sim).await;
        Err::<(), &str>("for its report")
    });
    report.failure.unwrap()
}

/// A report says where a loss is more than TCP lives with.
#[test]
fn report_says_loss_beyond_tcp() {
    let words = "a loss of more than 0.5 was set";
    let with = |loss: f64| {
        let report = polder_sim::run(1, move |sim| async move {
            sim.links().loss(loss);
            Err::<(), &str>("for its report")
        });
        report.failure.unwrap().contains(words)
    };
    assert_eq!(
        [0.1, 0.5, 0.6, 0.99, 1.0].map(with),
        [false, false, true, true, false]
    );
}

#[test]
fn holds_of_the_test_are_in_the_trace() {
    let words = report_of(|sim| async move {
        sim.host("far");
        let hold = sim.hold(&["test"], &["far"]);
        sleep(secs(1)).await;
        drop(hold);
        drop(sim.cut(&["test"], &["far"]));
    });
    for part in [
        "0.000000 s test: what is sent between it and far is held",
        "1.000000 s test: what was held between it and far comes",
        "test: cut off from far",
        "test: reaches far again",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

/// The longest latencies are added to the time without overflow.
#[test]
fn longest_latencies_do_not_overflow() {
    for latency in [Latency::heavy_tail, Latency::fixed] {
        polder_sim::check(0..3, move |sim| async move {
            sim.host("echo").start(echo);
            sleep(ms(1)).await;
            let mut stream = TcpStream::connect("echo:1").await?;
            ask(&mut stream).await?;
            let most = Duration::from_nanos(u64::MAX - sim.choose(2));
            (sim.links().latency(latency(most)))
                .duplication(0.5)
                .reordering(0.5)
                .bandwidth(1_000_000);
            let socket = UdpSocket::bind("0.0.0.0:0").await?;
            for _ in 0..200 {
                socket.send_to(b"late", "echo:1").await?;
            }
            assert!(timeout(secs(10), ask(&mut stream)).await.is_err());
            let limit = secs(10);
            let late = TcpStream::connect_timeout("echo:1", limit).await;
            assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
            Result::Ok(())
        });
    }
}

//! Keepalive and the user timeout: a silent peer is given up at the time that Linux does it, and no
//! other.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use polder::future;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Keepalive, TcpListener, TcpStream};
use polder::time::{now, sleep, timeout};
use polder_sim::{Latency, Sim};

use super::failing::{assert_contains, failure};
use super::{ask, echo, ms, secs};

fn keepalive(idle: u64, interval: u64, retries: u32) -> Option<Keepalive> {
    let keepalive = Keepalive::new().with_idle(secs(idle));
    Some(
        keepalive
            .with_interval(secs(interval))
            .with_retries(retries),
    )
}

/// Returns a connection of the test to the host "echo". Each way takes a millisecond.
async fn connected(sim: &Sim) -> Result<TcpStream> {
    sim.links().latency(Latency::fixed(ms(1)));
    sim.host("echo").start(echo);
    sleep(ms(1)).await;
    TcpStream::connect("echo:1").await
}

/// Waits until a read fails. Returns how long that took, and the error.
async fn until_error(stream: &mut TcpStream) -> (Duration, Error) {
    let start = now();
    let error = stream.read(&mut [0; 4]).await.expect_err("it fails");
    (now() - start, error)
}

/// A peer that has vanished is noticed after exactly idle plus interval times retries.
#[test]
fn vanished_peer_noticed_exactly_on_time() {
    polder_sim::check(0..40, |sim| async move {
        let mut stream = connected(&sim).await?;
        let (idle, interval) = (1 + sim.choose(100), 1 + sim.choose(30));
        let retries = 1 + sim.choose(10);
        let set = || stream.set_keepalive(keepalive(idle, interval, retries as u32));
        let is_set_before = sim.choose(2) == 0;
        if is_set_before {
            set()?;
        }
        sleep(ms(sim.choose(5_000))).await;
        let mut clone = stream.clone();
        ask(&mut clone).await?; // Its answer is the last sign of life.
        if !is_set_before {
            set()?;
        }
        let _cut = match sim.choose(2) {
            0 => Some(sim.cut(&["test"], &["echo"])),
            _ => {
                sim.host("echo").power_off();
                None
            }
        };
        let (took, error) = until_error(&mut stream).await;
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(took, secs(idle + interval * retries));
        assert_eq!(stream.read(&mut [0; 4]).await?, 0, "the error comes once");
        Result::Ok(())
    });
}

#[test]
fn a_living_peer_is_never_given_up() {
    polder_sim::check(0..10, |sim| async move {
        let mut stream = connected(&sim).await?;
        stream.set_keepalive(keepalive(1, 1, 1))?;
        // With round trips that take longer than an interval a probe is answered only later.
        let latency = [ms(1), ms(300), ms(490)][sim.choose(3) as usize];
        sim.links().latency(Latency::fixed(latency));
        let read = timeout(secs(1_000), stream.read(&mut [0; 4])).await;
        assert!(read.is_err(), "{read:?}");
        ask(&mut stream).await
    });
}

/// A program that answers nothing is alive while its machine is.
#[test]
fn silent_program_alive_with_its_machine() {
    polder_sim::check(0..3, |sim| async move {
        let mut stream = connected(&sim).await?;
        stream.set_keepalive(keepalive(1, 1, 1))?;
        let pause = sim.host("echo").pause();
        assert!(timeout(secs(100), ask(&mut stream)).await.is_err());
        drop(pause);
        stream.read_exact(&mut [0; 4]).await
    });
}

/// Probes count from zero when the peer has answered.
#[test]
fn probes_count_restarts_after_answer() {
    polder_sim::check(0..3, |sim| async move {
        let mut stream = connected(&sim).await?;
        stream.set_keepalive(keepalive(10, 1, 5))?;
        ask(&mut stream).await?;
        let cut = sim.cut(&["test"], &["echo"]);
        sleep(ms(13_500)).await; // Four of five probes are lost.
        drop(cut);
        sleep(ms(503)).await; // The fifth is answered after two milliseconds.
        let _cut = sim.cut(&["test"], &["echo"]);
        let (took, error) = until_error(&mut stream).await;
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(took, secs(15) - ms(1));
        Result::Ok(())
    });
}

/// A machine that has restarted resets at the first probe.
#[test]
fn restarted_machine_resets_first_probe() {
    polder_sim::check(0..3, |sim| async move {
        let mut stream = connected(&sim).await?;
        stream.set_keepalive(keepalive(10, 5, 3))?;
        ask(&mut stream).await?;
        sleep(ms(3)).await; // Until the answer is acknowledged.
        sim.host("echo").power_off();
        sim.host("echo").restart();
        let (took, error) = until_error(&mut stream).await;
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(
            took,
            secs(10) - ms(1),
            "the reset comes two milliseconds later"
        );
        Result::Ok(())
    });
}

/// A peer that is given up is reset if that reaches it.
#[test]
fn abandoned_peer_reset_if_reachable() {
    polder_sim::check(0..3, |sim| async move {
        sim.links().latency(Latency::fixed(ms(1)));
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let near = sim.host("near").start(|| async {
            let mut stream = TcpStream::connect("test:1").await?;
            stream.set_keepalive(keepalive(5, 1, 1))?;
            stream.read(&mut [0; 4]).await
        });
        let (mut far, _) = listener.accept().await?;
        let _cut = sim.cut(&["test"], &["near"]).one_way();
        let (_, error) = until_error(&mut far).await;
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let error = near.finished().within(secs(60)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        Result::Ok(())
    });
}

#[test]
fn keepalive_that_is_turned_off_notices_nothing() {
    polder_sim::check(0..3, |sim| async move {
        let mut stream = connected(&sim).await?;
        stream.set_keepalive(keepalive(1, 1, 3))?;
        ask(&mut stream).await?;
        sim.host("echo").power_off();
        sleep(ms(1_500)).await; // One probe was sent.
        stream.set_keepalive(None)?;
        let read = timeout(secs(1_000), stream.read(&mut [0; 4])).await;
        assert!(read.is_err(), "{read:?}");
        Result::Ok(())
    });
}

#[test]
fn the_default_times_are_those_of_linux() {
    polder_sim::check(0..1, |sim| async move {
        sim.limit(secs(3 * 3_600));
        let mut stream = connected(&sim).await?;
        stream.set_keepalive(Some(Keepalive::new()))?;
        assert_eq!(stream.keepalive()?, keepalive(7_200, 75, 9));
        ask(&mut stream).await?;
        sim.host("echo").power_off();
        let (took, error) = until_error(&mut stream).await;
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(took, secs(7_200 + 9 * 75), "tcp(7)");
        Result::Ok(())
    });
}

/// Data that waits for its acknowledgement is the retransmission's concern.
#[test]
fn unacknowledged_data_left_to_retransmission() {
    polder_sim::check(0..3, |sim| async move {
        let mut stream = connected(&sim).await?;
        stream.set_keepalive(keepalive(1, 1, 1))?;
        ask(&mut stream).await?;
        sim.host("echo").power_off();
        stream.write_all(b"ping").await?;
        let (took, error) = until_error(&mut stream).await;
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(took > secs(13 * 60), "{took:?}, as without keepalive");
        Result::Ok(())
    });
}

/// A deadlock is found although its connections are kept alive.
#[test]
fn deadlock_found_despite_keepalive() {
    for (is_cut, is_closed) in [(false, false), (true, false), (false, true)] {
        let words = failure(|| {
            polder_sim::check(0..1, |sim| async move {
                let mut stream = connected(&sim).await.unwrap();
                stream.set_keepalive(keepalive(1, 1, 3)).unwrap();
                if is_cut {
                    let cut = sim.cut(&["test"], &["echo"]);
                    sleep(ms(2_500)).await;
                    drop(cut);
                }
                if is_closed {
                    drop(stream);
                    future::pending::<()>().await;
                } else {
                    let _ = stream.read(&mut [0; 4]).await; // The echo waits as well.
                }
            });
        });
        assert_contains(&words, &["deadlock: no task is ready"]);
    }
}

/// Data that stays unacknowledged ends the connection with the user timeout.
#[test]
fn user_timeout_ends_unacknowledged() {
    polder_sim::check(0..20, |sim| async move {
        let mut stream = connected(&sim).await?;
        // As long as the 15 retransmissions without it, or longer.
        let limit = ms(1 + sim.choose(2_000_000));
        stream.set_user_timeout(Some(limit))?;
        ask(&mut stream).await?;
        sim.host("echo").power_off();
        sleep(secs(sim.choose(3))).await; // It says nothing about an idle connection.
        stream.write_all(b"ping").await?;
        let (took, error) = until_error(&mut stream).await;
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // Linux counts from the first retransmission (`retrans_stamp`).
        assert_eq!(took, ms(200) + limit);
        Result::Ok(())
    });
}

/// An acknowledgement in time restarts the user timeout.
#[test]
fn user_timeout_restarts_with_each_ack() {
    polder_sim::check(0..3, |sim| async move {
        let mut stream = connected(&sim).await?;
        stream.set_user_timeout(Some(secs(10)))?;
        for _ in 0..5 {
            let cut = sim.cut(&["test"], &["echo"]);
            stream.write_all(b"ping").await?;
            sleep(secs(5)).await;
            drop(cut);
            stream.read_exact(&mut [0; 4]).await?;
        }
        Result::Ok(())
    });
}

/// A window that stays closed ends the connection with the user timeout.
#[test]
fn user_timeout_ends_closed_window() {
    polder_sim::check(0..3, |sim| async move {
        sim.links().latency(Latency::fixed(ms(1)));
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let sets_late = sim.choose(2) == 0;
        let writer = sim.host("writer").start(move || async move {
            let mut stream = TcpStream::connect("test:1").await?;
            if !sets_late {
                stream.set_user_timeout(Some(secs(30)))?;
            }
            // The kernels take no more: both wait from then on.
            let bytes = [0; 16 * 1024];
            while timeout(secs(1), stream.write_all(&bytes)).await.is_ok() {}
            let start = now();
            if sets_late {
                stream.set_user_timeout(Some(secs(30)))?;
            }
            let error = stream.write_all(&bytes).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let took = now() - start;
            assert!((secs(28)..secs(31)).contains(&took), "{took:?}");
            Result::Ok(())
        });
        // It lives, and does not read.
        let (_stream, _) = listener.accept().await?;
        writer.finished().within(secs(100)).await
    });
}

/// With a user timeout keepalive probes until that has passed.
///
/// Linux's `tcp_keepalive_timer`, and what it did when it was asked (6.18).
#[test]
fn user_timeout_bounds_keepalive_probes() {
    let cases = [
        (keepalive(1, 1, 9), ms(2_500), secs(3)),
        (keepalive(1, 1, 1), ms(5_000), secs(5)),
        (keepalive(1, 1, 1), ms(500), secs(2)),
    ];
    polder_sim::check(0..3, move |sim| async move {
        drop(connected(&sim).await?);
        for (keepalive, limit, expected) in cases {
            let mut stream = TcpStream::connect("echo:1").await?;
            stream.set_keepalive(keepalive)?;
            stream.set_user_timeout(Some(limit))?;
            ask(&mut stream).await?;
            let cut = sim.cut(&["test"], &["echo"]);
            let (took, error) = until_error(&mut stream).await;
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert_eq!(took, expected);
            drop(cut);
        }
        Result::Ok(())
    });
}

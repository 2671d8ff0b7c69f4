//! The effects of faults on a program.

use std::io::{ErrorKind, Result};
use std::rc::Rc;

use polder::event::Event;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_sim::{Latency, Process, Sim};

use super::{ask, counting, echo, ms, secs};

async fn connected(sim: &Sim) -> Result<TcpStream> {
    sim.host("echo").start(echo);
    sleep(ms(1)).await;
    TcpStream::connect("echo:1").await
}

#[test]
fn a_connection_survives_a_cut_that_heals() {
    polder_sim::check(0..20, |sim| async move {
        let mut stream = connected(&sim).await?;
        ask(&mut stream).await?;
        let cut = sim.cut(&["test"], &["echo"]);
        assert!(timeout(secs(5), ask(&mut stream)).await.is_err());
        drop(cut);
        let mut bytes = [0; 4];
        timeout(secs(10), stream.read_exact(&mut bytes)).await??;
        timeout(secs(5), ask(&mut stream)).await?
    });
}

#[test]
fn a_cut_that_lasts_ends_the_connection_at_last() {
    polder_sim::check(0..3, |sim| async move {
        let mut stream = connected(&sim).await?;
        let _cut = sim.cut(&["test"], &["echo"]);
        let start = now();
        let error = ask(&mut stream).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let took = now() - start;
        // tcp(7): 15 retransmissions, "between 13 and 30 minutes".
        assert!(secs(13 * 60) < took && took < secs(30 * 60), "{took:?}");
        Result::Ok(())
    });
}

#[test]
fn a_cut_in_one_direction_lets_the_other_through() {
    polder_sim::check(0..10, |sim| async move {
        let mut stream = connected(&sim).await?;
        ask(&mut stream).await?;
        let cut = sim.cut(&["test"], &["echo"]).one_way();
        // The SYN of the echo host arrives, and its acknowledgement does not.
        assert!(timeout(secs(3), ask(&mut stream)).await.is_err());
        drop(cut);
        let cut = sim.cut(&["echo"], &["test"]).one_way();
        sleep(secs(20)).await;
        drop(cut);
        let mut bytes = [0; 4];
        timeout(secs(60), stream.read_exact(&mut bytes)).await??;
        Result::Ok(())
    });
}

#[test]
fn what_is_held_arrives_when_it_is_released() {
    polder_sim::check(0..10, |sim| async move {
        let mut stream = connected(&sim).await?;
        ask(&mut stream).await?;
        let hold = sim.hold(&["test"], &["echo"]);
        assert!(timeout(ms(150), ask(&mut stream)).await.is_err());
        drop(hold);
        let mut bytes = [0; 4];
        timeout(ms(20), stream.read_exact(&mut bytes)).await??;
        Result::Ok(())
    });
}

#[test]
fn a_reset_reaches_both_sides() {
    polder_sim::check(0..10, |sim| async move {
        let mut stream = connected(&sim).await?;
        ask(&mut stream).await?;
        sim.reset("test", "echo");
        let reset = stream.read(&mut [0; 4]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        Result::Ok(())
    });
}

/// A killed peer ends its connections and one without power says nothing.
#[test]
fn killed_peer_ends_powerless_is_silent() {
    polder_sim::check(0..10, |sim| async move {
        let mut stream = connected(&sim).await?;
        ask(&mut stream).await?;
        sim.host("echo").kill();
        assert_eq!(stream.read(&mut [0; 4]).await?, 0);
        sim.host("echo").restart();
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("echo:1").await?;
        ask(&mut stream).await?;
        sim.host("echo").power_off();
        assert!(
            timeout(secs(3_000), stream.read(&mut [0; 4]))
                .await
                .is_err()
        );
        sim.host("echo").restart();
        sleep(ms(1)).await;
        // The machine has lost all state of the connection.
        let reset = ask(&mut stream).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        Result::Ok(())
    });
}

#[test]
fn a_name_leads_to_its_host_after_a_while() {
    polder_sim::check(0..5, |sim| async move {
        let host = sim.host("store");
        let start = now();
        let found = polder::net::resolve("store:80").await?;
        assert_eq!(
            (found.len(), found[0].ip(), found[0].port()),
            (1, host.address(), 80)
        );
        assert!(now() > start);
        let unknown = polder::net::resolve("nobody:80").await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Other);
        Result::Ok(())
    });
}

/// A reader that starts when `go` is set; the test fills its window first.
async fn full(sim: &Sim) -> (Process<()>, TcpStream, Rc<Event>) {
    let go = Rc::new(Event::new());
    let wait = go.clone();
    let reader = sim.host("reader").start(move || {
        let wait = wait.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            wait.wait().await;
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(all.len(), 200_000);
        }
    });
    sleep(ms(1)).await;
    let mut stream = TcpStream::connect("reader:1").await.unwrap();
    let bytes = vec![7; 200_000];
    let mut rest = &bytes[..];
    while let Ok(written) = timeout(secs(1), stream.write(rest)).await {
        rest = &rest[written.unwrap()..];
    }
    assert_eq!(bytes.len() - rest.len(), 2 * 64 * 1024);
    (reader, stream, go)
}

/// Messages in flight when a cut begins arrive soon after it heals.
#[test]
fn in_flight_at_cut_arrives_after_heal() {
    polder_sim::check(0..10, |sim| async move {
        let mut stream = connected(&sim).await?;
        ask(&mut stream).await?;
        let cut = sim.cut(&["test"], &["echo"]);
        let sent = vec![7; 64 * 1024];
        stream.write_all(&sent).await?;
        sleep(secs(10)).await;
        drop(cut);
        let mut bytes = vec![0; sent.len()];
        timeout(secs(15), stream.read_exact(&mut bytes)).await??;
        assert_eq!(bytes, sent);
        Result::Ok(())
    });
}

/// A writer at a closed window learns that its reader has no power.
#[test]
fn closed_window_writer_learns_reader_is_down() {
    polder_sim::check(0..5, |sim| async move {
        let (reader, mut stream, _go) = full(&sim).await;
        reader.power_off();
        let late = stream.write_all(&[7; 100_000]).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
}

/// A writer at a closed window learns of a reset that was lost.
#[test]
fn closed_window_writer_learns_of_lost_reset() {
    polder_sim::check(0..5, |sim| async move {
        let (reader, mut stream, _go) = full(&sim).await;
        let cut = sim.cut(&["test"], &["reader"]);
        reader.kill();
        sleep(secs(5)).await;
        drop(cut);
        let reset = timeout(secs(60), stream.write_all(&[7; 100_000])).await;
        assert_eq!(reset?.unwrap_err().kind(), ErrorKind::ConnectionReset);
        Result::Ok(())
    });
}

/// A writer goes on after any number of lost window updates.
#[test]
fn writer_survives_lost_window_updates() {
    polder_sim::check(0..5, |sim| async move {
        let (reader, mut stream, go) = full(&sim).await;
        let cut = sim.cut(&["test"], &["reader"]);
        go.set();
        sleep(secs(600)).await;
        drop(cut);
        let rest = vec![7; 200_000 - 2 * 64 * 1024];
        timeout(secs(150), stream.write_all(&rest)).await??;
        stream.shutdown(Shutdown::Write)?;
        reader.finished().within(secs(60)).await;
        Result::Ok(())
    });
}

/// A writer waits for a paused reader as long as it takes.
#[test]
fn writer_waits_for_paused_reader() {
    polder_sim::check(0..5, |sim| async move {
        let (reader, mut stream, go) = full(&sim).await;
        // The reader's window updates are often lost: the sender probes for them.
        sim.link("test", "reader").loss(0.9);
        let pause = reader.pause();
        go.set();
        sleep(secs(3_000)).await;
        drop(pause);
        sleep(secs(1)).await;
        sim.link("test", "reader").loss(0.0);
        let rest = vec![7; 200_000 - 2 * 64 * 1024];
        timeout(secs(300), stream.write_all(&rest)).await??;
        stream.shutdown(Shutdown::Write)?;
        reader.finished().within(secs(60)).await;
        Result::Ok(())
    });
}

/// A reset reaches both sides although nothing comes through.
#[test]
fn reset_reaches_both_though_link_is_cut() {
    polder_sim::check(0..10, |sim| async move {
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let far = sim.host("far").start(|| async {
            let mut stream = TcpStream::connect("test:1").await.unwrap();
            stream.read(&mut [0; 4]).await.unwrap_err().kind()
        });
        let (mut stream, _) = listener.accept().await?;
        sleep(secs(1)).await;
        let _cut = sim.cut(&["test"], &["far"]);
        sim.reset("far", "test");
        let reset = stream.read(&mut [0; 4]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        let kind = far.finished().within(secs(1)).await;
        assert_eq!(kind, ErrorKind::ConnectionReset);
        Result::Ok(())
    });
}

/// A link with a bandwidth takes its time and shares it.
#[test]
fn bandwidth_takes_time_and_is_shared() {
    polder_sim::check(0..5, |sim| async move {
        const LENGTH: usize = 300_000;
        let receivers = ["one", "other"].map(|name| {
            sim.host(name).start(|| async {
                let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
                let mut ends = Vec::new();
                for _ in 0..2 {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    ends.push(polder::spawn(async move {
                        let mut bytes = Vec::new();
                        stream.read_to_end(&mut bytes).await.unwrap();
                        assert_eq!(bytes.len(), LENGTH);
                    }));
                }
                for end in ends {
                    end.await;
                }
                polder::time::now()
            })
        });
        sim.link("test", "one").bandwidth(100_000);
        sleep(ms(1)).await;
        let start = polder::time::now();
        for name in ["one", "other"] {
            for _ in 0..2 {
                let mut stream = TcpStream::connect((name, 1)).await?;
                polder::spawn(async move { stream.write_all(&[7; LENGTH]).await }).detach();
            }
        }
        let [one, other] = receivers;
        let slow = one.finished().within(secs(60)).await - start;
        let quick = other.finished().within(secs(60)).await - start;
        assert!(slow > secs(6) && slow < secs(9), "{slow:?}");
        assert!(quick < secs(1), "{quick:?}");
        Result::Ok(())
    });
}

/// Where cuts overlap, the link opens when the last one ends.
#[test]
fn overlapping_cuts_open_with_last() {
    polder_sim::check(0..20, |sim| async move {
        let near = UdpSocket::bind("0.0.0.0:7").await?;
        sim.host("far").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:7").await?;
            loop {
                socket.send_to(b"x", "test:7").await?;
                sleep(ms(10)).await;
            }
            #[allow(unreachable_code)]
            Result::Ok(())
        });
        sim.host("third");
        let comes = async || {
            // Datagrams from before, still in transit.
            while timeout(ms(5), near.recv(&mut [0])).await.is_ok() {}
            timeout(ms(100), near.recv(&mut [0])).await.is_ok()
        };
        assert!(comes().await);
        let one = sim.cut(&["test"], &["far", "third"]);
        let other = sim.cut(&["far"], &["test"]);
        assert!(!comes().await);
        drop(one);
        assert!(!comes().await, "the other one is there");
        let forth = other.one_way();
        assert!(!comes().await, "it is in this direction");
        drop(forth);
        assert!(comes().await);
        let back = sim.cut(&["test"], &["far"]).one_way();
        assert!(comes().await, "the other direction only");
        drop(back);
        // A cut that was healed together with all others has no effect when it is dropped later.
        let old = sim.cut(&["test"], &["far"]);
        sim.quiesce();
        assert!(comes().await);
        let _new = sim.cut(&["test"], &["far"]);
        drop(old);
        assert!(!comes().await);
        Result::Ok(())
    });
}

/// Messages that are held arrive when the hold ends, before those that were sent later.
#[test]
fn held_precedes_later_sent() {
    polder_sim::check(0..1, |sim| async move {
        sim.links().latency(Latency::fixed(ms(10)));
        let socket = UdpSocket::bind("0.0.0.0:7").await?;
        sim.host("sender").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:0").await?;
            for number in 0..2 {
                socket.send_to(&[number], "10.0.0.1:7").await?;
                sleep(ms(10)).await;
            }
            Result::Ok(())
        });
        let hold = sim.hold(&["sender"], &["test"]);
        // The second one is due in this moment, and is not held.
        sleep(ms(20)).await;
        drop(hold);
        for number in 0..2 {
            let mut byte = [9];
            socket.recv_from(&mut byte).await?;
            assert_eq!(byte, [number]);
        }
        Result::Ok(())
    });
}

/// Messages that are held arrive in order when the last hold ends.
#[test]
fn held_arrives_in_order_after_release() {
    polder_sim::check(0..20, |sim| async move {
        let near = UdpSocket::bind("0.0.0.0:7").await?;
        for (name, first) in [("b", 0_u8), ("a", 1)] {
            sim.host(name).start(move || async move {
                let socket = UdpSocket::bind("0.0.0.0:0").await?;
                // Alternates with the other host, each sending in order.
                sleep(ms(1 + 20 * u64::from(first))).await;
                for n in 0..5 {
                    socket.send_to(&[2 * n + first], "test:7").await?;
                    sleep(ms(40)).await;
                }
                Result::Ok(())
            });
        }
        let all = sim.hold(&["test"], &["a", "b"]);
        let again = sim.hold(&["a", "b"], &["test"]).one_way();
        sleep(secs(1)).await;
        drop(all);
        assert!(timeout(secs(1), near.recv(&mut [0])).await.is_err());
        drop(again);
        for n in 0..10 {
            let mut byte = [0];
            near.recv(&mut byte).await?;
            assert_eq!(byte, [n]);
        }
        Result::Ok(())
    });
}

#[test]
fn a_pause_ends_itself_and_no_other_one() {
    polder_sim::check(0..20, |sim| async move {
        let (host, seen) = counting(&sim);
        let runs = async || {
            let before = seen.get();
            sleep(ms(100)).await;
            seen.get() > before
        };
        assert!(runs().await);
        let (one, other) = (host.pause(), host.pause());
        assert!(!runs().await);
        drop(one);
        assert!(!runs().await);
        sim.quiesce();
        assert!(runs().await);
        let new = host.pause();
        drop(other);
        assert!(!runs().await, "the old one ended with all faults");
        drop(new);
        assert!(runs().await);
    });
}

//! Machines that are suspended: their clocks, their timers, and their connections.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Result};
use std::rc::Rc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Keepalive, TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_sim::{Exit, Latency, Sim};

use super::{ask, counting, echo, ms, secs};

const HOUR: u64 = 3_600;

/// The clock of a suspended machine stands still and its timers are later by that time.
#[test]
fn suspended_clock_stops_timers_shift() {
    for drift in [0, 250_000, -500_000] {
        polder_sim::check(0..5, move |sim| async move {
            sim.limit(secs(10 * HOUR));
            let host = sim.host("host");
            host.clock().drift(drift);
            let nap = host.start(|| async {
                let start = now();
                sleep(secs(20)).await;
                now() - start
            });
            let ends = secs(20) * 1_000_000 / (1_000_000 + drift) as u32;
            let mut asleep = ms(0);
            for lasts in [secs(1), ms(0), secs(HOUR)] {
                sleep(secs(3)).await;
                // It resumes when the last one ends.
                for suspension in [host.suspend(), host.suspend()] {
                    sleep(lasts).await;
                    drop(suspension);
                }
                asleep += 2 * lasts;
            }
            assert_eq!(nap.finished().await, Exit::Returned(secs(20)));
            assert_eq!(sim.now(), ends + asleep);
        });
    }
}

#[test]
fn a_suspension_ends_itself_and_no_other_one() {
    polder_sim::check(0..20, |sim| async move {
        let (host, ticks) = counting(&sim);
        // Returns the number of ticks of a second.
        let ticks = async || {
            let before = ticks.get();
            sleep(secs(1)).await;
            ticks.get() - before
        };
        assert_eq!(ticks().await, 100);
        let (one, pause, other) = (host.suspend(), host.pause(), host.suspend());
        assert!(host.is_suspended() && host.is_paused());
        assert_eq!(ticks().await, 0);
        drop(one);
        assert!(host.is_suspended());
        assert_eq!(ticks().await, 0);
        drop(other);
        assert!(!host.is_suspended() && host.is_paused());
        assert_eq!(ticks().await, 0);
        drop(pause);
        assert!(ticks().await > 0);
        let old = [host.suspend(), host.suspend()];
        assert_eq!(ticks().await, 0);
        sim.quiesce();
        assert!(!host.is_suspended() && !host.is_paused());
        assert_eq!(ticks().await, 100);
        let new = host.suspend();
        drop(old);
        assert_eq!(ticks().await, 0, "the old one ended with all faults");
        drop(new);
        assert_eq!(ticks().await, 100);
    });
}

/// Messages that arrive at a suspended machine are lost; those it sent before are not.
#[test]
fn arrivals_lost_sends_kept_when_suspended() {
    polder_sim::check(0..5, |sim| async move {
        sim.links().latency(Latency::fixed(ms(10)));
        let receiver = sim.host("receiver").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:9").await?;
            let (mut all, mut byte) = (Vec::new(), [0]);
            while let Ok(received) = timeout(secs(10), socket.recv(&mut byte)).await {
                received?;
                all.push(byte[0]);
            }
            Result::Ok(all)
        });
        sleep(ms(1)).await;
        let socket = UdpSocket::bind("0.0.0.0:9").await?;
        let send = async |n| socket.send_to(&[n], (receiver.address(), 9)).await;
        send(0).await?;
        sleep(ms(15)).await;
        send(1).await?;
        sleep(ms(5)).await;
        let suspension = receiver.suspend();
        sleep(ms(10)).await;
        send(2).await?;
        sleep(ms(15)).await;
        send(3).await?;
        sleep(ms(5)).await;
        drop(suspension);
        send(4).await?;
        assert_eq!(receiver.finished().within(secs(20)).await?, [0, 3, 4]);

        let test = sim.host("test").address();
        let sender = sim.host("sender").start(move || async move {
            let socket = UdpSocket::bind("0.0.0.0:0").await?;
            socket.send_to(b"7", (test, 9)).await?;
            sleep(secs(1)).await;
            Result::Ok(())
        });
        sleep(ms(5)).await;
        let _suspension = sender.suspend();
        timeout(ms(5), socket.recv(&mut [0])).await??;
        Result::Ok(())
    });
}

/// A peer retransmits until a suspended machine resumes.
#[test]
fn peer_retransmits_until_resume() {
    polder_sim::check(0..20, |sim| async move {
        let server = sim.host("echo").start(echo);
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("echo:1").await?;
        ask(&mut stream).await?;
        let suspension = server.suspend();
        assert!(timeout(secs(100), ask(&mut stream)).await.is_err());
        let limit = secs(5);
        let error = TcpStream::connect_timeout("echo:1", limit).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(suspension);
        timeout(secs(120), stream.read_exact(&mut [0; 4])).await??;
        timeout(secs(1), ask(&mut stream)).await?
    });
}

fn keepalive(idle: u64) -> Option<Keepalive> {
    let keepalive = Keepalive::new().with_idle(secs(idle));
    Some(keepalive.with_interval(secs(1)).with_retries(3))
}

/// The timers of a suspended kernel go on where they were.
#[test]
fn suspended_kernel_timers_resume() {
    polder_sim::check(0..5, |sim| async move {
        sim.limit(secs(10 * HOUR));
        sim.links().latency(Latency::fixed(ms(1)));
        sim.host("echo").start(echo);
        let start = now();
        let client = sim.host("client").start(move || async move {
            sleep(ms(1)).await;
            let mut stream = TcpStream::connect("echo:1").await?;
            ask(&mut stream).await?;
            stream.set_keepalive(keepalive(5))?;
            stream.set_user_timeout(Some(secs(9)))?;
            sleep(start + secs(3) - now()).await;
            ask(&mut stream).await?;
            sleep(secs(20)).await;
            ask(&mut stream).await
        });
        let retransmissions = Rc::new(RefCell::new(Vec::new()));
        let seen = retransmissions.clone();
        sim.on_event(move |event| {
            if event.host == "client" && event.words.starts_with("sends ") {
                seen.borrow_mut().push(event.time);
            }
        });
        sleep(secs(2)).await;
        let cut = sim.cut(&["client"], &["echo"]);
        sleep(ms(1_300)).await;
        // It has retransmitted after 200 ms, and does so again 400 ms later.
        let suspension = client.suspend();
        sleep(secs(HOUR)).await;
        drop((cut, suspension));
        sleep(secs(4)).await;
        let expected = [ms(3_200), secs(HOUR) + ms(3_600)];
        assert_eq!(*retransmissions.borrow(), expected);
        // Nothing is under way now, and the connection is kept alive.
        let suspension = client.suspend();
        sleep(secs(HOUR)).await;
        drop(suspension);
        client.finished().within(secs(30)).await
    });
}

/// An acknowledgement that a suspended machine misses is asked for again.
#[test]
fn missed_acknowledgement_is_asked_again() {
    polder_sim::check(0..5, |sim| async move {
        sim.links().latency(Latency::fixed(ms(10)));
        let client = sim.host("client").start(|| async {
            let mut stream = TcpStream::connect("test:1").await?;
            stream.write_all(b"ping").await?;
            sleep(secs(10)).await;
            Result::Ok(())
        });
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let (mut stream, _) = listener.accept().await?;
        stream.read_exact(&mut [0; 4]).await?;
        let again = Rc::new(Cell::new(0));
        let count = again.clone();
        sim.on_event(move |event| {
            let is_again = event.host == "client" && event.words.starts_with("sends ");
            count.set(count.get() + u32::from(is_again));
        });
        sleep(ms(5)).await;
        let suspension = client.suspend();
        sleep(secs(1)).await;
        drop(suspension);
        client.finished().within(secs(20)).await?;
        assert_eq!(again.get(), 1);
        Result::Ok(())
    });
}

/// A machine that is suspended for too long finds its connection reset.
#[test]
fn suspended_too_long_finds_reset() {
    polder_sim::check(0..10, |sim| async move {
        let server = sim.host("server").start(|| async {
            let listener = TcpListener::bind("0.0.0.0:1").await?;
            let (mut stream, _) = listener.accept().await?;
            stream.set_keepalive(keepalive(10))?;
            stream.read(&mut [0]).await
        });
        let client = sim.host("client").start(|| async {
            let mut stream = TcpStream::connect("server:1").await?;
            sleep(secs(5)).await;
            ask(&mut stream).await
        });
        sleep(secs(1)).await;
        let suspension = client.suspend();
        let error = server.finished().within(secs(20)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(suspension);
        let error = client.finished().within(secs(10)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        Result::Ok(())
    });
}

/// A writer does not wait for ever for a suspended reader as it does for a paused one.
#[test]
fn suspended_reader_bounds_writers_wait() {
    polder_sim::check(0..3, |sim| async move {
        let reader = sim.host("reader").start(|| async {
            let listener = TcpListener::bind("0.0.0.0:1").await?;
            let (mut stream, _) = listener.accept().await?;
            sleep(secs(1)).await;
            stream.read_to_end(&mut Vec::new()).await
        });
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("reader:1").await?;
        let bytes = vec![7; 1 << 20];
        let write = timeout(ms(500), stream.write_all(&bytes)).await;
        assert!(write.is_err(), "its buffer is full");
        let _suspension = reader.suspend();
        let start = sim.now();
        let error = stream.write_all(&bytes).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let took = sim.now() - start;
        assert!(secs(13 * 60) < took && took < secs(30 * 60), "{took:?}");
        Result::Ok(())
    });
}

/// Probes that a suspended reader did not answer do not count after it has resumed.
#[test]
fn probes_during_suspension_do_not_count() {
    polder_sim::check(0..3, |sim| async move {
        let reader = sim.host("reader").start(|| async {
            let listener = TcpListener::bind("0.0.0.0:1").await?;
            let (mut stream, _) = listener.accept().await?;
            sleep(secs(300)).await;
            stream.read_to_end(&mut Vec::new()).await
        });
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("reader:1").await?;
        let bytes = vec![7; 1 << 20];
        let writer = polder::spawn(async move { stream.write_all(&bytes).await });
        // About 13 probes in the first one, and 5 in the second one: it gives up after 15.
        for _ in 0..2 {
            sleep(secs(1)).await;
            let suspension = reader.suspend();
            sleep(secs(600)).await;
            drop(suspension);
            sleep(secs(140)).await;
        }
        writer.await?;
        let read = reader.finished().within(secs(60)).await?;
        assert_eq!(read, 1 << 20);
        Result::Ok(())
    });
}

#[test]
fn suspended_sends_to_itself_arrive_on_resume() {
    let micros = std::time::Duration::from_micros;
    polder_sim::check(0..10, move |sim| async move {
        let start = now();
        let host = sim.host("host").start(move || async move {
            let listener = TcpListener::bind("127.0.0.1:1").await?;
            let socket = UdpSocket::bind("127.0.0.1:1").await?;
            let mut stream = TcpStream::connect("127.0.0.1:1").await?;
            let (mut other, _) = listener.accept().await?;
            sleep(start + secs(1) - now()).await;
            let sent = now();
            socket.send_to(b"hello", "127.0.0.1:1").await?;
            stream.write_all(b"ping").await?;
            assert_eq!(socket.recv(&mut [0; 8]).await?, 5);
            other.read_exact(&mut [0; 4]).await?;
            Result::Ok(now() - sent)
        });
        // It takes 10 µs.
        sleep(secs(1) + micros(5)).await;
        let suspension = host.suspend();
        let events = Rc::new(Cell::new(0));
        let count = events.clone();
        sim.on_event(move |event| count.set(count.get() + u32::from(event.host == "host")));
        sleep(secs(60)).await;
        assert_eq!(events.get(), 0, "its kernel does nothing");
        drop(suspension);
        let took = host.finished().within(secs(1)).await?;
        assert!(took <= micros(10), "{took:?}");
        Result::Ok(())
    });
}

/// The end of a suspended process is seen when its machine resumes.
#[test]
fn suspended_process_end_seen_on_resume() {
    polder_sim::check(0..10, |sim| async move {
        let server = sim.host("echo").start(echo);
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("echo:1").await?;
        ask(&mut stream).await?;
        // Until the answer is acknowledged.
        sleep(secs(1)).await;
        let suspension = server.suspend();
        sleep(secs(600)).await;
        server.kill();
        let read = timeout(secs(60), stream.read(&mut [0])).await;
        assert!(read.is_err(), "{read:?}");
        server.restart();
        let limit = secs(5);
        assert!(TcpStream::connect_timeout("echo:1", limit).await.is_err());
        drop(suspension);
        assert_eq!(timeout(secs(5), stream.read(&mut [0])).await??, 0);
        let mut stream = TcpStream::connect_timeout("echo:1", limit).await?;
        timeout(secs(1), ask(&mut stream)).await?
    });
}

/// A message is held while its receiver is suspended and arrives if it is awake then.
#[test]
fn message_held_until_receiver_resumes() {
    for (is_awake, arrives) in [(true, true), (false, false)] {
        polder_sim::check(0..5, move |sim| async move {
            let host = sim.host("host").start(|| async {
                let socket = UdpSocket::bind("0.0.0.0:1").await?;
                timeout(secs(60), socket.recv(&mut [0; 8])).await?
            });
            sleep(ms(1)).await;
            let hold = sim.hold(&["test"], &["host"]);
            let suspension = host.suspend();
            let socket = UdpSocket::bind("0.0.0.0:0").await?;
            socket.send_to(b"hello", "host:1").await?;
            sleep(secs(1)).await;
            if is_awake {
                drop(suspension);
                drop(hold);
            } else {
                drop(hold);
                sleep(secs(1)).await;
                drop(suspension);
            }
            let received = host.finished().within(secs(120)).await;
            assert_eq!(received.is_ok(), arrives);
            Result::Ok(())
        });
    }
}

/// A machine that loses its power while it is suspended forgets what it has sent to itself.
#[test]
fn suspended_power_loss_forgets_own_sends() {
    for is_off_first in [false, true] {
        polder_sim::check(0..3, move |sim| async move {
            let runs = Rc::new(Cell::new(0));
            let host = sim.host("host").start(move || {
                let run = runs.replace(runs.get() + 1);
                async move {
                    let socket = UdpSocket::bind("127.0.0.1:1").await?;
                    if run == 0 {
                        sleep(secs(1)).await;
                        socket.send_to(b"hello", "127.0.0.1:1").await?;
                    }
                    timeout(secs(60), socket.recv(&mut [0; 8])).await?
                }
            });
            // It takes 10 µs.
            sleep(secs(1) + Duration::from_micros(5)).await;
            let suspension = host.suspend();
            if is_off_first {
                host.power_off();
                sleep(secs(1)).await;
            } else {
                sleep(secs(1)).await;
                host.power_off();
            }
            host.restart();
            drop(suspension);
            let error = host
                .finished()
                .within(secs(120))
                .await
                .expect_err("nothing comes");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            Result::Ok(())
        });
    }
}

/// A machine that appears during a suspension does not reach it either.
#[test]
fn machine_appearing_does_not_reach_suspended() {
    polder_sim::check(0..3, |sim| async move {
        let server = sim.host("echo").start(echo);
        sleep(ms(1)).await;
        let suspension = server.suspend();
        let client = sim.host("late").start(|| async {
            let mut stream = TcpStream::connect("echo:1").await?;
            ask(&mut stream).await
        });
        sleep(secs(2)).await;
        assert!(client.is_up());
        drop(suspension);
        client.finished().within(secs(10)).await
    });
}

/// A lease by the monotonic clock is kept in a pause and broken by a suspension.
#[test]
fn lease_held_in_pause_broken_by_suspension() {
    for (is_suspended, last) in [(false, secs(1)), (true, secs(27) - ms(10))] {
        polder_sim::check(0..5, move |sim: Sim| async move {
            let last_use = Rc::new(Cell::new(secs(0)));
            let (used, time) = (last_use.clone(), sim.clone());
            // It has a lease of ten seconds, and three of them to spare.
            let holder = sim.host("holder").start(move || {
                let (used, time) = (used.clone(), time.clone());
                async move {
                    let ends = now() + secs(7);
                    while now() < ends {
                        used.set(time.now());
                        sleep(ms(10)).await;
                    }
                }
            });
            sleep(ms(1_005)).await;
            let stopped = if is_suspended {
                holder.suspend()
            } else {
                holder.pause()
            };
            sleep(secs(20)).await;
            drop(stopped);
            holder.finished().within(secs(10)).await;
            assert_eq!(last_use.get(), last);
        });
    }
}

/// A world in which all wait for a suspended machine is in a deadlock.
#[test]
fn all_waiting_for_suspended_is_deadlock() {
    let report = polder_sim::run(1, |sim| async move {
        let host = sim.host("host").start(|| sleep(secs(1)));
        sleep(ms(1)).await;
        let _suspension = host.suspend();
        host.finished().await;
    });
    let failure = report.failure.expect("nothing happens any more");
    assert!(failure.contains("deadlock: "), "{failure}");
    assert!(failure.contains("host: suspended"), "{failure}");
}

#[test]
#[should_panic = "the host \"test\" runs the test itself"]
fn the_test_cannot_be_suspended() {
    polder_sim::check(0..1, |sim| async move {
        let _suspension = sim.host("test").suspend();
    });
}

//! Clocks, names, descriptors, and the faults of a host's kernel.

use std::cell::Cell;
use std::io::{ErrorKind, Result};
use std::rc::Rc;
use std::time::Duration;

use polder::future::{self, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket, resolve, serve};
use polder::time::{now, sleep, timeout};
use polder_sim::{Exit, Latency, Sim};

use super::{counting, ms, secs};

/// A clock that drifts shows its own time and timers go by it.
#[test]
fn drifting_clock_drives_its_timers() {
    for (drift, takes) in [(0, 10_000), (250_000, 8_000), (-500_000, 20_000)] {
        polder_sim::check(0..3, move |sim| async move {
            let host = sim.host("host");
            host.clock().drift(drift);
            let nap = host.start(|| async {
                let start = now();
                sleep(secs(10)).await;
                now() - start
            });
            assert_eq!(nap.finished().await, Exit::Returned(secs(10)));
            assert_eq!(sim.now(), ms(takes));
            // The test's own clock does not drift.
            let start = now();
            sleep(secs(1)).await;
            assert_eq!(now() - start, secs(1));
        });
    }
}

#[test]
fn a_clock_goes_on_however_far_it_is_set_ahead() {
    polder_sim::check(0..3, |sim| async move {
        let (host, count) = counting(&sim);
        for _ in 0..6 {
            host.clock().offset(Duration::MAX);
            sleep(ms(10)).await;
        }
        let before = count.get();
        sleep(secs(1)).await;
        assert_eq!(count.get(), before + 100);
    });
}

/// Bytes that a host has sent to itself are lost with its power.
///
/// They were in its memory, and a later life does not receive them.
#[test]
fn bytes_to_itself_lost_with_power() {
    polder_sim::check(0..10, |sim| async move {
        let lives = Rc::new(Cell::new(0));
        let host = sim.host("host").start(move || {
            let life = lives.replace(lives.get() + 1);
            async move {
                let socket = UdpSocket::bind("0.0.0.0:7").await.unwrap();
                socket.send_to(&[life], "127.0.0.1:7").await.unwrap();
                if life == 0 {
                    future::pending::<()>().await;
                }
                let mut bytes = [9];
                socket.recv_from(&mut bytes).await.unwrap();
                bytes[0]
            }
        });
        sleep(Duration::from_micros(5)).await;
        host.power_off();
        host.restart();
        assert_eq!(host.finished().within(ms(1)).await, 1);
    });
}

/// A timer that is set keeps to a clock that changes.
#[test]
fn timer_keeps_to_changing_clock() {
    polder_sim::check(0..3, |sim| async move {
        let nap = sim.host("host").start(|| sleep(secs(100)));
        sleep(secs(10)).await;
        nap.clock().drift(-500_000);
        sleep(secs(20)).await; // Ten more on that host.
        nap.clock().offset(secs(70));
        nap.clock().drift(0);
        sleep(secs(9)).await;
        assert!(nap.is_up());
        nap.finished().within(ms(1_001)).await;
        assert_eq!(sim.now(), secs(40));
    });
}

/// Timers are late by less than was said until everything is quiet.
#[test]
fn timers_late_within_limit_until_quiet() {
    polder_sim::check(0..10, |sim| async move {
        let host = sim.host("host");
        host.faults().late(ms(50));
        let naps = host.start(|| async {
            let mut late = Vec::new();
            for _ in 0..40 {
                let start = now();
                sleep(ms(100)).await;
                late.push(now() - start - ms(100));
            }
            late
        });
        let late = naps.finished().within(secs(6)).await;
        assert!(late.iter().all(|it| *it <= ms(50)), "{late:?}");
        for in_part in [
            |it: &&Duration| **it < ms(25),
            |it: &&Duration| **it > ms(25),
        ] {
            assert!(late.iter().filter(in_part).count() > 5, "{late:?}");
        }
        // Timers of another host are not late, nor is a timer that is pending at `quiesce`.
        let start = sim.now();
        host.faults().late(secs(1_000));
        let nap = host.start(|| sleep(secs(2)));
        sleep(secs(1)).await;
        assert_eq!(sim.now() - start, secs(1));
        sim.quiesce();
        nap.finished().within(secs(1)).await;
        assert_eq!(sim.now() - start, secs(2));
    });
}

/// A late timer is a fault that is told and none of a calm seed.
#[test]
fn late_timer_is_a_reported_fault() {
    for (seed, is_late) in [(0, false), (1, true)] {
        let report = polder_sim::run(seed, |sim| async move {
            let _chaos = sim.chaos(secs(10));
            let host = sim.host("host");
            host.faults().late(ms(50));
            host.start(|| sleep(secs(1))).finished().await;
            assert_eq!(sim.now(), secs(100), "on purpose");
        });
        let failure = report.failure.unwrap();
        let told = failure.contains("1 fault: host: a timer late by 0.0");
        assert_eq!(told, is_late, "{failure}");
    }
}

/// A clock that is set again and again makes no timer later that is due.
#[test]
fn clock_set_repeatedly_delays_no_due_timer() {
    polder_sim::check(0..20, |sim| async move {
        let host = sim.host("host");
        host.faults().late(ms(50));
        let nap = host.start(|| sleep(secs(10)));
        sleep(secs(1)).await;
        host.clock().offset(secs(60));
        for drift in 0..10 {
            host.clock().drift(drift);
            sleep(ms(5)).await;
        }
        nap.finished().within(Duration::ZERO).await;
    });
}

/// Quiet ends a drift and the faults that come by chance.
#[test]
fn quiet_ends_drift_and_chance_faults() {
    polder_sim::check(0..3, |sim| async move {
        let host = sim.host("host");
        host.clock().drift(500_000);
        host.faults().exhausted(1.0);
        sim.names().failure(1.0).missing(1.0).stale(1.0);
        sleep(secs(1)).await;
        sim.quiesce();
        assert_eq!(resolve("host:1").await.unwrap()[0].ip(), host.address());
        let start = sim.now();
        let nap = host.start(|| async {
            TcpListener::bind("0.0.0.0:1").await.unwrap();
            sleep(secs(3)).await
        });
        nap.finished().within(secs(10)).await;
        assert_eq!(sim.now() - start, secs(3));
    });
}

/// A name is what the test says and may be missing or stale.
#[test]
fn name_as_test_says_missing_or_stale() {
    polder_sim::check(0..5, |sim| async move {
        let [one, two] = ["one", "two"].map(|name| sim.host(name).address());
        let ask = async || {
            let found = resolve("service:1").await;
            found.map(|it| it.iter().map(|it| it.ip()).collect::<Vec<_>>())
        };
        assert_eq!(ask().await.unwrap_err().kind(), ErrorKind::Other);
        sim.names().set("service", [one]);
        assert_eq!(ask().await?, [one]);
        sim.names()
            .set("service", [two, one])
            .latency(Latency::fixed(secs(3)));
        let start = now();
        assert_eq!(ask().await?, [two, one]);
        assert_eq!(now() - start, secs(3));
        sim.names().stale(1.0);
        assert_eq!(ask().await?, [one]);
        sim.names().missing(1.0);
        assert_eq!(ask().await.unwrap_err().kind(), ErrorKind::Other);
        sim.names().failure(1.0);
        assert_eq!(ask().await.unwrap_err().kind(), ErrorKind::Other);
        sim.names()
            .failure(0.0)
            .missing(0.0)
            .stale(0.0)
            .set("service", []);
        assert_eq!(ask().await.unwrap_err().kind(), ErrorKind::Other);
        // A host's name too.
        sim.names().set("one", [two]);
        assert_eq!(resolve("one:1").await?[0].ip(), two);
        Result::Ok(())
    });
}

/// A server that greets clients, and counts them.
async fn greeter(count: Rc<Cell<u32>>) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:1").await?;
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ms(10)).await;
            continue;
        };
        count.set(count.get() + 1);
        polder::spawn(async move { stream.write_all(b"hello").await }).detach();
    }
}

async fn greeted(name: &str) -> Result<String> {
    let mut text = String::new();
    let mut stream = TcpStream::connect((name, 1)).await?;
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[test]
fn serve_goes_on_when_descriptors_are_free_again() {
    polder_sim::check(0..10, |sim| async move {
        let server = sim.host("server").start(|| async {
            let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
            serve(listener, |mut stream, _| async move {
                let _ = stream.read(&mut [0; 1]).await;
            })
            .await
        });
        server.descriptors(3);
        sleep(ms(1)).await;
        let mut streams = Vec::new();
        for _ in 0..5 {
            streams.push(TcpStream::connect("server:1").await?);
        }
        sleep(secs(1)).await;
        // Two are served, and the others wait in the queue.
        let mut last = streams.pop().unwrap();
        last.write_all(b"x").await?;
        assert!(timeout(secs(5), last.read(&mut [0; 1])).await.is_err());
        drop(streams);
        assert_eq!(timeout(secs(5), last.read(&mut [0; 1])).await??, 0);
        Result::Ok(())
    });
}

/// A connection that is aborted in the queue is passed over.
#[test]
fn aborted_connection_in_queue_is_skipped() {
    polder_sim::check(0..10, |sim| async move {
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        let server = sim.host("server").start(move || greeter(counted.clone()));
        server.faults().aborted(0.5);
        sleep(ms(1)).await;
        let mut resets = 0;
        for _ in 0..40 {
            match greeted("server").await {
                Ok(text) => assert_eq!(text, "hello"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                    resets += 1;
                }
            }
        }
        assert!((5..35).contains(&resets), "{resets} of 40");
        assert_eq!(count.get() + resets, 40);
    });
}

async fn echoes(sim: &Sim, length: usize) -> Duration {
    let start = sim.now();
    let echo = sim.host("echo").start(move || async move {
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let (stream, _) = listener.accept().await?;
        let (mut reader, mut writer) = stream.into_split();
        polder::io::copy(&mut reader, &mut writer).await
    });
    sleep(ms(1)).await;
    let stream = TcpStream::connect("echo:1").await.unwrap();
    let bytes: Vec<u8> = (0..length).map(|it| (it * 7) as u8).collect();
    let mut back = vec![0; length];
    let (mut reader, mut writer) = stream.into_split();
    let (read, written) = zip(reader.read_exact(&mut back), writer.write_all(&bytes)).await;
    read.unwrap();
    written.unwrap();
    assert_eq!(back, bytes);
    drop((reader, writer));
    let _ = echo.finished().within(secs(60)).await;
    sim.now() - start
}

/// Bytes come through short reads and writes and spurious readiness.
#[test]
fn bytes_survive_short_reads_and_spurious() {
    polder_sim::check(0..30, |sim| async move {
        for name in ["test", "echo"] {
            sim.host(name).faults().short(0.7).spurious(0.5);
        }
        echoes(&sim, 200_000).await;
        #[cfg(unix)]
        {
            let (mut near, mut far) = polder::net::unix::UnixStream::pair()?;
            let mut back = vec![0; 50_000];
            let (read, written) =
                zip(far.read_exact(&mut back), near.write_all(&[7; 50_000])).await;
            read?;
            written?;
        }
        Result::Ok(())
    });
}

#[test]
fn a_read_is_as_short_as_was_said() {
    polder_sim::check(0..10, |sim| async move {
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let mut near = TcpStream::connect("test:1").await?;
        let (mut far, _) = listener.accept().await?;
        near.write_all(&[7; 1_000]).await?;
        sleep(ms(1)).await;
        sim.host("test").faults().short(1.0);
        let read = far.read(&mut [0; 1_000]).await?;
        assert!((1..1_000).contains(&read), "{read}");
        // The remaining bytes are still reported.
        far.readable().await?;
        sim.host("test").faults().short(0.0);
        assert_eq!(far.read(&mut [0; 2_000]).await?, 1_000 - read);
        Result::Ok(())
    });
}

/// A server that panics on demand.
async fn dies_when_asked() {
    let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    panic!("by what was sent");
}

/// A process that panics can be started again where that is permitted.
#[test]
fn panicked_process_restarts_where_permitted() {
    polder_sim::check(0..5, |sim| async move {
        sim.permit_panics();
        let server = sim.host("server").start(dies_when_asked);
        for _ in 0..3 {
            sleep(ms(1)).await;
            let mut stream = TcpStream::connect("server:1").await?;
            stream.write_all(b"x").await?;
            assert_eq!(server.finished().await, Exit::Panicked);
            assert!(!server.is_up());
            // Its kernel has closed its sockets.
            assert_eq!(stream.read(&mut [0; 1]).await?, 0);
            let refused = TcpStream::connect("server:1").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            sim.quiesce();
            assert!(!server.is_up(), "that is its supervisor's");
            server.restart();
        }
        Result::Ok(())
    });
}

/// A panic of a process fails the run unless it is permitted and one of the test always.
#[test]
fn panic_fails_run_unless_permitted() {
    let process = polder_sim::run(1, |sim| async move {
        let host = sim.host("host").start(|| async { panic!("of a process") });
        let _: Exit<()> = host.finished().await;
    });
    let failure = process.failure.unwrap();
    let words = "the process of \"host\" panicked: of a process";
    assert!(failure.contains(words), "{failure}");
    let test = polder_sim::run(1, |sim| async move {
        sim.permit_panics();
        assert_eq!(sim.seed(), 2, "of the test");
    });
    assert!(test.failure.unwrap().contains("of the test"));
    // A process that has panicked returns no value to its waiter.
    let owed = polder_sim::run(1, |sim| async move {
        sim.permit_panics();
        let host = sim.host("host").start(|| async { panic!("of a process") });
        let () = host.finished().within(secs(1)).await;
    });
    let failure = owed.failure.unwrap();
    assert!(
        failure.contains("the process of \"host\" panicked"),
        "{failure}"
    );
    assert!(failure.contains("host: its process panics"), "{failure}");
}

#[test]
#[should_panic = "a drift is from"]
fn a_drift_without_measure_is_refused() {
    polder_sim::check(0..1, |sim| async move {
        sim.host("host").clock().drift(500_001);
    });
}

mod signals {
    use super::*;
    use polder::signal::{Signal, Signals, ctrl_c};
    use polder::stream::StreamExt;

    /// A signal comes to the listeners of its host alone.
    #[test]
    fn signal_reaches_its_hosts_listeners_only() {
        polder_sim::check(0..10, |sim| async move {
            let listen = || async {
                let mut signals = Signals::new([Signal::Term, Signal::Int]).unwrap();
                let mut came = Vec::new();
                while let Ok(signal) = timeout(secs(5), signals.next()).await {
                    came.push(signal.unwrap());
                }
                came
            };
            let [one, other] = ["one", "other"].map(|name| sim.host(name).start(listen));
            sleep(ms(1)).await;
            for signal in [Signal::Term, Signal::Int, Signal::Int, Signal::Chld] {
                one.signal(signal);
                sleep(ms(10)).await;
            }
            let came = one.finished().within(secs(10)).await;
            assert_eq!(came, [Signal::Term, Signal::Int, Signal::Int]);
            assert!(other.finished().within(secs(10)).await.is_empty());
        });
    }

    /// A server that a signal stops serves its connections to the end.
    #[test]
    fn signal_stops_server_gracefully() {
        polder_sim::check(0..20, |sim| async move {
            let server = sim.host("server").start(|| async {
                let mut stop = Signals::new([Signal::Term])?;
                let listener = TcpListener::bind("0.0.0.0:1").await?;
                serve(listener, |mut stream, _| async move {
                    let mut request = [0; 4];
                    stream.read_exact(&mut request).await.unwrap();
                    sleep(secs(1)).await;
                    stream.write_all(&request).await.unwrap();
                })
                .until(async {
                    let _ = stop.next().await;
                })
                .grace(secs(5))
                .await
            });
            sleep(ms(1)).await;
            let mut stream = TcpStream::connect("server:1").await?;
            stream.write_all(b"ping").await?;
            sleep(ms(500)).await;
            server.signal(Signal::Term);
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await?;
            let summary = server.finished().within(secs(5)).await?;
            assert_eq!((summary.finished, summary.cancelled), (1, 0));
            Result::Ok(())
        });
    }

    #[test]
    fn signals_of_one_kind_between_two_polls_are_one() {
        polder_sim::check(0..5, |sim| async move {
            let host = sim.host("host").start(|| async {
                let (mut stop, mut again) = (ctrl_c(), Signals::new([Signal::Int]).unwrap());
                sleep(secs(1)).await;
                (&mut stop).await.unwrap();
                assert!(again.next().await.is_some());
                timeout(secs(1), again.next()).await.is_err()
            });
            sleep(ms(1)).await;
            for _ in 0..3 {
                host.signal(Signal::Int);
            }
            assert!(host.finished().within(secs(5)).await);
        });
    }

    #[test]
    fn signal_without_listener_ends_process() {
        polder_sim::check(0..5, |sim| async move {
            let host = sim.host("host").start(std::future::pending::<()>);
            sleep(ms(1)).await;
            host.signal(Signal::Chld);
            assert!(host.is_up());
            host.signal(Signal::Term);
            assert_eq!(host.finished().await, Exit::Killed);
            host.signal(Signal::Term);
            // A new process must register for the signal again.
            host.restart();
            host.signal(Signal::Kill);
            assert_eq!(host.finished().await, Exit::Killed);
        });
    }
}

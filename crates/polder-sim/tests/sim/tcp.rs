//! Sockets: TCP as a program sees it.

use std::cell::Cell;
use std::io::{ErrorKind, IoSlice, Result};
use std::rc::Rc;
use std::time::Duration;

use polder::future;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Shutdown, TcpListener, TcpStream};
use polder::time::{now, sleep, timeout};
use polder_sim::{Latency, Sim};

use super::{ms, secs};

/// Returns both ends of a connection between two hosts of the world; the far end was accepted on
/// the test's own host.
async fn pair(sim: &Sim) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
    let give = Rc::new(Cell::new(None));
    let taken = give.clone();
    let near = sim.host("near").start(move || {
        let give = give.clone();
        async move {
            give.set(Some(TcpStream::connect("test:1").await.unwrap()));
            future::pending::<()>().await
        }
    });
    let (far, _) = listener.accept().await.unwrap();
    while near.is_up() {
        if let Some(stream) = taken.take() {
            return (stream, far);
        }
        sleep(ms(1)).await;
    }
    unreachable!()
}

/// Bytes arrive once and in order, with any losses.
#[test]
fn bytes_once_and_ordered_despite_loss() {
    polder_sim::check(0..60, |sim| async move {
        let loss = [0.0, 0.02, 0.2][sim.choose(3) as usize];
        sim.links()
            .loss(loss)
            .latency(Latency::uniform(ms(1)..ms(80)));
        let listener = TcpListener::bind("0.0.0.0:1").await?;
        let length = 1 + sim.choose(300_000) as usize;
        sim.host("sender").start(move || async move {
            let mut stream = TcpStream::connect("test:1").await.unwrap();
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            stream.write_all(&bytes).await.unwrap();
            stream.close().await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"thanks");
        });
        let (mut stream, _) = listener.accept().await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        assert_eq!(bytes.len(), length);
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(n, it)| *it == (n % 251) as u8)
        );
        stream.write_all(b"thanks").await?;
        Result::Ok(())
    });
}

#[test]
fn a_round_trip_takes_twice_the_latency() {
    polder_sim::check(0..3, |sim| async move {
        sim.links().latency(Latency::fixed(ms(40)));
        let (mut near, mut far) = pair(&sim).await;
        let start = now();
        near.write_all(b"ping").await.unwrap();
        let mut bytes = [0; 4];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(now() - start, ms(40));
        far.write_all(b"pong").await.unwrap();
        near.read_exact(&mut bytes).await.unwrap();
        assert_eq!(now() - start, ms(80));
    });
}

/// Sends a byte from one end of a connection to the other, and one back.
async fn exchange(near: &mut TcpStream, far: &mut TcpStream) -> Result<()> {
    near.write_all(b"?").await?;
    far.read_exact(&mut [0]).await?;
    far.write_all(b"!").await?;
    near.read_exact(&mut [0]).await
}

/// Returns the number of retransmissions in a world from now on.
fn retransmissions(sim: &Sim) -> Rc<Cell<u32>> {
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    sim.on_event(move |event| {
        counted.set(counted.get() + u32::from(event.words.contains("again")))
    });
    count
}

/// A long round trip is measured by the handshake and nothing is sent twice.
#[test]
fn long_round_trip_measured_by_handshake() {
    polder_sim::check(0..3, |sim| async move {
        let again = retransmissions(&sim);
        sim.links().latency(Latency::fixed(ms(150)));
        let (mut near, mut far) = pair(&sim).await;
        for _ in 0..5 {
            exchange(&mut near, &mut far).await?;
        }
        assert_eq!(again.get(), 0);
        Result::Ok(())
    });
}

/// The timeout stays doubled until a round trip is measured.
///
/// RFC 6298, 5.7: the timeout is three seconds after a SYN was sent again. Then Karn's algorithm.
#[test]
fn rto_stays_doubled_until_measured() {
    polder_sim::check(0..3, |sim| async move {
        sim.links().latency(Latency::fixed(secs(2)));
        let (mut near, mut far) = pair(&sim).await;
        let again = retransmissions(&sim);
        for _ in 0..5 {
            exchange(&mut near, &mut far).await?;
        }
        assert_eq!(again.get(), 2, "the first byte of each side");
        Result::Ok(())
    });
}

/// A user timeout below the round trip time does not end a connection that is acknowledged.
#[test]
fn short_user_timeout_spares_answering_peer() {
    polder_sim::check(0..3, |sim| async move {
        sim.links().latency(Latency::fixed(ms(400)));
        let (mut near, mut far) = pair(&sim).await;
        near.set_user_timeout(Some(ms(600)))?;
        exchange(&mut near, &mut far).await
    });
}

/// A connect does not start at the address that it goes to.
#[test]
fn connect_does_not_bind_target_address() {
    for address in ["127.0.0.1:32768", "10.0.0.1:32768", "[::1]:32768"] {
        polder_sim::check(0..1, move |_| async move {
            let refused = TcpStream::connect(address).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        });
    }
}

/// A connection that is closed, but whose peer does not end, is forgotten after a minute.
///
/// Linux: `tcp_fin_timeout`.
#[test]
fn half_closed_forgotten_after_a_minute() {
    let cases = [
        (ms(59_900), ErrorKind::BrokenPipe),
        (ms(60_100), ErrorKind::ConnectionReset),
    ];
    for ((wait, expected), is_half_closed) in [
        (cases[0], false),
        (cases[0], true),
        (cases[1], false),
        (cases[1], true),
    ] {
        polder_sim::check(0..3, move |sim| async move {
            let (near, mut far) = pair(&sim).await;
            if is_half_closed {
                near.shutdown(Shutdown::Write)?;
                sleep(secs(100)).await;
            }
            drop(near);
            sleep(wait).await;
            assert_eq!(far.read(&mut [0; 8]).await?, 0);
            far.shutdown(Shutdown::Write)?;
            sleep(secs(1)).await;
            assert_eq!(far.write(b"more").await.unwrap_err().kind(), expected);
            Result::Ok(())
        });
    }
}

#[test]
fn addresses_are_those_of_the_hosts() {
    polder_sim::check(0..3, |sim| async move {
        let (near, far) = pair(&sim).await;
        assert_eq!(near.local_addr().unwrap(), far.peer_addr().unwrap());
        assert_eq!(far.local_addr().unwrap(), near.peer_addr().unwrap());
        assert_eq!(far.peer_addr().unwrap().ip(), sim.host("near").address());
    });
}

/// Connecting to a closed port is refused; to an absent machine it times out.
#[test]
fn connect_refused_or_times_out() {
    polder_sim::check(0..5, |sim| async move {
        sim.host("idle");
        let refused = TcpStream::connect("idle:1").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let refused = TcpStream::connect("127.0.0.1:1").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let start = now();
        let late = TcpStream::connect("10.0.77.77:1").await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert_eq!(now() - start, secs(127), "tcp(7): tcp_syn_retries");
    });
}

/// A port belongs to one listener and is free again when that is closed.
#[test]
fn port_of_one_listener_free_after_close() {
    polder_sim::check(0..3, |_| async {
        let listener = TcpListener::bind("0.0.0.0:7").await.unwrap();
        let taken = TcpListener::bind("127.0.0.1:7").await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let foreign = TcpListener::bind("10.0.77.77:7").await.unwrap_err();
        assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
        drop(listener);
        assert!(TcpListener::bind("127.0.0.1:7").await.is_ok());
        let any = TcpListener::bind("[::1]:0").await.unwrap();
        let address = any.local_addr().unwrap();
        assert!(address.port() > 0);
        assert!(TcpStream::connect(address).await.is_ok());
    });
}

/// The end of writing is read as the end and the other direction stays open.
#[test]
fn half_close_reads_end_other_way_open() {
    polder_sim::check(0..10, |sim| async move {
        let (mut near, mut far) = pair(&sim).await;
        near.write_all(b"last").await.unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"last");
        let broken = near.write(b"more").await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
        far.write_all(b"answer").await.unwrap();
        drop(far);
        bytes.clear();
        near.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"answer");
    });
}

/// Closing with unread bytes or without linger resets.
#[test]
fn close_unread_or_without_linger_resets() {
    polder_sim::check(0..10, |sim| async move {
        let lingers = sim.choose(2) == 0;
        let (near, mut far) = pair(&sim).await;
        if lingers {
            near.set_linger(Some(Duration::ZERO)).unwrap();
        } else {
            far.write_all(b"unread").await.unwrap();
        }
        sleep(secs(1)).await;
        drop(near);
        let reset = far.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        assert_eq!(
            far.read(&mut [0; 8]).await.unwrap(),
            0,
            "an error is told once"
        );
        let broken = far.write(b"more").await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn writing_to_a_closed_peer_resets() {
    polder_sim::check(0..10, |sim| async move {
        let (near, mut far) = pair(&sim).await;
        drop(near);
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        far.write_all(b"to nobody").await.unwrap();
        sleep(secs(1)).await;
        // Linux's tcp_reset(): in CLOSE_WAIT the error is EPIPE, which reading does not report.
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        let broken = far.write_all(b"again").await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
    });
}

/// A reset after the end leaves what came before it to be read.
#[test]
fn reset_after_end_leaves_bytes_readable() {
    polder_sim::check(0..10, |sim| async move {
        let (mut near, mut far) = pair(&sim).await;
        near.write_all(b"last").await.unwrap();
        drop(near);
        sleep(secs(1)).await;
        far.write_all(b"to nobody").await.unwrap();
        sleep(secs(1)).await;
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"last");
        let broken = far.write(b"again").await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
    });
}

/// Closing after both ends resets nothing although bytes are unread.
#[test]
fn close_after_both_ends_resets_nothing() {
    polder_sim::check(0..10, |sim| async move {
        let (near, mut far) = pair(&sim).await;
        far.write_all(b"unread").await.unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        sleep(secs(1)).await;
        drop(near);
        sleep(secs(1)).await;
        let broken = far.write(b"more").await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
    });
}

/// A connection that has ended on both sides is not connected any more.
#[test]
fn ended_both_ways_is_not_connected() {
    polder_sim::check(0..10, |sim| async move {
        let (near, far) = pair(&sim).await;
        near.shutdown(Shutdown::Write).unwrap();
        sleep(secs(1)).await;
        assert!(near.peer_addr().is_ok() && far.peer_addr().is_ok());
        far.shutdown(Shutdown::Write).unwrap();
        sleep(secs(1)).await;
        for end in [near, far] {
            assert_eq!(end.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
            let ended = end.shutdown(Shutdown::Both).unwrap_err();
            assert_eq!(ended.kind(), ErrorKind::NotConnected);
            assert!(end.local_addr().is_ok());
        }
    });
}

/// A connection that was reset in the queue is accepted, and then reports its error.
#[test]
fn reset_in_queue_accepted_with_error() {
    polder_sim::check(0..10, |_| async {
        let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let near = TcpStream::connect("127.0.0.1:1").await.unwrap();
        let address = near.local_addr().unwrap();
        near.set_linger(Some(Duration::ZERO)).unwrap();
        drop(near);
        sleep(secs(1)).await;
        let (mut far, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, address);
        let reset = far.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        // Closing the listener has nothing to reset there.
        let near = TcpStream::connect("127.0.0.1:1").await.unwrap();
        near.set_linger(Some(Duration::ZERO)).unwrap();
        drop(near);
        sleep(secs(1)).await;
        drop(listener);
    });
}

/// Data that arrives after a shutdown of reading can still be read.
#[test]
fn data_after_read_shutdown_still_read() {
    polder_sim::check(0..10, |sim| async move {
        let (mut near, mut far) = pair(&sim).await;
        far.shutdown(Shutdown::Read).unwrap();
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        // tcp(7) does not document it: tcp_rcv_established() does not check.
        near.write_all(b"late").await.unwrap();
        sleep(secs(1)).await;
        let mut bytes = [0; 8];
        assert_eq!(far.read(&mut bytes).await.unwrap(), 4);
        assert_eq!(far.read(&mut bytes).await.unwrap(), 0);
    });
}

/// Data after a shutdown of both directions is answered with a reset.
#[test]
fn data_after_both_shutdowns_resets() {
    polder_sim::check(0..10, |sim| async move {
        let (mut near, mut far) = pair(&sim).await;
        far.shutdown(Shutdown::Both).unwrap();
        near.write_all(b"to nobody").await.unwrap();
        sleep(secs(1)).await;
        let reset = far.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0);
        let broken = near.write(b"more").await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_window_opens_by_a_segment_or_not_at_all() {
    polder_sim::check(0..10, |sim| async move {
        let (near, far) = pair(&sim).await;
        let mut written = 0;
        while let Ok(count) = near.try_write(&[7; 10_000]) {
            written += count;
            sleep(secs(1)).await;
        }
        assert_eq!(written, 2 * 64 * 1024, "both buffers are full");
        assert_eq!(far.try_read(&mut [0; 1_000]).unwrap(), 1_000);
        // The FIN does not announce a window update: RFC 9293, 3.8.6.2.2.
        far.shutdown(Shutdown::Write).unwrap();
        sleep(secs(1)).await;
        let full = near.try_write(b"more").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert_eq!(far.try_read(&mut [0; 1_000]).unwrap(), 1_000);
        sleep(secs(1)).await;
        assert_eq!(near.try_write(&[7; 10_000]).unwrap(), 2_000);
    });
}

/// A port that is used again belongs to the new connection.
#[test]
fn port_reused_belongs_to_new_connection() {
    polder_sim::check(0..1, |_| async {
        let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let old = TcpStream::connect("127.0.0.1:1").await.unwrap();
        let (old_far, _) = listener.accept().await.unwrap();
        let address = old.local_addr().unwrap();
        old.set_linger(Some(Duration::ZERO)).unwrap();
        drop(old);
        // Every other port is used once before this port is reused.
        let (mut near, mut far) = loop {
            let near = TcpStream::connect("127.0.0.1:1").await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            if near.local_addr().unwrap() == address {
                break (near, far);
            }
            near.set_linger(Some(Duration::ZERO)).unwrap();
        };
        drop(old_far);
        near.write_all(b"new").await.unwrap();
        let mut bytes = [0; 3];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"new");
    });
}

#[test]
fn writer_waits_for_reader_and_resumes() {
    polder_sim::check(0..20, |sim| async move {
        sim.links().loss([0.0, 0.1][sim.choose(2) as usize]);
        let (mut near, mut far) = pair(&sim).await;
        let mut written = 0;
        while let Ok(count) = timeout(secs(30), near.write(&[7; 10_000])).await {
            written += count.unwrap();
        }
        assert_eq!(written, 2 * 64 * 1024, "both buffers are full");
        let more = polder::spawn(async move {
            near.write_all(&[8; 100_000]).await.unwrap();
            near
        });
        let mut bytes = vec![0; written + 100_000];
        far.read_exact(&mut bytes).await.unwrap();
        assert!(bytes[..written].iter().all(|it| *it == 7));
        assert!(bytes[written..].iter().all(|it| *it == 8));
        drop(more.await);
        assert_eq!(far.read(&mut bytes).await.unwrap(), 0);
    });
}

#[test]
fn several_buffers_are_written_and_read_as_one() {
    polder_sim::check(0..3, |sim| async move {
        let (mut near, mut far) = pair(&sim).await;
        let slices = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
        assert_eq!(near.write_vectored(&slices).await.unwrap(), 5);
        let mut peeked = [0; 8];
        assert_eq!(far.peek(&mut peeked).await.unwrap(), 5);
        let mut bytes = [0; 5];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!((&bytes, &peeked[..5]), (b"hello", &b"hello"[..]));
        let nothing = far.try_read(&mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    });
}

/// Options are given back as they were set or refused.
#[test]
fn options_read_back_or_refused() {
    polder_sim::check(0..1, |sim| async move {
        let (near, _far) = pair(&sim).await;
        assert!(!near.nodelay().unwrap() && near.linger().unwrap().is_none());
        near.set_nodelay(true).unwrap();
        near.set_ttl(3).unwrap();
        assert!(near.nodelay().unwrap());
        assert_eq!(near.ttl().unwrap(), 3);
        for ttl in [0, 256] {
            let refused = near.set_ttl(ttl).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "ip(7)");
        }
        near.set_linger(Some(ms(1_500))).unwrap();
        assert_eq!(near.linger().unwrap(), Some(secs(1)), "in whole seconds");
    });
}

/// A listener that closes resets what waits in its queue.
#[test]
fn listener_close_resets_queue() {
    polder_sim::check(0..10, |_| async {
        let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let mut stream = TcpStream::connect("127.0.0.1:1").await.unwrap();
        sleep(ms(1)).await;
        drop(listener);
        let reset = stream.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    });
}

/// A full accept queue takes no connection until one is accepted.
#[test]
fn full_queue_refuses_until_accept() {
    polder_sim::check(0..1, |_| async {
        let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let mut clients = Vec::new();
        let limit = ms(500);
        while let Ok(stream) = TcpStream::connect_timeout("127.0.0.1:1", limit).await {
            clients.push(stream);
        }
        assert_eq!(clients.len(), 4_097, "one more than the backlog");
        let start = now();
        let late = polder::spawn(TcpStream::connect("127.0.0.1:1"));
        sleep(ms(500)).await;
        let (_first, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, clients[0].local_addr().unwrap());
        assert!(late.await.is_ok());
        let took = now() - start;
        assert!(took > secs(1) && took < ms(1_001), "at the second SYN");
    });
}

#[test]
fn a_server_serves_many_clients_at_once() {
    polder_sim::check(0..10, |sim| async move {
        sim.host("server").start(|| async {
            let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
            let serve = |mut stream: TcpStream, _| async move {
                let mut bytes = [0; 8];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    stream.write_all(&bytes).await.unwrap();
                }
            };
            polder::net::serve(&listener, serve).await.unwrap();
        });
        let clients: Vec<_> = (0..20)
            .map(|n: u64| {
                let host = sim.host(&format!("client-{n}"));
                host.start(move || async move {
                    let mut stream = TcpStream::connect("server:1").await.unwrap();
                    for round in 0..10 {
                        let sent = (n * 100 + round).to_le_bytes();
                        stream.write_all(&sent).await.unwrap();
                        let mut bytes = [0; 8];
                        stream.read_exact(&mut bytes).await.unwrap();
                        assert_eq!(bytes, sent);
                    }
                })
            })
            .collect();
        for client in clients {
            client.finished().within(secs(60)).await;
        }
    });
}

/// Segments sent to a server before its restart open no connection to it afterwards.
///
/// Its sequence numbers are not those of the later life: RFC 9293, 3.10.7.
#[test]
fn segments_to_old_server_open_nothing() {
    polder_sim::check(0..10, |sim: Sim| async move {
        let accepted = Rc::new(Cell::new(0));
        let count = accepted.clone();
        let server = sim.host("server").start(move || {
            let count = count.clone();
            async move {
                let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    count.set(count.get() + 1);
                    let _ = stream.read(&mut [0]).await;
                }
            }
        });
        sim.host("client");
        let to_client = sim.hold(&["server"], &["client"]).one_way();
        let client = sim.host("client").start(|| async {
            let mut stream = TcpStream::connect("server:1").await?;
            stream.write_all(b"x").await?;
            stream.read(&mut [0]).await
        });
        sim.sleep(ms(50)).await;
        server.power_off(); // Its answer to the SYN is under way.
        server.restart();
        let to_server = sim.hold(&["client"], &["server"]).one_way();
        sim.sleep(ms(1_100)).await; // The client sends its SYN again.
        drop(to_client); // The client takes the first life's answer for one, and says ACK and "x".
        sim.sleep(ms(50)).await;
        drop(to_server);
        let read = client.finished().within(secs(10)).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(
            accepted.get(),
            0,
            "the second life has seen no handshake of its own"
        );
    });
}

//! Rules 25 and 31: accepting; and compile-time checks of the types.

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net;
use std::thread;
use std::time::Duration;

use polder::future;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Incoming, OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream, UdpSocket};
use polder::stream::StreamExt;
use polder::time::timeout;

use super::{Count, Peer, has_ipv6, listening, poll_future, some_turns, with_peer};
use crate::probe::{join_all, listen};
use crate::support::{in_every_runtime, on_every_backend, runtime, sized};

/// Two tasks in accept on one listener both make progress.
#[test]
fn two_tasks_accept_on_one_listener() {
    in_every_runtime(|_| async {
        const EACH: usize = 50;
        let (listener, address) = listen().await;
        let accept = |listener: TcpListener| async move {
            for _ in 0..EACH {
                listener.accept().await.unwrap();
            }
        };
        let tasks = [
            polder::spawn(accept(listener.clone())),
            polder::spawn(accept(listener)),
        ];
        some_turns().await; // Both wait.
        for _ in 0..2 * EACH {
            TcpStream::connect(address).await.unwrap();
        }
        join_all(tasks).await;
    });
}

/// Connections that wait are accepted in the order in which they came.
#[test]
fn queued_connections_accepted_in_order() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(Peer::connect(address).await);
        }
        for client in &clients {
            let (_, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, client.local_addr());
        }
    });
}

/// Two waiters, two connections, one event.
#[test]
fn one_event_two_connections_serve_both() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let mut first = Box::pin(listener.accept());
        let mut second = Box::pin(listener.accept());
        let count = Count::new();
        assert!(poll_future(&mut first, &count).is_pending());
        assert!(poll_future(&mut second, &count).is_pending());
        let _clients = [Peer::connect(address).await, Peer::connect(address).await];
        let (first, second) = future::zip(first, second).await;
        assert_ne!(first.unwrap().1, second.unwrap().1);
    });
}

/// Each handle of a listener that is polled for connections gets one.
#[test]
fn listener_handles_polled_get_one_each() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let clone = listener.clone();
        let counts = [Count::new(), Count::new()];
        let mut first = poll_fn(|cx| listener.poll_accept(cx));
        let mut second = poll_fn(|cx| clone.poll_accept(cx));
        assert!(poll_future(&mut first, &counts[0]).is_pending());
        assert!(poll_future(&mut second, &counts[1]).is_pending());
        let _clients = [Peer::connect(address).await, Peer::connect(address).await];
        for count in &counts {
            count.until_woken().await;
        }
        let (first, second) = future::zip(first, second).await;
        assert_ne!(first.unwrap().1, second.unwrap().1);
    });
}

/// A stream that lingers for no time is reset when it is closed.
#[test]
fn zero_linger_resets_on_close() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert_eq!(server.linger().unwrap(), None);
        server.set_linger(Some(Duration::from_secs(7))).unwrap();
        assert_eq!(server.linger().unwrap(), Some(Duration::from_secs(7)));
        // More than some systems' type can express: it has the lower bits, or a sign.
        for seconds in [1 << 14, 1 << 16, 1 << 32] {
            server
                .set_linger(Some(Duration::from_secs(seconds)))
                .unwrap();
            let linger = server.linger().unwrap().unwrap();
            assert!((300..1 << 31).contains(&linger.as_secs()), "{linger:?}");
        }
        server.set_linger(None).unwrap();
        assert_eq!(server.linger().unwrap(), None);
        server.set_linger(Some(Duration::ZERO)).unwrap();
        drop(server);
        let reset = client.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    });
}

/// Options of a stream are given back as they were set.
#[test]
fn stream_options_read_back() {
    in_every_runtime(|_| async {
        let (_listener, address) = listen().await;
        let stream = TcpStream::connect(address).await.unwrap();
        for nodelay in [true, false] {
            stream.set_nodelay(nodelay).unwrap();
            assert_eq!(stream.nodelay().unwrap(), nodelay);
        }
        for ttl in [7, 8] {
            stream.set_ttl(ttl).unwrap();
            assert_eq!(stream.ttl().unwrap(), ttl);
        }
        for ttl in [256, u32::MAX] {
            assert!(stream.set_ttl(ttl).is_err());
            assert_eq!(stream.ttl().unwrap(), 8);
        }
    });
}

/// Two runtimes in accept on one listener both make progress.
#[test]
fn two_runtimes_accept_on_one_listener() {
    on_every_backend(|backend| {
        const EACH: usize = 50;
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::try_from(listener).unwrap();
        let threads = [listener.clone(), listener].map(|listener| {
            thread::spawn(move || {
                runtime(backend).block_on(async {
                    for _ in 0..EACH {
                        let (mut stream, _) = listener.accept().await.unwrap();
                        stream.write_all(b"!").await.unwrap();
                    }
                });
            })
        });
        for _ in 0..2 * EACH {
            let mut client = net::TcpStream::connect(address).unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).expect("somebody accepts it");
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_cancelled_accept_loses_no_connection() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        for with_another_waiter in [false, true] {
            for woken_before in [false, true] {
                let (count, other_count) = (Count::new(), Count::new());
                let mut accept = Box::pin(listener.accept());
                let mut other = Box::pin(listener.accept());
                assert!(poll_future(&mut accept, &count).is_pending());
                if with_another_waiter {
                    assert!(poll_future(&mut other, &other_count).is_pending());
                }
                let client = Peer::connect(address).await;
                if woken_before {
                    count.until_woken().await;
                }
                drop(accept);
                assert_eq!(count.kept(), 0, "a cancelled accept leaves no waker");
                if with_another_waiter {
                    other_count.until_woken().await;
                }
                let (_, peer) = other.await.unwrap();
                assert_eq!(peer, client.local_addr());
            }
        }
    });
}

/// Accepts that keep being cancelled lose no connection.
///
/// Every accept has so little time that most are cancelled; every client is served.
#[test]
fn accepts_cancelled_lose_no_connection() {
    on_every_backend(|backend| {
        let clients = sized(backend, 200);
        runtime(backend).block_on(async move {
            let (listener, address) = listen().await;
            let client = thread::spawn(move || {
                for _ in 0..clients {
                    let mut stream = net::TcpStream::connect(address).unwrap();
                    stream.write_all(b"?").unwrap();
                    stream.read_exact(&mut [0]).expect("it is served");
                }
            });
            let mut served = 0;
            while served < clients {
                let wait = Duration::from_micros(served as u64 % 50);
                if let Ok(accepted) = timeout(wait, listener.accept()).await {
                    let (mut stream, _) = accepted.unwrap();
                    stream.write_all(b"!").await.unwrap();
                    served += 1;
                }
            }
            client.join().unwrap();
        });
    });
}

#[test]
fn aborted_in_queue_harms_nobody() {
    in_every_runtime(|_| async {
        let ipv6 = has_ipv6().then_some("[::1]:0");
        for address in ["127.0.0.1:0"].into_iter().chain(ipv6) {
            let listener = TcpListener::bind(address).await.unwrap();
            let address = listener.local_addr().unwrap();
            for _ in 0..3 {
                Peer::connect(address).await.reset().await;
            }
            let mut client = Peer::connect(address).await;
            client.send(b"here").await;
            // Linux returns the reset connections too; other systems skip some of them.
            loop {
                let (mut stream, peer) = listener.accept().await.unwrap();
                let mut bytes = [0; 4];
                if peer == client.local_addr() {
                    stream.read_exact(&mut bytes).await.unwrap();
                    assert_eq!(&bytes, b"here");
                    break;
                }
                assert!(stream.read(&mut bytes).await.is_err(), "it was reset");
            }
        }
    });
}

/// Closing a listener resets what waits in its queue and refuses the rest.
#[test]
fn listener_close_resets_queue_refuses_rest() {
    in_every_runtime(|_| async {
        let (listener, address, _holder) = listening(10).await;
        // Registered, so that closing has to deregister too.
        let count = Count::new();
        {
            let mut accept = Box::pin(listener.accept());
            assert!(poll_future(&mut accept, &count).is_pending());
        }
        let mut queued = TcpStream::connect(address).await.unwrap();
        let mut bytes = [0; 1];
        {
            let mut read = queued.read(&mut bytes);
            assert!(poll_future(&mut read, &count).is_pending());
        }
        let clone = listener.clone();
        drop(listener);
        // Its clone still listens.
        let (accepted, _) = clone.accept().await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        drop(clone);
        let error = second.read(&mut bytes).await.expect_err("it is reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let error = TcpStream::connect(address)
            .await
            .expect_err("nobody listens");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        // The connection accepted before stays usable.
        drop(accepted);
        assert_eq!(queued.read(&mut bytes).await.unwrap(), 0);
    });
}

/// Many waiters come and go, and the last remaining one is woken.
#[test]
fn of_many_waiters_that_go_the_last_is_woken() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let counts: Vec<_> = (0..50).map(|_| Count::new()).collect();
        let mut waiters: Vec<_> = counts
            .iter()
            .map(|count| {
                let mut accept = Box::pin(listener.accept());
                assert!(poll_future(&mut accept, count).is_pending());
                accept
            })
            .collect();
        let last = waiters.swap_remove(25);
        drop(waiters);
        let _client = Peer::connect(address).await;
        counts[25].until_woken().await;
        counts[25].until_let_go().await;
        for (index, count) in counts.iter().enumerate() {
            assert_eq!(count.kept(), 0);
            assert_eq!(count.woken(), usize::from(index == 25), "waiter {index}");
        }
        last.await.unwrap();
    });
}

#[test]
fn many_connections_all_echo() {
    on_every_backend(|backend| {
        let connections = sized(backend, 1_000);
        #[cfg(unix)]
        crate::child::allow_descriptors(2 * 1_000 + 500);
        runtime(backend).block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = polder::spawn(async move {
                let mut incoming = listener.incoming();
                loop {
                    let stream = incoming.next().await.expect("it has no end");
                    let stream = stream.expect("there are descriptors");
                    polder::spawn(async move {
                        let (mut reader, mut writer) = stream.into_split();
                        polder::io::copy(&mut reader, &mut writer).await.unwrap();
                    })
                    .detach();
                }
            });
            let mut streams = Vec::new();
            for _ in 0..connections {
                let mut stream = TcpStream::connect(address).await.unwrap();
                // Accepted before the next one: a connection that overflows the queue would be
                // retried after a second.
                stream.write_all(b"?").await.unwrap();
                stream.read_exact(&mut [0]).await.unwrap();
                streams.push(stream);
            }
            let clients: Vec<_> = streams
                .into_iter()
                .enumerate()
                .map(|(number, mut stream)| {
                    polder::spawn(async move {
                        for round in 0..3 {
                            let sent = [number as u8, (number >> 8) as u8, round];
                            let mut got = [0; 3];
                            stream.write_all(&sent).await.unwrap();
                            stream.read_exact(&mut got).await.unwrap();
                            assert_eq!(sent, got);
                        }
                        stream
                    })
                })
                .collect();
            for client in clients {
                let mut stream = client.await;
                stream.close().await.unwrap();
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
            }
            server.cancel().await;
        });
    });
}

const _: () = {
    const fn movable<T: Send + Sync + Unpin>() {}
    movable::<TcpStream>();
    movable::<TcpListener>();
    movable::<Incoming<'static>>();
    movable::<OwnedReadHalf>();
    movable::<OwnedWriteHalf>();
    movable::<UdpSocket>();
};

#[cfg(unix)]
const _: () = {
    use polder::net::unix;

    const fn movable<T: Send + Sync + Unpin>() {}
    movable::<unix::UnixStream>();
    movable::<unix::UnixListener>();
    movable::<unix::UnixDatagram>();
    movable::<unix::Incoming<'static>>();
    movable::<unix::OwnedReadHalf>();
    movable::<unix::OwnedWriteHalf>();
};

#[test]
fn what_waits_for_a_socket_can_be_sent() {
    fn sent<T: Send>(future: T) {
        drop(future);
    }
    in_every_runtime(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (stream, _far) = with_peer().await;
        sent(TcpStream::connect("localhost:80"));
        sent(TcpListener::bind("localhost:80"));
        sent(listener.accept());
        sent(stream.peek(&mut [0]));
        sent(TcpStream::connect_timeout("localhost:80", Duration::MAX));
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        sent(socket.connect("localhost:80"));
        sent(socket.recv_from(&mut [0]));
        sent(socket.send_to(&[0], "localhost:80"));
        #[cfg(unix)]
        {
            use polder::net::unix::{UnixDatagram, UnixStream};

            sent(UnixStream::connect("/nowhere"));
            let socket = UnixDatagram::unbound().unwrap();
            sent(socket.send_to(&[0], "/nowhere"));
            sent(socket.recv_from(&mut [0]));
        }
    });
}

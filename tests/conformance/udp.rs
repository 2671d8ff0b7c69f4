//! Rule 33, and the parts of rules 23a and 23b about UDP.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use polder::future::{poll_once, zip};
use polder::net::{Datagram, Received, UdpSocket};
use polder::time::timeout;
use socket2::{Domain, SockRef, Socket, Type};

use crate::descriptor::{Owned, is_inherited, is_nonblocking, number_of};
use crate::streams::{Count, assert_no_wake_up, has_ipv6, poll_future, some_turns};
use crate::support::{in_every_runtime, on_every_backend, runtime, sized, with_every_runtime};

/// Far longer than any datagram needs over loopback.
const SOON: Duration = Duration::from_secs(10);

/// Returns a socket and its address.
async fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Returns two sockets that are connected with each other.
async fn both() -> (UdpSocket, UdpSocket) {
    let ((near, near_address), (far, far_address)) = (bound().await, bound().await);
    near.connect(far_address).await.unwrap();
    far.connect(near_address).await.unwrap();
    (near, far)
}

/// Datagrams are sent and received with their senders.
#[test]
fn datagrams_carry_their_senders() {
    in_every_runtime(|_| async {
        let ((near, near_address), (far, far_address)) = (bound().await, bound().await);
        assert_ne!(near_address.port(), 0);
        let mut bytes = [0; 64];
        {
            let mut receive = Box::pin(far.recv_from(&mut bytes));
            assert!(poll_once(&mut receive).await.is_none());
            assert_eq!(near.send_to(b"ping", far_address).await.unwrap(), 4);
            assert_eq!(receive.await.unwrap(), (4, near_address));
        }
        assert_eq!(&bytes[..4], b"ping");
        // Sent to a name too, and without bytes.
        let name = format!("127.0.0.1:{}", near_address.port());
        assert_eq!(far.send_to(b"", name).await.unwrap(), 0);
        assert_eq!(near.recv_from(&mut bytes).await.unwrap(), (0, far_address));
        if has_ipv6() {
            let near = UdpSocket::bind("[::1]:0").await.unwrap();
            let far = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
            let far_address = far.local_addr().unwrap();
            near.send_to(b"six", far_address).await.unwrap();
            let received = far.recv_from(&mut bytes).await.unwrap();
            assert_eq!(received, (3, near.local_addr().unwrap()));
        }
    });
}

#[test]
fn connected_hears_its_peer_only() {
    in_every_runtime(|_| async {
        let (near, near_address) = bound().await;
        let error = near.send(b"x").await.expect_err("to whom?");
        assert!(!error.to_string().is_empty());
        let error = near.peer_addr().expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        let ((far, far_address), (other, _)) = (bound().await, bound().await);
        near.connect(far_address).await.unwrap();
        assert_eq!(near.peer_addr().unwrap(), far_address);
        other.send_to(b"not for it", near_address).await.unwrap();
        far.send_to(b"for it", near_address).await.unwrap();
        let mut bytes = [0; 64];
        assert_eq!(near.recv(&mut bytes).await.unwrap(), 6);
        near.send(b"reply").await.unwrap();
        let received = far.recv_from(&mut bytes).await.unwrap();
        assert_eq!(received, (5, near_address));
        // Connected to another peer from now on, while registered.
        assert!(poll_once(near.recv(&mut bytes)).await.is_none());
        let (third, third_address) = bound().await;
        near.connect(&[third_address][..]).await.unwrap();
        near.send(b"hello").await.unwrap();
        assert_eq!(third.recv(&mut bytes).await.unwrap(), 5);
    });
}

#[test]
fn peek_keeps_the_datagram_and_its_sender() {
    in_every_runtime(|_| async {
        let ((near, near_address), (far, far_address)) = (bound().await, bound().await);
        let mut bytes = [0; 64];
        {
            let mut peek = Box::pin(far.peek_from(&mut bytes));
            assert!(poll_once(&mut peek).await.is_none());
            near.send_to(b"first", far_address).await.unwrap();
            assert_eq!(peek.await.unwrap(), (5, near_address));
        }
        assert_eq!(&bytes[..5], b"first");
        near.send_to(b"second", far_address).await.unwrap();
        let again = far.peek_from(&mut bytes).await.unwrap();
        assert_eq!(again, (5, near_address));
        assert_eq!(far.peek(&mut bytes).await.unwrap(), 5);
        let taken = far.recv_from(&mut bytes).await.unwrap();
        assert_eq!(taken, (5, near_address));
        assert_eq!(far.peek(&mut bytes).await.unwrap(), 6);
        assert_eq!(far.recv(&mut bytes).await.unwrap(), 6);
        assert_eq!(&bytes[..6], b"second");
    });
}

/// Several datagrams come with one event: each read is shorter than its buffer, which does not mean
/// that nothing is left.
#[test]
fn datagrams_that_come_together_are_all_received() {
    in_every_runtime(|_| async {
        let ((near, _), (far, far_address)) = (bound().await, bound().await);
        for _ in 0..3 {
            let count = Count::new();
            let mut bytes = [0; 64];
            {
                let mut receive = Box::pin(far.recv(&mut bytes));
                assert!(poll_future(&mut receive, &count).is_pending());
            }
            // The cancelled receive is not woken, and the socket is still registered.
            for number in 1..=5 {
                near.send_to(&[b'x'; 5][..number], far_address)
                    .await
                    .unwrap();
            }
            some_turns().await;
            for number in 1..=5 {
                let received = timeout(SOON, far.recv(&mut bytes)).await;
                assert_eq!(received.expect("it has arrived").unwrap(), number);
            }
        }
    });
}

/// A datagram that is too long for the buffer is cut as the platform does.
#[test]
fn long_datagram_truncated_as_platform() {
    in_every_runtime(|_| async {
        let ((near, near_address), (far, far_address)) = (bound().await, bound().await);
        let mut bytes = [0; 4];
        for _ in 0..2 {
            near.send_to(b"longer than four", far_address)
                .await
                .unwrap();
        }
        near.send_to(b"next", far_address).await.unwrap();
        for _ in 0..2 {
            match far.recv_from(&mut bytes).await {
                Ok(received) => assert_eq!(received, (4, near_address)),
                Err(_) if cfg!(windows) => {}
                Err(error) => panic!("{error}"),
            }
            assert_eq!(&bytes, b"long");
        }
        assert_eq!(far.recv(&mut bytes).await.unwrap(), 4, "the rest is lost");
        assert_eq!(&bytes, b"next");
        let error = near.send_to(&[0; 70_000], far_address).await;
        assert!(!error.expect_err("it is too long").to_string().is_empty());
    });
}

/// A peer that is not there is an error and the socket goes on.
#[test]
fn absent_peer_is_error_socket_continues() {
    in_every_runtime(|_| async {
        let ((near, near_address), (gone, gone_address)) = (bound().await, bound().await);
        near.connect(gone_address).await.unwrap();
        // Its own peer: it receives from no other socket, and no other test gets its port.
        gone.connect(gone_address).await.unwrap();
        near.send(b"x").await.unwrap();
        let mut bytes = [0; 4];
        if cfg!(any(target_os = "linux", target_os = "android")) {
            let error = timeout(SOON, near.recv(&mut bytes)).await;
            let error = error.expect("it is told").expect_err("nobody is there");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        let (far, far_address) = bound().await;
        near.connect(far_address).await.unwrap();
        near.send(b"x").await.unwrap();
        let (_, peer) = far.recv_from(&mut bytes).await.unwrap();
        assert_eq!(peer, near_address);
        far.send_to(b"y", peer).await.unwrap();
        assert_eq!(near.recv(&mut bytes).await.unwrap(), 1);
    });
}

#[test]
fn udp_tasks_send_and_receive_at_once() {
    on_every_backend(|backend| {
        // In small waves: a datagram that finds no room in the buffer is lost.
        const WAVE: usize = 16;
        let waves = sized(backend, 200);
        runtime(backend).block_on(async move {
            let (near, far) = both().await;
            let echo = polder::spawn(async move {
                let mut bytes = [0; 8];
                for _ in 0..WAVE * waves {
                    let length = far.recv(&mut bytes).await.unwrap();
                    far.send(&bytes[..length]).await.unwrap();
                }
            });
            let mut sum = 0;
            for wave in 0..waves {
                let tasks: Vec<_> = (0..WAVE)
                    .map(|number| {
                        let (sender, receiver) = (near.clone(), near.clone());
                        let number = (wave * WAVE + number) as u64;
                        let receive = polder::spawn(async move {
                            let mut bytes = [0; 8];
                            assert_eq!(receiver.recv(&mut bytes).await.unwrap(), 8);
                            u64::from_ne_bytes(bytes)
                        });
                        let send = polder::spawn(async move {
                            sender.send(&number.to_ne_bytes()).await.unwrap();
                        });
                        (send, receive)
                    })
                    .collect();
                for (send, receive) in tasks {
                    send.await;
                    sum += receive.await;
                }
            }
            let last = (WAVE * waves) as u64;
            assert_eq!(sum, last * (last - 1) / 2);
            echo.await;
        });
    });
}

/// By reference, without clones: two futures of one task, one of which is cancelled.
#[test]
fn udp_shared_reference_sends_and_receives() {
    in_every_runtime(|_| async {
        let (near, far) = both().await;
        let (mut a, mut b, mut c) = ([0; 4], [0; 4], [0; 4]);
        let counts = [Count::new(), Count::new(), Count::new()];
        {
            let mut first = Box::pin(near.recv(&mut a));
            let mut second = Box::pin(near.recv(&mut b));
            let mut third = Box::pin(near.recv(&mut c));
            assert!(poll_future(&mut first, &counts[0]).is_pending());
            assert!(poll_future(&mut second, &counts[1]).is_pending());
            assert!(poll_future(&mut third, &counts[2]).is_pending());
            drop(first);
            assert_eq!(counts[0].kept(), 0, "what gives up leaves no waker");
            far.send(b"a").await.unwrap();
            far.send(b"bb").await.unwrap();
            let (second, third) = zip(second, third).await;
            assert_eq!(second.unwrap() + third.unwrap(), 3);
        }
        assert_eq!(counts[0].woken(), 0);
        let (sent, received) = zip(near.send(b"x"), far.recv(&mut a)).await;
        assert_eq!((sent.unwrap(), received.unwrap()), (1, 1));
    });
}

#[test]
fn udp_send_wakes_nobody() {
    with_every_runtime(|runtime, _| {
        let far = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = far.local_addr().unwrap();
        let mut bytes = [0; 64];
        let near = runtime.block_on(async {
            let (near, _) = bound().await;
            // Registered.
            assert!(poll_once(near.recv(&mut [0; 4])).await.is_none());
            near
        });
        assert_no_wake_up(&runtime, || {
            let count = Count::new();
            let mut send = Box::pin(near.send_to(b"message", address));
            assert!(poll_future(&mut send, &count).is_ready());
            assert_eq!(far.recv(&mut bytes).unwrap(), 7);
        });
    });
}

#[test]
fn multicast_reaches_those_who_joined() {
    in_every_runtime(|_| async {
        let group = Ipv4Addr::new(224, 0, 0, 251);
        let receiver = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let port = receiver.local_addr().unwrap().port();
        let (sender, sender_address) = bound().await;
        sender.set_multicast_loop_v4(true).unwrap();
        assert!(sender.multicast_loop_v4().unwrap());
        sender.set_multicast_ttl_v4(3).unwrap();
        assert!(sender.set_multicast_ttl_v4(u32::MAX).is_err());
        assert_eq!(sender.multicast_ttl_v4().unwrap(), 3);
        SockRef::from(&sender)
            .set_multicast_if_v4(&Ipv4Addr::LOCALHOST)
            .unwrap();
        receiver
            .join_multicast_v4(group, Ipv4Addr::LOCALHOST)
            .unwrap();
        // The loopback interface may not take multicast.
        if sender.send_to(b"to all", (group, port)).await.is_ok() {
            let mut bytes = [0; 64];
            let received = timeout(SOON, receiver.recv_from(&mut bytes)).await;
            let received = received.expect("it is in the group").unwrap();
            assert_eq!(received, (6, sender_address));
        }
        receiver
            .leave_multicast_v4(group, Ipv4Addr::LOCALHOST)
            .unwrap();
        receiver
            .leave_multicast_v4(group, Ipv4Addr::LOCALHOST)
            .expect_err("it has left");
        receiver
            .join_multicast_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)
            .expect_err("no group");
        if has_ipv6() {
            let socket = UdpSocket::bind("[::]:0").await.unwrap();
            socket.set_multicast_loop_v6(false).unwrap();
            assert!(!socket.multicast_loop_v6().unwrap());
            socket
                .join_multicast_v6(&Ipv6Addr::LOCALHOST, 0)
                .expect_err("no group");
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
            if socket.join_multicast_v6(&group, 0).is_ok() {
                socket.leave_multicast_v6(&group, 0).unwrap();
            }
        }
    });
}

#[test]
fn broadcast_and_ttl_are_options() {
    in_every_runtime(|_| async {
        let (socket, _) = bound().await;
        assert!(!socket.broadcast().unwrap());
        // The broadcast address of loopback is refused without the option.
        #[cfg(target_os = "linux")]
        {
            let error = socket.send_to(b"x", "127.255.255.255:9").await;
            let error = error.expect_err("it may not");
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
        socket.set_broadcast(true).unwrap();
        assert!(socket.broadcast().unwrap());
        #[cfg(target_os = "linux")]
        {
            let all = net::UdpSocket::bind("0.0.0.0:0").unwrap();
            let port = all.local_addr().unwrap().port();
            let all = UdpSocket::try_from(all).unwrap();
            let broadcast = (Ipv4Addr::new(127, 255, 255, 255), port);
            socket.send_to(b"all", broadcast).await.unwrap();
            let received = timeout(SOON, all.recv(&mut [0; 8])).await;
            assert_eq!(received.expect("it is for everyone").unwrap(), 3);
        }
        socket.set_ttl(7).unwrap();
        assert_eq!(socket.ttl().unwrap(), 7);
    });
}

/// A std UDP socket comes and goes and keeps working.
#[test]
fn std_udp_converts_both_ways() {
    in_every_runtime(|_| async {
        let std = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = number_of(&std);
        let socket = UdpSocket::try_from(std).unwrap();
        assert_ne!(is_nonblocking(&socket), Some(false), "it was made so");
        let (far, far_address) = bound().await;
        assert!(!is_inherited(&socket) && !is_inherited(&far));
        assert_ne!(is_nonblocking(&far), Some(false));
        let mut bytes = [0; 8];
        assert!(poll_once(socket.recv(&mut bytes)).await.is_none());
        socket.send_to(b"x", far_address).await.unwrap();
        let (_, address) = far.recv_from(&mut bytes).await.unwrap();

        let std = net::UdpSocket::try_from(socket).unwrap();
        assert_eq!(number_of(&std), number);
        let error = std.recv(&mut bytes).expect_err("it stays so");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        std.set_nonblocking(false).unwrap();
        far.send_to(b"y", address).await.unwrap();
        assert_eq!(std.recv(&mut bytes).unwrap(), 1);

        let socket = UdpSocket::try_from(Owned::from(std)).unwrap();
        let clone = socket.clone();
        far.send_to(b"z", address).await.unwrap();
        assert_eq!(clone.recv(&mut bytes).await.unwrap(), 1);
    });
}

/// Bad addresses of UDP sockets are errors with words.
#[test]
fn udp_bad_addresses_are_errors() {
    in_every_runtime(|_| async {
        let (socket, address) = bound().await;
        for (error, kind) in [
            (
                UdpSocket::bind(address).await.map(drop),
                ErrorKind::AddrInUse,
            ),
            (
                UdpSocket::bind(Vec::new()).await.map(drop),
                ErrorKind::InvalidInput,
            ),
            (
                UdpSocket::bind("no port").await.map(drop),
                ErrorKind::InvalidInput,
            ),
            (socket.connect("127.0.0.1").await, ErrorKind::InvalidInput),
            (
                socket.send_to(b"x", "").await.map(drop),
                ErrorKind::InvalidInput,
            ),
            (
                UdpSocket::bind_with(
                    Socket::new(Domain::IPV4, Type::STREAM, None).unwrap(),
                    address,
                )
                .map(drop),
                ErrorKind::InvalidInput,
            ),
        ] {
            let error = error.expect_err("it is bad");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().len() > 10, "{error}");
        }
    });
}

/// Receives `count` datagrams by as many calls as it takes, with 8 buffers of 16 bytes.
async fn receive_many(socket: &UdpSocket, count: usize) -> Vec<(Vec<u8>, Received)> {
    let mut all = Vec::new();
    while all.len() < count {
        let mut memory = [[b'.'; 16]; 8];
        let mut buffers = memory.each_mut().map(|buffer| IoSliceMut::new(buffer));
        let mut received = [Received::default(); 8];
        let call = socket.recv_many(&mut buffers, &mut received);
        let got = timeout(SOON, call).await.expect("they have been sent");
        let got = got.unwrap();
        assert!((1..=8).contains(&got), "{got}");
        for (buffer, received) in memory.iter().zip(received).take(got) {
            let (bytes, rest) = buffer.split_at(received.length);
            assert!(rest.iter().all(|byte| *byte == b'.'), "{rest:?}");
            all.push((bytes.to_vec(), received));
        }
        assert!(
            received[got..]
                .iter()
                .all(|left| *left == Received::default())
        );
        assert!(memory[got..].iter().all(|buffer| *buffer == [b'.'; 16]));
    }
    all
}

/// Many datagrams are sent and received by one call.
#[test]
fn batch_sends_and_receives_in_one_call() {
    in_every_runtime(|_| async {
        let ((near, near_address), (far, far_address)) = (bound().await, bound().await);
        let to = Some(far_address);
        let sent = [&b"one"[..], b"", b"longer than its buffer", b"four"];
        let datagrams = sent.map(|bytes| Datagram { bytes, to });
        assert_eq!(near.send_many(&datagrams).await.unwrap(), 4);
        let all = receive_many(&far, 4).await;
        for (sent, (bytes, received)) in sent.iter().zip(&all) {
            assert_eq!(bytes[..], sent[..sent.len().min(16)]);
            assert_eq!(received.from, near_address);
            assert_eq!(received.is_truncated, sent.len() > 16);
        }
        assert_eq!(all.len(), 4);
        // To the peer, and what others send is not received.
        far.connect(near_address).await.unwrap();
        near.connect(far_address).await.unwrap();
        let (stranger, _) = bound().await;
        stranger.send_to(b"not for it", near_address).await.unwrap();
        let datagrams = [Datagram {
            bytes: b"reply",
            to: None,
        }; UdpSocket::MAX_DATAGRAMS];
        assert_eq!(far.send_many(&datagrams).await.unwrap(), 64);
        for (bytes, received) in receive_many(&near, 64).await {
            assert_eq!((&bytes[..], received.from), (&b"reply"[..], far_address));
        }
        if has_ipv6() {
            let near = UdpSocket::bind("[::1]:0").await.unwrap();
            let far = UdpSocket::bind("[::1]:0").await.unwrap();
            let to = far.local_addr().ok();
            near.send_many(&[Datagram { bytes: b"six", to }])
                .await
                .unwrap();
            let all = receive_many(&far, 1).await;
            assert_eq!(all[0].1.from, near.local_addr().unwrap());
        }
    });
}

/// Receiving many waits for the first and a dropped call has received nothing.
#[test]
fn batch_receive_waits_for_first() {
    in_every_runtime(|_| async {
        let ((near, _), (far, far_address)) = (bound().await, bound().await);
        // The last receive has left nothing, and each time an event tells of the next ones.
        for round in 1..=50 {
            let mut memory = [[0; 16]; 4];
            let mut buffers = memory.each_mut().map(|buffer| IoSliceMut::new(buffer));
            let mut received = [Received::default(); 4];
            {
                let call = Box::pin(far.recv_many(&mut buffers, &mut received));
                assert!(poll_once(call).await.is_none(), "round {round}");
            }
            let count = Count::new();
            let mut call = Box::pin(far.recv_many(&mut buffers, &mut received));
            assert!(poll_future(&mut call, &count).is_pending());
            near.send_to(b"hello", far_address).await.unwrap();
            count.until_woken().await;
            if round % 2 == 0 {
                drop(call);
                assert_eq!(far.recv(&mut [0; 16]).await.unwrap(), 5);
            } else {
                assert_eq!(call.await.unwrap(), 1);
            }
        }
    });
}

/// A datagram that cannot be sent ends a batch, and fails the next one.
#[test]
fn batch_ends_at_unsendable_next_fails() {
    in_every_runtime(|_| async {
        let ((near, _), (far, far_address)) = (bound().await, bound().await);
        let (long, to) = (vec![0; 70_000], Some(far_address));
        let sent = [&b"one"[..], b"two", &long, b"four"];
        let datagrams = sent.map(|bytes| Datagram { bytes, to });
        assert_eq!(near.send_many(&datagrams).await.unwrap(), 2);
        let error = near.send_many(&datagrams[2..]).await.unwrap_err();
        assert!(!error.to_string().is_empty());
        assert_eq!(near.send_many(&datagrams[3..]).await.unwrap(), 1);
        let all = receive_many(&far, 3).await;
        assert_eq!(
            [&all[0].0[..], &all[1].0, &all[2].0],
            [sent[0], sent[1], sent[3]]
        );
        let error = near
            .send_many(&[Datagram {
                bytes: b"x",
                to: None,
            }])
            .await;
        error.expect_err("there is no peer");
    });
}

#[test]
fn bad_numbers_of_datagrams_are_errors_with_words() {
    in_every_runtime(|_| async {
        let (socket, address) = bound().await;
        let refused = |result: std::io::Result<usize>, expected: &str| {
            let error = result.expect_err(expected);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), expected);
        };
        let datagrams = [Datagram {
            bytes: b"x",
            to: Some(address),
        }; 65];
        for count in [0, 65] {
            let result = socket.send_many(&datagrams[..count]).await;
            refused(
                result,
                &format!("send_many: {count} datagrams, but it takes 1 to 64"),
            );
            let mut memory = vec![[0; 4]; count];
            let mut buffers: Vec<_> = memory.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            let mut received = vec![Received::default(); count];
            let result = socket.recv_many(&mut buffers, &mut received).await;
            refused(
                result,
                &format!("recv_many: {count} buffers, but it takes 1 to 64"),
            );
        }
        let mut memory = [0; 4];
        let mut buffers = [IoSliceMut::new(&mut memory)];
        let mut received = [Received::default(); 2];
        let result = socket.recv_many(&mut buffers, &mut received).await;
        let expected = "recv_many: 1 buffers, but `received` has 2: there must be as many";
        refused(result, expected);
    });
}

/// Linux wakes the waiter, and then returns `EAGAIN`.
#[cfg(target_os = "linux")]
#[test]
fn receiving_many_ends_when_reading_is_shut_down() {
    in_every_runtime(|_| async {
        let (socket, address) = bound().await;
        socket.connect(address).await.unwrap();
        let mut memory = [0; 4];
        let mut buffers = [IoSliceMut::new(&mut memory)];
        let mut received = [Received::default()];
        let mut receive = Box::pin(socket.recv_many(&mut buffers, &mut received));
        assert!(poll_once(&mut receive).await.is_none());
        SockRef::from(&socket)
            .shutdown(net::Shutdown::Read)
            .unwrap();
        let count = timeout(SOON, receive).await;
        assert_eq!(count.expect("nothing can come any more").unwrap(), 1);
        assert_eq!(received[0].length, 0);
    });
}

/// Receiving and peeking end when reading is shut down.
///
/// Linux wakes the waiter, and then returns `EAGAIN`.
#[cfg(target_os = "linux")]
#[test]
fn read_shutdown_ends_receive_and_peek() {
    in_every_runtime(|_| async {
        for waits in [false, true] {
            for peeks in [false, true] {
                let (socket, address) = bound().await;
                socket.connect(address).await.unwrap();
                let mut bytes = [0; 8];
                let mut receive = Box::pin(async {
                    if peeks {
                        socket.peek(&mut bytes).await
                    } else {
                        socket.recv(&mut bytes).await
                    }
                });
                if waits {
                    assert!(poll_once(&mut receive).await.is_none());
                }
                let end = SockRef::from(&socket).shutdown(net::Shutdown::Read);
                end.unwrap();
                let received = timeout(SOON, receive).await;
                let received = received.expect("nothing can come any more");
                assert_eq!(received.unwrap(), 0, "waits: {waits}, peeks: {peeks}");
            }
        }
    });
}

/// Tries and polls of a UDP socket do what its futures do.
#[test]
fn udp_tries_and_polls_match_futures() {
    in_every_runtime(|_| async {
        let (near, far) = both().await;
        let (near_address, far_address) = (near.local_addr().unwrap(), far.local_addr().unwrap());
        let mut bytes = [0; 8];
        let would_block = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
        would_block(near.try_recv(&mut bytes).unwrap_err());
        would_block(near.try_recv_from(&mut bytes).unwrap_err());
        would_block(near.try_peek(&mut bytes).unwrap_err());
        would_block(near.try_peek_from(&mut bytes).unwrap_err());
        let count = Count::new();
        let mut readable = Box::pin(near.readable());
        assert!(poll_future(&mut readable, &count).is_pending());
        far.writable().await.unwrap();
        assert_eq!(far.try_send(b"hello").unwrap(), 5);
        count.until_woken().await;
        readable.await.unwrap();
        // Peeks leave the datagram in place; a receive into an empty buffer (below) still waits for
        // one.
        assert_eq!(near.try_peek(&mut bytes).unwrap(), 5);
        assert_eq!(near.try_peek_from(&mut bytes).unwrap(), (5, far_address));
        let peeked = poll_fn(|cx| near.poll_peek_from(cx, &mut bytes)).await;
        assert_eq!(peeked.unwrap(), (5, far_address));
        let peeked = poll_fn(|cx| near.poll_peek(cx, &mut bytes)).await;
        assert_eq!(peeked.unwrap(), 5);
        assert_eq!(near.try_recv_from(&mut bytes).unwrap(), (5, far_address));
        would_block(near.try_recv(&mut bytes).unwrap_err());
        assert!(poll_once(Box::pin(near.recv(&mut []))).await.is_none());

        poll_fn(|cx| far.poll_send_ready(cx)).await.unwrap();
        let sent = poll_fn(|cx| far.poll_send(cx, b"one")).await;
        assert_eq!(sent.unwrap(), 3);
        let (other, other_address) = bound().await;
        let sent = poll_fn(|cx| other.poll_send_to(cx, b"not for it", near_address)).await;
        assert_eq!(sent.unwrap(), 10);
        assert_eq!(far.try_send(b"four").unwrap(), 4);
        poll_fn(|cx| near.poll_recv_ready(cx)).await.unwrap();
        let received = poll_fn(|cx| near.poll_recv_from(cx, &mut bytes)).await;
        assert_eq!(received.unwrap(), (3, far_address));
        let received = poll_fn(|cx| near.poll_recv(cx, &mut bytes)).await;
        assert_eq!(received.unwrap(), 4);
        assert_eq!(other.try_send_to(b"myself", other_address).unwrap(), 6);
        assert_eq!(other.recv(&mut bytes).await.unwrap(), 6);
    });
}

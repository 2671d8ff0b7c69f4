//! UDP between hosts: what arrives, what is lost, what comes twice or late.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Result};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polder::net::{Ipv4Addr, SocketAddr, UdpSocket};
use polder::time::{sleep, timeout};
use polder_sim::{Latency, Sim};

use super::{ms, secs};

/// Returns the numbers of the datagrams that a host has received, of `count` sent one millisecond
/// apart.
async fn received(sim: Sim, count: u32) -> Vec<u32> {
    let all = Rc::new(RefCell::new(Vec::new()));
    let seen = all.clone();
    let receiver = sim.host("receiver").start(move || {
        let seen = seen.clone();
        async move {
            let socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
            let mut bytes = [0; 4];
            while let Ok(length) = timeout(secs(2), socket.recv(&mut bytes)).await {
                assert_eq!(length.unwrap(), 4);
                seen.borrow_mut().push(u32::from_le_bytes(bytes));
            }
        }
    });
    sleep(ms(1)).await;
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    socket.connect("receiver:1").await.unwrap();
    for n in 0..count {
        socket.send(&n.to_le_bytes()).await.unwrap();
        sleep(ms(1)).await;
    }
    receiver.finished().within(secs(60)).await;
    all.take()
}

#[test]
fn datagrams_arrive_once_and_in_their_order() {
    polder_sim::check(0..20, |sim| async move {
        sim.links().latency(Latency::uniform(ms(1)..ms(50)));
        let all = received(sim, 100).await;
        assert_eq!(all, (0..100).collect::<Vec<u32>>());
    });
}

#[test]
fn about_so_many_datagrams_are_lost_as_was_said() {
    polder_sim::check(0..20, |sim| async move {
        sim.links().loss(0.3);
        let all = received(sim, 1_000).await;
        assert!((600..800).contains(&all.len()), "{} came", all.len());
        assert!(all.is_sorted(), "they keep their order");
    });
}

#[test]
fn about_so_many_datagrams_come_twice_as_was_said() {
    polder_sim::check(0..20, |sim| async move {
        sim.links().duplication(0.2);
        let all = received(sim, 1_000).await;
        assert!((1_100..1_300).contains(&all.len()), "{} came", all.len());
        assert_eq!(BTreeSet::from_iter(all.iter().copied()).len(), 1_000);
    });
}

/// A datagram that is reordered lets others pass and comes.
#[test]
fn reordered_datagram_comes_later() {
    polder_sim::check(0..20, |sim| async move {
        sim.links().reordering(0.1);
        let mut all = received(sim, 1_000).await;
        let inversions = all.windows(2).filter(|it| it[0] > it[1]).count();
        assert!((20..200).contains(&inversions), "{inversions} inversions");
        all.sort_unstable();
        assert_eq!(all, (0..1_000).collect::<Vec<u32>>());
    });
}

/// Nothing arrives through a cut and it is lost for good.
#[test]
fn cut_loses_datagrams_for_good() {
    polder_sim::check(0..10, |sim| async move {
        let far = sim.host("far").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:1").await?;
            let mut bytes = [0; 16];
            let length = socket.recv(&mut bytes).await?;
            Result::Ok(bytes[..length].to_vec())
        });
        sleep(ms(1)).await;
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        let cut = sim.cut(&["test"], &["far"]);
        socket.send_to(b"lost", "far:1").await?;
        sleep(secs(1)).await;
        drop(cut);
        let held = sim.hold(&["test"], &["far"]);
        socket.send_to(b"held", "far:1").await?;
        sleep(secs(1)).await;
        drop(held);
        let came = far.finished().within(secs(5)).await?;
        assert_eq!(came, b"held");
        Result::Ok(())
    });
}

/// A closed port refuses and a host without power is silent.
#[test]
fn closed_port_refuses_powerless_is_silent() {
    polder_sim::check(0..10, |sim| async move {
        let far = sim.host("far");
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect("far:1").await?;
        socket.send(b"anybody?").await?;
        let refused = timeout(secs(1), socket.recv(&mut [0; 4])).await?;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // The error was reported once.
        assert_eq!(
            socket.try_recv(&mut [0; 4]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        far.power_off();
        socket.send(b"anybody?").await?;
        assert!(timeout(secs(5), socket.recv(&mut [0; 4])).await.is_err());
        Result::Ok(())
    });
}

/// Datagrams beyond the receive buffer are lost; those in it stay.
#[test]
fn full_receive_buffer_drops_new() {
    polder_sim::check(0..3, |_| async move {
        let near = UdpSocket::bind("127.0.0.1:1").await?;
        let far = UdpSocket::bind("127.0.0.1:2").await?;
        for n in 0..1_000_u32 {
            far.send_to(&n.to_le_bytes().repeat(256), "127.0.0.1:1")
                .await?;
        }
        sleep(ms(1)).await;
        let mut count = 0_u32;
        let mut bytes = [0; 1_024];
        while near.try_recv(&mut bytes).is_ok() {
            assert_eq!(bytes[..4], count.to_le_bytes());
            count += 1;
        }
        assert!((50..500).contains(&count), "{count} of 1,000 were kept");
        far.send_to(b"now", "127.0.0.1:1").await?;
        assert_eq!(timeout(secs(1), near.recv(&mut bytes)).await??, 3);
        Result::Ok(())
    });
}

/// A broadcast reaches every host that listens if it is allowed.
#[test]
fn broadcast_reaches_listeners_if_allowed() {
    polder_sim::check(0..10, |sim| async move {
        let hosts = ["a", "b", "c"].map(|name| {
            sim.host(name).start(|| async {
                let socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
                socket.recv_from(&mut [0; 8]).await.unwrap().1
            })
        });
        sleep(ms(1)).await;
        let everybody = SocketAddr::from((Ipv4Addr::BROADCAST, 1));
        for own in ["127.0.0.1:5", "0.0.0.0:5"] {
            let socket = UdpSocket::bind(own).await?;
            let refused = socket.send_to(b"hello", everybody).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        }
        let socket = UdpSocket::bind("0.0.0.0:5").await?;
        socket.set_broadcast(true)?;
        assert!(socket.broadcast()?);
        socket.send_to(b"hello", everybody).await?;
        let from = SocketAddr::new(sim.host("test").address(), 5);
        for host in hosts {
            assert_eq!(host.finished().within(secs(1)).await, from);
        }
        // A socket that is connected to the broadcast address keeps its route, as on Linux.
        socket.connect(everybody).await?;
        socket.set_broadcast(false)?;
        assert_eq!(socket.send(b"hello").await?, 5);
        let refused = socket.send_to(b"hello", everybody).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        Result::Ok(())
    });
}

#[test]
fn ports_are_free_again_after_a_crash() {
    polder_sim::check(0..5, |sim| async move {
        let far = sim.host("far").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:1").await?;
            let (length, from) = socket.recv_from(&mut [0; 8]).await?;
            socket.send_to(&[7; 8][..length], from).await
        });
        for ending in 0..3 {
            sleep(ms(1)).await;
            match ending {
                0 => {}
                1 => far.kill(),
                _ => far.power_off(),
            }
            far.restart();
            sleep(ms(1)).await;
            let socket = UdpSocket::bind("0.0.0.0:0").await?;
            socket.send_to(b"four", "far:1").await?;
            let length = timeout(secs(1), socket.recv(&mut [0; 8])).await??;
            assert_eq!(length, 4);
            far.finished().within(secs(1)).await?;
            far.restart();
        }
        Result::Ok(())
    });
}

#[test]
fn multicast_says_that_it_is_not_there() {
    polder_sim::check(0..1, |_| async move {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        let group = Ipv4Addr::new(224, 0, 0, 250);
        let none = Ipv4Addr::UNSPECIFIED;
        let errors = [
            socket.join_multicast_v4(group, none).unwrap_err(),
            socket.leave_multicast_v4(group, none).unwrap_err(),
            socket.set_multicast_ttl_v4(3).unwrap_err(),
            socket.multicast_ttl_v4().unwrap_err(),
            socket.multicast_loop_v4().unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        Result::Ok(())
    });
}

#[test]
fn probabilities_beyond_their_ends_are_refused() {
    for (n, probability) in [-0.1, 1.1, f64::NAN].into_iter().enumerate() {
        let report = polder_sim::run(n as u64, move |sim| async move {
            match n % 2 {
                0 => drop(sim.links().duplication(probability)),
                _ => drop(sim.links().reordering(probability)),
            }
        });
        let failure = report.failure.unwrap();
        assert!(failure.contains("from 0 to 1"), "{failure}");
    }
}

#[cfg(unix)]
#[test]
fn errors_have_the_systems_numbers() {
    polder_sim::check(0..2, |sim| async move {
        sim.host("server");
        let socket = UdpSocket::bind("0.0.0.0:7").await.unwrap();
        let number = |error: std::io::Error| error.raw_os_error();
        let error = socket.send_to(b"x", "255.255.255.255:7").await.unwrap_err();
        assert_eq!(number(error), Some(libc::EACCES));
        // This one has words instead, which end with the system's.
        let error = UdpSocket::bind("0.0.0.0:7").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let words = format!("(os error {})", libc::EADDRINUSE);
        assert!(error.to_string().contains(&words), "{error}");
        let error = socket.send_to(&[0; 70_000], "server:7").await.unwrap_err();
        assert_eq!(number(error), Some(libc::EMSGSIZE));
        let error = polder::net::TcpStream::connect("server:7").await;
        assert_eq!(number(error.unwrap_err()), Some(libc::ECONNREFUSED));
        let error = polder::net::unix::UnixStream::connect("/nobody").await;
        assert_eq!(number(error.unwrap_err()), Some(libc::ENOENT));
    });
}

/// Some copies come after datagrams that were sent later.
#[test]
fn a_copy_of_a_datagram_keeps_no_order() {
    let late = Arc::new(AtomicUsize::new(0));
    polder_sim::check(0..5, |sim: Sim| {
        let late = late.clone();
        async move {
            sim.links().duplication(0.5);
            let receiver = sim.host("receiver").start(move || {
                let late = late.clone();
                async move {
                    let socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
                    let mut seen = Vec::new();
                    let mut byte = [0];
                    while timeout(secs(4), socket.recv(&mut byte)).await.is_ok() {
                        let first = seen.iter().position(|it| *it == byte[0]);
                        let newer = |it: &u8| *it > byte[0];
                        if first
                            .is_some_and(|at| seen[at..].iter().filter(|it| newer(it)).count() > 5)
                        {
                            late.fetch_add(1, Ordering::Relaxed);
                        }
                        seen.push(byte[0]);
                    }
                    seen
                }
            });
            sim.sleep(ms(1)).await;
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            for number in 0..100 {
                socket
                    .send_to(&[number], (receiver.address(), 1))
                    .await
                    .unwrap();
                sim.sleep(ms(2)).await;
            }
            let seen = receiver.finished().within(secs(60)).await;
            let mut first: Vec<u8> = Vec::new();
            seen.iter().for_each(|it| {
                if !first.contains(it) {
                    first.push(*it);
                }
            });
            assert_eq!(
                first,
                (0..100).collect::<Vec<_>>(),
                "the others keep theirs"
            );
            assert!(seen.len() > 120, "{seen:?}");
        }
    });
    assert!(late.load(Ordering::Relaxed) > 20, "{late:?}");
}

//! Rules 12 and 24: connecting and binding.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::thread;
use std::time::Duration;

use polder::Backend;
use polder::future::{self, poll_once};
use polder::net::{AsyncToSocketAddrs, TcpListener, TcpStream, resolve};
use polder::time::timeout;
use socket2::{Domain, Protocol, Socket, Type};

use super::{has_ipv6, held_listener, some_turns};
use crate::probe::listen;
use crate::support::{
    LIMIT, in_every_runtime, is_in_world, on_every_backend, on_every_backend_alone_in_parallel,
    runtime,
};

/// Returns an address that refuses as long as the socket lives: bound, so that no other socket gets
/// it, and not listening.
fn refusing(ip: impl Into<std::net::IpAddr>) -> (Option<Socket>, SocketAddr) {
    let mut address = SocketAddr::new(ip.into(), 0);
    if is_in_world() {
        address.set_port(1); // No other test has ports here.
        return (None, address);
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )
    .unwrap();
    socket.bind(&address.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (Some(socket), address)
}

async fn reaches(listener: &TcpListener, address: impl AsyncToSocketAddrs) {
    let near = TcpStream::connect(address).await.expect("it listens");
    // Another program may connect to a port that it has found free before.
    let far = loop {
        let (far, peer) = listener.accept().await.unwrap();
        if peer == near.local_addr().unwrap() {
            break far;
        }
    };
    assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
    assert_eq!(far.local_addr().unwrap(), near.peer_addr().unwrap());
    assert_eq!(near.peer_addr().unwrap(), listener.local_addr().unwrap());
}

#[test]
fn connect_takes_every_form_of_address() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let port = address.port();
        reaches(&listener, address).await;
        reaches(&listener, &address).await;
        reaches(&listener, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).await;
        reaches(&listener, (address.ip(), port)).await;
        reaches(&listener, (Ipv4Addr::LOCALHOST, port)).await;
        reaches(&listener, ("127.0.0.1", port)).await;
        reaches(&listener, ("localhost", port)).await;
        reaches(&listener, (String::from("localhost"), port)).await;
        reaches(&listener, address.to_string()).await;
        reaches(&listener, address.to_string().as_str()).await;
        reaches(&listener, format!("localhost:{port}")).await;
        reaches(&listener, [address]).await;
        reaches(&listener, &[address][..]).await;
        reaches(&listener, vec![address]).await;
    });
}

#[test]
fn connect_takes_every_form_of_ipv6_address() {
    if !has_ipv6() {
        return;
    }
    in_every_runtime(|_| async {
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let port = address.port();
        assert!(address.is_ipv6());
        reaches(&listener, address).await;
        reaches(
            &listener,
            SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0),
        )
        .await;
        reaches(&listener, (Ipv6Addr::LOCALHOST, port)).await;
        reaches(&listener, ("::1", port)).await;
        reaches(&listener, format!("[::1]:{port}")).await;
    });
}

#[test]
fn bind_takes_every_form_of_address() {
    async fn binds(address: impl AsyncToSocketAddrs) {
        let listener = TcpListener::bind(address).await.expect("port 0 is free");
        let address = listener.local_addr().unwrap();
        assert_ne!(address.port(), 0, "the real port is told");
        reaches(&listener, address).await;
    }
    in_every_runtime(|_| async {
        binds("127.0.0.1:0").await;
        binds("localhost:0").await;
        binds(("localhost", 0)).await;
        binds((Ipv4Addr::LOCALHOST, 0)).await;
        binds(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
        if has_ipv6() {
            binds("[::1]:0").await;
        }
    });
}

#[test]
fn the_first_address_that_works_wins() {
    in_every_runtime(|_| async {
        let (_held, refusing) = refusing(Ipv4Addr::LOCALHOST);
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (a, b) = (first.local_addr().unwrap(), second.local_addr().unwrap());
        for (list, winner) in [
            (vec![refusing, a, b], a),
            (vec![refusing, refusing, b, a], b),
            (vec![a, refusing], a),
        ] {
            let stream = TcpStream::connect(list).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), winner);
        }

        // `a` is taken.
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let third = TcpListener::bind([a, b, free]).await.unwrap();
        assert_ne!(third.local_addr().unwrap(), a);
        let error = TcpListener::bind([b, a]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let words = error.to_string();
        assert!(
            words.starts_with(&format!("cannot listen on {a}: ")),
            "{words}"
        );
        assert!(words.ends_with(": port 0 stands for a free one"), "{words}");
    });
}

#[test]
fn refused_is_an_error_of_connect() {
    in_every_runtime(|_| async {
        let mut all = vec![refusing(Ipv4Addr::LOCALHOST)];
        if has_ipv6() {
            all.push(refusing(Ipv6Addr::LOCALHOST));
        }
        for (_, address) in &all {
            for _ in 0..20 {
                let error = TcpStream::connect(*address).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{address}");
            }
        }
        let list: Vec<_> = all.iter().map(|(_, address)| *address).collect();
        let error = TcpStream::connect(list).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

/// The broadcast address of the loopback network takes no connections, and nothing leaves the
/// machine.
#[test]
fn unreachable_is_an_error_of_connect() {
    in_every_runtime(|_| async {
        let connect = TcpStream::connect((Ipv4Addr::new(127, 255, 255, 255), 9));
        let error = timeout(LIMIT / 4, connect)
            .await
            .expect("it says so at once")
            .unwrap_err();
        assert!(error.raw_os_error().is_some(), "the system's: {error}");
    });
}

/// If all addresses fail, the error of the last one is returned.
///
/// The system's own error, with its number, which programs inspect.
#[test]
fn all_failed_gives_last_error() {
    in_every_runtime(|_| async {
        async fn error_of(list: Vec<SocketAddr>) -> Option<i32> {
            let connect = timeout(LIMIT / 4, TcpStream::connect(list));
            let result = connect.await.expect("they say so at once");
            result.expect_err("nobody listens").raw_os_error()
        }
        let (_held, refusing) = refusing(Ipv4Addr::LOCALHOST);
        let unreachable = SocketAddr::from((Ipv4Addr::new(127, 255, 255, 255), 9));
        let refused = error_of(vec![refusing]).await;
        let not_reached = error_of(vec![unreachable]).await;
        assert!(refused.is_some() && not_reached.is_some());
        assert_eq!(error_of(vec![unreachable, refusing]).await, refused);
        assert_eq!(error_of(vec![refusing, unreachable]).await, not_reached);
    });
}

/// Bad text and an empty list are errors with words.
#[test]
fn bad_text_and_empty_list_are_errors() {
    in_every_runtime(|_| async {
        for text in [
            "",
            ":",
            ":80",
            "localhost",
            "localhost:",
            "localhost:http",
            "localhost:65536",
            "localhost:-1",
            "127.0.0.1",
            "[::1]",
        ] {
            for error in [
                TcpStream::connect(text).await.unwrap_err(),
                TcpListener::bind(text).await.unwrap_err(),
                resolve(text).await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}");
                let words = error.to_string();
                assert!(
                    words.contains(&format!("{text:?}")),
                    "{words:?} tells of {text:?}"
                );
            }
        }
        let none: [SocketAddr; 0] = [];
        for error in [
            TcpStream::connect(none).await.unwrap_err(),
            TcpListener::bind(Vec::new()).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("empty"), "{error}");
        }
        // No resolver is queried for these: one is empty, the other cannot be passed on.
        for host in ["", "a\0b"] {
            let error = TcpStream::connect((host, 80)).await.unwrap_err();
            assert!(error.to_string().contains(&format!("{host:?}")), "{error}");
        }
    });
}

#[test]
fn peer_addr_works_right_after_connect() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let accept = async {
            for _ in 0..100 {
                listener.accept().await.unwrap();
            }
        };
        let connect = async {
            for _ in 0..100 {
                let stream = TcpStream::connect(address).await.unwrap();
                assert_eq!(stream.peer_addr().unwrap(), address);
            }
        };
        future::zip(accept, connect).await;
    });
}

/// A connect that waits connects or is refused in the end.
///
/// A listener with a full queue drops connection requests, and the kernel repeats them after a
/// second: the one way on loopback to a connect that really waits. So this test takes that second,
/// on all backends at the same time.
#[test]
fn connect_waiting_connects_or_refused() {
    fn full() -> (
        std::net::TcpListener,
        SocketAddr,
        (Socket, std::net::TcpStream),
    ) {
        let (listener, address, holder) = held_listener(0);
        let first = std::net::TcpStream::connect(address).unwrap();
        (listener, address, (holder, first))
    }
    fn rule(backend: Backend) {
        runtime(backend).block_on(async {
            let (drained, drained_address, _first) = full();
            let (closed, closed_address, _second) = full();
            let (_full, full_address, _third) = full();
            let mut connects = Box::pin(TcpStream::connect(drained_address));
            let mut refused = Box::pin(TcpStream::connect(closed_address));
            let mut given_up = Box::pin(TcpStream::connect(full_address));
            for _ in 0..3 {
                for connect in [&mut connects, &mut refused, &mut given_up] {
                    let early = poll_once(connect).await;
                    assert!(early.is_none(), "nobody has answered yet: {early:?}");
                }
                some_turns().await;
            }
            drop(given_up);
            drained.accept().unwrap();
            drop(closed);
            let limit = Duration::from_secs(30);
            let (connected, refused) =
                future::zip(timeout(limit, connects), timeout(limit, refused)).await;
            let stream = connected.expect("it is woken").expect("there is room now");
            assert_eq!(stream.peer_addr().unwrap(), drained_address);
            let error = refused.expect("it is woken").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        });
    }
    on_every_backend_alone_in_parallel(rule);
}

/// Without a runtime, and with another kind of runtime.
#[test]
fn connect_and_accept_work_on_plain_threads() {
    on_every_backend(|backend| {
        let listener = futures_lite::future::block_on(TcpListener::bind("localhost:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let plain =
            thread::spawn(move || futures_lite::future::block_on(listener.accept()).unwrap().0);
        let near = runtime(backend)
            .block_on(TcpStream::connect(address))
            .unwrap();
        let far = plain.join().unwrap();
        assert_eq!(near.local_addr().unwrap(), far.peer_addr().unwrap());
    });
}

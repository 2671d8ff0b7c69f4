//! Hosts with several addresses of one family: which socket is reached by which of them.

use std::io::{ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket, resolve, serve};
use polder::time::timeout;
use polder_sim::Sim;

use super::{ask, ms, secs};

const LOOPBACK: [&str; 2] = ["127.0.0.1", "127.0.0.2"];

/// Makes calls at two addresses of this machine, and returns what comes of each.
async fn calls() -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let mut see = |what: &str, result: Result<SocketAddr>| {
        let result = result
            .map(|address| address.ip())
            .map_err(|error| error.kind());
        seen.push(format!("{what}: {result:?}"));
    };
    // A port of the one address, and the same port of the other.
    let second = TcpListener::bind((LOOPBACK[1], 0)).await?;
    let port = second.local_addr()?.port();
    let refused = TcpStream::connect((LOOPBACK[0], port)).await;
    see(
        "TCP to the address without a listener",
        refused.and_then(|it| it.peer_addr()),
    );
    let first = TcpListener::bind((LOOPBACK[0], port)).await?;
    for ip in ["0.0.0.0", LOOPBACK[0], LOOPBACK[1]] {
        let bound = TcpListener::bind((ip, port)).await;
        see(
            "a listener on a taken port",
            bound.and_then(|it| it.local_addr()),
        );
    }
    for (listener, ip) in [(&first, LOOPBACK[0]), (&second, LOOPBACK[1])] {
        let client = TcpStream::connect((ip, port)).await?;
        let (server, from) = listener.accept().await?;
        see("connected to", client.peer_addr());
        see("connected from", client.local_addr());
        see("accepted at", server.local_addr());
        assert_eq!(from, client.local_addr()?);
    }
    let all = TcpListener::bind("0.0.0.0:0").await?;
    for ip in LOOPBACK {
        let client = TcpStream::connect((ip, all.local_addr()?.port())).await?;
        see("all accept from", all.accept().await.map(|it| it.1));
        see("all accept at", client.peer_addr());
    }

    let second = UdpSocket::bind((LOOPBACK[1], 0)).await?;
    let port = second.local_addr()?.port();
    let first = UdpSocket::bind((LOOPBACK[0], port)).await?;
    for ip in ["0.0.0.0", LOOPBACK[0], LOOPBACK[1]] {
        let bound = UdpSocket::bind((ip, port)).await;
        see(
            "a socket on a taken port",
            bound.and_then(|it| it.local_addr()),
        );
    }
    let all = UdpSocket::bind("0.0.0.0:0").await?;
    let all_port = all.local_addr()?.port();
    let mut bytes = [0; 8];
    for (nth, ip) in LOOPBACK.into_iter().enumerate() {
        all.send_to(&[nth as u8], (ip, port)).await?;
        let (own, other) = if nth == 0 {
            (&first, &second)
        } else {
            (&second, &first)
        };
        see(
            "a datagram from all",
            own.recv_from(&mut bytes).await.map(|it| it.1),
        );
        assert_eq!(bytes[0], nth as u8);
        see(
            "and none for the other",
            other.try_recv_from(&mut bytes).map(|it| it.1),
        );
        for to in LOOPBACK {
            own.send_to(b"?", (to, all_port)).await?;
            see(
                "all receive from",
                all.recv_from(&mut bytes).await.map(|it| it.1),
            );
        }
    }
    // The answer comes from the first address, and a socket that is connected to the second one
    // does not receive it.
    let client = UdpSocket::bind("0.0.0.0:0").await?;
    client.connect((LOOPBACK[1], all_port)).await?;
    see("connected from", client.local_addr());
    client.send(b"ask").await?;
    let (_, from) = all.recv_from(&mut bytes).await?;
    all.send_to(b"answer", from).await?;
    let answer = timeout(ms(20), client.recv(&mut bytes)).await;
    seen.push(format!("the answer of all: {answer:?}"));
    Ok(seen)
}

/// The addresses of loopback are reached as on Linux.
#[test]
fn loopback_addresses_as_on_linux() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    polder_sim::check(0..3, |_: Sim| async {
        *SEEN.lock().unwrap() = calls().await?;
        Result::Ok(())
    });
    let seen = SEEN.lock().unwrap();
    assert_eq!(seen.len(), 27, "{seen:?}");
    // Elsewhere 127.0.0.2 is no address unless it is configured.
    if cfg!(target_os = "linux") {
        // Another program may have the port at the other address.
        let on_linux = (0..10).find_map(|_| polder::block_on(calls()).ok());
        assert_eq!(*seen, on_linux.expect("a port that is free at both"));
    }
}

const SECOND: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 1)),
];

/// A socket is reached by the address that it is bound to and by no other.
#[test]
fn socket_reached_by_bound_address_only() {
    polder_sim::check(0..10, |sim| async move {
        let server = sim.host("server");
        for second in SECOND {
            server.add_address(second);
            let first = match second {
                IpAddr::V4(_) => server.address(),
                IpAddr::V6(_) => server.address_v6(),
            };
            let any: IpAddr = match second {
                IpAddr::V4(_) => "0.0.0.0".parse().unwrap(),
                IpAddr::V6(_) => "::".parse().unwrap(),
            };
            for (bound, reached) in [
                (first, vec![first]),
                (second, vec![second]),
                (any, vec![first, second]),
            ] {
                let program = server.start(move || async move {
                    let listener = TcpListener::bind((bound, 1)).await?;
                    let socket = UdpSocket::bind((bound, 1)).await?;
                    let mut bytes = [0; 4];
                    let (_, from) = socket.recv_from(&mut bytes).await?;
                    socket.send_to(&bytes, from).await?;
                    let (mut stream, _) = listener.accept().await?;
                    stream.read_exact(&mut bytes).await?;
                    stream.write_all(&bytes).await?;
                    stream.local_addr()
                });
                sim.sleep(ms(1)).await;
                for to in [first, second] {
                    let socket = UdpSocket::bind((any, 0)).await?;
                    socket.connect((to, 1)).await?;
                    let own = [sim.host("test").address(), sim.host("test").address_v6()];
                    assert!(own.contains(&socket.local_addr()?.ip()));
                    let is_reached = reached.contains(&to);
                    if !is_reached {
                        socket.send(b"ping").await?;
                        let error = socket.recv(&mut [0; 4]).await.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{bound} {to}");
                        let error = TcpStream::connect((to, 1)).await.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{bound} {to}");
                    }
                }
                let to = *reached.last().unwrap();
                let socket = UdpSocket::bind((any, 0)).await?;
                socket.send_to(b"ping", (to, 1)).await?;
                let (_, from) = timeout(secs(1), socket.recv_from(&mut [0; 4])).await??;
                // A socket that is bound to all answers from the first address.
                assert_eq!(from.ip(), if bound == any { first } else { to });
                let mut stream = TcpStream::connect((to, 1)).await?;
                ask(&mut stream).await?;
                assert_eq!(stream.peer_addr()?.ip(), to);
                assert_eq!(program.finished().within(secs(1)).await?.ip(), to);
            }
        }
        Result::Ok(())
    });
}

/// A client finds the address at which a server serves.
#[test]
fn client_finds_server_address() {
    polder_sim::check(0..20, |sim| async move {
        let host = sim.host("server");
        host.add_address(SECOND[0]);
        let (first, second) = (host.address(), SECOND[0]);
        let serves = [first, second][sim.choose(2) as usize];
        host.start(move || async move {
            let listener = TcpListener::bind((serves, 1)).await?;
            serve(listener, |mut stream, _| async move {
                let mut bytes = [0; 4];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
            })
            .await
        });
        // Its own name has the first one alone.
        assert_eq!(resolve("server:1").await?, [SocketAddr::new(first, 1)]);
        let other = if serves == first { second } else { first };
        for addresses in [[serves, other], [other, serves]] {
            sim.names().set("server", addresses);
            let mut stream = TcpStream::connect("server:1").await?;
            assert_eq!(stream.peer_addr()?, SocketAddr::new(serves, 1));
            ask(&mut stream).await?;
        }
        // A cut applies to both.
        let _cut = sim.cut(&["test"], &["server"]);
        let error = TcpStream::connect_timeout("server:1", secs(5))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        Result::Ok(())
    });
}

/// A host reaches itself at an added address from there.
#[test]
fn host_reaches_itself_at_added_address() {
    polder_sim::check(0..3, |sim| async move {
        sim.host("test").add_address(SECOND[0]);
        let listener = TcpListener::bind((SECOND[0], 0)).await?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        assert_eq!(client.local_addr()?.ip(), SECOND[0]);
        assert_eq!(listener.accept().await?.1, client.local_addr()?);
        Result::Ok(())
    });
}

#[test]
#[should_panic = "polder_sim: \"one\" has the address 192.0.2.1"]
fn two_hosts_cannot_have_one_address() {
    polder_sim::check(0..1, |sim| async move {
        for name in ["one", "other"] {
            sim.host(name).add_address(SECOND[0]);
        }
    });
}

/// An address that a later host gets cannot be added.
#[test]
#[should_panic = "polder_sim: 10.0.0.7 cannot be added to a host"]
fn address_of_later_host_cannot_be_added() {
    polder_sim::check(0..1, |sim| async move {
        sim.host("one").add_address([10, 0, 0, 7]);
    });
}

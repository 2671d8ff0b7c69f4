//! Sockets of IPv6 that talk with those of IPv4, and numbers in place of names, as on Linux
//! (ipv6(7), inet(3)).

use std::io::Result;
use std::net::SocketAddr;
use std::sync::Mutex;

use polder::net::{TcpListener, TcpStream, UdpSocket, resolve};
use polder_sim::Sim;

/// Connects in all ways, and returns the addresses that each end sees, without their ports.
async fn connect_and_send() -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let mut see = |what: &str, address: SocketAddr| seen.push(format!("{what}: {}", address.ip()));
    let both = TcpListener::bind("[::]:0").await?;
    let v4 = TcpListener::bind("127.0.0.1:0").await?;
    for (name, listener, ip) in [
        ("v4 to both", &both, "127.0.0.1"),
        ("mapped to both", &both, "::ffff:127.0.0.1"),
        ("v6 to both", &both, "::1"),
        ("mapped to v4", &v4, "::ffff:127.0.0.1"),
    ] {
        let client = TcpStream::connect((ip, listener.local_addr()?.port())).await?;
        let (server, from) = listener.accept().await?;
        see(name, from);
        for socket in [&client, &server] {
            see(name, socket.local_addr()?);
            see(name, socket.peer_addr()?);
        }
        assert_eq!(from, server.peer_addr()?);
    }
    let both = UdpSocket::bind("[::]:0").await?;
    let v4 = UdpSocket::bind("127.0.0.1:0").await?;
    let mut bytes = [0; 4];
    v4.send_to(b"ping", ("127.0.0.1", both.local_addr()?.port()))
        .await?;
    let (_, from) = both.recv_from(&mut bytes).await?;
    see("datagram to both", from);
    both.send_to(b"pong", from).await?;
    let (_, from) = v4.recv_from(&mut bytes).await?;
    see("its answer", from);
    both.connect(v4.local_addr()?).await?;
    see("its peer", both.peer_addr()?);
    both.send_to(b"more", "[::ffff:127.0.0.1]:9").await?;
    both.connect("127.0.0.1:9").await?;
    see("its next peer", both.peer_addr()?);
    let mapped = TcpListener::bind("[::ffff:127.0.0.1]:0").await?;
    let address = mapped.local_addr()?;
    see("bound to a mapped one", address);
    let _client = TcpStream::connect(("127.0.0.1", address.port())).await?;
    see("connected there", mapped.accept().await?.1);
    let refused = v4.send_to(b"ping", "[::1]:9").await.unwrap_err();
    seen.push(format!("v4 to v6: {:?}", refused.raw_os_error()));
    Ok(seen)
}

/// A socket of IPv6 sees addresses of IPv4 as mapped ones.
#[test]
fn ipv6_socket_sees_mapped_ipv4() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    polder_sim::check(0..3, |_: Sim| async {
        *SEEN.lock().unwrap() = connect_and_send().await?;
        Result::Ok(())
    });
    let seen = SEEN.lock().unwrap();
    assert!(
        seen.contains(&"datagram to both: ::ffff:127.0.0.1".to_owned()),
        "{seen:?}"
    );
    // Unless this machine has no IPv6.
    if cfg!(target_os = "linux") && std::net::TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(*seen, polder::block_on(connect_and_send()).unwrap());
    }
}

/// Binds two sockets to the same port, for each pair of addresses. Returns the results of the
/// second ones.
async fn bind_pairs() -> Result<Vec<String>> {
    let addresses = [
        "0.0.0.0",
        "127.0.0.1",
        "127.0.0.2",
        "::",
        "::1",
        "::ffff:127.0.0.1",
    ];
    let mut results = Vec::new();
    for (one, other) in addresses
        .iter()
        .flat_map(|one| addresses.map(|it| (one, it)))
    {
        let listener = TcpListener::bind((*one, 0)).await?;
        let tcp = TcpListener::bind((other, listener.local_addr()?.port())).await;
        let socket = UdpSocket::bind((*one, 0)).await?;
        let udp = UdpSocket::bind((other, socket.local_addr()?.port())).await;
        let [tcp, udp] = [tcp.map(drop), udp.map(drop)].map(|it| it.map_err(|it| it.kind()));
        results.push(format!("{one}, then {other}: {tcp:?}, {udp:?}"));
    }
    Ok(results)
}

/// A port that is taken for all addresses of IPv4 is free for one of IPv6.
#[test]
fn port_of_all_ipv4_free_for_one_ipv6() {
    static RESULTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    polder_sim::check(0..1, |_: Sim| async {
        *RESULTS.lock().unwrap() = bind_pairs().await?;
        Result::Ok(())
    });
    let results = RESULTS.lock().unwrap();
    for pair in ["0.0.0.0, then ::1", "::1, then 0.0.0.0"] {
        assert!(
            results.contains(&format!("{pair}: Ok(()), Ok(())")),
            "{results:#?}"
        );
    }
    if cfg!(target_os = "linux") && std::net::TcpListener::bind("[::1]:0").is_ok() {
        // Another test may have bound a port between two calls.
        let mut tries = (0..3).map(|_| polder::block_on(bind_pairs()).unwrap());
        let linux = tries.find(|linux| *linux == *results);
        assert_eq!(Some(&*results), linux.as_ref());
    }
}

/// A host that is named by a number has its own address.
#[test]
fn host_named_by_number_has_own_address() {
    polder_sim::check(0..1, |sim: Sim| async move {
        let address = sim.host("1").address();
        assert_eq!(
            resolve(("1", 7)).await.unwrap(),
            [SocketAddr::new(address, 7)]
        );
    });
}

/// Numbers of IPv4 are read as the C library reads them.
#[test]
fn ipv4_numbers_parsed_as_libc() {
    polder_sim::check(0..1, |_: Sim| async {
        for (text, ip) in [
            ("127.1", [127, 0, 0, 1]),
            ("0x7f000001", [127, 0, 0, 1]),
            ("2130706433", [127, 0, 0, 1]),
            ("10.1.515", [10, 1, 2, 3]),
            ("0x0a.010.2.3", [10, 8, 2, 3]),
            ("0", [0, 0, 0, 0]),
            ("4294967295", [255; 4]),
        ] {
            let addresses = resolve((text, 80)).await.unwrap();
            assert_eq!(addresses, [SocketAddr::from((ip, 80))], "{text}");
        }
        for text in [
            "256.1",
            "1.2.3.256",
            "4294967296",
            "1.2.3.4.5",
            "1.",
            "0x",
            "09",
            "1.x",
            "+1",
        ] {
            assert!(resolve((text, 80)).await.is_err(), "{text}");
        }
    });
}

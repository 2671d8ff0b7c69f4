//! Hosts behind a gateway that translates their addresses: what gets through it, in which
//! direction, and for how long.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_sim::{Host, Latency, Sim};

use super::{ask, echo, ms, secs};

/// Puts the test's own host behind a gateway, and starts `outside`, a reflector and an echo.
fn behind_gateway(sim: &Sim) -> Host {
    let gateway = sim.host("gateway");
    sim.host("test").behind_nat(&gateway);
    sim.host("outside").start(|| async {
        polder::spawn_local(reflector()).detach();
        echo().await;
    });
    gateway
}

/// Answers each datagram to port 1 with the address that it has come from.
async fn reflector() -> Result<()> {
    let socket = UdpSocket::bind("[::]:1").await?;
    loop {
        let (_, from) = socket.recv_from(&mut [0; 64]).await?;
        socket.send_to(from.to_string().as_bytes(), from).await?;
    }
}

/// Returns the address that a [`reflector`] sees, or that sent this text.
async fn received(socket: &UdpSocket) -> Result<SocketAddr> {
    let mut bytes = [0; 64];
    let len = timeout(secs(1), socket.recv(&mut bytes)).await??;
    let text = std::str::from_utf8(&bytes[..len]).expect("an address");
    Ok(text.parse().expect("an address"))
}

async fn reflected(socket: &UdpSocket, by: &str) -> Result<SocketAddr> {
    socket.send_to(b"?", by).await?;
    let mut seen = received(socket).await?;
    seen.set_ip(seen.ip().to_canonical());
    Ok(seen)
}

/// A server sees the gateway with the port of the client.
#[test]
fn server_sees_gateway_with_clients_port() {
    polder_sim::check(0..10, |sim| async move {
        let gateway = behind_gateway(&sim);
        sim.host("server").start(|| async {
            let listener = TcpListener::bind("[::]:2").await?;
            loop {
                let (mut stream, from) = listener.accept().await?;
                stream.write_all(from.to_string().as_bytes()).await?;
                drop(stream);
            }
            #[allow(unreachable_code)]
            Result::Ok(())
        });
        sleep(ms(1)).await;
        let outside = sim.host("outside");
        let server = sim.host("server");
        for (ip, reflector, server) in [
            (gateway.address(), outside.address(), server.address()),
            (
                gateway.address_v6(),
                outside.address_v6(),
                server.address_v6(),
            ),
        ] {
            let any = if ip.is_ipv4() { "0.0.0.0:9" } else { "[::]:9" };
            let socket = UdpSocket::bind(any).await?;
            socket.connect((reflector, 1)).await?;
            socket.send(b"?").await?;
            let seen = received(&socket).await?;
            assert_eq!((seen.ip().to_canonical(), seen.port()), (ip, 9));
            let mut stream = TcpStream::connect((server, 2)).await?;
            let mut seen = String::new();
            stream.read_to_string(&mut seen).await?;
            let seen: SocketAddr = seen.parse().expect("an address");
            assert_eq!(seen.ip().to_canonical(), ip);
            assert_eq!(seen.port(), stream.local_addr()?.port());
            // The client itself knows its own address, and the server's.
            assert_ne!(stream.local_addr()?.ip(), ip);
            assert_eq!(stream.peer_addr()?.ip(), server);
        }
        Result::Ok(())
    });
}

/// Two clients with one port get two and neither is a port of the gateway itself.
#[test]
fn clients_with_one_port_get_two() {
    polder_sim::check(0..10, |sim| async move {
        let gateway = behind_gateway(&sim);
        let own = gateway.start(|| async {
            let taken = UdpSocket::bind("0.0.0.0:9").await?;
            sleep(secs(5)).await;
            // It gets none of theirs either, if it asks for any: the next one would be 32770.
            let own = UdpSocket::bind("0.0.0.0:0").await?;
            let seen = reflected(&own, "outside:1").await?;
            drop(taken);
            assert_eq!(
                seen,
                own.local_addr().map(|it| (seen.ip(), it.port()).into())?
            );
            Result::Ok(seen.port())
        });
        let other = sim.host("other");
        other.behind_nat(&gateway);
        let other = other.start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:32770").await?;
            reflected(&socket, "outside:1").await
        });
        sleep(ms(100)).await;
        let mut seen = vec![other.finished().within(secs(1)).await?.port()];
        for port in [32_770, 9] {
            let socket = UdpSocket::bind(("0.0.0.0", port)).await?;
            let outside = reflected(&socket, "outside:1").await?;
            assert_eq!(outside.ip(), gateway.address());
            seen.push(outside.port());
            // All flows of a socket have one port.
            let server = sim.host("second");
            if !server.is_up() {
                server.start(reflector);
                sleep(ms(1)).await;
            }
            assert_eq!(reflected(&socket, "second:1").await?, outside);
        }
        seen.push(own.finished().within(secs(10)).await?);
        assert_eq!(seen[0], 32_770);
        seen.push(9);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 5, "{seen:?}");
        Result::Ok(())
    });
}

/// A socket of the gateway takes the port that it is bound to.
#[test]
fn gateway_socket_takes_bound_port() {
    polder_sim::check(0..10, |sim| async move {
        let gateway = behind_gateway(&sim);
        sleep(ms(1)).await;
        let socket = UdpSocket::bind("0.0.0.0:9").await?;
        assert_eq!(reflected(&socket, "outside:1").await?.port(), 9);
        let own = gateway.start(|| async {
            let own = UdpSocket::bind("0.0.0.0:9").await?;
            let seen = reflected(&own, "outside:1").await?;
            sleep(secs(5)).await;
            Result::Ok(seen.port())
        });
        sleep(secs(1)).await;
        assert_ne!(reflected(&socket, "outside:1").await?.port(), 9);
        assert_eq!(own.finished().within(secs(9)).await?, 9);
        Result::Ok(())
    });
}

#[test]
fn nothing_comes_in_that_was_not_asked_for() {
    polder_sim::check(0..10, |sim| async move {
        let gateway = behind_gateway(&sim);
        let inside = sim.host("test").address();
        let to = [inside, gateway.address()];
        let refused = sim.host("stranger").start(move || async move {
            sleep(secs(2)).await;
            let mut refused = Vec::new();
            for (ip, kind) in to
                .into_iter()
                .zip([ErrorKind::TimedOut, ErrorKind::ConnectionRefused])
            {
                // From the port that was asked, but of another host; and from another port.
                for port in [1, 2] {
                    let socket = UdpSocket::bind(("0.0.0.0", port)).await?;
                    socket.connect((ip, 9)).await?;
                    socket.send(b"!").await?;
                    let error = timeout(secs(1), socket.recv(&mut [0; 4])).await;
                    refused.push(
                        error.map_or(ErrorKind::TimedOut, |it| it.unwrap_err().kind()) == kind,
                    );
                }
                let error = TcpStream::connect_timeout((ip, 9), secs(5))
                    .await
                    .unwrap_err();
                refused.push(error.kind() == kind);
            }
            Result::Ok(refused)
        });
        let _listener = TcpListener::bind("0.0.0.0:9").await?;
        let socket = UdpSocket::bind("0.0.0.0:9").await?;
        assert_eq!(reflected(&socket, "outside:1").await?.port(), 9);
        sim.host("outside").kill();
        sim.host("outside").start(move || async move {
            let other = UdpSocket::bind("0.0.0.0:2").await?;
            other.send_to(b"!", (to[1], 9)).await
        });
        assert!(timeout(secs(20), socket.recv(&mut [0; 4])).await.is_err());
        let refused = refused.finished().within(secs(20)).await?;
        assert_eq!(refused, [true; 6]);
        Result::Ok(())
    });
}

/// Two hosts behind two gateways reach each other once both have sent.
#[test]
fn two_gateways_open_once_both_sent() {
    polder_sim::check(0..20, |sim| async move {
        behind_gateway(&sim);
        let (far, gateway) = (sim.host("far"), sim.host("other-gateway"));
        far.behind_nat(&gateway);
        // The rendezvous tells each address to the other host, and is gone.
        sim.host("rendezvous").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:1").await?;
            let (_, one) = socket.recv_from(&mut [0; 4]).await?;
            let (_, other) = socket.recv_from(&mut [0; 4]).await?;
            socket.send_to(one.to_string().as_bytes(), other).await?;
            socket.send_to(other.to_string().as_bytes(), one).await
        });
        sleep(ms(1)).await;
        let punch = || async {
            let socket = UdpSocket::bind("0.0.0.0:7").await?;
            socket.send_to(b"?", "rendezvous:1").await?;
            let peer = received(&socket).await?;
            assert_eq!(peer.port(), 7);
            loop {
                socket.send_to(b"punch", peer).await?;
                let mut bytes = [0; 8];
                if let Ok(came) = timeout(ms(100), socket.recv_from(&mut bytes)).await {
                    assert_eq!((&bytes[..5], came?), (&b"punch"[..], (5, peer)));
                    return socket.send_to(b"punch", peer).await.map(|_| peer.ip());
                }
            }
        };
        let far = far.start(punch);
        assert_eq!(punch().await?, gateway.address());
        let near = far.finished().within(secs(1)).await?;
        assert_eq!(near, sim.host("gateway").address());
        Result::Ok(())
    });
}

/// A closed port refuses datagrams through the gateway in both directions.
#[test]
fn closed_port_refuses_through_gateway() {
    polder_sim::check(0..10, |sim| async move {
        behind_gateway(&sim);
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect("outside:5").await?;
        socket.send(b"anybody?").await?;
        let refused = timeout(secs(1), socket.recv(&mut [0; 4])).await?;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // A refusal does not keep the flow.
        let port = socket.local_addr()?.port();
        sleep(secs(25)).await;
        socket.send(b"anybody?").await?;
        let refused = timeout(secs(1), socket.recv(&mut [0; 4])).await?;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        sim.host("outside").kill();
        sim.host("outside").start(move || async move {
            let socket = UdpSocket::bind("0.0.0.0:5").await?;
            sleep(secs(40)).await;
            socket.send_to(b"late", ("gateway", port)).await
        });
        assert!(timeout(secs(60), socket.recv(&mut [0; 4])).await.is_err());
        let server = sim.host("server").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:1").await?;
            let (_, from) = socket.recv_from(&mut [0; 4]).await?;
            socket.connect(from).await?;
            sleep(secs(1)).await;
            socket.send(b"late").await?;
            timeout(secs(1), socket.recv(&mut [0; 4])).await?
        });
        sleep(ms(1)).await;
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.send_to(b"?", "server:1").await?;
        sleep(ms(500)).await;
        drop(socket);
        let refused = server.finished().within(secs(5)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        Result::Ok(())
    });
}

/// Sends a line each time that the count grows, on one connection.
async fn announcer(count: Rc<Cell<u32>>) -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:4").await?;
    let (mut stream, _) = listener.accept().await?;
    let mut sent = 0;
    loop {
        if count.get() > sent {
            sent = count.get();
            stream.write_all(b"line").await?;
        }
        sleep(ms(10)).await;
    }
}

/// A gateway that loses power forgets its flows; one with a killed process does not.
#[test]
fn gateway_power_loss_forgets_flows() {
    polder_sim::check(0..10, |sim| async move {
        let gateway = behind_gateway(&sim).start(std::future::pending::<()>);
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        let server = sim.host("server").start(move || announcer(counted.clone()));
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("server:4").await?;
        let mut lines = async || {
            count.set(count.get() + 1);
            timeout(secs(5), stream.read_exact(&mut [0; 4])).await?
        };
        lines().await?;
        gateway.kill();
        lines().await?;
        gateway.power_off();
        assert_eq!(lines().await.unwrap_err().kind(), ErrorKind::TimedOut);
        gateway.restart();
        // The server speaks first: the gateway refuses.
        sleep(secs(10)).await;
        count.set(count.get() + 1);
        let reset = server.finished().within(secs(1)).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);

        // The client speaks first: the gateway takes the connection up again, with the same port.
        let mut stream = TcpStream::connect("outside:1").await?;
        ask(&mut stream).await?;
        sleep(secs(1)).await; // All is acknowledged.
        gateway.power_off();
        assert!(timeout(secs(5), ask(&mut stream)).await.is_err());
        gateway.restart();
        timeout(secs(20), stream.read_exact(&mut [0; 4])).await??;
        ask(&mut stream).await?;
        // Unless another one has taken it.
        let port = stream.local_addr()?.port();
        sleep(secs(1)).await;
        gateway.power_off();
        gateway.restart();
        let other = sim.host("other");
        other.behind_nat(&gateway);
        let other = other.start(move || async move {
            // The other client uses the same port.
            let mut streams = Vec::new();
            loop {
                let stream = TcpStream::connect("outside:1").await?;
                if stream.local_addr()?.port() == port {
                    return Result::Ok(stream);
                }
                streams.push(stream);
            }
        });
        let _kept = other.finished().within(secs(5)).await?;
        let reset = timeout(secs(5), ask(&mut stream)).await?.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        // For ever without power: it times out.
        let mut stream = TcpStream::connect("outside:1").await?;
        gateway.power_off();
        let silent = ask(&mut stream).await.unwrap_err();
        assert_eq!(silent.kind(), ErrorKind::TimedOut);
        Result::Ok(())
    });
}

#[test]
fn a_host_without_a_process_is_powered_off_once() {
    polder_sim::check(0..3, |sim| async move {
        let [router, phone] = ["router", "phone"].map(|name| sim.host(name));
        phone.behind_nat(&router);
        let told: Rc<RefCell<Vec<String>>> = Rc::default();
        let hosts = told.clone();
        sim.on_event(move |event| match event.words.as_str() {
            "powered off" => hosts.borrow_mut().push(event.host.clone()),
            "powered on" => hosts.borrow_mut().push(format!("{} is on", event.host)),
            _ => {}
        });
        router.power_off();
        router.power_off();
        let phone = phone.start(std::future::pending::<()>);
        phone.power_off();
        sleep(ms(1)).await;
        assert_eq!(told.take(), ["router", "phone"]);
        phone.restart();
        phone.kill();
        phone.power_off();
        sleep(ms(1)).await;
        assert_eq!(told.take(), ["phone"]);
        sim.quiesce();
        sleep(ms(1)).await;
        assert_eq!(told.take(), ["router is on"]);
    });
}

/// Faults of both links delay a connection and do not end it.
#[test]
fn link_faults_delay_connection_only() {
    polder_sim::check(0..20, |sim| async move {
        behind_gateway(&sim);
        let mut stream = TcpStream::connect("outside:1").await?;
        for (a, b) in [("test", "gateway"), ("gateway", "outside")] {
            let cut = sim.cut(&[a], &[b]);
            assert!(timeout(secs(5), ask(&mut stream)).await.is_err());
            drop(cut);
            timeout(secs(20), stream.read_exact(&mut [0; 4])).await??;
            let hold = sim.hold(&[a], &[b]);
            assert!(timeout(ms(150), ask(&mut stream)).await.is_err());
            drop(hold);
            timeout(ms(20), stream.read_exact(&mut [0; 4])).await??;
            sim.link(a, b).loss(0.2);
            for _ in 0..10 {
                timeout(secs(300), ask(&mut stream)).await??;
            }
            sim.link(a, b).loss(0.0);
        }
        // There is no link between the ends.
        let _cut = sim.cut(&["test"], &["outside"]);
        ask(&mut stream).await?;
        let suspended = sim.host("gateway").suspend();
        assert!(timeout(secs(5), ask(&mut stream)).await.is_err());
        drop(suspended);
        timeout(secs(20), stream.read_exact(&mut [0; 4])).await??;
        Result::Ok(())
    });
}

/// A segment lost on either link is sent again after the usual timeout.
#[test]
fn loss_on_either_link_is_retransmitted() {
    // 150 ms for each way, so that an answer to the first segment comes after the first timeout,
    // although each link is crossed before it. (The handshake has measured less.)
    polder_sim::check(0..5, |sim| async move {
        behind_gateway(&sim);
        let mut stream = TcpStream::connect("outside:1").await?;
        sleep(ms(10)).await;
        sim.link("gateway", "outside")
            .latency(Latency::fixed(ms(150)));
        sim.link("gateway", "test").latency(Latency::fixed(ms(1)));
        let repeated = Rc::new(RefCell::new(Vec::new()));
        let seen = repeated.clone();
        sim.on_event(move |event| {
            if event.to_string().contains("again") {
                seen.borrow_mut().push(event.host.clone());
            }
        });
        ask(&mut stream).await?;
        sleep(secs(1)).await;
        assert_eq!(*repeated.borrow(), ["test", "outside"]);
        Result::Ok(())
    });
}

/// Many bytes come in their order through a gateway and a closed window opens.
#[test]
fn bytes_ordered_through_gateway_window_opens() {
    polder_sim::check(0..20, |sim| async move {
        const LEN: usize = 400_000;
        behind_gateway(&sim);
        sim.links().latency(Latency::uniform(ms(1)..ms(40)));
        let loss = [0.0, 0.02][sim.choose(2) as usize];
        let last = Rc::new(Cell::new(0));
        sim.on_event(move |event| {
            // "test: data 1460+1460 came from gateway"
            let words = event.to_string();
            let data = words.split_once("test: data ").map(|(_, data)| data);
            if let Some((seq, _)) = data
                .filter(|_| loss == 0.0)
                .and_then(|it| it.split_once('+'))
            {
                let seq: u64 = seq.parse().expect("an offset");
                assert!(last.replace(seq) <= seq, "{words} after {}", last.get());
            }
        });
        let server = sim.host("server").start(|| async {
            let (mut stream, _) = TcpListener::bind("0.0.0.0:2").await?.accept().await?;
            let bytes: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
            stream.write_all(&bytes).await?;
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await?;
            Result::Ok(back == bytes)
        });
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("server:2").await?;
        sim.links().loss(loss);
        let mut bytes = vec![0; LEN];
        for part in bytes.chunks_mut(LEN / 4) {
            stream.read_exact(part).await?;
            if loss != 0.0 {
                sleep(secs(3)).await; // The window closes.
            }
        }
        stream.write_all(&bytes).await?;
        drop(stream);
        assert!(server.finished().within(secs(600)).await?);
        Result::Ok(())
    });
}

/// A reset strikes the connections of two hosts with gateways between them.
#[test]
fn reset_crosses_two_gateways() {
    polder_sim::check(0..10, |sim| async move {
        let gateway = behind_gateway(&sim);
        gateway.behind_nat(&sim.host("top"));
        gateway.start(echo);
        let mut near = TcpStream::connect("gateway:1").await?;
        for (a, b) in [("test", "outside"), ("outside", "test")] {
            let mut stream = TcpStream::connect("outside:1").await?;
            ask(&mut stream).await?;
            sim.reset("gateway", "outside");
            sim.reset("top", "outside");
            ask(&mut stream).await?;
            sim.reset(a, b);
            let reset = stream.read(&mut [0; 4]).await.unwrap_err();
            assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
            ask(&mut near).await?;
        }
        sim.reset("test", "gateway");
        let reset = near.read(&mut [0; 4]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        Result::Ok(())
    });
}

/// A router beyond the gateway reports an unreachable host.
#[test]
fn router_beyond_gateway_reports_unreachable() {
    polder_sim::check(0..5, |sim| async move {
        behind_gateway(&sim);
        let told = Rc::new(Cell::new(0));
        let count = told.clone();
        sim.on_event(move |event| {
            let words = event.to_string();
            let told = [
                "connects to outside:1",
                "learns that outside cannot be reached",
            ];
            count.set(count.get() + told.iter().filter(|it| words.contains(**it)).count());
        });
        let _cut = sim.cut(&["gateway"], &["outside"]).unreachable();
        let error = TcpStream::connect("outside:1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostUnreachable);
        assert_eq!(told.get(), 2);
        Result::Ok(())
    });
}

#[test]
fn a_broadcast_stays_within_its_network() {
    polder_sim::check(0..5, |sim| async move {
        let gateway = behind_gateway(&sim);
        let neighbor = sim.host("neighbor");
        neighbor.behind_nat(&gateway);
        let heard = Rc::new(RefCell::new(Vec::new()));
        for name in ["gateway", "neighbor", "outside", "stranger"] {
            let heard = heard.clone();
            let host = sim.host(name);
            host.kill();
            host.start(move || {
                let heard = heard.clone();
                async move {
                    let socket = UdpSocket::bind("0.0.0.0:8").await.unwrap();
                    let (_, from) = socket.recv_from(&mut [0; 4]).await.unwrap();
                    heard.borrow_mut().push((name, from.ip()));
                }
            });
        }
        sleep(ms(1)).await;
        let socket = UdpSocket::bind("0.0.0.0:8").await?;
        socket.set_broadcast(true)?;
        for to in ["255.255.255.255:8", "10.255.255.255:8"] {
            socket.send_to(b"all", to).await?;
        }
        sleep(secs(1)).await;
        let mut heard = heard.borrow().clone();
        heard.sort_unstable();
        let own: IpAddr = sim.host("test").address();
        assert_eq!(heard, [("gateway", own), ("neighbor", own)]);
        Result::Ok(())
    });
}

/// A host that moves to another network is seen with another address.
#[test]
fn moved_host_seen_with_new_address() {
    polder_sim::check(0..10, |sim| async move {
        let old = behind_gateway(&sim);
        let new = sim.host("mobile-network");
        let socket = UdpSocket::bind("0.0.0.0:9").await?;
        let mut stream = TcpStream::connect("outside:1").await?;
        assert_eq!(reflected(&socket, "outside:1").await?.ip(), old.address());
        sim.host("test").behind_nat(&new);
        assert_eq!(reflected(&socket, "outside:1").await?.ip(), new.address());
        let start = now();
        assert_eq!(
            ask(&mut stream).await.unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        assert!(now() - start > secs(600));
        ask(&mut TcpStream::connect("outside:1").await?).await
    });
}

/// No message circles between gateways that have moved.
#[test]
fn moved_gateways_pass_no_message_in_circles() {
    polder_sim::check(0..10, |sim| async move {
        let [a, b, c] = ["a", "b", "c"].map(|name| sim.host(name));
        a.behind_nat(&b);
        let socket = UdpSocket::bind("0.0.0.0:1").await?;
        let seen = Rc::new(Cell::new(0));
        let count = seen.clone();
        sim.on_event(move |_| count.set(count.get() + 1));
        let send = || async {
            UdpSocket::bind("0.0.0.0:9")
                .await?
                .send_to(b"?", "test:1")
                .await
        };
        a.start(send).finished().within(secs(1)).await?;
        let (_, from) = socket.recv_from(&mut [0; 8]).await?;
        assert_eq!(from.ip(), b.address());
        // Each has a flow of the other now.
        a.behind_nat(&c);
        b.behind_nat(&a);
        b.start(|| async {
            UdpSocket::bind("0.0.0.0:9")
                .await?
                .send_to(b"?", "test:1")
                .await
        });
        let (_, other) = socket.recv_from(&mut [0; 8]).await?;
        assert_eq!(other.ip(), c.address());
        seen.set(0);
        for to in [
            from,
            other,
            SocketAddr::new(a.address(), 9),
            SocketAddr::new(a.address(), 10),
        ] {
            socket.send_to(b"!", to).await?;
        }
        sleep(secs(1)).await;
        assert!(seen.get() < 100, "{} events", seen.get());
        Result::Ok(())
    });
}

/// A seed with gateways and chaos has the same fingerprint each time.
#[test]
fn fingerprint_repeats_with_gateways_and_chaos() {
    let busy = |sim: Sim| async move {
        let gateway = sim.host("gateway").start(std::future::pending::<()>);
        let asked = Rc::new(Cell::new(0));
        let server = sim.host("outside").start(|| async {
            polder::spawn_local(reflector()).detach();
            echo().await;
        });
        for name in ["one", "other"] {
            let host = sim.host(name);
            host.behind_nat(&gateway);
            let asked = asked.clone();
            host.start(move || {
                let asked = asked.clone();
                async move {
                    loop {
                        let limit = ms(300);
                        let Ok(socket) = UdpSocket::bind("0.0.0.0:9").await else {
                            continue;
                        };
                        let _ = reflected(&socket, "outside:1").await;
                        let Ok(mut stream) = TcpStream::connect_timeout("outside:1", limit).await
                        else {
                            continue;
                        };
                        while matches!(timeout(limit, ask(&mut stream)).await, Ok(Ok(()))) {
                            asked.set(asked.get() + 1);
                            sleep(ms(3)).await;
                        }
                    }
                }
            });
        }
        sim.chaos(secs(10))
            .usual(&[&gateway, &server])
            .suspensions();
        sleep(secs(11)).await;
        let before = asked.get();
        sleep(secs(10)).await;
        assert!(asked.get() > before, "they go on after all faults");
    };
    let run = || -> Vec<u64> {
        let reports = (0..16).map(|seed| polder_sim::run(seed, busy));
        let fingerprint = |report: polder_sim::Report| {
            assert_eq!(report.failure, None);
            report.fingerprint
        };
        reports.map(fingerprint).collect()
    };
    assert_eq!(run(), run());
}

#[test]
#[should_panic = "polder_sim: \"test\" cannot be the gateway of \"inside\""]
fn the_host_of_the_test_is_no_gateway() {
    polder_sim::check(0..1, |sim| async move {
        sim.host("inside").behind_nat(&sim.host("test"));
    });
}

#[test]
#[should_panic = "polder_sim: \"one\" cannot be the gateway of \"three\""]
fn no_host_is_behind_itself() {
    polder_sim::check(0..1, |sim| async move {
        let [one, two, three] = ["one", "two", "three"].map(|name| sim.host(name));
        one.behind_nat(&two);
        two.behind_nat(&three);
        three.behind_nat(&one);
    });
}

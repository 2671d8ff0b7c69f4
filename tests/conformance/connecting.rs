//! Sockets that were made elsewhere, descriptors of every kind, and connecting with a time limit:
//! parts of rules 12, 24 and 32.

use std::io::ErrorKind;
use std::net::{self, Ipv4Addr, SocketAddr};
use std::time::Duration;

use polder::Backend;
use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use socket2::{Domain, SockRef, Socket, Type};

use crate::descriptor::{Owned, is_inherited, is_nonblocking};
use crate::streams::held_listener;
use crate::support::{
    in_every_runtime, is_in_world, on_every_backend_alone_in_parallel, runtime, until,
};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn stream() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
}

fn datagrams() -> Socket {
    Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap()
}

/// A socket that was prepared listens and connects with its options.
#[test]
fn prepared_socket_keeps_options() {
    in_every_runtime(|_| async {
        let socket = stream();
        socket.set_recv_buffer_size(1 << 16).unwrap();
        let size = socket.recv_buffer_size().unwrap();
        let listener = TcpListener::bind_with(socket, ANY).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(SockRef::from(&listener).recv_buffer_size().unwrap(), size);

        let socket = stream();
        socket.set_keepalive(true).unwrap();
        socket.bind(&ANY.into()).unwrap();
        let own = socket.local_addr().unwrap().as_socket().unwrap();
        let mut near = TcpStream::connect_with(socket, address).await.unwrap();
        assert!(SockRef::from(&near).keepalive().unwrap());
        let (mut far, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, own);
        near.write_all(b"x").await.unwrap();
        far.read_exact(&mut [0]).await.unwrap();

        for socket in [Owned::try_from(near).unwrap(), listener.try_into().unwrap()] {
            assert!(!is_inherited(&socket));
            assert_ne!(is_nonblocking(&socket), Some(false));
        }
        let socket = datagrams();
        socket.set_broadcast(true).unwrap();
        let socket = UdpSocket::bind_with(socket, ANY).unwrap();
        assert!(socket.broadcast().unwrap());
    });
}

/// Two listeners that were prepared to share a port do.
#[cfg(not(any(windows, target_os = "illumos", target_os = "solaris")))]
#[test]
fn two_prepared_listeners_share_port() {
    in_every_runtime(|_| async {
        let shared = |address| {
            let socket = stream();
            socket.set_reuse_port(true).unwrap();
            TcpListener::bind_with(socket, address)
        };
        let first = shared(ANY).unwrap();
        let address = first.local_addr().unwrap();
        let _second = shared(address).expect("it is shared");
        let error = TcpListener::bind_with(stream(), address).expect_err("not with that one");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    });
}

/// Sockets that are bound listening or connected already are taken over.
#[test]
fn bound_listening_connected_taken_over() {
    in_every_runtime(|_| async {
        let socket = stream();
        socket.bind(&ANY.into()).unwrap();
        socket.listen(5).unwrap();
        let listener = TcpListener::try_from(Owned::from(socket)).unwrap();
        let address = listener.local_addr().unwrap();
        // The standard library's connect continues after a signal.
        let socket = Socket::from(net::TcpStream::connect(address).unwrap());
        let near = TcpStream::try_from(Owned::from(socket)).unwrap();
        let (_, peer) = listener.accept().await.unwrap();
        assert_eq!(near.local_addr().unwrap(), peer);

        let socket = datagrams();
        socket.bind(&ANY.into()).unwrap();
        let socket = UdpSocket::try_from(Owned::from(socket)).unwrap();
        socket
            .send_to(b"x", socket.local_addr().unwrap())
            .await
            .unwrap();
        assert_eq!(socket.recv(&mut [0; 4]).await.unwrap(), 1);
    });
}

/// A descriptor is taken over by its own kind of socket only.
///
/// Every kind of descriptor is converted into every kind of socket.
#[test]
fn descriptor_taken_by_own_kind_only() {
    type Take = fn(Owned) -> Result<(), std::io::Error>;
    type Make = fn() -> Owned;
    fn take<T: TryFrom<Owned, Error = std::io::Error>>(descriptor: Owned) -> std::io::Result<()> {
        T::try_from(descriptor).map(drop)
    }
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there are more on Unix"))]
    let mut kinds: Vec<(&str, Make, Take)> = vec![
        (
            "a TCP stream",
            || {
                let listener = net::TcpListener::bind(ANY).unwrap();
                let stream = net::TcpStream::connect(listener.local_addr().unwrap());
                stream.unwrap().into()
            },
            take::<TcpStream>,
        ),
        (
            "a TCP listener",
            || net::TcpListener::bind(ANY).unwrap().into(),
            take::<TcpListener>,
        ),
        (
            "a UDP socket",
            || net::UdpSocket::bind(ANY).unwrap().into(),
            take::<UdpSocket>,
        ),
    ];
    #[cfg(unix)]
    {
        use polder::net::unix::{UnixDatagram, UnixListener, UnixStream};
        use std::os::unix::net;

        kinds.push((
            "a Unix stream",
            || net::UnixStream::pair().unwrap().0.into(),
            take::<UnixStream>,
        ));
        kinds.push((
            "a Unix listener",
            || {
                let path = std::env::temp_dir().join(format!("polder-kind-{}", std::process::id()));
                let listener = net::UnixListener::bind(&path).unwrap();
                std::fs::remove_file(path).unwrap();
                listener.into()
            },
            take::<UnixListener>,
        ));
        kinds.push((
            "a Unix datagram socket",
            || net::UnixDatagram::unbound().unwrap().into(),
            take::<UnixDatagram>,
        ));
    }
    // Some systems cannot tell whether a socket listens.
    let like = |kind: &str| kind.replace("listener", "stream");
    let tells = !cfg!(any(windows, target_vendor = "apple"));
    for (offered, make, _) in &kinds {
        for (wanted, _, take) in &kinds {
            let result = take(make());
            if offered == wanted {
                result.unwrap_or_else(|error| panic!("{offered}: {error}"));
            } else if tells || like(offered) != like(wanted) {
                let error = result.expect_err("they are not the same");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains(wanted), "{error}");
            }
        }
        #[cfg(unix)]
        for (wanted, _, take) in &kinds {
            let file = std::fs::File::open("/dev/null").unwrap();
            let error = take(file.into()).expect_err("it is no socket");
            assert!(!error.to_string().is_empty(), "{wanted}");
        }
    }
}

/// Sockets of the wrong kind cannot be bound or connected.
#[test]
fn wrong_kind_cannot_bind_or_connect() {
    in_every_runtime(|_| async {
        let listener = TcpListener::bind(ANY).await.unwrap();
        let address = listener.local_addr().unwrap();
        for error in [
            TcpListener::bind_with(datagrams(), ANY).map(drop),
            TcpStream::connect_with(datagrams(), address)
                .await
                .map(drop),
            UdpSocket::bind_with(stream(), ANY).map(drop),
        ] {
            let error = error.expect_err("it is of another kind");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("the socket is not a"), "{error}");
        }
        // The right kind of socket, with an address of another family.
        let six: SocketAddr = "[::1]:1".parse().unwrap();
        TcpListener::bind_with(stream(), six).expect_err("another family");
        (TcpStream::connect_with(stream(), six).await).expect_err("another family");
        // A socket that listens already.
        let socket = Socket::from(Owned::try_from(listener).unwrap());
        (TcpStream::connect_with(socket, address).await).expect_err("it listens");
    });
}

/// A listener with a full queue: a connect to it gets no answer.
fn silent() -> (SocketAddr, impl Sized) {
    if is_in_world() {
        // No host has this address.
        return (SocketAddr::from(([192, 0, 2, 1], 80)), None);
    }
    let (listener, address, holder) = held_listener(0);
    let first = net::TcpStream::connect(address).unwrap();
    (address, Some((listener, holder, first)))
}

/// A connect with a limit gives each address its share.
///
/// On all backends at the same time, since it waits for the time limit of the silent addresses.
#[test]
fn connect_limit_shared_among_addresses() {
    fn rule(backend: Backend) {
        runtime(backend).block_on(async {
            let (silent, _held) = silent();
            let listener = TcpListener::bind(ANY).await.unwrap();
            let address = listener.local_addr().unwrap();
            // Bound, but not listening.
            let refusing = stream();
            refusing.bind(&ANY.into()).unwrap();
            let refused = refusing.local_addr().unwrap().as_socket().unwrap();

            let limit = Duration::from_secs(6);
            let list = [refused, silent, address];
            let stream = TcpStream::connect_timeout(list, limit).await;
            let stream = stream.expect("the last has its share of the time");
            assert_eq!(stream.peer_addr().unwrap(), address);

            let limit = Duration::from_millis(100);
            for list in [vec![silent], vec![refused, silent], vec![silent, silent]] {
                let error = TcpStream::connect_timeout(list, limit).await;
                let error = error.expect_err("nobody answers");
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                let words = error.to_string();
                assert!(words.contains(&silent.to_string()), "{words}");
            }
            let error = TcpStream::connect_timeout(silent, Duration::ZERO).await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);

            // Limits that are long enough.
            let stream = TcpStream::connect_timeout(address, Duration::MAX).await;
            assert_eq!(stream.unwrap().peer_addr().unwrap(), address);
            let long = Duration::from_secs(4);
            let error = TcpStream::connect_timeout([silent, refused], long).await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            for bad in ["", "localhost", "localhost:x"] {
                let error = TcpStream::connect_timeout(bad, Duration::MAX).await;
                assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
            }
            let error = TcpStream::connect_timeout(Vec::new(), limit).await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
        });
    }
    on_every_backend_alone_in_parallel(rule);
}

/// An address that is silent is overtaken and its socket closed.
///
/// RFC 8305: the second address is tried while the first one is silent.
#[test]
fn silent_address_overtaken_and_closed() {
    in_every_runtime(|_| async {
        // On a loaded machine the queue of the silent one may not be full yet. And a client of
        // another test, which used a listener at this port before, may connect to the other one.
        for is_last in [false, false, true] {
            match overtakes().await {
                Ok(()) => break,
                Err(words) => assert!(!is_last, "{words}"),
            }
        }
    });
}

async fn overtakes() -> Result<(), &'static str> {
    let check = |holds: bool, words| if holds { Ok(()) } else { Err(words) };
    let is_visible = |silent| is_connecting_to(silent) || !can_look();
    let (silent, _held) = silent();
    let listener = TcpListener::bind(ANY).await.unwrap();
    let address = listener.local_addr().unwrap();

    // Checks that a pending connect is visible; otherwise its absence would prove nothing.
    let mut alone = Box::pin(TcpStream::connect(silent));
    check(poll_once(&mut alone).await.is_none(), "it answers")?;
    check(is_visible(silent), "nobody connects to it")?;
    drop(alone);
    until("nobody connects to it", || !is_connecting_to(silent)).await;

    let list = [silent, address];
    let mut race = Box::pin(TcpStream::connect(&list[..]));
    check(poll_once(&mut race).await.is_none(), "one answers at once")?;
    check(is_visible(silent), "nobody connects to the first one")?;
    let stream = race.await.expect("the second one answers");
    check(stream.peer_addr().unwrap() == address, "the first one wins")?;
    until("the loser is closed", || !is_connecting_to(silent)).await;
    let accepted = listener.accept().await.unwrap().1;
    let is_ours = accepted == stream.local_addr().unwrap();
    let is_only = poll_once(listener.accept()).await.is_none();
    check(
        is_ours && is_only,
        "the second one received several connects",
    )?;

    // The first one wins if it answers, and the second is not tried.
    let list = [address, silent];
    let stream = TcpStream::connect(&list[..]).await.expect("it answers");
    check(
        stream.peer_addr().unwrap() == address,
        "the second one wins",
    )?;
    check(!is_connecting_to(silent), "the second one is tried too")
}

fn can_look() -> bool {
    cfg!(target_os = "linux") && !is_in_world()
}

/// Whether a socket of this machine waits for an answer from `address`: proc_pid_net(5).
fn is_connecting_to(address: SocketAddr) -> bool {
    const SYN_SENT: &str = "02";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{:04X}", address.port());
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let (remote, state) = (fields.next(), fields.next());
        remote.is_some_and(|remote| remote.ends_with(&port)) && state == Some(SYN_SENT)
    })
}

#[test]
fn impossible_name_error_names_it() {
    in_every_runtime(|_| async {
        // Longer than a label of a name may be: no server is asked.
        let host = "x".repeat(64);
        for error in [
            TcpStream::connect((host.as_str(), 80)).await.map(drop),
            UdpSocket::bind(format!("{host}:80")).await.map(drop),
            polder::net::resolve((host.clone(), 80)).await.map(drop),
        ] {
            let words = error.expect_err("nobody has it").to_string();
            assert!(words.contains(&format!("resolve {host:?}: ")), "{words}");
        }
    });
}

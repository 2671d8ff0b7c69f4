//! The feature `async-io-compat`: async-io's functions for the standard library's sockets in
//! `Async`.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::pin::pin;

use polder::Async;
use polder::future::{poll_once, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::stream::StreamExt;

use crate::support::in_every_runtime;

/// Std sockets in async have the functions of async I/O.
#[test]
fn std_sockets_have_async_io_functions() {
    in_every_runtime(|_| async {
        let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0)).expect("a port");
        let address = listener.get_ref().local_addr().expect("it has one");
        let taken = Async::<TcpListener>::bind(address).expect_err("the port is in use");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);

        let connect = || Async::<TcpStream>::connect(address);
        let (client, accepted) = zip(connect(), listener.accept()).await;
        let (mut client, (mut server, from)) = (client.unwrap(), accepted.unwrap());
        assert_eq!(from, client.get_ref().local_addr().unwrap());
        let nothing = poll_once(server.peek(&mut [])).await;
        assert_eq!(nothing.expect("it need not wait").unwrap(), 0);
        client.write_all(b"hello").await.unwrap();
        let mut bytes = [0; 5];
        assert!(server.peek(&mut bytes).await.unwrap() > 0);
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");

        let mut incoming = pin!(listener.incoming());
        let (client, next) = zip(connect(), incoming.next()).await;
        let next = next.expect("it has no end").unwrap();
        assert_eq!(
            client.unwrap().get_ref().local_addr().unwrap(),
            next.get_ref().peer_addr().unwrap()
        );
    });
}

/// Std datagram sockets in async send peek and receive.
#[test]
fn std_datagram_async_send_peek_receive() {
    in_every_runtime(|_| async {
        let bind = || Async::<UdpSocket>::bind(([127, 0, 0, 1], 0)).expect("a port");
        let (near, far) = (bind(), bind());
        let address = |it: &Async<UdpSocket>| it.get_ref().local_addr().expect("it has one");
        near.send_to(b"hello", address(&far)).await.unwrap();
        let mut bytes = [0; 8];
        let sent = (5, address(&near));
        assert_eq!(far.peek_from(&mut bytes).await.unwrap(), sent);
        assert_eq!(far.recv_from(&mut bytes).await.unwrap(), sent);

        far.get_ref().connect(address(&near)).unwrap();
        near.get_ref().connect(address(&far)).unwrap();
        near.send(b"again").await.unwrap();
        assert_eq!(far.peek(&mut bytes).await.unwrap(), 5);
        assert_eq!(far.recv(&mut bytes).await.unwrap(), 5);
        assert_eq!(&bytes[..5], b"again");
    });
}

/// Std Unix sockets in async have the functions of async I/O.
#[cfg(unix)]
#[test]
fn std_unix_have_async_io_functions() {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    in_every_runtime(|_| async {
        let place = tempfile::tempdir().expect("a directory of our own");
        let (path, mailbox) = (place.path().join("stream"), place.path().join("datagram"));

        let listener = Async::<UnixListener>::bind(&path).expect("a place");
        let connect = || Async::<UnixStream>::connect(&path);
        let (client, accepted) = zip(connect(), listener.accept()).await;
        let (mut client, (mut server, _)) = (client.unwrap(), accepted.unwrap());
        client.write_all(b"hello").await.unwrap();
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).await.unwrap();
        let mut incoming = pin!(listener.incoming());
        let (client, next) = zip(connect(), incoming.next()).await;
        assert!(client.is_ok() && next.is_some_and(|next| next.is_ok()));

        let (mut one, mut other) = Async::<UnixStream>::pair().unwrap();
        one.write_all(b"hello").await.unwrap();
        other.read_exact(&mut bytes).await.unwrap();

        let far = Async::<UnixDatagram>::bind(&mailbox).expect("a place");
        let near = Async::<UnixDatagram>::unbound().unwrap();
        near.send_to(b"hello", &mailbox).await.unwrap();
        assert_eq!(far.recv_from(&mut bytes).await.unwrap().0, 5);
        let (one, other) = Async::<UnixDatagram>::pair().unwrap();
        one.send(b"again").await.unwrap();
        assert_eq!(other.recv(&mut bytes).await.unwrap(), 5);
        assert_eq!(&bytes, b"again");

        let long = "x".repeat(200);
        for path in ["", &long, "a\0b"] {
            for error in [
                Async::<UnixListener>::bind(path).map(drop),
                Async::<UnixDatagram>::bind(path).map(drop),
                Async::<UnixStream>::connect(path).await.map(drop),
            ] {
                let error = error.expect_err("it is no path of a socket");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains("Unix socket"), "{error}");
            }
        }
    });
}

/// A path that begins with a NUL connects async to an abstract name.
///
/// In async-io, and so in programs ported from it, such a path is an abstract name.
#[cfg(target_os = "linux")]
#[test]
fn abstract_path_connects_async() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::sync::atomic::{AtomicUsize, Ordering};

    in_every_runtime(|backend| async move {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("polder-{}-{backend}-{count}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let client = Async::<UnixStream>::connect(format!("\0{name}"))
            .await
            .unwrap();
        let peer = client.get_ref().peer_addr().unwrap();
        assert_eq!(peer.as_abstract_name(), Some(name.as_bytes()));
        listener.accept().unwrap();
        // A NUL elsewhere is still an error.
        let error = Async::<UnixStream>::connect("a\0b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

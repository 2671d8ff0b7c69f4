//! Rule 32: from and into the standard library's sockets and bare descriptors.

use std::io::{ErrorKind, Read, Write};
use std::net;
use std::time::Duration;

use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::timeout;

use super::{Count, pair, poll_read, some_turns, std_pair};
use crate::descriptor::{Owned, is_inherited, is_nonblocking, number_of};
use crate::support::in_every_runtime;

/// Checks that both ends can exchange data, without and with waiting.
async fn talk(near: &mut TcpStream, far: &mut net::TcpStream) {
    let mut bytes = [0; 4];
    far.write_all(b"ping").unwrap();
    near.read_exact(&mut bytes).await.unwrap();
    let mut read = near.read(&mut bytes);
    assert!(poll_once(&mut read).await.is_none());
    far.write_all(b"more").unwrap();
    assert_eq!(read.await.unwrap(), 4);
    near.write_all(b"pong").await.unwrap();
    far.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"pong");
}

#[test]
fn a_std_stream_comes_and_goes_and_keeps_working() {
    in_every_runtime(|_| async {
        let (near, mut far) = std_pair();
        assert_ne!(is_nonblocking(&near), Some(true));
        let number = number_of(&near);
        let mut near = TcpStream::try_from(near).unwrap();
        assert_ne!(is_nonblocking(&near), Some(false), "it was made so");
        talk(&mut near, &mut far).await;

        // For the only handle, the descriptor itself is returned, although it was registered.
        let mut near = net::TcpStream::try_from(near).unwrap();
        assert_eq!(number_of(&near), number);
        assert_ne!(is_nonblocking(&near), Some(false), "it stays so");
        let mut bytes = [0; 4];
        let error = near.read(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        near.set_nonblocking(false).unwrap();
        far.write_all(b"once").unwrap();
        near.read_exact(&mut bytes).unwrap();

        // And back, from a blocking socket; as a bare descriptor this time.
        let mut near = TcpStream::try_from(Owned::from(near)).unwrap();
        assert_ne!(is_nonblocking(&near), Some(false));
        talk(&mut near, &mut far).await;
    });
}

#[test]
fn a_clone_that_is_left_still_works() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = pair();
        let clone = near.clone();
        let count = Count::new();
        assert!(poll_read(&mut near, &count, &mut [0; 8]).is_pending());
        let mut std = net::TcpStream::try_from(clone).unwrap();
        assert_ne!(number_of(&std), number_of(&near), "a duplicate");
        assert_ne!(is_nonblocking(&std), Some(false));
        // A waiting reader still waits, and is woken.
        far.write_all(b"x").unwrap();
        count.until_woken().await;
        near.read_exact(&mut [0]).await.unwrap();
        talk(&mut near, &mut far).await;

        // The duplicate outlives the clone, which leaves nothing in the reactor.
        assert!(poll_read(&mut near, &count, &mut [0; 8]).is_pending());
        drop(near);
        let count = Count::new();
        far.write_all(b"y").unwrap();
        some_turns().await;
        std.set_nonblocking(false).unwrap();
        std.read_exact(&mut [0]).unwrap();
        std.write_all(b"z").unwrap();
        far.read_exact(&mut [0]).unwrap();

        // The duplicate is registered, next to any stale entry of the original's number.
        let mut near = TcpStream::try_from(std).unwrap();
        assert!(poll_read(&mut near, &count, &mut [0; 8]).is_pending());
        talk(&mut near, &mut far).await;
        drop(near);
        assert_eq!(
            far.read(&mut [0]).unwrap(),
            0,
            "closed with the last handle"
        );
    });
}

#[test]
fn halves_give_their_stream_away() {
    in_every_runtime(|_| async {
        let (near, mut far) = pair();
        let (reader, writer) = near.into_split();
        let stream = reader.reunite(writer).unwrap();
        let number = number_of(&stream);
        let std = net::TcpStream::try_from(stream).unwrap();
        assert_eq!(number_of(&std), number, "no other handle is left");
        talk(&mut TcpStream::try_from(std).unwrap(), &mut far).await;
    });
}

/// A std listener comes and goes and keeps working.
#[test]
fn std_listener_converts_both_ways() {
    in_every_runtime(|_| async {
        let std = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = std.local_addr().unwrap();
        let number = number_of(&std);
        let listener = TcpListener::try_from(std).unwrap();
        assert_ne!(is_nonblocking(&listener), Some(false));
        assert_eq!(listener.local_addr().unwrap(), address);
        let mut accept = Box::pin(listener.accept());
        assert!(poll_once(&mut accept).await.is_none());
        let client = net::TcpStream::connect(address).unwrap();
        assert_eq!(accept.await.unwrap().1, client.local_addr().unwrap());

        let clone = listener.clone();
        let duplicate = net::TcpListener::try_from(clone).unwrap();
        let error = duplicate.accept().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(duplicate);
        let std = net::TcpListener::try_from(listener).unwrap();
        assert_eq!(number_of(&std), number);
        assert_ne!(is_nonblocking(&std), Some(false));

        let listener = TcpListener::try_from(Owned::from(std)).unwrap();
        let (client, accepted) =
            polder::future::zip(TcpStream::connect(address), listener.accept()).await;
        let (stream, peer) = accepted.unwrap();
        assert_eq!(peer, client.unwrap().local_addr().unwrap());
        assert_ne!(is_nonblocking(&stream), Some(false));
    });
}

#[test]
fn every_socket_is_close_on_exec() {
    in_every_runtime(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let duplicate = net::TcpStream::try_from(near.clone()).unwrap();
        assert!(!is_inherited(&listener));
        assert!(!is_inherited(&near) && !is_inherited(&far));
        assert!(!is_inherited(&duplicate));
        assert_ne!(is_nonblocking(&near), Some(false));
        assert_ne!(is_nonblocking(&far), Some(false));
        assert_ne!(is_nonblocking(&listener), Some(false));
    });
}

/// A descriptor of another kind is an error at the latest when it is used.
#[test]
fn wrong_kind_fails_at_use_at_latest() {
    in_every_runtime(|_| async {
        // On Windows a file cannot be mistaken for a socket.
        #[cfg(unix)]
        {
            let file = || Owned::from(std::fs::File::open("/dev/null").unwrap());
            if let Ok(mut stream) = TcpStream::try_from(file()) {
                stream.read(&mut [0]).await.expect_err("a file");
                stream.write(&[0]).await.expect_err("a file");
            }
            if let Ok(listener) = TcpListener::try_from(file()) {
                listener.accept().await.expect_err("a file");
            }
        }
        let (near, _far) = std_pair();
        if let Ok(listener) = TcpListener::try_from(Owned::from(near)) {
            listener.accept().await.expect_err("a stream");
        }
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(mut stream) = TcpStream::try_from(Owned::from(listener)) {
            stream.read(&mut [0]).await.expect_err("a listener");
        }
    });
}

/// A datagram socket in a stream's clothes is an error or loses nothing.
///
/// A short read of a TCP stream means that it is drained. On a datagram socket it does not: a next
/// message that came together with this one makes no edge.
#[test]
fn datagram_socket_as_stream_errs_or_is_exact() {
    in_every_runtime(|_| async {
        let near = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        let Ok(mut stream) = TcpStream::try_from(Owned::from(near)) else {
            return;
        };
        let count = Count::new();
        assert!(poll_read(&mut stream, &count, &mut [0; 64]).is_pending());
        far.send(b"first").unwrap();
        far.send(b"second").unwrap();
        count.until_woken().await;
        let mut bytes = [0; 64];
        for length in [5, 6] {
            let read = timeout(Duration::from_secs(5), stream.read(&mut bytes)).await;
            assert_eq!(read.expect("it has arrived").unwrap(), length);
        }
    });
}

/// A Unix stream in a TCP stream's clothes is an error or loses nothing.
///
/// Nor on a Unix stream, where a read ends at a message that carried descriptors.
#[cfg(unix)]
#[test]
fn unix_stream_as_tcp_errs_or_is_exact() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    in_every_runtime(|_| async {
        let (near, far) = UnixStream::pair().unwrap();
        let Ok(mut stream) = TcpStream::try_from(Owned::from(near)) else {
            return;
        };
        let count = Count::new();
        assert!(poll_read(&mut stream, &count, &mut [0; 64]).is_pending());
        let fds = [far.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        (&far).write_all(b"first").unwrap();
        sendmsg(
            &far,
            &[IoSlice::new(b"second")],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        (&far).write_all(b"third").unwrap();
        count.until_woken().await;
        let mut got = Vec::new();
        let mut bytes = [0; 64];
        while got.len() < 16 {
            let read = timeout(Duration::from_secs(5), stream.read(&mut bytes)).await;
            let read = read.expect("it has arrived").unwrap();
            got.extend_from_slice(&bytes[..read]);
        }
        assert_eq!(got, b"firstsecondthird");
    });
}

//! Rules 13, 23a, 23b and 34: features of Unix sockets only. Behaviour shared with TCP is in
//! `streams`, which runs over both.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net;
use std::path::Path;
use std::time::Duration;

use polder::future::{poll_once, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::unix::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use polder::stream::StreamExt;
use polder::time::timeout;
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use socket2::{Domain, SockAddr, Socket, Type};
use tempfile::TempDir;

use crate::descriptor::{Owned, is_inherited, is_nonblocking, number_of};
use crate::streams::{Count, Random, assert_no_wake_up, poll_future, poll_read, some_turns, unix};
use crate::support::{in_every_kernel_runtime, in_every_runtime, with_every_runtime};

/// Far longer than any wake needs.
const SOON: Duration = Duration::from_secs(10);

fn place() -> TempDir {
    tempfile::tempdir().expect("there is room for a directory")
}

/// A unique abstract name.
#[cfg(target_os = "linux")]
fn abstract_address() -> SocketAddr {
    use std::os::linux::net::SocketAddrExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // A NUL in the name is a byte like others.
    let name = format!("polder\0{}-{number}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

/// Sends `bytes` with a descriptor attached.
fn send_with_descriptor(stream: &impl AsFd, bytes: &[u8]) {
    let sent = try_send_with_descriptor(stream, bytes).unwrap();
    assert_eq!(sent, bytes.len());
}

fn try_send_with_descriptor(stream: &impl AsFd, bytes: &[u8]) -> std::io::Result<usize> {
    let descriptors = [stream.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let slices = [IoSlice::new(bytes)];
    Ok(sendmsg(stream, &slices, &mut control, SendFlags::empty())?)
}

/// Whether streams made by polder refuse descriptors here.
fn descriptors_can_be_refused() -> bool {
    let can = !UnixStream::pair().unwrap().0.passrights().unwrap();
    if !can {
        println!("this kernel cannot refuse descriptors");
    }
    can
}

/// Returns the ends of two connections, as client and as server, to a listener whose `passrights`
/// is set as given, and the ends of a pair.
async fn own_streams(place: &TempDir, passrights: bool) -> [(UnixStream, UnixStream); 3] {
    let path = place.path().join("own");
    let listener = UnixListener::bind(&path).unwrap();
    if passrights {
        listener.set_passrights(true).unwrap();
    }
    let mut streams = Vec::new();
    for _ in 0..2 {
        let client = UnixStream::connect(&path).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        streams.push((client, server));
    }
    let (client, server) = streams.pop().unwrap();
    streams.push((server, client));
    streams.push(UnixStream::pair().unwrap());
    std::fs::remove_file(&path).unwrap();
    streams.try_into().unwrap()
}

/// Reads `length` bytes, in pieces as large as are available.
async fn read_pieces(near: &mut UnixStream, length: usize, vectored: bool) -> Vec<u8> {
    let mut bytes = [0; 64];
    let mut got = Vec::new();
    while got.len() < length {
        let (a, b) = bytes.split_at_mut(7);
        let mut slices = [a, b].map(std::io::IoSliceMut::new);
        let read = if vectored {
            timeout(SOON, near.read_vectored(&mut slices)).await
        } else {
            timeout(SOON, near.read(&mut bytes)).await
        };
        let read = read.expect("it has arrived").unwrap();
        assert_ne!(read, 0);
        got.extend_from_slice(&bytes[..read]);
    }
    got
}

#[test]
fn descriptors_between_two_writes_lose_nothing() {
    in_every_runtime(|_| async {
        for vectored in [false, true] {
            let (mut near, far) = unix::pair();
            for _ in 0..3 {
                // One event for all three pieces.
                let count = Count::new();
                assert!(poll_read(&mut near, &count, &mut [0; 64]).is_pending());
                (&far).write_all(b"first").unwrap();
                send_with_descriptor(&far, b"second");
                (&far).write_all(b"third").unwrap();
                count.until_woken().await;
                let got = read_pieces(&mut near, 16, vectored).await;
                assert_eq!(got, b"firstsecondthird");
            }
        }
    });
}

/// A stream owned by the program takes descriptors only where that is allowed.
///
/// Connected, accepted, and from a pair.
#[test]
fn own_stream_takes_descriptors_if_allowed() {
    if !descriptors_can_be_refused() {
        return;
    }
    in_every_runtime(|_| async {
        let place = place();
        for (mut near, far) in own_streams(&place, false).await {
            assert!(!near.passrights().unwrap());
            let refused = try_send_with_descriptor(&far, b"first").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            // The stream continues as if nothing had happened.
            assert_eq!(send_plainly(&far, b"second"), 6);
            assert_eq!(read_pieces(&mut near, 6, false).await, b"second");

            near.set_passrights(true).unwrap();
            assert!(near.passrights().unwrap());
            send_with_descriptor(&far, b"third");
            assert_eq!(read_pieces(&mut near, 5, false).await, b"third");
            near.set_passrights(false).unwrap();
            assert!(try_send_with_descriptor(&far, b"fourth").is_err());
        }
        let [_, (accepted, _), _] = own_streams(&place, true).await;
        assert!(accepted.passrights().unwrap(), "its listener allows them");
    });
}

/// Descriptors arrive with the bytes that they were sent with.
#[test]
fn descriptors_arrive_with_their_bytes() {
    in_every_kernel_runtime(|_| async {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut bytes, mut fds) = ([0; 64], Vec::new());
        let empty = far.recv_fds(&mut [], &mut fds).await.unwrap_err();
        assert_eq!(empty.kind(), ErrorKind::InvalidInput);
        let alone = near.send_fds(b"", &[near.as_fd()]).await.unwrap_err();
        assert_eq!(alone.kind(), ErrorKind::InvalidInput);
        let many = near.send_fds(b"many", &[near.as_fd(); 254]).await;
        assert_eq!(many.unwrap_err().kind(), ErrorKind::InvalidInput);
        if !far.passrights().unwrap() {
            let refused = near.send_fds(b"refused", &[near.as_fd()]).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        far.set_passrights(true).unwrap();

        let count = Count::new();
        let mut receives = Box::pin(far.recv_fds(&mut bytes, &mut fds));
        assert!(poll_future(&mut receives, &count).is_pending());
        let most = near.send_fds(b"most", &[near.as_fd(); 253]).await;
        assert_eq!(most.unwrap(), 4);
        count.until_woken().await;
        assert_eq!(receives.await.unwrap(), 4);
        assert_eq!((&bytes[..4], fds.len()), (&b"most"[..], 253));
        // Each is the sender's stream, and is closed in a program that this process starts.
        for fd in fds.drain(..) {
            assert!(fcntl_getfd(&fd).unwrap().contains(FdFlags::CLOEXEC));
            assert!(UnixStream::try_from(fd).unwrap().try_write(b"x").is_ok());
        }
        let mut read = 0;
        while read < 253 {
            read += far.recv_fds(&mut bytes, &mut fds).await.unwrap();
        }
        assert_eq!((read, fds.len()), (253, 0));

        // Two messages with descriptors are received by two calls.
        for name in [b"1", b"2"] {
            near.send_fds(name, &[near.as_fd()]).await.unwrap();
        }
        for count in [1, 2] {
            assert_eq!(far.recv_fds(&mut bytes, &mut fds).await.unwrap(), 1);
            assert_eq!(fds.len(), count);
        }
        drop((near, std::mem::take(&mut fds)));
        assert_eq!(far.recv_fds(&mut bytes, &mut fds).await.unwrap(), 0);
    });
}

#[test]
fn bytes_with_descriptors_wait_for_room() {
    in_every_kernel_runtime(|_| async {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_passrights(true).unwrap();
        while near.try_write(&[0; 4096]).is_ok() {}
        let fds = [near.as_fd()];
        let mut sends = Box::pin(near.send_fds(b"sent", &fds));
        assert!(poll_future(&mut sends, &Count::new()).is_pending());
        let receives = async {
            let (mut bytes, mut fds) = ([0; 65536], Vec::new());
            while fds.is_empty() {
                far.recv_fds(&mut bytes, &mut fds).await.unwrap();
            }
        };
        let (sent, ()) = zip(sends, receives).await;
        assert_eq!(sent.unwrap(), 4);
    });
}

/// A reading clone notices that another clone has allowed descriptors, even in the middle of a
/// wait.
#[test]
fn own_stream_with_descriptors_loses_nothing() {
    in_every_runtime(|_| async {
        let place = place();
        for waits in [false, true] {
            for (mut near, far) in own_streams(&place, false).await {
                let other = near.clone();
                for _ in 0..3 {
                    let count = Count::new();
                    if !waits {
                        other.set_passrights(true).unwrap();
                    }
                    assert!(poll_read(&mut near, &count, &mut [0; 64]).is_pending());
                    other.set_passrights(true).unwrap();
                    assert_eq!(send_plainly(&far, b"first"), 5);
                    send_with_descriptor(&far, b"second");
                    assert_eq!(send_plainly(&far, b"third"), 5);
                    count.until_woken().await;
                    let got = read_pieces(&mut near, 16, false).await;
                    assert_eq!(got, b"firstsecondthird");
                }
            }
        }
        let [_, (mut near, far), _] = own_streams(&place, true).await;
        let count = Count::new();
        assert!(poll_read(&mut near, &count, &mut [0; 64]).is_pending());
        send_with_descriptor(&far, b"first");
        assert_eq!(send_plainly(&far, b"second"), 6);
        count.until_woken().await;
        assert_eq!(read_pieces(&mut near, 11, false).await, b"firstsecond");
    });
}

/// A stream that is given away takes descriptors again.
///
/// Given away as the standard library's type or bare; alone, or shared with a clone that goes on
/// reading.
#[test]
fn given_away_stream_takes_descriptors() {
    in_every_runtime(|_| async {
        let place = place();
        for shared in [false, true] {
            for (near, far) in own_streams(&place, false).await {
                // The stream is registered, and its clone waits.
                let mut clone = near.clone();
                let count = Count::new();
                assert!(poll_read(&mut clone, &count, &mut [0; 64]).is_pending());
                let clone = shared.then_some(clone);
                let mut given = net::UnixStream::try_from(near).unwrap();
                send_with_descriptor(&far, b"first");
                assert_eq!(send_plainly(&far, b"second"), 6);
                let got = match clone {
                    Some(mut clone) => {
                        count.until_woken().await;
                        read_pieces(&mut clone, 11, false).await
                    }
                    None => {
                        let mut bytes = vec![0; 11];
                        given.set_nonblocking(false).unwrap();
                        given.read_exact(&mut bytes).unwrap();
                        bytes
                    }
                };
                assert_eq!(got, b"firstsecond");
            }
        }
        let path = place.path().join("given");
        let listener = UnixListener::bind(&path).unwrap();
        let given = net::UnixListener::try_from(listener).unwrap();
        let client = net::UnixStream::connect(&path).unwrap();
        let (mut server, _) = given.accept().unwrap();
        server.set_nonblocking(false).unwrap();
        send_with_descriptor(&client, b"first");
        server.read_exact(&mut [0; 5]).unwrap();
    });
}

/// Sends bytes without a descriptor.
fn send_plainly(stream: &impl AsFd, bytes: &[u8]) -> usize {
    socket2::SockRef::from(stream).send(bytes).unwrap()
}

/// Random pieces some with descriptors lose nothing.
///
/// The sizes of writes and reads are random, and some writes carry a descriptor.
#[test]
fn random_pieces_with_descriptors_lose_nothing() {
    in_every_runtime(|_| async {
        let (mut near, far) = unix::pair();
        let mut random = Random::new(11);
        let mut sent = 0u32;
        let mut got = 0u32;
        for _ in 0..300 {
            let count = Count::new();
            let mut bytes = [0; 200];
            assert!(poll_read(&mut near, &count, &mut bytes).is_pending());
            for _ in 0..random.size(4) {
                let piece: Vec<u8> = (0..random.size(30))
                    .map(|_| {
                        sent += 1;
                        sent as u8
                    })
                    .collect();
                match random.below(3) {
                    0 => send_with_descriptor(&far, &piece),
                    _ => (&far).write_all(&piece).unwrap(),
                }
            }
            count.until_woken().await;
            while got < sent {
                let room = random.size(bytes.len());
                let read = timeout(SOON, near.read(&mut bytes[..room])).await;
                let read = read.expect("it has arrived").unwrap();
                for byte in &bytes[..read] {
                    got += 1;
                    assert_eq!(*byte, got as u8);
                }
            }
        }
    });
}

/// With credentials enabled, a read ends where another writer begins.
#[cfg(target_os = "linux")]
#[test]
fn credentials_between_two_writes_lose_nothing() {
    in_every_runtime(|_| async {
        // A stream that was made elsewhere, and one made by polder, with a borrowed descriptor.
        let own = UnixStream::pair().unwrap();
        let far = net::UnixStream::try_from(own.1).unwrap();
        far.set_nonblocking(false).unwrap();
        for (mut near, far) in [unix::pair(), (own.0, far)] {
            socket2::SockRef::from(&near).set_passcred(true).unwrap();
            let count = Count::new();
            assert!(poll_read(&mut near, &count, &mut [0; 64]).is_pending());
            (&far).write_all(b"first").unwrap();
            let mut child = std::process::Command::new("/bin/echo");
            let status = child
                .arg("other")
                .stdout(Owned::from(far.try_clone().unwrap()))
                .status();
            assert!(status.expect("there is an echo").success());
            drop(child); // It holds a duplicate.
            count.until_woken().await;
            let got = read_pieces(&mut near, 11, false).await;
            assert_eq!(got, b"firstother\n");
            drop(far); // Until here no end could tell that there was more.
            assert_eq!(near.read(&mut [0; 64]).await.unwrap(), 0);
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn urgent_data_of_a_unix_stream_loses_nothing() {
    in_every_runtime(|_| async {
        for after_the_first_event in [false, true] {
            let (mut near, far) = unix::pair();
            let far = Socket::from(Owned::from(far));
            let count = Count::new();
            assert!(poll_read(&mut near, &count, &mut [0; 64]).is_pending());
            assert_eq!(far.send(b"first").unwrap(), 5);
            if after_the_first_event {
                count.until_woken().await;
            }
            // Linux before 5.15 has no out-of-band data here.
            let Ok(1) = far.send_out_of_band(b"!") else {
                return;
            };
            assert_eq!(far.send(b"second").unwrap(), 6);
            count.until_woken().await;
            let got = read_pieces(&mut near, 11, false).await;
            assert_eq!(got, b"firstsecond");
            assert!(poll_once(near.read(&mut [0; 64])).await.is_none());
            // With no data behind the urgent byte.
            let count = Count::new();
            assert!(poll_read(&mut near, &count, &mut [0; 64]).is_pending());
            assert_eq!(far.send_out_of_band(b"!").unwrap(), 1);
            some_turns().await;
            assert!(poll_once(near.read(&mut [0; 64])).await.is_none());
            assert_eq!(far.send(b"third").unwrap(), 5);
            assert_eq!(read_pieces(&mut near, 5, false).await, b"third");
        }
    });
}

#[test]
fn unix_datagram_send_wakes_nobody() {
    with_every_runtime(|runtime, _| {
        let (near, far) = net::UnixDatagram::pair().unwrap();
        let near = UnixDatagram::try_from(near).unwrap();
        let mut bytes = [0; 64];
        runtime.block_on(async {
            assert!(poll_once(near.recv(&mut bytes)).await.is_none());
        });
        for after_a_send_that_waited in [false, true] {
            if after_a_send_that_waited {
                runtime.block_on(async {
                    let mut sent = 0;
                    let mut pending = loop {
                        let mut send = Box::pin(near.send(b"fill"));
                        match poll_in_turns(&mut send).await {
                            Some(result) => assert_eq!(result.unwrap(), 4),
                            None => break send,
                        }
                        sent += 1;
                    };
                    let count = Count::new();
                    assert!(poll_future(&mut pending, &count).is_pending());
                    for _ in 0..sent {
                        far.recv(&mut bytes).unwrap();
                    }
                    count.until_woken().await;
                });
            }
            assert_no_wake_up(&runtime, || {
                let count = Count::new();
                let mut send = Box::pin(near.send(b"message"));
                assert!(poll_future(&mut send, &count).is_ready());
                assert_eq!(far.recv(&mut bytes).unwrap(), 7);
            });
        }
    });
}

/// A connect to a full Unix listener waits until there is room.
///
/// Clients that find the queue full wait, and all connect, except one that was cancelled meanwhile.
#[test]
fn connect_to_full_listener_waits() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("listener");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(1).unwrap();
        let listener = UnixListener::try_from(Owned::from(listener)).unwrap();

        let mut connected = Vec::new();
        let mut waiting = Vec::new();
        while waiting.len() < 3 {
            let mut connect = Box::pin(UnixStream::connect(path.clone()));
            match poll_once(&mut connect).await {
                Some(Ok(stream)) => connected.push(stream),
                // The BSDs and Apple's systems refuse the connection.
                Some(Err(error)) if !cfg!(any(target_os = "linux", target_os = "android")) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                    return;
                }
                Some(Err(error)) => panic!("it is to wait: {error}"),
                None => waiting.push(connect),
            }
        }
        assert!(connected.len() >= 2, "{}", connected.len());
        // One connect is cancelled, and leaves nothing in the queue.
        drop(waiting.pop());
        let expected = connected.len() + waiting.len();
        let clients = waiting.into_iter().map(polder::spawn_local);
        let clients: Vec<_> = clients.collect();
        for _ in 0..expected {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"x").await.unwrap();
        }
        for client in clients {
            connected.push(client.await.expect("there was room in the end"));
        }
        for stream in &mut connected {
            stream.read_exact(&mut [0]).await.unwrap();
        }
        assert!(poll_once(listener.accept()).await.is_none());
    });
}

/// A connect that waits for a listener that goes is refused.
#[test]
fn connect_refused_when_listener_goes() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("listener");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let mut held = Vec::new();
        let mut connect = loop {
            let mut connect = Box::pin(UnixStream::connect(&path));
            match poll_once(&mut connect).await {
                Some(Ok(stream)) => held.push(stream),
                Some(Err(_)) => return,
                None => break connect,
            }
        };
        drop(listener);
        let error = timeout(SOON, &mut connect).await.expect("it ends");
        let error = error.expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

async fn talk(near: &mut UnixStream, far: &mut UnixStream) {
    let mut bytes = [0; 4];
    let (read, written) = zip(far.read_exact(&mut bytes), near.write_all(b"ping")).await;
    read.and(written).unwrap();
    assert_eq!(&bytes, b"ping");
    far.write_all(b"pong").await.unwrap();
    near.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"pong");
}

#[test]
fn streams_connect_by_path() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("listener");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*path));
        let mut accept = Box::pin(listener.accept());
        assert!(poll_once(&mut accept).await.is_none());
        let mut near = UnixStream::connect(&path).await.unwrap();
        let (mut far, peer) = accept.await.unwrap();
        assert!(peer.is_unnamed(), "{peer:?}");
        assert!(near.local_addr().unwrap().is_unnamed());
        assert_eq!(near.peer_addr().unwrap().as_pathname(), Some(&*path));
        assert_eq!(far.local_addr().unwrap().as_pathname(), Some(&*path));
        talk(&mut near, &mut far).await;

        // A client with a bound name.
        let own = place.path().join("client");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&own).unwrap()).unwrap();
        let address = SocketAddr::from_pathname(&path).unwrap();
        let mut near = UnixStream::connect_with(socket, &address).await.unwrap();
        let (mut far, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.as_pathname(), Some(&*own));
        assert_ne!(is_nonblocking(&near), Some(false));
        talk(&mut near, &mut far).await;

        // Accepted as a stream of connections.
        let _client = UnixStream::connect_addr(&address).await.unwrap();
        assert!(listener.incoming().next().await.unwrap().is_ok());

        // The path is in use until the file is removed, even after the listener is closed.
        let error = UnixListener::bind(&path).expect_err("it is in use");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(listener);
        assert!(path.exists(), "the file stays");
        let error = UnixStream::connect(&path)
            .await
            .expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        UnixListener::bind(&path).expect_err("it is in use still");
        std::fs::remove_file(&path).unwrap();
        let error = UnixStream::connect(&path)
            .await
            .expect_err("there is no file");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let _listener = UnixListener::bind(&path).expect("it is free");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn streams_and_datagrams_have_abstract_names() {
    use std::ffi::OsStr;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;

    in_every_runtime(|_| async {
        let address = abstract_address();
        let name = address.as_abstract_name();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let local = listener.local_addr().unwrap();
        assert_eq!(local.as_abstract_name(), name);
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let own = abstract_address();
        let own_name = own.as_abstract_name().unwrap();
        let own_path = [&[0], own_name].concat();
        let own_address = SockAddr::unix(OsStr::from_bytes(&own_path)).unwrap();
        socket.bind(&own_address).unwrap();
        let mut near = UnixStream::connect_with(socket, &address).await.unwrap();
        let (mut far, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.as_abstract_name(), Some(own_name));
        assert_eq!(near.peer_addr().unwrap().as_abstract_name(), name);
        talk(&mut near, &mut far).await;
        UnixListener::bind_addr(&address).expect_err("it is in use");

        let address = abstract_address();
        let receiver = UnixDatagram::bind_addr(&address).unwrap();
        let own = abstract_address();
        let sender = UnixDatagram::bind_addr(&own).unwrap();
        sender.send_to_addr(b"one", &address).await.unwrap();
        sender.connect_addr(&address).unwrap();
        sender.send(b"two").await.unwrap();
        let mut bytes = [0; 64];
        for expected in [b"one", b"two"] {
            let (length, peer) = receiver.recv_from(&mut bytes).await.unwrap();
            assert_eq!(&bytes[..length], expected);
            assert_eq!(peer.as_abstract_name(), own.as_abstract_name());
        }
    });
}

#[test]
fn pairs_have_no_name_and_are_close_on_exec() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        talk(&mut near, &mut far).await;
        let datagrams = UnixDatagram::pair().unwrap();
        for address in [
            near.local_addr(),
            near.peer_addr(),
            datagrams.0.local_addr(),
            datagrams.1.peer_addr(),
        ] {
            let address = address.unwrap();
            assert!(address.is_unnamed(), "{address:?}");
        }
        assert!(!is_inherited(&near) && !is_inherited(&datagrams.0));
        assert_ne!(is_nonblocking(&near), Some(false));
        assert_ne!(is_nonblocking(&datagrams.0), Some(false));
        let (mut reader, writer) = near.into_split();
        drop(writer);
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
        far.write_all(b"x").await.unwrap();
        reader.read_exact(&mut [0]).await.unwrap();
    });
}

/// A peer says who it is or that the system does not tell.
#[test]
fn peer_credentials_or_unsupported() {
    in_every_runtime(|_| async {
        let linux = cfg!(any(target_os = "linux", target_os = "android"));
        let (near, _far) = UnixStream::pair().unwrap();
        let peer = match near.peer_cred() {
            Ok(peer) => peer,
            Err(error) if error.kind() == ErrorKind::Unsupported && !linux => return,
            Err(error) => panic!("{error}"),
        };
        // SAFETY: these only read.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        assert_eq!((peer.uid(), peer.gid()), (uid, gid));
        let this = std::process::id() as i32;
        assert_eq!(peer.pid().unwrap_or(this), this);
        assert_eq!(peer.pid().is_some(), linux);
    });
}

/// A path that is empty or too long or has a NUL is an error.
#[test]
fn path_empty_long_or_with_nul_is_error() {
    in_every_runtime(|_| async {
        let long = "x".repeat(200);
        for path in ["", &long, "a\0b", "\0ab"].map(Path::new) {
            let unbound = UnixDatagram::unbound().unwrap();
            for error in [
                UnixListener::bind(path).map(drop),
                UnixDatagram::bind(path).map(drop),
                UnixStream::connect(path).await.map(drop),
                unbound.connect(path),
                unbound.send_to(b"x", path).await.map(drop),
            ] {
                let error = error.expect_err("it is no path of a socket");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains("Unix socket"), "{error}");
            }
        }
        // The longest path that fits.
        let place = place();
        let longest = 107 - place.path().as_os_str().len() - 1;
        if cfg!(target_os = "linux") {
            let path = place.path().join("x".repeat(longest));
            let _listener = UnixListener::bind(&path).unwrap();
            let stream = UnixStream::connect(&path).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(&*path));
            UnixListener::bind(place.path().join("x".repeat(longest + 1))).unwrap_err();
        }
        // Other errors of the system.
        UnixListener::bind("/nowhere/at/all").unwrap_err();
        UnixStream::connect("/dev/null").await.unwrap_err();
    });
}

/// The address of an unnamed socket, as `recv_from` returns it, cannot be sent to.
#[test]
fn an_address_without_a_name_is_an_error() {
    in_every_runtime(|_| async {
        let nobody = SocketAddr::from_pathname("").unwrap();
        assert!(nobody.is_unnamed());
        let unbound = UnixDatagram::unbound().unwrap();
        let socket = |r#type| Socket::new(Domain::UNIX, r#type, None).unwrap();
        let (stream, other) = (socket(Type::STREAM), socket(Type::STREAM));
        for error in [
            UnixListener::bind_addr(&nobody).map(drop),
            UnixListener::bind_with(stream, &nobody).map(drop),
            UnixDatagram::bind_addr(&nobody).map(drop),
            UnixDatagram::bind_with(socket(Type::DGRAM), &nobody).map(drop),
            UnixStream::connect_addr(&nobody).await.map(drop),
            UnixStream::connect_with(other, &nobody).await.map(drop),
            unbound.connect_addr(&nobody),
            unbound.send_to_addr(b"x", &nobody).await.map(drop),
        ] {
            let error = error.expect_err("it is nobody's address");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("Unix socket"), "{error}");
        }
    });
}

/// A socket with a name that Linux generated (autobind) is taken over.
///
/// As documented: Linux's autobind is still available.
#[test]
#[cfg(target_os = "linux")]
fn autobound_socket_is_taken_over() {
    use std::os::linux::net::SocketAddrExt;

    in_every_runtime(|_| async {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix("").unwrap()).unwrap();
        socket.listen(1).unwrap();
        let listener = UnixListener::try_from(Owned::from(socket)).unwrap();
        let address = listener.local_addr().unwrap();
        // Five digits: unix(7), "Autobind feature".
        assert_eq!(address.as_abstract_name().unwrap().len(), 5);
        let (near, accepted) = zip(UnixStream::connect_addr(&address), listener.accept()).await;
        let (mut near, (mut far, _)) = (near.unwrap(), accepted.unwrap());
        talk(&mut near, &mut far).await;
    });
}

#[test]
fn unix_datagrams_are_sent_and_received() {
    in_every_runtime(|_| async {
        let place = place();
        let (path, own) = (place.path().join("receiver"), place.path().join("sender"));
        let receiver = UnixDatagram::bind(&path).unwrap();
        let sender = UnixDatagram::bind(&own).unwrap();
        let mut bytes = [0; 64];
        {
            let mut receive = Box::pin(receiver.recv_from(&mut bytes));
            assert!(poll_once(&mut receive).await.is_none());
            assert_eq!(sender.send_to(b"to a path", &path).await.unwrap(), 9);
            let (length, peer) = receive.await.unwrap();
            assert_eq!(length, 9);
            assert_eq!(peer.as_pathname(), Some(&*own));
        }
        assert_eq!(&bytes[..9], b"to a path");

        // Datagrams that arrive together are all received; an empty one too; one that is too long
        // is cut.
        sender.connect(&path).unwrap();
        assert_eq!(sender.peer_addr().unwrap().as_pathname(), Some(&*path));
        for datagram in [&b"first"[..], b"", b"a longer one", b"last"] {
            sender.send(datagram).await.unwrap();
        }
        assert_eq!(receiver.recv(&mut bytes).await.unwrap(), 5);
        assert_eq!(receiver.recv(&mut bytes).await.unwrap(), 0);
        assert_eq!(receiver.recv(&mut bytes[..8]).await.unwrap(), 8);
        assert_eq!(&bytes[..8], b"a longer");
        assert_eq!(receiver.recv(&mut bytes).await.unwrap(), 4);

        // A datagram from an unnamed socket cannot be answered.
        let nobody = UnixDatagram::unbound().unwrap();
        nobody.send(b"x").await.expect_err("to whom?");
        nobody.send_to(b"x", &path).await.unwrap();
        let (_, peer) = receiver.recv_from(&mut bytes).await.unwrap();
        assert!(peer.is_unnamed(), "{peer:?}");

        drop(receiver);
        let error = sender.send(b"x").await.expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        nobody.send_to(b"x", &path).await.expect_err("likewise");
    });
}

/// Returns `None` if the future is pending, and not only because it yielded.
async fn poll_in_turns<T>(mut future: impl Future<Output = T> + Unpin) -> Option<T> {
    for _ in 0..2 {
        if let Some(done) = poll_once(&mut future).await {
            return Some(done);
        }
        some_turns().await;
    }
    None
}

/// A datagram for which there is no room waits until there is.
///
/// With the two sockets connected with each other, with one connected to the other, and
/// unconnected: the kernel reports room in the first two cases only.
#[test]
fn datagram_waits_for_room() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("receiver");
        for way in ["a pair", "connected", "by address"] {
            let (sender, receiver) = match way {
                "a pair" => UnixDatagram::pair().unwrap(),
                _ => {
                    let _ = std::fs::remove_file(&path);
                    let receiver = UnixDatagram::bind(&path).unwrap();
                    let sender = UnixDatagram::unbound().unwrap();
                    if way == "connected" {
                        sender.connect(&path).unwrap();
                    }
                    (sender, receiver)
                }
            };
            let send = async |number: u32| {
                let bytes = number.to_ne_bytes();
                match way {
                    "by address" => sender.send_to(&bytes, &path).await,
                    _ => sender.send(&bytes).await,
                }
            };
            let mut sent = 0;
            let mut pending = loop {
                let mut send = Box::pin(send(sent));
                match poll_in_turns(&mut send).await {
                    Some(Ok(_)) => sent += 1,
                    // The BSDs and Apple's systems do not wait.
                    Some(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => return,
                    Some(Err(error)) => panic!("{way}: {error}"),
                    None => break send,
                }
            };
            some_turns().await;
            assert!(poll_once(&mut pending).await.is_none(), "{way}: no room");
            let mut bytes = [0; 8];
            let receive = async {
                for number in 0..sent {
                    assert_eq!(receiver.recv(&mut bytes).await.unwrap(), 4);
                    assert_eq!(bytes[..4], number.to_ne_bytes());
                }
                let last = timeout(SOON, receiver.recv(&mut bytes)).await;
                assert_eq!(last.expect("it is sent").unwrap(), 4);
                assert_eq!(bytes[..4], sent.to_ne_bytes());
            };
            let (sent, ()) = zip(pending, receive).await;
            assert_eq!(sent.unwrap(), 4, "{way}");
        }
    });
}

/// An error of binding a Unix socket names the path.
#[test]
fn bind_error_names_path() {
    in_every_kernel_runtime(|_| async {
        let place = place();
        let (taken, missing) = (place.path().join("taken"), place.path().join("none/socket"));
        let _listener = UnixListener::bind(&taken).unwrap();
        let all = [
            (
                UnixListener::bind(&taken).map(drop),
                &taken,
                ErrorKind::AddrInUse,
            ),
            (
                UnixDatagram::bind(&taken).map(drop),
                &taken,
                ErrorKind::AddrInUse,
            ),
            (
                UnixListener::bind(&missing).map(drop),
                &missing,
                ErrorKind::NotFound,
            ),
        ];
        for (result, path, kind) in all {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind);
            let words = error.to_string();
            assert!(words.contains(&format!("{path:?}: ")), "{words}");
        }
    });
}

/// A Unix datagram socket that is shut down wakes who waits.
#[test]
fn unix_datagram_shutdown_wakes_waiters() {
    in_every_runtime(|_| async {
        let (near, _far) = UnixDatagram::pair().unwrap();
        let count = Count::new();
        let mut bytes = [0; 8];
        let mut receive = Box::pin(near.recv(&mut bytes));
        assert!(poll_future(&mut receive, &count).is_pending());
        near.shutdown(std::net::Shutdown::Both).unwrap();
        count.until_woken().await;
        assert_eq!(receive.await.unwrap(), 0);
        let (length, nobody) = near.recv_from(&mut [0; 8]).await.unwrap();
        assert!(length == 0 && nobody.is_unnamed());
        near.send(b"x").await.expect_err("sending has ended");
    });
}

#[test]
fn std_unix_sockets_come_and_go_and_keep_working() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("listener");
        let listener = net::UnixListener::bind(&path).unwrap();
        let number = number_of(&listener);
        let listener = UnixListener::try_from(Owned::from(listener)).unwrap();
        assert_ne!(is_nonblocking(&listener), Some(false));
        let client = net::UnixStream::connect(&path).unwrap();
        let mut near = UnixStream::try_from(client).unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        talk(&mut near, &mut far).await;
        let mut std = net::UnixStream::try_from(near).unwrap();
        std.set_nonblocking(false).unwrap();
        far.write_all(b"x").await.unwrap();
        std.read_exact(&mut [0]).unwrap();
        let mut near = UnixStream::try_from(Owned::from(std)).unwrap();
        talk(&mut near, &mut far).await;
        let std = net::UnixListener::try_from(listener).unwrap();
        assert_eq!(number_of(&std), number);

        // A peer that has gone leaves its bytes.
        let (std, mut peer) = net::UnixStream::pair().unwrap();
        peer.write_all(b"x").unwrap();
        drop(peer);
        let mut near = UnixStream::try_from(std).unwrap();
        let mut bytes = Vec::new();
        near.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"x");

        let (a, b) = net::UnixDatagram::pair().unwrap();
        let a = UnixDatagram::try_from(a).unwrap();
        let mut bytes = [0; 8];
        {
            let mut receive = Box::pin(a.recv(&mut bytes));
            assert!(poll_once(&mut receive).await.is_none());
            b.send(b"x").unwrap();
            assert_eq!(receive.await.unwrap(), 1);
        }
        let a = net::UnixDatagram::try_from(a).unwrap();
        let error = a.recv(&mut bytes).expect_err("it stays so");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    });
}

/// More slices than the kernel takes are read and written.
#[test]
fn slices_beyond_kernel_limit() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let sent = [7; 2_000];
        let slices: Vec<_> = sent.chunks(1).map(IoSlice::new).collect();
        let written = far.write_vectored(&slices).await.unwrap();
        assert!(written > 0);
        let mut bytes = [0; 2_000];
        let mut slices: Vec<_> = bytes.chunks_mut(1).map(std::io::IoSliceMut::new).collect();
        let read = near.read_vectored(&mut slices).await.unwrap();
        assert!(read > 0 && read <= written, "{read} of {written}");
        assert!(bytes[..read].iter().all(|byte| *byte == 7));
    });
}

/// A socket at a path that fills the kernel's structure to its last byte, without a NUL: Linux
/// accepts it, and the standard library makes no such address.
#[cfg(target_os = "linux")]
fn bound_to_the_last_byte(place: &TempDir, kind: Type) -> Socket {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    let socket = Socket::new(Domain::UNIX, kind, None).unwrap();
    let room = 108 - place.path().as_os_str().len() - 1;
    let path = place.path().join("x".repeat(room));
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as libc::c_char;
    }
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads the address, of that length, and keeps no pointer to it.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// A peer at a path that fills the kernel's form is accepted.
#[cfg(target_os = "linux")]
#[test]
fn peer_at_longest_path_accepted() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("l");
        let listener = UnixListener::bind(&path).unwrap();
        let client = bound_to_the_last_byte(&place, Type::STREAM);
        client.connect(&SockAddr::unix(&path).unwrap()).unwrap();
        let accepted = timeout(SOON, listener.accept()).await;
        let (mut near, _) = accepted.expect("it has connected").unwrap();
        let mut far = UnixStream::try_from(Owned::from(client)).unwrap();
        far.local_addr().unwrap();
        near.peer_addr().unwrap();
        talk(&mut near, &mut far).await;
    });
}

/// A datagram from a path that fills the kernel's form is received.
#[cfg(target_os = "linux")]
#[test]
fn datagram_from_longest_path_received() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("l");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let sender = bound_to_the_last_byte(&place, Type::DGRAM);
        let to = SockAddr::unix(&path).unwrap();
        assert_eq!(sender.send_to(b"hello", &to).unwrap(), 5);
        let mut bytes = [0; 8];
        let received = timeout(SOON, receiver.recv_from(&mut bytes)).await;
        let (length, _) = received.expect("it is sent").unwrap();
        assert_eq!(bytes[..length], *b"hello");
    });
}

/// Sends to a receiver until there is no room.
#[cfg(target_os = "linux")]
fn fill_receiver(path: &Path) {
    let filler = net::UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    let error = loop {
        if let Err(error) = filler.send_to(b"x", path) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

/// A datagram to one receiver does not wait for another.
///
/// The room that the kernel reports for a socket is the room of the receiver it is connected to.
#[cfg(target_os = "linux")]
#[test]
fn datagram_to_one_waits_for_no_other() {
    in_every_runtime(|_| async {
        for other_is_full in [false, true] {
            let place = place();
            let (connected, other) = (place.path().join("connected"), place.path().join("other"));
            let _full = UnixDatagram::bind(&connected).unwrap();
            let receiver = UnixDatagram::bind(&other).unwrap();
            fill_receiver(&connected);
            if other_is_full {
                fill_receiver(&other);
            }
            let sender = UnixDatagram::unbound().unwrap();
            sender.connect(&connected).unwrap();
            assert!(poll_once(sender.send(b"stuck")).await.is_none());
            let mut send = Box::pin(timeout(SOON, sender.send_to(b"y", &other)));
            if other_is_full {
                assert!(poll_once(&mut send).await.is_none(), "there is no room");
                receiver.recv(&mut [0; 8]).await.unwrap();
            }
            let sent = send.await.expect("this one has room");
            assert_eq!(sent.unwrap(), 1);
        }
    });
}

/// A full receiver does not make a sender wait for another.
///
/// Nothing would report that the socket can be written to: it was, all the time.
#[cfg(target_os = "linux")]
#[test]
fn full_receiver_delays_no_other_target() {
    in_every_runtime(|_| async {
        let place = place();
        let (empty, full) = (place.path().join("empty"), place.path().join("full"));
        let _empty = UnixDatagram::bind(&empty).unwrap();
        let _full = UnixDatagram::bind(&full).unwrap();
        let [filler, sender] = [(); 2].map(|()| UnixDatagram::unbound().unwrap());
        while filler.try_send_to(b"x", &full).is_ok() {}
        sender.connect(&empty).unwrap();
        for _ in 0..2 {
            let writable = timeout(SOON, sender.writable()).await;
            writable.expect("its buffer is empty").unwrap();
            let error = sender.try_send_to(b"stuck", &full).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        let sent = timeout(SOON, sender.send(b"y")).await;
        assert_eq!(sent.expect("this one has room").unwrap(), 1);
    });
}

/// Abstract names of any length and bytes are names.
#[cfg(target_os = "linux")]
#[test]
fn abstract_names_of_any_bytes() {
    use std::os::linux::net::SocketAddrExt;

    in_every_runtime(|_| async {
        let own = abstract_address();
        let own = own.as_abstract_name().unwrap();
        let longest = [own, &[b'z'; 107]].concat();
        for name in [
            &longest[..107],
            &[own, &[0]].concat(),
            &[own, &[0, 0]].concat(),
        ] {
            let address = SocketAddr::from_abstract_name(name).unwrap();
            let listener = UnixListener::bind_addr(&address).unwrap();
            assert_eq!(
                listener.local_addr().unwrap().as_abstract_name(),
                Some(name)
            );
            let mut far = UnixStream::connect_addr(&address).await.unwrap();
            let (mut near, _) = listener.accept().await.unwrap();
            assert_eq!(far.peer_addr().unwrap().as_abstract_name(), Some(name));
            talk(&mut near, &mut far).await;
        }
    });
}

/// Tries and polls of a Unix datagram socket do what its futures do.
#[test]
fn unix_datagram_tries_and_polls_match_futures() {
    in_every_runtime(|_| async {
        let (near, far) = UnixDatagram::pair().unwrap();
        let mut bytes = [0; 8];
        let would_block = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
        would_block(near.try_recv(&mut bytes).unwrap_err());
        would_block(near.try_recv_from(&mut bytes).unwrap_err());
        let count = Count::new();
        let mut readable = Box::pin(near.readable());
        assert!(poll_future(&mut readable, &count).is_pending());
        assert_eq!(far.try_send(b"hello").unwrap(), 5);
        count.until_woken().await;
        readable.await.unwrap();
        assert_eq!(near.try_recv(&mut bytes).unwrap(), 5);

        // Sends until the queue is full; then waits until there is room.
        let mut sent = 0;
        while far.try_send(b"x").is_ok() {
            sent += 1;
        }
        let count = Count::new();
        let mut writable = Box::pin(far.writable());
        assert!(poll_future(&mut writable, &count).is_pending());
        for _ in 0..sent {
            poll_fn(|cx| near.poll_recv_ready(cx)).await.unwrap();
            assert_eq!(near.try_recv(&mut bytes).unwrap(), 1);
        }
        writable.await.unwrap();
        poll_fn(|cx| far.poll_send_ready(cx)).await.unwrap();
        assert_eq!(poll_fn(|cx| far.poll_send(cx, b"x")).await.unwrap(), 1);
        let received = poll_fn(|cx| near.poll_recv(cx, &mut bytes)).await;
        assert_eq!(received.unwrap(), 1);

        let place = place();
        let path = place.path().join("mailbox");
        let mailbox = UnixDatagram::bind(&path).unwrap();
        let error = near
            .try_send_to(b"x", place.path().join("nobody"))
            .unwrap_err();
        assert!(!error.to_string().is_empty());
        let sender = UnixDatagram::unbound().unwrap();
        assert_eq!(sender.try_send_to(b"hello", &path).unwrap(), 5);
        let received = poll_fn(|cx| mailbox.poll_recv_from(cx, &mut bytes)).await;
        assert_eq!(received.unwrap().0, 5);
        sender.try_send_to(b"more", &path).unwrap();
        assert_eq!(mailbox.try_recv_from(&mut bytes).unwrap().0, 4);
        would_block(mailbox.try_recv(&mut bytes).unwrap_err());
        // After the end no operation waits.
        near.shutdown(std::net::Shutdown::Both).unwrap();
        near.readable().await.unwrap();
        assert_eq!(near.try_recv(&mut bytes).unwrap(), 0);
    });
}

#[test]
fn a_unix_listener_is_polled_for_connections() {
    in_every_runtime(|_| async {
        let place = place();
        let path = place.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let count = Count::new();
        let mut accept = poll_fn(|cx| listener.poll_accept(cx));
        assert!(poll_future(&mut accept, &count).is_pending());
        let _client = net::UnixStream::connect(&path).unwrap();
        count.until_woken().await;
        accept.await.unwrap();
    });
}

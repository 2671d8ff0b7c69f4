//! Rules 35 and 36, and leaks: these are about a whole process, so each test starts itself again.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{self, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::task::Poll;
use std::time::Duration;

use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use polder::net::unix::{UnixDatagram, UnixStream};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use rustix::process::Resource;
use socket2::{Domain, Socket, Type};

use super::{Count, both, fill, pair, poll_future, poll_read, reset, some_turns};
use crate::again::again;
use crate::child::{in_children, limit};
use crate::probe::listen;
use crate::support::{eventually, runtime, test_of};

/// From here on no descriptor can be opened, except in place of closed ones.
fn leave_no_descriptor() {
    let lowest_free = File::open().0.as_raw_fd();
    limit(Resource::Nofile, lowest_free as u64);
    assert!(
        std::fs::File::open("/dev/null").is_err(),
        "there is none left"
    );
}

/// A value that holds a descriptor.
struct File(OwnedFd);

impl File {
    fn open() -> File {
        File(std::fs::File::open("/dev/null").unwrap().into())
    }
}

fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// Accepts a connection, answers it, and closes it.
async fn serve(listener: &TcpListener) -> SocketAddr {
    let (mut stream, peer) = listener.accept().await.expect("there is a descriptor");
    let mut byte = [0];
    stream.read_exact(&mut byte).await.unwrap();
    stream.write_all(&byte).await.unwrap();
    peer
}

/// Accept reports that there are no descriptors and recovers.
#[test]
fn accept_recovers_from_emfile() {
    in_children(|backend| {
        runtime(backend).block_on(async {
            let (listener, address) = listen().await;
            let mut clients: Vec<_> = (0..10)
                .map(|_| net::TcpStream::connect(address).unwrap())
                .collect();
            let late = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            for client in &mut clients {
                client.write_all(b"?").unwrap();
            }
            let spare = File::open();
            leave_no_descriptor();
            for _ in 0..3 {
                let error = listener.accept().await.expect_err("none is left");
                assert!(is_out_of_descriptors(&error), "{error}");
                some_turns().await;
            }
            let error = TcpStream::connect(address).await.expect_err("likewise");
            assert!(is_out_of_descriptors(&error), "{error}");

            drop(spare);
            let mut served = Vec::new();
            for _ in 0..clients.len() {
                served.push(serve(&listener).await);
            }
            for client in &mut clients {
                client.read_exact(&mut [0]).expect("it was served");
                assert!(served.contains(&client.local_addr().unwrap()));
            }

            // An accept that waits already when the last descriptor is taken gets the error
            // too.
            let count = Count::new();
            let mut accept = Box::pin(listener.accept());
            assert!(poll_future(&mut accept, &count).is_pending());
            let spare = File::open();
            match late.connect(&address.into()) {
                // A signal has ended the call; the connect continues, and a write waits for it.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => result.expect("it listens"),
            }
            let mut late = net::TcpStream::from(late);
            late.write_all(b"?").unwrap();
            count.until_woken().await;
            match poll_future(&mut accept, &count) {
                Poll::Ready(Err(error)) if is_out_of_descriptors(&error) => {}
                other => panic!("none is left, and accept says {other:?}"),
            }
            drop(accept);
            // No event reports that descriptors are free again, nor is the connection reported
            // again.
            some_turns().await;
            drop(spare);
            assert_eq!(serve(&listener).await, late.local_addr().unwrap());
            late.read_exact(&mut [0]).unwrap();
        });
    });
}

/// A plain thread is told that there are no descriptors and recovers.
#[test]
fn plain_thread_recovers_from_emfile() {
    in_children(|_| {
        let (mut near, mut far) = pair();
        let spare: Vec<_> = (0..10).map(|_| File::open()).collect();
        leave_no_descriptor();
        let mut byte = [0];
        // The background runtime would have to start.
        let error = futures_lite::future::block_on(near.read(&mut byte)).expect_err("none is left");
        assert!(is_out_of_descriptors(&error), "{error}");
        drop(spare);
        let reader =
            std::thread::spawn(move || futures_lite::future::block_on(near.read(&mut [0])));
        far.write_all(b"x").unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 1);
    });
}

/// Asserts that writes to `stream`, plain and vectored, are errors.
async fn writes_fail(stream: &mut (impl AsyncWrite + Unpin)) {
    for _ in 0..3 {
        let slices = [IoSlice::new(b"vec"), IoSlice::new(b"tored")];
        for error in [
            stream.write(b"plain").await.unwrap_err(),
            stream.write_vectored(&slices).await.unwrap_err(),
            stream.write_all(b"all").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    }
}

/// A write to a peer that is gone is an error and no signal.
#[test]
fn write_to_gone_peer_is_error_not_signal() {
    const CONTROL: &str = "POLDER_TEST_SIGPIPE";

    fn die_by_default() {
        // SAFETY: the default disposition runs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    if std::env::var_os(CONTROL).is_some() {
        die_by_default();
        let (near, far) = super::std_pair();
        reset(far);
        loop {
            let _ = rustix::io::write(&near, b"x");
        }
    }
    let rule = |backend| {
        die_by_default();
        let rule = async {
            // A peer that has reset the connection.
            let (mut near, far) = pair();
            reset(far);
            near.read(&mut [0]).await.expect_err("it was reset");
            writes_fail(&mut near).await;
            let (_, mut writer) = near.into_split();
            writer.write(b"half").await.unwrap_err();
            // Our own end.
            let (mut near, _far) = pair();
            near.close().await.unwrap();
            writes_fail(&mut near).await;
            // A peer that closes while the writer waits, with data unread.
            let (mut near, far) = pair();
            let count = Count::new();
            fill(&mut near, &count);
            drop(far);
            while near.write(b"x").await.is_ok() {}
            writes_fail(&mut near).await;
            // The same with Unix sockets.
            let (mut near, far) = super::unix::pair();
            fill(&mut near, &count);
            drop(far);
            while near.write(b"x").await.is_ok() {}
            writes_fail(&mut near).await;
            let (mut near, _far) = super::unix::pair();
            near.close().await.unwrap();
            writes_fail(&mut near).await;
            let (near, far) = UnixDatagram::pair().unwrap();
            drop(far);
            near.send(b"x").await.expect_err("nobody is there");
            near.shutdown(net::Shutdown::Write).unwrap();
            near.send(b"x").await.expect_err("sending has ended");
        };
        runtime(backend).block_on(rule);
        let (mut near, far) = pair();
        reset(far);
        futures_lite::future::block_on(async {
            near.read(&mut [0]).await.expect_err("it was reset");
            writes_fail(&mut near).await;
        });
    };
    // Shows that the signal would have come: another kind of write ends the process.
    let control = again(test_of(&rule)).env(CONTROL, "").output();
    assert_eq!(control.unwrap().status.signal(), Some(libc::SIGPIPE));
    in_children(rule);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/dev/fd").unwrap().count()
}

/// Uses sockets through their lifetimes, with every way to leave in the middle.
async fn lives(refusing: SocketAddr, full: SocketAddr) {
    let (listener, address) = listen().await;
    // Connects that are refused, that find no address, that are cancelled.
    TcpStream::connect(refusing).await.unwrap_err();
    TcpStream::connect(":").await.unwrap_err();
    TcpListener::bind(address).await.unwrap_err();
    assert!(poll_once(TcpStream::connect(full)).await.is_none());
    let near = TcpStream::connect([refusing, address]).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    assert!(poll_once(listener.accept()).await.is_none());
    // Waiting, split, cloned, converted, with and without a remaining clone.
    let (mut near, clone) = (near.clone(), near);
    assert!(poll_once(near.read(&mut [0])).await.is_none());
    let std = net::TcpStream::try_from(clone).unwrap();
    let mut again = TcpStream::try_from(std).unwrap();
    assert!(poll_once(again.read(&mut [0])).await.is_none());
    let std = net::TcpStream::try_from(near).unwrap();
    drop((std, again));
    let (mut reader, writer) = far.into_split();
    assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
    drop(reader);
    drop(writer);
    // One connection left in the queue, and one in a task that never finishes.
    let _queued = TcpStream::connect(address).await.unwrap();
    let (mut near, far) = both();
    polder::spawn(async move {
        let _far = far;
        near.read(&mut [0]).await.unwrap();
    })
    .detach();
    some_turns().await;
    // Cancelled or refused while others go on: datagrams and Unix sockets.
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    assert!(poll_once(udp.recv(&mut [0])).await.is_none());
    UdpSocket::bind(udp.local_addr().unwrap())
        .await
        .unwrap_err();
    let (datagrams, _far) = UnixDatagram::pair().unwrap();
    assert!(poll_once(datagrams.recv(&mut [0])).await.is_none());
    let (near, far) = UnixStream::pair().unwrap();
    let (mut reader, mut writer) = near.into_split();
    assert!(poll_once(reader.read(&mut [0])).await.is_none());
    fill(&mut writer, &Count::new());
    drop(far);
    UnixStream::connect("/nowhere/at/all").await.unwrap_err();
    let silent = TcpStream::connect_timeout(full, Duration::from_millis(1)).await;
    silent.unwrap_err();
    // Descriptors of another kind.
    drop(TcpStream::try_from(File::open().0));
    UnixDatagram::try_from(OwnedFd::try_from(udp).unwrap()).unwrap_err();
}

/// Sockets leave no descriptor and no waker behind.
#[test]
fn sockets_leave_no_descriptor_or_waker() {
    in_children(|backend| {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sockets = [(); 2].map(|()| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&loopback.into()).unwrap();
            socket
        });
        let [refusing, full] =
            [0, 1].map(|i| sockets[i].local_addr().unwrap().as_socket().unwrap());
        sockets[1].listen(0).unwrap();
        let _first = net::TcpStream::connect(full).unwrap();

        let round = || runtime(backend).block_on(lives(refusing, full));
        round(); // All that is made only once is made now.
        let before = open_descriptors();
        for _ in 0..10 {
            round();
        }
        assert_eq!(open_descriptors(), before);

        // In one runtime, and without one.
        let kept = runtime(backend);
        let count = Count::new();
        kept.block_on(async {
            let before = open_descriptors();
            for _ in 0..10 {
                let (mut near, far) = pair();
                assert!(poll_read(&mut near, &count, &mut [0]).is_pending());
                fill(&mut near, &count);
                drop(far);
                drop(near);
            }
            assert_eq!(open_descriptors(), before);
        });
        assert_eq!(count.kept(), 0);
        drop(kept);
        futures_lite::future::block_on(async {
            let (mut near, _far) = both();
            assert!(poll_read(&mut near, &count, &mut [0]).is_pending());
        });
        let before = open_descriptors();
        for _ in 0..10 {
            let (mut near, mut far) = both();
            futures_lite::future::block_on(async {
                assert!(poll_read(&mut near, &count, &mut [0]).is_pending());
                far.write_all(b"x").await.unwrap();
            });
            drop((near, far));
        }
        // The background runtime's thread may hold one for a moment longer.
        eventually("what the background runtime held is closed", || {
            open_descriptors() <= before && count.kept() == 0
        });
    });
}

//! The descriptor that a simulated socket lends when a program asks for one.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use polder::io::AsyncWriteExt;
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::sleep;
use socket2::SockRef;

use super::failing::{assert_contains, failure};
use super::ms;

const WORDS: &str = "a descriptor of a simulated socket was asked for";

/// Calls everything that a program may try with a socket's descriptor.
fn fails(socket: &impl AsFd) {
    let fd = socket.as_fd();
    assert!(rustix::io::read(fd, &mut [0; 4]).is_err());
    assert!(rustix::io::write(fd, b"lost").is_err());
    let socket = SockRef::from(&fd);
    assert!(socket.keepalive().is_err());
    assert!(socket.set_keepalive(true).is_err());
    assert!(socket.set_recv_buffer_size(4_096).is_err());
    assert!(socket.send(b"lost").is_err());
    assert!(socket.recv(&mut []).is_err());
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
    assert!(socket.bind(&any).is_err());
    assert!(socket.listen(1).is_err());
    assert!(socket.connect(&any).is_err());
    assert!(socket.shutdown(std::net::Shutdown::Both).is_err());
    // The call behind std's `set_nonblocking`.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    assert!(socket.set_nonblocking(true).is_err());
}

/// No call of a socket succeeds on a lent descriptor.
#[test]
fn lent_descriptor_fails_socket_calls() {
    polder_sim::check(0..1, |_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        fails(&listener);
        fails(&stream);
        fails(&UdpSocket::bind("127.0.0.1:0").await?);
        // The socket is unaffected.
        stream.set_nodelay(true)?;
        assert!(stream.nodelay()?);
        std::io::Result::Ok(())
    });
}

/// A world does not see what another one has set on a lent descriptor.
#[test]
fn lent_descriptor_hides_other_worlds_changes() {
    let world = |_| async {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let socket = SockRef::from(&socket);
        let before = (socket.keepalive().ok(), socket.local_addr().ok().is_some());
        let _ = socket.set_keepalive(true);
        let _ = socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into());
        assert_eq!(before, (None, false));
        std::io::Result::Ok(())
    };
    polder_sim::check(0..2, world);
    polder_sim::check(0..2, world);
}

#[test]
fn a_report_says_that_a_descriptor_was_asked_for() {
    let run = |asks: bool| {
        let report = polder_sim::run(1, move |_| async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if asks {
                let _ = socket.as_fd();
            }
            Err::<(), &str>("for a reason")
        });
        report.failure.unwrap()
    };
    assert!(run(true).contains(WORDS));
    assert!(!run(false).contains(WORDS), "polder itself asks");
}

/// Where two runs differ, a descriptor that the program asked for is reported as a suspect.
#[test]
fn descriptor_is_suspect_where_runs_differ() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let words = failure(|| {
        polder_sim::check(0..1, |_| async {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let _ = socket.as_fd();
            sleep(ms(1 + RUNS.fetch_add(1, Relaxed))).await;
        });
    });
    assert_contains(&words, &["The likely cause: ", "  Or: ", WORDS]);
}

/// A simulated file lends what can be neither read nor written.
#[test]
fn simulated_file_descriptor_not_readable() {
    let run = |asks: bool| {
        let report = polder_sim::run(1, move |_| async move {
            let mut file = polder::fs::File::create("/a").await.unwrap();
            if asks {
                let fd = file.as_fd();
                assert!(rustix::io::read(fd, &mut [0; 4]).is_err());
                assert!(rustix::io::write(fd, b"lost").is_err());
                assert!(rustix::fs::ftruncate(fd, 0).is_err());
            }
            file.write_all(b"text").await.unwrap();
            let refused = file.into_std().await.unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
            Err::<(), &str>("for a reason")
        });
        report.failure.unwrap()
    };
    let words = "a descriptor of a simulated file was asked for";
    assert!(run(true).contains(words));
    assert!(!run(false).contains(words));
}

//! Open sockets are counted by kind, whether or not a task waits for them. A separate process with
//! one test, since the numbers are those of the process.

#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use polder::Handle;
use polder::diagnostics::OpenSockets;
use polder::net::{TcpListener, TcpStream, UdpSocket};
use support::{in_every_kernel_runtime, until};

fn open() -> OpenSockets {
    Handle::current().metrics().open_sockets
}

/// Returns the numbers of TCP streams, TCP listeners and UDP sockets.
fn internet() -> (usize, usize, usize) {
    let open = open();
    (open.tcp_streams, open.tcp_listeners, open.udp_sockets)
}

#[test]
fn sockets_are_counted_until_they_are_closed() {
    in_every_kernel_runtime(|_| async {
        assert_eq!(open(), OpenSockets::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let refused = {
            let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
            closed.local_addr().unwrap()
        };
        assert!(TcpStream::connect(refused).await.is_err());
        assert_eq!(internet(), (0, 1, 0));

        // Nobody waits for them.
        let mut streams = Vec::new();
        for _ in 0..10 {
            streams.push(TcpStream::connect(address).await.unwrap());
            streams.push(listener.accept().await.unwrap().0);
        }
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        assert_eq!(internet(), (20, 1, 1));
        let dump = Handle::current().dump();
        assert_eq!(dump.open_sockets, open());
        let text = "open in this process: 20 TCP streams, 1 TCP listener, 1 UDP socket\n";
        assert!(dump.to_string().contains(text), "{dump}");
        assert!(dump.json().contains(r#""tcp_stream":20,"tcp_listener":1,"#));
        let text = Handle::current().metrics().to_string();
        let line = "polder_open_sockets{kind=\"tcp_stream\"} 20\n";
        assert!(text.contains(line), "{text}");

        // A clone and a half are the same socket, and one that is given away is none of ours.
        let (clone, (reader, writer)) = (udp.clone(), streams.pop().unwrap().into_split());
        drop((udp, writer));
        assert_eq!(internet(), (20, 1, 1));
        drop((clone, reader));
        #[cfg(unix)]
        let given = std::os::fd::OwnedFd::try_from(streams.remove(0)).unwrap();
        #[cfg(windows)]
        let given = std::os::windows::io::OwnedSocket::try_from(streams.remove(0)).unwrap();
        assert_eq!(internet(), (18, 1, 0));
        let adopted = TcpStream::try_from(std::net::TcpStream::from(given)).unwrap();
        assert_eq!(internet(), (19, 1, 0));

        // One that a task waits for is closed with the task.
        let waits = polder::spawn(async move {
            let mut byte = [0];
            drop(adopted.peek(&mut byte).await);
        });
        until("it waits", || {
            let dump = Handle::current().dump();
            let task = dump.tasks.iter().find(|task| task.id == Some(waits.id()));
            task.is_some_and(|task| !task.waits_for.is_empty())
        })
        .await;
        waits.cancel().await;
        drop((streams, listener));
        assert_eq!(internet(), (0, 0, 0));

        #[cfg(unix)]
        {
            use polder::net::unix::{UnixDatagram, UnixListener, UnixStream};

            let folder = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(folder.path().join("s")).unwrap();
            let pair = UnixStream::pair().unwrap();
            let datagram = UnixDatagram::unbound().unwrap();
            let wrapped = polder::Async::new(rustix::pipe::pipe().unwrap().0).unwrap();
            let numbers = open();
            let streams = (numbers.unix_streams, numbers.unix_listeners);
            assert_eq!(streams, (2, 1), "{numbers}");
            assert_eq!((numbers.unix_datagrams, numbers.asyncs), (1, 1));
            drop((listener, pair, datagram));
            drop(wrapped.into_inner());
        }
        assert_eq!(open(), OpenSockets::default());
    });
}

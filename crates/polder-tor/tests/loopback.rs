//! The traits of tor-rtcompat on polder, with peers of the standard library and of rustls, on every
//! backend.

use std::future::{Future, pending};
use std::io::{self, Read, Write};
use std::net::{self, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use futures_rustls::rustls::{ServerConfig, ServerConnection, Stream};
use polder::Backend;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::stream::StreamExt;
use polder_tor::Runtime;
use tor_rtcompat::tls::{RustlsProvider, TlsConnector};
use tor_rtcompat::{
    Blocking, CertifiedConn, CoarseDuration, CoarseTimeProvider, CommonConnectOptions,
    CommonListenOptions, NetStreamListener, NetStreamProvider, SleepProvider, SleepProviderExt,
    SpawnExt, StreamOps, TcpConnectOptions, TcpListenOptions, TlsProvider, ToplevelBlockOn,
    ToplevelRuntime, UdpProvider, UdpSocket,
};

/// The time limit of a test on a loaded machine; far longer than one needs.
const LIMIT: Duration = Duration::from_secs(60);

const HERE: SocketAddr = SocketAddr::new(net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

type Tor = Runtime<RustlsProvider>;

fn tor() -> Tor {
    let _ = ring::default_provider().install_default(); // Another test may have done so.
    polder_tor::runtime(RustlsProvider::default())
}

/// Runs `rule` on a separate thread: a lost wake-up is a failure, not an endless wait.
fn within(what: String, rule: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        rule();
        let _ = sender.send(());
    });
    match receiver.recv_timeout(LIMIT) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: not done after {LIMIT:?}"),
        _ => thread.join().expect("it is done"),
    }
}

/// Runs `rule` on every backend, with its tasks on one thread and on three others.
fn everywhere<F>(rule: impl Fn(Tor) -> F + Copy + Send + 'static)
where
    F: Future<Output = io::Result<()>>,
{
    for backend in Backend::available() {
        for workers in [1, 3] {
            within(format!("on {backend} with {workers}"), move || {
                let runtime = polder::Runtime::builder().backend(backend).workers(workers);
                let runtime = runtime.build().expect("an available backend can be opened");
                let result = runtime.block_on(async { rule(tor()).await });
                result.unwrap_or_else(|error| panic!("on {backend} with {workers}: {error}"));
            });
        }
    }
}

/// A peer on a thread that sends back what it reads, until it reads the end.
fn echo<S>(accept: impl FnOnce() -> io::Result<S> + Send + 'static) -> JoinHandle<io::Result<usize>>
where
    S: Read + Write,
{
    thread::spawn(move || {
        let (mut stream, mut bytes, mut sum) = (accept()?, [0; 4096], 0);
        loop {
            let count = stream.read(&mut bytes)?;
            if count == 0 {
                return Ok(sum);
            }
            stream.write_all(&bytes[..count])?;
            sum += count;
        }
    })
}

/// Sends a million bytes over `stream` while it reads them back, and closes it.
async fn send_and_compare<S>(stream: S) -> io::Result<()>
where
    S: polder::io::AsyncRead + polder::io::AsyncWrite + Unpin,
{
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut reader, mut writer) = polder::io::split(stream);
    let write = async {
        writer.write_all(&sent).await?;
        writer.close().await
    };
    let mut received = Vec::new();
    let read = reader.read_to_end(&mut received);
    polder::future::try_zip(write, read).await?;
    assert!(received == sent, "other bytes came back");
    Ok(())
}

#[test]
fn it_is_a_runtime_for_arti() {
    fn takes_a_runtime(_runtime: impl ToplevelRuntime) {}
    within("here".to_owned(), || takes_a_runtime(tor()));
}

/// A stream carries bytes to a peer and back until it is closed.
#[test]
fn stream_carries_bytes_until_closed() {
    everywhere(|tor| async move {
        let listener = net::TcpListener::bind(HERE)?;
        let address = listener.local_addr()?;
        let peer = echo(move || Ok(listener.accept()?.0));
        send_and_compare(tor.connect(&address, &Default::default()).await?).await?;
        assert_eq!(peer.join().expect("it ends")?, 1_000_000);
        Ok(())
    });
}

#[test]
fn a_port_without_listener_refuses() {
    everywhere(|tor| async move {
        // It has the port, so that no other test gets it, and does not listen.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&HERE.into())?;
        let address = socket
            .local_addr()?
            .as_socket()
            .expect("it is of the internet");
        let connected = tor.connect(&address, &Default::default()).await;
        let error = connected.map(drop).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        Ok(())
    });
}

/// A listener gives its peers with their addresses.
#[test]
fn listener_yields_peers_with_addresses() {
    everywhere(|tor| async move {
        let listener = tor.listen(&HERE, &Default::default()).await?;
        let address: SocketAddr = listener.local_addr()?;
        let peers = [(); 3].map(|()| {
            thread::spawn(move || {
                let mut stream = net::TcpStream::connect(address)?;
                stream.write_all(b"hello")?;
                stream.shutdown(Shutdown::Write)?;
                let mut text = String::new();
                stream.read_to_string(&mut text)?;
                assert_eq!(text, stream.local_addr()?.to_string());
                io::Result::Ok(())
            })
        });
        let mut incoming = listener.incoming();
        for _ in &peers {
            let (mut stream, peer) = incoming.next().await.expect("it never ends")?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            assert_eq!(text, "hello");
            stream.write_all(peer.to_string().as_bytes()).await?;
        }
        for peer in peers {
            peer.join().expect("it ends")?;
        }
        Ok(())
    });
}

/// Streams and listeners have the buffers that are asked for.
///
/// The kernel doubles the sizes on Linux, and rounds them elsewhere.
#[test]
fn buffer_sizes_as_requested() {
    everywhere(|tor| async move {
        let mut common = CommonListenOptions::builder();
        common.recv_buffer_size(Some(40_000));
        let mut listening = TcpListenOptions::builder();
        *listening.common() = common;
        let listening = listening.build().expect("the options are complete");
        let mut common = CommonConnectOptions::builder();
        common.send_buffer_size(Some(30_000));
        let mut connecting = TcpConnectOptions::builder();
        *connecting.common() = common;
        let connecting = connecting.build().expect("the options are complete");

        let listener = tor.listen(&HERE, &listening).await?;
        let mut stream = tor.connect(&listener.local_addr()?, &connecting).await?;
        let (mut far, _) = listener.incoming().next().await.expect("it never ends")?;
        // Without such sizes the kernel's buffers take megabytes.
        let mut fits = 0;
        while let Some(count) = polder::future::poll_once(stream.write(&[0; 65_536])).await {
            fits += count?;
            assert!(fits < 1_000_000, "{fits} bytes fit");
        }
        let read = far.read(&mut [0; 1024]).await?;
        assert_ne!(read, 0);
        Ok(())
    });
}

/// arti listens on both, at the same port.
#[test]
fn an_ipv6_listener_leaves_the_port_to_ipv4() {
    if net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("there is no IPv6: not tested");
        return;
    }
    everywhere(|tor| async move {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let listener = tor.listen(&any, &Default::default()).await?;
        let port = NetStreamListener::<SocketAddr>::local_addr(&listener)?.port();
        let at_ipv4 = net::TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        assert!(at_ipv4.is_err(), "it takes IPv4, too");
        let _near = net::TcpStream::connect((Ipv6Addr::LOCALHOST, port))?;
        let (_far, peer) = listener.incoming().next().await.expect("it never ends")?;
        assert_eq!(peer.ip(), Ipv6Addr::LOCALHOST);
        Ok(())
    });
}

/// The limit of unsent bytes is set by a stream and by a handle that outlives it.
#[cfg(any(target_os = "android", target_os = "linux"))]
#[test]
fn unsent_limit_by_stream_and_handle() {
    everywhere(|tor| async move {
        let listener = net::TcpListener::bind(HERE)?;
        let stream = tor
            .connect(&listener.local_addr()?, &Default::default())
            .await?;
        stream.set_tcp_notsent_lowat(1 << 16)?;
        let handle = stream.new_handle();
        drop(stream);
        handle.set_tcp_notsent_lowat(1 << 15)?;
        handle.new_handle().set_tcp_notsent_lowat(1 << 14)
    });
}

#[test]
fn datagrams_reach_a_peer_and_come_back() {
    everywhere(|tor| async move {
        let far = net::UdpSocket::bind(HERE)?;
        far.set_read_timeout(Some(LIMIT))?;
        let near = tor.bind(&HERE).await?;
        let there = far.local_addr()?;
        let peer = thread::spawn(move || {
            let mut bytes = [0; 16];
            let (count, from) = far.recv_from(&mut bytes)?;
            far.send_to(&bytes[..count], from)?;
            io::Result::Ok(from)
        });
        assert_eq!(near.send(b"hello", &there).await?, 5);
        let mut bytes = [0; 16];
        let (count, from) = near.recv(&mut bytes).await?;
        assert_eq!((&bytes[..count], from), (&b"hello"[..], there));
        assert_eq!(peer.join().expect("it ends")?, near.local_addr()?);
        Ok(())
    });
}

#[cfg(unix)]
mod unix_sockets {
    use super::*;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    #[test]
    fn a_unix_stream_carries_bytes_to_a_peer_and_back() {
        everywhere(|tor| async move {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("socket");
            let listener = UnixListener::bind(&path)?;
            let peer = echo(move || Ok(listener.accept()?.0));
            let address = SocketAddr::from_pathname(path)?;
            let stream = tor.connect(&address, &Default::default()).await?;
            assert!(stream.set_tcp_notsent_lowat(1 << 16).is_err());
            send_and_compare(stream).await?;
            assert_eq!(peer.join().expect("it ends")?, 1_000_000);
            Ok(())
        });
    }

    #[test]
    fn a_unix_listener_gives_its_peers() {
        everywhere(|tor| async move {
            let folder = tempfile::tempdir()?;
            let address = SocketAddr::from_pathname(folder.path().join("socket"))?;
            let listener = tor.listen(&address, &Default::default()).await?;
            let bound: SocketAddr = listener.local_addr()?;
            assert_eq!(bound.as_pathname(), address.as_pathname());
            let mut near = UnixStream::connect_addr(&address)?;
            near.write_all(b"hello")?;
            drop(near);
            let (mut far, peer) = listener.incoming().next().await.expect("it never ends")?;
            assert!(peer.is_unnamed());
            let mut text = String::new();
            far.read_to_string(&mut text).await?;
            assert_eq!(text, "hello");
            Ok(())
        });
    }
}

/// Clocks advance with sleep and a timeout ends a wait.
#[test]
fn sleep_advances_clocks_timeout_ends_wait() {
    everywhere(|tor| async move {
        let pause = Duration::from_millis(20);
        let (start, coarse) = (SleepProvider::now(&tor), tor.now_coarse());
        tor.sleep(pause).await;
        assert!(SleepProvider::now(&tor) >= start + pause);
        // A coarse clock ticks every 16 ms or more often.
        assert!(tor.now_coarse() >= coarse + CoarseDuration::from(pause / 10));
        assert!(tor.timeout(pause, pending::<()>()).await.is_err());
        assert_eq!(tor.timeout(LIMIT, async { 5 }).await.ok(), Some(5));
        Ok(())
    });
}

#[test]
fn tasks_run_beside_the_future_that_spawns_them() {
    everywhere(|tor| async move {
        let (sender, receiver) = mpsc::channel();
        for number in 0..100_u64 {
            let (inner, sender) = (tor.clone(), sender.clone());
            let task = async move {
                inner.sleep(Duration::from_micros(number)).await;
                let _ = sender.send(number);
            };
            tor.spawn(task).expect("polder takes every task");
        }
        drop(sender);
        let sum = tor.spawn_blocking(move || receiver.iter().sum::<u64>());
        assert_eq!(sum.await, 4950);
        let task = tor.spawn_with_handle(async { "done" });
        assert_eq!(task.expect("polder takes every task").await, "done");
        Ok(())
    });
}

#[test]
fn a_blocking_call_enters_the_runtime_again() {
    everywhere(|tor| async move {
        let inner = tor.clone();
        let call = tor.spawn_blocking(move || {
            inner.reenter_block_on(async {
                inner.sleep(Duration::from_millis(1)).await;
                let listener = inner.listen(&HERE, &Default::default()).await?;
                let address: SocketAddr = listener.local_addr()?;
                // The task is of the runtime outside, and stays when this future is done.
                let outer = inner.clone();
                let task = inner.spawn_with_handle(async move {
                    outer.sleep(Duration::from_millis(1)).await;
                    outer.connect(&address, &Default::default()).await
                });
                Ok((listener, task.expect("polder takes every task")))
            })
        });
        let result: io::Result<_> = call.await;
        let (listener, task) = result?;
        let mut near = task.await?;
        near.write_all(b"hello").await?;
        near.close().await?;
        let (mut far, _) = listener.incoming().next().await.expect("it never ends")?;
        let mut text = String::new();
        far.read_to_string(&mut text).await?;
        assert_eq!(text, "hello");
        Ok(())
    });
}

#[test]
fn blocking_call_runs_without_waiter() {
    everywhere(|tor| async move {
        let (sender, receiver) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            drop(tor.spawn_blocking(move || sender.send(number)));
        }
        drop(sender);
        let count = tor.spawn_blocking(move || receiver.iter().count()).await;
        assert_eq!(count, 100);
        assert_eq!(tor.blocking_io(|| 5).await, 5);
        Ok(())
    });
}

/// A panic of a blocking call is that of its waiter.
#[test]
fn blocking_panic_reaches_waiter() {
    everywhere(|tor| async move {
        let call = tor.spawn_blocking(|| panic!("on purpose"));
        let call = std::panic::AssertUnwindSafe(call);
        let panic = polder::future::FutureExt::catch_unwind(call).await;
        let panic = panic.expect_err("it panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        Ok(())
    });
}

/// A plain thread blocks on futures one after the other.
///
/// On a plain thread the tasks are the background runtime's, and outlive a `block_on`.
#[test]
fn plain_thread_blocks_on_futures_in_turn() {
    within("here".to_owned(), || {
        let tor = tor();
        let inner = tor.clone();
        let task = tor.block_on(async {
            tor.spawn_with_handle(async move { inner.sleep(Duration::from_millis(1)).await })
        });
        tor.block_on(task.expect("polder takes every task"));
        let not_send = std::rc::Rc::new(5);
        assert_eq!(tor.block_on(pin!(async { *not_send })), 5);
    });
}

/// TLS carries bytes to a server of rustls and knows its certificate.
#[test]
fn tls_to_rustls_knows_certificate() {
    everywhere(|tor| async move {
        let names = ["relay.example".to_owned()];
        let own = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
        let certificate = own.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into());
        let config = Arc::new(config.map_err(io::Error::other)?);
        let listener = net::TcpListener::bind(HERE)?;
        let address = listener.local_addr()?;
        let peer = thread::spawn(move || {
            let (mut tcp, _) = listener.accept()?;
            let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
            let mut tls = Stream::new(&mut session, &mut tcp);
            let mut bytes = [0; 5];
            tls.read_exact(&mut bytes)?;
            let key = tls
                .conn
                .export_keying_material([0; 32], b"label", Some(b"context"));
            let mut stream = Stream::new(&mut session, &mut tcp);
            stream.write_all(&bytes)?;
            key.map_err(io::Error::other)
        });

        let stream = tor.connect(&address, &Default::default()).await?;
        // The name is not checked: a relay's is made up.
        let connector = tor.tls_connector();
        let mut tls = connector
            .negotiate_unvalidated(stream, "other.example")
            .await?;
        assert_eq!(
            tls.peer_certificate()?.as_deref(),
            Some(certificate.as_ref())
        );
        #[cfg(target_os = "linux")]
        tls.set_tcp_notsent_lowat(1 << 16)?;
        tls.write_all(b"hello").await?;
        tls.flush().await?;
        let mut bytes = [0; 5];
        tls.read_exact(&mut bytes).await?;
        assert_eq!(&bytes, b"hello");
        let key = tls.export_keying_material(32, b"label", Some(b"context"))?;
        assert_eq!(key, peer.join().expect("it ends")?);
        Ok(())
    });
}

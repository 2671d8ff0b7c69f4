//! `net::serve`: the accept loop.

use std::future::IntoFuture;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polder::TaskSet;
use polder::event::Latch;
use polder::future::{or, yield_now, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt, copy};
use polder::net::{Listener, TcpListener, TcpStream, serve};
use polder::time::sleep;

use crate::peer::{TcpPeer, beside};
use crate::probe::listen;
use crate::streams::listening;
use crate::support::{
    LIMIT, a_turn, in_every_kernel_runtime, in_every_runtime, is_in_world, on_every_backend,
    runtime_of, sized, until,
};

pub async fn echo(mut stream: TcpStream) {
    let (reader, writer) = stream.split();
    let _ = copy(reader, writer).await; // A client may go as it likes.
}

/// A client that sends a word, receives it back, and closes.
async fn client(address: SocketAddr, word: &str) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(word.as_bytes()).await.expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    let mut back = String::new();
    let read = stream.read_to_string(&mut back).await;
    read.expect("it is served");
    assert_eq!(back, word);
}

/// Returns a client that has sent a byte and received it back.
pub async fn served_client(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(b"x").await.expect("it reads");
    stream.read_exact(&mut [0]).await.expect("it is served");
    stream
}

/// Waits until a connection is refused: a child of another test also holds the listener, between
/// its `fork` and its `exec`.
pub async fn nobody_listens(address: SocketAddr) {
    while let Ok(stream) = TcpStream::connect(address).await {
        drop(stream);
        sleep(Duration::from_millis(1)).await;
    }
}

/// Returns clients that have sent a byte each, and wait in the queues of these listeners.
pub async fn clients_in_queues(listeners: &[TcpListener], count: usize) -> Vec<TcpStream> {
    let address = listeners[0].local_addr().expect("it has one");
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"x").await.expect("there is room");
        clients.push(stream);
    }
    a_turn().await;
    until("all are in the queues", || queued(listeners, count)).await;
    clients
}

/// Waits until each client has its byte back.
pub async fn all_are_served(clients: Vec<TcpStream>) {
    for mut client in clients {
        let back = client.read_exact(&mut [0]).await;
        back.expect("it was connected, and is served");
    }
}

/// Whether at least `count` connections wait in the queues of these listeners. A client may be
/// connected earlier. (True where the system cannot tell.)
pub fn queued(listeners: &[TcpListener], count: usize) -> bool {
    if is_in_world() {
        return true; // The caller has let everything arrive.
    }
    #[cfg(target_os = "linux")]
    return listeners.iter().map(queue).sum::<usize>() >= count;
    #[cfg(not(target_os = "linux"))]
    return {
        let _ = (listeners, count);
        true
    };
}

/// Returns the length of a listener's queue: `tcpi_unacked`, by tcp_get_info() of Linux'
/// net/ipv4/tcp.c.
#[cfg(target_os = "linux")]
fn queue(listener: &TcpListener) -> usize {
    use std::os::fd::AsRawFd;

    // SAFETY: all zero is a valid `tcp_info`.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and any are a valid `tcp_info`.
    let result = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    info.tcpi_unacked as usize
}

/// Clients are served until it is told to stop and counted.
#[test]
fn clients_served_until_stop_and_counted() {
    in_every_runtime(|backend| async move {
        let clients = sized(backend, 1_000);
        let (listener, address) = listen().await;
        let all = async {
            for round in 0..10 {
                let mut set = TaskSet::new();
                for n in 0..clients / 10 {
                    set.spawn(async move { client(address, &format!("{round} {n}")).await });
                }
                while set.join_next().await.is_some() {}
            }
        };
        let server = serve(listener, |stream, _| echo(stream)).until(all);
        let summary = server.await.expect("it was told to stop");
        assert_eq!(summary.accepted, clients as u64 / 10 * 10);
        assert_eq!(summary.finished + summary.cancelled, summary.accepted);
        // Not the size of a round: a client may finish before its task at the server has ended.
        assert!((1..=clients).contains(&summary.most_at_once));
        assert_eq!((summary.panicked, summary.errors), (0, 0));
        nobody_listens(address).await;
    });
}

#[test]
fn a_limit_stops_accepting_and_loses_nobody() {
    in_every_runtime(|_| async {
        const CLIENTS: usize = 40;
        const LIMIT: usize = 3;
        let (listener, address) = listen().await;
        let now_and_most = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        // The first connections stay until the limit is reached: otherwise each might finish before
        // the next is accepted.
        let full = Arc::new(Latch::new());
        let handler = {
            let (counts, full) = (now_and_most.clone(), full.clone());
            move |stream, _| {
                let (counts, full) = (counts.clone(), full.clone());
                async move {
                    let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                    counts.1.fetch_max(now, Ordering::SeqCst);
                    if now == LIMIT {
                        full.set();
                    }
                    full.wait().await;
                    echo(stream).await;
                    counts.0.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        let all = async {
            let mut set = TaskSet::new();
            for n in 0..CLIENTS {
                set.spawn(async move { client(address, &n.to_string()).await });
            }
            while set.join_next().await.is_some() {}
        };
        let server = serve(listener, handler).limit(LIMIT).until(all);
        let summary = server.await.expect("it was told to stop");
        assert_eq!(summary.accepted, CLIENTS as u64);
        assert_eq!(summary.most_at_once, LIMIT);
        assert_eq!(now_and_most.1.load(Ordering::SeqCst), LIMIT);

        let (listener, _) = listen().await;
        let error = serve(listener, |stream, _| echo(stream)).limit(0).await;
        let error = error.expect_err("nobody would ever be served");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

/// In the grace period connections finish and the rest is cancelled after it.
#[test]
fn grace_period_then_cancelled() {
    in_every_runtime(|_| async {
        let mut grace = Duration::from_millis(300);
        loop {
            let (listener, address) = listen().await;
            let stop = Latch::new();
            let server = serve(listener, |stream, _| echo(stream))
                .until(stop.wait())
                .grace(grace);
            let all = async {
                let mut quick = served_client(address).await;
                let mut slow = served_client(address).await;
                let start = polder::time::now();
                stop.set();
                let is_served =
                    quick.write_all(b"y").await.is_ok() && quick.read_exact(&mut [0]).await.is_ok();
                drop(quick);
                assert!(matches!(slow.read(&mut [0]).await, Ok(0) | Err(_)));
                (is_served, polder::time::now() - start)
            };
            let (summary, (is_served, took)) = zip(server.into_future(), all).await;
            let summary = summary.expect("it was told to stop");
            assert!(took >= grace, "cancelled after {took:?}");
            // On a loaded machine the period may be over before the quick one has its turn.
            if summary.cancelled == 2 && grace < LIMIT / 4 {
                grace *= 2;
                continue;
            }
            assert!(is_served, "it is served still");
            assert_eq!((summary.finished, summary.cancelled), (1, 1));
            break;
        }
    });
}

#[test]
fn ends_when_last_connection_ends() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let stop = Latch::new();
        let server = serve(listener, |stream, _| echo(stream))
            .until(stop.wait())
            .grace(Duration::MAX);
        let all = async {
            let _stream = served_client(address).await;
            stop.set();
            for _ in 0..3 {
                yield_now().await;
            }
        };
        let (summary, ()) = zip(server.into_future(), all).await;
        assert_eq!(summary.expect("it was told to stop").finished, 1);
    });
}

#[test]
fn without_grace_cancelled_at_once() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let stop = Latch::new();
        let server = serve(listener, |stream, _| echo(stream)).until(stop.wait());
        let all = async {
            let mut stream = served_client(address).await;
            stop.set();
            assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
        };
        let (summary, ()) = zip(server.into_future(), all).await;
        assert_eq!(summary.expect("it was told to stop").cancelled, 1);
    });
}

#[test]
fn a_panicking_handler_costs_only_its_connection() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let mut count = 0;
        let handler = move |mut stream: TcpStream, _| {
            count += 1;
            if count == 1 {
                std::panic::resume_unwind(Box::new("before there is a future"));
            }
            async move {
                let mut byte = [0];
                let _ = stream.read(&mut byte).await;
                if byte == *b"!" {
                    std::panic::resume_unwind(Box::new("in the future"));
                }
                stream.write_all(&byte).await.expect("the client is there");
            }
        };
        let all = async {
            for word in [b".", b"!"] {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                let _ = stream.write_all(word).await;
                assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
            }
            drop(served_client(address).await);
        };
        let server = serve(listener, handler).until(all).grace(Duration::MAX);
        let summary = server.await.expect("it was told to stop");
        assert_eq!((summary.accepted, summary.panicked), (3, 2));
        assert_eq!(summary.finished, 1);
    });
}

/// Dropping it cancels its connections and closes the listener.
#[test]
fn drop_cancels_connections_closes_listener() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let server = serve(listener, |stream, _| echo(stream)).into_future();
        let all = async { Ok(served_client(address).await) };
        let server = async { Err(server.await) };
        let mut stream = or(all, server).await.expect("it serves for ever");
        assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
        nobody_listens(address).await;
    });
}

/// Every accepted connection is served, whenever the server stops.
#[test]
fn accepted_are_served_while_stopping() {
    in_every_runtime(|backend| async move {
        for round in 0..sized(backend, 50) {
            // Clients connect after the server has stopped, too: none may reach another test's
            // listener at this port.
            let (listener, address, _holder) = listening(1_024).await;
            let (stop, begun) = (Latch::new(), Arc::new(AtomicUsize::new(0)));
            let handler = {
                let begun = begun.clone();
                move |stream: TcpStream, _| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    echo(stream)
                }
            };
            let server = serve(listener, handler)
                .until(stop.wait())
                .grace(Duration::MAX);
            let all = async {
                let mut set = TaskSet::new();
                for _ in 0..20 {
                    set.spawn(async move {
                        let mut stream = TcpStream::connect(address).await.ok()?;
                        stream.write_all(b"hello").await.ok()?;
                        stream.read_exact(&mut [0; 5]).await.ok()
                    });
                }
                for _ in 0..round % 7 {
                    yield_now().await;
                }
                stop.set();
                let mut served = 0;
                while let Some(result) = set.join_next().await {
                    served += u64::from(result.is_some());
                }
                served
            };
            let (summary, served) = zip(server.into_future(), all).await;
            let summary = summary.expect("it was told to stop");
            assert_eq!(summary.accepted, begun.load(Ordering::SeqCst) as u64);
            assert_eq!(summary.finished, summary.accepted, "{summary:?}");
            assert_eq!(served, summary.accepted, "{summary:?}");
        }
    });
}

/// Connections in the queue when the server stops are served within the grace period.
///
/// More clients than a task may accept in one poll.
#[test]
fn queued_on_stop_served_within_grace() {
    in_every_runtime(|_| async {
        const CLIENTS: usize = 150;
        let (listener, address) = listen().await;
        let clients = clients_in_queues(std::slice::from_ref(&listener), CLIENTS).await;
        let server = serve(listener, |stream, _| echo(stream))
            .until(async {})
            .grace(Duration::MAX);
        let (summary, ()) = zip(server.into_future(), all_are_served(clients)).await;
        let summary = summary.expect("it was told to stop");
        assert_eq!((summary.finished, summary.errors), (CLIENTS as u64, 0));
        nobody_listens(address).await;
    });
}

/// With drain switched off who waits is left to those that share the listener.
#[test]
fn without_drain_queue_left_to_sharers() {
    in_every_runtime(|_| async {
        const CLIENTS: usize = 10;
        let (listener, _) = listen().await;
        let heir = [listener.clone()];
        let clients = clients_in_queues(&heir, CLIENTS).await;
        let server = serve(listener, |stream, _| echo(stream))
            .until(async {})
            .grace(Duration::MAX)
            .drain(false);
        let summary = server.await.expect("it was told to stop");
        assert_eq!(summary.accepted, 0);
        let [heir] = heir;
        let server = serve(heir, |stream, _| echo(stream)).until(all_are_served(clients));
        let summary = server.await;
        assert_eq!(summary.expect("it was told").accepted, CLIENTS as u64);
    });
}

/// Of the queued connections on stop, no more are accepted than the limit allows.
#[test]
fn limit_holds_for_queue_on_stop() {
    in_every_runtime(|_| async {
        const CLIENTS: usize = 30;
        const LIMIT: usize = 10;
        for grace in [Duration::MAX, Duration::ZERO] {
            let served = if grace.is_zero() { 0 } else { LIMIT };
            let (listener, address) = listen().await;
            let watched = [listener.clone()];
            let mut clients = TaskSet::new();
            let turned_away = Arc::new(AtomicUsize::new(0));
            for _ in 0..CLIENTS {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                let turned_away = turned_away.clone();
                clients.spawn(async move {
                    if stream.read_exact(&mut [0]).await.is_err() {
                        turned_away.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            a_turn().await;
            until("all are in the queue", || queued(&watched, CLIENTS)).await;
            drop(watched);
            let go_on = Arc::new(Latch::new());
            let handler = {
                let go_on = go_on.clone();
                move |mut stream: TcpStream, _| {
                    let go_on = go_on.clone();
                    async move {
                        go_on.wait().await;
                        let _ = stream.write_all(b"x").await;
                    }
                }
            };
            let server = serve(listener, handler)
                .limit(LIMIT)
                .until(async {})
                .grace(grace);
            let all = async {
                until("the others are turned away", || {
                    turned_away.load(Ordering::SeqCst) == CLIENTS - served
                })
                .await;
                go_on.set();
                while clients.join_next().await.is_some() {}
            };
            let (summary, ()) = zip(server.into_future(), all).await;
            let summary = summary.expect("it was told to stop");
            assert_eq!(summary.finished, served as u64, "{summary:?}");
            assert_eq!(turned_away.load(Ordering::SeqCst), CLIENTS - served);
        }
    });
}

/// A listener that accepts in several steps, as for a handshake: it passes a connection to `serve`
/// after reading its first byte.
struct Greeted {
    listener: TcpListener,
    /// The number of connections that have reached the first step.
    begun: Arc<AtomicUsize>,
}

impl Greeted {
    fn new(listener: TcpListener) -> Greeted {
        Greeted {
            listener,
            begun: Arc::default(),
        }
    }
}

impl Listener for Greeted {
    type Stream = TcpStream;
    type Address = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (mut stream, peer) = self.listener.accept().await?;
        self.begun.fetch_add(1, Ordering::SeqCst);
        stream.read_exact(&mut [0]).await?;
        Ok((stream, peer))
    }
}

/// Connects a client to such a listener, and waits until it is served.
async fn greet(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let served = async {
        stream.write_all(b"!x").await?;
        stream.read_exact(&mut [0]).await
    };
    served.await.expect("it is served");
    stream
}

/// An accept that takes several steps loses no connection while others end.
#[test]
fn accept_in_steps_loses_nobody() {
    in_every_runtime(|_| async {
        const ROUNDS: usize = 5;
        const ENDS: usize = 5;
        let (listener, address) = listen().await;
        let listener = Greeted::new(listener);
        let begun = listener.begun.clone();
        let ended = Arc::new(AtomicUsize::new(0));
        let handler = {
            let ended = ended.clone();
            move |stream, _| {
                let ended = ended.clone();
                async move {
                    echo(stream).await;
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        let all = async {
            for round in 1..=ROUNDS {
                let mut others = Vec::new();
                for _ in 0..ENDS {
                    others.push(greet(address).await);
                }
                let mut slow = TcpStream::connect(address).await.expect("it listens");
                let all = round * (ENDS + 1);
                until("it is half accepted", || {
                    begun.load(Ordering::SeqCst) == all
                })
                .await;
                while let Some(other) = others.pop() {
                    drop(other);
                    let gone = all - 1 - others.len();
                    until("a connection ends", || ended.load(Ordering::SeqCst) == gone).await;
                }
                let served = async {
                    slow.write_all(b"!x").await?;
                    slow.read_exact(&mut [0]).await
                };
                served.await.expect("it was not lost");
                drop(slow);
                until("it ends", || ended.load(Ordering::SeqCst) == all).await;
            }
        };
        let server = serve(listener, handler)
            .limit(ENDS + 1)
            .until(all)
            .grace(Duration::MAX);
        let summary = server.await.expect("it was told to stop");
        assert_eq!(summary.finished, (ROUNDS * (ENDS + 1)) as u64);
        assert_eq!(summary.errors, 0);
    });
}

/// An accept that is not done is dropped when it stops.
#[test]
fn accept_pending_dropped_on_stop() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let listener = Greeted::new(listener);
        let (stop, begun) = (Latch::new(), listener.begun.clone());
        let server = serve(listener, |stream, _| echo(stream))
            .until(stop.wait())
            .grace(Duration::MAX);
        let all = async {
            let mut other = greet(address).await;
            let mut slow = TcpStream::connect(address).await.expect("it listens");
            until("it is half accepted", || begun.load(Ordering::SeqCst) == 2).await;
            stop.set();
            assert!(matches!(slow.read(&mut [0]).await, Ok(0) | Err(_)));
            nobody_listens(address).await;
            // The grace period still runs.
            other.write_all(b"y").await.expect("it is served still");
            let read = other.read_exact(&mut [0]).await;
            read.expect("it is served still");
        };
        let (summary, ()) = zip(server.into_future(), all).await;
        let summary = summary.expect("it was told to stop");
        assert_eq!((summary.accepted, summary.finished), (1, 1));
    });
}

#[test]
#[cfg(unix)]
fn unix_sockets_are_served_too() {
    use polder::net::unix::{UnixListener, UnixStream};

    in_every_runtime(|_| async {
        let directory = tempfile::tempdir().expect("a directory of our own");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a path of our own");
        let all = async {
            for byte in 0..20 {
                let mut stream = UnixStream::connect(&path).await.expect("it listens");
                stream.write_all(&[byte]).await.expect("it is served");
                let mut back = [0];
                stream.read_exact(&mut back).await.expect("it is served");
                assert_eq!(back, [byte]);
            }
        };
        let server = serve(listener, |mut stream: UnixStream, _| async move {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.expect("it is sent");
            stream.write_all(&byte).await.expect("it is read");
        })
        .until(all)
        .grace(Duration::MAX);
        let summary = server.await;
        assert_eq!(summary.expect("it was told to stop").finished, 20);
    });
}

/// The handler of the first connection blocks its worker until another connection has been served,
/// which can only be on the other worker.
#[test]
fn connections_are_served_by_several_workers() {
    on_every_backend(|backend| {
        runtime_of(backend, 2).block_on(async {
            let (listener, address) = listen().await;
            let begun = Arc::new(AtomicUsize::new(0));
            let threads = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
            let handler = {
                let (begun, threads) = (begun.clone(), threads.clone());
                move |stream: TcpStream, _| {
                    let (begun, threads) = (begun.clone(), threads.clone());
                    async move {
                        let is_first = begun.fetch_add(1, Ordering::SeqCst) == 0;
                        let count = || {
                            let mut threads = threads.lock().expect("no panic");
                            threads.insert(std::thread::current().id());
                            threads.len()
                        };
                        let start = Instant::now();
                        while count() < 2 && is_first {
                            assert!(
                                start.elapsed() < crate::support::LIMIT / 2,
                                "one worker serves all"
                            );
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        echo(stream).await;
                    }
                }
            };
            let all = async {
                let mut streams = Vec::new();
                for _ in 0..50 {
                    let mut stream = TcpStream::connect(address).await.expect("it listens");
                    stream.write_all(b"x").await.expect("it is served");
                    streams.push(stream);
                }
                for stream in &mut streams {
                    stream.read_exact(&mut [0]).await.expect("it is served");
                }
            };
            let server = serve(listener, handler).until(all).grace(Duration::MAX);
            let summary = server.await.expect("it was told to stop");
            assert_eq!((summary.accepted, summary.finished), (50, 50));
            assert_eq!(begun.load(Ordering::SeqCst), 50);
            assert_eq!(threads.lock().expect("no panic").len(), 2);
        });
    });
}

/// Clients with sockets of the standard library, on a thread.
#[test]
fn clients_that_vanish_harm_nobody() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let all = async {
            let clients = beside(async move {
                for n in 0..50 {
                    let client = TcpPeer::connect(address).await;
                    match n % 2 {
                        0 => client.reset().await,
                        _ => client.end().await,
                    }
                }
                let mut client = TcpPeer::connect(address).await;
                client.send(b"x").await;
                client.receive(&mut [0]).await;
            });
            clients.join().await;
        };
        let server = serve(listener, |stream, _| echo(stream))
            .until(all)
            .grace(Duration::MAX);
        let summary = server.await.expect("it was told to stop");
        assert_eq!(summary.finished, summary.accepted, "{summary:?}");
    });
}

/// Tests with the error numbers of Unix.
#[cfg(unix)]
mod errors {
    use super::*;
    use std::collections::VecDeque;
    use std::future::{pending, poll_fn};
    use std::sync::Mutex;
    use std::task::Poll;

    use polder::Timer;
    use polder::event::Event;
    use polder::time::sleep;

    use crate::support::{in_every_runtime_alone, in_every_runtime_in_parallel};

    /// A listener that follows a script.
    #[derive(Default)]
    struct Script {
        /// The results to return; once it is empty, accepting is pending.
        turns: Mutex<VecDeque<io::Result<u32>>>,
        attempts: Arc<AtomicUsize>,
    }

    impl Script {
        fn new(turns: impl IntoIterator<Item = io::Result<u32>>) -> Script {
            Script {
                turns: Mutex::new(turns.into_iter().collect()),
                attempts: Arc::default(),
            }
        }
    }

    impl Listener for Script {
        type Stream = u32;
        type Address = ();

        async fn accept(&self) -> io::Result<(u32, ())> {
            self.attempts.fetch_add(1, Ordering::SeqCst);
            let turn = self.turns.lock().expect("nobody panics").pop_front();
            match turn {
                Some(result) => result.map(|stream| (stream, ())),
                None => pending().await,
            }
        }
    }

    fn system(code: i32) -> io::Result<u32> {
        Err(io::Error::from_raw_os_error(code))
    }

    /// accept(2) of Linux, "Error handling", and the error of a firewall.
    #[test]
    fn connection_errors_skipped_at_once() {
        in_every_runtime(|_| async {
            let errors = [
                libc::ECONNABORTED,
                libc::EPROTO,
                libc::EPERM,
                libc::ENETDOWN,
                libc::ENOPROTOOPT,
                libc::EHOSTDOWN,
                libc::EHOSTUNREACH,
                libc::EOPNOTSUPP,
                libc::ENETUNREACH,
                libc::ETIMEDOUT,
                libc::EINTR,
            ];
            let mut turns = Vec::new();
            for error in errors {
                turns.extend([system(error), system(error), Ok(1)]);
            }
            let (done, told) = (Arc::new(Event::new()), Mutex::new(Vec::new()));
            let handled = Arc::new(AtomicUsize::new(0));
            let handler = {
                let (done, handled) = (done.clone(), handled.clone());
                move |_, ()| {
                    if handled.fetch_add(1, Ordering::SeqCst) + 1 == errors.len() {
                        done.set();
                    }
                    async {}
                }
            };
            let start = polder::time::now();
            let summary = serve(Script::new(turns), handler)
                .until(done.wait())
                .grace(Duration::MAX)
                .on_error(|error| {
                    told.lock()
                        .expect("nobody panics")
                        .extend(error.raw_os_error())
                })
                .await
                .expect("it was told to stop");
            let took = polder::time::now() - start;
            assert_eq!(summary.finished, errors.len() as u64);
            assert_eq!(summary.errors, 2 * errors.len() as u64);
            // Reported once for two in a row.
            assert_eq!(*told.lock().expect("nobody panics"), errors);
            assert!(took < Duration::from_secs(10), "it took {took:?}");
        });
    }

    /// When something has run out it rests and goes on by itself.
    #[test]
    fn exhaustion_pauses_and_resumes() {
        in_every_runtime_in_parallel(|_| async {
            for code in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
                let turns = (0..12).map(|_| system(code)).chain([Ok(1)]);
                let (done, mut told) = (Arc::new(Event::new()), 0);
                let handler = {
                    let done = done.clone();
                    move |_, ()| {
                        done.set();
                        async {}
                    }
                };
                let start = polder::time::now();
                let summary = serve(Script::new(turns), handler)
                    .until(done.wait())
                    .grace(Duration::MAX)
                    .on_error(|_| told += 1)
                    .await
                    .expect("it was told to stop");
                let took = polder::time::now() - start;
                assert_eq!((summary.errors, summary.finished), (12, 1));
                assert_eq!(told, 1, "the same error is told once");
                // 1 + 2 + 4 + … + 32 + 6 × 50 ms.
                assert!(took >= Duration::from_millis(363), "no rest: {took:?}");
            }
        });
    }

    /// Errors that it meets once it was told to stop are told like those before.
    #[test]
    fn errors_after_stop_reported_as_before() {
        in_every_runtime(|_| async {
            let run = async |script: Script, stops_after: usize| {
                let (attempts, mut told) = (script.attempts.clone(), Vec::new());
                // The loop polls this future before each attempt.
                let end = poll_fn(|_| {
                    if attempts.load(Ordering::SeqCst) < stops_after {
                        Poll::Pending
                    } else {
                        Poll::Ready(())
                    }
                });
                let summary = serve(script, |_, ()| async {})
                    .until(end)
                    .grace(Duration::MAX)
                    .on_error(|error| told.extend(error.raw_os_error()))
                    .await
                    .expect("it was told to stop");
                (summary.errors, summary.finished, told)
            };
            let script = Script::new([system(libc::EMFILE), system(libc::EMFILE)]);
            let once = vec![libc::EMFILE];
            assert_eq!(run(script, 1).await, (2, 0, once));

            let (aborted, other) = (libc::ECONNABORTED, libc::EPROTO);
            let errors = [system(aborted), system(aborted), Ok(1), system(aborted)];
            let script = Script::new(errors.into_iter().chain([system(other), Ok(2)]));
            let all = vec![aborted, aborted, other];
            assert_eq!(run(script, 0).await, (4, 2, all));
        });
    }

    /// No event reports that descriptors are available again, but the end of one of the server's
    /// connections does.
    #[test]
    fn a_connection_that_ends_ends_the_rest() {
        in_every_runtime_alone(|_| async {
            let many = (0..10).map(|_| system(libc::EMFILE));
            let script = Script::new([Ok(1)].into_iter().chain(many).chain((100..120).map(Ok)));
            let attempts = script.attempts.clone();
            let (end, last) = (Arc::new(Event::new()), Arc::new(Event::new()));
            let handler = {
                let (end, last) = (end.clone(), last.clone());
                move |number, ()| {
                    let (end, last) = (end.clone(), last.clone());
                    async move {
                        match number {
                            1 => end.wait().await,
                            119 => last.set(),
                            _ => {}
                        }
                    }
                }
            };
            let server = serve(script, handler)
                .until(last.wait())
                .grace(Duration::MAX);
            let all = async {
                while attempts.load(Ordering::SeqCst) < 3 {
                    Timer::after(Duration::from_millis(1)).await;
                }
                let before = attempts.load(Ordering::SeqCst);
                end.set();
                // Waits without the clock.
                for _ in 0..100 {
                    if attempts.load(Ordering::SeqCst) > before {
                        return;
                    }
                    yield_now().await;
                }
                panic!("it still rests");
            };
            let (summary, ()) = zip(server.into_future(), all).await;
            let summary = summary.expect("it was told to stop");
            assert_eq!((summary.accepted, summary.errors), (21, 10));
        });
    }

    /// Errors about single connections may have a lasting cause too.
    #[test]
    fn errors_without_end_do_not_make_the_loop_spin() {
        in_every_runtime_in_parallel(|_| async {
            for code in [libc::EPERM, libc::ENETDOWN, libc::EMFILE] {
                let script = Script::new((0..1_000_000).map(|_| system(code)));
                let attempts = script.attempts.clone();
                let start = polder::time::now();
                let begun = attempts.clone();
                let end = async move {
                    sleep(Duration::from_millis(200)).await;
                    // It may have had no processor so far.
                    while begun.load(Ordering::SeqCst) < 3 {
                        sleep(Duration::from_millis(10)).await;
                    }
                };
                let server = serve(script, |_, ()| async {}).until(end);
                let summary = server.await.expect("it was told to stop");
                let took = polder::time::now() - start;
                let attempts = attempts.load(Ordering::SeqCst);
                assert_eq!(summary.errors, attempts as u64);
                // 16 immediately, 6 in the first 63 ms, then one every 50 ms.
                let most = 16 + 7 + took.as_millis() as usize / 50;
                assert!(attempts <= most, "{attempts} attempts in {took:?}");
            }
        });
    }

    /// Without a reactor nothing ends a pause: the server ends with the error.
    ///
    /// In an executor that is not polder's, while there is no descriptor for a background runtime.
    #[test]
    #[cfg(target_os = "linux")]
    fn exhaustion_without_a_reactor_ends_with_the_error() {
        crate::child::in_children(|_| {
            let held = crate::child::all_descriptors();
            let script = Script::new([system(libc::EMFILE)]);
            let server = serve(script, |_, ()| async {}).grace(LIMIT);
            let ended = futures_lite::future::block_on(server.into_future());
            drop(held);
            let error = ended.expect_err("nothing can be waited for");
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        });
    }

    /// A listener that is broken ends the server after the grace period.
    #[test]
    fn broken_listener_ends_after_grace() {
        in_every_runtime(|_| async {
            for code in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK] {
                let finished = Arc::new(AtomicUsize::new(0));
                let handler = {
                    let finished = finished.clone();
                    move |_, ()| {
                        let finished = finished.clone();
                        async move {
                            Timer::after(Duration::from_millis(5)).await;
                            finished.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                };
                let script = Script::new([Ok(1), Ok(2), system(code)]);
                let error = serve(script, handler).grace(Duration::MAX).await;
                let error = error.expect_err("it cannot go on");
                assert_eq!(error.raw_os_error(), Some(code));
                assert_eq!(finished.load(Ordering::SeqCst), 2);
            }
            // A real listener that is shut down: Linux returns EINVAL from then on.
            #[cfg(target_os = "linux")]
            if !is_in_world() {
                let (listener, _) = listen().await;
                let end = socket2::SockRef::from(&listener).shutdown(Shutdown::Both);
                end.expect("a listener can be shut down");
                let error = serve(listener, |stream, _| echo(stream)).await;
                let error = error.expect_err("it does not listen");
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
            }
        });
    }
}

#[test]
fn it_can_be_given_a_time_limit() {
    in_every_runtime(|_| async {
        let (listener, _) = listen().await;
        let served = serve(listener, |stream, _| echo(stream));
        let result = polder::time::timeout(Duration::from_millis(5), served).await;
        assert!(result.is_err());
    });
}

/// Dumps tell connections by the place of the call of serve.
///
/// A dump can name a connection only by the place where its server was made.
#[test]
fn dumps_name_connections_by_serve_call() {
    in_every_kernel_runtime(|_| async {
        let (listener, address) = listen().await;
        let stop = Latch::new();
        let begun = AtomicUsize::new(0);
        let begun = Arc::new(begun);
        let handler = {
            let begun = begun.clone();
            move |_stream, _peer| {
                let begun = begun.clone();
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
            }
        };
        let (server, line) = (serve(listener, handler), line!());
        let client = async {
            let _stream = TcpStream::connect(address).await.unwrap();
            until("it is served", || begun.load(Ordering::SeqCst) == 1).await;
            until("the dump has the connection", || {
                let dump = polder::Handle::current().dump();
                let is_here = |site: &std::panic::Location<'_>| {
                    site.file().ends_with("tests/conformance/serve.rs") && site.line() == line
                };
                dump.tasks.iter().any(|task| is_here(task.spawned_at))
            })
            .await;
            stop.set();
        };
        zip(server.until(stop.wait()).into_future(), client)
            .await
            .0
            .unwrap();
    });
}

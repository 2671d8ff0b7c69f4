//! `net::serve_on_workers`: a listener for each worker.

use std::cell::Cell;
use std::collections::HashSet;
use std::future::{Future, IntoFuture, pending};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use polder::TaskSet;
use polder::event::Latch;
use polder::future::{FutureExt, or, poll_once, yield_now, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{Listener, TcpListener, TcpStream, serve_on_workers};

use crate::serve::{
    all_are_served, clients_in_queues, echo, nobody_listens, queued, served_client,
};
use crate::support::{on_every_backend_alone, runtime_of, until};

/// Whether the kernel distributes connections among the listeners of one address.
const BALANCES: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_os = "dragonfly"
));

/// Runs `rule` on every backend, in a runtime of 1, of 2, and of 4 workers; passes it the number of
/// workers.
fn with_1_2_and_4_workers<F: Future<Output = ()>>(
    rule: impl Fn(usize) -> F + Clone + Send + 'static,
) {
    on_every_backend_alone(move |backend| {
        for workers in [1, 2, 4] {
            runtime_of(backend, workers).block_on(rule(workers));
        }
    });
}

async fn listen(count: usize) -> (Vec<TcpListener>, SocketAddr) {
    let listeners = TcpListener::bind_balanced("127.0.0.1:0", count).await;
    let listeners = listeners.expect("a port");
    let address = listeners[0].local_addr().expect("it has one");
    for listener in &listeners {
        assert_eq!(listener.local_addr().expect("it has one"), address);
    }
    (listeners, address)
}

/// Connections reach all workers and each stays where it was accepted.
#[test]
fn connections_reach_all_workers_and_stay() {
    with_1_2_and_4_workers(|workers| async move {
        let (listeners, address) = listen(workers).await;
        let stop = Latch::new();
        let server = serve_on_workers(listeners, |worker| {
            let connections = Rc::new(Cell::new(0_u32)); // It is not `Send`, nor are the futures.
            let thread: ThreadId = thread::current().id();
            move |mut stream: TcpStream, _| {
                let connections = connections.clone();
                async move {
                    connections.set(connections.get() + 1);
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        assert_eq!(thread::current().id(), thread, "it has moved");
                        let worker = u8::try_from(worker).expect("there are few");
                        let _ = stream.write_all(&[worker]).await;
                    }
                    assert!(connections.get() > 0);
                }
            }
        })
        .until(stop.wait())
        .grace(Duration::MAX);
        let all = async {
            let (mut reached, mut streams) = (HashSet::new(), Vec::new());
            // The kernel chooses by a hash: with four workers, the probability that 300 clients all
            // miss the last worker is 10⁻³⁷.
            while streams.len() < 20 || BALANCES && reached.len() < workers {
                assert!(streams.len() < 300, "only {reached:?} were reached");
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                let mut worker = [0];
                for _ in 0..2 {
                    stream.write_all(b"?").await.expect("it is served");
                    stream.read_exact(&mut worker).await.expect("it is served");
                }
                reached.insert(worker);
                streams.push(stream);
            }
            assert!(
                reached
                    .iter()
                    .all(|[worker]| usize::from(*worker) < workers)
            );
            stop.set();
            streams.len()
        };
        let (summaries, clients) = zip(server.into_future(), all).await;
        let summaries = summaries.expect("it was told to stop");
        assert_eq!(summaries.len(), workers);
        let sum =
            |count: fn(&polder::net::Summary) -> u64| summaries.iter().map(count).sum::<u64>();
        assert_eq!(sum(|it| it.accepted), clients as u64);
        assert_eq!(sum(|it| it.finished), clients as u64, "{summaries:?}");
        nobody_listens(address).await;
    });
}

/// Connections in any queue when the server stops are served within the grace period.
#[test]
fn queued_anywhere_on_stop_served_within_grace() {
    with_1_2_and_4_workers(|workers| async move {
        const CLIENTS: usize = 60;
        let (listeners, address) = listen(workers).await;
        let clients = clients_in_queues(&listeners.clone(), CLIENTS).await;
        let server = serve_on_workers(listeners, |_| |stream, _| echo(stream))
            .until(async {})
            .grace(Duration::MAX);
        let (summaries, ()) = zip(server.into_future(), all_are_served(clients)).await;
        let summaries = summaries.expect("it was told to stop");
        let finished: u64 = summaries.iter().map(|it| it.finished).sum();
        assert_eq!(finished, CLIENTS as u64, "{summaries:?}");
        nobody_listens(address).await;
    });
}

/// The server stops on all workers when it is dropped, and when it panics on one.
#[test]
fn stops_everywhere_on_drop_or_panic() {
    with_1_2_and_4_workers(|workers| async move {
        let (listeners, address) = listen(workers).await;
        let server = serve_on_workers(listeners, |_| |stream, _| echo(stream)).into_future();
        let all = async {
            let mut streams = Vec::new();
            for _ in 0..10 {
                streams.push(served_client(address).await);
            }
            Some(streams)
        };
        let server = async {
            drop(server.await);
            None
        };
        for mut stream in or(all, server).await.expect("it serves for ever") {
            assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
        }
        nobody_listens(address).await;

        let (listeners, address) = listen(workers).await;
        let server = serve_on_workers(listeners, move |worker| {
            if worker == workers - 1 {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            |stream, _| echo(stream)
        });
        let server = std::panic::AssertUnwindSafe(server.into_future());
        let panic = server.catch_unwind().await.expect_err("of the last worker");
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        nobody_listens(address).await;
    });
}

/// Of several panics the first is resumed, although dropping the others panics.
#[test]
fn first_panic_resumed_despite_others() {
    struct PanicsInDrop;

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("in the destructor"));
        }
    }

    with_1_2_and_4_workers(|workers| async move {
        let (listeners, address) = listen(workers).await;
        let server = serve_on_workers(listeners, |worker| {
            std::panic::resume_unwind(match worker {
                0 => Box::new("the first"),
                _ => Box::new(PanicsInDrop),
            });
            #[allow(unreachable_code)]
            |stream, _| echo(stream)
        });
        let server = std::panic::AssertUnwindSafe(server.into_future());
        let panic = server.catch_unwind().await.expect_err("of every worker");
        assert_eq!(panic.downcast_ref(), Some(&"the first"));
        nobody_listens(address).await;
    });
}

/// A runtime that ends before the loops have begun ends the server.
///
/// With one worker, no loop has started.
#[test]
fn runtime_ending_early_ends_server() {
    on_every_backend_alone(|backend| {
        for workers in [1, 2, 4] {
            let runtime = runtime_of(backend, workers);
            let (listeners, address) = runtime.block_on(listen(workers));
            let mut server =
                serve_on_workers(listeners, |_| |stream, _| echo(stream)).into_future();
            assert!(runtime.block_on(poll_once(&mut server)).is_none());
            drop(runtime);
            let error = polder::block_on(server).expect_err("nobody serves any more");
            assert!(error.to_string().contains("has shut down"), "{error}");
            polder::block_on(nobody_listens(address));
        }
    });
}

/// A listener that cannot go on stops all others after their grace period.
///
/// Linux returns EINVAL for a listener that was shut down.
#[test]
#[cfg(target_os = "linux")]
fn listener_failure_stops_all_after_grace() {
    with_1_2_and_4_workers(|workers| async move {
        let (listeners, address) = listen(workers).await;
        let other = listeners[workers - 1].clone();
        let finished = Arc::new(AtomicUsize::new(0));
        let server = serve_on_workers(listeners, {
            let finished = finished.clone();
            move |_| {
                let finished = finished.clone();
                move |stream, _| {
                    let finished = finished.clone();
                    async move {
                        echo(stream).await;
                        finished.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        })
        .grace(Duration::MAX);
        let all = async {
            let mut stream = served_client(address).await;
            let end = socket2::SockRef::from(&other).shutdown(std::net::Shutdown::Both);
            end.expect("a listener can be shut down");
            drop(other);
            nobody_listens(address).await;
            for _ in 0..3 {
                yield_now().await;
            }
            stream.write_all(b"y").await.expect("it is served still");
            let back = stream.read_exact(&mut [0]).await;
            back.expect("it is served still");
        };
        let (error, ()) = zip(server.into_future(), all).await;
        let error = error.expect_err("one cannot go on");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        // The clients that tested whether the address still listens were served too, until none
        // was.
        assert!(finished.load(Ordering::SeqCst) >= 1);
    });
}

/// Otherwise each connection wakes all workers, all but one spuriously.
#[test]
fn balanced_listeners_have_own_queues() {
    with_1_2_and_4_workers(|workers| async move {
        const CLIENTS: usize = 40;
        let (listeners, _) = listen(workers).await;
        let clients = clients_in_queues(&listeners, CLIENTS).await;
        let mut accepted = Vec::new();
        for listener in &listeners {
            yield_now().await; // For a new budget.
            let mut count = 0;
            while let Some(result) = poll_once(listener.accept()).await {
                result.expect("a client is there");
                count += 1;
            }
            accepted.push(count);
        }
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        let shares_one = accepted[0] == CLIENTS;
        assert!(!shares_one || workers == 1 || !BALANCES, "{accepted:?}");
    });
}

/// Workers with clones of a listener share its queue, and lose no connection.
///
/// The listeners that `bind_balanced` returns where the kernel does not distribute connections.
#[test]
fn cloned_listeners_share_queue() {
    with_1_2_and_4_workers(|workers| async move {
        const CLIENTS: usize = 60;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let listeners = vec![listener; workers];
        let watched = [listeners[0].clone()];
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(TcpStream::connect(address).await.expect("it listens"));
        }
        until("all are in the queue", || queued(&watched, CLIENTS)).await;
        drop(watched);
        let stop = Latch::new();
        let server = serve_on_workers(listeners, |_| |stream, _| echo(stream))
            .until(stop.wait())
            .grace(Duration::MAX);
        let all = async {
            for (number, mut client) in clients.into_iter().enumerate() {
                if number == CLIENTS / 2 {
                    stop.set();
                }
                client.write_all(b"x").await.expect("it is connected");
                let back = client.read_exact(&mut [0]).await;
                back.expect("it was connected, and is served");
            }
        };
        let (summaries, ()) = zip(server.into_future(), all).await;
        let summaries = summaries.expect("it was told to stop");
        assert_eq!(summaries.len(), workers);
        let finished: u64 = summaries.iter().map(|it| it.finished).sum();
        assert_eq!(finished, CLIENTS as u64, "{summaries:?}");
        nobody_listens(address).await;
    });
}

/// A listener that fails its first two attempts.
struct Failing {
    listener: TcpListener,
    attempts: AtomicUsize,
}

impl Listener for Failing {
    type Stream = TcpStream;
    type Address = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self.attempts.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(ErrorKind::ConnectionAborted.into()),
            _ => self.listener.accept().await,
        }
    }
}

/// Errors of accept are told once in a row on the worker of their listener.
#[test]
fn accept_errors_told_once_on_their_worker() {
    with_1_2_and_4_workers(|workers| async move {
        let (listeners, _) = listen(workers).await;
        let listeners = listeners.into_iter().map(|listener| Failing {
            listener,
            attempts: AtomicUsize::new(0),
        });
        let threads = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::new(Mutex::new(Vec::new()));
        let server = serve_on_workers(listeners, {
            let threads = threads.clone();
            move |_| {
                threads.lock().unwrap().push(thread::current().id());
                |stream, _| echo(stream)
            }
        })
        .until(until("all have told", || {
            told.lock().unwrap().len() == workers
        }))
        .on_error({
            let told = told.clone();
            move |error| {
                assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
                told.lock().unwrap().push(thread::current().id());
            }
        })
        .grace(Duration::MAX);
        let summaries = server.await.expect("it was told to stop");
        // Whether a listener fails twice, or stops before that, is a race; the error is reported
        // once.
        assert!(
            summaries.iter().all(|it| (1..=2).contains(&it.errors)),
            "{summaries:?}"
        );
        let all = |threads: &Mutex<Vec<ThreadId>>| {
            let threads = threads.lock().unwrap();
            assert_eq!(threads.len(), workers);
            threads.iter().copied().collect::<HashSet<_>>()
        };
        assert_eq!(all(&told), all(&threads));
        assert_eq!(all(&told).len(), workers);
    });
}

#[test]
fn limit_per_listener_loses_nobody() {
    with_1_2_and_4_workers(|workers| async move {
        const LIMIT: usize = 2;
        let clients = 12 * workers;
        let (listeners, address) = listen(workers).await;
        let go_on = Arc::new(Latch::new());
        let begun = Arc::new(AtomicUsize::new(0));
        let all = async {
            let mut set = TaskSet::new();
            let connected = Arc::new(AtomicUsize::new(0));
            for _ in 0..clients {
                let connected = connected.clone();
                set.spawn(async move {
                    let mut stream = TcpStream::connect(address).await.expect("it listens");
                    connected.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(b"x").await.expect("there is room");
                    let back = stream.read_exact(&mut [0]).await;
                    back.expect("its turn comes");
                });
            }
            until("all are connected, and some served", || {
                connected.load(Ordering::SeqCst) == clients && begun.load(Ordering::SeqCst) >= LIMIT
            })
            .await;
            for _ in 0..100 {
                yield_now().await;
            }
            assert!(begun.load(Ordering::SeqCst) <= LIMIT * workers);
            go_on.set();
            while set.join_next().await.is_some() {}
        };
        let server = serve_on_workers(listeners, {
            let (go_on, begun) = (go_on.clone(), begun.clone());
            move |_| {
                let (go_on, begun) = (go_on.clone(), begun.clone());
                move |stream, _| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let go_on = go_on.clone();
                    async move {
                        go_on.wait().await;
                        echo(stream).await;
                    }
                }
            }
        })
        .limit(LIMIT)
        .until(all)
        .grace(Duration::MAX);
        let summaries = server.await.expect("it was told to stop");
        let finished: u64 = summaries.iter().map(|it| it.finished).sum();
        assert_eq!(finished, clients as u64, "{summaries:?}");
        let most = summaries.iter().map(|it| it.most_at_once).max();
        assert_eq!(most, Some(LIMIT), "{summaries:?}");
    });
}

/// A handler that panics costs its connection and its worker goes on.
#[test]
fn handler_panic_costs_its_connection_only() {
    with_1_2_and_4_workers(|workers| async move {
        const CLIENTS: usize = 30;
        let (listeners, address) = listen(workers).await;
        let stop = Latch::new();
        let server = serve_on_workers(listeners, |_| {
            let mut count = 0;
            move |mut stream: TcpStream, _| {
                count += 1;
                if count == 1 {
                    std::panic::resume_unwind(Box::new("before there is a future"));
                }
                let number = count;
                async move {
                    let mut byte = [0];
                    let _ = stream.read(&mut byte).await;
                    if number == 2 {
                        std::panic::resume_unwind(Box::new("in the future"));
                    }
                    stream.write_all(&byte).await.expect("the client is there");
                }
            }
        })
        .until(stop.wait())
        .grace(Duration::MAX);
        let all = async {
            let mut served = 0;
            for _ in 0..CLIENTS {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                let _ = stream.write_all(b"x").await;
                served += u64::from(stream.read_exact(&mut [0]).await.is_ok());
            }
            stop.set();
            served
        };
        let (summaries, served) = zip(server.into_future(), all).await;
        for summary in summaries.as_ref().expect("it was told to stop") {
            assert_eq!(summary.panicked, summary.accepted.min(2), "{summary:?}");
        }
        let finished = summaries.iter().flatten().map(|it| it.finished);
        assert_eq!(finished.sum::<u64>(), served);
        assert!(served >= (CLIENTS - 2 * workers) as u64);
    });
}

/// More listeners than workers are served and none is an error.
#[test]
fn listeners_over_workers_or_none() {
    with_1_2_and_4_workers(|workers| async move {
        let (listeners, address) = listen(2 * workers + 1).await;
        let count = listeners.len();
        let all = async {
            let clients = polder::unblock(move || {
                for _ in 0..30 {
                    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
                    stream.write_all(b"x").expect("it is served");
                    std::io::Read::read_exact(&mut stream, &mut [0]).expect("it is served");
                }
            });
            clients.await;
        };
        let server = serve_on_workers(listeners, move |worker| {
            assert!(worker < workers);
            |stream, _| echo(stream)
        })
        .until(all)
        .grace(Duration::MAX);
        let summaries = server.await.expect("it was told to stop");
        assert_eq!(summaries.len(), count);
        assert_eq!(summaries.iter().map(|it| it.finished).sum::<u64>(), 30);

        let (listeners, _) = listen(1).await;
        let handler = |_| |_: TcpStream, _| pending();
        for server in [
            serve_on_workers(Vec::<TcpListener>::new(), handler),
            serve_on_workers(listeners, handler).limit(0),
        ] {
            let error = server.await.expect_err("nobody would ever be served");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        let none = TcpListener::bind_balanced("127.0.0.1:0", 0).await;
        assert_eq!(none.unwrap_err().kind(), ErrorKind::InvalidInput);
        // An address is not shared with a listener that did not allow it.
        let alone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let taken = TcpListener::bind_balanced(alone.local_addr().unwrap(), 2).await;
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    });
}

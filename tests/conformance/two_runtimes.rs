//! Two runtimes that wait for one socket: each wait moves it to its own reactor.

use std::io::{Read, Write};
use std::net;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpStream;

use crate::probe::std_accept_from;
use crate::support::{
    LIMIT, message, on_every_backend, on_every_backend_alone, on_every_backend_with_several,
    runtime, sized,
};

fn pair() -> (net::TcpStream, net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = std_accept_from(&listener, &near);
    (near, far)
}

/// A reader is served by its own runtime after the other half has waited elsewhere.
///
/// Both halves are one handle: a writer that waits in another runtime must not move the source away
/// from the reader's.
#[test]
fn reader_served_by_own_runtime_after_other_half() {
    const MANY: usize = 16 << 20;
    on_every_backend_alone(|backend| {
        let (near, mut peer) = pair();
        let (own, other) = (runtime(backend), runtime(backend));
        let (mut reader, mut writer) = polder::io::split(TcpStream::try_from(near).unwrap());
        let task = own.spawn(async move { reader.read_exact(&mut [0]).await });
        for _ in 0..3 {
            own.run_once(Duration::ZERO);
        }
        thread::scope(|scope| {
            // More than the socket takes, so the writer has to wait.
            let writing = async { writer.write_all(&vec![7; MANY]).await.unwrap() };
            let drained = scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                peer.read_exact(&mut vec![0; MANY]).unwrap();
            });
            other.block_on(writing);
            drained.join().unwrap();
        });
        // The other runtime is not driven from here on.
        own.run_once(Duration::ZERO);
        (&peer).write_all(b"x").unwrap();
        let deadline = Instant::now() + LIMIT / 2;
        while !task.is_finished() {
            assert!(Instant::now() < deadline, "{backend}: the reader was lost");
            own.run_once(Duration::from_millis(50));
        }
    });
}

/// A task of a pool takes its socket out of a runtime that is not driven.
///
/// A source stays where it is if its task moves within a pool; but not if it is elsewhere.
#[test]
fn pool_task_takes_socket_from_undriven() {
    on_every_backend_with_several(|backend, _| {
        let (near, mut peer) = pair();
        let mut near = TcpStream::try_from(near).unwrap();
        let first = Runtime::builder().backend(backend).build().unwrap();
        let waits = first.block_on(poll_once(near.read(&mut [0])));
        assert!(waits.is_none());
        // It is not driven from here on.
        let pool = runtime(backend);
        let (waiting, is_waiting) = mpsc::channel();
        let task = pool.spawn(async move {
            assert!(poll_once(near.read(&mut [0])).await.is_none());
            waiting.send(()).unwrap();
            near.read_exact(&mut [0]).await
        });
        is_waiting.recv_timeout(LIMIT / 2).unwrap();
        peer.write_all(b"x").unwrap();
        pool.block_on(task).unwrap();
    });
}

/// A source that moves from one runtime to another is not an error for the one that it leaves.
#[test]
fn clones_waiting_in_two_runtimes_both_wait() {
    on_every_backend_alone(|backend| {
        let (near, _peer) = pair();
        // Duplicates: each is a separate source, and repeats the move.
        let streams: Vec<_> = (0..300)
            .map(|_| TcpStream::try_from(near.try_clone().unwrap()).unwrap())
            .collect();
        let barrier = Barrier::new(2);
        let wait = |streams: Vec<TcpStream>, registers_first: bool| {
            runtime(backend).block_on(async {
                let mut errors = Vec::new();
                for stream in &streams {
                    if registers_first {
                        let waiting = poll_once(stream.peek(&mut [0])).await;
                        errors.extend(waiting.and_then(Result::err).map(|error| error.kind()));
                    }
                    barrier.wait();
                    for _ in 0..50 {
                        let waiting = poll_once(stream.peek(&mut [0])).await;
                        errors.extend(waiting.and_then(Result::err).map(|error| error.kind()));
                    }
                    barrier.wait();
                }
                errors
            })
        };
        thread::scope(|scope| {
            let clones = streams.clone();
            let first = scope.spawn(|| wait(clones, true));
            let second = wait(streams, false);
            let errors = [first.join().unwrap(), second].concat();
            assert_eq!(errors, [], "{backend}");
        });
    });
}

/// Waits in two runtimes, alternating and in parallel, are never refused.
///
/// A wait in one runtime must never find the stream half-way, still registered with the reactor
/// that it leaves.
#[test]
fn alternating_and_parallel_waits_not_refused() {
    on_every_backend(|backend| {
        let (near, _far) = pair();
        let stream = TcpStream::try_from(near).unwrap();
        let pull = |stream: TcpStream| {
            move || {
                // Once two runtimes have met at a stream, both keep it: so each round uses new
                // runtimes.
                for round in 0..sized(backend, 5_000) {
                    runtime(backend).block_on(async {
                        for _ in 0..5 {
                            // A peek that is dropped immediately leaves no waker: nothing holds the
                            // stream.
                            let result = poll_once(stream.peek(&mut [0])).await;
                            assert!(result.is_none(), "round {round}: {result:?}");
                        }
                    });
                }
            }
        };
        let threads = [stream.clone(), stream.clone(), stream.clone(), stream]
            .map(|stream| thread::spawn(pull(stream)));
        for thread in threads {
            if let Err(panic) = thread.join() {
                panic!("{}", message(&*panic));
            }
        }
    });
}

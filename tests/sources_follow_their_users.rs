//! Two regressions of sockets that two runtimes wait for.

use std::io::{Read, Write};
use std::net;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpStream;
use polder::{Backend, Runtime, future};

fn pair() -> (net::TcpStream, net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn runtime(backend: Backend) -> Runtime {
    Runtime::builder().backend(backend).build().unwrap()
}

/// Both halves are one handle: a writer that waits in another runtime must not move the source away
/// from the reader's.
#[test]
fn a_reader_is_served_by_its_own_runtime_after_the_other_half_has_waited_elsewhere() {
    const MANY: usize = 16 << 20;
    for backend in Backend::available() {
        let (near, mut peer) = pair();
        let (own, other) = (runtime(backend), runtime(backend));
        let (mut reader, mut writer) = polder::io::split(TcpStream::try_from(near).unwrap());
        let task = own.spawn(async move { reader.read_exact(&mut [0]).await });
        for _ in 0..3 {
            own.turn(Duration::ZERO);
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
        own.turn(Duration::ZERO);
        (&peer).write_all(b"x").unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while !task.is_finished() {
            assert!(Instant::now() < deadline, "{backend}: the reader was lost");
            own.turn(Duration::from_millis(50));
        }
    }
}

/// A source that moves from one runtime to another is not an error for the one that it leaves.
#[test]
fn clones_that_start_to_wait_in_two_runtimes_at_once_both_wait() {
    for backend in Backend::available() {
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
                        let waiting = future::poll_once(stream.peek(&mut [0])).await;
                        errors.extend(waiting.and_then(Result::err).map(|error| error.kind()));
                    }
                    barrier.wait();
                    for _ in 0..50 {
                        let waiting = future::poll_once(stream.peek(&mut [0])).await;
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
    }
}

//! Two runtimes that use one stream: each wait moves it to its own reactor, and a wait in the other
//! one must never find it half-way, still registered with the reactor that it leaves.

#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use std::net;
use std::thread;

use polder::future::poll_once;
use polder::net::TcpStream;

use support::{on_every_backend, runtime, sized};

#[test]
fn waits_in_two_runtimes_by_turns_and_at_once_are_never_refused() {
    on_every_backend(|backend| {
        let listener = net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
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
                panic!("{}", support::message(&*panic));
            }
        }
    });
}

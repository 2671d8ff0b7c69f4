//! Rules 49 and 49a: sockets, timers and wakers that outlive their runtime or move between
//! runtimes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;
use polder::{Timer, future};

use super::{one_byte, send_byte};
#[cfg(target_os = "linux")]
use crate::child::entries;
use crate::child::in_children;
use crate::probe::{Count, Mailbox, Signal, hold, own_waker, poll_with, tcp_pair};
#[cfg(target_os = "linux")]
use crate::support::runtime_of;
use crate::support::{
    LIMIT, eventually, in_every_kernel_runtime, on_every_backend, runtime, until,
    with_every_runtime, with_every_runtime_of_several, within,
};

/// A stream and a timer that outlive their runtime work in the next.
#[test]
fn stream_and_timer_work_in_next_runtime() {
    with_every_runtime(|first, backend| {
        let (mut stream, mut peer, listener, timer, mut far) = first.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut timer = Timer::after(Duration::from_millis(20));
            let mut far = Timer::after(Duration::from_secs(3_600));
            // They are registered with the first runtime.
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            assert!(future::poll_once(listener.accept()).await.is_none());
            assert!(future::poll_once(&mut timer).await.is_none());
            assert!(future::poll_once(&mut far).await.is_none());
            (stream, peer, listener, timer, far)
        });
        drop(first);
        let second = runtime(backend);
        second.block_on(async {
            let due = timer.await;
            assert!(Instant::now() >= due, "early");
            assert!(future::poll_once(&mut far).await.is_none(), "an hour early");
            far.set_after(Duration::from_millis(1));
            far.await;
            let writer = polder::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                peer.write_all(b"late").await.unwrap();
                peer
            });
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"late");
            writer.await;
            let address = listener.local_addr().unwrap();
            let client = polder::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                TcpStream::connect(address).await.unwrap()
            });
            listener.accept().await.unwrap();
            client.await;
        });
    });
}

/// Waits of other threads go on when the runtime that they are in goes.
///
/// A wait of one thread can be registered with another thread's runtime, if both wait for the same
/// stream.
#[test]
fn waits_of_threads_survive_runtime() {
    on_every_backend(|backend| {
        for plain in [false, true] {
            let first = runtime(backend);
            let (reader, mut peer) = first.block_on(tcp_pair());
            let mut other = reader.clone();
            // A task of this runtime waits first, so the stream is registered here.
            let mut mine = reader.clone();
            first
                .spawn(async move {
                    mine.read_exact(&mut [0]).await.unwrap();
                })
                .detach();
            first.run_once(Duration::ZERO);
            let waits = Arc::new(AtomicBool::new(false));
            let thread = thread::spawn({
                let waits = waits.clone();
                move || {
                    let mut bytes = [0; 5];
                    let mut reading = pin!(other.read_exact(&mut bytes));
                    let reading = poll_fn(|cx| {
                        let poll = reading.as_mut().poll(cx);
                        waits.store(true, SeqCst);
                        poll
                    });
                    if plain {
                        futures_lite::future::block_on(reading).unwrap();
                    } else {
                        runtime(backend).block_on(reading).unwrap();
                    }
                    bytes
                }
            });
            eventually("the other thread waits", || waits.load(SeqCst));
            drop(first);
            drop(reader);
            let second = runtime(backend);
            second.block_on(async { peer.write_all(b"hello").await.unwrap() });
            let bytes = within(LIMIT, "the other thread's wait", || thread.join().unwrap());
            assert_eq!(&bytes, b"hello");
        }
    });
}

/// Foreign wakers that wait in a runtime are called when it goes.
///
/// A future that is polled by hand is woken through its foreign waker, so that it is polled again.
#[test]
fn foreign_wakers_called_when_runtime_goes() {
    with_every_runtime(|first, backend| {
        let timer_wakes = Count::new();
        let timer_waker = timer_wakes.waker();
        let stream_wakes = Count::new();
        let stream_waker = stream_wakes.waker();
        let task_wakes = Count::new();
        let task_waker = task_wakes.waker();
        let (mut stream, _peer) = first.block_on(tcp_pair());
        let mut timer = Timer::after(Duration::from_secs(3_600));
        let mut task = first.spawn(hold(())).fallible();
        first.block_on(async {
            assert!(poll_with(&mut timer, &timer_waker).is_pending());
            assert!(poll_with(&mut stream.read(&mut [0]), &stream_waker).is_pending());
            assert!(poll_with(&mut task, &task_waker).is_pending());
        });
        let counts = || {
            [
                timer_wakes.woken(),
                stream_wakes.woken(),
                task_wakes.woken(),
            ]
        };
        assert_eq!(counts(), [0; 3]);
        drop(first);
        assert!(
            counts().iter().all(|count| *count > 0),
            "timer, stream, task: {:?}",
            counts()
        );
        assert!(matches!(
            poll_with(&mut task, &task_waker),
            Poll::Ready(None)
        ));
        runtime(backend).block_on(async {
            assert!(
                future::poll_once(&mut timer).await.is_none(),
                "an hour early"
            );
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
        });
    });
}

#[test]
fn a_waker_may_be_called_when_its_runtime_is_gone() {
    with_every_runtime(|runtime, backend| {
        let wakers = Mailbox::default();
        for ends in [true, false] {
            let wakers = wakers.clone();
            runtime
                .spawn(async move {
                    wakers.send(own_waker().await);
                    if !ends {
                        std::future::pending::<()>().await;
                    }
                })
                .detach();
        }
        runtime.block_on(async {
            wakers.send(own_waker().await);
            until("all have begun", || wakers.count() == 3).await;
        });
        drop(runtime);
        let wakers: Vec<_> = std::iter::from_fn(|| wakers.try_receive()).collect();
        assert_eq!(wakers.len(), 3);
        let call = |wakers: Vec<Waker>| {
            for waker in wakers {
                waker.wake_by_ref();
                let clone = waker.clone();
                assert!(waker.will_wake(&clone));
                clone.wake();
                waker.wake();
            }
        };
        let theirs = wakers.clone();
        let thread = thread::spawn(move || call(theirs));
        call(wakers.clone());
        self::runtime(backend).block_on(async { call(wakers) });
        thread.join().unwrap();
    });
}

/// A stream connected in one `block_on` is read in the next.
#[test]
fn stream_read_in_next_block_on() {
    // In its own process, since the free function takes its backend from the environment.
    let rule = |_| {
        let (mut stream, mut peer) = polder::block_on(async {
            let (mut stream, mut peer) = tcp_pair().await;
            // Both have waited in this runtime.
            for _ in 0..2 {
                let (read, write) = (stream.clone(), peer.clone());
                future::zip(one_byte(read), send_byte(write)).await;
                std::mem::swap(&mut stream, &mut peer);
            }
            (stream, peer)
        });
        polder::block_on(async {
            future::zip(one_byte(stream.clone()), send_byte(peer.clone())).await;
        });
        // Nested: the outer future waits for nothing meanwhile.
        polder::block_on(async {
            polder::block_on(async {
                future::zip(one_byte(stream.clone()), send_byte(peer.clone())).await;
            });
            future::zip(one_byte(peer.clone()), send_byte(stream.clone())).await;
        });
        // And on a plain thread.
        futures_lite::future::block_on(future::zip(
            async { stream.read_exact(&mut [0]).await.unwrap() },
            async { peer.write_all(&[0]).await.unwrap() },
        ));
    };
    in_children(rule);
}

/// A stream made in `block_on`'s future moves into a task while the future ends.
#[test]
fn stream_moves_to_task_as_block_on_ends() {
    with_every_runtime(|runtime, backend| {
        let (task, mut peer) = runtime.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            // The stream waits in this future first.
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            let task = polder::spawn(async move {
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                text
            });
            (task, peer)
        });
        // The peer writes from another thread's runtime, while the task waits here.
        let thread = thread::spawn(move || {
            self::runtime(backend).block_on(async move {
                peer.write_all(b"moved").await.unwrap();
                sleep(Duration::from_millis(1)).await;
                peer.write_all(b" on").await.unwrap();
            });
        });
        assert_eq!(runtime.block_on(task), "moved on");
        thread.join().unwrap();
    });
}

#[test]
fn a_stream_is_used_by_turns_from_two_runtimes() {
    on_every_backend(|backend| {
        let (one, two) = (runtime(backend), runtime(backend));
        let (mut stream, mut peer) = one.block_on(tcp_pair());
        for round in 0..20_u8 {
            let runtime = if round % 2 == 0 { &one } else { &two };
            runtime.block_on(async {
                let mut byte = [0];
                future::zip(
                    async { stream.read_exact(&mut byte).await.unwrap() },
                    async {
                        future::yield_now().await;
                        peer.write_all(&[round]).await.unwrap();
                    },
                )
                .await;
                assert_eq!(byte, [round]);
            });
        }
        // And from two threads.
        let other = thread::spawn(move || {
            let runtime = self::runtime(backend);
            for round in 0..10_u8 {
                runtime.block_on(async {
                    peer.write_all(&[round]).await.unwrap();
                    peer.read_exact(&mut [0]).await.unwrap();
                });
            }
        });
        for round in 0..10_u8 {
            let runtime = if round % 2 == 0 { &one } else { &two };
            runtime.block_on(async {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte, [round]);
                stream.write_all(&byte).await.unwrap();
            });
        }
        other.join().unwrap();
    });
}

/// Returns a stream that is registered with the current runtime and has nothing to read; and its
/// peer.
async fn waited_for() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(LIMIT)).unwrap();
    let mut near = TcpStream::try_from(near).unwrap();
    assert!(future::poll_once(near.read(&mut [0])).await.is_none());
    // A turn or two, after which the registration has reached the kernel.
    sleep(Duration::from_millis(1)).await;
    (near, far)
}

fn sees_the_end(mut peer: &std::net::TcpStream) {
    use std::io::{ErrorKind, Read};
    let read = loop {
        match peer.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => break result.expect("the end, within the limit"),
        }
    };
    assert_eq!(read, 0, "the peer sees the end");
}

/// A socket dropped on another thread is closed while its runtime is not driven.
#[test]
fn dropped_elsewhere_closes_undriven() {
    with_every_runtime(|runtime, _| {
        for _ in 0..3 {
            let (near, far) = runtime.block_on(waited_for());
            thread::spawn(move || drop(near)).join().unwrap();
            sees_the_end(&far);
            // On the runtime's thread, too.
            let (near, far) = runtime.block_on(waited_for());
            drop(near);
            sees_the_end(&far);
        }
    });
}

/// A socket dropped on another thread is closed while its runtime sleeps or is busy.
#[test]
fn dropped_elsewhere_closes_asleep_or_busy() {
    on_every_backend(|backend| {
        for is_busy in [false, true] {
            let runtime = runtime(backend);
            let over = Arc::new(AtomicBool::new(false));
            let (streams, receive) = std::sync::mpsc::channel();
            let waker = Mailbox::default();
            let thread = thread::spawn({
                let (over, waker) = (over.clone(), waker.clone());
                move || {
                    let (near, far) = receive.recv().unwrap();
                    drop::<TcpStream>(near);
                    sees_the_end(&far);
                    over.store(true, SeqCst);
                    waker.send(());
                }
            });
            runtime.block_on(async {
                streams.send(waited_for().await).unwrap();
                // Nothing else is registered here.
                while is_busy && !over.load(SeqCst) {
                    future::yield_now().await;
                }
                waker.receive().await;
            });
            thread.join().unwrap();
        }
    });
}

/// A stream that outlives its runtime keeps no descriptor of it.
///
/// After a read, the stream keeps the task's waker for the next read.
#[cfg(target_os = "linux")]
#[test]
fn stream_keeps_no_descriptor_of_runtime() {
    let rule = |backend| {
        let descriptors = || entries("/proc/self/fd");
        let read_in_a_task = || {
            let runtime = runtime(backend);
            let waits = Mailbox::default();
            let waiting = waits.clone();
            let task = runtime.spawn(async move {
                let (mut near, far) = tcp_pair().await;
                assert!(future::poll_once(near.read(&mut [0])).await.is_none());
                waiting.send(far);
                near.read_exact(&mut [0]).await.unwrap();
                near
            });
            runtime.block_on(async {
                waits.receive().await.write_all(b"x").await.unwrap();
                task.await
            })
        };
        drop(read_in_a_task()); // What is made once is made.
        let before = descriptors();
        let streams = [(); 3].map(|()| read_in_a_task());
        assert_eq!(descriptors(), before + streams.len());
    };
    in_children(rule);
}

/// The waker of a timer that is dropped elsewhere is dropped before its worker sleeps.
///
/// A worker about to sleep notices that another thread has dropped a timer, and drops the timer's
/// waker.
#[test]
fn timer_dropped_elsewhere_frees_waker_before_sleep() {
    struct SaysWhenDropped(Signal);
    impl Wake for SaysWhenDropped {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for SaysWhenDropped {
        fn drop(&mut self) {
            self.0.send(());
        }
    }
    in_every_kernel_runtime(|_| async {
        let dropped = Signal::default();
        let waker = Waker::from(Arc::new(SaysWhenDropped(dropped.clone())));
        let mut timer = Timer::after(Duration::from_secs(3_600));
        assert!(poll_with(&mut timer, &waker).is_pending());
        drop(waker);
        // This thread is awake meanwhile, and has nothing to do afterwards but sleep.
        thread::spawn(move || drop(timer)).join().unwrap();
        dropped.receive().await;
    });
}

/// A socket dropped on another thread is closed while its worker is blocked.
///
/// A poll in a ring holds its file open until the thread that has armed it has a turn: so what a
/// pool waits for is in no ring.
#[test]
fn dropped_elsewhere_closes_worker_blocked() {
    with_every_runtime_of_several(|runtime, _, _| {
        for _ in 0..5 {
            let (streams, receive) = mpsc::channel();
            let (release, is_released) = mpsc::channel::<()>();
            let task = runtime.spawn(async move {
                streams.send(waited_for().await).unwrap();
                let result = is_released.recv_timeout(LIMIT / 2);
                assert!(result.is_ok(), "its descriptor is open");
            });
            let (near, far) = receive.recv().unwrap();
            drop::<TcpStream>(near);
            sees_the_end(&far);
            release.send(()).unwrap();
            runtime.block_on(task);
        }
    });
}

/// The main worker drops the task that owns the socket, which the task's own worker polls.
#[test]
fn socket_of_blocked_worker_closes_at_end() {
    with_every_runtime_of_several(|runtime, _, _| {
        let (peers, receive) = mpsc::channel();
        let (release, is_released) = mpsc::channel::<()>();
        let task = runtime.spawn(async move {
            let (mut near, far) = waited_for().await;
            polder::spawn_local(async move {
                peers.send(far).unwrap();
                let result = is_released.recv_timeout(LIMIT / 2);
                assert!(result.is_ok(), "the socket is open");
            })
            .detach();
            near.read(&mut [0]).await.unwrap();
        });
        task.detach();
        let far = receive.recv().unwrap();
        let peer = thread::spawn(move || {
            sees_the_end(&far);
            release.send(()).unwrap();
        });
        drop(runtime);
        peer.join().unwrap();
    });
}

/// A worker that was helped goes on where no descriptor is left.
///
/// The other one serves the shard's timers and sockets meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn helped_worker_continues_without_descriptors() {
    let rule = |backend| {
        let runtime = runtime_of(backend, 2);
        let (addresses, receive) = mpsc::channel();
        let (release, is_released) = mpsc::channel::<()>();
        let task = runtime.spawn(async move {
            let socket = polder::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut byte = [0];
            let mut datagram = Box::pin(socket.recv(&mut byte));
            assert!(future::poll_once(&mut datagram).await.is_none());
            addresses.send(socket.local_addr().unwrap()).unwrap();
            // Blocks within the same poll: the other worker helps.
            is_released.recv_timeout(LIMIT / 2).unwrap();
            datagram.await.unwrap();
        });
        let address = receive.recv().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let other_serves = || {
            let timer = runtime.spawn(polder::time::sleep(Duration::from_millis(1)));
            runtime.block_on(timer);
        };
        other_serves();
        crate::child::limit(rustix::process::Resource::Nofile, 64);
        let all: Vec<_> = std::iter::from_fn(|| sender.try_clone().ok()).collect();
        assert!(!all.is_empty(), "there were none before");
        other_serves();
        release.send(()).unwrap();
        sender.send_to(b"x", address).unwrap();
        runtime.block_on(task);
        drop(all);
    };
    in_children(rule);
}

//! Runtimes: rules 48 to 55, and what lies between them.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::poller::Poller;
use polder::time::{sleep, timeout};
use polder::{Backend, Handle, Runtime, Task, Timer, future};

use crate::child::in_children;
#[cfg(target_os = "linux")]
use crate::child::{entries, resident};
use crate::descriptor::{is_readable, wait_until_readable};
use crate::probe::{
    Alive, Mailbox, OnDrop, Signal, hold, join_all, own_waker, poll_with, tcp_pair,
};
use crate::support::{
    LIMIT, eventually, on_every_backend, on_every_backend_alone, runtime, sized, until, within,
};

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Wakes {
    fn new() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::new(Wakes::default());
        (wakes.clone(), wakes.into())
    }

    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

// 48: dropping a runtime.

#[test]
fn dropping_the_runtime_drops_every_future() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let alive = Alive::default();
        let guard = || alive.guard();
        let local = |thing| runtime.spawn_local(hold(thing)).detach();

        runtime.block_on(async {
            // Those that wait for the kernel, or for the clock.
            let (mut reader, writer) = tcp_pair().await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let things = guard();
            polder::spawn(async move {
                let _things = things;
                reader.read_exact(&mut [0]).await.unwrap();
            })
            .detach();
            let things = (guard(), writer);
            polder::spawn(async move {
                let _things = things;
                drop(listener.accept().await);
            })
            .detach();
            let things = guard();
            polder::spawn(async move {
                let _things = things;
                sleep(Duration::from_secs(3_600)).await;
            })
            .detach();
            let things = guard();
            polder::spawn(async move {
                let _things = things;
                loop {
                    future::yield_now().await;
                }
            })
            .detach();
            // One that has its own waker, and one that has its own handle to be cancelled by.
            let things = guard();
            polder::spawn(async move {
                let _things = (things, own_waker().await);
                std::future::pending::<()>().await;
            })
            .detach();
            let own = Arc::new(Mutex::new(None));
            *own.lock().unwrap() = Some(polder::spawn(hold((guard(), own.clone()))));
            drop(own);
            future::yield_now().await;
            future::yield_now().await;
        });

        // One that cannot be sent; one that holds the last handle.
        local((guard(), Rc::new(()), None));
        local((guard(), Rc::new(()), Some(runtime.handle())));
        // Ones that spawn in their destructors, in each of the ways that there are.
        let spawns: [fn(&Handle, Alive); 3] = [
            |_, alive| {
                polder::spawn(hold(alive.guard())).detach();
            },
            |_, alive| {
                polder::spawn_local(hold((alive.guard(), Rc::new(())))).detach();
            },
            |handle, alive| {
                handle.spawn(hold(alive.guard())).detach();
            },
        ];
        let spawned = Rc::new(Cell::new(0));
        for spawn in spawns {
            let (handle, alive, spawned) = (runtime.handle(), alive.clone(), spawned.clone());
            let things = OnDrop(move || {
                spawn(&handle, alive.clone());
                spawned.set(spawned.get() + 1);
            });
            runtime.spawn_local(hold(things)).detach();
        }
        // Ones that wake another, that use sockets and timers, and that run a runtime there.
        let wakers = Mailbox::<Waker>::default();
        for _ in 0..3 {
            let (guard, mine) = (guard(), wakers.clone());
            runtime
                .spawn(async move {
                    let others = mine.clone();
                    let _things = (
                        guard,
                        OnDrop(move || {
                            if let Some(waker) = others.try_receive() {
                                waker.wake();
                            }
                        }),
                    );
                    mine.send(own_waker().await);
                    std::future::pending::<()>().await;
                })
                .detach();
        }
        let count = spawned.clone();
        let nested = OnDrop(move || {
            polder::block_on(async {
                let (mut a, mut b) = tcp_pair().await;
                a.write_all(b"x").await.unwrap();
                b.read_exact(&mut [0]).await.unwrap();
                sleep(Duration::from_millis(1)).await;
                polder::spawn(async {}).await;
            });
            count.set(count.get() + 1);
        });
        runtime.spawn_local(hold(nested)).detach();
        let polls = OnDrop({
            let (wakes, waker) = Wakes::new();
            move || {
                let mut timer = Timer::after(Duration::from_secs(3_600));
                assert!(poll_with(&mut timer, &waker).is_pending());
                assert_eq!(wakes.count(), 0);
            }
        });
        runtime.spawn(hold(polls)).detach();
        // A chain of tasks, each of which holds the next.
        let mut chain = runtime.spawn(hold(guard()));
        for _ in 0..1_000 {
            chain = runtime.spawn(hold2(guard(), chain));
        }
        chain.detach();
        // Cancelled already, and not dropped yet.
        drop(runtime.spawn(hold(guard())));
        while runtime.turn(Duration::ZERO) && wakers.is_empty() {}
        runtime.turn(Duration::ZERO);
        // Ones that are never polled.
        runtime.spawn(hold(guard())).detach();
        let kept = runtime.spawn_local(hold(guard()));
        let handle = runtime.handle();
        assert!(alive.count() > 1_000, "they were to be dropped now");
        drop(runtime);
        assert_eq!(alive.count(), 0, "futures outlive their runtime");
        assert_eq!(spawned.get(), 4, "destructors were not run");
        assert!(kept.is_finished());
        handle.spawn(hold(alive.guard())).detach();
        assert_eq!(alive.count(), 0, "it was spawned after the end");
    });
}

async fn hold2<A, B>(a: A, b: B) {
    hold((a, b)).await
}

/// Another thread wakes, cancels and spawns while runtimes come and go.
#[test]
fn dropping_the_runtime_races_with_wakes_cancels_and_spawns() {
    on_every_backend(|backend| {
        #[derive(Default)]
        struct Target {
            handle: Option<Handle>,
            wakers: Vec<Waker>,
            tasks: Vec<Task<()>>,
        }
        let target = Arc::new(Mutex::new(Target::default()));
        let alive = Alive::default();
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..2)
            .map(|me| {
                let (target, stop, alive) = (target.clone(), stop.clone(), alive.clone());
                thread::spawn(move || {
                    let mut round = me;
                    while !stop.load(SeqCst) {
                        round += 1;
                        // What is called is called without the lock.
                        let (handle, waker, task) = {
                            let mut target = target.lock().unwrap();
                            let waker = match target.wakers.len() {
                                0 => None,
                                n => Some(target.wakers[round % n].clone()),
                            };
                            (target.handle.clone(), waker, target.tasks.pop())
                        };
                        if let Some(waker) = waker {
                            waker.wake();
                        }
                        drop(task);
                        if let Some(handle) = handle {
                            handle.spawn(hold(alive.guard())).detach();
                        }
                    }
                })
            })
            .collect();
        for round in 0..sized(backend, 2_000) {
            let runtime = runtime(backend);
            let mine = Alive::default();
            let wakers = Mailbox::default();
            for _ in 0..8 {
                let (guard, wakers) = (mine.guard(), wakers.clone());
                let task = runtime.spawn(async move {
                    let _guard = guard;
                    wakers.send(own_waker().await);
                    loop {
                        future::yield_now().await;
                        std::future::pending::<()>().await;
                    }
                });
                target.lock().unwrap().tasks.push(task);
            }
            for _ in 0..8 {
                runtime.spawn(hold(mine.guard())).detach();
            }
            {
                let mut target = target.lock().unwrap();
                target.handle = Some(runtime.handle());
            }
            runtime.turn(Duration::ZERO);
            while let Some(waker) = wakers.try_receive() {
                target.lock().unwrap().wakers.push(waker);
            }
            for _ in 0..round % 3 {
                runtime.turn(Duration::ZERO);
            }
            drop(runtime);
            assert_eq!(
                mine.count(),
                0,
                "futures outlive their runtime, number {round}"
            );
            // Some wakers and tasks stay for the next round.
            let mut target = target.lock().unwrap();
            if round % 2 == 0 {
                target.wakers.clear();
            }
        }
        stop.store(true, SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(alive.count(), 0, "futures were spawned and never dropped");
    });
}

// 49: what outlives a runtime.

#[test]
fn a_stream_and_a_timer_that_outlive_their_runtime_work_in_the_next() {
    on_every_backend(|backend| {
        let first = runtime(backend);
        let (mut stream, mut peer, listener, timer, mut far) = first.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut timer = Timer::after(Duration::from_millis(20));
            let mut far = Timer::after(Duration::from_secs(3_600));
            // They wait here.
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

/// A wait of one thread can be registered in the runtime of another: when a stream is waited for
/// by both.
#[test]
fn waits_of_other_threads_go_on_when_the_runtime_that_they_are_in_goes() {
    on_every_backend(|backend| {
        for plain in [false, true] {
            let first = runtime(backend);
            let (reader, mut peer) = first.block_on(tcp_pair());
            let mut other = reader.clone();
            // First a task of this runtime waits; so it is registered here.
            let mut mine = reader.clone();
            first
                .spawn(async move {
                    mine.read_exact(&mut [0]).await.unwrap();
                })
                .detach();
            first.turn(Duration::ZERO);
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
                    match plain {
                        true => futures_lite::future::block_on(reading).unwrap(),
                        false => runtime(backend).block_on(reading).unwrap(),
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

/// Whoever polls by hand, with wakers of its own, is told that it has to look again.
#[test]
fn foreign_wakers_that_wait_in_a_runtime_are_called_when_it_goes() {
    on_every_backend(|backend| {
        let first = runtime(backend);
        let (timer_wakes, timer_waker) = Wakes::new();
        let (stream_wakes, stream_waker) = Wakes::new();
        let (task_wakes, task_waker) = Wakes::new();
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
                timer_wakes.count(),
                stream_wakes.count(),
                task_wakes.count(),
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
    on_every_backend(|backend| {
        let runtime = runtime(backend);
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

// 49a: streams that wander.

#[test]
fn a_stream_connected_in_one_block_on_is_read_in_the_next() {
    const ME: &str = "runtime::a_stream_connected_in_one_block_on_is_read_in_the_next";
    // In a process of its own, since the free function takes its backend from the environment.
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
        // Nested: the outer one waits for nothing meanwhile.
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
    in_children(ME, rule, |_, _| {});
}

async fn one_byte(mut stream: TcpStream) {
    stream.read_exact(&mut [0]).await.unwrap();
}

async fn send_byte(mut stream: TcpStream) {
    future::yield_now().await;
    stream.write_all(&[1]).await.unwrap();
}

#[test]
fn a_stream_made_in_block_ons_future_moves_into_a_task_while_the_future_ends() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let (task, mut peer) = runtime.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            // It waits in this future first.
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            let task = polder::spawn(async move {
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                text
            });
            (task, peer)
        });
        // In a task of another thread's runtime, it waits there.
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

// 50: driving.

#[test]
fn run_returns_exactly_when_no_task_is_left() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        runtime.run();
        let done = Arc::new(AtomicUsize::new(0));
        fn generation(left: usize, done: Arc<AtomicUsize>) -> future::Boxed<()> {
            Box::pin(async move {
                if left > 0 {
                    future::yield_now().await;
                    polder::spawn(generation(left - 1, done.clone())).detach();
                }
                done.fetch_add(1, SeqCst);
            })
        }
        runtime.spawn(generation(100, done.clone())).detach();
        let count = done.clone();
        runtime
            .spawn_local(async move {
                sleep(Duration::from_millis(2)).await;
                count.fetch_add(1, SeqCst);
            })
            .detach();
        // The last one comes from another thread, while a task waits for it.
        let signal = Signal::default();
        let thread = thread::spawn({
            let (handle, signal, done) = (runtime.handle(), signal.clone(), done.clone());
            move || {
                thread::sleep(Duration::from_millis(4));
                handle
                    .spawn(async move {
                        future::yield_now().await;
                        done.fetch_add(1, SeqCst);
                    })
                    .detach();
                signal.send(());
            }
        });
        runtime
            .spawn(async move { signal.receive().await })
            .detach();
        runtime.run();
        assert_eq!(done.load(SeqCst), 103, "tasks were left");
        thread.join().unwrap();
        // What is pending beside tasks does not count.
        let mut timer = Timer::after(Duration::from_secs(3_600));
        let (mut stream, _peer) = runtime.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            assert!(future::poll_once(&mut timer).await.is_none());
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            (stream, peer)
        });
        runtime.run();
        // Nor does one that is cancelled, or whose future has panicked.
        drop(runtime.spawn(hold(())));
        runtime.spawn(async { panic!("on purpose") }).detach();
        runtime.run();
        runtime.block_on(async {
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
        });
    });
}

#[test]
fn a_turn_of_no_time_never_blocks() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        assert!(!runtime.turn(Duration::ZERO), "there was nothing to do");
        let (mut stream, mut peer) = runtime.block_on(tcp_pair());
        runtime.spawn(sleep(Duration::from_secs(3_600))).detach();
        runtime.spawn(hold(())).detach();
        let task = runtime.spawn(async move {
            stream.read_exact(&mut [0]).await.unwrap();
        });
        runtime.turn(Duration::ZERO);
        // Were one of them to block, it would be for an hour.
        for _ in 0..1_000 {
            runtime.turn(Duration::ZERO);
        }
        assert!(!task.is_finished());
        // It looks at the kernel all the same.
        io::Write::write_all(&mut blocking(&mut peer), b"x").unwrap();
        eventually("the byte is read", || {
            runtime.turn(Duration::ZERO);
            task.is_finished()
        });
        // And at the clock.
        let task = runtime.spawn(sleep(Duration::from_millis(1)));
        eventually("the timer fires", || {
            runtime.turn(Duration::ZERO);
            task.is_finished()
        });
    });
}

/// The same socket, for the standard library.
fn blocking(stream: &mut TcpStream) -> std::net::TcpStream {
    stream.clone().try_into().unwrap()
}

#[test]
fn a_turn_without_a_limit_sleeps_until_there_is_something_to_do() {
    on_every_backend_alone(|backend| {
        let runtime = runtime(backend);
        let happened = Arc::new(AtomicBool::new(false));
        let (mut stream, mut peer) = runtime.block_on(tcp_pair());
        let signal = Signal::default();
        let waiting = signal.clone();
        runtime
            .spawn(async move { waiting.receive().await })
            .detach();
        let reader = runtime.spawn(async move {
            stream.read_exact(&mut [0]).await.unwrap();
        });
        while runtime.turn(Duration::ZERO) {}
        let handle = runtime.handle();
        let ends: [Box<dyn FnMut() + Send>; 3] = [
            Box::new(move || handle.spawn(async {}).detach()),
            Box::new(move || signal.send(())),
            Box::new(move || {
                io::Write::write_all(&mut blocking(&mut peer), b"x").unwrap();
            }),
        ];
        for mut end in ends {
            happened.store(false, SeqCst);
            let thread = thread::spawn({
                let happened = happened.clone();
                move || {
                    thread::sleep(Duration::from_millis(5));
                    happened.store(true, SeqCst);
                    end();
                }
            });
            let mut for_nothing = 0;
            while !runtime.turn(None) {
                for_nothing += 1;
                assert!(for_nothing < 10, "it does not sleep");
            }
            assert!(
                happened.load(SeqCst),
                "it found something before there was any"
            );
            thread.join().unwrap();
            while runtime.turn(Duration::ZERO) {}
        }
        runtime.block_on(reader);
        // A timer ends it too, and so does the limit, neither early.
        let start = Instant::now();
        let task = runtime.spawn(sleep(Duration::from_millis(3)));
        while !task.is_finished() {
            runtime.turn(None);
        }
        assert!(start.elapsed() >= Duration::from_millis(3));
        let start = Instant::now();
        let limit = Duration::from_millis(3);
        assert!(!runtime.turn(limit), "there was nothing to do");
        assert!(start.elapsed() >= limit, "early: {:?}", start.elapsed());
    });
}

// 51: foreign loops.

fn has_descriptor(backend: Backend) -> bool {
    Poller::new(backend).unwrap().capabilities().descriptor
}

#[test]
fn the_descriptor_is_where_the_capability_says_so() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        match runtime.backend_fd() {
            Ok(_) => assert!(has_descriptor(backend)),
            Err(error) => {
                assert!(!has_descriptor(backend), "{error}");
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            }
        };
    });
}

/// Waits as a foreign loop would: on the descriptor alone, or, where there is none, for as long as
/// the runtime says, but for no longer than a little.
fn foreign_wait(runtime: &Runtime) {
    match runtime.backend_fd() {
        Ok(descriptor) => wait_until_readable(descriptor),
        Err(_) => {
            let most = Duration::from_millis(1);
            let timeout = runtime.next_timeout();
            thread::sleep(timeout.map_or(most, |timeout| timeout.min(most)));
        }
    }
}

/// A foreign loop. Returns how often it came round.
fn foreign_loop(runtime: &Runtime, mut done: impl FnMut() -> bool) -> usize {
    let mut rounds = 0;
    while !done() {
        foreign_wait(runtime);
        runtime.turn(Duration::ZERO);
        rounds += 1;
    }
    rounds
}

#[test]
fn a_foreign_loop_drives_sockets_and_timers() {
    on_every_backend_alone(|backend| {
        let runtime = runtime(backend);
        // Queued before the descriptor is asked for.
        let task = runtime.spawn(async {
            let (mut a, mut b) = tcp_pair().await;
            let writer = polder::spawn(async move {
                for round in 0..20 {
                    sleep(Duration::from_micros(300)).await;
                    a.write_all(&[round]).await.unwrap();
                }
            });
            let mut bytes = [0; 20];
            b.read_exact(&mut bytes).await.unwrap();
            writer.await;
            assert!(bytes.into_iter().eq(0..20));
        });
        foreign_loop(&runtime, || task.is_finished());
        runtime.block_on(task);
        // A timer that was set in a drive of another kind.
        let mut timer = Timer::after(Duration::from_millis(20));
        runtime.block_on(async { assert!(future::poll_once(&mut timer).await.is_none()) });
        let start = Instant::now();
        let task = runtime.spawn_local(timer);
        let rounds = foreign_loop(&runtime, || task.is_finished());
        assert!(runtime.block_on(task) <= Instant::now());
        if has_descriptor(backend) {
            let elapsed = start.elapsed();
            assert!(rounds < 20, "the loop spun: {rounds} rounds in {elapsed:?}");
        }
    });
}

#[test]
fn a_foreign_loop_is_told_of_spawns_and_wakes_from_any_thread() {
    on_every_backend_alone(|backend| {
        let runtime = runtime(backend);
        let signal = Signal::default();
        let done = |task: Task<()>| foreign_loop(&runtime, || task.is_finished());
        let wait = || {
            let signal = signal.clone();
            let task = runtime.spawn(async move { signal.receive().await });
            while runtime.turn(Duration::ZERO) {}
            task
        };
        let _ = runtime.backend_fd();
        for _ in 0..sized(backend, 100) {
            // From this thread, between two turns.
            done(runtime.spawn(async {}));
            done(runtime.spawn_local(async {}));
            done(runtime.handle().spawn(async {}));
            let task = wait();
            signal.send(());
            done(task);
            let (alive, dropped) = (Alive::default(), Signal::default());
            let end = OnDrop({
                let dropped = dropped.clone();
                move || dropped.send(())
            });
            let task = runtime.spawn(hold((alive.guard(), end)));
            while runtime.turn(Duration::ZERO) {}
            drop(task);
            foreign_loop(&runtime, || dropped.try_receive().is_some());
            // From another thread, while this one waits.
            let thread = thread::spawn({
                let (handle, signal) = (runtime.handle(), signal.clone());
                move || {
                    let task = handle.spawn(async {});
                    signal.send(());
                    task
                }
            });
            done(wait());
            done(thread.join().unwrap());
        }
    });
}

#[test]
fn a_foreign_loop_runs_more_tasks_than_one_turn_does() {
    on_every_backend_alone(|backend| {
        let runtime = runtime(backend);
        let _ = runtime.backend_fd();
        let count = Rc::new(Cell::new(0));
        for _ in 0..1_000 {
            let count = count.clone();
            runtime
                .spawn_local(async move {
                    future::yield_now().await;
                    count.set(count.get() + 1);
                })
                .detach();
        }
        foreign_loop(&runtime, || count.get() == 1_000);
        // More events than one wait reports, too.
        let pairs = 150;
        let (streams, mut peers): (Vec<_>, Vec<_>) = runtime
            .block_on(async { join_all((0..pairs).map(|_| polder::spawn(tcp_pair()))).await })
            .into_iter()
            .unzip();
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|stream| runtime.spawn(one_byte(stream)))
            .collect();
        while runtime.turn(Duration::ZERO) {}
        for peer in &mut peers {
            io::Write::write_all(&mut blocking(peer), b"x").unwrap();
        }
        foreign_loop(&runtime, || tasks.iter().all(Task::is_finished));
    });
}

#[test]
fn the_descriptor_is_quiet_while_there_is_nothing_to_do() {
    on_every_backend_alone(|backend| {
        if !has_descriptor(backend) {
            return;
        }
        let runtime = runtime(backend);
        let descriptor = runtime.backend_fd().unwrap();
        let is_readable = || is_readable(descriptor);
        let quiet = |after: &str| {
            // A round or two for what is left over.
            let mut rounds = 0;
            while is_readable() {
                runtime.turn(Duration::ZERO);
                rounds += 1;
                assert!(rounds < 10, "readable after {after}, again and again");
            }
        };
        quiet("nothing");
        let (stream, peer) = runtime.block_on(tcp_pair());
        quiet("block_on");
        let reader = runtime.spawn(one_byte(stream));
        assert!(is_readable(), "a spawn is not told");
        let far = runtime.spawn(sleep(Duration::from_secs(3_600)));
        quiet("waits for I/O and time");
        runtime.block_on(send_byte(peer));
        foreign_loop(&runtime, || reader.is_finished());
        drop(far);
        assert!(is_readable(), "a cancelled task is not told");
        foreign_loop(&runtime, || runtime.turn(Duration::ZERO));
        quiet("the last task");
    });
}

/// From within a task, too: the first call, and a turn in the middle of a turn.
#[test]
fn embedding_begins_within_a_task_and_survives_nested_turns() {
    on_every_backend(|backend| {
        let runtime = Rc::new(runtime(backend));
        let signal = Signal::default();
        let task = runtime.spawn_local({
            let (runtime, signal) = (runtime.clone(), signal.clone());
            async move {
                let _ = runtime.backend_fd();
                let inner = polder::spawn_local(async { future::yield_now().await });
                while !inner.is_finished() {
                    runtime.turn(Duration::ZERO);
                }
                signal.receive().await;
                sleep(Duration::from_millis(1)).await;
            }
        });
        runtime.turn(Duration::ZERO);
        signal.send(());
        foreign_loop(&runtime, || task.is_finished());
    });
}

#[test]
fn next_timeout_says_how_long_a_foreign_loop_may_sleep() {
    on_every_backend_alone(|backend| {
        let runtime = runtime(backend);
        assert_eq!(runtime.next_timeout(), None);
        let task = runtime.spawn(async {
            future::yield_now().await;
            sleep(Duration::from_secs(3_600)).await;
        });
        assert_eq!(runtime.next_timeout(), Some(Duration::ZERO), "a new task");
        runtime.turn(Duration::ZERO);
        assert_eq!(
            runtime.next_timeout(),
            Some(Duration::ZERO),
            "one that yielded"
        );
        while runtime.turn(Duration::ZERO) {}
        let left = runtime.next_timeout().expect("a timer is pending");
        assert!(left > Duration::from_secs(3_000) && left <= Duration::from_secs(3_600));
        drop(task);
        assert_eq!(
            runtime.next_timeout(),
            Some(Duration::ZERO),
            "one to be dropped"
        );
        runtime.run();
        assert_eq!(runtime.next_timeout(), None);
    });
}

// 52: nesting.

#[test]
fn a_nested_block_on_drives_only_its_own_tasks() {
    const ME: &str = "runtime::a_nested_block_on_drives_only_its_own_tasks";
    let rule = |_| {
        polder::block_on(async {
            let outer_ran = Arc::new(AtomicBool::new(false));
            let flag = outer_ran.clone();
            let outer_task = polder::spawn(async move { flag.store(true, SeqCst) });
            let outer_waker = own_waker().await;
            let cancelled = Alive::default();
            let sum = polder::block_on(async {
                let waker = own_waker().await;
                assert!(!waker.will_wake(&outer_waker), "the wakers are the same");
                // A wake of the outer one in here is kept for it.
                outer_waker.wake_by_ref();
                polder::spawn(hold(cancelled.guard())).detach();
                sleep(Duration::from_millis(1)).await;
                let (mut a, b) = tcp_pair().await;
                a.write_all(b"x").await.unwrap();
                one_byte(b).await;
                // A third one.
                let three = polder::block_on(async { polder::spawn(async { 3 }).await });
                polder::spawn_local(async move { three + 1 }).await
            });
            assert_eq!(sum, 4);
            assert_eq!(cancelled.count(), 0);
            assert!(!outer_ran.load(SeqCst), "it drove the outer runtime's task");
            outer_task.await;
            // The same within a task.
            let inner = async { polder::spawn(async { 5 }).await };
            let task = polder::spawn(async { polder::block_on(inner) });
            assert_eq!(task.await, 5);
        });
        assert!(Handle::try_current().is_none());
    };
    in_children(ME, rule, |_, _| {});
}

#[test]
fn each_future_of_nested_block_ons_is_woken_by_its_own_waker() {
    on_every_backend(|backend| {
        let (outer, inner) = (runtime(backend), runtime(backend));
        let (one, two) = (Signal::default(), Signal::default());
        outer.block_on(async {
            // The outer future and an outer task wait, and are woken while the inner one is driven.
            let task = polder::spawn({
                let one = one.clone();
                async move { one.receive().await }
            });
            future::yield_now().await;
            let mut waiting = pin!(two.receive());
            assert!(future::poll_once(waiting.as_mut()).await.is_none());
            let thread = inner.block_on(async {
                one.send(());
                let two = two.clone();
                let thread = thread::spawn(move || two.send(()));
                sleep(Duration::from_millis(1)).await;
                polder::spawn(async {}).await;
                thread
            });
            waiting.await;
            task.await;
            thread.join().unwrap();
        });
    });
}

/// What is ready needs no worker. A task that has had its share of operations is told to come back,
/// and then gets more, even if only the foreign executor has come round. In a process of its own,
/// since nothing else could end it.
#[test]
fn a_foreign_executor_within_a_task_is_served_what_is_ready() {
    const ME: &str = "runtime::a_foreign_executor_within_a_task_is_served_what_is_ready";
    let rule = |backend| {
        within(Duration::from_secs(20), "the foreign executor", move || {
            runtime(backend).block_on(async {
                let task = polder::spawn(async {
                    futures_lite::future::block_on(async {
                        for _ in 0..1_000 {
                            Timer::after(Duration::ZERO).await;
                        }
                        7
                    })
                });
                assert_eq!(task.await, 7);
            });
        });
    };
    in_children(ME, rule, |_, _| {});
}

// 53: two threads.

#[test]
fn two_runtimes_on_two_threads_pass_sockets_timers_and_tasks() {
    on_every_backend(|backend| {
        enum Thing {
            Stream(TcpStream, u8),
            Timer(Timer, Instant),
            Task(Task<u8>, u8),
        }
        let rounds = sized(backend, 300);
        let (to_one, to_two) = (Mailbox::<Thing>::default(), Mailbox::default());
        let work = move |from: Mailbox<Thing>, to: Mailbox<Thing>, ours: Signal, theirs: Signal| {
            runtime(backend).block_on(async {
                let sender = polder::spawn(async move {
                    let mut tasks = Vec::new();
                    let (mut kept, given) = tcp_pair().await;
                    let mut given = Some(given);
                    for round in 0..rounds {
                        let number = round as u8;
                        to.send(match round % 3 {
                            0 => {
                                let mut stream = match given.take() {
                                    Some(stream) => stream,
                                    None => {
                                        let pair = tcp_pair().await;
                                        kept = pair.0;
                                        pair.1
                                    }
                                };
                                // It waits here before it goes.
                                let mut byte = [0];
                                let read = future::poll_once(stream.read(&mut byte)).await;
                                assert!(read.is_none());
                                let mut writer = kept.clone();
                                tasks.push(polder::spawn(async move {
                                    future::yield_now().await;
                                    writer.write_all(&[number]).await.unwrap();
                                    // Until the other side has it.
                                    writer.read_exact(&mut [0]).await.unwrap();
                                    0
                                }));
                                Thing::Stream(stream, number)
                            }
                            1 => {
                                let due = Instant::now() + Duration::from_micros(500);
                                let mut timer = Timer::at(due);
                                if round % 2 == 0 {
                                    let _ = future::poll_once(&mut timer).await;
                                    timer.set_at(due);
                                }
                                Thing::Timer(timer, due)
                            }
                            _ => Thing::Task(
                                polder::spawn(async move {
                                    sleep(Duration::from_micros(200)).await;
                                    number
                                }),
                                number,
                            ),
                        });
                        if round % 7 == 0 {
                            future::yield_now().await;
                        }
                    }
                    join_all(tasks).await;
                });
                for _ in 0..rounds {
                    match from.receive().await {
                        Thing::Stream(mut stream, number) => {
                            let mut byte = [0];
                            stream.read_exact(&mut byte).await.unwrap();
                            assert_eq!(byte, [number]);
                            stream.write_all(&byte).await.unwrap();
                        }
                        Thing::Timer(timer, due) => {
                            assert_eq!(timer.await, due);
                            assert!(Instant::now() >= due, "early");
                        }
                        Thing::Task(task, number) => assert_eq!(task.await, number),
                    }
                }
                sender.await;
                // Tasks that were given away run here until the other side has them all.
                theirs.send(());
                ours.receive().await;
            })
        };
        let (one, two) = (Signal::default(), Signal::default());
        let thread = thread::spawn({
            let (from, to, ours, theirs) =
                (to_two.clone(), to_one.clone(), two.clone(), one.clone());
            move || work(from, to, ours, theirs)
        });
        work(to_one, to_two, one, two);
        thread.join().unwrap();
    });
}

// 54: plain threads.

#[test]
fn sockets_timers_and_spawn_work_on_plain_threads() {
    const ME: &str = "runtime::sockets_timers_and_spawn_work_on_plain_threads";
    let rule = |backend| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    assert!(Handle::try_current().is_none());
                    futures_lite::future::block_on(async {
                        let (mut a, b) = tcp_pair().await;
                        future::zip(one_byte(b.clone()), send_byte(a.clone())).await;
                        let start = Instant::now();
                        Timer::after(Duration::from_millis(2)).await;
                        assert!(start.elapsed() >= Duration::from_millis(2));
                        assert_eq!(polder::spawn(async { 1 }).await, 1);
                        assert_eq!(Handle::current().spawn(async { 2 }).await, 2);
                        // From here into a task of the background runtime, and back.
                        let echo = polder::spawn(async move {
                            assert!(Handle::try_current().is_some(), "it runs nowhere");
                            let (reader, writer) = b.into_split();
                            polder::io::copy(reader, writer).await.unwrap()
                        });
                        let mut bytes = vec![3; 100_000];
                        let (mut writer, mut reader) = (a.clone(), a.clone());
                        future::zip(
                            async {
                                writer.write_all(&vec![3; 100_000]).await.unwrap();
                                writer.close().await.unwrap();
                            },
                            async { reader.read_exact(&mut bytes).await.unwrap() },
                        )
                        .await;
                        assert_eq!(a.read(&mut [0]).await.unwrap(), 0);
                        assert_eq!(echo.await, 100_000);
                        let late = timeout(Duration::from_millis(1), std::future::pending::<()>());
                        assert!(late.await.is_err());
                        // A panic there reaches whoever awaits it here, and it goes on.
                        let task = polder::spawn(async { panic!("on purpose") });
                        let task: Task<()> = task;
                        let result =
                            catch_unwind(AssertUnwindSafe(|| futures_lite::future::block_on(task)));
                        assert!(result.is_err());
                        let sleeper = polder::spawn(sleep(Duration::from_secs(3_600)));
                        assert!(sleeper.cancel().await.is_none());
                    });
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let there = polder::spawn(async { thread::current().name().map(String::from) });
        assert_eq!(
            futures_lite::future::block_on(there).as_deref(),
            Some("polder-background"),
            "on {backend}"
        );
    };
    in_children(ME, rule, |_, _| {});
}

/// A waker is foreign code. That one panics is nobody else's fault: nobody else is to be left
/// waiting, and the background runtime goes on.
#[test]
fn a_waker_that_panics_leaves_nobody_else_waiting() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose, in a waker");
        }
    }
    const ME: &str = "runtime::a_waker_that_panics_leaves_nobody_else_waiting";
    let rule = |backend| {
        let timers = |good: Waker| {
            let due = Instant::now() + Duration::from_millis(30);
            let (mut first, mut second) = (Timer::at(due), Timer::at(due));
            assert!(poll_with(&mut first, &Arc::new(Panics).into()).is_pending());
            assert!(poll_with(&mut second, &good).is_pending());
            (first, second)
        };
        // In a runtime: both are due at the same time.
        let runtime = runtime(backend);
        let (wakes, waker) = Wakes::new();
        let _timers = runtime.block_on(async { timers(waker) });
        let start = Instant::now();
        while wakes.count() == 0 {
            let turn = || runtime.turn(Duration::from_millis(1));
            let _ = catch_unwind(AssertUnwindSafe(turn));
            assert!(start.elapsed() < Duration::from_secs(20), "a wake was lost");
        }
        // On a plain thread: the same, and then another wait, socket and task.
        within(
            Duration::from_secs(20),
            "the background runtime",
            move || {
                futures_lite::future::block_on(polder::spawn(async {}));
                let (wakes, waker) = Wakes::new();
                let _timers = timers(waker);
                eventually("the other timer is told", || wakes.count() > 0);
                futures_lite::future::block_on(async {
                    Timer::after(Duration::from_millis(1)).await;
                    let (a, b) = tcp_pair().await;
                    future::zip(one_byte(a), send_byte(b)).await;
                    polder::spawn(async {}).await;
                });
            },
        );
    };
    in_children(ME, rule, |_, _| {});
}

// 55: nothing is left.

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_runtimes_leave_no_descriptor_thread_or_memory() {
    const ME: &str = "runtime::a_thousand_runtimes_leave_no_descriptor_thread_or_memory";
    let rule = |backend| {
        let one = |round: usize| {
            let runtime = runtime(backend);
            let alive = Alive::default();
            if round % 4 == 0 {
                let _ = runtime.backend_fd();
            }
            let handle = runtime.handle();
            let task = runtime.spawn(async move {
                let (a, b) = tcp_pair().await;
                future::zip(one_byte(a), send_byte(b)).await;
                sleep(Duration::from_micros(50)).await;
            });
            // Without sleeping: on a busy machine a thousand sleeps take long.
            while !task.is_finished() {
                runtime.turn(Duration::ZERO);
            }
            runtime.block_on(task);
            // Left to the end of the runtime: a task with a socket, a timer, a buffer and a handle.
            let guard = alive.guard();
            runtime
                .spawn(async move {
                    let _things = (guard, vec![1_u8; 10_000], handle);
                    let (a, _b) = tcp_pair().await;
                    let _ = timeout(Duration::from_secs(3_600), one_byte(a)).await;
                })
                .detach();
            for _ in 0..5 {
                runtime.turn(Duration::ZERO);
            }
            assert_eq!(alive.count(), 1);
            drop(runtime);
            assert_eq!(alive.count(), 0);
        };
        let left = || [entries("/proc/self/fd"), entries("/proc/self/task")];
        (0..100).for_each(one);
        let (left_before, memory_before) = (left(), resident());
        (0..sized(backend, 1_000)).for_each(one);
        assert_eq!(left(), left_before, "descriptors, threads");
        let more = resident().saturating_sub(memory_before);
        // A thousand queues, or buffers, that were left would be more.
        assert!(more < 3_000_000, "{more} bytes more memory");
    };
    in_children(ME, rule, |_, _| {});
}

// What lies between.

#[test]
fn shutdown_lets_tasks_finish_and_counts_those_that_did_not() {
    on_every_backend(|backend| {
        let done = Arc::new(AtomicUsize::new(0));
        let alive = Alive::default();
        let fill = |sleepers: usize, endless: usize| {
            let runtime = runtime(backend);
            for _ in 0..sleepers {
                let (done, guard) = (done.clone(), alive.guard());
                runtime
                    .spawn(async move {
                        let _guard = guard;
                        sleep(Duration::from_millis(2)).await;
                        polder::spawn(async move { done.fetch_add(1, SeqCst) }).detach();
                    })
                    .detach();
            }
            for _ in 0..endless {
                runtime.spawn_local(hold(alive.guard())).detach();
            }
            runtime
        };
        // All end by themselves: no need to wait for the limit.
        assert_eq!(fill(10, 0).shutdown(Duration::MAX), 0);
        assert_eq!((done.swap(0, SeqCst), alive.count()), (10, 0));
        assert_eq!(fill(0, 0).shutdown(Duration::ZERO), 0);
        // Some never end. How long the others need is the machine's business: they are given more and
        // more time until it was enough.
        let mut limit = Duration::from_millis(100);
        loop {
            let runtime = fill(10, 3);
            let start = Instant::now();
            let cancelled = runtime.shutdown(limit);
            assert!(start.elapsed() >= limit, "it did not wait");
            assert_eq!(alive.count(), 0);
            match done.swap(0, SeqCst) {
                10 => break assert_eq!(cancelled, 3),
                finished => assert!(cancelled > 3, "{cancelled} cancelled, {finished} finished"),
            }
            limit *= 2;
        }
        // No time at all, polled before or not.
        assert_eq!(fill(0, 4).shutdown(Duration::ZERO), 4);
        let runtime = fill(0, 2);
        for _ in 0..2 {
            runtime.spawn(hold(alive.guard())).detach();
        }
        runtime.turn(Duration::ZERO);
        assert_eq!(runtime.shutdown(Duration::ZERO), 4);
        assert_eq!(alive.count(), 0);
        // One that is always ready does not keep it for ever.
        let runtime = fill(0, 0);
        runtime
            .spawn(async {
                loop {
                    future::yield_now().await;
                }
            })
            .detach();
        assert_eq!(runtime.shutdown(Duration::from_millis(5)), 1);
    });
}

#[test]
fn a_turn_within_a_task_drives_the_others() {
    on_every_backend(|backend| {
        let runtime = Rc::new(runtime(backend));
        let order = Rc::new(RefCell::new(Vec::new()));
        let log = |what: &'static str| order.borrow_mut().push(what);
        let task = runtime.spawn_local({
            let (runtime, order) = (runtime.clone(), order.clone());
            async move {
                let log = |what| order.borrow_mut().push(what);
                let inner = polder::spawn_local({
                    let order = order.clone();
                    async move {
                        order.borrow_mut().push("inner");
                        future::yield_now().await;
                        let (a, b) = tcp_pair().await;
                        future::zip(one_byte(a), send_byte(b)).await;
                        sleep(Duration::from_millis(1)).await;
                        order.borrow_mut().push("inner again");
                    }
                });
                // This task itself is woken meanwhile, and runs only when it has returned.
                let waker = own_waker().await;
                while !inner.is_finished() {
                    waker.wake_by_ref();
                    runtime.turn(Duration::from_millis(1));
                }
                log("outer");
                // Any drive does.
                assert_eq!(runtime.block_on(polder::spawn(async { 8 })), 8);
                future::yield_now().await;
                drop(runtime);
                log("the end");
            }
        });
        log("begin");
        runtime.block_on(task);
        let expected = ["begin", "inner", "inner again", "outer", "the end"];
        assert_eq!(*order.borrow(), expected);
        assert_eq!(Rc::strong_count(&runtime), 1);
    });
}

/// A waker may drive the runtime that calls it.
#[test]
fn a_turn_within_a_waker_is_a_turn() {
    on_every_backend(|backend| {
        thread_local! {
            static DRIVEN: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
        }
        #[derive(Default)]
        struct Turns(AtomicUsize);
        impl Wake for Turns {
            fn wake(self: Arc<Self>) {
                let runtime = DRIVEN.with_borrow(Clone::clone);
                runtime.expect("it is kept there").turn(Duration::ZERO);
                self.0.fetch_add(1, SeqCst);
            }
        }
        let runtime = Rc::new(runtime(backend));
        DRIVEN.set(Some(runtime.clone()));
        let turns = Arc::new(Turns::default());
        let waker = Waker::from(turns.clone());
        let (mut stream, peer) = runtime.block_on(tcp_pair());
        runtime.block_on(async {
            let due = Instant::now() + Duration::from_millis(20);
            let mut timers: Vec<_> = (0..3).map(|_| Timer::at(due)).collect();
            for timer in &mut timers {
                assert!(poll_with(timer, &waker).is_pending());
            }
            assert!(poll_with(&mut stream.read(&mut [0]), &waker).is_pending());
            send_byte(peer).await;
            while turns.0.load(SeqCst) < 4 {
                sleep(Duration::from_millis(1)).await;
            }
        });
        DRIVEN.take();
    });
}

#[test]
fn a_runtime_kept_in_a_thread_local_is_dropped_at_the_threads_end() {
    thread_local! {
        static KEPT: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    }
    on_every_backend(|backend| {
        let alive = Alive::default();
        // Which of the thread's locals goes first depends on which was used first.
        for drives_before in [false, true] {
            let alive = alive.clone();
            let thread = thread::spawn(move || {
                if drives_before {
                    runtime(backend).block_on(async {});
                }
                KEPT.set(Some(runtime(backend)));
                KEPT.with_borrow(|runtime| {
                    let runtime = runtime.as_ref().unwrap();
                    let handle = runtime.handle();
                    let guard = alive.guard();
                    runtime
                        .spawn(async move {
                            let _guard = guard;
                            let (a, _b) = tcp_pair().await;
                            let _ = timeout(Duration::from_secs(3_600), one_byte(a)).await;
                        })
                        .detach();
                    let inner = alive.clone();
                    let spawns = OnDrop(move || {
                        handle.spawn(hold(inner.guard())).detach();
                    });
                    runtime.spawn(hold((alive.guard(), spawns))).detach();
                    runtime.block_on(async {
                        for _ in 0..5 {
                            future::yield_now().await;
                        }
                    });
                    runtime.spawn(hold(alive.guard())).detach();
                });
                assert_eq!(alive.count(), 3);
            });
            within(LIMIT, "the end of the thread", || thread.join().unwrap());
        }
        assert_eq!(alive.count(), 0);
    });
}

/// What is kept in a thread-local may want to say goodbye: its destructor drives.
#[test]
fn a_runtime_is_driven_while_a_thread_ends() {
    struct Kept(Option<Runtime>, Alive);
    impl Drop for Kept {
        fn drop(&mut self) {
            let runtime = self.0.take().unwrap();
            // The end of a thread that panics takes the whole process along.
            let result = catch_unwind(AssertUnwindSafe(|| {
                runtime.block_on(async {
                    let (a, b) = tcp_pair().await;
                    future::zip(one_byte(a), send_byte(b)).await;
                    sleep(Duration::from_millis(1)).await;
                });
                runtime.spawn(hold(self.1.guard())).detach();
                runtime.spawn_local(hold(self.1.guard())).detach();
                runtime.turn(Duration::ZERO);
                runtime.turn(Duration::ZERO);
                runtime.block_on(async { polder::spawn_local(async { 1 }).await })
            }));
            drop(runtime);
            OUTCOMES.lock().unwrap().push(result.is_ok());
        }
    }
    static OUTCOMES: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    thread_local! {
        static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
    }
    on_every_backend(|backend| {
        let alive = Alive::default();
        for drives_before in [false, true] {
            let alive = alive.clone();
            let thread = thread::spawn(move || {
                if drives_before {
                    runtime(backend).block_on(async {});
                }
                let runtime = runtime(backend);
                KEPT.with_borrow_mut(|kept| {
                    runtime.block_on(async {});
                    *kept = Some(Kept(Some(runtime), alive));
                });
            });
            let limit = Duration::from_secs(20);
            within(limit, "the end of the thread", || thread.join().unwrap());
            assert_eq!(
                OUTCOMES.lock().unwrap().pop(),
                Some(true),
                "it is no runtime there"
            );
        }
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_leaked_runtime_harms_nothing() {
    on_every_backend_alone(|backend| {
        let leaked = runtime(backend);
        let alive = Alive::default();
        let (mut stream, mut peer, timer) = leaked.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            let mut timer = Timer::after(Duration::from_millis(20));
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            assert!(future::poll_once(&mut timer).await.is_none());
            (stream, peer, timer)
        });
        let handle = leaked.handle();
        let signal = Signal::default();
        let begun = leaked.spawn({
            let (signal, guard) = (signal.clone(), alive.guard());
            async move {
                let _guard = guard;
                signal.receive().await;
            }
        });
        leaked.turn(Duration::ZERO);
        std::mem::forget(leaked);
        // Its tasks take wakes, cancels and company, and never run.
        for _ in 0..1_000 {
            handle.spawn(async {}).detach();
        }
        signal.send(());
        let mut begun = begun;
        runtime(backend).block_on(async {
            timer.await;
            future::zip(
                async { stream.read_exact(&mut [0]).await.unwrap() },
                async { peer.write_all(b"x").await.unwrap() },
            )
            .await;
            assert!(future::poll_once(&mut begun).await.is_none());
        });
        thread::spawn(move || drop(begun)).join().unwrap();
        assert_eq!(alive.count(), 1);
        polder::block_on(async { polder::spawn(async {}).await });
    });
}

#[test]
fn a_runtime_that_is_dropped_while_a_panic_unwinds_drops_its_futures() {
    on_every_backend(|backend| {
        let alive = Alive::default();
        let guards = alive.clone();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let runtime = runtime(backend);
            runtime.spawn(hold(guards.guard())).detach();
            runtime.block_on(async {
                polder::spawn(hold(guards.guard())).detach();
                sleep(Duration::from_millis(1)).await;
                panic!("on purpose");
            })
        }));
        assert!(result.is_err());
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_handle_tells_the_backend_as_its_runtime_does_also_from_afar_and_after_its_end() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let handle = runtime.handle();
        assert_eq!((runtime.backend(), handle.backend()), (backend, backend));
        let here = runtime.block_on(async { Handle::current().backend() });
        let there = runtime.block_on(runtime.spawn(async { Handle::current().backend() }));
        assert_eq!((here, there), (backend, backend));
        let thread = thread::spawn({
            let handle = handle.clone();
            move || handle.backend()
        });
        assert_eq!(thread.join().unwrap(), backend);
        drop(runtime);
        assert_eq!(handle.backend(), backend);
    });
}

// 59: reactors beside ours.

/// Nothing of polder's own is pending meanwhile. async-io's timers, sockets and wakers are called by a
/// thread of its own, or, in its `block_on`, by ours.
#[test]
fn another_reactors_timers_sockets_and_wakers_end_a_wait() {
    use std::net::UdpSocket;

    crate::support::in_every_runtime(|backend| async move {
        let rounds = sized(backend, 100);
        for _ in 0..rounds {
            async_io::Timer::after(Duration::from_micros(100)).await;
        }
        let near = async_io::Async::<UdpSocket>::bind(([127, 0, 0, 1], 0)).unwrap();
        let address = near.get_ref().local_addr().unwrap();
        let far = polder::spawn(async move {
            let far = async_io::Async::<UdpSocket>::bind(([127, 0, 0, 1], 0)).unwrap();
            for _ in 0..rounds {
                async_io::Timer::after(Duration::from_micros(100)).await;
                far.send_to(b"x", address).await.unwrap();
            }
        });
        for _ in 0..rounds {
            near.recv(&mut [0; 1]).await.unwrap();
        }
        far.await;
        // Within a task of ours, its own loop drives both: it wakes a task of this worker.
        let event = Arc::new(polder::Event::new());
        let waits = polder::spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        future::yield_now().await;
        async_io::block_on(async {
            async_io::Timer::after(Duration::from_millis(1)).await;
            event.set();
        });
        waits.await;
    });
}

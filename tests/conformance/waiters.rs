//! Waiters and their wakers: rules 60, 63 to 66, 71, 73 and 74.
//!
//! A waker is foreign code: it may do anything where it is cloned, called or dropped.

use std::future::Future;
use std::io;
use std::net;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use polder::event::{Event, Latch};
use polder::future::{self, yield_now};
use polder::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::stream::StreamExt;
use polder::time::{Elapsed, sleep, sleep_until, timeout};
use polder::{Async, Timer};

use crate::probe::{accept_from, join_all, listen, tcp_pair};
use crate::streams::{Count, poll_future};
use crate::support::{
    a_turn, eventually, in_every_kernel_runtime, in_every_runtime, in_every_runtime_alone,
    on_every_backend_alone, runtime, until, within,
};

const SOON: Duration = Duration::from_millis(2);
const FAR: Duration = Duration::from_secs(3_600);

/// A time limit for operations that end immediately or never.
const SHORT: Duration = Duration::from_secs(10);

/// A waker that runs given code in its clone and in its drop.
struct Foreign {
    on_clone: Box<dyn Fn() + Send + Sync>,
    on_drop: Box<dyn Fn() + Send + Sync>,
    wakes: AtomicUsize,
}

impl Foreign {
    fn new(
        on_clone: impl Fn() + Send + Sync + 'static,
        on_drop: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Foreign> {
        Arc::new(Foreign {
            on_clone: Box::new(on_clone),
            on_drop: Box::new(on_drop),
            wakes: AtomicUsize::new(0),
        })
    }

    /// Makes a waker that calls `f` in its clone and in its drop.
    fn doing(f: impl Fn() + Send + Sync + Clone + 'static) -> Arc<Foreign> {
        Foreign::new(f.clone(), f)
    }

    fn waker(self: &Arc<Self>) -> Waker {
        let raw = RawWaker::new(Arc::into_raw(self.clone()).cast(), &VTABLE);
        // SAFETY: the functions of the table keep one count of the `Arc` for each waker, and it is
        // `Send` and `Sync`.
        unsafe { Waker::from_raw(raw) }
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        let data = data.cast::<Foreign>();
        // SAFETY: a waker of this table holds a count, so it is alive, and gets one more.
        unsafe {
            ((*data).on_clone)();
            Arc::increment_strong_count(data);
        }
        RawWaker::new(data.cast(), &VTABLE)
    },
    |data| {
        // SAFETY: this takes over the waker's count.
        let foreign = unsafe { Arc::from_raw(data.cast::<Foreign>()) };
        foreign.wakes.fetch_add(1, Ordering::SeqCst);
        (foreign.on_drop)();
    },
    |data| {
        // SAFETY: as in the first.
        unsafe { &*data.cast::<Foreign>() }
            .wakes
            .fetch_add(1, Ordering::SeqCst);
    },
    |data| {
        // SAFETY: this takes over the waker's count.
        let foreign = unsafe { Arc::from_raw(data.cast::<Foreign>()) };
        (foreign.on_drop)();
    },
);

/// Polls once with this waker.
fn poll_as<F: Future + Unpin>(future: &mut F, foreign: &Arc<Foreign>) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&foreign.waker()))
}

/// `make` returns a future that waits. It is polled with wakers whose clone and drop make, poll and
/// drop another such future; each waker replaces the one before.
fn reenter<F: Future + Unpin>(make: impl Fn() -> F + Send + Sync + Clone + 'static) {
    let calls = Arc::new(AtomicUsize::new(0));
    let again = {
        let (make, calls) = (make.clone(), calls.clone());
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
            let mut inner = make();
            let _ = Pin::new(&mut inner).poll(&mut Context::from_waker(Waker::noop()));
        }
    };
    let mut future = make();
    for _ in 0..3 {
        let foreign = Foreign::doing(again.clone());
        assert!(poll_as(&mut future, &foreign).is_pending());
    }
    drop(future);
    assert!(calls.load(Ordering::SeqCst) > 0, "nobody was called");
}

/// Polls a pending future with a waker whose clone panics, and then with a normal one.
fn cannot_be_cloned<F: Future + Unpin>(mut future: F) -> F {
    let foreign = Foreign::new(|| panic!("a clone that panics, on purpose"), || {});
    let polled = catch_unwind(AssertUnwindSafe(|| poll_as(&mut future, &foreign)));
    assert!(polled.is_err(), "it was not cloned");
    // And once more, where a waker is already registered.
    let count = Count::new();
    assert!(poll_future(&mut future, &count).is_pending());
    let polled = catch_unwind(AssertUnwindSafe(|| poll_as(&mut future, &foreign)));
    assert!(polled.is_err(), "it was not cloned");
    assert!(poll_future(&mut future, &count).is_pending());
    future
}

fn udp() -> (Arc<Async<net::UdpSocket>>, net::UdpSocket) {
    let near = net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = net::UdpSocket::bind("127.0.0.1:0").unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    (Arc::new(Async::new(near).unwrap()), far)
}

// 60: wakers run arbitrary code.

/// A waker that uses an event where it is cloned and dropped finds no lock held.
#[test]
fn waker_using_event_finds_no_lock() {
    within(SHORT, "an event", || {
        let event: &'static Event = Box::leak(Box::default());
        reenter(|| event.wait());
    });
    within(SHORT, "a latch", || {
        let latch: &'static Latch = Box::leak(Box::default());
        reenter(|| latch.wait());
    });
}

/// A waker that uses a socket where it is cloned and dropped finds no lock held.
#[test]
fn waker_using_socket_finds_no_lock() {
    in_every_runtime(|_| async {
        let socket: &'static UdpSocket =
            Box::leak(Box::new(UdpSocket::bind("127.0.0.1:0").await.unwrap()));
        reenter(|| Box::pin(async { socket.recv(&mut [0; 8]).await }));

        let (lent, _far) = udp();
        reenter({
            let lent = lent.clone();
            move || lent.clone().readable_owned()
        });
        reenter(move || {
            let lent = lent.clone();
            future::poll_fn(move |cx| lent.poll_readable(cx))
        });
    });
}

/// A waker that uses a timer where it is cloned and dropped finds no lock held.
#[test]
fn waker_using_timer_finds_no_lock() {
    // Timers of a worker, and of a plain thread.
    in_every_runtime(|_| async {
        reenter(|| Timer::after(FAR));
        let (mut timer, count) = (Timer::after(SOON), Count::new());
        if poll_future(&mut timer, &count).is_pending() {
            until("a timer fires", || count.woken() > 0).await;
            reenter_a_fired_timer(timer);
        }
    });
    within(SHORT, "on a plain thread", || {
        reenter(|| Timer::after(FAR));
        let (mut timer, count) = (Timer::after(SOON), Count::new());
        if poll_future(&mut timer, &count).is_pending() {
            eventually("a timer fires", || count.woken() > 0);
            reenter_a_fired_timer(timer);
        }
    });
}

/// Polls a fired timer with a waker, which is not kept.
fn reenter_a_fired_timer(mut timer: Timer) {
    let again = || {
        let mut other = Timer::after(FAR);
        let _ = Pin::new(&mut other).poll(&mut Context::from_waker(Waker::noop()));
    };
    assert!(poll_as(&mut timer, &Foreign::doing(again)).is_ready());
}

#[test]
fn waker_clone_panic_leaves_all_usable() {
    in_every_runtime(|_| async {
        let event = Event::new();
        let wait = cannot_be_cloned(event.wait());
        event.set();
        wait.await;

        let latch = Latch::new();
        let wait = cannot_be_cloned(latch.wait());
        latch.set();
        wait.await;

        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut bytes = [0; 8];
        // An `async fn` that has panicked cannot be polled again. The socket and its other waiters
        // still work.
        let count = Count::new();
        let mut receive = Box::pin(near.recv(&mut bytes));
        assert!(poll_future(&mut receive, &count).is_pending());
        let foreign = Foreign::new(|| panic!("a clone that panics, on purpose"), || {});
        let mut other = [0; 8];
        let mut other = Box::pin(near.recv(&mut other));
        let polled = catch_unwind(AssertUnwindSafe(|| poll_as(&mut other, &foreign)));
        assert!(polled.is_err(), "it was not cloned");
        drop(other);
        far.send_to(b"x", near.local_addr().unwrap()).await.unwrap();
        assert_eq!(receive.await.unwrap(), 1);

        let (near, far) = udp();
        let readable = cannot_be_cloned(near.clone().readable_owned());
        let polls = cannot_be_cloned(future::poll_fn(|cx| near.poll_readable(cx)));
        far.send(b"x").unwrap();
        readable.await.unwrap();
        polls.await.unwrap();

        let mut timer = cannot_be_cloned(Timer::after(FAR));
        timer.set_after(SOON);
        timer.await;
    });
    within(SHORT, "on a plain thread", || {
        let mut timer = cannot_be_cloned(Timer::after(FAR));
        timer.set_after(SOON);
        futures_lite::future::block_on(timer);
    });
}

#[test]
fn waker_drop_panic_costs_no_other_wake() {
    in_every_runtime(|_| async {
        let panics = || Foreign::new(|| {}, || panic!("a drop that panics, on purpose"));
        // Only the clones that polder keeps are dropped: we leak our own waker.
        let poll = |future: Pin<&mut dyn Future<Output = ()>>, foreign: &Arc<Foreign>| {
            let waker = std::mem::ManuallyDrop::new(foreign.waker());
            assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
        };
        let (event, latch) = (Event::new(), Latch::new());
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let receive = async |near: &UdpSocket| drop(near.recv(&mut [0; 8]).await);
        let mut first = pin!(event.wait());
        poll(first.as_mut(), &panics());
        poll(first.as_mut(), &panics()); // It replaces the other one.
        let second = event.wait();
        event.set();
        event.set();
        first.await;
        second.await;
        {
            let mut given_up = pin!(latch.wait());
            poll(given_up.as_mut(), &panics());
        }
        let mut waits = pin!(latch.wait());
        poll(waits.as_mut(), &panics());
        latch.set();
        waits.await;
        {
            let mut given_up = pin!(receive(&near));
            poll(given_up.as_mut(), &panics());
            poll(given_up.as_mut(), &panics());
        }
        let mut timer = Timer::after(FAR);
        {
            let mut never = pin!(async {
                let _ = (&mut timer).await;
            });
            poll(never.as_mut(), &panics());
            poll(never.as_mut(), &panics());
        }
        drop(timer);
        sleep(SOON).await;
    });
}

// 63: one runtime is not driven, and others go on.

/// Operations of foreign threads on a runtime that is not driven use bounded memory.
#[cfg(target_os = "linux")]
#[test]
fn undriven_runtime_bounded_memory() {
    use crate::child::{in_children, resident};

    const TIMES: usize = if cfg!(tsan) { 30_000 } else { 300_000 };
    in_children(|backend| {
        let runtime = runtime(backend);
        let mut timers = [Timer::after(FAR), Timer::after(FAR), Timer::after(FAR)];
        runtime.block_on(async {
            for timer in &mut timers {
                assert!(future::poll_once(timer).await.is_none());
            }
        });
        let event = Arc::new(Event::new());
        let task = runtime.spawn({
            let event = event.clone();
            async move {
                loop {
                    event.wait().await;
                }
            }
        });
        runtime.run_once(Duration::ZERO);
        let thread = std::thread::spawn(move || {
            let [one, two, three] = &mut timers;
            let mut round = |i: u64| {
                let due = Instant::now() + FAR + Duration::from_millis(i);
                one.set_at(due);
                two.set_at(due);
                match i % 2 {
                    0 => three.clear(),
                    _ => three.set_at(due),
                }
                event.set();
            };
            (0..1_000).for_each(&mut round);
            let before = resident();
            (0..TIMES as u64).for_each(&mut round);
            resident().saturating_sub(before)
        });
        let grown = thread.join().unwrap();
        assert!(grown < 4 << 20, "{grown} bytes for {TIMES} rounds");
        drop(task);
    });
}

// 64: a runtime that was left is not woken.

/// A runtime that was left is not woken for a socket that is used elsewhere.
#[test]
fn left_runtime_not_woken_for_moved_socket() {
    on_every_backend_alone(|backend| {
        if backend.name() == "async-io" {
            return; // One reactor for the whole process: a thread that sleeps serves all.
        }
        let (left, other) = (runtime(backend), runtime(backend));
        let near = left.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        let far = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        let mut bytes = [0; 8];
        left.block_on(async { assert!(future::poll_once(near.recv(&mut bytes)).await.is_none()) });
        let count = Count::new();
        let mut receive = Box::pin(near.recv(&mut bytes));
        other.block_on(async { assert!(poll_future(&mut receive, &count).is_pending()) });
        let pause = Duration::from_millis(5);
        let start = Instant::now();
        far.send(b"x").unwrap();
        assert!(
            !left.run_once(pause),
            "somebody was woken by the runtime that was left"
        );
        assert!(
            start.elapsed() >= pause,
            "it came round for what is waited for elsewhere"
        );
        assert_eq!(count.woken(), 0, "the runtime that was left told of it");
        assert_eq!(other.block_on(receive).unwrap(), 1);
    });
}

/// A runtime that was left is not woken for a timer that is used elsewhere.
#[test]
fn left_runtime_not_woken_for_moved_timer() {
    on_every_backend_alone(|backend| {
        let (left, other) = (runtime(backend), runtime(backend));
        let mut timer = Timer::after(FAR);
        left.block_on(async { assert!(future::poll_once(&mut timer).await.is_none()) });
        assert!(left.next_timeout().is_some());
        other.block_on(async { assert!(future::poll_once(&mut timer).await.is_none()) });
        assert!(other.next_timeout().is_some(), "it is nowhere");
        assert_eq!(left.next_timeout(), None, "it stayed where it was");
    });
}

/// A timer of a plain thread follows its user into a runtime.
///
/// A timer that was polled on a plain thread is registered with the background runtime; once it is
/// polled on a worker, it is registered with that worker.
#[test]
fn timer_of_plain_thread_moves_to_runtime() {
    on_every_backend_alone(|backend| {
        let mut timer = Timer::after(FAR);
        let count = Count::new();
        assert!(poll_future(&mut timer, &count).is_pending());
        let runtime = runtime(backend);
        runtime.block_on(async {
            assert!(poll_future(&mut timer, &count).is_pending());
        });
        // Otherwise each poll would take the background runtime's lock, and its thread would fire
        // the timer.
        assert!(runtime.next_timeout().is_some(), "it stayed a locked timer");
    });
}

// 65: waiters are served in order.

#[test]
fn a_hundred_accepts_by_two_tasks_are_fifty_each() {
    in_every_runtime_alone(|_| async {
        let (listener, address) = listen().await;
        let counts: Arc<[AtomicUsize; 2]> = Arc::default();
        let tasks = [0, 1].map(|name| {
            let (listener, counts) = (listener.clone(), counts.clone());
            polder::spawn(async move {
                loop {
                    drop(listener.accept().await.unwrap());
                    counts[name].fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        let both = || {
            counts
                .iter()
                .map(|it| it.load(Ordering::SeqCst))
                .sum::<usize>()
        };
        turns().await;
        for i in 1..=100_usize {
            let _client = net::TcpStream::connect(address).unwrap();
            // A client of another test, which used a listener at this port before, may come too.
            until("a connection is accepted", || i <= both()).await;
            turns().await; // Who came too late waits again.
        }
        let [one, other] = [0, 1].map(|name| counts[name].load(Ordering::SeqCst));
        assert!(one.abs_diff(other) <= 2, "{one} and {other}");
        drop(tasks);
    });
}

/// Two handles that read one stream are served by turns.
///
/// Two clones that read one stream alternately get the same share.
#[test]
fn handles_reading_one_stream_alternate() {
    in_every_runtime_alone(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = accept_from(&listener, client.local_addr().unwrap()).await;
        let counts: Arc<[AtomicUsize; 2]> = Arc::default();
        let tasks = [0, 1].map(|name| {
            let (mut stream, counts) = (stream.clone(), counts.clone());
            polder::spawn(async move {
                while stream.read(&mut [0; 8]).await.unwrap() > 0 {
                    counts[name].fetch_add(1, Ordering::SeqCst);
                }
            })
        });
        let both = || {
            counts
                .iter()
                .map(|it| it.load(Ordering::SeqCst))
                .sum::<usize>()
        };
        turns().await;
        for i in 1..=40_usize {
            io::Write::write_all(&mut client, b"x").unwrap();
            until("a byte is read", || i == both()).await;
            turns().await;
        }
        let [one, other] = [0, 1].map(|name| counts[name].load(Ordering::SeqCst));
        assert!(one.abs_diff(other) <= 2, "{one} and {other}");
        drop(client);
        join_all(tasks).await;
    });
}

/// Yields until a woken waiter has run, and has registered again if it found nothing.
async fn turns() {
    for _ in 0..4 {
        yield_now().await;
    }
}

// 66: budgets.

/// An operation under a foreign executor does not livelock.
///
/// Runs within a task, and so with its budget, but polled by an executor that never returns to the
/// worker.
#[test]
fn foreign_executor_does_not_livelock() {
    in_every_runtime(|_| async {
        const TIMES: usize = 1_000;
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let task = polder::spawn(async move {
            let address = near.local_addr().unwrap();
            futures_lite::future::block_on(async {
                for _ in 0..TIMES {
                    near.send_to(b"x", address).await.unwrap();
                    near.recv(&mut [0; 8]).await.unwrap();
                    Timer::after(Duration::ZERO).await;
                }
            });
        });
        timeout(SHORT, task).await.expect("the budget is renewed");
    });
}

/// With one unit left, in one poll: an operation that blocks, then one that is ready.
#[test]
fn an_attempt_that_blocks_costs_no_budget() {
    const BUDGET: usize = 128;
    in_every_kernel_runtime(|_| async {
        let (socket, _far) = tcp_pair().await;
        let (other, _other) = tcp_pair().await;
        let watched = Async::new(net::TcpStream::try_from(other).unwrap()).unwrap();
        let (mut socket, mut reference) = (socket, &watched);
        let (mut near, _far) = polder::io::duplex(8);
        let mut byte = [0];
        type Read<'a> = Pin<Box<dyn Future<Output = io::Result<usize>> + 'a>>;
        let reads: [(&str, Read<'_>); 4] = [
            ("a socket", Box::pin(async { socket.read(&mut [0]).await })),
            (
                "an Async",
                Box::pin(async { reference.read(&mut [0]).await }),
            ),
            (
                "readiness",
                Box::pin(async { watched.readable().await.map(|()| 1) }),
            ),
            ("a duplex", Box::pin(near.read(&mut byte))),
        ];
        let (end, mut unblock) = {
            let (end, waits) = std::sync::mpsc::channel::<()>();
            (end, polder::io::Unblock::new(Waits(waits)))
        };
        let mut bytes = [0];
        let reads = reads.into_iter().chain([(
            "an Unblock",
            Box::pin(unblock.read(&mut bytes)) as Pin<Box<dyn Future<Output = _>>>,
        )]);
        for (what, mut read) in reads {
            yield_now().await;
            std::future::poll_fn(|cx| {
                let mut consume = || pin!(polder::task::consume_budget()).poll(cx).is_ready();
                (1..BUDGET).for_each(|_| assert!(consume()));
                assert!(read.as_mut().poll(cx).is_pending(), "{what}");
                let mut consume = || pin!(polder::task::consume_budget()).poll(cx).is_ready();
                assert!(consume(), "{what}: it has cost the last unit");
                assert!(!consume(), "the budget is larger");
                Poll::Ready(())
            })
            .await;
        }
        drop(end);
    });
}

/// A read of it ends with its channel.
struct Waits(std::sync::mpsc::Receiver<()>);

impl io::Read for Waits {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(0)
    }
}

/// Returns the largest number of bytes that one poll has moved.
async fn largest_poll(
    moved: &AtomicUsize,
    transfer: impl Future<Output = io::Result<()>>,
) -> usize {
    let mut transfer = pin!(transfer);
    let mut largest = 0;
    let result = std::future::poll_fn(|cx| {
        let before = moved.load(Ordering::Relaxed);
        let result = transfer.as_mut().poll(cx);
        largest = largest.max(moved.load(Ordering::Relaxed) - before);
        result
    });
    result.await.unwrap();
    largest
}

/// Writes or reads `total` bytes, in calls of `piece` bytes at most.
async fn transfer(
    mut stream: impl AsyncRead + polder::io::AsyncWrite + Unpin,
    writes: bool,
    piece: usize,
    total: usize,
    moved: &AtomicUsize,
) -> io::Result<()> {
    let mut bytes = vec![0; piece];
    while moved.load(Ordering::Relaxed) < total {
        let count = if writes {
            stream.write(&bytes).await?
        } else {
            stream.read(&mut bytes).await?
        };
        moved.fetch_add(count, Ordering::Relaxed);
    }
    Ok(())
}

/// A poll that transfers much is ended by its bytes.
///
/// A kernel's buffers hold megabytes, and 128 transfers fill them.
#[test]
fn poll_ended_by_bytes_transferred() {
    const TOTAL: usize = 16 << 20;
    on_every_backend_alone(|backend| {
        for (is_async, writes, piece, limit) in [
            (false, true, 64 << 10, 320 << 10),
            (false, false, 64 << 10, 320 << 10),
            (true, true, 64 << 10, 320 << 10),
            // One call takes no more than a megabyte, whatever it is given. It may follow others,
            // which have taken less than the budget.
            (false, true, 8 << 20, (1 << 20) + (320 << 10)),
        ] {
            let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let peer = std::thread::spawn(move || {
                use std::io::{Read, Write};
                let mut far = net::TcpStream::connect(address).unwrap();
                let mut bytes = vec![0; 1 << 20];
                if writes {
                    while far.read(&mut bytes).is_ok_and(|count| count > 0) {}
                } else {
                    while far.write(&bytes).is_ok() {}
                }
            });
            let (near, _) = listener.accept().unwrap();
            let moved = AtomicUsize::new(0);
            let largest = runtime(backend).block_on(async {
                if is_async {
                    let near = Async::new(near).unwrap();
                    largest_poll(&moved, transfer(near, writes, piece, TOTAL, &moved)).await
                } else {
                    let near = TcpStream::try_from(near).unwrap();
                    largest_poll(&moved, transfer(near, writes, piece, TOTAL, &moved)).await
                }
            });
            peer.join().unwrap();
            assert!(
                largest <= limit,
                "{largest} bytes in a poll; Async: {is_async}, writes: {writes}, pieces of {piece}"
            );
        }
    });
}

// 71: completed futures, and empty buffers.

/// An operation that is done stays done, and does not pend for ever.
#[test]
fn done_stays_done() {
    in_every_runtime(|_| async {
        let mut asleep = sleep(SOON);
        (&mut asleep).await;
        assert!(future::poll_once(&mut asleep).await.is_some(), "a sleep");
        let later = polder::time::now() + SOON;
        asleep.reset(later);
        (&mut asleep).await;
        assert!(polder::time::now() >= later);
        assert_eq!(asleep.deadline(), Some(later));

        let due = polder::time::now() + SOON;
        let mut timer = Timer::at(due);
        assert_eq!((&mut timer).await, due);
        assert!(!timer.will_fire());
        assert_eq!(future::poll_once(&mut timer).await, Some(due), "a timer");
        assert_eq!(timer.next().await, None, "a timer, as a stream");
        timer.set_after(FAR);
        assert!(timer.will_fire());
        assert!(future::poll_once(&mut timer).await.is_none());
        timer.set_after(SOON);
        assert!(timer.next().await.is_some());
        timer.clear();
        assert!(
            future::poll_once(&mut timer).await.is_none(),
            "it is never to fire"
        );

        let mut limit = pin!(timeout(SOON, std::future::pending::<()>()));
        let elapsed = limit.as_mut().await;
        let again = future::poll_once(limit.as_mut()).await;
        assert_eq!(again, Some(elapsed), "a timeout");
        let mut done = pin!(timeout(FAR, async { 5 }));
        assert_eq!(done.as_mut().await, Ok(5));
        let poll = || {
            let again = done.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            again.is_pending()
        };
        let panic = catch_unwind(AssertUnwindSafe(poll)).expect_err("it says that it is done");
        let words = crate::support::message(&*panic);
        assert!(words.contains("polled after completion"), "{words}");
    });
}

/// A completed timer still yields: a task that polls it again and again blocks no other task.
#[test]
fn a_timer_that_is_done_starves_nobody() {
    in_every_runtime_alone(|_| async {
        let stop = Arc::new(AtomicBool::new(false));
        let task = polder::spawn({
            let stop = stop.clone();
            async move {
                let mut timer = Timer::after(Duration::ZERO);
                while !stop.load(Ordering::SeqCst) {
                    (&mut timer).await;
                }
            }
        });
        sleep(SOON).await;
        stop.store(true, Ordering::SeqCst);
        task.await;
    });
}

/// An elapsed deadline says so in the words that one searches for.
#[test]
fn elapsed_says_deadline_has_elapsed() {
    in_every_runtime_alone(|_| async {
        let never = timeout(Duration::ZERO, std::future::pending::<()>());
        let elapsed: Elapsed = never.await.unwrap_err();
        assert_eq!(elapsed.to_string(), "deadline has elapsed");
        let error = io::Error::from(elapsed);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "deadline has elapsed");
        sleep_until(polder::time::now()).await;
    });
}

#[test]
fn empty_read_done_at_once() {
    in_every_runtime(|_| async {
        let near = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let far = net::TcpStream::connect(near.local_addr().unwrap()).unwrap();
        let mut lent = Async::new(far).unwrap();
        assert_eq!(at_once("lent", lent.read(&mut [])).await.unwrap(), 0);
        assert_eq!(at_once("lent", (&lent).read(&mut [])).await.unwrap(), 0);

        // On a datagram socket an empty read waits for a datagram, and takes it.
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        assert!(future::poll_once(near.recv(&mut [])).await.is_none());
        near.send_to(b"x", near.local_addr().unwrap())
            .await
            .unwrap();
        near.send_to(b"yy", near.local_addr().unwrap())
            .await
            .unwrap();
        let _ = near.recv(&mut []).await; // Windows calls it an error.
        assert_eq!(near.recv(&mut [0; 8]).await.unwrap(), 2);
    });
}

async fn at_once<F: Future>(what: &str, future: F) -> F::Output {
    let result = future::poll_once(pin!(future)).await;
    result.unwrap_or_else(|| panic!("{what}: it waits for nothing"))
}

// 73: the cost of many waiters.

/// Returns the CPU time of `f`: the minimum of three measurements, since other threads run too.
fn least(mut f: impl FnMut()) -> Duration {
    let time = |()| {
        let start = time();
        f();
        time() - start
    };
    [(); 3].map(time).into_iter().min().unwrap()
}

/// Returns this thread's CPU time: on a loaded machine other processes take most of the elapsed
/// time.
#[cfg(target_os = "linux")]
fn time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(target_os = "linux"))]
fn time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// More waiters may take proportionally longer (8 times), but not quadratically (64 times).
fn assert_no_square(what: &str, mut f: impl FnMut(usize)) {
    const FEW: usize = 2_000;
    let mut measured = Vec::new();
    let is_square = |_| {
        let few = least(|| f(FEW));
        let many = least(|| f(8 * FEW));
        measured.push((few, many));
        many.as_secs_f64() / few.as_secs_f64() >= 28.0
    };
    // Other programs cost this thread processor time too, by what they leave of its caches.
    if (0..3).all(is_square) {
        panic!("{what}: for {FEW}, and for {}: {measured:?}", 8 * FEW);
    }
}

/// Polls each future twice, the second time with another waker, and drops them, the last one first.
fn poll_and_drop<F: Future>(waits: impl Iterator<Item = F>) {
    struct Nobody;
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    let mut waits: Vec<_> = waits.map(Box::pin).collect();
    for _ in 0..2 {
        let waker = Waker::from(Arc::new(Nobody));
        let mut cx = Context::from_waker(&waker);
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut cx).is_pending());
        }
    }
    while waits.pop().is_some() {}
}

/// Waiting for an event takes the same time however many do.
#[test]
fn event_waits_cost_the_same_at_any_count() {
    within(crate::support::LIMIT, "an event", || {
        assert_no_square("giving up", |count| {
            let event = Event::new();
            poll_and_drop((0..count).map(|_| event.wait()));
        });
        assert_no_square("being released", |count| {
            let event = Event::new();
            let mut waits: Vec<_> = (0..count).map(|_| event.wait()).collect();
            let mut cx = Context::from_waker(Waker::noop());
            for wait in &mut waits {
                assert!(Pin::new(wait).poll(&mut cx).is_pending());
            }
            (0..count).for_each(|_| event.set());
            for wait in waits.iter_mut().rev() {
                assert!(Pin::new(wait).poll(&mut cx).is_ready());
            }
        });
        assert_no_square("a latch", |count| {
            let latch = Latch::new();
            poll_and_drop((0..count).map(|_| latch.wait()));
        });
    });
}

/// Waiting for a socket takes the same time however many do.
///
/// Not run per backend: all backends keep waiters in the same way.
#[test]
fn socket_waits_cost_the_same_at_any_count() {
    within(crate::support::LIMIT, "a socket", || {
        polder::block_on(async {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            assert_no_square("receiving", |count| {
                poll_and_drop((0..count).map(|_| async { socket.recv(&mut [0; 8]).await }));
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = accept_from(&listener, client.local_addr().unwrap()).await;
            assert_no_square("clones", |count| {
                let clones = (0..count).map(|_| stream.clone());
                poll_and_drop(clones.map(|mut it| async move { it.read(&mut [0; 8]).await }));
            });
        });
    });
}

// 74: sockets that look like TCP.

/// A stream that only looks like TCP loses nothing.
///
/// For each kind of socket that looks like an internet stream: all data arrives, and the end.
#[cfg(target_os = "linux")]
#[test]
fn tcp_lookalike_loses_nothing() {
    use socket2::{Domain, Protocol, Socket, Type};

    in_every_runtime(|_| async {
        let make = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
        let socket = match make() {
            Ok(socket) => socket,
            Err(error) => return println!("this kernel has no MPTCP to try: {error}"),
        };
        let listener = TcpListener::bind_with(socket, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = TcpStream::connect_with(make().unwrap(), address)
            .await
            .unwrap();
        let mut stream = accept_from(&listener, near.local_addr().unwrap()).await;
        let sender = polder::spawn(async move {
            for i in 0..200_usize {
                near.write_all(&vec![i as u8; 1 + 37 * i]).await?;
            }
            near.close().await
        });
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        sender.await.unwrap();
        let expected: Vec<u8> = (0..200_usize)
            .flat_map(|i| vec![i as u8; 1 + 37 * i])
            .collect();
        assert!(
            bytes == expected,
            "{} of {} bytes",
            bytes.len(),
            expected.len()
        );
    });
}

/// A waker that points nowhere is called like any other.
///
/// Wakers of executors with static state often have a null data pointer.
#[test]
fn null_waker_called_like_others() {
    use std::cell::{Cell, RefCell};

    thread_local! {
        static STREAM: RefCell<Option<TcpStream>> = const { RefCell::new(None) };
        static WAKES: Cell<usize> = const { Cell::new(0) };
    }

    /// Uses the stream that called this waker.
    fn wake() {
        WAKES.set(WAKES.get() + 1);
        let stream = STREAM.with_borrow(|stream| stream.clone());
        let mut cx = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut stream.expect("it is there")).poll_read(&mut cx, &mut [0]);
    }

    const NOWHERE: RawWaker = RawWaker::new(std::ptr::null(), &NOTHING);
    const NOTHING: RawWakerVTable =
        RawWakerVTable::new(|_| NOWHERE, |_| wake(), |_| wake(), |_| ());

    in_every_runtime_alone(|_| async {
        // SAFETY: there is no data to share or to free.
        let waker = unsafe { Waker::from_raw(NOWHERE) };
        let (mut stream, mut peer) = tcp_pair().await;
        STREAM.set(Some(stream.clone()));
        for _ in 0..3 {
            let mut cx = Context::from_waker(&waker);
            while Pin::new(&mut stream)
                .poll_read(&mut cx, &mut [0])
                .is_ready()
            {}
            let before = WAKES.get();
            peer.write_all(&[1]).await.unwrap();
            while WAKES.get() == before {
                a_turn().await;
            }
        }
        STREAM.set(None);
    });
}

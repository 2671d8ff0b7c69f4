//! A foreign waker that panics. No other waiter may lose its wake-up, and no shared thread may end.
//! These tests are a separate process: if the background runtime ended, other tests would fail.

#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use polder::Timer;

use support::{with_every_runtime, within};

/// A waker that panics when it is woken, and counts that.
#[derive(Default)]
struct Panics(AtomicUsize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a waker that panics, on purpose");
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

fn poll(timer: &mut Timer, waker: Waker) {
    // On a slow machine it may already be due.
    let _ = Pin::new(timer).poll(&mut Context::from_waker(&waker));
}

/// A waker that panics takes no other wake up with it.
#[test]
fn waker_panic_takes_no_other_wake() {
    with_every_runtime(|runtime, _| {
        let panics = Arc::<Panics>::default();
        runtime.block_on(async {
            let due = soon();
            let mut timer = Timer::at(due);
            poll(&mut timer, panics.clone().into());
            // Due at the same time, and queued after it.
            Timer::at(due).await;
            drop(timer);
            Timer::after(Duration::from_millis(1)).await;
        });
        assert_eq!(Arc::strong_count(&panics), 1, "a waker is left");
    });
}

/// A waker whose destructor panics.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a waker whose destructor panics, on purpose");
    }
}

/// With two of them a panic would come in the middle of another one, which ends the process.
#[test]
fn waker_drop_panic_keeps_descriptor_drop() {
    with_every_runtime(|runtime, _| {
        runtime.block_on(async {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let socket = polder::Async::new(socket).unwrap();
            for _ in 0..2 {
                let waker = Waker::from(Arc::new(Bomb));
                let polled = socket.poll_readable(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
            }
            drop(socket);
        });
    });
}

/// A waker that panics does not end the telling of signals.
///
/// Otherwise the process could no longer be ended by a signal: the handler is installed, but its
/// thread is gone.
#[cfg(unix)]
#[test]
fn waker_panic_keeps_signals() {
    use polder::signal::ctrl_c;
    let interrupt = || {
        // SAFETY: it takes two integers; the process is ourselves.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGINT) }, 0);
    };
    within(Duration::from_secs(10), "on a plain thread", move || {
        let panics = Arc::<Panics>::default();
        let mut first = ctrl_c();
        let waker = Waker::from(panics.clone());
        let result = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
        assert!(result.is_pending());
        let behind = ctrl_c();
        interrupt();
        futures_lite::future::block_on(behind).expect("the handler is there");
        drop(first);
        let second = ctrl_c();
        interrupt();
        futures_lite::future::block_on(second).expect("the handler is there");
    });
}

/// A waker that counts its wakes.
#[cfg(unix)]
#[derive(Default)]
struct Counts(AtomicUsize);

#[cfg(unix)]
impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that can be cloned once, to be registered, and then panics when it is cloned or dropped.
#[cfg(unix)]
mod brittle {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{RawWaker, RawWakerVTable, Waker};

    static CLONES: AtomicUsize = AtomicUsize::new(0);

    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            let clones = CLONES.fetch_add(1, Ordering::SeqCst);
            assert_eq!(clones, 0, "a clone that panics, on purpose");
            RawWaker::new(data, &VTABLE)
        },
        |_| panic!("a waker that panics, on purpose"),
        |_| panic!("a waker that panics, on purpose"),
        |_| {},
    );

    pub fn waker() -> Waker {
        CLONES.store(0, Ordering::SeqCst);
        // SAFETY: it has no data, and its functions may be called anywhere.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) }
    }
}

/// The signal thread serves all waiters, and clones no waker.
#[cfg(unix)]
#[test]
fn waker_clone_panic_keeps_signals() {
    use polder::signal::{Signal, Signals};
    use polder::stream::StreamExt;

    let hang_up = || {
        // SAFETY: it takes two integers; the process is ourselves.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGHUP) }, 0);
    };
    within(Duration::from_secs(10), "on a plain thread", move || {
        let listen = || Signals::new([Signal::Hup]).expect("the handler is installed");
        let mut first = listen();
        let waker = brittle::waker();
        let result = Pin::new(&mut first.next()).poll(&mut Context::from_waker(&waker));
        assert!(result.is_pending());
        for _ in 0..2 {
            let mut behind = listen();
            let woken = Arc::<Counts>::default();
            let waker = Waker::from(woken.clone());
            let result = Pin::new(&mut behind.next()).poll(&mut Context::from_waker(&waker));
            assert!(result.is_pending());
            hang_up();
            // The signal is counted immediately; only the wake shows that the thread is alive.
            support::eventually("whoever waits is woken", || {
                woken.0.load(Ordering::SeqCst) > 0
            });
        }
        // The first waiter has not lost its signal either.
        let told = futures_lite::future::block_on(first.next());
        assert_eq!(told, Some(Signal::Hup));
    });
}

/// A waker that panics does not end the background runtime.
#[test]
fn waker_panic_keeps_background_runtime() {
    let limit = Duration::from_secs(10);
    within(limit, "on a plain thread", || {
        let panics = Arc::<Panics>::default();
        let due = soon();
        let mut timer = Timer::at(due);
        poll(&mut timer, panics.clone().into());
        futures_lite::future::block_on(Timer::at(due));
        drop(timer);
        futures_lite::future::block_on(Timer::after(Duration::from_millis(1)));
        futures_lite::future::block_on(polder::spawn(async {}));
        assert_eq!(Arc::strong_count(&panics), 1, "a waker is left");
    });
}

/// A waker that panics when it is woken, and again when its last clone is dropped.
#[cfg(feature = "net")]
struct PanicsWhenDropped;

#[cfg(feature = "net")]
impl Wake for PanicsWhenDropped {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics, on purpose");
    }
}

#[cfg(feature = "net")]
impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        // A second panic during unwinding would abort the process, independent of the waker's
        // caller.
        if !std::thread::panicking() {
            panic!("a waker that panics when it is dropped, on purpose");
        }
    }
}

/// More than the number of lookup threads, so that each thread gets several.
#[cfg(feature = "net")]
const MORE_THAN_THREADS: usize = 200;

/// Wakers that panic end no thread that looks up names.
#[cfg(feature = "net")]
#[test]
fn waker_panic_keeps_lookup_threads() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    within(Duration::from_secs(30), "on a plain thread", || {
        for _ in 0..MORE_THAN_THREADS {
            // Dropped immediately, before or while a thread looks it up.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let mut lookup = Box::pin(polder::net::resolve("localhost:1"));
                let waker = Waker::from(Arc::new(PanicsWhenDropped));
                let _ = lookup.as_mut().poll(&mut Context::from_waker(&waker));
                drop(waker);
                drop(lookup);
            }));
        }
        let addresses = futures_lite::future::block_on(polder::net::resolve("localhost:1"));
        assert!(!addresses.expect("this host has a name").is_empty());
    });
}

/// Wakers that panic end no thread of the blocking pool.
///
/// A call that is awaited with a panicking waker ends no thread of the pool, and returns its
/// output.
#[cfg(feature = "blocking")]
#[test]
fn waker_panic_keeps_blocking_pool() {
    within(Duration::from_secs(30), "on a plain thread", || {
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let mut task = polder::unblock(move || begun.recv().is_ok());
        let panics = Arc::<Panics>::default();
        let waker = Waker::from(panics.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut task).poll(&mut cx).is_pending());
        begin.send(()).expect("it waits");
        support::eventually("the waker is called", || {
            panics.0.load(Ordering::SeqCst) == 1
        });
        assert!(futures_lite::future::block_on(task));
        assert_eq!(futures_lite::future::block_on(polder::unblock(|| 5)), 5);
    });
}

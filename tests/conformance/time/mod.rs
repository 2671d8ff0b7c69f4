//! Rules 37 to 43: time.
//!
//! A deadline that must be pending is [`FAR`] away, one that must be past is well past, and one
//! that must come is milliseconds away and only awaited. So no test depends on how fast the machine
//! is. A lost wake-up becomes a wait until [`FAR`], which the test's deadline turns into a failure.

mod async_io;
mod crowd;
mod deadlines;
mod drops;
mod intervals;
mod moving;
mod slack;
mod threads;
mod timeouts;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::future::poll_once;
use polder::time::now;
use polder::{Backend, Handle, Runtime, Timer};

use crate::probe::{Count, Random, poll_future};
use crate::support::{LIMIT, is_in_world, runtime};

const FAR: Duration = Duration::from_secs(3600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An instant that is well past.
fn past() -> Instant {
    now()
        .checked_sub(ms(1_000))
        .expect("the machine runs for more than a second")
}

/// Returns after `duration`, during which no task of this thread ran.
async fn be_away(duration: Duration) {
    if is_in_world() {
        // In a world the caller is the only task.
        polder::time::sleep(duration).await;
    } else {
        thread::sleep(duration);
    }
}

/// Polls once, in the current runtime.
fn poll_now<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Drives `runtime` until `condition` holds.
fn drive_until(runtime: &Runtime, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what}: not so after {LIMIT:?}");
        runtime.run_once(ms(5));
    }
}

/// The last instant that can be represented.
fn last_instant() -> Instant {
    let mut last = now();
    for shift in (0..64).rev() {
        if let Some(later) = last.checked_add(Duration::from_secs(1 << shift)) {
            last = later;
        }
    }
    last
}

/// A runtime on its own thread, which sleeps until `FAR` or until this is dropped.
struct Asleep {
    handle: Handle,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Asleep {
    fn new(backend: Backend) -> Asleep {
        let (started, start) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = runtime(backend);
            runtime.block_on(async {
                let mut far = Timer::after(FAR);
                assert!(poll_once(&mut far).await.is_none());
                started.send(runtime.handle()).expect("the test waits");
                polder::unblock(move || stopped.recv()).await.unwrap_err();
            });
        });
        Asleep {
            handle: start.recv().expect("the runtime starts"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Not while this thread panics: the runtime may be what hangs.
            if !thread::panicking() {
                thread.join().expect("the runtime ends");
            }
        }
    }
}

/// Blocks a plain thread until `future` is done.
fn wait_for<F: Future>(future: F) -> F::Output {
    futures_lite::future::block_on(future)
}

/// Spins for a random time, so that it ends at a random point while another thread goes to sleep.
fn spin(random: &mut Random) {
    let until = Instant::now() + Duration::from_nanos(random.below(30_000));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// A timer that is polled by one task and set by others.
#[derive(Clone)]
struct Shared {
    timer: Arc<Mutex<Timer>>,
    polled: Arc<AtomicBool>,
}

impl Shared {
    fn new(timer: Timer) -> Shared {
        Shared {
            timer: Arc::new(Mutex::new(timer)),
            polled: Arc::default(),
        }
    }

    fn set(&self, f: impl FnOnce(&mut Timer)) {
        f(&mut self.timer.lock().unwrap());
    }

    fn wait_until_polled(&self) {
        while !self.polled.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

impl Future for Shared {
    type Output = Instant;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        let mut timer = self.timer.lock().unwrap();
        let result = Pin::new(&mut *timer).poll(cx);
        self.polled.store(true, Ordering::SeqCst);
        result
    }
}

//! [`Shared`]: the part of a deck that other threads reach.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, ThreadId};

use polder::poller::Poller;

pub(crate) struct Shared {
    /// The deck's number in the process.
    pub(crate) number: u32,
    /// The system's. `None` when replaying.
    pub(crate) poller: Option<Poller>,
    woken: AtomicBool,
    has_news: AtomicBool,
    news: Mutex<News>,
    thread: ThreadId,
}

/// News for the worker.
#[derive(Default)]
pub(crate) struct News {
    /// Sockets and files that other threads have dropped.
    pub(crate) orphans: Vec<u32>,
    /// The streams to be polled again.
    pub(crate) ready: Vec<u64>,
    /// Whether a thread that is not the worker's has woken a task.
    pub(crate) is_woken_from_elsewhere: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(poller: Option<Poller>) -> Shared {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        Shared {
            number: COUNT.fetch_add(1, Ordering::Relaxed),
            poller,
            woken: AtomicBool::new(true),
            has_news: AtomicBool::new(false),
            news: Mutex::default(),
            thread: thread::current().id(),
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }

    pub(crate) fn tell(&self, what: impl FnOnce(&mut News)) {
        what(&mut lock(&self.news));
        self.has_news.store(true, Ordering::Release);
    }

    pub(crate) fn take_news(&self) -> Option<News> {
        let has_news = self.has_news.load(Ordering::Acquire);
        let take = || std::mem::take(&mut *lock(&self.news));
        (has_news && self.has_news.swap(false, Ordering::Acquire)).then(take)
    }

    /// Has the worker take another turn.
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        if let (Some(poller), false) = (&self.poller, self.is_here()) {
            // The next wait then ends by its timeout or an event.
            let _ = poller.notify();
        }
    }

    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::Acquire)
    }
}

/// Returns a waker that has the worker poll what has this number.
pub(crate) fn waker_of(id: u64, shared: &Arc<Shared>) -> Waker {
    struct OfOne(u64, Arc<Shared>);

    impl Wake for OfOne {
        fn wake(self: Arc<Self>) {
            self.1.tell(|news| news.ready.push(self.0));
            self.1.wake();
        }
    }

    Waker::from(Arc::new(OfOne(id, shared.clone())))
}

/// Writes a line to standard error. (`eprintln!` panics if that is closed.)
pub(crate) fn say(words: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "polder-replay: {words}");
}

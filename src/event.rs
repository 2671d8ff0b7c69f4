//! Signals between tasks and threads: [`Event`], which one waiter consumes, and [`Latch`], which is
//! set once and for everyone.
//!
//! Neither belongs to a runtime: both can be set, and waited for, on any thread and under any
//! executor.
//!
//! ```
//! use polder::event::{Event, Latch};
//! use std::sync::Arc;
//!
//! let (work, stop) = (Arc::new(Event::new()), Arc::new(Latch::new()));
//! let thread = std::thread::spawn({
//!     let (work, stop) = (work.clone(), stop.clone());
//!     move || {
//!         work.set(); // For one of those who wait for it.
//!         stop.set(); // For everyone, for good.
//!     }
//! });
//! polder::block_on(async {
//!     work.wait().await;
//!     stop.wait().await;
//! });
//! assert!(!work.is_set() && stop.is_set());
//! # thread.join().unwrap();
//! ```
//!
//! The state of each is behind one lock, held for moments; wakers are cloned, called and dropped outside
//! it. A waiter looks at the signal and leaves its waker under that lock, and whoever sets the signal
//! takes the waker out under it, so no signal can fall between the two.
//!
//! Waiting, setting and giving up take the same time however many wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::sync::{Mutex, NeedsClone, Spare, drop_all, wake_all};

/// A signal that resets itself: [`set`](Self::set) releases one waiter, and is kept where there is
/// none.
///
/// The event is signalled or not; setting it twice while nobody waits is setting it once. Those who
/// wait are released in the order in which they came.
///
/// # Examples
///
/// ```
/// use polder::Event;
/// use std::sync::Arc;
///
/// polder::block_on(async {
///     let event = Arc::new(Event::new());
///     event.set();
///     event.wait().await; // It was set before.
///
///     let setter = event.clone();
///     std::thread::spawn(move || setter.set());
///     event.wait().await; // It is set by another thread.
///     assert!(!event.is_set());
/// });
/// ```
#[derive(Default)]
pub struct Event(Mutex<EventState>);

#[derive(Default)]
struct EventState {
    set: bool,
    queue: Queue,
}

impl EventState {
    /// Signals: the waker of whoever is released.
    fn set(&mut self) -> Option<Waker> {
        let released = self.queue.release_first();
        self.set |= released.is_none();
        released
    }
}

/// Those who wait, in the order in which they came, and those who were released and have not been polled
/// since: a slab, in which the former are linked.
#[derive(Default)]
struct Queue {
    waiters: Slab<Waiter>,
    first: Option<usize>,
    last: Option<usize>,
}

struct Waiter {
    /// `None` once it is released; then it is not linked either.
    waker: Option<Waker>,
    before: Option<usize>,
    behind: Option<usize>,
}

impl Queue {
    /// Adds one at the end.
    fn push(&mut self, waker: Waker) -> usize {
        let place = self.waiters.insert(Waiter {
            waker: Some(waker),
            before: self.last,
            behind: None,
        });
        match self.last.replace(place) {
            Some(last) => self.waiters[last].behind = Some(place),
            None => self.first = Some(place),
        }
        place
    }

    /// Takes out the waker of the first one.
    fn release_first(&mut self) -> Option<Waker> {
        let first = self.first?;
        self.unlink(first);
        self.waiters[first].waker.take()
    }

    /// Takes one out: its waker, unless it was released.
    fn remove(&mut self, place: usize) -> Option<Waker> {
        if self.waiters[place].waker.is_some() {
            self.unlink(place);
        }
        self.waiters.remove(place).waker
    }

    fn unlink(&mut self, place: usize) {
        let Waiter { before, behind, .. } = self.waiters[place];
        match before {
            Some(before) => self.waiters[before].behind = behind,
            None => self.first = behind,
        }
        match behind {
            Some(behind) => self.waiters[behind].before = before,
            None => self.last = before,
        }
    }
}

impl Event {
    /// An event that is not signalled.
    ///
    /// ```
    /// use polder::Event;
    ///
    /// static STARTED: std::sync::LazyLock<Event> = std::sync::LazyLock::new(Event::new);
    ///
    /// assert!(!STARTED.is_set());
    /// std::thread::spawn(|| STARTED.set());
    /// polder::block_on(STARTED.wait());
    /// ```
    pub fn new() -> Event {
        Event::default()
    }

    /// Signals it: releases the one who has waited longest, or else whoever comes next.
    ///
    /// ```
    /// let event = polder::Event::new();
    /// event.set();
    /// event.set(); // It is signalled already: one wait consumes both.
    /// polder::block_on(event.wait());
    /// assert!(!event.is_set());
    /// ```
    pub fn set(&self) {
        let waker = self.0.lock().set();
        wake_all(waker);
    }

    /// Takes back a signal that nobody has consumed. Whoever was released already stays so.
    ///
    /// ```
    /// let event = polder::Event::new();
    /// event.set();
    /// event.reset();
    /// assert!(!event.is_set());
    /// ```
    pub fn reset(&self) {
        self.0.lock().set = false;
    }

    /// Whether it is signalled, and nobody has consumed that yet.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let event = polder::Event::new();
    ///     event.set();
    ///     assert!(event.is_set());
    ///     event.wait().await;
    ///     assert!(!event.is_set());
    /// });
    /// ```
    pub fn is_set(&self) -> bool {
        self.0.lock().set
    }

    /// Waits for the signal, and consumes it.
    ///
    /// ```
    /// use polder::Event;
    /// use std::sync::Arc;
    ///
    /// polder::block_on(async {
    ///     let event = Arc::new(Event::new());
    ///     let other = event.clone();
    ///     let thread = std::thread::spawn(move || other.set());
    ///     event.wait().await;
    ///     assert!(!event.is_set()); // It is consumed.
    ///     thread.join().unwrap();
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A waiter that gives up after it was released passes the signal on.
    pub fn wait(&self) -> EventWait<'_> {
        EventWait {
            event: self,
            place: None,
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("set", &self.is_set())
            .finish()
    }
}

/// The future of [`Event::wait`].
///
/// It stands in the queue from its first poll on, until it is done or dropped.
///
/// ```
/// use polder::{Event, future};
///
/// polder::block_on(async {
///     let event = Event::new();
///     let (mut first, mut second) = (event.wait(), event.wait());
///     assert!(future::poll_once(&mut first).await.is_none());
///     assert!(future::poll_once(&mut second).await.is_none());
///     event.set(); // It releases the first,
///     drop(first); // which gives up, and passes the signal on.
///     second.await;
/// });
/// ```
///
/// # Cancel safety
///
/// One that is dropped after it was released passes the signal on.
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct EventWait<'a> {
    event: &'a Event,
    /// While it is among those waiting or released.
    place: Option<usize>,
}

impl EventWait<'_> {
    /// Under the lock, once.
    fn look(&mut self, waker: &Waker, spare: &mut Spare) -> Result<Poll<()>, NeedsClone> {
        let mut state = self.event.0.lock();
        match self.place {
            None if std::mem::take(&mut state.set) => Ok(Poll::Ready(())),
            None => {
                self.place = Some(state.queue.push(spare.take()?));
                Ok(Poll::Pending)
            }
            Some(place) => match &mut state.queue.waiters[place].waker {
                Some(old) => spare.renew(old, waker).map(|()| Poll::Pending),
                None => {
                    state.queue.remove(place);
                    self.place = None;
                    Ok(Poll::Ready(()))
                }
            },
        }
    }
}

impl Future for EventWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut spare = Spare::default();
        loop {
            match self.look(cx.waker(), &mut spare) {
                Ok(result) => return result,
                Err(NeedsClone) => spare.fill(cx.waker()),
            }
        }
    }
}

impl Drop for EventWait<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.event.0.lock();
        let own = state.queue.remove(place);
        let next = match own {
            Some(_) => None,
            None => state.set(),
        };
        drop(state);
        drop_all(own);
        wake_all(next);
    }
}

/// A signal that is set once, and releases everyone who waits, then and later.
///
/// # Examples
///
/// ```
/// use polder::event::Latch;
/// use std::sync::Arc;
///
/// polder::block_on(async {
///     let ready = Arc::new(Latch::new());
///     let tasks: Vec<_> = (0..3)
///         .map(|_| {
///             let ready = ready.clone();
///             polder::spawn(async move { ready.wait().await })
///         })
///         .collect();
///     ready.set();
///     for task in tasks {
///         task.await;
///     }
///     ready.wait().await; // From now on it never waits.
/// });
/// ```
#[derive(Default)]
pub struct Latch(Mutex<LatchState>);

#[derive(Default)]
struct LatchState {
    set: bool,
    waiting: Slab<Waker>,
}

impl Latch {
    /// A latch that is not set.
    ///
    /// ```
    /// use polder::event::Latch;
    ///
    /// let stop = Latch::new();
    /// assert!(!stop.is_set());
    /// polder::block_on(async {
    ///     let all = polder::future::zip(stop.wait(), stop.wait());
    ///     stop.set();
    ///     all.await;
    /// });
    /// ```
    pub fn new() -> Latch {
        Latch::default()
    }

    /// Sets it, for good.
    ///
    /// ```
    /// let latch = polder::event::Latch::new();
    /// assert!(!latch.is_set());
    /// latch.set();
    /// latch.set(); // Once more changes nothing.
    /// assert!(latch.is_set());
    /// ```
    pub fn set(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.set = true;
            std::mem::take(&mut state.waiting)
        };
        wake_all(waiting.into_iter().map(|(_, waker)| waker));
    }

    /// Whether it is set.
    ///
    /// ```
    /// use polder::event::Latch;
    ///
    /// let stop = Latch::new();
    /// let mut rounds = 0;
    /// while !stop.is_set() {
    ///     rounds += 1; // A part of what is long in computing.
    ///     if rounds == 3 {
    ///         stop.set();
    ///     }
    /// }
    /// assert_eq!(rounds, 3);
    /// ```
    pub fn is_set(&self) -> bool {
        self.0.lock().set
    }

    /// Waits until it is set.
    ///
    /// ```
    /// use polder::event::Latch;
    /// use std::sync::Arc;
    ///
    /// polder::block_on(async {
    ///     let ready = Arc::new(Latch::new());
    ///     let other = ready.clone();
    ///     let thread = std::thread::spawn(move || other.set());
    ///     ready.wait().await;
    ///     assert!(ready.is_set()); // And stays so.
    ///     thread.join().unwrap();
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Giving up leaves nothing behind.
    pub fn wait(&self) -> LatchWait<'_> {
        LatchWait {
            latch: self,
            place: None,
        }
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("set", &self.is_set())
            .finish()
    }
}

/// The future of [`Latch::wait`].
///
/// ```
/// use polder::event::Latch;
/// use polder::future;
///
/// polder::block_on(async {
///     let stop = Latch::new();
///     let mut stopped = stop.wait();
///     assert!(future::poll_once(&mut stopped).await.is_none());
///     stop.set();
///     assert!(future::poll_once(&mut stopped).await.is_some());
/// });
/// ```
///
/// # Cancel safety
///
/// Dropping it leaves nothing behind.
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct LatchWait<'a> {
    latch: &'a Latch,
    /// Among those waiting, until the latch is set.
    place: Option<usize>,
}

impl LatchWait<'_> {
    /// Under the lock, once.
    fn look(&mut self, waker: &Waker, spare: &mut Spare) -> Result<Poll<()>, NeedsClone> {
        let mut state = self.latch.0.lock();
        match self.place {
            _ if state.set => return Ok(Poll::Ready(())),
            None => self.place = Some(state.waiting.insert(spare.take()?)),
            Some(place) => spare.renew(&mut state.waiting[place], waker)?,
        }
        Ok(Poll::Pending)
    }
}

impl Future for LatchWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut spare = Spare::default();
        loop {
            match self.look(cx.waker(), &mut spare) {
                Ok(result) => return result,
                Err(NeedsClone) => spare.fill(cx.waker()),
            }
        }
    }
}

impl Drop for LatchWait<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let waker = {
            let mut state = self.latch.0.lock();
            match state.set {
                true => None, // Everyone was taken out.
                false => state.waiting.try_remove(place),
            }
        };
        drop_all(waker);
    }
}

/// What is shared, checked at compile time.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Event>();
    shared::<Latch>();
};

//! Notifications between tasks and threads: [`Event`], which one waiter consumes, and [`Latch`],
//! which is set once for all waiters. Both work on any thread and under any executor.
//!
//! ```
//! use polder::event::{Event, Latch};
//! use std::sync::Arc;
//!
//! let (work, stop) = (Arc::new(Event::new()), Arc::new(Latch::new()));
//! let thread = std::thread::spawn({
//!     let (work, stop) = (work.clone(), stop.clone());
//!     move || {
//!         work.set(); // Releases one waiter.
//!         stop.set(); // Releases all waiters, now and later.
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
//! The state is behind one lock, held briefly; wakers are cloned, called and dropped outside it. A
//! waiter checks the state and registers its waker under that lock, and `set` takes the wakers
//! under it, so no notification is lost between the two.
//!
//! **In a child of `fork`** a thread of the parent may hold that lock for ever. A wait of the
//! parent's that is dropped there then leaves its entry: nobody can set or wait for this event in
//! the child, so the entry takes no notification.
//!
//! A wait that completes immediately takes one operation from the task's budget. If that is used
//! up, the wait keeps the notification, and completes when it is polled again.
//!
//! **Setting a latch** calls tasks' own wakers first. The others are foreign code and may block, so
//! a thread that drives no worker takes these one at a time. Meanwhile the next `set` finds the
//! rest, and a waiter that is polled is done: see "Foreign wakers" in `reactor`. Other
//! operations do not depend on the number of waiters, except that a place in the list is found in
//! logarithmic time: see `slab`.

use std::fmt;
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll, Waker};

use crate::scheduler::{budget, is_task_waker, record_wait, wake_each};
use crate::slab::Slab;
use crate::sync::{Mutex, NeedsClone, Spare, drop_all, wake_all};
use crate::sys::Process;
use crate::telemetry::WaitReason;

/// A notification that resets itself: [`set`](Self::set) releases one waiter, or the next one if
/// there is none (tokio: `Notify` with `notify_one`). Setting it twice without a waiter counts
/// once. Waiters are released in the order of their first polls.
///
/// # Examples
///
/// ```
/// use polder::event::Event;
/// use std::sync::Arc;
///
/// polder::block_on(async {
///     let event = Arc::new(Event::new());
///     event.set();
///     event.wait().await; // Returns immediately.
///
///     let setter = event.clone();
///     std::thread::spawn(move || setter.set());
///     event.wait().await; // Until the other thread sets it.
///     assert!(!event.is_set());
/// });
/// ```
#[doc(alias = "Notify")]
#[derive(Default)]
pub struct Event(Mutex<State>);

#[derive(Default)]
struct State {
    set: bool,
    queue: Queue,
}

impl State {
    /// Returns the waker of the released waiter.
    fn set_once(&mut self) -> Option<Waker> {
        let released = self.queue.release_first();
        self.set |= released.is_none();
        released
    }
}

/// A list of the waiters, linked in order until they are released, and kept until they are polled.
#[derive(Default)]
struct Queue {
    waiters: Slab<Waiter>,
    first: Option<usize>,
    last: Option<usize>,
}

#[derive(Default)]
struct Waiter {
    /// `None` after its release; it is then not linked.
    waker: Option<Waker>,
    /// Whether it only queues its task.
    is_task_waker: bool,
    previous: Option<usize>,
    next: Option<usize>,
}

impl Queue {
    fn push(&mut self, waker: Waker) -> usize {
        let key = self.waiters.insert(Waiter {
            is_task_waker: is_task_waker(&waker),
            waker: Some(waker),
            previous: self.last,
            next: None,
        });
        match self.last.replace(key) {
            Some(last) => self.waiters[last].next = Some(key),
            None => self.first = Some(key),
        }
        key
    }

    fn release_first(&mut self) -> Option<Waker> {
        let first = self.first?;
        self.unlink(first);
        self.waiters[first].waker.take()
    }

    /// Releases the waiters with tasks' own wakers, in order.
    fn release_own(&mut self) -> Vec<Waker> {
        let mut own = Vec::with_capacity(self.waiters.len());
        let mut next = self.first;
        while let Some(key) = next {
            let waiter = &mut self.waiters[key];
            next = waiter.next;
            if waiter.is_task_waker {
                own.extend(waiter.waker.take());
                self.unlink(key);
            }
        }
        own
    }

    /// Returns the waiter's waker, or `None` if it was released.
    fn remove(&mut self, key: usize) -> Option<Waker> {
        if self.waiters[key].waker.is_some() {
            self.unlink(key);
        }
        self.waiters.remove(key)?.waker
    }

    fn unlink(&mut self, key: usize) {
        let Waiter { previous, next, .. } = self.waiters[key];
        match previous {
            Some(previous) => self.waiters[previous].next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => self.waiters[next].previous = previous,
            None => self.last = previous,
        }
    }
}

impl Event {
    /// Makes an event that is not set.
    ///
    /// ```
    /// use polder::event::Event;
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

    /// Releases the longest-waiting waiter, or the next one if there is none.
    ///
    /// ```
    /// let event = polder::event::Event::new();
    /// event.set();
    /// event.set(); // Already set: one wait consumes both.
    /// polder::block_on(event.wait());
    /// assert!(!event.is_set());
    /// ```
    pub fn set(&self) {
        let waker = self.0.lock().set_once();
        wake_all(waker);
    }

    /// Resets the event, unless a waiter has consumed it. Released waiters stay released.
    ///
    /// ```
    /// let event = polder::event::Event::new();
    /// event.set();
    /// event.reset();
    /// assert!(!event.is_set());
    /// ```
    pub fn reset(&self) {
        self.0.lock().set = false;
    }

    /// Returns whether the event is set and was not consumed.
    ///
    /// ```
    /// polder::block_on(async {
    ///     let event = polder::event::Event::new();
    ///     event.set();
    ///     assert!(event.is_set());
    ///     event.wait().await;
    ///     assert!(!event.is_set());
    /// });
    /// ```
    pub fn is_set(&self) -> bool {
        self.0.lock().set
    }

    /// Waits until the event is set, and resets it.
    ///
    /// ```
    /// use polder::event::Event;
    /// use std::sync::Arc;
    ///
    /// polder::block_on(async {
    ///     let event = Arc::new(Event::new());
    ///     let other = event.clone();
    ///     let thread = std::thread::spawn(move || other.set());
    ///     event.wait().await;
    ///     assert!(!event.is_set());
    ///     thread.join().unwrap();
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped after its release, the next waiter is released.
    pub fn wait(&self) -> EventWait<'_> {
        EventWait(Wait::new(&self.0, Kind::Event))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("set", &self.is_set())
            .finish()
    }
}

/// The future of [`Event::wait`], queued from its first poll until it completes or is dropped.
///
/// ```
/// use polder::event::Event;
/// use polder::future;
///
/// polder::block_on(async {
///     let event = Event::new();
///     let (mut first, mut second) = (event.wait(), event.wait());
///     assert!(future::poll_once(&mut first).await.is_none());
///     assert!(future::poll_once(&mut second).await.is_none());
///     event.set(); // Releases the first waiter.
///     drop(first); // So the second one is released.
///     second.await;
/// });
/// ```
///
/// # Cancel safety
///
/// Cancel safe: if it is dropped after its release, the next waiter is released.
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct EventWait<'a>(Wait<'a>);

impl Future for EventWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}

/// A flag that is set once and permanently: it releases all waiters, present and future.
///
/// # Examples
///
/// ```
/// use polder::event::Latch;
/// use std::sync::Arc;
///
/// polder::block_on(async {
///     let ready = Arc::new(Latch::new());
///     let waits = [(); 3].map(|()| {
///         let ready = ready.clone();
///         polder::spawn(async move { ready.wait().await })
///     });
///     ready.set();
///     for task in waits {
///         task.await;
///     }
///     ready.wait().await; // Returns immediately from now on.
/// });
/// ```
#[doc(alias("CancellationToken", "Notify"))]
#[derive(Default)]
pub struct Latch(Mutex<State>);

impl Latch {
    /// Makes a latch that is not set.
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

    /// Sets the latch permanently.
    ///
    /// ```
    /// let latch = polder::event::Latch::new();
    /// assert!(!latch.is_set());
    /// latch.set();
    /// latch.set(); // No effect.
    /// assert!(latch.is_set());
    /// ```
    pub fn set(&self) {
        let mut state = self.0.lock();
        state.set = true;
        let own = state.queue.release_own();
        drop(state);
        wake_all(own);
        wake_each(|| self.0.lock().queue.release_first());
    }

    /// Returns whether the latch is set.
    ///
    /// ```
    /// let stop = polder::event::Latch::new();
    /// let mut rounds = 0;
    /// while !stop.is_set() {
    ///     rounds += 1; // A part of a long computation.
    ///     if rounds == 3 {
    ///         stop.set();
    ///     }
    /// }
    /// ```
    pub fn is_set(&self) -> bool {
        self.0.lock().set
    }

    /// Waits until the latch is set.
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
    ///     assert!(ready.is_set()); // It stays set.
    ///     thread.join().unwrap();
    /// });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn wait(&self) -> LatchWait<'_> {
        LatchWait(Wait::new(&self.0, Kind::Latch))
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
/// Cancel safe.
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct LatchWait<'a>(Wait<'a>);

impl Future for LatchWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}

/// Only an event is reset by a completed wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Event,
    Latch,
}

#[derive(Debug)]
struct Wait<'a> {
    state: &'a Mutex<State>,
    kind: Kind,
    /// Its key while it is in the queue, and the process that has queued it. Not the event's: that
    /// may be older than a daemon's `fork`, and then all later waits would be inherited.
    key: Option<(usize, Process)>,
    /// Whether the last poll found the budget used up. The next poll is then free: see `Timer`.
    deferred: bool,
}

impl Wait<'_> {
    fn new(state: &Mutex<State>, kind: Kind) -> Wait<'_> {
        Wait {
            state,
            kind,
            key: None,
            deferred: false,
        }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let result = self.poll_with_budget(cx);
        if result.is_pending() {
            let address = ptr::from_ref(self.state).addr();
            record_wait(match self.kind {
                Kind::Event => WaitReason::Event(address),
                Kind::Latch => WaitReason::Latch(address),
            });
        }
        result
    }

    #[inline]
    fn poll_with_budget(&mut self, cx: &Context<'_>) -> Poll<()> {
        let free = std::mem::take(&mut self.deferred);
        let mut paid = free.then_some(true);
        loop {
            let attempt = |spare: &mut Spare| self.poll_locked(cx.waker(), spare, paid);
            if let Some(result) = Spare::retry(cx.waker(), attempt) {
                if paid == Some(true) && !free && result.is_pending() {
                    budget::restore(); // Another waiter was quicker.
                }
                return result;
            }
            self.deferred = budget::consume(cx).is_pending();
            paid = Some(!self.deferred);
        }
    }

    /// Makes one attempt under the lock. `paid` is whether the budget has granted an operation;
    /// returns `None` if it must be asked, since the wait is over.
    fn poll_locked(
        &mut self,
        waker: &Waker,
        spare: &mut Spare,
        paid: Option<bool>,
    ) -> Result<Option<Poll<()>>, NeedsClone> {
        let mut state = self.state.lock();
        match self.key {
            None if state.set => {
                let Some(paid) = paid else { return Ok(None) };
                state.set = self.kind == Kind::Latch;
                if paid {
                    return Ok(Some(Poll::Ready(())));
                }
                if self.kind == Kind::Event {
                    let key = state.queue.waiters.insert(Waiter::default());
                    self.key = Some((key, Process::current()));
                }
            }
            None => self.key = Some((state.queue.push(spare.take()?), Process::current())),
            // Another thread is setting it, and has not reached this waiter.
            Some(_) if state.set && self.kind == Kind::Latch => {
                return Ok(Some(Poll::Ready(())));
            }
            Some((key, _)) => match &mut state.queue.waiters[key] {
                Waiter {
                    waker: Some(old),
                    is_task_waker: is_old_own,
                    ..
                } => {
                    spare.renew(old, waker)?;
                    *is_old_own = is_task_waker(waker);
                }
                _ => {
                    state.queue.remove(key);
                    self.key = None;
                    return Ok(Some(Poll::Ready(())));
                }
            },
        }
        Ok(Some(Poll::Pending))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some((key, process)) = self.key else {
            return;
        };
        let Some(mut state) = process.lock(self.state) else {
            return;
        };
        let own = state.queue.remove(key);
        let next = match (&own, self.kind) {
            // It was released, and has not taken the notification.
            (None, Kind::Event) => state.set_once(),
            _ => None,
        };
        drop(state);
        drop_all(own);
        wake_all(next);
    }
}

// Miri cannot fork.
#[cfg(all(test, unix, not(miri)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::sys::in_child;

    /// Queues a wait, as [`Event::wait`] does.
    fn queued(state: &Mutex<State>, kind: Kind) -> Wait<'_> {
        let mut wait = Wait::new(state, kind);
        assert!(wait.poll(&Context::from_waker(Waker::noop())).is_pending());
        wait
    }

    /// A child drops a wait although a thread of its parent holds the lock.
    #[test]
    fn wait_of_parent_dropped_in_child_despite_held_lock() {
        for kind in [Kind::Event, Kind::Latch] {
            let state = &Mutex::default();
            let mut wait = Some(queued(state, kind));
            let (holds, is_held) = mpsc::channel();
            let (go_on, goes_on) = mpsc::channel::<()>();
            thread::scope(|scope| {
                scope.spawn(move || {
                    let _guard = state.lock();
                    holds.send(()).unwrap();
                    let _ = goes_on.recv();
                });
                is_held.recv().unwrap();
                let go_on = go_on;
                in_child(|| {
                    drop(wait.take());
                    true
                });
                drop(go_on);
            });
        }
    }

    /// A wait that a child drops takes no notification from the next waiter there.
    #[test]
    fn wait_of_parent_dropped_in_child_takes_no_notification() {
        let event = Event::new();
        let mut of_parent = Some(queued(&event.0, Kind::Event));
        in_child(|| {
            drop(of_parent.take());
            next_is_notified(&event)
        });
    }

    fn next_is_notified(event: &Event) -> bool {
        let mut next = queued(&event.0, Kind::Event);
        event.set();
        next.poll(&Context::from_waker(Waker::noop())).is_ready()
    }

    /// Drops a wait while another thread of this process holds the lock for that time.
    fn drop_while_held(wait: Wait<'_>, time: Duration) {
        let state = wait.state;
        let (holds, is_held) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _guard = state.lock();
                holds.send(()).unwrap();
                thread::sleep(time);
            });
            is_held.recv().unwrap();
            drop(wait);
        });
    }

    /// Such a wait is the child's, so that its drop waits for the lock.
    #[test]
    fn wait_made_in_parent_queued_in_child_leaves_no_entry() {
        let event = Event::new();
        let mut wait = Some(Wait::new(&event.0, Kind::Event));
        in_child(|| {
            let mut wait = wait.take().unwrap();
            let polled = wait.poll(&Context::from_waker(Waker::noop()));
            drop_while_held(wait, Duration::from_millis(200));
            polled.is_pending() && next_is_notified(&event)
        });
    }

    /// The holder is a thread of the child, which may take longer than some yields.
    #[test]
    fn wait_of_parent_dropped_in_child_waits_for_live_holder() {
        let event = Event::new();
        let mut of_parent = Some(queued(&event.0, Kind::Event));
        in_child(|| {
            drop_while_held(of_parent.take().unwrap(), Duration::from_millis(2));
            next_is_notified(&event)
        });
    }
}

//! The futures of `block_on` that a worker drives, as polled among its tasks and listed in dumps.

use std::cell::Cell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::{Header, Local, current, with_running};
use crate::reactor::Reactor;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::telemetry::{MAIN_FUTURE, WaitReason};

/// Written on the worker's thread.
pub(crate) struct MainFuture {
    pub(super) waker: Arc<MainWaker>,
    pub(crate) site: &'static Location<'static>,
    /// When the worker got it, and when it was last polled: see
    /// [`clock::tick`](crate::clock::tick).
    pub(crate) began: u32,
    pub(crate) polled: Cell<u32>,
    pub(crate) polls: Cell<u32>,
    pub(super) wait_reason: Cell<u64>,
    pub(crate) is_in_poll: Cell<bool>,
}

impl MainFuture {
    /// Registers a future of `block_on`, until the result is dropped.
    pub(super) fn enter<'a>(
        local: &'a Local,
        site: &'static Location<'static>,
        waker: Arc<MainWaker>,
    ) -> Main<'a> {
        let tick = local.counters.tick();
        let future = Rc::new(MainFuture {
            waker,
            site,
            began: tick,
            polled: Cell::new(tick),
            polls: Cell::new(0),
            wait_reason: Cell::new(0),
            is_in_poll: Cell::new(false),
        });
        local.mains.borrow_mut().push(future.clone());
        Main {
            local,
            future,
            outer: reason_of_main(),
        }
    }

    #[inline]
    pub(super) fn begin_poll(&self, tick: u32) {
        self.polls.set(self.polls.get().wrapping_add(1));
        self.polled.set(tick);
        self.is_in_poll.set(true);
        set_reason_of_main(WaitReason::UNKNOWN);
    }

    #[inline]
    pub(super) fn end_poll(&self) {
        self.wait_reason.set(reason_of_main());
        self.is_in_poll.set(false);
    }

    pub(crate) fn wait_reason(&self) -> u64 {
        if self.waker.is_woken() {
            WaitReason::NOTHING
        } else {
            self.wait_reason.get()
        }
    }

    pub(super) fn is_woken_by(&self, waker: &Waker) -> bool {
        Waker::from(self.waker.clone()).will_wake(waker)
    }

    pub(crate) fn waker_address(&self) -> usize {
        Arc::as_ptr(&self.waker).addr()
    }
}

thread_local! {
    /// Of the future of `block_on` that this thread polled last.
    static REASON_OF_MAIN: Cell<u64> = const { Cell::new(WaitReason::NOTHING) };
}

#[inline]
fn set_reason_of_main(word: u64) {
    (REASON_OF_MAIN.try_with(|reason| reason.set(word))).expect("it has no destructor");
}

#[inline]
fn reason_of_main() -> u64 {
    REASON_OF_MAIN
        .try_with(Cell::get)
        .expect("it has no destructor")
}

/// Records what a future that returns `Pending` waits for, in the running task or `block_on`'s
/// future.
#[inline]
pub(crate) fn record_wait(reason: WaitReason) {
    let word = reason.encode();
    if with_running(|header: &Header| header.set_wait_reason(word)).is_none() {
        set_reason_of_main(word);
    }
}

pub(super) struct Main<'a> {
    local: &'a Local,
    pub(super) future: Rc<MainFuture>,
    /// The wait reason of the enclosing future, if its current poll has recorded one.
    outer: u64,
}

impl Drop for Main<'_> {
    fn drop(&mut self) {
        if self.future.is_in_poll.get() && self.local.counters.trace().is_some() {
            self.local.poll_ends(MAIN_FUTURE);
        }
        let popped = self.local.mains.borrow_mut().pop();
        drop(popped);
        set_reason_of_main(self.outer);
    }
}

pub(super) struct MainWaker {
    woken: AtomicBool,
    reactor: Arc<Reactor>,
}

impl MainWaker {
    /// Initially woken, so that the future is polled once.
    pub(super) fn new(reactor: Arc<Reactor>) -> MainWaker {
        MainWaker {
            woken: AtomicBool::new(true),
            reactor,
        }
    }

    #[inline]
    pub(super) fn reset(&self) {
        self.woken.swap(false, Ordering::Acquire);
    }

    /// Called on the worker's thread.
    pub(super) fn set_woken(&self) {
        self.woken.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        // The flag is written before the worker is unparked: see `reactor::parking`.
        self.woken.store(true, Ordering::Release);
        current::unpark(&self.reactor);
    }
}

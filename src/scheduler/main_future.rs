//! The futures of `block_on` that a worker drives, as seen by a dump.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;

use super::leaf::{self, Leaf};
use super::worker::MainWaker;

/// A future of `block_on` that a worker drives. Written on its thread.
#[derive(Debug)]
pub(crate) struct MainFuture {
    pub(super) waker: Arc<MainWaker>,
    pub(crate) site: &'static Location<'static>,
    /// The times when the worker got it, and of its last poll: see
    /// [`reactor::tick`](crate::reactor::tick).
    pub(crate) began: u32,
    pub(crate) polled: Cell<u32>,
    pub(crate) polls: Cell<u32>,
    pub(super) waits_for: Cell<u64>,
    pub(crate) is_in_poll: Cell<bool>,
}

impl MainFuture {
    /// Begins a poll of the future.
    #[inline]
    pub(super) fn begin_poll(&self, tick: u32) {
        self.polls.set(self.polls.get().wrapping_add(1));
        self.polled.set(tick);
        self.is_in_poll.set(true);
        leaf::begin_main_poll();
    }

    /// Ends a poll that has returned `Pending`.
    #[inline]
    pub(super) fn end_poll(&self) {
        self.waits_for.set(leaf::of_main());
        self.is_in_poll.set(false);
    }

    /// The word of the leaf that the future waits for.
    pub(crate) fn waits_for(&self) -> u64 {
        if self.waker.is_woken() {
            Leaf::NOTHING
        } else {
            self.waits_for.get()
        }
    }

    /// The address of its waker's data.
    pub(crate) fn waker_address(&self) -> usize {
        Arc::as_ptr(&self.waker).addr()
    }
}

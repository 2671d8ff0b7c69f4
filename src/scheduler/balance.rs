//! Which pool worker takes a task from the inject queue.
//!
//! A task moves later only where that pays, and one with sockets mostly stays with the worker that
//! polls it first; so the choice counts. A pool worker takes a task only while it owns at most
//! [`MAX_LOAD_GAP`] tasks more than the pool worker that owns the fewest. To compare the loads
//! costs a cache line for each worker, so one comparison gives an *allowance*: as many tasks may be
//! taken before the next.
//!
//! A worker without an allowance *defers*: it leaves the tasks to the others. These may be long in
//! coming, if they compute or block, and then a task is better started on the wrong worker than not
//! at all. So after [`DEFER_TIMEOUT`] the worker takes one task, and twice as many after each
//! further timeout. A worker that sleeps meanwhile sleeps no longer than that, and is marked
//! ([`Remote::set_deferring`]), so that nobody wakes it for these tasks.
//!
//! Touched by the worker's thread only.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::shared::{Remote, Shared};
use crate::reactor::now;

/// How many tasks more than the least loaded pool worker a pool worker may own and still take
/// another. Two comparisons of busy pool workers are about that many short tasks apart, and among
/// long-lived ones it is little: 16 of 250 connections a worker.
const MAX_LOAD_GAP: usize = 16;

/// How long a pool worker defers: longer than the others need to wake up and take a task, short
/// beside what they may have to compute first.
pub(super) const DEFER_TIMEOUT: Duration = Duration::from_millis(1);

/// How many tasks a pool worker takes at most after it has deferred in vain.
const MAX_GRANT: usize = 64;

/// What a worker does about the inject queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedAction {
    /// Nothing: the queue is empty, or not its business.
    None,
    /// Take a task.
    Take,
    /// Leave the tasks to pool workers that own fewer.
    Defer,
}

#[derive(Debug)]
pub(super) struct Balance {
    /// How many tasks may be taken before the loads are compared again.
    allowance: Cell<usize>,
    deferral: Cell<Option<Deferral>>,
}

/// Since when a worker defers, and how many tasks it takes at the timeout.
#[derive(Clone, Copy, Debug)]
struct Deferral {
    since: Instant,
    grant: usize,
}

impl Balance {
    pub(super) fn new() -> Balance {
        Balance {
            allowance: Cell::new(0),
            deferral: Cell::new(None),
        }
    }

    /// What the pool worker behind `remote` does about the inject queue.
    pub(super) fn action(&self, shared: &Shared, remote: &Remote) -> InjectedAction {
        if !shared.has_injected() || shared.is_closing() {
            return InjectedAction::None;
        }
        if self.allowance.get() == 0 {
            match (shared.least_load() + MAX_LOAD_GAP).saturating_sub(remote.load()) {
                0 => return InjectedAction::Defer,
                allowance => self.allowance.set(allowance),
            }
            self.deferral.set(None);
        }
        InjectedAction::Take
    }

    /// A task was taken.
    #[inline]
    pub(super) fn taken(&self) {
        self.allowance.set(self.allowance.get() - 1);
    }

    /// Once a turn: begins or ends a deferral, and grants tasks at the timeout.
    #[inline]
    pub(super) fn update(&self, action: InjectedAction) {
        match action {
            InjectedAction::None => return self.deferral.set(None),
            InjectedAction::Take => return,
            InjectedAction::Defer => {}
        }
        let deferral = self.deferral.get().unwrap_or_else(|| Deferral {
            since: now(),
            grant: 1,
        });
        let is_over = now() >= deferral.since + DEFER_TIMEOUT;
        self.deferral.set(Some(match is_over {
            false => deferral,
            true => {
                self.allowance.set(deferral.grant);
                Deferral {
                    since: now(),
                    grant: (deferral.grant * 2).min(MAX_GRANT),
                }
            }
        }));
    }
}

//! The cooperation budget: how much one task may do in one poll before others run.

use std::cell::Cell;
use std::task::{Context, Poll};

use super::with_current;

/// Operations of one task that may succeed in one poll. Enough to drain what a turn brings, few
/// enough that others wait for microseconds: 128 receives of 64 KiB are about a millisecond.
const BUDGET: i32 = 128;

/// What the running task may still do; below zero, how often it was refused.
#[derive(Debug)]
pub(super) struct Budget(Cell<i32>);

impl Budget {
    pub(super) fn new() -> Budget {
        Budget(Cell::new(BUDGET))
    }

    /// A task begins to run.
    #[inline]
    pub(super) fn renew(&self) {
        self.0.set(BUDGET);
    }
}

/// To be called before an operation that can succeed at once; [`restore`] if it does not. `Pending`
/// when the running task has had its share: it is woken, and comes back after the others.
///
/// A task that goes on all the same, refused again and again, holds an executor of another kind that
/// will not return before its future is done: after as many refusals as its share it gets another.
#[inline]
pub(crate) fn consume(cx: &Context<'_>) -> Poll<()> {
    let refused = with_current(|local| {
        let left = local.budget.0.get();
        local.budget.0.set(match left > -BUDGET {
            true => left - 1,
            false => BUDGET,
        });
        left <= 0 && left > -BUDGET
    });
    match refused {
        Some(true) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    }
}

/// The operation would block: it is not counted.
#[inline]
pub(crate) fn restore() {
    with_current(|local| {
        let budget = &local.budget.0;
        budget.set(budget.get().saturating_add(1).min(BUDGET));
    });
}

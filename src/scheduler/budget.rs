//! The cooperation budget: the number of operations that a task may complete in one poll, and of
//! bytes that it may transfer, before others run.

use std::task::{Context, Poll};

use super::current::with_local;
use super::local::BUDGET;

/// The number of bytes that a unit pays for. A whole budget pays for 256 KiB, which takes some 50
/// µs. So 300 busy connections delay another one by some ten milliseconds, instead of some hundred
/// with 128 transfers of 64 KiB in a poll.
pub(crate) const BYTES_PER_UNIT: usize = 2 << 10;

/// The maximum number of bytes offered to a stream in one call, since the kernel takes all that it
/// has room for. With 256 KiB a transfer in pieces of 8 MiB took a quarter more of the server's CPU
/// time; with this limit it takes no more than without.
#[cfg(feature = "net")]
pub(crate) const MAX_TRANSFER: usize = 1 << 20;

/// Takes one operation from the running task's budget. Call it before an operation that may succeed
/// immediately, and [`restore`] if it does not. If the budget is used up, wakes the task and
/// returns `Pending`.
///
/// A task that polls on after a refusal is in a nested executor, which does not return before its
/// future is done. After as many refusals as the budget has operations, it gets a new budget.
#[inline]
pub(crate) fn consume(cx: &Context<'_>) -> Poll<()> {
    let refused = with_local(|local| {
        let left = local.budget.get();
        // Negative: the number of refusals.
        let next = if left > -BUDGET { left - 1 } else { BUDGET };
        local.budget.set(next);
        let is_refused = left <= 0 && left > -BUDGET;
        if is_refused {
            local.counters.budget_exhausted.add(1);
        }
        is_refused
    });
    match refused {
        Some(true) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    }
}

#[inline]
pub(crate) fn restore() {
    with_local(|local| {
        let budget = &local.budget;
        budget.set(budget.get().saturating_add(1).min(BUDGET));
    });
}

/// Charges for a transfer of `bytes`; [`consume`] has paid for the first unit.
#[inline]
pub(crate) fn charge(bytes: usize) {
    if bytes > BYTES_PER_UNIT {
        charge_units(bytes / BYTES_PER_UNIT);
    }
}

/// [`charge`] for the datagrams of one call; [`consume`] has paid for the first.
#[cfg(feature = "net")]
pub(crate) fn charge_datagrams(count: usize, bytes: usize) {
    charge_units(count.saturating_sub(1) + bytes / BYTES_PER_UNIT);
}

#[inline(never)]
fn charge_units(units: usize) {
    let units = i32::try_from(units).unwrap_or(BUDGET);
    with_local(|local| {
        let left = local.budget.get();
        // Negative values count refusals.
        if left > 0 {
            local.budget.set((left - units).max(0));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::local::FIRST_BUDGET;
    use std::future::poll_fn;

    /// After as many refusals as operations there is a new budget.
    #[test]
    fn budget_renewed_after_as_many_refusals() {
        let mut runs: Vec<(bool, i32)> = Vec::new();
        crate::block_on(poll_fn(|cx| {
            for _ in 0..4 * BUDGET + 2 {
                let is_ready = consume(cx).is_ready();
                match runs.last_mut() {
                    Some((last, count)) if *last == is_ready => *count += 1,
                    _ => runs.push((is_ready, 1)),
                }
            }
            Poll::Ready(())
        }));
        let (ready, refused) = ((true, BUDGET + 1), (false, BUDGET));
        assert_eq!(runs, [(true, BUDGET), refused, ready, refused, (true, 1)]);
    }

    #[test]
    fn the_first_poll_of_a_task_has_a_smaller_budget() {
        let mut polls = Vec::new();
        let two_polls = poll_fn(move |cx| {
            polls.push((0..).take_while(|_| consume(cx).is_ready()).count() as i32);
            if polls.len() == 2 {
                Poll::Ready(polls.clone())
            } else {
                Poll::Pending
            }
        });
        let polls = crate::block_on(async { crate::spawn(two_polls).await });
        assert_eq!(polls, [FIRST_BUDGET, BUDGET]);
    }

    #[test]
    fn large_transfers_are_charged_by_the_byte() {
        crate::block_on(poll_fn(|cx| {
            let polls = |bytes| {
                while consume(cx).is_ready() {}
                while consume(cx).is_pending() {}
                let moves = (1..).take_while(|_| {
                    charge(bytes);
                    consume(cx).is_ready()
                });
                moves.count() + 1
            };
            // The poll that renews the budget takes nothing from it.
            assert_eq!(polls(1), BUDGET as usize + 1);
            assert_eq!(polls(BYTES_PER_UNIT), BUDGET as usize + 1);
            assert_eq!(polls(64 << 10), 4);
            assert_eq!(polls(BUDGET as usize * BYTES_PER_UNIT), 1);
            assert_eq!(polls(usize::MAX), 1);
            Poll::Ready(())
        }));
    }

    /// Each of several datagrams is charged and their bytes are.
    #[cfg(feature = "net")]
    #[test]
    fn datagram_batch_charged_each_and_bytes() {
        crate::block_on(poll_fn(|cx| {
            let calls = |count, bytes| {
                while consume(cx).is_ready() {}
                while consume(cx).is_pending() {}
                let calls = (1..).take_while(|_| {
                    charge_datagrams(count, bytes);
                    consume(cx).is_ready()
                });
                calls.count() + 1
            };
            // The poll that renews the budget takes nothing from it.
            assert_eq!(calls(1, 100), BUDGET as usize + 1);
            assert_eq!(calls(32, 32 * 60), 5);
            assert_eq!(calls(64, 64 * 1_500), 2);
            assert_eq!(calls(1, 64 << 10), 4);
            Poll::Ready(())
        }));
    }

    #[test]
    fn what_would_block_is_given_back() {
        crate::block_on(poll_fn(|cx| {
            for _ in 0..10 * BUDGET {
                assert!(consume(cx).is_ready());
                restore();
            }
            (0..BUDGET).for_each(|_| assert!(consume(cx).is_ready()));
            assert!(consume(cx).is_pending());
            Poll::Ready(())
        }));
    }
}

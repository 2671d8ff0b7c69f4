//! Rule 40: `timeout`, and deadlines next to a future that is always ready.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use polder::Timer;
use polder::future::{or, poll_once};
use polder::time::interval;
use polder::time::{sleep_until, timeout, timeout_at};

use super::{ms, past};
use crate::support::{LIMIT, in_every_runtime};

/// Timeout prefers a ready future over an elapsed deadline.
#[test]
fn timeout_prefers_ready_future() {
    in_every_runtime(|_| async {
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        assert_eq!(timeout_at(past(), async { 2 }).await, Ok(2));

        // Both are due, long after both were polled.
        let ready = AtomicBool::new(false);
        let deadline = polder::time::now() + ms(5);
        let mut limited = timeout_at(
            deadline,
            poll_fn(|_| {
                if ready.load(Ordering::Relaxed) {
                    Poll::Ready(3)
                } else {
                    Poll::Pending
                }
            }),
        );
        if poll_once(&mut limited).await.is_none() {
            sleep_until(deadline + ms(1)).await;
            ready.store(true, Ordering::Relaxed);
            assert_eq!(limited.await, Ok(3));
        }
    });
}

/// An elapsed timeout drops nothing early and turns into an I/O error.
#[test]
fn elapsed_timeout_converts_to_io_error() {
    in_every_runtime(|_| async {
        let count = Arc::new(());
        let held = count.clone();
        let start = polder::time::now();
        let elapsed = timeout(ms(3), async move {
            let _held = held;
            std::future::pending::<()>().await
        })
        .await
        .expect_err("a pending future is never done");
        assert!(polder::time::now() - start >= ms(3));
        assert_eq!(Arc::strong_count(&count), 1, "the future is dropped");
        let error = std::io::Error::from(elapsed);
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    });
}

/// An elapsed timeout does not poll its future again.
#[test]
fn elapsed_timeout_does_not_poll_again() {
    in_every_runtime(|_| async {
        let polls = Cell::new(0);
        let never = poll_fn(|_| {
            polls.set(polls.get() + 1);
            Poll::<()>::Pending
        });
        let mut limited = pin!(timeout(ms(1), never));
        limited.as_mut().await.expect_err("it is never done");
        let before = polls.get();
        limited.as_mut().await.expect_err("it has elapsed");
        assert_eq!(polls.get(), before);
    });
}

/// A future that yields only because it has used up its budget must not take the budget of the
/// deadline.
#[test]
fn a_timeout_ends_a_future_that_is_always_ready() {
    in_every_runtime(|_| async {
        let busy = async {
            let mut ticks = interval(Duration::ZERO);
            loop {
                ticks.tick().await;
            }
        };
        assert!(
            timeout(ms(5), give_up_after(LIMIT / 10, busy))
                .await
                .is_err()
        );
    });
}

/// A timer behind a future that is always ready fires.
///
/// The same, in the style of smol's users.
#[test]
fn timer_beside_always_ready_future_fires() {
    in_every_runtime(|_| async {
        let busy = async {
            let mut ticks = interval(Duration::ZERO);
            loop {
                ticks.tick().await;
            }
        };
        or(give_up_after(LIMIT / 10, busy), async {
            Timer::after(ms(5)).await;
        })
        .await;
    });
}

/// Panics if `future` is still polled after `limit`: otherwise a failure would be a busy loop.
async fn give_up_after<F: Future>(limit: Duration, future: F) -> F::Output {
    let start = Instant::now();
    let mut future = pin!(future);
    poll_fn(|cx| {
        assert!(start.elapsed() < limit, "it was not ended within {limit:?}");
        future.as_mut().poll(cx)
    })
    .await
}

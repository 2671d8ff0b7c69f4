//! Connecting to one of several addresses: Happy Eyeballs (RFC 8305).
//!
//! The addresses are tried in the resolver's order, alternating between the families (section 4).
//! The next attempt starts when one fails, or after [`ATTEMPT_DELAY`], and the others continue
//! (section 5). The first to connect wins; the others are dropped, which closes their sockets.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::time::Timer;

/// The time until the next attempt starts: RFC 8305's recommended "Connection Attempt Delay"
/// (section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Alternates between the families, beginning with the first address's; each keeps its order.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (ours, others): (Vec<_>, Vec<_>) =
        (addresses.into_iter()).partition(|address| address.is_ipv6() == first);
    let longest = ours.len().max(others.len());
    let in_turn = (0..longest).flat_map(|index| [ours.get(index), others.get(index)]);
    in_turn.flatten().copied().collect()
}

/// Returns the first attempt that succeeds, or the error of the last that failed; `None` if there
/// is no address.
pub(super) async fn race<T, F>(
    addresses: Vec<SocketAddr>,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> Option<io::Result<T>>
where
    F: Future<Output = io::Result<T>>,
{
    let mut addresses = interleave(addresses).into_iter();
    let mut attempts: Vec<Pin<Box<F>>> = Vec::new();
    // Until the next attempt starts; `None`: it starts immediately.
    let mut delay: Option<Timer> = None;
    let mut error = None;
    poll_fn(|cx| {
        loop {
            let mut index = 0;
            while let Some(attempt) = attempts.get_mut(index) {
                match attempt.as_mut().poll(cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(Ok(it)) => return Poll::Ready(Some(Ok(it))),
                    Poll::Ready(Err(failed)) => {
                        error = Some(failed);
                        drop(attempts.remove(index));
                        delay = None;
                    }
                }
            }
            if let Some(timer) = &mut delay {
                if Pin::new(timer).poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            match addresses.next() {
                Some(address) => {
                    attempts.push(Box::pin(attempt(address)));
                    // No further attempt, so no delay.
                    let is_last = addresses.len() == 0;
                    delay = (!is_last).then(|| Timer::after(ATTEMPT_DELAY));
                }
                None if attempts.is_empty() => return Poll::Ready(error.take().map(Err)),
                None => return Poll::Pending,
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::future::pending;
    use std::time::Instant;

    fn addresses(text: &[&str]) -> Vec<SocketAddr> {
        text.iter()
            .map(|address| address.parse().unwrap())
            .collect()
    }

    /// Families alternate, beginning with the first address's.
    #[test]
    fn families_alternate_from_first() {
        let all = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let ordered = addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert_eq!(interleave(all), ordered);
        let all = addresses(&["1.1.1.1:1", "[::1]:1", "[::2]:1"]);
        assert_eq!(interleave(all.clone()), all);
        assert_eq!(interleave(Vec::new()), []);
    }

    /// Logs the address when the attempt is dropped.
    struct Attempt<'a>(&'a RefCell<Vec<String>>, SocketAddr);

    impl Drop for Attempt<'_> {
        fn drop(&mut self) {
            self.0.borrow_mut().push(format!("end of {}", self.1));
        }
    }

    crate::test! {
        async fn an_address_that_does_not_answer_delays_the_next_one_and_loses() {
            let log = RefCell::new(Vec::new());
            let start = Instant::now();
            let result = race(
                addresses(&["[::1]:1", "[::2]:1", "1.1.1.1:1"]),
                |address| {
                    log.borrow_mut().push(format!("{address}"));
                    let guard = Attempt(&log, address);
                    async move {
                        let _guard = guard;
                        if address.is_ipv6() {
                            pending().await
                        } else {
                            Ok(address)
                        }
                    }
                },
            )
            .await;
            assert_eq!(result.unwrap().unwrap(), "1.1.1.1:1".parse().unwrap());
            assert!(start.elapsed() >= ATTEMPT_DELAY);
            let log = log.into_inner();
            // The third address was not needed.
            let expected = ["[::1]:1", "1.1.1.1:1", "end of 1.1.1.1:1", "end of [::1]:1"];
            assert_eq!(log, expected);
        }
    }

    /// A name with one address, the usual case, sets no timer.
    #[test]
    fn the_last_attempt_needs_no_timer() {
        let all = addresses(&["[::1]:1", "1.1.1.1:1"]);
        for (count, timers) in [(1, false), (2, true)] {
            let runtime = crate::Runtime::new().unwrap();
            let some = all[..count].to_vec();
            let _race = runtime.spawn_local(race(some, |_| pending::<io::Result<()>>()));
            runtime.run_once(Duration::ZERO);
            assert_eq!(runtime.next_timeout().is_some(), timers, "of {count}");
        }
    }

    crate::test! {
        async fn an_address_that_fails_is_followed_by_the_next_at_once_and_the_last_error_counts() {
            let fail = |address: SocketAddr| async move {
                Err::<(), _>(io::Error::other(address.to_string()))
            };
            let all: Vec<_> = (1..=100)
                .map(|port| ([127, 0, 0, 1], port).into())
                .collect();
            let start = Instant::now();
            let error = race(all, fail).await.unwrap().unwrap_err();
            assert_eq!(error.to_string(), "127.0.0.1:100");
            // A hundred delays would take 25 seconds.
            assert!(start.elapsed() < Duration::from_secs(20));
            assert!(race(Vec::new(), fail).await.is_none());
        }
    }

    crate::test! {
        async fn a_slow_address_may_still_win() {
            let result = race(
                addresses(&["[::1]:1", "1.1.1.1:1"]),
                |address| async move {
                    if address.is_ipv6() {
                        Timer::after(2 * ATTEMPT_DELAY).await
                    } else {
                        pending().await
                    };
                    Ok(address)
                },
            )
            .await;
            assert_eq!(result.unwrap().unwrap(), "[::1]:1".parse().unwrap());
        }
    }
}

//! [`timeout`]: time limits for futures.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use super::timer::{Sleep, sleep, sleep_until};

/// Limits `future` to `duration`. The future is polled first, so its output is returned if it is
/// ready, even after the deadline.
///
/// # Examples
///
/// ```
/// use polder::time::timeout;
/// use std::time::Duration;
///
/// polder::block_on(async {
///     let limit = Duration::from_millis(5);
///     assert_eq!(timeout(limit, async { 1 }).await, Ok(1));
///     assert!(timeout(limit, std::future::pending::<()>()).await.is_err());
/// });
/// ```
///
/// # Errors
///
/// [`Elapsed`] after the deadline, which converts into an [`io::Error`] of kind
/// [`TimedOut`](io::ErrorKind::TimedOut).
///
/// # Panics
///
/// When awaited, as [`Timer`](crate::Timer).
///
/// # Cancel safety
///
/// Cancel safe if `future` is. A timeout that is polled by reference keeps `future`, even after the
/// deadline.
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        limit: sleep(duration),
        is_done: false,
    }
}

/// Limits `future` to the time until `deadline`. See [`timeout`].
///
/// ```
/// use polder::time::timeout_at;
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// let result = polder::block_on(timeout_at(deadline, std::future::pending::<()>()));
/// assert!(result.is_err());
/// ```
///
/// # Errors
///
/// As [`timeout`].
///
/// # Panics
///
/// When awaited, as [`Timer`](crate::Timer).
///
/// # Cancel safety
///
/// As [`timeout`].
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        limit: sleep_until(deadline),
        is_done: false,
    }
}

pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    ///
    /// ```
    /// use polder::time::{Timeout, sleep, timeout};
    /// use std::time::Duration;
    ///
    /// // The type has a name, for signatures.
    /// fn soon<F: Future>(future: F) -> Timeout<F> {
    ///     timeout(Duration::from_millis(2), future)
    /// }
    ///
    /// let late = polder::block_on(soon(sleep(Duration::from_secs(3600))));
    /// assert!(late.is_err());
    /// ```
    ///
    /// After it has returned [`Elapsed`], it does so on every poll, and no longer polls the future.
    ///
    /// # Errors
    ///
    /// [`Elapsed`] after the deadline.
    ///
    /// # Panics
    ///
    /// If it is polled after its future has completed, and as [`Timer`](crate::Timer).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe if the future is.
    #[must_use = "futures do nothing unless they are polled"]
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        limit: Sleep,
        is_done: bool,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        assert!(!*this.is_done, "`Timeout` polled after completion");
        if this.limit.has_fired() {
            return Poll::Ready(Err(Elapsed(())));
        }
        if let Poll::Ready(output) = this.future.poll(cx) {
            *this.is_done = true;
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.limit).poll(cx).map(|()| Err(Elapsed(())))
    }
}

/// The error of a [`timeout`].
///
/// ```
/// use polder::time::timeout;
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// let never = timeout(Duration::from_millis(2), std::future::pending::<()>());
/// let elapsed = polder::block_on(never).unwrap_err();
/// assert_eq!(elapsed.to_string(), "deadline has elapsed");
/// assert_eq!(Error::from(elapsed).kind(), ErrorKind::TimedOut); // So `?` works.
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "TimeoutError")]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}

//! A limit on how long a future may take.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use super::timer::{Sleep, sleep, sleep_until};

/// Gives `future` at most `duration` to be done.
///
/// A future that is ready wins over a deadline that has come.
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
/// [`Elapsed`], which turns into an [`io::Error`] of kind [`TimedOut`](io::ErrorKind::TimedOut).
///
/// # Panics
///
/// When awaited, as [`Timer`](crate::Timer).
///
/// # Cancel safety
///
/// `future` is dropped with the timeout: once that was awaited, whether or not the time was over, or when
/// it is given up. A timeout that is polled by reference keeps it.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout {
        future,
        limit: sleep(duration),
        state: State::Pending,
    }
}

/// Gives `future` until `deadline` to be done. See [`timeout`].
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
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout {
        future,
        limit: sleep_until(deadline),
        state: State::Pending,
    }
}

pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    ///
    /// ```
    /// use polder::time::{Timeout, sleep, timeout};
    /// use std::time::Duration;
    ///
    /// // Others can be told what they get.
    /// fn soon<F: Future>(future: F) -> Timeout<F> {
    ///     timeout(Duration::from_millis(2), future)
    /// }
    ///
    /// let late = polder::block_on(soon(sleep(Duration::from_secs(3600))));
    /// assert!(late.is_err());
    /// ```
    ///
    /// Once its deadline has elapsed it gives [`Elapsed`] whenever it is polled, and does not poll the future
    /// any more.
    ///
    /// # Panics
    ///
    /// If it is polled again after it has given the future's output, and as [`Timer`](crate::Timer).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the future, and leaves nothing behind.
    #[must_use = "futures do nothing unless they are polled"]
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        limit: Sleep,
        state: State,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Pending,
    Elapsed,
    /// The future's output was given.
    Done,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.state {
            State::Pending => {}
            State::Elapsed => return Poll::Ready(Err(Elapsed(()))),
            State::Done => panic!("`Timeout` polled after completion"),
        }
        if let Poll::Ready(output) = this.future.poll(cx) {
            *this.state = State::Done;
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.limit).poll(cx).map(|()| {
            *this.state = State::Elapsed;
            Err(Elapsed(()))
        })
    }
}

/// The deadline has elapsed before the future was done.
///
/// ```
/// use polder::time::timeout;
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// let never = timeout(Duration::from_millis(2), std::future::pending::<()>());
/// let elapsed = polder::block_on(never).unwrap_err();
/// assert_eq!(elapsed.to_string(), "deadline has elapsed");
/// assert_eq!(Error::from(elapsed).kind(), ErrorKind::TimedOut); // So `?` takes it.
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

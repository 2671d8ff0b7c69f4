//! [`Stall`]: a time limit for a peer that neither sends nor takes anything.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use polder::time::{Sleep, sleep};

#[derive(Debug)]
pub(crate) struct Stall {
    /// The text of its error.
    what: &'static str,
    limit: Duration,
    /// Set while an operation has to wait.
    sleep: Option<Sleep>,
}

impl Stall {
    pub(crate) fn new(what: &'static str, limit: Duration) -> Stall {
        let sleep = None;
        Stall { what, limit, sleep }
    }

    /// Passes on the result of an operation. If it has been pending for too long, returns the
    /// result of a last `attempt`, or an error if there is none.
    pub(crate) fn check<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<T>,
        attempt: impl FnOnce() -> Option<T>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = result {
            self.sleep = None;
            return Poll::Ready(Ok(result));
        }
        let limit = self.limit;
        let stalled = self.sleep.get_or_insert_with(|| sleep(limit));
        ready!(Pin::new(stalled).poll(cx));
        if let Some(result) = attempt() {
            self.sleep = None;
            return Poll::Ready(Ok(result));
        }
        let text = format!("{} for {limit:?}", self.what);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

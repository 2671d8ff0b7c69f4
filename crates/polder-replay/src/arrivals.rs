//! Results that come between two turns: calls on threads, and signals.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

use futures_lite::stream::{self, StreamExt};
use polder::kernel::{self, BlockingCall};
use polder::runtime::custom::on_thread;
use polder::signal::{Signal, Signals};

use crate::deck::{Source, look, with};
use crate::shared::{Shared, lock};
use crate::tape::{Cursor, Kept, bad};

/// Results that come between two turns.
#[derive(Debug)]
pub(crate) struct Waiting {
    id: u64,
    shared: Arc<Shared>,
}

impl Waiting {
    /// Returns the next result, unless there is none yet. Has a waker woken for the next one, in
    /// the place of the one before.
    fn take(&self, mut waker: Option<Waker>) -> io::Result<Option<Vec<u8>>> {
        with(Some(&self.shared), |deck| {
            let found = deck.arrivals.get_mut(&self.id);
            Ok(found.and_then(|found| {
                if waker.is_some() {
                    std::mem::swap(&mut found.waker, &mut waker);
                }
                found.results.pop_front()
            }))
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let found = look(Some(&self.shared), |deck| deck.arrivals.remove(&self.id));
        drop(found); // With its waker, outside of the deck.
    }
}

/// [`call_later`], of a call that is no name lookup.
pub(crate) fn job<T: Kept + 'static>(
    what: String,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = io::Result<T>> + Send>> {
    call_later(false, what, call)
}

/// Has a thread make a call when this is first polled. The result is given to the worker between
/// two turns.
pub(crate) fn call_later<T: Kept + 'static>(
    is_lookup: bool,
    what: String,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = io::Result<T>> + Send>> {
    Box::pin(async move {
        let (id, shared) = begin_call(is_lookup, &what, None, call)?;
        let waiting = Waiting { id, shared };
        let result = poll_fn(|cx| match waiting.take(Some(cx.waker().clone())) {
            Ok(None) => Poll::Pending,
            Ok(Some(result)) => Poll::Ready(Ok(result)),
            Err(error) => Poll::Ready(Err(error)),
        });
        let result = Kept::get(&mut Cursor(&result.await?));
        let damaged = || Err(bad("the result of a call on a thread is damaged"));
        result.unwrap_or_else(damaged)
    })
}

/// Has a thread make a call, from now on: the worker only asks for the result between two turns.
pub(crate) fn begin_call<T: Kept + 'static>(
    is_lookup: bool,
    what: &str,
    unblock: Option<Arc<dyn BlockingCall>>,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<(u64, Arc<Shared>)> {
    let source = || -> io::Result<Source> {
        let called = on_thread(is_lookup, || kept(&call()))?;
        Ok(Box::pin(stream::once_future(async {
            let result = called.await;
            result.unwrap_or_else(|error| kept(&io::Result::<()>::Err(error)))
        })))
    };
    begin(format!("a call on a thread ({what})"), unblock, source)
}

fn kept(value: &impl Kept) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    bytes
}

fn begin(
    what: String,
    unblock: Option<Arc<dyn BlockingCall>>,
    source: impl FnOnce() -> io::Result<Source>,
) -> io::Result<(u64, Arc<Shared>)> {
    with(None, |deck| {
        let begun = deck.begin_arrivals(what, unblock, source)?;
        Ok(begun.map(|id| (id, deck.shared.clone())))
    })?
}

/// Has the system count signals, which it does on a thread without this kernel.
pub(crate) fn listen(numbers: &[usize]) -> io::Result<Box<dyn kernel::Signals>> {
    let listening = || -> io::Result<Source> {
        let signals = numbers
            .iter()
            .map(|number| Signal::try_from(*number as i32));
        let signals = signals.collect::<io::Result<Vec<_>>>()?;
        let made = thread::scope(|scope| {
            let thread = thread::Builder::new();
            let thread = thread.spawn_scoped(scope, || Signals::new(signals))?;
            let panicked = |_| Err(io::ErrorKind::Other.into());
            thread.join().unwrap_or_else(panicked)
        })?;
        Ok(Box::pin(made.map(|signal| {
            kept(&(signal.number().unwrap_or(0) as u64))
        })))
    };
    let (id, shared) = begin(
        format!("listening to signals ({numbers:?})"),
        None,
        listening,
    )?;
    let (waiting, counts) = (Waiting { id, shared }, Mutex::default());
    Ok(Box::new(TapedSignals { waiting, counts }))
}

#[derive(Debug)]
struct TapedSignals {
    waiting: Waiting,
    counts: Mutex<BTreeMap<u64, u64>>,
}

impl kernel::Signals for TapedSignals {
    fn count(&self, number: usize) -> u64 {
        let mut counts = lock(&self.counts);
        let results = std::iter::from_fn(|| self.waiting.take(None).ok().flatten());
        for result in results {
            *counts
                .entry(Cursor(&result).number().unwrap_or(0))
                .or_default() += 1;
        }
        counts.get(&(number as u64)).copied().unwrap_or(0)
    }

    fn set_waker(&self, waker: Option<&Waker>) {
        let mut waker = waker.cloned();
        look(Some(&self.waiting.shared), |deck| {
            if let Some(found) = deck.arrivals.get_mut(&self.waiting.id) {
                std::mem::swap(&mut found.waker, &mut waker);
            }
        });
    }
}

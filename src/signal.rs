//! Signals of the operating system: for now, Ctrl-C.
//!
//! One thread, started on first use, waits for the signal and wakes whoever waits for it, in
//! whatever runtime. It depends on no backend, and a program that asks for no signal has none of it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::sync::{renew, wake_all};

/// Waits for the next Ctrl-C (`SIGINT`) from here on.
///
/// Every future that waits gets it. **From the first call on, Ctrl-C no longer ends the process**,
/// even when nobody waits for it any more.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let stop = polder::signal::ctrl_c(); // From here on it is caught.
///     // Nobody presses the keys here, so the program sends itself what they would.
///     signal_hook::low_level::raise(signal_hook::consts::SIGINT)?;
///     stop.await?;
///     println!("stopping");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// When awaited, what the system said when the handler was to be installed.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind. A Ctrl-C that came before it was made is not told;
/// one that came before its first poll is.
pub fn ctrl_c() -> CtrlC {
    CtrlC {
        after: start(),
        place: None,
    }
}

/// The future of [`ctrl_c`].
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct CtrlC {
    /// How many there had been when it was made.
    after: io::Result<u64>,
    /// Among the wakers.
    place: Option<usize>,
}

#[derive(Debug)]
struct State {
    started: bool,
    wakers: Slab<Waker>,
}

/// How many signals there were. Counted by the handler itself, so that what came before a listener
/// is known when that is made.
static COUNT: AtomicU64 = AtomicU64::new(0);

static STATE: Mutex<State> = Mutex::new(State {
    started: false,
    wakers: Slab::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the handler and starts the thread, unless that was done; how many signals there were.
fn start() -> io::Result<u64> {
    let mut state = state();
    if !state.started {
        listen()?;
        state.started = true;
    }
    Ok(COUNT.load(Ordering::SeqCst))
}

/// Signals have been counted: wakes everyone who waits for one.
fn announce() {
    let wakers = state().wakers.clone();
    wake_all(wakers.into_iter().map(|(_, waker)| waker));
}

#[cfg(unix)]
fn listen() -> io::Result<()> {
    use signal_hook::consts::SIGINT;

    // The thread first, since it can fail, and a handler that is there stays.
    let (sender, receiver) = std::sync::mpsc::channel::<signal_hook::iterator::Signals>();
    thread().spawn(move || {
        let Ok(mut signals) = receiver.recv() else {
            return; // It could not be installed.
        };
        for _ in &mut signals {
            announce();
        }
    })?;
    // SAFETY: an atomic addition is all that is done in the handler.
    unsafe {
        signal_hook::low_level::register(SIGINT, || {
            COUNT.fetch_add(1, Ordering::SeqCst);
        })?;
    }
    // Registered second, it writes to its pipe after the count.
    let _ = sender.send(signal_hook::iterator::Signals::new([SIGINT])?);
    Ok(())
}

/// Windows calls the handler on a thread that it makes for that, and forgets it afterwards, which
/// signal-hook puts right. It has no pipe to write to, so the handler counts and unparks.
#[cfg(windows)]
fn listen() -> io::Result<()> {
    let listener = thread().spawn(|| {
        let mut seen = 0;
        loop {
            std::thread::park();
            let count = COUNT.load(Ordering::SeqCst);
            if std::mem::replace(&mut seen, count) < count {
                announce();
            }
        }
    })?;
    let listener = listener.thread().clone();
    // SAFETY: the handler adds to an atomic and unparks a thread, which takes no lock and allocates
    // nothing.
    unsafe {
        signal_hook::low_level::register(signal_hook::consts::SIGINT, move || {
            COUNT.fetch_add(1, Ordering::SeqCst);
            listener.unpark();
        })?;
    }
    Ok(())
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("polder-signals".into())
}

impl Future for CtrlC {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let after = match &mut self.after {
            Ok(after) => *after,
            Err(error) => {
                let error = std::mem::replace(error, io::ErrorKind::Other.into());
                return Poll::Ready(Err(error));
            }
        };
        // A signal is counted before the wakers are looked at, and that is done under the lock: so it
        // is seen here, or wakes us.
        let mut state = state();
        if COUNT.load(Ordering::SeqCst) > after {
            let waker = self.place.take().map(|place| state.wakers.remove(place));
            drop(state);
            drop(waker);
            return Poll::Ready(Ok(()));
        }
        let old = match self.place {
            Some(place) => renew(&mut state.wakers[place], cx.waker()),
            None => {
                self.place = Some(state.wakers.insert(cx.waker().clone()));
                None
            }
        };
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for CtrlC {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = state().wakers.remove(place);
            drop(waker);
        }
    }
}

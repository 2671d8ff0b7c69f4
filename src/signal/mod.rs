//! Signals of the operating system: [`ctrl_c`], and [`Signals`] for the others.
//!
//! One thread, started on first use, wakes the waiters, in any runtime or executor.
//!
//! ```
//! use polder::future;
//! use polder::signal::ctrl_c;
//!
//! # async fn serve() { signal_hook::low_level::raise(2).unwrap(); std::future::pending().await }
//! polder::block_on(async {
//!     // Serves until Ctrl-C is pressed.
//!     future::or(async { serve().await; Ok(()) }, ctrl_c()).await?;
//!     println!("stopping");
//!     std::io::Result::Ok(())
//! })?;
//! # std::io::Result::Ok(())
//! ```
//!
//! The handler itself counts the signal, so each listener gets those since it was made.

mod names;
mod registry;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_lite::Stream;

pub use names::Signal;
use registry::{Key, Waiter, mask};
#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

use crate::kernel;
use crate::scheduler::{is_task_waker, record_wait};
use crate::sync::{NeedsClone, Spare, drop_all};
use crate::sys::invalid;
use crate::telemetry::WaitReason;

/// Waits for the next Ctrl-C (`SIGINT`) after this call. Every waiting future receives it. **After
/// the first call, Ctrl-C no longer ends the process**, even without a waiter.
///
/// # Examples
///
/// ```
/// polder::block_on(async {
///     let stop = polder::signal::ctrl_c(); // Ctrl-C is caught from now on.
///     // For this example, the program sends the signal itself.
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
/// When awaited: the system's error, if it refused the handler or its thread.
///
/// # Panics
///
/// When awaited: as [`Signals`].
///
/// # Cancel safety
///
/// Cancel safe. A Ctrl-C before the first poll is reported.
pub fn ctrl_c() -> CtrlC {
    CtrlC {
        signals: Signals::new([Signal::Int]),
    }
}

/// The future of [`ctrl_c`].
///
/// ```
/// use polder::future;
///
/// polder::block_on(async {
///     let mut stop = polder::signal::ctrl_c();
///     assert!(future::poll_once(&mut stop).await.is_none()); // Not yet pressed.
///     signal_hook::low_level::raise(signal_hook::consts::SIGINT)?;
///     stop.await?; // Now it was.
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`ctrl_c`].
///
/// # Panics
///
/// As [`Signals`].
///
/// # Cancel safety
///
/// Cancel safe. A Ctrl-C between two polls is reported by the next one.
#[must_use = "futures do nothing unless they are polled"]
#[derive(Debug)]
pub struct CtrlC {
    signals: io::Result<Signals>,
}

impl Future for CtrlC {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.signals {
            Ok(signals) => signals.poll_signal(cx).map(|_| Ok(())),
            Err(error) => {
                let error = std::mem::replace(error, io::ErrorKind::Other.into());
                Poll::Ready(Err(error))
            }
        }
    }
}

/// An endless stream of signals.
///
/// Each listener receives every signal after it was made; there can be any number, in any number of
/// runtimes. Signals of one kind between two polls are reported once, as the system merges pending
/// signals.
///
/// **Once a signal was listened to, its default action (usually ending the process) is disabled**,
/// even without a listener: otherwise a late signal would do what the program meant to prevent.
/// `signal_hook::low_level::emulate_default_handler` performs the default action.
///
/// On Unix, polder's thread does not block a signal that is listened to, even if all other threads
/// do. So do not also wait for it by sigwait(3) or a signalfd. A signal to a single thread that
/// blocks it stays with that thread. In a child of `fork` the parent's listeners work, too: each
/// process receives its own signals.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)] {
/// use polder::signal::{Signal, Signals};
/// use polder::stream::StreamExt;
///
/// polder::block_on(async {
///     let mut signals = Signals::new([Signal::Term, Signal::Hup])?;
///     signal_hook::low_level::raise(signal_hook::consts::SIGHUP)?;
///     while let Some(signal) = signals.next().await {
///         match signal {
///             Signal::Hup => println!("reading the settings again"),
///             _ => break,
///         }
///         # break;
///     }
///     std::io::Result::Ok(())
/// })?;
/// # } std::io::Result::Ok(())
/// ```
///
/// # Platforms
///
/// Windows has [`Signal::Int`] (Ctrl-C), and [`Signal::Term`] and [`Signal::Abrt`], which only the
/// program itself raises. On Unix, [`Signal::number`] returns `None` if the platform lacks it.
///
/// # Panics
///
/// In a child of `fork`, if polling a parent's listener cannot start a thread.
///
/// # Cancel safety
///
/// Cancel safe: if `next()` is dropped, no signal is lost.
#[doc(alias = "SignalKind")]
#[must_use = "streams do nothing unless they are polled"]
#[derive(Debug)]
pub struct Signals {
    subscriptions: Vec<Subscription>,
    /// The subscription to check first, so that a frequent signal does not starve the others.
    next: usize,
    key: Option<Key>,
    /// The signals, if an installed kernel counts them.
    custom: Option<Box<dyn kernel::Signals>>,
}

#[derive(Debug)]
struct Subscription {
    signal: Signal,
    number: usize,
    seen: u64,
}

impl Signals {
    /// Listens to `signals` that come after this call.
    ///
    /// ```
    /// use polder::signal::{Signal, Signals};
    /// use std::io::ErrorKind;
    ///
    /// // By name, or by number. From now on neither ends the process.
    /// let _stop = Signals::new([Signal::Int, Signal::try_from(15)?])?;
    /// // A signal that cannot be caught cannot be listened to.
    /// assert_eq!(Signals::new([Signal::Kill]).unwrap_err().kind(), ErrorKind::InvalidInput);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty list; a signal that cannot be
    /// caught ([`Signal::Kill`], [`Signal::Stop`]) or whose handler must not return, since the
    /// faulting instruction would run again ([`Signal::Ill`], [`Signal::Fpe`], [`Signal::Segv`]);
    /// and a [number](Signal::Other) without a signal. [`Unsupported`](io::ErrorKind::Unsupported)
    /// for a signal that the platform lacks. Otherwise the system's error: the signals before that
    /// one in the list stay caught, and no longer end the process.
    pub fn new(signals: impl IntoIterator<Item = Signal>) -> io::Result<Signals> {
        // All are checked before the first is caught.
        let mut subscriptions: Vec<Subscription> = Vec::new();
        for signal in signals {
            let number = signal.check()?;
            if subscriptions.iter().all(|known| known.signal != signal) {
                subscriptions.push(Subscription {
                    signal,
                    number,
                    seen: 0,
                });
            }
        }
        if subscriptions.is_empty() {
            return Err(invalid("the list of signals to listen to is empty"));
        }
        let mut signals = Signals {
            subscriptions,
            next: 0,
            key: None,
            custom: None,
        };
        let custom = kernel::current().and_then(|kernel| {
            let numbers: Vec<usize> = signals.numbers().collect();
            kernel.signals(&numbers)
        });
        if let Some(counted) = custom {
            let counted = counted?;
            for subscription in &mut signals.subscriptions {
                subscription.seen = counted.count(subscription.number);
            }
            signals.custom = Some(counted);
            return Ok(signals);
        }
        let mut registry = registry::lock();
        for subscription in &mut signals.subscriptions {
            registry.catch(subscription.number)?;
            subscription.seen = registry::count(subscription.number);
        }
        drop(registry);
        Ok(signals)
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        self.subscriptions.iter().map(|one| one.number)
    }

    fn take_next(&mut self) -> Option<Signal> {
        let length = self.subscriptions.len();
        for index in (self.next..length).chain(0..self.next) {
            let subscription = &mut self.subscriptions[index];
            let count = match &self.custom {
                Some(counted) => counted.count(subscription.number),
                None => registry::count(subscription.number),
            };
            if count > subscription.seen {
                subscription.seen = count;
                self.next = (index + 1) % length;
                return Some(subscription.signal);
            }
        }
        None
    }

    fn mask(&self) -> u128 {
        self.numbers().fold(0, |all, number| all | mask(number))
    }

    fn note_wait(&self) {
        let told = self.numbers().filter(|number| *number < 60);
        record_wait(WaitReason::Signal(
            told.fold(0, |all, number| all | 1 << number),
        ));
    }

    fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        if self.custom.is_some() {
            return self.poll_custom(cx.waker());
        }
        Spare::retry(cx.waker(), |spare| self.poll_locked(cx.waker(), spare))
    }

    /// A signal is counted before the wakers are taken under the lock, so it is either seen here,
    /// or wakes this waiter.
    fn poll_locked(
        &mut self,
        waker: &Waker,
        spare: &mut Spare,
    ) -> Result<Poll<Signal>, NeedsClone> {
        let mut registry = registry::lock();
        // Already running, unless this listener comes from the parent process.
        if let Err(error) = registry.start() {
            drop(registry);
            panic!("polder: the thread for signals cannot be started: {error}");
        }
        if let Some(signal) = self.take_next() {
            let waiter = self.key.take().and_then(|key| registry.remove(key));
            drop(registry);
            drop_all(waiter.and_then(|waiter| waiter.waker));
            return Ok(Poll::Ready(signal));
        }
        match self.key.and_then(|key| registry.get_mut(key)) {
            None => {
                let mask = self.mask();
                let waiter = Waiter {
                    mask,
                    waker: Some(spare.take()?),
                    is_task_waker: is_task_waker(waker),
                };
                self.key = Some(registry.insert(waiter));
            }
            Some(waiter) => {
                spare.store(&mut waiter.waker, waker)?;
                waiter.is_task_waker = is_task_waker(waker);
            }
        }
        self.note_wait();
        Ok(Poll::Pending)
    }
}

impl Signals {
    /// No signal is lost between the two steps: the kernel is this thread's, and runs nothing
    /// meanwhile.
    fn poll_custom(&mut self, waker: &Waker) -> Poll<Signal> {
        let signal = self.take_next();
        if let Some(counted) = &self.custom {
            counted.set_waker(signal.is_none().then_some(waker));
        }
        if signal.is_none() {
            self.note_wait();
        }
        signal.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Stream for Signals {
    type Item = Signal;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Signal>> {
        self.poll_signal(cx).map(Some)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waiter = registry::lock().remove(key);
            drop_all(waiter.and_then(|waiter| waiter.waker));
        }
    }
}

pub(crate) fn is_waited_for(but_for: i32) -> bool {
    let own = usize::try_from(but_for).map_or(0, mask);
    let registry = registry::lock();
    (registry.waiters()).any(|waiter| waiter.waker.is_some() && waiter.mask != own)
}

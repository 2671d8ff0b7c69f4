//! Back-offs: when a source does not wait for a direction that is reported, or tried, in vain.
//!
//! **Spurious events.** An error queue that is not read (`IP_RECVERR`, `SO_TIMESTAMPING`) makes
//! poll(2) and select(2) report a socket as ready for ever, though every read would block: a waiter
//! would be woken, try and wait again endlessly. With levels, after [`MAX_SUSPECT_EVENTS`] events
//! in a row that are, or may be, about an error, we ask poll(2) whether there is anything else. If
//! not, we [back off](Registration::back_off): the direction is armed again after a delay, which
//! grows as long as nothing else is found. Waiters that arrive meanwhile are woken after the delay.
//! (With edges such an error is reported once.)
//!
//! The same back-off serves attempts that would block again and again although poll(2) reports the
//! descriptor as ready: after [`MAX_BLOCKED_ATTEMPTS`] in a row we back off from the direction as
//! well ([`Source::back_off`]). The causes are a caller's operation that does not want what is
//! there, and kernels: Linux reports a datagram socket that was shut down as readable for ever.
//! With edges nothing reports such a direction again, so the end of the back-off acts like an
//! event.

use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::readiness::Direction;
use super::source::{Blocked, Registration, Source, awaited, interest_of, unlock_and_wake};
use super::{Driver, TimerHandle, Token};
use crate::clock::now;
use crate::poller::{Interest, Mode, Ready};
use crate::sync::atomic::Ordering;
use crate::sys;

pub(super) struct BackOff {
    directions: Interest,
    length: Duration,
    /// `None` once the back-off is over.
    timer: Option<TimerHandle>,
}

/// Number of possibly spurious events that are believed before poll(2) is asked about them: few
/// enough that spurious events cost little, and enough that the cost of asking is negligible.
const MAX_SUSPECT_EVENTS: u8 = 32;

/// Number of attempts in a row that would block on a ready descriptor before it backs off: so many
/// messages a caller's operation may decline without delay.
const MAX_BLOCKED_ATTEMPTS: u8 = 32;

/// Each back-off is twice as long as the last one, up to the longest. On a socket with an unread
/// error queue, a datagram may be noticed late by that much.
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(1);
const LONGEST_BACK_OFF: Duration = Duration::from_millis(10);

impl Registration {
    pub(super) fn backed_off(&self) -> Interest {
        match &self.back_off {
            Some(back_off) => back_off.directions,
            None => Interest::NONE,
        }
    }

    /// Backs off from `directions`, and notifies `source` at the end. Returns `false` if the
    /// reactor has closed: then the source will be registered with another one. `driver` is the
    /// reactor's, if this thread drives it.
    fn back_off(
        &mut self,
        driver: Option<&Driver>,
        source: &Arc<Source>,
        directions: Interest,
    ) -> bool {
        let length = match &self.back_off {
            Some(back_off) => (back_off.length * 2).min(LONGEST_BACK_OFF),
            None => SHORTEST_BACK_OFF,
        };
        let end = Waker::from(Arc::new(BackOffEnd {
            source: Arc::downgrade(source),
            token: self.token,
        }));
        let timer = TimerHandle::insert(&self.reactor, driver, now() + length, &end);
        let Some(timer) = timer else {
            return false;
        };
        let directions = directions | self.backed_off();
        self.reset_back_off(driver);
        self.back_off = Some(Box::new(BackOff {
            directions,
            length,
            timer: Some(timer),
        }));
        true
    }

    fn reset_back_off(&mut self, driver: Option<&Driver>) {
        let timer = self.back_off.take().and_then(|back_off| back_off.timer);
        if let Some(mut timer) = timer {
            timer.remove(driver);
        }
    }

    /// Ends the back-off and returns its directions. Its length is kept for the next one; its timer
    /// is not, since a reactor with timers reads the clock.
    fn take_backed_off(&mut self) -> Interest {
        match &mut self.back_off {
            Some(back_off) => {
                if let Some(mut timer) = back_off.timer.take() {
                    timer.remove(None);
                }
                std::mem::take(&mut back_off.directions)
            }
            None => Interest::NONE,
        }
    }
}

/// When a source backs off, and what ends it.
impl Source {
    #[cold]
    pub(super) fn count_blocked_attempt(&self) -> Blocked {
        let count = self.blocked_attempts.load(Ordering::Relaxed) + 1;
        let is_last = count >= MAX_BLOCKED_ATTEMPTS;
        // Not zero, so that the end of the row is noticed: the next back-off is a short one then.
        let count = if is_last { 1 } else { count };
        self.blocked_attempts.store(count, Ordering::Relaxed);
        if is_last {
            Blocked::Often
        } else {
            Blocked::Again
        }
    }

    /// An attempt has not blocked: those before it were no row without end.
    #[inline]
    pub(crate) fn end_blocked_attempts(&self) {
        if self.blocked_attempts.load(Ordering::Relaxed) != 0 {
            self.forget_blocked_attempts();
        }
    }

    #[cold]
    fn forget_blocked_attempts(&self) {
        self.blocked_attempts.store(0, Ordering::Relaxed);
        for registration in self.readiness.lock().registrations.iter_mut() {
            if registration.backed_off().is_empty() {
                registration.reset_back_off(None);
            }
        }
    }

    /// Backs off from a direction on which attempts block although it is ready, and for which the
    /// caller has registered its waker. The waker is woken by an event, or at the end of a back-off
    /// with a reactor that the source is registered with; without edges by the latter only, since
    /// the poller would report the direction at once.
    ///
    /// The waiter's own reactor is among those. If it closes, it wakes the waiters; if the source
    /// leaves it, there is no other waiter.
    ///
    /// # Errors
    ///
    /// As for a wait.
    #[cold]
    pub(crate) fn back_off(self: &Arc<Self>, direction: Direction) -> io::Result<()> {
        let mut state = self.readiness.lock();
        let mut result = Ok(());
        for registration in state.registrations.iter_mut() {
            let interest = direction.interest();
            // Another one's is not prolonged: it has to end.
            if registration.backed_off().contains(interest)
                || !registration.back_off(None, self, interest)
                || registration.reactor.mode == Mode::Edge
            {
                continue;
            }
            let wanted = registration.interest - interest;
            result = result.and(self.set_interest(registration, wanted));
        }
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.refuse(state, error).map(drop),
        }
    }

    /// Returns the directions that were reported without a cause, and are backed off from.
    #[inline]
    pub(super) fn spurious(
        self: &Arc<Self>,
        driver: &Driver,
        registration: &mut Registration,
        ready: Ready,
    ) -> Interest {
        // If the poller reports errors as such, this is an error. If it does not, this may be one,
        // unless a read has returned something.
        let is_suspect = if registration.reactor.poller().capabilities().hints {
            ready.intersects(Ready::ERROR)
        } else {
            !self.has_read.swap(false, Ordering::Relaxed)
        };
        if !is_suspect {
            registration.suspect_events = 0;
            return Interest::NONE;
        }
        registration.suspect_events += 1;
        if registration.suspect_events < MAX_SUSPECT_EVENTS {
            Interest::NONE
        } else {
            self.check_suspect(driver, registration, interest_of(ready))
        }
    }

    /// Asks poll(2) which of the `reported` directions are ready only because of an error, and
    /// backs off from those.
    #[cold]
    fn check_suspect(
        self: &Arc<Self>,
        driver: &Driver,
        registration: &mut Registration,
        reported: Interest,
    ) -> Interest {
        // If poll(2) cannot be asked, the events are believed.
        let descriptor = self.descriptor();
        let only_errors = descriptor.and_then(|descriptor| sys::is_only_an_error(&descriptor));
        let only_errors = only_errors.unwrap_or_default();
        let spurious =
            reported & Direction::interest_in(|direction| only_errors[direction as usize]);
        if spurious.is_empty() {
            registration.suspect_events = 0;
            if registration.backed_off().is_empty() {
                registration.reset_back_off(Some(driver));
            }
            return spurious;
        }
        // The next event is checked immediately.
        registration.suspect_events = MAX_SUSPECT_EVENTS - 1;
        if registration.back_off(Some(driver), self, spurious) {
            spurious
        } else {
            Interest::NONE
        }
    }

    /// Ends a back-off: arms the directions in it that have waiters. With edges they are still
    /// armed, and nothing will report what has been there since: so it acts like an event.
    fn end_back_off(&self, token: Token) {
        let mut wakers = Vec::new();
        let mut state = self.readiness.lock();
        let awaited = awaited(&state);
        let (mut result, mut events) = (Ok(()), Ready::default());
        // (Another reactor may have the same token for it: then its back-off is cut short.)
        for registration in state.registrations.iter_mut() {
            if registration.token == token {
                let directions = registration.take_backed_off();
                if registration.reactor.mode == Mode::Edge {
                    for direction in Direction::BOTH {
                        events.add_if(directions.contains(direction.interest()), direction.ready());
                    }
                } else {
                    result = result.and(self.add_interest(registration, awaited & directions));
                }
            }
        }
        (self.readiness).deliver(&mut state, events, false, &mut wakers);
        if result.is_err() {
            self.deliver_both(&mut state, &mut wakers);
        }
        unlock_and_wake(state, wakers);
    }
}

struct BackOffEnd {
    source: std::sync::Weak<Source>,
    token: Token,
}

impl Wake for BackOffEnd {
    fn wake(self: Arc<BackOffEnd>) {
        if let Some(source) = self.source.upgrade() {
            source.end_back_off(self.token);
        }
    }
}

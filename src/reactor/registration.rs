//! The registrations of a source with reactors: almost always none or one.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::source::Source;
use super::{Driver, Reactor, TimerHandle, Token};
use crate::clock::now;
use crate::poller::Interest;

#[derive(Default)]
pub(super) struct Registrations {
    pub(super) first: Option<Registration>,
    #[expect(
        clippy::box_collection,
        reason = "one word instead of three in every source"
    )]
    more: Option<Box<Vec<Registration>>>,
}

pub(super) struct Registration {
    pub(super) reactor: Arc<Reactor>,
    pub(super) token: Token,
    /// The interest last given to the poller; with one-shot, the part that is still armed.
    pub(super) interest: Interest,
    /// With levels: the number of possibly spurious events in a row since the last check.
    pub(super) suspect_events: u8,
    back_off: Option<Box<BackOff>>,
}

struct BackOff {
    directions: Interest,
    length: Duration,
    /// `None` once the back-off is over.
    timer: Option<TimerHandle>,
}

/// Each back-off is twice as long as the last one, up to the longest. On a socket with an unread
/// error queue, a datagram may be noticed late by that much.
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(1);
const LONGEST_BACK_OFF: Duration = Duration::from_millis(10);

impl Registrations {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Registration> {
        let more = self.more.iter().flat_map(|more| &**more);
        self.first.iter().chain(more)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Registration> {
        let more = self.more.iter_mut().flat_map(|more| &mut **more);
        self.first.iter_mut().chain(more)
    }

    #[inline]
    pub(super) fn with(&mut self, reactor: &Reactor) -> Option<&mut Registration> {
        match &mut self.first {
            Some(registration) if registration.is_with(reactor) => Some(registration),
            _ => (self.more.as_mut()?.iter_mut()).find(|entry| entry.is_with(reactor)),
        }
    }

    pub(super) fn add(&mut self, registration: Registration) {
        match self.first {
            None => self.first = Some(registration),
            Some(_) => self.more.get_or_insert_default().push(registration),
        }
    }

    pub(super) fn remove(&mut self, reactor: &Reactor) -> Registrations {
        let mut removed = self.first.take_if(|entry| entry.is_with(reactor));
        if let Some(more) = &mut self.more {
            match removed {
                Some(_) => self.first = more.pop(),
                None => {
                    let found = more.iter().position(|entry| entry.is_with(reactor));
                    removed = found.map(|index| more.swap_remove(index));
                }
            }
        }
        Registrations {
            first: removed,
            more: None,
        }
    }

    /// Must not be called under the state's lock, which comes after the tables' locks.
    pub(super) fn free_tokens(self) {
        for registration in self.iter() {
            drop(registration.reactor.remove(registration.token));
        }
    }
}

impl Registration {
    pub(super) fn new(reactor: Arc<Reactor>, token: Token, interest: Interest) -> Registration {
        Registration {
            reactor,
            token,
            interest,
            suspect_events: 0,
            back_off: None,
        }
    }

    #[inline]
    pub(super) fn is_with(&self, reactor: &Reactor) -> bool {
        std::ptr::eq(&*self.reactor, reactor)
    }

    pub(super) fn backed_off(&self) -> Interest {
        match &self.back_off {
            Some(back_off) => back_off.directions,
            None => Interest::NONE,
        }
    }

    /// Backs off from `directions`, and notifies `source` at the end. Returns `false` if the
    /// reactor has closed: then the source will be registered with another one. `driver` is the
    /// reactor's, if this thread drives it.
    pub(super) fn back_off(
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

    pub(super) fn reset_back_off(&mut self, driver: Option<&Driver>) {
        let timer = self.back_off.take().and_then(|back_off| back_off.timer);
        if let Some(mut timer) = timer {
            timer.remove(driver);
        }
    }

    /// Ends the back-off and returns its directions. Its length is kept for the next one; its timer
    /// is not, since a reactor with timers reads the clock.
    pub(super) fn take_backed_off(&mut self) -> Interest {
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

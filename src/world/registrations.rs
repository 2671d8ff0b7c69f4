//! [`Registrations`]: the pollers with which a socket is registered.
//!
//! Nearly always that is one. If a process has several workers, and tasks of two of them wait for
//! the same socket, each of these workers registers it with its own poller: see `reactor::source`.

/// The registration of a socket with one poller.
#[derive(Clone, Copy, Debug)]
struct Registration {
    poller: usize,
    token: u64,
    interest: u8,
    /// The readiness that is still to be reported.
    pending: u8,
}

#[derive(Default, Debug)]
pub(super) struct Registrations(Vec<Registration>);

impl Registrations {
    /// Registers with a poller, replacing an earlier registration there.
    pub(super) fn add(&mut self, poller: usize, token: u64, interest: u8) {
        let new = Registration {
            poller,
            token,
            interest,
            pending: 0,
        };
        match self.find(poller) {
            Some(before) => *before = new,
            None => {
                self.0.reserve_exact(1);
                self.0.push(new);
            }
        }
    }

    pub(super) fn remove(&mut self, poller: usize) {
        self.0.retain(|registration| registration.poller != poller);
    }

    /// Returns the nth poller, and its interest.
    #[inline]
    pub(super) fn nth(&self, nth: usize) -> Option<(usize, u8)> {
        let registration = self.0.get(nth)?;
        Some((registration.poller, registration.interest))
    }

    /// Returns the only poller, and its interest. `None` if there is none, or more than one.
    #[inline]
    pub(super) fn only(&self) -> Option<(usize, u8)> {
        self.nth(0).filter(|_| self.0.len() == 1)
    }

    /// Adds readiness for a poller to report. Returns whether it had none before.
    #[inline]
    pub(super) fn raise(&mut self, poller: usize, ready: u8) -> bool {
        self.find(poller).is_some_and(|registration| {
            let before = registration.pending;
            registration.pending |= ready;
            before == 0
        })
    }

    /// Takes the token and the readiness that a poller has to report, if there is any.
    #[inline]
    pub(super) fn take(&mut self, poller: usize) -> Option<(u64, u8)> {
        let registration = self.find(poller)?;
        let pending = std::mem::take(&mut registration.pending);
        (pending != 0).then_some((registration.token, pending))
    }

    #[inline]
    fn find(&mut self, poller: usize) -> Option<&mut Registration> {
        let mut all = self.0.iter_mut();
        all.find(|registration| registration.poller == poller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_poller_reports_what_is_raised_with_it_until_it_is_removed() {
        let mut all = Registrations::default();
        assert_eq!(all.nth(0), None);
        all.add(4, 40, 1);
        all.add(7, 70, 3);
        all.add(4, 41, 2); // Replaces the first.
        assert_eq!((all.nth(0), all.nth(1)), (Some((4, 2)), Some((7, 3))));
        assert_eq!(all.only(), None);
        assert!(
            all.raise(7, 1) && !all.raise(7, 2),
            "it has something already"
        );
        assert!(all.raise(4, 2));
        assert!(!all.raise(5, 1), "it is not registered there");
        assert_eq!(all.take(7), Some((70, 3)));
        assert_eq!(all.take(7), None, "it was taken");
        all.remove(4);
        assert_eq!((all.nth(0), all.nth(1)), (Some((7, 3)), None));
        assert_eq!(all.only(), Some((7, 3)));
        assert_eq!(all.take(4), None);
        assert!(all.raise(7, 2));
        all.remove(7);
        assert_eq!((all.nth(0), all.take(7)), (None, None));
    }
}

//! [`Registrations`]: the pollers with which a socket is registered.
//!
//! Nearly always that is one. If a process has several workers, and tasks of two of them wait for
//! the same socket, each of these workers registers it with its own poller: see `reactor::source`.

/// The registration of a socket with one poller.
#[derive(Clone, Copy, Debug)]
struct Registration {
    poller: u32,
    token: u64,
    interest: u8,
    /// The readiness that is still to be reported.
    pending: u8,
}

/// Shortens the number of a poller, so that each socket takes less memory. Pollers are numbered
/// like workers, of which a world has fewer than 2^32.
fn short(poller: usize) -> u32 {
    u32::try_from(poller).expect("fewer than 2^32 workers")
}

#[derive(Default, Debug)]
pub(super) struct Registrations {
    first: Option<Registration>,
    /// Empty unless there is a first one.
    more: Vec<Registration>,
}

impl Registrations {
    /// Registers with a poller, replacing an earlier registration there.
    pub(super) fn add(&mut self, poller: usize, token: u64, interest: u8) {
        let new = Registration {
            poller: short(poller),
            token,
            interest,
            pending: 0,
        };
        if let Some(before) = self.find(poller) {
            *before = new;
        } else if self.first.is_none() {
            self.first = Some(new);
        } else {
            self.more.push(new);
        }
    }

    pub(super) fn remove(&mut self, poller: usize) {
        let poller = short(poller);
        self.more.retain(|it| it.poller != poller);
        if self.first.is_some_and(|it| it.poller == poller) {
            self.first = (!self.more.is_empty()).then(|| self.more.remove(0));
        }
    }

    /// Returns the nth poller, and its interest.
    #[inline]
    pub(super) fn nth(&self, nth: usize) -> Option<(usize, u8)> {
        let registration = match nth {
            0 => self.first.as_ref(),
            _ => self.more.get(nth - 1),
        };
        registration.map(|it| (it.poller as usize, it.interest))
    }

    /// Returns the only poller, and its interest. `None` if there is none, or more than one.
    #[inline]
    pub(super) fn only(&self) -> Option<(usize, u8)> {
        if self.more.is_empty() {
            self.nth(0)
        } else {
            None
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// Adds readiness for a poller to report. Returns whether it had none before.
    #[inline]
    pub(super) fn raise(&mut self, poller: usize, ready: u8) -> bool {
        match self.find(poller) {
            Some(it) => {
                let before = it.pending;
                it.pending |= ready;
                before == 0
            }
            None => false,
        }
    }

    /// Takes the token and the readiness that a poller has to report, if there is any.
    #[inline]
    pub(super) fn take(&mut self, poller: usize) -> Option<(u64, u8)> {
        let it = self.find(poller)?;
        match std::mem::take(&mut it.pending) {
            0 => None,
            pending => Some((it.token, pending)),
        }
    }

    #[inline]
    fn find(&mut self, poller: usize) -> Option<&mut Registration> {
        let poller = short(poller);
        match &mut self.first {
            Some(first) if first.poller == poller => Some(first),
            _ => self.more.iter_mut().find(|it| it.poller == poller),
        }
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
        assert_eq!((all.len(), all.only()), (2, None));
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

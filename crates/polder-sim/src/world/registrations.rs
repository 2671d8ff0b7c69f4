//! [`Registrations`]: the pollers with which a socket is registered.
//!
//! Nearly always that is one. If a process has several workers, and tasks of two of them wait for
//! the same socket, each of these workers registers it with its own poller: see `reactor::source`.

/// The registration of a socket with one poller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registration {
    pub(super) poller: usize,
    token: u64,
    pub(super) interest: u8,
    /// The readiness that is still to be reported.
    pending: u8,
}

impl Registration {
    /// Adds readiness to report. Returns whether there was none before.
    #[inline]
    pub(super) fn raise(&mut self, ready: u8) -> bool {
        let before = self.pending;
        self.pending |= ready;
        before == 0
    }
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

    #[inline]
    pub(super) fn iter(&mut self) -> std::slice::IterMut<'_, Registration> {
        self.0.iter_mut()
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

/// Returns these flags if `is_so`, and none otherwise.
#[inline]
pub(super) fn when(flags: u8, is_so: bool) -> u8 {
    if is_so { flags } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pollers, each with its interest.
    fn list(all: &mut Registrations) -> Vec<(usize, u8)> {
        let pollers = all.iter();
        pollers.map(|one| (one.poller, one.interest)).collect()
    }

    /// Each poller reports what is raised with it until it is removed.
    #[test]
    fn poller_reports_raised_until_removed() {
        let mut all = Registrations::default();
        assert_eq!(list(&mut all), []);
        all.add(4, 40, 1);
        all.add(7, 70, 3);
        all.add(4, 41, 2); // Replaces the first.
        assert_eq!(list(&mut all), [(4, 2), (7, 3)]);
        let [four, seven] = &mut all.0[..] else {
            panic!("there are two");
        };
        assert!(
            seven.raise(1) && !seven.raise(2),
            "it has something already"
        );
        assert!(four.raise(2));
        assert_eq!(all.take(5), None, "it is not registered there");
        assert_eq!(all.take(7), Some((70, 3)));
        assert_eq!(all.take(7), None, "it was taken");
        all.remove(4);
        assert_eq!(list(&mut all), [(7, 3)]);
        assert_eq!(all.take(4), None);
        assert!(all.0[0].raise(2));
        all.remove(7);
        assert_eq!((list(&mut all), all.take(7)), (vec![], None));
    }
}

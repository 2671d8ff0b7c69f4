//! Where the last panics of a thread came from: a later report of a panic has only its message.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::Location;

/// The limit of panics that wait to be reported: those of tasks that are never awaited.
const MAX_PANICS: usize = 256;

thread_local! {
    /// The last panics of this thread that were not reported yet.
    static PANICS: RefCell<VecDeque<Panic>> = const { RefCell::new(VecDeque::new()) };
}

/// A panic, identified by its message.
struct Panic {
    site: Option<String>,
    words: String,
}

/// Forgets the panics of this thread, which may enter another world.
pub(super) fn forget() {
    PANICS.take();
}

/// Notes a panic of this thread, with its site and message. The panic hook calls this, so nothing
/// here may panic.
pub(crate) fn note_panic(site: Option<&Location<'_>>, words: &str) {
    let note = |panics: &RefCell<VecDeque<Panic>>| {
        let Ok(mut panics) = panics.try_borrow_mut() else {
            return;
        };
        if panics.len() == MAX_PANICS {
            panics.pop_front();
        }
        panics.push_back(Panic {
            site: site.map(ToString::to_string),
            words: words.to_owned(),
        });
    };
    let _ = PANICS.try_with(note);
}

/// Returns where the last panic with this message came from, and forgets it. The panic of a task
/// may be reported after later ones.
pub(super) fn site_of(words: &str) -> Option<String> {
    let find = |panics: &RefCell<VecDeque<Panic>>| {
        let mut panics = panics.try_borrow_mut().ok()?;
        let place = panics.iter().rposition(|panic| panic.words == words)?;
        panics.remove(place)?.site
    };
    PANICS.try_with(find).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The site of a panic is found by its message once and the last one first.
    #[test]
    fn panic_site_found_by_message_last_first() {
        let here = Location::caller();
        note_panic(None, "same");
        note_panic(Some(here), "same");
        note_panic(None, "other");
        assert_eq!(site_of("same"), Some(here.to_string()));
        assert_eq!((site_of("same"), site_of("none")), (None, None));
        for nth in 0..=MAX_PANICS {
            note_panic(Some(here), &nth.to_string());
        }
        assert_eq!(site_of("0"), None, "the oldest are forgotten");
        assert!(site_of("1").is_some());
        forget();
        assert_eq!(site_of("2"), None);
    }
}

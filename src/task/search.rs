//! Who is woken when there are tasks that have not started: one sleeper for one backlog.
//!
//! A thread that adds to the backlog, or leaves some of it, calls [`Search::wake_one`]. That wakes
//! one sleeping worker, and notes its place: it is *on its way*. As long as it is, nobody else is
//! woken. It comes, takes a task, and [`arrive`](Search::arrive)s: from then on it is on its way no
//! more, and if there is still a backlog it wakes the next. So workers come one after the other
//! while there is something for each of them, and no herd comes for one task.
//!
//! **Why no backlog is left lying while a worker sleeps.** Whoever adds looks for sleepers *after*
//! adding, and a worker looks at the backlog *after* it has declared itself asleep, with a
//! sequentially consistent fence on both sides: the worker sees the task, or the other one sees the
//! sleeper. It may find that somebody is on its way and leave it to that one: which looks at the
//! backlog again after it has taken back its mark, again with a fence between. If it cannot wake
//! whom it has chosen (that one woke by itself), it takes back the mark and starts over. `loom` checks
//! this below.
//!
//! **Why no mark is left.** Whoever is chosen looks at the mark whenever it is awake again, and in its
//! last look before it sleeps. It may have been about to sleep, or woken by something else, when it was
//! chosen, and the notification may go into a wait that ends anyway. But choosing sets the mark, then
//! has a fence, and then takes the sleeper's state from parked to notified. Either that comes before the
//! sleeper parks the next time, and then its last look, after the fence of parking, sees the mark;
//! or it takes the state of that next sleep, and the notification is for it.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// What the search asks of the workers.
pub(super) trait Crew {
    /// Whether there are tasks that have not started.
    fn has_backlog(&self) -> bool;

    /// The place of the sleeper to be woken, if there is one.
    fn sleeper(&self) -> Option<usize>;

    /// Wakes it; false if it woke by itself.
    fn wake(&self, place: usize) -> bool;
}

#[derive(Debug)]
pub(super) struct Search {
    /// One more than the place of who is on its way; zero if nobody is.
    coming: AtomicUsize,
}

impl Search {
    pub(super) fn new() -> Search {
        Search {
            coming: AtomicUsize::new(0),
        }
    }

    /// Something was added to the backlog, or is left of it.
    #[inline]
    pub(super) fn wake_one(&self, crew: &impl Crew) {
        loop {
            fence(Ordering::SeqCst);
            let Some(place) = crew.sleeper() else { return };
            // `wake` begins with a fence, as every unparking does.
            if !crew.has_backlog() || !self.replace(0, place + 1) || crew.wake(place) {
                return;
            }
            self.replace(place + 1, 0);
        }
    }

    /// Whether the worker at `place` is the one on its way.
    #[inline]
    pub(super) fn is_coming(&self, place: usize) -> bool {
        self.coming.load(Ordering::Relaxed) == place + 1
    }

    /// The worker at `place` has come, and taken what it wants.
    pub(super) fn arrive(&self, place: usize, crew: &impl Crew) {
        self.replace(place + 1, 0);
        self.wake_one(crew);
    }

    /// Replaces `old`, and nothing else: whoever takes back a mark must not take another's.
    fn replace(&self, old: usize, new: usize) -> bool {
        (self.coming)
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

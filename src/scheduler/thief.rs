//! What an idle pool worker takes from the others.
//!
//! Movable tasks that are ready lie in the [run queue](super::run_queue) and in the inbox of their
//! worker, where others can take them:
//!
//! * **Surplus.** A worker that has more to run after a turn says so, and wakes an idle worker
//!   ([`Shared::offer_surplus`](super::shared::Shared)), as for injected tasks: see
//!   [`idle`](super::idle). Whoever is idle takes half of it.
//! * **What waits too long.** The [monitor](super::monitor) takes half of what it finds ready in
//!   two looks in a row; or in one, if the worker has been in the same poll since the look before.
//!   As long as that poll lasts it takes half of the rest whenever it has nothing else to do.
//! * **What is not noticed.** The monitor also serves the reactor of a worker that has not polled
//!   it between two looks ([`Local::help`]): the tasks whose sockets are ready, or whose timers are
//!   due, come to the monitor.
//! * **While all are awake** there is no monitor. Then each looks at the others itself, between two
//!   turns, if it has not done so for [`BUSY_INTERVAL`]: one of them may compute, or the system may
//!   have taken it off its processor for a while, as it does where there are more threads than
//!   cores. That is what the slowest requests of a server wait for.
//!
//! A task is taken with all that waits for it: its sockets and timers move at its next wait. So
//! nothing is taken from a worker that gets round to it soon.
//!
//! Touched by the worker's thread only.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::local::Local;
use super::monitor::INTERVAL;
use crate::reactor::{Driver, now};

/// How often a worker that works looks at the others, for each two workers: so all of them together
/// look at one of them once or twice in an interval, whatever their number. (Tried: a quarter and
/// half of it, which was no better.)
const BUSY_INTERVAL: Duration = INTERVAL;

/// After so many tasks a worker that works reads the clock for that: two nanoseconds a task.
const MANY_RUNS: usize = 16;

/// [`Thief::look`].
type Look = fn(&Thief, &Local, &Driver, Why);

/// Why a worker looks at the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// It has nothing to do, and may be the monitor.
    Idle,
    /// Nobody else may look, since all have something to do.
    Busy,
}

#[derive(Debug)]
pub(super) struct Thief {
    /// What the last look has found, by worker.
    seen: RefCell<Vec<Seen>>,
    /// When the next look is due. Kept while the worker works, so that the kernel's timer, if it
    /// has one, is set once for several sleeps.
    next_look: Cell<Option<Instant>>,
    last_look: Cell<Option<Instant>>,
    /// How many tasks this worker had run when it last asked for that.
    asked: Cell<usize>,
    /// How many tasks this worker had run at the last look.
    runs: Cell<usize>,
    /// At the last look there was nothing to do for a monitor, or there was another one.
    may_rest: Cell<bool>,
    sleeps_deeply: Cell<bool>,
    /// It has begun to work since its last sleep.
    has_begun: Cell<bool>,
    /// The worker that it has taken tasks from, and how many tasks that one had begun to run.
    stuck: Cell<Option<(usize, usize)>>,
    /// Of a pool worker, [`look`](Self::look): a program that has none does not have it in it.
    look: Cell<Option<Look>>,
}

/// What a look has found of one worker.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    is_awake: bool,
    /// How many tasks it had begun to run.
    runs: usize,
    turns: usize,
    /// Up to where its run queue was filled.
    tail: usize,
    /// Whether something lay in its inbox, and how often that had been emptied.
    has_inbox: bool,
    takes: usize,
}

/// What is in the run queue of a worker.
#[derive(Clone, Copy, Debug)]
struct Queued {
    /// From where on it is filled, and the number of items in it.
    head: usize,
    len: usize,
    /// Beside these there is one that runs next.
    has_next: bool,
}

impl Seen {
    /// Whether the worker was in one and the same poll at the look `before` and at this one.
    fn is_stuck(self, before: Seen) -> bool {
        before.is_awake && self.runs == before.runs
    }

    /// Whether tasks wait there for too long: they were there at the look `before`, or the worker
    /// has been in the same poll since.
    fn is_too_slow(self, before: Seen, queued: Queued) -> bool {
        let is_stuck = self.is_stuck(before);
        let are_left = before.tail.wrapping_sub(queued.head) as isize > 0;
        let waits_in_queue =
            (queued.len > 0 && (is_stuck || are_left)) || (queued.has_next && is_stuck);
        let was_taken = !before.has_inbox || self.takes != before.takes;
        waits_in_queue || (self.has_inbox && (is_stuck || !was_taken))
    }
}

impl Thief {
    pub(super) fn new() -> Thief {
        Thief {
            seen: RefCell::default(),
            next_look: Cell::new(None),
            last_look: Cell::new(None),
            asked: Cell::new(0),
            runs: Cell::new(0),
            may_rest: Cell::new(false),
            sleeps_deeply: Cell::new(false),
            has_begun: Cell::new(true),
            stuck: Cell::new(None),
            look: Cell::new(None),
        }
    }

    /// It is a pool worker's.
    pub(super) fn enable(&self) {
        self.look.set(Some(Thief::look));
    }

    /// The worker has nothing to do: takes what others have told to be too much for them, or what
    /// is still left where it took something before. Returns whether it has taken any.
    pub(super) fn steal(&self, local: &Local) -> bool {
        if local.shared.is_closing() {
            return false;
        }
        if let Some((victim, runs)) = self.stuck.get() {
            let shared = &local.shared;
            // (Parked, it has run that one, and nothing since.)
            let is_stuck =
                shared.pool(victim).runs() == runs && !shared.remote(victim).reactor.is_parked();
            match is_stuck {
                true if local.steal_half(victim) => return true,
                true => {}
                false => self.stuck.set(None),
            }
        }
        local.steal_surplus()
    }

    /// The worker is about to park.
    pub(super) fn fall_asleep(&self, local: &Local) {
        let (shared, pool) = (&local.shared, local.pool());
        self.has_begun.set(false);
        let deeply = self.may_rest.get() && self.runs.get() == pool.runs();
        if deeply {
            shared.monitor.give_up(local.index);
        }
        self.sleeps_deeply.set(deeply);
        pool.set_sleeps_deeply(deeply);
    }

    /// When a worker that has parked is to wake up for a look, and what time it is: not before
    /// that. `None` if it need not: in a world no poll takes any time, so there is no monitor.
    pub(super) fn next_look(&self, local: &Local) -> Option<(Instant, Instant)> {
        self.look.get()?;
        if self.sleeps_deeply.get() {
            if local.shared.may_sleep_deeply(local.index) {
                return None;
            }
            self.sleeps_deeply.set(false);
            local.pool().set_sleeps_deeply(false);
        }
        let now = now();
        // One that has become due while the worker worked is not put off: it may work again and
        // again before an interval is over, and be the only one that is ever idle.
        let next = self.next_look.get().unwrap_or(now + INTERVAL);
        self.next_look.set(Some(next));
        Some((next.max(now), now))
    }

    /// Whether a worker that does not sleep, and has nothing to do, is to look at the others.
    #[inline]
    pub(super) fn is_look_due(&self, now: Instant) -> bool {
        self.next_look.get().is_some_and(|next| next <= now)
    }

    /// The worker is about to run a task, or a waker: others look after it, if it has slept.
    #[inline]
    pub(super) fn begin_work(&self, local: &Local) {
        if !self.has_begun.replace(true) {
            local.shared.begin_work(local.index);
        }
    }

    /// The worker is awake. If it has nothing to do, and it is time, looks at the others.
    #[inline]
    pub(super) fn woke(&self, local: &Local, driver: &Driver) {
        if !self.has_begun.get() && !local.has_work() && self.is_time_to_look() {
            if let Some(look) = self.look.get() {
                look(self, local, driver, Why::Idle);
            }
        }
    }

    /// Whether the worker has run enough since it last asked whether it is time to look.
    #[inline]
    pub(super) fn has_run_many(&self, local: &Local) -> bool {
        local.pool().runs().wrapping_sub(self.asked.get()) >= MANY_RUNS
    }

    /// The worker works: if it is time, looks at the others.
    #[inline(never)]
    pub(super) fn look_while_busy(&self, local: &Local, driver: &Driver) {
        self.asked.set(local.pool().runs());
        let pairs = (local.shared.workers() / 2).max(1) as u32;
        let last = self.last_look.get();
        let is_due = last.is_none_or(|last| last + BUSY_INTERVAL * pairs <= now());
        if let Some(look) = self.look.get().filter(|_| is_due && local.has_work()) {
            look(self, local, driver, Why::Busy);
        }
    }

    /// A worker that slept deeply, and has nothing to do, was woken to look.
    fn is_time_to_look(&self) -> bool {
        self.sleeps_deeply.get() || self.next_look.get().is_none_or(|next| next <= now())
    }

    /// Looks at all others, and takes from the one that has the most to be taken.
    #[cold]
    fn look(&self, local: &Local, driver: &Driver, why: Why) {
        let shared = &local.shared;
        if shared.is_closing() {
            return;
        }
        let mut seen = self.seen.take();
        seen.resize_with(shared.workers(), Seen::default);
        let mut is_anyone_awake = false;
        let (mut victim, mut most) = (None, 0);
        for (index, before) in seen.iter_mut().enumerate() {
            if index == local.index {
                continue;
            }
            let pool = shared.pool(index);
            let found = Seen {
                is_awake: !shared.remote(index).reactor.is_parked(),
                runs: pool.runs(),
                turns: pool.turns(),
                tail: pool.queue.tail(),
                has_inbox: !pool.inbox.is_empty(),
                takes: pool.inbox.takes(),
            };
            let before = std::mem::replace(before, found);
            is_anyone_awake |= found.is_awake || found.runs != before.runs;
            if !found.is_awake {
                continue; // A worker checks its queues before it parks.
            }
            let is_stuck = found.is_stuck(before);
            // A worker that is idle has time for one that has not polled for long. One that is not
            // leaves others alone that get on.
            let is_late = match why {
                Why::Idle => before.is_awake && found.turns == before.turns,
                Why::Busy => is_stuck && found.turns == before.turns,
            };
            if is_late {
                // Wakers may be foreign code, and block. (Tasks that come here are work when they
                // run: as long as there is none, this one remains the monitor.)
                local.help(index, driver, || self.begin_work(local));
            }
            if why == Why::Busy && !is_stuck {
                continue;
            }
            let queued = Queued {
                head: pool.queue.head(),
                len: pool.queue.count_items(usize::MAX),
                has_next: pool.queue.has_next(),
            };
            let amount = 1 + queued.len + pool.inbox.len();
            if found.is_too_slow(before, queued) && amount > most {
                (victim, most) = (Some((index, found.runs)), amount);
            }
        }
        self.seen.replace(seen);
        let has_stolen = victim.is_some_and(|(index, _)| local.steal_half(index));
        if has_stolen {
            self.stuck.set(victim);
        }
        if why == Why::Idle {
            let monitors =
                !local.has_work() && is_anyone_awake && shared.monitor.claim(local.index);
            if monitors {
                // The mark is removed when it begins to work again.
                self.has_begun.set(false);
            }
            self.may_rest.set(!monitors && !local.has_work());
            self.runs.set(local.pool().runs());
        }
        let now = now();
        self.last_look.set(Some(now));
        self.next_look.set(Some(now + INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::Location;
    use std::sync::Arc;

    use super::super::shared::Shared;
    use super::*;
    use crate::poller::{Backend, Poller};
    use crate::reactor::Reactor;

    /// A worker that was awake at the last look, with two tasks in its queue, and has begun to run
    /// so many since.
    fn looks(runs: usize) -> (Seen, Seen) {
        let before = Seen {
            is_awake: true,
            runs: 10,
            turns: 5,
            tail: 102,
            has_inbox: false,
            takes: 3,
        };
        let mut found = before;
        found.runs += runs;
        (before, found)
    }

    fn queued(head: usize, len: usize, has_next: bool) -> Queued {
        Queued {
            head,
            len,
            has_next,
        }
    }

    #[test]
    fn tasks_that_were_there_at_the_last_look_wait_for_too_long_though_the_worker_gets_on() {
        let (before, found) = looks(7);
        assert!(found.is_too_slow(before, queued(101, 8, false)));
        assert!(!found.is_too_slow(before, queued(102, 8, false)), "all new");
        assert!(!found.is_too_slow(before, queued(102, 0, true)), "all new");
        // Positions wrap.
        let (mut before, found) = looks(7);
        before.tail = 1;
        assert!(found.is_too_slow(before, queued(usize::MAX, 2, false)));
        before.tail = usize::MAX;
        assert!(!found.is_too_slow(before, queued(1, 2, false)));
    }

    #[test]
    fn behind_a_poll_that_has_lasted_since_the_last_look_everything_waits_for_too_long() {
        let (mut before, found) = looks(0);
        assert!(found.is_too_slow(before, queued(102, 1, false)));
        assert!(found.is_too_slow(before, queued(102, 0, true)));
        assert!(!found.is_too_slow(before, queued(102, 0, false)), "nothing");
        before.is_awake = false;
        assert!(!found.is_too_slow(before, queued(102, 1, true)), "it slept");
    }

    #[test]
    fn what_lies_in_an_inbox_waits_for_too_long_where_nobody_has_emptied_it() {
        let nothing = queued(102, 0, false);
        let (mut before, mut found) = looks(7);
        found.has_inbox = true;
        assert!(!found.is_too_slow(before, nothing), "it has just come");
        before.has_inbox = true;
        assert!(found.is_too_slow(before, nothing));
        found.takes += 1;
        assert!(!found.is_too_slow(before, nothing), "that was taken");
        let (before, mut found) = looks(0);
        found.has_inbox = true;
        assert!(found.is_too_slow(before, nothing), "behind a long poll");
    }

    /// They leave holes in its run queue.
    #[test]
    fn a_worker_whose_tasks_were_taken_has_neither_work_nor_surplus() {
        let reactor = |_| Reactor::new(Poller::new(Backend::default()).unwrap());
        let shared = Arc::new(Shared::new((0..3).map(reactor)));
        let [owner, thief] = [0, 1].map(|index| Local::new(shared.clone(), index));
        for _ in 0..4 {
            let (runnable, task) =
                crate::task::new(&shared, pending::<()>(), Location::caller().into());
            task.detach();
            runnable.metadata().assign(owner.index);
            assert!(owner.schedule_movable(runnable, false).is_none(), "its own");
        }
        owner.offer_surplus();
        assert_eq!((owner.has_work(), shared.surplus()), (true, Some(0)));
        for left in [2, 1] {
            assert!(thief.steal_half(owner.index));
            assert_eq!(owner.pool().queue.count_items(4), left, "it takes half");
        }
        owner.offer_surplus();
        assert_eq!((owner.has_work(), shared.surplus()), (true, None));
        assert!(thief.steal_half(owner.index));
        assert!(!owner.has_work() && !thief.steal_half(owner.index));
        // A task in a queue keeps the runtime's memory.
        while shared.take_any().is_some() {}
    }
}

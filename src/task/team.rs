//! The workers of one runtime, and what they share.
//!
//! A [`Team`] is a list of [`Home`]s: what every thread can reach of each worker. The last one is the
//! *front*: the worker of the thread that made the runtime. Alone, it runs everything. Otherwise it
//! runs the future of `block_on` and local tasks only, and the others, the *members*, run what is
//! spawned.
//!
//! **Homes.** With members, a spawned task goes to `fresh`, the queue of tasks that have not started,
//! which they share. The member that takes it from there becomes its home for life. Since that is
//! for life, places count: a member starts a task only while it has at most [`STEP`] live tasks more
//! than the one that has fewest. One that has nothing to do but more than that leaves the task to the
//! others, for [`PATIENCE`](super::queue::PATIENCE): they may be long in coming, and then it is better
//! started in the wrong place than not at all.
//!
//! **Waking.** Whoever adds to `fresh` wakes a sleeping member: see [`search`](super::search). One
//! exception spares a wake-up in each `spawn(…).await`: the first task that a member's task spawns
//! while it runs wakes nobody, since most likely that member takes it itself as the next. It sees to
//! that when the running task returns, or blocks on a runtime of its own.
//!
//! **Counting.** How many tasks are alive is the difference of two sums, of tasks spawned and of
//! tasks ended. Each home has its two counters, written by its own thread only, so that no cache line
//! goes back and forth; threads that are of no home of this team share a third pair. Read *first*
//! the ended, *then* the spawned: if the sums are equal, no task is left. For the end of a task comes
//! after its own spawn and after those that it made; so whatever is counted as ended, everything that
//! it spawned is counted as spawned, and if that makes no difference, all of it has ended. (Spawns
//! from outside that are under way may come right after.)
//!
//! **The end of a run.** Who waits for the last task ([`watch`](Team::watch)) marks that, and then
//! looks at the count, and then sleeps. A member whose last task ends comes to rest: it parks, whose
//! fence comes after its counting, and then looks at the mark and the count
//! ([`before_sleep`](Team::before_sleep)). One of both sees what the other wrote.
//!
//! **Closing.** A spawner from outside counts its task, and *then* looks whether the team is closing;
//! the front marks that, and *then* waits for the count to come to zero; all of it sequentially
//! consistent. So either the spawner sees the mark and drops its future itself, or the front sees the
//! task and waits for it to arrive. It does not look at whether queues are empty: a foreign thread
//! may be about to push; that one looks at the mark once more when it has pushed, and wakes the front.
//! Spawners that are workers of the team need no such care: the front counts
//! when they have left.
//!
//! **Failing.** A worker whose poller cannot wait any more ends the whole runtime ([`fail`](Team::fail)),
//! since nobody else may run its tasks. It leaves its reason, marks the team as closing, and unparks all;
//! each looks at that mark before it sleeps. So members drop their tasks, on their own threads, and the
//! front panics with the reason in whatever call drives it; dropping the runtime then finds it closing.

use std::sync::{Arc, OnceLock};

use super::Runnable;
use super::inbox::Inbox;
use super::search::{Crew, Search};
use crate::reactor::Reactor;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// How many live tasks more than the least loaded member a member may have to start another one. Two
/// looks of busy members are about that many short tasks apart, and among long-lived ones it is
/// little: 16 of 250 connections a worker.
const STEP: usize = 16;

/// How many tasks a member starts at most that has waited for others in vain.
pub(super) const SHARE: usize = 64;

#[derive(Debug)]
pub(crate) struct Team {
    homes: Box<[Arc<Home>]>,
    /// Tasks that have not started. Unused without members.
    fresh: Inbox<Runnable>,
    search: Search,
    outside: Tally,
    closing: AtomicBool,
    /// Why it closes by itself.
    failure: OnceLock<String>,
    /// Members that have ended.
    left: AtomicUsize,
    /// How many wait for the last task to end.
    watched: AtomicUsize,
}

/// What every thread can reach of one worker. On cache lines of its own: its neighbours are other
/// threads'.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Home {
    pub(crate) reactor: Arc<Reactor>,
    pub(super) inbox: Inbox<Runnable>,
    tally: Tally,
    /// Tasks that live here. Written by the home's thread.
    load: AtomicUsize,
    /// Asleep for a moment only, since there is a backlog that others should take.
    patient: AtomicBool,
}

#[derive(Debug, Default)]
struct Tally {
    spawned: AtomicUsize,
    ended: AtomicUsize,
}

impl Tally {
    /// By the one thread that writes it.
    #[inline]
    fn add(counter: &AtomicUsize) {
        let count = counter.load(Ordering::Relaxed).wrapping_add(1);
        counter.store(count, Ordering::Release);
    }
}

impl Home {
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// By the home's thread.
    #[inline]
    pub(super) fn set_load(&self, load: usize) {
        self.load.store(load, Ordering::Relaxed);
    }

    pub(crate) fn set_patient(&self, patient: bool) {
        self.patient.store(patient, Ordering::Relaxed);
    }
}

/// The place of a task that has not started.
pub(super) const NOWHERE: usize = usize::MAX;

impl Team {
    /// The last reactor is the front's.
    pub(crate) fn new(reactors: impl IntoIterator<Item = Arc<Reactor>>) -> Team {
        let homes: Box<[Arc<Home>]> = (reactors.into_iter())
            .map(|reactor| {
                Arc::new(Home {
                    reactor,
                    inbox: Inbox::new(),
                    tally: Tally::default(),
                    load: AtomicUsize::new(0),
                    patient: AtomicBool::new(false),
                })
            })
            .collect();
        assert!(!homes.is_empty(), "a team has a front");
        Team {
            homes,
            fresh: Inbox::new(),
            search: Search::new(),
            outside: Tally::default(),
            closing: AtomicBool::new(false),
            failure: OnceLock::new(),
            left: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn home(&self, place: usize) -> &Arc<Home> {
        &self.homes[place]
    }

    /// The place of the worker that the runtime's thread drives.
    #[inline]
    pub(crate) fn front(&self) -> usize {
        self.homes.len() - 1
    }

    /// Those that share what is spawned.
    #[inline]
    fn members(&self) -> &[Arc<Home>] {
        &self.homes[..self.front()]
    }

    /// How many threads run what is spawned.
    pub(crate) fn workers(&self) -> usize {
        self.members().len().max(1)
    }

    /// Where a task that may run anywhere belongs before it starts.
    #[inline]
    pub(super) fn birthplace(&self) -> usize {
        match self.front() {
            0 => 0,
            _ => NOWHERE,
        }
    }

    /// Whether the workers that are awake are more than the `cores` they may use: then none of these is to
    /// be kept for nothing. (That another process wants the one core that is left shows in how long things
    /// take.)
    pub(crate) fn is_crowded(&self, cores: usize) -> bool {
        let awake = self.homes.iter().filter(|home| !home.reactor.is_parked());
        awake.count() > cores
    }

    // Counting.

    /// A task was made, by the worker at `place` or from outside.
    #[inline]
    pub(super) fn count(&self, place: Option<usize>) {
        match place {
            Some(place) => Tally::add(&self.homes[place].tally.spawned),
            None => {
                self.outside.spawned.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// A task's future is gone.
    #[inline]
    pub(super) fn uncount(&self, place: Option<usize>) {
        match place {
            Some(place) => Tally::add(&self.homes[place].tally.ended),
            None => {
                self.outside.ended.fetch_add(1, Ordering::SeqCst);
            }
        }
        if self.is_closing() {
            self.homes[self.front()].reactor.unpark();
        }
    }

    /// How many tasks have a future. Zero is exact, for whoever has spawned the first of them.
    #[inline]
    pub(crate) fn live_tasks(&self) -> usize {
        let sum = |counter: fn(&Tally) -> &AtomicUsize| {
            let homes = self.homes.iter().map(|home| &home.tally);
            homes
                .chain([&self.outside])
                .map(|tally| counter(tally).load(Ordering::SeqCst))
                .fold(0, usize::wrapping_add)
        };
        let ended = sum(|tally| &tally.ended);
        sum(|tally| &tally.spawned).wrapping_sub(ended)
    }

    /// From here on whoever ends the last task wakes the front. To be called before the count is looked
    /// at.
    pub(crate) fn watch(&self) {
        self.watched.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn stop_watching(&self) {
        self.watched.fetch_sub(1, Ordering::SeqCst);
    }

    /// A member is about to sleep, and has declared itself parked.
    #[inline]
    pub(crate) fn before_sleep(&self) {
        if self.watched.load(Ordering::Relaxed) > 0 && self.live_tasks() == 0 {
            self.homes[self.front()].reactor.unpark();
        }
    }

    // Closing.

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// From here on tasks that are spawned are cancelled at once, and members end.
    pub(crate) fn start_closing(&self) {
        self.closing.store(true, Ordering::SeqCst);
        for member in self.members() {
            member.reactor.try_to_unpark();
        }
    }

    /// A worker cannot go on, and says why: the runtime closes by itself. Members end as in any closing,
    /// each dropping its tasks, and whoever drives the front is told.
    pub(crate) fn fail(&self, why: String) {
        // Before the mark, so that whoever sees that sees this. The first one counts.
        let _ = self.failure.set(why);
        self.start_closing();
        self.homes[self.front()].reactor.try_to_unpark();
    }

    /// Why it has closed by itself, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self.is_closing() {
            true => self.failure.get().map(String::as_str),
            false => None,
        }
    }

    /// A member ends.
    pub(crate) fn leave(&self) {
        self.left.fetch_add(1, Ordering::SeqCst);
        self.homes[self.front()].reactor.try_to_unpark();
    }

    /// Whether so many members have ended.
    pub(crate) fn has_left(&self, members: usize) -> bool {
        self.left.load(Ordering::SeqCst) == members
    }

    /// Schedules a new task for the first time; drops, and so cancels it, if the team is closing.
    #[inline]
    pub(crate) fn start(&self, runnable: Runnable) {
        match self.is_closing() {
            true => drop(runnable),
            false => runnable.schedule(),
        }
    }

    // Tasks that have not started.

    /// Adds one. To be followed by [`wake_one`](Self::wake_one), now or soon.
    pub(super) fn add_fresh(&self, runnable: Runnable) {
        self.fresh.push(runnable);
    }

    #[inline]
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Takes one, whoever asks.
    #[inline]
    pub(crate) fn take_fresh(&self) -> Option<Runnable> {
        self.fresh.pop()
    }

    /// How many tasks the member at `place` may start, as things stand.
    pub(super) fn share(&self, place: usize) -> usize {
        let load = |home: &Arc<Home>| home.load.load(Ordering::Relaxed);
        let least = self.members().iter().map(load).min().unwrap_or(0);
        (least + STEP).saturating_sub(load(&self.homes[place]))
    }

    /// Wakes a sleeping member if there is a backlog, and none is on its way.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.search.wake_one(self);
    }

    /// Whether the member at `place` was woken for the backlog. Then it is to take what it wants, and
    /// to say [`arrive`](Self::arrive).
    #[inline]
    pub(crate) fn is_coming(&self, place: usize) -> bool {
        self.search.is_coming(place)
    }

    pub(crate) fn arrive(&self, place: usize) {
        self.search.arrive(place, self);
    }
}

impl Crew for Team {
    #[inline]
    fn has_backlog(&self) -> bool {
        self.has_fresh()
    }

    #[inline]
    fn sleeper(&self) -> Option<usize> {
        let members = self.members().iter().enumerate();
        members
            .filter(|(_, home)| home.reactor.is_parked() && !home.patient.load(Ordering::Relaxed))
            .min_by_key(|(_, home)| home.load.load(Ordering::Relaxed))
            .map(|(place, _)| place)
    }

    fn wake(&self, place: usize) -> bool {
        self.homes[place].reactor.try_unpark()
    }
}

//! The events of a traced runtime, and where they are kept: see `diagnostics::trace`.
//!
//! A worker writes its events to a [`Ring`] among its counters. Those of all other threads are in
//! one more ring, behind a lock, in the [`TraceLog`]. No foreign code runs under the locks here.
//!
//! **A ring** has the latest events. It is written by one thread at a time, without a lock, and may
//! be read by any thread. When it is full, the oldest event is overwritten.
//!
//! **Reading.** Each event is three words. The writer increments `begun`, writes the words, and
//! increments `done`. A reader copies the events that are done, then reads `begun`, and omits
//! events that may have been overwritten. By the fences, a reader that sees a word of a later event
//! also sees that this event was begun. So no returned event is torn, and the location of a torn
//! one is never dereferenced.

use std::collections::VecDeque;
use std::panic::Location;
use std::ptr;
use std::time::{Duration, Instant, SystemTime};

use super::identity::Name;
use crate::clock::{date, now};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use crate::sys::Process;

/// A task, or [`MAIN_FUTURE`](super::MAIN_FUTURE), and its spawn site.
pub(crate) type Traced = (u64, &'static Location<'static>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Spawned(Traced),
    PollBegins(Traced),
    PollEnds(u64),
    Woken(u64),
    Ended(u64),
    /// The worker is about to sleep in the kernel, or has returned (`Awakes`).
    Sleeps,
    Awakes,
    /// The kernel has reported a source, with this descriptor number.
    Ready(u64),
    /// A timer has fired, this long after its deadline.
    TimerFired(Duration),
    /// A function given to `unblock` starts, or has returned (`CallEnds`).
    CallBegins(Traced),
    CallEnds(u64),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) what: Mark,
}

/// The number of low bits of an event's first word that hold its kind.
const KIND_BITS: u32 = 8;

/// The limit of a worker's events: 1.5 GiB of memory.
pub(crate) const MAX_EVENTS: usize = 1 << 26;

pub(crate) struct Ring {
    start: Instant,
    slots: Box<[Slot]>,
    begun: AtomicU64,
    done: AtomicU64,
}

#[derive(Default)]
struct Slot {
    /// The nanoseconds in 56 bits, enough for 833 days, and the kind.
    head: AtomicU64,
    number: AtomicU64,
    site: AtomicPtr<Location<'static>>,
}

impl Ring {
    /// `events` is rounded up to a power of two.
    fn new(start: Instant, events: usize) -> Ring {
        let events = events.min(MAX_EVENTS).next_power_of_two();
        Ring {
            start,
            slots: (0..events).map(|_| Slot::default()).collect(),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// Returns the latest events, oldest first, and the number of earlier ones.
    pub(crate) fn events(&self) -> (Vec<Event>, u64) {
        let len = self.slots.len() as u64;
        let done = self.done.load(Ordering::Acquire);
        let first = done.saturating_sub(len);
        let words: Vec<_> = (first..done).map(|index| self.slot(index).load()).collect();
        fence(Ordering::Acquire);
        let torn = self.begun.load(Ordering::Relaxed).saturating_sub(len);
        let first_whole = torn.max(first);
        let whole = words.into_iter().skip((first_whole - first) as usize);
        let events = whole.filter_map(|(head, number, site)| {
            // SAFETY: null, or from a whole event: `push_at` made it by `ptr::from_ref` of a
            // `'static` location, which borrows nothing from a Runnable.
            let site = unsafe { site.as_ref() };
            Some(Event {
                at: Duration::from_nanos(head >> KIND_BITS),
                what: from_parts(head & ((1 << KIND_BITS) - 1), number, site)?,
            })
        });
        (events.collect(), first_whole)
    }

    /// Called only by the writing thread.
    #[inline(never)]
    pub(crate) fn push(&self, what: Mark) {
        self.push_at(now(), what);
    }

    /// Called only by the writing thread.
    #[inline(never)]
    pub(crate) fn push_at(&self, at: Instant, what: Mark) {
        let at = at.saturating_duration_since(self.start).as_nanos() as u64;
        let (kind, number, site) = into_parts(what);
        let count = self.done.load(Ordering::Relaxed);
        self.begun.store(count + 1, Ordering::Relaxed);
        // Before the words: see the head of this file.
        fence(Ordering::Release);
        let slot = self.slot(count);
        (slot.head).store(at << KIND_BITS | kind, Ordering::Relaxed);
        slot.number.store(number, Ordering::Relaxed);
        let site = site.map_or(ptr::null_mut(), |site| ptr::from_ref(site).cast_mut());
        slot.site.store(site, Ordering::Relaxed);
        self.done.store(count + 1, Ordering::Release);
    }
}

impl Slot {
    fn load(&self) -> (u64, u64, *mut Location<'static>) {
        (
            self.head.load(Ordering::Relaxed),
            self.number.load(Ordering::Relaxed),
            self.site.load(Ordering::Relaxed),
        )
    }
}

fn into_parts(what: Mark) -> (u64, u64, Option<&'static Location<'static>>) {
    match what {
        Mark::Spawned((id, site)) => (0, id, Some(site)),
        Mark::PollBegins((id, site)) => (1, id, Some(site)),
        Mark::PollEnds(id) => (2, id, None),
        Mark::Woken(id) => (3, id, None),
        Mark::Ended(id) => (4, id, None),
        Mark::Sleeps => (5, 0, None),
        Mark::Awakes => (6, 0, None),
        Mark::Ready(descriptor) => (7, descriptor, None),
        Mark::TimerFired(late) => (8, late.as_nanos() as u64, None),
        Mark::CallBegins((id, site)) => (9, id, Some(site)),
        Mark::CallEnds(id) => (10, id, None),
    }
}

fn from_parts(kind: u64, number: u64, site: Option<&'static Location<'static>>) -> Option<Mark> {
    Some(match kind {
        0 => Mark::Spawned((number, site?)),
        1 => Mark::PollBegins((number, site?)),
        2 => Mark::PollEnds(number),
        3 => Mark::Woken(number),
        4 => Mark::Ended(number),
        5 => Mark::Sleeps,
        6 => Mark::Awakes,
        7 => Mark::Ready(number),
        8 => Mark::TimerFired(Duration::from_nanos(number)),
        9 => Mark::CallBegins((number, site?)),
        10 => Mark::CallEnds(number),
        _ => return None,
    })
}

pub(crate) struct TraceLog {
    /// The start, by both clocks.
    pub(crate) start: Instant,
    pub(crate) start_time: SystemTime,
    /// Of each worker.
    capacity: usize,
    /// Written under the lock `pushing`.
    pub(crate) others: Ring,
    pushing: Mutex<()>,
    /// The names of tasks, at most `capacity`; an event has no room for one.
    names: Mutex<VecDeque<(u64, Name)>>,
    /// Its runtime's. A child of `fork` writes nothing: a thread of its parent may hold the locks.
    process: Process,
}

impl TraceLog {
    pub(crate) fn new(capacity: usize) -> TraceLog {
        let start = now();
        TraceLog {
            start,
            start_time: date(),
            capacity: capacity.min(MAX_EVENTS),
            others: Ring::new(start, capacity),
            pushing: Mutex::new(()),
            names: Mutex::new(VecDeque::new()),
            process: Process::current(),
        }
    }

    pub(crate) fn ring(&self) -> Ring {
        Ring::new(self.start, self.capacity)
    }

    pub(crate) fn push(&self, what: Mark) {
        if self.process.is_current() {
            let _pushing = self.pushing.lock();
            self.others.push(what);
        }
    }

    pub(crate) fn add_name(&self, id: u64, name: &Name) {
        if !self.process.is_current() {
            return;
        }
        let name = name.clone();
        let mut names = self.names.lock();
        let is_full = names.len() >= self.capacity;
        let forgotten = is_full.then(|| names.pop_front());
        names.push_back((id, name));
        drop(names);
        drop(forgotten);
    }

    pub(crate) fn names(&self) -> Vec<(u64, Name)> {
        let names = self.process.lock(&self.names);
        names.map_or_else(Vec::new, |names| names.iter().cloned().collect())
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// The time and the number of each event are equal, unless it is torn.
    #[test]
    fn ring_read_during_wrap_is_whole() {
        loom::model(|| {
            let start = now();
            let ring = Arc::new(Ring::new(start, 2));
            let push = move |ring: &Ring, number| {
                ring.push_at(start + Duration::from_nanos(number), Mark::Woken(number));
            };
            push(&ring, 1);
            let writer = {
                let ring = ring.clone();
                loom::thread::spawn(move || (2..=4).for_each(|number| push(&ring, number)))
            };
            let (events, before) = ring.events();
            writer.join().unwrap();
            for (index, event) in events.iter().enumerate() {
                let number = event.at.as_nanos() as u64;
                assert_eq!(event.what, Mark::Woken(number), "an event is torn");
                assert_eq!(number, before + index as u64 + 1, "an event is missing");
            }
            let (events, before) = ring.events();
            assert_eq!((events.len(), before), (2, 2));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child of `fork` drops its parent's tasks, although a thread of the parent was writing.
    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "there is no fork")]
    fn log_of_parent_does_not_hang_in_child() {
        let log = TraceLog::new(4);
        let name = Name::from("task");
        let (_pushing, _names) = (log.pushing.lock(), log.names.lock());
        crate::sys::in_child(|| {
            log.push(Mark::Woken(1));
            log.add_name(1, &name);
            log.names().is_empty()
        });
    }

    #[test]
    fn a_ring_keeps_the_last_events_as_they_were() {
        let start = now();
        let site = Location::caller();
        let all = [
            Mark::Spawned((7, site)),
            Mark::PollBegins((7, site)),
            Mark::PollEnds(7),
            Mark::Woken(u64::MAX),
            Mark::Ended(7),
            Mark::Sleeps,
            Mark::Awakes,
            Mark::Ready(3),
            Mark::TimerFired(Duration::from_micros(5)),
            Mark::CallBegins((8, site)),
            Mark::CallEnds(8),
        ];
        let ring = Ring::new(start, 5);
        assert_eq!(ring.events(), (vec![], 0));
        for (index, what) in all.into_iter().enumerate() {
            ring.push_at(start + Duration::from_secs(index as u64), what);
        }
        let (events, before) = ring.events();
        assert_eq!((events.len(), before), (8, 3));
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event.what, all[index + 3]);
            assert_eq!(event.at, Duration::from_secs(index as u64 + 3));
        }
        assert_eq!(Ring::new(start, 0).slots.len(), 1);
    }
}

//! The future events of a world, by time; events of the same time are in the order of their pushes.
//!
//! Segments with equal latencies, and timers with equal durations, are pushed in the order in which
//! they come. So there are two lanes before the heap: an event that is not earlier than the last
//! one of a lane is appended to it, and only events that fit into neither go to the heap. With
//! fixed latencies that is almost none, with random ones most segments. The first event is the
//! earliest of the lanes' and the heap's first ones.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use polder::kernel::BlockingCall;

use super::tcp::segment::Segment;
use super::udp::datagram::Datagram;

pub(super) enum Event {
    Segment(Box<Segment>),
    Datagram(Box<Datagram>),
    /// Boxed, so that an event is two words.
    Blocking(Box<PendingCall>),
    /// The retransmission timer of this socket.
    Retransmit(u32),
    /// The keepalive timer of this socket.
    Keepalive(u32),
    /// A router's message to this socket that its peer is unreachable.
    Unreachable(u32),
    /// The earliest timer of this poller's worker.
    Deadline(usize),
    /// The chaos action of this number.
    Chaos(u64),
}

impl Event {
    /// Returns whether it is the arrival of a message that this host has sent to itself.
    fn is_own(&self, host: usize) -> bool {
        match self {
            Event::Segment(segment) => segment.way() == (host, host),
            Event::Datagram(datagram) => datagram.way() == (host, host),
            _ => false,
        }
    }
}

struct Entry {
    at: u64,
    /// The index of its push.
    nth: u64,
    event: Event,
}

impl Entry {
    /// Returns time and index as one number, which is compared without a branch.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.nth)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earlier entry is the greater one, as a heap has the greatest at its top.
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The number of an event that comes before all others of its time.
const FORWARD: u64 = 0;

/// The numbers of messages that were held count from one, and those of all other events from here.
const PUSHED: u64 = 1 << 32;

/// The events that have not happened yet.
#[derive(Default)]
pub(super) struct Events {
    lanes: [VecDeque<Entry>; 2],
    heap: BinaryHeap<Entry>,
    pushed: u64,
    released: u64,
}

/// The place of the first event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Lane(usize),
    Heap,
}

impl Events {
    #[inline]
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        let nth = PUSHED + self.pushed;
        let entry = Entry { at, nth, event };
        for lane in &mut self.lanes {
            if lane.back().is_none_or(|last| last.at <= at) {
                return lane.push_back(entry);
            }
        }
        self.heap.push(entry);
    }

    /// Pushes a message that was held until now. It comes before those that were sent later and
    /// are due now as well.
    pub(super) fn push_released(&mut self, at: u64, event: Event) {
        self.released += 1;
        let nth = self.released;
        self.heap.push(Entry { at, nth, event });
    }

    /// Returns the time of the first event, the event, and its place. It stays there unless an
    /// earlier event is pushed.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, &Event, Place)> {
        let mut first = self.heap.peek().map(|entry| (entry, Place::Heap));
        for (index, lane) in self.lanes.iter().enumerate() {
            if let Some(entry) = lane.front() {
                if first.is_none_or(|first| entry.key() < first.0.key()) {
                    first = Some((entry, Place::Lane(index)));
                }
            }
        }
        first.map(|(entry, place)| (entry.at, &entry.event, place))
    }

    /// Returns the events at this time, in order, with the number of each.
    pub(super) fn at(&self, at: u64) -> impl Iterator<Item = (u64, &Event)> {
        let lanes = self.lanes.iter().flatten();
        let mut found: Vec<&Entry> = lanes
            .chain(&self.heap)
            .filter(|entry| entry.at == at)
            .collect();
        found.sort_unstable_by_key(|entry| entry.nth);
        found.into_iter().map(|entry| (entry.nth, &entry.event))
    }

    /// Puts the event of this number before all others of its time.
    pub(super) fn bring_forward(&mut self, number: u64) {
        let mut all = self.drain();
        for entry in all.iter_mut().filter(|entry| entry.nth == number) {
            entry.nth = FORWARD;
        }
        self.heap.extend(all);
    }

    /// Takes out all events, in no order.
    fn drain(&mut self) -> Vec<Entry> {
        let lanes = self.lanes.iter_mut().flat_map(|lane| lane.drain(..));
        lanes.chain(self.heap.drain()).collect()
    }

    /// Returns whether an event was [brought forward](Self::bring_forward), and is still there.
    pub(super) fn has_forward(&self) -> bool {
        self.is_forward(Place::Heap)
    }

    /// Returns whether the event at this place was [brought forward](Self::bring_forward).
    pub(super) fn is_forward(&self, place: Place) -> bool {
        let first = self.heap.peek();
        place == Place::Heap && first.is_some_and(|entry| entry.nth == FORWARD)
    }

    /// Drops the messages that a host has sent to itself.
    pub(super) fn forget_own(&mut self, host: usize) {
        for lane in &mut self.lanes {
            lane.retain(|entry| !entry.event.is_own(host));
        }
        self.heap.retain(|entry| !entry.event.is_own(host));
    }

    /// Returns all events, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Event> {
        let lanes = self.lanes.iter().flatten();
        lanes.chain(&self.heap).map(|entry| &entry.event)
    }

    /// Takes out the calls of `unblock`, at the end of the world, ordered by time.
    pub(super) fn take_blocking(&mut self) -> Vec<Arc<dyn BlockingCall>> {
        let mut all = self.drain();
        all.sort_unstable_by_key(Entry::key);
        let job = |entry: Entry| match entry.event {
            Event::Blocking(call) => Some(call.job),
            _ => None,
        };
        all.into_iter().filter_map(job).collect()
    }

    /// Takes out the [first](Self::first) event, which must be at `place`.
    #[inline]
    pub(super) fn take(&mut self, place: Place) -> Option<(u64, Event)> {
        debug_assert!(
            self.first().is_some_and(|first| first.2 == place),
            "something was pushed that comes sooner than what is taken"
        );
        let entry = match place {
            Place::Lane(index) => self.lanes[index].pop_front(),
            Place::Heap => self.heap.pop(),
        };
        entry.map(|entry| (entry.at, entry.event))
    }
}

/// A timer that is set far more often than it fires. So at most one of its events counts: when that
/// comes, the deadline may be later, and gets another event, or there may be none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer {
    pub(super) deadline: Option<u64>,
    /// The time of the event in the queue that counts, if there is one.
    pub(super) event: Option<u64>,
}

impl Timer {
    /// Returns the deadline, if the timer is deferred: no event of it comes by then.
    pub(super) fn deferred(&self) -> Option<u64> {
        self.deadline
            .filter(|at| self.event.is_none_or(|event| event > *at))
    }

    /// Pushes `event`, which is that of the timer, unless one comes by the deadline.
    pub(super) fn arm(&mut self, events: &mut Events, event: Event) {
        if let Some(at) = self.deferred() {
            self.event = Some(at);
            events.push(at, event);
        }
    }

    /// Returns whether the timer fires by its event at this time; if not, that is to be dropped.
    pub(super) fn is_due(&mut self, at: u64, events: &mut Events, event: Event) -> bool {
        if self.event != Some(at) {
            return false;
        }
        let is_due = self.deadline.is_some_and(|deadline| deadline <= at);
        if !is_due {
            self.event = None;
            self.arm(events, event);
        }
        is_due
    }
}

/// A call of a process, scheduled in the queue of events, or due.
pub(crate) struct PendingCall {
    pub(crate) process: usize,
    pub(crate) job: Arc<dyn BlockingCall>,
}

#[cfg(test)]
mod tests {
    use super::super::choice::Stream;
    use super::*;

    /// Events come by time and at one time in the order of their pushes.
    #[test]
    fn events_by_time_then_push_order() {
        let mut events = Events::default();
        for (at, number) in [(5, 0), (1, 1), (5, 2), (1, 3)] {
            events.push(at, Event::Chaos(number));
        }
        events.push(3, Event::Deadline(7));
        events.push(2, Event::Retransmit(8));
        assert!(matches!(events.first(), Some((1, Event::Chaos(1), _))));
        let mut taken = Vec::new();
        let mut pop = |events: &mut Events| {
            let (first, _, place) = events.first().unwrap();
            let (at, event) = events.take(place).unwrap();
            assert_eq!(first, at);
            taken.push((
                at,
                match event {
                    Event::Chaos(number) => number,
                    Event::Deadline(number) => number as u64,
                    Event::Retransmit(number) => number.into(),
                    _ => unreachable!("no other was pushed"),
                },
            ));
        };
        pop(&mut events);
        events.push(1, Event::Chaos(4));
        (0..6).for_each(|_| pop(&mut events));
        assert_eq!(
            taken,
            [(1, 1), (1, 3), (1, 4), (2, 8), (3, 7), (5, 0), (5, 2)]
        );
        assert!(events.first().is_none());
    }

    /// The first one stays where it is when others are pushed that come no sooner.
    #[test]
    fn first_event_stays_when_later_are_pushed() {
        let mut events = Events::default();
        // The late ones take both lanes, so the others are in the heap.
        let mut left = vec![9_000, 8_000, 500, 0];
        for at in &left {
            events.push(*at, Event::Chaos(*at));
        }
        let mut more = 0..30;
        while let Some((first, _, place)) = events.first() {
            for nth in more.by_ref().take(2) {
                let at = first + nth % 3 * 700;
                events.push(at, Event::Chaos(at));
                left.push(at);
            }
            left.sort_unstable();
            let (at, event) = events.take(place).unwrap();
            assert!(matches!(event, Event::Chaos(number) if number == at));
            assert_eq!(at, left.remove(0));
        }
        assert!(left.is_empty() && more.is_empty());
    }

    /// An event that is brought forward comes before others of its time.
    #[test]
    fn event_brought_forward_precedes_equals() {
        // The times take both lanes and the heap.
        let mut events = Events::default();
        for (nth, at) in [7, 9, 8, 5, 5, 5].into_iter().enumerate() {
            events.push(at, Event::Chaos(nth as u64 + 1));
        }
        assert!(!events.has_forward());
        for number in [6, 5, 4] {
            let at: Vec<u64> = events.at(5).map(|(number, _)| number - PUSHED).collect();
            assert_eq!(at, (4..=number).collect::<Vec<_>>());
            events.bring_forward(PUSHED + number);
            let (at, _, place) = events.first().unwrap();
            assert!(at == 5 && events.is_forward(place) && events.has_forward());
            let taken = events.take(place);
            assert!(matches!(taken, Some((5, Event::Chaos(nth))) if nth == number));
        }
        events.bring_forward(PUSHED + 2);
        events.bring_forward(PUSHED + 99);
        assert!(matches!(events.first(), Some((7, Event::Chaos(1), _))));
        assert_eq!(events.all().count(), 3);
    }

    #[test]
    fn a_timer_is_put_into_the_queue_once() {
        let (mut timer, mut events) = (Timer::default(), Events::default());
        let mut arm = |deadline, times| {
            timer.deadline = deadline;
            (0..times).for_each(|_| timer.arm(&mut events, Event::Retransmit(1)));
            events.all().count()
        };
        assert_eq!(arm(None, 1), 0, "it is not set");
        assert_eq!(arm(Some(9), 2), 1);
        assert_eq!(arm(Some(8), 1), 2);
    }

    #[test]
    fn calls_are_taken_out_by_their_time() {
        use std::sync::Mutex;

        struct Noted(u64, Arc<Mutex<Vec<u64>>>);

        impl BlockingCall for Noted {
            fn run(&self) {
                self.1.lock().unwrap().push(self.0);
            }
        }

        let (mut events, run) = (Events::default(), Arc::default());
        for at in [9, 3, 7, 1, 8] {
            let job = Arc::new(Noted(at, Arc::clone(&run)));
            let call = PendingCall { process: 0, job };
            events.push(at, Event::Blocking(Box::new(call)));
        }
        let jobs = events.take_blocking();
        jobs.iter().for_each(|job| job.run());
        assert_eq!(*run.lock().unwrap(), [1, 3, 7, 8, 9]);
        assert!(events.first().is_none());
    }

    #[test]
    fn whatever_is_pushed_when_the_first_one_is_taken() {
        let mut stream = Stream::new(1, "events", 0, 0);
        let (mut events, mut sorted) = (Events::default(), Vec::new());
        for nth in 0..5_000 {
            if stream.below(100) < 52 {
                let at = stream.below(40);
                events.push(at, Event::Chaos(nth));
                let place = sorted.partition_point(|other: &(u64, u64)| other.0 <= at);
                sorted.insert(place, (at, nth));
            } else if !sorted.is_empty() {
                let expected = sorted.remove(0);
                let (at, event, place) = events.first().unwrap();
                assert!(matches!(event, Event::Chaos(nth) if (at, *nth) == expected));
                let taken = events.take(place);
                assert!(matches!(taken, Some((at, Event::Chaos(nth))) if (at, nth) == expected));
            }
        }
        assert!(sorted.len() > 20, "{}", sorted.len());
    }
}

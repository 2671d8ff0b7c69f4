//! What is to happen in a world, by time; and of what comes at one time, in the order in which it
//! was pushed.
//!
//! The heap has the place of an event, and not the event itself: a heap moves what it holds about,
//! and compares it. Timers, of which there are some for each host, have no place at all: their
//! number says everything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
#[cfg(feature = "blocking")]
use std::sync::Arc;

use super::Event;

/// What an entry of the heap stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The event lies at that place.
    Placed,
    Retransmit,
    Deadline,
}

/// When it is, the number of its push, and what: with its number, or its place.
type Entry = Reverse<(u64, u64, Kind, u32)>;

/// Events that have not happened yet.
#[derive(Default)]
pub(super) struct Events {
    /// What comes before all that is in the heap, if that is known: what is pushed is often the
    /// next to happen, and then never in the heap.
    front: Option<Entry>,
    heap: BinaryHeap<Entry>,
    slots: Vec<Option<Event>>,
    free: Vec<u32>,
    pushed: u64,
}

/// The first event, as far as it may turn out to be none.
pub(super) enum First {
    Retransmit(u32),
    Deadline(usize),
    Chaos(u64),
    /// Something that happens in any case.
    Certain,
}

impl Events {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        let (kind, number) = match event {
            Event::Retransmit(id) => (Kind::Retransmit, id),
            Event::Deadline(poller) => (Kind::Deadline, number(poller)),
            event => (Kind::Placed, self.place(event)),
        };
        self.pushed += 1;
        let entry = Reverse((at, self.pushed, kind, number));
        // (The greater one comes first.)
        match self.front {
            Some(front) if entry > front => self.heap.push(front),
            None if self.heap.peek().is_none_or(|first| entry > *first) => {}
            _ => return self.heap.push(entry),
        }
        self.front = Some(entry);
    }

    fn place(&mut self, event: Event) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(event);
                slot
            }
            None => {
                self.slots.push(Some(event));
                number(self.slots.len() - 1)
            }
        }
    }

    /// The first one, and when it happens.
    pub(super) fn first(&self) -> Option<(u64, First)> {
        let Reverse((at, _, kind, number)) = self.front.or_else(|| self.heap.peek().copied())?;
        let first = match kind {
            Kind::Retransmit => First::Retransmit(number),
            Kind::Deadline => First::Deadline(number as usize),
            Kind::Placed => match self.slots[number as usize] {
                Some(Event::Chaos(number)) => First::Chaos(number),
                _ => First::Certain,
            },
        };
        Some((at, first))
    }

    /// Takes the calls of `unblock` out, at the end of the world: then their times come to nothing.
    #[cfg(feature = "blocking")]
    pub(super) fn take_blocking(&mut self) -> Vec<Arc<dyn crate::pool::Job>> {
        let is_call = |it: &&mut Option<Event>| matches!(it, Some(Event::Blocking(..)));
        let calls = self.slots.iter_mut().filter(is_call).map(Option::take);
        let job = |it| match it {
            Some(Event::Blocking(_, job)) => Some(job),
            _ => None,
        };
        calls.filter_map(job).collect()
    }

    /// Takes the first one out.
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, _, kind, number)) = self.front.take().or_else(|| self.heap.pop())?;
        let event = match kind {
            Kind::Retransmit => Event::Retransmit(number),
            Kind::Deadline => Event::Deadline(number as usize),
            Kind::Placed => {
                self.free.push(number);
                self.slots[number as usize].take()?
            }
        };
        Some((at, event))
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 of them")
}

#[cfg(test)]
mod tests {
    use super::super::choice::Stream;
    use super::*;

    #[test]
    fn events_come_by_time_and_at_one_time_in_the_order_of_their_pushes() {
        let mut events = Events::default();
        for (at, number) in [(5, 0), (1, 1), (5, 2), (1, 3)] {
            events.push(at, Event::Chaos(number));
        }
        events.push(3, Event::Deadline(7));
        events.push(2, Event::Retransmit(8));
        assert!(matches!(events.first(), Some((1, First::Chaos(1)))));
        let mut taken = Vec::new();
        let mut pop = |events: &mut Events| {
            let first = events.first().map(|it| it.0);
            let (at, event) = events.pop().unwrap();
            assert_eq!(first, Some(at));
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
        events.push(1, Event::Chaos(4)); // In the place of the one that was taken.
        (0..6).for_each(|_| pop(&mut events));
        assert_eq!(
            taken,
            [(1, 1), (1, 3), (1, 4), (2, 8), (3, 7), (5, 0), (5, 2)]
        );
        assert!(events.pop().is_none() && events.first().is_none());
    }

    #[test]
    fn whatever_is_pushed_when_the_first_one_is_taken() {
        let mut stream = Stream::new(1, "events", 0, 0);
        let (mut events, mut sorted) = (Events::default(), Vec::new());
        for nth in 0..5_000 {
            if stream.below(100) < 52 {
                let at = stream.below(40);
                events.push(at, Event::Chaos(nth));
                let place = sorted.partition_point(|it: &(u64, u64)| it.0 <= at);
                sorted.insert(place, (at, nth));
            } else if !sorted.is_empty() {
                let expected = sorted.remove(0);
                let first = events.first();
                assert!(matches!(first, Some((at, First::Chaos(nth))) if (at, nth) == expected));
                assert!(
                    matches!(events.pop(), Some((at, Event::Chaos(nth))) if (at, nth) == expected)
                );
            }
        }
        assert!(sorted.len() > 20, "{}", sorted.len());
    }
}

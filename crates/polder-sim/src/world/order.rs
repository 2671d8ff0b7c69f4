//! [`Order`]: chooses what runs next among the ready workers of a world's processes, or among the
//! ready tasks of one worker.
//!
//! There is a [`Queue`] for the workers, one for the tasks of each worker, and, in each process
//! with several workers, one for the tasks that none of them has taken yet. A queue keeps no list:
//! it is given the ready ones, in the order in which they became ready, and answers with a place.
//!
//! In every order, the one that has been ready longest is passed over a limited number of times in
//! a row: a real runtime promises fairness, and programs may rely on that. Tasks that yield are put
//! behind the others before a choice (`Local::append_yielded`).

use polder::kernel::MAX_PASSED_OVER;

use super::choice::{Stream, mix};

/// The same limit for priorities, which are meant to keep some waiting.
const MAX_PASSED_OVER_BY_PRIORITY: u32 = 1_024;

/// Changes of priorities come within 2^15 choices. Each doubling of the number of choices is
/// equally likely, since the number of choices in a run is not known beforehand.
const DOUBLINGS: u64 = 15;

/// The limit of changes: with more of them than choices, several would fall on one choice.
const MAX_CHANGES: u32 = 1 << DOUBLINGS;

/// The order in which ready processes run, and the ready tasks of each: for
/// [`Sim::order`](crate::Sim::order).
///
/// ```
/// use polder_sim::Order;
///
/// polder_sim::check(0..20, |sim| async move {
///     // A race between tasks is found by priorities sooner than at random.
///     sim.order(Order::Pct(3));
///     let (one, other) = (polder::spawn(async { 1 }), polder::spawn(async { 2 }));
///     assert_eq!(one.await + other.await, 3);
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Order {
    /// Any, each with the same probability. The one that has been ready longest is passed over at
    /// most 64 times in a row.
    #[default]
    Random,
    /// First in, first out, as in a runtime of one worker.
    Fifo,
    /// By priorities that the seed draws, and that change this number of times ("probabilistic
    /// concurrency testing", Burckhardt et al., 2010): for bugs that appear only if one task or
    /// process waits while others do much. Processes have priorities among each other, and so have
    /// the tasks of a process. At a change the first one becomes the last. The one that has been
    /// ready longest is passed over at most 1,024 times in a row. There are at most 32,768 changes.
    Pct(u32),
}

impl Order {
    /// Describes the order, for a report.
    pub(crate) fn describe(self) -> String {
        match self {
            Order::Random => "any is next".into(),
            Order::Fifo => "first come, first served".into(),
            Order::Pct(changes) => format!("by priorities, with {changes} changes"),
        }
    }

    /// Returns an order drawn by chaos. Takes one number.
    pub(crate) fn of_chaos(stream: &mut Stream) -> Order {
        match stream.below(4) {
            0 => Order::Fifo,
            changes => Order::Pct(changes as u32),
        }
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    order: Order,
    /// The choices in random order.
    stream: Stream,
    /// The draws of the priorities, and of when they change.
    priorities: Stream,
    passed_over: u32,
    /// The number of choices in the present order.
    choices: u64,
    /// The salt of the priorities, which are a hash of it and of an id: so nothing is kept for ids
    /// that have ended.
    salt: u64,
    /// The choices at which the priorities change, the next one last.
    changes: Vec<u64>,
    /// The ids that have become the last, the latest at the end.
    lowered: Vec<u64>,
}

impl Queue {
    /// Creates the queue of a label.
    pub(super) fn new(seed: u64, word: &str, number: usize, order: Order) -> Queue {
        let mut queue = Queue {
            order,
            stream: Stream::new(seed, word, number, 0),
            priorities: Stream::new(seed, word, number, 1),
            passed_over: 0,
            choices: 0,
            salt: 0,
            changes: Vec::new(),
            lowered: Vec::new(),
        };
        queue.set(order);
        queue
    }

    /// Changes the order.
    pub(super) fn set(&mut self, order: Order) {
        self.order = order;
        self.choices = 0;
        self.lowered.clear();
        self.changes.clear();
        if let Order::Pct(changes) = order {
            let stream = &mut self.priorities;
            self.salt = stream.next();
            let mut drawn = || {
                let first = 1 << stream.below(DOUBLINGS);
                first + stream.below(first)
            };
            self.changes
                .extend((0..changes.min(MAX_CHANGES)).map(|_| drawn()));
            self.changes.sort_unstable_by(|one, other| other.cmp(one));
        }
    }

    /// Returns the place of the next one of `count` that are ready. `ready` gives their ids.
    #[inline]
    pub(super) fn choose(
        &mut self,
        count: usize,
        ready: impl Iterator<Item = u64> + Clone,
    ) -> usize {
        if count <= 1 {
            self.passed_over = 0;
            return 0; // There is nothing to choose.
        }
        self.choose_one(count, ready)
    }

    fn choose_one(&mut self, count: usize, ready: impl Iterator<Item = u64> + Clone) -> usize {
        self.choices += 1;
        let chosen = match self.order {
            Order::Random if self.passed_over < MAX_PASSED_OVER => {
                self.stream.below(count as u64) as usize
            }
            Order::Pct(_) if self.passed_over < MAX_PASSED_OVER_BY_PRIORITY => self.first(ready),
            _ => 0,
        };
        self.passed_over = match chosen {
            0 => 0,
            _ => self.passed_over + 1,
        };
        chosen
    }

    /// Applies the changes of priorities that are due, and returns the place of the highest
    /// priority.
    fn first(&mut self, ready: impl Iterator<Item = u64> + Clone) -> usize {
        // Two changes may be drawn for one choice.
        let choices = self.choices;
        while (self.changes.last()).is_some_and(|next| *next <= choices) {
            self.changes.pop();
            let place = self.highest(ready.clone());
            self.lowered.extend(ready.clone().nth(place));
        }
        self.highest(ready)
    }

    fn highest(&self, ready: impl Iterator<Item = u64>) -> usize {
        let ranked = ready.enumerate().map(|(place, who)| {
            let lowered = self.lowered.iter().rposition(|id| *id == who);
            // Below all others; the one lowered last is below those lowered before.
            let rank = match lowered {
                Some(nth) => (0, (self.lowered.len() - nth) as u64),
                None => (1, mix(self.salt ^ who)),
            };
            (rank, place)
        });
        ranked.max().map_or(0, |(_, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(order: Order, seed: u64, count: usize, times: usize) -> Vec<usize> {
        let mut queue = Queue::new(seed, "test", 0, order);
        let ready = 100..100 + count as u64;
        (0..times)
            .map(|_| queue.choose(count, ready.clone()))
            .collect()
    }

    #[test]
    fn the_first_is_first_and_random_is_any_of_them() {
        assert_eq!(choices(Order::Fifo, 1, 4, 100), [0; 100]);
        let random = choices(Order::Random, 1, 4, 1_000);
        for place in 0..4 {
            let count = random.iter().filter(|chosen| **chosen == place).count();
            assert!((150..350).contains(&count), "{place}: {count}");
        }
    }

    /// The first keeps its priority until a change makes it the last.
    #[test]
    fn priority_until_change_makes_it_last() {
        let (mut firsts, mut changed) = ([0; 3], 0);
        for seed in 0..300 {
            let all = choices(Order::Pct(0), seed, 3, 500);
            assert_eq!(
                all,
                vec![all[0]; 500],
                "the oldest is not passed over too often"
            );
            firsts[all[0]] += 1;
            let all = choices(Order::Pct(2), seed, 3, 40_000);
            let by_priority: Vec<usize> = all.into_iter().filter(|chosen| *chosen != 0).collect();
            let mut order = by_priority.clone();
            order.dedup();
            assert!(order.len() <= 3, "more than two changes: {order:?}");
            changed += u32::from(order.len() > 1);
        }
        assert!(changed > 100, "{changed}");
        assert!(
            firsts.iter().all(|count| (70..130).contains(count)),
            "{firsts:?}"
        );
    }

    /// In every order the one that has been ready longest gets its turn.
    #[test]
    fn longest_ready_runs_in_every_order() {
        for order in [Order::Random, Order::Pct(0), Order::Pct(3)] {
            for seed in 0..20 {
                let all = choices(order, seed, 5, 10_000);
                let rows = all.split(|chosen| *chosen == 0).map(<[usize]>::len);
                let most = match order {
                    Order::Random => MAX_PASSED_OVER,
                    _ => MAX_PASSED_OVER_BY_PRIORITY,
                };
                let longest = rows.max().unwrap_or(0);
                assert!(longest <= most as usize, "{order:?}: {longest}");
            }
        }
    }
}

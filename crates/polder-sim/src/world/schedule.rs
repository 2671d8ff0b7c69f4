//! [`Schedule`]: makes the choices of a run that is one of all possible ones.
//!
//! A run is a sequence of *transitions*: a worker polls a task, a segment arrives, a timer fires.
//! Those that are possible at one moment of the world's time may happen in any order. A schedule
//! names one of these orders, by the choices that it makes. The run notes how many alternatives
//! each choice had, so that other runs can take them; `exhaustive.rs` does that.
//!
//! **Transitions of different hosts commute.** Hosts share nothing but the network, and a segment
//! that is sent becomes another transition. So of two runs that differ only in the order of
//! neighbors of different hosts, one is enough. A run that takes the second of two alternatives
//! keeps the first one *asleep*, until something has happened that does not commute with it: before
//! that, the run that has taken the first alternative makes the same. If all possible transitions
//! are asleep, other runs cover the rest of this one, and it ends (Godefroid, "Partial-Order
//! Methods for the Verification of Concurrent Systems", 1996: sleep sets). The test's own host may
//! do anything to others, so nothing commutes with what it does, and nothing with chaos. A history
//! orders the operations of one moment, so with one no steps of workers commute.
//!
//! Which task of a worker is next, or which number the test chooses, is another kind of choice: no
//! alternative commutes with another.

use std::net::SocketAddr;
use std::sync::Arc;

use super::hosts::TEST;

/// Maximum number of choices of a run that have alternatives. Later choices take the first one.
/// All runs of a program that has this many would take too long.
pub(crate) const MAX_CHOICES: usize = 10_000;

/// A choice: the number of the alternative that was taken, and how many there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) taken: u32,
    pub(crate) count: u32,
}

/// Something that can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Transition {
    pub(super) host: usize,
    pub(super) action: Action,
}

/// The kind of a transition. Of several equal ones the first is possible; the others follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// The worker with this poller runs.
    Run(usize),
    /// The first segment from one address to another arrives.
    Segment(SocketAddr, SocketAddr),
    /// The first datagram from one address to another arrives.
    Datagram(SocketAddr, SocketAddr),
    /// The retransmission timer of this socket is due.
    Retransmit(u32),
    /// The keepalive timer of this socket is due.
    Keepalive(u32),
    /// A router tells this socket that its peer is unreachable.
    Unreachable(u32),
    /// The earliest timer of this poller's worker is due.
    Deadline(usize),
    /// The call of `unblock` with this number of its event is due.
    Blocking(u64),
    /// The first action of chaos is due.
    Chaos,
}

impl Transition {
    fn commutes_with(self, other: Transition) -> bool {
        self.host != other.host && self.host != TEST && other.host != TEST
    }

    /// Returns whether it runs code of a process.
    fn runs_code(self) -> bool {
        matches!(self.action, Action::Run(_) | Action::Blocking(_))
    }
}

/// The choices of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// The maximum number of runs, as the test has it.
    pub(crate) limit: usize,
    /// The first choices. All later ones take the first alternative.
    given: Arc<[u32]>,
    /// The choices that had alternatives.
    pub(crate) made: Vec<Choice>,
    asleep: Vec<Transition>,
    /// Whether processes share a history.
    shares: bool,
    /// Whether other runs cover the rest of this one.
    pub(crate) is_covered: bool,
}

impl Schedule {
    pub(super) fn new(limit: usize, given: Arc<[u32]>) -> Schedule {
        Schedule {
            limit,
            given,
            ..Schedule::default()
        }
    }

    /// Returns whether it was given choices that the run did not have, or that others cover.
    pub(crate) fn is_of_another_run(&self) -> bool {
        self.is_covered || !self.has_given()
    }

    /// Returns whether the run had the choices that it was given.
    pub(crate) fn has_given(&self) -> bool {
        let is_made = |(given, made): (&u32, &Choice)| *given == made.taken;
        self.made.len() >= self.given.len() && self.given.iter().zip(&self.made).all(is_made)
    }

    /// Chooses one of `count`.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count <= 1 || self.made.len() == MAX_CHOICES {
            return 0;
        }
        let given = self.given.get(self.made.len()).copied().unwrap_or(0);
        let taken = given.min(count - 1);
        self.made.push(Choice { taken, count });
        taken as usize
    }

    /// Chooses one of the transitions that are possible, and returns its place. `None` if other
    /// runs cover them all.
    pub(super) fn choose_transition(&mut self, possible: &[Transition]) -> Option<usize> {
        let places = 0..possible.len();
        let awake: Vec<usize> = places
            .filter(|place| !self.asleep.contains(&possible[*place]))
            .collect();
        if awake.is_empty() {
            self.is_covered = true;
            return None;
        }
        let nth = self.choose(awake.len());
        let chosen = possible[awake[nth]];
        let before = awake[..nth].iter().map(|place| possible[*place]);
        self.asleep.extend(before);
        let shares = self.shares;
        self.asleep.retain(|other| {
            other.commutes_with(chosen) && !(shares && other.runs_code() && chosen.runs_code())
        });
        Some(awake[nth])
    }

    /// Notes that the running process uses a history that it shares with others.
    pub(super) fn share(&mut self) {
        if !std::mem::replace(&mut self.shares, true) {
            self.asleep.retain(|other| !other.runs_code());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Makes all runs of a program in which each of these has so many transitions, one after the
    /// other, on its host. Returns the orders of runs that were not covered, and the number of
    /// those that were.
    fn all(hosts: &[(usize, usize)]) -> (Vec<Vec<usize>>, usize) {
        let (mut left, mut orders, mut covered) = (vec![Vec::new()], Vec::new(), 0);
        while let Some(given) = left.pop() {
            let mut schedule = Schedule::new(0, given.clone().into());
            let (mut order, mut done) = (Vec::new(), vec![0; hosts.len()]);
            loop {
                let possible: Vec<Transition> = (hosts.iter().zip(&done).enumerate())
                    .filter(|(_, ((_, count), done))| *done < count)
                    .map(|(number, ((host, _), _))| Transition {
                        host: *host,
                        action: Action::Run(number),
                    })
                    .collect();
                if possible.is_empty() {
                    orders.push(order);
                    break;
                }
                let Some(place) = schedule.choose_transition(&possible) else {
                    covered += 1;
                    break;
                };
                let Action::Run(number) = possible[place].action else {
                    unreachable!("no other is possible");
                };
                done[number] += 1;
                order.push(number);
            }
            for place in given.len()..schedule.made.len() {
                for taken in 1..schedule.made[place].count {
                    let made = schedule.made[..place].iter().map(|choice| choice.taken);
                    left.push(made.chain([taken]).collect());
                }
            }
        }
        (orders, covered)
    }

    /// Transitions of one host are tried in all orders once each.
    #[test]
    fn transitions_of_one_host_in_all_orders() {
        for (counts, orders) in [([2, 2], 6), ([3, 2], 10), ([4, 4], 70)] {
            let (tried, covered) = all(&[(1, counts[0]), (1, counts[1])]);
            let different: BTreeSet<_> = tried.iter().collect();
            assert_eq!((tried.len(), different.len(), covered), (orders, orders, 0));
        }
    }

    /// Transitions of different hosts are tried in one order.
    #[test]
    fn transitions_of_hosts_in_one_order() {
        assert_eq!(all(&[(1, 4), (2, 4)]).0.len(), 1);
        assert_eq!(all(&[(1, 2), (2, 2), (3, 2)]).0.len(), 1);
        // Two of one host and two of another: their own orders, multiplied.
        let (tried, _) = all(&[(1, 2), (1, 2), (2, 1), (2, 1)]);
        assert_eq!(tried.len(), 6 * 2);
    }

    /// The test's own steps are tried before and after all others.
    #[test]
    fn test_steps_before_and_after_everything() {
        // Its only transition, at five places between four of another host; of each further host
        // the part before and after it counts.
        assert_eq!(all(&[(TEST, 1), (1, 4)]).0.len(), 5);
        assert_eq!(all(&[(TEST, 1), (1, 2), (2, 2)]).0.len(), 3 * 3);
    }

    #[test]
    fn choices_are_the_given_ones_and_then_the_first() {
        let mut schedule = Schedule::new(0, [1, 9].into());
        assert_eq!(
            [3, 1, 3, 2].map(|count| schedule.choose(count)),
            [1, 0, 2, 0]
        );
        let made: Vec<_> = (schedule.made.iter())
            .map(|choice| (choice.taken, choice.count))
            .collect();
        assert_eq!(made, [(1, 3), (2, 3), (0, 2)], "one alone is no choice");
        (0..MAX_CHOICES).for_each(|_| assert_eq!(schedule.choose(2), 0));
        assert_eq!(schedule.made.len(), MAX_CHOICES);
    }
}

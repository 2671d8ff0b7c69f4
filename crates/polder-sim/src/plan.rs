//! [`Plan`]: the random faults of a world that [`Chaos`](super::chaos) has drawn, and what each of
//! them does.
//!
//! **A circle of imports, the only one of this crate.** The world's [`State`] has the plan of its
//! faults, and an action of the plan is a function of the state. They are two files of one thing.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::state::State;
use crate::world::choice::{Probability, Stream};
use crate::world::faults::{Fault, Id, Kind};
use crate::world::kernel::Kernel;
use crate::world::order::Order;
use crate::world::parting::How;
use crate::world::seconds::Seconds;
use crate::world::thread::kernel as with_kernel;
use crate::world::trace_event::TraceEvent;

/// Probability of a fault, in parts of ten thousand, or bandwidth of a slow link, in kilobytes per
/// second: half an octave apart.
pub(super) const HALF_OCTAVES: [u16; 16] = [
    10, 14, 20, 28, 40, 57, 80, 113, 160, 226, 320, 453, 640, 905, 1_280, 1_810,
];

/// Drift of a clock in either direction, in millionths: from that of a good clock to that of a
/// virtual machine that is being migrated.
const DRIFTS: [i32; 16] = [
    20, 40, 80, 160, 320, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 125_000,
    250_000, 500_000,
];

/// Mean step of a wall clock, in milliseconds: from where NTP steps instead of slewing (128) to a
/// day.
const WALL_STEPS: [u64; 16] = [
    128, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000,
    3_600_000, 7_200_000, 43_200_000, 86_400_000,
];

/// Upper bound (exclusive) of the steps of its process that a crash waits for.
const STEPS: u64 = 16;

pub(super) const MILLISECOND: u64 = 1_000_000;

pub(super) fn seed() -> u64 {
    with_kernel(|kernel| kernel.core.seed)
}

pub(super) fn now() -> u64 {
    with_kernel(|kernel| kernel.core.time.now())
}

pub(super) fn pick<T: Copy>(stream: &mut Stream, table: &[T]) -> T {
    table[stream.below(table.len() as u64) as usize]
}

/// Draws a duration with this mean, of at least a nanosecond.
fn about(stream: &mut Stream, mean: u64) -> u64 {
    1 + stream.below(2 * mean)
}

/// Begins a fault of one kind.
pub(super) type Begin = dyn Fn(&State, Harm);

/// The faults of one kind that one call has added.
pub(super) struct Faults {
    /// That of the last one.
    pub(super) id: Id,
    pub(super) name: &'static str,
    pub(super) begin: Rc<Begin>,
    pub(super) stream: Stream,
    pub(super) gap: u64,
    pub(super) length: u64,
    pub(super) until: u64,
}

/// A fault that begins now, unless it is left out or has nothing to act on.
pub(super) struct Harm {
    pub(super) id: Id,
    pub(super) at: u64,
    pub(super) lasts: u64,
    /// The end of its chaos.
    pub(super) until: u64,
    /// The numbers that it draws, whether or not it uses them.
    pub(super) stream: Stream,
}

impl Harm {
    /// Describes it as a fault of one host.
    pub(super) fn of(&self, host: usize) -> Fault {
        Fault {
            lasts: Some(self.lasts),
            ..Fault::new(self.id, self.at, vec![host], Vec::new())
        }
    }
}

/// An action that is scheduled.
pub(super) type Action = Box<dyn FnOnce(&State)>;

/// A crash that waits for steps of its host.
pub(super) struct Crash {
    host: usize,
    steps: u64,
    harm: Harm,
}

/// All chaos of a world: what was drawn, and what is scheduled.
#[derive(Default)]
pub(super) struct Plan {
    /// Whether nothing is drawn, regardless of the seed.
    pub(super) is_calm: bool,
    pub(super) calls: usize,
    /// Probabilities in effect, in parts of ten thousand, with their kind and call.
    pub(super) rates: Vec<(Kind, usize, u16)>,
    pub(super) actions: BTreeMap<u64, Action>,
    pub(super) next_action: u64,
    pub(super) crashes: Vec<Crash>,
    /// The order before one was drawn.
    pub(super) order_before: Option<Order>,
    /// Description of what was drawn.
    pub(super) drawn: String,
    /// The kinds that are on, and the names under which they are counted.
    pub(super) counted: BTreeSet<(&'static str, Kind)>,
}

impl Plan {
    /// Returns how often each kind that is on has struck, by name.
    pub(super) fn strikes(&self) -> BTreeMap<&'static str, usize> {
        let mut strikes = BTreeMap::new();
        for (name, kind) in &self.counted {
            let struck = with_kernel(|kernel| kernel.core.faults.count(*kind));
            *strikes.entry(*name).or_default() += struck;
        }
        strikes
    }

    pub(super) fn schedule(&mut self, at: u64, action: impl FnOnce(&State) + 'static) {
        let number = self.next_action;
        self.next_action += 1;
        self.actions.insert(number, Box::new(action));
        with_kernel(|kernel| kernel.core.schedule_chaos(at, number));
    }

    /// Applies the highest rate of a kind that is in effect.
    pub(super) fn set_rate(&self, kind: Kind) {
        let rates = self.rates.iter().filter(|rate| rate.0 == kind);
        let parts = rates.map(|rate| rate.2).max().unwrap_or_default();
        let rate = Probability::of_ten_thousand(parts);
        with_kernel(|kernel| kernel.core.set_rate_by_chaos(kind, rate));
    }

    pub(super) fn end_order(&mut self) {
        if let Some(order) = self.order_before.take() {
            with_kernel(|kernel| kernel.core.set_order(order));
        }
    }

    /// Schedules the next fault of a kind, unless it would come too late.
    pub(super) fn schedule_next(&mut self, mut faults: Faults) {
        let at = now() + about(&mut faults.stream, faults.gap);
        if at < faults.until {
            self.schedule(at, move |state| state.begin(faults));
        }
    }
}

impl State {
    /// Performs the action of this number, which is due. Called between two steps, so no process is
    /// in the middle of one.
    pub(super) fn chaos_is_due(&self, number: u64) {
        let action = self.chaos.borrow_mut().actions.remove(&number);
        if let Some(action) = action {
            action(self);
        }
    }

    pub(super) fn schedule(&self, at: u64, action: impl FnOnce(&State) + 'static) {
        self.chaos.borrow_mut().schedule(at, action);
    }

    /// Begins a fault of a kind, and schedules the next one.
    pub(super) fn begin(&self, mut faults: Faults) {
        faults.id.3 += 1;
        let (id, until, at) = (faults.id, faults.until, now());
        let mut stream = Stream::new(seed(), faults.name, id.1 as usize, id.3 as usize);
        let lasts = about(&mut stream, faults.length).min(until - at);
        let begin = faults.begin.clone();
        let harm = Harm {
            id,
            at,
            lasts,
            until,
            stream,
        };
        self.chaos.borrow_mut().schedule_next(faults);
        begin(self, harm);
    }

    /// Schedules what ends a fault that has begun.
    pub(super) fn heal_later(&self, harm: &Harm, heal: impl FnOnce(&mut Kernel) + 'static) {
        self.schedule(harm.at + harm.lasts, move |_| with_kernel(heal));
    }

    /// Parts the network in two: the parts cannot reach each other, or only late or slowly.
    pub(super) fn part(&self, mut harm: Harm) {
        let Some((these, others)) = parts(&mut harm.stream, count_hosts()) else {
            return;
        };
        let is_one_way = harm.stream.below(4) == 0;
        let (how, detail) = match harm.id.0 {
            Kind::Hold => (How::Held, String::new()),
            Kind::Slow => {
                let bandwidth = u64::from(pick(&mut harm.stream, &HALF_OCTAVES)) * 1_000;
                (How::Slow(bandwidth), format!("{bandwidth} B/s"))
            }
            _ => (How::Cut, String::new()),
        };
        let happens = comes(Fault {
            is_one_way,
            lasts: Some(harm.lasts),
            detail,
            ..Fault::new(harm.id, harm.at, these.clone(), others.clone())
        });
        if happens {
            let parting = with_kernel(|kernel| kernel.part(&these, &others, how));
            if is_one_way {
                with_kernel(|kernel| kernel.core.make_one_way(parting));
            }
            self.heal_later(&harm, move |kernel| kernel.core.rejoin(parting));
        }
    }

    /// Resets all connections between two hosts.
    pub(super) fn reset(&self, mut harm: Harm) {
        if let Some((a, b)) = pair(&mut harm.stream, count_hosts()) {
            if comes(Fault::new(harm.id, harm.at, vec![a], vec![b])) {
                with_kernel(|kernel| kernel.network().reset_between(a, b));
            }
        }
    }

    /// Pauses the process of a host, or suspends the host.
    pub(super) fn pause(&self, mut harm: Harm) {
        let host = host(&mut harm.stream).filter(|host| self.runs_on(*host));
        if let Some(host) = host.filter(|host| comes(harm.of(*host))) {
            let pause = with_kernel(|kernel| match harm.id.0 {
                Kind::Suspend => kernel.suspend(host),
                _ => kernel.core.pause(host),
            });
            self.heal_later(&harm, move |kernel| kernel.resume(pause));
        }
    }

    /// Makes the clock of a host jump by `lasts`, or drift for `lasts`.
    pub(super) fn change_clock(&self, mut harm: Harm) {
        let stream = &mut harm.stream;
        let Some(host) = host(stream) else {
            return;
        };
        let (jumps, is_slow) = (stream.below(2) == 0, stream.below(2) == 0);
        let drift = pick(stream, &DRIFTS) * if is_slow { -1 } else { 1 };
        let own = with_kernel(|kernel| kernel.core.time.drift(host));
        let (lasts, detail) = if jumps {
            (None, format!("is set ahead by {}", Seconds(harm.lasts)))
        } else {
            (Some(harm.lasts), format!("drifts by {drift} ppm"))
        };
        let fault = Fault {
            lasts,
            detail,
            ..harm.of(host)
        };
        let is_possible = jumps || own == 0;
        if !is_possible || !comes(fault) {
            return;
        }
        if jumps {
            return with_kernel(|kernel| kernel.core.set_clock(host, harm.lasts, None));
        }
        with_kernel(|kernel| kernel.core.set_clock(host, 0, Some(drift)));
        self.heal_later(&harm, move |kernel| {
            // Unless it has another drift by now.
            if kernel.core.time.drift(host) == drift {
                kernel.core.set_clock(host, 0, Some(0));
            }
        });
    }

    /// Makes the wall clock of a host wrong for `lasts`.
    pub(super) fn step_wall(&self, mut harm: Harm) {
        let stream = &mut harm.stream;
        let Some(host) = host(stream) else {
            return;
        };
        let is_back = stream.below(2) == 0;
        let mean = pick(stream, &WALL_STEPS) * MILLISECOND;
        let step = about(stream, mean);
        let way = if is_back { "back" } else { "ahead" };
        let happens = comes(Fault {
            detail: format!("is set {way} by {}", Seconds(step)),
            ..harm.of(host)
        });
        if happens {
            // At most two days in nanoseconds, which fits easily.
            let by = step as i64 * if is_back { -1 } else { 1 };
            with_kernel(|kernel| kernel.core.step_wall(host, by, true));
            self.heal_later(&harm, move |kernel| kernel.core.step_wall(host, -by, true));
        }
    }

    /// Crashes one of these hosts, immediately or after some steps of its process.
    pub(super) fn crash_one_of(&self, hosts: &[usize], mut harm: Harm) {
        let host = pick(&mut harm.stream, hosts);
        if harm.stream.below(2) == 0 {
            harm.id.0 = Kind::PowerOff;
        }
        match harm.stream.below(STEPS) {
            0 => self.crash(host, harm),
            steps => (self.chaos.borrow_mut().crashes).push(Crash { host, steps, harm }),
        }
    }

    /// Crashes a host if it is up, and schedules its restart.
    pub(super) fn crash(&self, host: usize, mut harm: Harm) {
        harm.at = now();
        if !self.runs_on(host) || harm.at >= harm.until {
            return;
        }
        harm.lasts = harm.lasts.min(harm.until - harm.at);
        if !comes(harm.of(host)) {
            return;
        }
        match harm.id.0 {
            Kind::PowerOff => self.end_process(host, TraceEvent::PoweredOff),
            _ => self.end_process(host, TraceEvent::Killed),
        }
        self.hosts.borrow_mut()[host].stopped_by = Some(harm.id);
        self.schedule(harm.at + harm.lasts, move |state| {
            // Unless the test has stopped or started it since.
            if state.hosts.borrow()[host].stopped_by == Some(harm.id) {
                state.start_again(host);
            }
        });
    }

    /// Counts down the crashes that wait for steps of this process, after each of its steps.
    pub(super) fn chaos_after_step(&self, poller: usize) {
        if self.chaos.borrow().crashes.is_empty() {
            return;
        }
        let host = with_kernel(|kernel| kernel.core.pollers.host_of(poller));
        let mut crashes = std::mem::take(&mut self.chaos.borrow_mut().crashes);
        let ours = crashes.iter_mut().filter(|crash| crash.host == host);
        ours.for_each(|crash| crash.steps -= 1);
        let (due, left): (Vec<_>, _) = crashes.into_iter().partition(|crash| crash.steps == 0);
        self.chaos.borrow_mut().crashes = left;
        for Crash { host, harm, .. } in due {
            self.crash(host, harm);
        }
    }

    /// Cancels everything that is scheduled.
    pub(super) fn end_chaos(&self) {
        let mut plan = self.chaos.borrow_mut();
        plan.actions.clear();
        plan.rates.clear();
        plan.crashes.clear();
        plan.end_order();
        let first = plan.next_action;
        with_kernel(|kernel| {
            kernel.call_off_chaos(first);
            kernel.core.faults.by_chaos.clear();
            kernel.core.links.chaos = None;
        });
    }
}

/// Returns whether a fault happens.
fn comes(fault: Fault) -> bool {
    with_kernel(|kernel| kernel.core.faults.allow(fault.id, || fault))
}

fn count_hosts() -> usize {
    with_kernel(|kernel| kernel.core.hosts.count())
}

/// Draws a host other than the test's, if there is one.
fn host(stream: &mut Stream) -> Option<usize> {
    let others = count_hosts() as u64 - 1;
    (others > 0).then(|| 1 + stream.below(others) as usize)
}

/// Draws two different hosts.
fn pair(stream: &mut Stream, hosts: usize) -> Option<(usize, usize)> {
    if hosts < 2 {
        return None;
    }
    let a = stream.below(hosts as u64) as usize;
    let b = stream.below(hosts as u64 - 1) as usize;
    Some((a, if b >= a { b + 1 } else { b }))
}

/// Draws two parts of the network: one host and one, one and all others, or any two.
fn parts(stream: &mut Stream, hosts: usize) -> Option<(Vec<usize>, Vec<usize>)> {
    let how = stream.below(3);
    let (a, b) = pair(stream, hosts)?;
    Some(match how {
        0 => (vec![a], vec![b]),
        1 => (vec![a], (0..hosts).filter(|host| *host != a).collect()),
        // The two hosts are on different sides, so neither side is empty.
        _ => (0..hosts).partition(|host| *host == a || *host != b && stream.below(2) == 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a network are never empty and hold each host once.
    #[test]
    fn partition_sides_not_empty_and_disjoint() {
        let mut stream = Stream::new(1, "test", 0, 0);
        for hosts in 2..7 {
            for _ in 0..100 {
                let (these, others) = parts(&mut stream, hosts).unwrap();
                assert!(!these.is_empty() && !others.is_empty());
                let mut all = [these, others].concat();
                all.sort_unstable();
                let count = all.len();
                all.dedup();
                assert_eq!(all.len(), count, "a host is on both sides");
                assert!(all.last().is_some_and(|host| *host < hosts));
            }
        }
        assert_eq!(parts(&mut stream, 1), None);
    }
}

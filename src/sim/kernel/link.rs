//! What lies between two hosts, each direction for itself: how long a segment takes, whether it is
//! lost, and whether the way is cut or held.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::choice::{Probability, Stream};
use super::faults::{Fault, Faults, Kind};
use super::tcp::Segment;

/// How long a segment takes from one host to another.
///
/// ```
/// use polder::sim::Latency;
/// use std::time::Duration;
///
/// let near = Latency::fixed(Duration::from_micros(200));
/// let far = Latency::uniform(Duration::from_millis(20)..Duration::from_millis(80));
/// assert_ne!(near, far);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    least: u64,
    /// One more than what the most is longer than the least, in nanoseconds.
    span: u64,
}

impl Latency {
    /// The same for each segment.
    pub fn fixed(latency: Duration) -> Latency {
        Latency {
            least: nanos(latency),
            span: 1,
        }
    }

    /// Anything within `range`, each with the same probability. An empty range is its start.
    pub fn uniform(range: Range<Duration>) -> Latency {
        let least = nanos(range.start);
        Latency {
            least,
            span: nanos(range.end).saturating_sub(least).max(1),
        }
    }

    fn draw(self, stream: &mut Stream) -> u64 {
        self.least + stream.below(self.span)
    }

    fn mean(self) -> u64 {
        self.least + self.span / 2
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// Between hosts unless a test says otherwise: a local network, with enough variation for two
/// messages on two connections to overtake each other.
const DEFAULT_LATENCY: Latency = Latency {
    least: 500_000,
    span: 1_500_001,
};

/// From a host to itself.
const LOOPBACK: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) latency: Latency,
    pub(crate) loss: Probability,
}

#[derive(Debug)]
pub(super) struct Links {
    seed: u64,
    default: Settings,
    /// The loss by chaos, where that of the link is smaller.
    pub(super) loss: Probability,
    /// Each segment takes the mean of its link's latency.
    pub(super) is_even: bool,
    /// By where they begin and end.
    links: BTreeMap<(usize, usize), Link>,
}

#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    /// How many segments were sent.
    sent: u64,
    settings: Settings,
    /// How many cuts and holds there are.
    pub(super) cuts: u32,
    pub(super) holds: u32,
    /// What arrived while it was held.
    pub(super) held: Vec<Segment>,
}

impl Links {
    pub(super) fn new(seed: u64) -> Links {
        Links {
            seed,
            default: Settings {
                latency: DEFAULT_LATENCY,
                loss: Probability::default(),
            },
            loss: Probability::default(),
            is_even: false,
            links: BTreeMap::new(),
        }
    }

    pub(super) fn get(&mut self, from: usize, to: usize) -> &mut Link {
        let (seed, settings) = (self.seed, self.default);
        self.links.entry((from, to)).or_insert_with(|| Link {
            stream: Stream::new(seed, "link", from, to),
            sent: 0,
            settings,
            cuts: 0,
            holds: 0,
            held: Vec::new(),
        })
    }

    /// Changes the settings of one link; or of all, those that there will be too.
    pub(super) fn change(&mut self, link: Option<(usize, usize)>, f: impl Fn(&mut Settings)) {
        match link {
            Some((from, to)) => f(&mut self.get(from, to).settings),
            None => {
                f(&mut self.default);
                self.links.values_mut().for_each(|it| f(&mut it.settings));
            }
        }
    }

    /// What becomes of a segment that is sent now: how long it takes, or `None` if it is lost. Each
    /// takes two numbers of the link's stream, whatever the settings: so a loss that is left out
    /// shifts nothing.
    pub(super) fn send(
        &mut self,
        (from, to): (usize, usize),
        now: u64,
        faults: &mut Faults,
    ) -> Option<u64> {
        if from == to {
            return Some(LOOPBACK);
        }
        let (loss_by_chaos, is_even) = (self.loss, self.is_even);
        let link = self.get(from, to);
        link.sent += 1;
        let drawn = link.settings.latency.draw(&mut link.stream);
        let latency = match is_even {
            true => link.settings.latency.mean(),
            false => drawn,
        };
        let loss = link.settings.loss.max(loss_by_chaos);
        let is_lost = link.stream.happens(loss);
        if link.cuts > 0 {
            return None;
        }
        let id = (Kind::Loss, from as u32, to as u32, link.sent);
        let fault = || Fault::new(id, now, vec![from], vec![to]);
        // What is certain is no choice.
        let is_lost = is_lost && (loss.is_certain() || faults.allow(id, fault));
        (!is_lost).then_some(latency)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = (&(usize, usize), &mut Link)> {
        self.links.iter_mut()
    }
}

//! The links between hosts, one for each direction: how long a segment takes, whether it is lost,
//! and whether the way is cut, held or slow.

use std::collections::BTreeMap;

use super::choice::{Probability, Stream};
use super::event_queue::Event;
use super::faults::{Faults, Kind};
use super::latency::Latency;
use super::parting::Partings;

/// The latency between hosts unless a test sets another: a local network, with enough variation for
/// two messages on two connections to overtake each other.
const DEFAULT_LATENCY: Latency = Latency::new(500_000, 1_500_001);

/// The latency of a name server that is as near as other hosts are.
pub(super) const DEFAULT_NAME_LATENCY: Latency = Latency::new(500_000, 1_500_000);

/// The limit of a reordered datagram's additional delay, which comes on top of a second latency.
const LATE: u64 = 5_000_000;

/// The limit of doublings of `LATE` for the delay of a copy, exclusive: a copy comes at most 2.5 s
/// later.
const COPIES_LATE: u64 = 10;

/// The size of the queue in bytes where the bandwidth is limited; what is sent beyond that is lost.
/// It is what a router has for a few connections.
const QUEUE: u128 = 256 * 1024;

/// The longest time in the queue of a link that is slow for a while, unless the test has set its
/// bandwidth; what is sent beyond that is lost. So all has arrived that soon after the link is fast
/// again.
const SLOW_QUEUE: u128 = 1_000_000_000;

/// The latency from a host to itself.
const LOOPBACK: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) latency: Latency,
    pub(crate) loss: Probability,
    pub(crate) bursts: Option<Bursts>,
    /// The probabilities of duplicated and of reordered datagrams.
    pub(crate) duplication: Probability,
    pub(crate) reordering: Probability,
    /// In bytes per second.
    pub(crate) bandwidth: Option<u64>,
}

/// Losses in a row, by Gilbert's model ("Capacity of a burst-noise channel", 1960): a link is in
/// one of two states, and loses everything in one of them. Its state may change with each message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bursts {
    pub(crate) begin: Probability,
    pub(crate) end: Probability,
}

pub(crate) struct Links {
    seed: u64,
    default: Settings,
    /// The number of the chaos that draws a latency for each link; if there is none, each has its
    /// own setting.
    pub(crate) chaos: Option<u32>,
    /// Whether each segment takes the mean of its link's latency.
    pub(super) is_even: bool,
    links: Vec<Link>,
    /// The places of links, by their two hosts, counted from one.
    numbers: BTreeMap<(usize, usize), u32>,
    pub(crate) partings: Partings,
    /// Messages that arrived while their way was held, in that order.
    pub(super) held: Vec<((usize, usize), Event)>,
}

struct Link {
    stream: Stream,
    /// The number of segments sent, and of datagrams.
    sent: u64,
    sent_datagrams: u64,
    settings: Settings,
    /// The latency that the chaos of this number has drawn for it; `None` if that fault is left
    /// out.
    drawn: Option<(u32, Option<Latency>)>,
    /// The choices for datagrams, and the arrival time of the last one that keeps its order.
    datagrams: Stream,
    last_datagram: u64,
    /// The time at which everything that was sent has left the queue.
    busy_until: u64,
    /// The choices for bursts of losses, once there may be any, and whether the link is in one.
    bursts: Option<Box<(Stream, bool)>>,
}

/// The fate of a message at the end of its link.
pub(super) enum Delivery {
    Lost,
    /// It is to be kept in [`held`](Links::held).
    Held,
    Arrives,
}

impl Link {
    fn new(seed: u64, (from, to): (usize, usize), settings: Settings) -> Link {
        Link {
            stream: Stream::new(seed, "link", from, to),
            sent: 0,
            sent_datagrams: 0,
            settings,
            drawn: None,
            datagrams: Stream::new(seed, "datagrams", from, to),
            last_datagram: 0,
            busy_until: 0,
            bursts: None,
        }
    }

    /// Returns how long `len` bytes wait for those before them, plus their own transmission time.
    /// `None` if they do not fit into the queue. `slow` is the bandwidth that the link has for a
    /// while, unless its own is smaller.
    #[inline]
    fn take_bandwidth(&mut self, len: usize, now: u64, slow: Option<u64>) -> Option<u64> {
        let own = self.settings.bandwidth;
        let bandwidth = match (own, slow) {
            (None, None) => return Some(0),
            (Some(one), None) | (None, Some(one)) => one,
            (Some(own), Some(slow)) => own.min(slow),
        };
        // With 128 bits nothing overflows: neither a length, nor the longest time of a world.
        let takes = |len: u128, bandwidth| len * 1_000_000_000 / u128::from(bandwidth);
        let waits = self.busy_until.saturating_sub(now);
        let most = match (own, slow) {
            (Some(own), None) => takes(QUEUE, own),
            // Bytes queued before the link became slow are served at the slow speed too.
            (Some(own), Some(_)) => takes(QUEUE, own).max(SLOW_QUEUE),
            (None, _) => SLOW_QUEUE,
        };
        if u128::from(waits) > most {
            return None;
        }
        let takes = u64::try_from(takes(len as u128, bandwidth)).unwrap_or(u64::MAX / 4);
        self.busy_until = now + waits + takes;
        Some(waits + takes)
    }

    /// Returns whether a message sent now falls into a burst of losses. Takes a number of a stream
    /// if there may be bursts.
    #[inline(always)]
    fn comes_into_burst(&mut self, seed: u64, (from, to): (usize, usize)) -> bool {
        let Some(bursts) = self.settings.bursts else {
            return false;
        };
        let begin = || Box::new((Stream::new(seed, "bursts", from, to), false));
        let (stream, is_in_burst) = &mut **self.bursts.get_or_insert_with(begin);
        let change = if *is_in_burst {
            bursts.end
        } else {
            bursts.begin
        };
        *is_in_burst ^= stream.happens(change);
        *is_in_burst
    }
}

impl Links {
    /// `is_even` is whether each segment takes the mean of its link's latency.
    pub(super) fn new(seed: u64, is_even: bool) -> Links {
        Links {
            seed,
            default: Settings {
                latency: DEFAULT_LATENCY,
                loss: Probability::default(),
                bursts: None,
                duplication: Probability::default(),
                reordering: Probability::default(),
                bandwidth: None,
            },
            chaos: None,
            is_even,
            links: Vec::new(),
            numbers: BTreeMap::new(),
            partings: Partings::default(),
            held: Vec::new(),
        }
    }

    /// Returns a link. `known` is its number; if that is zero, the link is looked up, and its
    /// number is stored there.
    #[inline]
    fn find(&mut self, way: (usize, usize), known: &mut u32) -> &mut Link {
        if *known == 0 {
            *known = self.find_or_add(way);
        }
        &mut self.links[*known as usize - 1]
    }

    #[inline(never)]
    fn find_or_add(&mut self, way: (usize, usize)) -> u32 {
        let (seed, settings, links) = (self.seed, self.default, &mut self.links);
        let add = || {
            links.push(Link::new(seed, way, settings));
            u32::try_from(links.len()).expect("fewer than 2^32 links")
        };
        *self.numbers.entry(way).or_insert_with(add)
    }

    /// Changes the settings of one link; or of all links, including future ones.
    pub(crate) fn change(&mut self, link: Option<(usize, usize)>, f: impl Fn(&mut Settings)) {
        match link {
            Some(way) => f(&mut self.find(way, &mut 0).settings),
            None => {
                f(&mut self.default);
                let links = self.links.iter_mut();
                links.for_each(|link| f(&mut link.settings));
            }
        }
    }

    /// Returns the fate of a message that arrives from one host at another now. `is_up` is that of
    /// the other host.
    #[inline]
    pub(super) fn pass(&self, (from, to): (usize, usize), is_up: bool) -> Delivery {
        let (partings, is_near) = (&self.partings, from == to);
        if is_up && partings.are_none() {
            return Delivery::Arrives; // The common case.
        }
        let is_cut = !is_near && partings.is_cut(from, to);
        if !is_cut && partings.is_held(from, to) {
            Delivery::Held
        } else if is_cut || !is_up || partings.is_suspended(to) {
            Delivery::Lost
        } else {
            Delivery::Arrives
        }
    }

    /// Returns the latency that the chaos of this number has drawn for a link, to replace its own.
    fn latency_by_chaos(
        &mut self,
        call: u32,
        (from, to): (usize, usize),
        known: &mut u32,
        now: u64,
        faults: &mut Faults,
    ) -> Option<Latency> {
        let seed = self.seed;
        let link = self.find((from, to), known);
        if link.drawn.is_none_or(|(of, _)| of != call) {
            // There are fewer than 2^16 hosts; the host that does not exist is cut to 16 bits.
            let place = (from << 16) | (to & 0xffff);
            let mut stream = Stream::new(seed, "latencies", place, call as usize);
            let latency = Latency::of_chaos(&mut stream);
            let id = (Kind::Latency, from as u32, to as u32, u64::from(call));
            let happens = faults.allow_one(id, now, || latency.to_string());
            link.drawn = Some((call, happens.then_some(latency)));
        }
        link.drawn.and_then(|(_, latency)| latency)
    }

    /// Returns whether every segment that is sent now arrives, if no queue is full.
    pub(super) fn loses_nothing(&self, (from, to): (usize, usize), faults: &Faults) -> bool {
        let number = self.numbers.get(&(from, to));
        let link = number.map(|number| &self.links[*number as usize - 1]);
        let settings = link.map_or(&self.default, |link| &link.settings);
        let partings = &self.partings;
        let is_open = !partings.is_cut(from, to)
            && !partings.is_held(from, to)
            && ![from, to].iter().any(|host| partings.is_suspended(*host));
        let loss = faults.rate(Kind::Loss, settings.loss);
        from == to || is_open && loss == Probability::default() && settings.bursts.is_none()
    }

    /// Sends a segment: draws its delay, or returns `None` if it is lost. Each segment
    /// takes two numbers of the link's stream, for any settings: so a loss that is left out shifts
    /// nothing. A loss in a burst is a loss like any other.
    ///
    /// `len` is the number of its bytes, with its headers, and `now` the time. `known` is for
    /// [`find`](Self::find).
    pub(super) fn send_segment(
        &mut self,
        (from, to): (usize, usize),
        known: &mut u32,
        len: usize,
        now: u64,
        faults: &mut Faults,
    ) -> Option<u64> {
        if from == to {
            return Some(LOOPBACK);
        }
        let (seed, is_even) = (self.seed, self.is_even);
        let (is_cut, slow) = self.partings.of_a_way(from, to);
        let drawn_latency = (self.chaos)
            .and_then(|call| self.latency_by_chaos(call, (from, to), known, now, faults));
        let link = self.find((from, to), known);
        let latency = drawn_latency.unwrap_or(link.settings.latency);
        link.sent += 1;
        let latency = latency.draw(&mut link.stream, is_even);
        let loss = faults.rate(Kind::Loss, link.settings.loss);
        let is_lost = link.stream.happens(loss);
        let is_in_burst = link.comes_into_burst(seed, (from, to));
        if is_cut {
            return None; // What is under way already is lost on arrival: see `pass`.
        }
        let id = (Kind::Loss, from as u32, to as u32, link.sent);
        // A certain loss is not a choice.
        let is_certain = is_lost && loss.is_certain();
        if is_certain || (is_lost || is_in_burst) && faults.allow_one(id, now, String::new) {
            return None;
        }
        Some(latency.saturating_add(link.take_bandwidth(len, now, slow)?))
    }

    /// Returns when a datagram arrives that is sent now: two times if it is duplicated, none if it
    /// is lost. A reordered datagram takes longer than its latency, and lets others pass; a copy
    /// arrives at any time; all others keep their order. Each datagram takes six numbers of a
    /// stream, for any settings; the delay of a copy is drawn from a separate stream.
    pub(super) fn send_datagram(
        &mut self,
        (from, to): (usize, usize),
        len: usize,
        now: u64,
        faults: &mut Faults,
    ) -> [Option<u64>; 2] {
        if from == to {
            return [Some(now + LOOPBACK), None];
        }
        let (seed, is_even) = (self.seed, self.is_even);
        let (is_cut, slow) = self.partings.of_a_way(from, to);
        let mut known = 0;
        let drawn_latency = (self.chaos)
            .and_then(|call| self.latency_by_chaos(call, (from, to), &mut known, now, faults));
        let link = self.find((from, to), &mut known);
        let latency = drawn_latency.unwrap_or(link.settings.latency);
        link.sent_datagrams += 1;
        let nth = link.sent_datagrams;
        let is_in_burst = link.comes_into_burst(seed, (from, to));
        let (settings, stream) = (link.settings, &mut link.datagrams);
        let latencies = [(); 2].map(|()| latency.draw(stream, is_even));
        let late = latencies[1].saturating_add(stream.below(LATE));
        let loss = faults.rate(Kind::Loss, settings.loss);
        let duplication = faults.rate(Kind::Duplicate, settings.duplication);
        let reordering = faults.rate(Kind::Reorder, settings.reordering);
        let rates = [loss, duplication, reordering];
        let [loses, doubles, reorders] = rates.map(|rate| stream.happens(rate));
        let mut comes = |kind, happens: bool, rate: Probability| {
            let id = (kind, from as u32, to as u32, nth);
            happens && (rate.is_certain() || faults.allow_one(id, now, String::new))
        };
        // A fault that would have no effect is none.
        if is_cut || comes(Kind::DatagramLoss, loses || is_in_burst, loss) {
            return [None; 2];
        }
        let Some(queueing) = link.take_bandwidth(len, now, slow) else {
            return [None; 2];
        };
        let is_double = comes(Kind::Duplicate, doubles, duplication);
        let is_reordered = comes(Kind::Reorder, reorders, reordering);
        let now = now + queueing;
        let first = now.saturating_add(latencies[0]).max(link.last_datagram);
        // A copy does not keep the order, and may be slow.
        let second = is_double.then(|| {
            let mut stream = Stream::new(seed, "copies", to << 16 | from, nth as usize);
            let most = LATE << stream.below(COPIES_LATE);
            (first.saturating_add(latencies[1])).saturating_add(stream.below(most))
        });
        if is_reordered {
            [Some(first.saturating_add(late)), second]
        } else {
            link.last_datagram = first;
            [Some(first), second]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::core::Core;
    use super::super::parting::How;
    use super::super::setup::Setup;
    use super::super::thread::{begin, with};
    use super::*;

    fn sent(links: &mut Links, times: usize) -> Vec<Option<u64>> {
        let (mut known, mut faults) = (0, Faults::new(None));
        let mut send = || links.send_segment((0, 1), &mut known, 1_000, 0, &mut faults);
        (0..times).map(|_| send()).collect()
    }

    fn set(link: Option<(usize, usize)>, f: impl Fn(&mut Settings)) -> Links {
        let mut links = Links::new(1, false);
        links.change(link, f);
        links
    }

    #[test]
    fn link_settings_are_per_direction() {
        let mut links = set(None, |link| link.latency = Latency::new(7, 1));
        links.change(Some((0, 1)), |link| link.latency = Latency::new(9, 1));
        let (mut faults, mut known) = (Faults::new(None), [0; 3]);
        let ways = [(0, 1), (1, 0), (0, 0)];
        let took =
            [0, 1, 2].map(|nth| links.send_segment(ways[nth], &mut known[nth], 1, 0, &mut faults));
        assert_eq!(took, [Some(9), Some(7), Some(LOOPBACK)]);
        assert_eq!(known, [1, 2, 0], "a host has no link to itself");
    }

    /// Losses are as frequent as their probability and come in bursts if they are set.
    #[test]
    fn loss_rate_and_bursts_as_set() {
        let half = Probability::new(0.5).unwrap();
        let count = |links: &mut Links| sent(links, 2_000).iter().flatten().count();
        let even = count(&mut set(None, |link| link.loss = half));
        assert!((900..1_100).contains(&even), "{even}");
        let rare = Probability::new(0.02).unwrap();
        let (begin, end) = (rare, rare);
        let mut links = set(None, |link| link.bursts = Some(Bursts { begin, end }));
        let none = Faults::default();
        assert!(!links.loses_nothing((0, 1), &none) && links.loses_nothing((1, 1), &none));
        let all = sent(&mut links, 2_000);
        let changes = all
            .windows(2)
            .filter(|two| two[0].is_some() != two[1].is_some());
        let (lost, changes) = (
            all.iter().filter(|one| one.is_none()).count(),
            changes.count(),
        );
        assert!(lost > 200 && changes < lost / 4, "{lost} in {changes}");
    }

    /// Messages that are sent at the same time queue where the bandwidth is limited.
    #[test]
    fn bandwidth_queues_simultaneous_sends() {
        let mut links = set(None, |link| {
            (link.latency, link.bandwidth) = (Latency::new(0, 1), Some(1_000_000));
        });
        let took = sent(&mut links, 1_000);
        assert_eq!(
            took[..3],
            [Some(1_000_000), Some(2_000_000), Some(3_000_000)]
        );
        let queued = took.iter().flatten().count();
        assert!((262..=264).contains(&queued), "{queued}");
    }

    /// Datagrams keep their order but those that are reordered.
    #[test]
    fn datagrams_ordered_unless_reordered() {
        for reordered in [0.0, 0.5] {
            let reordering = Probability::new(reordered).unwrap();
            let mut links = set(None, |link| link.reordering = reordering);
            let mut faults = Faults::new(None);
            let mut send = |now| links.send_datagram((0, 1), 10, now, &mut faults)[0];
            let came: Vec<u64> = (0..200).filter_map(|nth| send(nth * 1_000)).collect();
            assert_eq!((came.len(), came.is_sorted()), (200, reordered == 0.0));
        }
    }

    /// A datagram that is lost is neither late nor twice.
    #[test]
    fn lost_datagram_neither_late_nor_duplicated() {
        let [half, certain] = [0.5, 1.0].map(|rate| Probability::new(rate).unwrap());
        for (cause, passed) in [("cut", 0), ("loss", 0), ("queue", 1)] {
            let _world = begin(1, Setup::default());
            with(|kernel| {
                kernel.core.links.change(None, |link| {
                    (link.duplication, link.reordering) = (half, half);
                    match cause {
                        "loss" => link.loss = certain,
                        "queue" => link.bandwidth = Some(1),
                        _ => {}
                    }
                });
                if cause == "cut" {
                    kernel.part(&[0], &[1], How::Cut);
                }
                let Core { links, faults, .. } = &mut kernel.core;
                let mut send = || links.send_datagram((0, 1), 300_000, 0, faults)[0].is_some();
                assert_eq!((0..100).filter(|_| send()).count(), passed, "{cause}");
                let struck = faults.list.iter().map(|fault| fault.id.3 as usize);
                assert!(struck.max().is_none_or(|last| last <= passed), "{cause}");
            });
        }
    }

    /// A message is lost at the end of its link if its host is down.
    #[test]
    fn message_lost_on_arrival_at_down_host() {
        let links = Links::new(1, false);
        assert!(matches!(links.pass((0, 1), true), Delivery::Arrives));
        assert!(matches!(links.pass((0, 1), false), Delivery::Lost));
    }
}

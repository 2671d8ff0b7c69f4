//! `POLDER_SIM_REPLAY`: a seed, and how a run differs from that of the seed alone, as reports print
//! it.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::environment::{from_environment, parse};
use super::report::Run;
use crate::world::faults::Id;
use crate::world::setup::{RunConfig, Setup, Simplification};

/// A seed, and how a run differs from its own: `0x1d3:-1,-2,-4..8` leaves faults out; ranges
/// include both ends. `fork1500=0x7` draws other numbers from 1,500 ns on. Words name
/// simplifications: `mean` (latencies), `fifo` (the order of ready tasks), `choose3=0` (the third
/// choice of the test). `schedule=0.2` names the first choices of an exhaustive test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replay {
    pub(super) seed: u64,
    /// The numbers of the faults that are left out.
    ranges: Vec<RangeInclusive<usize>>,
    /// All other differences.
    pub(super) config: RunConfig,
}

impl Replay {
    /// Returns the replay of a run that leaves no fault out.
    pub(super) fn new(seed: u64, config: RunConfig) -> Replay {
        Replay {
            seed,
            ranges: Vec::new(),
            config,
        }
    }

    /// Returns whether it is the run of a seed, apart from its forks.
    pub(super) fn is_whole(&self) -> bool {
        self.leaves_nothing_out() && self.config.chosen.is_empty()
    }

    fn leaves_nothing_out(&self) -> bool {
        self.ranges.is_empty() && self.config.simplification == Simplification::default()
    }

    pub(super) fn from_environment() -> Option<Replay> {
        let what = "a seed, and numbers of faults that are left out, such as 0x1d3:-1,-2,-4..8, \
                    or what else a report prints";
        from_environment("POLDER_SIM_REPLAY", what, Replay::parse)
    }

    pub(super) fn parse(text: &str) -> Option<Replay> {
        let (seed, list) = text.split_once(':').unwrap_or((text, ""));
        let range = |part: &str| {
            let part = part.strip_prefix('-')?;
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (1 <= first && first <= last).then_some(first..=last)
        };
        let (mut ranges, mut config) = (Vec::new(), RunConfig::default());
        let RunConfig {
            forks,
            simplification,
            chosen,
            ..
        } = &mut config;
        for part in list.split(',').filter(|part| !part.is_empty()) {
            match part {
                "mean" => simplification.is_even = true,
                "fifo" => simplification.is_fifo = true,
                _ => match part.split_once('=') {
                    None => ranges.push(range(part)?),
                    Some(("schedule", numbers)) => {
                        let numbers = numbers.split('.').map(|number| number.parse().ok());
                        *chosen = numbers.collect::<Option<_>>()?;
                    }
                    Some((word, number)) => {
                        let number = parse(number)?;
                        if let Some(nth) = word.strip_prefix("choose") {
                            // (They are counted from one.)
                            let nth = nth.parse().ok().filter(|nth| *nth > 0)?;
                            simplification.chosen.insert(nth, number);
                        } else {
                            let at = word.strip_prefix("fork")?.parse().ok()?;
                            if forks.iter().next_back().is_some_and(|(last, _)| last >= at) {
                                return None; // A fork forgets those behind it.
                            }
                            *forks = Arc::new(forks.fork_at(at, number));
                        }
                    }
                },
            }
        }
        Some(Replay {
            seed: parse(seed)?,
            ranges,
            config,
        })
    }

    /// Returns the replay of a varied run, if `all` are the faults of the whole run.
    pub(super) fn of(seed: u64, all: &[Id], config: &RunConfig) -> Replay {
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        let is_kept = |id| (config.kept.as_ref()).is_none_or(|kept| kept.contains(id));
        for (index, _) in all.iter().enumerate().filter(|(_, id)| !is_kept(*id)) {
            let number = index + 1;
            match ranges.last_mut() {
                Some(last) if *last.end() == index => *last = *last.start()..=number,
                _ => ranges.push(number..=number),
            }
        }
        Replay {
            seed,
            ranges,
            config: RunConfig {
                kept: None,
                until: None,
                ..config.clone()
            },
        }
    }

    /// Returns how its run differs from that of the seed. Runs the seed once, with all
    /// faults, to learn their numbers, if it leaves something out.
    ///
    /// # Panics
    ///
    /// If there are fewer faults than were named.
    pub(super) fn resolve(&self, run: &Run<'_>) -> RunConfig {
        let mut config = self.config.clone();
        if self.leaves_nothing_out() {
            return config;
        }
        let simplification = std::mem::take(&mut config.simplification);
        let all = run(self.seed, Setup::quiet(config.clone())).faults;
        let ends = self.ranges.iter().map(|range| *range.end());
        let most = ends.max().unwrap_or(0);
        assert!(
            most <= all.len(),
            "polder_sim: POLDER_SIM_REPLAY={self} leaves out fault {most}, and the run has {}",
            all.len()
        );
        let is_left_out = |number| self.ranges.iter().any(|range| range.contains(&number));
        let kept = (1..).zip(all).filter(|(number, _)| !is_left_out(*number));
        config.kept = Some(Arc::new(kept.map(|(_, id)| id).collect()));
        config.simplification = simplification;
        config
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = (self.ranges.iter()).map(|range| match (range.start(), range.end()) {
            (first, last) if first == last => format!("-{first}"),
            (first, last) => format!("-{first}..{last}"),
        });
        let forks = (self.config.forks.iter()).map(|(at, salt)| format!("fork{at}={salt:#x}"));
        let mut parts: Vec<String> = forks.chain(ranges).collect();
        let simplification = &self.config.simplification;
        parts.extend(simplification.is_even.then(|| "mean".to_owned()));
        parts.extend(simplification.is_fifo.then(|| "fifo".to_owned()));
        let chosen = simplification.chosen.iter();
        parts.extend(chosen.map(|(nth, number)| format!("choose{nth}={number}")));
        let chosen = &self.config.chosen;
        if !chosen.is_empty() {
            let numbers: Vec<String> = chosen.iter().map(u32::to_string).collect();
            parts.push(format!("schedule={}", numbers.join(".")));
        }
        write!(f, "{:#x}:{}", self.seed, parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::faults::Kind;

    #[test]
    fn what_is_left_out_is_written_as_it_is_read() {
        for text in [
            "0x1d3:-1,-2..4,-9",
            "0x0:",
            "0x7:-1",
            "0x7:fifo",
            "0x7:schedule=0",
            "0x7:-2,schedule=0.12.3",
            "0x7:fork1500=0x7,fork2000=0xffffffffffffffff",
            "0x7:fork0=0x1,-3,mean,fifo,choose1=0,choose12=345",
        ] {
            assert_eq!(Replay::parse(text).unwrap().to_string(), text);
        }
        let decimal = Replay::parse("467:-1,-2,-4..8").unwrap();
        assert_eq!(decimal.seed, 0x1d3);
        assert_eq!(decimal.ranges, [1..=1, 2..=2, 4..=8]);
        for text in [
            "",
            ":",
            "7:1",
            "7:-",
            "7:-0",
            "7:-4..2",
            "7:-a",
            "seven",
            "7:choose1",
            "7:choose0=1",
            "7:choosex=1",
            "7:lifo",
            "7:fork=1",
            "7:schedule=",
            "7:schedule=1..2",
            "7:fork1",
            "7:fork1.5=1",
            "7:fork2=1,fork1=1",
        ] {
            assert_eq!(Replay::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_kept_is_left_out_by_its_number() {
        let all: Vec<Id> = (1..=9).map(|nth| (Kind::Loss, 0, 1, nth)).collect();
        let text = |kept: &[Id]| {
            let config = RunConfig {
                kept: Some(Arc::new(kept.iter().copied().collect())),
                ..RunConfig::default()
            };
            Replay::of(0x1d3, &all, &config).to_string()
        };
        assert_eq!(text(&[all[2], all[8]]), "0x1d3:-1..2,-4..8");
        assert_eq!(text(&[]), "0x1d3:-1..9");
    }
}

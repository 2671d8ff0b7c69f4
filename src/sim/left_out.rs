//! `POLDER_SIM`: a seed, the numbers of faults that are left out, and simplifications, as reports
//! print them.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::check::{Run, parse, variable};
use crate::world::faults::{Id, Kept};
use crate::world::{Setup, Simpler};

/// Omissions and simplifications of a run, by `POLDER_SIM` or by shrinking.
#[derive(Clone, Default)]
pub(super) struct Less {
    /// The faults that may happen, if others are left out.
    pub(super) kept: Option<Kept>,
    pub(super) simpler: Simpler,
}

impl Less {
    pub(super) fn setup(&self) -> Setup {
        Setup {
            kept: self.kept.clone(),
            simpler: self.simpler.clone(),
            ..Setup::default()
        }
    }
}

/// A seed, and what its run leaves out: `0x1d3:-1,-2,-4..8`; ranges include both ends. Words name
/// simplifications: `mean` (latencies), `fifo` (the order of ready tasks), `choose3=0` (the third
/// choice of the test).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeftOut {
    pub(super) seed: u64,
    ranges: Vec<RangeInclusive<usize>>,
    pub(super) simpler: Simpler,
}

impl LeftOut {
    /// # Panics
    ///
    /// If the variable is set, and malformed.
    pub(super) fn from_environment() -> Option<LeftOut> {
        let text = variable("POLDER_SIM")?;
        let parsed = LeftOut::parse(&text);
        assert!(
            parsed.is_some(),
            "polder::sim: POLDER_SIM is a seed, and numbers of faults that are left out, such as \
             0x1d3:-1,-2,-4..8: not {text:?}"
        );
        parsed
    }

    fn parse(text: &str) -> Option<LeftOut> {
        let (seed, list) = text.split_once(':').unwrap_or((text, ""));
        let range = |part: &str| {
            let part = part.strip_prefix('-')?;
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (1 <= first && first <= last).then_some(first..=last)
        };
        let (mut ranges, mut simpler) = (Vec::new(), Simpler::default());
        for part in list.split(',').filter(|part| !part.is_empty()) {
            match part {
                "mean" => simpler.is_even = true,
                "fifo" => simpler.is_fifo = true,
                _ => match part.strip_prefix("choose") {
                    Some(choice) => {
                        let (nth, number) = choice.split_once('=')?;
                        (simpler.chosen).insert(nth.parse().ok()?, number.parse().ok()?);
                    }
                    None => ranges.push(range(part)?),
                },
            }
        }
        Some(LeftOut {
            seed: parse(seed)?,
            ranges,
            simpler,
        })
    }

    /// Returns what a run of `less` leaves out, if `all` are the faults of the whole run.
    pub(super) fn but(seed: u64, all: &[Id], less: &Less) -> LeftOut {
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        let is_kept = |id| (less.kept.as_ref()).is_none_or(|kept| kept.contains(id));
        for (index, _) in all.iter().enumerate().filter(|(_, id)| !is_kept(*id)) {
            let number = index + 1;
            match ranges.last_mut() {
                Some(last) if *last.end() == index => *last = *last.start()..=number,
                _ => ranges.push(number..=number),
            }
        }
        LeftOut {
            seed,
            ranges,
            simpler: less.simpler.clone(),
        }
    }

    /// Returns the faults that its run keeps, and its simplifications. Runs the seed once, with all
    /// faults, to learn their numbers.
    ///
    /// # Panics
    ///
    /// If there are fewer faults than were named.
    pub(super) fn less(&self, run: &Run<'_>) -> Less {
        let setup = Setup {
            is_quiet: true,
            ..Setup::default()
        };
        let all = run(self.seed, setup).faults;
        let most = (self.ranges.iter())
            .map(|range| *range.end())
            .max()
            .unwrap_or(0);
        assert!(
            most <= all.len(),
            "polder::sim: POLDER_SIM={self} leaves out fault {most}, and the seed {:#x} has {}",
            self.seed,
            all.len()
        );
        let is_left_out = |number| self.ranges.iter().any(|range| range.contains(&number));
        let kept = (1..).zip(all).filter(|(number, _)| !is_left_out(*number));
        Less {
            kept: Some(Arc::new(kept.map(|(_, id)| id).collect())),
            simpler: self.simpler.clone(),
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = (self.ranges.iter()).map(|range| match (range.start(), range.end()) {
            (first, last) if first == last => format!("-{first}"),
            (first, last) => format!("-{first}..{last}"),
        });
        let mut parts: Vec<String> = ranges.collect();
        let simpler = &self.simpler;
        parts.extend(simpler.is_even.then(|| "mean".to_owned()));
        parts.extend(simpler.is_fifo.then(|| "fifo".to_owned()));
        let chosen = simpler.chosen.iter();
        parts.extend(chosen.map(|(nth, number)| format!("choose{nth}={number}")));
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
            "0x7:-3,mean,fifo,choose1=0,choose12=345",
        ] {
            assert_eq!(LeftOut::parse(text).unwrap().to_string(), text);
        }
        let decimal = LeftOut::parse("467:-1,-2,-4..8").unwrap();
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
            "7:choosex=1",
            "7:lifo",
        ] {
            assert_eq!(LeftOut::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_kept_is_left_out_by_its_number() {
        let all: Vec<Id> = (1..=9).map(|nth| (Kind::Loss, 0, 1, nth)).collect();
        let text = |kept: &[Id]| {
            let less = Less {
                kept: Some(Arc::new(kept.iter().copied().collect())),
                ..Less::default()
            };
            LeftOut::but(0x1d3, &all, &less).to_string()
        };
        assert_eq!(text(&[all[2], all[8]]), "0x1d3:-1..2,-4..8");
        assert_eq!(text(&[]), "0x1d3:-1..9");
    }
}

//! `POLDER_SIM`: a seed, and the numbers of faults that are left out, as reports print them.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::check::{Run, parse};
use super::kernel::Setup;
use super::kernel::faults::{Id, Kept};

/// A seed, and what its run leaves out: `0x1d3:-1,-2,-4..8`, ranges with both ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeftOut {
    pub(super) seed: u64,
    ranges: Vec<RangeInclusive<usize>>,
}

impl LeftOut {
    /// # Panics
    ///
    /// If the variable is set, and means nothing.
    pub(super) fn from_environment() -> Option<LeftOut> {
        let text = std::env::var("POLDER_SIM").ok()?;
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
        let list = list.split(',').filter(|it| !it.is_empty());
        Some(LeftOut {
            seed: parse(seed)?,
            ranges: list.map(range).collect::<Option<_>>()?,
        })
    }

    /// What is left out of `all` where only `kept` stays.
    pub(super) fn but(seed: u64, all: &[Id], kept: &BTreeSet<Id>) -> LeftOut {
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        for (index, _) in all.iter().enumerate().filter(|(_, it)| !kept.contains(it)) {
            let number = index + 1;
            match ranges.last_mut() {
                Some(last) if *last.end() == index => *last = *last.start()..=number,
                _ => ranges.push(number..=number),
            }
        }
        LeftOut { seed, ranges }
    }

    /// The faults that stay. The seed runs once, with all of them, to learn which has which number.
    ///
    /// # Panics
    ///
    /// If there are fewer than were named.
    pub(super) fn kept(&self, run: &Run<'_>) -> Kept {
        let setup = Setup {
            is_quiet: true,
            ..Setup::default()
        };
        let all = run(self.seed, setup).faults;
        let most = self.ranges.iter().map(|it| *it.end()).max().unwrap_or(0);
        assert!(
            most <= all.len(),
            "polder::sim: POLDER_SIM={self} leaves out fault {most}, and the seed {:#x} has {}",
            self.seed,
            all.len()
        );
        let all = all.iter().enumerate();
        let is_kept = |index: usize| !self.ranges.iter().any(|it| it.contains(&(index + 1)));
        Arc::new(
            all.filter_map(|(index, id)| is_kept(index).then_some(*id))
                .collect(),
        )
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:", self.seed)?;
        for (index, range) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}-{first}")?,
                (first, last) => write!(f, "{comma}-{first}..{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::kernel::faults::Kind;

    #[test]
    fn what_is_left_out_is_written_as_it_is_read() {
        for text in ["0x1d3:-1,-2..4,-9", "0x0:", "0x7:-1"] {
            assert_eq!(LeftOut::parse(text).unwrap().to_string(), text);
        }
        let decimal = LeftOut::parse("467:-1,-2,-4..8").unwrap();
        assert_eq!(decimal.seed, 0x1d3);
        assert_eq!(decimal.ranges, [1..=1, 2..=2, 4..=8]);
        for text in ["", ":", "7:1", "7:-", "7:-0", "7:-4..2", "7:-a", "seven"] {
            assert_eq!(LeftOut::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_kept_is_left_out_by_its_number() {
        let all: Vec<Id> = (1..=9).map(|nth| (Kind::Loss, 0, 1, nth)).collect();
        let kept = [all[2], all[8]].into_iter().collect();
        let text = LeftOut::but(0x1d3, &all, &kept).to_string();
        assert_eq!(text, "0x1d3:-1..2,-4..8");
        let none = LeftOut::but(1, &all, &BTreeSet::new()).to_string();
        assert_eq!(none, "0x1:-1..9");
    }
}

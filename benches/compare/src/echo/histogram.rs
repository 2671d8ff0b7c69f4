//! Counts of latencies. Buckets are one nanosecond wide at first, and from 64 ns on 1/64 of their
//! power of two (so a quantile is accurate to 1.6 %).

use std::time::Duration;

const BITS: u32 = 6;
const EACH: usize = 1 << BITS;

pub struct Histogram {
    counts: Vec<u32>,
    total: u64,
    most: u64,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram {
            counts: vec![0; EACH * (64 - BITS as usize + 1)],
            total: 0,
            most: 0,
        }
    }

    #[inline]
    pub fn add(&mut self, latency: Duration) {
        let nanos = latency.as_nanos() as u64;
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.most = self.most.max(nanos);
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
        self.most = 0;
    }

    /// Returns the number of latencies added.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the longest, in nanoseconds.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the quantile in nanoseconds: `share` of the latencies are at most this. Zero if
    /// there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (place, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                return value(place).min(self.most);
            }
        }
        self.most
    }
}

/// Returns the bucket: below 64 the number itself; then its power of two, and the six bits after
/// its first.
fn bucket(nanos: u64) -> usize {
    match nanos.checked_ilog2() {
        Some(power) if power >= BITS => {
            let shift = power - BITS;
            let within = (nanos >> shift) as usize & (EACH - 1);
            (shift as usize + 1) * EACH + within
        }
        _ => nanos as usize,
    }
}

/// Returns the largest number in the bucket.
fn value(bucket: usize) -> u64 {
    match (bucket / EACH).checked_sub(1) {
        None => bucket as u64,
        Some(shift) => {
            let first = ((EACH + bucket % EACH) as u64) << shift;
            first + ((1 << shift) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket holds what falls into it and is narrow.
    #[test]
    fn bucket_holds_its_values_and_is_narrow() {
        let mut before = 0;
        for nanos in (0..100_000).chain((100_000..1 << 40).step_by((1 << 27) + 12_345)) {
            let at = bucket(nanos);
            assert!(value(at) >= nanos, "{nanos}");
            assert!(value(at) <= nanos + nanos / 64, "{nanos}");
            assert!(at >= before, "{nanos}");
            before = at;
        }
        assert!(bucket(u64::MAX) < Histogram::new().counts.len());
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), 0);
        for nanos in 1..=1000 {
            histogram.add(Duration::from_nanos(nanos));
        }
        for (share, right) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let said = histogram.quantile(share) as f64;
            assert!((said / right - 1.0).abs() < 0.02, "{share}: {said}");
        }
        assert_eq!((histogram.most(), histogram.total()), (1000, 1000));
    }
}

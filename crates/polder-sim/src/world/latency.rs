//! [`Latency`]: how long a segment takes, as a distribution.
//!
//! A draw takes one number of a stream, for each distribution, so that a change of the distribution
//! shifts nothing. Integers only: floating-point logarithms differ between platforms.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::choice::Stream;
use super::seconds::{Seconds, nanos};

/// The time that a segment takes from one host to another, as a distribution.
///
/// ```
/// use polder_sim::Latency;
/// use std::time::Duration;
///
/// let near = Latency::fixed(Duration::from_micros(200));
/// let far = Latency::uniform(Duration::from_millis(20)..Duration::from_millis(80));
/// assert_ne!(near, far);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    least: u64,
    more: More,
}

/// The addition to the least latency, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum More {
    /// Uniform below this number, which is not zero.
    Uniform(u64),
    /// Exponential, with this mean.
    Exponential(u64),
    /// Such that the sum follows Pareto's distribution of index two.
    HeavyTail,
}

/// The limit of a heavy tail, as a multiple of the least latency. One segment in ten thousand takes
/// that long.
const TAIL: u64 = 100;

/// The limit of the least latency of a heavy tail that chaos draws, in nanoseconds. Ordered
/// messages wait for the slow ones, so the tail has to end within about a second.
const MAX_LEAST_LATENCY: u64 = 10_000_000;

/// The latencies that chaos draws from, in microseconds: from a machine in the same rack to one
/// overseas.
const STEPS: [u64; 16] = [
    50, 85, 145, 250, 420, 700, 1_200, 2_000, 3_500, 6_000, 10_000, 17_000, 29_000, 50_000, 85_000,
    145_000,
];

impl Latency {
    /// Returns a latency that is the same for each segment.
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.names().latency(Latency::fixed(Duration::from_millis(3)));
    ///     polder::net::resolve("test:1").await.unwrap();
    ///     assert_eq!(sim.now(), Duration::from_millis(3));
    /// });
    /// ```
    pub fn fixed(latency: Duration) -> Latency {
        Latency::new(nanos(latency), 1)
    }

    /// Returns a latency that is uniformly distributed over `range`. An empty range means its
    /// start.
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     let range = Duration::from_millis(10)..Duration::from_millis(20);
    ///     sim.names().latency(Latency::uniform(range.clone()));
    ///     polder::net::resolve("test:1").await.unwrap();
    ///     assert!(range.contains(&sim.now()));
    /// });
    /// ```
    pub fn uniform(range: Range<Duration>) -> Latency {
        let least = nanos(range.start);
        Latency::new(least, nanos(range.end).saturating_sub(least).max(1))
    }

    /// Returns a latency of at least `least`, and of `mean` on average. Most segments take little
    /// longer than the least; for one in a hundred the excess over it is nearly five times the
    /// average excess. (A `mean` below the least counts as the least.)
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let (least, mean) = (Duration::from_millis(5), Duration::from_millis(20));
    ///     sim.links().latency(Latency::exponential(least, mean));
    /// });
    /// ```
    pub fn exponential(least: Duration, mean: Duration) -> Latency {
        let least = nanos(least);
        Latency {
            least,
            more: More::Exponential(nanos(mean).saturating_sub(least)),
        }
    }

    /// Returns a latency of at least `least`, twice that on average, and occasionally far more: one
    /// segment in a hundred takes more than ten times as long, and one in ten thousand a hundred
    /// times, which is the maximum (Pareto's distribution, of index two). On a connection, later
    /// bytes wait for a slow segment.
    ///
    /// ```
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.links().latency(Latency::heavy_tail(Duration::from_millis(2)));
    /// });
    /// ```
    pub fn heavy_tail(least: Duration) -> Latency {
        Latency {
            least: nanos(least),
            more: More::HeavyTail,
        }
    }

    /// Creates a uniform latency of at least `least` nanoseconds. `span` is the difference between
    /// the maximum and the minimum, plus one.
    pub(super) const fn new(least: u64, span: u64) -> Latency {
        Latency {
            least,
            more: More::Uniform(span),
        }
    }

    /// Draws a latency of any distribution. Takes three numbers.
    pub(super) fn of_chaos(stream: &mut Stream) -> Latency {
        let mut step = || STEPS[stream.below(STEPS.len() as u64) as usize] * 1_000;
        let (least, more) = (step(), step());
        let (least, more) = match stream.below(4) {
            0 => (least, More::Uniform(1)),
            1 => (least, More::Uniform(more)),
            2 => (least, More::Exponential(more)),
            _ => (least.min(MAX_LEAST_LATENCY), More::HeavyTail),
        };
        Latency { least, more }
    }

    /// Draws a latency, or takes the number of the stream and returns the mean.
    #[inline]
    pub(crate) fn draw(self, stream: &mut Stream, is_mean: bool) -> u64 {
        let drawn = match self.more {
            More::Uniform(span) => self.least.saturating_add(stream.below(span)),
            More::Exponential(mean) => exponential(self.least, mean, stream.next()),
            More::HeavyTail => heavy_tail(self.least, stream.next()),
        };
        if is_mean { self.mean() } else { drawn }
    }

    pub(super) fn mean(self) -> u64 {
        let more = match self.more {
            More::Uniform(span) => span / 2,
            More::Exponential(mean) => mean,
            More::HeavyTail => self.least,
        };
        self.least.saturating_add(more)
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = Seconds(self.least);
        match self.more {
            More::Uniform(1) => write!(f, "{least}"),
            More::Uniform(span) => write!(f, "{least} to {}", Seconds(self.least + span - 1)),
            More::Exponential(_) => write!(f, "from {least}, {} on average", Seconds(self.mean())),
            More::HeavyTail => write!(f, "from {least}, with a heavy tail"),
        }
    }
}

/// Returns the latency for a number of a stream.
#[inline(never)]
fn exponential(least: u64, mean: u64, number: u64) -> u64 {
    // The natural logarithm of two, in parts of 2^32.
    const LN_2: u128 = 2_977_044_472;
    let logarithm = u128::from(minus_log2(number));
    // In two steps: the product of all three may have more than 128 bits.
    let more = (((u128::from(mean) * logarithm) >> FRACTION) * LN_2) >> 32;
    least.saturating_add(u64::try_from(more).unwrap_or(u64::MAX / 4))
}

/// Returns the latency for a number of a stream: the least one, divided by the square root of a
/// number that is uniform from 0 to 1.
#[inline(never)]
fn heavy_tail(least: u64, number: u64) -> u64 {
    let root = u128::from(number.isqrt().max(1));
    let drawn = u64::try_from((u128::from(least) << 32) / root);
    let most = least.saturating_mul(TAIL);
    drawn.unwrap_or(most).clamp(least, most)
}

/// The number of fractional bits of a logarithm: a precision of a nanosecond in four seconds.
const FRACTION: u32 = 32;

/// Returns minus the binary logarithm of a number in parts of 2^64. (Zero counts as one part.)
fn minus_log2(number: u64) -> u64 {
    let number = number.max(1);
    let zeros = number.leading_zeros();
    // From 1 to 2, in parts of 2^63. Squaring doubles the logarithm, so each round yields one bit.
    let mut mantissa = number << zeros;
    let mut bits = 0;
    for _ in 0..FRACTION {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let is_two = square >> 64 != 0;
        mantissa = (square >> u32::from(is_two)) as u64;
        bits = bits << 1 | u64::from(is_two);
    }
    (u64::from(zeros + 1) << FRACTION) - bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(latency: Latency) -> Vec<u64> {
        let mut stream = Stream::new(1, "test", 0, 0);
        let mut all: Vec<u64> = (0..100_000)
            .map(|_| latency.draw(&mut stream, false))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn logarithms_are_those_of_floating_point() {
        for number in [1, 2, 3, 1_000, 1 << 40, 0xdead_beef_dead_beef, u64::MAX] {
            let told = minus_log2(number) as f64 / (1_u64 << FRACTION) as f64;
            let right = 64.0 - (number as f64).log2();
            assert!((told - right).abs() < 1e-8, "{number}: {told}, {right}");
        }
    }

    /// Each distribution has the least the mean and the tail that it says.
    #[test]
    fn distributions_have_minimum_mean_and_tail() {
        let ms = Duration::from_millis;
        let (exponential, heavy) = (
            Latency::exponential(ms(5), ms(20)),
            Latency::heavy_tail(ms(5)),
        );
        let cases = [
            (Latency::uniform(ms(5)..ms(35)), 12_500_000, 34_700_000),
            // The median is ln 2 times the mean, the 99th percentile ln 100 times.
            (exponential, 15_397_000, 74_077_000),
            (heavy, 7_071_000, 50_000_000),
        ];
        for (latency, median, last_of_a_hundred) in cases {
            let all = draws(latency);
            let mean = all.iter().sum::<u64>() / all.len() as u64;
            let is_near = |one: u64, other: u64| one.abs_diff(other) < other / 20;
            assert!(all[0] >= 5_000_000 && all[0] < 5_010_000, "{latency}");
            assert!(is_near(mean, latency.mean()), "{latency}: {mean}");
            let is_uniform = matches!(latency.more, More::Uniform(_));
            let told = all[all.len() / 2];
            assert!(is_near(told, median) || is_uniform, "{latency}: {told}");
            let told = all[all.len() / 100 * 99];
            assert!(is_near(told, last_of_a_hundred), "{latency}: {told}");
            assert!(all[all.len() - 1] <= 5_000_000 * TAIL, "{latency}");
        }
    }

    #[test]
    fn nothing_overflows() {
        let most = Duration::MAX;
        for latency in [
            Latency::fixed(most),
            Latency::uniform(Duration::ZERO..most),
            Latency::exponential(Duration::ZERO, most),
            Latency::heavy_tail(most),
            Latency::heavy_tail(Duration::ZERO),
            Latency::exponential(most, Duration::ZERO),
        ] {
            draws(latency);
            assert!(!latency.to_string().is_empty());
            latency.mean();
        }
    }
}

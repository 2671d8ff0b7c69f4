//! Durations as text in seconds, by integer arithmetic: formatting floating-point numbers adds 17
//! KB to a program.

use std::fmt;
use std::time::{Duration, SystemTime};

/// Written with the digits of the precision, or with all. Further digits are truncated.
pub(super) struct Seconds(pub(super) Duration);

impl Seconds {
    pub(super) fn of_unix(time: SystemTime) -> Seconds {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        Seconds(since.unwrap_or_default())
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = 9;
        let mut fraction = self.0.subsec_nanos();
        let exact = f.precision().is_none();
        let wanted = f.precision().unwrap_or(0);
        while digits > wanted && (!exact || fraction % 10 == 0) {
            fraction /= 10;
            digits -= 1;
        }
        match digits {
            0 => write!(f, "{}", self.0.as_secs()),
            _ => write!(f, "{}.{fraction:0digits$}", self.0.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_the_digits_that_are_asked_for() {
        let text = |nanos, digits: Option<usize>| {
            let seconds = Seconds(Duration::from_nanos(nanos));
            digits.map_or_else(
                || seconds.to_string(),
                |digits| format!("{seconds:.digits$}"),
            )
        };
        assert_eq!(text(1_002_003_999, Some(3)), "1.002");
        assert_eq!(text(1_002_003_999, Some(6)), "1.002003");
        assert_eq!(text(1_002_003_999, None), "1.002003999");
        assert_eq!(text(2_000_000_000, Some(1)), "2.0");
        assert_eq!(text(59_960_000_000, Some(1)), "59.9");
        for nanos in [0, 1_000, 1_048_576_000, 250_000_000, 3_000_000_000] {
            let float = Duration::from_nanos(nanos).as_secs_f64();
            assert_eq!(text(nanos, None), float.to_string());
        }
    }
}

//! A line as it comes from the socket. Unknown fields are ignored, and missing ones are empty, so
//! that a program of another version can be looked at.
//!
//! A line is bounded: in its length, and in the number of elements of each kind. An element can be
//! as short as `{},` and takes some hundred bytes of memory, so the length alone would allow
//! hundreds of megabytes.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

use crate::text::Text;

/// The maximum length of a line. polder starts no further runtime in a line of 2 MiB, and one
/// runtime takes some 2 MiB at most.
pub const MAX_LINE: usize = 4 << 20;

/// The maximum number of runtimes, groups of a runtime and hints of a runtime that polder sends:
/// the constants of these names in `src/diagnostics/line.rs`.
pub const MAX_RUNTIMES: usize = 64;
pub const MAX_GROUPS: usize = 200;
pub const MAX_HINTS: usize = 20;

/// The maximum number of workers of a runtime: those of the pool, which `Builder::workers` limits,
/// and the main worker.
pub const MAX_WORKERS: usize = 1_024 + 1;

/// The number of buckets of a histogram: `BUCKETS` in `src/telemetry/counters.rs`.
pub const MAX_BUCKETS: usize = 22;

/// The only existing version.
const VERSION: u32 = 1;

#[derive(Clone, Default, Debug, Deserialize)]
pub struct Line {
    #[serde(rename = "polder_top")]
    version: u32,
    #[serde(default)]
    pub process: u64,
    #[serde(default)]
    pub program: Text,
    /// Unix time, in seconds.
    #[serde(default)]
    pub at: f64,
    /// The program's uptime since its first runtime, in seconds, like all durations.
    #[serde(default)]
    pub uptime: f64,
    /// The time until the next line.
    #[serde(default)]
    pub interval: f64,
    /// `None` if the program does not count them.
    #[serde(default)]
    pub open_sockets: Option<OpenSockets>,
    #[serde(default, deserialize_with = "limited")]
    pub runtimes: Vec<Runtime>,
    /// The number of runtimes that the program has left out.
    #[serde(default)]
    pub runtimes_left_out: u64,
}

/// The sockets of the process, by kind.
#[derive(Clone, Copy, Default, Debug, Deserialize)]
#[serde(default)]
pub struct OpenSockets {
    pub tcp_stream: u64,
    pub tcp_listener: u64,
    pub udp_socket: u64,
    pub unix_stream: u64,
    pub unix_listener: u64,
    pub unix_datagram: u64,
    #[serde(rename = "async")]
    pub asyncs: u64,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Runtime {
    pub number: u64,
    pub backend: Text,
    pub tasks: u64,
    pub spawned: u64,
    pub ended: u64,
    pub injected: u64,
    pub unreported: u64,
    /// The time since the last line; `None` in the first one.
    pub within: Option<f64>,
    #[serde(deserialize_with = "limited")]
    pub workers: Vec<Worker>,
    #[serde(deserialize_with = "limited")]
    pub groups: Vec<Group>,
    pub left_out: LeftOut,
    #[serde(deserialize_with = "limited")]
    pub hints: Vec<Hint>,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Worker {
    pub state: Text,
    pub since: Option<f64>,
    pub task: Option<u64>,
    pub spawned_at: Option<Text>,
    pub metrics: Metrics,
}

/// The metrics that are shown.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Metrics {
    pub tasks: u64,
    pub sources: u64,
    pub polls: u64,
    pub remote_wakes: u64,
    pub events: u64,
    pub timers_fired: u64,
    pub longest_queue: u64,
    pub poll_seconds: Histogram,
    pub timer_lateness_seconds: Histogram,
    /// The worker's CPU time, if the program sends it; otherwise it is estimated.
    pub cpu_seconds: Option<f64>,
}

/// The bucket `i` counts durations of up to 2^i microseconds that are longer than the limit of the
/// one before. The last one has no limit.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Histogram {
    pub sum: f64,
    #[serde(deserialize_with = "limited")]
    pub counts: Vec<u64>,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Group {
    pub spawned_at: Text,
    pub block_on: bool,
    pub name: Option<Text>,
    pub state: Text,
    pub waits_for: Text,
    pub tasks: u64,
    pub oldest: f64,
    pub idle: f64,
    pub last_polled: Option<f64>,
    pub recent_polls: Option<u64>,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    pub groups: u64,
    pub tasks: u64,
    pub hints: u64,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Hint {
    pub text: Text,
}

/// An element of a list of which polder sends at most `MAX`.
trait Limited {
    const MAX: usize;
    const NAME: &str;
}

impl Limited for Runtime {
    const MAX: usize = MAX_RUNTIMES;
    const NAME: &str = "runtimes";
}

impl Limited for Worker {
    const MAX: usize = MAX_WORKERS;
    const NAME: &str = "workers";
}

impl Limited for Group {
    const MAX: usize = MAX_GROUPS;
    const NAME: &str = "groups";
}

impl Limited for Hint {
    const MAX: usize = MAX_HINTS;
    const NAME: &str = "hints";
}

/// A bucket's count.
impl Limited for u64 {
    const MAX: usize = MAX_BUCKETS;
    const NAME: &str = "buckets";
}

/// Reads a list. One element more than the maximum is an error, before the rest is read.
fn limited<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Limited + Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct List<T>(PhantomData<T>);

    impl<'de, T: Limited + Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {} {}", T::MAX, T::NAME)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut elements = Vec::new();
            while elements.len() < T::MAX {
                match list.next_element()? {
                    Some(element) => elements.push(element),
                    None => return Ok(elements),
                }
            }
            match list.next_element::<IgnoredAny>()? {
                Some(_) => Err(A::Error::custom(format_args!(
                    "it has more than {} {}",
                    T::MAX,
                    T::NAME
                ))),
                None => Ok(elements),
            }
        }
    }

    deserializer.deserialize_seq(List(PhantomData))
}

/// The program's answer if it refuses, after which it closes.
#[derive(Deserialize)]
struct Refusal {
    error: Text,
}

impl Line {
    /// # Errors
    ///
    /// A message for the user, already escaped.
    pub fn parse(bytes: &[u8]) -> Result<Line, Text> {
        if let Ok(Refusal { error }) = serde_json::from_slice(bytes) {
            return Err(format!("the program says: {error}").into());
        }
        let line: Line = serde_json::from_slice(bytes)
            .map_err(|error| Text::from(format!("that is no line of polder's: {error}")))?;
        match line.version {
            VERSION => Ok(line),
            version => Err(format!(
                "the program tells things of version {version}, and this polder-top knows \
                 {VERSION}: take that of the same polder"
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unknown members are skipped, and missing ones are empty.
    #[test]
    fn unknown_skipped_missing_is_empty() {
        let text = br#"{"polder_top":1,"new":[{}],"runtimes":[{"number":3,"workers":[{}]}]}"#;
        let line = Line::parse(text).unwrap();
        assert_eq!(line.runtimes[0].number, 3);
        assert_eq!(line.runtimes[0].workers[0].metrics.polls, 0);
    }

    #[test]
    fn limits_are_those_of_polder() {
        let line = include_str!("../../../src/diagnostics/line.rs");
        let builder = include_str!("../../../src/runtime/builder.rs");
        let counters = include_str!("../../../src/telemetry/counters.rs");
        let limit = |source: &str, name: &str| -> usize {
            let (_, rest) = source
                .split_once(&format!("const {name}: usize = "))
                .unwrap();
            let digits = rest.split(';').next().unwrap().replace('_', "");
            digits.parse().unwrap()
        };
        assert_eq!(MAX_RUNTIMES, limit(line, "MAX_RUNTIMES"));
        assert_eq!(MAX_GROUPS, limit(line, "MAX_GROUPS"));
        assert_eq!(MAX_HINTS, limit(line, "MAX_HINTS"));
        assert_eq!(MAX_WORKERS, limit(builder, "MAX_WORKERS") + 1);
        assert_eq!(MAX_BUCKETS, limit(counters, "BUCKETS"));
    }

    /// As many as there may be are read and one more is an error.
    #[test]
    fn counts_up_to_limit_one_more_is_error() {
        fn text(key: &str, element: &str, count: usize) -> String {
            format!("{{\"{key}\":[{}]}}", vec![element; count].join(","))
        }
        for (key, max) in [
            ("workers", MAX_WORKERS),
            ("groups", MAX_GROUPS),
            ("hints", MAX_HINTS),
        ] {
            let text = |count| text(key, "{}", count);
            assert!(serde_json::from_str::<Runtime>(&text(max)).is_ok());
            let error = serde_json::from_str::<Runtime>(&text(max + 1)).unwrap_err();
            let words = format!("more than {max} {key}");
            assert!(error.to_string().contains(&words), "{error}");
        }
        let counts = |count| text("counts", "0", count);
        assert!(serde_json::from_str::<Histogram>(&counts(MAX_BUCKETS)).is_ok());
        assert!(serde_json::from_str::<Histogram>(&counts(MAX_BUCKETS + 1)).is_err());
    }

    #[test]
    fn what_is_no_line_is_an_error_in_words() {
        let deep = "[".repeat(100_000);
        for (text, words) in [
            ("", "no line of polder's"),
            ("{}", "no line of polder's"),
            (&deep, "no line of polder's"),
            ("\u{1b}[2J", "no line of polder's"),
            (r#"{"polder_top":1,"runtimes":{}}"#, "no line of polder's"),
            (r#"{"polder_top":1,"at":1e999}"#, "no line of polder's"),
            (r#"{"polder_top":2}"#, "version 2"),
            (r#"{"error":"too\u001bmany"}"#, r"says: too\u{1b}many"),
        ] {
            let error = Line::parse(text.as_bytes()).unwrap_err();
            assert!(error.as_str().contains(words), "{error}");
            assert!(!error.as_str().contains('\u{1b}'));
        }
    }
}

//! A line as it comes from the socket. What is not known is passed over, and what is missing is
//! empty, so that a program of another version can be looked at.

use serde::Deserialize;

use crate::text::Text;

/// A longer line is none of polder's: one has some hundred kilobytes at most.
pub const MAX_LINE: usize = 4 << 20;

/// The only version that there is.
const VERSION: u32 = 1;

#[derive(Clone, Default, Debug, Deserialize)]
pub struct Line {
    #[serde(rename = "polder_top")]
    version: u32,
    #[serde(default)]
    pub process: u64,
    #[serde(default)]
    pub program: Text,
    /// In seconds, of Unix time.
    #[serde(default)]
    pub at: f64,
    /// Of the program, from its first runtime on, in seconds. So are all durations.
    #[serde(default)]
    pub uptime: f64,
    /// The next line comes after so long.
    #[serde(default)]
    pub interval: f64,
    #[serde(default)]
    pub runtimes: Vec<Runtime>,
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
    pub untold: u64,
    /// How long before there was the last line; not in the first one.
    pub within: Option<f64>,
    pub workers: Vec<Worker>,
    pub groups: Vec<Group>,
    pub left_out: LeftOut,
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

/// Those that are shown.
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
    /// A program may tell how long it was at work; otherwise that is estimated.
    pub cpu_seconds: Option<f64>,
}

/// The bucket `i` counts what took up to 2^i microseconds, and longer than the one before says. The
/// last one has no limit.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub struct Histogram {
    pub sum: f64,
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

/// What the program says instead, and then closes.
#[derive(Deserialize)]
struct Refusal {
    error: Text,
}

impl Line {
    /// # Errors
    ///
    /// Words for the user, in which nothing has to be escaped any more.
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

    #[test]
    fn what_is_unknown_is_passed_over_and_what_is_missing_is_empty() {
        let text = br#"{"polder_top":1,"new":[{}],"runtimes":[{"number":3,"workers":[{}]}]}"#;
        let line = Line::parse(text).unwrap();
        assert_eq!(line.runtimes[0].number, 3);
        assert_eq!(line.runtimes[0].workers[0].metrics.polls, 0);
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

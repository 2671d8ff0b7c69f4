//! [`Event`]: an event, for functions that observe a run.

use std::fmt;
use std::time::Duration;

use super::seconds::{Seconds, nanos};

/// An event of a world, passed to the function given to [`Sim::on_event`](crate::Sim::on_event).
/// Its text is a line of a report's last events.
///
/// ```
/// polder_sim::check(0..1, |sim| async move {
///     sim.on_event(|event| {
///         assert!(event.to_string().ends_with(&format!("{}: {}", event.host, event.words)));
///     });
///     sim.host("store").start(|| async {}).finished().await;
/// });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The time since the world began.
    pub time: Duration,
    /// The name of the host on which it has happened.
    pub host: String,
    /// Its description: `task 7 runs, spawned at src/store.rs:12:5`, `data 1+64 came from client`.
    pub words: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}",
            Seconds(nanos(self.time)),
            self.host,
            self.words
        )
    }
}

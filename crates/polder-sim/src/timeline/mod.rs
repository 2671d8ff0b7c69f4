//! Draws what has happened on some hosts, such as those of a simulation that has failed.
//!
//! A [`Timeline`] has events of hosts, messages between them, and faults. It is drawn in two ways:
//! as a page with a diagram, by [`Timeline::html`], and as a trace for <https://ui.perfetto.dev>,
//! by [`Timeline::json`]. `polder` draws the failures of its simulated worlds; nothing here depends
//! on it.
//!
//! ```
//! use polder_sim::timeline::{Band, Event, Fault, Kind, Message, Timeline};
//!
//! let event = |at, host, kind, words: &str| Event { at, host, kind, words: words.into() };
//! let timeline = Timeline {
//!     head: "the server has no answer for its client".into(),
//!     hosts: vec!["server".into(), "client".into()],
//!     events: vec![
//!         event(2_000_000, 0, Kind::Begin(Band::Cut(1)), "cut off from client"),
//!         event(9_000_000, 1, Kind::Labelled, "gives up"),
//!     ],
//!     messages: vec![Message {
//!         sent: 1_000_000,
//!         at: 3_000_000,
//!         from: 1,
//!         to: 0,
//!         words: "a question".into(),
//!         is_lost: true,
//!     }],
//!     faults: vec![Fault {
//!         number: 1,
//!         at: 2_000_000,
//!         host: 0,
//!         lasts: None,
//!         words: "cut server|client".into(),
//!     }],
//!     end: 9_000_000,
//!     last: 9_000_000,
//!     ..Timeline::default()
//! };
//! assert!(timeline.html("no_answer").contains("a question client → server"));
//! assert!(timeline.json().contains("a question to server is lost"));
//! ```
//!
//! Times are nanoseconds since the beginning. Hosts are indices of [`Timeline::hosts`]; any other
//! number is "nobody". Text is escaped, so names and messages may be a program's own. Only integers
//! are used, so a timeline has the same drawing on every machine.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod contents;
mod page;
mod perfetto;
mod slider;
#[cfg(test)]
mod tests;
mod text;

pub use contents::{Band, Event, Fault, Kind, Message, Moment, Timeline};

impl Timeline {
    /// Returns a page with this title: one file, which needs no network.
    ///
    /// Time goes down, hosts are lanes, and messages are slanted lines; those that are lost end in
    /// a cross. The last moments before [`end`](Self::end) come first, then the faults, then the
    /// whole. Time is not drawn to scale: periods without events are short. At most 40 hosts and
    /// 2,000 messages and events are drawn, the latest ones.
    ///
    /// If there are [moments](Self::moments), the page has a slider, which moves a line through the
    /// diagrams and shows the hosts at its time. So does a click in a diagram, or a link that ends
    /// in `#t=1500000`, in nanoseconds. Only this needs a script: the page has the moments as a
    /// list too. These are at most 500, the latest ones, and 10,000 characters of each.
    ///
    /// ```
    /// let page = polder_sim::timeline::Timeline::default().html("<nothing>");
    /// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<h1>&lt;nothing&gt;</h1>"));
    /// ```
    pub fn html(&self, title: &str) -> String {
        page::html(self, title)
    }

    /// Returns the trace in the format of Perfetto and of Chrome's `about:tracing`: a process for
    /// each host, a track for each task, flows for messages. It has everything, however much.
    ///
    /// ```
    /// let json = polder_sim::timeline::Timeline::default().json();
    /// assert!(json.starts_with("{\"displayTimeUnit\":\"ns\",\"traceEvents\":["));
    /// ```
    pub fn json(&self) -> String {
        perfetto::json(self)
    }
}

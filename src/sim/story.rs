//! The story of a failed run: what was unusual in it, in the order of time, in a few lines.
//!
//! It is told of the smallest run that fails, in which little is unusual. The last events of a
//! report have everything that happened at the end; the story has what led there.

use std::fmt::Write;
use std::mem::discriminant;

use super::picture::Scene;
use crate::world::trace::{Trace, What};

/// Maximum number of lines: the last ones, as the reader asks why it has failed then.
const MAX_LINES: usize = 12;

/// Returns the story of a run, or nothing if nothing was unusual.
pub(super) fn tell(scene: &Scene, is_shrunk: bool) -> String {
    let events = scene.recording.events.iter();
    let unusual = events.filter(|(at, _, what)| *at <= scene.end && is_unusual(*at, *what));
    let unusual: Vec<_> = unusual.collect();
    // A cut between two halves is an event of each pair of hosts.
    let alike = unusual.chunk_by(|(at, _, what), (next, _, other)| {
        at == next && discriminant(what) == discriminant(other)
    });
    let lines: Vec<String> = alike
        .map(|group| {
            let text = Trace::describe([group[0]], |host| &*scene.hosts[host]);
            match group.len() - 1 {
                0 => text,
                more => format!("{}, and {more} more at once\n", text.trim_end()),
            }
        })
        .collect();
    let which = if is_shrunk { " in the shrunk run" } else { "" };
    let mut text = format!("  what led there{which}:\n");
    match lines.len().checked_sub(MAX_LINES) {
        _ if lines.is_empty() => return String::new(),
        None | Some(0) => {}
        Some(before) => {
            let _ = writeln!(text, "    … {before} more");
        }
    }
    text + &lines[lines.len().saturating_sub(MAX_LINES)..].concat()
}

/// Returns whether an event is one of those that a story tells.
fn is_unusual(at: u64, what: What) -> bool {
    match what {
        What::Started => at > 0,
        What::Ended
        | What::Killed
        | What::PoweredOff
        | What::Paused
        | What::Resumed
        | What::Lost(..)
        | What::DatagramLost(..)
        | What::TimedOut
        | What::Cut(_)
        | What::Healed(_)
        | What::Held(_)
        | What::Released(_)
        | What::Slow(_)
        | What::Fast(_)
        | What::Unreachable(_)
        | What::Reset(_)
        | What::Quiet
        | What::Renamed
        | What::ClockSet(..)
        | What::WallStepped(_)
        | What::Failed
        | What::Panicked
        | What::Signal(_)
        | What::Unsynced(..)
        | What::DiskFailed => true,
        What::Synced(_, fails) => fails,
        What::Polled(..)
        | What::Connect(..)
        | What::Accepted(..)
        | What::Segment(..)
        | What::Retransmit(..)
        | What::Name(_)
        | What::Chosen(_)
        | What::Datagram(..)
        | What::Local(..)
        | What::Blocking(_)
        | What::Written(..)
        | What::Named(_) => false,
    }
}

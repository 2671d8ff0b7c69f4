//! The narrative of a failed run: what was unusual in it, in the order of time, in a few lines.
//!
//! It is told of the smallest run that fails, in which little is unusual. The last events of a
//! report have everything that happened at the end; the narrative has what led there.

use std::fmt::Write;
use std::mem::discriminant;

use super::picture::Scene;
use crate::world::trace::Trace;

/// Maximum number of lines: the last ones, as the reader asks why it has failed then.
const MAX_LINES: usize = 12;

/// Returns the narrative of a run, or nothing if nothing was unusual.
pub(super) fn tell(scene: &Scene, is_shrunk: bool) -> String {
    let unusual = scene.recording.unusual.iter();
    let unusual: Vec<_> = unusual.filter(|(at, ..)| *at <= scene.end).collect();
    // A cut between two halves is an event of each pair of hosts.
    let alike = unusual.chunk_by(|(at, _, what), (next, _, other)| {
        at == next && discriminant(what) == discriminant(other)
    });
    let lines: Vec<String> = alike
        .map(|group| {
            let text = Trace::describe([group[0]], |host| scene.name(host));
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

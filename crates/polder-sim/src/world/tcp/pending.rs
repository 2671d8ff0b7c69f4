//! [`Tcp`]: what TCP has to do for the sockets of a world that no event does.

use std::collections::VecDeque;

use super::segment::SpareSegments;

/// What TCP has to do for its sockets.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    pub(super) spare: SpareSegments,
    /// The connections in TIME_WAIT, and in FIN_WAIT_2 without a user, each with the end of it, in
    /// that order.
    pub(super) ended: VecDeque<(u64, u32)>,
    /// The sockets that may owe their peer an acknowledgement.
    pub(super) owing: Vec<u32>,
    /// Whether the queue of events also has those that could be left out of it: see "What is no
    /// event" in `tcp`.
    #[cfg(test)]
    pub(super) has_all_events: bool,
}

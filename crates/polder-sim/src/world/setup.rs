//! [`Setup`]: how a world begins, and what its run is for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::faults::FaultFilter;
use super::forks::Forks;
use super::trace::Comparison;

/// The simplifications of a run, which override the seed and the test.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Simplification {
    /// Whether each segment takes the mean of its link's latency.
    pub(crate) is_even: bool,
    /// Whether ready workers and tasks run first in, first out.
    pub(crate) is_fifo: bool,
    /// Values used in place of the test's own choices, by the choice's number, counted from one.
    pub(crate) chosen: BTreeMap<u64, u64>,
}

/// How a run differs from that of its seed alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RunConfig {
    pub(crate) forks: Arc<Forks>,
    /// The faults that may happen, if others are left out.
    pub(crate) kept: Option<FaultFilter>,
    pub(crate) simplification: Simplification,
    /// The time at which the run is stopped, to be looked at.
    pub(crate) until: Option<u64>,
    /// The first choices of a run that is one of all: see [`schedule`](super::schedule).
    pub(crate) chosen: Arc<[u32]>,
}

/// The configuration of a world.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) comparison: Comparison,
    pub(crate) config: RunConfig,
    /// Whether the run notes its features.
    pub(crate) covers: bool,
    /// The number of events, if more of them is kept, for a picture.
    pub(crate) records: Option<u64>,
    /// Whether panics are not printed, as the same one was printed before.
    pub(crate) is_quiet: bool,
    /// Whether each event is printed as it happens.
    pub(crate) logs: bool,
    /// The failure that this run reproduces, reported if the run never ends.
    pub(crate) found: Option<Arc<str>>,
}

impl Setup {
    /// Returns the setup of a run that prints no panics.
    pub(crate) fn quiet(config: RunConfig) -> Setup {
        Setup {
            is_quiet: true,
            config,
            ..Setup::default()
        }
    }
}

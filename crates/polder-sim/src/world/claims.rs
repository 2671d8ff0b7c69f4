//! The claims of a program, `always!` and `sometimes!`: whether they are checked here, and which
//! conditions of `sometimes!` were met. And its own faults, `buggify!`.

use std::collections::BTreeMap;
use std::panic::Location;

use super::choice::Stream;
use super::fact::digest;
use super::faults::{FIRST_WILD, Kind, MAX_LISTED};
use super::report::fail_as;
use super::with;

/// Returns whether the program's claims are checked at this point: not in destructors that would
/// not run on a real machine.
pub(crate) fn checks_here() -> bool {
    with(|kernel| !kernel.core.report.panics.drops_killed) == Some(true)
}

/// Fails the run because a claim of `always!` does not hold.
#[cold]
pub(crate) fn does_not_hold(name: &str, site: &Location<'_>) {
    let host = with(|kernel| kernel.core.current_host().to_owned()).unwrap_or_default();
    // The site is part of the cause: the same name at another site is another cause.
    let cause = format!("always {name:?} at {site}");
    let reason = || format!("always {name:?}: it does not hold on {host}, {site}");
    fail_as(Some(cause), None, reason);
}

/// Returns whether a condition of `sometimes!` still has to be evaluated.
pub(crate) fn asks_for(name: &str) -> bool {
    let is_open = |claims: &mut BTreeMap<String, bool>| match claims.get(name) {
        Some(was_true) => !was_true,
        None => {
            claims.insert(name.to_owned(), false);
            true
        }
    };
    with(|kernel| is_open(&mut kernel.core.report.claims)) == Some(true)
}

/// Notes whether a condition was met, for tests that require it to be met in some world.
pub(crate) fn note_sometimes(name: &str, is_so: bool) {
    with(|kernel| {
        let claims = &mut kernel.core.report.claims;
        *claims.entry(name.to_owned()).or_default() |= is_so;
        kernel.core.cover_state(name, is_so.into());
    });
}

/// One fault of a program's own.
struct Site {
    /// Whether it is on for this seed.
    is_on: bool,
    /// For each host the stream, and how often it was asked for.
    hosts: BTreeMap<usize, (Stream, u64)>,
}

/// The faults of a program's own.
#[derive(Default)]
pub(crate) struct Sites {
    /// By name.
    list: BTreeMap<String, Site>,
    /// Whether none strikes any more.
    pub(super) are_off: bool,
}

/// The inverse of two probabilities, that a site is on and that it strikes then: those of
/// FoundationDB's `BUGGIFY`.
const ONE_IN: u64 = 4;

/// Returns whether the fault of this name strikes: see [`buggify!`](polder::buggify).
pub(crate) fn buggify(name: &str) -> bool {
    let strikes = with(|kernel| {
        let core = &mut kernel.core;
        let host = core.processes.current_host()?;
        let report = &mut core.report;
        if core.seed < FIRST_WILD || report.sites.are_off {
            return None;
        }
        let sites = &mut report.sites.list;
        if !sites.contains_key(name) {
            let is_on = Stream::new(core.seed, name, 0, 0).below(ONE_IN) == 0;
            let hosts = BTreeMap::new();
            sites.insert(name.to_owned(), Site { is_on, hosts });
        }
        let site = sites.get_mut(name)?;
        let stream = || (Stream::new(core.seed, name, host, 1), 0);
        let (stream, nth) = site.hosts.entry(host).or_insert_with(stream);
        *nth += 1;
        if !site.is_on || stream.below(ONE_IN) != 0 {
            return None;
        }
        // The identity has a number of the name, which is the same in each run.
        let of_name = digest(0, name.as_bytes()) as u32;
        let id = (Kind::Program, host as u32, of_name, *nth);
        let now = core.time.now();
        // A fault that is not listed cannot be left out, so there is none.
        let is_listed = core.faults.count(Kind::Program) < MAX_LISTED;
        Some(is_listed && core.faults.allow_one(id, now, || name.to_owned()))
    });
    strikes.flatten() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, begin};
    use super::*;

    #[test]
    fn a_condition_is_evaluated_until_it_was_true() {
        let _world = begin(1, Setup::default());
        assert!(asks_for("late") && asks_for("late"));
        note_sometimes("late", false);
        assert!(asks_for("late"));
        note_sometimes("late", true);
        note_sometimes("late", false);
        assert!(!asks_for("late"));
        let claims = with(|kernel| kernel.core.report.claims.clone());
        assert_eq!(claims, Some([("late".into(), true)].into()));
    }
}

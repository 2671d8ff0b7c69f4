//! The report of a deadlock: a `block_on` within a task, waiting for a task that only the blocked
//! worker can run. It names both places, on standard error.
//!
//! **Why it does not panic.** The future may wait for something else too, such as a channel that
//! another thread sends to, which cannot be seen. So it is reported only after [`DEADLOCK_AFTER`]
//! without any progress, and if the nested runtime has neither tasks nor timers nor sources that
//! could end the wait.

use std::cell::RefCell;
use std::panic::{Location, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::header::Header;
use super::local::Local;
use crate::clock::now;
use crate::telemetry::{MAIN_FUTURE, WaitReason};

/// How long a nested drive waits without progress before it checks for a deadlock.
pub(super) const DEADLOCK_AFTER: Duration = Duration::from_secs(1);

/// Of a worker that may be driven within another one.
#[derive(Default)]
pub(super) struct Nested(RefCell<Option<Outer>>);

struct Outer {
    /// The blocked worker further up this thread's stack.
    local: Rc<Local>,
    /// The wait reason that has lasted for [`DEADLOCK_AFTER`] already.
    checked: u64,
}

/// A wait of a nested drive that may be a deadlock.
pub(super) struct DeadlockCheck {
    start: Instant,
    reason: u64,
}

impl Nested {
    /// Begins a drive of the worker of `local` within one of `outer`, and returns what restores the
    /// state before. `None` for a drive that is not nested, and within the same worker, which runs
    /// its tasks meanwhile.
    pub(super) fn enter(
        &self,
        local: &Rc<Local>,
        outer: Option<&Rc<Local>>,
    ) -> Option<impl FnMut() + '_> {
        let outer = outer.filter(|outer| !Rc::ptr_eq(outer, local))?;
        let outer = Outer {
            local: outer.clone(),
            checked: WaitReason::NOTHING,
        };
        let mut before = self.0.replace(Some(outer));
        Some(move || drop(self.0.replace(before.take())))
    }

    /// Begins a check if a nested drive's future waits for a task that was not checked.
    #[inline]
    pub(super) fn begin_deadlock_check(&self, local: &Local) -> Option<DeadlockCheck> {
        let checked = self.0.borrow().as_ref()?.checked;
        let reason = local.mains.borrow().last()?.wait_reason();
        WaitReason::task_of(reason).filter(|_| reason != checked)?;
        Some(DeadlockCheck {
            start: now(),
            reason,
        })
    }

    /// Called after a wait without progress: reports it if it has lasted for [`DEADLOCK_AFTER`],
    /// and nothing of the nested runtime `may_end` it.
    pub(super) fn end_deadlock_check(
        &self,
        check: DeadlockCheck,
        local: &Local,
        may_end: impl FnOnce() -> bool,
    ) {
        if now().saturating_duration_since(check.start) < DEADLOCK_AFTER {
            return;
        }
        let mut outer = self.0.borrow_mut();
        let (Some(outer), Some(task)) = (&mut *outer, WaitReason::task_of(check.reason)) else {
            return;
        };
        outer.checked = check.reason;
        let place = local.mains.borrow().last().map(|main| main.site);
        if let (Some(place), false) = (place, may_end()) {
            outer.report(task, place);
        }
    }
}

impl Outer {
    #[cold]
    fn report(&self, id: u64, place: &Location<'_>) {
        let outer = &*self.local;
        let mut found = None;
        let mut look = |header: &Header| {
            if header.id.as_u64() == id && !header.is_stealable() {
                found = Some(header.site);
            }
        };
        (outer.owned.borrow().values()).for_each(|task| look(task.header()));
        outer.for_each_new(look);
        let Some(site) = found else {
            return;
        };
        let within = match outer.counters.task() {
            Some((MAIN_FUTURE, site)) => format!("in the `block_on` at {site}"),
            Some((task, site)) => format!("in task {task}, spawned at {site}"),
            None => "in foreign code".to_owned(),
        };
        let worker = outer.index;
        // A failure to write to standard error panics, and is ignored.
        let _ = catch_unwind(|| {
            eprintln!(
                "polder: the `block_on` at {place} waits for task {id}, spawned at {site}, which \
                 only worker {worker} can run. That is blocked by this call, {within}: `.await` \
                 the task there"
            );
        });
    }
}

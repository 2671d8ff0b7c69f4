//! The report of a deadlock: a `block_on` within a task, waiting for a task that only the blocked
//! worker can run. It names both places, on standard error.
//!
//! **Why it does not panic.** The future may wait for something else too, such as a channel that
//! another thread sends to, which cannot be seen. So it is reported only after [`PATIENCE`] without
//! any progress, and if the nested runtime has neither tasks nor timers nor sources that could end
//! the wait.

use std::panic::{Location, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::worker::Worker;
use super::{Header, Local};
use crate::clock::now;
use crate::sync::OnDrop;
use crate::telemetry::{MAIN_FUTURE, WaitReason};

const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Nested {
    /// The blocked worker further up this thread's stack.
    outer: Rc<Local>,
    /// The wait reason that has lasted for [`PATIENCE`] already.
    checked: u64,
}

pub(super) struct Patience {
    start: Instant,
    reason: u64,
}

impl Patience {
    pub(super) fn timeout(&self) -> Duration {
        PATIENCE
    }
}

impl Nested {
    /// Begins a drive of `worker` within one of `outer`, until the result is dropped. `None` for a
    /// drive that is not nested, and within the same worker, which runs its tasks meanwhile.
    pub(super) fn enter<'a>(
        worker: &'a Worker,
        outer: Option<&Rc<Local>>,
    ) -> Option<impl Drop + 'a> {
        let outer = outer.filter(|outer| !Rc::ptr_eq(outer, &worker.local))?;
        let nested = Nested {
            outer: outer.clone(),
            checked: WaitReason::NOTHING,
        };
        let mut before = worker.nested.replace(Some(nested));
        let was_plain = worker.is_plain.replace(false);
        Some(OnDrop(move || {
            drop(worker.nested.replace(before.take()));
            let is_plain = was_plain && !worker.embedded.get() && !worker.is_broken.get();
            worker.is_plain.set(is_plain);
        }))
    }

    #[cold]
    fn report(&self, id: u64, place: &Location<'_>) {
        let outer = &*self.outer;
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

impl Worker {
    /// How long a nested drive may sleep, if its future waits for a task that was not checked.
    pub(super) fn patience(&self) -> Option<Patience> {
        let nested = self.nested.borrow();
        let checked = nested.as_ref()?.checked;
        let reason = self.local.mains.borrow().last()?.wait_reason();
        WaitReason::task_of(reason).filter(|_| reason != checked)?;
        Some(Patience {
            start: now(),
            reason,
        })
    }

    /// Called before the worker has collected anything.
    pub(super) fn end_patience(&self, patience: Patience, stay_awake: &dyn Fn() -> bool) {
        let has_progress = stay_awake() || self.local.has_work() || self.needs_collect.get();
        if has_progress || now().saturating_duration_since(patience.start) < PATIENCE {
            return;
        }
        let mut nested = self.nested.borrow_mut();
        let (Some(nested), Some(task)) = (&mut *nested, WaitReason::task_of(patience.reason))
        else {
            return;
        };
        nested.checked = patience.reason;
        let may_end = self.shared().live_tasks() > 0
            || self.driver.has_timers()
            || self.reactor.has_sources();
        let place = self.local.mains.borrow().last().map(|main| main.site);
        if let (Some(place), false) = (place, may_end) {
            nested.report(task, place);
        }
    }
}

//! The scheduler's side of a simulated world: the world drives each worker, one task per turn, and
//! chooses which. Apart from that, the turn is the same as that of any other worker.
//!
//! Everything here runs on the world's thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use super::local::{Chooser, Local, NEXTS_IN_ROW};
use super::shared::Shared;
use super::worker::Worker;
use super::{Meta, Runnable};
use crate::world::{self, MAX_PASSED_OVER};

/// The order of one worker's tasks, as chosen by the world.
#[derive(Debug, Default)]
struct ByChoice {
    /// The number of consecutive times that the yielded tasks were kept back behind the others.
    left_behind: Cell<u32>,
    /// Whether the queue of movable tasks, of a pool worker's two queues, is the one with its first
    /// task next in turn.
    movable_first: Cell<bool>,
}

impl Chooser for ByChoice {
    fn next(&self, local: &Local) -> Option<Runnable> {
        if local.is_pool_worker() {
            self.next_of_pool(local)
        } else {
            let mut ready = local.ready.borrow_mut();
            let place = match ready.len() {
                0 | 1 => 0,
                several => world::choose_task(several, ready.iter().map(id)),
            };
            ready.remove(place)
        }
    }

    /// (A worker that has taken a task may be slow to poll it.)
    fn injected(&self, shared: &Shared) -> Option<Runnable> {
        shared.take_injected_by(|injected| match injected.len() {
            0 | 1 => 0,
            several => world::choose_injected(several, injected.iter().map(id)),
        })
    }

    fn polls(&self, task: &Meta) {
        world::note_poll(task.id().as_u64(), task.site());
    }

    fn release_yielded(&self, local: &Local) {
        let count = self.left_behind.get() + 1;
        let leaves = local.has_ready() && count < MAX_PASSED_OVER;
        self.left_behind.set(if leaves { count } else { 0 });
        if leaves {
            return;
        }
        // Movable ones are queued where other workers find them.
        for runnable in local.yielded.borrow_mut().drain(..) {
            if runnable.metadata().is_movable() {
                local.push_movable(runnable)
            } else {
                local.push(runnable)
            }
        }
    }
}

impl ByChoice {
    /// The first task of one of the queues is next in turn, and stays so until it was taken: so no
    /// queue is passed over for longer than the world's order permits.
    fn next_of_pool(&self, local: &Local) -> Option<Runnable> {
        let stay_first = !self.movable_first.get();
        let queue = &local.pool().queue;
        // No task can be taken from the middle of the queue, so all are taken out, and the others
        // go back.
        let mut movable = VecDeque::new();
        let has_next = queue.has_next();
        let is_next_first = local.nexts_in_row.get() < NEXTS_IN_ROW;
        if is_next_first {
            movable.extend(queue.pop_next());
        }
        movable.extend(std::iter::from_fn(|| queue.pop()));
        if !is_next_first {
            movable.extend(queue.pop_next());
        }
        let next = has_next.then(|| if is_next_first { 0 } else { movable.len() - 1 });
        let mut ready = local.ready.borrow_mut();
        let place = match ready.len() + movable.len() {
            0 | 1 => 0,
            several => {
                let (first, second) = if stay_first {
                    (&*ready, &movable)
                } else {
                    (&movable, &*ready)
                };
                world::choose_task(several, first.iter().chain(second).map(id))
            }
        };
        if place == 0 {
            self.movable_first.set(stay_first);
        }
        let before = if stay_first {
            ready.len()
        } else {
            movable.len()
        };
        let (is_movable, place) = if place < before {
            (!stay_first, place)
        } else {
            (stay_first, place - before)
        };
        if !is_movable {
            let chosen = ready.remove(place);
            put_back(local, movable, next);
            return chosen;
        }
        let is_next = next == Some(place);
        let in_row = if is_next && is_next_first {
            local.nexts_in_row.get() + 1
        } else {
            0
        };
        local.nexts_in_row.set(in_row);
        let chosen = movable.remove(place);
        // The next task comes before or after all others.
        let left = next
            .filter(|_| !is_next)
            .map(|next| if next > place { next - 1 } else { next });
        put_back(local, movable, left);
        chosen
    }
}

/// Puts movable tasks back into the queue that they came from, one of them as the next.
fn put_back(local: &Local, movable: VecDeque<Runnable>, next: Option<usize>) {
    let queue = &local.pool().queue;
    for (place, runnable) in movable.into_iter().enumerate() {
        let has_room = if Some(place) == next {
            queue.push_next(runnable).is_none()
        } else {
            queue.push(runnable).is_ok()
        };
        debug_assert!(has_room, "it was there before");
    }
}

fn id(runnable: &Runnable) -> u64 {
    runnable.metadata().id().as_u64()
}

impl Worker {
    /// Makes this a worker of a simulated process: from now on its world drives it, with
    /// [`turn_at`](Worker::turn_at), and chooses the next task.
    pub(crate) fn simulate(&self) {
        self.local.let_choose(Box::<ByChoice>::default());
        if self.local.is_pool_worker() {
            self.wait_as_pool_worker();
        }
        self.embed();
    }

    /// Runs a turn of one task, at the time `tick`.
    pub(crate) fn turn_at(&self, tick: u32) {
        self.local.counters.set_known_tick(tick);
        self.turn(Some(Duration::ZERO), 1);
    }
}

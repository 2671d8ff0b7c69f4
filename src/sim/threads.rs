//! The threads of worlds. Each world has a new one: what a program keeps in thread-locals is new
//! each time.
//!
//! Whoever wants a world run starts its thread and waits until that has ended, which is one wake a
//! world. That a world may be stuck is another's concern, see [`stuck`](super::stuck): the
//! watchdog's, which `check` has for all of its worlds. A call of `run` starts none: a thread for
//! one world more costs more than the wake that it would save, since whoever waits there can look
//! after the world meanwhile, and is woken first when it has ended.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};

use super::check::Report;
use super::kernel::progress::Progress;
use super::kernel::{self, Setup};
use super::stuck::Watch;
use crate::task::panic_message;

/// The threads of worlds are called so, and by their seeds.
pub(super) const THREAD: &str = "polder-sim";

/// Runs a test in the world of a seed, on this thread.
pub(super) type World<'a> = dyn Fn(u64, Setup, Arc<Progress>) -> Report + Sync + 'a;

/// Runs the worlds of a call of `check` or `run`.
pub(super) struct Threads<'a> {
    world: &'a World<'a>,
    watch: Watch,
}

impl Threads<'_> {
    /// For a test of this thread.
    pub(super) fn new<'a>(world: &'a World<'a>) -> Threads<'a> {
        Threads {
            world,
            watch: Watch::new(),
        }
    }

    /// Calls `f`, which runs worlds, and has a thread look after them meanwhile.
    pub(super) fn watched(&self, f: impl FnOnce()) {
        thread::scope(|scope| {
            let _end = self.watch.end();
            if !self.watch.is_inner() {
                start(scope, format!("{THREAD} watchdog"), || self.watch.look());
            }
            f();
        });
    }

    /// Runs a seed on a new thread.
    pub(super) fn run(&self, seed: u64, setup: Setup) -> Report {
        thread::scope(|scope| {
            let run = || self.run_here(seed, setup);
            self.join(start(scope, name(seed), run))
        })
    }

    /// Runs a seed on a new thread, and looks after it.
    pub(super) fn run_one(&self, seed: u64) -> Report {
        thread::scope(|scope| {
            let end = self.watch.end();
            let run = || {
                let _end = end;
                self.run_here(seed, Setup::default())
            };
            let thread = start(scope, name(seed), run);
            if !self.watch.is_inner() {
                self.watch.look();
            }
            self.join(thread)
        })
    }

    /// Runs a seed on this thread, which is one for worlds.
    fn run_here(&self, seed: u64, setup: Setup) -> Report {
        let progress = Arc::<Progress>::default();
        let _watched = (self.watch).add(seed, progress.clone(), setup.found.clone());
        let run = AssertUnwindSafe(|| (self.world)(seed, setup, progress));
        catch_unwind(run).unwrap_or_else(|panic| {
            let words = panic_message(&*panic);
            panic!("seed {seed:#x}: the world itself has panicked: {words}")
        })
    }

    /// What a thread has come to, which has been waited for.
    fn join<T>(&self, thread: ScopedJoinHandle<'_, T>) -> T {
        let result = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        // The world in which this call was made, if it was made in one, gets on by this.
        kernel::with(|kernel| kernel.progress().go_on());
        result
    }
}

fn name(seed: u64) -> String {
    format!("{THREAD} {seed:#x}")
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    run: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let thread = thread::Builder::new().name(name).spawn_scoped(scope, run);
    thread.unwrap_or_else(|error| panic!("polder::sim: cannot start a thread: {error}"))
}

//! The threads of worlds. Each world has a new thread, so a program's thread-locals are new each
//! time, unless the world before has allowed the next one to use its thread
//! ([`Sim::share_thread`](super::Sim)).
//!
//! The caller that runs a world starts its thread and waits for the thread to end, which takes one
//! wake per world. Worlds that are stuck are left to the watchdog ([`stuck`](super::stuck)):
//! `check` has one for all of its worlds. A call of `run` has none, as a thread for a single world
//! costs more than the wake that it would save. There the waiting thread watches the world
//! meanwhile. It is woken first when the world has ended, and then by the end of its thread.
//!
//! **Polder's own thread-locals** must be as new for the next world on a thread:
//!
//! - The kernel, its clock and the panics reported to it (`world`) end with the world. The number
//!   of clock readings is counted from the beginning of each step.
//! - The salt of random numbers (`world/choice.rs`) is set when a world begins.
//! - The answers to the C library (`world/answers.rs`), and whether panics are printed
//!   (`panics.rs`) are set when a world begins. Between worlds they are not read.
//! - The worker that this thread drives (`scheduler/current.rs`), the task that runs
//!   (`scheduler/header.rs`), and the owner of the resolver that is polled (`net/resolver.rs`), are
//!   restored by guards, also after a panic.
//! - Listeners of signals (`world/listeners.rs`) are removed with their owners. One that was leaked
//!   stays, and is never woken: its owner belongs to another world.
//! - The wait reason of a future of `block_on` (`scheduler/local.rs`) is reset before each of its
//!   polls, and only that future reads it.
//! - The number of this thread (`poller/backends/io_uring.rs`) and the place of its stack (the
//!   crate `polder-stack`) belong to the thread, and no world reads them.
//!
//! Sockets, timers, wakers and tasks that outlive their world refer to it by its number, or hold
//! its parts, and find nothing in the next world. The handles of a test (`Sim`, `Cut`) act on the
//! world that their thread is in: a test that keeps one in a thread-local must not share the
//! thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};

use super::environment::{THREAD, number_from};
use super::report::Report;
use super::stuck::{End, Watch};
use crate::world;
use crate::world::foreign::panic_message;
use crate::world::progress::Progress;
use crate::world::setup::Setup;
use crate::world::trace::Comparison;

/// Runs a test in the world of a seed, on this thread.
pub(super) type World<'a> = dyn Fn(u64, Setup, Arc<Progress>) -> Report + Sync + 'a;

/// Runs the worlds of a call of `check` or `run`.
pub(super) struct Threads<'a> {
    world: &'a World<'a>,
    watch: Watch,
    /// Whether events are printed.
    logs: bool,
}

impl Threads<'_> {
    /// Returns the threads for a test of this thread.
    pub(super) fn new<'a>(world: &'a World<'a>) -> Threads<'a> {
        Threads {
            world,
            watch: Watch::new(),
            logs: number_from("POLDER_SIM_LOG").is_some_and(|number| number != 0),
        }
    }

    /// Calls `f`, which runs worlds, while a separate thread watches them.
    pub(super) fn watched(&self, f: impl FnOnce()) {
        thread::scope(|scope| {
            let _end = End(&self.watch);
            if !self.watch.is_inner {
                start(scope, format!("{THREAD} watchdog"), || self.watch.look());
            }
            f();
        });
    }

    /// Returns whether worlds may share a thread. Worlds within a world may not: the outer one
    /// makes progress whenever one of their threads has ended (see [`join`](Self::join)).
    pub(super) fn may_be_shared(&self) -> bool {
        !self.watch.is_inner
    }

    /// Calls `f` on a new thread for worlds: of one seed, or of several.
    pub(super) fn on_a_new<T: Send>(&self, seed: Option<u64>, f: impl FnOnce() -> T + Send) -> T {
        let name = seed.map_or(THREAD.to_owned(), name);
        thread::scope(|scope| self.join(start(scope, name, f)))
    }

    /// Runs a seed on a new thread.
    pub(super) fn run(&self, seed: u64, setup: Setup) -> Report {
        self.on_a_new(Some(seed), || self.run_here(seed, setup))
    }

    /// Runs a seed on a new thread, and watches it.
    pub(super) fn run_one(&self, seed: u64) -> Report {
        thread::scope(|scope| {
            let end = End(&self.watch);
            let run = || {
                let _end = end;
                self.run_here(seed, Setup::default())
            };
            let thread = start(scope, name(seed), run);
            if !self.watch.is_inner {
                self.watch.look();
            }
            self.join(thread)
        })
    }

    /// Runs a seed on this thread, which is one for worlds.
    pub(super) fn run_here(&self, seed: u64, mut setup: Setup) -> Report {
        // The events of a repeated run have been printed already.
        let is_repeated = setup.is_quiet || matches!(setup.comparison, Comparison::Compare(_));
        setup.logs = self.logs && !is_repeated;
        let progress = Arc::<Progress>::default();
        (self.watch).add(seed, progress.clone(), setup.found.clone());
        let run = AssertUnwindSafe(|| (self.world)(seed, setup, progress.clone()));
        let result = catch_unwind(run);
        self.watch.remove(&progress);
        result.unwrap_or_else(|panic| {
            let words = panic_message(&*panic);
            panic!("seed {seed:#x}: the world itself has panicked: {words}")
        })
    }

    /// Waits for a thread, and returns its result.
    fn join<T>(&self, thread: ScopedJoinHandle<'_, T>) -> T {
        let result = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        // Records progress of the world in which this call was made, if it was made in one.
        world::thread::with(|kernel| kernel.core.report.progress.go_on());
        result
    }
}

/// Linux's limit for main threads (`ulimit -s`). Unused parts take no memory.
const STACK: usize = 8 << 20;

fn name(seed: u64) -> String {
    format!("{THREAD} {seed:#x}")
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    run: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let thread = thread::Builder::new().name(name);
    // A real program's main thread has that much, and a simulated process runs on this thread.
    let thread = match std::env::var_os("RUST_MIN_STACK") {
        None => thread.stack_size(STACK),
        Some(_) => thread,
    };
    let thread = thread.spawn_scoped(scope, run);
    thread.unwrap_or_else(|error| panic!("polder_sim: cannot start a thread: {error}"))
}

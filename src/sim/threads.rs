//! The threads of worlds. Each world has a new one, unless the world before has said that the next
//! one may have its own ([`Sim::share_thread`](super::Sim)): what a program keeps in thread-locals
//! is new each time.
//!
//! Whoever wants a world run starts its thread and waits until that has ended, which is one wake a
//! world. That a world may be stuck is the concern of the watchdog ([`stuck`](super::stuck)), which
//! `check` has for all of its worlds. A call of `run` has none: a thread for a single world costs
//! more than the wake that it would save. Who waits there looks after the world meanwhile, and is
//! woken first when it has ended, and then by the end of its thread.
//!
//! **Polder's own thread-locals** must be as new for the next world of a thread:
//!
//! - The kernel, its clock and the panics that it was told of (`sim/kernel`) end with the world;
//!   how often the clock was read is counted from each step on.
//! - What answers the C library (`sim/kernel/answers.rs`), who is told of contained panics
//!   (`sync::CONTAINED`), and whether panics are printed (`sim/panics.rs`) are set anew when a
//!   world begins. Between worlds nobody asks for them.
//! - Which worker this thread drives and which task runs (`scheduler/current.rs`), and whose
//!   resolver is polled (`net/resolver.rs`), is restored by guards, also by a panic.
//! - Listeners of signals (`signal/simulated.rs`) go with their owners. One that was leaked stays,
//!   and is never woken: its owner is of another world.
//! - What a future of `block_on` waits for (`scheduler/leaf.rs`) is set anew before each of its
//!   polls, and only that future asks for it.
//! - The number of this thread (`poller/backends/io_uring.rs`) and where its stack lies
//!   (`sys/stack/linux/copy.rs`) are the thread's own, and no world asks for them.
//!
//! Sockets, timers, wakers and tasks that outlive their world name it by its number, or hold its
//! parts, and find nothing in the next one. The handles of a test (`Sim`, `Cut`) act on the world
//! that their thread is in: a test that keeps one in a thread-local must not share the thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};

use super::check::{Report, number_from};
use super::kernel::progress::Progress;
use super::kernel::trace::Comparison;
use super::kernel::{self, Setup};
use super::stuck::Watch;
use crate::task::panic_message;

/// The threads of worlds are called so, and by their seeds, if they have one only.
pub(super) const THREAD: &str = "polder-sim";

/// Runs a test in the world of a seed, on this thread.
pub(super) type World<'a> = dyn Fn(u64, Setup, Arc<Progress>) -> Report + Sync + 'a;

/// Runs the worlds of a call of `check` or `run`.
pub(super) struct Threads<'a> {
    world: &'a World<'a>,
    watch: Watch,
    /// What happens is printed.
    logs: bool,
}

impl Threads<'_> {
    /// For a test of this thread.
    pub(super) fn new<'a>(world: &'a World<'a>) -> Threads<'a> {
        Threads {
            world,
            watch: Watch::new(),
            logs: number_from("POLDER_SIM_LOG").is_some_and(|it| it != 0),
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

    /// Whether worlds may share a thread. Not those in a world, which gets on whenever a thread of
    /// theirs has ended: see [`join`](Self::join).
    pub(super) fn may_be_shared(&self) -> bool {
        !self.watch.is_inner()
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
    pub(super) fn run_here(&self, seed: u64, mut setup: Setup) -> Report {
        // What a repeated run does was printed.
        let is_repeated = setup.is_quiet || matches!(setup.comparison, Comparison::Compare(_));
        setup.logs = self.logs && !is_repeated;
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

/// Linux's limit for main threads (`ulimit -s`). What is not used takes no memory.
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
    // A program's main thread has that much, and what a process of a world runs it runs there.
    let thread = match std::env::var_os("RUST_MIN_STACK") {
        None => thread.stack_size(STACK),
        Some(_) => thread,
    };
    let thread = thread.spawn_scoped(scope, run);
    thread.unwrap_or_else(|error| panic!("polder::sim: cannot start a thread: {error}"))
}

//! The kernel of the world that this thread is in.
//!
//! What a process, the runtime or the test asks a world for comes here first. So everything that a
//! kernel has is below this file, and what makes the calls is above it.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::time::Instant;

use super::core::Core;
use super::kernel::Kernel;
use super::panic_sites;
use super::setup::Setup;
use super::sockets::Sockets;
use super::time::is_here;
use super::{answers, blocking, choice, disk_calls, names, time};

thread_local! {
    /// [`InWorld`] drops it: so the thread-local has no destructor, and accesses need not check for
    /// one.
    static KERNEL: RefCell<ManuallyDrop<Option<Box<Kernel>>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Calls `f` with this thread's kernel, if there is one. `f` must not run foreign code.
pub(crate) fn with<R>(f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    KERNEL.with(|kernel| kernel.borrow_mut().as_deref_mut().map(f))
}

/// As [`with`].
///
/// # Panics
///
/// If the thread is in no world: a handle has outlived it.
pub(crate) fn kernel<R>(f: impl FnOnce(&mut Kernel) -> R) -> R {
    with(f).expect("polder_sim: this world has ended")
}

/// As [`with`], if that is the kernel of the world of this number.
pub(super) fn with_world<R>(world: u32, f: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    with(|kernel| (kernel.core.world == world).then(|| f(kernel))).flatten()
}

/// Returns the earliest time of the world at which the current host's clock may have shown `at`, or
/// the latest one. Outside of a host that is `at` itself.
pub(crate) fn world_time(at: Instant, is_last: bool) -> Instant {
    let time = with(|kernel| {
        let host = kernel.core.processes.current_host()?;
        Some(kernel.core.time.world_time(host, at, is_last))
    });
    time.flatten().unwrap_or(at)
}

/// A marker for handles that act on a world when they are dropped: keeps them on that world's
/// thread.
pub(crate) type StaysHere = PhantomData<*const ()>;

/// Begins a world on this thread. The world ends when the result is dropped.
pub(crate) fn begin(seed: u64, setup: Setup) -> InWorld {
    assert!(!is_here(), "polder_sim: this thread is in a world already");
    // From here on the world answers the C library's calls, if the program has enabled that. This
    // includes the reading of the clock below, which is then the same in every world.
    answers::begin(seed);
    let kernel = Kernel {
        core: Core::new(seed, setup),
        sockets: Sockets::default(),
        names: names::Names::new(seed),
        disks: disk_calls::Disks::default(),
        blocking: blocking::Calls::default(),
        first_chaos: 0,
    };
    KERNEL.set(ManuallyDrop::new(Some(Box::new(kernel))));
    InWorld(())
}

/// Keeps this thread in a world until it is dropped.
pub(crate) struct InWorld(());

impl Drop for InWorld {
    fn drop(&mut self) {
        let kernel = ManuallyDrop::into_inner(KERNEL.replace(ManuallyDrop::new(None)));
        time::end();
        drop(kernel);
        // The thread may enter another world.
        panic_sites::forget();
        choice::set_salt(0);
        answers::end();
    }
}

/// Fails the run.
pub(crate) fn fail(reason: impl FnOnce() -> String) {
    fail_as(None, None, reason);
}

/// Fails the run, with a cause that is less specific than the reason, and with the time of the
/// failure.
pub(crate) fn fail_because(cause: &str, at: Option<u64>, reason: impl FnOnce() -> String) {
    fail_as(Some(cause.to_owned()), at, reason);
}

pub(super) fn fail_as(cause: Option<String>, at: Option<u64>, reason: impl FnOnce() -> String) {
    with(|kernel| {
        let report = &mut kernel.core.report;
        if report.failure.is_none() {
            let reason = reason();
            let cause = cause.unwrap_or_else(|| reason.clone());
            report.fail(cause, at, reason);
        }
    });
}

/// Calls `f` as code of no process, even in the middle of a process's step.
pub(crate) fn as_nobody<R>(f: impl FnOnce() -> R) -> R {
    let exchange = |process| {
        with(|kernel| std::mem::replace(&mut kernel.core.processes.current, process)).flatten()
    };
    let before = exchange(None);
    let result = f();
    exchange(before);
    result
}

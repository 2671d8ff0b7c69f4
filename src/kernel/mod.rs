//! [`Kernel`]: what the runtime asks of the system, as a trait. A simulator implements it, and so
//! can anything that counts, delays or records these calls. A small one, written by hand, is
//! `tests/conformance/other_kernel.rs`.
//!
//! The system is the default, and no object. A kernel is installed for one thread ([`install`]);
//! code that would call the system asks for [`current`] first. A method's default is what happens
//! without a kernel, so an implementor writes the parts that it replaces. The methods are called
//! outside of locks and borrows of the runtime, except where they say otherwise.
//!
//! What a kernel has made, a socket or a poller, is [`Boxed`], and a variant of an enum beside the
//! system's.
//!
//! Without the feature `kernel` nothing is installed: `current` is a constant, and `Boxed` has no
//! value, so that neither the variant nor the calls are compiled. Unstable: any version of polder
//! may change it.

#[cfg(feature = "fs")]
pub mod files;
#[cfg_attr(not(feature = "kernel"), path = "missing.rs")]
mod installed;
pub mod sockets;

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

pub use self::installed::*;
use self::sockets::Sockets;

/// The limit of times in a row that the task that has been ready longest is passed over.
pub const MAX_PASSED_OVER: u32 = 64;

/// The kernel below a runtime: see the head of the file.
pub trait Kernel {
    // The clock.

    /// Returns the current time. May be called under a lock of the runtime.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// The program itself reads the clock, by `time::now`.
    fn reads_clock(&self) {}

    // Tasks and their order.

    /// Returns a new task's id, from 1 on. `None`: from the counter of the process. The current
    /// worker is borrowed.
    fn task_id(&self) -> Option<u64> {
        None
    }

    /// Chooses which of a worker's `count` ready tasks runs next; `id` returns the id of each. At
    /// most [`MAX_PASSED_OVER`] times in a row may that not be the first. The worker's queue is
    /// borrowed.
    fn choose_task(&self, count: usize, id: &dyn Fn(usize) -> u64) -> usize {
        let _ = (count, id);
        0
    }

    /// [`choose_task`](Self::choose_task) of the tasks that no pool worker has taken yet. Their
    /// queue is locked.
    fn choose_injected(&self, count: usize, id: &dyn Fn(usize) -> u64) -> usize {
        let _ = (count, id);
        0
    }

    /// A task is about to be polled, which was spawned at `site`.
    fn polls(&self, id: u64, site: &'static Location<'static>) {
        let _ = (id, site);
    }

    // Panics.

    /// A task has panicked. The panic is passed to the code that awaits it.
    fn task_panicked(&self, site: &'static Location<'static>, message: &str) {
        let _ = (site, message);
    }

    /// The panic of a task was passed on, or is about to be reported.
    fn panic_is_taken(&self, site: &'static Location<'static>, message: &str) {
        let _ = (site, message);
    }

    /// Reports the panic of a task that nobody awaits. Returns `false` to have the runtime print
    /// it.
    fn report_panic(&self, site: &'static Location<'static>, message: &str) -> bool {
        let _ = (site, message);
        false
    }

    /// Foreign code has panicked where the runtime goes on: a waker, a destructor.
    fn panic_was_contained(&self, panic: &(dyn Any + Send)) {
        let _ = panic;
    }

    // Services of the system.

    /// Permits a call that goes to the system, or returns the error that it fails with. `what` is
    /// named by the error. A source may be locked.
    fn permit(&self, what: &str) -> io::Result<()> {
        let _ = what;
        Ok(())
    }

    /// Looks up the addresses of a host's name. `None`: the system does.
    fn look_up(&self, host: &str) -> Option<LookUp> {
        let _ = host;
        None
    }

    /// Takes a call that blocks, to be [run](BlockingCall::run) later on this thread. Returns
    /// `false` to have the thread pool run it.
    fn block(&self, call: Arc<dyn BlockingCall>) -> bool {
        drop(call);
        false
    }

    /// Returns what makes sockets. `None`: the system.
    fn sockets(&self) -> Option<&dyn Sockets> {
        None
    }

    /// Returns the files that `fs` uses. `None`: the system's.
    #[cfg(feature = "fs")]
    fn files(&self) -> Option<&'static dyn files::Files> {
        None
    }

    /// Begins to count the signals of these numbers for a listener. `None`: the system's.
    fn signals(&self, numbers: &[usize]) -> Option<io::Result<Box<dyn Signals>>> {
        let _ = numbers;
        None
    }

    // Assertions of the program.

    /// Returns what checks the program's `always!` and `sometimes!` and answers its `buggify!`, if
    /// anything does at this moment.
    fn checks(&self) -> Option<&'static dyn Checks> {
        None
    }
}

/// [`Kernel::permit`] of this thread's kernel. The system's permits every call.
pub(crate) fn permit(what: &str) -> io::Result<()> {
    current().map_or(Ok(()), |kernel| kernel.permit(what))
}

/// The lookup of a name.
pub type LookUp = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// A call that was passed to `unblock`. The task that awaits it waits until it was run.
pub trait BlockingCall: Send + Sync {
    /// Runs it, once: foreign code, whose panic goes to what awaits the call.
    fn run(&self);
}

/// A listener's signals. Dropping it ends the listening.
pub trait Signals: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Returns how often the signal of this number has arrived.
    fn count(&self, number: usize) -> u64;

    /// Wakes `waker` when any of the listener's signals arrives, in place of the waker before.
    /// `None`: wakes none.
    fn set_waker(&self, waker: Option<&Waker>);
}

/// The checks of what a program states about itself.
pub trait Checks {
    /// Fails the run, because a condition of `always!` does not hold.
    fn does_not_hold(&self, name: &str, site: &'static Location<'static>);

    /// Returns whether a condition of `sometimes!` is to be evaluated.
    fn asks_for(&self, name: &str) -> bool;

    /// Notes the value of a condition of `sometimes!`.
    fn note_sometimes(&self, name: &str, is_so: bool);

    /// Returns whether the fault of this name happens.
    fn buggify(&self, name: &str) -> bool;
}

/// The readiness of a socket, as flags.
pub const READABLE: u8 = 1;
/// See [`READABLE`].
pub const WRITABLE: u8 = 2;
/// The peer has ended: nothing more can be read, or written.
pub const CLOSED: u8 = 4;
/// An error is to be taken.
pub const ERROR: u8 = 8;

/// The poller of a worker, on a kernel that has one for each.
pub trait Poller: Send + Sync {
    /// Registers a socket of the kernel, or replaces its registration.
    fn register(&self, socket: u64, token: u64, interest: u8) -> io::Result<()>;

    /// Ends a registration.
    fn deregister(&self, socket: u64) -> io::Result<()>;

    /// Takes at most `limit` events, and calls `report` with the token and readiness of each.
    fn take(&self, limit: usize, report: &mut dyn FnMut(u64, u8));

    /// Wakes the worker.
    fn notify(&self);

    /// A task of the worker was woken by a thread that does not drive it, before [`notify`].
    ///
    /// [`notify`]: Self::notify
    fn is_woken_from_elsewhere(&self) {}

    /// Sets when the worker is to be woken for its earliest timer.
    fn arm(&self, deadline: Option<Instant>);
}

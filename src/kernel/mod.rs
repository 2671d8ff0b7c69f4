//! [`Kernel`]: what the runtime asks of the system, as a trait. A simulator implements it, or
//! anything that counts, delays or records these calls. `tests/conformance/other_kernel.rs` is a
//! small one.
//!
//! The system is the default, and not an object. A kernel is installed for a thread ([`install`]);
//! code that would call the system first asks for [`current`]. A method's default is the behaviour
//! without a kernel, so an implementor writes only the parts that it replaces. Methods are called
//! outside of locks and borrows of the runtime, unless documented otherwise.
//!
//! A socket or poller that a kernel has made is [`Boxed`], and a variant of an enum beside the
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
use std::io;
use std::net::IpAddr;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Instant, SystemTime};

pub use self::installed::*;
use self::sockets::Sockets;

/// The limit of consecutive times that the task that has been ready longest is passed over.
pub const MAX_PASSED_OVER: u32 = 64;

/// The kernel below a runtime: see the head of this file.
#[allow(unused_variables, reason = "the defaults are those of no kernel")]
pub trait Kernel {
    // The clock.

    /// Returns the current time. May be called under a lock of the runtime.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Returns the current date, for dumps and traces.
    fn date(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Returns whether dumps have numbers in the place of addresses of memory, which differ where a
    /// run is repeated.
    fn numbers_addresses(&self) -> bool {
        false
    }

    /// Called when the program itself reads the clock, by `time::now`.
    fn reads_clock(&self) {}

    // Tasks and their order.

    /// Returns a new task's id, from 1 on; `None` takes it from the process's counter. The current
    /// worker is borrowed.
    fn task_id(&self) -> Option<u64> {
        None
    }

    /// Chooses which of a worker's `count` ready tasks runs next; `id` returns the id of each. The
    /// first may be passed over at most [`MAX_PASSED_OVER`] times in a row. The worker's queue is
    /// borrowed.
    fn choose_task(&self, count: usize, id: &dyn Fn(usize) -> u64) -> usize {
        0
    }

    /// [`choose_task`](Self::choose_task) of the tasks that no pool worker has taken yet. Their
    /// queue is locked.
    fn choose_injected(&self, count: usize, id: &dyn Fn(usize) -> u64) -> usize {
        0
    }

    /// Called before a task that was spawned at `site` is polled.
    fn polls(&self, id: u64, site: &'static Location<'static>) {}

    // Panics.

    /// Called when a task has panicked. The panic is passed to the code that awaits it.
    fn task_panicked(&self, site: &'static Location<'static>, message: &str) {}

    /// Called when the panic of a task was passed on, or is about to be reported.
    fn panic_is_taken(&self, site: &'static Location<'static>, message: &str) {}

    /// Reports the panic of a task that is not awaited. Returns `false` to have the runtime print
    /// it.
    fn report_panic(&self, site: &'static Location<'static>, message: &str) -> bool {
        false
    }

    /// Called when foreign code (a waker, a destructor) has panicked, and the runtime goes on.
    fn panic_was_contained(&self, panic: &(dyn Any + Send)) {}

    // Services of the system.

    /// Permits a call of the system, or returns the error with which it fails. The error names
    /// `what`. A source may be locked.
    fn permit(&self, what: &str) -> io::Result<()> {
        Ok(())
    }

    /// Looks up the addresses of a host's name; `None` leaves it to the system.
    fn look_up(&self, host: &str) -> Option<LookUp> {
        None
    }

    /// Takes a blocking call, to [run](BlockingCall::run) it later on this thread. Returns `false`
    /// to have the thread pool run it.
    fn block(&self, call: Arc<dyn BlockingCall>) -> bool {
        false
    }

    /// Returns the kernel's sockets, or `None` for the system's.
    fn sockets(&self) -> Option<&dyn Sockets> {
        None
    }

    /// Returns the files for `fs`, or `None` for the system's.
    #[cfg(feature = "fs")]
    fn files(&self) -> Option<&'static dyn files::Files> {
        None
    }

    /// Begins to count the signals of these numbers for a listener; `None` leaves it to the system.
    fn signals(&self, numbers: &[usize]) -> Option<io::Result<Box<dyn Signals>>> {
        None
    }

    // Assertions of the program.

    /// Returns what checks the program's `always!` and `sometimes!` and answers its `buggify!`, if
    /// anything does now.
    fn checks(&self) -> Option<&'static dyn Checks> {
        None
    }
}

/// [`Kernel::permit`] of this thread's kernel. The system's permits every call.
pub(crate) fn permit(what: &str) -> io::Result<()> {
    current().map_or(Ok(()), |kernel| kernel.permit(what))
}

pub type LookUp = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// A call of `unblock`. The task that awaits it waits until it was run.
pub trait BlockingCall: Send + Sync {
    /// Runs it, once: foreign code, whose panic goes to the awaiting task.
    fn run(&self);

    /// Calls its function, on any thread. What awaits the call waits until it is [run](Self::run),
    /// which then only hands the output over.
    fn prepare(&self) {}
}

/// A listener's signals. Dropping it ends the listening.
pub trait Signals: Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// Returns the number of times that this signal has arrived.
    fn count(&self, number: usize) -> u64;

    /// Sets the waker that is woken when a signal of the listener arrives, or removes it.
    fn set_waker(&self, waker: Option<&Waker>);
}

/// The checks of a program's assertions.
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
/// The peer has closed: nothing more can be read, or written.
pub const CLOSED: u8 = 4;
/// An error is to be taken.
pub const ERROR: u8 = 8;

/// The poller of a worker.
pub trait Poller: Send + Sync {
    /// Registers a socket of the kernel, or replaces its registration.
    fn register(&self, socket: u64, token: u64, interest: u8) -> io::Result<()>;

    /// Ends a registration.
    fn deregister(&self, socket: u64) -> io::Result<()>;

    /// Takes at most `limit` events, and calls `report` with the token and readiness of each.
    fn take(&self, limit: usize, report: &mut dyn FnMut(u64, u8));

    /// Wakes the worker.
    fn notify(&self);

    /// Called before [`notify`](Self::notify) if a thread that does not drive the worker has woken
    /// one of its tasks.
    fn is_woken_from_elsewhere(&self) {}

    /// Sets when to wake the worker for its earliest timer.
    fn arm(&self, deadline: Option<Instant>);
}

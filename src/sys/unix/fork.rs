//! Children of `fork` that have not called `exec`, and how a process detects that it is one.
//!
//! Such a child has a copy of the memory, and only the thread that called `fork`. Work of other
//! threads is never completed there, and their locks stay locked. So state of a process records its
//! [`Process`], and the child makes its own: see [`PerProcess`](crate::sys::PerProcess). The child
//! uses its parent's reactors only to move sources and timers out of them: see `reactor::fork`. It
//! leaves alone what a value of the parent's shares with a thread that holds the lock: see
//! [`Process::lock`].
//!
//! The C library calls a function in each child (`pthread_atfork`), which counts. `vfork` and
//! `posix_spawn` do not, but their children may only `exec`. Nor does a direct `clone`, which
//! leaves the C library itself in the parent's state.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::sync::{Mutex, MutexGuard};

/// May count a `fork` more than once; compared only for equality.
static FORKS: AtomicU32 = AtomicU32::new(0);

static COUNTS: AtomicBool = AtomicBool::new(false);

/// A process, as distinct from its ancestors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns this process. From the first call on, forks are counted.
    #[inline]
    pub(crate) fn current() -> Process {
        if !COUNTS.load(Ordering::Relaxed) {
            count_forks();
        }
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the running process. Only loads, so a signal handler may call it. Relaxed:
    /// the counter changes only in a child that has no other thread yet.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Locks what a value that was made in this process shares with threads. In a child of `fork`
    /// the holder may be a thread of the parent, which never releases it: then `None`.
    #[inline]
    pub(crate) fn lock<T>(self, mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        if self.is_current() {
            Some(mutex.lock())
        } else {
            lock_of_parent(mutex)
        }
    }
}

/// A thread of the child holds it briefly, and runs while this one yields, or soon afterwards.
/// After one that was held for the whole time, and so by a thread of the parent, a child only
/// yields: it may have many waits for the same event to drop.
#[cold]
fn lock_of_parent<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    const YIELDS: usize = 100;
    const SLEEPS: usize = 20;
    static HAS_GIVEN_UP: AtomicBool = AtomicBool::new(false);
    let sleeps = if HAS_GIVEN_UP.load(Ordering::Relaxed) {
        0
    } else {
        SLEEPS
    };
    for attempt in 0..YIELDS + sleeps {
        if let Some(guard) = mutex.try_lock() {
            return Some(guard);
        }
        match attempt {
            0..YIELDS => thread::yield_now(),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    HAS_GIVEN_UP.store(true, Ordering::Relaxed);
    None
}

/// Registers the counting function. Concurrent first calls each register it, so that none waits for
/// another, which a child of `fork` would do forever. Retried if memory is short.
#[cold]
fn count_forks() {
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the function adds to an atomic, and stays valid for as long as this code does.
    if unsafe { libc::pthread_atfork(None, None, Some(count)) } == 0 {
        COUNTS.store(true, Ordering::Relaxed);
    }
}

/// Makes each `fork` call `before`, then `after` in this process and `in_child` in the child; twice
/// if called twice. Returns `false` if memory is short.
pub(crate) fn at_fork(
    before: extern "C" fn(),
    after: extern "C" fn(),
    in_child: extern "C" fn(),
) -> bool {
    // SAFETY: the functions stay valid for as long as this code does, and do not unwind.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) == 0 }
}

#[cfg(test)]
pub(super) mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{PoisonError, RwLock};

    /// Read-locked while a test has a child, which inherits other tests' descriptors and keeps them
    /// open. A test of the effects of closing write-locks it.
    pub(crate) static CHILDREN: RwLock<()> = RwLock::new(());

    /// Panics unless `check` returns true in a child of `fork`.
    pub(crate) fn in_child(check: impl FnOnce() -> bool) {
        const RIGHT: i32 = 7;
        let _children = CHILDREN.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the child uses only the state of other threads that `check` is about, and ends by
        // libc::_exit, without destructors. libc::alarm ends a child that hangs; both may always be
        // called.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                let is_right = catch_unwind(AssertUnwindSafe(check)).unwrap_or(false);
                libc::_exit(if is_right { RIGHT } else { 1 });
            }
            child
        };
        let mut status = 0;
        loop {
            // SAFETY: libc::waitpid writes one number.
            if unsafe { libc::waitpid(child, &mut status, 0) } == child {
                break;
            }
            let error = std::io::Error::last_os_error();
            assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
        }
        assert!(libc::WIFEXITED(status), "the child was killed: {status}");
        assert_eq!(libc::WEXITSTATUS(status), RIGHT, "the child has failed");
    }
}

//! Statics that a child of `fork` can use: see [`Process`].
//!
//! If a thread of the parent was initialising a `OnceLock`, or held a lock, the child would wait
//! for it forever. Neither cell here waits: concurrent first uses each make a value, one of which
//! stays. A child reads nothing of its parent's threads but a pointer, which is null or points to a
//! complete value.

// In statics, where loom's types cannot be used.
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Process;

/// A value made on first use, possibly more than once.
pub(crate) struct Race<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Race<T> {
    pub(crate) const fn new() -> Race<T> {
        Race(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a pointer from `replace` that is never freed. Acquire makes the value
        // visible.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    pub(crate) fn get_or_init(&self, new: impl FnOnce() -> T) -> &'static T {
        match self.get() {
            Some(value) => value,
            None => self.replace(|_| true, new),
        }
    }

    /// Stores a new value, unless there is one that `is_right`. Leaks the old one.
    #[cold]
    fn replace(&self, is_right: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &'static T {
        let new = Box::into_raw(Box::new(new()));
        loop {
            let old = self.get();
            if let Some(old) = old.filter(|old| is_right(old)) {
                // SAFETY: comes from `into_raw` above, and was not stored.
                drop(unsafe { Box::from_raw(new) });
                return old;
            }
            let old = old.map_or(ptr::null_mut(), |old| ptr::from_ref(old).cast_mut());
            let stored = (self.0).compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
            if stored.is_ok() {
                // SAFETY: comes from `into_raw` above, and is never freed.
                return unsafe { &*new };
            }
        }
    }
}

/// A value for each process. A child of `fork` makes a new one, and leaks the parent's, which
/// belongs to the parent's threads, without locking or dropping it. `new` must have no side
/// effects, since its value may be dropped; put those in a lock or a `OnceLock` within.
pub(crate) struct PerProcess<T: 'static> {
    value: Race<Of<T>>,
    new: fn() -> T,
}

struct Of<T> {
    process: Process,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new(new: fn() -> T) -> PerProcess<T> {
        PerProcess {
            value: Race::new(),
            new,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> &'static T {
        match self.existing() {
            Some(value) => value,
            None => self.make(),
        }
    }

    /// Only loads, so a signal handler may call it.
    #[inline]
    pub(crate) fn existing(&self) -> Option<&'static T> {
        let of = self.value.get()?;
        of.process.is_current().then_some(&of.value)
    }

    #[cold]
    fn make(&self) -> &'static T {
        // Read first, so that children forked after this are other processes.
        let process = Process::current();
        let new = || Of {
            process,
            value: (self.new)(),
        };
        &(self.value.replace(|of| of.process.is_current(), new)).value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A thread that makes the value blocks no other.
    #[test]
    fn thread_making_value_blocks_no_other() {
        static CELL: Race<u32> = Race::new();
        let (begins, begun) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let slow = thread::spawn(move || {
            *CELL.get_or_init(|| {
                begins.send(()).unwrap();
                wait.recv().unwrap();
                1
            })
        });
        begun.recv_timeout(LIMIT).unwrap();
        let (made, is_made) = mpsc::channel();
        thread::spawn(move || made.send(*CELL.get_or_init(|| 2)));
        let made = is_made.recv_timeout(LIMIT);
        assert_eq!(made.expect("it waits for the other thread"), 2);
        go_on.send(()).unwrap();
        assert_eq!(slow.join().unwrap(), 2);
        assert_eq!(CELL.get(), Some(&2));
    }

    /// A child of fork makes its own value even if its parent's is locked.
    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "there is no fork")]
    fn fork_child_makes_value_despite_parents_lock() {
        use std::sync::Mutex;

        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new(|| Mutex::new(0));
        let (locks, locked) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let holder = thread::spawn(move || {
            let mut value = VALUE.get().lock().unwrap();
            locks.send(()).unwrap();
            wait.recv().unwrap();
            *value = 1;
        });
        locked.recv_timeout(LIMIT).unwrap();
        crate::sys::in_child(|| {
            let was_made = VALUE.existing().is_some();
            let value = *VALUE.get().lock().unwrap();
            let is_kept = std::ptr::eq(VALUE.get(), VALUE.existing().unwrap());
            !was_made && value == 0 && is_kept
        });
        go_on.send(()).unwrap();
        holder.join().unwrap();
        assert_eq!(*VALUE.existing().unwrap().lock().unwrap(), 1);
    }
}

//! The standard library's locks, without poisoning: no foreign code (a foreign waker, a
//! destructor) runs under these locks, so the protected data is consistent when foreign code
//! panics.

use std::fmt;
use std::sync::PoisonError;
#[cfg(unix)]
use std::sync::TryLockError;
use std::time::Duration;

pub(crate) use std::sync::MutexGuard;

#[derive(Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(unix)]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does not lock: `Debug` must never block.
impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex { .. }")
    }
}

#[derive(Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    /// May return spuriously.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for at most `timeout`; may return spuriously.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout(guard, timeout);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    #[cfg(unix)]
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

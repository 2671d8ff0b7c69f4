//! The kernel that is installed for a thread.

use std::cell::Cell;
use std::marker::PhantomData;

use super::Kernel;

/// A socket or poller that a kernel has made.
pub type Boxed<T> = Box<T>;

thread_local! {
    /// Without a destructor, so that it can be read at any time.
    static CURRENT: Cell<Option<&'static dyn Kernel>> = const { Cell::new(None) };
}

/// Returns this thread's kernel, or `None` for the system's.
#[inline]
pub fn current() -> Option<&'static dyn Kernel> {
    CURRENT.get()
}

/// Installs a kernel for this thread, until the result is dropped.
///
/// # Panics
///
/// If the thread already has one.
pub fn install(kernel: &'static dyn Kernel) -> Installed {
    assert!(current().is_none(), "this thread has a kernel already");
    CURRENT.set(Some(kernel));
    Installed(PhantomData)
}

/// Keeps a kernel [installed](install).
#[derive(Debug)]
#[must_use = "dropping it uninstalls the kernel"]
pub struct Installed(PhantomData<*const ()>);

impl Drop for Installed {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

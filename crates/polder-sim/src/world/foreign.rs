//! Foreign code that the simulator calls: wakers, destructors, the test. It may panic where the
//! simulator goes on. Such a panic is contained, and reported to the [world](super::panics).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::panics;

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not a string")
}

/// Calls foreign code, and contains its panic, which the hook has printed.
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        panics::panic_was_contained(panic_message(&*panic));
        std::mem::forget(panic); // Its destructor may panic too.
    }
}

/// Wakes all wakers, also if one of them panics.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        contain(|| waker.wake());
    }
}

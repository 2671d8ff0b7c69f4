//! The panic hook of a process that simulates. It reports to the world where a panic comes from,
//! and prints nothing while a run is repeated after its panic has been printed.
//!
//! It is installed once, before the first world, and calls the previous hook; on threads outside a
//! world it always does. A hook that the program sets later replaces it. Then panics are
//! distinguished by their message, and printed each time.

use std::cell::Cell;
use std::panic;
use std::sync::Once;
use std::thread;

use crate::world;
use crate::world::foreign::panic_message;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hook. (Not on a thread that is panicking, where that is not allowed: a later call
/// does it.)
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    if thread::panicking() {
        return;
    }
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if world::time::is_here() {
                world::panic_sites::note_panic(info.location(), panic_message(info.payload()));
                if IS_QUIET.try_with(Cell::get).unwrap_or_default() {
                    return;
                }
            }
            before(info);
        }));
    });
}

/// Sets whether the panics of this thread's worlds are not printed.
pub(super) fn be_quiet(is_quiet: bool) {
    IS_QUIET.set(is_quiet);
}

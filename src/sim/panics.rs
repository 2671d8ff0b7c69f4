//! The panic hook of a process that simulates: it tells the world where a panic comes from, and
//! keeps quiet while runs are repeated whose panic has been printed already.
//!
//! It is installed once, before the first world, and calls the hook that was there before: on all
//! threads that are in no world, always. A hook that the program sets later replaces it. Then
//! panics are told apart by their words, and printed each time.

use std::cell::Cell;
use std::panic;
use std::sync::Once;
use std::thread;

use super::kernel;
use crate::task::panic_message;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hook. (Not on a thread that panics, which may not: then a later one does.)
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    if thread::panicking() {
        return;
    }
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if kernel::is_here() {
                kernel::note_panic(info.location(), panic_message(info.payload()));
                if IS_QUIET.try_with(Cell::get).unwrap_or_default() {
                    return;
                }
            }
            before(info);
        }));
    });
}

/// Whether the panics of this thread's worlds are printed.
pub(super) fn be_quiet(is_quiet: bool) {
    IS_QUIET.set(is_quiet);
}

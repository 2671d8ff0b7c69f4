//! Linux: a signal makes the thread copy its registers and its stack (`copy`). The requesting
//! thread then looks for the frames in that copy (`unwind`), and for their names, outside the
//! handler.
//!
//! So nothing is unwound in a signal handler, where the loader's lock must not be taken and no
//! memory may be allocated, and no pointer is followed there that might be wrong.

mod copy;
mod unwind;

use std::ffi::c_void;

pub(super) use copy::note;
pub(super) use unwind::object;

use super::{Function, Trace};

/// Returns the stack of a thread that called [`note`] with this number, or why it is not available.
pub(super) fn of_thread(thread: u32) -> Option<Trace> {
    if thread == 0 {
        return None;
    }
    Some(match copy::of_thread(thread) {
        Ok(stack) => unwind::unwind(&stack),
        Err(problem) => Trace {
            addresses: Vec::new(),
            problem: Some(problem),
        },
    })
}

/// Returns the functions at an address, the innermost first.
pub(super) fn functions(address: usize) -> Vec<Function> {
    let mut functions = Vec::new();
    // `resolve` expects a return address, and looks at the byte before it.
    backtrace::resolve(address.wrapping_add(1) as *mut c_void, |symbol| {
        if let Some(name) = symbol.name() {
            functions.push(Function {
                name: format!("{name:#}"),
                place: (symbol.filename())
                    .map(|file| (file.to_owned(), symbol.lineno(), symbol.colno())),
            });
        }
    });
    functions
}

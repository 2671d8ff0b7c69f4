//! Linux: a signal has the thread copy its registers and its stack (`copy`); whoever asked looks
//! for the frames in that copy, in peace (`unwind`), and for their names.
//!
//! So nothing is unwound in a signal's handler, where neither the loader's lock may be taken nor
//! memory be allocated, and nothing is followed there that might lead astray.

mod copy;
mod unwind;

use std::ffi::c_void;

pub(crate) use copy::note;
pub(crate) use unwind::object;

use super::{Function, Trace};

/// The stack of a thread that called [`note`] with this number, or why it cannot be had.
pub(crate) fn of_thread(thread: u32) -> Option<Trace> {
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

/// What is known of the code at an address, the innermost function first.
pub(crate) fn functions(address: usize) -> Vec<Function> {
    let mut functions = Vec::new();
    // It takes what it is given for the address of a return, and looks at the byte before.
    backtrace::resolve((address + 1) as *mut c_void, |symbol| {
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

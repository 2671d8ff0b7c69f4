//! Backtraces of stalled workers (feature `stall-backtrace`). `polder_stack` captures the addresses
//! when a stall is noticed; they are resolved from the debug information when they are printed.

use std::env;
use std::fmt;
use std::path::Path;

use polder_stack::Function;

/// The backtrace of a worker's thread, from
/// [`Stall::backtrace`](crate::diagnostics::Stall::backtrace).
///
/// Printed, it has a line for each function, innermost first, up to polder's functions that polled
/// the task. Names are resolved at that time. The last line explains missing functions.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = polder::Runtime::builder()
///     .on_stall(Duration::from_millis(500), |stall| {
///         if let Some(backtrace) = &stall.backtrace {
///             eprintln!("{backtrace}"); //    0: app::parse, at src/parse.rs:17:9 …
///         }
///     })
///     .build()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Requirements
///
/// The signal SIGURG interrupts the thread, and its handler copies the stack. Frames are found by
/// the unwind tables for panics, which every program has, except with `panic = "abort"` and Rust
/// before 1.92: build that with `RUSTFLAGS=-Cforce-frame-pointers=yes`. Names require a symbol
/// table, and lines debug information (`debug = "line-tables-only"`).
///
/// **The signal is visible:** some system calls return `Interrupted` (`EINTR`) after any handler,
/// such as `poll`, `epoll_wait`, `nanosleep`, and calls of sockets with a timeout: see signal(7).
/// Others, such as `read`, `accept` and `flock`, are restarted. The signal is not sent, and the
/// backtrace is empty, if the program handles or blocks SIGURG.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(docsrs, doc(cfg(feature = "stall-backtrace")))]
pub struct Backtrace(polder_stack::Trace);

impl Backtrace {
    /// Returns `None` on systems without support.
    pub(super) fn of_thread(thread: u32) -> Option<Backtrace> {
        polder_stack::of_thread(thread).map(Backtrace)
    }

    /// Returns an instruction's address for each frame, innermost first; in a caller, an address
    /// within the call instruction.
    ///
    /// ```
    /// use polder::diagnostics::Backtrace;
    ///
    /// /// For a tool that resolves names later.
    /// fn addresses(backtrace: &Backtrace) -> Vec<String> {
    ///     backtrace.addresses().iter().map(|at| format!("{at:#x}")).collect()
    /// }
    /// ```
    pub fn addresses(&self) -> &[usize] {
        &self.0.addresses
    }

    /// Returns why some or all frames are missing.
    ///
    /// ```
    /// use polder::diagnostics::Backtrace;
    ///
    /// fn log(backtrace: &Backtrace) {
    ///     if let Some(problem) = backtrace.problem() {
    ///         eprintln!("after {} frames: {problem}", backtrace.addresses().len());
    ///     }
    /// }
    /// ```
    pub fn problem(&self) -> Option<&str> {
        self.0.problem
    }
}

impl fmt::Debug for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let polder_stack::Trace { addresses, problem } = &self.0;
        write!(f, "Backtrace({addresses:#x?}, {problem:?})")
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let here = env::current_dir().ok();
        let mut lines = Lines { f, count: 0 };
        for &address in &self.0.addresses {
            let functions = polder_stack::functions(address);
            if functions.is_empty() {
                match polder_stack::object(address) {
                    Some((path, offset)) => {
                        let path = path.display();
                        lines.add(format_args!("{address:#x}, at {path}+{offset:#x}"))?;
                    }
                    None => lines.add(format_args!("{address:#x}"))?,
                }
            }
            for function in functions {
                // Callers of polder's polling function are not shown. That function itself is shown
                // only if it is first: a task's future may have been inlined into it, without a
                // line of its own in the debug information.
                let polls_by_place = polls_by_place(&function);
                if polls_by_place && lines.count > 0 {
                    return Ok(());
                }
                lines.add_function(&function, here.as_deref())?;
                if polls_by_place || polls_by_name(&function) {
                    return Ok(());
                }
            }
        }
        match self.0.problem {
            None => Ok(()),
            Some(problem) => lines.add(format_args!("{problem}")),
        }
    }
}

/// Matches the source file: with line tables alone, the name of an inlined function has no path.
fn polls_by_place(function: &Function) -> bool {
    // src/diagnostics/backtrace.rs, or its path in a dependent program.
    let source = Path::new(file!()).ancestors().nth(2);
    let source = source.unwrap_or(Path::new(""));
    let is_at = |file: &Path| {
        let polls = ["task/future.rs", "scheduler/worker.rs"];
        (polls.iter()).any(|poll| file.ends_with(source.join(poll)))
    };
    (function.place.as_ref()).is_some_and(|(file, ..)| is_at(file))
}

fn polls_by_name(function: &Function) -> bool {
    let name = function.name.trim_start_matches('<');
    let polls = ["polder::task::future::", "polder::scheduler::worker::"];
    polls.iter().any(|poll| name.starts_with(poll))
}

struct Lines<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    count: usize,
}

impl Lines<'_, '_> {
    fn add_function(&mut self, function: &Function, here: Option<&Path>) -> fmt::Result {
        let name = &function.name;
        let Some((whole, line, column)) = &function.place else {
            return self.add(format_args!("{name}"));
        };
        // As spawn sites are printed.
        let file = here.and_then(|here| whole.strip_prefix(here).ok());
        let file = file.unwrap_or(whole).display();
        match (line, column) {
            (Some(line), Some(column)) => {
                self.add(format_args!("{name}, at {file}:{line}:{column}"))
            }
            (Some(line), None) => self.add(format_args!("{name}, at {file}:{line}")),
            _ => self.add(format_args!("{name}, in {file}")),
        }
    }

    fn add(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        let (end, count) = (if self.count == 0 { "" } else { "\n" }, self.count);
        self.count += 1;
        write!(self.f, "{end}{count:>4}: {text}")
    }
}

//! Ends the program on a key or a signal, also while its loop is busy.
//!
//! Requests arrive on separate threads: one waits for signals, and one reads keys, since a terminal
//! in raw mode makes a key of Ctrl-C. Neither of them waits for the loop.
//!
//! **The first request** sets a flag. The loop reads it in each turn, restores the terminal and
//! returns. A loop that is busy, or blocked in a write to a terminal that reads nothing, does not
//! get there. So **the second request** ends the process from the thread that it arrives on. It
//! restores the terminal first, for which it allows `PATIENCE`.
//!
//! **One of the two ends the process**, the one that gets the lock `last`: the second request
//! before it discards output that was not shown, the loop when it has restored the terminal
//! ([`Ending::last`]). Otherwise the process could end after what the loop had written was
//! discarded, and before it was written again.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{LeaveAlternateScreen, disable_raw_mode};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{QueueSelector, tcflush};
use signal_hook::low_level::{emulate_default_handler, exit};

/// How long the second request waits for the terminal. Restoring one takes less than a millisecond,
/// unless it takes no output.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often a blocked write is checked meanwhile.
const TURN: Duration = Duration::from_millis(10);

/// The source of a request to end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Request {
    Key,
    /// A signal, by its number.
    Signal(i32),
}

/// The first request, if there was one.
#[derive(Default)]
pub struct Ending {
    /// 0: none. Below 0: a key. Above: the signal's number.
    first: AtomicI32,
    /// Held until the end by the one that ends the process.
    last: Mutex<()>,
}

impl Ending {
    /// Called by the loop that has restored the terminal, before the process ends. Does not return
    /// if a second request ends it.
    pub fn last(&self) {
        std::mem::forget(self.last.lock());
    }

    /// Ends the program, soon or immediately: see the module.
    pub fn request(&self, by: Request) {
        let number = match by {
            Request::Key => -1,
            Request::Signal(number) => number,
        };
        // Relaxed: only the flag is passed on.
        let first = (self.first).compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err() {
            self.last();
            end_now(by);
        }
    }

    pub fn requested(&self) -> Option<Request> {
        match self.first.load(Ordering::Relaxed) {
            0 => None,
            number @ 1.. => Some(Request::Signal(number)),
            _ => Some(Request::Key),
        }
    }
}

/// Restores the terminal: its modes first, which matter most.
///
/// # Errors
///
/// Those of writing to it.
pub fn restore() -> io::Result<()> {
    let modes = disable_raw_mode();
    execute!(io::stdout(), LeaveAlternateScreen, Show)?;
    modes
}

fn end_now(by: Request) -> ! {
    let is_locked = Arc::new(Mutex::new(false));
    let (sender, restored) = channel();
    let restorer = {
        let is_locked = is_locked.clone();
        move || {
            let _ = disable_raw_mode();
            // Kept until the process ends, so that the loop draws nothing after this.
            let _out = io::stdout().lock();
            *is_locked.lock().unwrap() = true;
            let _ = tcflush(io::stdout(), QueueSelector::OFlush);
            let _ = restore();
            let _ = sender.send(());
            loop {
                thread::park();
            }
        }
    };
    // A separate thread: if it waits for the terminal forever, the program ends nevertheless.
    let start = Instant::now();
    if thread::Builder::new().spawn(restorer).is_ok() {
        while restored.recv_timeout(TURN) == Err(RecvTimeoutError::Timeout) {
            if start.elapsed() > PATIENCE {
                break;
            }
            // Once the restorer has the lock, its own output must not be discarded.
            let is_locked = is_locked.lock().unwrap();
            if !*is_locked {
                make_room();
            }
        }
    }
    match by {
        Request::Key => exit(0),
        Request::Signal(number) => {
            let _ = emulate_default_handler(number);
            // Signals that `emulate_default_handler` ignores are not among ours.
            exit(1)
        }
    }
}

/// Ends a write of the loop that waits for room and holds the lock of standard output: output that
/// was written but never shown is discarded. On Linux the writer does not notice that until a
/// signal interrupts it. SIGWINCH has a handler, as keys are read, and no other effect.
fn make_room() {
    let _ = tcflush(io::stdout(), QueueSelector::OFlush);
    let _ = kill_process(getpid(), Signal::WINCH);
}

//! Stalls: polls that keep a worker from everything else.
//!
//! **The worker reads no clock for it.** It shows at all times how many polls it has begun, and of
//! which task the present one is (`reactor::counters`). A thread, which is there only if somebody
//! asked for it, looks at that every half of the threshold, and adds up the time between looks that
//! show the same poll. It reads no memory of a task: the id and
//! the place of its spawn are numbers that lie beside the counters.
//!
//! **No false alarms.** A worker that sleeps, polls the kernel, or drives a nested `block_on` shows
//! no poll, or another one each time. If the thread itself comes too late for a look, the process
//! was stopped, or the machine has no time for it: then the time since the look before does not
//! count.
//!
//! One thread looks after all runtimes of the process, and ends with the last of them. A child of
//! `fork` starts its own.

use std::fmt;
use std::io;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(feature = "backtrace")]
use super::backtrace::Backtrace;
use super::dump::TaskRef;
use crate::scheduler::{Remote, Shared};
use crate::spans;
use crate::sync::{Mutex, contain};
use crate::sys::{PerProcess, start_thread};

/// The shortest threshold: below, a poll that was merely interrupted by the system would count.
const MIN_STALL: Duration = Duration::from_micros(100);

/// The longest one: nobody waits for longer, and the clock can be reckoned with.
const MAX_STALL: Duration = Duration::from_secs(24 * 60 * 60);

/// A look that is late by so much, beside half of its interval, does not count the time since the
/// last one.
const MAX_LATENESS: Duration = Duration::from_millis(2);

/// A poll that takes too long, and keeps all other tasks of its worker waiting: passed to the
/// function given to [`Builder::stalls`](crate::runtime::Builder::stalls).
///
/// Printed, it is one line, followed by a line for each function of its backtrace, if there is one.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = polder::Runtime::builder()
///     .stalls(Duration::from_millis(100), |stall| match stall.has_ended {
///         false => eprintln!("worker {} is stalled by {}", stall.worker, stall.task),
///         true => eprintln!("it took {:?}", stall.lasted),
///     })
///     .build()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The worker.
    pub worker: usize,
    /// The task that is polled, or the future of `block_on`.
    pub task: TaskRef,
    /// For how long, at least. It is known as exactly as half of the threshold.
    pub lasted: Duration,
    /// The poll is over. Otherwise it goes on.
    pub has_ended: bool,
    /// What its thread did when it was looked at. `None` once it has ended, and where the system
    /// does not tell: it is known on Linux, and Android.
    pub activity: Option<Activity>,
    /// Where in the code it was then. `None` once it has ended, and where that cannot be asked: it
    /// is known on Linux, on x86-64 and aarch64.
    #[cfg(feature = "backtrace")]
    #[cfg_attr(docsrs, doc(cfg(feature = "backtrace")))]
    pub backtrace: Option<Backtrace>,
}

/// The activity of a stalled worker's thread: of [`Stall::activity`].
///
/// ```
/// use polder::diagnostics::{Activity, Stall};
///
/// fn advice(stall: &Stall) -> &'static str {
///     match &stall.activity {
///         Some(Activity::Computes) => "move it to unblock, or yield now and then",
///         Some(Activity::SystemCall { name, .. }) if name == "read" => "read by Async",
///         _ => "find out",
///     }
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Activity {
    /// It computes, or waits for a processor.
    Computes,
    /// It is in a system call: its name, or its number if it is not among the usual ones; and the
    /// descriptor, if it is of one.
    SystemCall {
        /// As in `clock_nanosleep`, or `231`.
        name: String,
        /// The descriptor.
        descriptor: Option<i32>,
    },
}

/// The poll that a worker is in: two that are equal are the same poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Beat {
    /// Each poll counts before it shows its task: so the same task with the same numbers is the
    /// same poll. (A poll that begins while this is read may be shown with the numbers before it,
    /// and is taken for another one at the next look.)
    polls: (usize, usize),
    /// The task's id, or [`MAIN_FUTURE`](crate::reactor::MAIN_FUTURE), and where it was spawned.
    task: (u64, &'static Location<'static>),
}

impl Beat {
    /// `None` if the worker is in no poll, or sleeps within one, since that drives it too.
    fn of(remote: &Remote) -> Option<Beat> {
        let counters = remote.reactor.counters();
        let polls = (counters.polls.get(), counters.main_polls.get());
        let task = counters.task()?;
        (!remote.reactor.is_parked()).then_some(Beat { polls, task })
    }
}

impl Stall {
    fn new(worker: usize, poll: &Beat, lasted: Duration, has_ended: bool) -> Stall {
        Stall {
            worker,
            task: TaskRef::new(poll.task),
            lasted,
            has_ended,
            activity: None,
            #[cfg(feature = "backtrace")]
            backtrace: None,
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall {
            worker,
            task,
            lasted,
            ..
        } = self;
        if self.has_ended {
            return write!(
                f,
                "worker {worker} goes on, after at least {lasted:.1?} in one poll of {task}"
            );
        }
        write!(
            f,
            "worker {worker} is stalled: for {lasted:.1?} it has been in one poll of {task}"
        )?;
        match &self.activity {
            None => {}
            Some(Activity::Computes) => f.write_str(", which computes")?,
            Some(Activity::SystemCall { name, descriptor }) => {
                write!(f, ", which is in the system call {name}")?;
                if let Some(descriptor) = descriptor {
                    write!(f, " (descriptor {descriptor})")?;
                }
            }
        }
        #[cfg(feature = "backtrace")]
        if let Some(backtrace) = &self.backtrace {
            write!(f, "\n{backtrace}")?;
        }
        Ok(())
    }
}

/// Whom a stall is told.
pub(crate) type Tell = Arc<dyn Fn(&Stall) + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// A runtime that is watched.
struct Watched {
    /// Weak, so that this keeps no runtime.
    shared: Weak<Shared>,
    threshold: Duration,
    tell: Tell,
    /// When it is looked at next.
    next: Instant,
    /// By worker.
    seen: Vec<Seen>,
}

/// What was seen of a worker.
struct Seen {
    /// Its poll, when it was looked at last. And when that was.
    poll: Option<Beat>,
    last: Instant,
    /// For how long, at least, it was seen in this one.
    lasted: Duration,
    told: bool,
}

#[derive(Default)]
struct Watchdog {
    /// There is a thread.
    runs: bool,
    /// Those that it has not seen yet.
    new: Vec<Watched>,
}

static WATCHDOG: PerProcess<Mutex<Watchdog>> = PerProcess::new(Mutex::default);

/// That a runtime is to be watched. Whoever makes one links the watchdog; other programs do not.
#[derive(Clone)]
pub(crate) struct Watch {
    threshold: Duration,
    tell: Tell,
    watch: fn(&Arc<Shared>, Duration, Tell) -> io::Result<()>,
}

impl Watch {
    pub(crate) fn new(threshold: Duration, tell: Tell) -> Watch {
        Watch {
            threshold,
            tell,
            watch,
        }
    }

    pub(super) fn begin(self, shared: &Arc<Shared>) -> io::Result<()> {
        (self.watch)(shared, self.threshold, self.tell)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({:?})", self.threshold)
    }
}

/// Watches a runtime from now on, until it is dropped.
pub(super) fn watch(shared: &Arc<Shared>, threshold: Duration, tell: Tell) -> io::Result<()> {
    let mut watchdog = WATCHDOG.get().lock();
    watchdog.new.push(Watched {
        shared: Arc::downgrade(shared),
        threshold: threshold.clamp(MIN_STALL, MAX_STALL),
        tell,
        next: Instant::now(),
        seen: (shared.remotes().iter()).map(|_| Seen::new(None)).collect(),
    });
    // Whoever is the first starts the thread. It gives that up under the same lock, after it has
    // seen that there is nothing new: so nobody is left to a thread that ends.
    if !watchdog.runs {
        if let Err(error) = start_thread("polder-watchdog", Box::new(run)) {
            let watched = watchdog.new.pop();
            drop(watchdog);
            drop(watched); // Foreign code, and so not under the lock.
            return Err(error);
        }
        watchdog.runs = true;
    }
    Ok(())
}

/// A new runtime waits no longer than this for its first look.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

fn run() {
    let mut all = Vec::new();
    loop {
        all.append(&mut WATCHDOG.get().lock().new);
        let (live, gone): (Vec<Watched>, Vec<Watched>) =
            (all.into_iter()).partition(|watched| watched.runtime().is_some());
        all = live;
        // Foreign code, and so not under the lock.
        for watched in gone {
            watched.end();
        }
        if all.is_empty() {
            let mut watchdog = WATCHDOG.get().lock();
            if watchdog.new.is_empty() {
                watchdog.runs = false;
                return;
            }
        }
        let mut until = Instant::now() + LONGEST_SLEEP;
        for watched in &mut all {
            if watched.next <= Instant::now() {
                watched.look();
            }
            until = until.min(watched.next);
        }
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

impl Watched {
    /// The runtime, unless it is gone. (Handles, tasks and wakers may keep its memory for longer: a
    /// `tell` that has a handle, for ever.)
    fn runtime(&self) -> Option<Arc<Shared>> {
        let shared = self.shared.upgrade()?;
        (!shared.main().reactor.is_closed()).then_some(shared)
    }

    /// The runtime is gone, and with it whatever stalled.
    fn end(self) {
        for (index, seen) in self.seen.iter().enumerate() {
            if let Some(stall) = seen.ended(index) {
                self.tell(&stall);
            }
        }
        contain(|| drop(self));
    }

    /// Foreign code: if it panics, the hook has said so, and the others are still watched.
    fn tell(&self, stall: &Stall) {
        spans::stalled(stall, stall.has_ended);
        contain(|| (self.tell)(stall));
    }

    fn look(&mut self) {
        // (No less than half: so that two of them are enough.)
        let interval = (self.threshold + Duration::from_nanos(1)) / 2;
        let mut stalls = Vec::new();
        if let Some(shared) = self.runtime() {
            let limit = interval + interval / 2 + MAX_LATENESS;
            for (index, (remote, seen)) in shared.remotes().iter().zip(&mut self.seen).enumerate() {
                // What is measured is from after the one look to before the next.
                let now = Instant::now();
                let beat = Beat::of(remote);
                if beat.is_none() || beat != seen.poll {
                    stalls.extend(seen.ended(index));
                    *seen = Seen::new(beat);
                    continue;
                }
                let Some(poll) = beat else { continue };
                let since = now.saturating_duration_since(seen.last);
                // Late: it may have been stopped meanwhile.
                if since <= limit {
                    seen.lasted += since;
                }
                seen.last = Instant::now();
                if seen.told || seen.lasted < self.threshold {
                    continue;
                }
                let mut stall = Stall::new(index, &poll, seen.lasted, false);
                stall.activity = activity(remote.thread());
                #[cfg(feature = "backtrace")]
                {
                    // (After what it does: this interrupts it.)
                    stall.backtrace = Backtrace::of_thread(remote.thread());
                }
                // It may have ended while that was asked, which then said something else.
                if Beat::of(remote) == Some(poll) {
                    seen.told = true;
                    stalls.push(stall);
                }
            }
        }
        for stall in stalls {
            self.tell(&stall);
            #[cfg(feature = "environment")]
            if let (false, Some(shared)) = (stall.has_ended, self.runtime()) {
                super::environment::write_trace_at_stall(&shared);
            }
        }
        self.next = Instant::now() + interval;
    }
}

impl Seen {
    /// A poll that was seen just now, for the first time.
    fn new(poll: Option<Beat>) -> Seen {
        Seen {
            poll,
            last: Instant::now(),
            lasted: Duration::ZERO,
            told: false,
        }
    }

    /// What is told of its end, if it was told of.
    fn ended(&self, worker: usize) -> Option<Stall> {
        let poll = self.poll.filter(|_| self.told)?;
        Some(Stall::new(worker, &poll, self.lasted, true))
    }
}

/// What a thread of this process does: proc_pid_syscall(5).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn activity(thread: u32) -> Option<Activity> {
    if thread == 0 {
        return None;
    }
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    parse_activity(&text)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn activity(_: u32) -> Option<Activity> {
    None
}

/// `running`; or `-1` and two registers, where it waits for something else than a system call; or
/// the call's number, its six arguments and the registers.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn parse_activity(text: &str) -> Option<Activity> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if matches!(first, "running" | "-1") {
        return Some(Activity::Computes);
    }
    let number: libc::c_long = first.parse().ok()?;
    let argument = words.next()?.strip_prefix("0x")?;
    let argument = u64::from_str_radix(argument, 16).ok()?;
    let (name, has_descriptor) = match SYSTEM_CALLS.iter().find(|it| it.0 == number) {
        Some((_, name, has_descriptor)) => ((*name).to_owned(), *has_descriptor),
        None => (number.to_string(), false),
    };
    Some(Activity::SystemCall {
        name,
        // (A descriptor is the lower half of a register. Below zero is the current folder.)
        descriptor: has_descriptor
            .then_some(argument as i32)
            .filter(|it| *it >= 0),
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
macro_rules! system_calls {
    ($($(#[$cfg:meta])? $name:ident $number:ident $has_descriptor:literal,)*) => {
        &[$($(#[$cfg])? (libc::$number, stringify!($name), $has_descriptor),)*]
    };
}

/// Those in which one sits for long, and whether their first argument is a descriptor. Where one is
/// missing, its number is told.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SYSTEM_CALLS: &[(libc::c_long, &str, bool)] = system_calls! {
    accept4 SYS_accept4 true,
    clock_nanosleep SYS_clock_nanosleep false,
    connect SYS_connect true,
    epoll_pwait SYS_epoll_pwait true,
    fallocate SYS_fallocate true,
    fdatasync SYS_fdatasync true,
    flock SYS_flock true,
    fsync SYS_fsync true,
    futex SYS_futex false,
    getdents64 SYS_getdents64 true,
    getrandom SYS_getrandom false,
    ioctl SYS_ioctl true,
    madvise SYS_madvise false,
    munmap SYS_munmap false,
    nanosleep SYS_nanosleep false,
    openat SYS_openat true,
    ppoll SYS_ppoll false,
    pread64 SYS_pread64 true,
    pselect6 SYS_pselect6 false,
    pwrite64 SYS_pwrite64 true,
    read SYS_read true,
    readv SYS_readv true,
    recvfrom SYS_recvfrom true,
    recvmsg SYS_recvmsg true,
    sendmsg SYS_sendmsg true,
    sendto SYS_sendto true,
    splice SYS_splice true,
    statx SYS_statx true,
    sync SYS_sync false,
    unlinkat SYS_unlinkat true,
    wait4 SYS_wait4 false,
    waitid SYS_waitid false,
    write SYS_write true,
    writev SYS_writev true,
    #[cfg(target_arch = "x86_64")]
    epoll_wait SYS_epoll_wait true,
    #[cfg(target_arch = "x86_64")]
    open SYS_open false,
    #[cfg(target_arch = "x86_64")]
    poll SYS_poll false,
    #[cfg(target_arch = "x86_64")]
    select SYS_select false,
};

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_does_is_read_from_one_line() {
        let call = |name: &str, descriptor| {
            let name = name.to_owned();
            Some(Activity::SystemCall { name, descriptor })
        };
        let line = |number: libc::c_long| {
            format!("{number} 0x7 0x0 0x0 0x0 0x0 0x0 0x7ffc1c4b8a90 0x7f2d1f5a1b2c\n")
        };
        assert_eq!(parse_activity("running\n"), Some(Activity::Computes));
        assert_eq!(parse_activity("-1 0x1 0x2\n"), Some(Activity::Computes));
        assert_eq!(
            parse_activity(&line(libc::SYS_fsync)),
            call("fsync", Some(7))
        );
        assert_eq!(parse_activity(&line(libc::SYS_futex)), call("futex", None));
        assert_eq!(parse_activity(&line(9999)), call("9999", None));
        for text in ["", "\n", "x", "1", "1 x", "1 0x"] {
            assert_eq!(parse_activity(text), None, "{text:?}");
        }
    }
}

//! The watchdog for stalls: polls that keep a worker from all other work.
//!
//! The worker reads no clock for it. Its counters show the number of polls that it has begun, and
//! the current task (`telemetry::counters`). The watchdog thread reads them every half of the
//! threshold, and adds up the time between readings that show the same poll. It reads no memory of
//! a task.
//!
//! **No false alarms.** A worker that sleeps, polls the kernel, or drives a nested `block_on` shows
//! no poll, or a different one each time. If a reading is late, the process was stopped or the
//! machine is overloaded, and the time since the previous reading does not count.
//!
//! One thread watches all runtimes of the process, and ends with the last of them. A child of
//! `fork` starts its own. Reports may take seconds: names are looked up in the debug information,
//! and foreign code is called. So another thread, started at the first stall, makes them
//! ([`Reporter`]). The watchdog itself only captures the stack, which may take a tenth of a second
//! and does not count as lateness.

use std::fmt;
use std::io;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(feature = "stall-backtrace")]
use super::backtrace::Backtrace;
use super::dump::TaskRef;
use crate::scheduler::{Remote, Shared};
use crate::spans;
use crate::sync::{Condvar, Mutex, contain};
use crate::sys::{PerProcess, start_thread};

/// Below it, a poll that the system merely interrupted would count.
const MIN_STALL: Duration = Duration::from_micros(100);

/// Keeps the clock arithmetic from overflowing.
const MAX_STALL: Duration = Duration::from_secs(24 * 60 * 60);

/// While this many are pending, new stalls are not reported, so that a slow function does not fill
/// the memory.
const MAX_PENDING: usize = 64;

/// The time since the last reading does not count if this one is late by more, plus half of the
/// interval.
const MAX_LATENESS: Duration = Duration::from_millis(2);

/// A poll that takes too long, as passed to the function of
/// [`Builder::on_stall`](crate::runtime::Builder::on_stall). Printed, it is one line, followed by
/// its backtrace, if any.
///
/// ```
/// use std::time::Duration;
///
/// let runtime = polder::Runtime::builder()
///     .on_stall(Duration::from_millis(100), |stall| {
///         if stall.has_ended {
///             eprintln!("it took {:?}", stall.lasted);
///         } else {
///             eprintln!("worker {} is stalled by {}", stall.worker, stall.task);
///         }
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
    /// A lower limit of its duration, in steps of half of the threshold.
    pub lasted: Duration,
    /// Whether the poll is over.
    pub has_ended: bool,
    /// The activity of its thread when the stall was noticed. `None` once the poll has ended, and
    /// except on Linux and Android.
    pub activity: Option<Activity>,
    /// The backtrace at that time. `None` once the poll has ended, and except on Linux on x86-64
    /// and aarch64.
    #[cfg(feature = "stall-backtrace")]
    #[cfg_attr(docsrs, doc(cfg(feature = "stall-backtrace")))]
    pub backtrace: Option<Backtrace>,
}

/// The activity of a stalled worker's thread, from [`Stall::activity`].
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
    /// It is in a system call.
    SystemCall {
        /// Its name, such as `clock_nanosleep`, or its number, such as `231`.
        name: String,
        /// The descriptor, if it has one.
        descriptor: Option<i32>,
    },
}

/// The poll that a worker is in. Equal values mean the same poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Beat {
    /// Incremented before the task is shown, so equal values mean the same poll. A poll that begins
    /// during a reading may be shown with the old numbers, and is a different one at the next
    /// reading.
    polls: (usize, usize),
    /// The task's id, or [`MAIN_FUTURE`](crate::telemetry::MAIN_FUTURE), and its spawn site.
    task: (u64, &'static Location<'static>),
}

impl Beat {
    /// Returns `None` if the worker is in no poll, or sleeps in a nested `block_on`.
    fn of(remote: &Remote) -> Option<Beat> {
        let counters = &*remote.counters;
        let polls = (counters.polls.get(), counters.main_polls.get());
        let task = counters.task()?;
        (!remote.parker.is_parked()).then_some(Beat { polls, task })
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
            #[cfg(feature = "stall-backtrace")]
            backtrace: None,
        }
    }
}

pub(super) struct Headline<'a>(pub(super) &'a Stall);

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stall = self.0;
        let (worker, task, lasted) = (stall.worker, stall.task, stall.lasted);
        if stall.has_ended {
            return write!(
                f,
                "worker {worker} recovered after at least {lasted:.1?} in one poll of {task}"
            );
        }
        write!(
            f,
            "worker {worker} is stalled: for {lasted:.1?} it has been in one poll of {task}"
        )?;
        match &stall.activity {
            None => {}
            Some(Activity::Computes) => f.write_str(", which computes")?,
            Some(Activity::SystemCall { name, descriptor }) => {
                write!(f, ", which is in the system call {name}")?;
                if let Some(descriptor) = descriptor {
                    write!(f, " (descriptor {descriptor})")?;
                }
            }
        }
        write!(f, ": {}", cure(stall.activity.as_ref()))
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Headline(self).fmt(f)?;
        #[cfg(feature = "stall-backtrace")]
        if let Some(backtrace) = &self.backtrace {
            write!(f, "\n{backtrace}")?;
        }
        Ok(())
    }
}

/// A lock, or a `block_on` within a task, shows as the call that it waits in.
fn cure(activity: Option<&Activity>) -> &'static str {
    let Some(Activity::SystemCall { name, .. }) = activity else {
        return "what takes long belongs in `polder::unblock`";
    };
    match &**name {
        "futex" => "drop a guard before the `.await`; locks and channels of threads block a task",
        "epoll_wait" | "epoll_pwait" | "io_uring_enter" => "`.await` instead of `block_on`",
        "poll" | "ppoll" | "pselect6" | "select" => {
            "`.await` instead of `block_on`; what blocks otherwise belongs in `polder::unblock`"
        }
        _ => "what blocks belongs in `polder::unblock`",
    }
}

pub(crate) type OnStall = Arc<dyn Fn(&Stall) + Send + Sync + UnwindSafe + RefUnwindSafe>;

struct Watched {
    /// Weak, so that it keeps no runtime alive.
    shared: Weak<Shared>,
    threshold: Duration,
    on_stall: OnStall,
    next: Instant,
    seen: Vec<Seen>,
}

#[derive(Default)]
struct Watchdog {
    reporter: Reporter,
    /// The total time spent on capturing stacks.
    captured: Duration,
}

/// A thread that makes the reports in order. A channel of the standard library would add 20 KB of
/// code.
#[derive(Default)]
struct Reporter {
    reports: Option<Arc<Reports>>,
}

#[derive(Default)]
struct Reports {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    reports: Vec<Report>,
    /// The number of stalls to be reported, including the current one.
    pending: usize,
    is_closed: bool,
}

impl Reports {
    fn serve(&self) {
        let mut queue = self.queue.lock();
        loop {
            if queue.reports.is_empty() {
                if queue.is_closed {
                    return;
                }
                queue = self.changed.wait(queue);
                continue;
            }
            let report = queue.reports.remove(0);
            drop(queue);
            let is_new = !report.stall.has_ended;
            report.make();
            queue = self.queue.lock();
            queue.pending -= usize::from(is_new);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if let Some(reports) = &self.reports {
            reports.queue.lock().is_closed = true;
            reports.changed.notify_one();
        }
    }
}

struct Report {
    stall: Stall,
    on_stall: OnStall,
    shared: Weak<Shared>,
}

impl Reporter {
    fn is_full(&self) -> bool {
        (self.reports.as_ref()).is_some_and(|all| all.queue.lock().pending >= MAX_PENDING)
    }

    fn pass(&mut self, report: Report) {
        if self.reports.is_none() {
            let reports = Arc::<Reports>::default();
            let served = reports.clone();
            let started = start_thread("polder-stalls", Box::new(move || served.serve()));
            self.reports = started.is_ok().then_some(reports);
        }
        match &self.reports {
            Some(reports) => {
                let mut queue = reports.queue.lock();
                queue.pending += usize::from(!report.stall.has_ended);
                queue.reports.push(report);
                reports.changed.notify_one();
            }
            None => report.make(),
        }
    }
}

impl Report {
    /// Calls foreign code. If it panics, the panic hook reports that, and later reports follow.
    fn make(self) {
        let Report {
            stall,
            on_stall,
            shared,
        } = self;
        contain(|| on_stall(&stall));
        // Without the backtrace, which takes seconds to resolve.
        spans::stalled(&Headline(&stall), stall.has_ended);
        // The destructor is foreign code, too.
        contain(|| drop(on_stall));
        #[cfg(feature = "env-diagnostics")]
        if let (false, Some(shared)) = (stall.has_ended, open(&shared)) {
            super::environment::write_trace(&shared, true);
        }
        #[cfg(not(feature = "env-diagnostics"))]
        drop(shared);
    }
}

struct Seen {
    /// Its poll at the last reading, and the time of that reading.
    poll: Option<Beat>,
    last: Instant,
    captured: Duration,
    /// A lower limit of the time spent in this poll.
    lasted: Duration,
    is_reported: bool,
}

/// The runtimes that the thread has not taken yet; `None` if it does not run.
static NEW: PerProcess<Mutex<Option<Vec<Watched>>>> = PerProcess::new(Mutex::default);

/// The request to watch a runtime. Only programs that make one link the watchdog.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(super) threshold: Duration,
    pub(super) on_stall: OnStall,
    pub(super) watch: fn(&Arc<Shared>, Duration, OnStall) -> io::Result<()>,
}

impl Watch {
    pub(crate) fn new(threshold: Duration, on_stall: OnStall) -> Watch {
        Watch {
            threshold,
            on_stall,
            watch,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({:?})", self.threshold)
    }
}

pub(super) fn watch(
    shared: &Arc<Shared>,
    threshold: Duration,
    on_stall: OnStall,
) -> io::Result<()> {
    let watched = Watched {
        shared: Arc::downgrade(shared),
        threshold: threshold.clamp(MIN_STALL, MAX_STALL),
        on_stall,
        next: Instant::now(),
        seen: (shared.remotes().iter())
            .map(|_| Seen::new(None, Duration::ZERO))
            .collect(),
    };
    // The first caller starts the thread. It exits under the same lock, after it has seen nothing
    // new, so no runtime is left to an exiting thread. On an error the lock is released before
    // `watched` is dropped, which is foreign code.
    let mut new = NEW.get().lock();
    if new.is_none() {
        start_thread("polder-watchdog", Box::new(run))?;
    }
    new.get_or_insert_default().push(watched);
    Ok(())
}

fn open(shared: &Weak<Shared>) -> Option<Arc<Shared>> {
    let shared = shared.upgrade()?;
    (!shared.main().reactor.is_closed()).then_some(shared)
}

/// The maximum time until a new runtime is first read.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

fn run() {
    let (mut all, mut watchdog) = (Vec::new(), Watchdog::default());
    loop {
        all.append(NEW.get().lock().get_or_insert_default());
        let (live, gone): (Vec<Watched>, Vec<Watched>) =
            (all.into_iter()).partition(|watched| watched.runtime().is_some());
        all = live;
        // The destructor of `on_stall` is foreign code, and runs outside the lock.
        for watched in gone {
            watched.end(&mut watchdog.reporter);
        }
        if all.is_empty() {
            let mut new = NEW.get().lock();
            if new.as_ref().is_none_or(Vec::is_empty) {
                *new = None;
                return;
            }
        }
        let mut until = Instant::now() + LONGEST_SLEEP;
        for watched in &mut all {
            if watched.next <= Instant::now() {
                watched.look(&mut watchdog);
            }
            until = until.min(watched.next);
        }
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

impl Watched {
    /// Returns the runtime, unless it was dropped. Handles, tasks and wakers may keep its memory
    /// for longer; a handle in `on_stall` keeps it forever.
    fn runtime(&self) -> Option<Arc<Shared>> {
        open(&self.shared)
    }

    /// Reports the ends of all stalls of a dropped runtime.
    fn end(self, reporter: &mut Reporter) {
        for (index, seen) in self.seen.iter().enumerate() {
            if let Some(stall) = seen.ended(index) {
                reporter.pass(self.report(stall));
            }
        }
        contain(|| drop(self));
    }

    fn report(&self, stall: Stall) -> Report {
        Report {
            stall,
            on_stall: self.on_stall.clone(),
            shared: self.shared.clone(),
        }
    }

    fn look(&mut self, watchdog: &mut Watchdog) {
        // Rounded up, so that two intervals suffice.
        let interval = (self.threshold + Duration::from_nanos(1)) / 2;
        let mut stalls = Vec::new();
        if let Some(shared) = self.runtime() {
            let limit = interval + interval / 2 + MAX_LATENESS;
            for (index, (remote, seen)) in shared.remotes().iter().zip(&mut self.seen).enumerate() {
                // Measured from after one reading to before the next.
                let now = Instant::now();
                let beat = Beat::of(remote);
                if beat.is_none() || beat != seen.poll {
                    stalls.extend(seen.ended(index));
                    *seen = Seen::new(beat, watchdog.captured);
                    continue;
                }
                let Some(poll) = beat else { continue };
                let since = now.saturating_duration_since(seen.last);
                // Otherwise it is late: the process may have been stopped.
                if since <= limit + (watchdog.captured - seen.captured) {
                    seen.lasted += since;
                }
                (seen.last, seen.captured) = (Instant::now(), watchdog.captured);
                if seen.is_reported || seen.lasted < self.threshold || watchdog.reporter.is_full() {
                    continue;
                }
                let mut stall = Stall::new(index, &poll, seen.lasted, false);
                stall.activity = activity(remote.thread());
                #[cfg(feature = "stall-backtrace")]
                {
                    // After the activity, since this interrupts the thread.
                    let start = Instant::now();
                    stall.backtrace = Backtrace::of_thread(remote.thread());
                    watchdog.captured += start.elapsed();
                }
                // If the poll has ended meanwhile, these show something else.
                if Beat::of(remote) == Some(poll) {
                    seen.is_reported = true;
                    stalls.push(stall);
                }
            }
        }
        for stall in stalls {
            watchdog.reporter.pass(self.report(stall));
        }
        self.next = Instant::now() + interval;
    }
}

impl Seen {
    fn new(poll: Option<Beat>, captured: Duration) -> Seen {
        Seen {
            poll,
            last: Instant::now(),
            captured,
            lasted: Duration::ZERO,
            is_reported: false,
        }
    }

    fn ended(&self, worker: usize) -> Option<Stall> {
        let poll = self.poll.filter(|_| self.is_reported)?;
        Some(Stall::new(worker, &poll, self.lasted, true))
    }
}

/// Returns what a thread of this process is doing: proc_pid_syscall(5).
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

/// Parses `running`; `-1` and two registers, if the thread waits outside of a system call; or the
/// call's number, six arguments and registers.
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
    let (name, has_descriptor) = match SYSTEM_CALLS.iter().find(|call| call.0 == number) {
        Some((_, name, has_descriptor)) => ((*name).to_owned(), *has_descriptor),
        None => (number.to_string(), false),
    };
    Some(Activity::SystemCall {
        name,
        // A descriptor is the lower half of a register. A negative one means the current folder.
        descriptor: has_descriptor
            .then_some(argument as i32)
            .filter(|number| *number >= 0),
    })
}

/// Calls that often block for long, and whether their first argument is a descriptor. Others are
/// reported by number.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SYSTEM_CALLS: &[(libc::c_long, &str, bool)] = &[
    (libc::SYS_accept4, "accept4", true),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", false),
    (libc::SYS_connect, "connect", true),
    (libc::SYS_epoll_pwait, "epoll_pwait", true),
    (libc::SYS_fallocate, "fallocate", true),
    (libc::SYS_fdatasync, "fdatasync", true),
    (libc::SYS_flock, "flock", true),
    (libc::SYS_fsync, "fsync", true),
    (libc::SYS_futex, "futex", false),
    (libc::SYS_getdents64, "getdents64", true),
    (libc::SYS_getrandom, "getrandom", false),
    (libc::SYS_io_uring_enter, "io_uring_enter", true),
    (libc::SYS_ioctl, "ioctl", true),
    (libc::SYS_madvise, "madvise", false),
    (libc::SYS_munmap, "munmap", false),
    (libc::SYS_nanosleep, "nanosleep", false),
    (libc::SYS_openat, "openat", true),
    (libc::SYS_ppoll, "ppoll", false),
    (libc::SYS_pread64, "pread64", true),
    (libc::SYS_pselect6, "pselect6", false),
    (libc::SYS_pwrite64, "pwrite64", true),
    (libc::SYS_read, "read", true),
    (libc::SYS_readv, "readv", true),
    (libc::SYS_recvfrom, "recvfrom", true),
    (libc::SYS_recvmsg, "recvmsg", true),
    (libc::SYS_sendmsg, "sendmsg", true),
    (libc::SYS_sendto, "sendto", true),
    (libc::SYS_splice, "splice", true),
    (libc::SYS_statx, "statx", true),
    (libc::SYS_sync, "sync", false),
    (libc::SYS_unlinkat, "unlinkat", true),
    (libc::SYS_wait4, "wait4", false),
    (libc::SYS_waitid, "waitid", false),
    (libc::SYS_write, "write", true),
    (libc::SYS_writev, "writev", true),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", true),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select", false),
];

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

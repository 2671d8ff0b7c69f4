//! The epoll backend: Linux and Android. Level, one-shot and edges; one system call per wait, and
//! one more to arm the timer for a new near deadline.
//!
//! The set contains two descriptors of polder's, both edge-triggered, so that neither need be read:
//! the notifier (an eventfd; if that is refused, a socket pair, which is read), and a timerfd, made
//! when first needed, for deadlines.
//!
//! **Timeouts.** The kernel may overrun the timeout of `epoll_wait` (and `epoll_pwait2`, since
//! 5.11) by the thread's timer slack, 50 µs by default, or, if that is more, by a thousandth of the
//! timeout (five thousandths in a niced process), at most 100 ms (`select_estimate_accuracy` in
//! Linux's fs/select.c). It does not overrun a timerfd. Far deadlines use the call's own timeout,
//! shortened, and the timerfd only for the rest: nearly every far deadline is cancelled or pushed
//! back. A foreign loop sees the timerfd ([`arm`](Epoll::arm)).
//!
//! **Clocks.** The process's clock need not be the kernel's: libfaketime shifts it, changes its
//! rate, or stops it. So the kernel is only given a *duration*, and a time of the process's clock
//! only tells whether the timerfd is armed for it already. If the rates differ, a wait may end
//! early, and the caller reads the clock again (`sys::has_kernel_clock`).
//!
//! The kernel's buffer is in the caller's [`Events`], so only the timerfd needs a lock.
//!
//! Traps:
//!
//! * `epoll_ctl` itself reports `EEXIST`, `ENOENT`, and `EPERM` for what cannot be polled.
//! * A descriptor that is closed while a duplicate of it is open stays in the set, and can no
//!   longer be removed. Hence the contract's duty to deregister first.
//! * `EPOLLHUP` and `EPOLLERR` are reported repeatedly, whatever the interest: see [`epoll_flags`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::notifier::Notifier;
use super::poll;
use crate::poller::capabilities::Capabilities;
use crate::poller::error::{failed, not_registered, registered_already, tried};
use crate::poller::event::{Event, Events, INTO_EVENTS, Mode, Ready, Token};
use crate::poller::selector::{Change, Request, Selector, WaitUntil};
use crate::sync::Mutex;
use crate::sys::{self, BorrowedDescriptor, Race, timespec};

const NOTIFIER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// The grid of the timerfd: deadlines near each other share a wake-up, and a deadline requested
/// twice, with the clock read in between, maps to the same moment. The median lateness of 100,000
/// timers within 200 ms is 14 µs; with 20 µs it is 9 µs, for a tenth more CPU time; without a grid
/// 4 µs, for half as much again (Linux 6.18).
pub(super) const TIMER_RESOLUTION: Duration = Duration::from_micros(32);

/// Timeouts from this length on use the call's own timeout, except for their last part.
const COARSE_TIMEOUT: Duration = Duration::from_millis(50);

pub(in crate::poller) struct Epoll {
    epoll: OwnedFd,
    notifier: Notifier,
    timer: Mutex<Timer>,
}

#[derive(Default)]
struct Timer {
    descriptor: Option<OwnedFd>,
    /// The moment of the first arming; the grid is the multiples of [`TIMER_RESOLUTION`] from here.
    origin: Option<Instant>,
    /// When it fires, by the process's clock.
    armed: Option<Instant>,
    /// Whether it was armed [`COARSE_TIMEOUT`] or more before its expiry, for a foreign loop. Then
    /// a wait rearms it, so that a clock that jumped meanwhile delays no wait by more than that.
    from_afar: bool,
}

impl Epoll {
    pub(in crate::poller) fn new() -> io::Result<Epoll> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| failed("epoll_create1", error))?;
        let notifier = Notifier::new()?;
        epoll::add(
            &epoll,
            notifier.descriptor(),
            EventData::new_u64(NOTIFIER),
            EventFlags::IN | EventFlags::ET,
        )
        .map_err(|error| failed("epoll_ctl", error))?;
        let made = Epoll {
            epoll,
            notifier,
            timer: Mutex::new(Timer::default()),
        };
        // Only the first poller waits on trial: a seccomp filter that refuses waits is installed
        // before the first runtime. So opening another one costs no further call.
        static HAS_WAITED: Race<()> = Race::new();
        if HAS_WAITED.get().is_none() {
            let events = &mut Events::with_capacity(1);
            let trial = made.wait_and_report(events, WaitUntil::Now, &mut { INTO_EVENTS });
            let is_proven = trial.is_ok();
            tried(trial)?;
            if is_proven {
                HAS_WAITED.get_or_init(|| ());
            }
        }
        Ok(made)
    }

    /// Makes the timerfd fire at `deadline`, rounded up to the grid. No system call if it is armed
    /// for that already and the process's clock is the kernel's.
    fn set_timer(&self, deadline: Instant, now: Instant) -> io::Result<()> {
        let timeout = deadline.saturating_duration_since(now);
        let mut timer = self.timer.lock();
        let target = round_up(*timer.origin.get_or_insert(now), deadline);
        let is_far = timeout >= COARSE_TIMEOUT;
        let is_armed = timer.armed == Some(target) && (is_far || !timer.from_afar);
        if is_armed && sys::has_kernel_clock() {
            return Ok(());
        }
        // All zero would disarm it.
        let left = timeout.saturating_add(target - deadline);
        self.arm_timer(&mut timer, left.clamp(Duration::from_nanos(1), MAX_TIMEOUT))?;
        (timer.armed, timer.from_afar) = (Some(target), is_far);
        Ok(())
    }

    /// Arms the timerfd; zero disarms it.
    fn arm_timer(&self, timer: &mut Timer, left: Duration) -> io::Result<()> {
        if cfg!(miri) {
            return Err(io::ErrorKind::Unsupported.into()); // Miri has no timerfd.
        }
        if timer.descriptor.is_none() {
            let descriptor = sys::timerfd().map_err(|error| failed("timerfd_create", error))?;
            epoll::add(
                &self.epoll,
                &descriptor,
                EventData::new_u64(TIMER),
                EventFlags::IN | EventFlags::ET,
            )?;
            timer.descriptor = Some(descriptor);
        }
        let descriptor = timer.descriptor.as_ref().expect("it was just made");
        sys::set_timerfd(descriptor, left).map_err(|error| failed("timerfd_settime", error))
    }

    /// Prepares a call that waits until `deadline`: its timeout, and what proves that the deadline
    /// has passed.
    fn prepare(&self, deadline: Instant, now: Instant) -> (Option<Duration>, Proof) {
        let timeout = deadline.saturating_duration_since(now);
        if timeout >= COARSE_TIMEOUT {
            return (Some(shortened(timeout)), Proof::Never); // It ends before that.
        }
        match self.set_timer(deadline, now) {
            Ok(()) => (None, Proof::Fired),
            // Without a descriptor for the timer, whole milliseconds have to suffice.
            Err(_) => (Some(in_millis(timeout)), Proof::TimedOut),
        }
    }

    /// [`Selector::wait`], which hands the events to `report`, if there is one, and returns `None`
    /// if the wait has ended for nothing: a stale timer, or a part of the timeout. (A signal is
    /// `Interrupted`.)
    #[inline(always)]
    pub(in crate::poller) fn wait_and_report(
        &self,
        events: &mut Events,
        until: WaitUntil,
        report: &mut Option<impl FnMut(Token, Ready)>,
    ) -> io::Result<Option<bool>> {
        const ZERO: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let prepared;
        let (timeout, proof) = match until {
            WaitUntil::Forever => (None, Proof::Never),
            WaitUntil::Now => (Some(&ZERO), Proof::Always),
            WaitUntil::At { deadline, now } => {
                let (timeout, proof) = self.prepare(deadline, now);
                prepared = timeout.map(timespec);
                (prepared.as_ref(), proof)
            }
        };
        let limit = events.limit();
        let buffer = &mut events.epoll_buffer.0;
        if buffer.is_empty() {
            buffer.resize_with(limit, MaybeUninit::uninit);
        }
        // Events of the notifier and the timer take places too; the kernel keeps what does not fit.
        let (reported, _) = epoll::wait(&self.epoll, buffer, timeout)
            .map_err(|error| failed("epoll_pwait", error))?;
        let (is_empty, is_full) = (reported.is_empty(), reported.len() == limit);
        let (mut is_found, mut is_notified, mut has_fired) = (false, false, false);
        for event in reported {
            match event.data.u64() {
                NOTIFIER => is_notified |= self.notifier.acknowledge(),
                TIMER => has_fired = true,
                token => {
                    is_found = true;
                    let (token, ready) = (Token(token), ready(event.flags));
                    match report {
                        Some(report) => report(token, ready),
                        None => events.list.push(Event::new(token, ready)),
                    }
                }
            }
        }
        if has_fired {
            self.timer.lock().armed = None;
        }
        if is_full {
            // See `Notifier::reset`.
            is_notified |= self.notifier.reset();
        }
        let is_over = match proof {
            Proof::Never => false,
            Proof::Always => true,
            Proof::Fired => has_fired,
            Proof::TimedOut => is_empty,
        };
        if !(is_over || is_notified || is_found) {
            // A stale timer has fired, or a part of the timeout has elapsed.
            return Ok(None);
        }
        Ok(Some(is_over))
    }
}

/// The proof, at the end of a call, that the deadline has passed. Otherwise the caller reads the
/// clock.
enum Proof {
    Never,
    Always,
    /// The timerfd has fired.
    Fired,
    TimedOut,
}

impl Selector for Epoll {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            granularity: TIMER_RESOLUTION,
            ..Capabilities::ALL
        }
    }

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
        let data = |request: Request| EventData::new_u64(request.token.0);
        let result = match change {
            Change::Register(request) => {
                epoll::add(&self.epoll, descriptor, data(request), epoll_flags(request))
            }
            Change::Modify(request) => {
                epoll::modify(&self.epoll, descriptor, data(request), epoll_flags(request))
            }
            Change::Deregister => epoll::delete(&self.epoll, descriptor),
        };
        result.map_err(|error| match (change, error) {
            (Change::Register(_), Errno::EXIST) => registered_already(),
            // `EPERM`: a file that could not be in the set.
            (Change::Modify(_) | Change::Deregister, Errno::NOENT | Errno::PERM) => {
                not_registered()
            }
            (_, other) => other.into(),
        })
    }

    fn wait(&self, events: &mut Events, until: WaitUntil) -> io::Result<bool> {
        self.wait_and_report(events, until, &mut { INTO_EVENTS })?
            .ok_or_else(|| Errno::INTR.into())
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }

    fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        Ok(self.epoll.as_fd())
    }

    fn arm(&self, until: WaitUntil) -> io::Result<()> {
        let left = match until {
            WaitUntil::At { deadline, now } => return self.set_timer(deadline, now),
            WaitUntil::Now => Duration::from_nanos(1),
            WaitUntil::Forever => Duration::ZERO, // Disarms it.
        };
        let mut timer = self.timer.lock();
        match (timer.armed.take(), until) {
            (None, WaitUntil::Forever) => Ok(()),
            _ => self.arm_timer(&mut timer, left),
        }
    }

    fn refuses_files(&self) -> bool {
        true
    }
}

/// Returns the flags to ask the kernel for. It always adds `EPOLLHUP` and `EPOLLERR`, except for a
/// one-shot source that was reported. So that a hang-up without a waiter does not end every wait,
/// an empty interest is one-shot in any mode but edges, which report a hang-up once.
fn epoll_flags(request: Request) -> EventFlags {
    let mode = match request.mode {
        Mode::Level if request.interest.is_empty() => EventFlags::ONESHOT,
        Mode::Level => EventFlags::empty(),
        Mode::OneShot => EventFlags::ONESHOT,
        Mode::Edge => EventFlags::ET,
    };
    let asked = poll::poll_flags(request.interest);
    // The bits are those of `poll(2)`, except for `RDHUP` on SPARC.
    let mut flags = EventFlags::from_bits_retain((asked - PollFlags::RDHUP).bits() as u32);
    flags.set(EventFlags::RDHUP, asked.contains(PollFlags::RDHUP));
    mode | flags
}

#[inline]
fn ready(flags: EventFlags) -> Ready {
    let mut polled = PollFlags::from_bits_retain((flags - EventFlags::RDHUP).bits() as _);
    polled.set(PollFlags::RDHUP, flags.contains(EventFlags::RDHUP));
    poll::ready(polled)
}

/// The longest timeout of the timerfd: 100 years, well within the kernel's arithmetic.
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the first moment of the grid from `end` on. A clock that was set back may be before
/// `origin`.
pub(super) fn round_up(origin: Instant, end: Instant) -> Instant {
    let past = |distance: Duration| distance.subsec_nanos() % TIMER_RESOLUTION.subsec_nanos();
    let missing = match end.checked_duration_since(origin) {
        Some(after) => {
            (TIMER_RESOLUTION.subsec_nanos() - past(after)) % TIMER_RESOLUTION.subsec_nanos()
        }
        None => past(origin - end),
    };
    let missing = Duration::from_nanos(missing.into());
    end.checked_add(missing).unwrap_or(end)
}

/// Subtracts the greatest possible overrun and a millisecond. An idle kernel overruns by a
/// thousandth, if the process is not niced. So from 12 s to 50 s the rest is [`COARSE_TIMEOUT`] or
/// more, and is waited for in two calls.
fn shortened(timeout: Duration) -> Duration {
    const MILLISECOND: Duration = Duration::from_millis(1);
    const LARGEST_SLACK: Duration = Duration::from_millis(100);
    whole_millis(timeout - (timeout / 200).min(LARGEST_SLACK) - MILLISECOND)
}

/// Rounds up.
fn in_millis(timeout: Duration) -> Duration {
    whole_millis(timeout + Duration::from_nanos(999_999))
}

/// Truncates to whole milliseconds, saturating at `i32::MAX`.
fn whole_millis(timeout: Duration) -> Duration {
    Duration::from_millis(timeout.as_millis().min(i32::MAX as u128) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timeouts are not early and a timer that is left over ends no wait.
    #[test]
    fn timeouts_not_early_leftover_timer_ignored() {
        let poller = crate::poller::Poller::new(crate::Backend::Epoll).unwrap();
        let mut events = Events::new();
        let mut wait = |micros| {
            let timeout = Duration::from_micros(micros);
            let start = Instant::now();
            assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
            (start.elapsed(), timeout)
        };
        for micros in [1, 300, 1_500, 700, 2_250] {
            let (took, timeout) = wait(micros);
            assert!(took >= timeout, "early for {timeout:?}: {took:?}");
        }
        poller.notify().unwrap();
        let (took, _) = wait(60_000_500);
        assert!(took < Duration::from_secs(30), "the notification was lost");
        // The notification ends the first wait, and leaves the timer armed for it.
        for micros in [500, 0, 2_000, 1_000] {
            poller.notify().unwrap();
            wait(micros);
            let (took, timeout) = wait(1_000);
            assert!(took >= timeout, "early for {timeout:?}: {took:?}");
        }
    }

    /// A long timeout is neither early nor overdrawn by the call.
    #[test]
    fn long_timeout_exact_by_call() {
        let poller = crate::poller::Poller::new(crate::Backend::Epoll).unwrap();
        let mut events = Events::new();
        for timeout in [
            COARSE_TIMEOUT,
            COARSE_TIMEOUT * 2 + Duration::from_micros(1),
        ] {
            let start = Instant::now();
            assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
            assert!(start.elapsed() >= timeout, "early for {timeout:?}");
        }
        for timeout in [COARSE_TIMEOUT, Duration::from_secs(1), Duration::MAX] {
            let call = shortened(timeout);
            let overdrawn =
                (call / 200).clamp(Duration::from_micros(50), Duration::from_millis(100));
            assert!(call + overdrawn < timeout, "{timeout:?} would be late");
        }
        assert_eq!(shortened(Duration::MAX).as_millis(), i32::MAX as u128);
    }

    /// A short timeout in milliseconds is never shorter.
    #[test]
    fn short_timeout_in_ms_not_shorter() {
        assert_eq!(in_millis(Duration::from_nanos(1)).as_millis(), 1);
        assert_eq!(in_millis(Duration::from_millis(7)).as_millis(), 7);
        assert_eq!(in_millis(COARSE_TIMEOUT), COARSE_TIMEOUT);
    }

    /// A wait ends on time with any changes of the clock.
    ///
    /// A preload library shifts the process's clock, unknown to the kernel.
    #[test]
    fn wait_ends_on_time_despite_clock() {
        let epoll = Epoll::new().unwrap();
        let mut events = Events::new();
        let (day, now) = (Duration::from_secs(24 * 3600), Instant::now());
        let clocks = [Some(now), now.checked_add(day), now.checked_sub(day)];
        for clock in clocks.into_iter().flatten() {
            // The last clock is stopped.
            for micros in [1, 3_000, 700, 20_000, 700, 700] {
                let timeout = Duration::from_micros(micros);
                let start = Instant::now();
                let deadline = clock + timeout;
                let until = WaitUntil::At {
                    deadline,
                    now: clock,
                };
                let result = epoll.wait(&mut events, until);
                let took = start.elapsed();
                match result {
                    Ok(passed) => {
                        assert!(passed, "nothing else ends it");
                        assert!(took >= timeout, "early for {timeout:?}: {took:?}");
                    }
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::Interrupted),
                }
                assert!(took < Duration::from_secs(30), "{timeout:?} took {took:?}");
            }
        }
    }

    /// A clock that jumps makes no wait longer than it was asked for.
    #[test]
    fn clock_jump_does_not_prolong_wait() {
        let epoll = Epoll::new().unwrap();
        let mut events = Events::new();
        let now = Instant::now();
        let timeout = Duration::from_millis(1);
        for jump in [3600, 7200, 0, 1800].map(Duration::from_secs) {
            let end = now + jump + timeout;
            let start = Instant::now();
            // As for a foreign loop.
            epoll.set_timer(end, now).unwrap();
            let until = WaitUntil::At {
                deadline: end,
                now: now + jump,
            };
            while epoll.wait(&mut events, until).is_err() {}
            assert!(start.elapsed() >= timeout);
            assert!(start.elapsed() < Duration::from_secs(30));
        }
    }

    /// The grid is the same before and after its origin and never early.
    #[test]
    fn grid_same_around_origin_never_early() {
        let origin = Instant::now();
        let second = Duration::from_secs(1);
        for nanos in [0, 1, 31_999, 32_000, 32_001, 999_999_999] {
            let after = Duration::from_nanos(nanos);
            for end in [origin + after, origin - after, origin - second + after] {
                let target = round_up(origin, end);
                assert!(target >= end && target - end < TIMER_RESOLUTION);
                let distance = target.max(origin) - target.min(origin);
                assert_eq!(distance.as_nanos() % TIMER_RESOLUTION.as_nanos(), 0);
                assert_eq!(round_up(origin, target), target);
            }
        }
    }

    /// Asking again for the same moment arms the timer once.
    #[test]
    fn same_deadline_arms_timer_once() {
        let epoll = Epoll::new().unwrap();
        let now = Instant::now();
        let end = now + Duration::from_secs(60);
        epoll.set_timer(end, now).unwrap();
        let timer = epoll.timer.lock().descriptor.as_ref().unwrap().try_clone();
        let timer = timer.unwrap();
        // Disarmed in the kernel, unknown to the poller: it stays disarmed.
        sys::set_timerfd(&timer, Duration::ZERO).unwrap();
        epoll.set_timer(end, now).unwrap();
        let left = rustix::time::timerfd_gettime(&timer).unwrap().it_value;
        assert_eq!((left.tv_sec, left.tv_nsec), (0, 0), "armed a second time");
        epoll
            .set_timer(end + TIMER_RESOLUTION, now + TIMER_RESOLUTION)
            .unwrap();
        let left = rustix::time::timerfd_gettime(&timer).unwrap().it_value;
        assert!((left.tv_sec, left.tv_nsec) > (0, 0), "not armed");
    }
}

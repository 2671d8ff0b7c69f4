//! `epoll(7)`: Linux and Android. Level, one-shot and edges; one system call a wait.
//!
//! Two descriptors of our own live in the set, both watched for edges, so that neither is ever
//! read: an eventfd for notifications, and a timerfd, made on first need, for the two things that
//! `epoll_wait` cannot do, deadlines that a foreign loop can see ([`arm`](Epoll::arm)) and
//! sub-millisecond timeouts on kernels before 5.11, which lack `epoll_pwait2`.
//!
//! The kernel writes to a buffer that comes with the caller's [`Events`], and its set is all the shared
//! state there is: nothing here needs a lock but the timerfd.
//!
//! What is hidden here:
//!
//! * `epoll_ctl` tells a duplicate (`EEXIST`), an unknown descriptor (`ENOENT`) and one that cannot
//!   be waited for (`EPERM`) by itself.
//! * A descriptor that is closed while a duplicate of it lives on stays in the set, and can no
//!   longer be removed. Hence the contract's duty to deregister first.
//! * `EPOLLHUP` and `EPOLLERR` come unasked, again and again: see [`flags`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::notifier::Notifier;
use super::{
    BorrowedDescriptor, Capabilities, Event, Events, Interest, Mode, Ready, Selector, Token,
};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::{precise_time, timespec};

const NOTIFIER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// How far a timerfd that is armed already may be from the deadline that is asked for and still
/// serve (kernels before 5.11 only): two readings of the clock lie between the two.
const TIMER_TOLERANCE: Duration = Duration::from_micros(50);

pub(super) struct Epoll {
    epoll: OwnedFd,
    notifier: Notifier,
    timer: Mutex<Timer>,
    /// Whether the kernel has `epoll_pwait2` (5.11). True until it says otherwise; false on Android,
    /// whose filter of system calls traps what apps are not known to need instead of saying no.
    pwait2: AtomicBool,
}

/// Where the kernel writes events.
#[derive(Default)]
pub(super) struct Buffer(Vec<MaybeUninit<epoll::Event>>);

// SAFETY: what keeps an event on its thread is that rustix lets its data be a pointer. All of ours
// were made from integers and are read as such.
unsafe impl Send for Buffer {}

// SAFETY: as above; and nothing of it can be reached through a shared reference.
unsafe impl Sync for Buffer {}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("room", &self.0.len())
            .finish()
    }
}

#[derive(Default)]
struct Timer {
    descriptor: Option<OwnedFd>,
    /// When it fires, on the monotonic clock.
    armed: Option<Duration>,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let notifier = Notifier::new()?;
        epoll::add(
            &epoll,
            notifier.descriptor(),
            EventData::new_u64(NOTIFIER),
            EventFlags::IN | EventFlags::ET,
        )?;
        Ok(Epoll {
            epoll,
            notifier,
            timer: Mutex::new(Timer::default()),
            pwait2: AtomicBool::new(!cfg!(target_os = "android")),
        })
    }

    /// Makes the timerfd fire after `timeout`, or not at all. Costs a system call only where that
    /// is news.
    fn set_timer(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut timer = self.timer.lock();
        if timeout.is_none() && timer.armed.is_none() {
            return Ok(());
        }
        let target = timeout.map(|timeout| now().saturating_add(timeout));
        if let (Some(target), Some(armed)) = (target, timer.armed) {
            if target.abs_diff(armed) <= TIMER_TOLERANCE {
                return Ok(());
            }
        }
        if timer.descriptor.is_none() {
            let descriptor = timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?;
            epoll::add(
                &self.epoll,
                &descriptor,
                EventData::new_u64(TIMER),
                EventFlags::IN | EventFlags::ET,
            )?;
            timer.descriptor = Some(descriptor);
        }
        let descriptor = timer.descriptor.as_ref().expect("it was just made");
        timerfd_settime(
            descriptor,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: timespec(Duration::ZERO),
                // All zero would disarm it.
                it_value: target.map_or(timespec(Duration::ZERO), |target| {
                    timespec(target.clamp(Duration::from_nanos(1), LONGEST))
                }),
            },
        )?;
        timer.armed = target;
        Ok(())
    }

    /// The system call, with whatever timeout the kernel can be asked for.
    fn wait_once<'b>(
        &self,
        buffer: &'b mut [MaybeUninit<epoll::Event>],
        timeout: Option<Duration>,
    ) -> io::Result<&'b mut [epoll::Event]> {
        let Some(timeout) = timeout else {
            return Ok(epoll::wait(&self.epoll, buffer, None)?.0);
        };
        if timeout.subsec_nanos() % 1_000_000 == 0 && timeout.as_millis() <= i32::MAX as u128 {
            return Ok(epoll::wait(&self.epoll, buffer, Some(&timespec(timeout)))?.0);
        }
        let timeout = timeout.min(LONGEST);
        if self.pwait2.load(Ordering::Relaxed) {
            // libc's function of that name came later than the kernel's, so it is called by
            // number.
            //
            // SAFETY: the kernel writes at most as many events as there is room for, and their
            // type has the layout of `struct epoll_event` (rustix passes the same one); it reads
            // a `__kernel_timespec`, two 64-bit integers; there is no signal mask.
            let result = unsafe {
                let spec: [i64; 2] = [timeout.as_secs() as i64, timeout.subsec_nanos().into()];
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.epoll.as_raw_fd(),
                    buffer.as_mut_ptr(),
                    buffer.len().min(i32::MAX as usize),
                    spec.as_ptr(),
                    std::ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            };
            if let Ok(ready) = usize::try_from(result) {
                let written = &mut buffer[..ready];
                // SAFETY: the kernel has written these, and `MaybeUninit` changes no layout.
                return Ok(unsafe { &mut *(std::ptr::from_mut(written) as *mut [epoll::Event]) });
            }
            match Errno::from_io_error(&io::Error::last_os_error()) {
                // EPERM is what older seccomp profiles of containers answer for what they do not
                // know.
                Some(Errno::NOSYS | Errno::PERM) => self.pwait2.store(false, Ordering::Relaxed),
                Some(error) => return Err(error.into()),
                None => return Err(io::Error::last_os_error()),
            }
        }
        // The timerfd is the timeout. When it fires for this wait, or is left over from an earlier
        // one, the caller comes round with what is left.
        self.set_timer(Some(timeout))?;
        Ok(epoll::wait(&self.epoll, buffer, None)?.0)
    }
}

impl Selector for Epoll {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: true,
            one_shot: true,
            edge: true,
            hints: true,
            descriptor: true,
            granularity: Duration::from_nanos(1),
        }
    }

    fn register(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let data = EventData::new_u64(token.0);
        epoll::add(&self.epoll, descriptor, data, flags(interest, mode)).map_err(
            |error| match error {
                Errno::EXIST => super::registered_already(),
                other => other.into(),
            },
        )
    }

    fn modify(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let data = EventData::new_u64(token.0);
        epoll::modify(&self.epoll, descriptor, data, flags(interest, mode)).map_err(unknown)
    }

    fn deregister(&self, descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
        epoll::delete(&self.epoll, descriptor).map_err(unknown)
    }

    fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let limit = events.limit();
        let Events { list, kernel, .. } = events;
        let buffer = &mut kernel.0;
        if buffer.is_empty() {
            buffer.resize_with(limit, MaybeUninit::uninit);
        }
        // Our own two descriptors take their places among the others; what does not fit this time
        // the kernel keeps for the next.
        let reported = self.wait_once(buffer, timeout)?;
        let mut fired = false;
        let mut notified = false;
        for event in reported {
            match event.data.u64() {
                NOTIFIER => notified |= self.notifier.acknowledge(),
                TIMER => fired = true,
                token => list.push(Event::new(Token(token), ready(event.flags))),
            }
        }
        if fired {
            let mut timer = self.timer.lock();
            if timer.armed.is_some_and(|armed| armed <= now()) {
                timer.armed = None;
            }
            if list.is_empty() && !notified {
                return Err(Errno::INTR.into());
            }
        }
        Ok(())
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }

    fn descriptor(&self) -> Option<BorrowedDescriptor<'_>> {
        Some(self.epoll.as_fd())
    }

    fn arm(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_timer(timeout)
    }
}

/// What the kernel is asked for. It adds `EPOLLHUP` and `EPOLLERR` to whatever that is, except for
/// a one-shot source that was reported; so that an end for which nobody waits does not end every
/// wait, an empty interest is one-shot in any mode but edges, which report an end once anyway.
fn flags(interest: Interest, mode: Mode) -> EventFlags {
    let mut flags = match mode {
        Mode::Level if interest.is_empty() => EventFlags::ONESHOT,
        Mode::Level => EventFlags::empty(),
        Mode::OneShot => EventFlags::ONESHOT,
        Mode::Edge => EventFlags::ET,
    };
    if interest.contains(Interest::READABLE) {
        flags |= EventFlags::IN | EventFlags::RDHUP;
    }
    if interest.contains(Interest::WRITABLE) {
        flags |= EventFlags::OUT;
    }
    if interest.contains(Interest::PRIORITY) {
        flags |= EventFlags::PRI;
    }
    flags
}

#[inline]
fn ready(flags: EventFlags) -> Ready {
    let mut ready = Ready::default();
    if flags.intersects(EventFlags::IN) {
        ready |= Ready::READABLE;
    }
    if flags.intersects(EventFlags::OUT) {
        ready |= Ready::WRITABLE;
    }
    if flags.intersects(EventFlags::RDHUP) {
        ready |= Ready::READABLE | Ready::CLOSED;
    }
    if flags.intersects(EventFlags::HUP) {
        ready |= Ready::READABLE | Ready::WRITABLE | Ready::CLOSED;
    }
    if flags.intersects(EventFlags::ERR) {
        ready |= Ready::READABLE | Ready::WRITABLE | Ready::ERROR;
    }
    if flags.intersects(EventFlags::PRI) {
        ready |= Ready::READABLE | Ready::PRIORITY;
    }
    ready
}

/// What changing or removing a descriptor that is not in the set says. Of a file that could not be
/// in it the kernel says that it cannot (`EPERM`): then it is not.
fn unknown(error: Errno) -> io::Error {
    match error {
        Errno::NOENT | Errno::PERM => super::not_registered(),
        other => other.into(),
    }
}

/// The longest timeout that is passed on: what lies beyond is as good as never, and stays clear of
/// what the kernel's own arithmetic can hold.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// By libc's clock, as all the rest of the program: rustix brings one of its own.
fn now() -> Duration {
    precise_time().expect("Linux has a monotonic clock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Kernels before 5.11 are not at hand, so the way that they take is taken on purpose.
    #[test]
    fn without_pwait2_timeouts_are_neither_early_nor_a_millisecond_late_for_it() {
        let epoll = Epoll::new().unwrap();
        epoll.pwait2.store(false, Ordering::Relaxed);
        let poller = super::super::Poller::with(crate::Backend::Epoll, Box::new(epoll));
        let mut events = Events::new();
        for micros in [1, 300, 1_500, 700, 2_250] {
            let timeout = Duration::from_micros(micros);
            let start = Instant::now();
            assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
            assert!(start.elapsed() >= timeout, "early for {timeout:?}");
        }
        poller.notify().unwrap();
        let start = Instant::now();
        poller
            .wait(&mut events, Some(Duration::from_micros(60_000_500)))
            .unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "the notification was lost"
        );
        // The timer that is left over from that wait ends no later one.
        let timeout = Duration::from_micros(500);
        let start = Instant::now();
        poller.wait(&mut events, Some(timeout)).unwrap();
        assert!(start.elapsed() >= timeout);
    }
}

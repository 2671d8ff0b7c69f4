//! Unix, where a descriptor is a file descriptor.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

#[cfg(any(target_os = "linux", target_os = "android"))]
use super::Race;
use super::{AsDescriptor, AsRawDescriptor};

mod fork;
#[cfg(test)]
#[allow(unused_imports, reason = "not every build has the tests that lock it")]
pub(crate) use fork::tests::{CHILDREN, in_child};
pub(crate) use fork::{Process, at_fork};
pub(crate) mod local;
mod rights;
pub(crate) use rights::has_foreign_rights;
#[cfg(feature = "net")]
mod net;
#[cfg(feature = "net")]
pub(crate) use net::*;

pub(crate) use std::os::fd::{
    BorrowedFd as BorrowedDescriptor, OwnedFd as OwnedDescriptor, RawFd as RawDescriptor,
};

impl<T: AsFd> AsDescriptor for T {
    fn as_descriptor(&self) -> BorrowedDescriptor<'_> {
        self.as_fd()
    }
}

impl<T: AsRawFd> AsRawDescriptor for T {
    fn as_raw_descriptor(&self) -> RawDescriptor {
        self.as_raw_fd()
    }
}

/// Implements the platform's traits: `lend_descriptor!([generics] type, |it| descriptor)`.
macro_rules! lend_descriptor {
    ([$($generics:tt)*] $type:ty, |$it:ident| $descriptor:expr) => {
        impl<$($generics)*> std::os::fd::AsFd for $type {
            #[inline]
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                let $it = self;
                $descriptor
            }
        }

        impl<$($generics)*> std::os::fd::AsRawFd for $type {
            #[inline]
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                let $it = self;
                std::os::fd::AsRawFd::as_raw_fd(&$descriptor)
            }
        }
    };
}
pub(crate) use lend_descriptor;

/// Converts a timeout. rustix rounds up if the call takes only milliseconds or microseconds.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as _,
        tv_nsec: duration.subsec_nanos() as _,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn timerfd() -> rustix::io::Result<OwnedDescriptor> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags)
}

/// Arms the timer, regardless of its state; zero disarms it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn set_timerfd(timer: &OwnedDescriptor, left: Duration) -> rustix::io::Result<()> {
    use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};

    let value = Itimerspec {
        it_interval: timespec(Duration::ZERO),
        it_value: timespec(left),
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &value).map(drop)
}

/// Whether `Instant` reads the kernel's own clock, so that a deadline has passed once the kernel
/// reports that its timeout has elapsed. Not so if a preloaded library (libfaketime) replaces the C
/// library's clock, even if it agrees with the kernel's for a while. The first answer is kept;
/// `false` if unknown.
#[inline]
pub(crate) fn has_kernel_clock() -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        static IS_KERNELS: Race<bool> = Race::new();
        // Miri has no timerfd.
        *IS_KERNELS.get_or_init(|| {
            !cfg!(miri) && is_c_librarys_clock() && is_kernels_clock().unwrap_or(false)
        })
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    false
}

/// Whether `clock_gettime` is the C library's or this program's own, so that its source never
/// changes.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_c_librarys_clock() -> bool {
    use std::ffi::CStr;

    /// Returns the base address and the file name of the function's object.
    fn object_of(function: *const libc::c_void) -> Option<(usize, &'static [u8])> {
        // SAFETY: an all-zero `Dl_info` is valid, and is filled in.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the address is only looked up.
        if unsafe { libc::dladdr(function, &mut info) } == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: a pathname (dladdr(3)), valid as long as the object, which is not unloaded.
        let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
        let name = path.rsplit(|&byte| byte == b'/').next()?;
        Some((info.dli_fbase as usize, name))
    }

    // A statically linked program (musl) finds no object, and cannot preload one.
    let Some((our_base, _)) = object_of(is_c_librarys_clock as *const libc::c_void) else {
        return true;
    };
    let clocks = object_of(libc::clock_gettime as *const libc::c_void);
    clocks.is_some_and(|(base, name)| {
        let is_known = ["libc.", "libc-", "ld-musl", "linux-vdso"];
        is_known
            .iter()
            .any(|known| name.starts_with(known.as_bytes()))
            || our_base == base
    })
}

/// Asks a timerfd for the time left until an absolute time, which depends on the kernel's clock
/// alone. rustix's `clock_gettime` crashes under valgrind, which hides the vDSO.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_kernels_clock() -> rustix::io::Result<bool> {
    use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_gettime, timerfd_settime};

    /// Later than any uptime, and within the kernel's 64 bits of nanoseconds (292 years).
    const FAR: Duration = Duration::from_secs(250 * 365 * 24 * 3_600);

    let timer = timerfd()?;
    let far = Itimerspec {
        it_interval: timespec(Duration::ZERO),
        it_value: timespec(FAR),
    };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &far)?;
    let kernel = || {
        let left = timerfd_gettime(&timer)?.it_value;
        let left = Duration::new(left.tv_sec as u64, left.tv_nsec as u32);
        rustix::io::Result::Ok(FAR.saturating_sub(left))
    };
    let (before, process, after) = (kernel()?, time_of(libc::CLOCK_MONOTONIC), kernel()?);
    Ok(process.is_some_and(|process| (before..=after).contains(&process)))
}

/// Returns `None` if the clock's thread has exited.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn time_of(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one `timespec` is written.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The bound of public functions that take a type with a descriptor.
pub(crate) use std::os::fd::AsFd as HasDescriptor;

/// Returns the number of readable bytes, if the system reports it.
pub(crate) fn readable_bytes(descriptor: &impl AsFd) -> Option<u64> {
    rustix::io::ioctl_fionread(descriptor).ok()
}

/// Whether a read, or a write, would not block now, regardless of earlier events. Errors and
/// hang-ups count as ready.
pub(crate) fn is_ready(descriptor: &impl AsFd, to_write: bool) -> io::Result<bool> {
    match poll_now(descriptor, poll_flag(to_write))? {
        #[cfg(target_vendor = "apple")]
        ready if ready.contains(PollFlags::NVAL) => select_now(descriptor, to_write),
        #[cfg(not(target_vendor = "apple"))]
        ready if ready.contains(PollFlags::NVAL) => Err(Errno::BADF.into()),
        ready => Ok(!ready.is_empty()),
    }
}

fn poll_flag(to_write: bool) -> PollFlags {
    if to_write {
        PollFlags::OUT
    } else {
        PollFlags::IN
    }
}

/// [`is_ready`] by `select(2)`. Apple's `poll` uses a kqueue, and reports descriptors that a kqueue
/// cannot watch, such as `/dev/tty`, as invalid (xnu, `poll_nocancel`).
#[cfg(any(target_vendor = "apple", all(test, target_os = "linux")))]
fn select_now(descriptor: &impl AsFd, to_write: bool) -> io::Result<bool> {
    use rustix::event::{FdSetElement, fd_set_insert, fd_set_num_elements, select};

    let number = descriptor.as_fd().as_raw_fd();
    let count = rustix::io::retry_on_intr(|| {
        let mut set = vec![FdSetElement::default(); fd_set_num_elements(1, number + 1)];
        fd_set_insert(&mut set, number);
        let (read, write) = if to_write {
            (None, Some(&mut set[..]))
        } else {
            (Some(&mut set[..]), None)
        };
        // SAFETY: the set holds one descriptor, which is open while it is lent.
        unsafe {
            select(
                number + 1,
                read,
                write,
                None,
                Some(&timespec(Duration::ZERO)),
            )
        }
    })?;
    Ok(count > 0)
}

/// Whether there are bytes to read although a read would block. At TCP's urgent mark, while a
/// signal is pending, Linux returns `EAGAIN` even with bytes behind the mark (`tcp_recvmsg`), and
/// no edge follows. `poll` checks the bytes.
#[cold]
pub(crate) fn is_readable_after_all(socket: &impl AsFd) -> bool {
    cfg!(any(target_os = "linux", target_os = "android")) && is_now(socket, PollFlags::IN)
}

fn is_now(descriptor: &impl AsFd, what: PollFlags) -> bool {
    poll_now(descriptor, what).is_ok_and(|ready| ready.contains(what))
}

/// Calls `poll(2)`. Even a timeout of zero may be interrupted.
pub(crate) fn poll_now(descriptor: &impl AsFd, wanted: PollFlags) -> io::Result<PollFlags> {
    let mut asked = [PollFd::new(descriptor, wanted)];
    let at_once = timespec(Duration::ZERO);
    match rustix::io::retry_on_intr(|| rustix::event::poll(&mut asked, Some(&at_once))) {
        // poll(2) of macOS and illumos, short of memory: the attempt decides.
        Err(Errno::AGAIN) => Ok(wanted),
        result => Ok(result.map(|_| asked[0].revents())?),
    }
}

/// Returns whether an operation would not block within `limit`; `None` if `value` is not one of the
/// standard library's types with a descriptor.
pub(crate) fn wait_for_value(value: &dyn Any, to_write: bool, limit: Duration) -> Option<bool> {
    use std::os::unix::net::UnixStream;
    use std::{fs, net, process};

    fn of<T: AsFd + 'static>(value: &dyn Any) -> Option<BorrowedFd<'_>> {
        value.downcast_ref().map(T::as_fd)
    }
    let known = [
        of::<fs::File>,
        of::<Arc<fs::File>>,
        of::<io::Stdin>,
        of::<io::Stdout>,
        of::<io::Stderr>,
        of::<process::ChildStdin>,
        of::<process::ChildStdout>,
        of::<process::ChildStderr>,
        of::<net::TcpStream>,
        of::<UnixStream>,
    ];
    let descriptor = known.iter().find_map(|of| of(value))?;
    let mut asked = [PollFd::from_borrowed_fd(descriptor, poll_flag(to_write))];
    match rustix::event::poll(&mut asked, Some(&timespec(limit))) {
        Err(Errno::INTR) => Some(false),
        // On failure the readiness is unknown.
        result => Some(result != Ok(0)),
    }
}

pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

/// Whether receiving was shut down on a datagram socket or Unix listener, where Linux's calls would
/// block nevertheless.
#[cold]
pub(crate) fn has_ended(socket: &impl AsFd) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return is_now(socket, PollFlags::RDHUP);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return {
        let _ = socket;
        false
    };
}

/// Returns the error of a descriptor whose reads would block forever, since it [has
/// ended](has_ended).
#[cold]
pub(crate) fn check_end(descriptor: &impl AsFd) -> io::Result<()> {
    if has_ended(descriptor) {
        let listens = is_listening(descriptor) == Some(true);
        if listens {
            return Err(Errno::INVAL.into());
        }
        let socket_type = rustix::net::sockopt::socket_type(descriptor);
        if socket_type == Ok(rustix::net::SocketType::DGRAM) {
            let words = "the socket was shut down for reading, by another of its owners";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, words));
        }
    }
    Ok(())
}

/// Returns `None` on Apple's systems, which do not report it.
pub(crate) fn is_listening(socket: &impl AsFd) -> Option<bool> {
    #[cfg(not(target_vendor = "apple"))]
    return rustix::net::sockopt::socket_acceptconn(socket).ok();
    #[cfg(target_vendor = "apple")]
    return {
        let _ = socket;
        None
    };
}

/// Whether the descriptor is readable, and writable, only because of an error. Usually the next
/// operation clears the error; an error queue stays until it is read.
pub(crate) fn is_only_an_error(descriptor: &impl AsFd) -> io::Result<[bool; 2]> {
    let events = poll_now(descriptor, PollFlags::IN | PollFlags::OUT)?;
    let ended = events.intersects(PollFlags::HUP | PollFlags::NVAL);
    let only = events.contains(PollFlags::ERR) && !ended;
    Ok([PollFlags::IN, PollFlags::OUT].map(|flag| only && !events.contains(flag)))
}

/// Whether the descriptor is a file, which is always ready, so that it cannot be polled.
pub(crate) fn is_file(descriptor: &impl AsFd) -> io::Result<bool> {
    use rustix::fs::FileType;

    // Block devices of Linux and the BSDs cannot be polled either.
    let kind = FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode);
    Ok(matches!(
        kind,
        FileType::RegularFile | FileType::Directory | FileType::BlockDevice
    ))
}

/// Whether the file is this user's, inaccessible to others, and has one name.
pub(crate) fn is_private_file(file: &std::fs::File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let metadata = file.metadata()?;
    let is_own = metadata.uid() == user() && metadata.mode() & 0o077 == 0 && metadata.nlink() == 1;
    Ok(metadata.is_file() && is_own)
}

/// Flags of every send: a closed peer is an error, not a signal. Apple's kernel takes this flag
/// (`sendit` in XNU's bsd/kern/uipc_syscalls.c); an old one ignores it, and has only the socket's
/// option.
pub(crate) const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | RECEIVE_FLAGS;

/// Flags of every receive and send: on Linux no call blocks, even if another owner of the socket
/// has cleared `O_NONBLOCK`, which is a flag of the open file.
///
/// On the BSDs and Apple's systems `MSG_DONTWAIT` does not wait for the lock of the socket's buffer
/// either (`SBLOCKWAIT`, in FreeBSD's sys/sockbuf.h and XNU's bsd/sys/socketvar.h): it would return
/// `EAGAIN` during another thread's call, and no event would follow.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) const RECEIVE_FLAGS: libc::c_int = libc::MSG_DONTWAIT;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) const RECEIVE_FLAGS: libc::c_int = 0;

/// `net::receive` explains how the call is made.
#[inline]
pub(crate) fn send(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    // rustix lacks `MSG_NOSIGNAL` on Apple's systems.
    let flags = rustix::net::SendFlags::from_bits_retain(SEND_FLAGS as _);
    Ok(rustix::net::send(socket, bytes, flags)?)
}

pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Registers `call` to run at the normal end of the process.
pub(crate) fn at_exit(call: extern "C" fn()) -> io::Result<()> {
    // SAFETY: a function that captures nothing stays valid for as long as the process lives.
    match unsafe { libc::atexit(call) } {
        0 => Ok(()),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    }
}

/// Returns the ID for `/proc` and [`thread_cpu_time`], on Linux.
pub(crate) fn thread_id() -> u32 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let number = 0;
    number
}

/// Returns the processor time of a thread of this process, if its ID is known.
pub(crate) fn thread_cpu_time(thread: u32) -> Option<Duration> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if thread != 0 {
        /// The lower bits of the clock ID of a thread (4), of its scheduled time (2). The others
        /// are the complement of the thread's ID (MAKE_THREAD_CPUCLOCK in Linux's
        /// include/linux/posix-timers_types.h, as in glibc's pthread_getcpuclockid).
        const THREAD_SCHEDULED: u32 = 4 | 2;

        return time_of((!thread << 3 | THREAD_SCHEDULED) as libc::clockid_t);
    }
    let _ = thread;
    None
}

/// Sleeps until the threads of this process have used this much processor time, on Linux. The
/// system notices at a tick of its clock.
pub(crate) fn sleep_by_processor_time(time: Duration) -> io::Result<()> {
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
    {
        use rustix::thread::{ClockId, NanosleepRelativeResult, clock_nanosleep_relative};

        let mut left = timespec(time);
        loop {
            match clock_nanosleep_relative(ClockId::ProcessCPUTime, &left) {
                NanosleepRelativeResult::Ok => return Ok(()),
                NanosleepRelativeResult::Interrupted(rest) => left = rest,
                NanosleepRelativeResult::Err(error) => return Err(error.into()),
            }
        }
    }
    #[allow(unreachable_code)]
    {
        let _ = time;
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) fn set_nonblocking(descriptor: &impl AsFd) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let flags = fcntl_getfl(descriptor)?;
    if !flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
    }
    Ok(())
}

#[cfg(feature = "async-io")]
pub(crate) fn ready_now<'a>(
    asked: impl Iterator<Item = (BorrowedDescriptor<'a>, bool, bool)>,
) -> io::Result<Vec<(bool, bool)>> {
    let (mut list, wanted): (Vec<_>, Vec<_>) = asked
        .map(|(descriptor, reads, writes)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            (PollFd::from_borrowed_fd(descriptor, flags), (reads, writes))
        })
        .unzip();
    let at_once = timespec(Duration::ZERO);
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut list, Some(&at_once)))?;
    let end = PollFlags::HUP | PollFlags::ERR;
    Ok((list.iter().zip(wanted))
        .map(|(entry, (reads, writes))| {
            let events = entry.revents();
            let can_read = reads && events.intersects(PollFlags::IN | end);
            (can_read, writes && events.intersects(PollFlags::OUT | end))
        })
        .collect())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Only Apple's systems use `select_now`; it is tested here.
    #[test]
    fn select_and_poll_agree() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let says = |near: &UnixStream, to_write| {
            let selected = select_now(near, to_write).unwrap();
            assert_eq!(is_ready(near, to_write).unwrap(), selected);
            selected
        };
        assert_eq!((says(&near, false), says(&near, true)), (false, true));
        far.write_all(b"x").unwrap();
        assert!(says(&near, false));
        assert_eq!(near.read(&mut [0; 8]).unwrap(), 1);
        assert!(!says(&near, false));
        while near.write(&[0; 4096]).is_ok() {}
        assert!(!says(&near, true));
        drop(far);
        assert!(says(&near, false) && says(&near, true));
    }
}

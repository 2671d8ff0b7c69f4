//! Rings that can only poll, their submissions, and their completions.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr,
};

use crate::poller::backends::poll;
use crate::poller::error::explained;
use crate::poller::event::{Interest, Ready};
use crate::sys::{self, BorrowedDescriptor};

// The user data: the generation in the upper half; in the lower the descriptor's number, or one of
// these values, which are greater than any descriptor.
pub(super) const NOTIFIER: u32 = u32::MAX;
pub(super) const TIMEOUT: u32 = u32::MAX - 1;
pub(super) const SUBMISSION: u32 = u32::MAX - 2;

pub(super) fn user_data(generation: u32, of: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(of)
}

/// `IORING_ENTER_NO_IOWAIT`, which rustix does not define: idle time is not accounted as I/O wait.
pub(super) const NO_IOWAIT: IoringEnterFlags = IoringEnterFlags::from_bits_retain(1 << 7);

/// `IORING_REGISTER_EVENTFD`.
const REGISTER_EVENTFD: u8 = 4;

pub(super) fn new_ring(submissions: u32, completions: u32) -> io::Result<IoUring> {
    let refused = |call, error| {
        let meaning = meaning(&error);
        explained(call, error, meaning)
    };
    let ring = IoUring::builder()
        .dontfork()
        .setup_r_disabled()
        .setup_submit_all()
        .setup_cqsize(completions)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(submissions)
        .map_err(|error| refused("io_uring_setup", error))?;
    let operations = [
        opcode::PollAdd::CODE,
        opcode::Timeout::CODE,
        opcode::TimeoutRemove::CODE,
        opcode::AsyncCancel::CODE,
    ];
    let flags = squeue::Flags::SKIP_SUCCESS.bits();
    let mut restrictions: Vec<_> = (operations.into_iter().map(Restriction::sqe_op))
        .chain([Restriction::sqe_flags_allowed(flags)])
        // Restrictions also apply to registering.
        .chain([Restriction::register_op(REGISTER_EVENTFD)])
        .collect();
    let restricted = ring.submitter().register_restrictions(&mut restrictions);
    restricted.map_err(|error| refused("io_uring_register", error))?;
    let trial = Call {
        ring: ring.as_raw_fd(),
        submissions: 0,
        completions: 0,
        flags: IoringEnterFlags::empty(),
    };
    // See `tried`. The kernel refuses to enter a ring that is not enabled; a sandbox comes first.
    match trial.enter(None) {
        Err(error) if error != Errno::BADFD => Err(refused("io_uring_enter", error.into())),
        _ => Ok(ring),
    }
}

fn meaning(error: &io::Error) -> Option<String> {
    match Errno::from_io_error(error)? {
        Errno::PERM => {
            let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
            Some(match setting.as_deref().map(str::trim) {
                Ok("1") => {
                    "kernel.io_uring_disabled is 1: for the group kernel.io_uring_group only".into()
                }
                Ok("2") => "kernel.io_uring_disabled is 2".into(),
                _ => "most likely the seccomp filter of a container, which has to allow \
                      io_uring_setup, io_uring_register and io_uring_enter"
                    .into(),
            })
        }
        Errno::NOSYS => Some("the kernel has no io_uring, or a sandbox hides it".into()),
        Errno::INVAL => Some("the kernel is older than Linux 6.1".into()),
        _ => None,
    }
}

#[cfg(test)]
thread_local! {
    /// Errors injected into this thread's next calls, last first.
    pub(super) static REFUSALS: std::cell::RefCell<Vec<Errno>> = const {
        std::cell::RefCell::new(Vec::new())
    };
}

pub(super) struct Call {
    pub(super) ring: RawFd,
    pub(super) submissions: u32,
    pub(super) completions: u32,
    pub(super) flags: IoringEnterFlags,
}

impl Call {
    /// Returns the number of submissions taken. A timeout that has elapsed is an error, unless
    /// submissions were taken.
    #[inline]
    pub(super) fn enter(&self, timeout: Option<Duration>) -> Result<u32, Errno> {
        #[cfg(test)]
        if let Some(error) = REFUSALS.with_borrow_mut(Vec::pop) {
            return Err(error);
        }
        let timeout = timeout.map(sys::timespec);
        let argument = timeout.as_ref().map(|timeout| io_uring_getevents_arg {
            ts: io_uring_ptr::new(std::ptr::from_ref(timeout).cast_mut().cast()),
            ..Default::default()
        });
        // SAFETY: the descriptor is the ring's, which is not dropped while this thread, its owner,
        // is in a call. The kernel reads the argument and the timeout, which live here, and the
        // submissions in the ring's queue, in memory that belongs to the ring: see `Table::push`.
        unsafe {
            let ring = BorrowedDescriptor::borrow_raw(self.ring);
            match &argument {
                None => io_uring_enter(ring, self.submissions, self.completions, self.flags),
                Some(argument) => {
                    let flags = self.flags | IoringEnterFlags::EXT_ARG;
                    io_uring_enter_arg(
                        ring,
                        self.submissions,
                        self.completions,
                        flags,
                        Some(argument),
                    )
                }
            }
        }
    }
}

/// Returns the readiness in `interest` that a completion reports, if any.
#[inline]
pub(super) fn ready(mask: u32, interest: Interest) -> Option<Ready> {
    /// The mask of an arrived byte, if polled with urgent data and without.
    const ORDINARY: [u32; 2] = [
        (libc::POLLIN | libc::POLLPRI | libc::POLLRDBAND) as u32,
        libc::POLLIN as u32,
    ];
    if ORDINARY.contains(&mask) {
        return Some(Ready::READABLE);
    }
    let mut flags = PollFlags::from_bits_retain(mask as _);
    if !interest.contains(Interest::READABLE) {
        flags -= PollFlags::RDHUP;
    }
    if flags.contains(PollFlags::PRI | PollFlags::RDBAND) {
        // With out-of-band data this is the key of a wake-up: urgent data is only possible.
        flags -= PollFlags::PRI;
        flags |= PollFlags::IN;
    }
    let ready = poll::ready(flags);
    (ready != Ready::default()).then_some(ready)
}

/// The kernel always adds hang-up and error, and the hang-up of the reading side.
pub(super) fn poll(
    number: RawFd,
    interest: Interest,
    is_multishot: bool,
    data: u64,
) -> squeue::Entry {
    let mut flags = poll::poll_flags(interest);
    if interest.contains(Interest::PRIORITY) {
        flags |= PollFlags::RDBAND;
    }
    let submission = opcode::PollAdd::new(types::Fd(number), flags.bits().into());
    submission.multi(is_multishot).build().user_data(data)
}

pub(super) fn remove(data: u64) -> squeue::Entry {
    skip_success(opcode::AsyncCancel::new(data).build())
}

/// Makes only a failure be reported, which is then ignored.
pub(super) fn skip_success(submission: squeue::Entry) -> squeue::Entry {
    let submission = submission.flags(squeue::Flags::SKIP_SUCCESS);
    submission.user_data(user_data(0, SUBMISSION))
}

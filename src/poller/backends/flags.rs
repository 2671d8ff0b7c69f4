//! The flags of `poll(2)`, which epoll and io_uring use too.

use rustix::event::PollFlags;

use crate::poller::{Interest, Ready};

/// Not every system has it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const READ_HANGUP: PollFlags = PollFlags::RDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const READ_HANGUP: PollFlags = PollFlags::empty();

/// Returns the flags to ask the kernel for. The kernel always adds hang-up and error.
pub(super) fn flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    if interest.contains(Interest::READABLE) {
        flags |= PollFlags::IN | READ_HANGUP;
    }
    if interest.contains(Interest::WRITABLE) {
        flags |= PollFlags::OUT;
    }
    if interest.contains(Interest::PRIORITY) {
        flags |= PollFlags::PRI;
    }
    flags
}

/// Returns the readiness that the kernel reports with these flags.
#[inline]
pub(super) fn ready(flags: PollFlags) -> Ready {
    let mut ready = Ready::default();
    if flags.intersects(PollFlags::IN) {
        ready |= Ready::READABLE;
    }
    if flags.intersects(PollFlags::OUT) {
        ready |= Ready::WRITABLE;
    }
    if flags.intersects(READ_HANGUP) {
        ready |= Ready::READABLE | Ready::CLOSED;
    }
    if flags.intersects(PollFlags::HUP) {
        ready |= Ready::READABLE | Ready::WRITABLE | Ready::CLOSED;
    }
    if flags.intersects(PollFlags::ERR | PollFlags::NVAL) {
        ready |= Ready::READABLE | Ready::WRITABLE | Ready::ERROR;
    }
    if flags.intersects(PollFlags::PRI) {
        ready |= Ready::READABLE | Ready::PRIORITY;
    }
    ready
}

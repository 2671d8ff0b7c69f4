//! Flags of `poll(2)`, which epoll and io_uring use too.

use rustix::event::PollFlags;

use crate::poller::event::{Interest, Ready};

#[cfg(any(target_os = "linux", target_os = "android"))]
const READ_HANGUP: PollFlags = PollFlags::RDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const READ_HANGUP: PollFlags = PollFlags::empty();

/// Returns the flags to ask the kernel for. The kernel always adds hang-up and error.
pub(super) fn poll_flags(interest: Interest) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN | READ_HANGUP, interest.is_readable());
    flags.set(PollFlags::OUT, interest.is_writable());
    flags.set(PollFlags::PRI, interest.is_priority());
    flags
}

#[inline]
pub(super) fn ready(flags: PollFlags) -> Ready {
    let mut ready = Ready::default();
    let mut add = |flag, reported| ready.add_if(flags.intersects(flag), reported);
    let both = Ready::READABLE | Ready::WRITABLE;
    add(PollFlags::IN, Ready::READABLE);
    add(PollFlags::OUT, Ready::WRITABLE);
    add(READ_HANGUP, Ready::READABLE | Ready::CLOSED);
    add(PollFlags::HUP, both | Ready::CLOSED);
    add(PollFlags::ERR | PollFlags::NVAL, both | Ready::ERROR);
    add(PollFlags::PRI, Ready::READABLE | Ready::PRIORITY);
    ready
}

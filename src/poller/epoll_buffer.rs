//! The buffer of `epoll_wait` in [`Events`](super::Events).

use std::fmt;
use std::mem::MaybeUninit;

use rustix::event::epoll::Event;

#[derive(Default)]
pub(super) struct EpollBuffer(pub(super) Vec<MaybeUninit<Event>>);

// SAFETY: an event is not `Send` only because rustix lets its data be a pointer. All our data were
// made from integers and are read as such.
unsafe impl Send for EpollBuffer {}

// SAFETY: as above; and nothing of it can be reached through a shared reference.
unsafe impl Sync for EpollBuffer {}

impl fmt::Debug for EpollBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpollBuffer")
            .field("room", &self.0.len())
            .finish()
    }
}

//! `select(2)`: every Unix but illumos and Solaris, whose `select` ends at `FD_SETSIZE` whatever one
//! does. Level and one-shot; see [`book`](super::book) for how it is kept.
//!
//! What is hidden here:
//!
//! * The sets are as long as they have to be: the kernels of Linux, Apple and the BSDs take more
//!   than libc's `FD_SETSIZE` (rustix calls Apple's function that does).
//! * One descriptor that is closed makes the whole call fail with `EBADF`. Then each is asked for
//!   by itself, and the culprits are told as gone.
//! * The third set means urgent data (and on some systems more): a hint. There is none for hang-up
//!   or error; both show as readable and writable.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{FdSetElement, FdSetIter, fd_set_insert, fd_set_remove};
use rustix::io::Errno;

use super::book::{Answer, List};
use super::{Interest, Ready, failed};
use crate::sys::timespec;

/// Three sets of bits, and as many for the answer.
#[derive(Default)]
pub(super) struct Sets {
    /// Readable, writable, priority.
    asked: [Vec<FdSetElement>; 3],
    said: [Vec<FdSetElement>; 3],
    /// Those found closed, when a call has failed for it.
    gone: Vec<RawFd>,
    /// One more than the highest descriptor that is asked for.
    bound: RawFd,
    /// The descriptor that the next telling begins with.
    cursor: RawFd,
}

const PARTS: [(Interest, Ready); 3] = [
    (Interest::READABLE, Ready::READABLE),
    (Interest::WRITABLE, Ready::WRITABLE),
    (
        Interest::PRIORITY,
        Ready(Ready::READABLE.0 | Ready::PRIORITY.0),
    ),
];

impl Sets {
    /// The descriptors that are asked for, in any way.
    fn members(&self) -> Vec<RawFd> {
        let is_asked_for = |number: &RawFd| self.asked.iter().any(|set| contains(set, *number));
        (0..self.bound).filter(is_asked_for).collect()
    }
}

fn contains(set: &[FdSetElement], number: RawFd) -> bool {
    // Nothing is cheaper than the next member at or behind it; rustix shows no bits.
    let bits = size_of::<FdSetElement>() * 8;
    let element = number as usize / bits;
    set.get(element..element + 1)
        .is_some_and(|one| FdSetIter::new(one).any(|bit| bit as usize == number as usize % bits))
}

/// Puts a descriptor into the set for `part` of what it is asked for, or takes it out. The three sets grow
/// alike: the kernel takes them to be of one length.
#[inline(never)] // Not three times over.
fn put(set: &mut Vec<FdSetElement>, number: RawFd, interest: Interest, part: Interest) {
    let elements = rustix::event::fd_set_num_elements(1, number + 1);
    if set.len() < elements {
        if interest.is_empty() {
            return;
        }
        set.resize(elements.next_power_of_two(), FdSetElement::default());
    }
    match interest.contains(part) {
        true => fd_set_insert(set, number),
        false => fd_set_remove(set, number),
    }
}

impl List for Sets {
    // `pselect6` on Linux; elsewhere `select`, which takes microseconds.
    fn granularity(&self) -> Duration {
        match cfg!(any(target_os = "linux", target_os = "android")) {
            true => Duration::from_nanos(1),
            false => Duration::from_micros(1),
        }
    }

    fn hints(&self) -> bool {
        false
    }

    fn set(&mut self, number: RawFd, interest: Interest) {
        for (set, (part, _)) in self.asked.iter_mut().zip(PARTS) {
            put(set, number, interest, part);
        }
        if !interest.is_empty() {
            self.bound = self.bound.max(number + 1);
        } else if number + 1 == self.bound {
            self.bound = (self.asked.iter())
                .map(|set| rustix::event::fd_set_bound(set))
                .max()
                .unwrap_or(0);
        }
    }

    fn ask(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.gone.clear();
        for (said, asked) in self.said.iter_mut().zip(&self.asked) {
            said.clone_from(asked);
        }
        let timeout = timeout.map(timespec);
        let [read, write, priority] = &mut self.said;
        // SAFETY: the sets hold the descriptors that were registered; that they are open, or that
        // asking about them is allowed, is the duty of whoever did that: "Why `register` is unsafe"
        // in the module above.
        let result = unsafe {
            rustix::event::select(
                self.bound,
                Some(read),
                Some(write),
                Some(priority),
                timeout.as_ref(),
            )
        };
        match result {
            Ok(answers) => Ok(answers > 0),
            Err(Errno::BADF) => {
                let closed = |number: &RawFd| {
                    // SAFETY: as above; it is only asked whether it is open.
                    let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
                    rustix::io::fcntl_getfd(descriptor) == Err(Errno::BADF)
                };
                self.gone = self.members();
                self.gone.retain(closed);
                for said in &mut self.said {
                    said.fill(FdSetElement::default());
                }
                match self.gone.is_empty() {
                    // It was closed and opened again meanwhile, or is not asked for any more.
                    true => Err(Errno::INTR.into()),
                    false => Ok(true),
                }
            }
            Err(error) => Err(failed("select", error)),
        }
    }

    fn says_of(&self, number: RawFd) -> bool {
        self.said.iter().any(|set| contains(set, number))
    }

    fn tell(&mut self, tell: &mut dyn FnMut(RawFd, Answer) -> bool) {
        for number in &self.gone {
            let answer = Answer {
                ready: Ready::READABLE | Ready::WRITABLE | Ready::ERROR,
                gone: true,
            };
            if !tell(*number, answer) {
                return; // The next call fails for the same reason.
            }
        }
        // The three sets side by side, element by element; the first one twice, for the bits from
        // the cursor on and, at the end, for those before it.
        let bits = size_of::<FdSetElement>() * 8;
        let elements = rustix::event::fd_set_num_elements(1, self.bound);
        let cursor = match self.cursor < self.bound {
            true => self.cursor as usize,
            false => 0,
        };
        for step in 0..=elements {
            let element = (cursor / bits + step) % elements.max(1);
            let wanted = match step {
                0 => cursor % bits..bits,
                _ if step == elements => 0..cursor % bits,
                _ => 0..bits,
            };
            let mut ready = [Ready::default(); 64];
            let mut any = false;
            for (said, (_, part)) in self.said.iter().zip(PARTS) {
                for bit in FdSetIter::new(said.get(element..element + 1).unwrap_or_default()) {
                    ready[bit as usize] |= part;
                    any = true;
                }
            }
            if !any {
                continue;
            }
            for bit in wanted {
                let number = (element * bits + bit) as RawFd;
                let ready = ready[bit];
                if ready != Ready::default() && !tell(number, Answer { ready, gone: false }) {
                    self.cursor = number;
                    return;
                }
            }
        }
    }
}

//! `poll(2)`: every Unix. Level and one-shot; no system call to register, modify or deregister.
//!
//! Two halves, each with its lock:
//!
//! * the **book** (`Book`): what callers asked for, by descriptor number. Held for moments.
//! * the **list** (`List`): what `poll(2)` is handed. Held by the waiting thread for the length of
//!   its wait, which is what makes a second waiter impossible. It holds only what is armed: a
//!   source that nobody waits for costs the kernel nothing, and its hang-up, which poll reports
//!   unasked, cannot end a wait.
//!
//! A change goes into the book, and its descriptor among the book's `changed`; the waiter carries
//! changes over to the list before it asks the kernel. **Why no change is lost:** the waiter does
//! that, and sets `waiting`, under the book's lock, so a change comes either before, and is carried
//! over, or after, and sees `waiting`: then it writes to the notifier, which is in the list, and
//! the waiter comes round. **Why no stale event is reported:** after the wait, again under the
//! lock, what the kernel said of a descriptor counts only if its line in the book has not changed
//! since it was carried over; if it has, the next round asks again, and nothing is lost, since
//! poll reports levels.
//!
//! Lock order: list, then book.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::notifier::Notifier;
use super::{
    BorrowedDescriptor, Capabilities, Event, Events, Interest, Mode, Ready, Selector, Token,
};
use crate::sync::Mutex;

#[derive(Debug)]
pub(super) struct Poll {
    notifier: Notifier,
    book: Mutex<Book>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct Book {
    /// By descriptor number; the kernel hands out the lowest free one, so this stays dense.
    lines: Vec<Line>,
    /// The numbers of the lines whose `changed` is set, each once.
    changed: Vec<RawFd>,
    /// A thread is between carrying over and looking at the result.
    waiting: bool,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    token: Token,
    interest: Interest,
    mode: Mode,
    registered: bool,
    changed: bool,
}

const BLANK: Line = Line {
    token: Token(0),
    interest: Interest::NONE,
    mode: Mode::OneShot,
    registered: false,
    changed: false,
};

#[derive(Debug, Default)]
struct List {
    /// What the kernel is handed; the notifier comes first.
    fds: Vec<PollFd<'static>>,
    /// By descriptor number: where it stands in `fds`, or [`ABSENT`].
    places: Vec<u32>,
    /// Where among the sources the next look at the results begins.
    cursor: usize,
}

const ABSENT: u32 = u32::MAX;

impl Poll {
    pub(super) fn new() -> io::Result<Poll> {
        Ok(Poll {
            notifier: Notifier::new()?,
            book: Mutex::new(Book::default()),
            list: Mutex::new(List::default()),
        })
    }

    /// Changes a descriptor's line, and sees to it that a thread that waits takes notice.
    fn change(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        change: impl FnOnce(&mut Line) -> io::Result<()>,
    ) -> io::Result<()> {
        let number = descriptor.as_raw_fd();
        let mut book = self.book.lock();
        let index = number as usize;
        if index >= book.lines.len() {
            book.lines.resize(index + 1, BLANK);
        }
        change(&mut book.lines[index])?;
        let kick = book.waiting && book.changed.is_empty();
        book.note(number);
        match kick {
            // Under the lock, so that the waiter cannot have left that wait yet.
            true => self.notifier.kick(),
            false => Ok(()),
        }
    }
}

impl Book {
    fn note(&mut self, number: RawFd) {
        let line = &mut self.lines[number as usize];
        if !line.changed {
            line.changed = true;
            self.changed.push(number);
        }
    }

    /// Carries over to the list what has changed.
    fn carry_over(&mut self, list: &mut List) {
        for number in self.changed.drain(..) {
            let line = &mut self.lines[number as usize];
            line.changed = false;
            list.set(number, flags(line.interest));
        }
    }
}

impl List {
    fn set(&mut self, number: RawFd, flags: Option<PollFlags>) {
        let index = number as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, ABSENT);
        }
        let place = self.places[index];
        match (flags, place) {
            (Some(flags), ABSENT) => {
                self.places[index] = u32::try_from(self.fds.len()).expect("a descriptor fits");
                self.fds.push(entry(number, flags));
            }
            (Some(flags), place) => self.fds[place as usize] = entry(number, flags),
            (None, ABSENT) => {}
            (None, place) => {
                self.places[index] = ABSENT;
                self.fds.swap_remove(place as usize);
                if let Some(moved) = self.fds.get(place as usize) {
                    self.places[moved.as_fd().as_raw_fd() as usize] = place;
                }
            }
        }
    }
}

fn entry(number: RawFd, flags: PollFlags) -> PollFd<'static> {
    // SAFETY: the number is not -1, since it came from a borrowed descriptor (or is the
    // notifier's). That it is open, or that asking about it is allowed, is the duty of whoever
    // registered it: "Why `register` is unsafe" in the module above.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    PollFd::from_borrowed_fd(descriptor, flags)
}

impl Selector for Poll {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: true,
            one_shot: true,
            edge: false,
            hints: true,
            descriptor: false,
            // `ppoll` where rustix has it.
            granularity: match cfg!(any(
                target_os = "linux",
                target_os = "android",
                target_os = "freebsd",
                target_os = "illumos"
            )) {
                true => Duration::from_nanos(1),
                false => Duration::from_millis(1),
            },
        }
    }

    fn register(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.change(descriptor, |line| {
            if line.registered {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the descriptor is registered already with this poller",
                ));
            }
            line.registered = true;
            (line.token, line.interest, line.mode) = (token, interest, mode);
            Ok(())
        })
    }

    fn modify(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.change(descriptor, |line| {
            if !line.registered {
                return Err(not_found());
            }
            (line.token, line.interest, line.mode) = (token, interest, mode);
            Ok(())
        })
    }

    fn deregister(&self, descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
        self.change(descriptor, |line| {
            if !line.registered {
                return Err(not_found());
            }
            line.registered = false;
            line.interest = Interest::NONE;
            Ok(())
        })
    }

    fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let Some(mut list) = self.list.try_lock() else {
            return Err(super::busy());
        };
        let list = &mut *list;
        if list.fds.is_empty() {
            let number = self.notifier.descriptor().as_raw_fd();
            list.fds.push(entry(number, PollFlags::IN));
        }
        {
            let mut book = self.book.lock();
            book.carry_over(list);
            book.waiting = true;
        }
        let cut = timeout.map(|timeout| timeout.min(LONGEST));
        let result = rustix::event::poll(&mut list.fds, cut.map(timespec).as_ref());
        let mut book = self.book.lock();
        book.waiting = false;
        let ready = result?;
        if ready == 0 && cut == timeout {
            return Ok(()); // The timeout is over.
        }
        let woken = !list.fds[0].revents().is_empty();
        let notified = woken && self.notifier.consume();
        book.collect(list, ready - usize::from(woken), events);
        if !notified && events.is_empty() {
            // Woken by a change of another thread, or about one that has changed meanwhile.
            return Err(Errno::INTR.into());
        }
        Ok(())
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }

    fn takes_files(&self) -> bool {
        true
    }
}

impl Book {
    /// Turns what the kernel said of `ready` descriptors into events. Where there are more than
    /// there is room for, the next wait goes on behind the last that was reported, so that those
    /// at the end have their turn.
    fn collect(&mut self, list: &mut List, ready: usize, events: &mut Events) {
        let mut left = ready;
        let sources = list.fds.len() - 1;
        let start = if list.cursor < sources {
            list.cursor
        } else {
            0
        };
        for place in (start..sources).chain(0..start) {
            if left == 0 {
                break;
            }
            let fd = &list.fds[1 + place];
            let said = fd.revents();
            if said.is_empty() {
                continue;
            }
            if events.len() == events.limit() {
                list.cursor = place;
                break;
            }
            left -= 1;
            let number = fd.as_fd().as_raw_fd();
            let line = &mut self.lines[number as usize];
            if line.changed {
                continue;
            }
            events.push(Event::new(line.token, readiness(said)));
            // A descriptor that was closed behind our back is told once, in every mode: nothing
            // could make it any different.
            if line.mode == Mode::OneShot || said.intersects(PollFlags::NVAL) {
                line.interest = Interest::NONE;
                self.note(number);
            }
        }
    }
}

fn flags(interest: Interest) -> Option<PollFlags> {
    if interest.is_empty() {
        return None;
    }
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
    Some(flags)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const READ_HANGUP: PollFlags = PollFlags::RDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const READ_HANGUP: PollFlags = PollFlags::empty();

fn readiness(said: PollFlags) -> Ready {
    let mut ready = Ready::default();
    if said.intersects(PollFlags::IN) {
        ready |= Ready::READABLE;
    }
    if said.intersects(PollFlags::OUT) {
        ready |= Ready::WRITABLE;
    }
    if said.intersects(READ_HANGUP) {
        ready |= Ready::READABLE | Ready::CLOSED;
    }
    if said.intersects(PollFlags::HUP) {
        ready |= Ready::READABLE | Ready::WRITABLE | Ready::CLOSED;
    }
    if said.intersects(PollFlags::ERR | PollFlags::NVAL) {
        ready |= Ready::READABLE | Ready::WRITABLE | Ready::ERROR;
    }
    if said.intersects(PollFlags::PRI) {
        ready |= Ready::READABLE | Ready::PRIORITY;
    }
    ready
}

fn not_found() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "the descriptor is not registered with this poller",
    )
}

/// The longest timeout that is passed on. Where there is no `ppoll` the platform takes no more
/// milliseconds than an `int` holds; the wait comes round and asks again.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Rounds up where the platform takes milliseconds only: rustix does.
fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(LONGEST);
    Timespec {
        tv_sec: duration.as_secs() as _,
        tv_nsec: duration.subsec_nanos() as _,
    }
}

/// The poller of a thousand idle sources must not shift them about when one of them changes.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_holds_only_what_is_armed() {
        let poll = Poll::new().unwrap();
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        for socket in [&a, &b] {
            poll.register(socket.as_fd(), Token(1), Interest::NONE, Mode::OneShot)
                .unwrap();
        }
        let mut events = Events::new();
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(poll.list.lock().fds.len(), 1);
        poll.modify(b.as_fd(), Token(2), Interest::WRITABLE, Mode::OneShot)
            .unwrap();
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(
            events.iter().map(Event::token).collect::<Vec<_>>(),
            [Token(2)]
        );
        events.clear();
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty(), "one-shot was reported twice");
        assert_eq!(poll.list.lock().fds.len(), 1);
    }
}

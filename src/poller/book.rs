//! What `poll(2)` and `select(2)` share: the kernel remembers nothing, so we keep the book.
//!
//! Two halves, each with its lock:
//!
//! * the **book** ([`Book`]): what callers asked for, by descriptor number. Held for moments.
//! * the **list** (a [`List`]): what the kernel is handed. Held by the waiting thread, of which there
//!   is one, for the length of its wait. It holds only what is armed: a source that nobody waits for
//!   costs the kernel nothing, and its hang-up, which poll reports unasked, cannot end a wait.
//!
//! To register, modify and deregister is to write into the book: no system call. A descriptor that
//! was written about is put among the book's `changed`; the waiter carries changes over to the list
//! before it asks the kernel. **Why no change is lost:** the waiter does that, and sets `waiting`,
//! under the book's lock, so a change comes either before, and is carried over, or after, and sees
//! `waiting`: then it writes to the notifier, which is in the list, and the waiter comes round.
//! **Why no stale event is reported:** after the wait, again under the lock, what the kernel said of
//! a descriptor counts only if its line in the book has not changed since it was carried over; if it
//! has, the next round asks again, and nothing is lost, since the kernel tells levels.
//!
//! **Why a descriptor closes when its owner closes it.** A thread within `poll` or `select` holds a reference
//! to each file that it waits for. Deregistering is a change: the waiter comes round, and lets go.
//!
//! Lock order: list, then book.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use super::long::{self, Long, Part};
use super::notifier::{Imp, Notifier, Wire};
use super::{
    BorrowedDescriptor, Capabilities, Event, Events, Interest, Mode, Ready, Selector, Token,
};
use crate::sync::Mutex;

/// What the kernel is handed, in the form that one system call wants.
pub(super) trait List: Send {
    /// What timeouts are rounded up to.
    fn granularity(&self) -> Duration;

    /// Whether it tells hang-up and error apart from readable and writable.
    fn hints(&self) -> bool;

    /// Asks for `interest` in a descriptor from now on; for nothing, if that is empty.
    fn set(&mut self, number: RawFd, interest: Interest);

    /// Asks the kernel: true if it says something of any descriptor, false if the time is over.
    fn ask(&mut self, timeout: Option<Duration>) -> io::Result<bool>;

    /// Whether it said anything of this one.
    fn says_of(&self, number: RawFd) -> bool;

    /// Calls `tell` with whatever it said, until that returns false. Where that left some untold,
    /// the next round begins with them, so that those at the end have their turn.
    fn tell(&mut self, tell: &mut dyn FnMut(RawFd, Answer) -> bool);
}

/// What the kernel says of one descriptor.
#[derive(Clone, Copy)]
pub(super) struct Answer {
    pub(super) ready: Ready,
    /// It is not open: somebody has closed it behind our back.
    pub(super) gone: bool,
}

/// A poller for a kernel that remembers nothing.
pub(super) struct Booked<W = Imp> {
    capabilities: Capabilities,
    notifier: Notifier<W>,
    /// The notifier's descriptor.
    notified: RawFd,
    book: Mutex<Book>,
    list: Mutex<Asking>,
}

/// What belongs to the waiting thread.
struct Asking {
    list: Box<dyn List>,
    long: Long,
}

#[derive(Default)]
struct Book {
    /// By descriptor number; the kernel hands out the lowest free one, so this stays dense.
    lines: Vec<Line>,
    /// The numbers of the lines whose `changed` is set, each once.
    changed: Vec<RawFd>,
    /// A thread is between carrying over and looking at the result.
    waiting: bool,
}

#[derive(Clone, Copy)]
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

/// The longest timeout that is passed on; the wait comes round and asks again. Some platforms take
/// no more milliseconds than an `int` holds, some no more than 100,000,000 seconds.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Booked {
    pub(super) fn new(list: Box<dyn List>) -> io::Result<Booked> {
        let notifier = Notifier::new()?;
        let notified = notifier.descriptor().as_raw_fd();
        Ok(Booked::with(notifier, notified, list))
    }
}

impl<W: Wire> Booked<W> {
    fn with(notifier: Notifier<W>, notified: RawFd, mut list: Box<dyn List>) -> Booked<W> {
        list.set(notified, Interest::READABLE);
        Booked {
            capabilities: Capabilities {
                level: true,
                one_shot: true,
                edge: false,
                hints: list.hints(),
                descriptor: false,
                granularity: list.granularity(),
            },
            notifier,
            notified,
            book: Mutex::new(Book::default()),
            list: Mutex::new(Asking {
                list,
                long: Long::default(),
            }),
        }
    }

    /// Changes a descriptor's line, and sees to it that a thread that waits takes notice.
    fn change(
        &self,
        number: RawFd,
        change: &dyn Fn(&mut Line) -> io::Result<()>,
    ) -> io::Result<()> {
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

    fn wait_once(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let mut asking = self.list.lock();
        let Asking { list, long } = &mut *asking;
        let list = &mut **list;
        let cut = timeout.map(|timeout| timeout.min(LONGEST));
        let part = long.part(cut);
        let call = match part {
            Part::Whole => cut,
            Part::First => Some(long::SHORT),
            Part::Timer(timer) => {
                list.set(timer, Interest::READABLE);
                None
            }
        };
        {
            let mut book = self.book.lock();
            book.carry_over(list);
            book.waiting = true;
        }
        let result = list.ask(call);
        let mut book = self.book.lock();
        book.waiting = false;
        let (mut notified, mut over) = (false, false);
        match result {
            Ok(true) => {
                notified = list.says_of(self.notified) && self.notifier.consume();
                over = matches!(part, Part::Timer(timer) if list.says_of(timer));
                book.collect(list, self.notified, part, events);
            }
            Ok(false) => over = part == Part::Whole,
            Err(_) => {}
        }
        drop(book);
        if let Part::Timer(timer) = part {
            list.set(timer, Interest::NONE);
        }
        long.end(part, &result);
        result?;
        match notified || !events.is_empty() || timeout == Some(Duration::ZERO) {
            true => Ok(()),
            false if over && cut == timeout => Ok(()),
            // Woken by a change of another thread, or about one that has changed meanwhile; or this
            // was not all of the timeout.
            false => Err(Errno::INTR.into()),
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
    fn carry_over(&mut self, list: &mut dyn List) {
        for number in self.changed.drain(..) {
            let line = &mut self.lines[number as usize];
            line.changed = false;
            list.set(number, line.interest);
        }
    }

    /// Turns what the kernel said into events.
    fn collect(&mut self, list: &mut dyn List, notified: RawFd, part: Part, events: &mut Events) {
        list.tell(&mut |number, answer| {
            if number == notified || part == Part::Timer(number) {
                return true;
            }
            if events.len() == events.limit() {
                return false;
            }
            let line = &mut self.lines[number as usize];
            if line.changed {
                return true;
            }
            events.push(Event::new(line.token, answer.ready));
            if answer.gone {
                // Closed behind our back: told once, in every mode, since nothing could make it
                // any different; and forgotten, so that the number's next owner may come.
                line.registered = false;
            }
            if line.mode == Mode::OneShot || answer.gone {
                line.interest = Interest::NONE;
                self.note(number);
            }
            true
        });
    }
}

impl Selector for Booked {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn register(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.change(descriptor.as_raw_fd(), &|line| {
            if line.registered {
                return Err(super::registered_already());
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
        self.change(descriptor.as_raw_fd(), &|line| {
            if !line.registered {
                return Err(super::not_registered());
            }
            (line.token, line.interest, line.mode) = (token, interest, mode);
            Ok(())
        })
    }

    fn deregister(&self, descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
        self.change(descriptor.as_raw_fd(), &|line| {
            if !line.registered {
                return Err(super::not_registered());
            }
            line.registered = false;
            line.interest = Interest::NONE;
            Ok(())
        })
    }

    fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.wait_once(events, timeout)
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }

    fn takes_files(&self) -> bool {
        true
    }
}

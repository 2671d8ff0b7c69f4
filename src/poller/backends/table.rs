//! What `poll(2)` and `select(2)` share: the kernel remembers nothing, so we keep the book.
//!
//! Two halves, each with its lock:
//!
//! * the **book** ([`InterestTable`]): what callers asked for, by descriptor number. Held for moments.
//! * the **list** (a [`PollSet`]): what the kernel is handed. Held by the waiting thread, of which there
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

use super::long_wait::{self, LongWait, Part};
use super::notifier::{Imp, Notifier, Wire};
use crate::poller::{
    BorrowedDescriptor, Capabilities, Event, Events, Interest, Mode, Ready, Selector, Token, Until,
};
use crate::sync::Mutex;

/// What the kernel is handed, in the form that one system call wants.
pub(super) trait PollSet: Send {
    /// What timeouts are rounded up to.
    fn granularity(&self) -> Duration;

    /// Whether it tells hang-up and error apart from readable and writable.
    fn hints(&self) -> bool;

    /// Asks for `interest` in a descriptor from now on; for nothing, if that is empty.
    fn set(&mut self, number: RawFd, interest: Interest);

    /// Asks the kernel: true if it says something of any descriptor, false if the time is over.
    fn ask(&mut self, timeout: Option<Duration>) -> io::Result<bool>;

    /// Whether it said anything of this one.
    fn is_ready(&self, number: RawFd) -> bool;

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
pub(super) struct TablePoller<W = Imp> {
    capabilities: Capabilities,
    notifier: Notifier<W>,
    /// The notifier's descriptor.
    notified: RawFd,
    book: Mutex<InterestTable>,
    list: Mutex<Asking>,
}

/// What belongs to the waiting thread.
struct Asking {
    list: Box<dyn PollSet>,
    long: LongWait,
}

#[derive(Default)]
struct InterestTable {
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

impl TablePoller {
    pub(super) fn new(list: Box<dyn PollSet>) -> io::Result<TablePoller> {
        let notifier = Notifier::new()?;
        let notified = notifier.descriptor().as_raw_fd();
        Ok(TablePoller::with(notifier, notified, list))
    }
}

impl<W: Wire> TablePoller<W> {
    fn with(notifier: Notifier<W>, notified: RawFd, mut list: Box<dyn PollSet>) -> TablePoller<W> {
        list.set(notified, Interest::READABLE);
        TablePoller {
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
            book: Mutex::new(InterestTable::default()),
            list: Mutex::new(Asking {
                list,
                long: LongWait::default(),
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
        let mut line = book.lines[index];
        change(&mut line)?;
        if book.waiting && book.changed.is_empty() {
            // Under the lock, so that the waiter cannot have left that wait yet, nor see the change before
            // it is there. If it is refused, nothing has changed.
            self.notifier.kick()?;
        }
        book.lines[index] = line;
        book.note(number);
        Ok(())
    }

    fn wait_once(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<bool> {
        let mut asking = self.list.lock();
        let Asking { list, long } = &mut *asking;
        let list = &mut **list;
        let cut = timeout.map(|timeout| timeout.min(LONGEST));
        let part = long.part(cut);
        let call = match part {
            Part::Whole => cut,
            Part::First => Some(long_wait::SHORT),
            Part::Timer(_) => None,
        };
        {
            let mut book = self.book.lock();
            book.carry_over(list);
            if let Part::Timer(timer) = part {
                // Last: it may have the number of one that was just deregistered, and closed.
                list.set(timer, Interest::READABLE);
            }
            book.waiting = true;
        }
        let result = list.ask(call);
        let mut book = self.book.lock();
        book.waiting = false;
        let (mut notified, mut over) = (false, false);
        match result {
            Ok(true) => {
                notified = list.is_ready(self.notified) && self.notifier.consume();
                over = matches!(part, Part::Timer(timer) if list.is_ready(timer));
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
        let passed = over && cut == timeout && timeout != Some(Duration::ZERO);
        match passed || notified || !events.is_empty() || timeout == Some(Duration::ZERO) {
            true => Ok(passed),
            // Woken by a change of another thread, or about one that has changed meanwhile; or this
            // was not all of the timeout.
            false => Err(Errno::INTR.into()),
        }
    }
}

impl InterestTable {
    fn note(&mut self, number: RawFd) {
        let line = &mut self.lines[number as usize];
        if !line.changed {
            line.changed = true;
            self.changed.push(number);
        }
    }

    /// Carries over to the list what has changed.
    fn carry_over(&mut self, list: &mut dyn PollSet) {
        for number in self.changed.drain(..) {
            let line = &mut self.lines[number as usize];
            line.changed = false;
            list.set(number, line.interest);
        }
    }

    /// Turns what the kernel said into events.
    fn collect(
        &mut self,
        list: &mut dyn PollSet,
        notified: RawFd,
        part: Part,
        events: &mut Events,
    ) {
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

impl Selector for TablePoller {
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
                return Err(crate::poller::error::registered_already());
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
                return Err(crate::poller::error::not_registered());
            }
            (line.token, line.interest, line.mode) = (token, interest, mode);
            Ok(())
        })
    }

    fn deregister(&self, descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
        self.change(descriptor.as_raw_fd(), &|line| {
            if !line.registered {
                return Err(crate::poller::error::not_registered());
            }
            line.registered = false;
            line.interest = Interest::NONE;
            Ok(())
        })
    }

    fn wait(&self, events: &mut Events, until: Until) -> io::Result<bool> {
        self.wait_once(events, until.timeout())
    }

    fn notify(&self) -> io::Result<()> {
        self.notifier.notify()
    }

    fn accepts_files(&self) -> bool {
        true
    }
}

/// The book and its kick, with a kernel of three descriptors, of which the first is the notifier's. Left out:
/// timeouts, errors, descriptors closed behind the book's back, and who calls `wait` again where it was
/// interrupted, which is the model's loop. That a byte is there is one lock here, as in the kernel.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering as O};

    const NOTIFIED: RawFd = 0;

    struct Kernel {
        readable: Mutex<[bool; 3]>,
        news: loom::sync::Condvar,
    }

    impl Kernel {
        fn set(&self, number: RawFd, readable: bool) {
            self.readable.lock()[number as usize] = readable;
            self.news.notify_one();
        }
    }

    struct Fake(Arc<Kernel>);

    impl Wire for Fake {
        fn write(&self) -> io::Result<()> {
            self.0.set(NOTIFIED, true);
            Ok(())
        }

        fn drain(&self) {
            self.0.set(NOTIFIED, false);
        }

        fn fills_up(&self) -> bool {
            true
        }
    }

    struct Level {
        kernel: Arc<Kernel>,
        asked: [bool; 3],
        said: [bool; 3],
    }

    impl PollSet for Level {
        fn granularity(&self) -> Duration {
            Duration::from_nanos(1)
        }

        fn hints(&self) -> bool {
            false
        }

        fn set(&mut self, number: RawFd, interest: Interest) {
            self.asked[number as usize] = !interest.is_empty();
        }

        /// Loom fails the model where this is for ever.
        fn ask(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
            let mut readable = self.kernel.readable.lock();
            loop {
                for (number, said) in self.said.iter_mut().enumerate() {
                    *said = self.asked[number] && readable[number];
                }
                if self.said.contains(&true) || timeout.is_some() {
                    return Ok(self.said.contains(&true));
                }
                readable = self.kernel.news.wait(readable).unwrap();
            }
        }

        fn is_ready(&self, number: RawFd) -> bool {
            self.said[number as usize]
        }

        fn tell(&mut self, tell: &mut dyn FnMut(RawFd, Answer) -> bool) {
            for number in (0..3).filter(|number| self.said[*number as usize]) {
                let (ready, gone) = (Ready::READABLE, false);
                tell(number, Answer { ready, gone });
            }
        }
    }

    struct World {
        kernel: Arc<Kernel>,
        booked: TablePoller<Fake>,
    }

    impl World {
        fn new() -> Arc<World> {
            let kernel = Arc::new(Kernel {
                readable: Mutex::new([false; 3]),
                news: loom::sync::Condvar::new(),
            });
            let list = Box::new(Level {
                kernel: kernel.clone(),
                asked: [false; 3],
                said: [false; 3],
            });
            let notifier = Notifier::with(Fake(kernel.clone()));
            Arc::new(World {
                booked: TablePoller::with(notifier, NOTIFIED, list),
                kernel,
            })
        }

        fn register(&self, number: RawFd, interest: Interest) {
            let change = self.booked.change(number, &|line| {
                line.registered = true;
                line.token = Token(number as u64);
                (line.interest, line.mode) = (interest, Mode::OneShot);
                Ok(())
            });
            change.unwrap();
        }

        fn deregister(&self, number: RawFd) {
            let change = self.booked.change(number, &|line| {
                (line.registered, line.interest) = (false, Interest::NONE);
                Ok(())
            });
            change.unwrap();
        }

        /// Waits once, until it is told something or is notified.
        fn wait(&self) -> Vec<u64> {
            let mut events = Events::with_capacity(3);
            while let Err(error) = self.booked.wait_once(&mut events, None) {
                assert_eq!(error.kind(), io::ErrorKind::Interrupted);
            }
            events.iter().map(|event| event.token().0).collect()
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn a_change_while_a_thread_waits_is_never_lost() {
        check(|| {
            let world = World::new();
            world.kernel.set(1, true);
            let changer = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.register(1, Interest::NONE);
                    world.register(1, Interest::READABLE);
                })
            };
            assert_eq!(world.wait(), [1]);
            changer.join().unwrap();
        });
    }

    #[test]
    fn two_threads_change_what_a_third_waits_for() {
        check(|| {
            let world = World::new();
            let changers: Vec<_> = [1, 2]
                .map(|number| {
                    let world = world.clone();
                    loom::thread::spawn(move || {
                        world.kernel.set(number, true);
                        world.register(number, Interest::READABLE);
                    })
                })
                .into();
            let mut told = Vec::new();
            while told.len() < 2 {
                told.append(&mut world.wait());
            }
            told.sort_unstable();
            assert_eq!(told, [1, 2], "each once: they are one-shot");
            for changer in changers {
                changer.join().unwrap();
            }
        });
    }

    #[test]
    fn what_was_deregistered_is_let_go_and_no_later_wait_tells_of_it() {
        check(|| {
            let world = World::new();
            world.register(1, Interest::READABLE);
            let gone = Arc::new(AtomicBool::new(false));
            let changer = {
                let (world, gone) = (world.clone(), gone.clone());
                loom::thread::spawn(move || {
                    world.deregister(1);
                    gone.store(true, O::SeqCst);
                    world.kernel.set(1, true);
                    world.booked.notifier.notify().unwrap();
                })
            };
            // It was not ready before it was deregistered.
            assert!(world.wait().is_empty());
            assert!(gone.load(O::SeqCst));
            // Whoever waited holds no reference to it any more: it is in no list.
            let mut events = Events::with_capacity(3);
            let _ = world.booked.wait_once(&mut events, Some(Duration::ZERO));
            assert!(events.is_empty());
            changer.join().unwrap();
        });
    }
}

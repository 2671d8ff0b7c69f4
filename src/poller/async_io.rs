//! `async-io`'s reactor does the waiting: one reactor in a process that also uses async-process,
//! zbus or async-net, instead of two. Behind the feature `async-io`.
//!
//! That reactor is the process's, not ours: each descriptor is an [`async_io::Async`], whose interest
//! is a waker of ours, a [`Signal`]. It is called by whichever thread drives the reactor: ours in its
//! wait, another crate's in `async_io::block_on`, or async-io's helper thread. It puts itself in the
//! poller's **inbox** and wakes the thread that waits. That thread looks up what the signals are
//! about in the **table**.
//!
//! * **What is armed.** async-io asks the kernel for one event at a time. So a report spends it, and
//!   levels are made by arming what was reported again before the next wait. There are no edges: made
//!   from this they would be levels, and spin.
//! * **No stale event:** a signal counts only if the table still has that very signal and its direction
//!   is still asked for; `modify` takes back what has not been reported yet, and arms it again.
//! * **A zero timeout** must report what is ready, and another thread may hold the reactor. So such a
//!   wait arms a **fence**, a descriptor that is always readable, and ends when that has been told:
//!   kernels tell what became ready earlier first, and async-io calls wakers in that order.
//! * **The end** of a source is told in the directions that are asked for. async-io tells no hints.
//! * **Once per process:** a descriptor can be in async-io only once. If it is there already (by another
//!   poller of ours, or somebody's `async_io::Async`), what is registered is a duplicate of it.
//! * async-io opens its reactor on first use, and *panics* where there are no descriptors left for it.
//!   So the first poller tries that first, with a reactor of its own.
//!
//! Lock order: table, then async-io's, then inbox. Wakers are called under none of ours.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use async_io::{Async, Timer};

use super::{
    BorrowedDescriptor, Capabilities, Event, Events, Interest, Mode, Ready, Selector, Token,
};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::{self, AsRawDescriptor, OwnedDescriptor, RawDescriptor};

pub(super) struct AsyncIo {
    table: Mutex<Table>,
    inbox: Arc<Inbox>,
    /// For the thread that waits only.
    fence: Mutex<Fence>,
}

#[derive(Default)]
struct Table {
    sources: HashMap<RawDescriptor, Source>,
    /// Reported as a level, and to be armed again before the next wait.
    again: Vec<RawDescriptor>,
}

struct Source {
    io: Async<Watched>,
    readable: Line,
    writable: Line,
    token: Token,
    interest: Interest,
    mode: Mode,
}

/// One direction of a source.
struct Line {
    signal: Arc<Signal>,
    waker: Waker,
    /// async-io has the waker, or had it and has called it, and the inbox still holds the signal.
    armed: bool,
}

/// What async-io is given to wake.
struct Signal {
    inbox: Arc<Inbox>,
    descriptor: RawDescriptor,
    direction: Direction,
    /// It is in the inbox, and counts. Written under the inbox's lock.
    raised: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

#[derive(Default)]
struct Inbox(Mutex<Post>);

#[derive(Default)]
struct Post {
    signals: VecDeque<Arc<Signal>>,
    notified: bool,
    /// The thread that waits.
    waiter: Option<Waker>,
}

impl Inbox {
    /// Changes it, and wakes whoever waits.
    fn put(&self, change: impl FnOnce(&mut Post)) {
        let mut post = self.0.lock();
        change(&mut post);
        let waiter = post.waiter.take();
        drop(post);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.put(|post| {
            if !self.raised.swap(true, Ordering::Relaxed) {
                post.signals.push_back(self.clone());
            }
        });
    }
}

impl Line {
    fn new(inbox: &Arc<Inbox>, descriptor: RawDescriptor, direction: Direction) -> Line {
        let signal = Arc::new(Signal {
            inbox: inbox.clone(),
            descriptor,
            direction,
            raised: AtomicBool::new(false),
        });
        Line {
            waker: signal.clone().into(),
            signal,
            armed: false,
        }
    }

    /// Asks async-io for one event, unless that is under way.
    fn arm(&mut self, io: &Async<impl Sized>) -> io::Result<()> {
        if self.armed {
            return Ok(());
        }
        let context = &mut Context::from_waker(&self.waker);
        // The first answer may be about the event that was told last.
        for _ in 0..2 {
            let answer = match self.signal.direction {
                Direction::Read => io.poll_readable(context),
                Direction::Write => io.poll_writable(context),
            };
            if let Poll::Ready(result) = answer {
                result?;
                continue;
            }
            self.armed = true;
            return Ok(());
        }
        self.armed = true;
        self.signal.wake_by_ref();
        Ok(())
    }

    /// Takes back what it has told and nobody has seen.
    fn quash(&mut self) {
        let _inbox = self.signal.inbox.0.lock();
        if self.signal.raised.swap(false, Ordering::Relaxed) {
            self.armed = false;
        }
    }
}

impl Source {
    fn has(&self, signal: &Arc<Signal>) -> bool {
        Arc::ptr_eq(&self.readable.signal, signal) || Arc::ptr_eq(&self.writable.signal, signal)
    }

    /// Arms what is asked for. If that fails, the source is of no more use: async-io holds a waker
    /// that the kernel does not know of.
    fn arm(&mut self) -> io::Result<()> {
        // Urgent data counts as readable in async-io, and cannot be asked for alone.
        if self.interest.contains(Interest::READABLE) {
            self.readable.arm(&self.io)?;
        }
        if self.interest.contains(Interest::WRITABLE) {
            self.writable.arm(&self.io)?;
        }
        Ok(())
    }

    /// What it has to report: what was raised, of what is asked for. Under the inbox's lock.
    fn take(&mut self) -> Ready {
        let mut ready = Ready::default();
        for (line, interest, told) in [
            (&mut self.readable, Interest::READABLE, Ready::READABLE),
            (&mut self.writable, Interest::WRITABLE, Ready::WRITABLE),
        ] {
            if line.signal.raised.swap(false, Ordering::Relaxed) {
                line.armed = false;
                if self.interest.contains(interest) {
                    ready |= told;
                }
            }
        }
        ready
    }
}

/// What async-io watches. It asks for something that has a descriptor, and may not let go of that.
enum Watched {
    /// The caller's own, and in [`LENT`].
    Lent(ManuallyDrop<OwnedDescriptor>),
    Duplicate(OwnedDescriptor),
}

/// What our pollers have lent to async-io. Some kernels refuse a second registration, and with others
/// it would take the place of the first.
static LENT: LazyLock<Mutex<HashSet<RawDescriptor>>> = LazyLock::new(Mutex::default);

impl Watched {
    fn lend(descriptor: BorrowedDescriptor<'_>) -> Option<Watched> {
        LENT.lock()
            .insert(descriptor.as_raw_descriptor())
            // SAFETY: it is never dropped, and not used once the descriptor is closed: whoever
            // registers with us deregisters before, and then this goes. See "Why `register` is unsafe"
            // in the module above.
            .then(|| Watched::Lent(ManuallyDrop::new(unsafe { sys::take_as_owned(descriptor) })))
    }

    fn watch(descriptor: BorrowedDescriptor<'_>) -> io::Result<Async<Watched>> {
        // Not `new`, which would make it non-blocking: that is its owner's business.
        if let Some(lent) = Watched::lend(descriptor) {
            match Async::new_nonblocking(lent) {
                // Somebody else's: see the head.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result,
            }
        }
        let duplicate = descriptor.try_clone_to_owned()?;
        Async::new_nonblocking(Watched::Duplicate(duplicate))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Watched::Lent(descriptor) = self {
            LENT.lock().remove(&descriptor.as_raw_descriptor());
        }
    }
}

sys::lend_descriptor!([] Watched, |it| match it {
    Watched::Lent(descriptor) => &**descriptor,
    Watched::Duplicate(descriptor) => descriptor,
});

/// See the head.
struct Fence {
    io: Async<OwnedDescriptor>,
    line: Line,
}

impl Fence {
    fn new(inbox: &Arc<Inbox>) -> io::Result<Fence> {
        let descriptor = sys::always_writable()?;
        let line = Line::new(inbox, descriptor.as_raw_descriptor(), Direction::Write);
        begin()?;
        Ok(Fence {
            io: Async::new_nonblocking(descriptor)?,
            line,
        })
    }
}

/// To be called before async-io is: makes sure that it can open its reactor.
fn begin() -> io::Result<()> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if !BEGUN.load(Ordering::Relaxed) {
        polling::Poller::new()?;
        BEGUN.store(true, Ordering::Relaxed);
    }
    Ok(())
}

impl AsyncIo {
    pub(super) fn new() -> io::Result<AsyncIo> {
        let inbox = Arc::default();
        Ok(AsyncIo {
            table: Mutex::default(),
            fence: Mutex::new(Fence::new(&inbox)?),
            inbox,
        })
    }

    /// Arms again what was told as a level.
    fn arm_again(&self, events: &mut Events) {
        let mut table = self.table.lock();
        let Table { sources, again } = &mut *table;
        again.retain(|descriptor| {
            let Some(source) = sources.get_mut(descriptor) else {
                return false;
            };
            if events.len() == events.limit() {
                return true;
            }
            if source.mode == Mode::Level && source.arm().is_err() {
                // Closed behind our back: told once, and forgotten.
                let end = Ready::READABLE | Ready::WRITABLE;
                events.push(Event::new(source.token, end));
                sources.remove(descriptor);
            }
            false
        });
    }

    /// Turns signals into events. True if there was a notification.
    fn collect(&self, events: &mut Events) -> bool {
        let mut table = self.table.lock();
        let Table { sources, again } = &mut *table;
        let mut post = self.inbox.0.lock();
        while events.len() < events.limit() {
            let Some(signal) = post.signals.pop_front() else {
                break;
            };
            let source = sources.get_mut(&signal.descriptor);
            let Some(source) = source.filter(|source| source.has(&signal)) else {
                continue; // Deregistered, or the fence.
            };
            let ready = source.take();
            if ready == Ready::default() {
                continue;
            }
            events.push(Event::new(source.token, ready));
            match source.mode {
                Mode::OneShot => source.interest = Interest::NONE,
                _ => again.push(signal.descriptor),
            }
        }
        std::mem::take(&mut post.notified)
    }

    /// Drives async-io's reactor, or lets others, until the inbox is as `is_enough` wants it. True if
    /// the deadline came first.
    fn sleep(&self, deadline: Option<Instant>, is_enough: impl Fn(&Post) -> bool) -> bool {
        let mut timer = deadline.map(Timer::at);
        let over = async_io::block_on(poll_fn(|context| {
            let mut post = self.inbox.0.lock();
            if is_enough(&post) {
                return Poll::Ready(false);
            }
            let before = post.waiter.replace(context.waker().clone());
            drop(post);
            drop(before);
            match &mut timer {
                Some(timer) => Pin::new(timer).poll(context).map(|_| true),
                None => Poll::Pending,
            }
        }));
        let waiter = self.inbox.0.lock().waiter.take();
        drop(waiter);
        over
    }

    /// Waits until all has been told that is ready now.
    fn look(&self) -> io::Result<()> {
        let mut fence = self.fence.lock();
        let Fence { io, line } = &mut *fence;
        line.quash();
        line.armed = false;
        line.arm(io)?;
        self.sleep(None, |_| line.signal.raised.load(Ordering::Relaxed));
        Ok(())
    }
}

impl Selector for AsyncIo {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: true,
            one_shot: true,
            edge: false,
            hints: false,
            descriptor: false,
            granularity: match cfg!(windows) {
                true => Duration::from_millis(1),
                false => Duration::from_nanos(1),
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
        let number = descriptor.as_raw_descriptor();
        let mut table = self.table.lock();
        if table.sources.contains_key(&number) {
            return Err(super::registered_already());
        }
        let mut source = Source {
            io: Watched::watch(descriptor)?,
            readable: Line::new(&self.inbox, number, Direction::Read),
            writable: Line::new(&self.inbox, number, Direction::Write),
            token,
            interest,
            mode,
        };
        source.arm()?;
        table.sources.insert(number, source);
        Ok(())
    }

    fn modify(
        &self,
        descriptor: BorrowedDescriptor<'_>,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let number = descriptor.as_raw_descriptor();
        let mut table = self.table.lock();
        let source = (table.sources.get_mut(&number)).ok_or_else(super::not_registered)?;
        (source.token, source.interest, source.mode) = (token, interest, mode);
        source.readable.quash();
        source.writable.quash();
        let result = source.arm();
        if result.is_err() {
            table.sources.remove(&number);
        }
        result
    }

    fn deregister(&self, descriptor: BorrowedDescriptor<'_>) -> io::Result<()> {
        let mut table = self.table.lock();
        let source = (table.sources.remove(&descriptor.as_raw_descriptor()))
            .ok_or_else(super::not_registered)?;
        source.io.into_inner().map(drop)
    }

    fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.arm_again(events);
        let mut over = timeout == Some(Duration::ZERO);
        if over {
            self.look()?;
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if self.collect(events) || over || !events.is_empty() {
                return Ok(());
            }
            over = self.sleep(deadline, |post| post.notified || !post.signals.is_empty());
        }
    }

    fn notify(&self) -> io::Result<()> {
        self.inbox.put(|post| post.notified = true);
        Ok(())
    }

    fn takes_files(&self) -> bool {
        true // kqueue does.
    }
}

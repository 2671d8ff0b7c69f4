//! One thread's loop: run tasks, fire deadlines, wait for I/O.
//!
//! **A turn** is a run and a pause, in whichever order its caller wants:
//!
//! * [`run_ready`](Worker::run_ready) runs ready tasks, [`RUNS`] at most.
//! * [`pause`](Worker::pause) takes what other threads sent; if there is nothing to run, it parks and
//!   sleeps until the earliest deadline, the caller's timeout, an event or a notification, else it
//!   looks without sleeping. It wakes whose sources and deadlines are ready. Then those that yielded
//!   are ready again: a loop of yields cannot get ahead of the poll.
//!
//! No clock is read when no timer is pending. The kernel is not asked when there are tasks to run
//! and no source is registered: there is nothing that it could say.
//!
//! **Embedding.** Once [`descriptor`](Worker::descriptor) was called, a foreign loop waits for us
//! on it. Then between turns the worker counts as parked, also for wakes from its own thread, whose
//! current worker it is not: they go through the inbox and notify. Each drive ends by arming the
//! earliest deadline in the kernel, and by a notification of its own if tasks are left.
//!
//! **Closing** ([`Worker::close`]), in phases:
//!
//! 1. Mark: tasks spawned from here on are cancelled at once.
//! 2. Drop every runnable that is queued, and with it its future; wake every other live task, so
//!    that it is queued too. On this thread, with this worker current, so that destructors may wake,
//!    spawn, and use sockets and timers.
//! 3. Until no live task is left: one whose wake is on its way arrives in the inbox.
//! 4. Close the reactor: sockets and timers that live on elsewhere are sent there.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::poller::Poller;
use crate::reactor::{Driver, Reactor};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::BorrowedDescriptor;
use crate::task::queue::{self, Home, Local};

/// Tasks run between two looks at the kernel. From 32 to 64 a look costs nothing that can be
/// measured beside them (Linux 6.18), and none of them waits for long.
const RUNS: usize = 64;

pub(crate) struct Worker {
    pub(crate) local: Rc<Local>,
    /// Taken for the length of a wait. A turn within a turn makes its own.
    driver: Cell<Option<Box<Driver>>>,
    embedded: Cell<bool>,
}

impl Worker {
    pub(crate) fn new(poller: Poller) -> Worker {
        let home = Arc::new(Home::new(Reactor::new(poller)));
        Worker {
            local: Rc::new(Local::new(home)),
            driver: Cell::default(),
            embedded: Cell::new(false),
        }
    }

    #[inline]
    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.local.home
    }

    #[inline]
    fn reactor(&self) -> &Reactor {
        &self.local.home.reactor
    }

    /// Drives the worker until `future` is done.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _driving = self.drive();
        let main = Arc::new(Main {
            woken: AtomicBool::new(true),
            home: self.home().clone(),
        });
        let waker = Waker::from(main.clone());
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            // The future has its turns among the tasks, and yields like one.
            let mut yielded = false;
            for _ in 0..RUNS {
                if !yielded && main.woken.load(Ordering::Relaxed) {
                    main.woken.swap(false, Ordering::Acquire);
                    self.local.renew_budget();
                    if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                        return output;
                    }
                    yielded = main.woken.load(Ordering::Relaxed);
                } else if !self.run_next() {
                    break;
                }
            }
            self.pause(None, Some(&main));
        }
    }

    /// Drives the worker until no task is left.
    pub(crate) fn run(&self) {
        let _driving = self.drive();
        loop {
            self.run_ready();
            if self.home().live_tasks() == 0 {
                return;
            }
            self.pause(None, None);
        }
    }

    /// Drives the worker for one turn. True if there was anything to do.
    pub(crate) fn turn(&self, timeout: Option<Duration>) -> bool {
        let _driving = self.drive();
        self.pause(timeout, None) | self.run_ready()
    }

    /// True if anything was woken.
    fn pause(&self, timeout: Option<Duration>, main: Option<&Main>) -> bool {
        let local = &*self.local;
        let reactor = self.reactor();
        let mut driver = self.driver.take().unwrap_or_default();
        let main_woken = || main.is_some_and(|main| main.woken.load(Ordering::Relaxed));
        let mut any = false;
        // The last look, in each place that another thread may have put something: the inbox, the
        // flag, and, in `next_timeout`, the deadlines.
        let nothing_came = || {
            reactor.park();
            !local.home.has_mail() && !main_woken() && !self.is_closed_empty()
        };
        let may_sleep = !local.has_work() && !main_woken() && timeout != Some(Duration::ZERO);
        if may_sleep && nothing_came() {
            let timeout = match (timeout, reactor.next_timeout()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            any |= wait(reactor, &mut driver, timeout);
        } else if reactor.has_sources() || self.embedded.get() {
            any |= wait(reactor, &mut driver, Some(Duration::ZERO));
        }
        reactor.resume();
        any |= reactor.fire(&mut driver);
        self.driver.set(Some(driver));
        local.take_mail();
        local.release_yielded();
        any
    }

    /// While closing, the last live task may end on another thread, the one that spawned it.
    fn is_closed_empty(&self) -> bool {
        self.home().is_closing() && self.home().live_tasks() == 0
    }

    /// True if there was any.
    fn run_ready(&self) -> bool {
        (0..RUNS).take_while(|_| self.run_next()).count() > 0
    }

    /// Runs the next ready task; false if there is none.
    #[inline]
    fn run_next(&self) -> bool {
        match self.local.pop() {
            None => false,
            Some(runnable) => {
                self.local.renew_budget();
                runnable.run();
                true
            }
        }
    }

    /// How long a foreign loop may sleep. `None`: until the worker is notified.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        match self.local.has_work() || self.home().has_mail() {
            true => Some(Duration::ZERO),
            false => self.reactor().next_timeout(),
        }
    }

    /// The descriptor that is readable when a turn has something to do, from now on.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedDescriptor<'_>> {
        let descriptor = self.reactor().descriptor()?;
        if !self.embedded.replace(true) {
            self.settle();
        }
        Ok(descriptor)
    }

    /// Makes this the thread's current worker.
    fn drive(&self) -> Driving<'_> {
        if self.embedded.get() {
            self.reactor().resume();
        }
        Driving {
            worker: self,
            _entered: queue::enter(&self.local),
        }
    }

    /// Embedded, at the end of a drive: see to it that the descriptor tells of what is left, and of
    /// whatever comes.
    fn settle(&self) {
        let reactor = self.reactor();
        reactor.park();
        if self.local.has_work() || self.home().has_mail() {
            reactor.notify();
        }
        reactor
            .arm()
            .expect("a poller with a descriptor takes a deadline");
    }

    /// Drops every task, and lets go of every socket and timer. What is left is what handles keep:
    /// memory and the poller.
    pub(crate) fn close(&self) {
        self.embedded.set(false);
        let _driving = self.drive();
        let home = self.home();
        home.start_closing();
        loop {
            self.local.take_mail();
            self.local.release_yielded();
            while let Some(runnable) = self.local.pop() {
                drop(runnable);
            }
            // Those that were polled before; destructors may not add any, since nothing runs.
            for (_, live) in self.local.take_live() {
                live.waker.wake();
            }
            if self.local.has_work() {
                continue;
            }
            if home.live_tasks() == 0 {
                break;
            }
            // A wake is under way on another thread, or a spawner is about to see the mark.
            self.pause(None, None);
        }
        home.reactor.close();
    }
}

#[inline]
fn wait(reactor: &Reactor, driver: &mut Driver, timeout: Option<Duration>) -> bool {
    match reactor.wait(driver, timeout) {
        Ok(any) => any,
        // The kernel is short of memory: poll and select ask for some in each call.
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => false,
        // The poller's own descriptor is broken, closed by somebody else for instance. There is no
        // one to tell, and nothing would ever be woken again.
        Err(error) => panic!("the runtime cannot wait: {error}"),
    }
}

/// While it lives, the worker is driven by this thread.
struct Driving<'a> {
    worker: &'a Worker,
    _entered: queue::Entered,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if self.worker.embedded.get() {
            self.worker.settle();
        }
    }
}

/// The future that `block_on` was given: no task, but woken like one.
struct Main {
    woken: AtomicBool,
    home: Arc<Home>,
}

impl Wake for Main {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    #[inline]
    fn wake_by_ref(self: &Arc<Self>) {
        // First the flag, then the unparking, whose fence stands between: see `reactor::parking`.
        self.woken.store(true, Ordering::Release);
        self.home.reactor.unpark();
    }
}

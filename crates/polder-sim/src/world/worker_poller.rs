//! The calls of a worker's selector: the methods of its [`PollerOfWorker`].

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use polder::kernel;

use super::handle::SimSocketId;
use super::kernel::Kernel;
use super::pollers::PollerOfWorker;
use super::thread::with_world;

impl PollerOfWorker {
    /// Registers a socket, or replaces its registration.
    pub(super) fn register(&self, socket: SimSocketId, token: u64, interest: u8) -> io::Result<()> {
        socket.with(|network, id| {
            network.core.processes.here()?;
            let ready = network.ready(id)?;
            let base = network.table.base(id)?;
            base.registrations.add(self.number, token, interest);
            let only = Some(self.number);
            network.core.raise_with(id, base, ready, only);
            Ok(())
        })
    }

    pub(super) fn deregister(&self, socket: SimSocketId) -> io::Result<()> {
        socket.with(|network, id| {
            let base = network.table.base(id)?;
            base.registrations.remove(self.number);
            Ok(())
        })
    }

    /// Takes at most `limit` events, and calls `report` with the token and the readiness of each
    /// that still has a registration. Wakes the worker again if there are more.
    #[inline]
    pub(crate) fn take(&self, limit: usize, mut report: impl FnMut((u64, u8))) {
        with_world(self.world, |kernel| {
            let (core, table) = (&mut kernel.core, &mut kernel.sockets.table);
            let events = &mut core.pollers.list[self.number].events;
            for _ in 0..limit {
                let Some(number) = events.pop_front() else {
                    return;
                };
                // It may be registered with another poller by now.
                let base = table.base(number).ok();
                let taken = base.and_then(|base| base.registrations.take(self.number));
                taken.into_iter().for_each(&mut report);
            }
            if !events.is_empty() {
                core.pollers.wake(self.number);
            }
        });
    }

    /// Wakes the worker: it has something to do.
    pub(crate) fn notify(&self) {
        self.woken(|kernel| kernel.core.pollers.wake(self.number));
    }

    /// Notes that a task of the worker was woken on this thread, which should be the world's.
    pub(crate) fn woken_on_this_thread(&self) {
        self.woken(|_| ());
    }

    /// Notes that something of the worker was woken. If this world's code did so, calls `wake`.
    #[inline]
    fn woken(&self, wake: impl FnOnce(&mut Kernel)) {
        let is_here = with_world(self.world, |kernel| {
            kernel.core.woken_by_current(self.number);
            wake(kernel);
        });
        if is_here.is_none() {
            self.foreign.store(true, Ordering::Relaxed);
        }
    }

    /// Sets when the worker's earliest timer is due.
    pub(crate) fn arm(&self, deadline: Option<Instant>) {
        with_world(self.world, |kernel| {
            let core = &mut kernel.core;
            let poller = &mut core.pollers.list[self.number];
            if std::mem::replace(&mut poller.timer, deadline) != deadline {
                let host = poller.host;
                let late = deadline.map_or(0, |_| core.lateness(host));
                core.pollers.list[self.number].late = late;
                core.pollers.arm(self.number, &core.time, &mut core.events);
            }
        });
    }
}

impl kernel::Poller for PollerOfWorker {
    fn register(&self, socket: u64, token: u64, interest: u8) -> io::Result<()> {
        self.register(socket.into(), token, interest)
    }

    fn deregister(&self, socket: u64) -> io::Result<()> {
        self.deregister(socket.into())
    }

    fn take(&self, limit: usize, report: &mut dyn FnMut(u64, u8)) {
        self.take(limit, |(token, ready)| report(token, ready));
    }

    fn notify(&self) {
        self.notify();
    }

    fn is_woken_from_elsewhere(&self) {
        self.woken_on_this_thread();
    }

    fn arm(&self, deadline: Option<Instant>) {
        self.arm(deadline);
    }
}

//! The selector of a worker in a simulated world: it reports the events of that world's kernel, and
//! never sleeps. The world's loop is told when the worker has something to do.
//!
//! A simulated socket has no descriptor, so it is registered by calls that only this selector has:
//! methods of [`Poller`] that are here.

use std::io;

use crate::poller::{
    AnySelector, Backend, Capabilities, Change, Event, Events, Poller, Ready, Selector, Token,
    Until,
};
use crate::sys::{BorrowedDescriptor, Process};
use crate::world::{self, PollerOfWorker, SimSocketId};

pub(in crate::poller) struct Simulated(PollerOfWorker);

impl Poller {
    /// Returns the poller of a simulated worker, which counts as the platform's default backend.
    pub(crate) fn simulated(poller: PollerOfWorker) -> Poller {
        let selector = AnySelector::Simulated(Simulated(poller));
        Poller::with(Backend::default(), selector, Process::current())
    }

    fn of_worker(&self) -> io::Result<&PollerOfWorker> {
        match &*self.selector {
            AnySelector::Simulated(Simulated(poller)) => Ok(poller),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// [`change_unchecked`](Self::change_unchecked) for a simulated socket, which may be registered
    /// with other pollers too.
    pub(crate) fn change_simulated(&self, socket: SimSocketId, change: Change) -> io::Result<()> {
        let worker = self.of_worker()?;
        let (Change::Register(request) | Change::Modify(request)) = change else {
            return worker.deregister(socket);
        };
        let mut flags = Ready::default();
        flags.add_if(request.interest.is_readable(), Ready::READABLE);
        flags.add_if(request.interest.is_writable(), Ready::WRITABLE);
        worker.register(socket, request.token.0, flags.0)
    }

    /// Called when a task was woken on this thread, which does not drive it: in a simulated world
    /// this must be the world's thread.
    pub(crate) fn woken_on_this_thread(&self) {
        if let Ok(poller) = self.of_worker() {
            poller.woken_on_this_thread();
        }
    }
}

// The flags of a world are the bits of `Ready`.
const _: () = assert!(world::READABLE == Ready::READABLE.0 && world::WRITABLE == Ready::WRITABLE.0);
const _: () = assert!(world::CLOSED == Ready::CLOSED.0 && world::ERROR == Ready::ERROR.0);

/// An end concerns both directions.
fn ready(flags: u8) -> Ready {
    if flags & (world::CLOSED | world::ERROR) != 0 {
        Ready(flags) | Ready::READABLE | Ready::WRITABLE
    } else {
        Ready(flags)
    }
}

impl Selector for Simulated {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: false,
            one_shot: false,
            descriptor: false,
            ..Capabilities::ALL
        }
    }

    fn change(&self, _: BorrowedDescriptor<'_>, _: Change) -> io::Result<()> {
        Err(world::unsupported(
            "waiting for a descriptor of the system's",
        ))
    }

    fn wait(&self, events: &mut Events, _: &Until) -> io::Result<bool> {
        self.0.take(events.limit(), |(token, flags)| {
            events.push(Event::new(Token(token), ready(flags)));
        });
        Ok(false)
    }

    fn notify(&self) -> io::Result<()> {
        self.0.notify();
        Ok(())
    }

    fn arm(&self, until: Until) -> io::Result<()> {
        match until {
            Until::Now => self.0.notify(),
            Until::Deadline { deadline, .. } => self.0.arm(Some(deadline)),
            Until::Never => self.0.arm(None),
        }
        Ok(())
    }
}

//! The selector of a worker in a simulated world: it reports the events of that world's kernel, and
//! never sleeps. The driver of the worker is notified when there is something to do.

use std::io;
use std::time::Duration;

use crate::poller::{Capabilities, Event, Events, Interest, Mode, Ready, Selector, Token, Until};
use crate::sys::BorrowedDescriptor;
use crate::world::{self, PollerOfWorker, SimSocketId};

pub(in crate::poller) struct Simulated(PollerOfWorker);

impl Simulated {
    pub(in crate::poller) fn new(poller: PollerOfWorker) -> Simulated {
        Simulated(poller)
    }
}

fn ready(flags: u8) -> Ready {
    let all = [
        (world::READABLE, Ready::READABLE),
        (world::WRITABLE, Ready::WRITABLE),
        (
            world::CLOSED,
            Ready::CLOSED | Ready::READABLE | Ready::WRITABLE,
        ),
        (
            world::ERROR,
            Ready::ERROR | Ready::READABLE | Ready::WRITABLE,
        ),
    ];
    let set = all.into_iter().filter(|(flag, _)| flags & flag != 0);
    set.fold(Ready::default(), |sum, (_, ready)| sum | ready)
}

fn no_descriptors() -> io::Error {
    world::unsupported("waiting for a descriptor of the system's")
}

impl Selector for Simulated {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: false,
            one_shot: false,
            edge: true,
            hints: true,
            priority: true,
            descriptor: false,
            granularity: Duration::from_nanos(1),
        }
    }

    fn register(
        &self,
        _: BorrowedDescriptor<'_>,
        _: Token,
        _: Interest,
        _: Mode,
    ) -> io::Result<()> {
        Err(no_descriptors())
    }

    fn modify(&self, _: BorrowedDescriptor<'_>, _: Token, _: Interest, _: Mode) -> io::Result<()> {
        Err(no_descriptors())
    }

    fn deregister(&self, _: BorrowedDescriptor<'_>) -> io::Result<()> {
        Err(no_descriptors())
    }

    fn wait(&self, events: &mut Events, _: &Until) -> io::Result<bool> {
        let left = events.limit();
        for _ in 0..left {
            let Some((token, flags)) = self.0.take() else {
                return Ok(false);
            };
            events.push(Event::new(Token(token), ready(flags)));
        }
        self.0.wake_if_ready();
        Ok(false)
    }

    fn notify(&self) -> io::Result<()> {
        self.0.notify();
        Ok(())
    }

    fn register_simulated(
        &self,
        socket: SimSocketId,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let mut flags = 0;
        if interest.is_readable() {
            flags |= world::READABLE;
        }
        if interest.is_writable() {
            flags |= world::WRITABLE;
        }
        self.0.register(socket, token.0, flags)
    }

    fn deregister_simulated(&self, socket: SimSocketId) -> io::Result<()> {
        self.0.deregister(socket)
    }

    fn woken_on_this_thread(&self) {
        self.0.woken_on_this_thread();
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

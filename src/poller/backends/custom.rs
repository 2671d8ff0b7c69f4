//! The selector of a worker whose kernel has a poller for it ([`kernel::Poller`]): it reports that
//! poller's events, and never sleeps. Sockets of such a kernel have no descriptor.

use std::io;

use crate::kernel;
use crate::poller::capabilities::Capabilities;
use crate::poller::event::{Event, Events, Ready, Token};
use crate::poller::selector::{Change, Selector, WaitUntil};
use crate::sys::BorrowedDescriptor;

pub(in crate::poller) struct CustomSelector(
    pub(in crate::poller) kernel::Boxed<dyn kernel::Poller>,
);

impl CustomSelector {
    /// [`Selector::change`] for the kernel's socket of this number.
    pub(in crate::poller) fn change_socket(&self, socket: u64, change: Change) -> io::Result<()> {
        let (Change::Register(request) | Change::Modify(request)) = change else {
            return self.0.deregister(socket);
        };
        let mut flags = Ready::default();
        flags.add_if(request.interest.is_readable(), Ready::READABLE);
        flags.add_if(request.interest.is_writable(), Ready::WRITABLE);
        (self.0).register(socket, request.token.0, flags.0)
    }
}

const _: () = assert!(kernel::READABLE == Ready::READABLE.0);
const _: () = assert!(kernel::WRITABLE == Ready::WRITABLE.0);
const _: () = assert!(kernel::CLOSED == Ready::CLOSED.0 && kernel::ERROR == Ready::ERROR.0);

/// A hang-up concerns both directions.
fn ready(flags: u8) -> Ready {
    if flags & (kernel::CLOSED | kernel::ERROR) != 0 {
        Ready(flags) | Ready::READABLE | Ready::WRITABLE
    } else {
        Ready(flags)
    }
}

impl Selector for CustomSelector {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: false,
            one_shot: false,
            descriptor: false,
            ..Capabilities::ALL
        }
    }

    fn change(&self, _: BorrowedDescriptor<'_>, _: Change) -> io::Result<()> {
        kernel::permit("waiting for a descriptor of the system's")?;
        Err(io::ErrorKind::Unsupported.into())
    }

    fn wait(&self, events: &mut Events, _: WaitUntil) -> io::Result<bool> {
        self.0.take(events.limit(), &mut |token, flags| {
            events.push(Event::new(Token(token), ready(flags)));
        });
        Ok(false)
    }

    fn notify(&self) -> io::Result<()> {
        self.0.notify();
        Ok(())
    }

    fn arm(&self, until: WaitUntil) -> io::Result<()> {
        match until {
            WaitUntil::Now => self.0.notify(),
            WaitUntil::At { deadline, .. } => self.0.arm(Some(deadline)),
            WaitUntil::Forever => self.0.arm(None),
        }
        Ok(())
    }
}

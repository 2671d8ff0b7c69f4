//! The adapter for the `polling` crate: kqueue, event ports and I/O completion ports; on Linux,
//! polling's epoll, so that it is executed there too.
//!
//! `polling` is well tested on these kernels. It differs from the contract as follows:
//!
//! * Its keys are `usize`, which may be smaller than a token. So a key is an index into a table,
//!   which also detects duplicates (kqueue would accept them).
//! * **Why no event is stale:** a source that is changed while a thread waits gets another key, and
//!   a freed key is not reused before that wait is over. So an event from before the change,
//!   reported after it, finds an empty entry. Nothing is lost: a change reports a source that is
//!   ready.
//! * It does not report hang-up and error on every system, nor, with edges, the end of file that
//!   came with the data: so there are no hints. It does not report whether the timeout elapsed.
//! * On Windows, a change may take no effect in a wait that another thread is about to start:
//!   `polling` 3.11 leaves the change to the next wait if no thread waits, and that wait can begin
//!   just after the check. So a change during a wait interrupts it: see [`Polling::wake`].

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polling::{Event as Report, PollMode};

use crate::poller::capabilities::Capabilities;
use crate::poller::error::{failed, not_registered, registered_already, tried};
use crate::poller::event::{Event, Events, Interest, Mode, Ready, Token};
use crate::poller::selector::{Change, Request, Selector, WaitUntil};
use crate::slab::{Slab, less_room};
use crate::sync::Mutex;
use crate::sys::{AsRawDescriptor, BorrowedDescriptor, LONGEST_TIMEOUT, RawDescriptor};

struct Polling {
    poller: polling::Poller,
    table: Mutex<Table>,
    buffer: Mutex<polling::Events>,
    /// Whether [`notify`](Selector::notify) was called since the last wait. Set before `polling` is
    /// notified, so that the wait that this ends finds it. A wait that takes it has ended since, so
    /// the notification is served, even if the notification of `polling` ends another wait later.
    notified: AtomicBool,
}

#[derive(Default)]
struct Table {
    /// Fixed hasher: keys are descriptors chosen by the kernel, so HashDoS is no concern.
    keys: HashMap<RawDescriptor, usize, BuildHasherDefault<DefaultHasher>>,
    /// By key.
    tokens: Slab<Option<Token>>,
    /// Keys freed while a thread waited, not to be reused before its wait is over.
    retired: Vec<usize>,
    waiting: bool,
    /// Whether the current wait was interrupted for a change. Cleared when a wait begins, which the
    /// wake of an earlier one may then end spuriously: it is repeated.
    woken: bool,
}

pub(in crate::poller) fn open() -> io::Result<Box<dyn Selector>> {
    Ok(Box::new(Polling::new()?))
}

impl Polling {
    fn new() -> io::Result<Polling> {
        let poller =
            polling::Poller::new().map_err(|error| failed("polling::Poller::new", error))?;
        let trial = poller.wait(&mut polling::Events::new(), Some(Duration::ZERO));
        tried(trial.map_err(|error| failed("polling::Poller::wait", error)))?;
        Ok(Polling {
            poller,
            table: Mutex::new(Table::default()),
            buffer: Mutex::default(),
            notified: AtomicBool::new(false),
        })
    }

    /// Interrupts the current wait for a change, once. A wait sets `waiting` under the table's lock
    /// before it begins, so a wait that is not seen here finds the change.
    fn wake(&self, table: &mut Table) -> io::Result<()> {
        if !(table.waiting && cfg!(windows)) || table.woken {
            return Ok(());
        }
        self.poller.notify()?;
        table.woken = true;
        Ok(())
    }

    /// Whether the wait that has just ended, if without events, was too short. A late wake ends the
    /// next wait, which need not have been woken itself.
    fn was_too_short(&self, until: WaitUntil) -> bool {
        let notified = self.notified.swap(false, Ordering::AcqRel);
        let too_early = match until {
            // A check without sleeping has seen everything, and must end, however often it is
            // woken.
            WaitUntil::Now => false,
            WaitUntil::At { deadline, .. } => Instant::now() < deadline,
            WaitUntil::Forever => true,
        };
        // Elsewhere only a timeout that was cut ends a wait early.
        let may_be = cfg!(windows) || cut(until) != until.duration();
        may_be && too_early && !notified
    }
}

fn cut(until: WaitUntil) -> Option<Duration> {
    until.duration().map(|timeout| timeout.min(LONGEST_TIMEOUT))
}

impl Table {
    fn give_up(&mut self, key: usize) {
        if self.waiting {
            self.tokens[key] = None;
            self.retired.push(key);
        } else {
            self.tokens.remove(key);
        }
        if let Some(capacity) = less_room(self.keys.len(), self.keys.capacity()) {
            self.keys.shrink_to(capacity);
        }
    }
}

impl Selector for Polling {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            level: self.poller.supports_level(),
            one_shot: true,
            edge: self.poller.supports_edge(),
            hints: false,
            priority: false,
            descriptor: false,
            // kqueue reports each acknowledgement.
            tcp_room_on_demand: cfg!(not(any(
                target_vendor = "apple",
                target_os = "freebsd",
                target_os = "netbsd",
                target_os = "openbsd",
                target_os = "dragonfly",
            ))),
            granularity: if cfg!(windows) {
                Duration::from_millis(1)
            } else {
                Duration::from_nanos(1)
            },
        }
    }

    fn change(&self, descriptor: BorrowedDescriptor<'_>, change: Change) -> io::Result<()> {
        let raw = descriptor.as_raw_descriptor();
        let mut table = self.table.lock();
        if !matches!(change, Change::Deregister) {
            // First: the wait is over only after the change, since it then takes the lock; and if
            // this is refused, nothing has changed.
            self.wake(&mut table)?;
        }
        let old = table.keys.get(&raw).copied();
        let (request, key) = match (change, old) {
            (Change::Register(_), Some(_)) => return Err(registered_already()),
            (Change::Modify(_) | Change::Deregister, None) => return Err(not_registered()),
            (Change::Modify(request), Some(old)) if !table.waiting => (request, old),
            (Change::Register(request) | Change::Modify(request), _) => {
                (request, table.tokens.insert(None))
            }
            (Change::Deregister, Some(old)) => {
                table.keys.remove(&raw);
                table.give_up(old);
                return self.poller.delete(descriptor);
            }
        };
        let (event, mode) = (report(key, request.interest), poll_mode(request));
        let result = match old {
            // SAFETY: the caller that registers with us has the same duty, to deregister before
            // closing: "Why `register` is unsafe" in the module above.
            None => unsafe { self.poller.add_with_mode(raw, event, mode) },
            Some(_) => self.poller.modify_with_mode(descriptor, event, mode),
        };
        match &result {
            Ok(()) => {
                table.tokens[key] = Some(request.token);
                table.keys.insert(raw, key);
                if let Some(old) = old.filter(|old| *old != key) {
                    table.give_up(old);
                }
            }
            Err(_) if old != Some(key) => table.give_up(key),
            Err(_) => {}
        }
        result
    }

    fn wait(&self, events: &mut Events, until: WaitUntil) -> io::Result<bool> {
        let mut buffer = self.buffer.lock();
        let limit = NonZeroUsize::new(events.limit()).expect("a limit is at least one");
        if buffer.capacity() != limit {
            *buffer = polling::Events::with_capacity(limit);
        }
        buffer.clear();
        {
            let mut table = self.table.lock();
            table.waiting = true;
            table.woken = false;
        }
        let result = self.poller.wait(&mut buffer, cut(until));
        let mut table = self.table.lock();
        for event in buffer.iter() {
            if let Some(Some(token)) = table.tokens.get(event.key) {
                events.push(Event::new(*token, ready(&event)));
            }
        }
        table.waiting = false;
        let table = &mut *table;
        for key in std::mem::take(&mut table.retired) {
            table.tokens.remove(key);
        }
        result?;
        if self.was_too_short(until) && events.is_empty() {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(false)
        }
    }

    fn notify(&self) -> io::Result<()> {
        self.notified.store(true, Ordering::Release);
        self.poller.notify()
    }
}

fn report(key: usize, interest: Interest) -> Report {
    let mut report = Report::new(
        key,
        interest.contains(Interest::READABLE),
        interest.contains(Interest::WRITABLE),
    );
    report.set_priority(interest.contains(Interest::PRIORITY));
    report
}

/// An empty interest is one-shot in any mode but edges, so that a hang-up without a waiter does not
/// end every wait: as for epoll.
fn poll_mode(request: Request) -> PollMode {
    match request.mode {
        Mode::Level if request.interest.is_empty() => PollMode::Oneshot,
        Mode::Level => PollMode::Level,
        Mode::OneShot => PollMode::Oneshot,
        Mode::Edge => PollMode::Edge,
    }
}

fn ready(report: &Report) -> Ready {
    let mut ready = Ready::default();
    ready.add_if(report.readable, Ready::READABLE);
    ready.add_if(report.writable, Ready::WRITABLE);
    ready.add_if(report.is_priority(), Ready::READABLE | Ready::PRIORITY);
    // Any other event: the waiter tries its operation.
    if ready == Ready::default() {
        ready = Ready::READABLE | Ready::WRITABLE;
    }
    ready
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn request(token: u64) -> Request {
        Request {
            token: Token(token),
            interest: Interest::READABLE,
            mode: Mode::OneShot,
        }
    }

    impl Polling {
        fn key_of(&self, socket: &UnixStream) -> Option<usize> {
            let table = self.table.lock();
            table.keys.get(&socket.as_raw_descriptor()).copied()
        }

        fn add(&self, socket: &UnixStream, token: u64) {
            self.change(socket.as_fd(), Change::Register(request(token)))
                .unwrap();
        }
    }

    /// A wait that is cut is repeated unless it was notified.
    ///
    /// On Windows 50 days would be forever, and NetBSD would refuse four years.
    #[test]
    fn interrupted_wait_repeated_unless_notified() {
        let platform = Polling::new().unwrap();
        let now = Instant::now();
        let after = |time| WaitUntil::At {
            deadline: now + time,
            now,
        };
        assert_eq!(cut(after(LONGEST_TIMEOUT)), Some(LONGEST_TIMEOUT));
        assert_eq!(cut(WaitUntil::Forever), None);
        let long = after(LONGEST_TIMEOUT * 2_000);
        assert_eq!(cut(long), Some(LONGEST_TIMEOUT));
        assert!(platform.was_too_short(long));
        platform.notify().unwrap();
        assert!(!platform.was_too_short(long), "it was notified");
    }

    /// Otherwise an unreported event would carry the new token.
    #[test]
    fn change_during_wait_gets_new_key() {
        let platform = Polling::new().unwrap();
        let (socket, mut peer) = UnixStream::pair().unwrap();
        platform.add(&socket, 1);
        let key = platform.key_of(&socket).unwrap();
        let change = |token| {
            platform
                .change(socket.as_fd(), Change::Modify(request(token)))
                .unwrap();
        };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut events = Events::new();
                platform.wait(&mut events, WaitUntil::Forever).unwrap();
                events.iter().map(|event| event.token()).collect::<Vec<_>>()
            });
            let start = Instant::now();
            while !platform.table.lock().waiting {
                assert!(start.elapsed() < Duration::from_secs(30), "nobody waits");
                std::thread::yield_now();
            }
            change(2);
            assert_ne!(platform.key_of(&socket), Some(key));
            assert_eq!(platform.table.lock().tokens[key], None);
            std::io::Write::write_all(&mut peer, b"x").unwrap();
            assert_eq!(waiter.join().unwrap(), [Token(2)]);
        });
        let now = platform.key_of(&socket);
        change(3);
        assert_eq!(platform.key_of(&socket), now, "nobody waits");
        platform.change(socket.as_fd(), Change::Deregister).unwrap();
    }

    /// A key given up while a thread waits is not used again before that wait is over.
    ///
    /// Otherwise an unreported event would carry the next owner's token.
    #[test]
    fn key_not_reused_during_wait() {
        let platform = Polling::new().unwrap();
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        let [first, second, third] = pairs.each_ref().map(|(near, _)| near);
        platform.add(first, 1);
        let key = platform.key_of(first).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut events = Events::new();
                platform.wait(&mut events, WaitUntil::Forever).unwrap();
                events.len()
            });
            let start = Instant::now();
            while !platform.table.lock().waiting {
                assert!(start.elapsed() < Duration::from_secs(30), "nobody waits");
                std::thread::yield_now();
            }
            platform.change(first.as_fd(), Change::Deregister).unwrap();
            platform.add(second, 2);
            let other = platform.key_of(second).unwrap();
            platform.notify().unwrap();
            assert_eq!(waiter.join().unwrap(), 0);
            assert_ne!(other, key, "the key of what was given up during the wait");
        });
        platform.add(third, 3);
        assert_eq!(
            platform.key_of(third),
            Some(key),
            "the wait is over, and the key is free"
        );
        for socket in [second, third] {
            platform.change(socket.as_fd(), Change::Deregister).unwrap();
        }
    }
}

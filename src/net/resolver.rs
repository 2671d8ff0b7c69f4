//! Name lookups. The system's resolver blocks, so it is called on threads of the
//! [pool](crate::blocking), some reserved for this. A runtime's own resolver is a task of that
//! runtime.
//!
//! **Identical lookups in progress are joined**: a hundred connections to one host make one lookup,
//! on one thread. Nothing is cached beyond that. Each resolver has its own lookups.
//!
//! Each waiter holds a [`Lookup`]; the list has it weakly, by name. When the last waiter gives up,
//! a call that no thread has begun is withdrawn, and a task is cancelled. An entry is removed by
//! the thread that has the answer or by the drop of its `Lookup`, whichever comes first; each
//! recognises its entry by its [`Question`]. No `Lookup` is dropped under the lock of the list,
//! which its drop takes, and no call or task is started under it, since it may be dropped
//! immediately.
//!
//! **A child of `fork`** has its own list. A lookup of the parent is an error there: the pool's
//! threads are the parent's, and one may have held the lock of its list.
//!
//! A resolver may look up names itself ([`asking`]). Such lookups do not go to that resolver, which
//! would wait for its own answer, but to the system's, or to that of another runtime, which it may
//! drive.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;

use socket2::{Domain, Type};

use crate::blocking::{Awaiter, Class, Job, POOL};
use crate::event::Latch;
use crate::kernel;
use crate::runtime::{Handle, Resolver, asking};
use crate::scheduler::record_wait;
use crate::sync::Mutex;
use crate::sys::{self, PerProcess, Process, unsupported};
use crate::telemetry::WaitReason;

/// Asks the installed kernel, if it looks up names; else the resolver of the runtime that this
/// thread drives; else the system's. If the future is dropped before a thread has begun, and no
/// other waiter has joined, the lookup is never made.
pub(super) async fn look_up(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(look_up) = kernel::current().and_then(|kernel| kernel.look_up(&host)) {
        let addresses = look_up.await?.into_iter();
        return Ok(addresses
            .map(|address| SocketAddr::new(address, port))
            .collect());
    }
    LOOKUPS.get().look_up(host, port).await
}

/// Addresses without a port, or an error's kind and text, which several waiters receive.
type Answer = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// The resolver's id (0: the system's), and the host.
type Name = (usize, String);

const SYSTEM: usize = 0;

struct Lookups {
    /// Sorted by name.
    list: Mutex<Vec<Entry>>,
    /// The system's resolver.
    ask: fn(&str) -> Answer,
    process: Process,
}

struct Entry {
    question: Arc<Question>,
    lookup: Weak<Lookup>,
}

/// Returns the position of the name, or the one where it belongs.
fn find(list: &[Entry], name: &Name) -> Result<usize, usize> {
    list.binary_search_by(|entry| entry.question.name.cmp(name))
}

static LOOKUPS: PerProcess<Lookups> = PerProcess::new(|| Lookups::new(ask));

struct Lookup {
    question: Arc<Question>,
    /// The call, or the task of a runtime's own resolver; dropping it cancels it.
    work: OnceLock<Box<dyn Send + Sync>>,
}

/// The state that a lookup shares with the thread or task that performs it.
struct Question {
    lookups: &'static Lookups,
    name: Name,
    answer: OnceLock<Answer>,
    answered: Latch,
}

impl Lookups {
    fn new(ask: fn(&str) -> Answer) -> Lookups {
        Lookups {
            list: Mutex::default(),
            ask,
            process: Process::current(),
        }
    }

    async fn look_up(&'static self, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
        let lookup = self.join(host)?;
        let mut answered = lookup.question.answered.wait();
        poll_fn(|cx| {
            if !self.process.is_current() {
                return Poll::Ready(Err(unsupported(
                    "the name was being looked up when the process forked: ask again",
                )));
            }
            let result = Pin::new(&mut answered).poll(cx);
            if result.is_pending() {
                record_wait(WaitReason::Lookup);
            }
            result.map(Ok)
        })
        .await?;
        match lookup.question.answer.get() {
            Some(Ok(addresses)) => {
                let mut addresses = addresses.clone();
                addresses
                    .iter_mut()
                    .for_each(|address| address.set_port(port));
                Ok(addresses)
            }
            Some(Err((kind, words))) => Err(io::Error::new(*kind, words.clone())),
            None => Err(io::Error::other(
                "the name lookup panicked or did not begin, or the runtime of its resolver has ended",
            )),
        }
    }

    /// Returns the lookup of `host` that is in progress, or a new one.
    fn join(&'static self, host: String) -> io::Result<Arc<Lookup>> {
        let own = own_resolver();
        let asked = own.as_ref().map_or(SYSTEM, |(_, resolver)| resolver.id);
        let name = (asked, host);
        let mut list = self.list.lock();
        let place = find(&list, &name);
        let under_way = place.ok().map(|place| &list[place].lookup);
        if let Some(lookup) = under_way.and_then(Weak::upgrade) {
            return Ok(lookup);
        }
        let question = Arc::new(Question {
            lookups: self,
            name,
            answer: OnceLock::new(),
            answered: Latch::new(),
        });
        let lookup = Arc::new(Lookup {
            question: question.clone(),
            work: OnceLock::new(),
        });
        let entry = Entry {
            question: question.clone(),
            lookup: Arc::downgrade(&lookup),
        };
        match place {
            // The entry of a lookup that all waiters have given up.
            Ok(place) => list[place] = entry,
            Err(place) => list.insert(place, entry),
        }
        drop(list);
        // Its drop reports the end, also where the call or the task is dropped here.
        let reporter = Reporter(question);
        let work: Box<dyn Send + Sync> = match own {
            None => {
                let call = Arc::new(Call(Mutex::new(Some(reporter))));
                POOL.get().submit(Class::Lookup, call.clone())?;
                Box::new(CallGuard {
                    call,
                    lookups: self,
                })
            }
            Some((handle, resolver)) => {
                let host = reporter.0.name.1.clone();
                let on_answer = Box::new(move |addresses| reporter.addresses(addresses));
                (resolver.ask)(&handle.shared, resolver.clone(), host, on_answer)
            }
        };
        let _ = lookup.work.set(work);
        Ok(lookup)
    }
}

impl Question {
    fn remove(self: &Arc<Self>) {
        if !self.lookups.process.is_current() {
            return;
        }
        let mut list = self.lookups.list.lock();
        let place = find(&list, &self.name).ok();
        if let Some(place) = place.filter(|place| Arc::ptr_eq(&list[*place].question, self)) {
            list.remove(place);
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.question.remove();
    }
}

/// Reports the end of a lookup to its waiters, even after a panic.
struct Reporter(Arc<Question>);

impl Reporter {
    /// Runs on a thread of the pool.
    fn ask(self) {
        let (_, host) = &self.0.name;
        let _ = self.0.answer.set((self.0.lookups.ask)(host));
    }

    /// Called in a task of the runtime that has the resolver.
    fn addresses(self, addresses: io::Result<Vec<IpAddr>>) {
        let (_, host) = &self.0.name;
        let answer = match addresses {
            Ok(addresses) => Ok(addresses.into_iter().map(|ip| (ip, 0).into()).collect()),
            Err(error) => Err(failed(host, &error)),
        };
        let _ = self.0.answer.set(answer);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.0.remove();
        self.0.answered.set();
    }
}

/// The call of the system's resolver, until a thread begins it. Not by `Pool::call`, which would
/// link code that keeps and passes on an output.
struct Call(Mutex<Option<Reporter>>);

impl Job for Call {
    fn run(&self) -> Awaiter {
        let reporter = self.0.lock().take();
        reporter.into_iter().for_each(Reporter::ask);
        Awaiter::default()
    }

    fn is_cancelled(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// Withdraws a call when it is dropped, unless it has begun.
struct CallGuard {
    call: Arc<Call>,
    lookups: &'static Lookups,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        // In a child of `fork`, a thread of the parent may hold the lock.
        if self.lookups.process.is_current() {
            let withdrawn = self.call.0.lock().take();
            if withdrawn.is_some() {
                drop(withdrawn);
                POOL.get().note_cancelled();
            }
        }
    }
}

/// Returns the resolver of the runtime that this thread drives, unless it is running here.
fn own_resolver() -> Option<(Handle, Arc<Resolver>)> {
    let handle = Handle::try_current()?;
    let resolver = handle.resolver()?;
    (resolver.id != asking()).then_some((handle, resolver))
}

fn failed(host: &str, error: &io::Error) -> (io::ErrorKind, String) {
    (error.kind(), format!("cannot resolve {host:?}: {error}"))
}

fn ask(host: &str) -> Answer {
    match (host, 0).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.collect()),
        Err(error) => {
            // Without descriptors, which it needs, the resolver reports the name as unknown.
            let shortage = socket2::Socket::new(Domain::IPV4, Type::DGRAM, None).err();
            let shortage = shortage.filter(sys::is_out_of_descriptors);
            Err(failed(host, &shortage.unwrap_or(error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::testing::limited::within;
    use futures_lite::future::{block_on, poll_once};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// More concurrent lookups than threads, of which some are cancelled.
    #[test]
    fn every_lookup_is_answered() {
        within("a lookup is not answered", || {
            let lookups: Vec<_> = (0..256)
                .map(|port| {
                    let lookup = look_up("127.0.0.1".into(), port);
                    (port, std::thread::spawn(move || block_on(lookup)))
                })
                .collect();
            for _ in 0..64 {
                let mut lookup = Box::pin(look_up("localhost".into(), 1));
                block_on(poll_once(&mut lookup));
            }
            for (port, lookup) in lookups {
                let addresses = lookup.join().unwrap().unwrap();
                assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], port))]);
            }
        });
    }

    /// Identical lookups in progress are joined; later ones start their own.
    #[test]
    fn lookups_joined_while_in_progress() {
        within("a lookup that was joined is not answered", || {
            static ASKED: AtomicUsize = AtomicUsize::new(0);
            static GO_ON: LazyLock<Event> = LazyLock::new(Event::new);
            static OURS: PerProcess<Lookups> = PerProcess::new(|| {
                Lookups::new(|host| {
                    ASKED.fetch_add(1, SeqCst);
                    block_on(GO_ON.wait());
                    match host {
                        "known" => Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]),
                        "broken" => panic!("on purpose"),
                        _ => Err((io::ErrorKind::NotFound, "unknown".into())),
                    }
                })
            });
            let ours = OURS.get();
            let entries = || ours.list.lock().len();

            for round in 1..=2 {
                let mut all: Vec<_> = (1..=50)
                    .map(|port| Box::pin(ours.look_up("known".into(), port)))
                    .collect();
                for lookup in &mut all {
                    assert!(block_on(poll_once(lookup)).is_none());
                }
                all.truncate(40);
                GO_ON.set();
                for (lookup, port) in all.into_iter().zip(1..) {
                    let addresses = block_on(lookup).unwrap();
                    assert_eq!(addresses, [SocketAddr::from(([127, 0, 0, 1], port))]);
                }
                assert_eq!((ASKED.load(SeqCst), entries()), (round, 0));
            }

            for (host, kind) in [
                ("other", io::ErrorKind::NotFound),
                ("broken", io::ErrorKind::Other),
            ] {
                let mut all = [(); 2].map(|()| Box::pin(ours.look_up(host.into(), 1)));
                for lookup in &mut all {
                    assert!(block_on(poll_once(lookup)).is_none());
                }
                GO_ON.set();
                for lookup in all {
                    assert_eq!(block_on(lookup).unwrap_err().kind(), kind);
                }
            }
            assert_eq!((ASKED.load(SeqCst), entries()), (4, 0));

            // Begun or not, nothing is left of the lookup, and the next one asks again.
            let mut lookup = Box::pin(ours.look_up("known".into(), 1));
            assert!(block_on(poll_once(&mut lookup)).is_none());
            drop(lookup);
            assert_eq!(entries(), 0);
            GO_ON.set();
        });
    }

    /// Lookups that are given up leave the queue while others block.
    #[test]
    fn dropped_lookups_leave_the_queue() {
        within("lookups that were given up stay queued", || {
            static GO_ON: AtomicUsize = AtomicUsize::new(0);
            static OURS: PerProcess<Lookups> = PerProcess::new(|| {
                Lookups::new(|_| {
                    while GO_ON.load(SeqCst) == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    Ok(Vec::new())
                })
            });
            let start = |number: usize| {
                let mut lookup = Box::pin(OURS.get().look_up(number.to_string(), 1));
                assert!(block_on(poll_once(&mut lookup)).is_none());
                lookup
            };
            // More than may be made at once.
            let wanted: Vec<_> = (0..100).map(start).collect();
            while POOL.get().load().full.is_none() {
                std::thread::yield_now();
            }
            (100..2_100).for_each(|number| drop(start(number)));
            // Those of other tests may be among them.
            let queued = POOL.get().counts().waiting[Class::Lookup as usize];
            GO_ON.store(1, SeqCst);
            assert!(queued < 1_000, "{queued}");
            for lookup in wanted {
                assert!(block_on(lookup).is_ok());
            }
        });
    }

    /// The child can repeat a lookup that was in progress at the fork.
    #[test]
    #[cfg(unix)]
    fn lookup_in_progress_errors_in_fork_child() {
        within("a lookup is not answered after a fork", || {
            static IS_PARENT: AtomicUsize = AtomicUsize::new(1);
            static GO_ON: LazyLock<Event> = LazyLock::new(Event::new);
            static OURS: PerProcess<Lookups> = PerProcess::new(|| {
                Lookups::new(|_| {
                    if IS_PARENT.load(SeqCst) == 1 {
                        block_on(GO_ON.wait());
                    }
                    Ok(Vec::new())
                })
            });
            let mut lookup = Box::pin(OURS.get().look_up("name".into(), 1));
            assert!(block_on(poll_once(&mut lookup)).is_none());
            crate::sys::in_child(|| {
                IS_PARENT.store(0, SeqCst);
                let kind = block_on(&mut lookup).map_err(|error| error.kind());
                let again = block_on(OURS.get().look_up("name".into(), 1));
                kind == Err(io::ErrorKind::Unsupported) && again.is_ok()
            });
            GO_ON.set();
            assert!(block_on(lookup).is_ok());
        });
    }
}

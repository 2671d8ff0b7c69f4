//! The raw readiness contract: rules 1 to 11, 14 to 20, 22, 23, 68, 72 and 76, on a [`Poller`]
//! without a runtime, and [`Backend`] as a value.
//!
//! Each rule runs in every mode that the backend offers. No test decides by a backend's name what
//! to expect. Only two kinds of test wait for time to pass: [`quiet`], which asserts that nothing
//! is reported, and those of timeouts (rule 19).
//!
//! A test that uses descriptor numbers that it does not own, the environment, or the process's list
//! of descriptors, runs in its own process: see [`in_a_child`].

mod backends;
mod contract;
#[cfg(unix)]
mod descriptors;
mod notification;
mod readiness;
mod registration;
mod timeouts;
#[cfg(unix)]
pub mod unix;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polder::Backend;
use polder::poller::{Event, Events, Interest, Mode, Poller, Token};
use socket2::Socket;
#[cfg(unix)]
use socket2::{Domain, Type};

use crate::again::{again, ended};
use crate::descriptor::{AsDescriptor, borrow};
use crate::probe::Random;
use crate::probe::std_accept_from;
use crate::support::{LIMIT, backends, eventually, passed, test_of, within};

const NONE: Interest = Interest::NONE;
const READABLE: Interest = Interest::READABLE;
const WRITABLE: Interest = Interest::WRITABLE;

/// How long a test waits to see that nothing is reported.
const QUIET: Duration = Duration::from_millis(10);

fn open(backend: Backend) -> Arc<Poller> {
    Arc::new(Poller::new(backend).expect("an available backend can be opened"))
}

/// Returns the modes that the poller offers, and those that it lacks.
fn modes(poller: &Poller) -> (Vec<Mode>, Vec<Mode>) {
    let capabilities = poller.capabilities();
    let all = [
        (Mode::Level, capabilities.level),
        (Mode::OneShot, capabilities.one_shot),
        (Mode::Edge, capabilities.edge),
    ];
    let (there, lacking): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, there)| *there);
    let strip = |modes: Vec<(Mode, bool)>| modes.into_iter().map(|(mode, _)| mode).collect();
    (strip(there), strip(lacking))
}

/// Runs `rule` with a new poller for every mode of every backend.
fn in_every_mode(rule: impl Fn(&Arc<Poller>, Mode) + Clone + Send + 'static) {
    for backend in backends() {
        let (there, _) = modes(&open(backend));
        assert!(!there.is_empty(), "{backend} has no mode at all");
        for mode in there {
            let rule = rule.clone();
            within(LIMIT, &format!("on {backend}, {mode:?}"), move || {
                rule(&open(backend), mode);
            });
        }
        passed(backend);
    }
}

/// Like [`in_every_mode`], with a connected pair of each kind.
fn on_each_pair(rule: impl Fn(&Arc<Poller>, Mode, Pair) + Clone + Send + 'static) {
    in_every_mode(move |poller, mode| {
        for pair in pairs() {
            rule(poller, mode, pair);
        }
    });
}

/// Waits once.
fn wait(poller: &Poller, timeout: Option<Duration>) -> Vec<Event> {
    let mut events = Events::new();
    let count = poller.wait(&mut events, timeout).expect("a wait");
    assert_eq!(
        count,
        events.len(),
        "a wait returns how many events there are"
    );
    events.iter().copied().collect()
}

/// Returns the sources that are ready now, without waiting.
fn poll_now(poller: &Poller) -> Vec<Event> {
    wait(poller, Some(Duration::ZERO))
}

/// Waits until `token` is reported.
fn next(poller: &Poller, token: u64) -> Event {
    loop {
        let events = wait(poller, None);
        if let Some(event) = events.iter().find(|event| event.token() == Token(token)) {
            return *event;
        }
    }
}

/// Asserts that nothing is reported, and that the wait was not too short.
#[track_caller]
fn quiet(poller: &Poller, when: &str) {
    let start = Instant::now();
    let events = wait(poller, Some(QUIET));
    assert!(events.is_empty(), "{when}: reported {events:?}");
    let elapsed = start.elapsed();
    assert!(elapsed >= QUIET, "{when}: {elapsed:?} instead of {QUIET:?}");
}

/// Waits until nothing more is reported, and asserts that there are at most `limit` reports.
#[track_caller]
fn reports_at_most(poller: &Poller, limit: usize, when: &str) {
    let mut reports = 0;
    loop {
        let events = wait(poller, Some(QUIET));
        if events.is_empty() {
            return;
        }
        reports += events.len();
        assert!(
            reports <= limit,
            "{when}: {reports} reports, the last is {events:?}"
        );
    }
}

/// Waits on a new thread; the wait is under way when this returns. Nothing may be ready or notified
/// before, since the check whether the wait is under way would consume it.
fn waiter(poller: &Arc<Poller>, timeout: Option<Duration>) -> JoinHandle<Vec<Event>> {
    let thread = thread::spawn({
        let poller = poller.clone();
        move || {
            let mut events = Events::new();
            loop {
                match poller.wait(&mut events, timeout) {
                    // The other thread's attempt came first.
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        thread::yield_now();
                    }
                    result => {
                        result.expect("a wait");
                        return events.iter().copied().collect();
                    }
                }
            }
        }
    });
    parked(poller);
    thread
}

/// Waits until another thread is in a wait.
fn parked(poller: &Poller) {
    eventually("a thread waits", || is_busy(poller));
}

fn is_busy(poller: &Poller) -> bool {
    match poller.wait(&mut Events::new(), Some(Duration::ZERO)) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
            true
        }
    }
}

#[track_caller]
fn tokens(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.token().0).collect()
}

/// A registered source, which is deregistered before it is closed.
struct Source<S: AsDescriptor> {
    poller: Arc<Poller>,
    socket: S,
    token: u64,
    mode: Mode,
}

impl<S: AsDescriptor> Source<S> {
    fn new(
        poller: &Arc<Poller>,
        socket: S,
        token: u64,
        interest: Interest,
        mode: Mode,
    ) -> Source<S> {
        // SAFETY: `drop` deregisters before the field is closed.
        unsafe { poller.register(borrow(&socket), Token(token), interest, mode) }
            .expect("it can be registered");
        Source {
            poller: poller.clone(),
            socket,
            token,
            mode,
        }
    }

    /// Sets the interest.
    fn set(&self, interest: Interest) {
        self.poller
            .modify(borrow(&self.socket), Token(self.token), interest, self.mode)
            .expect("what is registered can be modified");
    }

    /// Sets the interest, if a report has disarmed it.
    fn rearm(&self, interest: Interest) {
        if self.mode == Mode::OneShot {
            self.set(interest);
        }
    }

    fn deregister(&self) -> io::Result<()> {
        self.poller.deregister(borrow(&self.socket))
    }

    /// Waits until the source is reported.
    fn next(&self) -> Event {
        next(&self.poller, self.token)
    }

    /// Waits, without reading, until a report has the `hint`, if the backend has hints.
    fn until_hinted(&self, interest: Interest, hint: impl Fn(&Event) -> bool) {
        loop {
            let event = self.next();
            if !self.poller.capabilities().hints || hint(&event) {
                return;
            }
            self.rearm(interest);
        }
    }
}

impl<S: AsDescriptor> Source<S>
where
    for<'a> &'a S: Read,
{
    /// Reads once; waits first if nothing is available.
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.socket).read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.rearm(READABLE);
                    self.next();
                }
                result => return result,
            }
        }
    }
}

impl<S: AsDescriptor> Drop for Source<S> {
    fn drop(&mut self) {
        let _ = self.deregister();
    }
}

/// Returns a pair of stream sockets that deliver bytes as soon as they are written.
#[cfg(unix)]
fn local_pair() -> (Socket, Socket) {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("a pair of sockets");
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).unwrap();
    }
    (ours, theirs)
}

/// The same on systems without Unix sockets.
#[cfg(windows)]
fn local_pair() -> (Socket, Socket) {
    tcp_pair()
}

fn tcp_pair() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let ours = TcpStream::connect(listener.local_addr().unwrap()).expect("a connection");
    let theirs = std_accept_from(&listener, &ours);
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
    }
    (ours.into(), theirs.into())
}

/// A kind, and the two ends of a connection of that kind.
type Pair = (&'static str, Socket, Socket);

/// Returns a connected pair of each kind.
fn pairs() -> [Pair; 2] {
    let (local, tcp) = (local_pair(), tcp_pair());
    [(LOCAL, local.0, local.1), ("TCP", tcp.0, tcp.1)]
}

/// The name of a [`local_pair`] in messages.
const LOCAL: &str = if cfg!(unix) { "Unix" } else { "local" };

/// Writes until there is no room. Returns the number of bytes.
fn fill(mut to: impl Write) -> usize {
    let mut written = 0;
    loop {
        match to.write(&[7; 16 * 1024]) {
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return written,
            Err(error) => panic!("a write to a full buffer: {error}"),
        }
    }
}

/// Reads exactly `count` bytes, however they are split.
fn drain(mut from: impl Read, mut count: usize) {
    let mut bytes = [0; 16 * 1024];
    eventually("all that was written arrives", || {
        while count > 0 {
            let room = count.min(bytes.len());
            match from.read(&mut bytes[..room]) {
                Ok(0) => panic!("the end, with {count} bytes missing"),
                Ok(read) => count -= read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => panic!("a read: {error}"),
            }
        }
        true
    });
}

#[track_caller]
fn would_block<T: std::fmt::Debug>(result: io::Result<T>, when: &str) {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        other => panic!("{when}: {other:?}"),
    }
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: io::Result<T>, kind: io::ErrorKind, what: &str) -> io::Error {
    let error = result.expect_err(what);
    assert_eq!(error.kind(), kind, "{what}: {error}");
    error
}

const CHILD: &str = "POLDER_TEST_CHILD";

/// Runs `rule`, a closure in the calling test, in its own process: this program, restricted to that
/// test, with `variables` in its environment. Such a test does nothing else.
fn in_a_child(variables: &[(&str, &str)], rule: impl FnOnce()) {
    let name = test_of(&rule);
    if std::env::var_os(CHILD).is_some() {
        return rule();
    }
    let mut command = again(name);
    command.env_remove("POLDER_BACKEND").env(CHILD, name);
    command.envs(variables.iter().copied());
    let output = ended(command.spawn().expect("the child starts"), name, LIMIT * 4);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "in a child with {variables:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The reports that a waiting thread has seen, by the number of its wait.
#[derive(Default)]
struct Seen {
    /// The number of waits that have begun.
    started: AtomicU64,
    /// The number of the last wait that reported a token, by token.
    last: Mutex<HashMap<u64, u64>>,
    changed: Condvar,
    over: AtomicBool,
}

impl Seen {
    /// Waits on `poller`, on a new thread, until stopped.
    fn watch(poller: &Arc<Poller>) -> (Arc<Seen>, JoinHandle<()>) {
        let seen = Arc::new(Seen::default());
        let thread = thread::spawn({
            let (poller, seen) = (poller.clone(), seen.clone());
            move || {
                let mut events = Events::with_capacity(8);
                while !seen.over.load(Ordering::SeqCst) {
                    let number = seen.started.fetch_add(1, Ordering::SeqCst) + 1;
                    poller.wait(&mut events, None).expect("a wait");
                    let mut last = seen.last.lock().unwrap();
                    for event in &events {
                        last.insert(event.token().0, number);
                    }
                    seen.changed.notify_all();
                }
            }
        });
        (seen, thread)
    }

    /// Waits until `token` has been reported.
    fn expect(&self, token: u64) {
        let last = self.last.lock().unwrap();
        let (_last, timeout) = self
            .changed
            .wait_timeout_while(last, LIMIT / 2, |last| !last.contains_key(&token))
            .unwrap();
        assert!(!timeout.timed_out(), "token {token} is never reported");
    }

    /// The number of waits that may still report a deregistered source: those that have begun by
    /// now.
    fn bound(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    fn finish(&self, poller: &Poller, thread: JoinHandle<()>, gone: &[(u64, u64)]) {
        self.over.store(true, Ordering::SeqCst);
        poller.notify().unwrap();
        thread.join().expect("the waiting thread");
        let last = self.last.lock().unwrap();
        for (token, bound) in gone {
            let reported = last.get(token).copied().unwrap_or(0);
            assert!(
                reported <= *bound,
                "token {token} was gone before wait {bound} ended, and is reported by {reported}"
            );
        }
    }
}

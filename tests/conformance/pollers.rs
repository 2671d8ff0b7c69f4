//! The raw readiness contract: rules 1 to 11, 14 to 20, 22 and 23, on a [`Poller`] with no runtime,
//! and [`Backend`] as a value.
//!
//! Each rule runs in every mode that the backend says it has. What a backend is called is asked
//! nowhere. Two kinds of waiting that is no condition are left: [`quiet`], since silence can only be
//! listened to, and timeouts, which are what rule 19 is about.
//!
//! What touches descriptor numbers that it does not own, the environment, or the process's list of
//! descriptors, runs in a process of its own: see [`in_a_child`].

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, Once};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polder::poller::{Event, Events, Interest, Mode, Poller, Token};
use polder::{Backend, Runtime};
use socket2::{Domain, Socket, Type};

use crate::support::{LIMIT, eventually, on_every_backend, passed, sized, within};

const NONE: Interest = Interest::NONE;
const READABLE: Interest = Interest::READABLE;
const WRITABLE: Interest = Interest::WRITABLE;

/// How long silence is listened to.
const QUIET: Duration = Duration::from_millis(10);

// Pollers.

fn open(backend: Backend) -> Arc<Poller> {
    Arc::new(Poller::new(backend).expect("an available backend can be opened"))
}

/// The modes that the poller says it has, and those that it says it has not.
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

/// Runs `rule` with a fresh poller for every mode of every backend.
fn in_every_mode(rule: impl Fn(&Arc<Poller>, Mode) + Clone + Send + 'static) {
    for backend in Backend::available() {
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

/// One wait.
fn wait(poller: &Poller, timeout: Option<Duration>) -> Vec<Event> {
    let mut events = Events::new();
    let count = poller.wait(&mut events, timeout).expect("a wait");
    assert_eq!(
        count,
        events.len(),
        "a wait tells how many events there are"
    );
    events.iter().copied().collect()
}

/// What is ready now.
fn look(poller: &Poller) -> Vec<Event> {
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

/// Nothing is reported, and the wait that found nothing was not early.
#[track_caller]
fn quiet(poller: &Poller, when: &str) {
    let start = Instant::now();
    let events = wait(poller, Some(QUIET));
    assert!(events.is_empty(), "{when}: reported {events:?}");
    let elapsed = start.elapsed();
    assert!(elapsed >= QUIET, "{when}: {elapsed:?} instead of {QUIET:?}");
}

/// Waits until nothing is reported any more, which must be so after at most `limit` reports.
#[track_caller]
fn settles(poller: &Poller, limit: usize, when: &str) {
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

/// A wait in a thread of its own, which is under way when this returns. Nothing may be ready or
/// notified before that, since the attempts to see it would take it away.
fn waiter(poller: &Arc<Poller>, timeout: Option<Duration>) -> JoinHandle<Vec<Event>> {
    let thread = thread::spawn({
        let poller = poller.clone();
        move || {
            let mut events = Events::new();
            loop {
                match poller.wait(&mut events, timeout) {
                    // An attempt of the other thread came first.
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

/// Waits until another thread is within a wait.
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

// Sources.

/// Something registered, which is deregistered before it is closed.
struct Source<S: AsFd> {
    poller: Arc<Poller>,
    socket: S,
    token: u64,
    mode: Mode,
}

impl<S: AsFd> Source<S> {
    fn new(
        poller: &Arc<Poller>,
        socket: S,
        token: u64,
        interest: Interest,
        mode: Mode,
    ) -> Source<S> {
        // SAFETY: `drop` deregisters before the field is closed.
        unsafe { poller.register(socket.as_fd(), Token(token), interest, mode) }
            .expect("it can be registered");
        Source {
            poller: poller.clone(),
            socket,
            token,
            mode,
        }
    }

    /// Sets what is asked for.
    fn set(&self, interest: Interest) {
        self.poller
            .modify(self.socket.as_fd(), Token(self.token), interest, self.mode)
            .expect("what is registered can be modified");
    }

    /// Sets what is asked for, where a report has taken that back.
    fn rearm(&self, interest: Interest) {
        if self.mode == Mode::OneShot {
            self.set(interest);
        }
    }

    fn deregister(&self) -> io::Result<()> {
        self.poller.deregister(self.socket.as_fd())
    }

    /// Waits until it is reported.
    fn next(&self) -> Event {
        next(&self.poller, self.token)
    }

    /// Waits, without reading, until a report says what `hint` looks for, where the backend gives
    /// hints at all.
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

impl<S: AsFd> Source<S>
where
    for<'a> &'a S: Read,
{
    /// One read, waited for as long as there is nothing.
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

impl<S: AsFd> Drop for Source<S> {
    fn drop(&mut self) {
        let _ = self.deregister();
    }
}

fn unix_pair() -> (Socket, Socket) {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("a pair of sockets");
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).unwrap();
    }
    (ours, theirs)
}

fn tcp_pair() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let ours = TcpStream::connect(listener.local_addr().unwrap()).expect("a connection");
    let (theirs, _) = listener.accept().expect("the connection is accepted");
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
    }
    (ours.into(), theirs.into())
}

/// A connected pair of each kind.
fn pairs() -> [(&'static str, Socket, Socket); 2] {
    let (unix, tcp) = (unix_pair(), tcp_pair());
    [("Unix", unix.0, unix.1), ("TCP", tcp.0, tcp.1)]
}

/// An end of a pipe, non-blocking and close-on-exec.
struct Pipe(OwnedFd);

impl Pipe {
    /// What is read from, and what is written to.
    fn pair() -> (Pipe, Pipe) {
        let mut ends = [-1; 2];
        // The flags are set in the same call where there is one, so that no child that another
        // test starts holds an end open.
        #[cfg(not(target_vendor = "apple"))]
        // SAFETY: the kernel writes two numbers to an array of two.
        let result = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        #[cfg(target_vendor = "apple")]
        // SAFETY: the kernel writes two numbers to an array of two.
        let result = unsafe { libc::pipe(ends.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        let [read, write] = ends.map(|end| {
            // SAFETY: the descriptor is fresh, and nobody else's.
            let end = unsafe { OwnedFd::from_raw_fd(end) };
            rustix::io::fcntl_setfd(&end, rustix::io::FdFlags::CLOEXEC).unwrap();
            rustix::io::ioctl_fionbio(&end, true).unwrap();
            Pipe(end)
        });
        (read, write)
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for &Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, bytes)?)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until there is no room; how much it was.
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

// Processes.

const CHILD: &str = "POLDER_TEST_CHILD";

/// Runs `rule` in a process of its own: this test's binary, told to run only the test `name` of this
/// file, with `variables` in its environment. A test calls nothing but this.
fn in_a_child(name: &str, variables: &[(&str, &str)], rule: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return rule();
    }
    let mut command = Command::new(std::env::current_exe().expect("this program's path"));
    command
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("pollers::{name}"))
        .env_remove("POLDER_BACKEND")
        .env(CHILD, name)
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    let output = within(LIMIT * 4, name, move || command.output()).expect("the child starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "in a child with {variables:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The flags of every descriptor of this process.
fn descriptors() -> HashMap<RawFd, libc::c_int> {
    (0..1024)
        .map(|number| {
            // SAFETY: this call only asks, and answers -1 for what is not open.
            (number, unsafe { libc::fcntl(number, libc::F_GETFD) })
        })
        .filter(|(_, flags)| *flags != -1)
        .collect()
}

// Signals.

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// Interrupts the thread that made it, thousands of times a second, until it is dropped there.
struct Storm {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    fn here() -> Storm {
        extern "C" fn count(_: libc::c_int) {
            SIGNALS.fetch_add(1, Ordering::Relaxed);
        }
        static INSTALL: Once = Once::new();
        INSTALL.call_once(|| {
            // SAFETY: all zero is a valid `sigaction`: no flags (so no SA_RESTART), an empty mask.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
            // SAFETY: the handler does no more than add to an atomic; nobody else here uses this
            // signal.
            let result = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
        });
        // SAFETY: always allowed.
        let target = unsafe { libc::pthread_self() } as usize;
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = over.clone();
            move || {
                while !over.load(Ordering::Acquire) {
                    // SAFETY: the target lives, since it drops the storm, which joins this thread.
                    unsafe { libc::pthread_kill(target as libc::pthread_t, libc::SIGUSR1) };
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        Storm {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let _ = self.thread.take().expect("it is joined once").join();
    }
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

// Rules 1 to 11: what readiness means.

#[test]
fn rule_01_spurious_readiness_is_followed_by_another_wake_up() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let mut thief = ours.try_clone().unwrap();
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            for round in 0..6 {
                theirs.write_all(b"x").unwrap();
                if round % 2 == 0 {
                    assert!(ours.next().is_readable(), "{kind}");
                }
                // Somebody else takes it, after or before the report.
                drain(&mut thief, 1);
                would_block((&ours.socket).read(&mut [0]), kind);
                ours.rearm(READABLE);
                settles(poller, 1, "nothing is there");
                // A false alarm has spent a one-shot interest.
                ours.rearm(READABLE);
            }
            theirs.write_all(b"y").unwrap();
            assert!(ours.next().is_readable(), "{kind}: told after false alarms");
            assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1, "{kind}");
        }
    });
}

#[test]
fn rule_02_hints_are_true_on_a_connected_socket() {
    let honest = |event: Event, when: &str| {
        let hints = [event.is_closed(), event.is_error(), event.is_priority()];
        assert_eq!(hints, [false; 3], "{when}: {event:?}");
    };
    in_every_mode(move |poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let all = READABLE | WRITABLE | Interest::PRIORITY;
            let ours = Source::new(poller, ours, 1, all, mode);
            let event = ours.next();
            honest(event, kind);
            assert!(event.is_writable() && !event.is_readable(), "{event:?}");
            ours.socket.shutdown(Shutdown::Write).unwrap();
            ours.rearm(READABLE | Interest::PRIORITY);
            theirs.write_all(b"hello").unwrap();
            loop {
                let event = ours.next();
                honest(event, &format!("{kind}, after our own shutdown, and data"));
                if event.is_readable() {
                    break;
                }
            }
            drop(theirs);
            ours.rearm(READABLE);
            ours.until_hinted(READABLE, Event::is_closed);
        }
        if poller.capabilities().hints {
            let (ours, theirs) = tcp_pair();
            let ours = Source::new(poller, ours, 2, READABLE | Interest::PRIORITY, mode);
            theirs.send_out_of_band(b"!").unwrap();
            ours.until_hinted(READABLE | Interest::PRIORITY, Event::is_priority);
        }
    });
}

#[test]
fn rule_03_readable_and_writable_may_come_apart_but_both_come() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            theirs.write_all(b"x").unwrap();
            let ours = Source::new(poller, ours, 1, READABLE | WRITABLE, mode);
            let (mut readable, mut writable) = (false, false);
            for round in 1.. {
                assert!(round < 1_000, "{kind}: one of both is never reported");
                let events = wait(poller, None);
                assert!(events.len() <= 2, "{kind}: {events:?}");
                readable |= events.iter().any(Event::is_readable);
                writable |= events.iter().any(Event::is_writable);
                match (readable, writable) {
                    (true, true) => break,
                    (true, false) => ours.rearm(WRITABLE),
                    (false, true) => ours.rearm(READABLE),
                    (false, false) => panic!("{kind}: reported for nothing: {events:?}"),
                }
            }
        }
    });
}

#[test]
fn rule_04_an_end_that_comes_with_data_is_not_lost_by_a_short_read() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            theirs.write_all(b"hello").unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            ours.until_hinted(READABLE, Event::is_closed);
            let mut bytes = [0; 64];
            assert_eq!(ours.read(&mut bytes).unwrap(), 5, "{kind}");
            assert_eq!(&bytes[..5], b"hello");
            match poller.capabilities().hints {
                // Both are known to be here.
                true => assert_eq!((&ours.socket).read(&mut bytes).unwrap(), 0, "{kind}"),
                false => assert_eq!(ours.read(&mut bytes).unwrap(), 0, "{kind}"),
            }
        }
    });
}

#[test]
fn rule_04_an_end_that_comes_after_a_short_read_is_reported() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            theirs.write_all(b"hello").unwrap();
            ours.next();
            // Short, so an edge has nothing more to tell until something new comes.
            let mut bytes = [0; 64];
            assert_eq!((&ours.socket).read(&mut bytes).unwrap(), 5, "{kind}");
            ours.rearm(READABLE);
            drop(theirs);
            assert!(ours.next().is_readable(), "{kind}: the end can be read");
            assert_eq!(ours.read(&mut bytes).unwrap(), 0, "{kind}");
        }
    });
}

#[test]
fn rule_05_a_half_closed_peer_takes_writes_and_does_not_spin() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            theirs.shutdown(Shutdown::Write).unwrap();
            assert!(ours.next().is_readable(), "{kind}");
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0, "{kind}: the end");
            // The end was read and nobody waits for more.
            match mode {
                Mode::Level => ours.set(NONE),
                _ => settles(poller, 1, kind),
            }
            quiet(poller, &format!("{kind}: half closed and not waited for"));

            (&ours.socket).write_all(b"still").unwrap();
            drain(&mut theirs, 5);

            // A full buffer is what is waited for now, and the peer's end is no room in it. What is
            // under way may still make some.
            let mut written = 0;
            for round in 0.. {
                assert!(round < 100, "{kind}: a half-closed peer's writer spins");
                written += fill(&ours.socket);
                ours.set(WRITABLE);
                if wait(poller, Some(QUIET)).is_empty() {
                    break;
                }
            }
            drain(&mut theirs, written);
            assert!(ours.next().is_writable(), "{kind}: there is room again");
            assert!((&ours.socket).write(b"more").unwrap() > 0, "{kind}");
        }
    });
}

#[test]
fn rule_05_one_that_waits_for_both_is_told_of_the_end_and_then_of_room() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let mut written = fill(&ours);
            let both = READABLE | WRITABLE;
            let ours = Source::new(poller, ours, 1, both, mode);
            theirs.shutdown(Shutdown::Write).unwrap();
            while !ours.next().is_readable() {
                written += fill(&ours.socket);
                ours.rearm(both);
            }
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0, "{kind}: the end");
            ours.rearm(WRITABLE);
            drain(&mut theirs, written);
            while !ours.next().is_writable() {
                ours.rearm(WRITABLE);
            }
            assert!((&ours.socket).write(b"more").unwrap() > 0, "{kind}");
        }
    });
}

#[test]
fn rule_06_reading_goes_on_after_our_own_shutdown_of_writing() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            ours.socket.shutdown(Shutdown::Write).unwrap();
            settles(poller, 1, "nothing to read after our own shutdown");
            let mut bytes = [0; 8];
            eventually("the peer sees the end", || {
                matches!(theirs.read(&mut bytes), Ok(0))
            });
            for round in 0..3 {
                would_block((&ours.socket).read(&mut bytes), kind);
                ours.rearm(READABLE);
                theirs.write_all(&[round]).unwrap();
                assert!(ours.next().is_readable(), "{kind}");
                assert_eq!(ours.read(&mut bytes).unwrap(), 1, "{kind}");
                assert_eq!(bytes[0], round);
            }
            drop(theirs);
            assert_eq!(ours.read(&mut bytes).unwrap(), 0, "{kind}: the end");
        }
    });
}

#[test]
fn rule_07_all_data_can_be_read_after_a_hang_up() {
    fn all_of_it<S: AsFd>(kind: &str, poller: &Arc<Poller>, mode: Mode, ours: S, theirs: impl Write)
    where
        for<'a> &'a S: Read,
    {
        // Read in pieces that do not divide it, and little enough to arrive with the end.
        const SIZE: usize = 30_000;
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let mut theirs = theirs;
        theirs.write_all(&[9; SIZE]).unwrap();
        drop(theirs);
        ours.until_hinted(READABLE, Event::is_closed);
        let mut read = 0;
        loop {
            match ours.read(&mut [0; 999]).unwrap() {
                0 => break,
                count => read += count,
            }
        }
        assert_eq!(read, SIZE, "{kind}: the end came before the data");
    }

    in_every_mode(|poller, mode| {
        for (kind, ours, theirs) in pairs() {
            // Closed both ways is what makes a hang-up of TCP's end.
            ours.shutdown(Shutdown::Write).unwrap();
            all_of_it(kind, poller, mode, ours, theirs);
        }
        let (ours, theirs) = Pipe::pair();
        all_of_it("a pipe", poller, mode, ours, theirs);
    });
}

#[test]
fn rule_08_a_reply_before_a_reset_is_read_before_the_error() {
    in_every_mode(|poller, mode| {
        for interest in [READABLE, READABLE | WRITABLE] {
            let (ours, mut theirs) = tcp_pair();
            let ours = Source::new(poller, ours, 1, interest, mode);
            theirs.write_all(b"reply").unwrap();
            theirs.set_linger(Some(Duration::ZERO)).unwrap();
            drop(theirs);
            ours.until_hinted(interest, Event::is_error);
            let mut bytes = [0; 64];
            let count = ours.read(&mut bytes).expect("the data, before the error");
            assert_eq!(&bytes[..count], b"reply");
            fails(
                ours.read(&mut bytes),
                io::ErrorKind::ConnectionReset,
                "the error, after the data",
            );
        }
    });
}

#[test]
fn rule_09_a_closed_pipe_reader_wakes_the_writer() {
    in_every_mode(|poller, mode| {
        for waited_for in [true, false] {
            let (reader, mut writer) = Pipe::pair();
            fill(&mut writer);
            let mut writer = Source::new(poller, writer, 1, WRITABLE, mode);
            quiet(poller, "the pipe is full");
            let event = match waited_for {
                true => {
                    let waiter = waiter(poller, None);
                    drop(reader);
                    waiter.join().unwrap()[0]
                }
                false => {
                    drop(reader);
                    writer.next()
                }
            };
            assert!(event.is_writable(), "{event:?}");
            let error = writer.socket.write(b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
        }
    });
}

/// What is registered, and what makes it hang up.
type End = (&'static str, OwnedFd, Box<dyn FnOnce()>);

/// Every kind of end.
fn ends() -> Vec<End> {
    let (unix, unix_peer) = unix_pair();
    let (tcp, tcp_peer) = tcp_pair();
    let tcp_too = tcp.try_clone().unwrap();
    let (reset, reset_peer) = tcp_pair();
    let reset_too = reset.try_clone().unwrap();
    let (read, read_peer) = Pipe::pair();
    let (write_peer, write) = Pipe::pair();
    let hung_up = |socket: Socket| {
        eventually("the end arrives", || {
            !matches!(socket.peek(&mut [std::mem::MaybeUninit::uninit()]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        });
    };
    vec![
        (
            "Unix",
            unix.into(),
            Box::new(move || {
                unix_peer.shutdown(Shutdown::Both).unwrap();
                drop(unix_peer);
            }),
        ),
        (
            "TCP",
            tcp.into(),
            Box::new(move || {
                tcp_too.shutdown(Shutdown::Write).unwrap();
                drop(tcp_peer);
                hung_up(tcp_too);
            }),
        ),
        (
            "TCP reset",
            reset.into(),
            Box::new(move || {
                reset_peer.set_linger(Some(Duration::ZERO)).unwrap();
                drop(reset_peer);
                hung_up(reset_too);
            }),
        ),
        ("a pipe's reader", read.0, Box::new(move || drop(read_peer))),
        (
            "a pipe's writer",
            write.0,
            Box::new(move || drop(write_peer)),
        ),
    ]
}

#[test]
fn rule_10_an_end_that_nobody_waits_for_does_not_end_every_wait() {
    in_every_mode(|poller, mode| {
        // An end that comes in two steps (an error, then a hang-up) may be two edges.
        let once = if mode == Mode::Edge { 2 } else { 1 };
        for (kind, ours, hang_up) in ends() {
            let ours = Source::new(poller, ours, 1, NONE, mode);
            quiet(poller, &format!("{kind}: registered for nothing"));
            hang_up();
            settles(poller, once, &format!("{kind}: hung up"));
            ours.set(NONE);
            settles(poller, once, &format!("{kind}: set to nothing again"));
        }
        for (kind, ours, hang_up) in ends() {
            hang_up();
            let _ours = Source::new(poller, ours, 2, NONE, mode);
            settles(poller, once, &format!("{kind}: had hung up before"));
        }
    });
}

#[test]
fn rule_10_an_end_that_was_reported_does_not_end_every_wait() {
    in_every_mode(|poller, mode| {
        for (kind, ours, hang_up) in ends() {
            let ours = Source::new(poller, ours, 1, READABLE | WRITABLE, mode);
            hang_up();
            ours.next();
            match mode {
                // As long as it is waited for, it is told.
                Mode::Level => {
                    ours.next();
                    ours.set(NONE);
                    settles(poller, 1, kind);
                }
                Mode::OneShot => quiet(poller, &format!("{kind}: told, and not armed again")),
                _ => settles(poller, 2, kind),
            }
            quiet(poller, &format!("{kind}: told"));
            // Whoever waits again is told again.
            ours.set(READABLE);
            assert!(ours.next().is_readable(), "{kind}");
        }
    });
}

/// A descriptor that is registered, and will be closed before it is deregistered.
struct Victim {
    number: RawFd,
    peer: Socket,
}

impl Victim {
    fn new(poller: &Poller, token: u64, mode: Mode) -> Victim {
        let (ours, peer) = unix_pair();
        // SAFETY: this is the very thing that a caller must not do. The process has no other thread
        // that opens descriptors, so the number comes to mean nothing but what this test wants.
        unsafe { poller.register(ours.as_fd(), Token(token), READABLE, mode) }.unwrap();
        Victim {
            number: ours.into_raw_fd(),
            peer,
        }
    }

    fn close(&self) {
        // SAFETY: the number was taken out of its owner, and is closed once.
        assert_eq!(unsafe { libc::close(self.number) }, 0);
    }

    /// A descriptor with the number of the one that was closed.
    fn reborn(&self, socket: &Socket) -> OwnedFd {
        let heir = rustix::io::fcntl_dupfd_cloexec(socket, self.number).unwrap();
        assert_eq!(heir.as_raw_fd(), self.number, "the number is free");
        heir
    }
}

#[test]
fn rule_11_a_descriptor_closed_behind_the_pollers_back_harms_nobody() {
    const NAME: &str = "rule_11_a_descriptor_closed_behind_the_pollers_back_harms_nobody";
    in_a_child(NAME, &[], || {
        in_every_mode(|poller, mode| {
            for (when, waits_before, dup) in [
                ("before the first wait", false, false),
                ("between two waits", true, false),
                ("while a duplicate lives on", true, true),
            ] {
                // Each time another one, so that no number is registered already.
                let poller = open(poller.backend());
                let (ours, mut theirs) = unix_pair();
                let ours = Source::new(&poller, ours, 1, READABLE, mode);
                let mut healthy = || {
                    theirs.write_all(b"x").unwrap();
                    assert!(ours.next().is_readable(), "the other source, {when}");
                    assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
                    ours.rearm(READABLE);
                };
                let victim = Victim::new(&poller, 2, mode);
                if waits_before {
                    quiet(&poller, when);
                }
                let dup = dup.then(|| {
                    // SAFETY: it is open here, and borrowed for this expression only.
                    let open = unsafe { BorrowedFd::borrow_raw(victim.number) };
                    open.try_clone_to_owned().unwrap()
                });
                victim.close();
                healthy();
                if mode != Mode::Level {
                    settles(&poller, 1, when);
                }
                healthy();
                drop(victim.peer);
                healthy();
                if mode != Mode::Level {
                    settles(&poller, 1, when);
                }
                drop(dup);
            }
        });
    });
}

#[test]
fn rule_11_a_descriptor_closed_while_a_thread_waits_harms_nobody() {
    const NAME: &str = "rule_11_a_descriptor_closed_while_a_thread_waits_harms_nobody";
    in_a_child(NAME, &[], || {
        in_every_mode(|poller, mode| {
            let (ours, mut theirs) = unix_pair();
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            let victim = Victim::new(poller, 2, mode);
            let waiter = waiter(poller, None);
            victim.close();
            drop(victim.peer);
            theirs.write_all(b"x").unwrap();
            waiter.join().unwrap();
            // The wait may have ended for the one that was closed.
            ours.rearm(READABLE);
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
            theirs.write_all(b"y").unwrap();
            ours.rearm(READABLE);
            assert!(ours.next().is_readable());
        });
    });
}

/// Whether a backend is written here, and not in the `polling` crate.
fn ours_alone(backend: Backend) -> bool {
    matches!(backend, Backend::Epoll | Backend::Poll | Backend::Select)
}

#[test]
fn rule_11_the_next_owner_of_a_number_that_was_found_closed_can_use_it() {
    const NAME: &str = "rule_11_the_next_owner_of_a_number_that_was_found_closed_can_use_it";
    in_a_child(NAME, &[], || {
        in_every_mode(|poller, mode| {
            // The adapter to the platform keeps a table, and its kernels say nothing of a
            // descriptor that was closed: it cannot learn.
            if !ours_alone(poller.backend()) {
                return;
            }
            let (ours, mut theirs) = unix_pair();
            let victim = Victim::new(poller, 1, mode);
            victim.close();
            // Whatever the poller can learn of it, it learns here.
            for _ in 0..3 {
                look(poller);
            }
            let heir = Source::new(poller, victim.reborn(&ours), 2, READABLE, mode);
            theirs.write_all(b"x").unwrap();
            let events = wait(poller, None);
            assert_eq!(tokens(&events), [2], "{events:?}");
            drop(heir);
        });
    });
}

// Rules 14 to 17: registering.

#[test]
fn rule_14_the_same_descriptor_registered_twice_is_an_error() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let first = Source::new(poller, &ours, 1, READABLE, mode);
        for (token, interest) in [(1, READABLE), (2, READABLE | WRITABLE)] {
            // SAFETY: it is not registered by this, and `first` deregisters it in any case.
            let again = unsafe { poller.register(ours.as_fd(), Token(token), interest, mode) };
            fails(again, io::ErrorKind::AlreadyExists, "registered twice");
        }
        // The first registration stands as it was.
        quiet(poller, "what failed changed nothing");
        theirs.write_all(b"x").unwrap();
        assert_eq!(tokens(&wait(poller, None)), [1]);
        // Gone is gone: it can come back.
        first.deregister().unwrap();
        let _second = Source::new(poller, &ours, 3, READABLE, mode);
        assert_eq!(tokens(&wait(poller, None)), [3]);
    });
}

#[test]
fn rule_14_a_duplicate_is_another_descriptor() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let other = ours.try_clone().unwrap();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let other = Source::new(poller, other, 2, READABLE, mode);
        theirs.write_all(b"x").unwrap();
        let mut seen = HashSet::new();
        while seen.len() < 2 {
            seen.extend(tokens(&wait(poller, None)));
        }
        assert_eq!(seen, HashSet::from([1, 2]));
        other.deregister().unwrap();
        ours.rearm(READABLE);
        theirs.write_all(b"y").unwrap();
        assert_eq!(tokens(&wait(poller, None)), [1]);
    });
}

#[test]
fn rule_14_an_unknown_descriptor_is_not_found() {
    in_every_mode(|poller, mode| {
        let (ours, _theirs) = unix_pair();
        let unknown = |socket: BorrowedFd<'_>, what: &str| {
            let modified = poller.modify(socket, Token(1), READABLE, mode);
            fails(modified, io::ErrorKind::NotFound, what);
            let deregistered = poller.deregister(socket);
            fails(deregistered, io::ErrorKind::NotFound, what);
        };
        unknown(ours.as_fd(), "never registered");
        // Far beyond every number that the poller has seen.
        let far = rustix::io::fcntl_dupfd_cloexec(&ours, 900).unwrap();
        unknown(far.as_fd(), "never registered, and a high number");
        let source = Source::new(poller, &ours, 1, READABLE | WRITABLE, mode);
        unknown(far.as_fd(), "only its duplicate is registered");
        source.deregister().unwrap();
        unknown(ours.as_fd(), "deregistered already");
        quiet(poller, "a failed modify arms nothing");
    });
}

#[test]
fn rule_14_a_file_that_no_poller_takes_is_unknown_too() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        fails(
            poller.deregister(file.as_fd()),
            io::ErrorKind::NotFound,
            "a file was never registered",
        );
    });
}

#[test]
fn rule_15_deregistering_before_closing_leaves_nothing_behind() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let dup = ours.try_clone().unwrap();
            let source = Source::new(poller, ours, 1, READABLE | WRITABLE, mode);
            source.next();
            source.rearm(READABLE | WRITABLE);
            source.deregister().unwrap();
            drop(source);
            // The file lives on, readable and writable.
            theirs.write_all(b"x").unwrap();
            quiet(poller, &format!("{kind}: deregistered, a duplicate lives"));
            drop(theirs);
            quiet(poller, &format!("{kind}: deregistered, the peer hung up"));
            // The duplicate can be registered, and so can (most likely) the number's next owner.
            let dup = Source::new(poller, dup, 2, READABLE, mode);
            assert!(dup.next().is_readable(), "{kind}");
            let (heir, mut peer) = unix_pair();
            drop(dup);
            let heir = Source::new(poller, heir, 3, READABLE, mode);
            peer.write_all(b"x").unwrap();
            assert_eq!(tokens(&wait(poller, None)), [3], "{kind}");
            drop(heir);
        }
    });
}

#[test]
fn rule_16_a_second_waiter_is_an_error() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let waiter = waiter(poller, None);
        for timeout in [Some(Duration::ZERO), Some(Duration::from_secs(3600)), None] {
            let second = poller.wait(&mut Events::new(), timeout);
            fails(second, io::ErrorKind::ResourceBusy, "a second waiter");
        }
        // It took nothing away from the first.
        theirs.write_all(b"x").unwrap();
        assert_eq!(tokens(&waiter.join().unwrap()), [1]);
        // And the poller is free again.
        ours.rearm(READABLE);
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1);
        settles(poller, 1, "read empty");
    });
}

/// What a waiting thread saw, by the number of its wait.
#[derive(Default)]
struct Seen {
    /// How many waits have begun.
    started: AtomicU64,
    /// By token: the number of the last wait that reported it.
    last: Mutex<HashMap<u64, u64>>,
    news: Condvar,
    over: AtomicBool,
}

impl Seen {
    /// Waits on `poller`, in a thread of its own, until told that it is over.
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
                    seen.news.notify_all();
                }
            }
        });
        (seen, thread)
    }

    /// Waits until `token` has been reported.
    fn expect(&self, token: u64) {
        let last = self.last.lock().unwrap();
        let (_last, timeout) = self
            .news
            .wait_timeout_while(last, LIMIT / 2, |last| !last.contains_key(&token))
            .unwrap();
        assert!(!timeout.timed_out(), "token {token} is never reported");
    }

    /// The waits that a source which is gone may still be reported by: those begun by now.
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

#[test]
fn rule_16_no_wait_that_starts_later_reports_what_was_deregistered() {
    in_every_mode(|poller, mode| {
        let (seen, thread) = Seen::watch(poller);
        let mut gone = Vec::new();
        let (ours, _theirs) = unix_pair();
        for token in 1..=sized(poller.backend(), 2_000) as u64 {
            // Ready at once, and, with levels, all the time; the number stays the same.
            let source = Source::new(poller, &ours, token, WRITABLE, mode);
            seen.expect(token);
            source.rearm(WRITABLE);
            source.deregister().unwrap();
            gone.push((token, seen.bound()));
        }
        seen.finish(poller, thread, &gone);
    });
}

#[test]
fn rule_16_events_handed_out_keep_the_old_token() {
    in_every_mode(|poller, mode| {
        let (ours, _theirs) = unix_pair();
        let source = Source::new(poller, &ours, 1, WRITABLE, mode);
        let events = wait(poller, None);
        source.deregister().unwrap();
        let _heir = Source::new(poller, &ours, 2, WRITABLE, mode);
        assert_eq!(tokens(&events), [1]);
        assert_eq!(tokens(&wait(poller, None)), [2]);
    });
}

#[test]
fn rule_17_registering_takes_effect_in_the_wait_under_way() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let waiter = waiter(poller, None);
            theirs.write_all(b"x").unwrap();
            let _ours = Source::new(poller, ours, 1, READABLE, mode);
            let events = waiter.join().unwrap();
            assert_eq!(tokens(&events), [1], "{kind}");
            assert!(events[0].is_readable(), "{kind}");
        }
    });
}

#[test]
fn rule_17_modifying_takes_effect_in_the_wait_under_way() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let mut ours = Source::new(poller, ours, 1, NONE, mode);
        theirs.write_all(b"x").unwrap();
        let first = waiter(poller, None);
        ours.token = 2;
        ours.set(READABLE);
        assert_eq!(tokens(&first.join().unwrap()), [2], "armed");

        drain(&ours.socket, 1);
        ours.set(READABLE);
        settles(poller, 1, "read empty");
        ours.set(READABLE);
        let second = waiter(poller, None);
        ours.set(NONE);
        theirs.write_all(b"y").unwrap();
        ours.token = 3;
        ours.set(WRITABLE);
        let events = second.join().unwrap();
        assert_eq!(
            tokens(&events),
            [3],
            "disarmed, and armed for another thing"
        );
        assert!(events[0].is_writable());
    });
}

#[test]
fn rule_17_deregistering_takes_effect_in_the_wait_under_way() {
    in_every_mode(|poller, mode| {
        for (kind, ours, mut theirs) in pairs() {
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            let (other, mut others) = unix_pair();
            let _other = Source::new(poller, other, 2, READABLE, mode);
            let waiter = waiter(poller, None);
            ours.deregister().unwrap();
            theirs.write_all(b"x").unwrap();
            eventually("it arrives", || {
                let mut byte = [std::mem::MaybeUninit::uninit()];
                ours.socket.peek(&mut byte).is_ok()
            });
            others.write_all(b"y").unwrap();
            let events = waiter.join().unwrap();
            assert_eq!(tokens(&events), [2], "{kind}: {events:?}");
        }
    });
}

#[test]
fn rule_17_changes_that_report_nothing_neither_end_a_wait_nor_prolong_it() {
    in_every_mode(|poller, mode| {
        let over = Arc::new(AtomicBool::new(false));
        let changers: Vec<_> = (0..2)
            .map(|_| {
                let (poller, over) = (poller.clone(), over.clone());
                thread::spawn(move || {
                    let (ours, mut theirs) = unix_pair();
                    theirs.write_all(b"x").unwrap();
                    let (silent, _silent) = unix_pair();
                    while !over.load(Ordering::Relaxed) {
                        let ready = Source::new(&poller, &ours, 1, NONE, mode);
                        let silent = Source::new(&poller, &silent, 2, READABLE, mode);
                        ready.set(NONE);
                        silent.set(NONE);
                        silent.set(READABLE);
                    }
                })
            })
            .collect();
        for timeout in [Duration::from_micros(300), Duration::from_millis(5)].repeat(5) {
            let start = Instant::now();
            let events = wait(poller, Some(timeout));
            let elapsed = start.elapsed();
            assert!(events.is_empty(), "{events:?}");
            assert!(elapsed >= timeout, "{elapsed:?} instead of {timeout:?}");
            assert!(
                elapsed < Duration::from_secs(10),
                "{elapsed:?} instead of {timeout:?}"
            );
        }
        over.store(true, Ordering::Relaxed);
        for changer in changers {
            changer.join().unwrap();
        }
        settles(poller, 0, "nothing is left of it");
        quiet(poller, "nothing is left of it");
    });
}

// Rule 18: notifications.

#[test]
fn rule_18_a_notification_before_the_wait_is_kept() {
    on_every_backend(|backend| {
        let poller = open(backend);
        for timeout in [None, Some(Duration::MAX), Some(Duration::ZERO)] {
            poller.notify().unwrap();
            assert!(wait(&poller, timeout).is_empty());
            quiet(&poller, "it woke one wait, not two");
        }
    });
}

#[test]
fn rule_18_a_notification_wakes_the_wait_under_way_and_no_other() {
    on_every_backend(|backend| {
        let poller = open(backend);
        for timeout in [None, Some(Duration::MAX), Some(Duration::from_secs(3600))] {
            let waiter = waiter(&poller, timeout);
            poller.notify().unwrap();
            assert!(waiter.join().unwrap().is_empty());
            quiet(&poller, "it woke one wait, not two");
        }
    });
}

#[test]
fn rule_18_a_million_notifications_cost_one_wake_up() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let poller = poller.clone();
                let count = sized(backend, 1_000_000) / 4;
                thread::spawn(move || (0..count).for_each(|_| poller.notify().unwrap()))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(wait(&poller, None).is_empty());
        quiet(&poller, "a million woke one wait");
    });
}

#[test]
fn rule_18_a_notification_comes_with_events_and_takes_none_away() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        theirs.write_all(b"x").unwrap();
        poller.notify().unwrap();
        ours.next();
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1);
        // It may have come apart from the event.
        let _ = look(poller);
        quiet(poller, "both were told");
    });
}

/// Several threads notify, each again as soon as a wait has ended after its last call: so that calls
/// also fall between a wait's end and the next one's beginning.
fn notifications_arrive(poller: &Arc<Poller>, rounds: u64, storm: bool) {
    /// How often a thread has notified, and for how many of these a wait has ended since.
    #[derive(Default)]
    struct Tally {
        asked: AtomicU64,
        seen: AtomicU64,
    }

    let tallies: Arc<[Tally; 3]> = Arc::default();
    let waiter = thread::spawn({
        let (poller, tallies) = (poller.clone(), tallies.clone());
        move || {
            let _storm = storm.then(Storm::here);
            let mut events = Events::new();
            while tallies
                .iter()
                .any(|tally| tally.seen.load(Ordering::SeqCst) < rounds)
            {
                poller.wait(&mut events, None).expect("a wait");
                for tally in &*tallies {
                    let asked = tally.asked.load(Ordering::SeqCst);
                    tally.seen.store(asked, Ordering::SeqCst);
                }
            }
        }
    });
    let notifiers: Vec<_> = (0..tallies.len())
        .map(|number| {
            let (poller, tallies) = (poller.clone(), tallies.clone());
            thread::spawn(move || {
                let tally = &tallies[number];
                for round in 1..=rounds {
                    tally.asked.store(round, Ordering::SeqCst);
                    poller.notify().unwrap();
                    let start = Instant::now();
                    while tally.seen.load(Ordering::SeqCst) < round {
                        assert!(start.elapsed() < LIMIT / 2, "notification {round} is lost");
                        thread::yield_now();
                    }
                    // Now and then the waiter has the time to fall asleep.
                    if round % 16 == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            })
        })
        .collect();
    for notifier in notifiers {
        notifier.join().expect("every notification arrives");
    }
    waiter.join().unwrap();
}

#[test]
fn rule_18_no_notification_is_lost_among_interrupts() {
    on_every_backend(|backend| {
        notifications_arrive(&open(backend), 3_000, true);
    });
}

#[test]
fn rule_18_no_notification_is_lost_among_changes() {
    in_every_mode(|poller, mode| {
        // A change may wake the waiting thread by the same way, and must not eat a notification.
        let over = Arc::new(AtomicBool::new(false));
        let changer = thread::spawn({
            let (poller, over) = (poller.clone(), over.clone());
            move || {
                let (ours, _theirs) = unix_pair();
                let source = Source::new(&poller, &ours, 1, NONE, mode);
                while !over.load(Ordering::Relaxed) {
                    source.set(READABLE);
                    source.set(NONE);
                }
            }
        });
        notifications_arrive(poller, 1_500, false);
        over.store(true, Ordering::Relaxed);
        changer.join().unwrap();
        let _ = look(poller);
        quiet(poller, "all is told");
    });
}

// Rule 19: timeouts.

#[test]
fn rule_19_a_zero_timeout_reports_what_is_ready() {
    in_every_mode(|poller, mode| {
        assert!(look(poller).is_empty());
        let (ours, mut theirs) = unix_pair();
        theirs.write_all(b"x").unwrap();
        let mut ours = Source::new(poller, ours, 1, READABLE, mode);
        assert_eq!(tokens(&look(poller)), [1], "just registered");
        ours.token = 2;
        ours.set(READABLE);
        assert_eq!(tokens(&look(poller)), [2], "just modified");
        ours.rearm(READABLE);
        theirs.write_all(b"y").unwrap();
        assert_eq!(tokens(&look(poller)), [2], "just arrived");
        drain(&ours.socket, 2);
        ours.rearm(READABLE);
        settles(poller, 1, "read empty");
        ours.deregister().unwrap();
        assert!(look(poller).is_empty());
    });
}

#[test]
fn rule_19_no_timeout_is_early() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let (ours, _theirs) = unix_pair();
        let (there, _) = modes(&poller);
        let _ours = Source::new(&poller, ours, 1, READABLE, there[0]);
        for nanos in [
            1, 999, 1_000, 10_000, 99_999, 500_000, 999_999, 1_000_000, 1_000_001, 1_499_999,
            1_999_999, 2_250_000, 7_000_001,
        ] {
            let timeout = Duration::from_nanos(nanos);
            for _ in 0..5 {
                let start = Instant::now();
                let events = wait(&poller, Some(timeout));
                let elapsed = start.elapsed();
                assert!(events.is_empty(), "{events:?}");
                assert!(elapsed >= timeout, "{elapsed:?} instead of {timeout:?}");
            }
        }
    });
}

#[test]
fn rule_19_short_timeouts_are_late_by_less_than_a_millisecond() {
    on_every_backend(|backend| {
        let poller = open(backend);
        if poller.capabilities().granularity >= Duration::from_millis(1) {
            return; // It says so.
        }
        let median = |timeout: Duration| {
            let mut late: Vec<_> = (0..21)
                .map(|_| {
                    let start = Instant::now();
                    wait(&poller, Some(timeout));
                    start.elapsed() - timeout
                })
                .collect();
            late.sort();
            late[late.len() / 2]
        };
        for micros in [20, 300, 1_020] {
            // A machine that is busy is late for its own reasons, but not for ever; one that rounds
            // up to milliseconds would be late by 700 µs to 980 µs each time.
            eventually("the median is late by less than 600 µs", || {
                median(Duration::from_micros(micros)) < Duration::from_micros(600)
            });
        }
    });
}

#[test]
fn rule_19_no_timeout_overflows() {
    const HUGE: [Duration; 12] = [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_secs(i64::MAX as u64),
        Duration::from_secs(i64::MAX as u64 + 1),
        Duration::from_nanos(i64::MAX as u64 + 1),
        Duration::from_nanos(u64::MAX),
        // What an int or an unsigned int of milliseconds holds, and what would wrap to one.
        Duration::from_millis(i32::MAX as u64),
        Duration::from_millis(i32::MAX as u64 + 1),
        Duration::from_millis(u32::MAX as u64),
        Duration::from_millis(u32::MAX as u64 + 2),
        Duration::from_millis((1 << 63) + 1),
        // The same in seconds.
        Duration::from_secs(u32::MAX as u64 + 2),
    ];
    on_every_backend(|backend| {
        let waits = HUGE.map(|timeout| {
            let poller = open(backend);
            poller.notify().unwrap();
            assert!(wait(&poller, Some(timeout)).is_empty(), "{timeout:?}");
            (waiter(&poller, Some(timeout)), poller, timeout)
        });
        thread::sleep(QUIET);
        for (waiter, poller, timeout) in waits {
            assert!(is_busy(&poller), "{timeout:?} is over already");
            poller.notify().unwrap();
            assert!(waiter.join().unwrap().is_empty(), "{timeout:?}");
        }
    });
}

// Rule 20: what cannot be waited for.

#[test]
fn rule_20_what_cannot_be_waited_for_is_an_error_at_registration() {
    in_every_mode(|poller, mode| {
        let program = std::env::current_exe().unwrap();
        let file = std::fs::File::open(&program).unwrap();
        let directory = std::fs::File::open(program.parent().unwrap()).unwrap();
        for (what, file) in [("a regular file", file), ("a directory", directory)] {
            // Twice: the first attempt leaves nothing behind.
            for _ in 0..2 {
                // SAFETY: it is not registered by this.
                let result = unsafe { poller.register(file.as_fd(), Token(1), READABLE, mode) };
                fails(result, io::ErrorKind::PermissionDenied, what);
            }
        }
        quiet(poller, "nothing was registered");
    });
}

#[test]
fn rule_20_a_device_that_is_always_ready_is_an_error_or_ready() {
    in_every_mode(|poller, mode| {
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: it is deregistered below.
        match unsafe { poller.register(null.as_fd(), Token(1), READABLE, mode) } {
            Ok(()) => {
                assert!(next(poller, 1).is_readable());
                poller.deregister(null.as_fd()).unwrap();
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"),
        }
    });
}

/// A descriptor that only names a place in the file system; poll(2) takes it for closed.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn rule_20_a_descriptor_that_only_names_a_place_is_an_error_at_registration() {
    use rustix::fs::{Mode as Permissions, OFlags};

    in_every_mode(|poller, mode| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        for path in ["/dev/null", "/", "/dev/tty"] {
            let place = rustix::fs::open(path, flags, Permissions::empty()).unwrap();
            // SAFETY: it is not registered by this, or else the test fails and the poller goes.
            let result = unsafe { poller.register(place.as_fd(), Token(1), READABLE, mode) };
            assert!(result.is_err(), "{path} as a place only is taken");
        }
    });
}

/// A disk is always ready, as a file is. Where this machine has one that may be opened.
#[test]
fn rule_20_a_block_device_is_an_error_at_registration() {
    use std::os::unix::fs::FileTypeExt;

    in_every_mode(|poller, mode| {
        for entry in std::fs::read_dir("/dev").unwrap().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_block_device()) {
                continue;
            }
            let Ok(device) = std::fs::File::open(entry.path()) else {
                continue;
            };
            // SAFETY: it is not registered by this, or else the test fails and the poller goes.
            let result = unsafe { poller.register(device.as_fd(), Token(1), READABLE, mode) };
            fails(result, io::ErrorKind::PermissionDenied, "a block device");
        }
    });
}

// Rule 22: signals.

#[test]
fn rule_22_a_signal_storm_makes_no_timeout_early_or_endless() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let _storm = Storm::here();
        let before = SIGNALS.load(Ordering::Relaxed);
        let mut waits = 0;
        // Far more interrupts than waits: each wait has to go on after several.
        while waits < 40 || SIGNALS.load(Ordering::Relaxed) - before < 10 * waits {
            for timeout in [Duration::from_micros(2_500), Duration::from_millis(3)] {
                let start = Instant::now();
                let events = wait(&poller, Some(timeout));
                let elapsed = start.elapsed();
                assert!(events.is_empty(), "{events:?}");
                assert!(elapsed >= timeout, "{elapsed:?} instead of {timeout:?}");
                waits += 1;
            }
        }
    });
}

#[test]
fn rule_22_a_signal_storm_loses_nothing() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let (go, when) = mpsc::channel::<u8>();
        let writer = thread::spawn(move || {
            for byte in when {
                // Time enough for the other to fall asleep, and to be interrupted.
                thread::sleep(Duration::from_micros(200));
                theirs.write_all(&[byte]).unwrap();
            }
        });
        let storm = Storm::here();
        let before = SIGNALS.load(Ordering::Relaxed);
        for timeout in [None, Some(Duration::MAX), Some(Duration::from_secs(3600))] {
            for round in 0..50 {
                go.send(round).unwrap();
                // A wait that only a signal could have ended would return without events.
                let events = wait(poller, timeout);
                assert_eq!(tokens(&events), [1], "round {round}");
                let mut bytes = [0; 8];
                assert_eq!((&ours.socket).read(&mut bytes).unwrap(), 1);
                assert_eq!(bytes[0], round);
                ours.rearm(READABLE);
            }
        }
        assert!(
            SIGNALS.load(Ordering::Relaxed) > before,
            "there was no storm"
        );
        drop(storm);
        drop(go);
        writer.join().unwrap();
    });
}

// Rule 23: descriptors.

#[test]
fn rule_23_all_descriptors_are_close_on_exec() {
    const NAME: &str = "rule_23_all_descriptors_are_close_on_exec";
    in_a_child(NAME, &[], || {
        // What a child of this process holds.
        let inherited = || {
            let list = "for n in 3 4 5 6 7 8 9; do (true <&$n) 2>/dev/null && echo $n; done; true";
            let output = Command::new("sh").args(["-c", list]).output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap()
        };
        on_every_backend(move |backend| {
            let (before, held_before) = (descriptors(), inherited());
            let poller = open(backend);
            let (there, _) = modes(&poller);
            let (ours, mut theirs) = unix_pair();
            let mut sources = Vec::new();
            for (token, mode) in there.into_iter().enumerate() {
                let socket = ours.try_clone().unwrap();
                sources.push(Source::new(&poller, socket, token as u64, READABLE, mode));
            }
            wait(&poller, Some(Duration::from_micros(300)));
            poller.notify().unwrap();
            wait(&poller, None);
            theirs.write_all(b"x").unwrap();
            look(&poller);

            // And what stands on it: a descriptor with a deadline, a listener, a connection.
            let runtime = Runtime::builder().backend(backend).build().unwrap();
            let descriptor = runtime.backend_fd();
            assert_eq!(descriptor.is_ok(), poller.capabilities().descriptor);
            runtime.turn(Duration::from_micros(300));
            let sockets = runtime.block_on(async {
                polder::Timer::after(Duration::from_micros(300)).await;
                let listener = polder::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let stream = polder::net::TcpStream::connect(address).await.unwrap();
                let accepted = listener.accept().await.unwrap();
                (listener, stream, accepted)
            });

            let after = descriptors();
            assert!(after.len() > before.len() + 3, "something was opened");
            for (number, flags) in after {
                assert!(
                    before.contains_key(&number) || flags & libc::FD_CLOEXEC != 0,
                    "descriptor {number} would live on in a child"
                );
            }
            assert_eq!(inherited(), held_before, "what a child holds");
            drop((descriptor, sockets));
        });
    });
}

#[test]
fn rule_23_a_poller_that_goes_leaves_no_descriptor_and_no_registration_behind() {
    const NAME: &str = "rule_23_a_poller_that_goes_leaves_no_descriptor_and_no_registration_behind";
    in_a_child(NAME, &[], || {
        in_every_mode(|poller, mode| {
            let (ours, mut theirs) = unix_pair();
            theirs.write_all(b"x").unwrap();
            let before = descriptors();
            for round in 0..100 {
                let other = open(poller.backend());
                // SAFETY: the poller goes before the socket does.
                unsafe { other.register(ours.as_fd(), Token(round), READABLE, mode) }.unwrap();
                assert_eq!(tokens(&wait(&other, Some(LIMIT))), [round]);
                other.notify().unwrap();
                wait(&other, Some(Duration::from_micros(1)));
            }
            assert_eq!(descriptors(), before, "something was left open");
        });
    });
}

#[test]
fn a_poller_that_cannot_be_opened_is_an_error_and_leaks_nothing() {
    const NAME: &str = "a_poller_that_cannot_be_opened_is_an_error_and_leaks_nothing";
    in_a_child(NAME, &[], || {
        on_every_backend(|backend| {
            let before = descriptors();
            let highest = before.keys().max().unwrap() + 1;
            // Nothing, then one descriptor, then two, and so on, until it is enough.
            for allowed in 0.. {
                assert!(allowed < 32, "a poller needs {allowed} descriptors");
                let mut hoard = Vec::new();
                let limit = highest + allowed;
                set_descriptor_limit(limit as libc::rlim_t);
                // What lies below and is free is taken away.
                while let Ok(taken) = rustix::io::fcntl_dupfd_cloexec(stdin(), 0) {
                    match taken.as_raw_fd() >= highest {
                        true => break,
                        false => hoard.push(taken),
                    }
                }
                let opened = Poller::new(backend);
                drop(hoard);
                set_descriptor_limit(1024);
                match opened {
                    Ok(poller) => {
                        assert!(allowed > 0, "a poller without a descriptor");
                        quiet(&poller, "it works");
                        break;
                    }
                    Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}"),
                }
                assert_eq!(descriptors(), before, "{allowed}: something was left open");
            }
            let before = match backend {
                // Its reactor is the process's, and stays.
                Backend::AsyncIo => descriptors(),
                _ => before,
            };
            quiet(&open(backend), "another one works");
            assert_eq!(descriptors(), before, "something was left open");
        });
    });
}

fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the standard input stays open.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Only in a child: the limit is the process's.
fn set_descriptor_limit(soft: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes a limit to a limit.
    assert_eq!(
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) },
        0
    );
    limit.rlim_cur = soft;
    // SAFETY: the kernel reads a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

// Rule 68: the end of a peer that keeps its descriptor.

/// The calling thread's CPU time so far.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn rule_68_the_end_of_a_peer_that_keeps_its_descriptor_wakes_a_blocked_writer() {
    // What is waited for, and whether something to read lies there all the time.
    let cases = [
        (WRITABLE, false),
        (WRITABLE, true),
        (READABLE | WRITABLE, false),
        (READABLE | WRITABLE, true),
    ];
    in_every_mode(move |poller, mode| {
        for (interest, unread) in cases {
            for waited_for in [true, false] {
                let (mut ours, mut theirs) = unix_pair();
                fill(&mut ours);
                if unread {
                    assert_eq!(theirs.write(b"unread").unwrap(), 6);
                }
                let ours = Source::new(poller, ours, 1, interest, mode);
                let is_quiet = !unread || !interest.contains(READABLE);
                if is_quiet {
                    quiet(
                        poller,
                        "there is no room, and nobody wants what there is to read",
                    );
                }
                let waiter = (is_quiet && waited_for).then(|| waiter(poller, None));
                theirs.shutdown(Shutdown::Both).unwrap();
                let mut told = match waiter {
                    Some(waiter) => waiter.join().unwrap(),
                    None => wait(poller, None),
                };
                while !told.iter().any(Event::is_writable) {
                    ours.rearm(interest);
                    told = wait(poller, None);
                }
                let error = (&ours.socket).write(b"x").unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
                drop(theirs);
            }
        }
    });
}

/// Room comes where something lies unread, and is told of; and nothing is told of before.
#[test]
fn rule_68_a_writer_beside_unread_bytes_is_told_of_room() {
    in_every_mode(|poller, mode| {
        for (kind, mut ours, mut theirs) in pairs() {
            fill(&mut ours);
            assert_eq!(theirs.write(b"unread").unwrap(), 6);
            let ours = Source::new(poller, ours, 1, WRITABLE, mode);
            if kind == "Unix" {
                quiet(poller, "there is no room");
            }
            let mut bytes = [0; 64 * 1024];
            while !look(poller).iter().any(Event::is_writable) {
                while theirs.read(&mut bytes).is_ok() {}
            }
            assert!((&ours.socket).write(b"x").is_ok(), "{kind}");
        }
    });
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn rule_68_a_writer_beside_unread_bytes_costs_no_time() {
    in_every_mode(|poller, mode| {
        let (mut ours, mut theirs) = unix_pair();
        fill(&mut ours);
        assert_eq!(theirs.write(b"unread").unwrap(), 6);
        let _ours = Source::new(poller, ours, 1, WRITABLE, mode);
        let (start, time) = (cpu_time(), Duration::from_millis(200));
        assert!(wait(poller, Some(time)).is_empty());
        let used = cpu_time() - start;
        assert!(
            used < time / 4,
            "{used:?} of CPU time in a wait of {time:?}"
        );
    });
}

// Rule 72: notifications.

#[test]
fn rule_72_a_notification_that_finds_no_room_among_the_events_ends_no_later_wait() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        theirs.write_all(b"x").unwrap();
        poller.notify().unwrap();
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, None).unwrap();
        let taken = events.len();
        ours.deregister().unwrap();
        quiet(
            poller,
            &format!("{taken} events came with the notification"),
        );
        poller.notify().unwrap();
        // This one has no other end than the notification.
        assert!(wait(poller, None).is_empty());
    });
}

// Rule 76: deregistering before closing.

#[test]
fn rule_76_what_is_deregistered_and_closed_while_another_thread_waits_is_closed_for_its_peer() {
    in_every_mode(|poller, mode| {
        let (ours, theirs) = tcp_pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let listener = Source::new(poller, listener, 2, READABLE, mode);
        let waiter = waiter(poller, None);
        drop(ours);
        drop(listener);
        theirs.set_nonblocking(false).unwrap();
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        let read = (&theirs).read(&mut [0]).expect("the end, within the limit");
        assert_eq!(read, 0, "the peer sees the end");
        eventually("the port is free", || TcpListener::bind(address).is_ok());
        assert!(is_busy(poller), "the wait goes on");
        poller.notify().unwrap();
        assert!(waiter.join().unwrap().is_empty());
    });
}

// The contract beyond the numbered rules.

#[test]
fn a_mode_that_is_not_there_is_unsupported() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let (there, lacking) = modes(&poller);
        let (ours, mut theirs) = unix_pair();
        theirs.write_all(b"x").unwrap();
        for mode in lacking {
            // SAFETY: it is not registered by this.
            let result = unsafe { poller.register(ours.as_fd(), Token(1), READABLE, mode) };
            let error = fails(
                result,
                io::ErrorKind::Unsupported,
                "a mode that is not there",
            );
            assert!(error.to_string().contains(backend.name()), "{error}");
            let _ours = Source::new(&poller, &ours, 2, READABLE, there[0]);
            let result = poller.modify(ours.as_fd(), Token(3), READABLE, mode);
            fails(
                result,
                io::ErrorKind::Unsupported,
                "a mode that is not there",
            );
            assert_eq!(
                tokens(&wait(&poller, None)),
                [2],
                "what failed changed nothing"
            );
        }
    });
}

#[test]
fn a_reserved_token_is_invalid_and_all_others_are_the_callers() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        theirs.write_all(b"x").unwrap();
        for token in [Token::RESERVED, Token(u64::MAX - 1), Token(u64::MAX)] {
            // SAFETY: it is not registered by this.
            let result = unsafe { poller.register(ours.as_fd(), token, READABLE, mode) };
            fails(result, io::ErrorKind::InvalidInput, "a reserved token");
        }
        let highest = Token::RESERVED.0 - 1;
        for token in [0, 1, u32::MAX as u64, 1 << 63, highest] {
            let _ours = Source::new(poller, &ours, token, READABLE, mode);
            assert_eq!(tokens(&wait(poller, None)), [token]);
            let result = poller.modify(ours.as_fd(), Token::RESERVED, READABLE, mode);
            fails(result, io::ErrorKind::InvalidInput, "a reserved token");
        }
        // Two may share one.
        let (other, mut others) = unix_pair();
        others.write_all(b"x").unwrap();
        let _ours = Source::new(poller, &ours, 5, READABLE, mode);
        let _other = Source::new(poller, &other, 5, READABLE, mode);
        let mut reports = 0;
        while reports < 2 {
            reports += tokens(&wait(poller, None)).len();
        }
    });
}

#[test]
fn an_interest_is_a_set() {
    let both = READABLE | WRITABLE;
    assert!(both.contains(READABLE) && both.contains(WRITABLE) && both.contains(NONE));
    assert!(!both.contains(Interest::PRIORITY) && !READABLE.contains(both));
    assert!(NONE.is_empty() && !both.is_empty() && NONE.contains(NONE));
    assert_eq!(NONE, Interest::default());
    assert_eq!(both | READABLE, both);
    let mut built = NONE;
    built |= READABLE;
    built |= WRITABLE;
    assert_eq!(built, both);
}

#[test]
fn a_wait_replaces_the_events_of_the_last_one() {
    in_every_mode(|poller, mode| {
        let mut events = Events::default();
        assert!(events.is_empty());
        let (ours, _theirs) = unix_pair();
        let ours = Source::new(poller, ours, 1, WRITABLE, mode);
        assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
        assert_eq!((events.len(), events.is_empty()), (1, false));
        assert_eq!((&events).into_iter().count(), events.iter().count());
        let event = *events.iter().next().unwrap();
        assert!(event.is_writable() && !event.is_readable());
        assert!(format!("{event:?}").contains("writable: true"));
        ours.deregister().unwrap();
        assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        assert!(events.is_empty());
    });
}

#[test]
fn a_wait_reports_no_more_than_there_is_room_for_and_everybody_has_a_turn() {
    in_every_mode(|poller, mode| {
        for capacity in [0, 1, 2, 3, 6] {
            // Whatever earlier waits had room for.
            quiet(poller, "nothing is there yet");
            let sources: Vec<_> = (0..7)
                .map(|token| {
                    let (ours, theirs) = unix_pair();
                    (Source::new(poller, ours, token, WRITABLE, mode), theirs)
                })
                .collect();
            let mut events = Events::with_capacity(capacity);
            let mut seen = HashSet::new();
            for round in 0.. {
                assert!(
                    round < 7 * 7,
                    "capacity {capacity}: only {seen:?} had a turn"
                );
                // What is told once comes again only if all of it was told.
                poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
                assert!(
                    events.len() <= capacity.max(1),
                    "{} events where there is room for {capacity}",
                    events.len()
                );
                seen.extend(events.iter().map(|event| event.token().0));
                if seen.len() == sources.len() {
                    break;
                }
            }
            // And a notification has its place beside them.
            for (source, _) in &sources {
                source.set(WRITABLE);
            }
            poller.notify().unwrap();
            poller.wait(&mut events, None).unwrap();
            drop(sources);
            let _ = look(poller);
        }
    });
}

#[test]
fn a_descriptor_can_be_in_two_pollers() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = unix_pair();
        let other = open(poller.backend());
        let _first = Source::new(poller, &ours, 1, READABLE, mode);
        let second = Source::new(&other, &ours, 2, READABLE, mode);
        theirs.write_all(b"x").unwrap();
        assert_eq!(tokens(&wait(poller, None)), [1]);
        assert_eq!(tokens(&wait(&other, None)), [2]);
        second.deregister().unwrap();
        drop(second);
        drop(other);
        let _ = look(poller);
    });
}

#[test]
fn a_pollers_descriptor_is_readable_while_a_wait_would_return() {
    in_every_mode(|poller, mode| {
        if !poller.capabilities().descriptor {
            fails(
                poller.descriptor(),
                io::ErrorKind::Unsupported,
                "no descriptor",
            );
            return;
        }
        let outer = open(Backend::Poll);
        let inner = poller.descriptor().unwrap();
        let is_readable = || {
            // SAFETY: it is deregistered at once.
            unsafe { outer.register(inner, Token(1), READABLE, Mode::OneShot) }.unwrap();
            let events = look(&outer);
            outer.deregister(inner).unwrap();
            events.iter().any(Event::is_readable)
        };
        assert!(!is_readable(), "nothing is there");
        for _ in 0..3 {
            poller.notify().unwrap();
            assert!(is_readable(), "notified");
            assert!(is_readable(), "looking takes nothing away");
            assert!(wait(poller, None).is_empty());
            assert!(!is_readable(), "the notification was taken");
        }
        let (ours, mut theirs) = unix_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        assert!(!is_readable(), "a quiet source");
        theirs.write_all(b"x").unwrap();
        assert!(is_readable(), "a source is ready");
        ours.next();
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1);
        let _ = look(poller);
        assert!(!is_readable(), "all was told");
    });
}

/// One thread, many sources, every operation at random: what must be reported is known each time.
#[test]
fn what_is_ready_is_reported_and_what_is_gone_is_not() {
    struct Slot {
        ours: Socket,
        theirs: Option<Socket>,
        unread: usize,
        registered: Option<(u64, Interest)>,
        /// Not told since it was registered, armed, or written to.
        fresh: bool,
    }

    fn fresh_slot() -> Slot {
        let (ours, theirs) = unix_pair();
        Slot {
            ours,
            theirs: Some(theirs),
            unread: 0,
            registered: None,
            fresh: false,
        }
    }

    in_every_mode(|poller, mode| {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let mut slots: Vec<_> = (0..12).map(|_| fresh_slot()).collect();
        let mut last_token = 0;
        for step in 0..sized(poller.backend(), 3_000).max(1_000) {
            let slot = &mut slots[random.below(12) as usize];
            let interest =
                [NONE, READABLE, READABLE, WRITABLE, READABLE | WRITABLE][random.below(5) as usize];
            match (random.below(8), slot.registered) {
                (0..=3, None) => {
                    last_token += 1;
                    // SAFETY: a slot is deregistered before it is replaced, and the poller goes
                    // before the rest of them.
                    unsafe {
                        poller.register(slot.ours.as_fd(), Token(last_token), interest, mode)
                    }
                    .unwrap();
                    (slot.registered, slot.fresh) = (Some((last_token, interest)), true);
                }
                (0..=2, Some(_)) => {
                    last_token += 1;
                    poller
                        .modify(slot.ours.as_fd(), Token(last_token), interest, mode)
                        .unwrap();
                    (slot.registered, slot.fresh) = (Some((last_token, interest)), true);
                }
                (3, Some(_)) => {
                    poller.deregister(slot.ours.as_fd()).unwrap();
                    slot.registered = None;
                }
                (4 | 5, _) => {
                    if let Some(theirs) = &mut slot.theirs {
                        theirs.write_all(b"x").unwrap();
                        slot.unread += 1;
                        slot.fresh |= mode == Mode::Edge
                            && slot
                                .registered
                                .is_some_and(|(_, interest)| interest.contains(READABLE));
                    }
                }
                (6, _) => {
                    drain(&slot.ours, slot.unread);
                    slot.unread = 0;
                }
                (_, registered) => {
                    // The end, or, after it, another pair, most likely of the same numbers.
                    match slot.theirs.take() {
                        Some(theirs) => {
                            // Told at once, even while a child that another test is starting
                            // has a duplicate still.
                            theirs.shutdown(Shutdown::Both).unwrap();
                            drop(theirs);
                            slot.fresh |= mode == Mode::Edge;
                        }
                        None => {
                            if registered.is_some() {
                                poller.deregister(slot.ours.as_fd()).unwrap();
                            }
                            *slot = fresh_slot();
                        }
                    }
                }
            }
            let events = look(poller);
            for slot in &mut slots {
                let Some((token, interest)) = slot.registered else {
                    continue;
                };
                let told: Vec<_> = events
                    .iter()
                    .filter(|e| e.token() == Token(token))
                    .collect();
                let ended = slot.theirs.is_none();
                let readable = interest.contains(READABLE) && (slot.unread > 0 || ended);
                let writable = interest.contains(WRITABLE);
                let due = (readable || writable) && (mode == Mode::Level || slot.fresh);
                assert!(
                    !due || told
                        .iter()
                        .any(|event| readable && event.is_readable()
                            || writable && event.is_writable()),
                    "step {step}: token {token} is ready, and reported are {events:?}"
                );
                if !told.is_empty() {
                    assert!(!interest.is_empty() || ended, "step {step}: not asked for");
                    assert!(
                        mode != Mode::OneShot || slot.fresh,
                        "step {step}: {token} is reported twice"
                    );
                }
                if mode == Mode::Edge || !told.is_empty() {
                    slot.fresh = false;
                }
            }
            let known: HashSet<_> = slots
                .iter()
                .filter_map(|s| s.registered)
                .map(|r| r.0)
                .collect();
            for token in tokens(&events) {
                assert!(known.contains(&token), "step {step}: token {token} is gone");
            }
        }
    });
}

/// Several threads do to their own sources what they like, while one thread waits.
#[test]
fn changes_by_many_threads_lose_no_event_and_leave_no_stale_one() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let (there, _) = modes(&poller);
        let (seen, watcher) = Seen::watch(&poller);
        let tokens = Arc::new(AtomicU64::new(1));
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (poller, seen, there) = (poller.clone(), seen.clone(), there.clone());
                let tokens = tokens.clone();
                let mut random = Random(0xA076_1D64_78BD_642F + number);
                let token = move || tokens.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    let mut gone = Vec::new();
                    let mut pairs: Vec<_> = (0..3).map(|_| unix_pair()).collect();
                    for _ in 0..sized(backend, 1_000).max(300) {
                        let pair = &mut pairs[random.below(3) as usize];
                        if random.below(4) == 0 {
                            // Others get these numbers.
                            *pair = unix_pair();
                        }
                        let (ours, theirs) = (&pair.0, &pair.1);
                        let mode = there[random.below(there.len() as u64) as usize];
                        let first = [NONE, READABLE, WRITABLE][random.below(3) as usize];
                        let mut source = Source::new(&poller, ours, token(), first, mode);
                        for _ in 0..random.below(3) {
                            // The byte comes before it is waited for, or after.
                            let early = random.below(2) == 0;
                            if early {
                                (&*theirs).write_all(b"x").unwrap();
                            }
                            let old = std::mem::replace(&mut source.token, token());
                            source.mode = there[random.below(there.len() as u64) as usize];
                            source.set(READABLE);
                            gone.push((old, seen.bound()));
                            if !early {
                                (&*theirs).write_all(b"x").unwrap();
                            }
                            seen.expect(source.token);
                            drain(ours, 1);
                            if random.below(8) == 0 {
                                poller.notify().unwrap();
                            }
                        }
                        if random.below(2) == 0 {
                            // It goes while it is ready.
                            source.set(READABLE | WRITABLE);
                        }
                        source.deregister().unwrap();
                        gone.push((source.token, seen.bound()));
                    }
                    gone
                })
            })
            .collect();
        let gone: Vec<_> = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a thread that changes sources"))
            .collect();
        seen.finish(&poller, watcher, &gone);
        let _ = look(&poller); // The notification that ended it may be left.
        quiet(&poller, "nothing is registered any more");
    });
}

// Backends as values.

/// Every name that a backend has, here or elsewhere.
const NAMES: [&str; 5] = ["epoll", "kqueue", "event-ports", "iocp", "poll"];

/// The error names what there is instead.
#[track_caller]
fn lists_what_is_available(error: &io::Error) {
    for backend in Backend::available() {
        let message = error.to_string();
        assert!(message.contains(backend.name()), "{backend}: {message}");
    }
}

#[test]
fn the_available_backends_begin_with_the_default() {
    let available = Backend::available();
    assert_eq!(available.first(), Some(&Backend::default()));
    let different: HashSet<_> = available.iter().collect();
    assert_eq!(different.len(), available.len(), "each once");
    for backend in available {
        assert!(backend.is_available());
        assert_eq!(open(backend).backend(), backend);
    }
}

#[test]
fn a_backends_name_can_be_read_back() {
    for backend in Backend::available() {
        let name = backend.to_string();
        assert_eq!(name, backend.name());
        assert_eq!(name.parse::<Backend>().unwrap(), backend);
        let shouted = format!(" {}\n", name.to_uppercase());
        assert_eq!(shouted.parse::<Backend>().unwrap(), backend);
        assert_eq!(format!("{backend:>20}").len(), 20, "it can be aligned");
    }
}

#[test]
fn a_name_that_means_nothing_and_a_backend_that_is_not_here_are_errors() {
    for name in ["", "fax", "epoll2", "epo ll"] {
        let error = fails(name.parse::<Backend>(), io::ErrorKind::InvalidInput, name);
        lists_what_is_available(&error);
    }
    let available: Vec<_> = Backend::available().iter().map(|b| b.name()).collect();
    for name in NAMES.into_iter().filter(|name| !available.contains(name)) {
        let error = fails(name.parse::<Backend>(), io::ErrorKind::Unsupported, name);
        assert!(error.to_string().contains(name), "{error}");
        lists_what_is_available(&error);
    }
    for backend in [Backend::Kqueue, Backend::Iocp, Backend::EventPorts] {
        if !backend.is_available() {
            let opened = Poller::new(backend);
            let error = fails(opened, io::ErrorKind::Unsupported, backend.name());
            lists_what_is_available(&error);
            let built = Runtime::builder().backend(backend).build().map(drop);
            fails(built, io::ErrorKind::Unsupported, backend.name());
        }
    }
}

/// The child's half of the tests of `POLDER_BACKEND`: what the environment says is what is used.
fn environment_is_heeded() {
    let expected = std::env::var("POLDER_BACKEND").map(|name| match &*name {
        "" => Ok(Backend::default()), // As if it were not set.
        name => name.parse::<Backend>(),
    });
    match expected {
        Err(_) => {
            assert_eq!(Backend::from_env().unwrap(), Backend::default());
            assert_eq!(Runtime::new().unwrap().backend(), Backend::default());
        }
        Ok(Ok(backend)) => {
            assert_eq!(Backend::from_env().unwrap(), backend);
            assert_eq!(Runtime::new().unwrap().backend(), backend);
            // Who is told otherwise does otherwise.
            for other in Backend::available() {
                let runtime = Runtime::builder().backend(other).build().unwrap();
                assert_eq!(runtime.backend(), other);
            }
        }
        Ok(Err(expected)) => {
            for error in [Backend::from_env().map(drop), Runtime::new().map(drop)] {
                let error = fails(error, expected.kind(), "a bad POLDER_BACKEND");
                assert!(error.to_string().contains("POLDER_BACKEND"), "{error}");
                lists_what_is_available(&error);
            }
            // It is not asked where the program chooses.
            for backend in Backend::available() {
                Runtime::builder().backend(backend).build().unwrap();
            }
        }
    }
}

#[test]
fn the_environment_chooses_the_backend() {
    const NAME: &str = "the_environment_chooses_the_backend";
    in_a_child(NAME, &[], environment_is_heeded);
    in_a_child(NAME, &[("POLDER_BACKEND", "")], environment_is_heeded);
    for backend in Backend::available() {
        let variables = [("POLDER_BACKEND", backend.name())];
        in_a_child(NAME, &variables, environment_is_heeded);
    }
}

#[test]
fn an_environment_that_names_no_backend_is_an_error() {
    const NAME: &str = "an_environment_that_names_no_backend_is_an_error";
    let available: Vec<_> = Backend::available().iter().map(|b| b.name()).collect();
    let absent = NAMES.into_iter().filter(|name| !available.contains(name));
    for name in ["fax", " "].into_iter().chain(absent.take(1)) {
        in_a_child(NAME, &[("POLDER_BACKEND", name)], environment_is_heeded);
    }
}

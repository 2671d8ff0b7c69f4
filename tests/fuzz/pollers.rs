//! Raw poller operations, in every mode, against the contract (the documentation of
//! `polder::poller`). The test asks the kernel for a source's readiness with a separate `poll`.
//! Kernels differ in what `poll` reports for a closed end; this test expects Linux.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use polder::Backend;
use polder::poller::{Events, Interest, Mode, Poller, Token};
use rustix::event::{PollFd, PollFlags, poll};

use crate::{Rng, fuzz};

#[test]
fn pollers_keep_contract() {
    fuzz("pollers_keep", 20_000, |backend, rng| {
        World::new(backend, rng).run(rng, 150)
    });
}

/// The time limit of a `wait` that must return immediately, on a loaded machine.
const PROMPT: Duration = Duration::from_secs(15);

/// How a source is registered.
struct Registered {
    token: Token,
    interest: Interest,
    mode: Mode,
    /// One-shot: whether it was reported since it was armed. Without interest: whether its end was
    /// reported.
    reported: bool,
    /// Edge: the readiness that must be reported if it still holds: something new arrived, or it
    /// held at registration.
    due: Interest,
}

/// One end of a pair of sockets: ours, or its duplicate.
struct Source {
    near: UnixStream,
    registered: Option<Registered>,
    /// The number of its pair.
    pair: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Notified {
    No,
    /// A wait was in progress, which the notification has either ended or missed.
    Perhaps,
    Yes,
}

struct World {
    backend: Backend,
    poller: Poller,
    modes: Vec<Mode>,
    /// The sources by number, to which the events of `wait` are matched; there may be gaps.
    sources: BTreeMap<usize, Source>,
    /// The other ends; `None` once closed.
    peers: BTreeMap<usize, Option<UnixStream>>,
    next: usize,
    token: u64,
    /// Whether a notification was sent since the last wait.
    notified: Notified,
}

/// The state of a descriptor, as the kernel reports it.
#[derive(Clone, Copy)]
struct Truth(PollFlags);

impl Truth {
    fn of(descriptor: impl AsFd) -> Truth {
        let wanted = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let mut asked = [PollFd::new(&descriptor, wanted)];
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::io::retry_on_intr(|| poll(&mut asked, Some(&zero))).expect("one can be asked");
        Truth(asked[0].revents())
    }

    fn is_over(self) -> bool {
        self.0.intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn is_readable(self) -> bool {
        self.is_over() || self.0.intersects(PollFlags::IN | PollFlags::RDHUP)
    }

    fn is_writable(self) -> bool {
        self.is_over() || self.0.intersects(PollFlags::OUT)
    }

    /// The part of an interest that must be reported.
    fn answers(self, interest: Interest) -> Interest {
        let mut answers = Interest::NONE;
        if interest.contains(Interest::READABLE) && self.is_readable() {
            answers |= Interest::READABLE;
        }
        if interest.contains(Interest::WRITABLE) && self.is_writable() {
            answers |= Interest::WRITABLE;
        }
        answers
    }
}

fn both() -> Interest {
    Interest::READABLE | Interest::WRITABLE
}

fn without(set: Interest, other: Interest) -> Interest {
    let mut left = Interest::NONE;
    for part in [Interest::READABLE, Interest::WRITABLE, Interest::PRIORITY] {
        if set.contains(part) && !other.contains(part) {
            left |= part;
        }
    }
    left
}

fn intersects(a: Interest, b: Interest) -> bool {
    without(a, b) != a
}

impl Registered {
    /// The readiness that must be reported soon for a source in this state.
    fn owes(&self, truth: Truth) -> Interest {
        let answers = truth.answers(self.interest);
        match self.mode {
            Mode::OneShot if self.reported => Interest::NONE,
            Mode::Edge => without(self.due, without(self.due, answers)),
            _ => answers,
        }
    }
}

impl World {
    fn new(backend: Backend, _: &mut Rng) -> World {
        let poller = Poller::new(backend).expect("an available backend opens");
        let has = poller.capabilities();
        let modes = [
            (has.level, Mode::Level),
            (has.one_shot, Mode::OneShot),
            (has.edge, Mode::Edge),
        ];
        World {
            backend,
            poller,
            modes: modes
                .iter()
                .filter(|(has, _)| *has)
                .map(|(_, mode)| *mode)
                .collect(),
            sources: BTreeMap::new(),
            peers: BTreeMap::new(),
            next: 0,
            token: 0,
            notified: Notified::No,
        }
    }

    fn run(mut self, rng: &mut Rng, steps: u64) -> u64 {
        for _ in 0..steps {
            match rng.below(20) {
                0 | 1 if self.sources.len() < 8 => self.open(rng),
                0..=2 => self.close(rng),
                3..=5 => self.register(rng),
                6..=8 => self.modify(rng),
                9 => self.deregister(rng),
                10..=12 => self.act(rng),
                13 | 14 => self.read(rng),
                15 => self.write_near(rng),
                16 => self.notify(),
                17 => self.wait_in_company(rng),
                18 => self.sleep(rng),
                _ => self.settle(rng),
            }
            if rng.one_in(4) {
                self.look(rng);
            }
        }
        self.settle(rng);
        for source in self.sources.values() {
            if source.registered.is_some() {
                self.poller
                    .deregister(source.near.as_fd())
                    .expect("it is registered");
            }
        }
        steps
    }

    fn some(&self, rng: &mut Rng) -> Option<usize> {
        let all: Vec<usize> = self.sources.keys().copied().collect();
        (!all.is_empty()).then(|| rng.pick(&all))
    }

    /// Makes a pair, or one more descriptor of an existing end.
    fn open(&mut self, rng: &mut Rng) {
        let number = self.next;
        self.next += 1;
        if let (true, Some(of)) = (rng.one_in(4), self.some(rng)) {
            let source = &self.sources[&of];
            let near = source.near.try_clone().expect("a duplicate");
            let pair = source.pair;
            let source = Source {
                near,
                registered: None,
                pair,
            };
            self.sources.insert(number, source);
            return;
        }
        let (near, far) = UnixStream::pair().expect("a pair");
        near.set_nonblocking(true).expect("it can be told");
        far.set_nonblocking(true).expect("it can be told");
        let source = Source {
            near,
            registered: None,
            pair: number,
        };
        self.sources.insert(number, source);
        self.peers.insert(number, Some(far));
    }

    /// Deregisters the source first: its number may be reused.
    fn close(&mut self, rng: &mut Rng) {
        let Some(number) = self.some(rng) else { return };
        let source = self.sources.remove(&number).expect("it is one of them");
        if source.registered.is_some() {
            self.poller
                .deregister(source.near.as_fd())
                .expect("it is registered");
        }
        let pair = source.pair;
        drop(source);
        if self.sources.values().all(|source| source.pair != pair) {
            self.peers.remove(&pair);
        }
    }

    fn token(&mut self) -> Token {
        self.token += 1;
        Token(self.token)
    }

    fn wish(&mut self, rng: &mut Rng) -> (Token, Interest, Mode) {
        let interests = [
            Interest::READABLE,
            Interest::READABLE,
            Interest::WRITABLE,
            both(),
            Interest::NONE,
        ];
        let modes = self.modes.clone();
        (self.token(), rng.pick(&interests), rng.pick(&modes))
    }

    fn register(&mut self, rng: &mut Rng) {
        let Some(number) = self.some(rng) else { return };
        let (token, interest, mode) = self.wish(rng);
        let source = self.sources.get_mut(&number).expect("it is one of them");
        let descriptor = source.near.as_fd();
        for other in [Mode::Level, Mode::OneShot, Mode::Edge] {
            if !self.modes.contains(&other) && rng.one_in(4) {
                // SAFETY: the poller refuses it.
                let result = unsafe { self.poller.register(descriptor, token, interest, other) };
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Unsupported);
            }
        }
        if rng.one_in(16) {
            let modify = self
                .poller
                .modify(descriptor, Token::RESERVED, interest, mode);
            assert_eq!(modify.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        // SAFETY: all code that closes the source deregisters it first.
        let result = unsafe { self.poller.register(descriptor, token, interest, mode) };
        if source.registered.is_some() {
            let kind = result.expect_err("it is registered already").kind();
            assert_eq!(kind, ErrorKind::AlreadyExists);
            return;
        }
        result.expect("it can be registered");
        source.registered = Some(Registered::new(token, interest, mode));
    }

    fn modify(&mut self, rng: &mut Rng) {
        let Some(number) = self.some(rng) else { return };
        let (token, interest, mode) = self.wish(rng);
        let source = self.sources.get_mut(&number).expect("it is one of them");
        let result = (self.poller).modify(source.near.as_fd(), token, interest, mode);
        match source.registered {
            Some(_) => {
                result.expect("it is registered");
                source.registered = Some(Registered::new(token, interest, mode));
            }
            None => assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound),
        }
    }

    fn deregister(&mut self, rng: &mut Rng) {
        let Some(number) = self.some(rng) else { return };
        let source = self.sources.get_mut(&number).expect("it is one of them");
        let result = self.poller.deregister(source.near.as_fd());
        match source.registered.take() {
            Some(_) => result.expect("it is registered"),
            None => assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound),
        }
    }

    /// Performs a random action at the other end.
    fn act(&mut self, rng: &mut Rng) {
        let Some(number) = self.some(rng) else { return };
        let pair = self.sources[&number].pair;
        let deed = Deed::random(rng);
        let peer = self
            .peers
            .get_mut(&pair)
            .expect("it goes with the last source");
        let Some(far) = peer else { return };
        let due = deed.does(far, rng.below(100_000) + 1);
        if deed == Deed::Close {
            *peer = None;
        }
        self.mark_due(pair, due);
    }

    /// Marks edges as due for all sources that share the pair.
    fn mark_due(&mut self, pair: usize, due: Interest) {
        for source in self
            .sources
            .values_mut()
            .filter(|source| source.pair == pair)
        {
            if let Some(registered) = &mut source.registered {
                registered.due |= due;
            }
        }
    }

    fn read(&mut self, rng: &mut Rng) {
        let Some(number) = self.some(rng) else { return };
        let mut buffer = vec![0; rng.below(50_000) + 1];
        let _ = (&self.sources[&number].near).read(&mut buffer);
    }

    fn write_near(&mut self, rng: &mut Rng) {
        let Some(number) = self.some(rng) else { return };
        let buffer = vec![1; rng.below(300_000) + 1];
        let near = &self.sources[&number].near;
        match rng.below(8) {
            0 => drop(near.shutdown(rng.pick(&[Shutdown::Read, Shutdown::Write, Shutdown::Both]))),
            _ => drop((&*near).write(&buffer)),
        }
    }

    fn notify(&mut self) {
        self.poller.notify().expect("it can be notified");
        self.notified = Notified::Yes;
    }

    /// Waits, and records what was reported. Returns the number of events.
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> usize {
        let count = self.poller.wait(events, timeout).expect("it can wait");
        assert_eq!(count, events.len());
        // The notification was for this wait, even if something else ended it.
        self.notified = Notified::No;
        self.note(events, None);
        count
    }

    /// Checks each event, and records it. An event with the token `old` predates a change.
    fn note(&mut self, events: &Events, old: Option<Token>) {
        // One wait may report a source twice, which does not violate one-shot.
        let before: BTreeMap<usize, bool> = (self.sources.iter())
            .filter_map(|(number, source)| Some((*number, source.registered.as_ref()?.reported)))
            .collect();
        for event in events.iter().filter(|event| Some(event.token()) != old) {
            let found = (self.sources.iter_mut()).find_map(|(number, source)| {
                let registered = source.registered.as_mut()?;
                (registered.token == event.token()).then_some((*number, &source.near, registered))
            });
            let Some((number, near, registered)) = found else {
                panic!(
                    "an event with token {:?}, which no source has",
                    event.token()
                );
            };
            let truth = Truth::of(near);
            let (interest, mode) = (registered.interest, registered.mode);
            let what = format!(
                "{mode:?} {interest:?}: readable {}, writable {}, and the kernel says {:?}",
                event.is_readable(),
                event.is_writable(),
                truth.0
            );
            // With edges, an end that happens in two steps is reported twice.
            if interest.is_empty() && mode != Mode::Edge {
                assert!(truth.is_over(), "no end: {what}");
                assert!(!before[&number], "an end without interest, twice: {what}");
            }
            if mode == Mode::OneShot && before[&number] {
                panic!("a one-shot source, twice: {what}");
            }
            // Our own backends report the current state; others may also report a past one.
            if matches!(self.backend.name(), "epoll" | "poll" | "select") && mode != Mode::Edge {
                assert!(!event.is_readable() || truth.is_readable(), "{what}");
                assert!(!event.is_writable() || truth.is_writable(), "{what}");
            }
            let mut told = Interest::NONE;
            if event.is_readable() {
                told |= Interest::READABLE;
            }
            if event.is_writable() {
                told |= Interest::WRITABLE;
            }
            registered.due = without(registered.due, told);
            registered.reported = true;
        }
    }

    fn look(&mut self, rng: &mut Rng) {
        let mut events = Events::with_capacity(capacity(rng));
        self.wait(&mut events, Some(Duration::ZERO));
    }

    /// Everything that is due is reported within as many waits as it takes to report each source.
    fn settle(&mut self, rng: &mut Rng) {
        let room = capacity(rng);
        let mut events = Events::with_capacity(room);
        let owed: Vec<(usize, Interest)> = (self.sources.iter())
            .filter_map(|(number, source)| {
                let owes = source.registered.as_ref()?.owes(Truth::of(&source.near));
                (!owes.is_empty()).then_some((*number, owes))
            })
            .collect();
        let mut came: BTreeMap<Token, Interest> = BTreeMap::new();
        // Each source may be reported in two parts, and our own descriptors take slots too.
        for _ in 0..4 * self.sources.len() + 8 {
            self.wait(&mut events, Some(Duration::ZERO));
            for event in &events {
                let told = came.entry(event.token()).or_default();
                if event.is_readable() {
                    *told |= Interest::READABLE;
                }
                if event.is_writable() {
                    *told |= Interest::WRITABLE;
                }
            }
        }
        for (number, owes) in owed {
            let source = &self.sources[&number];
            let registered = source.registered.as_ref().expect("it still is");
            let told = came.get(&registered.token).copied().unwrap_or_default();
            // The first report disarms a one-shot source.
            let is_kept = match registered.mode {
                Mode::OneShot => intersects(told, owes),
                _ => told.contains(owes),
            };
            assert!(
                is_kept,
                "{:?} {:?}, events for {}: {owes:?} is owed, and {told:?} was told; the kernel says {:?}",
                registered.mode,
                registered.interest,
                room,
                Truth::of(&source.near).0
            );
        }
    }

    fn owes_anything(&self) -> bool {
        (self.sources.values())
            .filter_map(|source| Some(source.registered.as_ref()?.owes(Truth::of(&source.near))))
            .any(|owes| !owes.is_empty())
    }

    /// A non-zero timeout never expires early, and a notification ends it.
    fn sleep(&mut self, rng: &mut Rng) {
        if self.owes_anything() {
            self.settle(rng);
        }
        let mut events = Events::with_capacity(capacity(rng));
        let timeout = rng.micros(1_500) + Duration::from_nanos(1);
        let is_long = self.notified == Notified::Yes && rng.one_in(2);
        let timeout = if is_long { 2 * PROMPT } else { timeout };
        let start = Instant::now();
        let was_notified = self.notified != Notified::No;
        let count = self.wait(&mut events, Some(timeout));
        let took = start.elapsed();
        if is_long {
            assert!(took < PROMPT, "a notification was lost");
        }
        if count == 0 && !was_notified {
            assert!(
                took >= timeout,
                "{timeout:?} took {took:?}, and nothing came"
            );
        }
    }

    /// Another thread ends a wait: by a notification, a change, or an action of a peer.
    fn wait_in_company(&mut self, rng: &mut Rng) {
        if self.owes_anything() {
            self.settle(rng);
        }
        let mut events = Events::with_capacity(capacity(rng));
        let pause = rng.micros(200);
        let (token, mode) = (self.token(), rng.pick(&self.modes.clone()));
        let number = self.some(rng);
        let deed = Deed::random(rng);
        let how = rng.below(5);
        let poller = &self.poller;
        let (took, old, changed, due) = thread::scope(|scope| {
            let source = number.map(|number| &self.sources[&number]);
            let old = source.and_then(|source| Some(source.registered.as_ref()?.token));
            let far = source.and_then(|source| self.peers[&source.pair].as_ref());
            // Returns the change, if any, and what is due; makes sure that the wait ends.
            let other = scope.spawn(move || {
                thread::sleep(pause);
                let interest = both();
                let (ends, changed, due) = match (how, source, far) {
                    (0 | 1, Some(source), _) => {
                        let ends = !Truth::of(&source.near).answers(interest).is_empty();
                        let descriptor = source.near.as_fd();
                        match source.registered {
                            Some(_) => poller.modify(descriptor, token, interest, mode),
                            // SAFETY: all code that closes the source deregisters it first.
                            None => unsafe { poller.register(descriptor, token, interest, mode) },
                        }
                        .expect("it can be changed");
                        (ends, true, Interest::NONE)
                    }
                    (2 | 3, Some(source), Some(far)) if deed != Deed::Close => {
                        let due = deed.does(far, 1_000);
                        let is_armed = |registered: &Registered| {
                            registered.mode != Mode::Edge && !registered.reported
                        };
                        let registered = source.registered.as_ref();
                        let armed = registered.filter(|registered| is_armed(registered));
                        let truth = Truth::of(&source.near);
                        let ends = armed.is_some_and(|armed| !armed.owes(truth).is_empty());
                        (ends, false, due)
                    }
                    _ => (false, false, Interest::NONE),
                };
                if !ends {
                    poller.notify().expect("it can be notified");
                }
                (changed.then_some(interest), due)
            });
            let start = Instant::now();
            let count = poller
                .wait(&mut events, Some(2 * PROMPT))
                .expect("it can wait");
            assert_eq!(count, events.len());
            let took = start.elapsed();
            let (changed, due) = other.join().expect("the other thread is done");
            (took, old, changed, due)
        });
        assert!(
            took < PROMPT,
            "a change, or a notification, was lost: {how} {deed:?}"
        );
        if let Some(number) = number {
            let source = self.sources.get_mut(&number).expect("it is one of them");
            if let Some(interest) = changed {
                source.registered = Some(Registered::new(token, interest, mode));
            }
            let pair = source.pair;
            self.mark_due(pair, due);
        }
        // Events that the wait took before the change have the old token.
        self.note(&events, old.filter(|_| changed.is_some()));
        // Something else may have ended the wait before the notification arrived.
        self.notified = Notified::Perhaps;
    }
}

impl Registered {
    fn new(token: Token, interest: Interest, mode: Mode) -> Registered {
        Registered {
            token,
            interest,
            mode,
            reported: false,
            // Registering makes all current readiness due.
            due: interest,
        }
    }
}

/// An action of another end.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Deed {
    Write,
    Read,
    ShutdownWrite,
    ShutdownBoth,
    Close,
}

impl Deed {
    fn random(rng: &mut Rng) -> Deed {
        rng.pick(&[
            Deed::Write,
            Deed::Write,
            Deed::Write,
            Deed::Read,
            Deed::Read,
            Deed::ShutdownWrite,
            Deed::ShutdownBoth,
            Deed::Close,
        ])
    }

    /// Performs the action, except for closing. Returns the readiness that is certainly new to our
    /// end.
    fn does(self, mut far: &UnixStream, size: usize) -> Interest {
        match self {
            Deed::Write => match far.write(&vec![2; size]) {
                Ok(_) => Interest::READABLE,
                Err(_) => Interest::NONE,
            },
            Deed::Read => {
                let _ = far.read(&mut vec![0; size]);
                Interest::NONE
            }
            Deed::ShutdownWrite => {
                let _ = far.shutdown(Shutdown::Write);
                Interest::READABLE
            }
            Deed::ShutdownBoth => {
                let _ = far.shutdown(Shutdown::Both);
                both()
            }
            Deed::Close => both(),
        }
    }
}

fn capacity(rng: &mut Rng) -> usize {
    rng.pick(&[1, 1, 2, 3, 8, 64])
}

//! Tests of the ring, against the kernel.

use super::ring::REFUSALS;
use super::table::MAX_PAUSES;
use super::*;
use crate::Backend;
use crate::poller::Poller;
use crate::poller::backends::AnySelector;
use crate::poller::event::{Event, Interest, Mode, Token};
use crate::poller::selector::Request;
use crate::sys::{CHILDREN, Process, in_child};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};
use std::thread;

use io_uring::types;

const LIMIT: Duration = Duration::from_secs(30);
const READABLE: Interest = Interest::READABLE;

fn refuse(errors: &[Errno]) {
    REFUSALS.with_borrow_mut(|refusals| refusals.extend(errors));
}

fn are_all_met() -> bool {
    REFUSALS.with_borrow(Vec::is_empty)
}

/// Returns `None` where no ring can be made: the tests are skipped.
fn poller() -> Option<Poller> {
    poller_of(64, 256)
}

fn poller_of(submissions: u32, completions: u32) -> Option<Poller> {
    let selector = match Uring::with_queues(submissions, completions) {
        Ok(uring) => AnySelector::IoUring(Box::new(uring)),
        Err(error) => {
            assert!(!Backend::IoUring.is_available(), "{error}");
            eprintln!("not run: {error}");
            return None;
        }
    };
    Some(Poller::with(Backend::IoUring, selector, Process::current()))
}

fn ring(poller: &Poller) -> &Uring {
    match &*poller.selector {
        AnySelector::IoUring(uring) => uring,
        _ => unreachable!("it was made of a ring"),
    }
}

/// Prevents other tests from forking until it is dropped.
fn no_children() -> RwLockWriteGuard<'static, ()> {
    CHILDREN.write().unwrap_or_else(PoisonError::into_inner)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    (ours, theirs)
}

/// The end of a ring interrupts its owner, as a signal does.
fn assert_sees_the_end(mut peer: impl Read) {
    let read = loop {
        match peer.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result.expect("the end, within the limit"),
        }
    };
    assert_eq!(read, 0, "the peer sees the end");
}

fn register(poller: &Poller, source: &impl AsFd, token: u64, interest: Interest, mode: Mode) {
    // SAFETY: each test deregisters what it closes before the poller is dropped.
    unsafe { poller.register(source.as_fd(), Token(token), interest, mode) }.unwrap();
}

fn edges(token: u64) -> Request {
    Request {
        token: Token(token),
        interest: READABLE,
        mode: Mode::Edge,
    }
}

fn poll_now(poller: &Poller) -> Vec<Event> {
    let mut events = Events::new();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.iter().copied().collect()
}

fn next(poller: &Poller) -> Vec<Event> {
    let mut events = Events::new();
    poller.wait(&mut events, Some(LIMIT)).unwrap();
    assert!(!events.is_empty(), "nothing is reported");
    events.iter().copied().collect()
}

fn crowd(poller: &Poller, count: u64, mode: Mode) -> Vec<(UnixStream, UnixStream)> {
    let pairs: Vec<_> = (0..count).map(|_| UnixStream::pair().unwrap()).collect();
    for (token, (ours, _)) in (0..).zip(&pairs) {
        register(poller, ours, token, READABLE, mode);
    }
    assert!(poll_now(poller).is_empty());
    for (_, theirs) in &pairs {
        (&*theirs).write_all(b"x").unwrap();
    }
    pairs
}

#[test]
fn close_after_deregister_is_immediate() {
    let _no_children = no_children();
    for mode in [Mode::Edge, Mode::OneShot] {
        let Some(poller) = poller() else { return };
        let (ours, theirs) = tcp_pair();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        register(&poller, &ours, 1, READABLE, mode);
        register(&poller, &listener, 2, READABLE, mode);
        assert!(poll_now(&poller).is_empty());
        poller.deregister(&ours).unwrap();
        poller.deregister(&listener).unwrap();
        drop((ours, listener));
        TcpListener::bind(address).expect("the port is free");
        assert_sees_the_end(&theirs);
    }
}

#[test]
fn close_while_hundreds_ready_is_immediate() {
    let _no_children = no_children();
    let Some(poller) = poller_of(256, 1024) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    register(&poller, &listener, 1_000, READABLE, Mode::Edge);
    // The removal is queued behind twenty times the work of one call.
    let pairs = crowd(&poller, 400, Mode::Edge);
    poller.deregister(&listener).unwrap();
    drop(listener);
    TcpListener::bind(address).expect("the port is free");
    let told: usize = std::iter::repeat_with(|| poll_now(&poller).len())
        .take_while(|count| *count > 0)
        .sum();
    assert_eq!(told, pairs.len(), "nothing of the others is lost");
}

#[test]
fn close_with_event_in_flight_is_immediate() {
    let _no_children = no_children();
    for modified in [false, true] {
        let Some(poller) = poller() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        register(&poller, &listener, 1, READABLE, Mode::Edge);
        assert!(poll_now(&poller).is_empty());
        let _client = TcpStream::connect(address).unwrap();
        if modified {
            let all = READABLE | Interest::WRITABLE;
            (poller.modify(&listener, Token(2), all, Mode::Edge)).unwrap();
            assert_eq!(next(&poller)[0].token(), Token(2));
        }
        poller.deregister(&listener).unwrap();
        drop(listener);
        let error = TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn one_wait_reports_as_many_as_there_is_room_for() {
    let Some(poller) = poller_of(256, 1024) else {
        return;
    };
    let _pairs = crowd(&poller, 512, Mode::Edge);
    let mut events = Events::with_capacity(64);
    for round in 0..8 {
        assert_eq!(poller.wait(&mut events, None).unwrap(), 64, "wait {round}");
    }
    assert!(poll_now(&poller).is_empty(), "told twice");
}

/// Returns the reports of one wait, of at most [`LIMIT`]; none if it is to be repeated.
fn wait_once(uring: &Uring, meanwhile: impl FnOnce() + Send) -> Vec<Token> {
    let mut events = Events::with_capacity(64);
    let (done, is_done) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            meanwhile();
            if is_done.recv_timeout(LIMIT).is_err() {
                uring.notify().unwrap();
            }
        });
        if let Err(error) = uring.wait(&mut events, WaitUntil::Forever) {
            assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        }
        done.send(()).unwrap();
    });
    events.iter().map(Event::token).collect()
}

/// A quick turn is told all that is ready and changed meanwhile.
#[test]
fn quick_turn_reports_ready_and_changes() {
    let Ok(uring) = Uring::with_queues(256, 1024) else {
        return;
    };
    let pairs: Vec<_> = (0..64).map(|_| UnixStream::pair().unwrap()).collect();
    for (token, (ours, _)) in (0..).zip(&pairs) {
        (uring.change(ours.as_fd(), Change::Register(edges(token)))).unwrap();
    }
    uring.wait(&mut Events::new(), WaitUntil::Now).unwrap();
    for (_, theirs) in &pairs {
        (&*theirs).write_all(b"x").unwrap();
    }
    assert_eq!(wait_once(&uring, || {}).len(), 64);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    let start = Instant::now();
    let mut told = Vec::new();
    let mut register = Some(|| {
        while !uring.table.lock().waiting && start.elapsed() < LIMIT {
            thread::yield_now();
        }
        (uring.change(ours.as_fd(), Change::Register(edges(64)))).unwrap();
    });
    // It may return without events, woken to take the submission.
    while told.is_empty() && start.elapsed() < LIMIT {
        told = match register.take() {
            Some(register) => wait_once(&uring, register),
            None => wait_once(&uring, || {}),
        };
    }
    assert_eq!(told, [Token(64)]);
    assert!(start.elapsed() < LIMIT, "the submission waited");
}

/// A completion queue that is too short loses nothing.
#[test]
fn completion_queue_overflow_loses_nothing() {
    for mode in [Mode::Edge, Mode::OneShot] {
        let Some(poller) = poller_of(8, 16) else {
            return;
        };
        let pairs = crowd(&poller, 64, mode);
        for round in 0..4 {
            let mut missing: std::collections::HashSet<u64> = (0..64).collect();
            // A source may be reported twice if it has not been read.
            while !missing.is_empty() {
                for event in next(&poller) {
                    missing.remove(&event.token().0);
                }
            }
            for (token, (ours, theirs)) in (0..).zip(&pairs) {
                assert_eq!((&*ours).read(&mut [0; 8]).unwrap(), 1, "round {round}");
                if mode == Mode::OneShot {
                    poller.modify(ours, Token(token), READABLE, mode).unwrap();
                }
                (&*theirs).write_all(b"x").unwrap();
            }
        }
    }
}

/// A poll armed by a thread that has ended is reported to the next one that waits.
#[test]
fn armed_by_ended_thread_reported_to_next() {
    for mode in [Mode::Edge, Mode::OneShot] {
        let Some(poller) = poller() else { return };
        let poller = Arc::new(poller);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        register(&poller, &ours, 1, READABLE, mode);
        for round in 0..3 {
            let other = poller.clone();
            thread::spawn(move || assert!(poll_now(&other).is_empty()))
                .join()
                .unwrap();
            theirs.write_all(&[round]).unwrap();
            let told = next(&poller);
            assert!(told.iter().all(|event| event.token() == Token(1)));
            assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 1);
            poller.modify(&ours, Token(1), READABLE, mode).unwrap();
        }
    }
}

/// An ordinary byte is not urgent and an urgent one is.
#[test]
fn urgent_byte_is_urgent_ordinary_is_not() {
    let Some(poller) = poller() else { return };
    let (ours, mut theirs) = tcp_pair();
    let (near, mut far) = UnixStream::pair().unwrap();
    let all = READABLE | Interest::PRIORITY;
    register(&poller, &ours, 1, all, Mode::Edge);
    register(&poller, &near, 2, all, Mode::Edge);
    let _ = poll_now(&poller);
    for _ in 0..10 {
        theirs.write_all(b"x").unwrap();
        far.write_all(b"x").unwrap();
        let told = next(&poller);
        assert!(told.iter().all(Event::is_readable), "{told:?}");
        assert!(!told.iter().any(Event::is_priority), "{told:?}");
    }
    socket2::SockRef::from(&theirs)
        .send_out_of_band(b"!")
        .unwrap();
    // One of the last two ordinary bytes may still have to be reported.
    let start = Instant::now();
    while !next(&poller).iter().any(Event::is_priority) {
        assert!(start.elapsed() < LIMIT, "the urgent byte is not reported");
    }
}

/// The end of reading is nothing to a one shot writer.
///
/// A half-closed peer would complete a one-shot poll for room repeatedly.
#[test]
fn read_end_ignored_by_one_shot_writer() {
    let Some(poller) = poller() else { return };
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[7; 4096]).is_ok() {}
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    register(&poller, &ours, 1, Interest::WRITABLE, Mode::OneShot);
    let start = Instant::now();
    let timeout = Duration::from_millis(20);
    let mut events = Events::new();
    assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
    assert!(start.elapsed() >= timeout);
    theirs.set_nonblocking(true).unwrap();
    while (&theirs).read(&mut [0; 4096]).is_ok() {}
    assert!(next(&poller)[0].is_writable());
    assert!(poll_now(&poller).is_empty(), "told twice");
}

/// A poll that completes for nothing is armed again once.
///
/// Otherwise each wait would loop as long as the peer is half-closed.
#[test]
fn spurious_completion_rearmed_once() {
    let Some(poller) = poller() else { return };
    let uring = ring(&poller);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[7; 4096]).is_ok() {}
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    register(&poller, &ours, 1, Interest::WRITABLE, Mode::OneShot);
    for _ in 0..10 {
        let timeout = Duration::from_millis(1);
        assert_eq!(poller.wait(&mut Events::new(), Some(timeout)).unwrap(), 0);
    }
    // The notifier, the one-shot poll, and the multishot poll.
    assert_eq!(uring.table.lock().generation, 3);
}

/// A poll that completes in vain between two waits is armed again before the next one sleeps.
#[test]
fn vain_completion_between_waits_rearmed() {
    let Some(poller) = poller() else { return };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (other, _others) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[7; 4096]).is_ok() {}
    register(&poller, &ours, 1, Interest::WRITABLE, Mode::OneShot);
    register(&poller, &other, 2, READABLE, Mode::OneShot);
    assert!(poll_now(&poller).is_empty());
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    // Enters the kernel, which completes the poll of the first one.
    poller.deregister(&other).unwrap();
    theirs.set_nonblocking(true).unwrap();
    while (&theirs).read(&mut [0; 4096]).is_ok() {}
    assert!(next(&poller)[0].is_writable());
}

/// A child of fork gets errors and its parent everything.
#[test]
fn fork_child_gets_errors_parent_events() {
    let Some(poller) = poller() else { return };
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    register(&poller, &ours, 1, READABLE, Mode::Edge);
    assert!(poll_now(&poller).is_empty());
    let mut poller = Some(poller);
    in_child(|| {
        let poller = poller.take().unwrap();
        let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
        let unsupported = Err(io::ErrorKind::Unsupported);
        let mut events = Events::new();
        let waits = poller.wait(&mut events, Some(Duration::ZERO)).map(drop);
        let is_refused = kind(waits) == unsupported
            && kind(poller.modify(&ours, Token(2), READABLE, Mode::Edge)) == unsupported
            && kind(poller.deregister(&ours)) == unsupported;
        drop(poller);
        is_refused
    });
    let poller = poller.unwrap();
    theirs.write_all(b"x").unwrap();
    let told: Vec<_> = next(&poller).iter().map(Event::token).collect();
    assert_eq!(told, [Token(1)]);
    poller.deregister(&ours).unwrap();
}

#[test]
fn the_ring_polls_and_does_nothing_else() {
    let Ok(mut ring) = new_ring(8, 16) else {
        return;
    };
    ring.submitter().register_enable_rings().unwrap();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut bytes = [0u8; 8];
    let number = types::Fd(ours.as_raw_fd());
    let submissions = [
        opcode::Nop::new().build(),
        opcode::Read::new(number, bytes.as_mut_ptr(), 8).build(),
        opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
    ];
    for submission in submissions {
        // SAFETY: the buffer outlives the ring.
        unsafe { ring.submission().push(&submission) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        let result = ring.completion().next().unwrap().result();
        assert_eq!(result, -libc::EACCES);
    }
    assert!(ring.submitter().register_files(&[0]).is_err());
}

/// A wait is neither early nor late by the thread's slack.
#[test]
fn wait_exact_despite_timer_slack() {
    let Some(poller) = poller() else { return };
    // The slack is 50 µs.
    let bound = Duration::from_micros(100 + 32 + 45);
    let mut events = Events::new();
    let (begin, mut fewest, mut count) = (Instant::now(), LIMIT, 0);
    // A busy machine may delay some hundred waits in a row.
    while count < 200 || (fewest >= bound && begin.elapsed() < Duration::from_secs(10)) {
        count += 1;
        let (start, timeout) = (Instant::now(), Duration::from_micros(100));
        assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
        let took = start.elapsed();
        assert!(took >= timeout, "early: {took:?}");
        fewest = fewest.min(took);
    }
    assert!(fewest < bound, "{fewest:?}, at best, of {count} waits");
}

/// Completions must be collected first.
#[test]
fn a_ring_that_is_busy_is_entered_again() {
    for error in [Errno::BUSY, Errno::AGAIN] {
        for mode in [Mode::Edge, Mode::OneShot] {
            let Some(poller) = poller_of(8, 16) else {
                return;
            };
            // More submissions than the queue holds, and more completions.
            let pairs = crowd(&poller, 40, mode);
            let mut missing: std::collections::HashSet<u64> = (0..40).collect();
            while !missing.is_empty() {
                refuse(&[error, error]);
                for event in next(&poller) {
                    missing.remove(&event.token().0);
                }
            }
            REFUSALS.with_borrow_mut(Vec::clear);
            for (ours, _) in &pairs {
                assert_eq!((&*ours).read(&mut [0; 8]).unwrap(), 1);
            }
            let _ = poll_now(&poller);
            // With and without a deadline; and the quick wait.
            let uring = ring(&poller);
            let (ours, theirs) = &pairs[7];
            for timeout in [None, Some(LIMIT)] {
                poller.modify(ours, Token(7), READABLE, mode).unwrap();
                refuse(&[error, error]);
                (&*theirs).write_all(b"x").unwrap();
                let mut events = Events::new();
                assert_eq!(poller.wait(&mut events, timeout).unwrap(), 1);
                assert!(are_all_met(), "it was not entered again");
                assert_eq!((&*ours).read(&mut [0; 8]).unwrap(), 1);
            }
            poller.modify(ours, Token(7), READABLE, mode).unwrap();
            let _ = poll_now(&poller);
            refuse(&[error]);
            let told = wait_once(uring, || {});
            assert!(told.is_empty() && are_all_met(), "{told:?}");
            (&*theirs).write_all(b"x").unwrap();
            assert_eq!(wait_once(uring, || {}), [Token(7)]);
            refuse(&[error]);
            poller.deregister(ours).unwrap();
        }
    }
}

/// Submissions that find no room in the queue are handed over later.
///
/// The queue is full of submissions that the kernel has refused, so there is no room for the rest.
#[test]
fn submissions_over_queue_made_later() {
    for timeout in [Some(Duration::ZERO), Some(LIMIT), None] {
        let Some(poller) = poller_of(8, 16) else {
            return;
        };
        let pairs: Vec<_> = (0..40).map(|_| UnixStream::pair().unwrap()).collect();
        let mut missing: std::collections::HashSet<u64> = (0..40).collect();
        for (token, (ours, theirs)) in (0..).zip(&pairs) {
            register(&poller, ours, token, READABLE, Mode::Edge);
            (&*theirs).write_all(b"x").unwrap();
        }
        let start = Instant::now();
        while !missing.is_empty() {
            refuse(&[Errno::AGAIN; 3]);
            let mut events = Events::new();
            poller.wait(&mut events, timeout).unwrap();
            for event in &events {
                missing.remove(&event.token().0);
            }
            assert!(start.elapsed() < LIMIT, "{missing:?} are not reported");
        }
        REFUSALS.with_borrow_mut(Vec::clear);
    }
}

/// A wait that is always refused pauses and fails at last.
#[test]
fn wait_always_refused_pauses_then_fails() {
    let Ok(uring) = Uring::with_queues(8, 16) else {
        return;
    };
    let mut events = Events::new();
    uring.wait(&mut events, WaitUntil::Now).unwrap();
    uring.notify().unwrap();
    let refused = |pauses: u32, wait: &mut dyn FnMut() -> io::Result<()>| {
        uring.table.lock().refusals.pauses = pauses;
        refuse(&[Errno::AGAIN; 1000]);
        let result = wait();
        let left = REFUSALS.with_borrow_mut(std::mem::take).len();
        assert!(left >= 900, "it was entered {} times", 1000 - left);
        result.map_err(|error| error.kind())
    };
    // A wait returns after each refusal, and is repeated until one has paused, or failed.
    let mut sleep = || {
        let before = uring.table.lock().refusals.pauses;
        loop {
            let result = uring.wait(&mut events, WaitUntil::Forever).map(drop);
            let has_paused = uring.table.lock().refusals.pauses != before;
            match &result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && !has_paused => {}
                _ => return result,
            }
        }
    };
    let interrupted = Err(io::ErrorKind::Interrupted);
    assert_eq!(refused(0, &mut sleep), interrupted);
    assert_eq!(refused(1, &mut sleep), interrupted);
    assert_eq!(uring.table.lock().refusals.pauses, 2);
    assert_eq!(
        refused(MAX_PAUSES, &mut sleep),
        Err(io::ErrorKind::WouldBlock)
    );
    uring.wait(&mut events, WaitUntil::Forever).unwrap();
    assert_eq!(uring.table.lock().refusals.count, 0);
}

/// A removal that is refused is handed over by the next wait.
#[test]
fn refused_removal_resubmitted_by_next_wait() {
    let Some(poller) = poller_of(8, 16) else {
        return;
    };
    let pairs = crowd(&poller, 100, Mode::Edge);
    let (ours, theirs) = UnixStream::pair().unwrap();
    register(&poller, &ours, 100, READABLE, Mode::Edge);
    while !poll_now(&poller).is_empty() {}
    refuse(&[Errno::AGAIN; 200]);
    poller.deregister(&ours).unwrap();
    let left = REFUSALS.with_borrow_mut(std::mem::take).len();
    assert!(left >= 150, "it was entered {} times", 200 - left);
    // The number is free, and most likely reused by the next descriptor, which must keep its poll.
    drop(ours);
    let (next_ours, next_theirs) = UnixStream::pair().unwrap();
    register(&poller, &next_ours, 101, READABLE, Mode::Edge);
    assert!(poll_now(&poller).is_empty());
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    assert_sees_the_end(&theirs);
    (&next_theirs).write_all(b"x").unwrap();
    let told: Vec<_> = next(&poller).iter().map(Event::token).collect();
    assert_eq!(told, [Token(101)]);
    drop(pairs);
}

/// A completion that the kernel has dropped is made up for.
///
/// The kernel had no memory for a completion, so a poll is lost; `BADR` is the only report of it.
#[test]
fn dropped_completion_is_made_up_for() {
    for mode in [Mode::Edge, Mode::OneShot] {
        let Some(poller) = poller() else { return };
        let uring = ring(&poller);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        register(&poller, &ours, 1, READABLE, mode);
        for timeout in [Some(LIMIT), None] {
            poller.modify(&ours, Token(1), READABLE, mode).unwrap();
            assert!(poll_now(&poller).is_empty());
            {
                let mut table = uring.table.lock();
                table.remove_all().unwrap();
                table.ring().completion().for_each(drop);
            }
            theirs.write_all(b"x").unwrap();
            refuse(&[Errno::BADR]);
            let mut events = Events::new();
            assert_eq!(poller.wait(&mut events, timeout).unwrap(), 1, "{mode:?}");
            assert!(are_all_met());
            assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 1);
        }
    }
}

#[test]
fn abandoned_at_rest_rearmed_by_next_wait() {
    let Ok(uring) = Uring::new() else { return };
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (other, others) = UnixStream::pair().unwrap();
    for (socket, token) in [(&ours, 1), (&other, 2)] {
        (uring.change(socket.as_fd(), Change::Register(edges(token)))).unwrap();
    }
    let mut events = Events::new();
    uring.wait(&mut events, WaitUntil::Now).unwrap();
    uring.on_idle();
    thread::scope(|scope| {
        scope.spawn(|| uring.change(other.as_fd(), Change::Deregister).unwrap());
    });
    drop(other);
    others.set_read_timeout(Some(LIMIT)).unwrap();
    assert_sees_the_end(&others);
    theirs.write_all(b"x").unwrap();
    while uring.wait(&mut events, WaitUntil::Forever).is_err() {}
    assert_eq!(
        events.iter().map(Event::token).collect::<Vec<_>>(),
        [Token(1)]
    );
}

/// A submission is handed over although more is ready than there is room for.
#[test]
fn submission_made_despite_full_completions() {
    let Some(poller) = poller() else { return };
    let pairs = crowd(&poller, 50, Mode::Edge);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    let mut events = Events::with_capacity(4);
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    register(&poller, &ours, 1_000, READABLE, Mode::Edge);
    let is_told = (0..100).any(|round| {
        let (_, busy) = &pairs[round % pairs.len()];
        (0..4).for_each(|_| (&*busy).write_all(b"x").unwrap());
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().any(|event| event.token() == Token(1_000))
    });
    assert!(is_told, "the submission waits");
    poller.deregister(&ours).unwrap();
}

/// A descriptor closed by another thread is released by the next quiet wait, even with hundreds
/// ready.
#[test]
fn close_elsewhere_at_rest_despite_hundreds_ready() {
    let _no_children = no_children();
    let Some(poller) = poller_of(256, 1024) else {
        return;
    };
    let (ours, theirs) = tcp_pair();
    register(&poller, &ours, 1_000, READABLE, Mode::Edge);
    let pairs = crowd(&poller, 400, Mode::Edge);
    thread::scope(|scope| {
        scope.spawn(|| poller.deregister(&ours).unwrap());
    });
    ring(&poller).on_idle();
    drop(ours);
    assert_sees_the_end(&theirs);
    let told: usize = std::iter::repeat_with(|| poll_now(&poller).len())
        .take_while(|count| *count > 0)
        .sum();
    assert_eq!(told, pairs.len(), "nothing of the others is lost");
}

/// A descriptor closed while the kernel refuses calls is released by the next quiet wait.
#[test]
fn close_while_calls_refused_at_rest() {
    let _no_children = no_children();
    let Some(poller) = poller() else { return };
    let (ours, theirs) = tcp_pair();
    register(&poller, &ours, 1, READABLE, Mode::Edge);
    assert!(poll_now(&poller).is_empty());
    refuse(&[Errno::AGAIN; 16]);
    poller.deregister(&ours).unwrap();
    ring(&poller).on_idle();
    drop(ours);
    assert_sees_the_end(&theirs);
    REFUSALS.with_borrow_mut(Vec::clear);
}

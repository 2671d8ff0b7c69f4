//! Rules 14 to 17 and 76: registering, changing and deregistering.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self};
use std::time::{Duration, Instant};

use polder::poller::{Events, Token};
use socket2::Socket;

use super::{
    NONE, READABLE, Seen, Source, WRITABLE, borrow, drain, fails, in_every_mode, is_busy,
    local_pair, on_each_pair, quiet, reports_at_most, tcp_pair, tokens, wait, waiter,
};
use crate::support::{LIMIT, eventually, sized};

/// Rule 14: the same descriptor registered twice is an error.
#[test]
fn rule_14_registered_twice_is_error() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
        let first = Source::new(poller, &ours, 1, READABLE, mode);
        for (token, interest) in [(1, READABLE), (2, READABLE | WRITABLE)] {
            // SAFETY: this does not register it, and `first` deregisters it.
            let again = unsafe { poller.register(borrow(&ours), Token(token), interest, mode) };
            fails(again, io::ErrorKind::AlreadyExists, "registered twice");
        }
        // The first registration is unchanged.
        quiet(poller, "what failed changed nothing");
        theirs.write_all(b"x").unwrap();
        assert_eq!(tokens(&wait(poller, None)), [1]);
        // After deregistration the descriptor can be registered again.
        first.deregister().unwrap();
        let _second = Source::new(poller, &ours, 3, READABLE, mode);
        assert_eq!(tokens(&wait(poller, None)), [3]);
    });
}

#[test]
fn rule_14_a_duplicate_is_another_descriptor() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
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
        let (ours, _theirs) = local_pair();
        let unknown = |socket: &Socket, what: &str| {
            let socket = borrow(socket);
            let modified = poller.modify(socket, Token(1), READABLE, mode);
            fails(modified, io::ErrorKind::NotFound, what);
            let deregistered = poller.deregister(socket);
            fails(deregistered, io::ErrorKind::NotFound, what);
        };
        unknown(&ours, "never registered");
        // Far higher than any number that the poller has seen.
        #[cfg(unix)]
        let far = Socket::from(rustix::io::fcntl_dupfd_cloexec(&ours, 900).unwrap());
        #[cfg(windows)]
        let far = ours.try_clone().unwrap();
        unknown(&far, "never registered, and a high number");
        let source = Source::new(poller, &ours, 1, READABLE | WRITABLE, mode);
        unknown(&far, "only its duplicate is registered");
        source.deregister().unwrap();
        unknown(&ours, "deregistered already");
        quiet(poller, "a failed modify arms nothing");
    });
}

/// Rule 15: deregistering before closing leaves nothing behind.
#[test]
fn rule_15_deregister_then_close_leaves_nothing() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let dup = ours.try_clone().unwrap();
        let source = Source::new(poller, ours, 1, READABLE | WRITABLE, mode);
        source.next();
        source.rearm(READABLE | WRITABLE);
        source.deregister().unwrap();
        drop(source);
        // The open file stays, readable and writable.
        theirs.write_all(b"x").unwrap();
        quiet(poller, &format!("{kind}: deregistered, a duplicate lives"));
        drop(theirs);
        quiet(poller, &format!("{kind}: deregistered, the peer hung up"));
        // The duplicate can be registered, and so can (most likely) the number's next owner.
        let dup = Source::new(poller, dup, 2, READABLE, mode);
        assert!(dup.next().is_readable(), "{kind}");
        let (heir, mut peer) = local_pair();
        drop(dup);
        let heir = Source::new(poller, heir, 3, READABLE, mode);
        peer.write_all(b"x").unwrap();
        assert_eq!(tokens(&wait(poller, None)), [3], "{kind}");
        drop(heir);
    });
}

#[test]
fn rule_16_a_second_waiter_is_an_error() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let mut earlier = Events::new();
        theirs.write_all(b"x").unwrap();
        assert_ne!(poller.wait(&mut earlier, None).unwrap(), 0);
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1);
        ours.rearm(READABLE);
        let waiter = waiter(poller, None);
        for timeout in [Some(Duration::ZERO), Some(Duration::from_secs(3600)), None] {
            let second = poller.wait(&mut earlier, timeout);
            fails(second, io::ErrorKind::ResourceBusy, "a second waiter");
            assert!(earlier.is_empty(), "the events of an earlier wait");
        }
        // The refused wait took no event from the first wait.
        theirs.write_all(b"x").unwrap();
        assert_eq!(tokens(&waiter.join().unwrap()), [1]);
        // And the poller can be used again.
        ours.rearm(READABLE);
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1);
        reports_at_most(poller, 1, "read empty");
    });
}

/// Rule 16: no wait that starts later reports what was deregistered.
#[test]
fn rule_16_deregistered_not_reported_later() {
    in_every_mode(|poller, mode| {
        let (seen, thread) = Seen::watch(poller);
        let mut gone = Vec::new();
        let (ours, _theirs) = local_pair();
        for token in 1..=sized(poller.backend(), 2_000) as u64 {
            // Ready immediately, and, in level mode, all the time; the number stays the same.
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
        let (ours, _theirs) = local_pair();
        let source = Source::new(poller, &ours, 1, WRITABLE, mode);
        let events = wait(poller, None);
        source.deregister().unwrap();
        let _heir = Source::new(poller, &ours, 2, WRITABLE, mode);
        assert_eq!(tokens(&events), [1]);
        assert_eq!(tokens(&wait(poller, None)), [2]);
    });
}

/// Rule 17: registering takes effect in the wait under way.
#[test]
fn rule_17_register_during_wait() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let waiter = waiter(poller, None);
        theirs.write_all(b"x").unwrap();
        let _ours = Source::new(poller, ours, 1, READABLE, mode);
        let events = waiter.join().unwrap();
        assert_eq!(tokens(&events), [1], "{kind}");
        assert!(events[0].is_readable(), "{kind}");
    });
}

/// Rule 17: modifying takes effect in the wait under way.
#[test]
fn rule_17_modify_during_wait() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
        let mut ours = Source::new(poller, ours, 1, NONE, mode);
        theirs.write_all(b"x").unwrap();
        let first = waiter(poller, None);
        ours.token = 2;
        ours.set(READABLE);
        assert_eq!(tokens(&first.join().unwrap()), [2], "armed");

        drain(&ours.socket, 1);
        ours.set(READABLE);
        reports_at_most(poller, 1, "read empty");
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

/// Rule 17: deregistering takes effect in the wait under way.
#[test]
fn rule_17_deregister_during_wait() {
    on_each_pair(|poller, mode, (kind, ours, mut theirs)| {
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let (other, mut others) = local_pair();
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
    });
}

/// Rule 17: changes that report nothing neither end a wait nor prolong it.
#[test]
fn rule_17_silent_changes_keep_wait() {
    in_every_mode(|poller, mode| {
        let over = Arc::new(AtomicBool::new(false));
        let changers: Vec<_> = (0..2)
            .map(|_| {
                let (poller, over) = (poller.clone(), over.clone());
                thread::spawn(move || {
                    let (ours, mut theirs) = local_pair();
                    theirs.write_all(b"x").unwrap();
                    let (silent, _silent) = local_pair();
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
        reports_at_most(poller, 0, "nothing is left of it");
        quiet(poller, "nothing is left of it");
    });
}

/// Rule 76: A descriptor deregistered and closed during another thread's wait is closed for its
/// peer.
#[test]
fn rule_76_deregister_and_close_during_wait() {
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
        let read = loop {
            match (&theirs).read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result.expect("the end, within the limit"),
            }
        };
        assert_eq!(read, 0, "the peer sees the end");
        eventually("the port is free", || TcpListener::bind(address).is_ok());
        assert!(is_busy(poller), "the wait goes on");
        poller.notify().unwrap();
        assert!(waiter.join().unwrap().is_empty());
    });
}

//! The contract beyond the numbered rules: modes, tokens, batches, several pollers, and random
//! operations.

use std::collections::HashSet;
use std::io::{self, Read, Write};
#[cfg(unix)]
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self};
use std::time::Duration;

use polder::Backend;
use polder::poller::{Event, Events, Interest, Mode, Token};
#[cfg(unix)]
use socket2::Socket;

use super::{
    NONE, READABLE, Random, Seen, Source, WRITABLE, borrow, drain, fails, in_every_mode,
    local_pair, modes, open, poll_now, quiet, tokens, wait,
};
use crate::support::{on_every_backend, sized};

#[test]
fn a_mode_that_is_not_there_is_unsupported() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let (there, lacking) = modes(&poller);
        let (ours, mut theirs) = local_pair();
        theirs.write_all(b"x").unwrap();
        for mode in lacking {
            // SAFETY: this does not register it.
            let result = unsafe { poller.register(borrow(&ours), Token(1), READABLE, mode) };
            let error = fails(
                result,
                io::ErrorKind::Unsupported,
                "a mode that is not there",
            );
            assert!(error.to_string().contains(backend.name()), "{error}");
            let _ours = Source::new(&poller, &ours, 2, READABLE, there[0]);
            let result = poller.modify(borrow(&ours), Token(3), READABLE, mode);
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

/// A reserved token is invalid and all others are the callers.
#[test]
fn reserved_token_invalid_others_free() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
        theirs.write_all(b"x").unwrap();
        for token in [Token::RESERVED, Token(u64::MAX - 1), Token(u64::MAX)] {
            // SAFETY: this does not register it.
            let result = unsafe { poller.register(borrow(&ours), token, READABLE, mode) };
            fails(result, io::ErrorKind::InvalidInput, "a reserved token");
        }
        let highest = Token::RESERVED.0 - 1;
        for token in [0, 1, u32::MAX as u64, 1 << 63, highest] {
            let _ours = Source::new(poller, &ours, token, READABLE, mode);
            assert_eq!(tokens(&wait(poller, None)), [token]);
            let result = poller.modify(borrow(&ours), Token::RESERVED, READABLE, mode);
            fails(result, io::ErrorKind::InvalidInput, "a reserved token");
        }
        // Two sources may share one token.
        let (other, mut others) = local_pair();
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
        let (ours, _theirs) = local_pair();
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

/// A wait reports no more than there is room for and everybody has a turn.
#[test]
fn wait_reports_within_room_all_get_turn() {
    in_every_mode(|poller, mode| {
        for capacity in [0, 1, 2, 3, 6] {
            // No event is left from an earlier capacity.
            quiet(poller, "nothing is there yet");
            let sources: Vec<_> = (0..7)
                .map(|token| {
                    let (ours, theirs) = local_pair();
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
                // In edge and one-shot mode, an event that finds no room must come in a later wait.
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
            // A notification needs no room.
            for (source, _) in &sources {
                source.set(WRITABLE);
            }
            poller.notify().unwrap();
            poller.wait(&mut events, None).unwrap();
            drop(sources);
            let _ = poll_now(poller);
        }
    });
}

#[test]
fn a_descriptor_can_be_in_two_pollers() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
        let other = open(poller.backend());
        let _first = Source::new(poller, &ours, 1, READABLE, mode);
        let second = Source::new(&other, &ours, 2, READABLE, mode);
        theirs.write_all(b"x").unwrap();
        assert_eq!(tokens(&wait(poller, None)), [1]);
        assert_eq!(tokens(&wait(&other, None)), [2]);
        second.deregister().unwrap();
        drop(second);
        drop(other);
        let _ = poll_now(poller);
    });
}

/// A poller's descriptor is readable while a wait would return.
#[test]
fn descriptor_readable_when_wait_would_return() {
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
            // SAFETY: it is deregistered right after the wait.
            unsafe { outer.register(inner, Token(1), READABLE, Mode::OneShot) }.unwrap();
            let events = poll_now(&outer);
            outer.deregister(inner).unwrap();
            events.iter().any(Event::is_readable)
        };
        // A foreign loop may see a few spurious readable reports, but not an endless series.
        let is_quiet = |when: &str| {
            let mut rounds = 0;
            while is_readable() {
                assert!(poll_now(poller).is_empty(), "{when}: something is ready");
                rounds += 1;
                assert!(rounds < 4, "{when}: readable again and again");
            }
        };
        is_quiet("nothing is there");
        for _ in 0..3 {
            poller.notify().unwrap();
            assert!(is_readable(), "notified");
            assert!(is_readable(), "looking takes nothing away");
            assert!(wait(poller, None).is_empty());
            is_quiet("the notification was taken");
        }
        let (ours, mut theirs) = local_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        is_quiet("a quiet source");
        theirs.write_all(b"x").unwrap();
        assert!(is_readable(), "a source is ready");
        ours.next();
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1);
        let _ = poll_now(poller);
        is_quiet("all was told");
    });
}

/// One thread, many sources, random operations: the expected reports are known at each step.
///
/// Not on Windows: there a change cancels the kernel's pending operation, and a wait with a zero
/// timeout ends before the operation is submitted again, so that only the next wait reports.
#[cfg(unix)]
#[test]
fn ready_reported_gone_is_not() {
    struct Slot {
        ours: Socket,
        theirs: Option<Socket>,
        unread: usize,
        registered: Option<(u64, Interest)>,
        /// Whether it has not been reported since it was registered, armed, or written to.
        fresh: bool,
    }

    fn fresh_slot() -> Slot {
        let (ours, theirs) = local_pair();
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
                    // SAFETY: a slot is deregistered before it is replaced, and the poller is
                    // dropped before the remaining slots.
                    unsafe {
                        poller.register(borrow(&slot.ours), Token(last_token), interest, mode)
                    }
                    .unwrap();
                    (slot.registered, slot.fresh) = (Some((last_token, interest)), true);
                }
                (0..=2, Some(_)) => {
                    last_token += 1;
                    poller
                        .modify(borrow(&slot.ours), Token(last_token), interest, mode)
                        .unwrap();
                    (slot.registered, slot.fresh) = (Some((last_token, interest)), true);
                }
                (3, Some(_)) => {
                    poller.deregister(borrow(&slot.ours)).unwrap();
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
                    // Closes the peer, or, once closed, replaces the pair, most likely with the
                    // same descriptor numbers.
                    match slot.theirs.take() {
                        Some(theirs) => {
                            // Reported immediately, even while a child that another test is
                            // starting still has a duplicate.
                            theirs.shutdown(Shutdown::Both).unwrap();
                            drop(theirs);
                            slot.fresh |= mode == Mode::Edge;
                        }
                        None => {
                            if registered.is_some() {
                                poller.deregister(borrow(&slot.ours)).unwrap();
                            }
                            *slot = fresh_slot();
                        }
                    }
                }
            }
            let events = poll_now(poller);
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
                    "step {step}: token {token} is ready for {interest:?} (unread: {}, ended: \
                     {ended}), and reported are {events:?}",
                    slot.unread
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

/// Changes by many threads lose no event and leave no stale one.
///
/// Several threads change their own sources at random, while one thread waits.
#[test]
fn threaded_changes_lose_no_event() {
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
                    let mut pairs: Vec<_> = (0..3).map(|_| local_pair()).collect();
                    for _ in 0..sized(backend, 1_000).max(300) {
                        let pair = &mut pairs[random.below(3) as usize];
                        if random.below(4) == 0 {
                            // Other sources get these descriptor numbers.
                            *pair = local_pair();
                        }
                        let (ours, theirs) = (&pair.0, &pair.1);
                        let mode = there[random.below(there.len() as u64) as usize];
                        let first = [NONE, READABLE, WRITABLE][random.below(3) as usize];
                        let mut source = Source::new(&poller, ours, token(), first, mode);
                        for _ in 0..random.below(3) {
                            // The byte arrives before the wait, or after.
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
                            // It is deregistered while it is ready.
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
        let _ = poll_now(&poller); // The notification that ended it may be left.
        quiet(&poller, "nothing is registered any more");
    });
}

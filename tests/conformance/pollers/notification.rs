//! Rules 18 and 72: notifications.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self};
use std::time::{Duration, Instant};

use polder::poller::{Events, Poller};

#[cfg(unix)]
use super::unix::Storm;
use super::{
    NONE, READABLE, Source, in_every_mode, local_pair, open, poll_now, quiet, wait, waiter,
};
use crate::support::{LIMIT, on_every_backend, sized};

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

/// Rule 18: a notification wakes the wait under way and no other.
#[test]
fn rule_18_notification_wakes_current_wait_only() {
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

/// Rule 18: a million notifications cost one wake up.
#[test]
fn rule_18_million_notifications_one_wake_up() {
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

/// Rule 18: a notification comes with events and takes none away.
#[test]
fn rule_18_notification_with_events_takes_none() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        theirs.write_all(b"x").unwrap();
        poller.notify().unwrap();
        ours.next();
        assert_eq!((&ours.socket).read(&mut [0; 8]).unwrap(), 1);
        // The notification may be reported apart from the event.
        let _ = poll_now(poller);
        quiet(poller, "both were told");
    });
}

/// Several threads notify, each again as soon as a wait has ended after its last call. So some
/// calls come between the end of a wait and the beginning of the next.
fn notifications_arrive(poller: &Arc<Poller>, rounds: u64, storm: bool) {
    /// The number of a thread's notifications, and of those after which a wait has ended.
    #[derive(Default)]
    struct Tally {
        asked: AtomicU64,
        seen: AtomicU64,
    }

    let tallies: Arc<[Tally; 3]> = Arc::default();
    let waiter = thread::spawn({
        let (poller, tallies) = (poller.clone(), tallies.clone());
        move || {
            #[cfg(unix)]
            let _storm = storm.then(Storm::here);
            #[cfg(not(unix))]
            assert!(!storm, "there are no signals here");
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
                    // Now and then the waiter has time to fall asleep.
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

/// Rule 18: no notification is lost among interrupts.
#[cfg(unix)]
#[test]
fn rule_18_notification_survives_interrupts() {
    on_every_backend(|backend| {
        notifications_arrive(&open(backend), 3_000, true);
    });
}

#[test]
fn rule_18_no_notification_is_lost_among_changes() {
    in_every_mode(|poller, mode| {
        // A change may wake the waiting thread by the same means, and must not consume a
        // notification.
        let over = Arc::new(AtomicBool::new(false));
        let changer = thread::spawn({
            let (poller, over) = (poller.clone(), over.clone());
            move || {
                let (ours, _theirs) = local_pair();
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
        let _ = poll_now(poller);
        quiet(poller, "all is told");
    });
}

/// Rule 72: a notification that finds no room among the events ends no later wait.
#[test]
fn rule_72_notification_without_room_ends_no_later_wait() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
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
        // Only the notification can end this wait.
        assert!(wait(poller, None).is_empty());
    });
}

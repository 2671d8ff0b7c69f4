//! Rule 19: timeouts.

use std::io::Write;
use std::thread::{self};
use std::time::{Duration, Instant};

use super::{
    QUIET, READABLE, Source, drain, in_every_mode, is_busy, local_pair, modes, open, poll_now,
    reports_at_most, tokens, wait, waiter,
};
use crate::support::{eventually, on_every_backend};

#[test]
fn rule_19_a_zero_timeout_reports_what_is_ready() {
    in_every_mode(|poller, mode| {
        assert!(poll_now(poller).is_empty());
        let (ours, mut theirs) = local_pair();
        theirs.write_all(b"x").unwrap();
        let mut ours = Source::new(poller, ours, 1, READABLE, mode);
        assert_eq!(tokens(&poll_now(poller)), [1], "just registered");
        ours.token = 2;
        ours.set(READABLE);
        assert_eq!(tokens(&poll_now(poller)), [2], "just modified");
        ours.rearm(READABLE);
        theirs.write_all(b"y").unwrap();
        assert_eq!(tokens(&poll_now(poller)), [2], "just arrived");
        drain(&ours.socket, 2);
        ours.rearm(READABLE);
        reports_at_most(poller, 1, "read empty");
        ours.deregister().unwrap();
        assert!(poll_now(poller).is_empty());
    });
}

#[test]
fn rule_19_no_timeout_is_early() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let (ours, _theirs) = local_pair();
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

/// Rule 19: short timeouts are late by less than a millisecond.
#[test]
fn rule_19_short_timeouts_under_a_ms_late() {
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
            // A busy machine is late for other reasons, but not forever; a backend that rounds up
            // to milliseconds would be late by 700 µs to 980 µs each time.
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
        // The maxima of an int and an unsigned int of milliseconds, and values that would wrap.
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

//! Rule 43: a million timers.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use polder::Timer;
use polder::future::yield_now;

use super::{FAR, Random, drive_until};
use crate::support::{eventually, on_every_backend, runtime, sized};

/// The expected deadline of a timer, and the count of its wakes.
struct Entry {
    deadline: Mutex<Instant>,
    wakes: AtomicUsize,
    log: Arc<Mutex<Vec<u32>>>,
    name: u32,
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        assert!(
            Instant::now() >= *self.deadline.lock().unwrap(),
            "timer {} woke early",
            self.name
        );
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.log.lock().unwrap().push(self.name);
    }
}

/// A million timers set and cancelled in random order fire right and leave nothing.
#[test]
fn million_timers_fire_right_leave_nothing() {
    on_every_backend(|backend| {
        let count = sized(backend, CROWD);
        let runtime = runtime(backend);
        let mut random = Random(43);
        let log = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();

        // All of them pending at the same time, none of them soon.
        let mut crowd: Vec<_> = (0..count)
            .map(|name| {
                let deadline = start + FAR + Duration::from_micros(random.below(FAR.as_secs()));
                let entry = Arc::new(Entry {
                    deadline: Mutex::new(deadline),
                    wakes: AtomicUsize::new(0),
                    log: log.clone(),
                    name: name as u32,
                });
                (Some(Timer::at(deadline)), entry)
            })
            .collect();
        let mut order: Vec<_> = (0..count).collect();
        random.shuffle(&mut order);
        let poll = |timer: &mut Option<Timer>, entry: &Arc<Entry>| {
            let waker = Waker::from(entry.clone());
            let timer = timer.as_mut().expect("it is not cancelled");
            Pin::new(timer).poll(&mut Context::from_waker(&waker))
        };
        runtime.block_on(async {
            for name in &order {
                let (timer, entry) = &mut crowd[*name];
                assert!(poll(timer, entry).is_pending());
            }
        });

        // In another order: a third is cancelled, a third set to soon, a third to later.
        random.shuffle(&mut order);
        let soon = Instant::now();
        for name in &order {
            let (timer, entry) = &mut crowd[*name];
            match name % 3 {
                0 => drop(timer.take()),
                1 => {
                    let deadline = soon + Duration::from_micros(random.below(300_000));
                    *entry.deadline.lock().unwrap() = deadline;
                    timer.as_mut().expect("it is there").set_at(deadline);
                }
                _ => {
                    let later = start + FAR * 3;
                    *entry.deadline.lock().unwrap() = later;
                    timer.as_mut().expect("it is there").set_at(later);
                }
            }
        }
        let sorted_from = log.lock().unwrap().len();
        let expected = (0..count).filter(|name| name % 3 == 1).count();
        drive_until(&runtime, "those that are due have fired", || {
            log.lock().unwrap().len() >= expected
        });
        {
            let log = log.lock().unwrap();
            assert_eq!(log.len(), expected, "one fired twice, or should not have");
            let deadlines = log[sorted_from..]
                .iter()
                .map(|name| *crowd[*name as usize].1.deadline.lock().unwrap());
            assert!(deadlines.is_sorted(), "they fired out of order");
        }

        // The last third is cancelled, interleaved with polls of the fired timers.
        runtime.block_on(async {
            for (i, name) in order.iter().enumerate() {
                let (timer, entry) = &mut crowd[*name];
                let wakes = entry.wakes.load(Ordering::Relaxed);
                assert_eq!(wakes, usize::from(name % 3 == 1), "timer {name}");
                if name % 3 == 1 {
                    let due = *entry.deadline.lock().unwrap();
                    assert_eq!(poll(timer, entry), Poll::Ready(due));
                }
                drop(timer.take());
                if i % 100 == 0 {
                    yield_now().await; // The runtime limits what one poll may take.
                }
            }
        });
        for (_, entry) in &crowd {
            // (A thread that has called it drops it afterwards.)
            eventually("no waker is left", || Arc::strong_count(entry) == 1);
        }
        assert_eq!(runtime.next_timeout(), None, "a deadline is left");
        assert_eq!(log.lock().unwrap().len(), expected);
    });
}

/// Without optimisation, a million would take too long for a suite that runs often.
const CROWD: usize = if cfg!(debug_assertions) {
    250_000
} else {
    1_000_000
};

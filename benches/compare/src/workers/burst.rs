//! A burst of tasks that always have something to read: how long after its spawn the last of them
//! is polled, and how equal their shares are.
//!
//! (The thread that spawns them competes with the workers for two cores, so the time between the
//! first and the last spawn says little about the runtime.)
//!
//! Each has one message, at which it peeks repeatedly. So it is always ready, without a thread that
//! writes and takes a core from the workers. What ends its turns is the runtime's own limit.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_channel::unbounded;

use super::median;
use crate::echo::more_descriptors;
use crate::group::{Metric, Order, Outcome, values};
use crate::program::{MESSAGE, Pool, tcp_pair};

pub const METRICS: &[Metric] = &[
    Metric {
        key: "first",
        title: "longest time from spawn to first poll, ms",
        ratio: false,
    },
    Metric {
        key: "spread",
        title: "deviation of shares from mean",
        ratio: false,
    },
];

/// The duration of a burst.
const BURST: Duration = Duration::from_millis(250);

pub fn measure<P: Pool>(order: &Order, workers: usize) -> Outcome {
    more_descriptors();
    let pool: &'static P = Box::leak(Box::new(P::new(workers)?));
    let rounds = (order.limit.as_millis() / BURST.as_millis()).max(1);
    let (firsts, spreads) = (0..rounds).map(|_| burst(pool, order.number())).unzip();
    let found = [("first", firsts), ("spread", spreads)];
    Ok(values(found.map(|(key, values)| {
        (key, median(values).expect("there is a round"))
    })))
}

/// Returns the longest time from a task's spawn to its first poll, in milliseconds, and the
/// standard deviation of the tasks' reads as a part of their mean. A task that was not polled
/// counts as polled at the end.
fn burst<P: Pool>(pool: &P, tasks: usize) -> (f64, f64) {
    let handle = pool.handle();
    let (sender, results) = unbounded();
    let stop = Arc::new(AtomicBool::new(false));
    let (nears, fars): (Vec<_>, Vec<_>) = (0..tasks).map(|_| tcp_pair(true)).unzip();
    for mut near in &nears {
        near.write_all(&[7; MESSAGE]).expect("there is room");
    }
    for far in fars {
        let (sender, stop, spawned) = (sender.clone(), stop.clone(), Instant::now());
        P::detach(&handle, async move {
            let first = spawned.elapsed().min(BURST);
            let mut reads = 0.0;
            let more = || {
                let more = !stop.load(Ordering::Relaxed);
                reads += f64::from(u8::from(more));
                more
            };
            P::peek(far, more).await;
            let sent = sender.try_send((first, reads));
            sent.expect("the round waits for it");
        });
    }
    drop(sender);
    thread::sleep(BURST);
    stop.store(true, Ordering::Relaxed);
    let mut last = Duration::ZERO;
    let mut shares: Vec<f64> = Vec::new();
    while let Ok((first, reads)) = pool.block_on(results.recv()) {
        last = last.max(first);
        shares.push(reads);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let average = mean(&shares);
    let squares: Vec<f64> = (shares.iter())
        .map(|share| (share - average).powi(2))
        .collect();
    (last.as_secs_f64() * 1e3, mean(&squares).sqrt() / average)
}

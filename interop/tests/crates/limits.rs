//! Rate limits by governor, which says how long to wait; the timer is polder's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use polder::time::sleep_until;

use crate::everywhere;

#[test]
fn governor_limits_the_rate_of_tasks() {
    everywhere(|_| async {
        let quota = Quota::with_period(Duration::from_millis(1)).expect("a period");
        let limiter = Arc::new(RateLimiter::direct(
            quota.allow_burst(5.try_into().expect("not 0")),
        ));
        let start = Instant::now();
        let tasks = (0..20).map(|_| {
            let limiter = limiter.clone();
            polder::spawn(async move {
                while let Err(early) = limiter.check() {
                    sleep_until(early.earliest_possible()).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await;
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(14), "{took:?}");
    });
}

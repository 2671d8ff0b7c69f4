//! The shard of a pool: workers that share a poller.
//!
//! A shard has `Builder::workers_per_poller` workers. All of their sources and timers are with one
//! reactor, which has a [poller lock](super::poller_lock). A source is registered with the shard of
//! the worker that first waits for it, and stays there, since any worker of the pool may wake a
//! stealable task. So large pools do not share one table of sources and one kernel object. (With 64
//! workers on one epoll, tokio measured 75 µs for a registration at the median, and with one epoll
//! for each 8 workers 3 µs: <https://github.com/tokio-rs/tokio/pull/8450>.)
//!
//! **A full shard**, in which no worker is idle, has no [monitor](super::monitor) of its own. The
//! monitor of another shard, or a worker of another shard between its turns, polls for it, unless
//! another one has within the last interval.
//!
//! A worker that begins to work has resumed, and then, after a fence, looks whether its shard has a
//! monitor, or an idle worker, which it makes the monitor. If it has neither, and no other shard
//! has a monitor, it wakes an idle worker elsewhere. A worker that is about to sleep has parked,
//! and then, after a fence, looks for a full shard; if there is one, it becomes the monitor, or
//! sees that another shard has one. So either the worker that makes a shard full sees the other one
//! parked, or that one sees the full shard. A monitor releases its mark before it does either. If
//! two monitors leave a full shard to each other, the later look sees that the other has released.
//! `loom` checks this in `monitor`.

use std::ops::Range;

use super::monitor::Monitor;
use super::poller_lock::PollerLock;

/// Pool workers that share a reactor. Aligned, since they write it in each turn.
#[repr(align(128))]
pub(super) struct Shard {
    pub(super) workers: Range<usize>,
    pub(super) poller_lock: PollerLock,
    pub(super) monitor: Monitor,
}

impl Shard {
    pub(super) fn new(workers: Range<usize>) -> Shard {
        Shard {
            workers,
            poller_lock: PollerLock::default(),
            monitor: Monitor::default(),
        }
    }
}

pub(super) trait ShardedWorkers {
    fn shards(&self) -> &[Shard];

    fn shard(&self, index: usize) -> &Shard;

    fn is_parked(&self, index: usize) -> bool;

    /// A worker among these that is parked and was not woken yet.
    fn find_idle_of(&self, workers: Range<usize>) -> Option<usize>;

    /// Wakes a worker. Returns false if it is awake, or was woken by another thread.
    fn wake(&self, index: usize) -> bool;

    /// Returns whether there was an idle one.
    fn wake_idle_of(&self, workers: Range<usize>) -> bool {
        let idle = self.find_idle_of(workers);
        idle.map(|index| self.wake(index)).is_some()
    }

    fn full_shards_beside(&self, index: usize) -> impl Iterator<Item = &Shard> {
        self.shards().iter().filter(move |shard| {
            let mut workers = shard.workers.clone();
            !shard.workers.contains(&index) && !workers.any(|worker| self.is_parked(worker))
        })
    }

    fn is_other_awake(&self, index: usize) -> bool {
        let mut workers = self.shard(index).workers.clone();
        workers.any(|other| other != index && !self.is_parked(other))
    }

    /// Whether the idle worker at `index` has others to inspect.
    fn needs_monitor(&self, index: usize) -> bool {
        let is_left_to_another = || {
            let mut others = self.shards().iter();
            others.any(|shard| !shard.workers.contains(&index) && shard.monitor.is_held())
        };
        self.is_other_awake(index)
            || self.full_shards_beside(index).next().is_some() && !is_left_to_another()
    }

    /// Wakes an idle worker of another shard, to inspect the full shard of the worker at `index`,
    /// unless another shard has a monitor.
    fn wake_idle_beside(&self, index: usize) {
        let mut shards = self.shards().iter();
        if !self.shards().iter().any(|shard| shard.monitor.is_held()) {
            shards.any(|shard| {
                !shard.workers.contains(&index) && self.wake_idle_of(shard.workers.clone())
            });
        }
    }
}

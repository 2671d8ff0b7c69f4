//! The pool workers that share a poller.
//!
//! A pool consists of shards, of as many workers as `Builder::workers_per_poller` says. All sources
//! and timers of a shard are with one reactor, which has a [seat](super::seat). A source is
//! registered with the shard whose worker first waits for it, and stays there, since any worker of
//! the pool may wake a movable task; the task itself runs on any of them. So small pools have one
//! shard, and large ones do not share one table of sources and one kernel object. (With 64 workers
//! on one epoll, tokio measured 75 µs for a registration at the median, and with one epoll for
//! each 8 workers 3 µs: <https://github.com/tokio-rs/tokio/pull/8450>.)
//!
//! **Who serves a shard whose workers all compute.** Each shard has a [watch](super::watch) of its
//! own while one of its workers is idle. While none is, it is *full*, and the watch of another
//! shard polls it too, at each inspection; and so do workers of other shards between their turns,
//! though not each time. A worker that begins to work looks whether its shard has
//! a watch or an idle worker, which becomes the watch. If it has neither, the worker wakes an idle
//! one of each other shard that has no watch. A worker that is about to sleep has parked before it
//! looks whether another shard is full. The fences between are the ones that `watch` describes, so
//! either the one that makes a shard full sees the other one parked, or that one sees a full shard
//! and becomes the watch.

use std::ops::Range;

use super::seat::Seat;
use super::watch::{Watch, WatchedWorkers};

/// Pool workers that share a reactor.
#[derive(Debug)]
pub(super) struct Shard {
    /// Their indices.
    pub(super) workers: Range<usize>,
    /// The right to wait in their reactor's poller.
    pub(super) seat: Seat,
    pub(super) watch: Watch,
}

impl Shard {
    pub(super) fn new(workers: Range<usize>) -> Shard {
        Shard {
            workers,
            seat: Seat::new(),
            watch: Watch::new(),
        }
    }
}

/// The workers of a pool, as far as their shards need them.
pub(super) trait ShardedWorkers {
    /// In the order of the workers' indices. All but the last one have as many workers.
    fn shards(&self) -> &[Shard];

    fn is_parked(&self, index: usize) -> bool;

    /// Wakes an idle one of these workers. Returns whether there was any.
    fn wake_idle_of(&self, workers: Range<usize>) -> bool;

    /// The shard of the worker at `index`.
    #[inline]
    fn shard(&self, index: usize) -> &Shard {
        &self.shards()[index / self.shards()[0].workers.len()]
    }

    /// The full shards, except that of the worker at `index`.
    fn full_shards_beside(&self, index: usize) -> impl Iterator<Item = &Shard> {
        self.shards().iter().filter(move |shard| {
            let mut workers = shard.workers.clone();
            !shard.workers.contains(&index) && !workers.any(|worker| self.is_parked(worker))
        })
    }
}

impl<W: ShardedWorkers> WatchedWorkers for W {
    fn needs_watch(&self, index: usize) -> bool {
        let mut workers = self.shard(index).workers.clone();
        workers.any(|other| other != index && !self.is_parked(other))
            || self.full_shards_beside(index).next().is_some()
    }

    /// If one that is woken has woken by itself, it goes by the watch's mark before it sleeps
    /// again.
    fn wake_idle(&self, index: usize) {
        if self.wake_idle_of(self.shard(index).workers.clone()) {
            return;
        }
        for shard in self.shards().iter().filter(|shard| !shard.watch.is_kept()) {
            self.wake_idle_of(shard.workers.clone());
        }
    }
}

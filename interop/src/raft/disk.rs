//! The state of a node that survives a crash.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polder::event::Event;

use super::message::{Entry, Position};

/// A disk, in memory: it survives the program that writes to it, and clones share it. A completed
/// write is durable, whenever the program ends after it.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    stored: Mutex<Stored>,
    written: Event,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) term: u64,
    /// The node's vote in this term.
    pub(super) vote: Option<usize>,
    pub(super) log: Vec<Entry>,
    /// The number of entries that the node has known to be committed. Informational.
    commit: u64,
}

impl Stored {
    pub(super) fn last(&self) -> Position {
        let index = self.log.len() as u64;
        let term = self.log.last().map_or(0, |it| it.term);
        Position { index, term }
    }

    /// Returns the entry at an index, if there is one.
    pub(super) fn at(&self, index: u64) -> Option<&Entry> {
        let before = usize::try_from(index.checked_sub(1)?).ok()?;
        self.log.get(before)
    }

    /// Returns whether the log has this place: then everything before is the same, too.
    pub(super) fn has(&self, place: Position) -> bool {
        match place.index {
            0 => place.term == 0,
            index => self.at(index).is_some_and(|it| it.term == place.term),
        }
    }

    /// Returns the entries after an index, at most `most`.
    pub(super) fn after(&self, index: u64, most: usize) -> Vec<Entry> {
        let after = self.log.iter().skip(index as usize);
        after.take(most).copied().collect()
    }
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node's term, and its vote in it. (A leader has voted for itself.)
    pub fn vote(&self) -> (u64, Option<usize>) {
        let stored = self.lock();
        (stored.term, stored.vote)
    }

    /// Returns the number of entries that the node has known to be committed, since its first
    /// start.
    pub fn committed(&self) -> u64 {
        self.lock().commit
    }

    /// Returns the term of the entry at an index. The first index is 1.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        self.lock().at(index).map(|it| it.term)
    }

    /// Waits until something is written. Supports one waiter at a time.
    pub async fn written(&self) {
        self.0.written.wait().await;
    }

    pub(super) fn read(&self) -> Stored {
        self.lock().clone()
    }

    pub(super) fn write_term(&self, term: u64, vote: Option<usize>) {
        let mut stored = self.lock();
        (stored.term, stored.vote) = (term, vote);
        drop(stored);
        self.0.written.set();
    }

    pub(super) fn write_commit(&self, commit: u64) {
        let mut stored = self.lock();
        if stored.commit < commit {
            stored.commit = commit;
            drop(stored);
            self.0.written.set();
        }
    }

    /// Replaces the entries after an index.
    pub(super) fn write_log(&self, after: u64, entries: &[Entry]) {
        let mut stored = self.lock();
        stored.log.truncate(after as usize);
        stored.log.extend_from_slice(entries);
        drop(stored);
        self.0.written.set();
    }
}

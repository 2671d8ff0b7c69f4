//! The state that the log is applied to: a table of numbers, and the last answer to each client.

use std::collections::BTreeMap;

use super::message::{Change, Write};

#[derive(Debug, Default)]
pub(super) struct Table {
    values: BTreeMap<u64, u64>,
    /// For each client, the number of its last write, and the resulting value. A client has one
    /// write at a time.
    answers: BTreeMap<u64, (u64, u64)>,
}

impl Table {
    pub(super) fn value(&self, key: u64) -> u64 {
        self.values.get(&key).copied().unwrap_or(0)
    }

    /// Returns the number of the last write of a client, and its answer.
    pub(super) fn last(&self, client: u64) -> Option<(u64, u64)> {
        self.answers.get(&client).copied()
    }

    pub(super) fn apply(&mut self, write: &Write) {
        let (key, value) = match write.change {
            Change::Put { key, value } => (key, value),
            Change::Add { key, value } => (key, self.value(key).wrapping_add(value)),
        };
        self.values.insert(key, value);
        self.answers.insert(write.client, (write.number, value));
    }
}

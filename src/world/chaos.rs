//! [`Actions`]: the actions of chaos that are scheduled as events.
//!
//! Chaos numbers its actions in the order in which it schedules them. When the event of one
//! happens, its number is due, and the world takes it before anything else runs.

use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Actions {
    /// The numbers of the actions that are due.
    due: VecDeque<u64>,
    /// The lowest number of an action that was not called off.
    first: u64,
}

impl Actions {
    /// Calls off all scheduled actions with a number below this one.
    pub(crate) fn call_off(&mut self, first: u64) {
        self.first = first;
        self.due.clear();
    }

    /// Returns whether an action was not called off.
    pub(super) fn applies(&self, number: u64) -> bool {
        number >= self.first
    }

    /// Notes that an action is due.
    pub(super) fn push(&mut self, number: u64) {
        self.due.push_back(number);
    }

    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(crate) fn take(&mut self) -> Option<u64> {
        self.due.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_that_are_called_off_are_not_taken() {
        let mut actions = Actions::default();
        [3, 4].into_iter().for_each(|number| actions.push(number));
        assert_eq!((actions.take(), actions.are_due()), (Some(3), true));
        actions.call_off(5);
        assert!(!actions.are_due() && !actions.applies(4) && actions.applies(5));
        assert_eq!(actions.take(), None);
    }
}

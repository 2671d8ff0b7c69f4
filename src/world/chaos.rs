//! [`Actions`]: the actions of chaos that are scheduled as events.
//!
//! Chaos numbers its actions in the order in which it schedules them. When the event of one
//! happens, its number is due, and the world takes it before anything else runs.

use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Actions {
    /// The numbers of the actions that are due.
    pub(super) due: VecDeque<u64>,
    /// The lowest number of an action that was not called off.
    pub(super) first: u64,
}

impl Actions {
    /// Calls off all scheduled actions with a number below this one.
    pub(crate) fn call_off(&mut self, first: u64) {
        self.first = first;
        self.due.clear();
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
        actions.due.extend([3, 4]);
        assert_eq!((actions.take(), actions.due.len()), (Some(3), 1));
        actions.call_off(5);
        assert_eq!(actions.first, 5);
        assert_eq!(actions.take(), None);
    }
}

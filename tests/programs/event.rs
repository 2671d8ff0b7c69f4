//! `event`: signals between tasks and threads, and turns that never block.

use polder::Backend;

use crate::support::*;

/// Event tells each way of setting and ends by itself.
#[test]
fn event_shows_each_way_and_ends() {
    for backend in Backend::available() {
        let mut command = command("event");
        command.env("POLDER_BACKEND", backend.name());
        let mut event = Program::start(command);
        let lines: Vec<_> = std::iter::from_fn(|| event.next_line()).collect();
        event.ended_well();
        let expected = [
            "set before the wait: passed at once",
            "set after the wait: woken by a task",
            "set by another thread: woken",
            "three tasks wait for the latch, and then for the event",
            "task 1: released",
            "task 2: released",
            "task 3: released",
            // The event is set in the fifth frame, and the turn of that frame sees it.
            "a foreign loop drove the runtime for 5 frames",
        ];
        assert_eq!(lines, expected, "on {backend}");
    }
}

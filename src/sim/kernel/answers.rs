//! What a world answers where the program asks the C library for the time or for randomness, if
//! `answer_for_libc!` is there to ask (see `sim/libc.rs`).
//!
//! The C library's functions may be called anywhere: in a signal's handler, by an allocator, while
//! this thread's kernel is borrowed, and when thread-locals are being destroyed. So what answers
//! them is a thread-local of cells of its own, which is made without code and has no destructor,
//! and which the kernel writes as its clock moves.
//!
//! **Randomness** is drawn by the seed, the step, and how manieth question it is within the step,
//! not from one sequence: a question more or less (a static that is made once in a process) shifts
//! nothing beyond its step.
//!
//! **Times** are counted from the same two moments in every world, so that programs which look at
//! more than differences (a hash of an `Instant`, a date) see the same in each run.

// Elsewhere nobody asks: see `sim/libc.rs`.
#![cfg_attr(
    not(all(target_os = "linux", target_pointer_width = "64")),
    allow(dead_code)
)]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::time::Duration;

use super::choice::Stream;

/// What the monotonic clock shows when a world begins: more than a day, since programs take
/// durations from an `Instant`, which must not be before its zero.
const START: Duration = Duration::from_secs(100_000);

/// What the wall clock shows then: 2026-01-01T00:00:00Z.
const START_OF_DAY: Duration = Duration::from_secs(1_767_225_600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Monotonic,
    /// Not asked for on platforms whose C library is not answered for.
    #[allow(dead_code)]
    Wall,
}

/// How often the C library was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) for_the_time: u64,
    pub(crate) for_randomness: u64,
}

struct Answers {
    is_in_world: Cell<bool>,
    seed: Cell<u64>,
    step: Cell<u64>,
    /// How often randomness was asked for in this step.
    nth: Cell<usize>,
    /// What the clock shows, in nanoseconds since the world began.
    shown: Cell<u64>,
    /// How far the wall clock is ahead of that, in nanoseconds; behind, if it is negative.
    wall: Cell<i64>,
    for_the_time: Cell<u64>,
    for_randomness: Cell<u64>,
}

thread_local! {
    static ANSWERS: Answers = const {
        Answers {
            is_in_world: Cell::new(false),
            seed: Cell::new(0),
            step: Cell::new(0),
            nth: Cell::new(0),
            shown: Cell::new(0),
            wall: Cell::new(0),
            for_the_time: Cell::new(0),
            for_randomness: Cell::new(0),
        }
    };
}

/// This thread's world begins: from now on questions are answered.
pub(super) fn begin(seed: u64) {
    ANSWERS.with(|it| {
        it.is_in_world.set(true);
        it.seed.set(seed);
        let counts = [&it.step, &it.shown, &it.for_the_time, &it.for_randomness];
        counts.into_iter().for_each(|it| it.set(0));
        it.nth.set(0);
        it.wall.set(0);
    });
}

pub(super) fn end() {
    ANSWERS.with(|it| it.is_in_world.set(false));
}

/// The clock shows that, in nanoseconds since the world began.
pub(super) fn show(shown: u64) {
    ANSWERS.with(|it| it.shown.set(shown));
}

/// The wall clock is so many nanoseconds ahead of the other one; behind, if that is negative.
pub(super) fn show_wall(ahead: i64) {
    ANSWERS.with(|it| it.wall.set(ahead));
}

/// Another step begins, of another process or task.
pub(super) fn next_step() {
    ANSWERS.with(|it| {
        it.step.set(it.step.get() + 1);
        it.nth.set(0);
    });
}

/// How often this thread's world was asked.
pub(crate) fn asked() -> Asked {
    ANSWERS.with(|it| Asked {
        for_the_time: it.for_the_time.get(),
        for_randomness: it.for_randomness.get(),
    })
}

/// The time since the clock's zero, if this thread is in a world.
pub(crate) fn time(which: Which) -> Option<Duration> {
    ANSWERS.with(|it| {
        if !it.is_in_world.get() {
            return None;
        }
        it.for_the_time.set(it.for_the_time.get() + 1);
        let shown = Duration::from_nanos(it.shown.get());
        Some(match which {
            Which::Monotonic => START.saturating_add(shown),
            Which::Wall => {
                let (even, ahead) = (START_OF_DAY.saturating_add(shown), it.wall.get());
                let apart = Duration::from_nanos(ahead.unsigned_abs());
                // Not before 1970, where many programs expect none.
                match ahead < 0 {
                    true => even.saturating_sub(apart),
                    false => even.saturating_add(apart),
                }
            }
        })
    })
}

/// Whether this thread is in a world: then that has filled `bytes`. A request for no byte is none:
/// so getrandom asks, once in a process, whether the kernel has the call.
pub(crate) fn fill(bytes: &mut [MaybeUninit<u8>]) -> bool {
    ANSWERS.with(|it| {
        if !it.is_in_world.get() {
            return false;
        }
        if bytes.is_empty() {
            return true;
        }
        it.for_randomness.set(it.for_randomness.get() + 1);
        let nth = it.nth.replace(it.nth.get() + 1);
        let mut stream = Stream::new(it.seed.get(), "libc", it.step.get() as usize, nth);
        for part in bytes.chunks_mut(8) {
            let number = stream.next().to_le_bytes();
            for (byte, random) in part.iter_mut().zip(number) {
                byte.write(random);
            }
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut room = vec![MaybeUninit::new(0); len];
        let is_filled = fill(&mut room);
        for (byte, random) in bytes.iter_mut().zip(room) {
            // SAFETY: all of `MaybeUninit::new` above is initialised.
            *byte = unsafe { random.assume_init() };
        }
        is_filled.then_some(bytes)
    }

    #[test]
    fn a_question_more_shifts_nothing_beyond_its_step() {
        let run = |questions: usize| {
            begin(7);
            assert_eq!(drawn(0), Some(Vec::new()));
            let first = drawn(16).unwrap();
            assert_eq!(asked().for_randomness, 1);
            (1..questions).for_each(|_| drop(drawn(3)));
            next_step();
            let second = drawn(16).unwrap();
            end();
            (first, second)
        };
        let (first, second) = run(1);
        assert_ne!(first, second);
        assert_eq!(run(5), (first, second));
    }

    #[test]
    fn questions_are_answered_and_counted_in_a_world_only() {
        assert_eq!((time(Which::Wall), drawn(4)), (None, None));
        begin(1);
        let start = time(Which::Monotonic).unwrap();
        show(1_500_000_000);
        assert_eq!(
            time(Which::Monotonic).unwrap() - start,
            Duration::from_millis(1_500)
        );
        assert_eq!(time(Which::Wall).unwrap().as_secs(), 1_767_225_601);
        show_wall(-2_000_000_000);
        assert_eq!(time(Which::Wall).unwrap().as_secs(), 1_767_225_599);
        show_wall(i64::MIN);
        assert_eq!(time(Which::Wall), Some(Duration::ZERO));
        assert_ne!(drawn(8), drawn(8));
        let counted = asked();
        assert_eq!((counted.for_the_time, counted.for_randomness), (5, 2));
        end();
        assert_eq!(time(Which::Monotonic), None);
    }
}

//! A world's answers to the C library's calls for the time and for randomness, if
//! `answer_for_libc!` redirects them here (see [`libc_answers`](crate::libc_answers)).
//!
//! The C library's functions may be called anywhere: in a signal handler, by an allocator, while
//! this thread's kernel is borrowed, and while thread-locals are being destroyed. So the answers
//! come from a separate thread-local of cells, which is initialised without code and has no
//! destructor, and which the kernel updates as its clock advances.
//!
//! **Randomness** is derived from the seed, the step, and the index of the call within the step,
//! not from one sequence: an additional call (for a static that is initialised once in a process)
//! shifts nothing beyond its step.
//!
//! **Times** are counted from the same two moments in every world, so that programs that use more
//! than differences (a hash of an `Instant`, a date) get the same in each run.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::time::Duration;

use super::choice::Stream;
use crate::libc_answers::Clock;

/// The monotonic clock's time when a world begins. It is more than a day, since programs subtract
/// durations from an `Instant`, which must not fall below its zero.
const START: Duration = Duration::from_secs(100_000);

/// The wall clock's time then: 2026-01-01T00:00:00Z.
const START_OF_DAY: Duration = Duration::from_secs(1_767_225_600);

/// The numbers of calls to the C library.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) for_the_time: u64,
    pub(crate) for_randomness: u64,
}

struct Answers {
    is_in_world: Cell<bool>,
    seed: Cell<u64>,
    step: Cell<u64>,
    /// The number of calls for randomness in this step.
    nth: Cell<usize>,
    /// The time that the clock shows, in nanoseconds since the world began.
    shown: Cell<u64>,
    /// The offset of the wall clock from that, in nanoseconds; negative if it is behind.
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

/// The answers of every thread: of the kernel, where there is no world.
struct OfThisThread;

impl crate::libc_answers::Answers for OfThisThread {
    /// Returns the time since the clock's zero, if this thread is in a world.
    fn time(&self, which: Clock) -> Option<Duration> {
        ANSWERS.with(|answers| {
            if !answers.is_in_world.get() {
                return None;
            }
            answers.for_the_time.set(answers.for_the_time.get() + 1);
            let shown = Duration::from_nanos(answers.shown.get());
            Some(match which {
                Clock::Monotonic => START.saturating_add(shown),
                Clock::Wall => {
                    let (even, ahead) = (START_OF_DAY.saturating_add(shown), answers.wall.get());
                    let apart = Duration::from_nanos(ahead.unsigned_abs());
                    // Not before 1970: many programs do not expect such times.
                    if ahead < 0 {
                        even.saturating_sub(apart)
                    } else {
                        even.saturating_add(apart)
                    }
                }
            })
        })
    }

    /// Fills `bytes`, if this thread is in a world, and returns whether it is. A request for no
    /// bytes is not counted: getrandom makes one, once in a process, to find out whether the kernel
    /// has the call.
    fn fill(&self, bytes: &mut [MaybeUninit<u8>]) -> bool {
        ANSWERS.with(|answers| {
            if !answers.is_in_world.get() {
                return false;
            }
            if bytes.is_empty() {
                return true;
            }
            answers.for_randomness.set(answers.for_randomness.get() + 1);
            let nth = answers.nth.replace(answers.nth.get() + 1);
            let mut stream =
                Stream::new(answers.seed.get(), "libc", answers.step.get() as usize, nth);
            for part in bytes.chunks_mut(8) {
                let number = stream.next().to_le_bytes();
                for (byte, random) in part.iter_mut().zip(number) {
                    byte.write(random);
                }
            }
            true
        })
    }
}

/// Begins this thread's world: from now on calls are answered.
pub(super) fn begin(seed: u64) {
    static SET: Once = Once::new();
    SET.call_once(|| crate::libc_answers::set(&OfThisThread));
    ANSWERS.with(|answers| {
        answers.is_in_world.set(true);
        answers.seed.set(seed);
        answers.step.set(0);
        answers.shown.set(0);
        answers.for_the_time.set(0);
        answers.for_randomness.set(0);
        answers.nth.set(0);
        answers.wall.set(0);
    });
}

pub(super) fn end() {
    ANSWERS.with(|answers| answers.is_in_world.set(false));
}

/// Sets the time that the clock shows, in nanoseconds since the world began.
pub(super) fn show(shown: u64) {
    ANSWERS.with(|answers| answers.shown.set(shown));
}

/// Sets the offset of the wall clock from the other one, in nanoseconds; negative if it is behind.
pub(super) fn show_wall(ahead: i64) {
    ANSWERS.with(|answers| answers.wall.set(ahead));
}

/// Begins another step, of another process or task.
pub(super) fn next_step() {
    ANSWERS.with(|answers| {
        answers.step.set(answers.step.get() + 1);
        answers.nth.set(0);
    });
}

/// Returns the numbers of calls to this thread's world.
pub(crate) fn asked() -> Asked {
    ANSWERS.with(|answers| Asked {
        for_the_time: answers.for_the_time.get(),
        for_randomness: answers.for_randomness.get(),
    })
}

#[cfg(test)]
mod tests {
    use crate::libc_answers::Answers as _;

    use super::*;

    fn drawn(len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut room = vec![MaybeUninit::new(0); len];
        let is_filled = OfThisThread.fill(&mut room);
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

    /// Questions are answered and counted in a world only.
    #[test]
    fn questions_counted_in_worlds_only() {
        assert_eq!((OfThisThread.time(Clock::Wall), drawn(4)), (None, None));
        begin(1);
        let start = OfThisThread.time(Clock::Monotonic).unwrap();
        show(1_500_000_000);
        assert_eq!(
            OfThisThread.time(Clock::Monotonic).unwrap() - start,
            Duration::from_millis(1_500)
        );
        assert_eq!(
            OfThisThread.time(Clock::Wall).unwrap().as_secs(),
            1_767_225_601
        );
        show_wall(-2_000_000_000);
        assert_eq!(
            OfThisThread.time(Clock::Wall).unwrap().as_secs(),
            1_767_225_599
        );
        show_wall(i64::MIN);
        assert_eq!(OfThisThread.time(Clock::Wall), Some(Duration::ZERO));
        assert_ne!(drawn(8), drawn(8));
        let counted = asked();
        assert_eq!((counted.for_the_time, counted.for_randomness), (5, 2));
        end();
        assert_eq!(OfThisThread.time(Clock::Monotonic), None);
    }
}

//! The answers for the C library, where a program has [`answer_for_libc!`](crate::answer_for_libc):
//! the standard library's clocks and randomness cross the deck too. polder-sim has the functions.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::time::{Duration, Instant};

use polder_sim::libc_answers::{Answers, Clock, set};
use rustix::time::ClockId;

use crate::deck::{Deck, Stop, clock_shows, look};
use crate::tape::Tag;

thread_local! {
    /// The time that the clock shows instead.
    static SHOWN: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Has the recordings and replays of this process answer.
pub(crate) fn begin() {
    static SET: Once = Once::new();
    SET.call_once(|| set(&OfThisThread));
}

/// Returns the time at which the clock shows `shown`.
pub(crate) fn at(shown: Duration) -> Instant {
    SHOWN.set(Some(shown));
    let time = Instant::now();
    SHOWN.set(None);
    time
}

struct OfThisThread;

/// Asks the deck. The C library's functions must not unwind: a stop unwinds at the next call. The
/// deck may allocate; an allocator that asks for the time or for randomness meanwhile gets the
/// system's.
fn answer<R>(f: impl FnOnce(&mut Deck) -> Result<R, Stop>) -> Option<R> {
    look(None, f)?.ok()
}

impl Answers for OfThisThread {
    fn time(&self, clock: Clock) -> Option<Duration> {
        match clock {
            Clock::Monotonic => SHOWN.get().or_else(|| answer(Deck::clock_shown)),
            Clock::Wall => answer(|deck| deck.value(Tag::Wall, || clock_shows(ClockId::Realtime))),
        }
    }

    fn fill(&self, bytes: &mut [MaybeUninit<u8>]) -> bool {
        let length = bytes.len();
        let filled = answer(|deck| deck.value(Tag::Random, || random(length)));
        let Some(filled) = filled.filter(|filled| filled.len() == length) else {
            return false;
        };
        for (to, from) in bytes.iter_mut().zip(filled) {
            to.write(from);
        }
        true
    }
}

/// Returns fewer bytes if the system has no more.
fn random(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    bytes.truncate(filled);
    bytes
}

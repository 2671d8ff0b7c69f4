//! Fuzzing: random programs against a model, from a seed.
//!
//! Each case has a separate seed, which a failure prints. `POLDER_FUZZ_SEED` runs that case alone,
//! and `POLDER_BACKEND` one backend. `POLDER_FUZZ_STEPS` is the total number of steps of each test;
//! a step is an operation on a poller, a stream, a timer, a file or a task. `cargo test` runs few,
//! `ci/stress.sh fuzz` more.

#![cfg(unix)]

#[cfg(feature = "fs")]
mod files;
#[cfg(target_os = "linux")]
mod pollers;
mod runtimes;
mod streams;
mod timers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polder::Backend;

/// The time limit of one case, on a loaded machine. It is far longer than any case needs: it turns
/// a lost wake-up into a failure.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A small generator: xorshift*, as in Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled".
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        // Zero would stay zero; the multiplication separates neighbouring seeds.
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        rng.number();
        rng
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        // The upper bits are the better ones.
        ((self.number() >> 32) as usize) % bound
    }

    /// Returns true once in `times`, on average.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn micros(&mut self, below: usize) -> Duration {
        Duration::from_micros(self.below(below) as u64)
    }

    /// Another generator, for another thread or task.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.number())
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs cases on each backend until all together have taken `steps` (or `POLDER_FUZZ_STEPS`). A
/// case returns its number of steps.
pub fn fuzz(
    test: &str,
    steps: u64,
    case: impl Fn(Backend, &mut Rng) -> u64 + Clone + Send + 'static,
) {
    let steps = variable("POLDER_FUZZ_STEPS").unwrap_or(steps);
    let backends = match std::env::var_os("POLDER_BACKEND") {
        Some(_) => vec![Backend::from_env().expect("it is a backend of this machine")],
        None => Backend::available(),
    };
    if let Some(seed) = variable("POLDER_FUZZ_SEED") {
        let backend = backends[seed as usize % backends.len()];
        println!("{test}: seed {seed:#x} on {backend}");
        run(test, backend, seed, case);
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut seeds = Rng::new(now.map_or(0, |now| now.as_nanos() as u64));
    let (mut taken, mut cases) = (0, 0);
    let start = Instant::now();
    while taken < steps {
        let seed = seeds.number();
        // The seed determines everything, including the backend.
        let backend = backends[seed as usize % backends.len()];
        taken += run(test, backend, seed, case.clone());
        cases += 1;
    }
    println!(
        "{test}: {taken} steps in {cases} cases, {:?}",
        start.elapsed()
    );
}

/// Runs one case, on a new thread and with a deadline.
fn run(
    test: &str,
    backend: Backend,
    seed: u64,
    case: impl Fn(Backend, &mut Rng) -> u64 + Send + 'static,
) -> u64 {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name(format!("{seed:#x}"))
        .spawn(move || {
            let taken = catch_unwind(AssertUnwindSafe(|| case(backend, &mut Rng::new(seed))));
            let _ = sender.send(taken);
        })
        .expect("a thread starts");
    let again = format!(
        "POLDER_BACKEND={backend} POLDER_FUZZ_SEED={seed:#x} cargo test --test fuzz {test}"
    );
    match receiver.recv_timeout(LIMIT) {
        Ok(Ok(taken)) => taken.max(1),
        Ok(Err(panic)) => {
            let words = panic.downcast_ref::<&str>().copied();
            let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            panic!(
                "on {backend}: {}\n{again}",
                words.unwrap_or("a panic without words")
            )
        }
        Err(_) => panic!("on {backend}: not done after {LIMIT:?}: something was lost\n{again}"),
    }
}

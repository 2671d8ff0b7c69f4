//! How a rule is run: on every backend, each on a thread of its own, against a deadline.

use std::any::Any;
use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polder::{Backend, Runtime};

/// What one rule may take on one backend, on a loaded machine. Far beyond what any needs: it is
/// there to turn a lost wake-up into a failure.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Runs `rule` on every backend of this machine, one after the other.
pub fn on_every_backend(rule: impl Fn(Backend) + Clone + Send + 'static) {
    for backend in Backend::available() {
        let rule = rule.clone();
        within(LIMIT, &format!("on {backend}"), move || rule(backend));
    }
}

/// Runs `rule`, given as a future, in a fresh runtime on every backend.
pub fn in_every_runtime<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()>,
{
    on_every_backend(move |backend| runtime(backend).block_on(rule(backend)));
}

/// Runs `f` on a thread of its own; panics, with words, if it does or if it takes too long.
pub fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(what.into())
        .spawn(move || drop(sender.send(f())))
        .expect("a thread starts");
    match receiver.recv_timeout(limit) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            panic!("{what}: not done after {limit:?}: a wake-up was lost")
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let panic = thread.join().expect_err("it dropped its sender");
            panic!("{what}: {}", message(&*panic))
        }
    }
}

pub fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

pub fn runtime(backend: Backend) -> Runtime {
    Runtime::builder()
        .backend(backend)
        .build()
        .expect("an available backend can be opened")
}

/// Heavy rules run at full size on the platform's default backend, and at a tenth elsewhere.
pub fn sized(backend: Backend, full: usize) -> usize {
    match backend == Backend::default() {
        true => full,
        false => (full / 10).max(1),
    }
}

/// Waits, by looking again and again, until `condition` holds: for what cannot be awaited.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what}: not so after {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

//! The expansion of [`test!`](crate::test): a test on every backend, or on those of
//! `POLDER_BACKEND`, each time with a limit.
//!
//! The test runs on a new thread, and the thread of the test harness is the watchdog: it waits for
//! the test thread, no longer than the limit. So the limit also holds for a test that blocks its
//! thread. A dump shows what it waits for. Nothing can end that thread: after the limit the test
//! fails, and the thread continues until the process exits.

use std::fmt::Debug;
use std::panic::{Location, resume_unwind};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use crate::diagnostics;
use crate::poller::Backend;
use crate::runtime::{Handle, Runtime};

/// The default limit of a test: far longer than a test should take, and short enough that a hanging
/// test fails while its run is still being watched.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// The return type of a test: nothing, or a result.
pub trait Outcome {
    /// # Panics
    ///
    /// If it is an error.
    fn check(self);
}

impl Outcome for () {
    fn check(self) {}
}

impl<E: Debug> Outcome for Result<(), E> {
    #[track_caller]
    fn check(self) {
        if let Err(error) = self {
            panic!("the test returned an error: {error:?}");
        }
    }
}

/// Runs `test` in a new runtime on every backend of this machine, or on those that `POLDER_BACKEND`
/// names, one after the other.
///
/// # Panics
///
/// If the test does, returns an error, or takes longer than `limit` on one of them; and if the
/// variable names no backend that is available.
#[track_caller]
pub fn run<F>(name: &str, limit: Duration, test: fn() -> F)
where
    F: Future + 'static,
    F::Output: Outcome,
{
    let site = Location::caller();
    let named = Backend::named_by_env().unwrap_or_else(|error| panic!("{name}: {error}"));
    let backends = named.unwrap_or_else(Backend::available);
    assert!(!backends.is_empty(), "{name}: there is no backend here");
    for backend in backends {
        let (sender, receiver) = mpsc::channel::<()>();
        let handle = Arc::new(OnceLock::new());
        let reported = handle.clone();
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                // Dropped when the test has returned or panicked, which the watchdog notices.
                let _sender = sender;
                let runtime = Runtime::builder().backend(backend).build();
                let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
                let _ = reported.set(runtime.handle());
                runtime.worker.block_on(test(), site).check();
            })
            .unwrap_or_else(|error| panic!("{name}: cannot start a thread: {error}"));
        // The dump reports conditions that have lasted since the previous look.
        let rest = diagnostics::look_before(limit);
        let mut result = receiver.recv_timeout(limit - rest);
        if let Err(mpsc::RecvTimeoutError::Timeout) = result {
            handle.get().map(Handle::dump);
            result = receiver.recv_timeout(rest);
        }
        if let Err(mpsc::RecvTimeoutError::Timeout) = result {
            if let Some(handle) = handle.get() {
                eprint!("{name}, on {backend}: {}", handle.dump());
            }
            panic!("{name}, on {backend}: not done after {limit:?}");
        }
        if let Err(panic) = thread.join() {
            eprintln!("{name}: failed on {backend}");
            resume_unwind(panic);
        }
    }
}

/// Makes a test of an `async fn`: it runs on every backend of the machine, each time in a new
/// [`Runtime`] of one worker, and fails if it takes longer than a limit. With `POLDER_BACKEND` in
/// the environment it runs on the backends that this names, and no others.
///
/// The limit is 60 seconds on each backend, or the value of `limit = …;`. It also holds for a test
/// that blocks its thread. A test that exceeds it prints a [dump](crate::diagnostics::Dump) of its
/// runtime, which shows what each task waits for. The test returns nothing, or a `Result<(), E>`
/// with an `E: Debug`. Attributes such as `#[should_panic]`, `#[ignore]` and `#[cfg(…)]` have their
/// usual effects; a test that should panic ends by it on the first backend.
///
/// ```
/// use std::time::Duration;
///
/// polder::test! {
///     async fn sleeping_takes_time() {
///         let start = std::time::Instant::now();
///         polder::time::sleep(Duration::from_millis(1)).await;
///         assert!(start.elapsed() >= Duration::from_millis(1));
///     }
/// }
///
/// polder::test! {
///     limit = Duration::from_secs(5);
///
///     /// Several tests share a limit.
///     async fn a_connection_is_accepted() -> std::io::Result<()> {
///         let listener = polder::net::TcpListener::bind("127.0.0.1:0").await?;
///         polder::net::TcpStream::connect(listener.local_addr()?).await?;
///         listener.accept().await?;
///         Ok(())
///     }
///
///     #[should_panic = "on purpose"]
///     async fn a_panic_fails() {
///         panic!("on purpose");
///     }
/// }
/// # // What the harness does.
/// # polder::__testing::run("example", Duration::from_secs(5), || async {});
/// ```
///
/// With the crate `macro_rules_attribute` it can be written as an attribute:
/// `#[apply(polder::test!)]` applies it to one function.
#[doc(alias = "tokio_test")]
#[macro_export]
macro_rules! test {
    (limit = $limit:expr; $($tests:tt)*) => {
        $crate::__test! { ($crate::__testing::run, $limit) $($tests)* }
    };
    (start_paused = $is_paused:expr; $($tests:tt)*) => {
        ::core::compile_error!("a paused clock is that of a simulated world: `polder_sim::test!`");
    };
    (record = $is_recorded:expr; $($tests:tt)*) => {
        ::core::compile_error!("a test that keeps the tape of a failure is one of `polder_replay::test!`");
    };
    ($($tests:tt)*) => {
        $crate::__test! { ($crate::__testing::run, $crate::__testing::DEFAULT_LIMIT) $($tests)* }
    };
}

/// Not public: expands to one test after the other, each of which calls the function of this path.
#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    (($run:path $(, $limit:expr)?)) => {};
    (($run:path $(, $limit:expr)?)
        $(#[$attribute:meta])*
        $visibility:vis async fn $name:ident() $(-> $output:ty)? $body:block
        $($rest:tt)*
    ) => {
        #[::core::prelude::v1::test]
        $(#[$attribute])*
        $visibility fn $name() {
            async fn test() $(-> $output)? $body
            $run(
                ::core::concat!(::core::module_path!(), "::", ::core::stringify!($name)),
                $($limit,)?
                test,
            );
        }
        $crate::__test! { ($run $(, $limit)?) $($rest)* }
    };
}

/// For unit tests that need no runtime, or several.
#[cfg(all(test, any(feature = "net", all(unix, feature = "signal"))))]
pub(crate) mod limited {
    use super::*;

    /// Calls `f` on a new thread.
    ///
    /// # Panics
    ///
    /// With the words of `what` if it takes longer than [`DEFAULT_LIMIT`]; and if `f` does.
    #[track_caller]
    pub(crate) fn within(what: &str, f: impl FnOnce() + Send + 'static) {
        let (sender, receiver) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            // Dropped when `f` has returned or panicked.
            let _sender = sender;
            f();
        });
        if let Err(mpsc::RecvTimeoutError::Timeout) = receiver.recv_timeout(DEFAULT_LIMIT) {
            panic!("{what}: not done after {DEFAULT_LIMIT:?}");
        }
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}

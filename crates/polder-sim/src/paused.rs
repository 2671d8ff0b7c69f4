//! The expansion of [`test!`](super::test): a test in a simulated world of one host.

use std::future::Future;
use std::time::Duration;

use polder::__testing::Outcome;

use super::check;

/// Runs `test` once, on the only host of a simulated world.
///
/// Ready tasks run in turn, as in a runtime of one worker: a test of timers may rely on that, and
/// the random order of a single seed would only be another one. The number of steps is limited; the
/// time is not, since a test may sleep for years.
///
/// # Panics
///
/// If the test fails.
#[track_caller]
pub fn run<F>(name: &str, test: fn() -> F)
where
    F: Future + 'static,
    F::Output: Outcome,
{
    let report = check::run(0, move |sim| async move {
        sim.order(crate::world::order::Order::Fifo);
        sim.limit(Duration::MAX);
        test().await
    });
    if let Some(failure) = report.failure {
        // The harness leaves out the name of the crate.
        let name = name.split_once("::").map_or(name, |(_, name)| name);
        // Comparing the two clocks is the usual reason why a paused test fails at once.
        let clock = match report.asked {
            Some(_) => "",
            None => {
                "  note: the clock of std is real time here: use polder::time::now, or \
                 polder_sim::answer_for_libc!\n"
            }
        };
        panic!("{failure}{clock}  replay, with each event: POLDER_SIM_LOG=1 cargo test {name}");
    }
}

/// Makes a test of an `async fn`, as [`polder::test!`](polder::test!) does, but with a paused
/// clock: it runs once, on the only host of a [simulated world](crate). The clock is virtual: it
/// stands still while a task is ready, and jumps to the next event when all tasks wait. So tests of
/// timers take no time, and each timer fires at exactly its deadline.
///
/// ```
/// use polder::time::{now, sleep, timeout};
/// use std::time::Duration;
///
/// const MINUTE: Duration = Duration::from_secs(60);
///
/// polder_sim::test! {
///     async fn a_silent_peer_is_given_up_after_a_minute() {
///         let start = now();
///         assert!(timeout(MINUTE, std::future::pending::<()>()).await.is_err());
///         assert_eq!(now() - start, MINUTE);
///     }
/// }
/// # // What the harness does.
/// # polder_sim::__testing::run("example", || async {
/// #     let start = now();
/// #     sleep(MINUTE).await;
/// #     assert!(timeout(MINUTE, std::future::pending::<()>()).await.is_err());
/// #     assert_eq!(now() - start, 2 * MINUTE);
/// # });
/// ```
///
/// * Everything in [`time`](polder::time) has this clock, but [`Instant::now`](std::time::Instant)
///   does not: [`time::now`](polder::time::now) is the one to call.
/// * `time::sleep(duration).await` advances the clock, and the timers until then fire on the way,
///   each at its deadline. Nothing else advances it, and it cannot be resumed: a world has no other
///   clock. A test that needs the system's is one of [`polder::test!`](polder::test!).
/// * Ready tasks run in turn, and timers with equal deadlines fire in the order in which they were
///   set, as in a runtime of one worker.
/// * Sockets, names and [`fs`](polder::fs) are the world's: a test can connect to itself, by
///   loopback addresses, but to nothing outside. The clock stops when data arrives, microseconds
///   after it was sent, so a timeout does not end what is under way.
/// * [`unblock`](polder::unblock) runs its function in line, which takes microseconds of this
///   clock. A thread that wakes a task fails the test, and a nested [`block_on`](polder::block_on)
///   panics.
/// * There is no `limit`. A test fails if nothing will ever happen (a deadlock), if no time passes
///   for 100,000 steps, and after 146 years or ten million steps in all.
///
/// A failure is reported with its time, the last events, and what each task waits for. For other
/// orders of tasks, several hosts, faults and limits there is [`check`](super::check()).
///
/// With the crate `macro_rules_attribute` it can be written as an attribute:
/// `#[apply(polder_sim::test!)]` applies it to one function.
#[macro_export]
macro_rules! test {
    ($($tests:tt)*) => {
        $crate::__polder::__test! { ($crate::__testing::run) $($tests)* }
    };
}

//! Timers that may be late: `Builder::timer_slack`.

use super::*;

use polder::time::sleep;

use crate::probe::join_all;
use crate::support::{eventually, is_in_storm, on_every_backend_alone};

fn with_slack(backend: Backend, workers: usize, slack: Duration) -> Runtime {
    let builder = Runtime::builder().backend(backend).workers(workers);
    builder.timer_slack(slack).build().expect("a runtime")
}

/// A worker that is awake fires what is due and one that sleeps waits for the slack.
///
/// The worker first has to wake an hour after the runtime was made.
#[test]
fn slack_applies_to_sleeping_worker_only() {
    on_every_backend_alone(|backend| {
        let runtime = with_slack(backend, 1, FAR);
        let soon = runtime.spawn(sleep(ms(5)));
        let late = runtime.spawn(sleep(FAR + ms(5)));
        runtime.run_once(Duration::ZERO);
        let sleeps = runtime.next_timeout().expect("there are timers");
        assert!(sleeps > FAR / 2, "it would wake in {sleeps:?}");
        eventually("what is due fires", || {
            runtime.run_once(Duration::ZERO);
            soon.is_finished()
        });
        let sleeps = runtime.next_timeout().expect("there is a timer");
        assert!(sleeps > FAR, "it would wake in {sleeps:?}");
        assert!(!late.is_finished());

        let exact = with_slack(backend, 1, Duration::ZERO);
        let _soon = exact.spawn(sleep(ms(10_000)));
        exact.run_once(Duration::ZERO);
        assert!(exact.next_timeout().expect("there is a timer") <= ms(10_001));
    });
}

/// A worker that busy polls is awake and fires what is due.
#[test]
fn busy_polling_worker_fires_on_time() {
    on_every_backend_alone(|backend| {
        // Far longer than this test takes.
        const LONG: Duration = Duration::from_secs(20);
        let builder = Runtime::builder().backend(backend).timer_slack(FAR);
        let runtime = builder.busy_poll(LONG).build().expect("a runtime");
        // Short idle times, so that the worker expects more of them.
        runtime.block_on(async {
            for _ in 0..20 {
                polder::unblock(|| std::thread::sleep(ms(2))).await;
            }
        });
        let start = Instant::now();
        let soon = runtime.spawn(sleep(ms(5)));
        while !soon.is_finished() {
            runtime.run_once(LONG);
        }
        let took = start.elapsed();
        assert!(took < LONG, "on {backend}: {took:?}");
    });
}

/// Timers with slack come together and none is early.
#[test]
fn slack_coalesces_never_early() {
    on_every_backend_alone(|backend| {
        const SLACK: Duration = Duration::from_millis(40);
        let run = |workers| {
            let before = Instant::now();
            let runtime = with_slack(backend, workers, SLACK);
            let tasks: Vec<_> = (1..=20)
                .map(|n| {
                    runtime.spawn(async move {
                        let deadline = Instant::now() + ms(n);
                        polder::time::sleep_until(deadline).await;
                        assert!(Instant::now() >= deadline, "it is early");
                    })
                })
                .collect();
            runtime.block_on(join_all(tasks));
            before.elapsed()
        };
        // A worker sleeps until then, unless a signal wakes it, or it is awake when they are due,
        // since the machine is loaded.
        eventually("a worker sleeps until then", || {
            run(1) >= SLACK || is_in_storm()
        });
        run(2);
        // The longest slack, and a deadline beyond all clocks.
        let runtime = with_slack(backend, 1, ms(86_400_000));
        let never = runtime.spawn(sleep(Duration::MAX));
        runtime.run_once(Duration::ZERO);
        assert!(!never.is_finished());
    });
}

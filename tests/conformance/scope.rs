//! `Runtime::scope`: tasks that borrow, and a caller that waits for all of them.

use std::cell::Cell;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use polder::event::Event;
use polder::future::yield_now;
use polder::runtime::Scope;
use polder::time::sleep;

use crate::probe::{OnDrop, hold};
use crate::support::{message, on_every_backend, runtime, sized, until, with_every_runtime};

#[test]
fn a_scope_ends_when_all_its_tasks_have_ended() {
    with_every_runtime(|runtime, backend| {
        for _ in 0..sized(backend, 50) {
            let mut numbers = vec![0; 20];
            let ended = AtomicUsize::new(0);
            let output = runtime.scope(async |scope| {
                for (n, number) in numbers.iter_mut().enumerate() {
                    let ended = &ended;
                    scope.spawn(async move {
                        // Some wait for the kernel, and each spawns another task.
                        match n % 4 {
                            0 => sleep(Duration::from_micros(50)).await,
                            _ => yield_now().await,
                        }
                        *number = n;
                        scope.spawn(async move {
                            yield_now().await;
                            ended.fetch_add(1, SeqCst);
                        });
                    });
                }
                "done"
            });
            assert_eq!((output, ended.into_inner()), ("done", 20));
            assert!(numbers.into_iter().eq(0..20));
        }
    });
}

/// Tasks of a scope are awaited there and local ones share cells.
#[test]
fn tasks_awaited_and_local_share_cells() {
    with_every_runtime(|runtime, _| {
        let (text, count) = (String::from("text"), Cell::new(0));
        let length = runtime.scope(async |scope| {
            let length = scope.spawn(async {
                yield_now().await;
                text.len()
            });
            let local = scope.spawn_local(async {
                count.set(count.get() + 1);
                yield_now().await;
                &count
            });
            local.await.set(7);
            length.await
        });
        assert_eq!((length, count.get()), (4, 7));
    });
}

#[test]
fn tasks_of_a_scope_that_are_done_let_others_run() {
    with_every_runtime(|runtime, _| {
        let turns = Cell::new(0);
        runtime.scope(async |scope| {
            let done: Vec<_> = (0..1_000).map(|n| scope.spawn(async move { n })).collect();
            until("all are done", || {
                done.iter().all(|task| task.is_finished())
            })
            .await;
            let others = scope.spawn_local(async {
                loop {
                    turns.set(turns.get() + 1);
                    yield_now().await;
                }
            });
            for (n, task) in done.into_iter().enumerate() {
                assert_eq!(task.await, n);
            }
            others.abort_handle().abort();
        });
        let turns = turns.get();
        assert!(turns >= 5, "the other task had {turns} turns");
    });
}

/// The future panics while tasks borrow from its caller: they are cancelled, and dropped before the
/// panic continues.
#[test]
fn scope_panic_cancels_tasks_first() {
    with_every_runtime(|runtime, _| {
        let (started, dropped) = (Event::new(), AtomicUsize::new(0));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(async |scope| {
                for _ in 0..10 {
                    scope.spawn(async {
                        let _guard = OnDrop(|| {
                            dropped.fetch_add(1, SeqCst);
                        });
                        started.set();
                        pending::<()>().await;
                    });
                }
                started.wait().await;
                panic!("on purpose");
            })
        }));
        let before = dropped.load(SeqCst);
        assert!(before >= 1, "a task was begun, and not dropped");
        assert_eq!(message(&*panic.unwrap_err()), "on purpose");
        runtime.block_on(yield_now());
        assert_eq!(
            dropped.load(SeqCst),
            before,
            "a task lived longer than its scope"
        );
    });
}

/// A panic of a scope's task reaches who awaits it or the scope when all have ended.
#[test]
fn task_panic_reaches_awaiter_or_scope() {
    with_every_runtime(|runtime, _| {
        let others = AtomicUsize::new(0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(async |scope| {
                scope.spawn(async { panic!("on purpose, unseen") });
                scope.spawn(async {
                    sleep(Duration::from_millis(1)).await;
                    others.fetch_add(1, SeqCst);
                });
            });
        }));
        assert_eq!(others.load(SeqCst), 1);
        let panic = panic.unwrap_err();
        assert_eq!(message(&*panic), "a task of the scope panicked");

        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(async |scope| {
                let task = scope.spawn(async { panic!("on purpose, awaited") });
                task.await
            })
        }));
        assert_eq!(message(&*panic.unwrap_err()), "on purpose, awaited");
        assert_eq!(runtime.scope(async |_| 5), 5);
    });
}

#[test]
fn a_task_of_a_scope_can_be_aborted() {
    with_every_runtime(|runtime, _| {
        let dropped = AtomicUsize::new(0);
        runtime.scope(async |scope| {
            let guard = OnDrop(|| {
                dropped.fetch_add(1, SeqCst);
            });
            let task = scope.spawn(hold(guard));
            yield_now().await;
            let abort = task.abort_handle();
            drop(task); // Which has no effect.
            thread::spawn(move || abort.abort());
        });
        assert_eq!(dropped.into_inner(), 1);
    });
}

/// A task that is spawned after the scope's future has panicked is cancelled.
#[test]
fn spawn_after_scopes_panic_is_cancelled() {
    struct Spawns<'scope, 'env>(&'scope Scope<'scope, 'env>, &'scope AtomicUsize);
    impl Drop for Spawns<'_, '_> {
        fn drop(&mut self) {
            let dropped = self.1;
            let guard = OnDrop(move || {
                dropped.fetch_add(1, SeqCst);
            });
            self.0.spawn(hold(guard));
        }
    }
    with_every_runtime(|runtime, _| {
        let dropped = AtomicUsize::new(0);
        let scoped = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(async |scope| {
                let spawns = Spawns(scope, &dropped);
                scope.spawn(async {
                    let _spawns = spawns;
                    pending::<()>().await;
                });
                yield_now().await;
                panic_any("on purpose");
            });
        }));
        assert_eq!(scoped.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert_eq!(dropped.into_inner(), 1);
    });
}

/// Within another runtime, and within the same one.
#[test]
fn scopes_nest() {
    on_every_backend(|backend| {
        let (outer, inner) = (runtime(backend), runtime(backend));
        let sum = Mutex::new(0);
        outer.block_on(async {
            inner.scope(async |scope| {
                for n in 0..5 {
                    let sum = &sum;
                    scope.spawn(async move {
                        sleep(Duration::from_micros(100)).await;
                        *sum.lock().unwrap() += n;
                    });
                }
                inner.scope(async |scope| {
                    scope.spawn(async { *sum.lock().unwrap() += 100 });
                });
                assert!(*sum.lock().unwrap() >= 100);
            });
        });
        assert_eq!(sum.into_inner().unwrap(), 110);
    });
}

/// Forgetting a handle does not end its task: the scope waits until the task completes.
#[test]
fn scope_waits_for_forgotten_handles() {
    with_every_runtime(|runtime, _| {
        let mut number = 0;
        let go_on = Arc::new(Event::new());
        let other = go_on.clone();
        let thread = runtime.scope(async |scope| {
            let task = scope.spawn(async {
                go_on.wait().await;
                number = 5;
            });
            std::mem::forget(task);
            thread::spawn(move || other.set())
        });
        assert_eq!(number, 5);
        thread.join().unwrap();
    });
}

/// A local task of a scope is refused where another worker or another runtime is driven.
///
/// A local task may hold values that must not leave the thread.
#[test]
fn local_task_refused_off_its_worker() {
    on_every_backend(|backend| {
        fn is_refused<'scope>(scope: &'scope Scope<'scope, '_>) {
            let spawned = catch_unwind(AssertUnwindSafe(|| drop(scope.spawn_local(async {}))));
            let panic = spawned.expect_err("it is spawned, and may be where it must not be");
            let words = message(&*panic);
            assert!(words.contains("does not drive"), "{words}");
        }
        let (runtime, other) = (runtime(backend), runtime(backend));
        let has_pool = runtime.workers() > 1;
        let refused = AtomicUsize::new(0);
        runtime.scope(async |scope| {
            other.block_on(async { is_refused(scope) });
            thread::scope(|threads| {
                threads.spawn(|| is_refused(scope));
            });
            scope.spawn(async {
                // Without a pool this is the driving thread.
                if has_pool {
                    is_refused(scope);
                }
                refused.fetch_add(1, SeqCst);
            });
            // Here the local task runs.
            scope.spawn_local(async {}).await;
        });
        assert_eq!(refused.into_inner(), 1);
    });
}

/// A task of a scope is finished once it is done or cancelled.
#[test]
fn task_finished_once_done_or_cancelled() {
    with_every_runtime(|runtime, _| {
        let event = Event::new();
        runtime.scope(async |scope| {
            let done = scope.spawn(async { event.wait().await });
            let cancelled = scope.spawn(pending::<()>());
            for _ in 0..3 {
                yield_now().await;
                assert!(!done.is_finished() && !cancelled.is_finished());
            }
            event.set();
            cancelled.abort_handle().abort();
            until("both are finished", || {
                done.is_finished() && cancelled.is_finished()
            })
            .await;
        });
    });
}

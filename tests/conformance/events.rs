//! `Event` and `Latch`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use polder::event::{Event, Latch};
use polder::{Runtime, TaskSet, future, task};

use crate::probe::join_all;
use crate::support::{
    in_every_runtime, in_every_runtime_alone, on_every_backend, runtime, until, with_every_runtime,
};

#[test]
fn a_set_before_the_wait_is_kept_and_two_are_one() {
    in_every_runtime(async |_| {
        let event = Event::new();
        event.set();
        event.set();
        assert!(event.is_set());
        event.wait().await;
        assert!(!event.is_set());
        assert!(future::poll_once(event.wait()).await.is_none());
        event.set();
        event.reset();
        assert!(future::poll_once(event.wait()).await.is_none());
    });
}

/// A finished operation completes beside a future that always uses up the budget.
///
/// They are polled after the task's budget is used up, each time.
#[test]
fn finished_ends_beside_budget_hog() {
    in_every_runtime(async |_| {
        let busy = || async {
            loop {
                task::consume_budget().await;
            }
        };
        let (event, latch) = (Event::new(), Latch::new());
        event.set();
        latch.set();
        future::or(busy(), event.wait()).await;
        future::or(busy(), latch.wait()).await;
        future::or(busy(), task::consume_budget()).await;
        let done = polder::spawn(async {});
        until("the task is done", || done.is_finished()).await;
        future::or(busy(), done).await;
        let mut tasks = TaskSet::new();
        let abort = tasks.spawn(async {});
        until("the task of the set is done", || abort.is_finished()).await;
        future::or(busy(), async { assert!(tasks.join_next().await.is_some()) }).await;
    });
}

/// A wait is queued by its first poll with any budget left.
///
/// Otherwise two signals were one, and a signal that is reset would not have been.
#[test]
fn wait_queued_by_first_poll_at_any_budget() {
    in_every_runtime(async |_| {
        let event = Event::new();
        let mut waits = [(); 3].map(|()| Box::pin(event.wait()));
        poll_fn(|cx| {
            while pin!(task::consume_budget()).poll(cx).is_ready() {}
            for wait in &mut waits {
                assert!(wait.as_mut().poll(cx).is_pending());
            }
            Poll::Ready(())
        })
        .await;
        event.set();
        event.set();
        let [first, second, third] = waits;
        first.await;
        second.await;
        event.set();
        event.reset();
        third.await;
        assert!(!event.is_set());
    });
}

/// A wait that finds the event set takes the signal with any budget left.
///
/// Otherwise a second signal would be lost, or a later waiter would be released first.
#[test]
fn wait_finds_set_event_at_any_budget() {
    in_every_runtime(async |_| {
        let event = Event::new();
        event.set();
        let [mut first, dropped] = [(); 2].map(|()| Box::pin(event.wait()));
        let mut dropped = Some(dropped);
        poll_fn(|cx| {
            while pin!(task::consume_budget()).poll(cx).is_ready() {}
            assert!(first.as_mut().poll(cx).is_pending());
            event.set();
            let polled = dropped.as_mut().map(|wait| wait.as_mut().poll(cx));
            assert!(polled.is_some_and(|polled| polled.is_pending()));
            Poll::Ready(())
        })
        .await;
        assert!(!event.is_set(), "each wait has a signal");
        event.reset();
        first.await;
        dropped.take();
        event.wait().await;
        assert!(!event.is_set());
    });
}

/// A set from another thread wakes a runtime that sleeps.
#[test]
fn set_elsewhere_wakes_sleeping_runtime() {
    with_every_runtime(|runtime, _| {
        let event = Arc::new(Event::new());
        let answered = Arc::new(Event::new());
        let setter = thread::spawn({
            let (event, answered) = (event.clone(), answered.clone());
            move || {
                for _ in 0..1_000 {
                    event.set();
                    futures_lite::future::block_on(answered.wait());
                }
            }
        });
        runtime.block_on(async {
            for _ in 0..1_000 {
                event.wait().await;
                answered.set();
            }
        });
        setter.join().unwrap();
    });
}

/// Each set releases one waiter in the order in which they came.
#[test]
fn set_releases_waiters_in_order() {
    in_every_runtime_alone(async |_| {
        let event = Arc::new(Event::new());
        let [came, released] = [(); 2].map(|()| Arc::new(std::sync::Mutex::new(Vec::new())));
        let tasks: Vec<_> = (0..5)
            .map(|name| {
                let (event, came, released) = (event.clone(), came.clone(), released.clone());
                polder::spawn(async move {
                    came.lock().unwrap().push(name);
                    event.wait().await;
                    released.lock().unwrap().push(name);
                })
            })
            .collect();
        for expected in 0..5 {
            future::yield_now().await;
            future::yield_now().await;
            assert_eq!(released.lock().unwrap().len(), expected);
            event.set();
        }
        join_all(tasks).await;
        assert_eq!(*released.lock().unwrap(), *came.lock().unwrap());
        assert!(!event.is_set());
    });
}

/// A waiter that gives up after its release passes it on.
#[test]
fn waiter_passes_release_on_when_dropped() {
    in_every_runtime(async |_| {
        let event = Event::new();
        let mut first = Box::pin(event.wait());
        let mut second = Box::pin(event.wait());
        assert!(future::poll_once(&mut first).await.is_none());
        assert!(future::poll_once(&mut second).await.is_none());
        event.set();
        drop(first);
        assert!(future::poll_once(&mut second).await.is_some());
        // Without a waiter, the set is kept.
        let mut third = Box::pin(event.wait());
        assert!(future::poll_once(&mut third).await.is_none());
        event.set();
        drop(third);
        assert!(event.is_set());
    });
}

#[test]
fn many_setters_and_waiters_lose_nothing() {
    on_every_backend(|backend| {
        let event = Arc::new(Event::new());
        let sets = Arc::new(AtomicUsize::new(0));
        // A waiter answers each release, so that no two sets fall together.
        let answered = Arc::new(Event::new());
        let runtime = runtime(backend);
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let (event, answered, sets) = (event.clone(), answered.clone(), sets.clone());
                runtime.spawn(async move {
                    loop {
                        event.wait().await;
                        let done = sets.fetch_add(1, Ordering::Relaxed) + 1 >= 500;
                        answered.set();
                        if done {
                            break;
                        }
                    }
                })
            })
            .collect();
        let setter = thread::spawn(move || {
            for _ in 0..500 + 3 {
                event.set();
                futures_lite::future::block_on(answered.wait());
            }
        });
        runtime.block_on(join_all(waiters));
        setter.join().unwrap();
        assert_eq!(sets.load(Ordering::Relaxed), 503);
    });
}

#[test]
fn a_latch_releases_everyone_then_and_later() {
    on_every_backend(|backend| {
        let latch = Arc::new(Latch::new());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let latch = latch.clone();
                thread::spawn(move || {
                    let runtime = Runtime::builder().backend(backend).build().unwrap();
                    let tasks: Vec<_> = (0..10)
                        .map(|_| {
                            let latch = latch.clone();
                            runtime.spawn(async move { latch.wait().await })
                        })
                        .collect();
                    runtime.block_on(join_all(tasks));
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(2));
        let given_up = latch.wait();
        drop(given_up);
        latch.set();
        latch.set();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(latch.is_set());
        futures_lite::future::block_on(latch.wait());
    });
}

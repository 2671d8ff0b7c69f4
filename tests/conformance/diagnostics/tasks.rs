//! Ids and names of tasks.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;

use polder::{Runtime, future, task};

use crate::support::{in_every_runtime, on_every_backend, with_every_runtime};

/// A task knows its id and name; outside of tasks there is none.
#[test]
fn task_knows_own_id_and_name_only() {
    in_every_runtime(|_| async {
        assert_eq!((task::id(), task::name()), (None, None), "in `block_on`");
        let plain = polder::spawn(async { (task::id(), task::name()) });
        let named = task::Builder::new().name("indexer").spawn(async {
            future::yield_now().await;
            (task::id(), task::name())
        });
        let shard = format!("shard {}", 7);
        let local = task::Builder::new()
            .name(shard)
            .spawn_local(async { (task::id(), task::name()) });
        let ids = [plain.id(), named.id(), local.id()];
        assert_eq!(plain.await, (Some(ids[0]), None));
        assert_eq!(named.await, (Some(ids[1]), Some("indexer".into())));
        assert_eq!(local.await, (Some(ids[2]), Some("shard 7".into())));
        assert_eq!((task::id(), task::name()), (None, None), "in `block_on`");
    });
}

/// A waker that a task wakes as it ends is in no task.
///
/// The end of a task wakes its awaiter last: by then the task's memory may be gone.
#[test]
fn waker_woken_at_task_end_is_in_no_task() {
    struct Asks(Mutex<Vec<(Option<task::Id>, Option<task::Name>)>>);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().push((task::id(), task::name()));
        }
    }
    in_every_runtime(|_| async {
        let asks = Arc::new(Asks(Mutex::default()));
        let waker = Waker::from(asks.clone());
        let shard = format!("shard {}", 7);
        let mut named = task::Builder::new()
            .name(shard)
            .spawn_local(future::yield_now());
        let polled = Pin::new(&mut named).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        named.detach();
        while asks.0.lock().unwrap().is_empty() {
            future::yield_now().await;
        }
        assert_eq!(*asks.0.lock().unwrap(), [(None, None)]);
    });
}

#[test]
fn every_spawn_has_a_form_with_a_name() {
    with_every_runtime(|runtime, _| {
        let name = || async { task::name().map(|name| name.to_string()) };
        let by_handle = thread::spawn({
            let handle = runtime.handle();
            move || {
                task::Builder::new()
                    .name("handle")
                    .spawn_on(name(), &handle)
            }
        });
        let tasks = [
            task::Builder::new()
                .name("runtime")
                .spawn_on(name(), &runtime.handle()),
            task::Builder::new()
                .name("local")
                .spawn_local_on(name(), &runtime),
            by_handle.join().unwrap(),
        ];
        for (task, expected) in tasks.into_iter().zip(["runtime", "local", "handle"]) {
            assert_eq!(runtime.block_on(task).as_deref(), Some(expected));
        }
    });
}

#[test]
fn task_ids_unique_for_all_spawners() {
    with_every_runtime(|runtime, _| {
        let (sender, receiver) = mpsc::channel();
        let spawners: Vec<_> = (0..4)
            .map(|_| {
                let (handle, sender) = (runtime.handle(), sender.clone());
                thread::spawn(move || {
                    for _ in 0..100 {
                        let sender = sender.clone();
                        let task = handle.spawn(async move {
                            let inner = polder::spawn(async { task::id().unwrap() });
                            let ids = [task::id().unwrap(), inner.id()];
                            assert_eq!(inner.await, ids[1]);
                            sender.send(ids).unwrap();
                        });
                        task.detach();
                    }
                })
            })
            .collect();
        spawners.into_iter().for_each(|it| it.join().unwrap());
        runtime.run();
        drop(sender);
        let ids: Vec<_> = receiver.into_iter().flatten().collect();
        let different: HashSet<_> = ids.iter().collect();
        assert_eq!((ids.len(), different.len()), (800, 800));
    });
}

/// A task may drive its own runtime, and others.
#[test]
fn a_task_keeps_its_id_where_it_drives_runtimes() {
    on_every_backend(|backend| {
        let outer = Rc::new(Runtime::builder().backend(backend).build().unwrap());
        let task = task::Builder::new().name("outer").spawn_local_on(
            {
                let outer = outer.clone();
                async move {
                    let own = task::id();
                    let inner = outer.spawn(async { task::id() });
                    while !inner.is_finished() {
                        outer.run_once(std::time::Duration::ZERO);
                        assert_eq!(task::id(), own);
                    }
                    let other = Runtime::builder().backend(backend).build().unwrap();
                    let within = other.block_on(async { task::id() });
                    assert_eq!(within, None, "the future of `block_on` is no task");
                    let there = other.block_on(other.spawn(async { task::id() }));
                    assert!(there.is_some() && there != own);
                    assert_eq!(task::name().unwrap(), "outer");
                    (own, inner.await)
                }
            },
            &outer,
        );
        let (own, inner) = outer.block_on(task);
        assert!(own.is_some() && inner.is_some() && own != inner);
    });
}

//! Rules 48 and 55: what a runtime does when it is dropped or shut down, and that it leaves
//! nothing.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpListener;
use polder::time::sleep;
use polder::{Backend, Handle, Runtime, Task, Timer, future};
#[cfg(target_os = "linux")]
use rustix::process::Resource;

use super::{one_byte, send_byte};
#[cfg(target_os = "linux")]
use crate::child::{entries, in_children, limit, resident};
use crate::probe::{
    Alive, Count, Mailbox, OnDrop, Signal, always_yields, hold, holding, own_waker, poll_with,
    tcp_pair,
};
#[cfg(target_os = "linux")]
use crate::support::eventually;
use crate::support::{
    LIMIT, on_every_backend, runtime, sized, with_every_runtime, with_every_runtime_alone,
    with_every_runtime_of_several, within,
};

/// A runtime that ends serves a task that waits in another executor.
///
/// A task of a pool that waits in another executor.
#[test]
fn ending_runtime_serves_foreign_task() {
    with_every_runtime_of_several(|runtime, _, _| {
        let (here, is_here) = std::sync::mpsc::channel();
        let waits = async move {
            let (mut near, mut far) = tcp_pair().await;
            here.send(()).unwrap();
            futures_lite::future::block_on(async {
                Timer::after(Duration::from_millis(50)).await;
                let later = thread::spawn(|| {
                    thread::sleep(Duration::from_millis(50));
                    futures_lite::future::block_on(async move { far.write_all(b"x").await })
                });
                near.read_exact(&mut [0]).await.unwrap();
                later.join().unwrap().unwrap();
            });
        };
        let task = runtime.spawn(waits);
        is_here.recv_timeout(LIMIT).unwrap();
        drop(runtime);
        assert!(task.is_finished());
    });
}

#[test]
fn dropping_the_runtime_drops_every_future() {
    with_every_runtime(|runtime, _| {
        let alive = Alive::default();
        let guard = || alive.guard();
        let local = |thing| runtime.spawn_local(hold(thing)).detach();

        runtime.block_on(async {
            // Tasks that wait for the kernel or the clock.
            let (mut reader, writer) = tcp_pair().await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let reads = async move { reader.read_exact(&mut [0]).await.unwrap() };
            polder::spawn(holding(guard(), reads)).detach();
            let accepts = async move { drop(listener.accept().await) };
            polder::spawn(holding((guard(), writer), accepts)).detach();
            polder::spawn(holding(guard(), sleep(Duration::from_secs(3_600)))).detach();
            polder::spawn(holding(guard(), always_yields())).detach();
            // A task that owns its own waker, and one that owns its own handle.
            let things = guard();
            polder::spawn(async move {
                let _things = (things, own_waker().await);
                std::future::pending::<()>().await;
            })
            .detach();
            let own = Arc::new(Mutex::new(None));
            *own.lock().unwrap() = Some(polder::spawn(hold((guard(), own.clone()))));
            drop(own);
            future::yield_now().await;
            future::yield_now().await;
        });

        // A task that is not `Send`; a task that holds the last handle.
        local((guard(), Rc::new(()), None));
        local((guard(), Rc::new(()), Some(runtime.handle())));
        // Tasks that spawn in their destructors, in each of the possible ways.
        let spawns: [fn(&Handle, Alive); 3] = [
            |_, alive| {
                polder::spawn(hold(alive.guard())).detach();
            },
            |_, alive| {
                polder::spawn_local(hold((alive.guard(), Rc::new(())))).detach();
            },
            |handle, alive| {
                handle.spawn(hold(alive.guard())).detach();
            },
        ];
        let spawned = Rc::new(Cell::new(0));
        for spawn in spawns {
            let (handle, alive, spawned) = (runtime.handle(), alive.clone(), spawned.clone());
            let things = OnDrop(move || {
                spawn(&handle, alive.clone());
                spawned.set(spawned.get() + 1);
            });
            runtime.spawn_local(hold(things)).detach();
        }
        // Futures that wake another task, use sockets and timers, and drive a runtime in their
        // destructors.
        let wakers = Mailbox::<Waker>::default();
        for _ in 0..3 {
            let (mine, others) = (wakers.clone(), wakers.clone());
            let wakes = OnDrop(move || others.try_receive().into_iter().for_each(Waker::wake));
            let task = async move {
                mine.send(own_waker().await);
                std::future::pending::<()>().await;
            };
            runtime.spawn(holding((guard(), wakes), task)).detach();
        }
        let count = spawned.clone();
        let nested = OnDrop(move || {
            polder::block_on(async {
                let (mut a, mut b) = tcp_pair().await;
                a.write_all(b"x").await.unwrap();
                b.read_exact(&mut [0]).await.unwrap();
                sleep(Duration::from_millis(1)).await;
                polder::spawn(async {}).await;
            });
            count.set(count.get() + 1);
        });
        runtime.spawn_local(hold(nested)).detach();
        let polls = OnDrop({
            let wakes = Count::new();
            let waker = wakes.waker();
            move || {
                let mut timer = Timer::after(Duration::from_secs(3_600));
                assert!(poll_with(&mut timer, &waker).is_pending());
                assert_eq!(wakes.woken(), 0);
            }
        });
        runtime.spawn(hold(polls)).detach();
        // A chain of tasks, each of which holds the next.
        let mut chain = runtime.spawn(hold(guard()));
        for _ in 0..1_000 {
            chain = runtime.spawn(hold2(guard(), chain));
        }
        chain.detach();
        // Cancelled already, and not yet dropped.
        drop(runtime.spawn(hold(guard())));
        while runtime.run_once(Duration::ZERO) && wakers.is_empty() {}
        runtime.run_once(Duration::ZERO);
        // Tasks that are never polled.
        runtime.spawn(hold(guard())).detach();
        let kept = runtime.spawn_local(hold(guard()));
        let handle = runtime.handle();
        assert!(alive.count() > 1_000, "they were to be dropped now");
        drop(runtime);
        assert_eq!(alive.count(), 0, "futures outlive their runtime");
        assert_eq!(spawned.get(), 4, "destructors were not run");
        assert!(kept.is_finished());
        handle.spawn(hold(alive.guard())).detach();
        assert_eq!(alive.count(), 0, "it was spawned after the end");
    });
}

/// A task is not finished while its future is dropped.
#[test]
fn task_unfinished_while_future_drops() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let task = Rc::new(RefCell::new(None::<Task<()>>));
        let seen = Rc::new(Cell::new(None));
        let guard = OnDrop({
            let (task, seen) = (task.clone(), seen.clone());
            move || seen.set(task.borrow().as_ref().map(Task::is_finished))
        });
        *task.borrow_mut() = Some(runtime.spawn_local(hold(guard)));
        runtime.run_once(Duration::ZERO);
        drop(runtime);
        assert_eq!(seen.get(), Some(false));
        assert!(task.borrow().as_ref().unwrap().is_finished());
    });
}

async fn hold2<A, B>(a: A, b: B) {
    hold((a, b)).await
}

/// How a destructor spawns.
#[derive(Clone)]
enum Spawns {
    Anywhere,
    Here,
    By(Handle),
    /// On the first worker.
    On(Handle),
}

impl Spawns {
    fn spawn(&self, guard: impl Send + 'static) {
        match self {
            Spawns::Anywhere => polder::spawn(hold(guard)).detach(),
            Spawns::Here => polder::spawn_local(hold(guard)).detach(),
            Spawns::By(handle) => handle.spawn(hold(guard)).detach(),
            Spawns::On(handle) => handle.spawn_on_worker(0, || hold(guard)).detach(),
        }
    }
}

/// A value that spawns a task holding the next such value in its destructor, until `left` is zero.
struct SpawnsTheNext {
    left: usize,
    spawns: Spawns,
    dropped: Arc<AtomicUsize>,
}

impl Drop for SpawnsTheNext {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, SeqCst);
        if self.left > 0 {
            self.spawns.spawn(SpawnsTheNext {
                left: self.left - 1,
                spawns: self.spawns.clone(),
                dropped: self.dropped.clone(),
            });
        }
    }
}

/// Drops runtimes with a task that spawns a task in its destructor, which spawns the next one in
/// its destructor, and so on: `count` in a row, in each way to spawn. Does the same with the handle
/// of a runtime that has ended. Returns the number of tasks dropped in each case.
fn dropped_in_a_row(backend: Backend, count: usize) -> Vec<usize> {
    let mut all = Vec::new();
    let mut first = |spawns| {
        let dropped = Arc::new(AtomicUsize::new(0));
        all.push(dropped.clone());
        let left = count - 1;
        SpawnsTheNext {
            left,
            spawns,
            dropped,
        }
    };
    let by: fn(Handle) -> Spawns = Spawns::By;
    for ways in [|_| Spawns::Anywhere, |_| Spawns::Here, by, Spawns::On] {
        for is_local in [false, true] {
            let runtime = runtime(backend);
            let (first, has_begun) = (first(ways(runtime.handle())), Signal::default());
            let begun = has_begun.clone();
            let task = async move {
                begun.send(());
                hold(first).await
            };
            if is_local {
                runtime.spawn_local(task).detach();
            } else {
                // With several workers, it is dropped on one of their threads.
                runtime.spawn(task).detach();
            }
            runtime.block_on(has_begun.receive());
        }
    }
    for ways in [by, Spawns::On] {
        drop(first(ways(runtime(backend).handle())));
    }
    all.iter().map(|dropped| dropped.load(SeqCst)).collect()
}

/// Tasks that destructors spawn at the end are dropped one after the other.
#[test]
fn spawns_in_destructors_dropped_in_turn() {
    on_every_backend(|backend| {
        let count = sized(backend, 20_000);
        assert_eq!(dropped_in_a_row(backend, count), [count; 10]);
    });
}

/// A task that spawns itself again when it is dropped does not keep its runtime from ending.
#[test]
fn respawning_destructor_does_not_prevent_end() {
    on_every_backend(|backend| {
        if backend == Backend::default() {
            for dropped in dropped_in_a_row(backend, usize::MAX) {
                assert!(dropped > 100_000, "only {dropped} were dropped");
            }
        }
    });
}

/// A runtime ends within the destructor of a task that is spawned too late.
///
/// The queue of the outer runtime has tasks of the inner runtime, which waits until they are
/// dropped.
#[test]
fn runtime_ends_in_late_tasks_destructor() {
    on_every_backend(|backend| {
        let alive = Alive::default();
        let guards = alive.clone();
        let ends_another = OnDrop(move || {
            let inner = runtime(backend);
            let (handle, guards) = (inner.handle(), guards.clone());
            let spawns = OnDrop(move || {
                for _ in 0..3 {
                    handle.spawn(hold(guards.guard())).detach();
                }
            });
            inner.spawn(hold(spawns)).detach();
        });
        let gone = runtime(backend).handle();
        gone.spawn(hold(ends_another)).detach();
        assert_eq!(alive.count(), 0);
    });
}

/// Dropping the runtime waits for no task that is refused.
///
/// Otherwise it would end only when others spawn no more.
#[test]
fn drop_waits_for_no_refused_task() {
    on_every_backend(|backend| {
        let runtime = runtime(backend);
        let (closes, is_closing) = mpsc::channel();
        let (refused, is_refused) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel();
        let spawner = thread::spawn({
            let handle = runtime.handle();
            move || {
                is_closing.recv_timeout(LIMIT).unwrap();
                let seen = Arc::new(Mutex::new(None));
                let waits = OnDrop({
                    let seen = seen.clone();
                    move || {
                        refused.send(()).unwrap();
                        let is_over = has_ended.recv_timeout(LIMIT / 4);
                        // It is too late for that runtime, but not for others.
                        polder::block_on(sleep(Duration::ZERO));
                        *seen.lock().unwrap() = Some(is_over);
                    }
                });
                handle.spawn(hold(waits)).detach();
                seen.lock().unwrap().take()
            }
        });
        let lets_spawn = OnDrop(move || {
            closes.send(()).unwrap();
            is_refused.recv_timeout(LIMIT).unwrap();
        });
        let begun = Signal::default();
        let has_begun = begun.clone();
        let first = async move {
            begun.send(());
            hold(lets_spawn).await
        };
        runtime.spawn(first).detach();
        runtime.block_on(has_begun.receive());
        drop(runtime);
        // (It may be gone, if that took too long.)
        let _ = ended.send(());
        let seen = spawner.join().unwrap();
        assert_eq!(seen, Some(Ok(())), "the drop waited for a refused task");
    });
}

/// A future is dropped while events of the socket arrive that its destructor uses.
///
/// A socket keeps the waker of the task that waits for it, and an event wakes the task directly. So
/// a wake must not drop anything that belongs to the task.
#[test]
fn destructor_uses_socket_during_events() {
    on_every_backend(|backend| {
        for way in 0..3 {
            let alive = Alive::default();
            let guard = alive.guard();
            let runtime = runtime(backend);
            let (mut peer, task) = runtime.block_on(async {
                let (stream, mut peer) = tcp_pair().await;
                let mut reader = stream.clone();
                let task = polder::spawn(async move {
                    let _on_drop = OnDrop(move || {
                        let _guard = &guard;
                        let mut stream = stream.clone();
                        let mut bytes = [0; 8];
                        let _ = poll_with(&mut stream.read(&mut bytes), Waker::noop());
                        let _ = stream.shutdown(std::net::Shutdown::Both);
                    });
                    loop {
                        reader.read_exact(&mut [0]).await.unwrap();
                    }
                });
                // The task waits again, with the same waker.
                for _ in 0..3 {
                    peer.write_all(&[1]).await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                }
                (peer, task)
            });
            // An event that has not been delivered.
            std::io::Write::write_all(&mut super::blocking(&mut peer), &[1]).unwrap();
            match way {
                0 => drop(runtime),
                1 => drop(runtime.block_on(task.cancel())),
                _ => {
                    runtime.block_on(sleep(Duration::from_millis(1)));
                    drop(task);
                    runtime.block_on(async {
                        while alive.count() > 0 {
                            future::yield_now().await;
                        }
                    });
                }
            }
            assert_eq!(alive.count(), 0, "way {way}");
        }
    });
}

/// Dropping the runtime races with wakes cancels and spawns.
///
/// Another thread wakes, cancels and spawns while runtimes come and go.
#[test]
fn drop_races_with_wakes_cancels_spawns() {
    on_every_backend(|backend| {
        #[derive(Default)]
        struct Target {
            handle: Option<Handle>,
            wakers: Vec<Waker>,
            tasks: Vec<Task<()>>,
        }
        let target = Arc::new(Mutex::new(Target::default()));
        let alive = Alive::default();
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..2)
            .map(|me| {
                let (target, stop, alive) = (target.clone(), stop.clone(), alive.clone());
                thread::spawn(move || {
                    let mut round = me;
                    while !stop.load(SeqCst) {
                        round += 1;
                        // Wakers and tasks are used without holding the lock.
                        let (handle, waker, task) = {
                            let mut target = target.lock().unwrap();
                            let waker = match target.wakers.len() {
                                0 => None,
                                n => Some(target.wakers[round % n].clone()),
                            };
                            (target.handle.clone(), waker, target.tasks.pop())
                        };
                        if let Some(waker) = waker {
                            waker.wake();
                        }
                        drop(task);
                        if let Some(handle) = handle {
                            handle.spawn(hold(alive.guard())).detach();
                        }
                    }
                })
            })
            .collect();
        for round in 0..sized(backend, 2_000) {
            let runtime = runtime(backend);
            let mine = Alive::default();
            let wakers = Mailbox::default();
            for _ in 0..8 {
                let (guard, wakers) = (mine.guard(), wakers.clone());
                let task = runtime.spawn(async move {
                    let _guard = guard;
                    wakers.send(own_waker().await);
                    loop {
                        future::yield_now().await;
                        std::future::pending::<()>().await;
                    }
                });
                target.lock().unwrap().tasks.push(task);
            }
            for _ in 0..8 {
                runtime.spawn(hold(mine.guard())).detach();
            }
            {
                let mut target = target.lock().unwrap();
                target.handle = Some(runtime.handle());
            }
            runtime.run_once(Duration::ZERO);
            while let Some(waker) = wakers.try_receive() {
                target.lock().unwrap().wakers.push(waker);
            }
            for _ in 0..round % 3 {
                runtime.run_once(Duration::ZERO);
            }
            drop(runtime);
            assert_eq!(
                mine.count(),
                0,
                "futures outlive their runtime, number {round}"
            );
            // Some wakers and tasks stay for the next round.
            let mut target = target.lock().unwrap();
            if round % 2 == 0 {
                target.wakers.clear();
            }
        }
        stop.store(true, SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(alive.count(), 0, "futures were spawned and never dropped");
    });
}

/// A thousand runtimes leave no descriptor thread or memory.
#[cfg(target_os = "linux")]
#[test]
fn thousand_runtimes_leave_no_memory() {
    let rule = |backend| {
        let one = |round: usize| {
            let runtime = runtime(backend);
            let alive = Alive::default();
            if round % 4 == 0 {
                let _ = runtime.backend_fd();
            }
            let handle = runtime.handle();
            let task = runtime.spawn(async move {
                let (a, b) = tcp_pair().await;
                future::zip(one_byte(a), send_byte(b)).await;
                sleep(Duration::from_micros(50)).await;
            });
            // Without sleeping: on a busy machine a thousand sleeps take long.
            while !task.is_finished() {
                runtime.run_once(Duration::ZERO);
            }
            runtime.block_on(task);
            // Left until the end of the runtime: a task with a socket, a timer, a buffer and a
            // handle.
            let guard = alive.guard();
            runtime
                .spawn(async move {
                    let _things = (guard, vec![1_u8; 10_000], handle);
                    let (a, _b) = tcp_pair().await;
                    let _ = polder::time::timeout(Duration::from_secs(3_600), one_byte(a)).await;
                })
                .detach();
            for _ in 0..5 {
                runtime.run_once(Duration::ZERO);
            }
            assert_eq!(alive.count(), 1);
            drop(runtime);
            assert_eq!(alive.count(), 0);
        };
        let left = || [entries("/proc/self/fd"), entries("/proc/self/task")];
        (0..100).for_each(one);
        let (left_before, memory_before) = (left(), resident());
        (0..sized(backend, 1_000)).for_each(one);
        // (The system may list a thread for a while after it was joined.)
        eventually("no descriptor or thread is left", || {
            left()
                .iter()
                .zip(&left_before)
                .all(|(now, before)| now <= before)
        });
        let more = resident().saturating_sub(memory_before);
        // A thousand leaked queues or buffers would be more.
        assert!(more < 3_000_000, "{more} bytes more memory");
    };
    in_children(rule);
}

/// Shutdown lets tasks finish and counts those that did not.
#[test]
fn shutdown_lets_tasks_finish_counts_rest() {
    on_every_backend(|backend| {
        let done = Arc::new(AtomicUsize::new(0));
        let alive = Alive::default();
        let fill = |sleepers: usize, endless: usize| {
            let runtime = runtime(backend);
            for _ in 0..sleepers {
                let done = done.clone();
                let task = async move {
                    sleep(Duration::from_millis(2)).await;
                    polder::spawn(async move { done.fetch_add(1, SeqCst) }).detach();
                };
                runtime.spawn(holding(alive.guard(), task)).detach();
            }
            for index in 0..endless {
                match index % 2 {
                    0 => runtime.spawn(hold(alive.guard())).detach(),
                    _ => runtime.spawn_local(hold(alive.guard())).detach(),
                }
            }
            runtime
        };
        // All tasks end by themselves, so the limit is not waited for.
        assert_eq!(fill(10, 0).shutdown(Duration::MAX).task_count(), 0);
        assert_eq!((done.swap(0, SeqCst), alive.count()), (10, 0));
        assert_eq!(fill(0, 0).shutdown(Duration::ZERO).task_count(), 0);
        // Some tasks never end. The time that the others need depends on the machine, so we double
        // the limit until it is enough.
        let mut limit = Duration::from_millis(100);
        loop {
            let runtime = fill(10, 3);
            let start = Instant::now();
            let cancelled = runtime.shutdown(limit).task_count();
            assert!(start.elapsed() >= limit, "it did not wait");
            assert_eq!(alive.count(), 0);
            match done.swap(0, SeqCst) {
                10 if cancelled == 3 => break,
                // Pool workers may finish one after they were counted.
                finished => assert!(cancelled > 3, "{cancelled} cancelled, {finished} finished"),
            }
            limit *= 2;
        }
        // With a limit of zero, whether the tasks were polled before or not.
        assert_eq!(fill(0, 4).shutdown(Duration::ZERO).task_count(), 4);
        let runtime = fill(0, 4);
        runtime.run_once(Duration::ZERO);
        assert_eq!(runtime.shutdown(Duration::ZERO).task_count(), 4);
        assert_eq!(alive.count(), 0);
        // Tasks that are always ready do not block the shutdown forever.
        let runtime = fill(0, 0);
        let workers = runtime.workers();
        for _ in 0..workers {
            runtime.spawn(always_yields()).detach();
        }
        let left = runtime.shutdown(Duration::from_millis(5));
        assert_eq!(left.task_count(), workers);
    });
}

/// The runtime sleeps while it waits for the last task.
#[test]
fn waiting_for_last_task_sleeps() {
    with_every_runtime_alone(|runtime, _| {
        let handle = runtime.handle();
        let parks = || handle.metrics().workers[0].parks;
        // The worker sleeps for each of these timers.
        let task = runtime.spawn(async {
            for _ in 0..5 {
                sleep(Duration::from_millis(2)).await;
            }
        });
        task.detach();
        let before = parks();
        let left = runtime.shutdown(LIMIT);
        assert_eq!(left.task_count(), 0, "{left}");
        let slept = parks() - before;
        assert!(slept >= 5, "it slept {slept} times");
    });
}

#[test]
fn a_turn_within_a_task_drives_the_others() {
    on_every_backend(|backend| {
        let runtime = Rc::new(runtime(backend));
        let order = Rc::new(RefCell::new(Vec::new()));
        let log = |what: &'static str| order.borrow_mut().push(what);
        let task = runtime.spawn_local({
            let (runtime, order) = (runtime.clone(), order.clone());
            async move {
                let log = |what| order.borrow_mut().push(what);
                let inner = polder::spawn_local({
                    let order = order.clone();
                    async move {
                        order.borrow_mut().push("inner");
                        future::yield_now().await;
                        let (a, b) = tcp_pair().await;
                        future::zip(one_byte(a), send_byte(b)).await;
                        sleep(Duration::from_millis(1)).await;
                        order.borrow_mut().push("inner again");
                    }
                });
                // This task is woken meanwhile, and runs again only after it has returned.
                let waker = own_waker().await;
                while !inner.is_finished() {
                    waker.wake_by_ref();
                    runtime.run_once(Duration::from_millis(1));
                }
                log("outer");
                // Every way of driving works.
                assert_eq!(runtime.block_on(polder::spawn(async { 8 })), 8);
                future::yield_now().await;
                drop(runtime);
                log("the end");
            }
        });
        log("begin");
        runtime.block_on(task);
        let expected = ["begin", "inner", "inner again", "outer", "the end"];
        assert_eq!(*order.borrow(), expected);
        assert_eq!(Rc::strong_count(&runtime), 1);
    });
}

/// A thread-local value may need the runtime in its destructor, which drives it.
#[test]
fn a_runtime_is_driven_while_a_thread_ends() {
    struct Kept(Option<Runtime>, Alive);
    impl Drop for Kept {
        fn drop(&mut self) {
            let runtime = self.0.take().unwrap();
            // A panic while a thread ends aborts the whole process.
            let result = catch_unwind(AssertUnwindSafe(|| {
                runtime.block_on(async {
                    let (a, b) = tcp_pair().await;
                    future::zip(one_byte(a), send_byte(b)).await;
                    sleep(Duration::from_millis(1)).await;
                });
                runtime.spawn(hold(self.1.guard())).detach();
                runtime.spawn_local(hold(self.1.guard())).detach();
                runtime.run_once(Duration::ZERO);
                runtime.run_once(Duration::ZERO);
                runtime.block_on(async { polder::spawn_local(async { 1 }).await })
            }));
            drop(runtime);
            OUTCOMES.lock().unwrap().push(result.is_ok());
        }
    }
    static OUTCOMES: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    thread_local! {
        static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
    }
    on_every_backend(|backend| {
        let alive = Alive::default();
        for drives_before in [false, true] {
            let alive = alive.clone();
            let thread = thread::spawn(move || {
                if drives_before {
                    runtime(backend).block_on(async {});
                }
                let runtime = runtime(backend);
                KEPT.with_borrow_mut(|kept| {
                    runtime.block_on(async {});
                    *kept = Some(Kept(Some(runtime), alive));
                });
            });
            let limit = Duration::from_secs(20);
            within(limit, "the end of the thread", || thread.join().unwrap());
            assert_eq!(
                OUTCOMES.lock().unwrap().pop(),
                Some(true),
                "it is no runtime there"
            );
        }
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_leaked_runtime_harms_nothing() {
    with_every_runtime_alone(|leaked, backend| {
        let alive = Alive::default();
        let (mut stream, mut peer, timer) = leaked.block_on(async {
            let (mut stream, peer) = tcp_pair().await;
            let mut timer = Timer::after(Duration::from_millis(20));
            assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            assert!(future::poll_once(&mut timer).await.is_none());
            (stream, peer, timer)
        });
        let handle = leaked.handle();
        let signal = Signal::default();
        let waits = signal.clone();
        let begun = leaked.spawn(holding(alive.guard(), async move {
            waits.receive().await;
        }));
        leaked.run_once(Duration::ZERO);
        std::mem::forget(leaked);
        // Its tasks accept wakes, cancels and further tasks, and never run.
        for _ in 0..1_000 {
            handle.spawn(async {}).detach();
        }
        signal.send(());
        let mut begun = begun;
        runtime(backend).block_on(async {
            timer.await;
            future::zip(
                async { stream.read_exact(&mut [0]).await.unwrap() },
                async { peer.write_all(b"x").await.unwrap() },
            )
            .await;
            assert!(future::poll_once(&mut begun).await.is_none());
        });
        thread::spawn(move || drop(begun)).join().unwrap();
        assert_eq!(alive.count(), 1);
        polder::block_on(async { polder::spawn(async {}).await });
    });
}

/// A runtime that is dropped while a panic unwinds drops its futures.
#[test]
fn unwinding_drop_drops_futures() {
    on_every_backend(|backend| {
        let alive = Alive::default();
        let guards = alive.clone();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let runtime = runtime(backend);
            runtime.spawn(hold(guards.guard())).detach();
            runtime.block_on(async {
                polder::spawn(hold(guards.guard())).detach();
                sleep(Duration::from_millis(1)).await;
                panic!("on purpose");
            })
        }));
        assert!(result.is_err());
        assert_eq!(alive.count(), 0);
    });
}

/// A handle tells the backend as its runtime does also from afar and after its end.
#[test]
fn handle_names_backend_after_end() {
    with_every_runtime(|runtime, backend| {
        let handle = runtime.handle();
        assert_eq!((runtime.backend(), handle.backend()), (backend, backend));
        let here = runtime.block_on(async { Handle::current().backend() });
        let there = runtime.block_on(runtime.spawn(async { Handle::current().backend() }));
        assert_eq!((here, there), (backend, backend));
        let thread = thread::spawn({
            let handle = handle.clone();
            move || handle.backend()
        });
        assert_eq!(thread.join().unwrap(), backend);
        drop(runtime);
        assert_eq!(handle.backend(), backend);
    });
}

/// A destructor at the end may wait for what it spawns.
///
/// Each destructor spawns a task and waits for it; the task's destructor does the same.
#[test]
fn destructor_at_end_may_wait_for_spawn() {
    struct Again(Handle, u32, Arc<AtomicUsize>);
    impl Drop for Again {
        fn drop(&mut self) {
            self.2.fetch_add(1, SeqCst);
            if self.1 > 0 {
                let next = Again(self.0.clone(), self.1 - 1, self.2.clone());
                let task = self.0.spawn(hold(next));
                assert!(polder::block_on(task.fallible()).is_none());
            }
        }
    }
    on_every_backend(|backend| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let runtime = runtime(backend);
        let first = Again(runtime.handle(), 5, dropped.clone());
        runtime.spawn(hold(first)).detach();
        drop(runtime);
        assert_eq!(dropped.load(SeqCst), 6);
    });
}

/// If a worker's thread cannot start, the tasks that were sent to it are dropped.
///
/// A task for a worker whose thread could not be started is never polled. Another worker drops it,
/// so that `build` returns.
#[cfg(target_os = "linux")]
#[test]
fn failed_thread_start_drops_sent_tasks() {
    const WORKERS: usize = 8;
    const STACK: usize = 64 << 20;
    let rule = |backend| {
        // Room for the stacks of some of the workers.
        let space = crate::support::address_space();
        limit(Resource::As, space + 4 * STACK as u64);
        let alive = Alive::default();
        let (guard, sent) = (alive.guard(), Arc::new(AtomicBool::new(false)));
        let (things, is_sent) = (Mutex::new(Some(guard)), sent.clone());
        let built = Runtime::builder()
            .backend(backend)
            .workers(WORKERS)
            .thread_stack_size(STACK)
            .on_thread_start(move |worker| {
                if worker == 0 {
                    let things = things.lock().unwrap().take();
                    let last = Handle::current().spawn_on_worker(WORKERS - 1, move || hold(things));
                    last.detach();
                    is_sent.store(true, SeqCst);
                }
            })
            .build();
        assert!(built.is_err(), "there is room for all threads");
        assert!(sent.load(SeqCst), "the first worker has not started");
        assert_eq!(alive.count(), 0);
    };
    in_children(rule);
}

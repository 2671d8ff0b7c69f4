//! Several workers: rule 56, and hostile or careless use.
//!
//! (Most other rules run with several workers too: see [`support`](crate::support).) A rule that
//! needs one task on each worker [`spread`]s them.

use std::cell::Cell;
use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use polder::diagnostics::Wait;
use polder::event::Event;
use polder::event::Latch;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpStream, UdpSocket};
use polder::time::{sleep, timeout};
use polder::{Backend, Handle, Runtime, Task, Timer, future};
#[cfg(target_os = "linux")]
use rustix::process::Resource;

#[cfg(unix)]
use crate::child::{allow_descriptors, in_children};
#[cfg(target_os = "linux")]
use crate::child::{entries, limit, no_more, resident, sleeps_of, threads_called};
use crate::probe::{
    Alive, Mailbox, OnDrop, Signal, hold, join_all, own_waker, poll_with, tcp_pair,
};
use crate::support::{
    LIMIT, eventually, message, on_every_backend, on_every_backend_alone,
    on_every_backend_with_several, runtime_of, share, with_every_runtime_of_several,
};

/// The full size on the default backend, a tenth of it on the others: there is no run with one
/// worker here.
fn sized(backend: Backend, full: usize) -> usize {
    share(backend == Backend::default(), full)
}

/// Runs one future on each worker: the tasks block their threads until all have started.
fn spread<F>(runtime: &Runtime, future: impl Fn(usize) -> F) -> Vec<Task<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let workers = runtime.workers();
    let barrier = Arc::new(Barrier::new(workers));
    (0..workers)
        .map(|index| {
            let (barrier, future) = (barrier.clone(), future(index));
            runtime.spawn(async move {
                barrier.wait();
                future.await
            })
        })
        .collect()
}

fn here() -> ThreadId {
    thread::current().id()
}

// 75: a task that is not `Send` stays on its worker.

/// Counts its polls and its drop on threads other than that of its first poll.
struct OnOneThread<F> {
    future: Pin<Box<F>>,
    thread: Option<ThreadId>,
    elsewhere: Arc<AtomicUsize>,
}

impl<F: Future> OnOneThread<F> {
    fn new(future: F, elsewhere: &Arc<AtomicUsize>) -> OnOneThread<F> {
        OnOneThread {
            future: Box::pin(future),
            thread: None,
            elsewhere: elsewhere.clone(),
        }
    }
}

impl<F: Future> Future for OnOneThread<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if *self.thread.get_or_insert(here()) != here() {
            self.elsewhere.fetch_add(1, SeqCst);
        }
        self.future.as_mut().poll(cx)
    }
}

impl<F> Drop for OnOneThread<F> {
    fn drop(&mut self) {
        if self.thread.is_some_and(|thread| thread != here()) {
            self.elsewhere.fetch_add(1, SeqCst);
        }
    }
}

/// A future that is not send is polled and dropped only on its worker.
#[test]
fn local_future_polled_and_dropped_on_worker() {
    with_every_runtime_of_several(|runtime, backend, _| {
        let elsewhere = Arc::new(AtomicUsize::new(0));
        let alive = Alive::default();
        let signals: Arc<Vec<Signal>> = Arc::new((0..40).map(|_| Signal::default()).collect());
        let tasks: Mailbox<Task<()>> = Mailbox::default();
        let stop = Arc::new(AtomicBool::new(false));
        // Wakes and cancels tasks, from two plain threads and from one task on each worker.
        let disturb = {
            let (signals, tasks) = (signals.clone(), tasks.clone());
            move |round: usize| {
                signals[round * 7 % signals.len()].send(());
                if round % 5 == 0 {
                    drop(tasks.try_receive());
                }
            }
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (disturb, stop) = (disturb.clone(), stop.clone());
                thread::spawn(move || {
                    for round in 0.. {
                        if stop.load(SeqCst) {
                            break;
                        }
                        disturb(round);
                    }
                })
            })
            .collect();
        let spawn = {
            let (signals, tasks) = (signals.clone(), tasks.clone());
            let (alive, elsewhere) = (alive.clone(), elsewhere.clone());
            move |round: usize| {
                let (signals, guard) = (signals.clone(), alive.guard());
                let future = async move {
                    let _guard = (guard, Rc::new(()));
                    for step in 0..round % 4 {
                        signals[(round + step) % signals.len()].receive().await;
                    }
                    if round % 3 == 0 {
                        sleep(Duration::from_micros(50)).await;
                    }
                };
                tasks.send(polder::spawn_local(OnOneThread::new(future, &elsewhere)));
                // Bounds the number of tasks alive at a time.
                if tasks.count() > 500 {
                    drop(tasks.try_receive());
                }
            }
        };
        let disturbers = spread(&runtime, |index| {
            let (disturb, spawn, stop) = (disturb.clone(), spawn.clone(), stop.clone());
            async move {
                let mut round = index;
                while !stop.load(SeqCst) {
                    round += 1;
                    disturb(round);
                    if round % 8 == 0 {
                        spawn(round);
                    }
                    future::yield_now().await;
                }
            }
        });
        runtime.block_on(async {
            for round in 0..sized(backend, 4_000) {
                spawn(round);
                if round % 8 == 0 {
                    future::yield_now().await;
                }
            }
            stop.store(true, SeqCst);
            join_all(disturbers).await;
            while let Some(task) = tasks.try_receive() {
                task.cancel().await;
            }
        });
        runtime.run();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(elsewhere.load(SeqCst), 0, "polls or drops on other threads");
        assert_eq!(alive.count(), 0);
    });
}

/// `block_on`'s future and local tasks stay on the thread that drives.
#[test]
fn block_on_and_local_stay_on_driver() {
    with_every_runtime_of_several(|runtime, _, workers| {
        let main = here();
        let elsewhere = Arc::new(AtomicUsize::new(0));
        let questions = Mailbox::<usize>::default();
        let answers = Mailbox::<usize>::default();
        let echoes = spread(&runtime, |_| {
            let (questions, answers) = (questions.clone(), answers.clone());
            async move {
                loop {
                    match questions.receive().await {
                        0 => return here(),
                        n => answers.send(n),
                    }
                }
            }
        });
        let shared = Rc::new(Cell::new(0));
        let local = runtime.spawn_local(OnOneThread::new(
            {
                let (questions, answers, shared) =
                    (questions.clone(), answers.clone(), shared.clone());
                async move {
                    for _ in 0..200 {
                        questions.send(1);
                        shared.set(shared.get() + answers.receive().await);
                        assert_eq!(here(), main);
                    }
                }
            },
            &elsewhere,
        ));
        runtime.block_on(OnOneThread::new(
            async {
                local.await;
                for _ in 0..200 {
                    questions.send(1);
                    shared.set(shared.get() + answers.receive().await);
                    assert_eq!(here(), main);
                    // A task that a worker's task spawns locally stays on that worker.
                    if shared.get() % 20 == 0 {
                        polder::spawn(async {
                            let outer = here();
                            let inner = polder::spawn_local(async {
                                let _not_sent = Rc::new(());
                                future::yield_now().await;
                                here()
                            });
                            assert_eq!(inner.await, outer);
                        })
                        .await;
                    }
                }
                for _ in 0..workers {
                    questions.send(0);
                }
                let threads: HashSet<_> = join_all(echoes).await.into_iter().collect();
                assert!(
                    !threads.contains(&main),
                    "tasks run on the workers' threads"
                );
            },
            &elsewhere,
        ));
        assert_eq!((shared.get(), elsewhere.load(SeqCst)), (400, 0));
    });
}

// 56: sharing out.

#[test]
fn all_workers_may_block_at_once() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        let handle = runtime.handle();
        for round in 0..sized(backend, 300) {
            let barrier = Arc::new(Barrier::new(workers));
            let block = move |handle: Handle| {
                let tasks: Vec<_> = (0..workers)
                    .map(|_| {
                        let barrier = barrier.clone();
                        handle.spawn(async move { barrier.wait().is_leader() })
                    })
                    .collect();
                join_all(tasks)
            };
            // Spawned by the driving future, by a plain thread, and by a task.
            let leaders = match round % 3 {
                0 => runtime.block_on(block(handle.clone())),
                1 => {
                    let handle = handle.clone();
                    let thread =
                        thread::spawn(move || futures_lite::future::block_on(block(handle)));
                    thread.join().unwrap()
                }
                _ => {
                    let handle = handle.clone();
                    runtime.block_on(runtime.spawn(async move { block(handle).await }))
                }
            };
            assert_eq!(leaders.iter().filter(|leader| **leader).count(), 1);
        }
    });
}

/// Spawns tasks of which none ends before all have started.
fn all_start_and_stay(runtime: &Runtime, count: usize) {
    let (started, latch) = (Arc::new(AtomicUsize::new(0)), Arc::new(Latch::new()));
    let staying: Vec<_> = (0..count)
        .map(|_| {
            let (started, latch) = (started.clone(), latch.clone());
            runtime.spawn(async move {
                started.fetch_add(1, SeqCst);
                latch.wait().await;
            })
        })
        .collect();
    eventually("all have started", || started.load(SeqCst) == count);
    latch.set();
    runtime.block_on(join_all(staying));
}

/// A worker that is stuck keeps no new task from the others.
#[test]
fn stuck_worker_keeps_no_new_task() {
    with_every_runtime_of_several(|runtime, _, workers| {
        // All but one are stuck.
        let (free, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let begun = Arc::new(AtomicUsize::new(0));
        let computations: Vec<_> = (1..workers)
            .map(|_| {
                let (stuck, begun) = (stuck.clone(), begun.clone());
                runtime.spawn(async move {
                    begun.fetch_add(1, SeqCst);
                    // The worker that holds the lock waits for the end, and the others wait for the
                    // lock.
                    let _ = stuck.lock().unwrap().recv();
                })
            })
            .collect();
        eventually("all but one are stuck", || {
            begun.load(SeqCst) == workers - 1
        });
        // Short tasks.
        runtime.block_on(async {
            join_all((0..200).map(|index| polder::spawn(async move { index }))).await;
        });
        // Long-lived tasks, which the stuck workers will never take.
        all_start_and_stay(&runtime, 60);
        drop(free);
        runtime.block_on(join_all(computations));
    });
}

/// A worker that is stuck keeps no new task from one that is always busy.
///
/// The spawning worker is never idle, and should keep some tasks although the other workers have
/// none.
#[test]
fn stuck_worker_keeps_no_task_from_busy() {
    with_every_runtime_of_several(|runtime, _, workers| {
        let (free, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let stop = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicUsize::new(0));
        let all = spread(&runtime, |index| {
            let (stuck, stop, running) = (stuck.clone(), stop.clone(), running.clone());
            async move {
                running.fetch_add(1, SeqCst);
                if index > 0 {
                    let _ = stuck.lock().unwrap().recv();
                }
                while !stop.load(SeqCst) {
                    future::yield_now().await;
                }
            }
        });
        // Tasks need not start in the order in which they were spawned.
        eventually("they are stuck", || running.load(SeqCst) == workers);
        all_start_and_stay(&runtime, 100);
        stop.store(true, SeqCst);
        drop(free);
        runtime.block_on(join_all(all));
    });
}

/// A nested `block_on` may wait for a task of the outer runtime.
///
/// The first task that a task spawns wakes no worker while the spawning task runs, unless the
/// spawning task drives another runtime.
#[test]
fn nested_block_on_may_await_outer_task() {
    with_every_runtime_of_several(|runtime, backend, _| {
        for _ in 0..sized(backend, 200) {
            let task = runtime.spawn(async {
                let inner = polder::spawn(async { here() });
                polder::block_on(async { inner.await != here() })
            });
            assert!(
                runtime.block_on(task),
                "it ran on a worker that was blocked"
            );
        }
    });
}

/// No new task is left lying while workers are woken by other things.
///
/// Injected tasks that are left are taken by workers that become idle, even if other events wake
/// workers at the same moment: see the head of `src/scheduler/searcher.rs`.
#[test]
fn new_task_not_stranded_by_other_wakes() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        let signals: Arc<Vec<Signal>> = Arc::new((0..workers).map(|_| Signal::default()).collect());
        let echoes = Arc::new(AtomicUsize::new(0));
        // Each worker has a task that is woken from elsewhere, and a socket, so that the worker
        // polls the kernel between two runs.
        spread(&runtime, |index| {
            let (signals, echoes) = (signals.clone(), echoes.clone());
            async move {
                let (mut stream, _peer) = tcp_pair().await;
                let mut byte = [0];
                let read = stream.read(&mut byte);
                let answer = async {
                    loop {
                        signals[index].receive().await;
                        echoes.fetch_add(1, SeqCst);
                    }
                };
                future::zip(read, answer).await.1
            }
        })
        .into_iter()
        .for_each(Task::detach);
        let rounds = sized(backend, 1_000);
        let barrier = Arc::new(Barrier::new(2));
        let disturber = {
            let (signals, barrier) = (signals.clone(), barrier.clone());
            thread::spawn(move || {
                for _ in 0..rounds {
                    barrier.wait();
                    for _ in 0..3 {
                        signals.iter().for_each(|signal| signal.send(()));
                        thread::yield_now();
                    }
                }
            })
        };
        let handle = runtime.handle();
        let spawner = thread::spawn(move || {
            for round in 0..rounds {
                barrier.wait();
                // First while the others are woken, then while they are not.
                for _ in 0..4 {
                    handle.spawn(async {}).detach();
                }
                let runs = || {
                    let (sender, receiver) = mpsc::channel();
                    let task = handle.spawn(async move { sender.send(()).unwrap() });
                    task.detach();
                    receiver.recv_timeout(LIMIT / 2).is_ok()
                };
                assert!(runs(), "a new task lies there, round {round}");
                thread::yield_now();
                assert!(
                    runs(),
                    "a new task lies there, and all sleep, round {round}"
                );
            }
        });
        let result = spawner.join();
        if let Err(panic) = result {
            panic!("{}", message(&*panic));
        }
        disturber.join().unwrap();
        assert!(echoes.load(SeqCst) > 0);
    });
}

/// A thousand connections that one task accepts are served by all workers.
#[cfg(unix)]
#[test]
fn thousand_accepted_connections_spread() {
    use polder::net::TcpListener;
    use std::collections::{HashMap, HashSet};
    use std::io::{Read, Write};

    const CLIENTS: usize = 1_000;
    let rule = |backend| {
        allow_descriptors(2 * CLIENTS as u64 + 100);
        let runtime = runtime_of(backend, 4);
        // The thread that polled each connection last.
        let threads = Arc::new(Mutex::new(HashMap::<usize, ThreadId>::new()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::try_from(listener).unwrap();
        let polled = threads.clone();
        runtime
            .spawn(async move {
                for number in 0.. {
                    let mut stream = listener.accept().await.unwrap().0;
                    let polled = polled.clone();
                    let mut serve = Box::pin(async move {
                        let mut byte = [0];
                        while stream.read(&mut byte).await.unwrap() > 0 {
                            stream.write_all(&byte).await.unwrap();
                        }
                    });
                    polder::spawn(poll_fn(move |cx| {
                        polled.lock().unwrap().insert(number, here());
                        serve.as_mut().poll(cx)
                    }))
                    .detach();
                }
            })
            .detach();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let mut client = std::net::TcpStream::connect(address).unwrap();
                // Some clients write immediately, most are silent.
                if index % 10 == 0 {
                    client.write_all(b"x").unwrap();
                    client.read_exact(&mut [0]).unwrap();
                }
                client
            })
            .collect();
        let served = || threads.lock().unwrap().len();
        // (A client of another process, which used a listener at this port before, counts too.)
        eventually("all are served", || served() >= CLIENTS);
        // The worker that polls next serves what is ready, and idle ones take of it.
        eventually("all workers take part", || {
            for mut client in &clients {
                client.write_all(b"x").unwrap();
            }
            for mut client in &clients {
                client.read_exact(&mut [0]).unwrap();
            }
            let threads: HashSet<ThreadId> = threads.lock().unwrap().values().copied().collect();
            threads.len() == 4
        });
        drop(clients);
    };
    in_children(rule);
}

#[cfg(target_os = "linux")]
#[test]
fn one_worker_is_woken_for_one_task_and_no_herd() {
    on_every_backend_with_several(|backend, workers| {
        const ROUNDS: usize = 300;
        // Thread names are cut after 15 bytes.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("herd{}", NUMBER.fetch_add(1, SeqCst));
        let runtime = Runtime::builder()
            .backend(backend)
            .workers(workers)
            .thread_name(&*name)
            .build()
            .unwrap();
        runtime.block_on(join_all(spread(&runtime, |_| async {})));
        let threads = threads_called(&(name + "-"));
        assert_eq!(threads.len(), workers);
        let sleeps = || {
            threads
                .iter()
                .map(|thread| sleeps_of(thread))
                .sum::<usize>()
        };
        let is_herd = |_| {
            let before = sleeps();
            for _ in 0..ROUNDS {
                let (sender, receiver) = mpsc::channel();
                runtime
                    .spawn(async move { sender.send(()).unwrap() })
                    .detach();
                receiver.recv().unwrap();
                // Usually long enough for the worker to sleep again.
                thread::sleep(Duration::from_micros(100));
            }
            let sleeps = sleeps() - before;
            // One sleep per task; waking all workers would give one sleep per worker. (A busy
            // machine makes it fewer, or more for a while; a storm of signals makes it more.)
            (sleeps >= ROUNDS * 7 / 4).then_some(sleeps)
        };
        let herds: Vec<_> = (0..3).map_while(is_herd).collect();
        assert!(
            herds.len() < 3 || crate::support::is_in_storm(),
            "the workers slept {herds:?} times for {ROUNDS} tasks"
        );
    });
}

// The end of a run.

/// Run returns exactly when the last task of all workers has ended.
#[test]
fn run_returns_with_last_task_of_all() {
    on_every_backend_with_several(|backend, workers| {
        fn tree(depth: usize, done: Arc<AtomicUsize>) -> future::Boxed<()> {
            Box::pin(async move {
                for _ in 0..depth {
                    polder::spawn(tree(depth - 1, done.clone())).detach();
                }
                done.fetch_add(1, SeqCst);
            })
        }
        let runtime = runtime_of(backend, workers);
        let done = Arc::new(AtomicUsize::new(0));
        // Small trees, many rounds: the last task ends while the main worker goes to sleep.
        for round in 0..sized(backend, 20_000) {
            // Trees of 1, 2 and 5 tasks.
            let depth = round % 3;
            runtime.spawn(tree(depth, done.clone())).detach();
            if round % 4 == 0 {
                let done = done.clone();
                runtime
                    .spawn_local(async move {
                        done.fetch_add(1, SeqCst);
                    })
                    .detach();
            }
            runtime.run();
            let expected = [1, 2, 5][depth] + usize::from(round % 4 == 0);
            assert_eq!(done.swap(0, SeqCst), expected, "round {round}");
        }
        // A large tree: 1 + 6 + 6·5 + … tasks.
        runtime.spawn(tree(6, done.clone())).detach();
        runtime.run();
        assert_eq!(done.swap(0, SeqCst), 1_957);
        // Spawned by another thread too, while a task waits for that thread.
        for _ in 0..sized(backend, 300) {
            let thread = {
                let (handle, done, signal) = (runtime.handle(), done.clone(), Signal::default());
                let waits = signal.clone();
                runtime.spawn(async move { waits.receive().await }).detach();
                thread::spawn(move || {
                    handle.spawn(tree(2, done)).detach();
                    signal.send(());
                })
            };
            runtime.run();
            assert_eq!(done.swap(0, SeqCst), 5);
            thread.join().unwrap();
        }
    });
}

/// A runtime is dropped in the middle of heavy use; sockets and timers that outlive it work in
/// another runtime.
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "counts are Linux's")
)]
fn end_in_the_middle(backend: Backend, workers: usize, round: usize) {
    let runtime = runtime_of(backend, workers);
    let alive = Alive::default();
    let stop = Arc::new(AtomicBool::new(false));
    let wakers = Mailbox::<Waker>::default();
    let tasks = Mailbox::<Task<()>>::default();
    let survivors = Mailbox::<(TcpStream, TcpStream, Timer)>::default();
    for index in 0..3 * workers {
        let (guard, inner) = (alive.guard(), alive.clone());
        let (wakers, survivors) = (wakers.clone(), survivors.clone());
        let handle = runtime.handle();
        let spawns = OnDrop(move || {
            handle.spawn(hold(inner.guard())).detach();
            if Handle::try_current().is_some() {
                polder::spawn_local(hold(inner.guard())).detach();
                polder::spawn(hold(inner.guard())).detach();
            }
        });
        let task = runtime.spawn(async move {
            let _things = (guard, spawns);
            wakers.send(own_waker().await);
            let (mut a, b) = tcp_pair().await;
            let mut timer = Timer::after(Duration::from_millis(1));
            if poll_with(&mut timer, Waker::noop()).is_ready() {
                timer.set_after(Duration::from_millis(1)); // This thread was held up.
            }
            let _ = poll_with(&mut a.read(&mut [0]), Waker::noop());
            match index % 3 {
                0 => survivors.send((a, b, timer)),
                1 => drop(timeout(Duration::from_secs(3_600), a.read(&mut [0])).await),
                _ => loop {
                    future::yield_now().await;
                },
            }
            hold((a_pair_of_wakes(wakers), timer_of_an_hour())).await
        });
        match index % 2 {
            0 => task.detach(),
            _ => tasks.send(task),
        }
    }
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (handle, alive, stop) = (runtime.handle(), alive.clone(), stop.clone());
            let (wakers, tasks) = (wakers.clone(), tasks.clone());
            thread::spawn(move || {
                while !stop.load(SeqCst) {
                    let guard = alive.guard();
                    handle.spawn(hold(guard)).detach();
                    if let Some(waker) = wakers.try_receive() {
                        waker.wake_by_ref();
                        wakers.send(waker);
                    }
                    drop(tasks.try_receive());
                    // Otherwise memory grows while the workers wait for a processor.
                    thread::yield_now();
                }
            })
        })
        .collect();
    match round % 4 {
        0 => {}
        1 => drop(runtime.run_once(Duration::ZERO)),
        2 => runtime.block_on(async {
            future::yield_now().await;
        }),
        _ => runtime.block_on(sleep(Duration::from_micros(200))),
    }
    drop(runtime);
    stop.store(true, SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    while tasks.try_receive().is_some() {}
    wakers.try_receive().into_iter().for_each(Waker::wake);
    assert_eq!(alive.count(), 0, "futures outlive their runtime");
    // Sockets and timers continue in another runtime.
    runtime_of(backend, 1 + round % 2).block_on(async {
        while let Some((mut a, mut b, timer)) = survivors.try_receive() {
            let mut byte = [0];
            let both = future::zip(a.read_exact(&mut byte), b.write_all(b"x")).await;
            assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
            assert_eq!(byte, *b"x");
            timer.await;
        }
    });
}

/// Wakes other tasks when it is dropped.
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "counts are Linux's")
)]
fn a_pair_of_wakes(wakers: Mailbox<Waker>) -> OnDrop<impl FnMut()> {
    OnDrop(move || {
        for _ in 0..2 {
            if let Some(waker) = wakers.try_receive() {
                waker.wake_by_ref();
                wakers.send(waker);
            }
        }
    })
}

#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "counts are Linux's")
)]
fn timer_of_an_hour() -> Timer {
    let mut timer = Timer::after(Duration::from_secs(3_600));
    let _ = poll_with(&mut timer, Waker::noop());
    timer
}

/// Hundreds of ends in the middle of everything leave no descriptor thread or memory.
#[cfg(target_os = "linux")]
#[test]
fn hundreds_of_abrupt_ends_leave_no_memory() {
    let rule = |backend| {
        let one = |round: usize| end_in_the_middle(backend, 2 + 2 * (round / 4 % 2), round);
        let left = || [entries("/proc/self/fd"), entries("/proc/self/task")];
        (0..40).for_each(one);
        let (before, memory) = (left(), resident());
        (0..sized(backend, 400)).for_each(one);
        // A joined thread may still be listed for a moment.
        eventually("descriptors and threads are gone", || {
            no_more(left(), before)
        });
        let more = resident().saturating_sub(memory);
        // Each runtime has two or three pollers, queues and threads.
        assert!(more < 8_000_000, "{more} bytes more memory");
    };
    in_children(rule);
}

// Failures in one place.

/// Numbers of workers and names that cannot be are errors with words.
#[test]
fn worker_counts_and_names_validated() {
    on_every_backend_with_several(|backend, _| {
        let error = |workers: usize, name: &str| {
            let builder = Runtime::builder().backend(backend).workers(workers);
            let error = builder.thread_name(name).build().expect_err("it cannot be");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            error.to_string()
        };
        assert!(error(0, "x").contains("got 0"));
        assert!(error(100_000, "x").contains("got 100000"));
        assert!(
            error(usize::MAX, "x").contains("got 18446744073709551615")
                || !cfg!(target_pointer_width = "64")
        );
        assert!(error(2, "a\0b").contains("NUL"));
        assert!(error(1, "\0").contains("NUL"));
        // The kernel cuts a long name, and keeps an empty one empty.
        for name in [
            "a name that no kernel takes as it is, long and wide",
            "",
            "ñ—ß",
        ] {
            let runtime = Runtime::builder()
                .backend(backend)
                .workers(2)
                .thread_name(name);
            let runtime = runtime.build().unwrap();
            let task = runtime.spawn(async { thread::current().name().map(String::from) });
            let number = runtime.block_on(task).unwrap();
            assert!(number == format!("{name}-0") || number == format!("{name}-1"));
        }
    });
}

/// Build without enough descriptors is an error that leaks nothing.
#[cfg(target_os = "linux")]
#[test]
fn build_without_descriptors_leaks_nothing() {
    let rule = |backend| {
        let left = || [entries("/proc/self/fd"), entries("/proc/self/task")];
        drop(runtime_of(backend, 3));
        let before = left();
        let mut failed = 0;
        for most in 3.. {
            limit(Resource::Nofile, most);
            let builder = Runtime::builder().backend(backend).workers(3);
            let result = builder.workers_per_poller(1).build();
            limit(Resource::Nofile, 1_024);
            match result {
                Ok(runtime) => {
                    assert_eq!(runtime.block_on(runtime.spawn(async { 1 })), 1);
                    break;
                }
                Err(error) => {
                    failed += 1;
                    let code = error.raw_os_error();
                    assert_eq!(code, Some(libc::EMFILE), "{error}");
                }
            }
            eventually("what was begun is gone", || no_more(left(), before));
        }
        assert!((4..100).contains(&failed), "it failed {failed} times");
        eventually("all is gone", || no_more(left(), before));
    };
    in_children(rule);
}

/// It has a poller, and the thread that drives it has one: on epoll two descriptors each, and a
/// timer once one is set.
#[cfg(target_os = "linux")]
#[test]
fn a_pool_has_no_descriptors_for_each_worker() {
    let rule = |backend| {
        let descriptors = |workers| {
            let before = entries("/proc/self/fd");
            let runtime = Runtime::builder().backend(backend).workers(workers);
            let runtime = runtime.workers_per_poller(workers).build().unwrap();
            let task = runtime.spawn(async { sleep(Duration::from_millis(1)).await });
            runtime.block_on(task);
            entries("/proc/self/fd") - before
        };
        // What exists once in a process.
        descriptors(2);
        let (few, many) = (descriptors(2), descriptors(16));
        assert!(many <= few + 2, "{few} and {many} with 16 workers");
        let is_epoll = backend == polder::Backend::Epoll;
        assert!(!is_epoll || many <= 6, "{many}");
    };
    in_children(rule);
}

/// Builds that fail again and again leave no memory.
#[cfg(target_os = "linux")]
#[test]
fn failing_builds_leave_no_memory() {
    let rule = |backend| {
        let fail = || {
            let builder = Runtime::builder().backend(backend).workers(64);
            let result = builder.workers_per_poller(1).build();
            result.expect_err("each poller has a descriptor");
        };
        limit(Resource::Nofile, 40);
        (0..100).for_each(|_| fail());
        let before = resident();
        (0..sized(backend, 2_000)).for_each(|_| fail());
        let more = resident().saturating_sub(before);
        assert!(more < 5_000_000, "{more} bytes more memory");
    };
    in_children(rule);
}

/// A setting beyond its limit is an error that names both.
#[test]
fn setting_beyond_limit_error_names_both() {
    on_every_backend(|backend| {
        let builder = || Runtime::builder().backend(backend);
        let (slack, events) = (Duration::from_secs(86_400), 1 << 26);
        for (builder, limit) in [
            (builder().workers(0), "between 1 and 1024, got 0"),
            (builder().workers(1_025), "between 1 and 1024, got 1025"),
            (
                builder().workers(2).thread_stack_size(usize::MAX),
                &*format!("bytes, got {}", usize::MAX),
            ),
            (
                builder().timer_slack(Duration::MAX),
                "at most 86400s, got 18446744073709551615",
            ),
            (
                builder().timer_slack(slack + Duration::from_nanos(1)),
                "at most 86400s",
            ),
            (
                builder().trace_capacity(1_000_000_000),
                "67108864 events per worker (1.5 GiB), got 1000000000",
            ),
            (builder().trace_capacity(events + 1), "got 67108865"),
        ] {
            let error = builder.build().expect_err(limit);
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(limit), "{error}");
        }
        let runtime = builder()
            .timer_slack(slack)
            .build()
            .expect("it is the limit");
        runtime.block_on(async {});
    });
}

/// Build without enough threads is an error that leaks nothing.
#[cfg(target_os = "linux")]
#[test]
fn build_without_threads_leaks_nothing() {
    let rule = |backend| {
        let left = || [entries("/proc/self/fd"), entries("/proc/self/task")];
        drop(runtime_of(backend, 3));
        // A joined thread is listed for a moment longer; if counted, it would be missing forever.
        eventually("the first one's workers are gone", || {
            (0..3).all(|index| threads_called(&format!("polder-{index}")).is_empty())
        });
        let before = left();
        // The limit does not apply to root. It counts all threads of a user, so we take a user id
        // without other processes.
        // SAFETY: numbers only; this is a separate process.
        let alone = unsafe { libc::geteuid() == 0 && libc::setuid(54_321) == 0 };
        let most = if alone { before[1] + 3 } else { 1 };
        let mut failed = 0;
        for threads in 1..=most {
            limit(Resource::Nproc, threads as u64);
            let builder = Runtime::builder().backend(backend).workers(3);
            let result = builder.workers_per_poller(1).build();
            match result {
                Ok(runtime) => assert_eq!(runtime.block_on(runtime.spawn(async { 1 })), 1),
                Err(error) => {
                    failed += 1;
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    let words = error.to_string();
                    assert!(
                        words.starts_with("cannot start the thread of pool"),
                        "{words}"
                    );
                    let cause = std::error::Error::source(&error);
                    let cause = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>());
                    let number = cause.and_then(std::io::Error::raw_os_error);
                    assert_eq!(number, Some(libc::EAGAIN), "{error}");
                }
            }
            eventually("what was begun is gone", || no_more(left(), before));
        }
        assert!(
            failed >= most.saturating_sub(1).max(1),
            "it failed {failed} times of {most}"
        );
    };
    in_children(rule);
}

// Runtimes within, next to and after each other.

/// Runtimes of several workers are made inside tasks of others.
#[test]
fn worker_runtimes_built_inside_tasks() {
    with_every_runtime_of_several(|outer, backend, workers| {
        let within = move |index: usize| {
            let inner = runtime_of(backend, workers);
            assert!(Handle::try_current().is_some());
            let outer_thread = here();
            let sum = inner.block_on(async {
                assert_eq!(here(), outer_thread);
                let tasks = (0..10).map(|n| {
                    polder::spawn(async move {
                        sleep(Duration::from_micros(100)).await;
                        assert_ne!(here(), outer_thread, "it belongs to the inner one");
                        n
                    })
                });
                join_all(tasks).await.into_iter().sum::<usize>()
            });
            // The inner runtime is dropped or shut down while the outer one runs.
            inner.spawn(hold(())).detach();
            match index % 2 {
                0 => drop(inner),
                _ => assert_eq!(inner.shutdown(Duration::ZERO).task_count(), 1),
            }
            sum
        };
        let tasks = spread(&outer, |index| async move {
            let sum = within(index);
            future::yield_now().await;
            sum + polder::spawn(async { 1 }).await
        });
        let sums = outer.block_on(join_all(tasks));
        assert_eq!(sums, vec![46; workers]);
    });
}

// Values that move between workers.

#[test]
fn tasks_await_tasks_of_other_workers() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        for _ in 0..sized(backend, 50) {
            // Each task waits for the one before it, on another worker.
            let slots: Arc<Vec<Mailbox<Task<usize>>>> =
                Arc::new((0..=workers).map(|_| Mailbox::default()).collect());
            let tasks = spread(&runtime, |index| {
                let slots = slots.clone();
                async move { slots[index].receive().await.await + 1 }
            });
            for (slot, task) in slots[1..].iter().zip(tasks) {
                slot.send(task);
            }
            slots[0].send(runtime.spawn(async {
                sleep(Duration::from_micros(10)).await;
                0
            }));
            let last = runtime.block_on(slots[workers].receive());
            assert_eq!(runtime.block_on(last), workers);
        }
        // Cancelled from another worker.
        let alive = Alive::default();
        let (tasks, cancel) = (
            Mailbox::<Task<()>>::default(),
            Mailbox::<Task<()>>::default(),
        );
        let (from, to) = (tasks.clone(), cancel.clone());
        let held = alive.clone();
        let both = spread(&runtime, move |index| {
            let (from, to, held) = (from.clone(), to.clone(), held.clone());
            async move {
                if index == 0 {
                    from.send(polder::spawn_local(hold(held.guard())));
                } else if index == 1 {
                    let task = from.receive().await;
                    assert!(task.cancel().await.is_none());
                    assert_eq!(held.count(), 0, "cancel returned too early");
                    to.send(polder::spawn(async {}));
                }
            }
        });
        runtime.block_on(join_all(both));
        runtime.block_on(async { cancel.receive().await.await });
        drop(tasks);
    });
}

/// A socket stays with its poller while tasks of its pool hand it on.
///
/// The workers have pollers of their own, and the socket is with that of the first one that waits.
#[test]
fn socket_stays_with_poller_in_pool() {
    on_every_backend_alone(|backend| {
        let builder = Runtime::builder().backend(backend).workers(2);
        let runtime = builder.workers_per_poller(1).build().unwrap();
        let sources = {
            let handle = runtime.handle();
            move || [0, 1].map(|index| handle.metrics().workers[index].sources)
        };
        let slots: Arc<[Mailbox<UdpSocket>; 2]> = Arc::default();
        let bound = runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        let address = bound.local_addr().unwrap();
        slots[0].send(bound);
        let sender = Arc::new(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let hands = spread(&runtime, |index| {
            let (slots, sources, sender) = (slots.clone(), sources.clone(), sender.clone());
            async move {
                let mut seen = Vec::new();
                for _ in 0..10 {
                    let socket = slots[index].receive().await;
                    let mut byte = [0];
                    let mut datagram = Box::pin(socket.recv(&mut byte));
                    assert!(future::poll_once(&mut datagram).await.is_none());
                    seen.push(sources());
                    sender.send_to(b"x", address).unwrap();
                    datagram.await.unwrap();
                    slots[1 - index].send(socket);
                }
                seen
            }
        });
        let seen = runtime.block_on(join_all(hands)).concat();
        assert_eq!(seen[0].iter().sum::<usize>(), 1);
        assert!(seen.iter().all(|now| *now == seen[0]), "{seen:?}");
    });
}

/// A dump names the socket of a task of a worker with another poller.
///
/// The socket of two tasks is with the poller of one of their workers.
#[test]
fn dump_names_socket_of_other_poller() {
    on_every_backend_alone(|backend| {
        let builder = Runtime::builder().backend(backend).workers(2);
        let runtime = builder.workers_per_poller(1).build().unwrap();
        let socket = Arc::new(runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap());
        let tasks = spread(&runtime, |_| {
            let socket = socket.clone();
            async move { socket.recv(&mut [0; 1]).await.unwrap() }
        });
        let is_socket = |wait: &Wait| matches!(wait, Wait::Socket { .. });
        eventually("both wait for the socket", || {
            let dump = runtime.dump();
            let mut waits = dump.tasks.iter().map(|task| &task.waits_for);
            waits.len() == 2 && waits.all(|waits| waits.iter().any(is_socket))
        });
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            sender.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        }
        assert_eq!(runtime.block_on(join_all(tasks)), [1, 1]);
    });
}

/// A stream goes round the workers and loses nothing.
#[test]
fn stream_passed_around_workers_loses_nothing() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        let rounds = sized(backend, 300);
        let slots: Arc<Vec<Mailbox<TcpStream>>> =
            Arc::new((0..workers).map(|_| Mailbox::default()).collect());
        let (wandering, mut peer) = runtime.block_on(tcp_pair());
        // Each task reads a byte, answers, and hands the stream on.
        let hands = spread(&runtime, |index| {
            let slots = slots.clone();
            async move {
                for _ in 0..rounds {
                    let mut stream = slots[index].receive().await;
                    let mut byte = [0];
                    stream.read_exact(&mut byte).await.unwrap();
                    stream.write_all(&byte).await.unwrap();
                    slots[(index + 1) % slots.len()].send(stream);
                }
            }
        });
        slots[0].send(wandering);
        let talk = runtime.spawn(async move {
            let mut byte = [0];
            for round in 0..rounds * workers {
                // Immediately, or after the reader has gone to sleep on its worker.
                if round % 16 == 0 {
                    sleep(Duration::from_micros(50)).await;
                }
                peer.write_all(&[round as u8]).await.unwrap();
                peer.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte, [round as u8]);
            }
        });
        runtime.block_on(async {
            talk.await;
            join_all(hands).await;
        });
    });
}

#[test]
fn timers_set_on_one_worker_fire_on_another() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        let slots: Arc<Vec<Mailbox<(Timer, Instant)>>> =
            Arc::new((0..workers).map(|_| Mailbox::default()).collect());
        let rounds = sized(backend, 100);
        let tasks = spread(&runtime, |index| {
            let slots = slots.clone();
            async move {
                for round in 0..rounds {
                    let after = Duration::from_micros(200 * (round as u64 % 3));
                    let due = Instant::now() + after;
                    let mut timer = Timer::at(due);
                    if round % 2 == 0 {
                        let _ = future::poll_once(&mut timer).await;
                        // If the timer has fired by now, this makes it a new one.
                        timer.set_at(due);
                    }
                    slots[(index + 1) % slots.len()].send((timer, due));
                    let (timer, due) = slots[index].receive().await;
                    timer.await;
                    assert!(Instant::now() >= due, "it was early");
                }
            }
        });
        runtime.block_on(join_all(tasks));
    });
}

// Many tasks.

#[test]
fn tasks_that_wait_for_their_own_children_go_deep() {
    on_every_backend_with_several(|backend, workers| {
        fn fibonacci(n: usize) -> future::Boxed<usize> {
            Box::pin(async move {
                match n {
                    0 | 1 => n,
                    _ => {
                        let one = polder::spawn(fibonacci(n - 1));
                        let other = polder::spawn(fibonacci(n - 2));
                        one.await + other.await
                    }
                }
            })
        }
        fn chain(depth: usize) -> future::Boxed<usize> {
            Box::pin(async move {
                match depth {
                    0 => 0,
                    _ => 1 + polder::spawn(chain(depth - 1)).await,
                }
            })
        }
        let runtime = runtime_of(backend, workers);
        assert_eq!(runtime.block_on(fibonacci(12)), 144);
        assert_eq!(runtime.block_on(runtime.spawn(fibonacci(15))), 610);
        let depth = sized(backend, 20_000);
        assert_eq!(runtime.block_on(runtime.spawn(chain(depth))), depth);
        assert_eq!(runtime.shutdown(Duration::ZERO).task_count(), 0);
    });
}

// 60: wakers that run arbitrary code.

/// A waker that blocks its thread on a task of its runtime, and then wakes `then`.
struct Blocks {
    handle: Handle,
    then: Waker,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        polder::block_on(self.handle.spawn(async {}));
        self.then.wake_by_ref();
    }
}

/// Polls `future` with a blocking waker instead of its task's.
async fn woken_by_blocking<F: Future>(future: F) -> F::Output {
    let handle = Handle::current();
    let mut future = Box::pin(future);
    poll_fn(|cx| {
        let (handle, then) = (handle.clone(), cx.waker().clone());
        poll_with(&mut future, &Arc::new(Blocks { handle, then }).into())
    })
    .await
}

/// A waker may block on a task that it spawns into its own runtime.
///
/// Each worker in turn runs the waker while the others sleep, so it is also the worker with the
/// fewest tasks. A socket's waker is called directly after the wait, a timer's somewhat later.
#[test]
fn waker_may_block_on_own_runtimes_task() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        let rounds = sized(backend, 100);
        let turns: Arc<Vec<Event>> = Arc::new((0..workers).map(|_| Event::new()).collect());
        let (send, to_send) = mpsc::channel::<SocketAddr>();
        let sender = thread::spawn(move || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for address in to_send {
                thread::sleep(Duration::from_micros(100));
                socket.send_to(b"x", address).unwrap();
            }
        });
        let tasks = spread(&runtime, |index| {
            let (turns, send) = (turns.clone(), send.clone());
            async move {
                let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                for _ in 0..rounds {
                    turns[index].wait().await;
                    woken_by_blocking(sleep(Duration::from_micros(100))).await;
                    send.send(socket.local_addr().unwrap()).unwrap();
                    woken_by_blocking(socket.recv(&mut [0; 1])).await.unwrap();
                    turns[(index + 1) % turns.len()].set();
                }
            }
        });
        drop(send);
        turns[0].set();
        runtime.block_on(join_all(tasks));
        sender.join().unwrap();
    });
}

// Spawning on a chosen worker.

#[test]
fn spawn_on_worker_made_polled_dropped_there() {
    on_every_backend_with_several(|backend, workers| {
        let started = Arc::new(Mutex::new(HashSet::new()));
        let runtime = Runtime::builder()
            .backend(backend)
            .workers(workers)
            .on_thread_start({
                let started = started.clone();
                move |worker| {
                    let new = started
                        .lock()
                        .unwrap()
                        .insert((worker, thread::current().id()));
                    assert!(new, "each starts once");
                }
            })
            .build()
            .unwrap();
        let handle = runtime.handle();
        let (alive, wrong) = (Alive::default(), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..sized(backend, 200))
            .map(|n| {
                let (guard, wrong) = (alive.guard(), wrong.clone());
                let create = move || {
                    // Not `Send`; its destructor checks which thread it runs on.
                    let here = Rc::new(thread::current().id());
                    let at_end = here.clone();
                    let on_drop = OnDrop(move || {
                        let is_wrong = *at_end != thread::current().id();
                        wrong.fetch_add(usize::from(is_wrong), SeqCst);
                    });
                    async move {
                        let (_guard, _on_drop) = (guard, on_drop);
                        for _ in 0..n % 5 {
                            future::yield_now().await;
                            assert_eq!(*here, thread::current().id());
                        }
                        sleep(Duration::from_micros(20)).await;
                        assert_eq!(*here, thread::current().id());
                        if n % 3 == 0 {
                            future::pending::<()>().await;
                        }
                        *here
                    }
                };
                (n, handle.spawn_on_worker(n % workers, create))
            })
            .collect();
        for (n, task) in tasks {
            match n % 3 {
                0 => task.detach(),
                _ => {
                    let thread = runtime.block_on(task);
                    assert!(started.lock().unwrap().contains(&(n % workers, thread)));
                }
            }
        }
        // A worker that ran no awaited task may start later.
        eventually("each worker starts", || {
            started.lock().unwrap().len() == workers
        });
        drop(runtime);
        assert_eq!((alive.count(), wrong.load(SeqCst)), (0, 0));
        // A runtime that has ended drops the closure without calling it.
        let guard = alive.guard();
        let late = handle.spawn_on_worker(0, move || async move { drop(guard) });
        assert_eq!(polder::block_on(late.fallible()), None);
        assert_eq!(alive.count(), 0);
    });
}

/// A runtime ends while others spawn on its workers.
///
/// A task for one worker is not lost, and blocks no waiter, whenever the runtime ends.
#[test]
fn runtime_ends_during_spawns() {
    on_every_backend_with_several(|backend, workers| {
        for _ in 0..sized(backend, 100) {
            let runtime = runtime_of(backend, workers);
            let (handle, alive) = (runtime.handle(), Alive::default());
            let count = alive.clone();
            let barrier = Arc::new(Barrier::new(2));
            let begin = barrier.clone();
            let thread = thread::spawn(move || {
                begin.wait();
                for n in 0..100 {
                    let guard = count.guard();
                    let create = move || async move {
                        let _guard = guard;
                        future::yield_now().await;
                    };
                    handle.spawn_on_worker(n % workers, create).detach();
                }
            });
            barrier.wait();
            drop(runtime);
            thread.join().unwrap();
            assert_eq!(alive.count(), 0);
        }
    });
}

/// The end of each worker is told on its thread when its tasks are dropped.
#[test]
fn worker_end_told_on_thread_at_drops() {
    on_every_backend(|backend| {
        for workers in [1, 2, 4] {
            let (alive, threads) = (Alive::default(), Arc::new(Mutex::new(HashSet::new())));
            let runtime = Runtime::builder()
                .backend(backend)
                .workers(workers)
                .on_thread_start({
                    let threads = threads.clone();
                    move |worker| {
                        let new = (worker, thread::current().id());
                        assert!(threads.lock().unwrap().insert(new));
                    }
                })
                .on_thread_stop({
                    let (alive, threads) = (alive.clone(), threads.clone());
                    move |worker| {
                        assert!(workers > 1 || alive.count() == 0);
                        let known = (worker, thread::current().id());
                        assert!(threads.lock().unwrap().remove(&known));
                        assert_ne!(worker, 0, "on purpose: it ends nothing");
                    }
                })
                .build()
                .unwrap();
            for worker in 0..workers {
                let guard = alive.guard();
                let hold = move || hold(guard);
                runtime.handle().spawn_on_worker(worker, hold).detach();
            }
            runtime.block_on(future::yield_now());
            // A thread may not have started yet; it starts nevertheless.
            drop(runtime);
            assert_eq!(alive.count(), 0);
            assert_eq!(threads.lock().unwrap().len(), 0);
        }
    });
}

#[test]
fn worker_start_panic_ends_runtime() {
    on_every_backend_with_several(|backend, workers| {
        let runtime = Runtime::builder()
            .backend(backend)
            .workers(workers)
            .on_thread_start(|worker| assert_ne!(worker, 1, "on purpose"))
            .build()
            .unwrap();
        let never = runtime.spawn(future::pending::<()>()).fallible();
        let driven = std::panic::catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(future::pending::<()>())
        }));
        let panic = driven.unwrap_err();
        assert_eq!(message(&*panic), "polder: a worker of the runtime panicked");
        drop(runtime);
        assert_eq!(polder::block_on(never), None);
    });
}

//! Rule 75: with several workers, no ready task waits for a worker that computes.
//!
//! Computing is shown at its worst: a worker is blocked until the task that needs help has run. So
//! these tests continue only with the help of another worker, and they need no clock.

use std::cell::RefCell;
use std::collections::HashSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use polder::event::Event;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::UdpSocket;
use polder::time::sleep;
use polder::{Handle, Runtime, Task, Timer, future};

#[cfg(target_os = "linux")]
use crate::child::{in_children, sleeps_of, threads_called};
use crate::probe::{Mailbox, join_all, tcp_pair};
use crate::support::{
    LIMIT, eventually, on_every_backend_alone, on_every_backend_with_several, runtime_of, share,
    with_every_runtime_of_several,
};

fn here() -> ThreadId {
    thread::current().id()
}

/// Blocks all workers but one, each by a local task that first calls `block` with its number, and
/// then blocks until a stealable task of the same worker is done. The stealable task begins to
/// await the future from `wait` before its worker is blocked. `unblock` is called when all are
/// blocked. Returns, for each task, how often the free worker went to sleep from then until the
/// task ran.
fn beside_blocked_workers<F>(
    runtime: &Runtime,
    wait: impl Fn(usize) -> F + Clone + Send + 'static,
    block: impl Fn(usize) + Clone + Send + 'static,
    unblock: impl Fn(usize),
) -> Vec<usize>
where
    F: Future<Output = ()> + Send + 'static,
{
    let workers = runtime.workers();
    let handle = runtime.handle();
    let sleeps = move || {
        let pool = &handle.metrics().workers[..workers];
        pool.iter().map(|it| it.parks).sum::<usize>()
    };
    let before: Arc<Vec<_>> = Arc::new((0..workers).map(|_| AtomicUsize::new(0)).collect());
    let barrier = Arc::new(Barrier::new(workers));
    let blocked = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..workers)
        .map(|index| {
            let (barrier, blocked) = (barrier.clone(), blocked.clone());
            let (wait, block) = (wait.clone(), block.clone());
            let (sleeps, before) = (sleeps.clone(), before.clone());
            runtime.spawn(async move {
                // One task on each worker; the last worker stays free.
                barrier.wait();
                if index == workers - 1 {
                    return None;
                }
                let (done, is_done) = mpsc::channel::<()>();
                let thread = here();
                polder::spawn_local(async move {
                    block(index);
                    blocked.fetch_add(1, SeqCst);
                    let result = is_done.recv_timeout(LIMIT / 2);
                    assert!(result.is_ok(), "a task that is ready waits for this one");
                })
                .detach();
                wait(index).await;
                let late = sleeps().saturating_sub(before[index].load(SeqCst));
                assert_ne!(here(), thread, "that worker is blocked");
                done.send(()).unwrap();
                Some(late)
            })
        })
        .collect();
    eventually("all but one are blocked", || {
        blocked.load(SeqCst) == workers - 1
    });
    for index in 0..workers - 1 {
        before[index].store(sleeps(), SeqCst);
        unblock(index);
    }
    runtime
        .block_on(join_all(tasks))
        .into_iter()
        .flatten()
        .collect()
}

/// Repeats `round`, in which the free worker serves ready events, and asserts that it sleeps a few
/// times only. (If a thread is preempted in the middle of a round, it is woken for nothing, so we
/// compare the median.)
fn after_few_sleeps(round: impl Fn() -> Vec<usize>) {
    let mut sleeps: Vec<_> = (0..8).flat_map(|_| round()).collect();
    sleeps.sort_unstable();
    let median = sleeps[sleeps.len() / 2];
    assert!(median <= 10, "it takes {median} sleeps: {sleeps:?}");
}

fn events(workers: usize) -> Arc<[Event]> {
    (0..workers).map(|_| Event::new()).collect()
}

/// Returns the future that the task of each worker awaits: its event.
fn until_set(
    events: &Arc<[Event]>,
) -> impl Fn(usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Clone + use<> {
    let events = events.clone();
    move |index| {
        let events = events.clone();
        Box::pin(async move { events[index].wait().await })
    }
}

/// A task that another thread wakes waits for no worker that computes.
#[test]
fn computing_worker_does_not_hold_remote_wake() {
    with_every_runtime_of_several(|runtime, _, workers| {
        after_few_sleeps(|| {
            let events = events(workers);
            let wait = until_set(&events);
            beside_blocked_workers(&runtime, wait, |_| {}, |index| events[index].set())
        });
    });
}

/// A task that its worker wakes before it computes does not wait for it.
#[test]
fn computing_worker_does_not_hold_woken_task() {
    with_every_runtime_of_several(|runtime, _, workers| {
        for _ in 0..8 {
            let events = events(workers);
            let wait = until_set(&events);
            beside_blocked_workers(&runtime, wait, move |index| events[index].set(), |_| {});
        }
    });
}

/// Tasks that yield wait for no worker that computes.
#[test]
fn computing_worker_does_not_hold_yielding_tasks() {
    with_every_runtime_of_several(|runtime, _, _| {
        for _ in 0..8 {
            beside_blocked_workers(&runtime, |_| future::yield_now(), |_| {}, |_| {});
        }
    });
}

/// Returns a timer for the task at this index.
fn soon(index: usize) -> impl Future<Output = ()> + Send {
    sleep(Duration::from_millis(2 + index as u64))
}

/// A timer that is due waits for no worker that computes.
#[test]
fn computing_worker_does_not_hold_timer() {
    with_every_runtime_of_several(|runtime, _, _| {
        for _ in 0..8 {
            beside_blocked_workers(&runtime, soon, |_| {}, |_| {});
        }
    });
}

/// A socket that is readable waits for no worker that computes.
#[test]
fn computing_worker_does_not_hold_socket() {
    with_every_runtime_of_several(|runtime, _, workers| {
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        after_few_sleeps(|| {
            let addresses = no_addresses(workers);
            let wait = until_received(&addresses);
            let send = |index: usize| {
                let address = addresses.lock().unwrap()[index].unwrap();
                sender.send_to(b"x", address).unwrap();
            };
            beside_blocked_workers(&runtime, wait, |_| {}, send)
        });
    });
}

/// The address of the socket that the task of each worker has made.
type Addresses = Arc<Mutex<Vec<Option<SocketAddr>>>>;

fn no_addresses(workers: usize) -> Addresses {
    Arc::new(Mutex::new(vec![None; workers]))
}

/// Returns the future that the task of each worker awaits: a datagram for its socket.
fn until_received(
    addresses: &Addresses,
) -> impl Fn(usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Clone + use<> {
    let addresses = addresses.clone();
    move |index| {
        let addresses = addresses.clone();
        Box::pin(async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            addresses.lock().unwrap()[index] = Some(socket.local_addr().unwrap());
            socket.recv(&mut [0; 1]).await.unwrap();
        })
    }
}

/// Spawns a task that is always ready, on the one worker that is not blocked.
fn always_busy(runtime: &Handle) -> Task<()> {
    let polls = Arc::new(AtomicUsize::new(0));
    let task = runtime.spawn({
        let polls = polls.clone();
        async move {
            loop {
                polls.fetch_add(1, SeqCst);
                future::yield_now().await;
            }
        }
    });
    eventually("it runs", || polls.load(SeqCst) > 1_000);
    task
}

/// Ready tasks do not wait for a worker that computes, also while the others are busy.
///
/// No worker is idle: only the one that has work can help.
#[test]
fn computing_worker_does_not_hold_ready_when_busy() {
    with_every_runtime_of_several(|runtime, _, workers| {
        for _ in 0..8 {
            let events = events(workers);
            let busy = RefCell::new(None);
            let unblock = |index: usize| {
                (busy.borrow_mut()).get_or_insert_with(|| always_busy(&runtime.handle()));
                events[index].set();
            };
            beside_blocked_workers(&runtime, until_set(&events), |_| {}, unblock);
        }
        for _ in 0..8 {
            let busy = RefCell::new(None);
            let unblock = |_| {
                (busy.borrow_mut()).get_or_insert_with(|| always_busy(&runtime.handle()));
            };
            beside_blocked_workers(&runtime, soon, |_| {}, unblock);
        }
    });
}

/// A backlog waits for no worker that computes while the others have work.
///
/// The same for tasks that their worker has woken before it computes.
#[test]
fn backlog_not_held_by_computing_worker() {
    with_every_runtime_of_several(|runtime, _, workers| {
        for _ in 0..8 {
            let events = events(workers);
            let handle = runtime.handle();
            let busy = Arc::new(Mutex::new(Vec::new()));
            let barrier = Arc::new(Barrier::new(workers - 1));
            let block = {
                let (events, busy) = (events.clone(), busy.clone());
                move |index: usize| {
                    if barrier.wait().is_leader() {
                        busy.lock().unwrap().push(always_busy(&handle));
                    }
                    barrier.wait();
                    events[index].set();
                }
            };
            beside_blocked_workers(&runtime, until_set(&events), block, |_| {});
        }
    });
}

/// A backlog behind a task that computes is run by those that slept.
///
/// A worker begins to compute after all others have gone to sleep, with a backlog behind the task.
#[test]
fn backlog_behind_computing_task_is_stolen() {
    with_every_runtime_of_several(|runtime, backend, _| {
        for _ in 0..share(backend.name() == "epoll", 20) {
            let event = Arc::new(Event::new());
            let (done, is_done) = mpsc::channel::<()>();
            let left = Arc::new(AtomicUsize::new(0));
            // Their first polls distribute them; then all wait for wakes by the same worker.
            let wakers = Mailbox::default();
            let tasks: Vec<_> = (0..40)
                .map(|_| {
                    let (wakers, left, done) = (wakers.clone(), left.clone(), done.clone());
                    runtime.spawn(async move {
                        wakers.send(crate::probe::own_waker().await);
                        crate::probe::until_woken().await;
                        if left.fetch_add(1, SeqCst) == 39 {
                            done.send(()).unwrap();
                        }
                    })
                })
                .collect();
            eventually("all wait", || wakers.count() == 40);
            let computes = {
                let event = event.clone();
                runtime.spawn(async move {
                    event.wait().await;
                    while let Some(waker) = wakers.try_receive() {
                        waker.wake();
                    }
                    let result = is_done.recv_timeout(LIMIT / 2);
                    assert!(result.is_ok(), "those that it woke wait for it");
                })
            };
            thread::sleep(Duration::from_millis(2));
            event.set();
            runtime.block_on(async {
                computes.await;
                join_all(tasks).await;
            });
        }
    });
}

/// A task that becomes due beside the only worker that is awake does not wait for it.
///
/// All workers sleep. The one that waits in the poller gets an event, and its task computes.
#[test]
fn due_beside_only_awake_worker_not_held() {
    with_every_runtime_of_several(|runtime, backend, _| {
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..share(backend.name() == "epoll", 20) {
            let (done, is_done) = mpsc::channel::<()>();
            let receive = |then: Box<dyn FnOnce() + Send>| {
                let socket = runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
                let address = socket.local_addr().unwrap();
                let task = runtime.spawn(async move {
                    socket.recv(&mut [0; 1]).await.unwrap();
                    then();
                });
                (task, address)
            };
            let (computes, first) = receive(Box::new(move || {
                for what in ["the timer", "the socket"] {
                    let result = is_done.recv_timeout(LIMIT / 2);
                    assert!(result.is_ok(), "{what} waits for this one");
                }
            }));
            let is_received = done.clone();
            let (socket, second) = receive(Box::new(move || is_received.send(()).unwrap()));
            let timer = runtime.spawn(async move {
                sleep(Duration::from_millis(5)).await;
                done.send(()).unwrap();
            });
            thread::sleep(Duration::from_millis(2));
            sender.send_to(b"x", first).unwrap();
            thread::sleep(Duration::from_millis(5));
            sender.send_to(b"x", second).unwrap();
            runtime.block_on(join_all([computes, timer, socket]));
        }
    });
}

/// Makes 40 waiting tasks move to the worker of a task that wakes them all and then blocks the
/// worker until other workers have run them. When all are woken, each calls `run` with its place
/// among them.
fn taken_from_a_blocked_worker(runtime: &Runtime, run: impl Fn(usize) + Clone + Send + 'static) {
    let (wakers, ended) = <(Mailbox<_>, Arc<AtomicUsize>)>::default();
    let all_are_woken = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            let (wakers, ended) = (wakers.clone(), ended.clone());
            let (all_are_woken, run) = (all_are_woken.clone(), run.clone());
            runtime.spawn(async move {
                wakers.send(crate::probe::own_waker().await);
                crate::probe::until_woken().await;
                eventually("all are woken", || all_are_woken.load(SeqCst));
                run(ended.fetch_add(1, SeqCst));
            })
        })
        .collect();
    eventually("all wait", || wakers.count() == 40);
    let blocks = runtime.spawn(async move {
        while let Some(waker) = wakers.try_receive() {
            waker.wake();
        }
        all_are_woken.store(true, SeqCst);
        eventually("others run them", || ended.load(SeqCst) == 40);
    });
    runtime.block_on(async {
        blocks.await;
        join_all(tasks).await;
    });
}

/// The backlog behind a long poll is taken over without a sleep in between.
///
/// Otherwise the last of them would wait for as many inspections as it takes to halve their number,
/// with a sleep before each. (Only the task that would run next is left until it is known that the
/// poll lasts.)
#[test]
fn backlog_left_by_long_poll_taken_without_sleep() {
    on_every_backend_alone(|backend| {
        let runtime = runtime_of(backend, 2);
        let rounds = 10;
        let sleeps = Arc::new(AtomicUsize::new(0));
        for _ in 0..rounds {
            let handle = runtime.handle();
            let sleeps = sleeps.clone();
            let first = Arc::new(AtomicUsize::new(0));
            taken_from_a_blocked_worker(&runtime, move |place| {
                let now = || {
                    handle.metrics().workers[..2]
                        .iter()
                        .map(|it| it.parks)
                        .sum()
                };
                match place {
                    0 => first.store(now(), SeqCst),
                    39 => drop(sleeps.fetch_add(now() - first.load(SeqCst), SeqCst)),
                    _ => {}
                }
            });
        }
        let sleeps = sleeps.load(SeqCst);
        // If the rule were broken, each round would have at least five sleeps.
        assert!(sleeps < rounds * 4, "{sleeps} sleeps in {rounds} rounds");
    });
}

/// Tasks that were taken from a worker count there no more.
///
/// The number of tasks on a worker decides how many new ones it takes.
#[test]
fn stolen_tasks_no_longer_counted() {
    with_every_runtime_of_several(|runtime, backend, _| {
        for _ in 0..share(backend.name() == "epoll", 10) {
            taken_from_a_blocked_worker(&runtime, |_| {});
        }
        eventually("no worker has any", || {
            let metrics = runtime.metrics();
            metrics.workers.iter().all(|worker| worker.tasks == 0)
        });
    });
}

/// A worker that works and idles by turns helps those that compute.
///
/// A worker that idles for less time than it works, and works for longer than the interval of
/// inspections.
#[test]
fn alternating_worker_helps() {
    with_every_runtime_of_several(|runtime, _, workers| {
        let events = events(workers);
        let (stop, rounds) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let works_by_turns = || {
            let (stop, rounds) = (stop.clone(), rounds.clone());
            runtime.spawn(async move {
                while !stop.load(SeqCst) {
                    compute(Duration::from_micros(600));
                    rounds.fetch_add(1, SeqCst);
                    sleep(Duration::from_micros(100)).await;
                }
            })
        };
        let task = Mutex::new(None);
        let unblock = |index: usize| {
            let mut task = task.lock().unwrap();
            let task = task.get_or_insert_with(works_by_turns);
            assert!(!task.is_finished());
            let before = rounds.load(SeqCst);
            eventually("it works", || rounds.load(SeqCst) > before + 3);
            events[index].set();
        };
        beside_blocked_workers(&runtime, until_set(&events), |_| {}, unblock);
        stop.store(true, SeqCst);
        runtime.block_on(task.into_inner().unwrap().unwrap());
    });
}

/// A worker that sleeps for moments only helps those that compute.
///
/// A timer wakes the free worker before the next inspection, each time.
#[test]
fn briefly_sleeping_worker_helps() {
    with_every_runtime_of_several(|runtime, _, workers| {
        let rounds = Arc::new(AtomicUsize::new(0));
        let wakes = {
            let rounds = rounds.clone();
            runtime.spawn(async move {
                loop {
                    rounds.fetch_add(1, SeqCst);
                    sleep(Duration::from_micros(20)).await;
                }
            })
        };
        for _ in 0..4 {
            let events = events(workers);
            let set = events.clone();
            let set = move |index: usize| set[index].set();
            beside_blocked_workers(&runtime, until_set(&events), set, |_| {});
            let before = rounds.load(SeqCst);
            eventually("it wakes", || rounds.load(SeqCst) > before + 3);
            let addresses = no_addresses(workers);
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let wait = until_received(&addresses);
            let send = |index: usize| {
                let address = addresses.lock().unwrap()[index].unwrap();
                sender.send_to(b"x", address).unwrap();
            };
            beside_blocked_workers(&runtime, wait, |_| {}, send);
        }
        drop(wakes);
    });
}

/// What comes due waits for no worker with long turns, beside an idle one.
///
/// Each poll of the two tasks is too short to find their worker stuck, and 64 of them are a turn.
#[test]
fn worker_with_long_turns_does_not_hold_timer() {
    const TICKS: u32 = 50;
    with_every_runtime_of_several(|runtime, _, _| {
        let boxes: Arc<[Mailbox<()>; 2]> = Arc::default();
        let pair = [0, 1].map(|index| {
            let boxes = boxes.clone();
            runtime.spawn(async move {
                loop {
                    boxes[index].receive().await;
                    compute(Duration::from_micros(300));
                    boxes[1 - index].send(());
                }
            })
        });
        let ticks = runtime.spawn(async move {
            // All sleep, and the timer wakes the one that leads.
            sleep(Duration::from_millis(20)).await;
            boxes[0].send(());
            // In one of several intervals: another program may take the processor away.
            for _ in 0..50 {
                let start = Instant::now();
                for _ in 0..TICKS {
                    sleep(Duration::from_millis(1)).await;
                }
                if start.elapsed() < Duration::from_millis(8) * TICKS {
                    return;
                }
            }
            panic!("timers wait for the end of turns");
        });
        runtime.block_on(ticks);
        drop(pair);
    });
}

fn compute(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// The second event source of a [`ring`]'s task, besides its mailbox.
#[derive(Clone, Copy)]
enum Beside {
    /// A timer that the task resets each time, and does not await.
    Timer,
    /// A socket that the task awaits too.
    Socket,
}

/// How often a task of a [`ring`] has moved to another worker, and was woken from another one; and
/// how many tasks were stolen meanwhile because their workers looked stuck.
#[derive(Debug)]
struct Moves {
    moved: usize,
    woken_remotely: usize,
    stolen: usize,
}

const ROUNDS: usize = 1_000;

/// Runs a ring of tasks, started one on each worker; each task wakes the next one by its mailbox.
fn ring(runtime: &Runtime, beside: Beside) -> Moves {
    let workers = runtime.workers();
    let counts = || {
        let workers = runtime.metrics().workers;
        let woken_remotely: usize = workers.iter().map(|it| it.remote_wakes).sum();
        (
            woken_remotely,
            workers.iter().map(|it| it.stolen).sum::<usize>(),
        )
    };
    let before = counts();
    let barrier = Arc::new(Barrier::new(workers));
    let boxes: Arc<Vec<Mailbox<usize>>> =
        Arc::new((0..workers).map(|_| Mailbox::default()).collect());
    let tasks: Vec<_> = (0..workers)
        .map(|index| {
            let (barrier, boxes) = (barrier.clone(), boxes.clone());
            runtime.spawn(async move {
                let mut timer = Timer::after(Duration::from_secs(3_600));
                assert!(future::poll_once(&mut timer).await.is_none());
                let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                barrier.wait();
                let (mut moved, mut thread) = (0, here());
                loop {
                    let mailbox = &boxes[index];
                    let round = match beside {
                        Beside::Timer => {
                            timer.set_after(Duration::from_secs(3_600));
                            mailbox.receive().await
                        }
                        Beside::Socket => {
                            let mut byte = [0];
                            let datagram =
                                async { panic!("nobody sends {:?}", socket.recv(&mut byte).await) };
                            future::or(mailbox.receive(), datagram).await
                        }
                    };
                    moved += usize::from(here() != thread);
                    thread = here();
                    boxes[(index + 1) % boxes.len()].send(round + 1);
                    if round >= ROUNDS {
                        return moved;
                    }
                }
            })
        })
        .collect();
    boxes[0].send(0);
    let moved = runtime.block_on(join_all(tasks)).into_iter().sum();
    let after = counts();
    Moves {
        moved,
        woken_remotely: after.0 - before.0,
        stolen: after.1 - before.1,
    }
}

/// How often the tasks follow one another to a worker: twice, if the system takes a worker off its
/// processor.
const FEW: usize = 2;

/// Tasks that talk to each other come to one worker.
///
/// Once together, they are woken by their own worker. Each steal takes one away, which then wakes
/// the others from there.
#[test]
fn talking_tasks_share_worker() {
    on_every_backend_with_several(|backend, workers| {
        let moves = ring(&runtime_of(backend, workers), Beside::Timer);
        let few = FEW * (2 + moves.stolen) * workers;
        assert!(moves.woken_remotely <= few, "they stay apart: {moves:?}");
    });
}

/// Tasks that talk to each other and wait for sockets come to one worker.
#[test]
fn talking_tasks_with_sockets_share_worker() {
    on_every_backend_with_several(|backend, workers| {
        let moves = ring(&runtime_of(backend, workers), Beside::Socket);
        // If they stayed apart, each round would be a move.
        let few = FEW * (2 + moves.stolen) * workers;
        assert!(moves.moved <= few, "they move: {moves:?}");
    });
}

/// Calls `run` on one worker, while the others are blocked.
fn on_the_only_free_worker<F>(runtime: &Runtime, run: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let workers = runtime.workers();
    let barrier = Arc::new(Barrier::new(workers));
    let mut run = Some(run);
    let mut releases = Vec::new();
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let (barrier, run) = (barrier.clone(), run.take());
            let (release, is_released) = mpsc::channel::<()>();
            releases.push(release);
            runtime.spawn(async move {
                barrier.wait();
                match run {
                    Some(run) => run().await,
                    None => drop(is_released.recv_timeout(LIMIT / 2)),
                }
            })
        })
        .collect();
    let mut tasks = tasks.into_iter();
    runtime.block_on(tasks.next().unwrap());
    drop(releases);
    runtime.block_on(join_all(tasks));
}

/// Two tasks that wake each other let a third one run.
///
/// Each of two tasks runs next, since the other one has just woken it; meanwhile a third is ready.
#[test]
fn mutual_wakes_let_third_run() {
    with_every_runtime_of_several(|runtime, _, _| {
        on_the_only_free_worker(&runtime, || async {
            let third = Mailbox::<()>::default();
            let has_run = Arc::new(AtomicBool::new(false));
            let boxes: Arc<[Mailbox<usize>; 2]> = Arc::default();
            let waits = {
                let (third, has_run) = (third.clone(), has_run.clone());
                polder::spawn(async move {
                    third.receive().await;
                    has_run.store(true, SeqCst);
                })
            };
            let pair = [0, 1].map(|index| {
                let (boxes, has_run) = (boxes.clone(), has_run.clone());
                polder::spawn(async move {
                    loop {
                        let wakes = boxes[index].receive().await;
                        boxes[1 - index].send(wakes + 1);
                        if has_run.load(SeqCst) {
                            return;
                        }
                        assert!(wakes < 100, "the third one waits");
                    }
                })
            });
            // All three tasks wait.
            for _ in 0..10 {
                future::yield_now().await;
            }
            third.send(());
            boxes[0].send(0);
            waits.await;
            join_all(pair).await;
        });
    });
}

/// Each worker has a local task, which wakes all stealable tasks in turn; a wake moves the
/// stealable task to the waking worker.
#[test]
fn nothing_is_lost_where_tasks_move_at_every_poll() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        let rounds = share(backend == polder::Backend::default(), 1_000);
        let walkers = 16 * workers;
        let mailboxes = |count| -> Arc<Vec<Mailbox<usize>>> {
            Arc::new((0..count).map(|_| Mailbox::default()).collect())
        };
        let (at_home, on_the_way) = (mailboxes(workers), mailboxes(walkers));
        let barrier = Arc::new(Barrier::new(workers));
        let locals: Vec<_> = (0..workers)
            .map(|index| {
                let (at_home, on_the_way) = (at_home.clone(), on_the_way.clone());
                let barrier = barrier.clone();
                runtime.spawn(async move {
                    barrier.wait();
                    let local = polder::spawn_local(async move {
                        loop {
                            match at_home[index].receive().await {
                                usize::MAX => return,
                                walker => on_the_way[walker].send(index),
                            }
                        }
                    });
                    local.await;
                })
            })
            .collect();
        let walking: Vec<_> = (0..walkers)
            .map(|walker| {
                let (at_home, on_the_way) = (at_home.clone(), on_the_way.clone());
                runtime.spawn(async move {
                    let mut moves = 0;
                    at_home[walker % at_home.len()].send(walker);
                    for _ in 0..rounds {
                        let before = here();
                        let index = on_the_way[walker].receive().await;
                        moves += usize::from(here() != before);
                        at_home[(index + 1) % at_home.len()].send(walker);
                    }
                    moves
                })
            })
            .collect();
        let moves: usize = runtime.block_on(join_all(walking)).iter().sum();
        at_home.iter().for_each(|mailbox| mailbox.send(usize::MAX));
        runtime.block_on(join_all(locals));
        // (Few, if the system leaves one worker on its processor: that one steals the others.)
        assert!(moves > 0, "no task moves");
        assert_eq!(runtime.shutdown(Duration::MAX).task_count(), 0);
    });
}

/// Tasks that wait for channels, timers and sockets alternately, next to others that compute, so
/// that they are moved, stolen and brought back all the time.
#[test]
fn nothing_is_lost_while_tasks_move_all_the_time() {
    with_every_runtime_of_several(|runtime, backend, workers| {
        let rounds = share(backend == polder::Backend::default(), 200);
        let tasks = 8 * workers;
        let boxes: Arc<Vec<Mailbox<usize>>> =
            Arc::new((0..tasks).map(|_| Mailbox::default()).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let computing: Vec<Task<()>> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                runtime.spawn(async move {
                    while !stop.load(SeqCst) {
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_millis(1) {
                            std::hint::spin_loop();
                        }
                        future::yield_now().await;
                        sleep(Duration::from_micros(100)).await;
                    }
                })
            })
            .collect();
        let walking: Vec<Task<usize>> = (0..tasks)
            .map(|index| {
                let boxes = boxes.clone();
                runtime.spawn(async move {
                    let (mut near, mut far) = tcp_pair().await;
                    let mut polled_on = HashSet::new();
                    for round in 0..rounds {
                        boxes[(index + 1 + round) % boxes.len()].send(round);
                        boxes[index].receive().await;
                        polled_on.insert(here());
                        match round % 4 {
                            0 => sleep(Duration::from_micros(50)).await,
                            1 => future::yield_now().await,
                            2 => {
                                let byte = [round as u8];
                                let mut read = [0];
                                let both =
                                    future::zip(near.read_exact(&mut read), far.write_all(&byte));
                                let (one, other) = both.await;
                                one.unwrap();
                                other.unwrap();
                                assert_eq!(read, byte);
                            }
                            _ => {
                                // A task that is dropped on the worker that it has reached by then.
                                let task = Handle::current().spawn(std::future::pending::<()>());
                                future::yield_now().await;
                                assert!(task.cancel().await.is_none());
                            }
                        }
                    }
                    polled_on.len()
                })
            })
            .collect();
        let threads = runtime.block_on(join_all(walking));
        stop.store(true, SeqCst);
        runtime.block_on(join_all(computing));
        assert!(threads.iter().all(|count| (1..=workers).contains(count)));
        assert_eq!(runtime.shutdown(Duration::MAX).task_count(), 0);
    });
}

// A runtime ends although its tasks wait for each other in ways that block its workers.

/// A runtime ends where its workers wait for tasks of theirs to be dropped.
///
/// Each worker is blocked until a stealable task of its own is dropped.
#[test]
fn runtime_ends_despite_waits_for_own_drops() {
    on_every_backend_with_several(|backend, workers| {
        for is_ready in [false, true] {
            let runtime = runtime_of(backend, workers);
            let barrier = Arc::new(Barrier::new(workers));
            let blocked = Arc::new(AtomicUsize::new(0));
            for _ in 0..workers {
                let (barrier, blocked) = (barrier.clone(), blocked.clone());
                let task = runtime.spawn(async move {
                    barrier.wait();
                    let (held, is_dropped) = mpsc::channel::<()>();
                    let waker = crate::probe::own_waker().await;
                    polder::spawn_local(async move {
                        if is_ready {
                            waker.wake();
                        }
                        blocked.fetch_add(1, SeqCst);
                        let end = is_dropped.recv_timeout(LIMIT / 2);
                        assert_eq!(end, Err(mpsc::RecvTimeoutError::Disconnected));
                    })
                    .detach();
                    crate::probe::hold(held).await
                });
                task.detach();
            }
            eventually("all are blocked", || blocked.load(SeqCst) == workers);
            drop(runtime);
        }
    });
}

/// A task that is polled after its first worker has exited is dropped.
///
/// A worker that has not noticed the shutdown polls a task once more, although the task was woken
/// to be dropped, and the worker that was responsible for it has exited: only the main worker is
/// left to drop it.
#[test]
fn task_polled_after_its_worker_exits_dropped() {
    struct AtExit(mpsc::Sender<()>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    thread_local!(static AT_EXIT: RefCell<Option<AtExit>> = const { RefCell::new(None) });

    with_every_runtime_of_several(|runtime, _, workers| {
        let barrier = Arc::new(Barrier::new(workers));
        let blocked = Arc::new(AtomicUsize::new(0));
        let is_ready = Arc::new(AtomicBool::new(false));
        let mailbox = Mailbox::<()>::default();
        let (exited, has_exited) = mpsc::channel();
        let mut wait_for_exit = Some((has_exited, mailbox.clone()));
        let mut closing = Vec::new();
        for index in 0..workers {
            let (barrier, blocked) = (barrier.clone(), blocked.clone());
            let (is_ready, mailbox, exited) = (is_ready.clone(), mailbox.clone(), exited.clone());
            let (closes, is_closing) = mpsc::channel::<()>();
            closing.push(closes);
            let last = wait_for_exit.take();
            let task = runtime.spawn(async move {
                barrier.wait();
                let Some((has_exited, mailbox)) = last else {
                    // All workers but one are blocked until the runtime closes; one of them reports
                    // its exit.
                    polder::spawn_local(async move {
                        if index == 1 {
                            AT_EXIT.with(|at_exit| at_exit.replace(Some(AtExit(exited))));
                        }
                        blocked.fetch_add(1, SeqCst);
                        let _ = is_closing.recv_timeout(LIMIT / 2);
                    })
                    .detach();
                    if index == 1 {
                        mailbox.receive().await;
                        crate::probe::hold(()).await
                    }
                    return;
                };
                polder::spawn_local(async move {
                    while blocked.load(SeqCst) < workers - 1 {
                        thread::sleep(Duration::from_millis(1));
                    }
                    mailbox.send(()); // The task comes here, and is ready behind this one.
                    is_ready.store(true, SeqCst);
                    has_exited.recv_timeout(LIMIT / 2).unwrap();
                })
                .detach();
            });
            task.detach();
        }
        drop(exited);
        eventually("all are blocked", || is_ready.load(SeqCst));
        let closes = crate::probe::OnDrop(move || closing.clear());
        runtime.spawn_local(crate::probe::hold(closes)).detach();
        runtime.run_once(Duration::ZERO);
        drop(runtime);
    });
}

/// Idle workers sleep beside one that computes, where it has nothing that they could take.
#[cfg(target_os = "linux")]
#[test]
fn idle_workers_sleep_beside_computing_one() {
    on_every_backend_with_several(|backend, workers| {
        let builder = Runtime::builder().backend(backend).workers(workers);
        let runtime = builder.build().unwrap();
        let (_release, is_released) = mpsc::channel::<()>();
        let (blocks, is_blocked) = mpsc::channel();
        let computes = runtime.spawn(async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut byte = [0];
            let mut datagram = Box::pin(socket.recv(&mut byte));
            assert!(future::poll_once(&mut datagram).await.is_none());
            blocks.send(()).unwrap();
            let _ = is_released.recv_timeout(LIMIT / 2);
        });
        computes.detach();
        is_blocked.recv().unwrap();
        let sleeps = || {
            let pool = runtime.metrics().workers.into_iter().take(workers);
            pool.map(|it| it.parks).sum::<usize>()
        };
        // In one of several intervals: at first one of them becomes the leader.
        eventually("nobody wakes up", || {
            let before = sleeps();
            runtime.block_on(sleep(Duration::from_millis(40)));
            sleeps() == before
        });
    });
}

/// Inspections are frequent beside a worker that computes.
///
/// A task that a worker wakes, and then computes, waits for less than the interval of rare ones.
#[test]
fn inspections_frequent_beside_computing_worker() {
    const TASKS: u32 = 16;
    with_every_runtime_of_several(|runtime, _, _| {
        let (mailbox, ran) = <(Mailbox<()>, Arc<AtomicUsize>)>::default();
        let woken = {
            let (mailbox, ran) = (mailbox.clone(), ran.clone());
            runtime.spawn(async move {
                loop {
                    mailbox.receive().await;
                    ran.fetch_add(1, SeqCst);
                }
            })
        };
        let computes = runtime.spawn(async move {
            // In one of several intervals, with room for a loaded machine, where a worker that is
            // off its processor for half of the time does not count as one that computes.
            for _ in 0..400 {
                let mut waits = Duration::ZERO;
                for _ in 0..TASKS {
                    let (before, start) = (ran.load(SeqCst), Instant::now());
                    mailbox.send(());
                    while ran.load(SeqCst) == before {
                        std::hint::spin_loop();
                    }
                    waits += start.elapsed();
                    // Another poll, after a time without a stuck worker.
                    sleep(Duration::from_millis(1)).await;
                }
                if waits < Duration::from_millis(9) * TASKS / 4 {
                    return;
                }
            }
            panic!("inspections are rare");
        });
        runtime.block_on(computes);
        drop(woken);
    });
}

/// A pool with little to do sleeps once for each thing to do, and is inspected rarely.
#[cfg(target_os = "linux")]
#[test]
fn pool_with_little_to_do_is_quiet() {
    const TICKS: usize = 50;
    in_children(|backend| {
        let builder = Runtime::builder().backend(backend).workers(2);
        let runtime = builder.thread_name("ticker").build().unwrap();
        let sleeps = || {
            let threads = ["ticker-", "polder-"].map(threads_called);
            threads
                .iter()
                .flatten()
                .map(|thread| sleeps_of(thread))
                .sum::<usize>()
        };
        // In one of several intervals: another program may take the processor away.
        eventually("it is quiet", || {
            let before = sleeps();
            let ticks = async {
                for _ in 0..TICKS {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            runtime.block_on(runtime.spawn(ticks));
            // With inspections every 11 ms there would be half as many more. (A storm of signals
            // makes it more.)
            sleeps() - before < TICKS * 5 / 4 || crate::support::is_in_storm()
        });
    });
}

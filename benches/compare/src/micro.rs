//! Small operations in isolation: the cost of spawning, yielding, waking, a channel and timers.
//!
//! A program is written once, against a runtime's spawning, yielding and sleeping ([`Peer`]), and
//! compiled for each runtime.

use std::cell::RefCell;
use std::future::poll_fn;
use std::hint::black_box;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use async_channel::bounded;
use futures_channel::{mpsc, oneshot};
use futures_lite::StreamExt;
use futures_lite::future::{poll_once, yield_now};

use crate::clock::{Clock, Ready, Took, nanos};
use crate::group::{Group, Metric, Order, Outcome, Skip, Workload, values};
use crate::peers;
use crate::program::{AT_ONCE, LONG, MANY, Peer, Resets, answer, ask, measured};

/// The number of tasks that yield round-robin.
const TASKS: u64 = 100;

pub fn group() -> Group {
    Group {
        name: "micro",
        title: "Micro",
        about: "The small things, each by itself, in nanoseconds of wall-clock time; everything but \
                the wake-up across threads stays on one thread, and is done by a task. The channels are the same crates' \
                for all, the oneshot `futures-channel`'s but for tokio, which has its own; `own channel` \
                is `tokio::sync::mpsc` and glommio's `local_channel`. *yield_now* is the runtime's own where it \
                has one: tokio's asks the kernel for events first. A task that wakes itself, which is futures-lite's \
                `yield_now` for all, is the same for all. `polder` spawns with `spawn`, \
                `polder-local` with `spawn_local`; `tokio` is the current-thread scheduler, \
                `tokio-local` a `LocalSet` on it; `smol` is its `LocalExecutor` with async-io's \
                timers; monoio and compio run on io_uring. `polder-slack` has a `timer_slack` of two \
                milliseconds: its timers are then as late as tokio's, which rounds to one.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

const NANOS: &[Metric] = &[
    Metric {
        key: "ns",
        title: "ns each",
        ratio: true,
    },
    Metric {
        key: "cpu",
        title: "CPU, ns each",
        ratio: true,
    },
];

const LATENESS: &[Metric] = &[
    Metric {
        key: "p50",
        title: "p50, µs",
        ratio: true,
    },
    Metric {
        key: "p99",
        title: "p99, µs",
        ratio: false,
    },
    Metric {
        key: "cpu",
        title: "CPU, ms",
        ratio: true,
    },
];

const PROGRAMS: [&str; 9] = [
    "polder",
    "polder-local",
    "polder-slack",
    "tokio",
    "tokio-local",
    "smol",
    "monoio",
    "compio",
    "glommio",
];

fn workloads(short: bool) -> Vec<Workload> {
    let rows = [
        ("spawn", "Spawn and await one", true),
        ("spawn-many", "Spawn 10,000, then await, each", true),
        ("yield", "yield_now, one task", false),
        ("yield-self", "Yield by waking itself, one task", false),
        ("yield-many", "yield_now, 100 tasks by turns", false),
        ("channel", "Ping-pong over async-channel", false),
        ("mpsc", "Ping-pong over futures-channel's mpsc", false),
        ("own-channel", "Ping-pong over its own channel", false),
        ("oneshot", "Oneshot from a new task", true),
        ("wake", "Wake-up across threads, there and back", false),
        ("timer", "Timer made, polled once, dropped", false),
        ("timer-reset", "Timer reset and polled, among 10,000", false),
        ("timeout", "A yield under a timeout", false),
        ("timers", "100,000 timers of 0 to 200 ms: lateness", false),
        (
            "service",
            "1,000 tasks that sleep 20 to 30 ms again and again, for 2 s",
            false,
        ),
        (
            "naps",
            "1,000 tasks that sleep 1 to 2 ms again and again, for 0.5 s",
            false,
        ),
    ];
    (rows.into_iter())
        .filter(|(name, ..)| !short || *name != "naps")
        // The last element is whether spawning itself is measured: only then does `polder-local`
        // differ.
        .map(|(name, title, spawns)| Workload {
            name: name.into(),
            title: title.into(),
            programs: (PROGRAMS.iter())
                .filter(|&&program| spawns || program != "polder-local")
                .filter(|&&program| {
                    ["service", "naps"].contains(&name) || program != "polder-slack"
                })
                .filter(|&&program| !short || !["monoio", "compio", "glommio"].contains(&program))
                .filter(|&&program| match name {
                    "own-channel" => ["tokio", "tokio-local", "glommio"].contains(&program),
                    _ => true,
                })
                .map(|&program| program.into())
                .collect(),
            yardstick: "tokio".into(),
            metrics: match name {
                "timers" | "service" | "naps" => LATENESS,
                _ => NANOS,
            },
            limit: Duration::from_millis(if short { 50 } else { 150 }),
            deadline: Duration::from_secs(30),
            rounds: None,
        })
        .collect()
}

fn measure(order: &Order) -> Outcome {
    if ["timers", "service", "naps"].contains(&order.workload.as_str()) {
        return lateness(order);
    }
    let mut run = ready(order)?;
    Ok(nanos(&mut run, step(order), order.limit))
}

/// Returns the number that operations come in multiples of.
pub fn step(order: &Order) -> u64 {
    match order.workload.as_str() {
        "spawn-many" | "timer-reset" => MANY,
        "yield-many" => TASKS,
        _ => 1,
    }
}

pub fn ready(order: &Order) -> Ready {
    match order.program.as_str() {
        "polder" => of::<peers::polder::Spawn>(order),
        "polder-local" => of::<peers::polder::SpawnLocal>(order),
        "tokio" => of::<peers::tokio::CurrentThread>(order),
        "tokio-local" => of::<peers::tokio::Local>(order),
        "smol" => of::<peers::smol::Local>(order),
        "monoio" => of::<peers::monoio::Peer>(order),
        "compio" => of::<peers::compio::Peer>(order),
        "glommio" => of::<peers::glommio::Peer>(order),
        _ => order.unknown(),
    }
}

fn lateness(order: &Order) -> Outcome {
    match order.program.as_str() {
        "polder" => of_timers::<peers::polder::Spawn>(order),
        "polder-slack" => of_timers::<peers::polder::Spawn<2_000>>(order),
        "tokio" => of_timers::<peers::tokio::CurrentThread>(order),
        "tokio-local" => of_timers::<peers::tokio::Local>(order),
        "smol" => of_timers::<peers::smol::Local>(order),
        "monoio" => of_timers::<peers::monoio::Peer>(order),
        "compio" => of_timers::<peers::compio::Peer>(order),
        "glommio" => of_timers::<peers::glommio::Peer>(order),
        _ => order.unknown(),
    }
}

fn of<P: Peer>(order: &Order) -> Ready {
    // Lives as long as the process.
    let peer: &'static P = Box::leak(Box::new(P::new()?));
    Ok(match order.workload.as_str() {
        "spawn" => Box::new(|count| spawn(peer, count)),
        "spawn-many" => Box::new(|count| spawn_many(peer, count)),
        "yield" => Box::new(move |count| measured(peer, async move { peer.yields(count).await })),
        "yield-self" => Box::new(move |count| {
            measured(peer, async move {
                for _ in 0..count {
                    yield_now().await;
                }
            })
        }),
        "channel" => Box::new(|count| channel(peer, count)),
        "mpsc" => Box::new(|count| mpsc(peer, count)),
        "own-channel" => peer.own_channel()?,
        "yield-many" => Box::new(move |count| {
            measured(peer, async move {
                let tasks: Vec<_> = (0..TASKS).map(|_| peer.yields(count / TASKS)).collect();
                for task in tasks {
                    task.await;
                }
            })
        }),
        "oneshot" => {
            (peer.own_oneshot()).unwrap_or_else(|| Box::new(|count| oneshots(peer, count)))
        }
        "wake" => Box::new(|count| across(peer, count)),
        "timer" => Box::new(|count| timer(peer, count)),
        "timeout" => Box::new(move |count| {
            measured(peer, async move {
                for _ in 0..count {
                    peer.timeout(LONG, yield_now()).await;
                }
            })
        }),
        // For `instructions` only: it takes as long as it sleeps.
        "sleep" => Box::new(move |count| {
            measured(peer, async move {
                for _ in 0..count {
                    peer.sleep(Duration::from_millis(1)).await;
                }
            })
        }),
        "timer-reset" => {
            let resets = Rc::new(RefCell::new(peer.resets(MANY)?));
            Box::new(move |count| {
                let resets = resets.clone();
                measured(peer, async move {
                    for _ in 0..count / MANY {
                        reset_all(&resets).await;
                    }
                })
            })
        }
        _ => return order.unknown(),
    })
}

fn spawn<P: Peer>(peer: &'static P, count: u64) -> Took {
    measured(peer, async move {
        for n in 0..count {
            black_box(peer.spawn(async move { n }).await);
        }
    })
}

fn spawn_many<P: Peer>(peer: &'static P, count: u64) -> Took {
    let mut tasks = Vec::with_capacity(MANY as usize);
    measured(peer, async move {
        for _ in 0..count / MANY {
            tasks.extend((0..MANY).map(|n| peer.spawn(async move { n })));
            for task in tasks.drain(..) {
                black_box(task.await);
            }
        }
    })
}

/// Round trips between two tasks.
fn channel<P: Peer>(peer: &P, count: u64) -> Took {
    let (questions, questioned) = bounded(1);
    let (answers, answered) = bounded(1);
    peer.block_on(async {
        let other = peer.spawn(answer(questioned, answers));
        let clock = Clock::start();
        peer.spawn(ask(questions, answered, count)).await;
        let took = clock.stop();
        other.await;
        took
    })
}

/// The same over the other channel that all of them can use.
fn mpsc<P: Peer>(peer: &P, count: u64) -> Took {
    let (mut questions, mut questioned) = mpsc::channel::<u64>(0);
    let (mut answers, mut answered) = mpsc::channel::<u64>(0);
    peer.block_on(async {
        let other = peer.spawn(async move {
            while let Some(number) = questioned.next().await {
                if send(&mut answers, number + 1).await.is_err() {
                    return;
                }
            }
        });
        let clock = Clock::start();
        let asking = peer.spawn(async move {
            for number in 0..count {
                let asked = send(&mut questions, number).await;
                asked.expect("the other side is there");
                assert_eq!(answered.next().await, Some(number + 1));
            }
        });
        asking.await;
        let took = clock.stop();
        other.await;
        took
    })
}

/// Sends as `SinkExt::feed` does.
async fn send(sender: &mut mpsc::Sender<u64>, number: u64) -> Result<(), mpsc::SendError> {
    poll_fn(|cx| sender.poll_ready(cx)).await?;
    sender.start_send(number)
}

fn oneshots<P: Peer>(peer: &'static P, count: u64) -> Took {
    measured(peer, async move {
        for number in 0..count {
            let (sender, receiver) = oneshot::channel();
            let task = peer.spawn(async move { sender.send(number) });
            black_box(receiver.await.expect("it is sent"));
            task.await.expect("it is received");
        }
    })
}

fn timer<P: Peer>(peer: &'static P, count: u64) -> Took {
    measured(peer, async move {
        for number in 0..count {
            assert!(poll_once(pin!(peer.sleep(LONG))).await.is_none());
            if number.is_multiple_of(AT_ONCE) {
                yield_now().await;
            }
        }
    })
}

/// Pushes each timer back and polls it.
async fn reset_all(resets: &RefCell<Resets>) {
    for from in (0..MANY as usize).step_by(AT_ONCE as usize) {
        poll_fn(|cx| {
            resets.borrow_mut()(from..from + AT_ONCE as usize, cx);
            Poll::Ready(())
        })
        .await;
        yield_now().await;
    }
}

/// Round trips between two threads that sleep while they wait.
fn across<P: Peer>(peer: &P, count: u64) -> Took {
    let (questions, questioned) = bounded(1);
    let (answers, answered) = bounded(1);
    let other = thread::spawn(move || {
        let peer = P::new().unwrap_or_else(|Skip(why)| panic!("{why}"));
        peer.block_on(answer(questioned, answers));
    });
    let took = measured(peer, ask(questions, answered, count));
    other.join().expect("it only answers");
    took
}

/// Measures the lateness of many timers, each in a separate task; those of "service" and "naps"
/// again and again.
fn of_timers<P: Peer>(order: &Order) -> Outcome {
    // Tasks, the shortest time in microseconds and by how much the longest is longer, and the sum
    // of what a task sleeps.
    let (tasks, least, range, sum) = match order.workload.as_str() {
        "timers" => (100_000, 0, 200_000, None),
        "service" => (1_000, 20_000, 10_000, Some(2_000_000)),
        "naps" => (1_000, 1_000, 1_000, Some(500_000)),
        _ => return order.unknown(),
    };
    // Spread evenly, in scrambled order.
    let micros = move |number: u64| least + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % range;
    let times = move |micros: u64| {
        let times = sum.map_or(1, |sum| sum / micros);
        u32::try_from(times).expect("it is small")
    };
    let peer: &'static P = Box::leak(Box::new(P::new()?));
    let (took, mut late) = peer.run(async move {
        let clock = Clock::start();
        let tasks: Vec<_> = (0..tasks)
            .map(micros)
            .map(|micros| peer.sleeper(Duration::from_micros(micros), times(micros)))
            .collect();
        let mut late = Vec::with_capacity(tasks.len());
        for task in tasks {
            late.push(task.await);
        }
        (clock.stop(), late)
    });
    late.sort_unstable();
    let micros = |part: f64| {
        let place = ((late.len() - 1) as f64 * part) as usize;
        late[place].as_nanos() as f64 / 1e3
    };
    Ok(values([
        ("p50", micros(0.50)),
        ("p99", micros(0.99)),
        ("cpu", took.cpu.as_secs_f64() * 1e3),
    ]))
}

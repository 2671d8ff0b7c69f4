//! The delay of a ready task when the worker that it last waited on is computing and another one is
//! idle.
//!
//! A round of [`beside`]: the other workers are kept busy until four tasks have started, and wait,
//! on the worker of the task that starts them. Then the others are released, and have time to
//! sleep. While the first task computes, without returning to its runtime, the four become ready in
//! sequence: by a message from the computing task, by a message from another thread, by a socket,
//! by a timer. Each reports the delay until it ran.
//!
//! A round of [`hole`]: all workers sleep, until a socket wakes the task that computes. The worker
//! that has waited for all sockets and timers is then likely to be the one that computes. Meanwhile
//! another socket becomes readable; the same again, with a timer.

use std::hint::spin_loop;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, bounded, unbounded};
use futures_lite::future::yield_now;

use super::median;
use crate::group::{Metric, Order, Outcome, values};
use crate::program::{MESSAGE, Pool, tcp_pair};

/// The cause of readiness: the indices of the results, and of [`KEYS`].
#[derive(Clone, Copy)]
pub enum By {
    Itself,
    Thread,
    Socket,
    Timer,
}

const KEYS: [&str; 4] = ["itself", "thread", "socket", "timer"];

const fn millis(key: &'static str, title: &'static str) -> Metric {
    Metric {
        key,
        title,
        ratio: false,
    }
}

const SOCKET: Metric = millis("socket", "socket: waits, ms");
const TIMER: Metric = millis("timer", "timer: waits, ms");
const WORST: Metric = millis("worst", "longest, ms");

pub const BESIDE: &[Metric] = &[
    millis("itself", "message of the task that computes: waits, ms"),
    millis("thread", "message of a thread: waits, ms"),
    SOCKET,
    TIMER,
    WORST,
];

pub const HOLE: &[Metric] = &[SOCKET, TIMER, WORST];

/// When each becomes ready, after the others were released. Far enough apart that an idle worker
/// that one has woken is asleep again before the next.
const fn due(by: By) -> Duration {
    Duration::from_millis(match by {
        By::Itself => 15,
        By::Thread => 30,
        By::Socket => 45,
        By::Timer => 60,
    })
}

/// The time until all workers sleep, before a task is woken; and how long it then computes until
/// another becomes ready.
const ASLEEP: Duration = Duration::from_millis(30);
const AWAKE: Duration = Duration::from_millis(40);

/// What a task reports: the cause, and how long it has waited since.
type Waited = (By, Duration);

/// Runs until the computing task has ended. The results are sent over the channel.
pub type Round<P> = fn(&P, usize, Duration, Sender<Waited>);

/// Repeats the round, and returns the medians of each cause, and the longest of all.
pub fn measure<P: Pool>(order: &Order, workers: usize, round: Round<P>) -> Outcome {
    let pool: &'static P = Box::leak(Box::new(P::new(workers)?));
    let computes = Duration::from_millis(order.number() as u64);
    let rounds = (order.limit.as_millis() / computes.as_millis()).max(1);
    let mut waited: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        let (sender, results) = unbounded();
        round(pool, workers, computes, sender);
        // Until each task has sent its own, and has ended.
        while let Ok((by, time)) = pool.block_on(results.recv()) {
            waited[by as usize].push(time.as_secs_f64() * 1e3);
        }
    }
    let worst = waited.iter().flatten().copied().fold(0.0, f64::max);
    let mut found = values([("worst", worst)]);
    for (key, times) in KEYS.into_iter().zip(waited) {
        found.extend(median(times).map(|median| (key.to_string(), median)));
    }
    Ok(found)
}

pub fn beside<P: Pool>(pool: &P, workers: usize, computes: Duration, results: Sender<Waited>) {
    let handle = pool.handle();
    let placed = Arc::new(AtomicBool::new(false));
    let busy = Arc::new(AtomicUsize::new(0));
    for number in 1..workers {
        let (placed, count) = (placed.clone(), busy.clone());
        P::detach(&handle, async move {
            count.fetch_add(1, Ordering::AcqRel);
            while !placed.load(Ordering::Acquire) {
                spin_loop();
            }
        });
        // Started one after the other, so that each has a worker to itself.
        while busy.load(Ordering::Acquire) < number {
            thread::yield_now();
        }
    }
    let spawner = handle.clone();
    let computing = P::spawn(&handle, compute::<P>(spawner, placed, computes, results));
    pool.block_on(computing);
}

async fn compute<P: Pool>(
    handle: P::Handle,
    placed: Arc<AtomicBool>,
    computes: Duration,
    results: Sender<Waited>,
) {
    let (mine, from_me) = bounded::<Instant>(1);
    let (other, from_thread) = bounded::<Instant>(1);
    let (written, told) = bounded::<Instant>(1);
    let (mut near, far) = tcp_pair(true);
    let waiting = Arc::new(AtomicUsize::new(0));
    P::detach(
        &handle,
        message(By::Itself, from_me, waiting.clone(), results.clone()),
    );
    P::detach(
        &handle,
        message(By::Thread, from_thread, waiting.clone(), results.clone()),
    );
    P::detach(
        &handle,
        socket::<P>(far, told, waiting.clone(), results.clone()),
    );
    P::detach(
        &handle,
        timer::<P>(due(By::Timer), waiting.clone(), results),
    );
    while waiting.load(Ordering::Acquire) < KEYS.len() {
        yield_now().await;
    }
    placed.store(true, Ordering::Release);

    // From here on this worker does nothing else until the end.
    let start = Instant::now();
    let thread = thread::spawn(move || {
        thread::sleep(due(By::Thread));
        let _ = other.try_send(Instant::now());
    });
    until(start + due(By::Itself));
    let _ = mine.try_send(Instant::now());
    until(start + due(By::Socket));
    let _ = written.try_send(Instant::now());
    near.write_all(&[7; MESSAGE]).expect("there is room");
    until(start + computes);
    thread.join().expect("it only sends");
    // Tasks that have not run by now will run once this task ends.
}

/// This thread is none of the workers.
pub fn hole<P: Pool>(pool: &P, _workers: usize, computes: Duration, results: Sender<Waited>) {
    let handle = pool.handle();
    for by in [By::Socket, By::Timer] {
        let (mut wakes, woken) = tcp_pair(true);
        let (mut near, far) = tcp_pair(true);
        let (written, told) = bounded::<Instant>(1);
        let computing = P::spawn(&handle, async move {
            P::receive(woken).await;
            until(Instant::now() + computes);
        });
        let (waiting, results) = (Arc::default(), results.clone());
        match by {
            By::Timer => P::detach(&handle, timer::<P>(ASLEEP + AWAKE, waiting, results)),
            _ => P::detach(&handle, socket::<P>(far, told, waiting, results)),
        }
        thread::sleep(ASLEEP);
        wakes.write_all(&[7; MESSAGE]).expect("there is room");
        thread::sleep(AWAKE);
        let _ = written.try_send(Instant::now());
        let _ = near.write_all(&[7; MESSAGE]);
        pool.block_on(computing);
    }
}

/// A task that waits for a socket, and is told when it was written to.
async fn socket<P: Pool>(
    far: TcpStream,
    told: Receiver<Instant>,
    waiting: Arc<AtomicUsize>,
    results: Sender<Waited>,
) {
    waiting.fetch_add(1, Ordering::AcqRel);
    P::receive(far).await;
    let now = Instant::now();
    let since = told.try_recv().expect("it was told before it was written");
    send(&results, By::Socket, now - since);
}

/// A task that sleeps.
async fn timer<P: Pool>(after: Duration, waiting: Arc<AtomicUsize>, results: Sender<Waited>) {
    waiting.fetch_add(1, Ordering::AcqRel);
    let until = Instant::now() + after;
    P::sleep(after).await;
    send(&results, By::Timer, until.elapsed());
}

/// A task that waits for a message, which carries its send time.
async fn message(
    by: By,
    receiver: Receiver<Instant>,
    waiting: Arc<AtomicUsize>,
    results: Sender<Waited>,
) {
    waiting.fetch_add(1, Ordering::AcqRel);
    let sent = receiver.recv().await.expect("it is sent");
    send(&results, by, sent.elapsed());
}

fn send(results: &Sender<Waited>, by: By, waited: Duration) {
    let sent = results.try_send((by, waited));
    sent.expect("whoever measures waits for it");
}

/// Computes until the deadline.
fn until(deadline: Instant) {
    while Instant::now() < deadline {
        for _ in 0..100 {
            spin_loop();
        }
    }
}

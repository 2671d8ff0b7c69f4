//! A worker with real-time priority, and senders without, on one core: a sender that the worker
//! waits for must get the core. It is a separate process, since it changes the scheduling of
//! threads.
#![cfg(target_os = "linux")]

#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polder::{Backend, Timer};

use support::{LIMIT, on_every_backend_alone, runtime_of, within};

/// The limit for a timer's delay and for one send: ten times the values seen on a busy machine, and
/// half of the time that the kernel lets a spinning real-time thread run before it takes the core
/// away (950 ms of a second, sched(7)).
const LATEST: Duration = Duration::from_millis(450);

/// Binds this thread to the first core that it may use; with real-time priority, if requested and
/// permitted.
fn schedule(real_time: bool) -> bool {
    // SAFETY: a set of cores is a plain structure, accessed with its own size; a thread may change
    // its own scheduling.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(0, size_of_val(&cores), &mut cores),
            0
        );
        let first = (0..libc::CPU_SETSIZE as usize).find(|core| libc::CPU_ISSET(*core, &cores));
        libc::CPU_ZERO(&mut cores);
        libc::CPU_SET(first.expect("it runs on some core"), &mut cores);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cores), &cores), 0);
        let priority = libc::sched_param { sched_priority: 1 };
        !real_time || libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) == 0
    }
}

/// A real time worker does not spin for a sender that it has preempted.
///
/// With one worker the senders push to its inbox, and with pool workers to the inject queue. A pool
/// worker that spins does not delay another one's timers, since it yields to threads of the same
/// priority; it delays the senders.
#[test]
fn realtime_worker_does_not_spin_for_sender() {
    on_every_backend_alone(|backend| {
        for workers in [1, 2] {
            let what = format!("with real-time priority and {workers} workers");
            // A busy machine may hold up a thread for that long, though hardly each time.
            let mut last = [Duration::ZERO; 2];
            let keeps_time = (0..3).any(|_| {
                last = within(LIMIT, &what, move || times(backend, workers));
                last.iter().all(|time| *time < LATEST)
            });
            let [late, longest] = last;
            assert!(keeps_time, "{what}: {late:?} late, {longest:?} for a spawn");
        }
    });
}

/// Returns the longest delay of a timer, and the longest time that it took to spawn a task.
fn times(backend: Backend, workers: usize) -> [Duration; 2] {
    if !schedule(true) {
        eprintln!("not allowed: {}", std::io::Error::last_os_error());
        return [Duration::ZERO; 2];
    }
    let runtime = runtime_of(backend, workers);
    let stop = Arc::new(AtomicBool::new(false));
    // A task on the workers that receive what is sent.
    runtime.block_on(runtime.spawn(async move {
        let mut senders = Vec::new();
        for _ in 0..2 {
            let (handle, stop) = (polder::Handle::current(), stop.clone());
            senders.push(thread::spawn(move || {
                // A thread inherits its creator's scheduling.
                let usual = libc::sched_param { sched_priority: 0 };
                // SAFETY: as above.
                unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &usual) };
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    handle.spawn(async {}).detach();
                    longest = longest.max(begin.elapsed());
                }
                longest
            }));
        }
        let (start, mut late) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < Duration::from_millis(700) {
            let due = Instant::now() + Duration::from_micros(300);
            Timer::at(due).await;
            late = late.max(due.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        // Leaves the core to the senders.
        while !senders.iter().all(thread::JoinHandle::is_finished) {
            Timer::after(Duration::from_millis(1)).await;
        }
        let spawning = senders.into_iter().map(|sender| sender.join().unwrap());
        [late, spawning.max().unwrap()]
    }))
}

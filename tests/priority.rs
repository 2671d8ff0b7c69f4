//! A worker with real-time priority, and senders without, on one core: a sender that the worker
//! waits for must get the core. It is a process of its own, since it changes how threads are
//! scheduled.
#![cfg(target_os = "linux")]

#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polder::Timer;

use support::{LIMIT, on_every_backend_alone, runtime, within};

/// How late a timer may be: ten times what is seen on a busy machine, and half of what the kernel
/// lets a spinning thread with real-time priority have before it takes the core away (950 ms of a
/// second, sched(7)).
const LATEST: Duration = Duration::from_millis(450);

/// Binds this thread to the first core that it may use; with real-time priority, if that is asked
/// for and granted.
fn schedule(real_time: bool) -> bool {
    // SAFETY: a set of cores is a plain structure, written and read in its own size; a thread's
    // scheduling is its own business.
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

#[test]
fn a_real_time_worker_does_not_spin_for_a_sender_that_it_has_preempted() {
    on_every_backend_alone(|backend| {
        within(LIMIT, "with real-time priority", move || {
            if !schedule(true) {
                eprintln!("not allowed: {}", std::io::Error::last_os_error());
                return;
            }
            let runtime = runtime(backend);
            let stop = Arc::new(AtomicBool::new(false));
            runtime.block_on(async {
                let mut senders = Vec::new();
                for _ in 0..2 {
                    let (handle, stop) = (polder::Handle::current(), stop.clone());
                    senders.push(thread::spawn(move || {
                        // A thread inherits how it is scheduled.
                        let usual = libc::sched_param { sched_priority: 0 };
                        // SAFETY: as above.
                        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &usual) };
                        while !stop.load(Ordering::Relaxed) {
                            handle.spawn(async {}).detach();
                        }
                    }));
                }
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(700) {
                    let due = Instant::now() + Duration::from_micros(30);
                    Timer::at(due).await;
                    let late = due.elapsed();
                    assert!(late < LATEST, "a timer came {late:?} late");
                }
                stop.store(true, Ordering::Relaxed);
                // Leaves them the core.
                while !senders.iter().all(thread::JoinHandle::is_finished) {
                    Timer::after(Duration::from_millis(1)).await;
                }
            });
        });
    });
}

//! A runtime that is being dropped waits for tasks that other threads are just spawning: see
//! "Closing" in `src/scheduler/shared.rs`. The window in which a wake-up could be lost is
//! nanoseconds long. So a signal stops the spawner at a random point until the runtime sleeps. (It
//! is a separate process because of the signal.)

#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use polder::{Backend, Runtime};

#[path = "conformance/support.rs"]
#[allow(dead_code, reason = "made for the conformance suite")]
mod support;
use support::{LIMIT, eventually, within};

/// The number of runtimes that end this way. About one spawner in ten is stopped in the relevant
/// code, and each relevant window is one or two instructions long.
const ENDS: usize = 60;

/// How long to wait for a runtime to go to sleep, in case it does not.
const LOOKING: Duration = Duration::from_millis(50);

static STOPPED: AtomicBool = AtomicBool::new(false);
static GO_ON: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOPPED.store(true, SeqCst);
    while !GO_ON.load(SeqCst) {
        let moment = libc::timespec {
            tv_sec: 0,
            tv_nsec: 50_000,
        };
        // SAFETY: nanosleep is async-signal-safe, and reads one structure.
        unsafe { libc::nanosleep(&moment, std::ptr::null_mut()) };
    }
}

fn install() {
    // SAFETY: all zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = stop as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler makes atomic accesses and one async-signal-safe call; no other code here
    // uses this signal.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn this_thread() -> libc::pid_t {
    // SAFETY: always allowed.
    unsafe { libc::gettid() }
}

/// Opens the file that shows whether a thread of this process sleeps in the kernel.
fn state_of(thread: libc::pid_t) -> File {
    File::open(format!("/proc/self/task/{thread}/stat")).expect("the thread lives")
}

/// Does not allocate: the spawner may be stopped while it holds the allocator's lock.
fn is_asleep(state: &File) -> bool {
    let mut text = [0; 512];
    let length = state.read_at(&mut text, 0).unwrap_or(0);
    // "number (name) state …", and the name may contain anything.
    let name_ends = text[..length].iter().rposition(|byte| *byte == b')');
    name_ends.is_some_and(|end| text[end..length].get(2) == Some(&b'S'))
}

/// Ends the runtime while a spawner is stopped somewhere. The spawner continues when the runtime
/// sleeps, or has ended.
fn end(backend: Backend, workers: usize) {
    let runtime = (Runtime::builder().backend(backend).workers(workers))
        .build()
        .expect("an available backend can be opened");
    let over = Arc::new(AtomicBool::new(false));
    STOPPED.store(false, SeqCst);
    GO_ON.store(false, SeqCst);
    let spawned = Arc::new(AtomicUsize::new(0));
    let (tell, spawner) = std::sync::mpsc::channel();
    let spawning = thread::spawn({
        let (handle, spawned) = (runtime.handle(), spawned.clone());
        move || {
            tell.send(this_thread()).unwrap();
            // The spawn that was interrupted is the last: another one would wake the runtime
            // instead.
            while !STOPPED.load(SeqCst) {
                handle.spawn(async {}).detach();
                spawned.fetch_add(1, SeqCst);
            }
        }
    });
    let spawner = spawner.recv().unwrap();
    // By then the spawner is at an arbitrary point.
    while spawned.load(SeqCst) < 20 {
        thread::yield_now();
    }
    let ending = state_of(this_thread());
    // Started before the spawner is stopped: the spawner may hold the allocator's lock then, which
    // would block a new thread, and this one with it.
    let releasing = thread::spawn({
        let over = over.clone();
        move || {
            eventually("the spawner is stopped", || STOPPED.load(SeqCst));
            // Twice, since the runtime may sleep for a lock on its way. If the spawner is in the
            // middle of a queue operation, the runtime need not sleep: it may poll repeatedly until
            // the queue is consistent.
            let start = Instant::now();
            for _ in 0..2 {
                while !is_asleep(&ending) && !over.load(SeqCst) && start.elapsed() < LOOKING {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_micros(100));
            }
            GO_ON.store(true, SeqCst);
        }
    });
    // SAFETY: the arguments are numbers; the thread lives until it is joined.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), spawner, libc::SIGUSR1) };
    while !STOPPED.load(SeqCst) {
        thread::yield_now();
    }
    drop(runtime);
    over.store(true, SeqCst);
    releasing.join().unwrap();
    spawning.join().unwrap();
}

/// A spawner that is stopped anywhere does not keep a runtime that ends asleep.
#[test]
fn stopped_spawner_does_not_hold_ending_runtime() {
    install();
    for backend in Backend::available() {
        for workers in [1, 2] {
            let what = format!("on {backend} with {workers} workers");
            within(LIMIT, &what, move || {
                (0..ENDS).for_each(|_| end(backend, workers));
            });
        }
    }
}

//! A stall report has the functions that its thread is in; the only effect on that thread is a
//! signal.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "conformance/again.rs"]
mod again;

use std::hint::black_box;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::diagnostics::{Backtrace, Stall};

use again::{again, ended};

const LIMIT: Duration = Duration::from_secs(60);

/// Well above the time that a busy machine withholds from a thread.
const OVER: Duration = Duration::from_millis(50);

/// The number of attempts until a stall is reported with a backtrace: on a busy machine its thread
/// may answer too late.
const ATTEMPTS: usize = 20;

#[inline(never)]
fn culprit(is_over: &dyn Fn() -> bool) -> u64 {
    let (start, mut number) = (Instant::now(), 1_u64);
    while !is_over() {
        assert!(start.elapsed() < LIMIT, "nobody notices");
        for _ in 0..1_000 {
            number = black_box(number.wrapping_mul(3));
        }
    }
    number
}

#[inline(never)]
fn accomplice(is_over: &dyn Fn() -> bool) -> u64 {
    black_box(culprit(is_over)) + 1
}

/// Returns a runtime, and its stall reports.
fn watched(workers: usize) -> (Runtime, Receiver<Stall>) {
    let (sender, stalls) = mpsc::channel();
    let runtime = Runtime::builder()
        .workers(workers)
        .on_stall(OVER, move |stall| drop(sender.send(stall.clone())))
        .build()
        .unwrap();
    (runtime, stalls)
}

/// Runs `stall` in tasks until a report has this function in its backtrace. (On a busy machine a
/// task may stall just before the call.)
fn backtrace_within(
    function: &str,
    workers: usize,
    stall: impl Fn(&dyn Fn() -> bool) + Clone + Send + 'static,
) -> Backtrace {
    first_backtrace(workers, stall, |backtrace| {
        backtrace.to_string().contains(function)
    })
}

/// Runs `stall` in tasks until a report has the wanted backtrace. The argument of `stall` returns
/// whether its stall was reported.
fn first_backtrace(
    workers: usize,
    stall: impl Fn(&dyn Fn() -> bool) + Clone + Send + 'static,
    is_wanted: impl Fn(&Backtrace) -> bool,
) -> Backtrace {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let (runtime, stalls) = watched(workers);
        let stalls = Arc::new(Mutex::new(stalls));
        let (its_stalls, stall) = (stalls.clone(), stall.clone());
        let task = runtime.spawn(async move {
            let told = Mutex::new(None);
            stall(&|| {
                let news = its_stalls.lock().unwrap().try_recv().ok();
                let mut told = told.lock().unwrap();
                let is_told = news.is_some();
                *told = told.take().or(news);
                is_told || told.is_some()
            });
            let told = told.lock().unwrap().take();
            told.unwrap_or_else(|| its_stalls.lock().unwrap().recv_timeout(LIMIT).unwrap())
        });
        let id = task.id();
        let told = runtime.block_on(task);
        let backtrace = told.backtrace.clone().filter(|_| told.task.id == Some(id));
        match backtrace {
            Some(backtrace) if is_wanted(&backtrace) => return backtrace,
            backtrace => last = backtrace,
        }
    }
    panic!("what is wanted never comes: {last:?}");
}

/// Returns the position of a function in a printed backtrace.
fn place(text: &str, name: &str) -> usize {
    text.find(name)
        .unwrap_or_else(|| panic!("{name} is missing in\n{text}"))
}

/// A task that computes is told with its functions from the innermost to its own.
#[test]
fn computing_task_shown_innermost_first() {
    for workers in [1, 2] {
        let backtrace = backtrace_within("culprit", workers, |is_over| {
            black_box(accomplice(is_over));
        });
        let text = backtrace.to_string();
        assert!(
            place(&text, "culprit") < place(&text, "accomplice"),
            "{text}"
        );
        // Up to the start of the thread, though that is not printed. (musl does not mark it.)
        if cfg!(target_env = "gnu") {
            assert_eq!(backtrace.problem(), None, "{text}");
        }
        let lines = text.lines().count();
        assert!(backtrace.addresses().len() > lines, "{text}");
        assert!(!text.contains("run_pool_worker"), "{text}");
        // The task's own functions end at polder's polling function.
        for polls in ["task/future.rs", "scheduler/worker.rs"] {
            assert!(!text.contains(polls), "{text}");
        }
        let numbered = |(index, line): (usize, &str)| line.starts_with(&format!("{index:>4}: "));
        assert!(text.lines().enumerate().all(numbered), "{text}");
    }
}

/// A call that the kernel restarts is told and goes on.
#[test]
fn restarted_call_reported_and_continues() {
    // TSan's runtime delays handlers until a C library function is called.
    if cfg!(tsan) {
        return;
    }
    const TEST: &str = "restarted_call_reported_and_continues";
    backtrace_within(TEST, 1, |is_told| {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        // (Writes after the read was interrupted.)
        let writes = thread::spawn(move || {
            thread::sleep(OVER * 6);
            rustix::io::write(&writer, b"whole").unwrap();
        });
        let mut bytes = [0; 16];
        // Neither an error nor a short read.
        assert_eq!(rustix::io::read(&reader, &mut bytes).unwrap(), 5);
        assert_eq!(&bytes[..5], b"whole");
        writes.join().unwrap();
        is_told();
    });
}

/// The signal arrives while much of the stack is in use: frames beyond the copied part are left
/// out, and the report says so.
#[test]
fn of_a_deep_stack_the_inner_part_is_told() {
    #[inline(never)]
    fn descend(levels: usize, is_over: &dyn Fn() -> bool) -> u64 {
        let ballast = black_box([levels as u8; 16 * 1024]);
        let number = match levels {
            0 => culprit(is_over),
            _ => descend(levels - 1, is_over),
        };
        number + u64::from(black_box(&ballast)[levels])
    }
    let backtrace = backtrace_within("culprit", 2, |is_over| {
        black_box(descend(40, is_over));
    });
    let text = backtrace.to_string();
    assert!(place(&text, "culprit") < place(&text, "descend"), "{text}");
    assert!(text.matches("descend").count() > 5, "{text}");
    assert!(text.contains("beyond the part of the stack"), "{text}");
}

/// Several tasks stall in parallel, repeatedly, while workers come and go.
#[test]
fn a_storm_of_stalls_harms_nobody() {
    const OVER: Duration = Duration::from_millis(5);
    const STALLS: usize = 200;
    /// On a machine that is too busy to notice this number, fewer suffice.
    const STORM: Duration = Duration::from_secs(20);
    let told = Arc::new(AtomicUsize::new(0));
    let shown = Arc::new(AtomicUsize::new(0));
    let bare = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let goes_on = || {
        let few = told.load(Ordering::Relaxed) < STALLS && start.elapsed() < STORM;
        few || shown.load(Ordering::Relaxed) == 0
    };
    while goes_on() {
        assert!(start.elapsed() < LIMIT, "{told:?} stalls, {shown:?} shown");
        let runtime = Runtime::builder()
            .workers(3)
            .on_stall(OVER, {
                let (told, shown, bare) = (told.clone(), shown.clone(), bare.clone());
                move |stall| {
                    let Some(backtrace) = stall.backtrace.as_ref() else {
                        // (A panic here would go unnoticed.)
                        bare.fetch_add(usize::from(!stall.has_ended), Ordering::Relaxed);
                        return;
                    };
                    told.fetch_add(1, Ordering::Relaxed);
                    if !backtrace.addresses().is_empty() {
                        shown.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
            .build()
            .unwrap();
        let tasks: Vec<_> = (0..24_u64)
            .map(|number| {
                runtime.spawn(async move {
                    let begin = Instant::now();
                    let time = OVER * 3 + Duration::from_micros(number * 37);
                    // Some stalls end while the thread is being asked.
                    match number % 3 {
                        0 => thread::sleep(time),
                        _ => drop(accomplice(&|| begin.elapsed() > time)),
                    }
                    number
                })
            })
            .collect();
        let sum = runtime.block_on(async {
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        });
        assert_eq!(sum, 23 * 24 / 2);
    }
    assert_eq!(bare.load(Ordering::Relaxed), 0);
}

/// Set in the child.
const CHILD: &str = "POLDER_BACKTRACE_CHILD";

/// Starts `test` again, as a program that prints its stalls; returns `None` in that program.
fn child(test: &str) -> Option<Output> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let mut command = again(test);
    command.env("POLDER_STALL", "50ms").env(CHILD, "yes");
    let child = ended(command.spawn().unwrap(), test, LIMIT);
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    Some(child)
}

/// Stalls until a report says that there is no backtrace, and why.
fn wait_for_problem(words: &str) {
    let stall = |is_told: &dyn Fn() -> bool| {
        black_box(accomplice(is_told));
    };
    first_backtrace(1, stall, |backtrace| {
        let is_it = (backtrace.problem()).is_some_and(|problem| problem.contains(words));
        is_it && backtrace.addresses().is_empty()
    });
}

#[test]
fn the_environment_asks_for_backtraces_too() {
    const TEST: &str = "the_environment_asks_for_backtraces_too";
    let Some(output) = child(TEST) else {
        for _ in 0..ATTEMPTS {
            let begin = Instant::now();
            polder::block_on(async { black_box(accomplice(&|| begin.elapsed() > OVER * 6)) });
        }
        return;
    };
    let said = String::from_utf8(output.stderr).unwrap();
    let stall = place(&said, "polder: worker 0 is stalled: ");
    assert!(stall < place(&said, "accomplice"), "{said}");
}

#[test]
fn a_program_keeps_its_own_handler_of_the_signal() {
    use std::sync::atomic::AtomicI32;

    static CAUGHT: AtomicI32 = AtomicI32::new(0);

    extern "C" fn own(signal: libc::c_int) {
        CAUGHT.fetch_add(signal, Ordering::Relaxed);
    }

    const TEST: &str = "a_program_keeps_its_own_handler_of_the_signal";
    if child(TEST).is_some() {
        return;
    }
    // SAFETY: the handler does an atomic addition.
    unsafe { libc::signal(libc::SIGURG, own as *const () as libc::sighandler_t) };
    wait_for_problem("has a handler of the program's");
    assert_eq!(CAUGHT.load(Ordering::Relaxed), 0);
    // SAFETY: it has no preconditions.
    unsafe { libc::raise(libc::SIGURG) };
    assert_eq!(CAUGHT.load(Ordering::Relaxed), libc::SIGURG);
}

#[test]
fn a_thread_that_blocks_the_signal_is_not_sent_it() {
    const TEST: &str = "a_thread_that_blocks_the_signal_is_not_sent_it";
    if child(TEST).is_some() {
        return;
    }
    let pending = || {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: libc::sigpending writes the set, which libc::sigismember then reads.
        unsafe {
            assert_eq!(libc::sigpending(set.as_mut_ptr()), 0);
            libc::sigismember(set.as_ptr(), libc::SIGURG)
        }
    };
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is emptied before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGURG);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
    wait_for_problem("blocks SIGURG");
    assert_eq!(pending(), 0);
}

/// A signal that comes at any time, from any sender, is not an answer and has no effect.
#[test]
fn a_signal_that_nobody_asked_for_changes_nothing() {
    const TEST: &str = "a_signal_that_nobody_asked_for_changes_nothing";
    if child(TEST).is_some() {
        return;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let sends = thread::spawn({
        let is_over = is_over.clone();
        move || {
            while !is_over.load(Ordering::Relaxed) {
                let process = rustix::process::getpid();
                rustix::process::kill_process(process, rustix::process::Signal::URG).unwrap();
                thread::sleep(Duration::from_micros(200));
            }
        }
    });
    for _ in 0..ATTEMPTS {
        backtrace_within("culprit", 2, |is_told| {
            black_box(accomplice(is_told));
        });
    }
    is_over.store(true, Ordering::Relaxed);
    sends.join().unwrap();
}

//! How a rule is run: on every backend, with one worker and with several, each time on its own
//! thread, with a deadline.
//!
//! A rule makes its runtimes by [`runtime`], on the thread that it is called on: a thread-local has
//! the number of workers. Rules about the driving thread, or the order in which it does things,
//! need a single worker: [`on_every_backend_alone`].
//!
//! Rules given as futures run in simulated worlds too: in `crates/polder-sim/tests/conformance`,
//! which has this file as well.
//!
//! Environment variables change how rules run: with `POLDER_RULES_ON` only on the backends that it
//! names; with `POLDER_STORM` each runs in a [`storm`] of signals; with `POLDER_RULES` the tests
//! that passed are written to a file, see [`passed`];

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polder::{Backend, Runtime};

/// The time limit of one rule on one backend, on a loaded machine. It is far longer than any rule
/// needs: it turns a lost wake-up into a failure.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The numbers of workers with which rules run, besides one, on the default backend, on `io-uring`,
/// on `kqueue` and on `poll`.
const SEVERAL: [usize; 2] = [2, 4];

/// So two workers share a poller, and of four the last one has a poller of its own.
const WORKERS_PER_POLLER: usize = 3;

thread_local! {
    /// The number of workers of the runtimes that the rule on this thread makes.
    static WORKERS: Cell<usize> = const { Cell::new(1) };
    /// Whether the rule on this thread has made a runtime.
    static USES_RUNTIMES: Cell<bool> = const { Cell::new(false) };
    /// Whether the rule on this thread runs in a world.
    pub static IS_IN_WORLD: Cell<bool> = const { Cell::new(false) };
}

/// Runs `rule` on every backend of this machine, one after the other; if it makes runtimes, also
/// with several workers.
pub fn on_every_backend(rule: impl Fn(Backend) + Clone + Send + 'static) {
    for backend in backends() {
        with_one_and_several_workers(&rule, backend);
        passed(backend);
    }
}

fn with_one_and_several_workers(
    rule: &(impl Fn(Backend) + Clone + Send + 'static),
    backend: Backend,
) {
    let uses_runtimes = run(rule, backend, 1);
    if uses_runtimes && has_several_workers(backend) {
        for workers in SEVERAL {
            run(rule, backend, workers);
        }
    }
}

/// Calls `f` with every backend of this machine at the same time, each on its own thread: for rules
/// that mostly wait.
fn in_parallel(f: impl Fn(Backend) + Clone + Send + 'static) {
    let start = |backend: Backend| {
        let f = f.clone();
        let name = thread::current().name().map(String::from);
        let thread = thread::Builder::new().name(name.unwrap_or_default());
        thread.spawn(move || f(backend)).expect("a thread starts")
    };
    let threads: Vec<_> = backends().into_iter().map(start).collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    }
}

/// Like [`on_every_backend_alone`], on all backends at the same time: for rules that mostly wait.
pub fn on_every_backend_alone_in_parallel(rule: impl Fn(Backend) + Clone + Send + 'static) {
    in_parallel(move |backend| {
        run(&rule, backend, 1);
        passed(backend);
    });
}

/// The backends on which rules run: those of this machine.
pub fn backends() -> Vec<Backend> {
    if env!("CARGO_PKG_NAME") == "polder-sim" {
        return Vec::new();
    }
    let mut backends = Backend::available();
    if let Ok(names) = std::env::var("POLDER_RULES_ON") {
        backends.retain(|backend| names.split(',').any(|name| name == backend.name()));
        assert!(
            !backends.is_empty(),
            "POLDER_RULES_ON={names}: none is here"
        );
    }
    backends
}

fn has_several_workers(backend: Backend) -> bool {
    backend == Backend::default() || ["io-uring", "kqueue", "poll"].contains(&backend.name())
}

/// Runs `rule` on every backend of this machine, with one worker: the driving thread.
pub fn on_every_backend_alone(rule: impl Fn(Backend) + Clone + Send + 'static) {
    for backend in backends() {
        run(&rule, backend, 1);
        passed(backend);
    }
}

/// Runs `rule` on every backend of this machine, with several workers; passes it their number.
pub fn on_every_backend_with_several(rule: impl Fn(Backend, usize) + Clone + Send + 'static) {
    for backend in backends() {
        for workers in SEVERAL {
            let rule = rule.clone();
            let rule = move |backend| rule(backend, workers);
            run(&rule, backend, workers);
        }
        passed(backend);
    }
}

/// Like [`on_every_backend`], with a new runtime.
pub fn with_every_runtime(rule: impl Fn(Runtime, Backend) + Clone + Send + 'static) {
    on_every_backend(move |backend| rule(runtime(backend), backend));
}

/// Like [`on_every_backend_alone`], with a new runtime.
pub fn with_every_runtime_alone(rule: impl Fn(Runtime, Backend) + Clone + Send + 'static) {
    on_every_backend_alone(move |backend| rule(runtime(backend), backend));
}

/// Like [`on_every_backend_with_several`], with a new runtime.
pub fn with_every_runtime_of_several(
    rule: impl Fn(Runtime, Backend, usize) + Clone + Send + 'static,
) {
    on_every_backend_with_several(move |backend, workers| {
        rule(runtime(backend), backend, workers);
    });
}

/// Runs `rule` with this number of workers. Returns whether `rule` has made a runtime.
fn run(
    rule: &(impl Fn(Backend) + Clone + Send + 'static),
    backend: Backend,
    workers: usize,
) -> bool {
    let rule = rule.clone();
    let what = match workers {
        1 => format!("on {backend}"),
        _ => format!("on {backend} with {workers} workers"),
    };
    within(LIMIT, &what, move || {
        WORKERS.set(workers);
        rule(backend);
        USES_RUNTIMES.get()
    })
}

/// Runs `rule`, given as a future, in a new runtime on every backend, with one worker and with
/// several; and in a simulated world.
pub fn in_every_runtime<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    in_every_kernel_runtime(rule);
}

/// Like [`in_every_runtime`], but not in a world: for rules that use what worlds do not simulate.
pub fn in_every_kernel_runtime<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()>,
{
    on_every_backend(move |backend| runtime(backend).block_on(rule(backend)));
}

/// Like [`in_every_runtime`], on all backends at the same time: for rules that mostly wait.
#[cfg(unix)]
pub fn in_every_runtime_in_parallel<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    in_parallel(move |backend| {
        let on_kernels = rule.clone();
        let on_kernels = move |backend| runtime(backend).block_on(on_kernels(backend));
        with_one_and_several_workers(&on_kernels, backend);
        passed(backend);
    });
}

/// Like [`in_every_runtime`], with one worker.
pub fn in_every_runtime_alone<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    in_every_kernel_runtime_alone(rule);
}

/// Like [`in_every_kernel_runtime`], with one worker.
pub fn in_every_kernel_runtime_alone<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()>,
{
    on_every_backend_alone(move |backend| runtime(backend).block_on(rule(backend)));
}

/// Whether the calling rule runs in a simulated world.
pub fn is_in_world() -> bool {
    IS_IN_WORLD.get()
}

/// Lets other tasks run, and the kernel be polled. In a world, where yielding takes no time, sleeps
/// long enough for data in transit to arrive.
pub async fn a_turn() {
    if is_in_world() {
        polder::time::sleep(ARRIVAL).await;
    } else {
        polder::future::yield_now().await;
    }
}

/// In a world: longer than a round trip to the own host takes.
const ARRIVAL: Duration = Duration::from_micros(100);

/// Runs `f` on its own thread; panics, with words, if `f` panics or takes too long.
pub fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = start(what, Box::new(move || drop(sender.send(f()))));
    receive(&receiver, limit, what, thread)
}

/// Starts a thread. A function of its own, so that it is compiled once and not for each test.
fn start(name: &str, f: Box<dyn FnOnce() + Send>) -> thread::JoinHandle<()> {
    thread::Builder::new()
        .name(name.into())
        .spawn(move || storm::within(f))
        .expect("a thread starts")
}

/// Receives what `thread` sends; panics if it does not.
fn receive<T>(
    receiver: &mpsc::Receiver<T>,
    limit: Duration,
    what: &str,
    thread: thread::JoinHandle<()>,
) -> T {
    match receiver.recv_timeout(limit) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            panic!("{what}: not done after {limit:?}: a wake-up was lost")
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let panic = thread.join().expect_err("it dropped its sender");
            panic!("{what}: {}", message(&*panic))
        }
    }
}

/// Records that the calling test has passed on a backend, or in a world: one line in the file that
/// `POLDER_RULES` names, if it is set. `ci/rules.sh` makes a table of these lines.
pub fn passed(on: impl Display) {
    note(on, "ok");
}

pub fn note(on: impl Display, what: &str) {
    let Some(path) = std::env::var_os("POLDER_RULES") else {
        return;
    };
    let mut file = (OpenOptions::new().append(true).create(true).open(path))
        .expect("the file that POLDER_RULES names can be written to");
    // A single write for the whole line: others append to the file at the same time.
    let line = format!("{on}\t{}\t{what}\n", test());
    file.write_all(line.as_bytes()).expect("a line is written");
}

/// Returns the name of the calling test, with its module.
pub fn test() -> String {
    // A test's thread is named after the test, but a test that runs alone runs on the main thread:
    // this is how children are started, with the whole name behind `--exact` or before it.
    match thread::current().name() {
        Some(name) if name != "main" => name.into(),
        _ => (std::env::args().skip(1))
            .find(|argument| !argument.starts_with('-'))
            .expect("a test that runs on the main thread is named by an argument"),
    }
}

/// Returns the full name of the test in which this closure or function is written: what `--exact`
/// takes.
pub fn test_of<F>(_: &F) -> &'static str {
    let name = std::any::type_name::<F>();
    let (_crate, name) = name.split_once("::").expect("it is in a crate");
    match name.split_once("::{{closure}}") {
        Some((test, _)) => test,
        None => name.rsplit_once("::").expect("it is in a test").0,
    }
}

pub fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

/// Returns a runtime with as many workers as the rule on this thread is run with.
pub fn runtime(backend: Backend) -> Runtime {
    USES_RUNTIMES.set(true);
    runtime_of(backend, WORKERS.get())
}

pub fn runtime_of(backend: Backend, workers: usize) -> Runtime {
    Runtime::builder()
        .backend(backend)
        .workers(workers)
        .workers_per_poller(WORKERS_PER_POLLER)
        .build()
        .expect("an available backend can be opened")
}

/// Returns the size of a heavy rule: full on the platform's default backend with one worker, a
/// tenth elsewhere, as in a world.
pub fn sized(backend: Backend, full: usize) -> usize {
    let is_default = backend == Backend::default() && WORKERS.get() == 1;
    share(is_default && !is_in_world(), full)
}

/// Returns all of it or a tenth; of either a tenth again under a sanitizer that makes everything
/// ten times slower.
pub fn share(all: bool, full: usize) -> usize {
    let part = if all { full } else { full / 10 };
    let part = if cfg!(tsan) { part / 10 } else { part };
    part.max(1)
}

/// Lets other tasks run until `condition` holds, regardless of their threads.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = polder::time::now();
    while !condition() {
        let elapsed = polder::time::now() - start;
        assert!(elapsed < LIMIT, "{what}: not so after {LIMIT:?}");
        for _ in 0..3 {
            a_turn().await;
        }
    }
}

/// Whether the rules run in a [`storm`], whose signals end sleeps.
pub fn is_in_storm() -> bool {
    std::env::var_os("POLDER_STORM").is_some()
}

/// Polls `condition` until it holds: for conditions that cannot be awaited.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "{what}: not so after {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The size of the process's address space in bytes. (The first number of /proc/self/statm is in
/// pages.)
#[cfg(target_os = "linux")]
pub fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: takes and returns a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Makes these system calls fail on this thread, on the threads that it starts, and in the programs
/// that these start.
#[cfg(target_os = "linux")]
pub fn refuse(calls: &[libc::c_long], errno: libc::c_int) {
    let step = |code: u32, jump_if_not: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_if_not,
        k: value,
    };
    // The number of the system call is the first field that a filter is shown (`seccomp_data`).
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in calls {
        let fail = libc::SECCOMP_RET_ERRNO | errno as u32;
        program.push(step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            *call as u32,
        ));
        program.push(step(libc::BPF_RET | libc::BPF_K, 0, fail));
    }
    program.push(step(
        libc::BPF_RET | libc::BPF_K,
        0,
        libc::SECCOMP_RET_ALLOW,
    ));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel reads a program, which lives as long as the call; it is about this thread.
    let result = unsafe {
        match libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) {
            0 => libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program),
            failed => failed,
        }
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A storm of signals: while a rule runs on its thread, that thread is interrupted `POLDER_STORM`
/// times a second, and every other thread of this process a tenth as often. The handler does
/// nothing and is installed without `SA_RESTART`, so every call that can fail with `EINTR` does.
///
/// The signal is SIGUSR2, since the pollers' rules count each SIGUSR1. A child that a test starts
/// is another process and gets none, unless it is this program, which makes its own storm.
#[cfg(target_os = "linux")]
pub mod storm {
    use std::cell::Cell;
    use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
    use std::thread;
    use std::time::{Duration, Instant};

    /// The threads that rules run on.
    static TARGETS: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

    thread_local! {
        /// The number of times that this thread was interrupted. Neither made nor dropped by any
        /// code, so the handler may touch it.
        static INTERRUPTS: Cell<u64> = const { Cell::new(0) };
    }

    extern "C" fn count(_: libc::c_int) {
        INTERRUPTS.set(INTERRUPTS.get() + 1);
    }

    fn targets() -> MutexGuard<'static, Vec<libc::pid_t>> {
        TARGETS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn this_thread() -> libc::pid_t {
        // SAFETY: always allowed.
        unsafe { libc::gettid() }
    }

    /// Runs `f` on this thread, in the storm if one is configured.
    pub fn within<T>(f: impl FnOnce() -> T) -> T {
        struct Target;
        impl Drop for Target {
            fn drop(&mut self) {
                targets().retain(|target| *target != this_thread());
            }
        }
        if !begin() {
            return f();
        }
        targets().push(this_thread());
        let target = Target;
        let result = f();
        // Otherwise a storm that never started would go unnoticed.
        super::eventually("the storm reaches this thread", || INTERRUPTS.get() > 0);
        drop(target);
        result
    }

    /// Starts the storm, once. Returns whether one is configured.
    fn begin() -> bool {
        static STORM: OnceLock<bool> = OnceLock::new();
        *STORM.get_or_init(|| {
            let Some(rate) = std::env::var_os("POLDER_STORM") else {
                return false;
            };
            let rate: u32 = (rate.to_str().and_then(|rate| rate.parse().ok()))
                .filter(|rate| *rate > 0)
                .expect("POLDER_STORM is a number of signals a second");
            install();
            let storm = thread::Builder::new().name("storm".into());
            storm
                .spawn(move || blow(Duration::from_secs(1) / rate))
                .expect("a thread starts");
            true
        })
    }

    fn install() {
        // SAFETY: all zero is a valid `sigaction`: no flags (so no SA_RESTART), an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        // SAFETY: the handler only adds to a number of its own thread; no other code here uses this
        // signal.
        let result = unsafe { libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    fn blow(period: Duration) {
        // SAFETY: two numbers. Without it a sleep is 50 µs longer than requested.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        // Reading the list of threads takes a descriptor, and some rules count those of this
        // process. So this thread has its own descriptor table from here on, without the others'
        // descriptors.
        // SAFETY: the descriptors are closed in this thread only, which owns none.
        let alone = unsafe {
            let unshare = libc::CLOSE_RANGE_UNSHARE;
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, unshare) == 0
        };
        assert!(alone, "close_range: {}", std::io::Error::last_os_error());
        let mut next = Instant::now();
        for round in 0.. {
            let rules = targets();
            rules.iter().copied().for_each(interrupt);
            if round % 10 == 0 {
                others(&rules).into_iter().for_each(interrupt);
            }
            drop(rules);
            // If it is much too late, as on a loaded machine, it does not catch up: signals that
            // come together count as one.
            next = (next + period).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn others(rules: &[libc::pid_t]) -> Vec<libc::pid_t> {
        // If a rule has lowered the limit of descriptors, the list cannot be read.
        let Ok(list) = std::fs::read_dir("/proc/self/task") else {
            return Vec::new();
        };
        let threads = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        threads
            .filter(|thread| *thread != this_thread() && !rules.contains(thread))
            .collect()
    }

    fn interrupt(thread: libc::pid_t) {
        // SAFETY: three numbers; a thread that has exited is an error, and so is another process's
        // thread, since our process is named.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR2) };
    }
}

#[cfg(not(target_os = "linux"))]
pub mod storm {
    pub fn within<T>(f: impl FnOnce() -> T) -> T {
        f()
    }
}

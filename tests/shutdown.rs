//! A process or a runtime that cannot continue: `process::exit` within a task, and a poller that
//! cannot wait any more. Each test runs in a separate process, on every backend.
#![cfg(target_os = "linux")]

#[path = "conformance/again.rs"]
mod again;
#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::Output;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use polder::future::poll_once;
use polder::net::UdpSocket;
use polder::time::sleep;
use polder::{Backend, Runtime};
use rustix::process::{Resource, Rlimit, setrlimit};

use again::{again, ended};
use support::{LIMIT, eventually, message, on_every_backend, passed, runtime_of, test_of};

const CHILD: &str = "POLDER_ENDS_CHILD";

/// Runs `child` in a separate process, on these backends and with 1, 2 and 4 workers, and passes
/// its output to `judge`. A child that does not end is a failure.
fn in_children(
    backends: impl Fn(Backend) -> bool,
    child: impl Fn(Backend, usize),
    judge: fn(&Output),
) {
    if let Ok(workers) = std::env::var(CHILD) {
        let backend = Backend::from_env().expect("the first process has set it");
        return child(backend, workers.parse().expect("a number"));
    }
    let test = test_of(&child);
    for backend in Backend::available().into_iter().filter(|it| backends(*it)) {
        for workers in [1, 2, 4] {
            let mut command = again(test);
            command.env(CHILD, workers.to_string());
            command.env("POLDER_BACKEND", backend.name());
            let what = format!("{test} on {backend} with {workers} workers");
            let child = command.spawn().expect("the test starts again");
            judge(&ended(child, &what, LIMIT));
        }
        passed(backend);
    }
}

const STATUS: i32 = 42;

/// Exit within a task of a thread local runtime ends the process.
#[test]
fn exit_in_thread_local_runtimes_task() {
    thread_local! {
        static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    }
    fn exit(backend: Backend, workers: usize) {
        RUNTIME.set(Some(runtime_of(backend, workers)));
        RUNTIME.with_borrow(|runtime| {
            let runtime = runtime.as_ref().unwrap();
            runtime.spawn(std::future::pending::<()>()).detach();
            let exits = runtime.spawn_local(async {
                sleep(Duration::from_millis(1)).await;
                std::process::exit(STATUS)
            });
            runtime.block_on(exits);
        });
    }
    in_children(
        |_| true,
        exit,
        |output| assert_eq!(output.status.code(), Some(STATUS), "{output:?}"),
    );
}

/// Workers and threads are in the middle of them.
#[cfg(feature = "fs")]
#[test]
fn exit_during_calls_on_files_ends_the_process() {
    use polder::fs::{self, File};
    use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};

    fn exit(backend: Backend, workers: usize) {
        let runtime = runtime_of(backend, workers);
        for _ in 0..8 {
            // It has no name, so nothing is left of it.
            let mut file = File::from(tempfile::tempfile().unwrap());
            let uses = async move {
                loop {
                    file.seek(SeekFrom::Start(0)).await.unwrap();
                    file.write_all(&[7; 9_000]).await.unwrap();
                    file.seek(SeekFrom::Start(0)).await.unwrap();
                    file.read_exact(&mut [0; 9_000]).await.unwrap();
                    let _ = poll_once(file.read(&mut [0; 100])).await;
                    fs::read("Cargo.toml").await.unwrap();
                }
            };
            runtime.spawn(uses).detach();
        }
        runtime.block_on(async {
            sleep(Duration::from_millis(5)).await;
            std::process::exit(STATUS)
        });
    }
    in_children(
        |_| true,
        exit,
        |output| assert_eq!(output.status.code(), Some(STATUS), "{output:?}"),
    );
}

/// A runtime in a thread local ends with its thread.
///
/// One runtime is dropped by a thread-local's destructor; another is made and driven in such a
/// destructor, after other thread-locals were destroyed.
#[test]
fn thread_local_runtime_ends_with_thread() {
    /// Drives a runtime in its destructor.
    struct Drives(Backend, usize);
    impl Drop for Drives {
        fn drop(&mut self) {
            let runtime = runtime_of(self.0, self.1);
            runtime.block_on(sleep(Duration::from_millis(1)));
            runtime.block_on(runtime.spawn(sleep(Duration::from_millis(1))));
        }
    }
    thread_local! {
        static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
        static DRIVES: RefCell<Option<Drives>> = const { RefCell::new(None) };
    }
    on_every_backend(|backend| {
        for workers in [1, 2] {
            // The thread-local that is used first is dropped last.
            for drives_first in [true, false] {
                let thread = thread::spawn(move || {
                    let drives = || DRIVES.set(Some(Drives(backend, workers)));
                    if drives_first {
                        drives();
                    }
                    let runtime = runtime_of(backend, workers);
                    let waits = async {
                        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                        let _ = socket.recv(&mut [0; 1]).await;
                    };
                    runtime.spawn(waits).detach();
                    runtime.block_on(sleep(Duration::from_millis(1)));
                    RUNTIME.set(Some(runtime));
                    if !drives_first {
                        drives();
                    }
                });
                thread.join().unwrap();
            }
        }
    });
}

/// All backends but `select`, which has neither a limit that can be lowered nor a descriptor to
/// break.
fn can_break(backend: Backend) -> bool {
    backend != Backend::Select
}

/// Makes every wait of this process fail: replaces the descriptors of epoll and of rings, and sets
/// the descriptor limit below what `poll` needs.
fn break_pollers() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let list = std::fs::read_dir("/proc/self/fd").expect("the list of descriptors");
    let numbers: Vec<i32> = (list.filter_map(Result::ok))
        .filter(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|it| {
                it.ends_with("anon_inode:[eventpoll]") || it.ends_with("anon_inode:[io_uring]")
            })
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers {
        use std::os::fd::AsRawFd;
        // SAFETY: deliberately violates descriptor ownership: the number refers to something else
        // afterwards. All its users get an error from the kernel.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), number) }, number);
    }
    let limit = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

/// Asserts that the child printed its last line, "ended", and succeeded.
fn has_ended(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("ended"),
        "{}\n{said}\n{complained}",
        output.status
    );
}

/// Records its drop, and the thread that made it.
struct Dropped {
    made_on: ThreadId,
    count: Arc<AtomicUsize>,
    elsewhere: Arc<AtomicUsize>,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if thread::current().id() != self.made_on {
            self.elsewhere.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Waits for a socket, and counts that it does.
async fn wait_forever(_dropped: Dropped, waiting: Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut byte = [0];
    let mut receive = pin!(socket.recv(&mut byte));
    assert!(poll_once(&mut receive).await.is_none());
    waiting.fetch_add(1, Ordering::SeqCst);
    let _ = receive.await;
    sleep(Duration::MAX).await;
}

/// A runtime with a poller that fails ends with a message, and drops each task on its thread.
#[test]
fn failed_pollers_end_runtime_and_tasks() {
    fn end(backend: Backend, workers: usize) {
        let runtime = runtime_of(backend, workers);
        let (count, elsewhere) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let waiting = Arc::<AtomicUsize>::default();
        let threads = Arc::new(Mutex::new(HashSet::new()));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (count, elsewhere, threads) =
                    (count.clone(), elsewhere.clone(), threads.clone());
                let waiting = waiting.clone();
                // One task that may move, and one that may not.
                runtime.spawn(async move {
                    let made_on = thread::current().id();
                    let dropped = Dropped {
                        made_on,
                        count: count.clone(),
                        elsewhere,
                    };
                    polder::spawn_local(wait_forever(dropped, waiting.clone())).detach();
                    threads.lock().unwrap().insert(made_on);
                    let dropped = Dropped {
                        made_on,
                        count,
                        elsewhere: Arc::default(),
                    };
                    wait_forever(dropped, waiting).await;
                })
            })
            .collect();
        let everyone = async {
            while waiting.load(Ordering::SeqCst) < 40 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        runtime.block_on(everyone);
        break_pollers();
        let handle = runtime.handle();
        // Wakes a worker that is already asleep, so that its next wait fails.
        handle.spawn(async {}).detach();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(std::future::pending::<()>())
        }));
        let panic = ended.expect_err("a future that never ends has ended");
        let words = message(&*panic);
        assert!(words.contains("runtime shut down: polling"), "{words}");
        assert!(words.contains(backend.name()), "{words}");
        // Fails again, for each way of driving.
        assert!(
            catch_unwind(AssertUnwindSafe(
                || runtime.run_once(Duration::from_millis(5))
            ))
            .is_err()
        );
        handle.spawn(async { panic!("it is cancelled") }).detach();
        match workers {
            2 => drop(runtime),
            _ => drop(runtime.shutdown(Duration::from_secs(5))),
        }
        assert_eq!(count.load(Ordering::SeqCst), 40);
        assert_eq!(elsewhere.load(Ordering::SeqCst), 0);
        drop(tasks);
        println!("ended");
    }
    in_children(can_break, end, has_ended);
}

/// The future of the scope is done when the runtime fails.
#[test]
fn scope_panics_when_runtime_fails() {
    fn end(backend: Backend, workers: usize) {
        let runtime = runtime_of(backend, workers);
        let mut is_done = false;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            runtime.scope(async |scope| {
                scope.spawn(async {
                    sleep(Duration::from_millis(50)).await;
                    is_done = true;
                });
                break_pollers();
            });
        }));
        assert!(ended.is_err() || is_done);
        println!("ended");
    }
    in_children(can_break, end, has_ended);
}

/// A runtime that is dropped by the panic of its failed wait drops its tasks.
///
/// The runtime is dropped while the panic of a failed wait unwinds: a second failure must not
/// abort.
#[test]
fn failed_wait_panic_drops_tasks() {
    fn end(backend: Backend, workers: usize) {
        let count = Arc::<AtomicUsize>::default();
        let counted = count.clone();
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let runtime = runtime_of(backend, workers);
            let elsewhere = Arc::default();
            let is_bound = Rc::new(Cell::new(false));
            let has_bound = is_bound.clone();
            runtime
                .spawn_local(async move {
                    let _dropped = Dropped {
                        made_on: thread::current().id(),
                        count: counted,
                        elsewhere,
                    };
                    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    has_bound.set(true);
                    let _ = socket.recv(&mut [0; 1]).await;
                })
                .detach();
            while !is_bound.get() {
                runtime.block_on(sleep(Duration::from_millis(1)));
            }
            break_pollers();
            runtime.run();
        }));
        assert!(ended.is_err());
        eventually("the task is dropped", || count.load(Ordering::SeqCst) == 1);
        println!("ended");
    }
    in_children(can_break, end, has_ended);
}

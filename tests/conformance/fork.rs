//! A child of `fork` that does not call `exec` (rule 23c): it starts with fresh state, and nothing
//! in it hangs, regardless of its parent's earlier use of polder. docs/PLATFORM.md has a table of
//! what works there; the cases are those of libuv (test/test-fork.c), and the features that polder
//! has beyond libuv.
//!
//! Each test is its own process, which uses something, and then forks. The child ends by `_exit`,
//! with zero if it has not panicked; SIGALRM ends a child that hangs.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::{Backend, Runtime, Timer, future};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::child::in_children;
use crate::probe::{listen, tcp_pair};
use crate::support::{LIMIT, message, share};

/// The child's time limit. It needs some milliseconds.
const SECONDS: u32 = 20;

const SOON: Duration = Duration::from_millis(5);

struct Child(Pid);

/// Forks. The child runs `f` and exits.
#[must_use]
fn fork(f: impl FnOnce()) -> Child {
    // SAFETY: the child ends by `_exit`. Its actions before that are the subject of these tests;
    // the C library's `fork` leaves its own locks in order, and those of the test's process are not
    // held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: always allowed; nothing handles the signal.
        unsafe { libc::alarm(SECONDS) };
        let result = catch_unwind(AssertUnwindSafe(f));
        // SAFETY: always allowed.
        unsafe { libc::_exit(result.is_err().into()) };
    }
    assert!(child > 0, "{}", io::Error::last_os_error());
    Child(Pid::from_raw(child).unwrap())
}

impl Child {
    fn kill(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.0, signal).unwrap();
    }

    /// Waits until the child ends, and asserts that it ends in time and without an error.
    #[track_caller]
    fn ends(self) {
        let start = Instant::now();
        let status = loop {
            match waitpid(Some(self.0), WaitOptions::NOHANG).unwrap() {
                Some((_, status)) => break status,
                None => assert!(start.elapsed() < LIMIT, "the child has not ended"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let hangs = status.terminating_signal() == Some(libc::SIGALRM);
        assert!(!hangs, "the child hangs");
        assert_eq!(status.exit_status(), Some(0), "the child has failed");
    }
}

/// Whether a child can have a runtime: async-io's reactor is its parent's.
fn has_runtimes(backend: Backend) -> bool {
    backend != Backend::AsyncIo
}

/// Drives a future with an executor that knows nothing of polder.
fn plainly<T>(future: impl Future<Output = T>) -> T {
    futures_lite::future::block_on(future)
}

/// Sends ten bytes over TCP.
async fn talks() {
    let (listener, address) = listen().await;
    let client = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"0123456789").await.unwrap();
    };
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"0123456789");
    };
    future::zip(client, server).await;
}

/// A child whose only thread is a worker of its parent's pool: that ends, and the process with it.
#[test]
fn a_worker_of_its_parents_pool_ends_in_a_child() {
    in_children(|backend| {
        let runtime = Runtime::builder().backend(backend).workers(2).build();
        let child = runtime.unwrap().block_on(async {
            // Another worker leads.
            Timer::after(SOON).await;
            let forks = async {
                // SAFETY: as in `fork`; the child goes on in polder's code alone.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: always allowed; nothing handles the signal.
                    unsafe { libc::alarm(SECONDS) };
                }
                child
            };
            polder::spawn(forks).await
        });
        assert!(child > 0, "{}", io::Error::last_os_error());
        Child(Pid::from_raw(child).unwrap()).ends();
    });
}

/// libuv: fork_timer.
#[test]
fn a_child_drives_runtimes_of_its_own() {
    in_children(|backend| {
        polder::block_on(talks());
        let runtime = Runtime::new().unwrap();
        runtime.block_on(talks());
        let child = fork(|| {
            if !has_runtimes(backend) {
                let error = Runtime::new().expect_err("async-io's thread is the parent's");
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains("fork"), "{error}");
                return;
            }
            for workers in [1, 2] {
                let runtime = Runtime::builder().workers(workers).build().unwrap();
                runtime.block_on(async {
                    Timer::after(SOON).await;
                    polder::spawn(talks()).await;
                });
            }
            polder::block_on(talks());
        });
        child.ends();
        // The parent's runtime continues unaffected.
        runtime.block_on(talks());
    });
}

/// The case of a task that itself forks.
#[test]
fn a_child_of_a_task_drives_a_runtime_of_its_own() {
    in_children(|backend| {
        polder::block_on(async {
            talks().await;
            let child = fork(|| {
                if has_runtimes(backend) {
                    polder::block_on(talks());
                }
            });
            child.ends();
            talks().await;
        });
    });
}

/// In a child timers and sockets work in an executor of any kind.
#[test]
fn executors_in_child_have_timers_and_sockets() {
    in_children(|backend| {
        let used = async {
            Timer::after(SOON).await;
            talks().await;
            polder::spawn(talks()).await;
        };
        plainly(used);
        let child = fork(|| {
            if !has_runtimes(backend) {
                let refused = catch_unwind(|| plainly(Timer::after(SOON)));
                let panic = refused.expect_err("there is no thread to drive it");
                assert!(message(&*panic).contains("fork"), "{}", message(&*panic));
                return;
            }
            plainly(async {
                Timer::after(SOON).await;
                talks().await;
                polder::spawn(talks()).await;
            });
        });
        child.ends();
        plainly(talks());
    });
}

/// A timer that the parent waits for fires in the child too.
///
/// libuv: fork_timer, started by the parent.
#[test]
fn timer_of_parent_fires_in_child() {
    in_children(|backend| {
        let mut timer = Timer::after(20 * SOON);
        plainly(async { assert!(future::poll_once(&mut timer).await.is_none()) });
        let inherited = Cell::new(Some(timer));
        let child = fork(|| {
            if has_runtimes(backend) {
                plainly(inherited.take().unwrap());
            }
        });
        plainly(inherited.take().unwrap());
        child.ends();
    });
}

/// A child waits for no lock that a thread of its parent has held.
#[test]
fn locks_of_parent_threads_not_waited_for() {
    in_children(|backend| {
        let (mut near, mut far) = polder::block_on(tcp_pair());
        // The background runtime's thread always has a timer to fire and an event to deliver.
        for nth in 0..20 {
            let every = Duration::from_micros(50 + nth);
            polder::spawn(async move {
                loop {
                    Timer::after(every).await;
                }
            })
            .detach();
        }
        polder::spawn(async move {
            loop {
                near.write_all(b"0123456789").await.unwrap();
                Timer::after(Duration::from_micros(20)).await;
            }
        })
        .detach();
        for _ in 0..share(backend == Backend::default(), 200) {
            let mut timer = Timer::after(SOON);
            let _ = plainly(future::poll_once(&mut timer));
            plainly(far.read_exact(&mut [0; 20])).unwrap();
            let inherited = Cell::new(Some(timer));
            let child = fork(|| {
                if has_runtimes(backend) {
                    plainly(inherited.take().unwrap());
                    plainly(far.read_exact(&mut [0; 20])).unwrap();
                }
            });
            child.ends();
        }
    });
}

/// A child uses the sockets that its parent has made.
///
/// libuv: fork_socketpair.
#[test]
fn sockets_of_parent_used_in_child() {
    in_children(|backend| {
        let listener = polder::block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let child = fork(|| {
            if !has_runtimes(backend) {
                return;
            }
            polder::block_on(async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"from the child").await.unwrap();
            });
        });
        polder::block_on(async {
            if !has_runtimes(backend) {
                return;
            }
            let address = listener.local_addr().unwrap();
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "from the child");
        });
        child.ends();
    });
}

/// Operations of a child on its parent's sockets end none of the parent's waits.
///
/// libuv: fork_socketpair_started. The child uses a socket that its parent waits for, and closes
/// its own copies of others. The parent, which waits all the time, is not affected.
#[test]
fn waits_of_parent_survive_use_in_child() {
    in_children(|backend| {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let mut pairs = Vec::new();
            for _ in 0..2 {
                let mut pair = tcp_pair().await;
                let mut byte = [0];
                assert!(future::poll_once(pair.0.read(&mut byte)).await.is_none());
                pairs.push(pair);
            }
            let mut pairs = Cell::new(Some(pairs));
            let child = fork(|| {
                let mut pairs = pairs.take().unwrap();
                // One pair is closed unused; the other is used, with a runtime of the child.
                drop(pairs.pop());
                if has_runtimes(backend) {
                    let (mut near, mut far) = pairs.pop().unwrap();
                    polder::block_on(async {
                        let mut byte = [0];
                        assert!(future::poll_once(near.read(&mut byte)).await.is_none());
                        far.write_all(b"c").await.unwrap();
                        near.read_exact(&mut byte).await.unwrap();
                        assert_eq!(&byte, b"c");
                    });
                }
            });
            child.ends();
            for (near, far) in pairs.get_mut().as_mut().unwrap() {
                let mut byte = [0];
                let mut read = near.read(&mut byte);
                // The read waits before the byte is sent.
                assert!(future::poll_once(&mut read).await.is_none());
                far.write_all(b"p").await.unwrap();
                let read = polder::time::timeout(LIMIT / 2, read).await;
                let read = read.expect("the parent's wait ends").unwrap();
                assert_eq!((read, &byte), (1, b"p"));
            }
        });
    });
}

/// Blocking calls work in a child although the parent's threads are idle.
///
/// libuv: fork_threadpool_queue_work_simple.
#[test]
fn blocking_calls_work_in_child() {
    in_children(|_| {
        assert_eq!(plainly(polder::unblock(|| 4)), 4);
        // The pool has a thread now, which waits half a second for the next call.
        fork(|| {
            assert_eq!(plainly(polder::unblock(|| 5)), 5);
            let mut text = String::new();
            let file = std::fs::File::open("Cargo.toml").unwrap();
            plainly(polder::io::Unblock::new(file).read_to_string(&mut text)).unwrap();
            assert!(text.contains("[package]"));
        })
        .ends();
        assert_eq!(plainly(polder::unblock(|| 6)), 6);
    });
}

/// A call under way when its process forks is a panic in the child and ends in the parent.
///
/// The thread that runs the call exists only in the parent.
#[test]
fn call_in_progress_panics_in_child() {
    in_children(|_| {
        let (go_on, wait) = std::sync::mpsc::channel();
        let (begins, begun) = std::sync::mpsc::channel();
        let task = polder::unblock(move || {
            begins.send(()).unwrap();
            wait.recv().unwrap();
            4
        });
        begun.recv().unwrap();
        let task = Cell::new(Some(task));
        fork(|| {
            let task = task.take().unwrap();
            let result = catch_unwind(AssertUnwindSafe(|| plainly(task)));
            assert!(result.is_err(), "no thread makes the call");
        })
        .ends();
        go_on.send(()).unwrap();
        assert_eq!(plainly(task.take().unwrap()), 4);
    });
}

/// A call that forks: the child returns into the pool, which has a copy of its parent's queue.
///
/// Its only thread ends, and the process with it.
#[test]
fn a_pool_thread_ends_in_a_child_and_makes_no_queued_call() {
    in_children(|_| {
        // SAFETY: no other thread of this process reads the environment now.
        unsafe { std::env::set_var("BLOCKING_MAX_THREADS", "1") };
        let is_queued = Arc::new(AtomicBool::new(false));
        let may_fork = is_queued.clone();
        let forks = polder::unblock(move || {
            while !may_fork.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // SAFETY: as in `fork`; the child goes on in polder's code alone.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: always allowed; nothing handles the signal.
                unsafe { libc::alarm(SECONDS) };
            }
            child
        });
        let parent = std::process::id();
        let queued = polder::unblock(move || {
            if std::process::id() != parent {
                // SAFETY: always allowed.
                unsafe { libc::_exit(1) };
            }
            4
        });
        is_queued.store(true, Ordering::SeqCst);
        let child = plainly(forks);
        assert!(child > 0, "{}", io::Error::last_os_error());
        Child(Pid::from_raw(child).unwrap()).ends();
        assert_eq!(plainly(queued), 4);
    });
}

/// An unblock in use when its process forks is an error in the child.
#[test]
fn unblock_in_use_errors_in_child() {
    in_children(|_| {
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut reader = polder::io::Unblock::new(reader);
        let mut byte = [0];
        plainly(async { assert!(future::poll_once(reader.read(&mut byte)).await.is_none()) });
        fork(|| {
            let error = plainly(reader.read(&mut byte)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            // Dropping it does not wait either.
            drop(Cell::new(reader));
        })
        .ends();
        drop(writer);
    });
}

/// A file in use when its process forks is an error in the child and others are not.
#[test]
#[cfg(target_os = "linux")]
fn file_in_use_errors_in_child() {
    in_children(|_| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let mut both = std::fs::OpenOptions::new();
        let mut other = both.read(true).write(true).open(&path).unwrap();
        let mut options = polder::fs::OpenOptions::new();
        let mut file = plainly(options.read(true).write(true).open(&path)).unwrap();
        let mut byte = [0];
        plainly(async { assert!(future::poll_once(file.read(&mut byte)).await.is_none()) });
        fork(|| {
            let error = plainly(file.read(&mut byte)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let text = plainly(polder::fs::read_to_string("Cargo.toml")).unwrap();
            assert!(text.starts_with("[package]"));
            drop(Cell::new(file));
        })
        .ends();
        // Its thread returns.
        std::io::Write::write_all(&mut other, b"x").unwrap();
    });
}

/// Files work in a child, whichever files its parent was using.
///
/// At random points of the parent's calls.
#[test]
#[cfg(all(feature = "fs", target_os = "linux"))]
fn files_used_in_child_despite_parent() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use polder::fs;

    async fn write_and_read(path: &std::path::Path, text: &str) {
        fs::write(path, text).await.unwrap();
        assert_eq!(fs::read_to_string(path).await.unwrap(), text);
        let mut file = fs::File::open(path).await.unwrap();
        let mut read = String::new();
        file.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, text);
    }

    in_children(|backend| {
        let folder = tempfile::tempdir().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..4)
            .map(|nth| {
                let (path, ends) = (folder.path().join(format!("{nth}")), ends.clone());
                polder::spawn(async move {
                    for turn in 0_u64.. {
                        write_and_read(&path, &format!("{nth} {turn}")).await;
                        if ends.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                })
            })
            .collect();
        for nth in 0..share(backend == Backend::default(), 200) {
            let path = folder.path().join(format!("child {nth}"));
            fork(|| plainly(write_and_read(&path, "of the child"))).ends();
            let text = plainly(fs::read_to_string(&path)).unwrap();
            assert_eq!(text, "of the child");
        }
        ends.store(true, Ordering::Relaxed);
        for task in tasks {
            plainly(task);
        }
    });
}

/// Names are looked up in a child although the parent's threads are idle.
///
/// The case of a name lookup under way during the fork is a test in src/net/resolver.rs.
#[test]
fn lookups_work_in_child() {
    in_children(|_| {
        plainly(polder::net::resolve("localhost:1")).unwrap();
        fork(|| {
            plainly(polder::net::resolve("localhost:2")).unwrap();
        })
        .ends();
    });
}

mod signals {
    use std::os::unix::net::UnixStream;

    use polder::signal::{Signal, Signals};
    use polder::stream::StreamExt;

    use super::*;

    fn raise(signal: libc::c_int) {
        // SAFETY: its handler is polder's.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }

    /// A rendezvous of two processes.
    struct Turn(UnixStream, UnixStream);

    impl Turn {
        fn new() -> Turn {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_read_timeout(Some(LIMIT / 2)).unwrap();
            Turn(ours, theirs)
        }

        fn give(&self) {
            io::Write::write_all(&mut &self.0, b"x").unwrap();
        }

        fn take(&self) {
            io::Read::read_exact(&mut &self.1, &mut [0]).unwrap();
        }
    }

    /// A signal to the child reaches listeners old and new and none of the parent's.
    ///
    /// libuv: fork_signal_to_child.
    #[test]
    fn signal_to_child_reaches_its_listeners() {
        in_children(|_| {
            // (A storm of signals uses SIGUSR2: see `support`.)
            let mut inherited = Signals::new([Signal::Usr1, Signal::Winch]).unwrap();
            // Registered, so that the signal thread is in use.
            plainly(async { assert!(future::poll_once(inherited.next()).await.is_none()) });
            let (listens, ends) = (Turn::new(), Turn::new());
            let child = fork(|| {
                let mut new = Signals::new([Signal::Usr1, Signal::Hup]).unwrap();
                let both = async { future::zip(inherited.next(), new.next()).await };
                listens.give();
                assert_eq!(plainly(both), (Some(Signal::Usr1), Some(Signal::Usr1)));
                // While the listener sleeps, and once only.
                for (number, signal) in [(libc::SIGHUP, Signal::Hup), (libc::SIGUSR1, Signal::Usr1)]
                {
                    let raiser = std::thread::spawn(move || {
                        std::thread::sleep(SOON);
                        raise(number);
                    });
                    assert_eq!(plainly(new.next()), Some(signal));
                    raiser.join().unwrap();
                    plainly(async { assert!(future::poll_once(new.next()).await.is_none()) });
                }
                ends.give();
            });
            listens.take();
            child.kill(rustix::process::Signal::USR1);
            ends.take();
            child.ends();
            plainly(async { assert!(future::poll_once(inherited.next()).await.is_none()) });
            raise(libc::SIGWINCH);
            assert_eq!(plainly(inherited.next()), Some(Signal::Winch));
        });
    }

    /// A listener that only the parent has used wakes in the child.
    #[test]
    fn listener_of_parent_wakes_in_child() {
        in_children(|_| {
            let mut signals = Signals::new([Signal::Usr1]).unwrap();
            plainly(async { assert!(future::poll_once(signals.next()).await.is_none()) });
            fork(|| {
                let raiser = std::thread::spawn(|| {
                    std::thread::sleep(SOON);
                    raise(libc::SIGUSR1);
                });
                assert_eq!(plainly(signals.next()), Some(Signal::Usr1));
                raiser.join().unwrap();
            })
            .ends();
        });
    }

    /// A listener dropped in the child ends none of the parent's.
    ///
    /// libuv: fork_signal_to_child_closed, fork_close_signal_in_child.
    #[test]
    fn listener_dropped_in_child_keeps_parents() {
        in_children(|_| {
            let mut signals = Signals::new([Signal::Usr1]).unwrap();
            plainly(async { assert!(future::poll_once(signals.next()).await.is_none()) });
            let signals = Cell::new(Some(signals));
            let (dropped, sent) = (Turn::new(), Turn::new());
            let child = fork(|| {
                drop(signals.take());
                dropped.give();
                // The signal stays caught, as after the last listener is dropped: it ends no
                // process.
                sent.take();
            });
            dropped.take();
            child.kill(rustix::process::Signal::USR1);
            sent.give();
            child.ends();
            let mut signals = signals.take().unwrap();
            plainly(async { assert!(future::poll_once(signals.next()).await.is_none()) });
            raise(libc::SIGUSR1);
            assert_eq!(plainly(signals.next()), Some(Signal::Usr1));
        });
    }
}

#[test]
fn stalls_are_reported_in_a_child_too() {
    in_children(|backend| {
        if !has_runtimes(backend) {
            return;
        }
        // Blocks the worker until the stall is reported.
        let stall = || {
            let (reported, report) = std::sync::mpsc::channel();
            let builder = Runtime::builder().on_stall(SOON, move |_| {
                let _ = reported.send(());
            });
            builder
                .build()
                .unwrap()
                .block_on(async { report.recv().unwrap() });
        };
        let watched = Runtime::builder().on_stall(SOON, |_| {}).build().unwrap();
        stall();
        fork(stall).ends();
        drop(watched);
    });
}

/// A runtime driven in a child of its process ends with words and goes on in the parent.
///
/// Kernel objects shared by the two processes are not used by both.
#[test]
fn runtime_of_parent_panics_in_child() {
    in_children(|_| {
        for workers in [1, 2] {
            let runtime = Runtime::builder().workers(workers).build().unwrap();
            runtime.block_on(talks());
            let far = runtime.block_on(async {
                let (mut near, far) = tcp_pair().await;
                polder::spawn(async move {
                    let mut byte = [0];
                    near.read_exact(&mut byte).await.unwrap();
                    near.write_all(&byte).await.unwrap();
                })
                .detach();
                // So that the task waits.
                Timer::after(SOON).await;
                far
            });
            let (runtime, mut far) = (Cell::new(Some(runtime)), Cell::new(Some(far)));
            let driven = fork(|| {
                let runtime = runtime.take().unwrap();
                let driven = AssertUnwindSafe(|| runtime.block_on(Timer::after(SOON)));
                let panic = catch_unwind(driven).expect_err("it cannot be driven");
                assert!(message(&*panic).contains("fork"), "{}", message(&*panic));
                let driven = AssertUnwindSafe(|| {
                    runtime.scope(async |scope| scope.spawn(async {}).await);
                });
                let panic = catch_unwind(driven).expect_err("it cannot be driven");
                assert!(message(&*panic).contains("fork"), "{}", message(&*panic));
                drop((runtime, far.take()));
            });
            driven.ends();
            let dropped = fork(|| drop((far.take(), runtime.take())));
            dropped.ends();
            let runtime = runtime.take().unwrap();
            let answered = async {
                let far = far.get_mut().as_mut().unwrap();
                far.write_all(b"x").await.unwrap();
                let mut byte = [0];
                let answer = polder::time::timeout(LIMIT / 2, far.read_exact(&mut byte)).await;
                answer.expect("the parent's task is woken").unwrap();
            };
            runtime.block_on(answered);
            runtime.block_on(talks());
            // Notifications arrive.
            let handle = runtime.handle();
            let task = std::thread::spawn(move || handle.spawn(async { 5 }));
            assert_eq!(runtime.block_on(task.join().unwrap()), 5);
        }
    });
}

/// A poller of its parent's gives a child errors and its parent everything.
#[test]
fn poller_of_parent_errors_in_child() {
    use polder::poller::{Events, Interest, Mode, Poller, Token};

    in_children(|backend| {
        let poller = Poller::new(backend).unwrap();
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        // SAFETY: it is deregistered before it is closed.
        unsafe { poller.register(&ours, Token(1), Interest::READABLE, Mode::OneShot) }.unwrap();
        let poller = Cell::new(Some(poller));
        fork(|| {
            let poller = poller.take().unwrap();
            let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
            let unsupported = Err(ErrorKind::Unsupported);
            let waited = poller.wait(&mut Events::new(), Some(Duration::ZERO));
            assert_eq!(kind(waited.map(drop)), unsupported);
            let modified = poller.modify(&ours, Token(2), Interest::WRITABLE, Mode::OneShot);
            assert_eq!(kind(modified), unsupported);
            assert_eq!(kind(poller.deregister(&ours)), unsupported);
            poller.notify().unwrap();
        })
        .ends();
        let poller = poller.take().unwrap();
        io::Write::write_all(&mut theirs, b"x").unwrap();
        let mut events = Events::new();
        assert_eq!(poller.wait(&mut events, Some(LIMIT / 2)).unwrap(), 1);
        assert_eq!(events.iter().next().unwrap().token(), Token(1));
        poller.deregister(&ours).unwrap();
    });
}

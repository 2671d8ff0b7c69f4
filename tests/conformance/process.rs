//! `process`: a child's status reaches all who wait for it (rule 82), and no child is left (rule
//! 83), however the child, its handle and the futures end, and whatever other code of the process
//! does with SIGCHLD.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;

use polder::future::{poll_once, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::process::unix::CommandExt;
use polder::process::{Child, Command, Output, Stdio};
use polder::{Runtime, future};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, test_kill_process};

use crate::support::{eventually, in_every_kernel_runtime, on_every_backend, until};

/// Several times what a pipe holds.
const LARGE: usize = 300_000;

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).unwrap()
}

/// Whether there is no such process, not even a zombie.
fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid) == Err(Errno::SRCH)
}

/// Whether the process has ended, and nobody has waited for it.
#[cfg(target_os = "linux")]
fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let stat = stat.expect("it is there until somebody waits for it");
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.starts_with('Z')
}

/// A child that runs until its standard input is closed.
fn waits_for_its_end() -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().expect("it starts")
}

#[test]
fn rule_82_status_is_code_or_signal() {
    in_every_kernel_runtime(|_| async {
        for code in [0, 1, 42, 255] {
            let status = sh(&format!("exit {code}")).status().await.unwrap();
            assert_eq!((status.code(), status.signal()), (Some(code), None));
            assert_eq!(status.success(), code == 0);
        }
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let status = sh(&format!("kill -{signal} $$")).status().await.unwrap();
            assert_eq!((status.code(), status.signal()), (None, Some(signal)));
            assert!(!status.core_dumped());
        }
    });
}

#[test]
fn rule_82_a_status_is_that_of_the_standard_library() {
    in_every_kernel_runtime(|_| async {
        for script in ["exit 3", "kill -11 $$", "ulimit -c 1; kill -6 $$"] {
            let mut command = std::process::Command::new("sh");
            let theirs = command.args(["-c", script]).current_dir("/tmp").status();
            let ours = sh(script).current_dir("/tmp").status().await.unwrap();
            assert_eq!(ours, theirs.unwrap(), "{script}");
        }
    });
}

#[test]
fn rule_82_end_before_wait_keeps_status() {
    in_every_kernel_runtime(|_| async {
        let mut child = sh("exit 9").spawn().unwrap();
        #[cfg(target_os = "linux")]
        until("the child has ended", || is_zombie(pid(&child))).await;
        assert_eq!(child.status().await.unwrap().code(), Some(9));
        let pid = pid(&child);
        assert!(is_gone(pid));
        assert_eq!(child.try_status().unwrap().unwrap().code(), Some(9));
        assert_eq!(child.output().await.unwrap().status.code(), Some(9));
    });
}

#[test]
fn rule_82_all_waiters_get_status_dropped_ones_lose_none() {
    in_every_kernel_runtime(|_| async {
        let mut child = waits_for_its_end();
        let stdin = child.stdin.take();
        let mut waits = [(); 3].map(|()| Box::pin(child.status()));
        for wait in &mut waits {
            assert!(poll_once(wait).await.is_none());
        }
        // The first one is not polled again, and nobody needs it.
        let [_first, second, third] = waits;
        let second = polder::spawn(second);
        drop(stdin);
        let (second, third) = zip(second, third).await;
        assert!(second.unwrap().success() && third.unwrap().success());
        assert!(child.status().await.unwrap().success());
    });
}

#[test]
fn rule_82_a_wait_that_is_dropped_again_and_again_ends() {
    in_every_kernel_runtime(|_| async {
        let mut child = waits_for_its_end();
        let stdin = child.stdin.take();
        for _ in 0..100 {
            assert!(poll_once(std::pin::pin!(child.status())).await.is_none());
        }
        assert!(child.try_status().unwrap().is_none());
        drop(stdin);
        assert!(child.status().await.unwrap().success());
    });
}

#[test]
fn rule_82_output_beyond_pipe_read_from_both_streams() {
    in_every_kernel_runtime(|_| async {
        // The child is done with one stream before it begins with the other, in either order.
        for [first, second] in [["", ">&2"], [">&2", ""]] {
            let head = format!("head -c {LARGE} /dev/zero");
            let output = sh(&format!("{head} {first}; {head} {second}; exit 4"));
            let Output {
                status,
                stdout,
                stderr,
            } = { output }.output().await.unwrap();
            assert_eq!(status.code(), Some(4));
            assert_eq!((stdout.len(), stderr.len()), (LARGE, LARGE));
        }
    });
}

#[test]
fn rule_82_stdin_arrives_and_close_is_eof() {
    in_every_kernel_runtime(|_| async {
        let mut cat = Command::new("cat");
        let mut child = cat
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let writes = async {
            stdin.write_all(&vec![7; LARGE]).await.unwrap();
            stdin.close().await.unwrap();
            let error = stdin.write(b"more").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        };
        let mut bytes = Vec::new();
        let (_, read) = zip(writes, stdout.read_to_end(&mut bytes)).await;
        assert_eq!((read.unwrap(), bytes), (LARGE, vec![7; LARGE]));
        assert!(child.status().await.unwrap().success());
    });
}

#[test]
fn rule_82_waiting_closes_stdin() {
    in_every_kernel_runtime(|_| async {
        assert!(waits_for_its_end().status().await.unwrap().success());
        assert!(waits_for_its_end().output().await.unwrap().status.success());
        // By default a command whose output is read has no input.
        assert_eq!(Command::new("cat").output().await.unwrap().stdout, b"");
    });
}

#[test]
fn rule_82_pipes_closed_by_child_error_and_eof() {
    in_every_kernel_runtime(|_| async {
        let mut command = sh("exec <&- >&-; kill -STOP $$");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        assert_eq!(stdout.read(&mut [0; 8]).await.unwrap(), 0);
        // Also in a wait for room.
        let error = stdin.write_all(&vec![0; LARGE]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        child.kill().unwrap();
        assert_eq!(child.status().await.unwrap().signal(), Some(libc::SIGKILL));
    });
}

#[test]
fn rule_82_a_pipe_becomes_the_input_of_another_child() {
    in_every_kernel_runtime(|_| async {
        let mut first = Command::new("echo");
        let mut first = first
            .arg("through two")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut last = Command::new("cat");
        let mut last = last
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = first.stdout.take().unwrap().into_stdio().await.unwrap();
        let to = last.stdin.take().unwrap().into_stdio().await.unwrap();
        // `cat` fails if a pipe is not blocking, or may, if it has to wait.
        let mut middle = sh("sleep 0.01; cat");
        assert!(
            middle
                .stdin(from)
                .stdout(to)
                .status()
                .await
                .unwrap()
                .success()
        );
        drop(middle); // It has the pipes, too.
        assert_eq!(last.output().await.unwrap().stdout, b"through two\n");
        assert!(first.status().await.unwrap().success());
    });
}

#[test]
fn rule_82_a_killed_child_ends_and_may_be_killed_again() {
    in_every_kernel_runtime(|_| async {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        let status = child.status(); // It does not borrow the child.
        child.kill().unwrap();
        assert_eq!(status.await.unwrap().signal(), Some(libc::SIGKILL));
        child.kill().unwrap();
    });
}

#[test]
fn rule_82_wait_without_runtime_and_after_one() {
    on_every_backend(|backend| {
        let status = futures_lite::future::block_on(sh("exit 6").status());
        assert_eq!(status.unwrap().code(), Some(6));
        // One runtime ends while its task waits, another one goes on.
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let (mut child, stdin) = runtime.block_on(async {
            let mut child = waits_for_its_end();
            let stdin = child.stdin.take();
            polder::spawn(child.status()).detach();
            assert!(poll_once(std::pin::pin!(child.status())).await.is_none());
            (child, stdin)
        });
        drop(runtime);
        drop(stdin);
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        assert!(runtime.block_on(child.status()).unwrap().success());
    });
}

#[test]
fn rule_82_a_program_that_cannot_be_started_is_an_error() {
    in_every_kernel_runtime(|_| async {
        let error = Command::new("/no/such/program").spawn().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = sh("true").current_dir("/no/such/directory").status().await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
        let mut command = sh("true");
        // SAFETY: it only makes a value.
        unsafe { command.pre_exec(|| Err(Errno::PERM.into())) };
        let error = command.output().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
}

#[test]
fn rule_83_dropped_running_child_goes_on_no_zombie() {
    in_every_kernel_runtime(|_| async {
        let mut child = waits_for_its_end();
        let (pid, stdin) = (pid(&child), child.stdin.take());
        drop(child);
        #[cfg(target_os = "linux")]
        assert!(!is_zombie(pid));
        drop(stdin);
        until("it is reaped", || is_gone(pid)).await;
    });
}

#[test]
fn rule_83_dropped_ended_child_no_zombie() {
    in_every_kernel_runtime(|_| async {
        let child = sh("exit 2").spawn().unwrap();
        let pid = pid(&child);
        #[cfg(target_os = "linux")]
        until("it has ended", || is_zombie(pid)).await;
        drop(child);
        until("it is reaped", || is_gone(pid)).await;
    });
}

#[test]
fn rule_83_kill_on_drop_with_last_handle_or_future() {
    in_every_kernel_runtime(|_| async {
        let mut sleep = Command::new("sleep");
        sleep.arg("3600").kill_on_drop(true);
        let mut child = sleep.spawn().unwrap();
        let (pid, status) = (pid(&child), child.status());
        drop(child);
        assert!(!is_gone(pid));
        drop(status);
        until("it is killed and reaped", || is_gone(pid)).await;
        // Also one that only a future has: of it we see that its pipe ends.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        // Not the other children's, which may run for long.
        fcntl_setfd(&reader, FdFlags::CLOEXEC).unwrap();
        fcntl_setfd(&writer, FdFlags::CLOEXEC).unwrap();
        let mut reader = polder::Async::new(std::fs::File::from(reader)).unwrap();
        let mut command = sh("echo; exec sleep 3600");
        let status = Box::pin(command.stdout(writer).kill_on_drop(true).status());
        drop(command);
        reader.read_exact(&mut [0]).await.unwrap();
        drop(status);
        assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
    });
}

/// A child is dropped with the runtime whose task waits for it.
#[test]
fn rule_83_a_runtime_that_ends_leaves_no_zombie() {
    on_every_backend(|backend| {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let (pid, stdin) = runtime.block_on(async {
            let mut child = waits_for_its_end();
            let (pid, stdin) = (pid(&child), child.stdin.take());
            polder::spawn(async move { child.status().await }).detach();
            future::yield_now().await;
            (pid, stdin)
        });
        drop(runtime);
        assert!(!is_gone(pid));
        drop(stdin);
        eventually("it is reaped", || is_gone(pid));
    });
}

#[cfg(target_os = "linux")]
mod linux {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_lite::future::block_on as plainly;
    use polder::event::Latch;
    use rustix::process::{Resource, WaitOptions, waitpid};

    use super::*;
    use crate::child::{
        all_descriptors, allow_descriptors, entries, in_children, limit, threads_called,
    };
    use crate::probe::join_all;
    use crate::support::{refuse, share};

    /// Fails if this process has a child, and waits until those that polder reaps are gone.
    fn no_child_is_left() {
        eventually("no child is left", || {
            let mut told = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            // SAFETY: there is room for what is written; nothing is reaped.
            let result = unsafe { libc::waitid(libc::P_ALL, 0, told.as_mut_ptr(), flags) };
            result == -1
                && Errno::from_io_error(&std::io::Error::last_os_error()) == Some(Errno::CHILD)
        });
    }

    /// Runs one of many children. One in six runs until all others have ended.
    async fn one(number: usize, others_ended: Arc<Latch>) {
        match number % 6 {
            0 => {
                let status = sh("exit $1")
                    .arg("sh")
                    .arg((number % 200).to_string())
                    .status();
                assert_eq!(status.await.unwrap().code(), Some((number % 200) as i32));
            }
            1 => {
                let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
                child.kill().unwrap();
                assert_eq!(child.status().await.unwrap().signal(), Some(libc::SIGKILL));
            }
            2 => drop(Command::new("true").spawn().unwrap()),
            3 => drop(
                Command::new("sleep")
                    .arg("3600")
                    .kill_on_drop(true)
                    .spawn()
                    .unwrap(),
            ),
            4 => {
                let mut child = waits_for_its_end();
                let (stdin, status) = (child.stdin.take(), child.status());
                let status = polder::spawn(status);
                others_ended.wait().await;
                drop(stdin);
                assert!(status.await.unwrap().success());
            }
            _ => {
                let output = Command::new("echo").arg(number.to_string()).output();
                assert_eq!(
                    output.await.unwrap().stdout,
                    format!("{number}\n").into_bytes()
                );
            }
        }
    }

    fn many(runtime: &Runtime, count: usize) {
        runtime.block_on(async {
            let others_ended = Arc::new(Latch::new());
            let spawn = |number| polder::spawn(one(number, others_ended.clone()));
            let last = (0..count).filter(|number| number % 6 == 4).map(spawn);
            let last: Vec<_> = last.collect();
            join_all((0..count).filter(|number| number % 6 != 4).map(spawn)).await;
            others_ended.set();
            join_all(last).await;
        });
        no_child_is_left();
    }

    #[test]
    fn rule_83_of_a_thousand_children_none_is_lost_and_none_is_left() {
        in_children(|_| {
            allow_descriptors(8_000);
            let count = share(true, 1_000);
            for workers in [1, 2] {
                let runtime = Runtime::builder().workers(workers).build().unwrap();
                many(&runtime, count);
                drop(runtime);
            }
            // One more, which makes what is kept for good.
            let before = entries("/proc/self/fd");
            many(&Runtime::new().unwrap(), 60);
            eventually("no descriptor is left", || {
                entries("/proc/self/fd") <= before
            });
        });
    }

    /// Above the numbers that `select` takes.
    #[test]
    fn rule_82_a_pidfd_may_have_a_high_number() {
        in_children(|_| {
            allow_descriptors(2_000);
            let null = || std::fs::File::open("/dev/null").unwrap();
            let _held: Vec<_> = (0..1_100).map(|_| null()).collect();
            Runtime::new().unwrap().block_on(async {
                let mut child = waits_for_its_end();
                let (stdin, status) = (child.stdin.take(), polder::spawn(child.status()));
                for _ in 0..3 {
                    future::yield_now().await;
                }
                drop(stdin);
                assert!(status.await.unwrap().success());
            });
            no_child_is_left();
        });
    }

    #[test]
    fn rule_82_without_a_pidfd_threads_wait() {
        in_children(|_| {
            for errno in [libc::ENOSYS, libc::EPERM] {
                refuse(&[libc::SYS_pidfd_open], errno);
                let runtime = Runtime::new().unwrap();
                runtime.block_on(async {
                    let mut child = waits_for_its_end();
                    let stdin = child.stdin.take();
                    assert!(poll_once(std::pin::pin!(child.status())).await.is_none());
                    assert!(poll_once(std::pin::pin!(child.status())).await.is_none());
                    until("one thread waits", || {
                        threads_called("polder-child").len() == 1
                    })
                    .await;
                    drop(stdin);
                    assert!(child.status().await.unwrap().success());
                });
                many(&runtime, 100);
                eventually("no thread is left", || {
                    threads_called("polder-child").is_empty()
                });
            }
        });
    }

    /// A sandbox that refuses calls for a pidfd keeps no child alive.
    #[test]
    fn rule_83_kill_without_pidfd_calls() {
        in_children(|_| {
            for errno in [libc::ENOSYS, libc::EPERM] {
                refuse(&[libc::SYS_pidfd_send_signal], errno);
                Runtime::new().unwrap().block_on(async {
                    let mut child = waits_for_its_end();
                    child.kill().unwrap();
                    let status = child.status().await.unwrap();
                    assert_eq!(status.signal(), Some(libc::SIGKILL));
                    child.kill().unwrap();
                    let mut sleep = Command::new("sleep");
                    drop(sleep.arg("3600").kill_on_drop(true).spawn().unwrap());
                });
                no_child_is_left();
            }
        });
    }

    #[test]
    fn rule_83_no_free_descriptor_leaves_nothing() {
        in_children(|_| {
            let runtime = Runtime::new().unwrap();
            runtime.block_on(async {
                // This makes all that is made once.
                assert!(sh("true").status().await.unwrap().success());
                let held = all_descriptors();
                let error = sh("true").output().await.unwrap_err();
                assert_eq!(Errno::from_io_error(&error), Some(Errno::MFILE), "{error}");
                let mut held = held.into_iter();
                for _ in 0..8 {
                    // With one more each time, down to enough.
                    drop(held.next());
                    let before = free_descriptors();
                    match sh("exit 3").stdin(Stdio::piped()).output().await {
                        Ok(output) => assert_eq!(output.status.code(), Some(3)),
                        Err(error) => {
                            assert_eq!(Errno::from_io_error(&error), Some(Errno::MFILE), "{error}");
                        }
                    }
                    assert_eq!(free_descriptors(), before, "a descriptor is left");
                }
                // It needs none, and there is none for a pidfd.
                let filled: Vec<_> =
                    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
                assert_eq!(sh("exit 5").status().await.unwrap().code(), Some(5));
                drop((filled, held));
                assert!(sh("true").output().await.unwrap().status.success());
            });
            no_child_is_left();
        });
    }

    /// How many descriptors could be opened.
    fn free_descriptors() -> usize {
        let opened: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        opened.len()
    }

    #[test]
    fn rule_83_no_free_process_leaves_nothing() {
        in_children(|_| {
            let runtime = Runtime::new().unwrap();
            runtime.block_on(async {
                assert!(sh("true").status().await.unwrap().success());
                if rustix::process::getuid().is_root() {
                    // Root has no limit. SAFETY: takes a number.
                    assert_eq!(unsafe { libc::setuid(54_321) }, 0);
                }
                limit(Resource::Nproc, 1);
                let before = entries("/proc/self/fd");
                let error = sh("true").output().await.unwrap_err();
                assert_eq!(Errno::from_io_error(&error), Some(Errno::AGAIN), "{error}");
                assert_eq!(entries("/proc/self/fd"), before);
            });
            no_child_is_left();
        });
    }

    static TOLD: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count(_: libc::c_int) {
        TOLD.fetch_add(1, Ordering::SeqCst);
    }

    fn handle_child_by(handler: libc::sighandler_t) {
        // SAFETY: `count` is async-signal-safe.
        let before = unsafe { libc::signal(libc::SIGCHLD, handler) };
        assert_ne!(before, libc::SIG_ERR);
    }

    #[test]
    fn rule_82_a_handler_of_sigchld_is_neither_needed_nor_disturbed() {
        in_children(|_| {
            for refused in [&[][..], &[libc::SYS_pidfd_open]] {
                refuse(refused, libc::ENOSYS);
                let handler = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
                handle_child_by(handler);
                let runtime = Runtime::new().unwrap();
                many(&runtime, 60);
                assert!(TOLD.load(Ordering::SeqCst) > 0);
                // Another one in its place: nobody is asked whether it calls the first.
                handle_child_by(libc::SIG_DFL);
                many(&runtime, 60);
                handle_child_by(handler);
                many(&runtime, 60);
                // SAFETY: as above.
                let now = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
                assert_eq!(now, handler);
            }
        });
    }

    #[test]
    fn rule_82_status_taken_by_other_code_is_error() {
        in_children(|_| {
            for refused in [&[][..], &[libc::SYS_pidfd_open]] {
                refuse(refused, libc::ENOSYS);
                let says_so = |error: std::io::Error| {
                    assert!(error.to_string().contains("is lost"), "{error}");
                };
                Runtime::new().unwrap().block_on(async {
                    // `wait` of other code.
                    let mut child = waits_for_its_end();
                    let (stdin, status) = (child.stdin.take(), child.status());
                    let status = polder::spawn(status);
                    future::yield_now().await;
                    drop(stdin);
                    let _ = waitpid(Some(pid(&child)), WaitOptions::empty());
                    if let Err(error) = status.await {
                        says_so(error);
                        says_so(child.status().await.unwrap_err());
                        says_so(child.try_status().unwrap_err());
                        child.kill().unwrap();
                    }
                    // The kernel reaps.
                    handle_child_by(libc::SIG_IGN);
                    says_so(sh("exit 3").status().await.unwrap_err());
                    says_so(sh("exit 3").output().await.unwrap_err());
                    drop(Command::new("true").spawn().unwrap());
                });
                no_child_is_left();
                handle_child_by(libc::SIG_DFL);
            }
        });
    }

    /// Ends a child of `fork`: with zero if `check` returns true, by SIGALRM if it hangs.
    fn exit_by(check: impl FnOnce() -> bool) -> ! {
        // SAFETY: always allowed; nothing handles the signal.
        unsafe { libc::alarm(20) };
        let is_right = catch_unwind(AssertUnwindSafe(check)).unwrap_or(false);
        // SAFETY: always allowed.
        unsafe { libc::_exit(if is_right { 0 } else { 1 }) }
    }

    /// A status that is waited for at a fork is an error in the child, and arrives in the parent.
    ///
    /// The thread or descriptor that reports the end is the parent's.
    #[test]
    fn rule_83_status_under_way_is_error_in_fork_child() {
        in_children(|_| {
            for refused in [&[][..], &[libc::SYS_pidfd_open]] {
                refuse(refused, libc::ENOSYS);
                polder::block_on(async {
                    let mut child = waits_for_its_end();
                    let stdin = child.stdin.take();
                    let mut status = Box::pin(child.status());
                    assert!(poll_once(&mut status).await.is_none());
                    // SAFETY: the child ends by `_exit`, after polder's code alone.
                    let forked = unsafe { libc::fork() };
                    if forked == 0 {
                        exit_by(|| {
                            let polled = plainly(poll_once(&mut status));
                            let error = polled.and_then(Result::err).map(|error| error.to_string());
                            drop((status, child));
                            error.is_some_and(|error| error.contains("is no child"))
                        });
                    }
                    let forked = Pid::from_raw(forked).expect("it forks");
                    let (_, ended) = waitpid(Some(forked), WaitOptions::empty())
                        .unwrap()
                        .unwrap();
                    assert_eq!(ended.exit_status(), Some(0), "without {refused:?}");
                    drop(stdin);
                    assert!(status.await.unwrap().success());
                });
            }
        });
    }

    #[test]
    fn rule_83_fork_child_leaves_parents_children() {
        in_children(|_| {
            polder::block_on(async {
                let mut sleep = Command::new("sleep");
                let mut child = sleep.arg("3600").kill_on_drop(true).spawn().unwrap();
                // SAFETY: the child ends by `_exit`, after polder's code alone.
                let forked = unsafe { libc::fork() };
                if forked == 0 {
                    exit_by(|| {
                        let is_refused = child.try_status().is_err();
                        drop(child);
                        is_refused
                    });
                }
                let forked = Pid::from_raw(forked).expect("it forks");
                let (_, status) = waitpid(Some(forked), WaitOptions::empty())
                    .unwrap()
                    .unwrap();
                assert_eq!(status.exit_status(), Some(0));
                assert!(child.try_status().unwrap().is_none(), "it was killed");
                child.kill().unwrap();
                assert_eq!(child.status().await.unwrap().signal(), Some(libc::SIGKILL));
            });
        });
    }
}

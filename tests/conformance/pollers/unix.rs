//! Unix only: descriptors that are closed behind the poller's back, files and devices, pipes, pairs
//! of Unix sockets, and signals. Rules 7, 9, 11, 14, 20, 22 and 68.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polder::Backend;
use polder::poller::{Event, Mode, Poller, Token};
use socket2::Socket;

use super::readiness::all_of_it;
use super::{
    READABLE, Source, WRITABLE, borrow, fails, fill, in_a_child, in_every_mode, local_pair, next,
    open, poll_now, quiet, reports_at_most, tokens, wait, waiter,
};
use crate::support::on_every_backend;

/// An end of a pipe, non-blocking and close-on-exec.
pub(super) struct Pipe(pub(super) OwnedFd);

impl Pipe {
    /// Returns the end for reading and the end for writing.
    pub(super) fn pair() -> (Pipe, Pipe) {
        let mut ends = [-1; 2];
        // The flags are set in the same call where one exists, so that no child that another test
        // starts inherits an end.
        #[cfg(not(target_vendor = "apple"))]
        // SAFETY: the kernel writes two numbers to an array of two.
        let result = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        #[cfg(target_vendor = "apple")]
        // SAFETY: the kernel writes two numbers to an array of two.
        let result = unsafe { libc::pipe(ends.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        let [read, write] = ends.map(|end| {
            // SAFETY: the descriptor was just opened; nothing else owns it.
            let end = unsafe { OwnedFd::from_raw_fd(end) };
            rustix::io::fcntl_setfd(&end, rustix::io::FdFlags::CLOEXEC).unwrap();
            rustix::io::ioctl_fionbio(&end, true).unwrap();
            Pipe(end)
        });
        (read, write)
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow(&self.0)
    }
}

impl Read for &Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, bytes)?)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

thread_local! {
    /// The number of times that a [`Storm`] has interrupted this thread. Neither made nor dropped
    /// by any code, so the handler may touch it.
    static SIGNALS: Cell<usize> = const { Cell::new(0) };
}

/// Interrupts the thread that made it, thousands of times a second, until dropped on that thread.
pub struct Storm {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    pub fn here() -> Storm {
        extern "C" fn count(_: libc::c_int) {
            SIGNALS.set(SIGNALS.get() + 1);
        }
        static INSTALL: Once = Once::new();
        INSTALL.call_once(|| {
            // SAFETY: all zero is a valid `sigaction`: no flags (so no SA_RESTART), an empty mask.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
            // SAFETY: the handler only adds to a number of its own thread; no other code here uses
            // this signal.
            let result = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
        });
        // SAFETY: always allowed.
        let target = unsafe { libc::pthread_self() } as usize;
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = over.clone();
            move || {
                while !over.load(Ordering::Acquire) {
                    // SAFETY: the target lives, since it drops the storm, which joins this thread.
                    unsafe { libc::pthread_kill(target as libc::pthread_t, libc::SIGUSR1) };
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        Storm {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let _ = self.thread.take().expect("it is joined once").join();
    }
}

/// Rule 7: all data can be read after a pipe's writer is gone.
#[test]
fn rule_07_pipe_data_after_writer_gone() {
    in_every_mode(|poller, mode| {
        let (ours, theirs) = Pipe::pair();
        all_of_it("a pipe", poller, mode, ours, theirs);
    });
}

/// A registered descriptor that is closed before it is deregistered.
struct Victim {
    number: RawFd,
    peer: Socket,
}

impl Victim {
    fn new(poller: &Poller, token: u64, mode: Mode) -> Victim {
        let (ours, peer) = local_pair();
        // SAFETY: this test does what a caller must not do. The process has no other thread that
        // opens descriptors, so the test controls what the number refers to.
        unsafe { poller.register(borrow(&ours), Token(token), READABLE, mode) }.unwrap();
        Victim {
            number: ours.into_raw_fd(),
            peer,
        }
    }

    fn close(&self) {
        // SAFETY: the number was taken out of its owner, and is closed once.
        assert_eq!(unsafe { libc::close(self.number) }, 0);
    }

    /// Returns a descriptor with the number of the closed one.
    fn reborn(&self, socket: &Socket) -> OwnedFd {
        let heir = rustix::io::fcntl_dupfd_cloexec(socket, self.number).unwrap();
        assert_eq!(heir.as_raw_fd(), self.number, "the number is free");
        heir
    }
}

#[test]
fn rule_11_foreign_close_harms_nobody() {
    in_a_child(&[], || {
        in_every_mode(|poller, mode| {
            for (when, waits_before, dup) in [
                ("before the first wait", false, false),
                ("between two waits", true, false),
                ("while a duplicate lives on", true, true),
            ] {
                // A new poller each time, so that no number is registered already.
                let poller = open(poller.backend());
                let (ours, mut theirs) = local_pair();
                let ours = Source::new(&poller, ours, 1, READABLE, mode);
                let mut healthy = || {
                    theirs.write_all(b"x").unwrap();
                    assert!(ours.next().is_readable(), "the other source, {when}");
                    assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
                    ours.rearm(READABLE);
                };
                let victim = Victim::new(&poller, 2, mode);
                if waits_before {
                    quiet(&poller, when);
                }
                let dup = dup.then(|| {
                    // SAFETY: it is open here, and borrowed for this expression only.
                    let open = unsafe { BorrowedFd::borrow_raw(victim.number) };
                    open.try_clone_to_owned().unwrap()
                });
                victim.close();
                healthy();
                if mode != Mode::Level {
                    reports_at_most(&poller, 1, when);
                }
                healthy();
                drop(victim.peer);
                healthy();
                if mode != Mode::Level {
                    reports_at_most(&poller, 1, when);
                }
                drop(dup);
            }
        });
    });
}

#[test]
fn rule_11_close_during_wait_harms_nobody() {
    in_a_child(&[], || {
        in_every_mode(|poller, mode| {
            let (ours, mut theirs) = local_pair();
            let ours = Source::new(poller, ours, 1, READABLE, mode);
            let victim = Victim::new(poller, 2, mode);
            let waiter = waiter(poller, None);
            victim.close();
            drop(victim.peer);
            theirs.write_all(b"x").unwrap();
            waiter.join().unwrap();
            // The wait may have ended because of the closed descriptor.
            ours.rearm(READABLE);
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
            theirs.write_all(b"y").unwrap();
            ours.rearm(READABLE);
            assert!(ours.next().is_readable());
        });
    });
}

/// Whether the backend is implemented by polder, and not by the `polling` crate.
fn ours_alone(backend: Backend) -> bool {
    matches!(
        backend,
        Backend::Epoll | Backend::IoUring | Backend::Poll | Backend::Select
    )
}

/// Rule 11: the next owner of a number that was found closed can use it.
#[test]
fn rule_11_reused_number_works() {
    in_a_child(&[], || {
        in_every_mode(|poller, mode| {
            // The adapter to `polling` keeps a table, and its kernels do not report a closed
            // descriptor, so it cannot notice.
            if !ours_alone(poller.backend()) {
                return;
            }
            let (ours, mut theirs) = local_pair();
            let victim = Victim::new(poller, 1, mode);
            victim.close();
            // Any report about the closed descriptor comes in these polls.
            for _ in 0..3 {
                poll_now(poller);
            }
            let heir = Source::new(poller, victim.reborn(&ours), 2, READABLE, mode);
            theirs.write_all(b"x").unwrap();
            let events = wait(poller, None);
            assert_eq!(tokens(&events), [2], "{events:?}");
            drop(heir);
        });
    });
}

/// Rule 14: a file that no poller takes is unknown too.
#[test]
fn rule_14_unpollable_file_is_unknown() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        fails(
            poller.deregister(borrow(&file)),
            io::ErrorKind::NotFound,
            "a file was never registered",
        );
    });
}

#[test]
fn rule_20_unpollable_is_error() {
    in_every_mode(|poller, mode| {
        let program = std::env::current_exe().unwrap();
        let file = std::fs::File::open(&program).unwrap();
        let directory = std::fs::File::open(program.parent().unwrap()).unwrap();
        for (what, file) in [("a regular file", file), ("a directory", directory)] {
            // Twice: the first attempt leaves nothing behind.
            for _ in 0..2 {
                // SAFETY: this does not register it.
                let result = unsafe { poller.register(borrow(&file), Token(1), READABLE, mode) };
                fails(result, io::ErrorKind::PermissionDenied, what);
            }
        }
        quiet(poller, "nothing was registered");
    });
}

/// Rule 20: a device that is always ready is an error or ready.
#[test]
fn rule_20_always_ready_device_error_or_ready() {
    in_every_mode(|poller, mode| {
        let null = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: it is deregistered below.
        match unsafe { poller.register(borrow(&null), Token(1), READABLE, mode) } {
            Ok(()) => {
                assert!(next(poller, 1).is_readable());
                poller.deregister(borrow(&null)).unwrap();
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"),
        }
    });
}

/// Rule 20: a descriptor that only names a place is an error at registration.
///
/// A descriptor that only names a path (`O_PATH`); poll(2) treats it as closed.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn rule_20_path_descriptor_is_error() {
    use rustix::fs::{Mode as Permissions, OFlags};

    in_every_mode(|poller, mode| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        for path in ["/dev/null", "/", "/dev/tty"] {
            let place = rustix::fs::open(path, flags, Permissions::empty()).unwrap();
            // SAFETY: this does not register it; otherwise the test fails and drops the poller.
            let result = unsafe { poller.register(borrow(&place), Token(1), READABLE, mode) };
            assert!(result.is_err(), "{path} as a place only is taken");
        }
    });
}

/// Rule 20: a block device is an error at registration.
///
/// A disk is always ready, like a file. Only if this machine has one that may be opened.
#[test]
fn rule_20_block_device_is_error() {
    use std::os::unix::fs::FileTypeExt;

    in_every_mode(|poller, mode| {
        for entry in std::fs::read_dir("/dev").unwrap().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_block_device()) {
                continue;
            }
            let Ok(device) = std::fs::File::open(entry.path()) else {
                continue;
            };
            // SAFETY: this does not register it; otherwise the test fails and drops the poller.
            let result = unsafe { poller.register(borrow(&device), Token(1), READABLE, mode) };
            fails(result, io::ErrorKind::PermissionDenied, "a block device");
        }
    });
}

#[test]
fn rule_09_a_closed_pipe_reader_wakes_the_writer() {
    in_every_mode(|poller, mode| {
        for waited_for in [true, false] {
            let (reader, mut writer) = Pipe::pair();
            fill(&mut writer);
            let mut writer = Source::new(poller, writer, 1, WRITABLE, mode);
            quiet(poller, "the pipe is full");
            let event = if waited_for {
                let waiter = waiter(poller, None);
                drop(reader);
                waiter.join().unwrap()[0]
            } else {
                drop(reader);
                writer.next()
            };
            assert!(event.is_writable(), "{event:?}");
            let error = writer.socket.write(b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
        }
    });
}

/// Returns the calling thread's CPU time so far.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Rule 68: the end of a peer that keeps its descriptor wakes a blocked writer.
#[test]
fn rule_68_peers_end_wakes_blocked_writer() {
    // The interest, and whether unread data is available all the time.
    let cases = [
        (WRITABLE, false),
        (WRITABLE, true),
        (READABLE | WRITABLE, false),
        (READABLE | WRITABLE, true),
    ];
    in_every_mode(move |poller, mode| {
        for (interest, unread) in cases {
            // On the BSDs the peer's shutdown of reading does not reach our side (`uipc_shutdown`
            // in kern/uipc_usrreq.c), whichever backend asks.
            let is_told = cfg!(target_os = "linux") && poller.backend().name() != "kqueue";
            if !is_told && interest == WRITABLE {
                continue;
            }
            for waited_for in [true, false] {
                let (mut ours, mut theirs) = local_pair();
                fill(&mut ours);
                if unread {
                    assert_eq!(theirs.write(b"unread").unwrap(), 6);
                }
                let ours = Source::new(poller, ours, 1, interest, mode);
                let is_quiet = !unread || !interest.contains(READABLE);
                if is_quiet {
                    quiet(
                        poller,
                        "there is no room, and nobody wants what there is to read",
                    );
                }
                let waiter = (is_quiet && waited_for).then(|| waiter(poller, None));
                theirs.shutdown(Shutdown::Both).unwrap();
                let mut told = match waiter {
                    Some(waiter) => waiter.join().unwrap(),
                    None => wait(poller, None),
                };
                while !told.iter().any(Event::is_writable) {
                    ours.rearm(interest);
                    told = wait(poller, None);
                }
                let error = (&ours.socket).write(b"x").unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
                drop(theirs);
            }
        }
    });
}

/// Rule 68: a writer beside unread bytes costs no time.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn rule_68_writer_beside_unread_costs_nothing() {
    in_every_mode(|poller, mode| {
        let (mut ours, mut theirs) = local_pair();
        fill(&mut ours);
        assert_eq!(theirs.write(b"unread").unwrap(), 6);
        let _ours = Source::new(poller, ours, 1, WRITABLE, mode);
        let (start, time) = (cpu_time(), Duration::from_millis(200));
        assert!(wait(poller, Some(time)).is_empty());
        let used = cpu_time() - start;
        // A poller that spins uses all of it. Ten thousand signals a second use up to a quarter.
        assert!(
            used < time / 2,
            "{used:?} of CPU time in a wait of {time:?}"
        );
    });
}

/// Rule 22: a signal storm makes no timeout early or endless.
#[test]
fn rule_22_signal_storm_keeps_timeouts() {
    on_every_backend(|backend| {
        let poller = open(backend);
        let _storm = Storm::here();
        let mut interrupted = 0;
        // In as many waits that had to resume more than once.
        while interrupted < 40 {
            for timeout in [Duration::from_micros(2_500), Duration::from_millis(3)] {
                let (start, before) = (Instant::now(), SIGNALS.get());
                let events = wait(&poller, Some(timeout));
                let elapsed = start.elapsed();
                assert!(events.is_empty(), "{events:?}");
                assert!(elapsed >= timeout, "{elapsed:?} instead of {timeout:?}");
                interrupted += usize::from(SIGNALS.get() - before >= 2);
            }
        }
    });
}

#[test]
fn rule_22_a_signal_storm_loses_nothing() {
    in_every_mode(|poller, mode| {
        let (ours, mut theirs) = local_pair();
        let ours = Source::new(poller, ours, 1, READABLE, mode);
        let (go, when) = mpsc::channel::<u8>();
        let writer = thread::spawn(move || {
            for byte in when {
                // Long enough for the waiter to fall asleep, and to be interrupted.
                thread::sleep(Duration::from_micros(200));
                theirs.write_all(&[byte]).unwrap();
            }
        });
        let storm = Storm::here();
        for timeout in [None, Some(Duration::MAX), Some(Duration::from_secs(3600))] {
            let (before, mut round) = (SIGNALS.get(), 0_usize);
            // (On a loaded machine the storm may begin late.)
            while round < 50 || SIGNALS.get() == before {
                let byte = round as u8;
                go.send(byte).unwrap();
                // A wait ended by a signal alone would return without events.
                let events = wait(poller, timeout);
                assert_eq!(tokens(&events), [1], "round {round}");
                let mut bytes = [0; 8];
                assert_eq!((&ours.socket).read(&mut bytes).unwrap(), 1);
                assert_eq!(bytes[0], byte);
                ours.rearm(READABLE);
                round += 1;
            }
        }
        drop(storm);
        drop(go);
        writer.join().unwrap();
    });
}

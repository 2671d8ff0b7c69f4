//! `signal`: Ctrl-C and others. A signal affects the whole process, so these tests are a separate
//! program, and run one after the other.

#[path = "conformance/support.rs"]
#[allow(dead_code)]
mod support;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use polder::future::{poll_once, zip};
use polder::signal::{CtrlC, Signal, Signals, ctrl_c};
use polder::stream::Stream;
#[cfg(unix)]
use polder::stream::StreamExt;
use polder::{Runtime, Timer};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::raise;

use support::{eventually, in_every_kernel_runtime, message, on_every_backend, runtime, within};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Held for the duration of a test. The handler is installed, so that no signal ends the process.
fn alone() -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    drop(ctrl_c());
    guard
}

/// Sends this process a SIGINT, as a terminal does on Ctrl-C.
#[cfg(unix)]
fn interrupt() {
    // SAFETY: it takes two integers; the process is ourselves.
    let result = unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    assert_eq!(result, 0, "a process may signal itself");
}

/// The C library's `raise`: it calls the handler on this thread.
#[cfg(windows)]
fn interrupt() {
    raise(SIGINT).expect("a process may signal itself");
}

fn interrupt_from_another_thread() {
    let thread = thread::spawn(interrupt);
    thread.join().expect("signals can be sent");
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll_with(listener: &mut CtrlC, count: &Arc<Count>) -> Poll<std::io::Result<()>> {
    let waker = Waker::from(count.clone());
    Pin::new(listener).poll(&mut Context::from_waker(&waker))
}

#[test]
fn two_listeners_both_get_one_signal() {
    let _alone = alone();
    in_every_kernel_runtime(|_| async {
        let (mut one, mut two) = (ctrl_c(), ctrl_c());
        assert!(poll_once(&mut one).await.is_none());
        assert!(poll_once(&mut two).await.is_none());
        let task = polder::spawn(ctrl_c());
        interrupt_from_another_thread();
        let (one, two) = zip(one, two).await;
        one.expect("the handler is there");
        two.expect("the handler is there");
        task.await.expect("the handler is there");
    });
}

/// Listeners in two runtimes on two threads both get one signal.
#[test]
fn listeners_in_two_runtimes_get_signal() {
    let _alone = alone();
    on_every_backend(|backend| {
        let waiting = Arc::new(Barrier::new(3));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let waiting = waiting.clone();
                thread::spawn(move || {
                    let runtime: Runtime = runtime(backend);
                    let mut listener = ctrl_c();
                    let first = runtime.block_on(poll_once(&mut listener));
                    assert!(first.is_none(), "there was no signal yet");
                    waiting.wait();
                    runtime.block_on(listener).expect("the handler is there");
                })
            })
            .collect();
        waiting.wait();
        interrupt_from_another_thread();
        for thread in threads {
            if let Err(panic) = thread.join() {
                panic!("{}", message(&*panic));
            }
        }
    });
}

/// Returns when the thread has called the wakers for all earlier signals. It may have been late,
/// and calls those of listeners that were made meanwhile, too.
#[cfg(unix)]
fn thread_is_done() {
    // The thread has counted the earlier ones when it calls the waker for the first of these, and
    // has called all wakers for them before it looks at the second one.
    for _ in 0..2 {
        let mut listener = Signals::new([Signal::Usr1]).expect("it can be listened to");
        let count = Arc::<Count>::default();
        assert!(poll_signals(&mut listener, &count).is_pending());
        raise(signal_hook::consts::SIGUSR1).expect("a process may signal itself");
        eventually("the thread calls the waker", || count.get() > 0);
    }
}

/// A waker may block on a task with the same signal.
///
/// The thread of the signals calls tasks' own wakers first.
#[test]
fn waker_may_block_on_same_signal() {
    /// Blocks until it is told that the task has run, and reports whether it has.
    struct Blocks(Mutex<mpsc::Receiver<()>>, mpsc::Sender<bool>);
    impl Wake for Blocks {
        fn wake(self: Arc<Self>) {
            let told = self.0.lock().expect("no panic");
            let has_run = told.recv_timeout(Duration::from_secs(20)).is_ok();
            self.1.send(has_run).expect("the test waits");
        }
    }
    let _alone = alone();
    on_every_backend(|backend| {
        let (run, told) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        // A waker that is called for an earlier signal would wait in vain.
        #[cfg(unix)]
        thread_is_done();
        let mut first = ctrl_c();
        let waker = Waker::from(Arc::new(Blocks(Mutex::new(told), report)));
        let poll = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
        let runtime = runtime(backend);
        runtime.block_on(async {
            let waiting = Arc::new(polder::event::Event::new());
            let task = polder::spawn({
                let waiting = waiting.clone();
                async move {
                    let mut second = ctrl_c();
                    assert!(poll_once(&mut second).await.is_none());
                    waiting.set();
                    second.await.expect("the handler is there");
                    run.send(()).expect("the waker waits");
                }
            });
            waiting.wait().await;
            interrupt_from_another_thread();
            task.await;
        });
        let has_run = reported.recv().expect("the waker reports");
        assert!(has_run, "the task waited for the waker of another listener");
    });
}

#[test]
fn dropping_a_listener_leaves_the_other() {
    let _alone = alone();
    in_every_kernel_runtime(|_| async {
        let counts = [(); 3].map(|()| Arc::<Count>::default());
        let [mut first, mut second, mut third] = [(); 3].map(|()| ctrl_c());
        assert!(poll_with(&mut first, &counts[0]).is_pending());
        assert!(poll_with(&mut second, &counts[1]).is_pending());
        assert!(poll_with(&mut third, &counts[2]).is_pending());
        drop(first);
        drop(third);
        assert_eq!(Arc::strong_count(&counts[0]), 1, "a waker is left");
        assert_eq!(Arc::strong_count(&counts[2]), 1, "a waker is left");
        let again = ctrl_c(); // It may have a place that has become free.
        interrupt_from_another_thread();
        second.await.expect("the handler is there");
        again.await.expect("the handler is there");
        assert_eq!((counts[0].get(), counts[2].get()), (0, 0));
    });
}

#[test]
fn a_signal_before_the_first_poll_is_told() {
    let _alone = alone();
    on_every_backend(|backend| {
        let listener = ctrl_c();
        let mut other = ctrl_c();
        interrupt_from_another_thread();
        let runtime = runtime(backend);
        runtime.block_on(&mut other).expect("the handler is there");
        // The signal has certainly arrived: this listener gets it at its first poll.
        let mut listener = pin!(listener);
        let first = runtime.block_on(poll_once(&mut listener));
        first.expect("it is told").expect("the handler is there");
    });
}

/// A signal before the listener was made is not told.
#[test]
fn signal_before_listener_not_told() {
    let _alone = alone();
    within(Duration::from_secs(30), "on a plain thread", || {
        for _ in 0..200 {
            let count = Arc::<Count>::default();
            let mut before = ctrl_c();
            assert!(poll_with(&mut before, &count).is_pending());
            // Returns after the handler has run, on this very thread.
            raise(SIGINT).expect("a process may signal itself");
            let mut after = ctrl_c();
            eventually("the listener that was there is woken", || count.get() > 0);
            assert!(poll_with(&mut before, &count).is_ready());
            let told = poll_with(&mut after, &Arc::default()).is_ready();
            assert!(!told, "it was told of a signal that came before it");
        }
    });
}

#[test]
fn each_signal_is_told_to_whoever_waits_for_it() {
    let _alone = alone();
    in_every_kernel_runtime(|_| async {
        for _ in 0..5 {
            let listener = ctrl_c();
            interrupt_from_another_thread();
            listener.await.expect("the handler is there");
        }
    });
}

/// As documented: after the first call Ctrl-C never ends the process.
#[test]
fn signal_without_waiter_keeps_process() {
    let _alone = alone();
    on_every_backend(|backend| {
        // (A listener that exists but is not polled: it shows when the signal has arrived.)
        let witness = ctrl_c();
        interrupt();
        runtime(backend).block_on(async {
            // The loop continues, and so does listening.
            Timer::after(Duration::from_millis(1)).await;
            witness.await.expect("the handler is there");
            let listener = ctrl_c();
            interrupt();
            listener.await.expect("the handler is there");
        });
    });
}

/// Signals this process from outside. Windows has only Ctrl-C.
#[cfg(unix)]
fn send(number: libc::c_int) {
    // SAFETY: it takes two integers; the process is ourselves.
    let result = unsafe { libc::kill(libc::getpid(), number) };
    assert_eq!(result, 0, "a process may signal itself");
}

fn poll_signals(signals: &mut Signals, count: &Arc<Count>) -> Poll<Option<Signal>> {
    let waker = Waker::from(count.clone());
    Pin::new(signals).poll_next(&mut Context::from_waker(&waker))
}

#[test]
fn signals_that_cannot_be_had_are_errors() {
    let _alone = alone();
    for signal in [
        Signal::Kill,
        Signal::Stop,
        Signal::Segv,
        Signal::Ill,
        Signal::Fpe,
    ] {
        let error = Signals::new([Signal::Int, signal]).expect_err("it cannot be listened to");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        let words = error.to_string();
        assert!(words.contains(&signal.to_string()), "{words}");
    }
    let error = Signals::new([]).expect_err("it would wait for ever");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let here = Signals::new([Signal::Usr1]);
    assert_eq!(here.is_ok(), cfg!(unix), "{here:?}");
}

#[test]
fn a_number_gives_the_signal_that_has_it() {
    let _alone = alone();
    for (number, signal) in [(SIGINT, Signal::Int), (SIGTERM, Signal::Term)] {
        assert_eq!(Signal::try_from(number).expect("it is one"), signal);
        assert_eq!(signal.number(), Some(number));
    }
    #[cfg(unix)]
    for (number, signal) in [
        (libc::SIGHUP, Signal::Hup),
        (libc::SIGUSR1, Signal::Usr1),
        (libc::SIGWINCH, Signal::Winch),
    ] {
        assert_eq!(Signal::try_from(number).expect("it is one"), signal);
        assert_eq!(signal.number(), Some(number));
    }
    assert_eq!(Signal::Usr1.number().is_some(), cfg!(unix));
}

/// Numbers of no signal and of signals that cannot be had are errors.
#[test]
fn invalid_signal_numbers_are_errors() {
    let _alone = alone();
    let refused = |number: i32, words: &str| {
        for error in [
            Signal::try_from(number).map(drop),
            Signals::new([Signal::Other(number)]).map(drop),
            Signals::new([Signal::Int, Signal::Other(number)]).map(drop),
        ] {
            let error = error.expect_err(words);
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{number}");
            let told = error.to_string();
            assert!(
                told.contains(words) && told.contains("listened to"),
                "{told}"
            );
        }
    };
    for number in [0, -1, 127 + 1, 1_000, i32::MAX, i32::MIN] {
        refused(number, &number.to_string());
    }
    #[cfg(unix)]
    for number in [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGILL,
        libc::SIGFPE,
    ] {
        refused(number, "");
    }
    // Signals that the C library uses for threads; and one beyond the last.
    #[cfg(target_os = "linux")]
    for number in [32, libc::SIGRTMAX() + 1] {
        refused(number, &number.to_string());
    }
}

/// A signal without a name is listened to by its number.
///
/// Some signals have no variant, and a signal may be listened to by its variant and by its number.
#[test]
#[cfg(target_os = "linux")]
fn signal_without_name_by_number() {
    let _alone = alone();
    let (first, last) = (libc::SIGRTMIN() + 1, libc::SIGRTMAX());
    in_every_kernel_runtime(move |_| async move {
        let signals = [first, last, libc::SIGPWR]
            .map(|number| Signal::try_from(number).expect("it is a signal"));
        let mut all = Signals::new(signals).expect("they can be listened to");
        let mut one = Signals::new([signals[1]]).expect("it can be listened to");
        let names = [Signal::Term, Signal::Other(libc::SIGTERM)];
        let mut both = Signals::new(names).expect("the same one twice");
        for signal in signals {
            assert!(poll_once(all.next()).await.is_none(), "{signal} was told");
            send(signal.number().expect("it has one"));
            assert_eq!(all.next().await, Some(signal));
        }
        assert_eq!(one.next().await, Some(Signal::Other(last)));
        assert!(poll_once(one.next()).await.is_none(), "it is told once");
        send(libc::SIGTERM);
        let told = [both.next().await, both.next().await];
        assert_eq!(told, names.map(Some));
    });
    assert_eq!(Signal::Other(last).to_string(), format!("signal {last}"));
}

/// Each listener gets the signals that it asked for.
#[test]
#[cfg(unix)]
fn listener_gets_requested_signals() {
    let _alone = alone();
    in_every_kernel_runtime(|_| async {
        let listen = |signals: &[Signal]| {
            Signals::new(signals.iter().copied()).expect("they can be listened to")
        };
        let mut both = listen(&[Signal::Term, Signal::Hup, Signal::Term]);
        let mut hup = listen(&[Signal::Hup]);
        let task = polder::spawn({
            let mut term = listen(&[Signal::Term]);
            async move { term.next().await }
        });
        assert!(poll_once(hup.next()).await.is_none());
        send(libc::SIGTERM);
        assert_eq!(both.next().await, Some(Signal::Term));
        assert_eq!(task.await, Some(Signal::Term));
        assert!(
            poll_once(hup.next()).await.is_none(),
            "it asked for another"
        );
        send(libc::SIGHUP);
        assert_eq!(both.next().await, Some(Signal::Hup));
        assert_eq!(hup.next().await, Some(Signal::Hup));
        assert!(poll_once(both.next()).await.is_none(), "each is told once");
        // Ctrl-C is one of these signals.
        let mut int = listen(&[Signal::Int]);
        let listener = ctrl_c();
        interrupt_from_another_thread();
        assert_eq!(int.next().await, Some(Signal::Int));
        listener.await.expect("the handler is there");
    });
}

/// Signals between two looks are told once for each kind.
///
/// As documented: signals of one kind between two polls are reported once, and do not hide signals
/// of another kind.
#[test]
fn signals_coalesce_per_kind() {
    let _alone = alone();
    within(Duration::from_secs(30), "on a plain thread", || {
        let mut signals = Signals::new([Signal::Int, Signal::Term]).expect("two");
        for _ in 0..100 {
            for _ in 0..5 {
                // Returns after the handler has run, on this very thread.
                raise(SIGINT).expect("a process may signal itself");
            }
            raise(SIGTERM).expect("a process may signal itself");
            let mut told = [(); 2].map(|()| poll_signals(&mut signals, &Arc::default()));
            told.sort_by_key(|told| format!("{told:?}"));
            let expected = [Signal::Int, Signal::Term].map(|signal| Poll::Ready(Some(signal)));
            assert_eq!(told, expected);
            assert!(poll_signals(&mut signals, &Arc::default()).is_pending());
        }
        // A signal that keeps coming does not hide the other.
        raise(SIGTERM).expect("a process may signal itself");
        let mut seen = Vec::new();
        for _ in 0..3 {
            raise(SIGINT).expect("a process may signal itself");
            seen.push(poll_signals(&mut signals, &Arc::default()));
        }
        assert!(seen.contains(&Poll::Ready(Some(Signal::Term))), "{seen:?}");
    });
    // The result does not depend on the backend.
    support::backends().into_iter().for_each(support::passed);
}

/// If eventfd is refused, all rules of signals hold with a socket pair.
///
/// A sandbox may refuse the descriptor that connects the handler to the thread: then another one
/// does.
#[test]
#[cfg(target_os = "linux")]
fn refused_eventfd_keeps_all_rules() {
    const CHILD: &str = "POLDER_TEST_REFUSED";
    const NAME: &str = "refused_eventfd_keeps_all_rules";
    if std::env::var_os(CHILD).is_some() {
        // Ensures that the other tests of the child really run without eventfd.
        let made = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        return assert!(made.is_err(), "eventfds are refused here: {made:?}");
    }
    for errno in [libc::EPERM, libc::ENOSYS] {
        within(support::LIMIT * 2, "this program again", move || {
            support::refuse(&[libc::SYS_eventfd2], errno);
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .env(CHILD, errno.to_string())
                .output()
                .expect("the program starts again");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "with errno {errno}:\n{said}");
            assert!(said.contains(NAME), "{said}");
        });
    }
}

/// As in a process whose parent blocks it: then each thread does.
#[test]
#[cfg(unix)]
fn a_signal_blocked_at_the_start_is_told() {
    use std::os::unix::process::CommandExt;

    const CHILD: &str = "POLDER_TEST_BLOCKED";
    const NAME: &str = "a_signal_blocked_at_the_start_is_told";
    fn blocked(how: libc::c_int, signals: &[libc::c_int]) -> bool {
        // SAFETY: zeroes are a value of both sets, which live throughout.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            for signal in signals {
                libc::sigaddset(&mut set, *signal);
            }
            libc::pthread_sigmask(how, &set, &mut before);
            (signals.iter()).all(|signal| libc::sigismember(&before, *signal) == 1)
        }
    }
    const SIGNALS: [libc::c_int; 2] = [libc::SIGHUP, libc::SIGUSR1];
    if std::env::var_os(CHILD).is_some() {
        assert!(blocked(libc::SIG_BLOCK, &SIGNALS), "they are inherited");
        // The second is caught when the thread is running.
        for (signal, number) in [(Signal::Hup, SIGNALS[0]), (Signal::Usr1, SIGNALS[1])] {
            within(support::LIMIT, "it stays pending", move || {
                let mut signals = Signals::new([signal]).unwrap();
                for _ in 0..2 {
                    send(number);
                    assert_eq!(polder::block_on(signals.next()), Some(signal));
                }
            });
        }
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", NAME]).env(CHILD, "1");
    // SAFETY: these functions are async-signal-safe.
    unsafe {
        child.pre_exec(|| {
            blocked(libc::SIG_BLOCK, &SIGNALS);
            Ok(())
        });
    }
    let output = within(support::LIMIT * 2, "this program again", move || {
        child.output().expect("the program starts again")
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    // The result does not depend on the backend.
    support::backends().into_iter().for_each(support::passed);
}

#[test]
#[cfg(unix)]
fn names_are_the_c_librarys() {
    assert_eq!(Signal::Term.to_string(), "SIGTERM");
    assert_eq!(format!("{:>8}", Signal::Hup), "  SIGHUP");
}

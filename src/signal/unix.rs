//! The thread for signals on Unix, which handlers notify by an eventfd or a socket pair, like a
//! poller.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::registry::{COUNTS, mask, start_thread};
use crate::poller::WakeDescriptor;

/// Never closed.
pub(super) type Thread = Arc<WakeDescriptor>;

/// How long the thread sleeps after an unexpected error of `read`. It then checks the counters, so
/// a signal may be late, but is not lost.
const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// signal-hook's iterator panics on an unexpected error of a receive: Ctrl-C would no longer work.
pub(super) fn start() -> io::Result<Thread> {
    let wake = Arc::new(that_blocks(WakeDescriptor::new()?)?);
    let its_wake = wake.clone();
    start_thread(move || match wait(&its_wake) {
        Err(error) if error != Errno::INTR => std::thread::sleep(ERROR_PAUSE),
        _ => {}
    })?;
    Ok(wake)
}

fn that_blocks(wake: WakeDescriptor) -> io::Result<WakeDescriptor> {
    rustix::fs::fcntl_setfl(wake.descriptor(), OFlags::empty())?;
    Ok(wake)
}

pub(super) fn unblock(signals: u128) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set, and `pthread_sigmask` only reads it. The numbers
    // are of signals with a handler.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in (1..COUNTS.len()).filter(|number| signals & mask(*number) != 0) {
            libc::sigaddset(set.as_mut_ptr(), number as i32);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
}

fn wait(wake: &WakeDescriptor) -> rustix::io::Result<usize> {
    rustix::io::read(wake.descriptor(), &mut [0; 64])
}

/// Whether programs may use the signal with this number: the C library reserves some.
pub(super) fn exists(number: i32) -> bool {
    // SAFETY: with both pointers null, `sigaction` only checks the number.
    let asked = || unsafe { libc::sigaction(number, ptr::null(), ptr::null_mut()) };
    (1..COUNTS.len() as i32).contains(&number) && asked() == 0
}

/// For interruptions and a lack of memory: a handler has no other way to reach the thread.
const ATTEMPTS: usize = 8;

/// Called by handlers: `write` is async-signal-safe (signal-safety(7)). If a socket has no room,
/// unread bytes are pending, and the thread will check the counters. A failure may set `errno`,
/// which signal-hook-registry 1.4.8 restores after the handler (vorner/signal-hook#191).
pub(super) fn notify(wake: &Thread) {
    (0..ATTEMPTS).find(|_| wake.try_write().is_ok());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::testing::limited::within;

    const MANY: usize = 100_000;

    fn wakes() -> Vec<Thread> {
        let made = [
            WakeDescriptor::new(),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            WakeDescriptor::or_pair(Err(Errno::NOSYS.into())),
        ];
        let that_block = made.map(|made| that_blocks(made.expect("one descriptor, or two")));
        that_block.map(|wake| Arc::new(wake.unwrap())).into()
    }

    #[test]
    fn handlers_never_block_and_thread_learns() {
        for wake in wakes() {
            let notified = wake.clone();
            within("a handler blocks", move || {
                (0..MANY).for_each(|_| notify(&notified));
            });
            within("what the handlers said is lost", move || {
                wait(&wake).expect("it can be read");
            });
        }
    }

    #[test]
    fn notification_after_full_read_not_lost() {
        for wake in wakes() {
            for _ in 0..1_000 {
                notify(&wake);
                wait(&wake).expect("it can be read");
            }
            // No notification is left: the thread sleeps until the next one.
            let sleeper = wake.clone();
            let (woken, is_woken) = mpsc::channel();
            std::thread::spawn(move || woken.send(wait(&sleeper)));
            let early = is_woken.recv_timeout(Duration::from_millis(20));
            assert!(early.is_err(), "it comes back for nothing: {early:?}");
            notify(&wake);
            let woken = is_woken.recv_timeout(Duration::from_secs(60));
            woken.expect("it is woken").expect("it can be read");
        }
    }
}

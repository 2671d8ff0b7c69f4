//! Rule 21: descriptors with high numbers.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use polder::poller::{Events, Interest, Mode, Poller, Token};

use crate::child::in_children;
use crate::support::LIMIT;

/// Lets this process have `needed` descriptors.
pub fn allow(needed: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit` to where one is.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    if limit.rlim_cur < needed {
        limit.rlim_cur = needed;
        // SAFETY: the kernel reads one `rlimit`.
        let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

/// `select`'s sets end at 1,024 in libc, and not in the kernels; what is beyond is memory that is
/// not theirs.
#[test]
fn rule_21_descriptors_beyond_fd_setsize_are_served_beside_others() {
    const ME: &str = "numbers::rule_21_descriptors_beyond_fd_setsize_are_served_beside_others";
    let rule = |backend| {
        allow(2_600);
        let poller = Poller::new(backend).expect("it is available");
        let mut pairs = Vec::new();
        // The last one before libc's limit, the first beyond, and some that lie in other words.
        for number in [0, 1_023, 1_024, 1_025, 1_087, 1_088, 2_047, 2_048, 2_500] {
            let (low, theirs) = UnixStream::pair().unwrap();
            let ours = rustix::io::fcntl_dupfd_cloexec(&low, number).unwrap();
            assert!(number == 0 || ours.as_raw_fd() == number, "it is taken");
            pairs.push((UnixStream::from(ours), theirs));
        }
        for (token, (ours, _)) in (0..).zip(&pairs) {
            let (token, readable) = (Token(token), Interest::READABLE);
            let mode = match poller.capabilities().level {
                true => Mode::Level,
                false => Mode::OneShot,
            };
            // SAFETY: it is deregistered below, before it is closed.
            unsafe { poller.register(ours.as_fd(), token, readable, mode) }.unwrap();
        }
        let mut events = Events::new();
        for (token, (ours, theirs)) in (0..).zip(&mut pairs) {
            theirs.write_all(b"x").unwrap();
            poller.wait(&mut events, Some(LIMIT)).unwrap();
            let tokens: Vec<_> = events.iter().map(|event| event.token().0).collect();
            assert_eq!(tokens, [token], "number {}", ours.as_raw_fd());
            ours.read_exact(&mut [0]).unwrap();
        }
        for (ours, _) in &pairs {
            poller.deregister(ours.as_fd()).unwrap();
        }
    };
    in_children(ME, rule, |_, _| {});
}

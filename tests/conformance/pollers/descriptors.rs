//! Rule 23: the descriptors of a poller.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::process::Command;
use std::time::Duration;

use polder::poller::{Poller, Token};
use polder::{Backend, Runtime};
use rustix::process::Resource;

use super::{
    READABLE, Source, borrow, in_a_child, in_every_mode, local_pair, modes, open, poll_now, quiet,
    tokens, wait,
};
use crate::child::limit;
use crate::support::{LIMIT, on_every_backend};

/// Returns the flags of every descriptor of this process.
fn descriptors() -> HashMap<RawFd, libc::c_int> {
    (0..1024)
        .map(|number| {
            // SAFETY: this call only reads, and returns -1 for a number that is not open.
            (number, unsafe { libc::fcntl(number, libc::F_GETFD) })
        })
        .filter(|(_, flags)| *flags != -1)
        .collect()
}

#[test]
fn rule_23_all_descriptors_are_close_on_exec() {
    in_a_child(&[], || {
        // Returns the descriptors that a child process inherits.
        let inherited = || {
            let list = "for n in 3 4 5 6 7 8 9; do (true <&$n) 2>/dev/null && echo $n; done; true";
            let output = Command::new("sh").args(["-c", list]).output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap()
        };
        on_every_backend(move |backend| {
            let (before, held_before) = (descriptors(), inherited());
            let poller = open(backend);
            let (there, _) = modes(&poller);
            let (ours, mut theirs) = local_pair();
            let mut sources = Vec::new();
            for (token, mode) in there.into_iter().enumerate() {
                let socket = ours.try_clone().unwrap();
                sources.push(Source::new(&poller, socket, token as u64, READABLE, mode));
            }
            wait(&poller, Some(Duration::from_micros(300)));
            poller.notify().unwrap();
            wait(&poller, None);
            theirs.write_all(b"x").unwrap();
            poll_now(&poller);

            // And the users of a poller: a descriptor with a deadline, a listener, a connection.
            let runtime = Runtime::builder().backend(backend).build().unwrap();
            let descriptor = runtime.backend_fd();
            assert_eq!(descriptor.is_ok(), poller.capabilities().descriptor);
            runtime.run_once(Duration::from_micros(300));
            let sockets = runtime.block_on(async {
                polder::Timer::after(Duration::from_micros(300)).await;
                let listener = polder::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let stream = polder::net::TcpStream::connect(address).await.unwrap();
                let accepted = listener.accept().await.unwrap();
                (listener, stream, accepted)
            });

            let after = descriptors();
            assert!(after.len() > before.len() + 3, "something was opened");
            for (number, flags) in after {
                assert!(
                    before.contains_key(&number) || flags & libc::FD_CLOEXEC != 0,
                    "descriptor {number} would live on in a child"
                );
            }
            assert_eq!(inherited(), held_before, "what a child holds");
            drop((descriptor, sockets));
        });
    });
}

/// Rule 23: a poller that goes leaves no descriptor and no registration behind.
#[test]
fn rule_23_dropped_poller_leaves_nothing() {
    in_a_child(&[], || {
        in_every_mode(|poller, mode| {
            let (ours, mut theirs) = local_pair();
            theirs.write_all(b"x").unwrap();
            let before = descriptors();
            for round in 0..100 {
                let other = open(poller.backend());
                // SAFETY: the poller is dropped before the socket.
                unsafe { other.register(borrow(&ours), Token(round), READABLE, mode) }.unwrap();
                assert_eq!(tokens(&wait(&other, Some(LIMIT))), [round]);
                other.notify().unwrap();
                wait(&other, Some(Duration::from_micros(1)));
            }
            assert_eq!(descriptors(), before, "something was left open");
        });
    });
}

/// A poller that cannot be opened is an error and leaks nothing.
#[test]
fn failed_open_leaks_nothing() {
    in_a_child(&[], || {
        on_every_backend(|backend| {
            let before = descriptors();
            let highest = before.keys().max().unwrap() + 1;
            // No descriptor, then one, then two, and so on, until there are enough.
            for allowed in 0.. {
                assert!(allowed < 32, "a poller needs {allowed} descriptors");
                let mut hoard = Vec::new();
                limit(Resource::Nofile, (highest + allowed) as u64);
                // Takes all lower numbers that are free.
                while let Ok(taken) = rustix::io::fcntl_dupfd_cloexec(stdin(), 0) {
                    if taken.as_raw_fd() >= highest {
                        break;
                    }
                    hoard.push(taken);
                }
                let opened = Poller::new(backend);
                drop(hoard);
                limit(Resource::Nofile, 1024);
                match opened {
                    Ok(poller) => {
                        assert!(allowed > 0, "a poller without a descriptor");
                        quiet(&poller, "it works");
                        break;
                    }
                    Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}"),
                }
                assert_eq!(descriptors(), before, "{allowed}: something was left open");
            }
            let before = match backend {
                // Its reactor is per process, and stays.
                Backend::AsyncIo => descriptors(),
                _ => before,
            };
            quiet(&open(backend), "another one works");
            assert_eq!(descriptors(), before, "something was left open");
        });
    });
}

fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the standard input stays open.
    unsafe { BorrowedFd::borrow_raw(0) }
}

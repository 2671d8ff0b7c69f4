//! Rule 21: descriptors with high numbers.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use polder::Backend;
use polder::io::AsyncWriteExt;
use polder::poller::{Events, Interest, Mode, Poller, Token};
use rustix::process::Resource;

use crate::child::{allow_descriptors, in_children, limit};
use crate::support::{LIMIT, runtime_of};

/// Rule 21: descriptors beyond `FD_SETSIZE` are served beside others.
///
/// In libc the sets of `select` end at 1,024, in the kernels they do not; higher numbers would
/// touch memory outside the set.
#[test]
fn rule_21_descriptors_beyond_fd_setsize() {
    let rule = |backend| {
        allow_descriptors(2_600);
        let poller = Poller::new(backend).expect("it is available");
        let mut pairs = Vec::new();
        // The last number below libc's limit, the first above it, and some in other words of the
        // set.
        for number in [0, 1_023, 1_024, 1_025, 1_087, 1_088, 2_047, 2_048, 2_500] {
            let (low, theirs) = UnixStream::pair().unwrap();
            let ours = rustix::io::fcntl_dupfd_cloexec(&low, number).unwrap();
            assert!(number == 0 || ours.as_raw_fd() == number, "it is taken");
            pairs.push((UnixStream::from(ours), theirs));
        }
        for (token, (ours, _)) in (0..).zip(&pairs) {
            let (token, readable) = (Token(token), Interest::READABLE);
            let mode = if poller.capabilities().level {
                Mode::Level
            } else {
                Mode::OneShot
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
    in_children(rule);
}

/// Rule 21: a limit that is lowered below what is waited for loses nothing.
///
/// poll(2) takes no more descriptors than the current limit of the process.
#[test]
fn rule_21_lowered_limit_loses_nothing() {
    let rule = |backend| {
        for workers in [1, 2] {
            allow_descriptors(400);
            serve_below_the_limit(backend, workers);
        }
    };
    in_children(rule);
}

fn serve_below_the_limit(backend: Backend, workers: usize) {
    let runtime = runtime_of(backend, workers);
    let pair = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(LIMIT)).unwrap();
        (ours, theirs)
    };
    let mut peers = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..120 {
        let (ours, theirs) = pair();
        let mut ours = polder::net::unix::UnixStream::try_from(ours).unwrap();
        tasks.push(runtime.spawn(async move {
            let (reader, writer) = ours.split();
            polder::io::copy(reader, writer).await.unwrap()
        }));
        peers.push(theirs);
    }
    // A writer waits while bytes are unread: `select` asks poll(2) about it.
    let (ours, blocked) = pair();
    (&blocked).write_all(b"unread").unwrap();
    let mut ours = polder::net::unix::UnixStream::try_from(ours).unwrap();
    let written = runtime.spawn(async move {
        ours.write_all(&[7; 4 << 20]).await.unwrap();
        ours
    });
    let echoes = move |peers: &mut [UnixStream]| {
        for (index, peer) in peers.iter_mut().enumerate() {
            peer.write_all(b"x").unwrap();
            let read = peer.read_exact(&mut [0]);
            read.unwrap_or_else(|error| panic!("{index} with {workers} workers: {error}"));
        }
    };
    let client = thread::spawn({
        let handle = runtime.handle();
        move || {
            // All of them are registered.
            echoes(&mut peers);
            limit(Resource::Nofile, 40);
            echoes(&mut peers);
            // Wakes, timers and changes of interest.
            let (sender, slept) = mpsc::channel();
            let sleep = async move {
                polder::time::sleep(Duration::from_millis(60)).await;
                sender.send(()).unwrap();
            };
            handle.spawn(sleep).detach();
            slept.recv_timeout(LIMIT).expect("the timer fires");
            (&blocked).read_exact(&mut vec![0; 4 << 20]).unwrap();
            limit(Resource::Nofile, 400);
            echoes(&mut peers);
        }
    });
    runtime.block_on(async {
        drop(written.await);
        for task in tasks {
            assert_eq!(task.await, 3);
        }
    });
    client.join().unwrap();
}

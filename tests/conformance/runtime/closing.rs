//! Rule 76 for whole runtimes: closing a source neither sleeps nor waits for another worker, and
//! what a runtime has held is closed when its drop returns. In processes of their own, so that no
//! child of another test holds these sockets.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use polder::io::AsyncReadExt;
use polder::net::unix::UnixStream;
use polder::net::{TcpListener, TcpStream};
use polder::{Backend, Runtime, future};

use crate::child::{allow_descriptors, in_children, sleeps_of};
use crate::support::{eventually, runtime_of};

const WORKERS: [usize; 3] = [1, 2, 4];

/// Drops a source. Returns how often the calling thread slept meanwhile.
fn sleeps_of_drop<T>(source: T) -> usize {
    let this = Path::new("/proc/thread-self");
    let before = sleeps_of(this);
    drop(source);
    sleeps_of(this) - before
}

/// Returns how often `count` drops may sleep. For a lock that another worker has just taken, one in
/// two; where a thread that waits in the kernel has to leave it, each one.
fn allowed_sleeps(backend: Backend, count: usize) -> usize {
    match backend {
        Backend::Epoll | Backend::IoUring => count / 2,
        _ => count * 10,
    }
}

/// Whether the peer of a stream that was dropped has been told its end by now.
fn has_ended(mut peer: impl Read) -> bool {
    loop {
        match peer.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn pair() -> (UnixStream, StdUnixStream) {
    let (near, far) = StdUnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (near.try_into().unwrap(), far)
}

/// More events are pending than a ring's completion queue holds.
#[test]
fn a_burst_of_ends_makes_no_drop_sleep() {
    const STREAMS: usize = 1_500;
    in_children(|backend| {
        allow_descriptors(2 * STREAMS as u64 + 100);
        for workers in WORKERS {
            let runtime = runtime_of(backend, workers);
            let waiting = Arc::new(AtomicUsize::new(0));
            let (tasks, peers): (Vec<_>, Vec<_>) = (0..STREAMS)
                .map(|_| {
                    let (mut near, far) = pair();
                    let waiting = waiting.clone();
                    let task = runtime.spawn(async move {
                        let mut bytes = 0;
                        assert!(future::poll_once(near.read(&mut [0])).await.is_none());
                        waiting.fetch_add(1, SeqCst);
                        while near.read(&mut [0]).await.unwrap() > 0 {
                            bytes += 1;
                        }
                        (bytes, sleeps_of_drop(near))
                    });
                    (task, far)
                })
                .unzip();
            runtime.block_on(async {
                while waiting.load(SeqCst) < STREAMS {
                    polder::time::sleep(Duration::from_millis(1)).await;
                }
            });
            // No worker takes an event before all are there.
            let (arrived, are_there) =
                (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
            let pool_workers = if workers == 1 { 0 } else { workers };
            for worker in 0..pool_workers {
                let (arrived, are_there) = (arrived.clone(), are_there.clone());
                let busy = move || async move {
                    arrived.fetch_add(1, SeqCst);
                    eventually("all events are there", || are_there.load(SeqCst));
                };
                runtime.handle().spawn_on_worker(worker, busy).detach();
            }
            eventually("the workers compute", || {
                arrived.load(SeqCst) == pool_workers
            });
            for _ in 0..2 {
                for far in &peers {
                    (&*far).write_all(b"x").unwrap();
                }
            }
            drop(peers);
            are_there.store(true, SeqCst);
            let mut sleeps = 0;
            for task in tasks {
                let (bytes, slept) = runtime.block_on(task);
                assert_eq!(bytes, 2);
                sleeps += slept;
            }
            let allowed = allowed_sleeps(backend, STREAMS);
            assert!(
                sleeps <= allowed,
                "with {workers} workers, {STREAMS} drops slept {sleeps} times"
            );
        }
    });
}

/// Sleeps in the kernel, where nothing interrupts the thread, until `done` is set: it waits for a
/// child that shares its memory to end, as the parent of `vfork(2)` does. Sets `sleeps` from there.
/// The child shares its descriptors too, so it holds no socket open.
fn sleep_uninterruptibly(state: &Stuck) {
    extern "C" fn child(state: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the parent passes a reference, and waits for this function to return.
        let state = unsafe { &*state.cast::<Stuck>() };
        state.sleeps.store(true, SeqCst);
        let nap = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        // At most a minute.
        for _ in 0..60_000 {
            if state.done.load(SeqCst) {
                break;
            }
            // SAFETY: it reads the time only.
            unsafe { libc::nanosleep(&raw const nap, std::ptr::null_mut()) };
        }
        0
    }
    let mut stack = vec![0_u128; 4_096];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
    // SAFETY: the child has a stack of its own, which outlives it, since the parent does not go on
    // before it has ended. It calls nothing but `nanosleep`, and touches only atomics.
    unsafe {
        let top = stack.as_mut_ptr_range().end.cast();
        let argument = std::ptr::from_ref(state).cast_mut().cast();
        let number = libc::clone(child, top, flags, argument);
        assert!(number > 0, "{}", std::io::Error::last_os_error());
        assert_eq!(
            libc::waitpid(number, std::ptr::null_mut(), libc::__WCLONE),
            number
        );
    }
}

#[derive(Default)]
struct Stuck {
    /// Whether the worker has armed its sources.
    has_armed: AtomicBool,
    /// Whether the worker is in its uninterruptible sleep.
    sleeps: AtomicBool,
    /// Whether it may end.
    done: AtomicBool,
}

/// The other worker has armed the sources in the kernel, and cannot be interrupted.
#[test]
fn drops_beside_a_stuck_worker_close_at_once() {
    const STREAMS: usize = 250;
    in_children(|backend| {
        allow_descriptors(2 * STREAMS as u64 + 100);
        let runtime = runtime_of(backend, 2);
        let state = Arc::new(Stuck::default());
        let (streams, receive) = std::sync::mpsc::channel();
        // This worker computes from now on: so only the other one waits in the kernel.
        let seen = state.clone();
        let dropping = runtime.handle().spawn_on_worker(1, move || async move {
            eventually("the other worker has armed", || seen.has_armed.load(SeqCst));
            let (near, far): (Vec<_>, Vec<StdUnixStream>) = receive.recv().unwrap();
            eventually("the other worker sleeps", || seen.sleeps.load(SeqCst));
            let sleeps: usize = near.into_iter().map(sleeps_of_drop).sum();
            let open = far.iter().filter(|far| !has_ended(*far)).count();
            seen.done.store(true, SeqCst);
            (sleeps, open)
        });
        let stuck = state.clone();
        let sleeping = runtime.handle().spawn_on_worker(0, move || async move {
            let pairs: (Vec<_>, Vec<_>) = (0..STREAMS).map(|_| pair()).unzip();
            for near in &pairs.0 {
                let mut near = near.clone();
                assert!(future::poll_once(near.read(&mut [0])).await.is_none());
            }
            // The worker waits meanwhile, and hands over what it has to arm.
            polder::time::sleep(Duration::from_millis(5)).await;
            streams.send(pairs).unwrap();
            stuck.has_armed.store(true, SeqCst);
            sleep_uninterruptibly(&stuck);
        });
        let (sleeps, open) = runtime.block_on(dropping);
        runtime.block_on(sleeping);
        assert_eq!(open, 0, "of {STREAMS} dropped streams {open} are open");
        let allowed = allowed_sleeps(backend, STREAMS);
        assert!(
            sleeps <= allowed,
            "{STREAMS} drops beside a worker that sleeps slept {sleeps} times"
        );
    });
}

/// A listener, a connection and a Unix stream, each waited for in a task of its own.
struct Held {
    address: std::net::SocketAddr,
    peer: std::net::TcpStream,
    far: StdUnixStream,
}

fn hold(runtime: &Runtime, is_local: bool) -> Held {
    runtime.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::net::TcpStream::connect(address).unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        peer.set_nonblocking(true).unwrap();
        let (mut near, far) = pair();
        let (sender, receiver) = async_channel::unbounded();
        let said = sender.clone();
        let accept = async move {
            assert!(future::poll_once(listener.accept()).await.is_none());
            said.send(()).await.unwrap();
            let _: (TcpStream, _) = listener.accept().await.unwrap();
        };
        let read = async move {
            for stream in [
                &mut near as &mut (dyn polder::io::AsyncRead + Send + Unpin),
                &mut accepted,
            ] {
                assert!(future::poll_once(stream.read(&mut [0])).await.is_none());
            }
            sender.send(()).await.unwrap();
            near.read(&mut [0]).await.unwrap();
            drop(accepted);
        };
        if is_local {
            polder::spawn_local(accept).detach();
            polder::spawn_local(read).detach();
        } else {
            polder::spawn(accept).detach();
            polder::spawn(read).detach();
        }
        for _ in 0..2 {
            receiver.recv().await.unwrap();
        }
        // The workers wait for them in the kernel meanwhile.
        polder::time::sleep(Duration::from_micros(500)).await;
        Held { address, peer, far }
    })
}

#[test]
fn a_dropped_runtime_has_closed_all_that_it_held() {
    in_children(|backend| {
        for workers in WORKERS {
            for round in 0..60 {
                let runtime = runtime_of(backend, workers);
                let held = hold(&runtime, round % 2 == 0);
                drop(runtime);
                let words = format!("with {workers} workers, round {round}");
                if let Err(error) = std::net::TcpListener::bind(held.address) {
                    panic!("{words}: the port is not free: {error}");
                }
                // (A busy system may deliver the end of a connection a moment later.)
                let until = Instant::now() + Duration::from_millis(20);
                while !has_ended(&held.peer) {
                    assert!(Instant::now() < until, "{words}: the connection is open");
                    thread::yield_now();
                }
                assert!(has_ended(&held.far), "{words}: the Unix stream is open");
            }
        }
    });
}

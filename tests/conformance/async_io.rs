//! `Async<T>`: any descriptor, any reader, any way of reading.

use std::future::{Future, pending, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polder::future::{or, poll_once, zip};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::{Async, Timer};

use crate::probe::{Count, std_accept_from};
use crate::support::{
    eventually, in_every_kernel_runtime, in_every_runtime, on_every_backend, runtime,
    with_every_runtime, with_every_runtime_alone,
};

fn poll_readable<T>(watched: &Async<T>, count: &Arc<Count>) -> Poll<io::Result<()>> {
    watched.poll_readable(&mut Context::from_waker(&count.waker()))
}

/// Returns a connection; the near end is an `Async`.
fn pair() -> (Async<TcpStream>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let far = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
    let near = std_accept_from(&listener, &far);
    (Async::new(near).expect("a socket can be waited for"), far)
}

/// Waits until the sent data has arrived: loopback may take its time.
async fn come<T>(watched: &Async<T>) {
    watched.readable().await.expect("it can be waited for");
}

#[test]
fn a_socket_is_accepted_and_echoed_through_async() {
    in_every_runtime(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let listener = Async::new(listener).expect("a socket can be waited for");
        let address = listener.get_ref().local_addr().expect("it has one");
        let server = polder::spawn(async move {
            let accepted = listener.read_with(|listener| listener.accept()).await;
            let mut stream = Async::new(accepted.expect("a connection").0).expect("a socket");
            let mut bytes = vec![0; 4_096];
            loop {
                let read = stream.read(&mut bytes).await.expect("the peer is there");
                if read == 0 {
                    return;
                }
                stream.write_all(&bytes[..read]).await.expect("it is there");
            }
        });
        let client = TcpStream::connect(address).expect("it listens");
        let client = Async::new(client).expect("a socket can be waited for");
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let writing = async {
            (&client).write_all(&sent).await.expect("the peer is there");
            let end = client.get_ref().shutdown(std::net::Shutdown::Write);
            end.expect("it is connected");
        };
        let mut back = Vec::new();
        let mut reader = &client;
        let (read, ()) = zip(reader.read_to_end(&mut back), writing).await;
        read.expect("the echo, to its end");
        assert!(back == sent, "{} bytes came back", back.len());
        server.await;
    });
}

/// Readable tells what is so now and not what was told.
#[test]
fn readable_says_current_state() {
    in_every_runtime(|_| async {
        let (near, mut far) = pair();
        let waiting = poll_once(near.readable()).await;
        assert!(waiting.is_none(), "there is nothing to read");
        far.write_all(b"abcd").expect("it is connected");
        // Readable on every call, since nothing was read.
        for _ in 0..300 {
            come(&near).await;
        }
        let mut two = [0; 2];
        near.get_ref().read_exact(&mut two).expect("there are four");
        come(&near).await; // Two are left.
        near.get_ref()
            .read_exact(&mut two)
            .expect("there were four");
        for _ in 0..5 {
            // It was not notified that no data is left.
            let waiting = poll_once(near.readable()).await;
            assert!(waiting.is_none(), "there is nothing to read any more");
        }
        let (waited, ()) = zip(near.readable(), async {
            Timer::after(Duration::from_millis(1)).await;
            far.write_all(b"e").expect("it is connected");
        })
        .await;
        waited.expect("it can be waited for");
        drop(far);
        near.get_ref().read_exact(&mut two[..1]).expect("one more");
        for _ in 0..3 {
            come(&near).await; // The end.
        }
        assert_eq!(near.get_ref().read(&mut two).expect("the end"), 0);
    });
}

#[test]
fn writable_waits_for_room_whoever_has_filled_it() {
    in_every_runtime(|_| async {
        let (near, mut far) = pair();
        near.writable().await.expect("there is room");
        let chunk = vec![1; 1 << 16];
        let mut written = 0;
        loop {
            match near.get_ref().write(&chunk) {
                Ok(count) => written += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    // The kernel may still make room by moving data to the other end.
                    match poll_once(near.writable()).await {
                        None => break,
                        Some(ready) => ready.expect("there is room"),
                    }
                }
            }
        }
        let reader = thread::spawn(move || {
            let mut left = written;
            let mut bytes = vec![0; 1 << 16];
            while left > 0 {
                left -= far.read(&mut bytes).expect("it is connected");
            }
            far
        });
        near.writable().await.expect("there is room again");
        drop(reader.join().expect("it reads all"));
    });
}

/// An operation that takes part and would block is called again for the rest.
///
/// The operation may take a message and wait again because it wants another one.
#[test]
fn operation_partly_done_called_for_rest() {
    in_every_runtime(|_| async {
        let (near, far) = (
            UdpSocket::bind("127.0.0.1:0").expect("a port"),
            UdpSocket::bind("127.0.0.1:0").expect("a port"),
        );
        far.connect(near.local_addr().expect("it has one"))
            .expect("loopback");
        let near = Async::new(near).expect("a socket can be waited for");
        assert!(poll_once(near.readable()).await.is_none());
        for number in 0..10 {
            far.send(&[number]).expect("loopback takes it");
        }
        let mut seen = Vec::new();
        near.read_with(|near| {
            let mut byte = [0];
            near.recv(&mut byte)?;
            seen.push(byte[0]);
            match byte[0] {
                9 => Ok(()),
                _ => Err(ErrorKind::WouldBlock.into()),
            }
        })
        .await
        .expect("the last one comes");
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    });
}

/// An operation that never wants what is there does not hold the loop.
///
/// An operation that always returns `WouldBlock` on a ready socket is called any number of times,
/// but does not keep others from running.
#[test]
fn operation_never_satisfied_frees_loop() {
    in_every_runtime(|_| async {
        let (near, mut far) = pair();
        far.write_all(b"x").expect("it is connected");
        come(&near).await;
        let endless = near.read_with(|_| io::Result::<()>::Err(ErrorKind::WouldBlock.into()));
        let done = polder::time::timeout(Duration::from_millis(20), endless).await;
        assert!(done.is_err(), "the timer had its turn");
        let near = Arc::new(near);
        let task = polder::spawn({
            let near = near.clone();
            async move {
                loop {
                    near.readable().await.expect("it is readable");
                }
            }
        });
        Timer::after(Duration::from_millis(5)).await;
        let end: Option<()> = task.cancel().await;
        assert!(end.is_none());
    });
}

/// An operation that never wants what is there rests.
///
/// And so it does not keep a processor busy.
#[test]
fn operation_never_satisfied_rests() {
    in_every_kernel_runtime(|_| async {
        let (near, mut far) = pair();
        far.write_all(b"x").expect("it is connected");
        come(&near).await;
        let (start, calls) = (Instant::now(), AtomicUsize::new(0));
        let endless = near.read_with(|_| {
            calls.fetch_add(1, Ordering::SeqCst);
            io::Result::<()>::Err(ErrorKind::WouldBlock.into())
        });
        let endless = polder::time::timeout(Duration::from_millis(30), endless).await;
        assert!(endless.is_err(), "it never wants it");
        let calls = calls.into_inner();
        // 32 calls, then a rest of at least a millisecond. One that spins has thousands a
        // millisecond.
        let limit = 32 * (2 + start.elapsed().as_millis() as usize);
        assert!((33..=limit).contains(&calls), "{calls} calls of {limit}");
    });
}

/// Operations that rest are called again without an event.
#[test]
fn operation_at_rest_retried_without_event() {
    in_every_kernel_runtime(|_| async {
        let (near, mut far) = pair();
        far.write_all(b"x").expect("it is connected");
        come(&near).await;
        let wants = AtomicBool::new(false);
        let never = near.read_with(|_| io::Result::<()>::Err(ErrorKind::WouldBlock.into()));
        let read = near.read_with(|mut near| {
            if wants.load(Ordering::SeqCst) {
                near.read(&mut [0; 8])
            } else {
                Err(ErrorKind::WouldBlock.into())
            }
        });
        let write = near.write_with(|mut near| {
            if wants.load(Ordering::SeqCst) {
                near.write(b"y")
            } else {
                Err(ErrorKind::WouldBlock.into())
            }
        });
        let later = async {
            Timer::after(Duration::from_millis(20)).await;
            wants.store(true, Ordering::SeqCst);
            pending::<()>().await;
        };
        let both = zip(read, write);
        // `never` takes the place of others that rest on the same descriptor.
        let done = or(async { Some(both.await) }, async {
            let (result, ()) = zip(never, later).await;
            result.expect("it never ends");
            None
        });
        let done = polder::time::timeout(Duration::from_secs(20), done).await;
        let (read, written) = done.expect("it rests for ever").expect("it is done");
        assert_eq!((read.expect("a byte"), written.expect("room")), (1, 1));
    });
}

/// A file that reports changes is polled by unblock.
///
/// As the documentation of `Async` says: a change is reported to one poll(2), which a thread makes.
#[cfg(target_os = "linux")]
#[test]
fn inotify_file_polled_by_unblock() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::fs::File;

    in_every_kernel_runtime(|backend| async move {
        let refused = File::open("/proc/self/mounts").and_then(Async::new);
        let error = refused.expect_err("it is a regular file");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("POLLPRI"), "{error}");

        // The kernel counts changes of the host's name, in any namespace.
        let name = File::open("/proc/sys/kernel/hostname").expect("Linux has it");
        let changes = polder::unblock(move || {
            let limit = Timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            poll(&mut [PollFd::new(&name, PollFlags::PRI)], Some(&limit))
        });
        let changed = thread::spawn(|| {
            let name = b"polder";
            // SAFETY: takes a number; then bytes with their length.
            unsafe {
                libc::unshare(libc::CLONE_NEWUTS) == 0
                    && libc::sethostname(name.as_ptr().cast(), name.len()) == 0
            }
        });
        if !changed.join().expect("it has no panic") {
            println!("only root can change the name, on {backend}");
            return;
        }
        assert_eq!(changes.await.expect("it can be polled"), 1, "no report");
    });
}

/// An operation that declines many messages comes to the last.
///
/// On edges an event is reported once, and an operation may leave many messages behind.
#[test]
fn operation_declining_messages_reaches_last() {
    const MESSAGES: usize = 200;
    in_every_kernel_runtime(|_| async {
        let (near, mut far) = pair();
        far.write_all(&[1; MESSAGES]).expect("it is connected");
        far.write_all(&[2]).expect("it is connected");
        let mut declined = 0;
        let read = near.read_with(|mut near| {
            let mut byte = [0];
            assert_eq!(near.read(&mut byte)?, 1);
            if byte == [2] {
                return Ok(());
            }
            declined += 1;
            Err(ErrorKind::WouldBlock.into())
        });
        let read = polder::time::timeout(Duration::from_secs(20), read).await;
        read.expect("it rests for ever")
            .expect("the last one comes");
        assert_eq!(declined, MESSAGES);
    });
}

/// An operation that never wants what is there ends the poll on a plain thread too.
///
/// The same on a plain thread, where there is no budget.
#[test]
fn operation_never_satisfied_ends_plain_thread_poll() {
    on_every_backend(|_| {
        let (near, mut far) = pair();
        far.write_all(b"x").expect("it is connected");
        futures_lite::future::block_on(come(&near));
        let count = Count::new();
        let waker = count.waker();
        let mut cx = Context::from_waker(&waker);
        let never = |_: &TcpStream| io::Result::<()>::Err(ErrorKind::WouldBlock.into());
        assert!(near.poll_read_with(&mut cx, never).is_pending());
        assert!(near.poll_write_with(&mut cx, never).is_pending());
        assert_eq!(count.woken(), 2, "each is tried again");
        let mut results = vec![Ok(()), Err(ErrorKind::Interrupted.into())];
        let interrupted = near.poll_read_with(&mut cx, |_| results.pop().unwrap());
        assert!(
            matches!(interrupted, Poll::Ready(Ok(()))),
            "it is called again"
        );
    });
}

/// Tasks that poll one source neither lose nor wake each other.
///
/// In async-io the tasks would wake each other forever.
#[test]
fn source_shared_by_tasks_loses_no_wake() {
    const TASKS: usize = 20;
    with_every_runtime_alone(|runtime, _| {
        let (near, mut far) = pair();
        let near = Arc::new(near);
        let polls = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (near, polls) = (near.clone(), polls.clone());
                runtime.spawn(poll_fn(move |cx| {
                    polls.fetch_add(1, Ordering::SeqCst);
                    near.poll_readable(cx)
                }))
            })
            .collect();
        for _ in 0..200 {
            runtime.run_once(Duration::ZERO);
        }
        assert_eq!(polls.load(Ordering::SeqCst), TASKS, "they wake each other");
        far.write_all(b"x").expect("it is connected");
        for task in tasks {
            runtime.block_on(task).expect("it can be waited for");
        }
        assert!(polls.load(Ordering::SeqCst) <= 3 * TASKS);
    });
}

#[test]
fn shared_reference_reads_and_writes_served() {
    in_every_runtime(|_| async {
        const TASKS: usize = 8;
        const BYTES: usize = 2_000;
        let (near, far) = pair();
        let (near, far) = (Arc::new(near), Arc::new(Async::new(far).expect("a socket")));
        let total = Arc::new(AtomicUsize::new(0));
        let mut tasks = polder::TaskSet::new();
        for _ in 0..TASKS {
            let (near, total) = (near.clone(), total.clone());
            tasks.spawn(async move {
                loop {
                    let mut bytes = [0; 7];
                    let read = (&*near).read(&mut bytes).await.expect("it is connected");
                    if read == 0 {
                        return;
                    }
                    total.fetch_add(read, Ordering::SeqCst);
                }
            });
        }
        let mut writers = polder::TaskSet::new();
        for _ in 0..TASKS {
            let far = far.clone();
            writers.spawn(async move {
                for _ in 0..BYTES {
                    (&*far).write_all(b"x").await.expect("it is connected");
                }
            });
        }
        while writers.join_next().await.is_some() {}
        let end = far.get_ref().shutdown(std::net::Shutdown::Write);
        end.expect("it is connected");
        while tasks.join_next().await.is_some() {}
        assert_eq!(total.load(Ordering::SeqCst), TASKS * BYTES);
    });
}

/// Tasks of two runtimes poll one source and one of the runtimes stands still.
///
/// Each task is served by the runtime that it waits in: the other runtime may not be driven for any
/// length of time.
#[test]
fn source_shared_by_running_and_idle_runtime() {
    on_every_backend(|backend| {
        let (driven, left) = (runtime(backend), runtime(backend));
        let (near, mut far) = pair();
        let near = Arc::new(near);
        let task = driven.spawn({
            let near = near.clone();
            poll_fn(move |cx| near.poll_readable(cx))
        });
        driven.run_once(Duration::ZERO);
        let other = left.spawn({
            let near = near.clone();
            poll_fn(move |cx| near.poll_readable(cx))
        });
        left.run_once(Duration::ZERO);
        far.write_all(b"x").expect("it is connected");
        driven.block_on(task).expect("it can be waited for");
        left.block_on(other).expect("it can be waited for");
    });
}

#[test]
fn wakers_that_polled_and_were_woken_are_let_go() {
    with_every_runtime(|runtime, _| {
        let (near, mut far) = pair();
        let counts: Vec<_> = (0..100).map(|_| Arc::<Count>::default()).collect();
        // The waits of a task belong to the runtime that runs it.
        runtime.block_on(async {
            for count in &counts {
                assert!(poll_readable(&near, count).is_pending());
                assert!(poll_readable(&near, count).is_pending());
            }
        });
        far.write_all(b"x").expect("it is connected");
        while counts.iter().any(|count| count.woken() == 0) {
            runtime.run_once(Duration::from_millis(10));
        }
        assert!(counts.iter().all(|count| count.woken() == 1), "twice");
        runtime.block_on(come(&near));
        near.get_ref().read_exact(&mut [0]).expect("one byte");
        // The next poll removes old wakers. (A thread that has called one drops it afterwards.)
        let next = Arc::<Count>::default();
        runtime.block_on(async { assert!(poll_readable(&near, &next).is_pending()) });
        let let_go = |count| eventually("no waker is left", || Arc::strong_count(count) == 1);
        counts.iter().for_each(let_go);
        // No waker is kept for polls that are ready.
        far.write_all(b"x").expect("it is connected");
        runtime.block_on(come(&near));
        for count in &counts {
            assert!(poll_readable(&near, count).is_ready());
            assert_eq!(Arc::strong_count(count), 1, "a waker is left");
        }
        drop(near);
        let_go(&next);
    });
}

#[test]
fn a_wait_that_is_given_up_leaves_no_waker() {
    in_every_runtime(|_| async {
        let (near, _far) = pair();
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut readable = near.readable();
        let operation = near.read_with(|near| {
            let mut near = near;
            near.read(&mut [0])
        });
        let mut operation = Box::pin(operation);
        assert!(Pin::new(&mut readable).poll(&mut cx).is_pending());
        assert!(operation.as_mut().poll(&mut cx).is_pending());
        drop(readable);
        drop(operation);
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1, "a waker is left");
    });
}

/// A poll cannot report that its waiter gave up; yet such wakers do not accumulate.
#[test]
fn pollers_that_gave_up_leave_few_wakers() {
    in_every_kernel_runtime(|_| async {
        let (near, _far) = pair();
        let counts: Vec<_> = (0..5_000).map(|_| Arc::<Count>::default()).collect();
        for count in &counts {
            let waker = Waker::from(count.clone());
            let (mut near, mut byte) = (&near, [0]);
            let mut read = near.read(&mut byte);
            let polled = Pin::new(&mut read).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        let left = (counts.iter()).filter(|count| Arc::strong_count(count) > 1);
        let left = left.count();
        assert!(left < 1_000, "{left} wakers of nobody are left");
    });
}

#[test]
fn an_async_value_moves_between_runtimes_and_out() {
    on_every_backend(|backend| {
        let (near, mut far) = pair();
        for _ in 0..2 {
            runtime(backend).block_on(async {
                assert!(poll_once(near.readable()).await.is_none());
            });
        }
        let near = Arc::new(near);
        let mut readable = near.clone().readable_owned();
        let first = runtime(backend).block_on(poll_once(&mut readable));
        assert!(first.is_none());
        far.write_all(b"x").expect("it is connected");
        runtime(backend)
            .block_on(readable)
            .expect("it can be waited for");
        let near = Arc::into_inner(near).expect("nobody else has it");
        let mut near: TcpStream = near.into_inner().expect("it is given back");
        near.read_exact(&mut [0]).expect("one byte");
        // Once more, for the last time: dropping the value closes it.
        let near = Async::new(near).expect("a socket can be waited for");
        runtime(backend).block_on(async {
            assert!(poll_once(near.readable()).await.is_none());
            drop(near);
            assert_eq!(far.read(&mut [0]).expect("the end"), 0);
        });
    });
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use rustix::pipe::pipe;

    fn async_pipe() -> (Async<File>, Async<File>) {
        let (reader, writer) = pipe().expect("two descriptors");
        let new = |end: OwnedFd| Async::new(File::from(end)).expect("a pipe can be waited for");
        (new(reader), new(writer))
    }

    #[test]
    fn a_pipe_is_read_and_written_to_its_end() {
        in_every_runtime(|_| async {
            let (mut reader, mut writer) = async_pipe();
            let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 253) as u8).collect();
            let expected = sent.clone();
            let task = polder::spawn(async move {
                for chunk in sent.chunks(9_973) {
                    writer.write_all(chunk).await.expect("it is read");
                }
            });
            let mut all = Vec::new();
            let read = reader.read_to_end(&mut all).await;
            read.expect("to the end");
            assert!(all == expected, "{} bytes came", all.len());
            task.await;
        });
    }

    #[test]
    fn pipe_end_wakes_waiters() {
        in_every_runtime(|_| async {
            let (mut reader, writer) = async_pipe();
            assert!(poll_once(reader.readable()).await.is_none());
            let (read, ()) = zip(reader.read(&mut [0; 4]), async { drop(writer) }).await;
            assert_eq!(read.expect("the end"), 0);

            let (reader, mut writer) = async_pipe();
            let chunk = vec![0; 1 << 16];
            while poll_once(writer.write(&chunk)).await.is_some() {}
            let (written, ()) = zip(writer.write(&chunk), async { drop(reader) }).await;
            let error = written.expect_err("nobody reads");
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        });
    }

    /// A datagram socket of the standard library's works.
    #[test]
    fn std_datagram_socket_works() {
        in_every_runtime(|_| async {
            let (near, far) = UnixDatagram::pair().expect("two sockets");
            let (near, far) = (
                Async::new(near).expect("a socket"),
                Async::new(far).expect("a socket"),
            );
            let sending = async {
                for number in 0..1_000_u32 {
                    let bytes = number.to_le_bytes();
                    let sent = far.write_with(|far| far.send(&bytes)).await;
                    assert_eq!(sent.expect("it is received"), 4);
                }
            };
            let receiving = async {
                for number in 0..1_000_u32 {
                    let mut bytes = [0; 8];
                    let read = near.read_with(|near| near.recv(&mut bytes)).await;
                    assert_eq!(read.expect("it is sent"), 4);
                    assert_eq!(bytes[..4], number.to_le_bytes());
                }
            };
            zip(sending, receiving).await;
        });
    }

    /// A regular file is an error that points to unblock.
    #[test]
    fn regular_file_error_points_to_unblock() {
        in_every_runtime(|_| async {
            for path in ["Cargo.toml", "src"] {
                let open = || File::open(path).expect("the tests run at the crate's root");
                for result in [Async::new(open()), Async::new_nonblocking(open())] {
                    let error = result.expect_err("it cannot be waited for");
                    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                    let words = error.to_string();
                    assert!(words.contains("unblock"), "{words}");
                }
            }
            let mut text = String::new();
            let mut file = polder::io::Unblock::new(File::open("Cargo.toml").expect("a file"));
            let read = file.read_to_string(&mut text).await;
            read.expect("that is the way");
            assert!(text.contains("polder"));
        });
    }

    /// Some backends cannot wait for this file, and it is always ready.
    #[test]
    fn what_is_always_ready_never_hangs() {
        in_every_runtime(|_| async {
            let mut zero = Async::new(File::open("/dev/zero").expect("it is everywhere"))
                .expect("it is no regular file");
            come(&zero).await;
            let mut bytes = [1; 16];
            zero.read_exact(&mut bytes).await.expect("nothing but");
            assert_eq!(bytes, [0; 16]);
            let null = File::create("/dev/null").expect("it is everywhere");
            let mut null = Async::new(null).expect("it is no regular file");
            null.writable().await.expect("always");
            null.write_all(&bytes).await.expect("it takes all");
        });
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    mod linux {
        use super::*;
        use rustix::fs::inotify;
        use rustix::time::{
            Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
            timerfd_settime,
        };

        #[test]
        fn an_inotify_tells_of_files() {
            in_every_runtime(|_| async {
                let directory = tempfile::tempdir().expect("a directory of our own");
                let watch = inotify::init(inotify::CreateFlags::CLOEXEC).expect("a descriptor");
                inotify::add_watch(&watch, directory.path(), inotify::WatchFlags::CREATE)
                    .expect("it can be watched");
                let mut watch = Async::new(File::from(watch)).expect("it can be waited for");
                let mut event = [0; 512];
                assert!(poll_once(watch.read(&mut event)).await.is_none());
                for name in ["first", "second"] {
                    let path = directory.path().join(name);
                    let writing = polder::unblock(move || std::fs::write(path, "x"));
                    let (read, written) = zip(watch.read(&mut event), writing).await;
                    written.expect("a file is made");
                    // A header of 16 bytes, followed by the name.
                    let bytes = &event[16..read.expect("an event")];
                    assert!(bytes.starts_with(name.as_bytes()), "{bytes:?}");
                }
            });
        }

        /// A read gets one packet, regardless of the requested size: a short read does not mean
        /// that nothing is left.
        #[test]
        fn packets_of_a_pipe_are_all_read() {
            use rustix::pipe::{PipeFlags, pipe_with};

            in_every_runtime(|_| async {
                let (reader, mut writer) = pipe_with(PipeFlags::DIRECT)
                    .map(|(reader, writer)| {
                        let reader = Async::new(File::from(reader)).expect("it can be waited for");
                        (reader, File::from(writer))
                    })
                    .expect("two descriptors");
                let mut reader = reader;
                let mut bytes = [0; 64];
                // A pipe holds 16 packets.
                for round in 1..=12_usize {
                    assert!(poll_once(reader.read(&mut bytes)).await.is_none());
                    for packet in 1..=round {
                        std::io::Write::write_all(&mut writer, &vec![7; packet]).expect("room");
                    }
                    for packet in 1..=round {
                        let read = reader.read(&mut bytes).await;
                        assert_eq!(read.expect("it is there"), packet);
                    }
                }
            });
        }

        #[test]
        fn a_timerfd_ticks() {
            in_every_runtime(|_| async {
                let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
                let timer = Async::new(timer.expect("a descriptor")).expect("it can be waited for");
                let period = Timespec {
                    tv_sec: 0,
                    tv_nsec: 2_000_000,
                };
                let times = Itimerspec {
                    it_interval: period,
                    it_value: period,
                };
                // Taken before the timer is set, which is when its first period begins.
                let start = std::time::Instant::now();
                timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &times)
                    .expect("it is set");
                let mut ticks = 0;
                while ticks < 10 {
                    let mut count = [0; 8];
                    let read = timer
                        .read_with(|it| Ok(rustix::io::read(it, &mut count)?))
                        .await;
                    assert_eq!(read.expect("it ticks"), 8);
                    ticks += u64::from_ne_bytes(count);
                }
                let elapsed = start.elapsed();
                assert!(elapsed >= Duration::from_millis(20), "{ticks}: {elapsed:?}");
            });
        }
    }
}

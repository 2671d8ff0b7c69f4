//! Rules 29 and 30: which waiters are woken, and which wakers are kept.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::time::timeout;
use polder::{Backend, Runtime};

use super::{
    Count, StdStream, Stream, assert_no_wake_up, both, connection, fill, fill_up, pair, poll_read,
    poll_write, reset, some_turns, with_peer,
};
use crate::support::{
    LIMIT, a_turn, in_every_runtime, on_every_backend, runtime, with_every_runtime, within,
};

/// Far longer than any wake needs, and shorter than the rule's own deadline, so that a lost wake is
/// reported by name.
const SOON: Duration = Duration::from_secs(10);

/// Reads the available bytes, without waiting.
fn drain(stream: &mut StdStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 18];
    let mut drained = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        drained += read;
    }
    drained
}

/// A full send buffer suspends the writer and draining wakes it.
#[test]
fn full_send_buffer_suspends_until_drained() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        for _ in 0..3 {
            let count = Count::new();
            let written = fill_up(&mut near, &count).await;
            assert!(written > 0);
            some_turns().await;
            assert_eq!(count.woken(), 0, "there is no room yet");
            assert_eq!(count.kept(), 1);
            let mut drained = 0;
            while count.woken() == 0 {
                drained += far.drain().await;
                a_turn().await;
            }
            assert_eq!(count.kept(), 0);
            let Poll::Ready(Ok(more)) = poll_write(&mut near, &count, b"more") else {
                panic!("there is room now");
            };
            while drained < written + more {
                drained += far.drain().await;
                a_turn().await;
            }
            assert_eq!(drained, written + more);
        }
    });
}

/// A writer that is dropped in the middle leaves no waker.
#[test]
fn dropped_writer_leaves_no_waker() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        let count = Count::new();
        fill_up(&mut near, &count).await;

        // A clone and a half that wait and are dropped.
        let mut clone = near.clone();
        let second = Count::new();
        assert!(poll_write(&mut clone, &second, b"x").is_pending());
        assert_eq!((count.kept(), second.kept()), (1, 1));
        drop(clone);
        assert_eq!((count.kept(), second.kept()), (1, 0));
        let (reader, mut writer) = near.clone().into_split();
        assert!(poll_write(&mut writer, &second, b"x").is_pending());
        assert_eq!(second.kept(), 1);
        drop(reader.reunite(writer).unwrap());
        assert_eq!(second.kept(), 0);

        // Cancelled writes of one handle leave its latest waker, not one each, and none after the
        // handle is dropped.
        let mut counts = vec![count];
        for _ in 0..5 {
            let count = Count::new();
            assert!(poll_write(&mut near, &count, b"x").is_pending());
            counts.push(count);
        }
        assert_eq!(counts.iter().map(|count| count.kept()).sum::<usize>(), 1);
        drop(near);
        assert_eq!(counts.iter().map(|count| count.kept()).sum::<usize>(), 0);
        far.drain().await;
        some_turns().await;
        assert!(counts.iter().all(|count| count.woken() == 0));
    });
}

#[test]
fn a_reader_that_is_dropped_leaves_no_waker() {
    in_every_runtime(|_| async {
        let (mut near, _far) = with_peer().await;
        let (first, second, third) = (Count::new(), Count::new(), Count::new());
        let mut clone = near.clone();
        let (mut half, writer) = near.clone().into_split();
        assert!(poll_read(&mut near, &first, &mut [0]).is_pending());
        assert!(poll_read(&mut clone, &second, &mut [0]).is_pending());
        assert!(poll_read(&mut half, &third, &mut [0]).is_pending());
        // Dropped in the order in which they registered, the first one first.
        drop(near);
        assert_eq!((first.kept(), second.kept(), third.kept()), (0, 1, 1));
        drop(half);
        assert_eq!((first.kept(), second.kept(), third.kept()), (0, 1, 0));
        drop(clone);
        drop(writer);
        assert_eq!((first.kept(), second.kept(), third.kept()), (0, 0, 0));
    });
}

/// A clone and its original that both wait are both woken.
#[test]
fn clone_and_original_both_woken() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        let mut clone = near.clone();
        let (mut half, _writer) = near.clone().into_split();
        for _ in 0..3 {
            let counts = [Count::new(), Count::new(), Count::new()];
            assert!(poll_read(&mut near, &counts[0], &mut [0]).is_pending());
            assert!(poll_read(&mut clone, &counts[1], &mut [0]).is_pending());
            assert!(poll_read(&mut half, &counts[2], &mut [0]).is_pending());
            far.send(b"3by").await;
            for count in &counts {
                count.until_woken().await;
                count.until_let_go().await;
            }
            // One byte for each.
            near.read_exact(&mut [0]).await.unwrap();
            clone.read_exact(&mut [0]).await.unwrap();
            half.read_exact(&mut [0]).await.unwrap();
        }
    });
}

#[test]
fn writers_in_two_clones_are_both_woken() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        let mut clone = near.clone();
        let (first, second) = (Count::new(), Count::new());
        fill_up(&mut near, &first).await;
        assert!(poll_write(&mut clone, &second, b"x").is_pending());
        while first.woken() == 0 || second.woken() == 0 {
            far.drain().await;
            a_turn().await;
        }
    });
}

#[test]
fn last_of_handles_wakers_is_woken() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        // Alone in the inline slot, and in the list behind another waiter.
        for behind in [false, true] {
            let mut other = near.clone();
            let others = Count::new();
            if behind {
                assert!(poll_read(&mut other, &others, &mut [0]).is_pending());
            }
            let counts: Vec<_> = (0..5).map(|_| Count::new()).collect();
            for count in &counts {
                assert!(poll_read(&mut near, count, &mut [0]).is_pending());
            }
            far.send(b"x").await;
            counts[4].until_woken().await;
            for count in &counts[..4] {
                assert_eq!((count.woken(), count.kept()), (0, 0));
            }
            assert_eq!(others.woken(), usize::from(behind));
            near.read_exact(&mut [0]).await.unwrap();
        }
    });
}

/// A handle that goes does not take another ones wake.
#[test]
fn dropped_handle_takes_no_other_wake() {
    in_every_runtime(|_| async {
        // `goes` is the handle that is dropped; all three wait, in the same order.
        for goes in 0..3 {
            let (near, mut far) = with_peer().await;
            let mut handles = vec![near.clone(), near.clone(), near];
            let counts = [Count::new(), Count::new(), Count::new()];
            for (handle, count) in handles.iter_mut().zip(&counts) {
                assert!(poll_read(handle, count, &mut [0]).is_pending());
            }
            drop(handles.remove(goes));
            // The remaining waiters may register again, with the same waker or another.
            let mut left: Vec<_> = (0..3).filter(|&i| i != goes).collect();
            assert!(poll_read(&mut handles[0], &counts[left[0]], &mut [0]).is_pending());
            far.send(b"x").await;
            while let Some(index) = left.pop() {
                counts[index].until_woken().await;
            }
            assert_eq!((counts[goes].woken(), counts[goes].kept()), (0, 0));
            for count in &counts {
                count.until_let_go().await;
            }
        }
    });
}

/// A reader and a writer of one handle are woken each by its own.
///
/// The directions of one handle are separate: an event of one direction does not wake the other.
#[test]
fn reader_and_writer_of_handle_woken_apart() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        let (reads, writes) = (Count::new(), Count::new());
        assert!(poll_read(&mut near, &reads, &mut [0]).is_pending());
        fill_up(&mut near, &writes).await;
        some_turns().await;
        far.send(b"x").await;
        reads.until_woken().await;
        near.read_exact(&mut [0]).await.unwrap();
        let reads = Count::new();
        assert!(poll_read(&mut near, &reads, &mut [0]).is_pending());
        while writes.woken() == 0 {
            far.drain().await;
            a_turn().await;
        }
        // That event was room to write. The reader still waits, and is still woken.
        near.write_all(b"y").await.unwrap();
        far.send(b"x").await;
        reads.until_woken().await;
    });
}

/// A reader in another task outlives the handle that it was cloned from.
///
/// A stream cannot be dropped while it is borrowed for reading, and a clone keeps it open, so
/// nothing hangs. The auto traits of futures and halves are checked at compile time.
#[test]
fn reader_outlives_cloned_handle() {
    in_every_runtime(|_| async {
        let (near, mut far) = connection().await;
        let mut clone = near.clone();
        let reader = polder::spawn(async move {
            let mut text = String::new();
            clone.read_to_string(&mut text).await.unwrap();
            text
        });
        some_turns().await;
        drop(near);
        some_turns().await;
        far.write_all(b"still open").await.unwrap();
        drop(far);
        assert_eq!(reader.await, "still open");
    });
}

/// A stream moves between threads with different runtimes.
///
/// Passes a stream, in the middle of a wait, from runtime to runtime, each on its own thread, for
/// every pair of backends, and to a thread without a runtime.
#[test]
fn stream_moves_between_runtimes() {
    /// Waits on `stream` in `runtime`, without getting anything.
    fn wait_in(runtime: Option<&Runtime>, stream: &mut Stream) {
        let wait = async {
            let mut byte = [0];
            assert!(poll_once(stream.read(&mut byte)).await.is_none());
            fill(stream, &Count::new());
        };
        match runtime {
            Some(runtime) => runtime.block_on(wait),
            None => futures_lite::future::block_on(wait),
        }
    }
    let mut worlds: Vec<_> = Backend::available().into_iter().map(Some).collect();
    worlds.push(None);
    for from in worlds.clone() {
        for to in worlds.clone() {
            let what = format!("from {from:?} to {to:?} and back");
            within(LIMIT, &what, move || {
                let (mut near, mut far) = pair();
                let runtime_from = from.map(runtime);
                wait_in(runtime_from.as_ref(), &mut near);
                // The first runtime stays alive, and is not driven.
                let thread = thread::spawn(move || {
                    let runtime = to.map(runtime);
                    drain(&mut far);
                    far.write_all(b"there").unwrap();
                    let rule = async {
                        let mut bytes = [0; 5];
                        let read = near.read_exact(&mut bytes);
                        timeout(SOON, read).await.expect("it is woken").unwrap();
                        let write = near.write(b"x");
                        timeout(SOON, write).await.expect("it is woken").unwrap();
                    };
                    match &runtime {
                        Some(runtime) => runtime.block_on(rule),
                        None => futures_lite::future::block_on(rule),
                    }
                    wait_in(runtime.as_ref(), &mut near);
                    (near, far)
                });
                // Back again; this time the runtime in which it waited is dropped.
                let (mut near, mut far) = thread.join().unwrap();
                drain(&mut far);
                far.write_all(b"back").unwrap();
                let rule = async {
                    let mut bytes = [0; 4];
                    near.read_exact(&mut bytes).await.unwrap();
                    near.write_all(b"x").await.unwrap();
                };
                match &runtime_from {
                    Some(runtime) => runtime.block_on(rule),
                    None => futures_lite::future::block_on(rule),
                }
            });
        }
    }
}

/// Reader and writer of one stream in two runtimes at the same time, both moving all the time.
#[test]
fn halves_in_two_runtimes_lose_no_wake() {
    on_every_backend(|backend| {
        let (near, far) = both();
        let total = crate::support::sized(backend, 8 << 20);
        let (mut reader, mut writer) = near.into_split();
        let echo = thread::spawn(move || {
            let (mut reader, mut writer) = far.into_split();
            runtime(backend)
                .block_on(polder::io::copy(&mut reader, &mut writer))
                .unwrap()
        });
        let writer = thread::spawn(move || {
            let piece = [b'x'; 10_000];
            let mut left = total;
            while left > 0 {
                // A new runtime for every few writes.
                runtime(backend).block_on(async {
                    for _ in 0..100 {
                        let length = piece.len().min(left);
                        writer.write_all(&piece[..length]).await.unwrap();
                        left -= length;
                    }
                });
            }
        });
        let mut buffer = vec![0; 32 * 1024];
        let mut got = 0;
        let mut end = false;
        while !end {
            runtime(backend).block_on(async {
                for _ in 0..100 {
                    match reader.read(&mut buffer).await.unwrap() {
                        0 => {
                            end = true;
                            return;
                        }
                        read => got += read,
                    }
                }
            });
        }
        assert_eq!(got, total);
        writer.join().unwrap();
        assert_eq!(echo.join().unwrap(), total as u64);
    });
}

/// Reads a byte in another runtime, on a thread of its own, and calls `waits` once the read waits.
fn read_elsewhere(
    backend: Backend,
    mut stream: Stream,
    waits: impl FnOnce() + Send + 'static,
) -> JoinHandle<usize> {
    thread::spawn(move || {
        runtime(backend).block_on(async {
            let mut byte = [0];
            let mut read = stream.read(&mut byte);
            assert!(poll_once(&mut read).await.is_none());
            waits();
            let read = timeout(SOON, read).await;
            read.expect("it is woken, whatever the other runtime does")
                .unwrap()
        })
    })
}

/// A read given up in an idle runtime holds no clone back.
///
/// A waiter that a clone left in an idle runtime does not make other clones wait for that runtime.
#[test]
fn read_abandoned_in_idle_runtime_frees_clone() {
    with_every_runtime(|idle, backend| {
        let (mut near, mut far) = pair();
        let clone = near.clone();
        idle.block_on(async {
            assert!(poll_once(near.read(&mut [0])).await.is_none());
        });
        let reader = read_elsewhere(backend, clone, move || far.write_all(b"x").unwrap());
        reader.join().unwrap();
        drop((idle, near));
    });
}

/// A reader in an idle runtime holds no writer back.
///
/// The same with a waiter that was not cancelled: it waits until its runtime is driven again, and
/// no other waiter has to.
#[test]
fn reader_in_idle_runtime_frees_writer() {
    with_every_runtime(|idle, backend| {
        let (near, mut far) = pair();
        let (mut reader, mut writer) = near.into_split();
        let task = idle.spawn(async move { reader.read_exact(&mut [0]).await });
        idle.block_on(some_turns());
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            runtime(backend).block_on(async {
                fill(&mut writer, &Count::new());
                sender.send(()).unwrap();
                timeout(SOON, writer.write(b"x"))
                    .await
                    .expect("it is woken, though the reader's runtime sleeps")
                    .unwrap();
            });
            writer
        });
        receiver.recv().unwrap();
        while !thread.is_finished() {
            drain(&mut far);
            thread::sleep(Duration::from_millis(1));
        }
        let _writer = thread.join().unwrap();
        far.set_nonblocking(false).unwrap();
        far.write_all(b"x").unwrap();
        idle.block_on(task).unwrap();
    });
}

/// A wait goes on when another waiter's runtime falls idle.
///
/// Both wait at the same time, in two driven runtimes; then one runtime is no longer driven.
#[test]
fn wait_survives_other_runtimes_idling() {
    with_every_runtime(|first, backend| {
        let (mut near, mut far) = pair();
        let clone = near.clone();
        let (sender, receiver) = mpsc::channel();
        let reader = first.block_on(async {
            assert!(poll_once(near.read(&mut [0])).await.is_none());
            let reader = read_elsewhere(backend, clone, move || sender.send(()).unwrap());
            receiver.recv().unwrap();
            reader
        });
        far.write_all(b"x").unwrap();
        reader.join().unwrap();

        // The first one, driven again, is woken by the next data.
        let task = first.spawn(async move { near.read(&mut [0]).await });
        first.block_on(some_turns());
        far.write_all(b"y").unwrap();
        assert_eq!(first.block_on(timeout(SOON, task)).unwrap().unwrap(), 1);
    });
}

/// Another thread closes streams that are registered with this thread's reactor, at any moment, and
/// their descriptor numbers are reused immediately; the other waiters are not disturbed.
#[test]
fn close_elsewhere_disturbs_no_waiter() {
    on_every_backend(|backend| {
        let rounds = crate::support::sized(backend, 200);
        let (sender, receiver) = mpsc::channel::<(Stream, StdStream)>();
        let closer = thread::spawn(move || {
            for (number, (near, mut far)) in receiver.into_iter().enumerate() {
                match number % 3 {
                    0 => far.write_all(b"late").unwrap(),
                    1 => reset(far),
                    _ => {}
                }
                drop(near);
            }
        });
        runtime(backend).block_on(async move {
            let (mut quiet, mut far_quiet) = both();
            let waits = polder::spawn(async move { quiet.read(&mut [0]).await });
            for _ in 0..rounds {
                let (mut near, far) = pair();
                assert!(poll_once(near.read(&mut [0])).await.is_none());
                sender.send((near, far)).unwrap();
                let (mut near, mut far) = pair();
                let mut byte = [0];
                let mut read = near.read(&mut byte);
                assert!(poll_once(&mut read).await.is_none());
                far.write_all(b"x").unwrap();
                assert_eq!(read.await.unwrap(), 1);
            }
            assert!(!waits.is_finished());
            far_quiet.write_all(b"x").await.unwrap();
            assert_eq!(waits.await.unwrap(), 1);
        });
        closer.join().unwrap();
    });
}

/// The runtime that a stream is registered with ends, while a clone waits in a task of another
/// runtime.
#[test]
fn ending_runtime_keeps_others_waits() {
    with_every_runtime(|ending, backend| {
        let (mut near, mut far) = pair();
        let clone = near.clone();
        // Registered with the ending runtime, with a waiter there.
        ending.block_on(async {
            assert!(poll_once(near.read(&mut [0])).await.is_none());
        });
        let (sender, receiver) = mpsc::channel();
        let reader = read_elsewhere(backend, clone, move || sender.send(()).unwrap());
        receiver.recv().unwrap();
        drop(ending);
        far.write_all(b"x").unwrap();
        assert_eq!(reader.join().unwrap(), 1);
        drop(near);
    });
}

/// A stream that is always ready lets others run and loses no wake.
///
/// A poll makes at most 128 reads; then other tasks run, and nothing is lost.
#[test]
fn always_ready_stream_lets_others_run() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        far.send(&[b'x'; 1000]).await;
        let count = Count::new();
        let mut read = 0;
        while read < 1000 {
            match poll_read(&mut near, &count, &mut [0]) {
                Poll::Ready(result) => read += result.unwrap(),
                Poll::Pending => {
                    // Either nothing had arrived yet, or this poll's budget is used up.
                    count.until_woken().await;
                    a_turn().await;
                }
            }
        }
        assert!(count.woken() > 0, "1,000 reads did not fit into one poll");
    });
}

/// Room is reported for each message that drains by a Unix socket, and for each that is
/// acknowledged by kqueue.
#[test]
fn sending_wakes_nobody_for_nothing() {
    with_every_runtime(|runtime, _| {
        let (mut near, mut far) = pair();
        let mut bytes = vec![0; 1 << 20];
        // Registered, at least for reading.
        runtime.block_on(async {
            assert!(poll_once(near.read(&mut bytes)).await.is_none());
        });
        for after_a_write_that_waited in [false, true] {
            if after_a_write_that_waited {
                far.set_nonblocking(true).unwrap();
                runtime.block_on(async {
                    let count = Count::new();
                    fill(&mut near, &count);
                    while count.woken() == 0 {
                        while far.read(&mut bytes).is_ok() {}
                        polder::future::yield_now().await;
                    }
                    while far.read(&mut bytes).is_ok() {}
                });
                far.set_nonblocking(false).unwrap();
            }
            assert_no_wake_up(&runtime, || {
                let count = Count::new();
                assert!(poll_write(&mut near, &count, b"message").is_ready());
                far.read_exact(&mut bytes[..7]).unwrap();
            });
        }
    });
}

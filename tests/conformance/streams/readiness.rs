//! Rule 29a: waiting for readiness, and `try_*` operations, which do not wait.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Write};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;

use polder::future::{poll_once, zip};
use polder::io::AsyncReadExt;
use polder::poller::{Interest, Poller};

use super::{
    Count, Random, Stream, connection, pair, poll_future, poll_read, some_turns, with_peer,
};
use crate::peer::beside;
use crate::support::{in_every_runtime, is_in_world, on_every_backend, runtime, sized, until};

const BOTH: [Interest; 2] = [Interest::READABLE, Interest::WRITABLE];

/// Asserts that the result is `WouldBlock`.
#[track_caller]
fn assert_would_block<T: std::fmt::Debug>(result: std::io::Result<T>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Writes until there is no room. Returns the number of bytes.
fn try_fill(stream: &Stream) -> usize {
    let chunk = vec![b'x'; 256 * 1024];
    let mut written = 0;
    loop {
        match stream.try_write(&chunk) {
            Ok(length) => written += length,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return written;
            }
        }
    }
}

/// Like [`fill_up`](super::fill_up): until no more fits even after a while.
async fn try_fill_up(stream: &Stream) -> usize {
    let mut written = try_fill(stream);
    while is_in_world() {
        some_turns().await;
        match try_fill(stream) {
            0 => break,
            more => written += more,
        }
    }
    written
}

#[test]
fn a_wait_that_has_seen_the_peers_end_says_so() {
    in_every_runtime(|backend| async move {
        let has = Poller::new(backend).map(|poller| poller.capabilities());
        let (near, mut far) = with_peer().await;
        assert_would_block(near.try_read(&mut [0; 8]));
        far.send(b"hello").await;
        near.readable().await.unwrap();
        assert!(!near.is_read_closed());
        assert_eq!(near.try_read(&mut [0; 8]).unwrap(), 5);
        assert_would_block(near.try_read(&mut [0; 8]));
        far.end().await;
        near.readable().await.unwrap();
        assert_eq!(near.is_read_closed(), has.map_or(true, |has| has.hints));
        assert_eq!(near.try_read(&mut [0; 8]).unwrap(), 0);
    });
}

/// The kernel reports edges, although no task waits.
#[test]
fn the_peers_end_is_seen_while_bytes_are_left() {
    in_every_runtime(|backend| async move {
        let has = Poller::new(backend).map(|poller| poller.capabilities());
        if has.is_ok_and(|has| !has.edge || !has.hints) {
            return;
        }
        let (near, mut far) = with_peer().await;
        assert_would_block(near.try_read(&mut [0; 8]));
        let count = Count::new();
        assert!(poll_future(&mut pin!(near.readable()), &count).is_pending());
        far.send(b"hello").await;
        far.end().await;
        until("the end is seen", || near.is_read_closed()).await;
        assert_eq!(near.try_read(&mut [0; 8]).unwrap(), 5);
        assert_eq!(near.try_read(&mut [0; 8]).unwrap(), 0);
    });
}

/// A try that would block makes the next wait wait for an event.
#[test]
fn try_would_block_makes_wait_sleep() {
    in_every_runtime(|_| async {
        let (near, mut far) = with_peer().await;
        let mut bytes = [0; 8];
        assert_would_block(near.try_read(&mut bytes));
        for _ in 0..3 {
            let count = Count::new();
            let mut readable = Box::pin(near.readable());
            assert!(poll_future(&mut readable, &count).is_pending());
            some_turns().await;
            assert_eq!(count.woken(), 0, "nothing has come");
            far.send(b"hello").await;
            count.until_woken().await;
            readable.await.unwrap();
            assert_eq!(near.try_read(&mut bytes).unwrap(), 5);
            assert_would_block(near.try_read(&mut bytes));
        }
        far.end().await;
        near.readable().await.unwrap();
        assert_eq!(near.try_read(&mut bytes).unwrap(), 0, "the end is read");
    });
}

/// A `try_` function asks the kernel, whichever events have come.
#[test]
fn try_asks_kernel_despite_events() {
    in_every_runtime(|_| async {
        let (near, mut far) = with_peer().await;
        let mut bytes = [0; 8];
        for _ in 0..3 {
            // Without a waiter, no event reports the new data.
            assert_would_block(near.try_read(&mut bytes));
            far.send(b"hello").await;
            until("the bytes arrive", || near.try_read(&mut bytes).is_ok()).await;
        }
    });
}

/// A full send buffer makes tries fail and draining makes it writable.
#[test]
fn full_send_buffer_fails_try_drain_writable() {
    in_every_runtime(|backend| async move {
        let (near, mut far) = with_peer().await;
        let mut buffer = vec![0; 1 << 18];
        for _ in 0..3 {
            let mut left = try_fill_up(&near).await;
            assert!(left > 0);
            let (writable, either) = loop {
                // The kernel may still move bytes to the far end, which makes room; late on a busy
                // system.
                match near.try_write_vectored(&[IoSlice::new(b"x")]) {
                    Ok(more) => {
                        left += more + try_fill_up(&near).await;
                        continue;
                    }
                    blocks => assert_would_block(blocks),
                }
                let count = Count::new();
                let mut writable = Box::pin(near.writable());
                let mut either = Box::pin(near.ready(BOTH[0] | BOTH[1]));
                assert_would_block(near.try_read(&mut [0]));
                assert!(poll_future(&mut writable, &count).is_pending());
                assert!(poll_future(&mut either, &count).is_pending());
                some_turns().await;
                match count.woken() {
                    0 => break (writable, either),
                    _ => {
                        let more = try_fill_up(&near).await;
                        // (A ring may report earlier room late: rule 1.)
                        let is_late = backend.name() == "io-uring";
                        assert!(more > 0 || is_late, "there is no room yet");
                        left += more;
                    }
                }
            };
            while left > 0 {
                left -= far.read(&mut buffer).await.unwrap();
            }
            writable.await.unwrap();
            assert_eq!(either.await.unwrap(), Interest::WRITABLE);
            let written = near.try_write_vectored(&[IoSlice::new(b"o"), IoSlice::new(b"ne")]);
            assert_eq!(written.unwrap(), 3);
            far.receive(&mut buffer[..3]).await;
        }
    });
}

/// All who wait for one direction are woken and a read takes nobody's wake.
#[test]
fn waiters_of_direction_all_woken() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        for _ in 0..3 {
            assert_would_block(near.try_read(&mut [0]));
            let counts = [(); 4].map(|()| Count::new());
            let clone = near.clone();
            let mut first = Box::pin(clone.readable());
            let mut second = Box::pin(clone.readable());
            let mut third = Box::pin(clone.ready(Interest::READABLE));
            assert!(poll_future(&mut first, &counts[0]).is_pending());
            assert!(poll_future(&mut second, &counts[1]).is_pending());
            assert!(poll_future(&mut third, &counts[2]).is_pending());
            assert!(poll_read(&mut near, &counts[3], &mut [0]).is_pending());
            far.send(b"hello").await;
            for count in &counts {
                count.until_woken().await;
            }
            near.read_exact(&mut [0; 5]).await.unwrap();
            assert_would_block(near.try_read(&mut [0]));
            // All data was taken before they polled: so they wait for more, and are woken.
            assert!(poll_future(&mut first, &counts[0]).is_pending());
            far.send(b"more").await;
            zip(first, second).await.0.unwrap();
            assert_eq!(third.await.unwrap(), Interest::READABLE);
            near.read_exact(&mut [0; 4]).await.unwrap();
        }
    });
}

/// A handle remembers the last task that polls and its clones theirs.
#[test]
fn handle_keeps_last_poller_clones_theirs() {
    in_every_runtime(|_| async {
        let (near, mut far) = with_peer().await;
        let clone = near.clone();
        assert_would_block(near.try_read(&mut [0]));
        let (displaced, count, other) = (Count::new(), Count::new(), Count::new());
        let poll = |stream: &Stream, count: &std::sync::Arc<Count>| {
            let waker = Waker::from(count.clone());
            stream.poll_read_ready(&mut Context::from_waker(&waker))
        };
        assert!(poll(&near, &displaced).is_pending());
        assert!(poll(&near, &count).is_pending());
        assert!(poll(&clone, &other).is_pending());
        assert_eq!(displaced.kept(), 0);
        far.send(b"x").await;
        count.until_woken().await;
        other.until_woken().await;
        assert!(matches!(poll(&near, &count), Poll::Ready(Ok(()))));
        assert!(matches!(poll(&clone, &other), Poll::Ready(Ok(()))));
        poll_fn(|cx| clone.poll_write_ready(cx)).await.unwrap();
    });
}

#[test]
fn a_wait_that_is_dropped_leaves_no_waker() {
    in_every_runtime(|_| async {
        let (near, _far) = with_peer().await;
        assert_would_block(near.try_read(&mut [0]));
        try_fill(&near);
        let count = Count::new();
        let mut waits = Box::pin(near.ready(BOTH[0] | BOTH[1]));
        assert!(poll_future(&mut waits, &count).is_pending());
        assert_eq!(count.kept(), 2, "one for each direction");
        drop(waits);
        assert_eq!(count.kept(), 0);
    });
}

#[test]
fn an_event_during_a_try_in_vain_is_not_lost() {
    on_every_backend(|backend| {
        let (near, mut far) = pair();
        let reader = near.clone();
        let (ready, is_ready) = mpsc::channel();
        let (waits, is_waiting) = mpsc::channel();
        let (tried, is_tried) = mpsc::channel();
        // Another thread sees the event while the operation is still running here. It waits again
        // on an already registered socket, so the event is not reported to it twice.
        let other = thread::spawn(move || {
            runtime(backend).block_on(async {
                assert_would_block(reader.try_read(&mut [0]));
                let mut readable = pin!(reader.readable());
                assert!(poll_once(&mut readable).await.is_none());
                waits.send(()).unwrap();
                readable.await.unwrap();
                ready.send(()).unwrap();
                is_tried.recv().unwrap();
                reader.readable().await.unwrap();
                assert_eq!(reader.try_read(&mut [0; 8]).unwrap(), 1);
            });
        });
        is_waiting.recv().unwrap();
        let in_vain = near.try_io(Interest::READABLE, || {
            far.write_all(b"x").unwrap();
            is_ready.recv().unwrap();
            Err::<(), _>(ErrorKind::WouldBlock.into())
        });
        assert_would_block(in_vain);
        tried.send(()).unwrap();
        other.join().unwrap();
    });
}

#[test]
fn bytes_that_come_while_it_is_tried_are_all_read() {
    in_every_runtime(|backend| async move {
        let (near, mut far) = with_peer().await;
        let count = sized(backend, 20_000);
        let writer = beside(async move {
            let mut random = Random::new(29);
            for _ in 0..count {
                far.send(b"x").await;
                if random.below(8) == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut random = Random::new(30);
        let mut read = 0;
        let mut bytes = [0; 64];
        loop {
            near.readable().await.unwrap();
            // Sometimes only what fits, sometimes until nothing is left.
            let room = random.size(bytes.len());
            match near.try_read(&mut bytes[..room]) {
                Ok(0) => break,
                Ok(length) => read += length,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        writer.join().await;
        assert_eq!(read, count);
    });
}

/// An operation of the user's is tried once and for what it is said to be.
#[test]
fn user_operation_tried_once_by_interest() {
    in_every_runtime(|_| async {
        let (near, mut far) = with_peer().await;
        for interest in [
            Interest::NONE,
            Interest::PRIORITY,
            BOTH[0] | Interest::PRIORITY,
        ] {
            let refused = near.try_io(interest, || -> std::io::Result<()> {
                panic!("it was called for {interest:?}")
            });
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
            let refused = near.ready(interest).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let mut calls = 0;
        let in_vain = near.try_io(Interest::READABLE, || {
            calls += 1;
            Err::<(), _>(ErrorKind::WouldBlock.into())
        });
        assert_would_block(in_vain);
        assert_eq!(calls, 1);
        assert!(poll_once(Box::pin(near.readable())).await.is_none());
        // Writing is not affected.
        let both = near.ready(BOTH[0] | BOTH[1]).await.unwrap();
        assert_eq!(both, Interest::WRITABLE);
        // Another error does not change the readiness, and is passed on.
        far.send(b"x").await;
        near.readable().await.unwrap();
        let broken = near.try_io(Interest::READABLE, || {
            Err::<(), _>(ErrorKind::BrokenPipe.into())
        });
        assert_eq!(broken.unwrap_err().kind(), ErrorKind::BrokenPipe);
        near.readable().await.unwrap();
        assert_eq!(near.try_io(BOTH[0], || Ok(7)).unwrap(), 7);
    });
}

#[test]
fn halves_try_and_peek_as_their_stream_does() {
    in_every_runtime(|_| async {
        let (mut near, far) = connection().await;
        let mut bytes = [0; 8];
        for _ in 0..2 {
            let (reader, writer) = near.split();
            assert_would_block(reader.try_read(&mut bytes));
            writer.writable().await.unwrap();
            assert_eq!(writer.try_write(b"to you").unwrap(), 6);
            far.peek(&mut bytes).await.unwrap();
            assert_eq!(far.try_read(&mut bytes).unwrap(), 6);
            assert_eq!(far.try_write(b"hello").unwrap(), 5);
            assert_eq!(reader.peek(&mut bytes).await.unwrap(), 5);
            let peeked = poll_fn(|cx| reader.poll_peek(cx, &mut bytes)).await;
            assert_eq!(peeked.unwrap(), 5);
            let (mut head, mut tail) = ([0; 2], [0; 8]);
            let mut buffers = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
            assert_eq!(reader.try_read_vectored(&mut buffers).unwrap(), 5);
            assert_eq!((&head, &tail[..3]), (b"he", &b"llo"[..]));
        }
        let (reader, writer) = near.into_split();
        assert_eq!(far.try_write(b"hello").unwrap(), 5);
        poll_fn(|cx| reader.poll_read_ready(cx)).await.unwrap();
        assert_eq!(reader.peek(&mut bytes).await.unwrap(), 5);
        assert_eq!(reader.try_read(&mut bytes).unwrap(), 5);
        poll_fn(|cx| writer.poll_write_ready(cx)).await.unwrap();
        assert_eq!(writer.try_write(b"to you").unwrap(), 6);
        far.peek(&mut bytes).await.unwrap();
        assert_eq!(far.try_read(&mut bytes).unwrap(), 6);
    });
}

/// Without room for a byte nothing waits and nothing fails.
#[test]
fn empty_buffers_neither_wait_nor_fail() {
    in_every_runtime(|_| async {
        let (mut near, _far) = with_peer().await;
        // Once for a new stream, once where readiness is known to be cleared.
        for _ in 0..2 {
            assert_eq!(near.try_read(&mut []).unwrap(), 0);
            assert_eq!(near.try_read_vectored(&mut []).unwrap(), 0);
            assert_eq!(near.peek(&mut []).await.unwrap(), 0);
            assert_eq!(near.read(&mut []).await.unwrap(), 0);
            let (mut one, mut two) = ([0; 0], [0; 0]);
            let mut buffers = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            assert_eq!(near.read_vectored(&mut buffers).await.unwrap(), 0);
            assert_would_block(near.try_read(&mut [0]));
        }
        assert!(poll_once(Box::pin(near.readable())).await.is_none());
    });
}

/// Waiting for what is always ready does not hold the loop.
#[test]
fn always_ready_wait_frees_loop() {
    in_every_runtime(|_| async {
        let (near, mut far) = with_peer().await;
        far.send(b"nobody reads it").await;
        near.readable().await.unwrap();
        let busy = polder::spawn(async move {
            loop {
                near.ready(BOTH[0] | BOTH[1]).await.unwrap();
                near.writable().await.unwrap();
            }
        });
        for _ in 0..10 {
            polder::spawn(async {}).await;
        }
        assert!(busy.cancel().await.is_none());
    });
}

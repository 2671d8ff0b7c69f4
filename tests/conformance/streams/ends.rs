//! Rules 1 and 4 to 10, as a stream shows them: ends, half-closes, resets.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::task::Poll;
use std::time::{Duration, Instant};

use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::poller::Poller;
use polder::{Runtime, future};

use super::{Count, StdStream, Stream, fill, pair, poll_read, reset, some_turns, with_peer};
use crate::descriptor::{has_ended, tells_no_end_behind_data};
use crate::support::{
    eventually, in_every_runtime, is_in_world, on_every_backend, runtime, with_every_runtime,
};

/// Waits until the kernel has the peer's end of file.
async fn end_has_arrived(stream: &Stream) {
    if is_in_world() {
        return; // A peer that ends waits for that.
    }
    let start = Instant::now();
    eventually("the end arrives", || {
        has_ended(stream).unwrap() || tells_no_end_behind_data() && start.elapsed() > GRACE
    });
}

/// The time for an end to arrive, where the arrival is not visible.
const GRACE: Duration = Duration::from_millis(20);

/// Returns the number of turns of an idle loop in a fixed time.
fn turns_in_a_while(runtime: &Runtime) -> usize {
    let end = Instant::now() + Duration::from_millis(30);
    let mut turns = 0;
    loop {
        match end.checked_duration_since(Instant::now()) {
            None => return turns,
            Some(left) => runtime.run_once(left),
        };
        turns += 1;
    }
}

/// Events in transit may wake the loop a few times; a spinning loop runs thousands of turns.
fn assert_idle(runtime: &Runtime, when: &str) {
    let turns = turns_in_a_while(runtime);
    assert!(turns < 20, "{when}: {turns} turns with nothing to do");
}

#[test]
fn empty_read_waits_and_wakes_again() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        let mut clone = near.clone();
        let mut bytes = [0; 16];
        for _ in 0..20 {
            let (first, second) = (Count::new(), Count::new());
            assert!(poll_read(&mut near, &first, &mut bytes).is_pending());
            assert!(poll_read(&mut clone, &second, &mut bytes).is_pending());
            far.send(b"once").await;
            first.until_woken().await;
            second.until_woken().await;
            // The first reader takes all data.
            assert!(matches!(
                poll_read(&mut near, &first, &mut bytes),
                Poll::Ready(Ok(4))
            ));
            let second = Count::new();
            assert!(poll_read(&mut clone, &second, &mut bytes).is_pending());
            far.send(b"more").await;
            second.until_woken().await;
            assert!(matches!(
                poll_read(&mut clone, &second, &mut bytes),
                Poll::Ready(Ok(4))
            ));
        }
    });
}

/// Data and end together a short read loses no end.
///
/// In every order of the reader, the reactor and the end.
#[test]
fn end_with_data_survives_short_read() {
    #[derive(Clone, Copy, Debug)]
    enum EndComes {
        WithTheData,
        AfterTheDataWasReported,
        AfterTheShortRead,
        AfterTheNextWait,
    }
    use EndComes::*;
    in_every_runtime(|_| async {
        for registered in [false, true] {
            for end in [
                WithTheData,
                AfterTheDataWasReported,
                AfterTheShortRead,
                AfterTheNextWait,
            ] {
                let (mut near, mut far) = with_peer().await;
                let mut bytes = [0; 64];
                let count = Count::new();
                if registered {
                    assert!(poll_read(&mut near, &count, &mut bytes).is_pending());
                }
                far.send(b"data").await;
                let mut far = Some(far);
                if matches!(end, WithTheData) {
                    far.take().unwrap().end().await;
                    end_has_arrived(&near).await;
                }
                if registered {
                    count.until_woken().await;
                }
                if matches!(end, AfterTheDataWasReported) {
                    far.take().unwrap().end().await;
                    end_has_arrived(&near).await;
                }
                assert_eq!(near.read(&mut bytes).await.unwrap(), 4);
                if matches!(end, AfterTheShortRead) {
                    far.take().unwrap().end().await;
                    end_has_arrived(&near).await;
                }
                let mut read = near.read(&mut bytes);
                if matches!(end, AfterTheNextWait) {
                    assert!(poll_once(&mut read).await.is_none());
                    far.take().unwrap().end().await;
                }
                let result = polder::time::timeout(Duration::from_secs(20), read).await;
                let what = format!("registered: {registered}, the end comes {end:?}");
                assert_eq!(result.expect(&what).expect(&what), 0, "{what}");
            }
        }
    });
}

/// A half closed peer takes writes and does not make the loop spin.
#[test]
fn half_closed_peer_writes_without_spin() {
    with_every_runtime(|runtime, _| {
        let (mut near, mut far) = pair();
        let mut bytes = [0; 64];
        let count = Count::new();
        runtime.block_on(async {
            assert!(poll_read(&mut near, &count, &mut bytes).is_pending());
            far.shutdown(Shutdown::Write).unwrap();
            count.until_woken().await;
        });
        assert_idle(&runtime, "half-closed, not read");
        runtime.block_on(async {
            assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
            near.write_all(b"still here").await.unwrap();
            assert_eq!(far.read(&mut bytes).unwrap(), 10);
            // Makes a writer wait.
            fill(&mut near, &count);
        });
        assert_idle(&runtime, "half-closed, a writer waits");
        let drain = std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()));
        runtime.block_on(async {
            near.write_all(&[b'y'; 1 << 20]).await.unwrap();
            near.close().await.unwrap();
        });
        assert!(drain.join().unwrap().unwrap() > 1 << 20);
    });
}

/// After our own shutdown of writing reading goes on.
#[test]
fn own_write_shutdown_keeps_reading() {
    with_every_runtime(|runtime, _| {
        let (mut near, mut far) = pair();
        let mut bytes = [0; 64];
        let count = Count::new();
        runtime.block_on(async {
            assert!(poll_read(&mut near, &count, &mut bytes).is_pending());
            near.shutdown(Shutdown::Write).unwrap();
            some_turns().await;
            assert_eq!(far.read(&mut bytes).unwrap(), 0);
            for _ in 0..5 {
                let read = async { near.read(&mut bytes).await.unwrap() };
                let write = async {
                    some_turns().await;
                    far.write_all(b"on").unwrap();
                };
                assert_eq!(future::zip(read, write).await.0, 2);
            }
            assert!(poll_once(near.read(&mut bytes)).await.is_none());
        });
        assert_idle(&runtime, "after our own shutdown");
        runtime.block_on(async {
            drop(far);
            assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
        });
        assert_idle(&runtime, "after both ends have ended");
    });
}

#[test]
fn unread_data_comes_before_the_end() {
    in_every_runtime(|_| async {
        for registered in [false, true] {
            let (mut near, mut far) = with_peer().await;
            let mut bytes = [0; 1000];
            if registered {
                assert!(poll_once(near.read(&mut bytes)).await.is_none());
            }
            let sent: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
            far.send(&sent).await;
            far.end().await;
            end_has_arrived(&near).await;
            some_turns().await;
            // Closes our direction as well, so that the kernel reports HUP.
            near.close().await.unwrap();
            some_turns().await;
            let mut got = Vec::new();
            loop {
                match near.read(&mut bytes).await.unwrap() {
                    0 => break,
                    read => got.extend_from_slice(&bytes[..read]),
                }
            }
            assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
        }
    });
}

#[test]
fn a_reply_comes_before_the_reset_that_follows_it() {
    in_every_runtime(|_| async {
        for registered in [false, true] {
            let (mut near, mut far) = with_peer().await;
            let mut bytes = [0; 64];
            if registered {
                assert!(poll_once(near.read(&mut bytes)).await.is_none());
            }
            // If the peer leaves data unread, its close is a reset.
            near.write_all(b"a request, the rest of which is not read")
                .await
                .unwrap();
            far.receive(&mut bytes[..9]).await;
            far.send(b"reply").await;
            far.end().await;
            end_has_arrived(&near).await;
            some_turns().await;
            near.read_exact(&mut bytes[..5])
                .await
                .expect("the reply first");
            assert_eq!(&bytes[..5], b"reply");
            let error = near.read(&mut bytes).await.expect_err("then the reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            // After the error was reported, reads return the end.
            assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
        }
    });
}

#[test]
fn a_reset_wakes_a_reader_and_a_writer_that_wait() {
    with_every_runtime(|runtime, _| {
        let (mut near, far) = pair();
        let mut writer = near.clone();
        runtime.block_on(async {
            let (reads, writes) = (Count::new(), Count::new());
            let mut bytes = [0; 64];
            assert!(poll_read(&mut near, &reads, &mut bytes).is_pending());
            fill(&mut writer, &writes);
            some_turns().await;
            reset(far);
            reads.until_woken().await;
            writes.until_woken().await;
            // Either the read or the write reports the reset; the other finds a stream that has
            // ended.
            let read = near.read(&mut bytes).await;
            let write = writer.write(&bytes).await.expect_err("nobody reads it");
            assert!(
                matches!(
                    write.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ),
                "{write}"
            );
            assert!(!matches!(read, Ok(1..)), "{read:?}");
        });
        assert_idle(&runtime, "after a reset");
    });
}

#[test]
fn unwanted_end_does_not_spin() {
    with_every_runtime(|runtime, _| {
        type End = fn(StdStream);
        let ends: [(&str, End); 3] = [
            ("an end", drop),
            ("a reset", reset),
            ("data and an end", |mut far| far.write_all(b"data").unwrap()),
        ];
        let mut held = Vec::new();
        for (what, end) in ends {
            let (mut near, far) = pair();
            runtime.block_on(async {
                // Registered for both directions; then there is no waiter any more.
                assert!(poll_once(near.read(&mut [0; 4])).await.is_none());
                fill(&mut near, &Count::new());
            });
            end(far);
            assert_idle(&runtime, what);
            held.push(near);
        }
    });
}

/// Without edges only what is waited for is reported.
#[test]
fn without_edges_only_waits_reported() {
    on_every_backend(|backend| {
        if Poller::new(backend).unwrap().capabilities().edge {
            return;
        }
        let runtime = runtime(backend);
        let events = || -> usize {
            let workers = runtime.metrics().workers;
            workers.iter().map(|worker| worker.events).sum()
        };
        let (mut near, mut far) = pair();
        let count = Count::new();
        runtime.block_on(async {
            assert!(poll_read(&mut near, &count, &mut [0; 8]).is_pending());
        });
        assert_idle(&runtime, "a reader waits");
        assert_eq!(events(), 0, "room was reported, and no writer waits");
        far.write_all(b"one").unwrap();
        runtime.block_on(count.until_woken());
        // The data is not read, and more arrives.
        far.write_all(b"two").unwrap();
        assert_idle(&runtime, "unread");
        assert!(events() <= 2, "{} events", events());
    });
}

#[test]
fn errors_are_told_and_the_loop_goes_on() {
    in_every_runtime(|_| async {
        let (mut near, far) = with_peer().await;
        let mut bytes = [0; 4];
        // Data left unread makes the close of a Unix stream a reset.
        near.write_all(b"unread").await.unwrap();
        let mut read = near.read(&mut bytes);
        assert!(poll_once(&mut read).await.is_none());
        far.reset().await;
        let error = read.await.expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        for _ in 0..3 {
            assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
            near.write(&bytes).await.expect_err("there is no peer");
        }
        near.close()
            .await
            .expect("that the peer has gone is no failure");
    });
}

//! Rules 26a and 26b: streams in memory, and copying between two connected streams.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use polder::future::{poll_once, yield_now, zip};
use polder::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter, DuplexStream, copy,
    copy_bidirectional, copy_bidirectional_with_sizes, duplex, repeat, sink,
};
use polder::net::TcpStream;

use crate::probe::listen;
use crate::streams::{Count, Random, poll_read, poll_write};
#[cfg(unix)]
use crate::support::is_in_world;
use crate::support::{in_every_runtime, sized, until};

/// A full stream in memory waits for its reader and an empty one for its writer.
#[test]
fn duplex_full_waits_reader_empty_waits_writer() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = duplex(4);
        let (reader, writer) = (Count::new(), Count::new());
        let mut bytes = [0; 8];
        assert!(poll_read(&mut far, &reader, &mut bytes).is_pending());
        assert_eq!(
            near.write(b"hello").await.unwrap(),
            4,
            "as much as there is room for"
        );
        assert_eq!((reader.woken(), reader.kept()), (1, 0));
        assert!(poll_write(&mut near, &writer, b"o").is_pending());
        assert_eq!(far.read(&mut bytes[..2]).await.unwrap(), 2);
        assert_eq!((writer.woken(), writer.kept()), (1, 0));
        let parts = [IoSlice::new(b"o"), IoSlice::new(b""), IoSlice::new(b"ne")];
        assert_eq!(near.write_vectored(&parts).await.unwrap(), 2);
        // The ring buffer has wrapped by now: its bytes are in two parts.
        let (mut head, mut tail) = ([0; 1], [0; 8]);
        let mut buffers = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
        assert_eq!(far.read_vectored(&mut buffers).await.unwrap(), 4);
        assert_eq!((&head, &tail[..3]), (b"l", &b"lon"[..]));
        // No operation waits that has no room to fill, or no byte to write.
        assert_eq!(far.read(&mut []).await.unwrap(), 0);
        near.write_all(b"full").await.unwrap();
        assert_eq!(near.write(b"").await.unwrap(), 0);
    });
}

/// An end in memory comes after all bytes and only where it belongs.
#[test]
fn duplex_end_after_all_bytes() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = duplex(8);
        near.write_all(b"hello").await.unwrap();
        near.close().await.unwrap();
        near.close().await.unwrap();
        let error = near.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        // The other direction still works.
        far.write_all(b"to you").await.unwrap();
        let mut bytes = [0; 6];
        near.read_exact(&mut bytes).await.unwrap();

        // A waiting reader is woken by the end, a waiting writer by the drop of the reader.
        let count = Count::new();
        assert!(poll_read(&mut near, &count, &mut bytes).is_pending());
        drop(far);
        assert_eq!(count.woken(), 1);
        assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
        let (mut near, far) = duplex(0);
        let count = Count::new();
        near.write_all(b"x").await.unwrap();
        assert!(poll_write(&mut near, &count, b"x").is_pending());
        drop(far);
        assert_eq!((count.woken(), count.kept()), (1, 0));
        let error = near.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

/// Bytes in memory all arrive in pieces between threads.
#[test]
fn duplex_bytes_arrive_between_threads() {
    in_every_runtime(|backend| async move {
        for capacity in [1, 7, 4096] {
            // With the small capacities each byte is a wake.
            let size = sized(backend, 100_000).min(capacity * 2_000);
            let (mut near, mut far) = duplex(capacity);
            let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let expected = data.clone();
            let writer = thread::spawn(move || {
                polder::block_on(async {
                    let mut random = Random::new(capacity as u64);
                    let mut rest = &data[..];
                    while !rest.is_empty() {
                        let piece = random.size(rest.len().min(5_000));
                        near.write_all(&rest[..piece]).await.unwrap();
                        rest = &rest[piece..];
                    }
                });
            });
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.unwrap();
            assert!(read == expected, "with a capacity of {capacity}");
            writer.join().unwrap();
        }
    });
}

/// Returns a client's end, both ends of a proxy, and a server's end.
fn chain() -> (DuplexStream, DuplexStream, DuplexStream, DuplexStream) {
    let (client, near) = duplex(16);
    let (far, server) = duplex(16);
    (client, near, far, server)
}

/// The end of one side is passed on and the other direction goes on.
#[test]
fn half_close_relayed_other_way_open() {
    in_every_runtime(|_| async {
        for turned in [false, true] {
            let (mut client, mut near, mut far, mut server) = chain();
            let proxy = polder::spawn(async move {
                if turned {
                    copy_bidirectional(&mut far, &mut near).await
                } else {
                    copy_bidirectional(&mut near, &mut far).await
                }
            });
            let question = vec![b'q'; 1_000];
            let asks = async {
                client.write_all(&question).await.unwrap();
                client.close().await.unwrap();
            };
            let mut asked = Vec::new();
            let (_, all) = zip(asks, server.read_to_end(&mut asked)).await;
            all.unwrap();
            assert_eq!(asked, question);
            // The server has received the end; the client has not.
            let mut byte = [0];
            assert!(poll_once(Box::pin(client.read(&mut byte))).await.is_none());
            let answer = vec![b'a'; 3_000];
            let answers = async {
                server.write_all(&answer).await.unwrap();
                drop(server);
            };
            let mut answered = Vec::new();
            let (_, all) = zip(answers, client.read_to_end(&mut answered)).await;
            all.unwrap();
            assert_eq!(answered, answer);
            let copied = if turned {
                (3_000, 1_000)
            } else {
                (1_000, 3_000)
            };
            assert_eq!(proxy.await.unwrap(), copied);
        }
    });
}

/// A slow side holds the other back and loses nothing.
#[test]
fn slow_side_applies_backpressure() {
    in_every_runtime(|_| async {
        let (mut client, mut near, mut far, mut server) = chain();
        let proxy =
            polder::spawn(
                async move { copy_bidirectional_with_sizes(&mut near, &mut far, 0, 8).await },
            );
        // Two queues of 16 bytes, and one buffer between them.
        let count = Count::new();
        let mut written = 0;
        until("everything is full", || {
            while let Poll::Ready(result) = poll_write(&mut client, &count, &[7; 5]) {
                written += result.unwrap();
            }
            written == 16 + 1 + 16
        })
        .await;
        assert!(poll_write(&mut client, &count, b"x").is_pending());
        let mut all = vec![0; written];
        server.read_exact(&mut all).await.unwrap();
        assert_eq!(all, [7; 33]);
        drop(client);
        assert_eq!(server.read(&mut all).await.unwrap(), 0);
        drop(server);
        assert_eq!(proxy.await.unwrap(), (33, 0));
    });
}

/// Bytes that a writer buffers are flushed before the next wait.
#[test]
fn buffered_flushed_before_waiting() {
    in_every_runtime(|_| async {
        /// A stream that reads from one part and writes to the other.
        struct Joined<R, W>(R, W);

        impl<R: AsyncRead + Unpin, W: Unpin> AsyncRead for Joined<R, W> {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<std::io::Result<usize>> {
                Pin::new(&mut self.0).poll_read(cx, bytes)
            }
        }

        impl<R: Unpin, W: AsyncWrite + Unpin> AsyncWrite for Joined<R, W> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<std::io::Result<usize>> {
                Pin::new(&mut self.1).poll_write(cx, bytes)
            }
            fn poll_flush(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<std::io::Result<()>> {
                Pin::new(&mut self.1).poll_flush(cx)
            }
            fn poll_close(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<std::io::Result<()>> {
                Pin::new(&mut self.1).poll_close(cx)
            }
        }

        let (mut client, mut near, far, mut server) = chain();
        let (reader, writer) = polder::io::split(far);
        let mut far = Joined(reader, BufWriter::new(writer));
        let proxy = polder::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        for _ in 0..3 {
            client.write_all(b"ping").await.unwrap();
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).await.unwrap();
            server.write_all(b"pong").await.unwrap();
            client.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"pong");
        }
        drop(client);
        drop(server);
        assert_eq!(proxy.await.unwrap(), (12, 12));
    });
}

/// A reset of one side is an error and can be passed on.
#[test]
fn reset_is_an_error_and_passed_on() {
    in_every_runtime(|_| async {
        let (listener, address) = listen().await;
        let client = TcpStream::connect(address).await.unwrap();
        let mut near = listener.accept().await.unwrap().0;
        let mut far = TcpStream::connect(address).await.unwrap();
        let mut server = listener.accept().await.unwrap().0;
        let proxy = polder::spawn(async move {
            let error = copy_bidirectional(&mut near, &mut far).await.unwrap_err();
            for stream in [near, far] {
                let _ = stream.set_linger(Some(Duration::ZERO));
            }
            error
        });
        server.write_all(b"hello").await.unwrap();
        client.peek(&mut [0; 8]).await.unwrap();
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(proxy.await.kind(), ErrorKind::ConnectionReset);
        let error = server.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

/// A stream that is always ready, but interrupts each operation first.
struct Endless {
    /// The number of interruptions before each operation.
    interruptions: usize,
    interrupted: usize,
    /// The number of bytes left to read.
    left: usize,
    closed: bool,
}

impl Endless {
    fn new(interruptions: usize, left: usize) -> Endless {
        Endless {
            interruptions,
            interrupted: 0,
            left,
            closed: false,
        }
    }

    fn interrupt(&mut self) -> std::io::Result<()> {
        if self.interrupted < self.interruptions {
            self.interrupted += 1;
            return Err(ErrorKind::Interrupted.into());
        }
        self.interrupted = 0;
        Ok(())
    }
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<std::io::Result<usize>> {
        self.interrupt()?;
        let read = bytes.len().min(self.left);
        self.left -= read;
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.interrupt()?;
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.interrupt()?;
        Poll::Ready(Ok(()))
    }
    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.interrupt()?;
        self.closed = true;
        Poll::Ready(Ok(()))
    }
}

#[test]
fn what_was_interrupted_is_tried_again() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = (Endless::new(3, 100_000), Endless::new(1, 50_000));
        let copied = copy_bidirectional(&mut near, &mut far).await.unwrap();
        assert_eq!(copied, (100_000, 50_000));
        assert!(near.closed && far.closed, "the ends were not passed on");
        let (mut near, mut far) = (Endless::new(2, 100_000), Endless::new(1, 0));
        assert_eq!(copy(&mut near, &mut far).await.unwrap(), 100_000);
        assert!(!far.closed, "`copy` does not close");
    });
}

/// Two sides that never wait do not hold the worker.
#[test]
fn busy_sides_do_not_hold_worker() {
    in_every_runtime(|_| async {
        let endless = || Endless::new(0, usize::MAX);
        let busy = [
            polder::spawn(async move {
                copy_bidirectional(&mut endless(), &mut endless())
                    .await
                    .map(drop)
            }),
            polder::spawn(async { copy(repeat(7), sink()).await.map(drop) }),
            // This copy is interrupted again and again, and reads nothing.
            polder::spawn(async { copy(Endless::new(usize::MAX, 1), sink()).await.map(drop) }),
        ];
        for _ in 0..10 {
            polder::spawn(async {}).await;
        }
        for busy in busy {
            assert!(busy.cancel().await.is_none());
        }
    });
}

#[test]
fn buffers_of_a_copy_have_a_limit() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = (Endless::new(0, 8), Endless::new(0, 8));
        let copied = copy_bidirectional_with_sizes(&mut near, &mut far, 0, usize::MAX).await;
        assert_eq!(copied.unwrap(), (8, 8));
    });
}

/// Two directions that never wait get equal shares.
#[test]
fn busy_directions_share_equally() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = (Endless::new(0, usize::MAX), Endless::new(0, usize::MAX));
        {
            let mut proxy = pin!(copy_bidirectional(&mut near, &mut far));
            for _ in 0..20 {
                assert!(poll_once(proxy.as_mut()).await.is_none());
                // In its next poll the task has a new budget.
                yield_now().await;
            }
        }
        let [there, back] = [near, far].map(|side| usize::MAX - side.left);
        assert!(there / 2 < back && back / 2 < there, "{there} and {back}");
    });
}

/// A copy is flushed before more is waited for and at the end.
#[test]
fn copy_flushes_before_waiting_and_at_end() {
    in_every_runtime(|_| async {
        let (mut client, near) = duplex(64);
        let (far, mut server) = duplex(64);
        let copier = polder::spawn(copy(near, BufWriter::new(far)));
        let mut bytes = [0; 4];
        client.write_all(b"ping").await.unwrap();
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"ping");
        client.write_all(b"last").await.unwrap();
        drop(client);
        assert_eq!(copier.await.unwrap(), 8);
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"last");
    });
}

/// With one operation left in the budget: what would block leaves it to what is ready.
#[test]
fn an_attempt_that_would_block_costs_no_budget() {
    async fn leaves_one(mut waits: impl AsyncRead + AsyncWrite + Unpin, to_write: bool) {
        let (mut near, mut far) = duplex(1_000);
        near.write_all(&[0; 1_000]).await.unwrap();
        yield_now().await;
        let mut byte = [0];
        for _ in 1..128 {
            assert!(poll_once(far.read(&mut byte)).await.is_some());
        }
        let would_block = if to_write {
            poll_once(waits.write(&byte)).await.is_none()
        } else {
            poll_once(waits.read(&mut byte)).await.is_none()
        };
        assert!(would_block);
        assert!(
            poll_once(far.read(&mut byte)).await.is_some(),
            "one is left"
        );
        assert!(
            poll_once(far.read(&mut byte)).await.is_none(),
            "none is left"
        );
    }
    in_every_runtime(|_| async {
        let (mut near, _far) = duplex(1);
        leaves_one(&mut near, false).await;
        near.write_all(b"x").await.unwrap();
        leaves_one(&mut near, true).await;
        #[cfg(unix)]
        if !is_in_world() {
            let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
            leaves_one(polder::io::Unblock::new(near), false).await;
        }
    });
}

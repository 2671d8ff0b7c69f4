//! Rules 26 to 28: bytes, in both directions.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::LazyLock;
use std::thread;

use polder::Backend;
use polder::future::{self, poll_once};
use polder::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use socket2::SockRef;

use super::{
    Count, OwnedReadHalf, OwnedWriteHalf, Random, Stream, both, connection, fill_up, pair,
    poll_future, poll_read, some_turns, with_peer,
};
use crate::descriptor::{number_of, raw};
use crate::support::{in_every_runtime, on_every_backend, runtime, sized};

/// The longest piece of one read or write.
const PIECE: usize = 96 * 1024;

/// The period of the sent bytes; no buffer's size divides it.
const PERIOD: usize = 251_387;

/// Long enough to contain any piece of the sent bytes contiguously.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random::new(1);
    let mut bytes: Vec<u8> = (0..PERIOD).map(|_| random.below(256) as u8).collect();
    bytes.extend_from_within(..PIECE);
    bytes
});

fn piece(at: usize, length: usize) -> &'static [u8] {
    &PATTERN[at % PERIOD..][..length]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Plain,
    Vectored,
}

/// Sends `total` bytes of the pattern in random pieces, and closes.
async fn send(mut stream: impl AsyncWrite + Unpin, total: usize, how: How, seed: u64) {
    let mut random = Random::new(seed);
    let mut at = 0;
    while at < total {
        let bytes = piece(at, random.size(PIECE).min(total - at));
        at += match how {
            How::Plain => stream.write(bytes).await.unwrap(),
            How::Vectored => {
                let (a, rest) = bytes.split_at(random.below(bytes.len()));
                let (b, c) = rest.split_at(random.below(rest.len()));
                let slices = [a, b, &[], c].map(IoSlice::new);
                stream.write_vectored(&slices).await.unwrap()
            }
        };
    }
    stream.close().await.unwrap();
}

/// Reads to the end and compares with the pattern.
async fn receive(mut stream: impl AsyncRead + Unpin, total: usize, how: How, seed: u64) {
    let mut random = Random::new(seed);
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    loop {
        let room = random.size(PIECE);
        let read = read(&mut stream, &mut buffer[..room], how, &mut random).await;
        if read == 0 {
            break;
        }
        assert!(
            buffer[..read] == *piece(at, read),
            "not what was sent at {at}"
        );
        at += read;
    }
    assert_eq!(at, total, "the end came at the wrong place");
}

async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
    how: How,
    random: &mut Random,
) -> usize {
    match how {
        How::Plain => stream.read(buffer).await.unwrap(),
        How::Vectored => {
            let (a, rest) = buffer.split_at_mut(random.below(buffer.len()));
            let (b, c) = rest.split_at_mut(random.below(rest.len()));
            let mut slices = [a, &mut [], b, c].map(IoSliceMut::new);
            stream.read_vectored(&mut slices).await.unwrap()
        }
    }
}

/// Echoes the received bytes, in pieces of any size, until the end, and closes.
async fn echo(mut stream: Stream, how: How, seed: u64) {
    let mut random = Random::new(seed);
    let mut buffer = vec![0; PIECE];
    loop {
        let room = random.size(PIECE);
        match read(&mut stream, &mut buffer[..room], how, &mut random).await {
            0 => break,
            read => stream.write_all(&buffer[..read]).await.unwrap(),
        }
    }
    stream.close().await.unwrap();
}

fn echo_gives_everything_back(backend: Backend, how: How) {
    let large = sized(backend, 64 << 20);
    runtime(backend).block_on(async move {
        for total in [0, 1, 64 << 10, large] {
            let (near, far) = both();
            let server = polder::spawn(echo(far, how, 2));
            let sender = polder::spawn(send(near.clone(), total, how, 3));
            receive(near, total, how, 4).await;
            sender.await;
            server.await;
        }
    });
}

#[test]
fn echo_until_the_end_byte_for_byte() {
    on_every_backend(|backend| echo_gives_everything_back(backend, How::Plain));
}

#[test]
fn echo_until_the_end_byte_for_byte_vectored() {
    on_every_backend(|backend| echo_gives_everything_back(backend, How::Vectored));
}

/// The other end has its own thread and runtime, so that both run at the same time.
#[test]
fn two_threads_echo_byte_for_byte() {
    on_every_backend(|backend| {
        let total = sized(backend, 16 << 20);
        let (near, far) = both();
        let server = thread::spawn(move || runtime(backend).block_on(echo(far, How::Plain, 5)));
        runtime(backend).block_on(async move {
            let sender = polder::spawn(send(near.clone(), total, How::Vectored, 6));
            receive(near, total, How::Plain, 7).await;
            sender.await;
        });
        server.join().unwrap();
    });
}

/// The kernel takes 1,024 slices in one call on most systems; the rest waits for the next call.
#[test]
fn a_vectored_call_takes_any_number_of_slices() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = connection().await;
        let bytes = piece(0, 3_000);
        let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
        let written = near
            .write_vectored(&slices)
            .await
            .expect("as many as the system takes");
        assert!(written > 0);
        near.write_all(&bytes[written..]).await.unwrap();

        let mut got = vec![0; bytes.len()];
        let mut at = 0;
        while at < got.len() {
            let mut slices: Vec<_> = got[at..].chunks_mut(1).map(IoSliceMut::new).collect();
            // A read that stops because its slices are full does not tell whether more is
            // available.
            let read = far
                .read_vectored(&mut slices)
                .await
                .expect("as many as the system takes");
            assert_ne!(read, 0);
            at += read;
        }
        assert!(got == bytes);
    });
}

/// Each way to use one stream in two tasks, at full load in both directions.
#[test]
fn two_tasks_use_one_stream_at_once() {
    on_every_backend(|backend| {
        let total = sized(backend, 4 << 20);
        runtime(backend).block_on(async move {
            // Clones.
            let (near, far) = both();
            let server = polder::spawn(echo(far, How::Plain, 8));
            let writer = polder::spawn(send(near.clone(), total, How::Plain, 9));
            receive(near, total, How::Plain, 10).await;
            writer.await;
            server.await;

            // Borrowed halves, in one task.
            let (mut near, far) = both();
            let server = polder::spawn(echo(far, How::Plain, 11));
            let (reader, writer) = near.split();
            future::zip(
                receive(reader, total, How::Vectored, 12),
                send(writer, total, How::Vectored, 13),
            )
            .await;
            server.await;

            // Owned halves. Dropping the writing half is the end, closed or not.
            let (near, far) = both();
            let server = polder::spawn(echo(far, How::Plain, 14));
            let (reader, mut writer) = near.into_split();
            let writer = polder::spawn(async move {
                for at in (0..total).step_by(PIECE) {
                    let bytes = piece(at, PIECE.min(total - at));
                    writer.write_all(bytes).await.unwrap();
                }
            });
            receive(reader, total, How::Plain, 15).await;
            writer.await;
            server.await;
        });
    });
}

/// Halves of one stream are reunited and strangers given back.
#[test]
fn halves_reunite_strangers_returned() {
    in_every_runtime(|_| async {
        let (near, mut far) = connection().await;
        let (other, mut other_far) = connection().await;
        let number = number_of(&near);
        let (reader, writer) = near.into_split();
        let (other_reader, other_writer) = other.into_split();
        let error = reader
            .reunite(other_writer)
            .expect_err("they are strangers");
        let (reader, other_writer): (OwnedReadHalf, OwnedWriteHalf) = (error.0, error.1);

        // Both streams are whole: nothing was shut down before.
        let mut near = reader.reunite(writer).expect("they belong together");
        let mut other = other_reader.reunite(other_writer).expect("likewise");
        assert_eq!(number_of(&near), number);
        let mut byte = [0];
        for (near, far) in [(&mut near, &mut far), (&mut other, &mut other_far)] {
            near.write_all(b"a").await.unwrap();
            far.read_exact(&mut byte).await.unwrap();
            far.write_all(b"b").await.unwrap();
            near.read_exact(&mut byte).await.unwrap();
            assert!(poll_once(far.read(&mut byte)).await.is_none(), "no end yet");
        }
        drop((near, other));
        assert_eq!(far.read(&mut byte).await.unwrap(), 0);
        assert_eq!(other_far.read(&mut byte).await.unwrap(), 0);
    });
}

/// Both sorts of halves lend their stream's descriptor.
///
/// For APIs that take a descriptor: socket2, to set an option.
#[test]
fn halves_lend_streams_descriptor() {
    in_every_runtime(|_| async {
        let (mut near, _far) = with_peer().await;
        let number = number_of(&near);
        let (reader, writer) = near.split();
        assert_eq!((number_of(&reader), number_of(&writer)), (number, number));
        assert_eq!((raw(&reader), raw(&writer)), (number, number));
        let (reader, writer) = near.into_split();
        assert_eq!((number_of(&reader), number_of(&writer)), (number, number));
        assert_eq!((raw(&reader), raw(&writer)), (number, number));
        let size = SockRef::from(&writer).send_buffer_size();
        assert!(size.expect("it is a socket") > 0);
    });
}

/// A writing half that goes is the end while the reading half lives.
#[test]
fn writing_half_drop_is_end_of_stream() {
    in_every_runtime(|_| async {
        let (near, mut far) = connection().await;
        let (mut reader, writer) = near.into_split();
        let mut bytes = [0; 4];
        {
            let mut end = Box::pin(far.read(&mut bytes));
            assert!(poll_once(&mut end).await.is_none());
            drop(writer);
            assert_eq!(end.await.unwrap(), 0);
        }
        far.write_all(b"more").await.unwrap();
        reader.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"more");
    });
}

#[test]
fn peek_does_not_consume() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = with_peer().await;
        let (count, other) = (Count::new(), Count::new());
        let (mut a, mut b) = ([0; 8], [0; 8]);
        // Two peeks wait at the same time; after a short peek all bytes can still be read.
        {
            let mut first = Box::pin(near.peek(&mut a));
            let mut second = Box::pin(near.peek(&mut b));
            assert!(poll_future(&mut first, &count).is_pending());
            assert!(poll_future(&mut second, &other).is_pending());
            far.send(b"abc").await;
            let (first, second) = future::zip(first, second).await;
            assert_eq!((first.unwrap(), second.unwrap()), (3, 3));
        }
        assert_eq!((&a[..3], &b[..3]), (&b"abc"[..], &b"abc"[..]));
        assert_eq!(near.peek(&mut a[..1]).await.unwrap(), 1);
        let mut bytes = [0; 2];
        near.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"ab");
        assert_eq!(near.peek(&mut a).await.unwrap(), 1);
        assert_eq!(near.read(&mut a).await.unwrap(), 1);
        assert_eq!(a[0], b'c');

        // The end of the stream can be peeked at too, and stays.
        far.end().await;
        assert_eq!(near.peek(&mut a).await.unwrap(), 0);
        assert_eq!(near.peek(&mut a).await.unwrap(), 0);
        assert_eq!(near.read(&mut a).await.unwrap(), 0);
        assert_eq!((count.kept(), other.kept()), (0, 0));
    });
}

#[test]
fn a_peek_that_is_given_up_leaves_no_waker() {
    in_every_runtime(|_| async {
        let (near, _far) = with_peer().await;
        let count = Count::new();
        for _ in 0..10 {
            let mut byte = [0];
            let mut peek = Box::pin(near.peek(&mut byte));
            assert!(poll_future(&mut peek, &count).is_pending());
            assert_eq!(count.kept(), 1);
        }
        assert_eq!(count.kept(), 0);
    });
}

/// Ends writing in each way there is, beginning with the way `first`.
async fn end_writing_again_and_again(stream: &mut Stream, first: usize) {
    for step in 0..WAYS {
        match (first + step) % WAYS {
            0 => stream.close().await.unwrap(),
            1 => stream.shutdown(Shutdown::Write).unwrap(),
            2 => stream.split().1.close().await.unwrap(),
            3 => drop(stream.clone().into_split()),
            _ => {
                let (reader, mut writer) = stream.clone().into_split();
                writer.close().await.unwrap();
                writer.close().await.unwrap();
                drop((writer, reader));
            }
        }
    }
}

const WAYS: usize = 5;

/// Writing that is ended again and again is shut down once.
///
/// On some systems a second shutdown would end reading, and what the peer still sends would be
/// lost. (The model of kqueue does that, and a world panics.)
#[test]
fn shutdown_write_repeated_done_once() {
    in_every_runtime(|_| async {
        for first in 0..WAYS {
            let (mut near, mut far) = with_peer().await;
            near.write_all(b"question").await.unwrap();
            far.receive(&mut [0; 8]).await;
            end_writing_again_and_again(&mut near, first).await;
            assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
            end_writing_again_and_again(&mut near, first).await;
            far.send(b"answer").await;
            near.shutdown(Shutdown::Write).unwrap();
            far.end().await;
            let mut text = String::new();
            near.read_to_string(&mut text).await.unwrap();
            assert_eq!(text, "answer", "beginning with way {first}");
        }
    });
}

/// Shutdown of writing gives the peer the end and twice is no panic.
#[test]
fn shutdown_write_is_peers_end_twice_ok() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = connection().await;
        near.write_all(b"last").await.unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        near.close().await.unwrap();
        near.close().await.unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "last");
        let error = near.write(b"x").await.expect_err("writing has ended");
        // The standard library has no kind for the Windows error WSAESHUTDOWN.
        if cfg!(windows) {
            assert_eq!(error.raw_os_error(), Some(10_058));
        } else {
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        }

        // The other half still works.
        far.write_all(b"reply").await.unwrap();
        drop(far);
        text.clear();
        near.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "reply");
        let _ = near.shutdown(Shutdown::Both);
        near.close()
            .await
            .expect("that the peer has gone is no failure");
    });
}

/// Shutdown in one clone wakes those that wait in another.
///
/// Our own shutdown wakes the waiters of another clone.
#[test]
fn shutdown_in_clone_wakes_others() {
    in_every_runtime(|_| async {
        let (mut near, _far) = connection().await;
        let mut writer = near.clone();
        let (reads, writes) = (Count::new(), Count::new());
        let mut byte = [0];
        assert!(poll_read(&mut near, &reads, &mut byte).is_pending());
        fill_up(&mut writer, &writes).await;
        some_turns().await;
        near.clone().shutdown(Shutdown::Both).unwrap();
        reads.until_woken().await;
        assert_eq!(near.read(&mut byte).await.unwrap(), 0);
        writes.until_woken().await;
        writer.write(b"x").await.expect_err("writing has ended");
    });
}

/// Fast enough to show that the waits of a plain thread are served.
#[test]
fn a_stream_works_on_a_plain_thread() {
    let (mut near, mut far) = pair();
    let echo = thread::spawn(move || {
        let mut buffer = [0; 1000];
        loop {
            match far.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => far.write_all(&buffer[..read]).unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
            }
        }
    });
    crate::support::within(crate::support::LIMIT, "on a plain thread", move || {
        futures_lite::future::block_on(async {
            for at in (0..20_000).step_by(700) {
                let mut got = [0; 700];
                near.write_all(piece(at, 700)).await.unwrap();
                near.read_exact(&mut got).await.unwrap();
                assert!(got == *piece(at, 700));
            }
        });
    });
    echo.join().unwrap();
}

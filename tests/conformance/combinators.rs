//! What the documentation says of futures-lite's functions, which polder exports again. If one of
//! these changes there, the sentence at the item and in docs/MIGRATING.md goes.

use std::panic::AssertUnwindSafe;

use polder::future::{FutureExt, poll_once, yield_now};
use polder::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter, Cursor, duplex,
};
use polder::net::UdpSocket;
use polder::stream::StreamExt;

use crate::support::{a_turn, in_every_runtime};

/// smol-rs/futures-lite#124.
#[test]
fn read_line_needs_an_empty_string() {
    in_every_runtime(|_| async {
        let mut reader = BufReader::new(Cursor::new("one\ntwo\n"));
        let mut line = String::new();
        assert_eq!(reader.read_line(&mut line).await.unwrap(), 4);
        assert_eq!(line, "one\n");
        let read = AssertUnwindSafe(reader.read_line(&mut line))
            .catch_unwind()
            .await;
        assert_eq!(read.is_err(), cfg!(debug_assertions));
        if !cfg!(debug_assertions) {
            assert_eq!(line, "two\n");
        }
    });
}

#[test]
fn read_to_string_needs_an_empty_string() {
    in_every_runtime(|_| async {
        let mut text = String::from("one");
        let mut reader = Cursor::new("two");
        let read = AssertUnwindSafe(reader.read_to_string(&mut text))
            .catch_unwind()
            .await;
        assert_eq!(read.is_err(), cfg!(debug_assertions));
        if !cfg!(debug_assertions) {
            assert_eq!(text, "two");
        }
    });
}

/// Dropping `read_line` loses bytes and lines keep them.
#[test]
fn drop_read_line_loses_bytes_lines_keeps() {
    in_every_runtime(|_| async {
        let (mut near, far) = duplex(100);
        let mut reader = BufReader::new(far);
        let mut line = String::new();
        near.write_all(b"on").await.unwrap();
        assert!(poll_once(reader.read_line(&mut line)).await.is_none());
        assert_eq!(line, "");
        near.write_all(b"e\ntw").await.unwrap();
        reader.read_line(&mut line).await.unwrap();
        assert_eq!(line, "e\n");

        let mut lines = reader.lines();
        assert!(poll_once(lines.next()).await.is_none());
        near.write_all(b"o\n").await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), "two");
    });
}

#[test]
fn dropping_read_until_keeps_bytes_in_the_vec() {
    in_every_runtime(|_| async {
        let (mut near, far) = duplex(100);
        let (mut reader, mut line) = (BufReader::new(far), Vec::new());
        near.write_all(b"on").await.unwrap();
        assert!(
            poll_once(reader.read_until(b'\n', &mut line))
                .await
                .is_none()
        );
        assert_eq!(line, b"on");
        near.write_all(b"e\n").await.unwrap();
        assert_eq!(reader.read_until(b'\n', &mut line).await.unwrap(), 2);
        assert_eq!(line, b"one\n");
    });
}

/// Dropping `read_to_end` keeps bytes, and `read_to_string` loses them.
#[test]
fn drop_read_to_end_keeps_to_string_loses() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = duplex(100);
        let mut all = Vec::new();
        near.write_all(b"on").await.unwrap();
        assert!(poll_once(far.read_to_end(&mut all)).await.is_none());
        assert_eq!(all, b"on");
        near.write_all(b"e").await.unwrap();
        drop(near);
        far.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"one");

        let (mut near, mut far) = duplex(100);
        let mut text = String::new();
        near.write_all(b"on").await.unwrap();
        assert!(poll_once(far.read_to_string(&mut text)).await.is_none());
        near.write_all(b"e").await.unwrap();
        drop(near);
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "e");
    });
}

/// Dropping `read_exact` and `write_all` leaves a part done.
#[test]
fn drop_read_exact_write_all_partly_done() {
    in_every_runtime(|_| async {
        let (mut near, mut far) = duplex(2);
        let mut bytes = *b"....";
        assert!(poll_once(near.write_all(b"one")).await.is_none());
        assert!(poll_once(far.read_exact(&mut bytes)).await.is_none());
        assert_eq!(&bytes, b"on..");
        assert_eq!(near.write(b"e").await.unwrap(), 1);
        assert_eq!(far.read(&mut bytes).await.unwrap(), 1);
    });
}

#[test]
fn dropping_a_buf_writer_loses_its_bytes() {
    in_every_runtime(|_| async {
        let (near, mut far) = duplex(100);
        let mut writer = BufWriter::new(near);
        writer.write_all(b"kept").await.unwrap();
        writer.flush().await.unwrap();
        writer.write_all(b"lost").await.unwrap();
        drop(writer);
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "kept");
    });
}

#[test]
fn poll_once_is_none_when_the_budget_is_used_up() {
    /// Returns how many ready operations `poll_once` makes in one poll of the task.
    async fn drain() -> usize {
        let (mut near, mut far) = duplex(1_000);
        // One operation.
        near.write_all(&[0; 1_000]).await.unwrap();
        let (mut byte, mut count) = ([0], 0);
        while poll_once(far.read(&mut byte)).await.is_some() {
            count += 1;
        }
        count
    }
    in_every_runtime(|_| async {
        yield_now().await;
        assert_eq!(drain().await, 127);
        assert_eq!(polder::spawn(drain()).await, 31);
    });
}

#[test]
fn a_try_has_no_budget() {
    const COUNT: usize = 200;
    in_every_runtime(|_| async {
        let receiver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = receiver.local_addr().unwrap();
        for _ in 0..COUNT {
            sender.send_to(&[0], address).await.unwrap();
        }
        a_turn().await;
        let tries = (0..COUNT).take_while(|_| receiver.try_recv(&mut [0]).is_ok());
        assert_eq!(tries.count(), COUNT);
    });
}

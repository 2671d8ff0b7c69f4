//! What users of tokio take from tokio-util, tokio-stream and futures, in polder's tasks: the rows
//! of docs/MIGRATING.md, "tokio's companions". No tokio runs.

use std::io;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, body::Bytes};
use futures_util::stream::select;
use futures_util::{SinkExt, TryStreamExt};
use polder::io::{AsyncReadExt, AsyncWriteExt, duplex};
use polder::net::{TcpListener, TcpStream};
use polder::stream::{self, StreamExt};
use polder::time::{sleep, sleep_until, timeout};
use polder::{TaskSet, Timer};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::StreamMap;
use tokio_stream::wrappers::{BroadcastStream, ReceiverStream, WatchStream};
use tokio_util::codec::{Framed, LinesCodec};
use tokio_util::compat::FuturesAsyncReadCompatExt;
use tokio_util::io::{ReaderStream, StreamReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::everywhere;

const MS: Duration = Duration::from_millis(1);

#[test]
fn cancellation_token_ends_tasks() {
    everywhere(|_| async {
        assert!(Handle::try_current().is_err(), "no tokio runs");
        let token = CancellationToken::new();
        let child = token.child_token();
        let task = polder::spawn(async move {
            child
                .run_until_cancelled(std::future::pending::<()>())
                .await
        });
        token.cancel();
        assert!(task.await.is_none());
    });
}

#[test]
fn task_tracker_waits_for_tasks() {
    everywhere(|_| async {
        let tracker = TaskTracker::new();
        for _ in 0..3 {
            polder::spawn(tracker.track_future(sleep(MS))).detach();
        }
        tracker.close();
        tracker.wait().await;
        assert!(tracker.is_empty());
    });
}

#[test]
fn codecs_frame_polders_streams() {
    everywhere(|_| async {
        let (near, mut far) = duplex(64);
        let mut lines = Framed::new(near.compat(), LinesCodec::new_with_max_length(100));
        far.write_all(b"one\ntwo\n").await.expect("it is open");
        let line = lines.next().await.expect("a line");
        assert_eq!(line.expect("it is short"), "one");
        lines.send("three").await.expect("it is open");
        let mut bytes = [0; 6];
        far.read_exact(&mut bytes).await.expect("a line");
        assert_eq!(&bytes, b"three\n");
    });
}

#[test]
fn readers_are_streams_of_bytes_and_back() {
    everywhere(|_| async {
        let (near, mut far) = duplex(64);
        far.write_all(b"abc").await.expect("it is open");
        drop(far);
        let chunk = ReaderStream::new(near.compat()).next().await;
        assert_eq!(chunk.expect("bytes").expect("they are read"), "abc");
        let chunks = || stream::iter([io::Result::Ok(Bytes::from("abc"))]);
        let mut text = String::new();
        let mut reader = chunks().into_async_read();
        reader.read_to_string(&mut text).await.expect("it is text");
        assert_eq!(text, "abc");
        let mut reader = StreamReader::new(chunks());
        let mut bytes = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut bytes);
        assert_eq!(read.await.expect("they are read"), 3);
    });
}

#[test]
fn channels_are_streams_by_tokio_stream() {
    everywhere(|_| async {
        let (numbers, received) = mpsc::channel(1);
        let sender = polder::spawn(async move {
            for number in 0..3 {
                numbers.send(number).await.expect("it listens");
            }
        });
        let all: Vec<_> = ReceiverStream::new(received).collect().await;
        assert_eq!(all, [0, 1, 2]);
        sender.await;
        let (words, received) = broadcast::channel(4);
        words.send("a").expect("it listens");
        let word = BroadcastStream::new(received).next().await;
        assert_eq!(word.expect("a word").expect("none is lost"), "a");
        let (_value, watched) = watch::channel(7);
        assert_eq!(WatchStream::new(watched).next().await, Some(7));
        let mut map = StreamMap::new();
        map.insert("one", stream::iter([1]));
        map.insert("two", stream::iter([2]));
        let mut pairs: Vec<_> = map.collect().await;
        pairs.sort_unstable();
        assert_eq!(pairs, [("one", 1), ("two", 2)]);
    });
}

#[test]
fn streams_are_merged_and_throttled() {
    everywhere(|_| async {
        let merged = select(stream::iter([1, 3]), stream::iter([2]));
        let mut all: Vec<_> = merged.collect().await;
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
        let start = Instant::now();
        let slow = stream::iter(0..3).zip(Timer::interval(MS)).count();
        assert_eq!(slow.await, 3);
        assert!(start.elapsed() >= 2 * MS);
    });
}

#[test]
fn task_set_is_a_delay_queue() {
    everywhere(|_| async {
        let (mut queue, start) = (TaskSet::new(), Instant::now());
        let expire = |key, after| async move {
            sleep_until(start + after).await;
            key
        };
        queue.spawn(expire("late", 20 * MS));
        queue.spawn(expire("soon", MS));
        let removed = queue.spawn(expire("never", 10 * MS));
        removed.abort();
        assert_eq!(queue.join_next().await, Some("soon"));
        assert_eq!(queue.join_next().await, Some("late"));
    });
}

#[test]
fn futures_joins_many() {
    everywhere(|_| async {
        let ok = |number| async move { io::Result::Ok(number) };
        let (one, two, three) = futures_util::try_join!(ok(1), ok(2), ok(3)).expect("all are Ok");
        assert_eq!(one + two + three, 6);
        let all = futures_util::future::try_join_all((0..10).map(ok)).await;
        assert_eq!(all.expect("all are Ok").len(), 10);
    });
}

#[test]
fn middleware_limits_the_time_of_a_request() {
    async fn limited(request: Request, next: Next) -> Result<Response, StatusCode> {
        let answer = timeout(20 * MS, next.run(request)).await;
        answer.map_err(|_| StatusCode::GATEWAY_TIMEOUT)
    }
    everywhere(|_| async {
        let slow = get(async || sleep(Duration::from_secs(3600)).await);
        let app = Router::new().route("/", slow).layer(from_fn(limited));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let server = polder::spawn(polder_hyper::serve(listener, app).into_future());
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it is open");
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer).await;
        read.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
        drop(server);
    });
}

//! `async || {}` closures wherever a parameter is a function that returns a future.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use polder::future::yield_now;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, serve, serve_on_workers};
use polder::{Backend, Runtime};

use crate::probe::listen;

async fn greeted(address: std::net::SocketAddr) -> String {
    let mut text = String::new();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// A closure that captures nothing is a handler of `serve`.
///
/// Its future may own the closure's arguments, but could only borrow captures: those need a closure
/// that returns an `async move` block.
#[test]
fn capturing_nothing_as_server_handler() {
    for backend in Backend::available() {
        let runtime = Runtime::builder().backend(backend).workers(2).build();
        runtime.unwrap().block_on(async {
            let (listener, address) = listen().await;
            let client = async {
                assert_eq!(greeted(address).await, "hello");
            };
            let server = serve(listener, async |mut stream: TcpStream, _peer| {
                yield_now().await;
                stream.write_all(b"hello").await.unwrap();
            })
            .until(client)
            .grace(Duration::MAX);
            let summary = server.await;
            assert_eq!(summary.unwrap().finished, 1);

            let listeners = TcpListener::bind_balanced("127.0.0.1:0", 2).await.unwrap();
            let address = listeners[0].local_addr().unwrap();
            let client = async {
                assert_eq!(greeted(address).await, "hello");
            };
            let server = serve_on_workers(listeners, |_worker| {
                async |mut stream: TcpStream, _peer| {
                    let bytes = Rc::new(*b"hello"); // It stays on its worker.
                    yield_now().await;
                    stream.write_all(&*bytes).await.unwrap();
                }
            })
            .until(client)
            .grace(Duration::MAX);
            let summaries = server.await;
            let finished: u64 = summaries
                .unwrap()
                .iter()
                .map(|summary| summary.finished)
                .sum();
            assert_eq!(finished, 1);
        });
    }
}

/// A closure that borrows is the body of a scope; its tasks call it.
#[test]
fn borrowing_closure_as_scope_body() {
    let runtime = Runtime::new().unwrap();
    let (text, count) = (String::from("text"), Cell::new(0));
    let length = runtime.scope(async |scope| {
        let length = async || {
            yield_now().await;
            text.len()
        };
        let task = scope.spawn(length());
        let local = async |by: u32| {
            yield_now().await;
            count.set(count.get() + by);
        };
        scope.spawn_local(local(2));
        scope.spawn_local(local(3));
        task.await
    });
    assert_eq!((length, count.get()), (4, 5));
}

#[test]
fn one_that_captures_is_what_a_worker_is_given() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    for worker in 0..2 {
        let count = count.clone();
        let task = runtime.handle().spawn_on_worker(worker, async move || {
            let local = Rc::new(());
            yield_now().await;
            drop(local);
            count.fetch_add(1, SeqCst);
        });
        runtime.block_on(task);
    }
    assert_eq!(count.load(SeqCst), 2);
}

/// A closure passed to `unblock` returns a future that is awaited here.
///
/// The pool calls only the closure. Its future is the output: it runs where it is awaited.
#[test]
fn unblocked_closure_future_awaited_here() {
    polder::block_on(async {
        let here = std::thread::current().id();
        let future = polder::unblock(async || std::thread::current().id());
        assert_eq!(future.await.await, here);
        let there = polder::unblock(|| std::thread::current().id());
        assert_ne!(there.await, here);
    });
}

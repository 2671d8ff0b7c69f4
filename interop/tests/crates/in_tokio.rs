//! Crates that need tokio, inside polder by polder-tokio: reqwest, async-nats with its real server,
//! and tower-http's `TimeoutLayer` and `ServeDir` in axum. In each way: by the runtime's builder,
//! and future by future.

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use futures_concurrency::prelude::*;
use hyper::service::service_fn;
use polder::net::{TcpListener, TcpStream, serve};
use polder::stream::StreamExt;
use polder::{Backend, Runtime, Task};
use polder_hyper::serve_connection;
use polder_tokio::in_tokio;
use tokio::runtime::Handle;
use tower_http::services::ServeDir;
use tower_http::timeout::TimeoutLayer;

use crate::layers::ask;
use crate::shared::{LIMIT, Nats};
use crate::within;

/// How a task finds tokio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Builder,
    Future,
}

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Way {
    /// What a program does with the future of each task.
    fn of(self, future: impl Future<Output = ()> + Send + 'static) -> Boxed {
        match self {
            Way::Builder => Box::pin(future),
            Way::Future => Box::pin(in_tokio(future)),
        }
    }
}

/// Runs `rule` on every backend, with one worker and with two, in each way; in `block_on`, in a
/// task, and in a local task.
fn everywhere<F>(rule: impl Fn(Way) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    for backend in Backend::available() {
        for workers in [1, 2] {
            for way in [Way::Builder, Way::Future] {
                let rule = rule.clone();
                let what = format!("on {backend} with {workers}, by the {way:?}");
                within(what, move || {
                    let mut builder = Runtime::builder().backend(backend).workers(workers);
                    if way == Way::Builder {
                        builder = builder.on_thread_start(polder_tokio::enter().expect("tokio"));
                    }
                    let runtime = builder.build().expect("an available backend can be opened");
                    runtime.block_on(way.of(rule(way)));
                    runtime.block_on(runtime.spawn(way.of(rule(way))));
                    runtime.block_on(runtime.spawn_local(way.of(rule(way))));
                });
            }
        }
    }
}

/// Starts a server, with a task for each connection.
async fn server<F>(
    way: Way,
    connection: impl Fn(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, Task<()>)
where
    F: Future + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = polder::spawn(async move {
        let _ = serve(listener, move |stream, _| {
            let connection = connection(stream);
            way.of(async move { drop(connection.await) })
        })
        .await;
    });
    (address, server)
}

#[test]
fn reqwest_asks_a_server_on_polder() {
    everywhere(|way| async move {
        let connection = |stream| {
            let service = service_fn(interop::http::answer);
            serve_connection(stream, service, LIMIT, pending())
        };
        let (address, server) = server(way, connection).await;
        let client = reqwest::Client::builder().timeout(LIMIT).build();
        let client = client.expect("a client");
        let asked = (0..10).map(|number| {
            let client = client.clone();
            let count = number * 10_000;
            async move {
                // A name, which is looked up on tokio's threads.
                let port = address.port();
                let bytes = client.get(format!("http://localhost:{port}/bytes/{count}"));
                let bytes = bytes.send().await?.bytes().await?;
                assert_eq!(bytes.len(), count);
                let echo = client.post(format!("http://{address}/echo"));
                let echo = echo.body(bytes.clone()).send().await?;
                assert_eq!(echo.bytes().await?, bytes);
                Ok::<_, reqwest::Error>(())
            }
        });
        let answers = asked.collect::<Vec<_>>().try_join().await;
        answers.expect("all are answered");
        server.cancel().await;
    });
}

/// A request that takes too long is answered by tower-http's timeout layer.
#[test]
fn slow_request_gets_tower_timeout() {
    everywhere(|way| async move {
        let limit = Duration::from_millis(20);
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let app: Router = Router::new()
            .route("/stuck", get(pending::<String>))
            .layer(TimeoutLayer::with_status_code(status, limit));
        let connection = move |stream| serve_connection(stream, app.clone(), LIMIT, pending());
        let (address, server) = server(way, connection).await;
        let answer = reqwest::get(format!("http://{address}/stuck")).await;
        assert_eq!(answer.expect("an answer").status().as_u16(), 503);
        server.cancel().await;
    });
}

/// tower-http's `ServeDir` reads files by tokio.
#[test]
fn tower_http_serves_a_folder() {
    everywhere(|way| async move {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("page.html"), "<p>a page").expect("a file");
        let app: Router = Router::new().fallback_service(ServeDir::new(folder.path()));
        let connection = move |stream| serve_connection(stream, app.clone(), LIMIT, pending());
        let (address, server) = server(way, connection).await;
        let page = ask(address, "GET /page.html", "", "").await;
        assert!(page.contains("content-type: text/html"), "{page}");
        assert!(page.ends_with("<p>a page"), "{page}");
        server.cancel().await;
    });
}

#[test]
fn async_nats_publishes_subscribes_and_requests() {
    let Some(nats) = Nats::start() else { return };
    let url = nats.url.clone();
    everywhere(move |way| {
        let url = url.clone();
        async move {
            let client = async_nats::connect(url).await.expect("a connection");
            let subject = client.new_inbox();
            let questions = client.subscribe(subject.clone()).await;
            let mut questions = questions.expect("it subscribes");
            client.flush().await.expect("the server knows of it");
            let answerer = client.clone();
            // The destructor of `questions` spawns on tokio.
            let answers = polder::spawn(way.of(async move {
                while let Some(question) = questions.next().await {
                    let reply = question.reply.expect("it is asked for");
                    let said = answerer.publish(reply, question.payload).await;
                    said.expect("it is sent");
                }
            }));
            let asked = (0..50).map(|number| {
                let (client, subject) = (client.clone(), subject.clone());
                async move {
                    let text = number.to_string();
                    let answer = client.request(subject, text.clone().into()).await;
                    assert_eq!(answer.expect("an answer").payload, text);
                }
            });
            asked.collect::<Vec<_>>().join().await;
            answers.cancel().await;
            client.drain().await.expect("it ends");
        }
    });
}

/// A future spawned on tokio by a task runs on tokio's thread.
#[test]
fn tokio_spawn_runs_on_tokio_thread() {
    everywhere(|way| async move {
        let here = std::thread::current().id();
        let name = || std::thread::current().name().map(str::to_owned);
        let spawned = tokio::spawn(async move { (std::thread::current().id(), name()) });
        let (thread, name) = spawned.await.expect("it ends");
        assert_ne!(thread, here);
        assert_eq!(name.as_deref(), Some("polder-tokio"));
        // Its panic is an error there, and tokio's thread stays.
        let panicked = tokio::spawn(async { panic!("as intended") });
        assert!(panicked.await.expect_err("it panicked").is_panic());
        let blocking = tokio::task::spawn_blocking(|| 42);
        assert_eq!(blocking.await.expect("it ends"), 42);
        // And what it spawns on polder.
        let (sender, receiver) = mpsc::channel();
        let spawned = polder::spawn(way.of(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            sender.send(Handle::current().id()).expect("we wait");
        }));
        spawned.await;
        assert_eq!(receiver.recv(), Ok(Handle::current().id()));
    });
}

/// Both ends of one connection, one of them tokio's.
#[test]
fn tokios_sockets_talk_to_polders_in_one_task() {
    use polder::io::{AsyncReadExt, AsyncWriteExt};

    everywhere(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connect = tokio::net::TcpStream::connect(address);
        let (theirs, ours) = (connect, listener.accept()).join().await;
        let (mut theirs, (mut ours, _)) = (theirs.expect("it"), ours.expect("it"));
        for turn in 0..100_u8 {
            let mut byte = [turn];
            let there = tokio::io::AsyncWriteExt::write_all(&mut theirs, &byte);
            there.await.expect("it is sent");
            ours.read_exact(&mut byte).await.expect("it comes");
            ours.write_all(&byte).await.expect("it is sent");
            let back = tokio::io::AsyncReadExt::read_u8(&mut theirs).await;
            assert_eq!(back.expect("it comes"), turn);
        }
    });
}

/// A value whose destructor needs tokio, as some crates have.
struct SpawnsWhenDropped(mpsc::Sender<()>);

impl Drop for SpawnsWhenDropped {
    fn drop(&mut self) {
        let sender = self.0.clone();
        tokio::spawn(async move { sender.send(()) });
    }
}

/// A task that is cancelled is dropped within tokio.
#[test]
fn cancelled_task_dropped_within_tokio() {
    everywhere(|way| async move {
        let (sender, dropped) = mpsc::channel();
        let value = SpawnsWhenDropped(sender);
        let task = polder::spawn(way.of(async move {
            let _value = value;
            pending::<()>().await;
        }));
        polder::future::yield_now().await;
        task.cancel().await;
        dropped
            .recv_timeout(LIMIT)
            .expect("its destructor has found tokio");
    });
}

#[test]
fn tokio_is_left_when_a_futures_poll_ends() {
    within("one runtime".into(), || {
        let found = async || Handle::try_current().is_ok();
        assert!(!polder::block_on(found()));
        assert!(polder::block_on(in_tokio(found())));
        assert!(Handle::try_current().is_err());
    });
}

#[test]
fn a_thread_within_another_tokio_stays_there() {
    within("one thread".into(), || {
        let other = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("another");
        let entered = other.enter();
        polder_tokio::enter().expect("tokio");
        assert_eq!(Handle::current().id(), other.handle().id());
        // A guard that is dropped out of order would panic.
        drop(entered);
        assert!(Handle::try_current().is_err());

        polder_tokio::enter().expect("tokio");
        let ours = Handle::current().id();
        assert_ne!(ours, other.handle().id());
        other.block_on(async { assert_eq!(Handle::current().id(), other.handle().id()) });
        assert_eq!(Handle::current().id(), ours);
    });
}

#[test]
fn a_child_of_fork_has_a_tokio_of_its_own() {
    // SAFETY: the child uses polder and tokio, which start again there, and ends by libc::_exit,
    // without destructors. libc::alarm ends a child that hangs; both may always be called.
    within("a child".into(), || unsafe {
        polder_tokio::enter().expect("tokio");
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            let sleep = || tokio::time::sleep(Duration::from_millis(1));
            polder::block_on(in_tokio(async { sleep().await }));
            let Ok(enter) = polder_tokio::enter() else {
                libc::_exit(1)
            };
            let Ok(runtime) = Runtime::builder().on_thread_start(enter).build() else {
                libc::_exit(2)
            };
            runtime.block_on(async { sleep().await });
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7,
            "status {status:#x}"
        );
    });
}

/// Enter within a future has no effect in a child of fork either.
#[test]
fn enter_in_future_has_no_effect_after_fork() {
    // SAFETY: as above.
    within("a child".into(), || unsafe {
        polder_tokio::enter().expect("tokio");
        let child = polder::block_on(in_tokio(async {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                if polder_tokio::enter().is_err() {
                    libc::_exit(1);
                }
            }
            child
        }));
        if child == 0 {
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7,
            "status {status:#x}"
        );
    });
}

/// A task of a world that waits for tokio fails the run with the reason.
///
/// The worlds' platforms.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn world_task_waiting_for_tokio_fails_run() {
    within("a world".into(), || {
        let report = polder_sim::run(1, |_| async {
            in_tokio(async { tokio::time::sleep(Duration::from_millis(1)).await }).await;
        });
        let failure = report.failure.expect("tokio is no part of a world");
        assert!(failure.contains("thread"), "{failure}");
    });
}

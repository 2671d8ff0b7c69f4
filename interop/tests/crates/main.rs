//! Crates that do not know polder work inside it unchanged: channels, locks, files, processes,
//! combinators, HTTP/2, buses, databases, and crates that need tokio's reactor.

#![cfg(unix)]

mod amqp;
mod channels;
mod datagrams;
mod grpc;
mod hickory;
mod in_tokio;
mod layers;
mod limits;
mod locks;
mod names;
mod page;
mod postgres;
mod processes;
mod redis;
mod retries;
#[path = "../shared/mod.rs"]
mod shared;
mod smol;
mod sqlite;
mod utilities;
mod zbus;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use async_process::{Command, Stdio};
use futures_concurrency::prelude::*;
use polder::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use polder::net::{TcpListener, TcpStream};
use polder::stream::StreamExt;
use polder::time::sleep;
use polder::{Backend, Runtime};
use shared::LIMIT;
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// Runs `rule` on every backend, with its tasks on one thread and on three others.
fn everywhere<F>(rule: impl Fn(Backend) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()>,
{
    for backend in Backend::available() {
        for workers in [1, 3] {
            let rule = rule.clone();
            within(format!("on {backend} with {workers}"), move || {
                let runtime = Runtime::builder().backend(backend).workers(workers);
                let runtime = runtime.build().expect("an available backend can be opened");
                runtime.block_on(rule(backend));
            });
        }
    }
}

/// Runs `rule` on a separate thread: a lost wake-up is a failure, not an endless wait.
fn within(what: String, rule: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        rule();
        let _ = sender.send(());
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: not done after {LIMIT:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().expect("it is done"),
    }
}

#[test]
fn async_channel_joins_tasks_and_threads() {
    everywhere(|_| async {
        let (numbers, to_square) = async_channel::bounded::<u64>(2);
        let (squares, results) = async_channel::unbounded();
        for _ in 0..4 {
            let (to_square, squares) = (to_square.clone(), squares.clone());
            polder::spawn(async move {
                while let Ok(number) = to_square.recv().await {
                    squares.send(number * number).await.expect("we listen");
                }
            })
            .detach();
        }
        drop(squares);
        let feeder = thread::spawn(move || {
            for number in 1..=1_000 {
                numbers.send_blocking(number).expect("they listen");
            }
        });
        let sum: u64 = results.fold(0, |sum, square| sum + square).await;
        assert_eq!(sum, 1_000 * 1_001 * 2_001 / 6);
        feeder.join().expect("it ends");
    });
}

#[test]
fn async_lock_guards_what_tasks_share() {
    everywhere(|_| async {
        let total = Arc::new(async_lock::Mutex::new(0));
        let permits = Arc::new(async_lock::Semaphore::new(3));
        let barrier = Arc::new(async_lock::Barrier::new(20));
        let (inside, leaders) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = Vec::new();
        for _ in 0..20 {
            let (total, permits, barrier) = (total.clone(), permits.clone(), barrier.clone());
            let (inside, leaders) = (inside.clone(), leaders.clone());
            tasks.push(polder::spawn(async move {
                if barrier.wait().await.is_leader() {
                    leaders.fetch_add(1, Ordering::SeqCst);
                }
                let permit = permits.acquire().await;
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 3, "too many");
                sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
                // The guard is held while other tasks are polled.
                let mut total = total.lock().await;
                let before = *total;
                polder::future::yield_now().await;
                *total = before + 1;
            }));
        }
        tasks.join().await;
        assert_eq!(*total.lock().await, 20);
        assert_eq!(leaders.load(Ordering::SeqCst), 1);
    });
}

/// async-fs writes what a socket brings and reads it again.
#[test]
fn async_fs_writes_and_reads_socket_bytes() {
    everywhere(|backend| async move {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fs-{backend}"));
        let (mut there, mut here) = pair().await.expect("a connection");
        let sent: Vec<u8> = (0..3_000_000_u32)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8)
            .collect();
        let send = async {
            there.write_all(&sent).await?;
            there.close().await
        };
        let store = async {
            let mut file = async_fs::File::create(&file).await?;
            polder::io::copy(&mut here, &mut file).await?;
            file.sync_all().await
        };
        (send, store).try_join().await.expect("it is stored");
        assert_eq!(async_fs::read(&file).await.expect("it is there"), sent);
        let size = async_fs::metadata(&file).await.expect("it is there").len();
        assert_eq!(size, sent.len() as u64);
        async_fs::remove_file(&file).await.expect("it was there");
    });
}

#[test]
fn async_process_runs_20_children_at_once() {
    everywhere(|_| async {
        let children = (0..20).map(|number| async move {
            let mut child = Command::new("sh")
                .args(["-c", "while read line; do echo \"got $line\"; done; exit 7"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let mut stdin = child.stdin.take().expect("it is piped");
            let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
            let talk = async {
                for turn in 0..3 {
                    let line = format!("{number} {turn}\n");
                    stdin.write_all(line.as_bytes()).await?;
                }
                drop(stdin);
                io::Result::Ok(())
            };
            let listen = stdout.lines().try_collect::<_, _, Vec<_>>();
            let ((), lines) = (talk, listen).try_join().await?;
            let expected: Vec<_> = (0..3).map(|turn| format!("got {number} {turn}")).collect();
            assert_eq!(lines, expected);
            child.status().await
        });
        let ends = children.collect::<Vec<_>>().try_join().await;
        let ends = ends.expect("they run");
        assert!(ends.iter().all(|end| end.code() == Some(7)), "{ends:?}");
    });
}

/// futures-concurrency joins races and merges sockets and timers.
#[test]
fn futures_concurrency_joins_races_merges() {
    everywhere(|_| async {
        let (mut there, mut here) = pair().await.expect("a connection");
        let mut byte = [0];
        let quick = async {
            there.write_all(b"!").await?;
            here.read_exact(&mut byte).await.map(|()| "socket")
        };
        let slow = async {
            sleep(LIMIT).await;
            Ok("timer")
        };
        let first: io::Result<_> = (quick, slow).race().await;
        assert_eq!(first.expect("a byte comes"), "socket");

        let tick = |period| polder::Timer::interval(Duration::from_millis(period)).take(5);
        let ticks = (tick(1), tick(2), tick(3)).merge().count().await;
        assert_eq!(ticks, 15);

        let sum = AtomicUsize::new(0);
        (1..=100_usize)
            .collect::<Vec<_>>()
            .into_co_stream()
            .map(|number| async move {
                sleep(Duration::from_millis(1)).await;
                number
            })
            .for_each(async |number| {
                sum.fetch_add(number, Ordering::Relaxed);
            })
            .await;
        assert_eq!(sum.into_inner(), 5_050);
    });
}

/// h2 is written against tokio's traits: polder's streams speak them through tokio-util.
#[test]
fn h2_runs_on_polders_streams() {
    everywhere(|_| async {
        let (there, here) = pair().await.expect("a connection");
        let server = polder::spawn(async move {
            let mut connection = h2::server::handshake(there.compat()).await?;
            let mut requests = 0;
            while let Some(request) = connection.accept().await {
                let (request, mut respond) = request?;
                let mut body = respond.send_response(Default::default(), false)?;
                body.send_data(request.uri().path().to_owned().into(), true)?;
                requests += 1;
            }
            Ok::<_, h2::Error>(requests)
        });
        let (client, connection) =
            (h2::client::handshake(here.compat()).await).expect("the server greets");
        let connection = polder::spawn(connection);
        let asked = (0..50).map(|number| {
            let client = client.clone();
            async move {
                let path = format!("http://localhost/{number}");
                let request = http_of(&path);
                let (answer, _) = client.ready().await?.send_request(request, true)?;
                let mut body = answer.await?.into_body();
                let mut text = Vec::new();
                while let Some(bytes) = body.data().await {
                    text.extend_from_slice(&bytes?);
                }
                assert_eq!(text, format!("/{number}").as_bytes());
                Ok::<_, h2::Error>(())
            }
        });
        let answers = asked.collect::<Vec<_>>().try_join().await;
        answers.expect("all are answered");
        drop(client);
        connection.await.expect("the client ends well");
        assert_eq!(server.await.expect("the server ends well"), 50);
    });
}

fn http_of(uri: &str) -> hyper::Request<()> {
    hyper::Request::get(uri).body(()).expect("a request")
}

async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address: SocketAddr = listener.local_addr()?;
    let (there, here) = (TcpStream::connect(address), listener.accept())
        .try_join()
        .await?;
    Ok((there, here.0))
}

/// The output of a hundred children comes through async-io's reactor.
///
/// A child's output comes through async-io, and its end through a signal.
#[test]
fn output_of_a_hundred_children_by_async_io() {
    everywhere(|backend| async move {
        let children = match backend {
            Backend::AsyncIo => 100,
            _ => 5,
        };
        for number in 0..children {
            let mut command = Command::new("echo");
            let output = command
                .arg(number.to_string())
                .output()
                .await
                .expect("it runs");
            assert_eq!(output.stdout, format!("{number}\n").as_bytes());
        }
    });
}

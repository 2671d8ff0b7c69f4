//! A server of hyper with 50 clients, recorded and replayed: the order of its requests, and the
//! dates in its answers, are those of the recording.

#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::io::{Read, Write};
use std::time::Duration;

use hyper::service::service_fn;
use hyper::{Request, Response};
use polder::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

polder_replay::answer_for_libc!();

/// Returns a number that depends on the order of all requests, and the time that they took. `begin`
/// is called with the address.
async fn server(begin: impl Fn(std::net::SocketAddr)) -> (u64, Duration) {
    let start = polder::time::now();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    begin(listener.local_addr().unwrap());
    let sum = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let (stream, _) = listener.accept().await.unwrap();
        let sum = sum.clone();
        tasks.push(polder::spawn_local(async move {
            let service = service_fn(move |request: Request<polder_hyper::Body>| {
                let sum = sum.clone();
                async move {
                    let number: u64 = request.uri().path()[1..].parse().unwrap();
                    sum.store(
                        sum.load(Relaxed).wrapping_mul(31).wrapping_add(number),
                        Relaxed,
                    );
                    Ok::<_, hyper::Error>(Response::new(format!("{}", sum.load(Relaxed))))
                }
            });
            let _ = polder_hyper::serve_connection(
                stream,
                service,
                Duration::from_secs(20),
                std::future::pending(),
            )
            .await;
        }));
    }
    for task in tasks {
        task.await;
    }
    (sum.load(Relaxed), polder::time::now() - start)
}

/// A thread has keys of its own for its `HashMap`s.
fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(f).join().unwrap())
}

#[test]
fn http_of_50_clients() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("tape");
    let clients = |address| {
        for client in 0..50 {
            std::thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                for number in 0..20 {
                    write!(
                        stream,
                        "GET /{} HTTP/1.1\r\nhost: x\r\n\r\n",
                        client * 100 + number
                    )
                    .unwrap();
                    let mut bytes = [0; 4096];
                    assert!(stream.read(&mut bytes).unwrap() > 0);
                }
            });
        }
    };
    let recorded = on_thread(|| polder_replay::record(&path, server(clients)).unwrap());
    for _ in 0..20 {
        assert_eq!(
            on_thread(|| polder_replay::replay(&path, server(|_| ())).unwrap()),
            recorded
        );
    }
}

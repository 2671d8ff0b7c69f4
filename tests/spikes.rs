//! After a spike: the memory that thousands of connections or tasks have needed is free again when
//! they have gone, whatever stays. What the allocator does with it is its own affair.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polder::future::yield_now;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::{Backend, Runtime, TaskSet, time};

/// Counts the bytes that the process has allocated.
struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: forwards everything unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(size as isize - layout.size() as isize, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocated() -> isize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// One test at a time, since they share the count.
static ALONE: Mutex<()> = Mutex::new(());

/// How long memory may take to come back on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// The number of connections of a spike: each takes two descriptors of this process.
fn most(backend: Backend) -> usize {
    if backend == Backend::Select {
        return 400; // It has a limit of its own.
    }
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum.map_or(10_000, |most| most.min(10_000)).into();
        let _ = setrlimit(Resource::Nofile, limit);
        if let Some(most) = getrlimit(Resource::Nofile).current {
            return (most as usize / 2).saturating_sub(100).min(3_000);
        }
    }
    3_000
}

/// Opens so many connections, each of which gets an answer, and closes them.
fn spike(address: SocketAddr, connections: usize) {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(connect(address));
    }
}

fn connect(address: SocketAddr) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    exchange(&mut stream);
    stream
}

fn exchange(stream: &mut std::net::TcpStream) {
    stream.write_all(&[7; 8]).unwrap();
    stream.read_exact(&mut [0; 8]).unwrap();
}

async fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 64];
    let minute = Duration::from_secs(60);
    while let Ok(Ok(length @ 1..)) = time::timeout(minute, stream.read(&mut bytes)).await {
        if stream.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

/// Waits until no more than `more` bytes are allocated beyond `before`. The program goes on
/// meanwhile, by `goes_on`: a worker looks at its queue once in 64 runs.
fn comes_back(before: isize, more: isize, of: &str, mut goes_on: impl FnMut()) {
    let start = Instant::now();
    while allocated() - before > more {
        let left = allocated() - before;
        assert!(start.elapsed() < LIMIT, "{left} bytes are left of {of}");
        goes_on();
    }
}

/// Connections that have gone leave no memory behind.
///
/// Eight bytes for each of them at most, and what lists keep for the next ones.
#[test]
fn gone_connections_leave_no_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for backend in Backend::available() {
        // We cannot promise how much async-io keeps.
        if backend == Backend::AsyncIo {
            continue;
        }
        let connections = most(backend);
        for workers in [1, 2] {
            let runtime = Runtime::builder().backend(backend).workers(workers);
            let runtime = runtime.build().unwrap();
            let (tell, told) = channel();
            let server = runtime.handle().spawn(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    polder::spawn(echo(stream)).detach();
                }
            });
            // Not a timer, of which the heap has none when all connections have gone.
            let (end, ended) = async_channel::bounded(1);
            thread::spawn(move || {
                let run = || {
                    let address = told.recv().unwrap();
                    let mut stays = connect(address);
                    spike(address, 20);
                    let before = allocated();
                    spike(address, connections);
                    let more = (8 * connections as isize).max(32 << 10);
                    let of = format!("{connections} connections on {backend}, {workers} workers");
                    comes_back(before, more, &of, || exchange(&mut stays));
                    drop(stays);
                };
                let result = catch_unwind(AssertUnwindSafe(run));
                end.send_blocking(result).unwrap();
            });
            let client = runtime.block_on(async { ended.recv().await });
            drop(server);
            client.expect("the client says").unwrap();
        }
    }
}

/// Tasks that have ended leave no memory behind also in a set that goes on.
#[test]
fn ended_tasks_leave_no_memory() {
    const TASKS: usize = 50_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for workers in [1, 2] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        runtime.block_on(async {
            let mut set = TaskSet::new();
            set.spawn(std::future::pending::<()>());
            let before = allocated();
            for _ in 0..TASKS {
                set.spawn(yield_now());
            }
            for _ in 0..TASKS {
                set.join_next().await.unwrap();
            }
            // A queue is looked at once in many runs.
            for _ in 0..1_000 {
                polder::spawn(yield_now()).await;
            }
            comes_back(
                before,
                64 << 10,
                &format!("{TASKS} tasks, {workers} workers"),
                || thread::sleep(Duration::from_millis(5)),
            );
        });
    }
}

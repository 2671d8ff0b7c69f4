//! With [`Backend::AsyncIo`], polder and the crates that use async-io share one reactor.

use std::future::Future;
use std::net::{TcpListener as StdListener, TcpStream as StdStream, UdpSocket};
use std::process::Stdio;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use async_process::Command;
use polder::event::Event;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::poller::{Events, Interest, Mode, Poller, Token};
use polder::{Backend, Handle, Runtime, Timer, future};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `f` in a runtime on async-io's reactor, on a new thread, with a deadline.
fn run<F: Future<Output = ()>>(f: impl FnOnce() -> F + Send + 'static) {
    run_on(1, f);
}

fn run_on<F: Future<Output = ()>>(workers: usize, f: impl FnOnce() -> F + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        let runtime = Runtime::builder().backend(Backend::AsyncIo);
        let runtime = runtime.workers(workers).build();
        runtime.expect("it is compiled in").block_on(f());
        let _ = sender.send(());
    });
    match receiver.recv_timeout(LIMIT) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Timeout) => {
            panic!("not done after {LIMIT:?}: a wake-up was lost")
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it dropped its sender"))
        }
    }
}

/// Runs this program as a child that exits immediately.
async fn child() {
    let mut command = Command::new(std::env::current_exe().expect("this program's path"));
    command.arg("--list").stdin(Stdio::null());
    let output = command.output().await.expect("it runs");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("one_reactor_serves_both"), "{said}");
}

async fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = polder::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 5];
        for _ in 0..100 {
            stream.read_exact(&mut bytes).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        }
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = [0; 5];
    for _ in 0..100 {
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"hello");
    }
    server.await;
}

/// Asserts that there is one epoll in this process, after every thread had the opportunity to open
/// one.
#[cfg(target_os = "linux")]
fn there_is_one_reactor() {
    let start = Instant::now();
    while reactors() != 1 {
        assert!(start.elapsed() < LIMIT, "there are {} reactors", reactors());
        thread::yield_now();
    }
}

/// Returns the number of epolls in this process.
#[cfg(target_os = "linux")]
fn reactors() -> usize {
    let list = std::fs::read_dir("/proc/self/fd").expect("the list of descriptors");
    let is_epoll = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|it| it.ends_with("anon_inode:[eventpoll]"))
    };
    list.filter_map(Result::ok).filter(is_epoll).count()
}

#[test]
fn one_reactor_serves_both() {
    run(|| async {
        let start = Instant::now();
        let theirs = async_io::Timer::after(Duration::from_millis(20));
        let ours = Timer::after(Duration::from_millis(20));
        let timers = future::zip(theirs, ours);
        let work = future::zip(child(), echo());
        future::zip(timers, work).await;
        assert!(start.elapsed() >= Duration::from_millis(20));
        #[cfg(target_os = "linux")]
        there_is_one_reactor();
    });
}

#[test]
fn several_workers_share_it_too() {
    run_on(3, || async {
        let both = || polder::spawn(future::zip(child(), echo()));
        let tasks: Vec<_> = (0..6).map(|_| both()).collect();
        for task in tasks {
            task.await;
        }
        #[cfg(target_os = "linux")]
        there_is_one_reactor();
    });
}

#[test]
fn it_works_inside_async_ios_own_block_on() {
    run(|| async {
        async_io::block_on(async {
            let runtime = Runtime::builder().backend(Backend::AsyncIo).build();
            let runtime = runtime.expect("it is compiled in");
            runtime.block_on(future::zip(child(), echo()));
            async_io::Timer::after(Duration::from_millis(1)).await;
        });
    });
}

#[test]
fn what_is_in_async_io_already_can_be_waited_for() {
    run(|| async {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let mut peer = StdStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let theirs = Arc::new(async_io::Async::new(stream).unwrap());
        // The descriptor is only lent: the same one is twice in one reactor.
        let ours = polder::Async::new_nonblocking(theirs.clone()).unwrap();
        let both = future::zip(theirs.readable(), ours.readable());
        let peer = async {
            Timer::after(Duration::from_millis(1)).await;
            std::io::Write::write_all(&mut peer, b"x").unwrap();
        };
        let ((theirs_saw, ours_saw), ()) = future::zip(both, peer).await;
        theirs_saw.unwrap();
        ours_saw.unwrap();
    });
}

/// Polder has nothing pending: only a wake by async-io ends the wait.
#[test]
fn timers_of_async_ios_alone_end_a_wait() {
    run(|| async {
        for _ in 0..50 {
            async_io::Timer::after(Duration::from_millis(1)).await;
        }
        let task = polder::spawn(async { async_io::Timer::after(Duration::from_millis(1)).await });
        task.await;
    });
}

#[test]
fn sockets_of_async_ios_alone_end_a_wait() {
    run(|| async {
        let listener = async_io::Async::<StdListener>::bind(([127, 0, 0, 1], 0)).unwrap();
        let address = listener.get_ref().local_addr().unwrap();
        let server = polder::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 5];
            for _ in 0..100 {
                stream.read_exact(&mut bytes).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
            }
        });
        let mut stream = async_io::Async::<StdStream>::connect(address)
            .await
            .unwrap();
        let mut bytes = [0; 5];
        for _ in 0..100 {
            stream.write_all(b"hello").await.unwrap();
            stream.read_exact(&mut bytes).await.unwrap();
        }
        server.await;
    });
}

#[test]
fn the_output_of_a_hundred_children_comes() {
    run(|| async {
        for _ in 0..100 {
            child().await;
        }
    });
}

/// A waker that calls `call` once.
struct Calls<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Calls<F> {
    fn waker(call: F) -> Waker {
        Arc::new(Calls(Mutex::new(Some(call)))).into()
    }
}

impl<F: FnOnce() + Send> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        if let Some(call) = call {
            call();
        }
    }
}

/// A timer of async-io that calls `call`, on the thread that drives its reactor.
async fn called(call: impl FnOnce() + Send + 'static) {
    let mut timer = async_io::Timer::after(Duration::from_millis(2));
    let waker = Calls::waker(call);
    let polled = Future::poll(
        std::pin::Pin::new(&mut timer),
        &mut Context::from_waker(&waker),
    );
    assert!(polled.is_pending());
    // Kept until the call has been made: a dropped timer never calls its waker.
    polder::spawn(async move {
        let _timer = timer;
        std::future::pending::<()>().await;
    })
    .detach();
}

/// A spawn and a timer made by a waker in its reactor are not lost.
#[test]
fn waker_in_reactor_spawns_and_sets_timer() {
    for workers in [1, 2] {
        run_on(workers, || async {
            let done = Arc::new(Event::new());
            for _ in 0..20 {
                let (handle, told) = (Handle::current(), done.clone());
                called(move || {
                    let timer = async move {
                        Timer::after(Duration::from_millis(1)).await;
                        told.set();
                    };
                    handle.spawn(timer).detach();
                })
                .await;
                done.wait().await;
            }
        });
    }
}

/// A waker in its reactor may drive another runtime and wait for this one.
#[test]
fn waker_in_reactor_drives_other_runtime() {
    for workers in [1, 2] {
        run_on(workers, || async {
            let done = Arc::new(Event::new());
            for _ in 0..20 {
                let (handle, told) = (Handle::current(), done.clone());
                called(move || {
                    let inner = Runtime::builder()
                        .backend(Backend::AsyncIo)
                        .build()
                        .unwrap();
                    inner.block_on(handle.spawn(async { future::yield_now().await }));
                    told.set();
                })
                .await;
                // Stays busy meanwhile: polling the kernel must not wait for the thread that drives
                // async-io.
                let mut waits = done.wait();
                while future::poll_once(&mut waits).await.is_none() {
                    future::yield_now().await;
                }
            }
        });
    }
}

/// With room for one event, sources that are always ready in both directions leave room for one
/// that becomes ready late, whether the wait may sleep or not.
#[test]
fn ready_sources_leave_room_for_a_newcomer() {
    for timeout in [Some(Duration::ZERO), Some(Duration::from_secs(10)), None] {
        let poller = Poller::new(Backend::AsyncIo).unwrap();
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            (socket.send_to(b"x", socket.local_addr().unwrap())).unwrap();
            socket
        };
        let register = |socket: &UdpSocket, token| {
            let both = Interest::READABLE | Interest::WRITABLE;
            // SAFETY: the poller is dropped before the sockets.
            unsafe { poller.register(descriptor(socket), token, both, Mode::Level) }.unwrap();
        };
        let sockets = [bind(), bind(), bind(), bind(), bind()];
        let (last, others) = sockets.split_last().unwrap();
        for (number, socket) in others.iter().enumerate() {
            register(socket, Token(number as u64));
        }
        let mut events = Events::with_capacity(1);
        for _ in 0..5_000 {
            poller.wait(&mut events, timeout).unwrap();
        }
        register(last, Token(99));
        let told = (0..1_000).position(|_| {
            poller.wait(&mut events, timeout).unwrap();
            events.iter().any(|event| event.token() == Token(99))
        });
        assert!(told.is_some(), "1,000 events of others came before");
        drop(poller);
    }
}

#[cfg(unix)]
fn descriptor(socket: &UdpSocket) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(socket)
}

#[cfg(windows)]
fn descriptor(socket: &UdpSocket) -> std::os::windows::io::BorrowedSocket<'_> {
    std::os::windows::io::AsSocket::as_socket(socket)
}

#[test]
fn its_exceptions_are_told() {
    let poller = Poller::new(Backend::AsyncIo).expect("it is compiled in");
    let can = poller.capabilities();
    assert!(can.level && can.one_shot, "{can:?}");
    assert!(!can.edge && !can.hints && !can.descriptor, "{can:?}");
    assert_ne!(Backend::default(), Backend::AsyncIo, "only for who asks");
    let runtime = Runtime::builder().backend(Backend::AsyncIo).build();
    let error = runtime.unwrap().backend_fd().map(drop).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}

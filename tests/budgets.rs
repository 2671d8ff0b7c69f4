//! Exact budgets: allocations in the steady state, and system calls per round trip and per timer.
//! Counts, not times: the same on every machine.

#![allow(
    clippy::await_holding_refcell_ref,
    reason = "one future at a time borrows here"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::{Backend, Runtime, Timer, future, time};

#[path = "conformance/support.rs"]
#[allow(dead_code, reason = "made for the conformance suite")]
mod support;
use support::{LIMIT, in_every_runtime, in_every_runtime_alone, within};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending may have lost it.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: forwards everything unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

/// Returns the number of allocations of `f` on this thread, after enough runs for every buffer to
/// have grown.
async fn steady<F: Future<Output = ()>>(rounds: usize, mut f: impl FnMut() -> F) -> usize {
    for _ in 0..200 {
        f().await;
    }
    let before = allocations();
    for _ in 0..rounds {
        f().await;
    }
    allocations() - before
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (near, far)
}

/// Reading writing and local wakes allocate nothing.
#[test]
fn reads_writes_and_local_wakes_allocate_nothing() {
    in_every_runtime(async |backend| {
        // We cannot promise how much async-io allocates.
        if backend == Backend::AsyncIo {
            return;
        }
        let (mut near, mut far) = pair().await;
        // The first read certainly waits, since no data was written yet. Otherwise each answer
        // might arrive before its read, until counting has begun: the kernel may give the processor
        // to the answering task as soon as data is sent to it, if no other processor is free. Only
        // a wait registers the stream, and that allocates.
        let mut bytes = [0; 64];
        let mut greeting = near.read_exact(&mut bytes);
        assert!(future::poll_once(&mut greeting).await.is_none());
        polder::spawn(async move {
            let mut bytes = [0; 64];
            far.write_all(&bytes).await.unwrap();
            while let Ok(()) = far.read_exact(&mut bytes).await {
                far.write_all(&bytes).await.unwrap();
            }
        })
        .detach();
        greeting.await.unwrap();
        let mut bytes = [7; 64];
        let near = std::cell::RefCell::new(near);
        let counted = steady(1_000, || {
            let near = &near;
            async move {
                let mut near = near.borrow_mut();
                near.write_all(&bytes).await.unwrap();
                near.read_exact(&mut bytes).await.unwrap();
            }
        })
        .await;
        assert_eq!(counted, 0, "in 1,000 round trips on {backend}");
    });
}

/// Two threads wake each other in turn; each leaves its waker with the other.
#[test]
fn wakes_across_threads_allocate_nothing() {
    #[derive(Default)]
    struct Seat {
        turn: usize,
        wakers: [Option<Waker>; 2],
    }

    async fn play(seat: Arc<Mutex<Seat>>, me: usize, rounds: usize) -> usize {
        let mut before = 0;
        for round in 0..rounds {
            if round == rounds / 2 {
                before = allocations();
            }
            poll_fn(|cx| {
                let mut seat = seat.lock().unwrap();
                if seat.turn % 2 == me {
                    return Poll::Ready(());
                }
                seat.wakers[me] = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            let other = {
                let mut seat = seat.lock().unwrap();
                seat.turn += 1;
                seat.wakers[1 - me].take()
            };
            if let Some(waker) = other {
                waker.wake();
            }
        }
        allocations() - before
    }

    for backend in Backend::available() {
        let seat = Arc::new(Mutex::new(Seat::default()));
        let threads = [0, 1].map(|me| {
            let seat = seat.clone();
            std::thread::spawn(move || {
                let runtime = Runtime::builder().backend(backend).build().unwrap();
                // As a task, so that the wake goes through the inbox.
                let task = runtime.spawn(play(seat, me, 2_000));
                runtime.block_on(task)
            })
        });
        let counts = within(LIMIT, &format!("on {backend}"), || {
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(counts, [0, 0], "in 1,000 wakes each on {backend}");
    }
}

#[test]
fn setting_a_timer_anew_allocates_nothing() {
    in_every_runtime(async |backend| {
        let sleep = std::cell::RefCell::new(time::sleep(Duration::from_secs(3600)));
        let counted = steady(1_000, || {
            let sleep = &sleep;
            async move {
                let mut sleep = sleep.borrow_mut();
                sleep.reset(Instant::now() + Duration::from_secs(1800));
                assert!(future::poll_once(&mut *sleep).await.is_none());
            }
        })
        .await;
        assert_eq!(counted, 0, "in 1,000 resets on {backend}");

        let counted = steady(1_000, || async {
            let timer = Timer::after(Duration::from_secs(3600));
            assert!(future::poll_once(timer).await.is_none());
        })
        .await;
        assert_eq!(
            counted, 0,
            "in 1,000 timers made, polled and dropped on {backend}"
        );
    });
}

/// Our own backends. We cannot promise what the crates `polling` (on Linux it arms its notifier and
/// its timerfd for each wait) and async-io spend.
#[cfg(target_os = "linux")]
fn ours() -> Vec<Backend> {
    let mut ours = Backend::available();
    ours.retain(|backend| !matches!(backend, Backend::Polling | Backend::AsyncIo));
    ours
}

/// The backends with one system call for each wait: not the model of kqueue (ci/kqueue.sh); the
/// library's own tests count calls of `kevent`.
#[cfg(target_os = "linux")]
fn traceable() -> Vec<Backend> {
    let mut ours = ours();
    ours.retain(|backend| *backend != Backend::Kqueue);
    ours
}

/// Counts clock reads in place of the C library.
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    not(miri)
))]
mod clock {
    use super::*;

    thread_local! {
        static READS: Cell<usize> = const { Cell::new(0) };
    }

    /// Replaces the C library's function, for every clock.
    ///
    /// # Safety
    ///
    /// Same as for the C library's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(
        id: libc::clockid_t,
        time: *mut libc::timespec,
    ) -> libc::c_int {
        READS.set(READS.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { libc::syscall(libc::SYS_clock_gettime, id, time) as libc::c_int }
    }

    /// The minimum of several sleeps, since a wait that a signal interrupts reads the clock once
    /// more.
    fn fewest_reads_of_a_sleep(backend: Backend, duration: Duration) -> usize {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(async {
            // The first sleep does one-time initialization.
            time::sleep(duration).await;
            let mut fewest = usize::MAX;
            for _ in 0..20 {
                let before = READS.get();
                time::sleep(duration).await;
                fewest = fewest.min(READS.get() - before);
            }
            fewest
        })
    }

    /// A sleep reads the clock when it is made and when its worker goes to sleep.
    #[test]
    fn sleep_reads_clock_twice() {
        for backend in ours() {
            // On epoll the last part of a long sleep is another wait.
            for (micros, most) in [(300, 2), (2_000, 2), (20_000, 2), (60_000, 3)] {
                let duration = Duration::from_micros(micros);
                let reads = fewest_reads_of_a_sleep(backend, duration);
                assert!(
                    (1..=most).contains(&reads),
                    "{reads} for {duration:?} on {backend}"
                );
            }
        }
    }
}

#[test]
fn a_spawn_allocates_once() {
    // (If workers share tasks that have not started, that queue allocates for 31 tasks in one go.)
    // Without optimisation the future is boxed, which is a second allocation.
    const THOUSAND_SPAWNS: usize = if cfg!(debug_assertions) { 2_000 } else { 1_000 };
    in_every_runtime_alone(async |backend| {
        let counted = steady(1_000, || polder::spawn(async {})).await;
        assert!(counted <= THOUSAND_SPAWNS, "{counted} on {backend}");
        let counted = steady(1_000, || async {
            polder::spawn(future::yield_now()).detach();
            future::yield_now().await;
        })
        .await;
        assert!(
            counted <= THOUSAND_SPAWNS,
            "{counted} detached on {backend}"
        );
    });
}

#[test]
fn yielding_allocates_nothing() {
    in_every_runtime(async |backend| {
        let counted = steady(1_000, future::yield_now).await;
        assert_eq!(counted, 0, "in 1,000 yields on {backend}");
    });
}

/// How often the workers of a pool go to sleep, all together, while it has little to do.
mod sleeps_of_pools {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const EVENTS: usize = 100;

    fn sleeps(runtime: &Runtime) -> usize {
        let pool = runtime.metrics().workers.into_iter();
        pool.take(runtime.workers()).map(|it| it.parks).sum()
    }

    /// Asserts that there are at most `tenths` tenths of a sleep for each event, of which `events`
    /// makes that number and more. In one of several intervals: on a loaded machine a worker that
    /// the system takes off its processor looks stuck, and then another one is woken to help.
    fn assert_few(runtime: &Runtime, tenths: usize, mut events: impl FnMut() -> usize) {
        let mut all = Vec::new();
        let is_few = (0..20).any(|_| {
            let before = sleeps(runtime);
            let events = events();
            let each = (sleeps(runtime) - before) * 10 / events;
            all.push(each);
            each <= tenths
        });
        assert!(is_few, "tenths of a sleep for each event: {all:?}");
    }

    fn pools() -> impl Iterator<Item = Runtime> {
        [2, 4].into_iter().map(|workers| {
            let builder = Runtime::builder().workers(workers);
            builder.build().expect("a pool")
        })
    }

    /// A request now and then is little more than one sleep.
    #[test]
    fn sparse_request_costs_little_over_one_sleep() {
        for runtime in pools() {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let echo = runtime.spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    stream.write_all(&byte).await.unwrap();
                }
            });
            let mut client = std::net::TcpStream::connect(address).unwrap();
            assert_few(&runtime, 12, || {
                for _ in 0..EVENTS {
                    std::thread::sleep(Duration::from_millis(1));
                    client.write_all(&[7]).unwrap();
                    client.read_exact(&mut [0]).unwrap();
                }
                EVENTS
            });
            drop(client);
            runtime.block_on(echo);
        }
    }

    /// A ticker is little more than one sleep a tick.
    #[test]
    fn ticker_costs_little_over_one_sleep_per_tick() {
        for runtime in pools() {
            let ticks = Arc::new(AtomicUsize::new(0));
            let ticker = {
                let ticks = ticks.clone();
                runtime.spawn(async move {
                    let mut interval = time::interval(Duration::from_millis(10));
                    loop {
                        interval.tick().await;
                        ticks.fetch_add(1, SeqCst);
                    }
                })
            };
            assert_few(&runtime, 12, || {
                let before = ticks.load(SeqCst);
                std::thread::sleep(Duration::from_millis(10 * EVENTS as u64 / 2));
                ticks.load(SeqCst) - before
            });
            drop(ticker);
        }
    }
}

/// System calls, counted by tracing a child: this same program, with its job in the environment.
#[cfg(target_os = "linux")]
mod system_calls {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use polder::net::{Datagram, Received, UdpSocket};

    const TASK: &str = "POLDER_BUDGET_TASK";
    const ROUNDS: usize = 50;

    /// The job of the traced child; does nothing when the suite runs it.
    #[test]
    fn the_traced_child() {
        let Ok(task) = std::env::var(TASK) else {
            return;
        };
        let (task, backend) = task.split_once(' ').unwrap();
        let backend: Backend = backend.parse().unwrap();
        let mut builder = Runtime::builder().backend(backend);
        if task == "spin" {
            builder = builder.busy_poll(Duration::from_millis(20));
        }
        let runtime = builder.build().unwrap();
        runtime.block_on(async {
            match task {
                "echo" | "ends" => {
                    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                    let port = listener.local_addr().unwrap().port();
                    // Not `println!`, which the test harness captures.
                    writeln!(std::io::stdout(), "port {port}").unwrap();
                    let connections = if task == "echo" { 1 } else { ROUNDS };
                    let mut tasks = Vec::new();
                    for _ in 0..connections {
                        let (mut stream, _) = listener.accept().await.unwrap();
                        tasks.push(polder::spawn(async move {
                            let mut bytes = [0; 256];
                            loop {
                                let read = stream.read(&mut bytes).await.unwrap();
                                if read == 0 {
                                    break;
                                }
                                stream.write_all(&bytes[..read]).await.unwrap();
                            }
                        }));
                    }
                    for task in tasks {
                        task.await;
                    }
                }
                "connect" => {
                    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                    let address = listener.local_addr().unwrap();
                    for _ in 0..ROUNDS {
                        let mut near = TcpStream::connect(address).await.unwrap();
                        let (mut far, _) = listener.accept().await.unwrap();
                        let mut bytes = [7; 64];
                        near.write_all(&bytes).await.unwrap();
                        far.read_exact(&mut bytes).await.unwrap();
                        far.write_all(&bytes).await.unwrap();
                        near.read_exact(&mut bytes).await.unwrap();
                    }
                }
                "many" => {
                    let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    let to = Some(near.local_addr().unwrap());
                    let datagrams = [Datagram {
                        bytes: b"hello",
                        to,
                    }; 8];
                    for _ in 0..ROUNDS {
                        assert_eq!(near.send_many(&datagrams).await.unwrap(), 8);
                        let mut memory = [[0; 64]; 9];
                        let mut buffers = memory.each_mut().map(|bytes| IoSliceMut::new(bytes));
                        let mut received = [Received::default(); 9];
                        let count = near.recv_many(&mut buffers, &mut received).await;
                        assert_eq!(count.unwrap(), 8);
                    }
                }
                "look" | "spin" => {
                    // A registered source to poll for.
                    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                    let receive = polder::spawn(async move { socket.recv(&mut [0]).await });
                    for _ in 0..ROUNDS {
                        match task {
                            "look" => repeat_yield(1_000).await,
                            _ => time::sleep(Duration::from_millis(1)).await,
                        }
                    }
                    drop(receive);
                }
                "sleep" => {
                    // On a busy machine a sleep may be over before its thread parks.
                    let handle = polder::Handle::current();
                    while handle.metrics().workers[0].parks < ROUNDS {
                        time::sleep(Duration::from_millis(1)).await;
                    }
                }
                #[cfg(feature = "fs")]
                "files" => {
                    for _ in 0..ROUNDS {
                        polder::fs::read("Cargo.toml").await.unwrap();
                    }
                    time::sleep(Duration::from_millis(1)).await;
                }
                other => panic!("no task {other}"),
            }
        });
        std::process::exit(0);
    }

    async fn repeat_yield(times: usize) {
        for _ in 0..times {
            future::yield_now().await;
        }
    }

    /// Runs the child and returns the names of the system calls of its busiest thread, in order.
    /// `client` is called on another thread with the port that the child prints, if any.
    #[expect(clippy::zombie_processes, reason = "the tracing waits for it")]
    fn trace(task: &str, backend: Backend, client: Option<fn(u16)>) -> Vec<&'static str> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "system_calls::the_traced_child", "--nocapture"])
            .env(TASK, format!("{task} {backend}"))
            .stdout(Stdio::piped());
        // SAFETY: only an async-signal-safe call is made between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let mut child = command.spawn().expect("a child that may be traced");
        let pid = child.id() as libc::pid_t;
        let output = BufReader::new(child.stdout.take().unwrap());
        let (done, watch) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if watch.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                // SAFETY: plain system call; the child has not been waited for, so the number is
                // still its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        });
        let client = std::thread::spawn(move || {
            let port = output.lines().find_map(|line| {
                let line = line.ok()?;
                line.rsplit_once("port ")?.1.trim().parse().ok()
            });
            if let (Some(client), Some(port)) = (client, port) {
                client(port);
            }
        });

        let mut calls: BTreeMap<libc::pid_t, Vec<&'static str>> = BTreeMap::new();
        let mut entered: BTreeMap<libc::pid_t, bool> = BTreeMap::new();
        let mut first = true;
        loop {
            let mut status = 0;
            // SAFETY: plain system call with room for the status.
            let thread =
                unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
            assert!(thread > 0, "the child went without a word");
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                if thread == pid {
                    assert_eq!(status, 0, "the child failed, or took longer than {LIMIT:?}");
                    break;
                }
                continue;
            }
            let mut signal = libc::WSTOPSIG(status);
            if first {
                first = false;
                let options = libc::PTRACE_O_TRACESYSGOOD
                    | libc::PTRACE_O_TRACECLONE
                    | libc::PTRACE_O_EXITKILL;
                // SAFETY: the thread is stopped, and traced by this one.
                unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, thread, 0, options) };
                signal = 0;
            } else if signal == libc::SIGTRAP | 0x80 {
                signal = 0;
                let inside = entered.entry(thread).or_default();
                *inside = !*inside;
                if *inside {
                    calls.entry(thread).or_default().push(name(thread));
                }
            } else if signal == libc::SIGTRAP || signal == libc::SIGSTOP {
                signal = 0; // A new thread.
            }
            // SAFETY: the thread is stopped, and traced by this one.
            unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal) };
        }
        drop(done);
        client.join().unwrap();
        calls
            .into_values()
            .max_by_key(|calls| calls.iter().filter(|name| **name == "wait").count())
            .expect("a thread was traced")
    }

    /// The system call that a stopped thread is about to make.
    fn name(thread: libc::pid_t) -> &'static str {
        // SAFETY: all zero is a value of this plain structure.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: the thread is stopped, and the kernel writes at most `size` bytes.
        let got =
            unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut info) };
        assert!(got > 0, "PTRACE_GET_SYSCALL_INFO (Linux 5.3)");
        // SAFETY: at a stop on entry, this is the part that the kernel has written.
        let number = unsafe { info.u.entry.nr } as libc::c_long;
        match number {
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_ppoll => "wait",
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait | libc::SYS_poll | libc::SYS_select => "wait",
            libc::SYS_pselect6 | libc::SYS_io_uring_enter => "wait",
            libc::SYS_recvfrom => "receive",
            libc::SYS_sendto => "send",
            libc::SYS_recvmmsg => "receive many",
            libc::SYS_sendmmsg => "send many",
            libc::SYS_socket => "socket",
            libc::SYS_connect => "connect",
            libc::SYS_accept4 => "accept",
            libc::SYS_getsockopt => "getsockopt",
            libc::SYS_getpeername => "getpeername",
            libc::SYS_epoll_ctl => "epoll_ctl",
            libc::SYS_openat2 => "open",
            libc::SYS_statx => "look",
            libc::SYS_preadv2 => "read file",
            libc::SYS_close => "close",
            // A debug build's `OwnedFd` checks that it is open before closing it.
            libc::SYS_fcntl => "fcntl",
            libc::SYS_read => "read",
            libc::SYS_write => "write",
            libc::SYS_timerfd_settime => "timerfd_settime",
            // On systems that read the clock by a system call.
            libc::SYS_clock_gettime => "clock",
            _ => "other",
        }
    }

    /// An echo round trip is one wait one receive and one send.
    #[test]
    fn echo_round_trip_is_wait_receive_send() {
        for backend in traceable() {
            let calls = trace(
                "echo",
                backend,
                Some(|port| {
                    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
                    stream.set_nodelay(true).unwrap();
                    for _ in 0..ROUNDS {
                        let mut bytes = [7; 64];
                        stream.write_all(&bytes).unwrap();
                        stream.read_exact(&mut bytes).unwrap();
                    }
                }),
            );
            // From the third send (the connection is established, and its first wait over) to the
            // last.
            let sends: Vec<_> = (0..calls.len()).filter(|i| calls[*i] == "send").collect();
            assert_eq!(sends.len(), ROUNDS, "on {backend}: {calls:?}");
            let mut established = calls[sends[2] + 1..=sends[ROUNDS - 1]].to_vec();
            let mut expected = ["wait", "receive", "send"].repeat(ROUNDS - 3);
            // On a loaded machine the data may be there before the worker waits: a ring is then
            // looked at without a system call.
            if backend == Backend::IoUring {
                let all = established.len();
                for calls in [&mut established, &mut expected] {
                    calls.retain(|name| *name != "wait");
                }
                let waits = all - established.len();
                assert!(waits <= ROUNDS - 3, "{waits} waits: {calls:?}");
            }
            assert_eq!(established, expected, "on {backend}");
        }
    }

    /// An ended connection is one receive one deregistration and one close.
    ///
    /// A burst of ends spends its time in the kernel, so polder makes no more calls than needed.
    #[test]
    fn ended_connection_is_three_calls() {
        for backend in traceable() {
            let calls = trace(
                "ends",
                backend,
                Some(|port| {
                    let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
                    let mut streams: Vec<_> = (0..ROUNDS).map(|_| connect()).collect();
                    for stream in &mut streams {
                        stream.write_all(&[7]).unwrap();
                        stream.read_exact(&mut [0]).unwrap();
                    }
                    // All in one burst.
                    drop(streams);
                }),
            );
            let last_send = calls.iter().rposition(|name| *name == "send").unwrap();
            let count = |what| {
                calls[last_send..]
                    .iter()
                    .filter(|name| **name == what)
                    .count()
            };
            assert_eq!(count("receive"), ROUNDS, "on {backend}: {calls:?}");
            // The listener is closed as well.
            assert_eq!(count("close"), ROUNDS + 1, "on {backend}: {calls:?}");
            match backend {
                // The last connection may also be registered after its reply.
                Backend::Epoll => assert!(count("epoll_ctl") <= ROUNDS + 2, "{calls:?}"),
                _ => assert_eq!(count("epoll_ctl"), 0, "on {backend}: {calls:?}"),
            }
            let others = count("read") + count("write") + count("other");
            assert!(others <= 5, "on {backend}: {calls:?}");
        }
    }

    /// No call but these of its two ends, if the kernel says of a socket that is writable that it
    /// is connected. The accepted end reads at once, and so is never registered.
    #[test]
    fn a_connection_costs_no_call_that_tells_nothing() {
        let calls = trace("connect", Backend::Epoll, None);
        let of_rounds = |name| {
            let is_one = |index: &usize| calls[*index] == name;
            (0..calls.len()).filter(is_one).collect::<Vec<_>>()
        };
        let connects = of_rounds("connect");
        assert_eq!(connects.len(), ROUNDS, "{calls:?}");
        let rounds = &calls[connects[1]..connects[ROUNDS - 1]];
        let mut counts = BTreeMap::new();
        for name in rounds {
            *counts.entry(*name).or_insert(0) += 1;
        }
        // Waiting twice: for the connection, and for the answer. A debug build checks with `fcntl`
        // that a descriptor is open before closing it.
        counts.remove("wait");
        counts.remove("fcntl");
        let each = ROUNDS - 2;
        let expected = [
            ("accept", each),
            ("close", 2 * each),
            ("connect", each),
            ("epoll_ctl", 2 * each),
            ("receive", 2 * each),
            ("send", 2 * each),
            ("socket", each),
        ];
        assert_eq!(
            counts.into_iter().collect::<Vec<_>>(),
            expected,
            "{rounds:?}"
        );
        let checks = rounds.iter().filter(|name| **name == "fcntl").count();
        assert!(checks <= 2 * each, "{checks} calls of fcntl: {rounds:?}");
    }

    #[test]
    fn many_datagrams_are_one_call() {
        for backend in traceable() {
            let calls = trace("many", backend, None);
            let count = |what| calls.iter().filter(|name| **name == what).count();
            // A call that found nothing would be one more.
            assert_eq!(count("send many"), ROUNDS, "on {backend}: {calls:?}");
            assert_eq!(count("receive many"), ROUNDS, "on {backend}: {calls:?}");
            assert_eq!(
                count("receive") + count("send"),
                0,
                "on {backend}: {calls:?}"
            );
        }
    }

    /// A short sleep is one wait and at most one more call.
    #[test]
    fn short_sleep_is_one_wait_and_one_call_at_most() {
        for backend in traceable() {
            let calls = trace("sleep", backend, None);
            let waits: Vec<_> = (0..calls.len()).filter(|i| calls[*i] == "wait").collect();
            // An interrupted wait, or one that ended slightly early, would add one. On a busy
            // machine a sleep may also be over after the worker has counted that it parks: a ring
            // is then looked at without a system call.
            assert!(
                waits.len() >= ROUNDS / 2,
                "on {backend}: {} waits for {ROUNDS} sleeps",
                waits.len()
            );
            // Skips the first waits: they allocate memory, and compare the clock with the kernel's,
            // once (`sys::has_kernel_clock`). On a busy machine some of them are more.
            const FIRST: usize = 7;
            let counted: Vec<_> = calls[waits[FIRST] + 1..=waits[waits.len() - 1]]
                .iter()
                .filter(|name| **name != "clock")
                .collect();
            let sleeps = waits.len() - 1 - FIRST;
            assert!(
                counted.len() <= sleeps * 2,
                "on {backend}: {} calls for {sleeps} sleeps: {counted:?}",
                counted.len()
            );
        }
    }

    #[test]
    fn looking_at_a_ring_costs_no_system_call() {
        if !Backend::IoUring.is_available() {
            return;
        }
        // Between tasks that are always ready, and while the worker spins before it would sleep:
        // hundreds or thousands of polls.
        for task in ["look", "spin"] {
            let calls = trace(task, Backend::IoUring, None);
            let waits = calls.iter().filter(|name| **name == "wait").count();
            assert!(waits > 0, "{task}: nothing is registered: {calls:?}");
            assert!(waits <= 20, "{task}: {waits} calls");
        }
    }

    /// A small file is read by seven calls and no thread.
    ///
    /// Of a file that is in memory, on a disk that can be asked for that.
    #[cfg(feature = "fs")]
    #[test]
    fn small_file_is_seven_calls_no_thread() {
        let disk = rustix::fs::statfs("Cargo.toml").unwrap().f_type;
        if disk != 0xEF53 || std::env::var_os("POLDER_FS").is_some() {
            return; // Not ext4.
        }
        let calls = trace("files", Backend::default(), None);
        let mut calls = calls.into_iter().filter(|name| *name != "fcntl");
        // The first ones of a process ask a thread what kind of disk it is.
        let established = calls.by_ref().skip_while(|name| *name != "read file");
        let established: Vec<_> = established.take(1 + 7 * (ROUNDS - 10)).collect();
        let round = [
            "read file",
            "close",
            "open",
            "look",
            "close",
            "open",
            "look",
        ];
        let expected = [&round.repeat(ROUNDS - 10)[..], &["read file"]].concat();
        assert_eq!(established, expected);
    }
}

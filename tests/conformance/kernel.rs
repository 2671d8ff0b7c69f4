//! Rare behaviour of the kernel: an error queue that is not read (rule 67), a process that is
//! stopped and continued (rule 69), a system call that is refused (rule 70).
//!
//! These rules are about Linux. On other platforms the tests exist, so that the list of rules is
//! the same, and are empty.

#[test]
fn rule_67_unread_error_queue_is_harmless() {
    #[cfg(target_os = "linux")]
    linux::an_error_queue();
}

/// Rule 69: a timer is not late by the time that its process was stopped.
#[test]
fn rule_69_timer_on_time_after_process_stop() {
    #[cfg(target_os = "linux")]
    linux::a_stop();
}

/// Rule 70: a backend works without what it can do without.
#[test]
fn rule_70_backend_works_without_optionals() {
    #[cfg(target_os = "linux")]
    linux::without_eventfd_and_timerfd();
}

/// Rule 70: connections are accepted where only the older call is allowed.
#[test]
fn rule_70_accepts_by_older_call() {
    #[cfg(target_os = "linux")]
    linux::without_accept4();
}

/// Rule 70: a backend that cannot be opened says which and why.
#[test]
fn rule_70_unopenable_backend_says_which_and_why() {
    #[cfg(target_os = "linux")]
    linux::words();
}

#[test]
fn rule_70_a_refused_wait_opens_the_next_backend() {
    // In processes of their own, in which no poller was opened before the filter.
    #[cfg(target_os = "linux")]
    crate::child::in_children(|backend| {
        linux::refused_waits(backend);
    });
}

#[cfg(target_os = "linux")]
pub mod linux {
    use std::future::Future;
    use std::io::{self, BufRead, BufReader, Write};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use polder::net::UdpSocket;
    use polder::poller::{Events, Interest, Mode, Poller, Token};
    use polder::{Backend, Runtime, future, time};

    use crate::support::{LIMIT, in_every_runtime_alone, on_every_backend_alone, refuse, within};

    // Rule 67.

    /// Returns a socket with an error in its queue, and none pending: `IP_RECVERR`, and a send to
    /// an unused port.
    async fn with_an_unread_error() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let on: libc::c_int = 1;
        // SAFETY: the kernel reads one `int`.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_RECVERR,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        // Its own peer: it receives from no other socket, and no other test gets its port.
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = nobody.local_addr().unwrap();
        nobody.connect(address).unwrap();
        socket.send_to(b"is anybody there?", address).await.unwrap();
        // This clears the socket's pending error; the error queue keeps it.
        let error = socket.recv_from(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        socket
    }

    pub fn an_error_queue() {
        /// The limit of attempts in a third of a second. A loop that spins makes tens of thousands.
        const MANY: usize = 300;
        in_every_runtime_alone(async |backend| {
            let socket = with_an_unread_error().await;
            let (mut attempts, mut bytes) = (0, [0; 8]);
            {
                let mut receive = pin!(socket.recv_from(&mut bytes));
                let counted = std::future::poll_fn(|cx| {
                    attempts += 1;
                    receive.as_mut().poll(cx)
                });
                let result = time::timeout(Duration::from_millis(330), counted).await;
                assert!(result.is_err(), "there is nothing to receive: {result:?}");
            }
            assert!(attempts < MANY, "{attempts} attempts on {backend}");

            // Arriving data is not delayed.
            let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            let mut took = Vec::new();
            for _ in 0..20 {
                let start = Instant::now();
                let receive = socket.recv_from(&mut bytes);
                let send = async {
                    // By then the receiver waits.
                    future::yield_now().await;
                    far.send_to(b"data", address).unwrap();
                };
                let (received, ()) = future::zip(receive, send).await;
                assert_eq!(received.unwrap().0, 4);
                took.push(start.elapsed());
            }
            assert_most_are_soon(took, backend);

            // Nor is it delayed by `Async`, which polls the kernel before each wait, and gets the
            // error reported.
            let socket = std::net::UdpSocket::try_from(socket).unwrap();
            let socket = polder::Async::new(socket).unwrap();
            let mut attempts = 0;
            let receive = socket.read_with(|socket| {
                attempts += 1;
                socket.recv(&mut [0; 8])
            });
            let result = time::timeout(Duration::from_millis(330), receive).await;
            assert!(result.is_err(), "there is nothing to receive: {result:?}");
            assert!(attempts < MANY, "{attempts} attempts by Async on {backend}");
            let mut took = Vec::new();
            for _ in 0..20 {
                let start = Instant::now();
                let receive = socket.read_with(|socket| socket.recv(&mut [0; 8]));
                let send = async {
                    future::yield_now().await;
                    far.send_to(b"data", address).unwrap();
                };
                let (received, ()) = future::zip(receive, send).await;
                assert_eq!(received.unwrap(), 4);
                took.push(start.elapsed());
            }
            assert_most_are_soon(took, backend);
        });
    }

    /// On a loaded machine some take longer.
    fn assert_most_are_soon(mut took: Vec<Duration>, backend: Backend) {
        took.sort_unstable();
        let median = took[took.len() / 2];
        assert!(median < Duration::from_millis(100), "{took:?} on {backend}");
    }

    // Rule 69.

    const STOPPED: &str = "POLDER_TEST_STOPPED";
    const NAME: &str = "kernel::rule_69_timer_on_time_after_process_stop";

    /// The child's timer; the delay of the stop after the child has reported that the timer runs;
    /// the length of the stop; the timer's tolerated lateness. A timer late by the pause fires 550
    /// ms after its deadline.
    const TIMER: Duration = Duration::from_millis(1_000);
    const BEFORE: Duration = Duration::from_millis(150);
    const PAUSE: Duration = Duration::from_millis(550);
    const LATE: Duration = Duration::from_millis(300);

    pub fn a_stop() {
        if let Some(scale) = std::env::var_os(STOPPED) {
            let scale = scale.to_str().and_then(|scale| scale.parse().ok());
            return a_process_with_a_timer(scale.expect("a number"));
        }
        // On a busy machine a timer is late for other reasons too, and the stop takes longer than
        // intended. That lateness does not grow with the durations of the test; a violation of the
        // rule does.
        let scales = [1, 1, 2, 4, 8];
        let late: Vec<String> = scales
            .into_iter()
            .map_while(|scale| {
                within(LIMIT, "a child that is stopped", move || {
                    stop_a_child(scale)
                })
                .err()
            })
            .collect();
        assert!(late.len() < scales.len(), "late each time: {late:?}");
        Backend::available()
            .into_iter()
            .for_each(crate::support::passed);
    }

    fn stop_a_child(scale: u32) -> Result<(), String> {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(STOPPED, scale.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test starts again");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let says = |lines: &mut dyn Iterator<Item = io::Result<String>>, what: &str| {
            lines.map_while(Result::ok).find(|line| line.contains(what))
        };
        assert!(says(&mut lines, "armed").is_some(), "the child has ended");
        exactly(BEFORE * scale);
        let signal = |signal| {
            // SAFETY: the child was not waited for, so the process id is still its own.
            assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        };
        signal(libc::SIGSTOP);
        exactly(PAUSE * scale);
        signal(libc::SIGCONT);
        let late = says(&mut lines, "late: ").expect("the child says how late its timers were");
        assert!(child.wait().unwrap().success());
        if late.ends_with("late: []") {
            Ok(())
        } else {
            Err(late)
        }
    }

    /// Sleeps in small pieces: in a storm of signals one long sleep takes twice its time, since the
    /// remaining time after each signal is a little too long.
    fn exactly(duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs a timer on every backend at the same time.
    fn a_process_with_a_timer(scale: u32) {
        let (armed, all_armed) = mpsc::channel();
        let threads: Vec<_> = (Backend::available().into_iter())
            .map(|backend| {
                let armed = armed.clone();
                thread::spawn(move || {
                    let runtime = Runtime::builder().backend(backend).build().unwrap();
                    runtime.block_on(async {
                        let start = Instant::now();
                        armed.send(()).unwrap();
                        time::sleep(TIMER * scale).await;
                        let took = start.elapsed();
                        assert!(took >= TIMER * scale, "early on {backend}: {took:?}");
                        (backend, took - TIMER * scale)
                    })
                })
            })
            .collect();
        threads.iter().for_each(|_| all_armed.recv().unwrap());
        println!("armed");
        let late: Vec<_> = (threads.into_iter())
            .map(|thread| thread.join().unwrap())
            .filter(|(_, late)| *late > LATE * scale)
            .collect();
        println!("late: {late:?}");
    }

    // Rule 70.

    /// Runs `rule` on its own thread, and so with its own filter.
    fn refused(
        calls: &'static [libc::c_long],
        errno: libc::c_int,
        rule: impl FnOnce() + Send + 'static,
    ) {
        within(
            LIMIT,
            &format!("without the system calls {calls:?}"),
            move || {
                refuse(calls, errno);
                rule();
            },
        );
    }

    pub fn without_eventfd_and_timerfd() {
        const CALLS: [&[libc::c_long]; 3] = [
            &[libc::SYS_eventfd2],
            &[libc::SYS_timerfd_create],
            &[libc::SYS_eventfd2, libc::SYS_timerfd_create],
        ];
        on_every_backend_alone(|backend| {
            for calls in CALLS {
                for errno in [libc::EPERM, libc::ENOSYS] {
                    refused(calls, errno, move || serves(backend));
                }
            }
        });
    }

    /// Checks events, timeouts and notifications; a runtime with a timer and a wake from another
    /// thread.
    fn serves(backend: Backend) {
        let poller = Poller::new(backend).expect("it opens");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // SAFETY: it is deregistered below.
        unsafe {
            let result = poller.register(ours.as_fd(), Token(1), Interest::READABLE, Mode::OneShot);
            result.unwrap();
        }
        let mut events = Events::new();
        for timeout in [1, 300, 2_500, 60_000, 120_000].map(Duration::from_micros) {
            let start = Instant::now();
            assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
            let took = start.elapsed();
            assert!(
                took >= timeout,
                "{backend}: {took:?} instead of {timeout:?}"
            );
        }
        for _ in 0..100 {
            thread::scope(|scope| {
                scope.spawn(|| poller.notify().unwrap());
                assert_eq!(poller.wait(&mut events, None).unwrap(), 0);
            });
            poller.notify().unwrap();
            poller.notify().unwrap();
            assert_eq!(poller.wait(&mut events, None).unwrap(), 0);
        }
        let start = Instant::now();
        let timeout = Duration::from_millis(5);
        assert_eq!(poller.wait(&mut events, Some(timeout)).unwrap(), 0);
        assert!(
            start.elapsed() >= timeout,
            "{backend}: a notification was left over"
        );
        theirs.write_all(b"x").unwrap();
        assert_eq!(poller.wait(&mut events, None).unwrap(), 1);
        poller.deregister(ours.as_fd()).unwrap();

        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let handle = runtime.handle();
        runtime.block_on(async move {
            time::sleep(Duration::from_millis(2)).await;
            let (sender, receiver) = async_channel::bounded(1);
            let thread = thread::spawn(move || {
                let task = handle.spawn(async move { sender.send(7).await.unwrap() });
                task.detach();
            });
            assert_eq!(receiver.recv().await, Ok(7));
            thread.join().unwrap();
        });
        // A foreign loop may get no descriptor; the runtime goes on without.
        if let Err(error) = runtime.backend_fd() {
            let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{backend}: {error}");
        }
        runtime.block_on(time::sleep(Duration::from_millis(2)));
    }

    pub fn without_accept4() {
        on_every_backend_alone(|backend| {
            for errno in [libc::EPERM, libc::ENOSYS] {
                refused(&[libc::SYS_accept4], errno, move || {
                    let runtime = Runtime::builder().backend(backend).build().unwrap();
                    runtime.block_on(async {
                        use polder::io::{AsyncReadExt, AsyncWriteExt};
                        let listener = polder::net::TcpListener::bind("127.0.0.1:0").await;
                        let listener = listener.unwrap();
                        let address = listener.local_addr().unwrap();
                        let client = polder::net::TcpStream::connect(address);
                        let (accepted, client) = future::zip(listener.accept(), client).await;
                        let ((mut accepted, from), mut client) =
                            (accepted.unwrap(), client.unwrap());
                        assert_eq!(from, client.local_addr().unwrap());
                        // The accepted socket is nonblocking, and no child inherits it.
                        assert!(future::poll_once(accepted.read(&mut [0])).await.is_none());
                        let flags = rustix::io::fcntl_getfd(&accepted).unwrap();
                        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
                        client.write_all(b"x").await.unwrap();
                        assert_eq!(accepted.read(&mut [0; 8]).await.unwrap(), 1);
                    });
                });
            }
        });
    }

    pub fn words() {
        on_every_backend_alone(|backend| {
            // All calls that open a poller. (async-io's reactor may be open already.)
            const CALLS: &[libc::c_long] = &[
                libc::SYS_epoll_create1,
                libc::SYS_io_uring_setup,
                libc::SYS_eventfd2,
                libc::SYS_pipe2,
                libc::SYS_socketpair,
                // On this architecture all socket calls go through this one.
                #[cfg(target_arch = "x86")]
                libc::SYS_socketcall,
            ];
            if backend == Backend::AsyncIo {
                return;
            }
            let refusals = [
                (libc::EPERM, io::ErrorKind::PermissionDenied, "seccomp"),
                (libc::ENOSYS, io::ErrorKind::Unsupported, "sandbox"),
            ];
            for (errno, kind, meaning) in refusals {
                refused(CALLS, errno, move || {
                    let error = Poller::new(backend).expect_err("nothing is left to open it with");
                    assert_eq!(error.kind(), kind, "{error}");
                    let words = error.to_string();
                    assert!(words.contains(&format!("backend {backend}")), "{words}");
                    let call = match backend {
                        Backend::Epoll => "epoll_create1",
                        Backend::IoUring => "io_uring_setup",
                        Backend::Kqueue => "kqueue",
                        Backend::Polling => "polling",
                        _ => "eventfd",
                    };
                    assert!(words.contains(call), "{words}");
                    let said = io::Error::from_raw_os_error(errno).to_string();
                    assert!(words.contains(&said), "{words}");
                    // And the most likely cause.
                    assert!(words.contains(meaning), "{words}");
                    let source = error.get_ref().and_then(|words| words.source());
                    let cause = source.and_then(|source| source.downcast_ref::<io::Error>());
                    let number = cause.and_then(io::Error::raw_os_error);
                    assert_eq!(number, Some(errno), "{error:?}");
                });
            }
        });
    }

    /// Calls `refused_wait` for each call by which the backend waits.
    pub fn refused_waits(backend: Backend) {
        let calls: &[(&str, libc::c_long)] = match backend {
            Backend::Epoll => &[("epoll_pwait", libc::SYS_epoll_pwait)],
            Backend::IoUring => &[("io_uring_enter", libc::SYS_io_uring_enter)],
            Backend::Poll => &[("ppoll", libc::SYS_ppoll)],
            // For writers it uses poll(2).
            Backend::Select => &[("pselect6", libc::SYS_pselect6), ("ppoll", libc::SYS_ppoll)],
            Backend::Polling => &[("polling::Poller::wait", libc::SYS_epoll_pwait)],
            // It sleeps in `poll`, and its reactor in `polling`.
            Backend::AsyncIo => &[
                ("ppoll", libc::SYS_ppoll),
                ("polling::Poller::wait", libc::SYS_epoll_pwait),
            ],
            _ => return,
        };
        for (name, call) in calls.iter().copied() {
            refused_wait(backend, name, call);
        }
    }

    fn refused_wait(backend: Backend, name: &'static str, call: libc::c_long) {
        let other = match call {
            libc::SYS_epoll_pwait => Backend::Poll,
            _ => Backend::Epoll,
        };
        let check = move || {
            refuse(&[call], libc::EPERM);
            let error = Poller::new(backend).expect_err("it cannot wait");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            let words = error.to_string();
            assert!(words.contains(&format!("backend {backend}: ")), "{words}");
            assert!(words.contains(name), "{words}");
            for workers in [1, 2] {
                let runtime = Runtime::builder().workers(workers);
                let runtime = runtime.backends([backend, other]).build().unwrap();
                assert_eq!(runtime.backend(), other);
                runtime.block_on(time::sleep(Duration::from_millis(1)));
            }
        };
        within(LIMIT, &format!("without {name}"), check);
    }
}

//! Pairs: connections over loopback that send 64 bytes back and forth; both ends are in this
//! process and on one thread. Nothing ever sleeps: we measure what the runtime adds to the kernel's
//! work.
//!
//! polder, on each backend, is compared with hand-written loops against the same kernel interface:
//! one wait, one receive and one send per message, and nothing else (`strace -c -f` on `--only NAME
//! --count N` shows that of both). The raw loops receive into one buffer for all connections; a
//! second loop has a buffer per connection, as tasks have.
//!
//! ```text
//! cargo bench --bench pairs -- --pairs 1,50 --rounds 7 --millis 200
//! cargo bench --bench pairs -- --pairs 1 --only polder-epoll --count 100000
//! ```

#[cfg(target_os = "linux")]
mod support;

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::net::{self, TcpListener};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

    use polder::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use polder::net::TcpStream;
    use polder::net::unix::UnixStream;
    use polder::{Backend, Runtime};

    use super::support::{Clock, Options, Program, Took, compare};

    const MESSAGE: usize = 64;

    /// More room than a message needs: a receive that fills less than was asked for shows that
    /// there is no more.
    const BUFFER: usize = 1024;

    pub fn main() {
        let options = Options::parse();
        let pairs = match &options.pairs {
            Some(pairs) => pairs.clone(),
            None if options.tiny => vec![2],
            None => vec![1, 50, 500],
        };
        for pairs in pairs {
            table(pairs, &options);
            unix_table(pairs, &options);
        }
    }

    fn table(pairs: usize, options: &Options) {
        let mut programs = Vec::new();
        let with = (options, pairs);
        // A wait with poll or select scans all descriptors: no program does that with hundreds.
        let few = pairs <= 50 || options.pairs.is_some();
        let raw_epoll = add(&mut programs, with, "raw-epoll", None, || {
            let mut raw = Epoll::new(pairs, Shared([0; BUFFER]));
            Box::new(move |count| raw.run(count))
        });
        add(
            &mut programs,
            with,
            "raw-epoll-own-buffers",
            raw_epoll,
            || {
                let mut raw = Epoll::new(pairs, Own::new(pairs));
                Box::new(move |count| raw.run(count))
            },
        );
        let raw_poll = if few {
            add(&mut programs, with, "raw-poll", None, || {
                let mut raw = Poll::new(pairs);
                Box::new(move |count| raw.run(count))
            })
        } else {
            None
        };
        let raw_select = if few {
            add(&mut programs, with, "raw-select", None, || {
                let mut raw = Select::new(pairs);
                Box::new(move |count| raw.run(count))
            })
        } else {
            None
        };
        let mut polder_epoll = None;
        for backend in Backend::available() {
            let (yardstick, wanted) = match backend {
                Backend::Poll => (raw_poll, few),
                Backend::Select => (raw_select, few),
                // There is no raw loop: both programs are polder's.
                Backend::IoUring => (polder_epoll, true),
                _ => (raw_epoll, true),
            };
            if wanted {
                let name = format!("polder-{backend}");
                let place = add(&mut programs, with, &name, yardstick, || {
                    let mut polder = Polder::new(pairs, backend, tcp);
                    Box::new(move |count| polder.run(count))
                });
                if backend == Backend::Epoll {
                    polder_epoll = place;
                }
            }
        }
        let title = format!("TCP, {pairs} pairs: ns per round trip of {MESSAGE} bytes");
        compare(&title, options, &mut programs);
    }

    /// The same over Unix sockets, for the backends that treat them differently.
    fn unix_table(pairs: usize, options: &Options) {
        let mut programs = Vec::new();
        let mut first = None;
        for backend in [Backend::Epoll, Backend::IoUring] {
            if backend.is_available() {
                let name = format!("polder-{backend}-unix");
                let place = add(&mut programs, (options, pairs), &name, first, || {
                    let mut polder = Polder::new(pairs, backend, || {
                        UnixStream::pair().expect("a pair of sockets")
                    });
                    Box::new(move |count| polder.run(count))
                });
                first = first.or(place);
            }
        }
        if !programs.is_empty() {
            let title = format!("Unix, {pairs} pairs: ns per round trip of {MESSAGE} bytes");
            compare(&title, options, &mut programs);
        }
    }

    type Run<'a> = Box<dyn FnMut(u64) -> Took + 'a>;

    /// Returns the program's place in the table, if it is wanted.
    fn add<'a>(
        programs: &mut Vec<Program<'a>>,
        (options, pairs): (&Options, usize),
        name: &str,
        yardstick: Option<usize>,
        run: impl FnOnce() -> Run<'a>,
    ) -> Option<usize> {
        if !options.wants(name) {
            return None;
        }
        programs.push(Program {
            name: name.into(),
            yardstick,
            step: pairs as u64,
            run: run(),
        });
        Some(programs.len() - 1)
    }

    /// Returns a pair connected over loopback. Nagle is off, as in every program that sends small
    /// messages.
    fn pair() -> (net::TcpStream, net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let near = net::TcpStream::connect(listener.local_addr().expect("it is bound"))
            .expect("loopback connects");
        let (far, _) = listener.accept().expect("it was connected");
        for stream in [&near, &far] {
            stream.set_nodelay(true).expect("TCP has it");
            stream.set_nonblocking(true).expect("sockets have it");
        }
        (near, far)
    }

    // polder: a task for each end, as users write it.

    struct Polder<S> {
        runtime: Runtime,
        near: Vec<S>,
    }

    /// A stream that a task reads from and writes to.
    trait Stream: AsyncRead + AsyncWrite + Unpin + 'static {}
    impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Stream for S {}

    fn tcp() -> (TcpStream, TcpStream) {
        let (near, far) = pair();
        let take = |stream: net::TcpStream| stream.try_into().expect("it is a socket");
        (take(near), take(far))
    }

    impl<S: Stream> Polder<S> {
        fn new(pairs: usize, backend: Backend, connect: impl Fn() -> (S, S)) -> Polder<S> {
            let runtime = Runtime::builder()
                .backend(backend)
                .build()
                .expect("the backend is available");
            let near = (0..pairs)
                .map(|_| {
                    let (near, far) = connect();
                    runtime.spawn_local(echo(far)).detach();
                    near
                })
                .collect();
            Polder { runtime, near }
        }

        fn run(&mut self, count: u64) -> Took {
            let each = count / self.near.len() as u64;
            let clock = Clock::start();
            let tasks: Vec<_> = (self.near.drain(..))
                .map(|stream| self.runtime.spawn_local(ask(stream, each)))
                .collect();
            self.runtime.block_on(async {
                for task in tasks {
                    self.near.push(task.await.expect("loopback works"));
                }
            });
            clock.stop()
        }
    }

    async fn echo(mut stream: impl Stream) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        loop {
            let length = stream.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            stream.write_all(&buffer[..length]).await?;
        }
    }

    async fn ask<S: Stream>(mut stream: S, count: u64) -> io::Result<S> {
        let mut buffer = [7; BUFFER];
        for _ in 0..count {
            stream.write_all(&buffer[..MESSAGE]).await?;
            let mut received = 0;
            while received < MESSAGE {
                match stream.read(&mut buffer[received..]).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    length => received += length,
                }
            }
        }
        Ok(stream)
    }

    // Hand-written loops.

    /// The connections of a raw loop: both ends of pair `n` are `2 n` and `2 n + 1`.
    struct Ends {
        sockets: Vec<OwnedFd>,
        /// By end: the messages that an asking end still has to send, and the bytes received of the
        /// current message.
        states: Vec<State>,
    }

    #[derive(Clone, Copy, Default)]
    struct State {
        descriptor: RawFd,
        received: usize,
        left: u64,
    }

    impl Ends {
        fn new(pairs: usize) -> Ends {
            let sockets: Vec<OwnedFd> = (0..pairs)
                .flat_map(|_| {
                    let (near, far) = pair();
                    [near.into(), far.into()]
                })
                .collect();
            let states = (sockets.iter())
                .map(|socket| State {
                    descriptor: socket.as_raw_fd(),
                    ..State::default()
                })
                .collect();
            Ends { sockets, states }
        }

        /// Sends the first messages.
        fn start(&mut self, each: u64) {
            for place in (0..self.states.len()).step_by(2) {
                self.states[place].left = each;
                send(self.states[place].descriptor, &[7; MESSAGE]);
            }
        }

        /// Serves a readable end. Returns whether its pair is done.
        #[inline]
        fn serve(&mut self, place: usize, buffer: &mut [u8; BUFFER]) -> bool {
            let state = &mut self.states[place];
            let length = receive(state.descriptor, &mut buffer[state.received..]);
            state.received += length;
            if state.received < MESSAGE {
                return false;
            }
            state.received = 0;
            if place % 2 == 0 {
                state.left -= 1;
                if state.left == 0 {
                    return true;
                }
            }
            send(state.descriptor, &buffer[..MESSAGE]);
            false
        }
    }

    /// Returns the number of bytes received, zero if it would block.
    #[inline]
    fn receive(socket: RawFd, buffer: &mut [u8]) -> usize {
        // SAFETY: the kernel writes into the buffer, which is that long.
        let result = unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(result) {
            Ok(0) => panic!("the other end is closed"),
            Ok(length) => length,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => panic!("receive: {}", io::Error::last_os_error()),
        }
    }

    /// Sends one message. One is in flight at a time, so there is always room for it.
    #[inline]
    fn send(socket: RawFd, message: &[u8]) {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: the kernel reads from the slice.
        let sent = unsafe { libc::send(socket, message.as_ptr().cast(), message.len(), flags) };
        assert_eq!(
            sent,
            message.len() as isize,
            "{}",
            io::Error::last_os_error()
        );
    }

    /// The buffers that a raw loop receives into.
    trait Buffers {
        fn of(&mut self, place: usize) -> &mut [u8; BUFFER];
    }

    struct Shared([u8; BUFFER]);

    impl Buffers for Shared {
        fn of(&mut self, _: usize) -> &mut [u8; BUFFER] {
            &mut self.0
        }
    }

    #[expect(clippy::vec_box, reason = "each on its own, as in tasks")]
    struct Own(Vec<Box<[u8; BUFFER]>>);

    impl Own {
        fn new(pairs: usize) -> Own {
            Own((0..pairs * 2).map(|_| Box::new([0; BUFFER])).collect())
        }
    }

    impl Buffers for Own {
        fn of(&mut self, place: usize) -> &mut [u8; BUFFER] {
            &mut self.0[place]
        }
    }

    /// Registered once, for edges.
    struct Epoll<B> {
        epoll: OwnedFd,
        ends: Ends,
        buffers: B,
    }

    impl<B: Buffers> Epoll<B> {
        fn new(pairs: usize, buffers: B) -> Epoll<B> {
            // SAFETY: a system call without pointers; the descriptor is ours if there is one.
            let epoll = unsafe {
                let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                assert!(epoll >= 0, "{}", io::Error::last_os_error());
                OwnedFd::from_raw_fd(epoll)
            };
            let ends = Ends::new(pairs);
            for (place, socket) in ends.sockets.iter().enumerate() {
                let mut event = libc::epoll_event {
                    events: (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32,
                    u64: place as u64,
                };
                // SAFETY: the event lives throughout the call.
                let result = unsafe {
                    libc::epoll_ctl(
                        epoll.as_raw_fd(),
                        libc::EPOLL_CTL_ADD,
                        socket.as_raw_fd(),
                        &mut event,
                    )
                };
                assert_eq!(result, 0, "{}", io::Error::last_os_error());
            }
            Epoll {
                epoll,
                ends,
                buffers,
            }
        }

        fn run(&mut self, count: u64) -> Took {
            let pairs = self.ends.states.len() / 2;
            let clock = Clock::start();
            self.ends.start(count / pairs as u64);
            let mut left = pairs;
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
            while left > 0 {
                // SAFETY: the kernel writes as many events as there is room for.
                let ready = unsafe {
                    libc::epoll_wait(
                        self.epoll.as_raw_fd(),
                        events.as_mut_ptr(),
                        events.len() as i32,
                        -1,
                    )
                };
                assert!(ready >= 0, "{}", io::Error::last_os_error());
                for event in &events[..ready as usize] {
                    let place = event.u64 as usize;
                    left -= usize::from(self.ends.serve(place, self.buffers.of(place)));
                }
            }
            clock.stop()
        }
    }

    struct Poll {
        ends: Ends,
        list: Vec<libc::pollfd>,
    }

    impl Poll {
        fn new(pairs: usize) -> Poll {
            let ends = Ends::new(pairs);
            let list = (ends.sockets.iter())
                .map(|socket| libc::pollfd {
                    fd: socket.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                })
                .collect();
            Poll { ends, list }
        }

        fn run(&mut self, count: u64) -> Took {
            let pairs = self.ends.states.len() / 2;
            let clock = Clock::start();
            self.ends.start(count / pairs as u64);
            let mut left = pairs;
            let mut buffer = [0; BUFFER];
            while left > 0 {
                // SAFETY: the list is that long.
                let mut ready =
                    unsafe { libc::poll(self.list.as_mut_ptr(), self.list.len() as _, -1) };
                assert!(ready >= 0, "{}", io::Error::last_os_error());
                for (place, entry) in self.list.iter().enumerate() {
                    if ready == 0 {
                        break;
                    }
                    if entry.revents != 0 {
                        ready -= 1;
                        left -= usize::from(self.ends.serve(place, &mut buffer));
                    }
                }
            }
            clock.stop()
        }
    }
    struct Select {
        ends: Ends,
        asked: libc::fd_set,
        bound: libc::c_int,
    }

    impl Select {
        fn new(pairs: usize) -> Select {
            let ends = Ends::new(pairs);
            // SAFETY: all zero is an empty set.
            let mut asked: libc::fd_set = unsafe { std::mem::zeroed() };
            let mut bound = 0;
            for socket in &ends.sockets {
                let descriptor = socket.as_raw_fd();
                assert!((descriptor as usize) < libc::FD_SETSIZE, "too many pairs");
                // SAFETY: the set has room for it.
                unsafe { libc::FD_SET(descriptor, &mut asked) };
                bound = bound.max(descriptor + 1);
            }
            Select { ends, asked, bound }
        }

        fn run(&mut self, count: u64) -> Took {
            let pairs = self.ends.states.len() / 2;
            let clock = Clock::start();
            self.ends.start(count / pairs as u64);
            let mut left = pairs;
            let mut buffer = [0; BUFFER];
            let none = std::ptr::null_mut();
            while left > 0 {
                let mut said = self.asked;
                // SAFETY: the set lives, and holds open descriptors below the bound.
                let mut ready =
                    unsafe { libc::select(self.bound, &raw mut said, none, none, none.cast()) };
                assert!(ready >= 0, "{}", io::Error::last_os_error());
                for place in 0..self.ends.states.len() {
                    if ready == 0 {
                        break;
                    }
                    // SAFETY: the set has room for every descriptor of the pairs.
                    if unsafe { libc::FD_ISSET(self.ends.states[place].descriptor, &said) } {
                        ready -= 1;
                        left -= usize::from(self.ends.serve(place, &mut buffer));
                    }
                }
            }
            clock.stop()
        }
    }
}

//! Rule 81: what another owner of a descriptor does to it (a thread, C code, another process) ends
//! an operation that waits, with the result of the blocking call, or lets it sleep on; it never
//! makes it spin. Linux's results are expected here.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{self, unix};
use polder::time::timeout;
use polder::{Async, Handle};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::support::in_every_kernel_runtime;

/// Far longer than any wake needs.
const SOON: Duration = Duration::from_secs(10);

/// The time for which an operation must sleep.
const A_WHILE: Duration = Duration::from_millis(10);

/// The limit of polls and events in each such time: a loop that spins has thousands.
const FEW: usize = 100;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    TcpStream,
    TcpListener,
    UnixStream,
    UnixListener,
    Udp,
    UnixDatagram,
    Pipe,
}

const SOCKETS: [Kind; 6] = [
    Kind::TcpStream,
    Kind::TcpListener,
    Kind::UnixStream,
    Kind::UnixListener,
    Kind::Udp,
    Kind::UnixDatagram,
];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Api {
    Net,
    Async,
}

/// A descriptor to operate on, and its far end.
struct Ends {
    kind: Kind,
    near: Socket,
    far: Socket,
}

impl Ends {
    fn new(kind: Kind) -> Ends {
        let stream = |domain| Socket::new(domain, Type::STREAM, None).unwrap();
        let listen = |domain, address: &SockAddr| {
            let listener = stream(domain);
            listener.bind(address).unwrap();
            listener.listen(16).unwrap();
            (listener, stream(domain))
        };
        let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
        let (near, far) = match kind {
            Kind::TcpStream => {
                let (listener, far) = listen(Domain::IPV4, &any.into());
                far.connect(&listener.local_addr().unwrap()).unwrap();
                (listener.accept().unwrap().0, far)
            }
            Kind::TcpListener => listen(Domain::IPV4, &any.into()),
            Kind::UnixStream => Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap(),
            // Linux chooses a name.
            Kind::UnixListener => listen(Domain::UNIX, &SockAddr::unix("").unwrap()),
            Kind::Udp => {
                let (near, far) = (
                    std::net::UdpSocket::bind(any).unwrap(),
                    std::net::UdpSocket::bind(any).unwrap(),
                );
                near.connect(far.local_addr().unwrap()).unwrap();
                far.connect(near.local_addr().unwrap()).unwrap();
                (near.into(), far.into())
            }
            Kind::UnixDatagram => Socket::pair(Domain::UNIX, Type::DGRAM, None).unwrap(),
            Kind::Pipe => {
                let (near, far) = rustix::pipe::pipe().unwrap();
                (near.into(), far.into())
            }
        };
        Ends { kind, near, far }
    }

    /// Lets a read of the near end, or an accept, succeed.
    fn feed(&self) {
        match self.kind {
            Kind::TcpListener | Kind::UnixListener => {
                let address = self.near.local_addr().unwrap();
                self.far.connect(&address).unwrap();
            }
            _ => assert_eq!(rustix::io::write(&self.far, b"x").unwrap(), 1),
        }
    }

    /// Lets another owner, in a thread of its own, do something with the near end.
    fn elsewhere(&self, act: impl FnOnce(&Socket) + Send + 'static) {
        let duplicate = self.near.try_clone().unwrap();
        thread::spawn(move || act(&duplicate)).join().unwrap();
    }

    /// A read of a byte or a datagram, or an accept.
    fn reading(&self, api: Api) -> Operation {
        macro_rules! operation {
            ($type:ty, |$it:ident| $operation:expr) => {{
                let $it = <$type>::try_from(OwnedFd::from(self.near.try_clone().unwrap()));
                #[allow(unused_mut, reason = "streams are read by mutable reference")]
                let mut $it = $it.unwrap();
                Box::pin(async move { $operation })
            }};
        }
        let kind = self.kind;
        let future: Pin<Box<dyn Future<Output = io::Result<usize>> + Send>> = match (api, kind) {
            (Api::Async, _) => operation!(Async<Socket>, |it| {
                it.read_with(|socket| match kind {
                    Kind::TcpListener | Kind::UnixListener => socket.accept().map(|_| 1),
                    _ => Ok(rustix::io::read(socket, &mut [0; 8])?),
                })
                .await
            }),
            (_, Kind::TcpStream) => operation!(net::TcpStream, |it| it.read(&mut [0; 8]).await),
            (_, Kind::UnixStream) => operation!(unix::UnixStream, |it| it.read(&mut [0; 8]).await),
            (_, Kind::TcpListener) => {
                operation!(net::TcpListener, |it| it.accept().await.map(|_| 1))
            }
            (_, Kind::UnixListener) => {
                operation!(unix::UnixListener, |it| it.accept().await.map(|_| 1))
            }
            (_, Kind::Udp) => operation!(net::UdpSocket, |it| it.recv(&mut [0; 8]).await),
            (_, Kind::UnixDatagram) => {
                operation!(unix::UnixDatagram, |it| it.recv(&mut [0; 8]).await)
            }
            (_, Kind::Pipe) => unreachable!("`net` has no pipes"),
        };
        Operation {
            future,
            polls: 0,
            may_find_room: false,
        }
    }

    /// A write to a stream, the buffer of which is full.
    fn writing(&self, api: Api) -> Operation {
        self.near.set_nonblocking(true).unwrap();
        let fill = || {
            let mut sent = 0;
            for piece in [1 << 16, 1] {
                while let Ok(length) = self.near.send(&vec![0; piece]) {
                    sent += length;
                }
            }
            sent
        };
        // The kernel may still move bytes to the far end, which makes room; late on a busy system,
        // and later still when a timer of TCP's makes it try again: see `finds_no_room`.
        let mut rounds_without = 0;
        while rounds_without < 3 {
            rounds_without = if fill() > 0 { 0 } else { rounds_without + 1 };
            thread::sleep(Duration::from_millis(20));
        }
        let near = OwnedFd::from(self.near.try_clone().unwrap());
        let future: Pin<Box<dyn Future<Output = io::Result<usize>> + Send>> = match (api, self.kind)
        {
            (Api::Async, _) => {
                let near = Async::<Socket>::try_from(near).unwrap();
                Box::pin(async move { near.write_with(|near| near.send(b"x")).await })
            }
            (_, Kind::TcpStream) => {
                let mut near = net::TcpStream::try_from(near).unwrap();
                Box::pin(async move { near.write(b"x").await })
            }
            _ => {
                let mut near = unix::UnixStream::try_from(near).unwrap();
                Box::pin(async move { near.write(b"x").await })
            }
        };
        Operation {
            future,
            polls: 0,
            may_find_room: self.kind == Kind::TcpStream,
        }
    }
}

/// An operation that counts its polls.
struct Operation {
    future: Pin<Box<dyn Future<Output = io::Result<usize>> + Send>>,
    polls: usize,
    /// A write to TCP: the kernel may still move bytes to the far end.
    may_find_room: bool,
}

impl Operation {
    async fn within(&mut self, limit: Duration) -> Option<io::Result<usize>> {
        let polled = poll_fn(|cx| {
            self.polls += 1;
            self.future.as_mut().poll(cx)
        });
        timeout(limit, polled).await.ok()
    }

    async fn is_pending(&mut self) -> bool {
        poll_once(&mut self.future).await.is_none()
    }

    /// Whether the write waits. Otherwise it has found room.
    async fn finds_no_room(&mut self, what: &str) -> bool {
        match poll_once(&mut self.future).await {
            None => true,
            Some(Ok(1)) if self.may_find_room => false,
            other => panic!("{what}: {other:?} instead of waiting for room"),
        }
    }

    async fn ends(&mut self, expected: Result<usize, ErrorKind>, what: &str) {
        let result = self.within(SOON).await;
        let result = result.unwrap_or_else(|| panic!("{what}: no end after {} polls", self.polls));
        assert_eq!(result.map_err(|error| error.kind()), expected, "{what}");
        assert!(self.polls < FEW, "{what}: {} polls to its end", self.polls);
    }

    async fn sleeps(&mut self, what: &str) {
        let work = |polls: usize| {
            let workers = Handle::current().metrics().workers;
            polls + workers.iter().map(|worker| worker.events).sum::<usize>()
        };
        let (start, before) = (Instant::now(), work(self.polls));
        let result = self.within(A_WHILE).await;
        let has_found_room = self.may_find_room && matches!(result, Some(Ok(1)));
        assert!(
            result.is_none() || has_found_room,
            "{what}: {result:?} instead of sleep"
        );
        let times = 1 + (start.elapsed().as_millis() / A_WHILE.as_millis()) as usize;
        let count = work(self.polls) - before;
        assert!(count < FEW * times, "{what}: {count} polls and events");
    }
}

fn each(kinds: &[Kind]) -> Vec<(Kind, Api)> {
    let mut cases = Vec::new();
    for kind in kinds {
        cases.push((*kind, Api::Async));
        if *kind != Kind::Pipe {
            cases.push((*kind, Api::Net));
        }
    }
    cases
}

const ALL: [Shutdown; 3] = [Shutdown::Read, Shutdown::Write, Shutdown::Both];

/// Reads and accepts end when another owner shuts down.
#[test]
fn reads_end_on_shutdown_by_other_owner() {
    in_every_kernel_runtime(|_| async {
        for ((kind, api), how) in each(&SOCKETS)
            .into_iter()
            .flat_map(|case| ALL.map(|how| (case, how)))
        {
            for waits in [false, true] {
                let what = format!("{kind:?}, {api:?}, {how:?}, waits: {waits}");
                let task = async move {
                    let ends = Ends::new(kind);
                    let mut reading = ends.reading(api);
                    assert!(!waits || reading.is_pending().await, "{what}");
                    ends.elsewhere(move |near| near.shutdown(how).unwrap());
                    let is_datagram = matches!(kind, Kind::Udp | Kind::UnixDatagram);
                    match kind {
                        _ if how == Shutdown::Write => {
                            reading.sleeps(&what).await;
                            ends.feed();
                            reading.ends(Ok(1), &what).await;
                        }
                        Kind::TcpListener | Kind::UnixListener => {
                            reading.ends(Err(ErrorKind::InvalidInput), &what).await;
                        }
                        // The caller's receive would block, and its result is the caller's type.
                        _ if is_datagram && api == Api::Async => {
                            reading.ends(Err(ErrorKind::UnexpectedEof), &what).await;
                        }
                        _ => reading.ends(Ok(0), &what).await,
                    }
                };
                polder::spawn(task).await;
            }
        }
    });
}

/// Serve ends when another owner shuts its listener down.
#[test]
fn serve_ends_on_shutdown_by_other_owner() {
    in_every_kernel_runtime(|_| async {
        for waits in [false, true] {
            let ends = Ends::new(Kind::UnixListener);
            let listener = OwnedFd::from(ends.near.try_clone().unwrap());
            let listener = unix::UnixListener::try_from(listener).unwrap();
            let served = net::serve(listener, |_stream, _peer| async {});
            let mut served = Box::pin(served.into_future());
            assert!(!waits || poll_once(&mut served).await.is_none());
            ends.elsewhere(|near| near.shutdown(Shutdown::Both).unwrap());
            let result = timeout(SOON, served).await.expect("it ends");
            let error = result.map(drop).expect_err("it does not listen");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "waits: {waits}");
        }
    });
}

/// Writes end or sleep when another owner shuts down.
#[test]
fn writes_end_or_sleep_on_shutdown_elsewhere() {
    in_every_kernel_runtime(|_| async {
        let streams = each(&[Kind::TcpStream, Kind::UnixStream]);
        for ((kind, api), how) in streams
            .into_iter()
            .flat_map(|case| ALL.map(|how| (case, how)))
        {
            let what = format!("{kind:?}, {api:?}, {how:?}");
            let task = async move {
                let ends = Ends::new(kind);
                let mut writing = ends.writing(api);
                while !writing.finds_no_room(&what).await {
                    writing = ends.writing(api);
                }
                ends.elsewhere(move |near| near.shutdown(how).unwrap());
                match (kind, how) {
                    // Linux reports a full Unix stream as writable only if both directions have
                    // ended. (`Async` tries again whenever it is polled.)
                    (Kind::UnixStream, Shutdown::Write) if api == Api::Net => {
                        writing.sleeps(&what).await;
                    }
                    (_, Shutdown::Read) => writing.sleeps(&what).await,
                    _ => writing.ends(Err(ErrorKind::BrokenPipe), &what).await,
                }
            };
            polder::spawn(task).await;
        }
    });
}

/// Reads sleep when another owner closes or sets flags.
#[test]
fn reads_sleep_despite_other_owner() {
    let all = [&SOCKETS[..], &[Kind::Pipe]].concat();
    in_every_kernel_runtime(move |_| {
        let all = all.clone();
        async move {
            for ((kind, api), closes) in
                (each(&all).into_iter()).flat_map(|case| [false, true].map(|it| (case, it)))
            {
                let what = format!("{kind:?}, {api:?}, closes: {closes}");
                let task = async move {
                    let ends = Ends::new(kind);
                    let mut reading = ends.reading(api);
                    assert!(reading.is_pending().await, "{what}");
                    ends.elsewhere(move |near| {
                        // At the end of this the duplicate is closed.
                        if !closes {
                            near.set_nonblocking(false).unwrap();
                            near.set_nonblocking(true).unwrap();
                        }
                    });
                    reading.sleeps(&what).await;
                    ends.feed();
                    reading.ends(Ok(1), &what).await;
                };
                polder::spawn(task).await;
            }
        }
    });
}

/// Operations of net block no worker when sockets are made blocking.
///
/// The flag is the open file's, and so that of every owner.
#[test]
fn net_works_on_sockets_made_blocking() {
    let kinds = [
        Kind::TcpStream,
        Kind::UnixStream,
        Kind::Udp,
        Kind::UnixDatagram,
    ];
    in_every_kernel_runtime(move |_| async move {
        for kind in kinds {
            let what = format!("{kind:?}");
            let task = async move {
                let ends = Ends::new(kind);
                let mut reading = ends.reading(Api::Net);
                ends.elsewhere(|near| near.set_nonblocking(false).unwrap());
                // Ends the blocking call, so that the test fails soon.
                let (done, is_done) = mpsc::channel::<()>();
                let far = ends.far.try_clone().unwrap();
                let rescue = thread::spawn(move || {
                    if is_done
                        .recv_timeout(Duration::from_secs(2))
                        .is_err_and(|error| error == mpsc::RecvTimeoutError::Timeout)
                    {
                        far.send(b"x").unwrap();
                    }
                });
                assert!(reading.is_pending().await, "{what}: the read has blocked");
                drop(done);
                rescue.join().unwrap();
                reading.sleeps(&what).await;
                ends.feed();
                reading.ends(Ok(1), &what).await;
                if matches!(kind, Kind::TcpStream | Kind::UnixStream) {
                    let mut finds_room = true;
                    while finds_room {
                        let mut writing = ends.writing(Api::Net);
                        ends.elsewhere(|near| near.set_nonblocking(false).unwrap());
                        finds_room = !writing.finds_no_room(&what).await;
                    }
                }
            };
            polder::spawn(task).await;
        }
    });
}

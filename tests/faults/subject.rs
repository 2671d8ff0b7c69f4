//! The program that faults are injected into: one part for each feature of polder, each in a
//! separate runtime and with an exact expectation.
//!
//! A part ends in one of four ways: as expected; with an `io::Error`; with a panic; or with a wrong
//! result, wrong data for instance. Each is a line of the report. The report is written by
//! `pwrite`, which polder never calls, so faults do not affect it.
//!
//! No part waits for an end of file caused by `close`: it uses `shutdown`. An injected fault makes
//! `close` leave the descriptor open, which no kernel does.

use std::fmt;
use std::fs::File;
use std::future::{Future, pending};
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use polder::fs;
use polder::future::{try_zip, yield_now};
use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
use polder::net::unix::{UnixDatagram, UnixListener, UnixStream};
use polder::net::{Shutdown, TcpListener, TcpStream, UdpSocket, serve};
use polder::signal::{Signal, Signals};
use polder::stream::StreamExt;
use polder::time::{interval, sleep, timeout};
use polder::{Async, Backend, Runtime, TaskSet};

/// More than a socket's buffers hold, so that both sides have to wait.
const LARGE: usize = 3 << 20;

/// The report for a server that does not answer: it waits for a free descriptor.
pub const UNSERVED: &str = "the client was not served";

/// The result of a part that deviates from the expectation.
pub enum Failure {
    Said(io::Error),
    Wrong(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Said(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Said(error) => write!(f, "{error}"),
            Failure::Wrong(what) => f.write_str(what),
        }
    }
}

/// The name of the files.
pub const FILE: &str = "file";

type Outcome = Result<(), Failure>;

struct Place<'a> {
    backend: Backend,
    /// How long a client waits for [`serve`].
    patience: Duration,
    /// The folder for named Unix sockets, and for files.
    folder: &'a Path,
    /// A folder for files in memory, if this machine has one.
    memory: &'a Path,
}

type Part = (&'static str, fn(&Place) -> Outcome);

const PARTS: [Part; 14] = [
    ("tcp", tcp),
    ("udp", udp),
    ("unix streams", unix_streams),
    ("unix datagrams", unix_datagrams),
    ("descriptors", descriptors),
    ("timers", timers),
    ("threads", threads),
    ("workers", workers),
    ("serve", serving),
    ("signals", signals),
    ("unblock", unblocking),
    ("files", files),
    ("resolver", resolving),
    ("embedding", embedding),
];

/// The report and its current offset.
struct Report(File, AtomicU64);

impl Report {
    fn line(&self, kind: &str, part: &str, words: &str) {
        let line = format!("{kind}\t{part}\t{}\n", words.replace(['\n', '\t'], " "));
        let place = self.1.fetch_add(line.len() as u64, Ordering::Relaxed);
        // On failure the reader notices that the last line is missing.
        let _ = self.0.write_all_at(line.as_bytes(), place);
    }
}

/// Runs every part once, and reports. Stops itself first, so that strace can attach.
pub fn run(backend: Backend, report: &Path, memory: &Path, patience: Duration) {
    static REPORT: OnceLock<Report> = OnceLock::new();
    let file = File::create(report).expect("the report can be written");
    let report_to = REPORT.get_or_init(|| Report(file, AtomicU64::new(0)));
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let message = (payload.downcast_ref::<&str>().copied())
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without words");
        let place = panic.location().map(ToString::to_string);
        let thread = thread::current();
        let words = format!("{message} ({})", place.unwrap_or_default());
        if let Some(report) = REPORT.get() {
            report.line("panic", thread.name().unwrap_or("a thread"), &words);
        }
    }));
    // SAFETY: three calls that touch no memory. If only a parent may attach, this permits any
    // process; and nothing that hangs outlives the process that started it.
    unsafe {
        libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::raise(libc::SIGSTOP);
    }
    let folder = report.parent().expect("the report is in a folder");
    for (name, part) in PARTS {
        report_to.line("begin", name, "");
        let place = Place {
            backend,
            patience,
            folder,
            memory,
        };
        match catch_unwind(AssertUnwindSafe(|| part(&place))) {
            Ok(Ok(())) => report_to.line("right", name, ""),
            Ok(Err(failure @ Failure::Said(_))) => {
                report_to.line("said", name, &failure.to_string());
            }
            Ok(Err(failure @ Failure::Wrong(_))) => {
                report_to.line("wrong", name, &failure.to_string());
            }
            Err(_) => report_to.line("panicked", name, ""),
        }
    }
    report_to.line("end", "", "");
}

fn runtime(place: &Place) -> io::Result<Runtime> {
    Runtime::builder().backend(place.backend).build()
}

/// Runs a part that is a future, in a separate runtime.
fn drive(place: &Place, part: impl Future<Output = Outcome>) -> Outcome {
    runtime(place)?.block_on(part)
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Failure::Wrong(what()))
    }
}

/// Test data without repeated stretches.
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(next).collect()
}

fn expect_same(what: &str, got: &[u8], sent: &[u8]) -> Outcome {
    expect(got == sent, || {
        let first = got.iter().zip(sent).position(|(a, b)| a != b);
        format!(
            "{what}: {} bytes of {}, first difference at {first:?}",
            got.len(),
            sent.len()
        )
    })
}

/// Echoes until the end, in small pieces and large ones.
async fn echo<S: polder::io::AsyncRead + polder::io::AsyncWrite + Unpin>(
    mut stream: S,
) -> io::Result<S> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(stream),
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}

async fn tcp_server(listener: &TcpListener) -> Outcome {
    let (stream, _) = listener.accept().await?;
    let stream = echo(stream).await?;
    stream.shutdown(Shutdown::Write)?;
    Ok(())
}

async fn tcp_client(address: std::net::SocketAddr, length: usize) -> Outcome {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    expect(stream.nodelay()?, || "nodelay was not set".into())?;
    expect(stream.peer_addr()? == address, || {
        "another peer than connected to".into()
    })?;
    let sent = bytes(length, address.port().into());
    let (mut reader, mut writer) = stream.clone().into_split();
    let write = async {
        writer.write_all(&sent).await?;
        stream.shutdown(Shutdown::Write)
    };
    let read = async {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await?;
        io::Result::Ok(got)
    };
    let ((), got) = try_zip(write, read).await?;
    expect_same("TCP", &got, &sent)
}

fn tcp(place: &Place) -> Outcome {
    drive(place, async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        for length in [5, LARGE] {
            try_zip(tcp_server(&listener), tcp_client(address, length)).await?;
        }
        Ok(())
    })
}

fn udp(place: &Place) -> Outcome {
    drive(place, async {
        let near = UdpSocket::bind("127.0.0.1:0").await?;
        let far = UdpSocket::bind("127.0.0.1:0").await?;
        let mut buffer = [0; 2048];
        for round in 0..4 {
            let sent = bytes(700 + round, round as u64);
            // The receiver waits before anything is sent.
            let receive = far.recv_from(&mut buffer);
            let send = async {
                yield_now().await;
                near.send_to(&sent, far.local_addr()?).await
            };
            let ((length, from), count) = try_zip(receive, send).await?;
            expect(from == near.local_addr()?, || format!("a sender {from}"))?;
            expect(count == sent.len(), || format!("{count} bytes sent"))?;
            expect_same("UDP", &buffer[..length], &sent)?;
        }
        near.connect(far.local_addr()?).await?;
        far.connect(near.local_addr()?).await?;
        for round in 0..4 {
            let sent = bytes(900 + round, round as u64);
            far.send(&sent).await?;
            let length = near.recv(&mut buffer).await?;
            expect_same("connected UDP", &buffer[..length], &sent)?;
        }
        Ok(())
    })
}

fn unix_streams(place: &Place) -> Outcome {
    drive(place, async {
        let path = place.folder.join("stream");
        let listener = UnixListener::bind(&path)?;
        let server = async {
            let (stream, _) = listener.accept().await?;
            let stream = echo(stream).await?;
            stream.shutdown(Shutdown::Write)
        };
        let sent = bytes(LARGE / 2, 3);
        let client = async {
            let stream = UnixStream::connect(&path).await?;
            let (mut reader, mut writer) = stream.clone().into_split();
            let write = async {
                writer.write_all(&sent).await?;
                stream.shutdown(Shutdown::Write)
            };
            let mut got = Vec::new();
            try_zip(write, reader.read_to_end(&mut got)).await?;
            Ok(got)
        };
        let ((), got) = try_zip(server, client).await?;
        expect_same("a Unix stream", &got, &sent)?;

        let (mut near, far) = UnixStream::pair()?;
        let client = async {
            for round in 0..4 {
                let sent = bytes(100, round);
                let mut got = [0; 100];
                let mut left = &sent[..];
                while !left.is_empty() {
                    let (first, second) = left.split_at(left.len() / 3);
                    let slices = [IoSlice::new(first), IoSlice::new(second)];
                    left = &left[near.write_vectored(&slices).await?..];
                }
                near.read_exact(&mut got).await?;
                expect_same("a pair", &got, &sent)?;
            }
            near.shutdown(Shutdown::Write)?;
            Ok(())
        };
        let server = async { echo(far).await.map(drop).map_err(Failure::from) };
        try_zip(client, server).await?;
        Ok(())
    })
}

fn unix_datagrams(place: &Place) -> Outcome {
    drive(place, async {
        let path = place.folder.join("datagram");
        let far = UnixDatagram::bind(&path)?;
        let near = UnixDatagram::unbound()?;
        let mut buffer = [0; 2048];
        // More than the receiver's queue holds (net.unix.max_dgram_qlen, 10 on most systems).
        let count = 40;
        let send = async {
            for round in 0..count {
                near.send_to(&bytes(500 + round, round as u64), &path)
                    .await?;
            }
            Ok::<_, Failure>(())
        };
        let receive = async {
            for round in 0..count {
                let (length, _) = far.recv_from(&mut buffer).await?;
                let sent = bytes(500 + round, round as u64);
                expect_same("a Unix datagram", &buffer[..length], &sent)?;
            }
            Ok(())
        };
        try_zip(send, receive).await?;

        let (near, far) = UnixDatagram::pair()?;
        for round in 0..3 {
            let sent = bytes(300, round);
            near.send(&sent).await?;
            let length = far.recv(&mut buffer).await?;
            expect_same("a pair of datagrams", &buffer[..length], &sent)?;
        }
        Ok(())
    })
}

/// `Async`, on sockets of the standard library's and on a pipe.
fn descriptors(place: &Place) -> Outcome {
    use rustix::pipe::{PipeFlags, pipe_with};

    drive(place, async {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        let (mut near, mut far) = (Async::new(near)?, Async::new(far)?);
        let sent = bytes(LARGE / 8, 9);
        let mut got = vec![0; sent.len()];
        try_zip(near.write_all(&sent), far.read_exact(&mut got)).await?;
        expect_same("Async", &got, &sent)?;

        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let (reader, writer) = (Async::new(reader)?, Async::new(writer)?);
        let sent = bytes(400_000, 11);
        let write = async {
            let mut left = &sent[..];
            while !left.is_empty() {
                let written = writer
                    .write_with(|pipe| Ok(rustix::io::write(pipe, left)?))
                    .await?;
                left = &left[written..];
            }
            io::Result::Ok(())
        };
        let read = async {
            let mut got = Vec::new();
            let mut buffer = [0; 8192];
            while got.len() < sent.len() {
                let length = reader
                    .read_with(|pipe| Ok(rustix::io::read(pipe, &mut buffer[..])?))
                    .await?;
                got.extend_from_slice(&buffer[..length]);
            }
            Ok(got)
        };
        let ((), got) = try_zip(write, read).await?;
        expect_same("a pipe", &got, &sent)
    })
}

fn timers(place: &Place) -> Outcome {
    drive(place, async {
        let start = Instant::now();
        let mut sleeps = TaskSet::new();
        for millis in [3, 1, 7, 2] {
            sleeps.spawn(async move {
                sleep(Duration::from_millis(millis)).await;
                (millis, start.elapsed())
            });
        }
        let mut count = 0;
        while let Some((millis, took)) = sleeps.join_next().await {
            expect(took >= Duration::from_millis(millis), || {
                format!("a sleep of {millis} ms took {took:?}")
            })?;
            count += 1;
        }
        expect(count == 4, || format!("{count} of 4 sleeps ended"))?;

        let start = Instant::now();
        let mut ticks = interval(Duration::from_millis(1));
        for _ in 0..3 {
            ticks.tick().await;
        }
        expect(start.elapsed() >= Duration::from_millis(2), || {
            "an interval's ticks came early".into()
        })?;

        // Long enough that epoll uses the call's own timeout.
        for limit in [Duration::from_millis(2), Duration::from_millis(60)] {
            let start = Instant::now();
            let late = timeout(limit, pending::<()>()).await.is_err();
            expect(late && start.elapsed() >= limit, || {
                "a timeout came early".into()
            })?;
        }
        Ok(())
    })
}

fn threads(place: &Place) -> Outcome {
    let runtime = runtime(place)?;
    let handle = runtime.handle();
    let (sender, receiver) = async_channel::unbounded();
    let thread = thread::Builder::new().spawn(move || {
        for number in 0..10_u64 {
            let task = sender.clone();
            handle
                .spawn(async move {
                    yield_now().await;
                    let _ = task.try_send(number);
                })
                .detach();
            // The task is probably asleep by now.
            thread::sleep(Duration::from_millis(1));
            let _ = sender.try_send(100 + number);
        }
    })?;
    let mut got = runtime.block_on(async {
        let mut got = Vec::new();
        while let Ok(number) = receiver.recv().await {
            got.push(number);
        }
        got
    });
    let joined = thread.join().is_ok();
    got.sort_unstable();
    expect(
        joined && got.into_iter().eq((0..10).chain(100..110)),
        || "wakes of other threads are missing".into(),
    )
}

fn workers(place: &Place) -> Outcome {
    let runtime = Runtime::builder()
        .backend(place.backend)
        .workers(3)
        .build()?;
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            runtime.spawn(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                sleep(Duration::from_millis(1 + number % 3)).await;
                try_zip(tcp_server(&listener), tcp_client(address, 100_000)).await?;
                Ok::<_, Failure>(number)
            })
        })
        .collect();
    runtime.block_on(async {
        let mut sum = 0;
        let mut failure = None;
        for task in tasks {
            match task.await {
                Ok(number) => sum += number,
                Err(other) => failure = Some(other),
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => expect(sum == 15, || format!("{sum}, not 15")),
        }
    })
}

fn serving(place: &Place) -> Outcome {
    drive(place, async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // A client gets the reason if its connection was cut.
        let cut = Arc::new(Mutex::new(None));
        let server = serve(listener, |stream: TcpStream, _| {
            let cut = cut.clone();
            async move {
                let served = async { echo(stream).await?.shutdown(Shutdown::Write) };
                if let Err(error) = served.await {
                    *cut.lock().unwrap() = Some(error);
                }
            }
        });
        let client = async {
            match timeout(place.patience, tcp_client(address, 10_000)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(io::Error::new(ErrorKind::TimedOut, UNSERVED).into()),
            }
        };
        let server = async {
            match server.await {
                Ok(_) => Err(Failure::Wrong("the server ended".into())),
                Err(error) => Err(error.into()),
            }
        };
        let outcome = polder::future::or(client, server).await;
        match (outcome, cut.lock().unwrap().take()) {
            (Err(Failure::Wrong(_)), Some(error)) => Err(error.into()),
            (outcome, _) => outcome,
        }
    })
}

fn signals(place: &Place) -> Outcome {
    drive(place, async {
        let mut signals = Signals::new([Signal::Usr1])?;
        for _ in 0..2 {
            // SAFETY: this sends a signal, which has a handler since the line above, and touches no
            // memory.
            unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
            let signal = signals.next().await;
            expect(signal == Some(Signal::Usr1), || format!("{signal:?}"))?;
        }
        Ok(())
    })
}

fn unblocking(place: &Place) -> Outcome {
    drive(place, async {
        for number in 0..3 {
            let square = polder::unblock(move || number * number).await;
            expect(square == number * number, || format!("{square}"))?;
        }
        Ok(())
    })
}

fn files(place: &Place) -> Outcome {
    drive(place, async {
        for folder in [place.folder, place.memory] {
            // The first file of a disk is opened by a thread, which learns the disk's kind.
            for round in 0..3 {
                a_file(&folder.join(FILE), &bytes(30_000, round)).await?;
            }
        }
        Ok(())
    })
}

/// Writes a file in two ways, and reads it in three.
async fn a_file(path: &Path, all: &[u8]) -> Outcome {
    let (first, rest) = all.split_at(10_000);
    fs::write(path, first).await?;
    expect_same("a small file", &fs::read(path).await?, first)?;

    let mut options = fs::OpenOptions::new();
    let mut file = options.read(true).write(true).open(path).await?;
    file.seek(SeekFrom::End(0)).await?;
    let mut written = first.len();
    let writes = async {
        for piece in rest.chunks(3_000) {
            file.write_all(piece).await?;
            written += piece.len();
        }
        file.sync_data().await
    };
    let result = writes.await;
    // Whatever comes of the next call, what was written is there.
    if let Ok(found) = std::fs::read(path) {
        expect(found.len() >= written && all.starts_with(&found), || {
            format!(
                "{written} bytes were written, and {} are there",
                found.len()
            )
        })?;
    }
    result?;

    file.seek(SeekFrom::Start(0)).await?;
    let mut got = Vec::new();
    file.read_to_end(&mut got).await?;
    expect_same("a file", &got, all)?;
    file.set_len(10).await?;
    file.sync_all().await?;
    let length = file.metadata().await?.len();
    expect(length == 10, || format!("{length} bytes of 10"))?;

    let mut file = fs::File::open(path).await?;
    let mut got = [0; 10];
    file.read_exact(&mut got).await?;
    expect_same("an opened file", &got, &all[..10])
}

fn resolving(place: &Place) -> Outcome {
    drive(place, async {
        let numeric = polder::net::resolve("127.0.0.1:80").await?;
        let expected = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        expect(numeric == [expected], || format!("{numeric:?}"))?;
        let named = polder::net::resolve(("localhost", 80)).await?;
        let is_local = |address: &std::net::SocketAddr| address.ip().is_loopback();
        expect(!named.is_empty() && named.iter().all(is_local), || {
            format!("{named:?}")
        })
    })
}

/// A foreign loop waits for the runtime's descriptor, if it has one.
fn embedding(place: &Place) -> Outcome {
    use rustix::event::{PollFd, PollFlags, poll};

    let runtime = runtime(place)?;
    let descriptor = match runtime.backend_fd() {
        Ok(descriptor) => descriptor,
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let task = runtime.spawn(async {
        sleep(Duration::from_millis(2)).await;
        yield_now().await;
        sleep(Duration::from_millis(1)).await;
    });
    while !task.is_finished() {
        runtime.run_once(Duration::ZERO);
        if task.is_finished() {
            break;
        }
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(())
}

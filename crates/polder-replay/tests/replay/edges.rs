//! The edges of a recording: how processes end, what is left of a limit, sockets and threads of
//! others.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc_calls as libc;
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_replay::{Recording, record, replay};

use crate::support::Tape;

const ROLE: &str = "REPLAY_TEST_ROLE";

/// Runs this test program again, with only the test `name`, which finds its role and the tape's
/// path in the environment.
fn in_role(role: &str, name: &str, tape: &Tape) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("REPLAY_TEST_TAPE", &tape.path)
        .stdout(Stdio::null())
        .status()
        .unwrap()
}

fn role() -> Option<(String, std::path::PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os("REPLAY_TEST_TAPE")?.into()))
}

/// How often the listing has `words`.
fn count(tape: &Tape, words: &str) -> usize {
    tape.listed().matches(words).count()
}

/// A program that calls `exit` within the run leaves all of its entries, and so is replayed until
/// there.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn exit_leaves_all_entries() {
    let program = || async {
        for _ in 0..40 {
            let _ = now();
        }
        std::process::exit(7);
    };
    if let Some((role, path)) = role() {
        match &*role {
            "record" => record(path, program()).unwrap(),
            _ => replay(path, program()).unwrap(),
        }
        unreachable!();
    }
    let tape = Tape::new();
    let name = "edges::exit_leaves_all_entries";
    assert_eq!(in_role("record", name, &tape).code(), Some(7));
    assert!(count(&tape, "reading the clock") >= 40, "{}", tape.listed());
    assert_eq!(in_role("replay", name, &tape).code(), Some(7));
}

/// So does one that never waits, up to the last tenth of a second before it is killed.
#[test]
fn busy_program_leaves_its_entries() {
    if let Some((_, path)) = role() {
        let _ = record(path, async {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(600) {
                let _ = now();
                std::thread::sleep(Duration::from_millis(5));
                futures_lite::future::yield_now().await;
            }
            std::process::abort();
        });
    }
    let tape = Tape::new();
    in_role("record", "edges::busy_program_leaves_its_entries", &tape);
    let found = count(&tape, "reading the clock");
    assert!(found >= 20, "{found} entries");
}

/// The child has a copy of the recording, without its thread: its run goes on, and ends.
#[test]
fn child_of_fork_does_not_hang() {
    let tape = Tape::new();
    let child = record(&tape.path, async {
        // SAFETY: the child ends by `_exit` below, and until then takes no lock that another thread
        // may have had.
        unsafe { libc::fork() }
    })
    .unwrap();
    if child == 0 {
        // SAFETY: it ends the process, without its destructors.
        unsafe { libc::_exit(9) }
    }
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: the status is a local.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > Duration::from_secs(10) {
            // SAFETY: the child was not waited for, so its number is its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(libc::WEXITSTATUS(status), 9);
    assert!(tape.listed().contains("the future returned"));
}

/// An entry that does not fit any more is not written.
#[test]
fn limit_is_kept_by_large_entries() {
    let (tape, dir) = (Tape::new(), tempfile::TempDir::new().unwrap());
    let path = dir.path().join("large");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let program = || {
        let path = path.clone();
        async move { polder::fs::read(path).await.map(|bytes| bytes.len()) }
    };
    let recording = Recording::new(&tape.path).limit(20_000);
    assert_eq!(recording.run(program()).unwrap().unwrap(), 1 << 20);
    let length = tape.bytes().len();
    assert!(length < 20_100, "{length} bytes");
    let error = replay(&tape.path, program()).unwrap_err().to_string();
    assert!(error.contains("the limit was reached"), "{error}");
}

/// A socket that a recording has left belongs to that one alone.
#[test]
fn socket_of_an_earlier_recording_is_refused() {
    let (one, other) = (Tape::new(), Tape::new());
    let socket = record(&one.path, UdpSocket::bind("127.0.0.1:0"))
        .unwrap()
        .unwrap();
    record(&other.path, async move {
        let _own = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let error = socket.local_addr().unwrap_err().to_string();
        assert!(error.contains("that it belongs to"), "{error}");
    })
    .unwrap();
}

/// Dropping it leaves the sockets of the later recording alone.
#[test]
fn socket_of_an_earlier_recording_is_dropped() {
    let (one, other) = (Tape::new(), Tape::new());
    let waited = async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let none = timeout(Duration::from_millis(1), socket.recv(&mut [0; 8])).await;
        assert!(none.is_err());
        socket
    };
    let earlier = record(&one.path, waited).unwrap();
    record(&other.path, async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let receiver = polder::spawn_local(async move { socket.recv(&mut [0; 8]).await });
        sleep(Duration::from_millis(1)).await;
        drop(earlier);
        let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        sender.send_to(b"datagram", address).await.unwrap();
        let received = timeout(Duration::from_secs(10), receiver).await;
        assert_eq!(received.expect("it is woken").unwrap(), 8);
    })
    .unwrap();
}

/// And so do its signals and its calls on threads.
#[test]
fn listeners_and_calls_of_an_earlier_recording_are_dropped() {
    use futures_lite::StreamExt;
    use futures_lite::future::poll_once;
    use polder::signal::{Signal, Signals};
    let (one, other) = (Tape::new(), Tape::new());
    let begin = || async {
        let signals = Signals::new([Signal::Usr1]).unwrap();
        let mut call = Box::pin(polder::fs::metadata("/"));
        assert!(poll_once(&mut call).await.is_none());
        (signals, call)
    };
    let earlier = record(&one.path, begin()).unwrap();
    record(&other.path, async move {
        let (mut signals, call) = begin().await;
        drop(earlier);
        signal_hook::low_level::raise(signal_hook::consts::SIGUSR1).unwrap();
        let signal = timeout(Duration::from_secs(10), signals.next()).await;
        assert!(signal.expect("the listener is there").is_some());
        let metadata = timeout(Duration::from_secs(10), call).await;
        assert!(metadata.expect("the call is there").is_ok());
    })
    .unwrap();
}

/// As many calls are made at a time as the thread pool makes without a recording.
#[test]
fn threads_of_calls_are_limited() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let tape = Tape::new();
    record(&tape.path, async {
        let call = || {
            let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
            MOST.fetch_max(running, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(300));
            RUNNING.fetch_sub(1, Ordering::SeqCst);
        };
        let calls: Vec<_> = (0..700)
            .map(|_| polder::spawn_local(polder::unblock(call)))
            .collect();
        for call in calls {
            call.await;
        }
    })
    .unwrap();
    let most = MOST.load(Ordering::SeqCst);
    assert!((2..=500).contains(&most), "{most} threads");
}

/// A call on a thread begins within the poll that makes it: also if the poll waits for its effect,
/// or is the last one, or if the future is dropped.
#[test]
fn calls_on_threads_begin_at_once() {
    use futures_lite::future::poll_once;
    let (tape, dir) = (Tape::new(), tempfile::TempDir::new().unwrap());
    let path = dir.path().join("file");
    let limit = Duration::from_secs(10);
    let (sender, receiver) = std::sync::mpsc::channel();
    let last = sender.clone();
    let written = path.clone();
    let receiver = record(&tape.path, async move {
        polder::unblock(move || sender.send("waited for").unwrap()).detach();
        assert_eq!(receiver.recv_timeout(limit), Ok("waited for"));
        let mut write = Box::pin(polder::fs::write(written, b"bytes"));
        assert!(poll_once(&mut write).await.is_none());
        drop(write);
        polder::unblock(move || last.send("last").unwrap()).detach();
        receiver
    })
    .unwrap();
    assert_eq!(receiver.recv_timeout(limit), Ok("last"));
    let start = Instant::now();
    while std::fs::read(&path).ok().as_deref() != Some(b"bytes") {
        assert!(start.elapsed() < limit, "the file is not written");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Names are looked up by threads of their own: not behind calls that never end. A dump has no hint
/// that there are too many calls, of which a replay knows nothing.
#[test]
fn names_are_looked_up_beside_calls() {
    let tape = Tape::new();
    record(&tape.path, async {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let receiver = std::sync::Arc::new(std::sync::Mutex::new(receiver));
        let calls = (0..600).map(|_| {
            let receiver = receiver.clone();
            polder::unblock(move || assert!(receiver.lock().unwrap().recv().is_err()))
        });
        let calls: Vec<_> = calls.collect();
        let limit = Duration::from_secs(10);
        let found = timeout(limit, polder::net::resolve("localhost:80")).await;
        let dump = || polder::Handle::current().dump();
        dump();
        sleep(Duration::from_millis(300)).await;
        let hints = dump().hints;
        drop(sender);
        assert!(hints.is_empty(), "{hints:?}");
        assert!(!found.expect("a thread is free").unwrap().is_empty());
        for call in calls {
            call.await;
        }
    })
    .unwrap();
}

/// A socket that a thread drops is closed, also while the worker waits for nothing else.
#[test]
fn socket_that_a_thread_drops_is_closed() {
    use std::io::Read;
    let tape = Tape::new();
    record(&tape.path, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, receiver) = async_channel::bounded(1);
        std::thread::spawn(move || {
            let mut peer = std::net::TcpStream::connect(address).unwrap();
            sender.send_blocking(peer.read(&mut [0; 8]).unwrap())
        });
        let (stream, _) = listener.accept().await.unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(stream);
        });
        let end = timeout(Duration::from_secs(10), receiver.recv()).await;
        assert_eq!(end.expect("it is closed").unwrap(), 0);
    })
    .unwrap();
}

/// A tape that cannot be written ends, and the run does not, even where nothing can be told.
#[test]
#[cfg(target_os = "linux")]
fn disk_that_is_full_ends_the_tape() {
    use std::os::fd::OwnedFd;
    if let Some((_, path)) = role() {
        let limit = libc::rlimit {
            rlim_cur: 100_000,
            rlim_max: 100_000,
        };
        // SAFETY: both change this process only, which the test below has made for this.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
        let clocks = async {
            for _ in 0..3_000_000 {
                let _ = now();
            }
        };
        record(path, clocks).unwrap();
        std::process::exit(7);
    }
    let tape = Tape::new();
    let (far, near) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(far);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "edges::disk_that_is_full_ends_the_tape"])
        .args(["--nocapture", "--test-threads=1"])
        .env(ROLE, "record")
        .env("REPLAY_TEST_TAPE", &tape.path)
        .stdout(Stdio::null())
        .stderr(OwnedFd::from(near))
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(7));
}

/// Sockets of a runtime that runs already would not be on the tape, and the runtime would wait.
#[test]
fn recording_within_a_runtime_is_refused() {
    let tape = Tape::new();
    polder::block_on(async {
        for result in [record(&tape.path, async {}), replay(&tape.path, async {})] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            let words = error.to_string();
            assert!(words.contains("runs a runtime already"), "{words}");
        }
    });
    assert!(!tape.path.exists());
}

/// A buffer that is larger than an entry is filled together with those before it.
#[test]
fn large_buffers_are_filled_together() {
    use std::io::IoSliceMut;
    let tape = Tape::new();
    let program = || async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = TcpStream::connect(address).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(&[7; 15]).await.unwrap();
        let (mut small, mut large) = ([0; 10], vec![0; 17 << 20]);
        let mut buffers = [
            IoSliceMut::new(&mut small),
            IoSliceMut::new(&mut []),
            IoSliceMut::new(&mut large),
        ];
        let read = far.read_vectored(&mut buffers).await.unwrap();
        (read, small, large[..5].to_vec())
    };
    let recorded = record(&tape.path, program()).unwrap();
    assert_eq!(recorded, (15, [7; 10], vec![7; 5]));
    assert_eq!(replay(&tape.path, program()).unwrap(), recorded);
}

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

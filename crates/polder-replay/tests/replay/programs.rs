//! Programs, recorded and replayed.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use polder::net::unix::{UnixDatagram, UnixListener, UnixStream};
use polder::net::{TcpListener, TcpStream, UdpSocket};
use polder::time::{now, sleep, timeout};
use polder_replay::{Recording, record, replay};

use crate::support::{Tape, in_another_process, record_and_replay, start_clients};

/// The state of an echo server, which depends on the order of everything that happens, and on
/// nanoseconds.
#[derive(Debug, Default, PartialEq)]
struct State {
    sum: u64,
    ticks: u32,
    echoed: usize,
    time: Duration,
}

/// Serves `clients` until they have ended. `begin` is called with the address.
async fn echo(clients: usize, begin: impl Fn(SocketAddr) + 'static) -> io::Result<State> {
    let start = now();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    begin(listener.local_addr()?);
    let state = Rc::new(RefCell::new(State::default()));
    let is_done = Rc::new(Cell::new(false));
    let ticker = polder::spawn_local({
        let (state, is_done) = (state.clone(), is_done.clone());
        async move {
            while !is_done.get() {
                sleep(Duration::from_micros(700)).await;
                let mut state = state.borrow_mut();
                state.ticks += 1;
                state.sum = state.sum.wrapping_mul(31)
                    ^ u64::from(start.elapsed_by_polder().subsec_nanos());
            }
        }
    });
    let mut connections = Vec::new();
    for number in 0..clients {
        let (mut stream, _) = listener.accept().await?;
        let state = state.clone();
        connections.push(polder::spawn_local(async move {
            let mut bytes = [0; 128];
            loop {
                let read = timeout(Duration::from_secs(20), stream.read(&mut bytes)).await;
                let read = read.map_err(|_| io::ErrorKind::TimedOut)??;
                if read == 0 {
                    return io::Result::Ok(());
                }
                {
                    let mut state = state.borrow_mut();
                    state.echoed += read;
                    state.sum = state.sum.wrapping_mul(1_000_003)
                        ^ (number * read) as u64
                        ^ u64::from(bytes[0]);
                }
                stream.write_all(&bytes[..read]).await?;
            }
        }));
    }
    for connection in connections {
        connection.await?;
    }
    is_done.set(true);
    ticker.await;
    let mut state = state.take();
    state.time = now() - start;
    Ok(state)
}

trait Elapsed {
    fn elapsed_by_polder(&self) -> Duration;
}

impl Elapsed for std::time::Instant {
    fn elapsed_by_polder(&self) -> Duration {
        now() - *self
    }
}

/// Time-outs, a ticker and four clients: every replay has the same state, and so has another
/// process.
#[test]
fn echo_with_timeouts_is_replayed() {
    if let Some(path) = std::env::var_os("REPLAYED_TAPE") {
        let state = replay(path, echo(4, |_| {})).unwrap().unwrap();
        println!("<<<{state:?}>>>");
        return;
    }
    let (tape, state) = record_and_replay(|is_recorded| async move {
        echo(4, move |address| {
            if is_recorded {
                start_clients(address, 4, 200);
            }
        })
        .await
        .unwrap()
    });
    assert!(state.echoed > 4 * 200 * 100 && state.ticks > 0);
    let name = "programs::echo_with_timeouts_is_replayed";
    assert_eq!(in_another_process(name, &tape.path), format!("{state:?}"));
    let listed = tape.listed();
    assert!(
        listed.contains("accept") && listed.contains("the future returned"),
        "{listed}"
    );
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&tape.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Both ends are in the program, and the second connection is refused.
#[test]
fn connects_and_errors_are_replayed() {
    let (_, errors) = record_and_replay(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let near = TcpStream::connect(address).await.unwrap();
        let (far, peer) = listener.accept().await.unwrap();
        assert_eq!(
            (near.local_addr().unwrap(), far.local_addr().unwrap()),
            (peer, address)
        );
        near.set_nodelay(true).unwrap();
        assert!(near.nodelay().unwrap());
        near.set_ttl(33).unwrap();
        assert_eq!(near.ttl().unwrap(), 33);
        drop((listener, far));
        let refused = TcpStream::connect(address).await.unwrap_err();
        let taken = TcpListener::bind(near.local_addr().unwrap())
            .await
            .unwrap_err();
        (address.port(), refused.kind(), taken.kind())
    });
    assert_eq!(
        (errors.1, errors.2),
        (io::ErrorKind::ConnectionRefused, io::ErrorKind::AddrInUse)
    );
}

/// More buffers than one call takes, empty ones before, and more bytes than an entry has.
#[test]
fn vectored_calls_are_replayed() {
    use std::io::{IoSlice, IoSliceMut};
    let (_, lengths) = record_and_replay(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = TcpStream::connect(address).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let mut slices = vec![IoSlice::new(b""); 1_100];
        slices.extend(vec![IoSlice::new(b"x"); 2_000]);
        let sent = near.write_vectored(&slices).await.unwrap();
        let mut bytes = [0; 2_000];
        let empty = (0..1_100).map(|_| IoSliceMut::new(&mut []));
        let single = bytes.chunks_mut(1).map(IoSliceMut::new);
        let mut buffers: Vec<_> = empty.chain(single).collect();
        let read = far.read_vectored(&mut buffers).await.unwrap();

        near.write_all(&[7; 15]).await.unwrap();
        let (mut small, mut large) = ([0; 10], vec![0; 17 << 20]);
        let mut buffers = [IoSliceMut::new(&mut small), IoSliceMut::new(&mut large)];
        let both = far.read_vectored(&mut buffers).await.unwrap();
        [sent, read, both]
    });
    assert_eq!(lengths, [1_024, 1_024, 15]);
}

#[test]
fn datagrams_are_replayed() {
    record_and_replay(|_| async {
        let one = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut bytes = [0; 8];
        let none = timeout(Duration::from_millis(3), one.recv_from(&mut bytes)).await;
        assert!(none.is_err());
        other
            .send_to(b"ping", one.local_addr().unwrap())
            .await
            .unwrap();
        let peeked = one.peek_from(&mut bytes).await.unwrap();
        let (length, from) = one.recv_from(&mut bytes).await.unwrap();
        assert_eq!((length, from), peeked);
        one.connect(from).await.unwrap();
        one.send(b"longer than eight").await.unwrap();
        (other.recv(&mut bytes).await.unwrap(), bytes, from)
    });
}

#[test]
fn unix_sockets_are_replayed() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("socket");
    record_and_replay(move |_| {
        let path = path.clone();
        async move {
            let listener = UnixListener::bind(&path).unwrap();
            let mut near = UnixStream::connect(&path).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            near.write_all(b"ping").await.unwrap();
            near.close().await.unwrap();
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).await.unwrap();
            let (a, b) = UnixDatagram::pair().unwrap();
            a.send(b"datagram").await.unwrap();
            let mut buffer = [0; 16];
            let length = b.recv(&mut buffer).await.unwrap();
            (bytes, length, buffer, near.peer_cred().unwrap().pid())
        }
    });
}

#[test]
fn files_and_names_are_replayed() {
    let dir = tempfile::TempDir::new().unwrap();
    let root = dir.path().to_owned();
    async fn program(
        root: PathBuf,
    ) -> io::Result<(
        Vec<u8>,
        u64,
        Vec<String>,
        Option<std::time::SystemTime>,
        usize,
    )> {
        use futures_lite::StreamExt;
        let path = root.join("file");
        polder::fs::write(&path, b"some words").await?;
        let mut file = polder::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .await?;
        file.seek(io::SeekFrom::Start(5)).await?;
        file.write_all(b"bytes, more than before").await?;
        file.sync_all().await?;
        file.seek(io::SeekFrom::Start(2)).await?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await?;
        let metadata = polder::fs::metadata(&path).await?;
        polder::fs::create_dir_all(root.join("a/b")).await?;
        let mut names = Vec::new();
        let mut entries = polder::fs::read_dir(&root).await?;
        while let Some(entry) = entries.try_next().await? {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        let missing = polder::fs::read(root.join("missing")).await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let addresses = polder::net::resolve("localhost:80").await?;
        Ok((
            bytes,
            metadata.len(),
            names,
            metadata.modified().ok(),
            addresses.len(),
        ))
    }
    let tape = Tape::new();
    let recorded = record(&tape.path, program(root.clone())).unwrap().unwrap();
    assert_eq!(recorded.0, b"me bytes, more than before");
    // The replay does not look at the disk.
    drop(dir);
    for _ in 0..3 {
        assert_eq!(
            replay(&tape.path, program(root.clone())).unwrap().unwrap(),
            recorded
        );
    }
}

#[test]
fn signals_are_replayed() {
    use futures_lite::StreamExt;
    use polder::signal::{Signal, Signals};
    record_and_replay(|is_recorded| async move {
        let start = now();
        let mut signals = Signals::new([Signal::Usr2]).unwrap();
        if is_recorded {
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                signal_hook::low_level::raise(signal_hook::consts::SIGUSR2).unwrap();
            });
        }
        let signal = signals.next().await;
        (format!("{signal:?}"), now() - start)
    });
}

/// The function runs again, and ends when the tape says so.
#[test]
fn unblock_ends_when_it_did() {
    record_and_replay(|is_recorded| async move {
        let start = now();
        let blocking = polder::unblock(move || {
            if is_recorded {
                std::thread::sleep(Duration::from_millis(30));
            }
            7
        });
        let ticks = Rc::new(Cell::new(0));
        let ticker = polder::spawn_local({
            let ticks = ticks.clone();
            async move {
                loop {
                    sleep(Duration::from_millis(2)).await;
                    ticks.set(ticks.get() + 1);
                }
            }
        });
        let seven = blocking.await;
        drop(ticker);
        (seven, ticks.get(), now() - start)
    });
}

/// The function is called on a thread of its own, which has the system's clock and events, by the
/// recording and by its replays.
#[test]
fn unblock_is_called_on_a_thread() {
    let (_, (seen, _)) = record_and_replay(|_| async {
        let worker = std::thread::current().id();
        let seen = polder::unblock(move || {
            let _ = now(); // Not on the tape.
            let answer = polder::block_on(async {
                sleep(Duration::from_millis(1)).await;
                7
            });
            (std::thread::current().id() != worker, answer)
        });
        let start = now();
        (seen.await, now() - start)
    });
    assert_eq!(seen, (true, 7));
}

/// Two tasks race for a value: it depends on the network which is first. One of the runs fails, and
/// its replays all fail.
#[test]
fn race_is_caught_once_and_replayed_always() {
    async fn race(is_recorded: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        if is_recorded {
            for number in 0..2_u8 {
                std::thread::spawn(move || {
                    use std::io::Write;
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    let _ = stream.write_all(&[number]);
                });
            }
        }
        let last = Rc::new(Cell::new(None));
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let last = last.clone();
            tasks.push(polder::spawn_local(async move {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                last.set(Some(byte[0]));
            }));
        }
        for task in tasks {
            task.await;
        }
        assert_eq!(last.get(), Some(1), "the bug");
    }
    let is_bug = |panic: Box<dyn std::any::Any + Send>| {
        panic
            .downcast_ref::<String>()
            .is_some_and(|text| text.contains("the bug"))
    };
    let tape = Tape::new();
    for run in 0.. {
        assert!(run < 10_000, "the race was never lost");
        let result = std::panic::catch_unwind(|| record(&tape.path, race(true)));
        if let Err(panic) = result {
            assert!(is_bug(panic));
            break;
        }
    }
    for _ in 0..20 {
        let result = std::panic::catch_unwind(|| replay(&tape.path, race(false)));
        assert!(is_bug(result.expect_err("the replay has the bug")));
    }
}

/// After the limit the run goes on, and the replay says why it cannot.
#[test]
fn limit_ends_the_tape() {
    let tape = Tape::new();
    let program = || async {
        for _ in 0..10_000 {
            sleep(Duration::from_nanos(1)).await;
        }
    };
    Recording::new(&tape.path)
        .limit(20_000)
        .run(program())
        .unwrap();
    assert!(tape.bytes().len() < 21_000, "{}", tape.bytes().len());
    let error = replay(&tape.path, program()).unwrap_err().to_string();
    assert!(error.contains("the limit was reached"), "{error}");
}

//! Sockets against a model: two sides read, write, cancel, shut down and drop, and every byte and
//! every datagram must arrive in its place.
//!
//! A cancelled operation was polled, was pending, and is dropped: it must have had no effect. A
//! byte's value follows from its offset in the stream, so a lost or repeated byte is detected
//! immediately.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use polder::future::{Boxed, poll_once, yield_now};
use polder::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use polder::net::unix::{UnixDatagram, UnixStream};
use polder::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use polder::time::{sleep, timeout};
use polder::{Backend, Runtime};

use crate::{Rng, fuzz};

#[test]
fn streams_carry_every_byte_whatever_is_given_up() {
    fuzz("streams_carry", 20_000, |backend, rng| {
        let runtime = runtime(backend, rng);
        if rng.one_in(2) {
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
                let address = listener.local_addr().expect("it has one");
                let connect = TcpStream::connect(address);
                let (near, far) = polder::future::try_zip(connect, listener.accept())
                    .await
                    .expect("they connect");
                run_streams(&runtime, near, far.0, rng).await
            })
        } else {
            runtime.block_on(async {
                let (near, far) = UnixStream::pair().expect("a pair");
                run_streams(&runtime, near, far, rng).await
            })
        }
    });
}

/// Datagrams arrive whole and in order, whichever operations are dropped.
#[test]
fn datagrams_whole_and_ordered_with_drops() {
    fuzz("datagrams_arrive", 10_000, |backend, rng| {
        let runtime = runtime(backend, rng);
        if rng.one_in(2) {
            runtime.block_on(async {
                let near = UdpSocket::bind("127.0.0.1:0").await.expect("it binds");
                let far = UdpSocket::bind("127.0.0.1:0").await.expect("it binds");
                let address = far.local_addr().expect("it has one");
                near.connect(address).await.expect("it connects");
                let address = near.local_addr().expect("it has one");
                far.connect(address).await.expect("it connects");
                run_datagrams(&runtime, near, far, rng).await
            })
        } else {
            runtime.block_on(async {
                let (near, far) = UnixDatagram::pair().expect("a pair");
                run_datagrams(&runtime, near, far, rng).await
            })
        }
    });
}

fn runtime(backend: Backend, rng: &mut Rng) -> Runtime {
    let builder = Runtime::builder().backend(backend);
    let workers = rng.pick(&[1, 1, 2, 3]);
    builder.workers(workers).build().expect("a runtime starts")
}

/// Both ends of a stream under test.
trait End: AsyncRead + AsyncWrite + Clone + Unpin + Send + 'static {
    fn finish(&self) -> io::Result<()>;
    fn peek<'a>(
        &'a self,
        bytes: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send + 'a;
}

macro_rules! end {
    ($stream:ty) => {
        impl End for $stream {
            fn finish(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
            fn peek<'a>(
                &'a self,
                bytes: &'a mut [u8],
            ) -> impl Future<Output = io::Result<usize>> + Send + 'a {
                <$stream>::peek(self, bytes)
            }
        }
    };
}

end!(TcpStream);
end!(UnixStream);

/// The period of the byte sequence: a prime, so that no buffer length hides a shift.
const PERIOD: usize = 65_521;

/// Returns up to `length` of the bytes that one side sends, starting at an offset.
fn bytes_at(side: u64, place: u64, length: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let mut rng = Rng::new(1);
        (0..PERIOD).map(|_| rng.number() as u8).collect()
    });
    let begin = (place + side * 30_000) as usize % PERIOD;
    &bytes[begin..PERIOD.min(begin + length)]
}

fn append(bytes: &mut Vec<u8>, side: u64, mut place: u64, length: usize) {
    let end = bytes.len() + length;
    while bytes.len() < end {
        let some = bytes_at(side, place, end - bytes.len());
        bytes.extend_from_slice(some);
        place += some.len() as u64;
    }
}

/// Returns whether these are the bytes from that offset on.
fn are_right(mut bytes: &[u8], side: u64, mut place: u64) -> bool {
    while !bytes.is_empty() {
        let some = bytes_at(side, place, bytes.len());
        if !bytes.starts_with(some) {
            return false;
        }
        bytes = &bytes[some.len()..];
        place += some.len() as u64;
    }
    true
}

/// The state that the two sides share.
#[derive(Default)]
struct Direction {
    /// The number of bytes that were certainly written.
    sent: AtomicU64,
    /// Whether the writer has written everything and shut the direction down.
    finished: AtomicBool,
}

#[derive(Default)]
struct Shared {
    /// The directions, by the side that sends.
    directions: [Direction; 2],
    /// Whether one side was dropped in the middle: errors and ends are allowed from then on.
    abandoned: AtomicBool,
    steps: AtomicU64,
}

async fn run_streams<S: End>(runtime: &Runtime, near: S, far: S, rng: &mut Rng) -> u64 {
    let shared = Arc::new(Shared::default());
    // At most one: a reader on each side would wait for the other's end.
    let leaver = rng.one_in(4).then(|| rng.below(2));
    let mut tasks = Vec::new();
    for (side, stream) in [near, far].into_iter().enumerate() {
        let steps = 10 + rng.below(60) as u64;
        // The side that leaves early is a writer; the stream is dropped when its reader has
        // noticed, too.
        let gives_up_after = (leaver == Some(side)).then(|| rng.below(30) as u64);
        let write = write_side(
            stream.clone(),
            side,
            steps,
            gives_up_after,
            shared.clone(),
            rng.fork(),
        );
        let read = read_side(stream, 1 - side, shared.clone(), rng.fork());
        match rng.below(3) {
            // In one task, side by side.
            0 => tasks.push(spawn(runtime, rng, async {
                polder::future::zip(write, read).await;
            })),
            _ => {
                tasks.push(spawn(runtime, rng, write));
                tasks.push(spawn(runtime, rng, read));
            }
        }
    }
    for task in tasks {
        task.await;
    }
    shared.steps.load(Ordering::Relaxed)
}

/// Runs a side as a task, or sometimes on a plain thread under another crate's executor: then the
/// background runtime drives its I/O, and events arrive during its attempts.
fn spawn(
    runtime: &Runtime,
    rng: &mut Rng,
    side: impl Future<Output = ()> + Send + 'static,
) -> Boxed<()> {
    if !rng.one_in(4) {
        return Box::pin(runtime.spawn(side));
    }
    let (sender, receiver) = async_channel::bounded(1);
    thread::spawn(move || {
        futures_lite::future::block_on(side);
        let _ = sender.try_send(());
    });
    Box::pin(async move {
        receiver.recv().await.expect("the thread does not panic");
    })
}

/// Returns whether the drop of a peer explains the error.
fn is_leaving(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
    )
}

/// Yields, sleeps, or does neither.
async fn dawdle(rng: &mut Rng) {
    match rng.below(24) {
        0 => sleep(rng.micros(300)).await,
        1..=6 => yield_now().await,
        _ => {}
    }
}

/// Polls an operation, and cancels it after a while if it is still pending.
async fn perhaps<T>(operation: impl Future<Output = T>, rng: &mut Rng) -> Option<T> {
    match rng.below(6) {
        0 | 1 => poll_once(operation).await,
        2 => {
            let mut operation = pin!(operation);
            for _ in 0..rng.below(4) {
                if let Some(output) = poll_once(operation.as_mut()).await {
                    return Some(output);
                }
                yield_now().await;
            }
            None
        }
        3 => timeout(rng.micros(200), operation).await.ok(),
        _ => Some(operation.await),
    }
}

async fn write_side<S: End>(
    mut stream: S,
    side: usize,
    steps: u64,
    gives_up_after: Option<u64>,
    shared: Arc<Shared>,
    mut rng: Rng,
) {
    let direction = &shared.directions[side];
    let mut place = 0;
    let mut bytes = Vec::new();
    for step in 0..steps {
        shared.steps.fetch_add(1, Ordering::Relaxed);
        if Some(step) == gives_up_after {
            shared.abandoned.store(true, Ordering::SeqCst);
            return;
        }
        let length = match rng.below(10) {
            0 => 100_000 + rng.below(300_000),
            1..=3 => 1 + rng.below(5_000),
            _ => 1 + rng.below(100),
        };
        bytes.clear();
        append(&mut bytes, side as u64, place, length);
        let cut = rng.below(length);
        let (first, second) = bytes.split_at(cut);
        let slices = [IoSlice::new(first), IoSlice::new(second)];
        let is_vectored = rng.one_in(4);
        let write = async {
            if is_vectored {
                stream.write_vectored(&slices).await
            } else {
                stream.write(&bytes).await
            }
        };
        match perhaps(write, &mut rng).await {
            Some(Ok(written)) => {
                assert!(
                    0 < written && written <= length,
                    "{written} of {length} written"
                );
                place += written as u64;
                direction.sent.store(place, Ordering::SeqCst);
            }
            Some(Err(error)) => {
                let is_right = shared.abandoned.load(Ordering::SeqCst) && is_leaving(&error);
                assert!(is_right, "writing: {error}");
                return;
            }
            None => {}
        }
        if rng.one_in(10) {
            // Another waiter on the same source; the previous one removes its waker.
            stream = stream.clone();
        }
        dawdle(&mut rng).await;
    }
    direction.finished.store(true, Ordering::SeqCst);
    if let Err(error) = stream.finish() {
        // A peer that has left, or is about to leave.
        let is_right = shared.abandoned.load(Ordering::SeqCst) && is_leaving(&error);
        assert!(is_right, "shutting down: {error}");
    }
}

async fn read_side<S: End>(mut stream: S, from: usize, shared: Arc<Shared>, mut rng: Rng) {
    let direction = &shared.directions[from];
    let mut place = 0_u64;
    let mut buffer = vec![0; 100_000];
    loop {
        shared.steps.fetch_add(1, Ordering::Relaxed);
        if shared.abandoned.load(Ordering::SeqCst) && rng.one_in(2) {
            return; // The stream is closed once both halves of this side are gone.
        }
        let length = match rng.below(4) {
            0 => 1 + rng.below(100_000),
            _ => 1 + rng.below(2_000),
        };
        let bytes = &mut buffer[..length];
        let is_peek = rng.one_in(8);
        let read = match rng.below(4) {
            _ if is_peek => perhaps(stream.peek(bytes), &mut rng).await,
            0 => {
                let (first, second) = bytes.split_at_mut(length / 3);
                let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
                perhaps(stream.read_vectored(&mut slices), &mut rng).await
            }
            _ => perhaps(stream.read(bytes), &mut rng).await,
        };
        match read {
            Some(Ok(0)) => {
                let sent = direction.sent.load(Ordering::SeqCst);
                let is_whole = direction.finished.load(Ordering::SeqCst) && place == sent;
                let is_right = is_whole || shared.abandoned.load(Ordering::SeqCst);
                assert!(is_right, "the end after {place} of {sent} bytes");
                return;
            }
            Some(Ok(count)) => {
                assert!(count <= length, "{count} of {length} read");
                let is_right = are_right(&buffer[..count], from as u64, place);
                assert!(is_right, "{count} bytes from {place} on, peek: {is_peek}");
                if !is_peek {
                    place += count as u64;
                }
            }
            Some(Err(error)) => {
                let is_right = shared.abandoned.load(Ordering::SeqCst) && is_leaving(&error);
                assert!(is_right, "reading: {error}");
                return;
            }
            None => {}
        }
        if rng.one_in(10) {
            stream = stream.clone();
        }
        dawdle(&mut rng).await;
    }
}

/// Both ends of a datagram transport.
trait Datagrams: Clone + Send + Sync + 'static {
    fn send<'a>(&'a self, bytes: &'a [u8]) -> impl Future<Output = io::Result<usize>> + Send + 'a;
    fn recv<'a>(
        &'a self,
        bytes: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send + 'a;
}

macro_rules! datagrams {
    ($socket:ty) => {
        impl Datagrams for $socket {
            fn send<'a>(
                &'a self,
                bytes: &'a [u8],
            ) -> impl Future<Output = io::Result<usize>> + Send + 'a {
                <$socket>::send(self, bytes)
            }
            fn recv<'a>(
                &'a self,
                bytes: &'a mut [u8],
            ) -> impl Future<Output = io::Result<usize>> + Send + 'a {
                <$socket>::recv(self, bytes)
            }
        }
    };
}

datagrams!(UdpSocket);
datagrams!(UnixDatagram);

/// The number of UDP datagrams of the largest size that fit a receiver's buffer; more are dropped.
const WINDOW: u64 = 20;

const LARGEST: usize = 3_000;

async fn run_datagrams<S: Datagrams>(runtime: &Runtime, near: S, far: S, rng: &mut Rng) -> u64 {
    let mut tasks = Vec::new();
    let steps = Arc::new(AtomicU64::new(0));
    for (side, sender, receiver) in [(0, near.clone(), far.clone()), (1, far, near)] {
        let count = 10 + rng.below(60) as u64;
        let received = Arc::new(AtomicU64::new(0));
        let mut writer = rng.fork();
        let mut reader = rng.fork();
        let seen = received.clone();
        let (sent, taken) = (steps.clone(), steps.clone());
        tasks.push(spawn(runtime, rng, async move {
            let mut number = 0;
            while number < count {
                if number - seen.load(Ordering::SeqCst) >= WINDOW {
                    yield_now().await;
                    continue;
                }
                sent.fetch_add(1, Ordering::Relaxed);
                let bytes = datagram(side, number);
                match perhaps(sender.send(&bytes), &mut writer).await {
                    Some(Ok(length)) => {
                        assert_eq!(length, bytes.len(), "of datagram {number}");
                        number += 1;
                    }
                    // The error for a full queue on Apple's systems and the BSDs.
                    Some(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                        yield_now().await;
                    }
                    Some(Err(error)) => panic!("sending datagram {number}: {error}"),
                    None => {}
                }
                dawdle(&mut writer).await;
            }
        }));
        tasks.push(spawn(runtime, rng, async move {
            let mut buffer = [0; LARGEST + 1];
            for number in 0..count {
                taken.fetch_add(1, Ordering::Relaxed);
                loop {
                    match perhaps(receiver.recv(&mut buffer), &mut reader).await {
                        Some(Ok(length)) => {
                            let is_right = buffer[..length] == datagram(side, number);
                            assert!(is_right, "{length} bytes for datagram {number}");
                            break;
                        }
                        Some(Err(error)) => panic!("receiving datagram {number}: {error}"),
                        None => {}
                    }
                }
                received.fetch_add(1, Ordering::SeqCst);
                dawdle(&mut reader).await;
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    steps.load(Ordering::Relaxed)
}

/// The contents of a datagram follow from its number.
fn datagram(side: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number << 1 | side);
    let length = 1 + rng.below(LARGEST);
    let mut bytes = Vec::with_capacity(length);
    append(&mut bytes, side, number * 1_000, length);
    bytes
}

//! QUIC: quinn on polder, with quinn on tokio as the other end, and with itself.
//!
//! `QUIC_BYTES` is the amount to send, by default one that takes a moment. If it is set, the times
//! of all pairs are printed:
//!
//! ```sh
//! QUIC_BYTES=1000000000 cargo test --release --test quic -- --nocapture --test-threads=1
//! ```

#![cfg(unix)]

use std::error::Error;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use interop::http::PATTERN;
use polder::{Backend, Runtime};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream,
    ServerConfig, TokioRuntime,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The time limits of an exchange on a loaded machine, far longer than any needs: of one with the
/// default size, and of a large one.
const LIMITS: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(3_600)];

/// Enough for many windows.
const BYTES: u64 = 8_000_000;

/// The maximum number of bytes per read from a stream.
const CHUNK: usize = 1 << 20;

/// Returns the number of bytes to send in each direction.
fn bytes() -> Option<u64> {
    let text = std::env::var("QUIC_BYTES").ok()?;
    Some(text.parse().expect("QUIC_BYTES is a number"))
}

/// The runtime that drives an end.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Driver {
    Polder(Backend, usize),
    Tokio,
}

impl Driver {
    /// Runs `future`, and what it spawns, on this thread. (polder may have more workers.)
    fn run<F: Future>(self, future: F) -> F::Output {
        match self {
            Driver::Polder(backend, workers) => {
                let runtime = Runtime::builder().backend(backend).workers(workers);
                let runtime = runtime.build().expect("an available backend can be opened");
                runtime.block_on(future)
            }
            Driver::Tokio => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                runtime.expect("tokio starts").block_on(future)
            }
        }
    }

    fn quinn(self) -> Arc<dyn quinn::Runtime> {
        match self {
            Driver::Polder(..) => Arc::new(polder_quinn::Runtime),
            Driver::Tokio => Arc::new(TokioRuntime),
        }
    }

    fn endpoint(self, config: Option<ServerConfig>) -> io::Result<Endpoint> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        Endpoint::new(EndpointConfig::default(), config, socket, self.quinn())
    }
}

/// A server's configuration, and that of its clients.
fn configs() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::with_single_cert(vec![certificate], key.into()).unwrap();
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    (server, client)
}

/// Serves connections, each in a separate task, until `connections` have ended.
async fn serve(endpoint: Endpoint, runtime: Arc<dyn quinn::Runtime>, connections: usize) {
    let (done, ended) = async_channel::unbounded::<()>();
    for _ in 0..connections {
        let incoming = endpoint.accept().await.expect("the endpoint is open");
        let (runtime_of_streams, done) = (runtime.clone(), done.clone());
        runtime.spawn(Box::pin(async move {
            connection(incoming, runtime_of_streams).await;
            drop(done);
        }));
    }
    drop(done);
    let _ = ended.recv().await; // An error, once all senders are gone.
    endpoint.wait_idle().await;
}

async fn connection(incoming: Incoming, runtime: Arc<dyn quinn::Runtime>) {
    let connection = incoming.await.expect("the handshake succeeds");
    while let Ok((send, recv)) = connection.accept_bi().await {
        runtime.spawn(Box::pin(async move {
            answer(send, recv).await.expect("a request is answered");
        }));
    }
}

/// Answers a request. It is a number, followed by that many bytes of the pattern, which are echoed.
async fn answer(mut send: SendStream, mut recv: RecvStream) -> Result {
    let mut number = [0; 8];
    recv.read_exact(&mut number).await?;
    let count = u64::from_be_bytes(number);
    expect(&mut recv, count).await?;
    send_pattern(&mut send, count).await
}

async fn send_pattern(send: &mut SendStream, mut left: u64) -> Result {
    while left > 0 {
        let size = left.min(PATTERN.len() as u64) as usize;
        send.write_all(&PATTERN[..size]).await?;
        left -= size as u64;
    }
    Ok(send.finish()?)
}

/// Reads `count` bytes of the pattern, and the end of the stream.
async fn expect(recv: &mut RecvStream, count: u64) -> Result {
    let mut at = 0;
    while let Some(chunk) = recv.read_chunk(CHUNK, true).await? {
        let mut bytes = &chunk.bytes[..];
        while !bytes.is_empty() {
            let expected = &PATTERN[at as usize % PATTERN.len()..];
            let size = bytes.len().min(expected.len());
            assert!(bytes[..size] == expected[..size], "wrong bytes after {at}");
            bytes = &bytes[size..];
            at += size as u64;
        }
    }
    assert_eq!(at, count, "the stream has ended too soon, or too late");
    Ok(())
}

/// Sends `count` bytes and gets them back.
async fn request(connection: &Connection, count: u64) -> Result {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&count.to_be_bytes()).await?;
    send_pattern(&mut send, count).await?;
    expect(&mut recv, count).await
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: one `timespec` is written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs a server and a client, each on a separate thread; `work` is what the client does with its
/// endpoint. Returns the result of `work`, and the processor time of the two threads.
fn exchange<T, F>(
    [server, client]: [Driver; 2],
    connections: usize,
    work: impl Fn(Endpoint, SocketAddr) -> F + Send + 'static,
) -> (T, [Duration; 2])
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let limit = LIMITS[usize::from(bytes().is_some())];
    let (server_config, client_config) = configs();
    let (address, addresses) = mpsc::channel();
    let (times, server_time) = mpsc::channel();
    let (results, result) = mpsc::channel();
    let serving = thread::spawn(move || {
        server.run(async {
            let endpoint = server.endpoint(Some(server_config)).unwrap();
            address.send(endpoint.local_addr().unwrap()).unwrap();
            serve(endpoint, server.quinn(), connections).await;
        });
        times.send(processor_time()).unwrap();
    });
    let address = addresses.recv_timeout(limit).expect("the server starts");
    let asking = thread::spawn(move || {
        let result = client.run(async {
            let mut endpoint = client.endpoint(None)?;
            endpoint.set_default_client_config(client_config);
            let result = work(endpoint.clone(), address).await;
            endpoint.close(0_u32.into(), b"done");
            endpoint.wait_idle().await;
            result
        });
        results.send((result, processor_time())).unwrap();
    });
    let what = format!("{client:?} asks {server:?}");
    match result.recv_timeout(limit) {
        Ok((result, client_time)) => {
            let server_time = (server_time.recv_timeout(limit)).expect("the server ends");
            asking.join().unwrap();
            serving.join().unwrap();
            let result = result.unwrap_or_else(|error| panic!("{what}: {error}"));
            (result, [server_time, client_time])
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: not done after {limit:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            asking.join().expect("the client ends");
            panic!("{what}: no result")
        }
    }
}

/// Sends bytes and receives them back on one connection.
async fn there_and_back(endpoint: Endpoint, address: SocketAddr) -> Result<quinn::ConnectionStats> {
    let connection = endpoint.connect(address, "localhost")?.await?;
    request(&connection, bytes().unwrap_or(BYTES)).await?;
    let stats = connection.stats();
    connection.close(0_u32.into(), b"done");
    Ok(stats)
}

/// Several concurrent connections, with several streams each.
async fn crowd(endpoint: Endpoint, address: SocketAddr) -> Result {
    const STREAMS: u64 = 8;
    let one = async || -> Result {
        let connection = endpoint.connect(address, "localhost")?.await?;
        let streams = (0..STREAMS).map(|stream| request(&connection, stream * 50_000));
        for result in futures_concurrency::future::Join::join(streams.collect::<Vec<_>>()).await {
            result?;
        }
        connection.close(0_u32.into(), b"done");
        Ok(())
    };
    for result in futures_concurrency::future::Join::join([(); CROWD].map(|()| one())).await {
        result?;
    }
    Ok(())
}

const CROWD: usize = 4;

/// Returns polder on each backend, with one and with several workers, with tokio at either end; or
/// the pairs to be measured.
fn pairs() -> Vec<[Driver; 2]> {
    let default = Driver::Polder(Backend::default(), 1);
    if bytes().is_some() {
        return vec![
            [Driver::Tokio; 2],
            [default, Driver::Tokio],
            [Driver::Tokio, default],
            [default; 2],
        ];
    }
    let mut pairs = Vec::new();
    for backend in Backend::available() {
        for workers in [1, 3] {
            let polder = Driver::Polder(backend, workers);
            pairs.extend([[polder, Driver::Tokio], [Driver::Tokio, polder]]);
        }
    }
    pairs.push([default; 2]);
    pairs
}

#[test]
fn polder_and_tokio_send_each_other_many_bytes() {
    for pair @ [server, client] in pairs() {
        let start = Instant::now();
        let (stats, times) = exchange(pair, 1, there_and_back);
        if cfg!(target_os = "linux") {
            // Several datagrams per system call (GSO).
            let sent = stats.udp_tx;
            assert!(sent.ios * 2 < sent.datagrams, "{client:?}: {sent:?}");
        }
        if let Some(bytes) = bytes() {
            let [server_time, client_time] = times.map(|it| it.as_secs_f64());
            let seconds = start.elapsed().as_secs_f64();
            let rate = 2.0 * bytes as f64 / seconds / 1e6;
            println!(
                "{client:?} -> {server:?}: {seconds:.2} s, {rate:.0} MB/s; processor: \
                 {client_time:.2} s the client, {server_time:.2} s the server"
            );
        }
    }
}

#[test]
fn parallel_streams_all_get_their_bytes() {
    for pair in pairs() {
        exchange(pair, CROWD, crowd);
    }
}

/// Returns a socket as quinn uses it.
fn socket() -> Arc<dyn quinn::AsyncUdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    quinn::Runtime::wrap_udp_socket(&polder_quinn::Runtime, socket).unwrap()
}

#[test]
fn segments_and_marks_of_congestion_arrive() {
    const SEGMENT: usize = 1_200;

    for backend in Backend::available() {
        Driver::Polder(backend, 1).run(async {
            let (near, far) = (socket(), socket());
            let mut writable = near.clone().create_io_poller();
            std::future::poll_fn(|cx| writable.as_mut().poll_writable(cx))
                .await
                .unwrap();
            // As many segments per call as the system takes: on Linux more than one.
            let segments = near.max_transmit_segments().min(4);
            assert!(segments == 4 || cfg!(not(target_os = "linux")));
            let contents = &PATTERN[..segments * SEGMENT];
            let transmit = Transmit {
                destination: far.local_addr().unwrap(),
                ecn: Some(EcnCodepoint::Ect0),
                contents,
                segment_size: (segments > 1).then_some(SEGMENT),
                src_ip: None,
            };
            near.try_send(&transmit).unwrap();
            let mut received = Vec::new();
            while received.len() < contents.len() {
                let mut buffer = vec![0; 65_536];
                let mut meta = [RecvMeta::default()];
                let receive = std::future::poll_fn(|cx| {
                    far.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta)
                });
                assert_eq!(receive.await.unwrap(), 1);
                assert_eq!(meta[0].addr, near.local_addr().unwrap());
                assert_eq!(meta[0].stride, SEGMENT);
                assert_eq!(meta[0].ecn, Some(EcnCodepoint::Ect0));
                received.extend_from_slice(&buffer[..meta[0].len]);
            }
            assert!(received == contents);
        });
    }
}

/// An error of one datagram does not end an endpoint.
///
/// An ICMP message to a connected socket.
#[test]
fn datagram_error_does_not_end_endpoint() {
    for backend in Backend::available() {
        Driver::Polder(backend, 1).run(async {
            let far = UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = far.local_addr().unwrap();
            let near = UdpSocket::bind("127.0.0.1:0").unwrap();
            near.connect(address).unwrap();
            let to = near.local_addr().unwrap();
            drop(far);
            near.send(b"refused").unwrap();
            let near = quinn::Runtime::wrap_udp_socket(&polder_quinn::Runtime, near).unwrap();
            let far = UdpSocket::bind(address).unwrap();
            far.send_to(b"x", to).unwrap();
            let (mut buffer, mut meta) = ([0; 16], [RecvMeta::default()]);
            let receive = std::future::poll_fn(|cx| {
                near.poll_recv(cx, &mut [IoSliceMut::new(&mut buffer)], &mut meta)
            });
            assert_eq!((receive.await.unwrap(), meta[0].len), (1, 1));
        });
    }
}

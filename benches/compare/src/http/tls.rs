//! TLS: the certificate of the measurement, the server's side of it, and a generator of HTTPS
//! requests.
//!
//! The generator has a thread for each connection, with rustls on blocking sockets: only the
//! server's CPU time is of interest. Nothing is resumed, so that each handshake is a full one.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer};
use futures_rustls::rustls::client::Resumption;
use futures_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
};

use crate::clock;
use crate::echo::histogram::Histogram;
use crate::echo::load::http::{LAST_REQUEST, REQUEST, whole};
use crate::echo::load::{Measured, Phases};
use crate::program::reset_when_closed;
use crate::results::Results;

const NAME: &str = "localhost";

/// The maximum time without progress.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the paths of the certificate and of its key, for server and generator.
fn files() -> io::Result<[PathBuf; 2]> {
    let folder = Results::folder()?;
    Ok([folder.join("certificate.der"), folder.join("key.der")])
}

/// Makes a certificate, before the server starts.
pub fn make_certificate() -> io::Result<()> {
    let [certificate, key] = files()?;
    fs::create_dir_all(Results::folder()?)?;
    let made = rcgen::generate_simple_self_signed([NAME.to_string()]).map_err(io::Error::other)?;
    fs::write(certificate, made.cert.der())?;
    fs::write(key, made.signing_key.serialize_der())
}

/// Returns the server's side.
pub fn server() -> io::Result<Arc<ServerConfig>> {
    let [certificate, key] = files()?;
    let chain = vec![CertificateDer::from(fs::read(certificate)?)];
    let key = PrivateKeyDer::try_from(fs::read(key)?).map_err(io::Error::other)?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key);
    Ok(Arc::new(config.map_err(io::Error::other)?))
}

fn client() -> io::Result<Arc<ClientConfig>> {
    let [certificate, _] = files()?;
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(fs::read(certificate)?))
        .map_err(io::Error::other)?;
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The generator's work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Requests over persistent connections.
    Requests,
    /// A connection, a handshake, and a request, again and again.
    Handshakes,
}

/// The state that the threads of a measurement share.
struct Shared {
    config: Arc<ClientConfig>,
    port: u16,
    measuring: AtomicBool,
    stop: AtomicBool,
    latencies: Mutex<Histogram>,
}

pub fn run(load: Load, connections: usize, phases: &Phases<'_>) -> io::Result<Measured> {
    let shared = Shared {
        config: client()?,
        port: phases.server.port,
        measuring: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        latencies: Mutex::new(Histogram::new()),
    };
    let measured = thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| shared.connection(load)))
            .collect();
        thread::sleep(phases.warm);
        let (before, own) = (phases.server.spent(), clock::cpu());
        let begin = Instant::now();
        shared.measuring.store(true, Ordering::Relaxed);
        thread::sleep(phases.limit);
        // A short measurement may have begun before the first answer.
        while shared.latencies().total() == 0 && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        shared.measuring.store(false, Ordering::Relaxed);
        let (after, wall) = (phases.server.spent(), begin.elapsed());
        let own = clock::cpu() - own;
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("it does not panic")?;
        }
        io::Result::Ok((after - before, wall, own))
    });
    let (server, wall, own) = measured?;
    let latencies = shared.latencies.into_inner().expect("nobody panics");
    Ok(Measured {
        requests: latencies.total(),
        wall,
        server,
        own,
        latencies,
    })
}

impl Shared {
    fn latencies(&self) -> std::sync::MutexGuard<'_, Histogram> {
        self.latencies.lock().expect("nobody panics")
    }

    /// Asks until it is told to stop.
    fn connection(&self, load: Load) -> io::Result<()> {
        let mut kept = match load {
            Load::Requests => Some(self.connect()?),
            Load::Handshakes => None,
        };
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match &mut kept {
                Some(stream) => ask(stream, REQUEST)?,
                None => ask(&mut self.connect()?, LAST_REQUEST)?,
            }
            if self.measuring.load(Ordering::Relaxed) {
                self.latencies().add(begun.elapsed());
            }
        }
        Ok(())
    }

    fn connect(&self) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        reset_when_closed(&socket);
        let name = NAME.try_into().map_err(io::Error::other)?;
        let session = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(session, socket))
    }
}

/// Sends a request, and receives its answer.
fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<()> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut answer = [0; 1024];
    let mut received = 0;
    loop {
        match stream.read(&mut answer[received..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => received += length,
        }
        match whole(&answer[..received]) {
            Some(length) if length == received => return Ok(()),
            Some(_) => return Err(io::Error::other("more than an answer came")),
            None => {}
        }
    }
}

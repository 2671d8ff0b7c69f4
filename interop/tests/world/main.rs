//! Crates that do not know polder, in one simulated world: each has a server and a client, on
//! separate hosts. Links are cut and held; they lose, delay and reorder data. Connections are
//! reset, clocks jump, and servers crash. Every client gets all its answers in the end, and each
//! seed has the same result each time: in one process, and in two.
//!
//! `WORLD_SEEDS` is the number of seeds to try, of each kind.

// The platforms on which worlds replace functions of the C library, `syscall` included.
#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

mod http;
mod http2;
mod https;
mod queue;
mod quic;
mod websocket;

use std::cell::Cell;
use std::error::Error;
use std::fmt::Write;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use futures_rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use futures_rustls::rustls::RootCertStore;
use interop::http::PATTERN;
use polder::time::{sleep, timeout};
use polder_sim::{Host, Latency, Sim};

polder_sim::answer_for_libc!();

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A program of a host.
type Program = Pin<Box<dyn Future<Output = Result>>>;

/// The number of exchanges of each client, and the pause after each.
const EXCHANGES: u64 = 12;
const PAUSE: Duration = Duration::from_millis(300);

/// How long a client waits for an exchange; and a server for a request, or for the rest of one.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long faults are injected.
const HARM: Duration = Duration::from_secs(8);

/// How long the clients may take after the last fault.
const REST: Duration = Duration::from_secs(120);

/// The number of seeds to try, unless `WORLD_SEEDS` is set.
const SEEDS: u64 = 30;

fn seeds() -> u64 {
    std::env::var("WORLD_SEEDS").map_or(SEEDS, |it| it.parse().expect("WORLD_SEEDS is a number"))
}

/// A crate's server and client. The server's host has this name.
struct Service {
    name: &'static str,
    serve: fn(Identity) -> Program,
    ask: fn(Identity, Rc<Account>) -> Program,
}

static SERVICES: [Service; 7] = [
    Service {
        name: "http1",
        serve: |_| Box::pin(http::serve(80, http::connection)),
        ask: |_, account| Box::pin(http::ask_1("http1:80", account)),
    },
    Service {
        name: "http2",
        serve: |_| Box::pin(http::serve(80, http::connection_2)),
        ask: |_, account| Box::pin(http::ask_2("http2:80", account)),
    },
    Service {
        name: "h2",
        serve: |_| Box::pin(http::serve(80, http2::connection)),
        ask: |_, account| Box::pin(http2::ask("h2:80", account)),
    },
    Service {
        name: "https",
        serve: |identity| Box::pin(https::serve(identity)),
        ask: |identity, account| Box::pin(https::ask(identity, account)),
    },
    Service {
        name: "websocket",
        serve: |_| Box::pin(http::serve(80, websocket::connection)),
        ask: |_, account| Box::pin(websocket::ask("websocket:80", account)),
    },
    Service {
        name: "quic",
        serve: |identity| Box::pin(quic::serve(identity)),
        ask: |identity, account| Box::pin(quic::ask(identity, account)),
    },
    Service {
        name: "queue",
        serve: |_| Box::pin(queue::serve()),
        ask: |_, account| Box::pin(queue::ask(account)),
    },
];

/// A certificate for all servers, and its key.
#[derive(Clone)]
struct Identity(Rc<(CertificateDer<'static>, PrivateKeyDer<'static>)>);

impl Identity {
    /// Makes them in a world, so that its seed determines them.
    fn new() -> Identity {
        let names: Vec<String> = SERVICES.iter().map(|it| it.name.into()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Identity(Rc::new((made.cert.into(), key.into())))
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.0.0.clone()]
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        self.0.1.clone_key()
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.0.clone())?;
        Ok(roots)
    }
}

/// The progress of a client, for the test.
#[derive(Default)]
struct Account {
    done: Cell<u64>,
    /// The number of repeated exchanges.
    again: Cell<u64>,
}

/// Makes all exchanges, on one connection for as long as it lasts: an exchange that fails or takes
/// too long is repeated, on another one.
async fn persist<C>(
    account: Rc<Account>,
    connect: impl AsyncFn() -> Result<C>,
    exchange: impl AsyncFn(&mut C, u64) -> Result,
) -> Result {
    let mut connection = None;
    while account.done.get() < EXCHANGES {
        let attempt = async {
            let connection = match &mut connection {
                Some(connection) => connection,
                none => none.insert(connect().await?),
            };
            exchange(connection, account.done.get()).await
        };
        if let Ok(Ok(())) = timeout(PATIENCE, attempt).await {
            account.done.set(account.done.get() + 1);
            sleep(PAUSE).await;
        } else {
            connection = None;
            account.again.set(account.again.get() + 1);
            sleep(PAUSE / 10).await;
        }
    }
    Ok(())
}

/// Returns the data of the exchange with that number: from one byte to 60 KB, different each time.
fn payload(number: u64) -> &'static [u8] {
    let size = 1 + number as usize * 23_456 % 60_000;
    &PATTERN[number as usize..][..size]
}

/// A received answer must be correct: no network fault explains a wrong one.
fn expect_same(received: &[u8], expected: &[u8]) {
    let (len, right) = (received.len(), expected.len());
    assert!(
        received == expected,
        "{len} bytes instead of {right}, or other ones"
    );
}

/// Runs the services, each client with all faults for a while; then everything is answered.
async fn world(sim: Sim, services: &'static [Service]) {
    let latency = Latency::uniform(Duration::from_millis(1)..Duration::from_millis(20));
    sim.links()
        .latency(latency)
        .reordering(0.02)
        .duplication(0.01);
    let identity = Identity::new();
    let start = |service: &'static Service| {
        let (host, identity) = (sim.host(service.name), identity.clone());
        host.start(move || (service.serve)(identity.clone()));
        host
    };
    let servers: Vec<Host> = services.iter().map(start).collect();
    let ask = |service: &'static Service| {
        let account = Rc::new(Account::default());
        let (identity, asking) = (identity.clone(), account.clone());
        let host = sim.host(&format!("asks-{}", service.name));
        let process = host.start(move || (service.ask)(identity.clone(), asking.clone()));
        let asking = account.clone();
        let name = format!("the client of {} does something again", service.name);
        sim.sometimes(&name, move || asking.again.get() > 0);
        (service.name, process, account)
    };
    let clients: Vec<_> = services.iter().map(ask).collect();
    let chaos = sim.chaos(HARM).cuts().holds().resets().loss().pauses();
    let chaos = chaos.latencies().orders().clocks();
    chaos.crashes(&servers.iter().collect::<Vec<_>>());
    sim.sleep(HARM).await;
    sim.quiesce();
    for (name, process, account) in clients {
        let result = process.finished().within(REST).await;
        assert!(result.is_ok(), "the client of {name}: {result:?}");
        assert_eq!(account.done.get(), EXCHANGES, "by the client of {name}");
    }
}

/// Returns the result of a seed.
fn line(seed: u64, services: &'static [Service]) -> String {
    let report = polder_sim::run(seed, |sim| world(sim, services));
    assert_eq!(report.failure, None);
    let (fingerprint, events) = (report.fingerprint, report.events);
    format!("{seed} {fingerprint:016x} {events} {:?}\n", report.time)
}

/// The file for the results of all seeds, if another process is to be compared with this one.
const FILE: &str = "WORLD_FINGERPRINTS";

/// Every client gets its answers under any faults of servers and network.
#[test]
fn clients_get_answers_under_faults() {
    polder_sim::check(0..seeds(), |sim| world(sim, &SERVICES));
}

#[test]
fn each_crate_alone_comes_to_the_same_each_time() {
    let mut differ = String::new();
    for service in &SERVICES {
        let alone = std::slice::from_ref(service);
        let all = || -> String { (8..14).map(|it| line(it, alone)).collect() };
        let (first, second) = (all(), all());
        if first != second {
            let _ = writeln!(differ, "{}:\n{first}and then\n{second}", service.name);
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

/// A seed comes to the same twice and in another process.
#[test]
fn seed_repeats_in_another_process() {
    let all = || -> String { (0..seeds()).map(|it| line(it, &SERVICES)).collect() };
    let first = all();
    if let Some(path) = std::env::var_os(FILE) {
        return std::fs::write(path, first).expect("it can be written");
    }
    assert_eq!(first, all());
    let name = "seed_repeats_in_another_process";
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("world-fingerprints");
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args(["--exact", name])
        .env(FILE, &path)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let other = std::fs::read_to_string(&path).expect("it was written");
    assert_eq!(first, other);
}

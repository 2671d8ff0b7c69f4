//! The replicated log on the kernel's sockets, with restarts.

use std::io::ErrorKind;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use interop::raft::{Change, Client, Config, Disk, run};
use polder::net::TcpListener;
use polder::{Backend, Runtime, Task};

/// The time limit on a loaded machine, far longer than it takes.
pub const LIMIT: Duration = Duration::from_secs(120);

pub const NODES: usize = 3;
const CLIENTS: u64 = 4;
const WRITES: u64 = 25;

/// Starts a node, at its address.
async fn start(id: usize, addresses: &[String], disk: &Disk) -> Task<()> {
    let listener = bind(&addresses[id]).await;
    let config = Config::new(id, addresses.to_vec(), id as u64);
    let disk = disk.clone();
    polder::spawn(async move {
        run(listener, config, disk).await.expect("it listens");
    })
}

/// Binds again while the port is taken: another worker may be about to close the listener of the
/// killed node.
async fn bind(address: &str) -> TcpListener {
    let bound = polder::time::timeout(LIMIT / 2, async {
        loop {
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    polder::time::sleep(Duration::from_millis(5)).await;
                }
                bound => return bound,
            }
        }
    });
    let bound = bound.await.expect("nobody else has the port for long");
    bound.expect("it can be bound")
}

/// Ports that are free, as far as the kernel knows. On Linux, no outgoing connection uses their
/// addresses, so that none gets the port of a node that is down.
pub async fn addresses() -> Vec<String> {
    let mut all = Vec::new();
    for id in 0..NODES {
        let host = if cfg!(target_os = "linux") { 2 + id } else { 1 };
        let bound = TcpListener::bind(format!("127.0.0.{host}:0")).await;
        all.push(bound.expect("a port"));
    }
    let addresses = all.iter().map(|it| it.local_addr().expect("it has one"));
    addresses.map(|it| it.to_string()).collect()
}

async fn increments() {
    let addresses = addresses().await;
    let folder = tempfile::tempdir().expect("a directory can be made");
    let disk = |id: usize| Disk::new(folder.path().join(id.to_string()));
    let disks: Vec<Disk> = (0..NODES).map(disk).collect();
    let mut nodes = Vec::new();
    for (id, disk) in disks.iter().enumerate() {
        nodes.push(start(id, &addresses, disk).await);
    }
    let clients: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let mut client = Client::new(id, addresses.clone(), Duration::from_millis(500));
            polder::spawn(async move {
                for _ in 0..WRITES {
                    client.write(Change::Add { key: 1, value: 1 }).await;
                }
            })
        })
        .collect();
    // Each node is killed once, while the others go on.
    for (id, disk) in disks.iter().enumerate() {
        polder::time::sleep(Duration::from_millis(100)).await;
        nodes.remove(id).cancel().await;
        nodes.insert(id, start(id, &addresses, disk).await);
    }
    for client in clients {
        client.await;
    }
    let mut last = Client::new(CLIENTS, addresses, Duration::from_secs(5));
    assert_eq!(
        last.read(1).await,
        CLIENTS * WRITES,
        "each write counts once"
    );
}

/// On the kernel's sockets no write is lost by restarts.
#[test]
fn loopback_restarts_lose_no_write() {
    for (backend, workers) in Backend::available().into_iter().zip([1, 3].iter().cycle()) {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let runtime = Runtime::builder().backend(backend).workers(*workers);
            let runtime = runtime.build().expect("an available backend can be opened");
            runtime.block_on(increments());
            let _ = sender.send(());
        });
        let ended = receiver.recv_timeout(LIMIT);
        ended.unwrap_or_else(|error| panic!("on {backend}: {error}"));
    }
}

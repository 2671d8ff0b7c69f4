//! The program in madsim, as `#[madsim::test]` runs it: with a time limit, and without its check of
//! determinism, which is off by default.

#[path = "../work.rs"]
mod work;

mod net {
    pub use madsim::net::{TcpListener, TcpStream};
    pub use madsim::time::sleep;
    pub use tokio::io::{AsyncReadExt, AsyncWriteExt};

    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        madsim::task::spawn(future);
    }
}

include!("../program.rs");

use madsim::net::NetSim;
use madsim::runtime::{Builder, Handle};
use madsim::time::Instant;
use madsim::{Config, plugin};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use work::{LATENCY, LIMIT, Work, client_name, server_name};

/// A test is a function without captures.
static WORK: OnceLock<Work> = OnceLock::new();

fn main() {
    work::measure(|work| {
        let _ = WORK.set(work);
        let mut config = Config::default();
        config.net.send_latency = LATENCY..LATENCY + Duration::from_nanos(1);
        let builder = Builder {
            seed: 10,
            count: work.worlds,
            jobs: 1,
            config,
            time_limit: Some(LIMIT),
            check: false,
            allow_system_thread: false,
        };
        builder.run(world);
    });
}

fn address(host: u64) -> IpAddr {
    let [.., high, low] = (host + 1).to_be_bytes();
    Ipv4Addr::new(10, 0, high, low).into()
}

async fn world() {
    let begun = Instant::now();
    let work = *WORK.get().expect("it is set first");
    let handle = Handle::current();
    let net = plugin::simulator::<NetSim>();
    for index in 0..work.servers() {
        net.add_dns_record(&server_name(index), address(index));
        let node = handle.create_node().name(server_name(index));
        node.ip(address(index)).build().spawn(server());
    }
    let clients = (0..work.clients()).map(|index| {
        let server = server_name(index % work.servers());
        let node = handle.create_node().name(client_name(index));
        let node = node.ip(address(work.servers() + index)).build();
        node.spawn(client(
            server,
            work.after(index),
            work.rounds(),
            work.pause(),
        ))
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.await.unwrap().unwrap();
    }
    assert_eq!(ANSWERED.get(), work.answers());
    work::ended(begun.elapsed());
}

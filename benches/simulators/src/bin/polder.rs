//! The program in polder's worlds, by `sim::check`, with every check: fingerprints of all worlds
//! (the first one runs twice to compare them); deadlocks, livelocks, panics and foreign wakes, as
//! always; and the checks that a test requests: leaks, retry storms, and a condition after each
//! step.

#[path = "../work.rs"]
mod work;

mod net {
    pub use polder::io::{AsyncReadExt, AsyncWriteExt};
    pub use polder::net::{TcpListener, TcpStream};
    pub use polder::time::sleep;

    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        polder::spawn(future).detach();
    }
}

include!("../program.rs");

use polder_sim::{Latency, Sim};
use work::{LATENCY, LIMIT, Work, client_name, server_name};

fn main() {
    work::measure(|work| {
        // The seeds from 0 to 9 would be calm, if there were chaos.
        polder_sim::check(10..10 + work.worlds, |sim| world(sim, work));
    });
}

async fn world(sim: Sim, work: Work) {
    if work.shares_thread {
        sim.share_thread();
        // The program's thread-locals.
        ASKED.set(0);
        ANSWERED.set(0);
    }
    sim.limit(LIMIT);
    sim.links().latency(Latency::fixed(LATENCY));
    sim.forbid_leaks();
    sim.max_connects(10);
    sim.always("no answer without a request", || {
        ANSWERED.get() <= ASKED.get()
    });
    sim.sometimes("a client is answered", || ANSWERED.get() > 0);
    for index in 0..work.servers() {
        sim.host(&server_name(index)).start(server);
    }
    let clients = (0..work.clients()).map(|index| {
        sim.host(&client_name(index)).start(move || {
            let server = server_name(index % work.servers());
            client(server, work.after(index), work.rounds(), work.pause())
        })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.finished().within(LIMIT).await.unwrap();
    }
    // Each world counts separately: it has its own thread, or it has started from zero.
    assert_eq!(ANSWERED.get(), work.answers());
    work::ended(sim.now());
}

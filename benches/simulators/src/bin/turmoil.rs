//! The program in turmoil, with the time limit. The last command-line argument is the tick in
//! milliseconds, one by default.

#[path = "../work.rs"]
mod work;

mod net {
    pub use tokio::io::{AsyncReadExt, AsyncWriteExt};
    pub use tokio::time::sleep;
    pub use turmoil::net::{TcpListener, TcpStream};

    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(future);
    }
}

include!("../program.rs");

use work::{LATENCY, LIMIT, Work, client_name, server_name};

fn main() {
    let tick = std::env::args().nth(4);
    let tick = tick.map_or(1, |it| it.parse().expect("milliseconds"));
    work::measure(|work| {
        for seed in 10..10 + work.worlds {
            world(seed, work, Duration::from_millis(tick));
        }
    });
}

fn world(seed: u64, work: Work, tick: Duration) {
    let mut builder = turmoil::Builder::new();
    let builder = builder.rng_seed(seed).simulation_duration(LIMIT);
    let builder = builder.tick_duration(tick);
    let builder = builder
        .min_message_latency(LATENCY)
        .max_message_latency(LATENCY);
    let mut sim = builder.build();
    for index in 0..work.servers() {
        sim.host(server_name(index), || async { Ok(server().await?) });
    }
    for index in 0..work.clients() {
        let name = server_name(index % work.servers());
        let client = client(name, work.after(index), work.rounds(), work.pause());
        sim.client(client_name(index), async { Ok(client.await?) });
    }
    ANSWERED.set(0);
    sim.run().unwrap();
    assert_eq!(ANSWERED.get(), work.answers());
    work::ended(sim.elapsed());
}

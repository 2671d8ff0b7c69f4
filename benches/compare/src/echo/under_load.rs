//! Most measurements of services: a server in a separate process, under a load.

use std::time::Duration;

use super::load::{self, Load, Measured, Phases};
use super::server::Server;
use super::{cores, more_descriptors};
use crate::group::{Metric, Order, Outcome, Skip, Values, Workload, values};

pub const METRICS: &[Metric] = &[
    Metric {
        key: "cpu",
        title: "server CPU, ns per request",
        ratio: true,
    },
    Metric {
        key: "rate",
        title: "requests/s",
        ratio: true,
    },
    Metric {
        key: "p50",
        title: "p50, µs",
        ratio: false,
    },
    Metric {
        key: "p99",
        title: "p99, µs",
        ratio: false,
    },
];

/// Returns a workload with these values, compared with tokio's.
pub fn workload(name: String, title: String, programs: &[&str], short: bool) -> Workload {
    Workload {
        name,
        title,
        programs: programs.iter().map(|name| String::from(*name)).collect(),
        yardstick: "tokio".into(),
        metrics: METRICS,
        limit: Duration::from_millis(if short { 200 } else { 1_000 }),
        deadline: Duration::from_secs(20),
        rounds: None,
    }
}

/// Starts a server, which has as many cores as it has workers if there are more; the generator,
/// which is this thread, then has one to itself. Returns whether it has.
pub fn start(workers: usize, words: &[&str; 3]) -> Result<(Server, bool), Skip> {
    more_descriptors();
    let cores = cores::allowed();
    let last = cores.len() - 1;
    let apart = workers <= last;
    if apart {
        // The server inherits the cores.
        cores::pin(&cores[..workers]);
    }
    let server = Server::start(words)?;
    if apart {
        cores::pin(&cores[last..]);
    }
    Ok((server, apart))
}

/// Starts a server, and puts it under the load.
pub fn measure(order: &Order, workers: usize, words: &[&str; 3], load: Load) -> Outcome {
    let (server, apart) = start(workers, words)?;
    Ok(run(order, &server, apart, load))
}

/// Puts a server under the load.
pub fn run(order: &Order, server: &Server, spin: bool, load: Load) -> Values {
    let phases = phases(order, server, spin);
    let measured = load::run(load, &phases)
        .unwrap_or_else(|error| panic!("{} {}: {error}", order.workload, order.program));
    found(&measured)
}

pub fn phases<'a>(order: &Order, server: &'a Server, spin: bool) -> Phases<'a> {
    Phases {
        warm: order.limit / 3,
        limit: order.limit,
        spin,
        server,
    }
}

/// Returns the values of [`METRICS`], and the sleeps.
pub fn found(measured: &Measured) -> Values {
    let requests = measured.requests as f64;
    let micros = |share| measured.latencies.quantile(share) as f64 / 1e3;
    values([
        ("cpu", measured.server.cpu.as_nanos() as f64 / requests),
        ("sleeps", measured.server.sleeps as f64 / requests),
        ("rate", requests / measured.wall.as_secs_f64()),
        ("p50", micros(0.5)),
        ("p99", micros(0.99)),
    ])
}

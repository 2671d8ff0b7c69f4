//! hyper on polder, on tokio and on smol, under `wrk` or a generator of our own: requests over
//! persistent connections, a connection for each, and both over TLS.

pub mod serve;
mod tls;

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::echo::load::Load;
use crate::echo::server::Server;
use crate::echo::{cores, under_load};
use crate::group::{Group, Metric, Order, Outcome, Skip, Values, Workload, values};

/// The generator's work: the beginning of a workload's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Requests over persistent connections.
    Http,
    /// A connection for each request.
    Connect,
    /// The same two over TLS.
    Https,
    Handshake,
}

use Kind::{Connect, Handshake, Http, Https};

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Http => "http",
            Connect => "connect",
            Https => "https",
            Handshake => "handshake",
        }
    }

    /// Returns the title of a row with so many connections.
    fn title(self, connections: usize) -> String {
        match self {
            Http => format!("{connections} connections"),
            Connect => format!("a connection for each request, {connections} at a time"),
            Https => format!("HTTPS, {connections} connections"),
            Handshake => format!("HTTPS, a handshake for each request, {connections} at a time"),
        }
    }
}

/// What, with how many workers, over how many connections; whether it is part of the short mode.
const ROWS: &[(Kind, usize, usize, bool)] = &[
    (Http, 1, 50, true),
    (Http, 2, 50, true),
    (Http, 2, 200, true),
    (Http, 2, 1000, false),
    // More workers than most machines have cores.
    (Http, 8, 200, false),
    (Http, 16, 200, false),
    (Connect, 2, 16, false),
    (Https, 2, 50, false),
    (Handshake, 2, 16, false),
];

/// `wrk` measures whole seconds, at least one.
const SECOND: Duration = Duration::from_secs(1);

const METRICS: &[Metric] = &[
    Metric {
        key: "p99",
        title: "p99, µs",
        ratio: true,
    },
    Metric {
        key: "p50",
        title: "p50, µs",
        ratio: true,
    },
    Metric {
        key: "rate",
        title: "requests/s",
        ratio: true,
    },
    Metric {
        key: "cpu",
        title: "server CPU, ns per request",
        ratio: true,
    },
];

pub fn group() -> Group {
    Group {
        name: "http",
        title: "HTTP",
        about: "hyper on polder, on tokio and on smol, a server of 20 lines that answers with 14 bytes, \
                with 50 to 1,000 connections that ask again as soon as they are answered, or with a connection for each \
                request. The requests over persistent connections come \
                from `wrk` with one thread, or from this program's own generator where `wrk` is not \
                installed; the table says which. With one worker, server and generator have a core \
                each; with two, a core for each worker and one for the generator if there are three, \
                and else they share all cores, as they do on a busy machine. hyper reads into memory \
                that is not initialised, which tokio's traits can do; for polder and smol it reads into a \
                buffer of the thread, and copies (polder-hyper). *HTTPS* is rustls with ring and a certificate that signs \
                itself, by futures-rustls for polder and smol, by tokio-rustls for tokio and for polder in \
                `polder-tokio-rustls`; its generator has a thread for \
                each connection, and resumes nothing.",
        workloads,
        missing: || {
            if wrk() {
                Vec::new()
            } else {
                vec!["requests by wrk, which is not installed (Debian: apt-get install wrk)".into()]
            }
        },
        measure,
    }
}

/// Returns whether `wrk` is installed.
fn wrk() -> bool {
    // It prints its usage, and fails.
    let tried = (Command::new("wrk").arg("--version"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok()
}

fn workloads(short: bool) -> Vec<Workload> {
    let cores = cores::allowed().len();
    let limit = if short { SECOND / 5 } else { SECOND * 2 };
    (ROWS.iter().filter(|(.., is_short)| *is_short || !short))
        .map(|&(kind, workers, connections, _)| {
            let generator = match kind {
                Http if wrk() && limit >= SECOND => "wrk",
                _ => "own generator",
            };
            let shared = if workers < cores {
                String::new()
            } else {
                format!("; server and generator share {cores} cores")
            };
            let words = match workers {
                1 => "one worker".into(),
                2 => "two workers".into(),
                _ => format!("{workers} workers"),
            };
            Workload {
                name: format!("{}-{workers}-{connections}", kind.word()),
                title: format!("{}, {words} ({generator}{shared})", kind.title(connections)),
                programs: programs(kind).iter().map(|&name| name.into()).collect(),
                yardstick: "tokio".into(),
                metrics: METRICS,
                limit,
                deadline: Duration::from_secs(30),
                rounds: None,
            }
        })
        .collect()
}

fn programs(kind: Kind) -> &'static [&'static str] {
    match kind {
        Http | Connect => &["polder", "tokio", "smol"],
        Https | Handshake => &["polder", serve::POLDER_TOKIO_RUSTLS, "tokio", "smol"],
    }
}

/// Parses the kind and the number of workers: `http-2-200`.
fn parts(order: &Order) -> Option<(Kind, usize)> {
    let (word, rest) = order.workload.split_once('-')?;
    let kind = [Http, Connect, Https, Handshake]
        .into_iter()
        .find(|kind| kind.word() == word)?;
    let (workers, _) = rest.split_once('-')?;
    Some((kind, workers.parse().ok()?))
}

fn measure(order: &Order) -> Outcome {
    let Some((kind, workers)) = parts(order) else {
        return order.unknown();
    };
    let connections = order.number();
    let command = match kind {
        Http | Connect => "serve-http",
        Https | Handshake => {
            tls::make_certificate().map_err(|error| Skip(format!("certificate: {error}")))?;
            "serve-https"
        }
    };
    let number = workers.to_string();
    let (server, apart) = under_load::start(workers, &[command, &order.program, &number])?;
    let at_once = connections;
    let by_tls = |load| {
        let measured = tls::run(
            load,
            connections,
            &under_load::phases(order, &server, apart),
        );
        measured.unwrap_or_else(|error| panic!("{} {}: {error}", order.workload, order.program))
    };
    Ok(match kind {
        Http if order.limit >= SECOND && wrk() => by_wrk(&server, connections, order.limit)?,
        Http => under_load::run(order, &server, apart, Load::Http { connections }),
        Connect => under_load::run(order, &server, apart, Load::HttpConnects { at_once }),
        Https => under_load::found(&by_tls(tls::Load::Requests)),
        Handshake => under_load::found(&by_tls(tls::Load::Handshakes)),
    })
}

fn by_wrk(server: &Server, connections: usize, limit: Duration) -> Outcome {
    let before = server.cpu();
    let output = Command::new("wrk")
        .args(["--threads", "1", "--latency"])
        .args(["--connections", &connections.to_string()])
        .args(["--duration", &format!("{}s", limit.as_secs())])
        .arg(format!("http://127.0.0.1:{}/", server.port))
        .output()
        .map_err(|error| Skip(format!("wrk: {error}")))?;
    let cpu = server.cpu() - before;
    let said = String::from_utf8_lossy(&output.stdout);
    match read(&said) {
        Some((mut found, requests)) if output.status.success() => {
            found.insert("cpu".into(), cpu.as_nanos() as f64 / requests);
            Ok(found)
        }
        _ => Err(Skip(format!("wrk said {said:?}"))),
    }
}

/// Returns its measurements, and the number of requests. `None` if any of them failed.
fn read(said: &str) -> Option<(Values, f64)> {
    if said.contains("Socket errors") || said.contains("Non-2xx") {
        return None;
    }
    let word = |before: &str| {
        (said.lines())
            .find_map(|line| line.trim_start().strip_prefix(before))
            .and_then(|rest| rest.split_whitespace().next())
    };
    let requests = (said.lines())
        .find(|line| line.contains(" requests in "))?
        .split_whitespace()
        .next()?;
    let found = values([
        ("p99", micros(word("99%")?)?),
        ("p50", micros(word("50%")?)?),
        ("rate", word("Requests/sec:")?.parse().ok()?),
    ]);
    Some((found, requests.parse().ok()?))
}

/// Parses `512.00us`, `1.02ms`, `1.50s`.
fn micros(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   512.33us   99.15us   4.61ms   95.00%
    Req/Sec    97.51k     2.61k  101.93k    85.00%
  Latency Distribution
     50%  498.00us
     75%  530.00us
     90%  570.00us
     99%    1.02ms
  194018 requests in 2.00s, 23.87MB read
Requests/sec:  96998.12
Transfer/sec:     11.93MB
";

    #[test]
    fn what_wrk_says_is_understood() {
        let (found, requests) = read(SAID).expect("it is what wrk says");
        assert_eq!(found["p50"], 498.0);
        assert_eq!(found["p99"], 1020.0);
        assert_eq!(found["rate"], 96998.12);
        assert_eq!(requests, 194018.0);
    }

    #[test]
    fn a_run_with_errors_is_none() {
        let errors = format!("{SAID}  Socket errors: connect 0, read 3, write 0, timeout 0\n");
        assert!(read(&errors).is_none());
    }
}

//! A store of keys and values that speaks Redis's protocol: small requests, one at a time and
//! pipelined by 16, as `redis-benchmark` sends them.

pub mod serve;

use crate::echo::load::{Block, Load};
use crate::echo::under_load;
use crate::group::{Group, Order, Outcome, Workload};

pub fn group() -> Group {
    Group {
        name: "redis",
        title: "Like Redis",
        about: "A server that knows GET and SET in Redis's protocol, with one map behind a lock and two workers, and 50 \
                connections that alternately set a value of three bytes and get it: one request in flight, or 16, half of \
                them of each kind. It answers all requests that one read has brought by one write. The generator is \
                this program's own; each answer is checked.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

const WORKERS: usize = 2;

const CONNECTIONS: usize = 50;

fn workloads(short: bool) -> Vec<Workload> {
    [(1, "one request in flight"), (16, "pipelined by 16")]
        .into_iter()
        .map(|(window, title)| {
            let name = format!("w{WORKERS}-pipelined-{window}");
            let title = format!("GET and SET, {CONNECTIONS} connections, {title}");
            under_load::workload(name, title, &["polder", "tokio", "smol"], short)
        })
        .collect()
}

fn measure(order: &Order) -> Outcome {
    let load = Load::Exchange {
        connections: CONNECTIONS,
        blocks: blocks(order.number()),
    };
    let words = ["serve-redis", &order.program, &WORKERS.to_string()];
    under_load::measure(order, WORKERS, &words, load)
}

/// Returns blocks of so many requests: alternately a SET and a GET.
fn blocks(window: usize) -> &'static [Block] {
    const SET: (&str, &str) = (
        "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$3\r\nxxx\r\n",
        "+OK\r\n",
    );
    const GET: (&str, &str) = (
        "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n",
        "$3\r\nxxx\r\n",
    );
    let alternately = [SET, GET].repeat(window.max(2) / 2);
    let blocks: Vec<Block> = (alternately.chunks(window))
        .map(|chunk| Block {
            request: chunk
                .iter()
                .flat_map(|(request, _)| request.bytes())
                .collect(),
            answer: chunk
                .iter()
                .flat_map(|(_, answer)| answer.bytes())
                .collect(),
            requests: chunk.len(),
        })
        .collect();
    // Lives as long as the process.
    blocks.leak()
}

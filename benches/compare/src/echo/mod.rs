//! An echo server against a load generator, on a core each.

use std::time::Duration;

use crate::group::{Group, Metric, Order, Outcome, Workload, values};

const METRICS: &[Metric] = &[
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
        name: "echo",
        title: "Echo server and load generator",
        about: "To be written.",
        workloads: |_short| {
            vec![Workload {
                name: "small-50".into(),
                title: "64 bytes, 50 connections".into(),
                programs: vec!["raw".into(), "polder".into()],
                yardstick: "raw".into(),
                metrics: METRICS,
                limit: Duration::from_millis(200),
                deadline: Duration::from_secs(20),
                rounds: None,
            }]
        },
        measure,
    }
}

fn measure(order: &Order) -> Outcome {
    match order.program.as_str() {
        // A placeholder.
        "raw" => Ok(values([("rate", 1.0), ("cpu", 1.0)])),
        _ => order.unknown(),
    }
}

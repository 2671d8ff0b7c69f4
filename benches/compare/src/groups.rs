//! All groups, in the order of the report. Only `options`, `report`, `run` and `main` use it: a
//! group that did would create a cycle.

use crate::group::Group;
use crate::{
    echo, files, growth, http, instructions, light, lto, memory, micro, pairs, proxy, redis, small,
    udp, workers,
};

pub fn groups() -> Vec<Group> {
    vec![
        pairs::group(),
        echo::group(),
        http::group(),
        light::group(),
        redis::group(),
        proxy::group(),
        udp::group(),
        micro::group(),
        workers::group(),
        growth::group(),
        files::group(),
        memory::group(),
        instructions::group(),
        lto::group(),
        small::group(),
    ]
}

/// Returns the workloads of all groups, by both names, in the order of the report.
pub fn order() -> Vec<(String, String)> {
    (groups().iter())
        .flat_map(|group| {
            ((group.workloads)(false).into_iter())
                .map(|workload| (group.name.to_string(), workload.name))
        })
        .collect()
}

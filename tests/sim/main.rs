//! The rules of simulated worlds, and programs with planted bugs that they find.

mod chaos;
mod checks;
#[cfg(unix)]
mod descriptors;
mod determinism;
#[cfg(target_os = "linux")]
mod differential;
mod example;
mod failing;
mod faults;
mod history;
mod hosts;
mod links;
mod migrating;
mod mistakes;
mod names;
mod planted;
mod platforms;
mod said;
mod shared;
mod tcp;
mod threads;
mod udp;
#[cfg(unix)]
mod unix;
mod workers;
mod world;

use std::time::Duration;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

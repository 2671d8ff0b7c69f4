//! Measurements: the time of a number of operations, the number that fits into a measurement, and
//! the memory and the sleeps of a process.
//!
//! A child does one thing, so the CPU time of its whole process is the cost of that thing.

use std::time::{Duration, Instant};
use std::{fs, io};

use crate::group::{Skip, Values, values};

/// The time that something took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Took {
    pub wall: Duration,
    /// CPU time of this process, in user and in kernel mode.
    pub cpu: Duration,
}

/// Starts measuring.
pub struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    pub fn start() -> Clock {
        let cpu = cpu();
        Clock {
            wall: Instant::now(),
            cpu,
        }
    }

    pub fn stop(self) -> Took {
        Took {
            wall: self.wall.elapsed(),
            cpu: cpu() - self.cpu,
        }
    }
}

/// Returns the CPU time of this process so far.
pub fn cpu() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    assert_eq!(result, 0, "every Unix has a process clock");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Does a number of operations, and returns the time they took.
pub type Run = Box<dyn FnMut(u64) -> Took>;

/// A program made ready, or the reason why it cannot run.
pub type Ready = Result<Run, Skip>;

/// Returns the number of operations that fit into a measurement: tried with growing numbers, which
/// warms up as well. The result is a multiple of `step`.
pub fn fit(run: &mut Run, step: u64, limit: Duration) -> u64 {
    let mut count = step;
    loop {
        let took = run(count).wall.max(Duration::from_nanos(1));
        let fits = count as f64 * limit.as_secs_f64() / took.as_secs_f64();
        if took * 4 >= limit {
            return (fits as u64).max(1).next_multiple_of(step);
        }
        count = (count * 8)
            .min(fits as u64 / 2)
            .max(1)
            .next_multiple_of(step);
    }
}

/// Returns `ns` and `cpu` per operation.
pub fn nanos(run: &mut Run, step: u64, limit: Duration) -> Values {
    let count = fit(run, step, limit);
    let took = run(count);
    let each = |took: Duration| took.as_nanos() as f64 / count as f64;
    values([("ns", each(took.wall)), ("cpu", each(took.cpu))])
}

/// Returns the resident set of a process (by its id, or `self`) in bytes. Read from `smaps_rollup`,
/// which is exact: `statm` may be some hundred pages behind (proc(5)).
pub fn resident(process: &str) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    (text.lines())
        .find_map(|line| line.strip_prefix("Rss:"))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<f64>()
                .ok()
        })
        .map(|kibibytes| kibibytes * 1024.0)
        .ok_or_else(|| io::Error::other("the kernel does not say it"))
}

/// Returns how often the threads of a process (by its id, or `self`) have gone to sleep: voluntary
/// context switches.
pub fn sleeps(process: &str) -> io::Result<u64> {
    let mut all = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that has just ended has no file any more.
        let text = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        all += (text.lines())
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .and_then(|rest| rest.trim().parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(all)
}

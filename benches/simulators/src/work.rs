//! The measured work, shared by the three programs; and how a program reports its cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The port of servers.
pub const PORT: u16 = 7000;

/// The size of a request, and of an answer, in bytes.
pub const SIZE: usize = 64;

/// The latency between any two hosts, without variation: a simulator's tick must not matter.
pub const LATENCY: Duration = Duration::from_millis(1);

/// One measurement: the numbers of hosts and of worlds.
#[derive(Clone, Copy)]
pub struct Work {
    pub kind: Kind,
    pub hosts: u64,
    pub worlds: u64,
    /// Whether worlds may share a thread, in a simulator that has a thread for each world.
    #[cfg_attr(not(feature = "polder"), allow(dead_code))]
    pub shares_thread: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Clients ask without a pause.
    Requests,
    /// Small worlds: three requests of each client.
    Seeds,
    /// Clients ask ten times a second, and the hosts are idle in between.
    Heartbeats,
}

/// Requests of a client, in worlds of heartbeats: for about 20 seconds.
const HEARTBEATS: u64 = 200;

const PAUSE: Duration = Duration::from_millis(100);

impl Work {
    /// Parses the command line: `requests 100 5`, or `shared-seeds 3 100`. Returns `None` for
    /// anything else.
    fn from_arguments() -> Option<Work> {
        let mut arguments = std::env::args().skip(1);
        let word = arguments.next()?;
        let (shares_thread, kind) = match word.strip_prefix("shared-") {
            Some(kind) => (true, kind),
            None => (false, word.as_str()),
        };
        let kind = match kind {
            "requests" => Kind::Requests,
            "seeds" => Kind::Seeds,
            "heartbeats" => Kind::Heartbeats,
            _ => return None,
        };
        let mut number = || arguments.next()?.parse().ok();
        let (hosts, worlds) = (number()?, number()?);
        Some(Work {
            kind,
            hosts,
            worlds,
            shares_thread,
        })
    }

    /// Returns the number of servers: a tenth of the hosts, at least one. The others are clients.
    pub fn servers(self) -> u64 {
        (self.hosts / 10).max(1)
    }

    pub fn clients(self) -> u64 {
        self.hosts - self.servers()
    }

    /// Returns the number of requests of a client.
    pub fn rounds(self) -> u64 {
        match self.kind {
            // A world takes about as long with any number of clients.
            Kind::Requests => (30_000 / self.clients()).max(30),
            Kind::Seeds => 3,
            Kind::Heartbeats => HEARTBEATS,
        }
    }

    pub fn pause(self) -> Duration {
        match self.kind {
            Kind::Heartbeats => PAUSE,
            Kind::Requests | Kind::Seeds => Duration::ZERO,
        }
    }

    /// Returns when a client starts: after the servers, and with heartbeats spread over their
    /// pause, in whole milliseconds.
    pub fn after(self, client: u64) -> Duration {
        match self.kind {
            Kind::Heartbeats => Duration::from_millis(1 + client * 37 % 100),
            Kind::Requests | Kind::Seeds => Duration::from_millis(1),
        }
    }

    /// Returns the number of answers that the clients of a world receive.
    pub fn answers(self) -> u64 {
        self.clients() * self.rounds()
    }
}

/// A world that takes longer fails, in each simulator; none comes close.
pub const LIMIT: Duration = Duration::from_secs(3_600);

pub fn server_name(server: u64) -> String {
    format!("server-{server}")
}

pub fn client_name(client: u64) -> String {
    format!("client-{client}")
}

/// The number of worlds that have run to their end, and the sum of their simulated times, in
/// nanoseconds. polder runs the first world twice, and also the first one that runs on another
/// one's thread, to compare them.
static WORLDS: AtomicU64 = AtomicU64::new(0);
static SIMULATED: AtomicU64 = AtomicU64::new(0);

/// Records that a world has ended at simulated time `time`, and all its clients have been answered.
pub fn ended(time: Duration) {
    WORLDS.fetch_add(1, Ordering::Relaxed);
    SIMULATED.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
}

/// Does the work that the command line names. Prints its CPU time and the simulated time of all
/// worlds, in nanoseconds, the number of worlds, and the number of answers.
pub fn measure(run: impl FnOnce(Work)) {
    let work = Work::from_arguments();
    let work = work.expect("usage: [shared-]requests|seeds|heartbeats HOSTS WORLDS");
    let before = cpu();
    run(work);
    let took = (cpu() - before).as_nanos();
    let [worlds, simulated] = [&WORLDS, &SIMULATED].map(|it| it.load(Ordering::Relaxed));
    assert!(worlds >= work.worlds, "worlds that have not ended");
    println!("{took} {simulated} {worlds} {}", worlds * work.answers());
}

/// Returns the CPU time of this process, by a call that madsim does not intercept.
fn cpu() -> Duration {
    // SAFETY: the kernel fills a `rusage`, for which zeroes are valid too.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut used), 0);
        used
    };
    let time = |it: libc::timeval| {
        Duration::from_secs(it.tv_sec as u64) + Duration::from_micros(it.tv_usec as u64)
    };
    time(used.ru_utime) + time(used.ru_stime)
}

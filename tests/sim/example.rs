//! The example of docs/SIMULATION.md: a counter, its clients, and everything that happens to them.

use polder::sim::{self, Latency, Sim};

use super::failing::{in_a_process, is_inner, variable};
use super::{ms, secs};

/// The program: only the record that its clients keep refers to a world.
mod counter {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::io::Result;
    use std::rc::Rc;

    use polder::io::{AsyncReadExt, AsyncWriteExt};
    use polder::net::{TcpListener, TcpStream};
    use polder::sim::Operation;
    use polder::time::{now, sleep, timeout};

    use crate::{ms, secs};

    /// The state of a server that survives a crash.
    #[derive(Default)]
    pub(super) struct Disk {
        pub(super) count: Cell<u64>,
        /// The answer to each request.
        answers: RefCell<BTreeMap<[u8; 16], u64>>,
    }

    /// Increments a counter for each request, and answers with the new value. A request that comes
    /// twice is applied once, except with the bug.
    pub(super) async fn server(address: &str, disk: Rc<Disk>, has_bug: bool) -> Result<()> {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            let disk = disk.clone();
            polder::spawn_local(async move {
                let mut request = [0; 16];
                while stream.read_exact(&mut request).await.is_ok() {
                    let known = disk.answers.borrow().get(&request).copied();
                    let answer = known.filter(|_| !has_bug).unwrap_or_else(|| {
                        disk.count.set(disk.count.get() + 1);
                        disk.count.get()
                    });
                    disk.answers.borrow_mut().insert(request, answer);
                    stream.write_all(&answer.to_le_bytes()).await?;
                }
                Result::Ok(())
            })
            .detach();
        }
    }

    async fn ask(stream: &mut Option<TcpStream>, address: &str, request: &[u8]) -> Result<u64> {
        if stream.is_none() {
            *stream = Some(TcpStream::connect_timeout(address, secs(1)).await?);
        }
        let stream = stream.as_mut().expect("it is connected");
        stream.write_all(request).await?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).await?;
        Ok(u64::from_le_bytes(answer))
    }

    /// The request of a client.
    #[derive(Clone, Debug)]
    pub(super) struct Increment;

    pub(super) type Account = Vec<Operation<Increment, u64>>;

    /// Sends increments, each until it is answered. Counts in `reconnects` the number of additional
    /// connections that this took.
    pub(super) async fn client(
        name: &'static str,
        address: &str,
        count: u64,
        reconnects: Rc<Cell<u64>>,
    ) -> Account {
        let mut account = Vec::new();
        let mut stream = None;
        for number in 0..count {
            let mut request = [0; 16];
            request[..8].copy_from_slice(&name.as_bytes()[..8]);
            request[8..].copy_from_slice(&number.to_le_bytes());
            let operation = Operation::new(name, Increment, now());
            let answer = loop {
                match timeout(ms(300), ask(&mut stream, address, &request)).await {
                    Ok(Ok(answer)) => break answer,
                    _ => {
                        stream = None;
                        reconnects.set(reconnects.get() + 1);
                        sleep(ms(20)).await;
                    }
                }
            };
            account.push(operation.answered(answer, now()));
        }
        account
    }

    /// Each increment returns one more than the previous one.
    pub(super) struct Model;

    impl polder::sim::Model for Model {
        type State = u64;
        type Input = Increment;
        type Output = u64;

        fn begin(&self) -> u64 {
            0
        }

        fn step(&self, state: &u64, _: &Increment, output: Option<&u64>) -> Option<u64> {
            let count = state + 1;
            output.is_none_or(|it| *it == count).then_some(count)
        }
    }
}

async fn test(sim: Sim, has_bug: bool) {
    use std::cell::Cell;
    use std::rc::Rc;

    let disk = Rc::new(counter::Disk::default());
    let reconnects = Rc::new(Cell::new(0));
    let stored = disk.clone();
    // The program's own functions. `start` takes an Fn: a host can be restarted.
    let store = sim
        .host("store")
        .start(move || counter::server("0.0.0.0:7000", stored.clone(), has_bug));
    let clients = ["client-1", "client-2"].map(|name| {
        let reconnects = reconnects.clone();
        let client = move || counter::client(name, "store:7000", 20, reconnects.clone());
        sim.host(name).start(client)
    });
    sim.links()
        .latency(Latency::uniform(ms(1)..ms(80)))
        .loss(0.02);
    // Random faults, drawn for each seed, during the first 30 virtual seconds.
    sim.chaos(secs(30)).cuts().crashes(&[&store]).pauses();

    let (mut last, seen) = (0, disk.clone());
    sim.always("the count never falls", move || {
        let now = seen.count.get();
        let holds = now >= last;
        last = now;
        holds
    });
    sim.sometimes("a client reconnects", move || reconnects.get() > 0);

    sim.sleep(secs(5)).await;
    let cut = sim.cut(&["client-1"], &["store"]); // Both ways; `one_way()` for one.
    store.power_off(); // Silence; `kill()` says FIN and RST.
    sim.sleep(secs(2)).await;
    store.restart();
    drop(cut);

    sim.quiesce(); // From here on, progress is owed.
    for client in clients {
        let account = client.finished().within(secs(60)).await;
        sim.history().absorb(account); // Invocations and answers, with times.
    }
    sim.history().linearizable(counter::Model);
}

#[test]
fn no_increment_is_lost_or_applied_twice() {
    sim::check(0..100, |sim| test(sim, false));
}

/// The number of seeds, instead of a few; and a file for their fingerprints, one a line.
/// `ci/sim.sh` compares the files of two processes, of a debug and a release build.
const SEEDS: &str = "POLDER_FINGERPRINT_SEEDS";
const FILE: &str = "POLDER_FINGERPRINTS";

#[test]
fn a_seed_of_the_example_comes_to_the_same_twice_with_all_kinds_of_chaos() {
    let count = std::env::var(SEEDS).map_or(20, |it| it.parse().expect("a number"));
    let line = |seed| {
        let report = sim::run(seed, |sim| async move {
            sim.chaos(secs(20)).holds().resets().loss();
            test(sim, false).await;
        });
        assert_eq!(report.failure, None);
        let (fingerprint, events) = (report.fingerprint, report.events);
        format!("{seed} {fingerprint:016x} {events} {:?}\n", report.time)
    };
    let lines = || (0..count).map(line).collect::<String>();
    let first = lines();
    assert_eq!(first, lines());
    if let Some(path) = std::env::var_os(FILE) {
        std::fs::write(path, first).unwrap();
    }
}

/// The test above with the bug, and the contents that its report must have.
#[test]
fn the_report_of_a_failure_shows_all_that_is_known_of_it() {
    let name = "example::the_report_of_a_failure_shows_all_that_is_known_of_it";
    if is_inner() {
        return sim::check(0..1_000, |sim| test(sim, true));
    }
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes, "the bug is not found: {text}");
    let report = &text[text.find("\nseed 0x").unwrap_or_else(|| panic!("{text}"))..];
    for words in [
        " failed at ",
        "the history is not linearizable: no order of the operations",
        "<== not explained",
        " of them needed: ",
        "  chaos from ",
        "    cuts: ",
        "    crashes: ",
        "  the last events:",
        "  the hosts:",
        "  timeline: ",
        "  Perfetto: ",
    ] {
        assert!(report.contains(words), "{words:?} is missing: {report}");
    }
    let seed = report.split_whitespace().nth(1).unwrap();
    let replay = format!("  replay: POLDER_SEED={seed} cargo test {name}");
    assert!(report.contains(&replay), "{report}");
    // The pictures exist.
    let file = |label: &str| {
        let path = report.lines().find_map(|it| it.strip_prefix(label));
        std::fs::read_to_string(path.unwrap_or_else(|| panic!("{report}"))).unwrap()
    };
    let page = file("  timeline: ");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("not linearizable"));
    assert!(file("  Perfetto: ").contains("\"process_name\""));
    // The seed fails again, whole and shrunk.
    let (passes, again) = in_a_process(name, &[("POLDER_SEED", seed)]);
    assert!(!passes && again.contains(&replay), "{again}");
    let (passes, again) = in_a_process(name, &[("POLDER_SIM", variable(report, "shrunk"))]);
    assert!(!passes && again.contains("<== not explained"), "{again}");
}

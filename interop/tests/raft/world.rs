//! The replicated log in simulated worlds: nodes and clients under chaos, and the histories of the
//! clients, which have to be linearizable.

use std::collections::BTreeMap;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use interop::raft::{Bug, Change, Client, Config, Disk, run};
use polder::future::{pending, poll_fn, zip};
use polder::net::TcpListener;
use polder::time::{sleep, timeout};
use polder_sim::{Host, Latency, Sim};

const PORT: u16 = 7_000;

/// The number of clients, and of keys.
const CLIENTS: u64 = 4;
const KEYS: u64 = 2;

/// How long faults are injected, and clients work.
const HARM: Duration = Duration::from_secs(10);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    Change(Change),
    Read(u64),
}

/// A table of numbers.
pub struct Table;

impl polder_sim::Model for Table {
    type State = u64;
    type Input = Input;
    type Output = u64;

    fn begin(&self) -> u64 {
        0
    }

    fn step(&self, state: &u64, input: &Input, output: Option<&u64>) -> Option<u64> {
        let value = match input {
            Input::Change(Change::Put { value, .. }) => *value,
            Input::Change(Change::Add { value, .. }) => state.wrapping_add(*value),
            Input::Read(_) => *state,
        };
        output.is_none_or(|it| *it == value).then_some(value)
    }

    fn partition(&self, _: &str, input: &Input) -> String {
        let (Input::Change(Change::Put { key, .. } | Change::Add { key, .. }) | Input::Read(key)) =
            input;
        format!("key {key}")
    }
}

/// Sends a request, and records it in the world's history.
async fn ask(sim: &Sim, name: &str, client: &mut Client, input: Input) {
    let asked = sim.history().invoke(name, input);
    asked.answer(match input {
        Input::Change(change) => client.write(change).await,
        Input::Read(key) => client.read(key).await,
    });
}

/// A client that works for as long as faults are injected. Every second one only reads: a client
/// that waits for a write cannot see stale values.
async fn work(sim: Sim, name: String, id: u64, nodes: Vec<String>) {
    let mut client = Client::new(id, nodes, ms(400));
    let mut number = 0;
    while sim.now() < HARM {
        number += 1;
        let (key, value) = (sim.choose(KEYS), 1_000 * (id + 1) + number);
        let input = match sim.choose(4) {
            _ if id % 2 == 1 => Input::Read(key),
            0 => Input::Read(key),
            1 => Input::Change(Change::Put { key, value }),
            _ => Input::Change(Change::Add { key, value: 1 }),
        };
        ask(&sim, &name, &mut client, input).await;
        sim.sleep(ms(sim.choose(100))).await;
    }
}

/// A host, and what is on its disk.
struct Node {
    host: Host,
    disk: Disk,
}

/// The means by which a bug is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The clients' histories.
    History,
    /// Violations of the paper's rules, seen on the disks. Most of these bugs take many nodes and
    /// small steps.
    Disks,
}

/// Starts a node with this configuration.
fn begin(sim: &Sim, config: Config) -> Node {
    let disk = Disk::new("/raft");
    let host = sim.host(&format!("node-{}", config.id));
    let stored = disk.clone();
    host.start(move || {
        let (config, disk) = (config.clone(), stored.clone());
        async move {
            loop {
                let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
                // Only a fault of its disk ends it. Then it starts again, as after a crash.
                let ended = run(listener, config.clone(), disk.clone()).await;
                ended.expect_err("it runs until it is killed");
                sleep(ms(10)).await;
            }
            #[expect(unreachable_code, reason = "the type of its errors")]
            std::io::Result::Ok(())
        }
    });
    Node { host, disk }
}

/// Starts some nodes. Returns their addresses too.
fn start(sim: &Sim, bug: Option<Bug>, by: By) -> (Vec<Node>, Vec<String>) {
    // Small batches, and early or simultaneous elections, are rare in practice and reveal more.
    let (count, batch) = match by {
        By::History => (3 + 2 * sim.choose(2) as usize, 1 << sim.choose(3)),
        By::Disks => (5, 1),
    };
    let addresses: Vec<String> = (0..count).map(|id| format!("node-{id}:{PORT}")).collect();
    let slowest = 1 + sim.choose(30);
    let latency = Latency::uniform(ms(1)..ms(1 + slowest));
    sim.links().latency(latency);
    let election = ms((5 * slowest) << sim.choose(3)).max(ms(20));
    let spread = election / (1 << sim.choose(4));
    let node = |id| {
        let mut config = Config::new(id, addresses.clone(), sim.choose(u64::MAX));
        (config.batch, config.bug) = (batch, bug);
        (config.election, config.spread) = (election, spread);
        config.heartbeat = election / 4;
        begin(sim, config)
    };
    ((0..count).map(node).collect(), addresses)
}

/// Returns the node with the most votes of the newest term: it leads, or is about to.
fn leader(nodes: &[Node]) -> usize {
    let votes: Vec<_> = nodes.iter().map(|it| it.disk.vote()).collect();
    let newest = votes.iter().map(|it| it.0).max();
    let count = |id| {
        let for_it = votes
            .iter()
            .filter(|(term, vote)| Some(*term) == newest && *vote == Some(id));
        for_it.count()
    };
    let all = 0..nodes.len();
    all.max_by_key(|id| count(*id)).expect("there are nodes")
}

/// Returns a node, usually the leader.
fn victim(sim: &Sim, nodes: &[Node]) -> usize {
    let any = sim.choose(nodes.len() as u64) as usize;
    match sim.choose(4) {
        0 => any,
        _ => leader(nodes),
    }
}

/// Kills the node, or has its power fail, and restarts it after a random time.
async fn crash(sim: &Sim, host: &Host, pause: u64) {
    match sim.choose(2) {
        0 => host.kill(),
        _ => host.power_off(),
    };
    sim.sleep(ms(sim.choose(2 * pause))).await;
    if !host.is_up() {
        host.restart();
    }
}

/// Restarts one node at a time, with mean intervals of 20 ms to 5 s and mean downtimes of 1 ms to 2
/// s.
async fn restarts(sim: &Sim, nodes: &[Node]) {
    let (gap, pause) = (20 << sim.choose(9), 1 << sim.choose(12));
    loop {
        sim.sleep(ms(sim.choose(2 * gap))).await;
        crash(sim, &nodes[victim(sim, nodes)].host, pause).await;
    }
}

/// Restarts nodes that have just written to their disk: then only the contents of the disk count.
async fn crashes_after_writes(sim: &Sim, nodes: &[Node]) {
    let (odds, pause) = (2 << sim.choose(5), 1 << sim.choose(9));
    let one = async |node: &Node| loop {
        node.disk.written().await;
        if node.host.is_up() && sim.choose(odds) == 0 {
            crash(sim, &node.host, pause).await;
        }
    };
    let mut all: Vec<_> = nodes.iter().map(|it| Box::pin(one(it))).collect();
    poll_fn(|cx| {
        all.iter_mut()
            .for_each(|it| assert!(it.as_mut().poll(cx).is_pending()));
        Poll::Pending
    })
    .await
}

/// Partitions the network repeatedly: a node is isolated, or there are two halves and a node that
/// reaches both. Each client is on one side.
async fn partitions(sim: &Sim, nodes: &[Node]) {
    loop {
        sim.sleep(ms(sim.choose(2_000))).await;
        let (victim, is_bridge) = (victim(sim, nodes), sim.choose(2) == 0);
        let any = || sim.choose(2) == 0;
        let ids = (0..nodes.len()).filter(|id| !is_bridge || *id != victim);
        let ids = ids.map(|id| (if is_bridge { any() } else { id == victim }, id));
        let names = ids.map(|(side, id)| (side, format!("node-{id}")));
        let clients = (0..CLIENTS).map(|id| (any(), format!("client-{id}")));
        let (these, others): (Vec<_>, Vec<_>) = names.chain(clients).partition(|it| it.0);
        let these: Vec<&str> = these.iter().map(|it| &*it.1).collect();
        let others: Vec<&str> = others.iter().map(|it| &*it.1).collect();
        let _cut = sim.cut(&these, &others);
        sim.sleep(ms(sim.choose(4_000))).await;
    }
}

/// Checks the paper's guarantees on the disks: a node's term never goes back, and it votes once in
/// each; and an entry that one node considers committed stays there, and is no other entry on
/// another node.
fn watch(sim: &Sim, nodes: &[Node]) {
    let disks: Vec<Disk> = nodes.iter().map(|node| node.disk.clone()).collect();
    let mut known = vec![(0, BTreeMap::new()); disks.len()];
    sim.always("a vote stays", move || {
        let mut nodes = disks.iter().map(Disk::vote).zip(&mut known);
        nodes.all(|((term, vote), (last, votes))| {
            let goes_on = term >= *last;
            *last = term;
            goes_on && vote.is_none_or(|vote| *votes.entry(term).or_insert(vote) == vote)
        })
    });
    let disks: Vec<Disk> = nodes.iter().map(|it| it.disk.clone()).collect();
    let (mut seen, mut terms) = (vec![0; disks.len()], vec![None]);
    sim.always("a committed entry stays", move || {
        disks.iter().zip(&mut seen).all(|(disk, seen)| {
            let new = *seen + 1..=disk.committed();
            *seen = disk.committed();
            let stays = *seen == 0 || disk.term_at(*seen).is_some();
            stays
                && new.into_iter().all(|index: u64| {
                    let term = disk.term_at(index);
                    if index as usize == terms.len() {
                        terms.push(term);
                    }
                    terms[index as usize] == term
                })
        })
    });
}

async fn when(is_on: bool, harm: impl Future<Output = ()>) {
    if is_on { harm.await } else { pending().await }
}

/// Runs nodes and clients, with all faults for a while. The clients' history must be linearizable.
pub async fn test(sim: Sim, bug: Option<Bug>, by: By) {
    let (nodes, addresses) = start(&sim, bug, by);
    if by == By::Disks {
        watch(&sim, &nodes);
    }
    let clients: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let (sim, addresses, name) = (sim.clone(), addresses.clone(), format!("client-{id}"));
            let host = sim.host(&name);
            host.start(move || work(sim.clone(), name.clone(), id, addresses.clone()))
        })
        .collect();
    let hosts: Vec<_> = nodes.iter().map(|it| &it.host).collect();
    let chaos = sim.chaos(HARM).cuts().holds().loss().pauses().resets();
    let chaos = chaos.crashes(&hosts);
    if by == By::History {
        chaos.disks();
    }
    // Faults that random chaos rarely causes. The seeds below ten are calm.
    let is_on = || sim.seed() >= 10 && sim.choose(2) == 0;
    let (restarts, crashes) = (
        when(is_on(), restarts(&sim, &nodes)),
        when(is_on(), crashes_after_writes(&sim, &nodes)),
    );
    let harm = zip(
        zip(restarts, crashes),
        when(is_on(), partitions(&sim, &nodes)),
    );
    let _ = timeout(HARM, harm).await;
    sim.quiesce();
    for client in clients {
        client.finished().within(secs(60)).await;
    }
    let mut last = Client::new(CLIENTS, addresses, secs(1));
    for key in 0..KEYS {
        ask(&sim, "test", &mut last, Input::Read(key)).await;
    }
    sim.history().linearizable(Table);
}

/// Elections among four nodes that have nothing else to do, with the usual chaos and faults of
/// disks. A term must not have two leaders.
pub async fn elections(sim: Sim, bug: Option<Bug>) {
    let (count, harm) = (4, 2 * HARM);
    let addresses: Vec<String> = (0..count).map(|id| format!("node-{id}:{PORT}")).collect();
    let node = |id| {
        let mut config = Config::new(id, addresses.clone(), sim.choose(u64::MAX));
        config.bug = bug;
        begin(&sim, config)
    };
    let nodes: Vec<Node> = (0..count).map(node).collect();
    let hosts: Vec<_> = nodes.iter().map(|node| &node.host).collect();
    let chaos = sim.chaos(harm).cuts().holds().loss().pauses().resets();
    chaos.crashes(&hosts).disks();
    let disks: Vec<Disk> = nodes.iter().map(|node| node.disk.clone()).collect();
    let (state, mut leaders) = (sim.clone(), BTreeMap::new());
    sim.always("a term has one leader", move || {
        let damaged = disks.iter().map(Disk::damaged).max();
        state.state("how often a file was damaged", damaged);
        let mut led = disks.iter().map(Disk::led).enumerate();
        led.all(|(id, term)| term == 0 || *leaders.entry(term).or_insert(id) == id)
    });
    sim.sleep(harm).await;
}

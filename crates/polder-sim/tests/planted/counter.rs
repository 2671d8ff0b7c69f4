//! The example of docs/SIMULATION.md: a counter, its clients, and everything that happens to them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Result;
use std::rc::Rc;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::{now, sleep, timeout};
use polder_sim::{Latency, Operation, Sim};

use crate::{ms, secs};

/// The state of a server that survives a crash.
#[derive(Default)]
struct Disk {
    count: Cell<u64>,
    /// The answer to each request.
    answers: RefCell<BTreeMap<[u8; 16], u64>>,
}

/// Increments a counter for each request, and answers with the new value. A request that comes
/// twice is applied once, except with the bug.
async fn server(address: &str, disk: Rc<Disk>, has_bug: bool) -> Result<()> {
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
struct Increment;

type Account = Vec<Operation<Increment, u64>>;

/// Sends increments, each until it is answered. Counts in `reconnects` the number of additional
/// connections that this took.
async fn client(
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
struct Model;

impl polder_sim::Model for Model {
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

/// A test of this program, which does not know that it runs in a world.
pub(super) async fn test(sim: Sim, has_bug: bool) {
    let disk = Rc::new(Disk::default());
    let reconnects = Rc::new(Cell::new(0));
    let stored = disk.clone();
    // The program's own functions. `start` takes an Fn: a host can be restarted.
    let store = sim
        .host("store")
        .start(move || server("0.0.0.0:7000", stored.clone(), has_bug));
    let clients = ["client-1", "client-2"].map(|name| {
        let reconnects = reconnects.clone();
        let client = move || client(name, "store:7000", 20, reconnects.clone());
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
    sim.history().linearizable(Model);
}

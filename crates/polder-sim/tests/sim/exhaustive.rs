//! Exhaustive tests: that all orders are tried, and each of them once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polder::future::{FutureExt, yield_now};
use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream, UdpSocket, resolve};
use polder::time::{now, sleep, sleep_until, timeout};
use polder_sim::{Latency, Sim};

use super::failing::{assert_contains, failure, in_a_process, is_inner, variable};
use super::{ms, secs};

/// Runs a test that returns what it has come to. Returns the number of runs that came to anything,
/// and their outcomes. (The first run of an exhaustive test is made three times.)
fn outcomes<F>(seeds: Range<u64>, test: impl Fn(Sim) -> F + Sync) -> (usize, BTreeSet<Vec<u64>>)
where
    F: Future<Output = Vec<u64>> + 'static,
{
    let outcomes = Arc::new(Mutex::new((0, BTreeSet::new())));
    polder_sim::check(seeds, |sim| {
        let (run, outcomes) = (test(sim), outcomes.clone());
        async move {
            let outcome = run.await;
            let (runs, all) = &mut *outcomes.lock().unwrap();
            *runs += 1;
            all.insert(outcome);
        }
    });
    std::mem::take(&mut outcomes.lock().unwrap())
}

/// A list that tasks of one host share.
type List = Rc<RefCell<Vec<u64>>>;

#[test]
fn ready_tasks_run_in_every_order() {
    let (runs, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        let list = List::default();
        for number in 0..4 {
            let list = list.clone();
            polder::spawn_local(async move { list.borrow_mut().push(number) }).detach();
        }
        sim.sleep(ms(1)).await;
        list.take()
    });
    assert_eq!((runs, all.len()), (24 + 2, 24));
}

/// Tasks that several workers share are taken in every order.
#[test]
fn tasks_shared_by_workers_in_every_order() {
    let (_, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        sim.workers(2);
        let process = sim.host("host").start(|| async {
            let list = Arc::new(Mutex::new(Vec::new()));
            for number in 0..3 {
                let list = list.clone();
                polder::spawn(async move { list.lock().unwrap().push(number) }).detach();
            }
            sleep(ms(1)).await;
            std::mem::take(&mut *list.lock().unwrap())
        });
        process.finished().within(secs(1)).await
    });
    assert_eq!(all.len(), 6);
}

/// A host that is paused does nothing in any order.
#[test]
fn paused_host_does_nothing_in_any_order() {
    let (_, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        let server = sim.host("server").start(|| receive(2));
        for (name, number) in [("one", 1), ("other", 2)] {
            sim.host(name).start(move || send(number, &["server"]));
        }
        sim.sleep(ms(50)).await;
        let pause = server.pause();
        assert!(timeout(secs(1), server.finished()).await.is_err());
        drop(pause);
        server.finished().within(secs(1)).await
    });
    assert_eq!(all.len(), 2);
}

#[test]
#[should_panic(expected = "3 have passed, and there are more than its limit of 3 runs")]
fn a_test_with_more_orders_than_its_limit_fails() {
    polder_sim::check(0..1, |sim: Sim| async move {
        sim.exhaustive(3);
        sim.choose(4);
    });
}

#[test]
fn a_test_with_as_many_orders_as_its_limit_passes() {
    polder_sim::check(0..1, |sim: Sim| async move {
        sim.exhaustive(4);
        sim.choose(4);
    });
}

#[test]
fn the_results_of_choose_are_all_tried() {
    let (runs, all) = outcomes(7..8, |sim: Sim| async move {
        sim.exhaustive(100);
        let first = sim.choose(3);
        let second = if first == 1 { sim.choose(4) } else { 9 };
        vec![first, second]
    });
    assert_eq!((runs, all.len()), (6 + 2, 6));
}

/// A server that has this many datagrams, and tells in which order they came.
async fn receive(count: usize) -> Vec<u64> {
    let socket = UdpSocket::bind("0.0.0.0:7").await.unwrap();
    let (mut bytes, mut all) = ([0; 8], Vec::new());
    for _ in 0..count {
        let len = socket.recv(&mut bytes).await.unwrap();
        all.push(bytes[..len].iter().map(|byte| u64::from(*byte)).sum());
    }
    all
}

/// A client that sends a datagram to each of these servers, after it has looked for them.
async fn send(number: u8, servers: &'static [&'static str]) {
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    sleep(ms(100)).await;
    for server in servers {
        socket.send_to(&[number], (*server, 7)).await.unwrap();
    }
}

/// Datagrams that arrive at one moment come in every order.
#[test]
fn datagrams_arriving_together_in_every_order() {
    let (_, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        let server = sim.host("server").start(|| receive(3));
        for number in 1..=3 {
            let name = format!("client-{number}");
            sim.host(&name).start(move || send(number, &["server"]));
        }
        server.finished().within(secs(1)).await
    });
    assert_eq!(all.len(), 6);
}

#[test]
fn what_one_host_sends_to_another_keeps_its_order() {
    let (_, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        let server = sim.host("server").start(|| receive(3));
        sim.host("client").start(|| async {
            let to = resolve(("server", 7)).await.unwrap()[0];
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            for number in 1..=3 {
                socket.send_to(&[number], to).await.unwrap();
            }
        });
        server.finished().within(secs(1)).await
    });
    assert_eq!(all, [vec![1, 2, 3]].into());
}

/// Something arrives before and after each step of a task that is ready.
#[test]
fn arrival_before_and_after_each_step() {
    let (_, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        sim.links().latency(Latency::fixed(Duration::ZERO));
        let server = sim.host("server").start(|| async {
            let socket = UdpSocket::bind("0.0.0.0:7").await.unwrap();
            sleep(ms(100)).await;
            for step in 0..3 {
                if socket.try_recv(&mut [0]).is_ok() {
                    return step;
                }
                yield_now().await;
            }
            3
        });
        sim.host("client").start(|| async {
            let begin = now();
            let to = resolve(("server", 7)).await.unwrap()[0];
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            sleep_until(begin + ms(100)).await;
            socket.send_to(&[1], to).await.unwrap();
        });
        vec![server.finished().within(secs(1)).await]
    });
    assert_eq!(all, (0..=3).map(|step| vec![step]).collect());
}

/// Steps of other hosts at the same moment are tried in one order only.
#[test]
fn other_hosts_at_same_moment_in_one_order() {
    let (runs, _) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        let servers = ["one", "other"].map(|name| sim.host(name).start(|| receive(1)));
        for (name, server) in [("a", &["one"]), ("b", &["other"])] {
            sim.host(name).start(move || send(1, server));
        }
        // It waits for none of them: when one ends before another, it would notice.
        sim.sleep(secs(1)).await;
        drop(servers);
        Vec::new()
    });
    assert_eq!(runs, 1 + 2);
}

/// Peers that tell each other numbers, over links without latency, and remember what they have
/// heard: so the outcome depends on the order of everything.
async fn gossip(sim: Sim) -> Vec<u64> {
    sim.links().latency(Latency::fixed(Duration::ZERO));
    let names = ["a", "b"];
    let heard = names.map(|_| List::default());
    for (nth, list) in heard.iter().enumerate() {
        let list = list.clone();
        sim.host(names[nth])
            .start(move || peer(nth, names[1 - nth], list.clone()));
    }
    sim.sleep(ms(500)).await;
    heard.map(|list| list.take()).join(&99)
}

async fn peer(number: usize, other: &'static str, heard: List) {
    let socket = Rc::new(UdpSocket::bind("0.0.0.0:7").await.unwrap());
    let to = resolve((other, 7)).await.unwrap()[0];
    sleep(ms(100)).await;
    // Two tasks beside the one that listens.
    for nth in 0..2 {
        let (own, list) = (socket.clone(), heard.clone());
        polder::spawn_local(async move {
            let known = list.borrow().len() as u8;
            let word = number as u8 * 100 + nth * 10 + known;
            own.send_to(&[word], to).await.unwrap();
            list.borrow_mut().push(50 + u64::from(nth));
        })
        .detach();
    }
    let mut byte = [0];
    loop {
        socket.recv(&mut byte).await.unwrap();
        heard.borrow_mut().push(u64::from(byte[0]));
    }
}

/// Every outcome that a seed reaches is one of an exhaustive test.
#[test]
fn seed_outcomes_covered_by_exhaustive() {
    let (_, by_seeds) = outcomes(10..2_000, gossip);
    let (runs, by_all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(100_000);
        gossip(sim).await
    });
    let missed: Vec<_> = by_seeds.difference(&by_all).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert!(by_seeds.len() > 4 && by_all.len() > by_seeds.len());
    assert!(runs < 100_000, "that are all");
}

/// A panic that is awaited later fails no run that is ended early.
#[test]
fn awaited_panic_fails_no_shortened_run() {
    polder_sim::check(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        for name in ["one", "other"] {
            sim.host(name).start(|| async {
                let task = polder::spawn_local(async {
                    sleep(ms(10)).await;
                    panic!("expected");
                });
                sleep(ms(20)).await;
                assert!(AssertUnwindSafe(task).catch_unwind().await.is_err());
            });
        }
        sim.sleep(secs(1)).await;
    });
}

/// What was written, and whether it was read there afterwards, by another client: a history knows
/// which of the two came first.
struct Register;

impl polder_sim::Model for Register {
    type State = bool;
    type Input = bool;
    type Output = bool;

    fn begin(&self) -> bool {
        false
    }

    fn step(&self, state: &bool, writes: &bool, seen: Option<&bool>) -> Option<bool> {
        (*writes || seen.is_none_or(|seen| seen == state)).then_some(*state || *writes)
    }
}

/// A store that answers a write before it is there, and a client that reads at that moment.
async fn answers_early(sim: Sim) {
    sim.exhaustive(10_000);
    let written = Rc::new(Cell::new(false));
    let (store, shown) = (written.clone(), written);
    let history = sim.history::<bool, bool>();
    sim.host("writer").start({
        let history = history.clone();
        move || {
            let (store, history) = (store.clone(), history.clone());
            async move {
                sleep(ms(10)).await;
                history.invoke("writer", true).answer(true);
                yield_now().await;
                store.set(true);
            }
        }
    });
    let reader = history.clone();
    sim.host("reader").start(move || {
        let (shown, history) = (shown.clone(), reader.clone());
        async move {
            sleep(ms(10)).await;
            history.invoke("reader", false).answer(shown.get());
        }
    });
    sim.sleep(ms(20)).await;
    history.linearizable(Register);
}

#[test]
fn a_stale_read() {
    if is_inner() {
        polder_sim::check(0..1, answers_early);
    }
}

/// The order in which hosts add to a history matters.
#[test]
fn history_order_of_hosts_matters() {
    let (passes, text) = in_a_process("exhaustive::a_stale_read", &[]);
    assert!(!passes);
    assert_contains(&text, &["not linearizable"]);
}

/// Calls of unblock that are due at one moment come in every order.
#[test]
fn unblock_calls_due_together_in_every_order() {
    let (_, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(10_000);
        let list = Arc::new(Mutex::new(Vec::new()));
        let calls = [1, 2, 3].map(|number| {
            let list = list.clone();
            polder::unblock(move || list.lock().unwrap().push(number))
        });
        for call in calls {
            call.await;
        }
        std::mem::take(&mut *list.lock().unwrap())
    });
    assert_eq!(all.len(), 6);
}

#[test]
fn probes_that_are_answered_add_no_orders() {
    let (runs, _) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(1_000);
        let listener = TcpListener::bind("0.0.0.0:7").await.unwrap();
        let (client, _server) =
            futures_lite::future::zip(TcpStream::connect("127.0.0.1:7"), listener.accept()).await;
        let keepalive = polder::net::Keepalive::new()
            .with_idle(secs(1))
            .with_interval(secs(1));
        let client = client.unwrap();
        client.set_keepalive(Some(keepalive)).unwrap();
        // The first probe is due at that moment.
        sleep(secs(1)).await;
        Vec::new()
    });
    assert!(runs < 100);
}

#[test]
fn a_test_that_has_ended_has_no_more_orders() {
    static CHOSEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    polder_sim::check(3..6, |sim: Sim| async move {
        // Only one of the seeds asks for all orders.
        if sim.seed() == 4 {
            sim.exhaustive(1_000);
            for name in ["a", "b", "c", "d"] {
                sim.host(name).start(|| async {});
            }
            CHOSEN.lock().unwrap().push(sim.choose(2));
        }
    });
    let chosen = CHOSEN.lock().unwrap();
    let all: BTreeSet<&u64> = chosen.iter().collect();
    assert_eq!((chosen.len(), all.len()), (2 + 1, 2));
}

/// A counter on a server, which is read and then written by each client: an update is lost if
/// another client reads in between.
async fn count(sim: Sim) {
    sim.exhaustive(10_000);
    let total = Rc::new(Cell::new(0_u8));
    let shown = total.clone();
    sim.host("server").start(move || {
        let total = total.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:7").await.unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let total = total.clone();
                polder::spawn_local(async move {
                    let mut request = [0];
                    while stream.read_exact(&mut request).await.is_ok() {
                        match request[0] {
                            0 => stream.write_all(&[total.get()]).await.unwrap(),
                            number => total.set(number),
                        }
                    }
                })
                .detach();
            }
        }
    });
    // The second one's question arrives at the moment at which the first one's update does.
    let clients = [50_000, 52_500].map(|wait| {
        polder::spawn_local(async move {
            sleep(Duration::from_micros(wait)).await;
            let mut stream = TcpStream::connect("server:7").await.unwrap();
            let mut number = [0];
            stream.write_all(&[0]).await.unwrap();
            stream.read_exact(&mut number).await.unwrap();
            stream.write_all(&[number[0] + 1]).await.unwrap();
        })
    });
    for client in clients {
        client.await;
    }
    sim.sleep(ms(100)).await;
    assert_eq!(shown.get(), 2, "an update is lost");
}

#[test]
fn a_counter() {
    if is_inner() {
        polder_sim::check(0..1, count);
    }
}

#[test]
fn an_order_that_fails_is_replayed_by_its_line() {
    let name = "exhaustive::a_counter";
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes);
    assert_contains(&text, &["an update is lost"]);
    let replay = variable(&text, "replay");
    assert!(replay.starts_with("0x0:schedule="), "{replay}");
    let (passes, again) = in_a_process(name, &[("POLDER_SIM_REPLAY", replay)]);
    assert!(!passes);
    let line = format!("replay: POLDER_SIM_REPLAY={replay} cargo test");
    assert_contains(&again, &["an update is lost", &line]);
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", "0x0:")]);
    assert!(passes, "the first order is right: {text}");
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", "0x0:schedule=77")]);
    assert!(!passes);
    assert_contains(&text, &["choices of a schedule that the run does not have"]);
}

/// Choices of a schedule are refused by a test that has none.
#[test]
fn choices_refused_by_test_without_any() {
    let name = "exhaustive::choices_refused_by_test_without_any";
    if is_inner() {
        return polder_sim::check(0..1, |_| async {});
    }
    let (passes, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", "0x0:schedule=1")]);
    assert!(!passes);
    assert_contains(&text, &["choices of a schedule that the run does not have"]);
}

/// A run that does not come to the choices it was given fails the test.
#[test]
fn run_missing_given_choices_fails() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let text = failure(|| {
        polder_sim::check(0..1, |sim| async move {
            sim.exhaustive(100);
            // Only one run has the second choice.
            if sim.choose(2) == 1 && RUNS.fetch_add(1, Ordering::Relaxed) == 0 {
                assert_ne!(sim.choose(3), 2);
            }
        });
    });
    let words = "does something that its schedule does not decide";
    assert_contains(&text, &["POLDER_SIM_REPLAY=0x0:schedule=1.1 ", words]);
}

/// A test that asks for all orders twice has all of them.
#[test]
fn asking_twice_for_all_orders_works() {
    let (_, all) = outcomes(0..1, |sim: Sim| async move {
        sim.exhaustive(100);
        let first = sim.choose(2);
        sim.exhaustive(100);
        vec![first, sim.choose(2)]
    });
    assert_eq!(all.len(), 4);
}

#[test]
fn the_lower_of_two_limits_counts() {
    let text = failure(|| {
        polder_sim::check(0..1, |sim| async move {
            sim.exhaustive(3);
            sim.exhaustive(100);
            sim.choose(4);
        });
    });
    assert_contains(&text, &["more than its limit of 3 runs allows"]);
}

#[test]
fn a_failure_that_does_not_repeat_is_told() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let text = failure(|| {
        polder_sim::check(0..1, |sim| async move {
            sim.exhaustive(100);
            if sim.choose(2) == 1 {
                assert_ne!(RUNS.fetch_add(1, Ordering::Relaxed), 0, "only once");
            }
        });
    });
    assert_contains(&text, &["has passed the second time", "only once"]);
}

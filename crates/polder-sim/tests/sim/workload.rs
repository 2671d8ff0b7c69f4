//! Workloads: that clients perform what the seed draws, and which of it a failure needs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Mutex;

use polder_sim::{Draw, Latency, Sim};

use super::failing::{assert_contains, in_a_process, is_inner, variable};
use super::{ms, secs};

/// What clients did: which of them, what, and the number that it drew.
type Done = Rc<RefCell<Vec<Operation>>>;

type Operation = (usize, &'static str, u64);

/// An operation that notes itself.
fn note(done: &Done, name: &'static str) -> impl Fn(&mut Draw) -> std::future::Ready<()> + use<> {
    let done = done.clone();
    move |draw| {
        let (client, number) = (draw.client(), draw.below(1_000));
        done.borrow_mut().push((client, name, number));
        std::future::ready(())
    }
}

/// Runs a workload of 100 operations for each of two clients.
async fn work(sim: &Sim) -> Done {
    let done = Done::default();
    let clients = sim
        .workload(100)
        .operation(3, "read", note(&done, "read"))
        .operation(1, "write", note(&done, "write"))
        .start(&["one", "other"]);
    for client in clients {
        client.finished().within(secs(60)).await;
    }
    done
}

/// Each client performs its operations as often as their weights say.
#[test]
fn clients_draw_operations_by_weight() {
    static SEEN: Mutex<BTreeSet<Vec<Operation>>> = Mutex::new(BTreeSet::new());
    polder_sim::check(10..20, |sim: Sim| async move {
        let done = work(&sim).await.take();
        for client in [0, 1] {
            let own = done.iter().filter(|(by, ..)| *by == client);
            let reads = own.clone().filter(|(_, name, _)| *name == "read").count();
            assert_eq!(own.count(), 100);
            assert!((50..95).contains(&reads), "{reads}");
        }
        SEEN.lock().unwrap().insert(done);
    });
    assert_eq!(SEEN.lock().unwrap().len(), 10, "each seed draws others");
}

/// A mistake that two operations show: one closes what another one uses later.
async fn fails(sim: Sim) {
    let is_open = Rc::new(Cell::new(true));
    let (opens, closes, uses) = (is_open.clone(), is_open.clone(), is_open);
    let clients = sim
        .workload(20)
        .operation(1, "open", move |_| {
            opens.set(true);
            async {}
        })
        .operation(1, "close", move |_| {
            closes.set(false);
            async {}
        })
        .operation(2, "use", move |_| {
            let is_open = uses.get();
            async move { if is_open { Ok(()) } else { Err("it is closed") } }
        })
        .start(&["one", "other"]);
    sim.chaos(secs(5)).pauses();
    for client in clients {
        client.finished().within(secs(60)).await;
    }
}

#[test]
fn a_close_before_a_use() {
    if is_inner() {
        polder_sim::check(10..20, fails);
    }
}

/// A failure is reported with the operations that it needs.
#[test]
fn failure_reported_with_needed_operations() {
    let name = "workload::a_close_before_a_use";
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes);
    assert_contains(&text, &["it is closed", " operations, 2 of them needed: "]);
    let needed = text.split_once("2 of them needed: ").unwrap().1;
    let needed = needed.lines().next().unwrap();
    assert!(
        needed.contains(": close (") && needed.contains(": use ("),
        "{needed}"
    );
    let story = text
        .split_once("what led there in the shrunk run:")
        .expect(&text)
        .1;
    let story = story.split_once("the last events").unwrap().0;
    assert_contains(story, &["begins to close", "begins to use"]);
    assert!(!story.contains("begins to open"), "{story}");
    let shrunk = variable(&text, "shrunk");
    let (passes, again) = in_a_process(name, &[("POLDER_SIM_REPLAY", shrunk)]);
    assert!(!passes);
    assert_contains(&again, &["it is closed", "2 operations: "]);
}

/// Two workloads, one after the other, of which the third operation of each matters.
async fn two_workloads(sim: Sim) {
    let done = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..2 {
        let noted = done.clone();
        let work = sim.workload(4).operation(1, "work", move |draw| {
            noted.borrow_mut().push(draw.below(1_000));
            async {}
        });
        for client in work.start(&["client"]) {
            client.finished().within(secs(60)).await;
        }
    }
    let done = done.take();
    assert!(
        done.len() < 8 || done[..4] != done[4..],
        "each workload draws its own"
    );
    assert!(done.len() < 2, "{} operations", done.len());
}

#[test]
fn one_and_another() {
    if is_inner() {
        polder_sim::check(0..1, two_workloads);
    }
}

/// The operations of each workload are left out alone.
#[test]
fn operations_left_out_per_workload() {
    let name = "workload::one_and_another";
    let (passes, text) = in_a_process(name, &[]);
    assert!(!passes);
    assert_contains(&text, &["8 operations, 2 of them needed"]);
    let (_, text) = in_a_process(name, &[("POLDER_SIM_REPLAY", "0x0:-1")]);
    assert_contains(&text, &["7 operations"]);
}

/// A client that restarts goes on behind the operation that was interrupted.
#[test]
fn restarted_client_skips_interrupted_operation() {
    polder_sim::check(10..30, |sim: Sim| async move {
        let begun = Done::default();
        let note = note(&begun, "wait");
        let clients = sim
            .workload(50)
            .operation(1, "wait", move |draw| {
                drop(note(draw));
                polder::time::sleep(ms(50))
            })
            .start(&["client"]);
        let [client] = &clients[..] else {
            panic!("there is one");
        };
        sim.sleep(ms(1_000 + sim.choose(1_000))).await;
        client.kill();
        let before = begun.borrow().len();
        assert!(0 < before && before < 50);
        client.restart();
        client.finished().within(secs(60)).await;
        // The one that was interrupted is not begun again.
        assert_eq!(begun.borrow().len(), 50);
        let numbers: BTreeMap<u64, ()> = begun.borrow().iter().map(|done| (done.2, ())).collect();
        assert!(numbers.len() > 40, "each draws its own");
    });
}

/// Every sequence of operations is tried by an exhaustive test.
#[test]
fn exhaustive_tries_every_sequence() {
    static SEEN: Mutex<BTreeSet<Vec<&str>>> = Mutex::new(BTreeSet::new());
    polder_sim::check(0..1, |sim: Sim| async move {
        sim.exhaustive(1_000);
        let done = Done::default();
        let noted = |name| {
            let done = done.clone();
            move |draw: &mut Draw| {
                done.borrow_mut().push((draw.client(), name, 0));
                async {}
            }
        };
        let clients = sim
            .workload(3)
            .operation(1, "a", noted("a"))
            .operation(1, "b", noted("b"))
            .pauses(Latency::fixed(ms(1)))
            .start(&["client"]);
        for client in clients {
            client.finished().within(secs(1)).await;
        }
        let names = done.borrow().iter().map(|done| done.1).collect();
        SEEN.lock().unwrap().insert(names);
    });
    assert_eq!(SEEN.lock().unwrap().len(), 8);
}

/// An operation that would never be drawn is refused.
#[test]
#[should_panic(expected = "\"read\" has a weight of zero")]
fn never_drawn_operation_is_refused() {
    polder_sim::check(0..1, |sim: Sim| async move {
        let _ = sim.workload(1).operation(0, "read", |_| async {});
    });
}

#[test]
#[should_panic(expected = "a workload has at least one operation")]
fn a_workload_without_operations_is_refused() {
    polder_sim::check(0..1, |sim: Sim| async move {
        let _ = sim.workload(1).start(&["client"]);
    });
}

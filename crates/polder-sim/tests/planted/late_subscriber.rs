//! A task subscribes to a bus when it first runs, and misses earlier announcements. It usually runs
//! in time: the announcer first asks a store for its settings, several times. So the program fails
//! only if one task is delayed while two others take many steps. Random choices rarely do this,
//! priorities often.

use std::cell::RefCell;
use std::rc::Rc;

use async_channel::{Receiver, Sender, bounded, unbounded};
use polder_sim::Order;

use crate::secs;

const SETTINGS: u32 = 6;

#[derive(Default)]
struct Bus(RefCell<Vec<Sender<()>>>);

impl Bus {
    fn subscribe(&self) -> Receiver<()> {
        let (sender, receiver) = unbounded();
        self.0.borrow_mut().push(sender);
        receiver
    }

    fn announce(&self) {
        for sender in self.0.borrow().iter() {
            let _ = sender.try_send(());
        }
    }
}

async fn store(questions: Receiver<(u32, Sender<u32>)>) {
    while let Ok((key, answer)) = questions.recv().await {
        let _ = answer.send(key * 10).await;
    }
}

/// Returns the sum of its settings, when all its parts have received them.
async fn program(has_bug: bool) -> u32 {
    let bus = Rc::new(Bus::default());
    let (ask, questions) = unbounded();
    polder::spawn(store(questions)).detach();
    let early = (!has_bug).then(|| bus.subscribe());
    let heard = bus.clone();
    let listener = polder::spawn_local(async move {
        let events = early.unwrap_or_else(|| heard.subscribe());
        events.recv().await.expect("the bus is there");
    });
    let mut sum = 0;
    for key in 0..SETTINGS {
        let (answer, value) = bounded(1);
        ask.send((key, answer)).await.expect("the store is there");
        sum += value.recv().await.expect("it answers");
    }
    bus.announce();
    listener.await;
    sum
}

/// Returns the number of seeds that find the bug, and the first one that does.
fn found(order: Order, seeds: u64) -> (usize, Option<u64>) {
    let fails = |seed: &u64| {
        let report = polder_sim::run(*seed, move |sim| async move {
            sim.order(order);
            let program = sim.host("host").start(|| program(true));
            program.finished().within(secs(1)).await;
        });
        let failure = report.failure.unwrap_or_default();
        assert!(
            failure.is_empty() || failure.contains("within 1"),
            "{failure}"
        );
        !failure.is_empty()
    };
    let all: Vec<u64> = (0..seeds).filter(fails).collect();
    (all.len(), all.first().copied())
}

/// A late subscriber is found by priorities within fewer seeds than at random.
#[test]
fn late_subscriber_found_sooner_by_priorities() {
    let orders = [Order::Pct(1), Order::Pct(3), Order::Random, Order::Fifo];
    let counts = orders.map(|order| {
        let (count, first) = found(order, 100);
        println!(
            "late subscriber: {order:?}: found by {count} of 100 seeds, the first is {first:?}"
        );
        count
    });
    let [one, three, random, fifo] = counts;
    assert!(one >= 20 && three >= 20, "{counts:?}");
    assert!(random <= 2 && fifo == 0, "{counts:?}");
    polder_sim::check(0..200, |sim| async move {
        sim.chaos(secs(1)).orders();
        let program = sim.host("host").start(|| program(false));
        let sum = program.finished().within(secs(1)).await;
        assert_eq!(sum, (0..SETTINGS).map(|it| it * 10).sum::<u32>());
    });
}

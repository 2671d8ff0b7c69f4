//! Chaos: the faults that a seed draws, how the program sees them, and that they end.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Result;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use polder::future::{pending, yield_now};
use polder::net::{TcpStream, UdpSocket, resolve};
use polder::time::{now, sleep, timeout};
use polder::unblock;
use polder_sim::{Chaos, Latency, Order, Sim};

use super::{ask, echo, ms, secs};

fn fail_on_purpose() {
    panic!("on purpose");
}

/// The number of requests on each connection.
const ASKS: u32 = 4;

/// Sends requests to an echo during ten seconds of chaos, on one connection after the other, and
/// then fails: the report lists the faults drawn and the events.
fn report_of(seed: u64, add: fn(Chaos, &polder_sim::Host) -> Chaos) -> String {
    let report = polder_sim::run(seed, move |sim: Sim| async move {
        let server = sim.host("server").start(echo);
        sleep(ms(1)).await;
        add(sim.chaos(secs(10)), &server);
        while sim.now() < secs(10) {
            let Ok(mut stream) = TcpStream::connect_timeout("server:1", secs(1)).await else {
                sleep(ms(20)).await;
                continue;
            };
            for _ in 0..ASKS {
                if sim.now() > secs(10)
                    || !matches!(timeout(secs(1), ask(&mut stream)).await, Ok(Ok(())))
                {
                    break;
                }
                sleep(ms(20)).await;
            }
        }
        fail_on_purpose();
    });
    report.failure.expect("it fails on purpose")
}

/// A kind of faults is on for half of the seeds at rates that differ.
#[test]
fn chaos_kind_on_for_half_of_seeds() {
    let lines = (10..60).map(|seed| {
        let report = report_of(seed, |chaos, _| chaos.cuts());
        let line = report.lines().find(|it| it.starts_with("    cuts: "));
        line.expect("it says what was drawn").to_owned()
    });
    let lines: Vec<String> = lines.collect();
    let on: BTreeSet<&String> = lines.iter().filter(|it| !it.contains("none")).collect();
    let off = lines.iter().filter(|it| it.contains("none")).count();
    assert!((15..35).contains(&off), "off for {off} of 50");
    assert!(on.len() > 15, "{on:?}");
}

/// A kind of fault: its name, its name in a report, and the function that enables it.
type KindOfFaults = (
    &'static str,
    &'static str,
    fn(Chaos, &polder_sim::Host) -> Chaos,
);

/// Every kind does harm where it is on and none where it is off.
#[test]
fn every_kind_does_harm_only_where_on() {
    let kinds: [KindOfFaults; 15] = [
        ("cuts", "cut ", |chaos, _| chaos.cuts()),
        ("holds", "hold ", |chaos, _| chaos.holds()),
        ("resets", "reset ", |chaos, _| chaos.resets()),
        ("pauses", "server paused", |chaos, _| chaos.pauses()),
        ("suspensions", "server suspended", |chaos, _| {
            chaos.suspensions()
        }),
        ("crashes", "server ", |chaos, host| chaos.crashes(&[host])),
        ("loss", "loss of ", |chaos, _| chaos.loss()),
        ("latencies", "latency of ", |chaos, _| chaos.latencies()),
        ("clocks", "server: the clock ", |chaos, _| chaos.clocks()),
        ("wall clocks", "server: the wall clock ", |chaos, _| {
            chaos.wall_clocks()
        }),
        ("short reads and writes", ": a short ", |chaos, _| {
            chaos.short()
        }),
        ("spurious events", ": a spurious ", |chaos, _| {
            chaos.spurious()
        }),
        ("aborted connections", "connection aborted", |chaos, _| {
            chaos.aborted()
        }),
        ("exhausted descriptors", "no descriptor left", |chaos, _| {
            chaos.exhausted()
        }),
        ("names", "test: a question for a name", |chaos, _| {
            chaos.names()
        }),
    ];
    for (name, words, add) in kinds {
        let mut harmed = 0;
        for seed in 10..40 {
            let report = report_of(seed, add);
            let drawn = format!("    {name}: ");
            let drawn = report.lines().find(|it| it.starts_with(&drawn));
            let is_on = !drawn.expect("it was drawn").ends_with("none");
            let faults = report.lines().nth(1).unwrap();
            let has_faults = faults.contains(" fault");
            assert!(is_on || !has_faults, "{report}");
            assert!(!has_faults || faults.contains(words), "{report}");
            harmed += u32::from(has_faults);
        }
        assert!(harmed > 5, "{name}: only {harmed} of 30 seeds did harm");
    }
}

/// Chaos doubles and reorders datagrams until it ends.
#[test]
fn datagrams_duplicated_and_reordered_by_chaos() {
    let (doubled, reordered) = (Cell::new(0), Cell::new(0));
    for seed in 10..40 {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let list = seen.clone();
        let report = polder_sim::run(seed, move |sim| {
            let seen = seen.clone();
            async move {
                let socket = UdpSocket::bind("0.0.0.0:9").await?;
                sim.host("sender").start(|| async {
                    let socket = UdpSocket::bind("0.0.0.0:0").await?;
                    for n in 0..1_000_u16 {
                        sleep(ms(10)).await;
                        socket.send_to(&n.to_be_bytes(), "test:9").await?;
                    }
                    Result::Ok(())
                });
                sim.links().latency(Latency::uniform(ms(1)..ms(20)));
                sim.chaos(secs(5)).duplication().reordering();
                let mut bytes = [0; 2];
                while timeout(secs(1), socket.recv(&mut bytes)).await.is_ok() {
                    seen.lock().unwrap().push(u16::from_be_bytes(bytes));
                }
                Result::Ok(())
            }
        });
        assert_eq!(report.failure, None);
        let list = list.lock().unwrap();
        let counts = list.iter().fold(BTreeMap::new(), |mut counts, n| {
            *counts.entry(*n).or_insert(0) += 1;
            counts
        });
        let doubles: Vec<u16> = (counts.iter().filter(|it| *it.1 > 1).map(|it| *it.0)).collect();
        let late = list.windows(2).filter(|it| it[0] > it[1]);
        let late: Vec<u16> = late.map(|it| it[1]).collect();
        doubled.set(doubled.get() + u32::from(!doubles.is_empty()));
        reordered.set(reordered.get() + u32::from(!late.is_empty()));
        // The first 500 are sent during the chaos.
        for n in doubles.iter().chain(&late) {
            assert!(*n < 510, "seed {seed}: {n} after the end");
        }
        let mut all = list.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1_000, "seed {seed}: none is lost");
    }
    assert!((5..25).contains(&doubled.get()), "{doubled:?}");
    assert!((5..25).contains(&reordered.get()), "{reordered:?}");
}

/// The first seeds are calm and with zero nothing happens by chance.
#[test]
fn first_seeds_calm_and_zero_by_chance_nothing() {
    for seed in 0..10 {
        let report = report_of(seed, |chaos, host| chaos.usual(&[host]).exhausted());
        assert!(report.contains("this seed is calm"), "{report}");
        assert!(!report.contains(" fault"), "{report}");
    }
    let report = polder_sim::run(0, |sim| async move {
        sim.host("server").start(echo);
        sleep(ms(1)).await;
        let mut stream = TcpStream::connect("server:1").await?;
        sim.links()
            .latency(Latency::uniform(ms(10)..ms(30)))
            .loss(0.5);
        sim.chaos(secs(10)).loss();
        for _ in 0..50 {
            let start = now();
            ask(&mut stream).await?;
            assert_eq!(now() - start, ms(40));
        }
        Result::Ok(())
    });
    assert_eq!(report.failure, None);
}

/// With the seed zero delays are their means and what is ready runs in turn.
#[test]
fn seed_zero_mean_delays_and_in_turn() {
    let report = polder_sim::run(0, |sim| async move {
        sim.names().latency(Latency::uniform(ms(10)..ms(30)));
        let host = sim.host("test");
        host.blocking(Latency::uniform(ms(100)..ms(300)));
        sim.order(Order::Pct(3));
        let _chaos = sim.chaos(secs(10));
        for order in [Order::Pct(3), Order::Random] {
            let start = now();
            resolve("test:1").await?;
            assert_eq!(now() - start, ms(20));
            unblock(|| ()).await;
            assert_eq!(now() - start, ms(220));
            let list = Rc::new(RefCell::new(Vec::new()));
            let tasks = [(); 20].map(|()| list.clone());
            let tasks = (0..20).zip(tasks).map(|(number, list)| {
                polder::spawn_local(async move { list.borrow_mut().push(number) })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await;
            }
            assert_eq!(*list.borrow(), (0..20).collect::<Vec<_>>());
            // Setting the order has no effect.
            sim.order(order);
        }
        Result::Ok(())
    });
    assert_eq!(report.failure, None);
}

/// Asks again and again, so that there is something to lose.
async fn asks(server: &str) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(server).await {
            while matches!(timeout(secs(1), ask(&mut stream)).await, Ok(Ok(()))) {
                sleep(ms(200)).await;
            }
        }
        sleep(ms(100)).await;
    }
}

#[test]
fn quiet_ends_all_chaos() {
    polder_sim::check(10..60, |sim| async move {
        let servers = ["a", "b"].map(|name| sim.host(name).start(echo));
        sim.host("client").start(|| asks("a:1"));
        sim.chaos(secs(3_000))
            .cuts()
            .holds()
            .resets()
            .pauses()
            .suspensions()
            .loss()
            .latencies()
            .clocks()
            .orders()
            .crashes(&[&servers[0], &servers[1]]);
        sleep(ms(sim.choose(60_000))).await;
        sim.quiesce();
        sleep(secs(1)).await;
        for name in ["a:1", "b:1"] {
            let mut stream = TcpStream::connect(name).await?;
            for _ in 0..100 {
                timeout(ms(10), ask(&mut stream)).await??;
                sleep(secs(1)).await;
            }
        }
        Result::Ok(())
    });
}

/// A kind of chaos that is named has to strike in some seed.
#[test]
#[should_panic = "chaos: \"cuts\" was on for 19 of 50 seeds, and has not struck once"]
fn named_chaos_must_strike_in_some_seed() {
    polder_sim::check(10..60, |sim| async move {
        sim.chaos(secs(10)).cuts(); // There is one host only.
        sleep(secs(10)).await;
    });
}

#[test]
#[should_panic = "has not struck once"]
fn suspensions_that_are_named_have_to_strike_too() {
    polder_sim::check(10..60, |sim| async move {
        sim.chaos(secs(10)).suspensions();
        sleep(secs(10)).await;
    });
}

/// Chaos that is not named or on for few seeds need not strike.
#[test]
fn unnamed_or_rare_chaos_need_not_strike() {
    polder_sim::check(10..60, |sim| async move {
        let host = sim.host("host").start(pending::<()>);
        sim.chaos(secs(10)).usual(&[&host]); // No name is asked for, and no file is there.
        sleep(secs(10)).await;
    });
    polder_sim::check(10..15, |sim| async move {
        sim.chaos(secs(10)).cuts();
        sleep(secs(10)).await;
    });
}

#[test]
fn every_fault_ends_with_its_chaos() {
    polder_sim::check(10..60, |sim| async move {
        let server = sim.host("server").start(echo);
        sim.host("client").start(|| asks("server:1"));
        let chaos = sim.chaos(secs(30));
        chaos
            .cuts()
            .holds()
            .resets()
            .pauses()
            .suspensions()
            .loss()
            .latencies()
            .clocks()
            .orders()
            .crashes(&[&server]);
        sleep(secs(31)).await;
        assert!(server.is_up());
        let mut stream = TcpStream::connect("server:1").await?;
        for _ in 0..100 {
            timeout(ms(10), ask(&mut stream)).await??;
            sleep(secs(1)).await;
        }
        Result::Ok(())
    });
}

#[test]
fn what_the_test_has_stopped_chaos_does_not_start() {
    polder_sim::check(10..60, |sim| async move {
        let host = sim.host("host").start(pending::<()>);
        sim.chaos(secs(60)).crashes(&[&host]);
        sleep(secs(10)).await;
        host.power_off();
        for _ in 0..100 {
            sleep(ms(500)).await;
            assert!(!host.is_up());
        }
        sim.quiesce();
        assert!(host.is_up());
    });
}

/// A process crashes in the middle of what it does at one moment too.
#[test]
fn process_crashes_mid_operation() {
    polder_sim::check(10..60, |sim| async move {
        let steps = Rc::new(RefCell::new((0_u32, 0_u32)));
        let seen = steps.clone();
        let host = sim.host("host").start(move || {
            let steps = seen.clone();
            async move {
                let done = steps.borrow().1;
                steps.borrow_mut().0 = done;
                loop {
                    sleep(ms(10)).await;
                    steps.borrow_mut().0 += 1;
                    yield_now().await;
                    steps.borrow_mut().1 += 1;
                }
            }
        });
        sim.chaos(secs(30)).crashes(&[&host]);
        let seen = steps.clone();
        sim.sometimes("it has done a half", move || {
            let (begun, done) = *seen.borrow();
            !host.is_up() && begun == done + 1
        });
        sleep(secs(31)).await;
    });
}

#[test]
fn a_fault_that_is_left_out_shifts_no_other() {
    let name = "chaos::a_fault_that_is_left_out_shifts_no_other";
    let fails = |sim: Sim| async move {
        sim.host("a").start(pending::<()>);
        sim.host("b").start(pending::<()>);
        sim.chaos(secs(10)).cuts().holds().pauses().suspensions();
        sleep(secs(10)).await;
        fail_on_purpose();
    };
    if super::failing::is_inner() {
        return polder_sim::check(0..1, fails);
    }
    let faults = |text: &str| -> Vec<String> {
        let line = text.lines().find(|it| it.contains(" faults: "));
        let (_, list) = line
            .unwrap_or_else(|| panic!("{text}"))
            .split_once(": ")
            .unwrap();
        list.split("; ").map(str::to_owned).collect()
    };
    let report = |seed| polder_sim::run(seed, fails).failure.unwrap();
    // The report lists all faults.
    let few = |seed: &u64| {
        let report = report(*seed);
        let line = report.lines().nth(1).unwrap();
        let count = line
            .split_whitespace()
            .next()
            .and_then(|it| it.parse().ok());
        matches!(count, Some(4..=12))
    };
    let seed = (10..200).find(few).expect("a seed has a few faults");
    let mut all = faults(&report(seed));
    let variables = format!("{seed:#x}:-2");
    let (_, text) = super::failing::in_a_process(name, &[("POLDER_SIM_REPLAY", &variables)]);
    all.remove(1);
    assert_eq!(faults(&text), all);
}

#[test]
fn of_two_chaoses_each_ends_by_itself() {
    // The number of datagrams received: of 190 from 0 to 5 s, of 190 from 5 s to 10 s, and of 218
    // later.
    let came = |seed| {
        let counts = Arc::new(Mutex::new([0; 3]));
        let shared = counts.clone();
        let report = polder_sim::run(seed, move |sim| {
            let counts = shared.clone();
            async move {
                let socket = UdpSocket::bind("0.0.0.0:9").await?;
                sim.host("sender").start(|| async {
                    let socket = UdpSocket::bind("0.0.0.0:0").await?;
                    for _ in 0..600 {
                        socket.send_to(b"x", "test:9").await?;
                        sleep(ms(25)).await;
                    }
                    Result::Ok(())
                });
                sim.chaos(secs(5)).loss();
                sim.chaos(secs(10)).loss();
                while timeout(secs(3), socket.recv(&mut [0])).await.is_ok() {
                    let part = (sim.now().as_secs() / 5).min(2);
                    counts.lock().unwrap()[part as usize] += 1;
                }
                Result::Ok(())
            }
        });
        assert_eq!(report.failure, None);
        *counts.lock().unwrap()
    };
    let all: Vec<[i32; 3]> = (10..90).map(came).collect();
    assert!(
        all.iter().all(|it| it[2] >= 215),
        "after their end: {all:?}"
    );
    let second_only = all.iter().filter(|it| it[1] < 186).count();
    assert!((10..60).contains(&second_only), "{second_only}: {all:?}");
}

/// Each direction of a link has a latency that differs from seed to seed.
#[test]
fn link_direction_latency_differs_by_seed() {
    let mut all = BTreeSet::new();
    for seed in 10..60 {
        let report = report_of(seed, |chaos, _| chaos.latencies());
        let line = report.lines().nth(1).unwrap();
        if line.contains("latency of ") {
            for way in ["test→server", "server→test"] {
                let words = line.split_once(&format!("latency of {way} ")).unwrap().1;
                all.insert(words.split_once(" (").unwrap().0.to_owned());
            }
        }
    }
    assert!(all.len() > 30, "{all:?}");
    for words in ["on average", "tail", " to "] {
        assert!(all.iter().any(|it| it.contains(words)), "{words}: {all:?}");
    }
}

/// A latency that is left out is the one that the test has set.
#[test]
fn excluded_latency_is_the_tests() {
    let name = "chaos::excluded_latency_is_the_tests";
    // Fails if an answer does not take as long as the test expects.
    let fails = |sim: Sim| async move {
        sim.host("server").start(echo);
        sleep(ms(1)).await;
        sim.links().latency(Latency::fixed(ms(3)));
        let mut stream = TcpStream::connect("server:1").await.unwrap();
        sim.chaos(secs(10)).latencies();
        let start = now();
        ask(&mut stream).await.unwrap();
        assert_eq!(now() - start, ms(6), "it takes another time");
    };
    if super::failing::is_inner() {
        return polder_sim::check(0..100, fails);
    }
    let (passes, text) = super::failing::in_a_process(name, &[]);
    assert!(!passes && text.contains("it takes another time"), "{text}");
    assert!(text.contains("2 faults, 1 of them needed"), "{text}");
    let line = text
        .lines()
        .find(|it| it.contains("replay: POLDER_SIM_SEED="));
    let seed = line.unwrap().split(['=', ' ']).nth(4).unwrap();
    let variables = format!("{seed}:-1..2");
    let (passes, text) = super::failing::in_a_process(name, &[("POLDER_SIM_REPLAY", &variables)]);
    assert!(passes, "{text}");
}

/// Clocks jump and drift and run evenly in the end.
#[test]
fn clocks_jump_and_drift_then_run_even() {
    polder_sim::check(10..60, |sim| async move {
        let host = sim.host("host");
        // The shortest and the longest time in the world while ten milliseconds pass on the host.
        let passed = Rc::new(RefCell::new((ms(10), ms(10))));
        let (seen, world) = (passed.clone(), sim.clone());
        host.start(move || {
            let (passed, world) = (seen.clone(), world.clone());
            async move {
                loop {
                    let start = world.now();
                    sleep(ms(10)).await;
                    let took = world.now() - start;
                    let mut passed = passed.borrow_mut();
                    *passed = (passed.0.min(took), passed.1.max(took));
                }
            }
        });
        sleep(ms(1)).await;
        sim.chaos(secs(30)).clocks();
        sleep(secs(31)).await;
        let (least, most) = *passed.borrow();
        sim.sometimes("it is fast, or jumps", move || least < ms(9));
        sim.sometimes("it is slow", move || most > ms(11));
        sim.sometimes("it is right", move || (least, most) == (ms(10), ms(10)));
        host.kill();
        let lapse = host.start(|| async {
            let start = now();
            sleep(secs(10)).await;
            now() - start
        });
        let start = now();
        assert_eq!(lapse.finished().within(secs(60)).await, secs(10));
        assert_eq!(now() - start, secs(10));
    });
}

/// An order is drawn for half of the seeds and ends with its chaos.
#[test]
fn order_drawn_for_half_of_seeds() {
    let turns = |sim: Sim| async move {
        let list = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                let list = list.clone();
                polder::spawn_local(async move { list.borrow_mut().push(n) })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        sim.sleep(ms(1)).await;
        list.take()
    };
    let mut all = BTreeSet::new();
    for seed in 10..60 {
        let report = polder_sim::run(seed, move |sim| async move {
            sim.chaos(secs(1)).orders();
            let list = turns(sim.clone()).await;
            sim.sleep(secs(2)).await;
            let later = turns(sim.clone()).await;
            sim.chaos(secs(1)).orders();
            sim.quiesce();
            let in_order: Vec<i32> = (0..20).collect();
            // The order is random again: the initial order is unlikely with this number of tasks.
            assert!(later != in_order && turns(sim).await != in_order);
            assert_eq!(list, in_order, "another order");
            fail_on_purpose();
        });
        let report = report.failure.unwrap();
        let line = report.lines().find(|it| it.starts_with("    orders: "));
        let line = line.expect("it was drawn").to_owned();
        let is_fifo = line.contains("first come");
        assert_eq!(is_fifo, !report.contains("another order"), "{report}");
        all.insert(line);
    }
    assert_eq!(all.len(), 5, "{all:?}");
}

/// Calls that block take long by chaos and end with it.
#[test]
fn calls_that_block_slow_until_chaos_ends() {
    let slow = Arc::new(AtomicUsize::new(0));
    polder_sim::check(10..40, |sim: Sim| {
        let slow = slow.clone();
        async move {
            sim.chaos(secs(3_000)).blocking();
            for _ in 0..50 {
                let start = sim.now();
                polder::unblock(|| ()).await;
                if sim.now() - start > ms(100) {
                    slow.fetch_add(1, Ordering::Relaxed);
                }
            }
            sim.quiesce();
            let start = sim.now();
            polder::unblock(|| ()).await;
            assert!(sim.now() - start < ms(1));
        }
    });
    assert!(slow.load(Ordering::Relaxed) > 10, "{slow:?}");
}

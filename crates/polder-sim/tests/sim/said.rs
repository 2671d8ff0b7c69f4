//! The properties that a program states (`always!`, `sometimes!`), and the output of a run in
//! progress (`Sim::on_event`, `POLDER_SIM_LOG`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use polder::time::sleep;
use polder_sim::{Event, Order, Sim};

use super::failing::{assert_contains, failure, in_a_process, is_inner};
use super::{ms, secs};

/// Counts, up to three.
async fn counter() {
    for count in 0..5 {
        sleep(secs(1)).await;
        polder::always!(count < 3, "it counts to three");
    }
}

/// A violated `always!` fails the run with its place, host and time.
#[test]
fn always_violation_fails_with_place_and_time() {
    let report = polder_sim::run(1, |sim| async move {
        let host = sim.host("store").start(counter);
        host.finished().within(secs(10)).await;
    });
    let failure = report.failure.unwrap();
    let at = format!("it does not hold on store, {}:", file!());
    assert_contains(
        &failure,
        &["failed at 4.000000 s: always \"it counts to three\": ", &at],
    );
    assert_eq!(report.time, secs(4), "the run ends there");
}

/// Outside of worlds the expressions are not evaluated.
#[test]
fn said_not_evaluated_outside_worlds() {
    let is_asked = || -> bool { panic!("somebody asks") };
    polder::always!(is_asked(), "always");
    polder::sometimes!(is_asked(), "sometimes");
    polder::block_on(async { polder::always!(is_asked(), "always") });
    // In a world the condition is evaluated once.
    let report = polder_sim::run(1, |_| async {
        let asked = Cell::new(0);
        polder::always!(asked.replace(asked.get() + 1) == 0, "always");
        assert_eq!(asked.get(), 1);
    });
    assert_eq!(report.failure, None);
}

/// `always!` is not checked in destructors of a killed process.
#[test]
fn always_not_checked_in_killed_destructors() {
    struct Closed;
    impl Drop for Closed {
        fn drop(&mut self) {
            polder::always!(false, "it is closed in order");
        }
    }
    let run = |kills: bool| {
        polder_sim::run(1, move |sim| async move {
            let host = sim.host("host").start(|| async {
                let _closed = Closed;
                sleep(secs(1)).await;
            });
            sleep(ms(1)).await;
            if kills {
                host.kill();
            }
            sleep(secs(2)).await;
        })
    };
    assert_eq!(run(true).failure, None);
    assert!(run(false).failure.is_some());
}

/// `sometimes!` is counted over all seeds.
#[test]
fn sometimes_counted_over_all_seeds() {
    let check = |limit: u64| {
        polder_sim::check(0..20, move |sim: Sim| async move {
            let (number, asked) = (sim.choose(10), Cell::new(0));
            for _ in 0..2 {
                let is_so = || {
                    asked.set(asked.get() + 1);
                    number >= limit
                };
                polder::sometimes!(is_so(), "a great number");
            }
            let expected = if number >= limit { 1 } else { 2 };
            assert_eq!(asked.get(), expected, "it is asked until it was so");
        });
    };
    check(5);
    let words = failure(move || check(10));
    assert!(
        words.contains("sometimes \"a great number\": it was not true for any of 20 seeds"),
        "{words}"
    );
}

/// An observer sees each event in order, and changes nothing.
#[test]
fn observer_sees_events_in_order() {
    let run = |observes: bool| {
        polder_sim::run(7, move |sim| async move {
            sim.order(Order::Fifo);
            let told: Rc<RefCell<Vec<Event>>> = Rc::default();
            if observes {
                let (told, inner) = (told.clone(), sim.clone());
                sim.on_event(move |event| {
                    // The function may query the world, and also replace itself by another one.
                    assert_eq!(inner.now(), event.time);
                    told.borrow_mut().push(event.clone());
                    inner.on_event(|_| {});
                });
            }
            let host = sim.host("store").start(|| sleep(secs(3)));
            host.finished().within(secs(4)).await;
            let lines: Vec<String> = told.borrow().iter().map(Event::to_string).collect();
            if observes {
                assert_eq!(lines.first().unwrap(), "0.000000 s store: started");
                assert!(lines[1].starts_with("0.000000 s store: task 2 runs, spawned at "));
                assert!(lines[2].starts_with("3.000000 s store: task 2 runs, spawned at "));
                assert_eq!(lines[3], "3.000000 s store: its process has ended");
                assert_eq!(told.borrow()[3].words, "its process has ended");
            }
        })
    };
    let (plain, observed) = (run(false), run(true));
    assert_eq!((&plain.failure, &observed.failure), (&None, &None));
    assert_eq!(plain.fingerprint, observed.fingerprint);
}

/// An end is told when the last of several cuts or pauses ends.
#[test]
fn end_said_when_last_cut_or_pause_ends() {
    polder_sim::check(0..3, |sim| async move {
        let [a, _] = ["a", "b"].map(|name| sim.host(name));
        let told: Rc<RefCell<Vec<String>>> = Rc::default();
        let words = told.clone();
        sim.on_event(move |event| {
            if event.host != "test" {
                words.borrow_mut().push(event.words.clone());
            }
        });
        let next = async || {
            sleep(ms(1)).await;
            told.take()
        };
        let cuts = [("a", "b"), ("a", "b"), ("b", "a")].map(|(a, b)| sim.cut(&[a], &[b]));
        let cut = ["cut off from b", "cut off from b", "cut off from a"];
        assert_eq!(next().await, cut);
        let [one, other, back] = cuts;
        drop((other, one));
        assert!(next().await.is_empty());
        drop(back);
        assert_eq!(next().await, ["reaches a again", "reaches b again"]);
        // A way back that is cut is no way there.
        let ways = [("a", "b"), ("b", "a")].map(|(a, b)| sim.cut(&[a], &[b]).one_way());
        assert_eq!(next().await, cut[1..]);
        for (way, end) in ways.into_iter().zip(["reaches b again", "reaches a again"]) {
            drop(way);
            assert_eq!(next().await, [end]);
        }
        let pauses = [a.pause(), a.suspend(), a.pause()];
        assert_eq!(next().await, ["paused", "suspended", "paused"]);
        for (pause, told) in pauses
            .into_iter()
            .zip([None, Some("paused"), Some("resumed")])
        {
            drop(pause);
            assert_eq!(next().await, told.as_slice());
        }
    });
}

#[test]
fn a_panic_of_whoever_observes_fails_the_run() {
    let report = polder_sim::run(1, |sim| async move {
        sim.on_event(|_| panic!("it has seen enough"));
        sleep(secs(1)).await;
    });
    assert!(report.failure.unwrap().contains("it has seen enough"));
}

/// Each event of a run is printed once where that is asked for.
#[test]
fn events_printed_once_on_request() {
    let name = "said::events_printed_once_on_request";
    if is_inner() {
        return polder_sim::check(0..3, |sim| async move {
            let host = sim.host("store").start(|| sleep(secs(3)));
            host.finished().within(secs(4)).await;
            // This seed runs many times.
            assert!(sim.seed() != 2 || sim.choose(9) == 10, "the last one fails");
        });
    }
    let count = |variables: &[(&str, &str)], line: &str| {
        let (_, text) = in_a_process(name, variables);
        text.lines().filter(|it| *it == line).count()
    };
    let line = |seed| format!("seed {seed:#x}: 3.000000 s store: its process has ended");
    for seed in [0, 1, 2] {
        assert_eq!(count(&[("POLDER_SIM_LOG", "1")], &line(seed)), 1);
        assert_eq!(count(&[], &line(seed)), 0);
    }
    let variables = [("POLDER_SIM_LOG", "1"), ("POLDER_SIM_SEED", "1")];
    assert_eq!(count(&variables, &line(1)), 1);
    assert_eq!(count(&variables, &line(2)), 0);
}

/// Writes numbers, and loses those that come one by one.
async fn writer() -> Vec<u32> {
    let mut written = Vec::new();
    for n in 0..100 {
        if polder::buggify!("small batches") {
            sleep(ms(1)).await;
        } else {
            written.push(n);
        }
    }
    written
}

/// A fault of the program's own strikes for a quarter of the seeds and times.
#[test]
fn program_fault_strikes_quarter_of_seeds() {
    let (mut on, mut strikes) = (0, 0);
    for seed in 0..210 {
        let count = Arc::new(AtomicUsize::new(0));
        let struck = count.clone();
        let report = polder_sim::run(seed, move |sim| {
            let struck = struck.clone();
            async move {
                let [one, two] = ["one", "two"].map(|name| sim.host(name).start(writer));
                let (one, two) = (
                    one.finished().within(secs(60)).await,
                    two.finished().within(secs(60)).await,
                );
                struck.store(100 - one.len(), Relaxed);
                assert_eq!(
                    one.len() < 100,
                    two.len() < 100,
                    "it is on for all hosts, or none"
                );
                assert!(one.len() == 100 || one != two, "each host has its own");
                sim.quiesce();
                assert_eq!(
                    sim.host("late")
                        .start(writer)
                        .finished()
                        .within(secs(60))
                        .await
                        .len(),
                    100
                );
            }
        });
        assert_eq!(report.failure, None);
        assert!(
            seed >= 10 || count.load(Relaxed) == 0,
            "the first seeds are calm"
        );
        on += usize::from(count.load(Relaxed) > 0);
        strikes += count.load(Relaxed);
    }
    assert!((35..65).contains(&on), "{on} of 200");
    let percent = strikes / on;
    assert!((20..30).contains(&percent), "{percent} %");
    assert!(
        !polder::buggify!("small batches"),
        "nothing outside of worlds"
    );
}

/// The report names the fault of the program that the failure needs.
#[test]
fn report_names_needed_program_fault() {
    let report = failure(|| {
        polder_sim::check(0..60, |sim| async move {
            let host = sim.host("store").start(writer);
            sim.chaos(secs(10)).clocks();
            assert_eq!(
                host.finished().within(secs(60)).await.len(),
                100,
                "a number is lost"
            );
        });
    });
    assert_contains(
        &report,
        &[
            "a number is lost",
            " 1 of them needed",
            "store: buggify \"small batches\"",
        ],
    );
}

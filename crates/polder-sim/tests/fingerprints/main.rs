//! One seed, one run: twice in a process, in two processes, on every platform, optimised or not.
//!
//! Linux, macOS and Windows run these in CI by `ci/features.sh`, the BSDs by themselves, and
//! `ci/sim.sh` runs them optimised. After a change to a world's behaviour, or to the order in
//! which the runtime acts, the numbers are recorded again on one platform, and the others must
//! produce the same.

mod example;
mod platforms;

use std::process::Command;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::time::sleep;
use polder_sim::{Latency, Sim};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Names, connections, losses, a crash.
async fn busy(sim: Sim) {
    sim.links()
        .latency(Latency::uniform(ms(1)..ms(20)))
        .loss(0.05);
    let server = sim.host("server").start(|| async {
        let listener = TcpListener::bind("0.0.0.0:1").await.unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            polder::spawn(async move {
                let mut bytes = [0; 64];
                while stream.read_exact(&mut bytes).await.is_ok() {
                    if stream.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
            })
            .detach();
        }
    });
    for n in 0..3 {
        sim.host(&format!("client-{n}")).start(|| async {
            loop {
                let Ok(mut stream) = TcpStream::connect("server:1").await else {
                    sleep(ms(10)).await;
                    continue;
                };
                let mut bytes = [7; 64];
                while stream.write_all(&bytes).await.is_ok()
                    && stream.read_exact(&mut bytes).await.is_ok()
                {
                    sleep(ms(3)).await;
                }
            }
        });
    }
    sleep(ms(sim.choose(500))).await;
    server.kill();
    sleep(ms(50)).await;
    server.restart();
    sleep(secs(1)).await;
}

fn fingerprints(seeds: std::ops::Range<u64>) -> Vec<u64> {
    seeds
        .map(|seed| {
            let report = polder_sim::run(seed, busy);
            assert_eq!(report.failure, None);
            report.fingerprint
        })
        .collect()
}

/// A seed with chaos has the same fingerprint each time.
#[test]
fn fingerprint_repeats_with_chaos() {
    let chaotic = |sim: Sim| async move {
        let hosts = ["server", "client-0", "client-1", "client-2"].map(|name| sim.host(name));
        let [server, one, two, three] = &hosts;
        sim.chaos(secs(2))
            .cuts()
            .holds()
            .resets()
            .pauses()
            .loss()
            .crashes(&[server, one, two, three]);
        busy(sim.clone()).await;
        sim.quiesce();
        sleep(secs(1)).await;
    };
    let all = |seeds: std::ops::Range<u64>| -> Vec<u64> {
        let reports = seeds.map(|seed| polder_sim::run(seed, chaotic));
        let fingerprint = |it: polder_sim::Report| {
            assert_eq!(it.failure, None);
            it.fingerprint
        };
        reports.map(fingerprint).collect()
    };
    assert_eq!(all(0..40), all(0..40));
}

/// The recorded `fingerprints`.
const KNOWN: [u64; 3] = [
    0xe3a4_7df0_63cb_f619,
    0x3c76_fd77_f35a_81e8,
    0x27ad_57bd_c3ed_8b94,
];

/// A seed has the same fingerprint each time and others have others.
#[test]
fn fingerprint_repeats_and_differs_by_seed() {
    let mut first = fingerprints(0..30);
    assert_eq!(fingerprints(0..30), first);
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 30);
}

#[test]
fn fingerprints_are_those_that_are_written_down() {
    let now = fingerprints(0..3);
    assert_eq!(
        now, KNOWN,
        "debug and release, this platform and others: {now:#x?}"
    );
}

/// The variable that makes this program print its fingerprints.
const PRINT: &str = "POLDER_TEST_PRINT_FINGERPRINTS";

#[test]
fn two_processes_have_the_same_fingerprints() {
    let name = "two_processes_have_the_same_fingerprints";
    if std::env::var_os(PRINT).is_some() {
        println!("fingerprints: {:?}", fingerprints(0..5));
        return;
    }
    let print = || {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(PRINT, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|it| it.contains("fingerprints: "));
        line.unwrap_or_else(|| panic!("nothing was printed: {text}"))
            .to_owned()
    };
    assert_eq!(print(), print());
    assert!(print().ends_with(&format!("{:?}", fingerprints(0..5))));
}

#[test]
fn checks_of_the_tests_do_not_change_the_run() {
    let plain = polder_sim::run(5, busy);
    let checked = polder_sim::run(5, |sim| {
        sim.always("it is fine", || true);
        sim.sometimes("it is not", || false);
        busy(sim)
    });
    assert_eq!(plain.fingerprint, checked.fingerprint);
    assert_eq!(plain.events, checked.events);
}

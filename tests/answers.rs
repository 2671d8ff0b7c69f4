//! `answer_for_libc!`: in this program worlds answer for the C library. (The tests of worlds in
//! which they do not are in `tests/sim`, a program of its own.)

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polder::net::UdpSocket;
use polder::sim::{self, Sim};
use polder::time::{now, sleep};

polder::sim::answer_for_libc!();

/// A random number of the crate getrandom's.
fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Sends whatever the C library was asked for to another host: so the fingerprint has it.
async fn program() {
    // Its first number is the seed's, as its own seed would have the thread's number.
    fastrand::seed(random());
    let socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
    for _ in 0..5 {
        let words = ["one", "two", "three", "four", "five", "six", "seven"];
        let map: HashMap<&str, u32> = words.into_iter().zip(0..).collect();
        let order: Vec<&str> = map.into_keys().collect();
        let text = format!(
            "{order:?} {:?} {:?} {} {}",
            SystemTime::now(),
            Instant::now(),
            fastrand::u64(..),
            random(),
        );
        socket.send_to(text.as_bytes(), "test:2").await.unwrap();
        sleep(Duration::from_millis(fastrand::u64(1..50))).await;
    }
}

async fn world(sim: Sim) -> Vec<Vec<u8>> {
    let socket = UdpSocket::bind("0.0.0.0:2").await.unwrap();
    sim.host("host").start(program);
    let mut all = Vec::new();
    for _ in 0..5 {
        let mut bytes = [0; 1_000];
        let len = socket.recv(&mut bytes).await.unwrap();
        all.push(bytes[..len].to_vec());
    }
    all
}

#[test]
fn the_seed_decides_what_the_c_library_is_asked_for() {
    // Compared by `check` itself as well: the first seed runs twice.
    sim::check(0..20, |sim| async { drop(world(sim).await) });
    let fingerprints = || -> Vec<u64> {
        let reports = (0..20).map(|seed| sim::run(seed, |sim| async { drop(world(sim).await) }));
        reports.map(|it| it.fingerprint).collect()
    };
    let all = fingerprints();
    assert_eq!(fingerprints(), all);
    let others: HashSet<u64> = all.into_iter().collect();
    assert_eq!(others.len(), 20);
}

#[test]
fn the_clocks_of_the_standard_library_are_the_worlds_and_its_hosts() {
    sim::check(0..4, |sim| async move {
        let (start, date) = (Instant::now(), SystemTime::now());
        assert_eq!(start, now());
        assert_eq!(
            date.duration_since(UNIX_EPOCH).unwrap().as_secs(),
            1_767_225_600
        );
        let host = sim.host("fast");
        host.clock().drift(500_000);
        let shown = host.start(|| async {
            let start = (Instant::now(), SystemTime::now());
            sleep(Duration::from_secs(3)).await;
            (start.0.elapsed(), start.1.elapsed().unwrap())
        });
        let shown = shown.finished().within(Duration::from_secs(3)).await;
        assert_eq!(shown, (Duration::from_secs(3), Duration::from_secs(3)));
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        assert_eq!(date.elapsed().unwrap(), Duration::from_secs(2));
        // More than a day back.
        assert!(start.checked_sub(Duration::from_secs(90_000)).is_some());
    });
}

#[test]
fn threads_outside_of_worlds_have_the_systems_clock_and_randomness() {
    let real = SystemTime::now();
    assert!(real.duration_since(UNIX_EPOCH).unwrap().as_secs() > 1_767_225_600);
    let start = Instant::now();
    thread::sleep(Duration::from_millis(20));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_ne!(random(), random());
    sim::check(0..2, |_| async {
        // Another thread, while this one's world stands still.
        let elsewhere = thread::spawn(|| (SystemTime::now(), random()));
        let (date, number) = elsewhere.join().unwrap();
        assert!(date > SystemTime::now() && number != random());
    });
    assert!(SystemTime::now() >= real);
}

#[test]
fn a_static_that_is_made_in_the_first_world_shifts_nothing_in_the_others() {
    static KEY: LazyLock<u64> = LazyLock::new(random);
    let drawn = |seed| {
        let list = sim::run(seed, |sim| async move {
            assert_ne!(*KEY, 0);
            sim.sleep(Duration::from_secs(1)).await;
            drop(world(sim).await);
        });
        assert_eq!(list.failure, None);
        list.fingerprint
    };
    assert_eq!(drawn(3), drawn(3));
}

#[test]
fn what_the_c_library_is_not_asked_for_is_told_to_be_the_cause() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let failed = std::panic::catch_unwind(|| {
        sim::check(0..1, |_| async {
            sleep(Duration::from_millis(
                1 + RUNS.fetch_add(1, Ordering::Relaxed),
            ))
            .await;
        });
    });
    let words = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(words.contains("two runs of it differ"), "{words}");
    assert!(words.contains("the C library is not asked for"), "{words}");
    assert!(words.contains("The first run had: 0.001"), "{words}");
    assert!(words.contains("The second has:    0.002"), "{words}");
    // A question more in the first run, of something that is made once.
    static MADE: LazyLock<u64> = LazyLock::new(random);
    static IS_MADE: AtomicU64 = AtomicU64::new(0);
    let failed = std::panic::catch_unwind(|| {
        sim::check(0..1, |_| async {
            assert_ne!(*MADE, 0);
            sleep(Duration::from_millis(
                1 + IS_MADE.swap(1, Ordering::Relaxed),
            ))
            .await;
        });
    });
    let words = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(words.contains("set up once in a process"), "{words}");
}

#[test]
fn every_function_of_the_c_library_that_is_answered_gives_the_worlds_answer() {
    sim::check(0..2, |sim| async move {
        sim.sleep(Duration::from_micros(1_234_567_890)).await;
        let mut spec = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut val = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let mut bytes = [[0_u8; 32]; 2];
        let (now, refused) = {
            let null = std::ptr::null_mut();
            // SAFETY: each has room for what it is about, and a length beyond 256 is refused.
            unsafe {
                assert_eq!(libc::clock_gettime(libc::CLOCK_REALTIME, &mut spec), 0);
                assert_eq!(libc::gettimeofday(&mut val, null), 0);
                for half in &mut bytes {
                    assert_eq!(libc::getentropy(half.as_mut_ptr().cast(), 32), 0);
                }
                let refused = libc::getentropy(bytes.as_mut_ptr().cast(), 257);
                (libc::time(std::ptr::null_mut()), refused)
            }
        };
        let seconds = 1_767_226_834;
        assert_eq!((spec.tv_sec, spec.tv_nsec), (seconds, 567_890_000));
        assert_eq!((val.tv_sec, val.tv_usec), (seconds, 567_890));
        assert_eq!((now, refused), (seconds, -1));
        assert!(bytes[0] != bytes[1] && bytes[0] != [0; 32]);
        // CPU time is the system's: some has passed.
        // SAFETY: it has room.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut spec) };
        assert!(spec.tv_sec < 100_000 && spec.tv_nsec > 0);
    });
}

//! The standard library's clocks and randomness, recorded and replayed.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

polder_replay::answer_for_libc!();

type Seen = (Vec<u32>, Duration, SystemTime, Duration, bool);

/// The value differs from run to run.
async fn program() -> Seen {
    let (start, asked) = (Instant::now(), polder::time::now());
    let map: HashMap<u32, ()> = (0..100).map(|key| (key, ())).collect();
    polder::time::sleep(Duration::from_millis(2)).await;
    let order = map.into_keys().collect();
    let elapsed = start.elapsed();
    // Both are one clock.
    let is_one = asked >= start && asked - start < elapsed;
    (
        order,
        elapsed,
        SystemTime::now(),
        polder::time::now() - asked,
        is_one,
    )
}

/// On a thread that has made no `HashMap` yet.
fn on_new_thread(f: impl FnOnce() -> Seen + Send) -> Seen {
    thread::scope(|scope| scope.spawn(f).join().unwrap())
}

/// Also after a world, which has answers of its own.
#[test]
fn clocks_and_keys_of_the_standard_library_are_replayed() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("tape");
    polder_sim::check(0..1, |_| async {});
    let recorded = on_new_thread(|| polder_replay::record(&path, program()).unwrap());
    assert!(recorded.4, "{recorded:?}");
    assert!(recorded.1 >= Duration::from_millis(2) && recorded.1 < Duration::from_secs(600));
    for _ in 0..20 {
        let replayed = on_new_thread(|| polder_replay::replay(&path, program()).unwrap());
        assert_eq!(replayed, recorded);
    }
    let again = on_new_thread(|| polder_replay::record(&path, program()).unwrap());
    assert_ne!(again, recorded);
    let since_1970 = recorded.2.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(
        since_1970 > Duration::from_secs(1_600_000_000),
        "the wall clock was recorded"
    );
}

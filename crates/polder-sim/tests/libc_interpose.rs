//! `answer_for_libc!`: in this program worlds answer for the C library. (Tests of worlds that do
//! not are in `tests/sim`, a separate program.)

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polder::net::UdpSocket;
use polder::time::{now, sleep};
use polder_sim::Sim;

polder_sim::answer_for_libc!();

unsafe extern "C" {
    // The libc crate does not have it on every platform.
    fn getentropy(to: *mut std::ffi::c_void, len: usize) -> std::ffi::c_int;
}

/// A random number, obtained like the getrandom crate does.
fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// A random number by the C library's `syscall`, like getrandom 0.2.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn random_by_syscall() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: there is room for 8 bytes.
    let len = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), 8, 0) };
    assert_eq!(len, 8);
    u64::from_ne_bytes(bytes)
}

/// On other architectures `syscall` is the C library's.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn random_by_syscall() -> u64 {
    random()
}

/// Sends all answers of the C library to another host, which puts them into the fingerprint.
async fn program() {
    // Seeded from the world, since its own seed would include the thread's id.
    fastrand::seed(random());
    let socket = UdpSocket::bind("0.0.0.0:1").await.unwrap();
    for _ in 0..5 {
        let words = ["one", "two", "three", "four", "five", "six", "seven"];
        let map: HashMap<&str, u32> = words.into_iter().zip(0..).collect();
        let order: Vec<&str> = map.into_keys().collect();
        let text = format!(
            "{order:?} {:?} {:?} {} {} {}",
            SystemTime::now(),
            Instant::now(),
            fastrand::u64(..),
            random(),
            random_by_syscall(),
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

/// The seed decides what the C library is asked for.
#[test]
fn libc_answers_decided_by_seed() {
    // `check` also compares them: the first seed runs twice.
    polder_sim::check(0..20, |sim| async { drop(world(sim).await) });
    let fingerprints = || -> Vec<u64> {
        let reports =
            (0..20).map(|seed| polder_sim::run(seed, |sim| async { drop(world(sim).await) }));
        reports.map(|it| it.fingerprint).collect()
    };
    let all = fingerprints();
    assert_eq!(fingerprints(), all);
    let others: HashSet<u64> = all.into_iter().collect();
    assert_eq!(others.len(), 20);
}

/// A picture is of another run of the seed, in which hosts are described now and then.
#[test]
fn descriptions_for_a_picture_change_no_answer() {
    let check = || {
        polder_sim::check(0..1, |sim| async move {
            sim.host("host").start(|| sleep(Duration::from_secs(60)));
            for _ in 0..20 {
                sim.sleep(Duration::from_millis(1)).await;
            }
            let keys: HashSet<u64> = (0..20).collect();
            let keys: Vec<u64> = keys.into_iter().collect();
            let answers = format!("{keys:?} {} {:?}", random(), SystemTime::now());
            assert!(keys.is_empty(), "{answers}");
        });
    };
    let panic = std::panic::catch_unwind(check).unwrap_err();
    let words = panic.downcast_ref::<String>().unwrap();
    let path = words.split_once("  timeline: ").unwrap().1;
    let page = std::fs::read_to_string(path.lines().next().unwrap()).unwrap();
    assert!(page.contains("<details data-at=\"10000000\">"));
    let head = words.lines().next().unwrap();
    assert!(head.contains("the test panicked: ["), "{head}");
    assert!(page.contains(&format!("<pre>{head}</pre>")), "{words}");
}

/// Worlds that share a thread get the answers of their own seeds.
///
/// Answers for the C library follow the seed. The standard library's hash keys belong to the
/// thread.
#[test]
fn worlds_sharing_thread_answer_by_own_seed() {
    let random = |sim: Sim| {
        sim.share_thread();
        async move {
            let socket = UdpSocket::bind("0.0.0.0:2").await.unwrap();
            sim.sleep(Duration::from_millis(1 + random() % 100)).await;
            let clocks = (now(), Instant::now(), SystemTime::now());
            let text = format!("{clocks:?} {} {}", random(), random_by_syscall());
            socket.send_to(text.as_bytes(), "test:2").await.unwrap();
            (socket.recv(&mut [0; 1_000]).await).unwrap();
        }
    };
    // The first world on a reused thread is compared with a run on a new thread.
    polder_sim::check(0..1_000, random);
    let maps = || {
        polder_sim::check(0..1_000, |sim| async {
            sim.share_thread();
            drop(world(sim).await);
        })
    };
    let panic = std::panic::catch_unwind(maps).unwrap_err();
    let words = panic.downcast_ref::<String>().unwrap();
    assert!(words.contains("such as the keys of HashMaps"), "{words}");
}

/// The clocks of the standard library are the world's and its host's.
#[test]
fn std_clocks_are_the_worlds_and_hosts() {
    polder_sim::check(0..4, |sim| async move {
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

/// A step of the wall clock leaves the other clock and timers alone.
#[test]
fn wall_clock_step_leaves_monotonic_and_timers() {
    const SECOND: Duration = Duration::from_secs(1);
    polder_sim::check(0..4, |sim| async move {
        let date = SystemTime::now();
        let host = sim.host("host");
        let shown = host.start(|| async {
            let (start, date) = (Instant::now(), SystemTime::now());
            let mut all = Vec::new();
            for _ in 0..4 {
                sleep(10 * SECOND).await;
                let by_date = SystemTime::now().duration_since(date);
                let by_date = by_date.map_err(|it| it.duration());
                all.push((start.elapsed(), by_date));
            }
            all
        });
        sim.sleep(15 * SECOND).await;
        host.clock().wall_ahead(3_600 * SECOND);
        sim.sleep(10 * SECOND).await;
        host.clock().wall_behind(7_200 * SECOND);
        sim.sleep(10 * SECOND).await;
        // A wall clock step persists, like a clock jump.
        sim.quiesce();
        let shown = shown.finished().within(10 * SECOND).await;
        let right = [
            (10 * SECOND, Ok(10 * SECOND)),
            (20 * SECOND, Ok(3_620 * SECOND)),
            (30 * SECOND, Err(3_570 * SECOND)),
            (40 * SECOND, Err(3_560 * SECOND)),
        ];
        assert_eq!(shown, right);
        // The test has a different clock.
        assert_eq!(date.elapsed().unwrap(), sim.now());
    });
}

/// The wall clock of a suspended machine runs on and the other one stands still.
#[test]
fn suspended_wall_clock_runs_monotonic_stops() {
    const SECOND: Duration = Duration::from_secs(1);
    polder_sim::check(0..4, |sim| async move {
        let host = sim.host("host");
        host.clock().wall_behind(7 * SECOND);
        let shown = host.start(|| async {
            let (start, date) = (Instant::now(), SystemTime::now());
            sleep(10 * SECOND).await;
            (start.elapsed(), date.elapsed().unwrap())
        });
        sim.sleep(SECOND).await;
        let suspensions = [(); 2].map(|()| host.suspend());
        for suspension in suspensions {
            sim.sleep(900 * SECOND).await;
            drop(suspension);
        }
        let shown = shown.finished().within(10 * SECOND).await;
        assert_eq!(shown, (10 * SECOND, 1_810 * SECOND));
    });
}

/// Chaos of wall clocks changes nothing else and ends.
#[test]
fn wall_clock_chaos_changes_nothing_else() {
    let wrong = |seed, is_quiet: bool| {
        static WRONG: AtomicU64 = AtomicU64::new(0);
        WRONG.store(0, Ordering::Relaxed);
        let report = polder_sim::run(seed, move |sim| async move {
            sim.host("host").start(|| async {
                let (start, date) = (Instant::now(), SystemTime::now());
                for number in 1.. {
                    sleep(Duration::from_millis(100)).await;
                    assert_eq!(start.elapsed(), Duration::from_millis(100 * number));
                    if date.elapsed().ok() != Some(start.elapsed()) {
                        WRONG.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            sim.chaos(Duration::from_secs(30)).wall_clocks();
            sim.sleep(Duration::from_millis(if is_quiet {
                20_050
            } else {
                30_050
            }))
            .await;
            if is_quiet {
                sim.quiesce();
            }
            let before = WRONG.load(Ordering::Relaxed);
            sim.sleep(Duration::from_secs(60)).await;
            assert_eq!(WRONG.load(Ordering::Relaxed), before, "it has not ended");
        });
        assert_eq!(report.failure, None);
        WRONG.load(Ordering::Relaxed)
    };
    for is_quiet in [false, true] {
        let harmed = (10..50).filter(|seed| wrong(*seed, is_quiet) > 0).count();
        assert!((8..32).contains(&harmed), "{harmed} of 40 seeds");
    }
}

/// Threads outside of worlds have the system's clock and randomness.
#[test]
fn threads_outside_worlds_use_system_answers() {
    let real = SystemTime::now();
    assert!(real.duration_since(UNIX_EPOCH).unwrap().as_secs() > 1_767_225_600);
    let start = Instant::now();
    thread::sleep(Duration::from_millis(20));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_ne!(random(), random());
    assert_ne!(random_by_syscall(), random_by_syscall());
    polder_sim::check(0..2, |_| async {
        // Another thread, while the world of this one is paused.
        let elsewhere = thread::spawn(|| (SystemTime::now(), random(), random_by_syscall()));
        let (date, number, other) = elsewhere.join().unwrap();
        assert!(date > SystemTime::now() && number != random() && other != random_by_syscall());
    });
    assert!(SystemTime::now() >= real);
}

/// System calls that are no question are the kernel's.
///
/// All of `syscall(2)` except requests for randomness: numbers, six arguments, results, errors.
#[test]
fn other_syscalls_answered_by_kernel() {
    use std::io::{Error, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    let all = || {
        // SAFETY: none of these touches this process's memory except the pages that it maps here,
        // which have no other owner.
        unsafe {
            let id = libc::syscall(libc::SYS_getpid);
            assert_eq!(id, std::process::id() as libc::c_long);
            assert_eq!(libc::syscall(libc::SYS_close, -1), -1);
            assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EBADF));
            let null = std::ptr::null_mut::<u8>();
            let (mode, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let page = libc::syscall(libc::SYS_mmap, null, 4096_usize, mode, flags, -1, 0_usize);
            assert_ne!(page, -1);
            *(page as *mut u8) = 1;
            assert_eq!(libc::syscall(libc::SYS_munmap, page, 4096_usize), 0);
            // The sixth argument, which is passed on the stack: an unaligned offset is refused
            // before the missing file is noticed.
            let (mode, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
            let page = libc::syscall(libc::SYS_mmap, null, 4096_usize, mode, flags, -1, 1_usize);
            assert_eq!(page, -1);
            assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        }
        let (mut reader, mut writer) = UnixStream::pair().unwrap();
        let (number, text) = (writer.as_raw_fd(), b"what is written");
        // SAFETY: the text has this length.
        let written = unsafe { libc::syscall(libc::SYS_write, number, text.as_ptr(), text.len()) };
        writer.write_all(b"!").unwrap();
        drop(writer);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!((written, &*read), (15, &b"what is written!"[..]));
    };
    all();
    polder_sim::check(0..2, move |_| async move { all() });
    // The kernel refuses unknown flags.
    let mut bytes = [0_u8; 8];
    // SAFETY: there is room for 8 bytes.
    let refused = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), 8, 0xff) };
    assert_eq!(refused, -1);
    assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
}

/// A static that is made in the first world shifts nothing in the others.
#[test]
fn static_initialised_in_first_world_is_neutral() {
    static KEY: LazyLock<u64> = LazyLock::new(random);
    let drawn = |seed| {
        let list = polder_sim::run(seed, |sim| async move {
            assert_ne!(*KEY, 0);
            sim.sleep(Duration::from_secs(1)).await;
            drop(world(sim).await);
        });
        assert_eq!(list.failure, None);
        list.fingerprint
    };
    assert_eq!(drawn(3), drawn(3));
}

/// A divergence is attributed to questions that bypass the C library.
#[test]
fn bypassed_libc_reported_as_cause() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let failed = std::panic::catch_unwind(|| {
        polder_sim::check(0..1, |_| async {
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
    let counts = "(In both runs that was asked 0 times for randomness and ";
    assert!(words.contains(counts), "{words}");
    // An extra request in the first run, for a value that is made once.
    static MADE: LazyLock<u64> = LazyLock::new(random);
    static IS_MADE: AtomicU64 = AtomicU64::new(0);
    let failed = std::panic::catch_unwind(|| {
        polder_sim::check(0..1, |_| async {
            assert_ne!(*MADE, 0);
            sleep(Duration::from_millis(
                1 + IS_MADE.swap(1, Ordering::Relaxed),
            ))
            .await;
        });
    });
    let words = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(words.contains("set up once in a process"), "{words}");
    let counts = [
        "the first run had asked the C library 1 times for randomness",
        "the second one 0 and",
    ];
    assert!(counts.iter().all(|it| words.contains(it)), "{words}");
}

/// Every function of the C library that is answered gives the world's answer.
#[test]
fn libc_functions_answered_by_world() {
    polder_sim::check(0..2, |sim| async move {
        sim.sleep(Duration::from_micros(1_234_567_890)).await;
        let mut spec = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut val = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let mut zone = [7; 2];
        let mut bytes = [[0_u8; 32]; 2];
        let (now, refused) = {
            let null = std::ptr::null_mut();
            // SAFETY: each has room for its result, and a length beyond 256 is refused.
            unsafe {
                assert_eq!(libc::clock_gettime(libc::CLOCK_REALTIME, &mut spec), 0);
                assert_eq!(libc::gettimeofday(&mut val, (&raw mut zone).cast()), 0);
                assert_eq!((val.tv_sec, zone), (1_767_226_834, [0; 2]));
                assert_eq!(libc::gettimeofday(&mut val, null), 0);
                for half in &mut bytes {
                    assert_eq!(getentropy(half.as_mut_ptr().cast(), 32), 0);
                }
                let refused = getentropy(bytes.as_mut_ptr().cast(), 257);
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

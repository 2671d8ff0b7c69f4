//! The rules of simulated disks: what a process reads, what survives each kind of end, and which
//! calls fail.

#[cfg(target_os = "linux")]
mod script;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::io::{ErrorKind, Result};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polder::fs::{self, File, OpenOptions};
use polder::io::{self, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
use polder::net::{TcpListener, TcpStream};
use polder::time::{sleep, timeout};
use polder_sim::{Exit, Host, Latency, Sim};

use super::failing::{assert_contains, failure};
use super::{ms, secs};

/// Runs a program on a host, replacing the previous one.
async fn on<F>(host: &Host, program: impl Fn() -> F + 'static) -> F::Output
where
    F: Future + 'static,
    F::Output: 'static,
{
    host.start(program).finished().within(secs(60)).await
}

async fn sync(path: &str) -> Result<()> {
    File::open(path).await?.sync_all().await
}

/// Writes a file that survives any crash.
async fn write_synced(path: &'static str, bytes: &'static [u8]) -> Result<()> {
    fs::write(path, bytes).await?;
    sync(path).await?;
    sync("/").await
}

/// Returns the set of outcomes over a number of seeds.
fn outcomes<T, F>(seeds: u64, test: impl Fn(Sim) -> F + Sync) -> BTreeSet<T>
where
    T: Ord + Send + 'static,
    F: Future<Output = T> + 'static,
{
    let all = Mutex::new(BTreeSet::new());
    for seed in 0..seeds {
        let outcome = std::sync::Arc::new(Mutex::new(None));
        let report = polder_sim::run(seed, |sim| {
            let (outcome, test) = (outcome.clone(), test(sim));
            async move { *outcome.lock().unwrap() = Some(test.await) }
        });
        assert_eq!(report.failure, None, "seed {seed}");
        all.lock().unwrap().extend(outcome.lock().unwrap().take());
    }
    all.into_inner().unwrap()
}

#[test]
fn written_survives_exit_and_kill() {
    polder_sim::check(0..50, |sim| async move {
        let store = sim.host("store");
        on(&store, || fs::write("/returned", "1")).await?;
        let writer = store.start(|| async {
            fs::create_dir("/d").await?;
            fs::write("/d/killed", vec![7; 10_000]).await?;
            std::future::pending::<Result<()>>().await
        });
        sleep(secs(1)).await;
        writer.kill();
        assert_eq!(on(&store, || fs::read("/returned")).await?, b"1");
        assert_eq!(on(&store, || fs::read("/d/killed")).await?, [7; 10_000]);
        // Another host has another disk.
        let error = fs::read("/returned").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        Result::Ok(())
    });
}

/// A call happens as a whole at the end of its time or not at all.
#[test]
fn call_happens_whole_at_its_end_or_not() {
    let len_after = |wait: u64| {
        outcomes(1, move |sim| async move {
            let store = sim.host("store");
            store.disk().latency(Latency::fixed(ms(10)));
            let writer = store.start(|| async {
                let mut file = File::create("/a").await?;
                file.write_all(&[1; 5_000]).await?;
                file.set_len(100).await
            });
            sleep(ms(wait)).await;
            writer.kill();
            let metadata = on(&store, || fs::metadata("/a")).await;
            metadata.map(|it| it.len()).ok()
        })
    };
    let lens = [5, 15, 25, 35].map(|wait| len_after(wait).pop_first().unwrap());
    assert_eq!(lens, [None, Some(0), Some(5_000), Some(100)]);
}

/// A read or write that is dropped before it completes has no effect.
#[test]
fn dropped_read_or_write_does_nothing() {
    polder_sim::check(0..20, |sim| async move {
        sim.host("test").disk().latency(Latency::fixed(ms(10)));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true);
        let mut file = options.open("/a").await?;
        assert!(timeout(ms(5), file.write_all(b"dropped")).await.is_err());
        sleep(secs(1)).await;
        assert_eq!(file.metadata().await?.len(), 0);
        file.write_all(b"written").await?;
        file.seek(SeekFrom::Start(0)).await?;
        let mut bytes = [0; 7];
        assert!(timeout(ms(5), file.read(&mut bytes)).await.is_err());
        // The same in the other direction.
        assert!(timeout(ms(5), file.write_all(b"W")).await.is_err());
        file.read_exact(&mut bytes).await?;
        assert_eq!(&bytes, b"written");
        let sync = timeout(Duration::from_nanos(1), file.sync_all()).await;
        assert!(sync.is_err());
        file.sync_all().await
    });
}

/// Appends records to a log, syncing each before it is counted in `count`.
async fn append(count: Rc<Cell<u8>>) -> Result<()> {
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open("/log")
        .await?;
    sync("/").await?;
    for number in 1.. {
        log.write_all(&[number; 300]).await?;
        log.sync_data().await?;
        count.set(number);
    }
    Ok(())
}

#[test]
fn what_was_synced_survives_every_power_off() {
    polder_sim::check(0..1_000, |sim| async move {
        let store = sim.host("store");
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        let writer = store.start(move || append(counted.clone()));
        sim.sleep(Duration::from_micros(sim.choose(20_000))).await;
        if sim.choose(2) == 0 {
            writer.kill();
        }
        store.power_off();
        let log = on(&store, || fs::read("/log")).await;
        let log = log.or_else(|error| match count.get() {
            0 => Ok(Vec::new()),
            _ => Err(error),
        });
        let log = log?;
        for number in 0..count.get() {
            let place = 300 * usize::from(number);
            assert_eq!(log[place..place + 300], [number + 1; 300]);
        }
        Result::Ok(())
    });
}

#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let left = outcomes(40, |sim| async move {
        let store = sim.host("store");
        on(&store, || write_synced("/a", b"1")).await.unwrap();
        store.disk().sync_latency(Latency::fixed(ms(10)));
        let write = || async {
            let file = File::open("/a").await?;
            let sync = polder::spawn_local(async move { file.sync_all().await });
            sleep(ms(5)).await;
            let mut file = OpenOptions::new().write(true).open("/a").await?;
            file.write_all(b"2").await?;
            sync.await
        };
        on(&store, write).await.unwrap();
        store.power_off();
        on(&store, || fs::read("/a")).await.unwrap()
    });
    assert_eq!(left, [b"1".to_vec(), b"2".to_vec()].into());
}

/// With the seed zero chaos has a power off take nothing.
#[test]
fn seed_zero_power_off_takes_nothing() {
    polder_sim::check(0..1, |sim| async move {
        sim.chaos(secs(10)).usual(&[]);
        let store = sim.host("store");
        let files = ["/a", "/b", "/c", "/d"];
        for file in files {
            on(&store, move || fs::write(file, [1; 5_000])).await?;
        }
        store.power_off();
        for file in files {
            assert_eq!(on(&store, move || fs::read(file)).await?, [1; 5_000]);
        }
        Result::Ok(())
    });
}

/// A name is lost for some seeds unless its directory is synced.
#[test]
fn name_lost_unless_directory_synced() {
    let left = |syncs: bool| {
        outcomes(60, move |sim| async move {
            let store = sim.host("store");
            let made = on(&store, move || async move {
                fs::create_dir("/d").await?;
                sync("/").await?;
                fs::write("/d/a", "1").await?;
                sync("/d/a").await?;
                if syncs { sync("/d").await } else { Ok(()) }
            });
            made.await.unwrap();
            store.power_off();
            let read = on(&store, || fs::read("/d/a")).await;
            read.map_err(|it| it.kind())
        })
    };
    let there = Ok(b"1".to_vec());
    assert_eq!(left(true), [there.clone()].into());
    assert_eq!(left(false), [there, Err(ErrorKind::NotFound)].into());
}

/// A rename is atomic for every seed where what is renamed was synced.
#[test]
fn rename_atomic_where_source_synced() {
    let left = outcomes(300, |sim| async move {
        let store = sim.host("store");
        on(&store, || write_synced("/value", &[1; 2_000]))
            .await
            .unwrap();
        let replace = || async {
            let mut new = File::create("/new").await?;
            new.write_all(&[2; 3_000]).await?;
            new.sync_all().await?;
            fs::rename("/new", "/value").await
        };
        let writer = store.start(replace);
        sim.sleep(Duration::from_micros(sim.choose(3_000))).await;
        writer.power_off();
        let value = on(&store, || fs::read("/value")).await.unwrap();
        let is_whole = value == [1; 2_000] || value == [2; 3_000];
        assert!(is_whole, "neither the old nor the new one");
        value[0]
    });
    assert_eq!(left, [1, 2].into());
}

/// The example of `polder::io`.
async fn receive(mut stream: TcpStream) -> Result<()> {
    const MAX_LENGTH: u64 = 64 << 20;

    let mut file = File::create("/upload.new").await?;
    let length = io::copy((&mut stream).take(MAX_LENGTH + 1), &mut file).await?;
    if length > MAX_LENGTH {
        return Err(ErrorKind::FileTooLarge.into());
    }
    file.sync_all().await?;
    fs::rename("/upload.new", "/upload").await?;
    sync("/").await
}

#[test]
fn an_upload_is_whole_after_a_power_failure() {
    const UPLOAD: &[u8] = &[7; 100_000];

    polder_sim::check(0..10, |sim| async move {
        let server = sim.host("server");
        let receives = server.start(|| async {
            let listener = TcpListener::bind("0.0.0.0:7000").await?;
            receive(listener.accept().await?.0).await
        });
        let client = sim.host("client");
        let send = || async {
            let mut stream = TcpStream::connect("server:7000").await?;
            stream.write_all(UPLOAD).await
        };
        on(&client, send).await?;
        receives.finished().within(secs(9)).await?;
        server.power_off();
        assert_eq!(on(&server, || fs::read("/upload")).await?, UPLOAD);
        Result::Ok(())
    });
}

/// After a sync that failed the next one succeeds and the bytes are lost.
#[test]
fn failed_sync_then_success_loses_bytes() {
    polder_sim::check(0..100, |sim| async move {
        let store = sim.host("store");
        on(&store, || write_synced("/a", b"old")).await?;
        store.disk().sync_errors(1.0);
        let write = || async {
            let mut file = OpenOptions::new().write(true).open("/a").await?;
            file.write_all(b"new").await?;
            let error = file.sync_all().await.unwrap_err();
            // The content of the page cache.
            assert_eq!(fs::read("/a").await?, b"new");
            Result::Ok(error)
        };
        let error = on(&store, write).await?;
        #[cfg(target_os = "linux")]
        assert_eq!(error.raw_os_error(), Some(5));
        assert_ne!(error.kind(), ErrorKind::NotFound);
        store.disk().sync_errors(0.0);
        on(&store, || sync("/a")).await?;
        store.power_off();
        assert_eq!(on(&store, || fs::read("/a")).await?, b"old");
        Result::Ok(())
    });
}

/// A sync that failed is told to each who had the file open.
#[test]
fn failed_sync_reported_to_each_opener() {
    polder_sim::check(0..20, |sim| async move {
        let store = sim.host("store");
        let host = store.clone();
        let told = on(&store, move || {
            let disk = host.disk();
            async move {
                let mut file = File::create("/a").await?;
                let other = OpenOptions::new().write(true).open("/a").await?;
                file.write_all(b"entry").await?;
                disk.sync_errors(1.0).sync_latency(Latency::fixed(ms(10)));
                let failing = polder::spawn_local(async move { file.sync_all().await });
                sleep(ms(2)).await;
                // The sync in progress still fails.
                disk.sync_errors(0.0);
                let others = other.sync_all().await;
                let later = File::open("/a").await?.sync_all().await;
                let again = other.sync_all().await;
                let told = [failing.await, others, later, again];
                Result::Ok(told.map(|it| it.is_err()))
            }
        });
        assert_eq!(told.await?, [true, true, false, false]);
        Result::Ok(())
    });
}

/// A hole larger than memory is not read in one piece.
#[test]
fn huge_hole_not_read_at_once() {
    polder_sim::check(0..1, |_| async move {
        let file = File::create("/a").await?;
        for len in [i64::MAX as u64, 1 << 40] {
            file.set_len(len).await?;
            let error = fs::read("/a").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        }
        let mut bytes = [1; 9];
        File::open("/a").await?.read_exact(&mut bytes).await?;
        assert_eq!(bytes, [0; 9]);
        Result::Ok(())
    });
}

/// A file is of its host also where a call has begun.
#[test]
fn file_belongs_to_host_of_its_call() {
    polder_sim::check(0..3, |sim| async move {
        let store = sim.host("store");
        store.disk().latency(Latency::fixed(ms(10)));
        let slot = Rc::new(RefCell::new(None));
        let given = slot.clone();
        store.start(move || {
            let given = given.clone();
            async move {
                let mut file = File::create("/a").await?;
                assert!(timeout(ms(5), file.write_all(b"x")).await.is_err());
                *given.borrow_mut() = Some(file);
                std::future::pending::<Result<()>>().await
            }
        });
        sleep(secs(1)).await;
        let mut file = slot.take().unwrap();
        for _ in 0..2 {
            let error = file.write(b"from elsewhere").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(
                error.to_string().contains("does not have its disk"),
                "{error}"
            );
            let error = file.seek(SeekFrom::End(0)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        // The file is closed nevertheless.
        drop(file);
    });
}

/// A process that is killed during a poll changes nothing on the disk in that poll.
#[test]
fn killed_poll_changes_no_disk() {
    polder_sim::check(0..5, |sim| async move {
        let store = sim.host("store");
        store.disk().latency(Latency::fixed(ms(10)));
        let host = store.clone();
        store.start(move || {
            let host = host.clone();
            async move {
                let mut file = File::create("/a").await?;
                let mut making = Box::pin(fs::create_dir("/b"));
                assert!(timeout(ms(5), file.write_all(b"x")).await.is_err());
                assert!(timeout(ms(5), &mut making).await.is_err());
                sleep(ms(20)).await;
                host.kill();
                // Both latencies have passed, so the operations would complete immediately.
                for result in [file.write_all(b"x").await, making.await] {
                    let error = result.unwrap_err();
                    assert!(error.to_string().contains("has ended"), "{error}");
                }
                Result::Ok(())
            }
        });
        sleep(secs(1)).await;
        assert_eq!(on(&store, || fs::read("/a")).await?, b"");
        assert!(on(&store, || fs::metadata("/b")).await.is_err());
        Result::Ok(())
    });
}

/// A file keeps its number over a power off and no other one gets it.
#[cfg(unix)]
#[test]
fn inode_survives_power_off_and_is_unique() {
    use polder::fs::unix::MetadataExt;

    polder_sim::check(0..20, |sim| async move {
        let numbers = |path: &'static str| async move {
            let found = fs::metadata(path).await?;
            assert_eq!((found.uid(), found.rdev(), found.mtime()), (0, 0, 0));
            Result::Ok((found.dev(), found.ino()))
        };
        let store = sim.host("store");
        on(&store, || write_synced("/a", b"1")).await?;
        on(&store, || fs::write("/lost", "2")).await?;
        let kept = on(&store, move || numbers("/a")).await?;
        let lost = on(&store, move || numbers("/lost")).await?;
        assert_ne!(kept, lost);
        store.power_off();
        assert_eq!(on(&store, move || numbers("/a")).await?, kept);
        on(&store, || fs::write("/new", "3")).await?;
        let new = on(&store, move || numbers("/new")).await?;
        assert!(new != lost && new != kept && new.0 == kept.0);
        // Another host has another disk.
        let other = sim.host("other");
        on(&other, || fs::write("/a", "1")).await?;
        assert_ne!(on(&other, move || numbers("/a")).await?.0, kept.0);
        Result::Ok(())
    });
}

/// A file is cloned as long as there are descriptors.
#[test]
fn file_cloned_while_descriptors_last() {
    polder_sim::check(0..3, |sim| async move {
        let store = sim.host("store");
        store.descriptors(1);
        on(&store, || async {
            let file = File::create("/a").await?;
            assert!(file.try_clone().await.is_err());
            Result::Ok(())
        })
        .await?;
        store.descriptors(2);
        on(&store, || async {
            let file = File::create("/a").await?;
            let mut other = file.try_clone().await?;
            drop(file);
            other.write_all(b"text").await
        })
        .await
    });
}

/// A file that was leaked is closed with its process.
#[test]
fn leaked_file_closed_with_process() {
    polder_sim::check(0..5, |sim| async move {
        let store = sim.host("store");
        store.disk().capacity(512);
        store.start(|| async {
            let mut file = File::create("/a").await?;
            file.write_all(&[1; 512]).await?;
            std::mem::forget(file);
            std::future::pending::<Result<()>>().await
        });
        sleep(secs(1)).await;
        store.kill();
        on(&store, || async {
            fs::remove_file("/a").await?;
            fs::write("/b", [2; 512]).await
        })
        .await
    });
}

/// Reads and writes fail by chance and change nothing.
#[test]
fn reads_and_writes_fail_by_chance_unchanged() {
    polder_sim::check(0..20, |sim| async move {
        let store = sim.host("store");
        store.disk().write_errors(0.3).read_errors(0.3);
        let failed = on(&store, || async {
            let (mut failed, mut expected) = ([0, 0], Vec::new());
            while fs::write("/a", "").await.is_err() {}
            for number in 0..100 {
                let open = OpenOptions::new().append(true).open("/a").await;
                let Ok(mut file) = open else {
                    continue;
                };
                match file.write(&[number]).await {
                    Ok(_) => expected.push(number),
                    Err(_) => failed[0] += 1,
                }
                match fs::read("/a").await {
                    Ok(bytes) => assert_eq!(bytes, expected),
                    Err(_) => failed[1] += 1,
                }
            }
            failed
        });
        let failed = failed.await;
        assert!(failed.iter().all(|it| *it > 5), "{failed:?}");
        sim.quiesce();
        on(&store, || fs::read("/a")).await.map(drop)
    });
}

#[test]
fn chaos_has_disks_fail_for_some_seeds_and_ends() {
    let failed = outcomes(60, |sim| async move {
        sim.chaos(secs(100)).disks();
        let mut failed = [false; 3];
        let start = sim.now();
        for _ in 0..200 {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .open("/a")
                .await;
            let Ok(mut file) = file else {
                failed[0] = true;
                continue;
            };
            failed[0] |= file.write_all(b"x").await.is_err();
            failed[1] |= file.sync_all().await.is_err();
            failed[2] |= fs::read("/a").await.is_err();
        }
        let is_slow = sim.now() - start > secs(1);
        sim.quiesce();
        for _ in 0..100 {
            fs::write("/a", "").await.unwrap();
            sync("/a").await.unwrap();
        }
        (failed, is_slow)
    });
    assert!(failed.contains(&([false; 3], false)), "{failed:?}");
    for which in 0..3 {
        assert!(failed.iter().any(|it| it.0[which]), "{failed:?}");
    }
    assert!(failed.iter().any(|it| it.1), "{failed:?}");
}

#[test]
fn calls_take_their_time() {
    polder_sim::check(0..1, |sim| async move {
        let disk = sim.host("test").disk();
        disk.latency(Latency::fixed(ms(2)))
            .sync_latency(Latency::fixed(ms(70)));
        let file = File::create("/a").await?;
        assert_eq!(sim.now(), ms(2));
        file.sync_all().await?;
        assert_eq!(sim.now(), ms(72));
        disk.slow_syncs(1.0);
        file.sync_all().await?;
        assert!(sim.now() > ms(142) && sim.now() <= ms(2_142));
        disk.latency(Latency::fixed(Duration::ZERO));
        let before = sim.now();
        drop(file);
        fs::write("/a", "x").await?;
        assert_eq!(sim.now(), before);
        Result::Ok(())
    });
}

/// A full disk takes what there is room for until something is removed.
#[test]
fn full_disk_takes_what_fits() {
    polder_sim::check(0..10, |sim| async move {
        sim.host("test").disk().capacity(2_048);
        let mut file = File::create("/a").await?;
        assert_eq!(file.write(&[1; 3_000]).await?, 2_048);
        let error = file.write(&[1]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        // Existing data can be overwritten, and a hole takes no space.
        file.seek(SeekFrom::Start(0)).await?;
        file.write_all(&[2; 2_048]).await?;
        file.set_len(1 << 40).await?;
        let error = fs::write("/b", "x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        fs::remove_file("/a").await?;
        assert!(fs::write("/b", "x").await.is_err(), "it is open");
        drop(file);
        fs::write("/b", "x").await
    });
}

/// Files that are open count as descriptors and as leaks.
#[test]
fn open_files_count_as_descriptors_and_leaks() {
    polder_sim::check(0..1, |sim| async move {
        let host = sim.host("host");
        host.descriptors(2);
        let open = || async {
            let one = File::create("/a").await?;
            let _other = File::open("/a").await?;
            let error = File::open("/a").await.unwrap_err();
            #[cfg(target_os = "linux")]
            assert_eq!(error.raw_os_error(), Some(24));
            drop((one, error));
            File::open("/a").await
        };
        on(&host, move || async move { open().await.map(drop) }).await
    });
    let report = polder_sim::run(1, |sim| async move {
        sim.forbid_leaks();
        let host = sim.host("host");
        on(&host, || async { drop(File::create("/a").await) }).await;
        on(&host, || async {
            std::mem::forget(File::open("/a").await);
        })
        .await;
    });
    let words = "leaves behind\n    a file that is open: /a";
    assert_contains(&report.failure.unwrap(), &[words]);
}

#[test]
fn a_file_is_of_its_process_and_of_its_world() {
    let of_world = Arc::new(Mutex::new(None));
    let kept_there = of_world.clone();
    polder_sim::check(0..1, move |sim| {
        let of_world = kept_there.clone();
        async move {
            let host = sim.host("host");
            let kept: Rc<RefCell<Option<File>>> = Rc::default();
            let keeps = kept.clone();
            let process = host.start(move || {
                let keeps = keeps.clone();
                async move {
                    *keeps.borrow_mut() = File::create("/a").await.ok();
                }
            });
            process.finished().await;
            let file = kept.take().unwrap();
            let error = file.sync_all().await.unwrap_err();
            assert_ne!(error.kind(), ErrorKind::NotFound);
            *of_world.lock().unwrap() = Some(file);
        }
    });
    let mut file = of_world.lock().unwrap().take().unwrap();
    polder::block_on(async {
        let unsupported = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::Unsupported);
        unsupported(file.sync_all().await.unwrap_err());
        unsupported(file.write(b"bytes").await.unwrap_err());
        unsupported(file.into_std().await.unwrap_err());
    });
}

#[test]
fn a_file_of_the_system_is_an_error_in_a_world() {
    polder_sim::check(0..1, |_| async {
        let unsupported = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::Unsupported);
        let mut file = File::from(std::fs::File::open("Cargo.toml").unwrap());
        unsupported(file.read(&mut [0]).await.unwrap_err());
        unsupported(file.seek(SeekFrom::Start(0)).await.unwrap_err());
        unsupported(file.write(b"bytes").await.unwrap_err());
        unsupported(file.metadata().await.unwrap_err());
        unsupported(file.sync_all().await.unwrap_err());
    });
}

#[test]
fn futures_and_files_can_be_sent() {
    fn assert_send<T: Send>(_: &T) {}
    fn assert_send_and_sync<T: Send + Sync + Unpin>() {}
    assert_send_and_sync::<File>();
    assert_send_and_sync::<fs::ReadDir>();
    assert_send(&fs::read("/a"));
    assert_send(&fs::write("/a", "b"));
    assert_send(&fs::create_dir_all("/a"));
    assert_send(&File::open("/a"));
}

/// Writes at various places and syncs now and then, until the power fails; repeatedly.
async fn busy(sim: Sim) -> Vec<u8> {
    let store = sim.host("store");
    let program = || async {
        fs::create_dir_all("/d/e").await?;
        for number in 0_u8.. {
            let path = ["/a", "/d/b", "/d/e/c"][usize::from(number % 3)];
            fs::write(path, vec![number; 900]).await?;
            match number % 7 {
                0 => sync(path).await?,
                1 => sync("/d").await?,
                2 => fs::rename(path, "/d/x").await?,
                _ => {}
            }
        }
        Result::Ok(())
    };
    store.start(program);
    for _ in 0..5 {
        sim.sleep(ms(20)).await;
        store.power_off();
        sim.sleep(ms(1)).await;
        store.restart();
    }
    store.power_off();
    let read = || async {
        let mut all = Vec::new();
        for path in ["/a", "/d/b", "/d/e/c", "/d/x"] {
            all.extend(fs::read(path).await.unwrap_or_default());
        }
        all
    };
    on(&store, read).await
}

#[test]
fn one_seed_has_one_disk() {
    let run = |seed| {
        let read = std::sync::Arc::new(Mutex::new(Vec::new()));
        let report = polder_sim::run(seed, |sim| {
            let read = read.clone();
            async move { *read.lock().unwrap() = busy(sim).await }
        });
        assert_eq!(report.failure, None);
        (report.fingerprint, read.lock().unwrap().clone())
    };
    let all: BTreeSet<_> = (0..20)
        .map(|seed| {
            let first = run(seed);
            assert_eq!(first, run(seed));
            first
        })
        .collect();
    let disks: BTreeSet<_> = all.iter().map(|it| &it.1).collect();
    assert!(all.len() == 20 && disks.len() > 10, "{}", disks.len());
}

#[test]
fn a_report_names_the_loss_that_a_failure_needs() {
    let text = failure(|| {
        polder_sim::check(0..100, |sim| async move {
            let store = sim.host("store");
            on(&store, || async {
                fs::write("/harmless", [1; 5_000]).await?;
                fs::write("/log", "entry").await?;
                sync("/").await
            })
            .await
            .unwrap();
            store.power_off();
            let log = on(&store, || fs::read("/log")).await.unwrap();
            assert_eq!(log, b"entry");
        });
    });
    assert_contains(
        &text,
        &["store: without power /log loses", "of them needed"],
    );
}

#[test]
fn how_a_process_ends_is_no_matter_to_its_disk() {
    polder_sim::check(0..5, |sim| async move {
        let store = sim.host("store");
        let process = store.start(|| async {
            fs::write("/a", "1").await?;
            fs::metadata("/a").await
        });
        let Exit::Returned(metadata) = process.finished().await else {
            panic!("it returns");
        };
        assert!(metadata?.is_file());
        process.restart();
        process.finished().await;
        assert_eq!(on(&store, || fs::read("/a")).await?, b"1");
        Result::Ok(())
    });
}

/// A fault of which the disk says nothing is named by the report.
#[test]
fn silent_disk_fault_named_by_report() {
    type Fault = fn(polder_sim::Disk) -> polder_sim::Disk;
    let faults: [(&str, Fault); 3] = [
        ("a bit has changed on the disk", |disk| disk.bit_rot(0.2)),
        ("a sync loses a write", |disk| disk.lost_writes(0.2)),
        ("a sync writes to another place", |disk| {
            disk.misdirected_writes(0.2)
        }),
    ];
    for (words, fault) in faults {
        let store = move |sim: Sim| async move {
            let host = sim.host("store");
            fault(host.disk());
            let writer = host.start(|| async {
                File::open("/").await?.sync_all().await?;
                let mut file = File::create("/a").await?;
                for number in 1..=8 {
                    file.write_all(&[number; 512]).await?;
                    file.sync_all().await?;
                }
                File::open("/").await?.sync_all().await
            });
            writer.finished().within(secs(1)).await.unwrap();
            host.power_off();
            let reader = host.start(|| fs::read("/a"));
            let bytes = reader.finished().within(secs(1)).await.unwrap();
            for (sector, number) in bytes.chunks(512).zip(1..) {
                let first = sector[0];
                assert_eq!(sector, [number; 512], "{first} in the place of {number}");
            }
        };
        let reports: Vec<_> = (0..40).map(|seed| polder_sim::run(seed, store)).collect();
        let failed: Vec<_> = reports
            .into_iter()
            .filter_map(|report| report.failure)
            .collect();
        assert!((3..40).contains(&failed.len()), "{words}: {}", failed.len());
        // Only a misdirected write puts a sector into the place of another one.
        let is_sector =
            |text: &&String| (1..=8).any(|first| text.contains(&format!(": {first} in the place")));
        let misplaced = failed
            .iter()
            .filter(is_sector)
            .filter(|text| !text.contains("a bit"));
        assert_eq!(
            misplaced.count() > 0,
            words.contains("another place"),
            "{words}"
        );
        assert!(
            failed.iter().all(|text| text.contains(words)),
            "{}",
            failed[0]
        );
    }
}

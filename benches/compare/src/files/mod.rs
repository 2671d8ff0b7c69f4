//! Files, in the page cache or not, and calls that block: what both cost where threads of a pool do
//! them.

mod compio;
mod disk;
mod pools;

use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::iter::StepBy;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{Clock, Ready, Run, Took, nanos};
use crate::echo::cores;
use crate::group::{Group, Metric, Order, Outcome, Skip, Workload};
use crate::peers;
use crate::program::measured;
use disk::{
    CHUNK, CHUNKS, PAGE, SMALL, cold, forget, forgotten, large, large_written, place, small,
    written,
};
use pools::Files;

pub fn group() -> Group {
    Group {
        name: "files",
        title: "Files, and calls that block",
        about: "Files of this program's target folder, which are in the page cache unless it says otherwise. \
                *Small*: 10,000 files of 2 KiB, each read as a whole: one after the other, or by 32 tasks. *Large*: \
                one of 256 MiB, in reads of 64 KiB from its beginning to its end; or in reads of 4 KiB at random \
                places, which are a seek and a read in all. *Cold*: the same, after the kernel was told to forget \
                the page (posix_fadvise(2), which is part of each read here), so the disk is asked; each task has \
                a handle of its own. *Written*: 10,000 files of 2 KiB, which are truncated and written; *synced*: \
                created, written and synced; and 256 MiB in writes of 64 KiB, again and again. `async-fs` is \
                smol's, and reads ahead; it and `tokio` write behind; `tokio-flush` flushes after each write, which is then done when it \
                completes, as in `polder`, `compio` and `std`; `compio` reads by io_uring, and without a \
                seek; `std` is a plain thread, which does one after the other in each row. *unblock*: an empty \
                function on the pool for blocking calls, awaited by one task after the other, or by 64 tasks: \
                `polder::unblock`, `tokio::task::spawn_blocking`, `smol::unblock`; *on one core* with all threads on \
                the same one, so that no call wakes an idle core. All run on one thread and that \
                pool; the CPU time is of all threads.",
        workloads,
        missing: Vec::new,
        measure,
    }
}

const fn nanos_of(title: &'static str) -> [Metric; 2] {
    [
        Metric {
            key: "cpu",
            title: "CPU, ns each",
            ratio: true,
        },
        Metric {
            key: "ns",
            title,
            ratio: true,
        },
    ]
}

const FILE: &[Metric] = &nanos_of("ns per file");
const READ: &[Metric] = &nanos_of("ns per read");
const WRITE: &[Metric] = &nanos_of("ns per write");
const CALL: &[Metric] = &nanos_of("ns per call");

/// Name, title, metrics, programs, and whether it is part of the short mode.
type Work = (
    &'static str,
    &'static str,
    &'static [Metric],
    &'static [&'static str],
    bool,
);

const OF_FILES: &[&str] = &["polder", "tokio", "async-fs", "compio", "std"];
/// tokio, with a flush after each write.
const TOKIO_FLUSH: &str = "tokio-flush";

const OF_WRITES: &[&str] = &["polder", "tokio", TOKIO_FLUSH, "async-fs", "compio", "std"];
const OF_POOLS: &[&str] = &["polder", "tokio", "smol"];

const ON_ONE_CORE: &str = "unblock-core-1";

const ROWS: &[Work] = &[
    (
        "small-1",
        "Files of 2 KiB, one after the other",
        FILE,
        OF_FILES,
        true,
    ),
    (
        "small-32",
        "Files of 2 KiB, 32 at a time",
        FILE,
        OF_FILES,
        true,
    ),
    (
        "large-1",
        "256 MiB in reads of 64 KiB",
        READ,
        OF_FILES,
        false,
    ),
    (
        "random-1",
        "Reads of 4 KiB at random places",
        READ,
        OF_FILES,
        false,
    ),
    (
        "cold-1",
        "Reads of 4 KiB that the disk is asked for, one after the other",
        READ,
        OF_FILES,
        false,
    ),
    (
        "cold-32",
        "Reads of 4 KiB that the disk is asked for, 32 at a time",
        READ,
        OF_FILES,
        false,
    ),
    (
        "write-1",
        "Files of 2 KiB written, one after the other",
        FILE,
        OF_FILES,
        true,
    ),
    (
        "write-32",
        "Files of 2 KiB written, 32 at a time",
        FILE,
        OF_FILES,
        false,
    ),
    (
        "synced-1",
        "Files of 2 KiB written and synced, one after the other",
        FILE,
        OF_FILES,
        false,
    ),
    (
        "synced-32",
        "Files of 2 KiB written and synced, 32 at a time",
        FILE,
        OF_FILES,
        false,
    ),
    (
        "append-1",
        "256 MiB in writes of 64 KiB",
        WRITE,
        OF_WRITES,
        false,
    ),
    (
        "unblock-1",
        "unblock, one after the other",
        CALL,
        OF_POOLS,
        true,
    ),
    (
        ON_ONE_CORE,
        "unblock, one after the other, on one core",
        CALL,
        OF_POOLS,
        false,
    ),
    ("unblock-64", "unblock, by 64 tasks", CALL, OF_POOLS, true),
];

fn workloads(short: bool) -> Vec<Workload> {
    (ROWS.iter().filter(|(.., is_short)| *is_short || !short))
        .map(|&(name, title, metrics, programs, _)| Workload {
            name: name.into(),
            title: title.into(),
            programs: programs.iter().map(|&name| name.into()).collect(),
            yardstick: "tokio".into(),
            metrics,
            limit: Duration::from_millis(if short { 100 } else { 300 }),
            deadline: Duration::from_secs(60),
            rounds: None,
        })
        .collect()
}

fn measure(order: &Order) -> Outcome {
    if order.workload == ON_ONE_CORE {
        cores::pin(&cores::allowed()[..1]);
    }
    let mut run = match order.program.as_str() {
        "polder" => of::<peers::polder::Spawn>(order),
        "tokio" | TOKIO_FLUSH => of::<peers::tokio::CurrentThread>(order),
        "smol" | "async-fs" => of::<peers::smol::Local>(order),
        "compio" => compio::ready(order),
        "std" => of_std(order),
        _ => order.unknown(),
    }?;
    Ok(nanos(&mut run, order.number() as u64, order.limit))
}

fn unreadable(error: io::Error) -> Skip {
    Skip(format!("files: {error}"))
}

/// What is written.
const BYTES: &[u8; CHUNK] = &[7; CHUNK];

/// The numbers of a task's operations.
type Share = StepBy<Range<u64>>;

/// Each task does an equal part of the operations.
fn share(task: u64, tasks: u64, count: u64) -> Share {
    (task..count).step_by(tasks as usize)
}

fn of<F: Files>(order: &Order) -> Ready {
    // Lives as long as the process.
    let peer: &'static F = Box::leak(Box::new(F::new()?));
    let tasks = order.number() as u64;
    let work = order.workload.rsplit_once('-').map(|(work, _)| work);
    let run: Run = match work {
        Some("small") => {
            let files = small().map_err(unreadable)?;
            Box::new(move |count| by_tasks(peer, tasks, count, |share| read::<F>(files, share)))
        }
        Some("large") => {
            let path = large().map_err(unreadable)?;
            Box::new(move |count| {
                by_tasks(peer, tasks, count, |share| whole::<F>(path.clone(), share))
            })
        }
        Some(work @ ("random" | "cold")) => {
            let is_cold = work == "cold";
            let path = if is_cold { cold() } else { large() }.map_err(unreadable)?;
            Box::new(move |count| {
                by_tasks(peer, tasks, count, |share| {
                    let cold = is_cold.then(|| forgotten(&path));
                    random::<F>(path.clone(), share, cold)
                })
            })
        }
        Some("write") => {
            let files = written().map_err(unreadable)?;
            Box::new(move |count| by_tasks(peer, tasks, count, |share| write::<F>(files, share)))
        }
        Some("synced") => {
            let files = written().map_err(unreadable)?;
            Box::new(move |count| by_tasks(peer, tasks, count, |share| synced::<F>(files, share)))
        }
        Some("append") => {
            let path = large_written().map_err(unreadable)?;
            let flushes = order.program == TOKIO_FLUSH;
            Box::new(move |count| {
                by_tasks(peer, tasks, count, |share| {
                    append::<F>(path.clone(), share, flushes)
                })
            })
        }
        Some("unblock" | "unblock-core") => {
            Box::new(move |count| by_tasks(peer, tasks, count, unblock::<F>))
        }
        _ => return order.unknown(),
    };
    Ok(run)
}

/// Spawns so many tasks, which do their part of the operations, one after the other.
fn by_tasks<P: Files, F>(
    peer: &'static P,
    tasks: u64,
    count: u64,
    part: impl Fn(Share) -> F,
) -> Took
where
    F: Future<Output = ()> + Send + 'static,
{
    let parts: Vec<F> = (0..tasks)
        .map(|task| part(share(task, tasks, count)))
        .collect();
    measured(peer, async move {
        let spawned: Vec<_> = parts.into_iter().map(|part| peer.spawn(part)).collect();
        for task in spawned {
            task.await;
        }
    })
}

async fn read<F: Files>(files: &'static [PathBuf], share: Share) {
    for number in share {
        let path = files[number as usize % files.len()].clone();
        let bytes = F::read(path).await.expect("it is there");
        assert_eq!(bytes.len(), SMALL);
    }
}

/// Reads the file from its beginning, as often as it takes.
async fn whole<F: Files>(path: PathBuf, share: Share) {
    let mut file = F::open(path).await.expect("it is there");
    let mut buffer = vec![0; CHUNK];
    for number in share {
        if number % CHUNKS == 0 {
            F::seek(&mut file, 0).await.expect("it is a file");
        }
        let length = F::next(&mut file, &mut buffer).await;
        // How much a read gets is up to the runtime.
        assert_ne!(length.expect("it can be read"), 0);
    }
}

async fn random<F: Files>(path: PathBuf, share: Share, cold: Option<File>) {
    let mut file = F::open(path).await.expect("it is there");
    let mut buffer = vec![0; PAGE];
    for number in share {
        let place = place(number);
        if let Some(cold) = &cold {
            forget(cold, place, PAGE);
        }
        let sought = F::seek(&mut file, place).await;
        sought.expect("it is a file");
        let length = F::next(&mut file, &mut buffer).await;
        assert_eq!(length.expect("it can be read"), PAGE);
    }
}

async fn write<F: Files>(files: &'static [PathBuf], share: Share) {
    for number in share {
        let path = files[number as usize % files.len()].clone();
        let written = F::write(path, &BYTES[..SMALL]).await;
        written.expect("it can be written");
    }
}

async fn synced<F: Files>(files: &'static [PathBuf], share: Share) {
    for number in share {
        let path = files[number as usize % files.len()].clone();
        let mut file = F::create(path).await.expect("it can be created");
        let written = F::append(&mut file, &BYTES[..SMALL]).await;
        written.expect("it can be written");
        F::sync(&mut file).await.expect("it can be synced");
    }
}

/// Writes the file from its beginning, as often as it takes.
async fn append<F: Files>(path: PathBuf, share: Share, flushes: bool) {
    let mut file = F::open_to_write(path).await.expect("it is there");
    for number in share {
        if number % CHUNKS == 0 {
            F::seek(&mut file, 0).await.expect("it is a file");
        }
        let written = F::append(&mut file, BYTES).await;
        written.expect("it can be written");
        if flushes {
            F::flush(&mut file).await.expect("it can be written");
        }
    }
    F::flush(&mut file).await.expect("it can be written");
}

async fn unblock<F: Files>(share: Share) {
    for _ in share {
        F::unblock().await;
    }
}

/// The same by a plain thread, which does one after the other.
fn of_std(order: &Order) -> Ready {
    let work = order.workload.rsplit_once('-').map(|(work, _)| work);
    let run: Run = match work {
        Some("small") => {
            let files = small().map_err(unreadable)?;
            Box::new(move |count| {
                timed(count, |number| {
                    let bytes = fs::read(&files[number as usize % files.len()]);
                    assert_eq!(bytes.expect("it is there").len(), SMALL);
                })
            })
        }
        Some("large") => {
            let mut file = File::open(large().map_err(unreadable)?).map_err(unreadable)?;
            let mut buffer = vec![0; CHUNK];
            Box::new(move |count| {
                timed(count, |number| {
                    if number % CHUNKS == 0 {
                        file.rewind().expect("it is a file");
                    }
                    let length = file.read(&mut buffer).expect("it can be read");
                    assert_ne!(length, 0);
                })
            })
        }
        Some(work @ ("random" | "cold")) => {
            let is_cold = work == "cold";
            let path = if is_cold { cold() } else { large() }.map_err(unreadable)?;
            let mut file = if is_cold {
                forgotten(&path)
            } else {
                File::open(path).map_err(unreadable)?
            };
            let mut buffer = vec![0; PAGE];
            Box::new(move |count| {
                timed(count, |number| {
                    let place = place(number);
                    if is_cold {
                        forget(&file, place, PAGE);
                    }
                    let sought = file.seek(SeekFrom::Start(place));
                    sought.expect("it is a file");
                    file.read_exact(&mut buffer).expect("it can be read");
                })
            })
        }
        Some(work @ ("write" | "synced")) => {
            let files = written().map_err(unreadable)?;
            let is_synced = work == "synced";
            Box::new(move |count| {
                timed(count, |number| {
                    let path = &files[number as usize % files.len()];
                    let mut file = File::create(path).expect("it can be created");
                    let written = file.write_all(&BYTES[..SMALL]);
                    written.expect("it can be written");
                    if is_synced {
                        file.sync_all().expect("it can be synced");
                    }
                })
            })
        }
        Some("append") => {
            let path = large_written().map_err(unreadable)?;
            let mut file = File::options().write(true).open(path).map_err(unreadable)?;
            Box::new(move |count| {
                timed(count, |number| {
                    if number % CHUNKS == 0 {
                        file.rewind().expect("it is a file");
                    }
                    file.write_all(BYTES).expect("it can be written");
                })
            })
        }
        _ => return order.unknown(),
    };
    Ok(run)
}

fn timed(count: u64, mut one: impl FnMut(u64)) -> Took {
    let clock = Clock::start();
    for number in 0..count {
        one(number);
    }
    clock.stop()
}

//! Files that are in the page cache, and calls that block: what both cost where threads of a pool
//! do them.

mod compio;
mod disk;
mod pools;

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{Clock, Ready, Run, Took, nanos};
use crate::group::{Group, Metric, Order, Outcome, Skip, Workload};
use crate::peers;
use crate::program::measured;
use disk::{CHUNK, CHUNKS, PAGE, large, place, small};
use pools::Files;

pub fn group() -> Group {
    Group {
        name: "files",
        title: "Files, and calls that block",
        about: "Files of this program's target folder, which are in the page cache. *Small*: 10,000 files of 2 KiB, each read \
                as a whole: one after the other, or by 32 tasks. *Large*: one of 256 MiB, in reads of 64 KiB from \
                its beginning to its end; or in reads of 4 KiB at random places, which are a seek and a read in all. `async-fs` \
                is smol's, and reads ahead; `compio` reads by io_uring, and without a seek; `std` is a plain thread, which reads one after the other in each row. *unblock*: an empty function on the pool for blocking calls, awaited by one task \
                after the other, or by 64 tasks: `polder::unblock`, `tokio::task::spawn_blocking`, \
                `smol::unblock`. All run on one thread and that pool; the CPU time is of all threads.",
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
const OF_POOLS: &[&str] = &["polder", "tokio", "smol"];

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
        "unblock-1",
        "unblock, one after the other",
        CALL,
        OF_POOLS,
        true,
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
    let mut run = match order.program.as_str() {
        "polder" => of::<peers::polder::Spawn>(order),
        "tokio" => of::<peers::tokio::CurrentThread>(order),
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

fn of<F: Files>(order: &Order) -> Ready {
    // Lives as long as the process.
    let peer: &'static F = Box::leak(Box::new(F::new()?));
    let tasks = order.number() as u64;
    let work = order.workload.rsplit_once('-').map(|(work, _)| work);
    let run: Run = match work {
        Some("small") => {
            let files = small().map_err(unreadable)?;
            Box::new(move |count| by_tasks(peer, tasks, count, |number| read::<F>(files, number)))
        }
        Some("large") => {
            let path = large().map_err(unreadable)?;
            Box::new(move |count| measured(peer, whole::<F>(path.clone(), count)))
        }
        Some("random") => {
            let path = large().map_err(unreadable)?;
            Box::new(move |count| measured(peer, random::<F>(path.clone(), count)))
        }
        Some("unblock") => Box::new(move |count| by_tasks(peer, tasks, count, |_| F::unblock())),
        _ => return order.unknown(),
    };
    Ok(run)
}

/// Spawns so many tasks, which do an equal part of the operations each, one after the other.
fn by_tasks<P: Files, F>(
    peer: &'static P,
    tasks: u64,
    count: u64,
    one: impl Fn(u64) -> F + Clone + Send + 'static,
) -> Took
where
    F: Future<Output = ()> + Send,
{
    measured(peer, async move {
        let part = |task| {
            let one = one.clone();
            async move {
                for turn in 0..count / tasks {
                    one(turn * tasks + task).await;
                }
            }
        };
        let spawned: Vec<_> = (0..tasks).map(|task| peer.spawn(part(task))).collect();
        for task in spawned {
            task.await;
        }
    })
}

async fn read<F: Files>(files: &[PathBuf], number: u64) {
    let path = files[number as usize % files.len()].clone();
    let bytes = F::read(path).await.expect("it is there");
    assert_eq!(bytes.len(), disk::SMALL);
}

/// Reads the file from its beginning, as often as it takes.
async fn whole<F: Files>(path: PathBuf, count: u64) {
    let mut file = F::open(path).await.expect("it is there");
    let mut buffer = vec![0; CHUNK];
    for number in 0..count {
        if number % CHUNKS == 0 {
            F::seek(&mut file, 0).await.expect("it is a file");
        }
        let length = F::next(&mut file, &mut buffer).await;
        // How much a read gets is up to the runtime.
        assert_ne!(length.expect("it can be read"), 0);
    }
}

async fn random<F: Files>(path: PathBuf, count: u64) {
    let mut file = F::open(path).await.expect("it is there");
    let mut buffer = vec![0; PAGE];
    for number in 0..count {
        let sought = F::seek(&mut file, place(number)).await;
        sought.expect("it is a file");
        let length = F::next(&mut file, &mut buffer).await;
        assert_eq!(length.expect("it can be read"), PAGE);
    }
}

/// The same by a plain thread, which reads one after the other.
fn of_std(order: &Order) -> Ready {
    let work = order.workload.rsplit_once('-').map(|(work, _)| work);
    let run: Run = match work {
        Some("small") => {
            let files = small().map_err(unreadable)?;
            Box::new(move |count| {
                timed(count, |number| {
                    let bytes = std::fs::read(&files[number as usize % files.len()]);
                    assert_eq!(bytes.expect("it is there").len(), disk::SMALL);
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
        Some("random") => {
            let mut file = File::open(large().map_err(unreadable)?).map_err(unreadable)?;
            let mut buffer = vec![0; PAGE];
            Box::new(move |count| {
                timed(count, |number| {
                    let sought = file.seek(SeekFrom::Start(place(number)));
                    sought.expect("it is a file");
                    file.read_exact(&mut buffer).expect("it can be read");
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

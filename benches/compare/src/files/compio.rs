//! The same on compio, on io_uring. Its futures stay on their thread, and its files have no place:
//! each read says where it begins.

use std::fs;
use std::future::Future;
use std::path::PathBuf;

use compio::BufResult;
use compio::fs::File;
use compio::io::{AsyncReadAt, AsyncWriteAt, AsyncWriteAtExt};

use super::disk::{
    CHUNK, CHUNKS, PAGE, SMALL, cold, forget, forgotten, large, large_written, place, small,
    written,
};
use super::{BYTES, Share, share, unreadable};
use crate::clock::{Ready, Run, Took};
use crate::group::Order;
use crate::peers::compio::Peer;
use crate::program::{self, measured};

pub fn ready(order: &Order) -> Ready {
    // Lives as long as the process.
    let peer: &'static Peer = Box::leak(Box::new(program::Peer::new()?));
    let tasks = order.number() as u64;
    let work = order.workload.rsplit_once('-').map(|(work, _)| work);
    let run: Run = match work {
        Some("small") => {
            let files = small().map_err(unreadable)?;
            Box::new(move |count| by_tasks(peer, tasks, count, |share| read_all(files, share)))
        }
        Some("large") => {
            let path = large().map_err(unreadable)?;
            Box::new(move |count| {
                by_tasks(peer, tasks, count, |share| {
                    read_at(path.clone(), CHUNK, in_turn, share, None)
                })
            })
        }
        Some(work @ ("random" | "cold")) => {
            let is_cold = work == "cold";
            let path = if is_cold { cold() } else { large() }.map_err(unreadable)?;
            Box::new(move |count| {
                by_tasks(peer, tasks, count, |share| {
                    let cold = is_cold.then(|| forgotten(&path));
                    read_at(path.clone(), PAGE, place, share, cold)
                })
            })
        }
        Some("write") => {
            let files = written().map_err(unreadable)?;
            Box::new(move |count| by_tasks(peer, tasks, count, |share| write_all(files, share)))
        }
        Some("synced") => {
            let files = written().map_err(unreadable)?;
            Box::new(move |count| by_tasks(peer, tasks, count, |share| synced(files, share)))
        }
        Some("append") => {
            let path = large_written().map_err(unreadable)?;
            Box::new(move |count| {
                by_tasks(peer, tasks, count, |share| write_at(path.clone(), share))
            })
        }
        _ => return order.unknown(),
    };
    Ok(run)
}

fn by_tasks<F: Future<Output = ()> + 'static>(
    peer: &'static Peer,
    tasks: u64,
    count: u64,
    part: impl Fn(Share) -> F,
) -> Took {
    let parts: Vec<F> = (0..tasks)
        .map(|task| part(share(task, tasks, count)))
        .collect();
    let all = async {
        let spawned: Vec<_> = parts.into_iter().map(compio::runtime::spawn).collect();
        for task in spawned {
            task.await.expect("it does not panic");
        }
    };
    measured(peer, all)
}

async fn read_all(files: &'static [PathBuf], share: Share) {
    for number in share {
        let bytes = compio::fs::read(&files[number as usize % files.len()]).await;
        assert_eq!(bytes.expect("it is there").len(), SMALL);
    }
}

/// The place of a read or a write of a file that is taken from its beginning to its end.
fn in_turn(number: u64) -> u64 {
    number % CHUNKS * CHUNK as u64
}

async fn read_at(
    path: PathBuf,
    size: usize,
    place: impl Fn(u64) -> u64,
    share: Share,
    cold: Option<fs::File>,
) {
    let file = File::open(path).await.expect("it is there");
    let mut buffer = Vec::with_capacity(size);
    for number in share {
        let place = place(number);
        if let Some(cold) = &cold {
            forget(cold, place, PAGE);
        }
        let BufResult(length, back) = file.read_at(buffer, place).await;
        assert_eq!(length.expect("it can be read"), size);
        buffer = back;
        buffer.clear();
    }
}

async fn write_all(files: &'static [PathBuf], share: Share) {
    for number in share {
        let path = &files[number as usize % files.len()];
        let BufResult(written, _) = compio::fs::write(path, &BYTES[..SMALL]).await;
        written.expect("it can be written");
    }
}

async fn synced(files: &'static [PathBuf], share: Share) {
    for number in share {
        let path = &files[number as usize % files.len()];
        let mut file = File::create(path).await.expect("it can be created");
        let BufResult(written, _) = file.write_all_at(&BYTES[..SMALL], 0).await;
        written.expect("it can be written");
        file.sync_all().await.expect("it can be synced");
        file.close().await.expect("it can be closed");
    }
}

async fn write_at(path: PathBuf, share: Share) {
    let mut options = compio::fs::OpenOptions::new();
    let mut file = options.write(true).open(path).await.expect("it is there");
    for number in share {
        let BufResult(length, _) = file.write_at(&BYTES[..], in_turn(number)).await;
        assert_eq!(length.expect("it can be written"), CHUNK);
    }
}

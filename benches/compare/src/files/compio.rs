//! The same on compio, on io_uring. Its futures stay on their thread, and its files have no place:
//! each read says where it begins.

use std::path::PathBuf;

use compio::BufResult;
use compio::fs::File;
use compio::io::AsyncReadAt;

use super::disk::{CHUNK, CHUNKS, PAGE, SMALL, large, place, small};
use super::unreadable;
use crate::clock::{Ready, Run};
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
            Box::new(move |count| measured(peer, read_all(files, tasks, count)))
        }
        Some("large") => {
            let path = large().map_err(unreadable)?;
            let place = |number| number % CHUNKS * CHUNK as u64;
            Box::new(move |count| measured(peer, read_at(path.clone(), CHUNK, place, count)))
        }
        Some("random") => {
            let path = large().map_err(unreadable)?;
            Box::new(move |count| measured(peer, read_at(path.clone(), PAGE, place, count)))
        }
        _ => return order.unknown(),
    };
    Ok(run)
}

async fn read_all(files: &'static [PathBuf], tasks: u64, count: u64) {
    let part = |task| async move {
        for turn in 0..count / tasks {
            let number = (turn * tasks + task) as usize;
            let bytes = compio::fs::read(&files[number % files.len()]).await;
            assert_eq!(bytes.expect("it is there").len(), SMALL);
        }
    };
    let spawned: Vec<_> = (0..tasks)
        .map(|task| compio::runtime::spawn(part(task)))
        .collect();
    for task in spawned {
        task.await.expect("it does not panic");
    }
}

async fn read_at(path: PathBuf, size: usize, place: impl Fn(u64) -> u64, count: u64) {
    let file = File::open(path).await.expect("it is there");
    let mut buffer = Vec::with_capacity(size);
    for number in 0..count {
        let BufResult(length, back) = file.read_at(buffer, place(number)).await;
        assert_eq!(length.expect("it can be read"), size);
        buffer = back;
        buffer.clear();
    }
}

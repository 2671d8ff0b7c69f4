//! A node on polder's sockets and timers.
//!
//! The state machine is behind a lock, which is never held across an `await`. A change sets the
//! current latch and installs a new one. A waiter that finds nothing to do waits for the latch that
//! it has read under the same lock, so it misses no change.
//!
//! There is a task for each other node, with one request in flight at a time; one for elections;
//! and one for each incoming connection. They end with the future of [`run`], which writes what the
//! node records to its disk, many records at a time if they come faster than it syncs. **A message
//! leaves only when everything that was recorded before is on the disk** ([`Shared::settled`]): it
//! may promise a vote, or that an entry is there.

use std::io::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polder::event::Latch;
use polder::future::or;
use polder::net::{TcpListener, TcpStream, serve};
use polder::time::{now, sleep, sleep_until, timeout};

use super::disk::{Disk, Log};
use super::message::{Request, ask, receive, send};
use super::node::{News, Node};
use super::{Bug, Config};

struct Shared(Mutex<State>);

struct State {
    node: Node,
    changed: Arc<Latch>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No change of the node's state panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Node) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state.node);
        let changed = std::mem::take(&mut state.changed);
        drop(state);
        changed.set();
        result
    }

    /// Returns the result of `look`, which is called again after each change.
    async fn until<R>(&self, mut look: impl FnMut(&Node) -> Option<R>) -> R {
        loop {
            let changed = {
                let state = self.lock();
                if let Some(result) = look(&state.node) {
                    return result;
                }
                state.changed.clone()
            };
            changed.wait().await;
        }
    }

    /// Waits until everything that was recorded before is on the disk.
    async fn settled(&self) {
        let count = self.lock().node.recorded();
        let is_done = |node: &Node| node.is_durable(count).then_some(());
        self.until(is_done).await;
    }
}

/// Runs a node until it is dropped, or `listener` or the disk fails.
pub async fn run(listener: TcpListener, config: Config, disk: Disk) -> Result<()> {
    let log = disk.open(config.bug != Some(Bug::MissingSync)).await?;
    let node = Node::new(config.clone(), disk.read(), now());
    let shared = Arc::new(Shared(Mutex::new(State {
        node,
        changed: Arc::default(),
    })));
    let others = (0..config.nodes.len()).filter(|other| *other != config.id);
    // Dropping a task cancels it.
    let _others: Vec<_> = others
        .map(|other| polder::spawn(talk(shared.clone(), config.clone(), other)))
        .collect();
    let _elections = polder::spawn(elections(shared.clone()));
    let serving = serve(listener, |stream, _| {
        let shared = shared.clone();
        async move {
            // The peer retries.
            let _ = answer(stream, &shared).await;
        }
    });
    or(async { serving.await.map(drop) }, write(&shared, log)).await
}

/// Writes what the node records. Ends with an error of the disk.
async fn write(shared: &Shared, mut log: Log) -> Result<()> {
    loop {
        let is_new = |node: &Node| (!node.is_durable(node.recorded())).then_some(());
        shared.until(is_new).await;
        let records = shared.lock().node.take_records();
        log.append(&records).await?;
        shared.change(Node::note_durable);
    }
}

async fn elections(shared: Arc<Shared>) {
    loop {
        let at = shared.lock().node.election_at();
        sleep_until(at).await;
        // It may have been postponed meanwhile: then nothing changes.
        shared.change(|node| node.tick(now()));
    }
}

/// Sends requests to another node.
async fn talk(shared: Arc<Shared>, config: Config, other: usize) {
    let mut connection = None;
    loop {
        let news = shared.until(|node| match node.news(other) {
            News::None => None,
            news => Some(news),
        });
        if news.await == News::Heartbeat {
            let is_new = |node: &Node| (node.news(other) != News::Heartbeat).then_some(());
            let _ = timeout(config.heartbeat, shared.until(is_new)).await;
        }
        let Some(request) = shared.lock().node.request(other) else {
            continue;
        };
        shared.settled().await;
        let asked = ask(&mut connection, &config.nodes[other], &request);
        match timeout(config.election, asked).await {
            Ok(Ok(response)) => shared.change(|node| node.answered(other, &request, response)),
            _ => {
                connection = None;
                sleep(config.heartbeat / 2).await;
            }
        }
    }
}

/// Answers a peer's requests, until the connection ends.
async fn answer(mut stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    while let Some(request) = receive(&mut stream).await? {
        let response = match request {
            Request::Write(write) => match shared.change(|node| node.begin_write(write)) {
                Ok(term) => shared.until(|node| node.end_write(&write, term)).await,
                Err(response) => response,
            },
            Request::Read { key } => match shared.change(Node::begin_read) {
                Ok(read) => shared.until(|node| node.end_read(read, key)).await,
                Err(response) => response,
            },
            request => shared.change(|node| node.answer(request, now())),
        };
        shared.settled().await;
        send(&mut stream, &response).await?;
    }
    Ok(())
}

//! A client: it finds the leader, and repeats requests without an answer.

use std::time::Duration;

use polder::net::TcpStream;
use polder::time::{sleep, timeout};

use super::message::{Change, Request, Response, Write, ask};

/// How long a client waits before it asks another node.
const PAUSE: Duration = Duration::from_millis(20);

/// A client of a replicated log. Each needs a unique id, which identifies its writes, and has one
/// write at a time: a write that was given up may still happen, so it is the last one.
#[derive(Debug)]
pub struct Client {
    id: u64,
    nodes: Vec<String>,
    /// How long a node may take to answer.
    limit: Duration,
    /// The number of the last write.
    number: u64,
    /// The index of the node that it asks.
    node: usize,
    connection: Option<TcpStream>,
    repeated: u64,
}

impl Client {
    pub fn new(id: u64, nodes: Vec<String>, limit: Duration) -> Client {
        Client {
            node: id as usize % nodes.len(),
            id,
            nodes,
            limit,
            number: 0,
            connection: None,
            repeated: 0,
        }
    }

    /// Changes a value, once, and returns the new value. Retries until that is done.
    pub async fn write(&mut self, change: Change) -> u64 {
        self.number += 1;
        let (client, number) = (self.id, self.number);
        self.ask(Request::Write(Write {
            client,
            number,
            change,
        }))
        .await
    }

    /// Reads a value, as of some moment before this returns. Retries until that is done.
    pub async fn read(&mut self, key: u64) -> u64 {
        self.ask(Request::Read { key }).await
    }

    /// Returns how often a node did not answer a request.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    async fn ask(&mut self, request: Request) -> u64 {
        loop {
            let asked = ask(&mut self.connection, &self.nodes[self.node], &request);
            let leader = match timeout(self.limit, asked).await {
                Ok(Ok(Response::Value(value))) => return value,
                Ok(Ok(Response::NotLeader(leader))) => leader,
                _ => {
                    self.repeated += 1;
                    None
                }
            };
            // A late answer would be taken for the answer to a later request.
            self.connection = None;
            let next = (self.node + 1) % self.nodes.len();
            self.node = leader.filter(|it| *it < self.nodes.len()).unwrap_or(next);
            if leader.is_none() {
                sleep(PAUSE).await;
            }
        }
    }
}

//! A node of the replicated log, with its state in a folder.
//!
//! ```text
//! raft ID FOLDER ADDRESS...
//! ```
//! The addresses are those of all nodes, in the same order for each; the node itself is the one
//! with the index `ID`. It runs until it is killed, and goes on from its folder when it is started
//! again.

use std::io::{Error, ErrorKind, Result};

use interop::raft::{Config, Disk, run};
use polder::net::TcpListener;

fn main() -> Result<()> {
    let usage = || Error::new(ErrorKind::InvalidInput, "usage: raft ID FOLDER ADDRESS...");
    let mut arguments = std::env::args().skip(1);
    let id = arguments.next().and_then(|id| id.parse::<usize>().ok());
    let (id, folder) = id.zip(arguments.next()).ok_or_else(usage)?;
    let nodes: Vec<String> = arguments.collect();
    let address = nodes.get(id).cloned().ok_or_else(usage)?;
    polder::block_on(async {
        let listener = TcpListener::bind(address).await?;
        // Any number that differs between nodes and between starts.
        let seed = u64::from(std::process::id());
        run(listener, Config::new(id, nodes, seed), Disk::new(folder)).await
    })
}

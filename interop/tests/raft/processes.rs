//! The replicated log as three processes, which are killed and started again.

use std::process::{Child, Command};
use std::time::Duration;

use interop::raft::{Change, Client};
use polder::time::timeout;

use super::loopback::{LIMIT, NODES, addresses};

const WRITES: u64 = 60;

/// A node, ended on drop.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As three processes no write is lost when each is killed.
#[test]
fn killed_processes_lose_no_write() {
    let folder = tempfile::tempdir().expect("a directory can be made");
    polder::block_on(async {
        let addresses = addresses().await;
        let start = |id: usize| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_raft"));
            command
                .arg(id.to_string())
                .arg(folder.path().join(id.to_string()));
            Node(command.args(&addresses).spawn().expect("it starts"))
        };
        let mut nodes: Vec<Node> = (0..NODES).map(start).collect();
        let mut client = Client::new(0, addresses.clone(), Duration::from_millis(500));
        let ended = timeout(LIMIT, async {
            for write in 0..WRITES {
                client.write(Change::Add { key: 1, value: 1 }).await;
                if write % 10 == 5 {
                    let id = (write / 10) as usize % NODES;
                    // Dropped first, so that its port is free.
                    drop(nodes.remove(id));
                    nodes.insert(id, start(id));
                }
            }
            // All of them, so that only what is in the folders is left.
            nodes.clear();
            nodes.extend((0..NODES).map(start));
            assert_eq!(client.read(1).await, WRITES, "each write counts once");
            for node in &mut nodes {
                assert!(node.0.try_wait().unwrap().is_none(), "a node has ended");
            }
        });
        ended.await.expect("it is done in time");
    });
}

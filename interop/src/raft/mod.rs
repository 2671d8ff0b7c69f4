//! A replicated log: Raft (Ongaro and Ousterhout, 2014), with a table of numbers on top.
//!
//! Some nodes elect a leader, which appends each write to its log and sends the entry to the
//! others. A write that a majority has is committed: each node applies it to its own table, and the
//! leader answers the client. A leader answers a read once it has confirmed that it still leads. A
//! client repeats requests without an answer; each write has the client's number, so it is applied
//! once.
//!
//! | module | |
//! |---|---|
//! | `message` | what nodes and clients send to each other, as bytes |
//! | [`disk`](Disk) | what a node still knows after a crash: its term, its vote, its log; a file of `polder::fs` |
//! | `table` | what the log is applied to |
//! | `node` | the rules of Raft. No socket, no timer and no clock: they are told the time |
//! | [`server`](run()) | a node on polder's sockets and timers |
//! | [`client`](Client) | a client that finds the leader, and repeats |
//!
//! There are no snapshots and no changes of membership: the log only grows.
//!
//! It is tested in simulated worlds, and runs on the kernel's sockets and files as well. A
//! [`Bug`] can be switched on, to check that a test finds it.

mod client;
mod disk;
mod message;
mod node;
mod server;
mod table;

use std::time::Duration;

pub use client::Client;
pub use disk::Disk;
pub use message::{Change, Write};
pub use server::run;

/// A node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The index of this node in `nodes`.
    pub id: usize,
    /// The addresses of all nodes.
    pub nodes: Vec<String>,
    /// The period of a leader's heartbeats.
    pub heartbeat: Duration,
    /// The minimum time without a leader after which a follower becomes a candidate.
    pub election: Duration,
    /// The maximum random addition to that time, so that one follower is usually first.
    pub spread: Duration,
    /// The maximum number of entries in a message.
    pub batch: usize,
    /// The seed of this node's RNG, which randomizes its election timeout.
    pub seed: u64,
    /// A bug that is switched on deliberately.
    pub bug: Option<Bug>,
}

impl Config {
    /// Returns the configuration of a node among some that are close to each other.
    pub fn new(id: usize, nodes: Vec<String>, seed: u64) -> Config {
        Config {
            id,
            nodes,
            heartbeat: Duration::from_millis(50),
            election: Duration::from_millis(200),
            spread: Duration::from_millis(200),
            batch: 64,
            seed,
            bug: None,
        }
    }
}

/// A bug that programs of this kind have had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A leader answers reads without asking the others whether it still leads.
    UnconfirmedRead,
    /// The vote is not on disk, so a node may vote for two candidates of one term.
    ForgottenVote,
    /// An entry of an earlier term counts as committed as soon as a majority has it (section 5.4.2
    /// of the paper, figure 8).
    CountedEarlierTerm,
    /// A write that comes again is applied again.
    AppliedTwice,
    /// A follower keeps its own entry at an index, even if the leader has another one there.
    KeptConflict,
    /// A leader commits an entry that only it has.
    EarlyAnswer,
    /// A node counts one node less with every second time that it finds the end of its file
    /// damaged, as if it had read a list of members that is too short. After two times two of four
    /// nodes elect it, which is no majority; after six it elects itself.
    ShrunkQuorum,
    /// What is written to the disk is not synced before a message promises it.
    MissingSync,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 8] = [
        Bug::UnconfirmedRead,
        Bug::ForgottenVote,
        Bug::CountedEarlierTerm,
        Bug::AppliedTwice,
        Bug::KeptConflict,
        Bug::EarlyAnswer,
        Bug::ShrunkQuorum,
        Bug::MissingSync,
    ];
}

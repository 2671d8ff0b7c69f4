//! A replicated log: Raft (Ongaro and Ousterhout, 2014), with a table of numbers on top.
//!
//! Some nodes elect a leader, which appends each write to its log and sends that to the others. A
//! write that a majority has is committed: each node applies it to its own table, and the leader
//! answers the client. A read is answered by a leader that has made sure that it still is one. A
//! client repeats what has no answer; each write has the client's number, so it is applied once.
//!
//! | module | |
//! |---|---|
//! | `message` | what nodes and clients send to each other, as bytes |
//! | [`disk`](Disk) | what a node still knows after a crash: its term, its vote, its log |
//! | `table` | what the log is applied to |
//! | `node` | the rules of Raft. No socket, no timer and no clock: they are told the time |
//! | [`server`](run()) | a node on polder's sockets and timers |
//! | [`client`](Client) | a client that finds the leader, and repeats |
//!
//! There are no snapshots and no changes of membership: the log only grows.
//!
//! It is written to be tested in simulated worlds, and runs on the kernel's sockets as well. A
//! [`Bug`] can be switched on, to see whether a test finds it.

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

/// What a node has to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which of `nodes` this one is.
    pub id: usize,
    /// The addresses of all nodes.
    pub nodes: Vec<String>,
    /// How often a leader says that it is there.
    pub heartbeat: Duration,
    /// A follower that has heard of no leader for this long wants to be one,
    pub election: Duration,
    /// or later, by a time of chance up to this: so mostly one of them is first.
    pub spread: Duration,
    /// The most entries of a message.
    pub batch: usize,
    /// The seed of what this node draws by chance: how long until it wants to lead.
    pub seed: u64,
    /// A mistake that is made on purpose.
    pub bug: Option<Bug>,
}

impl Config {
    /// A node of some that are near each other.
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

/// A mistake that programs of this kind have had.
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
    /// A follower keeps what its log has at an index, whatever the leader has there.
    KeptConflict,
    /// A leader commits what nobody but itself has.
    EarlyAnswer,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 6] = [
        Bug::UnconfirmedRead,
        Bug::ForgottenVote,
        Bug::CountedEarlierTerm,
        Bug::AppliedTwice,
        Bug::KeptConflict,
        Bug::EarlyAnswer,
    ];
}

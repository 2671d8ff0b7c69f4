//! An election in which a node may vote twice: it does not sync the name of the file with its vote
//! before it answers, so a power-off soon afterwards may take the vote back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Result;
use std::rc::Rc;
use std::time::{Duration, Instant};

use polder::fs::File;
use polder::io::AsyncWriteExt;
use polder::net::UdpSocket;
use polder::time::{now, timeout};
use polder_sim::Sim;

use super::plant;
use crate::{ms, secs};

const NODES: [&str; 3] = ["a", "b", "c"];

/// The time between two messages of a leader.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// The kinds of messages. A message is its kind, its sender and the sender's term.
const ASKS: u8 = 0;
const VOTES: u8 = 1;
const LEADS: u8 = 2;

/// No vote in a term.
const NONE: u8 = u8::MAX;

/// The first leader of each term. (A byte is enough for the terms of a test.)
type Leaders = Rc<RefCell<BTreeMap<u8, u8>>>;

/// A node. It follows; where it hears of no leader it asks for votes; and with two of these it
/// leads.
struct Node {
    me: u8,
    has_bug: bool,
    socket: UdpSocket,
    sim: Sim,
    leaders: Leaders,
    /// The term, and the vote in it: these are on the disk too.
    term: u8,
    vote: u8,
    votes: BTreeSet<u8>,
    leads: bool,
    /// When it asks for votes, or tells that it leads.
    due: Instant,
}

impl Node {
    async fn run(me: u8, has_bug: bool, leaders: Leaders, sim: Sim) -> Result<()> {
        let saved = polder::fs::read("/saved").await;
        let [term, vote] = saved.map_or([0, NONE], |bytes| bytes.try_into().unwrap());
        let mut node = Node {
            me,
            has_bug,
            socket: UdpSocket::bind("0.0.0.0:7").await?,
            sim,
            leaders,
            term,
            vote,
            votes: BTreeSet::new(),
            leads: false,
            due: now(),
        };
        node.wait();
        loop {
            let mut message = [0; 3];
            let left = node.due.saturating_duration_since(now());
            match timeout(left, node.socket.recv_from(&mut message)).await {
                Err(_) => node.is_due().await?,
                Ok(Ok(_)) => node.receives(message).await?,
                Ok(Err(_)) => {} // Of a message to a node that was down.
            }
        }
    }

    fn wait(&mut self) {
        self.due = now() + ms(150 + self.sim.choose(150));
    }

    async fn save(&self, syncs_name: bool) -> Result<()> {
        let mut file = File::create("/new").await?;
        file.write_all(&[self.term, self.vote]).await?;
        file.sync_all().await?;
        polder::fs::rename("/new", "/saved").await?;
        if syncs_name {
            File::open("/").await?.sync_all().await?;
        }
        Ok(())
    }

    async fn send(&self, kind: u8, to: u8) {
        let message = [kind, self.me, self.term];
        let address = (NODES[usize::from(to)], 7);
        let _ = self.socket.send_to(&message, address).await; // It may be lost too.
    }

    async fn send_to_others(&self, kind: u8) {
        for to in (0..3).filter(|to| *to != self.me) {
            self.send(kind, to).await;
        }
    }

    async fn is_due(&mut self) -> Result<()> {
        if self.leads {
            self.send_to_others(LEADS).await;
            self.due = now() + HEARTBEAT;
            return Ok(());
        }
        (self.term, self.vote) = (self.term + 1, self.me);
        self.save(true).await?;
        self.votes = BTreeSet::from([self.me]);
        self.send_to_others(ASKS).await;
        self.wait();
        Ok(())
    }

    async fn receives(&mut self, [kind, from, term]: [u8; 3]) -> Result<()> {
        if term > self.term {
            (self.term, self.vote, self.leads) = (term, NONE, false);
        }
        if term < self.term {
            return Ok(());
        }
        match kind {
            ASKS if self.vote == NONE || self.vote == from => {
                self.vote = from;
                self.save(!self.has_bug).await?;
                self.send(VOTES, from).await;
                self.wait();
            }
            VOTES if self.vote == self.me && !self.leads => {
                self.votes.insert(from);
                if self.votes.len() == 2 {
                    self.leads = true;
                    self.due = now();
                    let first = *self.leaders.borrow_mut().entry(term).or_insert(self.me);
                    polder::always!(first == self.me, "one leader a term");
                }
            }
            LEADS => self.wait(),
            _ => {}
        }
        Ok(())
    }
}

async fn test(sim: Sim, has_bug: bool) {
    let leaders = Leaders::default();
    let hosts = NODES.map(|name| sim.host(name));
    for (me, host) in (0..).zip(&hosts) {
        let (leaders, sim) = (leaders.clone(), sim.clone());
        host.start(move || Node::run(me, has_bug, leaders.clone(), sim.clone()));
    }
    sim.chaos(secs(10)).usual(&hosts.each_ref());
    sim.sleep(secs(10)).await;
    sim.quiesce();
    sim.sleep(secs(2)).await;
    assert!(!leaders.borrow().is_empty(), "nobody leads");
}

#[test]
fn a_vote_that_a_power_off_takes_back_is_found() {
    plant("forgotten vote", 200, "one leader a term", test);
}

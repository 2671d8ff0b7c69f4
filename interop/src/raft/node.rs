//! The rules of Raft, as a state machine: its inputs are the time, the others' requests and their
//! responses; its outputs are responses and requests. Section numbers are those of the paper ("In
//! Search of an Understandable Consensus Algorithm", extended version).
//!
//! A change of persistent state is a record, which is on the disk before a message depends on it:
//! see `server`. A node's other knowledge (the leader, the commit index) may be behind, and never
//! ahead.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::disk::Stored;
use super::message::{Entry, Position, Record, Request, Response, Write};
use super::table::Table;
use super::{Bug, Config};

#[derive(Debug)]
pub(super) struct Node {
    config: Config,
    /// The persistent state, once all records are on the disk.
    stored: Stored,
    /// Records for the disk, and how many there have been before these.
    records: Vec<Record>,
    recorded: u64,
    /// The number of records that are on the disk.
    durable: u64,
    role: Role,
    /// The leader, as far as is known.
    leader: Option<usize>,
    commit: u64,
    applied: u64,
    table: Table,
    /// When it becomes a candidate, unless it hears from a leader.
    election_at: Instant,
    random: u64,
}

#[derive(Debug)]
enum Role {
    Follower,
    Candidate {
        /// The nodes that have answered, by their answer.
        votes: BTreeSet<usize>,
        refusals: BTreeSet<usize>,
    },
    Leader(Leader),
}

#[derive(Debug)]
struct Leader {
    others: Vec<Follower>,
    /// The index of the leader's first entry.
    first: u64,
    /// The number of the last read.
    round: u64,
}

/// A leader's knowledge of a node. (Unused for itself.)
#[derive(Clone, Debug)]
struct Follower {
    /// The index of the first entry to send.
    next: u64,
    /// The index up to which it has the leader's log.
    matched: u64,
    /// The last round that it has answered.
    round: u64,
}

/// Whether there is a message for another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    Now,
    /// Only a heartbeat.
    Heartbeat,
    None,
}

/// A read that waits until the leader has confirmed that it leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    term: u64,
    round: u64,
    /// The index that must be applied first: everything committed before the read.
    index: u64,
}

impl Node {
    pub(super) fn new(config: Config, mut stored: Stored, now: Instant) -> Node {
        if config.bug == Some(Bug::ForgottenVote) {
            stored.vote = None;
        }
        let mut node = Node {
            // Different after each start.
            random: config.seed ^ stored.term.wrapping_mul(0x2545_f491_4f6c_dd1d),
            config,
            stored,
            records: Vec::new(),
            recorded: 0,
            durable: 0,
            role: Role::Follower,
            leader: None,
            commit: 0,
            applied: 0,
            table: Table::default(),
            election_at: now,
        };
        node.wait_for_leader(now);
        node
    }

    fn has(&self, bug: Bug) -> bool {
        self.config.bug == Some(bug)
    }

    fn is_majority(&self, count: usize) -> bool {
        let lost = if self.has(Bug::ShrunkQuorum) {
            self.stored.damaged / 2
        } else {
            0
        };
        count > self.config.nodes.len().saturating_sub(lost) / 2
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    pub(super) fn election_at(&self) -> Instant {
        self.election_at
    }

    /// Postpones the next election by a random time, so that one node is usually first (5.2).
    fn wait_for_leader(&mut self, now: Instant) {
        // splitmix64, by Sebastiano Vigna.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let micros = self.config.spread.as_micros() as u64;
        let more = Duration::from_micros((z ^ (z >> 31)) % micros.max(1));
        self.election_at = now + self.config.election + more;
    }

    pub(super) fn tick(&mut self, now: Instant) {
        if now < self.election_at {
            return;
        }
        self.wait_for_leader(now);
        if !matches!(self.role, Role::Leader(_)) {
            self.leader = None;
            self.write_term(self.stored.term + 1, Some(self.config.id));
            self.role = Role::Candidate {
                votes: [self.config.id].into(),
                refusals: BTreeSet::new(),
            };
            self.lead_if_elected();
        }
    }

    fn record(&mut self, record: Record) {
        self.stored.apply(&record);
        self.records.push(record);
    }

    fn write_term(&mut self, term: u64, vote: Option<usize>) {
        self.record(Record::Term { term, vote });
    }

    fn write_log(&mut self, after: u64, entries: &[Entry]) {
        let entries = entries.to_vec();
        self.record(Record::Log { after, entries });
    }

    /// Returns the number of records so far.
    pub(super) fn recorded(&self) -> u64 {
        self.recorded + self.records.len() as u64
    }

    /// Whether the first `count` records are on the disk.
    pub(super) fn is_durable(&self, count: u64) -> bool {
        self.durable >= count
    }

    /// Takes the records that are to be written.
    pub(super) fn take_records(&mut self) -> Vec<Record> {
        self.recorded = self.recorded();
        std::mem::take(&mut self.records)
    }

    /// All records that were taken are on the disk.
    pub(super) fn note_durable(&mut self) {
        self.durable = self.recorded;
    }

    /// Another node has a later term: this node becomes a follower, from any role.
    fn follow_if_later(&mut self, term: u64) {
        if term > self.stored.term {
            self.write_term(term, None);
            self.role = Role::Follower;
            self.leader = None;
        }
    }

    /// Answers a request of another node.
    pub(super) fn answer(&mut self, request: Request, now: Instant) -> Response {
        match request {
            Request::Vote {
                term,
                candidate,
                last,
            } => self.vote(term, candidate, last, now),
            Request::Append { term, leader, .. } if term >= self.stored.term => {
                self.follow_if_later(term);
                self.role = Role::Follower;
                self.leader = Some(leader);
                self.wait_for_leader(now);
                self.append(request)
            }
            // A leader of an earlier term.
            Request::Append { .. } => self.appended(false, 0),
            Request::Write(_) | Request::Read { .. } => Response::NotLeader(self.leader),
        }
    }

    /// Grants one vote per term, to a candidate that has all committed entries (5.2, 5.4.1).
    fn vote(&mut self, term: u64, candidate: usize, last: Position, now: Instant) -> Response {
        self.follow_if_later(term);
        let ours = self.stored.last();
        let is_granted = term == self.stored.term
            && self.stored.vote.is_none_or(|it| it == candidate)
            && (last.term, last.index) >= (ours.term, ours.index);
        if is_granted {
            self.write_term(term, Some(candidate));
            self.wait_for_leader(now);
        }
        Response::Voted {
            term: self.stored.term,
            is_granted,
        }
    }

    fn appended(&self, is_well: bool, index: u64) -> Response {
        Response::Appended {
            term: self.stored.term,
            is_not: !is_well,
            index,
        }
    }

    /// Makes the log equal to the leader's, as far as the message goes (5.3).
    fn append(&mut self, request: Request) -> Response {
        let Request::Append {
            before,
            entries,
            commit,
            ..
        } = request
        else {
            unreachable!("it is called with this one");
        };
        if !self.stored.has(before) {
            let last = self.stored.last().index;
            return self.appended(false, last.min(before.index.saturating_sub(1)));
        }
        let matched = before.index + entries.len() as u64;
        // Existing entries stay: the message may be an old one, and more may have come since.
        let places = (before.index + 1..).zip(&entries);
        let mut new = places.skip_while(|(index, entry)| match self.stored.at(*index) {
            Some(ours) => ours.term == entry.term || self.has(Bug::KeptConflict),
            None => false,
        });
        if let Some((index, _)) = new.next() {
            let known = (index - 1 - before.index) as usize;
            self.write_log(index - 1, &entries[known..]);
        }
        self.commit_up_to(commit.min(matched));
        self.appended(true, matched)
    }

    fn commit_up_to(&mut self, index: u64) {
        self.commit = self.commit.max(index);
        let before = self.applied;
        while self.applied < self.commit {
            let Some(entry) = self.stored.at(self.applied + 1) else {
                break;
            };
            if let Some(write) = &entry.write {
                let last = self.table.last(write.client).map_or(0, |it| it.0);
                if write.number > last || self.config.bug == Some(Bug::AppliedTwice) {
                    self.table.apply(write);
                }
            }
            self.applied += 1;
        }
        if self.applied > before {
            self.record(Record::Commit(self.applied));
        }
    }

    fn lead_if_elected(&mut self) {
        let Role::Candidate { votes, .. } = &self.role else {
            return;
        };
        if !self.is_majority(votes.len()) {
            return;
        }
        let last = self.stored.last().index;
        let other = Follower {
            next: last + 1,
            matched: 0,
            round: 0,
        };
        self.role = Role::Leader(Leader {
            others: vec![other; self.config.nodes.len()],
            first: last + 1,
            round: 0,
        });
        self.leader = Some(self.config.id);
        self.record(Record::Leads);
        // When it is committed, everything before is committed too (5.4.2, 8).
        self.append_own(None);
    }

    fn append_own(&mut self, write: Option<Write>) {
        let term = self.stored.term;
        let last = self.stored.last().index;
        self.write_log(last, &[Entry { term, write }]);
        if self.has(Bug::EarlyAnswer) {
            self.commit_up_to(last + 1);
        }
        self.commit_what_most_have();
    }

    /// Commits the entries that a majority has, if the last of them is of this term (5.4.2).
    fn commit_what_most_have(&mut self) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        let last = self.stored.last().index;
        let others = leader.others.iter().enumerate();
        let mut matched: Vec<u64> = others
            .map(|(id, it)| {
                if id == self.config.id {
                    last
                } else {
                    it.matched
                }
            })
            .collect();
        matched.sort_unstable();
        let most = matched[(matched.len() - 1) / 2];
        let is_ours = self.stored.at(most).map(|it| it.term) == Some(self.stored.term);
        if is_ours || self.has(Bug::CountedEarlierTerm) {
            self.commit_up_to(most);
        }
    }

    /// Returns whether there is a message for another node.
    pub(super) fn news(&self, other: usize) -> News {
        match &self.role {
            Role::Follower => News::None,
            Role::Candidate { votes, refusals } => {
                if votes.contains(&other) || refusals.contains(&other) {
                    News::None
                } else {
                    News::Now
                }
            }
            Role::Leader(leader) => {
                let known = &leader.others[other];
                if known.next <= self.stored.last().index || known.round < leader.round {
                    News::Now
                } else {
                    News::Heartbeat
                }
            }
        }
    }

    /// Returns the request to send to another node now.
    pub(super) fn request(&self, other: usize) -> Option<Request> {
        match &self.role {
            Role::Follower => None,
            Role::Candidate { .. } => Some(Request::Vote {
                term: self.stored.term,
                candidate: self.config.id,
                last: self.stored.last(),
            }),
            Role::Leader(leader) => {
                let index = leader.others[other].next - 1;
                let term = self.stored.at(index).map_or(0, |it| it.term);
                Some(Request::Append {
                    term: self.stored.term,
                    leader: self.config.id,
                    before: Position { index, term },
                    entries: self.stored.after(index, self.config.batch),
                    commit: self.commit,
                    round: leader.round,
                })
            }
        }
    }

    /// Handles another node's response to a request.
    pub(super) fn answered(&mut self, other: usize, request: &Request, response: Response) {
        match (request, response) {
            (Request::Vote { term: asked, .. }, Response::Voted { term, is_granted }) => {
                self.follow_if_later(term);
                let is_now = *asked == self.stored.term;
                if let (Role::Candidate { votes, refusals }, true) = (&mut self.role, is_now) {
                    let answers = if is_granted { votes } else { refusals };
                    answers.insert(other);
                    self.lead_if_elected();
                }
            }
            (
                Request::Append {
                    term: asked, round, ..
                },
                Response::Appended {
                    term,
                    is_not,
                    index,
                },
            ) => {
                self.follow_if_later(term);
                let is_now = *asked == self.stored.term;
                if let (Role::Leader(leader), true) = (&mut self.role, is_now) {
                    let known = &mut leader.others[other];
                    known.round = known.round.max(*round);
                    if is_not {
                        known.next = (index + 1).max(known.matched + 1);
                    } else {
                        known.matched = known.matched.max(index);
                        known.next = known.matched + 1;
                        self.commit_what_most_have();
                    }
                }
            }
            _ => {} // It does not understand the question.
        }
    }

    fn leads(&self, term: u64) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) if self.stored.term == term => Some(leader),
            _ => None,
        }
    }

    fn not_leader(&self) -> Response {
        let leader = self.leader.filter(|it| *it != self.config.id);
        Response::NotLeader(leader)
    }

    /// Handles a client's write. Returns the term in which it is under way, or the answer.
    pub(super) fn begin_write(&mut self, write: Write) -> Result<u64, Response> {
        match self.table.last(write.client) {
            Some((number, value)) if number == write.number && !self.has(Bug::AppliedTwice) => {
                return Err(Response::Value(value));
            }
            // It has been answered, and its client has moved on.
            Some((number, _)) if number > write.number => return Err(self.not_leader()),
            _ => {}
        }
        if !matches!(self.role, Role::Leader(_)) {
            return Err(self.not_leader());
        }
        self.append_own(Some(write));
        Ok(self.stored.term)
    }

    /// Returns the answer to a write that started in a term; `None` if it is not known yet.
    pub(super) fn end_write(&self, write: &Write, term: u64) -> Option<Response> {
        match self.table.last(write.client) {
            Some((number, value)) if number == write.number => Some(Response::Value(value)),
            _ if self.leads(term).is_none() => Some(self.not_leader()),
            _ => None,
        }
    }

    /// Handles a client's read. The answer is what is committed now, or later (8).
    pub(super) fn begin_read(&mut self) -> Result<Read, Response> {
        let commit = self.commit;
        match &mut self.role {
            Role::Leader(leader) => {
                leader.round += 1;
                Ok(Read {
                    term: self.stored.term,
                    round: leader.round,
                    // Before its own first entry is committed, the leader does not know the commit
                    // index.
                    index: commit.max(leader.first),
                })
            }
            _ => Err(self.not_leader()),
        }
    }

    /// Returns the answer to a read; `None` if it is not known yet.
    pub(super) fn end_read(&self, read: Read, key: u64) -> Option<Response> {
        let Some(leader) = self.leads(read.term) else {
            return Some(self.not_leader());
        };
        let others = leader.others.iter().enumerate();
        let confirmed = others.filter(|(id, it)| *id == self.config.id || it.round >= read.round);
        let is_sure = self.is_majority(confirmed.count()) || self.has(Bug::UnconfirmedRead);
        (is_sure && self.applied >= read.index).then(|| Response::Value(self.table.value(key)))
    }
}

//! The messages between nodes and clients. A connection carries requests, each with its response.
//! Everything is a 64-bit number, little-endian; a frame is a count of numbers, and these. Numbers
//! without a meaning are an error of the kind `InvalidData`, which ends the connection.

use std::io::{Error, ErrorKind, Result};

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::TcpStream;

/// The maximum length of a frame, in numbers: half a megabyte, which bounds the memory of a
/// receiver.
pub(super) const LONGEST: u64 = 1 << 16;

/// A place in the log, with the term of the entry there. The first entry has the index 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Position {
    pub(super) index: u64,
    pub(super) term: u64,
}

/// A change of a key's value, which is zero at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Put { key: u64, value: u64 },
    Add { key: u64, value: u64 },
}

/// A change that a client requests, with its sequence number among this client's writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    pub client: u64,
    pub number: u64,
    pub change: Change,
}

/// An entry of the log. A new leader begins with one that changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) term: u64,
    pub(super) write: Option<Write>,
}

/// A request. The first two are sent between nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    Vote {
        term: u64,
        candidate: usize,
        last: Position,
    },
    Append {
        term: u64,
        leader: usize,
        /// The place before the first of `entries`.
        before: Position,
        entries: Vec<Entry>,
        commit: u64,
        /// The number of the last read that waits for the leader to be confirmed.
        round: u64,
    },
    Write(Write),
    Read {
        key: u64,
    },
}

/// A change of a node's state, for its disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    Term {
        term: u64,
        vote: Option<usize>,
    },
    /// The entries after an index are these.
    Log {
        after: u64,
        entries: Vec<Entry>,
    },
    /// For those who look at the disk, as the next one: it is in no file.
    Commit(u64),
    /// The node leads in its term.
    Leads,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Response {
    Voted {
        term: u64,
        is_granted: bool,
    },
    /// The log matches the leader's up to `index`; if `is_not`, it may match up to there.
    Appended {
        term: u64,
        is_not: bool,
        index: u64,
    },
    /// The value that a key has now.
    Value(u64),
    /// This node does not lead; the index of the leader, if known.
    NotLeader(Option<usize>),
}

fn invalid() -> Error {
    Error::new(ErrorKind::InvalidData, "no message of the replicated log")
}

/// The numbers of a frame, in order.
struct Numbers(std::vec::IntoIter<u64>);

impl Numbers {
    fn next(&mut self) -> Result<u64> {
        self.0.next().ok_or_else(invalid)
    }

    fn flag(&mut self) -> Result<bool> {
        match self.next()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(invalid()),
        }
    }

    fn small(&mut self) -> Result<usize> {
        usize::try_from(self.next()?).map_err(|_| invalid())
    }

    fn position(&mut self) -> Result<Position> {
        Ok(Position {
            index: self.next()?,
            term: self.next()?,
        })
    }

    fn write(&mut self) -> Result<Write> {
        let (client, number) = (self.next()?, self.next()?);
        let (is_put, key, value) = (self.flag()?, self.next()?, self.next()?);
        let change = if is_put {
            Change::Put { key, value }
        } else {
            Change::Add { key, value }
        };
        Ok(Write {
            client,
            number,
            change,
        })
    }

    fn entry(&mut self) -> Result<Entry> {
        let (term, is_write) = (self.next()?, self.flag()?);
        let write = if is_write { Some(self.write()?) } else { None };
        Ok(Entry { term, write })
    }

    fn entries(&mut self) -> Result<Vec<Entry>> {
        let count = self.next()?;
        (0..count).map(|_| self.entry()).collect()
    }

    fn end(mut self) -> Result<()> {
        match self.0.next() {
            None => Ok(()),
            Some(_) => Err(invalid()),
        }
    }
}

fn push_write(numbers: &mut Vec<u64>, write: &Write) {
    let (is_put, key, value) = match write.change {
        Change::Put { key, value } => (1, key, value),
        Change::Add { key, value } => (0, key, value),
    };
    numbers.extend([write.client, write.number, is_put, key, value]);
}

fn push_entries(numbers: &mut Vec<u64>, entries: &[Entry]) {
    numbers.push(entries.len() as u64);
    for entry in entries {
        numbers.extend([entry.term, entry.write.is_some().into()]);
        if let Some(write) = &entry.write {
            push_write(numbers, write);
        }
    }
}

/// A type that a frame can hold.
pub(super) trait Frame: Sized {
    fn numbers(&self) -> Vec<u64>;
    fn parse(numbers: Vec<u64>) -> Result<Self>;
}

impl Frame for Request {
    fn numbers(&self) -> Vec<u64> {
        match self {
            Request::Vote {
                term,
                candidate,
                last,
            } => vec![0, *term, *candidate as u64, last.index, last.term],
            Request::Append {
                term,
                leader,
                before,
                entries,
                commit,
                round,
            } => {
                let leader = *leader as u64;
                let mut all = vec![1, *term, leader, before.index, before.term, *commit, *round];
                push_entries(&mut all, entries);
                all
            }
            Request::Write(write) => {
                let mut all = vec![2];
                push_write(&mut all, write);
                all
            }
            Request::Read { key } => vec![3, *key],
        }
    }

    fn parse(numbers: Vec<u64>) -> Result<Request> {
        let mut numbers = Numbers(numbers.into_iter());
        let request = match numbers.next()? {
            0 => Request::Vote {
                term: numbers.next()?,
                candidate: numbers.small()?,
                last: numbers.position()?,
            },
            1 => {
                let (term, leader) = (numbers.next()?, numbers.small()?);
                let before = numbers.position()?;
                let (commit, round) = (numbers.next()?, numbers.next()?);
                Request::Append {
                    term,
                    leader,
                    before,
                    entries: numbers.entries()?,
                    commit,
                    round,
                }
            }
            2 => Request::Write(numbers.write()?),
            3 => Request::Read {
                key: numbers.next()?,
            },
            _ => return Err(invalid()),
        };
        numbers.end()?;
        Ok(request)
    }
}

impl Frame for Response {
    fn numbers(&self) -> Vec<u64> {
        match *self {
            Response::Voted { term, is_granted } => vec![0, term, is_granted.into()],
            Response::Appended {
                term,
                is_not,
                index,
            } => vec![1, term, is_not.into(), index],
            Response::Value(value) => vec![2, value],
            Response::NotLeader(None) => vec![3],
            Response::NotLeader(Some(leader)) => vec![4, leader as u64],
        }
    }

    fn parse(numbers: Vec<u64>) -> Result<Response> {
        let mut numbers = Numbers(numbers.into_iter());
        let response = match numbers.next()? {
            0 => Response::Voted {
                term: numbers.next()?,
                is_granted: numbers.flag()?,
            },
            1 => Response::Appended {
                term: numbers.next()?,
                is_not: numbers.flag()?,
                index: numbers.next()?,
            },
            2 => Response::Value(numbers.next()?),
            3 => Response::NotLeader(None),
            4 => Response::NotLeader(Some(numbers.small()?)),
            _ => return Err(invalid()),
        };
        numbers.end()?;
        Ok(response)
    }
}

impl Frame for Record {
    fn numbers(&self) -> Vec<u64> {
        match self {
            Record::Term { term, vote } => {
                vec![0, *term, vote.map_or(0, |vote| vote as u64 + 1)]
            }
            Record::Log { after, entries } => {
                let mut all = vec![1, *after];
                push_entries(&mut all, entries);
                all
            }
            Record::Commit(commit) => vec![2, *commit],
            Record::Leads => vec![3],
        }
    }

    fn parse(numbers: Vec<u64>) -> Result<Record> {
        let mut numbers = Numbers(numbers.into_iter());
        let record = match numbers.next()? {
            0 => Record::Term {
                term: numbers.next()?,
                vote: numbers.small()?.checked_sub(1),
            },
            1 => Record::Log {
                after: numbers.next()?,
                entries: numbers.entries()?,
            },
            2 => Record::Commit(numbers.next()?),
            3 => Record::Leads,
            _ => return Err(invalid()),
        };
        numbers.end()?;
        Ok(record)
    }
}

pub(super) async fn send(stream: &mut TcpStream, frame: &impl Frame) -> Result<()> {
    let numbers = frame.numbers();
    let count = numbers.len() as u64;
    let all = std::iter::once(count).chain(numbers);
    let bytes: Vec<u8> = all.flat_map(u64::to_le_bytes).collect();
    stream.write_all(&bytes).await
}

/// Receives the next frame; `None` if the connection ends before it.
pub(super) async fn receive<F: Frame>(stream: &mut TcpStream) -> Result<Option<F>> {
    let mut count = [0; 8];
    if stream.read(&mut count[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut count[1..]).await?;
    let count = u64::from_le_bytes(count);
    if count > LONGEST {
        return Err(invalid());
    }
    let mut bytes = vec![0; 8 * count as usize];
    stream.read_exact(&mut bytes).await?;
    let numbers = bytes.chunks_exact(8);
    let numbers = numbers.map(|it| u64::from_le_bytes(it.try_into().expect("eight bytes")));
    F::parse(numbers.collect()).map(Some)
}

/// Sends a request on a connection, which is made if there is none, and returns the response. The
/// connection is kept only on success: a late answer would belong to another request.
pub(super) async fn ask(
    kept: &mut Option<TcpStream>,
    address: &str,
    request: &Request,
) -> Result<Response> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    send(&mut stream, request).await?;
    let response = receive(&mut stream).await?;
    *kept = Some(stream);
    response.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Write = Write {
        client: 7,
        number: 3,
        change: Change::Add { key: 1, value: 2 },
    };

    fn requests() -> [Request; 4] {
        let last = Position { index: 5, term: 2 };
        let write = Some(WRITE);
        [
            Request::Vote {
                term: 3,
                candidate: 1,
                last,
            },
            Request::Append {
                term: 3,
                leader: 2,
                before: last,
                entries: vec![
                    Entry {
                        term: 3,
                        write: None,
                    },
                    Entry { term: 3, write },
                ],
                commit: 4,
                round: 9,
            },
            Request::Write(WRITE),
            Request::Read { key: 8 },
        ]
    }

    #[test]
    fn message_received_as_sent() {
        for request in requests() {
            let numbers = request.numbers();
            assert_eq!(Request::parse(numbers.clone()).unwrap(), request);
            for length in 0..numbers.len() {
                Request::parse(numbers[..length].to_vec()).expect_err("it is cut");
            }
            Request::parse([numbers, vec![0]].concat()).expect_err("it is too long");
        }
        for response in [
            Response::Voted {
                term: 2,
                is_granted: true,
            },
            Response::Appended {
                term: 2,
                is_not: true,
                index: 3,
            },
            Response::Value(4),
            Response::NotLeader(None),
            Response::NotLeader(Some(1)),
        ] {
            assert_eq!(Response::parse(response.numbers()).unwrap(), response);
        }
    }

    #[test]
    fn a_number_that_means_nothing_is_an_error() {
        Request::parse(vec![4]).expect_err("there is no such request");
        Response::parse(vec![0, 1, 2]).expect_err("a flag is 0 or 1");
    }
}

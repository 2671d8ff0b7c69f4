//! The state of a node that survives a crash: a file to which records are appended, in the node's
//! folder.
//!
//! A record is a count, that many numbers, and a checksum over both and over the record's index.
//! The last ones may be there in part, or not at all, after the power has failed: what is behind
//! the first record that is not whole was not promised. (Sectors that were synced do not go bad
//! here.)
//!
//! Each start writes the whole records to a new file, which replaces the other one by its name. So
//! nothing is behind them, a thread that still writes for the node before writes elsewhere, and
//! what a failed sync has left in the system's cache is written again, and synced (fsync(2)).

use std::io::{ErrorKind, Result};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polder::event::Event;
use polder::fs::{self, File};
use polder::io::AsyncWriteExt;

use super::message::{Entry, Frame, LONGEST, Position, Record};

/// The folder of a node, and what is known to be there. Clones share it, so that a test can look at
/// it while the node runs.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// What is on the disk.
    stored: Mutex<Stored>,
    written: Event,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) term: u64,
    /// The node's vote in this term.
    pub(super) vote: Option<usize>,
    pub(super) log: Vec<Entry>,
    /// The number of entries that the node has known to be committed. Informational, and in no
    /// file.
    commit: u64,
    /// The last term in which the node has led. In no file, either.
    led: u64,
    /// How often the end of the file was found damaged. In no file, either.
    pub(super) damaged: usize,
}

impl Stored {
    pub(super) fn last(&self) -> Position {
        let index = self.log.len() as u64;
        let term = self.log.last().map_or(0, |entry| entry.term);
        Position { index, term }
    }

    /// Returns the entry at an index, if there is one.
    pub(super) fn at(&self, index: u64) -> Option<&Entry> {
        let before = usize::try_from(index.checked_sub(1)?).ok()?;
        self.log.get(before)
    }

    /// Returns whether the log has this place: then everything before is the same, too.
    pub(super) fn has(&self, place: Position) -> bool {
        match place.index {
            0 => place.term == 0,
            index => self.at(index).is_some_and(|entry| entry.term == place.term),
        }
    }

    /// Returns the entries after an index, at most `most`.
    pub(super) fn after(&self, index: u64, most: usize) -> Vec<Entry> {
        let after = self.log.iter().skip(index as usize);
        after.take(most).copied().collect()
    }

    pub(super) fn apply(&mut self, record: &Record) {
        match record {
            Record::Term { term, vote } => (self.term, self.vote) = (*term, *vote),
            Record::Log { after, entries } => {
                self.log.truncate(*after as usize);
                self.log.extend_from_slice(entries);
            }
            Record::Commit(commit) => self.commit = self.commit.max(*commit),
            Record::Leads => self.led = self.term,
        }
    }
}

/// The file of a node that runs.
pub(super) struct Log {
    disk: Disk,
    file: File,
    /// The number of records in it.
    records: u64,
    /// Whether it is synced, which only a bug leaves out.
    syncs: bool,
}

impl Disk {
    /// Returns the disk of the node with this folder, which its start creates.
    pub fn new(folder: impl Into<PathBuf>) -> Disk {
        Disk(Arc::new(Inner {
            folder: folder.into(),
            stored: Mutex::default(),
            written: Event::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node's term, and its vote in it. (A leader has voted for itself.)
    pub fn vote(&self) -> (u64, Option<usize>) {
        let stored = self.lock();
        (stored.term, stored.vote)
    }

    /// Returns the number of entries that the node has known to be committed, since its first
    /// start.
    pub fn committed(&self) -> u64 {
        self.lock().commit
    }

    /// Returns how often the end of the node's file was found damaged, as a crash leaves it.
    pub fn damaged(&self) -> usize {
        self.lock().damaged
    }

    /// Returns the term of the entry at an index. The first index is 1.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        self.lock().at(index).map(|entry| entry.term)
    }

    /// Returns the last term in which the node has led; zero if it never has.
    pub fn led(&self) -> u64 {
        self.lock().led
    }

    /// Waits until something is written. Supports one waiter at a time.
    pub async fn written(&self) {
        self.0.written.wait().await;
    }

    pub(super) fn read(&self) -> Stored {
        self.lock().clone()
    }

    /// Reads what is in the node's file, and begins a new one with it.
    pub(super) async fn open(&self, syncs: bool) -> Result<Log> {
        fs::create_dir_all(&self.0.folder).await?;
        let folder = fs::canonicalize(&self.0.folder).await?;
        let (path, new) = (folder.join("log"), folder.join("log.new"));
        let bytes = match fs::read(&path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut stored = Stored::default();
        let (mut records, mut rest) = (0, &bytes[..]);
        while let Some((record, behind)) = parse(records, rest) {
            stored.apply(&record);
            (records, rest) = (records + 1, behind);
        }
        let mut file = File::create(&new).await?;
        file.write_all(&bytes[..bytes.len() - rest.len()]).await?;
        file.sync_all().await?;
        fs::rename(&new, &path).await?;
        // Their names, up to the root: any of these directories may be new.
        if cfg!(unix) {
            for directory in folder.ancestors() {
                File::open(directory).await?.sync_all().await?;
            }
        }
        let mut known = self.lock();
        (stored.commit, stored.led) = (known.commit, known.led);
        stored.damaged = known.damaged + usize::from(!rest.is_empty());
        *known = stored;
        drop(known);
        Ok(Log {
            disk: self.clone(),
            file,
            records,
            syncs,
        })
    }
}

impl Log {
    /// Appends records. When it returns they are on the disk.
    ///
    /// If it fails, the node must end: of what was written nothing is known (fsync(2)).
    pub(super) async fn append(&mut self, records: &[Record]) -> Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            if !matches!(record, Record::Commit(_) | Record::Leads) {
                bytes.extend(encode(self.records, record));
                self.records += 1;
            }
        }
        if !bytes.is_empty() {
            self.file.write_all(&bytes).await?;
            if self.syncs {
                self.file.sync_data().await?;
            }
        }
        let mut stored = self.disk.lock();
        records.iter().for_each(|record| stored.apply(record));
        drop(stored);
        if !bytes.is_empty() {
            self.disk.0.written.set();
        }
        Ok(())
    }
}

/// Returns a checksum of the numbers and their record's index.
fn check(place: u64, numbers: &[u64]) -> u64 {
    let start = 0x9e37_79b9_7f4a_7c15 ^ place.wrapping_mul(0x2545_f491_4f6c_dd1d);
    numbers.iter().fold(start, |hash, number| {
        (hash ^ number)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(29)
    })
}

fn encode(place: u64, record: &Record) -> impl Iterator<Item = u8> + use<> {
    let mut numbers = record.numbers();
    numbers.insert(0, numbers.len() as u64);
    numbers.push(check(place, &numbers));
    numbers.into_iter().flat_map(u64::to_le_bytes)
}

/// Returns the first record, and the bytes behind it; `None` if it is not whole.
fn parse(place: u64, bytes: &[u8]) -> Option<(Record, &[u8])> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let count = number(bytes.get(..8)?);
    if count > LONGEST {
        return None;
    }
    let end = 8 * (count as usize + 2);
    let numbers: Vec<u64> = bytes.get(..end)?.chunks_exact(8).map(number).collect();
    let (checked, found) = numbers.split_at(numbers.len() - 1);
    if found != [check(place, checked)] {
        return None;
    }
    let record = Record::parse(checked[1..].to_vec()).ok()?;
    Some((record, &bytes[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is read where it was written and only as a whole.
    #[test]
    fn record_read_whole_where_written() {
        let entry = Entry {
            term: 3,
            write: None,
        };
        let records = [
            Record::Term {
                term: 3,
                vote: Some(1),
            },
            Record::Term {
                term: 4,
                vote: None,
            },
            Record::Log {
                after: 7,
                entries: vec![entry; 2],
            },
        ];
        for record in records {
            let bytes: Vec<u8> = encode(5, &record).collect();
            assert_eq!(parse(5, &bytes), Some((record, &[][..])));
            assert_eq!(parse(6, &bytes), None, "a record of another place");
            for length in 0..bytes.len() {
                assert_eq!(parse(5, &bytes[..length]), None);
                let mut torn = bytes.clone();
                torn[length] ^= 1;
                assert_eq!(parse(5, &torn), None, "byte {length} is another one");
            }
        }
    }
}

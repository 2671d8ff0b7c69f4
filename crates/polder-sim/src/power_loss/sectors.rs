//! [`Data`]: the contents of a file, and the part of them that a power failure leaves.
//!
//! Reads see what was written last: that is the page cache. In addition there are the contents that
//! were synced, and the changes since, in order: the states of each sector, of which any may
//! survive, and the lengths. A truncation is part of the length's history alone: if it survives, it
//! removes its bytes from each sector that survives in an older state; and later writes to that
//! sector do not survive without it.
//!
//! A hole takes no sector, so files may be as long as an `i64` allows.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::calls::SyncEnd;
use super::leaves::Leaves;

/// The unit of a disk's writes, in bytes: each unit is written as a whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// The number of states kept of a sector. Beyond it the last one is replaced, unless a sync that
/// has begun needs it. So a sector that is overwritten for ever does not take memory for ever.
const MAX_STATES: usize = 4;

/// The number of growing lengths kept without a sync. Beyond it the last one is replaced.
const MAX_LENGTHS: usize = 64;

type Sector = Rc<[u8; SECTOR]>;

#[derive(Clone, PartialEq, Debug, Default)]
struct Contents {
    len: u64,
    /// The sectors by index; holes have none.
    sectors: BTreeMap<u64, Sector>,
}

impl Contents {
    fn read(&self, at: u64, buffer: &mut [u8]) -> usize {
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = left.min(buffer.len());
        let mut done = 0;
        while done < len {
            let (index, within) = place(at + done as u64);
            let part = &mut buffer[done..len.min(done + SECTOR - within)];
            match self.sectors.get(&index) {
                Some(sector) => part.copy_from_slice(&sector[within..within + part.len()]),
                None => part.fill(0),
            }
            done += part.len();
        }
        len
    }

    /// Removes the bytes beyond a length.
    fn cut(&mut self, len: u64) {
        drop(self.sectors.split_off(&len.div_ceil(SECTOR as u64)));
        self.cut_sector(place(len).0, len);
    }

    /// Removes the bytes of one sector beyond a length.
    fn cut_sector(&mut self, index: u64, len: u64) {
        let left = len.saturating_sub(index * SECTOR as u64);
        if left == 0 {
            self.sectors.remove(&index);
        } else if let (Some(sector), true) = (self.sectors.get_mut(&index), left < SECTOR as u64) {
            Rc::make_mut(sector)[left as usize..].fill(0);
        }
    }
}

/// Returns the sector of this byte, and the byte's offset in it.
fn place(at: u64) -> (u64, usize) {
    (at / SECTOR as u64, (at % SECTOR as u64) as usize)
}

/// The state of a sector after a write.
#[derive(Clone, Debug)]
struct Version {
    /// The number of the change.
    number: u64,
    sector: Sector,
}

/// The length after a change.
#[derive(Clone, Copy, Debug)]
struct Length {
    number: u64,
    len: u64,
    /// Whether the length was greater before.
    is_cut: bool,
}

/// Returns the shortest length since a change. The bytes that a sector had beyond it then are cut
/// off.
fn shortest_since(lengths: &[Length], number: u64) -> u64 {
    let since = lengths.iter().filter(|length| length.number > number);
    since.map(|length| length.len).min().unwrap_or(u64::MAX)
}

/// The part of a file that a power failure leaves.
pub(crate) struct Rest {
    contents: Contents,
    /// The number of sectors that are not as they were written last.
    pub(crate) sectors: u64,
    /// Whether the length is not the last one.
    pub(crate) is_len_lost: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    now: Contents,
    synced: Contents,
    /// The lengths since the last sync, in order.
    lengths: Vec<Length>,
    /// The states of sectors since the last sync, in order for each sector.
    versions: BTreeMap<u64, Vec<Version>>,
    /// The number of the last change when the last sync began.
    marked: u64,
    /// The number of failed syncs.
    pub(crate) failures: u64,
}

impl Data {
    pub(crate) fn len(&self) -> u64 {
        self.now.len
    }

    /// Returns the number of sectors that it takes.
    pub(crate) fn sectors(&self) -> u64 {
        self.now.sectors.len() as u64
    }

    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> usize {
        self.now.read(at, buffer)
    }

    /// Writes, as change `number`, with at most `room` additional sectors. Returns the number of
    /// bytes written.
    pub(crate) fn write(&mut self, number: u64, at: u64, bytes: &[u8], mut room: u64) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let (index, within) = place(at + done as u64);
            if !self.now.sectors.contains_key(&index) {
                if room == 0 {
                    break;
                }
                room -= 1;
            }
            let sector = self.now.sectors.entry(index);
            let sector = sector.or_insert_with(|| Rc::new([0; SECTOR]));
            let len = (bytes.len() - done).min(SECTOR - within);
            Rc::make_mut(sector)[within..within + len].copy_from_slice(&bytes[done..done + len]);
            let sector = sector.clone();
            self.push(index, number, sector);
            done += len;
        }
        let end = at + done as u64;
        if done > 0 && end > self.now.len {
            self.push_len(number, end);
        }
        done
    }

    /// Truncates the file, or extends it by a hole.
    pub(crate) fn set_len(&mut self, number: u64, len: u64) {
        if len != self.now.len {
            self.now.cut(len);
            self.push_len(number, len);
        }
    }

    fn push_len(&mut self, number: u64, len: u64) {
        let is_cut = len < self.now.len;
        self.now.len = len;
        let length = Length {
            number,
            len,
            is_cut,
        };
        let is_full = self.lengths.len() >= MAX_LENGTHS;
        match self.lengths.last_mut() {
            // The sync under way covers neither.
            Some(last) if is_full && last.number > self.marked && !last.is_cut && !is_cut => {
                *last = length;
            }
            _ => self.lengths.push(length),
        }
    }

    fn push(&mut self, index: u64, number: u64, sector: Sector) {
        let version = Version { number, sector };
        let versions = self.versions.entry(index).or_default();
        let is_full = versions.len() >= MAX_STATES;
        match versions.last_mut() {
            Some(last) if is_full && last.number > self.marked => *last = version,
            _ => versions.push(version),
        }
    }

    /// Begins a sync. `number` is that of the last change.
    pub(crate) fn begin_sync(&mut self, number: u64) {
        self.marked = number;
    }

    /// Ends a sync of all changes until `last`.
    pub(crate) fn end_sync(&mut self, last: u64, end: SyncEnd) {
        match end {
            SyncEnd::Done => self.write_back(last),
            SyncEnd::Failed => self.fail_sync(last),
            SyncEnd::LosesWrite(pick) => {
                self.lose_write(last, pick);
                self.write_back(last);
            }
            SyncEnd::Misdirects(pick) => {
                let lost = self.lose_write(last, pick);
                self.write_back(last);
                if let Some(lost) = lost {
                    self.misplace(lost, pick);
                }
            }
        }
    }

    /// Puts all changes until `last` on the disk.
    fn write_back(&mut self, last: u64) {
        let count = self.lengths.partition_point(|length| length.number <= last);
        let lengths: Vec<Length> = self.lengths.drain(..count).collect();
        let synced = &mut self.synced;
        synced.cut(shortest_since(&lengths, 0));
        self.versions.retain(|index, versions| {
            let count = versions.partition_point(|version| version.number <= last);
            if let Some(version) = versions.drain(..count).next_back() {
                synced.sectors.insert(*index, version.sector);
                synced.cut_sector(*index, shortest_since(&lengths, version.number));
            }
            !versions.is_empty()
        });
        synced.len = lengths.last().map_or(synced.len, |last| last.len);
    }

    /// Fails a sync: the sectors that it should have written count as written. (Lengths are in the
    /// journal, which still has them.)
    fn fail_sync(&mut self, last: u64) {
        self.failures += 1;
        self.versions.retain(|_, versions| {
            versions.retain(|version| version.number > last);
            !versions.is_empty()
        });
    }

    /// Keeps a sector that a sync should write from the disk, where the sector stays as it was.
    /// Returns its index and its bytes.
    fn lose_write(&mut self, last: u64, pick: u64) -> Option<(u64, Sector)> {
        let is_due = |versions: &[Version]| versions[0].number <= last;
        let versions = self.versions.iter_mut();
        let mut due: Vec<_> = versions.filter(|(_, versions)| is_due(versions)).collect();
        let nth = pick.checked_rem(due.len() as u64)?;
        let (index, versions) = due.swap_remove(nth as usize);
        let (index, count) = (
            *index,
            versions.partition_point(|version| version.number <= last),
        );
        let lost = versions.drain(..count).next_back()?;
        if versions.is_empty() {
            self.versions.remove(&index);
        }
        Some((index, lost.sector))
    }

    /// Puts the bytes of a lost write into another sector on the disk, if there is one.
    fn misplace(&mut self, (index, bytes): (u64, Sector), pick: u64) {
        let sectors = self.synced.sectors.iter_mut();
        let mut others: Vec<_> = sectors.filter(|(other, _)| **other != index).collect();
        if let Some(nth) = (pick >> 32).checked_rem(others.len() as u64) {
            *others[nth as usize].1 = bytes;
            // A sector at the end may be longer there.
            self.synced.cut(self.synced.len);
        }
    }

    /// Changes a bit in the next `len` bytes, as a disk that errs, unless these are in a sector
    /// that was not synced.
    pub(crate) fn rot(&mut self, at: u64, len: usize, pick: u64) {
        let len = self.now.len.saturating_sub(at).min(len as u64);
        let Some(offset) = pick.checked_rem(len) else {
            return;
        };
        let (index, within) = place(at + offset);
        if self.versions.contains_key(&index) {
            return;
        }
        for contents in [&mut self.now, &mut self.synced] {
            if let Some(sector) = contents.sectors.get_mut(&index) {
                Rc::make_mut(sector)[within] ^= 1 << (pick >> 61);
            }
        }
    }

    /// Returns whether a power failure would lose nothing. After a sync that has failed or lost a
    /// write, reads may see bytes that are not on the disk, until they are written again.
    pub(crate) fn is_synced(&self) -> bool {
        self.lengths.is_empty() && self.versions.is_empty() && self.now == self.synced
    }

    /// Draws what a power failure leaves of the file.
    pub(crate) fn rest(&self, draw: &mut dyn FnMut(u64) -> u64) -> Rest {
        let leaves = Leaves::draw(draw);
        let mut contents = self.synced.clone();
        let count = leaves.of(self.lengths.len(), draw);
        let (left, lost) = self.lengths.split_at(count);
        contents.cut(shortest_since(left, 0));
        let mut sectors = 0;
        for (index, versions) in &self.versions {
            // Only versions before the first lost truncation that touches the sector.
            let end = (index + 1).saturating_mul(SECTOR as u64);
            let cut = lost.iter().find(|length| length.is_cut && length.len < end);
            let cut = cut.map_or(u64::MAX, |length| length.number);
            let most = versions.partition_point(|version| version.number < cut);
            let count = leaves.of(most, draw);
            sectors += u64::from(count < versions.len());
            if let Some(version) = versions[..count].last() {
                contents.sectors.insert(*index, version.sector.clone());
                contents.cut_sector(*index, shortest_since(left, version.number));
            }
        }
        // Bytes may have arrived beyond the surviving length.
        contents.len = left.last().map_or(contents.len, |last| last.len);
        contents.cut(contents.len);
        Rest {
            contents,
            sectors,
            is_len_lost: !lost.is_empty(),
        }
    }

    /// Handles a power failure: `rest` is left, or everything if it is `None`.
    pub(crate) fn lose(&mut self, rest: Option<Rest>) {
        self.write_back(u64::MAX);
        if let Some(rest) = rest {
            self.synced = rest.contents;
        }
        self.now = self.synced.clone();
        self.marked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = u64::MAX;

    fn contents(data: &Data) -> Vec<u8> {
        let mut bytes = vec![1; data.len() as usize];
        assert_eq!(data.read(0, &mut bytes), bytes.len());
        bytes
    }

    /// Returns the possible results of some hundred power failures.
    fn rests(data: &Data) -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut all: Vec<_> = (0..400)
            .map(|_| {
                let mut left = data.clone();
                let rest = left.rest(&mut |end| random.u64(..end));
                left.lose(Some(rest));
                assert!(left.is_synced());
                contents(&left)
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// A lost write stays away until the sector is written again.
    #[test]
    fn lost_write_stays_until_rewritten() {
        let mut data = Data::default();
        data.write(1, 0, &[1; 3 * SECTOR], ROOM);
        data.write_back(1);
        data.write(2, 0, &[2; 3 * SECTOR], ROOM);
        let lost = data.lose_write(2, 1).unwrap();
        assert_eq!((lost.0, lost.1[0]), (1, 2), "the pick selects the sector");
        data.write_back(2);
        assert_eq!(contents(&data), [2; 3 * SECTOR], "reads see it");
        assert!(!data.is_synced());
        let mut misplaced = data.clone();
        let mut again = data.clone();
        again.write(3, SECTOR as u64, &[2; 1], ROOM);
        again.write_back(3);
        assert!(again.is_synced(), "it was written again");
        data.lose(None);
        let at = |data: &Data| [0, 1, 2].map(|sector| contents(data)[sector * SECTOR]);
        assert_eq!((at(&data), data.is_synced()), ([2, 1, 2], true));
        data.write(3, 0, &[3; 3 * SECTOR], ROOM);
        data.write_back(3);
        data.lose(None);
        assert_eq!(at(&data), [3, 3, 3]);
        // The place of another sector, by the upper half of the number.
        misplaced.misplace((1, Rc::new([9; SECTOR])), 1 << 32);
        misplaced.lose(None);
        assert_eq!(at(&misplaced), [2, 1, 9]);
        let mut alone = Data::default();
        assert!(alone.lose_write(9, 7).is_none());
        alone.misplace((0, Rc::new([9; SECTOR])), 0);
        assert_eq!(alone.len(), 0);
    }

    /// A bit that rots is one that was synced and stays changed.
    #[test]
    fn bit_rot_hits_synced_bytes_and_stays() {
        let mut data = Data::default();
        data.write(1, 0, &[0; 600], ROOM);
        data.rot(0, 600, 550);
        assert_eq!(contents(&data), [0; 600], "it is in memory");
        data.write_back(1);
        data.rot(100, 9_999, 450 | 3 << 61);
        data.lose(None);
        let changed: Vec<_> = contents(&data)
            .into_iter()
            .enumerate()
            .filter(|(_, byte)| *byte > 0)
            .collect();
        assert_eq!(
            changed,
            [(100 + ((450_u64 | 3 << 61) % 500) as usize, 1 << 3)]
        );
        data.rot(600, 5, 1);
        data.rot(u64::MAX, 5, 1);
    }

    /// Bytes are read as they were written and holes as zeroes.
    #[test]
    fn bytes_read_as_written_holes_as_zeroes() {
        let mut data = Data::default();
        assert_eq!(data.write(1, 500, &[7; 600], ROOM), 600);
        data.set_len(2, 2_000);
        let mut expected = vec![0; 2_000];
        expected[500..1_100].fill(7);
        assert_eq!(contents(&data), expected);
        data.set_len(3, 700);
        data.set_len(4, 1_100);
        expected.truncate(1_100);
        expected[700..].fill(0);
        assert_eq!(contents(&data), expected);
        assert_eq!(data.read(1_099, &mut [1; 9]), 1);
        assert_eq!(data.read(5_000, &mut [1; 9]), 0);
        // A hole takes no room.
        data.set_len(5, i64::MAX as u64);
        assert_eq!(data.sectors(), 2);
    }

    #[test]
    fn what_was_synced_is_left_whatever_comes_after() {
        let mut data = Data::default();
        data.write(1, 0, &[1; 1_200], ROOM);
        data.begin_sync(1);
        data.write_back(1);
        for number in 2..40 {
            data.write(number, 1_024, &[number as u8; 100], ROOM);
        }
        for rest in rests(&data) {
            assert_eq!(rest[..1_024], [1; 1_024]);
            assert_eq!(rest.len(), 1_200);
        }
    }

    #[test]
    fn a_sync_covers_what_was_written_before_it_began() {
        let mut data = Data::default();
        data.write(1, 0, b"a", ROOM);
        data.begin_sync(1);
        for number in 2..20 {
            data.write(number, 0, b"b", ROOM);
        }
        data.write_back(1);
        assert_eq!(contents(&data), b"b");
        assert_eq!(rests(&data), [b"a", b"b"]);
    }

    #[test]
    fn one_write_may_be_there_in_part_by_sectors() {
        let mut data = Data::default();
        data.write(1, 0, &[1; 1_024], ROOM);
        data.write_back(1);
        data.write(2, 0, &[2; 1_024], ROOM);
        let of = |a, b| [[a; SECTOR], [b; SECTOR]].concat();
        assert_eq!(rests(&data), [of(1, 1), of(1, 2), of(2, 1), of(2, 2)]);
    }

    /// After a crash, a length without its bytes reads as zeroes.
    #[test]
    fn grown_length_without_bytes_reads_zeroes() {
        let mut data = Data::default();
        data.write(1, 0, b"xy", ROOM);
        assert_eq!(rests(&data), [&b""[..], b"\0\0", b"xy"]);
    }

    /// Bytes behind a truncation do not return, and no earlier bytes appear in their place.
    #[test]
    fn truncated_bytes_do_not_come_back() {
        let mut data = Data::default();
        data.write(1, 0, b"old!", ROOM);
        data.write_back(1);
        data.set_len(2, 0);
        data.write(3, 0, b"new", ROOM);
        assert_eq!(rests(&data), [&b""[..], b"\0\0\0", b"new", b"old!"]);
        data.set_len(4, 1);
        let all = rests(&data);
        assert!(all.contains(&b"n".to_vec()) && !all.contains(&b"o".to_vec()));
    }

    /// After a sync that failed the next one succeeds without the bytes.
    #[test]
    fn sync_after_failed_sync_loses_bytes() {
        let mut data = Data::default();
        data.write(1, 0, b"old", ROOM);
        data.write_back(1);
        data.write(2, 0, b"new and longer", ROOM);
        data.begin_sync(2);
        data.fail_sync(2);
        data.begin_sync(2);
        data.write_back(2);
        assert_eq!(contents(&data), b"new and longer");
        assert!(!data.is_synced(), "a power failure takes it");
        assert_eq!(rests(&data), [b"old\0\0\0\0\0\0\0\0\0\0\0"]);
        // A write to the same sector writes these bytes too, as the page cache has them.
        data.write(3, 14, b"!", ROOM);
        data.write_back(3);
        assert!(data.is_synced());
        assert_eq!(rests(&data), [b"new and longer!"]);
    }

    /// A sync covers all states before it began however many came then.
    #[test]
    fn sync_covers_states_before_it_began() {
        let mut data = Data::default();
        for number in 1..20 {
            data.write(number, 0, &[number as u8], ROOM);
        }
        data.begin_sync(19);
        for number in 20..30 {
            data.write(number, 0, &[number as u8], ROOM);
        }
        data.write_back(19);
        assert_eq!(rests(&data), [[19], [29]]);
    }

    #[test]
    fn a_length_that_is_set_writes_no_bytes() {
        let mut data = Data::default();
        data.write(1, 0, b"entry", ROOM);
        data.set_len(2, 8);
        let all = rests(&data);
        assert!(all.contains(&vec![0; 8]) && all.contains(&b"entry\0\0\0".to_vec()));
        data.begin_sync(2);
        data.fail_sync(2);
        data.write_back(2);
        assert_eq!(rests(&data), [[0; 8]]);
        // A length that cuts them off writes none either.
        let mut data = Data::default();
        data.write(1, 0, b"entry", ROOM);
        data.set_len(2, 3);
        let all = rests(&data);
        assert!(all.contains(&vec![0; 3]) && all.contains(&b"ent".to_vec()));
        assert!(
            all.contains(&vec![]) && all.contains(&b"entry".to_vec()),
            "{all:?}"
        );
        data.begin_sync(2);
        data.fail_sync(2);
        data.write_back(2);
        assert_eq!(rests(&data), [[0; 3]]);
    }

    /// Lengths that are never synced take no memory for ever.
    #[test]
    fn unsynced_lengths_use_bounded_memory() {
        let mut data = Data::default();
        for number in 0..10_000 {
            data.write(number + 1, number * 3, b"abc", ROOM);
        }
        assert_eq!(data.lengths.len(), MAX_LENGTHS);
        data.begin_sync(10_000);
        data.write_back(10_000);
        assert!(data.is_synced() && data.synced.len == 30_000);
    }

    /// The whole file after each of its changes.
    struct Histories {
        /// The file's contents, with the number of the change.
        states: Vec<(u64, Vec<u8>)>,
        cuts: Vec<(u64, u64)>,
        /// The first state that may be left.
        first: usize,
    }

    impl Histories {
        /// Returns whether `left` has the length of that state, and in each sector any state that
        /// the truncations allow.
        fn explains(&self, state: usize, left: &[u8]) -> bool {
            let (number, bytes) = &self.states[state];
            let states = self.states.iter().enumerate().skip(self.first);
            bytes.len() == left.len()
                && left.chunks(SECTOR).enumerate().all(|(index, sector)| {
                    let (start, end) = (index * SECTOR, (index + 1) * SECTOR);
                    let touches = |cut: &&(u64, u64)| cut.1 < end as u64;
                    states.clone().any(|(nth, (of, bytes))| {
                        let lost = |cut: &(u64, u64)| cut.0 > *number && cut.0 <= *of;
                        let kept = |cut: &(u64, u64)| cut.0 > *of && cut.0 <= *number;
                        if nth > state && self.cuts.iter().filter(touches).any(lost) {
                            return false;
                        }
                        let cut = self
                            .cuts
                            .iter()
                            .filter(|cut| kept(cut))
                            .map(|cut| cut.1)
                            .min();
                        let cut = cut.map_or(usize::MAX, |len| len as usize);
                        let byte = |at: usize| {
                            if at < cut {
                                bytes.get(at).copied().unwrap_or(0)
                            } else {
                                0
                            }
                        };
                        (start..).zip(sector).all(|(at, left)| *left == byte(at))
                    })
                })
        }
    }

    /// After any operations, what a crash leaves of a file is its state at some moment.
    #[test]
    fn remains_of_file_match_some_moment() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut below = |end: u64| random.u64(..end);
        for round in 0..3_000 {
            let mut data = Data::default();
            let mut all = Histories {
                states: vec![(0, Vec::new())],
                cuts: Vec::new(),
                first: 0,
            };
            let (mut number, mut syncs) = (0, Vec::new());
            for _ in 0..below(25) {
                let mut bytes = all.states.last().unwrap().1.clone();
                match below(8) {
                    0..=3 => {
                        number += 1;
                        let (at, len) = (below(1_600), 1 + below(700) as usize);
                        let value = 1 + below(255) as u8;
                        data.write(number, at, &vec![value; len], ROOM);
                        let end = at as usize + len;
                        bytes.resize(bytes.len().max(end), 0);
                        bytes[at as usize..end].fill(value);
                        all.states.push((number, bytes));
                    }
                    4 => {
                        number += 1;
                        let len = below(2_400);
                        data.set_len(number, len);
                        if len < bytes.len() as u64 {
                            all.cuts.push((number, len));
                        }
                        bytes.resize(len as usize, 0);
                        all.states.push((number, bytes));
                    }
                    5 => {
                        data.begin_sync(number);
                        syncs.push(number);
                    }
                    _ if !syncs.is_empty() => {
                        let nth = below(syncs.len() as u64) as usize;
                        let last = syncs.remove(nth);
                        data.write_back(last);
                        all.first = all.first.max(last as usize);
                    }
                    _ => {}
                }
                assert_eq!(contents(&data), all.states.last().unwrap().1);
            }
            let mut synced = data.clone();
            synced.write_back(number);
            assert!(synced.is_synced());
            let rest = data.rest(&mut below);
            data.lose(Some(rest));
            let left = contents(&data);
            let mut moments = all.first..all.states.len();
            assert!(
                moments.any(|state| all.explains(state, &left)),
                "round {round}: {left:?}"
            );
        }
    }

    #[test]
    fn a_write_ends_where_there_is_no_room() {
        let mut data = Data::default();
        assert_eq!(data.write(1, 500, &[1; 2_000], 2), 524);
        assert_eq!(data.len(), 1_024);
        assert_eq!(data.write(2, 1_024, b"x", 0), 0);
        assert_eq!(data.write(3, 600, b"x", 0), 1);
        assert_eq!(data.len(), 1_024);
    }
}

//! [`Data`]: what a file holds, and what of it a power-off leaves.
//!
//! Reads see what was written last: that is the page cache. Beside it are the contents that were
//! synced, and what has changed since, in order. A power-off chooses among them as a kernel's
//! writeback may have: for each sector any state that it was in since the last sync, whatever
//! became of the other sectors, so that one write may be there in part (torn). A sector itself is
//! never torn. The length is journaled: that of a moment since the last sync, and where it has
//! grown and the bytes have not come, they read as zeroes. A truncation is part of the length's
//! history: what was cut off does not come back behind it, and what was written behind it is not
//! there without it.
//!
//! A sync covers what was written before it began, and is done when it ends: fsync(2) promises no
//! more. One that fails marks what it was to write as clean, as Linux's file systems do (Rebello et
//! al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020; PostgreSQL's "fsyncgate"
//! of 2018): reads still see it, the next sync succeeds, and a power-off shows that it was never
//! written.
//!
//! What holds no bytes (a hole) takes no sector, so files may be as long as an `i64` says.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::choice::Stream;

/// Disks write so many bytes at once, or none of them.
pub(super) const SECTOR: usize = 512;

/// A sector is kept in so many states; then the last one is replaced, where no sync needs it. So
/// what is overwritten for ever without a sync does not take memory for ever.
const MOST_STATES: usize = 4;

type Sector = Rc<[u8; SECTOR]>;

#[derive(Clone, Debug, Default)]
struct Contents {
    len: u64,
    /// By their places; holes have none.
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

    /// Sets the length, so that what is beyond it is gone. Returns which sectors this has changed.
    fn set_len(&mut self, len: u64) -> Vec<u64> {
        let (first, within) = place(len);
        let mut gone = self.sectors.split_off(&first);
        let changed = gone.keys().copied().collect();
        if let Some(mut sector) = gone.remove(&first).filter(|_| within > 0) {
            Rc::make_mut(&mut sector)[within..].fill(0);
            self.sectors.insert(first, sector);
        }
        self.len = len;
        changed
    }

    fn set(&mut self, index: u64, sector: Option<Sector>) {
        match sector {
            Some(sector) => drop(self.sectors.insert(index, sector)),
            None => drop(self.sectors.remove(&index)),
        }
    }
}

/// The sector that has this byte, and where in it that is.
fn place(at: u64) -> (u64, usize) {
    (at / SECTOR as u64, (at % SECTOR as u64) as usize)
}

/// What a sector was after a change.
#[derive(Clone, Debug)]
struct Version {
    /// The number of the change.
    number: u64,
    /// It was cut off, or cut short.
    is_cut: bool,
    sector: Option<Sector>,
}

/// How much of what was not synced a power-off leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    Nothing,
    Everything,
    Some,
}

impl Leaves {
    /// All or nothing is as probable as something in between, which of a hundred sectors would
    /// hardly ever come to all of them.
    pub(super) fn draw(stream: &mut Stream) -> Leaves {
        match stream.below(4) {
            0 => Leaves::Nothing,
            1 => Leaves::Everything,
            _ => Leaves::Some,
        }
    }

    /// How many of so many changes are there, of which none is there without those before.
    pub(super) fn of(self, count: usize, stream: &mut Stream) -> usize {
        match self {
            Leaves::Nothing => 0,
            Leaves::Everything => count,
            Leaves::Some => stream.below(count as u64 + 1) as usize,
        }
    }
}

/// What a power-off leaves of a file.
pub(super) struct Rest {
    contents: Contents,
    /// How many sectors are not as they were written last.
    pub(super) sectors: u64,
    /// Neither is the length.
    pub(super) is_len_lost: bool,
}

impl Rest {
    pub(super) fn is_loss(&self) -> bool {
        self.sectors > 0 || self.is_len_lost
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    now: Contents,
    synced: Contents,
    /// The lengths that it has had since, each with the number of the change.
    lens: Vec<(u64, u64)>,
    /// The states of sectors since, of each in order.
    versions: BTreeMap<u64, Vec<Version>>,
    /// The last change when the last sync began.
    marked: u64,
    /// What reads see is not on the disk, and never will be.
    has_failed: bool,
}

impl Data {
    pub(super) fn len(&self) -> u64 {
        self.now.len
    }

    /// How many sectors it takes.
    pub(super) fn sectors(&self) -> u64 {
        self.now.sectors.len() as u64
    }

    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> usize {
        self.now.read(at, buffer)
    }

    /// Writes, as a change of this number, as far as `room` sectors more are enough. Returns how
    /// much that was.
    pub(super) fn write(&mut self, number: u64, at: u64, bytes: &[u8], mut room: u64) -> usize {
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
            let sector = Some(sector.clone());
            self.push(index, number, false, sector);
            done += len;
        }
        let end = at + done as u64;
        if done > 0 && end > self.now.len {
            self.now.len = end;
            self.lens.push((number, end));
        }
        done
    }

    /// Cuts it off, or has it end in a hole.
    pub(super) fn set_len(&mut self, number: u64, len: u64) {
        if len == self.now.len {
            return;
        }
        for index in self.now.set_len(len) {
            let sector = self.now.sectors.get(&index).cloned();
            self.push(index, number, true, sector);
        }
        self.lens.push((number, len));
    }

    fn push(&mut self, index: u64, number: u64, is_cut: bool, sector: Option<Sector>) {
        let version = Version {
            number,
            is_cut,
            sector,
        };
        let versions = self.versions.entry(index).or_default();
        let is_full = versions.len() >= MOST_STATES;
        match versions.last_mut() {
            // A sync under way covers none of these.
            Some(last) if is_full && last.number > self.marked && !last.is_cut && !is_cut => {
                *last = version;
            }
            _ => versions.push(version),
        }
    }

    /// A sync begins, when this was the last change.
    pub(super) fn begin_sync(&mut self, number: u64) {
        self.marked = number;
    }

    /// A sync ends: whatever was changed until `last` is on the disk.
    pub(super) fn end_sync(&mut self, last: u64) {
        let lens = self.lens.partition_point(|it| it.0 <= last);
        if let Some((_, len)) = self.lens.drain(..lens).next_back() {
            self.synced.len = len;
        }
        self.versions.retain(|index, versions| {
            let count = versions.partition_point(|it| it.number <= last);
            if let Some(version) = versions.drain(..count).next_back() {
                self.synced.set(*index, version.sector);
            }
            !versions.is_empty()
        });
    }

    /// A sync fails: what it was to write counts as written. (The journal, with lengths and
    /// truncations, still has it all.)
    pub(super) fn fail_sync(&mut self, last: u64) {
        self.has_failed |= self.versions.values().flatten().any(|it| it.number <= last);
        self.versions.retain(|_, versions| {
            versions.retain(|it| it.number > last || it.is_cut);
            !versions.is_empty()
        });
    }

    /// Whether a power-off would take nothing.
    pub(super) fn is_synced(&self) -> bool {
        !self.has_failed && self.lens.is_empty() && self.versions.is_empty()
    }

    /// What a power-off leaves of it, by chance.
    pub(super) fn rest(&self, stream: &mut Stream) -> Rest {
        let leaves = Leaves::draw(stream);
        let mut contents = self.synced.clone();
        let lens = leaves.of(self.lens.len(), stream);
        let first_lost = self.lens.get(lens).map_or(u64::MAX, |it| it.0);
        let len = match lens {
            0 => contents.len,
            _ => self.lens[lens - 1].1,
        };
        let mut sectors = 0;
        for (index, versions) in &self.versions {
            // Between the last truncation that is there and the first one that is not.
            let is_lost = |it: &Version| it.is_cut && it.number >= first_lost;
            let end = versions.iter().position(is_lost).unwrap_or(versions.len());
            let start = versions[..end].iter().rposition(|it| it.is_cut);
            let start = start.map_or(0, |it| it + 1);
            let count = start + leaves.of(end - start, stream);
            sectors += u64::from(count < versions.len());
            if count > 0 {
                contents.set(*index, versions[count - 1].sector.clone());
            }
        }
        contents.set_len(len);
        Rest {
            contents,
            sectors,
            is_len_lost: lens < self.lens.len(),
        }
    }

    /// The power is off, and this is left; or all of it is.
    pub(super) fn lose(&mut self, rest: Option<Rest>) {
        self.end_sync(u64::MAX);
        if let Some(rest) = rest {
            self.synced = rest.contents;
        }
        self.now = self.synced.clone();
        (self.marked, self.has_failed) = (0, false);
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

    /// What may be left, of some hundred power-offs.
    fn rests(data: &Data) -> Vec<Vec<u8>> {
        let mut stream = Stream::new(7, "test", 0, 0);
        let mut all: Vec<_> = (0..400)
            .map(|_| {
                let mut left = data.clone();
                let rest = left.rest(&mut stream);
                left.lose(Some(rest));
                assert!(left.is_synced());
                contents(&left)
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn bytes_are_read_as_they_were_written_and_holes_as_zeroes() {
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
        data.end_sync(1);
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
        data.end_sync(1);
        assert_eq!(contents(&data), b"b");
        assert_eq!(rests(&data), [b"a", b"b"]);
    }

    #[test]
    fn one_write_may_be_there_in_part_by_sectors() {
        let mut data = Data::default();
        data.write(1, 0, &[1; 1_024], ROOM);
        data.end_sync(1);
        data.write(2, 0, &[2; 1_024], ROOM);
        let of = |a, b| [[a; SECTOR], [b; SECTOR]].concat();
        assert_eq!(rests(&data), [of(1, 1), of(1, 2), of(2, 1), of(2, 2)]);
    }

    #[test]
    fn where_the_length_has_grown_and_the_bytes_have_not_come_there_are_zeroes() {
        let mut data = Data::default();
        data.write(1, 0, b"xy", ROOM);
        assert_eq!(rests(&data), [&b""[..], b"\0\0", b"xy"]);
    }

    #[test]
    fn what_was_cut_off_does_not_come_back_and_nothing_is_written_in_its_place_before() {
        let mut data = Data::default();
        data.write(1, 0, b"old!", ROOM);
        data.end_sync(1);
        data.set_len(2, 0);
        data.write(3, 0, b"new", ROOM);
        assert_eq!(rests(&data), [&b""[..], b"\0\0\0", b"new", b"old!"]);
        data.set_len(4, 1);
        let all = rests(&data);
        assert!(all.contains(&b"n".to_vec()) && !all.contains(&b"o".to_vec()));
    }

    #[test]
    fn after_a_sync_that_failed_the_next_one_succeeds_without_the_bytes() {
        let mut data = Data::default();
        data.write(1, 0, b"old", ROOM);
        data.end_sync(1);
        data.write(2, 0, b"new and longer", ROOM);
        data.begin_sync(2);
        data.fail_sync(2);
        data.begin_sync(2);
        data.end_sync(2);
        assert_eq!(contents(&data), b"new and longer");
        assert!(!data.is_synced(), "a power-off takes it");
        assert_eq!(rests(&data), [b"old\0\0\0\0\0\0\0\0\0\0\0"]);
        // What is written into the same sector takes it along, as the page cache has it.
        data.write(3, 14, b"!", ROOM);
        data.end_sync(3);
        assert_eq!(rests(&data), [b"new and longer!"]);
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

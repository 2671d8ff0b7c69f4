//! [`Disk`]: a host's file system, as its processes see it, and the part that survives a power-off.
//!
//! It outlives processes, and takes no time: `disk_calls` adds the duration and the failures of
//! calls. Processes read immediately what was written, and a kill loses nothing. A power-off may
//! lose anything that was not synced: [`Data`] decides on the bytes of files, and this module on
//! the names in directories, which are journaled when they are made, renamed or removed. A change
//! of names survives as a whole or not at all, so a rename replaces a file atomically. A *prefix*
//! of each directory's changes since its last sync survives, in their order. Changes of different
//! directories have no order, as POSIX gives them none and file systems differ (Pillai et al., "All
//! File Systems Are Not Created Equal", OSDI 2014). The exception is a node that is moved: it is at
//! one place, the old or the new one. As fsync(2) says, a file's sync does not cover its name: that
//! takes a sync of its directory. (ext4 and XFS do more than they promise there.)
//!
//! Two trees share the nodes: that of the names now, and that of the names on the disk. Nodes and
//! changes are numbered by counters, and every collection is ordered, so that one seed has one
//! outcome. There are no links, no permissions and no times.

mod journal;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use journal::{Change, Journal};
use nodes::{NOW, Node, Nodes, ROOT, SYNCED, check_path};

use super::choice::Stream;
use super::errno::Errno;
use super::event::digest;
use super::faults::Kind;
use super::sectors::{Data, SECTOR};
use super::trace::What;

type Result<T> = std::result::Result<T, Errno>;

/// The maximum length of a file that is read into one vector. A hole may be as long as an `i64`
/// allows, and if the system grants memory that it does not have, reading it would end the process.
const MAX_READ: u64 = 1 << 30;

/// The minimum number of nodes at which unreachable ones are removed. The next time is at twice the
/// number that was left, if that is more.
const NODES: usize = 64;

/// The options for opening a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct How {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
}

impl How {
    /// Returns whether opening a file with these options changes the disk, as far as they show.
    pub(crate) fn changes(self) -> bool {
        self.truncate || self.create || self.create_new
    }

    /// Refuses the combinations that the standard library refuses before it calls the system.
    pub(crate) fn check(self) -> io::Result<()> {
        let is_nothing = !(self.read || self.write || self.append);
        let writes = self.write || self.append;
        let is_wrong = match (writes, self.append) {
            (false, _) => self.changes(),
            (true, true) => self.truncate && !self.create_new,
            (true, false) => false,
        };
        if is_nothing || is_wrong {
            Err(Errno::INVAL.into())
        } else {
            Ok(())
        }
    }
}

/// The metadata of a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) len: u64,
    pub(crate) is_dir: bool,
}

/// A file that a process has open.
#[derive(Debug)]
struct Open {
    process: usize,
    node: u32,
    how: How,
    /// The number of failed syncs of the file that were reported to it, or happened before it was
    /// opened.
    failures: u64,
}

/// The losses of a power-off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Loss {
    pub(crate) sectors: u64,
    pub(crate) names: u64,
}

#[derive(Debug)]
pub(crate) struct Disk {
    nodes: Nodes,
    max_nodes: usize,
    open: BTreeMap<u32, Open>,
    next_open: u32,
    /// The number of the last change, of names or bytes.
    changes: u64,
    journal: Journal,
    /// The capacity in bytes.
    pub(crate) capacity: Option<u64>,
    /// The number of sectors that files take, or `None` if a file may have been freed or cut since
    /// it was counted.
    used: Option<u64>,
    /// The number of power-offs at which something was not synced.
    pub(super) losses: u64,
    /// Selects the bit that the call has to change in what it reads.
    pub(super) rot: Option<u64>,
    /// The event of the last call, until it is taken.
    pub(super) note: Option<What>,
}

impl Disk {
    pub(super) fn new() -> Disk {
        Disk {
            nodes: Nodes::new(),
            max_nodes: NODES,
            open: BTreeMap::new(),
            next_open: 1,
            changes: 0,
            journal: Journal::default(),
            capacity: None,
            used: None,
            losses: 0,
            rot: None,
            note: None,
        }
    }

    /// Changes names, now and in the journal.
    fn change(&mut self, from: Option<(u32, OsString)>, to: Option<(u32, OsString, u32)>) {
        self.changes += 1;
        let number = self.changes;
        let is_move = matches!((&from, &to), (Some(from), Some(to)) if from.0 != to.0);
        let gone = match &to {
            Some((dir, name, _)) => Some((*dir, name)),
            None => from.as_ref().map(|from| (from.0, &from.1)),
        };
        let gone = gone.and_then(|(dir, name)| self.nodes.names(dir, NOW).ok()?.get(name).copied());
        let is_barrier = is_move || gone.is_some_and(|node| self.nodes.is_dir(node));
        let change = Change {
            number,
            from,
            to,
            is_barrier,
        };
        let mut hash = digest(number, &[]);
        for (dir, name) in (change.from.iter().map(|from| (from.0, &from.1)))
            .chain(change.to.iter().map(|to| (to.0, &to.1)))
        {
            hash = digest(hash ^ u64::from(dir), name.as_encoded_bytes());
        }
        self.note = Some(What::Named(hash));
        self.used = None;
        self.nodes.apply(&change, NOW);
        self.journal.0.push(change);
    }

    fn add(&mut self, dir: u32, name: &OsStr, node: Node) -> u32 {
        self.sweep();
        let number = self.nodes.add(node);
        self.change(None, Some((dir, name.to_owned(), number)));
        number
    }

    /// Forgets unreachable nodes, if there may be many.
    fn sweep(&mut self) {
        if self.nodes.all.len() < self.max_nodes {
            return;
        }
        let live = self.reach(&[NOW, SYNCED]);
        self.nodes.all.retain(|node, _| live.contains(node));
        self.max_nodes = (2 * live.len()).max(NODES);
    }

    /// Returns the nodes that are open, or reachable by the names of these trees; with `SYNCED`,
    /// also those that the journal names.
    fn reach(&self, trees: &[usize]) -> BTreeSet<u32> {
        let mut next: Vec<u32> = self.open.values().map(|open| open.node).collect();
        next.push(ROOT);
        if trees.contains(&SYNCED) {
            let changes = self.journal.0.iter();
            next.extend(changes.filter_map(|change| Some(change.to.as_ref()?.2)));
        }
        let mut live = BTreeSet::new();
        while let Some(node) = next.pop() {
            if live.insert(node) {
                let names = |tree: &usize| self.nodes.names(node, *tree).ok();
                let names = trees.iter().filter_map(names);
                next.extend(names.flat_map(BTreeMap::values));
            }
        }
        live
    }

    /// Returns the number of free sectors.
    fn room(&mut self) -> u64 {
        let Some(capacity) = self.capacity else {
            return u64::MAX;
        };
        let sectors = |node: &u32| match self.nodes.all.get(node) {
            Some(Node::File(data)) => data.sectors(),
            _ => 0,
        };
        let count = || self.reach(&[NOW]).iter().map(sectors).sum();
        let used = self.used.unwrap_or_else(count);
        self.used = Some(used);
        (capacity / SECTOR as u64).saturating_sub(used)
    }

    /// Opens a file for a process.
    pub(crate) fn open(&mut self, path: &Path, how: How, process: usize) -> io::Result<u32> {
        let node = self.open_node(path, how)?;
        let number = self.next_open;
        self.next_open += 1;
        let failures = match self.nodes.all.get(&node) {
            Some(Node::File(data)) => data.failures,
            _ => 0,
        };
        let open = Open {
            process,
            node,
            how,
            failures,
        };
        self.open.insert(number, open);
        Ok(number)
    }

    fn open_node(&mut self, path: &Path, how: How) -> Result<u32> {
        let (creates, writes) = (how.create || how.create_new, how.write || how.append);
        let (dirs, name) = self.nodes.walk(path)?;
        let dir = *dirs.last().expect("the root");
        let found = match name {
            Some(name) => self.nodes.look_up(dir, name)?,
            None => Some(dir),
        };
        let Some(node) = found else {
            let name = name.filter(|_| creates).ok_or(Errno::NOENT)?;
            return Ok(self.add(dir, name, Node::File(Data::default())));
        };
        if how.create_new {
            return Err(Errno::EXIST);
        }
        match self.nodes.all.get_mut(&node) {
            Some(Node::Dir(_)) if writes || creates => Err(Errno::ISDIR),
            Some(Node::File(data)) if how.truncate && data.len() > 0 => {
                self.changes += 1;
                data.set_len(self.changes, 0);
                self.used = None;
                self.note = Some(What::Written(u64::from(node), 0));
                Ok(node)
            }
            _ => Ok(node),
        }
    }

    pub(super) fn close(&mut self, number: u32) {
        self.open.remove(&number);
        self.used = None;
    }

    /// Closes the files of a process that has ended.
    pub(super) fn close_all(&mut self, process: usize) {
        self.open.retain(|_, open| open.process != process);
        self.used = None;
    }

    /// Returns the paths of the files that a process has open, for reports.
    pub(crate) fn describe(&self, process: usize) -> Vec<String> {
        let open = self.open.values().filter(|open| open.process == process);
        open.map(|open| self.nodes.path_of(open.node).display().to_string())
            .collect()
    }

    pub(super) fn count_open(&self, process: usize) -> usize {
        let open = self.open.values();
        open.filter(|open| open.process == process).count()
    }

    fn opened(&self, number: u32) -> io::Result<&Open> {
        let gone = || io::Error::other("the process that had this file open has ended");
        self.open.get(&number).ok_or_else(gone)
    }

    /// Returns an open file, if the options with which it was opened permit the call.
    fn file(&mut self, number: u32, permits: fn(How) -> bool) -> io::Result<(&mut Data, u32)> {
        let Open { node, how, .. } = *self.opened(number)?;
        match self.nodes.all.get_mut(&node) {
            _ if !permits(how) => Err(Errno::BADF.into()),
            Some(Node::File(data)) => Ok((data, node)),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    /// Returns the contents of a file, of which the next `len` bytes are read: a bit of these
    /// changes if the call has that fault.
    fn data_to_read(&mut self, number: u32, at: u64, len: usize) -> io::Result<&mut Data> {
        let rot = self.rot.take();
        let (data, _) = self.file(number, |how| how.read)?;
        if let Some(pick) = rot {
            data.rot(at, len, pick);
        }
        Ok(data)
    }

    pub(crate) fn read(&mut self, number: u32, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let data = self.data_to_read(number, at, buffer.len())?;
        Ok(data.read(at, buffer))
    }

    pub(crate) fn read_all(&mut self, number: u32) -> io::Result<Vec<u8>> {
        let data = self.data_to_read(number, 0, usize::MAX)?;
        let mut bytes = Vec::new();
        let len = data.len();
        if len > MAX_READ || bytes.try_reserve_exact(len as usize).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        bytes.resize(len as usize, 0);
        data.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Writes bytes, at the end if the file was opened for appending. Returns the number of bytes
    /// written, and the offset behind them.
    pub(crate) fn write(&mut self, number: u32, at: u64, bytes: &[u8]) -> io::Result<(usize, u64)> {
        let (room, change) = (self.room(), self.changes + 1);
        let appends = self.opened(number)?.how.append;
        let (data, node) = self.file(number, |how| how.write || how.append)?;
        if bytes.is_empty() {
            return Ok((0, at));
        }
        let at = if appends { data.len() } else { at };
        let most = (i64::MAX as u64).saturating_sub(at);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        if most == 0 {
            return Err(Errno::FBIG.into());
        }
        let before = data.sectors();
        let len = data.write(change, at, &bytes[..most], room);
        let more = data.sectors() - before;
        self.used = self.used.map(|used| used + more);
        if len == 0 {
            return Err(Errno::NOSPC.into());
        }
        self.changes = change;
        let hash = digest(u64::from(node) ^ at, &bytes[..len]);
        self.note = Some(What::Written(hash, len));
        Ok((len, at + len as u64))
    }

    pub(crate) fn set_len(&mut self, number: u32, len: u64) -> io::Result<()> {
        let change = self.changes + 1;
        let how = self.opened(number)?.how;
        if !(how.write || how.append) || i64::try_from(len).is_err() {
            // ftruncate(2): EBADF or EINVAL. Linux returns the latter.
            return Err(Errno::INVAL.into());
        }
        let (data, node) = self.file(number, |_| true)?;
        data.set_len(change, len);
        self.used = None;
        self.changes = change;
        self.note = Some(What::Written(
            digest(u64::from(node), &len.to_le_bytes()),
            0,
        ));
        Ok(())
    }

    pub(crate) fn meta(&self, path: &Path) -> io::Result<Meta> {
        Ok(self.nodes.meta_of(self.nodes.find(path)?))
    }

    pub(crate) fn meta_of_open(&self, number: u32) -> io::Result<Meta> {
        Ok(self.nodes.meta_of(self.opened(number)?.node))
    }

    /// Returns the path from the root, without `.` and `..`.
    pub(crate) fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(self.nodes.path_of(self.nodes.find(path)?))
    }

    /// Returns the entries of a directory, by name.
    pub(crate) fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let names = self.nodes.names(self.nodes.find(path)?, NOW)?.iter();
        Ok(names
            .map(|(name, node)| (name.clone(), self.nodes.is_dir(*node)))
            .collect())
    }

    pub(crate) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.nodes.place(path, Errno::EXIST)?;
        if self.nodes.look_up(dir, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.add(dir, name, Node::Dir(Default::default()));
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.nodes.place(path, Errno::ISDIR)?;
        let node = self.nodes.look_up(dir, name)?.ok_or(Errno::NOENT)?;
        if self.nodes.is_dir(node) {
            return Err(Errno::ISDIR.into());
        }
        self.change(Some((dir, name.to_owned())), None);
        Ok(())
    }

    pub(crate) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let none = if path.ends_with("..") {
            Errno::NOTEMPTY
        } else {
            Errno::BUSY
        };
        let (dir, name) = self.nodes.place(path, none)?;
        let node = self.nodes.look_up(dir, name)?.ok_or(Errno::NOENT)?;
        if !self.nodes.names(node, NOW)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.change(Some((dir, name.to_owned())), None);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        // The checks are in the order of the standard library and Linux's renameat2().
        check_path(from)?;
        check_path(to)?;
        let (from_dirs, from_name) = self.nodes.walk(from)?;
        let (to_dirs, to_name) = self.nodes.walk(to)?;
        let names = from_name.zip(to_name);
        let (from_name, to_name) = names.ok_or(Errno::BUSY)?;
        let [from_dir, to_dir] = [&from_dirs, &to_dirs].map(|dirs| *dirs.last().expect("the root"));
        let node = self.nodes.look_up(from_dir, from_name)?;
        let node = node.ok_or(Errno::NOENT)?;
        let replaced = self.nodes.look_up(to_dir, to_name)?;
        if to_dirs.contains(&node) {
            return Err(Errno::INVAL.into());
        }
        if let Some(replaced) = replaced {
            if from_dirs.contains(&replaced) {
                return Err(Errno::NOTEMPTY.into());
            }
            if replaced == node {
                return Ok(());
            }
            match (self.nodes.is_dir(node), self.nodes.is_dir(replaced)) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, true) if !self.nodes.names(replaced, NOW)?.is_empty() => {
                    return Err(Errno::NOTEMPTY.into());
                }
                _ => {}
            }
        }
        let from = (from_dir, from_name.to_owned());
        self.change(Some(from), Some((to_dir, to_name.to_owned(), node)));
        Ok(())
    }

    /// Begins a sync. Returns the number of the last change, to be passed to its end.
    pub(crate) fn begin_sync(&mut self, number: u32) -> io::Result<u64> {
        let (node, last) = (self.opened(number)?.node, self.changes);
        if let Some(Node::File(data)) = self.nodes.all.get_mut(&node) {
            data.begin_sync(last);
        }
        Ok(last)
    }

    /// Ends a sync of all changes until `last`, successfully or not. An earlier sync of the same
    /// file that has failed is reported once to each descriptor that was open then (Linux's
    /// `errseq_t`, since 4.13), even if this one succeeds.
    ///
    /// With a `silent` fault one sector does not get to the disk, and nothing tells so.
    pub(crate) fn end_sync(
        &mut self,
        number: u32,
        last: u64,
        fails: bool,
        silent: Option<(Kind, u64)>,
    ) -> io::Result<()> {
        let Open { node, failures, .. } = *self.opened(number)?;
        self.note = Some(What::Synced(node.into(), fails));
        let mut is_told = fails;
        match self.nodes.all.get_mut(&node) {
            Some(Node::File(data)) => {
                if fails {
                    data.fail_sync(last);
                } else {
                    let lost = silent.and_then(|(_, pick)| data.lose_write(last, pick));
                    data.end_sync(last);
                    if let (Some(lost), Some((Kind::Misdirected, pick))) = (lost, silent) {
                        data.misplace(lost, pick);
                    }
                }
                is_told |= data.failures > failures;
                let failures = data.failures;
                let open = self.open.get_mut(&number);
                open.into_iter().for_each(|open| open.failures = failures);
            }
            // A directory loses nothing: its changes are still in the journal.
            _ if fails => {}
            _ => {
                for change in self.journal.sync(node, last) {
                    self.nodes.apply(&change, SYNCED);
                }
            }
        }
        if is_told {
            Err(Errno::IO.into())
        } else {
            Ok(())
        }
    }

    /// Describes what a power-off could lose: the files with data that was not synced, and the
    /// names that are journaled; some of each if there are many.
    pub(crate) fn describe_unsynced(&self) -> Vec<String> {
        let of_node = |(node, data): (&u32, &Node)| match data {
            Node::File(data) if !data.is_synced() => {
                Some(format!("data of {}", self.nodes.path_of(*node).display()))
            }
            _ => None,
        };
        /// Maximum number of files, and of names, that are told.
        const MAX_TOLD: usize = 20;

        let mut all: Vec<String> = self
            .nodes
            .all
            .iter()
            .filter_map(of_node)
            .take(MAX_TOLD)
            .collect();
        for change in self.journal.0.iter().take(MAX_TOLD) {
            let (from, to) = (change.from.as_ref(), change.to.as_ref());
            let path = |dir, name: &OsString| self.nodes.path_of(dir).join(name);
            let added = to.map(|(dir, name, _)| path(*dir, name));
            let removed = from.map(|(dir, name)| path(*dir, name));
            all.extend(
                added
                    .iter()
                    .map(|path| format!("the name {}", path.display())),
            );
            all.extend(
                removed
                    .iter()
                    .map(|path| format!("that {} is gone", path.display())),
            );
        }
        all
    }

    /// Returns whether a power-off would lose nothing.
    pub(super) fn is_synced(&self) -> bool {
        let is_synced = |node: &Node| match node {
            Node::File(data) => data.is_synced(),
            Node::Dir(_) => true,
        };
        self.journal.0.is_empty() && self.nodes.all.values().all(is_synced)
    }

    /// Loses a part of what was not synced, at a power-off: nothing is open. Calls `allow`, with a
    /// description, for each node that would lose something; if `allow` returns `false`, the node
    /// loses nothing.
    pub(super) fn lose_power(
        &mut self,
        stream: &mut Stream,
        mut allow: impl FnMut(u32, &dyn Fn() -> String) -> bool,
    ) -> Loss {
        let mut loss = Loss::default();
        let numbers: Vec<u32> = self.nodes.all.keys().copied().collect();
        for number in numbers {
            let rest = match &self.nodes.all[&number] {
                Node::File(data) if !data.is_synced() => data.rest(stream),
                _ => continue,
            };
            let lost = rest.sectors;
            let words = || {
                let path = self.nodes.path_of(number);
                match lost {
                    0 => format!("{} loses its length", path.display()),
                    _ => format!("{} loses sectors: {lost}", path.display()),
                }
            };
            let is_loss = rest.sectors > 0 || rest.is_len_lost;
            let rest = Some(rest).filter(|_| is_loss && allow(number, &words));
            loss.sectors += rest.as_ref().map_or(0, |rest| rest.sectors);
            if let Some(Node::File(data)) = self.nodes.all.get_mut(&number) {
                data.lose(rest);
            }
        }
        let (kept, lost) = self.journal.lose(stream, |dir, lost| {
            let path = || self.nodes.path_of(dir);
            let words = || format!("{} loses changes of names: {lost}", path().display());
            allow(dir, &words)
        });
        for change in kept {
            self.nodes.apply(&change, SYNCED);
        }
        self.nodes.forget_unsynced();
        self.used = None;
        loss.names = lost;
        self.max_nodes = 0;
        self.sweep();
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: usize = 0;

    fn open(disk: &mut Disk, path: &str, how: How) -> u32 {
        disk.open(path.as_ref(), how, PROCESS).unwrap()
    }

    fn create(disk: &mut Disk, path: &str) -> u32 {
        let how = How {
            write: true,
            create: true,
            ..How::default()
        };
        open(disk, path, how)
    }

    fn sync(disk: &mut Disk, path: &str) {
        let how = How {
            read: true,
            ..How::default()
        };
        let number = open(disk, path, how);
        let last = disk.begin_sync(number).unwrap();
        disk.end_sync(number, last, false, None).unwrap();
        disk.close(number);
    }

    fn list(disk: &Disk, path: &str) -> Vec<String> {
        let names = disk.read_dir(path.as_ref()).unwrap();
        let name = |(name, _): (OsString, bool)| name.into_string().unwrap();
        names.into_iter().map(name).collect()
    }

    /// Returns the possible results of some hundred power-offs of the disks that `make` creates.
    fn rests<T: Ord>(make: impl Fn() -> Disk, look: impl Fn(&Disk) -> T) -> Vec<T> {
        let mut stream = Stream::new(7, "test", 0, 0);
        let mut all: Vec<T> = (0..400)
            .map(|_| {
                let mut disk = make();
                disk.close_all(PROCESS);
                disk.lose_power(&mut stream, |_, _| true);
                assert!(disk.is_synced());
                look(&disk)
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn of_names_a_prefix_is_left_of_what_has_changed_since_their_directory_was_synced() {
        let make = || {
            let mut disk = Disk::new();
            create(&mut disk, "/synced");
            sync(&mut disk, "/");
            create(&mut disk, "/a");
            disk.rename("/a".as_ref(), "/b".as_ref()).unwrap();
            disk.remove_file("/synced".as_ref()).unwrap();
            disk
        };
        let all = rests(make, |disk| list(disk, "/"));
        let expected = [&["a", "synced"][..], &["b"], &["b", "synced"], &["synced"]];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_sync_of_a_file_says_nothing_of_its_name_nor_that_of_a_name_of_its_bytes() {
        let make = |path| {
            move || {
                let mut disk = Disk::new();
                let file = create(&mut disk, "/a");
                disk.write(file, 0, b"bytes").unwrap();
                sync(&mut disk, path);
                disk
            }
        };
        let look = |disk: &Disk| disk.meta("/a".as_ref()).ok().map(|meta| meta.len);
        assert_eq!(rests(make("/a"), look), [None, Some(5)]);
        assert_eq!(rests(make("/"), look), [Some(0), Some(5)]);
    }

    #[test]
    fn to_sync_where_something_was_moved_to_syncs_that_it_is_gone_from_where_it_was() {
        let make = || {
            let mut disk = Disk::new();
            disk.create_dir("/from".as_ref()).unwrap();
            disk.create_dir("/to".as_ref()).unwrap();
            sync(&mut disk, "/");
            create(&mut disk, "/from/a");
            disk.rename("/from/a".as_ref(), "/to/a".as_ref()).unwrap();
            create(&mut disk, "/from/b");
            sync(&mut disk, "/to");
            disk
        };
        let all = rests(make, |disk| (list(disk, "/from"), list(disk, "/to")));
        let to = || vec!["a".to_owned()];
        assert_eq!(all, [(vec![], to()), (vec!["b".to_owned()], to())]);
    }

    #[test]
    fn directories_that_were_moved_never_lie_in_each_other() {
        let make = || {
            let mut disk = Disk::new();
            disk.create_dir("/x".as_ref()).unwrap();
            disk.create_dir("/x/a".as_ref()).unwrap();
            disk.create_dir("/b".as_ref()).unwrap();
            sync(&mut disk, "/x");
            sync(&mut disk, "/");
            for (from, to) in [("/x/a", "/b/a"), ("/b/a", "/x/a"), ("/b", "/x/a/b")] {
                disk.rename(from.as_ref(), to.as_ref()).unwrap();
            }
            disk
        };
        let places = ["/x/a", "/b/a", "/b", "/x/a/b"];
        let all = rests(make, |disk| {
            places.map(|path| disk.meta(path.as_ref()).is_ok())
        });
        let before = [true, false, true, false];
        let within = [false, true, true, false];
        let after = [true, false, false, true];
        assert_eq!(all, [within, after, before]);
    }

    #[test]
    fn what_was_moved_out_of_a_directory_does_not_go_with_it() {
        let make = || {
            let mut disk = Disk::new();
            disk.create_dir("/old".as_ref()).unwrap();
            disk.create_dir("/new".as_ref()).unwrap();
            create(&mut disk, "/old/a");
            sync(&mut disk, "/old");
            sync(&mut disk, "/");
            disk.rename("/old/a".as_ref(), "/new/a".as_ref()).unwrap();
            disk.remove_dir("/old".as_ref()).unwrap();
            disk
        };
        let all = rests(make, |disk| {
            ["/old/a", "/new/a"].map(|path| disk.meta(path.as_ref()).is_ok())
        });
        assert_eq!(all, [[false, true], [true, false]]);
    }

    #[test]
    fn what_is_removed_and_nowhere_named_is_forgotten_once_nobody_has_it_open() {
        let mut disk = Disk::new();
        for _ in 0..10 * NODES {
            let file = create(&mut disk, "/a");
            disk.remove_file("/a".as_ref()).unwrap();
            disk.close(file);
            sync(&mut disk, "/");
        }
        assert!(disk.nodes.all.len() <= NODES, "{}", disk.nodes.all.len());
        let file = create(&mut disk, "/a");
        disk.write(file, 0, b"x").unwrap();
        disk.capacity = Some(SECTOR as u64);
        disk.remove_file("/a".as_ref()).unwrap();
        assert_eq!(disk.room(), 0);
        disk.close(file);
        assert_eq!(disk.room(), 1);
    }

    /// Returns the nodes that the names lead to, each of them once: no directory is in itself, and
    /// no node is at two places.
    fn tree(disk: &Disk, when: usize) -> BTreeSet<u32> {
        let (mut next, mut seen) = (vec![ROOT], BTreeSet::new());
        while let Some(node) = next.pop() {
            assert!(seen.insert(node), "node {node} is at two places");
            next.extend(
                disk.nodes
                    .names(node, when)
                    .into_iter()
                    .flatten()
                    .map(|found| found.1),
            );
        }
        seen
    }

    #[test]
    fn the_room_that_is_left_is_what_files_do_not_take() {
        let mut stream = Stream::new(4, "test", 0, 0);
        for _ in 0..300 {
            let mut disk = Disk::new();
            disk.capacity = Some(100 * SECTOR as u64);
            let mut open = Vec::new();
            for _ in 0..stream.below(60) {
                let [one, other] = [(); 2].map(|()| format!("/{}", stream.below(6)));
                match stream.below(8) {
                    0 | 1 => open.push(create(&mut disk, &one)),
                    2 => drop(disk.rename(one.as_ref(), other.as_ref())),
                    3 => drop(disk.remove_file(one.as_ref())),
                    4 if !open.is_empty() => {
                        let nth = stream.below(open.len() as u64) as usize;
                        disk.close(open.swap_remove(nth));
                    }
                    5 if !open.is_empty() => disk.set_len(open[0], stream.below(9_000)).unwrap(),
                    6 => {
                        let how = How {
                            write: true,
                            truncate: true,
                            ..How::default()
                        };
                        open.extend(disk.open(one.as_ref(), how, PROCESS));
                    }
                    _ => {
                        if let Some(file) = open.last() {
                            let _ = disk.write(*file, stream.below(9_000), &[1; 700]);
                        }
                    }
                }
                let room = disk.room();
                disk.used = None;
                assert_eq!(room, disk.room());
            }
        }
    }

    #[test]
    fn a_file_whose_removal_may_be_lost_keeps_its_bytes() {
        let make = || {
            let mut disk = Disk::new();
            disk.create_dir("/d".as_ref()).unwrap();
            sync(&mut disk, "/");
            let file = create(&mut disk, "/d/a");
            disk.write(file, 0, b"bytes").unwrap();
            sync(&mut disk, "/d/a");
            disk.close(file);
            disk.remove_file("/d/a".as_ref()).unwrap();
            for nth in 0..2 * NODES {
                create(&mut disk, &format!("/{nth}"));
            }
            disk
        };
        let all = rests(make, |disk| {
            let node = disk.nodes.find("/d/a".as_ref()).ok()?;
            let Some(Node::File(data)) = disk.nodes.all.get(&node) else {
                panic!("a name that leads nowhere");
            };
            let mut bytes = vec![0; data.len() as usize];
            data.read(0, &mut bytes);
            Some(bytes)
        });
        assert_eq!(all, [None, Some(b"bytes".to_vec())]);
    }

    #[test]
    fn as_many_sectors_are_lost_as_the_files_that_lost_some_say() {
        let mut stream = Stream::new(7, "test", 0, 0);
        let mut several = 0;
        for round in 0..100 {
            let mut disk = Disk::new();
            for path in ["/a", "/b", "/c"] {
                let file = create(&mut disk, path);
                disk.write(file, 0, &[7; 20_000]).unwrap();
            }
            disk.close_all(PROCESS);
            let mut said = Vec::new();
            let loss = disk.lose_power(&mut stream, |_, words| {
                let words = words();
                let lost = words.split_once(" loses sectors: ");
                said.extend(lost.map(|(_, lost)| lost.parse::<u64>().unwrap()));
                // Losses that are not allowed do not happen.
                round % 2 == 0
            });
            several += usize::from(said.len() > 1);
            let sum = if round % 2 == 0 { said.iter().sum() } else { 0 };
            assert_eq!(loss.sectors, sum, "{said:?}");
        }
        assert!(several > 50, "{several} times several files lost something");
    }

    #[test]
    fn whatever_is_moved_where_it_is_at_one_place_and_what_was_synced_is_left() {
        let mut stream = Stream::new(3, "test", 0, 0);
        let (mut lost, mut kept) = (0, 0);
        for _ in 0..4_000 {
            let (mut disk, mut gone) = (Disk::new(), BTreeSet::new());
            let mut known = BTreeSet::new();
            let path = |stream: &mut Stream| {
                let names = ["/a", "/b", "/c"];
                let depth = 1 + stream.below(3);
                (0..depth).fold(String::new(), |path, _| {
                    path + names[stream.below(3) as usize]
                })
            };
            for _ in 0..stream.below(40) {
                let (one, other) = (path(&mut stream), path(&mut stream));
                // Many of these calls are refused.
                let [node, replaced] =
                    [&one, &other].map(|path| disk.nodes.find(path.as_ref()).ok());
                match stream.below(10) {
                    0 | 1 => drop(disk.create_dir(one.as_ref())),
                    2..=4 if disk.rename(one.as_ref(), other.as_ref()).is_ok() => {
                        gone.extend(replaced.filter(|other| node != Some(*other)));
                    }
                    5 if disk.remove_dir(one.as_ref()).is_ok() => gone.extend(node),
                    6 if disk.remove_file(one.as_ref()).is_ok() => gone.extend(node),
                    2..=6 => {}
                    7 if node.is_some() => sync(&mut disk, &one),
                    7 | 8 => sync(&mut disk, "/"),
                    _ if disk.meta(one.as_ref()).is_ok_and(|meta| meta.is_dir) => {}
                    _ => {
                        let how = How {
                            append: true,
                            create: true,
                            ..How::default()
                        };
                        let _ = disk.open(one.as_ref(), how, PROCESS);
                    }
                }
                known.extend(tree(&disk, SYNCED));
            }
            tree(&disk, NOW);
            let changed: BTreeSet<u32> = disk.journal.0.iter().flat_map(Change::dirs).collect();
            let dirs = disk.nodes.all.keys().filter(|dir| disk.nodes.is_dir(**dir));
            let synced: Vec<_> = dirs
                .filter(|dir| !changed.contains(dir))
                .map(|dir| (*dir, disk.nodes.names(*dir, NOW).unwrap().clone()))
                .collect();
            disk.close_all(PROCESS);
            lost += disk.lose_power(&mut stream, |_, _| true).names;
            let left = tree(&disk, NOW);
            kept += known.len();
            let mut known = known.difference(&gone);
            assert!(
                known.all(|path| left.contains(path)),
                "what was only moved is gone"
            );
            for (dir, names) in synced {
                // (The directory may be gone itself, as its own name was not synced.)
                if let Ok(left) = disk.nodes.names(dir, NOW) {
                    assert_eq!(*left, names);
                }
            }
        }
        assert!(lost > 1_000 && kept > 1_000, "{lost} {kept}");
    }
}

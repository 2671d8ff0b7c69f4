//! [`Disk`]: a file system, as processes see it, and the part that survives a power failure.
//!
//! [`Data`] decides on the bytes of files, and this module on the names in directories. Two trees
//! share the nodes: that of the names now, and that of the names on the disk. Nodes and changes are
//! numbered by counters, and every collection is ordered, so that the same numbers have the same
//! outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::calls::{Error, Loss, Meta, Note, OpenFlags, Result, SyncEnd};
use super::journal::{Change, Journal};
use super::nodes::{NOW, Node, Nodes, ROOT, SYNCED, check_path};
use super::sectors::{Data, SECTOR};

/// The maximum length of a file that is read into one vector. A hole may be as long as an `i64`
/// allows, and if the system grants memory that it does not have, reading it would end the process.
const MAX_READ: u64 = 1 << 30;

/// The minimum number of nodes at which unreachable ones are removed. The next time is at twice the
/// number that was left, if that is more.
const NODES: usize = 64;

/// The maximum number of files, and of names, that [`Disk::describe_unsynced`] tells.
const MAX_TOLD: usize = 20;

/// A file that a process has open.
#[derive(Clone, Copy, Debug)]
struct Open {
    process: usize,
    node: u32,
    flags: OpenFlags,
    /// The number of failed syncs of the file that were reported to it, or happened before it was
    /// opened.
    failures: u64,
}

/// A file system in memory, and what is on the disk of it.
///
/// A process is any number, by which its open files are found. An open file has a number too, which
/// [`open`](Self::open) returns, but no position. Paths begin at the root, with or without a `/`.
///
/// ```
/// use polder_sim::power_loss::{Disk, OpenFlags};
///
/// let mut disk = Disk::default();
/// let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
/// let file = disk.open("/a".as_ref(), flags, 7)?;
/// assert_eq!(disk.write(file, 0, b"text")?, (4, 4));
/// let mut bytes = [0; 9];
/// assert_eq!(disk.read(file, 1, &mut bytes)?, 3);
/// assert_eq!(&bytes[..3], b"ext");
/// assert_eq!(disk.paths_open(7), ["/a"]);
/// disk.close(file);
/// assert_eq!(disk.describe_unsynced(), ["data of /a", "the name /a"]);
/// # Ok::<(), polder_sim::power_loss::Error>(())
/// ```
#[derive(Debug)]
pub struct Disk {
    /// The capacity for files in bytes, in sectors of 512. By default there is no limit.
    pub capacity: Option<u64>,
    /// A hash of bytes, which begins with a number, for [`note`](Self::note). By default it is that
    /// number.
    pub digest: fn(u64, &[u8]) -> u64,
    /// What the last call has changed, until it is taken.
    pub note: Option<Note>,
    /// Has the next read find one bit changed (bit rot), which stays so until the sector is written
    /// again. Any number selects the bit. Bytes that were not synced are in memory, and do not
    /// change.
    pub rot: Option<u64>,
    nodes: Nodes,
    max_nodes: usize,
    open: BTreeMap<u32, Open>,
    next_open: u32,
    /// The number of the last change, of names or bytes.
    changes: u64,
    journal: Journal,
    /// The number of sectors that files take, or `None` if a file may have been freed or cut since
    /// it was counted.
    used: Option<u64>,
}

impl Default for Disk {
    /// Creates a disk with an empty root.
    fn default() -> Disk {
        Disk {
            capacity: None,
            digest: |start, _| start,
            note: None,
            rot: None,
            nodes: Nodes::new(),
            max_nodes: NODES,
            open: BTreeMap::new(),
            next_open: 1,
            changes: 0,
            journal: Journal::default(),
            used: None,
        }
    }
}

impl Disk {
    /// Changes names, now and in the journal.
    fn change(&mut self, from: Option<(u32, OsString)>, to: Option<(u32, OsString, u32)>) {
        self.changes += 1;
        let number = self.changes;
        let removed = from.as_ref().map(|(dir, name)| (*dir, name));
        let added = to.as_ref().map(|(dir, name, _)| (*dir, name));
        let is_move = removed.zip(added).is_some_and(|(from, to)| from.0 != to.0);
        let node = |(dir, name)| self.nodes.names(dir, NOW).ok()?.get(name).copied();
        let gone = added.or(removed).and_then(node);
        let is_barrier = is_move || gone.is_some_and(|node| self.nodes.is_dir(node));
        let names = removed.into_iter().chain(added);
        let hash = names.fold(number, |hash, (dir, name)| {
            (self.digest)(hash ^ u64::from(dir), name.as_encoded_bytes())
        });
        self.note = Some(Note::Named(hash));
        self.used = None;
        let change = Change {
            number,
            from,
            to,
            is_barrier,
        };
        self.nodes.apply(&change, NOW);
        self.journal.0.push(change);
    }

    fn add(&mut self, dir: u32, name: &OsStr, node: Node) -> u32 {
        if self.nodes.all.len() >= self.max_nodes {
            self.sweep();
        }
        let number = self.nodes.add(node);
        self.change(None, Some((dir, name.to_owned(), number)));
        number
    }

    /// Forgets unreachable nodes.
    fn sweep(&mut self) {
        let live = self.reach(&[NOW, SYNCED]);
        self.nodes.all.retain(|node, _| live.contains(node));
        self.nodes.unnamed.retain(|node| live.contains(node));
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

    /// Opens a file or directory for a process. Returns the number of the open file.
    ///
    /// # Errors
    ///
    /// Those of [`OpenFlags::check`] and of the path, [`Error::AlreadyExists`] and
    /// [`Error::IsADirectory`].
    pub fn open(&mut self, path: &Path, flags: OpenFlags, process: usize) -> Result<u32> {
        flags.check()?;
        let node = self.open_node(path, flags)?;
        let number = self.next_open;
        self.next_open += 1;
        let failures = match self.nodes.all.get(&node) {
            Some(Node::File(data)) => data.failures,
            _ => 0,
        };
        let open = Open {
            process,
            node,
            flags,
            failures,
        };
        self.open.insert(number, open);
        Ok(number)
    }

    fn open_node(&mut self, path: &Path, flags: OpenFlags) -> Result<u32> {
        let creates = flags.create || flags.create_new;
        let writes = flags.write || flags.append;
        let (dirs, name) = self.nodes.walk(path)?;
        let dir = *dirs.last().expect("the root");
        let found = match name {
            Some(name) => self.nodes.look_up(dir, name)?,
            None => Some(dir),
        };
        let Some(node) = found else {
            let name = name.filter(|_| creates).ok_or(Error::NotFound)?;
            return Ok(self.add(dir, name, Node::File(Data::default())));
        };
        if flags.create_new {
            return Err(Error::AlreadyExists);
        }
        match self.nodes.all.get_mut(&node) {
            Some(Node::Dir(_)) if writes || creates => Err(Error::IsADirectory),
            Some(Node::File(data)) if flags.truncate && data.len() > 0 => {
                self.changes += 1;
                data.set_len(self.changes, 0);
                self.used = None;
                self.note = Some(Note::Written(u64::from(node), 0));
                Ok(node)
            }
            _ => Ok(node),
        }
    }

    /// Closes a file, if it is open.
    pub fn close(&mut self, number: u32) {
        self.open.remove(&number);
        self.used = None;
    }

    /// Closes the files of a process that has ended.
    pub fn close_all(&mut self, process: usize) {
        self.open.retain(|_, open| open.process != process);
        self.used = None;
    }

    /// Returns the paths of the files that a process has open, for reports.
    pub fn paths_open(&self, process: usize) -> Vec<String> {
        let open = self.open.values().filter(|open| open.process == process);
        open.map(|open| self.nodes.path_of(open.node).display().to_string())
            .collect()
    }

    /// Returns the number of files that a process has open.
    pub fn count_open(&self, process: usize) -> usize {
        let open = self.open.values();
        open.filter(|open| open.process == process).count()
    }

    fn opened(&self, number: u32) -> Result<&Open> {
        self.open.get(&number).ok_or(Error::Closed)
    }

    /// Returns the contents of an open file, if the flags with which it was opened permit the call.
    fn file(&mut self, number: u32, permits: fn(OpenFlags) -> bool) -> Result<(&mut Data, Open)> {
        let open = *self.opened(number)?;
        match self.nodes.all.get_mut(&open.node) {
            _ if !permits(open.flags) => Err(Error::NotPermitted),
            Some(Node::File(data)) => Ok((data, open)),
            _ => Err(Error::IsADirectory),
        }
    }

    /// Returns the contents of a file, of which the next `len` bytes are read: a bit of these
    /// changes if that was requested.
    fn data_to_read(&mut self, number: u32, at: u64, len: usize) -> Result<&mut Data> {
        let rot = self.rot.take();
        let (data, _) = self.file(number, |flags| flags.read)?;
        if let Some(pick) = rot {
            data.rot(at, len, pick);
        }
        Ok(data)
    }

    /// Reads bytes into a buffer. Returns their number, which is zero at the end of the file.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::NotPermitted`] and [`Error::IsADirectory`].
    pub fn read(&mut self, number: u32, at: u64, buffer: &mut [u8]) -> Result<usize> {
        let data = self.data_to_read(number, at, buffer.len())?;
        Ok(data.read(at, buffer))
    }

    /// Returns the contents of a file.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read), and [`Error::OutOfMemory`].
    pub fn read_all(&mut self, number: u32) -> Result<Vec<u8>> {
        let data = self.data_to_read(number, 0, usize::MAX)?;
        let mut bytes = Vec::new();
        let len = data.len();
        if len > MAX_READ || bytes.try_reserve_exact(len as usize).is_err() {
            return Err(Error::OutOfMemory);
        }
        bytes.resize(len as usize, 0);
        data.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Writes bytes, at the end if the file was opened for appending, as far as there is room.
    /// Returns the number of bytes written, and the offset behind them.
    ///
    /// ```
    /// # use polder_sim::power_loss::{Disk, Error, OpenFlags};
    /// let mut disk = Disk::default();
    /// disk.capacity = Some(1_024);
    /// let flags = OpenFlags { append: true, create: true, ..OpenFlags::default() };
    /// let file = disk.open("/log".as_ref(), flags, 0)?;
    /// assert_eq!(disk.write(file, 0, &[1; 1_000])?, (1_000, 1_000));
    /// assert_eq!(disk.write(file, 0, &[1; 1_000])?, (24, 1_024));
    /// assert_eq!(disk.write(file, 0, &[1; 1_000]), Err(Error::StorageFull));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::NotPermitted`], [`Error::FileTooLarge`] and
    /// [`Error::StorageFull`].
    pub fn write(&mut self, number: u32, at: u64, bytes: &[u8]) -> Result<(usize, u64)> {
        let (room, change, digest) = (self.room(), self.changes + 1, self.digest);
        let (data, open) = self.file(number, |flags| flags.write || flags.append)?;
        if bytes.is_empty() {
            return Ok((0, at));
        }
        let at = if open.flags.append { data.len() } else { at };
        let most = (i64::MAX as u64).saturating_sub(at);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        if most == 0 {
            return Err(Error::FileTooLarge);
        }
        let before = data.sectors();
        let len = data.write(change, at, &bytes[..most], room);
        let more = data.sectors() - before;
        self.used = self.used.map(|used| used + more);
        if len == 0 {
            return Err(Error::StorageFull);
        }
        self.changes = change;
        let hash = digest(u64::from(open.node) ^ at, &bytes[..len]);
        self.note = Some(Note::Written(hash, len));
        Ok((len, at + len as u64))
    }

    /// Truncates a file, or extends it by a hole.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] and [`Error::InvalidInput`].
    pub fn set_len(&mut self, number: u32, len: u64) -> Result<()> {
        let change = self.changes + 1;
        let flags = self.opened(number)?.flags;
        if !(flags.write || flags.append) || i64::try_from(len).is_err() {
            // ftruncate(2): EBADF or EINVAL. Linux returns the latter.
            return Err(Error::InvalidInput);
        }
        let (data, open) = self.file(number, |_| true)?;
        data.set_len(change, len);
        self.used = None;
        self.changes = change;
        let hash = (self.digest)(u64::from(open.node), &len.to_le_bytes());
        self.note = Some(Note::Written(hash, 0));
        Ok(())
    }

    /// Returns the metadata of a file or directory.
    ///
    /// # Errors
    ///
    /// Those of the path: [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`] and
    /// [`Error::InvalidInput`].
    pub fn meta(&self, path: &Path) -> Result<Meta> {
        Ok(self.nodes.meta_of(self.nodes.find(path)?))
    }

    /// Returns the metadata of an open file.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn meta_of_open(&self, number: u32) -> Result<Meta> {
        Ok(self.nodes.meta_of(self.opened(number)?.node))
    }

    /// Returns the path from the root, without `.` and `..`.
    ///
    /// # Errors
    ///
    /// Those of the path.
    pub fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        Ok(self.nodes.path_of(self.nodes.find(path)?))
    }

    /// Returns the names in a directory, in their order, and the metadata of what has them.
    ///
    /// ```
    /// # use polder_sim::power_loss::{Disk, OpenFlags};
    /// let mut disk = Disk::default();
    /// let create = OpenFlags { write: true, create_new: true, ..OpenFlags::default() };
    /// disk.create_dir("/d".as_ref())?;
    /// disk.open("/d/a".as_ref(), create, 0)?;
    /// disk.rename("/d/a".as_ref(), "/b".as_ref())?;
    /// let names = disk.read_dir("/".as_ref())?;
    /// let are_dirs = names.iter().map(|(name, meta)| (name.to_str().unwrap(), meta.is_dir));
    /// assert_eq!(are_dirs.collect::<Vec<_>>(), [("b", false), ("d", true)]);
    /// disk.remove_dir("/d".as_ref())?;
    /// disk.remove_file("/b".as_ref())?;
    /// assert_eq!(disk.read_dir("/".as_ref())?, []);
    /// # Ok::<(), polder_sim::power_loss::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the path, and [`Error::NotADirectory`].
    pub fn read_dir(&self, path: &Path) -> Result<Vec<(OsString, Meta)>> {
        let names = self.nodes.names(self.nodes.find(path)?, NOW)?.iter();
        Ok(names
            .map(|(name, node)| (name.clone(), self.nodes.meta_of(*node)))
            .collect())
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// Those of the path, and [`Error::AlreadyExists`].
    pub fn create_dir(&mut self, path: &Path) -> Result<()> {
        let (dir, name) = self.nodes.place(path, Error::AlreadyExists)?;
        if self.nodes.look_up(dir, name)?.is_some() {
            return Err(Error::AlreadyExists);
        }
        self.add(dir, name, Node::Dir(Default::default()));
        Ok(())
    }

    /// Removes the name of a file. Who has the file open still reads and writes it.
    ///
    /// # Errors
    ///
    /// Those of the path, and [`Error::IsADirectory`].
    pub fn remove_file(&mut self, path: &Path) -> Result<()> {
        let (dir, name) = self.nodes.place(path, Error::IsADirectory)?;
        let node = self.nodes.look_up(dir, name)?.ok_or(Error::NotFound)?;
        if self.nodes.is_dir(node) {
            return Err(Error::IsADirectory);
        }
        self.change(Some((dir, name.to_owned())), None);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Those of the path, [`Error::DirectoryNotEmpty`], [`Error::NotADirectory`] and
    /// [`Error::Busy`].
    pub fn remove_dir(&mut self, path: &Path) -> Result<()> {
        let none = if path.ends_with("..") {
            Error::DirectoryNotEmpty
        } else {
            Error::Busy
        };
        let (dir, name) = self.nodes.place(path, none)?;
        let node = self.nodes.look_up(dir, name)?.ok_or(Error::NotFound)?;
        if !self.nodes.names(node, NOW)?.is_empty() {
            return Err(Error::DirectoryNotEmpty);
        }
        self.change(Some((dir, name.to_owned())), None);
        Ok(())
    }

    /// Renames a file or directory. It replaces a file, or an empty directory, of that name.
    ///
    /// # Errors
    ///
    /// Those of the paths; [`Error::Busy`]; [`Error::InvalidInput`] if a directory would be in
    /// itself; [`Error::DirectoryNotEmpty`], [`Error::NotADirectory`] and [`Error::IsADirectory`]
    /// of what would be replaced.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        // The checks are in the order of the standard library and Linux's renameat2().
        check_path(from)?;
        check_path(to)?;
        let (from_dirs, from_name) = self.nodes.walk(from)?;
        let (to_dirs, to_name) = self.nodes.walk(to)?;
        let names = from_name.zip(to_name);
        let (from_name, to_name) = names.ok_or(Error::Busy)?;
        let [from_dir, to_dir] = [&from_dirs, &to_dirs].map(|dirs| *dirs.last().expect("the root"));
        let node = self.nodes.look_up(from_dir, from_name)?;
        let node = node.ok_or(Error::NotFound)?;
        let replaced = self.nodes.look_up(to_dir, to_name)?;
        if to_dirs.contains(&node) {
            return Err(Error::InvalidInput);
        }
        if let Some(replaced) = replaced {
            if from_dirs.contains(&replaced) {
                return Err(Error::DirectoryNotEmpty);
            }
            if replaced == node {
                return Ok(());
            }
            match (self.nodes.is_dir(node), self.nodes.is_dir(replaced)) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                (true, true) if !self.nodes.names(replaced, NOW)?.is_empty() => {
                    return Err(Error::DirectoryNotEmpty);
                }
                _ => {}
            }
        }
        let from = (from_dir, from_name.to_owned());
        self.change(Some(from), Some((to_dir, to_name.to_owned(), node)));
        Ok(())
    }

    /// Begins a sync of a file or directory. Returns the number of the last change, to be passed to
    /// its end.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub fn begin_sync(&mut self, number: u32) -> Result<u64> {
        let (node, last) = (self.opened(number)?.node, self.changes);
        if let Some(Node::File(data)) = self.nodes.all.get_mut(&node) {
            data.begin_sync(last);
        }
        Ok(last)
    }

    /// Ends a sync of all changes until `last`. An earlier sync of the same file that has failed is
    /// reported once to each open file of that time, even if this one succeeds.
    ///
    /// ```
    /// # use polder_sim::power_loss::{Disk, Error, OpenFlags, SyncEnd};
    /// let mut disk = Disk::default();
    /// let flags = OpenFlags { write: true, create: true, ..OpenFlags::default() };
    /// let file = disk.open("/a".as_ref(), flags, 0)?;
    /// let other = disk.open("/a".as_ref(), flags, 1)?;
    /// disk.write(file, 0, b"text")?;
    /// let last = disk.begin_sync(file)?;
    /// assert_eq!(disk.end_sync(file, last, SyncEnd::Failed), Err(Error::SyncFailed));
    /// assert_eq!(disk.end_sync(file, last, SyncEnd::Done), Ok(()));
    /// assert_eq!(disk.end_sync(other, last, SyncEnd::Done), Err(Error::SyncFailed));
    /// // The first sync should have written the bytes, and no other one has.
    /// assert_eq!(disk.describe_unsynced(), ["data of /a", "the name /a"]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] and [`Error::SyncFailed`].
    pub fn end_sync(&mut self, number: u32, last: u64, end: SyncEnd) -> Result<()> {
        let open = self.open.get_mut(&number).ok_or(Error::Closed)?;
        let fails = end == SyncEnd::Failed;
        self.note = Some(Note::Synced(open.node, fails));
        let is_told = match self.nodes.all.get_mut(&open.node) {
            Some(Node::File(data)) => {
                data.end_sync(last, end);
                std::mem::replace(&mut open.failures, data.failures) < data.failures
            }
            // A directory loses nothing: its changes are still in the journal.
            _ if fails => true,
            _ => {
                for change in self.journal.sync(open.node, last) {
                    self.nodes.apply(&change, SYNCED);
                }
                false
            }
        };
        if is_told {
            Err(Error::SyncFailed)
        } else {
            Ok(())
        }
    }

    /// Describes what a power failure could lose: the files with data that was not synced, and the
    /// names that are journaled; some of each if there are many.
    pub fn describe_unsynced(&self) -> Vec<String> {
        let of_node = |(node, data): (&u32, &Node)| match data {
            Node::File(data) if !data.is_synced() => {
                Some(format!("data of {}", self.nodes.path_of(*node).display()))
            }
            _ => None,
        };
        let files = self.nodes.all.iter().filter_map(of_node).take(MAX_TOLD);
        let mut all: Vec<String> = files.collect();
        for change in self.journal.0.iter().take(MAX_TOLD) {
            let path = |dir, name| self.nodes.path_of(dir).join(name);
            if let Some((dir, name, _)) = &change.to {
                all.push(format!("the name {}", path(*dir, name).display()));
            }
            if let Some((dir, name)) = &change.from {
                all.push(format!("that {} is gone", path(*dir, name).display()));
            }
        }
        all
    }

    /// Returns whether a power failure would lose nothing.
    pub fn is_synced(&self) -> bool {
        let is_synced = |node: &Node| match node {
            Node::File(data) => data.is_synced(),
            Node::Dir(_) => true,
        };
        self.journal.0.is_empty() && self.nodes.all.values().all(is_synced)
    }

    /// Loses a part of what was not synced, and closes all files.
    ///
    /// `draw` returns a random number below the one that it is passed. `allow` is called for each
    /// file and directory that would lose something, with its number, which it keeps for ever, and
    /// a description. If it returns `false`, the file or directory loses nothing. A directory may
    /// still lose changes together with those of another one, without a call: if a rename between
    /// them is lost, both end there.
    ///
    /// ```
    /// # use polder_sim::power_loss::Disk;
    /// let mut disk = Disk::default();
    /// disk.create_dir("/data".as_ref())?;
    /// let mut losses = Vec::new();
    /// disk.lose_power(&mut |_| 0, |_, loss| {
    ///     losses.push(loss());
    ///     false
    /// });
    /// assert_eq!(losses, ["/ loses changes of names: 1"]);
    /// assert!(disk.meta("/data".as_ref())?.is_dir && disk.is_synced());
    /// # Ok::<(), polder_sim::power_loss::Error>(())
    /// ```
    pub fn lose_power(
        &mut self,
        draw: &mut dyn FnMut(u64) -> u64,
        mut allow: impl FnMut(u32, &dyn Fn() -> String) -> bool,
    ) -> Loss {
        self.open.clear();
        let mut loss = Loss::default();
        let numbers: Vec<u32> = self.nodes.all.keys().copied().collect();
        for number in numbers {
            let rest = match &self.nodes.all[&number] {
                Node::File(data) if !data.is_synced() => data.rest(draw),
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
        let (kept, lost) = self.journal.lose(draw, |dir, lost| {
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
        self.sweep();
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: usize = 0;

    /// Returns random numbers below those that are passed.
    fn below(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        move |end| random.u64(..end)
    }

    fn open(disk: &mut Disk, path: &str, flags: OpenFlags) -> u32 {
        disk.open(path.as_ref(), flags, PROCESS).unwrap()
    }

    fn create(disk: &mut Disk, path: &str) -> u32 {
        let flags = OpenFlags {
            write: true,
            create: true,
            ..OpenFlags::default()
        };
        open(disk, path, flags)
    }

    fn sync(disk: &mut Disk, path: &str) {
        let flags = OpenFlags {
            read: true,
            ..OpenFlags::default()
        };
        let number = open(disk, path, flags);
        let last = disk.begin_sync(number).unwrap();
        disk.end_sync(number, last, SyncEnd::Done).unwrap();
        disk.close(number);
    }

    fn list(disk: &Disk, path: &str) -> Vec<String> {
        let names = disk.read_dir(path.as_ref()).unwrap();
        let name = |(name, _): (OsString, Meta)| name.into_string().unwrap();
        names.into_iter().map(name).collect()
    }

    /// Returns the possible results of 400 power failures of the disks that `make` creates.
    fn rests<T: Ord>(make: impl Fn() -> Disk, look: impl Fn(&Disk) -> T) -> Vec<T> {
        let mut below = below(7);
        let mut all: Vec<T> = (0..400)
            .map(|_| {
                let mut disk = make();
                disk.lose_power(&mut below, |_, _| true);
                assert!(disk.is_synced());
                look(&disk)
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// After a crash a directory has a prefix of the changes to its names since its last sync.
    #[test]
    fn names_lost_after_prefix_since_sync() {
        let make = || {
            let mut disk = Disk::default();
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

    /// The sync of a file says nothing of its name nor that of a name of its bytes.
    #[test]
    fn file_sync_and_name_sync_independent() {
        let make = |path| {
            move || {
                let mut disk = Disk::default();
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

    /// Syncing the directory that a file was moved to also makes its removal from the old one
    /// durable.
    #[test]
    fn sync_of_move_target_syncs_source() {
        let make = || {
            let mut disk = Disk::default();
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

    /// Directories that were moved never lie in each other.
    #[test]
    fn moved_directories_form_no_cycle() {
        let make = || {
            let mut disk = Disk::default();
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

    /// A file that was moved out of a directory is not removed with it.
    #[test]
    fn moved_out_entry_survives_directory_removal() {
        let make = || {
            let mut disk = Disk::default();
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

    /// A file without a name is forgotten when its last handle is closed.
    #[test]
    fn unlinked_file_freed_when_last_handle_closes() {
        let mut disk = Disk::default();
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

    /// The room that is left is what files do not take.
    #[test]
    fn free_space_is_what_files_leave() {
        let mut below = below(4);
        for _ in 0..300 {
            let mut disk = Disk {
                capacity: Some(100 * SECTOR as u64),
                ..Disk::default()
            };
            let mut open = Vec::new();
            for _ in 0..below(60) {
                let [one, other] = [(); 2].map(|()| format!("/{}", below(6)));
                match below(8) {
                    0 | 1 => open.push(create(&mut disk, &one)),
                    2 => drop(disk.rename(one.as_ref(), other.as_ref())),
                    3 => drop(disk.remove_file(one.as_ref())),
                    4 if !open.is_empty() => {
                        let nth = below(open.len() as u64) as usize;
                        disk.close(open.swap_remove(nth));
                    }
                    5 if !open.is_empty() => disk.set_len(open[0], below(9_000)).unwrap(),
                    6 => {
                        let flags = OpenFlags {
                            write: true,
                            truncate: true,
                            ..OpenFlags::default()
                        };
                        open.extend(disk.open(one.as_ref(), flags, PROCESS));
                    }
                    _ => {
                        if let Some(file) = open.last() {
                            let _ = disk.write(*file, below(9_000), &[1; 700]);
                        }
                    }
                }
                let room = disk.room();
                disk.used = None;
                assert_eq!(room, disk.room());
            }
        }
    }

    /// A file keeps its bytes as long as its removal may be lost.
    #[test]
    fn lost_removal_keeps_bytes() {
        let make = || {
            let mut disk = Disk::default();
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

    /// As many sectors are lost as the files that lost some say.
    #[test]
    fn lost_sectors_match_files_report() {
        let mut below = below(7);
        let mut several = 0;
        for round in 0..100 {
            let mut disk = Disk::default();
            for path in ["/a", "/b", "/c"] {
                let file = create(&mut disk, path);
                disk.write(file, 0, &[7; 20_000]).unwrap();
            }
            let mut said = Vec::new();
            let loss = disk.lose_power(&mut below, |_, words| {
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

    /// After any moves a file has one place, and what was synced is left after a crash.
    #[test]
    fn moves_keep_one_place_and_synced_state() {
        let mut below = below(3);
        let (mut lost, mut kept) = (0, 0);
        for _ in 0..4_000 {
            let (mut disk, mut gone) = (Disk::default(), BTreeSet::new());
            let mut known = BTreeSet::new();
            let path = |below: &mut dyn FnMut(u64) -> u64| {
                let names = ["/a", "/b", "/c"];
                let depth = 1 + below(3);
                (0..depth).fold(String::new(), |path, _| path + names[below(3) as usize])
            };
            for _ in 0..below(40) {
                let (one, other) = (path(&mut below), path(&mut below));
                // Many of these calls are refused.
                let [node, replaced] =
                    [&one, &other].map(|path| disk.nodes.find(path.as_ref()).ok());
                match below(10) {
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
                        let flags = OpenFlags {
                            append: true,
                            create: true,
                            ..OpenFlags::default()
                        };
                        let _ = disk.open(one.as_ref(), flags, PROCESS);
                    }
                }
                known.extend(tree(&disk, SYNCED));
            }
            tree(&disk, NOW);
            let named = |node: u32| {
                let dirs = disk.nodes.all.keys();
                let mut names = dirs.filter_map(|dir| disk.nodes.names(*dir, NOW).ok());
                node == ROOT || names.any(|names| names.values().any(|it| *it == node))
            };
            for node in disk.nodes.all.keys() {
                let links = u32::from(named(*node));
                assert_eq!(disk.nodes.meta_of(*node).links, links);
            }
            let changed: BTreeSet<u32> = disk.journal.0.iter().flat_map(Change::dirs).collect();
            let dirs = disk.nodes.all.keys().filter(|dir| disk.nodes.is_dir(**dir));
            let synced: Vec<_> = dirs
                .filter(|dir| !changed.contains(dir))
                .map(|dir| (*dir, disk.nodes.names(*dir, NOW).unwrap().clone()))
                .collect();
            lost += disk.lose_power(&mut below, |_, _| true).names;
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

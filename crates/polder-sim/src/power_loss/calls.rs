//! The arguments and results of a disk's calls.

use std::fmt;

pub(super) type Result<T> = std::result::Result<T, Error>;

/// Why a call has failed.
///
/// ```
/// use polder_sim::power_loss::{Disk, Error};
///
/// let mut disk = Disk::default();
/// disk.create_dir("/data".as_ref())?;
/// assert_eq!(disk.create_dir("/data".as_ref()), Err(Error::AlreadyExists));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The name exists (`EEXIST`).
    AlreadyExists,
    /// The root cannot be renamed or removed (`EBUSY`).
    Busy,
    /// The process that had the file open has ended, or has closed it.
    Closed,
    /// The directory is not empty (`ENOTEMPTY`).
    DirectoryNotEmpty,
    /// The file would be longer than an `i64` can say (`EFBIG`).
    FileTooLarge,
    /// Flags, a length or a path that no call can have, or a directory that would be moved into
    /// itself (`EINVAL`).
    InvalidInput,
    /// It is a directory (`EISDIR`).
    IsADirectory,
    /// A name is longer than 255 bytes (`ENAMETOOLONG`).
    NameTooLong,
    /// It is not a directory (`ENOTDIR`).
    NotADirectory,
    /// There is no such name (`ENOENT`).
    NotFound,
    /// The file was not opened for this (`EBADF`).
    NotPermitted,
    /// The file is too long to be read into memory.
    OutOfMemory,
    /// The disk is full (`ENOSPC`).
    StorageFull,
    /// This sync has failed, or an earlier one of which the open file was not told (`EIO`).
    SyncFailed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::AlreadyExists => "the name exists",
            Error::Busy => "the root cannot be renamed or removed",
            Error::Closed => "the file is not open any more",
            Error::DirectoryNotEmpty => "the directory is not empty",
            Error::FileTooLarge => "the file would be too long",
            Error::InvalidInput => "flags, a length or a path is invalid",
            Error::IsADirectory => "it is a directory",
            Error::NameTooLong => "a name is longer than 255 bytes",
            Error::NotADirectory => "it is not a directory",
            Error::NotFound => "there is no such name",
            Error::NotPermitted => "the file was not opened for this",
            Error::OutOfMemory => "the file is too long to be read into memory",
            Error::StorageFull => "the disk is full",
            Error::SyncFailed => "a sync has failed",
        })
    }
}

impl std::error::Error for Error {}

/// The flags for opening a file, which are those of [`std::fs::OpenOptions`].
///
/// ```
/// use polder_sim::power_loss::{Error, OpenFlags};
///
/// let append = OpenFlags { append: true, create: true, ..OpenFlags::default() };
/// assert_eq!(append.check(), Ok(()));
/// let create = OpenFlags { read: true, create: true, ..OpenFlags::default() };
/// assert_eq!(create.check(), Err(Error::InvalidInput));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags {
    /// Permits reads.
    pub read: bool,
    /// Permits writes.
    pub write: bool,
    /// Permits writes, each of which goes to the end of the file.
    pub append: bool,
    /// Removes the contents.
    pub truncate: bool,
    /// Creates the file, unless it exists.
    pub create: bool,
    /// Creates the file, and fails if it exists.
    pub create_new: bool,
}

impl OpenFlags {
    /// Returns whether opening a file with these flags changes the disk, as far as they show.
    pub fn changes(self) -> bool {
        self.truncate || self.create || self.create_new
    }

    /// Refuses the combinations that the standard library refuses before it calls the system. So
    /// does [`Disk::open`](super::Disk::open); this is for a caller that waits first.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`].
    pub fn check(self) -> Result<()> {
        let is_nothing = !(self.read || self.write || self.append);
        let writes = self.write || self.append;
        let is_wrong = match (writes, self.append) {
            (false, _) => self.changes(),
            (true, true) => self.truncate && !self.create_new,
            (true, false) => false,
        };
        if is_nothing || is_wrong {
            Err(Error::InvalidInput)
        } else {
            Ok(())
        }
    }
}

/// The metadata of a file or directory, returned by [`Disk::meta`](super::Disk::meta).
///
/// ```
/// use polder_sim::power_loss::{Disk, OpenFlags};
///
/// let mut disk = Disk::default();
/// let flags = OpenFlags { write: true, create: true, ..OpenFlags::default() };
/// let file = disk.open("/a".as_ref(), flags, 0)?;
/// disk.write(file, 600, b"text")?;
/// let meta = disk.meta("/a".as_ref())?;
/// assert_eq!((meta.len, meta.sectors, meta.links), (604, 1, 1));
/// disk.rename("/a".as_ref(), "/b".as_ref())?;
/// assert_eq!(disk.meta("/b".as_ref())?, meta);
/// disk.remove_file("/b".as_ref())?;
/// assert_eq!(disk.meta_of_open(file)?.links, 0);
/// # Ok::<(), polder_sim::power_loss::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The length of a file in bytes. Directories have none.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its number, which no other one has, and which it keeps. The root's is zero.
    pub number: u32,
    /// The number of its names: one, or zero if it was removed while it was open. (So it is for
    /// directories on Btrfs, too, while others count those in them.)
    pub links: u32,
    /// The number of sectors of 512 bytes that a file takes.
    pub sectors: u64,
}

/// How a sync ends: see [`Disk::end_sync`](super::Disk::end_sync). The sync of a directory only
/// succeeds or fails.
///
/// ```
/// use polder_sim::power_loss::{Disk, OpenFlags, SyncEnd};
///
/// let mut disk = Disk::default();
/// let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
/// let file = disk.open("/a".as_ref(), flags, 0)?;
/// disk.write(file, 0, b"text")?;
/// let last = disk.begin_sync(file)?;
/// disk.end_sync(file, last, SyncEnd::LosesWrite(0))?;
/// // Nobody was told, but only the length is on the disk.
/// assert_eq!(disk.read_all(file)?, b"text");
/// let root = disk.open("/".as_ref(), OpenFlags { read: true, ..OpenFlags::default() }, 0)?;
/// let last = disk.begin_sync(root)?;
/// disk.end_sync(root, last, SyncEnd::Done)?;
/// disk.lose_power(&mut |_| 0, |_, _| true);
/// let file = disk.open("/a".as_ref(), flags, 0)?;
/// assert_eq!(disk.read_all(file)?, [0; 4]);
/// # Ok::<(), polder_sim::power_loss::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncEnd {
    /// It succeeds.
    Done,
    /// It fails: the sectors that it should have written count as written.
    Failed,
    /// It succeeds, but one of its sectors does not come to the disk (a lost write). Any number
    /// selects the sector.
    LosesWrite(u64),
    /// It succeeds, but one of its sectors is written to the place of another one of the file (a
    /// misdirected write). Any number selects both.
    Misdirects(u64),
}

/// What a call has changed: see [`Disk::note`](super::Disk::note).
///
/// ```
/// use polder_sim::power_loss::{Disk, Note};
///
/// let mut disk = Disk::default();
/// disk.digest = |start, bytes| start + bytes.len() as u64;
/// disk.create_dir("/data".as_ref())?;
/// assert!(matches!(disk.note.take(), Some(Note::Named(hash)) if hash > 0));
/// # Ok::<(), polder_sim::power_loss::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// This number of bytes of a file was written, or its length was set if it is zero. First the
    /// hash of the change.
    Written(u64, usize),
    /// A name was made, renamed or removed. The hash of the change.
    Named(u64),
    /// The file or directory of this number was synced, or its sync has failed (`true`).
    Synced(u32, bool),
}

/// The losses of a power failure, returned by [`Disk::lose_power`](super::Disk::lose_power).
///
/// ```
/// use polder_sim::power_loss::{Disk, Loss};
///
/// let mut disk = Disk::default();
/// disk.create_dir("/data".as_ref())?;
/// let loss = disk.lose_power(&mut |_| 0, |_, _| true);
/// assert_eq!(loss, Loss { sectors: 0, names: 1 });
/// # Ok::<(), polder_sim::power_loss::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// The number of sectors that are not as they were written last.
    pub sectors: u64,
    /// The number of changes of names that are gone.
    pub names: u64,
}

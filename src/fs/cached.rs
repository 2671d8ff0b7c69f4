//! File calls that Linux serves from memory, made on the task's own thread.
//!
//! openat2(2) with `RESOLVE_CACHED` resolves a path only from the name cache, and preadv2(2) with
//! `RWF_NOWAIT` reads only from the page cache. Otherwise they fail without effect. Then, and after
//! any other error, the functions here return `None`, and a pool thread makes the whole call. So
//! nothing is in progress between two polls, and the kernel borrows no memory: nothing can be lost
//! when a future is dropped, a runtime closes, or the process forks.
//!
//! Most of an open cannot be asked not to block: a FIFO waits for its other end, a device for its
//! driver, FUSE for its daemon, which may be this thread. So the path is first opened with
//! `O_PATH`, and only a regular file on a known [`Disk`] is then opened for reading. fstatfs(2) can
//! block, too, so only pool threads ask for the type of a file system, for each file that they open
//! ([`Access::of`]); the answers are cached by device. If a device number is reused for another
//! file system, files are treated as on the former until a thread opens one there.
//!
//! Pitfalls:
//!
//! * The path may name another file the second time. With `O_NONBLOCK` that open returns
//!   immediately even for a FIFO, which is checked again and left to the pool. (A writer that
//!   blocks in its open proceeds meanwhile, and finds no reader.) A regular file ignores the flag,
//!   but fcntl(2) shows it, so it is cleared.
//! * Linux 5.9 and 5.10 return 0 for `RWF_NOWAIT` before the end of the file
//!   (<https://github.com/tokio-rs/tokio/issues/3803>). `RESOLVE_CACHED` came with 5.12.
//! * tmpfs refuses `RWF_NOWAIT`, but waits only for pages that were swapped out.
//! * ext4 refuses `RWF_NOWAIT` for buffered writes (`ext4_buffered_write_iter`), and others block
//!   if the file is `O_SYNC`: only files in memory are written here.
//! * A listener for permission events (fanotify(7)) is still waited for.
//! * An `O_DIRECT` read still waits for the disk.
//! * A file's position has a lock (`fdget_pos`), which duplicates share: a read here waits while a
//!   thread reads a duplicate from disk.

use std::fs;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::scheduler::budget::charge;

/// The maximum number of bytes of one read or write on the task's thread: about 50 µs, and the
/// whole budget of a task.
const MAX_BYTES: usize = 256 << 10;

/// The file's own position, which the call moves (preadv2(2)).
const POSITION: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Disk {
    /// Can be asked not to block.
    Cached = 1,
    /// Has its files in memory.
    Memory,
    /// Asks another process or machine, or is not known.
    Other,
}

/// File systems by magic number (statfs(2)). overlayfs is missing: it refuses `RWF_NOWAIT` (Linux
/// 6.18), and its layers may be on any other.
const DISKS: [(u64, Disk); 12] = [
    (0xEF53, Disk::Cached),      // ext2, ext3, ext4
    (0x5846_5342, Disk::Cached), // XFS
    (0x9123_683E, Disk::Cached), // Btrfs
    (0xF2F5_2010, Disk::Cached), // F2FS
    (0xCA45_1A4E, Disk::Cached), // bcachefs
    (0x2FC1_2FC1, Disk::Cached), // ZFS
    (0xE0F5_E1E2, Disk::Cached), // EROFS
    (0x7371_7368, Disk::Cached), // SquashFS
    (0x3153_464A, Disk::Cached), // JFS
    (0x4D44, Disk::Cached),      // FAT
    (0x0102_1994, Disk::Memory), // tmpfs
    (0x8584_58F6, Disk::Memory), // ramfs
];

/// The known devices: the number, and the [`Disk`] in the lowest two bits. 0 is a free entry.
/// Entries are replaced round-robin.
static DEVICES: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn disk_of(device: u64) -> Option<Disk> {
    let entries = DEVICES.iter().map(|entry| entry.load(Ordering::Relaxed));
    match entries.into_iter().find(|entry| entry >> 2 == device)? & 3 {
        1 => Some(Disk::Cached),
        2 => Some(Disk::Memory),
        _ => Some(Disk::Other),
    }
}

/// Concurrent calls may each add an entry, which is harmless.
fn set_disk(device: u64, disk: Disk) {
    let has = |entry: &&AtomicU64| entry.load(Ordering::Relaxed) >> 2 == device;
    let next = || &DEVICES[NEXT.fetch_add(1, Ordering::Relaxed) % DEVICES.len()];
    let entry = DEVICES.iter().find(has).unwrap_or_else(next);
    entry.store(device << 2 | disk as u64, Ordering::Relaxed);
}

/// Whether the kernel has these calls, and no sandbox refuses them.
pub(super) fn is_possible() -> bool {
    let refused = [Errno::INVAL, Errno::NOSYS, Errno::PERM, Errno::ACCESS];
    // Other errors are temporary, such as a lack of descriptors.
    open_path(Path::new("/")).map_or_else(|error| !refused.contains(&error), |_| true)
}

fn open_cached(path: &Path, flags: OFlags) -> rustix::io::Result<fs::File> {
    let flags = flags | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED);
    Ok(opened?.into())
}

fn open_path(path: &Path) -> rustix::io::Result<fs::File> {
    open_cached(path, OFlags::PATH)
}

/// The result of statx(2) for an open file, without asking a server.
struct Stat {
    is_regular: bool,
    device: u64,
    length: u64,
}

fn stat(file: &impl AsFd) -> rustix::io::Result<Stat> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mask = StatxFlags::TYPE | StatxFlags::SIZE;
    let found = rustix::fs::statx(file, "", flags, mask)?;
    Ok(Stat {
        is_regular: FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile,
        // The kernel's major and minor numbers have 12 and 20 bits.
        device: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
        length: found.stx_size,
    })
}

/// Opens a regular file of at most `max` bytes, on a known disk, for reading.
fn open_regular(path: &Path, max: u64) -> Option<(fs::File, Stat, Access)> {
    let fits = |found: &Stat| found.is_regular && found.length <= max;
    let fitting = |file: &fs::File| stat(file).ok().filter(fits);
    let found = fitting(&open_path(path).ok()?)?;
    disk_of(found.device).filter(|disk| *disk != Disk::Other)?;
    let file = open_cached(path, OFlags::NONBLOCK | OFlags::LARGEFILE).ok()?;
    let found = fitting(&file)?;
    let access = Access::on(disk_of(found.device)?);
    Some((file, found, access))
}

pub(super) fn open(path: &Path) -> Option<(fs::File, Access)> {
    let (file, _, access) = open_regular(path, u64::MAX)?;
    let flags = rustix::fs::fcntl_getfl(&file).ok()?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK).ok()?;
    Some((file, access))
}

pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let (file, found, mut access) = open_regular(path, MAX_BYTES as u64 - 1)?;
    let length = usize::try_from(found.length).ok()?;
    // A read that leaves the extra byte has reached the end. A shorter one may also be a hole in
    // the cache.
    let mut bytes = vec![0; length + 1];
    let read = access.read(&file, &mut bytes);
    read.filter(|read| *read == length)?;
    bytes.truncate(length);
    charge(length);
    Some(bytes)
}

pub(super) fn metadata(path: &Path) -> Option<fs::Metadata> {
    let file = open_path(path).ok()?;
    let disk = disk_of(stat(&file).ok()?.device)?;
    let metadata = (disk != Disk::Other).then(|| file.metadata())?;
    metadata.ok()
}

/// The operations on an open file that need no thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    disk: Disk,
    /// Whether a seek does not block.
    seeks: bool,
}

impl Access {
    fn on(disk: Disk) -> Access {
        let seeks = disk != Disk::Other;
        Access { disk, seeks }
    }

    /// Threads make all calls.
    pub(super) fn none() -> Access {
        Access::on(Disk::Other)
    }

    /// For an unknown file: the kernel refuses what it cannot do, except that a direct read would
    /// wait for the disk.
    pub(super) fn of_unknown(file: &fs::File) -> Access {
        let disk = match rustix::fs::fcntl_getfl(file) {
            Ok(flags) if !flags.contains(OFlags::DIRECT) => Disk::Cached,
            _ => Disk::Other,
        };
        Access { disk, seeks: false }
    }

    /// Asks for the kind of file, which may block.
    pub(super) fn of(file: &fs::File) -> Access {
        let unknown = Access::of_unknown(file);
        match stat(file) {
            Ok(found) if found.is_regular && unknown.disk != Disk::Other => {
                // Asked each time, since another file system may have the number by now.
                let number = rustix::fs::fstatfs(file).map_or(0, |found| found.f_type as u64);
                let known = DISKS.into_iter().find(|(known, _)| *known == number);
                let disk = known.map_or(Disk::Other, |(_, disk)| disk);
                if disk_of(found.device) != Some(disk) {
                    set_disk(found.device, disk);
                }
                Access::on(disk)
            }
            _ => unknown,
        }
    }

    /// Whether a read without a thread is worth an attempt.
    pub(super) fn reads(&self) -> bool {
        self.disk != Disk::Other
    }

    pub(super) fn writes(&self) -> bool {
        self.disk == Disk::Memory
    }

    pub(super) fn seeks(&self) -> bool {
        self.seeks
    }

    pub(super) fn read(&mut self, mut file: &fs::File, bytes: &mut [u8]) -> Option<usize> {
        let most = bytes.len().min(MAX_BYTES);
        let bytes = &mut bytes[..most];
        match self.disk {
            Disk::Other => None,
            Disk::Memory => file.read(bytes).ok(),
            Disk::Cached => {
                let slices = &mut [IoSliceMut::new(bytes)];
                let read = rustix::io::preadv2(file, slices, POSITION, ReadWriteFlags::NOWAIT);
                if let Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) = read {
                    self.disk = Disk::Other;
                }
                read.ok()
            }
        }
    }

    /// Writes at the file's position, or at its end if it was opened for appending.
    pub(super) fn write(&self, mut file: &fs::File, slices: &[IoSlice<'_>]) -> Option<usize> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let is_possible = self.writes() && length <= MAX_BYTES;
        let written = is_possible.then(|| file.write_vectored(slices))?;
        written.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Locked by tests that use the global table of devices.
    static DEVICES_ARE_MINE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// Numbers that no device has.
    fn device(nth: u64) -> u64 {
        1 << 60 | nth << 32
    }

    /// A device is known until others take its place.
    #[test]
    fn device_cache_kept_until_evicted() {
        let _mine = DEVICES_ARE_MINE.lock();
        assert_eq!(disk_of(device(0)), None);
        for (nth, disk) in [Disk::Cached, Disk::Memory, Disk::Other]
            .into_iter()
            .enumerate()
        {
            set_disk(device(nth as u64), disk);
            assert_eq!(disk_of(device(nth as u64)), Some(disk));
        }
        set_disk(device(0), Disk::Other);
        assert_eq!(disk_of(device(0)), Some(Disk::Other));
        for nth in 3..3 + DEVICES.len() as u64 {
            set_disk(device(nth), Disk::Cached);
        }
        assert_eq!(disk_of(device(0)), None);
    }

    /// A pipe is left to threads; a file is opened once its disk is known.
    #[test]
    fn pipe_left_alone_file_opened_once() {
        let _mine = DEVICES_ARE_MINE.lock();
        if !is_possible() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
        fs::write(&file, "text").unwrap();
        let access = Access::of(&fs::File::open(&file).unwrap());
        assert_eq!(open(&file).is_some(), access.seeks());
        assert_eq!(metadata(&pipe).is_some(), access.seeks());
        assert!(open(&pipe).is_none() && read(&pipe).is_none());
        assert!(open(folder.path()).is_none() && read(&folder.path().join("none")).is_none());
        if let Some(bytes) = read(&file) {
            assert_eq!(bytes, b"text");
        }
        fs::write(&file, vec![7; MAX_BYTES]).unwrap();
        assert!(read(&file).is_none(), "it is large");
    }

    #[test]
    fn a_device_and_a_direct_file_are_left_to_threads() {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        assert!(!Access::of(&full).writes() && !Access::of(&full).seeks());
        let flags = std::os::unix::fs::OpenOptionsExt::custom_flags;
        let mut options = fs::File::options();
        let direct = flags(options.read(true), OFlags::DIRECT.bits() as i32).open("Cargo.toml");
        // Some file systems have no direct files.
        if let Ok(file) = direct {
            assert!(!Access::of(&file).reads() && !Access::of_unknown(&file).reads());
        }
    }
}

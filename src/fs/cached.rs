//! File calls that Linux serves from memory: the task's own thread makes them.
//!
//! A regular file is always ready, so no poller can wait for it. But Linux can be asked not to
//! wait. openat2(2) with `RESOLVE_CACHED` resolves a path only from the cache of names, and
//! preadv2(2) with `RWF_NOWAIT` reads only from the page cache. Otherwise they fail, and have done
//! nothing. Then, and after any other error, a thread of the pool makes the whole call, as on other
//! systems: the functions here return `None`. So nothing is in progress between two polls that was
//! not before, and no memory is lent to the kernel: there is nothing to lose when a future is
//! dropped, a runtime closes, or the process forks.
//!
//! Opening is more than resolving a path, and most of it cannot be asked not to wait: a FIFO waits
//! for its other end, a device for its driver, FUSE for its daemon, which may be this thread. So
//! the path is first opened as a mere place (`O_PATH`), and only a regular file of a known [`Disk`]
//! is opened in fact. To ask for the kind of a file system can wait, too (fstatfs(2)), so only
//! threads of the pool do that, for each file that they open ([`Access::of`]); the answers are kept
//! by device. A device number may be used again for another file system: then a file that is opened
//! here is opened, read and written as one of the former, until a thread opens another one there.
//!
//! Traps:
//!
//! * The path may lead to another file the second time. `O_NONBLOCK` makes that open return at once
//!   even if it is a FIFO; it is looked at again, and left to the pool. (A writer that waits in its
//!   open goes on meanwhile, and finds no reader.) The flag means nothing to a
//!   regular file, but is seen by fcntl(2), so an open file does not keep it.
//! * Linux 5.9 and 5.10 return 0 for `RWF_NOWAIT` before the end of the file
//!   (<https://github.com/tokio-rs/tokio/issues/3803>). `RESOLVE_CACHED` is of 5.12.
//! * tmpfs refuses `RWF_NOWAIT`, but has nothing to wait for, except for pages that were swapped
//!   out, as any memory may be.
//! * ext4 refuses it for writes that are not direct (`ext4_buffered_write_iter`), and others wait
//!   if the file is `O_SYNC`: only files in memory are written here.
//! * A listener to permission events (fanotify(7)) is waited for nevertheless.
//! * With `O_DIRECT` a read waits for the disk nevertheless.
//! * A file's position has a lock (`fdget_pos`). It is the position of every duplicate, too: if a
//!   thread reads one from the disk meanwhile, a read here waits for that.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::scheduler::budget::charge;

/// The maximum number of bytes that are read or written at once on the task's thread: some 50 µs.
/// It is what a whole budget pays for.
const MAX_BYTES: usize = 256 << 10;

/// Means the file's own position, which the call moves (preadv2(2)).
const POSITION: u64 = u64::MAX;

/// The kind of a file system.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Disk {
    /// It can be asked not to wait.
    Cached,
    /// Its files are in memory.
    Memory,
    /// One that asks another process or machine, or is not known.
    Other,
}

/// File systems by number (statfs(2)). overlayfs is not among them: it refuses `RWF_NOWAIT` (Linux
/// 6.18), and may lie over any other.
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

/// The devices that are known: the number above two bits for the [`Disk`]; 0 is free. More devices
/// take the places of others in turn.
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

/// Threads that come at the same time may each add an entry, which does no harm.
fn set_disk(device: u64, disk: Disk) {
    let number = match disk {
        Disk::Cached => 1,
        Disk::Memory => 2,
        Disk::Other => 3,
    };
    let has = |entry: &&AtomicU64| entry.load(Ordering::Relaxed) >> 2 == device;
    let next = || &DEVICES[NEXT.fetch_add(1, Ordering::Relaxed) % DEVICES.len()];
    let entry = DEVICES.iter().find(has).unwrap_or_else(next);
    entry.store(device << 2 | number, Ordering::Relaxed);
}

/// Whether the kernel can be asked. A kernel may not know that, and a sandbox may refuse it.
pub(super) fn is_possible() -> bool {
    let refused = [Errno::INVAL, Errno::NOSYS, Errno::PERM, Errno::ACCESS];
    // Another error is one of this moment, such as a lack of descriptors.
    place(Path::new("/")).map_or_else(|error| !refused.contains(&error), |_| true)
}

fn open_cached(path: &Path, flags: OFlags) -> rustix::io::Result<fs::File> {
    let flags = flags | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED);
    Ok(opened?.into())
}

/// Opens a path only as a place.
fn place(path: &Path) -> rustix::io::Result<fs::File> {
    open_cached(path, OFlags::PATH)
}

/// The answer of statx(2) for an open file. No server is asked for it.
struct Look {
    is_regular: bool,
    device: u64,
    length: u64,
}

fn look(file: &impl AsFd) -> rustix::io::Result<Look> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mask = StatxFlags::TYPE | StatxFlags::SIZE;
    let found = rustix::fs::statx(file, "", flags, mask)?;
    Ok(Look {
        is_regular: FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile,
        // The kernel's numbers have 12 and 20 bits.
        device: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
        length: found.stx_size,
    })
}

/// Opens a regular file of a known disk for reading, if it has at most this many bytes.
fn open_regular(path: &Path, max: u64) -> Option<(fs::File, Look, Access)> {
    let fits = |look: &Look| look.is_regular && look.length <= max;
    let fitting = |file: &fs::File| look(file).ok().filter(fits);
    let found = fitting(&place(path).ok()?)?;
    disk_of(found.device).filter(|disk| *disk != Disk::Other)?;
    let file = open_cached(path, OFlags::NONBLOCK | OFlags::LARGEFILE).ok()?;
    let found = fitting(&file)?;
    let access = Access::on(disk_of(found.device)?);
    Some((file, found, access))
}

/// Opens a file for reading.
pub(super) fn open(path: &Path) -> Option<(fs::File, Access)> {
    let (file, _, access) = open_regular(path, u64::MAX)?;
    let flags = rustix::fs::fcntl_getfl(&file).ok()?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK).ok()?;
    Some((file, access))
}

/// Reads a whole file, if it is small.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let (file, found, mut access) = open_regular(path, MAX_BYTES as u64 - 1)?;
    let length = usize::try_from(found.length).ok()?;
    // With room for one byte more a read that leaves room has come to the end.
    let mut bytes = vec![0; length + 1];
    match access.read(&file, &mut bytes) {
        Some(read) if read <= length => {
            bytes.truncate(read);
            charge(read);
            // It may be a hole in the cache, too.
            (read == length).then_some(bytes)
        }
        _ => {
            if !access.reads() {
                set_disk(found.device, Disk::Other);
            }
            None
        }
    }
}

/// Returns the metadata of a path.
pub(super) fn metadata(path: &Path) -> Option<fs::Metadata> {
    let file = place(path).ok()?;
    let disk = disk_of(look(&file).ok()?.device)?;
    let metadata = (disk != Disk::Other).then(|| file.metadata())?;
    metadata.ok()
}

/// The operations on an open file that need no thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    disk: Disk,
    /// Whether a seek does not wait.
    seeks: bool,
}

impl Access {
    fn on(disk: Disk) -> Access {
        let seeks = disk != Disk::Other;
        Access { disk, seeks }
    }

    /// Threads do everything.
    pub(super) fn none() -> Access {
        Access::on(Disk::Other)
    }

    /// For a file of which nothing is known: the kernel refuses what it cannot do. (But a direct
    /// read would wait for the disk.)
    pub(super) fn of_unknown(file: &fs::File) -> Access {
        let is_direct = rustix::fs::fcntl_getfl(file).map(|flags| flags.contains(OFlags::DIRECT));
        Access {
            disk: if is_direct == Ok(false) {
                Disk::Cached
            } else {
                Disk::Other
            },
            seeks: false,
        }
    }

    /// Asks what kind of file it is, which may wait.
    pub(super) fn of(file: &fs::File) -> Access {
        let unknown = Access::of_unknown(file);
        match look(file) {
            Ok(found) if found.is_regular && unknown.disk != Disk::Other => {
                // Each time, since another file system may have the number by now.
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

    /// Whether a read is worth an attempt.
    pub(super) fn reads(&self) -> bool {
        self.disk != Disk::Other
    }

    pub(super) fn writes(&self) -> bool {
        self.disk == Disk::Memory
    }

    pub(super) fn seeks(&self) -> bool {
        self.seeks
    }

    /// Reads at the file's position.
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
        if is_possible {
            file.write_vectored(slices).ok()
        } else {
            None
        }
    }

    /// Moves the file's position.
    pub(super) fn seek(&self, mut file: &fs::File, to: SeekFrom) -> Option<io::Result<u64>> {
        self.seeks.then(|| file.seek(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Held by those who use the table of devices, which is one for all.
    static DEVICES_ARE_MINE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// Numbers that no device has.
    fn device(nth: u64) -> u64 {
        1 << 60 | nth << 32
    }

    /// The properties of a device are cached until others take their place.
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

    /// A pipe is left alone and a file is opened once its disk is known.
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
        // Some file systems have no such files.
        if let Ok(file) = direct {
            assert!(!Access::of(&file).reads() && !Access::of_unknown(&file).reads());
        }
    }
}

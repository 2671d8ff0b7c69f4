//! A file system in memory that knows what a power failure may leave of it.
//!
//! A program that has to keep its data must be right whenever the power fails. A [`Disk`] answers
//! its calls as Linux does, and [`Disk::lose_power`] replaces the contents by some that a power
//! failure could leave. The caller draws the random numbers, so the same numbers have the same
//! result. `polder` has such disks in its simulated worlds; nothing here depends on it.
//!
//! ```
//! use polder_sim::power_loss::{Disk, OpenFlags, SyncEnd};
//! use std::collections::BTreeSet;
//!
//! let create = OpenFlags { write: true, create: true, ..OpenFlags::default() };
//! let read = OpenFlags { read: true, ..OpenFlags::default() };
//! let mut random = fastrand::Rng::with_seed(1);
//! let mut all = BTreeSet::new();
//! for _ in 0..200 {
//!     let mut disk = Disk::default();
//!     let file = disk.open("/value".as_ref(), create, 0)?;
//!     disk.write(file, 0, b"old")?;
//!     let last = disk.begin_sync(file)?;
//!     disk.end_sync(file, last, SyncEnd::Done)?;
//!     disk.write(file, 0, b"newer")?;
//!     disk.lose_power(&mut |end| random.u64(..end), |_, _| true);
//!     let file = disk.open("/value".as_ref(), read, 0);
//!     all.insert(file.and_then(|file| disk.read_all(file)).ok());
//! }
//! // The directory was not synced, so the file may be gone.
//! let expected = [None, Some(&b"new"[..]), Some(b"newer"), Some(b"old"), Some(b"old\0\0")];
//! assert_eq!(all, expected.map(|bytes| bytes.map(<[u8]>::to_vec)).into());
//! # Ok::<(), polder_sim::power_loss::Error>(())
//! ```
//!
//! Processes read immediately what was written, and the end of a process loses nothing: see
//! [`Disk::close_all`]. Calls take no time.
//!
//! # What a power failure leaves
//!
//! Everything that was synced. Of the other changes, for each file and each directory separately:
//! nothing, everything, or something between.
//!
//! * **A file's bytes**, by sectors of 512: each sector is as it was at the last sync or after any
//!   write since, independently of the others. So a write may survive in part (torn), and a later
//!   one without an earlier one. A sector itself is never torn.
//! * **A file's length** is journaled: it is that of some moment since the last sync. Where it has
//!   grown and the bytes have not arrived, they read as zeroes. A truncation may be lost like any
//!   change; if it survives, the bytes that it has cut off do not come back, and later writes to
//!   the sector do not survive without it.
//! * **Names** are journaled when they are made, renamed or removed. A change survives as a whole
//!   or not at all, so a rename replaces a file atomically. A *prefix* of each directory's changes
//!   since its last sync survives, in their order. Changes of different directories have no order,
//!   as POSIX gives them none and file systems differ (Pillai et al., "All File Systems Are Not
//!   Created Equal", OSDI 2014). The exceptions are a move between directories and the removal of a
//!   directory, which survive only with all changes before them. What is moved is at one place, the
//!   old or the new one.
//!
//! # Syncs
//!
//! A sync covers what was written before it began, and is done when it ends: fsync(2) promises no
//! more. A file's sync does not cover its name: that takes a sync of its directory. (ext4 and XFS
//! do more than they promise there.)
//!
//! A sync that fails marks the sectors that it should have written as clean, as Linux's file
//! systems do (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020;
//! PostgreSQL's "fsyncgate" of 2018): reads still see the bytes, the next sync succeeds, and a
//! power failure shows that they were never written. The failure is reported once to each open file
//! of that time (`errseq_t`, since Linux 4.13).
//!
//! # Disks that err
//!
//! On request a sync loses the write of one sector, or writes it to the place of another one, and
//! succeeds ([`SyncEnd`]); and a bit of what is read has changed ([`Disk::rot`]).
//!
//! # What is not modelled
//!
//! Links, permissions, times and locks; writeback after some time (nothing is safe before it was
//! synced, however old it is); torn sectors; a file system that turns read-only after an error; a
//! slash at the end of a file's name, which Linux refuses (`ENOTDIR`) and this ignores. Other
//! errors, and `..`, are those of Linux on every platform. Unsynced data is kept in memory until it
//! is synced.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod calls;
mod disk;
mod journal;
mod leaves;
mod nodes;
mod sectors;

pub use calls::{Error, Loss, Meta, Note, OpenFlags, SyncEnd};
pub use disk::Disk;

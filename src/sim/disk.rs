//! [`Disk`]: what a test sets of a host's disk.

use super::kernel::host_faults::DiskFaults;
use super::kernel::latency::Latency;
use super::links::of;
use super::world::kernel as with_kernel;

/// The disk of a host: of [`Host::disk`](super::Host::disk). Its processes use it by
/// [`fs`](super::fs). It survives their ends; what of it a power-off leaves is said there.
///
/// Its faults are off unless they are set, each a probability from 0 to 1;
/// [`Sim::quiesce`](super::Sim::quiesce) ends them.
///
/// ```
/// use polder::sim::{Latency, fs};
/// use std::io::ErrorKind;
/// use std::time::Duration;
///
/// polder::sim::check(0..10, |sim| async move {
///     let store = sim.host("store");
///     let latency = Latency::fixed(Duration::from_millis(8)); // It has to turn.
///     store.disk().latency(latency).sync_latency(latency).capacity(1_024);
///     let store = store.start(|| async {
///         fs::write("/full", [0; 1_024]).await?;
///         fs::write("/more", [0; 1]).await
///     });
///     let more = store.finished().within(Duration::from_secs(1)).await;
///     assert_eq!(more.unwrap_err().kind(), ErrorKind::StorageFull);
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Disk(pub(super) usize);

impl Disk {
    /// Sets how long a call takes that is no sync. By default that is 5 to 100 µs, as if a thread
    /// of a pool made it, and all were cached.
    pub fn latency(self, latency: Latency) -> Disk {
        with_kernel(|kernel| kernel.set_disk_latency(self.0, latency, false));
        self
    }

    /// Sets how long a sync takes. By default that is 0.5 to 1.5 ms.
    pub fn sync_latency(self, latency: Latency) -> Disk {
        with_kernel(|kernel| kernel.set_disk_latency(self.0, latency, true));
        self
    }

    /// Sets how many bytes of files it holds, in sectors of 512: beyond that writing gives
    /// [`StorageFull`](std::io::ErrorKind::StorageFull) (`ENOSPC`), or writes what there is room
    /// for. By default there is no limit. Directories and holes take nothing.
    pub fn capacity(self, bytes: u64) -> Disk {
        with_kernel(|kernel| kernel.set_disk_capacity(self.0, bytes));
        self
    }

    /// A call that reads fails (`EIO`): of a file, a directory, or metadata.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn read_errors(self, probability: f64) -> Disk {
        let probability = of(probability);
        self.change(|it| it.read = probability)
    }

    /// A call that writes fails (`EIO`), and changes nothing: of bytes, of a length, or of names.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn write_errors(self, probability: f64) -> Disk {
        let probability = of(probability);
        self.change(|it| it.write = probability)
    }

    /// A sync fails (`EIO`). As on Linux, the bytes that it was to write count as written: reads
    /// see them, the next sync succeeds, and a power-off shows that they are not on the disk. Each
    /// [`File`](super::fs::File) that was open then is told once, also by a sync that is done.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::sim::fs::{self, File};
    /// use std::time::Duration;
    ///
    /// polder::sim::check(0..10, |sim| async move {
    ///     sim.host("store").disk().sync_errors(1.0);
    ///     let store = sim.host("store").start(|| async {
    ///         let mut file = File::create("/log").await?;
    ///         file.write_all(b"entry").await?;
    ///         file.sync_all().await
    ///     });
    ///     assert!(store.finished().within(Duration::from_secs(1)).await.is_err());
    ///     // A try again helps nothing.
    ///     store.disk().sync_errors(0.0);
    ///     let store = sim.host("store").start(|| async {
    ///         let again = File::open("/log").await?.sync_all().await;
    ///         File::open("/").await?.sync_all().await?;
    ///         again
    ///     });
    ///     assert!(store.finished().within(Duration::from_secs(1)).await.is_ok());
    ///     store.power_off();
    ///     let store = sim.host("store").start(|| fs::read("/log"));
    ///     let log = store.finished().within(Duration::from_secs(1)).await;
    ///     assert_eq!(log.unwrap(), [0; 5]);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn sync_errors(self, probability: f64) -> Disk {
        let probability = of(probability);
        self.change(|it| it.sync = probability)
    }

    /// A sync takes up to two seconds more.
    ///
    /// # Panics
    ///
    /// Unless the probability is from 0 to 1.
    #[track_caller]
    pub fn slow_syncs(self, probability: f64) -> Disk {
        let probability = of(probability);
        self.change(|it| it.slow = probability)
    }

    fn change(self, f: impl FnOnce(&mut DiskFaults)) -> Disk {
        with_kernel(|kernel| kernel.change_faults(self.0, |it| f(&mut it.disk)));
        self
    }
}

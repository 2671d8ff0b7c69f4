//! [`Disk`]: the settings of a host's disk.

use super::machine::Faults;
use crate::world::faults::Kind;
use crate::world::latency::Latency;
use crate::world::thread::kernel as with_kernel;

/// The disk of a host, returned by [`Host::disk`](super::Host::disk). The host's processes use it
/// through [`fs`](polder::fs), as they use the system's disk outside of worlds. It outlives them.
///
/// # What survives
///
/// * **[`Host::kill`](super::Host::kill) and every other end of a process:** everything that was
///   written.
/// * **[`Host::power_off`](super::Host::power_off):** everything that was synced. The rest is
///   random, and drawn for each power-off:
///   * a file's bytes, by sectors of 512: each sector is as it was at the last sync or after any
///     write since, independently of the others. So one write may be there in part (torn), and a
///     later one without an earlier one;
///   * the length: that of any moment since the last sync. If it has grown and the bytes are
///     missing, they read as zeroes. A truncation may be lost like any change; if it is there, the
///     bytes that it has cut off do not come back;
///   * the names in a directory (created, removed, renamed): a prefix, in order, of the changes
///     since the directory was synced. A rename is there as a whole or not at all.
///
/// As fsync(2) says, syncing a file does not sync its name: that takes
/// `File::open(directory).await?.sync_all().await?`. A sync covers everything that was written
/// before it began. Changes that are not synced are kept in memory.
///
/// A loss at a power-off is a fault, one for each file and each directory. The report of a failure
/// names those that the failure needs.
///
/// ```
/// use polder::fs;
/// use polder::io::AsyncWriteExt;
/// use polder_sim::Sim;
/// use std::io::{ErrorKind, Result};
/// use std::time::Duration;
///
/// /// Replaces what is stored, so that it is there, old or new, whatever happens.
/// async fn store(value: &str) -> Result<()> {
///     let mut file = fs::File::create("/data/new").await?;
///     file.write_all(value.as_bytes()).await?;
///     file.sync_all().await?; // Or the name may come without the bytes.
///     fs::rename("/data/new", "/data/value").await?;
///     fs::File::open("/data").await?.sync_all().await // Or the name may not come.
/// }
///
/// polder_sim::check(0..100, |sim: Sim| async move {
///     let limit = Duration::from_secs(1);
///     let host = sim.host("store").start(|| async {
///         fs::create_dir_all("/data").await?;
///         fs::File::open("/").await?.sync_all().await?;
///         store("old").await?;
///         store("new").await
///     });
///     sim.sleep(Duration::from_micros(sim.choose(7_000))).await;
///     host.power_off();
///     let host = sim.host("store").start(|| fs::read_to_string("/data/value"));
///     match host.finished().within(limit).await {
///         Ok(value) => assert!(value == "old" || value == "new"),
///         Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
///     }
/// });
/// ```
///
/// # Settings
///
/// Its faults are off unless they are set; each has a probability from 0 to 1.
/// [`Sim::quiesce`](super::Sim::quiesce) ends them.
///
/// ```
/// use polder::fs;
/// use polder_sim::Latency;
/// use std::io::ErrorKind;
/// use std::time::Duration;
///
/// polder_sim::check(0..10, |sim| async move {
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
    /// Sets how long a call other than a sync takes. The default is 5 to 100 µs, as for a call that
    /// a pool's thread makes and that finds everything cached.
    ///
    /// ```
    /// use polder::fs;
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let millisecond = Duration::from_millis(1);
    ///     sim.host("test").disk().latency(Latency::fixed(millisecond));
    ///     fs::create_dir("/data").await.unwrap();
    ///     assert_eq!(sim.now(), millisecond);
    /// });
    /// ```
    pub fn latency(self, latency: Latency) -> Disk {
        with_kernel(|kernel| kernel.disks.of(self.0, kernel.core.seed).latency = latency);
        self
    }

    /// Sets how long a sync takes. The default is 0.5 to 1.5 ms.
    ///
    /// ```
    /// use polder::fs;
    /// use polder_sim::Latency;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let long = Duration::from_secs(3);
    ///     sim.host("test").disk().sync_latency(Latency::fixed(long));
    ///     fs::File::open("/").await?.sync_all().await?;
    ///     assert!(sim.now() > long);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn sync_latency(self, latency: Latency) -> Disk {
        with_kernel(|kernel| kernel.disks.of(self.0, kernel.core.seed).sync_latency = latency);
        self
    }

    /// Sets the capacity for files in bytes, in sectors of 512. A write that exceeds it is cut
    /// short, or fails with [`StorageFull`](std::io::ErrorKind::StorageFull) (`ENOSPC`). By default
    /// there is no limit. Directories and holes take no space.
    ///
    /// ```
    /// use polder::fs;
    /// use std::io::ErrorKind;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("test").disk().capacity(512);
    ///     let error = fs::write("/a", [0; 513]).await.unwrap_err();
    ///     assert_eq!(error.kind(), ErrorKind::StorageFull);
    ///     assert_eq!(fs::metadata("/a").await.unwrap().len(), 512);
    /// });
    /// ```
    pub fn capacity(self, bytes: u64) -> Disk {
        with_kernel(|kernel| kernel.disks.of(self.0, kernel.core.seed).disk.capacity = Some(bytes));
        self
    }

    /// Sets the probability that a call that reads a file, a directory or metadata fails (`EIO`).
    ///
    /// ```
    /// use polder::fs;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     fs::write("/a", "text").await?;
    ///     sim.host("test").disk().read_errors(1.0);
    ///     assert!(fs::read("/a").await.is_err());
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn read_errors(self, probability: f64) -> Disk {
        self.set(Kind::DiskRead, probability)
    }

    /// Sets the probability that a call that writes bytes, or changes a length or names, fails
    /// (`EIO`). A call that fails changes nothing.
    ///
    /// ```
    /// use polder::fs;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     let disk = sim.host("test").disk().write_errors(1.0);
    ///     assert!(fs::create_dir("/a").await.is_err());
    ///     disk.write_errors(0.0);
    ///     assert!(fs::create_dir("/a").await.is_ok());
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn write_errors(self, probability: f64) -> Disk {
        self.set(Kind::DiskWrite, probability)
    }

    /// Sets the probability that a sync fails (`EIO`). As on Linux, the bytes that it should have
    /// written count as written: reads return them, the next sync succeeds, and only a power-off
    /// shows that they are not on the disk. Each [`File`](polder::fs::File) that was open at the
    /// time reports the error once, even if its own sync succeeds.
    ///
    /// ```
    /// use polder::io::AsyncWriteExt;
    /// use polder::fs::{self, File};
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..10, |sim| async move {
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
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn sync_errors(self, probability: f64) -> Disk {
        self.set(Kind::DiskSync, probability)
    }

    /// Sets the probability that a sync takes up to two seconds longer.
    ///
    /// ```
    /// use polder::fs::File;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     sim.host("test").disk().slow_syncs(1.0);
    ///     File::open("/").await?.sync_all().await?;
    ///     polder::sometimes!(sim.now().as_millis() > 100, "a sync is slow");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn slow_syncs(self, probability: f64) -> Disk {
        self.set(Kind::SlowSync, probability)
    }

    /// Sets the probability that a call that reads finds one bit of a file changed (bit rot), which
    /// stays so until the sector is written again. Bytes that were not synced are in memory, and do
    /// not change.
    ///
    /// ```
    /// use polder::fs::{self, File};
    /// use polder::io::AsyncWriteExt;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     let mut file = File::create("/a").await?;
    ///     file.write_all(b"text").await?;
    ///     file.sync_all().await?;
    ///     sim.host("test").disk().bit_rot(1.0);
    ///     assert_ne!(fs::read("/a").await?, b"text");
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn bit_rot(self, probability: f64) -> Disk {
        self.set(Kind::BitRot, probability)
    }

    /// Sets the probability that a sync of a file succeeds, although a sector has not come to the
    /// disk (a lost write). Reads see what was written, and a power-off shows what is there.
    ///
    /// ```
    /// use polder::fs::{self, File};
    /// use polder::io::AsyncWriteExt;
    /// use std::time::Duration;
    ///
    /// polder_sim::check(0..10, |sim| async move {
    ///     let limit = Duration::from_secs(1);
    ///     let store = sim.host("store");
    ///     store.disk().lost_writes(1.0);
    ///     let writer = store.start(|| async {
    ///         let mut file = File::create("/a").await?;
    ///         file.write_all(b"text").await?;
    ///         file.sync_all().await?;
    ///         File::open("/").await?.sync_all().await
    ///     });
    ///     writer.finished().within(limit).await?;
    ///     store.power_off();
    ///     let reader = store.start(|| fs::read("/a"));
    ///     assert_eq!(reader.finished().within(limit).await?, [0; 4]);
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn lost_writes(self, probability: f64) -> Disk {
        self.set(Kind::LostWrite, probability)
    }

    /// Sets the probability that a sync of a file succeeds, although a sector was written to the
    /// place of another one of the file (a misdirected write). Its own place is as it was, as with
    /// [`lost_writes`](Self::lost_writes), and a power-off shows that.
    ///
    /// ```
    /// use polder::fs;
    ///
    /// polder_sim::check(0..1, |sim| async move {
    ///     sim.host("test").disk().misdirected_writes(0.1);
    ///     // … a store with checksums, and the place of each entry in it.
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// If the probability is not from 0 to 1.
    #[track_caller]
    pub fn misdirected_writes(self, probability: f64) -> Disk {
        self.set(Kind::Misdirected, probability)
    }

    #[track_caller]
    fn set(self, kind: Kind, probability: f64) -> Disk {
        Faults(self.0).set(kind, probability);
        self
    }
}

//! Files against a model: reads, writes, seeks and opens, the futures of some of which are dropped
//! at random points, while parts of the file leave the kernel's memory. Each byte is read and
//! written once, and the position is the one that the program has seen.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use polder::fs::{self, File, OpenOptions};
use polder::future::{or, yield_now};
use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
use polder::{Backend, Runtime};

use crate::{Rng, fuzz};

/// How many futures were dropped before their end.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Files agree with a model when operations are dropped.
#[test]
fn files_match_model_with_drops() {
    fuzz("files_agree_with_a_model", 20_000, |backend, rng| {
        case(backend, rng)
    });
    let dropped = DROPPED.load(Ordering::Relaxed);
    println!("files_agree_with_a_model: {dropped} futures dropped");
    assert!(dropped > 0 || !uses_threads(), "each was ready at once");
}

/// Whether threads make all calls.
fn uses_threads() -> bool {
    std::env::var_os("POLDER_FS").is_some_and(|way| way == "pool")
}

#[cfg(target_os = "linux")]
#[test]
fn the_same_holds_if_threads_make_all_calls() {
    if std::env::var_os("POLDER_FS").is_some() {
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["files::files_match_model", "--nocapture"]);
    // Each of its cases has a deadline.
    let output = command.env("POLDER_FS", "pool").output();
    let output = output.expect("this program starts");
    let [said, complained] = [output.stdout, output.stderr];
    let said = String::from_utf8_lossy(&said);
    print!("{said}");
    assert!(
        output.status.success() && said.contains("1 passed"),
        "with POLDER_FS=pool: {}",
        String::from_utf8_lossy(&complained)
    );
}

/// Awaits an operation, or drops it: at once, or after a random number of the worker's turns.
async fn attempt<T>(rng: &mut Rng, operation: impl Future<Output = T>) -> Option<T> {
    if rng.one_in(2) {
        return Some(operation.await);
    }
    let turns = rng.pick(&[0, 0, 1, 3, 10, 30]);
    let ended = async { Some(operation.await) };
    let dropped = async {
        for _ in 0..turns {
            yield_now().await;
        }
        DROPPED.fetch_add(1, Ordering::Relaxed);
        None
    };
    or(ended, dropped).await
}

/// The maximum length of the file: some of the kernel's pages.
const MAX_LENGTH: usize = 100_000;
const MAX_TRANSFER: usize = 9_000;
const STEPS: u64 = 400;

struct Model {
    file: File,
    bytes: Vec<u8>,
    position: usize,
    options: OpenOptions,
    appends: bool,
}

fn case(backend: Backend, rng: &mut Rng) -> u64 {
    // Of two kinds, if this machine has them.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() && rng.one_in(3) {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    let folder = folder.expect("a directory can be made");
    let path = folder.path().join("file");
    let runtime = Runtime::builder().backend(backend).build().unwrap();
    runtime.block_on(async {
        let bytes: Vec<u8> = (0..rng.below(MAX_LENGTH))
            .map(|_| rng.number() as u8)
            .collect();
        fs::write(&path, &bytes).await.unwrap();
        let appends = rng.one_in(4);
        let mut options = OpenOptions::new();
        options.read(true).write(!appends).append(appends);
        let file = options.open(&path).await.unwrap();
        let mut model = Model {
            file,
            bytes,
            position: 0,
            options,
            appends,
        };
        for _ in 0..STEPS {
            match rng.below(20) {
                0 => {
                    let read = attempt(rng, fs::read(&path)).await;
                    let is_same = |read: Result<_, _>| read.unwrap() == model.bytes;
                    assert!(read.is_none_or(is_same), "by others");
                }
                // A thread reads what is in memory and what is not alike.
                1 if !uses_threads() => forget(&path, rng),
                2 => model.open_again(&path, rng).await,
                3..5 => model.seek(rng).await,
                5..10 => model.write(rng).await,
                _ => model.read(rng).await,
            }
        }
        assert!(fs::read(&path).await.unwrap() == model.bytes, "at the end");
    });
    STEPS
}

/// Has the kernel forget a part of the file.
fn forget(path: &Path, rng: &mut Rng) {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Advice, fadvise};

        let file = std::fs::File::open(path).unwrap();
        // Pages that were changed stay.
        file.sync_data().unwrap();
        let length = std::num::NonZeroU64::new(1 + rng.below(MAX_LENGTH) as u64);
        fadvise(
            &file,
            rng.below(MAX_LENGTH) as u64,
            length,
            Advice::DontNeed,
        )
        .unwrap();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (path, rng);
}

impl Model {
    /// Opens the file again, and closes it while a read may be in progress.
    async fn open_again(&mut self, path: &Path, rng: &mut Rng) {
        let mut buffer = vec![0; 1 + rng.below(MAX_TRANSFER)];
        let _ = attempt(rng, self.file.read(&mut buffer)).await;
        let opened = match attempt(rng, self.options.open(path)).await {
            Some(opened) => opened,
            None => self.options.open(path).await,
        };
        self.file = opened.unwrap();
        self.position = 0;
    }

    async fn read(&mut self, rng: &mut Rng) {
        let mut buffer = vec![0; 1 + rng.below(MAX_TRANSFER)];
        let read = attempt(rng, self.file.read(&mut buffer)).await;
        let Some(length) = read.map(|read| read.unwrap()) else {
            return;
        };
        let left = self.bytes.get(self.position..).unwrap_or_default();
        assert_eq!(
            length == 0,
            left.is_empty(),
            "{length} of {} bytes",
            left.len()
        );
        assert!(
            left.starts_with(&buffer[..length]),
            "{length} bytes at {}",
            self.position
        );
        self.position += length;
    }

    async fn write(&mut self, rng: &mut Rng) {
        if self.bytes.len().max(self.position) > 2 * MAX_LENGTH {
            return;
        }
        let length = 1 + rng.below(MAX_TRANSFER);
        let bytes: Vec<u8> = (0..length).map(|_| rng.number() as u8).collect();
        let written = attempt(rng, self.file.write(&bytes)).await;
        let length = match written {
            Some(written) => written.unwrap(),
            None if rng.one_in(2) => self.file.write(&bytes).await.unwrap(),
            // It may be made or not.
            None => {
                self.file.flush().await.unwrap();
                if self.appends {
                    self.file.metadata().await.unwrap().len() as usize - self.bytes.len()
                } else {
                    let now = self.file.seek(SeekFrom::Current(0)).await.unwrap();
                    now as usize - self.position
                }
            }
        };
        if length == 0 {
            return;
        }
        if self.appends {
            self.position = self.bytes.len();
        }
        let end = self.position + length;
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[self.position..end].copy_from_slice(&bytes[..length]);
        self.position = end;
    }

    async fn seek(&mut self, rng: &mut Rng) {
        let to = rng.below(MAX_LENGTH + MAX_LENGTH / 10);
        let from = match rng.below(3) {
            0 => SeekFrom::Start(to as u64),
            1 => SeekFrom::Current(to as i64 - self.position as i64),
            _ => SeekFrom::End(to as i64 - self.bytes.len() as i64),
        };
        let sought = attempt(rng, self.file.seek(from)).await;
        self.position = match sought {
            Some(sought) => {
                assert_eq!(sought.unwrap(), to as u64);
                to
            }
            // It may be made or not.
            None => self.file.seek(SeekFrom::Current(0)).await.unwrap() as usize,
        };
    }
}

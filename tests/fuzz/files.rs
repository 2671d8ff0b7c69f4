//! Files against a model: reads, writes and seeks, the futures of some of which are dropped, while
//! parts of the file leave the kernel's memory. Each byte is read and written once, and the
//! position is the one that the program has seen.

use std::path::Path;

use polder::fs::{self, File, OpenOptions};
use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
use polder::{Backend, Runtime};

use crate::{Rng, fuzz};

#[test]
fn files_agree_with_a_model_when_operations_are_dropped() {
    fuzz("files_agree_with_a_model", 20_000, |backend, rng| {
        case(backend, rng)
    });
}

/// The maximum length of the file: some of the kernel's pages.
const MAX_LENGTH: usize = 100_000;
const MAX_TRANSFER: usize = 9_000;
const STEPS: u64 = 400;

struct Model {
    file: File,
    bytes: Vec<u8>,
    position: usize,
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
            appends,
        };
        for _ in 0..STEPS {
            match rng.below(20) {
                0 => assert!(fs::read(&path).await.unwrap() == model.bytes, "by others"),
                1 => forget(&path, rng),
                2..5 => model.seek(rng).await,
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
    async fn read(&mut self, rng: &mut Rng) {
        let mut buffer = vec![0; 1 + rng.below(MAX_TRANSFER)];
        let read = if rng.one_in(3) {
            poll_once(self.file.read(&mut buffer)).await
        } else {
            Some(self.file.read(&mut buffer).await)
        };
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
        let written = if rng.one_in(3) {
            poll_once(self.file.write(&bytes)).await
        } else {
            Some(self.file.write(&bytes).await)
        };
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
        let sought = if rng.one_in(3) {
            poll_once(self.file.seek(from)).await
        } else {
            Some(self.file.seek(from).await)
        };
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

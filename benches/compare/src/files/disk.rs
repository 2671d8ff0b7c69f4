//! The files: made once, in the folder of the results, and left for the next measurement.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::results::Results;

/// The size of a small file, and how many there are.
pub const SMALL: usize = 2048;
const FILES: usize = 10_000;

/// The size of a read of the large file, and how many of them it has.
pub const CHUNK: usize = 64 << 10;
pub const CHUNKS: u64 = 4096;

/// The size of a read at a random place.
pub const PAGE: usize = 4096;

/// Returns the paths of the small files that are read.
pub fn small() -> io::Result<&'static [PathBuf]> {
    files("small")
}

/// Returns the paths of the small files that are written.
pub fn written() -> io::Result<&'static [PathBuf]> {
    files("written")
}

fn files(name: &str) -> io::Result<&'static [PathBuf]> {
    let folder = Results::folder()?.join(name);
    let paths: Vec<PathBuf> = (0..FILES)
        .map(|number| folder.join(number.to_string()))
        .collect();
    let last = &paths[FILES - 1];
    // Written last, so all are there if it is.
    if !fs::exists(last)? {
        fs::create_dir_all(&folder)?;
        for path in &paths {
            fs::write(path, [7; SMALL])?;
        }
    }
    // Lives as long as the process.
    Ok(paths.leak())
}

/// Returns the path of the large file that is read.
pub fn large() -> io::Result<PathBuf> {
    large_file("large")
}

/// Returns the path of the large file that is written.
pub fn large_written() -> io::Result<PathBuf> {
    large_file("large-written")
}

/// Returns the path of the large file of which nothing stays in memory.
pub fn cold() -> io::Result<PathBuf> {
    large_file("cold")
}

fn large_file(name: &str) -> io::Result<PathBuf> {
    let folder = Results::folder()?;
    let path = folder.join(name);
    let size = CHUNK as u64 * CHUNKS;
    if !fs::metadata(&path).is_ok_and(|found| found.len() == size) {
        fs::create_dir_all(&folder)?;
        let mut file = File::create(&path)?;
        for _ in 0..CHUNKS {
            file.write_all(&[7; CHUNK])?;
        }
        // The kernel forgets nothing that is not on the disk.
        file.sync_all()?;
    }
    Ok(path)
}

/// Opens a file, and has the kernel forget it. (It may have it in pieces of many pages, of which it
/// would forget only whole ones. After reads of a page they are pages.)
pub fn forgotten(path: &Path) -> File {
    let file = File::open(path).expect("it is there");
    forget(&file, 0, 0);
    file
}

/// Has the kernel forget a part of a file, so that it has to be read from the disk. No length means
/// all of it.
pub fn forget(file: &File, place: u64, length: usize) {
    let [place, length] = [place, length as u64].map(|number| number as libc::off_t);
    // SAFETY: the call takes numbers.
    let result =
        unsafe { libc::posix_fadvise(file.as_raw_fd(), place, length, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0, "it is a file");
}

/// Returns the place of a page of the large file: scattered, and the same in each run.
pub fn place(number: u64) -> u64 {
    let pages = CHUNK as u64 * CHUNKS / PAGE as u64;
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % pages * PAGE as u64
}

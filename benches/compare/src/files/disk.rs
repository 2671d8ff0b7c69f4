//! The files: made once, in the folder of the results, and left for the next measurement.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::results::Results;

/// The size of a small file, and how many there are.
pub const SMALL: usize = 2048;
const FILES: usize = 10_000;

/// The size of a read of the large file, and how many of them it has.
pub const CHUNK: usize = 64 << 10;
pub const CHUNKS: u64 = 4096;

/// The size of a read at a random place.
pub const PAGE: usize = 4096;

/// Returns the paths of the small files.
pub fn small() -> io::Result<&'static [PathBuf]> {
    let folder = Results::folder()?.join("small");
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

/// Returns the path of the large file.
pub fn large() -> io::Result<PathBuf> {
    let path = Results::folder()?.join("large");
    let size = CHUNK as u64 * CHUNKS;
    if !fs::metadata(&path).is_ok_and(|found| found.len() == size) {
        let mut file = File::create(&path)?;
        for _ in 0..CHUNKS {
            file.write_all(&[7; CHUNK])?;
        }
    }
    Ok(path)
}

/// Returns the place of a page of the large file: scattered, and the same in each run.
pub fn place(number: u64) -> u64 {
    let pages = CHUNK as u64 * CHUNKS / PAGE as u64;
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % pages * PAGE as u64
}

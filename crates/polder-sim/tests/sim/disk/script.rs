//! Compares `polder::fs`, on the system's disk and on a world's, with `std::fs`: random scripts of
//! calls, run in a directory of Linux's file system by either, and in a world. Each call must have
//! the same result: the kind of an error and its number, bytes, lengths, names.
//!
//! `POLDER_SCRIPTS` sets the number of scripts.
//!
//! # Permitted differences
//!
//! * A `/` or `.` at the end of a path has no meaning: the scripts use neither.
//! * The length of a directory, and seeking in it: left out of the results.
//! * A read or write of no bytes makes no call.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use polder::fs;
use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use polder::stream::StreamExt;
use tempfile::TempDir;

use crate::differential::Random;

/// The number of scripts that `cargo test` runs.
const SCRIPTS: u64 = 200;

/// The number of calls in a script.
const CALLS: usize = 150;

/// Names that often collide, including invalid ones.
const PATHS: [&str; 16] = [
    "a", "b", "c", "d", "a/b", "a/c", "b/a", "b/c", "d/e", "a/b/c", "a/b/d", "d/e/f", "a/..",
    "a/../b", "b/./c", "./c",
];

/// The results that scripts must reach, which proves that they were compared.
const KINDS: [&str; 14] = [
    "NotFound",
    "AlreadyExists",
    "NotADirectory",
    "IsADirectory",
    "DirectoryNotEmpty",
    "InvalidInput",
    "InvalidData",
    "ResourceBusy",
    "9)", // EBADF
    "InvalidFilename",
    "dir: true",
    "bytes 900",
    "copied 0",
    "copied 900",
];

#[derive(Clone, Copy, Debug)]
enum Call {
    /// The options as bits, from the lowest: read, write, append, truncate, create, create new.
    Open(usize, &'static str, u8),
    Close(usize),
    Read(usize, usize),
    Write(usize, usize, u8),
    Seek(usize, SeekFrom),
    SetLen(usize, u64),
    Sync(usize),
    Length(usize),
    ReadAll(&'static str),
    ReadText(&'static str),
    WriteAll(&'static str, usize, u8),
    Copy(&'static str, &'static str),
    Rename(&'static str, &'static str),
    RemoveFile(&'static str),
    CreateDir(&'static str),
    CreateDirAll(&'static str),
    RemoveDir(&'static str),
    List(&'static str),
    Metadata(&'static str),
}

impl Call {
    /// Returns the open file that the call uses, if any.
    fn file(self) -> Option<usize> {
        match self {
            Call::Read(slot, _)
            | Call::Write(slot, ..)
            | Call::Seek(slot, _)
            | Call::SetLen(slot, _)
            | Call::Sync(slot)
            | Call::Length(slot) => Some(slot),
            _ => None,
        }
    }
}

fn path(random: &mut Random) -> &'static str {
    match random.below(60) {
        0 => LONG.get_or_init(|| "n".repeat(256)),
        1 => "nul\0",
        _ => random.one_of(&PATHS),
    }
}

static LONG: std::sync::OnceLock<String> = std::sync::OnceLock::new();

fn script(seed: u64) -> Vec<Call> {
    let mut random = Random(seed);
    let call = |_| {
        let random = &mut random;
        let slot = random.below(3) as usize;
        let len = random.one_of(&[0, 1, 10, 511, 512, 513, 900, 2_000]);
        let byte = random.below(256) as u8;
        let by = random.below(3_000) as i64 - 1_000;
        match random.below(29) {
            0..=3 => {
                // Mostly permitted combinations.
                let usual = [
                    0b1, 0b11, 0b10011, 0b11010, 0b10100, 0b101, 0b100010, 0b110011,
                ];
                let (any, usual) = (random.below(64) as u8, random.one_of(&usual));
                let how = random.one_of(&[any, usual, usual]);
                Call::Open(slot, path(random), how)
            }
            4 => Call::Close(slot),
            5 | 6 => Call::Read(slot, len),
            7..=9 => Call::Write(slot, len, byte),
            10 => Call::Seek(slot, SeekFrom::Start(by.unsigned_abs())),
            11 => Call::Seek(slot, SeekFrom::Current(by)),
            12 => Call::Seek(slot, SeekFrom::End(by)),
            13 => Call::SetLen(
                slot,
                random.one_of(&[0, 1, 100, 600, 2_000, 5_000, u64::MAX]),
            ),
            14 => Call::Sync(slot),
            15 => Call::Length(slot),
            16 => Call::ReadAll(path(random)),
            17 => Call::ReadText(path(random)),
            18 => Call::WriteAll(path(random), len, byte),
            19..=21 => Call::Rename(path(random), path(random)),
            22 => Call::RemoveFile(path(random)),
            23 => Call::CreateDir(path(random)),
            24 => Call::CreateDirAll(path(random)),
            25 => Call::RemoveDir(path(random)),
            26 => Call::List(path(random)),
            27 => Call::Copy(path(random), path(random)),
            _ => Call::Metadata(path(random)),
        }
    };
    (0..CALLS).map(call).collect()
}

/// A result in words.
fn words<T: Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        // (The standard library's own errors have no number.)
        Err(error) => match error.kind() {
            kind @ (std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData) => {
                format!("{kind:?}")
            }
            kind => format!("{kind:?} ({:?})", error.raw_os_error()),
        },
    }
}

fn bytes(bytes: Vec<u8>) -> String {
    format!("bytes {} {bytes:?}", bytes.len())
}

fn metadata(len: u64, is_file: bool, is_dir: bool) -> String {
    let len = if is_dir { 0 } else { len };
    format!("len: {len}, file: {is_file}, dir: {is_dir}")
}

fn real(root: &Path, calls: &[Call]) -> Vec<String> {
    let mut files: BTreeMap<usize, std::fs::File> = BTreeMap::new();
    calls
        .iter()
        .map(|call| words(real_call(root, &mut files, *call)))
        .collect()
}

fn real_call(
    root: &Path,
    files: &mut BTreeMap<usize, std::fs::File>,
    call: Call,
) -> Result<String> {
    let at = |path: &str| root.join(path);
    let done = |()| "done".to_owned();
    let copied = |len: u64| format!("copied {len}");
    let described =
        |found: std::fs::Metadata| metadata(found.len(), found.is_file(), found.is_dir());
    if let Some(slot) = call.file() {
        let Some(file) = files.get_mut(&slot) else {
            return Ok("not open".to_owned());
        };
        if let Call::Read(_, 0) | Call::Write(_, 0, _) = call {
            return Ok("no bytes".to_owned());
        }
        let is_dir = file.metadata()?.is_dir();
        return match call {
            Call::Read(_, len) => {
                let mut buffer = vec![0; len];
                let len = file.read(&mut buffer)?;
                buffer.truncate(len);
                Ok(bytes(buffer))
            }
            Call::Write(_, len, byte) => file
                .write(&vec![byte; len])
                .map(|number| number.to_string()),
            Call::Seek(..) if is_dir => Ok("a directory".to_owned()),
            Call::Seek(_, to) => file.seek(to).map(|number| number.to_string()),
            Call::SetLen(_, len) => file.set_len(len).map(done),
            Call::Sync(_) => file.sync_all().map(done),
            _ => file.metadata().map(described),
        };
    }
    match call {
        Call::Open(slot, path, how) => {
            let is = |bit: u8| how >> bit & 1 == 1;
            let mut options = std::fs::OpenOptions::new();
            options.read(is(0)).write(is(1)).append(is(2));
            options.truncate(is(3)).create(is(4)).create_new(is(5));
            files.insert(slot, options.open(at(path))?);
            Ok("open".to_owned())
        }
        Call::Close(slot) => Ok(files.remove(&slot).is_some().to_string()),
        Call::ReadAll(path) => std::fs::read(at(path)).map(bytes),
        Call::ReadText(path) => std::fs::read_to_string(at(path)),
        Call::WriteAll(path, len, byte) => std::fs::write(at(path), vec![byte; len]).map(done),
        Call::Copy(from, to) => std::fs::copy(at(from), at(to)).map(copied),
        Call::Rename(from, to) => std::fs::rename(at(from), at(to)).map(done),
        Call::RemoveFile(path) => std::fs::remove_file(at(path)).map(done),
        Call::CreateDir(path) => std::fs::create_dir(at(path)).map(done),
        Call::CreateDirAll(path) => std::fs::create_dir_all(at(path)).map(done),
        Call::RemoveDir(path) => std::fs::remove_dir(at(path)).map(done),
        Call::List(path) => {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(at(path))? {
                let entry = entry?;
                names.push((entry.file_name(), entry.file_type()?.is_dir()));
            }
            names.sort();
            Ok(format!("{names:?}"))
        }
        Call::Metadata(path) => std::fs::metadata(at(path)).map(described),
        _ => unreachable!("those of files are above"),
    }
}

async fn polder(root: &Path, calls: Vec<Call>) -> Vec<String> {
    let (mut files, mut results) = (BTreeMap::new(), Vec::new());
    for call in calls {
        results.push(words(polder_call(root, &mut files, call).await));
    }
    results
}

async fn polder_call(
    root: &Path,
    files: &mut BTreeMap<usize, fs::File>,
    call: Call,
) -> Result<String> {
    let at = |path: &str| root.join(path);
    let done = |()| "done".to_owned();
    let copied = |len: u64| format!("copied {len}");
    let described = |found: fs::Metadata| metadata(found.len(), found.is_file(), found.is_dir());
    if let Some(slot) = call.file() {
        let Some(file) = files.get_mut(&slot) else {
            return Ok("not open".to_owned());
        };
        let is_dir = file.metadata().await?.is_dir();
        return match call {
            Call::Read(_, 0) => file.read(&mut []).await.map(|_| "no bytes".to_owned()),
            Call::Write(_, 0, _) => file.write(&[]).await.map(|_| "no bytes".to_owned()),
            Call::Read(_, len) => {
                let mut buffer = vec![0; len];
                let len = file.read(&mut buffer).await?;
                buffer.truncate(len);
                Ok(bytes(buffer))
            }
            Call::Write(_, len, byte) => {
                let written = file.write(&vec![byte; len]).await;
                written.map(|number| number.to_string())
            }
            Call::Seek(..) if is_dir => Ok("a directory".to_owned()),
            Call::Seek(_, to) => file.seek(to).await.map(|number| number.to_string()),
            Call::SetLen(_, len) => file.set_len(len).await.map(done),
            Call::Sync(_) => file.sync_all().await.map(done),
            _ => file.metadata().await.map(described),
        };
    }
    match call {
        Call::Open(slot, path, how) => {
            let is = |bit: u8| how >> bit & 1 == 1;
            let mut options = fs::OpenOptions::new();
            options.read(is(0)).write(is(1)).append(is(2));
            options.truncate(is(3)).create(is(4)).create_new(is(5));
            files.insert(slot, options.open(at(path)).await?);
            Ok("open".to_owned())
        }
        Call::Close(slot) => Ok(files.remove(&slot).is_some().to_string()),
        Call::ReadAll(path) => fs::read(at(path)).await.map(bytes),
        Call::ReadText(path) => fs::read_to_string(at(path)).await,
        Call::WriteAll(path, len, byte) => fs::write(at(path), vec![byte; len]).await.map(done),
        Call::Copy(from, to) => fs::copy(at(from), at(to)).await.map(copied),
        Call::Rename(from, to) => fs::rename(at(from), at(to)).await.map(done),
        Call::RemoveFile(path) => fs::remove_file(at(path)).await.map(done),
        Call::CreateDir(path) => fs::create_dir(at(path)).await.map(done),
        Call::CreateDirAll(path) => fs::create_dir_all(at(path)).await.map(done),
        Call::RemoveDir(path) => fs::remove_dir(at(path)).await.map(done),
        Call::List(path) => {
            let mut names = Vec::new();
            let mut entries = fs::read_dir(at(path)).await?;
            while let Some(entry) = entries.next().await {
                let entry = entry?;
                names.push((entry.file_name(), entry.file_type().await?.is_dir()));
            }
            names.sort();
            Ok(format!("{names:?}"))
        }
        Call::Metadata(path) => fs::metadata(at(path)).await.map(described),
        _ => unreachable!("those of files are above"),
    }
}

/// An empty directory.
fn empty_directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory of the tests'")
}

/// Each call has the result that it has on the disk of the system.
#[test]
fn disk_calls_match_system() {
    let count = std::env::var("POLDER_SCRIPTS");
    let count = count.map_or(SCRIPTS, |count| count.parse().expect("a number"));
    let mut seen = BTreeMap::new();
    for seed in 0..count {
        let calls = script(seed);
        let directory = empty_directory();
        let real = real(directory.path(), &calls);
        drop(directory);
        let results = Arc::new(Mutex::new(Vec::new()));
        let report = polder_sim::run(seed, |_| {
            let (results, calls) = (results.clone(), calls.clone());
            async move { *results.lock().unwrap() = polder(Path::new("/"), calls).await }
        });
        assert_eq!(report.failure, None);
        let simulated = results.lock().unwrap();
        let directory = empty_directory();
        let pooled = ::polder::block_on(polder(directory.path(), calls.clone()));
        for (nth, real) in real.iter().enumerate() {
            let before = &calls[nth.saturating_sub(12)..=nth];
            for (result, place) in [(&simulated[nth], "a world"), (&pooled[nth], "the system")] {
                assert_eq!(
                    result, real,
                    "script {seed}, call {nth}, on the left in {place}; until then {before:#?}"
                );
            }
            for kind in KINDS {
                *seen.entry(kind).or_insert(0) += u32::from(real.contains(kind));
            }
        }
    }
    let missing: Vec<_> = seen.iter().filter(|(_, count)| **count == 0).collect();
    assert!(missing.is_empty(), "no script came to {missing:?}");
}

//! Files: one `unblock` for the whole job, instead of an await for each read.
//!
//! ```text
//! cargo run --release --example files -- PATH…
//! ```
//! Counts the lines and bytes of each file, and of the files in each folder, all concurrently; a
//! timer reports progress every second. Moving a call to another thread costs more than most reads
//! do, so related calls move there together, as plain `std::fs`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use polder::future::or;
use polder::time::interval;
use polder::unblock;

const USAGE: &str = "usage: files PATH...";

fn main() -> ExitCode {
    let mut paths = Vec::new();
    for argument in std::env::args_os().skip(1) {
        let text = argument.to_string_lossy();
        if text == "--help" || text == "-h" {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        if text.starts_with('-') || text.is_empty() {
            return complain(&format!("unknown argument {text:?}; {USAGE}"), 2);
        }
        paths.push(PathBuf::from(argument));
    }
    if paths.is_empty() {
        return complain(&format!("there is no path; {USAGE}"), 2);
    }
    match polder::block_on(count_all(paths)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string(), 1),
    }
}

fn complain(text: &str, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "files: {text}");
    ExitCode::from(status)
}

async fn count_all(paths: Vec<PathBuf>) -> io::Result<()> {
    let progress = Arc::new(Progress::default());
    let _stop = Stop(progress.clone());
    let jobs: Vec<_> = paths
        .into_iter()
        .map(|path| {
            let progress = progress.clone();
            // One job for all files of a path. `BLOCKING_MAX_THREADS` limits how many jobs run.
            unblock(move || {
                let mut sum = Sum::default();
                count(&path, &mut sum, &progress)?;
                Ok::<_, io::Error>((path, sum))
            })
        })
        .collect();
    let counted = async {
        for job in jobs {
            let (path, sum) = job.await?;
            let Sum { lines, bytes } = sum;
            let line = format!("{lines} lines, {bytes} bytes: {}", path.display());
            // A closed pipe is no reason to stop.
            let _ = writeln!(io::stdout(), "{line}");
        }
        Ok(())
    };
    let told = async {
        let mut seconds = interval(Duration::from_secs(1));
        // The first tick is immediate.
        seconds.tick().await;
        loop {
            seconds.tick().await;
            let bytes = progress.bytes.load(Ordering::Relaxed);
            let _ = writeln!(io::stderr(), "files: {bytes} bytes so far");
        }
    };
    or(counted, told).await
}

#[derive(Default)]
struct Sum {
    lines: u64,
    bytes: u64,
}

/// State shared by the jobs and their owner.
#[derive(Default)]
struct Progress {
    bytes: AtomicU64,
    stopped: AtomicBool,
}

/// A running job cannot be cancelled from outside: dropping this sets the flag that jobs check.
struct Stop(Arc<Progress>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

fn count(path: &Path, sum: &mut Sum, progress: &Progress) -> io::Result<()> {
    let named = |error: io::Error| {
        let path = path.display();
        io::Error::new(error.kind(), format!("{path}: {error}"))
    };
    // Symbolic links below the given paths are not followed: they may form cycles.
    if fs::metadata(path).map_err(named)?.is_dir() {
        for entry in fs::read_dir(path).map_err(named)? {
            let entry = entry.map_err(named)?;
            let kind = entry.file_type().map_err(named)?;
            if kind.is_dir() || kind.is_file() {
                count(&entry.path(), sum, progress)?;
            }
        }
        return Ok(());
    }
    let mut file = File::open(path).map_err(named)?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if progress.stopped.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let read = match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(named(error)),
        };
        let lines = buffer[..read].iter().filter(|byte| **byte == b'\n');
        sum.lines += lines.count() as u64;
        sum.bytes += read as u64;
        progress.bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}

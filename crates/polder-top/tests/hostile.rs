//! Programs that send lines that polder would not: polder-top refuses or shows them, within bounds
//! of memory and time. (On systems where the shell can limit a program's memory.)
#![cfg(target_os = "linux")]

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polder_top::line::{MAX_BUCKETS, MAX_GROUPS, MAX_HINTS, MAX_LINE, MAX_RUNTIMES, MAX_WORKERS};

const LIMIT: Duration = Duration::from_secs(60);

/// The address space of polder-top. Its code and stacks take some ten megabytes, and the largest
/// lines that it accepts some seventy.
const MEMORY_KIB: u32 = 256 << 10;

/// Runs `polder-top --once` on a program that sends these lines, with limited memory.
fn look_at(lines: &[String]) -> Output {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("polder-top-hostile-{}-{number}", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let text = lines.concat();
    // It ends with the connection. polder-top may close it before everything is sent.
    let writer = thread::spawn(move || {
        let _ = listener.accept().unwrap().0.write_all(text.as_bytes());
    });
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
        .arg(MEMORY_KIB.to_string())
        .args([env!("CARGO_BIN_EXE_polder-top"), "--once"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its output is read meanwhile, so that it does not block on that.
    let (mut out, mut error) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    };
    thread::scope(|scope| {
        let stdout = scope.spawn(|| read(&mut out));
        let stderr = scope.spawn(|| read(&mut error));
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        let _ = std::fs::remove_file(&path);
        writer.join().unwrap();
        Output {
            status: status.expect("polder-top is still busy with two lines"),
            stdout,
            stderr,
        }
    })
}

/// Returns a line of this program, a second after the one before.
fn line(uptime: u32, runtimes: &str) -> String {
    format!("{{\"polder_top\":1,\"process\":1,\"uptime\":{uptime},\"runtimes\":[{runtimes}]}}\n")
}

fn repeated(what: &str, count: usize) -> String {
    vec![what; count].join(",")
}

/// Returns the number of elements for which a line has room.
fn full(what: &str) -> usize {
    (MAX_LINE - 300) / (what.len() + 1)
}

/// A line with more of anything than polder sends is refused.
#[test]
fn oversized_line_is_refused() {
    let counts = |count| {
        let counts = repeated("0", count);
        format!(r#"{{"workers":[{{"metrics":{{"poll_seconds":{{"counts":[{counts}]}}}}}}]}}"#)
    };
    let of = |key: &str, count| format!(r#"{{"{key}":[{}]}}"#, repeated("{}", count));
    let many = full("{}");
    let one_more = MAX_RUNTIMES + 1;
    for (runtimes, max, name) in [
        (repeated("{}", many), MAX_RUNTIMES, "runtimes"),
        (of("workers", many), MAX_WORKERS, "workers"),
        (of("groups", many), MAX_GROUPS, "groups"),
        (of("hints", many), MAX_HINTS, "hints"),
        (counts(full("0")), MAX_BUCKETS, "buckets"),
        (repeated("{}", one_more), MAX_RUNTIMES, "runtimes"),
    ] {
        let output = look_at(&[line(1, &runtimes)]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        assert!(
            error.contains(&format!("more than {max} {name}")),
            "{error}"
        );
    }
}

/// Searching the first line for each runtime of the second takes 2 × 10^11 comparisons.
#[test]
fn endless_runtimes_refused_at_once() {
    let first = repeated("{}", full("{}"));
    let second = repeated(r#"{"number":1}"#, full(r#"{"number":1}"#));
    let output = look_at(&[line(1, &first), line(2, &second)]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("runtimes"), "{error}");
}

/// The largest lines that are accepted are shown within the same bound.
#[test]
fn largest_accepted_lines_within_bound() {
    let runtime = |number: usize| {
        format!(
            r#"{{"number":{number},"within":1,"workers":[{}],"groups":[{}],"hints":[{}]}}"#,
            repeated("{}", MAX_WORKERS),
            repeated("{}", MAX_GROUPS),
            repeated("{}", MAX_HINTS),
        )
    };
    let runtimes: Vec<String> = (0..MAX_RUNTIMES).map(runtime).collect();
    let runtimes = runtimes.join(",");
    let output = look_at(&[line(1, &runtimes), line(2, &runtimes)]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("runtime 0 worker 0"), "{error}");
}

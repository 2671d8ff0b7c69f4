//! The machine and the versions: as much as helps to read the figures, and nothing that identifies
//! the machine.

use std::fs;
use std::process::Command;
use std::thread;

use crate::native;

/// Returns names and values: the machine, the date, the versions.
pub fn all() -> Vec<(String, String)> {
    let mut lines = machine();
    lines.push(("Date".into(), first_line("date", &["-u", "+%F"])));
    lines.extend(versions());
    lines
}

fn machine() -> Vec<(String, String)> {
    let mut lines = vec![("Processor".into(), processor())];
    if let Ok(cores) = thread::available_parallelism() {
        lines.push(("Cores".into(), cores.to_string()));
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // A suffix that a builder appended means nothing to readers.
    let release = release.trim().split('-').next().unwrap_or_default();
    lines.push(("Kernel".into(), format!("Linux {release}")));
    lines.push(("Compiler".into(), first_line("rustc", &["--version"])));
    lines
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let virtual_machine = text
        .lines()
        .any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    let model = (text.lines())
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, model)| model.trim());
    if virtual_machine {
        format!("{model}, in a virtual machine")
    } else {
        model.into()
    }
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    text.lines().next().unwrap_or("unknown").to_string()
}

/// Returns the compared versions, from the lock file; for polder, its commit too.
fn versions() -> Vec<(String, String)> {
    const NAMES: [&str; 14] = [
        "polder",
        "tokio",
        "mio",
        "smol",
        "async-io",
        "async-executor",
        "async-task",
        "async-channel",
        "monoio",
        "compio",
        "compio-driver",
        "glommio",
        "futures-channel",
        "rustls",
    ];
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap_or_default();
    let mut versions = Vec::new();
    for name in NAMES {
        let head = format!("name = \"{name}\"\nversion = \"");
        let found: Vec<&str> = (lock.split(&head).skip(1))
            .filter_map(|rest| rest.split('"').next())
            .collect();
        if !found.is_empty() {
            versions.push((name.to_string(), found.join(", ")));
        }
    }
    let folder = env!("CARGO_MANIFEST_DIR");
    let commit = first_line("git", &["-C", folder, "rev-parse", "--short", "HEAD"]);
    if let Some((_, version)) = versions.first_mut() {
        *version = format!("{version} (commit {commit})");
    }
    versions.extend(native::versions());
    versions
}

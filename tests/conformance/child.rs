//! Rules about a whole process: its descriptors, its standard error, its background runtime.
//!
//! Such a test starts its own program again, once for each backend, with that backend as the
//! default, to run this test alone. The child does the work, and the parent checks the result.

#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::process::Output;

use polder::Backend;
#[cfg(unix)]
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::again::{again, ended};
use crate::support::{LIMIT, backends, passed, storm, test_of};

const VARIABLE: &str = "POLDER_CONFORMANCE_CHILD";

/// Runs `rule`, a closure in the calling test, in its own process for each backend.
pub fn in_children(rule: impl FnOnce(Backend)) {
    in_children_and_judge(rule, |_, _| {});
}

/// Like [`in_children`], and passes the output to `judge`.
pub fn in_children_and_judge(rule: impl FnOnce(Backend), judge: impl Fn(Backend, &Output)) {
    let test = test_of(&rule);
    if std::env::var_os(VARIABLE).is_some() {
        return storm::within(|| rule(Backend::from_env().expect("the first process has set it")));
    }
    for backend in backends() {
        let mut command = again(test);
        command.env("POLDER_BACKEND", backend.name());
        let child = command.env(VARIABLE, "1").spawn();
        let child = child.expect("the test starts again");
        let output = ended(child, &format!("{test} on {backend}"), LIMIT);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // With a wrong name no test would run, and the child would succeed.
        assert!(
            output.status.success() && text(&output.stdout).contains("1 passed"),
            "{test} on {backend}, in a process of its own: {}\n{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr),
        );
        judge(backend, &output);
        passed(backend);
    }
}

/// Returns the resident memory of the process, in bytes.
#[cfg(target_os = "linux")]
pub fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.unwrap().trim().trim_end_matches(" kB");
    words.parse::<usize>().unwrap() * 1_024
}

/// Returns the number of entries of a folder: `/proc/self/fd`, `/proc/self/task`.
#[cfg(target_os = "linux")]
pub fn entries(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

/// Returns the directories of this process's threads with names that begin so. (The kernel cuts
/// names after 15 bytes.)
#[cfg(target_os = "linux")]
pub fn threads_called(name: &str) -> Vec<PathBuf> {
    let threads = std::fs::read_dir("/proc/self/task").expect("the list of threads");
    // A thread may exit between the listing and the read.
    let is_called = |thread: &PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    let threads = threads.filter_map(|thread| Some(thread.ok()?.path()));
    threads.filter(is_called).collect()
}

/// Returns how often a thread has gone to sleep.
#[cfg(target_os = "linux")]
pub fn sleeps_of(thread: &Path) -> usize {
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    let line = (status.lines()).find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.expect("the kernel counts").trim().parse().unwrap()
}

/// Whether neither count has grown. The earlier count may include things that had ended but were
/// not yet gone: a joined thread, a descriptor that another thread closes.
#[cfg(target_os = "linux")]
pub fn no_more(now: [usize; 2], before: [usize; 2]) -> bool {
    now[0] <= before[0] && now[1] <= before[1]
}

/// Sets a resource limit of the process, as far as that is allowed.
#[cfg(unix)]
pub fn limit(resource: Resource, to: u64) {
    let mut limit = getrlimit(resource);
    limit.current = Some(limit.maximum.map_or(to, |maximum| maximum.min(to)));
    setrlimit(resource, limit).expect("a process may lower its limits");
}

/// Raises the process's limit of descriptors to `needed`, if it is lower.
#[cfg(unix)]
pub fn allow_descriptors(needed: u64) {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < needed) {
        assert!(
            now.maximum.is_none_or(|maximum| maximum >= needed),
            "this test needs {needed} descriptors: {now:?}"
        );
        limit(Resource::Nofile, needed);
    }
}

/// Takes all descriptors of the process, until the result is dropped.
#[cfg(target_os = "linux")]
pub fn all_descriptors() -> Vec<std::fs::File> {
    limit(Resource::Nofile, 64);
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

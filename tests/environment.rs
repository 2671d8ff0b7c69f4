//! `POLDER_DUMP`, `POLDER_STALL`, `POLDER_TRACE` and `POLDER_TOP`: each test queries a program,
//! which is this one started again, from outside.
#![cfg(unix)]

#[path = "conformance/again.rs"]
mod again;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::time::sleep;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use again::{again, ended};

const LIMIT: Duration = Duration::from_secs(60);

/// The child's job; set in the child.
const CHILD: &str = "POLDER_ENVIRONMENT_CHILD";

/// Starts `test` again, as a program with this environment.
fn child(test: &str, does: &str, environment: &[(&str, &str)]) -> Child {
    let mut command = again(test);
    command.env(CHILD, does).envs(environment.iter().copied());
    command.spawn().expect("the test starts again")
}

fn what() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Waits for a child that ends by itself.
fn end(child: Child) -> Output {
    ended(child, "the child", LIMIT)
}

fn said(child: Child) -> String {
    String::from_utf8(end(child).stderr).unwrap()
}

/// Starts children, one after the other, until what one has said `is_it`: on a loaded machine a
/// dump or a check may come too late. Returns what the last one has said, after [`LIMIT`] in any
/// case.
fn said_until(start_child: impl Fn() -> Child, is_it: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let said = said(start_child());
        if is_it(&said) || start.elapsed() > LIMIT {
            return said;
        }
    }
}

/// Waits for the line of standard output that the child prints when its runtime is running.
fn until_ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready")));
    // Prevents a full pipe from blocking the child.
    thread::spawn(move || lines.for_each(drop));
}

/// The child: a named task that waits.
fn wait_in_runtime() {
    Runtime::new().unwrap().block_on(async {
        let task = polder::task::Builder::new()
            .name("the one that waits")
            .spawn(std::future::pending::<()>());
        polder::future::yield_now().await;
        println!("ready");
        sleep(LIMIT).await;
        drop(task);
    });
}

/// Sends SIGUSR1 until `is_there`, and then kills the child.
fn signal_until(mut child: Child, is_there: impl Fn(&str) -> bool) -> String {
    until_ready(&mut child);
    let mut error = child.stderr.take().unwrap();
    let said = Arc::new(Mutex::new(String::new()));
    let reader = thread::spawn({
        let said = said.clone();
        move || {
            let mut bytes = [0; 4096];
            loop {
                match error.read(&mut bytes).unwrap() {
                    0 => break,
                    read => {
                        (said.lock().unwrap()).push_str(&String::from_utf8_lossy(&bytes[..read]))
                    }
                }
            }
        }
    });
    let start = Instant::now();
    loop {
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        thread::sleep(Duration::from_millis(200));
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the signal has ended it: {ended:?}");
        if is_there(&said.lock().unwrap()) {
            break;
        }
        assert!(start.elapsed() < LIMIT, "nothing comes");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    said.lock().unwrap().clone()
}

#[test]
fn a_dump_comes_with_the_signal() {
    if what().is_some() {
        return wait_in_runtime();
    }
    let child = child(
        "a_dump_comes_with_the_signal",
        "x",
        &[("POLDER_DUMP", "usr1")],
    );
    let id = child.id();
    let said = signal_until(child, |said| said.contains("\"the one that waits\""));
    assert!(
        said.contains(&format!("polder: process {id}, SIGUSR1")),
        "{said}"
    );
    assert!(said.contains("\"the one that waits\""), "{said}");
    assert!(said.contains(file!()), "{said}");
}

#[test]
fn dump_appended_to_private_file() {
    if what().is_some() {
        return wait_in_runtime();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    let value = format!("usr1:{}", path.display());
    let test = "dump_appended_to_private_file";
    let dumps = || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.matches("\"the one that waits\"").count()
    };
    for run in 1..=3 {
        if run == 3 {
            cut_short(&path);
        }
        let before = dumps();
        let child = child(test, "x", &[("POLDER_DUMP", &value)]);
        let said = signal_until(child, |_| dumps() >= before + 2);
        assert!(
            !said.contains("the one"),
            "in run {run}, standard error has {said}"
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("polder: process"), "{text}");
}

/// Leaves a file as a program does that ends while it writes the first words.
fn cut_short(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(9).unwrap();
}

/// A link, a file that others may read, one with another hard link, a folder, and a path without
/// its folder.
#[test]
fn a_file_that_is_not_of_its_making_is_left_alone() {
    const TEST: &str = "a_file_that_is_not_of_its_making_is_left_alone";
    if what().is_some() {
        return Runtime::new()
            .unwrap()
            .block_on(sleep(Duration::from_secs(1)));
    }
    let folder = tempfile::tempdir().unwrap();
    let (aim, link) = (folder.path().join("aim"), folder.path().join("link"));
    let make = |path: &Path, mode| {
        fs::write(path, "precious").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    make(&aim, 0o600);
    symlink(&aim, &link).unwrap();
    let public = folder.path().join("public");
    make(&public, 0o644);
    let (named, twice) = (folder.path().join("named"), folder.path().join("twice"));
    make(&named, 0o600);
    fs::hard_link(&named, &twice).unwrap();
    let nowhere = folder.path().join("no/where");
    for path in [&aim, &link, &public, &twice, folder.path(), &nowhere] {
        let value = format!("after:1ms:{}", path.display());
        let is_told =
            |said: &str| said.contains("POLDER_DUMP: ") && said.contains(path.to_str().unwrap());
        let said = said_until(|| child(TEST, "x", &[("POLDER_DUMP", &value)]), is_told);
        assert!(is_told(&said), "{said}");
    }
    for path in [&aim, &public, &named] {
        assert_eq!(fs::read_to_string(path).unwrap(), "precious");
    }
}

/// A program that hangs says what it waits for after a while.
#[test]
fn hanging_program_says_what_it_waits_for() {
    const TEST: &str = "hanging_program_says_what_it_waits_for";
    if what().is_some() {
        // Two runtimes, one of them computing.
        thread::spawn(|| {
            polder::block_on(async {
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(2) {
                    std::hint::spin_loop();
                }
            });
        });
        return polder::block_on(sleep(Duration::from_secs(2)));
    }
    let is_told = |said: &str| {
        let words = [
            "500ms after its first runtime was built",
            "timer due in",
            "DOES NOT ANSWER",
            "block_on, called at",
        ];
        words.iter().all(|words| said.contains(words))
            && said.matches("polder: 1 worker").count() == 2
    };
    let start = || child(TEST, "x", &[("POLDER_DUMP", "after:500ms")]);
    let said = said_until(start, is_told);
    assert!(is_told(&said), "{said}");
}

#[test]
fn stall_reported_with_its_place() {
    const TEST: &str = "stall_reported_with_its_place";
    if what().is_some() {
        return polder::block_on(polder::spawn(async {
            thread::sleep(Duration::from_secs(1));
            sleep(Duration::from_secs(1)).await; // It goes on, which is seen.
        }));
    }
    // A late check does not count, and on a busy machine all checks of a run may be late.
    let place = format!("spawned at {}:", file!());
    let words = [
        "polder: worker 0 is stalled: ",
        &place,
        "worker 0 recovered",
    ];
    let is_told = |said: &str| words.iter().all(|words| said.contains(words));
    let said = said_until(|| child(TEST, "x", &[("POLDER_STALL", "50ms")]), is_told);
    assert!(is_told(&said), "{said}");
}

#[test]
fn bad_value_reported_and_harmless() {
    const TEST: &str = "bad_value_reported_and_harmless";
    if what().is_some() {
        polder::block_on(async {});
        return Runtime::new().unwrap().block_on(async {});
    }
    let environment = [("POLDER_DUMP", "when it rains"), ("POLDER_STALL", "5")];
    let said = said(child(TEST, "x", &environment));
    assert_eq!(
        said.matches("POLDER_DUMP=\"when it rains\" is ignored")
            .count(),
        1,
        "{said}"
    );
    assert_eq!(
        said.matches("POLDER_STALL=\"5\" is ignored").count(),
        1,
        "{said}"
    );
    assert!(said.contains("usr1") && said.contains("100ms"), "{said}");
}

#[test]
fn a_name_that_is_misspelled_is_reported_once() {
    const TEST: &str = "a_name_that_is_misspelled_is_reported_once";
    if what().is_some() {
        polder::block_on(async {});
        return Runtime::new().unwrap().block_on(async {});
    }
    let environment = [("POLDER_BACKENDS", "poll"), ("POLDER_WORKERS", "4")];
    let said = said(child(TEST, "x", &environment));
    for (name, advice) in [
        ("POLDER_BACKENDS", "did you mean POLDER_BACKEND?"),
        ("POLDER_WORKERS", "use Builder::workers"),
    ] {
        let line = format!("polder: unknown variable {name}: {advice} (known: POLDER_DUMP, ");
        assert_eq!(said.matches(&line).count(), 1, "{said}");
    }
    assert_eq!(said.matches("unknown variable").count(), 2, "{said}");
}

#[test]
fn a_dump_for_which_there_is_no_folder_is_printed() {
    const TEST: &str = "a_dump_for_which_there_is_no_folder_is_printed";
    if what().is_some() {
        return wait_in_runtime();
    }
    let path = "usr1:/no/such/folder/x";
    let child = child(TEST, "x", &[("POLDER_DUMP", path)]);
    let said = signal_until(child, |said| said.contains("the one that waits"));
    let (at_start, dump) = said.split_once("; here is the dump:\n").unwrap();
    assert!(
        at_start.starts_with("polder: POLDER_DUMP: \"/no/such/folder\": "),
        "{said}"
    );
    assert!(dump.starts_with("polder: process "), "{said}");
}

/// Without them there is no thread and the signal has its own meaning.
#[test]
#[cfg(target_os = "linux")]
fn unset_no_thread_and_default_signal() {
    use std::os::unix::process::ExitStatusExt;

    const TEST: &str = "unset_no_thread_and_default_signal";
    if what().is_some() {
        polder::block_on(async {});
        for thread in fs::read_dir("/proc/self/task").unwrap() {
            let name = fs::read_to_string(thread.unwrap().path().join("comm")).unwrap();
            assert!(!name.starts_with("polder"), "{name}");
        }
        for descriptor in fs::read_dir("/proc/self/fd").unwrap() {
            let aim = fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
            let aim = aim.to_string_lossy();
            assert!(!aim.starts_with("socket:"), "{aim}");
        }
        println!("ready");
        return polder::block_on(sleep(LIMIT));
    }
    let all = ["DUMP", "STALL", "TRACE", "TOP"].map(|it| format!("POLDER_{it}"));
    let all = all.each_ref().map(|name| (&**name, ""));
    for empty in [&[][..], &all] {
        let mut child = child(TEST, "x", empty);
        until_ready(&mut child);
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        let status = end(child).status;
        assert_eq!(status.signal(), Some(Signal::USR1.as_raw()), "{status:?}");
    }
}

/// A process that is stopped for a while does not stall.
///
/// A stopped process has not stalled.
#[test]
fn stopped_process_is_no_stall() {
    const TEST: &str = "stopped_process_is_no_stall";
    if what().is_some() {
        println!("ready");
        return polder::block_on(async {
            let mut begin = Instant::now();
            // Until it was stopped, and for a moment more.
            while begin.elapsed() < Duration::from_secs(2) {
                begin = Instant::now();
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(Duration::from_millis(100));
        });
    }
    // Two thirds of a stall's threshold, with the stop after the first check of the poll: the rest
    // is not the program's own time. (On a loaded machine its own time may be longer.)
    let stopped = |_| {
        let mut child = child(TEST, "x", &[("POLDER_STALL", "2s")]);
        until_ready(&mut child);
        thread::sleep(Duration::from_millis(1_200));
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        thread::sleep(Duration::from_secs(3));
        kill_process(pid, Signal::CONT).unwrap();
        let said = said(child);
        said.contains("stalled").then_some(said)
    };
    let stalls: Vec<String> = (0..3).map_while(stopped).collect();
    assert!(stalls.len() < 3, "{stalls:?}");
}

/// Returns the number of polls of tasks spawned in this file that a trace contains.
fn polls(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap();
    let trace = serde_json::from_str::<Value>(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let is_ours = |it: &&Value| it["name"].as_str().unwrap().starts_with(file!());
    events.filter(is_ours).count()
}

/// A trace of each runtime is written when it ends.
#[test]
fn trace_written_at_runtime_end() {
    const TEST: &str = "trace_written_at_runtime_end";
    if let Some(what) = what() {
        let [first, second] = [(); 2].map(|()| Runtime::new().unwrap());
        first.block_on(first.spawn(async {}));
        if what == "two" {
            let spawned = second.spawn(async {});
            second.block_on(spawned);
            second.block_on(second.spawn(async {}));
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (
        folder.path().join("trace.json"),
        folder.path().join("trace.json.1"),
    );
    let value = first.to_str().unwrap();
    // The second time, the files of the first run exist. The third time, the first was cut short.
    for (does, of_second) in [("two", 2), ("one", 0), ("one", 0)] {
        let said = said(child(TEST, does, &[("POLDER_TRACE", value)]));
        assert!(!said.contains("POLDER_TRACE"), "{said}");
        assert_eq!((polls(&first), polls(&second)), (1, of_second));
        for path in [&first, &second] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
        }
        if does == "one" {
            cut_short(&first);
        }
    }
    fs::write(&second, "precious").unwrap();
    let said = said(child(TEST, "two", &[("POLDER_TRACE", value)]));
    assert!(said.contains("POLDER_TRACE: ") && said.contains("trace.json.1"));
    assert_eq!(fs::read_to_string(&second).unwrap(), "precious");
}

/// The trace has both the events before it and the poll in progress.
#[test]
fn a_stall_and_a_dump_have_the_trace_written() {
    const TEST: &str = "a_stall_and_a_dump_have_the_trace_written";
    if let Some(path) = what() {
        return polder::block_on(async {
            polder::spawn(async {}).await;
            let stalls = polder::spawn(async move {
                let start = Instant::now();
                while !fs::exists(&path).unwrap() && start.elapsed() < LIMIT / 4 {
                    thread::sleep(Duration::from_millis(1));
                }
                // The file exists before it is complete.
                thread::sleep(Duration::from_secs(1));
                std::process::abort();
            });
            stalls.await
        });
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, asks) in [
        ("stall", ("POLDER_STALL", "20ms")),
        ("dump", ("POLDER_DUMP", "after:1s")),
    ] {
        let path = folder.path().join(name);
        let path_text = path.to_str().unwrap();
        let start = || {
            let _ = fs::remove_file(&path);
            child(TEST, path_text, &[("POLDER_TRACE", path_text), asks])
        };
        // On a loaded machine another poll may be the first to stall.
        let said = said_until(start, |_| path.exists() && polls(&path) == 2);
        assert!(
            said.contains("DOES NOT ANSWER") || said.contains("stalled"),
            "{said}"
        );
        assert_eq!(polls(&path), 2, "{name}");
    }
}

/// Returns the next line from the socket at this path, and the reader.
fn line_of(path: &Path) -> (String, BufReader<UnixStream>) {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (line, reader)
}

/// Two runtimes: one has a group of tasks, with a name that would move a cursor.
fn be_watched() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let other = Runtime::builder().workers(2).build().unwrap();
    Runtime::new().unwrap().block_on(async {
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..1_000 {
            let begun = begun.clone();
            let task = async move {
                begun.fetch_add(1, Ordering::Relaxed);
                sleep(LIMIT).await;
            };
            polder::task::Builder::new()
                .name("\u{1b}[2J \"a\"")
                .spawn(task)
                .detach();
        }
        while begun.load(Ordering::Relaxed) < 1_000 {
            polder::future::yield_now().await;
        }
        println!("ready");
        sleep(LIMIT).await;
    });
    drop(other);
}

/// A client is sent all runtimes once a second, in groups.
#[test]
fn clients_told_runtimes_once_a_second() {
    const TEST: &str = "clients_told_runtimes_once_a_second";
    if what().is_some() {
        return be_watched();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("of-%p");
    let mut child = child(TEST, "x", &[("POLDER_TOP", path.to_str().unwrap())]);
    let path = folder.path().join(format!("of-{}", child.id()));
    until_ready(&mut child);
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    // Although the process's umask lets everyone access its files.
    assert_eq!(metadata.mode() & 0o777, 0o600);
    let process = format!("\"process\":{}", child.id());
    let group = r#","name":"\u001b[2J \"a\"","state":"waiting","waits_for":"timer","tasks":1000"#;
    let parts = [
        &process,
        group,
        file!(),
        "\"number\":0",
        "\"number\":1",
        "\"block_on\":true",
        "\"worker_spawned\":1000",
        "\"poll_seconds\":{\"sum\":",
    ];
    // Two workers and the thread that made them; and one thread.
    let is_whole = |line: &str| {
        parts.iter().all(|part| line.contains(part)) && line.matches("\"parked\":").count() == 4
    };
    let start = Instant::now();
    let (mut line, mut reader) = line_of(&path);
    assert!(!line.contains("\"recent_polls\""), "{line}");
    // On a loaded machine a worker may answer too late for a line.
    let mut whole = 0;
    loop {
        assert!(line.starts_with("{\"polder_top\":1,"), "{line}");
        assert!(
            line.contains("}],\"interval\":") && line.ends_with("}\n"),
            "{line}"
        );
        assert!(line.len() < 10_000, "{} bytes", line.len());
        assert!(!line.trim_end().contains(char::is_control), "{line:?}");
        whole = if is_whole(&line) { whole + 1 } else { 0 };
        if whole == 2 {
            break;
        }
        assert!(start.elapsed() < LIMIT, "something is missing: {line}");
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    assert!(line.contains("\"recent_polls\":0"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The oldest 64 runtimes are told and the others counted.
#[test]
fn oldest_64_runtimes_listed_rest_counted() {
    const TEST: &str = "oldest_64_runtimes_listed_rest_counted";
    if what().is_some() {
        let runtimes: Vec<Runtime> = (0..70).map(|_| Runtime::new().unwrap()).collect();
        println!("ready");
        runtimes[69].block_on(sleep(LIMIT));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut child = child(TEST, "x", &[("POLDER_TOP", path.to_str().unwrap())]);
    until_ready(&mut child);
    let (line, _) = line_of(&path);
    assert_eq!(line.matches("\"backend\":").count(), 64, "{line}");
    assert!(
        line.contains("],\"runtimes_left_out\":6,\"interval\":"),
        "{line}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Each line is JSON and has every worker and group.
///
/// Parses lines like polder-top does.
#[test]
fn line_is_json_with_workers_and_groups() {
    const TEST: &str = "line_is_json_with_workers_and_groups";
    if what().is_some() {
        return be_watched();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut child = child(TEST, "x", &[("POLDER_TOP", path.to_str().unwrap())]);
    until_ready(&mut child);
    let start = Instant::now();
    let (mut text, mut reader) = line_of(&path);
    loop {
        let line = serde_json::from_str::<Value>(text.trim_end()).unwrap();
        let runtimes = line["runtimes"].as_array().unwrap();
        let lengths = |of: &str| -> Vec<usize> {
            let lengths = runtimes.iter().map(|it| it[of].as_array().unwrap().len());
            lengths.collect()
        };
        let mut workers = lengths("workers");
        workers.sort_unstable();
        assert_eq!(workers, [1, 3], "{line:?}");
        let groups = runtimes
            .iter()
            .flat_map(|it| it["groups"].as_array().unwrap());
        let mut are_polled = true;
        for group in groups {
            let last_polled = group["last_polled"].as_f64();
            are_polled &= last_polled.is_some_and(|it| it >= 0.0);
            assert!(group["oldest"].as_f64().unwrap() >= last_polled.unwrap_or(0.0));
        }
        // One for the tasks, and one for the future of `block_on`; each has been polled. (On a
        // loaded machine a worker may answer too late for a line.)
        if lengths("groups").contains(&2) && are_polled {
            break;
        }
        assert!(start.elapsed() < LIMIT, "something is missing: {line:?}");
        text.clear();
        reader.read_line(&mut text).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Another program's socket, a file, a link, and a path that is too long.
#[test]
fn socket_path_taken_left_alone() {
    const TEST: &str = "socket_path_taken_left_alone";
    if what().is_some() {
        return polder::block_on(async {});
    }
    let folder = tempfile::tempdir().unwrap();
    let busy = folder.path().join("busy");
    let _listener = UnixListener::bind(&busy).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    let old = folder.path().join("old");
    drop(UnixListener::bind(&old).unwrap());
    let link = folder.path().join("link");
    symlink(&old, &link).unwrap();
    let nowhere = folder.path().join("no/where");
    let long = folder.path().join("x".repeat(200));
    for (path, words) in [
        (&busy, "somebody listens"),
        (&file, "left alone"),
        (&link, "left alone"),
        (&nowhere, "ignored"),
        (&long, "ignored"),
    ] {
        let said = said(child(TEST, "x", &[("POLDER_TOP", path.to_str().unwrap())]));
        assert!(said.contains("polder: POLDER_TOP="), "{said}");
        assert!(said.contains(words), "{said}");
    }
    assert!(fs::symlink_metadata(&busy).unwrap().file_type().is_socket());
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::symlink_metadata(&old).is_ok());
}

/// The socket goes with the process and one that was left is replaced.
#[test]
fn socket_removed_at_exit_stale_replaced() {
    const TEST: &str = "socket_removed_at_exit_stale_replaced";
    match what().as_deref() {
        Some("waits") => return wait_in_runtime(),
        Some("ends") => {
            polder::block_on(async {});
            assert!(UnixStream::connect(std::env::var("POLDER_TOP").unwrap()).is_ok());
            return;
        }
        Some("is robbed") => {
            polder::block_on(async {});
            let path = std::env::var("POLDER_TOP").unwrap();
            fs::remove_file(&path).unwrap();
            fs::write(&path, "precious").unwrap();
            return;
        }
        _ => {}
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let environment = [("POLDER_TOP", path.to_str().unwrap())];
    let mut killed = child(TEST, "waits", &environment);
    until_ready(&mut killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(UnixStream::connect(&path).is_err());
    assert!(path.exists());
    let output = end(child(TEST, "ends", &environment));
    assert!(output.status.success(), "{output:?}");
    assert!(!path.exists());
    // Another file replaces the socket meanwhile.
    let output = end(child(TEST, "is robbed", &environment));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

/// The forked child has no thread, and the socket is its parent's.
#[test]
fn a_forked_child_leaves_the_socket_to_its_parent() {
    const TEST: &str = "a_forked_child_leaves_the_socket_to_its_parent";
    if what().is_some() {
        polder::block_on(async {});
        // SAFETY: the child only exits, which runs the exit handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::exit(0) };
        }
        let mut status = 0;
        // SAFETY: there is room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        let path = std::env::var("POLDER_TOP").unwrap();
        let (line, _) = line_of(Path::new(&path));
        assert!(
            line.contains(&format!("\"process\":{}", std::process::id())),
            "{line}"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let output = end(child(TEST, "x", &[("POLDER_TOP", path.to_str().unwrap())]));
    assert!(output.status.success(), "{output:?}");
    assert!(!path.exists());
}

/// The forked child has its parent's environment, but another process id in its paths.
#[test]
fn forked_child_has_own_socket() {
    const TEST: &str = "forked_child_has_own_socket";
    if what().is_some() {
        let path = std::env::var("POLDER_TOP").unwrap();
        let at = |process: u32| path.replace("%p", &process.to_string());
        let answers = |process: u32| {
            let (line, _) = line_of(Path::new(&at(process)));
            line.contains(&format!("\"process\":{process}"))
        };
        polder::block_on(async {});
        // SAFETY: the child only runs this test's code, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: always allowed. It kills a child that hangs.
            unsafe { libc::alarm(60) };
            // A panic would end the only thread, and the process would exit with success.
            let answered = std::panic::catch_unwind(|| {
                polder::block_on(async {});
                answers(std::process::id())
            });
            let is_right = answered.is_ok_and(|it| it);
            // SAFETY: always allowed, and removes the socket.
            unsafe { libc::exit(if is_right { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: there is room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(!Path::new(&at(child as u32)).exists());
        assert!(answers(std::process::id()));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("%p");
    let output = end(child(TEST, "x", &[("POLDER_TOP", path.to_str().unwrap())]));
    assert!(output.status.success(), "{output:?}");
}

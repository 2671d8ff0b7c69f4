//! Runs the subject under strace, once for each call, errno, backend and place, and reports the
//! results.
//!
//! The subject stops itself before it does anything, and strace is attached then. So the calls of
//! the dynamic linker and of the standard library's start are not affected, and counting begins
//! with the first part.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polder::Backend;

use crate::subject::{FILE, UNSERVED};

/// A run that takes longer counts as hanging. It takes a second normally.
const LIMIT: Duration = Duration::from_secs(12);

/// The time limit of the second run of a case that hung once.
const LAST_LIMIT: Duration = Duration::from_secs(40);

/// After this number of hangs a row is known to hang on a backend: from then on only lasting faults
/// are tried.
const HANGS: usize = 3;

/// The backends that polder implements itself.
const BACKENDS: [Backend; 3] = [Backend::Epoll, Backend::Poll, Backend::Select];

/// What a row's call begins with if only those are faulty that are about the subject's files.
const OF_FILES: &str = "file:";

/// A single fault at the Nth call of a thread, or a fault at each call from the Nth.
const ONCE: [&str; 6] = ["1", "2", "3", "5", "8", "13"];
const FROM_THEN_ON: [&str; 2] = ["1+", "4+"];

/// Every second call: if every call is interrupted, no code can make progress.
const EVERY_OTHER: [&str; 1] = ["1+2"];

/// How long a fault lasts.
#[derive(Clone, Copy, PartialEq)]
enum Lasts {
    /// For one call, or for every call from the Nth.
    Both,
    /// For one call, or every second one: the kernel itself does not return it repeatedly.
    Passes,
}

/// The results of a fault that are allowed besides a right result or an error with a message.
#[derive(Clone, Copy, PartialEq)]
enum Excuse {
    None,
    /// A hang, on this backend or on all, or a panic with a message: the error that strace injects
    /// is untrue.
    Hang(Option<Backend>),
    /// A panic with a message: the failing function has no error to return. If the poller cannot
    /// wait any more that is `block_on`; if no thread can be started, `unblock`.
    Panic,
}

/// One row.
struct Row {
    call: &'static str,
    errno: &'static str,
    lasts: Lasts,
    excuse: Excuse,
    /// Whether strace can inject the fault but no kernel produces it; if so, the reason.
    fake: &'static str,
}

const LIMITS: [&str; 3] = ["EMFILE", "ENFILE", "ENOMEM"];
/// The usual errors of a seccomp filter.
const DENIED: [&str; 2] = ["EPERM", "ENOSYS"];

const EDGE: &str = "the kernel refuses so where a socket is not ready, and reports when it is; here it \
                    is ready, and no edge follows";
const INTERRUPTED: &str = "non-blocking calls on sockets are not interrupted";
const NO_CLOSE: &str = "the kernel closes the descriptor whatever it says; here it stays open";
const NO_CONNECT: &str = "the kernel goes on connecting; here it never began";
const GONE: &str = "the kernel removes the connection from the queue; here it stays";
const EVENTFD: &str = "a worker is woken by a write to an eventfd, which never fails so, and under a filter that refuses every \
     write no program works; here these writes fail";
const FULL: &str =
    "an eventfd fails so when it cannot count any further, and is readable then; here it is not";
const CONNECTED: &str = "the kernel says so before the socket is connected, and reports when it is; \
                         here it is connected already";

/// All rows, call by call.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |calls: &[&'static str], errnos: &[&'static str], lasts, excuse, fake| {
        for call in calls {
            for errno in errnos {
                rows.push(Row {
                    call,
                    errno,
                    lasts,
                    excuse,
                    fake,
                });
            }
        }
    };
    use Excuse::{Hang, None as No, Panic};
    use Lasts::{Both, Passes};
    let on_epoll = Hang(Some(Backend::Epoll));

    for call in ["epoll_create1", "eventfd2", "timerfd_create"] {
        add(&[call], &LIMITS, Both, No, "");
        add(&[call], &DENIED, Both, No, "");
    }
    add(
        &["timerfd_settime"],
        &["EPERM", "ENOSYS", "EINVAL"],
        Both,
        No,
        "",
    );
    add(
        &["epoll_ctl"],
        &["ENOMEM", "ENOSPC", "EPERM", "ENOSYS"],
        Both,
        No,
        "",
    );
    let waits = [
        "epoll_wait",
        "epoll_pwait",
        "epoll_pwait2",
        "poll",
        "ppoll",
        "pselect6",
    ];
    add(&waits, &["EINTR", "ENOMEM"], Passes, No, "");
    add(&waits, &["EINVAL", "EPERM", "ENOSYS"], Both, Panic, "");
    add(
        &["pselect6"],
        &["EBADF"],
        Passes,
        No,
        "every descriptor is open",
    );

    add(&["socket"], &LIMITS, Both, No, "");
    add(
        &["socket"],
        &["ENOBUFS", "EACCES", "EAFNOSUPPORT", "EPERM", "ENOSYS"],
        Both,
        No,
        "",
    );
    add(&["socketpair", "pipe2"], &LIMITS, Both, No, "");
    add(&["socketpair", "pipe2"], &DENIED, Both, No, "");
    add(
        &["bind"],
        &["EADDRINUSE", "EADDRNOTAVAIL", "EACCES", "ENOMEM", "EPERM"],
        Both,
        No,
        "",
    );
    add(
        &["listen"],
        &["EADDRINUSE", "EOPNOTSUPP", "EPERM"],
        Both,
        No,
        "",
    );
    let refused = [
        "ECONNREFUSED",
        "ENETUNREACH",
        "EADDRNOTAVAIL",
        "ETIMEDOUT",
        "ENOBUFS",
        "EPERM",
    ];
    add(&["connect"], &refused, Both, No, "");
    add(&["connect"], &["EAGAIN"], Passes, No, "");
    add(
        &["connect"],
        &["EINTR", "EINPROGRESS"],
        Passes,
        Hang(None),
        NO_CONNECT,
    );
    add(
        &["accept4"],
        &["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "EPROTO", "EPERM"],
        Both,
        No,
        "",
    );
    add(&["accept4"], &["ECONNABORTED"], Passes, No, GONE);
    add(&["accept4"], &["EINTR"], Passes, No, INTERRUPTED);
    add(&["accept4"], &["EAGAIN"], Passes, on_epoll, EDGE);

    for call in ["recvfrom", "recvmsg"] {
        add(
            &[call],
            &["ECONNRESET", "ETIMEDOUT", "ENOMEM", "EIO", "EPERM"],
            Both,
            No,
            "",
        );
        add(&[call], &["EINTR"], Passes, No, INTERRUPTED);
        add(&[call], &["EAGAIN"], Passes, on_epoll, EDGE);
    }
    for call in ["sendto", "sendmsg"] {
        add(
            &[call],
            &["EPIPE", "ECONNRESET", "ENOMEM", "ENOBUFS", "EIO", "EPERM"],
            Both,
            No,
            "",
        );
        add(&[call], &["EINTR"], Passes, No, INTERRUPTED);
        add(&[call], &["EAGAIN"], Passes, on_epoll, EDGE);
    }
    add(&["read"], &["EIO", "ENOMEM", "EPERM"], Both, No, "");
    add(&["read"], &["EINTR"], Passes, No, "");
    add(&["read"], &["EAGAIN"], Passes, on_epoll, EDGE);
    add(&["write"], &["EINTR"], Passes, No, "");
    add(
        &["write"],
        &["EIO", "ENOMEM", "EPIPE", "EPERM"],
        Both,
        Hang(None),
        EVENTFD,
    );
    add(&["write"], &["EAGAIN"], Passes, Hang(None), FULL);

    let options = ["getsockopt", "setsockopt"];
    add(
        &options,
        &["ENOPROTOOPT", "ENOBUFS", "ENOMEM", "EPERM", "ENOSYS"],
        Both,
        No,
        "",
    );
    add(
        &["getsockname", "getpeername"],
        &["ENOBUFS", "EPERM"],
        Both,
        No,
        "",
    );
    add(&["getpeername"], &["ENOTCONN"], Passes, on_epoll, CONNECTED);
    add(
        &["shutdown"],
        &["ENOTCONN", "ENOBUFS", "EPERM"],
        Both,
        No,
        "",
    );
    add(&["fcntl", "ioctl"], &["EINVAL", "EPERM"], Both, No, "");
    add(&["fstat", "newfstatat"], &DENIED, Both, No, "");
    add(&["openat"], &["EMFILE", "ENFILE", "EACCES"], Both, No, "");
    add(&["rt_sigaction"], &["EINVAL"], Both, No, "");
    add(
        &["clone3"],
        &["EAGAIN", "ENOMEM", "EPERM", "ENOSYS"],
        Both,
        Panic,
        "",
    );
    add(&["clone"], &["EAGAIN"], Both, No, "");
    add(&["close"], &["EINTR", "EIO"], Both, No, NO_CLOSE);

    let limits = ["EMFILE", "EACCES", "EIO"];
    add(&["file:openat2"], &["EAGAIN", "EOPNOTSUPP"], Both, No, "");
    add(&["file:openat2", "file:openat"], &limits, Both, No, "");
    add(&["file:openat2"], &DENIED, Both, No, "");
    add(&["file:openat"], &["ENOSPC"], Both, No, "");
    add(&["file:preadv2"], &["EAGAIN", "EOPNOTSUPP"], Both, No, "");
    add(&["file:preadv2"], &DENIED, Both, No, "");
    add(&["file:preadv2", "file:read"], &["EIO"], Both, No, "");
    let writes = ["file:write", "file:writev"];
    add(&writes, &["ENOSPC", "EDQUOT", "EIO"], Both, No, "");
    let changes = ["file:fsync", "file:fdatasync", "file:ftruncate"];
    add(&changes, &["ENOSPC", "EIO"], Both, No, "");
    let looks = ["file:statx", "file:lseek", "file:fcntl"];
    add(&looks, &["EIO", "EPERM"], Both, No, "");
    add(&["file:openat2", "file:openat"], &["EINTR"], Passes, No, "");
    add(&["file:preadv2", "file:read"], &["EINTR"], Passes, No, "");
    add(&writes, &["EINTR"], Passes, No, "");
    add(&changes, &["EINTR"], Passes, No, "");
    add(&["file:close"], &["ENOSPC", "EIO"], Both, No, NO_CLOSE);
    rows
}

impl Row {
    fn whens(&self) -> impl Iterator<Item = &'static str> + use<> {
        let lasting: &[&str] = match self.lasts {
            Lasts::Both => &FROM_THEN_ON,
            Lasts::Passes => &EVERY_OTHER,
        };
        ONCE.iter().chain(lasting).copied()
    }

    /// Returns whether this result is allowed.
    fn allows(&self, outcome: &Outcome, backend: Backend) -> bool {
        match outcome {
            Outcome::Untouched | Outcome::Right | Outcome::Said => true,
            // Without free descriptors, a server waits until some are closed.
            Outcome::Unserved => self.call == "accept4" && self.lasts == Lasts::Both,
            Outcome::Told => self.excuse != Excuse::None,
            Outcome::Hang => match self.excuse {
                Excuse::Hang(on) => on.is_none_or(|on| on == backend),
                _ => false,
            },
            Outcome::Panic | Outcome::Died(_) | Outcome::Wrong => false,
        }
    }
}

/// The result of one run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// The call was not made, or not that often.
    Untouched,
    Right,
    /// An error with a message.
    Said,
    /// A server that kept waiting.
    Unserved,
    /// A panic with a message that contains the kernel's error.
    Told,
    Panic,
    Hang,
    Died(String),
    Wrong,
}

impl Outcome {
    fn words(&self) -> String {
        match self {
            Outcome::Untouched => "–".into(),
            Outcome::Right => "right".into(),
            Outcome::Said => "error".into(),
            Outcome::Unserved => "waits".into(),
            Outcome::Told | Outcome::Panic => "panic".into(),
            Outcome::Hang => "hang".into(),
            Outcome::Died(how) => format!("died ({how})"),
            Outcome::Wrong => "wrong".into(),
        }
    }
}

struct Run {
    outcome: Outcome,
    /// The messages of parts, each with the part's name.
    words: Vec<String>,
}

/// A process that does not outlive its run.
struct Process(Child);

impl Process {
    fn start(
        program: impl AsRef<OsStr>,
        arguments: &[&OsStr],
        way: &str,
    ) -> std::io::Result<Process> {
        let child = Command::new(program)
            .args(arguments)
            .env_remove("POLDER_BACKEND")
            .env("POLDER_FS", way)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Process(child))
    }

    fn id(&self) -> libc::pid_t {
        libc::pid_t::try_from(self.0.id()).expect("an id fits")
    }

    fn ended_within(&mut self, limit: Duration) -> Option<std::process::ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                return Some(status);
            }
            if start.elapsed() > limit {
                return None;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the subject, with or without a fault. An error explains why that is not possible here.
fn run(backend: Backend, fault: Option<&str>, limit: Duration) -> Result<Run, String> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let memory = memory.expect("a folder for temporary files");
    let report = folder.path().join("report");
    let this = std::env::current_exe().expect("this program has a path");
    // Seconds after which a client counts as unserved: few where that is allowed, since each of
    // those runs waits for it.
    let is_allowed = fault.is_some_and(|fault| fault.starts_with("accept4:"));
    let patience = if is_allowed { "2" } else { "20" };
    let arguments = [
        "subject".as_ref(),
        backend.name().as_ref(),
        report.as_os_str(),
        memory.path().as_os_str(),
        patience.as_ref(),
    ];
    // Both ways to files.
    let way = match backend {
        Backend::Poll => "pool",
        _ => "cached",
    };
    let mut subject = Process::start(this, &arguments, way).expect("the subject starts");
    // The subject writes little there, if anything: its panic hook replaces the default. Losing
    // unread output is harmless.
    let mut status = 0;
    // SAFETY: the id is that of a child that was not waited for; there is room for the status. A
    // child that has stopped is not reaped by this.
    let stopped = unsafe { libc::waitpid(subject.id(), &mut status, libc::WUNTRACED) };
    assert!(
        stopped == subject.id() && libc::WIFSTOPPED(status),
        "the subject did not stop: {status}"
    );
    let log = folder.path().join("log");
    let mut tracer = match fault {
        None => None,
        Some(fault) => {
            let of_files = fault.strip_prefix(OF_FILES);
            let fault = of_files.unwrap_or(fault);
            let (call, _) = fault.split_once(':').expect("CALL:error=ERRNO");
            let [trace, inject] = [format!("trace={call}"), format!("inject={fault}")];
            let id = subject.id().to_string();
            let arguments = ["-f", "-q", "-e", &trace, "-e", &inject, "-p", &id, "-o"];
            let mut arguments: Vec<&OsStr> = arguments.map(OsStr::new).into();
            arguments.push(log.as_os_str());
            let files = [folder.path(), memory.path()].map(|folder| folder.join(FILE));
            if of_files.is_some() {
                arguments.extend(
                    files
                        .iter()
                        .flat_map(|file| ["-P".as_ref(), file.as_os_str()]),
                );
            }
            let mut tracer = Process::start("strace", &arguments, way)
                .map_err(|error| format!("strace does not start: {error}"))?;
            attached(&mut tracer, &subject)?;
            Some(tracer)
        }
    };
    // SAFETY: this sends a signal and touches no memory; the id is the child's still.
    unsafe { libc::kill(subject.id(), libc::SIGCONT) };
    let status = subject.ended_within(limit);
    drop(subject);
    if let Some(tracer) = &mut tracer {
        // Without a tracee strace exits by itself, after writing its log.
        tracer.ended_within(Duration::from_secs(5));
    }
    let log = fs::read(&log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let touched = fault.is_none() || log.contains("(INJECTED)");
    let report = fs::read(&report).unwrap_or_default();
    Ok(judge(status, touched, &String::from_utf8_lossy(&report)))
}

/// Waits until strace holds the subject.
fn attached(tracer: &mut Process, subject: &Process) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", subject.id()));
        let status = status.map_err(|error| format!("the subject has gone: {error}"))?;
        let by = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        if by.is_some_and(|by| by.trim() != "0") {
            return Ok(());
        }
        if tracer.ended_within(Duration::ZERO).is_some() || start.elapsed() > LIMIT {
            let _ = tracer.0.kill();
            let mut words = String::new();
            let stderr = tracer.0.stderr.as_mut().expect("it is piped");
            let _ = stderr.read_to_string(&mut words);
            return Err(words.trim().to_owned());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn judge(status: Option<std::process::ExitStatus>, touched: bool, report: &str) -> Run {
    let mut run = Run {
        outcome: Outcome::Right,
        words: Vec::new(),
    };
    let mut current = "";
    let mut ended = false;
    let mut outcomes = BTreeSet::new();
    for line in report.lines() {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        let [kind, part, words] = fields[..] else {
            continue;
        };
        let outcome = match kind {
            "begin" => {
                current = part;
                continue;
            }
            "end" => {
                ended = true;
                continue;
            }
            "said" if words.is_empty() => Outcome::Wrong,
            "said" if words.contains(UNSERVED) => Outcome::Unserved,
            "said" => Outcome::Said,
            "panic" if words.contains("os error") || words.contains("Os {") => Outcome::Told,
            "panic" => Outcome::Panic,
            "wrong" => Outcome::Wrong,
            _ => continue,
        };
        let words = match (kind, part) {
            // A panic on another thread than the one that runs the parts: the part it belonged to
            // is a matter of timing.
            ("panic", thread) if thread != "main" => format!("panic of thread {thread}: {words}"),
            ("panic", _) => format!("{current}: panic: {words}"),
            ("wrong", _) => format!("{current}: wrong: {words}"),
            _ => format!("{part}: {words}"),
        };
        run.words.push(words);
        outcomes.insert(outcome);
    }
    match status {
        None => {
            run.words.push(format!("hangs in {current}"));
            outcomes.insert(Outcome::Hang);
        }
        Some(status) if status.success() && ended => {}
        Some(status) => {
            run.words.push(format!("dies in {current}: {status}"));
            outcomes.insert(Outcome::Died(status.to_string()));
        }
    }
    run.outcome = if touched {
        outcomes.pop_last().unwrap_or(Outcome::Right)
    } else {
        // Without a fault nothing may go wrong; a hang counts as a hang even if its log is lost.
        outcomes.pop_last().unwrap_or(Outcome::Untouched)
    };
    run
}

/// A run, repeated with a longer limit if it hung unexpectedly: a machine may be slow.
fn run_surely(backend: Backend, fault: &str, expected: bool) -> Result<Run, String> {
    let first = run(backend, Some(fault), LIMIT)?;
    match first.outcome {
        Outcome::Hang if !expected => run(backend, Some(fault), LAST_LIMIT),
        _ => Ok(first),
    }
}

/// The results of all runs of one row on one backend.
#[derive(Default)]
struct Cell {
    outcomes: BTreeMap<Outcome, Vec<&'static str>>,
    words: BTreeSet<String>,
    unknown: Option<String>,
}

/// Runs rows on several threads, and returns a cell for each row and backend.
fn run_all(
    rows: &[Row],
    whens: impl Fn(usize, Backend) -> Vec<&'static str> + Sync,
) -> Vec<[Cell; BACKENDS.len()]> {
    let jobs: Vec<(usize, usize)> = (0..rows.len())
        .flat_map(|row| (0..BACKENDS.len()).map(move |backend| (row, backend)))
        .collect();
    let next = AtomicUsize::new(0);
    let cells = Mutex::new(Vec::new());
    cells
        .lock()
        .unwrap()
        .resize_with(rows.len(), || BACKENDS.map(|_| Cell::default()));
    // Many of these threads wait for events that never come.
    let threads = 2 * thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((row, backend)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let cell = fill(
                        &rows[*row],
                        BACKENDS[*backend],
                        &whens(*row, BACKENDS[*backend]),
                    );
                    cells.lock().unwrap()[*row][*backend] = cell;
                }
            });
        }
    });
    cells.into_inner().unwrap()
}

fn fill(row: &Row, backend: Backend, whens: &[&'static str]) -> Cell {
    let mut cell = Cell::default();
    let mut untouched_from = usize::MAX;
    for when in whens {
        let first: usize = when.split('+').next().unwrap().parse().expect("a number");
        if first >= untouched_from {
            continue;
        }
        let fault = format!("{}:error={}:when={when}", row.call, row.errno);
        let hangs = cell.outcomes.get(&Outcome::Hang).map_or(0, Vec::len);
        if hangs >= HANGS && !when.contains('+') {
            continue;
        }
        let expected = hangs > 0 || row.allows(&Outcome::Hang, backend);
        match run_surely(backend, &fault, expected) {
            Ok(run) => {
                if run.outcome == Outcome::Untouched {
                    untouched_from = first;
                    continue;
                }
                cell.words
                    .extend(run.words.iter().map(|words| plain(words)));
                if !row.allows(&run.outcome, backend) {
                    eprintln!("{fault} on {backend}: {:?}: {:?}", run.outcome, run.words);
                }
                cell.outcomes.entry(run.outcome).or_default().push(when);
            }
            // A call that this architecture does not have.
            Err(error) if error.contains("invalid system call") => return cell,
            Err(error) => {
                cell.unknown = Some(error);
                return cell;
            }
        }
    }
    cell
}

/// Normalises a message between runs and machines: paths, lines and worker numbers differ.
fn plain(words: &str) -> String {
    let words = words.split(' ').map(|word| {
        // The directory of the run, which `tempfile` has named.
        if let Some((before, name)) = word.split_once("/.tmp") {
            let quote = if before.starts_with('"') { "\"" } else { "" };
            let inside = name.split_once('/').map_or("", |(_, inside)| inside);
            return format!("{quote}DIRECTORY/{inside}");
        }
        if word.starts_with("polder-") && word.ends_with(':') {
            return word.replace(|one: char| one.is_ascii_digit(), "N");
        }
        // A source location: its line changes with each edit, and the crate's path with each
        // machine.
        match word.split_once(".rs:") {
            Some((path, _)) => {
                let path = path.trim_start_matches('(');
                let inside = path.split_once("/registry/src/").map(|(_, rest)| rest);
                let file = inside.and_then(|rest| Some(rest.split_once('/')?.1));
                format!("({}.rs)", file.unwrap_or(path))
            }
            None => word.into(),
        }
    });
    words.collect::<Vec<String>>().join(" ")
}

/// Returns whether tracing works here; if not, prints why.
fn can_trace() -> bool {
    match run(Backend::Epoll, Some("getpgid:error=EPERM:when=1"), LIMIT) {
        Ok(run) if run.outcome == Outcome::Untouched => true,
        Ok(run) => panic!("without a fault: {:?}: {:#?}", run.outcome, run.words),
        Err(error) => {
            println!("faults: skipped, since nothing can be traced here: {error}");
            false
        }
    }
}

/// The subject on every backend, without a fault: what `cargo test` runs.
pub fn without_faults() -> ExitCode {
    for backend in Backend::available() {
        let run = run(backend, None, LAST_LIMIT).expect("nothing is traced");
        assert!(
            run.outcome == Outcome::Right,
            "on {backend}: {:?}: {:#?}",
            run.outcome,
            run.words
        );
        println!("faults: none on {backend}, and all is right");
    }
    ExitCode::SUCCESS
}

/// Runs one cell, to investigate a failure.
pub fn one(call: &str, errno: &str, when: &str, backend: &str) -> ExitCode {
    let backend = backend.parse().expect("a backend of this machine");
    let fault = format!("{call}:error={errno}:when={when}");
    match run(backend, Some(&fault), LIMIT) {
        Ok(run) => println!("{:?}\n{}", run.outcome, run.words.join("\n")),
        Err(error) => println!("{error}"),
    }
    ExitCode::SUCCESS
}

/// A part of the matrix: on each backend one fault of each row, a different one per backend.
pub fn check() -> ExitCode {
    if !can_trace() {
        return ExitCode::SUCCESS;
    }
    let rows = rows();
    let cells = run_all(&rows, |row, backend| {
        let place = BACKENDS.iter().position(|other| *other == backend);
        let turn = row + place.expect("it is one of them");
        let mut whens = ["1", "2", "3"][turn % 3..][..1].to_vec();
        // If a hang only means that the injected fault is untrue, one run is enough.
        if turn % 3 == 0 && !rows[row].allows(&Outcome::Hang, backend) {
            whens = rows[row].whens().skip(ONCE.len()).take(1).collect();
        }
        whens
    });
    let mut bad = 0;
    let mut runs = 0;
    for (row, cells) in rows.iter().zip(&cells) {
        for (cell, backend) in cells.iter().zip(BACKENDS) {
            if let Some(unknown) = &cell.unknown {
                eprintln!("{} {} on {backend}: {unknown}", row.call, row.errno);
                bad += 1;
            }
            for (outcome, whens) in &cell.outcomes {
                runs += whens.len();
                bad += usize::from(!row.allows(outcome, backend));
            }
        }
    }
    println!("faults: {runs} met a call, {bad} ended badly");
    // Each row has a call that some backend makes. If they are fewer, nothing was injected.
    assert!(runs >= rows.len(), "of {} rows", rows.len());
    match bad {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The whole matrix, as a page.
pub fn write(page: &Path) -> ExitCode {
    if !can_trace() {
        return ExitCode::FAILURE;
    }
    let rows = rows();
    let cells = run_all(&rows, |row, _| rows[row].whens().collect());
    let text = render(&rows, &cells);
    fs::write(page, &text).expect("the page can be written");
    let mut bad = 0;
    for (row, cells) in rows.iter().zip(&cells) {
        for (cell, backend) in cells.iter().zip(BACKENDS) {
            bad += cell
                .outcomes
                .keys()
                .filter(|outcome| !row.allows(outcome, backend))
                .count();
        }
    }
    println!("{}: {bad} cells are not as they should be", page.display());
    match bad {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

const HEAD: &str = "\
# Faults

What happens when the kernel refuses a system call. `ci/faults.sh` writes this page: it runs a program
that does everything once (`tests/faults/subject.rs`: TCP, UDP, Unix sockets, pipes, timers, threads, workers,
`serve`, signals, `unblock`, files, the resolver, a foreign loop), with exact expectations, under `strace -e inject`,
again and again: each call fails with each errno, once, after 1, 2, 3, 5, 8 and 13 calls of a thread, and
from the first and the fourth on; or, where an errno passes by itself, at every second call. strace
attaches to the program once it has started, so the standard library's start is left alone. A call that begins
with `file:` fails only where it is about the program's files (`strace -P`), of which one is on a disk and one in
memory; with `poll` threads make all calls on files (`POLDER_FS=pool`).

| cell | means |
|---|---|
| right | every part came out right |
| error | some part got an `io::Error` with a message, listed below, and every other part came out right |
| waits | `serve` could not accept a connection, and goes on trying |
| panic, with words | what fails has no error to return: `block_on` of a runtime whose poller cannot wait any more, `unblock` without a thread |
| – | the backend does not make that call |
| **panic**, **hang**, **died**, **wrong** | must not happen; in brackets, at which calls. Where it is not bold, strace injects what no kernel does: see the note |
";

fn render(rows: &[Row], cells: &[[Cell; BACKENDS.len()]]) -> String {
    let mut text = String::from(HEAD);
    let mut notes: Vec<&str> = Vec::new();
    text.push_str("\n## The matrix\n\n| call | errno |");
    for backend in BACKENDS {
        write!(text, " {backend} |").unwrap();
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(BACKENDS.len()));
    text.push('\n');
    for (row, cells) in rows.iter().zip(cells) {
        if cells
            .iter()
            .all(|cell| cell.outcomes.is_empty() && cell.unknown.is_none())
        {
            continue;
        }
        write!(text, "| {} | {}", row.call, row.errno).unwrap();
        if !row.fake.is_empty() {
            let place = notes.iter().position(|note| *note == row.fake);
            let place = place.unwrap_or_else(|| {
                notes.push(row.fake);
                notes.len() - 1
            });
            write!(text, "[^{}]", place + 1).unwrap();
        }
        text.push_str(" |");
        for (cell, backend) in cells.iter().zip(BACKENDS) {
            write!(text, " {} |", shown(row, cell, backend)).unwrap();
        }
        text.push('\n');
    }
    text.push('\n');
    for (place, note) in notes.iter().enumerate() {
        writeln!(text, "[^{}]: No kernel does this: {note}.", place + 1).unwrap();
    }
    text.push_str("\n## What was said\n\nBy part of the program; on all backends together.\n\n");
    for (row, cells) in rows.iter().zip(cells) {
        let words: BTreeSet<&String> = cells.iter().flat_map(|cell| &cell.words).collect();
        if words.is_empty() {
            continue;
        }
        writeln!(text, "* `{}`, {}", row.call, row.errno).unwrap();
        for words in words {
            writeln!(text, "  * {words}").unwrap();
        }
    }
    text
}

fn shown(row: &Row, cell: &Cell, backend: Backend) -> String {
    if let Some(unknown) = &cell.unknown {
        return format!("not known: {unknown}");
    }
    let parts: Vec<String> = cell
        .outcomes
        .iter()
        .map(|(outcome, whens)| {
            if row.allows(outcome, backend) {
                outcome.words()
            } else {
                format!("**{}** ({})", outcome.words(), whens.join(", "))
            }
        })
        .collect();
    if parts.is_empty() {
        Outcome::Untouched.words()
    } else {
        parts.join(", ")
    }
}

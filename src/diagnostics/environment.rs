//! Environment variables that diagnose an unmodified program: `POLDER_DUMP`, `POLDER_STALL`,
//! `POLDER_TRACE` and `POLDER_TOP` (docs/DIAGNOSTICS.md).
//!
//! They are read once in each process (a child of `fork` is another one), when its first runtime is
//! built. If none is set, nothing is opened, started or kept. Otherwise each new runtime is added
//! to a list, which does not keep it alive.
//!
//! An invalid value, or a name that looks misspelled, is reported on standard error, and has no
//! other effect. The variables are ignored by a program with rights that its user does not have:
//! they could make it write files, and reveal its internals.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::watchdog::{Headline, OnStall, Stall, watch};
use super::{Dump, Trace, record, trace};
use crate::kernel;
use crate::scheduler::Shared;
use crate::sync::Mutex;
use crate::sys::{self, PerProcess, start_thread};

const DUMP: &str = "POLDER_DUMP";

const STALL: &str = "POLDER_STALL";

const TRACE: &str = "POLDER_TRACE";

/// The path of the Unix socket for `polder-top`: see `top`.
const TOP: &str = "POLDER_TOP";

/// The variables of this module, of `poller`, `fs`, polder-sim and polder-replay.
const NAMES: [&str; 22] = [
    DUMP,
    STALL,
    TOP,
    TRACE,
    "POLDER_BACKEND",
    "POLDER_FS",
    "POLDER_RECORD",
    "POLDER_RECORD_LIMIT",
    "POLDER_REPLAY",
    "POLDER_REPLAY_UNTIL",
    "POLDER_SIM_SEED",
    "POLDER_SIM_RUNS",
    "POLDER_SIM_FIRST_SEED",
    "POLDER_SIM_REPLAY",
    "POLDER_SIM_VERIFY",
    "POLDER_SIM_CORPUS",
    "POLDER_SIM_DIFF",
    "POLDER_SIM_EXPLORE",
    "POLDER_SIM_JOBS",
    "POLDER_SIM_LOG",
    "POLDER_SIM_STEP_TIMEOUT",
    "POLDER_SIM_STOP_AT",
];

/// Names that users of other runtimes may expect, and their replacements.
const ELSEWHERE: [(&str, &str); 2] = [
    ("POLDER_WORKERS", "Builder::workers"),
    ("POLDER_THREADS", "Builder::workers"),
];

const PREFIX: &str = "POLDER_";

/// The maximum edit distance. A larger one would match a program's own variables.
const MISSPELLED: usize = 2;

/// 1.5 MiB: some seconds of a busy worker.
const TRACED_EVENTS: usize = 65_536;

/// A limit of files, so that a program that makes a runtime for each request does not fill the
/// disk.
const TRACED_RUNTIMES: usize = 64;

/// Writing takes a while, and the next trace contains a skipped stall, too.
const TRACE_INTERVAL: Duration = Duration::from_secs(1);

/// The limit of stalls reported within a second, so that they do not fill the disk; others are
/// counted.
const STALLS_PER_SECOND: usize = 10;

/// The start of every dump file; other files are not appended to.
const FIRST_WORDS: &str = "polder: process";

#[derive(Default)]
struct Observer {
    stalls: Option<(Duration, OnStall)>,
    trace: Option<PathBuf>,
    /// Held while a trace file is replaced.
    writing: Mutex<()>,
    built: AtomicUsize,
    runtimes: Mutex<Vec<Noted>>,
}

struct Noted {
    number: usize,
    shared: Weak<Shared>,
    written: Option<Instant>,
}

fn observer() -> Option<&'static Observer> {
    // A simulated world has its own report.
    if kernel::current().is_some() {
        return None;
    }
    OBSERVER.get().get_or_init(read).as_ref()
}

static OBSERVER: PerProcess<OnceLock<Option<Observer>>> = PerProcess::new(OnceLock::new);

/// Returns the settings if they were read. Starts nothing.
fn present() -> Option<&'static Observer> {
    OBSERVER.existing()?.get()?.as_ref()
}

/// Watches a runtime whose builder does not: see [`observe`](super::observe).
pub(super) fn watch_stalls(shared: &Arc<Shared>) {
    let Some((over, on_stall)) = observer().and_then(|observer| observer.stalls.clone()) else {
        return;
    };
    if let Err(error) = watch(shared, over, on_stall) {
        say(&format!("polder: {STALL} is ignored: {error}\n"));
    }
}

/// Traces a new runtime if the environment asks for it and its builder does not.
pub(super) fn recorded(mut shared: Shared) -> Shared {
    let has_file = observer().is_some_and(|observer| {
        observer.trace.is_some() && observer.built.load(Ordering::Relaxed) < TRACED_RUNTIMES
    });
    if has_file && shared.trace.is_none() {
        record(&mut shared, TRACED_EVENTS);
    }
    shared
}

pub(super) fn note_runtime(shared: &Arc<Shared>) {
    let Some(observer) = observer() else {
        return;
    };
    let noted = Noted {
        number: observer.built.fetch_add(1, Ordering::Relaxed),
        shared: Arc::downgrade(shared),
        written: None,
    };
    let mut runtimes = observer.runtimes.lock();
    runtimes.retain(|noted| noted.shared.strong_count() > 0);
    runtimes.push(noted);
}

fn numbered(path: &Path, number: usize) -> Option<PathBuf> {
    match number {
        0 => Some(path.to_owned()),
        TRACED_RUNTIMES.. => None,
        number => {
            let mut path = path.as_os_str().to_owned();
            path.push(format!(".{number}"));
            Some(path.into())
        }
    }
}

/// Writes the trace; for a stall only if the last one is old enough.
pub(super) fn write_trace(shared: &Shared, is_stall: bool) {
    let Some(observer) = present().filter(|observer| observer.trace.is_some()) else {
        return;
    };
    let mut runtimes = observer.runtimes.lock();
    let is_it = |noted: &&mut Noted| std::ptr::eq(noted.shared.as_ptr(), shared);
    let path = runtimes.iter_mut().find(is_it).and_then(|noted| {
        if is_stall {
            let is_recent = |written: Instant| written.elapsed() < TRACE_INTERVAL;
            if noted.written.is_some_and(is_recent) {
                return None;
            }
            noted.written = Some(Instant::now());
        }
        numbered(observer.trace.as_ref()?, noted.number)
    });
    drop(runtimes);
    let Some(path) = path else {
        return;
    };
    let writing = observer.writing.lock();
    let Some(trace) = Trace::of(shared) else {
        return;
    };
    // Before the older trace is removed.
    let json = trace.json();
    let written =
        open(&path, trace::FIRST_WORDS, true).and_then(|mut file| file.write_all(json.as_bytes()));
    drop(writing);
    if let Err(error) = written {
        say(&format!("polder: {TRACE}: {path:?}: {error}\n"));
    }
}

/// Returns advice on a name that polder does not read, but that is probably meant for it.
fn advice(name: &str) -> Option<String> {
    if !name.starts_with(PREFIX) || NAMES.contains(&name) {
        return None;
    }
    if let Some((_, instead)) = ELSEWHERE.iter().find(|(other, _)| *other == name) {
        return Some(format!("use {instead}"));
    }
    // Short names have many neighbours that may be a program's own: POLDER_TMP, POLDER_STATE.
    let most = |known: &str| match known.len() - PREFIX.len() {
        0..=3 => 0,
        4..=5 => 1,
        _ => MISSPELLED,
    };
    let is_like = |known: &&&str| {
        let is_longer = matches!(name.strip_prefix(**known), Some("S" | "FILE"));
        is_longer || distance(name, known) <= most(known)
    };
    let nearest = NAMES.iter().filter(is_like);
    let nearest = nearest.min_by_key(|known| distance(name, known))?;
    Some(format!("did you mean {nearest}?"))
}

fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for place in 1..row.len() {
            let changed = diagonal + usize::from(other[place - 1] != *letter);
            diagonal = row[place];
            row[place] = changed.min(1 + row[place].min(row[place - 1]));
        }
    }
    row[other.len()]
}

fn report_names() {
    for (name, value) in std::env::vars_os() {
        let Some((name, advice)) = name.to_str().and_then(|name| Some((name, advice(name)?)))
        else {
            continue;
        };
        if !value.is_empty() {
            let all = NAMES.join(", ");
            // The value may be a secret of another program, and is not printed.
            say(&format!(
                "polder: unknown variable {name}: {advice} (known: {all})\n"
            ));
        }
    }
}

fn read() -> Option<Observer> {
    let value = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let (dump, stall, trace, top) = (value(DUMP), value(STALL), value(TRACE), value(TOP));
    let all = [&dump, &stall, &trace, &top];
    if sys::has_foreign_rights() {
        return None;
    }
    report_names();
    if all.iter().all(|value| value.is_none()) {
        return None;
    }
    let mut observer = Observer {
        trace: trace.map(|path| file(&path)),
        ..Observer::default()
    };
    if let Some(error) = observer.trace.as_deref().and_then(folder_problem) {
        say(&format!("polder: {TRACE}: {error}\n"));
    }
    set(STALL, stall, |text| {
        let what = || io::Error::other("it is a duration, as 100ms or 2s");
        let over = text.to_str().and_then(duration).ok_or_else(what)?;
        observer.stalls = Some((over, Arc::new(print_stalls())));
        Ok(())
    });
    set(DUMP, dump, |text| {
        let what = || io::Error::other("it is usr1, or after:30s; then :PATH may follow");
        let setting = DumpSetting::parse(text).ok_or_else(what)?;
        if let Some(error) = setting.path.as_deref().and_then(folder_problem) {
            say(&format!(
                "polder: {DUMP}: {error}: dumps are printed here unless that changes\n"
            ));
        }
        start(setting)
    });
    set(TOP, top, start_top);
    Some(observer)
}

fn set(name: &str, value: Option<OsString>, apply: impl FnOnce(&OsStr) -> io::Result<()>) {
    if let Some(value) = value {
        if let Err(error) = apply(&value) {
            say(&format!("polder: {name}={value:?} is ignored: {error}\n"));
        }
    }
}

fn start_top(path: &OsStr) -> io::Result<()> {
    #[cfg(unix)]
    return super::top::start(file(path));
    #[cfg(not(unix))]
    {
        let _ = path;
        Err(sys::unsupported("Unix sockets are not supported here"))
    }
}

/// Writes to standard error. Errors are ignored: its reader may be gone.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Parses `250us`, `100ms`, `30s` and `2m`.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    let duration = match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    };
    Some(duration).filter(|duration| !duration.is_zero())
}

#[derive(Clone, PartialEq, Debug)]
struct DumpSetting {
    moment: Moment,
    /// `None` for standard error.
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Moment {
    /// On each SIGUSR1.
    Signal,
    /// Once, this long after the first runtime was built.
    After(Duration),
}

impl DumpSetting {
    fn parse(text: &OsStr) -> Option<DumpSetting> {
        let text = text.to_str()?;
        let after = text.strip_prefix("after:");
        let mut parts = after.unwrap_or(text).splitn(2, ':');
        let moment = match (after, parts.next()?) {
            (Some(_), time) => Moment::After(duration(time)?),
            (None, "usr1") => Moment::Signal,
            _ => return None,
        };
        let path = parts.next();
        if path == Some("") {
            return None;
        }
        let path = path.map(|path| file(path.as_ref()));
        Some(DumpSetting { moment, path })
    }

    fn dump(&self, why: &str) {
        let mut text = format!("{FIRST_WORDS} {}, {why}\n", std::process::id());
        let runtimes = open_runtimes();
        if runtimes.is_empty() {
            text.push_str("polder: there is no runtime\n");
        }
        for (_, runtime) in runtimes {
            let _ = write!(text, "{}", Dump::of(&runtime, &[]));
            write_trace(&runtime, false);
        }
        let Some(path) = &self.path else {
            return say(&text);
        };
        let written =
            open(path, FIRST_WORDS, false).and_then(|mut file| file.write_all(text.as_bytes()));
        if let Err(error) = written {
            // This may be the only dump of the bug.
            say(&format!(
                "polder: {DUMP}: {path:?}: {error}; here is the dump:\n{text}"
            ));
        }
    }
}

pub(super) fn open_runtimes() -> Vec<(usize, Arc<Shared>)> {
    let Some(observer) = present() else {
        return Vec::new();
    };
    let noted = observer.runtimes.lock();
    let runtimes = noted.iter();
    let runtimes = runtimes.filter_map(|noted| Some((noted.number, noted.shared.upgrade()?)));
    let mut runtimes: Vec<_> = runtimes.collect();
    drop(noted);
    // Handles keep the memory of dropped runtimes.
    runtimes.retain(|(_, runtime)| !runtime.main().reactor.is_closed());
    runtimes
}

/// Starts the thread. The signal is caught before this returns; otherwise it would end the process.
fn start(setting: DumpSetting) -> io::Result<()> {
    let start = Instant::now();
    let run: Box<dyn FnOnce() + Send> = match setting.moment {
        Moment::After(time) => Box::new(move || {
            // Hints compare the dump with this one.
            let look = time.saturating_sub(super::look_before(time));
            thread::sleep(look);
            for (_, runtime) in open_runtimes() {
                Dump::of(&runtime, &[]);
            }
            thread::sleep(time.saturating_sub(start.elapsed()));
            setting.dump(&format!("{time:?} after its first runtime was built"));
        }),
        #[cfg(all(unix, feature = "signal"))]
        Moment::Signal => {
            use futures_lite::{StreamExt, future};

            let mut signals = crate::signal::Signals::new([crate::signal::Signal::Usr1])?;
            Box::new(move || {
                while future::block_on(signals.next()).is_some() {
                    setting.dump("SIGUSR1");
                }
            })
        }
        #[cfg(not(all(unix, feature = "signal")))]
        Moment::Signal => {
            let what = if cfg!(unix) {
                "polder was built without its feature `signal`"
            } else {
                "there is no such signal here"
            };
            return Err(sys::unsupported(what));
        }
    };
    start_thread("polder-dump", run).map(drop)
}

/// Returns why no file can be created at this path now. The folder may appear later.
fn folder_problem(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    let error = match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => return None,
        Ok(_) => io::ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    Some(format!("{folder:?}: {error}"))
}

/// Resolves the path at start, since the program may change its current directory.
fn file(path: &OsStr) -> PathBuf {
    let path = with_process(path, std::process::id());
    std::path::absolute(&path).unwrap_or(path)
}

/// Replaces `%p`: child processes inherit the environment.
fn with_process(path: &OsStr, id: u32) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace("%p", &id.to_string()).into(),
        None => path.into(),
    }
}

/// Opens a file to append to it or to replace it: a new one, readable only by its owner, or one
/// that begins with `first_words`, and so was probably written by polder. A file that ends within
/// these words is replaced: its program ended early. An existing file must be neither a link nor a
/// device, and have no other name.
fn open(path: &Path, first_words: &str, replaces: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Windows cannot truncate a file that is opened to append.
    options.append(!replaces).write(replaces);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => return result,
    }
    // With O_NONBLOCK a pipe without a reader fails instead of blocking. Reading is needed to check
    // the first words.
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits() as i32);
    }
    let mut file = options.open(path)?;
    let mut start = Vec::new();
    let is_own = sys::is_private_file(&file)?
        && (&file)
            .take(first_words.len() as u64)
            .read_to_end(&mut start)
            .is_ok()
        && first_words.as_bytes().starts_with(&start);
    if !is_own {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "there is a file that is not of this program's making, and it is left alone",
        ));
    }
    if replaces || start.len() < first_words.len() {
        file.set_len(0)?;
        file.rewind()?;
    }
    Ok(file)
}

fn print_stalls() -> impl Fn(&Stall) + Send + Sync + 'static {
    // The start of the current second, and the numbers printed and left out in it.
    let printed = Mutex::new((None::<Instant>, 0, 0_usize));
    move |stall| {
        let mut printed = printed.lock();
        let (since, count, left_out) = &mut *printed;
        if since.is_none_or(|since| since.elapsed() >= Duration::from_secs(1)) {
            (*since, *count) = (Some(Instant::now()), 0);
        }
        *count += 1;
        if *count > STALLS_PER_SECOND {
            *left_out += 1;
            return;
        }
        let before = match std::mem::take(left_out) {
            0 => String::new(),
            count => format!("polder: {count} reports of stalls were left out\n"),
        };
        drop(printed);
        say(&format!("{before}polder: {}\n", Headline(stall)));
        // Resolving names takes a while the first time.
        #[cfg(feature = "stall-backtrace")]
        if let Some(backtrace) = &stall.backtrace {
            say(&format!("{backtrace}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        assert_eq!(duration("250us"), Some(Duration::from_micros(250)));
        assert_eq!(duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(duration("30s"), Some(Duration::from_secs(30)));
        assert_eq!(duration("2m"), Some(Duration::from_secs(120)));
        let none = [
            "",
            "30",
            "s",
            "0s",
            "-1s",
            "1.5s",
            "1h",
            "30 s",
            "18446744073709551615m",
            "é",
        ];
        for text in none {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }

    /// A misspelled name is noticed; others are not.
    #[test]
    fn misspelled_variable_is_noticed() {
        for (name, meant) in [
            ("POLDER_BACKENDS", "did you mean POLDER_BACKEND?"),
            ("POLDER_STALLS", "did you mean POLDER_STALL?"),
            ("POLDER_DUMB", "did you mean POLDER_DUMP?"),
            ("POLDER_TRCE", "did you mean POLDER_TRACE?"),
            ("POLDER_SIM_JOB", "did you mean POLDER_SIM_JOBS?"),
            ("POLDER_RECORDS", "did you mean POLDER_RECORD?"),
            ("POLDER_REPLY", "did you mean POLDER_REPLAY?"),
            ("POLDER_DUMPFILE", "did you mean POLDER_DUMP?"),
            ("POLDER_WORKERS", "use Builder::workers"),
        ] {
            assert_eq!(advice(name).as_deref(), Some(meant), "{name}");
        }
        let others = [
            "",
            "PATH",
            "POLDER",
            "POLDER_",
            "POLDER_STORY",
            "POLDER_LOG",
            "POLDER_TMP",
            "POLDER_TLS",
            "POLDER_IO",
            "POLDER_UI",
            "POLDER_STATE",
            "POLDER_SPACE",
            "POLDER_TOPIC",
            "POLDER_SIMULATE",
            "POLDER_TEST_STUCK",
            "MY_POLDER_DUMPS",
        ];
        for name in others.into_iter().chain(NAMES) {
            assert_eq!(advice(name), None, "{name}");
        }
    }

    /// `flavours.rs` belongs to the tests' model of kqueue.
    #[test]
    fn every_variable_that_is_read_is_known() {
        fn walk(folder: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else if !["environment.rs", "flavours.rs"]
                    .iter()
                    .any(|file| path.ends_with(file))
                {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let names = text.split("\"POLDER_").skip(1);
                    let name = |rest: &str| {
                        let end = rest.find(|it: char| !it.is_ascii_uppercase() && it != '_')?;
                        Some(format!("POLDER_{}", &rest[..end]))
                    };
                    found.extend(names.filter_map(name));
                }
            }
        }
        let mut found = Vec::new();
        for folder in ["src", "crates/polder-sim/src", "crates/polder-replay/src"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            // A published package has only its own sources.
            if folder.exists() {
                walk(&folder, &mut found);
            }
        }
        assert!(found.len() > 2, "{found:?}");
        for name in found {
            assert!(NAMES.contains(&&*name), "{name} is not in the list");
        }
    }

    /// `%p` is replaced by the process ID.
    #[test]
    fn process_number_replaced_in_path() {
        for (path, whole) in [
            ("/tmp/a", "/tmp/a"),
            ("/tmp/%p", "/tmp/17"),
            ("%p%p/x%", "1717/x%"),
            ("%%p", "%17"),
        ] {
            assert_eq!(with_process(path.as_ref(), 17), Path::new(whole));
        }
    }

    #[test]
    fn dump_requested_by_moment_and_path() {
        let parse = |text: &str| DumpSetting::parse(OsStr::new(text));
        let setting = |moment, path: Option<&str>| {
            let path = path.map(PathBuf::from);
            Some(DumpSetting { moment, path })
        };
        let after = Moment::After(Duration::from_secs(30));
        assert_eq!(parse("usr1"), setting(Moment::Signal, None));
        #[cfg(unix)]
        assert_eq!(parse("usr1:/a:b"), setting(Moment::Signal, Some("/a:b")));
        assert_eq!(parse("after:30s"), setting(after, None));
        #[cfg(unix)]
        assert_eq!(parse("after:30s:/d.txt"), setting(after, Some("/d.txt")));
        let here = std::env::current_dir().unwrap().join("d.txt");
        assert_eq!(parse("usr1:d.txt"), setting(Moment::Signal, here.to_str()));
        for text in [
            "",
            "usr2",
            "USR1",
            "usr1:",
            "after",
            "after:",
            "after:30",
            "after:30s:",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}

//! The expansion of [`test!`](crate::test): a test that is recorded. The tape of a failure is kept.
//!
//! The test runs on a new thread, which has made no `HashMap` yet. The thread of the test harness
//! waits for it, no longer than the limit.

use std::future::Future;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{env, fs, process, thread};

use polder::__testing::Outcome;
use polder::Backend;

use crate::record::AGE;
use crate::run::{self, record};

/// Runs `test` once: as `POLDER_REPLAY` or `POLDER_RECORD` say, or else recorded.
///
/// # Panics
///
/// If the test fails, or takes longer than `limit`; and if `POLDER_BACKEND` names no backend that
/// is available.
pub fn run<F>(name: &str, limit: Duration, test: fn() -> F)
where
    F: Future + 'static,
    F::Output: Outcome,
{
    // A recording has the system's default. A misspelled name is an error, as for `polder::test!`.
    Backend::list_from_env().unwrap_or_else(|error| panic!("{name}: {error}"));
    let file = name.replace("::", "-") + ".tape";
    // The harness leaves out the name of the crate.
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    let is_set = |name| env::var_os(name).is_some_and(|path| !path.is_empty());
    let is_directed = is_set("POLDER_REPLAY") || is_set("POLDER_RECORD");
    // A debugger takes its time.
    let limit = if is_directed { Duration::MAX } else { limit };
    let tape = folder().join(file);
    // Another process may run the test too.
    let recording = tape.with_extension(process::id().to_string());
    let path = recording.clone();
    let (sender, receiver) = mpsc::channel::<()>();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Dropped when the test has returned or panicked.
        let _sender = sender;
        let test = async move { test().await.check() };
        let run = match path.parent() {
            Some(folder) if !is_directed => {
                fs::create_dir_all(folder).and_then(|()| record(&path, test))
            }
            _ => run::run(test),
        };
        run.unwrap_or_else(|error| panic!("{error}"));
    });
    let thread = thread.unwrap_or_else(|error| panic!("{name}: cannot start a thread: {error}"));
    let is_late = receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
    let failure = if is_late { None } else { thread.join().err() };
    if !is_directed && (is_late || failure.is_some()) {
        if is_late {
            thread::sleep(2 * AGE); // Then all its entries are in the file.
        }
        match fs::rename(&recording, &tape).and_then(|()| env::current_exe()) {
            Ok(program) => eprintln!(
                "{name}: failed, and this runs it again:\n  POLDER_REPLAY={tape:?} {program:?} --exact {name} --include-ignored --nocapture"
            ),
            Err(error) => eprintln!("{name}: failed, and its tape is not kept: {error}"),
        }
    } else if !is_directed {
        // It is left where it cannot be removed.
        let _ = fs::remove_file(&recording);
    }
    if let Some(panic) = failure {
        resume_unwind(panic);
    }
    assert!(!is_late, "{name}: not done after {limit:?}");
}

/// Returns the folder `polder`, in the folder in which Cargo builds, which has a file of this name;
/// a program from elsewhere has the folder of temporary files.
fn folder() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    let mut folders = program.ancestors().skip(1);
    let target = folders.find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target
        .map_or_else(env::temp_dir, PathBuf::from)
        .join("polder")
}

/// Makes a test of an `async fn`, as [`polder::test!`] does: with the same syntax, and a limit. It
/// runs once, and is [recorded](crate). If it fails, or exceeds its limit, the tape is kept in the
/// folder `target/polder`, and the command that runs exactly this again is printed:
///
/// ```text
/// client::reconnects: failed, and this runs it again:
///   POLDER_REPLAY="/src/target/polder/it-client-reconnects.tape" "/src/target/debug/deps/it-3c1d"
///   --exact client::reconnects --include-ignored --nocapture
/// ```
///
/// That is the program that was tested: it has to be there as it was. For a debugger, `gdb --args`
/// follows the variable; a replay has no limit. A test that passes leaves no tape (one of
/// `#[should_panic]` does: its panic is taken for a failure), and the tape of the last failure is
/// left until the next one. One that aborts prints no command, and its tape is in the same folder,
/// with the number of the process; it lacks the last tenth of a second.
///
/// ```
/// polder_replay::test! {
///     limit = std::time::Duration::from_secs(5);
///
///     async fn a_connection_is_accepted() -> std::io::Result<()> {
///         let listener = polder::net::TcpListener::bind("127.0.0.1:0").await?;
///         polder::net::TcpStream::connect(listener.local_addr()?).await?;
///         listener.accept().await?;
///         Ok(())
///     }
/// }
/// # // What the harness does.
/// # polder_replay::__testing::run("example", polder_replay::__testing::DEFAULT_LIMIT, || async {});
/// ```
#[macro_export]
macro_rules! test {
    (limit = $limit:expr; $($tests:tt)*) => {
        $crate::__polder::__test! { ($crate::__testing::run, $limit) $($tests)* }
    };
    ($($tests:tt)*) => {
        $crate::__polder::__test! {
            ($crate::__testing::run, $crate::__testing::DEFAULT_LIMIT) $($tests)*
        }
    };
}

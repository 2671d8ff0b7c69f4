//! What a program says of likely mistakes while it runs: each message names the cure. (Those that
//! the compiler finds are in ci/messages.sh; a wrong backend is in tests/programs.)
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polder::Runtime;
use polder::net::{TcpListener, TcpStream, serve};
use polder::time::sleep;
use rustix::process::{Resource, getrlimit, setrlimit};

const LIMIT: Duration = Duration::from_secs(60);

/// Set in the child.
const CHILD: &str = "POLDER_MISTAKE";

/// Far longer than it takes to notice a stall.
const LONG: Duration = Duration::from_secs(10);

/// Runs `test` again, as a program that makes the mistake, until its standard error has a line with
/// all of `words`.
fn says(test: &str, variable: (&str, &str), mistake: fn(), words: &[&str]) {
    if std::env::var_os(CHILD).is_some() {
        return mistake();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env_remove("POLDER_DUMP").env_remove("POLDER_STALL");
    command.env(CHILD, "").env(variable.0, variable.1);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let (start, mut said) = (Instant::now(), String::new());
    let found = loop {
        match lines.recv_timeout(LIMIT.saturating_sub(start.elapsed())) {
            Ok(line) if words.iter().all(|words| line.contains(words)) => break true,
            Ok(line) => said = said + &line + "\n",
            Err(_) => break false,
        }
    };
    let _ = child.kill();
    child.wait().unwrap();
    assert!(found, "no line with {words:?}, but: {said}");
}

const STALL: (&str, &str) = ("POLDER_STALL", "100ms");

#[test]
fn of_a_call_that_blocks_it_says_where_to_put_it() {
    says(
        "of_a_call_that_blocks_it_says_where_to_put_it",
        STALL,
        || polder::block_on(polder::spawn(async { thread::sleep(LONG) })),
        &["clock_nanosleep: what blocks belongs in `polder::unblock`"],
    );
}

/// A guard held over an await: the message says to drop it before.
#[test]
fn guard_over_await_advises_drop() {
    says(
        "guard_over_await_advises_drop",
        STALL,
        || {
            let lock = Rc::new(Mutex::new(()));
            let hold = || {
                let lock = lock.clone();
                polder::spawn_local(async move {
                    let _guard = lock.lock();
                    sleep(LONG).await;
                })
            };
            polder::block_on(async {
                let (first, second) = (hold(), hold());
                first.await;
                second.await;
            });
        },
        &["futex: drop a guard before the `.await`"],
    );
}

/// `block_on` in a task that waits for another one: the message says to await.
#[test]
fn nested_block_on_advises_await() {
    says(
        "nested_block_on_advises_await",
        STALL,
        || {
            polder::block_on(async {
                let later = polder::spawn(sleep(LONG));
                polder::spawn(async { polder::block_on(later) }).await;
            });
        },
        &["`.await` instead of `block_on`"],
    );
}

/// A task that is never polled: the message says which calls drive it.
#[test]
fn unpolled_task_says_which_calls_drive() {
    says(
        "unpolled_task_says_which_calls_drive",
        ("POLDER_DUMP", "after:100ms"),
        || {
            let runtime = Runtime::new().unwrap();
            let task = runtime.spawn(async {});
            polder::block_on(task);
        },
        &["NOT DRIVEN: no call of `block_on`, `run` or `run_once` runs its tasks"],
    );
}

/// A task awaited by a second `block_on`: the message says that the first one has cancelled it.
/// (smol's tasks survive there.)
#[test]
fn task_of_ended_block_on_says_who_cancelled_it() {
    says(
        "task_of_ended_block_on_says_who_cancelled_it",
        ("POLDER_STALL", ""),
        || {
            let spawned = polder::block_on(async { [polder::spawn(sleep(LONG))] });
            let [task] = spawned;
            polder::block_on(task);
        },
        &["cancelled by runtime shutdown (`polder::block_on` cancels the tasks that are left"],
    );
}

/// Too few descriptors for the connections: the message says which limits there are.
#[test]
fn few_descriptors_say_which_limits() {
    says(
        "few_descriptors_say_which_limits",
        ("POLDER_STALL", ""),
        || {
            polder::block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let server = serve(listener, |stream, _| async move {
                    sleep(LONG).await;
                    drop(stream);
                });
                let _server = polder::spawn(server.into_future());
                let mut limit = getrlimit(Resource::Nofile);
                limit.current = Some(64);
                setrlimit(Resource::Nofile, limit).unwrap();
                let mut clients = Vec::new();
                while let Ok(client) = TcpStream::connect(address).await {
                    clients.push(client);
                }
                sleep(LONG).await;
            });
        },
        &["Too many open files", "(`ulimit -n`)", "`Serve::limit`"],
    );
}

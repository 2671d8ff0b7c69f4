//! A counter and clients that retry until they are answered: for real, over loopback, or in
//! simulated worlds with losses and cuts, which reveal a bug that loopback never shows.
//!
//! ```text
//! cargo run --features sim --example simulated -- [--bug] [--simulate | --backend NAMES]
//! cargo test --features sim --example simulated
//! ```
//! With `--simulate` the same functions run as hosts of a world, with a hundred seeds. With `--bug`
//! as well, a seed fails, and the report says what it takes: if an answer is lost, its request is
//! sent twice and counted twice.
//!
//! The only mention of worlds in the program is the line with `polder::sometimes!`, which compiles
//! to nothing if polder is built without the feature `sim`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use polder::io::{AsyncReadExt, AsyncWriteExt};
use polder::net::{TcpListener, TcpStream};
use polder::sim;
use polder::time::{sleep, timeout};
use polder::{Backend, Runtime};

const USAGE: &str = "usage: simulated [--bug] [--simulate | --backend NAMES]";

/// How many clients there are, and how often each of them increments the counter.
const CLIENTS: u64 = 3;
const TIMES: u64 = 20;

/// The number of a client, and that of its request.
type Request = [u64; 2];

/// Counts the requests to an address, each once.
async fn server(address: &str, has_bug: bool) -> io::Result<()> {
    serve(TcpListener::bind(address).await?, has_bug).await
}

async fn serve(listener: TcpListener, has_bug: bool) -> io::Result<()> {
    // The answer to each request.
    let answers: Rc<RefCell<BTreeMap<Request, u64>>> = Rc::default();
    let count = Rc::new(RefCell::new(0));
    loop {
        let (mut stream, _) = listener.accept().await?;
        let (answers, count) = (answers.clone(), count.clone());
        polder::spawn_local(async move {
            while let Ok(request) = read_numbers(&mut stream).await {
                let known = answers.borrow().get(&request).copied();
                polder::sometimes!(known.is_some(), "a request comes twice");
                let answer = known.filter(|_| !has_bug).unwrap_or_else(|| {
                    *count.borrow_mut() += 1;
                    *count.borrow()
                });
                answers.borrow_mut().insert(request, answer);
                stream.write_all(&answer.to_le_bytes()).await?;
            }
            io::Result::Ok(())
        })
        .detach();
    }
}

/// Increments the counter `times` times, and returns its last value.
async fn client(address: &str, number: u64, times: u64) -> u64 {
    let (mut stream, mut last) = (None, 0);
    for nth in 0..times {
        let limit = Duration::from_millis(200);
        last = loop {
            match timeout(limit, ask(&mut stream, address, [number, nth])).await {
                Ok(Ok(answer)) => break answer,
                // The request may have been counted or not, so it is repeated with the same number.
                _ => stream = None,
            }
            sleep(limit).await;
        };
    }
    last
}

async fn ask(stream: &mut Option<TcpStream>, to: &str, request: Request) -> io::Result<u64> {
    let stream = match stream {
        Some(stream) => stream,
        None => stream.insert(TcpStream::connect(to).await?),
    };
    let request = request.map(u64::to_le_bytes).concat();
    stream.write_all(&request).await?;
    let [answer] = read_numbers(stream).await?;
    Ok(answer)
}

async fn read_numbers<const N: usize>(stream: &mut TcpStream) -> io::Result<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes).await?;
        *number = u64::from_le_bytes(bytes);
    }
    Ok(numbers)
}

/// Runs the program in worlds.
fn simulate(has_bug: bool) {
    let (until, limit) = (Duration::from_secs(10), Duration::from_secs(60));
    sim::check(0..100, |sim| async move {
        sim.host("counter")
            .start(move || server("0.0.0.0:7000", has_bug));
        let clients = ["client-1", "client-2", "client-3"];
        let clients = [0, 1, 2].map(|n| {
            let client = move || client("counter:7000", n, TIMES);
            sim.host(clients[n as usize]).start(client)
        });
        sim.chaos(until).loss().cuts();
        sim.sleep(until).await;
        sim.quiesce();
        let mut last = 0;
        for client in clients {
            last = client.finished().within(limit).await.max(last);
        }
        assert_eq!(last, CLIENTS * TIMES, "each request counts once");
    });
}

/// Runs the program over loopback.
async fn for_real(has_bug: bool) -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let server = polder::spawn_local(serve(listener, has_bug));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let address = address.clone();
            polder::spawn(async move { client(&address, number, TIMES).await })
        })
        .collect();
    let mut last = 0;
    for client in clients {
        last = client.await.max(last);
    }
    drop(server);
    Ok(last)
}

fn main() -> ExitCode {
    // An argument that is not Unicode is no valid option; the parser reports it.
    let given = std::env::args_os().skip(1);
    let given = given.map(|argument| argument.to_string_lossy().into_owned());
    let (result, status) = match arguments(given) {
        Ok(Some(options)) => (run(options), 1),
        Ok(None) => {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        // Usage errors have a separate exit status, as is customary.
        Err(error) => (Err(error), 2),
    };
    match result {
        Ok(words) => {
            let _ = writeln!(io::stdout(), "{words}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "simulated: {error}");
            ExitCode::from(status)
        }
    }
}

#[derive(Default)]
struct Options {
    has_bug: bool,
    simulates: bool,
    backends: Option<Vec<Backend>>,
}

/// Returns `None` if help is requested.
fn arguments(mut arguments: impl Iterator<Item = String>) -> io::Result<Option<Options>> {
    let wrong = |what: String| {
        let text = format!("{what}; {USAGE}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--bug" => options.has_bug = true,
            "--simulate" => options.simulates = true,
            "--backend" => {
                let value = arguments.next();
                let value = value.ok_or_else(|| wrong("--backend needs a value".into()))?;
                options.backends = Some(Backend::parse_list(&value)?);
            }
            other => return Err(wrong(format!("unknown argument {other:?}"))),
        }
    }
    Ok(Some(options))
}

/// Runs the program and returns a line about the result. A failing world panics with its report.
fn run(options: Options) -> io::Result<String> {
    if options.simulates {
        simulate(options.has_bug);
        return Ok("100 seeds: each request counts once".into());
    }
    let mut builder = Runtime::builder();
    if let Some(backends) = options.backends {
        builder = builder.backends(backends);
    }
    let count = builder.build()?.block_on(for_real(options.has_bug))?;
    Ok(format!(
        "counted to {count}, by {CLIENTS} clients with {TIMES} requests each"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder::sim::check;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    // README.md shows this test, and its report with the bug switched on.
    #[test]
    fn each_request_counts_once() {
        check(0..100, |sim| async move {
            sim.host("counter").start(|| server("0.0.0.0:7000", false));
            let one = sim.host("client-1").start(|| client("counter:7000", 1, 20));
            let two = sim.host("client-2").start(|| client("counter:7000", 2, 20));
            sim.chaos(secs(10)).loss().cuts(); // For ten seconds, each seed in its own way.
            sim.sleep(secs(10)).await;
            sim.quiesce(); // From here on progress is owed.
            let one = one.finished().within(secs(60)).await;
            let two = two.finished().within(secs(60)).await;
            assert_eq!(one.max(two), 40);
        });
    }

    #[test]
    fn the_bug_is_found_in_worlds_and_not_over_loopback() {
        let panic = std::panic::catch_unwind(|| simulate(true)).unwrap_err();
        let report = panic.downcast::<String>().expect("a report");
        assert!(report.contains("each request counts once"), "{report}");
        assert!(report.contains(" needed: "), "{report}");
        let count = polder::block_on(for_real(true)).unwrap();
        assert_eq!(count, CLIENTS * TIMES);
    }

    #[test]
    fn without_the_bug_no_seed_fails() {
        simulate(false);
    }

    #[test]
    fn readme_shows_the_test_that_is_here() {
        let lines = |text: &'static str| text.lines().map(str::trim).collect::<Vec<&str>>();
        let (readme, here) = (include_str!("../README.md"), include_str!("simulated.rs"));
        let (readme, here) = (lines(readme), lines(here));
        let start = |all: &[&str]| {
            let name = "fn each_request_counts_once() {";
            all.iter()
                .position(|other| *other == name)
                .expect("the test")
        };
        let (shown, test) = (&readme[start(&readme)..], &here[start(&here)..]);
        let len = test.iter().position(|line| *line == "}").expect("its end");
        assert_eq!(shown[..len], test[..len]);
    }
}

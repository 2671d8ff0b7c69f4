//! `Event` and `Latch`: set before the wait, after it, and from another thread; and a foreign loop
//! that drives the runtime with turns that do not block.
//!
//! ```text
//! cargo run --release --example event
//! ```

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polder::Runtime;
use polder::event::Event;
use polder::event::Latch;
use polder::time::sleep;

const USAGE: &str = "usage: event";

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        None => {}
        Some(help) if help == "--help" || help == "-h" => {
            let _ = writeln!(io::stdout(), "{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            let _ = writeln!(
                io::stderr(),
                "event: unexpected argument {other:?}; {USAGE}"
            );
            return ExitCode::from(2);
        }
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "event: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        // The event is set before the wait.
        let event = Arc::new(Event::new());
        event.set();
        event.wait().await;
        say(format_args!("set before the wait: passed at once"));

        // A task sets it during the wait.
        let setter = event.clone();
        let task = polder::spawn(async move {
            sleep(Duration::from_millis(10)).await;
            setter.set();
        });
        event.wait().await;
        task.await;
        say(format_args!("set after the wait: woken by a task"));

        // Another thread sets it.
        let setter = event.clone();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            setter.set();
        });
        event.wait().await;
        thread.join().expect("the thread sets the event");
        say(format_args!("set by another thread: woken"));

        // Each `set` of an event releases one waiter; a latch releases all.
        let start = Arc::new(Latch::new());
        let tasks: Vec<_> = (1..=3)
            .map(|number| {
                let (start, event) = (start.clone(), event.clone());
                polder::spawn(async move {
                    start.wait().await;
                    event.wait().await;
                    say(format_args!("task {number}: released"));
                })
            })
            .collect();
        say(format_args!(
            "three tasks wait for the latch, and then for the event"
        ));
        start.set();
        for task in tasks {
            event.set();
            task.await;
        }
    });

    // A foreign loop does its own work, and lets the runtime run its ready tasks.
    let event = Arc::new(Event::new());
    let waiter = event.clone();
    let task = runtime.spawn(async move { waiter.wait().await });
    let mut frames = 0;
    while !task.is_finished() {
        frames += 1;
        if frames == 5 {
            event.set();
        }
        runtime.run_once(Duration::ZERO);
    }
    say(format_args!(
        "a foreign loop drove the runtime for {frames} frames"
    ));
    Ok(())
}

/// Writes a line to standard output. If its reader is gone (`event | head -1`) the program exits
/// quietly, as if SIGPIPE had ended it.
fn say(line: std::fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        let _ = writeln!(io::stderr(), "event: standard output: {error}");
        std::process::exit(1);
    }
}

//! A runtime inside glib's main loop, as in a program with GTK: one thread, and no wait but glib's.
//!
//! A client that sends a line gets the number of ticks of glib's own timer. Needs the feature
//! `glib`, and glib (Debian: libglib2.0-dev).

use std::io;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use glib::{ControlFlow, IOCondition, MainLoop};
use interop::Arguments;
use interop::embedded::{LATENCY, TICK, serve_ticks};
use polder::Runtime;

const USAGE: &str = "in_glib [ADDR] [--timeout-ms N] [--backend NAME]";

fn main() -> ExitCode {
    interop::main(USAGE, run)
}

fn run(arguments: &Arguments) -> io::Result<()> {
    let limit = arguments.limit();
    let runtime = Rc::new(arguments.runtime()?);
    let main_loop = MainLoop::new(None, false);
    attach(&runtime)?;

    // glib's own work.
    let ticks = Arc::new(AtomicU64::new(0));
    let ticking = ticks.clone();
    glib::timeout_add_local(TICK, move || {
        ticking.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue
    });

    let stopped = interop::stopped()?;
    let listener = runtime.block_on(arguments.listen())?;
    let quit = main_loop.clone();
    let server = runtime.spawn_local(async move {
        let result = serve_ticks(listener, stopped, ticks, limit).await;
        quit.quit();
        result
    });
    main_loop.run();
    runtime.block_on(server)
}

/// Has glib's main loop drive the runtime.
fn attach(runtime: &Rc<Runtime>) -> io::Result<()> {
    match runtime.backend_fd() {
        // The descriptor is readable when a turn has something to do.
        Ok(descriptor) => {
            let driven = Rc::downgrade(runtime);
            glib_unix::unix_fd_add_local(descriptor.as_raw_fd(), IOCondition::IN, move |_, _| {
                let Some(runtime) = driven.upgrade() else {
                    return ControlFlow::Break;
                };
                runtime.run_once(Duration::ZERO);
                ControlFlow::Continue
            });
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            turn_in_time(Rc::downgrade(runtime));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Turns when the next timer is due, and often enough for sockets.
fn turn_in_time(runtime: Weak<Runtime>) {
    let Some(driven) = runtime.upgrade() else {
        return;
    };
    let next = driven.next_timeout().unwrap_or(LATENCY).min(LATENCY);
    // glib keeps the function, so that this owns no part of the runtime either.
    glib::timeout_add_local_once(next, move || {
        if let Some(driven) = runtime.upgrade() {
            driven.run_once(Duration::ZERO);
        }
        turn_in_time(runtime);
    });
}

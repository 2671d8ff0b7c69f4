//! The examples, run as a user runs them: programs with arguments, standard output and error, and
//! an exit status. All promises that the README makes about them are tested here, on every backend.
//!
//! Every wait has a limit (lines, exits, sockets), and a program that is still running at the end
//! of its test is killed.

// Ctrl-C is a signal here.
#![cfg(unix)]

mod chat;
mod common;
mod echo;
mod embed;
mod event;
mod files;
mod library;
mod poll_loop;
mod process;
mod support;
mod terminal;
mod timers;
mod udp;
mod workers;

use polder::Backend;

use support::{command, refused, wrong};

/// A backend that this platform lacks gets one line that lists what there is.
#[test]
fn absent_backend_lists_what_there_is() {
    let all = ["epoll", "kqueue", "event-ports", "iocp", "poll"];
    let lacking: Vec<_> = all
        .into_iter()
        .filter(|name| name.parse::<Backend>().is_err())
        .collect();
    assert!(!lacking.is_empty(), "no platform has them all");
    for name in lacking {
        let not_here = format!(
            "backend {name} is not available on {}",
            std::env::consts::OS
        );
        wrong(
            "poll_loop",
            ["--backend", name],
            &[&not_here, "available: "],
        );
        wrong("embed", ["--backend", name], &[&not_here, "available: "]);
        for program in [
            "echo",
            "timers",
            "poll_loop",
            "embed",
            "event",
            "terminal",
            "workers",
        ] {
            let mut by_variable = command(program);
            by_variable.env("POLDER_BACKEND", name);
            refused(by_variable, &["POLDER_BACKEND", &not_here, "available: "]);
        }
    }
}

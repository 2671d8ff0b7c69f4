//! Behaviour that all examples share: help, arguments, output without a reader, and how they end.

use std::io::{Read, Write};
use std::process::Command;

use polder::Backend;

use crate::support::*;

/// Those that parse arguments.
const ALL: [&str; 8] = [
    "embed",
    "event",
    "files",
    "poll_loop",
    "process",
    "terminal",
    "timers",
    "workers",
];
const SERVERS: [&str; 2] = ["echo", "poll_loop"];
/// These end by themselves.
const OTHERS: [&str; 3] = ["embed", "event", "timers"];

fn server(name: &str) -> Command {
    with_arguments(name, ["127.0.0.1:0"])
}

/// The text after the address in the first line.
fn told(name: &str) -> String {
    match name {
        "echo" => format!("backend {}", Backend::default()),
        _ => format!("backend {}, Level", Backend::default()),
    }
}

/// Sends a request that both servers echo.
fn exchange(greeting: &str, name: &str) {
    let mut client = connect(address(greeting, &told(name)));
    client.write_all(&[1, 0, 0, 0, 7]).expect("it takes this");
    let mut back = [0; 5];
    client.read_exact(&mut back).expect("the same again");
    assert_eq!(back, [1, 0, 0, 0, 7]);
}

/// Help is the usage on standard output and no error.
#[test]
fn help_prints_usage_to_stdout() {
    for name in ALL {
        for flag in ["--help", "-h"] {
            let mut program = Program::start(with_arguments(name, [flag]));
            let line = program.line();
            assert!(line.starts_with(&format!("usage: {name}")), "{line:?}");
            assert_eq!(program.next_line(), None);
            program.ended_well();
        }
    }
}

/// An argument that no example knows is told with the usage and status 2.
#[test]
fn unknown_argument_prints_usage_status_2() {
    for name in ALL {
        wrong(name, ["--foo"], &[&format!("usage: {name}")]);
    }
    fails("echo", ["--foo"], &["usage: echo [ADDR]"]);
    for name in ["echo", "chat", "udp"] {
        let all = ["127.0.0.1:0", "--backend", "poll"];
        fails(name, all, &[&format!("usage: {name} [ADDR]")]);
    }
    wrong("event", ["foo"], &["\"foo\"", "usage: event"]);
    wrong("event", [""], &["usage: event"]);
}

#[test]
fn a_variable_that_is_empty_counts_as_none() {
    for name in SERVERS {
        let mut command = server(name);
        command.env("POLDER_BACKEND", "");
        let mut program = Program::start(command);
        address(&program.line(), &told(name));
        program.stops_on_ctrl_c();
    }
    for name in OTHERS {
        let mut command = command(name);
        command.env("POLDER_BACKEND", "");
        if name == "timers" {
            command.args(["--scale", "0"]);
        }
        let mut program = Program::start(command);
        while program.next_line().is_some() {}
        program.ended_well();
    }
}

/// Examples end quietly when the reader of their output has gone.
///
/// `event | head -1`; and as if `head` had exited before the first line.
#[test]
fn closed_output_ends_examples_quietly() {
    for name in OTHERS {
        for lines in [0, 1] {
            // The examples run long enough for the reader to be gone when the next line comes.
            let mut program = Program::heard_for(lines, command(name));
            while program.next_line().is_some() {}
            program.ended_well();
        }
    }
}

#[test]
fn sigterm_ends_a_server_as_ctrl_c_does() {
    for name in SERVERS {
        let mut program = Program::start(server(name));
        exchange(&program.line(), name);
        program.terminate();
        let mut last = None;
        while let Some(line) = program.next_line() {
            last = Some(line);
        }
        assert_eq!(last.as_deref(), Some("stopped"), "the last line of {name}");
        program.ended_well();
    }
}

/// A reader of standard output that stalls stops neither service nor Ctrl-C.
#[test]
fn stalled_stdout_stops_neither_service_nor_ctrl_c() {
    let name = "poll_loop";
    let (mut program, greeting, _reader) = Program::stalled(server(name));
    for _ in 0..20 {
        exchange(&greeting, name);
    }
    program.interrupt();
    let end = program.end();
    let complaints = program.complaints();
    assert!(end.success(), "{end}: {complaints:?}");
    let [line] = &complaints[..] else {
        panic!("one line was expected: {complaints:?}");
    };
    let expected = format!("{name}: standard output is not read; lines lost: ");
    let lost = line
        .strip_prefix(&expected)
        .and_then(|lost| lost.parse().ok());
    let lost: u32 = lost.unwrap_or_else(|| panic!("{line:?}"));
    // Two lines for each client, except the last one, plus "stopped".
    assert!((39..=41).contains(&lost), "{line}");
}

/// A server that cannot hear of Ctrl-C fails and says so.
///
/// No thread can get the stack size that is requested here.
#[test]
#[cfg(target_os = "linux")]
fn no_ctrl_c_handler_is_a_clear_error() {
    let mut command = server("poll_loop");
    command.env("RUST_MIN_STACK", (1_u64 << 46).to_string());
    refused(command, &["cannot wait for Ctrl-C: "]);
}

/// Too few descriptors to start with are an error with words.
///
/// If any descriptor is missing at the start: one line, and no panic.
#[test]
fn few_descriptors_to_start_is_clear_error() {
    for name in SERVERS {
        let mut started = false;
        for limit in 4..=20 {
            let mut limited = Command::new("sh");
            limited.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
            limited.arg(binary(name)).arg("127.0.0.1:0");
            let mut program = Program::start(prepared(limited));
            match program.next_line() {
                Some(_) => {
                    started = true;
                    program.stops_on_ctrl_c();
                }
                // The dynamic loader's status: it had no descriptor for a library, which depends on
                // inherited ones.
                None if !started && program.end().code() == Some(127) => {}
                None => {
                    let line = program.complaint(1);
                    assert!(line.starts_with(&format!("{name}: ")), "{line}");
                    assert!(!started, "{limit} are too few: {line}");
                }
            }
        }
        assert!(started, "20 are too few for {name}");
    }
}

#[test]
fn without_standard_streams_they_do_their_work() {
    for name in OTHERS {
        let mut closed = Command::new("sh");
        closed.args(["-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]);
        closed.arg(binary(name));
        if name == "timers" {
            closed.args(["--scale", "0"]);
        }
        let mut program = Program::start(prepared(closed));
        assert_eq!(program.next_line(), None);
        program.ended_well();
    }
}

#[test]
fn a_port_that_another_one_has_is_named() {
    for name in SERVERS {
        let mut first = Program::start(server(name));
        let taken = address(&first.line(), &told(name)).to_string();
        let expected = format!("cannot listen on {taken}: Address already in use");
        fails(name, [&taken], &[&expected]);
        first.stops_on_ctrl_c();
    }
}

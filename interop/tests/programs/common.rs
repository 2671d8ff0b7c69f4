//! Shared behaviour of all programs: their arguments, their output, and how they end.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::Instant;

use polder::Backend;

use crate::support::*;

const PROGRAMS: [(&str, &str); 7] = [
    ("axum", env!("CARGO_BIN_EXE_axum")),
    ("chat", env!("CARGO_BIN_EXE_chat")),
    ("get", env!("CARGO_BIN_EXE_get")),
    ("http", env!("CARGO_BIN_EXE_http")),
    ("https", env!("CARGO_BIN_EXE_https")),
    ("proxy", env!("CARGO_BIN_EXE_proxy")),
    ("websocket", env!("CARGO_BIN_EXE_websocket")),
];

/// The programs that serve, with their required arguments. `test` distinguishes one test's files
/// from another's.
fn servers(test: &str) -> Vec<(&'static str, Vec<String>)> {
    let serving = PROGRAMS.iter().filter(|(name, _)| *name != "get");
    serving
        .map(|(name, binary)| {
            let arguments = match *name {
                "https" => {
                    let file = file(test, Backend::default());
                    vec!["--certificate".into(), file.display().to_string()]
                }
                // No program listens at port 1.
                "proxy" => vec!["--to".into(), "127.0.0.1:1".into()],
                _ => Vec::new(),
            };
            (*binary, arguments)
        })
        .collect()
}

fn start(binary: &str, arguments: &[String]) -> Server {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    Server::start(binary, Backend::default(), &arguments)
}

/// Sends input that every server reports on its standard output before it disconnects the client.
fn nonsense(server: &Server) {
    // A connection that is reset immediately may not look like one.
    let Ok(mut client) = TcpStream::connect(server.address) else {
        return;
    };
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    // Longer than the maximum length of a chat line.
    let _ = client.write_all(&[b'x'; 5_000]);
    let _ = client.shutdown(Shutdown::Write);
    cut_off(client, Instant::now());
}

/// Help is the usage on standard output and no error.
#[test]
fn help_prints_usage_to_stdout() {
    for (name, binary) in PROGRAMS {
        for flag in ["--help", "-h"] {
            let mut command = Command::new(binary);
            command.arg(flag);
            let said = run(command, "").well();
            assert!(said.starts_with(&format!("usage: {name} ")), "{said:?}");
            assert!(said.contains("[--timeout-ms N]"), "{said:?}");
        }
    }
}

/// A wrong argument is told with the usage and status 2.
#[test]
fn wrong_argument_prints_usage_status_2() {
    let wrong = [
        (&["--fast"][..], "\"--fast\" is not expected"),
        (&["-x"], "\"-x\" is not expected"),
        (&["--timeout-ms"], "--timeout-ms needs a value"),
        (&["--timeout-ms", "soon"], "above 0, not \"soon\""),
        (&["--timeout-ms", "0"], "above 0, not \"0\""),
        (&["--timeout-ms", "-1"], "above 0, not \"-1\""),
        (&["--backend", "fax"], "there is no backend \"fax\""),
        (&["127.0.0.1:0", "127.0.0.1:0"], "is not expected"),
        (&[""], "\"\" is not expected"),
    ];
    for (name, binary) in PROGRAMS {
        for (arguments, expected) in wrong {
            let mut command = Command::new(binary);
            command.args(arguments);
            let said = run(command, "");
            assert_eq!(said.end.code(), Some(2), "{name} {arguments:?}: {said:#?}");
            assert_eq!(said.out, "", "{name} {arguments:?}");
            assert_eq!(said.err.lines().count(), 1, "{name}: {said:#?}");
            let usage = format!("; usage: {name} ");
            assert!(said.err.starts_with(&format!("{name}: ")), "{said:#?}");
            assert!(said.err.contains(expected), "{said:#?}");
            assert!(said.err.contains(&usage), "{said:#?}");
        }
    }
    for binary in [env!("CARGO_BIN_EXE_proxy"), env!("CARGO_BIN_EXE_https")] {
        let said = run(Command::new(binary), "");
        assert_eq!(said.end.code(), Some(2), "{said:#?}");
        assert!(said.err.contains("; usage: "), "{said:#?}");
    }
}

/// A failure has status 1, and does not print the usage.
#[test]
fn failure_is_status_1_without_usage() {
    for (binary, arguments) in servers("taken") {
        let first = start(binary, &arguments);
        let address = first.address.to_string();
        let taken = format!("cannot listen on {address}: Address already in use");
        for (address, expected) in [
            (&*address, &*taken),
            ("nowhere", "\"nowhere\" is not an address"),
        ] {
            let mut second = Command::new(binary);
            second.arg(address).args(&arguments);
            let said = run(second, "");
            assert_eq!(said.end.code(), Some(1), "{said:#?}");
            assert_eq!(said.err.lines().count(), 1, "{said:#?}");
            assert!(said.err.contains(expected), "{said:#?}");
            assert!(!said.err.contains("usage"), "{said:#?}");
        }
        first.stops();
    }
}

#[test]
fn an_empty_variable_counts_as_none() {
    for (binary, arguments) in servers("empty") {
        let mut command = Command::new(binary);
        command.args(&arguments).env("POLDER_BACKEND", "");
        Server::started(command, Backend::default()).stops();
    }
}

#[test]
fn sigterm_ends_it_as_ctrl_c_does() {
    for (binary, arguments) in servers("term") {
        let mut server = start(binary, &arguments);
        nonsense(&server);
        server.terminate();
        server.ended();
    }
}

/// A reader of standard output that stalls stops neither service nor Ctrl-C.
///
/// The pipe is full when the server has printed its address, and is not read any more.
#[test]
fn stalled_stdout_stops_neither_service_nor_ctrl_c() {
    for (binary, arguments) in servers("stalled") {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let (server, _reader) = Server::stalled(binary, &arguments);
        for _ in 0..10 {
            nonsense(&server);
        }
        server.interrupt();
        let (end, complaints) = server.end();
        assert!(end.success(), "{binary}: {end}: {complaints}");
        let told = complaints.contains("standard output is not read; lines lost: ");
        assert!(told, "{binary}: {complaints:?}");
    }
}

/// A server goes on when the reader of its output has gone.
#[test]
fn closed_stdout_does_not_end_server() {
    for (binary, arguments) in servers("unread") {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let (server, reader) = Server::stalled(binary, &arguments);
        drop(reader);
        for _ in 0..3 {
            nonsense(&server);
        }
        server.interrupt();
        let (end, complaints) = server.end();
        assert!(end.success() && complaints.is_empty(), "{complaints}");
    }
}

/// A server that cannot hear of Ctrl-C fails and says so.
///
/// No thread gets the stack size requested here, except threads that request a smaller one
/// themselves.
#[cfg(target_os = "linux")]
#[test]
fn no_ctrl_c_handler_is_a_clear_error() {
    for (binary, arguments) in servers("deaf") {
        let mut command = Command::new(binary);
        command.args(arguments);
        command.env("RUST_MIN_STACK", (1_u64 << 46).to_string());
        let said = run(command, "");
        assert_eq!(said.end.code(), Some(1), "{said:#?}");
        let told = said.err.contains("cannot wait for Ctrl-C: ");
        assert!(told, "{said:#?}");
    }
}

/// Sixteen descriptors are enough to serve and more clients wait.
#[test]
fn sixteen_descriptors_are_enough() {
    // The proxy here disconnects every client immediately, since no server listens behind it.
    let holding = servers("few").into_iter();
    let holding = holding.filter(|(binary, _)| *binary != env!("CARGO_BIN_EXE_proxy"));
    for (binary, arguments) in holding {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 16; exec \"$0\" \"$@\""]);
        command.arg(binary).args(&arguments);
        let server = Server::started(command, Backend::default());
        let mut clients: Vec<_> = (0..30).map(|_| server.connect()).collect();
        server.says("cannot accept: ");
        let last = clients.pop().expect("it waits in the queue");
        drop(clients);
        drop(last);
        nonsense(&server);
        server.stops();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_standard_output_they_serve_and_end() {
    for (binary, arguments) in servers("closed") {
        // The address is printed nowhere, so there can be no client.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" >&- 2>&-"]);
        command.arg(binary).args(&arguments);
        let end = ended_by_sigterm(command);
        assert!(end.success(), "{binary}: {end}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let missing = "/nonexistent/own.pem";
    let mut https = Command::new(env!("CARGO_BIN_EXE_https"));
    https.args(["--certificate", missing]);
    let mut get = Command::new(env!("CARGO_BIN_EXE_get"));
    get.args(["https://127.0.0.1:1/", "--cacert", missing]);
    // The option has no use there, but a wrong one is still an error.
    let mut plain = Command::new(env!("CARGO_BIN_EXE_get"));
    plain.args(["http://127.0.0.1:1/", "--cacert", missing]);
    for command in [https, get, plain] {
        let said = run(command, "");
        assert_eq!(said.end.code(), Some(1), "{said:#?}");
        assert!(said.err.contains(missing), "{said:#?}");
        assert!(said.err.contains("No such file"), "{said:#?}");
    }
    let empty = file("no-certificate", Backend::default());
    std::fs::write(&empty, "nothing\n").expect("it can be written");
    let mut get = Command::new(env!("CARGO_BIN_EXE_get"));
    get.args(["https://127.0.0.1:1/", "--cacert"]).arg(&empty);
    let said = run(get, "");
    assert_eq!(said.end.code(), Some(1), "{said:#?}");
    let told = format!("{}: there is no certificate in it", empty.display());
    assert!(said.err.contains(&told), "{said:#?}");
}

//! `terminal`: a pseudo-terminal, with this test typing at its other end.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use polder::Backend;

use crate::support::*;

/// Returns both ends: the typing one, and the terminal.
fn pseudo_terminal() -> (File, File) {
    // SAFETY: the descriptor is new, and has no other owner.
    let near = unsafe {
        let number = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(number >= 0, "{}", std::io::Error::last_os_error());
        File::from_raw_fd(number)
    };
    static NAMING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let naming = NAMING.lock().unwrap();
    // SAFETY: the descriptor is a pseudo-terminal's, and the name is copied before another one is
    // requested.
    let name = unsafe {
        assert_eq!(libc::grantpt(near.as_raw_fd()), 0);
        assert_eq!(libc::unlockpt(near.as_raw_fd()), 0);
        let name = libc::ptsname(near.as_raw_fd());
        assert!(!name.is_null(), "{}", std::io::Error::last_os_error());
        CStr::from_ptr(name).to_owned()
    };
    drop(naming);
    let mut options = File::options();
    options.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY);
    let far = options.open(std::ffi::OsStr::from_bytes(name.to_bytes()));
    (near, far.expect("the terminal opens"))
}

/// Returns a command for `terminal` with `far` as its controlling terminal.
fn on_terminal(far: File, arguments: &[&str]) -> Command {
    let mut command = with_arguments("terminal", arguments);
    command.stdin(Stdio::from(far));
    // SAFETY: both calls may be made between `fork` and `exec`.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY as _, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        })
    };
    command
}

/// On Macs only with one backend: kqueue and poll cannot wait for a terminal there.
fn can_wait_for_terminals(backend: Backend) -> bool {
    !cfg!(target_vendor = "apple") || backend == Backend::Select
}

/// Lines typed at the terminal come one by one until its end.
#[test]
fn terminal_lines_come_one_by_one() {
    for backend in Backend::available() {
        let (mut near, far) = pseudo_terminal();
        let mut command = on_terminal(far, &[]);
        command.env("POLDER_BACKEND", backend.name());
        let mut terminal = Program::start(command);
        let greeting = terminal.next_line();
        let expected = format!("type; Ctrl-D ends (backend {backend})");
        assert_eq!(greeting, Some(expected));
        if !can_wait_for_terminals(backend) {
            assert!(terminal.complaint(1).contains("/dev/tty"), "on {backend}");
            continue;
        }
        for (typed, answer) in [
            ("hello\n", "\"hello\": 5 characters"),
            // Input that arrives while the program does not wait.
            ("one\ntwo\n", "\"one\": 3 characters"),
            ("", "\"two\": 3 characters"),
            // Ctrl-D after half a line ends only that half.
            ("half", ""),
            ("\x04 of it\n", "\"half of it\": 10 characters"),
            ("\x04", "the end"),
        ] {
            near.write_all(typed.as_bytes()).expect("it is typed");
            if !answer.is_empty() {
                let said = terminal.next_line();
                assert_eq!(said.as_deref(), Some(answer), "on {backend}");
            }
        }
        terminal.ended_well();
    }
}

/// Select is taken unless another is chosen and idling ends it.
#[test]
fn select_default_and_idle_ends() {
    let (_near, far) = pseudo_terminal();
    let mut terminal = Program::start(on_terminal(far, &["--idle", "0.05"]));
    let greeting = terminal.next_line().expect("a greeting");
    let select = if Backend::Select.is_available() {
        Backend::Select
    } else {
        Backend::default()
    };
    assert!(greeting.ends_with(&format!("(backend {select})")));
    assert_eq!(terminal.next_line().as_deref(), Some("nothing for 50ms"));
    terminal.ended_well();
}

/// A program without a terminal gets one line that says so.
#[test]
fn no_terminal_says_so() {
    let mut command = command("terminal");
    // SAFETY: the call may be made between `fork` and `exec`.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    };
    refused(command, &["/dev/tty: "]);
}

/// A wrong argument of terminal gets one line that says what it should have been.
#[test]
fn wrong_argument_of_terminal_says_format() {
    const USAGE: &str = "usage: terminal [--idle SECONDS]";
    wrong("terminal", ["--idle"], &["needs a number", USAGE]);
    for number in ["long", "-1", "NaN", "86401"] {
        wrong("terminal", ["--idle", number], &["from 0 to 86400", USAGE]);
    }
    wrong("terminal", ["--fast"], &["\"--fast\"", USAGE]);
}

//! `process`: output as it arrives, the exit status, and time limits.

#![cfg(any(target_os = "linux", target_vendor = "apple"))]

use polder::Backend;

use crate::support::*;

/// Returns the program's output, without the times.
fn said(program: &mut Program) -> Vec<String> {
    let lines = std::iter::from_fn(|| program.next_line());
    let text = |line: String| {
        let (time, text) = line.split_once("] ").expect("a time, and more");
        assert!(time.starts_with('[') && time.ends_with(" s"), "{line:?}");
        text.to_owned()
    };
    lines.map(text).collect()
}

/// Runs a script, which prints `count` lines, and returns what the program said. On a busy machine
/// it may miss a line, since it waits for half a second after the script's end: then it runs again.
fn run(backend: Backend, script: &str, count: usize) -> (Program, Vec<String>) {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut program = on(backend, with_arguments("process", ["sh", "-c", script]));
        let lines = said(&mut program);
        if lines.len() > count || attempts == 3 {
            return (program, lines);
        }
    }
}

/// Process passes on each line and the status of its command.
#[test]
fn process_passes_lines_and_status() {
    const SCRIPT: &str = "echo one; echo two >&2; printf three; sleep 0.1; echo; exit 7";
    for backend in Backend::available() {
        let (mut program, lines) = run(backend, SCRIPT, 2);
        assert_eq!(lines, ["one", "three", "exit status: 7"], "on {backend}");
        assert_eq!(program.end().code(), Some(7), "on {backend}");
        assert_eq!(program.complaints(), ["two"], "on {backend}");
    }
}

#[test]
fn process_kills_what_takes_longer_than_its_limit() {
    for backend in Backend::available() {
        let arguments = ["--limit", "0.05", "sleep", "1000"];
        let mut command = with_arguments("process", arguments);
        command.env("POLDER_BACKEND", backend.name());
        let mut program = Program::start(command);
        let lines = said(&mut program);
        assert_eq!(lines[0], "it takes too long, and is killed", "on {backend}");
        assert!(lines[1].starts_with("signal: 9"), "on {backend}: {lines:?}");
        assert_eq!(program.end().code(), Some(1));
    }
}

/// Process that may not kill its command says so and does not wait for it.
///
/// A program of another user (setuid) may not be killed. Here the system refuses every kill.
#[test]
#[cfg(target_os = "linux")]
fn process_unable_to_kill_says_so() {
    use std::os::unix::process::CommandExt;

    /// Has the kernel refuse `kill` and `pidfd_send_signal`: seccomp(2).
    fn refuse_to_kill() -> std::io::Result<()> {
        let step = |code, jt, k| libc::sock_filter {
            code: code as u16,
            jt,
            jf: 0,
            k,
        };
        let is = |call: libc::c_long, steps| {
            let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
            step(equal, steps, call as u32)
        };
        let answer = |answer| step(libc::BPF_RET | libc::BPF_K, 0, answer);
        let mut filter = [
            // The call's number, which comes first in `seccomp_data`.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            is(libc::SYS_kill, 2),
            is(libc::SYS_pidfd_send_signal, 1),
            answer(libc::SECCOMP_RET_ALLOW),
            answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the arguments are numbers, and a program that outlives the call.
        let results = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program),
            ]
        };
        match results {
            [0, 0] => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    // The script's standard error is the one that is read to its end below.
    let script = "echo $$; exec sleep 1000 2>/dev/null";
    let mut command = with_arguments("process", ["--limit", "5", "sh", "-c", script]);
    // SAFETY: it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(refuse_to_kill) };
    let mut program = Program::start(command);
    let line = program.line();
    let sleeper = line.rsplit(' ').next().and_then(|id| id.parse().ok());
    let sleeper = sleeper.unwrap_or_else(|| panic!("no id: {line:?}"));
    let complaint = program.complaint(1);
    let expected = "process: it takes too long, and cannot be killed: Operation not permitted";
    assert!(complaint.starts_with(expected), "{complaint}");
    // SAFETY: this sends a signal and touches no memory.
    let result = unsafe { libc::kill(sleeper, libc::SIGKILL) };
    assert_eq!(result, 0, "it was still running");
}

/// `process` does not wait for processes that have inherited the pipe.
///
/// The pipe of a process that has ended may be inherited by another one, which is still running.
#[test]
fn process_does_not_wait_for_pipe_heirs() {
    let script = "sleep 300 2>/dev/null & echo $!";
    let (mut program, lines) = run(Backend::default(), script, 1);
    assert_eq!(lines[1], "exit status: 0");
    program.ended_well();
    let sleeper = lines[0].parse().expect("an id");
    // SAFETY: this sends a signal and touches no memory.
    unsafe { libc::kill(sleeper, libc::SIGKILL) };
}

#[test]
fn process_has_no_thread_beside_its_own() {
    // The threads of its parent, as seen by the child.
    let script = "ls /proc/$PPID/task | wc -l";
    if cfg!(target_os = "linux") {
        let (mut program, lines) = run(Backend::default(), script, 1);
        assert_eq!(lines, ["1", "exit status: 0"]);
        program.ended_well();
    }
}

/// A command that is not there is an error and a wrong argument gets the usage.
#[test]
fn missing_command_is_error_bad_argument_usage() {
    const USAGE: &str = "usage: process [--limit SECONDS] COMMAND [ARGUMENT...]";
    fails("process", ["/nonexistent"], &["cannot run", "No such file"]);
    wrong("process", ["--limit"], &["a number of seconds", USAGE]);
    wrong(
        "process",
        ["--limit", "-1", "ls"],
        &["a number of seconds", USAGE],
    );
    wrong("process", ["--limit", "1"], &["there is no command", USAGE]);
}

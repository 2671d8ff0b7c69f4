//! The load generator's handle to the server process: starts it on its core, reads its port, asks
//! what it has spent and allocated, and ends it.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::Sub;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::clock::sleeps;
use crate::group::Skip;

pub struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    clock: libc::clockid_t,
    pub port: u16,
}

/// The expense of a server: of all its threads.
#[derive(Clone, Copy)]
pub struct Spent {
    /// CPU time, in user and in kernel mode.
    pub cpu: Duration,
    /// How often a thread has gone to sleep.
    pub sleeps: u64,
}

impl Sub for Spent {
    type Output = Spent;

    fn sub(self, before: Spent) -> Spent {
        Spent {
            cpu: self.cpu - before.cpu,
            sleeps: self.sleeps - before.sleeps,
        }
    }
}

impl Server {
    /// Starts it with these command-line words; the second is the program. It runs on this thread's
    /// cores.
    pub fn start(words: &[&str; 3]) -> Result<Server, Skip> {
        let program = words[1];
        let failed = |error: io::Error| Skip(format!("cannot start {program}: {error}"));
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        let stdin = child.stdin.take().expect("it was asked for");
        let stdout = child.stdout.take().expect("it was asked for");
        // From here on, dropping `server` ends the process.
        let mut server = Server {
            clock: clock(&child),
            child,
            stdin,
            stdout: BufReader::new(stdout),
            port: 0,
        };
        server.stdout.read_line(&mut line).map_err(failed)?;
        match line.trim_end().split_once(' ') {
            Some(("port", port)) => server.port = port.parse().expect("a port is a number"),
            Some(("skipped", why)) => return Err(Skip(why.into())),
            _ => return Err(Skip(format!("{program} ended without a port"))),
        }
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it has spent so far. (A thread that has ended takes its sleeps along; no server
    /// ends threads while it is measured.)
    pub fn spent(&self) -> Spent {
        Spent {
            cpu: self.cpu(),
            sleeps: sleeps(&self.pid().to_string()).expect("the server is there"),
        }
    }

    /// Returns the bytes that it has allocated and not freed. (Not for those in C and C++.)
    pub fn allocated(&mut self) -> io::Result<f64> {
        self.stdin.write_all(b"\n")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let bytes = line.trim_end().strip_prefix("allocated ");
        (bytes.and_then(|bytes| bytes.parse().ok()))
            .ok_or_else(|| io::Error::other(format!("it said {line:?}")))
    }

    /// Returns its CPU time so far: all its threads, in user and in kernel mode.
    pub fn cpu(&self) -> Duration {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes one `timespec`.
        let result = unsafe { libc::clock_gettime(self.clock, &mut now) };
        assert_eq!(
            result,
            0,
            "the server is gone: {}",
            io::Error::last_os_error()
        );
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

fn clock(child: &Child) -> libc::clockid_t {
    let mut clock = 0;
    // SAFETY: the kernel writes one number.
    let error = unsafe { libc::clock_getcpuclockid(child.id() as libc::pid_t, &mut clock) };
    assert_eq!(error, 0, "it was started, and nobody has waited for it");
    clock
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to save, and may be too busy to notice the end of its input.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

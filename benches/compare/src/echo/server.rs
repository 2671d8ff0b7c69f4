//! The load generator's handle to the server process: starts it on its core, reads its port and its
//! CPU time, and ends it.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::group::Skip;

pub struct Server {
    child: Child,
    clock: libc::clockid_t,
    pub port: u16,
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
        let stdout = child.stdout.take().expect("it was asked for");
        // From here on, dropping `server` ends the process.
        let mut server = Server {
            clock: clock(&child),
            child,
            port: 0,
        };
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(failed)?;
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

//! A child process without a second reactor, a thread or a SIGCHLD handler: a descriptor becomes
//! readable when the child ends, and its output is read from another one.
//!
//! ```text
//! cargo run --release --example process -- [--limit SECONDS] COMMAND [ARGUMENT…]
//! ```
//! Runs the command, and prints each line of its output with the time at which it came, and how the
//! command ended. A command that takes longer than the limit is killed. Exits with the command's
//! status, or 1 if it has none.
//!
//! On Linux the descriptor is a pidfd (`pidfd_open(2)`, Linux 5.3), on macOS and the BSDs a kqueue
//! that watches for the end (`EVFILT_PROC`). Elsewhere, use the crate async-process.

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    println!("this example needs pidfd_open(2) or kqueue(2)");
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::io::{self, Write};
    use std::os::fd::OwnedFd;
    use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    use polder::Async;
    use polder::io::{AsyncBufReadExt, BufReader};
    use polder::time::timeout;
    use rustix::io::Errno;
    use rustix::process::Pid;

    const USAGE: &str = "usage: process [--limit SECONDS] COMMAND [ARGUMENT...]";

    /// How long to read output after the end: a process that inherited the pipe may keep it open.
    const GRACE: Duration = Duration::from_millis(500);

    pub fn main() -> ExitCode {
        let start = Instant::now();
        let (result, failure) = match arguments(std::env::args_os().skip(1).collect()) {
            Ok(Some((command, limit))) => (polder::block_on(run(command, limit, start)), 1),
            Ok(None) => {
                let _ = writeln!(io::stdout(), "{USAGE}");
                return ExitCode::SUCCESS;
            }
            Err(error) => (Err(error), 2),
        };
        match result {
            Ok(status) => {
                say(start, &status.to_string());
                let code = status.code().and_then(|code| code.try_into().ok());
                code.map_or(ExitCode::FAILURE, |code: u8| ExitCode::from(code))
            }
            Err(error) => {
                let _ = writeln!(io::stderr(), "process: {error}");
                ExitCode::from(failure)
            }
        }
    }

    /// Returns `None` if help is requested.
    fn arguments(mut given: Vec<OsString>) -> io::Result<Option<(Command, Option<Duration>)>> {
        let wrong = |what: &str| {
            let text = format!("{what}; {USAGE}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let mut limit = None;
        if given.first().is_some_and(|first| first == "--limit") {
            let seconds = given
                .get(1)
                .and_then(|seconds| seconds.to_str()?.parse().ok());
            let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            limit = Some(seconds.ok_or_else(|| wrong("--limit wants a number of seconds"))?);
            given.drain(..2);
        }
        let Some(name) = given.first() else {
            return Err(wrong("there is no command"));
        };
        if name == "--help" || name == "-h" {
            return Ok(None);
        }
        if name.to_string_lossy().starts_with('-') {
            return Err(wrong(&format!("unknown option {name:?}")));
        }
        let mut command = Command::new(name);
        command.args(&given[1..]);
        Ok(Some((command, limit)))
    }

    async fn run(
        mut command: Command,
        limit: Option<Duration>,
        start: Instant,
    ) -> io::Result<ExitStatus> {
        let mut running = Running::start(&mut command)?;
        let output = running.0.stdout.take().expect("it is piped");
        let lines = polder::spawn(lines(output, start));
        let ended = match limit {
            Some(limit) => timeout(limit, running.end()).await,
            None => Ok(running.end().await),
        };
        let status = match ended {
            Ok(status) => status?,
            Err(_) => {
                // Fails if the child now runs as another user.
                running.0.kill().map_err(|error| {
                    let text = format!("it takes too long, and cannot be killed: {error}");
                    io::Error::new(error.kind(), text)
                })?;
                say(start, "it takes too long, and is killed");
                running.end().await?
            }
        };
        // On a timeout the task is dropped, which cancels it.
        if let Ok(read) = timeout(GRACE, lines).await {
            read?;
        }
        Ok(status)
    }

    async fn lines(output: ChildStdout, start: Instant) -> io::Result<()> {
        let mut output = BufReader::new(Async::new(output)?);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).await? > 0 {
            say(start, String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        Ok(())
    }

    fn say(start: Instant, line: &str) {
        // A closed pipe is no reason to stop.
        let time = start.elapsed().as_secs_f64();
        let _ = writeln!(io::stdout(), "[{time:7.3} s] {line}");
    }

    /// A child that is killed when its owner is dropped, unless that is not permitted.
    struct Running(Child);

    impl Running {
        fn start(command: &mut Command) -> io::Result<Running> {
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            let child = command.spawn().map_err(|error| {
                let text = format!("cannot run {:?}: {error}", command.get_program());
                io::Error::new(error.kind(), text)
            })?;
            Ok(Running(child))
        }

        /// Waits for the child's end. Its id cannot be reused until it has been waited for, which
        /// only this function and `drop` do.
        async fn end(&mut self) -> io::Result<ExitStatus> {
            match end_of(Pid::from_child(&self.0)) {
                // The descriptor is only polled, never read.
                Ok(end) => Async::new_nonblocking(end)?.readable().await?,
                // BSD kernels refuse to watch a process that has ended.
                Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
            self.0.wait()
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            // Does nothing if the child has already been waited for.
            if self.0.kill().is_ok() {
                let _ = self.0.wait();
            }
        }
    }

    /// Returns a descriptor that is readable once the process has ended.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn end_of(id: Pid) -> Result<OwnedFd, Errno> {
        rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty())
    }

    #[cfg(not(any(
        target_os = "linux",
        target_os = "android",
        target_os = "illumos",
        target_os = "solaris"
    )))]
    fn end_of(id: Pid) -> Result<OwnedFd, Errno> {
        use rustix::event::kqueue::{
            Event, EventFilter, EventFlags, ProcessEvents, kevent, kqueue,
        };

        let queue = kqueue()?;
        let flags = ProcessEvents::EXIT;
        let filter = EventFilter::Proc { pid: id, flags };
        let watch = Event::new(filter, EventFlags::ADD, std::ptr::null_mut());
        let mut none: [Event; 0] = [];
        // SAFETY: it watches a process, and no descriptor that could be closed too early.
        unsafe { kevent(&queue, &[watch], &mut none[..], None)? };
        Ok(queue)
    }

    #[cfg(any(target_os = "illumos", target_os = "solaris"))]
    fn end_of(_: Pid) -> Result<OwnedFd, Errno> {
        Err(Errno::NOTSUP)
    }
}

//! A runtime embedded in a foreign loop that polls its own descriptors with `poll(2)`.
//!
//! ```text
//! cargo run --release --example embed -- [--backend NAMES]
//! ```
//! If the backend has a descriptor, the foreign loop polls it too: it is readable when the runtime
//! has something to do. Otherwise the loop wakes up in time for the runtime's timers, and often
//! enough for its sockets.

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    println!("this example needs poll(2)");
}

#[cfg(unix)]
mod unix {
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::ExitCode;
    use std::time::{Duration, Instant};

    use polder::io::{AsyncReadExt, AsyncWriteExt};
    use polder::net::{TcpListener, TcpStream};
    use polder::time::{interval, sleep};
    use polder::{Backend, Runtime};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// The longest delay for the runtime's sockets if the backend has no descriptor.
    const LATENCY: Duration = Duration::from_millis(2);

    const USAGE: &str = "usage: embed [--backend NAMES]";

    pub fn main() -> ExitCode {
        // An argument that is not Unicode is no valid one; the parser reports it.
        let given = std::env::args_os().skip(1);
        let given: Vec<_> = given
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        let given: Vec<_> = given.iter().map(String::as_str).collect();
        let (result, status) = match given[..] {
            ["--help" | "-h", ..] => {
                let _ = writeln!(io::stdout(), "{USAGE}");
                return ExitCode::SUCCESS;
            }
            [] => (Backend::list_from_env().and_then(run), 1),
            ["--backend", names] => match Backend::parse_list(names) {
                Ok(backends) => (run(backends), 1),
                Err(error) => (Err(error), 2),
            },
            _ => (Err(io::Error::other(USAGE)), 2),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(io::stderr(), "embed: {error}");
                ExitCode::from(status)
            }
        }
    }

    fn run(backends: Vec<Backend>) -> io::Result<()> {
        let runtime = Runtime::builder().backends(backends).build()?;
        let backend = runtime.backend();
        let echoes = runtime.spawn(clients(20));
        let ticks = runtime.spawn(ticks(5));

        // The foreign loop's own source: a thread that sends it a byte now and then.
        let (mut own, theirs) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let thread = std::thread::spawn(move || {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(10));
                (&theirs).write_all(b"!")?;
            }
            Ok::<_, io::Error>(theirs)
        });

        let descriptor = match runtime.backend_fd() {
            Ok(descriptor) => Some(descriptor),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => return Err(error),
        };
        let way = match descriptor {
            Some(_) => "its descriptor",
            None => "its next timeout",
        };
        say(format_args!("driving a runtime on {backend} by {way}"));

        let start = Instant::now();
        let (mut rounds, mut own_bytes) = (0, 0);
        while !(echoes.is_finished() && ticks.is_finished() && own_bytes == 3) {
            rounds += 1;
            // The foreign loop's only wait.
            let mut fds = vec![PollFd::new(&own, PollFlags::IN)];
            let timeout = match &descriptor {
                Some(descriptor) => {
                    fds.push(PollFd::new(descriptor, PollFlags::IN));
                    None
                }
                None => Some(runtime.next_timeout().unwrap_or(LATENCY).min(LATENCY)),
            };
            let timeout = timeout.map(|timeout| Timespec {
                tv_sec: timeout.as_secs() as _,
                tv_nsec: timeout.subsec_nanos() as _,
            });
            match poll(&mut fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let has_own = !fds[0].revents().is_empty();
            let has_turn = fds.get(1).is_none_or(|fd| !fd.revents().is_empty());
            drop(fds);
            if has_own {
                own_bytes += own.read(&mut [0; 16])?;
                say(format_args!(
                    "the loop's own byte {own_bytes} after {:?}",
                    start.elapsed()
                ));
            }
            if has_turn {
                runtime.run_once(Duration::ZERO);
            }
        }
        drop(thread.join().expect("the thread does not panic")?);
        say(format_args!(
            "{} bytes echoed, {} ticks, in {rounds} rounds",
            runtime.block_on(echoes)?,
            runtime.block_on(ticks)
        ));
        Ok(())
    }

    /// Runs an echo server and some clients in the runtime. Returns the number of bytes that came
    /// back.
    async fn clients(count: usize) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        polder::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                polder::spawn(async move {
                    let (reader, writer) = stream.split();
                    polder::io::copy(reader, writer).await
                })
                .detach();
            }
        })
        .detach();
        let mut bytes = 0;
        for _ in 0..count {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"hello").await?;
            stream.read_exact(&mut [0; 5]).await?;
            bytes += 5;
            sleep(Duration::from_millis(1)).await;
        }
        Ok(bytes)
    }

    async fn ticks(count: usize) -> usize {
        let mut ticks = interval(Duration::from_millis(7));
        for _ in 0..count {
            ticks.tick().await;
        }
        count
    }

    /// Writes a line to standard output. If its reader is gone (`embed | head -1`) the program
    /// exits quietly, as if SIGPIPE had ended it.
    fn say(line: std::fmt::Arguments<'_>) {
        if let Err(error) = writeln!(io::stdout(), "{line}") {
            if error.kind() == io::ErrorKind::BrokenPipe {
                std::process::exit(0);
            }
            let _ = writeln!(io::stderr(), "embed: standard output: {error}");
            std::process::exit(1);
        }
    }
}

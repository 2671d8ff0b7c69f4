//! Runs a program and its clients. Every wait has a limit.

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use interop::http::PATTERN;
use polder::Backend;
use socket2::{Domain, Socket, Type};

pub use crate::shared::*;

/// The maximum memory of a program, independent of the amount of data that passes through it.
#[cfg(target_os = "linux")]
pub const MEMORY: usize = 16 << 20;

/// An edge-triggered backend and one that is not; elsewhere the platform's own.
pub fn backends() -> Vec<Backend> {
    if cfg!(target_os = "linux") {
        vec![Backend::Epoll, Backend::Poll]
    } else {
        vec![Backend::default()]
    }
}

/// Returns a python that has the package `websockets`.
pub fn python_with_websockets() -> Option<Command> {
    let knows = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import websockets"]);
        command.stderr(Stdio::null());
        command.status().is_ok_and(|end| end.success())
    };
    let python = ["python3", "/usr/bin/python3"].into_iter().find(knows);
    found_or_told("websockets", python.map(Command::new))
}

/// Returns curl, which prints nothing but errors.
pub fn curl() -> Option<Command> {
    let mut curl = client("curl")?;
    curl.args(["--silent", "--show-error", "--max-time", "60"]);
    // Ignore settings and proxies of the user who runs this.
    curl.env("CURL_HOME", "/nonexistent")
        .env("HOME", "/nonexistent");
    for name in ["http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"] {
        curl.env_remove(name);
    }
    Some(curl)
}

/// The output of a command, and its exit status.
#[derive(Debug)]
pub struct Said {
    pub end: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn well(self) -> String {
        assert!(self.end.success(), "{self:#?}");
        self.out
    }
}

/// Runs `command` to its end, with `input` on its standard input.
pub fn run(command: Command, input: &str) -> Said {
    let input = input.to_owned();
    let (end, err, out) = piped(
        command,
        move |mut stdin| drop(stdin.write_all(input.as_bytes())),
        |mut stdout| {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).expect("it can be read");
            String::from_utf8_lossy(&bytes).into_owned()
        },
    );
    Said { end, out, err }
}

/// Runs `command` to its end, while `input` writes to it and `output` reads from it.
pub fn piped<T: Send + 'static>(
    mut command: Command,
    input: impl FnOnce(ChildStdin) + Send + 'static,
    output: impl FnOnce(ChildStdout) -> T + Send + 'static,
) -> (ExitStatus, String, T) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let mut process = Process::start(&mut command);
    let stdin = process.0.stdin.take().expect("it is piped");
    let stdout = process.0.stdout.take().expect("it is piped");
    let mut stderr = process.0.stderr.take().expect("it is piped");
    let input = thread::spawn(move || input(stdin));
    let output = thread::spawn(move || output(stdout));
    let complaints = thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).expect("it can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let end = process.end();
    input.join().expect("the input is written");
    let complaints = complaints.join().expect("a thread ends");
    match output.join() {
        Ok(output) => (end, complaints, output),
        Err(_) => panic!("the output was wrong; it ended with {end} and said {complaints}"),
    }
}

/// Counts the bytes of `/bytes/N`, and checks each.
pub fn pattern_length(mut stream: impl Read) -> u64 {
    let mut buffer = vec![0; PATTERN.len()];
    let mut length = 0_u64;
    loop {
        let at = (length % PATTERN.len() as u64) as usize;
        let size = buffer.len() - at;
        let read = stream.read(&mut buffer[..size]).expect("it can be read");
        if read == 0 {
            return length;
        }
        let same = buffer[..read] == PATTERN[at..at + read];
        assert!(
            same,
            "a byte from {length} to {} is wrong",
            length + read as u64
        );
        length += read as u64;
    }
}

/// Writes `length` bytes of the same pattern.
pub fn write_pattern(mut stream: impl Write, length: u64) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let size = left.min(PATTERN.len() as u64);
        stream.write_all(&PATTERN[..size as usize])?;
        left -= size;
    }
    stream.flush()
}

/// A program that serves.
pub struct Server {
    process: Process,
    lines: Receiver<String>,
    pub address: SocketAddr,
}

impl Server {
    pub fn start(binary: &str, backend: Backend, arguments: &[&str]) -> Server {
        let mut command = program(binary, backend);
        command.args(arguments);
        Server::started(command, backend)
    }

    pub fn started(mut command: Command, backend: Backend) -> Server {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let stdout = process.0.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // An unread line is no reason to leave the program with a full pipe.
                let _ = sender.send(line);
            }
        });
        let greeting = lines.recv_timeout(LIMIT).expect("it says where it listens");
        let address = address(&greeting, backend);
        Server {
            process,
            lines,
            address,
        }
    }

    /// Its standard output takes no more once it has printed its address. It is a pipe; its reader
    /// is kept open and reads nothing.
    pub fn stalled(binary: &str, arguments: &[&str]) -> (Server, PipeReader) {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        let mut command = program(binary, Backend::default());
        command.args(arguments).stderr(Stdio::piped());
        command.stdout(writer.try_clone().expect("a descriptor"));
        let process = Process::start(&mut command);
        let mut greeting = Vec::new();
        while greeting.last() != Some(&b'\n') {
            let mut byte = [0];
            reader.read_exact(&mut byte).expect("where it listens");
            greeting.extend(byte);
        }
        let greeting = String::from_utf8_lossy(&greeting);
        let address = address(greeting.trim_end(), Backend::default());
        // The mode is the pipe's, and so the program's too: it prints nothing meanwhile.
        nonblocking(&writer, true);
        // With single bytes last, so that not even one more fits.
        for chunk in [&[b'.'; 512][..], b"."] {
            while writer.write(chunk).is_ok() {}
        }
        nonblocking(&writer, false);
        let server = Server {
            process,
            lines: mpsc::channel().1,
            address,
        };
        (server, reader)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn connect(&self) -> TcpStream {
        let client = TcpStream::connect_timeout(&self.address, LIMIT).expect("it takes clients");
        client.set_read_timeout(Some(LIMIT)).expect("a limit");
        client.set_write_timeout(Some(LIMIT)).expect("a limit");
        client
    }

    /// Reads its output until a line contains `part`.
    pub fn says(&self, part: &str) -> String {
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) if line.contains(part) => return line,
                Ok(_) => {}
                Err(error) => panic!("no line with {part:?}: {error}"),
            }
        }
    }

    /// Returns its peak memory.
    #[cfg(target_os = "linux")]
    pub fn memory(&self) -> usize {
        let status = format!("/proc/{}/status", self.process.0.id());
        let status = std::fs::read_to_string(status).expect("it is still running");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let most = most.and_then(|most| most.trim().strip_suffix(" kB"));
        let most: usize = most.and_then(|most| most.parse().ok()).expect("a size");
        most * 1024
    }

    /// Asserts that memory does not grow with the data that passes through.
    pub fn stayed_small(&self) {
        #[cfg(target_os = "linux")]
        {
            let memory = self.memory();
            assert!(memory < MEMORY, "it took {memory} bytes of memory");
        }
    }

    /// Sends Ctrl-C.
    pub fn interrupt(&self) {
        self.process.signal(libc::SIGINT);
    }

    /// Sends SIGHUP, as a closed terminal does, and as users do to reload settings.
    pub fn hang_up(&self) {
        self.process.signal(libc::SIGHUP);
    }

    /// Sends what `kill` and service managers send.
    pub fn terminate(&self) {
        self.process.signal(libc::SIGTERM);
    }

    /// Returns its exit status, and its standard error, if it was started by
    /// [`stalled`](Self::stalled).
    pub fn end(mut self) -> (ExitStatus, String) {
        let end = self.process.end();
        let mut complaints = String::new();
        let mut stderr = self.process.0.stderr.take().expect("it is piped");
        let read = stderr.read_to_string(&mut complaints);
        read.expect("it says something in UTF-8");
        (end, complaints)
    }

    /// Sends Ctrl-C: it reports that last, and succeeds.
    pub fn stops(mut self) {
        self.interrupt();
        self.ended();
    }

    pub fn ended(&mut self) {
        self.says("stopped after");
        let end = self.process.end();
        assert!(end.success(), "{end}");
    }
}

/// Parses the address in the first line of a server.
fn address(greeting: &str, backend: Backend) -> SocketAddr {
    greeting
        .strip_prefix("listening on ")
        .and_then(|rest| rest.strip_suffix(&format!(" (backend {backend})")))
        .and_then(|address| address.parse().ok())
        .unwrap_or_else(|| panic!("no address and {backend} in {greeting:?}"))
}

fn nonblocking(pipe: &PipeWriter, on: bool) {
    let pipe = pipe.as_raw_fd();
    // SAFETY: it takes integers; the descriptor is borrowed for the duration of the call.
    let flags = unsafe { libc::fcntl(pipe, libc::F_GETFL) };
    let flags = if on {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    // SAFETY: as above.
    let result = unsafe { libc::fcntl(pipe, libc::F_SETFL, flags) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Returns the exit status of a server without output: SIGTERM is sent as soon as it is caught.
#[cfg(target_os = "linux")]
pub fn ended_by_sigterm(mut command: Command) -> ExitStatus {
    let mut process = Process::start(&mut command);
    let status = format!("/proc/{}/status", process.0.id());
    let start = Instant::now();
    loop {
        let status = std::fs::read_to_string(&status).expect("it is running");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("a mask").trim(), 16);
        // Signal n is bit n - 1.
        if caught.expect("a mask") & (1 << (libc::SIGTERM - 1)) != 0 {
            break;
        }
        assert!(start.elapsed() < LIMIT, "SIGTERM is not caught: {status}");
        thread::sleep(Duration::from_millis(2));
    }
    process.signal(libc::SIGTERM);
    process.end()
}

/// Returns an address without a listener. While the socket is kept, no other process gets the port.
pub fn nobody() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    socket.bind(&any.into()).expect("a port");
    let address = socket.local_addr().expect("it is bound");
    (socket, address.as_socket().expect("an IP address"))
}

/// Returns one of the programs, to be given arguments.
pub fn program(binary: &str, backend: Backend) -> Command {
    let mut command = Command::new(binary);
    command.env_remove("POLDER_BACKEND").stdin(Stdio::null());
    command.args(["--backend", backend.name()]);
    command
}

/// Returns how long after `start` the other side ended the connection; data before that is dropped.
pub fn cut_off(mut client: impl Read, start: Instant) -> Duration {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return start.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return start.elapsed(),
            Err(error) => panic!("not cut off: {error}"),
        }
    }
}

/// Returns a file in the tests' folder, for one backend.
pub fn file(name: &str, backend: Backend) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{backend}"))
}

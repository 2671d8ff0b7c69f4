//! Runs a program, reads its output, and connects to it.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polder::Backend;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use socket2::SockRef;

/// The time limit of a single step on a loaded machine; far longer than any step needs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Runs the program with these arguments: it must print one line to standard error that contains
/// all of `expected`, and exit with the status of a usage error.
pub fn wrong<const N: usize>(name: &str, arguments: [impl AsRef<OsStr>; N], expected: &[&str]) {
    ends_with(2, with_arguments(name, arguments), expected);
}

/// The same, for valid arguments and the status of other errors.
pub fn fails<const N: usize>(name: &str, arguments: [impl AsRef<OsStr>; N], expected: &[&str]) {
    refused(with_arguments(name, arguments), expected);
}

pub fn refused(command: Command, expected: &[&str]) {
    ends_with(1, command, expected);
}

fn ends_with(status: i32, command: Command, expected: &[&str]) {
    let what = format!("{command:?}");
    let mut program = Program::start(command);
    let line = program.next_line();
    assert_eq!(line, None, "{what}: a line on standard output");
    let complaint = program.complaint(status);
    for part in expected {
        assert!(
            complaint.contains(part),
            "{what}: no {part:?} in {complaint:?}"
        );
    }
}

/// Returns the address in a server's first line.
pub fn address(greeting: &str, with: &str) -> SocketAddr {
    greeting
        .strip_prefix("listening on ")
        .and_then(|rest| rest.strip_suffix(&format!(" ({with})")))
        .and_then(|address| address.parse().ok())
        .unwrap_or_else(|| panic!("no address and {with} in {greeting:?}"))
}

pub fn connect(address: SocketAddr) -> TcpStream {
    limited(TcpStream::connect_timeout(&address, LIMIT).expect("the server takes clients"))
}

/// Sets a time limit on each read and write.
pub fn limited(client: TcpStream) -> TcpStream {
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    client.set_write_timeout(Some(LIMIT)).expect("a limit");
    client
}

/// Returns the name of this client in the server's output.
pub fn name(client: &TcpStream) -> String {
    client.local_addr().expect("it is connected").to_string()
}

/// Ends the connection with a reset.
pub fn reset(client: TcpStream) {
    let linger = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    linger.expect("an option is set");
}

/// Repeats a call that a signal of another test interrupts, as it does where a socket has a limit:
/// socket(7), `SO_RCVTIMEO`.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

pub fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Bytes that would differ after a shift, a swap or a mix-up of clients.
pub fn pattern(size: usize, seed: usize) -> Vec<u8> {
    // Generated once, and read from another offset for each seed. The length is prime, so it is not
    // a multiple of a program's read size.
    const LENGTH: usize = 65_521;
    static RANDOM: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut state = 1_u64;
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        bytes.take(LENGTH).collect()
    });
    let mut bytes = Vec::with_capacity(size);
    let mut begin = seed.wrapping_mul(40_503) % LENGTH;
    while bytes.len() < size {
        let end = LENGTH.min(begin + size - bytes.len());
        bytes.extend_from_slice(&RANDOM[begin..end]);
        begin = 0;
    }
    bytes
}

/// A running example. It is killed if it outlives its test.
pub struct Program {
    child: Child,
    lines: Receiver<String>,
    complaints: Receiver<String>,
    /// All its output so far, for failure messages.
    said: Vec<String>,
}

impl Program {
    pub fn start(command: Command) -> Program {
        Program::heard_for(usize::MAX, command)
    }

    /// Starts a program; closes its output after this number of lines.
    pub fn heard_for(count: usize, mut command: Command) -> Program {
        let mut child = command.spawn().expect("the example starts");
        Program {
            lines: lines(count, child.stdout.take().expect("it is piped")),
            complaints: lines(usize::MAX, child.stderr.take().expect("it is piped")),
            child,
            said: Vec::new(),
        }
    }

    /// Starts a program with a standard output that is full after its first line. Returns that
    /// line, and the reading end of the pipe, which is kept and never read.
    pub fn stalled(mut command: Command) -> (Program, String, std::fs::File) {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        // No program that another test starts from now on inherits its ends.
        for end in [&reader, &writer] {
            fcntl_setfd(end, FdFlags::CLOEXEC).expect("a flag is set");
        }
        command.stdout(writer.try_clone().expect("a descriptor"));
        let mut child = command.spawn().expect("the example starts");
        // The command holds the writing end, as the child does.
        drop(command);
        let reader = std::fs::File::from(reader);
        // A program that ends without one leaves the pipe open, whose writing end is here too.
        let line = lines(1, reader.try_clone().expect("a descriptor"))
            .recv_timeout(LIMIT)
            .expect("its first line");
        // The mode belongs to the pipe, and so also applies to the program, which prints nothing
        // meanwhile.
        let mode = fcntl_getfl(&writer).expect("a mode");
        fcntl_setfl(&writer, mode | OFlags::NONBLOCK).expect("a mode is set");
        let mut writer = std::fs::File::from(writer);
        // Single bytes last, so that the pipe is completely full.
        for chunk in [&[b'.'; 512][..], b"."] {
            while writer.write(chunk).is_ok() {}
        }
        fcntl_setfl(&writer, mode).expect("a mode is set");
        let program = Program {
            lines: mpsc::channel().1,
            complaints: lines(usize::MAX, child.stderr.take().expect("it is piped")),
            child,
            said: Vec::new(),
        };
        (program, line, reader)
    }

    /// Returns the next line of standard output; `None` at its end.
    pub fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => {
                self.said.push(line.clone());
                Some(line)
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("nothing new after {LIMIT:?}; it said {:#?}", self.said)
            }
        }
    }

    pub fn line(&mut self) -> String {
        self.next_line().unwrap_or_else(|| {
            let complaints = self.complaints();
            panic!("it ended after {:#?} with {complaints:#?}", self.said)
        })
    }

    /// Returns all the lines of standard output that were read so far.
    #[cfg(target_os = "linux")]
    pub fn said(&self) -> &[String] {
        &self.said
    }

    /// Changes its descriptor limit.
    #[cfg(target_os = "linux")]
    pub fn limit_descriptors(&self, count: u64) {
        use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

        let limit = Rlimit {
            current: Some(count),
            ..getrlimit(Resource::Nofile)
        };
        let id = Some(Pid::from_child(&self.child));
        prlimit(id, Resource::Nofile, limit).expect("it is still running");
    }

    /// Returns its CPU time, in user and kernel mode, to 10 ms.
    #[cfg(target_os = "linux")]
    pub fn time(&self) -> Duration {
        let stat = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(stat).expect("it is still running");
        // The second field is the name, in parentheses; times are the 14th and the 15th, in ticks,
        // of which there are 100 a second on every architecture (USER_HZ).
        let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
        let ticks = rest.split_ascii_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|n| n.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Returns its standard error.
    pub fn complaints(&mut self) -> Vec<String> {
        self.complaints_within(LIMIT)
    }

    fn complaints_within(&mut self, limit: Duration) -> Vec<String> {
        let deadline = Instant::now() + limit;
        let mut all = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.complaints.recv_timeout(left) {
                Ok(line) => all.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return all,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("standard error is still open after {limit:?}: {all:#?}")
                }
            }
        }
    }

    /// Asserts that it fails with this status and one line.
    pub fn complaint(&mut self, status: i32) -> String {
        let complaints = self.complaints();
        let end = self.end();
        let [line] = &complaints[..] else {
            panic!("one line was expected: {complaints:#?}");
        };
        // A panic gives 101, a signal no code.
        assert_eq!(end.code(), Some(status), "{line}");
        line.clone()
    }

    /// Sends Ctrl-C.
    pub fn interrupt(&mut self) {
        self.signal(Signal::INT);
    }

    /// Sends SIGTERM, like `kill` and service managers.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is still running");
    }

    /// Sends Ctrl-C, and asserts that it prints "stopped" last, nothing on standard error, and
    /// succeeds.
    pub fn stops_on_ctrl_c(mut self) {
        self.interrupt();
        let mut last = None;
        while let Some(line) = self.next_line() {
            last = Some(line);
        }
        assert_eq!(last.as_deref(), Some("stopped"), "the last line");
        self.ended_well();
    }

    /// Returns its peak memory.
    #[cfg(target_os = "linux")]
    pub fn memory(&self) -> usize {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).expect("it is still running");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let most = most.and_then(|most| most.trim().strip_suffix(" kB"));
        let most: usize = most.and_then(|most| most.parse().ok()).expect("a size");
        most * 1024
    }

    /// Asserts that it ends by itself, with success and nothing on standard error.
    pub fn ended_well(&mut self) {
        let end = self.end();
        let complaints = self.complaints();
        assert!(
            end.success() && complaints.is_empty(),
            "{end}: {complaints:?}"
        );
    }

    /// Waits until it ends by itself.
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            let said = &self.said;
            assert!(start.elapsed() < LIMIT, "still running; it said {said:#?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Does nothing if its end was already seen.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread, so that the program never waits for us, and our wait has a limit.
fn lines(count: usize, stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for line in lines.take(count) {
            if sender.send(line).is_err() {
                break;
            }
        }
        // The stream is closed before the sender is dropped.
    });
    receiver
}

pub fn with_arguments(
    name: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = command(name);
    command.args(arguments);
    command
}

pub fn command(name: &str) -> Command {
    prepared(Command::new(binary(name)))
}

/// Starts an example that takes its backend from the environment.
pub fn on(backend: Backend, mut command: Command) -> Program {
    command.env("POLDER_BACKEND", backend.name());
    Program::start(command)
}

/// Clears the environment that would change what the example does.
pub fn prepared(mut command: Command) -> Command {
    command.env_remove("POLDER_BACKEND");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

/// Returns the path of the example, as `cargo test` builds it, next to this program.
pub fn binary(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let profile = this.ancestors().nth(2).expect("PROFILE/deps/programs-HASH");
    let binary = profile.join("examples").join(name);
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_up_to_date(&binary) {
        build(profile);
    }
    assert!(binary.exists(), "{} is not there", binary.display());
    binary
}

/// Whether it is newer than all its sources, as listed in the file that cargo puts next to it.
/// `cargo test --test programs` and `cargo test --all-targets` build no runnable examples, and
/// testing an old one would be worse than testing none.
fn is_up_to_date(binary: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let Some(built) = changed(binary) else {
        return false;
    };
    let list = std::fs::read_to_string(binary.with_extension("d")).unwrap_or_default();
    // `binary: source source …`; a space in a path is escaped, and such a path is skipped.
    let mut sources = list.split_ascii_whitespace().skip(1).map(Path::new);
    sources.all(|source| changed(source).is_none_or(|changed| changed <= built))
}

/// Makes cargo build the examples the way it built this program.
fn build(profile: &Path) {
    let target_directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let target_directory = target_directory.expect("TARGET/tmp");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--examples", "--target-dir"]);
    cargo.arg(target_directory);
    match profile.file_name().expect("a name") {
        name if name == "debug" => {}
        name => drop(cargo.arg("--profile").arg(name)),
    }
    // TARGET/PROFILE, or TARGET/PLATFORM/PROFILE if a platform was requested.
    match profile.parent().and_then(Path::file_name) {
        platform if platform == target_directory.file_name() => {}
        platform => drop(cargo.arg("--target").arg(platform.expect("a name"))),
    }
    let mut cargo = Program::start(prepared(cargo));
    // Far longer than a build takes, even if others build at the same time.
    let complaints = cargo.complaints_within(Duration::from_secs(600));
    let end = cargo.end();
    assert!(end.success(), "cargo built no examples: {complaints:#?}");
}

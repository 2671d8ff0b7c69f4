//! The examples, run as a user runs them: programs with arguments, two streams of lines, and an
//! end. Each rule that the README promises of them is a test here, on every backend.
//!
//! Nothing waits without a limit: lines, ends and sockets have one, and a program that is still
//! running when its test is over, however that ended, is killed.

// Ctrl-C is a signal here.
#![cfg(unix)]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polder::Backend;
use socket2::SockRef;

/// What any single step may take on a loaded machine; far beyond what one needs.
const LIMIT: Duration = Duration::from_secs(60);

// ---------------------------------------------------------------------------------------- echo

#[test]
fn echo_tells_the_address_it_really_has_and_the_backend() {
    for backend in Backend::available() {
        let echo = Echo::start(backend);
        assert_ne!(echo.address.port(), 0, "port 0 was not resolved");
        assert!(echo.address.ip().is_loopback());
        echo.serves_a_client();
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_takes_the_backend_from_the_environment_unless_it_is_told() {
    for backend in Backend::available() {
        let mut by_variable = command("echo");
        by_variable.env("POLDER_BACKEND", backend.name());
        by_variable.arg("127.0.0.1:0");
        let echo = Echo::greeted(Program::start(by_variable), backend);
        echo.stops_on_ctrl_c();

        let mut told = command("echo");
        told.env("POLDER_BACKEND", "fax");
        told.args(["127.0.0.1:0", &format!("--backend={backend}")]);
        let echo = Echo::greeted(Program::start(told), backend);
        echo.stops_on_ctrl_c();
    }
    let untold = Program::start(with_arguments("echo", ["127.0.0.1:0"]));
    Echo::greeted(untold, Backend::default()).stops_on_ctrl_c();
}

#[test]
fn echo_listens_at_port_7000_unless_it_is_told_otherwise() {
    let mut echo = Program::start(command("echo"));
    // Where somebody else has that port, the error tells which one was wanted.
    match echo.next_line() {
        Some(line) => {
            let default = Backend::default();
            let greeting = format!("listening on 127.0.0.1:7000 (backend {default})");
            assert_eq!(line, greeting);
            echo.interrupt();
            assert!(echo.end().success());
        }
        None => {
            let complaint = echo.complaint();
            let wanted = "echo: cannot listen on 127.0.0.1:7000: Address already in use";
            assert!(complaint.starts_with(wanted), "{complaint}");
        }
    }
}

#[test]
fn echo_listens_on_ipv6_and_by_name() {
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    for address in ["[::1]:0", "localhost:0"] {
        if address.starts_with('[') && !has_ipv6 {
            continue;
        }
        let program = Program::start(with_arguments("echo", [address]));
        let echo = Echo::greeted(program, Backend::default());
        echo.serves_a_client();
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_sends_back_every_byte_to_hundreds_of_clients_at_once() {
    const CLIENTS: usize = 200;
    const THREADS: usize = 4;
    // Of one byte, of a few, and of more than the server reads at a time.
    const ROUNDS: [usize; 3] = [1, 700, 20_000];

    for backend in Backend::available() {
        let mut echo = Echo::start(backend);
        let clients: Vec<_> = (0..CLIENTS).map(|_| echo.client()).collect();
        let mut expected: HashMap<String, u8> = HashMap::new();
        let mut names: Vec<String> = clients.iter().map(name).collect();
        names.sort();
        // All are there at once before the first byte is sent.
        let mut come: Vec<String> = (0..CLIENTS)
            .map(|_| {
                let line = echo.line();
                let name = line.strip_suffix(" connected");
                name.unwrap_or_else(|| panic!("not a coming: {line:?}"))
                    .to_owned()
            })
            .collect();
        come.sort();
        assert_eq!(come, names, "each client's coming is told, once");
        for name in names {
            expected.insert(name, 1);
        }

        let mut clients = clients.into_iter();
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let mut mine: Vec<_> = clients.by_ref().take(CLIENTS / THREADS).collect();
                scope.spawn(move || {
                    for (round, size) in ROUNDS.into_iter().enumerate() {
                        let bytes = |client| pattern(size, seed * 1_000 + client * 10 + round);
                        for (client, stream) in mine.iter_mut().enumerate() {
                            stream.write_all(&bytes(client)).expect("a write");
                        }
                        for (client, stream) in mine.iter_mut().enumerate() {
                            let mut back = vec![0; size];
                            stream.read_exact(&mut back).expect("the echo");
                            assert!(back == bytes(client), "other bytes came back");
                        }
                    }
                });
            }
        });
        let total: usize = ROUNDS.iter().sum();
        for _ in 0..CLIENTS {
            let line = echo.line();
            let (name, what) = line.split_once(' ').expect("two words");
            assert_eq!(what, format!("closed after {total} bytes"), "{line:?}");
            let left = expected.remove(name);
            assert!(left.is_some(), "{name} went twice, or never came");
        }
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_sends_back_all_after_a_client_half_closed() {
    for backend in Backend::available() {
        let mut echo = Echo::start(backend);
        for size in [0, 1, 3 << 20] {
            let mut client = echo.client();
            let bytes = pattern(size, size);
            let mut writer = client.try_clone().expect("a clone");
            let back = thread::scope(|scope| {
                scope.spawn(|| {
                    writer.write_all(&bytes).expect("a write");
                    writer.shutdown(Shutdown::Write).expect("a half-close");
                });
                let mut back = Vec::new();
                client.read_to_end(&mut back).expect("the echo, to its end");
                back
            });
            assert!(back == bytes, "{size} bytes sent, {} came", back.len());
            echo.says(&client, "connected");
            echo.says(&client, &format!("closed after {size} bytes"));
        }
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_serves_others_while_clients_send_nothing() {
    for backend in Backend::available() {
        let mut echo = Echo::start(backend);
        let silent: Vec<_> = (0..5).map(|_| echo.client()).collect();
        for client in &silent {
            echo.says(client, "connected");
        }
        echo.serves_a_client_and_says_so();
        for client in silent {
            let name = name(&client);
            drop(client);
            assert_eq!(echo.line(), format!("{name} closed after 0 bytes"));
        }
        echo.serves_a_client_and_says_so();
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_serves_others_while_and_after_clients_reset() {
    for backend in Backend::available() {
        let mut echo = Echo::start(backend);
        for bytes in [0, 5] {
            let mut client = echo.client();
            echo.says(&client, "connected");
            let sent = pattern(bytes, 0);
            client.write_all(&sent).expect("a write");
            client.read_exact(&mut vec![0; bytes]).expect("the echo");
            let name = name(&client);
            reset(client);
            let line = echo.line();
            assert!(line.starts_with(&format!("{name} lost: ")), "{line:?}");
        }
        // Reset as soon as they are there, most of them before they are accepted. Some systems
        // do not hand out such a connection at all, so nothing is asked of what is told.
        for _ in 0..20 {
            reset(echo.client());
        }
        let client = echo.serves_a_client();
        let gone = format!("{client} closed after 5 bytes");
        while echo.line() != gone {}
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_serves_others_while_and_after_clients_stop_reading_and_vanish() {
    for backend in Backend::available() {
        let mut echo = Echo::start(backend);
        let mut client = echo.client();
        echo.says(&client, "connected");
        // It writes until nothing fits any more: the server's task now waits for it to read.
        client.set_nonblocking(true).expect("an option is set");
        let chunk = vec![7; 64 * 1024];
        let mut refused = 0;
        while refused < 20 {
            match client.write(&chunk) {
                Ok(written) => {
                    assert_ne!(written, 0);
                    refused = 0;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    // Let the server take what it still can.
                    echo.serves_a_client_and_says_so();
                    refused += 1;
                }
            }
        }
        let name = name(&client);
        drop(client); // With bytes unread.
        let line = echo.line();
        assert!(line.starts_with(&format!("{name} lost: ")), "{line:?}");
        echo.serves_a_client_and_says_so();
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_goes_on_by_itself_after_it_had_no_descriptors_left() {
    for backend in Backend::available() {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 24; exec \"$0\" \"$@\""]);
        limited.arg(binary("echo"));
        limited.args(["127.0.0.1:0", "--backend", backend.name()]);
        let mut echo = Echo::greeted(Program::start(prepared(limited)), backend);
        let mut clients: Vec<_> = (0..40).map(|_| echo.client()).collect();
        while !echo.line().starts_with("cannot accept: ") {}
        // The first was accepted, and is served meanwhile.
        exchange(&mut clients[0]);
        let mut last = clients.pop().expect("a client that waits in the queue");
        drop(clients);
        exchange(&mut last);
        echo.stops_on_ctrl_c();
    }
}

#[test]
fn echo_stops_on_ctrl_c_with_clients_connected() {
    for backend in Backend::available() {
        let echo = Echo::start(backend);
        let mut clients: Vec<_> = (0..20).map(|_| echo.client()).collect();
        for client in &mut clients {
            exchange(client);
        }
        let address = echo.address;
        echo.stops_on_ctrl_c();
        for mut client in clients {
            let gone = client.read(&mut [0]);
            assert!(
                matches!(&gone, Ok(0)) || gone.is_err_and(|error| !is_timeout(&error)),
                "a client still waits for a server that is gone"
            );
        }
        TcpStream::connect_timeout(&address, LIMIT).expect_err("nobody listens there any more");
    }
}

#[test]
fn echo_goes_on_when_nobody_reads_its_output() {
    for backend in Backend::available() {
        let arguments = ["127.0.0.1:0", "--backend", backend.name()];
        // One line is read, and then the pipe is closed.
        let mut program = Program::heard_for(1, with_arguments("echo", arguments));
        let address = address(&program.line(), backend);
        assert_eq!(program.next_line(), None);
        for _ in 0..3 {
            serve(address);
        }
        program.interrupt();
        let end = program.end();
        assert!(end.success(), "{end}: {:?}", program.complaints());
    }
}

#[test]
fn a_wrong_argument_of_echo_gets_one_line_that_says_what_it_should_have_been() {
    const USAGE: &str = "usage: echo [ADDR] [--backend NAME]";
    const ADDRESS: &str = "it should be HOST:PORT";
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address").to_string();
    let mut available = String::from("available: ");
    let backends = Backend::available();
    let names: Vec<_> = backends.iter().map(|backend| backend.name()).collect();
    available.push_str(&names.join(", "));
    let available = available.as_str();

    wrong("echo", ["--fast"], &["\"--fast\"", USAGE]);
    wrong("echo", ["-h"], &["\"-h\"", USAGE]);
    wrong("echo", ["--backend"], &["wants a name", USAGE]);
    wrong("echo", ["--backend", "fax"], &["\"fax\"", available]);
    wrong("echo", ["--backend=fax"], &["\"fax\"", available]);
    wrong("echo", ["--backend", ""], &["\"\"", available]);
    wrong("echo", ["--backend="], &["\"\"", available]);
    wrong("echo", ["--backend", "a\nb"], &["\"a\\nb\"", available]);
    let two = ["127.0.0.1:0", "127.0.0.2:0"];
    wrong("echo", two, &[two[0], two[1], "one address", USAGE]);
    for address in ["nonsense", "127.0.0.1", "127.0.0.1:99999", ":0", "", "a\nb"] {
        wrong("echo", [address], &[ADDRESS]);
    }
    let bytes = OsString::from_vec(b"\xff:\xff".to_vec());
    wrong("echo", [bytes], &[ADDRESS]);
    wrong("echo", [&taken], &[&taken, "it should be a free port"]);
    // A documentation address (RFC 5737): no machine has it.
    let elsewhere = ["192.0.2.1:0"];
    wrong("echo", elsewhere, &["192.0.2.1", "address of this machine"]);
}

#[test]
fn a_backend_that_this_platform_lacks_gets_one_line_that_lists_what_there_is() {
    let all = ["epoll", "kqueue", "event-ports", "iocp", "poll"];
    let lacking: Vec<_> = all
        .into_iter()
        .filter(|name| name.parse::<Backend>().is_err())
        .collect();
    assert!(!lacking.is_empty(), "no platform has them all");
    for name in lacking {
        let not_here = format!(
            "backend {name} is not available on {}",
            std::env::consts::OS
        );
        wrong("echo", ["--backend", name], &[&not_here, "available: "]);
        let mut by_variable = command("echo");
        by_variable.env("POLDER_BACKEND", name);
        refused(by_variable, &["POLDER_BACKEND", &not_here, "available: "]);
        let mut by_variable = command("timers");
        by_variable.env("POLDER_BACKEND", name);
        refused(by_variable, &["POLDER_BACKEND", &not_here, "available: "]);
    }
}

// -------------------------------------------------------------------------------------- timers

/// At a tenth, the two ends lie 100 ms apart: enough that a machine that is busy with other things
/// does not turn them round.
#[test]
fn timers_says_that_work2_finishes_and_then_work_and_ends_by_itself() {
    let started: Vec<_> = Backend::available()
        .into_iter()
        .map(|backend| {
            let mut command = with_arguments("timers", ["--scale", "0.1"]);
            command.env("POLDER_BACKEND", backend.name());
            (backend, Program::start(command))
        })
        .collect();
    for (backend, mut timers) in started {
        let lines: Vec<_> = std::iter::from_fn(|| timers.next_line()).collect();
        let end = timers.end();
        let complaints = timers.complaints();
        assert!(end.success() && complaints.is_empty(), "{complaints:?}");
        let said: Vec<_> = lines.iter().map(|line| timed(line)).collect();

        let of = |who| said.iter().filter(move |(_, name, _)| *name == who);
        let what = |who| of(who).map(|(_, _, what)| *what).collect::<Vec<_>>();
        let work = ["sleeping for 100ms", "sleeping for 300ms", "finishing"];
        let work2 = ["sleeping for 100ms", "sleeping for 200ms", "finishing"];
        assert_eq!(what("Work"), work, "on {backend}: {lines:#?}");
        assert_eq!(what("Work2"), work2, "on {backend}: {lines:#?}");
        let [.., (end2, name2, what2), (end1, name1, what1)] = said[..] else {
            panic!("on {backend}: {lines:#?}");
        };
        assert_eq!((name2, what2), ("Work2", "finishing"), "the last but one");
        assert_eq!((name1, what1), ("Work", "finishing"), "the last");
        // The times are rounded to milliseconds.
        assert!(end2 >= 0.299 && end1 >= 0.399, "early: {lines:#?}");
        assert!(said.is_sorted_by_key(|(time, ..)| *time), "{lines:#?}");
    }
}

#[test]
fn a_wrong_argument_of_timers_gets_one_line_that_says_what_it_should_have_been() {
    const USAGE: &str = "usage: timers [--scale FACTOR]";
    wrong("timers", ["--scale"], &["wants a factor", USAGE]);
    for factor in ["fast", "", "-1", "NaN", "inf", "1001", "1s", "a\nb"] {
        let given = format!("{factor:?}");
        let expected = [given.as_str(), "from 0 to 1000", USAGE];
        wrong("timers", ["--scale", factor], &expected);
    }
    wrong("timers", ["--slow"], &["\"--slow\"", USAGE]);
    wrong("timers", ["1"], &["\"1\"", USAGE]);
    wrong("timers", ["--scale", "1", "2"], &["\"2\"", USAGE]);
    let bytes = OsString::from_vec(b"\xff".to_vec());
    wrong("timers", [bytes], &[USAGE]);
}

/// A line of `timers`: when, who, what.
fn timed(line: &str) -> (f64, &str, &str) {
    let parts = || {
        let (time, rest) = line.strip_prefix('[')?.split_once(" s] ")?;
        let (who, what) = rest.split_once(": ")?;
        Some((time.trim().parse().ok()?, who, what))
    };
    parts().unwrap_or_else(|| panic!("no time, name and message: {line:?}"))
}

// ------------------------------------------------------------------------- what the tests share

/// The program runs with these arguments: it must say one line, on the error stream, that holds
/// all of `expected`, and fail.
fn wrong<const N: usize>(name: &str, arguments: [impl AsRef<OsStr>; N], expected: &[&str]) {
    refused(with_arguments(name, arguments), expected);
}

fn refused(command: Command, expected: &[&str]) {
    let what = format!("{command:?}");
    let mut program = Program::start(command);
    let line = program.next_line();
    assert_eq!(line, None, "{what}: a line on standard output");
    let complaint = program.complaint();
    for part in expected {
        assert!(
            complaint.contains(part),
            "{what}: no {part:?} in {complaint:?}"
        );
    }
}

/// The echo server, and where it listens.
struct Echo {
    program: Program,
    address: SocketAddr,
}

impl Echo {
    fn start(backend: Backend) -> Echo {
        let arguments = ["127.0.0.1:0", "--backend", backend.name()];
        Echo::greeted(Program::start(with_arguments("echo", arguments)), backend)
    }

    /// Waits until it says where it listens, and on which backend.
    fn greeted(mut program: Program, backend: Backend) -> Echo {
        let line = program.line();
        let address = address(&line, backend);
        Echo { program, address }
    }

    fn client(&self) -> TcpStream {
        connect(self.address)
    }

    fn line(&mut self) -> String {
        self.program.line()
    }

    /// The next line is about this client.
    fn says(&mut self, client: &TcpStream, what: &str) {
        assert_eq!(self.line(), format!("{} {what}", name(client)));
    }

    /// One client comes, is echoed to, and goes; its name.
    fn serves_a_client(&self) -> String {
        serve(self.address)
    }

    /// Where no other line can come in between.
    fn serves_a_client_and_says_so(&mut self) {
        let client = self.serves_a_client();
        assert_eq!(self.line(), format!("{client} connected"));
        assert_eq!(self.line(), format!("{client} closed after 5 bytes"));
    }

    /// Ctrl-C: it says so last, with nothing to complain of, and succeeds.
    fn stops_on_ctrl_c(mut self) {
        self.program.interrupt();
        let mut last = None;
        while let Some(line) = self.program.next_line() {
            last = Some(line);
        }
        assert_eq!(last.as_deref(), Some("stopped"), "the last line");
        let end = self.program.end();
        let complaints = self.program.complaints();
        assert!(
            end.success() && complaints.is_empty(),
            "{end}: {complaints:?}"
        );
    }
}

/// The address in the line that `echo` begins with.
fn address(greeting: &str, backend: Backend) -> SocketAddr {
    greeting
        .strip_prefix("listening on ")
        .and_then(|rest| rest.strip_suffix(&format!(" (backend {backend})")))
        .and_then(|address| address.parse().ok())
        .unwrap_or_else(|| panic!("no address and {backend} in {greeting:?}"))
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect_timeout(&address, LIMIT).expect("the server takes clients");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    client.set_write_timeout(Some(LIMIT)).expect("a limit");
    client
}

fn serve(address: SocketAddr) -> String {
    let mut client = connect(address);
    exchange(&mut client);
    client.shutdown(Shutdown::Write).expect("a half-close");
    assert_eq!(client.read(&mut [0]).expect("the end"), 0, "more came back");
    name(&client)
}

fn exchange(client: &mut TcpStream) {
    client.write_all(b"hello").expect("a write");
    let mut back = [0; 5];
    client.read_exact(&mut back).expect("the echo");
    assert_eq!(&back, b"hello");
}

/// What the server calls this client.
fn name(client: &TcpStream) -> String {
    client.local_addr().expect("it is connected").to_string()
}

/// Ends the connection with a reset.
fn reset(client: TcpStream) {
    let linger = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    linger.expect("an option is set");
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Bytes that a shift, a swap or another client's would not leave equal.
fn pattern(size: usize, seed: usize) -> Vec<u8> {
    let mut state = (seed as u64) << 1 | 1;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    bytes.take(size).collect()
}

/// A running example. It is killed if it outlives its test.
struct Program {
    child: Child,
    lines: Receiver<String>,
    complaints: Receiver<String>,
    /// All that it said, for when a test fails.
    said: Vec<String>,
}

impl Program {
    fn start(command: Command) -> Program {
        Program::heard_for(usize::MAX, command)
    }

    /// Its standard output is closed after so many lines.
    fn heard_for(count: usize, mut command: Command) -> Program {
        let mut child = command.spawn().expect("the example starts");
        Program {
            lines: lines(count, child.stdout.take().expect("it is piped")),
            complaints: lines(usize::MAX, child.stderr.take().expect("it is piped")),
            child,
            said: Vec::new(),
        }
    }

    /// The next line of standard output; `None` at its end.
    fn next_line(&mut self) -> Option<String> {
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

    fn line(&mut self) -> String {
        self.next_line().unwrap_or_else(|| {
            let complaints = self.complaints();
            panic!("it ended after {:#?} with {complaints:#?}", self.said)
        })
    }

    /// What it says on standard error, to the end.
    fn complaints(&mut self) -> Vec<String> {
        let deadline = Instant::now() + LIMIT;
        let mut all = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.complaints.recv_timeout(left) {
                Ok(line) => all.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return all,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("standard error is still open after {LIMIT:?}: {all:#?}")
                }
            }
        }
    }

    /// It fails, with one line.
    fn complaint(&mut self) -> String {
        let complaints = self.complaints();
        let end = self.end();
        let [line] = &complaints[..] else {
            panic!("one line was expected: {complaints:#?}");
        };
        // A panic gives 101, a signal none.
        assert_eq!(end.code(), Some(1), "{line}");
        line.clone()
    }

    /// Ctrl-C.
    fn interrupt(&mut self) {
        let id = libc::pid_t::try_from(self.child.id()).expect("an id fits");
        // SAFETY: this sends a signal and touches no memory. The id is the child's still: nobody
        // has waited for it, and from then on `child` is not asked for it again.
        let result = unsafe { libc::kill(id, libc::SIGINT) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }

    /// Waits until it ends by itself.
    fn end(&mut self) -> ExitStatus {
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
        // Does nothing where its end was seen already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A thread reads them, so that the program never waits for us, and we wait with a limit.
fn lines(count: usize, stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for line in lines.take(count) {
            if sender.send(line).is_err() {
                break;
            }
        }
        // The stream is closed by now; only then the sender goes.
    });
    receiver
}

fn with_arguments(name: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = command(name);
    command.args(arguments);
    command
}

fn command(name: &str) -> Command {
    prepared(Command::new(binary(name)))
}

/// Nothing that this process was started with changes what the example does.
fn prepared(mut command: Command) -> Command {
    command.env_remove("POLDER_BACKEND");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

/// The example, as `cargo test` builds it, next to this very program.
fn binary(name: &str) -> PathBuf {
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

/// Whether it is younger than all sources that it was made of, as listed in the file that cargo
/// puts beside it. `cargo test --test programs` and `cargo test --all-targets` build no examples
/// that could be run, and testing an old one would be worse than testing none.
fn is_up_to_date(binary: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let Some(built) = changed(binary) else {
        return false;
    };
    let list = std::fs::read_to_string(binary.with_extension("d")).unwrap_or_default();
    // `binary: source source …`; a space in a path is escaped, and such a path is passed over.
    let mut sources = list.split_ascii_whitespace().skip(1).map(Path::new);
    sources.all(|source| changed(source).is_none_or(|changed| changed <= built))
}

/// Has cargo build the examples the way it built this program.
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
    // TARGET/PROFILE, or TARGET/PLATFORM/PROFILE where one was asked for.
    match profile.parent().and_then(Path::file_name) {
        platform if platform == target_directory.file_name() => {}
        platform => drop(cargo.arg("--target").arg(platform.expect("a name"))),
    }
    let mut cargo = Program::start(prepared(cargo));
    let complaints = cargo.complaints();
    let end = cargo.end();
    assert!(end.success(), "cargo built no examples: {complaints:#?}");
}

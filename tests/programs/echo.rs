//! `echo`: a task per connection.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use polder::Backend;
#[cfg(target_os = "linux")]
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::support::*;

/// Echo tells the address it really has and the backend.
#[test]
fn echo_prints_real_address_and_backend() {
    on_each_backend(|echo, _| {
        assert_ne!(echo.address.port(), 0, "port 0 was not resolved");
        assert!(echo.address.ip().is_loopback());
        echo.serves_a_client();
    });
}

/// Echo listens at port 7000 unless it is told otherwise.
#[test]
fn echo_listens_at_7000_by_default() {
    let mut echo = Program::start(command("echo"));
    // If another process has that port, the error names the port that was wanted.
    match echo.next_line() {
        Some(line) => {
            let default = Backend::default();
            let greeting = format!("listening on 127.0.0.1:7000 (backend {default})");
            assert_eq!(line, greeting);
            echo.interrupt();
            assert!(echo.end().success());
        }
        None => {
            let complaint = echo.complaint(1);
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
fn echo_returns_every_byte_to_hundreds() {
    const CLIENTS: usize = 300;
    const THREADS: usize = 4;
    // One byte, a few, and more than the server reads in one call.
    const ROUNDS: [usize; 3] = [1, 700, 20_000];

    on_each_backend(|echo, _| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| echo.client()).collect();
        let mut expected: HashMap<String, u8> = HashMap::new();
        let mut names: Vec<String> = clients.iter().map(name).collect();
        names.sort();
        // All are connected before the first byte is sent.
        let mut connected: Vec<String> = (0..CLIENTS)
            .map(|_| {
                let line = echo.line();
                let name = line.strip_suffix(" connected");
                name.unwrap_or_else(|| panic!("not a connection: {line:?}"))
                    .to_owned()
            })
            .collect();
        connected.sort();
        assert_eq!(connected, names, "each connection is reported, once");
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
    });
}

/// More than three times the capacity of libc's `fd_set`.
#[test]
#[cfg(target_os = "linux")]
fn echo_on_select_serves_thousands() {
    let limit = raised_descriptor_limit();
    // Leaves some for the other tests, which run in this process at the same time.
    let clients = limit.saturating_sub(900).min(3_000);
    let told = format!("{clients} clients, with {limit} descriptors at most");
    assert!(clients >= 100, "too few to mean anything: {told}");

    let mut echo = Echo::start(Backend::Select);
    let mut clients: Vec<_> = (0..clients).map(|_| echo.client()).collect();
    for _ in &clients {
        let line = echo.line();
        assert!(line.ends_with(" connected"), "{told}: {line:?}");
    }
    let bytes = |number: usize| (number as u32).to_le_bytes();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(&bytes(number)).expect("a write");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut back = [0; 4];
        let read = client.read_exact(&mut back);
        read.unwrap_or_else(|error| panic!("{told}: no echo for {number}: {error}"));
        assert_eq!(back, bytes(number), "{told}: another's echo");
    }
    // Resets the connections, so that no port stays in TIME_WAIT.
    let count = clients.len();
    clients.into_iter().for_each(reset);
    for _ in 0..count {
        let line = echo.line();
        assert!(line.contains(" lost: "), "{told}: {line:?}");
    }
    echo.stops_on_ctrl_c();
}

/// Raises this process's limit as far as allowed; programs that it starts inherit it.
#[cfg(target_os = "linux")]
fn raised_descriptor_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    // No more than needed: a program that closes every possible descriptor takes long with a limit
    // of a billion.
    let raised = current.max(limit.maximum.unwrap_or(u64::MAX).min(4_096));
    limit.current = Some(raised);
    setrlimit(Resource::Nofile, limit).expect("it is not above the maximum");
    raised.try_into().unwrap_or(usize::MAX)
}

#[test]
fn echo_sends_back_all_after_a_client_half_closed() {
    on_each_backend(|echo, _| {
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
    });
}

#[test]
fn echo_serves_others_while_clients_send_nothing() {
    on_each_backend(|echo, _| {
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
    });
}

/// Echo serves others while and after clients reset.
#[test]
fn echo_serves_others_during_resets() {
    on_each_backend(|echo, _| {
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
        // Resets connections immediately, most of them before they are accepted. Some systems never
        // return such a connection from `accept`, so the output is not checked.
        for _ in 0..20 {
            reset(echo.client());
        }
        let client = echo.serves_a_client();
        let gone = format!("{client} closed after 5 bytes");
        while echo.line() != gone {}
    });
}

/// Echo serves others while and after clients stop reading and vanish.
#[test]
fn echo_serves_others_despite_stalled_clients() {
    on_each_backend(|echo, _| {
        let mut client = echo.client();
        echo.says(&client, "connected");
        // Writes until the buffers are full: the server's task now waits for the client to read.
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
                    // Let the server take the bytes that still fit.
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
    });
}

/// Echo goes on by itself after it had no descriptors left.
#[test]
fn echo_recovers_from_emfile() {
    for backend in Backend::available() {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 24; exec \"$0\" \"$@\""]);
        limited.arg(binary("echo")).arg("127.0.0.1:0");
        let mut echo = Echo::greeted(on(backend, prepared(limited)), backend);
        let mut clients: Vec<_> = (0..40).map(|_| echo.client()).collect();
        while !echo.line().starts_with("cannot accept: ") {}
        // The first client was accepted, and is served meanwhile.
        exchange(&mut clients[0]);
        let mut last = clients.pop().expect("a client that waits in the queue");
        drop(clients);
        exchange(&mut last);
        echo.stops_on_ctrl_c();
    }
}

/// Echo that is starved of descriptors does not spin and serves everyone in the end.
///
/// `ulimit -n 64`, and 500 clients: waiting for descriptors costs almost no CPU time, service
/// resumes soon after some are free, and every accepted client is served.
#[test]
#[cfg(target_os = "linux")]
fn echo_starved_of_descriptors_does_not_spin() {
    use std::time::{Duration, Instant};

    const CLIENTS: usize = 500;
    raised_descriptor_limit();
    for backend in Backend::available() {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -S -n 64; exec \"$0\" \"$@\""]);
        limited.arg(binary("echo")).arg("127.0.0.1:0");
        let mut echo = Echo::greeted(on(backend, prepared(limited)), backend);
        // Each client sends its number and nothing else, so an accepted client is served
        // immediately, and leaves only when we close it.
        let mut waiting: Vec<_> = (0..CLIENTS).map(|_| echo.client()).collect();
        for (number, client) in waiting.iter_mut().enumerate() {
            let bytes = (number as u32).to_le_bytes();
            client.write_all(&bytes).expect("the queue takes it");
        }
        while !echo.line().starts_with("cannot accept: ") {}

        // Starved: measures the cost of waiting.
        let (before, start) = (echo.program.time(), Instant::now());
        thread::sleep(Duration::from_millis(1_000));
        let (spent, took) = (echo.program.time() - before, start.elapsed());
        let share = spent.as_secs_f64() / took.as_secs_f64();
        println!("{backend}: {:.2} % of a core while starved", share * 100.0);
        assert!(share < 0.1, "{spent:?} of {took:?} on {backend}");

        // The limit is raised: no event reports that, and no client has left.
        let start = Instant::now();
        let first = loop {
            let first = (waiting.iter())
                .take_while(|client| has_answer(client))
                .count();
            if first >= 32 {
                break first;
            }
            assert!(start.elapsed() < LIMIT, "{first} were served");
            thread::sleep(Duration::from_millis(10));
        };
        assert!(first < 64, "{first} were served");
        let start = Instant::now();
        echo.program.limit_descriptors(64 + 8);
        let answer = uninterrupted(|| waiting[first].peek(&mut [0; 4]));
        answer.unwrap_or_else(|error| panic!("no echo for {first} on {backend}: {error}"));
        let took = start.elapsed();
        println!("{backend}: served {took:?} after there were descriptors again");
        assert!(took < Duration::from_secs(5), "{took:?} on {backend}");

        // Descriptors are freed, a few at a time, and the next clients are served soon.
        let mut served = vec![];
        let mut slowest = Duration::ZERO;
        let mut number = 0;
        while let Some(mut client) = (number < CLIENTS).then(|| waiting.remove(0)) {
            let start = Instant::now();
            let mut back = [0; 4];
            let read = client.read_exact(&mut back);
            read.unwrap_or_else(|error| panic!("no echo for {number} on {backend}: {error}"));
            assert_eq!(back, (number as u32).to_le_bytes(), "another's echo");
            // The first clients were served before.
            if number > 64 + 8 {
                slowest = slowest.max(start.elapsed());
            }
            number += 1;
            served.push(client);
            if served.len() == 40 {
                served.drain(..).for_each(reset);
            }
        }
        println!("{backend}: the next is served after {slowest:?} at most");
        assert!(slowest < Duration::from_secs(5), "{slowest:?} on {backend}");
        served.into_iter().for_each(reset);
        echo.serves_a_client();
        // Every connection was reported, once.
        let mut program = echo.program;
        program.interrupt();
        while program.next_line().is_some() {}
        let come = program
            .said()
            .iter()
            .filter(|line| line.ends_with(" connected"));
        assert_eq!(come.count(), CLIENTS + 1, "on {backend}");
        program.ended_well();
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
        let mut command = with_arguments("echo", ["127.0.0.1:0"]);
        command.env("POLDER_BACKEND", backend.name());
        // The test reads one line, and then closes the pipe.
        let mut program = Program::heard_for(1, command);
        let address = address(&program.line(), &format!("backend {backend}"));
        assert_eq!(program.next_line(), None);
        for _ in 0..3 {
            serve(address);
        }
        program.interrupt();
        let end = program.end();
        assert!(end.success(), "{end}: {:?}", program.complaints());
    }
}

/// A wrong address of echo gets one line that says what it should have been.
#[test]
fn wrong_address_of_echo_says_format() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address").to_string();
    for address in ["nonsense", "127.0.0.1", "127.0.0.1:99999", ":0", "", "a\nb"] {
        fails("echo", [address], &["expected HOST:PORT"]);
    }
    fails("echo", [&taken], &[&taken, "port 0 stands for a free one"]);
    // A documentation address (RFC 5737): no machine has it.
    let elsewhere = ["192.0.2.1:0"];
    fails("echo", elsewhere, &["192.0.2.1", "address of this machine"]);
}

#[cfg(target_os = "linux")]
fn has_answer(client: &TcpStream) -> bool {
    client.set_nonblocking(true).expect("an option is set");
    let there = client.peek(&mut [0; 4]).is_ok();
    client.set_nonblocking(false).expect("an option is set");
    there
}

/// Runs `rule` with a server on each backend, which stops afterwards.
fn on_each_backend(rule: impl Fn(&mut Echo, Backend)) {
    for backend in Backend::available() {
        let mut echo = Echo::start(backend);
        rule(&mut echo, backend);
        echo.stops_on_ctrl_c();
    }
}

/// The echo server, and its address.
struct Echo {
    program: Program,
    address: SocketAddr,
}

impl Echo {
    fn start(backend: Backend) -> Echo {
        let command = with_arguments("echo", ["127.0.0.1:0"]);
        Echo::greeted(on(backend, command), backend)
    }

    /// Waits until it prints its address and backend.
    fn greeted(mut program: Program, backend: Backend) -> Echo {
        let line = program.line();
        let address = address(&line, &format!("backend {backend}"));
        Echo { program, address }
    }

    fn client(&self) -> TcpStream {
        connect(self.address)
    }

    fn line(&mut self) -> String {
        self.program.line()
    }

    /// Asserts that the next line is about this client.
    fn says(&mut self, client: &TcpStream, what: &str) {
        assert_eq!(self.line(), format!("{} {what}", name(client)));
    }

    /// A client connects, gets its echo, and leaves. Returns its name.
    fn serves_a_client(&self) -> String {
        serve(self.address)
    }

    /// For when no other line can come in between.
    fn serves_a_client_and_says_so(&mut self) {
        let client = self.serves_a_client();
        assert_eq!(self.line(), format!("{client} connected"));
        assert_eq!(self.line(), format!("{client} closed after 5 bytes"));
    }

    fn stops_on_ctrl_c(self) {
        self.program.stops_on_ctrl_c();
    }
}

fn serve(address: SocketAddr) -> String {
    let mut client = connect(address);
    exchange(&mut client);
    client.shutdown(Shutdown::Write).expect("a half-close");
    let read = uninterrupted(|| client.read(&mut [0])).expect("the end");
    assert_eq!(read, 0, "more came back");
    name(&client)
}

fn exchange(client: &mut TcpStream) {
    client.write_all(b"hello").expect("a write");
    let mut back = [0; 5];
    client.read_exact(&mut back).expect("the echo");
    assert_eq!(&back, b"hello");
}

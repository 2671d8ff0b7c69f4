//! `poll_loop`: a server on the poller alone, on every backend and in each of its modes.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use polder::Backend;
use polder::poller::{Mode, Poller};
use socket2::{Domain, Socket, Type};

use crate::support::*;

/// The longest request that the protocol allows.
const LONGEST: usize = 32 << 20;

/// `poll_loop` tells the address it really has the backend and the mode.
#[test]
fn poll_loop_prints_address_backend_mode() {
    on_each_way(|server, _| {
        assert_ne!(server.address.port(), 0, "port 0 was not resolved");
        server.serves_a_client();
    });
}

/// `poll_loop` takes the backend from the environment and the mode that is simplest.
#[test]
fn poll_loop_backend_by_environment() {
    for backend in Backend::available() {
        let mut by_variable = with_arguments("poll_loop", ["127.0.0.1:0"]);
        by_variable.env("POLDER_BACKEND", backend.name());
        let mode = if poller(backend).capabilities().level {
            Mode::Level
        } else {
            Mode::OneShot
        };
        let server = Server::greeted(by_variable, Way { backend, mode });
        server.serves_a_client();
        server.stops_on_ctrl_c();
    }
}

/// `poll_loop` replies to requests that come byte by byte.
#[test]
fn poll_loop_replies_byte_by_byte() {
    on_each_way(|server, way| {
        let mut slow = server.client();
        slow.set_nodelay(true).expect("an option is set");
        let mut other = server.client();
        let requests: Vec<_> = [5, 0, 1].into_iter().map(|size| request(size, 7)).collect();
        for byte in requests.concat() {
            slow.write_all(&[byte]).expect("a write");
            // Once the other client has its reply, the server has seen, or is about to see, that
            // byte.
            exchange(&mut other, 3, way);
        }
        for request in requests {
            replies(&mut slow, &request, way);
        }
    });
}

/// `poll_loop` replies in order to thousands of pipelined requests.
#[test]
fn poll_loop_replies_in_order_to_thousands() {
    on_each_way(|server, way| {
        let requests: Vec<_> = (0..2_000)
            .map(|number| request(number * 7 % 300, number))
            .collect();
        let requests = requests.concat();
        let mut client = server.client();
        let mut writer = client.try_clone().expect("a clone");
        thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&requests).expect("a write"));
            replies(&mut client, &requests, way);
        });
        server.says(&client, "connected");
        client.shutdown(Shutdown::Write).expect("a half-close");
        server.says(&client, "closed after 2000 requests");
    });
}

#[test]
fn poll_loop_replies_to_the_longest_request() {
    for way in ways() {
        // At full size for the default backend in level mode, smaller elsewhere.
        let full = way.backend == Backend::default() && way.mode == Mode::Level;
        let size = if full { LONGEST } else { 1 << 20 };
        let server = Server::start(way);
        let request = request(size, 5);
        let mut client = server.client();
        let mut writer = client.try_clone().expect("a clone");
        thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&request).expect("a write"));
            replies(&mut client, &request, way);
        });
        // The connection continues.
        exchange(&mut client, 10, way);
        server.stops_on_ctrl_c();
    }
}

/// `poll_loop` closes after a request that is too long and the replies before it.
#[test]
fn poll_loop_closes_after_long_request() {
    on_each_way(|server, way| {
        for length in [LONGEST as u32 + 1, u32::MAX] {
            let before: Vec<_> = (0..3).map(|size| request(size, 3)).collect();
            let before = before.concat();
            let mut client = server.client();
            client.write_all(&before).expect("a write");
            client.write_all(&length.to_le_bytes()).expect("a write");
            replies_and_ends(&mut client, &before, way);
            server.says(&client, "connected");
            let closed =
                format!("closed after 3 requests: a request of {length} bytes is too long");
            let name = name(&client);
            drop(client);
            assert_eq!(server.line(), format!("{name} {closed}"), "{way:?}");
        }
        server.serves_a_client();
    });
}

/// `poll_loop` delivers the replies before a request that is too long, also while the client still
/// sends.
///
/// Closing with unread bytes would reset the connection, and lose undelivered replies.
#[test]
fn poll_loop_delivers_replies_before_long_request() {
    on_each_way(|server, way| {
        // Its window is small, so the replies wait at the server for a while.
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let set = client.set_recv_buffer_size(4 * 1024);
        set.expect("an option is set");
        let connected = client.connect_timeout(&server.address.into(), LIMIT);
        connected.expect("the server takes clients");
        let mut client = limited(client.into());
        server.says(&client, "connected");

        let before = request(150_000, 1);
        client.write_all(&before).expect("a write");
        let too_long = LONGEST as u32 + 1;
        client.write_all(&too_long.to_le_bytes()).expect("a write");
        client.write_all(&vec![0; 200_000]).expect("a write");
        // The server knows by now what it has read, and others are served.
        server.serves_a_client();
        replies_and_ends(&mut client, &before, way);
    });
}

/// `poll_loop` tells of clients that stop in the middle and serves others.
#[test]
fn poll_loop_reports_truncated_requests() {
    on_each_way(|server, way| {
        for size in [2, 9] {
            let mut client = server.client();
            exchange(&mut client, 4, way);
            client.write_all(&request(6, 0)[..size]).expect("a write");
            server.says(&client, "connected");
            let name = name(&client);
            drop(client);
            let expected = format!(
                "{name} closed after 1 requests: the client closed in the middle of a request \
                 ({size} bytes of it came)"
            );
            assert_eq!(server.line(), expected, "{way:?}");
        }
        let mut client = server.client();
        exchange(&mut client, 4, way);
        server.says(&client, "connected");
        let name = name(&client);
        reset(client);
        let line = server.line();
        let expected = format!("{name} closed after 1 requests: ");
        assert!(line.starts_with(&expected), "{way:?}: {line:?}");
        server.serves_a_client();
    });
}

/// `poll_loop` sends all replies after a client half closed.
#[test]
fn poll_loop_replies_after_half_close() {
    on_each_way(|server, way| {
        for (count, size) in [(0, 0), (1, 0), (300, 1_000), (2, 600_000)] {
            let requests: Vec<_> = (0..count).map(|seed| request(size, seed)).collect();
            let requests = requests.concat();
            let mut client = server.client();
            let mut writer = client.try_clone().expect("a clone");
            thread::scope(|scope| {
                scope.spawn(|| {
                    writer.write_all(&requests).expect("a write");
                    writer.shutdown(Shutdown::Write).expect("a half-close");
                });
                replies_and_ends(&mut client, &requests, way);
            });
            server.says(&client, "connected");
            server.says(&client, &format!("closed after {count} requests"));
        }
    });
}

/// `poll_loop` stops reading from a client that takes no replies and goes on once it does.
#[test]
fn poll_loop_pauses_client_not_reading() {
    // Far more than the sockets' buffers hold.
    const TOO_MUCH: usize = 64 << 20;
    let requests: Vec<_> = (0..50).map(|seed| request(1_000 + seed, seed)).collect();
    let requests = requests.concat();

    on_each_way(|server, way| {
        let mut client = server.client();
        client.set_nonblocking(true).expect("an option is set");
        let (mut sent, mut refused) = (0, 0);
        while refused < 20 {
            match client.write(&requests[sent % requests.len()..]) {
                Ok(written) => {
                    assert_ne!(written, 0);
                    sent += written;
                    refused = 0;
                    assert!(sent < TOO_MUCH, "{way:?}: it reads on, and keeps it all");
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    // Let the server take the bytes that still fit. Others are served meanwhile.
                    server.serves_a_client();
                    refused += 1;
                }
            }
        }
        #[cfg(target_os = "linux")]
        {
            let memory = server.program.memory();
            assert!(memory < 32 << 20, "{way:?}: {memory} bytes of memory");
        }

        client.set_nonblocking(false).expect("an option is set");
        let mut writer = client.try_clone().expect("a clone");
        thread::scope(|scope| {
            let rest = &requests[sent % requests.len()..];
            scope.spawn(move || {
                writer.write_all(rest).expect("a write");
                writer.shutdown(Shutdown::Write).expect("a half-close");
            });
            for _ in 0..(sent + rest.len()) / requests.len() {
                replies(&mut client, &requests, way);
            }
            replies_and_ends(&mut client, &[], way);
        });

        // Another client vanishes, with bytes unread.
        let mut client = server.client();
        let name = name(&client);
        client.set_nonblocking(true).expect("an option is set");
        while client.write(&requests).is_ok() {}
        drop(client);
        while !server.line().starts_with(&format!("{name} closed ")) {}
        server.serves_a_client();
    });
}

/// `poll_loop` serves others while one client always has more to send.
#[test]
fn poll_loop_serves_others_beside_flood() {
    let requests: Vec<_> = (0..50).map(|seed| request(1_000 + seed, seed)).collect();
    let requests = requests.concat();

    on_each_way(|server, _| {
        let client = server.client();
        let (mut reader, mut writer) = (client.try_clone().expect("a clone"), client);
        let over = AtomicBool::new(false);
        let (over, requests) = (&over, &requests);
        thread::scope(|scope| {
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    writer.write_all(requests).expect("a write");
                }
                writer.shutdown(Shutdown::Write).expect("a half-close");
            });
            scope.spawn(move || io::copy(&mut reader, &mut io::sink()).expect("the replies"));
            for _ in 0..20 {
                server.serves_a_client();
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn poll_loop_replies_to_a_hundred_clients_at_once() {
    const CLIENTS: usize = 100;
    const SIZES: [usize; 3] = [0, 700, 20_000];
    on_each_way(|server, way| {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
        for _ in 0..CLIENTS {
            let line = server.line();
            assert!(line.ends_with(" connected"), "{way:?}: {line:?}");
        }
        let mine = |number| {
            let requests = SIZES.map(|size| request(size, number));
            requests.concat()
        };
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(&mine(number)).expect("a write");
        }
        for (number, client) in clients.iter_mut().enumerate() {
            replies(client, &mine(number), way);
        }
        drop(clients);
        for _ in 0..CLIENTS {
            let line = server.line();
            assert!(
                line.ends_with(" closed after 3 requests"),
                "{way:?}: {line:?}"
            );
        }
    });
}

/// `poll_loop` goes on by itself after it had no descriptors left.
#[test]
fn poll_loop_recovers_from_emfile() {
    for way in ways() {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 24; exec \"$0\" \"$@\""]);
        limited.arg(binary("poll_loop"));
        limited.args(way.arguments());
        let mut server = Server::greeted(prepared(limited), way);
        let mut clients: Vec<_> = (0..40).map(|_| server.client()).collect();
        while !server.line().starts_with("cannot accept: ") {}
        // The first client was accepted, and is served meanwhile.
        exchange(&mut clients[0], 10, way);
        let mut last = clients.pop().expect("a client that waits in the queue");
        drop(clients);
        exchange(&mut last, 10, way);
        server.stops_on_ctrl_c();
    }
}

/// `poll_loop` stops on Ctrl-C with clients connected.
#[test]
fn poll_loop_stops_on_ctrl_c() {
    for way in ways() {
        let server = Server::start(way);
        let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
        for client in &mut clients {
            exchange(client, 10, way);
        }
        server.stops_on_ctrl_c();
        for mut client in clients {
            let gone = client.read(&mut [0]);
            assert!(
                matches!(&gone, Ok(0)) || gone.is_err_and(|error| !is_timeout(&error)),
                "a client still waits for a server that is gone"
            );
        }
    }
}

/// The server handles Ctrl-C from its first line on.
#[test]
fn poll_loop_stops_on_ctrl_c_at_once() {
    for _ in 0..20 {
        let way = ways()[0];
        Server::start(way).stops_on_ctrl_c();
    }
}

#[test]
fn poll_loop_goes_on_when_nobody_reads_its_output() {
    for way in ways() {
        let command = with_arguments("poll_loop", way.arguments());
        let mut program = Program::heard_for(1, command);
        let address = address(&program.line(), &way.told());
        assert_eq!(program.next_line(), None);
        for _ in 0..3 {
            exchange(&mut connect(address), 10, way);
        }
        program.interrupt();
        program.ended_well();
    }
}

/// A mode that the backend lacks gets one line that says so.
#[test]
fn absent_mode_says_so() {
    for backend in Backend::available() {
        for mode in MODES {
            if !has(backend, mode) {
                let lacks = format!("backend {backend} has no {mode:?} mode");
                let arguments = Way { backend, mode }.arguments();
                refused(with_arguments("poll_loop", arguments), &[&lacks]);
            }
        }
    }
}

/// A wrong argument of `poll_loop` gets one line that says what it should have been.
#[test]
fn wrong_argument_of_poll_loop_says_format() {
    const USAGE: &str = "usage: poll_loop [ADDR] [--backend NAMES] [--mode level|oneshot|edge]";
    const NAME: &str = "poll_loop";
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address").to_string();

    wrong(NAME, ["--fast"], &["\"--fast\"", USAGE]);
    wrong(NAME, ["--backend"], &["needs a name", USAGE]);
    wrong(NAME, ["--backend", "fax"], &["\"fax\"", "available: "]);
    wrong(NAME, ["--backend", "a\nb"], &["\"a\\nb\"", "available: "]);
    wrong(NAME, ["--mode"], &["needs a mode", USAGE]);
    wrong(NAME, ["--mode", "sharp"], &["\"sharp\"", USAGE]);
    wrong(NAME, ["--mode", "a\nb"], &["\"a\\nb\"", USAGE]);
    wrong(
        NAME,
        ["127.0.0.1:0", "127.0.0.2:0"],
        &["one address", USAGE],
    );
    for address in ["nonsense", "127.0.0.1", "127.0.0.1:99999", ""] {
        fails(NAME, [address], &["cannot listen on "]);
    }
    fails(NAME, ["a\nb"], &["cannot listen on a\\nb: "]);
    fails(NAME, [&taken], &[&taken, "Address already in use"]);
    let bytes = OsString::from_vec(b"\xff:\xff".to_vec());
    fails(NAME, [bytes], &["cannot listen on "]);
    let bytes = OsString::from_vec(b"--\xff".to_vec());
    wrong(NAME, [bytes], &["unknown option", USAGE]);
}

// ----------------------------------------------------------------------------- the ways to run it

const MODES: [Mode; 3] = [Mode::Level, Mode::OneShot, Mode::Edge];

/// A backend, in one of its modes.
#[derive(Clone, Copy, Debug)]
struct Way {
    backend: Backend,
    mode: Mode,
}

fn ways() -> Vec<Way> {
    let all = Backend::available().into_iter().flat_map(|backend| {
        let modes = MODES.into_iter().filter(move |mode| has(backend, *mode));
        modes.map(move |mode| Way { backend, mode })
    });
    all.collect()
}

fn poller(backend: Backend) -> Poller {
    Poller::new(backend).expect("an available backend can be opened")
}

fn has(backend: Backend, mode: Mode) -> bool {
    let capabilities = poller(backend).capabilities();
    match mode {
        Mode::Level => capabilities.level,
        Mode::OneShot => capabilities.one_shot,
        Mode::Edge => capabilities.edge,
        other => panic!("is there a word for {other:?}?"),
    }
}

impl Way {
    fn arguments(self) -> [&'static str; 5] {
        let mode = match self.mode {
            Mode::OneShot => "oneshot",
            Mode::Edge => "edge",
            _ => "level",
        };
        let backend = self.backend.name();
        ["127.0.0.1:0", "--backend", backend, "--mode", mode]
    }

    /// The text that the server prints about its configuration.
    fn told(self) -> String {
        format!("backend {}, {:?}", self.backend, self.mode)
    }
}

// ---------------------------------------------------------------------------------- its protocol

/// A length and that number of bytes; the reply repeats them.
fn request(size: usize, seed: usize) -> Vec<u8> {
    let length = u32::try_from(size).expect("it fits");
    let mut request = length.to_le_bytes().to_vec();
    request.extend(pattern(size, seed));
    request
}

fn exchange(client: &mut TcpStream, size: usize, way: Way) {
    let request = request(size, size);
    client.write_all(&request).expect("a write");
    replies(client, &request, way);
}

fn replies(client: &mut TcpStream, expected: &[u8], way: Way) {
    let mut back = vec![0; expected.len()];
    let read = client.read_exact(&mut back);
    read.unwrap_or_else(|error| panic!("{way:?}: no reply: {error}"));
    assert!(back == expected, "{way:?}: other bytes came back");
}

/// Asserts that these replies come, and then the end.
fn replies_and_ends(client: &mut TcpStream, expected: &[u8], way: Way) {
    let mut back = Vec::new();
    let read = client.read_to_end(&mut back);
    let count = back.len();
    read.unwrap_or_else(|error| panic!("{way:?}: {error} after {count} bytes"));
    assert_eq!(count, expected.len(), "{way:?}: so many bytes came back");
    assert!(back == expected, "{way:?}: other bytes came back");
}

/// Runs `rule` with a server of each way, which stops afterwards.
fn on_each_way(rule: impl Fn(&mut Server, Way)) {
    for way in ways() {
        let mut server = Server::start(way);
        rule(&mut server, way);
        server.stops_on_ctrl_c();
    }
}

/// The server, and its address.
struct Server {
    program: Program,
    address: SocketAddr,
    way: Way,
}

impl Server {
    fn start(way: Way) -> Server {
        Server::greeted(with_arguments("poll_loop", way.arguments()), way)
    }

    /// Waits until it prints its address, backend and mode.
    fn greeted(command: Command, way: Way) -> Server {
        let mut program = Program::start(command);
        let address = address(&program.line(), &way.told());
        Server {
            program,
            address,
            way,
        }
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

    fn serves_a_client(&self) {
        exchange(&mut self.client(), 5, self.way);
    }

    fn stops_on_ctrl_c(self) {
        self.program.stops_on_ctrl_c();
    }
}

//! hickory-resolver as a runtime's own resolver, with the test's own name server.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use polder::net::{TcpStream, resolve};
use polder::{Backend, Runtime};
use polder_hickory::{Provider, lookup};

use crate::within;

/// How long hickory waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

const A: u16 = 1;
const AAAA: u16 = 28;

/// Returns the name server's record.
fn known(name: &str, kind: u16) -> Option<Vec<u8>> {
    match (name, kind) {
        ("server.test" | "long.test", A) => Some(Ipv4Addr::LOCALHOST.octets().into()),
        ("six.test", AAAA) => Some(Ipv6Addr::LOCALHOST.octets().into()),
        ("server.test" | "long.test" | "six.test", _) => Some(Vec::new()),
        _ => None,
    }
}

/// Returns an answer as in RFC 1035, section 4. The one for `long.test` is truncated over UDP.
fn answer(question: &[u8], by_udp: bool) -> Vec<u8> {
    let (mut name, mut at) = (String::new(), 12);
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        name += &String::from_utf8_lossy(&question[at + 1..end]);
        name.push('.');
        at = end;
    }
    let name = name.trim_end_matches('.').to_lowercase();
    let end = at + 5;
    let kind = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let found = known(&name, kind);
    let is_cut = by_udp && name == "long.test";
    let data = found.clone().filter(|data| !data.is_empty() && !is_cut);

    let mut bytes = question[..2].to_vec();
    // A response, from a server with recursion available; the name is unknown if nothing is found.
    bytes.push(0x81 | if is_cut { 2 } else { 0 });
    bytes.push(0x80 | if found.is_none() { 3 } else { 0 });
    bytes.extend([0, 1, 0, u8::from(data.is_some()), 0, 0, 0, 0]);
    bytes.extend(&question[12..end]);
    if let Some(data) = data {
        bytes.extend([0xc0, 12]); // The name of the question.
        bytes.extend(&question[at + 1..end]);
        bytes.extend([0, 0, 0, 60, 0, data.len() as u8]);
        bytes.extend(data);
    }
    bytes
}

/// The number of queries, by UDP and by TCP.
#[derive(Default)]
struct Asked([AtomicUsize; 2]);

/// Starts a name server on threads, at one port for both protocols, until the process exits.
fn name_server() -> (SocketAddr, Arc<Asked>) {
    let (udp, tcp) = loop {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = tcp.local_addr().expect("it has one");
        // Another process may have this UDP port.
        if let Ok(udp) = UdpSocket::bind(address) {
            break (udp, tcp);
        }
    };
    let address = tcp.local_addr().expect("it has one");
    let asked = Arc::new(Asked::default());
    let count = asked.clone();
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, peer)) = udp.recv_from(&mut question) {
            count.0[0].fetch_add(1, SeqCst);
            let _ = udp.send_to(&answer(&question[..length], true), peer);
        }
    });
    let count = asked.clone();
    thread::spawn(move || {
        for stream in tcp.incoming() {
            let (mut stream, count) = (stream.expect("a client"), count.clone());
            thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut question = vec![0; u16::from_be_bytes(length).into()];
                    stream.read_exact(&mut question).expect("a question");
                    count.0[1].fetch_add(1, SeqCst);
                    let answer = answer(&question, false);
                    let length = u16::try_from(answer.len()).expect("it is short");
                    let answer = [&length.to_be_bytes(), &answer[..]].concat();
                    stream.write_all(&answer).expect("the client reads");
                }
            });
        }
    });
    (address, asked)
}

fn runtime(backend: Backend, workers: usize, server: SocketAddr) -> Runtime {
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = server.port();
    }
    let server = NameServerConfig::new(server.ip(), true, connections.into());
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    let mut dns = Resolver::builder_with_config(config, Provider);
    dns.options_mut().timeout = PATIENCE;
    let dns = dns.build().expect("a resolver");
    let builder = Runtime::builder().backend(backend).workers(workers);
    let runtime = builder.resolver(lookup(dns));
    runtime.build().expect("a runtime")
}

#[test]
fn hickory_looks_up_the_names_of_a_runtime() {
    for backend in Backend::available() {
        for workers in [1, 2] {
            within(format!("on {backend} with {workers}"), move || {
                looks_up(backend, workers);
            });
        }
    }
}

/// A name server that does not answer is an error of its kind.
#[test]
fn silent_name_server_is_typed_error() {
    within("a question".into(), || {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let server = silent.local_addr().expect("it has one");
        let runtime = runtime(Backend::available()[0], 1, server);
        let error = runtime.block_on(resolve("server.test:1"));
        let error = error.expect_err("there is no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    });
}

fn looks_up(backend: Backend, workers: usize) {
    let (server, asked) = name_server();
    let runtime = runtime(backend, workers, server);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    runtime.block_on(async {
        let names = (0..50).map(|n| {
            polder::spawn(async move {
                let name = match n % 2 {
                    0 => "server.test",
                    _ => "SERVER.test",
                };
                TcpStream::connect((name, port)).await.map(drop)
            })
        });
        for connect in names.collect::<Vec<_>>() {
            connect.await.expect("it is known");
        }
        assert_eq!(asked.0[1].load(SeqCst), 0);

        // A truncated answer is asked for again, by TCP.
        let found = resolve("long.test:1").await.expect("it is known");
        assert_eq!(found, [SocketAddr::from((Ipv4Addr::LOCALHOST, 1))]);
        assert!(asked.0[1].load(SeqCst) > 0);
        let found = resolve("six.test:1").await.expect("it is known");
        assert_eq!(found[0].ip(), IpAddr::V6(Ipv6Addr::LOCALHOST));

        let error = resolve("nobody.test:1").await.expect_err("it is unknown");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("\"nobody.test\""), "{error}");
    });
}

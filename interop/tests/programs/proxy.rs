//! `proxy`: curl through it, 1 GB, and ends that are passed on.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use polder::Backend;
use socket2::SockRef;

use crate::support::*;

fn start(to: impl ToString, backend: Backend, timeout: &str) -> Server {
    let to = to.to_string();
    let arguments = ["--to", &to, "--timeout-ms", timeout];
    Server::start(env!("CARGO_BIN_EXE_proxy"), backend, &arguments)
}

/// The test's own server behind the proxy: returns the client, and the connection that the server
/// got.
fn connected(backend: Backend, timeout: &str) -> (Server, TcpStream, TcpStream) {
    connected_with(backend, &["--timeout-ms", timeout])
}

fn connected_with(backend: Backend, options: &[&str]) -> (Server, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address").to_string();
    let arguments = [&["--to", &to], options].concat();
    let proxy = Server::start(env!("CARGO_BIN_EXE_proxy"), backend, &arguments);
    let client = proxy.connect();
    let (server, _) = listener.accept().expect("the proxy connects");
    server.set_read_timeout(Some(LIMIT)).expect("a limit");
    server.set_write_timeout(Some(LIMIT)).expect("a limit");
    (proxy, client, server)
}

/// Curl gets 1 GB through it and its memory does not grow.
#[test]
fn curl_1_gb_memory_does_not_grow() {
    for backend in backends() {
        let Some(mut curl) = curl() else { return };
        let http = Server::start(env!("CARGO_BIN_EXE_http"), backend, &[]);
        let proxy = start(http.address, backend, "10000");
        curl.args(["--output", "/dev/null", "--write-out", "%{size_download}"]);
        curl.arg(proxy.url("/bytes/1000000000"));
        assert_eq!(run(curl, "").well(), "1000000000");
        proxy.stayed_small();
        #[cfg(target_os = "linux")]
        println!("{backend}: {} bytes of memory", proxy.memory());
        proxy.stops();
        http.stops();
    }
}

#[test]
fn curl_both_directions_with_and_without_tls() {
    const SIZE: u64 = 10_000_000;
    for backend in backends() {
        let Some(mut plain) = curl() else { return };
        let http = Server::start(env!("CARGO_BIN_EXE_http"), backend, &[]);
        let proxy = start(http.address, backend, "10000");
        plain.arg(proxy.url("/echo"));
        let (https, certificate) = super::https::start("proxy", backend, &[]);
        let tls_proxy = start(https.address, backend, "10000");
        let mut tls = curl().expect("it was there");
        tls.args(["--cacert", &certificate]);
        tls.arg(format!("https://{}/echo", tls_proxy.address));
        for mut curl in [plain, tls] {
            curl.args(["--upload-file", "-", "--request", "POST"]);
            let write = |stdin| write_pattern(stdin, SIZE).expect("curl takes it");
            let (end, err, length) = piped(curl, write, pattern_length);
            assert!(end.success(), "{end}: {err}");
            assert_eq!(length, SIZE);
        }
        for server in [proxy, tls_proxy, http, https] {
            server.stops();
        }
    }
}

/// An end is passed on and the other direction goes on.
#[test]
fn half_close_passed_on() {
    const SIZE: u64 = 10_000_000;
    for backend in backends() {
        for client_first in [true, false] {
            let (proxy, client, server) = connected(backend, "10000");
            let (mut first, mut last) = if client_first {
                (client, server)
            } else {
                (server, client)
            };
            first.write_all(b"that is all").expect("it takes this");
            first.shutdown(Shutdown::Write).expect("half an end");
            let mut said = String::new();
            last.read_to_string(&mut said).expect("an end");
            assert_eq!(said, "that is all");

            let writer = thread::spawn(move || write_pattern(last, SIZE));
            assert_eq!(pattern_length(first), SIZE);
            writer.join().expect("a thread").expect("it takes all");
            let expected = if client_first {
                format!("11 bytes up, {SIZE} down")
            } else {
                format!("{SIZE} bytes up, 11 down")
            };
            proxy.says(&expected);
            proxy.stops();
        }
    }
}

/// A client is let go when there is no server behind.
#[test]
fn client_released_without_backend() {
    for backend in backends() {
        let (_port, address) = nobody();
        let proxy = start(address, backend, "10000");
        // It may be reset before it looks like a connection.
        if let Ok(client) = TcpStream::connect(proxy.address) {
            client.set_read_timeout(Some(LIMIT)).expect("a limit");
            cut_off(client, Instant::now());
        }
        proxy.says("refused");
        proxy.stops();
    }
}

/// A side that takes nothing ends the connection for both.
#[test]
fn stalled_side_ends_both() {
    for backend in backends() {
        let (proxy, client, server) = connected(backend, "1000");
        // Neither reads; only one writes. More than all the buffers in between can hold.
        let writer = thread::spawn(move || write_pattern(client, 1_000_000_000));
        proxy.says("it has taken nothing for 1s");
        writer
            .join()
            .expect("a thread")
            .expect_err("it was cut off");
        drop(server);
        proxy.stops();
    }
}

/// Asserts that reading ends with a reset.
fn is_reset(mut stream: TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("no reset but {other:?} after {} bytes", rest.len()),
    }
}

/// A truncated answer must not look complete.
#[test]
fn a_reset_is_passed_on_as_a_reset() {
    for backend in backends() {
        for client_first in [true, false] {
            let (proxy, client, server) = connected(backend, "10000");
            let (mut first, mut last) = if client_first {
                (client, server)
            } else {
                (server, client)
            };
            first.write_all(b"half a").expect("it takes this");
            let mut half = [0; 6];
            last.read_exact(&mut half).expect("it comes");
            let linger = SockRef::from(&first).set_linger(Some(Duration::ZERO));
            linger.expect("an option is set");
            drop(first);
            is_reset(last);
            proxy.says("reset");
            proxy.stops();
        }
    }
}

/// A reset is passed on as one after half an end too.
#[test]
fn reset_passed_on_after_half_close() {
    for backend in backends() {
        let (proxy, mut client, server) = connected(backend, "10000");
        server.shutdown(Shutdown::Write).expect("half an end");
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
        client.write_all(b"half a").expect("it takes this");
        let mut half = [0; 6];
        (&server).read_exact(&mut half).expect("it comes");
        let linger = SockRef::from(&client).set_linger(Some(Duration::ZERO));
        linger.expect("an option is set");
        drop(client);
        is_reset(server);
        proxy.says("reset");
        proxy.stops();
    }
}

/// On a timeout, or when it is stopped, the proxy disconnects in the middle of a transfer.
#[test]
fn what_the_proxy_itself_cuts_off_is_reset() {
    for backend in backends() {
        let (proxy, mut client, mut server) = connected(backend, "10000");
        client.write_all(b"half a").expect("it takes this");
        server.read_exact(&mut [0; 6]).expect("it comes");
        proxy.stops();
        is_reset(client);
        is_reset(server);
    }
}

#[test]
fn two_sides_that_are_both_silent_are_cut_off() {
    const IDLE: Duration = Duration::from_millis(500);
    for backend in backends() {
        let options = ["--timeout-ms", "60000", "--idle-ms", "500"];
        let (proxy, mut client, mut server) = connected_with(backend, &options);
        // Traffic of one side restarts the idle timeout of the other.
        for _ in 0..5 {
            client.write_all(b".").expect("it takes this");
            server.read_exact(&mut [0]).expect("it comes");
            thread::sleep(IDLE / 4);
        }
        server.write_all(b".").expect("it takes this");
        client.read_exact(&mut [0]).expect("it comes");
        let start = Instant::now();
        // A little less: the proxy has seen the last byte a little earlier than the test.
        let after = cut_off(client, start);
        assert!(after > IDLE / 2, "on {backend}: {after:?}");
        is_reset(server);
        proxy.says("nothing has passed for 500ms");
        proxy.stops();
    }
}

/// After half an end the other side may be silent for the timeout only.
///
/// A side that has closed its connection looks the same as one that waits for an answer.
#[test]
fn half_close_silence_bounded_by_timeout() {
    for backend in backends() {
        for client_first in [true, false] {
            let options = ["--timeout-ms", "500", "--idle-ms", "600000"];
            let (proxy, client, server) = connected_with(backend, &options);
            let (first, mut last) = if client_first {
                (client, server)
            } else {
                (server, client)
            };
            first.shutdown(Shutdown::Write).expect("half an end");
            assert_eq!(last.read(&mut [0]).expect("the end"), 0);
            is_reset(first);
            proxy.says("nothing has passed for 500ms");
            proxy.stops();
        }
    }
}

//! `https`: curl, openssl, and clients that stall.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use polder::Backend;

use crate::support::*;

/// Starts the program; returns its certificate's path too. `test` distinguishes one test's file
/// from another's.
pub fn start(test: &str, backend: Backend, arguments: &[&str]) -> (Server, String) {
    let file = file(test, backend);
    let file = file.to_str().expect("a path of letters").to_owned();
    let mut all = vec!["--certificate", &file];
    all.extend(arguments);
    let server = Server::start(env!("CARGO_BIN_EXE_https"), backend, &all);
    (server, file)
}

fn url(server: &Server, path: &str) -> String {
    format!("https://{}{path}", server.address)
}

/// Curl trusts the certificate when it is told to and only then.
#[test]
fn curl_trusts_certificate_only_when_told() {
    for backend in backends() {
        let Some(mut known) = curl() else { return };
        let (https, certificate) = start("curl", backend, &[]);
        known.args(["--cacert", &certificate, "--write-out", "%{num_connects}\n"]);
        known.args([url(&https, "/"), url(&https, "/")]);
        let expected = "hello from polder\n1\nhello from polder\n0\n";
        assert_eq!(run(known, "").well(), expected);

        let mut unknown = curl().expect("it was there");
        unknown.arg(url(&https, "/"));
        let said = run(unknown, "");
        // "Peer certificate cannot be authenticated with known CA certificates."
        assert_eq!(said.end.code(), Some(60), "{said:#?}");
        https.stops();
    }
}

#[test]
fn curl_gets_100_mb_over_tls_byte_for_byte() {
    for backend in backends() {
        let Some(mut curl) = curl() else { return };
        let (https, certificate) = start("large", backend, &[]);
        curl.args(["--cacert", &certificate, &url(&https, "/bytes/100000000")]);
        let (end, err, length) = piped(curl, drop, pattern_length);
        assert!(end.success(), "{end}: {err}");
        assert_eq!(length, 100_000_000);
        https.stayed_small();
        https.stops();
    }
}

/// In HTTP/1.0 a body of unknown length ends with the connection. Without a TLS close before that,
/// it may have been truncated, and curl reports so.
#[test]
fn the_end_of_the_connection_is_told_by_tls_first() {
    for backend in backends() {
        let Some(mut curl) = curl() else { return };
        let (https, certificate) = start("end", backend, &[]);
        curl.args(["--cacert", &certificate, "--http1.0", "--data", "and back"]);
        curl.arg(url(&https, "/echo"));
        assert_eq!(run(curl, "").well(), "and back");
        https.stops();
    }
}

#[test]
fn openssl_verifies_it_with_tls_1_2_and_1_3() {
    for backend in backends() {
        let (https, certificate) = start("openssl", backend, &[]);
        for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
            let Some(mut openssl) = client("openssl") else {
                return;
            };
            openssl.args(["s_client", version, "-ign_eof", "-verify_return_error"]);
            openssl.args(["-CAfile", &certificate, "-alpn", "http/1.1"]);
            openssl.args(["-connect", &https.address.to_string()]);
            let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let said = run(openssl, request).well();
            let parts = [
                "hello from polder",
                "Verify return code: 0 (ok)",
                "ALPN protocol: http/1.1",
                name,
            ];
            for part in parts {
                assert!(said.contains(part), "no {part:?} in {said}");
            }
        }
        https.stops();
    }
}

/// A client that stalls in the handshake is disconnected; one that does not speak TLS is refused.
#[test]
fn stalled_handshake_and_no_tls_cut_off() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    for backend in backends() {
        let (https, _) = start("stall", backend, &["--timeout-ms", "1000"]);
        // A record of 512 bytes is announced, but only two of them are sent.
        for greeting in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
            let start = Instant::now();
            let mut client = https.connect();
            client.write_all(greeting).expect("it takes this");
            let after = cut_off(client, start);
            assert!(after >= TIMEOUT, "on {backend}: {after:?}");
        }
        let mut plain = https.connect();
        plain
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("it takes this");
        let mut alert = Vec::new();
        // A reset may follow.
        let _ = plain.read_to_end(&mut alert);
        assert!(alert.is_empty() || alert[0] == 0x15, "{alert:?}");
        https.says("InvalidContentType");
        https.stops();
    }
}

/// SIGHUP brings another certificate and no connection ends.
///
/// A client with the old certificate continues: it keeps the connection that it has verified.
#[test]
fn sighup_replaces_certificate() {
    for backend in backends() {
        let (https, certificate) = start("hup", backend, &[]);
        let old = format!("{certificate}-old");
        std::fs::copy(&certificate, &old).expect("it is there");
        let Some(mut openssl) = client("openssl") else {
            return;
        };
        openssl.args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-CAfile",
            &old,
        ]);
        openssl.args(["-connect", &https.address.to_string()]);
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let (asked, answered) = std::sync::mpsc::channel();
        let (reloaded, wait) = std::sync::mpsc::channel::<()>();
        let write = move |mut stdin: std::process::ChildStdin| {
            stdin.write_all(request.as_bytes()).expect("a request");
            // The first answer has come, and the certificate has been replaced.
            wait.recv().expect("it is reloaded");
            let last = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stdin.write_all(last.as_bytes()).expect("another request");
        };
        let read = move |mut stdout: std::process::ChildStdout| {
            let mut said = Vec::new();
            while !said.ends_with(b"hello from polder\n") {
                let mut byte = [0];
                stdout.read_exact(&mut byte).expect("an answer");
                said.extend(byte);
            }
            asked.send(()).expect("the test goes on");
            stdout.read_to_end(&mut said).expect("another answer");
            String::from_utf8_lossy(&said).into_owned()
        };
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| piped(openssl, write, read));
            answered.recv_timeout(LIMIT).expect("it is answered");
            https.hang_up();
            https.says("the certificate is another one");
            let mut curl = curl().expect("it comes with openssl");
            curl.args(["--cacert", &certificate, &url(&https, "/")]);
            assert_eq!(run(curl, "").well(), "hello from polder\n");
            let mut curl = crate::support::curl().expect("it was there");
            curl.args(["--cacert", &old, &url(&https, "/")]);
            let said = run(curl, "");
            assert_eq!(said.end.code(), Some(60), "{said:#?}");
            reloaded.send(()).expect("it waits");
            let (end, err, said) = kept.join().expect("a thread");
            assert!(end.success(), "{end}: {err}");
            assert_eq!(said.matches("hello from polder\n").count(), 2, "{said}");
        });
        https.stops();
    }
}

/// Files that are no use leave the old certificate.
#[test]
fn useless_files_keep_old_certificate() {
    for backend in backends() {
        let Some(mut openssl) = client("openssl") else {
            return;
        };
        let name = |what: &str| {
            let file = file(&format!("own-{what}"), backend);
            file.to_str().expect("a path of letters").to_owned()
        };
        let (certificate, key) = (name("certificate"), name("key"));
        openssl.args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ]);
        openssl.args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ]);
        openssl.args(["-keyout", &key, "-out", &certificate]);
        run(openssl, "").well();
        let arguments = ["--certificate", &certificate, "--key", &key];
        let https = Server::start(env!("CARGO_BIN_EXE_https"), backend, &arguments);
        let works = || {
            let mut curl = curl().expect("it comes with openssl");
            curl.args(["--cacert", &certificate, &url(&https, "/")]);
            assert_eq!(run(curl, "").well(), "hello from polder\n");
        };
        works();
        let good = std::fs::read(&key).expect("it is there");
        std::fs::write(&key, "nothing\n").expect("it can be written");
        https.hang_up();
        let told = https.says("the certificate stays: ");
        assert!(told.contains(&key), "{told}");
        works();
        std::fs::write(&key, good).expect("it can be written");
        https.hang_up();
        https.says("the certificate is another one");
        works();
        https.stops();
    }
}

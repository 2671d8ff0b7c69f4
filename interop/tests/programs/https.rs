//! `https`: curl, openssl, and clients that stall.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use polder::Backend;

use crate::support::*;

/// The program, and the file with its certificate. `test` tells one test's file from another's.
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

#[test]
fn curl_trusts_the_certificate_when_it_is_told_to_and_only_then() {
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

/// In HTTP/1.0 a body of unknown length ends where the connection does. Where TLS is not told so
/// first, it may have been cut, and curl says that.
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

#[test]
fn who_stalls_in_the_greeting_is_cut_off_and_who_speaks_no_tls_is_refused() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    for backend in backends() {
        let (https, _) = start("stall", backend, &["--timeout-ms", "1000"]);
        // A record of 512 bytes is announced, of which two come.
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
        // It may be followed by a reset.
        let _ = plain.read_to_end(&mut alert);
        assert!(alert.is_empty() || alert[0] == 0x15, "{alert:?}");
        https.says("InvalidContentType");
        https.stops();
    }
}

//! `hello`: the program that a newcomer copies.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use polder::Backend;

use crate::support::*;

/// Curl gets JSON over HTTPS and HTTP/2, and Ctrl-C is a graceful end.
#[test]
fn curl_json_over_https_graceful_ctrl_c() {
    for backend in Backend::available() {
        let Some(mut curl) = curl() else { return };
        let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let names = ["localhost".into(), "127.0.0.1".into()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let [certificate, key] =
            ["certificate", "key"].map(|what| folder.join(format!("hello-{backend}.{what}")));
        std::fs::write(&certificate, made.cert.pem()).expect("a file");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");

        let mut command = Command::new(env!("CARGO_BIN_EXE_hello"));
        command.arg("127.0.0.1:0").args([&certificate, &key]);
        command.env("POLDER_BACKEND", backend.name());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let stdout = process.0.stdout.take().expect("it is piped");
        let mut greeting = String::new();
        let read = BufReader::new(stdout).read_line(&mut greeting);
        read.expect("it says where it listens");
        let url = greeting.trim_end().strip_prefix("listening on ");
        let url = url.unwrap_or_else(|| panic!("no address: {greeting:?}"));

        let url = format!("{url}/hello/polder");
        curl.arg("--cacert").arg(&certificate).args([&url, &url]);
        curl.args(["--write-out", " by HTTP/%{http_version}\n"]);
        let said = run(curl, "").well();
        assert_eq!(said.lines().count(), 2, "on {backend}: {said}");
        for line in said.lines() {
            let greeting = r#"{"hello":"polder","from":"127.0.0.1:"#;
            assert!(line.starts_with(greeting), "on {backend}: {said}");
            assert!(line.ends_with(r#""} by HTTP/2"#), "on {backend}: {said}");
        }
        process.signal(libc::SIGINT);
        assert!(process.end().success(), "on {backend}");
    }
}

#[test]
fn arguments_that_are_wrong_are_told() {
    let hello = || Command::new(env!("CARGO_BIN_EXE_hello"));
    let said = run(hello(), "");
    assert_eq!(said.end.code(), Some(2), "{said:#?}");
    assert!(said.err.starts_with("usage: hello "), "{said:#?}");
    let mut missing = hello();
    missing.args(["127.0.0.1:0", "/nonexistent", "/nonexistent"]);
    let said = run(missing, "");
    assert_eq!(said.end.code(), Some(1), "{said:#?}");
    assert_eq!(said.err.lines().count(), 1, "{said:#?}");
}

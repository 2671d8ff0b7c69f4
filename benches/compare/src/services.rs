//! The servers that measurements start, besides those of `echo`: `compare serve-http PROGRAM
//! WORKERS`, and so on. The number is that of workers, or what the server says.

use std::io;
use std::process::ExitCode;

use crate::echo::serve::{Never, end_with_input};
use crate::{http, proxy, redis, udp};

type Serve = fn(program: &str, number: usize) -> io::Result<Never>;

const SERVICES: [(&str, Serve); 5] = [
    ("serve-http", http::serve::plain),
    ("serve-https", http::serve::encrypted),
    ("serve-redis", redis::serve::serve),
    ("serve-proxy", proxy::serve),
    ("serve-udp", udp::serve),
];

fn find(command: &str) -> Option<Serve> {
    let found = SERVICES.iter().find(|(name, _)| *name == command);
    found.map(|(_, serve)| *serve)
}

pub fn is_one(command: &str) -> bool {
    find(command).is_some()
}

/// Serves until the standard input ends.
pub fn main(command: &str, program: &str, number: usize) -> ExitCode {
    end_with_input();
    let serve = find(command).expect("it was looked for before");
    let Err(error) = serve(program, number);
    println!("skipped {error}");
    ExitCode::SUCCESS
}

//! The echo servers, one file per runtime: `compare serve PROGRAM BUFFER`.
//!
//! Each listens on a free port of 127.0.0.1, prints `port N`, and echoes its input, with a task and
//! a buffer of the given size per connection. Nagle is off. It serves until its standard input
//! ends: so it cannot outlive the process that holds the other end, however that process ends. A
//! program that cannot run here prints `skipped WHY`.

mod compio;
mod glommio;
mod monoio;
mod polder;
mod raw;
mod smol;
mod tokio;

use std::io::{self, Read};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ::compio::driver::DriverType;

use crate::native;

/// How long the programs called `…-busy` poll for events before they sleep.
const BUSY: Duration = Duration::from_micros(50);

/// Serves, and ends the process when the standard input ends.
pub fn main(program: &str, buffer: usize) -> ExitCode {
    if let Some(name) = native::NAMES.iter().find(|&&name| name == program) {
        // The native program watches the standard input itself.
        return native::become_it(name, &["serve", &buffer.to_string()]);
    }
    end_with_input();
    let Err(error) = serve(program, buffer);
    println!("skipped {error}");
    ExitCode::SUCCESS
}

/// Ends the process when its standard input ends.
pub fn end_with_input() {
    thread::spawn(|| {
        // Nothing is ever written to it.
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// The result of a function that never returns.
pub enum Never {}

fn serve(program: &str, buffer: usize) -> io::Result<Never> {
    match program {
        "raw" => raw::shared(buffer, None),
        "raw-own" => raw::own(buffer, None),
        "raw-busy" => raw::shared(buffer, Some(BUSY)),
        "tokio" => tokio::current_thread(buffer),
        "tokio-mt1" => tokio::multi_thread(buffer, 1),
        "tokio-mt2" => tokio::multi_thread(buffer, 2),
        "tokio-local2" => tokio::local(buffer, 2),
        "smol" => smol::serve(buffer),
        "monoio-legacy" => monoio::legacy(buffer),
        "monoio-uring" => monoio::uring(buffer),
        "compio-poll" => compio::serve(buffer, DriverType::Poll),
        "compio-uring" => compio::serve(buffer, DriverType::IoUring),
        "glommio" => glommio::serve(buffer),
        "polder-mt2" => polder::multi_thread(buffer, 2),
        "polder-local2" => polder::local(buffer, 2),
        _ => match program.strip_prefix("polder-") {
            Some(backend) => polder::serve(backend, buffer),
            None => Err(io::Error::other("there is no such server")),
        },
    }
}

/// Prints the port, for the load generator.
pub fn announce(address: io::Result<SocketAddr>) -> io::Result<()> {
    println!("port {}", address?.port());
    Ok(())
}

/// The address on which all servers listen.
pub const ANYWHERE: &str = "127.0.0.1:0";

//! The echo servers, one file per runtime: `compare serve PROGRAM BUFFER`.
//!
//! Each listens on a free port of 127.0.0.1, prints `port N`, and echoes its input, with a task and
//! a buffer of the given size per connection. Nagle is off. It serves until its standard input
//! ends: so it cannot outlive the process that holds the other end, however that process ends. For
//! each line of input it prints how much it has allocated. A program that cannot run here prints
//! `skipped WHY`.

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

/// Ends the process when its standard input ends. Until then, answers each line of it with the
/// bytes that are allocated.
pub fn end_with_input() {
    thread::spawn(|| {
        let mut byte = [0];
        while let Ok(1) = io::stdin().read(&mut byte) {
            println!("allocated {}", allocated());
        }
        std::process::exit(0);
    });
}

/// Returns the bytes in use, as malloc counts them: in its arenas, and in mappings of their own.
#[cfg(target_env = "gnu")]
fn allocated() -> usize {
    // SAFETY: it takes nothing, and returns numbers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Other C libraries do not say.
#[cfg(not(target_env = "gnu"))]
fn allocated() -> &'static str {
    "what this C library does not say"
}

/// The result of a function that never returns.
pub enum Never {}

fn serve(program: &str, buffer: usize) -> io::Result<Never> {
    match program {
        "raw" => raw::shared(buffer, None),
        "raw-own" => raw::own(buffer, None),
        "raw-busy" => raw::shared(buffer, Some(BUSY)),
        "tokio" => tokio::current_thread(buffer),
        "tokio-local2" => tokio::local(buffer, 2),
        "smol" => smol::local(buffer),
        "monoio-legacy" => monoio::legacy(buffer),
        "monoio-uring" => monoio::uring(buffer),
        "compio-poll" => compio::serve(buffer, DriverType::Poll),
        "compio-uring" => compio::serve(buffer, DriverType::IoUring),
        "glommio" => glommio::serve(buffer),
        "polder-local2" => polder::local(buffer, 2),
        _ => match (program.split_once("-mt"), program.strip_prefix("polder-")) {
            (Some((runtime, workers)), _) => {
                let workers = workers.parse().map_err(io::Error::other)?;
                match runtime {
                    "polder" => polder::multi_thread(buffer, workers),
                    "tokio" => tokio::multi_thread(buffer, workers),
                    "smol" => smol::multi_thread(buffer, workers),
                    _ => unknown(),
                }
            }
            (None, Some(backend)) => polder::serve(backend, buffer),
            (None, None) => unknown(),
        },
    }
}

/// Returns the error for an unknown program.
pub fn unknown() -> io::Result<Never> {
    Err(io::Error::other("there is no such server"))
}

/// Prints the port, for the load generator.
pub fn announce(address: io::Result<SocketAddr>) -> io::Result<()> {
    println!("port {}", address?.port());
    Ok(())
}

/// The address on which all servers listen.
pub const ANYWHERE: &str = "127.0.0.1:0";

//! Fault injection: what happens when the kernel refuses a system call.
//!
//! `cargo test` runs the [`subject`], a program that uses each feature once, on each backend,
//! without faults. `ci/faults.sh` runs the [`matrix`]: the subject repeatedly under strace, which
//! makes one call fail.
//!
//! This test has no harness: it starts itself again, traced, with its role as the first argument.

#[cfg(target_os = "linux")]
mod matrix;
#[cfg(target_os = "linux")]
mod subject;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::path::Path;
    use std::time::Duration;

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["subject", backend, report, memory, patience] => {
            let backend = backend.parse().expect("a backend of this machine");
            let patience = Duration::from_secs(patience.parse().expect("a number"));
            subject::run(backend, Path::new(report), Path::new(memory), patience);
            std::process::ExitCode::SUCCESS
        }
        ["matrix", page] => matrix::write(Path::new(page)),
        ["sample"] => matrix::check(),
        ["one", call, errno, when, backend] => matrix::one(call, errno, when, backend),
        // There are no tests to choose from.
        ref others if others.contains(&"--list") => std::process::ExitCode::SUCCESS,
        // Harness arguments, such as `--nocapture` or a test's name, have no meaning here.
        _ => matrix::without_faults(),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}

//! The peers in C and C++: built with the system's compiler next to this program, and rebuilt when
//! their source is newer. If that fails they are left out with a line that says why.
//!
//! `compare native` builds them; `compare run` does so before it measures.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::SystemTime;
use std::{fs, io};

use crate::group::{self, Order, Outcome, Skip};

pub const NAMES: [&str; 2] = ["asio", "libuv"];

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/native");

struct Recipe {
    source: &'static str,
    compiler: &'static str,
    arguments: &'static [&'static str],
    libraries: &'static [&'static str],
    /// The Debian packages that it needs.
    packages: &'static str,
}

fn recipe(name: &str) -> Recipe {
    match name {
        "asio" => Recipe {
            source: "asio.cpp",
            compiler: "c++",
            arguments: &["-std=c++20", "-fcoroutines", "-O2", "-DNDEBUG", "-Wall"],
            libraries: &["-lpthread"],
            packages: "g++ libboost-dev",
        },
        "libuv" => Recipe {
            source: "uv.c",
            compiler: "cc",
            arguments: &["-std=gnu11", "-O2", "-DNDEBUG", "-Wall"],
            libraries: &["-luv", "-lpthread"],
            packages: "gcc libuv1-dev",
        },
        _ => unreachable!("the caller takes it from `NAMES`"),
    }
}

/// Builds all, and reports the results.
pub fn main() -> ExitCode {
    for name in NAMES {
        match build(name) {
            Ok(path) => eprintln!("{name}: {}", path.display()),
            Err(why) => eprintln!("{name}: {}", why.0),
        }
    }
    ExitCode::SUCCESS
}

/// Builds one, unless it exists and is newer than its sources.
pub fn build(name: &str) -> Result<PathBuf, Skip> {
    let recipe = recipe(name);
    let failed = |what: &str| {
        let packages = recipe.packages;
        Skip(format!("{what} (Debian: apt-get install {packages})"))
    };
    let source = Path::new(SOURCES).join(recipe.source);
    let newest = changed(&source).max(changed(&Path::new(SOURCES).join("measure.h")));
    let target = place(name)?;
    if newest.is_some() && changed(&target) > newest {
        return Ok(target);
    }
    // Under a temporary name until it is complete: another process may be building it too.
    let whole = target.with_extension(std::process::id().to_string());
    let output = Command::new(recipe.compiler)
        .args(recipe.arguments)
        .args([OsStr::new("-o"), whole.as_os_str(), source.as_os_str()])
        .args(recipe.libraries)
        .output()
        .map_err(|error| failed(&format!("{}: {error}", recipe.compiler)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let error = (said.lines().find(|line| line.contains("error"))).unwrap_or("it failed");
        return Err(failed(&format!("{}: {error}", recipe.compiler)));
    }
    fs::rename(&whole, &target).map_err(|error| Skip(format!("{name}: {error}")))?;
    Ok(target)
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Returns its path once it is built.
fn place(name: &str) -> Result<PathBuf, Skip> {
    let this = std::env::current_exe().map_err(|error| Skip(error.to_string()))?;
    Ok(this.with_file_name(format!("native-{name}")))
}

fn built(name: &str) -> Result<PathBuf, Skip> {
    let path = place(name)?;
    if !path.exists() {
        return Err(Skip(format!(
            "{name} is not built: see `compare native` (Debian: apt-get install {})",
            recipe(name).packages
        )));
    }
    Ok(path)
}

/// Returns the versions of the native programs.
pub fn versions() -> Vec<(String, String)> {
    (NAMES.iter())
        .filter_map(|name| {
            let output = Command::new(built(name).ok()?).arg("version").output();
            let said = String::from_utf8(output.ok()?.stdout).ok()?;
            Some((name.to_string(), said.trim().to_string()))
        })
        .collect()
}

/// Replaces this process with the native program. Returns only on failure.
pub fn become_it(name: &str, arguments: &[&str]) -> ExitCode {
    let why = match built(name) {
        Ok(path) => Command::new(path).args(arguments).exec().to_string(),
        Err(Skip(why)) => why,
    };
    println!("skipped {why}");
    ExitCode::SUCCESS
}

/// A measurement of the group "pairs", done by the native program, which prints the same line.
pub fn measure(order: &Order) -> Outcome {
    let path = built(&order.program)?;
    let output = Command::new(path)
        .args([
            "pairs",
            &order.workload,
            &order.limit.as_millis().to_string(),
        ])
        .stderr(std::process::Stdio::inherit())
        .output()
        .and_then(|output| {
            if output.status.success() {
                Ok(output.stdout)
            } else {
                Err(io::Error::other(output.status.to_string()))
            }
        })
        .map_err(|error| Skip(format!("{}: {error}", order.program)))?;
    (String::from_utf8_lossy(&output).lines().last())
        .and_then(group::parse)
        .unwrap_or_else(|| order.unknown())
}

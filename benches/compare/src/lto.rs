//! The effect of link-time optimisation: *Pairs* in this program, and in this program built with
//! the profile `lto`. `compare run` builds the latter, and `compare lto` does.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use crate::group::{self, Group, Order, Outcome, Skip, Workload};
use crate::pairs;

/// The suffix of the names of programs built with it.
const SUFFIX: &str = "-lto";

pub fn group() -> Group {
    Group {
        name: "lto",
        title: "Link-time optimisation",
        about: "Some of *Pairs* again, by the same programs (built in cargo's release profile, with one code \
                generation unit a crate), and by those of a build that differs in `lto = \"fat\"` \
                (`--profile lto`): many programs are shipped so. Every ratio is to `raw` without it.",
        workloads: |short| {
            let rows = [
                ("tcp-1", "TCP, one pair"),
                ("tcp-50", "TCP, 50 pairs"),
                ("unix-1", "Unix, one pair"),
                ("unix-50", "Unix, 50 pairs"),
            ];
            let programs = ["raw", "polder-epoll", "tokio", "smol"];
            // Building takes long.
            (rows.into_iter().filter(|_| !short))
                .map(|(name, title)| Workload {
                    name: name.into(),
                    title: title.into(),
                    programs: (programs.iter())
                        .flat_map(|name| [name.to_string(), format!("{name}{SUFFIX}")])
                        .collect(),
                    yardstick: "raw".into(),
                    metrics: pairs::METRICS,
                    limit: Duration::from_millis(200),
                    deadline: Duration::from_secs(30),
                    rounds: None,
                })
                .collect()
        },
        missing: Vec::new,
        measure,
    }
}

fn measure(order: &Order) -> Outcome {
    let Some(program) = order.program.strip_suffix(SUFFIX) else {
        return pairs::measure(order);
    };
    let other = other()?;
    if !other.exists() {
        return Err(Skip("it is not built: see `compare lto`".into()));
    }
    let output = Command::new(other)
        .args(["measure", "pairs", &order.workload, program])
        .args(["--millis", &order.limit.as_millis().to_string()])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Skip(error.to_string()))?;
    (String::from_utf8_lossy(&output.stdout).lines().last())
        .and_then(group::parse)
        .unwrap_or_else(|| Err(Skip(format!("it ended: {}", output.status))))
}

/// Returns the path of the other build: this one's, except for the profile's folder.
fn other() -> Result<PathBuf, Skip> {
    let this = std::env::current_exe().map_err(|error| Skip(error.to_string()))?;
    let file = this.file_name().expect("it is a file");
    match this.ancestors().nth(2) {
        Some(target) => Ok(target.join("lto").join(file)),
        None => Err(Skip("this program is in no target folder".into())),
    }
}

/// Builds it. Only outdated parts are built.
pub fn main() -> ExitCode {
    let target = match other() {
        Ok(other) => other.ancestors().nth(2).map(PathBuf::from),
        Err(Skip(why)) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let status = Command::new("cargo")
        .args(["build", "--profile", "lto", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .arg("--target-dir")
        .arg(target.unwrap_or_default())
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("cargo build --profile lto: {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

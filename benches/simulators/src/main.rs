//! polder's simulated worlds, madsim and turmoil: the same program in each of them, measured in one
//! run.
//!
//! ```text
//! cargo run --release --manifest-path benches/simulators/Cargo.toml [ROUNDS] > report.md
//! ```
//!
//! Builds the three programs in `src/bin`, which share the simulated program (`src/program.rs`) and
//! the measured work (`src/work.rs`), and prints a chapter of docs/REPORT.md. The chapter is
//! kept as `report.md` in this package's folder: `benches/compare` includes it there. Each figure
//! is CPU time of a separate process. The processes of a row alternate, so that other load on the
//! machine affects all of them.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

struct Program {
    title: &'static str,
    /// The feature of this package, with only the dependencies of one program.
    feature: &'static str,
    /// The compiler's flags.
    flags: &'static str,
    /// The last command-line argument.
    last: &'static str,
}

const PROGRAMS: [Program; 4] = [
    Program {
        title: "polder",
        feature: "polder",
        flags: "",
        last: "",
    },
    Program {
        title: "madsim",
        feature: "madsim",
        flags: "--cfg madsim",
        last: "",
    },
    Program {
        title: "turmoil, tick 1 ms",
        feature: "turmoil",
        flags: "",
        last: "1",
    },
    Program {
        title: "turmoil, tick 10 ms",
        feature: "turmoil",
        flags: "",
        last: "10",
    },
];

struct Row {
    title: &'static str,
    kind: &'static str,
    hosts: &'static str,
    /// Returns the amount of work done.
    done: fn(&Printed) -> f64,
}

const ROWS: [Row; 7] = [
    Row {
        title: "requests a second, 3 hosts",
        kind: "requests",
        hosts: "3",
        done: |printed| printed.answers,
    },
    Row {
        title: "seeds a second, 3 hosts",
        kind: "seeds",
        hosts: "3",
        done: |printed| printed.worlds,
    },
    Row {
        title: "the same, polder's worlds share a thread",
        kind: "shared-seeds",
        hosts: "3",
        done: |printed| printed.worlds,
    },
    Row {
        title: "simulated seconds a second, 3 hosts",
        kind: "heartbeats",
        hosts: "3",
        done: |printed| printed.simulated,
    },
    Row {
        title: "the same, polder's worlds share a thread",
        kind: "shared-heartbeats",
        hosts: "3",
        done: |printed| printed.simulated,
    },
    Row {
        title: "simulated seconds a second, 100 hosts",
        kind: "heartbeats",
        hosts: "100",
        done: |printed| printed.simulated,
    },
    Row {
        title: "the same, 1,000 hosts",
        kind: "heartbeats",
        hosts: "1000",
        done: |printed| printed.simulated,
    },
];

/// The output of a program. Times are in seconds.
struct Printed {
    cpu: f64,
    /// The simulated time of all worlds, by their clocks.
    simulated: f64,
    worlds: f64,
    answers: f64,
}

/// The CPU time of a measurement, in seconds, and the range of its number of worlds.
const SECONDS: f64 = 1.0;
const WORLDS: std::ops::RangeInclusive<f64> = 1.0..=100_000.0;

/// A program with a world that takes longer than `LONG` is measured once. One that takes longer
/// than the limit, which is passed to `ulimit` unchanged, is not measured.
const LONG: f64 = 5.0;
const LIMIT: &str = "60";

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1);
    let rounds = rounds.map_or(Ok(9), |it| it.parse())?;
    for program in &PROGRAMS {
        program.build()?;
    }
    let mut table = String::new();
    for row in &ROWS {
        table += &measure(row, rounds)?;
    }
    let example = example(rounds.min(3))?;
    print!("{}", chapter(&table, &example, rounds)?);
    Ok(())
}

impl Program {
    /// Returns a folder per feature: with a shared one, other flags would cause a full rebuild each
    /// time.
    fn target(&self) -> String {
        format!("{FOLDER}/target/{}", self.feature)
    }

    fn build(&self) -> Result<()> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--release", "--locked", "--features", self.feature]);
        cargo.args(["--bin", &format!("on-{}", self.feature)]);
        cargo.args(["--target-dir", &self.target()]);
        cargo.current_dir(FOLDER).env("RUSTFLAGS", self.flags);
        succeeds(&mut cargo, &format!("{} cannot be built", self.title))
    }

    /// Returns `None` if it has reached the time limit.
    fn run(&self, row: &Row, worlds: f64) -> Result<Option<Printed>> {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -t \"$0\"; exec \"$@\"", LIMIT]);
        command.arg(format!("{}/release/on-{}", self.target(), self.feature));
        command.args([row.kind, row.hosts, &worlds.to_string(), self.last]);
        // Limits it to one core: a world is one thread, and polder would run several concurrently.
        command.env("POLDER_SIM_JOBS", "1");
        let output = command.stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8(output.stdout)?;
        let numbers: Vec<f64> = text.split(' ').flat_map(|it| it.trim().parse()).collect();
        match numbers[..] {
            [cpu, simulated, worlds, answers] if output.status.success() => Ok(Some(Printed {
                cpu: cpu / 1e9,
                simulated: simulated / 1e9,
                worlds,
                answers,
            })),
            // Killed by the limit's signal.
            _ if output.status.code().is_none() => Ok(None),
            _ => Err(format!("{}: {} has failed: {text}", self.title, row.title).into()),
        }
    }
}

fn succeeds(command: &mut Command, otherwise: &str) -> Result<()> {
    // Only the chapter goes to the standard output.
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(otherwise.into())
    }
}

/// Returns the line of a row.
fn measure(row: &Row, rounds: usize) -> Result<String> {
    let figure = |program: &Program, worlds| {
        let printed = program.run(row, worlds)?;
        let figure = printed.map(|it| ((row.done)(&it) / it.cpu, it.cpu / it.worlds));
        eprintln!("{}: {}: {figure:.1?}", row.title, program.title);
        Result::Ok(figure)
    };
    // The first run warms up, and determines how long a world takes.
    let mut programs = Vec::new();
    for program in &PROGRAMS {
        programs.push(match figure(program, 1.0)? {
            Some((_, world)) if world < LONG => {
                let worlds = (SECONDS / world).ceil();
                (Some(worlds.clamp(*WORLDS.start(), *WORLDS.end())), vec![])
            }
            measured => (None, measured.into_iter().map(|it| it.0).collect()),
        });
    }
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let mut of_round = [0.0_f64; PROGRAMS.len()];
        for (index, program) in PROGRAMS.iter().enumerate() {
            let (worlds, figures) = &mut programs[index];
            if let Some(worlds) = *worlds {
                let (figure, _) = figure(program, worlds)?.ok_or("the limit of time")?;
                of_round[index] = figure;
                figures.push(figure);
            }
        }
        let [ours, others @ ..] = of_round;
        ratios.push(ours / others.into_iter().fold(0.0, f64::max));
    }
    let cells = programs.into_iter().map(|it| cell(it.1));
    let cells: Vec<String> = cells.chain([cell(ratios)]).collect();
    Ok(format!("| {} | {} |\n", row.title, cells.join(" | ")))
}

/// Returns the median, with the range below it.
fn cell(figures: Vec<f64>) -> String {
    match spread(figures) {
        (median, Some((least, most))) => format!("{median}<br><sub>{least}–{most}</sub>"),
        (median, None) => median,
    }
}

/// Returns the median and the range, for a sentence.
fn words(figures: Vec<f64>) -> String {
    match spread(figures) {
        (median, Some((least, most))) => format!("{median} ({least} – {most})"),
        (median, None) => median,
    }
}

/// Returns the median and the range, which one figure lacks.
fn spread(mut figures: Vec<f64>) -> (String, Option<(String, String)>) {
    figures.sort_by(f64::total_cmp);
    let [least, .., most] = figures[..] else {
        let single = (figures.first()).map_or(format!("over {LIMIT} s"), |it| number(*it));
        return (single, None);
    };
    let median = number(figures[figures.len() / 2]);
    (median, Some((number(least), number(most))))
}

/// Formats with three significant digits, and commas.
fn number(figure: f64) -> String {
    let decimals = match figure {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let scale = 10_f64.powi((figure.max(0.01).log10().floor() as i32 - 2).max(-2));
    let text = format!("{:.decimals$}", (figure / scale).round() * scale);
    let (whole, rest) = text
        .split_once('.')
        .map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

/// Returns the seconds of CPU time for 10,000 seeds of the example of docs/SIMULATION.md.
fn example(rounds: usize) -> Result<String> {
    const TEST: [&str; 6] = [
        "test",
        "--release",
        "--features",
        "sim",
        "--test",
        "fingerprints",
    ];
    const NAME: &str = "example::no_increment_is_lost_or_applied_twice";
    let folder = Path::new(FOLDER).join("../..");
    let mut build = Command::new(env!("CARGO"));
    build.args(TEST).arg("--no-run").current_dir(&folder);
    succeeds(&mut build, "polder's tests cannot be built")?;
    let mut took = Vec::new();
    for _ in 0..rounds {
        let mut command = Command::new("sh");
        command.args(["-c", "\"$@\" >&2 && times", "sh", env!("CARGO")]);
        command.args(TEST).args(["--", "--exact", NAME]);
        command
            .env("POLDER_SIM_RUNS", "10000")
            .env("POLDER_SIM_JOBS", "1");
        let output = command
            .current_dir(&folder)
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        // The shell's own times; the second line has its children's: `0m4.980s 0m0.120s`.
        let times = text.lines().nth(1).ok_or("the example does not pass")?;
        let seconds = times.split_whitespace().map(|it| {
            let (minutes, seconds) = it.trim_end_matches('s').split_once('m')?;
            Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
        });
        took.push(seconds.sum::<Option<f64>>().ok_or("the shell's `times`")?);
    }
    Ok(words(took))
}

/// Returns the versions of the measured packages, from the lock file.
fn versions() -> Result<String> {
    let lock = fs::read_to_string(Path::new(FOLDER).join("Cargo.lock"))?;
    let version = |name: &str| {
        let head = format!("name = \"{name}\"\nversion = \"");
        let version = lock.split(&head).nth(1)?.split('"').next()?;
        Some(format!("{name} {version}"))
    };
    let names = ["polder", "madsim", "turmoil", "tokio"];
    let mut versions: Vec<String> = names.into_iter().filter_map(version).collect();
    let output = Command::new("rustc").arg("--version").output()?;
    let rustc = String::from_utf8(output.stdout)?;
    versions.push(rustc.split(" (").next().unwrap_or_default().trim().into());
    Ok(versions.join(", "))
}

/// Returns the chapter of docs/REPORT.md. It has no links, since it is kept in two places.
fn chapter(table: &str, example: &str, rounds: usize) -> Result<String> {
    let titles = PROGRAMS.map(|it| it.title).join(" | ");
    let versions = versions()?;
    Ok(format!(
        "\
## Simulated worlds

The same program in polder's worlds, in madsim and in turmoil: servers (one host in ten, and one at least), and clients that send 64 bytes over TCP and wait for as many. \
More is better: all figures are for a second of CPU time. The last column is polder compared with the best of the others.

|  | {titles} | polder to the best |
|---|--:|--:|--:|--:|--:|
{table}
Medians of {rounds} rounds, with the least and the most below. A program whose single world takes longer than {LONG} s is measured once, and stopped after {LIMIT} s. 10,000 seeds of the example in the chapter on simulated \
worlds, by `crates/polder-sim/tests/fingerprints/example.rs` on one core, take {example} s of CPU time.

{ABOUT}
{versions}. To repeat it:

```text
cargo run --release --manifest-path benches/simulators/Cargo.toml > benches/simulators/report.md
```
"
    ))
}

const ABOUT: &str = "\
* **Requests**: each client asks as fast as it is answered, 15,000 times. **Seeds**: each client asks three times, so that it is the beginning and the end of a world that count. In polder and madsim each world has a thread of its own, so that the program's thread-locals are new, and turmoil runs all on one thread; where the table says so polder's worlds share one too, by \
`Sim::share_thread`, and set the program's two thread-locals to zero. **Simulated seconds**: each client asks \
ten times a second, for 20 seconds; in between there is nothing to do.
* The latency is 1 ms in each direction, without variation, and nothing is lost, since a loss is another thing in each: polder sends the segment again after 200 ms or more, madsim after one, and in turmoil the connection waits for ever. turmoil looks after each host in \
each tick, of 1 ms unless it is told otherwise, and a message takes a whole number of ticks. With ticks of 10 ms it is faster, and coarser: an answer takes 20 ms at least.
* polder runs with every check on: by `polder_sim::check`, which computes the fingerprint of each world, writes its events down to compare them, and runs the first seed of each measurement twice (as two worlds, which are counted), and the first world on a shared thread; with a condition after each \
step, no leaks allowed, and a limit of connections a second. madsim runs as by `#[madsim::test]`, without its check of determinism, which runs each seed twice. turmoil has none.
* All run on one core, built in the same profile: one code generation unit a crate.

What bounds polder where madsim is near it:

* Instructions, as callgrind counts them: 15,200 of a heartbeat among 100 hosts (madsim 13,700), and
  10,400 of a request without a pause (madsim 11,500). No function has more than a seventh.
* Each process has a runtime with a reactor and a scheduler, the real ones, driven one task at a
  time; madsim has one queue for all. So a heartbeat is more code than an instruction cache holds:
  lines of 38 KiB, and 22 KiB in madsim. On an Intel Xeon that costs little: for each instruction
  polder takes no longer than madsim. On an AMD EPYC (Zen 4) the same programs gave 0.74 (3 hosts)
  to 0.88 (1,000 hosts) of madsim's heartbeats, 0.72 of its seeds, and 0.96 of its requests.
* Linked with `lto = \"fat\"` both have a tenth more heartbeats a second with 3 hosts, and a twentieth
  more with 100.
* The checks are not the bound: when a heartbeat took 16,600 instructions, 8 % of them were for the
  fingerprint, the list of events and the conditions.
* A thread for each world is two fifths of polder's time with short seeds, and a twelfth of it with
  heartbeats of 3 hosts. Worlds that share a thread do without. An empty thread that is started
  and joined takes 42 µs of CPU time, which is as much as a whole world of turmoil.
* A seed of the example has 610 events, each of which takes half a microsecond, and its thread. No
  function has more than a thirtieth of that; an allocator's are a tenth together. 20,000 seeds a
  second would be 80 ns for each event.

What gave something, more than two fifths of the instructions together:

* most of all, fewer events: none for a timer that is cancelled before it is due, and none for an
  acknowledgement that changes nothing;
* data: the bytes of a socket in one piece; segments whose memory is used again, and which are
  written in place; two queues before the heap of events, for those that are pushed in order, with
  the events stored in them;
* steps: a poller hands out its events in one call; a read reports that nothing is left; calls find
  out first that they have nothing to do, and that no fault is on; the watchdog has no lock;
* fingerprints: a digest by whole words; an event is written down once, and its share computed where
  its kind is known.

What gave nothing: an event queue whose entries compare as one number; queues or a calendar whose
entries have places elsewhere for their events (2 % fewer instructions with 100 hosts, 2 to 3 % more
with 3).
";

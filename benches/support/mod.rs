//! Shared by the benches: bounded measurements, interleaved, and their ratios.
//!
//! Absolute times mean nothing on a shared machine. So all programs of one table run round-robin (A
//! B C A B C …), and the figure is the median over the rounds of each round's own ratio. Programs
//! measured in pairs stay on one thread and never sleep, so the thread's CPU time equals the wall
//! clock's on an idle machine, and stays valid on a busy one: both are shown.

#![allow(dead_code, reason = "each bench uses its part")]

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// The parsed command line. Numbers that a bench does not use are ignored.
#[derive(Debug)]
pub struct Options {
    /// The number of rounds that count; one more precedes them.
    pub rounds: usize,
    /// The approximate duration of one measurement.
    pub limit: Duration,
    /// `--pairs 1,50`.
    pub pairs: Option<Vec<usize>>,
    /// `--only NAME`: only this program, for a profiler; or `--only NAME,NAME`: only these.
    pub only: Option<String>,
    /// `--count N`: exactly that many operations, once, without warming up: for counting system
    /// calls or instructions as the slope between two counts.
    pub count: Option<u64>,
    /// Whether this is only a check that the bench works, not a measurement: under `cargo test`.
    pub tiny: bool,
}

impl Options {
    /// Parses the command line; prints the usage and exits if it is invalid.
    pub fn parse() -> Options {
        let mut options = Options {
            rounds: 7,
            limit: Duration::from_millis(200),
            pairs: None,
            only: None,
            count: None,
            tiny: true,
        };
        let mut testing = false;
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .unwrap_or_else(|| usage(&format!("{argument} wants a value")))
            };
            match argument.as_str() {
                "--bench" => options.tiny = false,
                "--test" => testing = true,
                "--rounds" => options.rounds = number(&value()),
                "--millis" => options.limit = Duration::from_millis(number(&value())),
                "--pairs" => options.pairs = Some(value().split(',').map(number).collect()),
                "--only" => options.only = Some(value()),
                "--count" => options.count = Some(number(&value())),
                // Other arguments that cargo and the test harness understand: filters,
                // `--nocapture`, …
                other if other.starts_with("--help") => usage(""),
                _ => {}
            }
        }
        options.tiny |= testing;
        if options.tiny {
            options.rounds = 1;
            options.limit = Duration::from_millis(1);
        }
        options.rounds = options.rounds.max(1);
        options
    }

    pub fn wants(&self, name: &str) -> bool {
        (self.only.as_deref()).is_none_or(|only| only.split(',').any(|it| it == name))
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.trim()
        .parse()
        .unwrap_or_else(|_| usage(&format!("{text:?} is no number")))
}

fn usage(what: &str) -> ! {
    eprintln!("{what}\n--rounds 7 --millis 200 --only NAME,NAME --count N --pairs 1,50,500");
    std::process::exit(2)
}

/// The time that something took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Took {
    pub wall: Duration,
    /// CPU time of this thread.
    pub cpu: Duration,
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Took) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// Starts measuring.
pub struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    pub fn start() -> Clock {
        let cpu = cpu();
        Clock {
            wall: Instant::now(),
            cpu,
        }
    }

    pub fn stop(self) -> Took {
        Took {
            wall: self.wall.elapsed(),
            cpu: cpu() - self.cpu,
        }
    }
}

/// Returns this thread's CPU time, by libc's function, which also works under valgrind.
fn cpu() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    assert_eq!(result, 0, "every Unix has a thread's clock");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// One program of a table.
pub struct Program<'a> {
    pub name: String,
    /// The place in the table of the program that this one is compared with.
    pub yardstick: Option<usize>,
    /// The program does a multiple of this number of operations.
    pub step: u64,
    /// Does a number of operations, and returns the time they took.
    pub run: Box<dyn FnMut(u64) -> Took + 'a>,
}

/// Runs the programs round-robin, and prints the table.
pub fn compare(title: &str, options: &Options, programs: &mut [Program<'_>]) {
    if programs.is_empty() {
        return;
    }
    if let Some(count) = options.count {
        for program in programs {
            let count = count.next_multiple_of(program.step);
            let took = (program.run)(count);
            println!("{title}: {}: {count} in {:?}", program.name, took.wall);
        }
        return;
    }
    // The number of operations that fit into one measurement: each program is run with growing
    // numbers, which warms it up as well.
    let counts: Vec<u64> = programs
        .iter_mut()
        .map(|program| {
            let step = program.step;
            let mut count = step;
            loop {
                let took = (program.run)(count).wall.max(Duration::from_nanos(1));
                let fits = count as f64 * options.limit.as_secs_f64() / took.as_secs_f64();
                if took * 8 >= options.limit {
                    return (fits as u64).max(1).next_multiple_of(step);
                }
                count = (count * 8).min(fits as u64).next_multiple_of(step);
            }
        })
        .collect();
    // By program, then by round: nanoseconds per operation, of wall-clock time and of CPU time.
    let mut nanos = vec![Vec::new(); programs.len()];
    for round in 0..options.rounds + 1 {
        for (place, program) in programs.iter_mut().enumerate() {
            let took = (program.run)(counts[place]);
            if round > 0 {
                nanos[place].push((per(took.wall, counts[place]), per(took.cpu, counts[place])));
            }
        }
    }
    println!("{title}");
    println!(
        "  {:<22} {:>9} {:>7} {:>15}   {:>9} {:>7} {:>15}",
        "", "ns, wall", "ratio", "min – max", "ns, cpu", "ratio", "min – max"
    );
    for (place, program) in programs.iter().enumerate() {
        print!("  {:<22}", program.name);
        for of in [wall, cpu_only] {
            print!(
                " {:>9.1}",
                median(nanos[place].iter().map(of).collect::<Vec<_>>())
            );
            match program.yardstick {
                None => print!(" {:>7} {:>15}  ", "", ""),
                Some(yardstick) => {
                    let mut ratios: Vec<f64> = (nanos[place].iter())
                        .zip(&nanos[yardstick])
                        .map(|(own, other)| of(own) / of(other))
                        .collect();
                    ratios.sort_by(f64::total_cmp);
                    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
                    let spread = format!("{least:.3} – {most:.3}");
                    print!(" {:>7.3} {spread:>15}  ", median(ratios));
                }
            }
        }
        println!();
    }
}

type Both = (f64, f64);

fn wall(both: &Both) -> f64 {
    both.0
}

fn cpu_only(both: &Both) -> f64 {
    both.1
}

fn per(took: Duration, count: u64) -> f64 {
    took.as_nanos() as f64 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

//! What the benches share: bounded measurements, interleaved, and their ratios.
//!
//! Absolute times mean nothing on a machine that others use too. So all programs of one table run
//! in turns (A B C A B C …), and what counts is the median over the rounds of each round's own
//! ratio. Everything measured in pairs stays on one thread and never sleeps, so the thread's CPU
//! time says the same as the clock on an idle machine, and still says it on a busy one: both are
//! shown.

#![allow(dead_code, reason = "each bench uses its part")]

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// What the command line says. Numbers where a bench has no use for them are ignored.
#[derive(Debug)]
pub struct Options {
    /// How many rounds are counted; one more goes before them.
    pub rounds: usize,
    /// How long one measurement takes, about.
    pub limit: Duration,
    /// `--pairs 1,50`.
    pub pairs: Option<Vec<usize>>,
    /// `--only NAME`: this program alone, for a profiler; or `--only NAME,NAME`: these.
    pub only: Option<String>,
    /// `--count N`: exactly that many operations, once, without warming up: for counting system
    /// calls or instructions as the slope between two counts.
    pub count: Option<u64>,
    /// Not a measurement, only a look whether the bench works: under `cargo test`.
    pub tiny: bool,
}

impl Options {
    /// From the command line; explains itself and exits where that makes no sense.
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
                // What cargo and the test harness understand besides: filters, `--nocapture`, …
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

/// What something took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Took {
    pub wall: Duration,
    /// Of this thread.
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

/// By libc's function: it goes well under valgrind too.
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
    /// Which program, by its place in the table, this one is compared with.
    pub yardstick: Option<usize>,
    /// It does a multiple of so many operations.
    pub step: u64,
    /// Does a number of operations, and says what they took.
    pub run: Box<dyn FnMut(u64) -> Took + 'a>,
}

/// Runs the programs in turns, and prints the table.
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
    // How many operations fit into one measurement: asked of each program, in growing numbers,
    // which warms it up as well.
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
    // By program, then by round: nanoseconds an operation, on the wall and of the CPU.
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

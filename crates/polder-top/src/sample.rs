//! The displayed numbers: a line, compared with the one before.

use std::collections::HashMap;

use crate::line::{self, Group, Histogram, Line, OpenSockets};
use crate::text::Text;

#[derive(Clone, Default, Debug)]
pub struct Sample {
    pub program: Text,
    pub process: u64,
    pub uptime: f64,
    /// The announced interval until the next line.
    pub interval: f64,
    /// `None` if the program does not count them.
    pub open_sockets: Option<OpenSockets>,
    pub backends: Vec<Text>,
    pub tasks: u64,
    pub unreported: u64,
    /// The number of runtimes that the program has left out.
    pub runtimes_left_out: u64,
    /// `None` if there is no previous line.
    pub rates: Option<Rates>,
    pub poll_times: Quantiles,
    pub lateness: Quantiles,
    pub workers: Vec<Worker>,
    pub rows: Vec<Row>,
    /// The number of groups, and of tasks in them, that the program has left out.
    pub left_out: (u64, u64),
    pub hints: Vec<Text>,
    pub hints_left_out: u64,
}

/// Rates per second.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Rates {
    pub polls: f64,
    pub wakes: f64,
    pub spawns: f64,
    pub ends: f64,
    pub events: f64,
    pub timers: f64,
}

#[derive(Clone, Default, Debug)]
pub struct Worker {
    pub runtime: u64,
    pub index: usize,
    pub state: Text,
    pub since: Option<f64>,
    /// The task that it runs, if it does not answer.
    pub runs: Option<Text>,
    /// From 0 to 1. `None` if there is no previous line.
    pub load: Option<f64>,
    pub tasks: u64,
    pub sources: u64,
    pub polls: Option<f64>,
    pub longest_queue: u64,
}

#[derive(Clone, Default, Debug)]
pub struct Row {
    pub runtime: u64,
    pub group: Group,
    /// Polls per second, of the whole group.
    pub polls: Option<f64>,
}

/// The durations in a histogram, as limits of buckets.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Quantiles {
    pub half: Option<Limit>,
    pub most: Option<Limit>,
    pub nearly_all: Option<Limit>,
    pub longest: Option<Limit>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// In seconds.
    AtMost(f64),
    MoreThan(f64),
}

impl Sample {
    /// Compares two lines; `before` is ignored if it is another program's.
    pub fn new(before: Option<&Line>, now: &Line) -> Sample {
        let before = before.filter(|it| it.process == now.process && it.uptime < now.uptime);
        let mut sample = Sample {
            program: now.program.clone(),
            process: now.process,
            uptime: now.uptime,
            interval: now.interval,
            open_sockets: now.open_sockets,
            runtimes_left_out: now.runtimes_left_out,
            ..Sample::default()
        };
        let within = before.map(|before| now.uptime - before.uptime);
        sample.rates = within.map(|_| Rates::default());
        let (mut polls, mut lateness) = (Vec::new(), Vec::new());
        // (polder sends no number twice; if one is repeated, the first one counts.)
        let by_number: HashMap<u64, &line::Runtime> = (before.iter())
            .flat_map(|line| line.runtimes.iter().rev())
            .map(|runtime| (runtime.number, runtime))
            .collect();
        // A runtime without a previous line is new, or that line has left it out.
        let all_known = before.is_none_or(|line| line.runtimes_left_out == 0);
        for runtime in &now.runtimes {
            let before = by_number.get(&runtime.number).copied();
            if !sample.backends.contains(&runtime.backend) {
                sample.backends.push(runtime.backend.clone());
            }
            sample.tasks = sample.tasks.saturating_add(runtime.tasks);
            sample.unreported = sample.unreported.saturating_add(runtime.unreported);
            let counts = all_known || before.is_some();
            if let (true, Some(rates), Some(within)) = (counts, &mut sample.rates, within) {
                rates.add(before, runtime, within);
            }
            for (index, worker) in runtime.workers.iter().enumerate() {
                let before = before.and_then(|it| it.workers.get(index));
                let earlier = before.map(|it| &it.metrics);
                let metrics = &worker.metrics;
                if counts {
                    let before = earlier.map(|it| &it.poll_seconds);
                    add(&mut polls, before, &metrics.poll_seconds);
                    let before = earlier.map(|it| &it.timer_lateness_seconds);
                    add(&mut lateness, before, &metrics.timer_lateness_seconds);
                }
                sample.workers.push(Worker {
                    runtime: runtime.number,
                    index,
                    state: worker.state.clone(),
                    since: worker.since,
                    runs: runs(worker),
                    load: within.and_then(|within| load(before?, worker, within)),
                    tasks: metrics.tasks,
                    sources: metrics.sources,
                    polls: (earlier.zip(within))
                        .map(|(it, within)| grown(it.polls, metrics.polls) / within),
                    longest_queue: metrics.longest_queue,
                });
            }
            sample.rows.extend(runtime.groups.iter().map(|group| {
                Row {
                    runtime: runtime.number,
                    group: group.clone(),
                    polls: (group.recent_polls.zip(runtime.within))
                        .filter(|(_, within)| *within > 0.0)
                        .map(|(polls, within)| polls as f64 / within),
                }
            }));
            let left_out = &runtime.left_out;
            sample.left_out.0 = sample.left_out.0.saturating_add(left_out.groups);
            sample.left_out.1 = sample.left_out.1.saturating_add(left_out.tasks);
            (sample.hints).extend(runtime.hints.iter().map(|hint| hint.text.clone()));
            sample.hints_left_out = sample.hints_left_out.saturating_add(left_out.hints);
        }
        if before.is_some() {
            sample.poll_times = Quantiles::of(&polls);
            sample.lateness = Quantiles::of(&lateness);
        }
        sample
    }
}

/// Returns the growth of a counter; zero if it has been reset.
fn grown(before: u64, now: u64) -> f64 {
    now.saturating_sub(before) as f64
}

impl Rates {
    /// Adds the growth of a runtime; a new one counts in full.
    fn add(&mut self, before: Option<&line::Runtime>, now: &line::Runtime, within: f64) {
        let nothing = line::Runtime::default();
        let before = before.unwrap_or(&nothing);
        self.spawns += grown(before.spawned, now.spawned) / within;
        self.ends += grown(before.ended, now.ended) / within;
        let idle = line::Metrics::default();
        for (index, worker) in now.workers.iter().enumerate() {
            let before = before.workers.get(index).map_or(&idle, |it| &it.metrics);
            let now = &worker.metrics;
            self.polls += grown(before.polls, now.polls) / within;
            self.wakes += grown(before.remote_wakes, now.remote_wakes) / within;
            self.events += grown(before.events, now.events) / within;
            self.timers += grown(before.timers_fired, now.timers_fired) / within;
        }
    }
}

fn runs(worker: &line::Worker) -> Option<Text> {
    let place = worker.spawned_at.as_ref()?;
    Some(Text::from(match worker.task {
        Some(id) => format!("task {id}, spawned at {place}"),
        None => format!("block_on, called at {place}"),
    }))
}

/// Returns the busy fraction of a worker. Unless the program reports it, it is estimated: the
/// number of polls, times the mean duration of those that were timed.
///
/// (`max` after `clamp` turns NaN into zero.)
fn load(before: &line::Worker, now: &line::Worker, within: f64) -> Option<f64> {
    if now.state.as_str() == "silent" {
        return Some(1.0);
    }
    let (before, now) = (&before.metrics, &now.metrics);
    if let (Some(before), Some(now)) = (before.cpu_seconds, now.cpu_seconds) {
        return Some(((now - before) / within).clamp(0.0, 1.0).max(0.0));
    }
    let polls = grown(before.polls, now.polls);
    let mut counts = Vec::new();
    add(&mut counts, Some(&before.poll_seconds), &now.poll_seconds);
    let mut timed = total(&counts);
    let mut sum = now.poll_seconds.sum - before.poll_seconds.sum;
    if timed == 0 {
        // None was timed: use the mean of all polls before.
        (timed, sum) = (total(&now.poll_seconds.counts), now.poll_seconds.sum);
    }
    let mean = if timed == 0 { 0.0 } else { sum / timed as f64 };
    Some((polls * mean / within).clamp(0.0, 1.0).max(0.0))
}

fn total(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

/// Adds the counts between two lines.
fn add(counts: &mut Vec<u64>, before: Option<&Histogram>, now: &Histogram) {
    if counts.len() < now.counts.len() {
        counts.resize(now.counts.len(), 0);
    }
    for (index, count) in now.counts.iter().enumerate() {
        let before = before.and_then(|it| it.counts.get(index)).copied();
        let new = count.saturating_sub(before.unwrap_or(0));
        counts[index] = counts[index].saturating_add(new);
    }
}

impl Quantiles {
    fn of(counts: &[u64]) -> Quantiles {
        let at = |part| quantile(counts, part);
        Quantiles {
            half: at(0.5),
            most: at(0.9),
            nearly_all: at(0.99),
            longest: at(1.0),
        }
    }
}

fn quantile(counts: &[u64], part: f64) -> Option<Limit> {
    let wanted = (total(counts) as f64 * part).ceil();
    let mut seen = 0u64;
    for (index, count) in counts.iter().enumerate() {
        seen = seen.saturating_add(*count);
        if *count > 0 && seen as f64 >= wanted {
            let limit = |index: usize| 1e-6 * (index as f64).exp2();
            return Some(if index + 1 == counts.len() {
                Limit::MoreThan(limit(index.saturating_sub(1)))
            } else {
                Limit::AtMost(limit(index))
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(text.as_bytes()).unwrap()
    }

    /// Quantiles are limits of buckets and the last has none.
    #[test]
    fn quantiles_are_bucket_limits() {
        let quantiles = Quantiles::of(&[50, 0, 45, 4, 1]);
        assert_eq!(quantiles.half, Some(Limit::AtMost(1e-6)));
        assert_eq!(quantiles.most, Some(Limit::AtMost(4e-6)));
        assert_eq!(quantiles.nearly_all, Some(Limit::AtMost(8e-6)));
        assert_eq!(quantiles.longest, Some(Limit::MoreThan(8e-6)));
        assert_eq!(Quantiles::of(&[]), Quantiles::default());
        assert_eq!(Quantiles::of(&[0, 0]), Quantiles::default());
    }

    const BEFORE: &str = r#"{"polder_top":1,"process":7,"uptime":10.0,"runtimes":[{"number":0,
        "spawned":100,"ended":50,"workers":[{"state":"awake","metrics":{"polls":1000,"events":10,
        "poll_seconds":{"sum":1.0,"counts":[10,0,5,0]}}}]}]}"#;

    /// Rates are differences within the time between two lines.
    #[test]
    fn rates_are_differences_by_time() {
        let now = r#"{"polder_top":1,"process":7,"uptime":12.0,"runtimes":[{"number":0,
            "spawned":300,"ended":60,"within":2.0,"groups":[{"tasks":2,"recent_polls":8}],"workers":[
            {"state":"awake","metrics":{"polls":1640,"events":10,"remote_wakes":4,
            "poll_seconds":{"sum":1.01,"counts":[10,0,15,0]}}}]}]}"#;
        let sample = Sample::new(Some(&line(BEFORE)), &line(now));
        let rates = sample.rates.unwrap();
        assert_eq!((rates.polls, rates.spawns, rates.ends), (320.0, 100.0, 5.0));
        assert_eq!((rates.events, rates.wakes), (0.0, 2.0));
        assert_eq!(sample.rows[0].polls, Some(4.0));
        assert_eq!(sample.poll_times.half, Some(Limit::AtMost(4e-6)));
        // 640 polls of a millisecond each, in two seconds.
        let load = sample.workers[0].load.unwrap();
        assert!((load - 0.32).abs() < 1e-9, "{load}");
    }

    /// A runtime that was left out before does not count with its whole life.
    #[test]
    fn formerly_hidden_runtime_has_no_rate() {
        let now = line(
            r#"{"polder_top":1,"process":7,"uptime":12.0,"runtimes":[{"number":0,"spawned":300},
            {"number":5,"spawned":1000000,"workers":[{"metrics":{
            "poll_seconds":{"sum":1.0,"counts":[0,0,7,0]}}}]}]}"#,
        );
        let mut before = line(BEFORE);
        let all_known = Sample::new(Some(&before), &now);
        assert_eq!(all_known.rates.unwrap().spawns, 500_100.0);
        assert_ne!(all_known.poll_times, Quantiles::default());
        before.runtimes_left_out = 1;
        let sample = Sample::new(Some(&before), &now);
        assert_eq!(sample.rates.unwrap().spawns, 100.0);
        assert_eq!(sample.poll_times, Quantiles::default());
    }

    #[test]
    fn what_the_program_tells_of_its_work_is_believed() {
        let text = |busy, uptime| {
            line(&format!(
                r#"{{"polder_top":1,"uptime":{uptime},"runtimes":[{{"workers":[
                {{"metrics":{{"cpu_seconds":{busy}}}}}]}}]}}"#
            ))
        };
        let sample = Sample::new(Some(&text(1.0, 1.0)), &text(1.5, 3.0));
        assert_eq!(sample.workers[0].load, Some(0.25));
    }

    #[test]
    fn a_worker_that_does_not_answer_is_at_work() {
        let now = line(
            r#"{"polder_top":1,"process":7,"uptime":11.0,"runtimes":[{"number":0,"workers":[
            {"state":"silent","since":0.9,"task":17,"spawned_at":"src/a.rs:1:2"}]}]}"#,
        );
        let sample = Sample::new(Some(&line(BEFORE)), &now);
        assert_eq!(sample.workers[0].load, Some(1.0));
        let runs = sample.workers[0].runs.as_ref().unwrap();
        assert_eq!(runs.as_str(), "task 17, spawned at src/a.rs:1:2");
    }

    /// A program that was started again is not compared.
    #[test]
    fn restarted_program_is_not_compared() {
        let mut again = line(BEFORE);
        again.process = 8;
        again.uptime = 20.0;
        assert_eq!(Sample::new(Some(&line(BEFORE)), &again).rates, None);
        // The same process id, by coincidence.
        again.process = 7;
        again.uptime = 0.5;
        assert_eq!(Sample::new(Some(&line(BEFORE)), &again).rates, None);
    }

    #[test]
    fn numbers_that_cannot_be_true_do_no_harm() {
        let huge = u64::MAX;
        let text = |uptime: f64, polls: u64| {
            line(&format!(
                r#"{{"polder_top":1,"uptime":{uptime:e},"runtimes":[{{"tasks":{huge},"spawned":{polls},
                "within":0,"groups":[{{"recent_polls":{huge},"oldest":-1e308}}],"workers":[{{"metrics":{{
                "polls":{polls},"poll_seconds":{{"sum":-1e308,"counts":[{huge},{huge}]}}}}}}]}},
                {{"tasks":{huge}}}]}}"#
            ))
        };
        let sample = Sample::new(Some(&text(0.0, huge)), &text(1e-300, 0));
        assert_eq!(sample.tasks, u64::MAX);
        assert_eq!(sample.rates.unwrap().polls, 0.0);
        let load = sample.workers[0].load.unwrap();
        assert!((0.0..=1.0).contains(&load), "{load}");
    }
}

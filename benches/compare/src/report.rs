//! The report: a page of Markdown with tables, and plots beside it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::group::groups;
use crate::results::{Results, Table, ratio};
use crate::run::Options;
use crate::{goals, machine, plot};

/// Where the report goes: into the repository in full, beside the results in short.
fn page(options: &Options) -> io::Result<PathBuf> {
    match (&options.out, options.short) {
        (Some(out), _) => Ok(out.into()),
        (None, true) => Ok(Results::folder()?.join("PERFORMANCE.md")),
        (None, false) => {
            Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PERFORMANCE.md"))
        }
    }
}

/// Writes page and plots, and prints the goals.
pub fn write(results: &Results, options: &Options) -> io::Result<()> {
    let page = page(options)?;
    let folder = page.with_file_name("performance");
    fs::create_dir_all(&folder)?;
    let mut text = String::new();
    compose(results, options, &folder, &mut text)?;
    fs::write(&page, text)?;
    println!("Goals:");
    for goal in goals::found(results) {
        let met = word(goal.met);
        println!(
            "  {:<58} {:>8}  {:<32} {met}",
            goal.what, goal.value, goal.goal
        );
    }
    let name = page.file_name().unwrap_or_default().to_string_lossy();
    eprintln!("{name} is written");
    Ok(())
}

fn word(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "**not met**",
        None => "not measured",
    }
}

fn compose(
    results: &Results,
    options: &Options,
    plots: &Path,
    text: &mut String,
) -> io::Result<()> {
    text.push_str(HEAD);
    if options.short {
        text.push_str(
            "\n**This is the short mode: few rounds, for a look. Take no figure from it.**\n",
        );
    }
    text.push_str(
        "\n## Goals\n\nA ratio is the median over the rounds of each round's own ratio; \
        beside it stands between what the rounds were. For *Pairs* and *Micro* it is the ratio of CPU \
        times: where nothing sleeps they say the same as the clock, and still say it while others use \
        the machine.\n\n",
    );
    text.push_str("| | polder | min – max | goal | |\n|---|--:|--:|---|---|\n");
    for goal in goals::found(results) {
        let met = word(goal.met);
        line(
            text,
            &[&goal.what, &goal.value, &goal.span, &goal.goal, met],
        );
    }
    missed(results, text);
    for group in groups() {
        let tables: Vec<&Table> = (results.tables.iter())
            .filter(|table| table.group == group.name)
            .collect();
        if tables.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {}\n\n{}\n", group.title, group.about);
        if plot::ratios(
            &tables,
            &plots.join(format!("{}.svg", group.name)),
            group.title,
        )? {
            let title = group.title;
            let _ = write!(
                text,
                "\n![{title}: ratios](performance/{}.svg)\n",
                group.name
            );
        }
        overview(&tables, text);
        for table in tables {
            detail(table, text);
        }
    }
    text.push_str("\n## Where, and what\n\n| | |\n|---|---|\n");
    for (name, value) in machine::machine().into_iter().chain(machine::versions()) {
        line(text, &[&name, &value]);
    }
    Ok(())
}

/// What is known about the goals that are missed: each reason once, with all that it holds for.
fn missed(results: &Results, text: &mut String) {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for goal in goals::found(results) {
        if goal.met != Some(false) || goal.why.is_empty() {
            continue;
        }
        match reasons.iter_mut().find(|(why, _)| *why == goal.why) {
            Some((_, whats)) => whats.push(goal.what),
            None => reasons.push((goal.why, vec![goal.what])),
        }
    }
    if reasons.is_empty() {
        return;
    }
    text.push_str("\n### What is missed, and why\n\n");
    for (why, whats) in reasons {
        let _ = writeln!(text, "* **{}.** {why}", whats.join("; "));
    }
}

const HEAD: &str = "\
# Performance

polder beside loops written by hand and beside its peers: the same programs, in one run. This page is
written by

```text
cargo run --release --manifest-path benches/compare/Cargo.toml -- run
```

and every figure comes from it; do not edit it. (`run --short` takes less than three minutes and
writes its page beside the results, `run --only pairs` measures one chapter anew, `report` writes the
page from the results that are there, and `agree OLD NEW` compares the results of two runs.)

Every measurement is a process of its own, which warms up, then measures once. The programs of a
table take turns, so that what else the machine does hits all of them; a ratio is formed within a
round. Times depend on the machine; **ratios are what to read**. All are built alike: cargo's release
profile with one code generation unit a crate, without link-time optimisation. The peers in C and C++
take part where the system's compiler and their headers are (Debian: `apt-get install g++
libboost-dev libuv1-dev`), built with `-O2`.
";

fn line(text: &mut String, cells: &[&str]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// The ratios of the first column of all tables: a line a program.
fn overview(tables: &[&Table], text: &mut String) {
    let tables: Vec<&&Table> = tables
        .iter()
        .filter(|table| table.columns.first().is_some_and(|column| column.ratio))
        .collect();
    if tables.len() < 2 {
        return;
    }
    let mut programs: Vec<&str> = Vec::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        if !programs.contains(&row.program.as_str()) {
            programs.push(&row.program);
        }
    }
    let mut yardsticks: Vec<&str> = tables
        .iter()
        .map(|table| table.yardstick.as_str())
        .collect();
    yardsticks.dedup();
    let _ = write!(
        text,
        "\n### All in one\n\nRatios to {}: of {}.\n\n",
        yardsticks.join(", "),
        titles(&tables)
    );
    // Tables are down, programs across: there are fewer of the programs, or as many.
    let mut head = vec![""];
    head.extend(&programs);
    line(text, &head);
    let _ = writeln!(text, "|---|{}", "--:|".repeat(programs.len()));
    for table in tables {
        let key = &table.columns[0].key;
        let mut cells = vec![table.title.clone()];
        for program in &programs {
            let ratios = (table.row(program)).and_then(|row| row.ratios(table.yardstick()?, key));
            cells.push(ratios.map_or("–".into(), |ratios| ratio(ratios.median)));
        }
        line(text, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn titles(tables: &[&&Table]) -> String {
    let mut titles: Vec<&str> = tables
        .iter()
        .map(|table| table.columns[0].title.as_str())
        .collect();
    titles.dedup();
    titles.join(", ")
}

fn detail(table: &Table, text: &mut String) {
    let rounds = table
        .rows
        .iter()
        .map(|row| row.rounds.len())
        .max()
        .unwrap_or(0);
    let rounds = match rounds {
        1 => "one round".into(),
        _ => format!("{rounds} rounds"),
    };
    let _ = write!(text, "\n### {} (`{}`)\n\n", table.title, table.workload);
    let mut lines = table.cells().into_iter();
    if let Some(head) = lines.next() {
        line(text, &head.iter().map(String::as_str).collect::<Vec<_>>());
        let _ = writeln!(text, "|---|{}", "--:|".repeat(head.len() - 1));
    }
    for cells in lines {
        line(text, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let _ = write!(text, "\nMedians of {rounds}.");
    for remark in table.remarks() {
        let _ = write!(text, " Left out: {remark}.");
    }
    text.push('\n');
}

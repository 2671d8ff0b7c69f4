//! The report: a page of Markdown with tables, and plots next to it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::groups::groups;
use crate::growth::GROWTH;
use crate::options::Options;
use crate::plot::{Curve, Curves};
use crate::results::{Results, Row, Table, ratio};
use crate::{goals, machine, plot};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns where the report goes: the full one into the repository, the short one next to the
/// results.
fn page(options: &Options) -> io::Result<PathBuf> {
    match (&options.out, options.short) {
        (Some(out), _) => Ok(out.into()),
        (None, true) => Ok(Results::folder()?.join("REPORT.md")),
        (None, false) => Ok(Path::new(REPOSITORY).join("docs/REPORT.md")),
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
            "  {:<76} {:>8}  {:<10} {:<6} {met}",
            goal.what, goal.value, goal.goal, goal.processor
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
    text.push_str(TITLE);
    if options.short {
        text.push_str(
            "\n**This is the short mode: few rounds, for a look. Take no figure from it.**\n",
        );
    }
    text.push_str(ABOUT);
    text.push_str("\n## Machine and versions\n\n| | |\n|---|---|\n");
    for (name, value) in machine::all() {
        line(text, &[&name, &value]);
    }
    text.push_str(
        "\n## Goals\n\n\
        * A ratio is computed for each round; the table has their median and their quartiles.\n\
        * Each goal was set on one kind of processor, and says little on another: what a system call or a locked\n  \
        instruction costs differs. *Set on* is that processor; the one of this run is above.\n\
        * For *Pairs* and *Micro* it is the ratio of CPU times. As nothing sleeps there, these say the same as\n  \
        the clock, also while other programs use the machine.\n\n",
    );
    text.push_str("| | polder | quartiles | goal | set on | |\n|---|--:|--:|---|---|---|\n");
    for goal in goals::found(results) {
        let met = word(goal.met);
        line(
            text,
            &[
                &goal.what,
                &goal.value,
                &goal.span,
                &goal.goal,
                goal.processor,
                met,
            ],
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
        let name = format!("{}.svg", group.name);
        let path = plots.join(&name);
        let curves = curves(&tables);
        let drawn = if curves.is_empty() {
            plot::bars(
                &plot::panels(&tables),
                &path,
                &plot::heading(&tables, group.title),
            )?
        } else {
            plot::lines(
                &curves,
                &path,
                "CPU time of an operation, by how many others there are",
            )?
        };
        if drawn {
            picture(text, group.title, &name);
        }
        overview(&tables, text);
        for table in tables {
            detail(table, text);
        }
    }
    // From a separate package: simulators are no peers of a runtime.
    text.push('\n');
    text.push_str(include_str!("../../simulators/report.md"));
    not_measured(results, options, text);
    Ok(())
}

fn picture(text: &mut String, title: &str, name: &str) {
    let _ = write!(text, "\n![{title}](performance/{name})\n");
}

/// Returns the columns of tables in which the columns are sizes.
fn curves(tables: &[&Table]) -> Vec<Curves> {
    (tables.iter())
        .filter(|table| table.columns.iter().any(|column| column.key == GROWTH))
        .map(|table| {
            let sizes: Vec<_> = (table.columns.iter())
                .filter(|column| column.key.starts_with('n'))
                .collect();
            let curve = |row: &Row| Curve {
                program: row.program.clone(),
                costs: (sizes.iter())
                    .filter_map(|column| Some(row.values(&column.key)?.median))
                    .collect(),
            };
            Curves {
                title: table.title.clone(),
                sizes: (sizes.iter())
                    .filter_map(|column| Some(column.title.split(':').next()?.into()))
                    .collect(),
                curves: (table.rows.iter().map(curve))
                    .filter(|curve| curve.costs.len() == sizes.len())
                    .collect(),
            }
        })
        .collect()
}

/// Lists what is missing on the page, and why.
fn not_measured(results: &Results, options: &Options, text: &mut String) {
    let mut lines: Vec<String> = Vec::new();
    for group in groups() {
        let title = group.title;
        for what in (group.missing)() {
            lines.push(format!("{title}: {what}"));
        }
        let workloads = (group.workloads)(options.short);
        let absent: Vec<&str> = (workloads.iter())
            .filter(|workload| results.table(group.name, &workload.name).is_none())
            .map(|workload| workload.name.as_str())
            .collect();
        if workloads.is_empty() {
            lines.push(format!(
                "{title}: it takes long, and the short mode is short"
            ));
        } else if absent.len() == workloads.len() {
            lines.push(format!("{title}: it was not run"));
        } else if !absent.is_empty() {
            lines.push(format!("{title}: {} were not run", absent.join(", ")));
        }
        // Listed once, even if several tables have it.
        let mut skipped: Vec<(String, Vec<&str>)> = Vec::new();
        for table in results
            .tables
            .iter()
            .filter(|table| table.group == group.name)
        {
            for remark in table.remarks() {
                match skipped.iter_mut().find(|(other, _)| *other == remark) {
                    Some((_, workloads)) => workloads.push(&table.workload),
                    None => skipped.push((remark, vec![&table.workload])),
                }
            }
        }
        for (remark, workloads) in skipped {
            lines.push(format!("{title} ({}): {remark}", workloads.join(", ")));
        }
    }
    text.push_str("\n## Not measured\n\n");
    if lines.is_empty() {
        text.push_str("Nothing was left out.\n");
    }
    for line in lines {
        let _ = writeln!(text, "* {line}.");
    }
}

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

const TITLE: &str = "\
# Benchmark report

All results of one run of `benches/compare`, its goals, and what was tried to reach them: for contributors. [PERFORMANCE.md](PERFORMANCE.md) has what a user asks first.
";

const ABOUT: &str = "
This page is written by

```text
cargo run --release --manifest-path benches/compare/Cargo.toml -- run
```

and every figure comes from it; do not edit it. (`run --short` takes less than three minutes and
writes its page beside the results, `run --only pairs` measures one chapter anew, `report` writes the
page from the results that are there, and `agree OLD NEW` compares the results of two runs.)

Every measurement is a process of its own, which warms up, then measures once. The programs of a
table take turns, so that what else the machine does hits all of them; a ratio is formed within a
round, and has its quartiles below it. Times depend on the machine; **ratios are what to read**. All are built alike: cargo's release
profile with one code generation unit a crate, without link-time optimisation, which has a chapter.
The peers in C and C++ take part where the system's compiler and their headers are (Debian: `apt-get
install g++ libboost-dev libuv1-dev`), built with `-O2`; `wrk` and valgrind where they are installed.
";

fn line(text: &mut String, cells: &[&str]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// Writes the result of all tables, one line each: the ratios of the first column, or the growth.
fn overview(tables: &[&Table], text: &mut String) {
    let grows = |table: &&&Table| table.columns.iter().any(|column| column.key == GROWTH);
    let ratios = |table: &&&Table| table.columns.first().is_some_and(|column| column.ratio);
    let growing: Vec<&&Table> = tables.iter().filter(grows).collect();
    let compared: Vec<&&Table> = tables.iter().filter(ratios).collect();
    let (tables, about) = match (growing.len(), compared.len()) {
        (2.., _) => (growing, "Among the most, to among the fewest.".to_string()),
        (_, 2..) => {
            let mut yardsticks: Vec<&str> = (compared.iter())
                .map(|table| table.yardstick.as_str())
                .collect();
            yardsticks.dedup();
            let about = format!(
                "Ratios to {}: of {}.",
                yardsticks.join(", "),
                titles(&compared)
            );
            (compared, about)
        }
        _ => return,
    };
    let mut programs: Vec<&str> = Vec::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        if !programs.contains(&row.program.as_str()) {
            programs.push(&row.program);
        }
    }
    let _ = write!(text, "\n### All in one\n\n{about}\n\n");
    let value = |table: &Table, program: &str| {
        let column = &table.columns[0];
        let value = table.row(program).and_then(|row| {
            if column.ratio {
                row.ratios(table.yardstick()?, &column.key)
            } else {
                row.values(GROWTH)
            }
        });
        value.map_or("–".into(), |value| ratio(value.median))
    };
    // The longer side goes down the page, which is narrow. As a column's head a table has its short
    // name, which its own heading has too.
    let mut lines: Vec<Vec<String>> = Vec::new();
    if programs.len() > tables.len() {
        lines.push(tables.iter().map(|table| table.workload.clone()).collect());
        lines[0].insert(0, String::new());
        for program in programs {
            let mut cells = vec![program.into()];
            cells.extend(tables.iter().map(|table| value(table, program)));
            lines.push(cells);
        }
    } else {
        lines.push(programs.iter().copied().map(String::from).collect());
        lines[0].insert(0, String::new());
        for table in tables {
            let mut cells = vec![table.title.clone()];
            cells.extend(programs.iter().map(|program| value(table, program)));
            lines.push(cells);
        }
    }
    figures(text, &lines);
}

/// Writes a table, the head first, with numbers in all columns but the first.
fn figures(text: &mut String, lines: &[Vec<String>]) {
    for (index, cells) in lines.iter().enumerate() {
        line(text, &cells.iter().map(String::as_str).collect::<Vec<_>>());
        if index == 0 {
            let _ = writeln!(text, "|---|{}", "--:|".repeat(cells.len() - 1));
        }
    }
}

fn titles(tables: &[&&Table]) -> String {
    let mut titles: Vec<&str> = tables
        .iter()
        .map(|table| table.columns[0].title.as_str())
        .collect();
    // Checking neighbours is not enough: tables of one kind are not always adjacent.
    let mut seen = Vec::new();
    titles.retain(|title| {
        let new = !seen.contains(title);
        seen.push(*title);
        new
    });
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
    figures(text, &table.cells_of_page());
    let _ = write!(text, "\nMedians of {rounds}.");
    for remark in table.remarks() {
        let _ = write!(text, " Left out: {remark}.");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Column;

    fn table(workload: &str, programs: &[&str]) -> Table {
        let row = |program: &&str| Row {
            program: program.to_string(),
            rounds: vec![Some([("ns".to_string(), 2.0)].into_iter().collect())],
            skipped: None,
        };
        Table {
            group: "pairs".into(),
            workload: workload.into(),
            title: format!("Title of {workload}"),
            yardstick: programs[0].into(),
            columns: vec![Column {
                key: "ns".into(),
                title: "ns".into(),
                ratio: true,
            }],
            rows: programs.iter().map(row).collect(),
        }
    }

    fn overview_of(programs: &[&str]) -> String {
        let tables = [table("tcp-1", programs), table("unix-1", programs)];
        let mut text = String::new();
        overview(&tables.iter().collect::<Vec<_>>(), &mut text);
        text
    }

    #[test]
    fn overview_has_longer_side_as_rows() {
        let few = overview_of(&["raw", "tokio"]);
        assert!(few.ends_with(
            "|  | raw | tokio |\n|---|--:|--:|\n\
            | Title of tcp-1 | 1.000 | 1.000 |\n| Title of unix-1 | 1.000 | 1.000 |\n"
        ));
        let many = overview_of(&["raw", "tokio", "smol"]);
        assert!(many.ends_with(
            "|  | tcp-1 | unix-1 |\n|---|--:|--:|\n\
            | raw | 1.000 | 1.000 |\n| tokio | 1.000 | 1.000 |\n| smol | 1.000 | 1.000 |\n"
        ));
    }

    #[test]
    fn ratio_of_page_has_quartiles_below_it() {
        let mut text = String::new();
        detail(&table("tcp-1", &["raw"]), &mut text);
        assert!(text.contains(
            "|  | ns | ratio to raw |\n|---|--:|--:|\n\
            | raw | 2.00 | 1.000<br><sub>1.000–1.000</sub> |\n"
        ));
    }
}

//! One frame: a head, the workers, the groups of tasks, and hints. All text from the program is
//! `Text`, and so harmless.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, StatefulWidget, Table, TableState, Widget, Wrap};

use crate::app::{App, Column, Link};
use crate::line::{Group, OpenSockets};
use crate::sample::{Limit, Quantiles, Sample, Worker};
use crate::text::{count, duration, number};

/// A line is late this many seconds after it was due.
const LATE: f64 = 3.0;

/// The number of characters in a worker's bar.
const BAR: usize = 20;

/// The maximum number of lines that are drawn: those of three runtimes with as many workers and
/// groups as one can have. A line of a thousand columns takes some 40 KB of memory.
pub const MAX_HEIGHT: u16 = 4_000;

const DIM: Style = Style::new().fg(Color::DarkGray);
const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);

/// Draws a frame. With `is_whole`, draws everything, without what is useful only on a terminal.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer, is_whole: bool) {
    let Some(sample) = &app.sample else {
        let words = match &app.link {
            Link::Down(why) => why.as_str(),
            _ => "waiting for the program",
        };
        Paragraph::new(words)
            .wrap(Wrap { trim: true })
            .render(area, buffer);
        return;
    };
    let hints = hints(sample, area.width);
    let foot = if is_whole {
        Vec::new()
    } else {
        foot(app, sample, area.width)
    };
    // Workers and hints may have a third of the screen each; the tasks have the rest. With
    // `is_whole` there is room for everything, unless it is more than `MAX_HEIGHT`.
    let has_room = is_whole && area.height < MAX_HEIGHT;
    let most = if has_room { u16::MAX } else { area.height / 3 };
    let heights = [
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Length(worker_lines(sample, most)),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(hints.len().min(usize::from(most)) as u16),
        Constraint::Length(foot.len().min(usize::from(most)) as u16),
    ];
    let [head, _, workers, _, tasks, below, end] = Layout::vertical(heights).areas(area);
    draw_head(app, sample, head, buffer);
    draw_workers(sample, workers, buffer);
    draw_tasks(app, sample, tasks, buffer, is_whole);
    Paragraph::new(hints).render(below, buffer);
    Paragraph::new(foot).render(end, buffer);
}

/// Returns the number of lines that it takes to draw everything, up to `MAX_HEIGHT`.
pub fn height(app: &App, width: u16) -> u16 {
    let Some(sample) = &app.sample else { return 1 };
    let table = 1 + sample.rows.len() + usize::from(sample.left_out.0 > 0);
    let rest = 6 + usize::from(worker_lines(sample, u16::MAX));
    let height = rest + table + hints(sample, width).len();
    height.min(usize::from(MAX_HEIGHT)) as u16
}

fn draw_head(app: &App, sample: &Sample, area: Rect, buffer: &mut Buffer) {
    let backends: Vec<&str> = sample.backends.iter().map(|it| it.as_str()).collect();
    let mut first = vec![
        Span::styled(sample.program.to_string(), TITLE),
        Span::raw(format!(
            "  process {}, up {}, {}, {}",
            sample.process,
            duration(sample.uptime),
            backends.join(" and "),
            count(sample.tasks, "task"),
        )),
    ];
    if let Some(open) = &sample.open_sockets {
        first.push(Span::raw(format!(", {}", sockets(open))));
    }
    if sample.unreported > 0 {
        first.push(format!(" ({} not reported)", number(sample.unreported as f64)).yellow());
    }
    if sample.runtimes_left_out > 0 {
        let left_out = count(sample.runtimes_left_out, "more runtime");
        first.push(format!(" and {left_out}").yellow());
    }
    if app.is_paused {
        first.push("  PAUSED".yellow().bold());
    }
    match &app.link {
        Link::Down(why) => first.push(format!("  GONE: {why}").red().bold()),
        _ => {
            let silence = app.silence().map_or(0.0, |it| it.as_secs_f64());
            if silence > sample.interval + LATE {
                first.push(format!("  no line for {}", duration(silence)).red().bold());
            }
        }
    }
    let mut second = Vec::new();
    match &sample.rates {
        Some(rates) => {
            for (name, value) in [
                ("polls", rates.polls),
                ("remote wakes", rates.wakes),
                ("spawned", rates.spawns),
                ("ended", rates.ends),
                ("events", rates.events),
                ("timers", rates.timers),
            ] {
                second.push(Span::styled(format!("{name} "), DIM));
                second.push(Span::raw(format!("{}/s  ", number(value))));
            }
        }
        None => second.push(Span::styled("rates come with the next line", DIM)),
    }
    let third = quantile_spans("polls take  ", &sample.poll_times);
    let fourth = quantile_spans("timers late ", &sample.lateness);
    let lines: Vec<Line> = [first, second, third, fourth].map(Line::from).into();
    Paragraph::new(lines).render(area, buffer);
}

/// Returns the sockets of which there are any.
fn sockets(open: &OpenSockets) -> String {
    let all = [
        (open.tcp_stream, "TCP stream"),
        (open.tcp_listener, "TCP listener"),
        (open.udp_socket, "UDP socket"),
        (open.unix_stream, "Unix stream"),
        (open.unix_listener, "Unix listener"),
        (open.unix_datagram, "Unix datagram socket"),
        (open.asyncs, "`Async` descriptor"),
    ];
    let some = all.into_iter().filter(|(number, _)| *number > 0);
    let some: Vec<String> = some.map(|(number, what)| count(number, what)).collect();
    if some.is_empty() {
        return "no open socket".into();
    }
    some.join(", ")
}

fn quantile_spans(name: &'static str, quantiles: &Quantiles) -> Vec<Span<'static>> {
    let mut spans = vec![Span::styled(name, DIM)];
    for (part, limit) in [
        ("50 %", quantiles.half),
        ("90 %", quantiles.most),
        ("99 %", quantiles.nearly_all),
        ("all", quantiles.longest),
    ] {
        let limit = match limit {
            Some(Limit::AtMost(seconds)) => format!("≤ {}", duration(seconds)),
            Some(Limit::MoreThan(seconds)) => format!("> {}", duration(seconds)),
            None => "–".into(),
        };
        spans.push(Span::styled(format!("{part} "), DIM));
        spans.push(Span::raw(format!("{limit:<9}  ")));
    }
    spans
}

fn worker_lines(sample: &Sample, most: u16) -> u16 {
    sample.workers.len().min(usize::from(most)) as u16
}

fn draw_workers(sample: &Sample, area: Rect, buffer: &mut Buffer) {
    let several = sample.workers.iter().any(|worker| worker.runtime > 0);
    let room = usize::from(area.height);
    let all = sample.workers.len();
    let shown = if all > room {
        room.saturating_sub(1)
    } else {
        all
    };
    let mut lines: Vec<Line> = (sample.workers[..shown].iter())
        .map(|worker| worker_line(worker, several))
        .collect();
    if shown < all {
        let left = count((all - shown) as u64, "more worker");
        lines.push(Line::styled(left, DIM));
    }
    Paragraph::new(lines).render(area, buffer);
}

fn worker_line(worker: &Worker, several: bool) -> Line<'static> {
    let name = if several {
        format!("runtime {} worker {:<3}", worker.runtime, worker.index)
    } else {
        format!("worker {:<3}", worker.index)
    };
    let load = worker.load.unwrap_or(0.0);
    let full = ((load * BAR as f64).round() as usize).min(BAR);
    let colour = match load {
        ..0.6 => Color::Green,
        ..0.9 => Color::Yellow,
        _ => Color::Red,
    };
    let percent = match worker.load {
        Some(load) => format!(" {:>4.0} %  ", load * 100.0),
        None => "    – %  ".into(),
    };
    let mut spans = vec![
        Span::raw(name),
        Span::styled("█".repeat(full), Style::new().fg(colour)),
        Span::styled("░".repeat(BAR - full), DIM),
        Span::raw(percent),
    ];
    let state = match (worker.state.as_str(), worker.since) {
        ("silent", since) => {
            let runs = worker.runs.as_ref().map_or("", |it| it.as_str());
            let since = since.map_or(String::new(), |since| format!(" for {}", duration(since)));
            let words = format!("DOES NOT ANSWER{since}: {runs}  ");
            spans.push(words.red().bold());
            return Line::from(spans);
        }
        ("not driven", _) => "NOT DRIVEN".yellow(),
        (state, _) => Span::raw(state.to_string()),
    };
    let pad = 10usize.saturating_sub(state.width());
    spans.push(state);
    spans.push(Span::raw(format!(
        "{:pad$} {:>7} polls/s  {}, {}, longest queue {}",
        "",
        worker.polls.map_or("–".into(), number),
        count(worker.tasks, "task"),
        count(worker.sources, "source"),
        number(worker.longest_queue as f64),
    )));
    Line::from(spans)
}

fn draw_tasks(app: &App, sample: &Sample, area: Rect, buffer: &mut Buffer, is_whole: bool) {
    let header = Column::ALL.map(|column| {
        let mark = match (column == app.sort, app.is_reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        let text = Line::from(format!("{}{mark}", column.title()));
        let text = if is_number(column) {
            text.right_aligned()
        } else {
            text
        };
        Cell::from(text)
    });
    let several = sample.rows.iter().any(|row| row.runtime > 0);
    let mut rows: Vec<Row> = (sample.rows.iter())
        .map(|row| {
            let group = &row.group;
            let mut place = match (&group.name, group.block_on) {
                (Some(name), _) => format!("\"{name}\" {}", place(group)),
                (None, true) => format!("block_on {}", place(group)),
                (None, false) => place(group).into(),
            };
            if several {
                place = format!("{place} in runtime {}", row.runtime);
            }
            let waits = group.waits_for.to_string();
            let waits = if waits.starts_with("does not read") {
                Span::raw(waits).yellow()
            } else {
                Span::raw(waits)
            };
            let numbers = [
                number(group.tasks as f64),
                row.polls.map_or("–".into(), number),
                duration(group.oldest),
                group.last_polled.map_or("never".into(), duration),
            ];
            let mut cells: Vec<Cell> = (numbers.into_iter())
                .map(|text| Cell::from(Line::from(text).right_aligned()))
                .collect();
            cells.push(Cell::from(group.state.to_string()));
            cells.push(Cell::from(waits));
            cells.push(Cell::from(place));
            Row::new(cells)
        })
        .collect();
    if sample.left_out.0 > 0 {
        let (groups, tasks) = sample.left_out;
        rows.push(Row::new([
            Cell::from(Line::from(number(tasks as f64)).right_aligned()),
            Cell::from(""),
            Cell::from(""),
            Cell::from(""),
            Cell::from(""),
            Cell::from("…"),
            Cell::from(format!("and {}", count(groups, "more group"))),
        ]));
    }
    let widths = [
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Fill(2),
        Constraint::Fill(3),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(TITLE))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = (!is_whole).then_some(app.selected);
    let mut state = TableState::new().with_selected(selected);
    StatefulWidget::render(table, area, buffer, &mut state);
}

/// Returns where the tasks were spawned; for a dependency, without the folder that cargo unpacks
/// into.
fn place(group: &Group) -> &str {
    let place = group.spawned_at.as_str();
    let unpacked = place.split_once("/registry/src/").map(|(_, rest)| rest);
    let of_crate = unpacked.and_then(|rest| rest.split_once('/'));
    of_crate.map_or(place, |(_, rest)| rest)
}

fn is_number(column: Column) -> bool {
    matches!(
        column,
        Column::Tasks | Column::Polls | Column::Oldest | Column::LastPolled
    )
}

/// Returns a blank line, and then each hint on as many lines as it takes.
fn hints(sample: &Sample, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for hint in &sample.hints {
        let words = format!("hint: {hint}");
        lines.extend(wrap(&words, usize::from(width)).into_iter().map(Line::from));
    }
    if sample.hints_left_out > 0 {
        lines.push(Line::from(format!(
            "hint: and {}",
            count(sample.hints_left_out, "more")
        )));
    }
    if !lines.is_empty() {
        lines.insert(0, Line::from(""));
    }
    lines.into_iter().map(|line| line.yellow()).collect()
}

/// Breaks text at spaces, and words that are too long anywhere.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(10);
    let mut lines = vec![String::new()];
    let mut room = width;
    for word in text.split(' ') {
        let taken = Span::raw(word).width();
        let is_first = room == width;
        if taken + usize::from(!is_first) <= room {
            let line = lines.last_mut().expect("there is one");
            if !is_first {
                line.push(' ');
            }
            line.push_str(word);
            room -= taken + usize::from(!is_first);
            continue;
        }
        if !is_first {
            lines.push(String::new());
            room = width;
        }
        for character in word.chars() {
            let taken = Span::raw(character.to_string()).width();
            if taken > room {
                lines.push(String::new());
                room = width;
            }
            lines.last_mut().expect("there is one").push(character);
            room -= taken;
        }
    }
    lines
}

/// Returns the whole selected group, which the table may have truncated; and the keys.
fn foot(app: &App, sample: &Sample, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from("")];
    if let Some(row) = sample.rows.get(app.selected) {
        let group = &row.group;
        let name = group
            .name
            .as_ref()
            .map_or(String::new(), |it| format!(" \"{it}\""));
        let waits = match group.waits_for.as_str() {
            "" => String::new(),
            waits => format!(" for: {waits}"),
        };
        let words = format!(
            "{}{name}: {}{waits}; not polled for {} at most",
            group.spawned_at,
            group.state,
            duration(group.idle),
        );
        lines.extend(wrap(&words, usize::from(width)).into_iter().map(Line::from));
    }
    let keys = "q ends   ↑ ↓ choose   ← → sort by   r turns round   p pauses";
    lines.push(Line::styled(keys, DIM));
    lines
}

/// Returns a frame as lines of text.
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut line = String::new();
        let mut x = buffer.area.left();
        while x < buffer.area.right() {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character is followed by an empty cell.
            x += (Span::raw(symbol).width() as u16).max(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

//! Writes a picture of polder-top, as in docs/top.svg: how it shows the two lines in
//! tests/program.jsonl, which the example `program` has sent.

use polder_top::app::App;
use polder_top::line::Line;
use polder_top::screen;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

const COLUMNS: u16 = 108;
const ROWS: u16 = 24;

/// The size of a character, in pixels.
const WIDTH: f64 = 7.8;
const HEIGHT: u16 = 18;

/// The space above the first row: a window's title.
const TOP: u16 = 36;
const MARGIN: f64 = 18.0;

const GROUND: &str = "#16222d";
const PLAIN: &str = "#d8e4ec";

#[allow(dead_code)] // It is a part of tests/screen.rs, too.
fn main() {
    print!("{}", picture());
}

pub fn picture() -> String {
    let mut app = App::default();
    for line in include_str!("../tests/program.jsonl").lines() {
        app.line(Line::parse(line.as_bytes()).expect("it is a line"));
    }
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, ROWS)).expect("it is memory");
    let frame = terminal.draw(|frame| screen::draw(&app, frame.area(), frame.buffer_mut(), false));
    svg(frame.expect("it is memory").buffer)
}

fn svg(buffer: &Buffer) -> String {
    let width = f64::from(COLUMNS) * WIDTH + 2.0 * MARGIN;
    let height = TOP + ROWS * HEIGHT + 14;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" role=\"img\" \
         aria-label=\"polder-top, looking at a program\">\n  \
         <rect width=\"{width:.0}\" height=\"{height}\" rx=\"8\" fill=\"{GROUND}\"/>\n"
    );
    for (index, colour) in ["e06c5a", "e0b15a", "6ab06f"].iter().enumerate() {
        let x = 18 + 18 * index;
        let _ = writeln!(
            out,
            "  <circle cx=\"{x}\" cy=\"18\" r=\"5\" fill=\"#{colour}\"/>"
        );
    }
    out.push_str(
        "  <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" \
         font-size=\"13\">\n",
    );
    for y in 0..ROWS {
        let mut x = 0;
        while x < COLUMNS {
            let start = x;
            let look = look(&buffer[(x, y)]);
            let mut text = String::new();
            while x < COLUMNS && self::look(&buffer[(x, y)]) == look {
                text.push_str(buffer[(x, y)].symbol());
                x += 1;
            }
            run(&mut out, start, y, &text, look);
        }
    }
    out.push_str("  </g>\n</svg>\n");
    out
}

#[derive(Clone, Copy, PartialEq)]
struct Look {
    colour: &'static str,
    is_bold: bool,
    is_reversed: bool,
    /// The opacity of a part of a bar.
    bar: Option<f64>,
}

fn look(cell: &Cell) -> Look {
    Look {
        colour: match cell.fg {
            Color::Red => "#e06c5a",
            Color::Yellow => "#e0b15a",
            Color::Green => "#6ab06f",
            Color::Cyan => "#8fd0ff",
            Color::DarkGray => "#6d8294",
            _ => PLAIN,
        },
        is_bold: cell.modifier.contains(Modifier::BOLD),
        is_reversed: cell.modifier.contains(Modifier::REVERSED),
        bar: match cell.symbol() {
            "█" => Some(1.0),
            "░" => Some(0.3),
            _ => None,
        },
    }
}

/// Draws adjacent cells of one row that look alike.
fn run(out: &mut String, x: u16, y: u16, text: &str, look: Look) {
    let left = MARGIN + f64::from(x) * WIDTH;
    let top = TOP + y * HEIGHT;
    let width = text.chars().count() as f64 * WIDTH;
    let ground = match look.bar {
        Some(opacity) => Some((look.colour, opacity)),
        None => look.is_reversed.then_some((look.colour, 1.0)),
    };
    if let Some((colour, opacity)) = ground {
        let (top, height) = match look.bar {
            Some(_) => (top + 3, HEIGHT - 6),
            None => (top, HEIGHT),
        };
        let _ = writeln!(
            out,
            "    <rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\" \
             fill=\"{colour}\" opacity=\"{opacity}\"/>"
        );
    }
    if look.bar.is_some() || text.trim().is_empty() {
        return;
    }
    let text = if look.is_reversed {
        text
    } else {
        text.trim_end()
    };
    let width = text.chars().count() as f64 * WIDTH;
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let weight = if look.is_bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let colour = if look.is_reversed {
        GROUND
    } else {
        look.colour
    };
    let base = top + 14;
    let _ = writeln!(
        out,
        "    <text xml:space=\"preserve\" x=\"{left:.1}\" y=\"{base}\" fill=\"{colour}\"{weight} \
         textLength=\"{width:.1}\">{text}</text>"
    );
}

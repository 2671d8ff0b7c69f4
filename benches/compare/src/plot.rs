//! Plots, as SVG: bars for ratios, a panel per table; lines for growth, a panel per operation. Each
//! bar or line has a label. On a dark ground, where a reader's browser prefers that, the colours of
//! [`DARK`] take the place of the others.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use crate::results::{Spread, Table, ratio};

/// Bars are cut off at this ratio; the number at the bar is the ratio itself.
const MAX_RATIO: f64 = 4.0;

const WIDTH: f64 = 1000.0;
const COLUMNS: usize = 2;
const MARGIN: f64 = 16.0;

/// Some bars with a heading.
pub struct Panel {
    pub title: String,
    pub bars: Vec<Bar>,
}

pub struct Bar {
    pub program: String,
    pub ratios: Spread,
}

/// Returns the ratios of each table's first column.
pub fn panels(tables: &[&Table]) -> Vec<Panel> {
    (tables.iter())
        .filter_map(|table| {
            let column = table.columns.first().filter(|column| column.ratio)?;
            let yardstick = table.yardstick()?;
            let bars: Vec<Bar> = (table.rows.iter())
                .filter_map(|row| {
                    Some(Bar {
                        program: row.program.clone(),
                        ratios: row.ratios(yardstick, &column.key)?,
                    })
                })
                .collect();
            (bars.len() > 1).then(|| Panel {
                title: table.title.clone(),
                bars,
            })
        })
        .collect()
}

/// Returns what the panels of the tables show, in words.
pub fn heading(tables: &[&Table], title: &str) -> String {
    let of = |word: fn(&Table) -> &str| {
        let mut words: Vec<&str> = Vec::new();
        for table in tables {
            if !words.contains(&word(table)) {
                words.push(word(table));
            }
        }
        words.join(", ")
    };
    let what = of(|table| table.columns.first().map_or("", |column| &column.title));
    let yardsticks = of(|table| &table.yardstick);
    format!(
        "{title}: {what}, as a ratio to {yardsticks}; the thin line goes from quartile to quartile"
    )
}

/// Draws bars. Returns whether there is anything to draw.
pub fn bars(panels: &[Panel], path: &Path, title: &str) -> io::Result<bool> {
    const LINE: f64 = 17.0;
    const HEAD: f64 = 24.0;
    const FOOT: f64 = 14.0;
    const NAMES: f64 = 124.0;
    const VALUES: f64 = 46.0;
    if panels.is_empty() {
        return Ok(false);
    }
    let height = |panel: &Panel| HEAD + panel.bars.len() as f64 * LINE + FOOT;
    // One column is filled before the next begins, as text is.
    let all: f64 = panels.iter().map(height).sum();
    let mut places = Vec::new();
    let (mut column, mut y, mut tallest) = (0, 0.0, 0.0_f64);
    for panel in panels {
        if y > 0.0 && column + 1 < COLUMNS && y + height(panel) / 2.0 > all / COLUMNS as f64 {
            column += 1;
            y = 0.0;
        }
        places.push((column, y));
        y += height(panel);
        tallest = tallest.max(y);
    }
    let top = 40.0;
    let each = WIDTH / COLUMNS as f64;
    let room = each - NAMES - VALUES - 2.0 * MARGIN;
    let most = (panels.iter().flat_map(|panel| &panel.bars))
        .map(|bar| bar.ratios.median)
        .fold(1.0, f64::max)
        .min(MAX_RATIO);
    let scale = room / most;
    let mut svg = Svg::new(top + tallest, title);
    for (panel, (column, y)) in panels.iter().zip(places) {
        let (left, mut y) = (column as f64 * each + MARGIN, top + y);
        svg.heading(left, y + 14.0, COLUMNS, &panel.title);
        y += HEAD;
        let zero = left + NAMES;
        for bar in &panel.bars {
            let middle = y + LINE / 2.0;
            let length = bar.ratios.median.min(most) * scale;
            let colour = colour(&bar.program);
            svg.text(zero - 6.0, middle + 4.0, 12, "end", "normal", &bar.program);
            svg.rectangle(zero, y + 2.0, length, LINE - 4.0, colour);
            let end = |ratio: f64| zero + ratio.min(most) * scale;
            let (below, above) = (end(bar.ratios.lower), end(bar.ratios.upper));
            svg.line(&[(below, middle), (above, middle)], "#000", 1.0);
            let after = above.max(zero + length) + 5.0;
            let value = ratio(bar.ratios.median);
            svg.text(after, middle + 4.0, 12, "start", "normal", &value);
            y += LINE;
        }
        let one = zero + scale;
        let bottom = y + 2.0;
        let above = bottom - 4.0 - panel.bars.len() as f64 * LINE;
        svg.line(&[(one, above), (one, bottom)], "#888", 0.7);
    }
    fs::write(path, svg.end())?;
    Ok(true)
}

/// The cost of an operation at each size, for one program.
pub struct Curve {
    pub program: String,
    pub costs: Vec<f64>,
}

pub struct Curves {
    pub title: String,
    pub sizes: Vec<String>,
    pub curves: Vec<Curve>,
}

/// Draws lines, of nanoseconds over sizes. Returns whether there is anything to draw.
pub fn lines(panels: &[Curves], path: &Path, title: &str) -> io::Result<bool> {
    const HIGH: f64 = 150.0;
    const PANEL: f64 = HIGH + 70.0;
    const LEFT: f64 = 56.0;
    const NAMES: f64 = 64.0;
    if panels.is_empty() {
        return Ok(false);
    }
    let top = 40.0;
    let each = WIDTH / COLUMNS as f64;
    let rows = panels.len().div_ceil(COLUMNS);
    let mut svg = Svg::new(top + rows as f64 * PANEL, title);
    for (place, panel) in panels.iter().enumerate() {
        let left = (place % COLUMNS) as f64 * each + MARGIN;
        let head = top + (place / COLUMNS) as f64 * PANEL;
        svg.heading(left, head + 14.0, COLUMNS, &panel.title);
        let most = (panel.curves.iter().flat_map(|curve| &curve.costs))
            .copied()
            .fold(0.0, f64::max)
            .max(1.0);
        let (zero, bottom) = (left + LEFT, head + 30.0 + HIGH);
        let right = left + each - NAMES - 2.0 * MARGIN;
        let step = (right - zero) / (panel.sizes.len().max(2) - 1) as f64;
        let high = |cost: f64| bottom - cost / most * HIGH;
        for cost in [0.0, most / 2.0, most] {
            let y = high(cost);
            svg.line(&[(zero, y), (right, y)], "#ddd", 1.0);
            let label = format!("{} ns", crate::results::number(cost));
            svg.text(zero - 6.0, y + 4.0, 11, "end", "normal", &label);
        }
        for (place, size) in panel.sizes.iter().enumerate() {
            let x = zero + place as f64 * step;
            svg.text(x, bottom + 16.0, 11, "middle", "normal", size);
        }
        // Names must not overlap.
        let mut ends: Vec<(&Curve, f64)> = (panel.curves.iter())
            .filter_map(|curve| Some((curve, high(*curve.costs.last()?))))
            .collect();
        ends.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut above = f64::INFINITY;
        for (curve, y) in ends {
            let points: Vec<(f64, f64)> = (curve.costs.iter().enumerate())
                .map(|(place, &cost)| (zero + place as f64 * step, high(cost)))
                .collect();
            let colour = colour(&curve.program);
            svg.line(&points, colour, 2.0);
            let name = y.min(above - 13.0);
            above = name;
            svg.text(
                right + 6.0,
                name + 4.0,
                12,
                "start",
                "normal",
                &curve.program,
            );
        }
    }
    fs::write(path, svg.end())?;
    Ok(true)
}

/// Returns the colour of a program. Each runtime has a family: polder's are blue.
fn colour(program: &str) -> &'static str {
    const COLOURS: [(&str, &str); 12] = [
        ("polder-poll", "#4292c6"),
        ("polder-select", "#9ecae1"),
        ("polder-epoll-busy", "#313695"),
        ("polder", "#08519c"),
        ("raw", "#8c8c8c"),
        ("tokio", "#e67924"),
        ("smol", "#4c9a4d"),
        ("compio", "#b03a38"),
        ("monoio", "#aa5aa0"),
        ("glommio", "#785a3c"),
        ("asio", "#46aaaa"),
        ("libuv", "#c4b03c"),
    ];
    (COLOURS.iter())
        .find(|(name, _)| program.starts_with(name))
        .map_or("#c8c8c8", |(_, colour)| colour)
}

/// Colours, and those for a dark ground: of the ground, the text, the lines, and of bars that would
/// be too dark.
const DARK: [(&str, &str); 9] = [
    ("#fff", "#0d1117"),
    ("#000", "#e6edf3"),
    ("#888", "#9198a1"),
    ("#ddd", "#3d444d"),
    ("#08519c", "#2f81e0"),
    ("#4292c6", "#6db3e2"),
    ("#9ecae1", "#bfe0f2"),
    ("#313695", "#8087e8"),
    ("#785a3c", "#a5825f"),
];

/// Returns the rules that replace the colours.
fn style() -> String {
    let rules: String = (DARK.iter())
        .map(|(light, dark)| {
            format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
        })
        .collect();
    format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n")
}

struct Svg(String);

impl Svg {
    fn new(height: f64, title: &str) -> Svg {
        let (height, style) = (height + MARGIN, style());
        let mut svg = Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\">\n{style}"
        ));
        svg.rectangle(0.0, 0.0, WIDTH, height, "#fff");
        svg.heading(MARGIN, 24.0, 1, title);
        svg
    }

    fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        let _ = writeln!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    fn line(&mut self, points: &[(f64, f64)], stroke: &str, width: f64) {
        let points: Vec<String> = (points.iter())
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            self.0,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>",
            points.join(" ")
        );
    }

    fn text(&mut self, x: f64, y: f64, size: u32, anchor: &str, weight: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
             font-weight=\"{weight}\" fill=\"#000\">{text}</text>"
        );
    }

    /// Writes the title of the picture, which is one column wide, or of a panel in one of several
    /// columns. It is narrowed to the width of its column if it may be wider.
    fn heading(&mut self, x: f64, y: f64, columns: usize, text: &str) {
        // The reader's font decides a character's width: `wide` times the size in a wide font.
        let (size, weight, wide) = match columns {
            1 => (15, "normal", 0.6),
            _ => (13, "bold", 0.66),
        };
        let room = WIDTH / columns as f64 - 2.0 * MARGIN;
        let start = self.0.len();
        self.text(x, y, size, "start", weight, text);
        if text.chars().count() as f64 * wide * f64::from(size) > room {
            let fits = format!("textLength=\"{room:.0}\" lengthAdjust=\"spacingAndGlyphs\" ");
            self.0.insert_str(start + "<text ".len(), &fits);
        }
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the part of an SVG line between these.
    fn between<'a>(line: &'a str, before: &str, after: &str) -> &'a str {
        let (_, rest) = line.split_once(before).expect("it is there");
        rest.split_once(after).expect("it ends").0
    }

    /// Plots in the repository are legible on a dark ground, and their headings have room.
    #[test]
    fn plot_headings_have_room() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance");
        let mut headings = 0;
        for entry in fs::read_dir(folder).expect("it is a folder") {
            let svg =
                fs::read_to_string(entry.expect("it can be read").path()).expect("it is text");
            assert!(svg.contains(&style()));
            let lines = svg.lines().filter(|line| line.starts_with("<text "));
            for line in lines {
                let columns = match line {
                    title if title.contains("font-size=\"15\"") => 1,
                    panel if panel.contains("font-weight=\"bold\"") => COLUMNS,
                    _ => continue,
                };
                let number = |name| between(line, name, "\"").parse().expect("a number");
                let text = between(line, ">", "</text>");
                let text = text.replace("&lt;", "<").replace("&amp;", "&");
                let mut written = Svg(String::new());
                written.heading(number(" x=\""), number(" y=\""), columns, &text);
                assert_eq!(written.0.trim_end(), line);
                headings += 1;
            }
        }
        assert!(headings > 20, "{headings}");
    }
}

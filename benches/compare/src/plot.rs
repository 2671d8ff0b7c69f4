//! Bars for ratios: a group of bars a table, a bar a program, with the rounds' span on it.

use std::io;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::results::{Spread, Table, ratio};

/// Ratios beyond that are cut off, and said in words.
const MOST: f64 = 4.0;

/// One program in one table.
struct Bar<'a> {
    program: &'a str,
    ratios: Spread,
}

/// Draws the first column's ratios. False: there is nothing to draw.
pub fn ratios(tables: &[&Table], path: &Path, title: &str) -> io::Result<bool> {
    let groups: Vec<(&str, Vec<Bar>)> = (tables.iter())
        .filter_map(|table| {
            let column = table.columns.first().filter(|column| column.ratio)?;
            let yardstick = table.yardstick()?;
            let bars: Vec<Bar> = (table.rows.iter())
                .filter(|row| row.program != table.yardstick)
                .filter_map(|row| {
                    Some(Bar {
                        program: &row.program,
                        ratios: row.ratios(yardstick, &column.key)?,
                    })
                })
                .collect();
            (!bars.is_empty()).then_some((table.workload.as_str(), bars))
        })
        .collect();
    if groups.is_empty() {
        return Ok(false);
    }
    let mut programs: Vec<&str> = Vec::new();
    for bar in groups.iter().flat_map(|(_, bars)| bars) {
        if !programs.contains(&bar.program) {
            programs.push(bar.program);
        }
    }
    let title = heading(tables, title);
    draw(&groups, &programs, path, &title).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(true)
}

/// What is drawn, in words.
fn heading(tables: &[&Table], title: &str) -> String {
    let of = |word: fn(&Table) -> &str| {
        let mut words: Vec<&str> = tables.iter().map(|table| word(table)).collect();
        words.dedup();
        words.join(", ")
    };
    let what = of(|table| table.columns.first().map_or("", |column| &column.title));
    let yardsticks = of(|table| &table.yardstick);
    format!("{title}: {what}, as a ratio to {yardsticks} (medians, with the rounds' span)")
}

/// A family of colours for each: polder's are blue.
fn colour(program: &str) -> RGBColor {
    const COLOURS: [(&str, RGBColor); 20] = [
        ("polder", RGBColor(8, 81, 156)),
        ("polder-epoll", RGBColor(8, 81, 156)),
        ("polder-epoll-busy", RGBColor(49, 54, 149)),
        ("polder-local", RGBColor(107, 174, 214)),
        ("polder-poll", RGBColor(66, 146, 198)),
        ("polder-polling", RGBColor(107, 174, 214)),
        ("polder-select", RGBColor(158, 202, 225)),
        ("raw-own", RGBColor(150, 150, 150)),
        ("raw", RGBColor(110, 110, 110)),
        ("tokio", RGBColor(230, 121, 36)),
        ("tokio-local", RGBColor(250, 176, 110)),
        ("tokio-mt", RGBColor(250, 176, 110)),
        ("tokio-mt1", RGBColor(250, 176, 110)),
        ("tokio-mt2", RGBColor(252, 212, 170)),
        ("smol", RGBColor(76, 154, 77)),
        ("compio-poll", RGBColor(226, 140, 138)),
        ("monoio-legacy", RGBColor(206, 158, 200)),
        ("glommio", RGBColor(120, 90, 60)),
        ("asio", RGBColor(70, 170, 170)),
        ("libuv", RGBColor(196, 176, 60)),
    ];
    match COLOURS.iter().find(|(name, _)| *name == program) {
        Some((_, colour)) => *colour,
        None if program.starts_with("monoio") => RGBColor(170, 90, 160),
        None if program.starts_with("compio") => RGBColor(176, 58, 56),
        None if program.starts_with("polder") => RGBColor(198, 219, 239),
        None => RGBColor(200, 200, 200),
    }
}

fn draw(
    groups: &[(&str, Vec<Bar>)],
    programs: &[&str],
    path: &Path,
    title: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    /// Between two groups, in bars.
    const GAP: f64 = 1.5;
    /// Of a row of the plot: so many bars.
    const ROW: f64 = 42.0;
    // Groups go into rows, as text does.
    let mut rows: Vec<Vec<&(&str, Vec<Bar>)>> = vec![Vec::new()];
    let mut width = 0.0;
    for group in groups {
        let wanted = group.1.len() as f64 + GAP;
        if width > 0.0 && width + wanted > ROW {
            rows.push(Vec::new());
            width = 0.0;
        }
        width += wanted;
        rows.last_mut().expect("there is one").push(group);
    }
    let legend = 22 * programs.len().div_ceil(6) as u32 + 16;
    let size = (1000, 48 + legend + 260 * rows.len() as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let heading = ("sans-serif", 18).into_font().color(&BLACK);
    root.draw(&Text::new(title.to_string(), (16, 12), heading))?;
    let small = ("sans-serif", 13).into_font().color(&BLACK);
    for (place, program) in programs.iter().enumerate() {
        let (x, y) = (20 + (place % 6) as i32 * 160, 44 + (place / 6) as i32 * 22);
        let fill = colour(program).filled();
        root.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], fill))?;
        root.draw(&Text::new(program.to_string(), (x + 18, y), small.clone()))?;
    }
    let (_, below) = root.split_vertically(40 + legend as i32);
    let areas = below.split_evenly((rows.len(), 1));
    for (area, row) in areas.iter().zip(&rows) {
        let ratios = row.iter().flat_map(|(_, bars)| bars);
        let most = ratios
            .map(|bar| bar.ratios.most)
            .fold(1.2, f64::max)
            .min(MOST)
            * 1.08;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(26)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..ROW + GAP, 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_labels(6)
            .light_line_style(WHITE)
            .label_style(("sans-serif", 12))
            .draw()?;
        // What the others are compared with.
        chart.draw_series(LineSeries::new(
            [(0.0, 1.0), (ROW + GAP, 1.0)],
            BLACK.stroke_width(1),
        ))?;
        let mut left = GAP / 2.0;
        for (name, bars) in row {
            let start = left;
            for bar in bars {
                let top = bar.ratios.median.min(most);
                let fill = colour(bar.program).filled();
                chart.draw_series([Rectangle::new(
                    [(left + 0.08, 0.0), (left + 0.92, top)],
                    fill,
                )])?;
                let middle = left + 0.5;
                let (least, above) = (bar.ratios.least.min(most), bar.ratios.most.min(most));
                chart.draw_series([PathElement::new(
                    vec![(middle, least), (middle, above)],
                    BLACK,
                )])?;
                if bar.ratios.median > most {
                    let up = Pos::new(HPos::Right, VPos::Center);
                    let font = ("sans-serif", 11).into_font().color(&WHITE);
                    let font = font.transform(FontTransform::Rotate270).pos(up);
                    chart.draw_series([Text::new(
                        ratio(bar.ratios.median),
                        (middle, most * 0.98),
                        font,
                    )])?;
                }
                left += 1.0;
            }
            let centre = chart.backend_coord(&((start + left) / 2.0, 0.0));
            let (x, y) = area.get_base_pixel();
            let below = small.pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(
                name.to_string(),
                (centre.0 - x, centre.1 - y + 6),
                below,
            ))?;
            left += GAP;
        }
    }
    root.present()?;
    Ok(())
}

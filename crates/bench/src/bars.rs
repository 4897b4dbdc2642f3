//! Bar charts with one labelled row for each competitor.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::style::{BLUE, GRID, ORANGE, fitting, number, widest};

/// A horizontal bar chart: one bar for each row.
#[derive(Clone, Debug)]
pub struct Bars<'a> {
    /// The title above the chart.
    pub title: &'a str,
    /// The label of the axis: the unit, and which direction is better.
    pub axis: &'a str,
    /// The names of group 0 and of group 1 in the legend.
    pub groups: [&'a str; 2],
    /// The rows from top to bottom.
    pub rows: Vec<Bar>,
}

/// One row of the chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name of the row.
    pub label: String,
    /// The value; negative values are drawn as 0.
    pub value: f64,
    /// The group of the row. Rows of one group have the same color.
    pub group: usize,
}

/// Draws the chart as an SVG file.
///
/// # Errors
/// If there is no row, or the file cannot be written.
pub fn bars(plot: &Bars<'_>, path: &Path) -> Result<()> {
    if plot.rows.is_empty() {
        return Err(anyhow!("no measurements for {}", path.display()));
    }
    draw(plot, path)
        .map_err(|error| anyhow!("{error}"))
        .with_context(|| format!("drawing {}", path.display()))
}

fn draw(
    plot: &Bars<'_>,
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let count = plot.rows.len();
    let height = u32::try_from(count)? * ROW_PIXELS + 130;
    let root = SVGBackend::new(path, (WIDTH_PIXELS, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let font = fitting(plot.title, TITLE_FONT, WIDTH_PIXELS - 2 * MARGIN_PIXELS);
    let text = |font: u32| ("sans-serif", font).into_font().color(&BLACK);
    root.draw_text(plot.title, &text(font), (MARGIN_PIXELS as i32, MARGIN_PIXELS as i32))?;
    let labels = widest(plot.rows.iter().map(|row| row.label.as_str()), FONT);
    let most = plot.rows.iter().map(|row| row.value).fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .margin(MARGIN_PIXELS)
        .margin_top(MARGIN_PIXELS + TITLE_FONT + 6)
        .margin_left(MARGIN_PIXELS + labels.min(WIDTH_PIXELS / 2))
        .x_label_area_size(52)
        // Leave room after the longest bar for its number.
        .build_cartesian_2d(0.0..most * 1.15, 0.0..count as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .max_light_lines(1)
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .x_labels(7)
        .label_style(text(FONT))
        .axis_desc_style(text(FONT))
        .x_label_formatter(&|value| number(*value))
        .x_desc(plot.axis)
        .draw()?;
    let middle = Pos::new(HPos::Left, VPos::Center);
    for (index, row) in plot.rows.iter().enumerate() {
        let (low, high) = ((count - index) as f64 - 0.85, (count - index) as f64 - 0.15);
        let value = row.value.max(0.0);
        let color = color(row.group).filled();
        chart.draw_series([Rectangle::new([(0.0, low), (value, high)], color)])?;
        let (x, y) = chart.backend_coord(&(value, (low + high) / 2.0));
        root.draw_text(&short(row.value), &text(FONT).pos(middle), (x + 5, y))?;
        root.draw_text(&row.label, &text(FONT).pos(middle), (MARGIN_PIXELS as i32, y))?;
    }
    // Draw the legend below the names of the rows, where there is free space.
    let (mut x, y) = (MARGIN_PIXELS as i32, i32::try_from(height - MARGIN_PIXELS)? - 8);
    for (group, name) in plot.groups.iter().enumerate() {
        let square = [(x, y - 6), (x + 12, y + 6)];
        root.draw(&Rectangle::new(square, color(group).filled()))?;
        root.draw_text(name, &text(FONT).pos(middle), (x + 18, y))?;
        x += i32::try_from(widest([*name], FONT))? + 44;
    }
    root.present()?;
    Ok(())
}

/// Blue and orange: distinguishable with every kind of color vision, and in gray.
fn color(group: usize) -> RGBColor {
    if group == 0 { BLUE } else { ORANGE }
}

/// Formats a value with three digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => number(value),
    }
}

const WIDTH_PIXELS: u32 = 960;
const ROW_PIXELS: u32 = 26;
const MARGIN_PIXELS: u32 = 16;
const TITLE_FONT: u32 = 24;
const FONT: u32 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_drawn_with_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bars.svg");
        let row = |label: &str, value| Bar { label: label.to_owned(), value, group: 0 };
        let rows = vec![row("first", 12.34), row("second", 12_345.6), row("third", -1.0)];
        bars(&Bars { title: "title", axis: "axis", groups: ["ours", "theirs"], rows }, &path)
            .unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        for text in [
            "title", "axis", "first", "second", "third", "12.3", "12,346", "-1.00", "ours",
            "theirs",
        ] {
            assert!(drawn.contains(text), "{text}");
        }
        let none =
            Bars { title: "title", axis: "axis", groups: ["ours", "theirs"], rows: Vec::new() };
        assert!(bars(&none, &path).is_err());
    }
}

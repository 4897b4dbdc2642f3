//! Plots of which each row is somebody, with a bar as long as what was measured.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

/// A plot of bars.
#[derive(Clone, Debug)]
pub struct Bars<'a> {
    /// Above it.
    pub title: &'a str,
    /// The unit, and what is good.
    pub axis: &'a str,
    /// From top to bottom.
    pub rows: Vec<Bar>,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Who.
    pub label: String,
    /// How much; at least 0 is shown.
    pub value: f64,
    /// Rows of one group have one color.
    pub group: usize,
}

/// Draws an SVG.
///
/// # Errors
/// If there is no row, or the file cannot be written.
pub fn bars(plot: &Bars<'_>, path: &Path) -> Result<()> {
    if plot.rows.is_empty() {
        return Err(anyhow!("nothing was measured that {} could show", path.display()));
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
    let height = u32::try_from(count)? * ROW_PIXELS + 110;
    let root = SVGBackend::new(path, (WIDTH_PIXELS, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = plot.rows.iter().map(|row| row.value).fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(plot.title, ("sans-serif", 20))
        .margin(12)
        .margin_left(LABEL_PIXELS)
        .x_label_area_size(44)
        // Room behind the longest bar for its number.
        .build_cartesian_2d(0.0..most * 1.15, 0.0..count as f64)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().x_desc(plot.axis).draw()?;
    for (index, row) in plot.rows.iter().enumerate() {
        let (low, high) = ((count - index) as f64 - 0.85, (count - index) as f64 - 0.15);
        let value = row.value.max(0.0);
        let color = Palette99::pick(row.group).filled();
        chart.draw_series([Rectangle::new([(0.0, low), (value, high)], color)])?;
        let number = Text::new(
            format!(" {}", short(row.value)),
            (value, high),
            ("sans-serif", 13).into_font(),
        );
        chart.draw_series([number])?;
        let (_, y) = chart.backend_coord(&(0.0, (low + high) / 2.0));
        let style = ("sans-serif", 13).into_font().into_text_style(&root);
        root.draw_text(&row.label, &style, (8, y - 7))?;
    }
    root.present()?;
    Ok(())
}

/// Three digits are enough.
fn short(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

const WIDTH_PIXELS: u32 = 900;
const ROW_PIXELS: u32 = 24;
const LABEL_PIXELS: u32 = 420;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_drawn_with_its_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bars.svg");
        let row = |label: &str, value| Bar { label: label.to_owned(), value, group: 0 };
        let rows = vec![row("first", 12.34), row("second", 0.0), row("third", -1.0)];
        bars(&Bars { title: "title", axis: "axis", rows }, &path).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        for text in ["title", "axis", "first", "second", "third", "12.3", "-1.00"] {
            assert!(drawn.contains(text), "{text}");
        }
        let none = Bars { title: "title", axis: "axis", rows: Vec::new() };
        assert!(bars(&none, &path).is_err());
    }
}

//! Line charts with a legend beside them.
//!
//! Invariant: the legend has a column of its own, so that it covers no part of the chart. Its rows
//! are in the vertical order of the lines' rightmost points.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::style::{FINE_GRID, GRID, LINE_PIXELS, Style, fitting, number, styles, widest};

/// A line chart.
pub(crate) struct Lines<'a> {
    /// The title above the chart.
    pub title: &'a str,
    /// The label of the horizontal axis, which is scaled by powers of two.
    pub across: &'a str,
    /// Formats a value of the horizontal axis.
    pub written: fn(f64) -> String,
    /// The label of the vertical axis.
    pub up: &'a str,
    /// True if the vertical axis is scaled by powers of ten; otherwise it starts at 0.
    pub is_logarithmic: bool,
    /// The lines. Their order decides the dashes of lines with the same color.
    pub lines: Vec<Line>,
}

/// One line of the chart.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The name of the line.
    pub label: String,
    /// Pairs of horizontal and vertical value.
    pub points: Vec<(f64, f64)>,
}

type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Lines<'_> {
    /// Draws the chart as an SVG file.
    ///
    /// # Errors
    /// If there is no point, or the file cannot be written.
    pub(crate) fn draw(&self, path: &Path) -> Result<()> {
        if self.points().next().is_none() {
            return Err(anyhow!("no measurements for {}", path.display()));
        }
        self.draw_to(path)
            .map_err(|error| anyhow!("{error}"))
            .with_context(|| format!("drawing {}", path.display()))
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> + Clone {
        self.lines.iter().flat_map(|line| &line.points)
    }

    fn draw_to(&self, path: &Path) -> Drawn<()> {
        let labels: Vec<&str> = self.lines.iter().map(|line| line.label.as_str()).collect();
        let styles = styles(&labels);
        let root = SVGBackend::new(path, (WIDTH_PIXELS, HEIGHT_PIXELS)).into_drawing_area();
        root.fill(&WHITE)?;
        let font = fitting(self.title, TITLE_FONT, WIDTH_PIXELS - 2 * MARGIN_PIXELS);
        root.draw_text(self.title, &text(font), (MARGIN_PIXELS as i32, MARGIN_PIXELS as i32))?;
        let (_, below) = root.split_vertically(MARGIN_PIXELS + TITLE_FONT);
        let legend_pixels = widest(labels, LEGEND_FONT) + SAMPLE_PIXELS as u32 + MARGIN_PIXELS;
        let (left, right) = below.split_horizontally(WIDTH_PIXELS - legend_pixels);
        let high = self.points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        if self.is_logarithmic {
            let low = self.points().map(|point| point.1).fold(high, f64::min).max(LEAST);
            let high = high.max(low);
            self.chart(&left, (low / 1.3..high * 1.3).log_scale(), &styles)?;
        } else {
            self.chart(&left, 0.0..high * 1.1, &styles)?;
        }
        self.legend(&right, &styles)?;
        root.present()?;
        Ok(())
    }

    fn chart<Y>(&self, area: &Area<'_>, up: Y, styles: &[Style]) -> Drawn<()>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let least = self.points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let most = self.points().map(|point| point.0).fold(least * 2.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN_PIXELS)
            // Leave room, because half of the last number of the axis is beyond the axis's end.
            .margin_right(MARGIN_PIXELS * 2)
            .x_label_area_size(48)
            .y_label_area_size(74)
            .build_cartesian_2d((least..most).log_scale().base(2.0), up)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(FINE_GRID)
            .max_light_lines(if self.is_logarithmic { 10 } else { 1 })
            .axis_style(BLACK)
            .label_style(text(AXIS_FONT))
            .axis_desc_style(text(LEGEND_FONT))
            .x_desc(self.across)
            .y_desc(self.up)
            .x_label_formatter(&|value| (self.written)(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        for (line, look) in self.lines.iter().zip(styles) {
            let points = line.points.iter().copied();
            let style = look.color.stroke_width(LINE_PIXELS);
            match look.dashes() {
                None => drop(chart.draw_series([PathElement::new(line.points.clone(), style)])?),
                Some((dash, gap)) => {
                    chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?;
                }
            }
        }
        for (line, look) in self.lines.iter().zip(styles) {
            // Markers are drawn in pixels, above all lines.
            for point in &line.points {
                let (x, y) = chart.backend_coord(point);
                let (x0, y0) = area.get_base_pixel();
                mark(area, look, (x - x0, y - y0))?;
            }
        }
        Ok(())
    }

    fn legend(&self, area: &Area<'_>, styles: &[Style]) -> Drawn<()> {
        let mut rows: Vec<(&Line, &Style)> = self.lines.iter().zip(styles).collect();
        let end = |line: &Line| line.points.last().map_or(0.0, |point| point.1);
        rows.sort_by(|one, other| end(other.0).total_cmp(&end(one.0)));
        for (index, (line, look)) in rows.into_iter().enumerate() {
            let y = ROW_PIXELS * i32::try_from(index)? + ROW_PIXELS;
            let (from, to) = ((0, y), (SAMPLE_PIXELS - 8, y));
            let style = look.color.stroke_width(LINE_PIXELS);
            match look.dashes() {
                None => area.draw(&PathElement::new([from, to], style))?,
                Some((dash, gap)) => {
                    area.draw(&DashedPathElement::new([from, to], dash, gap, style))?;
                }
            }
            mark(area, look, ((SAMPLE_PIXELS - 8) / 2, y))?;
            let style = text(LEGEND_FONT).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw_text(&line.label, &style, (SAMPLE_PIXELS, y))?;
        }
        Ok(())
    }
}

fn mark(area: &Area<'_>, look: &Style, place: (i32, i32)) -> Drawn<()> {
    let (within, border) = look.marker(place);
    area.draw(&within)?;
    area.draw(&border)?;
    Ok(())
}

fn text<'a>(font: u32) -> TextStyle<'a> {
    ("sans-serif", font).into_font().color(&BLACK)
}

const WIDTH_PIXELS: u32 = 960;
const HEIGHT_PIXELS: u32 = 560;
const MARGIN_PIXELS: u32 = 16;
const TITLE_FONT: u32 = 24;
const LEGEND_FONT: u32 = 16;
const AXIS_FONT: u32 = 15;
/// The length of a line's sample in the legend, with the gap after it.
const SAMPLE_PIXELS: i32 = 52;
const ROW_PIXELS: i32 = 26;
/// The smallest value of a logarithmic axis, which cannot show 0.
const LEAST: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the texts in a drawing, each with its left edge in pixels.
    fn texts(drawn: &str) -> Vec<(f64, &str)> {
        let text = |element: &'_ str| -> Option<(f64, usize)> {
            let x = element.split_once("x=\"")?.1.split('"').next()?.parse().ok()?;
            Some((x, element.find('>')? + 1))
        };
        let elements = drawn.split("<text ").skip(1);
        let found = elements.filter_map(|element| {
            let (x, begin) = text(element)?;
            Some((x, element[begin..].split('<').next()?.trim()))
        });
        found.collect()
    }

    /// Returns the rightmost pixel of markers and lines to the left of the legend.
    fn rightmost(drawn: &str, column: f64) -> f64 {
        let points = drawn.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let across = points.flat_map(|points| {
            points.split_whitespace().filter_map(|point| point.split(',').next()?.parse().ok())
        });
        across.filter(|&x: &f64| x < column).fold(0.0, f64::max)
    }

    #[test]
    fn the_legend_is_beside_the_data_and_the_title_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines.svg");
        let line = |label: &str, value| Line {
            label: label.to_owned(),
            points: vec![(2048.0, value), (4096.0, value * 2.0)],
        };
        let title =
            "A title that is longer than the plot is wide, were it not made smaller, so it is";
        let mut plot = Lines {
            title,
            across: "block size",
            written: number,
            up: "MB/s",
            is_logarithmic: true,
            lines: vec![line("shm read x1", 5000.0), line("libnfs read x1", 100.0)],
        };
        plot.draw(&path).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        for text in [title, "block size", "MB/s", "shm read x1", "libnfs read x1", "10,000"] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(!drawn.contains(".0\n"), "{drawn}");
        let legend = texts(&drawn).into_iter().filter(|(_, text)| text.contains("read x1"));
        let column = legend.map(|(x, _)| x).fold(f64::INFINITY, f64::min);
        let sample = column - f64::from(SAMPLE_PIXELS);
        assert!(rightmost(&drawn, sample) + 16.0 < sample, "{drawn}");
        let (x, _) = texts(&drawn).into_iter().find(|(_, text)| *text == title).unwrap();
        assert!(x < 20.0 && fitting(title, TITLE_FONT, WIDTH_PIXELS - 32) < TITLE_FONT);
        plot.is_logarithmic = false;
        plot.draw(&path).unwrap();
        plot.lines.clear();
        assert!(plot.draw(&path).is_err());
    }
}

//! The graph: merge throughput over record density, one for each merge order.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::{MergeReport, MergeSeries};

/// Writes one SVG for each merge order into a directory; returns their paths.
///
/// # Errors
/// If a file cannot be written.
pub fn plot_merge(report: &MergeReport, directory: &Path) -> Result<Vec<PathBuf>> {
    let mut orders: Vec<usize> = report.points.iter().map(|point| point.order).collect();
    orders.sort_unstable();
    orders.dedup();
    let draw = |order: usize| {
        let path = directory.join(format!("merge-order-{order}.svg"));
        match draw(&report.series(order), order, &path) {
            Ok(()) => Ok(path),
            Err(error) => Err(anyhow!("drawing {}: {error}", path.display())),
        }
    };
    orders.into_iter().map(draw).collect()
}

fn draw(
    lines: &[MergeSeries],
    order: usize,
    path: &Path,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let least = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most = all().map(|point| point.0).fold(least * 2.0, f64::max);
    let high = all().map(|point| point.1).fold(1.0, f64::max);
    let root = SVGBackend::new(path, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("Merge of {order} files"), ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d((least..most).log_scale().base(2.0), 0.0..high * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("records of a megabyte")
        .y_desc("MB/s merged")
        .x_label_formatter(&|density| format!("{density:.0}"))
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(
                LineSeries::new(line.points.iter().copied(), color.stroke_width(2)).point_size(3),
            )?
            .label(&line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

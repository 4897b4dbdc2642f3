//! The merge graph: throughput against record density, one chart for each merge order.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::MergeReport;
use crate::lines::{Line, Lines};
use crate::style::number;

/// Writes one SVG file for each merge order into a directory and returns their paths.
///
/// # Errors
/// If a file cannot be written.
pub fn plot_merge(report: &MergeReport, directory: &Path) -> Result<Vec<PathBuf>> {
    let mut orders: Vec<usize> = report.points.iter().map(|point| point.order).collect();
    orders.sort_unstable();
    orders.dedup();
    let draw = |order: usize| {
        let path = directory.join(format!("merge-order-{order}.svg"));
        let series = report.series(order).into_iter();
        let plot = Lines {
            title: &format!("Merge of {order} files"),
            across: "records per megabyte",
            written: number,
            up: "MB/s merged",
            is_logarithmic: false,
            lines: series.map(|line| Line { label: line.label, points: line.points }).collect(),
        };
        plot.draw(&path)?;
        Ok(path)
    };
    orders.into_iter().map(draw).collect()
}

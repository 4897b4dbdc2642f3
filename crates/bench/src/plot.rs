//! Plots after Figures 4 to 7 of the DAFS paper.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use crate::measure::Figure;
use crate::peers::{DEPTH_MAX, Kind, Label};
use crate::report::{Report, bytes};

/// Writes one SVG for each figure of the paper into a directory, if anything was measured that
/// it shows; returns their paths.
///
/// # Errors
/// If a file cannot be written.
pub fn plot(report: &Report, directory: &Path) -> Result<Vec<PathBuf>> {
    let plots = [
        Plot {
            file: "figure-4-throughput-synchronous.svg",
            title: "Reads, one at a time",
            axis: "MB/s",
            depth: 1,
            value: |figure| figure.throughput / 1e6,
        },
        Plot {
            file: "figure-5-throughput-in-flight.svg",
            title: "Reads, 32 in flight",
            axis: "MB/s",
            depth: DEPTH_MAX,
            value: |figure| figure.throughput / 1e6,
        },
        Plot {
            file: "figure-6-client-cpu-synchronous.svg",
            title: "Client CPU, one read at a time",
            axis: "microseconds for each operation",
            depth: 1,
            value: |figure| figure.client_cpu_us,
        },
        Plot {
            file: "figure-7-client-cpu-in-flight.svg",
            title: "Client CPU, 32 reads in flight",
            axis: "microseconds for each operation",
            depth: DEPTH_MAX,
            value: |figure| figure.client_cpu_us,
        },
    ];
    let filled = plots.iter().filter(|plot| plot.figures(report).next().is_some());
    filled.map(|plot| plot.draw(report, directory)).collect()
}

struct Plot {
    file: &'static str,
    title: &'static str,
    axis: &'static str,
    depth: usize,
    value: fn(&Figure) -> f64,
}

impl Plot {
    /// Remote peers at this depth, and the machine's limits.
    fn shows(&self, label: Label) -> bool {
        match label.kind {
            Kind::Read if label.is_remote() => label.depth == self.depth,
            Kind::Read => label.depth == 1 || label.depth == self.depth,
            Kind::Echo => label.peer == "tcp echo" && self.depth == 1,
            Kind::Write => false,
        }
    }

    fn figures<'r>(&self, report: &'r Report) -> impl Iterator<Item = &'r Figure> + Clone {
        report.figures.iter().filter(|figure| self.shows(figure.label))
    }

    fn draw(&self, report: &Report, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(self.file);
        let failed = || format!("drawing {}", path.display());
        self.lines(report, &path).map_err(|error| anyhow!("{error}")).with_context(failed)?;
        Ok(path)
    }

    fn lines(
        &self,
        report: &Report,
        path: &Path,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let shown = || self.figures(report);
        let low = shown().map(self.value).fold(f64::INFINITY, f64::min).max(0.01);
        let high = shown().map(self.value).fold(low, f64::max);
        let sizes = shown().map(|figure| figure.block_bytes as f64);
        let smallest = sizes.clone().fold(f64::INFINITY, f64::min).min(1e6);
        let largest = sizes.fold(smallest * 2.0, f64::max);
        let root = SVGBackend::new(path, (900, 560)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(
                (smallest..largest).log_scale().base(2.0),
                (low / 1.5..high * 1.5).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("block size")
            .y_desc(self.axis)
            .x_label_formatter(&|size| bytes(*size as usize))
            .draw()?;
        let mut labels: Vec<Label> = Vec::new();
        for figure in shown() {
            if !labels.contains(&figure.label) {
                labels.push(figure.label);
            }
        }
        for (index, label) in labels.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            let points = shown()
                .filter(|figure| figure.label == *label)
                .map(|figure| (figure.block_bytes as f64, (self.value)(figure)));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
                .label(label.to_string())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: Kind) -> Report {
        let figure = Figure {
            label: Label { peer: "shm", kind, depth: 1, sleeps: false },
            block_bytes: 4096,
            wall_us: 2.0,
            throughput: 2e9,
            latency_us_p50: 2.0,
            latency_us_p99: 3.0,
            client_cpu_us: 1.0,
            server_cpu_us: None,
        };
        Report { figures: vec![figure], ..Report::default() }
    }

    #[test]
    fn only_what_was_measured_is_drawn() {
        let directory = tempfile::tempdir().unwrap();
        // Axes without a point would reach to infinity.
        assert!(plot(&report(Kind::Write), directory.path()).unwrap().is_empty());
        let drawn = plot(&report(Kind::Read), directory.path()).unwrap();
        assert_eq!(drawn.len(), 2);
        for path in drawn {
            assert!(std::fs::read_to_string(path).unwrap().contains("shm read x1"));
        }
    }
}

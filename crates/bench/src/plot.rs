//! Charts after Figures 4 to 7 of the DAFS paper.

use std::path::{Path, PathBuf};

use crate::lines::{Line, Lines};
use crate::measure::Figure;
use crate::peers::{DEPTH_MAX, Kind, Label};
use crate::report::bytes;
use anyhow::Result;

/// Writes one SVG file for each figure of the paper for which there are measurements, and returns
/// their paths.
///
/// # Errors
/// If a file cannot be written.
pub fn plot(figures: &[Figure], directory: &Path) -> Result<Vec<PathBuf>> {
    let plots = [
        Plot {
            file: "figure-4-throughput-synchronous.svg",
            title: "Reads of a cached file, one at a time",
            axis: "MB/s",
            depth: 1,
            value: |figure| figure.throughput / 1e6,
        },
        Plot {
            file: "figure-5-throughput-in-flight.svg",
            title: "Reads of a cached file, 32 in flight",
            axis: "MB/s",
            depth: DEPTH_MAX,
            value: |figure| figure.throughput / 1e6,
        },
        Plot {
            file: "figure-6-client-cpu-synchronous.svg",
            title: "Client CPU, one read at a time",
            axis: "microseconds per read",
            depth: 1,
            value: |figure| figure.client_cpu_us,
        },
        Plot {
            file: "figure-7-client-cpu-in-flight.svg",
            title: "Client CPU, 32 reads in flight",
            axis: "microseconds per read",
            depth: DEPTH_MAX,
            value: |figure| figure.client_cpu_us,
        },
    ];
    let filled = plots.iter().filter(|plot| plot.figures(figures).next().is_some());
    filled.map(|plot| plot.draw(figures, directory)).collect()
}

struct Plot {
    file: &'static str,
    title: &'static str,
    axis: &'static str,
    depth: usize,
    value: fn(&Figure) -> f64,
}

impl Plot {
    /// Returns true if the plot contains this competitor: a remote competitor with the plot's
    /// depth, or a limit of the machine.
    fn shows(&self, label: Label) -> bool {
        match label.kind {
            Kind::Read if label.is_remote() => label.depth == self.depth,
            Kind::Read => label.depth == 1 || label.depth == self.depth,
            Kind::Echo => label.peer == "tcp echo" && self.depth == 1,
            Kind::Write => false,
        }
    }

    fn figures<'f>(&self, figures: &'f [Figure]) -> impl Iterator<Item = &'f Figure> + Clone {
        figures.iter().filter(|figure| self.shows(figure.label))
    }

    fn draw(&self, figures: &[Figure], directory: &Path) -> Result<PathBuf> {
        let mut lines: Vec<Line> = Vec::new();
        for figure in self.figures(figures) {
            let (label, x) = (figure.label.to_string(), figure.block_bytes as f64);
            let point = (x, (self.value)(figure));
            match lines.iter_mut().find(|line| line.label == label) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { label, points: vec![point] }),
            }
        }
        let path = directory.join(self.file);
        let plot = Lines {
            title: self.title,
            across: "block size",
            written: |size| bytes(size as usize),
            up: self.axis,
            is_logarithmic: true,
            lines,
        };
        plot.draw(&path)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(kind: Kind) -> [Figure; 1] {
        [Figure {
            label: Label { peer: "shm", kind, depth: 1, sleeps: false },
            block_bytes: 4096,
            wall_us: 2.0,
            throughput: 2e9,
            latency_us_p50: 2.0,
            latency_us_p99: 3.0,
            client_cpu_us: 1.0,
            server_cpu_us: None,
        }]
    }

    #[test]
    fn only_what_was_measured_is_drawn() {
        let directory = tempfile::tempdir().unwrap();
        // Axes without a point would be infinite.
        assert!(plot(&figures(Kind::Write), directory.path()).unwrap().is_empty());
        let drawn = plot(&figures(Kind::Read), directory.path()).unwrap();
        assert_eq!(drawn.len(), 2);
        for path in drawn {
            assert!(std::fs::read_to_string(path).unwrap().contains("shm read x1"));
        }
    }
}

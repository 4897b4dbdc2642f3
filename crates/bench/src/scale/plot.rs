//! One chart for each kind of work, with the line of linear growth for each transport.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Axis, Report, Work};
use crate::lines::{Line, Lines};
use crate::style::number;

/// Writes one SVG file for each kind of work that was measured, and returns their paths.
///
/// # Errors
/// If a file cannot be written.
pub fn plot_scale(report: &Report, directory: &Path) -> Result<Vec<PathBuf>> {
    let measured = |work: &Work| report.points.iter().any(|point| point.work == *work);
    let works = Work::ALL.into_iter().filter(measured);
    works.map(|work| draw(report, work, directory)).collect()
}

fn draw(report: &Report, work: Work, directory: &Path) -> Result<PathBuf> {
    let axis = report.axis();
    let mut lines = Vec::new();
    let mut is_conclusive = true;
    for transport in report.transports() {
        let line = report.line(work, transport);
        let Some(first) = line.first() else { continue };
        let is_sure = line.iter().all(|point| point.is_conclusive);
        is_conclusive &= is_sure;
        let at = |point: &super::Point| axis.of(point) as f64;
        let thousands = |point: &super::Point| point.operations_per_second / 1e3;
        let each = thousands(first) / at(first);
        let linear = line.iter().map(|point| (at(point), each * at(point))).collect();
        let points = line.iter().map(|point| (at(point), thousands(point))).collect();
        let label = if is_sure { transport.to_owned() } else { format!("{transport} ({UNSURE})") };
        lines.push(Line { label, points });
        lines.push(Line { label: format!("{transport}, linear"), points: linear });
    }
    let mut title = format!("{}; {} cores", work.name(), report.cores);
    if !is_conclusive {
        let most = report.clients_cores_max();
        let by_clients =
            report.points.iter().any(|point| point.work == work && point.client_cores > most);
        title.push_str(&match by_clients {
            true => format!("; no conclusion: clients took more than {most:.2} of them"),
            false => "; no conclusion: other programs were busy".to_owned(),
        });
    }
    let across = match axis {
        Axis::Reactors => {
            "reactors (for each, the number of clients with the most operations)".to_owned()
        }
        Axis::Clients => {
            let reactors = report.points.first().map_or(0, |point| point.reactors);
            format!("clients; reactors: {reactors}")
        }
    };
    let path = directory.join(work.file());
    let plot = Lines {
        title: &title,
        across: &across,
        written: whole,
        up: "thousand operations per second",
        is_logarithmic: false,
        lines,
    };
    plot.draw(&path)?;
    Ok(path)
}

/// Formats a number of clients or reactors. Returns an empty label between whole numbers.
fn whole(value: f64) -> String {
    if (value - value.round()).abs() < 1e-6 { number(value) } else { String::new() }
}

/// The note after the name of a line without a conclusion.
const UNSURE: &str = "no conclusion";

#[cfg(test)]
mod tests {
    use super::super::conclusions::tests::{point, report};
    use super::*;

    #[test]
    fn a_plot_has_the_linear_line_and_marks_inconclusive_lines() {
        let directory = tempfile::tempdir().unwrap();
        let drawn = |report: &Report| {
            let paths = plot_scale(report, directory.path()).unwrap();
            assert_eq!(paths.len(), 1);
            std::fs::read_to_string(&paths[0]).unwrap()
        };
        let said = drawn(&report(4, vec![point(1, 2, 100.0, 1.0), point(2, 2, 150.0, 1.0)]));
        assert!(said.contains("shm, linear") && said.contains("4 cores"), "{said}");
        assert!(!said.contains("no conclusion"), "{said}");
        let said = drawn(&report(2, vec![point(1, 1, 100.0, 0.5), point(1, 2, 150.0, 1.5)]));
        assert!(said.contains("no conclusion: clients took more than 1.00"), "{said}");
        assert!(said.contains("shm (no conclusion)") && said.contains("clients; reactors: 1"));
    }
}

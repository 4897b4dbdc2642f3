//! The table of a scaling report.

use std::io::Write;

use super::{Axis, Comparison, Conclusion, Report, Verdict, Work};

impl Report {
    /// Writes the measurements and the conclusions.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for work in Work::ALL {
            self.print_work(out, work)?;
        }
        writeln!(out)?;
        self.print_conclusions(out)
    }

    /// Writes the heading of the report.
    ///
    /// # Errors
    /// If the heading cannot be written.
    pub fn print_heading(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}; dafs {}", self.machine, self.version)?;
        writeln!(
            out,
            "Server and clients had {} cores. No conclusion is drawn where clients took more \
             than {:.2} of them, or other programs more than {:.2}.",
            self.cores,
            self.clients_cores_max(),
            self.others_cores_max()
        )?;
        writeln!(out, "A server has at most {} reactors.", self.reactors_max)
    }

    fn print_work(&self, out: &mut dyn Write, work: Work) -> std::io::Result<()> {
        let mut points = self.points.iter().filter(|point| point.work == work).peekable();
        if points.peek().is_none() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{}: {} in flight per client; processor time in microseconds per operation",
            work.name(),
            work.depth()
        )?;
        writeln!(
            out,
            "{:4} {:>8} {:>7} {:>11} {:>7} {:>8} {:>7} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} \
             {:>9} {:>9}",
            "",
            "reactors",
            "clients",
            "op/s",
            "x op/s",
            "server",
            "x CPU",
            "reactors",
            "pool",
            "clients",
            "s. cores",
            "busiest",
            "c. cores",
            "o. cores",
            "requests",
            "messages"
        )?;
        for point in points {
            let times = |of: fn(&Comparison) -> f64| match &point.against {
                Some(against) => format!("{:.2}", of(against)),
                None => "-".to_owned(),
            };
            let mark = if point.is_conclusive { "" } else { "  no conclusion" };
            writeln!(
                out,
                "{:4} {:>8} {:>7} {:>11.0} {:>7} {:>8.2} {:>7} {:>8.2} {:>8.2} {:>8.2} {:>9.2} \
                 {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2}{mark}",
                point.transport,
                point.reactors,
                point.clients,
                point.operations_per_second,
                times(|against| against.speedup),
                point.server_cpu_us,
                times(|against| against.server_cpu_ratio),
                point.reactor_cpu_us,
                point.pool_cpu_us,
                point.client_cpu_us,
                point.server_cores,
                point.busiest_reactor,
                point.client_cores,
                point.other_cores,
                point.requests,
                point.messages,
            )?;
        }
        Ok(())
    }

    fn print_conclusions(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for conclusion in &self.conclusions {
            let Conclusion { work, transport, axis, from, to, verdict } = conclusion;
            let what = format!("{transport} {}, {from} to {to} {}", work.name(), axis.unit());
            match verdict {
                Verdict::Drawn { speedup, part_of_linear, server_cpu_ratio, messages } => writeln!(
                    out,
                    "{what}: {speedup:.2} x, {part_of_linear:.2} of linear; per operation \
                     server CPU {server_cpu_ratio:.2} x and {messages:.2} messages"
                )?,
                Verdict::Refused { no_conclusion } => {
                    writeln!(out, "{what}: no conclusion: {no_conclusion}")?;
                }
            }
        }
        if self.axis() == Axis::Clients {
            writeln!(
                out,
                "Only one number of reactors was measured: no conclusion about more reactors."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::conclusions::tests::{point, report};

    #[test]
    fn the_table_names_inconclusive_points_and_reasons() {
        let printed = |report: &crate::scale::Report| {
            let mut out = Vec::new();
            report.print_heading(&mut out).unwrap();
            report.print(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let said = printed(&report(2, vec![point(1, 1, 100.0, 0.5), point(1, 2, 150.0, 1.5)]));
        assert!(said.contains("had 2 cores") && said.contains("more than 1.00"), "{said}");
        assert_eq!(said.matches("no conclusion").count(), 3, "{said}");
        assert!(said.contains("2 clients took 1.50 of 2 cores"), "{said}");
        assert!(said.contains("no conclusion about more reactors"), "{said}");
        let said = printed(&report(4, vec![point(1, 2, 100.0, 1.0), point(2, 2, 150.0, 1.0)]));
        assert!(said.contains("1 to 2 reactors: 1.50 x, 0.75 of linear"), "{said}");
        assert!(!said.contains("no conclusion"), "{said}");
    }
}

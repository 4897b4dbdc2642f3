//! What points say of scaling, and where they say nothing.

use serde::{Deserialize, Serialize};

use super::{Point, Report, Work};

/// What was varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// Reactors of the server. For each number of them the clients' number that got most counts.
    Reactors,
    /// Clients of one and the same number of reactors.
    Clients,
}

/// How one point stands to the first of its line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// What was done.
    pub work: Work,
    /// Over what.
    pub transport: String,
    /// What was varied.
    pub axis: Axis,
    /// How many of them the first point has, and this one.
    pub from: usize,
    /// As `from` for this point.
    pub to: usize,
    /// What can be said.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What can be said of two points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum Verdict {
    /// How they stand to each other.
    Drawn {
        /// Operations, as a multiple of the first point's.
        speedup: f64,
        /// That as a part of what growth along the line would be.
        part_of_linear: f64,
        /// The server's processor time for each operation, as a multiple of the first point's.
        server_cpu_ratio: f64,
    },
    /// Nothing.
    Refused {
        /// Why.
        no_conclusion: String,
    },
}

impl Axis {
    /// Where a point is along it.
    #[must_use]
    pub fn of(self, point: &Point) -> usize {
        match self {
            Self::Reactors => point.reactors,
            Self::Clients => point.clients,
        }
    }

    /// What its numbers count.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Reactors => "reactors",
            Self::Clients => "clients",
        }
    }
}

impl Report {
    /// Marks points at which clients or others have taken too many cores, and says what the rest
    /// shows.
    pub fn judge(&mut self) {
        let (clients_max, others_max) = (self.clients_cores_max(), self.others_cores_max());
        for point in &mut self.points {
            let Point { client_cores, other_cores, .. } = *point;
            point.is_conclusive = client_cores <= clients_max && other_cores <= others_max;
        }
        let mut conclusions = Vec::new();
        for work in Work::ALL {
            for transport in self.transports() {
                let line = self.line(work, transport);
                let Some((first, later)) = line.split_first() else { continue };
                conclusions.extend(later.iter().map(|point| self.compare(first, point)));
            }
        }
        self.conclusions = conclusions;
    }

    /// The most cores that clients may take where a conclusion is drawn.
    #[must_use]
    pub fn clients_cores_max(&self) -> f64 {
        self.cores as f64 * self.clients_share_max
    }

    /// The most that others may take there.
    #[must_use]
    pub fn others_cores_max(&self) -> f64 {
        self.cores as f64 * self.others_share_max
    }

    /// The points of one line of a plot, in the order of the axis.
    pub(super) fn line<'r>(&'r self, work: Work, transport: &'r str) -> Vec<&'r Point> {
        let axis = self.axis();
        let mut line: Vec<&'r Point> = Vec::new();
        for point in self.points_of(work, transport) {
            match line.iter_mut().find(|other| axis.of(other) == axis.of(point)) {
                Some(other) if point.operations_per_second > other.operations_per_second => {
                    *other = point;
                }
                Some(_) => {}
                None => line.push(point),
            }
        }
        line.sort_by_key(|point| axis.of(point));
        line
    }

    fn compare(&self, first: &Point, point: &Point) -> Conclusion {
        let axis = self.axis();
        let (from, to) = (axis.of(first), axis.of(point));
        let verdict = match [first, point].into_iter().find(|point| !point.is_conclusive) {
            Some(point) => Verdict::Refused { no_conclusion: self.refusal(point) },
            None => {
                let speedup = point.operations_per_second / first.operations_per_second;
                let part_of_linear = speedup * from as f64 / to as f64;
                let server_cpu_ratio = point.server_cpu_us / first.server_cpu_us;
                Verdict::Drawn { speedup, part_of_linear, server_cpu_ratio }
            }
        };
        let (work, transport) = (point.work, point.transport.clone());
        Conclusion { work, transport, axis, from, to, verdict }
    }

    fn refusal(&self, point: &Point) -> String {
        let Point { clients, client_cores, other_cores, .. } = point;
        let (who, took, most) = match self.clients_cores_max() {
            most if *client_cores > most => (format!("{clients} clients"), client_cores, most),
            _ => ("other programs".to_owned(), other_cores, self.others_cores_max()),
        };
        format!(
            "{who} took {took:.2} of {} cores, more than {most:.2}: what was measured is how the \
             machine was shared",
            self.cores
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn point(reactors: usize, clients: usize, rate: f64, client_cores: f64) -> Point {
        Point {
            work: Work::SmallOfMany,
            transport: "shm".into(),
            reactors,
            clients,
            operations_per_second: rate,
            spread: [rate, rate],
            server_cpu_us: 2.0,
            reactor_cpu_us: 2.0,
            pool_cpu_us: 0.0,
            client_cpu_us: 1.0,
            server_cores: 1.0,
            client_cores,
            other_cores: 0.0,
            requests: 1.0,
            messages: 0.0,
            is_conclusive: false,
        }
    }

    pub fn report(cores: usize, points: Vec<Point>) -> Report {
        let mut report = Report {
            machine: "a machine".into(),
            version: "0".into(),
            cores,
            clients_share_max: 0.5,
            others_share_max: 0.1,
            reactors_max: 4,
            round_seconds: 1.0,
            rounds: 1,
            points,
            conclusions: Vec::new(),
            operations: 1,
        };
        report.judge();
        report
    }

    #[test]
    fn where_clients_leave_half_of_the_cores_growth_is_stated() {
        let points =
            vec![point(1, 2, 100.0, 1.0), point(2, 2, 150.0, 1.0), point(2, 4, 160.0, 2.0)];
        let report = report(4, points);
        assert_eq!(report.axis(), Axis::Reactors);
        let [conclusion] = &report.conclusions[..] else { panic!("{:?}", report.conclusions) };
        assert_eq!((conclusion.from, conclusion.to), (1, 2));
        let Verdict::Drawn { speedup, part_of_linear, server_cpu_ratio } = conclusion.verdict
        else {
            panic!("{conclusion:?}")
        };
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(speedup, 1.6) && near(part_of_linear, 0.8) && near(server_cpu_ratio, 1.0));
    }

    #[test]
    fn where_others_take_a_tenth_of_the_cores_nothing_is_concluded() {
        for (other_cores, is_refused) in [(0.4, false), (0.41, true)] {
            let busy = Point { other_cores, ..point(1, 2, 150.0, 0.5) };
            let report = report(4, vec![point(1, 1, 100.0, 0.5), busy]);
            let verdict = &report.conclusions[0].verdict;
            match verdict {
                Verdict::Refused { no_conclusion } if is_refused => {
                    assert!(no_conclusion.contains("other programs took 0.41"), "{no_conclusion}");
                }
                verdict => assert!(!is_refused, "{verdict:?}"),
            }
        }
    }

    #[test]
    fn where_clients_take_more_nothing_is_concluded_whichever_point_it_is() {
        for points in [
            vec![point(1, 1, 100.0, 1.01), point(1, 2, 150.0, 0.5)],
            vec![point(1, 1, 100.0, 0.5), point(1, 2, 150.0, 1.01)],
        ] {
            let report = report(2, points);
            assert_eq!(report.axis(), Axis::Clients);
            let [conclusion] = &report.conclusions[..] else { panic!("{:?}", report.conclusions) };
            let Verdict::Refused { no_conclusion } = &conclusion.verdict else {
                panic!("{conclusion:?}")
            };
            assert!(no_conclusion.contains("1.01 of 2 cores"), "{no_conclusion}");
            assert_eq!(report.points.iter().filter(|point| !point.is_conclusive).count(), 1);
        }
    }
}

//! Conclusions about scaling from the measured points. Doubtful points give no conclusion.

use serde::{Deserialize, Serialize};

use super::{Comparison, Point, Report, Round, Work};
use crate::measure::median;

/// The quantity that a chart varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// The number of the server's reactors. For each number, the number of clients that reached the
    /// most operations is used.
    Reactors,
    /// The number of clients, with the same number of reactors.
    Clients,
}

/// A comparison of one point with the first point of its line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conclusion {
    /// The kind of work that the clients did.
    pub work: Work,
    /// The transport: `shm` or `tcp`.
    pub transport: String,
    /// The quantity that was varied.
    pub axis: Axis,
    /// The number of reactors or clients at the first point.
    pub from: usize,
    /// The number of reactors or clients at the second point, which is compared with the first.
    pub to: usize,
    /// The conclusion drawn from the ratio.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The conclusion about two points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum Verdict {
    /// The points can be compared.
    Drawn {
        /// The number of operations per second, divided by that of the first point.
        speedup: f64,
        /// The speedup, divided by the speedup of linear growth.
        part_of_linear: f64,
        /// The server's processor time per operation, divided by that of the first point.
        server_cpu_ratio: f64,
        /// The number of requests and notices between reactors, per operation of this point.
        messages: f64,
    },
    /// No conclusion can be drawn.
    Refused {
        /// The reason why no conclusion can be drawn.
        no_conclusion: String,
    },
}

impl Axis {
    /// Returns the number of reactors or clients of a point, as this axis selects.
    #[must_use]
    pub fn of(self, point: &Point) -> usize {
        match self {
            Self::Reactors => point.reactors,
            Self::Clients => point.clients,
        }
    }

    /// Returns the unit of this axis.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Reactors => "reactors",
            Self::Clients => "clients",
        }
    }
}

impl Comparison {
    /// Compares a point with another, round by round.
    fn of(point: &Point, other: &Point) -> Self {
        let ratio = |of: fn(&Round) -> f64| {
            let rounds = point.rounds.iter().zip(&other.rounds);
            let mut ratios: Vec<f64> = rounds.map(|(this, other)| of(this) / of(other)).collect();
            median(&mut ratios).unwrap_or(f64::NAN)
        };
        Self {
            reactors: other.reactors,
            speedup: ratio(|round| round.operations_per_second),
            server_cpu_ratio: ratio(|round| round.server_cpu_us),
        }
    }
}

impl Report {
    /// Marks each point as conclusive, unless clients or other programs took too many cores, and
    /// draws conclusions from the conclusive points.
    pub fn judge(&mut self) {
        let (clients_max, others_max) = (self.clients_cores_max(), self.others_cores_max());
        for point in &mut self.points {
            let Point { client_cores, other_cores, .. } = *point;
            point.is_conclusive = client_cores <= clients_max && other_cores <= others_max;
        }
        let against: Vec<_> = self.points.iter().map(|point| self.against(point)).collect();
        self.points.iter_mut().zip(against).for_each(|(point, against)| point.against = against);
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

    /// Returns the maximum number of cores that clients may take at a conclusive point.
    #[must_use]
    pub fn clients_cores_max(&self) -> f64 {
        self.cores as f64 * self.clients_share_max
    }

    /// Returns the maximum number of cores that other programs may take at a conclusive point.
    #[must_use]
    pub fn others_cores_max(&self) -> f64 {
        self.cores as f64 * self.others_share_max
    }

    /// Returns the points of one line of a chart, in the order of the axis.
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

    /// Compares a point with the one that has the fewest reactors and the same clients.
    fn against(&self, point: &Point) -> Option<Comparison> {
        let others = self.points_of(point.work, &point.transport);
        let others = others.filter(|other| other.clients == point.clients);
        let fewest = others.min_by_key(|other| other.reactors)?;
        let is_sure = point.is_conclusive && fewest.is_conclusive;
        (is_sure && fewest.reactors < point.reactors).then(|| Comparison::of(point, fewest))
    }

    fn compare(&self, first: &Point, point: &Point) -> Conclusion {
        let axis = self.axis();
        let (from, to) = (axis.of(first), axis.of(point));
        let verdict = match [first, point].into_iter().find(|point| !point.is_conclusive) {
            Some(point) => Verdict::Refused { no_conclusion: self.refusal(point) },
            None => {
                let Comparison { speedup, server_cpu_ratio, .. } = Comparison::of(point, first);
                let part_of_linear = speedup * from as f64 / to as f64;
                let messages = point.messages;
                Verdict::Drawn { speedup, part_of_linear, server_cpu_ratio, messages }
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
            "{who} took {took:.2} of {} cores, more than {most:.2}: this measures only how the \
             machine was shared",
            self.cores
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn point(reactors: usize, clients: usize, rate: f64, client_cores: f64) -> Point {
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
            busiest_reactor: 0.5,
            client_cores,
            other_cores: 0.0,
            requests: 1.0,
            messages: 0.0,
            rounds: vec![Round { operations_per_second: rate, server_cpu_us: 2.0 }],
            is_conclusive: false,
            against: None,
        }
    }

    pub(crate) fn report(cores: usize, points: Vec<Point>) -> Report {
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
    fn growth_is_reported_if_clients_leave_half_of_the_cores() {
        let points =
            vec![point(1, 2, 100.0, 1.0), point(2, 2, 150.0, 1.0), point(2, 4, 160.0, 2.0)];
        let report = report(4, points);
        assert_eq!(report.axis(), Axis::Reactors);
        let [conclusion] = &report.conclusions[..] else { panic!("{:?}", report.conclusions) };
        assert_eq!((conclusion.from, conclusion.to), (1, 2));
        let Verdict::Drawn { speedup, part_of_linear, server_cpu_ratio, .. } = conclusion.verdict
        else {
            panic!("{conclusion:?}")
        };
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(speedup, 1.6) && near(part_of_linear, 0.8) && near(server_cpu_ratio, 1.0));
    }

    #[test]
    fn a_point_is_compared_with_one_reactor_and_the_same_clients_round_by_round() {
        let rounds = |rates: [f64; 3], server_cpu_us| {
            let round = |rate| Round { operations_per_second: rate, server_cpu_us };
            rates.map(round).to_vec()
        };
        // In the second round the machine was slow for both points.
        let one = Point { rounds: rounds([100.0, 50.0, 100.0], 2.0), ..point(1, 2, 100.0, 1.0) };
        let two = Point { rounds: rounds([160.0, 75.0, 150.0], 2.2), ..point(2, 2, 150.0, 1.0) };
        let report = report(4, vec![point(1, 4, 500.0, 1.0), one, two, point(2, 3, 1.0, 1.0)]);
        let against: Vec<_> = report.points.iter().map(|point| point.against).collect();
        let [None, None, Some(against), None] = against[..] else { panic!("{against:?}") };
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert_eq!(against.reactors, 1);
        assert!(near(against.speedup, 1.5) && near(against.server_cpu_ratio, 1.1), "{against:?}");
    }

    #[test]
    fn points_are_not_compared_if_one_is_inconclusive() {
        for cores_of_clients in [[2.01, 1.0], [1.0, 2.01]] {
            let [one, two] = cores_of_clients;
            let report = report(4, vec![point(1, 2, 100.0, one), point(2, 2, 150.0, two)]);
            assert!(report.points.iter().all(|point| point.against.is_none()), "{report:?}");
        }
    }

    #[test]
    fn no_conclusion_is_drawn_if_other_programs_take_a_tenth_of_the_cores() {
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
    fn no_conclusion_is_drawn_if_clients_take_too_much_at_either_point() {
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

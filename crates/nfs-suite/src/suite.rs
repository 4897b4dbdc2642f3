//! Cases, and how they are run and counted.
//!
//! Invariant: a case that fails, hangs or breaks its connection does not disturb the next one.

use anyhow::Result;

use crate::bench::{Bench, Target};

/// A row of the table: what a server must do, and the code that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What the server must do, as a sentence.
    pub name: &'static str,
    /// The protocol that the case is about.
    pub protocol: Protocol,
    /// The code that checks it.
    pub run: fn(&mut Bench) -> Result<()>,
    /// The reason why the server is known to differ, if it is.
    pub known: Option<&'static str>,
}

/// The protocol that a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// ONC RPC, below all programs.
    Rpc,
    /// MOUNT version 3.
    Mount3,
    /// NFS version 3.
    Nfs3,
    /// NFS version 4.1.
    Nfs41,
    /// NFS version 4.2.
    Nfs42,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server does what it must.
    Passed,
    /// The server does something else; the text says what.
    Failed(String),
    /// The case failed, as it is known to; the texts say what happened and why.
    Known(String, &'static str),
    /// The case cannot run here; the text says why.
    Skipped(String),
}

/// The reason why a case cannot run, as an error that ends it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// The numbers of cases with each verdict.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Cases that passed.
    pub passed: usize,
    /// The names of cases that failed, with what happened.
    pub failed: Vec<(String, String)>,
    /// The names of cases that failed as they are known to, with the reasons.
    pub known: Vec<(String, String)>,
    /// The names of cases that could not run, with the reasons.
    pub skipped: Vec<(String, String)>,
}

impl Protocol {
    /// Returns the name that the filter of the program takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::Mount3 => "mount",
            Self::Nfs3 => "v3",
            Self::Nfs41 => "v4.1",
            Self::Nfs42 => "v4.2",
        }
    }
}

impl Case {
    /// Returns a case.
    #[must_use]
    pub const fn new(
        protocol: Protocol,
        name: &'static str,
        run: fn(&mut Bench) -> Result<()>,
    ) -> Self {
        Self { name, protocol, run, known: None }
    }

    /// Marks the case as one that is known to fail.
    #[must_use]
    pub const fn known(mut self, reason: &'static str) -> Self {
        self.known = Some(reason);
        self
    }

    /// Returns whether the filter's text is in the name, or is the protocol's name.
    #[must_use]
    pub fn matches(&self, filter: &str) -> bool {
        self.protocol.name() == filter || self.name.contains(filter)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.protocol.name(), self.name)
    }
}

/// Runs one case against a server, in the directory of a number.
#[must_use]
pub fn run(case: &Case, target: &Target, number: usize) -> Verdict {
    let result = Bench::new(target, number, case.protocol).and_then(|mut bench| {
        let result = (case.run)(&mut bench);
        bench.clean_up();
        result
    });
    match (result, case.known) {
        (Ok(()), None) => Verdict::Passed,
        (Ok(()), Some(reason)) => {
            Verdict::Failed(format!("passes, although it is known to fail: {reason}"))
        }
        (Err(error), _) if error.is::<Skip>() => Verdict::Skipped(error.to_string()),
        (Err(error), None) => Verdict::Failed(format!("{error:#}")),
        (Err(error), Some(reason)) => Verdict::Known(format!("{error:#}"), reason),
    }
}

/// Runs cases one after the other, and reports each verdict.
pub fn run_all(cases: &[Case], target: &Target, mut report: impl FnMut(&Case, &Verdict)) -> Counts {
    let mut counts = Counts::default();
    for (number, case) in cases.iter().enumerate() {
        let verdict = run(case, target, number);
        report(case, &verdict);
        let name = case.to_string();
        match verdict {
            Verdict::Passed => counts.passed += 1,
            Verdict::Failed(text) => counts.failed.push((name, text)),
            Verdict::Known(_, reason) => counts.known.push((name, reason.into())),
            Verdict::Skipped(reason) => counts.skipped.push((name, reason)),
        }
    }
    counts
}

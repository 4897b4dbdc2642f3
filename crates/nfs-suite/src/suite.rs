//! Test cases, and the code that runs them and counts their results.
//!
//! Invariant: a case that fails, hangs or breaks its connection does not affect the next case.

use anyhow::Result;

use crate::bench::{Bench, Target};
use crate::fault::Fault;
use crate::status::NOTSUPP;

/// A test case: a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// A sentence that says what the server must do.
    pub name: &'static str,
    /// The protocol that the case tests.
    pub protocol: Protocol,
    /// The code of the case, which fails if the server behaves differently.
    pub run: fn(&mut Bench) -> Result<()>,
    /// The reason why the server under test is known to fail the case; `None` if it should pass.
    pub known: Option<&'static str>,
}

/// The protocol that a case tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// ONC RPC, which carries all other protocols.
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
    /// The server behaves as the standard requires.
    Passed,
    /// The server behaves differently; the text describes the difference.
    Failed(String),
    /// The case failed, as expected. The texts describe the difference and its reason.
    Known(String, &'static str),
    /// The case cannot run with this server or target; the text says why.
    Skipped(String),
}

/// The reason why a case cannot run, as the error with which the case ends.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// The number of cases that passed, and the names of all other cases.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The number of cases that passed.
    pub passed: usize,
    /// The names of the cases that failed, with the differences.
    pub failed: Vec<(String, String)>,
    /// The names of the cases that failed as expected, with the reasons.
    pub known: Vec<(String, String)>,
    /// The names of the cases that could not run, with the reasons.
    pub skipped: Vec<(String, String)>,
}

impl Protocol {
    /// Returns the name of the protocol, which the option `--filter` accepts.
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
    /// Creates a case that the server under test should pass.
    #[must_use]
    pub const fn new(
        protocol: Protocol,
        name: &'static str,
        run: fn(&mut Bench) -> Result<()>,
    ) -> Self {
        Self { name, protocol, run, known: None }
    }

    /// Marks the case as known to fail, for this reason.
    #[must_use]
    pub const fn known(mut self, reason: &'static str) -> Self {
        self.known = Some(reason);
        self
    }

    /// Returns true if the filter's text is part of the case's name, or is the name of the
    /// protocol.
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

/// Runs one case against a server. The case's directory is named after `number`.
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
        (Err(error), known) => match (lacks(&error), known) {
            (Some(operation), _) => Verdict::Skipped(format!(
                "the server does not support {operation}, which is optional"
            )),
            (None, None) => Verdict::Failed(format!("{error:#}")),
            (None, Some(reason)) => Verdict::Known(format!("{error:#}"), reason),
        },
    }
}

/// Returns the optional operation that the server does not support, if this is why a case fails.
fn lacks(error: &anyhow::Error) -> Option<&str> {
    match error.chain().find_map(|cause| cause.downcast_ref::<Fault>())? {
        Fault::Status { what, status: NOTSUPP, .. } => {
            OPTIONAL.contains(&&what[..]).then_some(&what[..])
        }
        _ => None,
    }
}

/// The operations that a server may leave out (RFC 8881 section 17, RFC 7862 section 15, RFC 8276).
const OPTIONAL: &[&str] = &[
    "OPENATTR",
    "DELEGPURGE",
    "GET_DIR_DELEGATION",
    "WANT_DELEGATION",
    "ALLOCATE",
    "CLONE",
    "COPY",
    "COPY_NOTIFY",
    "DEALLOCATE",
    "GETXATTR",
    "IO_ADVISE",
    "LISTXATTRS",
    "OFFLOAD_CANCEL",
    "OFFLOAD_STATUS",
    "READ_PLUS",
    "REMOVEXATTR",
    "SEEK",
    "SETXATTR",
    "WRITE_SAME",
];

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

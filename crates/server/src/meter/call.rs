//! The name of a call of an NFS client, and what is noted about the call until its reply is sent.
//!
//! Invariant: every procedure of a program, and every operation of version 4, has one name.

use std::sync::LazyLock;

use dafs_nfs_wire::mount3::MOUNT3;
use dafs_nfs_wire::nfs3::{self, NFS3};
use dafs_nfs_wire::nfs4::{self, NFS4, OperationKind};
use dafs_nfs_wire::nfsacl3::NFSACL3;
use dafs_nfs_wire::nlm::v4::NLM4;
use dafs_nfs_wire::nsm::NSM1;
use dafs_nfs_wire::rquota::v1::RQUOTA1;
use dafs_nfs_wire::table::Program;

/// The name of a call, as the index of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallName(u16);

impl CallName {
    /// Returns the name of a procedure. `None` for a program that the server does not serve.
    /// Procedures that do not exist have the name of procedure 0, and those of version 4 except
    /// COMPOUND the name NULL.
    pub(crate) fn of(program: u32, version: u32, procedure: u32) -> Option<Self> {
        if (program, version) == (NFS4.number, NFS4.version) {
            let is_compound = procedure == u32::from(COMPOUND);
            return Some(Self(if is_compound { COMPOUND } else { NULL }));
        }
        let index = PROGRAMS.iter().position(|(_, known)| known.number == program)?;
        Some(Self(LAYOUT.row_of(index, procedure)))
    }

    /// Returns the name of an operation of version 4. Numbers that are not assigned have the name
    /// ILLEGAL.
    pub(crate) fn of_operation(number: u32) -> Self {
        let known = OperationKind::from_number(number).filter(|_| number < OPERATIONS.into());
        Self(known.map_or(ILLEGAL, |_| number as u16))
    }

    /// Returns the program and the procedure of all names, by index.
    pub(crate) fn all() -> &'static [(&'static str, &'static str)] {
        &LAYOUT.rows
    }

    /// Returns the index of the name, which is below the number of all names.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the program and its version, for example `nfs3`.
    pub(crate) fn program(self) -> &'static str {
        LAYOUT.rows[self.index()].0
    }

    /// Returns the name of the procedure or operation.
    pub(crate) fn procedure(self) -> &'static str {
        LAYOUT.rows[self.index()].1
    }

    /// Returns how much the name says about a compound that contains the operation.
    fn rank(self) -> u8 {
        if self.0 == COMPOUND {
            return 0;
        }
        match OperationKind::from_number(self.0.into()) {
            Some(OperationKind::Sequence) => 1,
            Some(
                OperationKind::PutFh
                | OperationKind::PutRootFh
                | OperationKind::PutPubFh
                | OperationKind::SaveFh
                | OperationKind::RestoreFh,
            ) => 2,
            Some(OperationKind::GetFh) => 3,
            Some(OperationKind::GetAttr) => 4,
            _ => 5,
        }
    }

    /// Returns the status in the results of a call that was executed.
    pub(crate) fn status_in(self, results: &[u8]) -> NfsStatus {
        let number = results.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let Some(number) = number else { return NfsStatus::Ok };
        let program = self.program();
        if program == "nfs4" {
            return match nfs4::Status::from_number(number) {
                None | Some(nfs4::Status::Ok) => NfsStatus::Ok,
                Some(status) => NfsStatus::Failed(status.name()),
            };
        }
        // The results of other programs do not begin with a status, or have others.
        if !matches!(program, "nfs3" | "nfsacl3") || self.procedure() == "NULL" {
            return NfsStatus::Ok;
        }
        match nfs3::Status::from_number(number) {
            None | Some(nfs3::Status::Ok) => NfsStatus::Ok,
            Some(status) => NfsStatus::Failed(name_of(status)),
        }
    }
}

/// Returns the name of a status of version 3 in its specification, without `NFS3ERR_`. Most
/// have the same number and name in version 4.
fn name_of(status: nfs3::Status) -> &'static str {
    match status {
        nfs3::Status::NoDev => "NODEV",
        nfs3::Status::Remote => "REMOTE",
        nfs3::Status::NotSync => "NOT_SYNC",
        nfs3::Status::Jukebox => "JUKEBOX",
        status => nfs4::Status::from_number(status.number()).map_or("unknown", nfs4::Status::name),
    }
}

/// The status of a reply to an NFS client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsStatus {
    /// The call succeeded, or its results have no status.
    Ok,
    /// The call failed with the status of this name, for example `NOENT`.
    Failed(&'static str),
    /// The call was not executed, for example because its credentials are not accepted.
    Refused,
}

/// What the server notes about a call until its reply is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallNote {
    /// The name of the call. `None` if the call is not counted.
    name: Option<CallName>,
    /// The number of the call, which the client has chosen.
    xid: u32,
    /// The time of the call's arrival in nanoseconds since the start of the server.
    begun: u64,
    /// The number of bytes of files that the call writes.
    written: u32,
}

impl CallNote {
    /// Creates the note of a call that arrives at the time `begun`, in nanoseconds since the start
    /// of the server.
    pub(crate) fn new(name: Option<CallName>, xid: u32, begun: u64) -> Self {
        Self { name, xid, begun, written: 0 }
    }

    /// Notes that a compound contains an operation.
    pub(crate) fn operates(&mut self, name: CallName) {
        if self.name.is_some_and(|known| known.rank() < name.rank()) {
            self.name = Some(name);
        }
    }

    /// Returns the name of the call. `None` if the call is not counted.
    pub(crate) fn name(&self) -> Option<CallName> {
        self.name
    }

    /// Returns the number of the call.
    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the nanoseconds from the arrival of the call to the time `now`.
    pub(crate) fn taken(&self, now: u64) -> u64 {
        now.saturating_sub(self.begun)
    }

    /// Notes that the call writes bytes of a file.
    pub(crate) fn writes(&mut self, length: usize) {
        self.written = self.written.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// Returns the number of bytes of files that the call writes.
    pub(crate) fn written(&self) -> u32 {
        self.written
    }
}

/// The rows of all procedures: those of version 4 by the numbers of operations, then those of other
/// programs.
struct Layout {
    /// The program and the procedure of each row.
    rows: Vec<(&'static str, &'static str)>,
    /// The first row of each of [`PROGRAMS`], and the number of its rows.
    starts: [(usize, usize); PROGRAMS.len()],
}

static LAYOUT: LazyLock<Layout> = LazyLock::new(Layout::new);

impl Layout {
    fn new() -> Self {
        let operation = |number: u16| match number {
            COMPOUND => "COMPOUND",
            NULL => "NULL",
            number => {
                let kind = OperationKind::from_number(number.into());
                kind.unwrap_or(OperationKind::Illegal).row().name
            }
        };
        let mut rows: Vec<_> = (0..OPERATIONS).map(|number| ("nfs4", operation(number))).collect();
        let mut starts = [(0, 0); PROGRAMS.len()];
        for ((name, program), start) in PROGRAMS.iter().zip(&mut starts) {
            let last = program.rows.last().map_or(0, |row| row.number);
            *start = (rows.len(), last as usize + 1);
            rows.extend((0..=last).map(|number| {
                let row = program.rows.iter().find(|row| row.number == number);
                (*name, row.map_or("unknown", |row| row.name))
            }));
        }
        Self { rows, starts }
    }

    fn row_of(&self, program: usize, procedure: u32) -> u16 {
        let (first, count) = self.starts[program];
        let procedure = usize::try_from(procedure).ok().filter(|number| *number < count);
        u16::try_from(first + procedure.unwrap_or(0)).unwrap_or(NULL)
    }
}

/// The programs other than version 4, and their names in statistics.
const PROGRAMS: [(&str, &Program); 6] = [
    ("mount3", &MOUNT3),
    ("nfs3", &NFS3),
    ("nfsacl3", &NFSACL3),
    ("nlm4", &NLM4),
    ("nsm1", &NSM1),
    ("rquota1", &RQUOTA1),
];

/// Operations of version 4 have numbers from 3 to 75 (RFC 8276); smaller numbers name other rows.
const OPERATIONS: u16 = 76;
const ILLEGAL: u16 = 0;
const COMPOUND: u16 = 1;
const NULL: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_version_3_has_a_name() {
        for status in nfs3::Status::ALL {
            assert_ne!(name_of(*status), "unknown", "{status:?}");
        }
    }
}

//! Statistics of NFS clients.
//!
//! Invariant: a call costs a few additions; the tables have a fixed size.

use std::net::IpAddr;

use dafs_nfs_wire::nfs4::OperationKind;
use dafs_nfs_wire::{mount3, nfs3};

/// The number of calls of one procedure, or of operations of one kind in compounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsProcedureNumbers {
    /// The program and its version: `mount3`, `nfs3` or `nfs4`.
    pub program: &'static str,
    /// The name of the procedure, or of the operation of version 4.
    pub procedure: &'static str,
    /// The number of calls or operations since the start.
    pub calls: u64,
}

/// The machine of NFS clients, and its traffic over the connections that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsClientNumbers {
    /// The address of the machine.
    pub address: IpAddr,
    /// The number of its connections.
    pub connections: usize,
    /// The number of calls that it has sent.
    pub calls: u64,
    /// The number of bytes of these calls.
    pub call_bytes: u64,
}

/// The statistics of NFS clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NfsNumbers {
    /// The procedures and operations that were called.
    pub procedures: Vec<NfsProcedureNumbers>,
    /// The machines that are connected, by address.
    pub clients: Vec<NfsClientNumbers>,
}

/// The counters of NFS clients.
#[derive(Debug)]
pub(crate) struct NfsMeter {
    mount: [u64; MOUNT_PROCEDURES],
    version_3: [u64; VERSION_3_PROCEDURES],
    version_4: [u64; VERSION_4_OPERATIONS],
    /// The machines that were connected at the last tick.
    pub clients: Vec<NfsClientNumbers>,
}

impl Default for NfsMeter {
    fn default() -> Self {
        Self {
            mount: [0; MOUNT_PROCEDURES],
            version_3: [0; VERSION_3_PROCEDURES],
            version_4: [0; VERSION_4_OPERATIONS],
            clients: Vec::new(),
        }
    }
}

impl NfsMeter {
    /// Counts a call of MOUNT.
    pub(crate) fn count_mount(&mut self, procedure: u32) {
        count(&mut self.mount, procedure);
    }

    /// Counts a call of version 3.
    pub(crate) fn count_version_3(&mut self, procedure: u32) {
        count(&mut self.version_3, procedure);
    }

    /// Counts an operation of version 4. Numbers that are not assigned count as operation 0.
    pub(crate) fn count_operation(&mut self, number: u32) {
        count(&mut self.version_4, number);
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.clients.iter().map(|client| client.connections).sum()
    }

    /// Copies the statistics.
    pub(crate) fn numbers(&self) -> NfsNumbers {
        let mount = |number| mount3::Procedure::from_number(number).map(mount3::Procedure::name);
        let version_3 = |number| nfs3::Procedure::from_number(number).map(nfs3::Procedure::name);
        let version_4 = |number| {
            let kind = OperationKind::from_number(number);
            Some(kind.unwrap_or(OperationKind::Illegal).row().name)
        };
        let mut procedures = Vec::new();
        add(&mut procedures, "mount3", &self.mount, mount);
        add(&mut procedures, "nfs3", &self.version_3, version_3);
        add(&mut procedures, "nfs4", &self.version_4, version_4);
        NfsNumbers { procedures, clients: self.clients.clone() }
    }
}

fn count(counters: &mut [u64], number: u32) {
    let index = usize::try_from(number).ok().filter(|index| *index < counters.len());
    counters[index.unwrap_or(0)] += 1;
}

fn add(
    all: &mut Vec<NfsProcedureNumbers>,
    program: &'static str,
    counters: &[u64],
    name: impl Fn(u32) -> Option<&'static str>,
) {
    let called = (0_u32..).zip(counters).filter(|(_, calls)| **calls > 0);
    all.extend(called.filter_map(|(number, calls)| {
        Some(NfsProcedureNumbers { program, procedure: name(number)?, calls: *calls })
    }));
}

const MOUNT_PROCEDURES: usize = 6;
const VERSION_3_PROCEDURES: usize = 22;
/// Operations have numbers up to 75 (RFC 8276).
const VERSION_4_OPERATIONS: usize = 76;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_program_and_procedure() {
        let mut meter = NfsMeter::default();
        meter.count_mount(1);
        meter.count_version_3(6);
        meter.count_version_3(6);
        meter.count_operation(53);
        meter.count_operation(10_044);
        let found: Vec<_> = meter.numbers().procedures;
        let shown: Vec<_> = found.iter().map(|n| (n.program, n.procedure, n.calls)).collect();
        let expected = [
            ("mount3", "MNT", 1),
            ("nfs3", "READ", 2),
            ("nfs4", "ILLEGAL", 1),
            ("nfs4", "SEQUENCE", 1),
        ];
        assert_eq!(shown, expected);
    }
}

//! Statistics of NFS clients.
//!
//! Invariants:
//! - A call costs a few additions and two readings of the clock. The tables have a fixed size.
//! - The time of a compound of version 4 counts for one operation, the main one of the compound.

use std::net::IpAddr;

use super::Histogram;
use super::call::{CallName, CallNote, NfsStatus};

/// The statistics of one procedure, or of one operation in compounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsProcedureNumbers {
    /// The program and its version, for example `nfs3` or `nfs4`.
    pub program: &'static str,
    /// The name of the procedure, or of the operation of version 4.
    pub procedure: &'static str,
    /// The number of calls or operations since the start.
    pub calls: u64,
    /// The number of calls with a reply that reports a failure. A compound counts for its main
    /// operation.
    pub failed: u64,
    /// The number of bytes of files that calls have read or written.
    pub bytes: u64,
    /// The times from the arrival of calls to their replies. A compound counts for its main
    /// operation.
    pub times: Histogram,
}

/// What carries the calls of an NFS client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsTransport {
    /// A connection over TCP.
    Tcp,
    /// A connection over TCP that is protected by TLS (RFC 9289).
    Tls,
    /// Datagrams. Each counts as a connection until its reply is sent.
    Udp,
    /// A connection over RDMA (RFC 8166).
    Rdma,
}

impl NfsTransport {
    /// All transports, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Tls, Self::Udp, Self::Rdma];

    /// Returns the name of the transport, for example `rdma`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Udp => "udp",
            Self::Rdma => "rdma",
        }
    }
}

/// The numbers of connections of NFS clients by transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfsConnections([usize; NfsTransport::ALL.len()]);

impl NfsConnections {
    /// Returns the number of connections over this transport.
    #[must_use]
    pub const fn over(&self, transport: NfsTransport) -> usize {
        self.0[transport as usize]
    }

    /// Returns the number of all connections.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }

    /// Returns the transports that have connections, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (NfsTransport, usize)> + use<> {
        let all = NfsTransport::ALL.into_iter().zip(self.0);
        all.filter(|(_, count)| *count > 0)
    }

    /// Adds the connections of another machine.
    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }
}

/// A machine of NFS clients, and its traffic over the connections that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsClientNumbers {
    /// The address of the machine.
    pub address: IpAddr,
    /// Its connections that are open, by transport.
    pub connections: NfsConnections,
    /// The number of calls that it has sent.
    pub calls: u64,
    /// The number of bytes of these calls.
    pub call_bytes: u64,
    /// The number of bytes of files that it has read.
    pub read_bytes: u64,
    /// The number of bytes of files that it has written.
    pub written_bytes: u64,
}

impl NfsClientNumbers {
    /// Returns the statistics of a machine without connections.
    pub(crate) fn none(address: IpAddr) -> Self {
        let (calls, call_bytes) = (0, 0);
        let connections = NfsConnections::default();
        Self { address, connections, calls, call_bytes, read_bytes: 0, written_bytes: 0 }
    }

    /// Adds a connection with this traffic.
    pub(crate) fn add_connection(&mut self, transport: NfsTransport, traffic: &Self) {
        self.connections.0[transport as usize] += 1;
        self.calls += traffic.calls;
        self.call_bytes += traffic.call_bytes;
        self.read_bytes += traffic.read_bytes;
        self.written_bytes += traffic.written_bytes;
    }
}

/// The statistics of NFS clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NfsNumbers {
    /// The procedures and operations that were called.
    pub procedures: Vec<NfsProcedureNumbers>,
    /// The machines that are connected, by address.
    pub clients: Vec<NfsClientNumbers>,
}

/// A call whose reply is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedCall {
    pub name: CallName,
    pub xid: u32,
    pub status: NfsStatus,
    /// The number of bytes of files that the call has read or written.
    pub bytes: u32,
    /// The time from the arrival to the reply, in nanoseconds.
    pub taken: u64,
}

/// The counters of NFS clients.
#[derive(Debug)]
pub(crate) struct NfsMeter {
    rows: Vec<Row>,
    /// The machines that were connected when this was last updated.
    pub clients: Vec<NfsClientNumbers>,
}

/// The counters of one procedure or operation.
#[derive(Clone, Debug, Default)]
struct Row {
    calls: u64,
    failed: u64,
    bytes: u64,
    times: Histogram,
}

impl Default for NfsMeter {
    fn default() -> Self {
        Self { rows: vec![Row::default(); CallName::all().len()], clients: Vec::new() }
    }
}

impl NfsMeter {
    /// Counts a call that arrives at the time `begun`.
    pub(crate) fn begin(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        xid: u32,
        begun: u64,
    ) -> CallNote {
        let name = CallName::of(program, version, procedure);
        if let Some(row) = name.and_then(|name| self.rows.get_mut(name.index())) {
            row.calls += 1;
        }
        CallNote::new(name, xid, begun)
    }

    /// Counts an operation of a compound.
    pub(crate) fn operate(&mut self, note: &mut CallNote, number: u32) {
        let name = CallName::of_operation(number);
        self.rows[name.index()].calls += 1;
        note.operates(name);
    }

    /// Counts the reply to a call at the time `now`. `results` are those of a call that was
    /// executed. Returns `None` if the call is not counted.
    pub(crate) fn end(
        &mut self,
        note: &CallNote,
        results: Option<&[u8]>,
        read_bytes: u64,
        now: u64,
    ) -> Option<EndedCall> {
        let name = note.name()?;
        let row = self.rows.get_mut(name.index())?;
        let status = results.map_or(NfsStatus::Refused, |results| name.status_in(results));
        let is_ok = status == NfsStatus::Ok;
        let written = if is_ok { u64::from(note.written()) } else { 0 };
        let (bytes, taken) = (read_bytes + written, note.taken(now));
        row.failed += u64::from(!is_ok);
        row.bytes += bytes;
        row.times.add(taken, 1);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Some(EndedCall { name, xid: note.xid(), status, bytes, taken })
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.clients.iter().map(|client| client.connections.total()).sum()
    }

    /// Copies the statistics.
    pub(crate) fn numbers(&self) -> NfsNumbers {
        let called = self.rows.iter().zip(CallName::all()).filter(|(row, _)| row.calls > 0);
        let procedures = called.map(|(row, (program, procedure))| NfsProcedureNumbers {
            program,
            procedure,
            calls: row.calls,
            failed: row.failed,
            bytes: row.bytes,
            times: row.times.clone(),
        });
        NfsNumbers { procedures: procedures.collect(), clients: self.clients.clone() }
    }
}

#[cfg(test)]
mod tests {
    use dafs_nfs_wire::mount3::MOUNT3;
    use dafs_nfs_wire::nfs3::NFS3;
    use dafs_nfs_wire::nfs4::NFS4;
    use dafs_nfs_wire::nlm::v4::NLM4;
    use dafs_nfs_wire::table::Program;

    use super::*;

    fn counted(meter: &NfsMeter) -> Vec<(&'static str, &'static str, u64, u64)> {
        let found = meter.numbers().procedures;
        found.iter().map(|n| (n.program, n.procedure, n.calls, n.failed)).collect()
    }

    #[test]
    fn calls_are_counted_by_program_and_procedure() {
        let mut meter = NfsMeter::default();
        let mut call = |program: &Program, procedure, results: Option<&[u8]>| {
            let note = meter.begin((program.number, program.version, procedure), 7, 100);
            meter.end(&note, results, 0, 350).expect("the call is counted")
        };
        let found = call(&MOUNT3, 1, Some(&[0, 0, 0, 13]));
        assert_eq!((found.xid, found.taken, found.status), (7, 250, NfsStatus::Ok));
        assert_eq!(call(&NFS3, 6, Some(&[0, 0, 0, 70])).status, NfsStatus::Failed("STALE"));
        assert_eq!(call(&NFS3, 6, None).status, NfsStatus::Refused);
        call(&NLM4, 2, Some(&[0; 8]));
        call(&NFS3, 500, Some(&[]));
        let expected = [
            ("mount3", "MNT", 1, 0),
            ("nfs3", "NULL", 1, 0),
            ("nfs3", "READ", 2, 2),
            ("nlm4", "LOCK", 1, 0),
        ];
        assert_eq!(counted(&meter), expected);
        assert!(meter.begin((100_000, 2, 3), 0, 0).name().is_none(), "rpcbind is not served here");
    }

    #[test]
    fn a_compound_counts_for_its_main_operation() {
        let mut meter = NfsMeter::default();
        let compound = |meter: &mut NfsMeter, operations: &[u32], written| {
            let mut note = meter.begin((NFS4.number, NFS4.version, 1), 1, 0);
            operations.iter().for_each(|number| meter.operate(&mut note, *number));
            note.writes(written);
            meter.end(&note, Some(&[0; 4]), 4096, 1000).unwrap()
        };
        let main = |ended: EndedCall| (ended.name.procedure(), ended.bytes);
        assert_eq!(main(compound(&mut meter, &[53, 22, 25, 9], 0)), ("READ", 4096));
        assert_eq!(main(compound(&mut meter, &[53, 22, 38, 9], 100)), ("WRITE", 4196));
        assert_eq!(main(compound(&mut meter, &[53, 22, 9], 0)), ("GETATTR", 4096));
        assert_eq!(main(compound(&mut meter, &[53], 0)), ("SEQUENCE", 4096));
        assert_eq!(main(compound(&mut meter, &[], 0)), ("COMPOUND", 4096));
        assert_eq!(main(compound(&mut meter, &[10_044], 0)), ("ILLEGAL", 4096));
        let found = meter.numbers().procedures;
        let of = |name: &str| found.iter().find(|row| row.procedure == name).unwrap();
        assert_eq!((of("GETATTR").calls, of("GETATTR").times.count()), (3, 1));
        assert_eq!((of("COMPOUND").calls, of("WRITE").bytes), (6, 4196));
    }
}

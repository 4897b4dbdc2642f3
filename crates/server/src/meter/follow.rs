//! Reports single requests to followers. A *follower* is a receiver of records of requests, for
//! example the command `dafs follow` on an operator's terminal, or a trace.
//!
//! Invariant: a follower never slows the reactor down. The reactor adds a record if the queue has
//! space, and otherwise counts the record as dropped. The reactor wakes no thread for a record,
//! because followers poll the queue.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

use dafs_sessions::Sessions;
use dafs_types::{SequenceNumber, SessionId, Status, StreamId};
use dafs_wire::Procedure;

use crate::access::authorize::TransportKind;
use crate::channel::Channel;
use crate::meter::call::NfsStatus;
use crate::meter::nfs::EndedCall;
use crate::reply_to::ReplyTo;

/// The record of a request to which the reply was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The procedure of the request.
    pub name: RequestName,
    /// The status in the reply to the request.
    pub status: RequestStatus,
    /// The analyzer field of the request's header in this machine's byte order. The client chooses
    /// its value. Requests of NFS clients have none, so it is 0.
    pub analyzer: u64,
    /// The session of the request. `None` if the request came before there was a session, and for
    /// NFS clients.
    pub session: Option<SessionId>,
    /// The address of the client. `None` for clients on this machine that use no network.
    pub address: Option<IpAddr>,
    /// The transport of the request's connection.
    pub transport: TransportKind,
    /// The number of the request.
    pub number: RequestNumber,
    /// The number of file bytes that the request read or wrote.
    pub bytes: u32,
    /// The time at which the reply was sent.
    pub ended: SystemTime,
    /// The time between the arrival of the request and its reply.
    pub taken: Duration,
}

/// The procedure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestName {
    /// A procedure of DAFS. `None` if its number is unknown.
    Dafs(Option<Procedure>),
    /// A procedure of NFS or of a program beside it.
    Nfs {
        /// The program and its version, for example `nfs3` or `nfs4`.
        program: &'static str,
        /// The name of the procedure. For a compound of version 4, the name of its main operation.
        procedure: &'static str,
    },
}

impl RequestName {
    /// Returns the name of the protocol: `dafs`, or the program and its version, as in `nfs4`.
    #[must_use]
    pub fn protocol(self) -> &'static str {
        match self {
            Self::Dafs(_) => "dafs",
            Self::Nfs { program, .. } => program,
        }
    }

    /// Returns the name of the procedure in its protocol.
    #[must_use]
    pub fn procedure(self) -> &'static str {
        match self {
            Self::Dafs(procedure) => procedure.map_or("unknown", Procedure::name),
            Self::Nfs { procedure, .. } => procedure,
        }
    }
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dafs(_) => f.write_str(self.procedure()),
            Self::Nfs { program, procedure } => write!(f, "{program} {procedure}"),
        }
    }
}

/// The status in the reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStatus {
    /// A status of DAFS.
    Dafs(Status),
    /// A status of NFS.
    Nfs(NfsStatus),
}

impl RequestStatus {
    /// Returns true if the request was executed without failure.
    #[must_use]
    pub fn is_ok(self) -> bool {
        matches!(self, Self::Dafs(Status::Ok) | Self::Nfs(NfsStatus::Ok))
    }
}

impl fmt::Display for RequestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dafs(status) => write!(f, "{status:?}"),
            Self::Nfs(NfsStatus::Ok) => f.write_str("Ok"),
            Self::Nfs(NfsStatus::Failed(name)) => f.write_str(name),
            Self::Nfs(NfsStatus::Refused) => f.write_str("refused"),
        }
    }
}

/// The number by which a client tells its requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestNumber {
    /// The stream that a request of DAFS used, and its sequence number on that stream.
    Dafs(StreamId, SequenceNumber),
    /// The number (xid) of an RPC call of an NFS client.
    Nfs(u32),
}

/// Selects the requests to report. A request must meet all conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The value and the mask of the analyzer field: the field must equal the value in all bits
    /// that the mask contains. `None` accepts any field.
    pub analyzer: Option<(u64, u64)>,
    /// The session that requests must belong to. `None` accepts any session.
    pub session: Option<SessionId>,
    /// The minimum time that a request must have taken to be reported.
    pub slower_than: Duration,
    /// True if only failed requests are reported.
    pub failed_only: bool,
    /// The sampling interval for requests whose analyzer field is 0: the follower gets one of this
    /// many requests. 0 and 1 mean all requests.
    pub one_in: u32,
}

impl Selection {
    fn takes(&self, record: &RequestRecord, number: u64) -> bool {
        self.analyzer.is_none_or(|(value, mask)| record.analyzer & mask == value & mask)
            && (self.session.is_none() || self.session == record.session)
            && record.taken >= self.slower_than
            && !(self.failed_only && record.status.is_ok())
            && (record.analyzer != 0 || number.is_multiple_of(u64::from(self.one_in.max(1))))
    }
}

/// The receiving end of a follower's queue of records. Dropping this value ends the reports.
#[derive(Debug)]
pub struct Followed {
    records: Receiver<RequestRecord>,
    dropped: Arc<AtomicU64>,
}

impl Followed {
    /// Removes and returns the next record. `None` if there is no record now.
    ///
    /// # Errors
    /// [`ServerEnded`] when the server has ended and there are no records left.
    pub fn take(&self) -> Result<Option<RequestRecord>, ServerEnded> {
        match self.records.try_recv() {
            Ok(record) => Ok(Some(record)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ServerEnded),
        }
    }

    /// Returns the number of records that were dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The error of [`Followed::take`] when the server has ended and no more records will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has ended")]
pub struct ServerEnded;

/// The sending end of a follower's queue of records, which the reactor owns.
#[derive(Debug)]
pub(crate) struct Follower {
    selection: Selection,
    records: SyncSender<RequestRecord>,
    dropped: Arc<AtomicU64>,
    seen: u64,
}

/// Creates both ends of a follower's queue, which has space for `room` records.
pub(crate) fn follow(selection: Selection, room: usize) -> (Follower, Followed) {
    let (sender, records) = sync_channel(room);
    let dropped = Arc::new(AtomicU64::new(0));
    let follower = Follower { selection, records: sender, dropped: dropped.clone(), seen: 0 };
    (follower, Followed { records, dropped })
}

impl Follower {
    /// Reports a request if the follower selects it. Returns false if the receiving end was
    /// dropped.
    fn tell(&mut self, record: &RequestRecord) -> bool {
        let number = self.seen;
        self.seen += 1;
        if !self.selection.takes(record, number) {
            return true;
        }
        match self.records.try_send(record.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// Returns the record of a request of DAFS that took `taken` nanoseconds.
pub(crate) fn record_of(
    sessions: &Sessions,
    channel: &Channel,
    answer: ReplyTo,
    (status, bytes, taken): (Status, u32, u64),
) -> RequestRecord {
    RequestRecord {
        name: RequestName::Dafs(answer.reading.procedure()),
        status: RequestStatus::Dafs(status),
        analyzer: answer.analyzer,
        session: sessions.ids(channel.id).map(|(session, _)| session),
        address: channel.peer.address,
        transport: channel.peer.transport,
        number: RequestNumber::Dafs(answer.stream, answer.sequence),
        bytes,
        ended: SystemTime::now(),
        taken: Duration::from_nanos(taken),
    }
}

/// Returns the record of a call of an NFS client.
pub(crate) fn record_of_nfs(ended: &EndedCall, address: Option<IpAddr>) -> RequestRecord {
    let (program, procedure) = (ended.name.program(), ended.name.procedure());
    RequestRecord {
        name: RequestName::Nfs { program, procedure },
        status: RequestStatus::Nfs(ended.status),
        analyzer: 0,
        session: None,
        address,
        transport: TransportKind::Nfs,
        number: RequestNumber::Nfs(ended.xid),
        bytes: ended.bytes,
        ended: SystemTime::now(),
        taken: Duration::from_nanos(ended.taken),
    }
}

/// Reports a request to all followers and to the log.
pub(crate) fn tell(followers: &mut Vec<Follower>, record: &RequestRecord) {
    log(record);
    followers.retain_mut(|follower| follower.tell(record));
}

/// Writes the record of a request to the log.
fn log(record: &RequestRecord) {
    let (stream, sequence, xid) = match record.number {
        RequestNumber::Dafs(stream, sequence) => (Some(stream.0), Some(sequence.0), None),
        RequestNumber::Nfs(xid) => (None, None, Some(xid)),
    };
    tracing::debug!(
        target: REQUEST_LOG,
        analyzer = format_args!("{:#x}", record.analyzer),
        procedure = %record.name,
        status = %record.status,
        address = record.address.map(tracing::field::display),
        session = format_args!("{:016x}", record.session.map_or(0, |session| session.0)),
        transport = %record.transport,
        stream,
        sequence,
        xid,
        bytes = record.bytes,
        microseconds = record.taken.as_nanos() as f64 / 1e3,
        "request"
    );
}

/// Returns true if the log's level includes single requests.
pub(crate) fn is_logged() -> bool {
    tracing::enabled!(target: REQUEST_LOG, tracing::Level::DEBUG)
}

/// The log target under which single requests are logged.
const REQUEST_LOG: &str = "dafs::request";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(analyzer: u64) -> RequestRecord {
        RequestRecord {
            name: RequestName::Dafs(Some(Procedure::Null)),
            status: RequestStatus::Dafs(Status::Ok),
            analyzer,
            session: Some(SessionId(7)),
            address: None,
            transport: TransportKind::Tcp,
            number: RequestNumber::Dafs(StreamId(0), SequenceNumber(1)),
            bytes: 0,
            ended: SystemTime::now(),
            taken: Duration::from_micros(5),
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_and_nobody_waits() {
        let (mut follower, followed) = follow(Selection::default(), 2);
        assert!((0..5).all(|analyzer| follower.tell(&record(analyzer))));
        assert_eq!(followed.dropped(), 3);
        assert_eq!(followed.take().unwrap().unwrap().analyzer, 0);
        assert_eq!(followed.take().unwrap().unwrap().analyzer, 1);
        assert_eq!(followed.take(), Ok(None));
        drop(follower);
        assert_eq!(followed.take(), Err(ServerEnded));
    }

    #[test]
    fn whoever_has_left_is_told_nothing_more() {
        let (mut follower, followed) = follow(Selection::default(), 2);
        drop(followed);
        assert!(!follower.tell(&record(0)));
    }

    #[test]
    fn conditions_all_count() {
        let all = Selection::default();
        assert!(all.takes(&record(0), 3));
        let labelled = Selection { analyzer: Some((0x2a, 0xff)), ..all };
        assert!(labelled.takes(&record(0x12a), 0) && !labelled.takes(&record(0x2b), 0));
        let session = Selection { session: Some(SessionId(8)), ..all };
        assert!(!session.takes(&record(0), 0));
        let slow = Selection { slower_than: Duration::from_millis(1), ..all };
        assert!(!slow.takes(&record(0), 0));
        assert!(!Selection { failed_only: true, ..all }.takes(&record(0), 0));
        let some = Selection { one_in: 4, ..all };
        assert_eq!((0..8).filter(|&number| some.takes(&record(0), number)).count(), 2);
        assert_eq!((0..8).filter(|&number| some.takes(&record(1), number)).count(), 8);
    }
}

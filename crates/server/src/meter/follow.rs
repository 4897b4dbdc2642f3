//! Requests one by one, for whoever follows them: a trace, a log, an operator's terminal.
//!
//! Invariant: nobody who follows slows the reactor down: it leaves a record where there is room,
//! and counts it where there is none. Nobody is woken for a record; who follows looks now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

use dafs_sessions::Sessions;
use dafs_types::{SequenceNumber, SessionId, Status, StreamId};
use dafs_wire::Procedure;

use crate::access::authorize::TransportKind;
use crate::channel::Channel;
use crate::reply_to::ReplyTo;

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// What was asked for; `None` for a number that no procedure has.
    pub procedure: Option<Procedure>,
    /// What was answered.
    pub status: Status,
    /// What the client had in the header's analyzer field, in this machine's byte order.
    pub analyzer: u64,
    /// The session, once there is one.
    pub session: Option<SessionId>,
    /// The way it came.
    pub transport: TransportKind,
    /// The stream it held.
    pub stream: StreamId,
    /// Its place there.
    pub sequence: SequenceNumber,
    /// Bytes of files that it moved.
    pub bytes: u32,
    /// When it was answered.
    pub ended: SystemTime,
    /// From its arrival to that.
    pub taken: Duration,
}

/// Which requests are followed. All conditions count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// With these bytes in the analyzer field, where the mask has ones.
    pub analyzer: Option<(u64, u64)>,
    /// Of this session.
    pub session: Option<SessionId>,
    /// That took at least so long.
    pub slower_than: Duration,
    /// That failed.
    pub failed_only: bool,
    /// Of those without an analyzer field, one in so many; 0 and 1 for all.
    pub one_in: u32,
}

impl Selection {
    fn takes(&self, record: &RequestRecord, number: u64) -> bool {
        self.analyzer.is_none_or(|(value, mask)| record.analyzer & mask == value & mask)
            && (self.session.is_none() || self.session == record.session)
            && record.taken >= self.slower_than
            && !(self.failed_only && record.status == Status::Ok)
            && (record.analyzer != 0 || number.is_multiple_of(u64::from(self.one_in.max(1))))
    }
}

/// Where the records of requests that are followed can be had. Dropping it ends that.
#[derive(Debug)]
pub struct Followed {
    records: Receiver<RequestRecord>,
    dropped: Arc<AtomicU64>,
}

impl Followed {
    /// The next record; `None` if there is none now.
    ///
    /// # Errors
    /// [`ServerEnded`] once the server has ended and all its records are taken.
    pub fn take(&self) -> Result<Option<RequestRecord>, ServerEnded> {
        match self.records.try_recv() {
            Ok(record) => Ok(Some(record)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ServerEnded),
        }
    }

    /// Records for which there was no room, since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// No more records will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has ended")]
pub struct ServerEnded;

/// Somebody who follows, as the reactor has them.
#[derive(Debug)]
pub(crate) struct Follower {
    selection: Selection,
    records: SyncSender<RequestRecord>,
    dropped: Arc<AtomicU64>,
    seen: u64,
}

/// Both ends of a way for records, with room for so many.
pub(crate) fn follow(selection: Selection, room: usize) -> (Follower, Followed) {
    let (sender, records) = sync_channel(room);
    let dropped = Arc::new(AtomicU64::new(0));
    let follower = Follower { selection, records: sender, dropped: dropped.clone(), seen: 0 };
    (follower, Followed { records, dropped })
}

impl Follower {
    /// False once nobody takes records any more.
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

/// Tells everybody who follows of a request that took so many nanoseconds.
pub(crate) fn tell(
    followers: &mut Vec<Follower>,
    sessions: &Sessions,
    channel: &Channel,
    answer: ReplyTo,
    outcome: (Status, u32, u64),
) {
    let (status, bytes, nanoseconds) = outcome;
    let record = RequestRecord {
        procedure: answer.reading.procedure(),
        status,
        analyzer: answer.analyzer,
        session: sessions.ids(channel.id).map(|(session, _)| session),
        transport: channel.peer.transport,
        stream: answer.stream,
        sequence: answer.sequence,
        bytes,
        ended: SystemTime::now(),
        taken: Duration::from_nanos(nanoseconds),
    };
    log(&record);
    followers.retain_mut(|follower| follower.tell(&record));
}

/// A line in the log, for whom that is enough.
fn log(record: &RequestRecord) {
    tracing::debug!(
        target: REQUEST_LOG,
        analyzer = format_args!("{:#x}", record.analyzer),
        procedure = record.procedure.map_or("unknown", Procedure::name),
        status = ?record.status,
        session = format_args!("{:016x}", record.session.map_or(0, |session| session.0)),
        transport = %record.transport,
        stream = record.stream.0,
        sequence = record.sequence.0,
        bytes = record.bytes,
        microseconds = record.taken.as_nanos() as f64 / 1e3,
        "request"
    );
}

/// Whether the log wants every request.
pub(crate) fn is_logged() -> bool {
    tracing::enabled!(target: REQUEST_LOG, tracing::Level::DEBUG)
}

/// What the log has requests under.
const REQUEST_LOG: &str = "dafs::request";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(analyzer: u64) -> RequestRecord {
        RequestRecord {
            procedure: Some(Procedure::Null),
            status: Status::Ok,
            analyzer,
            session: Some(SessionId(7)),
            transport: TransportKind::Tcp,
            stream: StreamId(0),
            sequence: SequenceNumber(1),
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

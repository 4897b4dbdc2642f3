//! The response cache, which stores the replies to requests that have changed state until no client
//! can need to fetch them any more (draft 5.2).
//!
//! Invariants:
//! - A session has at most one entry for each stream, which belongs to the stream's newest request.
//! - While a request whose reply will be stored is in progress, its session is kept, even if the
//!   connection is lost.
//! - An entry is returned only to the session's own client, and only when no request of the session
//!   is in progress.

use std::collections::BTreeMap;

use dafs_filer::Principal;
use dafs_types::{Moment, SequenceNumber, SessionId, Status, StreamId};
use dafs_wire::ByteOrder;
use smallvec::SmallVec;

use crate::ChannelId;

/// The key of a session whose replies are stored, or [`KeptSession::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeptSession(pub(crate) u32);

impl KeptSession {
    /// The value for a session whose replies are not stored.
    pub const NONE: Self = Self(u32::MAX);

    /// Returns true if the session's replies are stored, so that this is not [`KeptSession::NONE`].
    #[must_use]
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// Identifies a request of a session. It consists of the transaction id of draft 5.2.1 and the
/// procedure. The procedure reveals clients that assign wrong sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestName {
    /// The stream that the request was sent on.
    pub stream: StreamId,
    /// The request's sequence number on the stream.
    pub sequence: SequenceNumber,
    /// The number of the request's procedure.
    pub procedure: u32,
}

/// A stored reply, for a client that queries the result of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptReply<'a> {
    /// The request that the reply belongs to.
    pub request: RequestName,
    /// The status of the reply.
    pub status: Status,
    /// The reply without its header, in the byte order of the session.
    pub bytes: &'a [u8],
    /// The byte order of the session.
    pub order: ByteOrder,
}

/// The result of a query about a request of a broken session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyQuery<'a> {
    /// The request was executed, and this is its reply.
    Found(KeptReply<'a>),
    /// A request of the session is still in progress. If the session has a channel, it is given
    /// here, and the server must close it. The server must repeat the query when a request of the
    /// session has ended.
    Busy(Option<ChannelId>),
}

/// The record of a session on stable storage, so that its replies can be fetched after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The id of the session.
    pub id: SessionId,
    /// The client id string that the client has given itself.
    pub client_name: Box<[u8]>,
    /// The principal that the client authenticated as.
    pub principal: Principal,
    /// The byte order of the session's replies.
    pub order: ByteOrder,
}

/// All sessions whose replies are stored.
#[derive(Debug)]
pub(crate) struct KeptSessions {
    slots: Vec<Option<Kept>>,
    free: Vec<u32>,
    by_id: BTreeMap<SessionId, u32>,
    /// The number of sessions that have no connection.
    lost: u32,
    lost_max: u32,
    /// A defect that a test injects: see [`crate::SessionConfig::reuses_replies`].
    pub reuses_replies: bool,
}

#[derive(Debug)]
struct Kept {
    record: SessionRecord,
    /// The operation channel. `None` if the session has no connection.
    channel: Option<ChannelId>,
    /// The number of requests in flight whose replies will be stored.
    running: u16,
    /// One entry for each stream, for the stream's newest request.
    entries: Vec<Entry>,
    /// The time at which a session without a connection is removed. `None` while the session has a
    /// connection.
    expires: Option<Moment>,
    /// True if the session must be removed as soon as none of its requests is in progress.
    is_forgotten: bool,
}

/// The newest request of a stream, whose reply is or will be stored.
#[derive(Debug, Default)]
struct Entry {
    sequence: SequenceNumber,
    procedure: u32,
    /// The status of the reply. `None` if the request is in progress or was not executed.
    status: Option<Status>,
    bytes: SmallVec<[u8; SHORT_BYTES]>,
}

impl KeptSessions {
    /// Creates an empty cache that keeps at most `lost_max` sessions without a connection.
    pub(crate) fn new(lost_max: u32) -> Self {
        let (slots, free, by_id) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { slots, free, by_id, lost: 0, lost_max, reuses_replies: false }
    }

    /// Starts to store a session's replies. The oldest session without a connection may be dropped
    /// to make room.
    pub(crate) fn add(&mut self, record: SessionRecord, channel: Option<ChannelId>) -> KeptSession {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.by_id.insert(record.id, index);
        self.lost += u32::from(channel.is_none());
        self.slots[index as usize] = Some(Kept::new(record, channel));
        KeptSession(index)
    }

    fn get_mut(&mut self, session: KeptSession) -> Option<&mut Kept> {
        self.slots.get_mut(session.0 as usize)?.as_mut()
    }

    /// Starts a request whose reply will be stored. The previous reply on the stream is dropped,
    /// because the client has read it: otherwise it would not use the stream again.
    #[inline]
    pub(crate) fn begin(&mut self, session: KeptSession, request: RequestName) {
        let forgets = !self.reuses_replies;
        if let Some(kept) = self.get_mut(session) {
            kept.running += 1;
            let entry = kept.entry(request.stream);
            (entry.sequence, entry.procedure) = (request.sequence, request.procedure);
            if forgets {
                entry.status = None;
            }
        }
    }

    /// Returns the newest request that was started on a stream. `None` if there is none.
    pub(crate) fn request(&self, session: KeptSession, stream: StreamId) -> Option<RequestName> {
        let kept = self.slots.get(session.0 as usize)?.as_ref()?;
        let entry = kept.entries.get(usize::from(stream.0))?;
        let (sequence, procedure) = (entry.sequence, entry.procedure);
        Some(RequestName { stream, sequence, procedure })
    }

    /// Stores the reply of a request that was started. Returns true if the session has no
    /// connection and no further request in flight, so that queries for its replies can proceed.
    #[inline]
    pub(crate) fn keep(
        &mut self,
        session: KeptSession,
        stream: StreamId,
        status: Status,
        bytes: &[u8],
    ) -> bool {
        let Some(kept) = self.get_mut(session) else { return false };
        kept.entry(stream).put(status, bytes);
        self.end(session)
    }

    /// Ends a request that was started, without a reply to store. Returns true in the same cases as
    /// `keep`.
    pub(crate) fn end(&mut self, session: KeptSession) -> bool {
        let Some(kept) = self.get_mut(session) else { return false };
        kept.running = kept.running.saturating_sub(1);
        let is_idle = kept.running == 0 && kept.channel.is_none();
        if is_idle && kept.is_forgotten {
            self.vacate(session.0);
        }
        is_idle
    }

    fn vacate(&mut self, index: u32) {
        self.slots[index as usize] = None;
        self.free.push(index);
    }

    /// Stores the reply of a request that was not started here, because it was executed in one
    /// step, or because its reply was restored from stable storage.
    #[inline]
    pub(crate) fn keep_finished(
        &mut self,
        session: KeptSession,
        request: RequestName,
        status: Status,
        bytes: &[u8],
    ) {
        if let Some(kept) = self.get_mut(session) {
            let entry = kept.entry(request.stream);
            (entry.sequence, entry.procedure) = (request.sequence, request.procedure);
            entry.put(status, bytes);
        }
    }

    /// Records that the connection of a session is lost. The session is kept until `expires`.
    /// Returns the sessions that were dropped to make room.
    pub(crate) fn lose(&mut self, session: KeptSession, expires: Moment) -> Vec<SessionId> {
        let Some(kept) = self.get_mut(session) else { return Vec::new() };
        kept.expires = Some(expires);
        let was_connected = kept.channel.take().is_some();
        self.lost += u32::from(was_connected);
        self.make_room()
    }

    /// Drops sessions without a connection while there are too many. Each time, the oldest session
    /// of the principal with the most such sessions is dropped, so that no principal can displace
    /// the sessions of other principals.
    fn make_room(&mut self) -> Vec<SessionId> {
        let mut forgotten = Vec::new();
        while self.lost > self.lost_max {
            let idle =
                |kept: &&Kept| kept.channel.is_none() && kept.running == 0 && !kept.is_forgotten;
            let lost = || self.slots.iter().flatten().filter(idle);
            let mut counts = BTreeMap::<Box<[u8]>, u32>::new();
            lost().for_each(|kept| *counts.entry(kept.record.principal.bytes()).or_default() += 1);
            let most = counts.values().copied().max().unwrap_or_default();
            let has_most = |kept: &&Kept| counts[&kept.record.principal.bytes()] == most;
            let oldest = lost().filter(has_most).min_by_key(|kept| kept.expires);
            let Some(id) = oldest.map(|kept| kept.record.id) else { break };
            self.forget(id);
            forgotten.push(id);
        }
        forgotten
    }

    /// Removes a session that has disconnected or that its client no longer needs. A reply to a
    /// request that is still in progress will not be stored.
    pub(crate) fn forget(&mut self, id: SessionId) -> bool {
        let Some(index) = self.by_id.remove(&id) else { return false };
        let Some(kept) = self.slots[index as usize].as_mut() else { return false };
        self.lost -= u32::from(kept.channel.take().is_none());
        kept.is_forgotten = true;
        if kept.running == 0 {
            self.vacate(index);
        }
        true
    }

    /// Removes the stored replies of a session that stays connected.
    pub(crate) fn clear(&mut self, id: SessionId) {
        if let Some(&index) = self.by_id.get(&id)
            && let Some(kept) = &mut self.slots[index as usize]
        {
            kept.entries.clear();
        }
    }

    /// Removes the sessions that have no connection and have expired, and returns their ids.
    pub(crate) fn expire(&mut self, now: Moment) -> Vec<SessionId> {
        if self.lost == 0 {
            return Vec::new();
        }
        let due = |kept: &&Kept| {
            kept.channel.is_none()
                && kept.running == 0
                && kept.expires.is_some_and(|expires| expires <= now)
        };
        let ids: Vec<_> =
            self.slots.iter().flatten().filter(due).map(|kept| kept.record.id).collect();
        for id in &ids {
            self.forget(*id);
        }
        ids
    }

    /// Returns true if the session is known and belongs to this client.
    pub(crate) fn belongs(&self, id: SessionId, name: &[u8], principal: &Principal) -> bool {
        self.by_id.get(&id).and_then(|&index| self.slots[index as usize].as_ref()).is_some_and(
            |kept| &*kept.record.client_name == name && kept.record.principal == *principal,
        )
    }

    /// Returns the stored reply to a request of this session.
    ///
    /// # Errors
    /// UNKNOWN_SESSION if the session is not known; NOXID_MATCH if the request was not executed or
    /// can be repeated.
    pub(crate) fn query(
        &self,
        id: SessionId,
        request: RequestName,
    ) -> Result<ReplyQuery<'_>, Status> {
        let index = *self.by_id.get(&id).ok_or(Status::UnknownSession)?;
        let kept = self.slots[index as usize].as_ref().ok_or(Status::UnknownSession)?;
        if kept.channel.is_some() || kept.running > 0 {
            return Ok(ReplyQuery::Busy(kept.channel));
        }
        let entry = kept.entries.get(usize::from(request.stream.0)).ok_or(Status::NoXidMatch)?;
        match entry.status {
            Some(status)
                if (entry.sequence, entry.procedure) == (request.sequence, request.procedure) =>
            {
                let (bytes, order) = (entry.bytes.as_slice(), kept.record.order);
                Ok(ReplyQuery::Found(KeptReply { request, status, bytes, order }))
            }
            _ => Err(Status::NoXidMatch),
        }
    }

    /// Removes the entries of the streams from `first` on, because the client knows that it may not
    /// use these streams (draft 5.2.2).
    pub(crate) fn drop_streams_from(&mut self, session: KeptSession, first: StreamId) {
        if let Some(kept) = self.get_mut(session) {
            kept.entries.truncate(usize::from(first.0));
        }
    }

    /// Returns all sessions and replies as records for stable storage.
    pub(crate) fn records(
        &self,
    ) -> impl Iterator<Item = (&SessionRecord, impl Iterator<Item = KeptReply<'_>>)> {
        let known = |kept: &&Kept| !kept.is_forgotten;
        self.slots.iter().flatten().filter(known).map(|kept| (&kept.record, kept.replies()))
    }

    pub(crate) fn record(&self, session: KeptSession) -> Option<&SessionRecord> {
        Some(&self.slots.get(session.0 as usize)?.as_ref()?.record)
    }

    /// Returns the number of sessions whose replies are stored, and how many of these sessions have
    /// no connection.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.by_id.len() as u32, self.lost)
    }
}

impl Kept {
    fn new(record: SessionRecord, channel: Option<ChannelId>) -> Self {
        let (entries, expires) = (Vec::new(), None);
        Self { record, channel, running: 0, entries, expires, is_forgotten: false }
    }

    #[inline]
    fn entry(&mut self, stream: StreamId) -> &mut Entry {
        let stream = usize::from(stream.0);
        if self.entries.len() <= stream {
            self.entries.resize_with(stream + 1, Entry::default);
        }
        &mut self.entries[stream]
    }

    fn replies(&self) -> impl Iterator<Item = KeptReply<'_>> {
        self.entries.iter().enumerate().filter_map(|(stream, entry)| {
            let (sequence, procedure, status) = (entry.sequence, entry.procedure, entry.status?);
            let stream = StreamId(stream as u16);
            let request = RequestName { stream, sequence, procedure };
            let (bytes, order) = (entry.bytes.as_slice(), self.record.order);
            Some(KeptReply { request, status, bytes, order })
        })
    }
}

impl Entry {
    #[inline]
    fn put(&mut self, status: Status, bytes: &[u8]) {
        self.status = Some(status);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }
}

/// The number of bytes of the longest reply that is stored without an allocation. A reply to a
/// write has this length.
const SHORT_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: SessionId = SessionId(1);

    fn record(id: SessionId) -> SessionRecord {
        SessionRecord {
            id,
            client_name: b"ann".as_slice().into(),
            principal: Principal::Anonymous,
            order: ByteOrder::NATIVE,
        }
    }

    fn channel(index: u32) -> ChannelId {
        ChannelId { index, generation: 0 }
    }

    fn request(stream: u16, sequence: u16) -> RequestName {
        RequestName { stream: StreamId(stream), sequence: SequenceNumber(sequence), procedure: 117 }
    }

    fn found(sessions: &KeptSessions, name: RequestName) -> Result<Vec<u8>, Status> {
        match sessions.query(FIRST, name)? {
            ReplyQuery::Found(reply) => Ok(reply.bytes.to_vec()),
            ReplyQuery::Busy(_) => panic!("the session is idle"),
        }
    }

    #[test]
    fn a_stream_keeps_its_newest_reply() {
        let mut sessions = KeptSessions::new(4);
        let session = sessions.add(record(FIRST), Some(channel(0)));
        for sequence in 1..=3 {
            sessions.begin(session, request(2, sequence));
            let bytes = [sequence as u8];
            assert!(!sessions.keep(session, StreamId(2), Status::Ok, &bytes));
        }
        sessions.lose(session, Moment(9));
        assert_eq!(found(&sessions, request(2, 3)), Ok(vec![3]));
        assert_eq!(found(&sessions, request(2, 2)), Err(Status::NoXidMatch));
        assert_eq!(found(&sessions, request(1, 3)), Err(Status::NoXidMatch));
        assert_eq!(found(&sessions, request(7, 3)), Err(Status::NoXidMatch));
        let other = RequestName { procedure: 143, ..request(2, 3) };
        assert_eq!(found(&sessions, other), Err(Status::NoXidMatch));
        assert_eq!(sessions.query(SessionId(2), request(2, 3)), Err(Status::UnknownSession));
    }

    #[test]
    fn no_reply_is_shown_while_a_request_runs() {
        let mut sessions = KeptSessions::new(4);
        let session = sessions.add(record(FIRST), Some(channel(7)));
        sessions.begin(session, request(0, 1));
        let busy = |channel| Ok(ReplyQuery::Busy(channel));
        assert_eq!(sessions.query(FIRST, request(0, 1)), busy(Some(channel(7))));
        sessions.lose(session, Moment(9));
        assert_eq!(sessions.query(FIRST, request(0, 1)), busy(None));
        assert!(sessions.expire(Moment(10)).is_empty(), "it runs");
        assert!(sessions.keep(session, StreamId(0), Status::Exist, &[]));
        let kept = sessions.query(FIRST, request(0, 1)).unwrap();
        assert!(matches!(kept, ReplyQuery::Found(reply) if reply.status == Status::Exist));
        assert_eq!(sessions.expire(Moment(10)), [FIRST]);
        assert_eq!(sessions.counts(), (0, 0));
    }

    #[test]
    fn the_longest_lost_sessions_make_room() {
        let mut sessions = KeptSessions::new(2);
        let mut forgotten = Vec::new();
        for number in 0..4 {
            let session = sessions.add(record(SessionId(number)), Some(channel(0)));
            forgotten.extend(sessions.lose(session, Moment(100 - number)));
        }
        // Number 0 expires last: by the clock it was lost last.
        assert_eq!(forgotten, [SessionId(2), SessionId(3)]);
        assert_eq!(sessions.counts(), (2, 2));
    }

    #[test]
    fn recorded_sessions_can_be_restored() {
        let mut sessions = KeptSessions::new(2);
        let session = sessions.add(record(FIRST), Some(channel(0)));
        sessions.begin(session, request(5, 8));
        sessions.keep(session, StreamId(5), Status::Ok, b"result");
        let mut again = KeptSessions::new(2);
        for (record, replies) in sessions.records() {
            let session = again.add(record.clone(), None);
            for reply in replies {
                again.keep_finished(session, reply.request, reply.status, reply.bytes);
            }
        }
        assert_eq!(found(&again, request(5, 8)), Ok(b"result".to_vec()));
        again.drop_streams_from(KeptSession(0), StreamId(5));
        assert_eq!(found(&again, request(5, 8)), Err(Status::NoXidMatch));
    }

    #[test]
    fn a_forgotten_session_keeps_its_slot_until_no_request_runs() {
        let mut sessions = KeptSessions::new(2);
        let session = sessions.add(record(FIRST), Some(channel(0)));
        sessions.begin(session, request(0, 1));
        assert!(sessions.forget(FIRST));
        let next = sessions.add(record(SessionId(2)), Some(channel(1)));
        assert_ne!(next, session);
        sessions.keep(session, StreamId(0), Status::Ok, b"late");
        assert_eq!(sessions.query(FIRST, request(0, 1)), Err(Status::UnknownSession));
        assert_eq!(sessions.add(record(SessionId(3)), None), session);
    }

    #[test]
    fn only_the_own_client_may_fetch_a_reply() {
        let mut sessions = KeptSessions::new(2);
        sessions.add(record(FIRST), None);
        assert!(sessions.belongs(FIRST, b"ann", &Principal::Anonymous));
        assert!(!sessions.belongs(FIRST, b"bob", &Principal::Anonymous));
        assert!(!sessions.belongs(FIRST, b"ann", &Principal::LocalUser(0)));
        assert!(sessions.forget(FIRST) && !sessions.forget(FIRST));
    }
}

//! The response cache: replies of requests that changed something, kept until no client can need to
//! fetch them (draft 5.2).
//!
//! Invariants:
//! - A session has at most one entry for each stream, the newest.
//! - While a request runs whose reply will be kept, its session stays, even if the connection is
//!   lost.
//! - An entry is shown only to the session's own client, and only when no request of the session
//!   runs any more.

use std::collections::BTreeMap;

use dafs_filer::Principal;
use dafs_types::{Moment, SequenceNumber, SessionId, Status, StreamId};
use dafs_wire::ByteOrder;
use smallvec::SmallVec;

use crate::ChannelId;

/// The key of a session whose replies are kept, or [`KeptSession::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeptSession(pub(crate) u32);

impl KeptSession {
    /// No replies are kept.
    pub const NONE: Self = Self(u32::MAX);

    /// Returns true unless this is [`KeptSession::NONE`].
    #[must_use]
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// Identifies a request of a session. This is the transaction id of draft 5.2.1, plus the
/// procedure, which detects clients that number their requests wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestName {
    /// The stream that the request was sent on.
    pub stream: StreamId,
    /// The request's sequence number on the stream.
    pub sequence: SequenceNumber,
    /// The number of the request's procedure.
    pub procedure: u32,
}

/// A reply that the server keeps, so that it can be sent again if the request is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptReply<'a> {
    /// The request that it belongs to.
    pub request: RequestName,
    /// The status of the reply.
    pub status: Status,
    /// The reply without its header, in the byte order of its session.
    pub bytes: &'a [u8],
    /// The byte order of the session.
    pub order: ByteOrder,
}

/// What the cache knows about a request of a broken session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyQuery<'a> {
    /// The request was executed, with this reply.
    Found(KeptReply<'a>),
    /// A request of the session still runs. Close this channel, if there is one, and ask again when
    /// a request of the session has ended.
    Busy(Option<ChannelId>),
}

/// A session as it is recorded on stable storage, so that its replies can be fetched after a
/// restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The id of the session.
    pub id: SessionId,
    /// The client id string that the client gave itself.
    pub client_name: Box<[u8]>,
    /// The principal the client authenticated as.
    pub principal: Principal,
    /// The byte order of the session's replies.
    pub order: ByteOrder,
}

/// All sessions whose replies are kept.
#[derive(Debug)]
pub(crate) struct KeptSessions {
    slots: Vec<Option<Kept>>,
    free: Vec<u32>,
    by_id: BTreeMap<SessionId, u32>,
    /// The number of sessions without a connection.
    lost: u32,
    lost_max: u32,
    /// A deliberate defect for tests: see [`crate::SessionConfig::reuses_replies`].
    pub reuses_replies: bool,
}

#[derive(Debug)]
struct Kept {
    record: SessionRecord,
    /// The operation channel, while it is connected.
    channel: Option<ChannelId>,
    /// The number of requests in flight whose reply will be kept.
    running: u16,
    /// The entries, by stream.
    entries: Vec<Entry>,
    /// When a session without a connection is forgotten.
    expires: Option<Moment>,
    /// True if the session is forgotten; its slot is free once no request of it runs.
    is_forgotten: bool,
}

/// The newest request of a stream whose reply is to be kept.
#[derive(Debug, Default)]
struct Entry {
    sequence: SequenceNumber,
    procedure: u32,
    /// The status of the reply; `None` if the request still runs or was not executed.
    status: Option<Status>,
    bytes: SmallVec<[u8; SHORT_BYTES]>,
}

impl KeptSessions {
    /// Makes an empty cache that keeps at most `lost_max` sessions without a connection.
    pub(crate) fn new(lost_max: u32) -> Self {
        let (slots, free, by_id) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { slots, free, by_id, lost: 0, lost_max, reuses_replies: false }
    }

    /// Begins to keep a session's replies. The oldest lost session may be dropped to make room.
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

    /// Begins a request whose reply will be kept. The previous reply on the stream is dropped: the
    /// client has read it, or it would not use the stream again.
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

    /// Returns the last request that began on a stream.
    pub(crate) fn request(&self, session: KeptSession, stream: StreamId) -> Option<RequestName> {
        let kept = self.slots.get(session.0 as usize)?.as_ref()?;
        let entry = kept.entries.get(usize::from(stream.0))?;
        let (sequence, procedure) = (entry.sequence, entry.procedure);
        Some(RequestName { stream, sequence, procedure })
    }

    /// Keeps the reply of a request that began. Returns true if this was the last request in flight
    /// of a session without a connection, so that clients waiting to fetch its replies can proceed.
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

    /// Ends a request that began, without a reply to keep. Returns like `keep`.
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

    /// Keeps the reply of a request that was never in flight here: it was executed at once, or its
    /// reply was restored from stable storage.
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

    /// Notes that the connection of a session is lost. The session is kept until `expires`.
    pub(crate) fn lose(&mut self, session: KeptSession, expires: Moment) -> Vec<SessionId> {
        let Some(kept) = self.get_mut(session) else { return Vec::new() };
        kept.expires = Some(expires);
        let was_connected = kept.channel.take().is_some();
        self.lost += u32::from(was_connected);
        self.make_room()
    }

    /// Forgets lost sessions while there are too many. It picks the principal with the most lost
    /// sessions and drops the oldest of them, so that no principal can push out the sessions of
    /// others.
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

    /// Forgets a session that has disconnected in order or is no longer needed by its client. A
    /// request of it that still runs leaves no reply.
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

    /// Forgets the replies of a session that stays connected.
    pub(crate) fn clear(&mut self, id: SessionId) {
        if let Some(&index) = self.by_id.get(&id)
            && let Some(kept) = &mut self.slots[index as usize]
        {
            kept.entries.clear();
        }
    }

    /// Forgets the lost sessions whose time is over.
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

    /// Returns true if a session is known and belongs to this client.
    pub(crate) fn belongs(&self, id: SessionId, name: &[u8], principal: &Principal) -> bool {
        self.by_id.get(&id).and_then(|&index| self.slots[index as usize].as_ref()).is_some_and(
            |kept| &*kept.record.client_name == name && kept.record.principal == *principal,
        )
    }

    /// Returns what happened to a request.
    ///
    /// # Errors
    /// UNKNOWN_SESSION; NOXID_MATCH if the request was not executed or can be repeated.
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

    /// Drops the entries of the streams from `first` on: the client knows that it may not use them
    /// (draft 5.2.2).
    pub(crate) fn drop_streams_from(&mut self, session: KeptSession, first: StreamId) {
        if let Some(kept) = self.get_mut(session) {
            kept.entries.truncate(usize::from(first.0));
        }
    }

    /// Returns all sessions and replies, for stable storage.
    pub(crate) fn records(
        &self,
    ) -> impl Iterator<Item = (&SessionRecord, impl Iterator<Item = KeptReply<'_>>)> {
        let known = |kept: &&Kept| !kept.is_forgotten;
        self.slots.iter().flatten().filter(known).map(|kept| (&kept.record, kept.replies()))
    }

    pub(crate) fn record(&self, session: KeptSession) -> Option<&SessionRecord> {
        Some(&self.slots.get(session.0 as usize)?.as_ref()?.record)
    }

    /// Returns the number of sessions, and of those without a connection.
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

/// The longest reply that is stored without an allocation: that of a write.
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

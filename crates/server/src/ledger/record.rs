//! Encodes and decodes the journal's records (`docs/spec/journal.md`, "The server's records").
//!
//! A request is recorded as an operation and its origin, which identifies the request
//! ([`dafs_ops`]). The data that only the DAFS front end understands (sessions and their replies)
//! is in an envelope with the front end's id. The records about clients and files are in
//! `files/src/ledger/state.rs`.
//!
//! Invariant: `decode` reads what `encode` writes, in this and every later version of the server.
//! The layout of a kind never changes; new layouts get new kinds. [`super::legacy`] reads the kinds
//! that are no longer written. All integers are little-endian.

use dafs_files::ledger::bytes::{Put, Take};
use dafs_files::ledger::plan::Precondition;
use dafs_files::ledger::state::{Entry, StateRecord, put_principal, take_handle, take_principal};
use dafs_journal::RecordKind;
use dafs_ops::{FrontId, Operation, Origin};
use dafs_sessions::{RequestName, SessionRecord};
use dafs_types::{Credentials, FileHandle, SequenceNumber, SessionId, Status, StreamId};
use dafs_wire::ByteOrder;

use super::legacy;
use crate::persistent::{SlotNote, is_persistent};

/// The key of a DAFS request, unique among the requests of all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestKey {
    pub session: SessionId,
    pub request: RequestName,
}

impl RequestKey {
    /// Returns the origin that identifies the request among the requests of all front ends.
    pub(super) fn origin(&self) -> Origin {
        let RequestName { stream, sequence, procedure } = self.request;
        Origin {
            front: FrontId::DAFS,
            session: self.session.0,
            slot: u32::from(stream.0),
            sequence: u32::from(sequence.0),
            // All procedure numbers fit into 16 bits.
            index: u16::try_from(procedure).unwrap_or(u16::MAX),
        }
    }

    /// Returns the key of the request with this origin. `None` if it is not a DAFS request.
    pub(super) fn of(origin: &Origin) -> Option<Self> {
        let Origin { front, session, slot, sequence, index } = *origin;
        let request = RequestName {
            stream: StreamId(u16::try_from(slot).ok()?),
            sequence: SequenceNumber(u16::try_from(sequence).ok()?),
            procedure: u32::from(index),
        };
        (front == FrontId::DAFS).then_some(Self { session: SessionId(session), request })
    }
}

/// The record that a request is about to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Intent {
    pub origin: Origin,
    pub who: Credentials,
    pub precondition: Precondition,
    /// The operation of the request, encoded by [`Operation::encode`].
    pub operation: Box<[u8]>,
}

/// The record of a request's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub origin: Origin,
    /// The result of the operation, encoded by [`dafs_ops::encode_outcome`].
    pub outcome: Box<[u8]>,
}

/// The record of a request's outcome in the form of the reply to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub key: RequestKey,
    pub status: Status,
    /// The bytes of the reply after the header, in the byte order of the session.
    pub bytes: Box<[u8]>,
}

/// The record of the reply to a call of NFSv3, or of a slot of a persistent session of NFSv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallReply {
    pub origin: Origin,
    /// The reply without its header. For a slot, an encoded [`SlotNote`].
    pub bytes: Box<[u8]>,
}

/// A decoded record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The start of a session that stores results.
    Session(SessionRecord),
    /// A request is about to be executed.
    Intent(Intent),
    /// A request was executed or has failed.
    Outcome(Outcome),
    /// The stored reply to a request that has no intent.
    Reply(Reply),
    /// The reply to a call of NFSv3, or the state of a slot of a persistent session of NFSv4.
    CallReply(CallReply),
    /// A persistent session of NFSv4: its number and its record.
    Persistent(u64, Box<[u8]>),
    /// The persistent session of NFSv4 with this number has ended.
    PersistentGone(u64),
    /// A request with an intent was not executed.
    Abandoned(Origin),
    /// The stored results of a session are no longer needed.
    Forgotten(SessionId),
    /// A record about clients or files, not about requests.
    State(StateRecord),
}

impl From<StateRecord> for Record {
    fn from(state: StateRecord) -> Self {
        Self::State(state)
    }
}

impl Entry for Record {
    fn kind(&self) -> RecordKind {
        RecordKind(match self {
            Self::Intent(_) => INTENT.0,
            Self::Outcome(_) => 31,
            Self::Abandoned(_) => 32,
            Self::Session(_) | Self::Reply(_) | Self::CallReply(_) | Self::Persistent(..) => 33,
            Self::Forgotten(_) | Self::PersistentGone(_) => 34,
            Self::State(state) => return state.kind(),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Session(session) => {
                put_front(&mut to, FrontId::DAFS, &session_key(session.id));
                put_session(&mut to, session);
            }
            Self::Intent(intent) => put_intent(&mut to, intent),
            Self::Outcome(outcome) => {
                outcome.origin.encode(&mut to);
                to.put_rest(&outcome.outcome);
            }
            Self::Reply(Reply { key, status, bytes }) => {
                put_front(&mut to, FrontId::DAFS, &reply_key(key));
                to.put_u16(key.request.sequence.0);
                to.put_u32(key.request.procedure);
                to.put_u32(status.number());
                to.put_rest(bytes);
            }
            Self::CallReply(CallReply { origin, bytes }) => {
                put_front(&mut to, origin.front, &call_key(origin));
                to.put_rest(bytes);
            }
            Self::Persistent(session, record) => {
                put_front(&mut to, FrontId::NFS4, &session.to_le_bytes());
                to.put_rest(record);
            }
            Self::PersistentGone(session) => {
                put_front(&mut to, FrontId::NFS4, &session.to_le_bytes());
            }
            Self::Abandoned(origin) => origin.encode(&mut to),
            Self::Forgotten(session) => {
                put_front(&mut to, FrontId::DAFS, &session_key(*session));
            }
            Self::State(state) => return state.encode(),
        }
        to
    }
}

impl Record {
    /// Converts each handle in the record to the form that the store uses now. The handles in
    /// outcomes are not converted, because outcomes are replies, in which old forms are valid too.
    pub(super) fn renew(&mut self, renew: impl Fn(&mut FileHandle)) {
        match self {
            Self::Intent(intent) => {
                intent.renew_operation(&renew);
                match &mut intent.precondition {
                    Precondition::Target(handle) | Precondition::Appends { file: handle, .. } => {
                        renew(handle)
                    }
                    Precondition::Renames { object, replaced } => {
                        renew(object);
                        replaced.iter_mut().for_each(renew);
                    }
                    Precondition::NameFree | Precondition::Truncates | Precondition::Attributes => {
                    }
                }
            }
            Self::State(state) => state.renew(renew),
            Self::CallReply(CallReply { origin, bytes }) if is_persistent(origin) => {
                if let Some(mut note) = SlotNote::decode(bytes) {
                    note.renew(renew);
                    *bytes = note.encode().into();
                }
            }
            Self::Session(_)
            | Self::Outcome(_)
            | Self::Reply(_)
            | Self::CallReply(_)
            | Self::Persistent(..)
            | Self::PersistentGone(_)
            | Self::Abandoned(_)
            | Self::Forgotten(_) => {}
        }
    }

    /// Decodes a record. `None` if the record is malformed.
    pub(super) fn decode(kind: RecordKind, bytes: &[u8]) -> Option<Self> {
        let mut from = bytes;
        let record = match kind.0 {
            1..=5 => return legacy::decode(kind, bytes),
            30 => Self::Intent(take_intent(&mut from)?),
            31 => Self::Outcome(Outcome {
                origin: take_origin(&mut from)?,
                outcome: std::mem::take(&mut from).into(),
            }),
            32 => Self::Abandoned(take_origin(&mut from)?),
            33 => take_front(&mut from)?,
            34 => take_forgotten(&mut from)?,
            kind => Self::State(StateRecord::take(kind, &mut from)?),
        };
        from.is_empty().then_some(record)
    }
}

impl Intent {
    fn renew_operation(&mut self, renew: impl Fn(&mut FileHandle)) {
        let Some(mut operation) = Operation::decode(&self.operation) else { return };
        operation.handles_mut().into_iter().flatten().for_each(renew);
        let mut bytes = Vec::with_capacity(self.operation.len());
        operation.encode(&mut bytes);
        self.operation = bytes.into();
    }
}

/// Appends the id of a front end, followed by a key that the front end has chosen.
fn put_front(to: &mut Vec<u8>, front: FrontId, key: &[u8]) {
    to.push(front.0);
    to.put_counted(key);
}

/// Decodes the id of a front end and the key that the front end has chosen.
fn take_front_key(from: &mut &[u8]) -> Option<(FrontId, Box<[u8]>)> {
    let front = FrontId(from.take_u8()?);
    Some((front, from.take_counted().map(Box::from)?))
}

fn take_forgotten(from: &mut &[u8]) -> Option<Record> {
    let (front, key) = take_front_key(from)?;
    let session = take_session_key(&key)?;
    match front {
        FrontId::DAFS => Some(Record::Forgotten(session)),
        FrontId::NFS4 => Some(Record::PersistentGone(session.0)),
        _ => None,
    }
}

/// Returns the key of a call of NFSv3 or of a slot of NFSv4: its origin without the front end.
fn call_key(origin: &Origin) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CALL_KEY_BYTES);
    bytes.put_u64(origin.session);
    bytes.put_u32(origin.slot);
    bytes.put_u32(origin.sequence);
    bytes.put_u16(origin.index);
    bytes
}

fn take_call_key(front: FrontId, mut key: &[u8]) -> Option<Origin> {
    let key = &mut key;
    let (session, slot, sequence) = (key.take_u64()?, key.take_u32()?, key.take_u32()?);
    let index = key.take_u16()?;
    key.is_empty().then_some(Origin { front, session, slot, sequence, index })
}

fn session_key(session: SessionId) -> [u8; SESSION_KEY_BYTES] {
    session.0.to_le_bytes()
}

fn take_session_key(key: &[u8]) -> Option<SessionId> {
    Some(SessionId(u64::from_le_bytes(key.try_into().ok()?)))
}

fn reply_key(key: &RequestKey) -> Vec<u8> {
    let mut bytes = session_key(key.session).to_vec();
    bytes.put_u16(key.request.stream.0);
    bytes
}

fn take_front(from: &mut &[u8]) -> Option<Record> {
    let (front, key) = take_front_key(from)?;
    match front {
        FrontId::DAFS => {}
        FrontId::NFS4 if key.len() == SESSION_KEY_BYTES => {
            let session = take_session_key(&key)?;
            return Some(Record::Persistent(session.0, std::mem::take(from).into()));
        }
        FrontId::NFS3 | FrontId::NFS4 => {
            let origin = take_call_key(front, &key)?;
            let bytes: Box<[u8]> = std::mem::take(from).into();
            let is_valid = !is_persistent(&origin) || SlotNote::decode(&bytes).is_some();
            return is_valid.then_some(Record::CallReply(CallReply { origin, bytes }));
        }
        _ => return None,
    }
    let (session, mut stream) = key.split_at_checked(SESSION_KEY_BYTES)?;
    let session = take_session_key(session)?;
    if stream.is_empty() {
        return Some(Record::Session(take_session(session, from)?));
    }
    let stream = StreamId(stream.take_u16().filter(|_| stream.is_empty())?);
    let (sequence, procedure) = (SequenceNumber(from.take_u16()?), from.take_u32()?);
    let status = Status::from_number(from.take_u32()?)?;
    let request = RequestName { stream, sequence, procedure };
    let bytes = std::mem::take(from).into();
    Some(Record::Reply(Reply { key: RequestKey { session, request }, status, bytes }))
}

fn put_session(to: &mut Vec<u8>, session: &SessionRecord) {
    to.push(order_number(session.order));
    put_principal(to, &session.principal);
    to.put_counted(&session.client_name);
}

pub(super) fn take_session(id: SessionId, from: &mut &[u8]) -> Option<SessionRecord> {
    let order = take_order(from)?;
    let principal = take_principal(from)?;
    Some(SessionRecord { id, client_name: from.take_counted()?.into(), principal, order })
}

fn put_intent(to: &mut Vec<u8>, intent: &Intent) {
    intent.origin.encode(to);
    to.put_u32(intent.who.uid());
    to.put_u32(intent.who.gid());
    to.put_u32(intent.who.groups().len() as u32);
    for group in intent.who.groups() {
        to.put_u32(*group);
    }
    match &intent.precondition {
        Precondition::NameFree => to.push(0),
        Precondition::Truncates => to.push(1),
        Precondition::Target(handle) => {
            to.push(2);
            to.put_rest(&handle.0);
        }
        Precondition::Renames { object, replaced } => {
            to.push(if replaced.is_some() { 4 } else { 3 });
            to.put_rest(&object.0);
            if let Some(replaced) = replaced {
                to.put_rest(&replaced.0);
            }
        }
        Precondition::Attributes => to.push(5),
        Precondition::Appends { file, offset, length } => {
            to.push(6);
            to.put_rest(&file.0);
            to.put_u64(*offset);
            to.put_u32(*length);
        }
    }
    to.put_rest(&intent.operation);
}

fn take_intent(from: &mut &[u8]) -> Option<Intent> {
    let origin = take_origin(from)?;
    let (who, precondition) = take_circumstances(from)?;
    let operation = std::mem::take(from).into();
    Some(Intent { origin, who, precondition, operation })
}

/// Decodes the origin of a request. `None` if its front end is unknown.
fn take_origin(from: &mut &[u8]) -> Option<Origin> {
    let origin = Origin::take(from)?;
    let is_known = match origin.front {
        FrontId::DAFS => RequestKey::of(&origin).is_some(),
        front => matches!(front, FrontId::NFS3 | FrontId::NFS4),
    };
    is_known.then_some(origin)
}

/// Decodes the credentials of a request, and the facts about the file system that were recorded
/// with the intent.
pub(super) fn take_circumstances(from: &mut &[u8]) -> Option<(Credentials, Precondition)> {
    let (uid, gid, count) = (from.take_u32()?, from.take_u32()?, from.take_u32()?);
    // Each group takes four bytes, so decoding with a wrong count fails at the end of the record.
    let groups = (0..count).map(|_| from.take_u32()).collect::<Option<Vec<_>>>()?;
    let who = Credentials::new(uid, gid, groups).ok()?;
    let precondition = match from.take_u8()? {
        0 => Precondition::NameFree,
        1 => Precondition::Truncates,
        2 => Precondition::Target(take_handle(from)?),
        3 => Precondition::Renames { object: take_handle(from)?, replaced: None },
        4 => {
            Precondition::Renames { object: take_handle(from)?, replaced: Some(take_handle(from)?) }
        }
        5 => Precondition::Attributes,
        6 => Precondition::Appends {
            file: take_handle(from)?,
            offset: from.take_u64()?,
            length: from.take_u32()?,
        },
        _ => return None,
    };
    Some((who, precondition))
}

fn order_number(order: ByteOrder) -> u8 {
    match order {
        ByteOrder::Little => 0,
        ByteOrder::Big => 1,
    }
}

pub(super) fn take_order(from: &mut &[u8]) -> Option<ByteOrder> {
    match from.take_u8()? {
        0 => Some(ByteOrder::Little),
        1 => Some(ByteOrder::Big),
        _ => None,
    }
}

/// The record kind of an intent. Recovery uses it to write intents again unchanged.
pub(super) const INTENT: RecordKind = RecordKind(30);
/// The length in bytes of a front end's key for a session.
const SESSION_KEY_BYTES: usize = 8;
/// The length in bytes of the key of a call of NFSv3 or of a slot of NFSv4.
const CALL_KEY_BYTES: usize = 18;

#[cfg(test)]
mod tests {
    use dafs_filer::locks::{ByteRange, LockAttributes, LockId, LockMode, LockRecord, RecordPhase};
    use dafs_filer::{ClientRecord, FenceId, FenceRecord, FencedObject, FileKey, Principal};
    use dafs_journal::UndoId;
    use dafs_ops::Remove;
    use dafs_types::{ClientId, FsHandle, RemoveMode, Verifier};

    use super::*;
    use crate::persistent::{PartDone, SlotState};

    /// The number of bytes of the results in a note about a slot.
    const RESULTS_BYTES: usize = b"results".len();

    fn key() -> RequestKey {
        let (stream, sequence) = (StreamId(3), SequenceNumber(65_535));
        let request = RequestName { stream, sequence, procedure: 144 };
        RequestKey { session: SessionId(0x0123_4567_89ab_cdef), request }
    }

    fn records() -> Vec<Record> {
        let handle = |byte| FileHandle([byte; 64]);
        let all_facts = [
            Precondition::NameFree,
            Precondition::Truncates,
            Precondition::Target(handle(1)),
            Precondition::Renames { object: handle(2), replaced: None },
            Precondition::Renames { object: handle(3), replaced: Some(handle(4)) },
            Precondition::Attributes,
            Precondition::Appends { file: handle(5), offset: 1 << 40, length: 7 },
        ];
        let who = Credentials::new(1, 2, [3, 4]).unwrap();
        let mut operation = Vec::new();
        let (directory, mode) = (handle(8), RemoveMode::Unchecked);
        Operation::Remove(Remove { directory, name: b"name", mode }).encode(&mut operation);
        let intent = |precondition| Intent {
            origin: key().origin(),
            who: who.clone(),
            precondition,
            operation: operation.clone().into(),
        };
        let principals = [
            Principal::Anonymous,
            Principal::LocalUser(7),
            Principal::User("ann".into()),
            Principal::Gss("ann@REALM".into()),
        ];
        let session = |principal| SessionRecord {
            id: SessionId(9),
            client_name: b"client".as_slice().into(),
            principal,
            order: ByteOrder::Little,
        };
        let bytes: Box<[u8]> = b"results".as_slice().into();
        let outcome = Outcome { origin: key().origin(), outcome: bytes.clone() };
        let reply = Reply { key: key(), status: Status::Exist, bytes: bytes.clone() };
        let call =
            Origin { front: FrontId::NFS3, session: 1 << 40, slot: 2, sequence: 3, index: 12 };
        let mut records: Vec<_> =
            all_facts.map(|precondition| Record::Intent(intent(precondition))).into();
        records.extend(principals.map(|principal| Record::Session(session(principal))));
        records.push(Record::Outcome(outcome));
        records.push(Record::Reply(reply));
        records.push(Record::Abandoned(key().origin()));
        records.push(Record::Abandoned(call));
        records.push(Record::CallReply(CallReply { origin: call, bytes: bytes.clone() }));
        let slot = Origin { front: FrontId::NFS4, ..call };
        let (current, saved) = (Some(handle(9)), Some(handle(10)));
        let part = PartDone { count: 3, current, saved, results: bytes };
        let note = SlotNote { checksum: 1 << 40, state: SlotState::Progress(part) };
        records.push(Record::CallReply(CallReply { origin: slot, bytes: note.encode().into() }));
        records.push(Record::Abandoned(slot));
        records.push(Record::Persistent(3 << 32, b"session".as_slice().into()));
        records.push(Record::PersistentGone(4 << 32));
        records.push(Record::Forgotten(SessionId(5)));
        let mut state = Vec::new();
        let name: Box<[u8]> = b"client".as_slice().into();
        state.push(StateRecord::Client(ClientRecord {
            name: name.clone(),
            verifier: Verifier([8; 8]),
            principal: Principal::LocalUser(3),
            has_locks: false,
        }));
        state.push(StateRecord::ClientGone(name.clone()));
        state.push(StateRecord::Locker(name));
        for phase in [
            RecordPhase::Held,
            RecordPhase::Revoked,
            RecordPhase::BrokenUnrolled,
            RecordPhase::Broken,
        ] {
            let lock = LockRecord {
                id: LockId(7),
                file: FileKey(0),
                client: ClientId(8),
                client_name: b"name".as_slice().into(),
                principal: b"principal".as_slice().into(),
                verifier: Verifier([9; 8]),
                owner: b"owner".as_slice().into(),
                range: ByteRange::new(10, 20).unwrap(),
                mode: LockMode::Write,
                attributes: LockAttributes { persist: true, ..LockAttributes::PLAIN },
                phase,
            };
            state.push(StateRecord::Lock(handle(6), Box::new(lock)));
        }
        state.push(StateRecord::LockGone(LockId(11)));
        let (handle_, range) = (handle(7), ByteRange::from_ends(5, u64::MAX).unwrap());
        state.push(StateRecord::UndoKept { id: UndoId(12), handle: handle_, range });
        state.push(StateRecord::UndoDropped { handle: handle_, range });
        let ids = |texts: &[&str]| texts.iter().map(|id| FenceId::new(id).unwrap()).collect();
        let objects = [FencedObject::File(handle(6)), FencedObject::FileSystem(FsHandle([7; 16]))];
        for object in objects {
            for fence_ids in [ids(&[]), ids(&["node-1", "Knoten zw\u{f6}lf"])] {
                state.push(StateRecord::Fence(FenceRecord { object, fence_ids }));
            }
        }
        records.extend(state.into_iter().map(Record::State));
        records
    }

    #[test]
    fn what_is_written_is_read() {
        for record in records() {
            assert_eq!(Record::decode(record.kind(), &record.encode()), Some(record));
        }
    }

    #[test]
    fn what_is_cut_off_or_unknown_is_none_of_ours() {
        for record in records() {
            let bytes = record.encode();
            // Messages and results may have any length; everything before them may not.
            let open_end = match &record {
                Record::Intent(intent) => intent.operation.len(),
                Record::Outcome(outcome) => outcome.outcome.len(),
                Record::Reply(reply) => reply.bytes.len(),
                Record::CallReply(reply) if is_persistent(&reply.origin) => RESULTS_BYTES,
                Record::CallReply(reply) => reply.bytes.len(),
                Record::Persistent(_, record) => record.len(),
                Record::State(StateRecord::Client(client)) => client.name.len(),
                Record::State(StateRecord::ClientGone(name) | StateRecord::Locker(name)) => {
                    name.len()
                }
                Record::Session(_)
                | Record::Abandoned(_)
                | Record::PersistentGone(_)
                | Record::Forgotten(_)
                | Record::State(_) => 0,
            };
            for length in 0..bytes.len() - open_end {
                assert_eq!(Record::decode(record.kind(), &bytes[..length]), None);
            }
        }
        assert_eq!(Record::decode(RecordKind(0), &[]), None);
        assert_eq!(Record::decode(RecordKind(77), &[1; 100]), None);
    }

    #[test]
    fn every_handle_in_a_record_is_renewed() {
        for mut record in records() {
            record.renew(|handle| *handle = FileHandle([0xee; 64]));
            let bytes = record.encode();
            let is_old = |part: &[u8]| {
                part.iter().all(|byte| *byte == part[0]) && !matches!(part[0], 0 | 0xee)
            };
            assert!(!bytes.windows(16).any(is_old), "{record:?}");
        }
    }
}

//! What the journal's records say, as octets (`docs/spec/journal.md`, "What records say").
//!
//! Requests are operations here, named by their origin ([`dafs_ops`]); what the DAFS front alone
//! understands, its sessions and the results that it has given, is in an envelope with its name.
//!
//! Invariant: what `encode` writes `decode` reads, in any later version of this server too:
//! a kind's layout never changes, new layouts get new kinds. Kinds that are not written any more
//! are read by [`super::legacy`]. All numbers are little-endian.

use dafs_filer::locks::{ByteRange, LockAttributes, LockId, LockMode, LockRecord, RecordPhase};
use dafs_filer::{
    ClientRecord, FenceId, FenceRecord, FencedObject, FileKey, Principal, RequestName,
    SessionRecord,
};
use dafs_journal::{RecordKind, UndoId};
use dafs_ops::{FrontId, Operation, Origin};
use dafs_types::{
    ClientId, Credentials, FileHandle, FsHandle, SequenceNumber, SessionId, Status, StreamId,
    Verifier,
};
use dafs_wire::ByteOrder;

use super::bytes::{Put, Take};
use super::legacy;

/// A request of DAFS, among all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    pub session: SessionId,
    pub request: RequestName,
}

impl RequestKey {
    /// The request's name among those of all fronts.
    pub fn origin(&self) -> Origin {
        let RequestName { stream, sequence, procedure } = self.request;
        Origin {
            front: FrontId::DAFS,
            session: self.session.0,
            slot: u32::from(stream.0),
            sequence: u32::from(sequence.0),
            // No procedure has a higher number.
            index: u16::try_from(procedure).unwrap_or(u16::MAX),
        }
    }

    /// The request that has this name; `None` if it is none of DAFS.
    pub fn of(origin: &Origin) -> Option<Self> {
        let Origin { front, session, slot, sequence, index } = *origin;
        let request = RequestName {
            stream: StreamId(u16::try_from(slot).ok()?),
            sequence: SequenceNumber(u16::try_from(sequence).ok()?),
            procedure: u32::from(index),
        };
        (front == FrontId::DAFS).then_some(Self { session: SessionId(session), request })
    }
}

/// What the file system said just before a request was to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// The name that will be made was free.
    NameFree,
    /// The file to be truncated was there.
    Truncates,
    /// The name that will go had this object.
    Victim(FileHandle),
    /// The old name had an object, and the new one perhaps another.
    Renames { object: FileHandle, replaced: Option<FileHandle> },
    /// Attributes will be set.
    Attributes,
    /// An append has its place: the file ended here.
    Appends { file: FileHandle, offset: u64, length: u32 },
}

/// A request that is about to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub key: RequestKey,
    pub who: Credentials,
    pub facts: Facts,
    /// What it asks for, as [`Operation::encode`] writes it.
    pub operation: Box<[u8]>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub key: RequestKey,
    /// As [`dafs_ops::encode_outcome`] writes it.
    pub outcome: Box<[u8]>,
}

/// How a request ended, as its client was told or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub key: RequestKey,
    pub status: Status,
    /// Everything behind the response's header, in the byte order of the session.
    pub octets: Box<[u8]>,
}

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A session whose results are kept begins.
    Session(SessionRecord),
    /// A request is about to be carried out.
    Intent(Intent),
    /// A request was carried out, or could not be.
    Outcome(Outcome),
    /// The same of any request whose results are kept.
    Reply(Reply),
    /// A request was not carried out after all.
    Abandoned(RequestKey),
    /// Nobody will ask for a session's results any more.
    Forgotten(SessionId),
    /// A client has state that it may take back after a restart.
    Client(ClientRecord),
    /// A client has none any more, by its name.
    ClientGone(Box<[u8]>),
    /// This client takes plain locks, which are not written down.
    Locker(Box<[u8]>),
    /// A lock that outlives its owner; the key in it means nothing.
    Lock(FileHandle, Box<LockRecord>),
    /// It is no more.
    LockGone(LockId),
    /// Who may reach an object, from now on; everybody if nobody is named.
    Fence(FenceRecord),
    /// From now on what is overwritten in a range is saved as this undo data.
    UndoKept { id: UndoId, handle: FileHandle, range: ByteRange },
    /// What was saved of a range means nothing any more.
    UndoDropped { handle: FileHandle, range: ByteRange },
}

impl Record {
    /// Its kind in the journal.
    pub fn kind(&self) -> RecordKind {
        RecordKind(match self {
            Self::Intent(_) => INTENT.0,
            Self::Outcome(_) => 31,
            Self::Abandoned(_) => 32,
            Self::Session(_) | Self::Reply(_) => 33,
            Self::Forgotten(_) => 34,
            Self::Client(_) => 6,
            Self::ClientGone(_) => 7,
            Self::Lock(..) => 8,
            Self::LockGone(_) => 9,
            Self::Fence(_) => 10,
            Self::Locker(_) => 11,
            Self::UndoKept { .. } => 20,
            Self::UndoDropped { .. } => 21,
        })
    }

    /// Its octets.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Session(session) => {
                put_front(&mut to, &session_key(session.id));
                put_session(&mut to, session);
            }
            Self::Intent(intent) => put_intent(&mut to, intent),
            Self::Outcome(outcome) => {
                outcome.key.origin().encode(&mut to);
                to.put_rest(&outcome.outcome);
            }
            Self::Reply(Reply { key, status, octets }) => {
                put_front(&mut to, &reply_key(key));
                to.put_u16(key.request.sequence.0);
                to.put_u32(key.request.procedure);
                to.put_u32(status.number());
                to.put_rest(octets);
            }
            Self::Abandoned(key) => key.origin().encode(&mut to),
            Self::Forgotten(session) => put_front(&mut to, &session_key(*session)),
            Self::Client(client) => {
                to.put_rest(&client.verifier.0);
                put_principal(&mut to, &client.principal);
                to.put_rest(&client.name);
            }
            Self::ClientGone(name) | Self::Locker(name) => to.put_rest(name),
            Self::Lock(handle, lock) => put_lock(&mut to, handle, lock),
            Self::LockGone(id) => to.put_u64(id.0),
            Self::Fence(fence) => put_fence(&mut to, fence),
            Self::UndoKept { id, handle, range } => {
                to.put_u64(id.0);
                put_range_of(&mut to, handle, *range);
            }
            Self::UndoDropped { handle, range } => put_range_of(&mut to, handle, *range),
        }
        to
    }

    /// Has each handle in it brought up to date, whichever server wrote the record. Outcomes are
    /// answers, in which each is good.
    pub fn renew(&mut self, renew: impl Fn(&mut FileHandle)) {
        match self {
            Self::Intent(intent) => {
                intent.renew_operation(&renew);
                match &mut intent.facts {
                    Facts::Victim(handle) | Facts::Appends { file: handle, .. } => renew(handle),
                    Facts::Renames { object, replaced } => {
                        renew(object);
                        replaced.iter_mut().for_each(renew);
                    }
                    Facts::NameFree | Facts::Truncates | Facts::Attributes => {}
                }
            }
            Self::Lock(handle, _)
            | Self::UndoKept { handle, .. }
            | Self::UndoDropped { handle, .. } => renew(handle),
            Self::Fence(fence) => match &mut fence.object {
                FencedObject::File(handle) => renew(handle),
                FencedObject::FileSystem(fs) => {
                    let mut alone = FileHandle::new(*fs, [0; 48]);
                    renew(&mut alone);
                    *fs = alone.fs();
                }
            },
            Self::Session(_)
            | Self::Outcome(_)
            | Self::Reply(_)
            | Self::Abandoned(_)
            | Self::Forgotten(_)
            | Self::Client(_)
            | Self::ClientGone(_)
            | Self::Locker(_)
            | Self::LockGone(_) => {}
        }
    }

    /// Reads a record. `None` if it is not one of ours.
    pub fn decode(kind: RecordKind, octets: &[u8]) -> Option<Self> {
        let mut from = octets;
        let record = match kind.0 {
            1..=5 => return legacy::decode(kind, octets),
            6 => Self::Client(ClientRecord {
                verifier: Verifier(from.take_array()?),
                principal: take_principal(&mut from)?,
                name: std::mem::take(&mut from).into(),
                has_locks: false,
            }),
            7 => Self::ClientGone(std::mem::take(&mut from).into()),
            8 => {
                let (handle, lock) = take_lock(&mut from)?;
                Self::Lock(handle, Box::new(lock))
            }
            9 => Self::LockGone(LockId(from.take_u64()?)),
            10 => Self::Fence(take_fence(&mut from)?),
            11 => Self::Locker(std::mem::take(&mut from).into()),
            20 => {
                let id = UndoId(from.take_u64()?);
                let (handle, range) = take_range_of(&mut from)?;
                Self::UndoKept { id, handle, range }
            }
            21 => {
                let (handle, range) = take_range_of(&mut from)?;
                Self::UndoDropped { handle, range }
            }
            30 => Self::Intent(take_intent(&mut from)?),
            31 => Self::Outcome(Outcome {
                key: take_origin(&mut from)?,
                outcome: std::mem::take(&mut from).into(),
            }),
            32 => Self::Abandoned(take_origin(&mut from)?),
            33 => take_front(&mut from)?,
            34 => Self::Forgotten(take_session_key(&take_front_key(&mut from)?)?),
            _ => return None,
        };
        from.is_empty().then_some(record)
    }
}

impl Intent {
    fn renew_operation(&mut self, renew: impl Fn(&mut FileHandle)) {
        let Some(mut operation) = Operation::decode(&self.operation) else { return };
        operation.named_mut().into_iter().flatten().for_each(renew);
        let mut octets = Vec::with_capacity(self.operation.len());
        operation.encode(&mut octets);
        self.operation = octets.into();
    }
}

/// Which front the rest is for, and the front's name for it.
fn put_front(to: &mut Vec<u8>, key: &[u8]) {
    to.push(FrontId::DAFS.0);
    to.put_counted(key);
}

/// The DAFS front's name for what follows. `None` if it is of another front.
fn take_front_key(from: &mut &[u8]) -> Option<Box<[u8]>> {
    (from.take_u8()? == FrontId::DAFS.0).then_some(())?;
    from.take_counted().map(Box::from)
}

fn session_key(session: SessionId) -> [u8; SESSION_KEY_BYTES] {
    session.0.to_le_bytes()
}

fn take_session_key(key: &[u8]) -> Option<SessionId> {
    Some(SessionId(u64::from_le_bytes(key.try_into().ok()?)))
}

fn reply_key(key: &RequestKey) -> Vec<u8> {
    let mut octets = session_key(key.session).to_vec();
    octets.put_u16(key.request.stream.0);
    octets
}

fn take_front(from: &mut &[u8]) -> Option<Record> {
    let key = take_front_key(from)?;
    let (session, mut stream) = key.split_at_checked(SESSION_KEY_BYTES)?;
    let session = take_session_key(session)?;
    if stream.is_empty() {
        return Some(Record::Session(take_session(session, from)?));
    }
    let stream = StreamId(stream.take_u16().filter(|_| stream.is_empty())?);
    let (sequence, procedure) = (SequenceNumber(from.take_u16()?), from.take_u32()?);
    let status = Status::from_number(from.take_u32()?)?;
    let request = RequestName { stream, sequence, procedure };
    let octets = std::mem::take(from).into();
    Some(Record::Reply(Reply { key: RequestKey { session, request }, status, octets }))
}

fn put_session(to: &mut Vec<u8>, session: &SessionRecord) {
    to.push(order_number(session.order));
    put_principal(to, &session.principal);
    to.put_counted(&session.client_name);
}

fn put_principal(to: &mut Vec<u8>, principal: &Principal) {
    match principal {
        Principal::Anonymous => to.push(0),
        Principal::LocalUser(uid) => {
            to.push(1);
            to.put_u32(*uid);
        }
        Principal::User(name) => {
            to.push(2);
            to.put_counted(name.as_bytes());
        }
        Principal::Gss(name) => {
            to.push(3);
            to.put_counted(name.as_bytes());
        }
    }
}

pub(super) fn take_session(id: SessionId, from: &mut &[u8]) -> Option<SessionRecord> {
    let order = take_order(from)?;
    let principal = take_principal(from)?;
    Some(SessionRecord { id, client_name: from.take_counted()?.into(), principal, order })
}

fn take_principal(from: &mut &[u8]) -> Option<Principal> {
    match from.take_u8()? {
        0 => Some(Principal::Anonymous),
        1 => Some(Principal::LocalUser(from.take_u32()?)),
        2 => Some(Principal::User(std::str::from_utf8(from.take_counted()?).ok()?.into())),
        3 => Some(Principal::Gss(std::str::from_utf8(from.take_counted()?).ok()?.into())),
        _ => None,
    }
}

fn put_intent(to: &mut Vec<u8>, intent: &Intent) {
    intent.key.origin().encode(to);
    to.put_u32(intent.who.uid());
    to.put_u32(intent.who.gid());
    to.put_u32(intent.who.groups().len() as u32);
    for group in intent.who.groups() {
        to.put_u32(*group);
    }
    match &intent.facts {
        Facts::NameFree => to.push(0),
        Facts::Truncates => to.push(1),
        Facts::Victim(handle) => {
            to.push(2);
            to.put_rest(&handle.0);
        }
        Facts::Renames { object, replaced } => {
            to.push(if replaced.is_some() { 4 } else { 3 });
            to.put_rest(&object.0);
            if let Some(replaced) = replaced {
                to.put_rest(&replaced.0);
            }
        }
        Facts::Attributes => to.push(5),
        Facts::Appends { file, offset, length } => {
            to.push(6);
            to.put_rest(&file.0);
            to.put_u64(*offset);
            to.put_u32(*length);
        }
    }
    to.put_rest(&intent.operation);
}

fn take_intent(from: &mut &[u8]) -> Option<Intent> {
    let key = take_origin(from)?;
    let (who, facts) = take_circumstances(from)?;
    let operation = std::mem::take(from).into();
    Some(Intent { key, who, facts, operation })
}

fn take_origin(from: &mut &[u8]) -> Option<RequestKey> {
    RequestKey::of(&Origin::take(from)?)
}

/// In whose name a request is carried out, and what the file system said.
pub(super) fn take_circumstances(from: &mut &[u8]) -> Option<(Credentials, Facts)> {
    let (uid, gid, count) = (from.take_u32()?, from.take_u32()?, from.take_u32()?);
    // Each takes four octets, so that a wrong count finds its end.
    let groups = (0..count).map(|_| from.take_u32()).collect::<Option<Vec<_>>>()?;
    let who = Credentials::new(uid, gid, groups).ok()?;
    let facts = match from.take_u8()? {
        0 => Facts::NameFree,
        1 => Facts::Truncates,
        2 => Facts::Victim(take_handle(from)?),
        3 => Facts::Renames { object: take_handle(from)?, replaced: None },
        4 => Facts::Renames { object: take_handle(from)?, replaced: Some(take_handle(from)?) },
        5 => Facts::Attributes,
        6 => Facts::Appends {
            file: take_handle(from)?,
            offset: from.take_u64()?,
            length: from.take_u32()?,
        },
        _ => return None,
    };
    Some((who, facts))
}

fn put_lock(to: &mut Vec<u8>, handle: &FileHandle, lock: &LockRecord) {
    to.put_u64(lock.id.0);
    to.put_rest(&handle.0);
    to.put_u64(lock.client.0);
    to.put_rest(&lock.verifier.0);
    to.put_u64(lock.range.first());
    to.put_u64(lock.range.last());
    let options = u8::from(lock.attributes.persist) | u8::from(lock.attributes.auto_recovery) << 1;
    to.push(options | u8::from(lock.mode == LockMode::Write) << 2);
    to.push(match lock.phase {
        RecordPhase::Held => 0,
        RecordPhase::Revoked => 1,
        RecordPhase::BrokenUnrolled => 2,
        RecordPhase::Broken => 3,
    });
    to.put_counted(&lock.client_name);
    to.put_counted(&lock.principal);
    to.put_counted(&lock.owner);
}

fn take_lock(from: &mut &[u8]) -> Option<(FileHandle, LockRecord)> {
    let id = LockId(from.take_u64()?);
    let handle = take_handle(from)?;
    let (client, verifier) = (ClientId(from.take_u64()?), Verifier(from.take_array()?));
    let range = ByteRange::from_ends(from.take_u64()?, from.take_u64()?)?;
    let bits = from.take_u8()?;
    let attributes = LockAttributes { persist: bits & 1 != 0, auto_recovery: bits & 2 != 0 };
    let mode = if bits & 4 != 0 { LockMode::Write } else { LockMode::Read };
    let phase = match from.take_u8()? {
        0 => RecordPhase::Held,
        1 => RecordPhase::Revoked,
        2 => RecordPhase::BrokenUnrolled,
        3 => RecordPhase::Broken,
        _ => return None,
    };
    let client_name = from.take_counted()?.into();
    let principal = from.take_counted()?.into();
    let owner = from.take_counted()?.into();
    let file = FileKey(0);
    let lock = LockRecord {
        id,
        file,
        client,
        client_name,
        principal,
        verifier,
        owner,
        range,
        mode,
        attributes,
        phase,
    };
    Some((handle, lock))
}

fn put_fence(to: &mut Vec<u8>, fence: &FenceRecord) {
    match &fence.object {
        FencedObject::File(file) => {
            to.push(0);
            to.put_rest(&file.0);
        }
        FencedObject::FileSystem(fs) => {
            to.push(1);
            to.put_rest(&fs.0);
        }
    }
    to.put_u32(fence.fence_ids.len() as u32);
    for fence_id in &fence.fence_ids {
        to.put_counted(fence_id.as_str().as_bytes());
    }
}

fn take_fence(from: &mut &[u8]) -> Option<FenceRecord> {
    let object = match from.take_u8()? {
        0 => FencedObject::File(take_handle(from)?),
        1 => FencedObject::FileSystem(from.take_array().map(FsHandle)?),
        _ => return None,
    };
    let count = from.take_u32()?;
    let mut take_id = || FenceId::new(std::str::from_utf8(from.take_counted()?).ok()?).ok();
    // Each takes four octets, so that a wrong count finds its end.
    let fence_ids = (0..count).map(|_| take_id()).collect::<Option<_>>()?;
    Some(FenceRecord { object, fence_ids })
}

fn put_range_of(to: &mut Vec<u8>, handle: &FileHandle, range: ByteRange) {
    to.put_rest(&handle.0);
    to.put_u64(range.first());
    to.put_u64(range.last());
}

fn take_range_of(from: &mut &[u8]) -> Option<(FileHandle, ByteRange)> {
    let handle = take_handle(from)?;
    Some((handle, ByteRange::from_ends(from.take_u64()?, from.take_u64()?)?))
}

fn take_handle(from: &mut &[u8]) -> Option<FileHandle> {
    from.take_array().map(FileHandle)
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

/// An intent's kind, for those that are written again as they are.
pub const INTENT: RecordKind = RecordKind(30);
/// Octets of the DAFS front's name for a session.
const SESSION_KEY_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use dafs_ops::Remove;
    use dafs_types::RemoveMode;

    use super::*;

    fn key() -> RequestKey {
        let (stream, sequence) = (StreamId(3), SequenceNumber(65_535));
        let request = RequestName { stream, sequence, procedure: 144 };
        RequestKey { session: SessionId(0x0123_4567_89ab_cdef), request }
    }

    fn records() -> Vec<Record> {
        let handle = |octet| FileHandle([octet; 64]);
        let all_facts = [
            Facts::NameFree,
            Facts::Truncates,
            Facts::Victim(handle(1)),
            Facts::Renames { object: handle(2), replaced: None },
            Facts::Renames { object: handle(3), replaced: Some(handle(4)) },
            Facts::Attributes,
            Facts::Appends { file: handle(5), offset: 1 << 40, length: 7 },
        ];
        let who = Credentials::new(1, 2, [3, 4]).unwrap();
        let mut operation = Vec::new();
        let (directory, mode) = (handle(8), RemoveMode::Unchecked);
        Operation::Remove(Remove { directory, name: b"name", mode }).encode(&mut operation);
        let intent = |facts| Intent {
            key: key(),
            who: who.clone(),
            facts,
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
        let octets: Box<[u8]> = b"results".as_slice().into();
        let outcome = Outcome { key: key(), outcome: octets.clone() };
        let reply = Reply { key: key(), status: Status::Exist, octets };
        let mut records: Vec<_> = all_facts.map(|facts| Record::Intent(intent(facts))).into();
        records.extend(principals.map(|principal| Record::Session(session(principal))));
        records.push(Record::Outcome(outcome));
        records.push(Record::Reply(reply));
        records.push(Record::Abandoned(key()));
        records.push(Record::Forgotten(SessionId(5)));
        let name: Box<[u8]> = b"client".as_slice().into();
        records.push(Record::Client(ClientRecord {
            name: name.clone(),
            verifier: Verifier([8; 8]),
            principal: Principal::LocalUser(3),
            has_locks: false,
        }));
        records.push(Record::ClientGone(name.clone()));
        records.push(Record::Locker(name));
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
                attributes: LockAttributes { persist: true, auto_recovery: false },
                phase,
            };
            records.push(Record::Lock(handle(6), Box::new(lock)));
        }
        records.push(Record::LockGone(LockId(11)));
        let (handle_, range) = (handle(7), ByteRange::from_ends(5, u64::MAX).unwrap());
        records.push(Record::UndoKept { id: UndoId(12), handle: handle_, range });
        records.push(Record::UndoDropped { handle: handle_, range });
        let ids = |texts: &[&str]| texts.iter().map(|id| FenceId::new(id).unwrap()).collect();
        let objects = [FencedObject::File(handle(6)), FencedObject::FileSystem(FsHandle([7; 16]))];
        for object in objects {
            for fence_ids in [ids(&[]), ids(&["node-1", "Knoten zw\u{f6}lf"])] {
                records.push(Record::Fence(FenceRecord { object, fence_ids }));
            }
        }
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
            let octets = record.encode();
            // Messages and results may be of any length; all that stands before may not.
            let open_end = match &record {
                Record::Intent(intent) => intent.operation.len(),
                Record::Outcome(outcome) => outcome.outcome.len(),
                Record::Reply(reply) => reply.octets.len(),
                Record::Client(client) => client.name.len(),
                Record::ClientGone(name) | Record::Locker(name) => name.len(),
                Record::Session(_)
                | Record::Abandoned(_)
                | Record::Forgotten(_)
                | Record::Lock(..)
                | Record::LockGone(_)
                | Record::Fence(_)
                | Record::UndoKept { .. }
                | Record::UndoDropped { .. } => 0,
            };
            for length in 0..octets.len() - open_end {
                assert_eq!(Record::decode(record.kind(), &octets[..length]), None);
            }
        }
        assert_eq!(Record::decode(RecordKind(0), &[]), None);
        assert_eq!(Record::decode(RecordKind(77), &[1; 100]), None);
    }

    #[test]
    fn every_handle_in_a_record_is_renewed() {
        for mut record in records() {
            record.renew(|handle| *handle = FileHandle([0xee; 64]));
            let octets = record.encode();
            let is_old = |part: &[u8]| {
                part.iter().all(|octet| *octet == part[0]) && !matches!(part[0], 0 | 0xee)
            };
            assert!(!octets.windows(16).any(is_old), "{record:?}");
        }
    }
}

//! The persistent sessions of NFSv4, as the journal has them (RFC 8881 section 2.10.6.5).
//!
//! A persistent session survives a restart of the server, together with the last request of each
//! slot that changed something. If the client sends such a request again, it gets the first reply.
//! If the server was killed in the middle of the request, the next server executes the rest of it.
//!
//! Invariants:
//! - A slot has at most one entry. It is about the last request that was journaled.
//! - The total length of the kept replies and results is limited. The oldest go first. A request
//!   whose reply has gone is not executed again; its client is told that the reply was not kept.
//! - Entries of sessions that have ended are ignored.

use std::collections::BTreeMap;

use dafs_files::ledger::bytes::{Put, Take};
use dafs_files::ledger::state::take_handle;
use dafs_ops::{FrontId, Origin, OwnedDone};
use dafs_types::FileHandle;

/// The persistent sessions, by the numbers of their ids.
#[derive(Debug, Default)]
pub(crate) struct PersistentSessions {
    sessions: BTreeMap<u64, Session>,
    /// The slots with kept replies or results, by age.
    by_age: BTreeMap<u64, (u64, u32)>,
    /// The total length of the kept replies and results.
    kept_bytes: usize,
    last_age: u64,
}

#[derive(Debug)]
struct Session {
    /// The record of the session, which only the front end interprets.
    record: Box<[u8]>,
    slots: BTreeMap<u32, Slot>,
}

#[derive(Debug)]
struct Slot {
    origin: Origin,
    note: SlotNote,
    /// The result of the operation that the origin names, if a previous server has executed it
    /// without noting so.
    done: Option<Box<OwnedDone>>,
    /// The key in `by_age`; 0 if nothing is kept.
    age: u64,
}

/// What the journal has about the last request of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotNote {
    /// The checksum of the request.
    pub checksum: u64,
    pub state: SlotState,
}

/// The state of the last request of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// The request was executed and has this reply, without the RPC header.
    Replied(Box<[u8]>),
    /// The request was executed. Its reply was not kept.
    NotKept,
    /// Some operations were executed. The next one is that which the origin names, if its intent
    /// was journaled.
    Progress(PartDone),
    /// As `Progress`, but the results were too long to be kept. `is_first` is true if no earlier
    /// operation of the request was journaled.
    LongProgress { is_first: bool },
}

/// A request of which some operations were executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartDone {
    /// The number of executed operations.
    pub count: u32,
    /// The current file handle.
    pub current: Option<FileHandle>,
    /// The saved file handle.
    pub saved: Option<FileHandle>,
    /// The encoded results of the executed operations.
    pub results: Box<[u8]>,
}

impl PersistentSessions {
    /// Adds a session, or replaces the record of a session.
    pub(crate) fn insert(&mut self, session: u64, record: &[u8]) {
        let new = || Session { record: Box::default(), slots: BTreeMap::new() };
        self.sessions.entry(session).or_insert_with(new).record = record.into();
    }

    /// Removes a session that has ended.
    pub(crate) fn remove(&mut self, session: u64) {
        let Some(removed) = self.sessions.remove(&session) else { return };
        for slot in removed.slots.values() {
            self.forget_kept(slot);
        }
    }

    /// Returns the record of a session.
    pub(crate) fn record(&self, session: u64) -> Option<&[u8]> {
        Some(&self.sessions.get(&session)?.record)
    }

    /// Returns the sessions and their records.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.sessions.iter().map(|(number, session)| (*number, &session.record[..]))
    }

    /// Returns the entries of a session's slots.
    pub(crate) fn slots(&self, session: u64) -> impl Iterator<Item = (&Origin, &SlotNote)> {
        let session = self.sessions.get(&session);
        session.into_iter().flat_map(|session| session.slots.values()).map(Slot::facts)
    }

    /// Returns all slots with an entry.
    pub(crate) fn all_slots(&self) -> impl Iterator<Item = (&Origin, &SlotNote)> {
        self.sessions.values().flat_map(|session| session.slots.values()).map(Slot::facts)
    }

    /// Returns the results of the requests that were executed up to the operation that their origin
    /// names.
    pub(crate) fn results(&self) -> impl Iterator<Item = (&Origin, &OwnedDone)> {
        let slots = self.sessions.values().flat_map(|session| session.slots.values());
        slots.filter_map(|slot| Some((&slot.origin, &**slot.done.as_ref()?)))
    }

    /// Replaces the entry of a slot. `bytes` are an encoded [`SlotNote`].
    pub(crate) fn note(&mut self, origin: Origin, bytes: &[u8]) {
        if let Some(note) = SlotNote::decode(bytes) {
            self.set(origin, note);
        }
    }

    fn set(&mut self, origin: Origin, note: SlotNote) {
        if !self.sessions.contains_key(&origin.session) {
            return;
        }
        let mut age = 0;
        if let Some(length) = note.state.kept_bytes() {
            self.last_age += 1;
            age = self.last_age;
            self.kept_bytes += length;
            self.by_age.insert(age, (origin.session, origin.slot));
        }
        if let Some(session) = self.sessions.get_mut(&origin.session) {
            let slot = Slot { origin, note, done: None, age };
            if let Some(before) = session.slots.insert(origin.slot, slot) {
                self.forget_kept(&before);
            }
        }
        while self.kept_bytes > KEPT_BYTES_MAX {
            let Some((_, (session, slot))) = self.by_age.pop_first() else { return };
            let session = self.sessions.get_mut(&session);
            let Some(slot) = session.and_then(|session| session.slots.get_mut(&slot)) else {
                continue;
            };
            self.kept_bytes -= slot.note.state.kept_bytes().unwrap_or_default();
            slot.age = 0;
            slot.note.state = match slot.note.state {
                SlotState::Progress(_) if slot.done.is_none() => {
                    SlotState::LongProgress { is_first: false }
                }
                _ => SlotState::NotKept,
            };
            slot.done = None;
        }
    }

    fn forget_kept(&mut self, slot: &Slot) {
        if self.by_age.remove(&slot.age).is_some() {
            self.kept_bytes -= slot.note.state.kept_bytes().unwrap_or_default();
        }
    }

    /// Notes the verdict about the operation that an origin names: it was executed with this
    /// result, or it was not executed.
    pub(crate) fn judge(&mut self, origin: &Origin, done: Option<OwnedDone>) {
        let Some(session) = self.sessions.get_mut(&origin.session) else { return };
        let Some(slot) = session.slots.get_mut(&origin.slot) else { return };
        if slot.origin != *origin {
            return;
        }
        match (&slot.note.state, done) {
            (SlotState::Progress(_), done) => slot.done = done.map(Box::new),
            (SlotState::LongProgress { .. }, Some(_)) => slot.note.state = SlotState::NotKept,
            _ => {}
        }
    }

    /// Removes the requests that have changed nothing and whose results were too long to be kept.
    /// They can be executed as new ones. Must be called after all verdicts.
    pub(crate) fn end_verdicts(&mut self) {
        let nothing = SlotState::LongProgress { is_first: true };
        for session in self.sessions.values_mut() {
            session.slots.retain(|_, slot| slot.note.state != nothing);
        }
    }

    /// Returns the part of a request that was executed before the restart, and the result of the
    /// next operation if it was executed, too.
    pub(crate) fn part_done(
        &self,
        session: u64,
        slot: u32,
        sequence: u32,
    ) -> Option<(PartDone, Option<OwnedDone>)> {
        let slot = self.sessions.get(&session)?.slots.get(&slot)?;
        let SlotState::Progress(part) = &slot.note.state else { return None };
        let is_its = slot.origin.sequence == sequence;
        is_its.then(|| (part.clone(), slot.done.as_deref().cloned()))
    }
}

impl Slot {
    fn facts(&self) -> (&Origin, &SlotNote) {
        (&self.origin, &self.note)
    }
}

impl SlotState {
    /// Returns the length of the reply or the results; `None` if neither is kept.
    fn kept_bytes(&self) -> Option<usize> {
        match self {
            Self::Replied(reply) => Some(reply.len()),
            Self::Progress(part) => Some(part.results.len()),
            Self::NotKept | Self::LongProgress { .. } => None,
        }
    }
}

impl SlotNote {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let tag = match &self.state {
            SlotState::Replied(_) => REPLIED,
            SlotState::NotKept => NOT_KEPT,
            SlotState::Progress(_) => PROGRESS,
            SlotState::LongProgress { is_first: false } => LONG_PROGRESS,
            SlotState::LongProgress { is_first: true } => LONG_FIRST_PROGRESS,
        };
        to.push(tag);
        to.put_u64(self.checksum);
        match &self.state {
            SlotState::Replied(reply) => to.put_rest(reply),
            SlotState::Progress(part) => {
                to.put_u32(part.count);
                for handle in [&part.current, &part.saved] {
                    to.push(u8::from(handle.is_some()));
                    if let Some(handle) = handle {
                        to.put_rest(&handle.0);
                    }
                }
                to.put_rest(&part.results);
            }
            SlotState::NotKept | SlotState::LongProgress { .. } => {}
        }
        to
    }

    /// Decodes a note. `None` if the bytes are not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = bytes;
        let (tag, checksum) = (from.take_u8()?, from.take_u64()?);
        let state = match tag {
            REPLIED => SlotState::Replied(std::mem::take(&mut from).into()),
            NOT_KEPT => SlotState::NotKept,
            PROGRESS => {
                let count = from.take_u32()?;
                let (current, saved) = (take_some(&mut from)?, take_some(&mut from)?);
                let results = std::mem::take(&mut from).into();
                SlotState::Progress(PartDone { count, current, saved, results })
            }
            LONG_PROGRESS => SlotState::LongProgress { is_first: false },
            LONG_FIRST_PROGRESS => SlotState::LongProgress { is_first: true },
            _ => return None,
        };
        from.is_empty().then_some(Self { checksum, state })
    }

    /// Converts each handle outside of results to the form that the store uses now.
    pub(crate) fn renew(&mut self, renew: impl Fn(&mut FileHandle)) {
        if let SlotState::Progress(part) = &mut self.state {
            part.current.iter_mut().chain(&mut part.saved).for_each(renew);
        }
    }
}

fn take_some(from: &mut &[u8]) -> Option<Option<FileHandle>> {
    match from.take_u8()? {
        0 => Some(None),
        1 => take_handle(from).map(Some),
        _ => None,
    }
}

/// Returns true if an origin names an operation of a persistent session.
pub(crate) fn is_persistent(origin: &Origin) -> bool {
    origin.front == FrontId::NFS4
}

const REPLIED: u8 = 0;
const NOT_KEPT: u8 = 1;
const PROGRESS: u8 = 2;
const LONG_PROGRESS: u8 = 3;
const LONG_FIRST_PROGRESS: u8 = 4;

/// The maximum total length in bytes of the kept replies and results. A checkpoint of the journal
/// contains all of them.
const KEPT_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use dafs_ops::{Changed, Done};
    use dafs_types::ChangeInfo;

    use super::*;

    fn origin(session: u64, slot: u32, sequence: u32, index: u16) -> Origin {
        Origin { front: FrontId::NFS4, session, slot, sequence, index }
    }

    fn note(state: SlotState) -> Vec<u8> {
        SlotNote { checksum: 9, state }.encode()
    }

    fn part() -> PartDone {
        let current = Some(FileHandle([4; 64]));
        PartDone { count: 3, current, saved: None, results: b"results".as_slice().into() }
    }

    fn done() -> OwnedDone {
        Done::Changed(Changed { directory: ChangeInfo { before: 0, after: 1, atomic: false } })
    }

    #[test]
    fn every_note_is_read_as_it_was_written() {
        for state in [
            SlotState::Replied(b"reply".as_slice().into()),
            SlotState::NotKept,
            SlotState::Progress(part()),
            SlotState::Progress(PartDone { saved: Some(FileHandle([5; 64])), ..part() }),
            SlotState::LongProgress { is_first: true },
            SlotState::LongProgress { is_first: false },
        ] {
            let written = SlotNote { checksum: 7 << 40, state };
            assert_eq!(SlotNote::decode(&written.encode()), Some(written));
        }
        assert_eq!(SlotNote::decode(&[5; 9]), None);
        assert_eq!(SlotNote::decode(&note(SlotState::Progress(part()))[..70]), None);
        assert_eq!(SlotNote::decode(&[note(SlotState::NotKept), vec![0]].concat()), None);
    }

    #[test]
    fn a_slot_has_its_last_request_until_its_session_ends() {
        let mut sessions = PersistentSessions::default();
        sessions.note(origin(1, 0, 1, 2), &note(SlotState::NotKept));
        assert_eq!(sessions.all_slots().count(), 0, "there is no such session");
        sessions.insert(1, b"one");
        sessions.insert(2, b"two");
        sessions.note(origin(1, 0, 1, 2), &note(SlotState::Progress(part())));
        sessions.note(origin(1, 0, 1, 2), &note(SlotState::Replied([1; 10].into())));
        sessions.note(origin(1, 0, 2, 3), &note(SlotState::Replied([2; 20].into())));
        sessions.note(origin(2, 0, 1, 2), &note(SlotState::Replied([3; 30].into())));
        let slots: Vec<_> = sessions.slots(1).map(|(origin, _)| *origin).collect();
        assert_eq!(slots, [origin(1, 0, 2, 3)]);
        assert_eq!((sessions.kept_bytes, sessions.by_age.len()), (50, 2));
        sessions.insert(1, b"new record");
        assert_eq!(sessions.slots(1).count(), 1);
        sessions.remove(1);
        assert_eq!((sessions.kept_bytes, sessions.by_age.len()), (30, 1));
        assert_eq!(sessions.sessions().collect::<Vec<_>>(), [(2, b"two".as_slice())]);
    }

    #[test]
    fn the_oldest_replies_go_first_but_their_requests_stay_known() {
        let mut sessions = PersistentSessions::default();
        sessions.insert(1, b"");
        let length = KEPT_BYTES_MAX / 8;
        for slot in 0..10 {
            let reply = SlotState::Replied(vec![0; length].into());
            sessions.note(origin(1, slot, 1, 1), &note(reply));
        }
        let kept = |(_, note): (&Origin, &SlotNote)| matches!(note.state, SlotState::Replied(_));
        let kept: Vec<_> = sessions.slots(1).map(kept).collect();
        assert_eq!(kept, [[false; 2].as_slice(), &[true; 8]].concat());
        assert_eq!(sessions.kept_bytes, KEPT_BYTES_MAX);
        // The results of a request that is being executed count, too.
        let long = PartDone { results: vec![0; KEPT_BYTES_MAX].into(), ..part() };
        sessions.note(origin(1, 0, 2, 3), &note(SlotState::Progress(long)));
        assert_eq!((sessions.kept_bytes, sessions.by_age.len()), (KEPT_BYTES_MAX, 1));
        sessions.note(origin(1, 1, 2, 3), &note(SlotState::Progress(part())));
        assert_eq!(sessions.part_done(1, 0, 2), None);
        sessions.judge(&origin(1, 0, 2, 3), None);
        sessions.end_verdicts();
        assert_eq!(sessions.slots(1).count(), 10);
    }

    #[test]
    fn a_verdict_belongs_to_the_operation_that_it_names() {
        let mut sessions = PersistentSessions::default();
        sessions.insert(1, b"");
        sessions.note(origin(1, 0, 5, 3), &note(SlotState::Progress(part())));
        sessions.judge(&origin(1, 0, 5, 2), Some(done()));
        sessions.judge(&origin(1, 0, 4, 3), Some(done()));
        assert_eq!(sessions.part_done(1, 0, 5), Some((part(), None)));
        sessions.judge(&origin(1, 0, 5, 3), Some(done()));
        assert_eq!(sessions.part_done(1, 0, 5), Some((part(), Some(done()))));
        assert_eq!(sessions.results().count(), 1);
        assert_eq!(sessions.part_done(1, 0, 6), None);
        // Without the results so far, the request can only be executed as a whole.
        for (is_first, executed, stays) in
            [(true, false, false), (true, true, true), (false, false, true)]
        {
            let long = SlotState::LongProgress { is_first };
            sessions.note(origin(1, 1, 5, 3), &note(long));
            sessions.judge(&origin(1, 1, 5, 3), executed.then(done));
            sessions.end_verdicts();
            let is_there = sessions.slots(1).any(|(origin, _)| origin.slot == 1);
            assert_eq!(is_there, stays, "first: {is_first}, executed: {executed}");
            assert_eq!(sessions.part_done(1, 1, 5), None);
        }
    }
}

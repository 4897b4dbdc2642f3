//! The opens of a session, and the state ids that name them.
//!
//! Invariant: an [`Opened`] represents one open until the open is closed. Until then, every state
//! id that the open has had leads to it. A restarted server gives the open another state id.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dafs_types::{FileHandle, ShareAccess, ShareDeny, ShareKey, StateId, Status};
use dafs_wire::messages::{Close, Open, OpenDowngrade, OpenTarget, Unlock};
use dafs_wire::{
    ByteOrder, HEADER_BYTES, Procedure, Request, Response, decode_request, decode_response,
};

use crate::error::ClientError;
use crate::held_locks::{HeldLock, HeldLocks};
use crate::impersonation::{RegisteredCredentials, acting_in};
use crate::requests::{procedure_of, word_at};

/// One open of one file, shared by the [`File`](crate::File)s and requests that use it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub handle: FileHandle,
    state: Cell<StateId>,
    claim: Option<Claim>,
    /// The number of unstable writes whose replies have arrived, modulo 2^32.
    writes: Cell<u32>,
    /// The number of unstable writes that a commit has confirmed, modulo 2^32.
    confirmed: Cell<u32>,
    /// True if the server has restarted after unstable writes of this open, and the application
    /// does not know it yet.
    has_lost_data: Cell<bool>,
    /// True if a restarted server lost the open, and it could not be reclaimed.
    is_lost: Cell<bool>,
    locks: RefCell<HeldLocks>,
    /// The number of this open's transfers that are in flight on additional channels.
    transfers_elsewhere: Cell<u32>,
}

/// The data needed to reclaim an open.
#[derive(Debug)]
struct Claim {
    /// The encoded OPEN request that created the open.
    request: Box<[u8]>,
    share: RefCell<Share>,
}

/// The share reservation: the access of an open, and the access it denies to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    access: ShareAccess,
    deny: ShareDeny,
    key: Option<ShareKey>,
}

impl Opened {
    /// Creates an open that has the given state id and cannot be reclaimed.
    pub(crate) fn plain(handle: FileHandle, state: StateId) -> Self {
        Self {
            handle,
            state: Cell::new(state),
            claim: None,
            writes: Cell::new(0),
            confirmed: Cell::new(0),
            has_lost_data: Cell::new(false),
            is_lost: Cell::new(false),
            locks: RefCell::default(),
            transfers_elsewhere: Cell::new(0),
        }
    }

    /// Creates the open from an OPEN request and the reply to it.
    pub(crate) fn from_answer(request: &[u8], answer: &[u8]) -> Option<Self> {
        let (_, response) = decode_response(ByteOrder::NATIVE, Procedure::Open, answer).ok()?;
        let Response::Open(result) = response else { return None };
        let claim = Some(Claim::new(request)?);
        Some(Self { claim, ..Self::plain(result.file, result.state) })
    }

    #[inline]
    pub(crate) fn state(&self) -> StateId {
        self.state.get()
    }

    /// Returns the credentials of the user that the open was made for.
    pub(crate) fn acting(&self) -> Option<RegisteredCredentials> {
        acting_in(&self.claim.as_ref()?.request)
    }

    /// Returns true if a request closes this open or releases locks that the open holds.
    pub(crate) fn is_given_up_by(&self, request: &[u8]) -> bool {
        match decode_request(ByteOrder::NATIVE, request) {
            Ok((_, Request::LockU(Unlock { state, .. }))) => state == self.state(),
            Ok((_, Request::Close(Close { state, .. }))) => state == self.state(),
            _ => false,
        }
    }

    /// Returns the number of unstable writes whose replies have arrived.
    pub(crate) fn writes(&self) -> u32 {
        self.writes.get()
    }

    /// Returns true if the reply to an unstable write arrived after the most recent commit was
    /// sent.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        self.writes.get() != self.confirmed.get()
    }

    /// Counts an unstable write whose reply has arrived.
    #[inline]
    pub(crate) fn note_write(&self) {
        self.writes.set(self.writes.get().wrapping_add(1));
    }

    /// Records the reply to a commit; `writes` is the number of writes whose replies had arrived
    /// when the commit was sent.
    pub(crate) fn note_commit(&self, writes: u32) {
        self.confirmed.set(writes);
        // The caller has compared the verifier in the reply, so any loss was reported already.
        self.has_lost_data.set(false);
    }

    /// Records that the server has restarted and may have lost uncommitted data.
    pub(crate) fn note_restart(&self) {
        if self.has_unconfirmed() {
            self.confirmed.set(self.writes.get());
            self.has_lost_data.set(true);
        }
    }

    /// Returns true if a restart has lost unstable writes since the last commit, and clears the
    /// record of the loss.
    pub(crate) fn take_lost_data(&self) -> bool {
        self.has_lost_data.take()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    pub(crate) fn note_lost(&self) {
        self.is_lost.set(true);
    }

    /// Returns the locks that the open holds.
    pub(crate) fn locks(&self) -> Vec<HeldLock> {
        self.locks.borrow().all()
    }

    /// Counts a transfer that starts on an additional channel.
    pub(crate) fn begin_elsewhere(&self) {
        self.transfers_elsewhere.set(self.transfers_elsewhere.get() + 1);
    }

    /// Counts the end of a transfer on an additional channel, or its move to the first channel.
    pub(crate) fn end_elsewhere(&self) {
        self.transfers_elsewhere.set(self.transfers_elsewhere.get().saturating_sub(1));
    }

    /// Returns true if transfers are in flight on additional channels.
    pub(crate) fn is_moved_elsewhere(&self) -> bool {
        self.transfers_elsewhere.get() > 0
    }

    /// Returns the open owner that the server knows; empty if the owner was not kept.
    pub(crate) fn owner(&self) -> Vec<u8> {
        let request = self.claim.as_ref().map(|claim| &claim.request);
        match request.and_then(|request| decode_request(ByteOrder::NATIVE, request).ok()) {
            Some((_, Request::Open(open))) => open.owner.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns the error for a status with which the server refused a request on this open.
    #[cold]
    pub(crate) fn refusal(&self, what: &str, status: Status) -> ClientError {
        if self.is_lost() {
            let what = format!("{what}: the open was lost when the server restarted");
            return ClientError::Status { what, status: Status::Stale };
        }
        ClientError::Status { what: what.to_owned(), status }
    }

    /// Builds an OPEN that reclaims this open after a restart of the server: by its old handle, or
    /// by its name if the server does not support reclaim.
    ///
    /// Reclaiming by name does not prevent other clients from using the file before the reclaim. So
    /// this is only for opens that denied no access to others.
    pub(crate) fn reclaim<T>(
        &self,
        how: Reclaim,
        ask: impl FnOnce(&Request<'_>) -> T,
    ) -> Option<T> {
        let claim = self.claim.as_ref()?;
        let (_, Request::Open(open)) = decode_request(ByteOrder::NATIVE, &claim.request).ok()?
        else {
            return None;
        };
        let share = *claim.share.borrow();
        let delegation = dafs_wire::messages::DelegationType::None;
        let target = match (how, open.target) {
            (Reclaim::ByHandle, _) => OpenTarget::Previous { file: self.handle, delegation },
            (Reclaim::ByName, target @ OpenTarget::Null { .. })
                if share.deny == ShareDeny::None
                    && share.key.is_none()
                    && self.locks.borrow().is_empty() =>
            {
                target
            }
            (Reclaim::ByName, _) => return None,
        };
        Some(ask(&Request::Open(Open {
            target,
            creation: dafs_wire::messages::OpenCreation::NoCreate,
            access: share.access,
            deny: share.deny,
            key: share.key,
            ..open
        })))
    }
}

/// The ways to reclaim an open from a restarted server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaim {
    ByHandle,
    ByName,
}

impl Claim {
    /// Decodes an OPEN request, as it was sent, into a claim.
    fn new(message: &[u8]) -> Option<Self> {
        let (_, Request::Open(open)) = decode_request(ByteOrder::NATIVE, message).ok()? else {
            return None;
        };
        let share = Share { access: open.access, deny: open.deny, key: open.key };
        Some(Self { request: message.into(), share: RefCell::new(share) })
    }
}

/// The opens of a session.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    /// The opens, indexed by all their current and former state ids. The state ids of two server
    /// incarnations differ in 24 random bits, so that a collision is unlikely.
    by_state: BTreeMap<StateId, Rc<Opened>>,
    /// True if any open has a former state id.
    has_former: bool,
}

impl Opens {
    pub(crate) fn get(&self, state: StateId) -> Option<&Rc<Opened>> {
        self.by_state.get(&state)
    }

    /// Returns the open that a request closes or changes, if earlier transfers of that open must
    /// end before the request is sent.
    pub(crate) fn ended_by(&self, request: &[u8]) -> Option<&Rc<Opened>> {
        use Procedure as P;
        let procedure = procedure_of(request)?;
        match procedure {
            P::Close
            | P::OpenDowngrade
            | P::Lock
            | P::LockU
            | P::SetAttrInline
            | P::SetAttrDirect
            | P::AppendInline
            | P::AppendDirect => {}
            _ => return None,
        }
        let field = procedure.request_fields().iter().find(|field| field.name == "state")?;
        let at = HEADER_BYTES + field.offset;
        let bytes = request.get(at..at + 8)?.try_into().ok()?;
        self.get(StateId(u64::from_ne_bytes(bytes)))
    }

    /// Returns the opens that the server should know by their current state ids.
    pub(crate) fn held(&self) -> Vec<Rc<Opened>> {
        let is_held = |(state, opened): &(&StateId, &Rc<Opened>)| {
            **state == opened.state() && !opened.is_lost()
        };
        self.by_state.iter().filter(is_held).map(|(_, opened)| opened.clone()).collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Opened> {
        self.by_state.values().map(Rc::as_ref)
    }

    /// Records the effect of a request on the opens, according to the reply.
    pub(crate) fn note_answer(&mut self, request: &[u8], answer: &[u8], status: Status) {
        match procedure_of(request) {
            Some(Procedure::Open) if status == Status::Ok => self.note_open(request, answer),
            Some(Procedure::OpenDowngrade) if status == Status::Ok => self.note_downgrade(request),
            Some(Procedure::Close) => self.note_close(request, status),
            Some(Procedure::Lock | Procedure::LockU) if status == Status::Ok => {
                self.note_lock(request);
            }
            _ => {}
        }
    }

    fn note_open(&mut self, request: &[u8], answer: &[u8]) {
        let Some(opened) = Opened::from_answer(request, answer) else { return };
        if let Some(known) = self.get(opened.state())
            && known.state() == opened.state()
            && let (Some(held), Some(more)) = (&known.claim, &opened.claim)
        {
            // This owner already has the file open, so the server merged the opens and one CLOSE
            // ends both.
            return held.join(more);
        }
        self.by_state.insert(opened.state(), Rc::new(opened));
    }

    fn note_downgrade(&mut self, request: &[u8]) {
        if let Ok((_, Request::OpenDowngrade(OpenDowngrade { state, access, deny, key, .. }))) =
            decode_request(ByteOrder::NATIVE, request)
            && let Some(claim) = self.get(state).and_then(|opened| opened.claim.as_ref())
        {
            claim.share.replace(Share { access, deny, key });
        }
    }

    fn note_lock(&mut self, request: &[u8]) {
        let Ok((_, request)) = decode_request(ByteOrder::NATIVE, request) else { return };
        let state = match &request {
            Request::Lock(lock) => lock.state,
            Request::LockU(unlock) => unlock.state,
            _ => return,
        };
        let Some(opened) = self.get(state) else { return };
        match &request {
            Request::Lock(lock) => opened.locks.borrow_mut().note_lock(lock),
            Request::LockU(unlock) => opened.locks.borrow_mut().note_unlock(unlock),
            _ => {}
        }
    }

    fn note_close(&mut self, request: &[u8], status: Status) {
        use Status::{BadStateId, Ok as Done, OldStateId, Stale, StaleStateId};
        // An open that the server does not know counts as closed.
        let is_over = matches!(status, Done | BadStateId | OldStateId | Stale | StaleStateId);
        if let Ok((_, Request::Close(Close { state, .. }))) =
            decode_request(ByteOrder::NATIVE, request)
            && is_over
        {
            self.forget(state);
        }
    }

    /// Removes an open that has ended.
    pub(crate) fn forget(&mut self, state: StateId) {
        if let Some(opened) = self.by_state.remove(&state)
            && self.has_former
        {
            self.by_state.retain(|_, other| !Rc::ptr_eq(other, &opened));
        }
    }

    /// Assigns a new state id to an open; the former one still leads to the open.
    pub(crate) fn rename(&mut self, opened: &Rc<Opened>, state: StateId) {
        opened.state.set(state);
        self.by_state.insert(state, opened.clone());
        self.has_former = true;
    }

    /// Replaces former state ids in an encoded request by the current state ids of their opens.
    pub(crate) fn rewrite_state_ids(&self, message: &mut [u8]) {
        if self.has_former {
            for_each_state(message, |state| self.get(state).map_or(state, |opened| opened.state()));
        }
    }
}

impl Claim {
    /// Combines the share reservations of two opens of one owner.
    fn join(&self, more: &Self) {
        let (mut held, more) = (self.share.borrow_mut(), more.share.borrow());
        let access = held.access.number() | more.access.number();
        let deny = held.deny.number() | more.deny.number();
        held.access = ShareAccess::from_number(access).unwrap_or(held.access);
        held.deny = ShareDeny::from_number(deny).unwrap_or(held.deny);
        held.key = held.key.or(more.key);
    }
}

/// Replaces every state id of an open in an encoded request with the result of `replace`. State ids
/// are opaque and at fixed offsets.
fn for_each_state(message: &mut [u8], replace: impl Fn(StateId) -> StateId) {
    let Some(procedure) = procedure_of(message) else { return };
    if procedure == Procedure::BatchSubmit {
        let Some(array) = word_at(message, HEADER_BYTES).map(|at| HEADER_BYTES + at) else {
            return;
        };
        let count = word_at(message, array).unwrap_or(0);
        for index in 0..count.min(dafs_wire::limits::BATCH_REQUESTS_MAX) {
            let at = array + BATCH_ELEMENTS_AT + index * BATCH_ELEMENT_BYTES + BATCH_STATE_AT;
            replace_at(message, at, &replace);
        }
        return;
    }
    let is_state = |field: &&dafs_wire::FieldLayout| {
        matches!(field.name, "state" | "source_state") && field.size == 8
    };
    for field in procedure.request_fields().iter().filter(is_state) {
        replace_at(message, HEADER_BYTES + field.offset, &replace);
    }
}

fn replace_at(message: &mut [u8], at: usize, replace: impl Fn(StateId) -> StateId) {
    if let Some(place) = message.get_mut(at..at + 8)
        && let Ok(bytes) = <[u8; 8]>::try_from(&*place)
    {
        let state = replace(StateId(u64::from_ne_bytes(bytes)));
        place.copy_from_slice(&state.0.to_ne_bytes());
    }
}

/// The offset of the array of requests in BATCH_SUBMIT (draft 6.5.5), after a count and four bytes
/// of padding.
const BATCH_ELEMENTS_AT: usize = 8;

const BATCH_ELEMENT_BYTES: usize = 96;

const BATCH_STATE_AT: usize = 72;

#[cfg(test)]
pub(crate) mod tests {
    use dafs_types::{CacheHint, RequestId, SequenceNumber, Stability, StreamId};
    use dafs_wire::messages::{
        BatchRequest, BatchSubmit, FileChunk, InlineData, Placement, TransferDirection, WriteInline,
    };
    use dafs_wire::{Array, Checksum, DirectBuffer, DirectBuffers, encode_request};

    use dafs_wire::RequestHeader;

    use super::*;

    /// Encodes a request.
    pub(crate) fn encode(request: &Request<'_>) -> Vec<u8> {
        let mut message = vec![0; 4096];
        let header = RequestHeader::new(StreamId(0), SequenceNumber(0));
        let length = encode_request(ByteOrder::NATIVE, &header, request, &mut message).unwrap();
        message.truncate(length);
        message
    }

    fn next(message: &mut [u8]) {
        for_each_state(message, |state| StateId(state.0 + 1));
    }

    #[test]
    fn state_ids_are_replaced_where_they_lie() {
        let (file, state) = (FileHandle::NULL, StateId(41));
        let mut close = encode(&Request::Close(Close { file, state }));
        next(&mut close);
        assert_eq!(close, encode(&Request::Close(Close { file, state: StateId(42) })));
        let write = |state| {
            encode(&Request::WriteInline(WriteInline {
                file,
                state,
                offset: 7,
                stability: Stability::DataSync,
                hint: CacheHint::default(),
                placement: Placement::Packed,
                data: InlineData::Here(b"bytes"),
            }))
        };
        let mut message = write(state);
        next(&mut message);
        assert_eq!(message, write(StateId(42)));
        // This request has no state id.
        let mut lookup = encode(&Request::Null(dafs_wire::messages::Empty));
        let before = lookup.clone();
        next(&mut lookup);
        assert_eq!(lookup, before);
    }

    #[test]
    fn every_request_of_a_batch_has_its_state_replaced() {
        let chunks = [FileChunk { offset: 1, length: 2, hint: CacheHint::default() }];
        let buffers = [DirectBuffer {
            target: dafs_types::RmrTarget(3),
            length: 2,
            context: dafs_types::RmrContext(4),
        }];
        let batch = |first: u64| {
            let of = |number: u64| BatchRequest {
                file: FileHandle::NULL,
                request: RequestId(number),
                state: StateId(first + number),
                direction: TransferDirection::Read,
                chunks: Array::from(chunks.as_slice()),
                buffers: DirectBuffers::from(buffers.as_slice()),
                checksum: Checksum::NONE,
            };
            let requests = [of(0), of(1), of(2)];
            let requests = Array::from(requests.as_slice());
            let (window_us, completion_count, synchronous) = (0, 0, true);
            encode(&Request::BatchSubmit(BatchSubmit {
                requests,
                window_us,
                completion_count,
                synchronous,
            }))
        };
        let mut message = batch(100);
        next(&mut message);
        assert_eq!(message, batch(101));
    }

    #[test]
    fn hostile_lengths_do_no_harm() {
        let mut message = encode(&Request::Null(dafs_wire::messages::Empty));
        message[32..36].copy_from_slice(&Procedure::BatchSubmit.number().to_ne_bytes());
        message.extend_from_slice(&[0xff; 8]);
        let length = u32::try_from(message.len()).unwrap();
        message[36..40].copy_from_slice(&length.to_ne_bytes());
        next(&mut message);
    }

    #[test]
    fn a_restart_tells_once_of_writes_that_nobody_committed() {
        let opened = Opened::plain(FileHandle::NULL, StateId(1));
        opened.note_restart();
        assert!(!opened.take_lost_data(), "there were none");
        opened.note_write();
        let mark = opened.writes();
        opened.note_write();
        opened.note_commit(mark);
        opened.note_restart();
        assert!(opened.take_lost_data() && !opened.take_lost_data());
        opened.note_restart();
        assert!(!opened.take_lost_data(), "they were told of");
    }
}

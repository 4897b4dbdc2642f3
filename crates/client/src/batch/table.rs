//! Batches under way, and how their requests end.
//!
//! Invariant: each request ends once; the name of one that has ended is nobody's any more. A
//! batch keeps its place until all of its requests have ended and nobody looks at it.

use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;

use dafs_base::{Key, Slab};
use dafs_dat::{EndpointId, Interface};
use dafs_types::{FileHandle, RequestId, RmrContext, RmrTarget, StateId};
use dafs_wire::messages::{FileChunk, TransferDirection};
use dafs_wire::{Checksum, DirectBuffer, DirectChecksum};
use smallvec::SmallVec;

use crate::buffer::{RegisteredMemory, Slice};
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;

/// What one request asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub file: FileHandle,
    pub state: StateId,
    pub direction: TransferDirection,
    pub chunks: Few<FileChunk>,
    pub slices: Few<Slice>,
}

/// The parts of a request, of which most have one.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// A batch under way.
#[derive(Debug)]
pub(crate) struct BatchState {
    pub session: SessionKey,
    pub manner: Manner,
    pub requests: Vec<Asked>,
    /// How requests have ended.
    pub results: Vec<Option<Result<u32>>>,
    /// Requests whose end nobody wants.
    pub cancelled: Vec<bool>,
    pub left: usize,
    pub waker: Option<Waker>,
    /// Parts that the server was too busy for, to be sent when another end is told.
    pub(super) refused: Vec<Part>,
    is_abandoned: bool,
}

impl BatchState {
    pub fn new(session: SessionKey, manner: Manner, requests: Vec<Asked>) -> Self {
        let count = requests.len();
        Self {
            session,
            manner,
            requests,
            results: vec![None; count],
            cancelled: vec![false; count],
            left: count,
            waker: None,
            refused: Vec::new(),
            is_abandoned: false,
        }
    }

    /// Whether what is left takes longer than it pays to spin for.
    pub fn lasts(&self) -> bool {
        let left = self.requests.iter().zip(&self.results).filter(|(_, result)| result.is_none());
        let bytes: u64 = left.map(|(asked, _)| u64::from(asked.length())).sum();
        self.left as u64 * REQUEST_NS + bytes / BYTES_PER_NS >= LASTING_NS
    }

    fn end(&mut self, place: usize, result: Result<u32>) {
        if self.results[place].is_none() {
            let result = if self.cancelled[place] { Err(ClientError::Cancelled) } else { result };
            self.results[place] = Some(result);
            self.left -= 1;
            if self.left == 0
                && let Some(waker) = self.waker.take()
            {
                waker.wake();
            }
        }
    }
}

/// A batch of a client's table.
pub(crate) type BatchKey = Key<BatchState>;

/// All batches of a client, [`BATCHES_MAX`] at most.
#[derive(Debug)]
pub(crate) struct BatchTable {
    all: Slab<BatchState>,
    /// Memory that a server may still read, until the session ends that it is of.
    limbo: Vec<(SessionKey, Rc<RegisteredMemory>)>,
}

impl Default for BatchTable {
    fn default() -> Self {
        Self { all: Slab::bounded(BATCHES_MAX), limbo: Vec::new() }
    }
}

impl BatchTable {
    /// Takes a batch in; `None` if there are too many.
    pub fn insert(&mut self, state: BatchState) -> Option<BatchKey> {
        self.all.try_insert(state).ok()
    }

    pub fn get(&self, batch: BatchKey) -> Option<&BatchState> {
        self.all.get(batch)
    }

    pub fn get_mut(&mut self, batch: BatchKey) -> Option<&mut BatchState> {
        self.all.get_mut(batch)
    }

    /// The results of a batch that is over; it is gone then.
    pub fn take(&mut self, batch: BatchKey) -> Option<Vec<Result<u32>>> {
        self.get(batch).filter(|state| state.left == 0)?;
        let state = self.all.remove(batch)?;
        Some(state.results.into_iter().flatten().collect())
    }

    /// Nobody looks at a batch any more.
    pub fn abandon(&mut self, batch: BatchKey) {
        if let Some(state) = self.get_mut(batch) {
            state.is_abandoned = true;
            self.forget_if_over(batch);
        }
    }

    fn forget_if_over(&mut self, batch: BatchKey) {
        let is_over = |state: &BatchState| state.is_abandoned && state.left == 0;
        if self.get(batch).is_some_and(is_over) {
            self.all.remove(batch);
        }
    }

    pub(super) fn end(&mut self, batch: BatchKey, place: usize, result: Result<u32>) {
        if let Some(state) = self.get_mut(batch) {
            state.end(place, result);
            if state.left == 0 {
                self.forget_if_over(batch);
            }
        }
    }

    /// Ends the requests of a part with an error.
    pub fn fail_part(&mut self, part: &Part, error: &ClientError) {
        for place in part.requests.clone() {
            self.end(part.batch, place, Err(error.clone()));
        }
    }

    /// A session has ended: fails all that batches of it have under way.
    pub fn fail_all(&mut self, session: SessionKey, error: &ClientError) {
        self.fail(session, error, |_| true);
        self.limbo.retain(|(other, _)| *other != session);
    }

    /// The channel of a session is gone: fails what was to be told over it.
    pub fn fail_submitted(&mut self, session: SessionKey, error: &ClientError) {
        self.fail(session, error, |state| !state.manner.synchronous);
    }

    fn fail(
        &mut self,
        session: SessionKey,
        error: &ClientError,
        is_meant: impl Fn(&BatchState) -> bool,
    ) {
        let meant =
            self.all.iter().filter(|(_, state)| state.session == session && is_meant(state));
        for batch in meant.map(|(batch, _)| batch).collect::<Vec<_>>() {
            let Some(state) = self.all.get_mut(batch) else { continue };
            for place in 0..state.requests.len() {
                if state.results[place].is_none() {
                    for slice in &state.requests[place].slices {
                        slice.buffer.note_exposed();
                        self.limbo.push((session, slice.buffer.clone()));
                    }
                    state.end(place, Err(error.clone()));
                }
            }
            self.forget_if_over(batch);
        }
    }

    /// The submitted batches of a session that are not over.
    pub fn submitted(&self, session: SessionKey) -> Vec<BatchKey> {
        let is_meant = |state: &BatchState| {
            state.session == session && !state.manner.synchronous && state.left > 0
        };
        let meant = self.all.iter().filter(|(_, state)| is_meant(state));
        meant.map(|(batch, _)| batch).collect()
    }

    /// Parts of a session that are to be sent again.
    pub(super) fn take_refused(&mut self, session: SessionKey) -> Vec<Part> {
        let of_session = self.all.values_mut().filter(|state| state.session == session);
        of_session.flat_map(|state| std::mem::take(&mut state.refused)).collect()
    }

    /// Whether the server has requests of a session's whose ends it will tell.
    pub(super) fn expects_completions(&self, session: SessionKey) -> bool {
        self.all.values().any(|state| {
            let refused: usize = state.refused.iter().map(|part| part.requests.len()).sum();
            state.session == session && !state.manner.synchronous && state.left > refused
        })
    }
}

/// What a server takes at least for a request of a batch, and for its bytes.
const REQUEST_NS: u64 = 500;

const BYTES_PER_NS: u64 = 10;

/// A wait of this length costs less asleep.
const LASTING_NS: u64 = 16_000;

/// What goes with the requests of every message of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub window_us: u32,
    pub completion_count: u32,
    pub synchronous: bool,
}

/// Some requests of a batch, which go in one message.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub batch: BatchKey,
    pub requests: Range<usize>,
}

/// What a request of a batch is called, in all sessions of a client: by the generation of the
/// batch's key, its place, and the request's place in it.
pub(super) fn name_of(batch: BatchKey, place: usize) -> RequestId {
    let bits = batch.to_bits();
    RequestId(bits >> 32 << 32 | u64::from(batch.index()) << PLACE_BITS | place as u64)
}

/// The batch and the place of a request that is called so.
pub(super) fn place_of(name: RequestId) -> (BatchKey, usize) {
    let low = name.0 as u32;
    let batch = Key::from_bits(name.0 >> 32 << 32 | u64::from(low >> PLACE_BITS));
    (batch, (low as usize) % REQUESTS_MAX)
}

impl Asked {
    /// Bytes it takes in a message.
    pub(super) fn wire_bytes(&self) -> usize {
        let lists = self.chunks.len() + self.slices.len();
        WIRE_REQUEST_BYTES + 2 * LIST_HEAD_BYTES + lists * LIST_ELEMENT_BYTES
    }

    /// Bytes it moves.
    pub fn length(&self) -> u32 {
        self.slices.iter().map(|slice| slice.length).fold(0, u32::saturating_add)
    }

    /// How its memory is named over an endpoint.
    pub(super) fn direct(
        &self,
        interface: &mut Interface,
        endpoint: EndpointId,
    ) -> Few<DirectBuffer> {
        let direct = self.slices.iter().map(|slice| {
            let (offset, length) = (slice.offset as u64, slice.length);
            let remote = interface.remote(endpoint, &slice.buffer.region, offset, length);
            let (target, context) = (RmrTarget(remote.address), RmrContext(remote.stag.0));
            DirectBuffer { target, length: slice.length, context }
        });
        direct.collect()
    }

    /// The checksum of its first `length` bytes as they are in memory.
    pub fn checksum(&self, length: u32) -> Checksum {
        let (mut sums, mut left) = (DirectChecksum::new(), length);
        for slice in &self.slices {
            let count = slice.length.min(left);
            left -= count;
            if slice.buffer.memory.contains(slice.offset, count as usize) {
                sums.update(&slice.buffer.memory.to_vec(slice.offset, count as usize));
            }
        }
        sums.finish()
    }
}

const WIRE_REQUEST_BYTES: usize = 96;

const LIST_HEAD_BYTES: usize = 8;

const LIST_ELEMENT_BYTES: usize = 16;

const PLACE_BITS: u32 = 12;

/// Most requests in one batch of this library's.
pub(super) const REQUESTS_MAX: usize = 1 << PLACE_BITS;

/// Most batches under way in one client: their places have the rest of a word of a name.
const BATCHES_MAX: u32 = 1 << (u32::BITS - PLACE_BITS);

#[cfg(test)]
mod tests {
    use dafs_base::Slab;

    use super::*;

    #[test]
    fn a_name_leads_back_to_its_batch_and_place() {
        let mut batches: Slab<BatchState> = Slab::bounded(BATCHES_MAX);
        let manner = Manner { window_us: 0, completion_count: 0, synchronous: true };
        let state = || BatchState::new(SessionKey::NULL, manner, Vec::new());
        let (first, second) = (batches.insert(state()), batches.insert(state()));
        batches.remove(first);
        let third = batches.insert(state());
        for batch in [first, second, third] {
            for place in [0, 1, REQUESTS_MAX - 1] {
                assert_eq!(place_of(name_of(batch, place)), (batch, place));
            }
        }
        assert_ne!(name_of(first, 0), name_of(third, 0));
    }
}

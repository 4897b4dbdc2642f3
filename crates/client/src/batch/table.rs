//! The batches in flight, and the outcomes of their requests.
//!
//! Invariant: each request ends once, and its id is never valid again. A batch keeps its slot until
//! all of its requests have ended and its owner has dropped the batch.

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

/// One read or write of a batch.
#[derive(Debug)]
pub(crate) struct BatchOperation {
    pub file: FileHandle,
    pub state: StateId,
    pub direction: TransferDirection,
    pub chunks: ShortList<FileChunk>,
    pub slices: ShortList<Slice>,
}

/// A short list; most requests have one range and one slice.
pub(crate) type ShortList<T> = SmallVec<[T; 1]>;

/// A batch in flight.
#[derive(Debug)]
pub(crate) struct BatchState {
    pub session: SessionKey,
    pub parameters: BatchParameters,
    pub requests: Vec<BatchOperation>,
    /// The outcome of each request; `None` while the request is in flight.
    pub results: Vec<Option<Result<u32>>>,
    /// For each request, true if it was cancelled.
    pub cancelled: Vec<bool>,
    pub left: usize,
    pub waker: Option<Waker>,
    /// The requests that the server refused because it was busy; they are sent again after the next
    /// completion.
    pub(super) refused: Vec<Part>,
    is_abandoned: bool,
}

impl BatchState {
    pub(crate) fn new(
        session: SessionKey,
        parameters: BatchParameters,
        requests: Vec<BatchOperation>,
    ) -> Self {
        let count = requests.len();
        Self {
            session,
            parameters,
            requests,
            results: vec![None; count],
            cancelled: vec![false; count],
            left: count,
            waker: None,
            refused: Vec::new(),
            is_abandoned: false,
        }
    }

    /// Returns true if the remaining requests are expected to take so long that the thread should
    /// sleep instead of busy-polling.
    pub(crate) fn lasts(&self) -> bool {
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

pub(crate) type BatchKey = Key<BatchState>;

/// The batches of a client, at most [`BATCHES_MAX`].
#[derive(Debug)]
pub(crate) struct BatchTable {
    all: Slab<BatchState>,
    /// The memory of requests that failed, each with its session: until the session ends, the
    /// server may still access the memory.
    limbo: Vec<(SessionKey, Rc<RegisteredMemory>)>,
}

impl Default for BatchTable {
    fn default() -> Self {
        Self { all: Slab::bounded(BATCHES_MAX), limbo: Vec::new() }
    }
}

impl BatchTable {
    /// Adds a batch; `None` if the table is full.
    pub(crate) fn insert(&mut self, state: BatchState) -> Option<BatchKey> {
        self.all.try_insert(state).ok()
    }

    pub(crate) fn get(&self, batch: BatchKey) -> Option<&BatchState> {
        self.all.get(batch)
    }

    pub(crate) fn get_mut(&mut self, batch: BatchKey) -> Option<&mut BatchState> {
        self.all.get_mut(batch)
    }

    /// Removes a batch that has ended and returns its outcomes.
    pub(crate) fn take(&mut self, batch: BatchKey) -> Option<Vec<Result<u32>>> {
        self.get(batch).filter(|state| state.left == 0)?;
        let state = self.all.remove(batch)?;
        Some(state.results.into_iter().flatten().collect())
    }

    /// Records that the owner has dropped the batch.
    pub(crate) fn abandon(&mut self, batch: BatchKey) {
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

    /// Ends all requests of `part` with an error.
    pub(crate) fn fail_part(&mut self, part: &Part, error: &ClientError) {
        for place in part.requests.clone() {
            self.end(part.batch, place, Err(error.clone()));
        }
    }

    /// Fails all requests that are in flight in a session that has ended.
    pub(crate) fn fail_all(&mut self, session: SessionKey, error: &ClientError) {
        self.fail(session, error, |_| true);
        self.limbo.retain(|(other, _)| *other != session);
    }

    /// Fails the submitted batches of a session whose back-control channel has ended.
    pub(crate) fn fail_submitted(&mut self, session: SessionKey, error: &ClientError) {
        self.fail(session, error, |state| !state.parameters.synchronous);
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

    /// Returns the submitted batches of a session that have not ended.
    pub(crate) fn submitted(&self, session: SessionKey) -> Vec<BatchKey> {
        let is_meant = |state: &BatchState| {
            state.session == session && !state.parameters.synchronous && state.left > 0
        };
        let meant = self.all.iter().filter(|(_, state)| is_meant(state));
        meant.map(|(batch, _)| batch).collect()
    }

    /// Removes and returns the refused requests of a session, to be sent again.
    pub(super) fn take_refused(&mut self, session: SessionKey) -> Vec<Part> {
        let of_session = self.all.values_mut().filter(|state| state.session == session);
        of_session.flat_map(|state| std::mem::take(&mut state.refused)).collect()
    }

    /// Returns true if completions of submitted requests are still due in this session.
    pub(super) fn expects_completions(&self, session: SessionKey) -> bool {
        self.all.values().any(|state| {
            let refused: usize = state.refused.iter().map(|part| part.requests.len()).sum();
            state.session == session && !state.parameters.synchronous && state.left > refused
        })
    }
}

/// A lower bound in nanoseconds for the server's time for one request of a batch.
const REQUEST_NS: u64 = 500;

const BYTES_PER_NS: u64 = 10;

/// The expected waiting time in nanoseconds from which sleeping costs less than busy-polling.
const LASTING_NS: u64 = 16_000;

/// The parameters that are sent in every message of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchParameters {
    pub window_us: u32,
    pub completion_count: u32,
    pub synchronous: bool,
}

/// Some consecutive requests of a batch, sent in one message.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub batch: BatchKey,
    pub requests: Range<usize>,
}

/// Returns the id of a batch's request, unique in all sessions of a client. The id consists of the
/// generation of the batch's key, the batch's slot, and the request's index in the batch.
pub(super) fn name_of(batch: BatchKey, place: usize) -> RequestId {
    let bits = batch.to_bits();
    RequestId(bits >> 32 << 32 | u64::from(batch.index()) << PLACE_BITS | place as u64)
}

/// Returns the batch and the index of the request with this id.
pub(super) fn place_of(name: RequestId) -> (BatchKey, usize) {
    let low = name.0 as u32;
    let batch = Key::from_bits(name.0 >> 32 << 32 | u64::from(low >> PLACE_BITS));
    (batch, (low as usize) % REQUESTS_MAX)
}

impl BatchOperation {
    /// The size in bytes of this request within a message.
    pub(super) fn wire_bytes(&self) -> usize {
        let lists = self.chunks.len() + self.slices.len();
        WIRE_REQUEST_BYTES + 2 * LIST_HEAD_BYTES + lists * LIST_ELEMENT_BYTES
    }

    /// The number of bytes that this request moves.
    pub(crate) fn length(&self) -> u32 {
        self.slices.iter().map(|slice| slice.length).fold(0, u32::saturating_add)
    }

    /// Returns the descriptors that name this request's memory on an endpoint.
    pub(super) fn direct(
        &self,
        interface: &mut Interface,
        endpoint: EndpointId,
    ) -> ShortList<DirectBuffer> {
        let direct = self.slices.iter().map(|slice| {
            let (offset, length) = (slice.offset as u64, slice.length);
            let remote = interface.remote(endpoint, &slice.buffer.region, offset, length);
            let (target, context) = (RmrTarget(remote.address), RmrContext(remote.stag.0));
            DirectBuffer { target, length: slice.length, context }
        });
        direct.collect()
    }

    /// Computes the checksum of the first `length` bytes in this request's memory.
    pub(crate) fn checksum(&self, length: u32) -> Checksum {
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

/// The maximum number of requests in one batch.
pub(super) const REQUESTS_MAX: usize = 1 << PLACE_BITS;

/// The maximum number of batches in flight in one client. A request id has one 32-bit word for the
/// index of the request and the slot of its batch; the slot has the bits that the index does not
/// use.
const BATCHES_MAX: u32 = 1 << (u32::BITS - PLACE_BITS);

#[cfg(test)]
mod tests {
    use dafs_base::Slab;

    use super::*;

    #[test]
    fn a_name_leads_back_to_its_batch_and_place() {
        let mut batches: Slab<BatchState> = Slab::bounded(BATCHES_MAX);
        let parameters = BatchParameters { window_us: 0, completion_count: 0, synchronous: true };
        let state = || BatchState::new(SessionKey::NULL, parameters, Vec::new());
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

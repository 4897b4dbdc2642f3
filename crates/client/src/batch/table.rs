//! Batches under way, and how their requests end.
//!
//! Invariant: each request ends once; the name of one that has ended is nobody's any more. A
//! batch keeps its place until all of its requests have ended and nobody looks at it.

use std::rc::Rc;
use std::task::Waker;

use dafs_types::{FileHandle, StateId, Status};
use dafs_wire::messages::{Completion, FileChunk, TransferDirection};
use dafs_wire::{Array, ByteOrder, Procedure, Response, ResponseHeader, decode_results};
use smallvec::SmallVec;

use super::plan::{Manner, Part, place_of};
use crate::buffer::{Registered, Slice};
use crate::core::Core;
use crate::error::{ClientError, Result};

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
    pub session: usize,
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
    pub fn new(session: usize, manner: Manner, requests: Vec<Asked>) -> Self {
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
        let octets: u64 = left.map(|(asked, _)| u64::from(asked.length())).sum();
        self.left as u64 * REQUEST_NS + octets / OCTETS_PER_NS >= LASTING_NS
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

/// All batches of a client.
#[derive(Debug, Default)]
pub(crate) struct BatchTable {
    slots: Vec<Option<(u32, BatchState)>>,
    free: Vec<u32>,
    last_serial: u32,
    /// Memory that a server may still read, until the session ends that it is of.
    limbo: Vec<(usize, Rc<Registered>)>,
}

impl BatchTable {
    /// Gives a batch its place and its serial number.
    pub fn insert(&mut self, state: BatchState) -> (u32, u32) {
        self.last_serial = self.last_serial.wrapping_add(1);
        let serial = self.last_serial;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[index as usize] = Some((serial, state));
        (index, serial)
    }

    pub fn get(&self, batch: u32, serial: u32) -> Option<&BatchState> {
        let (number, state) = self.slots.get(batch as usize)?.as_ref()?;
        (*number == serial).then_some(state)
    }

    pub fn get_mut(&mut self, batch: u32, serial: u32) -> Option<&mut BatchState> {
        let (number, state) = self.slots.get_mut(batch as usize)?.as_mut()?;
        (*number == serial).then_some(state)
    }

    /// The results of a batch that is over; it is gone then.
    pub fn take(&mut self, batch: u32, serial: u32) -> Option<Vec<Result<u32>>> {
        self.get(batch, serial).filter(|state| state.left == 0)?;
        let (_, state) = self.slots[batch as usize].take()?;
        self.free.push(batch);
        Some(state.results.into_iter().flatten().collect())
    }

    /// Nobody looks at a batch any more.
    pub fn abandon(&mut self, batch: u32, serial: u32) {
        if let Some(state) = self.get_mut(batch, serial) {
            state.is_abandoned = true;
            self.forget_if_over(batch, serial);
        }
    }

    fn forget_if_over(&mut self, batch: u32, serial: u32) {
        let is_over = |state: &BatchState| state.is_abandoned && state.left == 0;
        if self.get(batch, serial).is_some_and(is_over) {
            self.slots[batch as usize] = None;
            self.free.push(batch);
        }
    }

    pub(super) fn end(&mut self, batch: u32, serial: u32, place: usize, result: Result<u32>) {
        if let Some(state) = self.get_mut(batch, serial) {
            state.end(place, result);
            if state.left == 0 {
                self.forget_if_over(batch, serial);
            }
        }
    }

    /// Fails what batches of a session have under way: all of it with the session, or what was
    /// to be told over a channel that is gone.
    pub fn fail_all(&mut self, session: usize, error: &ClientError, has_ended: bool) {
        let slots = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let (serial, state) = slot.as_ref()?;
            let is_meant = state.session == session && (has_ended || !state.manner.synchronous);
            is_meant.then_some((index as u32, *serial))
        });
        for (batch, serial) in slots.collect::<Vec<_>>() {
            let Some(state) = self.get_mut(batch, serial) else { continue };
            let mut buffers = Vec::new();
            for place in 0..state.requests.len() {
                if state.results[place].is_none() {
                    let slices = &state.requests[place].slices;
                    buffers.extend(slices.iter().map(|slice| slice.buffer.clone()));
                    state.end(place, Err(error.clone()));
                }
            }
            for buffer in buffers {
                buffer.note_exposed();
                self.limbo.push((session, buffer));
            }
            self.forget_if_over(batch, serial);
        }
        if has_ended {
            self.limbo.retain(|(other, _)| *other != session);
        }
    }

    /// The submitted batches of a session that are not over: their places and serial numbers.
    pub fn submitted(&self, session: usize) -> Vec<(u32, u32)> {
        let slots = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let (serial, state) = slot.as_ref()?;
            let is_meant = state.session == session && !state.manner.synchronous && state.left > 0;
            is_meant.then_some((index as u32, *serial))
        });
        slots.collect()
    }

    /// Parts of a session that are to be sent again.
    fn take_refused(&mut self, session: usize) -> Vec<Part> {
        let states = self.slots.iter_mut().flatten().map(|(_, state)| state);
        let of_session = states.filter(|state| state.session == session);
        of_session.flat_map(|state| std::mem::take(&mut state.refused)).collect()
    }

    /// Whether the server has requests of a session's whose ends it will tell.
    fn expects_completions(&self, session: usize) -> bool {
        let mut states = self.slots.iter().flatten().map(|(_, state)| state);
        states.any(|state| {
            let refused: usize = state.refused.iter().map(|part| part.requests.len()).sum();
            state.session == session && !state.manner.synchronous && state.left > refused
        })
    }
}

impl Core {
    /// The answer to some requests of a batch.
    pub fn on_batch_answer(
        &mut self,
        index: usize,
        part: &Part,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let procedure = Procedure::BatchSubmit;
        let response = match decode_results(ByteOrder::NATIVE, procedure, header, message) {
            Ok(response) => response,
            Err(error) => {
                let error = self.batch_protocol_error(index, &error.to_string());
                return self.fail_part(part, &error);
            }
        };
        let Some(state) = self.batches.get_mut(part.batch, part.serial) else { return };
        let synchronous = state.manner.synchronous;
        if header.status == Status::WhoaCowboy && !synchronous {
            state.refused.push(part.clone());
            if !self.batches.expects_completions(index) {
                // They have all been told meanwhile.
                self.send_refused(index);
            }
            return;
        }
        if header.status != Status::Ok {
            let what = procedure.name().to_owned();
            let error = ClientError::Status { what, status: header.status };
            return self.fail_part(part, &error);
        }
        let Response::BatchSubmit(done) = response else { return };
        if synchronous {
            if done.completions.len() != part.requests.len() {
                let error = self.batch_protocol_error(index, "not as many completions as requests");
                return self.fail_part(part, &error);
            }
            self.take_completions(index, &done.completions);
        }
    }

    /// Requests of batches have ended.
    pub fn take_completions(&mut self, index: usize, completions: &Array<'_, Completion>) {
        let has_checksums = self.sessions[index].checksums;
        for completion in completions.iter() {
            let (batch, serial, place) = place_of(completion.request);
            let state = self.batches.get(batch, serial);
            let state = state.filter(|state| state.session == index);
            let Some(asked) = state.and_then(|state| state.requests.get(place)) else {
                continue;
            };
            let result = if completion.status != Status::Ok {
                let what = format!("request {place} of a batch");
                Err(ClientError::Status { what, status: completion.status })
            } else if completion.length > asked.length() {
                Err(self.batch_protocol_error(index, "more octets than were asked for"))
            } else if has_checksums
                && asked.direction == TransferDirection::Read
                && completion.length > 0
                && asked.checksum(completion.length) != completion.checksum
            {
                Err(self.batch_protocol_error(index, "the data does not match its checksum"))
            } else {
                Ok(completion.length)
            };
            self.batches.end(batch, serial, place, result);
        }
    }

    /// Sends again what the server was too busy for.
    pub fn send_refused(&mut self, index: usize) {
        for part in self.batches.take_refused(index) {
            self.send_part(index, part);
        }
    }

    pub fn fail_part(&mut self, part: &Part, error: &ClientError) {
        for place in part.requests.clone() {
            self.batches.end(part.batch, part.serial, place, Err(error.clone()));
        }
    }

    fn batch_protocol_error(&self, index: usize, what: &str) -> ClientError {
        let address = self.sessions[index].address.clone();
        ClientError::Protocol { address, what: format!("BATCH_SUBMIT: {what}") }
    }
}

/// What a server takes at least for a request of a batch, and for its octets.
const REQUEST_NS: u64 = 500;
const OCTETS_PER_NS: u64 = 10;
/// A wait of this length costs less asleep.
const LASTING_NS: u64 = 16_000;

//! A batch as messages.
//!
//! Invariant: a message holds as many requests as the server takes in one, and their completions
//! fit one answer; a request that fits none is refused before anything is sent.

use std::ops::Range;

use dafs_dat::{EndpointId, Interface};
use dafs_types::{RequestId, RmrContext, RmrTarget, SequenceNumber, Status, StreamId};
use dafs_wire::limits::BATCH_REQUESTS_MAX;
use dafs_wire::messages::{BatchRequest, BatchSubmit, TransferDirection};
use dafs_wire::{
    Array, ByteOrder, Checksum, DirectBuffer, DirectBuffers, DirectChecksum, HEADER_BYTES, Request,
    RequestHeader, encode_request,
};
use smallvec::smallvec;

use super::again::runs_of;
use super::table::{Asked, BatchState, Few};
use super::{Batch, Batched};
use crate::core::{Core, OperationId, QueuedCall};
use crate::error::{ClientError, Result};
use crate::recovery::{Delay, Delayed, Work};

/// What goes with the requests of every message of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    window_us: u32,
    completion_count: u32,
    pub synchronous: bool,
}

/// Some requests of a batch, which go in one message.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The place of the batch, and its serial number.
    pub batch: u32,
    pub serial: u32,
    pub requests: Range<usize>,
}

impl Batch<'_> {
    pub(super) fn send(mut self, synchronous: bool) -> Result<Batched> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let count = self.completion_count.unwrap_or(self.requests.len() as u32);
        let window = u32::try_from(self.window.as_micros()).unwrap_or(u32::MAX);
        let manner = Manner { window_us: window, completion_count: count, synchronous };
        let (shared, index) = (self.session.shared.clone(), self.session.index);
        let mut core = shared.borrow_mut();
        core.check_open(index)?;
        core.note_changes(index);
        let ranges = core.split_batch(index, &self.requests)?;
        let state = BatchState::new(index, manner, self.requests);
        let (batch, serial) = core.batches.insert(state);
        for requests in ranges {
            core.send_part(index, Part { batch, serial, requests });
        }
        drop(core);
        Ok(Batched::new(shared, index, batch, serial))
    }
}

impl Core {
    /// Which requests go in one message.
    pub(super) fn split_batch(
        &self,
        index: usize,
        requests: &[Asked],
    ) -> Result<Vec<Range<usize>>> {
        let session = &self.sessions[index];
        let bytes_max = session.request_bytes_max as usize;
        let answer_room = (session.response_bytes_max as usize).saturating_sub(ANSWER_HEAD_BYTES);
        let count_max = (answer_room / COMPLETION_BYTES).clamp(1, BATCH_REQUESTS_MAX);
        let mut ranges = Vec::new();
        let (mut start, mut bytes) = (0, REQUEST_HEAD_BYTES);
        for (place, request) in requests.iter().enumerate() {
            let own = request.wire_bytes();
            if REQUEST_HEAD_BYTES + own > bytes_max || place >= REQUESTS_MAX {
                let what = format!("request {place} of a batch fits no message");
                return Err(ClientError::Status { what, status: Status::Inval });
            }
            if bytes + own > bytes_max || place - start == count_max {
                ranges.push(start..place);
                (start, bytes) = (place, REQUEST_HEAD_BYTES);
            }
            bytes += own;
        }
        if start < requests.len() {
            ranges.push(start..requests.len());
        }
        Ok(ranges)
    }

    /// Sends some requests of a batch, now or when there is a credit.
    pub(super) fn send_part(&mut self, index: usize, part: Part) {
        let Some(state) = self.batches.get(part.batch, part.serial) else { return };
        if !state.manner.synchronous && !self.listens(index) {
            // The connection was lost over what went before: all of it goes when it is back.
            return;
        }
        let (id, mut delay) = (self.next_id(), None);
        for call in self.part_calls(index, part, id, &mut delay) {
            self.queue_call(index, call);
        }
    }

    /// The calls that ask for some requests of a batch, over the connection that is there. Those
    /// that cannot be asked for end.
    fn part_calls(
        &mut self,
        index: usize,
        part: Part,
        id: OperationId,
        delay: &mut Option<Box<Delay>>,
    ) -> Few<QueuedCall> {
        let mut calls = Few::new();
        for part in self.within_reach(index, part) {
            match self.encode_part(index, &part) {
                Some(Ok(message)) => {
                    let delay = delay.take();
                    calls.push(QueuedCall { id, ticket: None, part: Some(part), message, delay });
                }
                Some(Err(error)) => self.fail_part(&part, &error),
                None => {}
            }
        }
        calls
    }

    /// Ends the requests of a part whose device memory is out of reach. What is left.
    fn within_reach(&mut self, index: usize, part: Part) -> Few<Part> {
        let Some(state) = self.batches.get(part.batch, part.serial) else { return Few::new() };
        let requests = part.requests.clone().zip(&state.requests[part.requests.clone()]);
        let slices =
            requests.flat_map(|(place, asked)| asked.slices.iter().map(move |s| (place, s)));
        let of_devices = slices.filter(|(_, slice)| slice.buffer.is_device);
        let devices: Vec<_> =
            of_devices.map(|(place, slice)| (place, slice.buffer.clone())).collect();
        if devices.is_empty() {
            return smallvec![part];
        }
        let mut is_in = vec![true; part.requests.len()];
        for (place, memory) in devices {
            if let Err(error) = self.reach(index, Some(&memory)) {
                is_in[place - part.requests.start] = false;
                self.batches.end(part.batch, part.serial, place, Err(error));
            }
        }
        let start = part.requests.start;
        let moved = |run: Range<usize>| run.start + start..run.end + start;
        let runs = runs_of(is_in.into_iter()).into_iter().map(moved);
        runs.map(|requests| Part { requests, ..part }).collect()
    }

    /// A session is back: what waits of batches names memory as the connection does that is
    /// there now, and what the connection cannot reach ends.
    pub fn rename_parts(&mut self, index: usize) {
        for call in std::mem::take(&mut self.sessions[index].calls) {
            let calls = self.renamed(index, call);
            self.sessions[index].calls.extend(calls);
        }
        let Some(keeper) = &mut self.sessions[index].keeper else { return };
        for Delayed { due, work } in std::mem::take(&mut keeper.delayed) {
            let works: Vec<Work> = match work {
                Work::Call(call) => self.renamed(index, call).into_iter().map(Work::Call).collect(),
                Work::Transfer(_) | Work::Member(_) | Work::Chain(_) => vec![work],
            };
            if let Some(keeper) = &mut self.sessions[index].keeper {
                keeper.delayed.extend(works.into_iter().map(|work| Delayed { due, work }));
            }
        }
    }

    fn renamed(&mut self, index: usize, mut call: QueuedCall) -> Few<QueuedCall> {
        match call.part.take() {
            Some(part) => self.part_calls(index, part, call.id, &mut call.delay),
            None => smallvec![call],
        }
    }

    /// Some requests of a batch as a message; `None` if the batch is over.
    fn encode_part(&mut self, index: usize, part: &Part) -> Option<Result<Vec<u8>>> {
        let state = self.batches.get(part.batch, part.serial)?;
        let session = &self.sessions[index];
        let has_checksums = session.checksums;
        let requests = &state.requests[part.requests.clone()];
        let (interface, endpoint) = (&mut self.interface, session.endpoint);
        let buffers: Vec<Few<DirectBuffer>> =
            requests.iter().map(|asked| asked.direct(interface, endpoint)).collect();
        let named = (part.requests.start..).zip(requests).zip(&buffers);
        let wire: Vec<BatchRequest<'_>> = named
            .map(|((place, asked), buffers)| BatchRequest {
                file: asked.file,
                request: name_of(part.batch, part.serial, place),
                state: asked.state,
                direction: asked.direction,
                chunks: Array::from(asked.chunks.as_slice()),
                buffers: DirectBuffers::from(buffers.as_slice()),
                checksum: if has_checksums && asked.direction == TransferDirection::Write {
                    asked.checksum(u32::MAX)
                } else {
                    Checksum::NONE
                },
            })
            .collect();
        let manner = state.manner;
        let request = Request::BatchSubmit(BatchSubmit {
            requests: Array::from(wire.as_slice()),
            window_us: manner.window_us,
            completion_count: manner.completion_count,
            synchronous: manner.synchronous,
        });
        let bytes: usize = requests.iter().map(Asked::wire_bytes).sum();
        let mut message = vec![0; REQUEST_HEAD_BYTES + bytes];
        let header = RequestHeader {
            desired_credits: session.wish,
            analyzer: session.label,
            ..RequestHeader::new(StreamId(0), SequenceNumber(0))
        };
        Some(match encode_request(ByteOrder::NATIVE, &header, &request, &mut message) {
            Ok(length) => {
                message.truncate(length);
                if let Some(keeper) = &self.sessions[index].keeper {
                    // A file may have been added before a restart.
                    keeper.opens.restate(&mut message);
                }
                Ok(message)
            }
            Err(error) => {
                let what = format!("BATCH_SUBMIT: {error}");
                Err(ClientError::Status { what, status: error.status() })
            }
        })
    }
}

impl Asked {
    /// Octets it takes in a message.
    fn wire_bytes(&self) -> usize {
        let lists = self.chunks.len() + self.slices.len();
        WIRE_REQUEST_BYTES + 2 * LIST_HEAD_BYTES + lists * LIST_ELEMENT_BYTES
    }

    /// Octets it moves.
    pub fn length(&self) -> u32 {
        self.slices.iter().map(|slice| slice.length).fold(0, u32::saturating_add)
    }

    /// How its memory is named over an endpoint.
    fn direct(&self, interface: &mut Interface, endpoint: EndpointId) -> Few<DirectBuffer> {
        let direct = self.slices.iter().map(|slice| {
            let (offset, length) = (slice.offset as u64, slice.length);
            let remote = interface.remote(endpoint, &slice.buffer.region, offset, length);
            let (target, context) = (RmrTarget(remote.address), RmrContext(remote.stag.0));
            DirectBuffer { target, length: slice.length, context }
        });
        direct.collect()
    }

    /// The checksum of its first `length` octets as they are in memory.
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

/// What a request of a batch is called, in all sessions of a client.
fn name_of(batch: u32, serial: u32, place: usize) -> RequestId {
    RequestId(u64::from(serial) << 32 | u64::from(batch) << PLACE_BITS | place as u64)
}

/// The batch, its serial number and the place of a request that is called so.
pub(super) fn place_of(name: RequestId) -> (u32, u32, usize) {
    let low = name.0 as u32;
    (low >> PLACE_BITS, (name.0 >> 32) as u32, (low as usize) % REQUESTS_MAX)
}

/// The name of a request, for HURRY_UP.
pub(super) fn request_name(batch: u32, serial: u32, place: usize) -> RequestId {
    name_of(batch, serial, place)
}

const PLACE_BITS: u32 = 12;
/// Most requests in one batch of this library's.
const REQUESTS_MAX: usize = 1 << PLACE_BITS;
/// Header and arguments of BATCH_SUBMIT, and the head of its array.
const REQUEST_HEAD_BYTES: usize = HEADER_BYTES + 16 + 8;
/// Header, results and the head of their array.
const ANSWER_HEAD_BYTES: usize = HEADER_BYTES + 8 + 8;
const COMPLETION_BYTES: usize = 24;
const WIRE_REQUEST_BYTES: usize = 96;
const LIST_HEAD_BYTES: usize = 8;
const LIST_ELEMENT_BYTES: usize = 16;

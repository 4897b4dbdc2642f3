//! Divides a batch into messages.
//!
//! Invariant: a message contains at most as many requests as the server accepts in one message, and
//! their completions fit in one reply. A batch with a request that does not fit in any message is
//! refused before anything is sent.

use std::ops::Range;

use dafs_types::{SequenceNumber, Status, StreamId};
use dafs_wire::limits::BATCH_REQUESTS_MAX;
use dafs_wire::messages::{BatchRequest, BatchSubmit, TransferDirection};
use dafs_wire::{
    Array, ByteOrder, Checksum, DirectBuffer, DirectBuffers, HEADER_BYTES, Request, RequestHeader,
    encode_request,
};
use smallvec::smallvec;

use crate::batch::Batch;
use crate::batch::in_flight::Batched;
use crate::batch::resubmit::runs_of;
use crate::batch::table::{
    BatchOperation, BatchParameters, BatchState, Part, REQUESTS_MAX, ShortList, name_of,
};
use crate::core::Core;
use crate::error::{ClientError, Result};
use crate::ids::SessionKey;
use crate::operation::OperationId;
use crate::recovery::delay::Delay;
use crate::state::Terms;
use crate::work::{Delayed, QueuedCall, Work};

impl Batch<'_> {
    pub(super) fn send(mut self, synchronous: bool) -> Result<Batched> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let count = self.completion_count.unwrap_or(self.requests.len() as u32);
        let window = u32::try_from(self.window.as_micros()).unwrap_or(u32::MAX);
        let parameters =
            BatchParameters { window_us: window, completion_count: count, synchronous };
        let (shared, key) = (self.session.shared.clone(), self.session.key);
        let mut core = shared.borrow_mut();
        let session = core.sessions.open_mut(key)?;
        session.note_changes();
        let ranges = split_batch(&session.terms, &self.requests)?;
        let state = BatchState::new(key, parameters, self.requests);
        let batch = core.batches.insert(state).ok_or_else(|| ClientError::Status {
            what: "starting a batch: too many are in flight".into(),
            status: Status::Resource,
        })?;
        for requests in ranges {
            core.send_part(key, Part { batch, requests });
        }
        drop(core);
        Ok(Batched::new(shared, key, batch))
    }
}

impl Core {
    /// Sends some requests of a batch, or queues them until there is a credit.
    pub(super) fn send_part(&mut self, key: SessionKey, part: Part) {
        let Some(state) = self.batches.get(part.batch) else { return };
        if !state.parameters.synchronous && !self.back_channels.listens(key) {
            // The connection was lost while earlier requests were sent; the whole batch will be
            // sent again.
            return;
        }
        let (id, mut delay) = (self.sinks.next_id(), None);
        for call in self.part_calls(key, part, id, &mut delay) {
            self.queue_call(key, call);
        }
    }

    /// Encodes the messages for some requests of a batch, with the STags of the current connection.
    /// Requests that cannot be encoded end with an error.
    fn part_calls(
        &mut self,
        key: SessionKey,
        part: Part,
        id: OperationId,
        delay: &mut Option<Box<Delay>>,
    ) -> ShortList<QueuedCall> {
        let mut calls = ShortList::new();
        for part in self.within_reach(key, part) {
            match self.encode_part(key, &part) {
                Some(Ok(message)) => {
                    let delay = delay.take();
                    calls.push(QueuedCall { id, ticket: None, part: Some(part), message, delay });
                }
                Some(Err(error)) => self.batches.fail_part(&part, &error),
                None => {}
            }
        }
        calls
    }

    /// Ends the requests whose device memory this connection cannot access, and returns the other
    /// requests.
    fn within_reach(&mut self, key: SessionKey, part: Part) -> ShortList<Part> {
        let Some(state) = self.batches.get(part.batch) else { return ShortList::new() };
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
            if let Err(error) = self.reach(key, Some(&memory)) {
                is_in[place - part.requests.start] = false;
                self.batches.end(part.batch, place, Err(error));
            }
        }
        let start = part.requests.start;
        let moved = |run: Range<usize>| run.start + start..run.end + start;
        let runs = runs_of(is_in.into_iter()).into_iter().map(moved);
        runs.map(|requests| Part { requests, ..part }).collect()
    }

    /// Encodes queued messages of batches again after a reconnect, because memory has different
    /// STags on the new connection. Requests for memory that the connection cannot access end.
    pub(crate) fn rename_parts(&mut self, key: SessionKey) {
        for call in self.sessions[key].in_flight.take_calls() {
            for call in self.renamed(key, call) {
                self.sessions[key].in_flight.push_call(call);
            }
        }
        let Some(machine) = &mut self.sessions[key].recovery else { return };
        for Delayed { due, work } in machine.take_delayed() {
            let works: Vec<Work> = match work {
                Work::Call(call) => self.renamed(key, call).into_iter().map(Work::Call).collect(),
                Work::Transfer(_) | Work::Member(_) | Work::Chain(_) => vec![work],
            };
            if let Some(machine) = &mut self.sessions[key].recovery {
                works.into_iter().for_each(|work| machine.defer(Delayed { due, work }));
            }
        }
    }

    fn renamed(&mut self, key: SessionKey, mut call: QueuedCall) -> ShortList<QueuedCall> {
        match call.part.take() {
            Some(part) => self.part_calls(key, part, call.id, &mut call.delay),
            None => smallvec![call],
        }
    }

    /// Encodes some requests of a batch as one message; `None` if the batch has ended.
    fn encode_part(&mut self, key: SessionKey, part: &Part) -> Option<Result<Vec<u8>>> {
        let state = self.batches.get(part.batch)?;
        let session = &self.sessions[key];
        let has_checksums = session.terms.checksums;
        let requests = &state.requests[part.requests.clone()];
        let (interface, endpoint) = (self.transport.interface_mut(), session.endpoint);
        let buffers: Vec<ShortList<DirectBuffer>> =
            requests.iter().map(|asked| asked.direct(interface, endpoint)).collect();
        let named = (part.requests.start..).zip(requests).zip(&buffers);
        let wire: Vec<BatchRequest<'_>> = named
            .map(|((place, asked), buffers)| BatchRequest {
                file: asked.file,
                request: name_of(part.batch, place),
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
        let parameters = state.parameters;
        let request = Request::BatchSubmit(BatchSubmit {
            requests: Array::from(wire.as_slice()),
            window_us: parameters.window_us,
            completion_count: parameters.completion_count,
            synchronous: parameters.synchronous,
        });
        let bytes: usize = requests.iter().map(BatchOperation::wire_bytes).sum();
        let mut message = vec![0; REQUEST_HEAD_BYTES + bytes];
        let header = RequestHeader {
            desired_credits: session.terms.wanted_credits,
            analyzer: session.label,
            ..RequestHeader::new(StreamId(0), SequenceNumber(0))
        };
        Some(match encode_request(ByteOrder::NATIVE, &header, &request, &mut message) {
            Ok(length) => {
                message.truncate(length);
                // The state ids may date from before a restart of the server.
                session.rewrite_state_ids(&mut message);
                Ok(message)
            }
            Err(error) => {
                let what = format!("BATCH_SUBMIT: {error}");
                Err(ClientError::Status { what, status: error.status() })
            }
        })
    }
}

/// Divides requests into ranges so that the requests of each range fit in one message.
pub(super) fn split_batch(terms: &Terms, requests: &[BatchOperation]) -> Result<Vec<Range<usize>>> {
    let bytes_max = terms.request_bytes_max as usize;
    let answer_room = (terms.response_bytes_max as usize).saturating_sub(ANSWER_HEAD_BYTES);
    let count_max = (answer_room / COMPLETION_BYTES).clamp(1, BATCH_REQUESTS_MAX);
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (0, REQUEST_HEAD_BYTES);
    for (place, request) in requests.iter().enumerate() {
        let own = request.wire_bytes();
        if REQUEST_HEAD_BYTES + own > bytes_max || place >= REQUESTS_MAX {
            let what = format!("request {place} of a batch does not fit in a message");
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

/// The size in bytes of BATCH_SUBMIT up to the first element of its array of requests.
const REQUEST_HEAD_BYTES: usize = HEADER_BYTES + 16 + 8;

/// The size in bytes of the reply to BATCH_SUBMIT up to the first element of its array.
const ANSWER_HEAD_BYTES: usize = HEADER_BYTES + 8 + 8;

const COMPLETION_BYTES: usize = 24;

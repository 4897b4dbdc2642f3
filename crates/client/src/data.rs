//! Transfers: READ, WRITE and COMMIT, from submission to completion.
//!
//! Invariant: a transfer holds the buffer it uses until its answer is there. In steady
//! state nothing here allocates.

use std::rc::Rc;

use dafs_dat::{Gather, RegionPath};
use dafs_types::{
    CacheHint, FileHandle, RmrContext, RmrTarget, SequenceNumber, Stability, StateId, Status,
    StreamId, limits,
};
use dafs_wire::messages::{Commit, InlineData, Placement, ReadDirect, WriteDirect, WriteInline};
use dafs_wire::{
    ByteOrder, Checksum, DirectBuffer, DirectBuffers, DirectChecksum, Procedure, Request,
    RequestHeader, Response, decode_response, encode_request, message_checksum, seal,
};

use crate::buffer::{Registered, Slice};
use crate::core::{Completion, Core, Group, OperationId, Pending, SessionState, Transferred};
use crate::error::{ClientError, Result};

/// A transfer under way.
pub(crate) struct Transfer {
    pub id: OperationId,
    pub group: Group,
    context: u64,
    procedure: Procedure,
    /// Kept until the end; checked against the checksum of a read.
    buffer: Option<Rc<Registered>>,
    offset: usize,
    pub is_cancelled: bool,
}

/// A transfer that waits for a credit.
pub(crate) struct QueuedTransfer {
    pub transfer: Transfer,
    job: TransferJob,
}

/// What is to be moved.
#[derive(Clone, Copy)]
pub(crate) struct TransferJob {
    pub file: FileHandle,
    pub state: StateId,
    pub offset: u64,
    pub kind: TransferKind,
    /// Octets; for a commit 0 means to the end.
    pub length: u32,
    pub hint: CacheHint,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferKind {
    Read,
    Write(Stability),
    Commit,
}

impl Core {
    /// Takes a transfer in, and sends it if there is a credit.
    #[inline]
    pub fn submit(
        &mut self,
        index: usize,
        job: TransferJob,
        slice: Option<Slice>,
        group: Group,
        context: u64,
    ) -> Result<OperationId> {
        self.check_open(index)?;
        if job.length > limits::TRANSFER_BYTES_MAX {
            return Err(ClientError::Range { offset: 0, length: job.length as usize });
        }
        let id = self.next_id();
        let procedure = match job.kind {
            TransferKind::Read => Procedure::ReadDirect,
            TransferKind::Write(_) => Procedure::WriteDirect,
            TransferKind::Commit => Procedure::Commit,
        };
        let (buffer, offset) = match slice {
            Some(slice) => (Some(slice.buffer), slice.offset),
            None => (None, 0),
        };
        let transfer =
            Transfer { id, group, context, procedure, buffer, offset, is_cancelled: false };
        let queued = QueuedTransfer { transfer, job };
        let session = &mut self.sessions[index];
        // Later requests must not overtake those that wait already.
        let credit = if session.queue.is_empty() { session.credits.take() } else { None };
        match credit {
            Some((stream, sequence)) => self.send_transfer(index, stream, sequence, queued),
            None => session.queue.push_back(queued),
        }
        Ok(id)
    }

    #[inline]
    pub fn send_transfer(
        &mut self,
        index: usize,
        stream: StreamId,
        sequence: SequenceNumber,
        queued: QueuedTransfer,
    ) {
        let QueuedTransfer { mut transfer, job } = queued;
        let session = &mut self.sessions[index];
        let header =
            RequestHeader { desired_credits: session.wish, ..RequestHeader::new(stream, sequence) };
        let endpoint = session.endpoint;
        let checksums = session.checksums;
        let mut message = [0; REQUEST_BYTES];
        let (TransferJob { file, state, offset, length, hint, .. }, buffer) =
            (job, transfer.buffer.as_deref());
        let target = buffer.map(|b| b.region.remote(transfer.offset as u64, length));
        let direct = target.map(|t| DirectBuffer {
            target: RmrTarget(t.address),
            length,
            context: RmrContext(t.stag.0),
        });
        let direct = direct.as_slice();
        let buffers = DirectBuffers::from(direct);
        let mut inline = None;
        let request = match job.kind {
            TransferKind::Read => {
                Request::ReadDirect(ReadDirect { file, state, offset, length, hint, buffers })
            }
            TransferKind::Commit => Request::Commit(Commit { file, offset, length }),
            TransferKind::Write(stability) => {
                if session.writes_inline && length <= session.inline_bytes_max() {
                    inline = buffer.map(|b| b.region.local(transfer.offset as u64, length));
                    transfer.procedure = Procedure::WriteInline;
                    Request::WriteInline(WriteInline {
                        file,
                        state,
                        offset,
                        stability,
                        hint,
                        placement: Placement::Packed,
                        data: InlineData::Follows { length },
                    })
                } else {
                    let checksum =
                        if checksums { transfer.checksum(length) } else { Checksum::NONE };
                    Request::WriteDirect(WriteDirect {
                        file,
                        state,
                        offset,
                        length,
                        stability,
                        hint,
                        checksum,
                        buffers,
                    })
                }
            }
        };
        let Ok(written) = encode_request(ByteOrder::NATIVE, &header, &request, &mut message) else {
            // Nothing of a transfer is of variable length; this cannot happen.
            let completion = transfer.fail(ClientError::Status {
                what: "encoding a transfer".into(),
                status: Status::ServerFault,
            });
            return self.complete(transfer.group, completion);
        };
        if checksums {
            match (inline, buffer) {
                (Some(_), Some(buffer)) => {
                    let data = buffer.memory.to_vec(transfer.offset, length as usize);
                    message[24..28].copy_from_slice(&Checksum::NONE.0);
                    let sum = message_checksum(&message[..written], &[&data]);
                    message[24..28].copy_from_slice(&sum.0);
                }
                _ => seal(&mut message[..written], &[]),
            }
        }
        let is_read = job.kind == TransferKind::Read;
        session.set_pending(stream, Pending::Transfer(transfer));
        match inline {
            Some(segment) => {
                let gather = [Gather::Bytes(&message[..written]), Gather::Segment(segment)];
                self.post(index, endpoint, &gather);
            }
            None => self.post(index, endpoint, &[Gather::Bytes(&message[..written])]),
        }
        match target {
            Some(target) if is_read => {
                self.interface.expect(endpoint, &[target], ANSWER_BYTES);
            }
            _ => self.interface.expect(endpoint, &[], ANSWER_BYTES),
        }
    }
}

impl SessionState {
    /// Octets of data that fit a request behind WRITE_INLINE's arguments.
    fn inline_bytes_max(&self) -> u32 {
        self.request_bytes_max.saturating_sub(INLINE_HEAD_BYTES)
    }

    /// How small writes should travel, by how bytes get to this client's memory.
    pub fn choose_write_form(&mut self, path: RegionPath) {
        self.writes_inline = matches!(path, RegionPath::Network | RegionPath::Staged);
    }
}

impl Transfer {
    /// Turns the answer into a completion.
    #[inline]
    pub fn finish(&self, message: &[u8], session: &SessionState) -> Completion {
        let result = if self.is_cancelled {
            Err(ClientError::Cancelled)
        } else {
            self.read_answer(message, session)
        };
        Completion { operation: self.id, context: self.context, result }
    }

    #[inline]
    fn read_answer(&self, message: &[u8], session: &SessionState) -> Result<Transferred> {
        let protocol = |what: String| ClientError::Protocol {
            address: session.address.clone(),
            what: format!("{} answer: {what}", self.procedure.name()),
        };
        let (header, response) = decode_response(ByteOrder::NATIVE, self.procedure, message)
            .map_err(|error| protocol(error.to_string()))?;
        if header.status != Status::Ok {
            return Err(ClientError::Status {
                what: self.procedure.name().to_owned(),
                status: header.status,
            });
        }
        match response {
            Response::ReadDirect(read) => {
                if session.checksums && self.checksum(read.length) != read.checksum {
                    return Err(protocol("the data does not match its checksum".into()));
                }
                Ok(Transferred {
                    length: read.length,
                    end_of_file: read.end_of_file,
                    ..Transferred::default()
                })
            }
            Response::WriteDirect(write) | Response::WriteInline(write) => Ok(Transferred {
                length: write.length,
                end_of_file: false,
                verifier: write.verifier,
            }),
            Response::Commit(commit) => {
                Ok(Transferred { verifier: commit.verifier, ..Transferred::default() })
            }
            _ => Err(protocol("results of another procedure".into())),
        }
    }

    /// Ends it with an error.
    pub fn fail(&self, error: ClientError) -> Completion {
        Completion { operation: self.id, context: self.context, result: Err(error) }
    }

    fn checksum(&self, length: u32) -> Checksum {
        let mut sums = DirectChecksum::new();
        if let Some(buffer) = &self.buffer
            && buffer.memory.contains(self.offset, length as usize)
        {
            sums.update(&buffer.memory.to_vec(self.offset, length as usize));
        }
        sums.finish()
    }
}

/// Room for any request of a transfer without its data.
const REQUEST_BYTES: usize = 256;
/// Header and arguments of WRITE_INLINE.
const INLINE_HEAD_BYTES: u32 = 136;
/// Octets of the answer to a READ_DIRECT or WRITE.
const ANSWER_BYTES: u32 = 56;

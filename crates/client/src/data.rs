//! Transfers: READ, WRITE and COMMIT, from submission to completion.
//!
//! Invariant: a transfer holds the buffer it uses until its answer is there, and never
//! reports more octets than were asked for. In steady state nothing here allocates.

use std::rc::Rc;

use dafs_dat::{Gather, RegionPath};
use dafs_types::{
    CacheHint, FileHandle, RmrContext, RmrTarget, SequenceNumber, Stability, StateId, Status,
    StreamId, limits,
};
use dafs_wire::messages::{Commit, InlineData, Placement, ReadDirect, WriteDirect, WriteInline};
use dafs_wire::{
    ByteOrder, Checksum, DirectBuffer, DirectBuffers, DirectChecksum, Procedure, Request,
    RequestHeader, Response, ResponseHeader, TRANSFER_ANSWER_BYTES, decode_results, encode_request,
    seal,
};

use crate::buffer::{Registered, Slice};
use crate::core::{Core, OperationId, Pending, SessionState, Transferred};
use crate::error::{ClientError, Result};
use crate::groups::Group;
use crate::waiters::Ticket;

/// A transfer under way.
pub(crate) struct Transfer {
    pub id: OperationId,
    pub destination: Destination,
    pub context: u64,
    procedure: Procedure,
    /// Kept until the end; checked against the checksum of a read.
    buffer: Option<Rc<Registered>>,
    offset: usize,
    /// Octets asked for.
    length: u32,
    /// What follows, where more is asked for than one request may move.
    rest: Option<Box<Rest>>,
    pub is_cancelled: bool,
}

/// Where the end of a transfer is looked for.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    Group(Group),
    Waiter(Ticket),
}

/// The part of a transfer that has not been asked for yet.
struct Rest {
    job: TransferJob,
    /// What the parts before have moved.
    done: Transferred,
    is_first: bool,
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
    ///
    /// More than one request may move ([`limits::TRANSFER_BYTES_MAX`]) goes as several,
    /// one behind the other, under one operation.
    #[inline]
    pub fn submit(
        &mut self,
        index: usize,
        job: TransferJob,
        slice: Option<Slice>,
        destination: Destination,
        context: u64,
    ) -> Result<OperationId> {
        self.check_open(index)?;
        if let Destination::Group(group) = destination
            && !self.groups.begin(group)
        {
            return Err(ClientError::System {
                what: "submitting a transfer",
                reason: "its completion group was released, or is another client's".into(),
            });
        }
        let id = self.next_id();
        let (buffer, offset) = match slice {
            Some(slice) => (Some(slice.buffer), slice.offset),
            None => (None, 0),
        };
        let (job, rest) = job.split();
        let transfer = Transfer {
            id,
            destination,
            context,
            procedure: job.procedure(),
            buffer,
            offset,
            length: job.length,
            rest,
            is_cancelled: false,
        };
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

    /// The answer to a transfer came.
    #[inline]
    pub fn on_transferred(
        &mut self,
        index: usize,
        mut transfer: Transfer,
        header: &ResponseHeader,
        message: &[u8],
    ) {
        let mut result = transfer.finish(header, message, &self.sessions[index]);
        if let Some(rest) = transfer.rest.take() {
            match transfer.follow(rest, result) {
                Ok(next) => return self.sessions[index].queue.push_front(next),
                Err(end) => (transfer, result) = end,
            }
        }
        self.complete(&transfer, result);
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
            session.credits.withdraw(stream);
            let what = "encoding a transfer".into();
            let error = ClientError::Status { what, status: Status::ServerFault };
            return self.complete(&transfer, Err(error));
        };
        if checksums {
            match (inline, buffer) {
                (Some(_), Some(buffer)) => {
                    let data = buffer.memory.to_vec(transfer.offset, length as usize);
                    seal(&mut message[..written], &[&data]);
                }
                _ => seal(&mut message[..written], &[]),
            }
        }
        let is_read = job.kind == TransferKind::Read;
        let pending = Pending::Transfer(transfer);
        match inline {
            Some(segment) => {
                let gather = [Gather::Bytes(&message[..written]), Gather::Segment(segment)];
                self.post(index, stream, pending, &gather);
            }
            None => self.post(index, stream, pending, &[Gather::Bytes(&message[..written])]),
        }
        match target {
            Some(target) if is_read => {
                self.interface.expect(endpoint, &[target], ANSWER_BYTES);
            }
            _ => self.interface.expect(endpoint, &[], ANSWER_BYTES),
        }
    }
}

impl TransferJob {
    #[inline]
    fn procedure(&self) -> Procedure {
        match self.kind {
            TransferKind::Read => Procedure::ReadDirect,
            TransferKind::Write(_) => Procedure::WriteDirect,
            TransferKind::Commit => Procedure::Commit,
        }
    }

    /// What one request may move, and what is left for others.
    #[inline]
    fn split(self) -> (Self, Option<Box<Rest>>) {
        if self.length <= limits::TRANSFER_BYTES_MAX {
            return (self, None);
        }
        let first = Self { length: limits::TRANSFER_BYTES_MAX, ..self };
        let job = self.behind(first.length);
        (first, Some(Box::new(Rest { job, done: Transferred::default(), is_first: true })))
    }

    /// What is left behind the first `length` octets.
    fn behind(self, length: u32) -> Self {
        // The server refuses ranges beyond every file; none is wrapped into one.
        let offset = self.offset.saturating_add(u64::from(length));
        Self { offset, length: self.length - length, ..self }
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
    /// Turns the answer into a result.
    #[inline]
    fn finish(
        &self,
        header: &ResponseHeader,
        message: &[u8],
        session: &SessionState,
    ) -> Result<Transferred> {
        if self.is_cancelled {
            return Err(ClientError::Cancelled);
        }
        let moved = self.read_answer(header, message, session)?;
        if moved.length > self.length {
            return Err(ClientError::Protocol {
                address: session.address.clone(),
                what: format!(
                    "{} answer: {} octets where {} were asked for",
                    self.procedure.name(),
                    moved.length,
                    self.length
                ),
            });
        }
        Ok(moved)
    }

    /// The next request of a transfer that takes several, or its end.
    ///
    /// The verifier that counts is that of the first part: if a server restart between
    /// parts changed it, the commit's will differ from it too.
    fn follow(
        mut self,
        mut rest: Box<Rest>,
        result: Result<Transferred>,
    ) -> std::result::Result<QueuedTransfer, (Self, Result<Transferred>)> {
        let moved = match result {
            Ok(moved) => moved,
            Err(error) => return Err((self, Err(error))),
        };
        rest.done = Transferred {
            length: rest.done.length + moved.length,
            end_of_file: moved.end_of_file,
            verifier: if rest.is_first { moved.verifier } else { rest.done.verifier },
        };
        rest.is_first = false;
        if moved.end_of_file || moved.length < self.length || rest.job.length == 0 {
            return Err((self, Ok(rest.done)));
        }
        let (job, more) = rest.job.split();
        rest.job = more.map_or(TransferJob { length: 0, ..job }, |more| more.job);
        self.offset += self.length as usize;
        self.length = job.length;
        self.procedure = job.procedure();
        self.rest = Some(rest);
        Ok(QueuedTransfer { transfer: self, job })
    }

    #[inline]
    fn read_answer(
        &self,
        header: &ResponseHeader,
        message: &[u8],
        session: &SessionState,
    ) -> Result<Transferred> {
        let protocol = |what: String| ClientError::Protocol {
            address: session.address.clone(),
            what: format!("{} answer: {what}", self.procedure.name()),
        };
        let response = decode_results(ByteOrder::NATIVE, self.procedure, header, message)
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

    /// Its session ended while the server may have been at work on its memory.
    pub fn note_exposed(&self) {
        if let Some(buffer) = &self.buffer {
            buffer.note_exposed();
        }
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
const ANSWER_BYTES: u32 = TRANSFER_ANSWER_BYTES as u32;

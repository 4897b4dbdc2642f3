//! Transfers: READ, WRITE and COMMIT, from submission to completion.
//!
//! Invariant: a transfer holds the buffer it uses until its answer is there, and never
//! reports more octets than were asked for. In steady state nothing here allocates.

use std::rc::Rc;

use dafs_dat::{Forecast, Gather, Region, RegionPath};
use dafs_types::{
    CacheHint, RmrContext, RmrTarget, SequenceNumber, Stability, Status, StreamId, limits,
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
use crate::opens::Opened;
use crate::recovery::{Delay, is_put_off};
use crate::waiters::Ticket;

/// A transfer, waiting or under way. It holds all that is needed to ask for it again.
pub(crate) struct Transfer {
    pub id: OperationId,
    pub destination: Destination,
    pub context: u64,
    /// As which it was sent last.
    pub procedure: Procedure,
    /// What one request moves.
    pub job: TransferJob,
    /// Kept until the end; checked against the checksum of a read.
    buffer: Option<Rc<Registered>>,
    offset: usize,
    /// What follows, where more is asked for than one request may move.
    rest: Option<Box<Rest>>,
    pub is_cancelled: bool,
    /// For a commit: the writes that were answered when it was sent.
    mark: u32,
    /// The server has put it off.
    pub delay: Option<Box<Delay>>,
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

/// What is to be moved. The file's state id is looked up when a request is sent: it may
/// be another one by then.
#[derive(Clone)]
pub(crate) struct TransferJob {
    pub file: Rc<Opened>,
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
            job,
            buffer,
            offset,
            rest,
            is_cancelled: false,
            mark: 0,
            delay: None,
        };
        let session = &mut self.sessions[index];
        if let (TransferKind::Write(_), Some(delegated)) =
            (transfer.job.kind, &mut session.delegated)
        {
            delegated.note_change(Some(&transfer.job.file.handle));
        }
        // Later requests must not overtake those that wait already.
        let credit = if session.queue.is_empty() { session.credits.take() } else { None };
        match credit {
            Some((stream, sequence)) => self.send_transfer(index, stream, sequence, transfer),
            None => session.queue.push_back(transfer),
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
        if is_put_off(header.status) && !transfer.is_cancelled {
            transfer = match self.put_off_transfer(index, transfer) {
                Some(transfer) => transfer,
                None => return,
            };
        }
        let mut result = transfer.finish(header, message, &self.sessions[index]);
        if let Some(rest) = transfer.rest.take() {
            match transfer.follow(rest, result) {
                Some(end) => result = end,
                None => return self.sessions[index].queue.push_front(transfer),
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
        mut transfer: Transfer,
    ) {
        if let Err(error) = self.reach(index, transfer.buffer.as_deref()) {
            self.sessions[index].credits.withdraw(stream);
            return self.complete(&transfer, Err(error));
        }
        let session = &mut self.sessions[index];
        let header = RequestHeader {
            desired_credits: session.wish,
            analyzer: session.label,
            ..RequestHeader::new(stream, sequence)
        };
        let endpoint = session.endpoint;
        let checksums = session.checksums;
        let mut message = [0; REQUEST_BYTES];
        transfer.procedure = transfer.job.procedure();
        let TransferJob { file: ref opened, offset, kind, length, hint } = transfer.job;
        let (file, state) = (opened.handle, opened.state());
        let buffer = transfer.buffer.as_deref();
        let interface = &mut self.interface;
        let target =
            buffer.map(|b| interface.remote(endpoint, &b.region, transfer.offset as u64, length));
        let direct = target.map(|t| DirectBuffer {
            target: RmrTarget(t.address),
            length,
            context: RmrContext(t.stag.0),
        });
        let direct = direct.as_slice();
        let buffers = DirectBuffers::from(direct);
        let mut inline = None;
        let request = match kind {
            TransferKind::Read => {
                Request::ReadDirect(ReadDirect { file, state, offset, length, hint, buffers })
            }
            TransferKind::Commit => {
                transfer.mark = opened.writes();
                Request::Commit(Commit { file, offset, length })
            }
            TransferKind::Write(stability) => {
                let is_here = buffer.is_none_or(|buffer| !buffer.is_device);
                if is_here && session.writes_inline && length <= session.inline_bytes_max() {
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
        let is_read = kind == TransferKind::Read;
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
                self.interface.expect(endpoint, &Forecast::answer(&[target], ANSWER_BYTES));
            }
            _ => self.interface.expect(endpoint, &Forecast::answer(&[], ANSWER_BYTES)),
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
        let all = self.length;
        let first = Self { length: limits::TRANSFER_BYTES_MAX, ..self };
        let job = first.rest_of(all);
        (first, Some(Box::new(Rest { job, done: Transferred::default(), is_first: true })))
    }

    /// What is left behind it of `all` octets.
    fn rest_of(&self, all: u32) -> Self {
        // The server refuses ranges beyond every file; none is wrapped into one.
        let offset = self.offset.saturating_add(u64::from(self.length));
        Self { offset, length: all - self.length, ..self.clone() }
    }
}

impl SessionState {
    /// Octets of data that fit a request behind WRITE_INLINE's arguments.
    pub fn inline_bytes_max(&self) -> u32 {
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
        if moved.length > self.job.length {
            return Err(ClientError::Protocol {
                address: session.address.clone(),
                what: format!(
                    "{} answer: {} octets where {} were asked for",
                    self.procedure.name(),
                    moved.length,
                    self.job.length
                ),
            });
        }
        Ok(moved)
    }

    /// Goes on to the next request of a transfer that takes several, or gives its end.
    ///
    /// The verifier that counts is that of the first part: if a server restart between
    /// parts changed it, the commit's will differ from it too.
    fn follow(
        &mut self,
        mut rest: Box<Rest>,
        result: Result<Transferred>,
    ) -> Option<Result<Transferred>> {
        let moved = match result {
            Ok(moved) => moved,
            Err(error) => return Some(Err(error)),
        };
        rest.done = Transferred {
            length: rest.done.length + moved.length,
            end_of_file: moved.end_of_file,
            verifier: if rest.is_first { moved.verifier } else { rest.done.verifier },
        };
        rest.is_first = false;
        if moved.end_of_file || moved.length < self.job.length || rest.job.length == 0 {
            return Some(Ok(rest.done));
        }
        self.offset += self.job.length as usize;
        let (job, more) = rest.job.clone().split();
        rest.job = more.map_or_else(|| TransferJob { length: 0, ..job.clone() }, |more| more.job);
        self.job = job;
        self.rest = Some(rest);
        None
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
            return Err(self.job.file.refusal(self.procedure.name(), header.status));
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
            Response::WriteDirect(write) | Response::WriteInline(write) => {
                if write.committed == Stability::Unstable {
                    self.job.file.note_write();
                }
                Ok(Transferred {
                    length: write.length,
                    end_of_file: false,
                    verifier: write.verifier,
                })
            }
            Response::Commit(commit) => {
                self.job.file.note_commit(self.mark);
                Ok(Transferred { verifier: commit.verifier, ..Transferred::default() })
            }
            _ => Err(protocol("results of another procedure".into())),
        }
    }

    /// Memory of the application's own, if it moves such.
    pub fn lent_region(&self) -> Option<&Region> {
        self.buffer.as_deref().map(|buffer| &buffer.region).filter(|region| region.is_lent())
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
pub(crate) const ANSWER_BYTES: u32 = TRANSFER_ANSWER_BYTES as u32;

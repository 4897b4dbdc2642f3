//! Transfers (READ, WRITE and COMMIT) and the evaluation of their replies.
//!
//! Invariant: a transfer keeps its buffer until its reply has arrived, and never reports more bytes
//! than were requested.

use std::rc::Rc;

use dafs_dat::Region;
use dafs_types::{CacheHint, Stability, Status, limits};
use dafs_wire::{
    ByteOrder, Checksum, DirectChecksum, Procedure, Response, ResponseHeader,
    TRANSFER_ANSWER_BYTES, decode_results,
};

use crate::buffer::{RegisteredMemory, Slice};
use crate::error::{ClientError, Result};
use crate::opens::Opened;
use crate::operation::{OperationId, Transferred};
use crate::recovery::delay::Delay;
use crate::result_sinks::Destination;

/// A transfer, queued or in flight, with all data that is needed to send it again.
pub(crate) struct Transfer {
    pub id: OperationId,
    pub destination: Destination,
    pub context: u64,
    /// The procedure with which the transfer was sent most recently.
    pub procedure: Procedure,
    /// The part of the transfer that the current request moves.
    pub job: TransferJob,
    /// The buffer, kept until the transfer ends; the checksum of a read is verified against its
    /// content.
    buffer: Option<Rc<RegisteredMemory>>,
    offset: usize,
    /// The part of the transfer that follows the current request, if the transfer needs several
    /// requests.
    rest: Option<Box<Rest>>,
    pub is_cancelled: bool,
    /// True if the transfer uses an additional channel and is included in its open's count of such
    /// transfers.
    is_elsewhere: bool,
    /// For a commit: the number of writes whose replies had arrived when the commit was sent.
    mark: u32,
    /// Set if the server has delayed the transfer.
    pub delay: Option<Box<Delay>>,
}

/// Facts about the server that are needed to decode its replies.
pub(crate) struct Server<'s> {
    pub address: &'s str,
    pub checksums: bool,
}

/// The part of a transfer that was not requested yet.
pub(crate) struct Rest {
    job: TransferJob,
    /// The sum of the results of the earlier requests.
    done: Transferred,
    is_first: bool,
}

/// The range and the memory of a transfer. The file's state id is looked up when the request is
/// sent, because it may have changed by then.
#[derive(Clone)]
pub(crate) struct TransferJob {
    pub file: Rc<Opened>,
    pub offset: u64,
    pub kind: TransferKind,
    /// The number of bytes; for a commit, 0 means up to the end of the file.
    pub length: u32,
    pub hint: CacheHint,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferKind {
    Read,
    Write(Stability),
    Commit,
}

impl TransferJob {
    #[inline]
    pub(crate) fn procedure(&self) -> Procedure {
        match self.kind {
            TransferKind::Read => Procedure::ReadDirect,
            TransferKind::Write(_) => Procedure::WriteDirect,
            TransferKind::Commit => Procedure::Commit,
        }
    }

    /// Splits the job into a job that one request can carry out, and the remainder.
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

    /// Returns the job for the bytes of `all` that follow this job.
    fn rest_of(&self, all: u32) -> Self {
        // The server refuses ranges beyond the largest file; saturating avoids wrapping around.
        let offset = self.offset.saturating_add(u64::from(self.length));
        Self { offset, length: all - self.length, ..self.clone() }
    }
}

impl Transfer {
    /// Creates a transfer between a range of a file and memory.
    #[inline]
    pub(crate) fn new(
        id: OperationId,
        job: TransferJob,
        slice: Option<Slice>,
        destination: Destination,
        context: u64,
    ) -> Self {
        let (buffer, offset) = match slice {
            Some(slice) => (Some(slice.buffer), slice.offset),
            None => (None, 0),
        };
        let (job, rest) = job.split();
        Self {
            id,
            destination,
            context,
            procedure: job.procedure(),
            job,
            buffer,
            offset,
            rest,
            is_cancelled: false,
            is_elsewhere: false,
            mark: 0,
            delay: None,
        }
    }

    /// Returns the memory that the transfer uses, and the offset in that memory.
    #[inline]
    pub(crate) fn memory(&self) -> (Option<&RegisteredMemory>, usize) {
        (self.buffer.as_deref(), self.offset)
    }

    /// Records, just before the request is sent, its procedure and the number of writes with
    /// replies.
    #[inline]
    pub(crate) fn note_sent(&mut self, procedure: Procedure) {
        self.procedure = procedure;
        if procedure == Procedure::Commit {
            self.mark = self.job.file.writes();
        }
    }

    /// Converts the reply into the result of the request.
    #[inline]
    pub(crate) fn finish(
        &self,
        header: &ResponseHeader,
        message: &[u8],
        server: &Server<'_>,
    ) -> Result<Transferred> {
        if self.is_cancelled {
            return Err(ClientError::Cancelled);
        }
        let moved = self.read_answer(header, message, server)?;
        if moved.length > self.job.length {
            return Err(ClientError::Protocol {
                address: server.address.to_owned(),
                what: format!(
                    "{} reply: {} bytes instead of the {} requested",
                    self.procedure.name(),
                    moved.length,
                    self.job.length
                ),
            });
        }
        Ok(moved)
    }

    /// Advances a transfer to its next part. Returns the result of the whole transfer if it is
    /// complete, and otherwise `None`.
    ///
    /// The result has the verifier of the first part: if a restart of the server between two parts
    /// changes the verifier, the commit's verifier differs from that of the first part too.
    pub(crate) fn follow(&mut self, result: Result<Transferred>) -> Option<Result<Transferred>> {
        let Some(mut rest) = self.rest.take() else { return Some(result) };
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
        server: &Server<'_>,
    ) -> Result<Transferred> {
        let protocol = |what: String| ClientError::Protocol {
            address: server.address.to_owned(),
            what: format!("{} reply: {what}", self.procedure.name()),
        };
        let response = decode_results(ByteOrder::NATIVE, self.procedure, header, message)
            .map_err(|error| protocol(error.to_string()))?;
        if header.status != Status::Ok {
            return Err(self.job.file.refusal(self.procedure.name(), header.status));
        }
        match response {
            Response::ReadDirect(read) => {
                if server.checksums && self.checksum(read.length) != read.checksum {
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

    /// Assigns the transfer to an additional channel, and adds it to its open's count of such
    /// transfers.
    pub(crate) fn move_elsewhere(&mut self) {
        self.is_elsewhere = true;
        self.job.file.begin_elsewhere();
    }

    /// Returns the transfer to the first channel.
    pub(crate) fn move_to_first_channel(&mut self) {
        self.note_over();
        self.is_elsewhere = false;
    }

    /// Subtracts the transfer from its open's count of transfers on additional channels.
    #[inline]
    pub(crate) fn note_over(&self) {
        if self.is_elsewhere {
            self.job.file.end_elsewhere();
        }
    }

    /// Returns the lent memory that the transfer moves, if any.
    pub(crate) fn lent_region(&self) -> Option<&Region> {
        self.buffer.as_deref().map(|buffer| &buffer.region).filter(|region| region.is_lent())
    }

    /// Marks the memory as exposed, because the session ended while the server may have been
    /// accessing it.
    pub(crate) fn note_exposed(&self) {
        if let Some(buffer) = &self.buffer {
            buffer.note_exposed();
        }
    }

    /// Computes the checksum of the first `length` bytes in memory.
    pub(crate) fn checksum(&self, length: u32) -> Checksum {
        let mut sums = DirectChecksum::new();
        if let Some(buffer) = &self.buffer
            && buffer.memory.contains(self.offset, length as usize)
        {
            sums.update(&buffer.memory.to_vec(self.offset, length as usize));
        }
        sums.finish()
    }
}

pub(crate) const ANSWER_BYTES: u32 = TRANSFER_ANSWER_BYTES as u32;

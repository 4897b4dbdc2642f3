//! Transfers: READ, WRITE and COMMIT, and what their answers say.
//!
//! Invariant: a transfer holds the buffer it uses until its answer is there, and never
//! reports more bytes than were asked for.

use std::rc::Rc;

use dafs_dat::Region;
use dafs_types::{CacheHint, Stability, Status, limits};
use dafs_wire::{
    ByteOrder, Checksum, DirectChecksum, Procedure, Response, ResponseHeader,
    TRANSFER_ANSWER_BYTES, decode_results,
};

use crate::buffer::{RegisteredMemory, Slice};
use crate::ends::Destination;
use crate::error::{ClientError, Result};
use crate::opens::Opened;
use crate::operation::{OperationId, Transferred};
use crate::recovery::delay::Delay;

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
    buffer: Option<Rc<RegisteredMemory>>,
    offset: usize,
    /// What follows, where more is asked for than one request may move.
    rest: Option<Box<Rest>>,
    pub is_cancelled: bool,
    /// It goes over a channel beside the first, and is counted in its open.
    is_beside: bool,
    /// For a commit: the writes that were answered when it was sent.
    mark: u32,
    /// The server has put it off.
    pub delay: Option<Box<Delay>>,
}

/// What must be known of a server to read its answers.
pub(crate) struct Server<'s> {
    pub address: &'s str,
    pub checksums: bool,
}

/// The part of a transfer that has not been asked for yet.
pub(crate) struct Rest {
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
    /// Bytes; for a commit 0 means to the end.
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
    pub fn procedure(&self) -> Procedure {
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

    /// What is left behind it of `all` bytes.
    fn rest_of(&self, all: u32) -> Self {
        // The server refuses ranges beyond every file; none is wrapped into one.
        let offset = self.offset.saturating_add(u64::from(self.length));
        Self { offset, length: all - self.length, ..self.clone() }
    }
}

impl Transfer {
    /// A transfer of these bytes of a file, out of memory or into it.
    #[inline]
    pub fn new(
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
            is_beside: false,
            mark: 0,
            delay: None,
        }
    }

    /// The memory that it moves bytes from or to, and where in it.
    #[inline]
    pub fn memory(&self) -> (Option<&RegisteredMemory>, usize) {
        (self.buffer.as_deref(), self.offset)
    }

    /// It is about to be sent: which procedure that is, and how many writes of the file were
    /// answered before.
    #[inline]
    pub fn note_sent(&mut self, procedure: Procedure) {
        self.procedure = procedure;
        if procedure == Procedure::Commit {
            self.mark = self.job.file.writes();
        }
    }

    /// Turns the answer into a result.
    #[inline]
    pub fn finish(
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
                    "{} answer: {} bytes where {} were asked for",
                    self.procedure.name(),
                    moved.length,
                    self.job.length
                ),
            });
        }
        Ok(moved)
    }

    /// Goes on to the next request of a transfer that takes several, or gives its end: that of
    /// the request just answered if it takes one alone.
    ///
    /// The verifier that counts is that of the first part: if a server restart between
    /// parts changed it, the commit's will differ from it too.
    pub fn follow(&mut self, result: Result<Transferred>) -> Option<Result<Transferred>> {
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
            what: format!("{} answer: {what}", self.procedure.name()),
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

    /// It goes over a channel beside the first.
    pub fn go_beside(&mut self) {
        self.is_beside = true;
        self.job.file.begin_beside();
    }

    /// It goes over the first channel from now on.
    pub fn come_back(&mut self) {
        self.note_over();
        self.is_beside = false;
    }

    /// It has ended, or is not counted beside any more.
    #[inline]
    pub fn note_over(&self) {
        if self.is_beside {
            self.job.file.end_beside();
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

    /// The checksum of its first bytes, as they are in memory.
    pub fn checksum(&self, length: u32) -> Checksum {
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

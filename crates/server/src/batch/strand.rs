//! Strands: single transfers of batches between the cache and a client's memory.
//!
//! Invariant: a strand holds its file and everything that it has pinned or prepared until all its
//! posted transfers are done. Only then does it report the end of its piece to the scheduler.
//!
//! The bytes of an asynchronous batch's READ go over the back-control channel, before the notice.
//! The bytes of a synchronous batch's READ go over the operation channel, before the reply.
//! The transfer and the message must use the same connection, because only then do the written
//! bytes arrive before the later message.

mod steps;

use std::sync::Arc;

use dafs_dat::EndpointId;
use dafs_filer::IoKind;
use dafs_files::reading::Reading;
use dafs_files::under_way::Reach;
use dafs_files::undo::seen::UndoSeen;
use dafs_files::writing::Part;
use dafs_sessions::Piece;
use dafs_store::StoreError;
use dafs_store::cache::{CachedFile, Pin, WriteToken};
use dafs_types::{CacheHint, SequenceNumber, SessionId, StreamId};

use crate::moving::transfer::Staging;
use crate::reply_to::ReplyTo;

/// A transfer in progress. It belongs to a batch.
#[derive(Debug)]
pub(crate) struct Strand {
    /// The scheduler's description of the transfer. `None` after the end of the transfer was
    /// reported to the scheduler.
    piece: Option<Piece>,
    kind: IoKind,
    session: SessionId,
    /// The connection that carries the bytes of a READ.
    pub(crate) over: EndpointId,
    pub file: CachedFile,
    pub offset: u64,
    pub length: u32,
    borrowed: bool,
    hint: CacheHint,
    done: u32,
    /// True if transfers were posted for all bytes of a READ that can be read.
    is_whole: bool,
    pub transfers_left: u32,
    pub transfer_failed: bool,
    /// The memory that the transport may still access for a READ.
    lent: LentMemory,
    /// The state of the undo data when the transfer started.
    pub undo_seen: UndoSeen,
    /// The token of the cache space that a WRITE fills.
    pub token: Option<WriteToken>,
    /// The bytes to write of the whole request, and the offset at which this transfer's bytes
    /// start. `None` if the bytes are not fetched yet.
    data: Option<(Arc<[u8]>, usize)>,
    /// The result of making the bytes stable. `None` until the commit ends.
    stable: Option<Result<(), StoreError>>,
    /// True if the transfer is counted in `Batches::in_flight`.
    is_in_flight: bool,
}

/// The memory that the transport reads for the RDMA writes of one strand (a transfer of a batch).
#[derive(Debug, Default)]
struct LentMemory {
    /// The number of bytes for which RDMA writes were posted.
    posted: u32,
    pins: Vec<Pin>,
    /// Copies of the bytes, used in sessions with checksums.
    staged: Vec<Staging>,
}

impl Strand {
    /// Returns true for a READ, which may run concurrently with other READs of the range.
    pub(crate) fn is_read(&self) -> bool {
        self.kind == IoKind::Read
    }

    /// Returns the number of bytes of the posted transfers that are not complete yet.
    pub(crate) fn bytes_moving(&self) -> u32 {
        self.token.as_ref().map_or(self.lent.posted, |token| token.length())
    }

    /// Returns the range of the file that this transfer may still access.
    pub(crate) fn reach(&self) -> Reach {
        let changes = (!self.is_read()).then_some(self.undo_seen);
        Reach::of(self.file, (self.offset, self.length), changes)
    }

    /// Returns a description of the remaining part of a READ.
    fn reading(&self) -> Reading {
        let Self { file, offset, length, done, hint, borrowed, .. } = *self;
        Reading { file, offset, length, done, hint, borrowed }
    }

    /// Returns a description of the remaining part of a WRITE.
    fn part(&self) -> Part {
        let place = self.offset + u64::from(self.done);
        Part { file: self.file, place, left: self.length - self.done }
    }

    /// Records the result of making the written bytes stable.
    pub(crate) fn note_stable(&mut self, result: Result<(), StoreError>) {
        self.stable = Some(result);
    }
}

/// Returns the connection of a transfer of a batch, in the form of a reply's destination. Such a
/// transfer sends no reply itself, so the stream and sequence number are 0.
fn answer_to(operation: EndpointId) -> ReplyTo {
    ReplyTo::new(operation, StreamId(0), SequenceNumber(0))
}
